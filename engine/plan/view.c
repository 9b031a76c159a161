/* view.c - index maps (reshape, permute, broadcast, slice, flip) folded into strides. */
#include "engine/plan/lower.h"

bool node_is_view(enum op op)
{
    return op == OP_RESHAPE || op == OP_PERMUTE || op == OP_BROADCAST || op == OP_SLICE ||
           op == OP_FLIP;
}

int view_owner(const struct lowered *l, int id)
{
    for (;;) {
        const struct node *n = lower_node(l, id);
        /* OUT k > 0 owns bytes of its own: output k of its node */
        if (n->op != OP_RESHAPE && n->op != OP_STOP_GRADIENT)
            return id;
        id = n->in[0];
    }
}

void view_dense(const struct shape *s, int64_t *stride)
{
    int64_t step = 1;

    for (int d = s->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= s->dim[d] > 0
                    ? s->dim[d]
                    : 1; /* an empty tensor's strides mean nothing, but 0 means broadcast */
    }
}

/* An index map from the iteration space to a node's dimensions: dimension j of the node is at
 * off[j] + sum_d m[j][d] * i[d]. */
struct map {
    int64_t off[SHAPE_RANK];
    int64_t m[SHAPE_RANK][SHAPE_RANK];
};

/* The map onto the input of a permute, broadcast, slice or flip, given the map onto the node
 * itself. */
static struct map map_through(const struct node *n, const struct shape *in, const struct map *top)
{
    struct map r = {0};

    for (int j = 0; j < in->rank; j++) {
        int from = j;
        int64_t scale = 1, shift = 0;

        switch (n->op) {
        case OP_PERMUTE:
            for (int d = 0; d < in->rank; d++)
                if (n->attr.perm[d] == j)
                    from = d;
            break;
        case OP_BROADCAST:
            from = j + n->shape.rank - in->rank;
            scale = in->dim[j] == 1 ? 0 : 1;
            break;
        case OP_SLICE:
            shift = n->attr.start[j];
            scale = n->attr.step[j];
            break;
        case OP_FLIP:
            if (n->attr.axes & 1u << j) {
                shift = in->dim[j] - 1;
                scale = -1;
            }
            break;
        default:
            break;
        }
        r.off[j] = shift + scale * top->off[from];
        for (int d = 0; d < SHAPE_RANK; d++)
            r.m[j][d] = scale * top->m[from][d];
    }
    return r;
}

/* Positions in row-major order of a node under a map. */
static void map_flatten(const struct map *m, const struct shape *s, struct view *v)
{
    int64_t stride[SHAPE_RANK];

    view_dense(s, stride);
    v->offset = 0;
    for (int d = 0; d < SHAPE_RANK; d++)
        v->stride[d] = 0;
    for (int j = 0; j < s->rank; j++) {
        v->offset += m->off[j] * stride[j];
        for (int d = 0; d < SHAPE_RANK; d++)
            v->stride[d] += m->m[j][d] * stride[j];
    }
}

struct view view_of(const struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    struct map m = {0};
    struct view v = {.base = id};

    for (int d = 0; d < n->shape.rank; d++)
        m.m[d][d] = 1;
    while (node_is_view(n->op) && n->op != OP_RESHAPE) {
        const struct node *in = lower_node(l, n->in[0]);
        m = map_through(n, &in->shape, &m);
        v.base = n->in[0];
        n = in;
    }
    map_flatten(&m, &n->shape, &v);
    /* A reshape keeps positions in row-major order, so it ends the walk: what lies below it, if it
     * is a view again, has to be copied first. */
    v.base = view_owner(l, v.base);
    return v;
}

bool view_is_identity(const struct view *v, const struct shape *s)
{
    int64_t stride[SHAPE_RANK];

    if (v->offset != 0)
        return false;
    view_dense(s, stride);
    for (int d = 0; d < s->rank; d++)
        if (s->dim[d] > 1 && v->stride[d] != stride[d])
            return false;
    return true;
}

bool view_as_matrix(const struct lowered *l, int id, struct matrix_view *mv)
{
    const struct shape *s = &lower_node(l, id)->shape;
    struct view v = view_of(l, id);
    int r = s->rank - 2, c = s->rank - 1;
    int64_t rows, cols, batch_stride = 0, expect = 0;

    if (s->rank < 2 || v.offset != 0)
        return false;
    rows = s->dim[r];
    cols = s->dim[c];
    for (int d = 0; d < s->rank; d++)
        if (v.stride[d] < 0)
            return false;
    /* leading dimensions must be one stride apart, or all broadcast */
    for (int d = r - 1; d >= 0; d--) {
        if (s->dim[d] == 1)
            continue;
        if (expect == 0 && batch_stride == 0) {
            batch_stride = v.stride[d];
            expect = batch_stride * s->dim[d];
            if (batch_stride == 0)
                expect = -1; /* broadcast: those further out must be too */
        } else if (expect == -1 ? v.stride[d] != 0 : v.stride[d] != expect) {
            return false;
        } else if (expect != -1) {
            expect *= s->dim[d];
        }
    }
    mv->base = v.base;
    mv->batch_stride = batch_stride;
    if ((v.stride[c] == 1 || cols == 1) && (v.stride[r] >= cols || rows == 1)) {
        mv->transposed = false;
        mv->ld = rows == 1 ? cols : v.stride[r];
        return mv->ld >= cols;
    }
    if ((v.stride[r] == 1 || rows == 1) && (v.stride[c] >= rows || cols == 1)) {
        mv->transposed = true;
        mv->ld = cols == 1 ? rows : v.stride[c];
        return mv->ld >= rows;
    }
    return false;
}
