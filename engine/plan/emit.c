/* emit.c - ops and buffers in the order of the graph. */
#include "engine/plan/lower.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

static enum err_code fail(struct lowered *l, enum err_code rc)
{
    if (l->rc == ERR_OK)
        l->rc = rc;
    return rc;
}

static enum err_code no_memory(struct lowered *l)
{
    /* what failed before has said why */
    return l->rc != ERR_OK ? l->rc : fail(l, err_set(l->e, ERR_NOMEM, "plan: out of memory"));
}

int buf_new(struct lowered *l, enum kern_space space, enum dtype t, int64_t offset, int64_t count,
            const char *label)
{
    if (mem_grow((void **)&l->buf, &l->buf_cap, (size_t)l->n_bufs, sizeof *l->buf) < 0)
        return -1;
    l->buf[l->n_bufs] =
        (struct buf_info){.kb = {.space = space, .dtype = t, .offset = offset, .count = count},
                          .label = arena_strdup(&l->mem, label),
                          .first = -1,
                          .last = -1,
                          .merged_into = -1};
    return l->n_bufs++;
}

struct kern_op *op_new(struct lowered *l, enum kern_code code, const char *label)
{
    struct kern_op *op;

    if (mem_grow((void **)&l->op, &l->op_cap, (size_t)l->n_ops, sizeof *l->op) < 0)
        return NULL;
    op = &l->op[l->n_ops++];
    memset(op, 0, sizeof *op);
    op->code = code;
    op->label = label;
    for (int i = 0; i < KERN_IN; i++)
        op->in[i] = -1;
    for (int i = 0; i < KERN_OUT; i++)
        op->out[i] = -1;
    return op;
}

const char *node_label(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    char shape[96];
    const char *text = arena_printf(&l->mem, "%s%s%s%s%s%s %s", n->path, *n->path ? " " : "",
                                    *n->where ? "(" : "", n->where, *n->where ? ") " : "",
                                    op_name(n->op), shape_text(shape, sizeof shape, &n->shape));
    return text ? text : "?";
}

static const struct plan_leaf *leaf_of(const struct lowered *l, const char *name)
{
    for (int i = 0; i < l->req->n_leaves; i++)
        if (strcmp(l->req->leaves[i].name, name) == 0)
            return &l->req->leaves[i];
    return NULL;
}

/* The buffer a node will have, wherever it is computed. */
static int make_buf(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    const struct node_info *info = &l->info[id];
    int64_t count = shape_count(&n->shape);

    if (lower_is_leaf(l, id)) {
        const struct plan_leaf *leaf = leaf_of(l, n->name);
        if (!leaf) {
            fail(l, err_set(l->e, ERR_INTERNAL, "plan: %s '%s' has no place", op_name(n->op),
                            n->name));
            return -1;
        }
        return buf_new(l, leaf->space, n->dtype, leaf->offset, count, n->name);
    }
    if (info->root >= 0) {
        const struct plan_root *r = &l->req->roots[info->root];
        return buf_new(l, r->space, n->dtype, r->offset, count, node_label(l, id));
    }
    return buf_new(l, KERN_ARENA, n->dtype, 0, count, node_label(l, id));
}

static void emit_kernel(struct lowered *l, int id);

int emit_buf(struct lowered *l, int id)
{
    int owner = view_owner(l, id);
    struct node_info *info = &l->info[owner];
    int made = lower_node(l, owner)->op == OP_OUT ? lower_node(l, owner)->in[0] : owner;

    if (l->rc != ERR_OK)
        return 0;
    if (info->group >= 0 && !l->group[info->group].emitted)
        fail(l, fuse_emit(l, info->group, l->e));
    else if (info->group < 0 && (lower_is_kernel(l, made) || l->info[made].epilogue >= 0))
        emit_kernel(l, made);
    if (l->info[owner].buf < 0) {
        int b = make_buf(l, owner);
        if (b < 0) {
            no_memory(l);
            return 0;
        }
        l->info[owner].buf = b;
    }
    return l->info[owner].buf;
}

