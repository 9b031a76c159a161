/* mean.c - means: sums of coef * (sum / weight), as losses and metrics are.
 *
 * Closed under + and - of means and scalars, and under * and / by numbers and tunables. A plain
 * scalar becomes a mean that counts once per sample. */
#include "engine/script/priv.h"

#include <math.h>

#include "engine/base/alloc.h"

#define TERMS_MAX 64

struct mean {
    uint64_t generation;
    int n;
    struct trace_term term[]; /* n of them */
};

static struct mean *push_mean(lua_State *L, int n)
{
    if (n > TERMS_MAX)
        script_raise(L, ERR_SCRIPT, "a mean of more than %d terms", TERMS_MAX);
    struct mean *m = lua_newuserdatauv(L, sizeof *m + (size_t)n * sizeof m->term[0], 0);
    m->generation = script_of(L)->generation;
    m->n = n;
    luaL_setmetatable(L, MEAN_TYPE);
    return m;
}

/* A scalar f32 node of the tensor at idx. */
static int scalar_at(lua_State *L, int idx, const char *what)
{
    const struct shape scalar = {0};
    char text[128];
    struct err e;
    int x = tensor_cast(L, tensor_arg(L, idx), DT_F32);
    struct shape s = tensor_node(L, x)->shape;

    if (shape_count(&s) != 1)
        script_raise(L, ERR_SHAPE,
                     "%s is %s, but must be a mean or a scalar: nn.mean(sum, weight) makes a mean "
                     "of two sums",
                     what, shape_text(text, sizeof text, &s));
    if (s.rank == 0)
        return x;
    return script_node(L, graph_reshape(script_of(L)->tracing->graph, x, &scalar, &e), &e);
}

static int constant(lua_State *L, double v)
{
    const struct shape scalar = {0};
    struct err e;
    return script_node(L, graph_const(script_tracing(L)->graph, v, &scalar, DT_F32, &e), &e);
}

/* node * tunable (a value) */
static int times(lua_State *L, int node, int by)
{
    struct err e;
    return script_node(L, graph_binary(script_tracing(L)->graph, (enum op)EW_MUL, node, by, &e),
                       &e);
}

static struct mean *check_mean(lua_State *L, int idx)
{
    struct mean *m = luaL_checkudata(L, idx, MEAN_TYPE);
    script_tracing(L);
    if (m->generation != script_of(L)->generation)
        script_raise(L, ERR_SCRIPT, "a mean of an earlier trace");
    return m;
}

/* The value at idx as a mean, pushed. */
static struct mean *as_mean(lua_State *L, int idx, const char *what)
{
    struct tracing *t = script_tracing(L);

    if (luaL_testudata(L, idx, MEAN_TYPE)) {
        lua_pushvalue(L, idx);
        return check_mean(L, -1);
    }
    int x = lua_type(L, idx) == LUA_TNUMBER ? constant(L, lua_tonumber(L, idx))
                                            : scalar_at(L, idx, what);
    int n = constant(L, (double)t->batch);
    struct mean *m = push_mean(L, 1);
    m->term[0] = (struct trace_term){1, times(L, x, n), n};
    return m;
}

static int add(lua_State *L, double sign)
{
    lua_settop(L, 2);
    struct mean *a = as_mean(L, 1, "a term of a loss"), *b = as_mean(L, 2, "a term of a loss");
    struct mean *m = push_mean(L, a->n + b->n);

    for (int i = 0; i < a->n; i++)
        m->term[i] = a->term[i];
    for (int i = 0; i < b->n; i++) {
        m->term[a->n + i] = b->term[i];
        m->term[a->n + i].coef *= sign;
    }
    return 1;
}

static int meta_add(lua_State *L)
{
    return add(L, 1);
}

static int meta_sub(lua_State *L)
{
    return add(L, -1);
}

static int scaled(lua_State *L, int idx, double f)
{
    struct mean *a = check_mean(L, idx), *m = push_mean(L, a->n);

    for (int i = 0; i < a->n; i++) {
        m->term[i] = a->term[i];
        m->term[i].coef *= f;
        if (!isfinite(m->term[i].coef))
            script_raise(L, ERR_SCRIPT, "a mean times %g is not finite", f);
    }
    return 1;
}

static int meta_unm(lua_State *L)
{
    return scaled(L, 1, -1);
}

