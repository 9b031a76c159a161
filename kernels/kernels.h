/* kernels.h - the interface of a backend.
 *
 * The engine writes a flat program: buffers (where, what type, how many) and operations over them,
 * in order. A backend compiles it once (plan_new) and runs it many times (plan_run). The engine
 * owns order, lifetimes and offsets; the backend owns primitives, layouts, scratch, capture and
 * threads.
 *
 * Calls: backend_entry -> enumerate -> open -> mem_new, plan_new -> { copy_in, plan_run, copy_out,
 * event_record }* -> event_wait -> plan_free, mem_free -> close.
 *
 * Asynchronous: copy_in, copy_out, fill and plan_run enqueue on the device's one lane and return;
 * the host memory that they name must stay as it is until an event recorded after them is done. A
 * backend may also finish them before it returns (cpu does), or start nothing until an event is
 * waited for (ref does). What plan_run is given as `struct kern_hyper` is copied before it returns.
 *
 * Address-blind: the engine never sees a device pointer. Memory is a handle and a byte offset;
 * offsets are those of dense row-major elements of the buffer's dtype. A backend may hold them
 * otherwise (ref holds every float as f64), so copies name the dtype.
 *
 * Errors: KERN_OK or a status with a line in *e. Nothing here aborts, prints or exits. One thread
 * uses a device at a time. Compiles as C and C++. */
#ifndef KERNELS_H
#define KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "kernels/ew.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERN_ABI 1
#define KERN_RANK 6 /* dimensions of an iteration space */
#define KERN_IN 8   /* inputs of an op that is no fused group */
#define KERN_OUT 4  /* outputs of one */
#define KERN_ALIGN                                                                                 \
    256 /* every buffer's offset is a multiple of it, but in KERN_PARAM, _GRAD, _STATE (64) */
#define KERN_HYPER_MAX 1024 /* scalar slots */

enum kern_status {
    KERN_OK,
    KERN_EINVAL,
    KERN_ENOMEM,
    KERN_EDEVICE,
    KERN_EUNSUPPORTED,
    KERN_ETIMEDOUT
};

struct kern_err {
    enum kern_status status;
    char msg[512];
};

/* ---- where a buffer lives. Each space of a run is bound to a (mem, base offset) pair. ---- */
enum kern_space {
    KERN_ARENA,  /* activations: contents last only within one plan_run */
    KERN_PARAM,  /* parameters, f32, contiguous */
    KERN_GRAD,   /* gradients, same offsets as the parameters */
    KERN_STATE,  /* optimizer state */
    KERN_BUFFER, /* running statistics and the like */
    KERN_STEP,   /* scalars that live for one step: total weights, clip coefficient, skip flag */
    KERN_INPUT,  /* the batch */
    KERN_RESULT, /* what the host reads back: losses, sums of metrics, predictions */
    KERN_CONST,  /* constants of the program, written once */
    KERN_SPACES
};

enum kern_layout { KERN_DENSE /* row-major; others arrive with the ops that gain by them */ };

struct kern_buf {
    enum kern_space space;
    enum dtype dtype;
    enum kern_layout layout;
    int64_t offset; /* bytes from the base of its space */
    int64_t count;  /* elements; 0 is legal and then nothing is read or written */
};

/* ---- fused elementwise groups ---- */

/* How an iteration space reads or writes a buffer: element i of the space is element
 * offset + sum_d index_d * stride[d] of the buffer. Stride 0 broadcasts, negative ones flip. */
struct kern_view {
    int32_t buf;
    int64_t offset; /* elements */
    int64_t stride[KERN_RANK];
};

enum kern_insn_code {
    KERN_I_LOAD, /* r[dst] = buffer of views[view]; converted f32<->f32, i32/u8/bool -> i32 register
                  */
    KERN_I_STORE,   /* buffer of views[view] = r[a], converted to the buffer's dtype; no two stores
                       overlap */
    KERN_I_CONST,   /* r[dst] = value */
    KERN_I_IOTA,    /* r[dst] = index along `axis`, as f32 or i32 */
    KERN_I_HYPER,   /* r[dst] = hyper->value[slot], f32 */
    KERN_I_UNIFORM, /* r[dst] = philox_uniform(word of the element), f32 */
    KERN_I_BITS,    /* r[dst] = word of the element, i32 */
    KERN_I_DROPOUT, /* r[dst] = keep ? r[a] * (1 / (1 - p)) : 0, p = r[b] in [0, 1]; kept where
                       (word >> 8) >= (uint32_t)ceilf(p * 2^24); p = 1 keeps nothing and gives 0 */
    KERN_I_CAST, /* r[dst] = r[a] as `type`: f32 -> i32 truncates toward zero (NaN gives 0, out of
                    range the nearest), f32/i32 -> bool is != 0, i32 -> f32 */
    KERN_I_EW    /* r[dst] = ew(r[a], r[b], r[c]) */
};

