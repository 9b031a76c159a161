/* layer.c - where we are: the stack of layers, places for messages, parameters and tunables. */
#include "engine/script/priv.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/hash.h"
#include "engine/base/str.h"

#define NODE_COST 100 /* instructions: a node is more work than a step of Lua */

/* ---- places ---- */

struct script *script_of(lua_State *L)
{
    return sandbox_of(L)->owner;
}

static int l_call(lua_State *L);

/* The user's frame nearest to the top, but not beyond the call of the current layer. */
static bool user_place(lua_State *L, bool stop_at_layer, char *buf, size_t cap)
{
    lua_Debug ar;

    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Slf", &ar);
        bool layer = lua_tocfunction(L, -1) == l_call;
        lua_pop(L, 1);
        if (layer && stop_at_layer)
            return false;
        if (ar.currentline > 0 && ar.source[0] == '@') {
            snprintf(buf, cap, "%.200s:%d", ar.source + 1, ar.currentline);
            return true;
        }
    }
    return false;
}

void script_place(lua_State *L, char buf[SANDBOX_WHERE])
{
    struct script *s = script_of(L);

    luaL_checkstack(L, 2, NULL);
    if (user_place(L, s->depth > 0, buf, SANDBOX_WHERE))
        return;
    snprintf(buf, SANDBOX_WHERE, "%s", s->depth > 0 ? s->layer[s->depth - 1].where : s->sb.here);
}

int script_raise(lua_State *L, enum err_code code, const char *fmt, ...)
{
    struct script *s = script_of(L);
    const struct layer *at = s->depth > 0 ? &s->layer[s->depth - 1] : NULL;
    char msg[sizeof((struct err *)0)->msg], where[SANDBOX_WHERE];
    va_list ap;

    script_place(L, where);
    int n = at ? snprintf(msg, sizeof msg, "%s: %.200s (%.40s): ", where, at->path, at->kind)
               : snprintf(msg, sizeof msg, "%s: ", where);
    va_start(ap, fmt);
    vsnprintf(msg + n, sizeof msg - (size_t)n, fmt, ap);
    va_end(ap);
    return sandbox_raise(L, code, msg);
}

struct tracing *script_tracing(lua_State *L)
{
    struct script *s = script_of(L);
    char where[SANDBOX_WHERE];

    if (!s->tracing)
        script_raise(L, ERR_SCRIPT,
                     "tensors exist only while forward, loss, metrics or predict run");
    sandbox_charge(L, NODE_COST);
    script_place(L, where);
    graph_at(s->tracing->graph, s->depth > 0 ? s->layer[s->depth - 1].path : "", where);
    return s->tracing;
}

int script_node(lua_State *L, int id, const struct err *e)
{
    if (id < 0)
        script_raise(L, e->code, "%s", e->msg);
    return id;
}

/* ---- calling a layer ---- */

/* core.call(path, kind, where, f, ...): f(...) with that layer as the current one. Errors of the
 * shipped scripts' own lines get the layer's line by sandbox_explain's rule, so the layer must
 * still be there when they are made. */
static int explain(lua_State *L)
{
    struct script *s = script_of(L);
    const char *msg = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
    lua_Debug ar;

    /* a message that Lua itself placed in a shipped script: the user looks for the layer */
    for (int level = 0; msg && s->depth > 0 && lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline <= 0)
            continue;
        size_t n = strlen(ar.source + 1);
        if (ar.source[0] == '=' && strncmp(msg, ar.source + 1, n) == 0 && msg[n] == ':') {
            const struct layer *at = &s->layer[s->depth - 1];
            lua_pushfstring(L, "%s: %s (%s): %s", at->where, at->path, at->kind, msg);
            return 1;
        }
        break;
    }
    return sandbox_explain(L);
}

