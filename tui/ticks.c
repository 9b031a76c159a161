/* ticks.c - nice positions, short numbers. */
#include "tui/ticks.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 8.410e-05 -> 8.410e-5, 1e+06 -> 1e6. */
static void squeeze_exponent(char *s)
{
    char *e = strchr(s, 'e');

    if (!e)
        return;
    char *from = e + 1, *to = e + 1;
    if (*from == '-')
        *to++ = *from++;
    else if (*from == '+')
        from++;
    while (*from == '0' && from[1])
        from++;
    memmove(to, from, strlen(from) + 1);
}

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* printf writes the decimal point of the locale, if some library has set LC_NUMERIC after all. */
static void force_dot(char *s)
{
    for (; *s; s++)
        if (*s == ',')
            *s = '.';
}

/* v in `digits` (3 or 4) significant ones, with k, M, G, T from 10000 on; zeros at the end kept if
 * `pad`. */
static void significant(char *buf, double v, int digits, bool pad)
{
    static const char *const unit[] = {"", "k", "M", "G", "T"};
    double a = fabs(v), over = digits == 3 ? 999.5 : 999.95; /* what would be rounded to 1000 */
    int u = 0;

    if (a < 1e-3 || a >= 1e15) {
        snprintf(buf, TICK_TEXT, pad ? "%.*e" : "%.*g", pad ? digits - 1 : digits, v);
        squeeze_exponent(buf);
        force_dot(buf);
        return;
    }
    if (a >= 9999.5)
        for (; u < 4 && a >= over; u++)
            a /= 1000;
    snprintf(buf, TICK_TEXT, pad ? "%#.*g" : "%.*g", digits, v < 0 ? -a : a);
    force_dot(buf);
    size_t n = strlen(buf);
    if (n > 0 && buf[n - 1] == '.')
        buf[n - 1] = '\0';
    strncat(buf, unit[u], TICK_TEXT - 1 - strlen(buf));
}

char *num_value(char *buf, double v)
{
    if (!isfinite(v)) {
        snprintf(buf, TICK_TEXT, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return buf;
    }
    if (v == 0 || (v == floor(v) && fabs(v) < 10000)) {
        snprintf(buf, TICK_TEXT, "%d", (int)v);
        return buf;
    }
    char three[32];
    snprintf(three, sizeof three, "%.2e", v);
    force_dot(three);
    bool few = same(strtod(three, NULL), v);
    significant(buf, v, fabs(v) >= 9999.5 ? 3 : 4, !few);
    return buf;
}

char *num_step(char *buf, double step)
{
    if (fabs(step) < 1e7)
        snprintf(buf, TICK_TEXT, "%.0f", step);
    else
        significant(buf, step, 4, true);
    return buf;
}

/* A label for a tick: as many decimals as the distance to the next one needs, and no more than fit.
 */
static void tick_text(char buf[TICK_TEXT], double v, double step, int width)
{
    static const struct {
        double scale;
        const char *unit;
    } units[] = {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}};
    double big = fmax(fabs(v), step);
    int u = 0;

    if (fabs(v) < step * 1e-6) {
        snprintf(buf, TICK_TEXT, "0");
        return;
    }
    if (fabs(v) >= 1e3)
        while (u < 4 && big >= units[u + 1].scale)
            u++;
    if (big < 1e15 && step >= 1e-5) {
        double st = step / units[u].scale;
        int dec = st >= 1 ? 0 : (int)ceil(-log10(st) - 1e-6);
        for (; dec >= 0; dec--)
            if (snprintf(buf, TICK_TEXT, "%.*f%s", dec < 9 ? dec : 9, v / units[u].scale,
                         units[u].unit) <= width)
                break;
        force_dot(buf);
        if (dec >= 0 && fabs(v) >= 0.0099)
            return;
    }
    for (int p = 2; p >= 0; p--) {
        snprintf(buf, TICK_TEXT, "%.*e", p, v);
        squeeze_exponent(buf);
        force_dot(buf);
        if ((int)strlen(buf) <= width && (p == 0 || !strstr(buf, "0e")))
            return;
    }
    buf[width > 0 && width < TICK_TEXT ? width : 0] = '\0';
}

int ticks_y_pos(double lo, double hi, bool log, int n, double y)
{
    double t;

    if (log)
        t = (log10(hi) - log10(y)) / (log10(hi) - log10(lo));
    else /* halves: hi - lo may be infinite */
        t = (hi / 2 - y / 2) / (hi / 2 - lo / 2);
    if (!(t > 0))
        return 0;
    return t >= 1 ? n - 1 : (int)floor(t * (n - 1) + 0.5);
}

