/* softmax.c - softmax and its kin along one axis of [outer][n][inner], and the cross-entropy of
 * logits.
 *
 * The largest is taken out first, so that nothing overflows. A row all -inf (fully masked) stays
 * quiet: zeros, or -inf for a logarithm. */
#include <math.h>

#include "kernels/cpu/cpu.h"

#pragma GCC optimize(                                                                              \
    "no-trapping-math") /* a select of floats may then be a vector's; values do not change */

enum {
    CHUNK = 8192, /* elements that are worth a chunk */
    COLS = 64,    /* columns that are treated side by side */
    PART = 1024   /* exponentials held at a time when only their sum is wanted */
};

struct job {
    const struct kern_op *op;
    const struct cpu_vec *v;
    const float *x, *lse, *dloss;
    const int32_t *label;
    float *y, *z;
    float smoothing;
    int64_t per, units;
};

static void run_units(const struct cpu_run *r, struct job *j, int64_t units, int64_t each,
                      pool_fn *fn)
{
    j->units = units;
    j->per = each < 1 ? CHUNK : each < CHUNK ? CHUNK / each : 1;
    pool_run(r->d->pool, ceil_div(units, j->per), (double)units * (double)each, fn, j);
}

/* ---- rows that lie together ---- */

/* Sum of exp(x - max), in parts: no memory of n floats is needed. */
static float sum_of_exp(const struct cpu_vec *v, const float *x, float max, int64_t n)
{
    float part[PART], sum = 0;

    for (int64_t i = 0; i < n; i += PART) {
        const int64_t w = min64(n - i, PART);
        v->exp_sub(part, x + i, max, w);
        sum += v->sum(part, w);
    }
    return sum;
}

static float row_lse(const struct cpu_vec *v, const float *x, int64_t n)
{
    const float max = v->max(x, n);

    if (!(fabsf(max) < INFINITY)) /* none or all -inf, an inf, or a NaN; max - max would be NaN */
        return max;
    return max + v->log1(sum_of_exp(v, x, max, n));
}

static void softmax_row(const struct cpu_vec *v, const float *x, float *y, int64_t n)
{
    const float max = v->max(x, n);
    float scale;

    if (max == -INFINITY) {
        memset(y, 0, (size_t)n * sizeof *y);
        return;
    }
    v->exp_sub(y, x, max, n);
    if (max == INFINITY)
        return;               /* 0, and NaN where it is inf - inf */
    scale = 1 / v->sum(y, n); /* a sum of 1 at least */
    for (int64_t i = 0; i < n; i++)
        y[i] *= scale;
}

static void log_softmax_row(const struct cpu_vec *v, const float *x, float *y, int64_t n)
{
    const float lse = row_lse(v, x, n), sub = lse == -INFINITY ? 0 : lse; /* -inf - 0 is -inf */

    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] - sub;
}

static void rows_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const int64_t n = j->op->u.axis.n;

    for (int64_t r = chunk * j->per; r < min64((chunk + 1) * j->per, j->units); r++)
        if (j->op->code == KERN_SOFTMAX)
            softmax_row(j->v, j->x + r * n, j->y + r * n, n);
        else if (j->op->code == KERN_LOG_SOFTMAX)
            log_softmax_row(j->v, j->x + r * n, j->y + r * n, n);
        else
            j->y[r] = row_lse(j->v, j->x + r * n, n);
}

/* ---- inner > 1: COLS columns side by side ---- */

/* max[c] and sub[c] of each column: sub is 0 where max is -inf, so that exp(-inf - sub) is 0. */
static void column_max(const float *x, int64_t n, int64_t stride, int64_t w, float *max, float *sub)
{
    for (int c = 0; c < COLS; c++)
        max[c] = -INFINITY;
    for (int64_t i = 0; i < n; i++, x += stride)
        for (int64_t c = 0; c < w; c++)
            max[c] = (x[c] > max[c]) | (x[c] != x[c]) ? x[c] : max[c];
    for (int64_t c = 0; c < w; c++)
        sub[c] = max[c] == -INFINITY ? 0 : max[c];
}

/* e[c] = exp(x[c] - sub[c]) of one row of columns. */
static void exp_row(const struct cpu_vec *v, float *e, const float *x, const float *sub, int64_t w)
{
    for (int64_t c = 0; c < w; c++)
        e[c] = x[c] - sub[c];
    v->exp_sub(e, e, 0, w);
}

