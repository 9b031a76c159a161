/* optim.c - the update: gradient norm, prologue, SGD, Adam, over stretches of the contiguous
 * arenas. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { CHUNK = 16384 };

struct piece {
    int64_t begin, count;
    int32_t group;
};

struct update {
    int64_t n;
    struct piece *piece; /* the segments cut into chunks: the same pieces whatever the threads */
};

static void update_free(void *own)
{
    struct update *u = own;
    free(u->piece);
    free(u);
}

static float slot(const struct kern_hyper *h, int32_t s)
{
    return s >= 0 ? h->value[s] : 0;
}

/* ---- norm ---- */

struct norm_job {
    const struct update *u;
    const struct cpu_vec *v;
    const float *g;
    double *partial;
};

static void norm_chunk(void *arg, int64_t i)
{
    const struct norm_job *j = arg;
    j->partial[i] = j->v->sum_squares(j->g + j->u->piece[i].begin, j->u->piece[i].count);
}

static void run_norm(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct update *u = op->own;
    struct norm_job j = {u, cpu_vec_for(r->d->isa), (const float *)r->buf[op->op.in[0]],
                         (double *)(void *)op->scratch};
    double sum = 0;

    pool_run(r->d->pool, u->n, (double)u->n * CHUNK * 0.3, norm_chunk, &j);
    for (int64_t i = 0; i < u->n; i++)
        sum += j.partial[i];
    *(float *)r->buf[op->op.out[0]] = (float)sqrt(sum);
}

/* ---- prologue ---- */

static void run_prologue(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_opt *o = &op->op.u.opt;
    const struct kern_hyper *h = r->hyper;
    float norm = *(const float *)r->buf[op->op.in[0]], *out = (float *)r->buf[op->op.out[0]],
          clip = slot(h, o->clip);
    double *s = (double *)r->buf[op->op.in[1]]; /* applied, b1prod, b2prod, latch */
    bool finite = fabsf(norm) < INFINITY, skip;

    if (h->flags & KERN_CLEAR_LATCH)
        s[3] = 0;
    skip = !finite || s[3] != 0;
    if (!finite && h->flags & KERN_LATCH)
        s[3] = 1;
    if (!skip) {
        s[0] += 1;
        s[1] *= (double)slot(h, o->beta1);
        s[2] *= (double)slot(h, o->beta2);
    }
    out[0] = clip > 0 && clip < norm + 1e-6f ? clip / (norm + 1e-6f) : 1;
    out[1] = skip;
    out[2] = (float)(1 / (1 - s[1]));
    out[3] = (float)(1 / sqrt(1 - s[2]));
}

/* ---- SGD and Adam ---- */

struct update_job {
    const struct cpu_op *op;
    const struct cpu_run *r;
    const struct cpu_vec *v;
    const float *block;
    float *p, *g, *m, *s;
};

static void sgd_chunk(void *arg, int64_t i)
{
    const struct update_job *j = arg;
    const struct piece *c = &((const struct update *)j->op->own)->piece[i];
    const struct kern_opt *o = &j->op->op.u.opt;
    const struct kern_hyper *h = j->r->hyper;
    const float k[4] = {j->block[0], h->value[o->lr + c->group],
                        h->value[o->weight_decay + c->group], slot(h, o->momentum)};

    j->v->sgd(j->p + c->begin, j->g + c->begin, j->m ? j->m + c->begin : NULL, c->count, k,
              o->nesterov);
}

static void adam_chunk(void *arg, int64_t i)
{
    const struct update_job *j = arg;
    const struct piece *c = &((const struct update *)j->op->own)->piece[i];
    const struct kern_opt *o = &j->op->op.u.opt;
    const struct kern_hyper *h = j->r->hyper;
    const float k[8] = {j->block[0],
                        h->value[o->lr + c->group],
                        h->value[o->weight_decay + c->group],
                        slot(h, o->beta1),
                        slot(h, o->beta2),
                        slot(h, o->eps),
                        j->block[2],
                        j->block[3]};

    (o->decoupled ? j->v->adam : j->v->adam_l2)(j->p + c->begin, j->g + c->begin, j->m + c->begin,
                                                j->s + c->begin, c->count, k);
}

static void run_update(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_op *k = &op->op;
    struct update_job j = {
        .op = op, .r = r, .v = cpu_vec_for(r->d->isa), .block = (const float *)r->buf[k->in[2]]};
    int64_t n = ((const struct update *)op->own)->n;

    if (j.block[1] != 0)
        return; /* skipped: nothing moves */
    j.p = (float *)r->buf[k->in[0]];
    j.g = (float *)r->buf[k->in[1]];
    j.m = k->in[3] >= 0 ? (float *)r->buf[k->in[3]] : NULL;
    j.s = k->in[4] >= 0 ? (float *)r->buf[k->in[4]] : NULL;
    pool_run(r->d->pool, n, (double)n * CHUNK * 1.0, k->code == KERN_SGD ? sgd_chunk : adam_chunk,
             &j);
}