/* The row of a tick: by the dots of the finest glyphs, so that it stands where the data do. */
static int tick_row(double lo, double hi, bool log, int rows, double y)
{
    return ticks_y_pos(lo, hi, log, 4 * rows, y) / 4;
}

static int rows_limit(int rows)
{
    int most = rows <= 4 ? rows : rows / 2 + 2;
    return most > TICKS_MAX ? TICKS_MAX : most;
}

/* The next step of 1, 2, 5, 10, ... */
static double next_nice(double step)
{
    double p = pow(10, floor(log10(step) + 1e-9)), m = step / p;
    return m < 1.5 ? 2 * p : m < 3.5 ? 5 * p : 10 * p;
}

/* Ticks at multiples of `step`; -1 if two would share a row or there are too many. */
static int linear_ticks(double lo, double hi, bool log, int rows, double step,
                        double ats[TICKS_MAX])
{
    double first = ceil(lo / step - 1e-9);
    int n = 0, most = rows_limit(rows), row = rows;

    for (double i = first; i * step <= hi + step * 1e-9; i++) {
        int r = tick_row(lo, hi, log, rows, i * step);
        if (n == most || r == row)
            return -1;
        ats[n++] = i * step;
        row = r;
    }
    return n;
}

static double least_nice(double span, int count)
{
    double raw = span / count;
    double p = pow(10, floor(log10(raw)));
    return isfinite(p) && p > 0 ? p : raw;
}

static int choose_linear(double lo, double hi, bool log, int rows, double *step,
                         double ats[TICKS_MAX])
{
    double s = least_nice(hi / 2 - lo / 2, 2 * rows);

    for (int tries = 0; tries < 16; tries++, s = next_nice(s)) {
        int n = linear_ticks(lo, hi, log, rows, s, ats);
        if (n < 0)
            continue;
        *step = s;
        return n;
    }
    return 0;
}

/* The nearest of 1, 2, 3, 5, 7 times a power of ten at or beyond y: up or down. */
static double log_beyond(double y, bool up)
{
    static const double m[] = {1, 2, 3, 5, 7, 10};
    double p = pow(10, floor(log10(y))), best = up ? 10 * p : p;

    for (int i = 0; i < 6; i++) {
        double at = m[i] * p;
        if (up ? at >= y * (1 - 1e-9) && at < best : at <= y * (1 + 1e-9) && at > best)
            best = at;
    }
    return best;
}

void ticks_snap(double *lo, double *hi, bool log, int rows)
{
    double ats[TICKS_MAX], step = 0, a, b;

    if (log) {
        double most = pow(10, (log10(*hi) - log10(*lo)) / 12);
        a = log_beyond(*lo, false);
        b = log_beyond(*hi, true);
        *lo = a > 0 && *lo / a<most && * lo / a> 1 ? a : *lo;
        *hi = isfinite(b) && b / *hi < most && b / *hi > 1 ? b : *hi;
        return;
    }
    if (choose_linear(*lo, *hi, false, rows, &step, ats) < 1)
        return;
    double most = (*hi / 2 - *lo / 2) / 5; /* halves: a tenth of the whole */
    a = floor(*lo / step + 1e-9) * step;
    b = ceil(*hi / step - 1e-9) * step;
    *lo = *lo - a<most && * lo - a> 0 ? a : *lo;
    *hi = b - *hi < most && b - *hi > 0 ? b : *hi;
}

static bool row_taken(const double *ats, int n, double lo, double hi, int rows, double y)
{
    for (int i = 0; i < n; i++)
        if (tick_row(lo, hi, true, rows, ats[i]) == tick_row(lo, hi, true, rows, y))
            return true;
    return false;
}

/* Decades first, as many apart as they must be; then 5, 2, 3, 7 where there are rows left.
 * Ascending. */
