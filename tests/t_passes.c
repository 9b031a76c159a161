/* t_passes.c - optimising changes no value, and leaves nothing dead, double or constant. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/alloc.h"
#include "graph_eval.h"
#include "kernels/philox.h"
#include "tap.h"

#define OP(name) ((enum op)EW_##name)
#define A(...) (&(struct op_attr){__VA_ARGS__})

enum { DAGS = 500, NODES = 60, ROOTS = 5 };

static const struct shape matrix = {.rank = 2, .dim = {3, 4}}, row = {.rank = 1, .dim = {4}},
                          scalar = {.rank = 0};

/* ---- random graphs keep their values ---- */

struct dice {
    uint32_t stream, n;
};

static uint32_t roll(struct dice *d, uint32_t sides)
{
    return philox_word(11, PHILOX_SCRIPT, d->stream, 0, d->n++) % sides;
}

/* Values that meet: zeros, ones, negatives, equals, and some that are none of these. */
static void fill_leaf(void *arg, const struct node *n, double *out)
{
    uint32_t salt = (uint32_t)n->name[1];

    (void)arg;
    for (int64_t i = 0; i < shape_count(&n->shape); i++) {
        uint32_t w = philox_word(3, PHILOX_SCRIPT, salt, 0, (uint64_t)i);
        if (n->dtype == DT_I32)
            out[i] = w % 3;
        else
            out[i] = w % 5 == 0 ? (double)(w / 5 % 5) - 2 : (double)philox_uniform(w) * 4 - 2;
    }
}

static int pick(struct graph *g, struct dice *d, enum dtype t)
{
    for (;;) {
        int id = (int)roll(d, (uint32_t)graph_count(g));
        if (graph_node(g, id)->dtype == t)
            return id;
    }
}

static int add1(struct graph *g, enum op op, int x, const struct op_attr *a)
{
    struct err e;
    return graph_add(g, op, &x, 1, a, &e);
}

/* What an optimiser looks for. */
static int grow_bait(struct graph *g, struct dice *d, int x)
{
    static const double values[] = {0, 1, 2, -1, 0.1, 3};
    const struct shape s = graph_node(g, x)->shape;
    double v = values[roll(d, 6)];
    struct err e;
    struct shape one = {.rank = 3, .dim = {1, 3, 4}};
    struct op_attr slice = {0};

    switch (roll(d, 14)) {
    case 0:
        return graph_scalar_op(g, OP(MUL), x, v, roll(d, 2), &e);
    case 1:
        return graph_scalar_op(g, OP(ADD), x, v, roll(d, 2), &e);
    case 2:
        return graph_scalar_op(g, OP(SUB), x, v, roll(d, 2), &e);
    case 3:
        return graph_scalar_op(g, OP(DIV), x, v, roll(d, 2), &e);
    case 4:
        return graph_scalar_op(g, OP(POW), x, v, roll(d, 2), &e);
    case 5:
        return graph_unary(g, OP(NEG), graph_unary(g, OP(NEG), x, &e), &e);
    case 6:
        return graph_const(g, v, roll(d, 2) ? &s : &scalar, DT_F32, &e);
    case 7:
        return s.rank != 2 ? x : graph_permute(g, x, (int[]){1, 0}, &e);
    case 8:
        return shape_count(&s) == 12 ? graph_reshape(g, x, roll(d, 2) ? &one : &matrix, &e) : x;
    case 9:
        return add1(g, OP_CAST, x, A(.dtype = DT_F32));
    case 10:
        return add1(g, OP_SUM, x, A(.axes = 0));
    case 11:
        return graph_select(g, graph_const(g, roll(d, 2), &s, DT_BOOL, &e), x, pick(g, d, DT_F32),
                            &e);
    case 12:
        for (int k = 0; k < s.rank; k++)
            slice.stop[k] = s.dim[k], slice.step[k] = 1;
        return add1(g, OP_SLICE, x, &slice);
    default:
        return add1(g, OP_STOP_GRADIENT, x, NULL);
    }
}

