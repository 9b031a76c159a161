/* norm.c - layer norm and RMS norm over rows, and their gradients. Column sums go over fixed blocks
 * of rows, added in order. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { BLOCK = 64 }; /* rows that share one partial sum of the gain's gradient */

struct job {
    const struct cpu_op *op;
    const struct cpu_vec *v;
    const float *dy, *x, *gain, *bias, *mean, *rstd;
    float *y, *out_mean, *out_rstd, *dx;
    bool rms;
};

static int64_t blocks_of(const struct kern_norm *k)
{
    return (k->rows + BLOCK - 1) / BLOCK;
}

/* In f64, eight partial sums: a mean of f32 sums would be off by more than the spread of a row of
 * nearly equal values. */
static double row_mean(const float *x, int64_t n)
{
    double s[8] = {0};
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            s[l] += (double)x[i + l];
    for (; i < n; i++)
        s[i % 8] += (double)x[i];
    return (((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))) / (double)n;
}

static void forward_row(const struct job *j, int64_t r)
{
    const struct kern_norm *k = &j->op->op.u.norm;
    const float *x = j->x + r * k->cols;
    float *y = j->y + r * k->cols, rstd;
    double mean = j->rms ? 0 : row_mean(x, k->cols), var;

    /* centred first: the difference of two large sums would lose the variance */
    for (int64_t c = 0; c < k->cols; c++)
        y[c] = (float)((double)x[c] - mean);
    var = j->v->sum_squares(y, k->cols) / (double)k->cols;
    rstd = (float)(1 / sqrt(var + (double)k->eps));
    for (int64_t c = 0; c < k->cols; c++)
        y[c] = y[c] * rstd * (j->gain ? j->gain[c] : 1) + (j->bias ? j->bias[c] : 0);
    if (j->out_mean)
        j->out_mean[r] = (float)mean;
    j->out_rstd[r] = rstd;
}

static void forward_block(void *arg, int64_t b)
{
    const struct job *j = arg;
    int64_t rows = j->op->op.u.norm.rows, end = (b + 1) * BLOCK < rows ? (b + 1) * BLOCK : rows;

    for (int64_t r = b * BLOCK; r < end; r++)
        forward_row(j, r);
}

/* With h = (x - mean) * rstd and g = dy * gain: dx = rstd * (g - mean(g) - h * mean(g * h)); RMS
 * without mean(g). */
static void backward_row(const struct job *j, int64_t r, float *dgain, float *dbias)
{
    const struct kern_norm *k = &j->op->op.u.norm;
    const float *x = j->x + r * k->cols, *dy = j->dy + r * k->cols;
    float *dx = j->dx + r * k->cols, mean = j->mean ? j->mean[r] : 0, rstd = j->rstd[r], sum_g = 0,
          sum_gh = 0, n = (float)k->cols;

    for (int64_t c = 0; c < k->cols; c++) {
        float h = (x[c] - mean) * rstd, g = dy[c] * (j->gain ? j->gain[c] : 1);
        dgain[c] += dy[c] * h;
        dbias[c] += dy[c];
        sum_g += g;
        sum_gh += g * h;
    }
    sum_g = j->rms ? 0 : sum_g / n;
    sum_gh /= n;
    for (int64_t c = 0; c < k->cols; c++) {
        float h = (x[c] - mean) * rstd, g = dy[c] * (j->gain ? j->gain[c] : 1);
        dx[c] = rstd * (g - sum_g - h * sum_gh);
    }
}

static void backward_block(void *arg, int64_t b)
{
    const struct job *j = arg;
    const struct kern_norm *k = &j->op->op.u.norm;
    float *dgain = j->op->scratch + b * 2 * k->cols, *dbias = dgain + k->cols;
    int64_t end = (b + 1) * BLOCK < k->rows ? (b + 1) * BLOCK : k->rows;

    memset(dgain, 0, (size_t)k->cols * 2 * sizeof *dgain);
    for (int64_t r = b * BLOCK; r < end; r++)
        backward_row(j, r, dgain, dbias);
}

