/* load.c - layers (extends, file, command line) merged into one tree, matched against the table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"
#include "engine/config/tree.h"

enum { EXTENDS_DEPTH = 8 };

/* ---- the table ---- */

int key_count(void)
{
    int n = 0;
    while (config_keys[n].path)
        n++;
    return n;
}

int key_index(const struct key_def *k)
{
    return (int)(k - config_keys);
}

static const struct key_def *by_path(const char *path)
{
    for (const struct key_def *k = config_keys; k->path; k++)
        if (strcmp(k->path, path) == 0)
            return k;
    return NULL;
}

/* Is path the beginning of keys: "optimizer"? */
static bool is_section(const char *path)
{
    size_t n = strlen(path);

    for (const struct key_def *k = config_keys; k->path; k++)
        if (strncmp(k->path, path, n) == 0 && k->path[n] == '.')
            return true;
    return false;
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* The key that was meant: by the whole path, else by the last part in whatever section. */
static const char *nearest(const char *path)
{
    const char *paths[128], *parts[128];
    int n = 0, near;

    for (const struct key_def *k = config_keys; k->path && n < 128; k++)
        if (!k->element) {
            paths[n] = k->path;
            parts[n++] = last_part(k->path);
        }
    for (int i = 0; i < n; i++) /* the right word in the wrong section */
        if (strcmp(parts[i], last_part(path)) == 0 && strcmp(parts[i], "name") != 0)
            return paths[i];
    for (int i = 0; i < n; i++) /* the right section, a near word: optimizer.lrr */
        if (strlen(path) - strlen(last_part(path)) == strlen(paths[i]) - strlen(parts[i]) &&
            strncmp(path, paths[i], strlen(path) - strlen(last_part(path))) == 0 &&
            str_nearest(last_part(path), &parts[i], 1) == 0)
            return paths[i];
    near = str_nearest(last_part(path), parts, n);
    for (int i = 0; i < n && near < 0; i++) /* spelt out further than it is: lrate for lr */
        if (strlen(parts[i]) >= 2 && strncmp(last_part(path), parts[i], strlen(parts[i])) == 0)
            near = i;
    if (near < 0)
        near = str_nearest(path, paths, n);
    return near >= 0 ? paths[near] : NULL;
}

const struct key_def *config_key_find(const char *name, struct err *e)
{
    const struct key_def *found = by_path(name);
    size_t n = strlen(name);
    const char *near;
    int ends = 0;

    if (found)
        return found;
    for (const struct key_def *k = config_keys; k->path; k++)
        if (k->brief && strcmp(k->brief, name) == 0)
            return k;
    for (const struct key_def *k = config_keys; k->path; k++) {
        size_t len = strlen(k->path);
        if (len > n && k->path[len - n - 1] == '.' && strcmp(k->path + len - n, name) == 0) {
            found = k;
            ends++;
        }
    }
    if (ends == 1)
        return found;
    near = nearest(name);
    if (ends > 1)
        err_set(e, ERR_CONFIG, "%s: several keys end so; write the whole path (%s)", name,
                found->path);
    else if (near)
        err_set(e, ERR_CONFIG, "%s: unknown key; did you mean %s?", name, near);
    else
        err_set(e, ERR_CONFIG, "%s: unknown key", name);
    return NULL;
}

bool config_is_override(const char *word)
{
    size_t n = strcspn(word, "=");

    if (word[n] != '=' || n == 0 || word[0] == '.' || word[0] == '/')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = word[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-' || c == '.' || c == '*' || c == '@'))
            return false;
    }
    return true;
}

/* ---- matching a tree against the table ---- */

static void unknown_key(struct loading *l, const struct tree *key, const char *path)
{
    const char *dot = strchr(key->text, '.'), *near;

    if (l->e.list->n >= TREE_ERRORS)
        return; /* nobody will read it: do not look for what was meant */
    near = nearest(path);
    if (dot && by_path(path))
        errors_add(&l->e, key, path, "write sections as maps: %.*s: {%s: ...}",
                   (int)(dot - key->text), key->text, dot + 1);
    else if (near)
        errors_add(&l->e, key, path, "unknown key; did you mean %s?", near);
    else
        errors_add(&l->e, key, path, "unknown key");
}

static void note_value(struct loading *l, const struct key_def *k, const struct tree *t)
{
    struct value *v = &l->c->priv->value[key_index(k)];
    char place[600];

    tree_place(t, place, sizeof place);
    v->origin = arena_strdup(&l->c->priv->mem, place);
    v->tree = t;
}

static void match(struct loading *l, const struct tree *t, const char *prefix)
{
    for (int i = 0; i < t->n; i++) {
        const struct tree *key = t->key[i], *item = t->item[i];
        const struct key_def *k;
        char path[256];

        if ((size_t)snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key->text) >=
            sizeof path) {
            errors_add(&l->e, key, prefix, "a key of more than 250 bytes");
            continue;
        }
        k = strchr(key->text, '.') ? NULL : by_path(path);
        if (strcmp(key->text, "<<") == 0 || (!*prefix && strcmp(key->text, "extends") == 0))
            continue; /* said when it was read; handled by the layers */
        if (k && k->element && item->line > 0) {
            errors_add(&l->e, key, path, "in a file write optimizer.betas: [0.9, 0.999]");
        } else if (k) {
            note_value(l, k, item);
            value_set(l, k, item);
        } else if (is_section(path) && !strchr(key->text, '.')) {
            if (item->kind == TREE_MAP)
                match(l, item, path);
            else
                errors_add(&l->e, item, path, "is a section: write %s: {name: %s}", path,
                           item->kind == TREE_SCALAR ? item->text : "...");
        } else {
            unknown_key(l, key, path);
        }
    }
}

