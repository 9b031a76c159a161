/* program.c - from a trace to the programs of a batch size. */
#include "engine/train/program.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

#define RESULT_STEP (KERN_ALIGN / 4) /* results begin at aligned places: elements between two */

enum err_code program_trace(const struct program_maker *m, bool training, int64_t batch,
                            struct trace *out, struct err *e)
{
    struct script_field f[DATA_FIELDS] = {0};

    for (int i = 0; i < m->n_fields; i++) {
        const struct data_field *df = &m->fields[i];

        f[i].name = df->name;
        f[i].shape.rank = df->rank + 1;
        f[i].shape.dim[0] = batch;
        for (int d = 0; d < df->rank; d++)
            f[i].shape.dim[d + 1] = df->dim[d];
        f[i].dtype = DT_F32;
        f[i].open_type = df->is_target;
        f[i].is_target = df->is_target;
    }
    return script_trace(m->script, training, f, m->n_fields, hyper_first_tunable_slot(), out, e);
}

/* ---- building ---- */

struct build {
    const struct program_maker *m;
    const struct trace *t;
    struct program *p;
    struct graph *g;
    struct plan_root *root; /* of the whole program; nodes of b->g */
    int n_roots;
    size_t cap;
};

static enum err_code no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "program: out of memory");
}

static enum err_code add_root(struct build *b, struct plan_root r, struct err *e)
{
    if (mem_grow((void **)&b->root, &b->cap, (size_t)b->n_roots, sizeof r) < 0)
        return no_memory(e);
    b->root[b->n_roots++] = r;
    return ERR_OK;
}

/* A value the host reads back; *at is its index there. */
static enum err_code add_result(struct build *b, int node, int64_t *at, struct err *e)
{
    int64_t count = shape_count(&graph_node(b->g, node)->shape);

    *at = b->p->result_count;
    b->p->result_count += (count + RESULT_STEP - 1) / RESULT_STEP * RESULT_STEP;
    return add_root(b, (struct plan_root){.node = node, .space = KERN_RESULT, .offset = *at * 4},
                    e);
}

/* Is the value of a node the same for every batch of this size? Asked of the optimiser. */
static enum err_code constant_value(const struct graph *g, int node, bool *fixed, double *value,
                                    struct err *e)
{
    struct graph *c = graph_clone(g);
    enum err_code rc;

    if (!c)
        return no_memory(e);
    rc = graph_optimize(c, &node, 1, e);
    *fixed = rc == ERR_OK && graph_node(c, node)->op == OP_CONST;
    *value = *fixed ? graph_node(c, node)->attr.value : 0;
    graph_free(c);
    return rc;
}

static enum err_code add_terms(struct build *b, const struct trace_mean *mean, int *n,
                               struct program_term **out, struct err *e)
{
    struct program_term *t = mem_array((size_t)mean->n + 1, sizeof *t);
    enum err_code rc = ERR_OK;

    *out = t;
    if (!t)
        return no_memory(e);
    for (int i = 0; i < mean->n && rc == ERR_OK; i++) {
        t[i].coef = mean->term[i].coef;
        rc = add_result(b, mean->term[i].sum, &t[i].sum, e);
        if (rc == ERR_OK)
            rc = constant_value(b->g, mean->term[i].weight, &t[i].fixed, &t[i].fixed_weight, e);
        if (rc == ERR_OK && !t[i].fixed)
            rc = add_result(b, mean->term[i].weight, &t[i].weight, e);
        *n = i + 1;
    }
    return rc;
}

static enum err_code add_metrics(struct build *b, struct err *e)
{
    const struct trace *t = b->t;
    enum err_code rc = ERR_OK;

    b->p->metric = mem_array((size_t)t->n_metrics + 1, sizeof *b->p->metric);
    if (!b->p->metric)
        return no_memory(e);
    for (int i = 0; i < t->n_metrics && rc == ERR_OK; i++) {
        const struct trace_metric *tm = &t->metrics[i];
        struct program_metric *pm = &b->p->metric[b->p->n_metrics++];

        snprintf(pm->name, sizeof pm->name, "%s", tm->name);
        snprintf(pm->better, sizeof pm->better, "%s", tm->better);
        pm->is_mean = tm->is_mean;
        if (tm->is_mean) {
            rc = add_terms(b, &tm->mean, &pm->n_terms, &pm->term, e);
            continue;
        }
        pm->stat = mem_array((size_t)tm->n_stats + 1, sizeof *pm->stat);
        if (!pm->stat)
            return no_memory(e);
        for (int k = 0; k < tm->n_stats && rc == ERR_OK; k++) {
            pm->stat[k].count = shape_count(&graph_node(b->g, tm->stats[k])->shape);
            rc = add_result(b, tm->stats[k], &pm->stat[k].first, e);
            pm->n_stats = k + 1;
        }
    }
    return rc;
}

