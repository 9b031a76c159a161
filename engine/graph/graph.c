/* graph.c - nodes, their texts, and adding one. */
#include "engine/graph/graph.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/hash.h"
#include "engine/graph/priv.h"

struct graph *graph_new(void)
{
    struct graph *g = mem_zalloc(sizeof *g);

    if (!g)
        return NULL;
    arena_init(&g->mem, 0);
    g->path = g->where = "";
    return g;
}

void graph_free(struct graph *g)
{
    if (!g)
        return;
    mem_free(g->node);
    mem_free(g->leaf);
    mem_free(g->text);
    arena_release(&g->mem);
    mem_free(g);
}

int graph_count(const struct graph *g)
{
    return g->n;
}

const struct node *graph_node(const struct graph *g, int id)
{
    return &g->node[id];
}

/* ---- texts ---- */

static bool grow_texts(struct graph *g)
{
    size_t cap = g->text_cap ? g->text_cap * 2 : 64;
    const char **t = mem_array(cap, sizeof *t);

    if (!t)
        return false;
    for (size_t i = 0; i < g->text_cap; i++) {
        size_t at;
        if (!g->text[i])
            continue;
        at = hash_fnv64(FNV64_INIT, g->text[i], strlen(g->text[i])) % cap;
        while (t[at])
            at = (at + 1) % cap;
        t[at] = g->text[i];
    }
    mem_free(g->text);
    g->text = t;
    g->text_cap = cap;
    return true;
}

const char *graph_intern(struct graph *g, const char *text)
{
    size_t at;

    if (!text || !*text)
        return "";
    if ((size_t)g->n_texts * 2 >= g->text_cap && !grow_texts(g))
        return NULL;
    at = hash_fnv64(FNV64_INIT, text, strlen(text)) % g->text_cap;
    while (g->text[at] && strcmp(g->text[at], text) != 0)
        at = (at + 1) % g->text_cap;
    if (!g->text[at]) {
        g->text[at] = arena_strdup(&g->mem, text);
        g->n_texts += g->text[at] != NULL;
    }
    return g->text[at];
}

void graph_at(struct graph *g, const char *path, const char *where)
{
    const char *p = graph_intern(g, path), *w = graph_intern(g, where);

    g->path = p ? p : "";
    g->where = w ? w : "";
}

/* ---- nodes ---- */

static int append(struct graph *g, const struct node *n, struct err *e)
{
    if (g->n >= GRAPH_MAX_NODES) {
        err_set(e, ERR_SHAPE, "the graph has more than %d operations", GRAPH_MAX_NODES);
        return -1;
    }
    if (mem_grow((void **)&g->node, &g->cap, (size_t)g->n, sizeof *g->node) < 0 ||
        mem_grow((void **)&g->leaf, &g->leaf_cap, (size_t)g->n_leaves, sizeof *g->leaf) < 0) {
        err_set(e, ERR_NOMEM, "graph: out of memory");
        return -1;
    }
    g->node[g->n] = *n;
    if (*n->name)
        g->leaf[g->n_leaves++] = g->n;
    return g->n++;
}

static bool ids_are_good(const struct graph *g, enum op op, const int *in, int n_in)
{
    if (op >= OP_COUNT || n_in < op_table[op].least || n_in > op_table[op].most)
        return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] < 0 || in[i] >= g->n)
            return false;
    return true;
}

static int add_named(struct graph *g, enum op op, const char *name, const int *in, int n_in,
                     const struct op_attr *attr, struct err *e)
{
    struct node n;

    memset(&n, 0, sizeof n);
    if (!ids_are_good(g, op, in, n_in)) {
        err_set(e, ERR_INTERNAL, "%s: bad inputs", op < OP_COUNT ? op_name(op) : "?");
        return -1;
    }
    n.op = op;
    n.n_in = n_in;
    for (int i = 0; i < n_in; i++)
        n.in[i] = in[i];
    if (attr)
        n.attr = *attr;
    n.name = graph_intern(g, name);
    n.path = g->path;
    n.where = g->where;
    if (!n.name) {
        err_set(e, ERR_NOMEM, "graph: out of memory");
        return -1;
    }
    if (n.attr.shape.rank < 0 || n.attr.shape.rank > SHAPE_RANK) {
        err_set(e, ERR_SHAPE, "%s: %d dimensions, at most %d", op_name(op), n.attr.shape.rank,
                SHAPE_RANK);
        return -1;
    }
    /* unused sizes are compared and hashed: what the caller left there must not count */
    for (int d = n.attr.shape.rank; d < SHAPE_RANK; d++)
        n.attr.shape.dim[d] = 0;
    if (op_table[op].infer(g, op, in, n_in, &n.attr, &n.shape, &n.dtype, e) != ERR_OK)
        return -1;
    if (shape_count(&n.shape) < 0) {
        char text[128];
        err_set(e, ERR_SHAPE, "%s: %s has more than 2^40 elements", op_name(op),
                shape_text(text, sizeof text, &n.shape));
        return -1;
    }
    return append(g, &n, e);
}

int graph_add(struct graph *g, enum op op, const int *in, int n_in, const struct op_attr *attr,
              struct err *e)
{
    return add_named(g, op, "", in, n_in, attr, e);
}

/* A named leaf is one node however often it is asked for. */
static int named_leaf(struct graph *g, enum op op, const char *name, const struct shape *s,
                      enum dtype t, struct err *e)
{
    struct op_attr attr;

    for (int i = 0; i < g->n_leaves; i++) {
        const struct node *n = &g->node[g->leaf[i]];
        char a[128], b[128];

        if (n->op != op || strcmp(n->name, name) != 0)
            continue;
        if (shape_equal(&n->shape, s) && n->dtype == t)
            return g->leaf[i];
        err_set(e, ERR_SHAPE, "%s %s: is %s %s already, not %s %s", op_name(op), name,
                dtype_name(n->dtype), shape_text(a, sizeof a, &n->shape), dtype_name(t),
                shape_text(b, sizeof b, s));
        return -1;
    }
    memset(&attr, 0, sizeof attr);
    attr.shape = *s;
    attr.dtype = t;
    return add_named(g, op, name, NULL, 0, &attr, e);
}

int graph_param(struct graph *g, const char *name, const struct shape *s, struct err *e)
{
    return named_leaf(g, OP_PARAM, name, s, DT_F32, e);
}

int graph_input(struct graph *g, const char *name, const struct shape *s, enum dtype t,
                struct err *e)
{
    return named_leaf(g, OP_INPUT, name, s, t, e);
}

struct graph *graph_clone(const struct graph *g)
{
    struct graph *c = graph_new();

    if (!c)
        return NULL;
    for (int i = 0; i < g->n; i++) {
        struct node n = g->node[i];

        n.name = graph_intern(c, n.name);
        n.path = graph_intern(c, n.path);
        n.where = graph_intern(c, n.where);
        if (!n.name || !n.path || !n.where || append(c, &n, NULL) < 0) {
            graph_free(c);
            return NULL;
        }
    }
    return c;
}
