/* t_graph.c - shapes are inferred or refused with a line for the user; a graph prints, hashes and
 * copies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/graph/graph.h"
#include "tap.h"

#define OP(name) ((enum op)EW_##name)

static struct shape shape(int rank, int64_t a, int64_t b, int64_t c)
{
    struct shape s = {.rank = rank, .dim = {a, b, c}};
    for (int d = rank; d < SHAPE_RANK; d++)
        s.dim[d] = 0;
    return s;
}

static bool is(const struct graph *g, int id, const char *dtype, const char *text)
{
    char buf[128];

    if (id < 0)
        return false;
    return strcmp(shape_text(buf, sizeof buf, &graph_node(g, id)->shape), text) == 0 &&
           strcmp(dtype_name(graph_node(g, id)->dtype), dtype) == 0;
}

/* ---- shapes alone ---- */

static void check_shapes(void)
{
    const int64_t big = SHAPE_MAX_COUNT;
    struct shape a = shape(2, 64, 10, 0), b = shape(1, 10, 0, 0), c = shape(3, 1, 3, 10), out,
                 zero = shape(2, 0, 5, 0), none = {0};
    char buf[128], small[6];

    ok(shape_count(&a) == 640 && shape_count(&none) == 1 && shape_count(&zero) == 0,
       "how many elements");
    out = shape(2, big, 1, 0);
    ok(shape_count(&out) == big, "2^40 are allowed");
    out = shape(2, big, 2, 0);
    ok(shape_count(&out) == -1, "twice as many are not");
    out = shape(3, INT64_MAX, INT64_MAX, 3);
    ok(shape_count(&out) == -1, "a product that overflows neither");
    out = shape(3, 0, INT64_MAX, INT64_MAX);
    ok(shape_count(&out) == -1,
       "nor one that a zero would hide: strides are products of the others");
    out = shape(1, -3, 0, 0);
    ok(shape_count(&out) == -1, "nor a negative size");
    ok(shape_equal(&a, &a) && !shape_equal(&a, &b), "alike and not");
    ok(strcmp(shape_text(buf, sizeof buf, &a), "[64, 10]") == 0 &&
           strcmp(shape_text(buf, sizeof buf, &none), "[]") == 0,
       "as text");
    ok(strlen(shape_text(small, sizeof small, &a)) < sizeof small, "cut where the buffer ends");
    ok(shape_broadcast(&a, &b, &out) && shape_equal(&out, &a), "[64, 10] with [10]");
    ok(shape_broadcast(&b, &c, &out) && shape_equal(&out, &c), "[10] with [1, 3, 10]");
    ok(!shape_broadcast(&a, &c, &out), "[64, 10] with [1, 3, 10] is none");
    ok(shape_broadcast(&zero, &(struct shape){.rank = 2, .dim = {1, 5}}, &out) && out.dim[0] == 0,
       "1 stretches to 0");
    ok(shape_broadcast(&none, &a, &out) && shape_equal(&out, &a), "a scalar with anything");
}

/* ---- what ops make ---- */

struct kit {
    struct graph *g;
    struct err e;
    int x, m, b, i, t, u,
        v; /* f32 [64, 100], f32 [3, 4, 5], f32 [100], i32 [3], bool [3], u8 [3], f32 [] */
};

static struct kit kit_new(void)
{
    struct kit k = {.g = graph_new()};
    struct shape s = shape(2, 64, 100, 0);

    k.x = graph_param(k.g, "x", &s, &k.e);
    s = shape(3, 3, 4, 5);
    k.m = graph_param(k.g, "m", &s, &k.e);
    s = shape(1, 100, 0, 0);
    k.b = graph_param(k.g, "b", &s, &k.e);
    s = shape(1, 3, 0, 0);
    k.i = graph_input(k.g, "i", &s, DT_I32, &k.e);
    k.t = graph_input(k.g, "t", &s, DT_BOOL, &k.e);
    k.u = graph_input(k.g, "u", &s, DT_U8, &k.e);
    s = shape(0, 0, 0, 0);
    k.v = graph_param(k.g, "v", &s, &k.e);
    return k;
}

static int add1(struct kit *k, enum op op, int x, struct op_attr a)
{
    return graph_add(k->g, op, &x, 1, &a, &k->e);
}

