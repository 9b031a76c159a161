/* dump.c - a config as YAML that loads to the same config, and the table as a page. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/tree.h"

static const void *member(const struct config *c, const struct key_def *k)
{
    return (const char *)c + k->offset;
}

/* A text in YAML: plain when nobody could read it as something else, else in double quotes. */
static void put_text(struct str *out, const char *s)
{
    bool plain =
        *s != 0 && strcmp(s, "null") != 0 && strcmp(s, "true") != 0 && strcmp(s, "false") != 0;
    double v;

    for (const char *p = s; *p && plain; p++)
        plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                *p == '_' || *p == '/' || (*p == '.' && p > s) || (*p == '-' && p > s);
    if (plain && !str_to_double(s, strlen(s), &v)) {
        str_add(out, s);
        return;
    }
    str_addc(out, '"');
    for (const unsigned char *p = (const unsigned char *)s; *p; p++) {
        if (*p == '"' || *p == '\\')
            str_addf(out, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            str_addf(out, "\\x%02x", *p);
        else
            str_addc(out, (char)*p);
    }
    str_addc(out, '"');
}

/* A number that a reader takes for a real: 3 is written 3.0 in free trees, where types matter. */
static void put_real(struct str *out, double v, bool typed)
{
    char num[32];

    str_double(num, v);
    str_add(out, num);
    if (typed && !strpbrk(num, ".en"))
        str_add(out, ".0");
}

static void put_free(struct str *out, const struct cfg_node *n)
{
    switch (n->kind) {
    case CFG_NULL:
        str_add(out, "null");
        break;
    case CFG_BOOL:
        str_add(out, n->b ? "true" : "false");
        break;
    case CFG_INT:
        str_addf(out, "%" PRId64, n->i);
        break;
    case CFG_REAL:
        put_real(out, n->r, true);
        break;
    case CFG_STRING:
        put_text(out, n->s);
        break;
    case CFG_LIST:
    case CFG_MAP:
        str_addc(out, n->kind == CFG_LIST ? '[' : '{');
        for (int i = 0; i < n->n; i++) {
            str_add(out, i ? ", " : "");
            if (n->kind == CFG_MAP) {
                put_text(out, n->key[i]);
                str_add(out, ": ");
            }
            put_free(out, n->item[i]);
        }
        str_addc(out, n->kind == CFG_LIST ? ']' : '}');
        break;
    }
}

static void put_groups(struct str *out, const struct config *c)
{
    str_addc(out, '[');
    for (int i = 0; i < c->optimizer.n_groups; i++) {
        const struct cfg_group *g = &c->optimizer.groups[i];
        str_add(out, i ? ", {match: " : "{match: ");
        put_text(out, g->match);
        str_add(out, ", lr: ");
        put_real(out, g->lr, false);
        str_add(out, ", decay: ");
        put_real(out, g->decay, false);
        str_addf(out, ", freeze: %s}", g->freeze ? "true" : "false");
    }
    str_addc(out, ']');
}

static void put_best(struct str *out, const struct config *c)
{
    if (!c->train.best_mode || !*c->train.best_mode) {
        put_text(out, c->train.best_metric);
        return;
    }
    str_add(out, "{metric: ");
    put_text(out, c->train.best_metric);
    str_addf(out, ", mode: %s}", c->train.best_mode);
}

static void put_strings(struct str *out, char *const *list)
{
    str_addc(out, '[');
    for (int i = 0; list && list[i]; i++) {
        str_add(out, i ? ", " : "");
        put_text(out, list[i]);
    }
    str_addc(out, ']');
}

/* Absolute, so that the written file may lie anywhere. */
static void put_path(struct str *out, const char *path)
{
    char *real = realpath(path, NULL);

    put_text(out, real ? real : path);
    free(real);
}

void config_value_text(const struct config *c, const struct key_def *k, struct str *out)
{
    const void *m = member(c, k);

    if (!config_is_set(c, k) && !k->element) {
        str_add(out, "null");
        return;
    }
    switch (k->type) {
    case KEY_STRING:
    case KEY_ENUM:
        put_text(out, *(char *const *)m);
        break;
    case KEY_PATH:
        put_path(out, *(char *const *)m);
        break;
    case KEY_INT:
        str_addf(out, "%" PRId64, *(const int64_t *)m);
        break;
    case KEY_REAL:
        put_real(out, *(const double *)m, false);
        break;
    case KEY_BOOL:
        str_add(out, *(const bool *)m ? "true" : "false");
        break;
    case KEY_REALS:
        str_addc(out, '[');
        for (int i = 0; i < k->fixed; i++) {
            str_add(out, i ? ", " : "");
            put_real(out, ((const double *)m)[i], false);
        }
        str_addc(out, ']');
        break;
    case KEY_STRINGS:
        put_strings(out, *(char *const *const *)m);
        break;
    case KEY_FREE:
        put_free(out, *(struct cfg_node *const *)m);
        break;
    case KEY_GROUPS:
        put_groups(out, c);
        break;
    case KEY_BEST:
        put_best(out, c);
        break;
    }
}

/* The beta that was set by itself speaks for the list. */
static const char *origin_of(const struct config *c, const struct key_def *k)
{
    const char *o = config_origin(c, k);

    if (k->type == KEY_REALS)
        for (const struct key_def *e = config_keys; e->path; e++)
            if (e->element && config_is_set(c, e))
                return config_origin(c, e);
    return o;
}

void config_dump(const struct config *c, const char *script, struct str *out)
{
    char section[64] = "";

    for (const struct key_def *k = config_keys; k->path; k++) {
        const char *dot = strchr(k->path, '.');
        size_t n = dot ? (size_t)(dot - k->path) : 0, begin;

        if (k->element || (!config_is_set(c, k) && k->may_be_null))
            continue;
        if (dot && (strlen(section) != n || strncmp(section, k->path, n) != 0)) {
            snprintf(section, sizeof section, "%.*s", (int)n, k->path);
            str_addf(out, "%s:\n", section);
        }
        begin = out->len;
        str_addf(out, "%s%s: ", dot ? "  " : "", dot ? dot + 1 : k->path);
        if (script && k->offset == offsetof(struct config, model.script))
            put_text(out, script);
        else
            config_value_text(c, k, out);
        while (out->len - begin < 48 && !out->oom)
            str_addc(out, ' ');
        str_addf(out, "  # %s\n", origin_of(c, k));
    }
}

static void put_range(struct str *out, const struct key_def *k)
{
    char lo[32], hi[32];

    if (k->choices)
        str_add(out, k->choices);
    else if (k->type == KEY_INT || k->type == KEY_REAL || k->type == KEY_REALS)
        str_addf(out, "%s%s .. %s", k->above_min ? "above " : "", str_double(lo, k->min),
                 str_double(hi, k->max));
    if (k->unit)
        str_addf(out, " %s", k->unit);
}

void config_docs(struct str *out)
{
    static const char *const types[] = {"text",          "path",   "whole number", "number",
                                        "true or false", "one of", "numbers",      "texts",
                                        "map",           "groups", "metric"};

    str_add(out, "# Config keys\n\nMade from the table in engine/config/keys.c.\n\n| key | short | "
                 "type | range | default | live | what |\n|---|---|---|---|---|---|---|\n");
    for (const struct key_def *k = config_keys; k->path; k++) {
        struct str range = {0};

        put_range(&range, k);
        str_addf(out, "| `%s` | %s | %s | ", k->path, k->brief ? k->brief : "", types[k->type]);
        for (const char *p = str_c(&range); *p; p++)
            str_addf(out, *p == '|' ? "\\%c" : "%c", *p);
        str_addf(out, " | %s | %s | %s |\n",
                 k->dflt       ? k->dflt
                 : k->required ? "required"
                               : "",
                 k->live ? "yes" : "", k->help);
        str_release(&range);
    }
}
