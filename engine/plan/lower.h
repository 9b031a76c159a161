/* lower.h - private to engine/plan: the state of one lowering.
 *
 * Phases, each a file: analyse (which nodes live, which must lie in memory; analyse.c), group
 * (which elementwise nodes share a loop; group.c), emit (ops and buffers in order; emit.c, fuse.c),
 * place (lifetimes and offsets; place.c). view.c folds index maps into loads.
 *
 * Words: a node is *dense* when its value lies in a buffer of its own, row-major; *alias* when it
 * is the bytes of another node (reshape, out, stop_gradient); an *insn* when it is computed in a
 * register. */
#ifndef PLAN_LOWER_H
#define PLAN_LOWER_H

#include "engine/base/arena.h"
#include "engine/plan/plan.h"

#define GROUP_MAX_INSNS 96
#define GROUP_MAX_VIEWS 40

struct buf_info {
    struct kern_buf kb;
    char *label;     /* borrowed from the arena */
    int first, last; /* ops that touch it; -1: none */
    int merged_into; /* shares the memory of that buffer (in place), or -1 */
};

/* An op being built. Fused arrays are owned by the lowering's arena. */
struct group {
    struct shape shape; /* iteration space */
    int level;
    int *member; /* node ids, ascending */
    int n_members;
    size_t cap;
    int *dep; /* groups of the same level that must run before */
    int n_deps;
    size_t dep_cap;
    int cost; /* instructions so far, an upper guess */
    bool emitted;
    int stamp; /* of the depth-first search */
};

struct node_info {
    bool live;
    /* Lies in a buffer of its own. Set for roots, inputs of kernels and bases of views before
     * grouping; grouping adds what crosses from one group to another. */
    bool in_memory;
    /* in_memory before grouping: what the choice to compute again rests on, so that it is the same
     * choice whenever it is made. */
    bool is_static;
    bool emitted;    /* kernels */
    int group;       /* of an insn (or a view that is copied), or -1 */
    int level;       /* kernels on the longest way to it: members of a group share it */
    int cost;        /* instructions to compute it again from what surely lies in memory */
    int source;      /* the one tensor that would take: SOURCE_NONE, SOURCE_MANY or its node */
    int buf;         /* its buffer once made, or -1 */
    int uses;        /* by live nodes, and one a root */
    int folded_into; /* its work is done by that node's kernel (bias, activation), or -1 */
    int root;        /* index of the root whose memory it is computed in, or -1 */
    int out[2];      /* live OUT nodes of outputs 1 and 2, or -1 */
    int epilogue;    /* of the node that a matrix product ends in: index, or -1 */
};

#define SOURCE_NONE (-1)
#define SOURCE_MANY (-2)
#define COST_AGAIN                                                                                 \
    24 /* computing again at most this many cheap instructions beats keeping the value */

/* A matrix product with what its kernel does besides. The last of them is the node whose value it
 * makes. */
struct epilogue {
    int matmul, bias; /* nodes; bias -1: none */
    enum kern_act act;
};

struct lowered {
    struct arena mem;
    const struct plan_request *req; /* during plan_lower only */
    const struct graph *g;
    int n_nodes;
    struct node_info *info;
    struct epilogue *epilogue;
    int n_epilogues;
    size_t epilogue_cap;
    struct group *group;
    int n_groups;
    size_t group_cap;
    int stamp;

    struct buf_info *buf;
    int n_bufs;
    size_t buf_cap;
    struct kern_op *op;
    int n_ops;
    size_t op_cap;
    enum err_code rc; /* the first failure of emitting, with its message in *e */
    struct err *e;
    struct kern_buf *flat; /* what program.bufs points to */
    struct kern_program program;
    struct plan_report report;
};

/* Where iteration index i reads: element offset + sum stride[d] * i[d] of the dense node `base`. */
struct view {
    int base;
    int64_t offset;
    int64_t stride[SHAPE_RANK];
};

/* view.c */
bool node_is_view(
    enum op op); /* those that map an index: permute, broadcast, slice, flip, reshape */
int view_owner(const struct lowered *l,
               int id); /* the node whose bytes those of id are: down through reshapes */
void view_dense(const struct shape *s, int64_t *stride); /* row-major strides, in elements */
/* The view of node id over its own shape. base is a node that is no view, or one that must be
 * copied first. */
struct view view_of(const struct lowered *l, int id);
bool view_is_identity(const struct view *v, const struct shape *s);
/* A matrix operand read in place: node id, shape [.., r, c], seen as a strided matrix of some dense
 * base. */
struct matrix_view {
    int base;
    int64_t ld, batch_stride;
    bool transposed; /* element (i, j) is at j * ld + i */
};
bool view_as_matrix(const struct lowered *l, int id, struct matrix_view *m);

/* analyse.c */
const struct node *lower_node(const struct lowered *l, int id);
bool lower_is_insn(const struct lowered *l, int id); /* computed in a register */
bool lower_is_inline(const struct lowered *l,
                     int id); /* const, hyper: an instruction wherever it is used */
bool lower_is_leaf(const struct lowered *l,
                   int id); /* param, buffer, input: in memory from the start */
bool lower_is_kernel(const struct lowered *l,
                     int id); /* has an op of its own (kernels, pad, concat) */
/* Does a group that needs id compute it itself instead of reading it? */
bool lower_again(const struct lowered *l, int id);
enum err_code lower_analyse(struct lowered *l, struct err *e); /* analyse.c */

/* group.c */
enum err_code group_all(struct lowered *l, struct err *e);

/* fuse.c: the op of one group. */
enum err_code fuse_emit(struct lowered *l, int group, struct err *e);
/* One more small fused op: out[view] = in[view] (add: out = out + in), over a shape. */
enum err_code fuse_copy(struct lowered *l, const struct shape *s, int in_buf, const struct view *in,
                        int out_buf, const struct view *out, bool add, const char *label,
                        struct err *e);
enum err_code fuse_fill(struct lowered *l, const struct shape *s, int out_buf, double value,
                        const char *label, struct err *e);

/* emit.c */
enum err_code emit_all(struct lowered *l, struct err *e);
/* The buffer of a node that lies in memory. Emits what computes it first, if that is not done. On
 * failure l->rc is set and 0 comes back. */
int emit_buf(struct lowered *l, int id);
int buf_new(struct lowered *l, enum kern_space space, enum dtype t, int64_t offset, int64_t count,
            const char *label);
struct kern_op *op_new(struct lowered *l, enum kern_code code,
                       const char *label); /* all buffers -1; NULL: no memory */
const char *node_label(struct lowered *l, int id);

/* place.c */
enum err_code place_all(struct lowered *l, struct err *e);
enum err_code lower_finish(struct lowered *l,
                           struct err *e); /* lifetimes, offsets, the flat program */

#endif
