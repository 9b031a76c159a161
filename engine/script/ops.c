/* ops.c - nn.core: arithmetic, reductions, products, normalisation and random numbers.
 *
 * Axes come as Lua has them: 1 is the first, -1 the last. Errors name the op through the graph's
 * message. */
#include "engine/script/priv.h"

#include <string.h>

#include "engine/base/hash.h"

/* ---- arguments ---- */

int args_axis(lua_State *L, int idx, int rank)
{
    lua_Integer a = luaL_optinteger(L, idx, -1), at = a < 0 ? a + rank : a - 1;

    if (at < 0 || at >= rank || a == 0)
        script_raise(L, ERR_SHAPE,
                     "axis %lld of a tensor of rank %d: axes are 1 .. %d, -1 is the last",
                     (long long)a, rank, rank);
    return (int)at;
}

void args_shape(lua_State *L, int idx, struct shape *s, int64_t least)
{
    *s = (struct shape){0};
    luaL_checktype(L, idx, LUA_TTABLE);
    lua_Integer n = luaL_len(L, idx);
    if (n < 0 || n > SHAPE_RANK)
        script_raise(L, ERR_SHAPE, "a shape of %lld dimensions: at most %d", (long long)n,
                     SHAPE_RANK);
    for (int d = 0; d < n; d++) {
        int whole = 0;
        lua_geti(L, idx, d + 1);
        s->dim[d] = lua_tointegerx(L, -1, &whole);
        if (!whole || s->dim[d] < least)
            script_raise(L, ERR_SHAPE,
                         "a shape is a list of whole numbers from %lld on, but size %d is %s",
                         (long long)least, d + 1, sandbox_tostring(L, -1));
        lua_pop(L, 1);
    }
    s->rank = (int)n;
}

/* A number, a list of numbers or nil (all) as a set of dimensions. */
static uint32_t arg_axes(lua_State *L, int idx, int rank)
{
    uint32_t axes = 0;

    if (lua_isnoneornil(L, idx))
        return (1u << rank) - 1;
    if (!lua_istable(L, idx))
        return 1u << args_axis(L, idx, rank);
    lua_Integer n = luaL_len(L, idx);
    for (int i = 1; i <= n && i <= SHAPE_RANK; i++) {
        lua_geti(L, idx, i);
        axes |= 1u << args_axis(L, lua_gettop(L), rank);
        lua_pop(L, 1);
    }
    return axes;
}

static struct graph *graph_of(lua_State *L)
{
    return script_tracing(L)->graph;
}

static int push_node(lua_State *L, int id, const struct err *e)
{
    return tensor_push(L, script_node(L, id, e));
}

/* ---- elementwise, reductions ---- */

/* Upvalue: the op; the second one set: operands swapped (gt is lt the other way). */
static int l_elementwise(lua_State *L)
{
    if (lua_toboolean(L, lua_upvalueindex(2))) {
        lua_settop(L, 2);
        lua_insert(L, 1);
    }
    return tensor_push(L, tensor_elementwise(L, (enum op)lua_tointeger(L, lua_upvalueindex(1)), 1));
}

/* core.cast(x, type) */
static int l_cast(lua_State *L)
{
    static const char *const names[] = {"f32", "i32", "bool", NULL};
    static const enum dtype types[] = {DT_F32, DT_I32, DT_BOOL};
    int x = tensor_arg(L, 1);

    return tensor_push(L, tensor_cast(L, x, types[luaL_checkoption(L, 2, NULL, names)]));
}

/* core.sum(x, axes, keep) and its kin: upvalue 1 the op, or OP_COUNT for the average. */
static int l_reduce(lua_State *L)
{
    int op = (int)lua_tointeger(L, lua_upvalueindex(1));
    int x = tensor_cast(L, tensor_arg(L, 1), DT_F32);
    uint32_t axes = arg_axes(L, 2, tensor_node(L, x)->shape.rank);
    bool keep = lua_toboolean(L, 3);
    struct graph *g = graph_of(L);
    struct err e;

    if (op == OP_COUNT)
        return push_node(L, graph_mean(g, x, axes, keep, &e), &e);
    return push_node(L, graph_reduce(g, (enum op)op, x, axes, keep, &e), &e);
}

/* Ops over one axis: upvalue 1 the op. core.topk_idx(x, axis, k), core.cumsum(x, axis, reverse,
 * exclusive). */
