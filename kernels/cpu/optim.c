/* optim.c - the update: gradient norm, prologue, SGD, Adam. The segments are cut into chunks when
 * the plan is made, the same whatever the threads. Hyperparameters are read at each run. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { CHUNK = 16384 };

struct piece {
    int64_t begin, count; /* elements from the first of the operation's buffers */
    int32_t group;
};

struct update {
    int64_t n, count; /* pieces, and elements in them */
    struct piece piece[];
};

static float slot(const struct kern_hyper *h, int32_t s)
{
    return s >= 0 ? h->value[s] : 0;
}

static float *f32_of(const struct cpu_run *r, int32_t buf)
{
    return buf >= 0 ? (float *)(void *)r->buf[buf] : NULL;
}

/* ---- GRAD_NORM ---- */

struct norm_job {
    const struct update *u;
    const struct cpu_vec *v;
    const float *g;
    double *partial; /* of each piece */
};

static void norm_chunk(void *arg, int64_t i)
{
    const struct norm_job *j = arg;
    j->partial[i] = j->v->sum_squares(j->g + j->u->piece[i].begin, j->u->piece[i].count);
}

static void run_norm(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct update *u = op->own;
    struct norm_job j = {u, cpu_vec_for(r->d->isa), f32_of(r, op->op.in[0]),
                         (double *)(void *)op->scratch};
    double sum = 0;

    pool_run(r->d->pool, u->n, (double)u->count * 0.1, norm_chunk, &j);
    for (int64_t i = 0; i < u->n; i++)
        sum += j.partial[i];
    *f32_of(r, op->op.out[0]) = (float)sqrt(sum);
}

/* ---- PROLOGUE ---- */

/* 1 without clipping, and for a NaN, which the skip flag handles. */
static float coefficient(float norm, float clip)
{
    return clip == 0 ? 1 : (float)fmin(1, (double)clip / ((double)norm + 1e-6));
}

static void run_prologue(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_opt *o = &op->op.u.opt;
    const struct kern_hyper *h = r->hyper;
    const float norm = *f32_of(r, op->op.in[0]);
    double *state = (double *)(void *)r->buf[op->op.in[1]]; /* applied, b1prod, b2prod, latch */
    float *out = f32_of(r, op->op.out[0]);
    const bool finite = isfinite(norm);
    bool skip;

    if (h->flags & KERN_CLEAR_LATCH)
        state[3] = 0;
    skip = !finite || state[3] != 0;
    if (!finite && h->flags & KERN_LATCH)
        state[3] = 1;
    if (!skip) {
        state[0] += 1;
        state[1] *= (double)slot(h, o->beta1);
        state[2] *= (double)slot(h, o->beta2);
    }
    out[0] = coefficient(norm, slot(h, o->clip));
    out[1] = skip ? 1 : 0;
    out[2] = (float)(1 / (1 - state[1]));
    out[3] = (float)(1 / sqrt(1 - state[2]));
}

/* ---- SGD, ADAM ---- */

struct update_job {
    const struct update *u;
    const struct kern_opt *o;
    const struct kern_hyper *h;
    const struct cpu_vec *v;
    const float *step; /* what PROLOGUE wrote */
    const float *grad;
    float *param, *m, *s; /* moments; m alone, or NULL, for SGD */
};

static void sgd_chunk(void *arg, int64_t i)
{
    const struct update_job *j = arg;
    const struct piece *c = &j->u->piece[i];
    const struct kern_opt *o = j->o;
    const float k[4] = {j->step[0], j->h->value[o->lr + c->group],
                        j->h->value[o->weight_decay + c->group], slot(j->h, o->momentum)};

    j->v->sgd(j->param + c->begin, j->grad + c->begin, j->m ? j->m + c->begin : NULL, c->count, k,
              o->nesterov);
}

static void adam_chunk(void *arg, int64_t i)
{
    const struct update_job *j = arg;
    const struct piece *c = &j->u->piece[i];
    const struct kern_opt *o = j->o;
    const float k[8] = {j->step[0],
                        j->h->value[o->lr + c->group],
                        j->h->value[o->weight_decay + c->group],
                        slot(j->h, o->beta1),
                        slot(j->h, o->beta2),
                        slot(j->h, o->eps),
                        j->step[2],
                        j->step[3]};

    (o->decoupled ? j->v->adam : j->v->adam_l2)(j->param + c->begin, j->grad + c->begin,
                                                j->m + c->begin, j->s + c->begin, c->count, k);
}