/* Registers hold one value an element: type DT_F32, DT_I32 (also u8) or DT_BOOL (0 or 1). `type` is
 * that of the result, but for EW with rule BOOL, where `type` is the operands' type. */
struct kern_insn {
    uint8_t code;         /* enum kern_insn_code */
    uint8_t ew;           /* enum ew, for KERN_I_EW */
    uint8_t type;         /* enum dtype */
    uint8_t axis;         /* IOTA */
    int16_t dst, a, b, c; /* registers; -1: none */
    int32_t view;         /* LOAD, STORE */
    int32_t slot;         /* HYPER */
    uint32_t stream;      /* UNIFORM, BITS, DROPOUT: the stream of philox.h, purpose PHILOX_GRAPH */
    bool per_sample;      /* those: the element index counts from sample_base * (count / dim[0]) */
    double value;         /* CONST */
};

#define KERN_REGS 64 /* of a fused group: the engine splits larger ones */

struct kern_fused {
    int rank;               /* >= 1; rank 1 with dim 1 for scalars */
    int64_t dim[KERN_RANK]; /* iteration space, row-major order for IOTA and random draws */
    int n_views, n_insns, n_regs;
    const struct kern_view *views; /* borrowed until plan_new returns */
    const struct kern_insn *insns;
};

/* ---- the other operations. Buffers are dense; [..] are shapes; all floats f32 unless said ---- */
enum kern_act {
    KERN_ACT_NONE,
    KERN_ACT_RELU,
    KERN_ACT_GELU_TANH,
    KERN_ACT_GELU_ERF,
    KERN_ACT_SIGMOID,
    KERN_ACT_TANH
};
enum kern_reduce { KERN_SUM, KERN_RMAX, KERN_RMIN, KERN_PROD };

