/* cpu.h - private to kernels/cpu: the device, a compiled op, and what the op families share.
 *
 * An op family is a file with a prepare function: it checks the op against its buffers, takes what
 * scratch and primitives it needs (plan_new) and leaves a run function, which allocates nothing.
 * Work is cut into chunks that are a function of the shape alone, so that results do not depend on
 * the number of threads. */
#ifndef CPU_H
#define CPU_H

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"

enum cpu_isa { CPU_BASE, CPU_AVX2, CPU_AVX512 };

struct kern_dev {
    struct pool *pool;
    int threads;
    enum cpu_isa isa;
    bool poison;
    struct dnnl_cache *dnnl; /* primitives by shape; onednn.cpp */
};

/* What an op sees while it runs: the address of buffer i of the program, and the step's
 * hyperparameters. */
struct cpu_run {
    struct kern_dev *d;
    char *const *buf; /* [n_bufs]; element 0 of each buffer */
    const struct kern_hyper *hyper;
};

struct cpu_op;
typedef void cpu_run_fn(const struct cpu_op *op, const struct cpu_run *r);

struct cpu_op {
    struct kern_op op; /* a copy; pointers in u are replaced by the family's own copies in `own` */
    cpu_run_fn *run;
    void *own; /* the family's state, NULL or freed by free_own */
    void (*free_own)(void *own);
    float *scratch; /* [scratch_count] f32, 64-byte aligned, taken by plan.c after prepare; NULL for
                       none */
    int64_t scratch_count;
};

/* Every family's prepare: op->op and the program are given, the rest is zero. KERN_EINVAL with a
 * line for an op that its buffers do not fit (counts, types, missing buffers), KERN_ENOMEM. */
typedef enum kern_status cpu_prepare_fn(struct kern_dev *d, const struct kern_program *p,
                                        struct cpu_op *op, struct kern_err *e);
cpu_prepare_fn cpu_prepare_fused;   /* fused.c: KERN_FUSED */
cpu_prepare_fn cpu_prepare_matmul;  /* matmul.c: KERN_MATMUL */
cpu_prepare_fn cpu_prepare_reduce;  /* reduce.c: REDUCE ARGMAX TOPK CUMSUM */
cpu_prepare_fn cpu_prepare_index;   /* index.c: TAKE TAKE_GRAD TAKE_ALONG SCATTER_ADD */
cpu_prepare_fn cpu_prepare_softmax; /* softmax.c: SOFTMAX LOG_SOFTMAX LOGSUMEXP XENT XENT_GRAD */
cpu_prepare_fn cpu_prepare_norm;    /* norm.c: LAYER_NORM RMS_NORM and their gradients */
cpu_prepare_fn cpu_prepare_optim;   /* optim.c: GRAD_NORM PROLOGUE SGD ADAM */

/* err.c */
enum kern_status cpu_err(struct kern_err *e, enum kern_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Buffer `index` of the program must exist (or be -1 where optional), have this type and at least
 * `count` elements. `what` names it in the message: "logits". */
enum kern_status cpu_want(const struct kern_program *p, const struct kern_op *op, int32_t index,
                          bool optional, enum dtype t, int64_t count, const char *what,
                          struct kern_err *e);

/* ---- vector math for whole arrays (vec_loops.h is included by vec_base.c, vec_avx2.c,
 * vec_avx512.c): no libm, the same code for tails, so a result never depends on where an element
 * lies. Rows of n floats; y may be x. ---- */
struct cpu_vec {
    void (*exp_sub)(float *y, const float *x, float sub, int64_t n); /* y = exp(x - sub) */
    float (*max)(const float *x, int64_t n); /* -inf for n = 0; NaN if any is NaN */
    float (*sum)(const float *x, int64_t n); /* order fixed by n */
    float (*dot)(const float *x, const float *y, int64_t n);
    double (*sum_squares)(const float *x, int64_t n); /* in f64 */
    float (*log1)(float x);                           /* one logarithm, as the vector code has it */
    void (*adam)(float *p, const float *g, float *m, float *v, int64_t n, const float k[8]);
    /* k: coef, lr, wd (decoupled: p -= lr*wd*p, else g += wd*p), beta1, beta2, eps, 1/(1-b1prod),
     * 1/sqrt(1-b2prod) */
    void (*adam_l2)(float *p, const float *g, float *m, float *v, int64_t n, const float k[8]);
    void (*sgd)(float *p, const float *g, float *buf, int64_t n, const float k[4],
                bool nesterov); /* coef, lr, wd, momentum; buf may be NULL */
    void (*ew)(int op, int type, void *dst, const void *a, const void *b,
               const void *c); /* 512 elements of a fused tile: enum ew, enum dtype */
};
const struct cpu_vec *cpu_vec_for(enum cpu_isa isa); /* vec.c; falls back to what was compiled in */
extern const struct cpu_vec cpu_vec_base;
#if defined(__x86_64__)
extern const struct cpu_vec cpu_vec_avx2, cpu_vec_avx512;
#endif

static inline int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* a / b rounded up, for a >= 0 and b > 0, without overflow. */
static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

enum { CPU_TILE = 512 }; /* elements of a fused register */

#endif
