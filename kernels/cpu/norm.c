/* norm.c - layer norm and RMS norm of rows, and their gradients. Column sums go over blocks of rows
 * that the shape fixes, added in order. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum {
    CHUNK = 8192, /* elements that are worth a chunk */
    BLOCKS = 64,  /* at most, of rows that share one partial sum of the gain's gradient */
    LANES = 16
};

struct job {
    const struct kern_norm *k;
    const struct cpu_vec *v;
    const float *dy, *x, *gain, *bias, *mean, *rstd;
    float *y, *out_mean, *out_rstd;
    float *dgain, *dbias; /* [blocks][cols]: partial sums, NULL where not wanted */
    int64_t per;          /* rows of a block */
    bool centred;
};

static int64_t rows_per_block(const struct kern_norm *k, bool few)
{
    const int64_t worth = k->cols < CHUNK ? CHUNK / k->cols : 1, spread = ceil_div(k->rows, BLOCKS);
    return few && spread > worth ? spread : worth;
}

/* ---- forward ---- */

/* y = x - mean, and the mean. What the rounding of the mean leaves is taken out in a second round:
 * a row far from 0 with a small variance would show it. */
static float centre(const struct job *j, const float *x, float *y)
{
    const int64_t cols = j->k->cols;
    const float mean = j->v->sum(x, cols) / (float)cols;
    float rest;

    for (int64_t c = 0; c < cols; c++)
        y[c] = x[c] - mean;
    rest = j->v->sum(y, cols) / (float)cols;
    for (int64_t c = 0; c < cols; c++)
        y[c] -= rest;
    return mean + rest;
}

static void scale(const struct job *j, const float *x, float *y, float rstd)
{
    const int64_t cols = j->k->cols;

    for (int64_t c = 0; c < cols; c++)
        y[c] = x[c] * rstd;
    for (int64_t c = 0; c < cols && j->gain; c++)
        y[c] *= j->gain[c];
    for (int64_t c = 0; c < cols && j->bias; c++)
        y[c] += j->bias[c];
}

static void forward_row(const struct job *j, int64_t r)
{
    const int64_t cols = j->k->cols;
    const float *x = j->x + r * cols;
    float *y = j->y + r * cols, rstd;

    if (j->centred) {
        j->out_mean[r] = centre(j, x, y);
        x = y;
    }
    rstd = 1 / sqrtf(j->v->dot(x, x, cols) / (float)cols + j->k->eps);
    scale(j, x, y, rstd);
    j->out_rstd[r] = rstd;
}

static void forward_block(void *arg, int64_t b)
{
    const struct job *j = arg;

    for (int64_t r = b * j->per; r < min64((b + 1) * j->per, j->k->rows); r++)
        forward_row(j, r);
}

/* ---- backward: with h = (x - mean) rstd and g = gain dy,
 *      dx = rstd (g - mean(g) - h mean(g h)), RMS norm without mean(g) ---- */

static float gain_at(const struct job *j, int64_t c)
{
    return j->gain ? j->gain[c] : 1;
}

/* Means of g and g h over one row. Elements go to lanes by their place. */
static void row_means(const struct job *j, const float *dy, const float *x, float mean, float rstd,
                      float *g_mean, float *gh_mean)
{
    float g_lane[LANES] = {0}, gh_lane[LANES] = {0};
    const int64_t cols = j->k->cols;

    for (int64_t c = 0; c < cols; c += LANES)
        for (int64_t i = 0; i < min64(cols - c, LANES); i++) {
            const float g = gain_at(j, c + i) * dy[c + i];
            g_lane[i] += g;
            gh_lane[i] += g * ((x[c + i] - mean) * rstd);
        }
    for (int i = 1; i < LANES; i++) {
        g_lane[0] += g_lane[i];
        gh_lane[0] += gh_lane[i];
    }
    *g_mean = j->centred ? g_lane[0] / (float)cols : 0;
    *gh_mean = gh_lane[0] / (float)cols;
}

static void add_columns(const struct job *j, const float *dy, const float *x, float mean,
                        float rstd, int64_t block)
{
    const int64_t cols = j->k->cols;
    float *dgain = j->dgain ? j->dgain + block * cols : NULL,
          *dbias = j->dbias ? j->dbias + block * cols : NULL;

    for (int64_t c = 0; c < cols && dgain; c++)
        dgain[c] += dy[c] * ((x[c] - mean) * rstd);
    for (int64_t c = 0; c < cols && dbias; c++)
        dbias[c] += dy[c];
}

static void backward_row(const struct job *j, int64_t r, int64_t block)
{
    const int64_t cols = j->k->cols;
    const float *dy = j->dy + r * cols, *x = j->x + r * cols;
    const float mean = j->centred ? j->mean[r] : 0, rstd = j->rstd[r];
    float *dx = j->y + r * cols, g_mean, gh_mean;

    row_means(j, dy, x, mean, rstd, &g_mean, &gh_mean);
    add_columns(j, dy, x, mean, rstd, block);
    /* last: dx may be the memory of dy or x */
    for (int64_t c = 0; c < cols; c++)
        dx[c] = rstd * (gain_at(j, c) * dy[c] - g_mean - (x[c] - mean) * rstd * gh_mean);
}

static void backward_block(void *arg, int64_t b)
{
    const struct job *j = arg;
    const size_t bytes = (size_t)j->k->cols * sizeof(float);

    if (j->dgain)
        memset(j->dgain + b * j->k->cols, 0, bytes);
    if (j->dbias)
        memset(j->dbias + b * j->k->cols, 0, bytes);
    for (int64_t r = b * j->per; r < min64((b + 1) * j->per, j->k->rows); r++)
        backward_row(j, r, b);
}

