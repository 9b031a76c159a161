/* progress.c - what `cupola train` shows while nobody looks closer. */
#include "tui/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tui/chart.h"
#include "tui/ticks.h"
#include "tui/utf8.h"

#define BAR_MIN 5
#define BAR_MAX 24
#define PARTS 12

/* A part of the one line: what it says, and how soon it is left out (0: never). */
struct part {
    char text[80];
    int drop;
    bool bar;
};

struct line {
    struct part p[PARTS];
    int n;
};

__attribute__((format(printf, 3, 4))) static void add_part(struct line *l, int drop,
                                                           const char *fmt, ...)
{
    va_list ap;

    if (l->n == PARTS)
        return;
    struct part *p = &l->p[l->n++];
    *p = (struct part){.drop = drop};
    va_start(ap, fmt);
    vsnprintf(p->text, sizeof p->text, fmt, ap);
    va_end(ap);
}

static double share_done(const struct progress_view *v)
{
    double t = v->steps > 0 ? (double)v->step / (double)v->steps : NAN;
    return t < 0 ? 0 : t > 1 ? 1 : t;
}

/* Rounded down: 100% is said when it is so. */
static int percent_done(const struct progress_view *v)
{
    return (int)floor(share_done(v) * 100 + 1e-9);
}

static void add_steps(const struct progress_view *v, struct str *out)
{
    str_addf(out, "%lld", (long long)v->step);
    if (v->steps > 0)
        str_addf(out, "/%lld", (long long)v->steps);
}

static const char *left_text(const struct progress_view *v, char *buf, size_t cap)
{
    bool over = v->state && strcmp(v->state, "running") != 0 && v->steps > 0 && v->step >= v->steps;

    if (over)
        return "0:00";
    return v->left_s >= 0 && isfinite(v->left_s) ? str_duration(buf, cap, v->left_s) : "--";
}

static const struct progress_value *value_named(const struct progress_view *v, const char *name)
{
    for (int i = 0; i < v->n_values; i++)
        if (strcmp(v->values[i].name, name) == 0)
            return &v->values[i];
    return NULL;
}

static bool is_loss(const char *name)
{
    return strcmp(name, "train.loss") == 0 || strcmp(name, "valid.loss") == 0;
}

void progress_format_line(const struct progress_view *v, bool utf8, struct str *out)
{
    char num[TICK_TEXT], left[32];

    if (v->message) {
        ansi_text(v->message, utf8, out);
        str_addc(out, '\n');
    }
    str_add(out, "step ");
    add_steps(v, out);
    if (!isnan(v->epoch))
        str_addf(out, "  epoch %.3g", v->epoch);
    for (int i = 0; i < v->n_values; i++) {
        str_add(out, "  ");
        ansi_text(v->values[i].name, utf8, out);
        str_addf(out, " %s", num_value(num, v->values[i].value));
    }
    if (isfinite(v->rate))
        str_addf(out, "  %s/s", num_value(num, v->rate));
    str_addf(out, "  left %s\n", left_text(v, left, sizeof left));
}

static void add_loss_parts(const struct progress_view *v, bool brief, struct line *l)
{
    char num[TICK_TEXT];
    const struct progress_value *train = value_named(v, "train.loss"),
                                *valid = value_named(v, "valid.loss");

    if (train)
        add_part(l, 1, "train%s %s", brief ? "" : ".loss", num_value(num, train->value));
    if (valid)
        add_part(l, 4, "valid%s %s", brief ? "" : ".loss", num_value(num, valid->value));
}

static void bar_parts(const struct progress_view *v, bool brief, struct line *l)
{
    struct str steps = {0};
    char num[TICK_TEXT], left[32];
    const char *unit = v->rate_unit ? v->rate_unit : "samples";

    l->n = 0;
    add_steps(v, &steps);
    add_part(l, 6, "step");
    add_part(l, 0, "%s", str_c(&steps));
    str_release(&steps);
    if (v->steps > 0) {
        add_part(l, 3, " ");
        l->p[l->n - 1].bar = true;
        add_part(l, 0, "%d%%", percent_done(v));
    }
    if (isfinite(v->rate))
        add_part(l, 5, "%s%s%.20s/s", num_value(num, v->rate), brief ? "" : " ", brief ? "" : unit);
    add_loss_parts(v, brief, l);
    add_part(l, 2, "left %s", left_text(v, left, sizeof left));
}

