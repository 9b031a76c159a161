/* check.c - every op against its buffers, before a plan is made: dtypes, counts, shapes, slots. The
 * loops in ops.c, rows.c, opt.c and fused.c then need no check. */
#include "kernels/ref/ref.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/contract.h"

bool ref_refuse(const struct ref_check *c, enum kern_status status, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ref_err(c->e, status, "ref: %.60s: %s", c->op->label ? c->op->label : "op", text);
    return false;
}

int64_t ref_product(int64_t a, int64_t b, int64_t c)
{
    int64_t ab, abc;

    if (a < 0 || b < 0 || c < 0 || __builtin_mul_overflow(a, b, &ab) ||
        __builtin_mul_overflow(ab, c, &abc))
        return -1;
    return abc;
}

static bool held(enum dtype t)
{
    return t == DT_F32 || t == DT_F64 || t == DT_I32 || t == DT_U8 || t == DT_BOOL;
}

enum kern_status ref_check_buf(const struct kern_program *p, int buf, struct kern_err *e)
{
    const struct kern_buf *b = &p->bufs[buf];
    int64_t bytes, end, align = KERN_ALIGN;

    if ((unsigned)b->space >= KERN_SPACES)
        return ref_err(e, KERN_EINVAL, "ref: buffer %d is in no space", buf);
    if (!held(b->dtype))
        return ref_err(e, KERN_EUNSUPPORTED,
                       "ref: buffer %d is %s; ref holds f32, f64, i32, u8, bool", buf,
                       dtype_name(b->dtype));
    if (b->layout != KERN_DENSE)
        return ref_err(e, KERN_EUNSUPPORTED, "ref: buffer %d is not row-major", buf);
    if (b->space == KERN_PARAM || b->space == KERN_GRAD || b->space == KERN_STATE)
        align = 64;
    if (b->offset < 0 || b->offset % align != 0)
        return ref_err(e, KERN_EINVAL, "ref: buffer %d is at byte %lld, no multiple of %lld", buf,
                       (long long)b->offset, (long long)align);
    if (b->count < 0 || __builtin_mul_overflow(b->count, dtype_size(b->dtype), &bytes) ||
        __builtin_add_overflow(b->offset, bytes, &end) || end > p->space_bytes[b->space] ||
        end > INT64_MAX / 4)
        return ref_err(e, KERN_EINVAL,
                       "ref: buffer %d, %lld %s at byte %lld, passes its space of %lld", buf,
                       (long long)b->count, dtype_name(b->dtype), (long long)b->offset,
                       (long long)p->space_bytes[b->space]);
    return KERN_OK;
}

/* ---- one buffer of an op ---- */

enum side { IN, OUT };

static bool need(const struct ref_check *c, enum side side, int k, enum dtype t, int64_t count)
{
    const int32_t buf = side == IN ? c->op->in[k] : c->op->out[k];
    const char *name = side == IN ? "in" : "out";
    const struct kern_buf *b;

    if (buf < 0 || buf >= c->p->n_bufs)
        return ref_refuse(c, KERN_EINVAL, "%s[%d] is buffer %d of %d", name, k, buf, c->p->n_bufs);
    if (ref_check_buf(c->p, buf, c->e) != KERN_OK)
        return false;
    b = &c->p->bufs[buf];
    if (b->dtype != t)
        return ref_refuse(c, KERN_EINVAL, "%s[%d] is %s, not %s", name, k, dtype_name(b->dtype),
                          dtype_name(t));
    if (count < 0)
        return ref_refuse(c, KERN_EINVAL, "a dimension is negative or the shape too large");
    if (b->count < count)
        return ref_refuse(c, KERN_EINVAL, "%s[%d] holds %lld elements, %lld are needed", name, k,
                          (long long)b->count, (long long)count);
    return true;
}

/* A buffer that may be left out with -1. */
static bool may(const struct ref_check *c, enum side side, int k, enum dtype t, int64_t count)
{
    return (side == IN ? c->op->in[k] : c->op->out[k]) == -1 || need(c, side, k, t, count);
}

