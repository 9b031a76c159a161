/* t_grad.c - every gradient rule agrees with finite differences, and so does the rule's own
 * gradient where it has one. Central differences in f64, step cbrt(eps) * max(1, |x|), each element
 * of leaves of at most 64; inputs are spread so that no two are alike and none is at a kink. What
 * is left is the second-order error of the difference (about 1e-10 here) and its rounding (1e-16 /
 * 1e-5): 1e-7 is above both and far below any wrong factor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "grad_probe.h"
#include "tap.h"

#define TOLERANCE 1e-7

static bool covered[OP_COUNT];

typedef int build_fn(struct probe *p);

static int values(struct probe *p, struct shape s)
{
    return probe_leaf(p, s, -1, 1);
}

/* The gradient by each leaf, into grad; false when there is an error. */
static bool gradients(struct probe *p, int y, int seed, int *grad)
{
    return graph_gradient(p->g, &y, &seed, 1, p->leaf, p->n, grad, &p->e) == ERR_OK;
}

/* The gradient's gradient is refused, and the op named that has none. */
static void check_refused(struct probe *p, const char *name, int grad)
{
    enum op op = graph_node(p->g, grad)->op;
    struct shape s = graph_node(p->g, grad)->shape;
    int second[PROBE_LEAVES];

    covered[op] = op_table[op].grad_kind == OP_GRAD_REFUSED &&
                  !gradients(p, grad, probe_weights(p, "v", &s), second) &&
                  p->e.code == ERR_SHAPE && strstr(p->e.msg, op_name(op)) != NULL;
    ok(covered[op], "%s: its gradient has none: %s", name, p->e.msg);
}

static void check(const char *name, enum op op, build_fn *build, bool twice)
{
    struct probe p = {.g = graph_new()};
    int y = build(&p), grad[PROBE_LEAVES], second[PROBE_LEAVES];
    double most = 0;
    bool there = false, good;
    struct shape s;

    for (int i = 0; y >= 0 && i <= y; i++)
        there = there || graph_node(p.g, i)->op == op;
    ok(there, "%s: is in the graph%s%s", name, y < 0 ? ": " : "", y < 0 ? p.e.msg : "");
    if (y < 0 || !there) {
        graph_free(p.g);
        return;
    }
    s = graph_node(p.g, y)->shape;
    good = gradients(&p, y, probe_weights(&p, "w", &s), grad);
    for (int k = 0; k < p.n && good; k++)
        most = fmax(most, probe_worst(&p, y, p.w, k, grad[k]));
    if (ok(good && most <= TOLERANCE, "%s: the gradient is that of differences (%.1e)%s%s", name,
           most, good ? "" : ": ", good ? "" : p.e.msg))
        covered[op] = true;
    if (good && !twice)
        check_refused(&p, name, grad[0]);
    for (int j = 0; twice && good && j < p.n; j++) {
        if (grad[j] < 0)
            continue;
        char in[16];
        snprintf(in, sizeof in, "v%d", j);
        s = graph_node(p.g, grad[j])->shape;
        good = gradients(&p, grad[j], probe_weights(&p, in, &s), second);
        most = 0;
        for (int k = 0; k < p.n && good; k++)
            most = fmax(most, probe_worst(&p, grad[j], p.v, k, second[k]));
        ok(good && most <= 10 * TOLERANCE, "%s: and again, by p%d (%.1e)%s%s", name, j, most,
           good ? "" : ": ", good ? "" : p.e.msg);
    }
    graph_free(p.g);
}

/* ---- graphs ---- */

static int add(struct probe *p, enum op op, const int *in, int n, const struct op_attr *a)
{
    return graph_add(p->g, op, in, n, a, &p->e);
}

static int add1(struct probe *p, enum op op, int x, const struct op_attr *a)
{
    return add(p, op, &x, 1, a);
}

static int ids(struct probe *p, struct shape s)
{
    return graph_input(p->g, "ids", &s, DT_I32, &p->e);
}

static enum ew current; /* the elementwise op that make_unary and make_binary build */

static int make_unary(struct probe *p)
{
    return graph_unary(p->g, (enum op)current, probe_leaf(p, probe_shape(2, 2, 5, 0), -2, 2),
                       &p->e);
}

