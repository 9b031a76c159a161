/* reduce.c - reductions along one axis: in [outer][n][inner]. Sums run in an order fixed by the
 * shape. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { CHUNK = 16384, COLS = 64 };

struct job {
    const struct cpu_op *op;
    const float *in;
    float *out;
    int32_t *out_i;
    const struct cpu_vec *v;
    int64_t per_chunk;
};

static void join(enum kern_reduce how, float *acc, float x)
{
    switch (how) {
    case KERN_SUM:
        *acc += x;
        break;
    case KERN_PROD:
        *acc *= x;
        break;
    case KERN_RMAX:
        *acc = x > *acc || isnan(x) || isnan(*acc) ? (isnan(*acc) ? *acc : x) : *acc;
        break;
    case KERN_RMIN:
        *acc = x < *acc || isnan(x) || isnan(*acc) ? (isnan(*acc) ? *acc : x) : *acc;
        break;
    }
}

static float start_of(enum kern_reduce how)
{
    return how == KERN_SUM    ? 0.0f
           : how == KERN_PROD ? 1.0f
           : how == KERN_RMAX ? -INFINITY
                              : INFINITY;
}

static float along_row(const struct cpu_vec *v, enum kern_reduce how, const float *x, int64_t n)
{
    float acc = start_of(how);

    if (how == KERN_SUM)
        return v->sum(x, n);
    if (how == KERN_RMAX)
        return v->max(x, n);
    for (int64_t i = 0; i < n; i++)
        join(how, &acc, x[i]);
    return acc;
}

/* inner == 1: each output is a row. */
static void rows_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = &j->op->op.u.axis;
    int64_t end = (chunk + 1) * j->per_chunk < a->outer ? (chunk + 1) * j->per_chunk : a->outer;

    for (int64_t o = chunk * j->per_chunk; o < end; o++)
        j->out[o] = along_row(j->v, a->reduce, j->in + o * a->n, a->n);
}

/* inner > 1: a chunk is COLS columns of one outer index; rows are added in order, columns side by
 * side. */
static void cols_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = &j->op->op.u.axis;
    int64_t per = (a->inner + COLS - 1) / COLS, o = chunk / per, c0 = chunk % per * COLS;
    int64_t w = a->inner - c0 < COLS ? a->inner - c0 : COLS;
    const float *x = j->in + o * a->n * a->inner + c0;
    float acc[COLS];

    for (int64_t c = 0; c < w; c++)
        acc[c] = start_of(a->reduce);
    for (int64_t i = 0; i < a->n; i++, x += a->inner)
        if (a->reduce == KERN_SUM)
            for (int64_t c = 0; c < w; c++)
                acc[c] += x[c];
        else
            for (int64_t c = 0; c < w; c++)
                join(a->reduce, &acc[c], x[c]);
    memcpy(j->out + o * a->inner + c0, acc, (size_t)w * sizeof *acc);
}

static int64_t chunks_of(int64_t rows, int64_t n, int64_t *per)
{
    *per = n > 0 && n < CHUNK ? CHUNK / n : 1;
    return (rows + *per - 1) / *per;
}

static void run_reduce(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_axis *a = &op->op.u.axis;
    struct job j = {.op = op,
                    .in = (const float *)r->buf[op->op.in[0]],
                    .out = (float *)r->buf[op->op.out[0]],
                    .v = cpu_vec_for(r->d->isa)};
    double ns = (double)a->outer * (double)a->n * (double)a->inner * 0.3;

    if (a->inner == 1)
        pool_run(r->d->pool, chunks_of(a->outer, a->n, &j.per_chunk), ns, rows_chunk, &j);
    else
        pool_run(r->d->pool, a->outer * ((a->inner + COLS - 1) / COLS), ns, cols_chunk, &j);
}

/* ---- argmax, topk, cumsum ---- */

/* Is x before y? NaN is largest; of equals the earlier stays. */
static bool larger(float x, float y)
{
    return !isnan(y) && (isnan(x) || x > y);
}

