/* plot.h - the inside of a chart: which lines, which y range, and their cells. Used by chart.c
 * alone.
 *
 * plot_init asks the series, plot_draw puts the lines onto a canvas of the plot's size. */
#ifndef PLOT_H
#define PLOT_H

#include "tui/chart.h"

enum plot_role {
    PLOT_LINE,
    PLOT_POINTS, /* a mark at each value */
    PLOT_BEHIND  /* dimmed: the raw line behind a smoothed one, an older branch */
};

struct plot_line {
    enum plot_role role;
    struct style style;
    uint32_t mark;           /* 0: none */
    bool reports;            /* non-finite and non-positive values of it are marked and counted */
    struct series_col *cols; /* [plot.cols], owned */
};

struct plot {
    const struct chart *ch;
    const struct chart_palette *pal;
    int w, h;                /* cells */
    int cols;                /* columns asked for: dots across */
    struct plot_line *lines; /* owned; back to front */
    int n_lines;

    bool any;  /* there are points in range, finite or not */
    bool have; /* lo and hi are set: something can be drawn */
    bool flat; /* lo == hi: drawn in the middle */
    double lo, hi;
    bool dense;     /* more than one point in some column */
    bool cut;       /* the range cuts something off */
    int64_t nonpos; /* in range, not drawn because of the log axis */
};

/* 0, or -1 if out of memory; release either way. */
int plot_init(struct plot *p, const struct chart *ch, const struct chart_area *area);
void plot_release(struct plot *p);

int plot_draw(const struct plot *p, struct canvas *c); /* 0, or -1 if out of memory */

uint32_t plot_series_mark(const struct chart *ch,
                          int i); /* sign of series i in plot and title, or 0 */
struct style plot_series_style(const struct chart *ch, int i);
const struct chart_palette *plot_palette(const struct chart *ch);

#endif