static int add2(struct kit *k, enum op op, int x, int y, struct op_attr a)
{
    return graph_add(k->g, op, (int[]){x, y}, 2, &a, &k->e);
}

static int add3(struct kit *k, enum op op, int x, int y, int z, struct op_attr a)
{
    return graph_add(k->g, op, (int[]){x, y, z}, 3, &a, &k->e);
}

static int leaf(struct kit *k, enum op op, struct op_attr a)
{
    return graph_add(k->g, op, NULL, 0, &a, &k->e);
}

static int zeros(struct kit *k, struct shape s, enum dtype t)
{
    return graph_const(k->g, 0, &s, t, &k->e);
}

#define A(...) ((struct op_attr){__VA_ARGS__})
#define IS(id, dtype, text, name) ok(is(k.g, id, dtype, text), "%s is %s %s", name, dtype, text)

static void check_elementwise(void)
{
    struct kit k = kit_new();

    IS(graph_unary(k.g, OP(EXP), k.x, &k.e), "f32", "[64, 100]", "exp");
    IS(graph_unary(k.g, OP(NEG), k.i, &k.e), "i32", "[3]", "neg of whole numbers");
    IS(graph_unary(k.g, OP(ISFINITE), k.x, &k.e), "bool", "[64, 100]", "isfinite");
    IS(graph_binary(k.g, OP(ADD), k.x, k.b, &k.e), "f32", "[64, 100]", "add with a row");
    IS(graph_binary(k.g, OP(LT), k.b, k.x, &k.e), "bool", "[64, 100]", "lt");
    IS(graph_binary(k.g, OP(AND), k.t, k.t, &k.e), "bool", "[3]", "and");
    IS(graph_select(k.g, k.t, k.v, zeros(&k, shape(2, 7, 1, 0), DT_F32), &k.e), "f32", "[7, 3]",
       "select of three shapes");
    IS(graph_scalar_op(k.g, OP(SUB), k.i, 1, true, &k.e), "i32", "[3]", "1 - i");
    IS(graph_cast(k.g, k.u, DT_F32, &k.e), "f32", "[3]", "cast");
    ok(graph_cast(k.g, k.x, DT_F32, &k.e) == k.x, "cast to its own type is no node");
    IS(add2(&k, OP_DROPOUT, k.x, k.v, A(.stream = 1)), "f32", "[64, 100]", "dropout");
    graph_free(k.g);
}

static void check_leaves(void)
{
    struct kit k = kit_new();
    struct shape s = shape(2, 64, 100, 0);

    IS(leaf(&k, OP_IOTA, A(.shape = s, .axis = 1, .dtype = DT_I32)), "i32", "[64, 100]", "iota");
    IS(leaf(&k, OP_RNG_UNIFORM, A(.shape = s)), "f32", "[64, 100]", "rng_uniform");
    IS(leaf(&k, OP_RNG_BITS, A(.shape = s)), "i32", "[64, 100]", "rng_bits");
    IS(graph_hyper(k.g, 5, &k.e), "f32", "[]", "hyper");
    IS(zeros(&k, s, DT_BOOL), "bool", "[64, 100]", "const");
    ok(graph_param(k.g, "x", &s, &k.e) == k.x, "a param asked for again is the same node");
    s = shape(1, 3, 0, 0);
    ok(graph_input(k.g, "i", &s, DT_I32, &k.e) == k.i, "an input too");
    ok(graph_input(k.g, "x", &s, DT_F32, &k.e) > k.x, "a param and an input may share a name");
    graph_free(k.g);
}

static void check_moves(void)
{
    struct kit k = kit_new();
    struct shape s = shape(2, -1, 10, 0), t = shape(3, 2, 64, 100);

    IS(graph_reshape(k.g, k.m, &s, &k.e), "f32", "[6, 10]", "reshape with -1");
    s = shape(2, 64, 100, 0);
    ok(graph_reshape(k.g, k.x, &s, &k.e) == k.x, "reshape to its own shape is no node");
    IS(graph_permute(k.g, k.m, (int[]){2, 0, 1}, &k.e), "f32", "[5, 3, 4]", "permute");
    IS(graph_broadcast(k.g, k.x, &t, &k.e), "f32", "[2, 64, 100]", "broadcast");
    IS(add1(&k, OP_SLICE, k.m, A(.start = {0, 1, 0}, .stop = {3, 4, 5}, .step = {1, 2, 2})), "f32",
       "[3, 2, 3]", "slice");
    IS(add1(&k, OP_SLICE, k.i, A(.start = {2}, .stop = {2}, .step = {1})), "i32", "[0]",
       "an empty slice");
    IS(add1(&k, OP_PAD, k.m, A(.start = {1, 0, 2}, .stop = {0, 3, 0})), "f32", "[4, 7, 7]", "pad");
    IS(add3(&k, OP_CONCAT, k.m, k.m, k.m, A(.axis = 1)), "f32", "[3, 12, 5]", "concat");
    IS(add1(&k, OP_FLIP, k.m, A(.axes = 5)), "f32", "[3, 4, 5]", "flip");
    graph_free(k.g);
}

