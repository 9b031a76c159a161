/* nn_eval.c - a loop an op, written from the contracts of kernels.h and ew.h alone. */
#include "nn_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct work {
    const struct graph *g;
    const struct node *n;
    const struct shape *s, *sx; /* of the result, of the first input */
    double **value;             /* of all nodes before */
    double *out;
    const double *x, *y, *z; /* inputs */
    int64_t count, count_x;
    int64_t outer, len, inner; /* the first input around the op's axis */
};

static void unravel(int64_t i, const struct shape *s, int64_t at[SHAPE_RANK])
{
    for (int d = s->rank - 1; d >= 0; d--) {
        at[d] = i % s->dim[d];
        i /= s->dim[d];
    }
}

static int64_t ravel(const int64_t *at, const struct shape *s)
{
    int64_t i = 0;
    for (int d = 0; d < s->rank; d++)
        i = i * s->dim[d] + at[d];
    return i;
}

/* The element of a tensor of shape s that index `at` of the shape `to` reads, by the numpy rule. */
static int64_t stretched(const int64_t *at, const struct shape *to, const struct shape *s)
{
    int64_t i = 0;
    for (int d = 0; d < s->rank; d++)
        i = i * s->dim[d] + (s->dim[d] == 1 ? 0 : at[to->rank - s->rank + d]);
    return i;
}

static const struct node *input(const struct work *w, int k)
{
    return graph_node(w->g, w->n->in[k]);
}

// clang-format off
static double elementwise(enum ew op, double a, double b, double c)
{
    switch (op) {
    case EW_NEG: return -a;
    case EW_ABS: return fabs(a);
    case EW_EXP: return exp(a);
    case EW_EXPM1: return expm1(a);
    case EW_LOG: return log(a);
    case EW_LOG1P: return log1p(a);
    case EW_SQRT: return sqrt(a);
    case EW_RSQRT: return 1 / sqrt(a);
    case EW_RECIP: return 1 / a;
    case EW_SIN: return sin(a);
    case EW_COS: return cos(a);
    case EW_TANH: return tanh(a);
    case EW_ERF: return erf(a);
    case EW_SIGMOID: return 1 / (1 + exp(-a));
    case EW_RELU: return a > 0 ? a : isnan(a) ? a : 0;
    case EW_FLOOR: return floor(a);
    case EW_ROUND: return rint(a);
    case EW_SIGN: return (a > 0) - (a < 0);
    case EW_ISFINITE: return isfinite(a);
    case EW_NOT: return a == 0;
    case EW_ADD: return a + b;
    case EW_SUB: return a - b;
    case EW_MUL: return a * b;
    case EW_DIV: return a / b;
    case EW_POW: return pow(a, b);
    case EW_MAX: return a > b ? a : b;
    case EW_MIN: return a < b ? a : b;
    case EW_MOD: return a - b * floor(a / b);
    case EW_LT: return a < b;
    case EW_LE: return a <= b;
    case EW_EQ: return a == b;
    case EW_NE: return a != b;
    case EW_AND: return a != 0 && b != 0;
    case EW_OR: return a != 0 || b != 0;
    case EW_SELECT: return a != 0 ? b : c;
    case EW_COUNT: break;
    }
    return (double)NAN;
}
// clang-format on

static void eval_elementwise(struct work *w)
{
    int64_t at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++) {
        double v[3] = {0};
        unravel(i, w->s, at);
        for (int k = 0; k < w->n->n_in; k++)
            v[k] = w->value[w->n->in[k]][stretched(at, w->s, &input(w, k)->shape)];
        w->out[i] = elementwise((enum ew)w->n->op, v[0], v[1], v[2]);
    }
}

/* Ops whose every result is one element of the first input. */
static void eval_index(struct work *w)
{
    const struct op_attr *a = &w->n->attr;
    int64_t at[SHAPE_RANK], from[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++) {
        unravel(i, w->s, at);
        memcpy(from, at, sizeof from);
        for (int d = 0; d < w->s->rank; d++) {
            if (w->n->op == OP_PERMUTE)
                from[a->perm[d]] = at[d];
            else if (w->n->op == OP_SLICE)
                from[d] = a->start[d] + at[d] * a->step[d];
            else if (w->n->op == OP_FLIP && (a->axes >> d & 1))
                from[d] = w->s->dim[d] - 1 - at[d];
            else if (w->n->op == OP_TAKE_ALONG && d == a->axis)
                from[d] = (int64_t)w->y[i];
        }
        w->out[i] =
            w->x[w->n->op == OP_BROADCAST ? stretched(at, w->s, w->sx) : ravel(from, w->sx)];
    }
}

static void eval_pad(struct work *w)
{
    int64_t at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++)
        w->out[i] = w->n->attr.value;
    for (int64_t i = 0; i < w->count_x; i++) {
        unravel(i, w->sx, at);
        for (int d = 0; d < w->s->rank; d++)
            at[d] += w->n->attr.start[d];
        w->out[ravel(at, w->s)] = w->x[i];
    }
}

