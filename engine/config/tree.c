/* tree.c - libyaml's events as a tree, with duplicate keys, merges and bombs refused. */
#include "engine/config/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "engine/base/alloc.h"

/* ---- errors with places ---- */

void tree_place(const struct tree *t, char *buf, size_t cap)
{
    char shown[512];

    str_visible(shown, sizeof shown, t->file);
    if (t->line > 0)
        snprintf(buf, cap, "%s:%d:%d", shown, t->line, t->column);
    else
        snprintf(buf, cap, "%s", shown);
}

void errors_add(struct errors *e, const struct tree *at, const char *path, const char *fmt, ...)
{
    char msg[1200], place[600], shown[200];
    va_list ap;
    struct err *list = e->list->err;
    size_t n = (size_t)e->list->n;

    if (e->list->n >= TREE_ERRORS || mem_grow((void **)&list, &e->cap, n, sizeof *list) < 0)
        return;
    e->list->err = list;
    if (mem_grow((void **)&e->place, &e->place_cap, n, sizeof *e->place) < 0)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    tree_place(at, place, sizeof place);
    str_visible(shown, sizeof shown, path);
    err_set(&list[n], ERR_CONFIG, "%s: %s%s%s", place, shown, *shown ? ": " : "", msg);
    e->place[n] = (struct place){at->line, at->column, (int)n};
    e->list->n++;
}

/* In the order of the file; a stable insertion, for there are at most a hundred. */
void errors_sort(struct errors *e)
{
    for (int i = 1; i < e->list->n; i++)
        for (int k = i; k > 0; k--) {
            struct place *a = &e->place[k - 1], *b = &e->place[k], t;
            struct err moved;
            /* the command line (line 0) stands last */
            int la = a->line ? a->line : 1 << 30, lb = b->line ? b->line : 1 << 30;

            if (la < lb || (la == lb && a->column <= b->column))
                break;
            t = *a;
            *a = *b;
            *b = t;
            moved = e->list->err[k - 1];
            e->list->err[k - 1] = e->list->err[k];
            e->list->err[k] = moved;
        }
    mem_free(e->place);
    e->place = NULL;
}

void err_list_release(struct err_list *l)
{
    mem_free(l->err);
    *l = (struct err_list){0};
}

/* ---- trees ---- */

struct tree *tree_new(struct arena *a, enum tree_kind kind, const struct tree *place)
{
    struct tree *t = arena_alloc(a, sizeof *t);

    if (!t)
        return NULL;
    t->kind = kind;
    t->file = place->file;
    t->line = place->line;
    t->column = place->column;
    t->dir = place->dir;
    t->text = "";
    return t;
}

bool tree_add(struct tree *t, struct arena *a, struct tree *key, struct tree *item)
{
    if ((size_t)t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 8;
        struct tree **items = arena_array(a, cap, sizeof(struct tree *)),
                    **keys = arena_array(a, cap, sizeof(struct tree *));

        if (!items || !keys)
            return false;
        if (t->n > 0) {
            memcpy(items, t->item, (size_t)t->n * sizeof(struct tree *));
            memcpy(keys, t->key, (size_t)t->n * sizeof(struct tree *));
        }
        t->item = items;
        t->key = keys;
        t->cap = cap;
    }
    t->key[t->n] = key;
    t->item[t->n++] = item;
    return true;
}

const struct tree *tree_get(const struct tree *map, const char *key)
{
    for (int i = 0; map->kind == TREE_MAP && i < map->n; i++)
        if (strcmp(map->key[i]->text, key) == 0)
            return map->item[i];
    return NULL;
}

bool tree_is(const struct tree *t, const char *text)
{
    return t->kind == TREE_SCALAR && t->plain && strcmp(t->text, text) == 0;
}

/* ---- parsing ---- */

struct anchor {
    const char *name;
    struct tree *t;
};

struct parser {
    yaml_parser_t y;
    struct arena *mem;
    struct errors *e;
    struct tree here; /* file and dir; the place of the event */
    struct anchor anchor[256];
    int n_anchors, nodes;
    bool failed;
};

static struct tree *fail(struct parser *p, const char *msg)
{
    if (!p->failed)
        errors_add(p->e, &p->here, "", "%s", msg);
    p->failed = true;
    return NULL;
}

static bool next(struct parser *p, yaml_event_t *ev)
{
    if (p->failed)
        return false;
    if (!yaml_parser_parse(&p->y, ev)) {
        char msg[300];
        p->here.line = (int)p->y.problem_mark.line + 1;
        p->here.column = (int)p->y.problem_mark.column + 1;
        snprintf(msg, sizeof msg, "YAML: %s%s%s", p->y.problem ? p->y.problem : "cannot be read",
                 p->y.context ? ", " : "", p->y.context ? p->y.context : "");
        fail(p, msg);
        return false;
    }
    p->here.line = (int)ev->start_mark.line + 1;
    p->here.column = (int)ev->start_mark.column + 1;
    return true;
}

static void name_anchor(struct parser *p, const yaml_char_t *anchor, struct tree *t)
{
    if (!anchor || p->failed)
        return;
    if (p->n_anchors == (int)(sizeof p->anchor / sizeof *p->anchor)) {
        fail(p, "more than 256 anchors");
        return;
    }
    p->anchor[p->n_anchors++] = (struct anchor){arena_strdup(p->mem, (const char *)anchor), t};
}

