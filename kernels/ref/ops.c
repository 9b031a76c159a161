/* ops.c - matmul and what works along an axis ([outer][n][inner]), and the table of all operations.
 */
#include "kernels/ref/ref.h"

#include <string.h>

/* ---- matmul ---- */

static double activate(enum kern_act act, double v)
{
    switch (act) {
    case KERN_ACT_NONE:
        return v;
    case KERN_ACT_RELU:
        return v > 0 || isnan(v) ? v : 0;
    case KERN_ACT_GELU_TANH:
        return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    case KERN_ACT_GELU_ERF:
        return 0.5 * v * (1 + erf(v * M_SQRT1_2));
    case KERN_ACT_SIGMOID:
        return 1 / (1 + exp(-v));
    case KERN_ACT_TANH:
        return tanh(v);
    }
    return NAN;
}

static double dot(const double *a, int64_t step_a, const double *b, int64_t step_b, int64_t k)
{
    double sum = 0;

    for (int64_t i = 0; i < k; i++)
        sum += a[i * step_a] * b[i * step_b];
    return sum;
}

static void matmul(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_matmul *m = &op->u.matmul;
    const double *bias = ref_f32(r, op->in[2]);
    const int64_t row_a = m->ta ? 1 : m->lda, col_a = m->ta ? m->lda : 1;
    const int64_t row_b = m->tb ? 1 : m->ldb, col_b = m->tb ? m->ldb : 1;

    for (int64_t s = 0; s < m->batch; s++) {
        const double *a = ref_f32(r, op->in[0]) + s * m->stride_a;
        const double *b = ref_f32(r, op->in[1]) + s * m->stride_b;
        double *out = ref_f32(r, op->out[0]) + s * m->stride_c;
        for (int64_t i = 0; i < m->m; i++) {
            for (int64_t j = 0; j < m->n; j++) {
                double v = dot(a + i * row_a, col_a, b + j * col_b, row_b, m->k);
                v = activate(m->act, bias ? v + bias[j] : v);
                out[i * m->ldc + j] = m->accumulate ? out[i * m->ldc + j] + v : v;
            }
        }
    }
}

/* ---- reductions ---- */

/* Integers have loops of their own: a product of two int32 passes what a double holds exactly, so
 * they are wrapped at every step. */
static double reduce_f(enum kern_reduce how, const double *x, int64_t n, int64_t step)
{
    static const double start[] = {
        [KERN_SUM] = 0, [KERN_RMAX] = -INFINITY, [KERN_RMIN] = INFINITY, [KERN_PROD] = 1};
    double v = start[how];

    for (int64_t i = 0; i < n; i++) {
        const double e = x[i * step];
        if (how == KERN_SUM)
            v += e;
        else if (how == KERN_PROD)
            v *= e;
        else if (isnan(e) ||
                 (how == KERN_RMAX ? e > v : e < v)) /* once NaN, v stays: no e compares */
            v = e;
    }
    return v;
}

static int64_t reduce_i(enum kern_reduce how, const int64_t *x, int64_t n, int64_t step)
{
    static const int64_t start[] = {
        [KERN_SUM] = 0, [KERN_RMAX] = INT32_MIN, [KERN_RMIN] = INT32_MAX, [KERN_PROD] = 1};
    int64_t v = start[how];

    for (int64_t i = 0; i < n; i++) {
        const int64_t e = ref_wrap(x[i * step]);
        if (how == KERN_SUM)
            v = ref_wrap(v + e);
        else if (how == KERN_PROD)
            v = ref_wrap(v * e);
        else if (how == KERN_RMAX ? e > v : e < v)
            v = e;
    }
    return v;
}

