/* matmul.c - matrix products: cut into tiles by the shape alone, each one product of oneDNN; small
 * ones by loops of ours, for which a call of the library would take longer than the work. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"
#include "kernels/contract.h"

enum {
    SMALL = 1024, /* m n k up to which the loops of ours are taken: at 8 cubed both take 0.5 us */
    TILES = 16,   /* at most */
    TILE_FLOP = 2000000, /* of one tile at least, where there is so much */
    ROWS_ALIGN = 16,     /* of a tile */
    COLS_ALIGN = 32,     /* whole vectors */
    CHUNK_MACS = 65536   /* of small products in a chunk */
};

/* Rows or columns of one product, or several whole products of a batch. */
struct tile {
    struct mm *mm;
    int64_t batch, n_batch, row, rows, col, cols;
};

struct tiles {
    int n;
    struct tile tile[TILES];
};

struct job {
    const struct kern_matmul *m;
    const struct cpu_vec *v;
    const struct tile *tile;
    const float *a, *b, *bias;
    float *c, *aside; /* [batch][m][n], for an activation onto what is there: NULL otherwise */
    int64_t per;      /* small products of a chunk */
};

/* ---- small products: CPU_TILE results at a time ---- */

/* Row i of the product, w columns from j on; each a sum in order of k. */
static void row_part(const struct job *x, const float *a, const float *b, int64_t i, int64_t j,
                     int64_t w, float *y)
{
    const struct kern_matmul *m = x->m;
    const int64_t row_a = m->ta ? 1 : m->lda, step_a = m->ta ? m->lda : 1;
    const int64_t col_b = m->tb ? m->ldb : 1, step_b = m->tb ? 1 : m->ldb;

    for (int64_t c = 0; c < w; c++)
        y[c] = 0;
    for (int64_t k = 0; k < m->k; k++) {
        const float f = a[i * row_a + k * step_a], *row = b + k * step_b + j * col_b;
        for (int64_t c = 0; c < w && col_b == 1; c++)
            y[c] += f * row[c];
        for (int64_t c = 0; c < w && col_b != 1; c++)
            y[c] += f * row[c * col_b];
    }
    for (int64_t c = 0; c < w && x->bias; c++)
        y[c] += x->bias[j + c];
}

static void activate(const struct cpu_vec *v, enum kern_act act, float *y)
{
    float t[CPU_TILE];

    switch (act) {
    case KERN_ACT_NONE:
        break;
    case KERN_ACT_RELU:
        v->ew(EW_RELU, DT_F32, y, y, NULL, NULL);
        break;
    case KERN_ACT_SIGMOID:
        v->ew(EW_SIGMOID, DT_F32, y, y, NULL, NULL);
        break;
    case KERN_ACT_TANH:
        v->ew(EW_TANH, DT_F32, y, y, NULL, NULL);
        break;
    case KERN_ACT_GELU_TANH:
        for (int i = 0; i < CPU_TILE; i++)
            t[i] = 0.79788456080286536f * (y[i] + 0.044715f * y[i] * y[i] * y[i]);
        v->ew(EW_TANH, DT_F32, t, t, NULL, NULL);
        for (int i = 0; i < CPU_TILE; i++)
            y[i] = 0.5f * y[i] * (1 + t[i]);
        break;
    case KERN_ACT_GELU_ERF:
        for (int i = 0; i < CPU_TILE; i++)
            t[i] = 0.70710678118654752f * y[i];
        v->ew(EW_ERF, DT_F32, t, t, NULL, NULL);
        for (int i = 0; i < CPU_TILE; i++)
            y[i] = 0.5f * y[i] * (1 + t[i]);
        break;
    }
}

static void store_part(const struct kern_matmul *m, float *c, const float *y, int64_t w)
{
    for (int64_t i = 0; i < w; i++)
        c[i] = m->accumulate ? c[i] + y[i] : y[i];
}