static void column_sum(const struct cpu_vec *v, const float *x, int64_t n, int64_t stride,
                       int64_t w, const float *sub, float *sum)
{
    float e[COLS];

    memset(sum, 0, COLS * sizeof *sum);
    for (int64_t i = 0; i < n; i++, x += stride) {
        exp_row(v, e, x, sub, w);
        for (int64_t c = 0; c < w; c++)
            sum[c] += e[c];
    }
}

static void softmax_columns(const struct cpu_vec *v, const float *x, float *y, int64_t n,
                            int64_t stride, int64_t w, const float *sub, float *sum)
{
    float e[COLS];

    for (int64_t c = 0; c < w; c++)
        sum[c] = sum[c] == 0 || sub[c] == INFINITY ? 1 : sum[c]; /* as in softmax_row */
    for (int64_t i = 0; i < n * stride; i += stride) {
        exp_row(v, e, x + i, sub, w);
        for (int64_t c = 0; c < w; c++)
            y[i + c] = e[c] / sum[c];
    }
}

/* lse[c] from max and sum of each column. */
static void column_lse(const struct cpu_vec *v, const float *max, const float *sum, float *lse,
                       int64_t w)
{
    for (int64_t c = 0; c < w; c++)
        lse[c] = fabsf(max[c]) < INFINITY ? max[c] + v->log1(sum[c]) : max[c];
}

static void columns_unit(const struct job *j, int64_t unit)
{
    const struct kern_axis *a = &j->op->u.axis;
    const int64_t blocks = ceil_div(a->inner, COLS), c0 = unit % blocks * COLS,
                  w = min64(a->inner - c0, COLS);
    const int64_t at = unit / blocks * a->n * a->inner + c0;
    float max[COLS], sub[COLS], sum[COLS], lse[COLS];

    column_max(j->x + at, a->n, a->inner, w, max, sub);
    column_sum(j->v, j->x + at, a->n, a->inner, w, sub, sum);
    if (j->op->code == KERN_SOFTMAX) {
        softmax_columns(j->v, j->x + at, j->y + at, a->n, a->inner, w, sub, sum);
        return;
    }
    column_lse(j->v, max, sum, lse, w);
    if (j->op->code == KERN_LOGSUMEXP) {
        memcpy(j->y + unit / blocks * a->inner + c0, lse, (size_t)w * sizeof *lse);
        return;
    }
    for (int64_t c = 0; c < w; c++)
        lse[c] = lse[c] == -INFINITY ? 0 : lse[c];
    for (int64_t i = 0; i < a->n * a->inner; i += a->inner)
        for (int64_t c = 0; c < w; c++)
            j->y[at + i + c] = j->x[at + i + c] - lse[c];
}

static void columns_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++)
        columns_unit(j, u);
}

static void run_axis(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_axis *a = &op->op.u.axis;
    struct job j = {.op = &op->op, .v = cpu_vec_for(r->d->isa)};

    j.x = (const float *)(void *)r->buf[op->op.in[0]];
    j.y = (float *)(void *)r->buf[op->op.out[0]];
    if (a->inner == 1)
        run_units(r, &j, a->outer, a->n, rows_chunk);
    else
        run_units(r, &j, a->outer * ceil_div(a->inner, COLS), a->n * min64(a->inner, COLS),
                  columns_chunk);
}

/* ---- cross-entropy ---- */

/* s == 0 leaves the mean out: 0 times a masked class's -inf would be NaN. */
static float xent_row(const struct job *j, const float *x, int64_t cols, int32_t label, float lse)
{
    const float s = j->smoothing;

    if (label < 0 || label >= cols)
        return NAN;
    if (s == 0)
        return lse - x[label];
    return lse - (1 - s) * x[label] - s * (j->v->sum(x, cols) / (float)cols);
}

static void xent_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_xent *k = &j->op->u.xent;

    for (int64_t r = chunk * j->per; r < min64((chunk + 1) * j->per, j->units); r++) {
        const float *x = j->x + r * k->cols;
        const bool none = k->has_ignore && j->label[r] == k->ignore;
        j->z[r] = row_lse(j->v, x, k->cols);
        j->y[r] = none ? 0 : xent_row(j, x, k->cols, j->label[r], j->z[r]);
    }
}

