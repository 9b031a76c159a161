/* rows.c - what treats a tensor row by row: the softmax family, norms, cross entropy. */
#include "kernels/ref/ref.h"

/* Log of the sum of exponentials of n elements, `step` apart. -inf for none, or when all are -inf;
 * NaN if one is; +inf if one is and none is NaN. */
static double logsumexp(const double *x, int64_t n, int64_t step)
{
    double max = -INFINITY, sum = 0;

    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i * step]))
            return NAN;
        max = fmax(max, x[i * step]);
    }
    if (isinf(max))
        return max; /* max - max would be NaN */
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i * step] - max);
    return max + log(sum);
}

/* exp(x - lse): of a row all -inf (a fully masked one) every probability is 0. */
static double probability(double x, double lse)
{
    return lse == -INFINITY ? 0 : exp(x - lse);
}

void ref_softmax(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_axis *a = &op->u.axis;

    for (int64_t row = 0; row < a->outer * a->inner; row++) {
        const int64_t at = row / a->inner * a->n * a->inner + row % a->inner;
        const double *x = ref_f32(r, op->in[0]) + at;
        const double lse = logsumexp(x, a->n, a->inner);
        double *out = ref_f32(r, op->out[0]);
        if (op->code == KERN_LOGSUMEXP) {
            out[row] = lse;
            continue;
        }
        for (int64_t i = 0; i < a->n * a->inner; i += a->inner) {
            if (op->code == KERN_SOFTMAX)
                out[at + i] = probability(x[i], lse);
            else
                out[at + i] = lse == -INFINITY ? lse : x[i] - lse;
        }
    }
}

/* ---- norms ---- */

static double gain_at(const double *gain, int64_t j)
{
    return gain ? gain[j] : 1;
}

void ref_layer_norm(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_norm *n = &op->u.norm;
    const double *gain = ref_f32(r, op->in[1]), *bias = ref_f32(r, op->in[2]);
    const double cols = (double)n->cols;

    for (int64_t i = 0; i < n->rows; i++) {
        const double *x = ref_f32(r, op->in[0]) + i * n->cols;
        double *y = ref_f32(r, op->out[0]) + i * n->cols;
        double mean = 0, var = 0, rstd;
        for (int64_t j = 0; j < n->cols; j++)
            mean += x[j] / cols;
        for (int64_t j = 0; j < n->cols; j++)
            var += (x[j] - mean) * (x[j] - mean) / cols;
        rstd = 1 / sqrt(var + (double)n->eps);
        for (int64_t j = 0; j < n->cols; j++)
            y[j] = (x[j] - mean) * rstd * gain_at(gain, j) + (bias ? bias[j] : 0);
        ref_f32(r, op->out[1])[i] = mean;
        ref_f32(r, op->out[2])[i] = rstd;
    }
}

/* With xh = (x - mean) rstd and g = gain dy:  dx = rstd (g - mean(g) - xh mean(g xh)). */
static void layer_norm_row_grad(double *dx, const double *dy, const double *x, const double *gain,
                                double mean, double rstd, int64_t cols)
{
    double g_mean = 0, gx_mean = 0;

    for (int64_t j = 0; j < cols; j++) {
        const double g = gain_at(gain, j) * dy[j];
        g_mean += g / (double)cols;
        gx_mean += g * (x[j] - mean) * rstd / (double)cols;
    }
    for (int64_t j = 0; j < cols; j++)
        dx[j] = rstd * (gain_at(gain, j) * dy[j] - g_mean - (x[j] - mean) * rstd * gx_mean);
}

static void zero(double *out, int64_t n)
{
    for (int64_t i = 0; out && i < n; i++)
        out[i] = 0;
}

void ref_layer_norm_grad(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_norm *n = &op->u.norm;
    double *dgain = ref_f32(r, op->out[1]), *dbias = ref_f32(r, op->out[2]);

    zero(dgain, n->cols);
    zero(dbias, n->cols);
    for (int64_t i = 0; i < n->rows; i++) {
        const double *dy = ref_f32(r, op->in[0]) + i * n->cols;
        const double *x = ref_f32(r, op->in[1]) + i * n->cols;
        const double mean = ref_f32(r, op->in[3])[i], rstd = ref_f32(r, op->in[4])[i];
        for (int64_t j = 0; dgain && j < n->cols; j++)
            dgain[j] += dy[j] * (x[j] - mean) * rstd;
        for (int64_t j = 0; dbias && j < n->cols; j++)
            dbias[j] += dy[j];
        /* last: dx may be the memory of dy or x */
        layer_norm_row_grad(ref_f32(r, op->out[0]) + i * n->cols, dy, x, ref_f32(r, op->in[2]),
                            mean, rstd, n->cols);
    }
}