/* ---- layers ---- */

static bool is(const char *path, const char *want)
{
    return strcmp(path, want) == 0;
}

static const char *partner(const char *path)
{
    return is(path, "train.epochs")  ? "steps"
           : is(path, "train.steps") ? "epochs"
           : is(path, "data.valid")  ? "split"
           : is(path, "data.split")  ? "valid"
                                     : NULL;
}

static void drop(struct tree *map, const char *key)
{
    for (int i = 0; i < map->n; i++)
        if (strcmp(map->key[i]->text, key) == 0) {
            memmove(&map->key[i], &map->key[i + 1],
                    (size_t)(map->n - i - 1) * sizeof(struct tree *));
            memmove(&map->item[i], &map->item[i + 1],
                    (size_t)(map->n - i - 1) * sizeof(struct tree *));
            map->n--;
            return;
        }
}

static bool is_null(const struct tree *t)
{
    return tree_is(t, "null") || tree_is(t, "~");
}

/* A later layer that names one of two exclusive keys takes the place of the other. */
static void displace(struct loading *l, struct tree *under, const char *path, const struct tree *by)
{
    const char *other = partner(path);
    const struct tree *old = other ? tree_get(under, other) : NULL;
    char from[600], to[600];

    if (!old || is_null(by))
        return;
    tree_place(old, from, sizeof from);
    tree_place(by, to, sizeof to);
    str_addf(&l->c->priv->notes, "%s (%s) replaces %.*s%s (%s)\n", path, to,
             (int)(strlen(path) - strlen(last_part(path))), path, other, from);
    drop(under, other);
}

/* Lays `over` on `under`: maps merge, all else is replaced, null removes. */
static bool merge(struct loading *l, struct tree *under, const struct tree *over,
                  const char *prefix)
{
    for (int i = 0; i < over->n; i++) {
        struct tree *key = over->key[i], *item = over->item[i], *old = NULL;
        char path[256];

        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key->text);
        displace(l, under, path, item);
        for (int k = 0; k < under->n && !old; k++)
            if (strcmp(under->key[k]->text, key->text) == 0) {
                old = under->item[k];
                if (old->kind == TREE_MAP && item->kind == TREE_MAP) {
                    /* the map below may be shared through an alias: change a copy */
                    struct tree *copy = tree_new(&l->c->priv->mem, TREE_MAP, old);
                    for (int c = 0; copy && c < old->n; c++)
                        if (!tree_add(copy, &l->c->priv->mem, old->key[c], old->item[c]))
                            return false;
                    if (!copy || !merge(l, copy, item, path))
                        return false;
                    under->item[k] = copy;
                } else {
                    under->key[k] = key;
                    under->item[k] = item;
                }
            }
        if (old && is_null(item))
            drop(under, key->text);
        else if (!old && !tree_add(under, &l->c->priv->mem, key, item))
            return false;
    }
    return true;
}

static struct tree *read_file(struct loading *l, const char *path, const struct tree *from,
                              int depth, const char *const *chain);

/* The tree of a text with what it extends below it. */
static struct tree *layered(struct loading *l, struct tree *t, int depth, const char *const *chain)
{
    const struct tree *ext = tree_get(t, "extends");
    struct tree *base;
    char *path;

