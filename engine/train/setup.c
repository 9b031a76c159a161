/* setup.c - everything before the first step: data, model, device, programs, memory. */
#include "engine/train/session.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"

void trainer_note(const struct trainer *t, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    if (!t->opts.note)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    t->opts.note(t->opts.arg, line);
}

static void note_lines(const struct trainer *t, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        trainer_note(t, "%.*s", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_from_script(void *arg, const char *line)
{
    const struct trainer *t = arg;
    if (t->opts.note)
        t->opts.note(t->opts.arg, line);
}

/* ---- programs ---- */

static struct program *cached(const struct trainer *t, enum program_kind kind, int64_t batch)
{
    for (int i = 0; i < t->n_programs; i++)
        if (t->program[i]->kind == kind && t->program[i]->batch == batch)
            return t->program[i];
    return NULL;
}

/* A program and its lowering, not yet compiled: the memory it needs is known then. */
static enum err_code prepare(struct trainer *t, const struct trace *tr, enum program_kind kind,
                             int64_t batch, bool *reached, struct err *e)
{
    struct program *p = NULL;
    enum err_code rc;

    if (cached(t, kind, batch))
        return ERR_OK;
    if (mem_grow((void **)&t->program, &t->program_cap, (size_t)t->n_programs,
                 sizeof(struct program *)) < 0)
        return err_set(e, ERR_NOMEM, "program: out of memory");
    rc = program_new(&t->maker, tr, kind, batch, reached, &p, e);
    if (rc == ERR_OK && p)
        t->program[t->n_programs++] = p;
    return rc;
}

/* Every program of a batch size that a step or an evaluation may need. */
static enum err_code prepare_size(struct trainer *t, bool training, int64_t batch, struct err *e)
{
    struct trace tr;
    enum err_code rc = program_trace(&t->maker, training, batch, &tr, e);

    if (rc != ERR_OK)
        return rc;
    if (training) {
        rc = prepare(t, &tr, PROGRAM_FIRST, batch, NULL, e);
        if (rc == ERR_OK && t->accumulate > 1)
            rc = prepare(t, &tr, PROGRAM_NEXT, batch, NULL, e);
        if (rc == ERR_OK)
            rc = prepare(t, &tr, PROGRAM_WEIGH, batch, NULL, e);
    } else {
        rc = prepare(t, &tr, PROGRAM_EVAL, batch, NULL, e);
    }
    trace_free(&tr);
    return rc;
}

enum err_code trainer_program(struct trainer *t, enum program_kind kind, int64_t batch,
                              struct program **out, struct err *e)
{
    struct program *p = cached(t, kind, batch);
    enum err_code rc = ERR_OK;

    if (!p && !cached(t, kind == PROGRAM_EVAL ? PROGRAM_EVAL : PROGRAM_FIRST, batch)) {
        rc = prepare_size(t, kind != PROGRAM_EVAL, batch, e);
        if (rc == ERR_OK)
            rc = trainer_reserve(t, e);
        p = cached(t, kind, batch);
    }
    if (rc == ERR_OK && p)
        rc = program_compile(&t->maker, p, e);
    *out = p;
    return rc;
}

/* ---- memory ---- */

static int64_t largest(const struct trainer *t, int64_t (*bytes)(const struct program *))
{
    int64_t most = 0;

    for (int i = 0; i < t->n_programs; i++)
        if (bytes(t->program[i]) > most)
            most = bytes(t->program[i]);
    return most;
}

static int64_t arena_bytes(const struct program *p)
{
    return lowered_report(p->low)->arena_bytes;
}

static int64_t input_bytes(const struct program *p)
{
    return p->input_bytes;
}

static int64_t result_bytes(const struct program *p)
{
    return p->result_count * 4;
}

static int64_t number_in(const char *path, const char *after)
{
    char *text = NULL, *at;
    size_t len;
    int64_t v = -1;

    if (fs_read_file(path, 1 << 16, ERR_IO, &text, &len, NULL) != ERR_OK)
        return -1;
    at = after ? strstr(text, after) : text;
    if (at)
        v = strtoll(at + (after ? strlen(after) : 0), NULL, 10);
    mem_free(text);
    return v;
}

/* What may still be taken: MemAvailable, or less where a cgroup says so. -1: unknown. */
static int64_t memory_free(void)
{
    int64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    int64_t max = number_in("/sys/fs/cgroup/memory.max", NULL),
            used = number_in("/sys/fs/cgroup/memory.current", NULL);
    int64_t avail = kib >= 0 ? kib * 1024 : -1;

    if (max > 0 && used >= 0 && (avail < 0 || max - used < avail))
        avail = max > used ? max - used : 0;
    return avail;
}

static enum err_code check_memory(const struct trainer *t, int64_t need, struct err *e)
{
    const struct plan_report *r = lowered_report(t->program[0]->low);
    int64_t avail = memory_free();
    char a[32], b[32], c[32];

    if (avail < 0 || need <= avail)
        return ERR_OK;
    return err_set(
        e, ERR_NOMEM,
        "the run needs %s, %s are free; largest: %s %s; a smaller data.batch (now %" PRId64
        ") needs less",
        str_bytes(a, sizeof a, (uint64_t)need), str_bytes(b, sizeof b, (uint64_t)avail),
        r->n_holders ? r->holder[0].label : "-",
        str_bytes(c, sizeof c, (uint64_t)(r->n_holders ? r->holder[0].bytes : 0)), t->batch);
}

static enum err_code grow(struct trainer *t, struct device_mem *m, int64_t bytes, struct err *e)
{
    if (m->mem && m->bytes >= bytes)
        return ERR_OK;
    device_mem_free(m);
    return device_mem_new(t->d, bytes, m, e);
}

enum err_code trainer_reserve(struct trainer *t, struct err *e)
{
    int64_t arena = largest(t, arena_bytes), input = largest(t, input_bytes),
            result = largest(t, result_bytes);
    enum err_code rc;

    if (result < PLAN_STEP_BYTES) /* an update's scalars come back the same way */
        result = PLAN_STEP_BYTES;
    rc = step_flush(t, e); /* nothing may still run in memory that goes */

    if (rc == ERR_OK && (!t->arena.mem || arena > t->arena.bytes))
        rc = check_memory(t, arena + input + (t->store.params.mem ? 0 : store_bytes(&t->store)), e);
    if (rc == ERR_OK)
        rc = grow(t, &t->arena, arena, e);
    if (rc == ERR_OK)
        rc = grow(t, &t->input, input, e);
    if (rc == ERR_OK)
        rc = grow(t, &t->result, result, e);
    if (rc == ERR_OK && !t->step_mem.mem) {
        rc = device_mem_new(t->d, PROGRAM_STEP_BYTES, &t->step_mem, e);
        if (rc == ERR_OK)
            rc = device_zero(&t->step_mem, e);
    }
    if (rc != ERR_OK || result / 4 <= t->result_cap)
        return rc;
    t->result_cap = result / 4;
    for (int i = 0; i < FLIGHTS; i++) {
        mem_free(t->flight[i].result);
        t->flight[i].result = mem_array((size_t)t->result_cap, sizeof(float));
        if (!t->flight[i].result)
            return err_set(e, ERR_NOMEM, "results: out of memory");
    }
    return ERR_OK;
}

/* ---- steps ---- */

static enum err_code count_steps(struct trainer *t, struct err *e)
{
    const struct config *c = t->c;
    bool drop = strcmp(c->data.last, "drop") == 0;
    int64_t per_step;

    t->train_count = data_count(t->data.train);
    t->valid_count = t->data.valid ? data_count(t->data.valid) : 0;
    t->accumulate = c->train.accumulate;
    t->batch = c->data.batch;
    if (t->batch > t->train_count && !drop)
        t->batch = t->train_count;
    t->usable = drop ? t->train_count / t->batch * t->batch : t->train_count;
    if (t->usable == 0)
        return err_set(e, ERR_CONFIG,
                       "data.batch: %" PRId64 " is more than the %" PRId64
                       " training samples, and data.last: drop leaves none",
                       c->data.batch, t->train_count);
    if (__builtin_mul_overflow(t->batch, t->accumulate, &per_step))
        return err_set(e, ERR_CONFIG, "data.batch x train.accumulate is too large");
    t->steps_per_epoch = (t->usable + per_step - 1) / per_step;
    if (c->train.has_steps) {
        t->steps = c->train.steps;
    } else {
        double whole = floor(c->train.epochs), part = c->train.epochs - whole;
        double steps =
            whole * (double)t->steps_per_epoch + ceil(part * (double)t->usable / (double)per_step);
        if (!(steps < 9e15))
            return err_set(e, ERR_CONFIG, "train.epochs: %g epochs are too many steps",
                           c->train.epochs);
        t->steps = (int64_t)steps;
    }
    if (t->steps < 1)
        t->steps = 1;
    return ERR_OK;
}

/* ---- preflight ---- */

/* Class ids must fit the logits they meet. The labels of a classification loss come straight from
 * an input. */
static enum err_code check_labels(const struct trainer *t, struct err *e)
{
    const struct graph *g = t->trace.graph;

    for (int i = 0; i < graph_count(g); i++) {
        const struct node *n = graph_node(g, i), *y;
        int64_t classes;

        if (n->op != OP_XENT)
            continue;
        y = graph_node(g, n->in[1]);
        while (y->op == OP_RESHAPE)
            y = graph_node(g, y->in[0]);
        classes = graph_node(g, n->in[0])->shape.dim[graph_node(g, n->in[0])->shape.rank - 1];
        for (int f = 0; y->op == OP_INPUT && f < t->n_fields; f++) {
            enum err_code rc = ERR_OK;
            if (!t->fields[f].is_target)
                continue;
            rc = data_check_classes(t->data.train, f, classes, e);
            if (rc == ERR_OK && t->data.valid)
                rc = data_check_classes(t->data.valid, f, classes, e);
            if (rc != ERR_OK)
                return rc;
        }
    }
    return ERR_OK;
}

static enum err_code check_data(const struct trainer *t, struct err *e)
{
    enum err_code rc = data_check_finite(t->data.train, e);

    if (rc == ERR_OK && t->data.valid)
        rc = data_check_finite(t->data.valid, e);
    return rc == ERR_OK ? check_labels(t, e) : rc;
}

static enum err_code check_args(const struct trainer *t, struct err *e)
{
    struct str unread = {0}, read = {0};
    enum err_code rc = ERR_OK;

    if (script_unread_args(t->script, &unread, &read))
        rc = err_set(e, ERR_CONFIG, "model.args: %s never reads %s; it reads %s",
                     t->c->model.script, str_c(&unread), read.len ? str_c(&read) : "none");
    str_release(&unread);
    str_release(&read);
    return rc;
}

/* ---- opening ---- */

static enum err_code open_model(struct trainer *t, struct err *e)
{
    struct script_opts so = {.path = t->c->model.script,
                             .shipped = t->opts.shipped,
                             .args = t->c->model.args,
                             .seed = (uint64_t)t->c->seed,
                             .print = print_from_script,
                             .print_arg = t};
    enum err_code rc = script_open(&so, &t->script, e);

    if (rc == ERR_IO) /* a file that the config names is not there */
        rc = err_set(e, ERR_CONFIG, "model.script: %s", e->msg);

    t->n_fields = data_fields(t->data.train, &t->fields);
    t->maker = (struct program_maker){.script = t->script,
                                      .fields = t->fields,
                                      .n_fields = t->n_fields,
                                      .store = &t->store,
                                      .hyper = &t->hyper};
    if (rc == ERR_OK)
        rc = program_trace(&t->maker, true, t->batch, &t->trace, e);
    if (rc == ERR_OK && t->trace.loss.n == 0)
        rc = err_set(e, ERR_SCRIPT, "%s: the model has no loss", t->c->model.script);
    if (rc == ERR_OK && script_optional(t->script))
        trainer_note(t, "%s: has %s, which this version does not use", t->c->model.script,
                     script_optional(t->script));
    return rc == ERR_OK ? check_args(t, e) : rc;
}

/* Programs of every batch size the data will bring, and which parameters they reach. */
static enum err_code open_programs(struct trainer *t, struct err *e)
{
    bool *reached = mem_array((size_t)t->store.n + 1, sizeof *reached);
    int64_t last = t->usable % t->batch,
            eval = t->valid_count < t->batch ? t->valid_count : t->batch;
    enum err_code rc = reached ? ERR_OK : err_set(e, ERR_NOMEM, "program: out of memory");

    if (rc == ERR_OK)
        rc = prepare(t, &t->trace, PROGRAM_FIRST, t->batch, reached, e);
    if (rc == ERR_OK)
        rc = store_segments(&t->store, reached, e);
    if (rc == ERR_OK)
        rc = prepare_size(t, true, t->batch, e);
    if (rc == ERR_OK && last > 0)
        rc = prepare_size(t, true, last, e);
    if (rc == ERR_OK && eval > 0)
        rc = prepare_size(t, false, eval, e);
    if (rc == ERR_OK && eval > 0 && t->valid_count % eval > 0)
        rc = prepare_size(t, false, t->valid_count % eval, e);
    mem_free(reached);
    return rc;
}

static enum err_code open_update(struct trainer *t, struct err *e)
{
    struct plan_update u = {
        .code = t->store.update, .param_count = t->store.count, .n_moments = t->store.n_moments};
    double scalars[4] = {0, 1, 1, 0}; /* applied, running products of the betas, latch */
    enum err_code rc;

    hyper_opt_slots(&u.opt);
    u.opt.segments = t->store.segment;
    u.opt.n_segments = t->store.n_segments;
    u.opt.nesterov = t->c->optimizer.nesterov;
    u.opt.decoupled = strcmp(t->c->optimizer.name, "adamw") == 0;
    if (t->store.n_segments == 0)
        trainer_note(t, "no parameter is trained: all are frozen or not reached by the loss");
    rc = plan_lower_update(&u, &t->update_low, e);
    if (rc == ERR_OK)
        rc = plan_compile(t->d, t->update_low, &t->update, e);
    if (rc == ERR_OK)
        rc = device_put(&t->store.state, 0, DT_F64, 4, scalars, e);
    return rc == ERR_OK ? device_sync(t->d, e) : rc;
}

static enum err_code open_loaders(struct trainer *t, struct err *e)
{
    const struct program *p = t->program[0];
    struct loader_opts lo = {.set = t->data.train,
                             .wants = t->want,
                             .shuffle = t->c->data.shuffle,
                             .seed = (uint64_t)t->c->seed,
                             .drop_last = strcmp(t->c->data.last, "drop") == 0,
                             .ahead = FLIGHTS,
                             .max_batch = t->batch};
    enum err_code rc;

    /* what any program of the run reads: eval may need a field that training does not */
    for (int k = 0; k < t->n_programs; k++) {
        p = t->program[k];
        for (int i = 0; i < p->n_inputs; i++) {
            bool there = false;
            for (int w = 0; w < t->n_wants; w++)
                there = there || (t->want[w].field == p->input[i].field &&
                                  t->want[w].dtype == p->input[i].dtype);
            if (!there && t->n_wants < DATA_FIELDS)
                t->want[t->n_wants++] = (struct data_want){p->input[i].field, p->input[i].dtype};
        }
    }
    lo.n_wants = t->n_wants;
    rc = loader_new(&lo, &t->train_loader, e);
    if (rc == ERR_OK && t->data.valid) {
        lo.set = t->data.valid;
        lo.shuffle = false;
        lo.drop_last = false;
        rc = loader_new(&lo, &t->valid_loader, e);
    }
    return rc;
}

static enum err_code open_events(struct trainer *t, struct err *e)
{
    struct kern_err ke = {0};
    enum kern_status st = KERN_OK;

    for (int i = 0; i < FLIGHTS && st == KERN_OK; i++)
        st = t->d->be->event_new(t->d->dev, &t->flight[i].event, &ke);
    return device_err(st, &ke, "events", e);
}

/* The device opens on its own thread meanwhile; it is joined here, whatever happened. */
static enum err_code open_before_device(struct trainer *t, struct device_opening *opening,
                                        struct err *e)
{
    struct err de = {0};
    enum err_code rc = data_open(t->c, &t->data, e), drc;

    if (rc == ERR_OK)
        rc = count_steps(t, e);
    if (rc == ERR_OK)
        rc = open_model(t, e);
    if (rc == ERR_OK)
        rc = check_data(t, e);
    if (rc == ERR_OK)
        rc = hyper_init(&t->hyper, t->c, t->steps, e);
    if (rc == ERR_OK)
        rc = hyper_add_tunables(&t->hyper, &t->trace, e);
    drc = device_open_finish(opening, rc == ERR_OK ? &t->d : NULL, &de);
    if (rc == ERR_OK && drc != ERR_OK)
        rc = err_set(e, drc, "%s", de.msg);
    return rc;
}

static enum err_code open_on_device(struct trainer *t, struct err *e)
{
    enum err_code rc;

    t->maker.d = t->d;
    rc = store_init(&t->store, t->d, &t->trace, t->c, &t->hyper, e);
    if (rc == ERR_OK)
        rc = open_programs(t, e);
    if (rc == ERR_OK)
        rc = trainer_reserve(t, e); /* which checks the whole first */
    if (rc == ERR_OK)
        rc = store_take(&t->store, e);
    if (rc == ERR_OK)
        rc = open_events(t, e);
    if (rc == ERR_OK)
        rc = open_update(t, e);
    if (rc == ERR_OK)
        rc = store_fill(&t->store, &t->trace, t->c, &t->notes, e);
    if (rc == ERR_OK)
        rc = open_loaders(t, e);
    if (rc == ERR_OK)
        rc = tally_init(&t->window, t->program[0], e);
    return rc == ERR_OK ? summary_layers(t, e) : rc;
}

enum err_code trainer_open(const struct config *c, const struct trainer_opts *o,
                           struct trainer **out, struct err *e)
{
    struct device_opts dopt = {.want = c->device, .threads = (int)c->threads};
    struct trainer *t = mem_zalloc(sizeof *t);
    struct device_opening *opening = t ? device_open_begin(&dopt) : NULL;
    enum err_code rc;

    *out = NULL;
    if (!opening) {
        mem_free(t);
        return err_set(e, ERR_NOMEM, "trainer: out of memory");
    }
    t->c = c;
    t->opts = *o;
    t->block.seed = (uint64_t)c->seed;
    rc = open_before_device(t, opening, e);
    if (rc == ERR_OK)
        rc = open_on_device(t, e);
    if (rc != ERR_OK) {
        trainer_free(t);
        return rc;
    }
    for (int i = 0; i < t->data.notes.n; i++)
        trainer_note(t, "%s", t->data.notes.err[i].msg);
    note_lines(t, str_c(&t->notes));
    note_lines(t, config_notes(c));
    *out = t;
    return ERR_OK;
}

void trainer_free(struct trainer *t)
{
    if (!t)
        return;
    if (t->d)
        step_flush(t, NULL);
    loader_free(t->train_loader);
    loader_free(t->valid_loader);
    for (int i = 0; i < t->n_programs; i++)
        program_free(t->program[i]);
    mem_free(t->program);
    plan_free(t->update);
    lowered_free(t->update_low);
    for (int i = 0; i < FLIGHTS; i++) {
        if (t->flight[i].event)
            t->d->be->event_free(t->flight[i].event);
        mem_free(t->flight[i].result);
    }
    device_mem_free(&t->arena);
    device_mem_free(&t->input);
    device_mem_free(&t->result);
    device_mem_free(&t->step_mem);
    tally_release(&t->window);
    store_release(&t->store);
    hyper_release(&t->hyper);
    trace_free(&t->trace);
    script_free(t->script);
    data_release(&t->data);
    device_free(t->d);
    mem_free(t->layer);
    str_release(&t->notes);
    mem_free(t);
}