static void eval_concat(struct work *w)
{
    int64_t at[SHAPE_RANK], before = 0;

    for (int k = 0; k < w->n->n_in; k++) {
        const struct shape *s = &input(w, k)->shape;
        for (int64_t i = 0; i < shape_count(s); i++) {
            unravel(i, s, at);
            at[w->n->attr.axis] += before;
            w->out[ravel(at, w->s)] = w->value[w->n->in[k]][i];
        }
        before += s->dim[w->n->attr.axis];
    }
}

static void eval_scatter_add(struct work *w)
{
    const struct shape *s = &input(w, 1)->shape;
    int64_t at[SHAPE_RANK];

    memcpy(w->out, w->x, (size_t)w->count * sizeof *w->out);
    for (int64_t i = 0; i < shape_count(s); i++) {
        unravel(i, s, at);
        at[w->n->attr.axis] = (int64_t)w->y[i];
        w->out[ravel(at, w->s)] += w->z[i];
    }
}

static void eval_reduce(struct work *w)
{
    enum op op = w->n->op;
    int64_t at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++)
        w->out[i] = op == OP_SUM ? 0 : op == OP_PROD ? 1 : op == OP_RMAX ? -HUGE_VAL : HUGE_VAL;
    for (int64_t i = 0; i < w->count_x; i++) {
        int64_t r = 0;
        unravel(i, w->sx, at);
        for (int d = 0; d < w->sx->rank; d++)
            if (!(w->n->attr.axes >> d & 1))
                r = r * w->sx->dim[d] + at[d];
        w->out[r] = op == OP_SUM    ? w->out[r] + w->x[i]
                    : op == OP_PROD ? w->out[r] * w->x[i]
                    : op == OP_RMAX ? fmax(w->out[r], w->x[i])
                                    : fmin(w->out[r], w->x[i]);
    }
}

/* The k-th largest of n values with a stride, equals by place. */
static int64_t nth_largest(const double *x, int64_t n, int64_t stride, int64_t k)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < n; j++)
            before += x[j * stride] > x[i * stride] || (x[j * stride] == x[i * stride] && j < i);
        if (before == k)
            return i;
    }
    return -1;
}

/* One line along the axis: x has len elements, out as many as the op makes, both `inner` apart. */
static void eval_line(const struct work *w, const double *x, double *out)
{
    int64_t n = w->len, step = w->inner;
    double most = -HUGE_VAL, sum = 0;

    for (int64_t k = 0; k < n; k++)
        most = fmax(most, x[k * step]);
    for (int64_t k = 0; k < n; k++)
        sum += exp(x[k * step] - most);
    double lse = log(sum) + most, running = 0;
    if (w->n->op == OP_LOGSUMEXP)
        out[0] = lse;
    else if (w->n->op == OP_ARGMAX)
        out[0] = (double)nth_largest(x, n, step, 0);
    for (int64_t k = 0; k < n; k++) {
        if (w->n->op == OP_SOFTMAX)
            out[k * step] = exp(x[k * step] - lse);
        else if (w->n->op == OP_LOG_SOFTMAX)
            out[k * step] = x[k * step] - lse;
        else if (w->n->op == OP_CUMSUM)
            out[k * step] = running += x[k * step];
        else if (w->n->op == OP_TOPK_IDX && k < w->n->attr.k)
            out[k * step] = (double)nth_largest(x, n, step, k);
    }
}

static void eval_axis(struct work *w)
{
    int64_t made = w->count / (w->outer * w->inner); /* elements of a line of the result */

    for (int64_t o = 0; o < w->outer; o++)
        for (int64_t i = 0; i < w->inner; i++)
            eval_line(w, w->x + o * w->len * w->inner + i, w->out + o * made * w->inner + i);
}

static void eval_take(struct work *w)
{
    int64_t ids = shape_count(&input(w, 1)->shape);

    for (int64_t o = 0; o < w->outer; o++)
        for (int64_t k = 0; k < ids; k++)
            for (int64_t i = 0; i < w->inner; i++)
                w->out[(o * ids + k) * w->inner + i] =
                    w->x[(o * w->len + (int64_t)w->y[k]) * w->inner + i];
}

static void eval_matmul(struct work *w)
{
    const struct shape *sy = &input(w, 1)->shape;
    bool ta = w->n->attr.ta, tb = w->n->attr.tb;
    int row = w->s->rank - 2, col = w->s->rank - 1;
    int64_t inner = w->sx->dim[w->sx->rank - (ta ? 2 : 1)], at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++) {
        unravel(i, w->s, at);
        int64_t m = at[row], n = at[col];
        for (int64_t k = 0; k < inner; k++) {
            at[row] = ta ? k : m;
            at[col] = ta ? m : k;
            double a = w->x[stretched(at, w->s, w->sx)];
            at[row] = tb ? n : k;
            at[col] = tb ? k : n;
            w->out[i] += a * w->y[stretched(at, w->s, sy)];
        }
    }
}

