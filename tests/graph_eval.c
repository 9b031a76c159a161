/* graph_eval.c - a loop an op: elementwise ops, and those that move elements. */
#include "graph_eval_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/philox.h"

void eval_unravel(int64_t i, const struct shape *s, int64_t *at)
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

int64_t eval_stretched(const int64_t *at, int rank, const struct shape *s)
{
    int64_t i = 0;
    for (int d = 0; d < s->rank; d++)
        i = i * s->dim[d] + (s->dim[d] == 1 ? 0 : at[rank - s->rank + d]);
    return i;
}

struct around eval_around(const struct shape *s, int axis)
{
    struct around r = {1, s->rank > 0 ? s->dim[axis] : 1, 1};

    for (int d = 0; d < axis; d++)
        r.outer *= s->dim[d];
    for (int d = axis + 1; d < s->rank; d++)
        r.inner *= s->dim[d];
    return r;
}

/* Lua's %: the divisor's sign. */
static double remainder_of(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// clang-format off
double eval_formula(enum ew op, double a, double b, double c)
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
    case EW_RELU: return a > 0 || isnan(a) ? a : 0;
    case EW_FLOOR: return floor(a);
    case EW_ROUND: return rint(a);
    case EW_SIGN: return isnan(a) ? a : (a > 0) - (a < 0);
    case EW_ISFINITE: return isfinite(a) != 0;
    case EW_NOT: return a == 0;
    case EW_ADD: return a + b;
    case EW_SUB: return a - b;
    case EW_MUL: return a * b;
    case EW_DIV: return a / b;
    case EW_POW: return pow(a, b);
    case EW_MAX: return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
    case EW_MIN: return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b;
    case EW_MOD: return remainder_of(a, b);
    case EW_LT: return a < b;
    case EW_LE: return a <= b;
    case EW_EQ: return a == b;
    case EW_NE: return !(a == b);
    case EW_AND: return a != 0 && b != 0;
    case EW_OR: return a != 0 || b != 0;
    case EW_SELECT: return a != 0 ? b : c;
    case EW_COUNT: break;
    }
    return (double)NAN;
}
// clang-format on

/* Whole numbers wrap as 32 bits do; what is divided by zero is 0. */
static double whole(enum ew op, double a, double b)
{
    int64_t x = (int64_t)a, y = (int64_t)b;

    switch (op) {
    case EW_DIV:
        return y == 0 ? 0 : (double)(int32_t)(x / y);
    case EW_MOD:
        return y == 0 ? 0 : remainder_of(a, b);
    case EW_MUL: /* beyond 2^53 a double would round */
        return (double)(int32_t)(x * y);
    case EW_NEG:
    case EW_ABS:
    case EW_ADD:
    case EW_SUB:
        return (double)(int32_t)(int64_t)eval_formula(op, a, b, 0);
    default:
        return eval_formula(op, a, b, 0);
    }
}

static void eval_ew(struct work *w)
{
    enum dtype t = graph_node(w->g, w->n->in[w->n->n_in - 1])->dtype;

    for (int64_t i = 0; i < w->count; i++) {
        double x[3] = {0};
        for (int k = 0; k < w->n->n_in; k++)
            x[k] = in_value(w, k)[i];
        w->out[i] = t == DT_I32 && w->n->n_in < 3
                        ? whole((enum ew)w->n->op, x[0], x[1])
                        : eval_formula((enum ew)w->n->op, x[0], x[1], x[2]);
    }
}

/* ---- leaves, casts, random numbers ---- */

static uint32_t word_of(const struct work *w, int64_t i)
{
    uint64_t first = 0;

    if (w->n->attr.per_sample && w->count > 0)
        first = w->o->sample_base * (uint64_t)(w->count / w->n->shape.dim[0]);
    return philox_word(w->o->seed, PHILOX_GRAPH, w->n->attr.stream, w->o->step,
                       first + (uint64_t)i);
}

static double dropped(const struct work *w, int64_t i)
{
    double p = in_value(w, 1)[0];
    uint32_t least = (uint32_t)ceilf((float)p * 16777216.0f);

    return word_of(w, i) >> 8 >= least && p < 1 ? in_value(w, 0)[i] * (1 / (1 - p)) : 0;
}

static double cast_to(enum dtype t, double x)
{
    if (t == DT_BOOL)
        return x != 0;
    if (t == DT_I32)
        return isnan(x) ? 0 : fmin(fmax(trunc(x), INT32_MIN), INT32_MAX);
    return x;
}

static void eval_simple(struct work *w)
{
    int64_t at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++) {
        switch (w->n->op) {
        case OP_CONST:
            w->out[i] = w->n->attr.value;
            break;
        case OP_IOTA:
            eval_unravel(i, &w->n->shape, at);
            w->out[i] = (double)at[w->n->attr.axis];
            break;
        case OP_RNG_UNIFORM:
            w->out[i] = (double)philox_uniform(word_of(w, i));
            break;
        case OP_RNG_BITS:
            w->out[i] = (double)(int32_t)word_of(w, i);
            break;
        case OP_DROPOUT:
            w->out[i] = dropped(w, i);
            break;
        case OP_CAST:
            w->out[i] = cast_to(w->n->dtype, in_value(w, 0)[i]);
            break;
        default: /* reshape, stop_gradient */
            w->out[i] = in_value(w, 0)[i];
        }
    }
}

/* ---- ops that move elements ---- */

