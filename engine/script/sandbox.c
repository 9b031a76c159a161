/* sandbox.c - the state, its three budgets, protected entry, and what errors say. */
#include "engine/script/sandbox.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/clock.h"
#include "engine/base/str.h"

#define HOOK_EVERY 1000             /* instructions between two looks at the budgets */
#define BIG_BLOCK ((size_t)1 << 18) /* an allocation that is work enough to look at once */
#define REFUSED_COST 1000000        /* an emergency collection walks the whole heap */

static char env_key, lib_env_key, shadow_key, raised_key; /* addresses are registry keys */

/* ---- budgets ---- */

static bool spent(const struct sandbox *sb)
{
    return sb->left <= 0 || !(clock_now() < sb->deadline);
}

/* Once a budget is spent the hook stays at every instruction, so that no pcall goes on. */
static int raise_spent(lua_State *L, struct sandbox *sb)
{
    char where[SANDBOX_WHERE], msg[SANDBOX_WHERE + 100];

    if (!sandbox_where(L, 0, true, where, sizeof where) &&
        !sandbox_where(L, 0, false, where, sizeof where))
        snprintf(where, sizeof where, "%s", sb->here);
    if (sb->left <= 0)
        snprintf(msg, sizeof msg, "%s: over the budget of %lld instructions (a loop without end?)",
                 where, (long long)sb->max.instructions);
    else
        snprintf(msg, sizeof msg, "%s: over the time budget of %g seconds", where, sb->max.seconds);
    return sandbox_raise(L, ERR_SCRIPT, msg);
}

static void on_count(lua_State *L, lua_Debug *ar)
{
    struct sandbox *sb = sandbox_of(L);

    (void)ar;
    sb->left -= HOOK_EVERY;
    lua_sethook(L, on_count, LUA_MASKCOUNT, spent(sb) ? 1 : HOOK_EVERY);
    if (spent(sb))
        raise_spent(L, sb);
}

void sandbox_charge(lua_State *L, int64_t n)
{
    struct sandbox *sb = sandbox_of(L);

    sb->left -= n;
    if (spent(sb)) {
        lua_sethook(L, on_count, LUA_MASKCOUNT, 1);
        raise_spent(L, sb);
    }
}

/* Big blocks mean work that no count hook sees (joining strings, collecting after a refusal): make
 * the hook look at the next instruction. lua_sethook may be called at any time (it is made for
 * signal handlers). */
static void *allocate(void *ud, void *p, size_t old, size_t bytes)
{
    struct sandbox *sb = ud;
    size_t had = p ? old : 0; /* without a block, `old` is a kind of object */

    if (bytes == 0) {
        mem_free(p);
        sb->bytes -= (int64_t)had;
        return NULL;
    }
    if (bytes > had && sb->bytes + (int64_t)(bytes - had) > sb->max.bytes) {
        sb->left -= REFUSED_COST;
        if (sb->current) {
            if (!sandbox_where(sb->current, 0, false, sb->oom_where, sizeof sb->oom_where))
                sb->oom_where[0] = '\0';
            lua_sethook(sb->current, on_count, LUA_MASKCOUNT, 1);
        }
        return NULL;
    }
    if (bytes >= BIG_BLOCK && sb->current) {
        sb->left -= (int64_t)(bytes / 64);
        lua_sethook(sb->current, on_count, LUA_MASKCOUNT, 1);
    }
    void *q = mem_realloc(p, bytes);
    if (q)
        sb->bytes += (int64_t)bytes - (int64_t)had;
    return q;
}

/* ---- errors ---- */

struct sandbox *sandbox_of(lua_State *L)
{
    return *(struct sandbox **)lua_getextraspace(L);
}

bool sandbox_where(lua_State *L, int level, bool skip_library, char *buf, size_t cap)
{
    lua_Debug ar;

    for (; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline <= 0 || (skip_library && ar.source[0] == '='))
            continue;
        snprintf(buf, cap, "%.200s:%d", ar.source + 1, ar.currentline);
        return true;
    }
    return false;
}

