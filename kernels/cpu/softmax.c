/* softmax.c - softmax and its kin, and the cross-entropy of logits with its gradient. One row at a
 * time, with the largest taken out first; a row all -inf is quiet. */
#include <math.h>

#include "kernels/cpu/cpu.h"

struct job {
    const struct cpu_op *op;
    const struct cpu_vec *v;
    const float *x, *lse, *d;
    const int32_t *label;
    float *y, *z;
    float smoothing;
    int64_t per;
};

static int64_t chunks_of(int64_t rows, int64_t cols, int64_t *per)
{
    *per = cols > 0 && cols < 8192 ? 8192 / cols : 1;
    return (rows + *per - 1) / *per;
}

static int64_t end_of(const struct job *j, int64_t chunk, int64_t rows)
{
    return (chunk + 1) * j->per < rows ? (chunk + 1) * j->per : rows;
}

/* ---- rows that lie together ---- */

/* log of the sum of exp of a row; tmp has n floats. */
static float row_lse(const struct cpu_vec *v, const float *x, float *tmp, int64_t n)
{
    float max = v->max(x, n);

    if (!(fabsf(max) < INFINITY)) /* all -inf, some inf, or a NaN */
        return max;
    v->exp_sub(tmp, x, max, n);
    return max + v->log1(v->sum(tmp, n));
}

static void softmax_row(const struct cpu_vec *v, const float *x, float *y, int64_t n)
{
    float max = v->max(x, n), sum;

    if (max == -INFINITY) {
        memset(y, 0, (size_t)n * sizeof *y);
        return;
    }
    v->exp_sub(y, x, max, n);
    sum = v->sum(y, n);
    for (int64_t i = 0; i < n; i++)
        y[i] /= sum;
}

static void one_row(const struct job *j, const float *x, float *y, float *z, float *tmp, int64_t n)
{
    float lse;

    switch (j->op->op.code) {
    case KERN_SOFTMAX:
        softmax_row(j->v, x, y, n);
        break;
    case KERN_LOG_SOFTMAX:
        lse = row_lse(j->v, x, tmp, n);
        for (int64_t i = 0; i < n; i++)
            y[i] = lse == -INFINITY ? -INFINITY : x[i] - lse;
        break;
    default:
        *z = row_lse(j->v, x, tmp, n);
        break;
    }
}

static void rows_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = &j->op->op.u.axis;
    float *tmp = j->op->scratch + chunk * a->n; /* a row a chunk */

    for (int64_t r = chunk * j->per; r < end_of(j, chunk, a->outer); r++)
        one_row(j, j->x + r * a->n, j->y + r * a->n, j->z + r, tmp, a->n);
}

/* ---- a stride between the elements: gathered into a row of scratch, and back ---- */

static void strided_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = &j->op->op.u.axis;
    float *row = j->op->scratch + chunk * 3 * a->n, *out = row + a->n, *tmp = out + a->n;

    for (int64_t r = chunk * j->per; r < end_of(j, chunk, a->outer * a->inner); r++) {
        int64_t at = r / a->inner * a->n * a->inner + r % a->inner;
        for (int64_t i = 0; i < a->n; i++)
            row[i] = j->x[at + i * a->inner];
        one_row(j, row, out, j->z + r, tmp, a->n);
        for (int64_t i = 0; i < a->n && j->op->op.code != KERN_LOGSUMEXP; i++)
            j->y[at + i * a->inner] = out[i];
    }
}

static void run_axis(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_axis *a = &op->op.u.axis;
    struct job j = {
        .op = op, .v = cpu_vec_for(r->d->isa), .x = (const float *)r->buf[op->op.in[0]]};
    int64_t rows = a->outer * a->inner, chunks = chunks_of(rows, a->n, &j.per);

    j.y = j.z = (float *)r->buf[op->op.out[0]];
    pool_run(r->d->pool, chunks, (double)rows * (double)a->n * 1.5,
             a->inner == 1 ? rows_chunk : strided_chunk, &j);
}

/* ---- cross-entropy ---- */

static bool ignored(const struct kern_xent *x, int32_t label)
{
    return x->has_ignore && label == x->ignore;
}

static void xent_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_xent *k = &j->op->op.u.xent;
    float *tmp = j->op->scratch + chunk * k->cols, s = j->smoothing;

    for (int64_t r = chunk * j->per; r < end_of(j, chunk, k->rows); r++) {
        const float *x = j->x + r * k->cols;
        int32_t label = j->label[r];
        float lse = row_lse(j->v, x, tmp, k->cols), loss;

        j->z[r] = lse;
        if (ignored(k, label))
            loss = 0;
        else if (label < 0 || label >= k->cols || lse == -INFINITY)
            loss = NAN;
        else
            loss = s == 0 ? lse - x[label]
                          : lse - (1 - s) * x[label] - s * (j->v->sum(x, k->cols) / (float)k->cols);
        j->y[r] = loss;
    }
}

