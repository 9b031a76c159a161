/* op.c - the table: everything the engine knows of an op in one row. A new op is a row here, a rule
 * in infer.c, one in grad_*.c, and a kernel (CONTRIBUTING.md). */
#include "engine/graph/op.h"

#include "engine/graph/priv.h"
#include "kernels/kernels.h"

/* clang-format off */
/* name, least, most, outputs, infer, gradient kind, gradient, lowering, kernel, FLOPs an element of the result */
#define LEAF(text)              {text, 0, 0, 1, infer_leaf, OP_GRAD_LEAF, 0, OP_LOWER_NONE, -1, 0}
#define DRAW(text)              {text, 0, 0, 1, infer_leaf, OP_GRAD_LEAF, 0, OP_LOWER_INSN, -1, 1}
#define VIEW(text, n)           {text, 1, 1, 1, infer_##n, OP_GRAD_RULE, grad_##n, OP_LOWER_VIEW, -1, 0}
#define KERNEL(text, lo, hi, outs, inf, gr, k, fl) {text, lo, hi, outs, infer_##inf, OP_GRAD_RULE, grad_##gr, OP_LOWER_KERNEL, k, fl}
#define KERNEL_ZERO(text, inf, k, fl) {text, 1, 1, 1, infer_##inf, OP_GRAD_ZERO, 0, OP_LOWER_KERNEL, k, fl}
#define KERNEL_LAST(text, lo, hi, outs, inf, k, fl) {text, lo, hi, outs, infer_##inf, OP_GRAD_REFUSED, 0, OP_LOWER_KERNEL, k, fl}

/* steps and truths: their derivative is zero wherever there is one */
#define EW_KIND(op) (op == EW_FLOOR || op == EW_ROUND || op == EW_SIGN || op == EW_ISFINITE || op == EW_NOT || \
    (op >= EW_LT && op <= EW_OR) ? OP_GRAD_ZERO : OP_GRAD_RULE)

const struct op_def op_table[OP_COUNT] = {
#define X(name, text, arity, rule) [EW_##name] = {text, arity, arity, 1, infer_ew, EW_KIND(EW_##name), grad_ew, OP_LOWER_INSN, -1, 1},
    EW_MAP(X)
#undef X
    [OP_PARAM] = LEAF("param"),
    [OP_BUFFER] = LEAF("buffer"),
    [OP_INPUT] = LEAF("input"),
    [OP_CONST] = {"const", 0, 0, 1, infer_leaf, OP_GRAD_LEAF, 0, OP_LOWER_INSN, -1, 0},
    [OP_IOTA] = DRAW("iota"),
    [OP_HYPER] = {"hyper", 0, 0, 1, infer_leaf, OP_GRAD_LEAF, 0, OP_LOWER_INSN, -1, 0},
    [OP_RNG_UNIFORM] = DRAW("rng_uniform"),
    [OP_RNG_BITS] = DRAW("rng_bits"),
    [OP_CAST] = {"cast", 1, 1, 1, infer_cast, OP_GRAD_RULE, grad_cast, OP_LOWER_INSN, -1, 1},
    [OP_DROPOUT] = {"dropout", 2, 2, 1, infer_dropout, OP_GRAD_RULE, grad_dropout, OP_LOWER_INSN, -1, 2},
    [OP_RESHAPE] = VIEW("reshape", reshape),
    [OP_PERMUTE] = VIEW("permute", permute),
    [OP_BROADCAST] = VIEW("broadcast", broadcast),
    [OP_SLICE] = VIEW("slice", slice),
    [OP_PAD] = VIEW("pad", pad),
    [OP_CONCAT] = {"concat", 1, 8, 1, infer_concat, OP_GRAD_RULE, grad_concat, OP_LOWER_VIEW, -1, 0},
    [OP_FLIP] = VIEW("flip", flip),
    [OP_SUM] = KERNEL("sum", 1, 1, 1, reduce, sum, KERN_REDUCE, 0),
    [OP_RMAX] = KERNEL("rmax", 1, 1, 1, reduce, extreme, KERN_REDUCE, 0),
    [OP_RMIN] = KERNEL("rmin", 1, 1, 1, reduce, extreme, KERN_REDUCE, 0),
    [OP_PROD] = KERNEL("prod", 1, 1, 1, reduce, prod, KERN_REDUCE, 0),
    [OP_ARGMAX] = KERNEL_ZERO("argmax", argmax, KERN_ARGMAX, 0),
    [OP_TOPK_IDX] = KERNEL_ZERO("topk_idx", topk, KERN_TOPK, 4),
    [OP_CUMSUM] = KERNEL("cumsum", 1, 1, 1, cumsum, cumsum, KERN_CUMSUM, 1),
    [OP_MATMUL] = KERNEL("matmul", 2, 2, 1, matmul, matmul, KERN_MATMUL, 0),
    [OP_TAKE] = KERNEL("take", 2, 2, 1, take, take, KERN_TAKE, 0),
    [OP_TAKE_GRAD] = KERNEL("take_grad", 2, 2, 1, take_grad, take_grad, KERN_TAKE_GRAD, 1),
    [OP_TAKE_ALONG] = KERNEL("take_along", 2, 2, 1, take_along, take_along, KERN_TAKE_ALONG, 0),
    [OP_SCATTER_ADD] = KERNEL("scatter_add", 3, 3, 1, scatter_add, scatter_add, KERN_SCATTER_ADD, 1),
    [OP_SOFTMAX] = KERNEL("softmax", 1, 1, 1, softmax, softmax, KERN_SOFTMAX, 5),
    [OP_LOG_SOFTMAX] = KERNEL("log_softmax", 1, 1, 1, softmax, log_softmax, KERN_LOG_SOFTMAX, 5),
    [OP_LOGSUMEXP] = KERNEL("logsumexp", 1, 1, 1, logsumexp, logsumexp, KERN_LOGSUMEXP, 0),
    [OP_STOP_GRADIENT] = {"stop_gradient", 1, 1, 1, infer_same, OP_GRAD_ZERO, 0, OP_LOWER_NONE, -1, 0},
    [OP_LAYER_NORM] = KERNEL("layer_norm", 3, 3, 3, layer_norm, layer_norm, KERN_LAYER_NORM, 8),
    [OP_LAYER_NORM_GRAD] = KERNEL_LAST("layer_norm_grad", 5, 5, 3, layer_norm_grad, KERN_LAYER_NORM_GRAD, 14),
    [OP_RMS_NORM] = KERNEL("rms_norm", 2, 2, 2, rms_norm, rms_norm, KERN_RMS_NORM, 5),
    [OP_RMS_NORM_GRAD] = KERNEL_LAST("rms_norm_grad", 4, 4, 2, rms_norm_grad, KERN_RMS_NORM_GRAD, 10),
    [OP_XENT] = KERNEL("xent", 2, 3, 2, xent, xent, KERN_XENT, 0),
    [OP_XENT_GRAD] = KERNEL_LAST("xent_grad", 4, 5, 1, xent_grad, KERN_XENT_GRAD, 4),
    [OP_OUT] = {"out", 1, 1, 1, infer_out, OP_GRAD_RULE, 0, OP_LOWER_NONE, -1, 0},
};
/* clang-format on */

const char *op_name(enum op op)
{
    return op < OP_COUNT ? op_table[op].name : "?";
}