    for (int i = 0; i < t->n; i++) { /* both members of a pair in one file */
        static const char *const pairs[][3] = {{"train", "epochs", "steps"},
                                               {"data", "valid", "split"}};
        for (int p = 0; p < 2; p++) {
            const struct tree *s = strcmp(t->key[i]->text, pairs[p][0]) == 0 ? t->item[i] : NULL;
            const struct tree *a = s ? tree_get(s, pairs[p][1]) : NULL,
                              *b = s ? tree_get(s, pairs[p][2]) : NULL;
            char at[600], both[64];
            if (!a || !b || is_null(a) || is_null(b))
                continue;
            tree_place(a, at, sizeof at);
            snprintf(both, sizeof both, "%s.%s", pairs[p][0], pairs[p][2]);
            errors_add(&l->e, b, both, "excludes %s.%s, which is at %s", pairs[p][0], pairs[p][1],
                       at);
        }
    }
    if (!ext)
        return t;
    if (ext->kind != TREE_SCALAR || depth >= EXTENDS_DEPTH) {
        errors_add(&l->e, ext, "extends",
                   ext->kind != TREE_SCALAR ? "the path of one file is needed"
                                            : "more than 8 files deep");
        return t;
    }
    path = fs_join(t->dir, ext->text);
    base = path ? read_file(l, path, ext, depth + 1, chain) : NULL;
    mem_free(path);
    if (base && !merge(l, base, t, ""))
        errors_add(&l->e, t, "", "out of memory");
    return base ? base : t;
}

static struct tree *from_text(struct loading *l, const char *text, size_t len, const char *file,
                              const char *dir, int depth, const char *const *chain)
{
    struct tree *t = tree_parse(&l->c->priv->mem, text, len, file, dir, &l->e);

    if (t && t->kind != TREE_MAP) {
        errors_add(&l->e, t, "",
                   t->kind == TREE_SCALAR && t->len == 0 ? "is empty"
                                                         : "an experiment is a map of keys");
        return NULL;
    }
    return t ? layered(l, t, depth, chain) : NULL;
}

static struct tree *read_file(struct loading *l, const char *path, const struct tree *from,
                              int depth, const char *const *chain)
{
    const char *next[EXTENDS_DEPTH + 3] = {0};
    char *text = NULL, *dir = NULL, real[4096];
    struct tree *t = NULL;
    struct err e;
    size_t len;
    int n = 0;

    if (!realpath(path, real))
        snprintf(real, sizeof real, "%s", path);
    for (; chain && chain[n]; n++) {
        next[n] = chain[n];
        if (strcmp(chain[n], real) == 0) {
            errors_add(&l->e, from, "extends", "%s extends itself", path);
            return NULL;
        }
    }
    next[n] = real;
    if (fs_read_file(path, TREE_FILE_MAX, ERR_CONFIG, &text, &len, &e) != ERR_OK) {
        /* the message names the file */
        errors_add(&l->e, from, depth > 0 ? "extends" : "", "%s", e.msg);
        return NULL;
    }
    dir = fs_dirname(path);
    if (dir)
        t = from_text(l, text, len, arena_strdup(&l->c->priv->mem, path),
                      arena_strdup(&l->c->priv->mem, dir), depth, next);
    mem_free(text);
    mem_free(dir);
    return t;
}

/* ---- overrides ---- */

/* "model.args.hidden" below a free tree is allowed to be deeper than the table. */
static bool below_free(const char *path)
{
    for (const struct key_def *k = config_keys; k->path; k++) {
        size_t n = strlen(k->path);
        if (k->type == KEY_FREE && strncmp(path, k->path, n) == 0 && path[n] == '.')
            return true;
    }
    return false;
}

/* A text is taken as it stands, `data.delimiter=,` too, unless it is in quotes; other types are
 * YAML. NULL: not a text. */
static struct tree *raw_value(struct arena *a, const struct key_def *k, const char *text,
                              const struct tree *place)
{
    struct tree *t;

    if ((k->type != KEY_STRING && k->type != KEY_PATH && k->type != KEY_ENUM) || *text == '"' ||
        *text == '\'')
        return NULL;
    t = tree_new(a, TREE_SCALAR, place);
    if (!t || !(t->text = arena_strdup(a, text)))
        return NULL;
    t->len = strlen(text);
    t->plain = true;
    return t;
}

