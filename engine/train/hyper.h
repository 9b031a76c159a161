/* hyper.h - the hyperparameters in force, and the block of them that kernels read.
 *
 * Each is a `struct tune` (pin, scale, ramp, schedule) with a name, a range and the slots it fills.
 * Slots: learning rates, one a group; weight decays, one a group; momentum, beta1, beta2, eps,
 * clip; then one 1/weight a loss term; then the model's tunables. Owned by the trainer's thread. */
#ifndef HYPER_H
#define HYPER_H

#include "engine/base/err.h"
#include "engine/config/config.h"
#include "engine/script/script.h"
#include "engine/tune/schedule.h"
#include "engine/tune/tune.h"
#include "kernels/kernels.h"

#define HYPER_GROUPS 64
#define HYPER_TERMS 16

enum hyper_key {
    HYPER_LR,
    HYPER_WEIGHT_DECAY,
    HYPER_MOMENTUM,
    HYPER_BETA1,
    HYPER_BETA2,
    HYPER_EPS,
    HYPER_CLIP,
    HYPER_KEYS
};

struct hyper_item {
    char name[64]; /* short name: "lr", "beta1", "model.layers.3.p" */
    struct tune tune;
    double min, max;
    double now;    /* as of the last hyper_fill */
    double logged; /* as last written to a row, NaN at first */
    int slot;      /* the first it fills */
};

struct hyper_group {
    double lr, decay; /* multipliers */
};

struct hyper {
    int n;
    struct hyper_item *item; /* HYPER_KEYS first, then the model's tunables; owned */
    int n_groups;
    struct hyper_group group[HYPER_GROUPS];
    struct schedule schedule;
    double clock; /* steps done on the schedule's clock (decisions.md) */
    double total; /* its length T */
    int term_slot, tunable_slot;
};

/* Where the slots of a model with n_groups groups lie: known before the model is traced. */
int hyper_first_tunable_slot(void);

enum err_code hyper_init(struct hyper *h, const struct config *c, int64_t steps, struct err *e);
void hyper_release(struct hyper *h);
/* The model's tunables, known after the first trace. Later traces must bring the same ones. */
enum err_code hyper_add_tunables(struct hyper *h, const struct trace *t, struct err *e);
int hyper_add_group(struct hyper *h, double lr, double decay); /* -1 when there are too many */

/* Fills out->value for update `step` (from 1); n, seed and the rest of *out are the caller's. */
void hyper_fill(struct hyper *h, int64_t step, struct kern_hyper *out);
/* After the step: the schedule's clock goes on. */
void hyper_advance(struct hyper *h, int64_t steps_left);

void hyper_opt_slots(struct kern_opt *o); /* the slot numbers an update needs */

#endif
