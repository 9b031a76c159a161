/* step.c - one step: micro-batches, then the update, all enqueued; results land later. */
#include "engine/train/session.h"

#include <math.h>
#include <string.h>

void step_bind(struct trainer *t, struct kern_bind *b)
{
    memset(b, 0, sizeof *b);
    b->mem[KERN_ARENA] = t->arena.mem;
    b->mem[KERN_PARAM] = t->store.params.mem;
    b->mem[KERN_GRAD] = t->store.grads.mem;
    b->mem[KERN_STATE] = t->store.state.mem;
    b->mem[KERN_STEP] = t->step_mem.mem;
    b->mem[KERN_INPUT] = t->input.mem;
    b->mem[KERN_RESULT] = t->result.mem;
}

/* ---- flights ---- */

static enum err_code land_one(struct trainer *t, struct err *e)
{
    struct flight *f = &t->flight[t->first_flight];
    struct kern_err ke = {0};
    enum err_code rc = device_err(t->d->be->event_wait(f->event, -1, &ke), &ke, "step", e);

    if (f->loader)
        loader_done(f->loader, &f->batch);
    if (rc == ERR_OK && f->is_update) {
        t->last.step = f->step;
        t->last.norm = (double)f->result[PLAN_STEP_NORM / 4];
        t->last.skipped = f->result[PLAN_STEP_BLOCK / 4 + 1] != 0;
    } else if (rc == ERR_OK && f->program) {
        tally_add(&t->window, f->program, f->result);
    }
    f->loader = NULL;
    f->program = NULL;
    t->first_flight = (t->first_flight + 1) % FLIGHTS;
    t->n_flights--;
    return rc;
}

enum err_code step_flush(struct trainer *t, struct err *e)
{
    enum err_code rc = ERR_OK;

    while (t->n_flights > 0) {
        enum err_code one = land_one(t, rc == ERR_OK ? e : NULL);
        if (rc == ERR_OK)
            rc = one;
    }
    return rc;
}

enum err_code step_land_older(struct trainer *t, struct err *e)
{
    enum err_code rc = ERR_OK;

    while (rc == ERR_OK && t->n_flights > 0 && t->flight[t->first_flight].step < t->step)
        rc = land_one(t, e);
    return rc;
}

/* A free flight, after the oldest has landed when all are taken. */
static enum err_code take_off(struct trainer *t, struct flight **out, struct err *e)
{
    enum err_code rc = t->n_flights == FLIGHTS ? land_one(t, e) : ERR_OK;

    if (rc != ERR_OK)
        return rc;
    *out = &t->flight[(t->first_flight + t->n_flights) % FLIGHTS];
    (*out)->is_update = false;
    (*out)->program = NULL;
    (*out)->loader = NULL;
    (*out)->step = t->step + 1;
    return ERR_OK;
}

static enum err_code record(struct trainer *t, struct flight *f, struct err *e)
{
    struct kern_err ke = {0};
    enum err_code rc = device_err(t->d->be->event_record(f->event, &ke), &ke, "step", e);

    if (rc == ERR_OK)
        t->n_flights++;
    return rc;
}

static enum err_code put_inputs(struct trainer *t, const struct program *p,
                                const struct loader_batch *b, struct err *e)
{
    enum err_code rc = ERR_OK;

    for (int i = 0; i < p->n_inputs && rc == ERR_OK; i++) {
        const struct program_input *in = &p->input[i];
        for (int w = 0; w < t->n_wants; w++)
            if (t->want[w].field == in->field && t->want[w].dtype == in->dtype)
                rc = device_put(&t->input, in->offset, in->dtype, in->count, b->field[w], e);
    }
    return rc;
}

enum err_code step_enqueue(struct trainer *t, struct loader *l, const struct program *p,
                           int64_t epoch, int64_t first, int64_t n, bool train, struct err *e)
{
    struct kern_bind bind;
    struct flight *f;
    enum err_code rc = take_off(t, &f, e);

    if (rc != ERR_OK)
        return rc;
    rc = loader_get(l, epoch, first, n, &f->batch, &t->waited, e);
    if (rc != ERR_OK)
        return rc;
    f->loader = l;
    step_bind(t, &bind);
    rc = put_inputs(t, p, &f->batch, e);
    if (rc == ERR_OK)
        rc = plan_run(p->plan, &bind, &t->block, e);
    if (rc == ERR_OK && p->result_count > 0)
        rc = device_get(&t->result, 0, DT_F32, p->result_count, f->result, e);
    if (rc == ERR_OK && (train || p->kind == PROGRAM_EVAL))
        f->program = p->kind == PROGRAM_WEIGH ? NULL : p;
    if (rc == ERR_OK)
        rc = record(t, f, e);
    if (rc != ERR_OK)
        loader_done(l, &f->batch);
    return rc;
}