/* Output k >= 1 of a node: the buffer of its OUT node, or scratch when nobody reads it. */
static int out_buf(struct lowered *l, int id, int k, bool optional, const struct shape *s)
{
    int out = l->info[id].out[k - 1], b;

    if (out >= 0) {
        if (l->info[out].buf < 0)
            l->info[out].buf = make_buf(l, out);
        b = l->info[out].buf;
    } else if (optional) {
        return -1;
    } else {
        b = buf_new(l, KERN_ARENA, DT_F32, 0, shape_count(s), node_label(l, id));
    }
    if (b < 0)
        no_memory(l);
    return b;
}

static int own_buf(struct lowered *l, int id)
{
    if (l->info[id].buf < 0)
        l->info[id].buf = make_buf(l, id);
    if (l->info[id].buf < 0)
        no_memory(l);
    return l->info[id].buf;
}

/* ---- the kernels ---- */

static int64_t product(const struct shape *s, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= s->dim[d];
    return n;
}

static struct kern_axis axis_of(const struct shape *s, int from, int to)
{
    return (struct kern_axis){
        .outer = product(s, 0, from), .n = product(s, from, to), .inner = product(s, to, s->rank)};
}

static void reduced_axes(const struct node *n, int rank, int *from, int *to)
{
    *from = 0;
    while (*from < rank && !(n->attr.axes & 1u << *from))
        (*from)++;
    *to = *from;
    while (*to < rank && n->attr.axes & 1u << *to)
        (*to)++;
}

/* Where a matrix operand is read: in place when a stride says it all, else from its dense copy. */
struct operand {
    int buf;
    int64_t ld, stride;
    bool transposed;
};

static struct operand operand_of(struct lowered *l, int id, int64_t out_batch)
{
    const struct shape *s = &lower_node(l, id)->shape;
    struct matrix_view m;
    struct operand o = {0};

    if (view_as_matrix(l, id, &m)) {
        o = (struct operand){.buf = emit_buf(l, m.base),
                             .ld = m.ld,
                             .stride = m.batch_stride,
                             .transposed = m.transposed};
    } else {
        o.buf = emit_buf(l, id);
        o.ld = s->dim[s->rank - 1];
        o.stride = s->dim[s->rank - 2] * s->dim[s->rank - 1];
    }
    if (product(s, 0, s->rank - 2) == 1 && out_batch > 1)
        o.stride = 0;
    return o;
}

/* The weight gradient that is added to what is there: the product adds by itself when nobody else
 * reads it. */
static int accumulating_root(const struct lowered *l, int id)
{
    for (int r = 0; r < l->req->n_roots; r++)
        if (l->req->roots[r].accumulate && view_owner(l, l->req->roots[r].node) == id &&
            l->info[id].uses == 1)
            return r;
    return -1;
}

static void emit_matmul(struct lowered *l, int id, const struct epilogue *ep)
{
    const struct node *n = lower_node(l, ep->matmul);
    const struct shape *s = &n->shape;
    int64_t batch = product(s, 0, s->rank - 2);
    const struct shape *as = &lower_node(l, n->in[0])->shape;
    struct operand a = operand_of(l, n->in[0], batch), b = operand_of(l, n->in[1], batch);
    int bias = ep->bias >= 0 ? emit_buf(l, ep->bias) : -1;
    int root = accumulating_root(l, id), out;
    struct kern_matmul m = {.batch = batch,
                            .m = s->dim[s->rank - 2],
                            .n = s->dim[s->rank - 1],
                            .k = as->dim[as->rank - (n->attr.ta ? 2 : 1)],
                            .lda = a.ld,
                            .ldb = b.ld,
                            .ldc = s->dim[s->rank - 1],
                            .stride_a = a.stride,
                            .stride_b = b.stride,
                            .stride_c = s->dim[s->rank - 2] * s->dim[s->rank - 1],
                            .ta = n->attr.ta != a.transposed,
                            .tb = n->attr.tb != b.transposed,
                            .act = ep->act};
    struct kern_op *op;

    if (batch > 1 && m.stride_b == 0 && !m.ta && m.stride_a == m.m * m.lda) {
        m.m *= batch; /* one tall product instead of many */
        m.batch = 1;
    }
    if (root >= 0 && l->info[id].buf < 0) {
        const struct plan_root *r = &l->req->roots[root];
        l->info[id].buf =
            buf_new(l, r->space, DT_F32, r->offset, shape_count(s), node_label(l, id));
        m.accumulate = true;
    }
    out = own_buf(l, id);
    op = l->rc == ERR_OK ? op_new(l, KERN_MATMUL, node_label(l, id)) : NULL;
    if (!op) {
        no_memory(l);
        return;
    }
    op->in[0] = a.buf;
    op->in[1] = b.buf;
    op->in[2] = bias;
    op->out[0] = out;
    op->u.matmul = m;
}