static void check_rows(void)
{
    struct kit k = kit_new();
    int n, idx = zeros(&k, shape(2, 7, 2, 0), DT_I32),
           labels = zeros(&k, shape(1, 64, 0, 0), DT_I32);

    IS(graph_reduce(k.g, OP_SUM, k.m, 2, false, &k.e), "f32", "[3, 5]", "sum over axis 1");
    IS(graph_reduce(k.g, OP_SUM, k.m, 5, true, &k.e), "f32", "[1, 4, 1]",
       "sum over axes 0 and 2, kept");
    IS(graph_reduce(k.g, OP_SUM, k.t, 1, false, &k.e), "f32", "[]", "sum of bools");
    ok(graph_reduce(k.g, OP_RMAX, k.m, 0, false, &k.e) == k.m, "over no axes is no node");
    IS(graph_mean(k.g, k.m, 7, false, &k.e), "f32", "[]", "mean of all");
    n = graph_count(k.g);
    IS(graph_reduce(k.g, OP_RMIN, k.m, 5, false, &k.e), "f32", "[4]", "rmin over axes apart");
    ok(graph_count(k.g) == n + 2 && graph_node(k.g, n)->attr.axes == 4,
       "is two nodes, each over neighbours");
    IS(add1(&k, OP_ARGMAX, k.m, A(.axis = 0)), "i32", "[4, 5]", "argmax");
    IS(add1(&k, OP_TOPK_IDX, k.m, A(.axis = 2, .k = 2)), "i32", "[3, 4, 2]", "topk_idx");
    IS(add1(&k, OP_CUMSUM, k.m, A(.axis = 1)), "f32", "[3, 4, 5]", "cumsum");
    IS(add1(&k, OP_SOFTMAX, k.m, A(.axis = 1)), "f32", "[3, 4, 5]", "softmax");
    IS(add1(&k, OP_LOGSUMEXP, k.m, A(.axis = 1)), "f32", "[3, 5]", "logsumexp");
    IS(add2(&k, OP_TAKE, k.m, idx, A(.axis = 1)), "f32", "[3, 7, 2, 5]", "take");
    IS(add2(&k, OP_TAKE_ALONG, k.m, zeros(&k, shape(3, 3, 9, 5), DT_I32), A(.axis = 1)), "f32",
       "[3, 9, 5]", "take_along");
    IS(add3(&k, OP_SCATTER_ADD, k.m, zeros(&k, shape(3, 3, 9, 5), DT_I32),
            zeros(&k, shape(3, 3, 9, 5), DT_F32), A(.axis = 1)),
       "f32", "[3, 4, 5]", "scatter_add");
    n = add3(&k, OP_LAYER_NORM, k.x, k.b, k.b, A(.eps = 1e-5f));
    IS(n, "f32", "[64, 100]", "layer_norm");
    IS(graph_out(k.g, n, 2, &k.e), "f32", "[64]", "its rstd");
    ok(graph_out(k.g, n, 0, &k.e) == n, "its output 0 is the node");
    n = add2(&k, OP_RMS_NORM, k.x, k.b, A(.eps = 1e-5f));
    IS(graph_out(k.g, n, 1, &k.e), "f32", "[64]", "rstd of rms_norm");
    n = add2(&k, OP_XENT, k.x, labels, A(.k = 0));
    IS(n, "f32", "[64]", "xent");
    IS(graph_out(k.g, n, 1, &k.e), "f32", "[64]", "its lse");
    graph_free(k.g);
}