static int grow_plain(struct graph *g, struct dice *d, int x)
{
    static const enum op unary[] = {OP(ABS),  OP(EXP),   OP(TANH), OP(SIGN),
                                    OP(RELU), OP(FLOOR), OP(SQRT), OP(RECIP)};
    static const enum op binary[] = {OP(ADD), OP(SUB), OP(MUL), OP(DIV), OP(MAX), OP(MIN)};
    static const enum op compare[] = {OP(LT), OP(LE), OP(EQ), OP(NE)};
    struct shape s = graph_node(g, x)->shape;
    struct err e;
    int y = pick(g, d, DT_F32);

    switch (roll(d, 9)) {
    case 0:
        return graph_unary(g, unary[roll(d, 8)], x, &e);
    case 1:
    case 2:
        return graph_binary(g, binary[roll(d, 6)], x, y, &e);
    case 3:
        return graph_binary(g, compare[roll(d, 4)], x, y, &e);
    case 4:
        return graph_select(g, pick(g, d, DT_BOOL), x, y, &e);
    case 5:
        return graph_cast(g, pick(g, d, DT_BOOL), roll(d, 2) ? DT_F32 : DT_I32, &e);
    case 6:
        return s.rank == 0 ? x
                           : graph_reduce(g, roll(d, 2) ? OP_SUM : OP_RMAX, x,
                                          1u << roll(d, (uint32_t)s.rank), roll(d, 2), &e);
    case 7:
        return graph_add(g, OP_DROPOUT, (int[]){x, 0}, 2, A(.stream = roll(d, 2)), &e);
    default:
        return s.rank == 2 ? graph_matmul(g, x, y, roll(d, 2), roll(d, 2), &e) : x;
    }
}

static struct graph *random_graph(uint32_t seed, int *roots)
{
    struct dice d = {.stream = seed};
    struct graph *g = graph_new();
    struct shape s = {.rank = 0};
    struct err e;

    graph_const(g, 0.25, &s, DT_F32, &e); /* the rate of dropouts */
    graph_param(g, "pa", &matrix, &e);
    graph_param(g, "pb", &row, &e);
    graph_param(g, "pc", &matrix, &e);
    graph_input(g, "pi", &matrix, DT_I32, &e);
    graph_binary(g, OP(LT), 1, 3, &e);
    while (graph_count(g) < NODES) { /* what does not fit is refused and tried no more */
        int x = pick(g, &d, DT_F32);
        if (roll(&d, 2))
            grow_bait(g, &d, x);
        else
            grow_plain(g, &d, x);
    }
    for (int i = 0; i < ROOTS; i++)
        roots[i] = i == 2 ? -1 : graph_count(g) - 1 - (int)roll(&d, 20);
    return g;
}

/* Equal bits, but that zeros have no sign and NaNs are alike (the three rules of passes.c). */
static bool equal_values(const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))))
            return false;
    return true;
}

/* Is every node needed by a root, and no two the same? */
static bool is_lean(const struct graph *g, const int *roots, int n)
{
    char *need = calloc((size_t)graph_count(g) + 1, 1);
    bool good = need != NULL;

    for (int i = 0; good && i < n; i++)
        if (roots[i] >= 0)
            need[roots[i]] = 1;
    for (int id = graph_count(g) - 1; good && id >= 0; id--) {
        const struct node *a = graph_node(g, id);
        good = need[id];
        for (int i = 0; i < a->n_in; i++)
            need[a->in[i]] = 1;
        for (int k = 0; k < id; k++) {
            const struct node *b = graph_node(g, k);
            if (a->op == b->op && a->op < (enum op)EW_COUNT &&
                memcmp(a->in, b->in, sizeof a->in) == 0)
                good = false;
        }
    }
    free(need);
    return good;
}