static void override(struct loading *l, struct tree *under, const char *word)
{
    struct arena *a = &l->c->priv->mem;
    struct tree place = {.file = "command line", .dir = ""}, *value, *top, *at;
    size_t n = strcspn(word, "=");
    char *name = arena_strndup(a, word, n), *save = NULL;
    const char *path = name;
    const struct key_def *k = NULL;
    struct err e = {0};

    if (!name)
        return;
    if (is_section(name)) {
        errors_add(&l->e, &place, name, "is a section: give its keys one by one (%s.name=...)",
                   name);
        return;
    }
    if (!below_free(name)) {
        k = config_key_find(name, &e);
        if (!k) {
            errors_add(&l->e, &place, "", "%s", e.msg);
            return;
        }
        path = k->path;
    }
    value = k ? raw_value(a, k, word + n + 1, &place) : NULL;
    if (!value)
        value = word[n + 1]
                    ? tree_parse(a, word + n + 1, strlen(word + n + 1), "command line", "", &l->e)
                    : tree_new(a, TREE_SCALAR, &place);
    if (!value)
        return;
    value->line = value->column = 0;
    for (int i = 0; i < value->n; i++)
        value->item[i]->line = value->item[i]->column = 0;
    top = at = tree_new(a, TREE_MAP, &place);
    name = arena_strdup(a, path);
    for (char *part = name ? strtok_r(name, ".", &save) : NULL; part && at;) {
        char *more = strtok_r(NULL, ".", &save);
        struct tree *key = tree_new(a, TREE_SCALAR, &place),
                    *item = more ? tree_new(a, TREE_MAP, &place) : value;

        if (!key || !item || !tree_add(at, a, key, item))
            return;
        key->text = part;
        key->len = strlen(part);
        key->plain = true;
        at = item;
        part = more;
    }
    merge(l, under, top, "");
}

/* ---- the whole ---- */

static void set_defaults(struct loading *l)
{
    for (const struct key_def *k = config_keys; k->path; k++) {
        struct tree *t =
            k->dflt ? tree_parse(&l->c->priv->mem, k->dflt, strlen(k->dflt), "default", "", &l->e)
                    : NULL;

        if (t)
            value_set(l, k, t);
        l->c->priv->value[key_index(k)].origin = "default";
    }
}

static struct config *config_new(void)
{
    struct config *c = mem_zalloc(sizeof *c);

    if (!c)
        return NULL;
    c->priv = mem_zalloc(sizeof *c->priv);
    if (c->priv) {
        arena_init(&c->priv->mem, (size_t)256 << 20);
        c->priv->value =
            arena_array(&c->priv->mem, (size_t)key_count() + 1, sizeof *c->priv->value);
    }
    if (!c->priv || !c->priv->value) {
        config_free(c);
        return NULL;
    }
    return c;
}

void config_free(struct config *c)
{
    if (!c)
        return;
    if (c->priv) {
        str_release(&c->priv->notes);
        arena_release(&c->priv->mem);
    }
    mem_free(c->priv);
    mem_free(c);
}

static struct config *finish(struct loading *l, struct tree *t, char *const *words, int n_words)
{
    if (t) {
        for (int i = 0; i < n_words; i++)
            override(l, t, words[i]);
        set_defaults(l);
        match(l, t, "");
        config_check(l);
    }
    if (l->e.list->n == 0 && !t)
        errors_add(&l->e, &(struct tree){.file = l->c->file}, "", "out of memory");
    errors_sort(&l->e);
    if (l->e.list->n > 0) {
        config_free(l->c);
        return NULL;
    }
    return l->c;
}

struct config *config_load_text(const char *text, size_t len, const char *file, const char *dir,
                                char *const *words, int n_words, struct err_list *errs)
{
    struct loading l = {.c = config_new(), .e = {.list = errs}};

    *errs = (struct err_list){0};
    if (!l.c) {
        errors_add(&l.e, &(struct tree){.file = file}, "", "out of memory");
        return NULL;
    }
    l.c->file = arena_strdup(&l.c->priv->mem, file);
    return finish(&l, from_text(&l, text, len, file, dir, 0, NULL), words, n_words);
}

struct config *config_load(const char *file, char *const *words, int n_words, struct err_list *errs)
{
    struct loading l = {.c = config_new(), .e = {.list = errs}};
    struct tree nowhere = {.file = ""};

    *errs = (struct err_list){0};
    if (!l.c) {
        errors_add(&l.e, &(struct tree){.file = file}, "", "out of memory");
        return NULL;
    }
    l.c->file = arena_strdup(&l.c->priv->mem, file);
    nowhere.file = "cupola";
    return finish(&l, read_file(&l, file, &nowhere, 0, NULL), words, n_words);
}
