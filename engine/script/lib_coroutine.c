/* lib_coroutine.c - coroutines that share the sandbox's budgets.
 *
 * A new thread inherits the hook of its maker, with a full count of its own: making one is charged
 * that count, or short-lived ones in a loop would never be seen. A coroutine that died by an error
 * is not closed: when the count hook raised it, hooks are off in that thread, and __close functions
 * would run unwatched. */
#include "engine/script/sandbox.h"

#define THREAD_COST 1000
#define RESUME_COST 10

static int l_create(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    sandbox_charge(L, THREAD_COST);
    lua_State *co = lua_newthread(L);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    return 1;
}

/* Resume co with the `n` values on top of L. How many values it gave, or -1 and the error, on L. */
static int resume(lua_State *L, lua_State *co, int n)
{
    struct sandbox *sb = sandbox_of(L);
    int results = 0;

    sandbox_charge(L, RESUME_COST);
    if (!lua_checkstack(co, n)) {
        lua_pushliteral(L, "too many arguments to resume");
        return -1;
    }
    lua_xmove(L, co, n);
    sb->current = co;
    int status = lua_resume(co, L, n, &results);
    sb->current = L;
    if (status != LUA_OK && status != LUA_YIELD) {
        lua_xmove(co, L, 1);
        return -1;
    }
    if (!lua_checkstack(L, results + 1)) {
        lua_pop(co, results);
        lua_pushliteral(L, "too many results to resume");
        return -1;
    }
    lua_xmove(co, L, results);
    return results;
}

static lua_State *thread_arg(lua_State *L, int idx)
{
    lua_State *co = lua_tothread(L, idx);
    luaL_argexpected(L, co, idx, "coroutine");
    return co;
}

static int l_resume(lua_State *L)
{
    lua_State *co = thread_arg(L, 1);
    int n = resume(L, co, lua_gettop(L) - 1);

    lua_pushboolean(L, n >= 0);
    lua_insert(L, -(n < 0 ? 1 : n) - 1);
    return (n < 0 ? 1 : n) + 1;
}

static int wrap_step(lua_State *L)
{
    int n = resume(L, thread_arg(L, lua_upvalueindex(1)), lua_gettop(L));
    return n < 0 ? lua_error(L) : n;
}

static int l_wrap(lua_State *L)
{
    l_create(L);
    lua_pushcclosure(L, wrap_step, 1);
    return 1;
}

static int l_close(lua_State *L)
{
    lua_State *co = thread_arg(L, 1);
    lua_Debug ar;
    int status = lua_status(co);

    if (co == L || (status == LUA_OK && lua_getstack(co, 0, &ar)))
        return luaL_error(L, "cannot close a running coroutine");
    if (status != LUA_OK && status != LUA_YIELD) { /* died by an error: see the top of this file */
        lua_pushboolean(L, 0);
        return 1;
    }
    status = lua_resetthread(co);
    lua_pushboolean(L, status == LUA_OK);
    if (status == LUA_OK)
        return 1;
    lua_xmove(co, L, 1);
    return 2;
}

void sandbox_open_coroutine(lua_State *L)
{
    static const char *const stock[] = {"isyieldable", "running", "status", "yield", NULL};
    static const luaL_Reg ours[] = {{"close", l_close},
                                    {"create", l_create},
                                    {"resume", l_resume},
                                    {"wrap", l_wrap},
                                    {NULL, NULL}};

    luaL_newlib(L, ours);
    lua_pushcfunction(L, luaopen_coroutine);
    lua_call(L, 0, 1);
    lua_insert(L, -2);
    sandbox_pick(L, -2, stock);
    sandbox_lock(L, "coroutine");
    sandbox_publish(L, "coroutine");
    lua_pop(L, 1);
}