/* ---- preparing ---- */

static enum kern_status cut(const struct kern_opt *o, struct update **out, int64_t *end,
                            struct kern_err *e)
{
    struct update *u = calloc(1, sizeof *u);
    int64_t n = 0;

    *end = 0;
    if (!u || (o->n_segments > 0 && !o->segments)) {
        free(u);
        return cpu_err(e, u ? KERN_EINVAL : KERN_ENOMEM, "update: no segments, or out of memory");
    }
    for (int i = 0; i < o->n_segments; i++) {
        const struct kern_segment *s = &o->segments[i];
        if (s->begin < *end || s->count < 0 || s->group < 0 || s->group >= KERN_HYPER_MAX ||
            __builtin_add_overflow(s->begin, s->count, end)) {
            free(u);
            return cpu_err(e, KERN_EINVAL, "update: segment %d is out of order or out of range", i);
        }
        n += (s->count + CHUNK - 1) / CHUNK;
    }
    u->piece = calloc((size_t)n + 1, sizeof *u->piece);
    if (!u->piece) {
        free(u);
        return cpu_err(e, KERN_ENOMEM, "update: out of memory");
    }
    for (int i = 0; i < o->n_segments; i++)
        for (int64_t at = 0; at < o->segments[i].count; at += CHUNK) {
            int64_t left = o->segments[i].count - at;
            u->piece[u->n++] = (struct piece){o->segments[i].begin + at,
                                              left < CHUNK ? left : CHUNK, o->segments[i].group};
        }
    *out = u;
    return KERN_OK;
}

static bool slots_fit(const struct kern_opt *o)
{
    const int32_t slots[] = {o->momentum, o->beta1, o->beta2, o->eps, o->clip};
    int32_t most = 0;

    for (int i = 0; i < o->n_segments; i++)
        most = o->segments[i].group > most ? o->segments[i].group : most;
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (slots[i] >= KERN_HYPER_MAX)
            return false;
    return o->lr < KERN_HYPER_MAX - most && o->weight_decay < KERN_HYPER_MAX - most;
}

static enum kern_status want_all(const struct kern_program *p, const struct kern_op *k, int64_t end,
                                 struct kern_err *e)
{
    enum kern_status st = KERN_OK;

    switch (k->code) {
    case KERN_GRAD_NORM:
        st = cpu_want(p, k, k->in[0], false, DT_F32, end, "gradients", e);
        return st == KERN_OK ? cpu_want(p, k, k->out[0], false, DT_F32, 1, "norm", e) : st;
    case KERN_PROLOGUE:
        st = cpu_want(p, k, k->in[0], false, DT_F32, 1, "norm", e);
        if (st == KERN_OK)
            st = cpu_want(p, k, k->in[1], false, DT_F64, 4, "state", e);
        return st == KERN_OK ? cpu_want(p, k, k->out[0], false, DT_F32, 4, "step block", e) : st;
    default:
        break;
    }
    for (int i = 0; i < 5 && st == KERN_OK; i++)
        if (i != 2)
            st = cpu_want(p, k, k->in[i], k->code == KERN_SGD && i >= 3, DT_F32, end,
                          i < 2 ? "parameters or gradients" : "moments", e);
    return st == KERN_OK ? cpu_want(p, k, k->in[2], false, DT_F32, 4, "step block", e) : st;
}

enum kern_status cpu_prepare_optim(struct kern_dev *d, const struct kern_program *p,
                                   struct cpu_op *op, struct kern_err *e)
{
    const struct kern_opt *o = &op->op.u.opt;
    struct update *u = NULL;
    int64_t end;
    enum kern_status st;

    (void)d;
    if (o->n_segments < 0 || !slots_fit(o) ||
        (op->op.code >= KERN_SGD && (o->lr < 0 || o->weight_decay < 0)))
        return cpu_err(e, KERN_EINVAL, "update: a hyperparameter slot is out of range");
    st = cut(o, &u, &end, e);
    if (st != KERN_OK)
        return st;
    op->own = u;
    op->free_own = update_free;
    op->run = op->op.code == KERN_GRAD_NORM  ? run_norm
              : op->op.code == KERN_PROLOGUE ? run_prologue
                                             : run_update;
    op->scratch_count = op->op.code == KERN_GRAD_NORM ? 2 * u->n : 0; /* f64 partial sums */
    return want_all(p, &op->op, end, e);
}
