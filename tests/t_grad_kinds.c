/* t_grad_kinds.c - a gradient rule holds for every attribute of its op, and at the places where it
 * has to choose: zeros, ties, empty tensors, rows of -inf. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "grad_probe.h"
#include "tap.h"

#define OP(name) ((enum op)EW_##name)
#define A(...) (&(struct op_attr){__VA_ARGS__})
#define TOLERANCE 1e-7 /* as in t_grad.c */

static struct probe p;

static void begin(void)
{
    p = (struct probe){.g = graph_new()};
}

/* The gradients of y, weighed, by all leaves. */
static bool gradients(int y, int *grad)
{
    struct shape s = y < 0 ? (struct shape){0} : graph_node(p.g, y)->shape;
    int seed = y < 0 ? -1 : probe_weights(&p, "w", &s);

    return seed >= 0 && graph_gradient(p.g, &y, &seed, 1, p.leaf, p.n, grad, &p.e) == ERR_OK;
}

/* Compares the gradient of y with differences, and ends the graph. */
__attribute__((format(printf, 2, 3))) static void check(int y, const char *fmt, ...)
{
    int grad[PROBE_LEAVES];
    double most = gradients(y, grad) ? 0 : HUGE_VAL;
    char name[128];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    for (int k = 0; k < p.n && most < HUGE_VAL; k++)
        most = fmax(most, probe_worst(&p, y, p.w, k, grad[k]));
    ok(most <= TOLERANCE, "%s (%.1e) %s", name, most, p.e.msg);
    graph_free(p.g);
}

static int values(int rank, int64_t a, int64_t b, int64_t c)
{
    return probe_leaf(&p, probe_shape(rank, a, b, c), -1, 1);
}

static int ids(struct shape s)
{
    return graph_input(p.g, "ids", &s, DT_I32, &p.e);
}

static int add(enum op op, const int *in, int n, const struct op_attr *a)
{
    return graph_add(p.g, op, in, n, a, &p.e);
}

static int add1(enum op op, int x, const struct op_attr *a)
{
    return add(op, &x, 1, a);
}

/* ---- every axis, every flag ---- */

static void check_reductions(void)
{
    static const enum op ops[] = {OP_SUM, OP_RMAX, OP_RMIN, OP_PROD};

    for (int k = 0; k < 4; k++)
        for (int from = 0; from < 3; from++)
            for (int to = from; to < 3; to++)
                for (int keep = 0; keep < 2; keep++) {
                    uint32_t axes = (2u << to) - (1u << from);
                    begin();
                    check(add1(ops[k], values(3, 2, 3, 4), A(.axes = axes, .keep = keep)),
                          "%s over axes %d .. %d%s", op_name(ops[k]), from + 1, to + 1,
                          keep ? ", kept" : "");
                }
}

static void check_axes(void)
{
    static const enum op ops[] = {OP_SOFTMAX, OP_LOG_SOFTMAX, OP_LOGSUMEXP};

    for (int axis = 0; axis < 3; axis++) {
        for (int k = 0; k < 3; k++) {
            begin();
            check(add1(ops[k], values(3, 3, 2, 4), A(.axis = axis)), "%s along axis %d",
                  op_name(ops[k]), axis + 1);
        }
        for (int flags = 0; flags < 4; flags++) {
            begin();
            check(add1(OP_CUMSUM, values(3, 3, 2, 4),
                       A(.axis = axis, .reverse = flags & 1, .exclusive = flags > 1)),
                  "cumsum along axis %d%s%s", axis + 1, flags & 1 ? ", reverse" : "",
                  flags > 1 ? ", exclusive" : "");
        }
        begin();
        int x = values(3, 2, 2, 2);
        check(add(OP_CONCAT, (int[]){x, values(3, 2, 2, 2), x}, 3, A(.axis = axis)),
              "concat along axis %d, one of them twice", axis + 1);
        begin();
        check(add1(OP_FLIP, values(3, 2, 3, 4), A(.axes = 1u << axis)), "flip of axis %d",
              axis + 1);
    }
}

