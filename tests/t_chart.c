/* What is drawn is what the data say: exact pictures, and rules that hold for any picture. */
#include "tests/tap.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "tui/chart.h"
#include "tui/ticks.h"

static struct str picture;

static const char *draw(const struct chart *ch, int w, int h)
{
    struct canvas c;

    str_reset(&picture);
    canvas_init(&c, w, h);
    if (chart_draw(ch, &c) == 0)
        canvas_to_text(&c, &picture);
    canvas_release(&c);
    return str_c(&picture);
}

static int has(const char *text)
{
    int found = strstr(str_c(&picture), text) != NULL;
    if (!found)
        note("no <%s> in\n%s", text, str_c(&picture));
    return found;
}

static int lacks(const char *text)
{
    return strstr(str_c(&picture), text) == NULL;
}

static int is(const char *want)
{
    int same = strcmp(str_c(&picture), want) == 0;
    if (!same)
        note("got\n%swant\n%s", str_c(&picture), want);
    return same;
}

static struct series *series_of(const double *v, int n)
{
    struct series *s = series_new(0);
    for (int i = 0; i < n; i++)
        series_append(s, i, v[i]);
    return s;
}

static void test_empty_and_single(void)
{
    struct series *s = series_new(0);
    struct chart_series cs = {.name = "train", .data = s};
    struct chart ch = {.title = "loss", .series = &cs, .n_series = 1, .x_axis = true};

    draw(&ch, 60, 6);
    ok(is(" loss\n      │\n      │  no values yet\n      │\n      │\n step\n"),
       "no data: the axis and a word");
    series_append(s, 1, 0.5);
    draw(&ch, 60, 6);
    ok(is(" loss   train 0.5\n      │\n   0.5┤⡀\n      │\n      │\n step  1\n"),
       "one point is a dot");
    series_append(s, 2, 0.5);
    series_append(s, 3, 0.5);
    ch.glyphs = RASTER_ASCII;
    draw(&ch, 60, 6);
    ok(is(" loss   train 0.5\n      |\n   "
          "0.5+****************************************************\n"
          "      |\n      |\n step  1                         2                        3\n"),
       "a constant is a line in the middle");
    series_append(s, 4, 0.5 + 1e-16);
    draw(&ch, 60, 6);
    ok(has("   0.5+****"), "and stays one when it differs by rounding");
    ch.n_series = 0;
    draw(&ch, 20, 5);
    ok(has("no values"), "a chart of no series");
    series_free(s);
}

static void test_pictures(void)
{
    struct series *s = series_new(0), *v = series_new(0);
    struct chart_series cs[] = {{.name = "train", .data = s},
                                {.name = "valid", .data = v, .points = true}};
    struct chart_mark marks[] = {
        {40, 'e', true}, {40, 'c', false}, {70, '!', false}, {90, 'C', false}};
    struct chart ch = {.title = "loss",
                       .series = cs,
                       .n_series = 2,
                       .best = CHART_BEST_MIN,
                       .marks = marks,
                       .n_marks = 4,
                       .marks_row = true,
                       .x_axis = true};

    for (int i = 1; i <= 100; i++) {
        series_append(s, i, i == 70 ? NAN : 1 + 9.0 / i);
        if (i % 20 == 0)
            series_append(v, i, 1.5 + 9.0 / i);
    }
    draw(&ch, 60, 10);
    ok(is(" loss   train 1.09   valid 1.59 o   best 1.59@100  nan 1@70\n"
          "    10┤⢸                   ┊\n"
          "     8┤⠸⡀                  ┊\n"
          "      │ ⡇                  ┊\n"
          "     6┤ ⡇                  ┊\n"
          "     4┤ ⠸⡀                 ┊\n"
          "      │  ⠱⣀                ┊\n"
          "     2┤    ⠉⠒⠒⠒⠤⠤o⠤⠤⠤⠤⠤⠤⠤⢄⣀o⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀o⣀⣀⣀⣀!⣀⣀⣀⣀o⣀⣀⣀⣀⣀⣀⣀⣀⣀o\n"
          " marks│                    e               !         C\n"
          " step  0        20        40         60        80       100\n"),
       "braille: line, validation marks, a nan in its column, an edit's guide behind the data");
    ch.log_y = true;
    ch.glyphs = RASTER_BLOCK;
    draw(&ch, 60, 10);
    ok(is(" loss   train 1.09  valid 1.59 o               nan 1@70 L D\n"
          "    10┤ █                  ┊\n"
          "      │ █                  ┊\n"
          "     5┤ █▆                 ┊\n"
          "     3┤  █▃                ┊\n"
          "     2┤   █▆▂    o         ┊\n"
          "      │     █▇▆▄▃▂▂▁       o          o         o         o\n"
          "     1┤             ██▇▇▇▆▆▆▆▆▅▅▅▅▅▅▅▄▄▄▄▄▄!▄▄▄▄▄▃▃▃▃▃▃▃▃▃▃\n"
          " marks│                    e               !         C\n"
          " step  0        20        40         60        80       100\n"),
       "blocks, on a log axis");
    ch.glyphs = RASTER_ASCII;
    ch.n_marks = 0;
    draw(&ch, 40, 7);
    ok(is("loss 1.09 valid 1.59           nan 1 L D\n"
          "   10+*\n"
          "    5+ *\n"
          "    2+  *****o     o\n"
          "    1+       *************o**!**o******o\n"
          "marks|\n"
          " step 0               50             100\n"),
       "ASCII, narrow: shorter words in the title");
    series_free(s);
    series_free(v);
}