static int make_unary_positive(struct probe *p)
{
    return graph_unary(p->g, (enum op)current, probe_leaf(p, probe_shape(2, 2, 5, 0), 0.3, 2),
                       &p->e);
}

static int make_binary(struct probe *p)
{
    int a = values(p, probe_shape(2, 3, 4, 0)), b = values(p, probe_shape(1, 4, 0, 0));
    return graph_binary(p->g, (enum op)current, a, b, &p->e);
}

static int make_binary_positive(struct probe *p)
{
    int a = probe_leaf(p, probe_shape(2, 3, 4, 0), 0.3, 3),
        b = probe_leaf(p, probe_shape(2, 3, 1, 0), 0.5, 2);
    return graph_binary(p->g, (enum op)current, a, b, &p->e);
}

static int make_select(struct probe *p)
{
    int a = values(p, probe_shape(2, 3, 4, 0)), b = values(p, probe_shape(1, 4, 0, 0)),
        zero = graph_scalar_op(p->g, (enum op)EW_MUL, a, 0, false, &p->e);
    return graph_select(p->g, graph_binary(p->g, (enum op)EW_LT, a, zero, &p->e), a, b, &p->e);
}

static int make_cast(struct probe *p)
{
    struct op_attr a = {.dtype = DT_F32};
    return add1(p, OP_CAST, values(p, probe_shape(1, 6, 0, 0)), &a);
}

static int make_dropout(struct probe *p)
{
    struct shape s = {0};
    int in[2] = {values(p, probe_shape(2, 4, 8, 0)), graph_const(p->g, 0.4, &s, DT_F32, &p->e)};
    struct op_attr a = {.stream = 12, .per_sample = true};
    return add(p, OP_DROPOUT, in, 2, &a);
}

static int make_reshape(struct probe *p)
{
    struct shape s = probe_shape(3, 2, -1, 3);
    return graph_reshape(p->g, values(p, probe_shape(2, 4, 6, 0)), &s, &p->e);
}

static int make_permute(struct probe *p)
{
    return graph_permute(p->g, values(p, probe_shape(3, 2, 3, 4)), (int[]){2, 0, 1}, &p->e);
}

static int make_broadcast(struct probe *p)
{
    struct shape s = probe_shape(3, 3, 2, 4);
    return graph_broadcast(p->g, values(p, probe_shape(2, 1, 4, 0)), &s, &p->e);
}

static int make_broadcast_6(struct probe *p)
{
    struct shape from = {.rank = 6, .dim = {1, 2, 1, 3, 1, 2}},
                 to = {.rank = 6, .dim = {2, 2, 3, 3, 2, 2}};
    return graph_broadcast(p->g, values(p, from), &to, &p->e);
}

static int make_slice(struct probe *p)
{
    struct op_attr a = {.start = {1, 0, 2}, .stop = {3, 2, 4}, .step = {1, 1, 1}};
    return add1(p, OP_SLICE, values(p, probe_shape(3, 3, 3, 5)), &a);
}

static int make_slice_steps(struct probe *p)
{
    struct op_attr a = {.start = {1, 0, 0}, .stop = {4, 3, 5}, .step = {2, 1, 3}};
    return add1(p, OP_SLICE, values(p, probe_shape(3, 4, 3, 5)), &a);
}

/* the last step goes past the end, and one dimension is one element */
static int make_slice_past(struct probe *p)
{
    struct op_attr a = {.start = {4, 2}, .stop = {5, 7}, .step = {7, 2}};
    return add1(p, OP_SLICE, values(p, probe_shape(2, 5, 7, 0)), &a);
}

static int make_pad(struct probe *p)
{
    struct op_attr a = {.start = {1, 0}, .stop = {0, 2}, .value = 3};
    return add1(p, OP_PAD, values(p, probe_shape(2, 3, 4, 0)), &a);
}

static int make_concat(struct probe *p)
{
    int in[3] = {values(p, probe_shape(2, 2, 3, 0)), values(p, probe_shape(2, 2, 1, 0)), -1};
    struct op_attr a = {.axis = 1};
    in[2] = in[0];
    return add(p, OP_CONCAT, in, 3, &a);
}

static int make_flip(struct probe *p)
{
    struct op_attr a = {.axes = 5};
    return add1(p, OP_FLIP, values(p, probe_shape(3, 2, 3, 4)), &a);
}

