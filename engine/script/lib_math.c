/* lib_math.c - stock math, with random numbers that are the same in every process. */
#include "engine/script/sandbox.h"

#include <string.h>

#include "engine/base/hash.h"
#include "kernels/philox.h"

void sandbox_reseed(struct sandbox *sb, uint32_t stream)
{
    sb->rand_stream = stream;
    sb->rand_at = 0;
}

static uint64_t draw(struct sandbox *sb)
{
    uint64_t w[2];

    for (int i = 0; i < 2; i++)
        w[i] = philox_word(sb->seed, PHILOX_SCRIPT, sb->rand_stream, 0, sb->rand_at++);
    return w[0] << 32 | w[1];
}

/* 0 .. most, each as likely: draws beyond the last whole multiple are thrown away. */
static uint64_t draw_upto(struct sandbox *sb, uint64_t most)
{
    uint64_t n = most + 1, v = draw(sb);

    if (n == 0)
        return v;
    while (v - v % n > UINT64_MAX - most)
        v = draw(sb);
    return v % n;
}

/* As stock: random() in [0, 1), random(m) in 1 .. m, random(m, n), random(0) all bits. */
static int l_random(lua_State *L)
{
    struct sandbox *sb = sandbox_of(L);
    lua_Integer lo = 1, hi;

    switch (lua_gettop(L)) {
    case 0:
        lua_pushnumber(L, (lua_Number)(draw(sb) >> 11) * 0x1p-53);
        return 1;
    case 1:
        hi = luaL_checkinteger(L, 1);
        if (hi == 0) {
            lua_pushinteger(L, (lua_Integer)draw(sb));
            return 1;
        }
        break;
    case 2:
        lo = luaL_checkinteger(L, 1);
        hi = luaL_checkinteger(L, 2);
        break;
    default:
        return luaL_error(L, "wrong number of arguments");
    }
    luaL_argcheck(L, lo <= hi, lua_gettop(L), "interval is empty");
    lua_pushinteger(L, (lua_Integer)((uint64_t)lo + draw_upto(sb, (uint64_t)hi - (uint64_t)lo)));
    return 1;
}

/* Another stream of the run's seed; there is no seeding by the clock. */
static int l_randomseed(lua_State *L)
{
    lua_Number n = luaL_checknumber(L, 1);
    uint64_t bits;

    memcpy(&bits, &n, sizeof bits);
    bits = hash_fnv64(FNV64_INIT, &bits, sizeof bits);
    sandbox_reseed(sandbox_of(L), (uint32_t)(bits >> 32) | 0x80000000u);
    return 0;
}

void sandbox_open_math(lua_State *L)
{
    lua_pushcfunction(L, luaopen_math);
    lua_call(L, 0, 1);
    lua_pushcfunction(L, l_random);
    lua_setfield(L, -2, "random");
    lua_pushcfunction(L, l_randomseed);
    lua_setfield(L, -2, "randomseed");
    sandbox_lock(L, "math");
    sandbox_publish(L, "math");
}
