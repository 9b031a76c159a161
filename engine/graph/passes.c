/* passes.c - dead code, common subexpressions, constants, identities: the graph is built anew, node
 * by node.
 *
 * Bits do not change, but for these: x + 0, x - 0 and a sum of one element keep a
 * negative zero, x^2 becomes x * x (which
 * is rounded once, where a backend's pow may be an ulp off). */
#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/hash.h"
#include "engine/graph/priv.h"

enum { MOST_ROUNDS = 16 };

struct pass {
    struct graph *to; /* being built; shares the texts and the arena of the graph it replaces */
    int *table;       /* hash table of nodes of `to`: id + 1, 0 for empty */
    size_t cap;       /* power of two */
};

/* ---- common subexpressions ---- */

static uint64_t node_hash(const struct node *n)
{
    uint64_t h = hash_fnv64(FNV64_INIT, &n->op, sizeof n->op);

    h = hash_fnv64(h, n->in, sizeof n->in[0] * (size_t)n->n_in);
    h = hash_fnv64(h, n->shape.dim, sizeof n->shape.dim);
    h = hash_fnv64(h, &n->attr.value, sizeof n->attr.value);
    h = hash_fnv64(h, &n->attr.stream, sizeof n->attr.stream);
    h = hash_fnv64(h, &n->attr.k, sizeof n->attr.k);
    h = hash_fnv64(h, &n->attr.axis, sizeof n->attr.axis);
    h = hash_fnv64(h, &n->attr.axes, sizeof n->attr.axes);
    h = hash_fnv64(h, n->attr.perm, sizeof n->attr.perm);
    h = hash_fnv64(h, n->attr.start,
                   sizeof n->attr.start);           /* slices of one tensor differ in this */
    return hash_fnv64(h, &n->name, sizeof n->name); /* interned: one text, one address */
}

static bool attr_equal(const struct op_attr *a, const struct op_attr *b)
{
    return shape_equal(&a->shape, &b->shape) && a->dtype == b->dtype && a->axis == b->axis &&
           a->axes == b->axes && a->keep == b->keep && a->ta == b->ta && a->tb == b->tb &&
           a->reverse == b->reverse && a->exclusive == b->exclusive &&
           a->has_ignore == b->has_ignore && a->per_sample == b->per_sample && a->k == b->k &&
           memcmp(&a->value, &b->value, sizeof a->value) == 0 &&
           memcmp(&a->eps, &b->eps, sizeof a->eps) == 0 && a->slot == b->slot &&
           a->stream == b->stream && memcmp(a->perm, b->perm, sizeof a->perm) == 0 &&
           memcmp(a->start, b->start, sizeof a->start) == 0 &&
           memcmp(a->stop, b->stop, sizeof a->stop) == 0 &&
           memcmp(a->step, b->step, sizeof a->step) == 0;
}

static bool node_equal(const struct node *a, const struct node *b)
{
    if (a->op != b->op || a->dtype != b->dtype || a->n_in != b->n_in || a->name != b->name)
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i])
            return false;
    return shape_equal(&a->shape, &b->shape) && attr_equal(&a->attr, &b->attr);
}

static bool commutes(enum op op)
{
    switch ((int)op) {
    case EW_ADD:
    case EW_MUL:
    case EW_EQ:
    case EW_NE:
    case EW_AND:
    case EW_OR:
        return true;
    default:
        return false;
    }
}

/* Adds a node or finds the equal one. */
static int intern_node(struct pass *p, struct node *n, struct err *e)
{
    size_t at;

    if (commutes(n->op) && n->in[0] > n->in[1]) {
        int t = n->in[0];
        n->in[0] = n->in[1];
        n->in[1] = t;
    }
    at = node_hash(n) & (p->cap - 1);
    while (p->table[at]) {
        if (node_equal(&p->to->node[p->table[at] - 1], n))
            return p->table[at] - 1;
        at = (at + 1) & (p->cap - 1);
    }
    if (mem_grow((void **)&p->to->node, &p->to->cap, (size_t)p->to->n, sizeof *n) < 0) {
        err_set(e, ERR_NOMEM, "graph: out of memory");
        return -1;
    }
    p->to->node[p->to->n] = *n;
    p->table[at] = p->to->n + 1;
    return p->to->n++;
}

/* ---- constants ---- */

static const struct node *at(const struct pass *p, int id)
{
    return &p->to->node[id];
}

static bool is_const(const struct pass *p, int id, double v)
{
    const struct node *n = at(p, id);
    return n->op == OP_CONST && n->attr.value == v;
}

static int put_const(struct pass *p, const struct node *like, double v, struct err *e)
{
    struct node n = *like;

    n.op = OP_CONST;
    n.n_in = 0;
    memset(n.in, 0, sizeof n.in);
    memset(&n.attr, 0, sizeof n.attr);
    n.attr.shape = like->shape;
    n.attr.dtype = like->dtype;
    n.attr.value = v;
    return intern_node(p, &n, e);
}