static void emit_pad(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    const struct shape *in = &lower_node(l, n->in[0])->shape;
    struct view from = view_of(l, n->in[0]), to = {0};
    int in_buf = emit_buf(l, from.base), out = own_buf(l, id);
    view_dense(&n->shape, to.stride);
    for (int d = 0; d < in->rank; d++)
        to.offset += n->attr.start[d] * to.stride[d];
    if (l->rc == ERR_OK)
        fail(l, fuse_fill(l, &n->shape, out, n->attr.value, node_label(l, id), l->e));
    if (l->rc == ERR_OK)
        fail(l, fuse_copy(l, in, in_buf, &from, out, &to, false, node_label(l, id), l->e));
}

static void emit_concat(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    int64_t at = 0;

    for (int i = 0; i < n->n_in; i++)
        emit_buf(l, view_of(l, n->in[i]).base);
    for (int i = 0; i < n->n_in && l->rc == ERR_OK; i++) {
        const struct shape *in = &lower_node(l, n->in[i])->shape;
        struct view from = view_of(l, n->in[i]), to = {0};
        int in_buf = emit_buf(l, from.base), out = own_buf(l, id);

        view_dense(&n->shape, to.stride);
        to.offset = at * to.stride[n->attr.axis];
        at += in->dim[n->attr.axis];
        if (l->rc == ERR_OK)
            fail(l, fuse_copy(l, in, in_buf, &from, out, &to, false, node_label(l, id), l->e));
    }
}

static void set_axis(struct kern_op *op, const struct lowered *l, const struct node *n)
{
    const struct shape *x = &lower_node(l, n->in[0])->shape;
    int ax = n->attr.axis, from, to;

    switch (n->op) {
    case OP_SUM:
    case OP_RMAX:
    case OP_RMIN:
    case OP_PROD:
        reduced_axes(n, x->rank, &from, &to);
        op->u.axis = axis_of(x, from, to);
        op->u.axis.reduce = n->op == OP_SUM    ? KERN_SUM
                            : n->op == OP_RMAX ? KERN_RMAX
                            : n->op == OP_RMIN ? KERN_RMIN
                                               : KERN_PROD;
        break;
    case OP_TAKE:
        op->u.axis = axis_of(x, ax, ax + 1);
        op->u.axis.k = shape_count(&lower_node(l, n->in[1])->shape);
        break;
    case OP_TAKE_GRAD:
        op->u.axis = axis_of(&n->shape, ax, ax + 1);
        op->u.axis.k = shape_count(&lower_node(l, n->in[1])->shape);
        break;
    case OP_TAKE_ALONG:
    case OP_SCATTER_ADD:
        op->u.axis = axis_of(x, ax, ax + 1);
        op->u.axis.k = lower_node(l, n->in[1])->shape.dim[ax];
        break;
    default:
        op->u.axis = axis_of(x, ax, ax + 1);
        op->u.axis.k = n->attr.k;
        op->u.axis.reverse = n->attr.reverse;
        op->u.axis.exclusive = n->attr.exclusive;
        break;
    }
}

