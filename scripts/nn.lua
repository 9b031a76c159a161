--- Layers, losses, metrics and tensor functions for models.
--
-- Everything here works on symbols: a model's functions run once for every mode and batch shape, and what they do
-- becomes a graph. A layer is made once (`local fc = nn.linear(64)`) and called with tensors (`fc(x)`); its parameters
-- get the names of the path where it is stored ("layers.2.weight").
--
-- The functions of a tensor are methods as well: `x:sum(2)` is `nn.sum(x, 2)`. Axes are 1-based, -1 is the last.
-- @module nn
local core = require "nn.core"

local nn = {}

local fail, is_tensor = core.fail, core.is_tensor

-- ---- checks ---------------------------------------------------------------------------------------------------------

-- Options come in a table; a key that is not known is an error, because it would be ignored.
local function options(what, given, known)
  if given == nil or core.is_batch(given) then return {} end -- `loss = nn.mse` is called with (out, y, batch)
  if type(given) ~= "table" then fail(what .. ": options are a table, not a " .. type(given)) end
  for key in pairs(given) do
    local ok = false
    for _, name in ipairs(known) do ok = ok or name == key end
    if not ok then
      local near = core.nearest(tostring(key), known)
      fail(what .. ": unknown option " .. tostring(key) .. (near and "; did you mean " .. near .. "?"
        or "; there are: " .. table.concat(known, ", ")))
    end
  end
  return given
end

local function whole(what, v, least)
  if math.type(v) ~= "integer" or v < least then
    fail(("%s must be a whole number from %d on, but is %s"):format(what, least, v))
  end
  return v
end

local function number(what, v, least, most)
  if type(v) ~= "number" or not (v >= least and v <= most) then
    fail(("%s must be a number in %g .. %g, but is %s"):format(what, least, most, v))
  end
  return v
end

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

-- Are the shapes alike but for dimensions of 1?
local function alike(a, b)
  local i, j = 1, 1
  while true do
    while a[i] == 1 do i = i + 1 end
    while b[j] == 1 do j = j + 1 end
    if a[i] ~= b[j] then return false end
    if a[i] == nil then return true end
    i, j = i + 1, j + 1
  end
end

-- y with the shape of `shape`, when they differ in dimensions of 1 only: [64] for outputs [64, 1]. Broadcasting them
-- would silently give [64, 64].
local function align(what, y, shape)
  if not alike(y.shape, shape) then
    fail(("%s: outputs ask for targets of %s, but they are %s"):format(what, shape_text(shape), shape_text(y.shape)))
  end
  return core.reshape(y, shape)
end

-- ---- modules and their paths ----------------------------------------------------------------------------------------

local info = setmetatable({}, {__mode = "k"}) -- of a module: kind, where, made_in, parent, key, path
local Module = {}

local trace = 0                                          -- the trace that `claimed` belongs to
local claimed = {}                                       -- path -> module, within one trace
local owners = setmetatable({}, {__mode = "v"})          -- path -> module made outside of traces, for unnamed ones

local function refresh()
  if trace ~= core.generation() then trace, claimed = core.generation(), {} end
end

local function claim(path, m)
  refresh()
  local other = claimed[path]
  if other == nil then
    claimed[path] = m
  elseif not rawequal(other, m) then
    fail(("two layers have the path %s: %s and %s; give one another by nn.name"):format(path, info[other].where,
      info[m].where))
  end
  return path
end

-- "linear1", "linear2" in order of first use; a sequential is "layers", "layers2".
local function unnamed(m)
  local kind = info[m].kind
  refresh()
  for n = 1, math.huge do
    local path = kind ~= "sequential" and kind .. n or n == 1 and "layers" or "layers" .. n
    local owner = owners[path]
    if claimed[path] == nil and (owner == nil or rawequal(owner, m)) then
      if info[m].made_in == 0 then owners[path] = m end
      return path
    end
  end
end

local function path_of(m)
  local i = info[m]
  if not i.path then
    if i.parent then
      i.path = path_of(i.parent) .. "." .. i.key
    else
      i.path = unnamed(m)
    end
  end
  return claim(i.path, m)
end