static int choose_log(double lo, double hi, int rows, double ats[TICKS_MAX])
{
    static const double between[] = {5, 2, 3, 7};
    int d0 = (int)floor(log10(lo) + 1e-9), d1 = (int)ceil(log10(hi) - 1e-9);
    int most = rows_limit(rows), apart = 1, n = 0;

    while ((d1 - d0) / apart + 1 > most)
        apart++;
    for (int m = -1; m < 4; m++) {
        if (m >= 0 && apart > 1)
            break;
        for (int d = d0; d <= d1; d++) {
            double at = pow(10, d) * (m < 0 ? 1 : between[m]);
            bool skip = (m < 0 && d % apart != 0) || at < lo * (1 - 1e-9) || at > hi * (1 + 1e-9);
            if (!skip && n < most && !row_taken(ats, n, lo, hi, rows, at))
                ats[n++] = at;
        }
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0; /* the largest first: it stands on top */
}

int ticks_y(double lo, double hi, bool log, int rows, int width, struct tick out[TICKS_MAX])
{
    double ats[TICKS_MAX], step = 0;
    int n = 0, kept = 0;

    if (rows < 1 || width < 1 || !(lo < hi) || (log && !(lo > 0)))
        return 0;
    if (log)
        n = choose_log(lo, hi, rows, ats);
    bool by_decades = n >= 2;
    if (!by_decades)
        n = choose_linear(lo, hi, log, rows, &step, ats);
    qsort(ats, (size_t)n, sizeof *ats, by_value);
    for (int i = 0; i < n; i++) {
        struct tick *t = &out[kept];
        t->at = ats[i];
        t->pos = tick_row(lo, hi, log, rows, ats[i]);
        double fine = by_decades ? pow(10, floor(log10(ats[i]) + 1e-9)) : step;
        tick_text(t->text, ats[i], fine, width < TICK_TEXT ? width : TICK_TEXT - 1);
        if (t->text[0] && (kept == 0 || strcmp(t->text, out[kept - 1].text) != 0))
            kept++;
    }
    return kept;
}

static void time_text(char buf[TICK_TEXT], double t)
{
    int64_t s = (int64_t)fmin(fabs(t) + 0.5, 1e12);
    const char *sign = t < 0 && s > 0 ? "-" : "";

    if (s < 3600)
        snprintf(buf, TICK_TEXT, "%s%d:%02d", sign, (int)(s / 60), (int)(s % 60));
    else if (s < 360000)
        snprintf(buf, TICK_TEXT, "%s%d:%02d:%02d", sign, (int)(s / 3600), (int)(s / 60 % 60),
                 (int)(s % 60));
    else
        snprintf(buf, TICK_TEXT, "%s%dd", sign, (int)(s / 86400));
}

static double next_time(double step)
{
    static const double nice[] = {1,   2,   5,    10,   15,   30,    60,    120,   300,
                                  600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400};
    for (size_t i = 0; i < sizeof nice / sizeof *nice; i++)
        if (nice[i] > step * 1.001)
            return nice[i];
    return next_nice(step / 86400) * 86400;
}

/* Labels at multiples of step; -1 if they come too near to each other. */
static int place_x(double x0, double x1, enum tick_x kind, int cols, double step,
                   struct tick out[TICKS_MAX])
{
    int n = 0, free_from = 0;

    for (double i = ceil(x0 / step - 1e-9); i * step <= x1 + step * 1e-9; i++) {
        double at = i * step;
        int col = (int)floor((at - x0) / (x1 - x0) * (cols - 1) + 0.5);
        if (n == TICKS_MAX)
            return -1;
        struct tick *t = &out[n];
        t->at = at;
        if (kind == TICK_TIME)
            time_text(t->text, at);
        else
            tick_text(t->text, at, step, 8);
        int len = (int)strlen(t->text);
        t->pos = col - len / 2;
        t->pos = t->pos < 0 ? 0 : t->pos + len > cols ? cols - len : t->pos;
        if (len > cols || t->pos < free_from || (n > 0 && strcmp(t->text, out[n - 1].text) == 0))
            return -1;
        free_from = t->pos + len + 3;
        n++;
    }
    return n;
}

int ticks_x(double x0, double x1, enum tick_x kind, int cols, struct tick out[TICKS_MAX])
{
    if (cols < 1 || !(x0 < x1) || !isfinite(x1 - x0))
        return 0;
    int most = cols / 10 > 0 ? cols / 10 : 1;
    double step = least_nice(x1 - x0, most + 1);
    if (kind != TICK_EPOCH && step < 1)
        step = 1;
    for (int tries = 0; tries < 32; tries++) {
        int n = place_x(x0, x1, kind, cols, step, out);
        if (n >= 0 && n <= most + 1)
            return n;
        step = kind == TICK_TIME ? next_time(step) : next_nice(step);
    }
    return 0;
}