static void xent_grad_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_xent *k = &j->op->op.u.xent;
    float s = j->smoothing, even = s / (float)k->cols;

    for (int64_t r = chunk * j->per; r < end_of(j, chunk, k->rows); r++) {
        const float *x = j->x + r * k->cols;
        float *y = j->y + r * k->cols, d = j->d[r];
        int32_t label = j->label[r];

        if (ignored(k, label)) {
            memset(y, 0, (size_t)k->cols * sizeof *y);
            continue;
        }
        if (j->lse[r] == -INFINITY)
            memset(y, 0, (size_t)k->cols * sizeof *y);
        else
            j->v->exp_sub(y, x, j->lse[r], k->cols); /* softmax; y may be x */
        if (label < 0 || label >= k->cols)
            d = NAN;
        for (int64_t i = 0; i < k->cols; i++)
            y[i] = d * (y[i] - (i == label ? 1 - s : 0) - even);
    }
}

static void run_xent(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_op *k = &op->op;
    bool grad = k->code == KERN_XENT_GRAD;
    struct job j = {.op = op,
                    .v = cpu_vec_for(r->d->isa),
                    .x = (const float *)r->buf[k->in[0]],
                    .label = (const int32_t *)r->buf[k->in[1]]};

    j.smoothing = k->in[2] >= 0 ? *(const float *)r->buf[k->in[2]] : 0;
    j.y = (float *)r->buf[k->out[0]];
    if (grad) {
        j.lse = (const float *)r->buf[k->in[3]];
        j.d = (const float *)r->buf[k->in[4]];
    } else {
        j.z = (float *)r->buf[k->out[1]];
    }
    pool_run(r->d->pool, chunks_of(k->u.xent.rows, k->u.xent.cols, &j.per),
             (double)k->u.xent.rows * (double)k->u.xent.cols * 1.5,
             grad ? xent_grad_chunk : xent_chunk, &j);
}

/* ---- preparing ---- */

static enum kern_status prepare_axis(const struct kern_program *p, struct cpu_op *op,
                                     struct kern_err *e)
{
    const struct kern_axis *a = &op->op.u.axis;
    int64_t rows, all, per;
    enum kern_status st;

    if (a->outer < 0 || a->n < 0 || a->inner < 0 ||
        __builtin_mul_overflow(a->outer, a->inner, &rows) ||
        __builtin_mul_overflow(rows, a->n, &all))
        return cpu_err(e, KERN_EINVAL, "softmax: bad sizes");
    op->run = run_axis;
    op->scratch_count = chunks_of(rows, a->n, &per) * a->n * (a->inner == 1 ? 1 : 3);
    st = cpu_want(p, &op->op, op->op.in[0], false, DT_F32, all, "input", e);
    return st == KERN_OK ? cpu_want(p, &op->op, op->op.out[0], false, DT_F32,
                                    op->op.code == KERN_LOGSUMEXP ? rows : all, "result", e)
                         : st;
}

static enum kern_status prepare_xent(const struct kern_program *p, struct cpu_op *op,
                                     struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const struct kern_xent *x = &k->u.xent;
    bool grad = k->code == KERN_XENT_GRAD;
    int64_t all, per;
    enum kern_status st;

    if (x->rows < 0 || x->cols < 0 || __builtin_mul_overflow(x->rows, x->cols, &all))
        return cpu_err(e, KERN_EINVAL, "cross-entropy: bad sizes");
    op->run = run_xent;
    op->scratch_count = grad ? 0 : chunks_of(x->rows, x->cols, &per) * x->cols;
    st = cpu_want(p, k, k->in[0], false, DT_F32, all, "logits", e);
    if (st == KERN_OK)
        st = cpu_want(p, k, k->in[1], false, DT_I32, x->rows, "labels", e);
    if (st == KERN_OK)
        st = cpu_want(p, k, k->in[2], true, DT_F32, 1, "smoothing", e);
    if (st == KERN_OK && grad)
        st = cpu_want(p, k, k->in[3], false, DT_F32, x->rows, "lse", e);
    if (st == KERN_OK && grad)
        st = cpu_want(p, k, k->in[4], false, DT_F32, x->rows, "loss gradient", e);
    if (st == KERN_OK)
        st = cpu_want(p, k, k->out[0], false, DT_F32, grad ? all : x->rows, "result", e);
    return st == KERN_OK && !grad ? cpu_want(p, k, k->out[1], false, DT_F32, x->rows, "lse", e)
                                  : st;
}

enum kern_status cpu_prepare_softmax(struct kern_dev *d, const struct kern_program *p,
                                     struct cpu_op *op, struct kern_err *e)
{
    (void)d;
    return op->op.code == KERN_XENT || op->op.code == KERN_XENT_GRAD ? prepare_xent(p, op, e)
                                                                     : prepare_axis(p, op, e);
}