/* "some/file.lua:12:" at the beginning? */
static bool has_place(const char *s)
{
    const char *colon = strchr(s, ':');
    if (!colon || colon == s || memchr(s, '\n', (size_t)(colon - s)) || colon[1] < '0' ||
        colon[1] > '9')
        return false;
    colon += 1 + strspn(colon + 1, "0123456789");
    return *colon == ':';
}

/* The raised text, so that an error that goes through several handlers is explained once and keeps
 * its code. */
static void remember(lua_State *L, int idx)
{
    lua_pushvalue(L, idx);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &raised_key);
}

static bool is_remembered(lua_State *L, int idx)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &raised_key);
    bool same = lua_rawequal(L, -1, idx < 0 ? idx - 1 : idx);
    lua_pop(L, 1);
    return same;
}

int sandbox_raise(lua_State *L, enum err_code code, const char *msg)
{
    lua_pushstring(L, msg);
    remember(L, -1);
    sandbox_of(L)->code = code;
    return lua_error(L);
}

int sandbox_explain(lua_State *L)
{
    struct sandbox *sb = sandbox_of(L);
    char where[SANDBOX_WHERE];
    bool text = lua_type(L, 1) == LUA_TSTRING;

    if (text && (is_remembered(L, 1) || has_place(lua_tostring(L, 1))))
        return 1;
    if (!sandbox_where(L, 1, true, where, sizeof where))
        snprintf(where, sizeof where, "%s", sb->here);
    if (text || lua_type(L, 1) == LUA_TNUMBER)
        lua_pushfstring(L, "%s: %s", where, lua_tostring(L, 1));
    else
        lua_pushfstring(L, "%s: the error is no text but a %s", where, luaL_typename(L, 1));
    sb->code = ERR_SCRIPT;
    remember(L, -1);
    return 1;
}

static enum err_code report(struct sandbox *sb, int status, struct err *e)
{
    char line[sizeof e->msg];
    const char *msg = lua_type(sb->L, -1) == LUA_TSTRING ? lua_tostring(sb->L, -1) : NULL;
    enum err_code code = ERR_SCRIPT;
    char size[32];

    if (status == LUA_ERRMEM)
        return err_set(e, ERR_SCRIPT, "%s: over the memory budget of %s",
                       sb->oom_where[0] ? sb->oom_where : sb->here,
                       str_bytes(size, sizeof size, (uint64_t)sb->max.bytes));
    if (msg && is_remembered(sb->L, -1))
        code = sb->code;
    str_visible(line, sizeof line, msg ? msg : "an error without a message");
    if (msg && (has_place(msg) || strncmp(msg, sb->name, strlen(sb->name)) == 0))
        return err_set(e, code, "%s", line);
    return err_set(e, code, "%s: %s", sb->name, line);
}

/* ---- entry ---- */

static int last_resort(lua_State *L)
{
    (void)L; /* every call is protected; were one not, Lua would abort after this returns */
    return 0;
}

enum err_code sandbox_run(struct sandbox *sb, lua_CFunction body, void *arg, struct err *e)
{
    lua_State *L = sb->L;
    enum err_code rc = ERR_OK;
    locale_t old = uselocale(sb->c_locale);

    sb->left = sb->max.instructions;
    sb->deadline = clock_now() + sb->max.seconds;
    sb->printed = 0;
    sb->oom_where[0] = '\0';
    snprintf(sb->here, sizeof sb->here, "%s", sb->name);
    sb->current = L;
    lua_settop(L, 0);
    lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_EVERY);
    lua_pushcfunction(L, sandbox_explain);
    lua_pushcfunction(L, body);
    lua_pushlightuserdata(L, arg);
    int status = lua_pcall(L, 1, 0, 1);
    if (status != LUA_OK)
        rc = report(sb, status, e);
    lua_settop(L, 0);
    sb->current = NULL;
    uselocale(old);
    return rc;
}