/* Indices are 0 1 0 0 1 2 ..: some row is read often, and of four one never. */
static void check_indices(void)
{
    for (int axis = 0; axis < 3; axis++) {
        struct shape at = probe_shape(3, 3, 3, 3), grown = probe_shape(3, 3, 3, 3);
        int x, in[3];

        begin();
        x = values(3, axis == 0 ? 4 : 2, axis == 1 ? 4 : 2, axis == 2 ? 4 : 2);
        check(add(OP_TAKE, (int[]){x, ids(probe_shape(2, 2, 3, 0))}, 2, A(.axis = axis)),
              "take along axis %d", axis + 1);
        begin();
        check(add(OP_TAKE, (int[]){values(3, 3, 3, 3), ids(probe_shape(0, 0, 0, 0))}, 2,
                  A(.axis = axis)),
              "take of one index along axis %d", axis + 1);
        begin();
        grown.dim[axis] = 4;
        check(add(OP_TAKE_GRAD, (int[]){values(3, 3, 3, 3), ids(probe_shape(1, 3, 0, 0))}, 2,
                  A(.axis = axis, .shape = grown)),
              "take_grad along axis %d", axis + 1);
        begin();
        check(add(OP_TAKE_ALONG, (int[]){values(3, 3, 3, 3), ids(at)}, 2, A(.axis = axis)),
              "take_along axis %d", axis + 1);
        begin();
        in[0] = values(3, grown.dim[0], grown.dim[1], grown.dim[2]);
        in[1] = ids(at);
        in[2] = values(3, 3, 3, 3);
        check(add(OP_SCATTER_ADD, in, 3, A(.axis = axis)), "scatter_add along axis %d", axis + 1);
    }
}

static void check_slices(void)
{
    for (int step = 1; step < 6; step++)
        for (int from = 0; from < 3; from++) {
            begin();
            check(add1(OP_SLICE, values(2, 2, 9, 0),
                       A(.start = {0, from}, .stop = {2, 8}, .step = {1, step})),
                  "slice %d .. 8 step %d", from + 1, step);
        }
    begin();
    check(add1(OP_SLICE, values(1, 5, 0, 0), A(.start = {2}, .stop = {5}, .step = {INT64_MAX})),
          "slice with the largest step");
    begin();
    check(add1(OP_SLICE, values(2, 3, 4, 0), A(.start = {1, 0}, .stop = {1, 4}, .step = {2, 2})),
          "slice of nothing");
    begin();
    check(add1(OP_PAD, values(1, 3, 0, 0), A(.start = {2}, .stop = {1}, .value = -1)),
          "pad on both sides");
}

static void check_xent(void)
{
    struct shape scalar = {0};

    for (int kind = 0; kind < 8; kind++) {
        bool ignore = kind & 1, smooth = kind & 2, single = kind & 4;
        int in[3];

        begin();
        in[0] = single ? values(1, 4, 0, 0) : values(2, 5, 4, 0);
        in[1] = ids(single ? scalar : probe_shape(1, 5, 0, 0));
        in[2] = graph_const(p.g, 0.1, &scalar, DT_F32, &p.e);
        check(add(OP_XENT, in, smooth ? 3 : 2, A(.has_ignore = ignore, .k = ignore ? 0 : 9)),
              "xent of %s%s%s", single ? "one row" : "five rows", ignore ? ", labels ignored" : "",
              smooth ? ", smoothed" : "");
    }
}

static void check_norms(void)
{
    for (int rank = 1; rank < 4; rank++) {
        struct shape s = probe_shape(rank, rank == 1 ? 4 : 3, rank == 2 ? 4 : 2, 4),
                     wide = probe_shape(2, 1, 4, 0);
        int in[3];

        begin();
        in[0] = probe_leaf(&p, s, -1, 1);
        in[1] = probe_leaf(&p, wide, 0.5, 2);
        in[2] = probe_leaf(&p, wide, -1, 1);
        check(add(OP_LAYER_NORM, in, 3, A(.eps = 1e-2f)), "layer_norm of rank %d", rank);
        begin();
        in[0] = probe_leaf(&p, s, -1, 1);
        in[1] = probe_leaf(&p, wide, 0.5, 2);
        check(add(OP_RMS_NORM, in, 2, A(.eps = 1e-2f)), "rms_norm of rank %d", rank);
    }
}