/* Slots that the op does not use are looked at too (plan.c notes uses by them). */
static bool check_lists(const struct ref_check *c)
{
    for (int k = 0; k < KERN_IN + KERN_OUT; k++) {
        const int32_t buf = k < KERN_IN ? c->op->in[k] : c->op->out[k - KERN_IN];
        if (buf < -1 || buf >= c->p->n_bufs)
            return ref_refuse(c, KERN_EINVAL, "names buffer %d of %d", buf, c->p->n_bufs);
    }
    return true;
}

/* f32 or i32, as in[0] is; F32 when in[0] is neither, so that need() refuses it by name. */
static enum dtype number_type(const struct ref_check *c)
{
    const int32_t buf = c->op->in[0];
    const bool is_i32 = buf >= 0 && buf < c->p->n_bufs && c->p->bufs[buf].dtype == DT_I32;
    return is_i32 ? DT_I32 : DT_F32;
}

/* Whatever in[0] is. */
static enum dtype any_type(const struct ref_check *c)
{
    const int32_t buf = c->op->in[0];
    return buf >= 0 && buf < c->p->n_bufs ? c->p->bufs[buf].dtype : DT_F32;
}

/* ---- matmul ---- */

static bool check_matmul(const struct ref_check *c)
{
    const struct kern_matmul *m = &c->op->u.matmul;
    const int64_t a = m->ta ? matrix_extent(m->batch, m->k, m->m, m->lda, m->stride_a)
                            : matrix_extent(m->batch, m->m, m->k, m->lda, m->stride_a);
    const int64_t b = m->tb ? matrix_extent(m->batch, m->n, m->k, m->ldb, m->stride_b)
                            : matrix_extent(m->batch, m->k, m->n, m->ldb, m->stride_b);

    if (m->batch > 1 && m->stride_c == 0)
        return ref_refuse(c, KERN_EINVAL, "matrices of a batch are written over each other");
    if ((unsigned)m->act > KERN_ACT_TANH)
        return ref_refuse(c, KERN_EINVAL, "activation %d is not known", (int)m->act);
    return need(c, IN, 0, DT_F32, a) && need(c, IN, 1, DT_F32, b) && may(c, IN, 2, DT_F32, m->n) &&
           need(c, OUT, 0, DT_F32, matrix_extent(m->batch, m->m, m->n, m->ldc, m->stride_c));
}

/* ---- along an axis ---- */

static bool check_reduce(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;
    const enum dtype t = number_type(c);

    if ((unsigned)x->reduce > KERN_PROD)
        return ref_refuse(c, KERN_EINVAL, "reduction %d is not known", (int)x->reduce);
    return need(c, IN, 0, t, ref_product(x->outer, x->n, x->inner)) &&
           need(c, OUT, 0, t, ref_product(x->outer, 1, x->inner));
}

static bool check_argmax(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;
    const int64_t out = ref_product(x->outer, 1, x->inner);

    if (x->n == 0 && out > 0)
        return ref_refuse(c, KERN_EINVAL, "an axis of 0 elements has no largest");
    return need(c, IN, 0, number_type(c), ref_product(x->outer, x->n, x->inner)) &&
           need(c, OUT, 0, DT_I32, out);
}

static bool check_topk(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;

    if (x->inner != 1 || x->k < 0 || x->k > x->n)
        return ref_refuse(c, KERN_EINVAL, "the %lld largest of %lld, inner %lld", (long long)x->k,
                          (long long)x->n, (long long)x->inner);
    return need(c, IN, 0, number_type(c), ref_product(x->outer, x->n, 1)) &&
           need(c, OUT, 0, DT_I32, ref_product(x->outer, x->k, 1));
}

static bool check_cumsum(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;
    const int64_t count = ref_product(x->outer, x->n, x->inner);
    return need(c, IN, 0, number_type(c), count) && need(c, OUT, 0, number_type(c), count);
}

static bool check_take(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;
    return need(c, IN, 0, any_type(c), ref_product(x->outer, x->n, x->inner)) &&
           need(c, IN, 1, DT_I32, x->k) &&
           need(c, OUT, 0, any_type(c), ref_product(x->outer, x->k, x->inner));
}