static void check_matmul(void)
{
    struct kit k = kit_new();
    int w = zeros(&k, shape(2, 10, 100, 0), DT_F32), a = zeros(&k, shape(3, 7, 64, 100), DT_F32),
        one = zeros(&k, shape(3, 1, 100, 2), DT_F32);
    int four = zeros(&k, (struct shape){.rank = 4, .dim = {2, 7, 100, 3}}, DT_F32);

    IS(graph_matmul(k.g, k.x, w, false, true, &k.e), "f32", "[64, 10]", "x . w^T");
    IS(graph_matmul(k.g, k.x, k.x, true, false, &k.e), "f32", "[100, 100]", "x^T . x");
    IS(graph_matmul(k.g, a, w, false, true, &k.e), "f32", "[7, 64, 10]", "batches by one matrix");
    IS(graph_matmul(k.g, a, one, false, false, &k.e), "f32", "[7, 64, 2]", "leading 7 by 1");
    IS(graph_matmul(k.g, a, four, false, false, &k.e), "f32", "[2, 7, 64, 3]",
       "leading [7] by [2, 7]");
    IS(graph_sum_to(k.g, a, &(struct shape){.rank = 2, .dim = {1, 100}}, &k.e), "f32", "[1, 100]",
       "sum_to");
    graph_free(k.g);
}

/* ---- refusals: the whole line ---- */

static int got; /* id of the last refused call */

#define REFUSED(call, line)                                                                        \
    do {                                                                                           \
        k.e = (struct err){0};                                                                     \
        got = (call);                                                                              \
        ok(got == -1 && k.e.code == ERR_SHAPE && strcmp(k.e.msg, line) == 0, "refused: %s", line); \
        if (strcmp(k.e.msg, line) != 0)                                                            \
            note("%s", k.e.msg);                                                                   \
    } while (0)