static void reduce(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_axis *x = &op->u.axis;

    for (int64_t o = 0; o < x->outer; o++) {
        for (int64_t i = 0; i < x->inner; i++) {
            const int64_t from = o * x->n * x->inner + i, to = o * x->inner + i;
            if (r->bufs[op->in[0]].dtype == DT_I32)
                ref_i32(r, op->out[0])[to] =
                    reduce_i(x->reduce, ref_i32(r, op->in[0]) + from, x->n, x->inner);
            else
                ref_f32(r, op->out[0])[to] =
                    reduce_f(x->reduce, ref_f32(r, op->in[0]) + from, x->n, x->inner);
        }
    }
}

/* ---- order ---- */

/* An element of a buffer that is f32 or i32 (an int32 is exact in a double). */
static double number(const struct ref_run *r, int32_t buf, int64_t at)
{
    if (r->bufs[buf].dtype == DT_I32)
        return (double)ref_wrap(ref_i32(r, buf)[at]);
    return ref_f32(r, buf)[at];
}

/* Does a come before b among the largest? NaN is largest; equals do not. */
static bool larger(double a, double b)
{
    return isnan(a) ? !isnan(b) : a > b;
}

static void argmax(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_axis *x = &op->u.axis;

    for (int64_t o = 0; o < x->outer; o++) {
        for (int64_t i = 0; i < x->inner; i++) {
            const int64_t from = o * x->n * x->inner + i;
            int64_t best = 0;
            for (int64_t k = 1; k < x->n; k++)
                if (larger(number(r, op->in[0], from + k * x->inner),
                           number(r, op->in[0], from + best * x->inner)))
                    best = k;
            ref_i32(r, op->out[0])[o * x->inner + i] = best;
        }
    }
}

/* Does element i of the row at `from` come before element j? */
static bool ranks_before(const struct ref_run *r, int32_t buf, int64_t from, int64_t i, int64_t j)
{
    const double a = number(r, buf, from + i), b = number(r, buf, from + j);
    return larger(a, b) || (!larger(b, a) && i < j);
}

/* An element's place is the number of those before it: n^2, and nothing to get wrong. */
static void topk(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_axis *x = &op->u.axis;

    for (int64_t o = 0; o < x->outer; o++) {
        for (int64_t i = 0; i < x->n; i++) {
            int64_t place = 0;
            for (int64_t j = 0; j < x->n; j++)
                place += j != i && ranks_before(r, op->in[0], o * x->n, j, i);
            if (place < x->k)
                ref_i32(r, op->out[0])[o * x->k + place] = i;
        }
    }
}

/* ---- cumsum ---- */

static void cumsum(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_axis *x = &op->u.axis;
    const bool is_int = r->bufs[op->in[0]].dtype == DT_I32;

    for (int64_t row = 0; row < x->outer * x->inner; row++) {
        const int64_t from = row / x->inner * x->n * x->inner + row % x->inner;
        double sum = 0, before;
        for (int64_t k = 0; k < x->n; k++) {
            const int64_t at = from + (x->reverse ? x->n - 1 - k : k) * x->inner;
            before = sum;
            sum += number(r, op->in[0], at);
            if (is_int) /* sums of fewer than 2^21 int32 are exact; wrapped, they stay below that */
                sum = (double)ref_wrap((int64_t)sum);
            if (is_int)
                ref_i32(r, op->out[0])[at] = (int64_t)(x->exclusive ? before : sum);
            else
                ref_f32(r, op->out[0])[at] = x->exclusive ? before : sum;
        }
    }
}

/* ---- take and scatter ---- */

/* out element `to` = in[0]'s element `from`, or zero when from is -1. Any dtype. */
static void cell_copy(const struct ref_run *r, const struct kern_op *op, int64_t to, int64_t from)
{
    const size_t size = 2 * (size_t)dtype_size(r->bufs[op->in[0]].dtype);
    unsigned char *dst = r->cells[op->out[0]] + size * (size_t)to;

    if (from < 0)
        memset(dst, 0, size);
    else
        memmove(dst, r->cells[op->in[0]] + size * (size_t)from, size);
}

