/* lib_base.c - the global functions of the sandbox: those of Lua that are safe, and bounded or
 * ordered versions. */
#include "engine/script/sandbox.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"

#define PRINT_LINES 2000 /* of one entry; one more line says that the rest is left out */
#define PRINT_WIDTH 4096 /* bytes of a line */

/* ---- text ---- */

const char *sandbox_tostring(lua_State *L, int idx)
{
    idx = lua_absindex(L, idx);
    if (lua_type(L, idx) <= LUA_TSTRING && lua_type(L, idx) != LUA_TLIGHTUSERDATA)
        return luaL_tolstring(L, idx, NULL);
    if (luaL_getmetafield(L, idx, "__tostring") != LUA_TNIL) {
        lua_pop(L, 1);
        return luaL_tolstring(L, idx, NULL);
    }
    if (luaL_getmetafield(L, idx, "__name") == LUA_TSTRING)
        return lua_tostring(L, -1);
    return lua_pushstring(L, luaL_typename(L, idx));
}

static int l_tostring(lua_State *L)
{
    luaL_checkany(L, 1);
    sandbox_tostring(L, 1);
    return 1;
}

static void print_line(struct sandbox *sb, const char *s, size_t n)
{
    char line[PRINT_WIDTH + 1];

    if (!sb->print || sb->printed > PRINT_LINES)
        return;
    if (sb->printed++ == PRINT_LINES) {
        sb->print(sb->print_arg, "(print: too many lines, the rest is left out)");
        return;
    }
    n = n < PRINT_WIDTH ? n : PRINT_WIDTH;
    memcpy(line, s, n);
    line[n] = '\0';
    sb->print(sb->print_arg, line);
}

static int l_print(lua_State *L)
{
    struct sandbox *sb = sandbox_of(L);
    luaL_Buffer b;
    size_t len;
    int n = lua_gettop(L);

    for (int i = 1; i <= n; i++) { /* before the buffer, which needs the top of the stack */
        sandbox_tostring(L, i);
        lua_replace(L, i);
    }
    luaL_buffinit(L, &b);
    for (int i = 1; i <= n; i++) {
        if (i > 1)
            luaL_addchar(&b, '\t');
        const char *s = lua_tolstring(L, i, &len);
        luaL_addlstring(&b, s, len);
    }
    luaL_pushresult(&b);
    const char *s = lua_tolstring(L, -1, &len), *end = s + len, *nl;
    sandbox_charge(L, (int64_t)len);
    for (; (nl = memchr(s, '\n', (size_t)(end - s))) != NULL; s = nl + 1)
        print_line(sb, s, (size_t)(nl - s));
    print_line(sb, s, (size_t)(end - s));
    return 0;
}

/* ---- order ---- */

enum key_kind { KEY_NUMBER, KEY_TEXT, KEY_BOOLEAN, KEY_OTHER };

struct sort_key {
    enum key_kind kind;
    bool whole;
    lua_Integer i;
    lua_Number n;
    const char *s; /* borrowed from the key, which the table holds */
    size_t len;
    int at; /* place in the list of keys */
};

static struct sort_key key_of(lua_State *L, int idx)
{
    struct sort_key k = {.kind = KEY_OTHER};

    switch (lua_type(L, idx)) {
    case LUA_TNUMBER:
        k.kind = KEY_NUMBER;
        k.whole = lua_isinteger(L, idx);
        k.i = k.whole ? lua_tointeger(L, idx) : 0;
        k.n = lua_tonumber(L, idx);
        break;
    case LUA_TSTRING:
        k.kind = KEY_TEXT;
        k.s = lua_tolstring(L, idx, &k.len);
        break;
    case LUA_TBOOLEAN:
        k.kind = KEY_BOOLEAN;
        k.i = lua_toboolean(L, idx);
        break;
    }
    return k;
}

static int by_key(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->kind == KEY_TEXT) {
        int c = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
        return c ? c : (x->len > y->len) - (x->len < y->len);
    }
    if (x->kind == KEY_NUMBER && !(x->whole && y->whole) && (x->n < y->n || x->n > y->n))
        return x->n < y->n ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

