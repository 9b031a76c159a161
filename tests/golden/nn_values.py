#!/usr/bin/env python3
"""Makes nn_values.h: what PyTorch says about the layers and losses of scripts/nn.lua.

Run by hand when a case is added (needs torch); the header is checked in, so tests need no Python:
    python3 tests/golden/nn_values.py > tests/golden/nn_values.h && clang-format -i tests/golden/nn_values.h

Inputs and parameters follow one formula, the same in tests/t_nn.c: element i of salt s is
((i * 7 + 3 * s) % 23 - 11) / 8. The salt of x is 1, of y 2 (class ids: (i * 5 + 1) % classes), of the n-th parameter
in the order of names 3 + n.
"""
import math
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def fill(shape, salt):
    n = math.prod(shape)
    return torch.tensor([((i * 7 + 3 * salt) % 23 - 11) / 8 for i in range(n)]).reshape(shape)


def ids(shape, classes):
    return torch.tensor([(i * 5 + 1) % classes for i in range(math.prod(shape))]).reshape(shape)


X = fill((4, 6), 1)
X3 = fill((4, 3, 6), 1)
Y = fill((4, 6), 2)
C = ids((4,), 6)
C3 = ids((4, 3), 6)
B = (Y > 0).double()


def linear(x, out, bias=True):
    # names in order: bias, weight
    b = fill((out,), 3) if bias else None
    w = fill((out, x.shape[-1]), 4 if bias else 3)
    return F.linear(x, w, b)


def sequential(x):
    # layers.1.{bias,weight}, layers.3.{bias,weight}
    h = F.relu(F.linear(x, fill((5, 6), 4), fill((5,), 3)))
    return F.linear(h, fill((6, 5), 6), fill((6,), 5))


