/* priv.h - private to engine/graph. */
#ifndef GRAPH_PRIV_H
#define GRAPH_PRIV_H

#include "engine/base/arena.h"
#include "engine/graph/graph.h"

struct graph {
    struct node *node;
    size_t cap;
    int n;
    int *leaf; /* ids of the named nodes */
    size_t leaf_cap;
    int n_leaves;
    const char **text; /* interned strings, a hash table of text_cap slots */
    size_t text_cap;
    int n_texts;
    const char *path, *where;
    struct arena mem;
};

/* The one copy of a text in this graph; NULL: no memory. */
const char *graph_intern(struct graph *g, const char *text);

/* infer.c: one a family of shape rules. */
op_infer_fn infer_leaf, infer_ew, infer_cast, infer_dropout, infer_reshape, infer_permute,
    infer_broadcast, infer_slice, infer_pad, infer_concat, infer_flip, infer_reduce, infer_argmax,
    infer_topk, infer_cumsum, infer_matmul, infer_take, infer_take_grad, infer_take_along,
    infer_scatter_add, infer_softmax, infer_logsumexp, infer_same, infer_layer_norm,
    infer_layer_norm_grad, infer_rms_norm, infer_rms_norm_grad, infer_xent, infer_xent_grad,
    infer_out;

/* grad_ew.c, grad_ops.c: gradient rules. */
op_grad_fn grad_ew, grad_cast, grad_dropout, grad_reshape, grad_permute, grad_broadcast, grad_slice,
    grad_pad, grad_concat, grad_flip, grad_sum, grad_extreme, grad_prod, grad_cumsum, grad_matmul,
    grad_take, grad_take_grad, grad_take_along, grad_scatter_add, grad_softmax, grad_log_softmax,
    grad_logsumexp, grad_layer_norm, grad_rms_norm, grad_xent;

/* A small language for rules: ids, -1 after a failure passes through. */
int g_un(struct graph *g, enum op op, int x, struct err *e);
int g_bin(struct graph *g, enum op op, int a, int b, struct err *e);
int g_scale(struct graph *g, int x, double v, struct err *e);

#endif
