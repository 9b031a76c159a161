/* op.h - the operations of a graph: one table row an op, and what an op carries besides its inputs.
 */
#ifndef GRAPH_OP_H
#define GRAPH_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "kernels/dtype.h"
#include "kernels/ew.h"

#define SHAPE_RANK 6
#define SHAPE_MAX_COUNT ((int64_t)1 << 40) /* elements of one tensor */

struct shape {
    int rank;                /* 0: a scalar */
    int64_t dim[SHAPE_RANK]; /* outermost first; unused ones are 0 */
};

int64_t
shape_count(const struct shape *s); /* product; 1 for a scalar; -1 if it passes SHAPE_MAX_COUNT */
bool shape_equal(const struct shape *a, const struct shape *b);
char *shape_text(char *buf, size_t cap, const struct shape *s); /* "[64, 10]", "[]" */
/* The shape both broadcast to by the numpy rule (align right, 1 stretches); false if there is none.
 */
bool shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out);

// clang-format off
/* Ops that are not elementwise: NAME, text, least and most inputs. Axes in attributes are 0-based here. */
#define OP_MAP(X)                               \
    X(PARAM,        "param",        0, 0)       \
    X(BUFFER,       "buffer",       0, 0)       \
    X(INPUT,        "input",        0, 0)       \
    X(CONST,        "const",        0, 0)       \
    X(IOTA,         "iota",         0, 0)       \
    X(HYPER,        "hyper",        0, 0)       \
    X(RNG_UNIFORM,  "rng_uniform",  0, 0)       \
    X(RNG_BITS,     "rng_bits",     0, 0)       \
    X(CAST,         "cast",         1, 1)       \
    X(DROPOUT,      "dropout",      2, 2)       \
    X(RESHAPE,      "reshape",      1, 1)       \
    X(PERMUTE,      "permute",      1, 1)       \
    X(BROADCAST,    "broadcast",    1, 1)       \
    X(SLICE,        "slice",        1, 1)       \
    X(PAD,          "pad",          1, 1)       \
    X(CONCAT,       "concat",       1, 8)       \
    X(FLIP,         "flip",         1, 1)       \
    X(SUM,          "sum",          1, 1)       \
    X(RMAX,         "rmax",         1, 1)       \
    X(RMIN,         "rmin",         1, 1)       \
    X(PROD,         "prod",         1, 1)       \
    X(ARGMAX,       "argmax",       1, 1)       \
    X(TOPK_IDX,     "topk_idx",     1, 1)       \
    X(CUMSUM,       "cumsum",       1, 1)       \
    X(MATMUL,       "matmul",       2, 2)       \
    X(TAKE,         "take",         2, 2)       \
    X(TAKE_GRAD,    "take_grad",    2, 2)       \
    X(TAKE_ALONG,   "take_along",   2, 2)       \
    X(SCATTER_ADD,  "scatter_add",  3, 3)       \
    X(SOFTMAX,      "softmax",      1, 1)       \
    X(LOG_SOFTMAX,  "log_softmax",  1, 1)       \
    X(LOGSUMEXP,    "logsumexp",    1, 1)       \
    X(STOP_GRADIENT,"stop_gradient",1, 1)       \
    X(LAYER_NORM,   "layer_norm",   3, 3)       \
    X(LAYER_NORM_GRAD, "layer_norm_grad", 5, 5) \
    X(RMS_NORM,     "rms_norm",     2, 2)       \
    X(RMS_NORM_GRAD,"rms_norm_grad",4, 4)       \
    X(XENT,         "xent",         2, 3)       \
    X(XENT_GRAD,    "xent_grad",    4, 5)       \
    X(OUT,          "out",          1, 1)
// clang-format on

enum op {
#define X(name, text, arity, rule) OP_##name, /* elementwise first: op < EW_COUNT is enum ew */
    EW_MAP(X)
#undef X
#define X(name, text, least, most) OP_##name,
        OP_MAP(X)
#undef X
            OP_COUNT
};

/* What an op carries. Fields an op does not use are zero (the whole struct is compared and hashed).
 */
struct op_attr {
    struct shape shape; /* param buffer input const iota rng_*: own; reshape broadcast: the new one;
                           take_grad: that of the result */
    enum dtype dtype;   /* param buffer input const iota cast */
    int axis; /* iota concat argmax topk cumsum take take_grad take_along scatter_add softmax.. */
    uint32_t axes; /* sum rmax rmin prod: bit d set = dimension d is reduced; flip: reversed */
    bool keep;     /* reductions: keep reduced dimensions as 1 */
    bool ta, tb;   /* matmul: last two dimensions swapped as read */
    bool reverse, exclusive; /* cumsum */
    bool has_ignore;         /* xent */
    bool per_sample; /* rng_*, dropout: first dimension counts samples of the batch (kernels.h) */
    int perm[SHAPE_RANK]; /* permute: out dimension d is in dimension perm[d] */
    int64_t start[SHAPE_RANK], stop[SHAPE_RANK], step[SHAPE_RANK]; /* slice (step >= 1); pad: start
                                 = before, stop = after */
    int64_t k;       /* topk_idx: how many; out: which output; xent: the ignored label */
    double value;    /* const; pad */
    float eps;       /* norms */
    int32_t slot;    /* hyper */
    uint32_t stream; /* rng_*, dropout: hash_fnv32 of the path, made unique within a graph */
};

struct graph;

/* Given the inputs, fill the output's shape and dtype or refuse: the message names the op and both
 * shapes. */
typedef enum err_code op_infer_fn(const struct graph *g, enum op op, const int *in, int n_in,
                                  const struct op_attr *attr, struct shape *shape,
                                  enum dtype *dtype, struct err *e);
/* Add nodes for the gradient: d_in[i] becomes the id of the gradient of input i, or stays -1 for
 * none. d_out[k] is the gradient that reaches output k of node, or -1; the first is never -1 for
 * single-output ops. */
typedef enum err_code op_grad_fn(struct graph *g, int node, const int *d_out, int *d_in,
                                 struct err *e);

enum op_grad_kind {
    OP_GRAD_RULE,   /* has a rule */
    OP_GRAD_ZERO,   /* the derivative is zero almost everywhere: declared, not missing (floor,
                       comparisons...) */
    OP_GRAD_LEAF,   /* nothing to differentiate (param, const, rng) */
    OP_GRAD_REFUSED /* on the way to a parameter the trace is refused, naming the line (gradients of
                       gradients of fused ops: layer_norm_grad ...) */
};

/* How the plan makes it run. */
enum op_lower {
    OP_LOWER_NONE,  /* leaves, out, stop_gradient: no work */
    OP_LOWER_INSN,  /* an instruction of a fused group (elementwise, const, iota, hyper, rng, cast,
                       dropout) */
    OP_LOWER_VIEW,  /* an index map: folded into the loads of a fused group (reshape, permute,
                       broadcast,  slice, flip) or stores (pad, concat) */
    OP_LOWER_KERNEL /* a kern_code of its own */
};

struct op_def {
    const char *name;
    int least, most;    /* inputs */
    int n_out;          /* outputs: 1 but for norms and xent */
    op_infer_fn *infer; /* of output 0; others by op_infer_out */
    enum op_grad_kind grad_kind;
    op_grad_fn *grad; /* for OP_GRAD_RULE */
    enum op_lower lower;
    int kern; /* enum kern_code for OP_LOWER_KERNEL, as declared in kernels.h; else -1 */
    double flops_per_out; /* rough, for one element of the result; matmul and reductions add their
                             own in op_flops */
};

extern const struct op_def op_table[OP_COUNT];

const char *op_name(enum op op);

#endif
