/* chart.c - the rows around a plot: title with its letters, y labels, marks, x axis. */
#include "tui/chart.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "tui/plot.h"
#include "tui/ticks.h"
#include "tui/utf8.h"

#define GUTTER 6  /* cells of y labels on a screen that has room */
#define ROOM 50   /* columns from which there is room: gutter, margin, wide gaps */
#define PIECES 24 /* parts of a title */

// clang-format off
#define FG(n) {n, COLOUR_OWN, 0}
#define FGA(n, a) {n, COLOUR_OWN, a}
/* The series colours differ in lightness too (Okabe and Ito 2008, nearest of the 256): told apart by the
 * colour-blind. Red and green never carry a meaning alone. */
const struct chart_palette chart_dark = {
    true, {FG(75), FG(214), FG(36), FG(175), FG(166), FG(222)},
    FG(240), FG(COLOUR_OWN), FG(166), FG(214), FG(175)};
const struct chart_palette chart_light = {
    true, {FG(25), FG(130), FG(29), FG(90), FG(124), FG(94)},
    FG(250), FG(COLOUR_OWN), FG(124), FG(130), FG(90)};
const struct chart_palette chart_16 = {
    true, {FG(6), FG(3), FG(2), FG(5), FG(1), FG(7)},
    FGA(COLOUR_OWN, ATTR_DIM), FG(COLOUR_OWN), FGA(1, ATTR_BOLD), FG(3), FG(5)};
const struct chart_palette chart_mono = {
    false, {FG(COLOUR_OWN), FG(COLOUR_OWN), FG(COLOUR_OWN), FG(COLOUR_OWN), FG(COLOUR_OWN), FG(COLOUR_OWN)},
    FGA(COLOUR_OWN, ATTR_DIM), FG(COLOUR_OWN), FGA(COLOUR_OWN, ATTR_REVERSE), FGA(COLOUR_OWN, ATTR_BOLD),
    FG(COLOUR_OWN)};
// clang-format on

/* Most important first: not finite, crash, alert, edit by a person, by a script, branch, note,
 * pause, rest, resumed, fork, best checkpoint, checkpoint. */
static const char mark_signs[] = "!xaesbmphrfCc+";

static int mark_rank(char sign)
{
    const char *p = sign ? strchr(mark_signs, sign) : NULL;
    return p ? (int)(p - mark_signs) : (int)sizeof mark_signs;
}

/* What a column shows that showed `a` when `b` comes to it. *many: `a` stood for several already.
 * Checkpoints stay letters: several in a column are nothing new, several edits are. */
static char mark_join(char a, char b, bool *many)
{
    if (a == '\0' || mark_rank(b) < mark_rank(a)) {
        *many = false;
        return b;
    }
    if (a == b && strchr("aesbm", a))
        *many = true;
    return a;
}

char chart_mark_of(const char *signs)
{
    bool many = false;
    char sign = '\0';

    for (; *signs; signs++)
        sign = mark_join(sign, *signs, &many);
    return many ? '+' : sign;
}

/* x range of all data; false when there are none. */
static bool data_range(const struct chart *ch, double *x0, double *x1)
{
    bool any = false;

    for (int i = 0; i < ch->n_series; i++) {
        const struct series_sum *t = series_total(ch->series[i].data);
        if (series_count(ch->series[i].data) == 0)
            continue;
        *x0 = any ? fmin(*x0, t->x_lo) : t->x_lo;
        *x1 = any ? fmax(*x1, t->x_hi) : t->x_hi;
        any = true;
    }
    return any;
}

static bool zoomed(const struct chart *ch)
{
    return ch->x0 < ch->x1 && isfinite(ch->x0) && isfinite(ch->x1);
}

static int gutter_cells(const struct chart *ch, int w)
{
    if (ch->gutter > 0)
        return ch->gutter < w - 2 ? ch->gutter : 0;
    return w >= ROOM ? GUTTER : w >= 30 ? 5 : w >= 16 ? 4 : 0;
}