void ref_rms_norm(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_norm *n = &op->u.norm;
    const double *gain = ref_f32(r, op->in[1]);

    for (int64_t i = 0; i < n->rows; i++) {
        const double *x = ref_f32(r, op->in[0]) + i * n->cols;
        double *y = ref_f32(r, op->out[0]) + i * n->cols;
        double square = 0, rstd;
        for (int64_t j = 0; j < n->cols; j++)
            square += x[j] * x[j] / (double)n->cols;
        rstd = 1 / sqrt(square + (double)n->eps);
        for (int64_t j = 0; j < n->cols; j++)
            y[j] = x[j] * rstd * gain_at(gain, j);
        ref_f32(r, op->out[1])[i] = rstd;
    }
}

/* With g = gain dy:  dx = rstd (g - x rstd^2 mean(g x)). */
void ref_rms_norm_grad(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_norm *n = &op->u.norm;
    const double *gain = ref_f32(r, op->in[2]);
    double *dgain = ref_f32(r, op->out[1]);

    zero(dgain, n->cols);
    for (int64_t i = 0; i < n->rows; i++) {
        const double *dy = ref_f32(r, op->in[0]) + i * n->cols;
        const double *x = ref_f32(r, op->in[1]) + i * n->cols;
        const double rstd = ref_f32(r, op->in[3])[i];
        double *dx = ref_f32(r, op->out[0]) + i * n->cols, mean = 0;
        for (int64_t j = 0; j < n->cols; j++) {
            mean += gain_at(gain, j) * dy[j] * x[j] / (double)n->cols;
            if (dgain)
                dgain[j] += dy[j] * x[j] * rstd;
        }
        for (int64_t j = 0; j < n->cols; j++)
            dx[j] = rstd * (gain_at(gain, j) * dy[j] - x[j] * rstd * rstd * mean);
    }
}

/* ---- cross entropy ---- */

static bool ignored(const struct kern_xent *x, int64_t label)
{
    return x->has_ignore && label == x->ignore;
}

static double smoothing(const struct ref_run *r, const struct kern_op *op)
{
    return op->in[2] < 0 ? 0 : ref_f32(r, op->in[2])[0];
}

/* s == 0 leaves the mean out: 0 times a masked class's -inf would be NaN. */
static double xent_row(const double *logits, int64_t cols, int64_t label, double lse, double s)
{
    double mean = 0;

    if (label < 0 || label >= cols)
        return NAN;
    if (s == 0)
        return lse - logits[label];
    for (int64_t j = 0; j < cols; j++)
        mean += logits[j] / (double)cols;
    return lse - (1 - s) * logits[label] - s * mean;
}

void ref_xent(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_xent *x = &op->u.xent;

    for (int64_t i = 0; i < x->rows; i++) {
        const double *logits = ref_f32(r, op->in[0]) + i * x->cols;
        const int64_t label = ref_wrap(ref_i32(r, op->in[1])[i]);
        const double lse = logsumexp(logits, x->cols, 1);
        ref_f32(r, op->out[0])[i] =
            ignored(x, label) ? 0 : xent_row(logits, x->cols, label, lse, smoothing(r, op));
        ref_f32(r, op->out[1])[i] = lse;
    }
}

/* The gradient of a loss that is NaN (a label that is no class) is NaN too, so that the update is
 * skipped. */
void ref_xent_grad(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_xent *x = &op->u.xent;
    const double s = smoothing(r, op);

    for (int64_t i = 0; i < x->rows; i++) {
        const double *logits = ref_f32(r, op->in[0]) + i * x->cols;
        const int64_t label = ref_wrap(ref_i32(r, op->in[1])[i]);
        const double lse = ref_f32(r, op->in[3])[i], dloss = ref_f32(r, op->in[4])[i];
        const bool none = ignored(x, label), bad = label < 0 || label >= x->cols;
        double *out = ref_f32(r, op->out[0]) + i * x->cols;
        for (int64_t j = 0; j < x->cols; j++) {
            const double hot = j == label ? 1 - s : 0;
            const double d = probability(logits[j], lse) - hot - s / (double)x->cols;
            out[j] = none ? 0 : bad ? NAN : dloss * d;
        }
    }
}