static int make_sum(struct probe *p)
{
    return graph_reduce(p->g, OP_SUM, values(p, probe_shape(3, 2, 3, 4)), 2, false, &p->e);
}

static int make_sum_apart(struct probe *p)
{
    return graph_reduce(p->g, OP_SUM, values(p, probe_shape(3, 2, 3, 4)), 5, true, &p->e);
}

static int make_mean(struct probe *p)
{
    return graph_mean(p->g, values(p, probe_shape(3, 2, 3, 4)), 7, false, &p->e);
}

static int make_rmax(struct probe *p)
{
    return graph_reduce(p->g, OP_RMAX, values(p, probe_shape(3, 2, 3, 4)), 6, true, &p->e);
}

static int make_rmin(struct probe *p)
{
    return graph_reduce(p->g, OP_RMIN, values(p, probe_shape(3, 2, 3, 4)), 1, false, &p->e);
}

static int make_prod(struct probe *p)
{
    return graph_reduce(p->g, OP_PROD, values(p, probe_shape(3, 2, 5, 2)), 2, false, &p->e);
}

static int make_prod_all(struct probe *p)
{
    return graph_reduce(p->g, OP_PROD, probe_leaf(p, probe_shape(2, 2, 3, 0), 0.5, 1.5), 3, true,
                        &p->e);
}

/* a zero among the factors */
static int make_prod_zero(struct probe *p)
{
    int x = values(p, probe_shape(2, 3, 4, 0));
    p->value[0][2] = 0;
    return graph_reduce(p->g, OP_PROD, x, 2, false, &p->e);
}

static int make_cumsum(struct probe *p)
{
    struct op_attr a = {.axis = 1};
    return add1(p, OP_CUMSUM, values(p, probe_shape(3, 2, 4, 2)), &a);
}

static int make_cumsum_back(struct probe *p)
{
    struct op_attr a = {.axis = 0, .reverse = true, .exclusive = true};
    return add1(p, OP_CUMSUM, values(p, probe_shape(2, 5, 2, 0)), &a);
}

static bool flag_a, flag_b;

static int make_matmul(struct probe *p)
{
    int a = values(p, flag_a ? probe_shape(2, 4, 3, 0) : probe_shape(2, 3, 4, 0));
    int b = values(p, flag_b ? probe_shape(2, 5, 4, 0) : probe_shape(2, 4, 5, 0));
    return graph_matmul(p->g, a, b, flag_a, flag_b, &p->e);
}

/* one weight for a batch of matrices */
static int make_matmul_rows(struct probe *p)
{
    int a = values(p, flag_a ? probe_shape(3, 2, 4, 3) : probe_shape(3, 2, 3, 4));
    int b = values(p, flag_b ? probe_shape(2, 5, 4, 0) : probe_shape(2, 4, 5, 0));
    return graph_matmul(p->g, a, b, flag_a, flag_b, &p->e);
}

static int make_matmul_left(struct probe *p)
{
    int a = values(p, flag_a ? probe_shape(2, 4, 3, 0) : probe_shape(2, 3, 4, 0));
    int b = values(p, flag_b ? probe_shape(3, 2, 2, 4) : probe_shape(3, 2, 4, 2));
    return graph_matmul(p->g, a, b, flag_a, flag_b, &p->e);
}

static int make_matmul_batch(struct probe *p)
{
    int a = values(p, flag_a ? probe_shape(3, 2, 4, 3) : probe_shape(3, 2, 3, 4));
    int b = values(p, flag_b ? probe_shape(3, 2, 2, 4) : probe_shape(3, 2, 4, 2));
    return graph_matmul(p->g, a, b, flag_a, flag_b, &p->e);
}

/* leading [2, 1] by [1, 3] */
static int make_matmul_both(struct probe *p)
{
    struct shape sa = {.rank = 4, .dim = {2, 1, 2, 3}}, sb = {.rank = 4, .dim = {1, 3, 3, 2}};
    struct shape ta = {.rank = 4, .dim = {2, 1, 3, 2}}, tb = {.rank = 4, .dim = {1, 3, 2, 3}};
    int a = values(p, flag_a ? ta : sa), b = values(p, flag_b ? tb : sb);
    return graph_matmul(p->g, a, b, flag_a, flag_b, &p->e);
}

