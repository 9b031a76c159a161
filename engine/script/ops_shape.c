/* ops_shape.c - nn.core: operations that move elements (reshape, slice, concat, take ...). */
#include "engine/script/priv.h"

#include <limits.h>

static struct graph *graph_of(lua_State *L)
{
    return script_tracing(L)->graph;
}

static int push_node(lua_State *L, int id, const struct err *e)
{
    return tensor_push(L, script_node(L, id, e));
}

/* core.reshape(x, shape): one size may be -1. */
static int l_reshape(lua_State *L)
{
    int x = tensor_arg(L, 1);
    struct shape s;
    struct err e;

    args_shape(L, 2, &s, -1);
    return push_node(L, graph_reshape(graph_of(L), x, &s, &e), &e);
}

/* core.broadcast(x, shape) */
static int l_broadcast(lua_State *L)
{
    int x = tensor_arg(L, 1);
    struct shape s;
    struct err e;

    args_shape(L, 2, &s, 0);
    return push_node(L, graph_broadcast(graph_of(L), x, &s, &e), &e);
}

/* core.permute(x, {axes}): axis d of the result is axis axes[d] of x. */
static int l_permute(lua_State *L)
{
    int x = tensor_arg(L, 1), rank = tensor_node(L, x)->shape.rank, perm[SHAPE_RANK] = {0};
    uint32_t seen = 0;
    struct err e;

    luaL_checktype(L, 2, LUA_TTABLE);
    if (luaL_len(L, 2) != rank)
        script_raise(L, ERR_SHAPE, "permute: %d axes for a tensor of rank %d", (int)luaL_len(L, 2),
                     rank);
    for (int d = 0; d < rank; d++) {
        lua_geti(L, 2, d + 1);
        perm[d] = args_axis(L, lua_gettop(L), rank);
        seen |= 1u << perm[d];
        lua_pop(L, 1);
    }
    if (seen != (1u << rank) - 1)
        script_raise(L, ERR_SHAPE, "permute: each axis must stand once in the list");
    return push_node(L, graph_permute(graph_of(L), x, perm, &e), &e);
}

/* core.transpose(x, a, b): swaps two axes; the last two by default. */
static int l_transpose(lua_State *L)
{
    int x = tensor_arg(L, 1), rank = tensor_node(L, x)->shape.rank, perm[SHAPE_RANK];
    struct err e;

    if (rank < 2)
        script_raise(L, ERR_SHAPE, "transpose: a tensor of rank %d has no two axes", rank);
    for (int d = 0; d < SHAPE_RANK; d++)
        perm[d] = d;
    int a = lua_isnoneornil(L, 2) ? rank - 2 : args_axis(L, 2, rank);
    int b = args_axis(L, 3, rank);
    perm[a] = b;
    perm[b] = a;
    return push_node(L, graph_permute(graph_of(L), x, perm, &e), &e);
}

/* The whole of a tensor as slice attributes. */
static struct op_attr whole(const struct shape *s)
{
    struct op_attr a = {0};
    for (int d = 0; d < s->rank; d++) {
        a.stop[d] = s->dim[d];
        a.step[d] = 1;
    }
    return a;
}

/* core.slice(x, axis, first, last, step): places first .. last, 1-based and inclusive as
 * string.sub; negative ones count from the end. */
static int l_slice(lua_State *L)
{
    int x = tensor_arg(L, 1), axis = args_axis(L, 2, tensor_node(L, x)->shape.rank);
    struct op_attr a = whole(&tensor_node(L, x)->shape);
    int64_t n = a.stop[axis];
    lua_Integer first = luaL_optinteger(L, 3, 1), last = luaL_optinteger(L, 4, -1),
                step = luaL_optinteger(L, 5, 1);
    struct err e;

    int64_t from = first < 0 ? first + n : first - 1, to = last < 0 ? last + n + 1 : last;
    if (first == 0 || from < 0 || from > n || to < from || to > n || step < 1)
        script_raise(L, ERR_SHAPE, "slice: places %lld .. %lld (step %lld) of an axis of %lld",
                     (long long)first, (long long)last, (long long)step, (long long)n);
    a.start[axis] = from;
    a.stop[axis] = to;
    a.step[axis] = step;
    return push_node(L, graph_add(graph_of(L), OP_SLICE, &x, 1, &a, &e), &e);
}