/* Several rows at a time where they are short: the activation works on CPU_TILE values whatever
 * there is. */
static void small_product(const struct job *x, const float *a, const float *b, float *c)
{
    const struct kern_matmul *m = x->m;
    const int64_t width = min64(m->n, CPU_TILE), rows = width > 0 ? CPU_TILE / width : 1;
    float y[CPU_TILE] = {0};

    for (int64_t i = 0; i < m->m; i += rows)
        for (int64_t j = 0; j < m->n; j += width) {
            const int64_t h = min64(m->m - i, rows), w = min64(m->n - j, width);
            for (int64_t r = 0; r < h; r++)
                row_part(x, a, b, i + r, j, w, y + r * w);
            activate(x->v, m->act, y);
            for (int64_t r = 0; r < h; r++)
                store_part(m, c + (i + r) * m->ldc + j, y + r * w, w);
        }
}

static void small_chunk(void *arg, int64_t chunk)
{
    const struct job *x = arg;
    const struct kern_matmul *m = x->m;

    for (int64_t i = chunk * x->per; i < min64((chunk + 1) * x->per, m->batch); i++)
        small_product(x, x->a + i * m->stride_a, x->b + i * m->stride_b, x->c + i * m->stride_c);
}

static struct job job_of(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_op *k = &op->op;
    struct job x = {.m = &k->u.matmul, .v = cpu_vec_for(r->d->isa)};

    x.a = (const float *)(void *)r->buf[k->in[0]];
    x.b = (const float *)(void *)r->buf[k->in[1]];
    x.bias = k->in[2] >= 0 ? (const float *)(void *)r->buf[k->in[2]] : NULL;
    x.c = (float *)(void *)r->buf[k->out[0]];
    return x;
}

static double macs(const struct kern_matmul *m)
{
    return (double)m->m * (double)m->n * (double)m->k;
}

static void run_small(const struct cpu_op *op, const struct cpu_run *r)
{
    struct job x = job_of(op, r);
    const double each = macs(x.m) + (double)x.m->m * (double)x.m->n;

    x.per = each < CHUNK_MACS ? (int64_t)(CHUNK_MACS / (each + 1)) + 1 : 1;
    pool_run(r->d->pool, ceil_div(x.m->batch, x.per), (double)x.m->batch * each * 0.2, small_chunk,
             &x);
}

/* ---- tiles ---- */

/* c = act(src), or c += act(src): src may be c itself, or lie aside. The library's own activations
 * are faster by little, but some make a NaN a number. */
static void activate_rows(const struct job *x, const float *src, int64_t ld, float *c, int64_t rows,
                          int64_t cols)
{
    const int64_t width = min64(cols, CPU_TILE), high = CPU_TILE / width;
    float y[CPU_TILE] = {0};

    for (int64_t i = 0; i < rows; i += high)
        for (int64_t j = 0; j < cols; j += width) {
            const int64_t h = min64(rows - i, high), w = min64(cols - j, width);
            for (int64_t r = 0; r < h; r++)
                memcpy(y + r * w, src + (i + r) * ld + j, (size_t)w * sizeof *y);
            activate(x->v, x->m->act, y);
            for (int64_t r = 0; r < h; r++)
                store_part(x->m, c + (i + r) * x->m->ldc + j, y + r * w, w);
        }
}

/* The library failed: NaN, so that the step is seen to be bad and skipped, not a stale result that
 * looks good. */
static void spoil_rows(float *c, int64_t rows, int64_t cols, int64_t ld)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            c[i * ld + j] = NAN;
}