/* Does the top row of the plot have a line? */
static int on_top(void)
{
    const char *top = strchr(str_c(&picture), '\n') + 1;
    size_t n = strcspn(top, "\n") - 7;
    return memchr(top + 7, '*', n) || memchr(top + 7, '|', n);
}

/* From the whole history down to `deepest` steps on each side. */
static void test_spike(size_t raw_max, double deepest, const char *what)
{
    enum { N = 1000000 };
    struct series *s = series_new(raw_max);
    struct chart_series cs = {.name = "train", .data = s};
    struct chart ch = {.title = "y", .series = &cs, .n_series = 1, .glyphs = RASTER_ASCII};
    int seen = 1, zooms = 0;

    for (int i = 0; i < N; i++)
        series_append(s, i, i == 777777 ? 1000 : i == 0 ? 300 : i == N - 1 ? 600 : 0);
    draw(&ch, 80, 12);
    const char *top = strchr(str_c(&picture), '\n') + 1;
    char at = top[7 + (int)(777777.0 / (N - 1) * 71 + 0.5)];
    ok(has("  1.0k+") && (at == '*' || at == '|'), "%s: a spike stands on top, in its column",
       what);
    ok(has("train 600") && has("|               *\n") && has("200+|"), "%s: first and last too",
       what);
    for (double half = N; half > deepest; half /= 2, zooms++) {
        ch.x0 = 777777 - half;
        ch.x1 = 777777 + half;
        draw(&ch, 80, 12);
        seen &= on_top();
    }
    ok(seen && zooms > 7, "%s: and is seen at each of %d zoom levels", what, zooms);
    ch.x0 = 0.25, ch.x1 = 0.75;
    draw(&ch, 80, 12);
    ok(has("no values in this range"), "%s: a range between two points says that it is empty",
       what);
    series_free(s);
}

static void test_bad_values(void)
{
    static const double v[] = {1, 0.9, NAN, NAN, INFINITY, -INFINITY, 0.8};
    static const double nans[] = {NAN, NAN, INFINITY, -INFINITY};
    struct series *s = series_of(v, 7), *n = series_of(nans, 4);
    struct chart_series cs = {.name = "train", .data = s};
    struct chart ch = {.title = "loss",
                       .series = &cs,
                       .n_series = 1,
                       .best = CHART_BEST_MIN,
                       .glyphs = RASTER_ASCII};

    draw(&ch, 60, 6);
    ok(has("nan 4@2") && has("best 0.8@6"), "the title counts them and ignores them for the best");
    int marks = 0;
    for (const char *p = str_c(&picture); *p; p++)
        marks += *p == '!';
    ok(marks == 4, "each has its mark");
    const char *bottom = strrchr(str_c(&picture), '!');
    ok(strchr(bottom, '*') && strchr(bottom, '\n') > strchr(bottom, '*'),
       "a lone value after the gap is drawn");
    int bridged = 0; /* columns of the steps 2 .. 5, rows above the marks */
    const char *row = strchr(str_c(&picture), '\n') + 1;
    for (int y = 0; y < 4; y++, row = strchr(row, '\n') + 1)
        for (int x = 7 + 10; x < 7 + 50 && x < (int)strcspn(row, "\n"); x++)
            bridged += row[x] != ' ';
    ok(bridged == 0, "and no line goes over the gap");
    cs.data = n;
    draw(&ch, 60, 6);
    ok(has("no finite value yet") && has("train -inf") && has("nan 4@0"),
       "nothing but non-finite values");
    ch.log_y = true;
    draw(&ch, 60, 6);
    ok(has("no finite value yet") && has(" L\n"), "the same on a log axis");
    series_free(s);
    series_free(n);
}

