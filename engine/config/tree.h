/* tree.h - private to engine/config: YAML as a tree with places. */
#ifndef CONFIG_TREE_H
#define CONFIG_TREE_H

#include "engine/base/arena.h"
#include "engine/config/config.h"

enum {
    TREE_DEPTH = 64,
    TREE_NODES = 100000,
    TREE_KEYS = 4096,
    TREE_FILE_MAX = 4 << 20,
    TREE_ERRORS = 100
};

enum tree_kind { TREE_SCALAR, TREE_LIST, TREE_MAP };

struct tree {
    enum tree_kind kind;
    const char *file; /* as shown; "command line" for overrides */
    int line, column; /* from 1; 0 on the command line */
    const char *dir;  /* folder that paths in this value are relative to */
    int size, height; /* values in it and how deep it nests, what aliases stand for counted */
    const char *text; /* scalar */
    size_t len;
    bool plain; /* scalar without quotes */
    int n;
    size_t cap;
    struct tree **item;
    struct tree **key; /* of a map: scalars */
};

struct errors {
    struct err_list *list;
    size_t cap;
    struct place {
        int line, column, order;
    } * place;
    size_t place_cap;
};

/* Adds `file:line:column: path: message` (path may be ""). */
void errors_add(struct errors *e, const struct tree *at, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void errors_sort(struct errors *e);

/* Parses text. NULL after an error was added (or for an empty document: then `empty` is an error
 * too). */
struct tree *tree_parse(struct arena *a, const char *text, size_t len, const char *file,
                        const char *dir, struct errors *e);
struct tree *tree_new(struct arena *a, enum tree_kind kind, const struct tree *place);
bool tree_add(struct tree *t, struct arena *a, struct tree *key, struct tree *item);
const struct tree *tree_get(const struct tree *map, const char *key); /* NULL: not there */
bool tree_is(const struct tree *t, const char *text); /* a plain scalar of this text */
void tree_place(const struct tree *t, char *buf,
                size_t cap); /* "file:line:column" or "command line" */

/* value.c: one typed value into the struct. False after an error was added. */
struct loading;
bool value_set(struct loading *l, const struct key_def *k, const struct tree *t);
struct cfg_node *value_free_tree(struct loading *l, const struct tree *t, const char *path,
                                 int depth);

struct value { /* of a key, by its index in the table */
    bool set;
    const char *origin;
    const struct tree *tree;
};

struct config_priv {
    struct arena mem;
    struct value *value; /* [keys] */
    struct str notes;
};

struct loading {
    struct config *c;
    struct errors e;
    int nodes; /* of free trees made so far */
};

int key_count(void);
int key_index(const struct key_def *k);

/* load.c */
struct config *config_load_text(const char *text, size_t len, const char *file, const char *dir,
                                char *const *words, int n_words, struct err_list *errs);
/* check.c */
void config_check(struct loading *l);

#endif
