/* graph_eval_rows.c - reductions, products, and the fused forms. */
#include "graph_eval_work.h"

#include <math.h>

static double joined(enum op op, double a, double b)
{
    if (op == OP_SUM)
        return a + b;
    if (op == OP_PROD)
        return a * b;
    return eval_formula(op == OP_RMAX ? EW_MAX : EW_MIN, a, b, 0);
}

void eval_reduce(struct work *w)
{
    enum op op = w->n->op;
    int64_t at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++)
        w->out[i] = op == OP_SUM ? 0 : op == OP_PROD ? 1 : op == OP_RMAX ? -HUGE_VAL : HUGE_VAL;
    for (int64_t i = 0; i < shape_count(in_shape(w, 0)); i++) {
        int64_t r = 0;
        eval_unravel(i, in_shape(w, 0), at);
        for (int d = 0; d < in_shape(w, 0)->rank; d++)
            if (!(w->n->attr.axes >> d & 1))
                r = r * in_shape(w, 0)->dim[d] + at[d];
        w->out[r] = joined(op, w->out[r], in_value(w, 0)[i]);
    }
}

/* A NaN is larger than every number. */
static bool larger(double a, double b)
{
    return isnan(a) ? !isnan(b) : a > b;
}

/* The place of the k-th largest of n values, equals by place. */
static int64_t nth_largest(const double *x, int64_t n, int64_t step, int64_t k)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < n; j++)
            before +=
                larger(x[j * step], x[i * step]) || (j < i && !larger(x[i * step], x[j * step]));
        if (before == k)
            return i;
    }
    return -1;
}

static double log_sum_exp(const double *x, int64_t n, int64_t step)
{
    double most = -HUGE_VAL, sum = 0;

    for (int64_t k = 0; k < n; k++)
        most = eval_formula(EW_MAX, most, x[k * step], 0);
    if (!isfinite(most))
        return most;
    for (int64_t k = 0; k < n; k++)
        sum += exp(x[k * step] - most);
    return most + log(sum);
}

static void cumsum_line(const struct op_attr *a, const double *x, double *out, int64_t n,
                        int64_t step)
{
    double sum = 0;

    for (int64_t j = 0; j < n; j++) {
        int64_t k = a->reverse ? n - 1 - j : j;
        if (a->exclusive)
            out[k * step] = sum;
        sum += x[k * step];
        if (!a->exclusive)
            out[k * step] = sum;
    }
}

static void eval_line(const struct node *n, const double *x, double *out, int64_t len, int64_t step)
{
    double lse = log_sum_exp(x, len, step);

    if (n->op == OP_LOGSUMEXP)
        out[0] = lse;
    else if (n->op == OP_ARGMAX)
        out[0] = (double)nth_largest(x, len, step, 0);
    else if (n->op == OP_CUMSUM)
        cumsum_line(&n->attr, x, out, len, step);
    for (int64_t k = 0; k < len; k++) {
        if (n->op == OP_SOFTMAX)
            out[k * step] = lse == -HUGE_VAL ? 0 : exp(x[k * step] - lse);
        else if (n->op == OP_LOG_SOFTMAX)
            out[k * step] = lse == -HUGE_VAL ? lse : x[k * step] - lse;
        else if (n->op == OP_TOPK_IDX && k < n->attr.k)
            out[k * step] = (double)nth_largest(x, len, step, k);
    }
}

void eval_axis(struct work *w)
{
    struct around a = eval_around(in_shape(w, 0), w->n->attr.axis);
    int64_t lines = a.outer * a.inner, made = lines ? w->count / lines : 0;

    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t i = 0; i < a.inner; i++)
            eval_line(w->n, in_value(w, 0) + o * a.n * a.inner + i, w->out + o * made * a.inner + i,
                      a.n, a.inner);
}

void eval_matmul(struct work *w)
{
    const struct shape *sa = in_shape(w, 0), *sb = in_shape(w, 1), *s = &w->n->shape;
    bool ta = w->n->attr.ta, tb = w->n->attr.tb;
    int row = s->rank - 2, col = s->rank - 1;
    int64_t inner = sa->dim[sa->rank - (ta ? 2 : 1)], at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++) {
        eval_unravel(i, s, at);
        int64_t m = at[row], n = at[col];
        for (int64_t k = 0; k < inner; k++) {
            at[row] = ta ? k : m;
            at[col] = ta ? m : k;
            double a = in_value(w, 0)[eval_stretched(at, s->rank, sa)];
            at[row] = tb ? n : k;
            at[col] = tb ? k : n;
            w->out[i] += a * in_value(w, 1)[eval_stretched(at, s->rank, sb)];
        }
    }
}

/* ---- fused forms: output k ---- */

struct row {
    double mean, rstd;
};

static struct row row_of(const struct node *n, const double *x, int64_t cols)
{
    struct row r = {0};
    double square = 0;

