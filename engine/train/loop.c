/* loop.c - the steps of a run: rows, evaluations, checkpoints, the end. */
#include "engine/train/session.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/clock.h"
#include "engine/base/fsio.h"
#include "engine/base/json.h"

struct loop {
    struct trainer *t;
    struct rundir *r; /* may be NULL */
    const struct train_observer *o;
    struct run_state state;
    struct best best;
    bool best_is_max;
    double begin; /* clock_now at the first step */
    double row_t; /* t of the last row */
    int64_t row_samples;
    double state_written;
    int64_t saved_step, evaluated_step;
    char who[160];
};

static double trained(const struct loop *l)
{
    return clock_now() - l->begin;
}

static double epoch_now(const struct loop *l)
{
    return (double)l->t->epoch + (double)l->t->sample / (double)l->t->usable;
}

static void note(const struct loop *l, const char *line)
{
    if (l->r)
        rundir_log(l->r, line);
    if (l->o->note)
        l->o->note(l->o->arg, line);
}

/* A record that cannot be written must not end the training of a night; it is said, and the run
 * goes on. */
static void journal(struct loop *l, const char *event, const char *members)
{
    struct err e;

    if (l->r && rundir_journal(l->r, l->t->step, trained(l), event, members, l->who, &e) != ERR_OK)
        note(l, e.msg);
}

static void write_state(struct loop *l, bool now)
{
    struct err e;
    double at = clock_now();

    if (!l->r || (!now && at - l->state_written < 0.5))
        return;
    l->state.step = l->t->step;
    l->state.epoch = epoch_now(l);
    l->state.t = trained(l);
    l->state.updated = clock_wall();
    l->state_written = at;
    if (run_state_write(l->r->path, &l->state, &e) != ERR_OK)
        note(l, e.msg);
}

static void set_state(struct loop *l, const char *state)
{
    snprintf(l->state.state, sizeof l->state.state, "%s", state);
    write_state(l, true);
    if (l->o->state)
        l->o->state(l->o->arg, state);
}

static void row(struct loop *l, const struct metric *m, int n, bool is_eval)
{
    struct train_row out = {.step = l->t->step,
                            .steps = l->t->steps,
                            .epoch = epoch_now(l),
                            .t = trained(l),
                            .seg = 1,
                            .metric = m,
                            .n = n,
                            .is_eval = is_eval};
    struct err e;

    for (int i = 0; i < n; i++)
        run_state_value(&l->state, m[i].name, m[i].value);
    if (l->r && rundir_metrics(l->r, out.step, out.epoch, out.t, out.seg, m, n, &e) != ERR_OK)
        note(l, e.msg);
    if (l->o->row)
        l->o->row(l->o->arg, &out);
    write_state(l, false);
}

static enum err_code save(struct loop *l, const char *why, struct err *e)
{
    char members[160];
    enum err_code rc;

    if (!l->r || l->saved_step == l->t->step)
        return ERR_OK;
    rc = save_checkpoint(l->t, l->r, l->t->step, trained(l), &l->best, e);
    if (rc == ERR_OK) {
        l->saved_step = l->t->step;
        snprintf(members, sizeof members, "\"why\":\"%s\"", why);
        journal(l, "save", members);
    }
    return rc;
}

/* Strictly better, and never NaN. */
static bool improves(const struct loop *l, double v)
{
    if (isnan(v))
        return false;
    if (!l->best.has)
        return true;
    return l->best_is_max ? v > l->best.value : v < l->best.value;
}

static enum err_code consider_best(struct loop *l, const struct metric *m, int n, struct err *e)
{
    const char *want = l->t->c->train.best_metric;

    for (int i = 0; i < n; i++) {
        if (strcmp(m[i].name, want) != 0 || !improves(l, m[i].value))
            continue;
        l->best = (struct best){true, m[i].value, l->t->step};
        l->state.has_best = true;
        snprintf(l->state.best.name, sizeof l->state.best.name, "%s", want);
        l->state.best.value = m[i].value;
        l->state.best_step = l->t->step;
        return save(l, "best", e);
    }
    return ERR_OK;
}

/* Train losses and metrics since the last row, the rate, and the hyperparameters: lr always, others
 * when new. */
static enum err_code train_row(struct loop *l, struct err *e)
{
    struct trainer *t = l->t;
    struct metric m[TALLY_VALUES + 64];
    char names[TALLY_VALUES][80];
    int n = tally_values(&t->window, t->script, "train", m, names, TALLY_VALUES);
    double now = trained(l), dt = now - l->row_t;

