/* infer.c - shape rules: one a family of ops. Each fills the shape and type of output 0 or refuses
 * with both shapes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/priv.h"

#define IN(i) (graph_node(g, in[i]))
#define SHAPE(i) (&graph_node(g, in[i])->shape)

static const struct shape scalar;

static enum err_code refuse(const struct graph *g, enum op op, const int *in, int n_in,
                            const char *why, struct err *e)
{
    char text[3][128] = {"", "", ""};

    for (int i = 0; i < n_in && i < 3; i++)
        shape_text(text[i], sizeof text[i], SHAPE(i));
    if (n_in == 1)
        return err_set(e, ERR_SHAPE, "%s of %s: %s", op_name(op), text[0], why);
    if (n_in == 2)
        return err_set(e, ERR_SHAPE, "%s: %s x %s: %s", op_name(op), text[0], text[1], why);
    return err_set(e, ERR_SHAPE, "%s: %s, %s, %s: %s", op_name(op), text[0], text[1], text[2], why);
}

static enum err_code want_type(const struct graph *g, enum op op, const int *in, int i,
                               enum dtype t, struct err *e)
{
    if (IN(i)->dtype == t)
        return ERR_OK;
    return err_set(e, ERR_SHAPE, "%s: input %d is %s, %s is needed", op_name(op), i + 1,
                   dtype_name(IN(i)->dtype), dtype_name(t));
}

static bool axis_is_good(int axis, const struct shape *s)
{
    return axis >= 0 && axis < s->rank;
}

#define INFER(name)                                                                                \
    enum err_code infer_##name(const struct graph *g, enum op op, const int *in, int n_in,         \
                               const struct op_attr *attr, struct shape *shape, enum dtype *dtype, \
                               struct err *e)
#define UNUSED                                                                                     \
    (void)g, (void)op, (void)in, (void)n_in, (void)attr, (void)shape, (void)dtype, (void)e

static bool const_fits(double v, enum dtype t)
{
    if (t == DT_BOOL)
        return v == 0 || v == 1;
    if (t == DT_I32)
        return v >= INT32_MIN && v <= INT32_MAX && v == (double)(int32_t)v;
    return true;
}

INFER(leaf)
{
    UNUSED;
    *shape = op == OP_HYPER ? scalar : attr->shape;
    *dtype = op == OP_HYPER || op == OP_RNG_UNIFORM ? DT_F32
             : op == OP_RNG_BITS                    ? DT_I32
                                                    : attr->dtype;
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] < 0)
            return err_set(e, ERR_SHAPE, "%s: a dimension of %" PRId64, op_name(op), shape->dim[d]);
    if (attr->per_sample && shape->rank < 1)
        return err_set(e, ERR_SHAPE, "%s: [] has no dimension of samples", op_name(op));
    if (op == OP_CONST && !const_fits(attr->value, attr->dtype))
        return err_set(e, ERR_SHAPE, "const: %g is no %s", attr->value, dtype_name(attr->dtype));
    if (op == OP_IOTA && !axis_is_good(attr->axis, shape))
        return err_set(e, ERR_SHAPE, "iota: axis %d of rank %d", attr->axis + 1, shape->rank);
    return ERR_OK;
}

static const uint8_t ew_rules[EW_COUNT] = {
#define X(name, text, arity, rule) [EW_##name] = EW_RULE_##rule,
    EW_MAP(X)
#undef X
};

INFER(ew)
{
    int first = op == (enum op)EW_SELECT ? 1 : 0;
    enum dtype t = IN(first)->dtype;
    enum err_code rc = ERR_OK;

    UNUSED;
    for (int i = 0; i < n_in; i++)
        if (!shape_equal(SHAPE(i), SHAPE(0)))
            return refuse(g, op, in, n_in, "shapes differ", e);
    for (int i = first; i < n_in && rc == ERR_OK; i++)
        rc = want_type(g, op, in, i, t, e);
    switch (ew_rules[op]) {
    case EW_RULE_F32:
        rc = rc == ERR_OK ? want_type(g, op, in, 0, DT_F32, e) : rc;
        break;
    case EW_RULE_LOGIC:
        rc = rc == ERR_OK ? want_type(g, op, in, 0, DT_BOOL, e) : rc;
        break;
    case EW_RULE_SEL:
        rc = rc == ERR_OK ? want_type(g, op, in, 0, DT_BOOL, e) : rc;
        break;
    case EW_RULE_SAME:
        if (t != DT_F32 && t != DT_I32)
            rc = err_set(e, ERR_SHAPE, "%s: of %s values; cast them first", op_name(op),
                         dtype_name(t));
        break;
    default:
        if (op == (enum op)EW_ISFINITE)
            rc = rc == ERR_OK ? want_type(g, op, in, 0, DT_F32, e) : rc;
        break;
    }
    *shape = *SHAPE(0);
    *dtype = ew_rules[op] == EW_RULE_BOOL ? DT_BOOL : t;
    return rc;
}

INFER(cast)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = attr->dtype;
    if (attr->dtype != DT_F32 && attr->dtype != DT_I32 && attr->dtype != DT_BOOL)
        return err_set(e, ERR_SHAPE, "cast: to %s is not there", dtype_name(attr->dtype));
    return ERR_OK;
}

INFER(dropout)
{
    enum err_code rc = want_type(g, op, in, 0, DT_F32, e);

    UNUSED;
    *shape = *SHAPE(0);
    *dtype = DT_F32;
    if (rc == ERR_OK)
        rc = want_type(g, op, in, 1, DT_F32, e);
    if (rc == ERR_OK && shape_count(SHAPE(1)) != 1)
        return refuse(g, op, in, n_in, "the rate must be one number", e);
    if (rc == ERR_OK && attr->per_sample && shape->rank < 1)
        return refuse(g, op, in, n_in, "there is no dimension of samples", e);
    return rc;
}

INFER(reshape)
{
    UNUSED;
    *shape = attr->shape;
    *dtype = IN(0)->dtype;
    /* one that is too large is refused as every result is */
    if (shape_count(shape) >= 0 && shape_count(shape) != shape_count(SHAPE(0))) {
        char a[128], b[128];
        return err_set(e, ERR_SHAPE, "reshape: %s has %" PRId64 " elements, %s has %" PRId64,
                       shape_text(a, sizeof a, SHAPE(0)), shape_count(SHAPE(0)),
                       shape_text(b, sizeof b, shape), shape_count(shape));
    }
    return ERR_OK;
}

