/* schedule.h - learning-rate schedules as pure functions. No state, no clock of their own. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE, SCHEDULE_STEP };

struct schedule {
    enum schedule_kind kind;
    double warmup; /* steps over which the value rises from 0: step s of it has (s + 1) / warmup */
    double final;  /* linear, cosine: the factor at the end, 0 .. 1 */
    double every;  /* step: steps between drops, counted from the end of the warm-up; 0: none */
    double factor; /* step: what each drop multiplies by */
};

/* False when there is no schedule of that name. */
bool schedule_from_name(const char *name, enum schedule_kind *out);

/* The factor on the base value at time s (steps done on the schedule's clock, from 0) of a schedule
 * of length total. Past the end: the last value. Always finite for finite arguments. Cosine:
 * Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts. */
double schedule_factor(const struct schedule *k, double s, double total);

/* The clock: s advances by (T - s) / (steps left), so that a changed number of steps never makes
 * the value jump (decisions.md). steps_left counts the step about to be taken; 0 or less returns s.
 */
double schedule_advance(double s, double total, int64_t steps_left);

#endif