/* Cells between two parts: words that belong together stand closer. */
static int gap_before(const struct line *l, int i)
{
    if (i == 0)
        return 0;
    bool close = strcmp(l->p[i - 1].text, "step") == 0 || l->p[i].bar || l->p[i - 1].bar ||
                 strchr(l->p[i].text, '%');
    return close ? 1 : 2;
}

static int line_width(const struct line *l)
{
    int w = 0;

    for (int i = 0; i < l->n; i++)
        w += gap_before(l, i) + (l->p[i].bar ? BAR_MIN : utf8_cells(l->p[i].text));
    return w;
}

/* Leave out parts, the ones with the highest `drop` first, until the rest fits. */
static void fit_line(struct line *l, int w)
{
    for (int drop = 6; drop > 0 && line_width(l) > w; drop--)
        for (int i = 0; i < l->n; i++)
            if (l->p[i].drop == drop) {
                memmove(&l->p[i], &l->p[i + 1], (size_t)(l->n - i - 1) * sizeof l->p[0]);
                l->n--;
                break;
            }
}

static int draw_bar(struct canvas *c, int x, int y, int cells, double share, bool utf8,
                    struct style st)
{
    int full = (int)(share * (utf8 ? cells : cells - 2) + 1e-9);

    if (!utf8) {
        canvas_put(c, x, y, '[', STYLE_PLAIN);
        canvas_fill(c, x + 1, y, cells - 2, 1, '-', STYLE_PLAIN);
        canvas_fill(c, x + 1, y, full, 1, '#', st);
        canvas_put(c, x + cells - 1, y, ']', STYLE_PLAIN);
    } else {
        canvas_fill(c, x, y, cells, 1, 0x2591, STYLE_PLAIN);
        canvas_fill(c, x, y, full, 1, 0x2588, st);
    }
    return x + cells;
}

static void draw_line(const struct progress_view *v, const struct progress *p, struct canvas *c,
                      int y)
{
    struct style st = ansi_palette(p->mode.colour)->series[0];
    struct line l;
    int x = 0;

    bar_parts(v, false, &l);
    if (line_width(&l) > c->w) /* shorter words before fewer */
        bar_parts(v, true, &l);
    fit_line(&l, c->w);
    int room = c->w - line_width(&l) + BAR_MIN;
    for (int i = 0; i < l.n; i++) {
        x += gap_before(&l, i);
        if (l.p[i].bar)
            x = draw_bar(c, x, y, room < BAR_MAX ? room : BAR_MAX, share_done(v), p->mode.utf8, st);
        else
            x = canvas_text(c, x, y, STYLE_PLAIN, l.p[i].text);
    }
}

/* Name, state, epoch, the values that the line does not have, and how long it has been going. */
static void draw_header(const struct progress_view *v, struct canvas *c, int y)
{
    struct style bold = {COLOUR_OWN, COLOUR_OWN, ATTR_BOLD};
    char num[TICK_TEXT], up[32];
    int x = 0, end = c->w;

    if (v->elapsed_s >= 0 && isfinite(v->elapsed_s)) {
        str_duration(up, sizeof up, v->elapsed_s);
        end = c->w - 3 - (int)strlen(up);
        if (end > 30)
            canvas_textf(c, end, y, STYLE_PLAIN, "up %s", up);
        else
            end = c->w;
    }
    struct canvas left = canvas_sub(c, 0, y, end == c->w ? end : end - 2, 1);
    if (v->run)
        x = canvas_text(&left, x, 0, bold, v->run) + 2;
    if (v->state)
        x = canvas_text(&left, x, 0, STYLE_PLAIN, v->state) + 2;
    if (!isnan(v->epoch) && x + 10 <= left.w)
        x = canvas_textf(&left, x, 0, STYLE_PLAIN, "epoch %.3g", v->epoch) + 2;
    for (int i = 0; i < v->n_values; i++) {
        const struct progress_value *val = &v->values[i];
        int w = utf8_cells(val->name) + 1 + (int)strlen(num_value(num, val->value));
        if (is_loss(val->name) || x + w > left.w) /* whole values or none */
            continue;
        x = canvas_text(&left, x, 0, STYLE_PLAIN, val->name) + 1;
        x = canvas_text(&left, x, 0, STYLE_PLAIN, num) + 2;
    }
}

