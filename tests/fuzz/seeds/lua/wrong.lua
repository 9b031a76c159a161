local nn = require 'nn' return function(a) return {forward = function(x) return x:matmul(nn.param('w', {5, 6}, {init = nn.init.orthogonal(2), decay = false})) end, los = 1} end