INFER(permute)
{
    uint32_t seen = 0;

    UNUSED;
    *shape = *SHAPE(0);
    *dtype = IN(0)->dtype;
    for (int d = 0; d < shape->rank; d++) {
        int from = attr->perm[d];
        if (from < 0 || from >= shape->rank || seen & 1u << from)
            return refuse(g, op, in, n_in, "the axes are no permutation", e);
        seen |= 1u << from;
        shape->dim[d] = SHAPE(0)->dim[from];
    }
    return ERR_OK;
}

INFER(broadcast)
{
    struct shape both;

    UNUSED;
    *shape = attr->shape;
    *dtype = IN(0)->dtype;
    if (!shape_broadcast(SHAPE(0), shape, &both) || !shape_equal(&both, shape)) {
        char a[128], b[128];
        return err_set(e, ERR_SHAPE, "broadcast: %s does not stretch to %s",
                       shape_text(a, sizeof a, SHAPE(0)), shape_text(b, sizeof b, shape));
    }
    return ERR_OK;
}

INFER(slice)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = IN(0)->dtype;
    for (int d = 0; d < shape->rank; d++) {
        int64_t from = attr->start[d], to = attr->stop[d], step = attr->step[d];
        char text[128];

        if (from < 0 || to < from || to > shape->dim[d] || step < 1)
            return err_set(e, ERR_SHAPE,
                           "slice of %s: %" PRId64 " .. %" PRId64 " step %" PRId64
                           " of dimension %d",
                           shape_text(text, sizeof text, SHAPE(0)), from + 1, to, step, d + 1);
        shape->dim[d] = to == from ? 0 : (to - from - 1) / step + 1;
    }
    return ERR_OK;
}

INFER(pad)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = IN(0)->dtype;
    for (int d = 0; d < shape->rank; d++) {
        if (attr->start[d] < 0 || attr->stop[d] < 0 ||
            __builtin_add_overflow(shape->dim[d], attr->start[d], &shape->dim[d]) ||
            __builtin_add_overflow(shape->dim[d], attr->stop[d], &shape->dim[d]))
            return refuse(g, op, in, n_in, "a padding is negative or too large", e);
    }
    return ERR_OK;
}