static int make_matmul_rank(struct probe *p)
{
    struct shape sb = {.rank = 4, .dim = {2, 3, 3, 2}}, tb = {.rank = 4, .dim = {2, 3, 2, 3}};
    int a = values(p, flag_a ? probe_shape(3, 3, 3, 2) : probe_shape(3, 3, 2, 3)),
        b = values(p, flag_b ? tb : sb);
    return graph_matmul(p->g, a, b, flag_a, flag_b, &p->e);
}

static int make_take(struct probe *p)
{
    int in[2] = {values(p, probe_shape(3, 2, 3, 4)), ids(p, probe_shape(2, 2, 3, 0))};
    struct op_attr a = {.axis = 1};
    return add(p, OP_TAKE, in, 2, &a);
}

static int make_take_grad(struct probe *p)
{
    int in[2] = {values(p, probe_shape(3, 2, 3, 4)), ids(p, probe_shape(1, 3, 0, 0))};
    struct op_attr a = {.axis = 1, .shape = probe_shape(3, 2, 5, 4)};
    return add(p, OP_TAKE_GRAD, in, 2, &a);
}

static int make_take_along(struct probe *p)
{
    int in[2] = {values(p, probe_shape(2, 3, 4, 0)), ids(p, probe_shape(2, 3, 2, 0))};
    struct op_attr a = {.axis = 1};
    return add(p, OP_TAKE_ALONG, in, 2, &a);
}

static int make_scatter_add(struct probe *p)
{
    int dst = values(p, probe_shape(2, 3, 4, 0)),
        in[3] = {dst, ids(p, probe_shape(2, 3, 2, 0)), values(p, probe_shape(2, 3, 2, 0))};
    struct op_attr a = {.axis = 1};
    return add(p, OP_SCATTER_ADD, in, 3, &a);
}

static int make_softmax(struct probe *p)
{
    struct op_attr a = {.axis = 1};
    return add1(p, OP_SOFTMAX, values(p, probe_shape(3, 2, 4, 2)), &a);
}

static int make_log_softmax(struct probe *p)
{
    struct op_attr a = {.axis = 1};
    return add1(p, OP_LOG_SOFTMAX, values(p, probe_shape(2, 3, 4, 0)), &a);
}

static int make_logsumexp(struct probe *p)
{
    struct op_attr a = {.axis = 0};
    return add1(p, OP_LOGSUMEXP, values(p, probe_shape(2, 3, 4, 0)), &a);
}

static int make_layer_norm(struct probe *p)
{
    int x = values(p, probe_shape(3, 2, 2, 5)),
        in[3] = {x, probe_leaf(p, probe_shape(1, 5, 0, 0), 0.5, 2),
                 values(p, probe_shape(1, 5, 0, 0))};
    struct op_attr a = {.eps = 1e-3f};
    return add(p, OP_LAYER_NORM, in, 3, &a);
}

static int make_rms_norm(struct probe *p)
{
    int x = values(p, probe_shape(2, 3, 5, 0)),
        in[2] = {x, probe_leaf(p, probe_shape(1, 5, 0, 0), 0.5, 2)};
    struct op_attr a = {.eps = 1e-3f};
    return add(p, OP_RMS_NORM, in, 2, &a);
}

static int make_xent(struct probe *p)
{
    int in[2] = {values(p, probe_shape(3, 2, 2, 4)), ids(p, probe_shape(2, 2, 2, 0))};
    return add(p, OP_XENT, in, 2, NULL);
}

static int make_xent_smooth(struct probe *p)
{
    struct shape s = {0};
    int in[3] = {values(p, probe_shape(2, 4, 3, 0)), ids(p, probe_shape(1, 4, 0, 0)),
                 graph_const(p->g, 0.2, &s, DT_F32, &p->e)};
    struct op_attr a = {.has_ignore = true, .k = 1};
    return add(p, OP_XENT, in, 3, &a);
}