static int open_all(lua_State *L)
{
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS); /* what `load` gives a chunk */
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "_G");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &env_key);
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &lib_env_key);
    lua_newtable(L); /* proxies do not outlive their last user */
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &shadow_key);
    sandbox_open_base(L);
    sandbox_open_coroutine(L);
    sandbox_open_string(L);
    sandbox_open_table(L);
    sandbox_open_math(L);
    return 0;
}

enum err_code sandbox_init(struct sandbox *sb, struct err *e)
{
    if (sb->max.instructions <= 0)
        sb->max.instructions = 200000000;
    if (sb->max.bytes <= 0)
        sb->max.bytes = (int64_t)256 << 20;
    if (!(sb->max.seconds > 0))
        sb->max.seconds = 20;
    sb->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (sb->c_locale == (locale_t)0)
        return err_set(e, ERR_NOMEM, "%s: out of memory", sb->name);
    sb->L = lua_newstate(allocate, sb);
    if (!sb->L) {
        sandbox_release(sb);
        return err_set(e, ERR_NOMEM, "%s: no memory for a Lua state", sb->name);
    }
    lua_atpanic(sb->L, last_resort);
    *(struct sandbox **)lua_getextraspace(sb->L) = sb;
    enum err_code rc = sandbox_run(sb, open_all, NULL, e);
    if (rc != ERR_OK)
        sandbox_release(sb);
    return rc;
}

void sandbox_release(struct sandbox *sb)
{
    sb->current = NULL;
    if (sb->L)
        lua_close(sb->L);
    if (sb->c_locale != (locale_t)0)
        freelocale(sb->c_locale);
    sb->L = NULL;
    sb->c_locale = (locale_t)0;
}

/* ---- environments and proxies ---- */

void sandbox_load(lua_State *L, const char *text, size_t len, const char *chunk)
{
    sandbox_charge(L, (int64_t)len);
    if (luaL_loadbufferx(L, text, len, chunk, "t") != LUA_OK)
        lua_error(L);
    if (chunk[0] == '=') {
        sandbox_env(L, true);
        lua_setupvalue(L, -2, 1);
    }
}

void sandbox_env(lua_State *L, bool library)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, library ? &lib_env_key : &env_key);
}

void sandbox_publish(lua_State *L, const char *name)
{
    for (int library = 0; library < 2; library++) {
        sandbox_env(L, library);
        lua_pushvalue(L, -2);
        lua_setfield(L, -2, name);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

void sandbox_pick(lua_State *L, int from, const char *const *names)
{
    from = lua_absindex(L, from);
    for (; *names; names++) {
        lua_getfield(L, from, *names);
        lua_setfield(L, -2, *names);
    }
}

void sandbox_shadow_set(lua_State *L, int proxy, int real)
{
    proxy = lua_absindex(L, proxy);
    real = lua_absindex(L, real);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &shadow_key);
    lua_pushvalue(L, proxy);
    lua_pushvalue(L, real);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

bool sandbox_shadow(lua_State *L, int idx)
{
    if (!lua_istable(L, idx))
        return false;
    idx = lua_absindex(L, idx);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &shadow_key);
    lua_pushvalue(L, idx);
    lua_rawget(L, -2);
    lua_remove(L, -2);
    if (lua_istable(L, -1))
        return true;
    lua_pop(L, 1);
    return false;
}

static int refuse_write(lua_State *L)
{
    return luaL_error(L, "%s cannot be changed", lua_tostring(L, lua_upvalueindex(1)));
}

static int locked_pairs(lua_State *L)
{
    return sandbox_pairs(L, lua_upvalueindex(1));
}

void sandbox_lock(lua_State *L, const char *name)
{
    lua_newtable(L); /* real proxy */
    sandbox_shadow_set(L, -1, -2);
    lua_createtable(L, 0, 5);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushstring(L, name);
    lua_pushcclosure(L, refuse_write, 1);
    lua_setfield(L, -2, "__newindex");
    lua_pushvalue(L, -3);
    lua_pushcclosure(L, locked_pairs, 1);
    lua_setfield(L, -2, "__pairs");
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}