static int term_leaf(struct build *b, int i, struct err *e)
{
    struct shape scalar = {0};
    char name[32];

    snprintf(name, sizeof name, "@weight.%d", i);
    return graph_input(b->g, name, &scalar, DT_F32, e);
}

/* The gradient that enters at a term's sum: coef / total weight of the step. */
static int seed_of(struct build *b, int i, struct err *e)
{
    int w =
        b->p->term[i].fixed ? graph_hyper(b->g, b->m->hyper->term_slot + i, e) : term_leaf(b, i, e);

    if (w >= 0 && !b->p->term[i].fixed)
        w = graph_unary(b->g, (enum op)EW_RECIP, w, e);
    return w < 0 ? -1 : graph_scalar_op(b->g, (enum op)EW_MUL, w, b->p->term[i].coef, false, e);
}

static enum err_code add_gradients(struct build *b, bool accumulate, bool *reached, struct err *e)
{
    const struct trace *t = b->t;
    int nodes[HYPER_TERMS], seeds[HYPER_TERMS], n_wrt = 0;
    int *wrt = mem_array((size_t)t->n_params + 1, sizeof *wrt),
        *grads = mem_array((size_t)t->n_params + 1, sizeof *grads);
    enum err_code rc = wrt && grads ? ERR_OK : no_memory(e);

    if (rc == ERR_OK && t->loss.n > HYPER_TERMS)
        rc =
            err_set(e, ERR_SCRIPT, "the loss has %d means; at most %d fit", t->loss.n, HYPER_TERMS);
    for (int i = 0; i < t->loss.n && rc == ERR_OK; i++) {
        nodes[i] = t->loss.term[i].sum;
        seeds[i] = seed_of(b, i, e);
        if (seeds[i] < 0)
            rc = e ? e->code : ERR_SHAPE;
    }
    for (int i = 0; i < t->n_params; i++)
        if (wrt && t->params[i].node >= 0)
            wrt[n_wrt++] = t->params[i].node;
    if (rc == ERR_OK)
        rc = graph_gradient(b->g, nodes, seeds, t->loss.n, wrt, n_wrt, grads, e);
    for (int i = 0, k = 0; i < t->n_params && rc == ERR_OK; i++) {
        int grad = t->params[i].node >= 0 ? grads[k++] : -1,
            s = store_find(b->m->store, t->params[i].name);

        if (reached)
            reached[s] = grad >= 0;
        if (grad >= 0)
            rc = add_root(b,
                          (struct plan_root){.node = grad,
                                             .space = KERN_GRAD,
                                             .offset = b->m->store->param[s].offset * 4,
                                             .accumulate = accumulate},
                          e);
    }
    mem_free(wrt);
    mem_free(grads);
    return rc;
}

static enum err_code add_weights(struct build *b, struct err *e)
{
    enum err_code rc = ERR_OK;

    for (int i = 0; i < b->t->loss.n && rc == ERR_OK; i++) {
        bool fixed;
        double v;
        rc = constant_value(b->g, b->t->loss.term[i].weight, &fixed, &v, e);
        if (rc == ERR_OK && !fixed)
            rc = add_root(b,
                          (struct plan_root){.node = b->t->loss.term[i].weight,
                                             .space = KERN_STEP,
                                             .offset = PLAN_STEP_BYTES + i * KERN_ALIGN,
                                             .accumulate = true},
                          e);
    }
    return rc;
}

static enum err_code optimise(struct build *b, struct err *e)
{
    int *id = mem_array((size_t)b->n_roots + 1, sizeof *id);
    enum err_code rc;

    if (!id)
        return no_memory(e);
    for (int i = 0; i < b->n_roots; i++)
        id[i] = b->root[i].node;
    rc = graph_optimize(b->g, id, b->n_roots, e);
    for (int i = 0; i < b->n_roots; i++)
        b->root[i].node = id[i];
    mem_free(id);
    return rc;
}

static enum err_code add_input(struct build *b, const struct node *n, struct plan_leaf *leaf,
                               struct err *e)
{
    struct program *p = b->p;
    struct program_input in = {
        .field = -1, .dtype = n->dtype, .count = shape_count(&n->shape), .offset = p->input_bytes};
    size_t len = strlen(n->name);
    int term;

