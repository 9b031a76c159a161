/* nn_eval.h - the value of a node in f64, the plain way: for tests of what scripts make, without
 * plan or backend. */
#ifndef NN_EVAL_H
#define NN_EVAL_H

#include "engine/graph/graph.h"

/* Fills the elements of a param, input or hyper node. */
typedef void nn_leaf_fn(void *arg, const struct node *n, double *out);

/* The elements of node `id`, row-major; free() them. Ops that scripts cannot make, and random ones,
 * give NaN. */
double *nn_eval(const struct graph *g, int id, nn_leaf_fn *leaf, void *arg);

#endif
