/* print.c - a graph as text and as DOT, its hash, its FLOPs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/graph/priv.h"

static void print_attr(const struct node *n, struct str *out)
{
    char num[32];

    switch ((int)n->op) {
    case OP_CONST:
        str_addf(out, " %s", str_double(num, n->attr.value));
        break;
    case OP_HYPER:
        str_addf(out, " slot %d", n->attr.slot);
        break;
    case OP_MATMUL:
        str_addf(out, "%s%s", n->attr.ta ? " ta" : "", n->attr.tb ? " tb" : "");
        break;
    case OP_OUT:
    case OP_TOPK_IDX:
        str_addf(out, " %" PRId64, n->attr.k);
        break;
    case OP_PERMUTE:
        for (int d = 0; d < n->shape.rank; d++)
            str_addf(out, " %d", n->attr.perm[d] + 1);
        break;
    case OP_SUM:
    case OP_RMAX:
    case OP_RMIN:
    case OP_PROD:
    case OP_FLIP:
        for (int d = 0; d < SHAPE_RANK; d++)
            if (n->attr.axes >> d & 1)
                str_addf(out, " axis %d", d + 1);
        break;
    case OP_CONCAT:
    case OP_ARGMAX:
    case OP_CUMSUM:
    case OP_TAKE:
    case OP_TAKE_ALONG:
    case OP_SCATTER_ADD:
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX:
    case OP_LOGSUMEXP:
    case OP_IOTA:
        str_addf(out, " axis %d", n->attr.axis + 1);
        break;
    default:
        break;
    }
}

void graph_print(const struct graph *g, struct str *out)
{
    char shape[128];

    for (int i = 0; i < g->n; i++) {
        const struct node *n = &g->node[i];

        str_addf(out, "%%%d %s %s %s", i, op_name(n->op), dtype_name(n->dtype),
                 shape_text(shape, sizeof shape, &n->shape));
        if (*n->name)
            str_addf(out, " %s", n->name);
        print_attr(n, out);
        for (int k = 0; k < n->n_in; k++)
            str_addf(out, "%s%%%d", k ? " " : "  ", n->in[k]);
        if (*n->path)
            str_addf(out, "  %s", n->path);
        if (*n->where)
            str_addf(out, "  %s", n->where);
        str_addc(out, '\n');
    }
}

/* A label between quotes: nothing of a name may end it. */
static void dot_text(struct str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            str_addc(out, '\\');
        str_addc(out, (unsigned char)*text < 0x20 ? ' ' : *text);
    }
}

void graph_print_dot(const struct graph *g, struct str *out)
{
    char shape[128];

    str_add(out, "digraph model {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\"];\n");
    for (int i = 0; i < g->n; i++) {
        const struct node *n = &g->node[i];

        str_addf(out, "  n%d [label=\"%s %s\\n", i, op_name(n->op),
                 shape_text(shape, sizeof shape, &n->shape));
        dot_text(out, *n->name ? n->name : n->path);
        str_addf(out, "\"%s];\n", n->op == OP_PARAM || n->op == OP_INPUT ? ", style=rounded" : "");
        for (int k = 0; k < n->n_in; k++)
            str_addf(out, "  n%d -> n%d;\n", n->in[k], i);
    }
    str_add(out, "}\n");
}

void graph_hash(const struct graph *g, char hex[65])
{
    struct sha256 h;

    sha256_init(&h);
    for (int i = 0; i < g->n; i++) {
        const struct node *n = &g->node[i];
        int32_t head[4] = {(int32_t)n->op, (int32_t)n->dtype, n->shape.rank, n->n_in};
        const struct op_attr *a = &n->attr;
        int64_t more[] = {a->dtype, a->axis,    a->axes,      a->keep,       a->ta,
                          a->tb,    a->reverse, a->exclusive, a->has_ignore, a->per_sample,
                          a->k,     a->slot,    a->stream,    a->shape.rank};

        /* field by field: padding must not count */
        sha256_update(&h, head, sizeof head);
        sha256_update(&h, n->shape.dim, sizeof n->shape.dim);
        sha256_update(&h, n->in, sizeof n->in);
        sha256_update(&h, more, sizeof more);
        sha256_update(&h, a->shape.dim, sizeof a->shape.dim);
        sha256_update(&h, a->perm, sizeof a->perm);
        sha256_update(&h, a->start, sizeof a->start);
        sha256_update(&h, a->stop, sizeof a->stop);
        sha256_update(&h, a->step, sizeof a->step);
        sha256_update(&h, &a->value, sizeof a->value);
        sha256_update(&h, &a->eps, sizeof a->eps);
        sha256_update(&h, n->name, strlen(n->name) + 1);
    }
    sha256_final(&h, hex);
}

double graph_flops(const struct graph *g, int id)
{
    const struct node *n = graph_node(g, id);
    double out = (double)shape_count(&n->shape),
           in = n->n_in > 0 ? (double)shape_count(&graph_node(g, n->in[0])->shape) : 0;
    const struct shape *a;

    switch ((int)n->op) {
    case OP_MATMUL:
        a = &graph_node(g, n->in[0])->shape;
        return 2 * out * (double)a->dim[a->rank - (n->attr.ta ? 2 : 1)];
    case OP_SUM:
    case OP_RMAX:
    case OP_RMIN:
    case OP_PROD:
    case OP_ARGMAX:
        return in;
    case OP_XENT:
    case OP_LOGSUMEXP:
        return 4 * in;
    default:
        return op_table[n->op].flops_per_out * out;
    }
}
