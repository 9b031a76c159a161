/* grad_ops.c - gradients of the ops that are not elementwise. */
#include <string.h>

#include "engine/graph/priv.h"

#define RULE(name)                                                                                 \
    enum err_code grad_##name(struct graph *g, int node, const int *d_out, int *d_in, struct err *e)
#define NODE(n, x)                                                                                 \
    const struct node n = *graph_node(g, node);                                                    \
    const struct shape x = graph_node(g, n.in[0])->shape
#define MUL(a, b) g_bin(g, (enum op)EW_MUL, a, b, e)
#define SUB(a, b) g_bin(g, (enum op)EW_SUB, a, b, e)

static enum err_code done(int id)
{
    return id < 0 ? ERR_SHAPE : ERR_OK;
}

static int one(struct graph *g, enum op op, int x, const struct op_attr *a, struct err *e)
{
    return x < 0 ? -1 : graph_add(g, op, &x, 1, a, e);
}

static int const_of(struct graph *g, double v, const struct shape *s, struct err *e)
{
    return graph_const(g, v, s, DT_F32, e);
}

RULE(cast)
{
    NODE(n, x);
    (void)x;
    if (dtype_is_float(n.dtype) && dtype_is_float(graph_node(g, n.in[0])->dtype))
        d_in[0] = graph_cast(g, d_out[0], graph_node(g, n.in[0])->dtype, e);
    return ERR_OK;
}

/* The same mask: it is drawn again from the same counters, never stored. */
RULE(dropout)
{
    NODE(n, x);
    int in[2] = {d_out[0], n.in[1]};
    (void)x;
    d_in[0] = graph_add(g, OP_DROPOUT, in, 2, &n.attr, e);
    return done(d_in[0]);
}

RULE(reshape)
{
    NODE(n, x);
    return done(d_in[0] = graph_reshape(g, d_out[0], &x, e));
}

RULE(permute)
{
    NODE(n, x);
    int inverse[SHAPE_RANK] = {0};

    for (int d = 0; d < x.rank; d++)
        inverse[n.attr.perm[d]] = d;
    return done(d_in[0] = graph_permute(g, d_out[0], inverse, e));
}

RULE(broadcast)
{
    NODE(n, x);
    return done(d_in[0] = graph_sum_to(g, d_out[0], &x, e));
}

/* With a step the gradient is spread out first: [n] -> [n, 1] -> zeros behind each -> [n * step].
 */
static int dilate(struct graph *g, int x, int axis, int64_t step, struct err *e)
{
    struct shape s = graph_node(g, x)->shape, wide = {.rank = 3, .dim = {1, s.dim[axis], 1}},
                 flat = s;
    struct op_attr pad = {0};
    int64_t inner = 1;
    int id;

    for (int d = 0; d < axis; d++)
        wide.dim[0] *= s.dim[d];
    for (int d = axis + 1; d < s.rank; d++)
        inner *= s.dim[d];
    wide.dim[0] *= s.dim[axis];
    wide.dim[1] = 1;
    wide.dim[2] = inner;
    pad.stop[1] = step - 1;
    id = one(g, OP_PAD, graph_reshape(g, x, &wide, e), &pad, e);
    flat.dim[axis] = s.dim[axis] * step;
    return graph_reshape(g, id, &flat, e);
}

RULE(slice)
{
    NODE(n, x);
    struct op_attr cut = {0}, pad = {0};
    bool dilated = false;
    int id = d_out[0];

    for (int d = 0; d < x.rank && id >= 0; d++)
        /* a lone element has no gap behind it, however large the step */
        if (n.attr.step[d] > 1 && n.shape.dim[d] > 1) {
            id = dilate(g, id, d, n.attr.step[d], e);
            dilated = true;
        }
    if (id < 0)
        return ERR_SHAPE;
    /* what the last step has too much behind it goes again */
    for (int d = 0; d < x.rank; d++) {
        int64_t have = graph_node(g, id)->shape.dim[d], room = x.dim[d] - n.attr.start[d];
        cut.step[d] = 1;
        cut.stop[d] = have < room ? have : room;
        pad.start[d] = n.attr.start[d];
        pad.stop[d] = room - cut.stop[d];
    }
    if (dilated)
        id = one(g, OP_SLICE, id, &cut, e);
    return done(d_in[0] = one(g, OP_PAD, id, &pad, e));
}