/* Product k of tile t. */
static void tile_product(const struct job *x, const struct tile *t, int64_t k)
{
    const struct kern_matmul *m = x->m;
    const float *a = x->a + k * m->stride_a + t->row * (m->ta ? 1 : m->lda);
    const float *b = x->b + k * m->stride_b + t->col * (m->tb ? m->ldb : 1);
    const float *bias = x->bias ? x->bias + t->col : NULL;
    float *c = x->c + k * m->stride_c + t->row * m->ldc + t->col;
    float *aside = x->aside ? x->aside + (k * m->m + t->row) * m->n + t->col : NULL;

    if (mm_run(t->mm, a, b, bias, aside ? aside : c) < 0)
        spoil_rows(c, t->rows, t->cols, m->ldc);
    else if (aside)
        activate_rows(x, aside, m->n, c, t->rows, t->cols);
    else if (m->act != KERN_ACT_NONE)
        activate_rows(x, c, m->ldc, c, t->rows, t->cols);
}

static void run_tile(void *arg, int64_t i)
{
    const struct job *x = arg;
    const struct tile *t = &x->tile[i];

    for (int64_t k = t->batch; k < t->batch + t->n_batch; k++)
        tile_product(x, t, k);
}

static void run_tiles(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct tiles *s = op->own;
    struct job x = job_of(op, r);

    x.tile = s->tile;
    x.aside = op->scratch;
    pool_run(r->d->pool, s->n, 2 * (double)x.m->batch * macs(x.m) / 100, run_tile, &x);
}

/* ---- preparing ---- */

static void tiles_free(void *own)
{
    struct tiles *s = own;

    for (int i = 0; i < s->n; i++)
        mm_free(s->tile[i].mm);
    free(s);
}

/* How many parts of at least TILE_FLOP there are in flop, no more than `most`. */
static int64_t parts_of(double flop, int64_t most)
{
    const double n = flop / TILE_FLOP;
    const int64_t parts = n < (double)most ? (int64_t)n : most;

    return parts < 1 ? 1 : parts;
}

/* An activated product that is added to what is there has to lie somewhere meanwhile. */
static bool is_aside(const struct kern_matmul *m)
{
    return m->accumulate && m->act != KERN_ACT_NONE;
}

static enum kern_status add_tile(struct kern_dev *d, const struct kern_op *k, struct tiles *s,
                                 struct tile t, struct kern_err *e)
{
    const struct kern_matmul *m = &k->u.matmul;
    const struct mm_shape shape = {.m = t.rows,
                                   .n = t.cols,
                                   .k = m->k,
                                   .lda = m->lda,
                                   .ldb = m->ldb,
                                   .ldc = is_aside(m) ? m->n : m->ldc,
                                   .ta = m->ta,
                                   .tb = m->tb,
                                   .bias = k->in[2] >= 0,
                                   .accumulate = m->accumulate && !is_aside(m)};
    char why[256] = "";

    if (mm_new(d->dnnl, &shape, &t.mm, why, sizeof why) < 0)
        return cpu_err(e, KERN_EDEVICE, "cpu: %.80s: %lld x %lld x %lld: %s", k->label,
                       (long long)t.rows, (long long)t.cols, (long long)m->k, why);
    s->tile[s->n++] = t;
    return KERN_OK;
}

/* Rows and columns of a tile when a product becomes `parts` of them, about square: each one packs
 * its own share of a and b, and 16 flat ones took a third longer than 4 x 4 at 1024 x 1024 x 1024.
 */
static void tile_size(const struct kern_matmul *m, int64_t parts, int64_t *rows, int64_t *cols)
{
    int64_t down = 1, across = 1;

    while (down * across * 2 <= parts) {
        if (m->m / down > m->n / across)
            down *= 2;
        else
            across *= 2;
    }
    *rows = ceil_div(ceil_div(m->m, down), ROWS_ALIGN) * ROWS_ALIGN;
    *cols = ceil_div(ceil_div(m->n, across), COLS_ALIGN) * COLS_ALIGN;
}

static enum kern_status cut_product(struct kern_dev *d, const struct kern_op *k, struct tiles *s,
                                    int64_t batch, int64_t n_batch, int64_t parts,
                                    struct kern_err *e)
{
    const struct kern_matmul *m = &k->u.matmul;
    enum kern_status rc = KERN_OK;
    int64_t rows, cols;

