/* matmul.c - matrix products: cut into tiles by the shape alone, each one product of oneDNN; tiny
 * ones by a plain loop. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

enum { TINY = 16 * 1024, TILES = 16, TILE_FLOP = 2000000 };

/* A tile: rows or columns of one product, or several whole products of a batch. */
struct tile {
    struct mm *mm;
    int64_t batch, n_batch, row, col;
};

struct matmul {
    bool by_columns;
    int n_tiles;
    struct tile tile[TILES];
};

static void matmul_free(void *own)
{
    struct matmul *m = own;

    for (int i = 0; i < m->n_tiles; i++)
        mm_free(m->tile[i].mm);
    free(m);
}

/* ---- plain loops ---- */

static float activate(enum kern_act act, float x)
{
    const struct cpu_vec *v = cpu_vec_for(CPU_BASE);
    float in[CPU_TILE] = {0}, out[CPU_TILE];

    switch (act) {
    case KERN_ACT_RELU:
        return x > 0 || x != x ? x : 0;
    case KERN_ACT_TANH:
    case KERN_ACT_SIGMOID:
        in[0] = x;
        v->ew(act == KERN_ACT_TANH ? EW_TANH : EW_SIGMOID, DT_F32, out, in, NULL, NULL);
        return out[0];
    case KERN_ACT_GELU_ERF:
        in[0] = x * 0.70710678118654752f;
        v->ew(EW_ERF, DT_F32, out, in, NULL, NULL);
        return 0.5f * x * (1 + out[0]);
    case KERN_ACT_GELU_TANH:
        in[0] = 0.79788456080286536f * (x + 0.044715f * x * x * x);
        v->ew(EW_TANH, DT_F32, out, in, NULL, NULL);
        return 0.5f * x * (1 + out[0]);
    case KERN_ACT_NONE:
        break;
    }
    return x;
}

static void plain_one(const struct kern_matmul *m, const float *a, const float *b,
                      const float *bias, float *c)
{
    int64_t sai = m->ta ? 1 : m->lda, sak = m->ta ? m->lda : 1, sbk = m->tb ? 1 : m->ldb,
            sbj = m->tb ? m->ldb : 1;

    for (int64_t i = 0; i < m->m; i++)
        for (int64_t j = 0; j < m->n; j++) {
            float s = 0, *out = c + i * m->ldc + j;

            for (int64_t k = 0; k < m->k; k++)
                s += a[i * sai + k * sak] * b[k * sbk + j * sbj];
            s = activate(m->act, bias ? s + bias[j] : s);
            *out = m->accumulate ? *out + s : s;
        }
}

static void run_plain(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_matmul *m = &op->op.u.matmul;
    const float *a = (const float *)r->buf[op->op.in[0]], *b = (const float *)r->buf[op->op.in[1]];
    const float *bias = op->op.in[2] >= 0 ? (const float *)r->buf[op->op.in[2]] : NULL;
    float *c = (float *)r->buf[op->op.out[0]];

    for (int64_t i = 0; i < m->batch; i++)
        plain_one(m, a + i * m->stride_a, b + i * m->stride_b, bias, c + i * m->stride_c);
}

/* ---- tiles ---- */

struct job {
    const struct cpu_op *op;
    const struct cpu_run *r;
};

static void run_tile(void *arg, int64_t i)
{
    const struct job *j = arg;
    const struct kern_op *op = &j->op->op;
    const struct kern_matmul *m = &op->u.matmul;
    const struct tile *t = &((const struct matmul *)j->op->own)->tile[i];
    const float *a = (const float *)j->r->buf[op->in[0]] + t->row * (m->ta ? 1 : m->lda);
    const float *b = (const float *)j->r->buf[op->in[1]] + t->col * (m->tb ? m->ldb : 1);
    const float *bias = op->in[2] >= 0 ? (const float *)j->r->buf[op->in[2]] + t->col : NULL;
    float *c = (float *)j->r->buf[op->out[0]] + t->row * m->ldc + t->col;

    for (int64_t k = t->batch; k < t->batch + t->n_batch; k++)
        mm_run(t->mm, a + k * m->stride_a, b + k * m->stride_b, bias, c + k * m->stride_c);
}

static double work_ns(const struct kern_matmul *m)
{
    return 2.0 * (double)m->batch * (double)m->m * (double)m->n * (double)m->k / 100;
}

static void run_tiles(const struct cpu_op *op, const struct cpu_run *r)
{
    struct job j = {op, r};
    pool_run(r->d->pool, ((const struct matmul *)op->own)->n_tiles, work_ns(&op->op.u.matmul),
             run_tile, &j);
}

/* How many parts a length is cut into: as many as keep a part worth a thread, whole vectors each.
 */
static int64_t parts(double flop, int64_t len, int64_t most)
{
    int64_t n = (int64_t)(flop / TILE_FLOP);

    if (n > most)
        n = most;
    if (n > len / 16)
        n = len / 16;
    return n < 1 ? 1 : n;
}

