/* graph_eval_work.h - private to graph_eval*.c. */
#ifndef GRAPH_EVAL_WORK_H
#define GRAPH_EVAL_WORK_H

#include "graph_eval.h"

/* One node under evaluation. */
struct work {
    const struct graph *g;
    const struct graph_eval *o;
    const struct node *n;
    double **v;    /* values of all nodes before it */
    double *out;   /* zeroed */
    int64_t count; /* elements of out */
};

static inline const struct shape *in_shape(const struct work *w, int i)
{
    return &graph_node(w->g, w->n->in[i])->shape;
}

static inline const double *in_value(const struct work *w, int i)
{
    return w->v[w->n->in[i]];
}

/* A shape around one axis: [outer][n][inner]. */
struct around {
    int64_t outer, n, inner;
};

struct around eval_around(const struct shape *s, int axis);
void eval_unravel(int64_t i, const struct shape *s, int64_t *at);
/* The element of a tensor of shape s that place `at` of a shape of that rank reads, by the numpy
 * rule. */
int64_t eval_stretched(const int64_t *at, int rank, const struct shape *s);
double eval_formula(enum ew op, double a, double b, double c);

void eval_reduce(struct work *w);
void eval_axis(struct work *w);
void eval_matmul(struct work *w);
void eval_xent_grad(struct work *w);
void eval_output(struct work *w, int64_t k); /* output k of norms, their gradients and xent */

#endif