    tile_size(m, parts, &rows, &cols);
    for (int64_t i = 0; i < m->m; i += rows)
        for (int64_t j = 0; j < m->n && rc == KERN_OK; j += cols) {
            const struct tile t = {.batch = batch,
                                   .n_batch = n_batch,
                                   .row = i,
                                   .rows = min64(m->m - i, rows),
                                   .col = j,
                                   .cols = min64(m->n - j, cols)};
            rc = add_tile(d, k, s, t, e);
        }
    return rc;
}

static enum kern_status make_tiles(struct kern_dev *d, const struct kern_op *k, struct tiles *s,
                                   struct kern_err *e)
{
    const struct kern_matmul *m = &k->u.matmul;
    const double flop = 2 * macs(m);
    const int64_t n_batch = parts_of(flop * (double)m->batch, min64(m->batch, TILES));
    const int64_t parts = parts_of(flop, TILES / n_batch);
    enum kern_status rc = KERN_OK;

    for (int64_t i = 0; i < n_batch && rc == KERN_OK; i++) {
        const int64_t from = m->batch / n_batch * i + min64(i, m->batch % n_batch);
        const int64_t count = m->batch / n_batch + (i < m->batch % n_batch);
        rc = cut_product(d, k, s, from, count, parts, e);
    }
    return rc;
}

static enum kern_status check(const struct kern_program *p, const struct kern_op *k,
                              struct kern_err *e)
{
    const struct kern_matmul *m = &k->u.matmul;
    const int64_t a =
        matrix_extent(m->batch, m->ta ? m->k : m->m, m->ta ? m->m : m->k, m->lda, m->stride_a);
    const int64_t b =
        matrix_extent(m->batch, m->tb ? m->n : m->k, m->tb ? m->k : m->n, m->ldb, m->stride_b);
    const int64_t c = matrix_extent(m->batch, m->m, m->n, m->ldc, m->stride_c);
    enum kern_status rc;

    if (m->batch > 1 && m->stride_c == 0)
        return cpu_err(e, KERN_EINVAL,
                       "cpu: %.80s: matrices of a batch are written over each other", k->label);
    if ((unsigned)m->act > KERN_ACT_TANH)
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: activation %d is not known", k->label,
                       (int)m->act);
    rc = cpu_want(p, k, k->in[0], false, DT_F32, a, "a", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[1], false, DT_F32, b, "b", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[2], true, DT_F32, m->n, "bias", e);
    return rc == KERN_OK ? cpu_want(p, k, k->out[0], false, DT_F32, c, "result", e) : rc;
}

static void run_nothing(const struct cpu_op *op, const struct cpu_run *r)
{
    (void)op;
    (void)r;
}

enum kern_status cpu_prepare_matmul(struct kern_dev *d, const struct kern_program *p,
                                    struct cpu_op *op, struct kern_err *e)
{
    const struct kern_matmul *m = &op->op.u.matmul;
    const enum kern_status rc = check(p, &op->op, e);
    struct tiles *s;

    op->run = m->batch == 0 || m->m == 0 || m->n == 0 ? run_nothing : run_small;
    if (rc != KERN_OK || op->run == run_nothing || macs(m) <= SMALL)
        return rc;
    s = calloc(1, sizeof *s);
    if (!s)
        return cpu_err(e, KERN_ENOMEM, "cpu: %.80s: no memory", op->op.label);
    op->own = s;
    op->free_own = tiles_free;
    op->run = run_tiles;
    if (is_aside(m) && (__builtin_mul_overflow(m->batch, m->m, &op->scratch_count) ||
                        __builtin_mul_overflow(op->scratch_count, m->n, &op->scratch_count)))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: the shape is too large", op->op.label);
    return make_tiles(d, &op->op, s, e);
}