    if (sscanf(n->name, "@weight.%d", &term) == 1) {
        *leaf = (struct plan_leaf){n->name, KERN_STEP, PLAN_STEP_BYTES + term * KERN_ALIGN};
        return ERR_OK;
    }
    if (len > 6 && strcmp(n->name + len - 6, ".class") == 0)
        len -= 6;
    for (int i = 0; i < b->m->n_fields; i++)
        if (strlen(b->m->fields[i].name) == len && strncmp(b->m->fields[i].name, n->name, len) == 0)
            in.field = i;
    if (in.field < 0 || p->n_inputs == DATA_FIELDS)
        return err_set(e, ERR_SCRIPT, "the model reads '%s', which the data do not have", n->name);
    if (in.dtype == DT_F32 && !b->m->fields[in.field].can_f32)
        return err_set(e, ERR_DATA,
                       "the model uses '%s' as a number, but it is a column of text classes",
                       n->name);
    if (in.dtype == DT_I32 && !b->m->fields[in.field].can_i32)
        return err_set(
            e, ERR_DATA,
            "the model uses '%.*s' as class ids, but it has values that are no whole numbers",
            (int)len, n->name);
    p->input[p->n_inputs++] = in;
    p->input_bytes += (in.count * dtype_size(in.dtype) + KERN_ALIGN - 1) / KERN_ALIGN * KERN_ALIGN;
    *leaf = (struct plan_leaf){n->name, KERN_INPUT, in.offset};
    return ERR_OK;
}

static enum err_code lower(struct build *b, struct err *e)
{
    struct plan_leaf *leaf = mem_array((size_t)graph_count(b->g) + 1, sizeof *leaf);
    struct plan_request r = {
        .graph = b->g, .leaves = leaf, .roots = b->root, .n_roots = b->n_roots};
    enum err_code rc = leaf ? ERR_OK : no_memory(e);

    for (int i = 0; i < graph_count(b->g) && rc == ERR_OK; i++) {
        const struct node *n = graph_node(b->g, i);
        if (n->op == OP_INPUT) {
            rc = add_input(b, n, &leaf[r.n_leaves++], e);
        } else if (n->op == OP_PARAM) {
            int s = store_find(b->m->store, n->name);
            leaf[r.n_leaves++] =
                (struct plan_leaf){n->name, KERN_PARAM, b->m->store->param[s].offset * 4};
        }
    }
    if (rc == ERR_OK)
        rc = plan_lower(&r, &b->p->low, e);
    mem_free(leaf);
    return rc;
}

static enum err_code fill(struct build *b, bool *reached, struct err *e)
{
    enum program_kind kind = b->p->kind;
    enum err_code rc;

    if (kind == PROGRAM_WEIGH)
        return add_weights(b, e);
    rc = add_terms(b, &b->t->loss, &b->p->n_terms, &b->p->term, e);
    if (rc == ERR_OK)
        rc = add_metrics(b, e);
    if (rc == ERR_OK && kind != PROGRAM_EVAL)
        rc = add_gradients(b, kind == PROGRAM_NEXT, reached, e);
    return rc;
}

enum err_code program_new(const struct program_maker *m, const struct trace *t,
                          enum program_kind kind, int64_t batch, bool *reached,
                          struct program **out, struct err *e)
{
    struct program *p = mem_zalloc(sizeof *p);
    struct build b = {.m = m, .t = t, .p = p, .g = graph_clone(t->graph)};
    enum err_code rc = p && b.g ? ERR_OK : no_memory(e);

    *out = NULL;
    if (rc == ERR_OK) {
        p->kind = kind;
        p->batch = batch;
        rc = fill(&b, reached, e);
    }
    if (rc == ERR_OK && b.n_roots > 0)
        rc = optimise(&b, e);
    if (rc == ERR_OK && b.n_roots > 0)
        rc = lower(&b, e);
    if (rc == ERR_OK && b.n_roots > 0)
        *out = p;
    else
        program_free(p);
    graph_free(b.g);
    mem_free(b.root);
    return rc;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_metrics; i++) {
        mem_free(p->metric[i].term);
        mem_free(p->metric[i].stat);
    }
    mem_free(p->metric);
    mem_free(p->term);
    plan_free(p->plan);
    lowered_free(p->low);
    mem_free(p);
}

enum err_code program_compile(const struct program_maker *m, struct program *p, struct err *e)
{
    return p->plan ? ERR_OK : plan_compile(m->d, p->low, &p->plan, e);
}
