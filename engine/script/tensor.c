/* tensor.c - symbolic tensors in Lua: userdata that name a node of one trace, with arithmetic.
 *
 * A field of the batch whose type is open (a target) becomes a node when it is used: class ids for
 * labels, numbers for anything else. A tunable is a tensor that outlives traces: its node is the
 * hyper slot it has. */
#include "engine/script/priv.h"

#include <math.h>
#include <string.h>

static const int ew_arity[] = {
#define X(name, text, arity, rule) arity,
    EW_MAP(X)
#undef X
};
static const enum ew_rule ew_rules[] = {
#define X(name, text, arity, rule) EW_RULE_##rule,
    EW_MAP(X)
#undef X
};

static char methods_key;

/* ---- handles ---- */

static int push_handle(lua_State *L, struct tensor v)
{
    struct tensor *t = lua_newuserdatauv(L, sizeof *t, 0);
    *t = v;
    luaL_setmetatable(L, TENSOR_TYPE);
    return 1;
}

int tensor_push(lua_State *L, int node)
{
    return push_handle(L, (struct tensor){TENSOR_NODE, script_of(L)->generation, node});
}

void tensor_push_field(lua_State *L, int field)
{
    push_handle(L, (struct tensor){TENSOR_FIELD, script_of(L)->generation, field});
}

void tensor_push_tunable(lua_State *L, int tunable)
{
    push_handle(L, (struct tensor){TENSOR_TUNABLE, 0, tunable});
}

struct tensor *tensor_test(lua_State *L, int idx)
{
    return luaL_testudata(L, idx, TENSOR_TYPE);
}

const struct node *tensor_node(lua_State *L, int node)
{
    return graph_node(script_of(L)->tracing->graph, node);
}

static void check_generation(lua_State *L, const struct tensor *t)
{
    struct script *s = script_of(L);
    if (t->kind != TENSOR_TUNABLE && (!s->tracing || t->generation != s->generation))
        script_raise(L, ERR_SCRIPT,
                     "a tensor of an earlier trace: every trace (train, eval, another batch size) "
                     "has tensors of its own, do not keep them");
}

static int field_node(lua_State *L, struct tracing *t, int field, bool labels)
{
    const struct script_field *f = &t->field[field];
    const char *name = f->name;
    enum dtype type = f->open_type ? DT_F32 : f->dtype;
    struct err e;

    if (f->open_type && labels) {
        name = lua_pushfstring(L, "%s.class", f->name);
        type = DT_I32;
    }
    return script_node(L, graph_input(t->graph, name, &f->shape, type, &e), &e);
}

static int node_of(lua_State *L, const struct tensor *h, bool labels)
{
    struct tracing *t = script_tracing(L);
    struct err e;

    check_generation(L, h);
    switch (h->kind) {
    case TENSOR_NODE:
        return h->id;
    case TENSOR_FIELD:
        return field_node(L, t, h->id, labels);
    case TENSOR_TUNABLE:
        break;
    }
    return script_node(L, graph_hyper(t->graph, t->first_slot + h->id, &e), &e);
}

int tensor_arg(lua_State *L, int idx)
{
    const struct tensor *h = tensor_test(L, idx);
    if (!h)
        script_raise(L, ERR_SCRIPT, "a tensor is needed here, but this is %s",
                     lua_isnoneornil(L, idx) ? "nil" : luaL_typename(L, idx));
    return node_of(L, h, false);
}

int tensor_cast(lua_State *L, int node, enum dtype t)
{
    struct err e;
    return script_node(L, graph_cast(script_of(L)->tracing->graph, node, t, &e), &e);
}

int tensor_labels(lua_State *L, int idx)
{
    char text[128];
    const struct tensor *h = tensor_test(L, idx);
    if (!h)
        return tensor_arg(L, idx);
    int node = node_of(L, h, true);
    const struct node *n = tensor_node(L, node);
    if (dtype_is_float(n->dtype))
        script_raise(L, ERR_SCRIPT, "class ids must be integers, but this is %s %s",
                     dtype_name(n->dtype), shape_text(text, sizeof text, &n->shape));
    return tensor_cast(L, node, DT_I32);
}

/* ---- elementwise ---- */

struct operand {
    int node; /* -1: a number or boolean */
    double value;
    enum dtype type; /* of a number: F32 with a fraction, else I32 */
};

static struct operand operand_at(lua_State *L, int idx)
{
    struct operand o = {.node = -1, .type = DT_BOOL};

