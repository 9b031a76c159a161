/* sandbox.h - private to engine/script: a Lua state that cannot harm, stall or surprise its host.
 *
 * Inside it there is an allow-list of globals, bounded library functions, one budget of
 * instructions, bytes and seconds for all coroutines together, sorted iteration and seeded random
 * numbers. Lua runs only within sandbox_run. A body may raise
 * Lua errors and so holds no C memory across a Lua call. One thread. */
#ifndef SCRIPT_SANDBOX_H
#define SCRIPT_SANDBOX_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

#define SANDBOX_SOURCE_MAX ((size_t)1 << 20) /* bytes of one Lua file or loaded text */
#define SANDBOX_WHERE 256                    /* room for "file.lua:123" */

struct sandbox_limits {
    int64_t instructions; /* an entry; 0: 200 million */
    int64_t bytes;        /* 0: 256 MiB */
    double seconds;       /* an entry; 0: 20 */
};

struct sandbox {
    lua_State *L;       /* the main thread, owned */
    lua_State *current; /* the one that runs */
    struct sandbox_limits max;
    int64_t left;  /* instructions of this entry */
    int64_t bytes; /* in use */
    double deadline;
    char oom_where[SANDBOX_WHERE]; /* the line that asked for more memory than there is */
    locale_t c_locale;             /* numbers have a dot whatever the user's locale */
    uint64_t seed;                 /* of math.random */
    uint32_t rand_stream;
    uint64_t rand_at; /* next element of the stream */
    void (*print)(void *arg, const char *line);
    void *print_arg;
    int printed;              /* lines of this entry */
    const char *name;         /* the main script; borrowed */
    char here[SANDBOX_WHERE]; /* said where no line is known: the name, or a place the body has set
                               */
    enum err_code code;       /* of the last error that C raised; see sandbox_raise */
    void *owner;
};

/* The fields max, seed, print, print_arg, name and owner are set by the caller, all others are 0.
 * On failure nothing is left. */
enum err_code sandbox_init(struct sandbox *sb, struct err *e);
void sandbox_release(struct sandbox *sb); /* of a zeroed one: a no-op */

/* Call body(L) with `arg` as light userdata 1, protected and under fresh budgets of instructions
 * and time. An error is one printable line that names a file and, wherever Lua knows it, a line.
 * The stack is empty after. */
enum err_code sandbox_run(struct sandbox *sb, lua_CFunction body, void *arg, struct err *e);

/* Math.random starts anew from stream `stream`. */
void sandbox_reseed(struct sandbox *sb, uint32_t stream);

/* ---- below: called from within sandbox_run; may raise ---- */

struct sandbox *sandbox_of(lua_State *L);
/* n more instructions are spent by a C function; raises once a budget is. */
void sandbox_charge(lua_State *L, int64_t n);
/* The message handler: turns any error value into a line with a place. */
int sandbox_explain(lua_State *L);
/* The first Lua frame from `level` on as "file:line"; false if there is none. Frames of the shipped
 * scripts (their source begins with '=') are passed over when skip_library. */
bool sandbox_where(lua_State *L, int level, bool skip_library, char *buf, size_t cap);
/* Raise `msg` as it is, without a place of its own; sandbox_run will return `code` if it comes
 * through. */
int sandbox_raise(lua_State *L, enum err_code code, const char *msg);
/* tostring without addresses: pushes the text of the value at idx. */
const char *sandbox_tostring(lua_State *L, int idx);
/* Compile text; pushes the function, or raises. `chunk` is the source name with its '@' or '='. */
void sandbox_load(lua_State *L, const char *text, size_t len, const char *chunk);
/* The keys of the table at idx as a new list in sorted order: numbers, strings, booleans; one key
 * of another kind is last, several are refused. Pushes it and returns how many. */
lua_Integer sandbox_sorted_keys(lua_State *L, int idx);
/* Pushes the three values `pairs` returns for the table at idx, in sorted order. */
int sandbox_pairs(lua_State *L, int idx);

/* A table whose contents are kept in another one (a library, args), so that access can be checked.
 */
void sandbox_shadow_set(lua_State *L, int proxy, int real);
bool sandbox_shadow(lua_State *L,
                    int idx); /* pushes the real table if the value at idx is such a proxy */
/* Replace the table on top by a proxy that can be read only; `name` is for messages. */
void sandbox_lock(lua_State *L, const char *name);
/* Push the environment of user scripts (library: of the shipped ones). */
void sandbox_env(lua_State *L, bool library);
/* Set a global in both environments to the value on top, and pop it. */
void sandbox_publish(lua_State *L, const char *name);

/* The pieces, in files of their own; each fills the environments. */
void sandbox_open_base(lua_State *L);
void sandbox_open_coroutine(lua_State *L);
void sandbox_open_string(lua_State *L);
void sandbox_open_table(lua_State *L);
void sandbox_open_math(lua_State *L);

/* Move the named functions of the stock library (a table at `from`) into the table on top. */
void sandbox_pick(lua_State *L, int from, const char *const *names);

#endif
