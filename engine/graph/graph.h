/* graph.h - a network as a list of operations with static shapes.
 *
 * A node is one value (or several: then OUT nodes name outputs 1.. of it, the node itself is output
 * 0). Nodes are in topological order: inputs have smaller ids. Forward, gradients and (in the plan)
 * updates are nodes of one graph. Pure: no node changes another. Owned by one thread.
 *
 * Every function that adds returns the id, or -1 with *e filled. */
#ifndef GRAPH_H
#define GRAPH_H

#include "engine/base/str.h"
#include "engine/graph/op.h"

#define GRAPH_IN 8 /* inputs of a node */
#define GRAPH_MAX_NODES 1000000

struct node {
    enum op op;
    enum dtype dtype;
    struct shape shape;
    int n_in;
    int in[GRAPH_IN];
    struct op_attr attr;
    const char *name;  /* param, buffer, input: its name; else "" - borrowed from the graph */
    const char *path;  /* module path at the time, "layers.2"; "" when there is none */
    const char *where; /* "mlp.lua:7", "" when unknown */
};

struct graph;

struct graph *graph_new(void); /* NULL: no memory */
void graph_free(struct graph *g);
int graph_count(const struct graph *g);
const struct node *graph_node(const struct graph *g, int id); /* borrowed until the next addition */
struct graph *graph_clone(const struct graph *g);             /* NULL: no memory */

/* What the nodes added from now on carry as path and line (copied; NULL means ""). Gradient nodes
 * take those of the node they belong to. */
void graph_at(struct graph *g, const char *path, const char *where);

/* Adds any op. Shapes and types are inferred and checked; sizes are checked for overflow. */
int graph_add(struct graph *g, enum op op, const int *in, int n_in, const struct op_attr *attr,
              struct err *e);

/* Leaves. A second param or input of one name, shape and dtype is the same node; another shape is
 * refused. */
int graph_param(struct graph *g, const char *name, const struct shape *s, struct err *e); /* f32 */
int graph_input(struct graph *g, const char *name, const struct shape *s, enum dtype t,
                struct err *e);
int graph_const(struct graph *g, double value, const struct shape *s, enum dtype t, struct err *e);
int graph_hyper(struct graph *g, int slot, struct err *e); /* f32 scalar */

/* Conveniences over graph_add, used by tracing and by gradient rules. */
int graph_unary(struct graph *g, enum op op, int x, struct err *e);
int graph_binary(struct graph *g, enum op op, int a, int b,
                 struct err *e); /* broadcasts both; types must be alike */
int graph_select(struct graph *g, int c, int a, int b, struct err *e); /* broadcasts all three */
int graph_scalar_op(struct graph *g, enum op op, int x, double v, bool scalar_first, struct err *e);
int graph_cast(struct graph *g, int x, enum dtype t,
               struct err *e); /* x itself when it is that already */
int graph_reshape(struct graph *g, int x, const struct shape *s,
                  struct err *e); /* one dim may be -1 */
int graph_permute(struct graph *g, int x, const int *perm, struct err *e);
int graph_broadcast(struct graph *g, int x, const struct shape *s, struct err *e);
int graph_sum_to(struct graph *g, int x, const struct shape *s,
                 struct err *e); /* undo a broadcast */
int graph_reduce(struct graph *g, enum op op, int x, uint32_t axes, bool keep, struct err *e);
int graph_mean(struct graph *g, int x, uint32_t axes, bool keep, struct err *e);
int graph_matmul(struct graph *g, int a, int b, bool ta, bool tb,
                 struct err *e); /* leading dims broadcast */
int graph_out(struct graph *g, int node, int k,
              struct err *e); /* output k of a node; k == 0 is the node */

/* Gradients. For every pair i the value nodes[i] (any shape) has the gradient seeds[i] (same
 * shape); grads[j] becomes the gradient of wrt[j], or -1 where nothing reaches it. Contributions of
 * several uses add in node order. ERR_SHAPE, naming op and line, when an op without a gradient lies
 * between. */
enum err_code graph_gradient(struct graph *g, const int *nodes, const int *seeds, int n,
                             const int *wrt, int n_wrt, int *grads, struct err *e);

/* Rewrites the graph: drops what no root needs, joins equal nodes (rng and dropout with one stream
 * are equal), folds constants and identities (x*1, x+0, x/1, x^1, x^2 -> x*x, --x, reshape of
 * reshape, permute of permute, cast to own type, broadcast to own shape, sum over nothing). Bits do
 * not change but where a rule says so in its comment. stop_gradient goes: gradients are taken
 * before. roots are remapped in place (-1 stays). */
enum err_code graph_optimize(struct graph *g, int *roots, int n_roots, struct err *e);

double graph_flops(const struct graph *g, int id); /* of one node, multiply-adds count 2 */

/* One line a node: `%12 matmul f32 [64, 128]  %3 %10  layers.2  mlp.lua:7`. */
void graph_print(const struct graph *g, struct str *out);
void graph_print_dot(const struct graph *g, struct str *out);
/* SHA-256 over ops, types, shapes, attributes, names and inputs; not over paths and lines. */
void graph_hash(const struct graph *g, char hex[65]);

#endif