static void add_blocks(const struct job *j, const float *partial, float *out)
{
    const int64_t cols = j->k->cols, blocks = ceil_div(j->k->rows, j->per);

    if (!out)
        return;
    memset(out, 0, (size_t)cols * sizeof *out);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t c = 0; c < cols; c++)
            out[c] += partial[b * cols + c];
}

/* ---- running ---- */

static const float *in_of(const struct cpu_op *op, const struct cpu_run *r, int i)
{
    return op->op.in[i] >= 0 ? (const float *)(void *)r->buf[op->op.in[i]] : NULL;
}

static float *out_of(const struct cpu_op *op, const struct cpu_run *r, int i)
{
    return op->op.out[i] >= 0 ? (float *)(void *)r->buf[op->op.out[i]] : NULL;
}

static void run_forward(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_norm *k = &op->op.u.norm;
    const bool centred = op->op.code == KERN_LAYER_NORM;
    struct job j = {.k = k, .v = cpu_vec_for(r->d->isa), .centred = centred};

    j.per = rows_per_block(k, false);
    j.x = in_of(op, r, 0);
    j.gain = in_of(op, r, 1);
    j.bias = centred ? in_of(op, r, 2) : NULL;
    j.y = out_of(op, r, 0);
    j.out_mean = centred ? out_of(op, r, 1) : NULL;
    j.out_rstd = out_of(op, r, centred ? 2 : 1);
    pool_run(r->d->pool, ceil_div(k->rows, j.per), (double)k->rows * (double)k->cols, forward_block,
             &j);
}

static void run_backward(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_norm *k = &op->op.u.norm;
    const bool centred = op->op.code == KERN_LAYER_NORM_GRAD;
    struct job j = {.k = k, .v = cpu_vec_for(r->d->isa), .centred = centred};
    float *dgain = out_of(op, r, 1), *dbias = centred ? out_of(op, r, 2) : NULL;

    j.per = rows_per_block(k, true);
    j.dy = in_of(op, r, 0);
    j.x = in_of(op, r, 1);
    j.gain = in_of(op, r, 2);
    j.mean = centred ? in_of(op, r, 3) : NULL;
    j.rstd = in_of(op, r, centred ? 4 : 3);
    j.y = out_of(op, r, 0);
    j.dgain = dgain ? op->scratch : NULL;
    j.dbias = dbias ? op->scratch + op->scratch_count / 2 : NULL;
    pool_run(r->d->pool, ceil_div(k->rows, j.per), (double)k->rows * (double)k->cols * 2,
             backward_block, &j);
    add_blocks(&j, j.dgain, dgain);
    add_blocks(&j, j.dbias, dbias);
}

/* ---- preparing ---- */

static enum kern_status prepare_forward(const struct kern_program *p, struct cpu_op *op,
                                        int64_t all, struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const bool centred = k->code == KERN_LAYER_NORM;
    enum kern_status rc = cpu_want(p, k, k->in[0], false, DT_F32, all, "x", e);

    op->run = run_forward;
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[1], true, DT_F32, k->u.norm.cols, "gain", e);
    if (rc == KERN_OK && centred)
        rc = cpu_want(p, k, k->in[2], true, DT_F32, k->u.norm.cols, "bias", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->out[0], false, DT_F32, all, "y", e);
    if (rc == KERN_OK && centred)
        rc = cpu_want(p, k, k->out[1], false, DT_F32, k->u.norm.rows, "mean", e);
    return rc == KERN_OK
               ? cpu_want(p, k, k->out[centred ? 2 : 1], false, DT_F32, k->u.norm.rows, "rstd", e)
               : rc;
}

static enum kern_status prepare_backward(const struct kern_program *p, struct cpu_op *op,
                                         int64_t all, struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const int64_t rows = k->u.norm.rows, cols = k->u.norm.cols;
    const bool centred = k->code == KERN_LAYER_NORM_GRAD;
    enum kern_status rc = cpu_want(p, k, k->in[0], false, DT_F32, all, "dy", e);

    op->run = run_backward;
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[1], false, DT_F32, all, "x", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[2], true, DT_F32, cols, "gain", e);
    if (rc == KERN_OK && centred)
        rc = cpu_want(p, k, k->in[3], false, DT_F32, rows, "mean", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[centred ? 4 : 3], false, DT_F32, rows, "rstd", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->out[0], false, DT_F32, all, "dx", e);
    for (int i = 1; i < (centred ? 3 : 2) && rc == KERN_OK; i++)
        rc = cpu_want(p, k, k->out[i], true, DT_F32, cols, i == 1 ? "dgain" : "dbias", e);
    if (rc == KERN_OK &&
        __builtin_mul_overflow(2 * ceil_div(rows, rows_per_block(&k->u.norm, true)), cols,
                               &op->scratch_count))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: the shape is too large", k->label);
    return rc;
}

enum kern_status cpu_prepare_norm(struct kern_dev *d, const struct kern_program *p,
                                  struct cpu_op *op, struct kern_err *e)
{
    const struct kern_norm *n = &op->op.u.norm;
    int64_t all;

    (void)d;
    if (n->cols < 1 || n->rows < 0 || !(n->eps >= 0))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: %lld rows of %lld, eps %g", op->op.label,
                       (long long)n->rows, (long long)n->cols, (double)n->eps);
    if (__builtin_mul_overflow(n->rows, n->cols, &all))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: the shape is too large", op->op.label);
    if (op->op.code == KERN_LAYER_NORM || op->op.code == KERN_RMS_NORM)
        return prepare_forward(p, op, all, e);
    return prepare_backward(p, op, all, e);
}