static void argmax_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = &j->op->op.u.axis;
    int64_t all = a->outer * a->inner,
            end = (chunk + 1) * j->per_chunk < all ? (chunk + 1) * j->per_chunk : all;

    for (int64_t i = chunk * j->per_chunk; i < end; i++) {
        const float *x = j->in + i / a->inner * a->n * a->inner + i % a->inner;
        int64_t best = 0;
        for (int64_t k = 1; k < a->n; k++)
            if (larger(x[k * a->inner], x[best * a->inner]))
                best = k;
        j->out_i[i] = (int32_t)best;
    }
}

static void topk_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = &j->op->op.u.axis;
    int64_t end = (chunk + 1) * j->per_chunk < a->outer ? (chunk + 1) * j->per_chunk : a->outer;

    for (int64_t o = chunk * j->per_chunk; o < end; o++) {
        const float *x = j->in + o * a->n;
        int32_t *top = j->out_i + o * a->k;
        int64_t have = 0;

        /* insertion into the k best so far: k is small beside n */
        for (int64_t i = 0; i < a->n; i++) {
            int64_t at = have;
            while (at > 0 && larger(x[i], x[top[at - 1]]))
                at--;
            if (at == a->k)
                continue;
            have += have < a->k;
            memmove(top + at + 1, top + at, (size_t)(have - at - 1) * sizeof *top);
            top[at] = (int32_t)i;
        }
    }
}

static void cumsum_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = &j->op->op.u.axis;
    int64_t all = a->outer * a->inner,
            end = (chunk + 1) * j->per_chunk < all ? (chunk + 1) * j->per_chunk : all;

    for (int64_t i = chunk * j->per_chunk; i < end; i++) {
        int64_t at = i / a->inner * a->n * a->inner + i % a->inner;
        float sum = 0;
        for (int64_t k = 0; k < a->n; k++) {
            int64_t p = at + (a->reverse ? a->n - 1 - k : k) * a->inner;
            float x = j->in[p];
            j->out[p] = a->exclusive ? sum : sum + x;
            sum += x;
        }
    }
}

static void run_rows(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_axis *a = &op->op.u.axis;
    struct job j = {.op = op, .in = (const float *)r->buf[op->op.in[0]]};
    pool_fn *fn = op->op.code == KERN_ARGMAX ? argmax_chunk
                  : op->op.code == KERN_TOPK ? topk_chunk
                                             : cumsum_chunk;

    if (op->op.code == KERN_CUMSUM)
        j.out = (float *)r->buf[op->op.out[0]];
    else
        j.out_i = (int32_t *)r->buf[op->op.out[0]];
    pool_run(r->d->pool, chunks_of(a->outer * a->inner, a->n, &j.per_chunk),
             (double)a->outer * (double)a->n * (double)a->inner * 1.0, fn, &j);
}

enum kern_status cpu_prepare_reduce(struct kern_dev *d, const struct kern_program *p,
                                    struct cpu_op *op, struct kern_err *e)
{
    const struct kern_axis *a = &op->op.u.axis;
    int64_t in, out, rows;
    enum kern_status st;

    (void)d;
    if (a->outer < 0 || a->n < 0 || a->inner < 0 ||
        __builtin_mul_overflow(a->outer, a->inner, &rows) ||
        __builtin_mul_overflow(rows, a->n, &in))
        return cpu_err(e, KERN_EINVAL, "reduction: bad sizes");
    out = op->op.code == KERN_CUMSUM ? in : rows;
    if (op->op.code == KERN_TOPK &&
        (a->inner != 1 || a->k < 0 || a->k > a->n || __builtin_mul_overflow(a->outer, a->k, &out)))
        return cpu_err(e, KERN_EINVAL, "topk: k is not in 0 .. n, or inner is not 1");
    if (op->op.code == KERN_ARGMAX && (a->n < 1 || a->n > INT32_MAX))
        return cpu_err(e, KERN_EINVAL, "argmax: nothing along the axis");
    st = cpu_want(p, &op->op, op->op.in[0], false, DT_F32, in, "input", e);
    if (st == KERN_OK)
        st = cpu_want(p, &op->op, op->op.out[0], false,
                      op->op.code == KERN_ARGMAX || op->op.code == KERN_TOPK ? DT_I32 : DT_F32, out,
                      "result", e);
    op->run = op->op.code == KERN_REDUCE ? run_reduce : run_rows;
    return st;
}
