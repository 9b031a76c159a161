/* gradient.c - reverse-mode differentiation: one walk from the last node to the first. */
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/graph/priv.h"

enum { OUTS = 3 };

struct walk {
    struct graph *g;
    int n;          /* nodes there were before */
    bool *leads;    /* does a way lead from a wanted node to this one? */
    int (*d)[OUTS]; /* gradient that has reached each output so far, or -1 */
};

static bool passes(const struct node *n)
{
    enum op_grad_kind k = op_table[n->op].grad_kind;
    return k != OP_GRAD_ZERO && (dtype_is_float(n->dtype) || n->op == OP_OUT);
}

static void mark_leads(struct walk *w, const int *wrt, int n_wrt)
{
    for (int i = 0; i < n_wrt; i++)
        w->leads[wrt[i]] = true;
    for (int id = 0; id < w->n; id++) {
        const struct node *n = graph_node(w->g, id);
        for (int i = 0; i < n->n_in && passes(n); i++)
            w->leads[id] = w->leads[id] || w->leads[n->in[i]];
    }
}

/* Contributions add up in the order of the walk, which is that of the nodes. */
static enum err_code reach(struct walk *w, int id, int k, int grad, struct err *e)
{
    int *at = &w->d[id][k];

    if (grad < 0)
        return ERR_OK;
    *at = *at < 0 ? grad : graph_binary(w->g, (enum op)EW_ADD, *at, grad, e);
    return *at < 0 ? e->code : ERR_OK;
}

/* A rule that has no answer for an input that is wanted is an error: no answer is not zero. */
static enum err_code hand_on(struct walk *w, const struct node *n, const int *d_in, struct err *e)
{
    enum err_code rc = ERR_OK;

    for (int i = 0; i < n->n_in && rc == ERR_OK; i++) {
        if (!w->leads[n->in[i]] || !dtype_is_float(graph_node(w->g, n->in[i])->dtype))
            continue;
        if (d_in[i] < 0)
            return err_set(e, ERR_SHAPE,
                           "%s%s%s%s%s has no gradient by its input %d, and a parameter lies "
                           "behind it",
                           n->where, *n->where ? ": " : "", n->path, *n->path ? ": " : "",
                           op_name(n->op), i + 1);
        rc = reach(w, n->in[i], 0, d_in[i], e);
    }
    return rc;
}

/* Is anything wanted behind the node? */
static bool leads_on(const struct walk *w, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (w->leads[n->in[i]])
            return true;
    return false;
}

static enum err_code visit(struct walk *w, int id, struct err *e)
{
    const struct node n = *graph_node(w->g, id);
    const struct op_def *def = &op_table[n.op];
    int d_in[GRAPH_IN];
    enum err_code rc;

    if (n.op == OP_OUT)
        return reach(w, n.in[0], (int)n.attr.k, w->d[id][0], e);
    if (!passes(&n) || !leads_on(w, &n))
        return ERR_OK;
    if (def->grad_kind == OP_GRAD_REFUSED)
        return err_set(e, ERR_SHAPE, "%s%s%s%s%s has no gradient, and a parameter lies behind it",
                       n.where, *n.where ? ": " : "", n.path, *n.path ? ": " : "", def->name);
    for (int i = 0; i < GRAPH_IN; i++)
        d_in[i] = -1;
    graph_at(w->g, n.path, n.where);
    rc = def->grad(w->g, id, w->d[id], d_in, e);
    if (rc != ERR_OK) /* the code is that of what failed inside, which may be memory */
        return err_prefix(e, "%s%s%s: gradient", n.where, *n.where ? ": " : "",
                          *n.path ? n.path : def->name);
    return hand_on(w, &n, d_in, e);
}

enum err_code graph_gradient(struct graph *g, const int *nodes, const int *seeds, int n,
                             const int *wrt, int n_wrt, int *grads, struct err *e)
{
    struct walk w = {.g = g, .n = graph_count(g)};
    const char *path = g->path, *where = g->where;
    enum err_code rc = ERR_OK;
    struct err unseen;

    e = e ? e : &unseen;
    w.leads = mem_array((size_t)w.n + 1, sizeof *w.leads);
    w.d = mem_array((size_t)w.n + 1, sizeof *w.d);
    if (!w.leads || !w.d)
        rc = err_set(e, ERR_NOMEM, "gradient: out of memory");
    for (int i = 0; rc == ERR_OK && i < w.n; i++)
        for (int k = 0; k < OUTS; k++)
            w.d[i][k] = -1;
    if (rc == ERR_OK)
        mark_leads(&w, wrt, n_wrt);
    for (int i = 0; rc == ERR_OK && i < n; i++) {
        if (!shape_equal(&graph_node(g, nodes[i])->shape, &graph_node(g, seeds[i])->shape))
            rc = err_set(e, ERR_INTERNAL, "gradient: a seed has another shape than its value");
        else if (nodes[i] < w.n && w.leads[nodes[i]])
            rc = reach(&w, nodes[i], 0, seeds[i], e);
    }
    for (int id = w.n - 1; rc == ERR_OK && id >= 0; id--)
        if (w.leads[id] && (w.d[id][0] >= 0 || w.d[id][1] >= 0 || w.d[id][2] >= 0))
            rc = visit(&w, id, e);
    for (int i = 0; i < n_wrt; i++)
        grads[i] = rc == ERR_OK ? w.d[wrt[i]][0] : -1;
    mem_free(w.leads);
    mem_free(w.d);
    g->path = path;
    g->where = where;
    return rc;
}
