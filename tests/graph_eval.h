/* graph_eval.h - the values of all nodes of a graph in f64, a plain loop an op: the judge of
 * gradients and passes. Every op has its formula here, from the contracts of graph, ew.h and
 * kernels.h alone. */
#ifndef GRAPH_EVAL_H
#define GRAPH_EVAL_H

#include "engine/graph/graph.h"

/* Fills the elements of a param, buffer, input or hyper node. */
typedef void graph_leaf_fn(void *arg, const struct node *n, double *out);

struct graph_eval {
    graph_leaf_fn *leaf;
    void *arg;
    uint64_t seed;
    uint32_t step;
    uint64_t sample_base; /* of nodes that count samples */
    bool round; /* every f32 result is rounded to float: elementwise +, -, *, / and sqrt are then as
                   in f32 */
};

/* values[id] is row-major, of shape_count elements (bool and i32 as whole numbers). Freed by
 * graph_values_free. NULL: no memory. */
double **graph_values(const struct graph *g, const struct graph_eval *o);
void graph_values_free(double **values, const struct graph *g);

#endif
