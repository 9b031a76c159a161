/* plot.c - columns of series to dots. */
#include "tui/plot.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/alloc.h"
#include "tui/ticks.h"

#define BRANCHES_SHOWN 16 /* older branches of a series that are drawn, newest first */
#define MARK_EVERY 8      /* columns between the marks on a line */

const struct chart_palette *plot_palette(const struct chart *ch)
{
    return ch->palette ? ch->palette : &chart_mono;
}

uint32_t plot_series_mark(const struct chart *ch, int i)
{
    static const char marks[] = "*ox+#%";
    const struct chart_series *s = &ch->series[i];

    if (s->mark)
        return s->mark;
    if (s->points)
        return 'o';
    return i == 0 ? 0 : (uint32_t)marks[i % CHART_SERIES_MAX];
}

struct style plot_series_style(const struct chart *ch, int i)
{
    return plot_palette(ch)->series[i % CHART_SERIES_MAX];
}

static bool log_y(const struct plot *p)
{
    return p->ch->log_y;
}

/* Can anything of this column be drawn? */
static bool col_has(const struct plot *p, const struct series_col *col)
{
    return col->sum.count > 0 && (!log_y(p) || col->sum.max > 0);
}

/* The least that is drawn of a column that col_has. */
static double col_low(const struct plot *p, const struct series_col *col)
{
    return log_y(p) && !(col->sum.min > 0) ? col->sum.pos_min : col->sum.min;
}

static double shown(const struct plot *p, const struct series_col *col, double y)
{
    return log_y(p) && !(y > 0) ? col_low(p, col) : y;
}

static int add_line(struct plot *p, const struct series *s, int branch,
                    const struct chart_area *area, struct plot_line line)
{
    double d = p->cols > 1 ? (area->x1 - area->x0) / (p->cols - 1) / 2 : 0;
    double x0 = area->x0 - d, x1 = area->x1 + d;

    line.cols = mem_array((size_t)p->cols, sizeof *line.cols);
    if (!line.cols)
        return -1;
    /* A single x is the first column: the width of the others is then of no matter, only not 0. */
    if (!(x0 < x1))
        x1 = x0 + fmax(1, fabs(x0) * 1e-9);
    series_query(s, branch, x0, x1, p->cols, line.cols);
    p->lines[p->n_lines++] = line;
    return 0;
}

/* The branch in front, as an index of series_query. */
static int front_branch(const struct plot *p, const struct series *s)
{
    int n = series_branches(s);
    return p->ch->branch >= 1 && p->ch->branch <= n ? p->ch->branch - 1 : n - 1;
}

static int older_from(const struct series *s)
{
    int n = series_branches(s) - 1 - BRANCHES_SHOWN;
    return n < 0 ? 0 : n;
}

static int add_behind(struct plot *p, const struct chart_area *area)
{
    struct plot_line line = {.role = PLOT_BEHIND, .style = p->pal->raw, .reports = true};

    for (int i = 0; i < p->ch->n_series; i++) {
        const struct chart_series *s = &p->ch->series[i];
        for (int b = older_from(s->data); b < series_branches(s->data); b++) {
            bool front = b == front_branch(p, s->data);
            if (front && (s->points || !s->smooth || !p->pal->colour))
                continue;
            if (add_line(p, s->data, b, area, line) < 0)
                return -1;
        }
    }
    return 0;
}

static int add_front(struct plot *p, int i, const struct chart_area *area)
{
    const struct chart_series *s = &p->ch->series[i];
    const struct series *data = s->smooth && !s->points ? s->smooth : s->data;
    struct plot_line line = {.role = s->points ? PLOT_POINTS : PLOT_LINE,
                             .style = plot_series_style(p->ch, i),
                             .mark = plot_series_mark(p->ch, i),
                             .reports = data == s->data || !p->pal->colour};

    return series_branches(data) == 0 ? 0 : add_line(p, data, front_branch(p, data), area, line);
}

static int add_lines(struct plot *p, const struct chart_area *area)
{
    size_t most = 0;

    for (int i = 0; i < p->ch->n_series; i++)
        most +=
            (size_t)(series_branches(p->ch->series[i].data) - older_from(p->ch->series[i].data)) +
            2;
    p->lines = mem_array(most + 1, sizeof *p->lines);
    if (!p->lines || add_behind(p, area) < 0)
        return -1;
    /* lines first: the marks of a points series stand on top */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < p->ch->n_series; i++)
            if (p->ch->series[i].points == (pass == 1) && add_front(p, i, area) < 0)
                return -1;
    return 0;
}