static void test_log(void)
{
    static const double v[] = {1e-8, 1e-4, 0, -1, 1e2}, zeros[] = {0, 0, -2},
                        wide[] = {1e-300, 1, 1e300};
    struct series *s = series_of(v, 5), *z = series_of(zeros, 3), *w = series_of(wide, 3);
    struct chart_series cs = {.name = "train", .data = s};
    struct chart ch = {
        .title = "loss", .series = &cs, .n_series = 1, .log_y = true, .glyphs = RASTER_ASCII};

    draw(&ch, 60, 9);
    ok(has("L <=0:2"), "what a log axis cannot show is counted");
    int low = 0;
    for (const char *l = strchr(str_c(&picture), 'v'); l; l = strchr(l + 1, 'v'))
        low += strchr(l, '\n')[1] == '\0';
    ok(low == 2, "and drawn as v on the bottom row");
    ok(has("   100+") && has("  1e-4+") && has("  1e-6+"), "decade ticks");
    cs.data = z;
    draw(&ch, 60, 6);
    ok(has("no value above 0") && has("L <=0:3"), "nothing above zero: a word, not a picture");
    cs.data = w;
    draw(&ch, 60, 8);
    ok(has("1e-121+") && lacks("nan") && lacks("inf"), "1e-300 .. 1e300 in log");
    ch.log_y = false;
    draw(&ch, 60, 8);
    ok(has("*"), "and linear");
    series_free(s);
    series_free(z);
    series_free(w);
}

static void test_ticks(void)
{
    struct tick t[TICKS_MAX];
    int equal = 0, shared = 0, wide = 0, none = 0;
    uint32_t r = 3;

    for (int i = 0; i < 20000; i++) {
        r = r * 1664525u + 1013904223u;
        double lo = ((double)(r >> 8) - 8e6) * pow(10, (int)(r % 30) - 18);
        double hi = lo + fabs(lo) * pow(10, -(double)(r >> 4 & 15) / 2) + 1e-12;
        int rows = 1 + (int)(r >> 20 & 31), log = (r >> 25 & 1) && lo > 0;
        int n = ticks_y(lo, hi, log, rows, 6, t);
        for (int k = 0; k < n; k++) {
            wide += strlen(t[k].text) > 6 || t[k].pos < 0 || t[k].pos >= rows;
            for (int j = 0; j < k; j++) {
                equal += strcmp(t[k].text, t[j].text) == 0;
                shared += t[k].pos == t[j].pos;
            }
        }
        none += n == 0 && rows >= 4 && hi - lo > 1e-3 * fabs(lo);
    }
    ok(equal == 0, "20000 y axes: never two equal labels");
    ok(shared == 0 && wide == 0, "never two in a row, never one wider than its gutter");
    ok(none == 0, "and never none where there is room (%d)", none);
    int bad = 0;
    for (int i = 0; i < 5000; i++) {
        r = r * 1664525u + 1013904223u;
        double x0 = r % 100000, x1 = x0 + 1 + (r >> 8);
        int cols = 1 + (int)(r >> 24), n = ticks_x(x0, x1, (enum tick_x)(i % 3), cols, t);
        for (int k = 0; k < n; k++)
            bad += t[k].pos < 0 || t[k].pos + (int)strlen(t[k].text) > cols ||
                   (k && t[k].pos < t[k - 1].pos + (int)strlen(t[k - 1].text) + 3);
    }
    ok(bad == 0, "5000 x axes: labels inside and apart");
    char b[TICK_TEXT];
    ok(!strcmp(num_value(b, 0.31239), "0.3124") && !strcmp(num_value(b, 3.29002), "3.290") &&
           !strcmp(num_value(b, 0.001), "0.001") && !strcmp(num_value(b, 88), "88") &&
           !strcmp(num_value(b, 8.41e-5), "8.41e-5") && !strcmp(num_value(b, 51234), "51.2k") &&
           !strcmp(num_value(b, 999950), "1.00M") && !strcmp(num_value(b, -0.5), "-0.5"),
       "numbers as short text");
    ok(!strcmp(num_value(b, NAN), "nan") && !strcmp(num_value(b, -INFINITY), "-inf") &&
           !strcmp(num_value(b, -1e300), "-1e300") && !strcmp(num_value(b, 0.0), "0"),
       "also those at the ends");
}