/* Where element `at` of the result lies in the first input. */
static int64_t moved(const struct work *w, int64_t i, const int64_t *at)
{
    const struct op_attr *a = &w->n->attr;
    int64_t from[SHAPE_RANK];

    memcpy(from, at, sizeof from);
    for (int d = 0; d < w->n->shape.rank; d++) {
        if (w->n->op == OP_PERMUTE)
            from[a->perm[d]] = at[d];
        else if (w->n->op == OP_SLICE)
            from[d] = a->start[d] + at[d] * a->step[d];
        else if (w->n->op == OP_FLIP && a->axes >> d & 1)
            from[d] = w->n->shape.dim[d] - 1 - at[d];
        else if (w->n->op == OP_TAKE_ALONG && d == a->axis)
            from[d] = (int64_t)in_value(w, 1)[i];
    }
    if (w->n->op == OP_BROADCAST)
        return eval_stretched(at, w->n->shape.rank, in_shape(w, 0));
    return ravel(from, in_shape(w, 0));
}

static void eval_moved(struct work *w)
{
    int64_t at[SHAPE_RANK] = {0};

    for (int64_t i = 0; i < w->count; i++) {
        eval_unravel(i, &w->n->shape, at);
        w->out[i] = in_value(w, 0)[moved(w, i, at)];
    }
}

static void eval_pad(struct work *w)
{
    int64_t at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++)
        w->out[i] = w->n->attr.value;
    for (int64_t i = 0; i < shape_count(in_shape(w, 0)); i++) {
        eval_unravel(i, in_shape(w, 0), at);
        for (int d = 0; d < w->n->shape.rank; d++)
            at[d] += w->n->attr.start[d];
        w->out[ravel(at, &w->n->shape)] = in_value(w, 0)[i];
    }
}

static void eval_concat(struct work *w)
{
    int64_t at[SHAPE_RANK], before = 0;

    for (int k = 0; k < w->n->n_in; k++) {
        const struct shape *s = in_shape(w, k);
        for (int64_t i = 0; i < shape_count(s); i++) {
            eval_unravel(i, s, at);
            at[w->n->attr.axis] += before;
            w->out[ravel(at, &w->n->shape)] = in_value(w, k)[i];
        }
        before += s->dim[w->n->attr.axis];
    }
}

/* take and its gradient: the same walk, reading or adding. */
static void eval_take(struct work *w)
{
    bool back = w->n->op == OP_TAKE_GRAD;
    struct around a = eval_around(back ? &w->n->shape : in_shape(w, 0), w->n->attr.axis);
    int64_t ids = shape_count(in_shape(w, 1));

    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t k = 0; k < ids; k++)
            for (int64_t i = 0; i < a.inner; i++) {
                int64_t id = (int64_t)in_value(w, 1)[k], far = (o * a.n + id) * a.inner + i,
                        near = (o * ids + k) * a.inner + i;
                if (id < 0 || id >= a.n)
                    continue;
                if (back)
                    w->out[far] += in_value(w, 0)[near];
                else
                    w->out[near] = in_value(w, 0)[far];
            }
}

static void eval_scatter_add(struct work *w)
{
    int64_t at[SHAPE_RANK];

    for (int64_t i = 0; i < w->count; i++)
        w->out[i] = in_value(w, 0)[i];
    for (int64_t i = 0; i < shape_count(in_shape(w, 1)); i++) {
        eval_unravel(i, in_shape(w, 1), at);
        at[w->n->attr.axis] = (int64_t)in_value(w, 1)[i];
        w->out[ravel(at, &w->n->shape)] += in_value(w, 2)[i];
    }
}

/* ---- all of them ---- */

static void eval_node(struct work *w)
{
    if (w->n->op < (enum op)EW_COUNT) {
        eval_ew(w);
        return;
    }
    switch ((int)w->n->op) {
    case OP_PARAM:
    case OP_BUFFER:
    case OP_INPUT:
    case OP_HYPER:
        w->o->leaf(w->o->arg, w->n, w->out);
        break;
    case OP_CONST:
    case OP_IOTA:
    case OP_RNG_UNIFORM:
    case OP_RNG_BITS:
    case OP_CAST:
    case OP_DROPOUT:
    case OP_RESHAPE:
    case OP_STOP_GRADIENT:
        eval_simple(w);
        break;
    case OP_PERMUTE:
    case OP_BROADCAST:
    case OP_SLICE:
    case OP_FLIP:
    case OP_TAKE_ALONG:
        eval_moved(w);
        break;
    case OP_PAD:
        eval_pad(w);
        break;
    case OP_CONCAT:
        eval_concat(w);
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
    case OP_MATMUL:
        eval_matmul(w);
        break;
    case OP_TAKE:
    case OP_TAKE_GRAD:
        eval_take(w);
        break;
    case OP_SCATTER_ADD:
        eval_scatter_add(w);
        break;
    case OP_XENT_GRAD:
        eval_xent_grad(w);
        break;
    default:
        eval_output(w, 0);
    }
}

double **graph_values(const struct graph *g, const struct graph_eval *o)
{
    double **v = calloc((size_t)graph_count(g) + 1, sizeof *v);

    for (int id = 0; v && id < graph_count(g); id++) {
        struct work w = {.g = g, .o = o, .n = graph_node(g, id), .v = v};
        const struct node *self = w.n;
        w.count = shape_count(&w.n->shape);
        v[id] = w.out = calloc((size_t)w.count + 1, sizeof *w.out);
        if (!w.out) {
            graph_values_free(v, g);
            return NULL;
        }
        if (self->op == OP_OUT) {
            w.n = graph_node(g, self->in[0]);
            eval_output(&w, self->attr.k);
        } else {
            eval_node(&w);
        }
        for (int64_t i = 0; i < w.count && o->round && self->dtype == DT_F32; i++)
            w.out[i] = (double)(float)w.out[i];
    }
    return v;
}

void graph_values_free(double **values, const struct graph *g)
{
    for (int id = 0; values && id < graph_count(g); id++)
        free(values[id]);
    free(values);
}
