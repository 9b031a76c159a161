/* script.c - opening a model script, and what is asked of it besides traces. */
#include "engine/script/script.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"
#include "engine/script/priv.h"

static char model_key;

void script_model(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &model_key);
}

/* ---- what the model function returned ---- */

static const char *const model_fields[] = {"forward", "loss",    "metrics", "predict",
                                           "init",    "on_eval", "on_step", "optimizer_groups"};
enum { N_FIELDS = sizeof model_fields / sizeof *model_fields, FIRST_LATER = 4 };

/* Unknown fields are refused: one misspelt would silently do nothing. Stack 1: the table. */
static void check_fields(lua_State *L)
{
    lua_Integer n = sandbox_sorted_keys(L, 1);

    for (lua_Integer i = 1; i <= n; i++) {
        int known = 0;
        lua_rawgeti(L, -1, i);
        const char *key = sandbox_tostring(L, -1);
        while (known < N_FIELDS && strcmp(key, model_fields[known]) != 0)
            known++;
        int near = str_nearest(key, model_fields, N_FIELDS);
        if (known == N_FIELDS)
            luaL_error(L, "the model's table has an unknown field \"%s\"%s%s%s", key,
                       near >= 0 ? "; did you mean " : "", near >= 0 ? model_fields[near] : "",
                       near >= 0 ? "?" : "");
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
}

static void check_function(lua_State *L, const char *field, bool required)
{
    if (lua_getfield(L, 1, field) != LUA_TFUNCTION && (required || !lua_isnil(L, -1)))
        luaL_error(L, "the model's field \"%s\" must be a function, but is %s", field,
                   luaL_typename(L, -1));
    lua_pop(L, 1);
}

/* A metric is a function, {mean = f} or {stats = f, value = f}, each with an optional `better`.
 * Stack top. */
static void check_metric(lua_State *L, const char *name)
{
    if (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") !=
            strlen(name) ||
        !*name || strlen(name) > 60 || strcmp(name, "loss") == 0)
        luaL_error(L, "metric \"%s\": a name has letters, digits and _, and is not \"loss\"", name);
    if (lua_isfunction(L, -1))
        return;
    if (!lua_istable(L, -1))
        luaL_error(L, "metric %s must be a function or nn.metric{...}, but is %s", name,
                   luaL_typename(L, -1));
    lua_getfield(L, -1, "mean");
    lua_getfield(L, -2, "stats");
    lua_getfield(L, -3, "value");
    if (!lua_isfunction(L, -3) && !(lua_isfunction(L, -2) && lua_isfunction(L, -1)))
        luaL_error(L, "metric %s needs the functions stats and value; use nn.metric{...}", name);
    lua_getfield(L, -4, "better");
    const char *better = lua_isnil(L, -1) ? "" : sandbox_tostring(L, -1);
    if (strcmp(better, "") != 0 && strcmp(better, "min") != 0 && strcmp(better, "max") != 0)
        luaL_error(L, "metric %s: better is \"min\" or \"max\"", name);
    lua_settop(L, 4); /* model metrics keys metric */
}

static void note_metrics(lua_State *L)
{
    struct script *s = script_of(L);

    lua_settop(L, 1);
    if (lua_getfield(L, 1, "metrics") == LUA_TNIL)
        return;
    if (!lua_istable(L, 2))
        luaL_error(L, "the model's field \"metrics\" must be a table, but is %s",
                   luaL_typename(L, 2));
    lua_Integer n = sandbox_sorted_keys(L, 2);
    s->metric = mem_array((size_t)n + 1, sizeof *s->metric);
    if (!s->metric)
        sandbox_raise(L, ERR_NOMEM, "out of memory");
    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_rawgeti(L, 3, i) != LUA_TSTRING)
            luaL_error(L, "the model's metrics have names: {accuracy = nn.accuracy}");
        lua_pushvalue(L, -1);
        lua_rawget(L, 2);
        lua_insert(L, -2);
        const char *name = lua_tostring(L, -1); /* held by the table */
        s->metric[i - 1].name = mem_strdup(name);
        s->n_metrics = (int)i;
        if (!s->metric[i - 1].name)
            sandbox_raise(L, ERR_NOMEM, "out of memory");
        lua_pop(L, 1);
        check_metric(L, name);
        lua_settop(L, 3);
    }
}

static void note_hooks(lua_State *L)
{
    struct str names = {0};

    for (int i = FIRST_LATER; i < N_FIELDS; i++) {
        if (lua_getfield(L, 1, model_fields[i]) != LUA_TNIL)
            str_addf(&names, "%s%s", names.len ? ", " : "", model_fields[i]);
        lua_pop(L, 1);
    }
    if (names.len)
        script_of(L)->hooks = mem_strdup(str_c(&names));
    str_release(&names);
}

/* ---- opening ---- */

struct text {
    const char *s;
    size_t len;
};

static int open_body(lua_State *L)
{
    const struct text *text = lua_touserdata(L, 1);
    struct script *s = script_of(L);

    script_open_require(L);
    lua_settop(L, 0);
    lua_pushfstring(L, "@%s", s->name);
    sandbox_load(L, text->s, text->len, lua_tostring(L, -1));
    lua_call(L, 0, 1);
    if (!lua_isfunction(L, -1))
        return luaL_error(L, "a model script returns a function of args, but this one returns %s",
                          luaL_typename(L, -1));
    args_push(L, s->args);
    lua_call(L, 1, 1);
    if (!lua_istable(L, -1))
        return luaL_error(L,
                          "the model's function returns a table {forward, loss, ...}, but this "
                          "one returns %s",
                          luaL_typename(L, -1));
    lua_replace(L, 1);
    lua_settop(L, 1);
    check_fields(L);
    check_function(L, "forward", true);
    check_function(L, "loss", true);
    check_function(L, "predict", false);
    note_metrics(L);
    note_hooks(L);
    lua_settop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &model_key);
    return 0;
}

