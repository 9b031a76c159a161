/* grad_probe.h - a graph whose gradient is compared with finite differences. */
#ifndef GRAD_PROBE_H
#define GRAD_PROBE_H

#include "graph_eval.h"

enum { PROBE_LEAVES = 4, PROBE_MOST = 64, PROBE_OUT = 256 /* elements of a leaf, of a result */ };

/* Params p0 .. are differentiated; the weights of the result are the input "w", those of its
 * gradients v0 ..; other inputs are labels and indices: 0 1 0 0 1 2 .. */
struct probe {
    struct graph *g;
    struct err e;
    int n, leaf[PROBE_LEAVES];
    double value[PROBE_LEAVES][PROBE_MOST];
    double w[PROBE_OUT], v[PROBE_OUT];
};

struct shape probe_shape(int rank, int64_t a, int64_t b, int64_t c);
/* A leaf with values over lo .. hi, one a stratum, in a mixed order: all differ, and none is at the
 * border of two. */
int probe_leaf(struct probe *p, struct shape s, double lo, double hi);
/* The input that weighs a result: "w" for p->w, "v.." for p->v. */
int probe_weights(struct probe *p, const char *name, const struct shape *s);
graph_leaf_fn probe_fill; /* for graph_values; arg is the probe */
/* The largest error of node `grad` (-1: zero) as the gradient of sum(y * weight) by leaf k:
 * relative where it is above 1. HUGE_VAL for a NaN or another shape. */
double probe_worst(struct probe *p, int y, const double *weight, int k, int grad);

#endif
