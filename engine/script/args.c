/* args.c - the model's arguments as tables that note which of their keys were asked for.
 *
 * A map or list is an empty proxy over a table of values. Asking a key of a map notes its full name
 * ("block.width", "layers[2].width"); a list counts as read with its key. Changing them is allowed
 * and changes the copy. */
#include "engine/script/priv.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

static char read_key; /* registry: set of the names asked for */

/* The full name of key `k` (a value on the stack) of the map called `name`. Pushes it. */
static const char *full_name(lua_State *L, const char *name, int k)
{
    if (lua_type(L, k) == LUA_TSTRING)
        return *name ? lua_pushfstring(L, "%s.%s", name, lua_tostring(L, k))
                     : lua_pushstring(L, lua_tostring(L, k));
    return lua_pushfstring(L, "%s[%I]", name, (LUAI_UACINT)lua_tointeger(L, k));
}

/* Upvalues of all three: the real table, its name. */
static int args_index(lua_State *L)
{
    if (lua_type(L, 2) == LUA_TSTRING) {
        lua_rawgetp(L, LUA_REGISTRYINDEX, &read_key);
        full_name(L, lua_tostring(L, lua_upvalueindex(2)), 2);
        lua_pushboolean(L, 1);
        lua_rawset(L, -3);
    }
    lua_settop(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
    return 1;
}

static int args_newindex(lua_State *L)
{
    lua_settop(L, 3);
    lua_rawset(L, lua_upvalueindex(1));
    return 0;
}

static int args_len(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)lua_rawlen(L, lua_upvalueindex(1)));
    return 1;
}

/* Whoever walks over a map has read all its keys: noted as "name.*". */
static int args_pairs(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &read_key);
    lua_pushliteral(L, "*");
    full_name(L, lua_tostring(L, lua_upvalueindex(2)), lua_gettop(L));
    lua_pushboolean(L, 1);
    lua_rawset(L, -4);
    return sandbox_pairs(L, lua_upvalueindex(1));
}

/* Replaces the real table on top by its proxy. */
static void make_proxy(lua_State *L, const char *name)
{
    static const luaL_Reg meta[] = {{"__index", args_index},
                                    {"__newindex", args_newindex},
                                    {"__len", args_len},
                                    {"__pairs", args_pairs},
                                    {NULL, NULL}};

    lua_newtable(L);
    sandbox_shadow_set(L, -1, -2);
    lua_newtable(L);
    lua_pushvalue(L, -3);
    lua_pushstring(L, name);
    luaL_setfuncs(L, meta, 2);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

static void push_node(lua_State *L, const struct cfg_node *n, const char *name)
{
    luaL_checkstack(L, 10, "args are nested too deep");
    switch (n->kind) {
    case CFG_NULL:
        lua_pushnil(L);
        return;
    case CFG_BOOL:
        lua_pushboolean(L, n->b);
        return;
    case CFG_INT:
        lua_pushinteger(L, n->i);
        return;
    case CFG_REAL:
        lua_pushnumber(L, n->r);
        return;
    case CFG_STRING:
        lua_pushstring(L, n->s);
        return;
    case CFG_LIST:
    case CFG_MAP:
        break;
    }
    lua_createtable(L, n->kind == CFG_LIST ? n->n : 0, n->kind == CFG_MAP ? n->n : 0);
    for (int i = 0; i < n->n; i++) {
        if (n->kind == CFG_MAP)
            lua_pushstring(L, n->key[i]);
        else
            lua_pushinteger(L, i + 1);
        const char *full = full_name(L, name, -1); /* table key full */
        push_node(L, n->item[i], full);
        lua_remove(L, -2);
        lua_rawset(L, -3);
    }
    make_proxy(L, name);
}

void args_push(lua_State *L, const struct cfg_node *args)
{
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &read_key);
    if (args && args->kind == CFG_MAP) {
        push_node(L, args, "");
        return;
    }
    lua_newtable(L);
    make_proxy(L, "");
}

/* Stack 1: the set of names read. */
static bool was_read(lua_State *L, const char *name)
{
    lua_pushstring(L, name);
    bool yes = lua_rawget(L, 1) != LUA_TNIL;
    lua_pop(L, 1);
    return yes;
}

static void walk(lua_State *L, const struct cfg_node *n, const char *name, struct str *unread)
{
    luaL_checkstack(L, 8, "args are nested too deep");
    lua_pushliteral(L, "*");
    bool all = was_read(L, full_name(L, name, lua_gettop(L))) || n->kind == CFG_LIST;
    lua_pop(L, 2);
    for (int i = 0; i < n->n; i++) {
        if (n->kind == CFG_MAP)
            lua_pushstring(L, n->key[i]);
        else
            lua_pushinteger(L, i + 1);
        const char *full = full_name(L, name, -1);
        if (!all && !was_read(L, full))
            str_addf(unread, "%s%s", unread->len ? ", " : "", full);
        else if (n->item[i]->kind == CFG_MAP || n->item[i]->kind == CFG_LIST)
            walk(L, n->item[i], full, unread);
        lua_pop(L, 2);
    }
}

void args_unread(lua_State *L, const struct cfg_node *args, struct str *unread, struct str *read)
{
    lua_settop(L, 0);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &read_key);
    if (args && args->kind == CFG_MAP)
        walk(L, args, "", unread);
    lua_Integer n = sandbox_sorted_keys(L, 1);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 2, i);
        const char *name = lua_tostring(L, -1);
        if (name[strlen(name) - 1] != '*')
            str_addf(read, "%s%s", read->len ? ", " : "", name);
        lua_pop(L, 1);
    }
}
