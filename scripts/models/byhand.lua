--- A small classifier written with tensors alone: own parameters, own products, own loss.
-- It shows what the layers of nn.lua do inside. args: classes; hidden (a width, default 32)
local nn = require "nn"

return function(args)
  local hidden, classes = args.hidden or 32, args.classes

  -- x W + b, with W stored [in, out] for a change, and scaled for relu.
  local function dense(name, x, out)
    local width = x.shape[2]
    local w = nn.param(name .. ".w", {width, out}, {init = nn.init.kaiming_normal(), fan_in = width, fan_out = out})
    local b = nn.param(name .. ".b", {out}, {init = nn.init.zeros()})
    return x:matmul(w) + b
  end

  return {
    forward = function(x)
      local h = nn.flatten(x)
      h = dense("first", h, hidden)
      h = nn.maximum(h, 0) ^ 2                                   -- squared relu
      return dense("last", h, classes)
    end,

    -- Cross-entropy from its definition: log of the sum of exponentials minus the logit of the class. Subtracting the
    -- largest logit first keeps exp within range. The loss is a mean: the sum over the batch and its weight.
    loss = function(logits, y)
      local shifted = logits - nn.stop_gradient(logits:max(-1, true))
      local total = nn.log(nn.exp(shifted):sum(-1))
      local ids = nn.labels(y):reshape {y.shape[1], 1}
      local own = shifted:take_along(ids, -1):reshape {y.shape[1]}
      return nn.mean(nn.sum(total - own), y.shape[1])
    end,

    metrics = {accuracy = nn.accuracy},
    predict = function(logits) return logits:softmax(-1) end,
  }
end