static void check_random(void)
{
    struct graph_eval o = {.leaf = fill_leaf, .seed = 1, .step = 2, .round = true};
    int wrong = 0, fat = 0, unstable = 0, refused = 0;
    long before = 0, after = 0;

    for (uint32_t seed = 0; seed < DAGS; seed++) {
        int roots[ROOTS], mapped[ROOTS], again[ROOTS];
        struct graph *g = random_graph(seed, roots), *c = graph_clone(g);
        double **v = graph_values(g, &o), **w;
        char x[65], y[65];
        struct err e;
        bool good = true;

        memcpy(mapped, roots, sizeof roots);
        refused += graph_optimize(c, mapped, ROOTS, &e) != ERR_OK;
        w = graph_values(c, &o);
        for (int i = 0; i < ROOTS; i++) {
            const struct node *a = roots[i] < 0 ? NULL : graph_node(g, roots[i]),
                              *b = mapped[i] < 0 ? NULL : graph_node(c, mapped[i]);
            if (!a || !b)
                good = good && !a && !b;
            else
                good = good && a->dtype == b->dtype && shape_equal(&a->shape, &b->shape) &&
                       equal_values(v[roots[i]], w[mapped[i]], shape_count(&a->shape));
        }
        wrong += !good;
        if (!good)
            note("graph %u", seed);
        fat += !is_lean(c, mapped, ROOTS);
        before += graph_count(g);
        after += graph_count(c);
        graph_values_free(w, c);
        graph_hash(c, x);
        memcpy(again, mapped, sizeof mapped);
        refused += graph_optimize(c, again, ROOTS, &e) != ERR_OK;
        graph_hash(c, y);
        unstable += strcmp(x, y) != 0 || memcmp(again, mapped, sizeof mapped) != 0;
        graph_values_free(v, g);
        graph_free(g);
        graph_free(c);
    }
    ok(refused == 0 && wrong == 0, "%d random graphs keep the values of their roots (%d do not)",
       DAGS, wrong);
    ok(fat == 0, "nothing dead or double is left (%d)", fat);
    ok(unstable == 0, "optimising again changes nothing (%d)", unstable);
    ok(after < before * 2 / 3, "%ld nodes became %ld", before, after);
}

/* ---- one rule at a time ---- */

typedef int make_fn(struct graph *g, int x, struct err *e);

static int scalar_of(struct graph *g, enum op op, int x, double v, struct err *e)
{
    return graph_scalar_op(g, op, x, v, false, e);
}

// clang-format off
static int mul_1(struct graph *g, int x, struct err *e) { return scalar_of(g, OP(MUL), x, 1, e); }
static int mul_1_left(struct graph *g, int x, struct err *e) { return graph_scalar_op(g, OP(MUL), x, 1, true, e); }
static int add_0(struct graph *g, int x, struct err *e) { return scalar_of(g, OP(ADD), x, 0, e); }
static int add_0_left(struct graph *g, int x, struct err *e) { return graph_scalar_op(g, OP(ADD), x, 0, true, e); }
static int sub_0(struct graph *g, int x, struct err *e) { return scalar_of(g, OP(SUB), x, 0, e); }
static int div_1(struct graph *g, int x, struct err *e) { return scalar_of(g, OP(DIV), x, 1, e); }
static int pow_1(struct graph *g, int x, struct err *e) { return scalar_of(g, OP(POW), x, 1, e); }
static int neg_neg(struct graph *g, int x, struct err *e) { return graph_unary(g, OP(NEG), graph_unary(g, OP(NEG), x, e), e); }
static int cast_own(struct graph *g, int x, struct err *e) { (void)e; return add1(g, OP_CAST, x, A(.dtype = DT_F32)); }
static int sum_none(struct graph *g, int x, struct err *e) { (void)e; return add1(g, OP_SUM, x, A(.axes = 0)); }
static int reshape_back(struct graph *g, int x, struct err *e) { return graph_reshape(g, graph_reshape(g, x, &(struct shape){.rank = 1, .dim = {12}}, e), &matrix, e); }
static int permute_back(struct graph *g, int x, struct err *e) { return graph_permute(g, graph_permute(g, x, (int[]){1, 0}, e), (int[]){1, 0}, e); }
static int broadcast_own(struct graph *g, int x, struct err *e) { (void)e; return add1(g, OP_BROADCAST, x, A(.shape = matrix)); }
static int slice_all(struct graph *g, int x, struct err *e) { (void)e; return add1(g, OP_SLICE, x, A(.stop = {3, 4}, .step = {1, 1})); }
static int pad_none(struct graph *g, int x, struct err *e) { (void)e; return add1(g, OP_PAD, x, A(.value = 7)); }
static int flip_none(struct graph *g, int x, struct err *e) { (void)e; return add1(g, OP_FLIP, x, A(.axes = 0)); }
static int select_true(struct graph *g, int x, struct err *e) { return graph_select(g, graph_const(g, 1, &scalar, DT_BOOL, e), x, graph_unary(g, OP(EXP), x, e), e); }
static int select_same(struct graph *g, int x, struct err *e) { return graph_select(g, graph_binary(g, OP(LT), x, graph_unary(g, OP(EXP), x, e), e), x, x, e); }
static int stopped(struct graph *g, int x, struct err *e) { (void)e; return add1(g, OP_STOP_GRADIENT, x, NULL); }
static int folded_one(struct graph *g, int x, struct err *e) { return graph_binary(g, OP(MUL), x, scalar_of(g, OP(SUB), graph_const(g, 3, &scalar, DT_F32, e), 2, e), e); }
// clang-format on

