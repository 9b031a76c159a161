/* cmd_check.c - cupola check. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/train/trainer.h"
#include "tui/cmd/cmd.h"

static void on_note(void *arg, const char *line)
{
    (void)arg;
    cmd_say("%s", line);
}

static void print_layers(const struct trainer_summary *s)
{
    char shape[96], params[32], flops[32], bytes[32];

    printf("%-28s %-14s %-18s %10s %10s %10s  %s\n", "layer", "op", "output", "params", "FLOPs",
           "memory", "made at");
    for (int i = 0; i < s->n_layers; i++) {
        const struct trainer_layer *l = &s->layer[i];
        printf("%-28s %-14s %-18s %10s %10s %10s  %s\n", l->path, l->op,
               shape_text(shape, sizeof shape, &l->shape),
               str_count(params, sizeof params, (double)l->params),
               str_count(flops, sizeof flops, l->flops),
               str_bytes(bytes, sizeof bytes, (uint64_t)l->bytes), l->where);
    }
}

static void print_memory(const struct trainer_summary *s)
{
    char a[32], b[32];
    const struct plan_report *r = s->report;

    printf("\nmemory      %s in all\n", str_bytes(a, sizeof a, (uint64_t)s->mem_total));
    printf("  parameters  %s, gradients %s", str_bytes(a, sizeof a, (uint64_t)s->mem_params),
           str_bytes(b, sizeof b, (uint64_t)s->mem_grads));
    printf(", optimizer %s, input %s\n", str_bytes(a, sizeof a, (uint64_t)s->mem_state),
           str_bytes(b, sizeof b, (uint64_t)s->mem_input));
    printf("  activations %s", str_bytes(a, sizeof a, (uint64_t)r->arena_bytes));
    printf(" (no order could need less than %s); largest:\n",
           str_bytes(b, sizeof b, (uint64_t)r->lower_bound));
    for (int i = 0; i < r->n_holders; i++)
        printf("    %10s  %s\n", str_bytes(a, sizeof a, (uint64_t)r->holder[i].bytes),
               r->holder[i].label);
}

static void print_text(const struct config *c, const struct trainer *t,
                       const struct trainer_summary *s, double step_s)
{
    struct str text = {0}, groups = {0};
    char a[32], b[32];

    config_dump(c, NULL, &text);
    trainer_groups(t, &groups);
    printf("%s\n", str_c(&text));
    print_layers(s);
    printf("\n%s", str_c(&groups));
    print_memory(s);
    printf("\nparameters  %s, %s trained\n", str_count(a, sizeof a, (double)s->params),
           str_count(b, sizeof b, (double)s->trainable));
    printf("samples     %" PRId64 " training, %" PRId64 " validation\n", s->train_samples,
           s->valid_samples);
    printf("steps       %" PRId64 ", %" PRId64 " an epoch\n", s->steps, s->steps_per_epoch);
    printf("program     %d ops, %d of them fused groups, %s FLOPs a batch\n", s->report->n_ops,
           s->report->n_fused, str_count(a, sizeof a, s->flops_step));
    printf("device      %s (%s)\n", s->device, s->device_why);
    printf("graph       %s\n", s->graph_hash);
    if (step_s > 0)
        printf("time        %.3g ms a step, about %s in all\n", step_s * 1e3,
               str_duration(a, sizeof a, step_s * (double)s->steps));
    str_release(&text);
    str_release(&groups);
}

static void print_json(const struct config *c, const struct trainer_summary *s, double step_s)
{
    struct str o = {0}, v = {0};

    json_begin(&o);
    json_key(&o, "config");
    json_begin(&o);
    for (const struct key_def *k = config_keys; k->path; k++) {
        if (!config_is_set(c, k))
            continue;
        str_reset(&v);
        config_value_text(c, k, &v);
        json_key(&o, k->path);
        json_begin(&o);
        json_put_text(&o, "value", str_c(&v));
        json_put_text(&o, "origin", config_origin(c, k));
        json_end(&o);
    }
    json_end(&o);
    json_key(&o, "layers");
    json_list_begin(&o);
    for (int i = 0; i < s->n_layers; i++) {
        const struct trainer_layer *l = &s->layer[i];
        json_begin(&o);
        json_put_text(&o, "path", l->path);
        json_put_text(&o, "op", l->op);
        json_put_text(&o, "where", l->where);
        json_key(&o, "shape");
        json_list_begin(&o);
        for (int d = 0; d < l->shape.rank; d++)
            json_int(&o, l->shape.dim[d]);
        json_list_end(&o);
        json_put_int(&o, "params", l->params);
        json_put_number(&o, "flops", l->flops);
        json_put_int(&o, "bytes", l->bytes);
        json_end(&o);
    }
    json_list_end(&o);
    json_put_int(&o, "params", s->params);
    json_put_int(&o, "trainable", s->trainable);
    json_put_int(&o, "steps", s->steps);
    json_put_int(&o, "steps_per_epoch", s->steps_per_epoch);
    json_put_int(&o, "memory", s->mem_total);
    json_put_int(&o, "activations", s->mem_arena);
    json_put_number(&o, "flops", s->flops_step);
    json_put_text(&o, "device", s->device);
    json_put_text(&o, "graph", s->graph_hash);
    if (step_s > 0)
        json_put_number(&o, "step_seconds", step_s);
    json_end(&o);
    puts(str_c(&o));
    str_release(&o);
    str_release(&v);
}

int cmd_check(int argc, char **argv)
{
    bool json = false, no_trial = false, graph = false, dot = false, plan = false;
    const struct cmd_option options[] = {
        {"json", 0, &json, NULL}, {"no-trial", 0, &no_trial, NULL}, {"graph", 0, &graph, NULL},
        {"dot", 0, &dot, NULL},   {"plan", 0, &plan, NULL},         {0}};
    char **words = calloc((size_t)argc + 1, sizeof *words);
    struct trainer_opts o = {.shipped = cmd_scripts_dir(), .note = on_note};
    struct trainer_summary s;
    struct config *c = NULL;
    struct trainer *t = NULL;
    struct str text = {0};
    struct err e = {0};
    double step_s = 0;
    int n = 0, code = 5;

    if (!words || !cmd_parse(argc, argv, options, words, &n, &code))
        goto out;
    c = cmd_config(words, n, "check", &code);
    if (!c)
        goto out;
    if (trainer_open(c, &o, &t, &e) != ERR_OK) {
        code = cmd_fail(&e);
        goto out;
    }
    code = 0;
    trainer_summary(t, &s);
    if (graph || dot)
        trainer_print_graph(t, dot, &text);
    else if (plan)
        trainer_print_plan(t, &text);
    else if (!no_trial && trainer_trial(t, &step_s, &e) != ERR_OK)
        code = cmd_fail(&e);
    if (graph || dot || plan)
        fputs(str_c(&text), stdout);
    else if (json)
        print_json(c, &s, step_s);
    else
        print_text(c, t, &s, step_s);
out:
    str_release(&text);
    trainer_free(t);
    config_free(c);
    free(words);
    return code;
}