static void eval_norm(struct work *w)
{
    int64_t cols = w->sx->dim[w->sx->rank - 1];

    for (int64_t r = 0; r < w->count / cols; r++) {
        const double *x = w->x + r * cols;
        double mean = 0, square = 0;
        for (int64_t k = 0; k < cols && w->n->op == OP_LAYER_NORM; k++)
            mean += x[k] / (double)cols;
        for (int64_t k = 0; k < cols; k++)
            square += (x[k] - mean) * (x[k] - mean) / (double)cols;
        for (int64_t k = 0; k < cols; k++)
            w->out[r * cols + k] = (x[k] - mean) / sqrt(square + (double)w->n->attr.eps) * w->y[k] +
                                   (w->z ? w->z[k] : 0);
    }
}

static void eval_xent(struct work *w)
{
    int64_t cols = w->sx->dim[w->sx->rank - 1];
    double smooth = w->z ? w->z[0] : 0;

    for (int64_t r = 0; r < w->count; r++) {
        const double *x = w->x + r * cols;
        double most = -HUGE_VAL, sum = 0, mean = 0;
        for (int64_t k = 0; k < cols; k++)
            most = fmax(most, x[k]);
        for (int64_t k = 0; k < cols; k++) {
            sum += exp(x[k] - most);
            mean += x[k] / (double)cols;
        }
        if (!w->n->attr.has_ignore || (int64_t)w->y[r] != w->n->attr.k)
            w->out[r] = log(sum) + most - (1 - smooth) * x[(int64_t)w->y[r]] - smooth * mean;
    }
}

static void eval_simple(struct work *w)
{
    int64_t at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++) {
        double v = w->x ? w->x[i] : w->n->attr.value;
        if (w->n->op == OP_IOTA) {
            unravel(i, w->s, at);
            v = (double)at[w->n->attr.axis];
        } else if (w->n->op == OP_CAST && w->n->dtype == DT_BOOL) {
            v = v != 0;
        } else if (w->n->op == OP_CAST && w->n->dtype == DT_I32) {
            v = trunc(v);
        }
        w->out[i] = v;
    }
}

static void eval_node(struct work *w)
{
    if (w->n->op < (enum op)EW_COUNT) {
        eval_elementwise(w);
        return;
    }
    switch ((int)w->n->op) {
    case OP_CONST:
    case OP_IOTA:
    case OP_CAST:
    case OP_RESHAPE:
    case OP_STOP_GRADIENT:
        eval_simple(w);
        break;
    case OP_PERMUTE:
    case OP_BROADCAST:
    case OP_SLICE:
    case OP_FLIP:
    case OP_TAKE_ALONG:
        eval_index(w);
        break;
    case OP_SUM:
    case OP_RMAX:
    case OP_RMIN:
    case OP_PROD:
        eval_reduce(w);
        break;
    case OP_ARGMAX:
    case OP_TOPK_IDX:
    case OP_CUMSUM:
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX:
    case OP_LOGSUMEXP:
        eval_axis(w);
        break;
    case OP_PAD:
        eval_pad(w);
        break;
    case OP_CONCAT:
        eval_concat(w);
        break;
    case OP_TAKE:
        eval_take(w);
        break;
    case OP_SCATTER_ADD:
        eval_scatter_add(w);
        break;
    case OP_MATMUL:
        eval_matmul(w);
        break;
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
        eval_norm(w);
        break;
    case OP_XENT:
        eval_xent(w);
        break;
    default:
        for (int64_t i = 0; i < w->count; i++)
            w->out[i] = (double)NAN;
    }
}

/* What eval_node needs to know of node n. */
static struct work work_of(const struct graph *g, const struct node *n, double **value)
{
    struct work w = {
        .g = g, .n = n, .s = &n->shape, .value = value, .count = shape_count(&n->shape)};

    w.outer = w.len = w.inner = 1;
    if (n->n_in == 0)
        return w;
    w.sx = &graph_node(g, n->in[0])->shape;
    w.count_x = shape_count(w.sx);
    w.x = value[n->in[0]];
    w.y = n->n_in > 1 ? value[n->in[1]] : NULL;
    w.z = n->n_in > 2 ? value[n->in[2]] : NULL;
    for (int d = 0; d < w.sx->rank; d++)
        *(d < n->attr.axis ? &w.outer : d == n->attr.axis ? &w.len : &w.inner) *= w.sx->dim[d];
    return w;
}

double *nn_eval(const struct graph *g, int id, nn_leaf_fn *leaf, void *arg)
{
    double **value = calloc((size_t)id + 1, sizeof *value), *result;

    for (int i = 0; i <= id; i++) {
        const struct node *n = graph_node(g, i);
        struct work w = work_of(g, n, value);
        w.out = value[i] = calloc((size_t)w.count + 1, sizeof *w.out);
        if (n->op == OP_PARAM || n->op == OP_INPUT || n->op == OP_HYPER)
            leaf(arg, n, w.out);
        else
            eval_node(&w);
    }
    result = value[id];
    for (int i = 0; i < id; i++)
        free(value[i]);
    free(value);
    return result;
}