/* Only what every backend rounds alike: the basic operations in f32. */
static bool fold_f32(enum op op, float a, float b, double *v)
{
    switch ((int)op) {
    case EW_NEG:
        *v = (double)-a;
        return true;
    case EW_ABS:
        *v = (double)fabsf(a);
        return true;
    case EW_SQRT:
        *v = (double)sqrtf(a);
        return true;
    case EW_RECIP:
        *v = (double)(1.0f / a);
        return true;
    case EW_RELU:
        *v = (double)(a > 0 ? a : isnan(a) ? a : 0.0f);
        return true;
    case EW_FLOOR:
        *v = (double)floorf(a);
        return true;
    case EW_SIGN:
        *v = isnan(a) ? (double)a : (double)((a > 0) - (a < 0));
        return true;
    case EW_ADD:
        *v = (double)(a + b);
        return true;
    case EW_SUB:
        *v = (double)(a - b);
        return true;
    case EW_MUL:
        *v = (double)(a * b);
        return true;
    case EW_DIV:
        *v = (double)(a / b);
        return true;
    case EW_LT:
        *v = a < b;
        return true;
    case EW_LE:
        *v = a <= b;
        return true;
    case EW_EQ:
        *v = a == b;
        return true;
    case EW_NE:
        *v = a != b;
        return true;
    default:
        return false;
    }
}

/* All inputs constant: the constant this node is, or false. */
static bool fold_const(const struct pass *p, const struct node *n, double *v)
{
    const struct node *a = n->n_in > 0 ? at(p, n->in[0]) : NULL,
                      *b = n->n_in > 1 ? at(p, n->in[1]) : NULL;
    int64_t count;
    double x;

    if (!a)
        return false;
    if (n->op == (enum op)EW_SELECT && a->op == OP_CONST) {
        const struct node *c = at(p, n->in[a->attr.value != 0 ? 1 : 2]);
        *v = c->attr.value;
        return c->op == OP_CONST;
    }
    for (int i = 0; i < n->n_in; i++)
        if (at(p, n->in[i])->op != OP_CONST)
            return false;
    switch ((int)n->op) {
    case OP_RESHAPE:
    case OP_PERMUTE:
    case OP_BROADCAST:
    case OP_SLICE:
    case OP_FLIP:
    case OP_STOP_GRADIENT:
        *v = a->attr.value;
        return true;
    case OP_CAST:
        x = a->dtype == DT_F32 ? (double)(float)a->attr.value : a->attr.value;
        if (n->dtype == DT_I32 && !(fabs(x) < 2147483648.0))
            return false;
        *v = n->dtype == DT_BOOL ? x != 0 : n->dtype == DT_I32 ? trunc(x) : (double)(float)x;
        return true;
    case OP_SUM: /* of whole numbers below 2^24 the sum is exact in any order */
        count = shape_count(&a->shape);
        *v = a->attr.value *
                 (double)(shape_count(&n->shape) > 0 ? count / shape_count(&n->shape) : 0) +
             0.0; /* a sum of -0 is 0 */
        return a->attr.value == floor(a->attr.value) && fabs(*v) < 16777216.0;
    default:
        if (n->op >= (enum op)EW_COUNT || a->dtype != DT_F32)
            return false;
        return fold_f32(n->op, (float)a->attr.value, b ? (float)b->attr.value : 0, v);
    }
}

/* ---- identities: the id that stands for n, -1 for none, n itself may be rewritten ---- */

static bool identity_perm(const struct node *n)
{
    for (int d = 0; d < n->shape.rank; d++)
        if (n->attr.perm[d] != d)
            return false;
    return true;
}

static int simplify_view(const struct pass *p, struct node *n)
{
    const struct node *a = at(p, n->in[0]);

    switch ((int)n->op) {
    case OP_RESHAPE:
        if (a->op == OP_RESHAPE) {
            n->in[0] = a->in[0];
            a = at(p, n->in[0]);
        }
        return shape_equal(&a->shape, &n->shape) ? n->in[0] : -1;
    case OP_BROADCAST:
        if (a->op == OP_BROADCAST)
            n->in[0] = a->in[0];
        return shape_equal(&at(p, n->in[0])->shape, &n->shape) ? n->in[0] : -1;
    case OP_PERMUTE:
        if (a->op == OP_PERMUTE) {
            for (int d = 0; d < n->shape.rank; d++)
                n->attr.perm[d] = a->attr.perm[n->attr.perm[d]];
            n->in[0] = a->in[0];
        }
        return identity_perm(n) ? n->in[0] : -1;
    case OP_SLICE:
    case OP_PAD:
        return shape_equal(&a->shape, &n->shape) ? n->in[0] : -1;
    case OP_FLIP:
        return n->attr.axes == 0 ? n->in[0] : -1;
    default:
        return -1;
    }
}