static void run_update(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_op *k = &op->op;
    struct update_job j = {
        .u = op->own, .o = &k->u.opt, .h = r->hyper, .v = cpu_vec_for(r->d->isa)};

    j.step = f32_of(r, k->in[2]);
    if (j.step[1] != 0)
        return; /* skipped: nothing moves */
    j.param = f32_of(r, k->in[0]);
    j.grad = f32_of(r, k->in[1]);
    j.m = f32_of(r, k->in[3]);
    j.s = k->code == KERN_ADAM ? f32_of(r, k->in[4]) : NULL;
    pool_run(r->d->pool, j.u->n, (double)j.u->count * 0.5,
             k->code == KERN_SGD ? sgd_chunk : adam_chunk, &j);
}

/* ---- preparing ---- */

/* Segments ascend, do not overlap, and lie in in[0], whose first element is element `first` of its
 * space. */
static enum kern_status check_segments(const struct kern_program *p, const struct kern_op *k,
                                       int64_t *pieces, int64_t *count, struct kern_err *e)
{
    const struct kern_opt *o = &k->u.opt;
    const struct kern_buf *b = &p->bufs[k->in[0]];
    const int64_t first = b->offset / dtype_size(DT_F32);
    int64_t at = first, end;

    if (o->n_segments < 0 || (o->n_segments > 0 && !o->segments))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: %d segments", k->label, o->n_segments);
    *pieces = *count = 0;
    for (int i = 0; i < o->n_segments; i++) {
        const struct kern_segment *s = &o->segments[i];
        if (s->begin < at || s->count < 0 || s->group < 0 ||
            __builtin_add_overflow(s->begin, s->count, &end) || end - first > b->count)
            return cpu_err(e, KERN_EINVAL,
                           "cpu: %.80s: segment %d, %lld elements from %lld, is not in the buffer",
                           k->label, i, (long long)s->count, (long long)s->begin);
        at = end;
        *pieces += s->count / CHUNK + (s->count % CHUNK != 0);
        *count += s->count;
    }
    return KERN_OK;
}

static void cut(struct update *u, const struct kern_opt *o, int64_t first)
{
    for (int i = 0; i < o->n_segments; i++) {
        const struct kern_segment *s = &o->segments[i];
        for (int64_t at = 0; at < s->count; at += CHUNK)
            u->piece[u->n++] = (struct piece){
                s->begin - first + at, s->count - at < CHUNK ? s->count - at : CHUNK, s->group};
    }
}

/* The segments as pieces in op->own; nothing of the program's is kept. */
static enum kern_status take_segments(const struct kern_program *p, struct cpu_op *op,
                                      struct kern_err *e)
{
    int64_t pieces = 0, count = 0;
    size_t bytes;
    struct update *u;
    enum kern_status rc = check_segments(p, &op->op, &pieces, &count, e);

    if (rc != KERN_OK)
        return rc;
    if (__builtin_mul_overflow((size_t)pieces, sizeof(struct piece), &bytes) ||
        __builtin_add_overflow(bytes, sizeof *u, &bytes))
        return cpu_err(e, KERN_ENOMEM, "cpu: %.80s: no memory", op->op.label);
    u = calloc(1, bytes);
    if (!u)
        return cpu_err(e, KERN_ENOMEM, "cpu: %.80s: no memory for %lld chunks", op->op.label,
                       (long long)pieces);
    cut(u, &op->op.u.opt, p->bufs[op->op.in[0]].offset / dtype_size(DT_F32));
    u->count = count;
    op->own = u;
    op->free_own = free;
    op->op.u.opt.segments = NULL;
    op->op.u.opt.n_segments = 0;
    return KERN_OK;
}

static enum kern_status want_slot(const struct kern_op *k, const char *name, int32_t slot,
                                  int32_t more, bool optional, struct kern_err *e)
{
    if (optional && slot == -1)
        return KERN_OK;
    if (slot < 0 || slot >= KERN_HYPER_MAX || more < 0 || more >= KERN_HYPER_MAX - slot)
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: slot %d of %s (group %d)", k->label, slot, name,
                       more);
    return KERN_OK;
}