    if (lua_type(L, idx) == LUA_TBOOLEAN) {
        o.value = lua_toboolean(L, idx);
    } else if (lua_type(L, idx) == LUA_TNUMBER) {
        o.value = lua_tonumber(L, idx);
        o.type = floor(o.value) == o.value && fabs(o.value) <= INT32_MAX ? DT_I32 : DT_F32;
    } else {
        o.node = tensor_arg(L, idx);
        o.type = tensor_node(L, o.node)->dtype;
    }
    return o;
}

/* The type in which an operation works: the widest of its operands, and what its rule asks for. */
static enum dtype common_type(enum op op, const struct operand *o, int n)
{
    bool real = false, whole = false;

    for (int i = 0; i < n; i++) {
        real = real || dtype_is_float(o[i].type);
        whole = whole || o[i].type == DT_I32 || o[i].type == DT_U8;
    }
    switch (ew_rules[op]) {
    case EW_RULE_F32:
        return DT_F32;
    case EW_RULE_LOGIC:
        return DT_BOOL;
    case EW_RULE_SAME: /* sums and products of masks are numbers; / is the true division of Lua */
        if (op == (enum op)EW_DIV || (!real && !whole))
            return DT_F32;
        break;
    case EW_RULE_BOOL:
        if (op == (enum op)EW_ISFINITE)
            return DT_F32;
        break;
    case EW_RULE_SEL:
        if (!real && !whole)
            return DT_BOOL;
        break;
    }
    return real ? DT_F32 : DT_I32;
}

static int as_node(lua_State *L, struct operand o, enum dtype t)
{
    const struct shape scalar = {0};
    struct err e;

    if (o.node >= 0)
        return tensor_cast(L, o.node, t);
    return script_node(L, graph_const(script_of(L)->tracing->graph, o.value, &scalar, t, &e), &e);
}

int tensor_elementwise(lua_State *L, enum op op, int first)
{
    struct tracing *t = script_tracing(L);
    struct operand o[3] = {0};
    int n = ew_arity[op], id;
    struct err e;

    if (ew_rules[op] == EW_RULE_SEL) {
        for (int i = 0; i < 3; i++)
            o[i] = operand_at(L, first + i);
        enum dtype type = common_type(op, o + 1, 2);
        int c = as_node(L, o[0], DT_BOOL), a = as_node(L, o[1], type);
        return script_node(L, graph_select(t->graph, c, a, as_node(L, o[2], type), &e), &e);
    }
    for (int i = 0; i < n; i++)
        o[i] = operand_at(L, first + i);
    enum dtype type = common_type(op, o, n);
    if (n == 2 && (o[0].node < 0) != (o[1].node < 0)) {
        bool first_is_number = o[0].node < 0;
        int x = as_node(L, o[first_is_number ? 1 : 0], type);
        return script_node(
            L,
            graph_scalar_op(t->graph, op, x, o[first_is_number ? 0 : 1].value, first_is_number, &e),
            &e);
    }
    int a = as_node(L, o[0], type);
    id = n == 1 ? graph_unary(t->graph, op, a, &e)
                : graph_binary(t->graph, op, a, as_node(L, o[1], type), &e);
    return script_node(L, id, &e);
}

/* Upvalue: the op. */
static int meta_arithmetic(lua_State *L)
{
    enum op op = (enum op)lua_tointeger(L, lua_upvalueindex(1));

    if (luaL_testudata(L, 1, MEAN_TYPE) || luaL_testudata(L, 2, MEAN_TYPE)) {
        luaL_getmetafield(L, luaL_testudata(L, 1, MEAN_TYPE) ? 1 : 2,
                          lua_tostring(L, lua_upvalueindex(2)));
        lua_insert(L, 1);
        lua_settop(L, 3);
        lua_call(L, 2, 1);
        return 1;
    }
    return tensor_push(L, tensor_elementwise(L, op, 1));
}

static int meta_compare(lua_State *L)
{
    return script_raise(L, ERR_SCRIPT,
                        "tensors are compared by nn.lt, nn.le, nn.gt, nn.ge, nn.eq "
                        "and nn.ne, which give a tensor");
}

static int meta_concat(lua_State *L)
{
    return script_raise(L, ERR_SCRIPT,
                        "a tensor cannot be joined with ..; nn.concat joins tensors");
}

static int meta_len(lua_State *L)
{
    return script_raise(L, ERR_SCRIPT, "a tensor has no #; its sizes are in x.shape");
}

/* ---- fields ---- */

