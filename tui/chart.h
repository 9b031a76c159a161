/* chart.h - series to cells: a title row, the plot with its axis, a marks row, an x axis.
 *
 * Signs, letters and rules are those the help screen explains: a letter at the title's end for
 * every transform in force (S smoothed, L log, D several points a column, C cut off, Z zoomed, H
 * not following, E T N x is epoch, time, samples, B2 the branch in front), '!' on the bottom row
 * for a value that is not finite, 'v' there for one that a log axis cannot show, '^' and 'v' where
 * a range cuts something off.
 *
 * chart_draw never fails on what the data are (nothing yet, one point, constant, only NaN, 1e-300
 * .. 1e300) nor on the size (down to 1x1: rows and gutter are left out as it shrinks). Everything a
 * chart points to is borrowed for the call. Pure: same input, same cells. */
#ifndef CHART_H
#define CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/canvas.h"
#include "tui/raster.h"
#include "tui/series.h"

/* Series that have a colour and a mark of their own; further ones begin again. */
#define CHART_SERIES_MAX 6

/* Colours by role. Without colour (colour false) the raw line behind a smoothed one is not drawn
 * and every line beyond the first carries its mark. */
struct chart_palette {
    bool colour;
    struct style series[CHART_SERIES_MAX];
    struct style raw;    /* raw line behind a smoothed one, older branches */
    struct style text;   /* title, labels, axis */
    struct style bad;    /* '!' and nan */
    struct style notice; /* limits, '^' 'v' */
    struct style guide;  /* vertical guides, mark e */
};
extern const struct chart_palette chart_dark, chart_light, chart_16, chart_mono;

struct chart_series {
    const char *name; /* for the title; may be "" */
    const struct series *data;
    const struct series *smooth; /* from series_smooth: drawn in front, data behind; or NULL */
    bool points;                 /* drawn as its mark at each value (validation), not as a line */
    uint32_t mark;               /* 0: none, or the usual one when points is set: 'o' */
};

/* A sign of the marks row, once under the plot: see chart_mark_of. */
struct chart_mark {
    double x;
    char sign;
    bool guide; /* a vertical guide through the plot: a hyperparameter changed here */
};

struct chart_limit {
    double y;
    const char *text; /* "slowdown 87" */
};

enum chart_range { CHART_ALL, CHART_ROBUST, CHART_HELD };
enum chart_x { CHART_STEP, CHART_EPOCH, CHART_TIME, CHART_SAMPLES };
enum chart_best { CHART_BEST_NONE, CHART_BEST_MIN, CHART_BEST_MAX };

/* {0} with a palette is a valid empty chart. */
struct chart {
    const struct chart_palette *palette; /* NULL: chart_mono */
    enum raster_glyphs glyphs;
    const char *title;     /* metric name, "loss"; NULL: no title row */
    const char *title_own; /* the whole title row but its letters; NULL: made from the series */

    const struct chart_series *series;
    int n_series;
    enum chart_best best; /* of the last series that has values, in the title */
    int branch; /* in front: 0 the newest, k the k-th counted from 1; the others are dimmed */

    bool log_y;
    enum chart_range range;
    double y0, y1; /* CHART_HELD */
    double smooth; /* weight, for the letter; 0: none */

    enum chart_x x;
    double x0, x1; /* visible part; x0 >= x1: all */
    bool behind;   /* not following: newer points exist to the right */

    const struct chart_mark *marks;
    int n_marks;
    const struct chart_limit *limits;
    int n_limits;
    bool marks_row, x_axis;
    int gutter;  /* cells of y labels; 0: by the width (6 from 50 columns on) */
    bool cursor; /* the column of cursor_x in reverse video */
    double cursor_x;
};

/* Where a chart of w x h has its plot: cells, relative to its canvas; and the x range in force. */
struct chart_area {
    int x, y, w, h;               /* the plot; w, h >= 1 as long as the canvas has a cell */
    int title_y, marks_y, axis_y; /* rows, -1 when left out */
    int gutter;                   /* cells of labels; the axis stands after them when axis is set */
    bool axis;
    int fine;      /* dots a column */
    double x0, x1; /* x of the first and the last dot; x0 == x1 for a single one */
};
void chart_area(const struct chart *ch, int w, int h, struct chart_area *area);

double chart_x_at(const struct chart_area *a, int col); /* x in the middle of plot column col */
int chart_col_at(const struct chart_area *a, double x); /* plot column of x; -1 or a->w outside */

/* Draw over the whole canvas. 0, or -1 if out of memory (then the plot is empty). */
int chart_draw(const struct chart *ch, struct canvas *c);

/* The sign that a column shows for these signs: the most important one; '+' for several edits,
 * notes or alerts alike. '\0' for none. */
char chart_mark_of(const char *signs);

#endif
