/* value.c - one value of the file, typed by its row of the table, into the struct. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"
#include "engine/config/tree.h"

static void *member(struct loading *l, const struct key_def *k)
{
    return (char *)l->c + k->offset;
}

#define refuse(l, t, path, ...) (errors_add(&(l)->e, t, path, __VA_ARGS__), false)

static const char *shown(char *buf, size_t cap, const struct tree *t)
{
    if (t->kind == TREE_SCALAR)
        return str_visible(buf, cap, t->text);
    snprintf(buf, cap, "%s", t->kind == TREE_LIST ? "a list" : "a map");
    return buf;
}

static char *keep(struct loading *l, const char *text)
{
    return arena_strdup(&l->c->priv->mem, text);
}

/* ---- numbers ---- */

static bool in_range(struct loading *l, const struct key_def *k, const struct tree *t, double v)
{
    char lo[32], hi[32], got[80];

    if (v <= k->max && (k->above_min ? v > k->min : v >= k->min))
        return true;
    errors_add(&l->e, t, k->path, "%s is not in %s%s .. %s", shown(got, sizeof got, t),
               k->above_min ? "above " : "", str_double(lo, k->min), str_double(hi, k->max));
    return false;
}

static bool get_real(struct loading *l, const struct key_def *k, const struct tree *t, double *v)
{
    char got[80];

    if (t->kind != TREE_SCALAR)
        return refuse(l, t, k->path, "a number is needed, not %s", shown(got, sizeof got, t));
    if (!t->plain)
        return refuse(l, t, k->path,
                      "a number is needed, not a text: write it without quotes (\"%s\")",
                      shown(got, sizeof got, t));
    if (!str_to_double(t->text, t->len, v))
        return refuse(l, t, k->path, "'%s' is no number (1e-3, 0.001 and 3 are)",
                      shown(got, sizeof got, t));
    return in_range(l, k, t, *v);
}

static bool get_int(struct loading *l, const struct key_def *k, const struct tree *t, int64_t *v)
{
    char got[80];
    double r;

    if (t->kind == TREE_SCALAR && t->plain && str_to_int(t->text, t->len, v))
        return in_range(l, k, t, (double)*v);
    if (t->kind == TREE_SCALAR && t->plain && str_to_double(t->text, t->len, &r) && r == floor(r) &&
        fabs(r) < 1e15) {
        errors_add(&l->e, t, k->path, "'%s' is no whole number as it is written; write %.0f",
                   shown(got, sizeof got, t), r);
        return false;
    }
    if (t->kind == TREE_SCALAR && !t->plain)
        return refuse(l, t, k->path,
                      "a whole number is needed, not a text: write it without quotes (\"%s\")",
                      shown(got, sizeof got, t));
    return refuse(l, t, k->path, "a whole number is needed, not '%s'", shown(got, sizeof got, t));
}

/* ---- texts ---- */

static bool get_text(struct loading *l, const struct key_def *k, const struct tree *t, char **out)
{
    char got[80];

    if (t->kind != TREE_SCALAR)
        return refuse(l, t, k->path, "a text is needed, not %s", shown(got, sizeof got, t));
    if (t->len == 0)
        return refuse(l, t, k->path, "is empty");
    *out = keep(l, t->text);
    return *out != NULL;
}

static bool get_path(struct loading *l, const struct key_def *k, const struct tree *t, char **out)
{
    char *text, *joined;

    if (!get_text(l, k, t, &text))
        return false;
    joined = fs_join(t->dir ? t->dir : "", text);
    *out = joined ? keep(l, joined) : NULL;
    mem_free(joined);
    return *out != NULL;
}

static bool get_enum(struct loading *l, const struct key_def *k, const struct tree *t, char **out)
{
    char list[256], got[80];
    const char *name[16];
    int n = 0, near;

    if (t->kind != TREE_SCALAR)
        return refuse(l, t, k->path, "one of %s is needed", k->choices);
    snprintf(list, sizeof list, "%s", k->choices);
    for (char *save = NULL, *w = strtok_r(list, "|", &save); w && n < 16;
         w = strtok_r(NULL, "|", &save))
        name[n++] = w;
    for (int i = 0; i < n; i++)
        if (strcmp(name[i], t->text) == 0)
            return (*out = keep(l, name[i])) != NULL;
    near = str_nearest(t->text, name, n);
    if (near >= 0)
        errors_add(&l->e, t, k->path, "'%s' is none of %s; did you mean %s?",
                   shown(got, sizeof got, t), k->choices, name[near]);
    else
        errors_add(&l->e, t, k->path, "'%s' is none of %s", shown(got, sizeof got, t), k->choices);
    return false;
}