local function is_module(v) return type(v) == "table" and info[v] ~= nil end

-- A module stored in a parent gets its path from there; the first parent counts.
local function adopt(parent, key, child)
  if is_module(child) then
    local i = info[child]
    if not i.parent and not i.path then i.parent, i.key = parent, tostring(key) end
  elseif type(child) == "table" and getmetatable(child) == nil then
    for k, v in ipairs(child) do adopt(parent, key .. "." .. k, v) end
  end
end

function Module.__call(m, ...)
  local i = info[m]
  return core.call(path_of(m), i.kind, i.where, m.forward, m, ...)
end

function Module.__newindex(m, key, value)
  rawset(m, key, value)
  adopt(m, key, value)
end

function Module.__tostring(m) return info[m].kind .. (info[m].path and " " .. info[m].path or "") end

local function new_module(kind, fields)
  local m = setmetatable(fields, Module)
  info[m] = {kind = kind, where = core.place(), made_in = core.generation()}
  return m
end

local function layer(kind, forward) return new_module(kind, {forward = forward}) end

--- A layer of one's own: a table with `forward(self, ...)`. Layers in its fields, and in lists in its fields, get the
-- path of the field: `nn.module{fc = nn.linear(8), forward = function(self, x) return self.fc(x) end}`.
-- @tparam table fields
-- @return module
function nn.module(fields)
  if type(fields) ~= "table" or type(fields.forward) ~= "function" then
    fail("nn.module: a table with the function forward(self, ...) is needed")
  end
  local copy = {}
  for k, v in pairs(fields) do copy[k] = v end
  local m = new_module("module", copy)
  for k, v in pairs(fields) do adopt(m, k, v) end
  return m
end

--- Gives a module a path of its own.
-- @tparam string path "encoder.first"
-- @param m module
-- @return the module
function nn.name(path, m)
  if not is_module(m) then fail("nn.name: the second argument must be a layer") end
  if type(path) ~= "string" or not path:find("^[%w_%-]") then fail("nn.name: a path begins with a letter or digit") end
  info[m].path = path
  return m
end