// clang-format off
enum kern_code {
    KERN_FUSED,       /* u.fused */
    KERN_MATMUL,      /* u.matmul: out[0] = act(in[0] . in[1] (+ in[2], bias [n])); in[2] is -1 without one */
    KERN_REDUCE,      /* u.axis, u.axis.reduce: in [outer][n][inner] -> out [outer][inner]; n == 0: 0, -inf, inf, 1;
                         a NaN wins a max or min */
    KERN_ARGMAX,      /* u.axis: -> out i32 [outer][inner], first of equals; NaN counts as largest */
    KERN_TOPK,        /* u.axis, inner == 1, u.axis.k: -> out i32 [outer][k], largest first, equals by index */
    KERN_CUMSUM,      /* u.axis: reverse, exclusive */
    KERN_TAKE,        /* u.axis, u.axis.k: in[0] [outer][n][inner], in[1] i32 [k] -> [outer][k][inner]; an index outside
                         0 .. n-1 reads zeros (the preflight refuses it before) */
    KERN_TAKE_GRAD,   /* in[0] src [outer][k][inner], in[1] i32 [k] -> out [outer][n][inner] = sum of the src rows
                         of each index, added in order of k; other rows 0 */
    KERN_TAKE_ALONG,  /* in[0] [outer][n][inner], in[1] i32 [outer][k][inner] -> [outer][k][inner] */
    KERN_SCATTER_ADD, /* in[0] dst [outer][n][inner], in[1] i32 [outer][k][inner], in[2] src likewise -> out = dst with
                         the src elements added in order of k */
    KERN_SOFTMAX,     /* u.axis; a row all -inf gives zeros */
    KERN_LOG_SOFTMAX, /* u.axis; a row all -inf gives -inf */
    KERN_LOGSUMEXP,   /* u.axis -> [outer][inner]; a row all -inf gives -inf */
    KERN_LAYER_NORM,  /* u.norm: x [rows][cols], gain [cols], bias [cols] (in[1], in[2] may be -1) -> y, mean [rows],
                         rstd [rows]; variance is that of the population (Ba et al. 2016, arXiv:1607.06450) */
    KERN_LAYER_NORM_GRAD, /* dy, x, gain (or -1), mean, rstd -> dx, dgain [cols], dbias [cols] (out[1], out[2] may be -1) */
    KERN_RMS_NORM,    /* x, gain (or -1) -> y, rstd = 1/sqrt(mean(x^2) + eps) (arXiv:1910.07467) */
    KERN_RMS_NORM_GRAD, /* dy, x, gain (or -1), rstd -> dx, dgain (or -1) */
    KERN_XENT,        /* u.xent: logits [rows][cols], labels i32 [rows], smoothing [1] (or -1) -> loss [rows], lse [rows].
                         loss = lse - (1-s) * x[label] - s * mean(x); 0 where label == ignore; NaN where a label is
                         outside 0 .. cols-1 */
    KERN_XENT_GRAD,   /* logits, labels, smoothing (or -1), lse, dloss [rows] -> dlogits (may be the logits' memory) =
                         dloss * (softmax - (1-s) * onehot - s / cols); 0 where ignored */
    KERN_GRAD_NORM,   /* u.opt.segments: in[0] gradients -> out[0] [1] in KERN_STEP: L2 norm over the segments, squares
                         summed in f64 in an order fixed by the segments */
    KERN_PROLOGUE,    /* u.opt: in[0] norm [1]; in/out state f64 [4] in[1] = {applied, b1prod, b2prod, latch};
                         out[0] step block f32 [4] = {clip coefficient, skip, 1/(1-b1prod), 1/sqrt(1-b2prod)}.
                         skip = 1 if the norm is not finite or latch != 0 (hyper flag KERN_CLEAR_LATCH clears it first);
                         a non-finite norm under KERN_LATCH sets latch. Not skipped: applied += 1, b1prod *= beta1,
                         b2prod *= beta2. coefficient = min(1, clip / (norm + 1e-6)), or 1 when clip is 0 */
    KERN_SGD,         /* u.opt: in = {param, grad, step block, momentum buffer or -1}, updated in place.
                         g = grad * coef + wd * p; buf = momentum * buf + g; p -= lr * (nesterov ? g + momentum * buf : buf) */
    KERN_ADAM,        /* u.opt: in = {param, grad, step block, m, v}. decoupled: p -= lr * wd * p, else g += wd * p;
                         m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr/(1-b1prod) * m / (sqrt(v)/sqrt(1-b2prod) + eps).
                         Kingma & Ba 2015, arXiv:1412.6980; Loshchilov & Hutter 2019, arXiv:1711.05101 */
    KERN_CODES
};
// clang-format on

/* out [batch][m][n] = op(a) [m][k] . op(b) [k][n]. Leading dimensions and batch strides in
 * elements: a batch stride of 0 broadcasts. lda is the row length of a as it lies in memory (k, or
 * m when ta). k == 0 gives zeros (plus bias). accumulate adds onto out. */
struct kern_matmul {
    int64_t batch, m, n, k;
    int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
    bool ta, tb, accumulate;
    enum kern_act act;
};

struct kern_axis {
    int64_t outer, n, inner, k;
    enum kern_reduce reduce;
    bool reverse, exclusive;
};

struct kern_norm {
    int64_t rows, cols;
    float eps;
};

struct kern_xent {
    int64_t rows, cols;
    bool has_ignore;
    int32_t ignore;
};

/* A stretch of the parameter arena that one update treats alike. */
struct kern_segment {
    int64_t begin, count; /* elements from the base of KERN_PARAM */
    int32_t group;        /* adds to the slots lr and weight_decay */
};

struct kern_opt {
    const struct kern_segment *segments; /* ascending, borrowed until plan_new returns */
    int n_segments;
    /* hyper slots; lr and weight_decay are the first of a run of slots, one a group */
    int32_t lr, weight_decay, momentum, beta1, beta2, eps, clip;
    bool nesterov, decoupled;
};

struct kern_op {
    enum kern_code code;
    const char
        *label; /* for messages and profiles: "layers.2 linear"; borrowed until plan_new returns */
    int32_t in[KERN_IN], out[KERN_OUT]; /* buffers; -1: none */
    union {
        struct kern_fused fused;
        struct kern_matmul matmul;
        struct kern_axis axis;
        struct kern_norm norm;
        struct kern_xent xent;
        struct kern_opt opt;
    } u;
};

struct kern_program {
    const struct kern_buf *bufs;
    const struct kern_op *ops;
    int n_bufs, n_ops;
    int64_t space_bytes[KERN_SPACES]; /* what each space must hold, for checking a binding */
};