static void check_refusals(void)
{
    struct kit k = kit_new();
    struct shape s = shape(2, 128, 10, 0);
    int w = graph_param(k.g, "w", &s, &k.e);

    REFUSED(graph_matmul(k.g, k.x, w, false, false, &k.e),
            "matmul: [64, 100] x [128, 10]: inner sizes 100 and 128 differ");
    REFUSED(graph_matmul(k.g, k.x, k.b, false, false, &k.e),
            "matmul: [64, 100] x [100]: both need two dimensions");
    REFUSED(graph_matmul(k.g, k.m, zeros(&k, shape(3, 2, 5, 6), DT_F32), false, false, &k.e),
            "matmul: [3, 4, 5] x [2, 5, 6]: leading dimensions differ");
    REFUSED(graph_binary(k.g, OP(ADD), k.x, k.m, &k.e),
            "add: [64, 100] and [3, 4, 5] do not broadcast");
    REFUSED(add2(&k, OP(ADD), k.x, k.b, A(.k = 0)), "add: [64, 100] x [100]: shapes differ");
    REFUSED(graph_binary(k.g, OP(ADD), k.i, graph_cast(k.g, k.i, DT_F32, &k.e), &k.e),
            "add: input 2 is f32, i32 is needed");
    REFUSED(graph_binary(k.g, OP(ADD), k.t, k.t, &k.e), "add: of bool values; cast them first");
    REFUSED(graph_binary(k.g, OP(MUL), k.u, k.u, &k.e), "mul: of u8 values; cast them first");
    REFUSED(graph_unary(k.g, OP(EXP), k.i, &k.e), "exp: input 1 is i32, f32 is needed");
    REFUSED(graph_binary(k.g, OP(OR), k.i, k.i, &k.e), "or: input 1 is i32, bool is needed");
    REFUSED(graph_select(k.g, k.i, k.v, k.v, &k.e), "select: input 1 is i32, bool is needed");
    REFUSED(graph_select(k.g, k.t, k.x, k.v, &k.e),
            "select: [3], [64, 100] and [] do not broadcast");
    s = shape(2, 7, 10, 0);
    REFUSED(graph_reshape(k.g, k.m, &s, &k.e),
            "reshape: [3, 4, 5] has 60 elements, [7, 10] has 70");
    s = shape(2, -1, 7, 0);
    REFUSED(graph_reshape(k.g, k.m, &s, &k.e), "reshape: [3, 4, 5] does not become [-1, 7]");
    s = shape(2, -1, -1, 0);
    REFUSED(graph_reshape(k.g, k.m, &s, &k.e), "reshape: [3, 4, 5] does not become [-1, -1]");
    s = shape(2, -1, 0, 0);
    REFUSED(graph_reshape(k.g, k.m, &s, &k.e), "reshape: [3, 4, 5] does not become [-1, 0]");
    REFUSED(graph_permute(k.g, k.m, (int[]){0, 1, 1}, &k.e),
            "permute of [3, 4, 5]: the axes are no permutation");
    REFUSED(graph_permute(k.g, k.m, (int[]){0, 1, 3}, &k.e),
            "permute of [3, 4, 5]: the axes are no permutation");
    s = shape(2, 64, 1, 0);
    REFUSED(graph_broadcast(k.g, k.x, &s, &k.e),
            "broadcast: [64, 100] does not stretch to [64, 1]");
    REFUSED(add1(&k, OP_SLICE, k.i, A(.start = {1}, .stop = {4}, .step = {1})),
            "slice of [3]: 2 .. 4 step 1 of dimension 1");
    REFUSED(add1(&k, OP_SLICE, k.i, A(.start = {0}, .stop = {3}, .step = {0})),
            "slice of [3]: 1 .. 3 step 0 of dimension 1");
    REFUSED(add1(&k, OP_PAD, k.i, A(.start = {-1})),
            "pad of [3]: a padding is negative or too large");
    REFUSED(add1(&k, OP_PAD, k.i, A(.start = {INT64_MAX})),
            "pad of [3]: a padding is negative or too large");
    REFUSED(add1(&k, OP_PAD, k.i, A(.start = {SHAPE_MAX_COUNT})),
            "pad: [1099511627779] has more than 2^40 elements");
    REFUSED(add2(&k, OP_CONCAT, k.x, k.m, A(.axis = 0)),
            "concat: [64, 100] x [3, 4, 5]: ranks or types differ");
    REFUSED(add2(&k, OP_CONCAT, k.x, w, A(.axis = 0)),
            "concat: [64, 100] x [128, 10]: differ in another dimension than the joined one");
    REFUSED(add1(&k, OP_FLIP, k.i, A(.axes = 2)), "flip of [3]: no such axis");
    REFUSED(graph_reduce(k.g, OP_SUM, k.x, 4, false, &k.e), "sum of [64, 100]: no such axis");
    REFUSED(add1(&k, OP_SUM, k.m, A(.axes = 5)),
            "sum of [3, 4, 5]: one node reduces neighbouring axes only");
    REFUSED(graph_reduce(k.g, OP_RMAX, k.i, 1, false, &k.e), "rmax: input 1 is i32, f32 is needed");
    REFUSED(add1(&k, OP_ARGMAX, zeros(&k, shape(2, 3, 0, 0), DT_F32), A(.axis = 1)),
            "argmax of [3, 0]: nothing along the axis");
    REFUSED(add1(&k, OP_TOPK_IDX, k.x, A(.axis = 0, .k = 1)),
            "topk_idx of [64, 100]: works along the last axis");
    REFUSED(add1(&k, OP_TOPK_IDX, k.x, A(.axis = 1, .k = 101)),
            "topk_idx of [64, 100]: k is not in 1 .. the number of columns");
    REFUSED(add1(&k, OP_SOFTMAX, k.x, A(.axis = 2)), "softmax of [64, 100]: no such axis");
    REFUSED(add1(&k, OP_CUMSUM, k.x, A(.axis = -1)), "cumsum of [64, 100]: no such axis");
    REFUSED(add2(&k, OP_TAKE, k.x, k.b, A(.axis = 0)), "take: input 2 is f32, i32 is needed");
    REFUSED(add2(&k, OP_TAKE, k.x, k.i, A(.axis = 2)),
            "take: [64, 100] x [3]: no such axis, or more than 6 dimensions");
    REFUSED(add2(&k, OP_TAKE_ALONG, k.m, zeros(&k, shape(3, 3, 1, 6), DT_I32), A(.axis = 1)),
            "take_along: [3, 4, 5] x [3, 1, 6]: differ in another dimension than the indexed one");
    REFUSED(add3(&k, OP_SCATTER_ADD, k.b, k.i, k.b, A(.axis = 0)),
            "scatter_add: [100], [3], [100]: indices and values differ in shape");
    REFUSED(add3(&k, OP_LAYER_NORM, k.x, k.b, k.v, A(.eps = 1e-5f)),
            "layer_norm: [64, 100], [100], []: gain and bias need one number a column");
    REFUSED(add2(&k, OP_RMS_NORM, k.x, k.b, A(.eps = 0)),
            "rms_norm: [64, 100] x [100]: needs a dimension and eps above 0");
    REFUSED(add2(&k, OP_RMS_NORM, k.x, k.b, A(.eps = NAN)),
            "rms_norm: [64, 100] x [100]: needs a dimension and eps above 0");
    REFUSED(add2(&k, OP_XENT, k.x, k.i, A(.k = 0)),
            "xent: [64, 100] x [3]: one label a row of logits is needed");
    REFUSED(add2(&k, OP_XENT, k.x, k.b, A(.k = 0)), "xent: input 2 is f32, i32 is needed");
    REFUSED(add3(&k, OP_XENT, k.x, zeros(&k, shape(1, 64, 0, 0), DT_I32),
                 zeros(&k, shape(0, 0, 0, 0), DT_I32), A(.k = 0)),
            "xent: input 3 is i32, f32 is needed");
    REFUSED(add2(&k, OP_TAKE_GRAD, k.i, k.i, A(.shape = {.rank = 1, .dim = {9}})),
            "take_grad: input 1 is i32, f32 is needed");
    REFUSED(graph_add(k.g, OP_RMS_NORM_GRAD, (int[]){k.m, k.x, k.b, k.v}, 4, &A(.eps = 1), &k.e),
            "rms_norm_grad: [3, 4, 5] x [64, 100]: shapes differ");
    REFUSED(add2(&k, OP_DROPOUT, k.x, k.b, A(.stream = 1)),
            "dropout: [64, 100] x [100]: the rate must be one number");
    REFUSED(add2(&k, OP_DROPOUT, k.v, k.v, A(.per_sample = true)),
            "dropout: [] x []: there is no dimension of samples");
    REFUSED(leaf(&k, OP_RNG_UNIFORM, A(.per_sample = true)),
            "rng_uniform: [] has no dimension of samples");
    REFUSED(leaf(&k, OP_IOTA, A(.shape = {.rank = 1, .dim = {3}}, .axis = 1, .dtype = DT_I32)),
            "iota: axis 2 of rank 1");
    REFUSED(leaf(&k, OP_RNG_BITS, A(.shape = {.rank = 1, .dim = {-3}})),
            "rng_bits: a dimension of -3");
    REFUSED(leaf(&k, OP_CONST, A(.shape = {.rank = 7}, .dtype = DT_F32)),
            "const: 7 dimensions, at most 6");
    REFUSED(leaf(&k, OP_CONST, A(.value = 2.5, .dtype = DT_I32)), "const: 2.5 is no i32");
    REFUSED(leaf(&k, OP_CONST, A(.value = 3e9, .dtype = DT_I32)), "const: 3e+09 is no i32");
    REFUSED(leaf(&k, OP_CONST, A(.value = 2, .dtype = DT_BOOL)), "const: 2 is no bool");
    REFUSED(graph_cast(k.g, k.x, DT_U8, &k.e), "cast: to u8 is not there");
    s = shape(1, 4, 0, 0);
    REFUSED(graph_param(k.g, "b", &s, &k.e), "param b: is f32 [100] already, not f32 [4]");
    REFUSED(graph_input(k.g, "t", &(struct shape){.rank = 1, .dim = {3}}, DT_I32, &k.e),
            "input t: is bool [3] already, not i32 [3]");
    s = shape(3, 0, INT64_MAX, INT64_MAX);
    REFUSED(graph_param(k.g, "far", &s, &k.e),
            "param: [0, 9223372036854775807, 9223372036854775807] has more than 2^40 elements");
    s = shape(1, 2 * SHAPE_MAX_COUNT, 0, 0);
    REFUSED(graph_reshape(k.g, k.v, &s, &k.e),
            "reshape: [2199023255552] has more than 2^40 elements");
    s = shape(2, SHAPE_MAX_COUNT, 64, 0);
    REFUSED(graph_broadcast(k.g, k.v, &s, &k.e),
            "broadcast: [1099511627776, 64] has more than 2^40 elements");
    graph_free(k.g);
}

