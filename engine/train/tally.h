/* tally.h - sums of losses and metrics over many batches, and the values they make.
 *
 * A mean is sum / weight over all samples seen, never a mean of batch means (decisions.md). Sums
 * are f64. */
#ifndef TALLY_H
#define TALLY_H

#include "engine/run/rundir.h"
#include "engine/train/program.h"

#define TALLY_VALUES 32

struct tally_mean {
    int n;
    double coef[HYPER_TERMS], sum[HYPER_TERMS], weight[HYPER_TERMS];
};

struct tally_metric {
    char name[64], better[4];
    bool is_mean;
    struct tally_mean mean;
    int n_stats;
    double *stats; /* owned */
};

struct tally {
    int64_t batches;
    struct tally_mean loss;
    int n_metrics;
    struct tally_metric *metric; /* owned */
};

/* Takes the shape (names, terms) of a program; every program of one mode has the same. */
enum err_code tally_init(struct tally *t, const struct program *p, struct err *e);
void tally_release(struct tally *t);
void tally_reset(struct tally *t); /* all sums 0 */
/* Adds the results of one batch: result[p->result_count], as read back. */
void tally_add(struct tally *t, const struct program *p, const float *result);
/* sum of coef * sum / weight; NaN when nothing was added or a weight is 0. */
double tally_mean_value(const struct tally_mean *m);
/* Writes "<prefix>.loss" and each metric to out[0..cap); names are made in `names` (cap x 80
 * bytes). Metrics with a `value` function run it in Lua. Returns how many. */
int tally_values(const struct tally *t, struct script *s, const char *prefix, struct metric *out,
                 char (*names)[80], int cap);

#endif