# name, Lua for a function of x, shape of x, the value
LAYERS = [
    ("linear", "nn.linear(5)", X, linear(X, 5)),
    ("linear without bias", "nn.linear(5, {bias = false})", X, linear(X, 5, False)),
    ("linear on three dimensions", "nn.linear(5)", X3, linear(X3, 5)),
    ("sequential", "nn.sequential{nn.linear(5), nn.relu(), nn.linear(6)}", X, sequential(X)),
    ("residual", "nn.residual{nn.linear(6)}", X, X + linear(X, 6)),
    ("flatten", "nn.flatten()", X3, X3.flatten(1)),
    ("reshape", "nn.reshape{2, 3}", X, X.reshape(4, 2, 3)),
    ("relu", "nn.relu()", X, F.relu(X)),
    ("leaky_relu", "nn.leaky_relu(0.2)", X, F.leaky_relu(X, 0.2)),
    ("leaky_relu's default slope", "nn.leaky_relu()", X, F.leaky_relu(X)),
    ("gelu", "nn.gelu()", X, F.gelu(X)),
    ("gelu by tanh", 'nn.gelu{approximate = "tanh"}', X, F.gelu(X, approximate="tanh")),
    ("silu", "nn.silu()", X, F.silu(X)),
    ("tanh", "nn.tanh()", X, torch.tanh(X)),
    ("sigmoid", "nn.sigmoid()", X, torch.sigmoid(X)),
    ("softplus", "nn.softplus()", X, F.softplus(X)),
    ("softplus of large values", "function(x) return nn.softplus(x * 100) end", X, F.softplus(X * 100)),
    ("softmax", "nn.softmax()", X, F.softmax(X, -1)),
    ("softmax over the first axis", "nn.softmax(1)", X, F.softmax(X, 0)),
    ("log_softmax", "function(x) return x:log_softmax() end", X, F.log_softmax(X, -1)),
    ("logsumexp", "function(x) return x:logsumexp(-1) end", X, torch.logsumexp(X, -1)),
    ("layer_norm", "nn.layer_norm()", X3, F.layer_norm(X3, (6,), fill((6,), 4), fill((6,), 3))),
    ("layer_norm's eps", "nn.layer_norm{eps = 0.5}", X, F.layer_norm(X, (6,), fill((6,), 4), fill((6,), 3), 0.5)),
    ("rms_norm", "nn.rms_norm()", X3, F.rms_norm(X3, (6,), fill((6,), 3), 1e-6)),
    ("embedding", "function(x) return nn.name('e', emb)(nn.cast(x * 8 + 11, 'i32')) end", X,
     F.embedding((X * 8 + 11).long(), fill((23, 3), 3))),
    ("dropout in eval", "nn.dropout(0.5)", X, X),
    ("arithmetic", "function(x) return -(x + 2) * 3 / (x * x + 1) - x ^ 2 + 5 % 3 + (1 - x) end", X,
     -(X + 2) * 3 / (X * X + 1) - X ** 2 + 2 + (1 - X)),
    ("mod has the divisor's sign", "function(x) return x % 0.5 + x % -0.75 end", X,
     torch.remainder(X, 0.5) + torch.remainder(X, -0.75)),
    ("sum over axes", "function(x) return x:sum{1, 3} end", X3, X3.sum((0, 2))),
    ("mean, keeping", "function(x) return x - x:mean(2, true) end", X, X - X.mean(1, keepdim=True)),
    ("max and min", "function(x) return x:max(-1) - x:min(-1) end", X, X.amax(-1) - X.amin(-1)),
    ("prod", "function(x) return x:prod(1) end", X, X.prod(0)),
    ("var", "function(x) return nn.var(x, -1) end", X, X.var(-1, unbiased=False)),
    ("cumsum", "function(x) return x:cumsum(2) end", X, X.cumsum(1)),
    ("argmax", "function(x) return nn.cast(x:argmax(-1), 'f32') end", X, X.argmax(-1).double()),
    ("topk", "function(x) return (x:topk(2)) end", X, X.topk(2, -1).values),
    ("matmul of transposed", "function(x) return nn.matmul(x, x, false, true) end", X, X @ X.T),
    ("batched matmul", "function(x) return x:transpose():matmul(x) end", X3, X3.transpose(1, 2) @ X3),
    ("slice", "function(x) return x:slice(2, 2, -2) end", X, X[:, 1:-1]),
    ("slice with a step", "function(x) return x:slice(-1, 1, 6, 2) end", X, X[:, ::2]),
    ("pad", "function(x) return x:pad(2, 1, 2, 7) end", X, F.pad(X, (1, 2), value=7)),
    ("concat", "function(x) return nn.concat({x, x * 2, x}, 2) end", X, torch.cat([X, X * 2, X], 1)),
    ("concat of twelve", "function(x) local l = {} for i = 1, 12 do l[i] = x * i end return nn.concat(l, 1) end", X,
     torch.cat([X * i for i in range(1, 13)], 0)),
    ("flip", "function(x) return x:flip(-1) end", X, X.flip(-1)),
    ("permute", "function(x) return x:permute{3, 1, 2} end", X3, X3.permute(2, 0, 1)),
    ("where", "function(x) return nn.where(x:gt(0.3), x, 0.3) end", X, torch.where(X > 0.3, X, 0.3)),
    ("maximum", "function(x) return nn.maximum(x, 0.2) + nn.minimum(1, x) end", X, X.clamp(min=0.2) + X.clamp(max=1)),
    ("masks add up", "function(x) return nn.gt(x, 0) + nn.le(x, 1) end", X, (X > 0).double() + (X <= 1).double()),
    ("iota", "function(x) return x * nn.iota(x.shape, 2, 'f32') end", X, X * torch.arange(6.0)),
    ("take", "function(x) return x:take(nn.iota({2}, 1) + 1, 2) end", X, X[:, 1:3]),
    ("scatter_add", "function(x) return x:scatter_add(nn.iota({4, 2}, 2, 'i32'), x:slice(2, 1, 2), 2) end", X,
     torch.cat([X[:, :2] * 2, X[:, 2:]], 1)),
]