static int l_axis(lua_State *L)
{
    enum op op = (enum op)lua_tointeger(L, lua_upvalueindex(1));
    int x = tensor_cast(L, tensor_arg(L, 1), DT_F32);
    struct op_attr a = {.axis = args_axis(L, 2, tensor_node(L, x)->shape.rank)};
    struct err e;

    if (op == OP_TOPK_IDX)
        a.k = luaL_checkinteger(L, 3);
    if (op == OP_CUMSUM) {
        a.reverse = lua_toboolean(L, 3);
        a.exclusive = lua_toboolean(L, 4);
    }
    return push_node(L, graph_add(graph_of(L), op, &x, 1, &a, &e), &e);
}

static int l_stop_gradient(lua_State *L)
{
    int x = tensor_arg(L, 1);
    struct op_attr a = {0};
    struct err e;
    return push_node(L, graph_add(graph_of(L), OP_STOP_GRADIENT, &x, 1, &a, &e), &e);
}

/* core.matmul(a, b, transpose_a, transpose_b) */
static int l_matmul(lua_State *L)
{
    int a = tensor_cast(L, tensor_arg(L, 1), DT_F32), b = tensor_cast(L, tensor_arg(L, 2), DT_F32);
    struct err e;
    return push_node(
        L, graph_matmul(graph_of(L), a, b, lua_toboolean(L, 3), lua_toboolean(L, 4), &e), &e);
}

/* ---- fused forms ---- */

/* core.layer_norm(x, gain, bias, eps), core.rms_norm(x, gain, eps): over the last axis. */
static int l_norm(lua_State *L)
{
    enum op op = (enum op)lua_tointeger(L, lua_upvalueindex(1));
    int n = op == OP_LAYER_NORM ? 3 : 2, in[3];
    struct op_attr a = {.eps = (float)luaL_checknumber(L, n + 1)};
    struct err e;

    for (int i = 0; i < n; i++)
        in[i] = tensor_cast(L, tensor_arg(L, i + 1), DT_F32);
    a.axis = tensor_node(L, in[0])->shape.rank - 1;
    return push_node(L, graph_add(graph_of(L), op, in, n, &a, &e), &e);
}

/* core.xent(logits, labels, smoothing or nil, ignore or nil): the loss of each row. */
static int l_xent(lua_State *L)
{
    int in[3] = {tensor_cast(L, tensor_arg(L, 1), DT_F32), tensor_labels(L, 2)}, n = 2;
    struct op_attr a = {0};
    struct err e;

    if (!lua_isnoneornil(L, 3))
        in[n++] = tensor_arg(L, 3);
    if (!lua_isnoneornil(L, 4)) {
        a.has_ignore = true;
        a.k = luaL_checkinteger(L, 4);
    }
    a.axis = tensor_node(L, in[0])->shape.rank - 1;
    return push_node(L, graph_add(graph_of(L), OP_XENT, in, n, &a, &e), &e);
}

/* core.labels(y): y as class ids. */
static int l_labels(lua_State *L)
{
    return tensor_push(L, tensor_labels(L, 1));
}

/* core.answer(kind, logits): how predictions come of the outputs, said by a loss. The first one
 * counts. */
static int l_answer(lua_State *L)
{
    static const char *const names[] = {"softmax", "sigmoid", NULL};
    struct tracing *t = script_tracing(L);
    int kind = luaL_checkoption(L, 1, NULL, names), node = tensor_arg(L, 2);

    if (t->in_loss && t->answer == ANSWER_PLAIN) {
        t->answer = kind == 0 ? ANSWER_SOFTMAX : ANSWER_SIGMOID;
        t->answer_of = node;
    }
    return 0;
}

/* ---- constants and random numbers ---- */

/* core.const(value, shape, type) */
static int l_const(lua_State *L)
{
    static const char *const names[] = {"f32", "i32", "bool", NULL};
    static const enum dtype types[] = {DT_F32, DT_I32, DT_BOOL};
    double v = lua_isboolean(L, 1) ? lua_toboolean(L, 1) : luaL_checknumber(L, 1);
    struct shape s = {0};
    struct err e;

    if (!lua_isnoneornil(L, 2))
        args_shape(L, 2, &s, 0);
    return push_node(
        L, graph_const(graph_of(L), v, &s, types[luaL_checkoption(L, 3, "f32", names)], &e), &e);
}

/* core.iota(shape, axis, type): the 0-based index along the axis. */
static int l_iota(lua_State *L)
{
    static const char *const names[] = {"f32", "i32", NULL};
    struct op_attr a = {0};
    struct err e;

    args_shape(L, 1, &a.shape, 0);
    a.axis = args_axis(L, 2, a.shape.rank);
    a.dtype = luaL_checkoption(L, 3, "i32", names) == 0 ? DT_F32 : DT_I32;
    return push_node(L, graph_add(graph_of(L), OP_IOTA, NULL, 0, &a, &e), &e);
}