/* A leaf of this kind; filled by the probe where it is a named one. */
static int leaf_of(enum op op, const struct shape *s)
{
    struct op_attr a = {.shape = *s, .stream = 3, .value = 0.5};

    switch ((int)op) {
    case OP_PARAM:
        return probe_leaf(&p, *s, -1, 1);
    case OP_INPUT:
        return probe_weights(&p, "v", s);
    case OP_HYPER:
        return graph_hyper(p.g, 2, &p.e);
    default:
        return add(op, NULL, 0, &a);
    }
}

/* A leaf has no gradient of its own, and is a value like others in that of the rest. */
static void check_leaves(void)
{
    struct shape s = probe_shape(2, 3, 4, 0);

    for (int op = 0; op < OP_COUNT; op++) {
        int x, y;

        if (op_table[op].grad_kind != OP_GRAD_LEAF)
            continue;
        begin();
        x = values(2, 3, 4, 0);
        y = graph_cast(p.g, leaf_of((enum op)op, &s), DT_F32, &p.e);
        y = graph_scalar_op(p.g, OP(ADD), y, 1, false, &p.e);
        check(graph_binary(p.g, OP(MUL), x, y, &p.e), "times %s", op_name((enum op)op));
    }
}

/* ---- where a rule has to choose ---- */

/* Is element i of the gradient of y by leaf 0 as wanted? NaN is never. */
static void check_points(int y, const double *want, int n, const char *name)
{
    struct graph_eval o = {.leaf = probe_fill, .arg = &p};
    int grad[PROBE_LEAVES];
    bool good = gradients(y, grad) && grad[0] >= 0;
    double **v = good ? graph_values(p.g, &o) : NULL;

    for (int i = 0; v && i < n; i++)
        if (!(fabs(v[grad[0]][i] - want[i] * p.w[i]) <= 1e-12)) {
            good = false;
            note("[%d]: %g, not %g", i, v[grad[0]][i], want[i] * p.w[i]);
        }
    ok(good && v, "%s %s", name, p.e.msg);
    graph_values_free(v, p.g);
    graph_free(p.g);
}

/* A leaf of n given values. */
static int given(const double *v, int n)
{
    int x = values(1, n, 0, 0);
    memcpy(p.value[p.n - 1], v, (size_t)n * sizeof *v);
    return x;
}

#define POINTS(...) ((const double[]){__VA_ARGS__})

static void check_kinks(void)
{
    int x;

    begin();
    check_points(graph_unary(p.g, OP(RELU), given(POINTS(-1, 0, 2), 3), &p.e), POINTS(0, 0, 1), 3,
                 "relu at 0 is 0");
    begin();
    check_points(graph_unary(p.g, OP(ABS), given(POINTS(-1, 0, 2), 3), &p.e), POINTS(-1, 0, 1), 3,
                 "abs at 0 is 0");
    begin();
    x = given(POINTS(-2, 0, 3), 3);
    check_points(graph_scalar_op(p.g, OP(POW), x, 0, false, &p.e), POINTS(0, 0, 0), 3,
                 "x^0 by x is 0, at 0 too");
    begin();
    x = given(POINTS(-2, 0, 3), 3);
    check_points(graph_scalar_op(p.g, OP(POW), x, 1, false, &p.e), POINTS(1, 1, 1), 3,
                 "x^1 by x is 1, at 0 too");
    begin();
    x = given(POINTS(-2, 0, 3), 3);
    check_points(graph_scalar_op(p.g, OP(POW), x, 3, false, &p.e), POINTS(12, 0, 27), 3,
                 "x^3 by x, of a negative x");
    begin();
    x = given(POINTS(0, 1, 2), 3);
    check_points(graph_scalar_op(p.g, OP(POW), x, 2, true, &p.e),
                 POINTS(log(2), 2 * log(2), 4 * log(2)), 3, "2^x by x, at 0 too");
    begin();
    x = given(POINTS(0, 1, 2), 3);
    check_points(graph_scalar_op(p.g, OP(POW), x, 0, true, &p.e), POINTS(0, 0, 0), 3,
                 "0^x by x is 0");
    begin();
    x = given(POINTS(1, 2, 3), 3);
    check_points(graph_scalar_op(p.g, OP(MIN), x, 2, false, &p.e), POINTS(1, 0.5, 0), 3,
                 "min of equals: half");
    begin();
    x = given(POINTS(1, 2, 3), 3);
    check_points(graph_scalar_op(p.g, OP(MAX), x, 2, true, &p.e), POINTS(0, 0.5, 1), 3,
                 "max of equals, on the right: half");
}