static struct tree *find_anchor(struct parser *p, const yaml_char_t *name)
{
    for (int i = p->n_anchors - 1; i >= 0; i--)
        if (p->anchor[i].name && strcmp(p->anchor[i].name, (const char *)name) == 0)
            return p->anchor[i].t ? p->anchor[i].t : fail(p, "an alias inside what it names");
    return fail(p, "an alias without its anchor");
}

static struct tree *parse_node(struct parser *p, yaml_event_t *ev, int depth);

static struct tree *parse_scalar(struct parser *p, const yaml_event_t *ev)
{
    struct tree *t = tree_new(p->mem, TREE_SCALAR, &p->here);

    if (!t || !(t->text = arena_strndup(p->mem, (const char *)ev->data.scalar.value,
                                        ev->data.scalar.length)))
        return fail(p, "out of memory");
    t->len = ev->data.scalar.length;
    t->plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (strlen(t->text) != t->len)
        return fail(p, "a text holds a zero byte");
    name_anchor(p, ev->data.scalar.anchor, t);
    return t;
}

static void check_key(struct parser *p, const struct tree *map, const struct tree *key)
{
    if (key->kind != TREE_SCALAR) {
        errors_add(p->e, key, "", "a key must be a word");
        p->failed = true;
        return;
    }
    if (strcmp(key->text, "<<") == 0) {
        errors_add(p->e, key, "", "merge keys (<<) are not taken; write the keys, or use extends");
        return;
    }
    for (int i = 0; i < map->n; i++)
        if (strcmp(map->key[i]->text, key->text) == 0) {
            errors_add(p->e, key, key->text, "twice in one map; first at line %d",
                       map->key[i]->line);
            return;
        }
}

static struct tree *parse_collection(struct parser *p, yaml_event_t *start, int depth)
{
    bool map = start->type == YAML_MAPPING_START_EVENT;
    struct tree *t = tree_new(p->mem, map ? TREE_MAP : TREE_LIST, &p->here), *key = NULL;
    const yaml_char_t *anchor =
        map ? start->data.mapping_start.anchor : start->data.sequence_start.anchor;
    int slot = p->n_anchors;
    yaml_event_t ev;

    if (!t)
        return fail(p, "out of memory");
    if (depth > TREE_DEPTH)
        return fail(p, "nested more than 64 deep");
    name_anchor(p, anchor, NULL); /* filled when it is whole: so an alias to itself is seen */
    while (next(p, &ev)) {
        struct tree *child;

        if (ev.type == YAML_MAPPING_END_EVENT || ev.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&ev);
            if (anchor && slot < p->n_anchors)
                p->anchor[slot].t = t;
            return t;
        }
        child = parse_node(p, &ev, depth + 1);
        yaml_event_delete(&ev);
        if (!child)
            return NULL;
        /* keys are compared with each other: the work must stay bounded */
        if (map && !key && t->n >= TREE_KEYS)
            return fail(p, "a map of more than 4096 keys");
        if (map && !key) {
            key = child;
            check_key(p, t, key);
            continue;
        }
        if (!tree_add(t, p->mem, key, child))
            return fail(p, "out of memory");
        key = NULL;
    }
    return NULL;
}

static struct tree *parse_node(struct parser *p, yaml_event_t *ev, int depth)
{
    if (++p->nodes > TREE_NODES)
        return fail(p, "more than 100000 values");
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        return parse_scalar(p, ev);
    case YAML_ALIAS_EVENT:
        return find_anchor(p, ev->data.alias.anchor);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return parse_collection(p, ev, depth);
    default:
        return fail(p, "YAML that is no value");
    }
}

static struct tree *parse_stream(struct parser *p)
{
    struct tree *t = NULL;
    yaml_event_t ev;
    int documents = 0;

    while (next(p, &ev)) {
        yaml_event_type_t type = ev.type;

        if (type == YAML_DOCUMENT_START_EVENT && ++documents > 1)
            fail(p, "a second document; one experiment a file");
        else if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT &&
                 type != YAML_DOCUMENT_END_EVENT && type != YAML_STREAM_END_EVENT)
            t = parse_node(p, &ev, 0);
        yaml_event_delete(&ev);
        if (type == YAML_STREAM_END_EVENT)
            break;
    }
    return p->failed ? NULL : t;
}

struct tree *tree_parse(struct arena *a, const char *text, size_t len, const char *file,
                        const char *dir, struct errors *e)
{
    struct parser *p = mem_zalloc(sizeof *p);
    struct tree *t = NULL;

    if (!p || !yaml_parser_initialize(&p->y)) {
        mem_free(p);
        errors_add(e, &(struct tree){.file = file}, "", "out of memory");
        return NULL;
    }
    p->mem = a;
    p->e = e;
    p->here = (struct tree){.file = file, .line = 1, .column = 1, .dir = dir};
    yaml_parser_set_encoding(&p->y, YAML_UTF8_ENCODING);
    /* with the encoding given, libyaml takes a byte order mark for text */
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    yaml_parser_set_input_string(&p->y, (const unsigned char *)text, len);
    t = parse_stream(p);
    if (!t && !p->failed)
        fail(p, "is empty");
    yaml_parser_delete(&p->y);
    mem_free(p);
    return t;
}