static bool set_names(struct script *s, const struct script_opts *o)
{
    s->path = mem_strdup(o->path);
    s->dir = fs_dirname(o->path);
    s->name = mem_strdup(fs_basename(o->path));
    s->shipped = o->shipped ? mem_strdup(o->shipped) : NULL;
    return s->path && s->dir && s->name && (s->shipped || !o->shipped);
}

enum err_code script_open_text(const struct script_opts *o, const char *text, size_t len,
                               struct script **out, struct err *e)
{
    struct script *s = mem_zalloc(sizeof *s);
    struct text t = {text, len};
    enum err_code rc;

    *out = NULL;
    if (!s || !set_names(s, o)) {
        script_free(s);
        return err_set(e, ERR_NOMEM, "%s: out of memory", o->path);
    }
    s->args = o->args;
    s->sb.max = (struct sandbox_limits){o->max_instructions, o->max_bytes, o->max_seconds};
    s->sb.seed = o->seed;
    s->sb.print = o->print;
    s->sb.print_arg = o->print_arg;
    s->sb.name = s->name;
    s->sb.owner = s;
    rc = sandbox_init(&s->sb, e);
    if (rc == ERR_OK)
        rc = sandbox_run(&s->sb, open_body, &t, e);
    if (rc != ERR_OK) {
        script_free(s);
        return rc;
    }
    *out = s;
    return ERR_OK;
}

enum err_code script_open(const struct script_opts *o, struct script **out, struct err *e)
{
    char *text;
    size_t len;
    enum err_code rc;

    *out = NULL;
    rc = fs_read_file(o->path, SANDBOX_SOURCE_MAX, ERR_SCRIPT, &text, &len, e);
    if (rc != ERR_OK)
        return rc;
    rc = script_open_text(o, text, len, out, e);
    mem_free(text);
    if (rc != ERR_OK)
        return rc;
    if (!script_note_file(*out, o->path)) {
        script_free(*out);
        *out = NULL;
        return err_set(e, ERR_IO, "%s: it went away while it was read", o->path);
    }
    /* the main script is the first of the list */
    char *last = (*out)->files[(*out)->n_files - 1];
    memmove(&(*out)->files[1], &(*out)->files[0],
            (size_t)((*out)->n_files - 1) * sizeof *(*out)->files);
    (*out)->files[0] = last;
    return ERR_OK;
}

void script_free(struct script *s)
{
    if (!s)
        return;
    sandbox_release(&s->sb);
    for (int i = 0; i < s->n_files; i++)
        mem_free(s->files[i]);
    for (int i = 0; i < s->n_tunables; i++)
        mem_free(s->tunable[i].name);
    for (int i = 0; i < s->n_metrics; i++) {
        mem_free(s->metric[i].name);
        mem_free(s->metric[i].count);
    }
    param_list_release(&s->params);
    mem_free(s->files);
    mem_free(s->tunable);
    mem_free(s->metric);
    mem_free(s->path);
    mem_free(s->dir);
    mem_free(s->name);
    mem_free(s->shipped);
    mem_free(s->hooks);
    mem_free(s);
}

/* ---- questions ---- */

int script_files(const struct script *s, const char *const **paths)
{
    *paths = (const char *const *)s->files;
    return s->n_files;
}

const char *script_optional(const struct script *s)
{
    return s->hooks;
}

struct metric_call {
    int metric;
    const double *sums;
    double result;
};

/* A scalar statistic is a number, any other a flat list of its elements. */
static int metric_body(lua_State *L)
{
    struct metric_call *c = lua_touserdata(L, 1);
    const struct metric_info *m = &script_of(L)->metric[c->metric];
    const double *at = c->sums;

    script_model(L);
    lua_getfield(L, -1, "metrics");
    lua_getfield(L, -1, m->name);
    lua_getfield(L, -1, "value");
    lua_createtable(L, m->n_stats, 0);
    for (int i = 0; i < m->n_stats; i++) {
        if (m->count[i] < 0) {
            lua_pushnumber(L, *at++);
        } else {
            lua_newtable(L);
            for (int64_t j = 0; j < m->count[i]; j++) {
                lua_pushnumber(L, *at++);
                lua_rawseti(L, -2, j + 1);
            }
        }
        lua_rawseti(L, -2, i + 1);
    }
    lua_call(L, 1, 1);
    if (lua_type(L, -1) != LUA_TNUMBER)
        return luaL_error(L, "metric %s: value must return a number, but returned %s", m->name,
                          luaL_typename(L, -1));
    c->result = lua_tonumber(L, -1);
    return 0;
}

double script_metric_value(struct script *s, int metric, const double *sums, int n, struct err *e)
{
    struct metric_call c = {metric, sums, 0};

    if (metric < 0 || metric >= s->n_metrics || !s->metric[metric].count ||
        s->metric[metric].total != n) {
        err_set(e, ERR_INTERNAL, "%s: metric %d does not have %d sums", s->name, metric, n);
        return (double)NAN;
    }
    if (sandbox_run(&s->sb, metric_body, &c, e) != ERR_OK)
        return (double)NAN;
    return c.result;
}

struct unread_call {
    const struct cfg_node *args;
    struct str *unread, *read;
};

static int unread_body(lua_State *L)
{
    struct unread_call *c = lua_touserdata(L, 1);
    args_unread(L, c->args, c->unread, c->read);
    return 0;
}

bool script_unread_args(struct script *s, struct str *unread, struct str *read)
{
    struct unread_call c = {s->args, unread, read};
    sandbox_run(&s->sb, unread_body, &c, NULL);
    return unread->len > 0;
}