/* Of a negative base the logarithm is no number; it must not come in by the back door. */
static void check_power_twice(void)
{
    struct graph_eval o = {.leaf = probe_fill, .arg = &p};
    int grad[PROBE_LEAVES], second[PROBE_LEAVES], a, y;
    bool good = true;
    struct shape s;
    double **v;

    begin();
    a = given(POINTS(-2, 0, 3), 3);
    y = graph_binary(p.g, OP(POW), a, given(POINTS(3, 3, 3), 3), &p.e);
    good = gradients(y, grad);
    s = graph_node(p.g, grad[1])->shape;
    y = probe_weights(&p, "v", &s);
    good = good && graph_gradient(p.g, &grad[1], &y, 1, p.leaf, 2, second, &p.e) == ERR_OK;
    v = graph_values(p.g, &o);
    for (int k = 0; good && k < 2; k++)
        for (int i = 0; i < 3; i++)
            good = good && isfinite(v[second[k]][i]) && (i == 2 || v[second[k]][i] == 0);
    ok(good, "the gradient of log a is 0 where a is not positive %s", p.e.msg);
    graph_values_free(v, p.g);
    graph_free(p.g);
}

/* The weights of a scalar result are p.w[0] alone. */
static void check_shares(void)
{
    static const struct {
        const char *name;
        enum op op;
        double x[4], want[4];
    } cases[] = {{"rmax: three equals", OP_RMAX, {2, 2, 1, 2}, {1. / 3, 1. / 3, 0, 1. / 3}},
                 {"rmin: two equals", OP_RMIN, {5, 1, 1, 2}, {0, 0.5, 0.5, 0}},
                 {"prod with one zero", OP_PROD, {2, 0, 3, 5}, {0, 30, 0, 0}},
                 {"prod with two zeros", OP_PROD, {2, 0, 0, 5}, {0, 0, 0, 0}},
                 {"prod of negatives", OP_PROD, {-1, 2, -3, 1}, {-6, 3, -2, 6}}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph_eval o = {.leaf = probe_fill, .arg = &p};
        int grad[PROBE_LEAVES], x;
        double **v;
        bool good;

        begin();
        x = given(cases[i].x, 4);
        good = gradients(graph_reduce(p.g, cases[i].op, x, 1, false, &p.e), grad);
        v = graph_values(p.g, &o);
        for (int k = 0; good && v && k < 4; k++)
            good = fabs(v[grad[0]][k] - cases[i].want[k] * p.w[0]) <= 1e-12;
        ok(good && v, "%s", cases[i].name);
        graph_values_free(v, p.g);
        graph_free(p.g);
    }
}

/* A row that is masked altogether says nothing, and poisons nothing. */
static void check_masked(void)
{
    static const enum op ops[] = {OP_SOFTMAX, OP_LOG_SOFTMAX};

    for (int k = 0; k < 2; k++) {
        begin();
        check_points(add1(ops[k], given(POINTS(-HUGE_VAL, -HUGE_VAL, -HUGE_VAL), 3), A(.axis = 0)),
                     POINTS(0, 0, 0), 3,
                     k == 0 ? "softmax of a masked row" : "log_softmax of a masked row");
    }
    begin();
    check_points(add1(OP_SOFTMAX, given(POINTS(-HUGE_VAL, 1, -HUGE_VAL), 3), A(.axis = 0)),
                 POINTS(0, 0, 0), 3, "softmax where one element is left");
}