static int l_call(lua_State *L)
{
    struct script *s = script_of(L);
    int depth = s->depth;
    struct layer at = {.path = luaL_checkstring(L, 1),
                       .kind = luaL_checkstring(L, 2),
                       .where = luaL_checkstring(L, 3)};

    if (depth >= LAYER_DEPTH)
        return script_raise(L, ERR_SCRIPT, "layers are called within layers more than %d deep",
                            LAYER_DEPTH);
    lua_pushcfunction(L, explain);
    lua_insert(L, 4);
    s->layer[s->depth++] = at;
    int status = lua_pcall(L, lua_gettop(L) - 5, LUA_MULTRET, 4);
    s->depth = depth;
    if (status != LUA_OK)
        return lua_error(L);
    return lua_gettop(L) - 4;
}

/* core.place(): the first line outside the shipped scripts, for a layer that is being made. */
static int l_place(lua_State *L)
{
    char where[SANDBOX_WHERE];

    if (!user_place(L, false, where, sizeof where))
        snprintf(where, sizeof where, "%s", script_of(L)->sb.here);
    lua_pushstring(L, where);
    return 1;
}

/* core.path(): the current layer's path, "" outside of layers. */
static int l_path(lua_State *L)
{
    struct script *s = script_of(L);
    lua_pushstring(L, s->depth > 0 ? s->layer[s->depth - 1].path : "");
    return 1;
}

/* core.fail(message): an error of nn.lua about what the user did. */
static int l_fail(lua_State *L)
{
    return script_raise(L, ERR_SCRIPT, "%s", luaL_checkstring(L, 1));
}

/* core.nearest(word, list): the nearest text of the list, or nil. */
static int l_nearest(lua_State *L)
{
    const char *names[256], *word = luaL_checkstring(L, 1);
    int n = 0;

    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    luaL_checkstack(L, 260, NULL);
    while (n < 256 && lua_rawgeti(L, 2, n + 1) == LUA_TSTRING)
        names[n++] = lua_tostring(L, -1); /* stays on the stack */
    int at = str_nearest(word, names, n);
    if (at < 0)
        lua_pushnil(L);
    else
        lua_pushstring(L, names[at]);
    return 1;
}

/* Upvalue: the library. Asking for what is not there is an error: a misspelt function would be nil.
 */
static int library_missing(lua_State *L)
{
    const char *names[256], *key = sandbox_tostring(L, 2);
    lua_Integer n = sandbox_sorted_keys(L, lua_upvalueindex(1));
    int keys = lua_gettop(L), count = 0;

    luaL_checkstack(L, 260, NULL);
    for (int i = 1; i <= n && i <= 256; i++) {
        lua_rawgeti(L, keys, i);
        if (lua_type(L, -1) == LUA_TSTRING)
            names[count++] = lua_tostring(L, -1);
    }
    int at = str_nearest(key, names, count);
    return script_raise(L, ERR_SCRIPT, "nn has no \"%s\"%s%s%s", key,
                        at >= 0 ? "; did you mean nn." : "", at >= 0 ? names[at] : "",
                        at >= 0 ? "?" : "");
}

/* core.library(t): t as a table that can be read only, and complains about names it does not have.
 */
static int l_library(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, library_missing, 1);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, 1);
    sandbox_lock(L, "nn");
    return 1;
}

/* core.generation(): a number that changes with every trace, 0 outside of one. */
static int l_generation(lua_State *L)
{
    struct script *s = script_of(L);
    lua_pushinteger(L, s->tracing ? (lua_Integer)s->generation : 0);
    return 1;
}

uint32_t script_stream(lua_State *L, struct tracing *t)
{
    struct script *s = script_of(L);
    const char *path = s->depth > 0 ? s->layer[s->depth - 1].path : "";
    char name[PARAM_NAME_MAX + 32];
    uint32_t h = hash_fnv32(path);

    if (mem_grow((void **)&t->streams, &t->stream_cap, (size_t)t->n_streams, sizeof *t->streams) <
        0)
        script_raise(L, ERR_NOMEM, "out of memory");
    for (int use = 2;; use++) {
        bool taken = false;
        for (int i = 0; i < t->n_streams && !taken; i++)
            taken = t->streams[i] == h;
        if (!taken)
            break;
        snprintf(name, sizeof name, "%.*s#%d", PARAM_NAME_MAX, path, use);
        h = hash_fnv32(name);
        sandbox_charge(L, t->n_streams / 8 + 1);
    }
    t->streams[t->n_streams++] = h;
    return h;
}