static void draw_chart(const struct progress_view *v, const struct progress *p, struct canvas *c,
                       int y, int h)
{
    struct chart_series s[2];
    struct canvas area = canvas_sub(c, 0, y, c->w, h);
    struct chart ch = {.palette = ansi_palette(p->mode.colour),
                       .glyphs = p->mode.utf8 ? RASTER_BRAILLE : RASTER_ASCII,
                       .title = v->chart ? v->chart : "loss",
                       .series = s,
                       .best = CHART_BEST_MIN,
                       .x_axis = true};

    if (v->train)
        s[ch.n_series++] = (struct chart_series){.name = "train", .data = v->train};
    if (v->valid)
        s[ch.n_series++] = (struct chart_series){.name = "valid", .data = v->valid, .points = true};
    chart_draw(&ch, &area); /* out of memory: an empty plot, the numbers are in the line below */
}

/* Top to bottom: header, chart, line, message. What there is no room for goes, in this order: the
 * chart, the message, the header. */
static int draw_rows(const struct progress_view *v, const struct progress *p, struct canvas *c)
{
    int rows = c->h, y = 0;
    bool header = rows >= 2, message = v->message && rows >= 3;
    int chart = rows - header - 1 - message;

    if (chart > PROGRESS_ROWS - 2)
        chart = PROGRESS_ROWS - 2;
    if (chart < 4 || c->w < 30 || (!v->train && !v->valid))
        chart = 0;
    if (header)
        draw_header(v, c, y++);
    if (chart)
        draw_chart(v, p, c, y, chart);
    y += chart;
    draw_line(v, p, c, y++);
    if (message)
        canvas_text(c, 0, y++, STYLE_PLAIN, v->message);
    return y;
}

bool progress_due(const struct progress *p, double now_s)
{
    return p->last_s == 0 || !(now_s - p->last_s < PROGRESS_INTERVAL_S);
}

void progress_erase(struct progress *p, struct str *out)
{
    /* Never above our own first row: what stands there is not ours. So where a terminal became
     * narrower and has folded our lines, a piece of the old picture stays above. */
    int up = p->drawn < p->rows ? p->drawn : p->rows - 1;

    if (up > 0)
        str_addf(out, "\x1b[%dA\r\x1b[J", up);
    p->drawn = 0;
}

void progress_draw(const struct progress_view *v, struct progress *p, double now_s, struct str *out)
{
    struct canvas c;
    int rows = p->rows - 1, up = p->drawn < p->rows ? p->drawn : p->rows - 1;

    /* The last column stays free: a sign there makes some terminals wrap, and the count of rows is
     * off. */
    if (canvas_init(&c, p->cols > 1 ? p->cols - 1 : 1, rows < 1 ? 1 : rows > 64 ? 64 : rows) < 0) {
        out->oom = true;
        return;
    }
    int used = draw_rows(v, p, &c);
    if (up > 0)
        str_addf(out, "\x1b[%dA\r", up);
    for (int y = 0; y < used; y++) {
        ansi_row(&c, y, p->mode, out);
        str_add(out, "\x1b[K\n");
    }
    if (used < up)
        str_add(out, "\x1b[J");
    p->drawn = used;
    p->last_s = now_s;
    canvas_release(&c);
}
