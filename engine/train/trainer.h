/* trainer.h - an experiment, from its config to trained weights.
 *
 * trainer_open does everything that can fail before a step: data read and checked, model traced,
 * memory planned and taken. trainer_run takes the steps and writes the run directory. One thread.
 */
#ifndef TRAINER_H
#define TRAINER_H

#include <stdatomic.h>

#include "engine/base/str.h"
#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "engine/run/rundir.h"
#include "engine/run/state.h"

struct trainer;

struct trainer_opts {
    const char *shipped; /* folder of nn.lua */
    /* Lines worth saying: from Lua's print, from the data, from init. May be NULL. */
    void (*note)(void *arg, const char *line);
    void *arg;
};

/* c is borrowed for the life of the trainer. */
enum err_code trainer_open(const struct config *c, const struct trainer_opts *o,
                           struct trainer **out, struct err *e);
void trainer_free(struct trainer *t); /* NULL is a no-op */

/* ---- what `check` shows ---- */
struct trainer_layer {
    char path[96];      /* "layers.2" */
    char op[32];        /* what it is mostly: "matmul" */
    char where[64];     /* script line */
    struct shape shape; /* of its last output, batch first */
    int64_t params;
    double flops;  /* forward, of one batch */
    int64_t bytes; /* of its output */
};

struct trainer_summary {
    int n_layers;
    const struct trainer_layer *layer; /* borrowed from the trainer */
    int64_t params, trainable;
    int64_t train_samples, valid_samples, steps, steps_per_epoch;
    double flops_step; /* forward and backward, of one micro-batch */
    /* bytes */
    int64_t mem_params, mem_grads, mem_state, mem_arena, mem_input, mem_total, mem_free;
    const struct plan_report *report;      /* of the training program */
    const struct plan_report *eval_report; /* NULL without validation data */
    const char *device, *device_why;
    char graph_hash[65];
};
void trainer_summary(const struct trainer *t, struct trainer_summary *out);
/* One line a parameter: name, shape, group, why. */
void trainer_groups(const struct trainer *t, struct str *out);
/* The training program as text, one line an op (`check --plan`). */
void trainer_print_plan(const struct trainer *t, struct str *out);
/* The traced graph of the model, before autodiff: text, or Graphviz DOT. */
void trainer_print_graph(const struct trainer *t, bool dot, struct str *out);
/* Times a step: two to warm up, then at least 5 and 0.2 s. The weights are not those to train from
 * afterwards. */
enum err_code trainer_trial(struct trainer *t, double *step_seconds, struct err *e);

/* ---- training ---- */
struct train_row {
    int64_t step, steps;
    double epoch, t;
    int seg;
    const struct metric *metric;
    int n;
    bool is_eval;
};

struct train_observer {
    void *arg;
    void (*row)(void *arg, const struct train_row *row);
    /* once a step: for the display. t: seconds trained */
    void (*tick)(void *arg, int64_t step, double t);
    void (*state)(void *arg, const char *state);
    void (*note)(void *arg, const char *line);
};

struct train_end {
    char end[16]; /* done, stopped, failed */
    int exit_code;
    int64_t step;
    struct run_state state; /* last values, best */
};

/* Trains and writes into r (which may be NULL: nothing is written). `stop` is read between steps: a
 * signal's number asks to save and end. The error, when one comes back, is also the end's reason in
 * state.json. */
enum err_code trainer_run(struct trainer *t, struct rundir *r, const struct train_observer *o,
                          const atomic_int *stop, struct train_end *end, struct err *e);

#endif
