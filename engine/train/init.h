/* init.h - initial values of parameters, always made on the host: the same on every backend. */
#ifndef TRAIN_INIT_H
#define TRAIN_INIT_H

#include "engine/base/err.h"
#include "engine/script/script.h"

/* Fills out[shape_count]. Element i is a function of (seed, name, i) alone: adding a layer leaves
 * the others' values alone. Normal by Box and Muller 1958 in f64; truncated normal by redrawing;
 * orthogonal by Gram-Schmidt over normal draws in f64, the shape seen as [dim 0][rest], rows
 * orthonormal (columns when there are more rows), times the gain (Saxe et al. 2014,
 * arXiv:1312.6120). */
enum err_code init_param(const struct trace_param *p, uint64_t seed, float *out, struct err *e);

#endif