static void count_col(struct plot *p, const struct plot_line *line, const struct series_col *col)
{
    int64_t points = col->sum.count + col->sum.nan + col->sum.inf;

    p->any |= points > 0;
    p->dense |= points > 1;
    if (log_y(p) && line->reports)
        p->nonpos += col->sum.nonpos;
    if (!col_has(p, col))
        return;
    double lo = col_low(p, col), hi = col->sum.max;
    p->lo = p->have ? fmin(p->lo, lo) : lo;
    p->hi = p->have ? fmax(p->hi, hi) : hi;
    p->have = true;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* 1st to 99th percentile of the columns' lowest and highest values. */
static int robust_range(struct plot *p, double *lo, double *hi)
{
    size_t n = 0;
    double *v = mem_array((size_t)p->n_lines * (size_t)p->cols * 2 + 1, sizeof *v);

    if (!v)
        return -1;
    for (int k = 0; k < p->n_lines; k++)
        for (int i = 0; i < p->cols; i++)
            if (col_has(p, &p->lines[k].cols[i])) {
                v[n++] = col_low(p, &p->lines[k].cols[i]);
                v[n++] = p->lines[k].cols[i].sum.max;
            }
    if (n > 0) {
        qsort(v, n, sizeof *v, by_size);
        *lo = v[(n - 1) / 100];
        *hi = v[n - 1 - (n + 99) / 100 + (n < 100)];
    }
    mem_free(v);
    return 0;
}

static int set_range(struct plot *p)
{
    double lo = p->lo, hi = p->hi;

    if (!p->have)
        return 0;
    if (p->ch->range == CHART_ROBUST && robust_range(p, &lo, &hi) < 0)
        return -1;
    if (p->ch->range == CHART_HELD && p->ch->y0 < p->ch->y1 && (!log_y(p) || p->ch->y0 > 0)) {
        lo = p->ch->y0;
        hi = p->ch->y1;
    }
    p->cut = lo > p->lo || hi < p->hi;
    p->lo = lo;
    p->hi = hi;
    /* what differs by rounding only is a constant: its noise is not for drawing */
    p->flat = hi / 2 - lo / 2 <= 1e-13 * fmax(fabs(lo), fabs(hi));
    if (!p->flat && p->ch->range == CHART_ALL)
        ticks_snap(&p->lo, &p->hi, log_y(p), p->h);
    return 0;
}

int plot_init(struct plot *p, const struct chart *ch, const struct chart_area *area)
{
    *p = (struct plot){.ch = ch, .pal = plot_palette(ch), .w = area->w, .h = area->h};
    p->cols = area->w * raster_fine_x(ch->glyphs);
    if (p->cols < 1)
        return 0;
    if (add_lines(p, area) < 0)
        return -1;
    for (int k = 0; k < p->n_lines; k++)
        for (int i = 0; i < p->cols; i++)
            count_col(p, &p->lines[k], &p->lines[k].cols[i]);
    return set_range(p);
}

void plot_release(struct plot *p)
{
    for (int k = 0; k < p->n_lines; k++)
        mem_free(p->lines[k].cols);
    mem_free(p->lines);
    *p = (struct plot){0};
}

static int dot_of(const struct plot *p, int n, double y)
{
    if (p->flat)
        return y < p->lo ? n - 1 : y > p->hi ? 0 : (n - 1) / 2;
    return ticks_y_pos(p->lo, p->hi, log_y(p), n, y);
}

/* The cell row of a value, by the finest dots, so that marks, limits and ticks stand on the line.
 */
static int row_of(const struct plot *p, double y)
{
    return dot_of(p, 4 * p->h, y) / 4;
}

static bool within(const struct plot *p, double y)
{
    return y >= p->lo && y <= p->hi;
}

static void raster_series(const struct plot *p, const struct plot_line *line, struct raster *r)
{
    int before = -1, before_y = 0;

    raster_clear(r);
    for (int i = 0; i < p->cols; i++) {
        const struct series_col *col = &line->cols[i];
        if (!col_has(p, col)) {
            /* A column of nothing but what cannot be drawn is a gap; an empty one is not. */
            if (col->sum.count + col->sum.nan + col->sum.inf > 0)
                before = -1;
            continue;
        }
        int last = dot_of(p, r->dots_y, shown(p, col, col->sum.last));
        if (before >= 0)
            raster_line(r, before, before_y, i,
                        dot_of(p, r->dots_y, shown(p, col, col->sum.first)));
        raster_span(r, i, dot_of(p, r->dots_y, col_low(p, col)),
                    dot_of(p, r->dots_y, col->sum.max));
        raster_point(r, i, last);
        before = i;
        before_y = last;
    }
}

static void draw_points(const struct plot *p, const struct plot_line *line, struct canvas *c)
{
    int fine = raster_fine_x(p->ch->glyphs);

    for (int i = 0; i < p->cols; i++) {
        const struct series_col *col = &line->cols[i];
        if (!col_has(p, col))
            continue;
        canvas_put(c, i / fine, row_of(p, col_low(p, col)), line->mark, line->style);
        canvas_put(c, i / fine, row_of(p, col->sum.max), line->mark, line->style);
        canvas_put(c, i / fine, row_of(p, shown(p, col, col->sum.last)), line->mark, line->style);
    }
}

/* A mark here and there, so that lines are told apart without colour. */
static void draw_line_marks(const struct plot *p, const struct plot_line *line, int k,
                            struct canvas *c)
{
    int fine = raster_fine_x(p->ch->glyphs), next = 2 + 3 * k % MARK_EVERY;

    for (int i = 0; i < p->cols; i++) {
        const struct series_col *col = &line->cols[i];
        if (i / fine < next || !col_has(p, col))
            continue;
        canvas_put(c, i / fine, row_of(p, shown(p, col, col->sum.last)), line->mark, line->style);
        next = i / fine + MARK_EVERY;
    }
}

static void draw_limits(const struct plot *p, struct canvas *c)
{
    uint32_t dash = p->ch->glyphs == RASTER_ASCII ? '-' : 0x254c;

    for (int row = 0; row < p->h; row++) {
        const struct chart_limit *lowest = NULL;
        for (int i = 0; i < p->ch->n_limits; i++) {
            const struct chart_limit *l = &p->ch->limits[i];
            if (within(p, l->y) && row_of(p, l->y) == row && (!lowest || l->y < lowest->y))
                lowest = l;
        }
        if (!lowest)
            continue;
        canvas_fill(c, 0, row, p->w, 1, dash, p->pal->notice);
        if (lowest->text && p->w >= 12) {
            int x = canvas_text(c, 2, row, p->pal->notice, " ");
            x = canvas_text(c, x, row, p->pal->notice, lowest->text);
            canvas_text(c, x, row, p->pal->notice, " ");
        }
    }
}

/* Signs on the edge rows: what could not be drawn, or was cut off. '!' is put last: it says most.
 */
static void draw_edges(const struct plot *p, const struct plot_line *line, struct canvas *c)
{
    int fine = raster_fine_x(p->ch->glyphs);

    for (int i = 0; i < p->cols; i++) {
        const struct series_sum *a = &line->cols[i].sum;
        bool has = col_has(p, &line->cols[i]);
        if (p->have && has && a->max > p->hi)
            canvas_put(c, i / fine, 0, '^', p->pal->notice);
        if (p->have && ((has && col_low(p, &line->cols[i]) < p->lo) || (log_y(p) && a->nonpos > 0)))
            canvas_put(c, i / fine, p->h - 1, 'v', p->pal->notice);
    }
    for (int i = 0; i < p->cols; i++)
        if (line->reports && line->cols[i].sum.nan + line->cols[i].sum.inf > 0)
            canvas_put(c, i / fine, p->h - 1, '!', p->pal->bad);
}

static bool all_empty(const struct chart *ch)
{
    for (int i = 0; i < ch->n_series; i++)
        if (series_count(ch->series[i].data) > 0)
            return false;
    return true;
}

static void draw_message(const struct plot *p, struct canvas *c)
{
    const char *text = all_empty(p->ch)            ? "no values yet"
                       : !p->any                   ? "no values in this range"
                       : log_y(p) && p->nonpos > 0 ? "log y: no value above 0"
                                                   : "no finite value yet";
    canvas_text(c, p->w > 30 ? 2 : 0, (p->h - 1) / 2, p->pal->text, text);
}

int plot_draw(const struct plot *p, struct canvas *c)
{
    struct raster r;

    if (p->cols < 1 || p->h < 1)
        return 0;
    if (raster_init(&r, p->ch->glyphs, p->w, p->h) < 0)
        return -1;
    if (p->have)
        draw_limits(p, c);
    else
        draw_message(p, c);
    for (int k = 0; k < p->n_lines; k++) {
        const struct plot_line *line = &p->lines[k];
        if (p->have && line->role != PLOT_POINTS) {
            raster_series(p, line, &r);
            raster_paint(&r, c, line->style, line->role == PLOT_BEHIND ? NULL : &p->pal->raw);
        }
        if (p->have && line->role == PLOT_POINTS)
            draw_points(p, line, c);
        else if (p->have && line->mark && line->role == PLOT_LINE)
            draw_line_marks(p, line, k, c);
    }
    for (int k = 0; k < p->n_lines; k++)
        draw_edges(p, &p->lines[k], c);
    raster_release(&r);
    return 0;
}