/* ---- empty tensors: shapes are kept, nothing is read ---- */

static void check_empty_of(int y, const char *name)
{
    int grad[PROBE_LEAVES];
    bool good = gradients(y, grad);

    for (int k = 0; good && k < p.n; k++)
        good = grad[k] >= 0 &&
               shape_equal(&graph_node(p.g, grad[k])->shape, &graph_node(p.g, p.leaf[k])->shape);
    ok(good, "%s: %s", name, good ? "each gradient has the shape of its leaf" : p.e.msg);
    graph_free(p.g);
}

static void check_empty(void)
{
    begin();
    check_empty_of(graph_matmul(p.g, values(3, 2, 3, 0), values(2, 0, 4, 0), false, false, &p.e),
                   "matmul of inner size 0, many rows");
    begin();
    check_empty_of(graph_matmul(p.g, values(3, 0, 3, 4), values(2, 4, 2, 0), false, false, &p.e),
                   "matmul of no batches");
    begin();
    check_empty_of(graph_reduce(p.g, OP_SUM, values(2, 0, 3, 0), 1, false, &p.e),
                   "sum over nothing");
    begin();
    check_empty_of(graph_reduce(p.g, OP_PROD, values(2, 3, 0, 0), 2, false, &p.e),
                   "prod over nothing");
    begin();
    check_empty_of(graph_reduce(p.g, OP_PROD, values(2, 3, 0, 0), 1, false, &p.e),
                   "prod of no columns");
    begin();
    check_empty_of(add1(OP_SOFTMAX, values(2, 0, 3, 0), A(.axis = 1)), "softmax of no rows");
    begin();
    check_empty_of(
        add(OP_TAKE, (int[]){values(2, 4, 3, 0), ids(probe_shape(1, 0, 0, 0))}, 2, A(.axis = 0)),
        "take of no rows");
    begin();
    check_empty_of(graph_mean(p.g, values(1, 0, 0, 0), 1, false, &p.e), "mean of nothing");
}

/* ---- fused ops: one derivative is all there is ---- */

/* The line of the op that has none is said, with its path. */
static void check_refused(void)
{
    static const enum op ops[] = {OP_LAYER_NORM, OP_RMS_NORM, OP_XENT};

    for (int k = 0; k < 3; k++) {
        int grad[PROBE_LEAVES], x, in[3], y, again = 0;
        char want[128];
        struct shape s;

        begin();
        graph_at(p.g, "layers.2", "mlp.lua:7");
        x = values(2, 3, 4, 0);
        in[0] = x;
        in[1] = in[2] = k == 2 ? ids(probe_shape(1, 3, 0, 0)) : values(1, 4, 0, 0);
        y = add(ops[k], in, op_table[ops[k]].least, A(.eps = 1e-2f));
        graph_at(p.g, "", "");
        ok(gradients(y, grad), "%s has a gradient %s", op_name(ops[k]), p.e.msg);
        s = graph_node(p.g, grad[0])->shape;
        snprintf(want, sizeof want,
                 "mlp.lua:7: layers.2: %s_grad has no gradient, and a parameter lies behind it",
                 op_name(ops[k]));
        y = probe_weights(&p, "v", &s);
        ok(graph_gradient(p.g, grad, &y, 1, &x, 1, &again, &p.e) == ERR_SHAPE && again == -1 &&
               strcmp(p.e.msg, want) == 0,
           "%s", p.e.msg);
        graph_free(p.g);
    }
}

int main(void)
{
    check_reductions();
    check_axes();
    check_indices();
    check_slices();
    check_xent();
    check_norms();
    check_leaves();
    check_kinks();
    check_power_twice();
    check_shares();
    check_masked();
    check_empty();
    check_refused();
    return tap_done();
}