    m[n++] = (struct metric){"grad_norm", t->last.norm};
    for (int i = 0; i < t->hyper.n && n < (int)(sizeof m / sizeof *m) - 1; i++) {
        struct hyper_item *it = &t->hyper.item[i];
        if (i == HYPER_LR || !(it->now == it->logged))
            m[n++] = (struct metric){it->name, it->now};
        it->logged = it->now;
    }
    m[n++] =
        (struct metric){"rate", dt > 0 ? (double)(t->samples_seen - l->row_samples) / dt : NAN};
    row(l, m, n, false);
    tally_reset(&t->window);
    l->row_t = now;
    l->row_samples = t->samples_seen;
    return t->valid_count == 0 ? consider_best(l, m, n, e) : ERR_OK;
}

static enum err_code evaluate_now(struct loop *l, struct err *e)
{
    struct metric m[TALLY_VALUES];
    char names[TALLY_VALUES][80];
    struct tally tally;
    enum err_code rc;
    int n;

    if (l->t->valid_count == 0 || l->evaluated_step == l->t->step)
        return ERR_OK;
    rc = evaluate(l->t, &tally, e);
    if (rc != ERR_OK)
        return rc;
    n = tally_values(&tally, l->t->script, "valid", m, names, TALLY_VALUES);
    tally_release(&tally);
    l->evaluated_step = l->t->step;
    row(l, m, n, true);
    return consider_best(l, m, n, e);
}

/* ---- which metric is best, and which way ---- */

static const char *better_of(const struct trainer *t, const char *name)
{
    const char *dot = strchr(name, '.'), *metric = dot ? dot + 1 : name;

    if (strcmp(metric, "loss") == 0)
        return "min";
    for (int i = 0; i < t->trace.n_metrics; i++)
        if (strcmp(t->trace.metrics[i].name, metric) == 0)
            return t->trace.metrics[i].better;
    return NULL;
}

static enum err_code choose_best(struct loop *l, struct err *e)
{
    const struct trainer *t = l->t;
    const char *name = t->c->train.best_metric, *mode = t->c->train.best_mode,
               *known = better_of(t, name);

    if (!known)
        return err_set(e, ERR_CONFIG, "train.best: no metric is called %s; the model has loss%s%s",
                       name, t->trace.n_metrics ? " and " : "",
                       t->trace.n_metrics ? t->trace.metrics[0].name : "");
    if (!*mode)
        mode = known;
    if (!*mode)
        return err_set(e, ERR_CONFIG,
                       "train.best: which way is %s better? write {metric: %s, mode: min} or max",
                       name, name);
    l->best_is_max = strcmp(mode, "max") == 0;
    return ERR_OK;
}

/* ---- the files of a run ---- */

/* Where a Lua file goes in model/: its path below the model's folder or the shipped one. */
static const char *below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static enum err_code copy_model(struct loop *l, struct str *hashes, struct err *e)
{
    const char *const *paths;
    const char *as[64];
    int n = script_files(l->t->script, &paths);
    char *dir = n > 0 ? fs_dirname(paths[0]) : NULL;
    enum err_code rc;

    for (int i = 0; i < n && i < 64 && dir; i++) {
        as[i] = below(paths[i], dir);
        if (!as[i])
            as[i] = below(paths[i], l->t->opts.shipped);
        if (!as[i])
            as[i] = fs_basename(paths[i]);
    }
    rc = rundir_copy_model(l->r, paths, as, n < 64 ? n : 64, hashes, e);
    mem_free(dir);
    return rc;
}

static enum err_code write_start(struct loop *l, struct err *e)
{
    struct trainer *t = l->t;
    struct str text = {0}, members = {0}, hashes = {0};
    char hash[65], script[300];
    enum err_code rc;

    snprintf(script, sizeof script, "model/%s", fs_basename(t->c->model.script));
    config_dump(t->c, script, &text);
    rc = rundir_write(l->r, "config.yaml", str_c(&text), text.len, e);
    str_reset(&text);
    data_describe(&t->data, &text);
    if (rc == ERR_OK)
        rc = rundir_write(l->r, "data.json", str_c(&text), text.len, e);
    if (rc == ERR_OK)
        rc = copy_model(l, &hashes, e);
    if (rc == ERR_OK) {
        graph_hash(t->trace.graph, hash);
        str_addf(&members,
                 "\"seg\":1,\"parent\":null,\"from_step\":0,\"cause\":\"start\",\"graph\":\"%s\","
                 "\"model\":%s,\"device\":",
                 hash, str_c(&hashes));
        json_text(&members, t->d->describe);
        data_fingerprint(t->data.train, hash);
        str_addf(&members, ",\"data\":\"%s\"", hash);
        rc = rundir_journal(l->r, 0, 0, "segment", str_c(&members), l->who, e);
    }
    str_release(&text);
    str_release(&members);
    str_release(&hashes);
    return rc;
}