void chart_area(const struct chart *ch, int w, int h, struct chart_area *area)
{
    int rows = h, margin = w >= ROOM ? 1 : 0;
    struct chart_area a = {.title_y = -1, .marks_y = -1, .axis_y = -1};

    a.fine = raster_fine_x(ch->glyphs);
    if (ch->title && h >= 3)
        a.title_y = a.y++, rows--;
    if (ch->x_axis && h >= 4)
        a.axis_y = a.y + --rows;
    if (ch->marks_row && h >= 5)
        a.marks_y = a.y + --rows;
    a.gutter = gutter_cells(ch, w);
    a.axis = w >= 6;
    a.x = a.gutter + a.axis;
    a.w = w - a.x - margin;
    a.h = rows;
    if (!data_range(ch, &a.x0, &a.x1))
        a.x0 = a.x1 = 0;
    /* steps begin at 1: an axis that begins at 0 reads better, and costs no column worth having */
    if (a.x0 > 0 && a.x0 <= 0.02 * a.x1 && a.x1 > a.x0)
        a.x0 = 0;
    if (zoomed(ch)) {
        a.x0 = ch->x0;
        a.x1 = ch->x1;
    }
    *area = a;
}

double chart_x_at(const struct chart_area *a, int col)
{
    int dots = a->w * a->fine;
    return dots < 2 ? a->x0 : a->x0 + (a->x1 - a->x0) * (a->fine * (col + 0.5) - 0.5) / (dots - 1);
}

int chart_col_at(const struct chart_area *a, double x)
{
    if (!(x >= a->x0))
        return -1;
    if (x > a->x1)
        return a->w;
    if (!(a->x1 > a->x0) || a->w < 2)
        return 0;
    int dot = (int)floor((x - a->x0) / (a->x1 - a->x0) * (a->w * a->fine - 1) + 0.5);
    return dot / a->fine;
}

struct piece {
    char text[96];
    struct style st;
    int gap; /* blanks before it */
};

struct title {
    struct piece p[PIECES];
    int n;
};

__attribute__((format(printf, 4, 5))) static void add_piece(struct title *t, int gap,
                                                            struct style st, const char *fmt, ...)
{
    va_list ap;

    if (t->n == PIECES)
        return;
    struct piece *p = &t->p[t->n++];
    p->gap = gap;
    p->st = st;
    va_start(ap, fmt);
    vsnprintf(p->text, sizeof p->text, fmt, ap);
    va_end(ap);
}

/* Newest value of each series with its mark, and the best. `less` leaves out more and more (0 ..
 * 6). */
static void title_values(const struct chart *ch, int less, struct title *t)
{
    const struct chart_palette *pal = plot_palette(ch);
    const struct series_sum *best = NULL;
    int gap = less == 0 ? 3 : less < 3 ? 2 : 1;
    char num[TICK_TEXT], at[TICK_TEXT], mark[5];
    double x, y;

    for (int i = 0; i < ch->n_series; i++) {
        const struct chart_series *s = &ch->series[i];
        uint32_t sign = plot_series_mark(ch, i);
        if (!series_newest(s->data, &x, &y) || (less > 3 && i > 0))
            continue;
        utf8_encode(mark, sign ? sign : ' ');
        bool named = s->name && s->name[0] && !(less > 2 && i == 0);
        add_piece(t, t->n ? gap : 0, isfinite(y) ? plot_series_style(ch, i) : pal->bad,
                  "%.40s%s%s%s%s", named ? s->name : "", named ? " " : "", num_value(num, y),
                  sign && less < 3 ? " " : "", sign && less < 3 ? mark : "");
        if (series_total(s->data)->count > 0)
            best = series_total(s->data);
    }
    if (ch->best == CHART_BEST_NONE || !best || less > 1)
        return;
    bool min = ch->best == CHART_BEST_MIN;
    add_piece(t, gap, pal->text, "best %s@%s", num_value(num, min ? best->min : best->max),
              num_step(at, min ? best->min_x : best->max_x));
}