/* What only a bug of ours asks for is an error too, and adds nothing. */
static void check_bugs(void)
{
    struct kit k = kit_new();
    int n = graph_count(k.g), far[1] = {n};

    ok(graph_add(k.g, OP_SOFTMAX, far, 1, &A(.axis = 0), &k.e) == -1 && k.e.code == ERR_INTERNAL,
       "an input that is not there yet: %s", k.e.msg);
    ok(graph_add(k.g, OP(ADD), &k.x, 1, NULL, &k.e) == -1 && k.e.code == ERR_INTERNAL,
       "too few inputs: %s", k.e.msg);
    ok(graph_add(k.g, OP_COUNT, &k.x, 1, NULL, &k.e) == -1, "no such op: %s", k.e.msg);
    ok(graph_out(k.g, k.x, 1, &k.e) == -1, "no such output: %s", k.e.msg);
    ok(graph_count(k.g) == n, "nothing was added");
    n = add2(&k, OP_RMS_NORM, k.x, k.b, A(.eps = 1));
    ok(n >= 0 && graph_out(k.g, n, 2, &k.e) == -1 &&
           add1(&k, OP_OUT, n, A(.k = ((int64_t)1 << 32) + 1)) == -1,
       "no output past the last, however far: %s", k.e.msg);
    graph_free(k.g);
}