/* ---- the loop ---- */

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static enum err_code after_step(struct loop *l, struct err *e)
{
    struct trainer *t = l->t;
    const struct config *c = t->c;
    bool last = t->step == t->steps;
    bool log = last || due(t->step, c->train.log_every);
    bool eval =
        last || (c->train.eval_every > 0 ? due(t->step, c->train.eval_every) : t->sample == 0);
    bool keep = last || due(t->step, c->train.save_every);
    enum err_code rc = log || eval || keep ? step_flush(t, e) : step_land_older(t, e);

    if (rc == ERR_OK && t->last.skipped)
        return err_set(e, ERR_NONFINITE,
                       "the gradient is not finite at step %" PRId64
                       "; the weights are those before it",
                       t->last.step);
    if (rc == ERR_OK && log)
        rc = train_row(l, e);
    if (rc == ERR_OK && eval)
        rc = evaluate_now(l, e);
    if (rc == ERR_OK && keep)
        rc = save(l, last ? "end" : "interval", e);
    return rc;
}

static enum err_code run_steps(struct loop *l, const atomic_int *stop, int *caught, struct err *e)
{
    struct trainer *t = l->t;
    enum err_code rc = ERR_OK;

    while (rc == ERR_OK && t->step < t->steps) {
        rc = step_run(t, e);
        if (rc == ERR_OK)
            rc = after_step(l, e);
        if (rc == ERR_OK && l->o->tick)
            l->o->tick(l->o->arg, t->step, trained(l));
        *caught = stop ? atomic_load(stop) : 0;
        if (rc == ERR_OK && *caught && t->step < t->steps) {
            rc = step_flush(t, e);
            if (rc == ERR_OK)
                rc = save(l, "stop", e);
            break;
        }
    }
    return rc;
}

static void finish(struct loop *l, enum err_code rc, int caught, const struct err *e,
                   struct train_end *end)
{
    struct str members = {0};
    bool stopped = rc == ERR_OK && caught && l->t->step < l->t->steps;

    snprintf(end->end, sizeof end->end, "%s",
             rc != ERR_OK ? "failed"
             : stopped    ? "stopped"
                          : "done");
    end->exit_code = rc != ERR_OK ? err_exit_code(rc) : stopped ? 128 + caught : 0;
    end->step = l->t->step;
    l->state.exit_code = end->exit_code;
    if (rc != ERR_OK)
        snprintf(l->state.reason, sizeof l->state.reason, "%.*s", (int)sizeof l->state.reason - 1,
                 e->msg);
    else if (stopped)
        snprintf(l->state.reason, sizeof l->state.reason, "%s",
                 caught == SIGINT ? "interrupted (SIGINT)" : "terminated (SIGTERM)");
    str_addf(&members, "\"end\":\"%s\",\"exit_code\":%d,\"reason\":", end->end, end->exit_code);
    json_text(&members, l->state.reason);
    journal(l, "end", str_c(&members));
    str_release(&members);
    set_state(l, end->end);
    end->state = l->state;
}

enum err_code trainer_run(struct trainer *t, struct rundir *r, const struct train_observer *o,
                          const atomic_int *stop, struct train_end *end, struct err *e)
{
    struct loop l = {
        .t = t, .r = r, .o = o, .begin = clock_now(), .saved_step = -1, .evaluated_step = -1};
    enum err_code rc;
    int caught = 0;

    memset(end, 0, sizeof *end);
    rundir_whoami(l.who, sizeof l.who);
    run_state_init(&l.state);
    l.state.steps = t->steps;
    snprintf(l.state.device, sizeof l.state.device, "%s", t->d->describe);
    rc = choose_best(&l, e);
    if (rc == ERR_OK && r)
        rc = write_start(&l, e);
    if (rc == ERR_OK) {
        set_state(&l, "running");
        l.begin = clock_now();
        rc = run_steps(&l, stop, &caught, e);
    }
    finish(&l, rc, caught, e, end);
    return rc;
}