/* core.uniform(shape): numbers in [0, 1), new in every step. */
static int l_uniform(lua_State *L)
{
    struct tracing *t = script_tracing(L);
    struct op_attr a = {.dtype = DT_F32};
    struct err e;

    args_shape(L, 1, &a.shape, 0);
    a.per_sample = a.shape.rank > 0 && a.shape.dim[0] == t->batch;
    a.stream = script_stream(L, t);
    return push_node(L, graph_add(t->graph, OP_RNG_UNIFORM, NULL, 0, &a, &e), &e);
}

/* core.dropout(x, p): masks are drawn by sample, so that they do not depend on how a step is cut
 * into batches; rows that are parts of samples ([batch * time, width]) are drawn as [batch, time *
 * width]. */
static int l_dropout(lua_State *L)
{
    struct tracing *t = script_tracing(L);
    int in[2] = {tensor_cast(L, tensor_arg(L, 1), DT_F32), tensor_arg(L, 2)};
    struct shape s = tensor_node(L, in[0])->shape, by_sample = {.rank = 2, .dim = {t->batch, -1}};
    bool parts = s.rank > 0 && t->batch > 0 && s.dim[0] != t->batch && s.dim[0] % t->batch == 0 &&
                 s.dim[0] > 0;
    struct op_attr a = {.per_sample = parts || (s.rank > 0 && s.dim[0] == t->batch)};
    struct err e;

    a.stream = script_stream(L, t);
    if (parts)
        in[0] = script_node(L, graph_reshape(t->graph, in[0], &by_sample, &e), &e);
    int y = script_node(L, graph_add(t->graph, OP_DROPOUT, in, 2, &a, &e), &e);
    if (parts)
        y = script_node(L, graph_reshape(t->graph, y, &s, &e), &e);
    return tensor_push(L, y);
}

/* core.training(): the mode of this trace. */
static int l_training(lua_State *L)
{
    lua_pushboolean(L, script_tracing(L)->training);
    return 1;
}

/* core.batch(): samples in this trace's batch. */
static int l_batch(lua_State *L)
{
    lua_pushinteger(L, script_tracing(L)->batch);
    return 1;
}

static void add_op(lua_State *L, const char *name, int op, bool swap, lua_CFunction f)
{
    lua_pushinteger(L, op);
    lua_pushboolean(L, swap);
    lua_pushcclosure(L, f, 2);
    lua_setfield(L, -2, name);
}

void ops_open(lua_State *L)
{
    static const char *const ew_names[] = {
#define X(name, text, arity, rule) text,
        EW_MAP(X)
#undef X
    };
    static const struct {
        const char *name;
        int op;
        lua_CFunction f;
    } rows[] = {{"sum", OP_SUM, l_reduce},           {"rmax", OP_RMAX, l_reduce},
                {"rmin", OP_RMIN, l_reduce},         {"prod", OP_PROD, l_reduce},
                {"average", OP_COUNT, l_reduce},     {"argmax", OP_ARGMAX, l_axis},
                {"topk_idx", OP_TOPK_IDX, l_axis},   {"cumsum", OP_CUMSUM, l_axis},
                {"softmax", OP_SOFTMAX, l_axis},     {"log_softmax", OP_LOG_SOFTMAX, l_axis},
                {"logsumexp", OP_LOGSUMEXP, l_axis}, {"layer_norm", OP_LAYER_NORM, l_norm},
                {"rms_norm", OP_RMS_NORM, l_norm}};
    static const luaL_Reg f[] = {{"answer", l_answer},
                                 {"batch", l_batch},
                                 {"cast", l_cast},
                                 {"const", l_const},
                                 {"dropout", l_dropout},
                                 {"iota", l_iota},
                                 {"labels", l_labels},
                                 {"matmul", l_matmul},
                                 {"stop_gradient", l_stop_gradient},
                                 {"training", l_training},
                                 {"uniform", l_uniform},
                                 {"xent", l_xent},
                                 {NULL, NULL}};

    luaL_setfuncs(L, f, 0);
    for (int i = 0; i < EW_COUNT; i++)
        add_op(L, ew_names[i], i, false, l_elementwise);
    add_op(L, "gt", EW_LT, true, l_elementwise);
    add_op(L, "ge", EW_LE, true, l_elementwise);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        add_op(L, rows[i].name, rows[i].op, false, rows[i].f);
}
