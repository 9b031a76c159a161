/* series.h - a metric's history, made so that ten million points draw in one pass over the columns.
 *
 * Points come in the order they were logged. They are gathered in leaves of 1024; a leaf keeps its
 * summary (smallest, largest, first, last, ...) for ever and its raw points while they fit the
 * series' bound; groups of 32 leaves, of 32 groups, ... have summaries too. A query takes the
 * largest summaries that fall into one column and looks at raw points only where a leaf lies across
 * a column's edge. So every column knows its extremes, and no spike, no first and no last value is
 * ever lost, at any zoom.
 *
 * x is any number that grows: step, epoch, seconds, samples (one series an axis). When it goes back
 * - a rewind, a resume from an older checkpoint - a new branch begins; nothing is dropped, a query
 * asks for one branch. A repeated x stays in its branch. x is a double: steps above 2^53 may share
 * one with a neighbour.
 *
 * Memory: 16 bytes a raw point up to the bound (default 2^20 points: 16 MiB), and about 150 bytes
 * for every 1024 points beyond. Not thread safe: one owner. */
#ifndef SERIES_H
#define SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERIES_LEAF 1024              /* points */
#define SERIES_RAW_DEFAULT (1u << 20) /* points */
#define SERIES_BRANCHES_MAX 4096      /* further ones are kept in the last branch */

/* What is known of a run of points. Fields of values speak of finite ones only and are 0 while
 * count is 0 (pos_min is +inf while none is above zero). */
struct series_sum {
    double x_lo, x_hi;             /* smallest and largest x, of all points */
    double first, last;            /* in the order logged */
    double min, max, min_x, max_x; /* extremes, and the x where each was first reached */
    double pos_min;   /* smallest value above zero: the least that a log axis can show */
    double total;     /* sum of values */
    int64_t count;    /* finite values */
    int64_t nonpos;   /* of these, at or below zero */
    int64_t nan, inf; /* values that are not finite */
};

/* A column of a query. Points of a leaf whose raw points are gone and which lies across several
 * columns are put where their extremes, first and last x were: `coarse` says that a closer look
 * needs the file. */
struct series_col {
    struct series_sum sum;
    bool coarse;
};

struct series; /* opaque */

/* raw_max: raw points kept, newest first to stay (the newest leaf always stays); 0:
 * SERIES_RAW_DEFAULT. NULL if out of memory. */
struct series *series_new(size_t raw_max);
void series_free(struct series *s); /* NULL is a no-op */

/* Append a point, amortised O(1). NaN and infinite values are counted and marked, never drawn. A
 * point whose x is not finite is counted (series_lost) and left out. 0, or -1 if out of memory:
 * then the point is counted in series_lost. */
int series_append(struct series *s, double x, double y);

/* Append what a file's pyramid says of up to SERIES_LEAF points, without raw points: how a huge
 * file is opened at once. 0, or -1 if out of memory or if `sum` contradicts itself (it may come
 * from a file). */
int series_append_sum(struct series *s, const struct series_sum *sum);

/* The next point begins a new branch whatever its x is (a new segment of a run). No-op when empty.
 */
void series_branch(struct series *s);

int64_t series_count(const struct series *s); /* points, also those that are not finite */
int64_t series_lost(const struct series *s);
const struct series_sum *series_total(const struct series *s); /* of everything; borrowed */
/* x of the first value that was not finite; NaN if there is none. */
double series_first_bad(const struct series *s);
/* The newest point. False when empty. y may be NaN or infinite; after series_append_sum its last.
 */
bool series_newest(const struct series *s, double *x, double *y);

int series_branches(const struct series *s); /* 0 while empty */
/* x range of a branch, 0 the oldest, -1 the newest. False if there is no such branch. */
bool series_branch_range(const struct series *s, int branch, double *x_lo, double *x_hi);

/* Columns of equal width over [x0, x1], x0 < x1 and both finite; x1 itself belongs to the last
 * column. out[cols] is filled whole (sum.count, nan and inf all 0: nothing there). branch as above.
 * Cost: O(cols * 1024) raw points at most, whatever the length. */
void series_query(const struct series *s, int branch, double x0, double x1, int cols,
                  struct series_col *out);

/* Exponential smoothing without the bias of its start: each value is the weighted mean of all
 * values so far, weights w^age. A constant stays that constant exactly. `to` (a new series) takes
 * the smoothed values of `from` that it does not have yet, so call it after each append: O(new
 * points). Values that are not finite are passed on and change nothing; a new branch starts afresh.
 * Leaves without raw points count as so many times their mean. 0 <= w < 1, the same at each call.
 * 0, or -1 if out of memory. */
int series_smooth(const struct series *from, double w, struct series *to);

#endif