/* ---- parameters ---- */

void param_list_release(struct param_list *l)
{
    for (int i = 0; i < l->n; i++) {
        mem_free(l->item[i].name);
        mem_free(l->item[i].where);
    }
    mem_free(l->item);
    *l = (struct param_list){0};
}

static const struct param_def *param_find(const struct param_list *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->item[i].name, name) == 0)
            return &l->item[i];
    return NULL;
}

static void check_name(lua_State *L, const char *what, const char *name)
{
    static const char legal[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t n = strlen(name);

    if (n == 0 || n > PARAM_NAME_MAX || strspn(name, legal) != n)
        script_raise(L, ERR_SCRIPT,
                     "%s \"%.60s\": a name has 1 to %d letters, digits, _ - and dots", what, name,
                     PARAM_NAME_MAX);
}

/* A parameter of this name was made before, in this trace (first = false) or in the first one: it
 * must be alike. */
static void check_same(lua_State *L, const struct param_def *old, const struct param_def *p,
                       bool first)
{
    char a[128], b[128];
    const char *then = first ? "in the first trace" : "earlier in this trace";

    if (!shape_equal(&old->shape, &p->shape))
        script_raise(L, ERR_SCRIPT, "parameter %s is %s here, but %s %s (%s%s%s)", old->name,
                     shape_text(a, sizeof a, &p->shape), shape_text(b, sizeof b, &old->shape), then,
                     old->where, first ? "; " : "", first ? script_of(L)->first_trace : "");
    if (old->init != p->init || old->a != p->a || old->b != p->b || old->decay != p->decay)
        script_raise(L, ERR_SCRIPT, "parameter %s has another init or decay here than %s (%s)",
                     old->name, then, old->where);
}

static void refuse_new(lua_State *L, const char *name)
{
    struct script *s = script_of(L);
    const char *names[256];
    int n = 0;

    for (; n < s->params.n && n < 256; n++)
        names[n] = s->params.item[n].name;
    int near = str_nearest(name, names, n);
    const struct param_def *other = near >= 0 ? &s->params.item[near] : s->params.item;
    script_raise(L, ERR_SCRIPT,
                 "parameter %s is new: the first trace (%s) did not make it%s%s%s%s%s", name,
                 s->first_trace, s->params.n ? ", but " : "", s->params.n ? other->name : "",
                 s->params.n ? " (" : "", s->params.n ? other->where : "", s->params.n ? ")" : "");
}

static bool is_init(const char *kind, enum init_kind *out)
{
    static const char *const names[] = {"zeros",  "ones",         "const",     "uniform",
                                        "normal", "trunc_normal", "orthogonal"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(kind, names[i]) == 0) {
            *out = (enum init_kind)i;
            return true;
        }
    return false;
}

/* core.param(name, shape, init, a, b, decay): the parameter "<path of the layer>.<name>". */
static int l_param(lua_State *L)
{
    struct script *s = script_of(L);
    struct tracing *t = script_tracing(L);
    struct param_def p = {
        .a = luaL_checknumber(L, 4), .b = luaL_checknumber(L, 5), .decay = lua_toboolean(L, 6)};
    char where[SANDBOX_WHERE];
    struct err e;

    const char *name = luaL_checkstring(L, 1);
    if (s->depth > 0)
        name = lua_pushfstring(L, "%s.%s", s->layer[s->depth - 1].path, name);
    check_name(L, "parameter", name);
    args_shape(L, 2, &p.shape, 1);
    if (!is_init(luaL_checkstring(L, 3), &p.init) || !isfinite(p.a) || !isfinite(p.b))
        return script_raise(L, ERR_SCRIPT, "parameter %s: an init with a number that is not finite",
                            name);
    const struct param_def *old = param_find(&t->params, name);
    if (old) {
        check_same(L, old, &p, false);
        return tensor_push(L, old->node);
    }
    if (s->first_trace[0]) {
        old = param_find(&s->params, name);
        if (!old)
            refuse_new(L, name);
        check_same(L, old, &p, true);
    }
    script_place(L, where);
    p.node = script_node(L, graph_param(t->graph, name, &p.shape, &e), &e);
    sandbox_charge(L, t->params.n);
    if (t->params.n >= TRACE_PARAMS_MAX)
        return script_raise(L, ERR_SCRIPT, "more than %d parameters", TRACE_PARAMS_MAX);
    if (mem_grow((void **)&t->params.item, &t->params.cap, (size_t)t->params.n, sizeof p) < 0)
        return script_raise(L, ERR_NOMEM, "out of memory");
    p.name = mem_strdup(name);
    p.where = mem_strdup(where);
    t->params.item[t->params.n++] = p; /* the list owns them, whole or not */
    if (!p.name || !p.where)
        return script_raise(L, ERR_NOMEM, "out of memory");
    return tensor_push(L, p.node);
}

/* ---- tunables ---- */

static int tunable_add(lua_State *L, const struct tunable_def *d)
{
    struct script *s = script_of(L);

    for (int i = 0; i < s->n_tunables; i++) {
        const struct tunable_def *o = &s->tunable[i];
        if (strcmp(o->name, d->name) != 0)
            continue;
        if (o->value != d->value || o->min != d->min || o->max != d->max)
            script_raise(L, ERR_SCRIPT,
                         "tunable %s has two meanings: %g (%g .. %g) here, %g (%g .. %g) before",
                         d->name, d->value, d->min, d->max, o->value, o->min, o->max);
        return i;
    }
    if (s->n_tunables >= TUNABLES_MAX)
        script_raise(L, ERR_SCRIPT, "more than %d tunables", TUNABLES_MAX);
    if (mem_grow((void **)&s->tunable, &s->tunable_cap, (size_t)s->n_tunables, sizeof *d) < 0)
        script_raise(L, ERR_NOMEM, "out of memory");
    s->tunable[s->n_tunables] = *d;
    s->tunable[s->n_tunables].name = mem_strdup(d->name);
    if (!s->tunable[s->n_tunables].name)
        script_raise(L, ERR_NOMEM, "out of memory");
    return s->n_tunables++;
}

/* core.tunable(name, value, min, max) */
static int l_tunable(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    struct tunable_def d = {.value = luaL_checknumber(L, 2),
                            .min = luaL_optnumber(L, 3, -HUGE_VAL),
                            .max = luaL_optnumber(L, 4, HUGE_VAL)};
    char copy[PARAM_NAME_MAX + 1];

    check_name(L, "tunable", name);
    if (!(d.value >= d.min && d.value <= d.max) || !isfinite(d.value))
        return script_raise(L, ERR_SCRIPT, "tunable %s: %g is not in %g .. %g", name, d.value,
                            d.min, d.max);
    snprintf(copy, sizeof copy, "%s", name);
    d.name = copy;
    tensor_push_tunable(L, tunable_add(L, &d));
    return 1;
}

void layer_open(lua_State *L)
{
    static const luaL_Reg f[] = {{"call", l_call},
                                 {"fail", l_fail},
                                 {"generation", l_generation},
                                 {"library", l_library},
                                 {"nearest", l_nearest},
                                 {"param", l_param},
                                 {"path", l_path},
                                 {"place", l_place},
                                 {"tunable", l_tunable},
                                 {NULL, NULL}};
    luaL_setfuncs(L, f, 0);
}