static bool get_bool(struct loading *l, const struct key_def *k, const struct tree *t, bool *out)
{
    char got[80];

    *out = tree_is(t, "true");
    if (*out || tree_is(t, "false"))
        return true;
    return refuse(l, t, k->path, "true or false is needed, not '%s'", shown(got, sizeof got, t));
}

/* ---- lists ---- */

static bool get_reals(struct loading *l, const struct key_def *k, const struct tree *t)
{
    double *out = member(l, k);

    if (t->kind != TREE_LIST || t->n != k->fixed) {
        errors_add(&l->e, t, k->path, "a list of %d numbers is needed", k->fixed);
        return false;
    }
    for (int i = 0; i < t->n; i++)
        if (!get_real(l, k, t->item[i], &out[i]))
            return false;
    return true;
}

static bool get_strings(struct loading *l, const struct key_def *k, const struct tree *t)
{
    int n = t->kind == TREE_LIST ? t->n : 1;
    char **list = arena_array(&l->c->priv->mem, (size_t)n + 1, sizeof *list);

    for (int i = 0; list && i < n; i++)
        if (!get_text(l, k, t->kind == TREE_LIST ? t->item[i] : t, &list[i]))
            return false;
    *(char ***)member(l, k) = list;
    return list != NULL;
}

/* ---- free trees: YAML 1.2 core types ---- */

static void free_scalar(struct loading *l, const struct tree *t, struct cfg_node *n)
{
    n->kind = CFG_STRING;
    n->s = keep(l, t->text);
    if (!t->plain)
        return;
    if (t->len == 0 || strcmp(t->text, "null") == 0 || strcmp(t->text, "~") == 0)
        n->kind = CFG_NULL;
    else if (strcmp(t->text, "true") == 0 || strcmp(t->text, "false") == 0)
        n->kind = CFG_BOOL, n->b = t->text[0] == 't';
    else if (str_to_int(t->text, t->len, &n->i))
        n->kind = CFG_INT, n->r = (double)n->i;
    else if (str_to_double(t->text, t->len, &n->r))
        n->kind = CFG_REAL;
}

struct cfg_node *value_free_tree(struct loading *l, const struct tree *t, const char *path,
                                 int depth)
{
    struct arena *a = &l->c->priv->mem;
    struct cfg_node *n = arena_alloc(a, sizeof *n);
    char place[600];

    if (++l->nodes > TREE_NODES || depth > TREE_DEPTH) {
        errors_add(&l->e, t, path, "more than 100000 values, or nested more than 64 deep");
        return NULL;
    }
    if (!n)
        return NULL;
    tree_place(t, place, sizeof place);
    n->origin = arena_strdup(a, place);
    if (t->kind == TREE_SCALAR) {
        free_scalar(l, t, n);
        return n;
    }
    n->kind = t->kind == TREE_LIST ? CFG_LIST : CFG_MAP;
    n->item = arena_array(a, (size_t)t->n + 1, sizeof(struct cfg_node *));
    n->key = arena_array(a, (size_t)t->n + 1, sizeof *n->key);
    if (!n->item || !n->key)
        return NULL;
    for (int i = 0; i < t->n; i++) {
        n->key[i] = t->kind == TREE_MAP ? keep(l, t->key[i]->text) : NULL;
        n->item[i] = value_free_tree(l, t->item[i], path, depth + 1);
        if (!n->item[i])
            return NULL;
        n->n++;
    }
    return n;
}

static bool get_free(struct loading *l, const struct key_def *k, const struct tree *t)
{
    if (t->kind != TREE_MAP)
        return refuse(l, t, k->path, "a map is needed");
    return (*(struct cfg_node **)member(l, k) = value_free_tree(l, t, k->path, 0)) != NULL;
}

/* ---- optimizer.groups, train.best ---- */

static bool group_field(struct loading *l, const struct key_def *k, const struct tree *key,
                        const struct tree *t, struct cfg_group *g)
{
    static const char *const names[] = {"match", "lr", "decay", "freeze"};
    struct key_def as = {.path = k->path, .min = 0, .max = 1e6};
    char *text;
    int near;

    if (strcmp(key->text, "match") == 0) {
        if (!get_text(l, k, t, &text))
            return false;
        g->match = text;
        return true;
    }
    if (strcmp(key->text, "lr") == 0)
        return get_real(l, &as, t, &g->lr);
    if (strcmp(key->text, "decay") == 0)
        return get_real(l, &as, t, &g->decay);
    if (strcmp(key->text, "freeze") == 0)
        return get_bool(l, k, t, &g->freeze);
    near = str_nearest(key->text, names, 4);
    errors_add(&l->e, key, k->path, "%s: unknown key of a group; %s%s", key->text,
               near >= 0 ? "did you mean " : "there are match, lr, decay, freeze",
               near >= 0 ? names[near] : "");
    return false;
}