static enum kern_status add_tile(struct kern_dev *d, struct matmul *x, const struct kern_matmul *m,
                                 bool bias, int64_t row, int64_t rows, int64_t col, int64_t cols,
                                 int64_t batch, int64_t n_batch, struct kern_err *e)
{
    struct mm_shape s = {rows,  cols,  m->k, m->lda,        m->ldb,     m->ldc,
                         m->ta, m->tb, bias, m->accumulate, (int)m->act};
    struct tile *t = &x->tile[x->n_tiles];
    char why[256] = "";

    *t = (struct tile){.batch = batch, .n_batch = n_batch, .row = row, .col = col};
    if (mm_new(d->dnnl, &s, &t->mm, why, sizeof why) < 0)
        return cpu_err(e, KERN_ENOMEM, "matmul %lldx%lldx%lld: %s", (long long)m->m,
                       (long long)m->n, (long long)m->k, why);
    x->n_tiles++;
    return KERN_OK;
}

static enum kern_status make_tiles(struct kern_dev *d, struct matmul *x,
                                   const struct kern_matmul *m, bool bias, struct kern_err *e)
{
    double flop = 2.0 * (double)m->m * (double)m->n * (double)m->k;
    int64_t n_batch = parts(flop * (double)m->batch, m->batch * 16, TILES) < m->batch
                          ? parts(flop * (double)m->batch, m->batch * 16, TILES)
                          : m->batch;
    bool columns = m->n > m->m;
    int64_t len = columns ? m->n : m->m, n_parts = parts(flop, len, TILES / n_batch), step;
    enum kern_status st = KERN_OK;

    step = (len + n_parts - 1) / n_parts;
    step = (step + 15) / 16 * 16;
    for (int64_t i = 0; i < n_batch && st == KERN_OK; i++) {
        int64_t b0 = i * m->batch / n_batch, b1 = (i + 1) * m->batch / n_batch;
        for (int64_t at = 0; at < len && st == KERN_OK; at += step) {
            int64_t part = len - at < step ? len - at : step;
            st = columns ? add_tile(d, x, m, bias, 0, m->m, at, part, b0, b1 - b0, e)
                         : add_tile(d, x, m, bias, at, part, 0, m->n, b0, b1 - b0, e);
        }
    }
    return st;
}

/* Elements a strided stack of matrices reaches over; -1 when that overflows. */
static int64_t reach(int64_t batch, int64_t stride, int64_t rows, int64_t cols, int64_t ld)
{
    int64_t a, b, sum;

    if (batch <= 0 || rows <= 0 || cols <= 0)
        return 0;
    if (stride < 0 || ld < cols || __builtin_mul_overflow(batch - 1, stride, &a) ||
        __builtin_mul_overflow(rows - 1, ld, &b) || __builtin_add_overflow(a, b, &sum) ||
        __builtin_add_overflow(sum, cols, &sum))
        return -1;
    return sum;
}

static enum kern_status check(const struct kern_program *p, const struct kern_op *op,
                              struct kern_err *e)
{
    const struct kern_matmul *m = &op->u.matmul;
    int64_t a = reach(m->batch, m->stride_a, m->ta ? m->k : m->m, m->ta ? m->m : m->k, m->lda);
    int64_t b = reach(m->batch, m->stride_b, m->tb ? m->n : m->k, m->tb ? m->k : m->n, m->ldb);
    int64_t c = reach(m->batch, m->stride_c, m->m, m->n, m->ldc);
    enum kern_status st;

    if (m->batch < 0 || m->m < 0 || m->n < 0 || m->k < 0 || a < 0 || b < 0 || c < 0 ||
        m->act > KERN_ACT_TANH)
        return cpu_err(e, KERN_EINVAL, "matmul: bad sizes or strides");
    st = cpu_want(p, op, op->in[0], false, DT_F32, a, "a", e);
    if (st == KERN_OK)
        st = cpu_want(p, op, op->in[1], false, DT_F32, b, "b", e);
    if (st == KERN_OK)
        st = cpu_want(p, op, op->in[2], true, DT_F32, m->n, "bias", e);
    return st == KERN_OK ? cpu_want(p, op, op->out[0], false, DT_F32, c, "result", e) : st;
}

enum kern_status cpu_prepare_matmul(struct kern_dev *d, const struct kern_program *p,
                                    struct cpu_op *op, struct kern_err *e)
{
    const struct kern_matmul *m = &op->op.u.matmul;
    enum kern_status st = check(p, &op->op, e);
    struct matmul *x;

    if (st != KERN_OK)
        return st;
    op->run = run_plain;
    if ((double)m->m * (double)m->n * (double)m->k <= TINY || m->batch == 0)
        return KERN_OK;
    x = calloc(1, sizeof *x);
    if (!x)
        return cpu_err(e, KERN_ENOMEM, "matmul: out of memory");
    op->own = x;
    op->free_own = matmul_free;
    op->run = run_tiles;
    return make_tiles(d, x, m, op->op.in[2] >= 0, e);
}