static int meta_mul(lua_State *L)
{
    int at = luaL_testudata(L, 1, MEAN_TYPE) ? 1 : 2, other = 3 - at;
    const struct tensor *t = tensor_test(L, other);

    if (lua_type(L, other) == LUA_TNUMBER)
        return scaled(L, at, lua_tonumber(L, other));
    if (!t || t->kind != TENSOR_TUNABLE)
        return script_raise(L, ERR_SCRIPT,
                            "a mean can be multiplied by a number or a tunable; "
                            "other factors belong into its sum");
    struct mean *a = check_mean(L, at), *m = push_mean(L, a->n);
    int by = tensor_arg(L, other);
    for (int i = 0; i < a->n; i++) {
        m->term[i] = a->term[i];
        m->term[i].sum = times(L, a->term[i].sum, by);
    }
    return 1;
}

static int meta_div(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TNUMBER || !luaL_testudata(L, 1, MEAN_TYPE))
        return script_raise(L, ERR_SCRIPT, "a mean can be divided by a number only");
    return scaled(L, 1, 1 / lua_tonumber(L, 2));
}

static int meta_refused(lua_State *L)
{
    return script_raise(L, ERR_SCRIPT,
                        "a mean (a loss or metric) takes + - and * by a number; "
                        "work on tensors before they become a mean");
}

/* core.mean(sum, weight): weight is a scalar tensor or a number. */
static int l_mean(lua_State *L)
{
    int sum = scalar_at(L, 1, "the sum of a mean");
    int weight = lua_type(L, 2) == LUA_TNUMBER ? constant(L, lua_tonumber(L, 2))
                                               : scalar_at(L, 2, "the weight of a mean");
    struct mean *m = push_mean(L, 1);

    m->term[0] = (struct trace_term){1, sum, weight};
    return 1;
}

static int l_is_mean(lua_State *L)
{
    lua_pushboolean(L, luaL_testudata(L, 1, MEAN_TYPE) != NULL);
    return 1;
}

/* Does a node depend on parameters, hyperparameters or random numbers? */
static bool depends(lua_State *L, int node)
{
    const struct graph *g = script_of(L)->tracing->graph;
    luaL_checkstack(L, 2, NULL);
    unsigned char *mark = lua_newuserdatauv(L, (size_t)node + 1, 0); /* inputs are before a node */
    bool found = false;

    for (int i = 0; i <= node; i++)
        mark[i] = i == node;
    for (int i = node; i >= 0 && !found; i--) {
        const struct node *n = graph_node(g, i);
        if (!mark[i])
            continue;
        found = n->op == OP_PARAM || n->op == OP_HYPER || n->op == OP_RNG_UNIFORM ||
                n->op == OP_RNG_BITS || n->op == OP_DROPOUT || n->op == OP_BUFFER;
        for (int j = 0; j < n->n_in; j++)
            mark[n->in[j]] = 1;
    }
    lua_pop(L, 1);
    return found;
}

void mean_take(lua_State *L, int idx, const char *what, struct trace_mean *out)
{
    if (!luaL_testudata(L, idx, MEAN_TYPE) && !tensor_test(L, idx))
        script_raise(L, ERR_SCRIPT, "%s must be a mean or a scalar tensor, but is %s", what,
                     luaL_typename(L, idx));
    const struct mean *m = as_mean(L, idx, what);
    for (int i = 0; i < m->n; i++)
        if (depends(L, m->term[i].weight))
            script_raise(L, ERR_SCRIPT,
                         "%s: the weight of a mean must depend on the batch only, but this one "
                         "depends on parameters, tunables or random numbers",
                         what);
    out->term = mem_array((size_t)m->n, sizeof *out->term);
    if (!out->term)
        script_raise(L, ERR_NOMEM, "out of memory");
    out->n = m->n;
    for (int i = 0; i < m->n; i++)
        out->term[i] = m->term[i];
    lua_pop(L, 1);
}

void mean_open(lua_State *L)
{
    static const luaL_Reg meta[] = {
        {"__add", meta_add},     {"__sub", meta_sub},       {"__mul", meta_mul},
        {"__div", meta_div},     {"__unm", meta_unm},       {"__pow", meta_refused},
        {"__mod", meta_refused}, {"__index", meta_refused}, {NULL, NULL}};
    static const luaL_Reg core[] = {{"mean", l_mean}, {"is_mean", l_is_mean}, {NULL, NULL}};

    luaL_newmetatable(L, MEAN_TYPE);
    luaL_setfuncs(L, meta, 0);
    lua_pushliteral(L, "mean");
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    luaL_setfuncs(L, core, 0);
}