static void refuse_others(lua_State *L)
{
    luaL_error(L, "a table with several keys that are tables, functions or tensors has no order "
                  "that is the same in every process; keep such keys in a list");
}

lua_Integer sandbox_sorted_keys(lua_State *L, int idx)
{
    int n = 0, others = 0;

    idx = lua_absindex(L, idx);
    luaL_checkstack(L, 6, NULL);
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, idx)) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_rawseti(L, -3, ++n);
    }
    sandbox_charge(L, n);
    struct sort_key *k = lua_newuserdatauv(L, (size_t)(n ? n : 1) * sizeof *k, 0);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -2, i + 1);
        k[i] = key_of(L, -1);
        k[i].at = i + 1;
        others += k[i].kind == KEY_OTHER;
        lua_pop(L, 1);
    }
    if (others > 1)
        refuse_others(L);
    qsort(k, (size_t)n, sizeof *k, by_key);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -3, k[i].at);
        lua_rawseti(L, -2, i + 1);
    }
    lua_replace(L, -3);
    lua_pop(L, 1);
    return n;
}

/* Upvalues: the table, its sorted keys, the next place. A key removed meanwhile is passed over. */
static int pairs_step(lua_State *L)
{
    lua_Integer at = lua_tointeger(L, lua_upvalueindex(3));

    for (;; at++) {
        if (lua_rawgeti(L, lua_upvalueindex(2), at) == LUA_TNIL)
            return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
            break;
        lua_pop(L, 2);
    }
    lua_pushinteger(L, at + 1);
    lua_replace(L, lua_upvalueindex(3));
    return 2;
}

int sandbox_pairs(lua_State *L, int idx)
{
    lua_pushvalue(L, idx);
    sandbox_sorted_keys(L, -1);
    lua_pushinteger(L, 1);
    lua_pushcclosure(L, pairs_step, 3);
    lua_pushnil(L);
    lua_pushnil(L);
    return 3;
}

static int l_pairs(lua_State *L)
{
    luaL_checkany(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    return sandbox_pairs(L, 1);
}

/* The key after `k` in the order of pairs; linear, so `next` is for "is it empty?", not for loops.
 */
static int l_next(lua_State *L)
{
    struct sort_key best = {.kind = KEY_NUMBER}, from = {.kind = KEY_NUMBER};
    bool first = lua_isnoneornil(L, 2), found = false;
    int seen = 0, others = 0;

    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    if (sandbox_shadow(L, 1))
        lua_replace(L, 1);
    if (!first)
        from = key_of(L, 2);
    lua_pushnil(L); /* 3: the best key so far */
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        lua_pop(L, 1);
        struct sort_key k = key_of(L, -1);
        seen++;
        others += k.kind == KEY_OTHER;
        if (others > 1)
            refuse_others(L);
        if ((first || by_key(&k, &from) > 0) && (!found || by_key(&k, &best) < 0)) {
            found = true;
            best = k;
            lua_pushvalue(L, -1);
            lua_replace(L, 3);
        }
    }
    sandbox_charge(L, seen);
    lua_settop(L, 3);
    if (!found)
        return 1;
    lua_pushvalue(L, 3);
    lua_rawget(L, 1);
    return 2;
}

/* ---- raw access and metatables ---- */

static int l_rawget(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checkany(L, 2);
    lua_settop(L, 2);
    if (!sandbox_shadow(L, 1)) {
        lua_rawget(L, 1);
        return 1;
    }
    lua_pop(L, 1);
    lua_gettable(L, 1); /* through the proxy, which may want to know */
    return 1;
}

static int l_rawlen(lua_State *L)
{
    luaL_argexpected(L, lua_istable(L, 1) || lua_isstring(L, 1), 1, "table or string");
    lua_settop(L, 1);
    if (sandbox_shadow(L, 1))
        lua_replace(L, 1);
    lua_pushinteger(L, (lua_Integer)lua_rawlen(L, 1));
    return 1;
}

static int l_rawset(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checkany(L, 2);
    luaL_checkany(L, 3);
    lua_settop(L, 3);
    if (sandbox_shadow(L, 1))
        return luaL_error(L, "rawset: this table is protected");
    lua_rawset(L, 1);
    return 1;
}

