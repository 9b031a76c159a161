/* lib_string.c - strings, with functions that cannot run long or grow without bound between two
 * hooks. */
#define _GNU_SOURCE /* memmem */
#include "engine/script/sandbox.h"

#include <math.h>
#include <string.h>

#define SUBJECT_MAX ((size_t)1 << 20) /* bytes a pattern may be tried on */
#define PATTERN_COST 1e8              /* steps the worst text of that length may take */

/* ---- patterns ---- */

/* The end of the single-character class that begins at p. */
static const char *class_end(const char *p, const char *end)
{
    if (*p == '%')
        return p + 2 < end ? p + 2 : end;
    if (*p != '[')
        return p + 1;
    p++;
    if (p < end && *p == '^')
        p++;
    for (bool first = true; p < end && (first || *p != ']'); first = false)
        p += *p == '%' && p + 1 < end ? 2 : 1;
    return p < end ? p + 1 : end;
}

/* An upper bound of the steps for a subject of n bytes: each repetition may be tried at every
 * length, each `?` both ways, from every start. Literal parts and long sets make a step dearer. */
static double pattern_cost(const char *p, size_t len, size_t n)
{
    const char *end = p + len;
    double loops = 1, options = 0;

    while (p < end) {
        if (*p == '(' || *p == ')') {
            p++;
            continue;
        }
        if (*p == '%' && p + 1 < end && (p[1] == 'b' || (p[1] >= '0' && p[1] <= '9'))) {
            loops++; /* %bxy and back references walk the subject */
            p += p[1] == 'b' ? 4 : 2;
            continue;
        }
        p = class_end(p, end);
        if (p < end && strchr("*+-", *p) && *p) {
            loops++;
            p++;
        } else if (p < end && *p == '?') {
            options++;
            p++;
        }
    }
    return pow((double)(n > 1 ? n : 2), loops) * pow(2, options) * (1 + (double)len / 16);
}

static void check_pattern(lua_State *L, const char *fn)
{
    size_t n, len;
    luaL_checklstring(L, 1, &n);
    const char *p = luaL_checklstring(L, 2, &len);

    if (n > SUBJECT_MAX)
        luaL_error(L, "string.%s: a text of more than 1 MiB", fn);
    if (!(pattern_cost(p, len, n) <= PATTERN_COST))
        luaL_error(L, "string.%s: this pattern may take too long on a text of %d bytes", fn,
                   (int)n);
    sandbox_charge(L, (int64_t)(n / 16) + 1);
}

/* Upvalues: the stock function, its name. */
static int with_pattern(lua_State *L)
{
    check_pattern(L, lua_tostring(L, lua_upvalueindex(2)));
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* Plain search is memmem (linear), not the stock loop (quadratic). */
static int l_find(lua_State *L)
{
    size_t n, len;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &len);
    lua_Integer from = luaL_optinteger(L, 3, 1);
    bool plain = lua_toboolean(L, 4);

    if (!plain && strcspn(p, "^$*+?.([%-") < len)
        return with_pattern(L);
    if (from < 0)
        from = -from > (lua_Integer)n ? 1 : (lua_Integer)n + from + 1;
    else if (from == 0)
        from = 1;
    sandbox_charge(L, (int64_t)(n / 64) + 1);
    const char *at = NULL;
    if (from - 1 <= (lua_Integer)n)
        at = len == 0 ? s + from - 1 : memmem(s + from - 1, n - (size_t)(from - 1), p, len);
    if (!at) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushinteger(L, at - s + 1);
    lua_pushinteger(L, at - s + (lua_Integer)len);
    return 2;
}

/* ---- growing and walking ---- */

static int l_rep(lua_State *L)
{
    size_t len, sep_len, total;
    luaL_checklstring(L, 1, &len);
    lua_Integer n = luaL_checkinteger(L, 2);
    luaL_optlstring(L, 3, "", &sep_len);
    struct sandbox *sb = sandbox_of(L);

    if (n <= 0 || len + sep_len == 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    if (__builtin_mul_overflow(len + sep_len, (size_t)n, &total) ||
        total > (size_t)(sb->max.bytes - sb->bytes > 0 ? sb->max.bytes - sb->bytes : 0))
        return luaL_error(L, "string.rep: the result does not fit into the memory budget");
    sandbox_charge(L, (int64_t)(total / 16) + n / 4);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

/* %s of a table would print its address, %p is one. */
static int l_format(lua_State *L)
{
    size_t len;
    const char *f = luaL_checklstring(L, 1, &len), *end = f + len;
    int arg = 1;

    sandbox_charge(L, (int64_t)len);
    for (; f < end; f++) {
        if (*f != '%')
            continue;
        if (++f < end && *f == '%')
            continue;
        f += strspn(f, "-+ #0123456789.");
        arg++;
        if (f < end && *f == 'p')
            return luaL_error(L, "string.format: %%p (an address) is not available here");
        if (f < end && *f == 's' && arg <= lua_gettop(L)) {
            sandbox_tostring(L, arg);
            lua_replace(L, arg);
        }
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

/* Linear in the length of the first argument. Upvalue: the stock function. */
static int linear(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TSTRING)
        sandbox_charge(L, (int64_t)(lua_rawlen(L, 1) / 64) + 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

static void wrap(lua_State *L, int from, const char *name, lua_CFunction f)
{
    lua_getfield(L, from, name);
    lua_pushstring(L, name);
    lua_pushcclosure(L, f, 2);
    lua_setfield(L, -2, name);
}

static void open_utf8(lua_State *L)
{
    static const char *const stock[] = {"char", "charpattern", "codes", NULL};

    lua_pushcfunction(L, luaopen_utf8);
    lua_call(L, 0, 1);
    int from = lua_gettop(L);
    lua_newtable(L);
    sandbox_pick(L, from, stock);
    wrap(L, from, "codepoint", linear);
    wrap(L, from, "len", linear);
    wrap(L, from, "offset", linear);
    sandbox_lock(L, "utf8");
    sandbox_publish(L, "utf8");
    lua_pop(L, 1);
}

void sandbox_open_string(lua_State *L)
{
    static const char *const stock[] = {"char", "len", NULL};
    static const char *const walk[] = {"byte", "lower", "reverse", "sub", "upper", NULL};
    static const char *const patterns[] = {"gmatch", "gsub", "match", NULL};

    lua_pushcfunction(L, luaopen_string);
    lua_call(L, 0, 1);
    int from = lua_gettop(L);
    lua_newtable(L);
    sandbox_pick(L, from, stock);
    for (int i = 0; walk[i]; i++)
        wrap(L, from, walk[i], linear);
    for (int i = 0; patterns[i]; i++)
        wrap(L, from, patterns[i], with_pattern);
    wrap(L, from, "find", l_find);
    wrap(L, from, "rep", l_rep);
    wrap(L, from, "format", l_format);

    /* the metatable of all strings: methods are ours, and it cannot be had or changed */
    lua_pushliteral(L, "");
    lua_getmetatable(L, -1);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 2);

    sandbox_lock(L, "string");
    sandbox_publish(L, "string");
    lua_pop(L, 1);
    open_utf8(L);
}