/* one leaf in several places, and through a value that another leaf joins later */
static int make_shared(struct probe *p)
{
    int x = values(p, probe_shape(2, 3, 3, 0)), b = values(p, probe_shape(1, 3, 0, 0));
    int h =
        graph_unary(p->g, (enum op)EW_TANH, graph_matmul(p->g, x, x, false, false, &p->e), &p->e);
    int y = graph_binary(p->g, (enum op)EW_MUL, graph_binary(p->g, (enum op)EW_ADD, h, b, &p->e), x,
                         &p->e);
    return graph_binary(p->g, (enum op)EW_ADD, y, h, &p->e);
}

static const struct {
    const char *name;
    enum op op;
    build_fn *build;
    bool twice; /* the gradient is made of ops that have one */
} cases[] = {
    {"select", (enum op)EW_SELECT, make_select, true},
    {"cast to its own type", OP_CAST, make_cast, true},
    {"dropout", OP_DROPOUT, make_dropout, true},
    {"reshape", OP_RESHAPE, make_reshape, true},
    {"permute", OP_PERMUTE, make_permute, true},
    {"broadcast", OP_BROADCAST, make_broadcast, true},
    {"broadcast of rank 6", OP_BROADCAST, make_broadcast_6, true},
    {"slice", OP_SLICE, make_slice, true},
    {"slice with steps", OP_SLICE, make_slice_steps, true},
    {"slice with steps past the end", OP_SLICE, make_slice_past, true},
    {"pad", OP_PAD, make_pad, true},
    {"concat", OP_CONCAT, make_concat, true},
    {"flip", OP_FLIP, make_flip, true},
    {"sum", OP_SUM, make_sum, true},
    {"sum over axes apart", OP_SUM, make_sum_apart, true},
    {"mean", OP_SUM, make_mean, true},
    {"rmax", OP_RMAX, make_rmax, true},
    {"rmin", OP_RMIN, make_rmin, true},
    {"prod", OP_PROD, make_prod, true},
    {"prod over all", OP_PROD, make_prod_all, true},
    {"prod with a zero", OP_PROD, make_prod_zero, true},
    {"cumsum", OP_CUMSUM, make_cumsum, true},
    {"cumsum, reverse and exclusive", OP_CUMSUM, make_cumsum_back, true},
    {"take", OP_TAKE, make_take, true},
    {"take_grad", OP_TAKE_GRAD, make_take_grad, true},
    {"take_along", OP_TAKE_ALONG, make_take_along, true},
    {"scatter_add", OP_SCATTER_ADD, make_scatter_add, true},
    {"softmax", OP_SOFTMAX, make_softmax, true},
    {"log_softmax", OP_LOG_SOFTMAX, make_log_softmax, true},
    {"logsumexp", OP_LOGSUMEXP, make_logsumexp, true},
    {"layer_norm", OP_LAYER_NORM, make_layer_norm, false},
    {"rms_norm", OP_RMS_NORM, make_rms_norm, false},
    {"xent", OP_XENT, make_xent, false},
    {"xent, smoothed, with an ignored label", OP_XENT, make_xent_smooth, false},
    {"a leaf used several times", OP_MATMUL, make_shared, true},
};

static bool needs_positive(enum ew op)
{
    return op == EW_LOG || op == EW_LOG1P || op == EW_SQRT || op == EW_RSQRT || op == EW_RECIP ||
           op == EW_DIV || op == EW_POW || op == EW_MOD;
}

static void check_elementwise(void)
{
    for (int op = 0; op < EW_COUNT; op++) {
        const struct op_def *d = &op_table[op];
        current = (enum ew)op;
        if (d->grad_kind != OP_GRAD_RULE || op == EW_SELECT)
            continue;
        check(d->name, (enum op)op,
              d->most == 1              ? needs_positive(current) ? make_unary_positive : make_unary
              : needs_positive(current) ? make_binary_positive
                                        : make_binary,
              true);
    }
}

static void check_matmul(void)
{
    static const struct {
        const char *name;
        build_fn *build;
    } kinds[] = {{"matmul", make_matmul},
                 {"matmul, one right matrix", make_matmul_rows},
                 {"matmul, one left matrix", make_matmul_left},
                 {"matmul, batches", make_matmul_batch},
                 {"matmul, both broadcast", make_matmul_both},
                 {"matmul, ranks differ", make_matmul_rank}};

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int f = 0; f < 4; f++) {
            char name[64];
            flag_a = f & 1;
            flag_b = f >> 1;
            snprintf(name, sizeof name, "%s%s%s", kinds[k].name, flag_a ? " ta" : "",
                     flag_b ? " tb" : "");
            check(name, OP_MATMUL, kinds[k].build, true);
        }
}

