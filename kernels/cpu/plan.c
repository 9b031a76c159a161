/* plan.c - a program checked, copied and made ready; then run, op after op.
 *
 * Everything that can fail does so in plan_new, but for a binding that does not fit. */
#include "kernels/cpu/plan.h"

#include <time.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/cpu/cpu.h"

struct kern_plan {
    struct kern_dev *dev;
    struct kern_buf *bufs; /* owned, [n_bufs] */
    struct cpu_op *ops;    /* owned, [n_ops] */
    char **at;             /* owned, [n_bufs]: addresses in the run that goes on */
    double *seconds;       /* owned, [n_ops] */
    int n_bufs, n_ops;
    int n_ready; /* ops that prepare has seen: what there is to free */
    int n_slots; /* hyper slots 0 .. n_slots-1 may be read */
    int64_t space_bytes[KERN_SPACES];
    bool used[KERN_SPACES]; /* some buffer that is not empty lies there */
    bool measure;
};

static cpu_prepare_fn *const prepare_of[KERN_CODES] = {
    [KERN_FUSED] = cpu_prepare_fused,          [KERN_MATMUL] = cpu_prepare_matmul,
    [KERN_REDUCE] = cpu_prepare_reduce,        [KERN_ARGMAX] = cpu_prepare_reduce,
    [KERN_TOPK] = cpu_prepare_reduce,          [KERN_CUMSUM] = cpu_prepare_reduce,
    [KERN_TAKE] = cpu_prepare_index,           [KERN_TAKE_GRAD] = cpu_prepare_index,
    [KERN_TAKE_ALONG] = cpu_prepare_index,     [KERN_SCATTER_ADD] = cpu_prepare_index,
    [KERN_SOFTMAX] = cpu_prepare_softmax,      [KERN_LOG_SOFTMAX] = cpu_prepare_softmax,
    [KERN_LOGSUMEXP] = cpu_prepare_softmax,    [KERN_XENT] = cpu_prepare_softmax,
    [KERN_XENT_GRAD] = cpu_prepare_softmax,    [KERN_LAYER_NORM] = cpu_prepare_norm,
    [KERN_LAYER_NORM_GRAD] = cpu_prepare_norm, [KERN_RMS_NORM] = cpu_prepare_norm,
    [KERN_RMS_NORM_GRAD] = cpu_prepare_norm,   [KERN_GRAD_NORM] = cpu_prepare_optim,
    [KERN_PROLOGUE] = cpu_prepare_optim,       [KERN_SGD] = cpu_prepare_optim,
    [KERN_ADAM] = cpu_prepare_optim,
};

/* ---- checks ---- */

static enum kern_status check_buf(const struct kern_program *p, int at, struct kern_err *e)
{
    const struct kern_buf *b = &p->bufs[at];
    const bool held = b->dtype == DT_F32 || b->dtype == DT_F64 || b->dtype == DT_I32 ||
                      b->dtype == DT_U8 || b->dtype == DT_BOOL;
    int64_t bytes, end;

    if ((unsigned)b->space >= KERN_SPACES)
        return cpu_err(e, KERN_EINVAL, "cpu: buffer %d is in no space", at);
    if (!held)
        return cpu_err(e, KERN_EUNSUPPORTED,
                       "cpu: buffer %d is %s; f32, f64 state, i32, u8 and bool are supported", at,
                       dtype_name(b->dtype));
    if (b->layout != KERN_DENSE)
        return cpu_err(e, KERN_EUNSUPPORTED, "cpu: buffer %d is not row-major", at);
    if (b->offset < 0 || b->offset % dtype_size(b->dtype) != 0)
        return cpu_err(e, KERN_EINVAL, "cpu: buffer %d of %s is at byte %lld", at,
                       dtype_name(b->dtype), (long long)b->offset);
    if (b->count < 0 || __builtin_mul_overflow(b->count, dtype_size(b->dtype), &bytes) ||
        __builtin_add_overflow(b->offset, bytes, &end) || end > p->space_bytes[b->space])
        return cpu_err(e, KERN_EINVAL,
                       "cpu: buffer %d, %lld %s at byte %lld, passes its space of %lld", at,
                       (long long)b->count, dtype_name(b->dtype), (long long)b->offset,
                       (long long)p->space_bytes[b->space]);
    return KERN_OK;
}

static enum kern_status check_op(const struct kern_program *p, int at, struct kern_err *e)
{
    const struct kern_op *op = &p->ops[at];

    if ((unsigned)op->code >= KERN_CODES)
        return cpu_err(e, KERN_EINVAL, "cpu: op %d has code %d", at, (int)op->code);
    for (int k = 0; op->code != KERN_FUSED && k < KERN_IN + KERN_OUT; k++) {
        const int32_t buf = k < KERN_IN ? op->in[k] : op->out[k - KERN_IN];
        if (buf < -1 || buf >= p->n_bufs)
            return cpu_err(e, KERN_EINVAL, "cpu: %.80s names buffer %d of %d",
                           op->label ? op->label : "op", buf, p->n_bufs);
    }
    return KERN_OK;
}

