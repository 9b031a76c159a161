--- A multi-layer perceptron for classes.
-- args: classes; hidden (list of widths, default {128}); dropout (default 0)
local nn = require "nn"

return function(args)
  local net, dropout = nn.sequential {nn.flatten()}, args.dropout or 0
  for _, width in ipairs(args.hidden or {128}) do
    net:add(nn.linear(width), nn.relu(), nn.dropout(dropout))
  end
  net:add(nn.linear(args.classes))

  return {
    forward = function(x) return net(x) end,
    loss = function(logits, y) return nn.cross_entropy(logits, y) end,
    metrics = {accuracy = nn.accuracy},
  }
end
