/* index.c - reading and adding by index. Sums go in order of the index list, whatever the threads:
 * a chunk owns columns of the destination, never a share of the list. */
#include "kernels/cpu/cpu.h"

enum { COLS = 256 };

struct job {
    const struct kern_axis *a;
    const float *x, *src;
    const int32_t *idx;
    float *out;
    int64_t per;
};

static bool inside(int32_t i, int64_t n)
{
    return i >= 0 && i < n;
}

static void take_chunk(void *arg, int64_t row)
{
    const struct job *j = arg;
    const struct kern_axis *a = j->a;
    int64_t o = row / a->k, k = row % a->k;
    float *out = j->out + row * a->inner;

    if (inside(j->idx[k], a->n))
        memcpy(out, j->x + (o * a->n + j->idx[k]) * a->inner, (size_t)a->inner * sizeof *out);
    else
        memset(out, 0, (size_t)a->inner * sizeof *out);
}

/* One outer index, COLS columns: zeros, then the rows of the list in order. */
static void take_grad_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = j->a;
    int64_t per = (a->inner + COLS - 1) / COLS, o = chunk / per, c0 = chunk % per * COLS,
            w = a->inner - c0 < COLS ? a->inner - c0 : COLS;

    for (int64_t i = 0; i < a->n; i++)
        memset(j->out + (o * a->n + i) * a->inner + c0, 0, (size_t)w * sizeof *j->out);
    for (int64_t k = 0; k < a->k; k++) {
        const float *s = j->src + (o * a->k + k) * a->inner + c0;
        float *d = j->out + (o * a->n + j->idx[k]) * a->inner + c0;
        if (inside(j->idx[k], a->n))
            for (int64_t c = 0; c < w; c++)
                d[c] += s[c];
    }
}

static void take_along_chunk(void *arg, int64_t o)
{
    const struct job *j = arg;
    const struct kern_axis *a = j->a;

    for (int64_t k = 0; k < a->k; k++)
        for (int64_t c = 0; c < a->inner; c++) {
            int64_t at = (o * a->k + k) * a->inner + c;
            j->out[at] =
                inside(j->idx[at], a->n) ? j->x[(o * a->n + j->idx[at]) * a->inner + c] : 0;
        }
}

static void scatter_chunk(void *arg, int64_t o)
{
    const struct job *j = arg;
    const struct kern_axis *a = j->a;
    float *out = j->out + o * a->n * a->inner;

    if (out != j->x + o * a->n * a->inner)
        memcpy(out, j->x + o * a->n * a->inner, (size_t)(a->n * a->inner) * sizeof *out);
    for (int64_t k = 0; k < a->k; k++)
        for (int64_t c = 0; c < a->inner; c++) {
            int64_t at = (o * a->k + k) * a->inner + c;
            if (inside(j->idx[at], a->n))
                out[j->idx[at] * a->inner + c] += j->src[at];
        }
}

static void run_index(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_op *k = &op->op;
    struct job j = {.a = &k->u.axis,
                    .out = (float *)r->buf[k->out[0]],
                    .idx = (const int32_t *)r->buf[k->in[1]]};
    const struct kern_axis *a = j.a;
    double ns = (double)a->outer * (double)(a->k + a->n) * (double)a->inner * 0.5;

    if (a->inner == 0 || a->outer == 0)
        return;
    j.x = j.src = (const float *)r->buf[k->in[0]];
    switch (k->code) {
    case KERN_TAKE:
        pool_run(r->d->pool, a->outer * a->k, ns, take_chunk, &j);
        break;
    case KERN_TAKE_GRAD:
        pool_run(r->d->pool, a->outer * ((a->inner + COLS - 1) / COLS), ns, take_grad_chunk, &j);
        break;
    case KERN_TAKE_ALONG:
        pool_run(r->d->pool, a->outer, ns, take_along_chunk, &j);
        break;
    default:
        j.src = (const float *)r->buf[k->in[2]];
        pool_run(r->d->pool, a->outer, ns, scatter_chunk, &j);
        break;
    }
}

enum kern_status cpu_prepare_index(struct kern_dev *d, const struct kern_program *p,
                                   struct cpu_op *op, struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const struct kern_axis *a = &k->u.axis;
    int64_t rows, full, part;
    bool along = k->code == KERN_TAKE_ALONG || k->code == KERN_SCATTER_ADD;
    enum kern_status st;

    (void)d;
    if (a->outer < 0 || a->n < 0 || a->inner < 0 || a->k < 0 ||
        __builtin_mul_overflow(a->outer, a->inner, &rows) ||
        __builtin_mul_overflow(rows, a->n, &full) || __builtin_mul_overflow(rows, a->k, &part))
        return cpu_err(e, KERN_EINVAL, "indexing: bad sizes");
    op->run = run_index;
    st = cpu_want(p, k, k->in[0], false, DT_F32, k->code == KERN_TAKE_GRAD ? part : full, "input",
                  e);
    if (st == KERN_OK)
        st = cpu_want(p, k, k->in[1], false, DT_I32, along ? part : a->k, "indices", e);
    if (st == KERN_OK && k->code == KERN_SCATTER_ADD)
        st = cpu_want(p, k, k->in[2], false, DT_F32, part, "values", e);
    if (st == KERN_OK)
        st =
            cpu_want(p, k, k->out[0], false, DT_F32,
                     k->code == KERN_TAKE || k->code == KERN_TAKE_ALONG ? part : full, "result", e);
    return st;
}