static const struct shape *shape_of(lua_State *L, const struct tensor *h)
{
    static const struct shape scalar = {0};

    check_generation(L, h);
    if (h->kind == TENSOR_NODE)
        return &tensor_node(L, h->id)->shape;
    return h->kind == TENSOR_FIELD ? &script_of(L)->tracing->field[h->id].shape : &scalar;
}

static const char *type_of(lua_State *L, const struct tensor *h)
{
    if (h->kind == TENSOR_TUNABLE)
        return "f32";
    if (h->kind == TENSOR_NODE)
        return dtype_name(tensor_node(L, h->id)->dtype);
    const struct script_field *f = &script_of(L)->tracing->field[h->id];
    return f->open_type ? "open" : dtype_name(f->dtype);
}

static int meta_index(lua_State *L)
{
    const struct tensor *h = luaL_checkudata(L, 1, TENSOR_TYPE);
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";

    if (strcmp(key, "shape") == 0) {
        struct shape s = *shape_of(L, h);
        lua_createtable(L, s.rank, 0);
        for (int d = 0; d < s.rank; d++) {
            lua_pushinteger(L, s.dim[d]);
            lua_rawseti(L, -2, d + 1);
        }
        return 1;
    }
    if (strcmp(key, "rank") == 0) {
        lua_pushinteger(L, shape_of(L, h)->rank);
        return 1;
    }
    if (strcmp(key, "dtype") == 0) {
        check_generation(L, h);
        lua_pushstring(L, type_of(L, h));
        return 1;
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &methods_key);
    lua_pushvalue(L, 2);
    if (!lua_istable(L, -2) || lua_rawget(L, -2) == LUA_TNIL)
        return script_raise(L, ERR_SCRIPT,
                            "a tensor has no field or method \"%s\" (shape, rank, dtype and the "
                            "functions of nn that take a tensor first)",
                            key);
    return 1;
}

static int meta_newindex(lua_State *L)
{
    return script_raise(L, ERR_SCRIPT, "a tensor cannot be changed; operations give new ones");
}

static int meta_tostring(lua_State *L)
{
    const struct tensor *h = luaL_checkudata(L, 1, TENSOR_TYPE);
    struct script *s = script_of(L);
    char text[128];

    if (h->kind == TENSOR_TUNABLE)
        lua_pushfstring(L, "tunable %s", s->tunable[h->id].name);
    else if (!s->tracing || h->generation != s->generation)
        lua_pushliteral(L, "tensor of an earlier trace");
    else
        lua_pushfstring(L, "tensor %s %s", type_of(L, h),
                        shape_text(text, sizeof text, shape_of(L, h)));
    return 1;
}

/* core.methods(t): what x:name(...) finds. */
static int l_methods(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &methods_key);
    return 0;
}

/* core.is_tensor(v): also true of tunables. */
static int l_is_tensor(lua_State *L)
{
    lua_pushboolean(L, tensor_test(L, 1) != NULL);
    return 1;
}

static int l_is_tunable(lua_State *L)
{
    const struct tensor *h = tensor_test(L, 1);
    lua_pushboolean(L, h && h->kind == TENSOR_TUNABLE);
    return 1;
}

void tensor_open(lua_State *L)
{
    static const struct {
        const char *name;
        enum ew ew;
    } arithmetic[] = {{"__add", EW_ADD}, {"__sub", EW_SUB}, {"__mul", EW_MUL}, {"__div", EW_DIV},
                      {"__pow", EW_POW}, {"__mod", EW_MOD}, {"__unm", EW_NEG}};
    static const luaL_Reg meta[] = {
        {"__index", meta_index}, {"__newindex", meta_newindex}, {"__eq", meta_compare},
        {"__lt", meta_compare},  {"__le", meta_compare},        {"__concat", meta_concat},
        {"__len", meta_len},     {"__tostring", meta_tostring}, {NULL, NULL}};
    static const luaL_Reg core[] = {{"methods", l_methods},
                                    {"is_tensor", l_is_tensor},
                                    {"is_tunable", l_is_tunable},
                                    {NULL, NULL}};

    luaL_newmetatable(L, TENSOR_TYPE);
    luaL_setfuncs(L, meta, 0);
    for (size_t i = 0; i < sizeof arithmetic / sizeof *arithmetic; i++) {
        lua_pushinteger(L, arithmetic[i].ew);
        lua_pushstring(L, arithmetic[i].name);
        lua_pushcclosure(L, meta_arithmetic, 2);
        lua_setfield(L, -2, arithmetic[i].name);
    }
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    luaL_setfuncs(L, core, 0);
}