/* Attributes and the outputs beyond the first. */
static void set_attributes(struct kern_op *op, struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    const struct shape *x = &lower_node(l, n->in[0])->shape;
    int64_t cols = x->rank > 0 ? x->dim[x->rank - 1] : 1,
            rows = x->rank > 0 ? product(x, 0, x->rank - 1) : 1;
    struct shape row = {.rank = 1, .dim = {rows}}, col = {.rank = 1, .dim = {cols}};

    switch (n->op) {
    case OP_LAYER_NORM:
        op->u.norm = (struct kern_norm){.rows = rows, .cols = cols, .eps = n->attr.eps};
        op->out[1] = out_buf(l, id, 1, false, &row);
        op->out[2] = out_buf(l, id, 2, false, &row);
        break;
    case OP_RMS_NORM:
        op->u.norm = (struct kern_norm){.rows = rows, .cols = cols, .eps = n->attr.eps};
        op->out[1] = out_buf(l, id, 1, false, &row);
        break;
    case OP_LAYER_NORM_GRAD:
        op->u.norm = (struct kern_norm){.rows = rows, .cols = cols, .eps = n->attr.eps};
        op->out[1] = out_buf(l, id, 1, true, &col);
        op->out[2] = out_buf(l, id, 2, true, &col);
        break;
    case OP_RMS_NORM_GRAD:
        op->u.norm = (struct kern_norm){.rows = rows, .cols = cols, .eps = n->attr.eps};
        op->out[1] = out_buf(l, id, 1, true, &col);
        break;
    case OP_XENT:
        op->u.xent = (struct kern_xent){.rows = rows,
                                        .cols = cols,
                                        .has_ignore = n->attr.has_ignore,
                                        .ignore = (int32_t)n->attr.k};
        op->out[1] = out_buf(l, id, 1, false, &row);
        break;
    case OP_XENT_GRAD:
        op->u.xent = (struct kern_xent){.rows = rows,
                                        .cols = cols,
                                        .has_ignore = n->attr.has_ignore,
                                        .ignore = (int32_t)n->attr.k};
        break;
    default:
        set_axis(op, l, n);
        break;
    }
}

/* xent and xent_grad may come without a smoothing scalar: kernels have a fixed place for it. */
static int input_slot(const struct node *n, int i)
{
    if (n->op == OP_XENT_GRAD && n->n_in == 4 && i >= 2)
        return i + 1;
    return i;
}

static void emit_plain(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    int in[GRAPH_IN], out;
    struct kern_op *op, made;

    for (int i = 0; i < n->n_in; i++)
        in[i] = emit_buf(l, n->in[i]);
    out = own_buf(l, id);
    if (l->rc != ERR_OK)
        return;
    op = op_new(l, (enum kern_code)op_table[n->op].kern, node_label(l, id));
    if (!op) {
        no_memory(l);
        return;
    }
    made = *op;
    for (int i = 0; i < n->n_in; i++)
        made.in[input_slot(n, i)] = in[i];
    made.out[0] = out;
    set_attributes(&made, l, id);
    l->op[l->n_ops - 1] = made;
}

static void emit_kernel(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);

    if (l->info[id].emitted || l->info[id].folded_into >= 0)
        return;
    l->info[id].emitted = true;
    if (l->info[id].epilogue >= 0)
        emit_matmul(l, id, &l->epilogue[l->info[id].epilogue]);
    else if (n->op == OP_PAD)
        emit_pad(l, id);
    else if (n->op == OP_CONCAT)
        emit_concat(l, id);
    else
        emit_plain(l, id);
}

/* ---- roots that are not computed in place ---- */

static void emit_root(struct lowered *l, int r)
{
    const struct plan_root *root = &l->req->roots[r];
    int owner = view_owner(l, root->node), from, to;
    const struct node *n = lower_node(l, root->node);
    struct view in = view_of(l, root->node), out = {0};

    if (l->info[owner].root == r ||
        (root->accumulate && accumulating_root(l, owner) == r && l->info[owner].epilogue >= 0))
        return;
    from = emit_buf(l, in.base);
    to = buf_new(l, root->space, n->dtype, root->offset, shape_count(&n->shape),
                 node_label(l, root->node));
    if (to < 0)
        no_memory(l);
    view_dense(&n->shape, out.stride);
    if (l->rc == ERR_OK)
        fail(l, fuse_copy(l, &n->shape, from, &in, to, &out, root->accumulate,
                          node_label(l, root->node), l->e));
}

enum err_code emit_all(struct lowered *l, struct err *e)
{
    l->e = e;
    for (int id = 0; id < l->n_nodes && l->rc == ERR_OK; id++) {
        int g = l->info[id].group;

        if (!l->info[id].live)
            continue;
        if (lower_is_kernel(l, id) || l->info[id].epilogue >= 0)
            emit_kernel(l, id);
        else if (g >= 0 && !l->group[g].emitted &&
                 l->group[g].member[l->group[g].n_members - 1] == id)
            fail(l, fuse_emit(l, g, e));
        /* a gradient goes where it belongs as soon as it is there, so that its memory is free again
         */
        for (int r = 0; r < l->req->n_roots && l->rc == ERR_OK; r++)
            if (l->req->roots[r].node == id)
                emit_root(l, r);
    }
    return l->rc;
}