static void check_identities(void)
{
    static const struct {
        const char *name;
        make_fn *make;
    } rules[] = {{"x * 1", mul_1},
                 {"1 * x", mul_1_left},
                 {"x + 0", add_0},
                 {"0 + x", add_0_left},
                 {"x - 0", sub_0},
                 {"x / 1", div_1},
                 {"x ^ 1", pow_1},
                 {"--x", neg_neg},
                 {"cast to its own type", cast_own},
                 {"sum over nothing", sum_none},
                 {"reshape there and back", reshape_back},
                 {"permute there and back", permute_back},
                 {"broadcast to its own shape", broadcast_own},
                 {"slice of all", slice_all},
                 {"pad of nothing", pad_none},
                 {"flip of nothing", flip_none},
                 {"select where all is true", select_true},
                 {"select of equals", select_same},
                 {"stop_gradient", stopped},
                 {"x * (3 - 2)", folded_one}};

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct graph *g = graph_new();
        struct err e = {0};
        int x = graph_param(g, "x", &matrix, &e), y = rules[i].make(g, x, &e);
        bool made = y > x;

        ok(made && graph_optimize(g, &y, 1, &e) == ERR_OK && graph_count(g) == 1 && y == 0,
           "%s is x%s", rules[i].name, e.msg);
        graph_free(g);
    }
}

static void check_square(void)
{
    struct graph *g = graph_new();
    struct err e;
    int x = graph_param(g, "x", &matrix, &e), y = scalar_of(g, OP(POW), x, 2, &e);

    ok(graph_optimize(g, &y, 1, &e) == ERR_OK && graph_node(g, y)->op == OP(MUL) &&
           graph_node(g, y)->in[0] == graph_node(g, y)->in[1] && graph_count(g) == 2,
       "x^2 is x * x");
    graph_free(g);
}

static void check_constants(void)
{
    struct graph *g = graph_new();
    struct err e;
    int c = graph_const(g, 3, &row, DT_F32, &e), y, roots[4];

    y = graph_unary(g, OP(SQRT), scalar_of(g, OP(ADD), graph_binary(g, OP(MUL), c, c, &e), 7, &e),
                    &e);
    roots[0] = graph_reduce(g, OP_SUM, graph_broadcast(g, y, &matrix, &e), 3, false, &e);
    roots[1] = graph_cast(g, graph_binary(g, OP(LT), c, y, &e), DT_F32, &e);
    roots[2] = graph_unary(g, OP(EXP), c, &e);
    roots[3] = scalar_of(g, OP(MUL), graph_const(g, 0.1, &scalar, DT_F32, &e), 3, &e);
    ok(graph_optimize(g, roots, 4, &e) == ERR_OK, "a graph of constants");
    ok(graph_node(g, roots[0])->op == OP_CONST && graph_node(g, roots[0])->attr.value == 48,
       "sum(sqrt(3 * 3 + 7)) over twelve is 48");
    ok(graph_node(g, roots[1])->op == OP_CONST && graph_node(g, roots[1])->attr.value == 1 &&
           graph_node(g, roots[1])->dtype == DT_F32,
       "3 < 4");
    ok(graph_node(g, roots[2])->op == OP(EXP),
       "exp is left to the backends, which round it their own way");
    ok(graph_node(g, roots[3])->attr.value == (double)(0.1f * 3.0f), "0.1 * 3 in f32");
    graph_free(g);
}