/* ---- text, hash, copies ---- */

static struct graph *small(double value, const char *name, const char *where, bool ta)
{
    struct graph *g = graph_new();
    struct shape s = shape(2, 4, 4, 0);
    struct err e;
    int x, w;

    graph_at(g, "", where);
    x = graph_input(g, "x", &s, DT_F32, &e);
    graph_at(g, "layers.1", where);
    w = graph_param(g, name, &s, &e);
    w = graph_scalar_op(g, OP(MUL), graph_matmul(g, x, w, ta, false, &e), value, false, &e);
    graph_reduce(g, OP_SUM, w, 3, false, &e);
    return g;
}

static void check_print(void)
{
    struct graph *g = small(0.5, "w", "mlp.lua:7", true);
    struct str s = {0};

    graph_print(g, &s);
    ok(strcmp(str_c(&s), "%0 input f32 [4, 4] x  mlp.lua:7\n"
                         "%1 param f32 [4, 4] w  layers.1  mlp.lua:7\n"
                         "%2 matmul f32 [4, 4] ta  %0 %1  layers.1  mlp.lua:7\n"
                         "%3 const f32 [] 0.5  layers.1  mlp.lua:7\n"
                         "%4 broadcast f32 [4, 4]  %3  layers.1  mlp.lua:7\n"
                         "%5 mul f32 [4, 4]  %2 %4  layers.1  mlp.lua:7\n"
                         "%6 sum f32 [] axis 1 axis 2  %5  layers.1  mlp.lua:7\n") == 0,
       "a graph as text");
    note("%s", str_c(&s));
    str_reset(&s);
    graph_free(g);
    g = small(0.5, "a\"b\\", "", false);
    graph_print_dot(g, &s);
    ok(strncmp(str_c(&s), "digraph", 7) == 0 && strstr(str_c(&s), "a\\\"b\\\\") &&
           strstr(str_c(&s), "n1 -> n2"),
       "and as DOT, quotes escaped");
    str_release(&s);
    graph_free(g);
}

static bool same(struct graph *a, struct graph *b)
{
    char x[65], y[65];
    bool r;

    graph_hash(a, x);
    graph_hash(b, y);
    r = strcmp(x, y) == 0;
    graph_free(a);
    graph_free(b);
    return r;
}

static struct graph *norm(float eps, int64_t k, bool keep, int64_t start)
{
    struct kit m = kit_new();

    add2(&m, OP_RMS_NORM, m.x, m.b, A(.eps = eps));
    add1(&m, OP_TOPK_IDX, m.x, A(.axis = 1, .k = k));
    add1(&m, OP_SUM, m.x, A(.axes = 1, .keep = keep));
    add1(&m, OP_PAD, m.i, A(.start = {start, 0}, .stop = {3 - start, 0}));
    return m.g;
}