static enum kern_status want_group_slots(const struct kern_op *k, struct kern_err *e)
{
    const struct kern_opt *o = &k->u.opt;
    enum kern_status rc = KERN_OK;

    for (int i = 0; i < o->n_segments && rc == KERN_OK; i++) {
        rc = want_slot(k, "lr", o->lr, o->segments[i].group, false, e);
        if (rc == KERN_OK)
            rc = want_slot(k, "weight_decay", o->weight_decay, o->segments[i].group, false, e);
    }
    return rc;
}

static enum kern_status prepare_norm(const struct kern_program *p, struct cpu_op *op,
                                     struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    enum kern_status rc = cpu_want(p, k, k->in[0], false, DT_F32, 0, "gradients", e);

    op->run = run_norm;
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->out[0], false, DT_F32, 1, "norm", e);
    if (rc == KERN_OK)
        rc = take_segments(p, op, e);
    if (rc == KERN_OK)
        op->scratch_count = 2 * ((const struct update *)op->own)->n; /* an f64 each */
    return rc;
}

static enum kern_status prepare_prologue(const struct kern_program *p, struct cpu_op *op,
                                         struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const struct kern_opt *o = &k->u.opt;
    enum kern_status rc = cpu_want(p, k, k->in[0], false, DT_F32, 1, "norm", e);

    op->run = run_prologue;
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[1], false, DT_F64, 4, "state", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->out[0], false, DT_F32, 4, "step block", e);
    if (rc == KERN_OK)
        rc = want_slot(k, "beta1", o->beta1, 0, true, e);
    if (rc == KERN_OK)
        rc = want_slot(k, "beta2", o->beta2, 0, true, e);
    return rc == KERN_OK ? want_slot(k, "clip", o->clip, 0, true, e) : rc;
}

static enum kern_status want_adam(const struct kern_program *p, const struct kern_op *k,
                                  int64_t count, struct kern_err *e)
{
    const struct kern_opt *o = &k->u.opt;
    enum kern_status rc = cpu_want(p, k, k->in[3], false, DT_F32, count, "first moment", e);

    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[4], false, DT_F32, count, "second moment", e);
    if (rc == KERN_OK)
        rc = want_slot(k, "beta1", o->beta1, 0, false, e);
    if (rc == KERN_OK)
        rc = want_slot(k, "beta2", o->beta2, 0, false, e);
    return rc == KERN_OK ? want_slot(k, "eps", o->eps, 0, false, e) : rc;
}

static enum kern_status want_sgd(const struct kern_program *p, const struct kern_op *k,
                                 int64_t count, struct kern_err *e)
{
    const enum kern_status rc = cpu_want(p, k, k->in[3], true, DT_F32, count, "momentum", e);
    return rc == KERN_OK ? want_slot(k, "momentum", k->u.opt.momentum, 0, true, e) : rc;
}

static enum kern_status prepare_update(const struct kern_program *p, struct cpu_op *op,
                                       struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    enum kern_status rc = cpu_want(p, k, k->in[0], false, DT_F32, 0, "parameters", e);
    int64_t count;

    op->run = run_update;
    if (rc != KERN_OK)
        return rc;
    count = p->bufs[k->in[0]].count;
    rc = cpu_want(p, k, k->in[1], false, DT_F32, count, "gradients", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[2], false, DT_F32, 4, "step block", e);
    if (rc == KERN_OK)
        rc = k->code == KERN_ADAM ? want_adam(p, k, count, e) : want_sgd(p, k, count, e);
    if (rc == KERN_OK && k->u.opt.segments)
        rc = want_group_slots(k, e);
    return rc == KERN_OK ? take_segments(p, op, e) : rc;
}

enum kern_status cpu_prepare_optim(struct kern_dev *d, const struct kern_program *p,
                                   struct cpu_op *op, struct kern_err *e)
{
    (void)d;
    if (op->op.code == KERN_GRAD_NORM)
        return prepare_norm(p, op, e);
    if (op->op.code == KERN_PROLOGUE)
        return prepare_prologue(p, op, e);
    return prepare_update(p, op, e);
}
