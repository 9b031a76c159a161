/* build.c - conveniences over graph_add: broadcasting, casts, reductions over any axes. */
#include <string.h>

#include "engine/graph/priv.h"

static int with(struct graph *g, enum op op, int x, const struct op_attr *a, struct err *e)
{
    return x < 0 ? -1 : graph_add(g, op, &x, 1, a, e);
}

int graph_const(struct graph *g, double value, const struct shape *s, enum dtype t, struct err *e)
{
    struct op_attr a = {.shape = *s, .dtype = t, .value = value};
    return graph_add(g, OP_CONST, NULL, 0, &a, e);
}

int graph_hyper(struct graph *g, int slot, struct err *e)
{
    struct op_attr a = {.slot = slot};
    return graph_add(g, OP_HYPER, NULL, 0, &a, e);
}

int graph_unary(struct graph *g, enum op op, int x, struct err *e)
{
    return with(g, op, x, NULL, e);
}

int graph_broadcast(struct graph *g, int x, const struct shape *s, struct err *e)
{
    struct op_attr a = {.shape = *s};

    if (x < 0 || shape_equal(&graph_node(g, x)->shape, s))
        return x;
    return with(g, OP_BROADCAST, x, &a, e);
}

int graph_binary(struct graph *g, enum op op, int a, int b, struct err *e)
{
    struct shape s;
    int in[2];

    if (a < 0 || b < 0)
        return -1;
    if (!shape_broadcast(&graph_node(g, a)->shape, &graph_node(g, b)->shape, &s)) {
        char x[128], y[128];
        err_set(e, ERR_SHAPE, "%s: %s and %s do not broadcast", op_name(op),
                shape_text(x, sizeof x, &graph_node(g, a)->shape),
                shape_text(y, sizeof y, &graph_node(g, b)->shape));
        return -1;
    }
    in[0] = graph_broadcast(g, a, &s, e);
    in[1] = graph_broadcast(g, b, &s, e);
    return in[0] < 0 || in[1] < 0 ? -1 : graph_add(g, op, in, 2, NULL, e);
}

int graph_select(struct graph *g, int c, int a, int b, struct err *e)
{
    struct shape s, t;
    int in[3];

    if (c < 0 || a < 0 || b < 0)
        return -1;
    if (!shape_broadcast(&graph_node(g, a)->shape, &graph_node(g, b)->shape, &s) ||
        !shape_broadcast(&s, &graph_node(g, c)->shape, &t)) {
        char x[128], y[128], z[128];
        err_set(e, ERR_SHAPE, "select: %s, %s and %s do not broadcast",
                shape_text(x, sizeof x, &graph_node(g, c)->shape),
                shape_text(y, sizeof y, &graph_node(g, a)->shape),
                shape_text(z, sizeof z, &graph_node(g, b)->shape));
        return -1;
    }
    in[0] = graph_broadcast(g, c, &t, e);
    in[1] = graph_broadcast(g, a, &t, e);
    in[2] = graph_broadcast(g, b, &t, e);
    return in[0] < 0 || in[1] < 0 || in[2] < 0 ? -1
                                               : graph_add(g, (enum op)EW_SELECT, in, 3, NULL, e);
}

int graph_scalar_op(struct graph *g, enum op op, int x, double v, bool scalar_first, struct err *e)
{
    struct shape s = {0};
    int c;

    if (x < 0)
        return -1;
    c = graph_const(g, v, &s, graph_node(g, x)->dtype, e);
    return scalar_first ? graph_binary(g, op, c, x, e) : graph_binary(g, op, x, c, e);
}

int graph_cast(struct graph *g, int x, enum dtype t, struct err *e)
{
    struct op_attr a = {.dtype = t};

    if (x < 0 || graph_node(g, x)->dtype == t)
        return x;
    return with(g, OP_CAST, x, &a, e);
}

int graph_reshape(struct graph *g, int x, const struct shape *s, struct err *e)
{
    struct op_attr a = {.shape = *s};
    int64_t known = 1, all;
    int open = -1;

    if (x < 0)
        return -1;
    all = shape_count(&graph_node(g, x)->shape);
    for (int d = 0; d < s->rank; d++) {
        if (s->dim[d] == -1 && open < 0)
            open = d;
        else if (s->dim[d] < 0 || __builtin_mul_overflow(known, s->dim[d], &known))
            known = -1;
    }
    if (open >= 0 && known > 0 && all % known == 0)
        a.shape.dim[open] = all / known;
    if (known < 0 || (open >= 0 && a.shape.dim[open] < 0)) {
        char from[128], to[128];
        err_set(e, ERR_SHAPE, "reshape: %s does not become %s",
                shape_text(from, sizeof from, &graph_node(g, x)->shape),
                shape_text(to, sizeof to, s));
        return -1;
    }
    if (shape_equal(&graph_node(g, x)->shape, &a.shape))
        return x;
    return with(g, OP_RESHAPE, x, &a, e);
}

