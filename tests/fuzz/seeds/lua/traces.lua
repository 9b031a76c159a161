local nn = require 'nn' return function(a) local k return {forward = function(x, b) k = k or x nn.param('w', {b.training and 3 or 4}) return k end, loss = function(o, y) return o:sum() end} end