static void add_blocks(const struct cpu_op *op, int64_t which, float *out)
{
    const struct kern_norm *k = &op->op.u.norm;

    memset(out, 0, (size_t)k->cols * sizeof *out);
    for (int64_t b = 0; b < blocks_of(k); b++)
        for (int64_t c = 0; c < k->cols; c++)
            out[c] += op->scratch[(b * 2 + which) * k->cols + c];
}

static const float *in_of(const struct cpu_op *op, const struct cpu_run *r, int i)
{
    return op->op.in[i] >= 0 ? (const float *)r->buf[op->op.in[i]] : NULL;
}

static float *out_of(const struct cpu_op *op, const struct cpu_run *r, int i)
{
    return op->op.out[i] >= 0 ? (float *)r->buf[op->op.out[i]] : NULL;
}

static void run_norm(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_norm *k = &op->op.u.norm;
    struct job j = {.op = op, .v = cpu_vec_for(r->d->isa)};
    double ns = (double)k->rows * (double)k->cols;

    j.rms = op->op.code == KERN_RMS_NORM || op->op.code == KERN_RMS_NORM_GRAD;
    if (op->op.code == KERN_LAYER_NORM || op->op.code == KERN_RMS_NORM) {
        j.x = in_of(op, r, 0);
        j.gain = in_of(op, r, 1);
        j.bias = j.rms ? NULL : in_of(op, r, 2);
        j.y = out_of(op, r, 0);
        j.out_mean = j.rms ? NULL : out_of(op, r, 1);
        j.out_rstd = out_of(op, r, j.rms ? 1 : 2);
        pool_run(r->d->pool, blocks_of(k), ns, forward_block, &j);
        return;
    }
    j.dy = in_of(op, r, 0);
    j.x = in_of(op, r, 1);
    j.gain = in_of(op, r, 2);
    j.mean = j.rms ? NULL : in_of(op, r, 3);
    j.rstd = in_of(op, r, j.rms ? 3 : 4);
    j.dx = out_of(op, r, 0);
    pool_run(r->d->pool, blocks_of(k), 2 * ns, backward_block, &j);
    if (op->op.out[1] >= 0)
        add_blocks(op, 0, out_of(op, r, 1));
    if (!j.rms && op->op.out[2] >= 0)
        add_blocks(op, 1, out_of(op, r, 2));
}

enum kern_status cpu_prepare_norm(struct kern_dev *d, const struct kern_program *p,
                                  struct cpu_op *op, struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const struct kern_norm *n = &k->u.norm;
    bool grad = k->code == KERN_LAYER_NORM_GRAD || k->code == KERN_RMS_NORM_GRAD,
         rms = k->code == KERN_RMS_NORM || k->code == KERN_RMS_NORM_GRAD;
    int64_t all, rows = n->rows, cols = n->cols;
    enum kern_status st;

    (void)d;
    if (rows < 0 || cols < 1 || !(n->eps > 0) || __builtin_mul_overflow(rows, cols, &all))
        return cpu_err(e, KERN_EINVAL, "norm: bad sizes or eps");
    op->run = run_norm;
    op->scratch_count = grad ? blocks_of(n) * 2 * cols : 0;
    st = cpu_want(p, k, k->in[0], false, DT_F32, all, grad ? "dy" : "x", e);
    if (st == KERN_OK && grad)
        st = cpu_want(p, k, k->in[1], false, DT_F32, all, "x", e);
    if (st == KERN_OK)
        st = cpu_want(p, k, k->in[grad ? 2 : 1], true, DT_F32, cols, "gain", e);
    if (st == KERN_OK && !grad && !rms)
        st = cpu_want(p, k, k->in[2], true, DT_F32, cols, "bias", e);
    for (int i = 3; st == KERN_OK && grad && i < (rms ? 4 : 5); i++)
        st = cpu_want(p, k, k->in[i], false, DT_F32, rows, "statistics", e);
    if (st == KERN_OK)
        st = cpu_want(p, k, k->out[0], false, DT_F32, all, "result", e);
    for (int i = 1; st == KERN_OK && i < (rms ? 2 : 3); i++)
        st = cpu_want(p, k, k->out[i], grad, DT_F32, grad ? cols : rows,
                      grad ? "gain's gradient" : "statistics", e);
    return st;
}