/* Finalizers would run at moments nobody chose, and outside the budgets. */
static int l_setmetatable(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argexpected(L, lua_isnil(L, 2) || lua_istable(L, 2), 2, "nil or table");
    if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL)
        return luaL_error(L, "cannot change a protected metatable");
    if (lua_istable(L, 2)) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            return luaL_error(L, "setmetatable: __gc is not available here");
    }
    lua_settop(L, 2);
    lua_setmetatable(L, 1);
    return 1;
}

/* ---- calls and chunks ---- */

/* Stock xpcall runs its handler inside the error, where an error raised by the count hook has
 * switched hooks off: a handler without end would never stop. Here it runs after the call has
 * ended. */
static int l_xpcall(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_remove(L, 1);
    lua_remove(L, 1);
    lua_insert(L, 1); /* handler args.. f */
    lua_insert(L, 2); /* handler f args.. */
    int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
    if (status == LUA_OK) {
        lua_pushboolean(L, 1);
        lua_replace(L, 1);
        return lua_gettop(L);
    }
    lua_pcall(L, 1, LUA_MULTRET, 0);
    lua_pushboolean(L, 0);
    lua_insert(L, 1);
    return lua_gettop(L);
}

/* Upvalue: stock load. Text only; a chunk's name is never that of a shipped script. */
static int l_load(lua_State *L)
{
    const char *mode = luaL_optstring(L, 3, "t");
    const char *name = luaL_optstring(L, 2, "(load)");
    bool has_env = !lua_isnone(L, 4);

    if (strcmp(mode, "t") != 0)
        return luaL_error(L, "load: only text can be loaded: mode must be \"t\" or absent");
    if (lua_type(L, 1) == LUA_TSTRING) {
        if (lua_rawlen(L, 1) > SANDBOX_SOURCE_MAX)
            return luaL_error(L, "load: more than 1 MiB of text");
        sandbox_charge(L, 20 * (int64_t)lua_rawlen(L, 1));
    }
    lua_settop(L, 4);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 1);
    lua_pushfstring(L, "@%s", *name == '@' || *name == '=' ? name + 1 : name);
    lua_pushliteral(L, "t");
    if (has_env)
        lua_pushvalue(L, 4);
    lua_call(L, has_env ? 4 : 3, 2);
    if (lua_isnil(L, -1)) { /* one result when all went well */
        lua_pop(L, 1);
        return 1;
    }
    return 2;
}

static int l_collectgarbage(lua_State *L)
{
    if (strcmp(luaL_optstring(L, 1, "collect"), "count") != 0)
        return luaL_error(L, "collectgarbage: only \"count\" is available here");
    lua_pushnumber(L, (lua_Number)sandbox_of(L)->bytes / 1024);
    return 1;
}

void sandbox_open_base(lua_State *L)
{
    static const char *const stock[] = {"assert",   "error",  "getmetatable", "ipairs", "pcall",
                                        "rawequal", "select", "tonumber",     "type",   "_VERSION",
                                        NULL};
    static const luaL_Reg ours[] = {{"collectgarbage", l_collectgarbage},
                                    {"next", l_next},
                                    {"pairs", l_pairs},
                                    {"print", l_print},
                                    {"rawget", l_rawget},
                                    {"rawlen", l_rawlen},
                                    {"rawset", l_rawset},
                                    {"setmetatable", l_setmetatable},
                                    {"tostring", l_tostring},
                                    {"xpcall", l_xpcall},
                                    {NULL, NULL}};

    /* luaopen_base fills the table of globals: lend it another one */
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_pushcfunction(L, luaopen_base);
    lua_call(L, 0, 0);
    sandbox_env(L, false);
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    for (int i = 0; stock[i]; i++) {
        lua_getfield(L, -1, stock[i]);
        sandbox_publish(L, stock[i]);
    }
    for (int i = 0; ours[i].name; i++) {
        lua_pushcfunction(L, ours[i].func);
        sandbox_publish(L, ours[i].name);
    }
    lua_getfield(L, -1, "load");
    lua_pushcclosure(L, l_load, 1);
    sandbox_publish(L, "load");
    lua_pop(L, 1);
}