static enum kern_status check_program(const struct kern_program *p, struct kern_err *e)
{
    enum kern_status rc = KERN_OK;

    if (!p || p->n_bufs < 0 || p->n_ops < 0 || (p->n_bufs && !p->bufs) || (p->n_ops && !p->ops))
        return cpu_err(e, KERN_EINVAL, "cpu: a program without buffers or operations");
    for (int s = 0; s < KERN_SPACES; s++)
        if (p->space_bytes[s] < 0)
            return cpu_err(e, KERN_EINVAL, "cpu: space %d has %lld bytes", s,
                           (long long)p->space_bytes[s]);
    for (int i = 0; i < p->n_bufs && rc == KERN_OK; i++)
        rc = check_buf(p, i, e);
    for (int i = 0; i < p->n_ops && rc == KERN_OK; i++)
        rc = check_op(p, i, e);
    return rc;
}

/* ---- hyper slots ---- */

static int slot_end(int n, int32_t slot, int32_t group)
{
    int32_t end;

    if (slot < 0 || __builtin_add_overflow(slot, group, &end) || end >= KERN_HYPER_MAX)
        return n; /* none, or one that prepare has refused */
    return end + 1 > n ? end + 1 : n;
}

static int opt_slots(const struct kern_op *op, int n)
{
    const struct kern_opt *o = &op->u.opt;

    if (op->code == KERN_PROLOGUE)
        return slot_end(slot_end(slot_end(n, o->clip, 0), o->beta1, 0), o->beta2, 0);
    if (op->code == KERN_ADAM)
        n = slot_end(slot_end(slot_end(n, o->eps, 0), o->beta1, 0), o->beta2, 0);
    else
        n = slot_end(n, o->momentum, 0);
    for (int i = 0; i < o->n_segments; i++)
        n = slot_end(slot_end(n, o->lr, o->segments[i].group), o->weight_decay,
                     o->segments[i].group);
    return n;
}

static int op_slots(const struct kern_op *op, int n)
{
    if (op->code == KERN_PROLOGUE || op->code == KERN_SGD || op->code == KERN_ADAM)
        return opt_slots(op, n);
    for (int i = 0; op->code == KERN_FUSED && i < op->u.fused.n_insns; i++)
        if (op->u.fused.insns[i].code == KERN_I_HYPER)
            n = slot_end(n, op->u.fused.insns[i].slot, 0);
    return n;
}

/* ---- making and freeing ---- */

static enum kern_status op_scratch(struct cpu_op *op, struct kern_err *e)
{
    size_t bytes;

    if (op->scratch_count <= 0)
        return KERN_OK;
    if (__builtin_mul_overflow((size_t)op->scratch_count, sizeof(float), &bytes) ||
        bytes > SIZE_MAX / 2)
        return cpu_err(e, KERN_ENOMEM, "cpu: %.80s: scratch of %lld elements", op->op.label,
                       (long long)op->scratch_count);
    op->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!op->scratch)
        return cpu_err(e, KERN_ENOMEM, "cpu: %.80s: no memory for scratch of %zu bytes",
                       op->op.label, bytes);
    return KERN_OK;
}

static enum kern_status op_make(struct kern_plan *plan, const struct kern_program *p, int at,
                                struct kern_err *e)
{
    struct cpu_op *op = &plan->ops[at];
    char *label = strdup(p->ops[at].label ? p->ops[at].label : "op");
    enum kern_status rc;

    op->op = p->ops[at];
    op->op.label = label;
    plan->n_ready = at + 1;
    if (!label)
        return cpu_err(e, KERN_ENOMEM, "cpu: no memory for a plan");
    rc = prepare_of[op->op.code](plan->dev, p, op, e);
    if (rc == KERN_OK)
        rc = op_scratch(op, e);
    plan->n_slots = rc == KERN_OK ? op_slots(&p->ops[at], plan->n_slots) : 0;
    return rc;
}

static void op_release(struct cpu_op *op)
{
    if (op->own && op->free_own)
        op->free_own(op->own);
    free(op->scratch);
    free((void *)(uintptr_t)op->op.label); /* const in the interface, but ours */
}

void cpu_plan_free(struct kern_plan *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_ready; i++)
        op_release(&p->ops[i]);
    free(p->bufs);
    free(p->ops);
    free(p->at);
    free(p->seconds);
    free(p);
}

static struct kern_plan *plan_alloc(struct kern_dev *d, const struct kern_program *p)
{
    struct kern_plan *plan = calloc(1, sizeof *plan);

    if (!plan)
        return NULL;
    plan->dev = d;
    plan->n_bufs = p->n_bufs;
    plan->n_ops = p->n_ops;
    plan->bufs = calloc((size_t)p->n_bufs + 1, sizeof *plan->bufs);
    plan->ops = calloc((size_t)p->n_ops + 1, sizeof *plan->ops);
    plan->at = calloc((size_t)p->n_bufs + 1, sizeof *plan->at);
    plan->seconds = calloc((size_t)p->n_ops + 1, sizeof *plan->seconds);
    if (plan->bufs && plan->ops && plan->at && plan->seconds)
        return plan;
    cpu_plan_free(plan);
    return NULL;
}

