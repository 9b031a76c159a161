/* tune.h - the value of one hyperparameter in force: pin, scale, ramp, schedule (design section 6,
 * decisions.md "Forms"). Pure functions over a small struct that a checkpoint stores as it is. */
#ifndef TUNE_H
#define TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

struct tune {
    double base;    /* configured */
    bool scheduled; /* follows the schedule when neither pinned nor ramping */
    double scale;   /* on the scheduled (or configured) value, 1 at first */
    bool pinned;
    double pin;
    bool ramping;
    double ramp_from, ramp_to;
    int64_t ramp_start, ramp_steps; /* at step ramp_start it is still ramp_from */
};

enum tune_form { TUNE_PIN, TUNE_MULTIPLY, TUNE_SCALE, TUNE_RAMP, TUNE_SCHEDULE };

struct tune_change {
    enum tune_form form;
    double value; /* pin, ramp target, factor */
    int64_t over; /* ramp: steps, >= 1 */
    int64_t at;   /* takes effect when this step begins; 0: the next one */
};

void tune_init(struct tune *t, double base, bool scheduled);
/* The value update `step` uses, given the schedule's factor at that step. */
double tune_value(const struct tune *t, int64_t step, double schedule_factor);
/* Apply a change that takes effect at `step`; factor is the schedule's there. The result is not
 * range-checked. */
void tune_apply(struct tune *t, const struct tune_change *c, int64_t step, double factor);

/* "3e-4", "*=0.5" (the text after the key: see below), "x0.35", "3e-4 over 500", "schedule", each
 * with " at 2000". `op` is '=' or '*' as it stood before the text. Numbers may end in k or M when
 * they are steps. ERR_USAGE with the column when it is none of the forms. */
enum err_code tune_parse(char op, const char *text, struct tune_change *out, struct err *e);

#endif
