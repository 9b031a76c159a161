/* No spike, no first and no last value is lost, however many points a column stands for. */
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "tui/series.h"

#define N 1000000

static struct series_col col[400];

static double y_of(int i)
{
    return i == 0 ? -3 : i == N - 1 ? 7 : i == 777777 ? 1000 : 0;
}

static struct series *spike_series(size_t raw_max)
{
    struct series *s = series_new(raw_max);
    for (int i = 0; i < N; i++)
        series_append(s, i, y_of(i));
    return s;
}

static int64_t count_all(int cols)
{
    int64_t n = 0;
    for (int i = 0; i < cols; i++)
        n += col[i].sum.count + col[i].sum.nan + col[i].sum.inf;
    return n;
}

static int has_max(int cols, double y)
{
    for (int i = 0; i < cols; i++)
        if (col[i].sum.count && col[i].sum.max == y)
            return 1;
    return 0;
}

static void test_spike(size_t raw_max, const char *what)
{
    struct series *s = spike_series(raw_max);
    int seen = 1, placed = 1, whole = 1;

    for (double half = N; half > 2; half /= 1.7) {
        double x0 = 777777 - half, x1 = 777777 + half * 0.9;
        series_query(s, -1, x0, x1, 160, col);
        seen &= has_max(160, 1000);
        int at = (int)((777777 - x0) / (x1 - x0) * 160);
        placed &= col[at].sum.count > 0 && col[at].sum.max == 1000 && col[at].sum.max_x == 777777;
        int64_t want = (int64_t)(fmin(floor(x1), N - 1) - fmax(ceil(x0), 0)) + 1;
        whole &= raw_max ? 1 : count_all(160) == want;
    }
    ok(seen, "%s: the spike is seen at every zoom", what);
    ok(placed, "%s: and in its own column", what);
    ok(whole, "%s: every point is counted in exactly one column", what);
    series_query(s, -1, 0, N - 1, 80, col);
    ok(col[0].sum.first == -3 && col[0].sum.min == -3 && col[79].sum.last == 7,
       "%s: the first and the last value are there", what);
    /* of a leaf that lies across columns and has no raw points only extremes and ends are placed */
    ok(raw_max ? count_all(80) > N * 0.9 : count_all(80) == N, "%s: the points of the whole view",
       what);
    ok(series_total(s)->max == 1000 && series_total(s)->max_x == 777777, "%s: best and its step",
       what);
    series_free(s);
}

/* Against a plain loop over the points, with NaN and negative ones among them. */
static void test_against_loop(void)
{
    enum { M = 70000, W = 97 };
    double *y = malloc(M * sizeof *y), *x = malloc(M * sizeof *x);
    struct series *s = series_new(0);
    uint32_t r = 1;
    int good = 1;

    for (int i = 0; i < M; i++) {
        r = r * 1664525u + 1013904223u;
        x[i] = (i ? x[i - 1] : 0) + (r >> 30);
        y[i] = r % 97 == 0 ? NAN : r % 89 == 0 ? INFINITY : (double)(r >> 8) - 4e6;
        series_append(s, x[i], y[i]);
    }
    for (int q = 0; q < 40; q++) {
        r = r * 1664525u + 1013904223u;
        double x0 = r % 90000, x1 = x0 + 1 + (r >> 9) % (1u << (q % 18));
        struct series_sum want[W] = {0};
        for (int i = 0; i < M; i++) {
            if (x[i] < x0 || x[i] > x1)
                continue;
            int k = (int)((x[i] / 2 - x0 / 2) / (x1 / 2 - x0 / 2) * W);
            struct series_sum *a = &want[k < W ? k : W - 1];
            if (!isfinite(y[i])) {
                a->nan += isnan(y[i]);
                a->inf += !isnan(y[i]);
                continue;
            }
            a->first = a->count ? a->first : y[i];
            a->min = a->count ? fmin(a->min, y[i]) : y[i];
            a->max = a->count ? fmax(a->max, y[i]) : y[i];
            a->last = y[i];
            a->nonpos += !(y[i] > 0);
            a->count++;
        }
        series_query(s, -1, x0, x1, W, col);
        for (int k = 0; k < W; k++) {
            const struct series_sum *a = &col[k].sum, *b = &want[k];
            good &= a->count == b->count && a->nan == b->nan && a->inf == b->inf;
            good &= a->nonpos == b->nonpos && a->first == b->first && a->last == b->last;
            good &= a->min == b->min && a->max == b->max && !col[k].coarse;
        }
    }
    ok(good, "40 random views equal a plain loop over all points, column by column");
    series_free(s);
    free(x);
    free(y);
}