local function add(net, ...)
  for _, child in ipairs {...} do
    if not is_module(child) and type(child) ~= "function" then
      fail(("layer %d must be a layer or a function, but is a %s"):format(#net + 1, type(child)))
    end
    rawset(net, #net + 1, child)
    adopt(net, #net, child)
  end
  return net
end

local function run_all(net, x)
  for _, child in ipairs(net) do x = child(x) end
  return x
end

local function container(kind, children, forward)
  local net = new_module(kind, {forward = forward, add = add})
  if type(children) ~= "table" or is_module(children) then fail("nn." .. kind .. ": a list of layers is needed") end
  for _, child in ipairs(children) do add(net, child) end
  return net
end

--- Layers one after another. `net:add(...)` appends. Functions of a tensor may stand between them.
-- @tparam table children list of layers
function nn.sequential(children) return container("sequential", children or {}, run_all) end

--- x plus what the layers make of it.
-- @tparam table children list of layers
function nn.residual(children)
  return container("residual", children, function(net, x) return x + run_all(net, x) end)
end

-- ---- initial values -------------------------------------------------------------------------------------------------

--- Ways to fill a parameter, for the option `init`. A way is a function of (fan_in, fan_out) that returns a kind and its
-- two numbers.
-- @section init
nn.init = {}

local function constant_way(kind, a, b) return function() return kind, a or 0, b or 0 end end

function nn.init.zeros() return constant_way("zeros") end
function nn.init.ones() return constant_way("ones") end
function nn.init.const(v) return constant_way("const", v) end
function nn.init.uniform(low, high) return constant_way("uniform", low or 0, high or 1) end
function nn.init.normal(mean, deviation) return constant_way("normal", mean or 0, deviation or 1) end

--- Normal, drawn again beyond two deviations.
function nn.init.trunc_normal(mean, deviation) return constant_way("trunc_normal", mean or 0, deviation or 1) end

--- Rows (the first dimension) orthogonal to each other, times gain.
function nn.init.orthogonal(gain) return constant_way("orthogonal", gain or 1) end

-- Variance gain^2 / fan, as a normal or a uniform distribution.
local function scaled_way(kind, gain, fan)
  return function(fan_in, fan_out)
    local deviation = gain / math.sqrt(math.max(fan(fan_in, fan_out), 1))
    if kind == "normal" then return "normal", 0, deviation end
    return "uniform", -math.sqrt(3) * deviation, math.sqrt(3) * deviation
  end
end

local function kaiming(kind)
  return function(o)
    o = options("nn.init.kaiming_" .. kind, o, {"gain", "mode"})
    if o.mode ~= nil and o.mode ~= "fan_in" and o.mode ~= "fan_out" then
      fail('nn.init.kaiming: mode is "fan_in" or "fan_out"')
    end
    return scaled_way(kind, o.gain or math.sqrt(2), function(i, out) return o.mode == "fan_out" and out or i end)
  end
end

local function xavier(kind)
  return function(o)
    o = options("nn.init.xavier_" .. kind, o, {"gain"})
    return scaled_way(kind, o.gain or 1, function(i, out) return (i + out) / 2 end)
  end
end

--- He et al. 2015 (arXiv:1502.01852). Options: gain (default sqrt(2), for relu), mode ("fan_in", "fan_out").
nn.init.kaiming_uniform = kaiming "uniform"
nn.init.kaiming_normal = kaiming "normal"
--- Glorot & Bengio 2010. Options: gain (default 1).
nn.init.xavier_uniform = xavier "uniform"
nn.init.xavier_normal = xavier "normal"

local default_init = nn.init.kaiming_uniform {gain = 1 / math.sqrt(3)} -- bound 1/sqrt(fan_in), as PyTorch's layers

-- ---- parameters and tunables ----------------------------------------------------------------------------------------

--- A parameter of one's own, f32. Within a layer its name is "<path>.<name>". Its fans are those of a weight stored
-- [out, in, ...] unless given.
-- @tparam string name
-- @tparam table shape list of sizes
-- @tparam[opt] table o init, decay (weight decay; default: not for vectors), fan_in, fan_out
-- @treturn tensor
function nn.param(name, shape, o)
  o = options("nn.param", o, {"init", "decay", "fan_in", "fan_out"})
  if type(name) ~= "string" then fail("nn.param: the name must be a string") end
  if type(shape) ~= "table" then fail("nn.param: the shape must be a list of sizes") end
  local rest = 1
  for d = 3, #shape do rest = rest * shape[d] end
  local fan_in = o.fan_in or (shape[2] or shape[1] or 1) * rest
  local fan_out = o.fan_out or (shape[1] or 1) * rest
  local init = o.init or default_init
  if type(init) ~= "function" then fail("nn.param: init is one of nn.init, as nn.init.normal(0, 0.02)") end
  local decay = o.decay
  if decay == nil then decay = #shape >= 2 end
  local kind, a, b = init(fan_in, fan_out)
  return core.param(name, shape, kind, a or 0, b or 0, decay)
end

--- A scalar that can be tuned while the model trains (`set RUN name=0.2`).
-- @tparam string name
-- @tparam number value at the start
-- @tparam[opt] table o min, max
-- @treturn tensor
function nn.tunable(name, value, o)
  o = options("nn.tunable", o, {"min", "max"})
  return core.tunable(name, value, o.min, o.max)
end

-- A number as a tunable of that name; a tunable as it is.
local function tunable_rate(what, name, p)
  if core.is_tunable(p) then return p end
  return core.tunable(name, number(what, p, 0, 1), 0, 1)
end

-- ---- layers with parameters -----------------------------------------------------------------------------------------

--- Layers. Those that have no parameters (relu, flatten ...) are functions too when the first argument is a tensor.
-- @section layers

local function affine(x, weight, bias)
  local shape, y = x.shape, nil
  if x.rank == 2 then
    y = core.matmul(x, weight, false, true)
  else
    local rows = core.reshape(x, {count(shape) // shape[#shape], shape[#shape]})
    y = core.matmul(rows, weight, false, true)
  end
  if bias then y = y + bias end
  if #shape == 2 then return y end
  shape[#shape] = weight.shape[1]
  return core.reshape(y, shape)
end

--- x W^T + b over the last axis; the input width is that of x. Weight [out, in], bias [out].
-- @tparam int out output width
-- @tparam[opt] table o bias (default true), init (of the weight)
function nn.linear(out, o)
  o = options("nn.linear", o, {"bias", "init"})
  whole("nn.linear: the output width", out, 1)
  return layer("linear", function(_, x)
    if x.rank < 2 then fail("linear: the input is " .. shape_text(x.shape) .. ", but needs a batch and a width") end
    local width = x.shape[x.rank]
    if width < 1 then fail("linear: the input has a width of 0") end
    local weight = nn.param("weight", {out, width}, {init = o.init})
    local bound = 1 / math.sqrt(width)
    local bias = o.bias ~= false and nn.param("bias", {out}, {init = nn.init.uniform(-bound, bound)})
    return affine(x, weight, bias)
  end)
end

--- Rows of a table by integer ids of any shape: [..] -> [.., width].
-- @tparam int entries ids are 0 .. entries - 1
-- @tparam int width
-- @tparam[opt] table o init (default normal(0, 1))
function nn.embedding(entries, width, o)
  o = options("nn.embedding", o, {"init"})
  whole("nn.embedding: the number of entries", entries, 1)
  whole("nn.embedding: the width", width, 1)
  return layer("embedding", function(_, ids)
    return core.take(nn.param("weight", {entries, width}, {init = o.init or nn.init.normal(0, 1)}), ids, 1)
  end)
end

--- Sets elements to 0 with probability p while training and scales the others by 1 / (1 - p). p is the tunable
-- "<path>.p".
-- @param p a number in 0 .. 1, or a tunable
function nn.dropout(p)
  if not core.is_tunable(p) then number("nn.dropout: p", p, 0, 1) end
  return layer("dropout", function(_, x)
    local rate = tunable_rate("nn.dropout: p", core.path() .. ".p", p)
    return core.training() and core.dropout(x, rate) or x
  end)
end

--- Mean 0 and variance 1 over the last axis, then weight and bias (Ba et al. 2016, arXiv:1607.06450).
-- @tparam[opt] table o eps (default 1e-5)
function nn.layer_norm(o)
  o = options("nn.layer_norm", o, {"eps"})
  local eps = number("nn.layer_norm: eps", o.eps or 1e-5, 0, 1)
  return layer("layer_norm", function(_, x)
    local width = {x.shape[x.rank]}
    return core.layer_norm(x, nn.param("weight", width, {init = nn.init.ones(), decay = false}),
      nn.param("bias", width, {init = nn.init.zeros(), decay = false}), eps)
  end)
end

--- x / sqrt(mean(x^2) + eps) over the last axis, then weight (Zhang & Sennrich 2019, arXiv:1910.07467).
-- @tparam[opt] table o eps (default 1e-6)
function nn.rms_norm(o)
  o = options("nn.rms_norm", o, {"eps"})
  local eps = number("nn.rms_norm: eps", o.eps or 1e-6, 0, 1)
  return layer("rms_norm", function(_, x)
    return core.rms_norm(x, nn.param("weight", {x.shape[x.rank]}, {init = nn.init.ones(), decay = false}), eps)
  end)
end

-- ---- layers without parameters --------------------------------------------------------------------------------------

-- f(x, option) as a function of a tensor and, without one, as a layer: nn.relu(x), nn.relu().
local function both(kind, f, check)
  return function(x, option)
    if is_tensor(x) then
      if check then check(option) end
      return f(x, option)
    end
    option = x
    if check then
      check(option)
    elseif option ~= nil then
      fail("nn." .. kind .. " takes a tensor or nothing, not a " .. type(option))
    end
    return layer(kind, function(_, v) return f(v, option) end)
  end
end

--- [batch, ...] -> [batch, product of the rest].
nn.flatten = both("flatten", function(x)
  local shape = x.shape
  return core.reshape(x, {shape[1], count(shape) // math.max(shape[1], 1)})
end)

nn.relu = both("relu", core.relu)
nn.tanh = both("tanh", core.tanh)
nn.sigmoid = both("sigmoid", core.sigmoid)

--- x * sigmoid(x).
nn.silu = both("silu", function(x) return x * core.sigmoid(x) end)

-- log(1 + exp(x)), which does not overflow: max(x, 0) + log1p(exp(-|x|)).
local function softplus(x) return core.relu(x) + core.log1p(core.exp(-core.abs(x))) end

nn.softplus = both("softplus", softplus)

--- x where it is positive, else slope * x (default 0.01).
nn.leaky_relu = both("leaky_relu", function(x, slope)
  return core.select(core.gt(x, 0), x, (slope or 0.01) * x)
end, function(slope)
  if slope ~= nil then number("nn.leaky_relu: the slope", slope, 0, 1) end
end)

--- x * Phi(x) by erf, or {approximate = "tanh"} (Hendrycks & Gimpel 2016, arXiv:1606.08415).
nn.gelu = both("gelu", function(x, o)
  if o and o.approximate == "tanh" then
    return 0.5 * x * (1 + core.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
  end
  return 0.5 * x * (1 + core.erf(x * math.sqrt(0.5)))
end, function(o)
  o = options("nn.gelu", o, {"approximate"})
  if o.approximate ~= nil and o.approximate ~= "tanh" and o.approximate ~= "none" then
    fail('nn.gelu: approximate is "tanh" or "none"')
  end
end)

--- Over an axis (default: the last).
nn.softmax = both("softmax", core.softmax, function(axis)
  if axis ~= nil and math.type(axis) ~= "integer" then fail("nn.softmax: the axis must be a whole number") end
end)

--- A function: nn.reshape(x, shape). A layer: nn.reshape{28, 28}, the shape of a sample, behind the batch.
-- One size may be -1.
function nn.reshape(x, shape)
  if is_tensor(x) then return core.reshape(x, shape) end
  if type(x) ~= "table" then fail("nn.reshape: a list of sizes is needed") end
  local sizes = table.pack(table.unpack(x))
  return layer("reshape", function(_, v) return core.reshape(v, {v.shape[1], table.unpack(sizes)}) end)
end

-- ---- tensor functions -----------------------------------------------------------------------------------------------

--- Functions of tensors. Arithmetic is + - * / ^ % as well; shapes broadcast.
-- @section tensors

for _, name in ipairs {"abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "round",
  "sign", "isfinite", "add", "sub", "mul", "div", "pow", "mod", "neg", "lt", "le", "gt", "ge", "eq", "ne", "argmax",
  "cumsum", "log_softmax", "logsumexp", "cast", "broadcast", "permute", "transpose", "slice", "pad", "concat", "flip",
  "sum", "prod", "matmul", "take", "take_along", "scatter_add", "stop_gradient", "const", "iota"} do
  nn[name] = core[name]
end
nn.reciprocal = core.recip
nn.labels = core.labels                                  -- a target as class ids
nn.maximum, nn.minimum = core.max, core.min              -- of two tensors, elementwise
nn.max, nn.min = core.rmax, core.rmin                    -- (x, axes, keep): over axes
nn.average = core.average                                -- (x, axes, keep): sum / count
nn.where = core.select                                   -- (condition, a, b)
nn.logical_and, nn.logical_or, nn.logical_not = core["and"], core["or"], core["not"]

--- Variance of the population over axes (default: all).
function nn.var(x, axes, keep)
  local d = x - core.average(x, axes, true)
  return core.average(d * d, axes, keep)
end

--- The k largest along an axis (default: the last, which it must be): values and their 0-based places.
function nn.topk(x, k, axis)
  local ids = core.topk_idx(x, axis or -1, whole("nn.topk: k", k, 1))
  return core.take_along(x, ids, axis or -1), ids
end

--- Uniform noise in [0, 1), new in every step.
-- @tparam table shape
function nn.rand(shape) return core.uniform(shape) end

--- Normal noise of mean 0 and variance 1, new in every step (Box & Muller 1958).
-- @tparam table shape
function nn.randn(shape)
  local radius = core.sqrt(-2 * core.log(1 - core.uniform(shape)))
  return radius * core.cos(2 * math.pi * core.uniform(shape))
end

-- ---- losses ---------------------------------------------------------------------------------------------------------

--- Losses. Each returns a mean: a sum over the batch and its weight, so that short batches, masks and accumulation are
-- exact. Means can be added, and multiplied by numbers and tunables.
-- @section losses

--- A mean of one's own: sum / weight. The weight must depend on the batch only.
-- @tparam tensor sum scalar
-- @param weight a scalar tensor or a number
function nn.mean(sum, weight)
  if weight == nil then
    fail("nn.mean(sum, weight) makes a loss or metric of two sums; nn.average(x, axes) averages a tensor")
  end
  return core.mean(sum, weight)
end

-- The mean over all elements of x.
local function mean_of(x) return core.mean(core.sum(x), count(x.shape)) end

-- Class ids with the shape of the logits' rows, and the rows' losses and weights.
local function labels_for(what, logits, y)
  if y == nil then fail(what .. ": there is no target (y is nil)") end
  local rows = logits.shape
  rows[#rows] = nil
  return align(what, core.labels(y), rows)
end

local function weight_of(labels, ignore)
  if ignore == nil then return count(labels.shape) end
  return core.sum(core.ne(labels, ignore))
end

--- Softmax cross-entropy of logits [.., classes] and class ids [..].
-- @tparam tensor logits
-- @tparam tensor y
-- @tparam[opt] table o ignore (a class id that counts nothing), smoothing (a number: the tunable "loss.smoothing"; or a
-- tunable)
function nn.cross_entropy(logits, y, o)
  o = options("nn.cross_entropy", o, {"ignore", "smoothing"})
  local labels = labels_for("nn.cross_entropy", logits, y)
  local smoothing = o.smoothing and tunable_rate("nn.cross_entropy: smoothing", "loss.smoothing", o.smoothing)
  core.answer("softmax", logits)
  return core.mean(core.sum(core.xent(logits, labels, smoothing, o.ignore)), weight_of(labels, o.ignore))
end

-- Targets as numbers, shaped as the outputs.
local function targets_for(what, out, y)
  if y == nil then fail(what .. ": there is no target (y is nil)") end
  return align(what, core.cast(y, "f32"), out.shape)
end

--- Binary cross-entropy of logits and targets in 0 .. 1, over all elements.
function nn.bce_logits(logits, y)
  y = targets_for("nn.bce_logits", logits, y)
  core.answer("sigmoid", logits)
  return mean_of(core.relu(logits) - logits * y + core.log1p(core.exp(-core.abs(logits))))
end

--- Mean squared error over all elements.
function nn.mse(out, y)
  local d = out - targets_for("nn.mse", out, y)
  return mean_of(d * d)
end

--- Mean absolute error over all elements.
function nn.l1(out, y) return mean_of(core.abs(out - targets_for("nn.l1", out, y))) end

--- Squared up to delta (default 1), then linear (Huber 1964).
-- @tparam[opt] table o delta
function nn.huber(out, y, o)
  o = options("nn.huber", o, {"delta"})
  local delta = number("nn.huber: delta", o.delta or 1, 1e-30, 1e30)
  local d = core.abs(out - targets_for("nn.huber", out, y))
  return mean_of(core.select(core.le(d, delta), 0.5 * d * d, delta * (d - 0.5 * delta)))
end

-- ---- metrics --------------------------------------------------------------------------------------------------------

--- Metrics, for the model's field `metrics`. They are functions of (out, y) too, and some take options first:
-- `nn.accuracy{ignore = -1}`.
-- @section metrics

local Metric = {}

function Metric.__call(m, out, y, ...)
  if y == nil and m.configure and type(out) == "table" then return m.configure(out) end
  if not m.mean then fail("this metric is no mean; it can stand in the model's metrics only") end
  return m.mean(out, y, ...)
end

local function mean_metric(better, mean, configure)
  return setmetatable({better = better, mean = mean, configure = configure}, Metric)
end

--- A metric that is no mean: `stats(out, y, batch)` returns a list of tensors that are summed over the set, `value(sums)`
-- makes the number of those sums (a scalar is a number, another tensor a flat list).
-- @tparam table spec stats, value, better ("min", "max")
function nn.metric(spec)
  spec = options("nn.metric", spec, {"stats", "value", "better"})
  if type(spec.stats) ~= "function" or type(spec.value) ~= "function" then
    fail("nn.metric: the functions stats and value are needed")
  end
  if spec.better ~= nil and spec.better ~= "min" and spec.better ~= "max" then
    fail('nn.metric: better is "min" or "max"')
  end
  return setmetatable({stats = spec.stats, value = spec.value, better = spec.better}, Metric)
end

-- Share of the labels that `hit` marks, without ignored ones.
local function share(hit, labels, ignore)
  if ignore ~= nil then hit = core["and"](hit, core.ne(labels, ignore)) end
  return core.mean(core.sum(hit), weight_of(labels, ignore))
end

--- Share of the k largest logits that hold the class.
-- @tparam int k
-- @tparam[opt] table o ignore
function nn.top_k(k, o)
  whole("nn.top_k: k", k, 1)
  o = options("nn.top_k", o, {"ignore"})
  return mean_metric("max", function(out, y)
    local labels = labels_for("nn.top_k", out, y)
    local column = labels.shape
    column[#column + 1] = 1
    local hits = core.eq(core.topk_idx(out, -1, k), core.reshape(labels, column))
    return share(core.gt(core.sum(hits, -1), 0), labels, o.ignore)
  end)
end

local function accuracy(o)
  o = options("nn.accuracy", o, {"ignore"})
  return mean_metric("max", function(out, y)
    local labels = labels_for("nn.accuracy", out, y)
    return share(core.eq(core.argmax(out, -1), labels), labels, o.ignore)
  end, accuracy)
end

--- Share of rows whose largest logit is that of the class. Options: ignore.
nn.accuracy = accuracy()

--- Share of elements where a logit's sign says what the target (0 or 1) is.
nn.binary_accuracy = mean_metric("max", function(out, y)
  y = targets_for("nn.binary_accuracy", out, y)
  return mean_of(core.cast(core.eq(core.gt(out, 0), core.gt(y, 0.5)), "f32"))
end)

--- Mean absolute error.
nn.mae = mean_metric("min", nn.l1)

local function perplexity(o)
  o = options("nn.perplexity", o, {"ignore"})
  local m = nn.metric {
    stats = function(out, y)
      local labels = labels_for("nn.perplexity", out, y)
      local weight = weight_of(labels, o.ignore)
      return {core.sum(core.xent(out, labels, nil, o.ignore)), type(weight) == "number" and core.const(weight) or weight}
    end,
    value = function(sums) return math.exp(sums[1] / sums[2]) end,
    better = "min",
  }
  m.configure = perplexity
  return m
end

--- exp of the mean cross-entropy over the set. Options: ignore.
nn.perplexity = perplexity()

--- Coefficient of determination, 1 - residual / total sum of squares, over all elements. It is a difference of large sums
-- when targets are far from 0 for their spread: normalise them.
nn.r2 = nn.metric {
  stats = function(out, y)
    y = targets_for("nn.r2", out, y)
    local d = out - y
    return {core.const(count(out.shape)), core.sum(y), core.sum(y * y), core.sum(d * d)}
  end,
  value = function(s) return 1 - s[4] / (s[3] - s[2] * s[2] / s[1]) end,
  better = "max",
}

-- What x:name(...) finds.
local methods = {mean = nn.average}
for _, name in ipairs {"abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "round",
  "sign", "isfinite", "lt", "le", "gt", "ge", "eq", "ne", "argmax", "cumsum", "softmax", "log_softmax", "logsumexp", "cast",
  "broadcast", "permute", "transpose", "slice", "pad", "flip", "sum", "prod", "max", "min", "average", "var", "matmul",
  "take", "take_along", "scatter_add", "stop_gradient", "reshape", "flatten", "topk", "maximum", "minimum", "relu", "tanh",
  "sigmoid", "silu", "gelu", "softplus", "leaky_relu", "reciprocal"} do
  methods[name] = nn[name]
end
core.methods(methods)

return core.library(nn)