enum kern_status cpu_plan_new(struct kern_dev *d, const struct kern_program *p,
                              struct kern_plan **out, struct kern_err *e)
{
    enum kern_status rc = check_program(p, e);
    struct kern_plan *plan;

    *out = NULL;
    if (rc != KERN_OK)
        return rc;
    plan = plan_alloc(d, p);
    if (!plan)
        return cpu_err(e, KERN_ENOMEM, "cpu: no memory for a plan of %d operations", p->n_ops);
    memcpy(plan->space_bytes, p->space_bytes, sizeof plan->space_bytes);
    for (int i = 0; i < p->n_bufs; i++) {
        plan->bufs[i] = p->bufs[i];
        plan->used[p->bufs[i].space] |= p->bufs[i].count > 0;
    }
    for (int i = 0; i < p->n_ops && rc == KERN_OK; i++)
        rc = op_make(plan, p, i, e);
    if (rc != KERN_OK) {
        cpu_plan_free(plan);
        return rc;
    }
    *out = plan;
    return KERN_OK;
}

/* ---- a run ---- */

static enum kern_status check_bind(const struct kern_plan *p, const struct kern_bind *b,
                                   struct kern_err *e)
{
    for (int s = 0; s < KERN_SPACES; s++) {
        const struct kern_mem *m = b->mem[s];
        if (!p->used[s])
            continue;
        if (!m || m->dev != p->dev)
            return cpu_err(e, KERN_EINVAL, "cpu: space %d has no memory of this device bound", s);
        if (b->base[s] < 0 || b->base[s] % KERN_ALIGN != 0 || b->base[s] > m->bytes ||
            p->space_bytes[s] > m->bytes - b->base[s])
            return cpu_err(
                e, KERN_EINVAL, "cpu: space %d needs %lld bytes at %lld of memory of %lld", s,
                (long long)p->space_bytes[s], (long long)b->base[s], (long long)m->bytes);
    }
    return KERN_OK;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Empty buffers get some address too: what touches no element may still form it. */
static void bind_bufs(struct kern_plan *p, const struct kern_bind *b)
{
    for (int i = 0; i < p->n_bufs; i++) {
        const struct kern_buf *buf = &p->bufs[i];
        p->at[i] = buf->count == 0
                       ? (char *)p->seconds
                       : (char *)b->mem[buf->space]->at + b->base[buf->space] + buf->offset;
    }
    if (p->dev->poison && p->used[KERN_ARENA])
        memset(b->mem[KERN_ARENA]->at + b->base[KERN_ARENA], 0xff,
               (size_t)p->space_bytes[KERN_ARENA]);
}

/* Rounds to nearest and keeps denormals while a program runs, whatever the caller has: results
 * would else depend on it. The pool's threads do as this one. Returns what was set before. */
static unsigned rounding_begin(void)
{
#if defined(__x86_64__)
    const unsigned was = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return was;
#else
    return 0;
#endif
}

static void rounding_end(unsigned was)
{
#if defined(__x86_64__)
    _mm_setcsr(was);
#else
    (void)was;
#endif
}

static void run_ops(struct kern_plan *p, const struct cpu_run *run)
{
    for (int i = 0; i < p->n_ops; i++) {
        const double begun = p->measure ? now_s() : 0;
        p->ops[i].run(&p->ops[i], run);
        if (p->measure)
            p->seconds[i] += now_s() - begun;
    }
}

enum kern_status cpu_plan_run(struct kern_plan *p, const struct kern_bind *b,
                              const struct kern_hyper *h, struct kern_err *e)
{
    const struct cpu_run run = {.d = p->dev, .buf = p->at, .hyper = h};
    const enum kern_status rc = check_bind(p, b, e);
    unsigned was;

    if (rc != KERN_OK)
        return rc;
    if (!h || h->n < p->n_slots)
        return cpu_err(e, KERN_EINVAL, "cpu: the program reads %d hyperparameters, the run gave %d",
                       p->n_slots, h ? h->n : 0);
    bind_bufs(p, b);
    was = rounding_begin();
    run_ops(p, &run);
    rounding_end(was);
    return KERN_OK;
}

enum kern_status cpu_plan_profile(struct kern_plan *p, double *seconds, int cap, struct kern_err *e)
{
    const int n = cap < p->n_ops ? cap : p->n_ops;

    if (cap < 0 || (cap > 0 && !seconds))
        return cpu_err(e, KERN_EINVAL, "cpu: a profile of %d ops", cap);
    p->measure =
        true; /* a clock read an op costs little, but not nothing: only once someone asks */
    if (n > 0)
        memcpy(seconds, p->seconds, (size_t)n * sizeof *seconds);
    return KERN_OK;
}