static void title_bad(const struct chart *ch, int less, struct title *t)
{
    int64_t nan = 0, inf = 0;
    double first = INFINITY;
    char at[TICK_TEXT];

    for (int i = 0; i < ch->n_series; i++) {
        const struct series_sum *s = series_total(ch->series[i].data);
        nan += s->nan;
        inf += s->inf;
        if (s->nan + s->inf > 0)
            first = fmin(first, series_first_bad(ch->series[i].data));
    }
    if (nan + inf == 0)
        return;
    add_piece(t, 2, plot_palette(ch)->bad, "%s %lld%s%s", nan ? "nan" : "inf",
              (long long)(nan + inf), less < 3 ? "@" : "", less < 3 ? num_step(at, first) : "");
}

/* A letter for each transform in force. */
static void title_letters(const struct plot *p, struct title *t)
{
    const struct chart *ch = p->ch;
    struct style st = p->pal->text;
    char num[32];

    if (ch->smooth > 0) {
        snprintf(num, sizeof num, "%.*f", ch->smooth > 0.99 ? 3 : 2, ch->smooth);
        add_piece(t, 1, st, "S.%s", num[0] == '0' ? num + 2 : num);
    }
    if (ch->log_y && p->nonpos > 0)
        add_piece(t, 1, st, "L <=0:%lld", (long long)p->nonpos);
    else if (ch->log_y)
        add_piece(t, 1, st, "L");
    if (p->dense)
        add_piece(t, 1, st, "D");
    if (p->cut)
        add_piece(t, 1, st, "C");
    if (zoomed(ch))
        add_piece(t, 1, st, "Z");
    if (ch->behind)
        add_piece(t, 1, st, "H");
    if (ch->x != CHART_STEP)
        add_piece(t, 1, st, "%c", ch->x == CHART_EPOCH ? 'E' : ch->x == CHART_TIME ? 'T' : 'N');
    if (ch->branch > 0)
        add_piece(t, 1, st, "B%d", ch->branch);
}

static int title_width(const struct title *t)
{
    int w = 0;

    for (int i = 0; i < t->n; i++)
        w += (i ? t->p[i].gap : 0) + utf8_cells(t->p[i].text);
    return w;
}

static void title_put(const struct title *t, struct canvas *c, int x)
{
    for (int i = 0; i < t->n; i++) {
        x += i ? t->p[i].gap : 0;
        x = canvas_text(c, x, 0, t->p[i].st, t->p[i].text);
    }
}

static void draw_title(const struct plot *p, const struct chart_area *a, struct canvas *c)
{
    const struct chart *ch = p->ch;
    struct title left, right;
    struct canvas row = canvas_sub(c, 0, a->title_y, c->w, 1);
    int margin = c->w >= ROOM, x, end;

    x = canvas_text(&row, margin, 0, p->pal->text, ch->title_own ? ch->title_own : ch->title);
    x = ch->title_own ? x : x + 1 < a->x + 1 && margin ? a->x + 1 : x + 1 + margin;
    for (int less = 0; less <= 6; less++) {
        left.n = right.n = 0;
        if (!ch->title_own) {
            title_values(ch, less, &left);
            if (less < 6)
                title_bad(ch, less, &right);
        }
        if (less < 5)
            title_letters(p, &right);
        end = c->w - margin - title_width(&right);
        if (x + title_width(&left) + (less > 3 ? 1 : 2) <= end)
            break;
    }
    title_put(&left, &row, x);
    title_put(&right, &row, end);
}

static void draw_y_axis(const struct plot *p, const struct chart_area *a, struct canvas *c)
{
    struct tick ticks[TICKS_MAX];
    bool ascii = p->ch->glyphs == RASTER_ASCII;
    int n = 0;

    if (a->axis)
        canvas_fill(c, a->gutter, a->y, 1, a->h, ascii ? '|' : 0x2502, p->pal->text);
    if (p->have && p->flat) {
        n = 1;
        ticks[0].pos = (4 * a->h - 1) / 2 / 4;
        num_value(ticks[0].text, p->lo);
    } else if (p->have) {
        n = ticks_y(p->lo, p->hi, p->ch->log_y, a->h, a->gutter, ticks);
    }
    for (int i = 0; i < n; i++) {
        int len = (int)strlen(ticks[i].text);
        if (len > a->gutter)
            continue;
        canvas_text(c, a->gutter - len, a->y + ticks[i].pos, p->pal->text, ticks[i].text);
        if (a->axis)
            canvas_put(c, a->gutter, a->y + ticks[i].pos, ascii ? '+' : 0x2524, p->pal->text);
    }
}

