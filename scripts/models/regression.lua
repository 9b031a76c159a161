--- A multi-layer perceptron for one number.
-- args: hidden (list of widths, default {32}); dropout (default 0)
local nn = require "nn"

return function(args)
  local net, dropout = nn.sequential {nn.flatten()}, args.dropout or 0
  for _, width in ipairs(args.hidden or {32}) do
    net:add(nn.linear(width), nn.relu(), nn.dropout(dropout))
  end
  net:add(nn.linear(1))

  return {
    forward = function(x) return net(x) end,
    loss = function(out, y) return nn.mse(out, y) end,
    metrics = {mae = nn.mae, r2 = nn.r2},
  }
end