INFER(concat)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = IN(0)->dtype;
    if (!axis_is_good(attr->axis, shape))
        return refuse(g, op, in, 1, "no such axis", e);
    for (int i = 1; i < n_in; i++) {
        if (SHAPE(i)->rank != shape->rank || IN(i)->dtype != *dtype)
            return refuse(g, op, (int[]){in[0], in[i]}, 2, "ranks or types differ", e);
        for (int d = 0; d < shape->rank; d++)
            if (d != attr->axis && SHAPE(i)->dim[d] != shape->dim[d])
                return refuse(g, op, (int[]){in[0], in[i]}, 2,
                              "differ in another dimension than the joined one", e);
        if (__builtin_add_overflow(shape->dim[attr->axis], SHAPE(i)->dim[attr->axis],
                                   &shape->dim[attr->axis]))
            return refuse(g, op, in, 1, "too large", e);
    }
    return ERR_OK;
}

INFER(flip)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = IN(0)->dtype;
    return attr->axes >> shape->rank ? refuse(g, op, in, n_in, "no such axis", e) : ERR_OK;
}

INFER(reduce)
{
    const struct shape *s = SHAPE(0);
    struct shape r = {0};
    int runs = 0;

    UNUSED;
    for (int d = 0; d < s->rank; d++) {
        bool reduced = attr->axes >> d & 1, before = d > 0 && attr->axes >> (d - 1) & 1;
        runs += reduced && !before;
        if (!reduced)
            r.dim[r.rank++] = s->dim[d];
        else if (attr->keep)
            r.dim[r.rank++] = 1;
    }
    *shape = r;
    *dtype = DT_F32;
    if (attr->axes >> s->rank)
        return refuse(g, op, in, n_in, "no such axis", e);
    if (runs > 1)
        return refuse(g, op, in, n_in, "one node reduces neighbouring axes only", e);
    return want_type(g, op, in, 0, DT_F32, e);
}

/* The shape without one dimension. */
static struct shape without(const struct shape *s, int axis)
{
    struct shape r = {0};

    for (int d = 0; d < s->rank; d++)
        if (d != axis)
            r.dim[r.rank++] = s->dim[d];
    return r;
}

INFER(argmax)
{
    UNUSED;
    if (!axis_is_good(attr->axis, SHAPE(0)))
        return refuse(g, op, in, n_in, "no such axis", e);
    if (SHAPE(0)->dim[attr->axis] == 0)
        return refuse(g, op, in, n_in, "nothing along the axis", e);
    *shape = without(SHAPE(0), attr->axis);
    *dtype = DT_I32;
    return want_type(g, op, in, 0, DT_F32, e);
}

INFER(topk)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = DT_I32;
    if (shape->rank < 1 || attr->axis != shape->rank - 1)
        return refuse(g, op, in, n_in, "works along the last axis", e);
    if (attr->k < 1 || attr->k > shape->dim[attr->axis])
        return refuse(g, op, in, n_in, "k is not in 1 .. the number of columns", e);
    shape->dim[attr->axis] = attr->k;
    return want_type(g, op, in, 0, DT_F32, e);
}

INFER(cumsum)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = DT_F32;
    if (!axis_is_good(attr->axis, shape))
        return refuse(g, op, in, n_in, "no such axis", e);
    return want_type(g, op, in, 0, DT_F32, e);
}

INFER(matmul)
{
    const struct shape *a = SHAPE(0), *b = SHAPE(1);
    int64_t m, k, k2, n;
    enum err_code rc = want_type(g, op, in, 0, DT_F32, e);
    char why[80];

    UNUSED;
    if (rc == ERR_OK)
        rc = want_type(g, op, in, 1, DT_F32, e);
    if (rc != ERR_OK)
        return rc;
    if (a->rank < 2 || b->rank < 2)
        return refuse(g, op, in, n_in, "both need two dimensions", e);
    m = a->dim[a->rank - (attr->ta ? 1 : 2)];
    k = a->dim[a->rank - (attr->ta ? 2 : 1)];
    k2 = b->dim[b->rank - (attr->tb ? 1 : 2)];
    n = b->dim[b->rank - (attr->tb ? 2 : 1)];
    if (k != k2) {
        snprintf(why, sizeof why, "inner sizes %" PRId64 " and %" PRId64 " differ", k, k2);
        return refuse(g, op, in, n_in, why, e);
    }
    /* leading dimensions alike, or one operand is a plain matrix */
    *shape = a->rank >= b->rank ? *a : *b;
    *dtype = DT_F32;
    if (a->rank > 2 && b->rank > 2) {
        if (a->rank != b->rank)
            return refuse(g, op, in, n_in, "leading dimensions differ", e);
        for (int d = 0; d < a->rank - 2; d++)
            if (a->dim[d] != b->dim[d])
                return refuse(g, op, in, n_in, "leading dimensions differ", e);
    }
    shape->dim[shape->rank - 2] = m;
    shape->dim[shape->rank - 1] = n;
    return ERR_OK;
}