RULE(pad)
{
    NODE(n, x);
    struct op_attr a = {0};

    for (int d = 0; d < x.rank; d++) {
        a.start[d] = n.attr.start[d];
        a.stop[d] = n.attr.start[d] + x.dim[d];
        a.step[d] = 1;
    }
    return done(d_in[0] = one(g, OP_SLICE, d_out[0], &a, e));
}

RULE(concat)
{
    const struct node n = *graph_node(g, node);
    int64_t at = 0;

    for (int i = 0; i < n.n_in; i++) {
        const struct shape s = graph_node(g, n.in[i])->shape;
        struct op_attr a = {0};

        for (int d = 0; d < s.rank; d++) {
            a.stop[d] = s.dim[d];
            a.step[d] = 1;
        }
        a.start[n.attr.axis] = at;
        a.stop[n.attr.axis] = at += s.dim[n.attr.axis];
        d_in[i] = one(g, OP_SLICE, d_out[0], &a, e);
        if (d_in[i] < 0)
            return ERR_SHAPE;
    }
    return ERR_OK;
}

RULE(flip)
{
    NODE(n, x);
    (void)x;
    return done(d_in[0] = one(g, OP_FLIP, d_out[0], &n.attr, e));
}

/* ---- reductions ---- */

/* A reduced value stretched over what it came from. */
static int stretch(struct graph *g, int v, const struct shape *x, uint32_t axes, struct err *e)
{
    struct shape ones = *x;

    for (int d = 0; d < ones.rank; d++)
        if (axes >> d & 1)
            ones.dim[d] = 1;
    return graph_broadcast(g, graph_reshape(g, v, &ones, e), x, e);
}

RULE(sum)
{
    NODE(n, x);
    return done(d_in[0] = stretch(g, d_out[0], &x, n.attr.axes, e));
}

/* To all that are the extreme, divided by their number. */
RULE(extreme)
{
    NODE(n, x);
    int hit = graph_cast(
        g, g_bin(g, (enum op)EW_EQ, n.in[0], stretch(g, node, &x, n.attr.axes, e), e), DT_F32, e);
    int share = g_bin(
        g, (enum op)EW_DIV, d_out[0],
        graph_reshape(g, graph_reduce(g, OP_SUM, hit, n.attr.axes, false, e), &n.shape, e), e);

    return done(d_in[0] = MUL(hit, stretch(g, share, &x, n.attr.axes, e)));
}

/* x moved by `by` places along axis 1 (towards the end if by > 0), ones where nothing comes from.
 */
static int shifted(struct graph *g, int x, int64_t by, struct err *e)
{
    const struct shape s = x < 0 ? (struct shape){0} : graph_node(g, x)->shape;
    struct op_attr cut = {0}, pad = {.value = 1};

    for (int d = 0; d < s.rank; d++) {
        cut.stop[d] = s.dim[d];
        cut.step[d] = 1;
    }
    if (by > 0)
        cut.stop[1] -= pad.start[1] = by;
    else
        cut.start[1] = pad.stop[1] = -by;
    return one(g, OP_PAD, one(g, OP_SLICE, x, &cut, e), &pad, e);
}

/* Products of all elements before each along axis 1 (after each, if sign < 0): doubling strides. */
static int before(struct graph *g, int x, int64_t n, int sign, struct err *e)
{
    int p = shifted(g, x, sign, e);

    for (int64_t k = 1; k < n - 1; k *= 2)
        p = MUL(p, shifted(g, p, sign * k, e));
    return p;
}

/* The product of all the others, formed of those before and those after, so that zeros are no
 * trouble. */
