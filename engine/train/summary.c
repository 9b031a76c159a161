/* summary.c - what `check` shows of a trainer. */
#include "engine/train/session.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/clock.h"

static struct trainer_layer *layer_at(struct trainer *t, const struct node *n)
{
    for (int i = 0; i < t->n_layers; i++)
        if (strncmp(t->layer[i].path, n->path, sizeof t->layer[i].path - 1) == 0)
            return &t->layer[i];
    snprintf(t->layer[t->n_layers].path, sizeof t->layer[0].path, "%s", n->path);
    snprintf(t->layer[t->n_layers].where, sizeof t->layer[0].where, "%s", n->where);
    return &t->layer[t->n_layers++];
}

static void count_params(struct trainer *t)
{
    for (int i = 0; i < t->store.n; i++) {
        const struct store_param *p = &t->store.param[i];
        struct trainer_layer *best = NULL;
        size_t longest = 0;

        /* a parameter belongs to the layer whose path is the longest beginning of its name */
        for (int k = 0; k < t->n_layers; k++) {
            size_t n = strlen(t->layer[k].path);
            if (n > 0 && n >= longest && strncmp(p->name, t->layer[k].path, n) == 0 &&
                p->name[n] == '.') {
                best = &t->layer[k];
                longest = n;
            }
        }
        if (best)
            best->params += p->count;
    }
}

enum err_code summary_layers(struct trainer *t, struct err *e)
{
    const struct graph *g = t->trace.graph;
    double *most = mem_array((size_t)graph_count(g) + 1,
                             sizeof *most); /* by layer: FLOPs of the op it is named by */

    t->layer = mem_array((size_t)graph_count(g) + 1, sizeof *t->layer);
    if (!t->layer || !most) {
        mem_free(most);
        return err_set(e, ERR_NOMEM, "summary: out of memory");
    }
    for (int i = 0; i < graph_count(g); i++) {
        const struct node *n = graph_node(g, i);
        struct trainer_layer *l;
        double flops;

        if (!*n->path || n->op == OP_PARAM || n->op == OP_CONST || n->op == OP_HYPER ||
            n->op == OP_OUT)
            continue;
        l = layer_at(t, n);
        flops = graph_flops(g, i);
        if (!*l->op || flops > most[l - t->layer]) {
            snprintf(l->op, sizeof l->op, "%s", op_name(n->op));
            most[l - t->layer] = flops;
        }
        l->flops += flops;
        l->shape = n->shape;
        l->bytes = shape_count(&n->shape) * dtype_size(n->dtype);
    }
    mem_free(most);
    count_params(t);
    return ERR_OK;
}

void trainer_summary(const struct trainer *t, struct trainer_summary *o)
{
    const struct program *eval = NULL;

    memset(o, 0, sizeof *o);
    for (int i = 0; i < t->n_programs; i++)
        if (t->program[i]->kind == PROGRAM_EVAL && !eval)
            eval = t->program[i];
    o->n_layers = t->n_layers;
    o->layer = t->layer;
    o->params = t->store.total;
    for (int i = 0; i < t->store.n; i++)
        if (t->store.param[i].group >= 0)
            o->trainable += t->store.param[i].count;
    o->train_samples = t->train_count;
    o->valid_samples = t->valid_count;
    o->steps = t->steps;
    o->steps_per_epoch = t->steps_per_epoch;
    o->report = lowered_report(t->program[0]->low);
    o->eval_report = eval ? lowered_report(eval->low) : NULL;
    o->flops_step = o->report->flops;
    o->mem_params = t->store.params.bytes;
    o->mem_grads = t->store.grads.bytes;
    o->mem_state = t->store.state.bytes;
    o->mem_arena = t->arena.bytes;
    o->mem_input = t->input.bytes;
    o->mem_total = o->mem_params + o->mem_grads + o->mem_state + o->mem_arena + o->mem_input;
    o->device = t->d->describe;
    o->device_why = t->d->why;
    graph_hash(t->trace.graph, o->graph_hash);
}

void trainer_groups(const struct trainer *t, struct str *out)
{
    for (int i = 0; i < t->store.n; i++) {
        const struct store_param *p = &t->store.param[i];
        char shape[96];

        str_addf(out, "%-32s %-16s ", p->name, shape_text(shape, sizeof shape, &p->shape));
        if (p->group < 0)
            str_addf(out, "not trained  %s\n", p->group_why);
        else
            str_addf(out, "lr x%g  decay x%g  %s\n", t->hyper.group[p->group].lr,
                     t->hyper.group[p->group].decay, p->group_why);
    }
}

void trainer_print_plan(const struct trainer *t, struct str *out)
{
    lowered_print(t->program[0]->low, out);
}

void trainer_print_graph(const struct trainer *t, bool dot, struct str *out)
{
    if (dot)
        graph_print_dot(t->trace.graph, out);
    else
        graph_print(t->trace.graph, out);
}

enum err_code trainer_trial(struct trainer *t, double *step_seconds, struct err *e)
{
    double begin = 0, now = 0;
    int64_t done = 0;
    enum err_code rc = ERR_OK;

    for (int i = 0; rc == ERR_OK && (i < 7 || now - begin < 0.2) && i < 100000; i++) {
        rc = step_run(t, e);
        if (rc == ERR_OK)
            rc = step_flush(t, e);
        now = clock_now();
        if (i == 1)
            begin = now; /* the first two make primitives and touch memory */
        else if (i > 1)
            done++;
    }
    *step_seconds = done > 0 ? (now - begin) / (double)done : 0;
    return rc;
}
