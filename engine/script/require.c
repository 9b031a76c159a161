/* require.c - modules: Lua files of the model's own folder, then of the shipped one, and nothing
 * else.
 *
 * A chunk's source name begins with '@' for the user's files and with '=' for the shipped ones (and
 * any file named nn.lua, as run directories hold a copy): messages then name the user's lines. */
#include "engine/script/priv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"

static char loaded_key, core_key;

static bool name_ok(const char *s)
{
    if (!*s || strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-") !=
                   strlen(s))
        return false;
    if (strlen(s) > 200 || *s == '.' || *s == '/' || strstr(s, "..") || strstr(s, "//"))
        return false;
    return strstr(s, "/.") == NULL && strstr(s, "./") == NULL && s[strlen(s) - 1] != '.';
}

bool script_note_file(struct script *s, const char *path)
{
    char full[PATH_MAX];

    if (!realpath(path, full))
        return false;
    for (int i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i], full) == 0)
            return true;
    if (mem_grow((void **)&s->files, &s->file_cap, (size_t)s->n_files, sizeof *s->files) < 0)
        return false;
    s->files[s->n_files] = mem_strdup(full);
    return s->files[s->n_files] && ++s->n_files;
}

/* Pushing may raise, and then the file's text would leak: push it in a call of its own. */
struct pushed {
    const char *text;
    size_t len;
};

static int push_text(lua_State *L)
{
    const struct pushed *p = lua_touserdata(L, 1);
    lua_pushlstring(L, p->text, p->len);
    return 1;
}

void script_read(lua_State *L, const char *path)
{
    struct script *s = script_of(L);
    struct err e;
    char *text = NULL;
    size_t len = 0;

    lua_pushcfunction(L, push_text);
    if (fs_read_file(path, SANDBOX_SOURCE_MAX, ERR_SCRIPT, &text, &len, &e) != ERR_OK)
        sandbox_raise(L, ERR_SCRIPT, e.msg);
    struct pushed p = {text, len};
    lua_pushlightuserdata(L, &p);
    int status = lua_pcall(L, 1, 1, 0);
    mem_free(text);
    if (status != LUA_OK)
        lua_error(L);
    if (!script_note_file(s, path))
        sandbox_raise(L, ERR_NOMEM, "no memory for the list of files");
}

/* name with dots as slashes, in a folder; NULL if there is no such file. Pushes the path. */
static const char *find_in(lua_State *L, const char *dir, const char *name)
{
    if (!dir)
        return NULL;
    lua_pushstring(L, name);
    luaL_gsub(L, lua_tostring(L, -1), ".", "/");
    const char *path = lua_pushfstring(L, "%s/%s.lua", dir, lua_tostring(L, -1));
    return fs_exists(path) ? path : NULL;
}

static int l_require(lua_State *L)
{
    struct script *s = script_of(L);
    const char *name = luaL_checkstring(L, 1);
    bool library = false;

    if (strcmp(name, "nn.core") == 0)
        return luaL_error(L, "require: nn.core belongs to nn.lua; use require \"nn\"");
    if (!name_ok(name))
        return luaL_error(L,
                          "require: \"%s\": a module's name has letters, digits, _ - . / and "
                          "stays within the model's folder",
                          name);
    lua_settop(L, 1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &loaded_key); /* 2 */
    if (lua_getfield(L, 2, name) != LUA_TNIL) {
        if (lua_islightuserdata(L, -1))
            return luaL_error(L, "require: \"%s\" requires itself, directly or through others",
                              name);
        return 1;
    }
    const char *path = find_in(L, s->dir, name);
    if (!path) {
        path = find_in(L, s->shipped, name);
        library = path != NULL;
    }
    if (!path)
        return luaL_error(L, "require: there is no module \"%s\" in %s%s%s", name, s->dir,
                          s->shipped ? " or " : "", s->shipped ? s->shipped : "");
    library = library || strcmp(name, "nn") == 0;
    lua_pushlightuserdata(L, &loaded_key); /* being loaded */
    lua_setfield(L, 2, name);
    script_read(L, path);
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    lua_pushfstring(L, "%s%s.lua", library ? "=" : "@", name);
    sandbox_load(L, text, len, lua_tostring(L, -1));
    lua_pushstring(L, name);
    lua_call(L, 1, 1);
    if (lua_isnil(L, -1))
        lua_pushboolean(L, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
}

/* What nn.lua has for `require`: it may have the primitives as well. */
static int library_require(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TSTRING && strcmp(lua_tostring(L, 1), "nn.core") == 0) {
        lua_rawgetp(L, LUA_REGISTRYINDEX, &core_key);
        return 1;
    }
    return l_require(L);
}

void script_open_require(lua_State *L)
{
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &loaded_key);
    lua_pushcfunction(L, l_require);
    sandbox_publish(L, "require");
    sandbox_env(L, true);
    lua_pushcfunction(L, library_require);
    lua_setfield(L, -2, "require");
    lua_pop(L, 1);

    lua_newtable(L); /* nn.core */
    layer_open(L);
    tensor_open(L);
    ops_open(L);
    ops_shape_open(L);
    mean_open(L);
    trace_open(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &core_key);
}
