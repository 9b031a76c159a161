/* ticks.h - where an axis is marked, and numbers as short text. Pure functions, any thread.
 *
 * Numbers are written with a dot whatever the locale is. */
#ifndef TICKS_H
#define TICKS_H

#include <stdbool.h>
#include <stddef.h>

#define TICKS_MAX 32
#define TICK_TEXT 16 /* bytes of a label, with the NUL */

struct tick {
    double at;
    int pos;              /* row (0 on top) or column (0 on the left) */
    char text[TICK_TEXT]; /* no two of a set are equal */
};

/* A y axis of `rows` rows, hi on the top row and lo on the bottom one (lo < hi; with `log` 0 < lo).
 * Ticks at 1, 2, 5 times a power of ten, a log axis at 1, 2, 3, 5, 7; at most one a row and about
 * one every second row; labels of at most `width` characters. From top to bottom. Returns how many.
 */
int ticks_y(double lo, double hi, bool log, int rows, int width, struct tick out[TICKS_MAX]);

/* Move hi up and lo down to the next tick where that costs less than a tenth of the axis: labels on
 * the edges read better than data on the edges. The other arguments as for ticks_y. */
void ticks_snap(double *lo, double *hi, bool log, int rows);

/* The row or, finer, the dot row 0 .. n-1 of a value: hi is 0, lo is n-1; what lies outside is on
 * the edge. */
int ticks_y_pos(double lo, double hi, bool log, int n, double y);

enum tick_x {
    TICK_STEP,  /* whole numbers, k and M: also samples */
    TICK_EPOCH, /* any number */
    TICK_TIME   /* seconds: 0:07, 1:30:00 */
};

/* An x axis of `cols` columns, x0 in the first and x1 in the last. Labels stand centred on their
 * column, are moved inside at the edges and keep three cells apart; pos is where the text begins.
 */
int ticks_x(double x0, double x1, enum tick_x kind, int cols, struct tick out[TICKS_MAX]);

/* Four significant digits: 0.3124, 3.290, 88, 51.2k, 8.410e-5; with fewer where the value has fewer
 * (0.001); nan, inf, -inf. buf has at least TICK_TEXT bytes; returns buf. */
char *num_value(char *buf, double v);
char *num_step(char *buf, double step); /* 12431, 12.43M */

#endif