/* ---- what changes from run to run ---- */
enum { KERN_LATCH = 1, KERN_CLEAR_LATCH = 2 };

/* Read by kernels each run, never baked into a plan: live values stay right in a captured graph. */
struct kern_hyper {
    uint64_t seed;
    uint64_t step;        /* the update being computed, from 1 */
    uint64_t sample_base; /* position in the step of the micro-batch's first sample */
    uint32_t flags;
    int32_t n; /* slots in use */
    float value[KERN_HYPER_MAX];
};

struct kern_dev;
struct kern_mem;
struct kern_plan;
struct kern_event;

struct kern_bind {
    struct kern_mem *mem[KERN_SPACES]; /* NULL where the program uses none */
    int64_t base[KERN_SPACES]; /* byte offset of the space in it, a multiple of KERN_ALIGN */
};

struct kern_devinfo {
    int ordinal;
    char name[128], uuid[64], pci[32];
    uint64_t mem_total, mem_free; /* bytes; 0: unknown */
    bool usable;
    char why_not[256]; /* one line when it is not usable */
};

struct kern_devopts {
    int threads; /* cpu: 0 chooses (affinity mask and cgroup quota) */
    bool poison; /* fill new memory, and the arena before each run, with signalling patterns (tests)
                  */
};

enum kern_memkind { KERN_DEVICE, KERN_PINNED };

struct kern_backend {
    uint32_t abi, size; /* KERN_ABI, sizeof(struct kern_backend) */
    const char *name;   /* "cpu", "cuda", "ref" */

    /* How many devices there are (at most cap are filled in); never fails: no device is 0. */
    int (*enumerate)(struct kern_devinfo *out, int cap);
    enum kern_status (*open)(int ordinal, const struct kern_devopts *o, struct kern_dev **out,
                             struct kern_err *e);
    void (*close)(struct kern_dev *d); /* NULL is a no-op; everything made from d is gone before */
    /* One line on the device, its libraries and instruction set, for check, doctor and the run's
     * record. */
    void (*describe)(struct kern_dev *d, char *buf, size_t cap);
    /* Can this device run op (over these buffers)? False: *why says why, for the user. */
    bool (*supports)(struct kern_dev *d, const struct kern_program *p, const struct kern_op *op,
                     char *why, size_t cap);

    /* bytes counts dense elements, as offsets do. The contents are undefined (poisoned if asked).
     */
    enum kern_status (*mem_new)(struct kern_dev *d, enum kern_memkind kind, int64_t bytes,
                                struct kern_mem **out, struct kern_err *e);
    void (*mem_free)(struct kern_mem *m); /* NULL is a no-op */
    enum kern_status (*copy_in)(struct kern_mem *dst, int64_t offset, enum dtype t, int64_t count,
                                const void *src, struct kern_err *e);
    enum kern_status (*copy_out)(struct kern_mem *src, int64_t offset, enum dtype t, int64_t count,
                                 void *dst, struct kern_err *e);
    enum kern_status (*fill_zero)(struct kern_mem *dst, int64_t offset, int64_t bytes,
                                  struct kern_err *e);

    /* Checks and copies the program: nothing of it is read afterwards. */
    enum kern_status (*plan_new)(struct kern_dev *d, const struct kern_program *p,
                                 struct kern_plan **out, struct kern_err *e);
    enum kern_status (*plan_run)(struct kern_plan *p, const struct kern_bind *b,
                                 const struct kern_hyper *h, struct kern_err *e);
    /* Seconds each op took, summed over the runs since plan_new; one value an op of the program.
     * NULL when the backend does not measure. */
    enum kern_status (*plan_profile)(struct kern_plan *p, double *seconds, int cap,
                                     struct kern_err *e);
    void (*plan_free)(struct kern_plan *p); /* NULL is a no-op */

    enum kern_status (*event_new)(struct kern_dev *d, struct kern_event **out, struct kern_err *e);
    enum kern_status (*event_record)(struct kern_event *ev, struct kern_err *e);
    bool (*event_done)(struct kern_event *ev);
    /* KERN_OK once everything enqueued before the record is done; an error of that work comes back
     * here. timeout_ms < 0 waits for ever. */
    enum kern_status (*event_wait)(struct kern_event *ev, int timeout_ms, struct kern_err *e);
    void (*event_free)(struct kern_event *ev); /* NULL is a no-op */
};

/* The one symbol a plugin exports. NULL if it does not speak `abi`. */
const struct kern_backend *cupola_backend(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