static bool get_groups(struct loading *l, const struct key_def *k, const struct tree *t)
{
    struct cfg_group *g;
    char place[600];
    bool good = true;

    if (t->kind != TREE_LIST)
        return refuse(l, t, k->path, "a list of groups is needed: [{match: '*.bias', decay: 0}]");
    g = arena_array(&l->c->priv->mem, (size_t)t->n + 1, sizeof *g);
    for (int i = 0; g && i < t->n; i++) {
        const struct tree *m = t->item[i];

        g[i] = (struct cfg_group){.lr = 1, .decay = 1};
        tree_place(m, place, sizeof place);
        g[i].origin = keep(l, place);
        if (m->kind != TREE_MAP) {
            good = refuse(l, m, k->path, "a group is a map: {match: '*.bias', decay: 0}");
            continue;
        }
        for (int f = 0; f < m->n; f++)
            good = group_field(l, k, m->key[f], m->item[f], &g[i]) && good;
        if (!g[i].match)
            good = refuse(l, m, k->path, "a group needs match") && good;
    }
    l->c->optimizer.groups = g;
    l->c->optimizer.n_groups = t->n;
    return g && good;
}

static bool get_best(struct loading *l, const struct key_def *k, const struct tree *t)
{
    struct key_def mode = {.path = k->path, .choices = "min|max"};
    bool good = true;

    l->c->train.best_mode = keep(l, "");
    if (t->kind == TREE_SCALAR)
        return get_text(l, k, t, &l->c->train.best_metric);
    if (t->kind != TREE_MAP || !tree_get(t, "metric"))
        return refuse(l, t, k->path,
                      "the name of a metric is needed, or {metric: name, mode: min}");
    for (int i = 0; i < t->n; i++) {
        if (strcmp(t->key[i]->text, "metric") == 0)
            good = get_text(l, k, t->item[i], &l->c->train.best_metric) && good;
        else if (strcmp(t->key[i]->text, "mode") == 0)
            good = get_enum(l, &mode, t->item[i], &l->c->train.best_mode) && good;
        else
            good = refuse(l, t->key[i], k->path, "%s: unknown key; there are metric and mode",
                          t->key[i]->text);
    }
    return good;
}

static void unset(struct loading *l, const struct key_def *k)
{
    if (k->type == KEY_REAL)
        *(double *)member(l, k) = 0;
    else if (k->type == KEY_INT)
        *(int64_t *)member(l, k) = 0;
    else
        *(void **)member(l, k) = NULL;
    l->c->priv->value[key_index(k)].set = false;
}

bool value_set(struct loading *l, const struct key_def *k, const struct tree *t)
{
    bool good = false;

    if (t->kind == TREE_SCALAR && t->plain &&
        (t->len == 0 || tree_is(t, "null") || tree_is(t, "~"))) {
        if (!k->may_be_null)
            return refuse(l, t, k->path, "a value is needed");
        unset(l, k);
        return true;
    }
    switch (k->type) {
    case KEY_STRING:
        good = get_text(l, k, t, member(l, k));
        break;
    case KEY_PATH:
        good = get_path(l, k, t, member(l, k));
        break;
    case KEY_INT:
        good = get_int(l, k, t, member(l, k));
        break;
    case KEY_REAL:
        good = get_real(l, k, t, member(l, k));
        break;
    case KEY_BOOL:
        good = get_bool(l, k, t, member(l, k));
        break;
    case KEY_ENUM:
        good = get_enum(l, k, t, member(l, k));
        break;
    case KEY_REALS:
        good = get_reals(l, k, t);
        break;
    case KEY_STRINGS:
        good = get_strings(l, k, t);
        break;
    case KEY_FREE:
        good = get_free(l, k, t);
        break;
    case KEY_GROUPS:
        good = get_groups(l, k, t);
        break;
    case KEY_BEST:
        good = get_best(l, k, t);
        break;
    }
    if (good)
        l->c->priv->value[key_index(k)].set = true;
    return good;
}