/* ---- the step ---- */

/* The micro-batches of a step: sizes from the position in the epoch, never across its end. */
struct micro {
    int64_t first, n;
};

static struct micro micro_at(const struct trainer *t, int64_t k)
{
    struct micro m = {.first = t->sample + k * t->batch};

    m.n = t->usable - m.first < t->batch ? t->usable - m.first : t->batch;
    return m;
}

static int64_t micro_count(const struct trainer *t)
{
    int64_t left = (t->usable - t->sample + t->batch - 1) / t->batch;
    return left < t->accumulate ? left : t->accumulate;
}

/* Total weights of the step's loss terms, before any gradient: those that are the same for every
 * batch here, the others by running the weigh programs. */
static enum err_code weigh(struct trainer *t, int64_t n_micro, struct err *e)
{
    double total[HYPER_TERMS] = {0};
    bool zeroed = false;
    enum err_code rc = ERR_OK;

    for (int64_t k = 0; k < n_micro && rc == ERR_OK; k++) {
        struct micro m = micro_at(t, k);
        struct program *first = NULL, *w = NULL;

        rc = trainer_program(t, PROGRAM_FIRST, m.n, &first, e);
        if (rc == ERR_OK)
            rc = trainer_program(t, PROGRAM_WEIGH, m.n, &w, e);
        for (int i = 0; rc == ERR_OK && i < first->n_terms && i < HYPER_TERMS; i++)
            total[i] += first->term[i].fixed ? first->term[i].fixed_weight : 0;
        if (rc == ERR_OK && w && !zeroed)
            rc = device_zero(&t->step_mem, e);
        zeroed = true;
        if (rc == ERR_OK && w)
            rc = step_enqueue(t, t->train_loader, w, t->epoch, m.first, m.n, false, e);
    }
    for (int i = 0; i < HYPER_TERMS; i++)
        t->block.value[t->hyper.term_slot + i] = total[i] != 0 ? (float)(1 / total[i]) : 0;
    return rc;
}

static enum err_code enqueue_update(struct trainer *t, struct err *e)
{
    struct kern_bind bind;
    struct flight *f;
    enum err_code rc = take_off(t, &f, e);

    if (rc != ERR_OK)
        return rc;
    f->is_update = true;
    step_bind(t, &bind);
    rc = plan_run(t->update, &bind, &t->block, e);
    if (rc == ERR_OK)
        rc = device_get(&t->step_mem, 0, DT_F32, PLAN_STEP_NORM / 4 + 1, f->result, e);
    if (rc == ERR_OK)
        rc = device_get(&t->step_mem, PLAN_STEP_BLOCK, DT_F32, 4, f->result + PLAN_STEP_BLOCK / 4,
                        e);
    return rc == ERR_OK ? record(t, f, e) : rc;
}

enum err_code step_run(struct trainer *t, struct err *e)
{
    int64_t n_micro = micro_count(t), base = 0;
    enum err_code rc;

    t->block.step = (uint64_t)t->step + 1;
    t->block.flags = KERN_LATCH;
    hyper_fill(&t->hyper, t->step + 1, &t->block);
    rc = weigh(t, n_micro, e);
    for (int64_t k = 0; k < n_micro && rc == ERR_OK; k++) {
        struct micro m = micro_at(t, k);
        struct program *p = NULL;

        rc = trainer_program(t, k == 0 ? PROGRAM_FIRST : PROGRAM_NEXT, m.n, &p, e);
        t->block.sample_base = (uint64_t)base;
        if (rc == ERR_OK)
            rc = step_enqueue(t, t->train_loader, p, t->epoch, m.first, m.n, true, e);
        base += m.n;
    }
    t->block.sample_base = 0;
    if (rc == ERR_OK)
        rc = enqueue_update(t, e);
    if (rc != ERR_OK)
        return rc;
    hyper_advance(&t->hyper, t->steps - t->step);
    t->step++;
    t->samples_seen += base;
    t->sample += base;
    if (t->sample >= t->usable) {
        t->sample = 0;
        t->epoch++;
    }
    return ERR_OK;
}
