/* schedule.c - factors over time, and the clock they run on. */
#include "engine/tune/schedule.h"

#include <float.h>
#include <math.h>
#include <string.h>

bool schedule_from_name(const char *name, enum schedule_kind *out)
{
    static const char *const names[] = {"constant", "linear", "cosine", "step"};

    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(names[i], name) == 0) {
            *out = (enum schedule_kind)i;
            return true;
        }
    return false;
}

/* After the warm-up: p goes from 0 to 1 over what is left, done counts its steps. */
static double after_warmup(const struct schedule *k, double p, double done)
{
    double f;

    switch (k->kind) {
    case SCHEDULE_LINEAR:
        return 1 + (k->final - 1) * p;
    case SCHEDULE_COSINE:
        return k->final + (1 - k->final) * (0.5 * (1 + cos(M_PI * p)));
    case SCHEDULE_STEP:
        f = k->every > 0 ? pow(k->factor, floor(done / k->every)) : 1;
        return isfinite(f) ? f : DBL_MAX;
    case SCHEDULE_CONSTANT:
        break;
    }
    return 1;
}

double schedule_factor(const struct schedule *k, double s, double total)
{
    s = s < total ? s : total;
    s = s > 0 ? s : 0;
    if (s < k->warmup)
        return s + 1 < k->warmup ? (s + 1) / k->warmup : 1;
    return after_warmup(k, total > k->warmup ? (s - k->warmup) / (total - k->warmup) : 1,
                        s - k->warmup);
}

double schedule_advance(double s, double total, int64_t steps_left)
{
    if (steps_left <= 0)
        return s;
    return steps_left == 1 ? total : s + (total - s) / (double)steps_left;
}