/* core.pad(x, axis, before, after, value) */
static int l_pad(lua_State *L)
{
    int x = tensor_arg(L, 1), axis = args_axis(L, 2, tensor_node(L, x)->shape.rank);
    struct op_attr a = {.value = luaL_optnumber(L, 5, 0)};
    struct err e;

    a.start[axis] = luaL_checkinteger(L, 3);
    a.stop[axis] = luaL_checkinteger(L, 4);
    if (a.start[axis] < 0 || a.stop[axis] < 0)
        script_raise(L, ERR_SHAPE, "pad: sizes must not be negative");
    return push_node(L, graph_add(graph_of(L), OP_PAD, &x, 1, &a, &e), &e);
}

/* core.flip(x, axis) */
static int l_flip(lua_State *L)
{
    int x = tensor_arg(L, 1);
    struct op_attr a = {.axes = 1u << args_axis(L, 2, tensor_node(L, x)->shape.rank)};
    struct err e;
    return push_node(L, graph_add(graph_of(L), OP_FLIP, &x, 1, &a, &e), &e);
}

/* core.concat({tensors}, axis): more than eight are joined in rounds. */
static int l_concat(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer n = luaL_len(L, 1);
    int in[GRAPH_IN], have = 0;
    struct op_attr a = {0};
    struct err e;

    if (n < 1 || n > 4096)
        script_raise(L, ERR_SHAPE, "concat: a list of 1 to 4096 tensors is needed");
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, 1, i);
        in[have++] = tensor_arg(L, lua_gettop(L));
        lua_pop(L, 1);
        if (i == 1)
            a.axis = args_axis(L, 2, tensor_node(L, in[0])->shape.rank);
        if (have == GRAPH_IN && i < n) {
            in[0] = script_node(L, graph_add(graph_of(L), OP_CONCAT, in, have, &a, &e), &e);
            have = 1;
        }
    }
    if (have == 1)
        return tensor_push(L, in[0]);
    return push_node(L, graph_add(graph_of(L), OP_CONCAT, in, have, &a, &e), &e);
}

/* core.take(x, ids, axis): ids are 0-based class or token ids. core.take_along(x, ids, axis) */
static int l_take(lua_State *L)
{
    enum op op = (enum op)lua_tointeger(L, lua_upvalueindex(1));
    int in[2] = {tensor_arg(L, 1), tensor_labels(L, 2)};
    struct op_attr a = {.axis = args_axis(L, 3, tensor_node(L, in[0])->shape.rank)};
    struct err e;
    return push_node(L, graph_add(graph_of(L), op, in, 2, &a, &e), &e);
}

/* core.scatter_add(x, ids, src, axis) */
static int l_scatter_add(lua_State *L)
{
    int in[3] = {tensor_cast(L, tensor_arg(L, 1), DT_F32), tensor_labels(L, 2),
                 tensor_cast(L, tensor_arg(L, 3), DT_F32)};
    struct op_attr a = {.axis = args_axis(L, 4, tensor_node(L, in[0])->shape.rank)};
    struct err e;
    return push_node(L, graph_add(graph_of(L), OP_SCATTER_ADD, in, 3, &a, &e), &e);
}

void ops_shape_open(lua_State *L)
{
    static const luaL_Reg f[] = {{"broadcast", l_broadcast},
                                 {"concat", l_concat},
                                 {"flip", l_flip},
                                 {"pad", l_pad},
                                 {"permute", l_permute},
                                 {"reshape", l_reshape},
                                 {"scatter_add", l_scatter_add},
                                 {"slice", l_slice},
                                 {"transpose", l_transpose},
                                 {NULL, NULL}};

    luaL_setfuncs(L, f, 0);
    lua_pushinteger(L, OP_TAKE);
    lua_pushcclosure(L, l_take, 1);
    lua_setfield(L, -2, "take");
    lua_pushinteger(L, OP_TAKE_ALONG);
    lua_pushcclosure(L, l_take, 1);
    lua_setfield(L, -2, "take_along");
}