# name, Lua for a function of (out, y, batch), x, kind of y ("class", "number", "bit"), shape of y, sum / weight
LOSSES = [
    ("cross_entropy", "nn.cross_entropy", X, C, F.cross_entropy(X, C)),
    ("cross_entropy by position", "nn.cross_entropy", X3, C3, F.cross_entropy(X3.reshape(12, 6), C3.reshape(12))),
    ("cross_entropy with ignore", "function(o, y) return nn.cross_entropy(o, y, {ignore = 1}) end", X3, C3,
     F.cross_entropy(X3.reshape(12, 6), C3.reshape(12), ignore_index=1)),
    ("cross_entropy with smoothing", "function(o, y) return nn.cross_entropy(o, y, {smoothing = 0.1}) end", X, C,
     F.cross_entropy(X, C, label_smoothing=0.1)),
    ("bce_logits", "nn.bce_logits", X, B, F.binary_cross_entropy_with_logits(X, B)),
    ("bce_logits of large values", "function(o, y) return nn.bce_logits(o * 500, y) end", X, B,
     F.binary_cross_entropy_with_logits(X * 500, B)),
    ("mse", "nn.mse", X, Y, F.mse_loss(X, Y)),
    ("mse of [4, 1] and [4]", "function(o, y) return nn.mse(o:sum(-1, true), y) end", X, fill((4,), 2),
     F.mse_loss(X.sum(-1), fill((4,), 2))),
    ("l1", "nn.l1", X, Y, F.l1_loss(X, Y)),
    ("huber", "nn.huber", X, Y, F.huber_loss(X, Y)),
    ("huber with delta", "function(o, y) return nn.huber(o, y, {delta = 0.3}) end", X, Y,
     F.huber_loss(X, Y, delta=0.3)),
    ("a plain scalar", "function(o, y) return nn.average(o * y) end", X, Y, (X * Y).mean()),
    ("means are closed", "function(o, y) return 0.5 * nn.mse(o, y) + nn.l1(o, y) / 4 - nn.average(o) * 2 + 1 end", X, Y,
     0.5 * F.mse_loss(X, Y) + F.l1_loss(X, Y) / 4 - X.mean() * 2 + 1),
    ("a mean of one's own", "function(o, y) return nn.mean(nn.sum((o - y) ^ 2), nn.sum(y:gt(0))) end", X, Y,
     ((X - Y) ** 2).sum() / (Y > 0).sum()),
    ("accuracy", "nn.accuracy", X, C, (X.argmax(-1) == C).double().mean()),
    ("accuracy with ignore", "nn.accuracy{ignore = 1}", X3, C3,
     ((X3.argmax(-1) == C3) & (C3 != 1)).sum() / (C3 != 1).sum()),
    ("top_k", "nn.top_k(3)", X3, C3, (X3.topk(3, -1).indices == C3[..., None]).any(-1).double().mean()),
    ("binary_accuracy", "nn.binary_accuracy", X, B, ((X > 0) == (B > 0.5)).double().mean()),
    ("mae", "nn.mae", X, Y, (X - Y).abs().mean()),
]

# the same, for metrics that are no means
VALUES = [
    ("perplexity", "nn.perplexity", X, C, torch.exp(F.cross_entropy(X, C))),
    ("perplexity with ignore", "nn.perplexity{ignore = 1}", X3, C3,
     torch.exp(F.cross_entropy(X3.reshape(12, 6), C3.reshape(12), ignore_index=1))),
    ("r2", "nn.r2", X, Y, 1 - ((X - Y) ** 2).sum() / ((Y - Y.mean()) ** 2).sum()),
]


def dims(t):
    return "%d, {%s}" % (t.dim(), ", ".join(str(d) for d in t.shape))


def quoted(s):
    return '"' + s.replace("\\", "\\\\").replace('"', '\\"') + '"'


def kind(y):
    return "'c'" if not y.is_floating_point() else "'b'" if y is B else "'n'"


print("/* nn_values.h - made by nn_values.py with PyTorch %s; do not edit. */" % torch.__version__.split("+")[0])
print("#ifndef NN_VALUES_H\n#define NN_VALUES_H\n")
print("struct nn_layer_case {\nconst char *name, *lua;\nint rank;\nlong dim[3];\nint n;\nconst double *want;\n};")
print("struct nn_mean_case {\nconst char *name, *lua;\nint rank;\nlong dim[3];\nchar kind;\nint y_rank;\n"
      "long y_dim[3];\ndouble want;\n};\n")
for i, (_, _, _, v) in enumerate(LAYERS):
    print("static const double nn_want_%d[] = {%s};" % (i, ", ".join("%.9g" % e for e in v.flatten().tolist())))
print("\nstatic const struct nn_layer_case nn_layers[] = {")
for i, (name, lua, x, v) in enumerate(LAYERS):
    print("{%s, %s, %s, %d, nn_want_%d}," % (quoted(name), quoted(lua), dims(x), v.numel(), i))
print("};")
for table, cases in (("nn_means", LOSSES), ("nn_sums", VALUES)):
    print("\nstatic const struct nn_mean_case %s[] = {" % table)
    for name, lua, x, y, v in cases:
        print("{%s, %s, %s, %s, %s, %.12g}," % (quoted(name), quoted(lua), dims(x), kind(y), dims(y), float(v)))
    print("};")
print("\n#endif")