RULE(prod)
{
    NODE(n, x);
    struct shape three = {.rank = 3, .dim = {1, 1, 1}};
    int v, others, all = stretch(g, d_out[0], &x, n.attr.axes, e);

    for (int d = 0, part = 0; d < x.rank; d++) {
        if (n.attr.axes >> d & 1)
            part = 1;
        else if (part == 1)
            part = 2;
        three.dim[part] *= x.dim[d];
    }
    if (three.dim[1] <= 1)
        return done(d_in[0] = graph_reshape(g, all, &x, e));
    v = graph_reshape(g, n.in[0], &three, e);
    others = MUL(before(g, v, three.dim[1], 1, e), before(g, v, three.dim[1], -1, e));
    return done(d_in[0] = MUL(graph_reshape(g, others, &x, e), all));
}

RULE(cumsum)
{
    NODE(n, x);
    struct op_attr a = n.attr;
    (void)x;
    a.reverse = !a.reverse;
    return done(d_in[0] = one(g, OP_CUMSUM, d_out[0], &a, e));
}

/* ---- products ---- */

/* [.., r, c] as one tall [rows, c]. */
static int tall(struct graph *g, int x, struct err *e)
{
    const struct shape s = graph_node(g, x)->shape;
    return graph_reshape(
        g, x, &(struct shape){.rank = 2, .dim = {s.dim[s.rank - 1] ? -1 : 0, s.dim[s.rank - 1]}},
        e);
}

/* y = op(a) . op(b): da = g . op(b)^T, db = op(a)^T . g, the flags folded so that nothing is
 * transposed in memory. */
RULE(matmul)
{
    const struct node n = *graph_node(g, node);
    int a = n.in[0], b = n.in[1], dy = d_out[0];
    bool ta = n.attr.ta, tb = n.attr.tb;
    const struct shape sa = graph_node(g, a)->shape, sb = graph_node(g, b)->shape;
    int da, db;

    da = ta ? graph_matmul(g, b, dy, tb, true, e) : graph_matmul(g, dy, b, false, !tb, e);
    /* one weight for many rows: a single tall product sums over the leading dimensions by itself */
    if (sb.rank == 2 && sa.rank > 2 && !ta && shape_count(&n.shape) > 0 && shape_count(&sa) > 0) {
        a = tall(g, a, e);
        dy = tall(g, dy, e);
    }
    db = tb ? graph_matmul(g, dy, a, true, ta, e) : graph_matmul(g, a, dy, !ta, false, e);
    d_in[0] = graph_sum_to(g, da, &sa, e);
    d_in[1] = graph_sum_to(g, db, &sb, e);
    return d_in[0] < 0 || d_in[1] < 0 ? ERR_SHAPE : ERR_OK;
}

/* ---- indexing ---- */

RULE(take)
{
    NODE(n, x);
    struct op_attr a = {.axis = n.attr.axis, .shape = x};
    int in[2] = {d_out[0], n.in[1]};

    return done(d_in[0] = graph_add(g, OP_TAKE_GRAD, in, 2, &a, e));
}

RULE(take_grad)
{
    NODE(n, x);
    struct op_attr a = {.axis = n.attr.axis};
    int in[2] = {d_out[0], n.in[1]};

    return done(d_in[0] = graph_reshape(g, graph_add(g, OP_TAKE, in, 2, &a, e), &x, e));
}

RULE(take_along)
{
    NODE(n, x);
    struct op_attr a = {.axis = n.attr.axis};
    int zeros = const_of(g, 0, &x, e), in[3] = {zeros, n.in[1], d_out[0]};

    return done(d_in[0] = zeros < 0 ? -1 : graph_add(g, OP_SCATTER_ADD, in, 3, &a, e));
}

RULE(scatter_add)
{
    NODE(n, x);
    struct op_attr a = {.axis = n.attr.axis};
    int in[2] = {d_out[0], n.in[1]};

    (void)x;
    d_in[0] = d_out[0];
    return done(d_in[2] = graph_add(g, OP_TAKE_ALONG, in, 2, &a, e));
}