/* Groups are made of closed leaves only: at each length the whole is in one column. */
static void test_growth(void)
{
    struct series *s = series_new(0);
    int good = 1;

    for (int i = 0; i < 33 * 32 * SERIES_LEAF / 16; i++) {
        series_append(s, i, i + 1);
        if (i % SERIES_LEAF < SERIES_LEAF - 2 && i % SERIES_LEAF > 1)
            continue;
        series_query(s, -1, -1, i + 1.0, 1, col);
        good &= col[0].sum.count == i + 1 && col[0].sum.max == i + 1 && col[0].sum.min == 1;
    }
    ok(good, "a growing series is whole at each step around a leaf's end");
    series_free(s);
}

static void test_bad_values(void)
{
    static const double v[] = {1, 0.9, NAN, NAN, INFINITY, -INFINITY, 0.8};
    struct series *s = series_new(0);
    double x, y;

    ok(series_count(s) == 0 && !series_newest(s, &x, &y) && isnan(series_first_bad(s)) &&
           series_branches(s) == 0,
       "an empty series knows that it is");
    for (int i = 0; i < 7; i++)
        series_append(s, i, v[i]);
    ok(series_total(s)->nan == 2 && series_total(s)->inf == 2, "2 nan and 2 infinite are counted");
    ok(series_first_bad(s) == 2, "the first at step 2");
    ok(series_total(s)->min == 0.8 && series_total(s)->max == 1 && series_total(s)->last == 0.8,
       "extremes and last are of finite values");
    ok(series_count(s) == 7, "all are points");
    series_append(s, 7, NAN);
    ok(series_newest(s, &x, &y) && x == 7 && isnan(y), "the newest value may be nan, and says so");
    series_append(s, NAN, 1);
    ok(series_count(s) == 8 && series_lost(s) == 1, "a point without an x is counted as lost");
    series_free(s);
}

static void test_branches(void)
{
    struct series *s = series_new(0);
    double lo, hi;

    for (int i = 0; i <= 1000; i++)
        series_append(s, i, 1);
    for (int i = 500; i <= 800; i++)
        series_append(s, i, 2);
    series_append(s, 800, 3);
    ok(series_branches(s) == 2, "going back begins a branch, a repeated step does not");
    ok(series_branch_range(s, 0, &lo, &hi) && lo == 0 && hi == 1000, "the first is 0 .. 1000");
    ok(series_branch_range(s, -1, &lo, &hi) && lo == 500 && hi == 800, "the newest is 500 .. 800");
    ok(!series_branch_range(s, 2, &lo, &hi), "there is no third");
    series_query(s, 0, 0, 1000, 10, col);
    ok(count_all(10) == 1001 && !has_max(10, 2), "the old branch is kept whole");
    series_query(s, 1, 0, 1000, 10, col);
    ok(count_all(10) == 302 && has_max(10, 3),
       "the new one has its points, also the repeated step");
    series_branch(s);
    series_append(s, 801, 4);
    ok(series_branches(s) == 3, "series_branch begins one by hand");
    double big = 9007199254740993.0;
    series_append(s, big, 5);
    series_append(s, 0, 6);
    ok(series_branches(s) == 4 && series_count(s) == 1001 + 302 + 3,
       "2^53 + 1 and a reset to 0: all kept");
    for (int i = 0; i < 3 * SERIES_BRANCHES_MAX; i++)
        series_append(s, -i, i);
    ok(series_branches(s) == SERIES_BRANCHES_MAX, "branches are bounded");
    ok(series_count(s) == 1306 + 3 * SERIES_BRANCHES_MAX, "and no point is dropped for it");
    series_query(s, -1, -1e6, 1e6, 1, col);
    ok(col[0].sum.max == 3 * SERIES_BRANCHES_MAX - 1, "what came after is in the last branch");
    series_free(s);
}