INFER(take)
{
    const struct shape *x = SHAPE(0), *idx = SHAPE(1);
    struct shape r = {0};
    enum err_code rc = want_type(g, op, in, 1, DT_I32, e);

    UNUSED;
    if (rc == ERR_OK)
        rc = want_type(g, op, in, 0, DT_F32, e);
    if (rc == ERR_OK && (!axis_is_good(attr->axis, x) || x->rank - 1 + idx->rank > SHAPE_RANK))
        rc = refuse(g, op, in, n_in, "no such axis, or more than 6 dimensions", e);
    if (rc != ERR_OK)
        return rc;
    for (int d = 0; d < x->rank; d++)
        if (d != attr->axis)
            r.dim[r.rank++] = x->dim[d];
        else
            for (int i = 0; i < idx->rank; i++)
                r.dim[r.rank++] = idx->dim[i];
    *shape = r;
    *dtype = DT_F32;
    return ERR_OK;
}

INFER(take_grad)
{
    const struct shape *src = SHAPE(0), *idx = SHAPE(1), *r = &attr->shape;
    int64_t want = shape_count(idx);
    enum err_code rc = want_type(g, op, in, 1, DT_I32, e);

    UNUSED;
    if (rc == ERR_OK)
        rc = want_type(g, op, in, 0, DT_F32, e);
    if (rc == ERR_OK && !axis_is_good(attr->axis, r))
        rc = refuse(g, op, in, n_in, "no such axis", e);
    for (int d = 0; rc == ERR_OK && d < r->rank; d++)
        if (d != attr->axis && __builtin_mul_overflow(want, r->dim[d], &want))
            rc = refuse(g, op, in, n_in, "too large", e);
    if (rc == ERR_OK && want != shape_count(src))
        rc = refuse(g, op, in, n_in, "rows and indices do not agree", e);
    *shape = *r;
    *dtype = DT_F32;
    return rc;
}

static enum err_code along(const struct graph *g, enum op op, const int *in, int n_in, int idx,
                           int axis, struct err *e)
{
    const struct shape *x = SHAPE(0), *i = SHAPE(idx);
    enum err_code rc = want_type(g, op, in, idx, DT_I32, e);

    if (rc != ERR_OK)
        return rc;
    if (x->rank != i->rank || !axis_is_good(axis, x))
        return refuse(g, op, in, n_in, "ranks differ, or no such axis", e);
    for (int d = 0; d < x->rank; d++)
        if (d != axis && x->dim[d] != i->dim[d])
            return refuse(g, op, in, n_in, "differ in another dimension than the indexed one", e);
    return want_type(g, op, in, 0, DT_F32, e);
}

INFER(take_along)
{
    UNUSED;
    *shape = *SHAPE(1);
    *dtype = DT_F32;
    return along(g, op, in, n_in, 1, attr->axis, e);
}

INFER(scatter_add)
{
    enum err_code rc = along(g, op, in, n_in, 1, attr->axis, e);

    UNUSED;
    *shape = *SHAPE(0);
    *dtype = DT_F32;
    if (rc == ERR_OK && !shape_equal(SHAPE(1), SHAPE(2)))
        rc = refuse(g, op, in, n_in, "indices and values differ in shape", e);
    return rc == ERR_OK ? want_type(g, op, in, 2, DT_F32, e) : rc;
}

INFER(softmax)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = DT_F32;
    if (!axis_is_good(attr->axis, shape))
        return refuse(g, op, in, n_in, "no such axis", e);
    return want_type(g, op, in, 0, DT_F32, e);
}

INFER(logsumexp)
{
    UNUSED;
    *dtype = DT_F32;
    if (!axis_is_good(attr->axis, SHAPE(0)))
        return refuse(g, op, in, n_in, "no such axis", e);
    *shape = without(SHAPE(0), attr->axis);
    return want_type(g, op, in, 0, DT_F32, e);
}

INFER(same)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = IN(0)->dtype;
    return ERR_OK;
}

static enum err_code norm(const struct graph *g, enum op op, const int *in, int n_in, int x,
                          const int *rows, const int *cols, const struct op_attr *attr,
                          struct err *e)
{
    const struct shape *s = SHAPE(x);
    enum err_code rc = ERR_OK;
    struct shape row;
    int64_t n;