static bool check_take_grad(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;
    return need(c, IN, 0, DT_F32, ref_product(x->outer, x->k, x->inner)) &&
           need(c, IN, 1, DT_I32, x->k) &&
           need(c, OUT, 0, DT_F32, ref_product(x->outer, x->n, x->inner));
}

static bool check_take_along(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;
    const int64_t out = ref_product(x->outer, x->k, x->inner);
    return need(c, IN, 0, any_type(c), ref_product(x->outer, x->n, x->inner)) &&
           need(c, IN, 1, DT_I32, out) && need(c, OUT, 0, any_type(c), out);
}

static bool check_scatter_add(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;
    const int64_t dst = ref_product(x->outer, x->n, x->inner);
    const int64_t src = ref_product(x->outer, x->k, x->inner);
    return need(c, IN, 0, number_type(c), dst) && need(c, IN, 1, DT_I32, src) &&
           need(c, IN, 2, number_type(c), src) && need(c, OUT, 0, number_type(c), dst);
}

static bool check_softmax(const struct ref_check *c)
{
    const struct kern_axis *x = &c->op->u.axis;
    const int64_t count = ref_product(x->outer, x->n, x->inner);
    const bool drops = c->op->code == KERN_LOGSUMEXP;
    return need(c, IN, 0, DT_F32, count) &&
           need(c, OUT, 0, DT_F32, drops ? ref_product(x->outer, 1, x->inner) : count);
}

/* ---- rows ---- */

static bool check_norm_shape(const struct ref_check *c)
{
    const struct kern_norm *n = &c->op->u.norm;

    if (n->cols < 1 || n->rows < 0 || !(n->eps >= 0))
        return ref_refuse(c, KERN_EINVAL, "a norm over %lld columns with eps %g",
                          (long long)n->cols, (double)n->eps);
    return true;
}

static bool check_layer_norm(const struct ref_check *c)
{
    const struct kern_norm *n = &c->op->u.norm;
    const int64_t all = ref_product(n->rows, n->cols, 1);
    return check_norm_shape(c) && need(c, IN, 0, DT_F32, all) && may(c, IN, 1, DT_F32, n->cols) &&
           may(c, IN, 2, DT_F32, n->cols) && need(c, OUT, 0, DT_F32, all) &&
           need(c, OUT, 1, DT_F32, n->rows) && need(c, OUT, 2, DT_F32, n->rows);
}

static bool check_layer_norm_grad(const struct ref_check *c)
{
    const struct kern_norm *n = &c->op->u.norm;
    const int64_t all = ref_product(n->rows, n->cols, 1);
    return check_norm_shape(c) && need(c, IN, 0, DT_F32, all) && need(c, IN, 1, DT_F32, all) &&
           may(c, IN, 2, DT_F32, n->cols) && need(c, IN, 3, DT_F32, n->rows) &&
           need(c, IN, 4, DT_F32, n->rows) && need(c, OUT, 0, DT_F32, all) &&
           may(c, OUT, 1, DT_F32, n->cols) && may(c, OUT, 2, DT_F32, n->cols);
}

static bool check_rms_norm(const struct ref_check *c)
{
    const struct kern_norm *n = &c->op->u.norm;
    const int64_t all = ref_product(n->rows, n->cols, 1);
    return check_norm_shape(c) && need(c, IN, 0, DT_F32, all) && may(c, IN, 1, DT_F32, n->cols) &&
           need(c, OUT, 0, DT_F32, all) && need(c, OUT, 1, DT_F32, n->rows);
}

static bool check_rms_norm_grad(const struct ref_check *c)
{
    const struct kern_norm *n = &c->op->u.norm;
    const int64_t all = ref_product(n->rows, n->cols, 1);
    return check_norm_shape(c) && need(c, IN, 0, DT_F32, all) && need(c, IN, 1, DT_F32, all) &&
           may(c, IN, 2, DT_F32, n->cols) && need(c, IN, 3, DT_F32, n->rows) &&
           need(c, OUT, 0, DT_F32, all) && may(c, OUT, 1, DT_F32, n->cols);
}

