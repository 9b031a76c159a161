/* lib_table.c - tables of at most 10 million elements, and a sort that is stable and always ends.
 */
#include "engine/script/sandbox.h"

#define ELEMENTS_MAX 10000000

/* The length as `#` gives it, which a metamethod may answer as it likes: asked once, and bounded.
 */
static lua_Integer length(lua_State *L, const char *fn)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer n = luaL_len(L, 1);

    if (n < 0 || n > ELEMENTS_MAX)
        luaL_error(L, "table.%s: a length of %I is not in 0 .. 10000000", fn, (LUAI_UACINT)n);
    return n;
}

/* How many elements first .. last are, at least 0. */
static lua_Integer range(lua_State *L, const char *fn, lua_Integer first, lua_Integer last)
{
    if (first > last)
        return 0;
    if ((lua_Unsigned)last - (lua_Unsigned)first >= ELEMENTS_MAX)
        luaL_error(L, "table.%s: more than 10000000 elements", fn);
    sandbox_charge(L, last - first + 1);
    return last - first + 1;
}

static int l_concat(lua_State *L)
{
    lua_Integer n = length(L, "concat"), first = luaL_optinteger(L, 3, 1),
                last = luaL_optinteger(L, 4, n);

    range(L, "concat", first, last);
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_pushinteger(L, first);
    lua_pushinteger(L, last);
    lua_call(L, 4, 1);
    return 1;
}

static int l_unpack(lua_State *L)
{
    lua_Integer first = luaL_optinteger(L, 2, 1),
                last = lua_isnoneornil(L, 3) ? length(L, "unpack") : luaL_checkinteger(L, 3);

    range(L, "unpack", first, last);
    lua_settop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_pushinteger(L, first);
    lua_pushinteger(L, last);
    lua_call(L, 3, LUA_MULTRET);
    return lua_gettop(L);
}

static int l_move(lua_State *L)
{
    range(L, "move", luaL_checkinteger(L, 2), luaL_checkinteger(L, 3));
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

static int l_insert(lua_State *L)
{
    lua_Integer end = length(L, "insert") + 1, at = end;
    int n = lua_gettop(L);

    if (n != 2 && n != 3)
        return luaL_error(L, "wrong number of arguments to 'insert'");
    if (n == 3) {
        at = luaL_checkinteger(L, 2);
        luaL_argcheck(L, at >= 1 && at <= end, 2, "position out of bounds");
    }
    range(L, "insert", at, end);
    for (lua_Integer i = end; i > at; i--) {
        lua_geti(L, 1, i - 1);
        lua_seti(L, 1, i);
    }
    lua_settop(L, n);
    lua_seti(L, 1, at);
    return 0;
}

static int l_remove(lua_State *L)
{
    lua_Integer n = length(L, "remove"), at = luaL_optinteger(L, 2, n);

    luaL_argcheck(L, at == n || (at >= 1 && at <= n + 1), 2, "position out of bounds");
    range(L, "remove", at, n);
    lua_geti(L, 1, at);
    for (; at < n; at++) {
        lua_geti(L, 1, at + 1);
        lua_seti(L, 1, at);
    }
    lua_pushnil(L);
    lua_seti(L, 1, at);
    return 1;
}

/* ---- sort: merging, so that equal elements keep their order (stock sort draws pivots from the
 * clock) and no comparison function can make it run long ---- */

/* Is value b (at idx b) before value a? Stack 2: the function or nil. */
static bool before(lua_State *L, int b, int a)
{
    if (lua_isnil(L, 2))
        return lua_compare(L, b, a, LUA_OPLT);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, b < 0 ? b - 1 : b);
    lua_pushvalue(L, a < 0 ? a - 2 : a);
    lua_call(L, 2, 1);
    bool yes = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return yes;
}

/* from[lo..mid) and from[mid..hi) are sorted; to[lo..hi) becomes both. */
static void merge(lua_State *L, int from, int to, lua_Integer lo, lua_Integer mid, lua_Integer hi)
{
    lua_Integer i = lo, j = mid;

    for (lua_Integer k = lo; k < hi; k++) {
        bool right = i >= mid;
        if (!right && j < hi) {
            lua_rawgeti(L, from, i);
            lua_rawgeti(L, from, j);
            right = before(L, -1, -2);
            lua_pop(L, 2);
        }
        lua_rawgeti(L, from, right ? j++ : i++);
        lua_rawseti(L, to, k);
    }
}

static int l_sort(lua_State *L)
{
    lua_Integer n = length(L, "sort");
    int from = 3, to = 4;

    if (!lua_isnoneornil(L, 2))
        luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    lua_createtable(L, (int)n, 0);
    lua_createtable(L, (int)n, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, 1, i);
        lua_rawseti(L, from, i);
    }
    for (lua_Integer width = 1; width < n; width *= 2) {
        sandbox_charge(L, n);
        for (lua_Integer lo = 1; lo <= n; lo += 2 * width) {
            lua_Integer mid = lo + width <= n ? lo + width : n + 1;
            merge(L, from, to, lo, mid, mid + width <= n ? mid + width : n + 1);
        }
        int swap = from;
        from = to;
        to = swap;
    }
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, from, i);
        lua_seti(L, 1, i);
    }
    return 0;
}

void sandbox_open_table(lua_State *L)
{
    static const luaL_Reg ours[] = {
        {"insert", l_insert}, {"remove", l_remove}, {"sort", l_sort}, {NULL, NULL}};
    static const luaL_Reg over_stock[] = {
        {"concat", l_concat}, {"move", l_move}, {"unpack", l_unpack}, {NULL, NULL}};
    static const char *const stock[] = {"pack", NULL};

    lua_pushcfunction(L, luaopen_table);
    lua_call(L, 0, 1);
    luaL_newlib(L, ours);
    sandbox_pick(L, -2, stock);
    for (int i = 0; over_stock[i].name; i++) {
        lua_getfield(L, -2, over_stock[i].name);
        lua_pushcclosure(L, over_stock[i].func, 1);
        lua_setfield(L, -2, over_stock[i].name);
    }
    sandbox_lock(L, "table");
    sandbox_publish(L, "table");
    lua_pop(L, 1);
}