    if (s->rank < 1 || !(attr->eps > 0))
        return refuse(g, op, in, n_in, "needs a dimension and eps above 0", e);
    n = s->dim[s->rank - 1];
    row = without(s, s->rank - 1);
    for (int i = 0; i < n_in && rc == ERR_OK; i++)
        rc = want_type(g, op, in, i, DT_F32, e);
    for (; *cols >= 0 && rc == ERR_OK; cols++)
        if (shape_count(SHAPE(*cols)) != n)
            rc = refuse(g, op, in, n_in, "gain and bias need one number a column", e);
    for (; *rows >= 0 && rc == ERR_OK; rows++)
        if (shape_count(SHAPE(*rows)) != shape_count(&row))
            rc = refuse(g, op, in, n_in, "one number a row is needed", e);
    return rc;
}

INFER(layer_norm)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = DT_F32;
    return norm(g, op, in, n_in, 0, (int[]){-1}, (int[]){1, 2, -1}, attr, e);
}

INFER(layer_norm_grad)
{
    UNUSED;
    *shape = *SHAPE(1);
    *dtype = DT_F32;
    if (!shape_equal(SHAPE(0), SHAPE(1)))
        return refuse(g, op, in, 2, "shapes differ", e);
    return norm(g, op, in, n_in, 1, (int[]){3, 4, -1}, (int[]){2, -1}, attr, e);
}

INFER(rms_norm)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = DT_F32;
    return norm(g, op, in, n_in, 0, (int[]){-1}, (int[]){1, -1}, attr, e);
}

INFER(rms_norm_grad)
{
    UNUSED;
    *shape = *SHAPE(1);
    *dtype = DT_F32;
    if (!shape_equal(SHAPE(0), SHAPE(1)))
        return refuse(g, op, in, 2, "shapes differ", e);
    return norm(g, op, in, n_in, 1, (int[]){3, -1}, (int[]){2, -1}, attr, e);
}

static enum err_code labels_fit(const struct graph *g, enum op op, const int *in, int n_in,
                                struct err *e)
{
    const struct shape *x = SHAPE(0);
    enum err_code rc = want_type(g, op, in, 0, DT_F32, e);
    struct shape row;

    if (rc == ERR_OK)
        rc = want_type(g, op, in, 1, DT_I32, e);
    if (rc == ERR_OK && x->rank < 1)
        rc = refuse(g, op, in, n_in < 2 ? n_in : 2, "logits need a dimension of classes", e);
    if (rc != ERR_OK)
        return rc;
    row = without(x, x->rank - 1);
    return shape_equal(&row, SHAPE(1))
               ? ERR_OK
               : refuse(g, op, in, 2, "one label a row of logits is needed", e);
}

INFER(xent)
{
    UNUSED;
    *shape = *SHAPE(1);
    *dtype = DT_F32;
    if (n_in == 3 && shape_count(SHAPE(2)) != 1)
        return refuse(g, op, in, n_in, "smoothing must be one number", e);
    if (n_in == 3 && want_type(g, op, in, 2, DT_F32, e) != ERR_OK)
        return ERR_SHAPE;
    return labels_fit(g, op, in, n_in, e);
}

INFER(xent_grad)
{
    UNUSED;
    *shape = *SHAPE(0);
    *dtype = DT_F32;
    for (int i = n_in - 2; i < n_in; i++)
        if (shape_count(SHAPE(i)) != shape_count(SHAPE(1)))
            return refuse(g, op, in, 2, "one number a row is needed", e);
    for (int i = 2; i < n_in; i++)
        if (want_type(g, op, in, i, DT_F32, e) != ERR_OK)
            return ERR_SHAPE;
    return labels_fit(g, op, in, n_in, e);
}

/* The shape of output k of a node. */
static bool out_shape(const struct node *n, int64_t k, struct shape *s)
{
    struct shape cols = {.rank = 1};

    switch (n->op) {
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
        *s = without(&n->shape, n->shape.rank - 1);
        return k <= (n->op == OP_LAYER_NORM ? 2 : 1);
    case OP_LAYER_NORM_GRAD:
    case OP_RMS_NORM_GRAD:
        cols.dim[0] = n->shape.dim[n->shape.rank - 1];
        *s = cols;
        return k <= (n->op == OP_LAYER_NORM_GRAD ? 2 : 1);
    case OP_XENT:
        *s = n->shape;
        return k <= 1;
    default:
        return false;
    }
}

INFER(out)
{
    const struct node *n = IN(0);

    UNUSED;
    *dtype = DT_F32;
    if (attr->k < 1 || !out_shape(n, attr->k, shape))
        return err_set(e, ERR_INTERNAL, "out: %s has no output %" PRId64, op_name(n->op), attr->k);
    return ERR_OK;
}