static bool check_xent(const struct ref_check *c)
{
    const struct kern_xent *x = &c->op->u.xent;

    if (x->cols < 1)
        return ref_refuse(c, KERN_EINVAL, "no classes");
    return need(c, IN, 0, DT_F32, ref_product(x->rows, x->cols, 1)) &&
           need(c, IN, 1, DT_I32, x->rows) && may(c, IN, 2, DT_F32, 1) &&
           need(c, OUT, 0, DT_F32, x->rows) && need(c, OUT, 1, DT_F32, x->rows);
}

static bool check_xent_grad(const struct ref_check *c)
{
    const struct kern_xent *x = &c->op->u.xent;
    const int64_t all = ref_product(x->rows, x->cols, 1);

    if (x->cols < 1)
        return ref_refuse(c, KERN_EINVAL, "no classes");
    return need(c, IN, 0, DT_F32, all) && need(c, IN, 1, DT_I32, x->rows) &&
           may(c, IN, 2, DT_F32, 1) && need(c, IN, 3, DT_F32, x->rows) &&
           need(c, IN, 4, DT_F32, x->rows) && need(c, OUT, 0, DT_F32, all);
}

/* ---- the update ---- */

static bool check_slot(const struct ref_check *c, const char *name, int32_t slot, int64_t more,
                       bool required)
{
    if (slot == -1 && !required)
        return true;
    if (slot < 0 || more < 0 || slot + more >= KERN_HYPER_MAX)
        return ref_refuse(c, KERN_EINVAL, "slot %d of %s (group %lld)", slot, name,
                          (long long)more);
    return true;
}

/* Segments are ascending, do not overlap, and lie in in[k] (whose first element is element `offset
 * / 4` of its space). */
static bool check_segments(const struct ref_check *c, int k)
{
    const struct kern_opt *o = &c->op->u.opt;
    const struct kern_buf *b = &c->p->bufs[c->op->in[k]];
    const int64_t first = b->offset / dtype_size(DT_F32);
    int64_t at = first, end;

    if (o->n_segments < 0 || (o->n_segments > 0 && !o->segments))
        return ref_refuse(c, KERN_EINVAL, "%d segments", o->n_segments);
    for (int i = 0; i < o->n_segments; i++) {
        const struct kern_segment *s = &o->segments[i];
        if (s->begin < at || s->count < 0 || s->group < 0 ||
            __builtin_add_overflow(s->begin, s->count, &end) || end - first > b->count)
            return ref_refuse(c, KERN_EINVAL,
                              "segment %d, %lld elements from %lld, is not in in[%d]", i,
                              (long long)s->count, (long long)s->begin, k);
        at = end;
    }
    return true;
}

static bool check_grad_norm(const struct ref_check *c)
{
    return need(c, IN, 0, DT_F32, 0) && check_segments(c, 0) && need(c, OUT, 0, DT_F32, 1);
}

static bool check_prologue(const struct ref_check *c)
{
    const struct kern_opt *o = &c->op->u.opt;
    return need(c, IN, 0, DT_F32, 1) && need(c, IN, 1, DT_F64, 4) && need(c, OUT, 0, DT_F32, 4) &&
           check_slot(c, "beta1", o->beta1, 0, false) &&
           check_slot(c, "beta2", o->beta2, 0, false) && check_slot(c, "clip", o->clip, 0, false);
}

static bool check_step(const struct ref_check *c)
{
    const struct kern_opt *o = &c->op->u.opt;
    int64_t count;

    if (!need(c, IN, 0, DT_F32, 0) || !check_segments(c, 0))
        return false;
    count = c->p->bufs[c->op->in[0]].count;
    for (int i = 0; i < o->n_segments; i++)
        if (!check_slot(c, "lr", o->lr, o->segments[i].group, true) ||
            !check_slot(c, "weight_decay", o->weight_decay, o->segments[i].group, true))
            return false;
    return need(c, IN, 1, DT_F32, count) && need(c, IN, 2, DT_F32, 4);
}

static bool check_sgd(const struct ref_check *c)
{
    const struct kern_opt *o = &c->op->u.opt;
    return check_step(c) && may(c, IN, 3, DT_F32, c->p->bufs[c->op->in[0]].count) &&
           check_slot(c, "momentum", o->momentum, 0, false);
}