/* ---- softmax and its kin ---- */

RULE(softmax)
{
    NODE(n, x);
    int dot = graph_reduce(g, OP_SUM, MUL(d_out[0], node), 1u << n.attr.axis, true, e);
    (void)x;
    return done(d_in[0] = MUL(node, SUB(d_out[0], dot)));
}

/* g - softmax * sum g; an input of -inf gets none, so that a row of them stays quiet. */
RULE(log_softmax)
{
    NODE(n, x);
    struct shape scalar = {0};
    int sum = graph_reduce(g, OP_SUM, d_out[0], 1u << n.attr.axis, true, e);
    int d = SUB(d_out[0], MUL(g_un(g, (enum op)EW_EXP, node, e), sum));
    int finite = g_un(g, (enum op)EW_ISFINITE, node, e);

    (void)x;
    return done(d_in[0] = graph_select(g, finite, d, const_of(g, 0, &scalar, e), e));
}

RULE(logsumexp)
{
    NODE(n, x);
    struct op_attr a = {.axis = n.attr.axis};

    return done(d_in[0] = MUL(stretch(g, d_out[0], &x, 1u << n.attr.axis, e),
                              one(g, OP_SOFTMAX, n.in[0], &a, e)));
}

/* ---- fused ops: their gradient is an op of its own ---- */

static enum err_code only_first(const struct node *n, const int *d_out, struct err *e)
{
    if (d_out[0] < 0 || d_out[1] >= 0 || d_out[2] >= 0)
        return err_set(e, ERR_SHAPE, "%s: no gradient through its statistics", op_name(n->op));
    return ERR_OK;
}

RULE(layer_norm)
{
    const struct node n = *graph_node(g, node);
    int in[5] = {d_out[0], n.in[0], n.in[1], graph_out(g, node, 1, e), graph_out(g, node, 2, e)},
        id;
    const struct shape gain = graph_node(g, n.in[1])->shape, bias = graph_node(g, n.in[2])->shape;

    if (only_first(&n, d_out, e) != ERR_OK || in[3] < 0 || in[4] < 0)
        return ERR_SHAPE;
    id = graph_add(g, OP_LAYER_NORM_GRAD, in, 5, &n.attr, e);
    d_in[0] = id;
    d_in[1] = graph_reshape(g, graph_out(g, id, 1, e), &gain, e);
    d_in[2] = graph_reshape(g, graph_out(g, id, 2, e), &bias, e);
    return id < 0 || d_in[1] < 0 || d_in[2] < 0 ? ERR_SHAPE : ERR_OK;
}

RULE(rms_norm)
{
    const struct node n = *graph_node(g, node);
    int in[4] = {d_out[0], n.in[0], n.in[1], graph_out(g, node, 1, e)}, id;
    const struct shape gain = graph_node(g, n.in[1])->shape;

    if (only_first(&n, d_out, e) != ERR_OK || in[3] < 0)
        return ERR_SHAPE;
    id = graph_add(g, OP_RMS_NORM_GRAD, in, 4, &n.attr, e);
    d_in[0] = id;
    d_in[1] = graph_reshape(g, graph_out(g, id, 1, e), &gain, e);
    return id < 0 || d_in[1] < 0 ? ERR_SHAPE : ERR_OK;
}

RULE(xent)
{
    const struct node n = *graph_node(g, node);
    int in[5] = {n.in[0], n.in[1]}, k = 2;

    if (only_first(&n, d_out, e) != ERR_OK)
        return ERR_SHAPE;
    if (n.n_in == 3)
        in[k++] = n.in[2];
    in[k] = graph_out(g, node, 1, e);
    if (in[k++] < 0)
        return ERR_SHAPE;
    in[k++] = d_out[0];
    return done(d_in[0] = graph_add(g, OP_XENT_GRAD, in, k, &n.attr, e));
}
