/* save.c - a checkpoint of everything needed to go on: weights, optimizer state, every counter. */
#include "engine/train/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/json.h"
#include "engine/run/checkpoint.h"

static void put_tensor(struct st_tensor *t, const char *name, const struct shape *s,
                       const float *data)
{
    memset(t, 0, sizeof *t);
    t->name = name;
    snprintf(t->dtype, sizeof t->dtype, "F32");
    t->rank = s->rank;
    for (int d = 0; d < s->rank; d++)
        t->dim[d] = s->dim[d];
    t->count = shape_count(s);
    t->data = data;
    t->bytes = (size_t)t->count * sizeof *data;
}

/* Every counter, with doubles in the shortest form that reads back. */
static void trainer_json(const struct trainer *t, int64_t step, double seconds,
                         const double scalars[4], const struct best *best, struct str *s)
{
    json_begin(s);
    json_put_int(s, "format", CHECKPOINT_FORMAT);
    json_put_int(s, "step", step);
    json_put_number(s, "applied", scalars[0]);
    json_put_number(s, "b1prod", scalars[1]);
    json_put_number(s, "b2prod", scalars[2]);
    json_put_int(s, "epoch", t->epoch);
    json_put_int(s, "sample", t->sample);
    json_put_int(s, "samples_seen", t->samples_seen);
    json_put_number(s, "t", seconds);
    json_put_number(s, "clock", t->hyper.clock);
    json_put_number(s, "clock_total", t->hyper.total);
    json_key(s, "tune");
    json_begin(s);
    for (int i = 0; i < t->hyper.n; i++) {
        const struct tune *u = &t->hyper.item[i].tune;

        json_key(s, t->hyper.item[i].name);
        json_begin(s);
        json_put_number(s, "base", u->base);
        json_put_number(s, "scale", u->scale);
        if (u->pinned)
            json_put_number(s, "pin", u->pin);
        if (u->ramping) {
            json_put_number(s, "ramp_from", u->ramp_from);
            json_put_number(s, "ramp_to", u->ramp_to);
            json_put_int(s, "ramp_start", u->ramp_start);
            json_put_int(s, "ramp_steps", u->ramp_steps);
        }
        json_end(s);
    }
    json_end(s);
    if (best->has) {
        json_key(s, "best");
        json_begin(s);
        json_put_text(s, "metric", t->c->train.best_metric);
        json_put_number(s, "value", best->value);
        json_put_int(s, "step", best->step);
        json_end(s);
    }
    json_end(s);
}

struct snapshot {
    float *params, *moments[2];
    double scalars[4];
    struct st_tensor *model, *optimizer;
    int n_optimizer;
    struct str names, trainer, data; /* names: of the optimizer's tensors, NUL-separated */
};

static void snapshot_release(struct snapshot *s)
{
    mem_free(s->params);
    mem_free(s->moments[0]);
    mem_free(s->moments[1]);
    mem_free(s->model);
    mem_free(s->optimizer);
    str_release(&s->names);
    str_release(&s->trainer);
    str_release(&s->data);
}

static enum err_code take_snapshot(struct trainer *t, struct snapshot *s, struct err *e)
{
    const struct store *st = &t->store;
    enum err_code rc;

    memset(s, 0, sizeof *s);
    s->params = mem_array((size_t)st->count + 1, sizeof(float));
    s->model = mem_array((size_t)st->n + 1, sizeof *s->model);
    s->optimizer = mem_array((size_t)st->n * 2 + 1, sizeof *s->optimizer);
    if (!s->params || !s->model || !s->optimizer)
        return err_set(e, ERR_NOMEM, "checkpoint: out of memory");
    rc = device_get(&st->params, 0, DT_F32, st->count, s->params, e);
    for (int k = 0; k < st->n_moments && rc == ERR_OK; k++) {
        s->moments[k] = mem_array((size_t)st->count + 1, sizeof(float));
        if (!s->moments[k])
            return err_set(e, ERR_NOMEM, "checkpoint: out of memory");
        rc = device_get(&st->state, plan_moment_offset(st->count, k), DT_F32, st->count,
                        s->moments[k], e);
    }
    if (rc == ERR_OK)
        rc = device_get(&st->state, 0, DT_F64, 4, s->scalars, e);
    return rc == ERR_OK ? device_sync(t->d, e) : rc;
}

static enum err_code describe_tensors(const struct trainer *t, struct snapshot *s, struct err *e)
{
    const struct store *st = &t->store;
    size_t at = 0;

    for (int i = 0; i < st->n; i++)
        put_tensor(&s->model[i], st->param[i].name, &st->param[i].shape,
                   s->params + st->param[i].offset);
    /* two passes: the text of the names may move while it grows */
    for (int i = 0; i < st->n; i++)
        for (int k = 0; k < st->n_moments; k++) {
            str_addf(&s->names, "%s.%s", st->param[i].name, st->moment_names[k]);
            str_addc(&s->names, '\0');
        }
    if (s->names.oom)
        return err_set(e, ERR_NOMEM, "checkpoint: out of memory");
    for (int i = 0; i < st->n; i++)
        for (int k = 0; k < st->n_moments; k++) {
            const char *name = str_c(&s->names) + at;
            put_tensor(&s->optimizer[s->n_optimizer++], name, &st->param[i].shape,
                       s->moments[k] + st->param[i].offset);
            at += strlen(name) + 1;
        }
    return ERR_OK;
}

enum err_code save_checkpoint(struct trainer *t, struct rundir *r, int64_t step, double seconds,
                              const struct best *best, struct err *e)
{
    struct snapshot s;
    struct checkpoint c = {.step = step};
    enum err_code rc = step_flush(t, e);

    if (rc != ERR_OK)
        return rc;
    rc = take_snapshot(t, &s, e);
    if (rc == ERR_OK)
        rc = describe_tensors(t, &s, e);
    if (rc == ERR_OK) {
        trainer_json(t, step, seconds, s.scalars, best, &s.trainer);
        data_describe(&t->data, &s.data);
        c.model = s.model;
        c.n_model = t->store.n;
        c.optimizer = s.optimizer;
        c.n_optimizer = s.n_optimizer;
        c.trainer_json = str_c(&s.trainer);
        c.data_json = str_c(&s.data);
        rc = s.trainer.oom || s.data.oom ? err_set(e, ERR_NOMEM, "checkpoint: out of memory")
                                         : checkpoint_write(r->path, &c, NULL, e);
    }
    if (rc == ERR_OK)
        rc = checkpoint_rotate(r->path, (int)t->c->train.keep, best->has ? best->step : -1, e);
    snapshot_release(&s);
    return rc;
}