static bool check_adam(const struct ref_check *c)
{
    const struct kern_opt *o = &c->op->u.opt;
    int64_t count;

    if (!check_step(c))
        return false;
    count = c->p->bufs[c->op->in[0]].count;
    return need(c, IN, 3, DT_F32, count) && need(c, IN, 4, DT_F32, count) &&
           check_slot(c, "beta1", o->beta1, 0, true) && check_slot(c, "beta2", o->beta2, 0, true) &&
           check_slot(c, "eps", o->eps, 0, true);
}

static bool (*const checks[KERN_CODES])(const struct ref_check *) = {
    [KERN_FUSED] = ref_fused_check,
    [KERN_MATMUL] = check_matmul,
    [KERN_REDUCE] = check_reduce,
    [KERN_ARGMAX] = check_argmax,
    [KERN_TOPK] = check_topk,
    [KERN_CUMSUM] = check_cumsum,
    [KERN_TAKE] = check_take,
    [KERN_TAKE_GRAD] = check_take_grad,
    [KERN_TAKE_ALONG] = check_take_along,
    [KERN_SCATTER_ADD] = check_scatter_add,
    [KERN_SOFTMAX] = check_softmax,
    [KERN_LOG_SOFTMAX] = check_softmax,
    [KERN_LOGSUMEXP] = check_softmax,
    [KERN_LAYER_NORM] = check_layer_norm,
    [KERN_LAYER_NORM_GRAD] = check_layer_norm_grad,
    [KERN_RMS_NORM] = check_rms_norm,
    [KERN_RMS_NORM_GRAD] = check_rms_norm_grad,
    [KERN_XENT] = check_xent,
    [KERN_XENT_GRAD] = check_xent_grad,
    [KERN_GRAD_NORM] = check_grad_norm,
    [KERN_PROLOGUE] = check_prologue,
    [KERN_SGD] = check_sgd,
    [KERN_ADAM] = check_adam,
};

enum kern_status ref_check_op(const struct kern_program *p, const struct kern_op *op,
                              struct kern_err *e)
{
    struct kern_err own; /* need() refuses by status, so there must be a place for one */
    const struct ref_check c = {.p = p, .op = op, .e = e ? e : &own};

    if ((unsigned)op->code >= KERN_CODES)
        return ref_err(e, KERN_EUNSUPPORTED, "ref: operation %d is not known", (int)op->code);
    if (op->code != KERN_FUSED && !check_lists(&c))
        return c.e->status;
    return checks[op->code](&c) ? KERN_OK : c.e->status;
}

/* ---- what a run must bring ---- */

static int slot_end(int32_t slot, int64_t more)
{
    return slot < 0 ? 0 : slot + (int)more + 1;
}

static int greater(int a, int b)
{
    return a > b ? a : b;
}

static int opt_slots(const struct kern_op *op)
{
    const struct kern_opt *o = &op->u.opt;
    int n = 0;

    if (op->code == KERN_PROLOGUE)
        return greater(slot_end(o->clip, 0), greater(slot_end(o->beta1, 0), slot_end(o->beta2, 0)));
    if (op->code == KERN_ADAM)
        n = greater(slot_end(o->eps, 0), greater(slot_end(o->beta1, 0), slot_end(o->beta2, 0)));
    else
        n = slot_end(o->momentum, 0);
    for (int i = 0; i < o->n_segments; i++) {
        n = greater(n, slot_end(o->lr, o->segments[i].group));
        n = greater(n, slot_end(o->weight_decay, o->segments[i].group));
    }
    return n;
}

int ref_op_slots(const struct kern_op *op)
{
    int n = 0;

    if (op->code == KERN_PROLOGUE || op->code == KERN_SGD || op->code == KERN_ADAM)
        return opt_slots(op);
    for (int i = 0; op->code == KERN_FUSED && i < op->u.fused.n_insns; i++)
        if (op->u.fused.insns[i].code == KERN_I_HYPER)
            n = greater(n, slot_end(op->u.fused.insns[i].slot, 0));
    return n;
}