int graph_permute(struct graph *g, int x, const int *perm, struct err *e)
{
    struct op_attr a = {0};

    if (x < 0)
        return -1;
    for (int d = 0; d < graph_node(g, x)->shape.rank; d++)
        a.perm[d] = perm[d];
    return with(g, OP_PERMUTE, x, &a, e);
}

/* The shape with reduced dimensions kept as 1. */
static struct shape kept(const struct shape *s, uint32_t axes)
{
    struct shape r = *s;

    for (int d = 0; d < r.rank; d++)
        if (axes >> d & 1)
            r.dim[d] = 1;
    return r;
}

int graph_reduce(struct graph *g, enum op op, int x, uint32_t axes, bool keep, struct err *e)
{
    struct shape with_ones;

    if (x < 0)
        return -1;
    if (op == OP_SUM)
        x = graph_cast(g, x, DT_F32, e);
    if (x < 0 || axes == 0)
        return x;
    with_ones = kept(&graph_node(g, x)->shape, axes);
    /* from the back, a run of neighbours at a time: the axes in front keep their places */
    while (axes && x >= 0) {
        int hi = 31 - __builtin_clz(axes), lo = hi;
        struct op_attr a = {0};

        while (lo > 0 && axes >> (lo - 1) & 1)
            lo--;
        a.axes = (hi == 31 ? ~0u : (1u << (hi + 1)) - 1) & ~((1u << lo) - 1);
        axes &= ~a.axes;
        x = with(g, op, x, &a, e);
    }
    return keep ? graph_reshape(g, x, &with_ones, e) : x;
}

int graph_mean(struct graph *g, int x, uint32_t axes, bool keep, struct err *e)
{
    int64_t before, after;
    int s;

    if (x < 0)
        return -1;
    before = shape_count(&graph_node(g, x)->shape);
    s = graph_reduce(g, OP_SUM, x, axes, keep, e);
    if (s < 0)
        return -1;
    after = shape_count(&graph_node(g, s)->shape);
    return graph_scalar_op(g, (enum op)EW_MUL, s, before > 0 ? (double)after / (double)before : 0,
                           false, e);
}

int graph_sum_to(struct graph *g, int x, const struct shape *s, struct err *e)
{
    const struct shape *from;
    uint32_t axes = 0;

    if (x < 0)
        return -1;
    from = &graph_node(g, x)->shape;
    for (int d = 0; d < from->rank; d++) {
        int to = d - (from->rank - s->rank);
        if (to < 0 || (s->dim[to] == 1 && from->dim[d] != 1))
            axes |= 1u << d;
    }
    return graph_reshape(g, graph_reduce(g, OP_SUM, x, axes, false, e), s, e);
}

int graph_matmul(struct graph *g, int a, int b, bool ta, bool tb, struct err *e)
{
    struct op_attr attr = {.ta = ta, .tb = tb};
    const struct shape *sa, *sb;
    struct shape la, lb, lead;
    int in[2] = {a, b};

    if (a < 0 || b < 0)
        return -1;
    sa = &graph_node(g, a)->shape;
    sb = &graph_node(g, b)->shape;
    if (sa->rank <= 2 || sb->rank <= 2)
        return graph_add(g, OP_MATMUL, in, 2, &attr, e);
    la = *sa;
    lb = *sb;
    la.rank -= 2;
    lb.rank -= 2;
    if (shape_broadcast(&la, &lb, &lead) && lead.rank + 2 <= SHAPE_RANK) {
        la = lb = lead;
        la.rank = lb.rank = lead.rank + 2;
        for (int i = 0; i < 2; i++) {
            la.dim[lead.rank + i] = sa->dim[sa->rank - 2 + i];
            lb.dim[lead.rank + i] = sb->dim[sb->rank - 2 + i];
        }
        in[0] = graph_broadcast(g, a, &la, e);
        in[1] = graph_broadcast(g, b, &lb, e);
    }
    return in[0] < 0 || in[1] < 0 ? -1 : graph_add(g, OP_MATMUL, in, 2, &attr, e);
}

int graph_out(struct graph *g, int node, int k, struct err *e)
{
    struct op_attr a = {.k = k};
    return k == 0 ? node : with(g, OP_OUT, node, &a, e);
}

/* ---- the small language of gradient rules ---- */

int g_un(struct graph *g, enum op op, int x, struct err *e)
{
    return graph_unary(g, op, x, e);
}

int g_bin(struct graph *g, enum op op, int a, int b, struct err *e)
{
    return graph_binary(g, op, a, b, e);
}

int g_scale(struct graph *g, int x, double v, struct err *e)
{
    return graph_scalar_op(g, (enum op)EW_MUL, x, v, false, e);
}