/* y may be x. The gradient of a loss that is NaN is NaN: the update is then skipped. */
static void xent_grad_row(const struct job *j, const float *x, float *y, int64_t cols,
                          int32_t label, float lse, float dloss)
{
    const float s = j->smoothing, even = s / (float)cols;
    const bool bad = label < 0 || label >= cols;
    const float d = bad ? NAN : dloss;
    float hot;

    if (lse == -INFINITY)
        memset(y, 0, (size_t)cols * sizeof *y);
    else
        j->v->exp_sub(y, x, lse, cols);
    hot = bad ? 0 : d * (y[label] - (1 - s) - even);
    for (int64_t i = 0; i < cols; i++)
        y[i] = d * (y[i] - even);
    if (!bad)
        y[label] = hot;
}

static void xent_grad_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_xent *k = &j->op->u.xent;

    for (int64_t r = chunk * j->per; r < min64((chunk + 1) * j->per, j->units); r++) {
        float *y = j->y + r * k->cols;
        if (k->has_ignore && j->label[r] == k->ignore)
            memset(y, 0, (size_t)k->cols * sizeof *y);
        else
            xent_grad_row(j, j->x + r * k->cols, y, k->cols, j->label[r], j->lse[r], j->dloss[r]);
    }
}

static void run_xent(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_op *k = &op->op;
    const bool grad = k->code == KERN_XENT_GRAD;
    struct job j = {.op = k, .v = cpu_vec_for(r->d->isa)};

    j.x = (const float *)(void *)r->buf[k->in[0]];
    j.label = (const int32_t *)(void *)r->buf[k->in[1]];
    j.smoothing = k->in[2] >= 0 ? *(const float *)(void *)r->buf[k->in[2]] : 0;
    j.lse = grad ? (const float *)(void *)r->buf[k->in[3]] : NULL;
    j.dloss = grad ? (const float *)(void *)r->buf[k->in[4]] : NULL;
    j.y = (float *)(void *)r->buf[k->out[0]];
    j.z = grad ? NULL : (float *)(void *)r->buf[k->out[1]];
    run_units(r, &j, k->u.xent.rows, k->u.xent.cols, grad ? xent_grad_chunk : xent_chunk);
}

/* ---- preparing ---- */

static void run_nothing(const struct cpu_op *op, const struct cpu_run *r)
{
    (void)op;
    (void)r;
}

static enum kern_status prepare_axis(const struct kern_program *p, struct cpu_op *op,
                                     struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const struct kern_axis *a = &k->u.axis;
    int64_t rows, all;
    enum kern_status rc;

    if (a->outer < 0 || a->n < 0 || a->inner < 0 ||
        __builtin_mul_overflow(a->outer, a->inner, &rows) ||
        __builtin_mul_overflow(rows, a->n, &all))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: a dimension is negative or the shape too large",
                       k->label);
    op->run = rows > 0 ? run_axis : run_nothing;
    rc = cpu_want(p, k, k->in[0], false, DT_F32, all, "input", e);
    if (rc != KERN_OK)
        return rc;
    return cpu_want(p, k, k->out[0], false, DT_F32, k->code == KERN_LOGSUMEXP ? rows : all,
                    "result", e);
}

static enum kern_status prepare_xent(const struct kern_program *p, struct cpu_op *op,
                                     struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const int64_t rows = k->u.xent.rows, cols = k->u.xent.cols;
    const bool grad = k->code == KERN_XENT_GRAD;
    int64_t all;
    enum kern_status rc;

    if (rows < 0 || cols < 1 || __builtin_mul_overflow(rows, cols, &all))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: %lld rows of %lld classes", k->label,
                       (long long)rows, (long long)cols);
    op->run = run_xent;
    rc = cpu_want(p, k, k->in[0], false, DT_F32, all, "logits", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[1], false, DT_I32, rows, "labels", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[2], true, DT_F32, 1, "smoothing", e);
    for (int i = 3; i < 5 && rc == KERN_OK && grad; i++)
        rc = cpu_want(p, k, k->in[i], false, DT_F32, rows, i == 3 ? "lse" : "dloss", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->out[0], false, DT_F32, grad ? all : rows, grad ? "dlogits" : "loss",
                      e);
    return rc == KERN_OK && !grad ? cpu_want(p, k, k->out[1], false, DT_F32, rows, "lse", e) : rc;
}

enum kern_status cpu_prepare_softmax(struct kern_dev *d, const struct kern_program *p,
                                     struct cpu_op *op, struct kern_err *e)
{
    const bool xent = op->op.code == KERN_XENT || op->op.code == KERN_XENT_GRAD;

    (void)d;
    return xent ? prepare_xent(p, op, e) : prepare_axis(p, op, e);
}
