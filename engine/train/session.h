/* session.h - private to engine/train: what a trainer holds, shared by setup.c, step.c, evaluate.c,
 * save.c and loop.c. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "engine/data/loader.h"
#include "engine/train/tally.h"
#include "engine/train/trainer.h"

#define FLIGHTS 8 /* work enqueued and not yet heard of */

/* One plan_run whose results are on their way. */
struct flight {
    bool is_update;
    int64_t step;
    const struct program *program; /* micro-batches */
    struct loader *loader;
    struct loader_batch batch; /* given back when the flight lands */
    int64_t samples;
    float *result; /* host; [results_cap] */
    struct kern_event *event;
};

/* What a finished step said. */
struct landed {
    int64_t step;
    double norm;
    bool skipped;
};

struct trainer {
    const struct config *c;
    struct trainer_opts opts;
    struct device *d;
    struct data data;
    const struct data_field *fields;
    int n_fields;
    struct script *script;
    struct trace trace; /* the first: training mode, full batch */
    struct hyper hyper;
    struct store store;
    struct program_maker maker;
    struct program **program; /* cache, owned */
    int n_programs;
    size_t program_cap;
    struct lowered *update_low;
    struct plan *update;
    struct device_mem arena, input, result, step_mem;
    int64_t result_cap; /* f32 elements */

    struct data_want want[DATA_FIELDS]; /* inputs of the training programs, in their order */
    int n_wants;
    struct loader *train_loader, *valid_loader;

    int64_t batch, accumulate, train_count, valid_count,
        usable; /* usable: samples of an epoch that are taken */
    int64_t steps, steps_per_epoch;
    struct kern_hyper block;

    /* position: the next sample */
    int64_t epoch, sample, samples_seen, step;
    struct flight flight[FLIGHTS];
    int first_flight, n_flights;
    struct tally window; /* train losses and metrics since the last row */
    bool window_ready;
    struct landed last;
    double waited; /* seconds waiting for data */

    struct trainer_layer *layer;
    int n_layers;
    struct str notes;
};

/* setup.c */
void trainer_note(const struct trainer *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The cached program; traced, lowered, compiled when it is the first time. NULL with ERR_OK:
 * nothing to weigh. */
enum err_code trainer_program(struct trainer *t, enum program_kind kind, int64_t batch,
                              struct program **out, struct err *e);
enum err_code trainer_reserve(struct trainer *t,
                              struct err *e); /* memory for the largest of the cached programs */

/* step.c */
enum err_code step_run(struct trainer *t, struct err *e); /* enqueues step t->step + 1 */
enum err_code step_flush(struct trainer *t,
                         struct err *e); /* everything enqueued has landed: t->last, t->window */
enum err_code step_land_older(struct trainer *t,
                              struct err *e); /* flights of steps before the newest */
void step_bind(struct trainer *t, struct kern_bind *b);
/* Copies a batch in and enqueues a program over it. */
enum err_code step_enqueue(struct trainer *t, struct loader *l, const struct program *p,
                           int64_t epoch, int64_t first, int64_t n, bool train, struct err *e);

/* evaluate.c: loss and metrics over the validation set. */
enum err_code evaluate(struct trainer *t, struct tally *out, struct err *e);

/* save.c */
struct best {
    bool has;
    double value;
    int64_t step;
};
enum err_code save_checkpoint(struct trainer *t, struct rundir *r, int64_t step, double seconds,
                              const struct best *best, struct err *e);

/* summary.c */
enum err_code summary_layers(struct trainer *t, struct err *e);

#endif