static void test_marks(void)
{
    ok(chart_mark_of("cCe") == 'e' && chart_mark_of("c!e") == '!' && chart_mark_of("") == 0,
       "the most important mark of a column");
    ok(chart_mark_of("eec") == '+' && chart_mark_of("ccc") == 'c' && chart_mark_of("ee!") == '!',
       "several edits are +, several checkpoints c");
}

static void test_range_zoom_cursor(void)
{
    struct series *s = series_new(0);
    struct chart_series cs = {.name = "y", .data = s};
    struct chart ch = {
        .title = "y", .series = &cs, .n_series = 1, .glyphs = RASTER_ASCII, .x_axis = true};
    struct chart_area a;
    struct canvas c;

    for (int i = 0; i < 500; i++)
        series_append(s, i, i == 250 ? 1e6 : i == 300 ? -1e6 : i % 10);
    ch.range = CHART_ROBUST;
    draw(&ch, 80, 10);
    ok(has(" C\n") && has("^") && has("v"), "a robust range cuts the outliers off and says so");
    ch.range = CHART_HELD, ch.y0 = -5, ch.y1 = 20;
    draw(&ch, 80, 10);
    ok(has("20+") && has("^"), "a held range stays");
    ch.x0 = 100, ch.x1 = 110, ch.behind = true, ch.branch = 1, ch.x = CHART_EPOCH, ch.smooth = 0.9;
    draw(&ch, 80, 10);
    ok(has("S.90 Z H E B1\n"), "letters: smoothed, zoomed, not following, epoch, branch");
    chart_area(&ch, 80, 10, &a);
    int back = 1;
    for (int i = 0; i < a.w; i++)
        back &= chart_col_at(&a, chart_x_at(&a, i)) == i;
    ok(back, "columns to x and back");
    ok(chart_col_at(&a, 99) == -1 && chart_col_at(&a, 111) == a.w && a.x == 7 && a.w == 72,
       "and outside");
    ch.cursor = true, ch.cursor_x = 105;
    canvas_init(&c, 80, 10);
    chart_draw(&ch, &c);
    ok(canvas_at(&c, a.x + chart_col_at(&a, 105), a.y)->style.attr & ATTR_REVERSE,
       "the cursor is reversed");
    canvas_release(&c);
    series_free(s);
}

static void test_smoothing_and_branches(void)
{
    struct series *s = series_new(0), *sm = series_new(0);
    struct chart_series cs = {.name = "y", .data = s, .smooth = sm};
    struct chart ch = {
        .palette = &chart_dark, .title = "y", .series = &cs, .n_series = 1, .smooth = 0.9};
    struct canvas c;
    int raw = 0, front = 0;

    for (int i = 0; i < 300; i++) {
        series_append(s, i, (i * 37 % 101) / 50.0 + 3);
        series_smooth(s, 0.9, sm);
    }
    canvas_init(&c, 80, 12);
    chart_draw(&ch, &c);
    for (int y = 1; y < 12; y++)
        for (int x = 7; x < 80; x++) {
            const struct cell *p = canvas_at(&c, x, y);
            raw += p->ch >= 0x2800 && p->style.fg == chart_dark.raw.fg;
            front += p->ch >= 0x2800 && p->style.fg == chart_dark.series[0].fg;
        }
    ok(raw > 50 && front >= 70, "the smoothed line in colour, the raw one dimmed behind");
    for (int i = 100; i < 200; i++)
        series_append(s, i, 1);
    cs.smooth = NULL, ch.smooth = 0;
    chart_draw(&ch, &c);
    int old = 0;
    for (int x = 7; x < 80; x++)
        for (int y = 1; y < 12; y++)
            old += canvas_at(&c, x, y)->style.fg == chart_dark.raw.fg;
    ok(old > 50, "after going back the old branch is still drawn, dimmed");
    canvas_release(&c);
    series_free(s);
    series_free(sm);
}