static void draw_x_axis(const struct plot *p, const struct chart_area *a, struct canvas *c)
{
    static const char *const names[] = {"step", "epoch", "time", "samples"};
    const char *name = names[p->ch->x];
    struct tick ticks[TICKS_MAX];
    enum tick_x kind = p->ch->x == CHART_EPOCH  ? TICK_EPOCH
                       : p->ch->x == CHART_TIME ? TICK_TIME
                                                : TICK_STEP;
    int len = (int)strlen(name);

    if (len < a->x)
        canvas_text(c, len + 1 < a->x ? 1 : 0, a->axis_y, p->pal->text, name);
    int n = ticks_x(a->x0, a->x1, kind, a->w, ticks);
    if (n == 0 && p->any)
        canvas_text(c, a->x, a->axis_y, p->pal->text, num_step(ticks[0].text, a->x0));
    for (int i = 0; i < n; i++)
        canvas_text(c, a->x + ticks[i].pos, a->axis_y, p->pal->text, ticks[i].text);
}

static void draw_guides(const struct plot *p, const struct chart_area *a, struct canvas *plot)
{
    uint32_t sign = p->ch->glyphs == RASTER_ASCII ? ':' : 0x250a;

    for (int i = 0; i < p->ch->n_marks; i++)
        if (p->ch->marks[i].guide)
            canvas_fill(plot, chart_col_at(a, p->ch->marks[i].x), 0, 1, plot->h, sign,
                        p->pal->guide);
}

static int draw_marks(const struct plot *p, const struct chart_area *a, struct canvas *c)
{
    const struct chart *ch = p->ch;
    struct mark_col {
        char sign;
        bool many;
    } *cols = mem_array((size_t)a->w, sizeof *cols);

    if (!cols)
        return -1;
    if (a->x >= 6)
        canvas_text(c, a->gutter - 5, a->marks_y, p->pal->text, "marks");
    if (a->axis)
        canvas_put(c, a->gutter, a->marks_y, ch->glyphs == RASTER_ASCII ? '|' : 0x2502,
                   p->pal->text);
    for (int i = 0; i < ch->n_marks; i++) {
        int col = chart_col_at(a, ch->marks[i].x);
        if (col >= 0 && col < a->w)
            cols[col].sign = mark_join(cols[col].sign, ch->marks[i].sign, &cols[col].many);
    }
    for (int i = 0; i < a->w; i++)
        if (cols[i].sign)
            canvas_put(c, a->x + i, a->marks_y, (unsigned char)(cols[i].many ? '+' : cols[i].sign),
                       cols[i].sign == '!'   ? p->pal->bad
                       : cols[i].sign == 'e' ? p->pal->guide
                                             : p->pal->text);
    mem_free(cols);
    return 0;
}

int chart_draw(const struct chart *ch, struct canvas *c)
{
    struct chart_area a;
    struct plot p;
    int rc = 0;

    canvas_clear(c);
    if (c->w < 1 || c->h < 1)
        return 0;
    chart_area(ch, c->w, c->h, &a);
    struct canvas plot = canvas_sub(c, a.x, a.y, a.w, a.h);
    if (plot_init(&p, ch, &a) < 0) {
        rc = -1;
        goto out;
    }
    draw_y_axis(&p, &a, c);
    draw_guides(&p, &a, &plot);
    if (plot_draw(&p, &plot) < 0)
        rc = -1;
    if (a.title_y >= 0)
        draw_title(&p, &a, c);
    if (a.marks_y >= 0 && draw_marks(&p, &a, c) < 0)
        rc = -1;
    if (a.axis_y >= 0)
        draw_x_axis(&p, &a, c);
    if (ch->cursor)
        canvas_add_attr(&plot, chart_col_at(&a, ch->cursor_x), 0, 1, plot.h, ATTR_REVERSE);
out:
    plot_release(&p);
    return rc;
}