    for (int64_t k = 0; k < cols && (n->op == OP_LAYER_NORM || n->op == OP_LAYER_NORM_GRAD); k++)
        r.mean += x[k] / (double)cols;
    for (int64_t k = 0; k < cols; k++)
        square += (x[k] - r.mean) * (x[k] - r.mean) / (double)cols;
    r.rstd = 1 / sqrt(square + (double)n->attr.eps);
    return r;
}

static void eval_norm(struct work *w, int64_t out)
{
    const struct shape *s = in_shape(w, 0);
    int64_t cols = s->dim[s->rank - 1], rows = cols ? shape_count(s) / cols : 0;

    for (int64_t r = 0; r < rows; r++) {
        const double *x = in_value(w, 0) + r * cols;
        struct row st = row_of(w->n, x, cols);
        if (out > 0)
            w->out[r] = out == 1 && w->n->op == OP_LAYER_NORM ? st.mean : st.rstd;
        for (int64_t k = 0; k < cols && out == 0; k++)
            w->out[r * cols + k] = (x[k] - st.mean) * st.rstd * in_value(w, 1)[k] +
                                   (w->n->n_in > 2 ? in_value(w, 2)[k] : 0);
    }
}

/* From the given mean and rstd, as a kernel has them. */
static void eval_norm_grad(struct work *w, int64_t out)
{
    const struct shape *s = in_shape(w, 1);
    bool layer = w->n->op == OP_LAYER_NORM_GRAD;
    int64_t cols = s->dim[s->rank - 1], rows = cols ? shape_count(s) / cols : 0;

    for (int64_t r = 0; r < rows; r++) {
        const double *dy = in_value(w, 0) + r * cols, *x = in_value(w, 1) + r * cols,
                     *gain = in_value(w, 2);
        double mean = layer ? in_value(w, 3)[r] : 0, rstd = in_value(w, layer ? 4 : 3)[r], a = 0,
               b = 0;
        for (int64_t k = 0; k < cols; k++) {
            double h = (x[k] - mean) * rstd;
            a += dy[k] * gain[k] / (double)cols;
            b += dy[k] * gain[k] * h / (double)cols;
            if (out > 0)
                w->out[k] += out == 1 ? dy[k] * h : dy[k];
        }
        for (int64_t k = 0; k < cols && out == 0; k++)
            w->out[r * cols + k] =
                rstd * (dy[k] * gain[k] - (layer ? a : 0) - (x[k] - mean) * rstd * b);
    }
}

static void eval_xent(struct work *w, int64_t out)
{
    const struct shape *s = in_shape(w, 0);
    int64_t cols = s->dim[s->rank - 1];
    double smooth = w->n->n_in > 2 ? in_value(w, 2)[0] : 0;

    for (int64_t r = 0; r < w->count; r++) {
        const double *x = in_value(w, 0) + r * cols;
        double lse = log_sum_exp(x, cols, 1), mean = 0;
        int64_t label = (int64_t)in_value(w, 1)[r];
        for (int64_t k = 0; k < cols && smooth != 0; k++) /* 0 * -inf would be NaN */
            mean += x[k] / (double)cols;
        if (out == 1)
            w->out[r] = lse;
        else if (w->n->attr.has_ignore && label == w->n->attr.k)
            w->out[r] = 0;
        else if (label < 0 || label >= cols)
            w->out[r] = (double)NAN;
        else
            w->out[r] = lse - (1 - smooth) * x[label] - smooth * mean;
    }
}

void eval_xent_grad(struct work *w)
{
    int last = w->n->n_in - 1;
    int64_t cols = w->n->shape.dim[w->n->shape.rank - 1];
    double smooth = w->n->n_in > 4 ? in_value(w, 2)[0] : 0;

    for (int64_t i = 0; i < w->count; i++) {
        int64_t r = i / cols, k = i % cols, label = (int64_t)in_value(w, 1)[r];
        double lse = in_value(w, last - 1)[r];
        double p = lse == -HUGE_VAL ? 0 : exp(in_value(w, 0)[i] - lse);
        bool ignored = w->n->attr.has_ignore && label == w->n->attr.k;
        w->out[i] =
            in_value(w, last)[r] * (p - (k == label ? 1 - smooth : 0) - smooth / (double)cols);
        if (ignored || label < 0 || label >= cols)
            w->out[i] = ignored ? 0 : (double)NAN;
    }
}

void eval_output(struct work *w, int64_t out)
{
    switch ((int)w->n->op) {
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
        eval_norm(w, out);
        break;
    case OP_LAYER_NORM_GRAD:
    case OP_RMS_NORM_GRAD:
        eval_norm_grad(w, out);
        break;
    case OP_XENT:
        eval_xent(w, out);
        break;
    default:
        for (int64_t i = 0; i < w->count; i++)
            w->out[i] = (double)NAN;
    }
}