static int simplify_arithmetic(struct pass *p, struct node *n, struct err *e)
{
    int a = n->in[0], b = n->n_in > 1 ? n->in[1] : -1;

    switch ((int)n->op) {
    case EW_ADD:
        return is_const(p, b, 0) ? a : is_const(p, a, 0) ? b : -1;
    case EW_SUB:
        return is_const(p, b, 0) ? a : -1;
    case EW_MUL:
        return is_const(p, b, 1) ? a : is_const(p, a, 1) ? b : -1;
    case EW_DIV:
        return is_const(p, b, 1) ? a : -1;
    case EW_POW:
        if (is_const(p, b, 1))
            return a;
        if (is_const(p, b, 2)) {
            n->op = (enum op)EW_MUL;
            n->in[1] = a;
            return intern_node(p, n, e);
        }
        return -1;
    case EW_NEG:
        return at(p, a)->op == (enum op)EW_NEG ? at(p, a)->in[0] : -1;
    case EW_SELECT:
        if (at(p, a)->op == OP_CONST)
            return n->in[at(p, a)->attr.value != 0 ? 1 : 2];
        return n->in[1] == n->in[2] ? n->in[1] : -1;
    default:
        return -1;
    }
}

static int simplify(struct pass *p, struct node *n, struct err *e)
{
    double v;
    int id;

    if (n->n_in > 0 && fold_const(p, n, &v))
        return put_const(p, n, v, e);
    if (n->op == OP_STOP_GRADIENT)
        return n->in[0]; /* its work is done once the gradients are there */
    if (n->op == OP_CAST && at(p, n->in[0])->dtype == n->dtype)
        return n->in[0];
    if (n->op == OP_SUM && shape_count(&n->shape) == shape_count(&at(p, n->in[0])->shape)) {
        /* over dimensions of 1 */
        n->op = OP_RESHAPE;
        memset(&n->attr, 0, sizeof n->attr);
        n->attr.shape = n->shape;
    }
    id = n->n_in > 0 ? simplify_view(p, n) : -1;
    if (id < 0 && n->op < (enum op)EW_COUNT)
        id = simplify_arithmetic(p, n, e);
    return id >= 0 ? id : intern_node(p, n, e);
}

/* ---- the rebuild ---- */

static void mark(const struct graph *g, const int *roots, int n_roots, bool *live)
{
    for (int i = 0; i < n_roots; i++)
        if (roots[i] >= 0)
            live[roots[i]] = true;
    for (int id = g->n - 1; id >= 0; id--)
        for (int k = 0; live[id] && k < g->node[id].n_in; k++)
            live[g->node[id].in[k]] = true;
}

/* *changed: some node was rewritten, joined or folded, so that others may be dead or foldable now.
 */
static enum err_code rebuild(struct graph *g, int *roots, int n_roots, bool *changed, struct err *e)
{
    struct graph made = *g;
    struct pass p = {.to = &made, .cap = 64};
    bool *live = mem_array((size_t)g->n + 1, sizeof *live);
    int *map = mem_array((size_t)g->n + 1, sizeof *map);
    enum err_code rc = ERR_OK;

    while (p.cap < (size_t)g->n * 4)
        p.cap *= 2;
    p.table = mem_array(p.cap, sizeof *p.table);
    made.node = NULL;
    made.cap = 0;
    made.n = 0;
    if (!live || !map || !p.table)
        rc = err_set(e, ERR_NOMEM, "graph: out of memory");
    else
        mark(g, roots, n_roots, live);
    *changed = false;
    for (int id = 0; rc == ERR_OK && id < g->n; id++) {
        struct node n = g->node[id], was;
        int fresh = made.n;

        if (!live[id])
            continue;
        for (int k = 0; k < n.n_in; k++)
            n.in[k] = map[n.in[k]];
        was = n;
        map[id] = simplify(&p, &n, e);
        if (map[id] < 0)
            rc = ERR_NOMEM;
        else
            *changed = *changed || map[id] != fresh || !node_equal(&made.node[fresh], &was);
    }
    if (rc == ERR_OK) {
        for (int i = 0; i < n_roots; i++)
            roots[i] = roots[i] < 0 ? -1 : map[roots[i]];
        mem_free(g->node);
        g->node = made.node;
        g->cap = made.cap;
        g->n = made.n;
        /* those that are left: fewer than there were, so there is room */
        g->n_leaves = 0;
        for (int id = 0; id < g->n; id++)
            if (*g->node[id].name)
                g->leaf[g->n_leaves++] = id;
    } else {
        mem_free(made.node);
    }
    mem_free(live);
    mem_free(map);
    mem_free(p.table);
    return rc;
}

enum err_code graph_optimize(struct graph *g, int *roots, int n_roots, struct err *e)
{
    enum err_code rc = ERR_OK;
    bool changed = true;

    /* what one round makes dead or equal the next one removes; it settles in two or three */
    for (int round = 0; round < MOST_ROUNDS && changed && rc == ERR_OK; round++)
        rc = rebuild(g, roots, n_roots, &changed, e);
    return rc;
}