/* TAKE and TAKE_ALONG differ in where the index of an output element is. */
static void take(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_axis *x = &op->u.axis;
    const int64_t *index = ref_i32(r, op->in[1]);
    const bool along = op->code == KERN_TAKE_ALONG;

    for (int64_t o = 0; o < x->outer; o++) {
        for (int64_t k = 0; k < x->k; k++) {
            for (int64_t i = 0; i < x->inner; i++) {
                const int64_t to = (o * x->k + k) * x->inner + i;
                const int64_t at = ref_wrap(index[along ? to : k]);
                const bool inside = at >= 0 && at < x->n;
                cell_copy(r, op, to, inside ? (o * x->n + at) * x->inner + i : -1);
            }
        }
    }
}

static void take_grad(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_axis *x = &op->u.axis;
    const double *src = ref_f32(r, op->in[0]);
    double *out = ref_f32(r, op->out[0]);

    for (int64_t i = 0; i < x->outer * x->n * x->inner; i++)
        out[i] = 0;
    for (int64_t o = 0; o < x->outer; o++) {
        for (int64_t k = 0; k < x->k; k++) {
            const int64_t at = ref_wrap(ref_i32(r, op->in[1])[k]);
            for (int64_t i = 0; at >= 0 && at < x->n && i < x->inner; i++)
                out[(o * x->n + at) * x->inner + i] += src[(o * x->k + k) * x->inner + i];
        }
    }
}

static void scatter_add(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_axis *x = &op->u.axis;
    const bool is_int = r->bufs[op->in[0]].dtype == DT_I32;

    for (int64_t i = 0; i < x->outer * x->n * x->inner; i++)
        cell_copy(r, op, i, i);
    for (int64_t from = 0; from < x->outer * x->k * x->inner; from++) {
        const int64_t at = ref_wrap(ref_i32(r, op->in[1])[from]);
        const int64_t o = from / (x->k * x->inner), i = from % x->inner;
        const int64_t to = (o * x->n + at) * x->inner + i;
        if (at < 0 || at >= x->n)
            continue;
        if (is_int)
            ref_i32(r, op->out[0])[to] =
                ref_wrap(ref_i32(r, op->out[0])[to] + ref_i32(r, op->in[2])[from]);
        else
            ref_f32(r, op->out[0])[to] += ref_f32(r, op->in[2])[from];
    }
}

static void (*const runs[KERN_CODES])(const struct ref_run *, const struct kern_op *) = {
    [KERN_FUSED] = ref_fused_run,
    [KERN_MATMUL] = matmul,
    [KERN_REDUCE] = reduce,
    [KERN_ARGMAX] = argmax,
    [KERN_TOPK] = topk,
    [KERN_CUMSUM] = cumsum,
    [KERN_TAKE] = take,
    [KERN_TAKE_GRAD] = take_grad,
    [KERN_TAKE_ALONG] = take,
    [KERN_SCATTER_ADD] = scatter_add,
    [KERN_SOFTMAX] = ref_softmax,
    [KERN_LOG_SOFTMAX] = ref_softmax,
    [KERN_LOGSUMEXP] = ref_softmax,
    [KERN_LAYER_NORM] = ref_layer_norm,
    [KERN_LAYER_NORM_GRAD] = ref_layer_norm_grad,
    [KERN_RMS_NORM] = ref_rms_norm,
    [KERN_RMS_NORM_GRAD] = ref_rms_norm_grad,
    [KERN_XENT] = ref_xent,
    [KERN_XENT_GRAD] = ref_xent_grad,
    [KERN_GRAD_NORM] = ref_grad_norm,
    [KERN_PROLOGUE] = ref_prologue,
    [KERN_SGD] = ref_sgd,
    [KERN_ADAM] = ref_adam,
};

void ref_op_run(const struct ref_run *r, const struct kern_op *op)
{
    runs[op->code](r, op);
}