/* A constant is what its f32 holds, and a folded sum has the sign of one that was run. */
static void check_folded_bits(void)
{
    struct graph *g = graph_new();
    struct err e;
    int tiny = graph_const(g, 1e-300, &row, DT_F32, &e),
        near = graph_const(g, 2 - 1e-12, &row, DT_F32, &e),
        minus = graph_const(g, -0.0, &row, DT_F32, &e),
        roots[3] = {graph_cast(g, tiny, DT_BOOL, &e), graph_cast(g, near, DT_I32, &e),
                    graph_reduce(g, OP_SUM, minus, 1, false, &e)};
    const struct node *n[3];

    ok(graph_optimize(g, roots, 3, &e) == ERR_OK && graph_count(g) == 3, "three constants");
    for (int i = 0; i < 3; i++)
        n[i] = graph_node(g, roots[i]);
    ok(n[0]->dtype == DT_BOOL && n[0]->attr.value == 0, "what is 0 in f32 is false");
    ok(n[1]->dtype == DT_I32 && n[1]->attr.value == 2, "what is 2 in f32 is cut to 2");
    ok(n[2]->op == OP_CONST && n[2]->attr.value == 0 && !signbit(n[2]->attr.value),
       "the sum of -0 and -0 is 0");
    graph_free(g);
}

static void check_joined(void)
{
    struct graph *g = graph_new();
    struct err e;
    struct op_attr a = {.stream = 4}, b = {.stream = 5};
    int x = graph_param(g, "x", &matrix, &e), p = graph_const(g, 0.5, &scalar, DT_F32, &e),
        in[2] = {x, p}, r[5], n;

    r[0] = graph_add(g, OP_DROPOUT, in, 2, &a, &e);
    r[1] = graph_add(g, OP_DROPOUT, in, 2, &a, &e);
    r[2] = graph_add(g, OP_DROPOUT, in, 2, &b, &e);
    r[3] = graph_binary(g, OP(ADD), r[0], r[2], &e);
    r[4] = graph_binary(g, OP(ADD), r[2], r[1], &e);
    n = graph_count(g);
    ok(graph_optimize(g, r, 5, &e) == ERR_OK && r[0] == r[1] && r[1] != r[2],
       "dropouts of one stream are one, of two are two");
    ok(r[3] == r[4], "a + b and b + a are one");
    ok(graph_count(g) == n - 2, "and nothing else has gone");
    graph_free(g);
}

/* Outputs of a node with several stay with it; unused parts of a gradient go. */
static void check_outputs(void)
{
    struct graph *g = graph_new();
    struct err e;
    struct op_attr a = {.eps = 1e-5f};
    int in[3] = {graph_param(g, "x", &matrix, &e), graph_param(g, "gain", &row, &e),
                 graph_param(g, "bias", &row, &e)};
    int y = graph_add(g, OP_LAYER_NORM, in, 3, &a, &e), w = graph_const(g, 1, &matrix, DT_F32, &e),
        d[3], roots[2], outs = 0;
    bool good = graph_gradient(g, &y, &w, 1, in, 3, d, &e) == ERR_OK;

    graph_gradient(g, &y, &w, 1, in, 3, d, &e); /* a second time: all of it is the same again */
    roots[0] = d[0];
    roots[1] = d[2];
    ok(good && graph_optimize(g, roots, 2, &e) == ERR_OK, "a gradient is optimised");
    for (int i = 0; i < graph_count(g); i++)
        outs += graph_node(g, i)->op == OP_OUT;
    ok(outs == 3 && graph_node(g, roots[0])->op == OP_LAYER_NORM_GRAD,
       "mean, rstd and the gradient of the bias, each once (%d)", outs);
    graph_free(g);
}