static void test_sums(void)
{
    struct series *s = series_new(0);
    struct series_sum a = {.x_lo = 1,
                           .x_hi = 1000,
                           .first = 2,
                           .last = 1,
                           .min = 0.5,
                           .max = 9,
                           .min_x = 900,
                           .max_x = 400,
                           .pos_min = 0.5,
                           .total = 2000,
                           .count = 1000};
    struct series_sum bad = a;

    ok(series_append_sum(s, &a) == 0, "a summary from a file's pyramid is taken");
    series_append(s, 1001, 3);
    series_query(s, -1, 1, 1001, 20, col);
    ok(col[7].sum.max == 9 && col[17].sum.min == 0.5 && col[0].sum.first == 2 &&
           col[19].sum.last == 3,
       "its extremes and ends are drawn where they were");
    ok(col[3].coarse && col[7].coarse, "and its columns say that the file knows more");
    series_query(s, -1, 0, 100000, 10, col);
    ok(col[0].sum.count == 1001 && !col[0].coarse, "in one column it is exact");
    bad.count = 1LL << 62;
    ok(series_append_sum(s, &bad) == -1, "more points than a leaf has: refused");
    bad = a;
    bad.max = NAN;
    ok(series_append_sum(s, &bad) == -1, "a maximum that is not a number: refused");
    bad = a;
    bad.max_x = 1e9;
    ok(series_append_sum(s, &bad) == -1 && series_count(s) == 1001,
       "an x outside: refused, nothing changed");
    series_free(s);
}

static void test_smooth(void)
{
    struct series *s = series_new(0), *to = series_new(0);
    double x, y, sum = 0, weight = 0;
    int exact = 1;

    for (int i = 0; i < 3000; i++) {
        series_append(s, i, 0.1);
        series_smooth(s, 0.98, to);
        series_newest(to, &x, &y);
        exact &= x == i && y == 0.1;
    }
    ok(exact, "a constant stays that constant, to the last bit");
    series_free(s);
    series_free(to);
    s = series_new(0), to = series_new(0);
    for (int i = 0; i < 2500; i++) {
        double v = i % 7 == 3 ? (double)NAN : i % 13;
        series_append(s, i, v);
        if (isfinite(v)) {
            sum = 0.9 * sum + v;
            weight = 0.9 * weight + 1;
        }
        if (i % 100 == 0)
            series_smooth(s, 0.9, to);
    }
    series_smooth(s, 0.9, to);
    ok(series_count(to) == 2500 && series_total(to)->nan == series_total(s)->nan,
       "as many points as the source, NaN passed on");
    ok(fabs(series_total(to)->last - sum / weight) < 1e-9,
       "the mean of all, weighted 0.9^age, without bias");
    series_append(s, 100, 5);
    series_smooth(s, 0.9, to);
    ok(series_branches(to) == 2 && series_newest(to, &x, &y) && y == 5, "a branch starts afresh");
    series_free(s);
    series_free(to);
}

static void test_memory(void)
{
    int survived = 1;

    for (long nth = 1; nth < 60; nth++) {
        mem_fail_nth(nth);
        struct series *s = series_new(0);
        int64_t taken = 0;
        for (int i = 0; s && i < 40 * SERIES_LEAF; i++)
            taken += series_append(s, i < 30000 ? i : i - 20000, i) == 0;
        if (s) {
            survived &=
                series_count(s) == taken && series_count(s) + series_lost(s) == 40 * SERIES_LEAF;
            series_query(s, 0, 0, 30000, 50, col);
        }
        series_free(s);
    }
    mem_fail_nth(0);
    ok(survived,
       "when the n-th allocation fails, one point is counted as lost and the rest is whole");
}

int main(void)
{
    test_spike(0, "raw");
    test_spike(4096, "pyramid only");
    test_against_loop();
    test_growth();
    test_bad_values();
    test_branches();
    test_sums();
    test_smooth();
    test_memory();
    return tap_done();
}
