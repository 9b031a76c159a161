/* opt.c - the update: gradient norm, prologue, SGD, Adam. */
#include "kernels/ref/ref.h"

/* Element 0 of a buffer of the parameters' shape is element `first` of its space: segments count
 * from there. */
static int64_t first_element(const struct ref_run *r, int32_t buf)
{
    return r->bufs[buf].offset / dtype_size(DT_F32);
}

void ref_grad_norm(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_opt *o = &op->u.opt;
    const double *grad = ref_f32(r, op->in[0]);
    const int64_t first = first_element(r, op->in[0]);
    double sum = 0;

    for (int s = 0; s < o->n_segments; s++) {
        const double *g = grad + (o->segments[s].begin - first);
        for (int64_t i = 0; i < o->segments[s].count; i++)
            sum += g[i] * g[i];
    }
    ref_f32(r, op->out[0])[0] = sqrt(sum);
}

/* An f64 lies in a cell of 16 bytes: two doubles, of which the first is used. */
enum { F64_CELL = 2 };

void ref_prologue(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_opt *o = &op->u.opt;
    const double norm = ref_f32(r, op->in[0])[0], clip = ref_slot(r, o->clip);
    double *state = (double *)(void *)r->cells[op->in[1]];
    double *applied = state, *b1prod = state + F64_CELL, *b2prod = state + 2 * F64_CELL;
    double *latch = state + 3 * F64_CELL, *step = ref_f32(r, op->out[0]);
    const bool finite = isfinite((float)norm); /* it is an f32 that passed its range elsewhere */
    bool skip;

    if (r->hyper->flags & KERN_CLEAR_LATCH)
        *latch = 0;
    skip = !finite || *latch != 0;
    if (!finite && r->hyper->flags & KERN_LATCH)
        *latch = 1;
    if (!skip) {
        *applied += 1;
        *b1prod *= ref_slot(r, o->beta1);
        *b2prod *= ref_slot(r, o->beta2);
    }
    step[0] = clip == 0 ? 1 : fmin(1, clip / (norm + 1e-6));
    step[1] = skip;
    step[2] = 1 / (1 - *b1prod);
    step[3] = 1 / sqrt(1 - *b2prod);
}

/* The four arrays of an update at one segment, and what holds for all of it. */
struct stretch {
    double *p, *m, *v;
    const double *g;
    int64_t count;
    double lr, decay, coef;
};

static struct stretch stretch_at(const struct ref_run *r, const struct kern_op *op,
                                 const struct kern_segment *s)
{
    const struct kern_opt *o = &op->u.opt;
    const int64_t at = s->begin - first_element(r, op->in[0]);
    const int32_t m = op->in[3], v = op->code == KERN_ADAM ? op->in[4] : -1;

    return (struct stretch){
        .p = ref_f32(r, op->in[0]) + at,
        .g = ref_f32(r, op->in[1]) + at,
        .m = m < 0 ? NULL : ref_f32(r, m) + at,
        .v = v < 0 ? NULL : ref_f32(r, v) + at,
        .count = s->count,
        .lr = ref_slot(r, o->lr + s->group),
        .decay = ref_slot(r, o->weight_decay + s->group),
        .coef = ref_f32(r, op->in[2])[0],
    };
}

static bool skipped(const struct ref_run *r, const struct kern_op *op)
{
    return ref_f32(r, op->in[2])[1] != 0;
}

static void sgd_stretch(const struct stretch *s, double momentum, bool nesterov)
{
    for (int64_t i = 0; i < s->count; i++) {
        const double g = s->g[i] * s->coef + s->decay * s->p[i];
        double step = g;
        if (s->m) {
            s->m[i] = momentum * s->m[i] + g;
            step = nesterov ? g + momentum * s->m[i] : s->m[i];
        }
        s->p[i] -= s->lr * step;
    }
}

void ref_sgd(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_opt *o = &op->u.opt;

    for (int i = 0; !skipped(r, op) && i < o->n_segments; i++) {
        const struct stretch s = stretch_at(r, op, &o->segments[i]);
        sgd_stretch(&s, ref_slot(r, o->momentum), o->nesterov);
    }
}

struct adam {
    double b1, b2, eps;
    double fix1, fix2; /* 1/(1-b1prod), 1/sqrt(1-b2prod) */
    bool decoupled;
};

static void adam_stretch(const struct stretch *s, const struct adam *a)
{
    for (int64_t i = 0; i < s->count; i++) {
        double g = s->g[i] * s->coef;
        if (a->decoupled)
            s->p[i] -= s->lr * s->decay * s->p[i];
        else
            g += s->decay * s->p[i];
        s->m[i] = a->b1 * s->m[i] + (1 - a->b1) * g;
        s->v[i] = a->b2 * s->v[i] + (1 - a->b2) * g * g;
        s->p[i] -= s->lr * a->fix1 * s->m[i] / (sqrt(s->v[i]) * a->fix2 + a->eps);
    }
}

void ref_adam(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_opt *o = &op->u.opt;
    const double *step = ref_f32(r, op->in[2]);
    const struct adam a = {
        .b1 = ref_slot(r, o->beta1),
        .b2 = ref_slot(r, o->beta2),
        .eps = ref_slot(r, o->eps),
        .fix1 = step[2],
        .fix2 = step[3],
        .decoupled = o->decoupled,
    };

    for (int i = 0; !skipped(r, op) && i < o->n_segments; i++) {
        const struct stretch s = stretch_at(r, op, &o->segments[i]);
        adam_stretch(&s, &a);
    }
}