static void check_leaves(void)
{
    struct graph *g = graph_new();
    struct err e;
    int x = graph_param(g, "unused", &row, &e), y = graph_param(g, "used", &matrix, &e);

    (void)x;
    ok(graph_optimize(g, &y, 1, &e) == ERR_OK && graph_count(g) == 1,
       "a param that nobody reads goes");
    ok(graph_param(g, "used", &matrix, &e) == y, "one that is left is found by name");
    ok(graph_param(g, "unused", &matrix, &e) == 1, "one that has gone is made anew");
    graph_free(g);
}

/* ---- size and failure ---- */

static double optimize_seconds(struct graph *g, int *root)
{
    struct err e;
    clock_t from = clock();
    enum err_code rc = graph_optimize(g, root, 1, &e);
    return rc == ERR_OK ? (double)(clock() - from) / CLOCKS_PER_SEC : HUGE_VAL;
}

static void check_large(void)
{
    struct graph *g = graph_new();
    struct shape s = {.rank = 2, .dim = {30000, 4}};
    struct err e;
    int x = graph_param(g, "x", &matrix, &e), y = x;
    double seconds;

    for (int i = 0; i < 25000; i++) /* of four nodes: 100 000 */
        y = graph_unary(g, i % 2 ? OP(TANH) : OP(SIN), scalar_of(g, OP(MUL), y, 0.5, &e), &e);
    seconds = optimize_seconds(g, &y);
    ok(seconds < HUGE_VAL && graph_count(g) == 50002, "100 000 nodes in %.2f s", seconds);
    graph_free(g);
    g = graph_new();
    x = graph_param(g, "x", &s, &e);
    y = -1;
    for (int i = 0; i < 30000; i++) {
        int part = add1(g, OP_SLICE, x, A(.start = {i}, .stop = {i + 1, 4}, .step = {1, 1}));
        y = y < 0 ? part : graph_binary(g, OP(ADD), y, part, &e);
    }
    seconds = optimize_seconds(g, &y);
    ok(seconds < HUGE_VAL && graph_count(g) == 60000, "30 000 slices of one tensor are told apart");
    graph_free(g);
}

/* Wherever memory ends, graph and roots belong together and have their values. */
static void check_no_memory(void)
{
    struct graph_eval o = {.leaf = fill_leaf, .seed = 1, .step = 2, .round = true};
    int roots[ROOTS], failed = 0;
    struct graph *g = random_graph(17, roots);
    double **v = graph_values(g, &o);
    bool kept = true;

    for (long n = 1; n < 60; n++) {
        struct graph *c = graph_clone(g);
        struct err e = {0};
        int mapped[ROOTS];
        double **w;
        enum err_code rc;

        memcpy(mapped, roots, sizeof roots);
        mem_fail_nth(n);
        rc = graph_optimize(c, mapped, ROOTS, &e);
        mem_fail_nth(0);
        failed += rc != ERR_OK;
        kept = kept && (rc == ERR_OK || (rc == ERR_NOMEM && e.code == ERR_NOMEM));
        w = graph_values(c, &o);
        for (int i = 0; i < ROOTS; i++)
            kept = kept &&
                   (mapped[i] < 0 ? roots[i] < 0
                                  : equal_values(v[roots[i]], w[mapped[i]],
                                                 shape_count(&graph_node(g, roots[i])->shape)));
        graph_values_free(w, c);
        graph_free(c);
    }
    ok(failed > 3 && kept, "no memory: said %d times, the values are kept", failed);
    graph_values_free(v, g);
    graph_free(g);
}

int main(void)
{
    check_random();
    check_identities();
    check_square();
    check_constants();
    check_folded_bits();
    check_joined();
    check_outputs();
    check_leaves();
    check_large();
    check_no_memory();
    return tap_done();
}