/* ---- where there is nothing to compare ---- */

/* What is declared zero passes nothing on, and is no error. */
static void check_zero(void)
{
    for (int op = 0; op < OP_COUNT; op++) {
        struct probe p = {.g = graph_new()};
        struct op_attr a = {.axis = 1, .k = 2};
        int in[3], x, y, g, w;

        if (op_table[op].grad_kind != OP_GRAD_ZERO) {
            graph_free(p.g);
            continue;
        }
        x = values(&p, probe_shape(2, 3, 4, 0));
        for (int i = 0; i < 3; i++)
            in[i] =
                op == EW_NOT || op == EW_AND || op == EW_OR ? graph_cast(p.g, x, DT_BOOL, &p.e) : x;
        y = graph_cast(p.g, add(&p, (enum op)op, in, op_table[op].least, op < EW_COUNT ? NULL : &a),
                       DT_F32, &p.e);
        w = y < 0 ? -1 : graph_const(p.g, 1, &graph_node(p.g, y)->shape, DT_F32, &p.e);
        g = 0;
        ok(w >= 0 && graph_gradient(p.g, &y, &w, 1, &x, 1, &g, &p.e) == ERR_OK && g == -1,
           "%s: nothing goes back", op_table[op].name);
        covered[op] = true;
        graph_free(p.g);
    }
}

/* What a rule has no answer for is refused, not taken for zero. */
static void check_no_answer(void)
{
    struct probe p = {.g = graph_new()};
    struct shape scalar = {0};
    struct err e = {0};
    int x = values(&p, probe_shape(2, 3, 5, 0)), rate = probe_leaf(&p, scalar, 0.2, 0.3),
        in[3] = {x, rate, 0}, y, w, g;
    struct op_attr a = {.eps = 1e-3f};

    y = add(&p, OP_DROPOUT, in, 2, &(struct op_attr){.stream = 1});
    w = graph_const(p.g, 1, &graph_node(p.g, y)->shape, DT_F32, &e);
    ok(graph_gradient(p.g, &y, &w, 1, &rate, 1, &g, &e) == ERR_SHAPE, "the rate of a dropout: %s",
       e.msg);
    in[1] = ids(&p, probe_shape(1, 3, 0, 0));
    in[2] = rate;
    y = add(&p, OP_XENT, in, 3, NULL);
    w = graph_const(p.g, 1, &graph_node(p.g, y)->shape, DT_F32, &e);
    ok(graph_gradient(p.g, &y, &w, 1, &rate, 1, &g, &e) == ERR_SHAPE,
       "the smoothing of an xent: %s", e.msg);
    in[1] = values(&p, probe_shape(1, 5, 0, 0));
    y = graph_out(p.g, add(&p, OP_RMS_NORM, in, 2, &a), 1, &e);
    w = graph_const(p.g, 1, &graph_node(p.g, y)->shape, DT_F32, &e);
    ok(graph_gradient(p.g, &y, &w, 1, &x, 1, &g, &e) == ERR_SHAPE,
       "the second output of a norm: %s", e.msg);
    covered[OP_OUT] = true;
    graph_free(p.g);
}

/* ---- the table ---- */

static void check_table(void)
{
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_def *d = &op_table[op];
        bool row = d->name && *d->name && d->infer && d->n_out >= 1 && d->n_out <= 3 &&
                   d->least <= d->most;
        bool rule = d->grad_kind != OP_GRAD_RULE || d->grad || op == OP_OUT;
        bool kern = (d->lower == OP_LOWER_KERNEL) == (d->kern >= 0);

        ok(row, "op %d (%s) has a row and a shape rule", op, d->name ? d->name : "?");
        ok(rule && kern && d->flops_per_out >= 0, "%s has a gradient decision and a way to run",
           d->name);
        ok(covered[op] || d->grad_kind == OP_GRAD_LEAF, "%s is in a test", d->name);
    }
}

int main(void)
{
    check_elementwise();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(cases[i].name, cases[i].op, cases[i].build, cases[i].twice);
    check_matmul();
    check_zero();
    check_no_answer();
    check_table();
    return tap_done();
}