static void test_limits_overlay(void)
{
    struct series *s = series_new(0), *o = series_new(0);
    struct chart_series cs[] = {{.name = "a", .data = s}, {.name = "b", .data = o}};
    struct chart_limit l[] = {{87, "slowdown 87"}, {200, "far"}};
    struct chart ch = {.title = "GPU C", .series = cs, .n_series = 2, .limits = l, .n_limits = 2};

    for (int i = 0; i < 100; i++) {
        series_append(s, i, 60 + i * 0.3);
        series_append(o, i, 62);
    }
    draw(&ch, 80, 6);
    ok(has("╌╌ slowdown 87 ╌╌") && lacks("far"),
       "a limit is named in its line; one out of range is not drawn");
    ok(has("b 62 o") && has("o⠤⠤⠤⠤⠤⠤⠤o"), "a second line carries its mark");
    series_free(s);
    series_free(o);
}

/* Every size, every glyph set: under the sanitizers no access outside, and nothing outside the
 * canvas. */
static void test_sizes(void)
{
    struct series *s = series_new(0), *v = series_new(0), *e = series_new(0);
    struct chart_series cs[] = {{.name = "train", .data = s, .smooth = s},
                                {.name = "valid", .data = v, .points = true},
                                {.name = "\xe4\xb8\xad\x1b", .data = e}};
    struct chart_mark m[] = {{10, 'e', true}, {500, 'c', true}, {-5, 'c', true}, {1e9, '!', true}};
    struct chart_limit l[] = {{2, "two \xe4\xb8\xad"}};
    int good = 1;

    for (int i = 0; i < 1500; i++) {
        series_append(s, i % 1000, i == 900 ? NAN : i == 901 ? -1 : 3.0 / (i + 1));
        if (i % 100 == 0)
            series_append(v, i, 2);
    }
    for (int w = 1; w <= 120; w++)
        for (int h = 1; h <= 40; h++) {
            int k = w * 41 + h;
            struct chart ch = {.title = k % 7 ? "loss" : NULL,
                               .series = cs,
                               .n_series = k % 4,
                               .glyphs = k % 3,
                               .best = k % 3,
                               .log_y = k % 2,
                               .range = k / 2 % 3,
                               .y1 = 2,
                               .smooth = k % 5 ? 0 : .9,
                               .x = k % 4,
                               .x0 = k % 9 ? 0 : 100,
                               .x1 = k % 9 ? 0 : 140,
                               .marks = m,
                               .n_marks = 4,
                               .limits = l,
                               .n_limits = 1,
                               .marks_row = k % 3 > 0,
                               .x_axis = k % 5 > 0,
                               .cursor = true,
                               .cursor_x = k % 600,
                               .branch = k % 3,
                               .palette = k % 2 ? &chart_dark : NULL};
            struct canvas big, c;
            canvas_init(&big, w + 2, h + 2);
            canvas_fill(&big, 0, 0, w + 2, h + 2, '@', STYLE_PLAIN);
            c = canvas_sub(&big, 1, 1, w, h);
            good &= chart_draw(&ch, &c) == 0;
            for (int i = 0; i < w + 2; i++)
                good &= canvas_at(&big, i, 0)->ch == '@' && canvas_at(&big, i, h + 1)->ch == '@';
            for (int i = 0; i < h + 2; i++)
                good &= canvas_at(&big, 0, i)->ch == '@' && canvas_at(&big, w + 1, i)->ch == '@';
            canvas_release(&big);
        }
    ok(good, "all sizes from 1x1 to 120x40: drawn, and nothing outside");
    struct chart ch = {
        .title = "loss", .series = cs, .n_series = 3, .marks_row = true, .range = CHART_ROBUST};
    struct canvas c;
    int refused = 0;
    canvas_init(&c, 80, 20);
    for (long nth = 1; nth < 12; nth++) {
        mem_fail_nth(nth);
        refused += chart_draw(&ch, &c) == -1;
    }
    mem_fail_nth(0);
    ok(refused > 3 && chart_draw(&ch, &c) == 0,
       "out of memory is said, and the next draw is whole");
    canvas_release(&c);
    series_free(s);
    series_free(v);
    series_free(e);
}

int main(void)
{
    test_empty_and_single();
    test_pictures();
    test_spike(0, 3, "raw");
    test_spike(8192, 1024, "pyramid only");
    test_bad_values();
    test_log();
    test_ticks();
    test_marks();
    test_range_zoom_cursor();
    test_smoothing_and_branches();
    test_limits_overlay();
    test_sizes();
    str_release(&picture);
    return tap_done();
}