static void check_hash(void)
{
    char hex[65];
    struct graph *g = small(0.5, "w", "a", false), *c = graph_clone(g);

    graph_hash(g, hex);
    ok(strlen(hex) == 64, "64 hex digits: %s", hex);
    ok(same(g, c), "a copy has the hash");
    ok(same(small(0.5, "w", "a", false), small(0.5, "w", "b", false)), "lines do not count");
    ok(!same(small(0.5, "w", "a", false), small(0.25, "w", "a", false)), "a constant does");
    ok(!same(small(0.5, "w", "a", false), small(0.5, "v", "a", false)), "a name does");
    ok(!same(small(0.5, "w", "a", false), small(0.5, "w", "a", true)), "a flag does");
    ok(same(norm(1e-5f, 2, true, 1), norm(1e-5f, 2, true, 1)), "built twice");
    ok(!same(norm(1e-5f, 2, true, 1), norm(1e-6f, 2, true, 1)), "eps counts");
    ok(!same(norm(1e-5f, 2, true, 1), norm(1e-5f, 3, true, 1)), "k counts");
    ok(!same(norm(1e-5f, 2, true, 1), norm(1e-5f, 2, false, 1)), "keep counts");
    ok(!same(norm(1e-5f, 2, true, 1), norm(1e-5f, 2, true, 2)), "padding counts");
}

static void check_clone(void)
{
    struct graph *g = small(0.5, "w", "mlp.lua:7", false), *c = graph_clone(g);
    struct shape s = shape(2, 4, 4, 0);
    struct str a = {0}, b = {0};
    struct err e;

    graph_print(g, &a);
    graph_free(g);
    graph_print(c, &b);
    ok(strcmp(str_c(&a), str_c(&b)) == 0, "a copy outlives its original, texts and all");
    ok(graph_param(c, "w", &s, &e) == 1, "and knows its params");
    str_release(&a);
    str_release(&b);
    graph_free(c);
    graph_free(NULL);
}

static void check_flops(void)
{
    struct kit k = kit_new();
    int w = zeros(&k, shape(2, 100, 10, 0), DT_F32),
        y = graph_matmul(k.g, k.x, w, false, false, &k.e);

    ok(graph_flops(k.g, y) == 2.0 * 64 * 100 * 10, "a matrix product counts 2 a multiply-add");
    ok(graph_flops(k.g, graph_matmul(k.g, k.x, k.x, true, false, &k.e)) == 2.0 * 100 * 100 * 64,
       "with ta too");
    ok(graph_flops(k.g, graph_reduce(k.g, OP_SUM, k.x, 3, false, &k.e)) == 6400,
       "a sum counts what it reads");
    ok(graph_flops(k.g, k.x) == 0, "a leaf does nothing");
    graph_free(k.g);
}

/* Out of memory at any allocation is an error, never a crash. */
static void check_no_memory(void)
{
    int failed = 0;
    bool said = true;

    for (long n = 1; n < 60; n++) {
        struct graph *g;
        struct err e = {0};
        struct shape s = shape(1, 3, 0, 0);
        int id = 0;

        mem_fail_nth(n);
        g = graph_new();
        for (int i = 0; g && id >= 0 && i < 40; i++) {
            char name[16];
            snprintf(name, sizeof name, "p%d", i);
            id = graph_param(g, name, &s, &e);
        }
        mem_fail_nth(0);
        if (!g || id < 0)
            failed++;
        if (g && id < 0)
            said = said && e.code == ERR_NOMEM;
        graph_free(g);
    }
    ok(failed > 5 && said, "no memory: said %d times", failed);
}

/* As many params as a large model has: looked up by name. */
static void check_many(void)
{
    struct graph *g = graph_new();
    struct shape s = shape(1, 3, 0, 0);
    struct err e;
    char name[32];
    bool good = true;

    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "layers.%d.weight", i);
        good = good && graph_unary(g, OP(EXP), graph_param(g, name, &s, &e), &e) == 2 * i + 1;
    }
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "layers.%d.weight", i);
        good = good && graph_param(g, name, &s, &e) == 2 * i;
    }
    ok(good, "3000 params keep their nodes");
    graph_free(g);
}

int main(void)
{
    check_shapes();
    check_elementwise();
    check_leaves();
    check_moves();
    check_rows();
    check_matmul();
    check_refusals();
    check_bugs();
    check_print();
    check_hash();
    check_clone();
    check_flops();
    check_no_memory();
    check_many();
    return tap_done();
}
