/* series.c - leaves of 1024 points, a pyramid of summaries above them, and the query that walks it.
 *
 * Level 0 is the leaves. Level k > 0 has one summary for each 32^k leaves that are closed (no more
 * points come to them); it is made when the last of its leaves closes. A branch is a range of
 * leaves: its first point closes the leaf before. */
#include "tui/series.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"

#define FAN 32
#define LEVELS 8 /* 32^8 leaves of 1024 points: more than memory holds */

struct point {
    double x, y;
};

struct leaf {
    struct series_sum sum;
    struct point *raw; /* owned; NULL when let go or never there */
    uint32_t n, cap;   /* points in raw, room for */
};

struct level {
    struct series_sum *sums; /* owned */
    size_t n, cap;
};

struct series {
    struct leaf *leaves; /* owned */
    size_t n, cap;
    struct level up[LEVELS]; /* [0] unused */
    size_t *starts;          /* first leaf of each branch, owned */
    size_t branches, branches_cap;
    bool open;        /* the last leaf takes more points */
    bool want_branch; /* series_branch was called */
    size_t raw_points, raw_max;
    size_t raw_oldest; /* no leaf before it has raw points */
    struct series_sum total;
    struct point newest;
    double first_bad;
    int64_t lost;

    /* as the target of series_smooth: how far the source was read, and the state of the mean */
    size_t seen_leaf;
    uint32_t seen_points;
    double mean, weight_left; /* weight_left: w^n, 1 at a start */
};

static void sum_point(struct series_sum *a, double x, double y)
{
    bool none = a->count + a->nan + a->inf == 0;

    a->x_lo = none ? x : fmin(a->x_lo, x);
    a->x_hi = none ? x : fmax(a->x_hi, x);
    if (!isfinite(y)) {
        a->nan += isnan(y) ? 1 : 0;
        a->inf += isnan(y) ? 0 : 1;
        return;
    }
    if (a->count == 0) {
        a->first = a->min = a->max = y;
        a->min_x = a->max_x = x;
        a->pos_min = INFINITY;
    }
    a->last = y;
    if (y < a->min)
        a->min = y, a->min_x = x;
    if (y > a->max)
        a->max = y, a->max_x = x;
    if (y > 0)
        a->pos_min = fmin(a->pos_min, y);
    else
        a->nonpos++;
    a->total += y;
    a->count++;
}

static void sum_values(struct series_sum *a, const struct series_sum *b)
{
    if (a->count == 0) {
        a->first = b->first;
        a->min = b->min, a->min_x = b->min_x;
        a->max = b->max, a->max_x = b->max_x;
        a->pos_min = INFINITY;
    }
    if (b->min < a->min)
        a->min = b->min, a->min_x = b->min_x;
    if (b->max > a->max)
        a->max = b->max, a->max_x = b->max_x;
    a->pos_min = fmin(a->pos_min, b->pos_min);
    a->last = b->last;
    a->total += b->total;
    a->count += b->count;
    a->nonpos += b->nonpos;
}

static int64_t sum_points(const struct series_sum *a)
{
    return a->count + a->nan + a->inf;
}

static void sum_merge(struct series_sum *a, const struct series_sum *b)
{
    if (sum_points(b) == 0)
        return;
    if (sum_points(a) == 0) {
        a->x_lo = b->x_lo;
        a->x_hi = b->x_hi;
    }
    a->x_lo = fmin(a->x_lo, b->x_lo);
    a->x_hi = fmax(a->x_hi, b->x_hi);
    if (b->count > 0)
        sum_values(a, b);
    a->nan += b->nan;
    a->inf += b->inf;
}

struct series *series_new(size_t raw_max)
{
    struct series *s = mem_zalloc(sizeof *s);

    if (!s)
        return NULL;
    s->raw_max = raw_max ? raw_max : SERIES_RAW_DEFAULT;
    s->first_bad = NAN;
    s->weight_left = 1;
    return s;
}

void series_free(struct series *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        mem_free(s->leaves[i].raw);
    for (int k = 1; k < LEVELS; k++)
        mem_free(s->up[k].sums);
    mem_free(s->leaves);
    mem_free(s->starts);
    mem_free(s);
}

/* The last leaf is complete: add the summaries of the groups that end with it. Returns -1 if there
 * is no memory for one; then nothing has changed and the leaf stays open. */
static int close_leaf(struct series *s)
{
    size_t group = s->n;

    for (int k = 1; k < LEVELS && group % FAN == 0; k++, group /= FAN)
        if (mem_grow((void **)&s->up[k].sums, &s->up[k].cap, s->up[k].n, sizeof *s->up[k].sums) < 0)
            return -1;
    group = s->n;
    for (int k = 1; k < LEVELS && group % FAN == 0; k++, group /= FAN) {
        struct series_sum sum = {0};
        for (size_t i = group - FAN; i < group; i++)
            sum_merge(&sum, k == 1 ? &s->leaves[i].sum : &s->up[k - 1].sums[i]);
        s->up[k].sums[s->up[k].n++] = sum;
    }
    s->open = false;
    return 0;
}

/* A new open leaf, and a new branch when one is due. */
static int open_leaf(struct series *s, bool branch)
{
    if (s->open && close_leaf(s) < 0)
        return -1;
    if (mem_grow((void **)&s->leaves, &s->cap, s->n, sizeof *s->leaves) < 0)
        return -1;
    if (branch || s->branches == 0) {
        if (mem_grow((void **)&s->starts, &s->branches_cap, s->branches, sizeof *s->starts) < 0)
            return -1;
        s->starts[s->branches++] = s->n;
    }
    s->leaves[s->n++] = (struct leaf){0};
    s->open = true;
    s->want_branch = false;
    return 0;
}

/* Let raw points go, oldest first, until the bound holds; never those of the newest leaf. */
static void trim_raw(struct series *s)
{
    while (s->raw_points > s->raw_max && s->raw_oldest + 1 < s->n) {
        struct leaf *l = &s->leaves[s->raw_oldest++];
        s->raw_points -= l->n;
        mem_free(l->raw);
        l->raw = NULL;
        l->n = l->cap = 0;
    }
}

static int leaf_push(struct leaf *l, double x, double y)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? 2 * l->cap : 16;
        struct point *raw = mem_realloc(l->raw, cap * sizeof *raw);
        if (!raw)
            return -1;
        l->raw = raw;
        l->cap = cap;
    }
    l->raw[l->n++] = (struct point){x, y};
    sum_point(&l->sum, x, y);
    return 0;
}

static bool starts_branch(const struct series *s, double x)
{
    return sum_points(&s->total) > 0 && s->branches < SERIES_BRANCHES_MAX &&
           (s->want_branch || x < s->newest.x);
}

int series_append(struct series *s, double x, double y)
{
    if (!isfinite(x)) {
        s->lost++;
        return 0;
    }
    bool branch = starts_branch(s, x);
    if (branch || !s->open || s->leaves[s->n - 1].n == SERIES_LEAF)
        if (open_leaf(s, branch) < 0)
            goto lost;
    if (leaf_push(&s->leaves[s->n - 1], x, y) < 0)
        goto lost;
    s->raw_points++;
    trim_raw(s);
    sum_point(&s->total, x, y);
    s->newest = (struct point){x, y};
    if (!isfinite(y) && isnan(s->first_bad))
        s->first_bad = x;
    return 0;
lost:
    s->lost++;
    return -1;
}

/* A summary from a file: false if no points could have made it. */
static bool sum_sane(const struct series_sum *a)
{
    if (a->count < 0 || a->nan < 0 || a->inf < 0 || a->nonpos < 0 || a->nonpos > a->count)
        return false;
    if (a->count > SERIES_LEAF || a->nan > SERIES_LEAF || a->inf > SERIES_LEAF ||
        sum_points(a) == 0 || sum_points(a) > SERIES_LEAF)
        return false;
    if (!isfinite(a->x_lo) || !isfinite(a->x_hi) || a->x_lo > a->x_hi)
        return false;
    if (a->count == 0)
        return true;
    return a->min <= a->first && a->first <= a->max && a->min <= a->last && a->last <= a->max &&
           isfinite(a->min) && isfinite(a->max) && a->min_x >= a->x_lo && a->min_x <= a->x_hi &&
           a->max_x >= a->x_lo && a->max_x <= a->x_hi && !isnan(a->total) &&
           (a->nonpos == a->count ? a->max <= 0 : a->pos_min > 0 && a->pos_min <= a->max);
}

int series_append_sum(struct series *s, const struct series_sum *sum)
{
    if (!sum_sane(sum) || open_leaf(s, starts_branch(s, sum->x_lo)) < 0)
        return -1;
    struct leaf *l = &s->leaves[s->n - 1];
    l->sum = *sum;
    if (sum->nonpos == sum->count)
        l->sum.pos_min = INFINITY;
    if (close_leaf(s) < 0) { /* the leaf may not stay: a point would be added to it */
        s->n--;
        s->open = false;
        if (s->branches && s->starts[s->branches - 1] == s->n)
            s->branches--;
        return -1;
    }
    sum_merge(&s->total, &l->sum);
    s->newest = (struct point){sum->x_hi, sum->count ? sum->last : NAN};
    if (sum->nan + sum->inf > 0 && isnan(s->first_bad))
        s->first_bad = sum->x_lo;
    return 0;
}

void series_branch(struct series *s)
{
    s->want_branch = true;
}

int64_t series_count(const struct series *s)
{
    return sum_points(&s->total);
}

int64_t series_lost(const struct series *s)
{
    return s->lost;
}

const struct series_sum *series_total(const struct series *s)
{
    return &s->total;
}

double series_first_bad(const struct series *s)
{
    return s->first_bad;
}

bool series_newest(const struct series *s, double *x, double *y)
{
    *x = s->newest.x;
    *y = s->newest.y;
    return series_count(s) > 0;
}

int series_branches(const struct series *s)
{
    return (int)s->branches;
}

/* The leaves [*lo, *hi) of a branch. */
static bool branch_leaves(const struct series *s, int branch, size_t *lo, size_t *hi)
{
    size_t b = branch < 0 ? s->branches - 1 : (size_t)branch;

    if (s->branches == 0 || branch < -1 || b >= s->branches)
        return false;
    *lo = s->starts[b];
    *hi = b + 1 < s->branches ? s->starts[b + 1] : s->n;
    return true;
}

/* The summary that starts at leaf i and covers the most leaves (*width of them) before `end`, at
 * most `level` up; *level becomes its own. */
static const struct series_sum *group_at(const struct series *s, size_t i, size_t end, int *level,
                                         size_t *width)
{
    size_t w = 1;
    int k = 0;

    while (k < *level && k + 1 < LEVELS && i % (w * FAN) == 0 && i + w * FAN <= end &&
           i / (w * FAN) < s->up[k + 1].n) {
        w *= FAN;
        k++;
    }
    *level = k;
    *width = w;
    return k == 0 ? &s->leaves[i].sum : &s->up[k].sums[i / w];
}

bool series_branch_range(const struct series *s, int branch, double *x_lo, double *x_hi)
{
    struct series_sum all = {0};
    size_t lo, hi, width;

    if (!branch_leaves(s, branch, &lo, &hi))
        return false;
    for (size_t i = lo; i < hi; i += width) {
        int level = LEVELS;
        sum_merge(&all, group_at(s, i, hi, &level, &width));
    }
    *x_lo = all.x_lo;
    *x_hi = all.x_hi;
    return true;
}

struct query {
    double x0, x1;
    int cols;
    struct series_col *out;
};

static int column_of(const struct query *q, double x)
{
    /* halves: x1 - x0 may be infinite where x1/2 - x0/2 is not */
    double t = (x / 2 - q->x0 / 2) / (q->x1 / 2 - q->x0 / 2) * q->cols;
    return t >= q->cols ? q->cols - 1 : t > 0 ? (int)t : 0;
}

static bool in_range(const struct query *q, double x)
{
    return x >= q->x0 && x <= q->x1;
}

static void query_point(const struct query *q, double x, double y)
{
    if (in_range(q, x))
        sum_point(&q->out[column_of(q, x)].sum, x, y);
}

/* A leaf that lies across columns and has no raw points: what is known of it goes where it belongs,
 * and every column it touches says that it is coarse. Non-finite ones go to the leaf's first
 * column. */
static void query_coarse(const struct query *q, const struct series_sum *a)
{
    int from = column_of(q, fmax(a->x_lo, q->x0)), to = column_of(q, fmin(a->x_hi, q->x1));

    for (int i = from; i <= to; i++)
        q->out[i].coarse = true;
    if (a->count > 0) {
        bool falling = a->max_x < a->min_x;
        query_point(q, a->x_lo, a->first);
        query_point(q, falling ? a->max_x : a->min_x, falling ? a->max : a->min);
        query_point(q, falling ? a->min_x : a->max_x, falling ? a->min : a->max);
        query_point(q, a->x_hi, a->last);
    }
    if (in_range(q, a->x_lo)) {
        q->out[from].sum.nan += a->nan;
        q->out[from].sum.inf += a->inf;
    }
}

static void query_leaf(const struct query *q, const struct leaf *l)
{
    if (!l->raw)
        query_coarse(q, &l->sum);
    for (uint32_t i = 0; i < l->n; i++)
        query_point(q, l->raw[i].x, l->raw[i].y);
}

void series_query(const struct series *s, int branch, double x0, double x1, int cols,
                  struct series_col *out)
{
    const struct query q = {x0, x1, cols, out};
    size_t lo, hi, width;

    if (cols < 1)
        return;
    memset(out, 0, (size_t)cols * sizeof *out);
    if (!(x0 < x1) || !isfinite(x0) || !isfinite(x1) || !branch_leaves(s, branch, &lo, &hi))
        return;
    for (size_t i = lo; i < hi; i += width) {
        for (int level = LEVELS;; level--) {
            const struct series_sum *a = group_at(s, i, hi, &level, &width);
            if (a->x_hi < x0 || a->x_lo > x1)
                break;
            if (in_range(&q, a->x_lo) && in_range(&q, a->x_hi) &&
                column_of(&q, a->x_lo) == column_of(&q, a->x_hi)) {
                sum_merge(&out[column_of(&q, a->x_lo)].sum, a);
                break;
            }
            if (level == 0) {
                query_leaf(&q, &s->leaves[i]);
                break;
            }
        }
    }
}

/* n times the same value y into the smoothed mean. The form mean += (y - mean) * share keeps a
 * constant exact: a sum divided by its weights would not, and the chart would show the rounding as
 * spikes. */
static double smooth_step(struct series *to, double w, double y, double n)
{
    double pow_n = n > 1 ? pow(w, n) : w, left = to->weight_left * pow_n;
    double share = (1 - pow_n) / (1 - left);

    to->mean = to->weight_left >= 1 ? y : to->mean + (y - to->mean) * share;
    if (!isfinite(
            to->mean)) /* values near the end of double's range: their difference is beyond it */
        to->mean = y;
    to->weight_left = left;
    return to->mean;
}

static void smooth_restart(struct series *to)
{
    to->mean = 0;
    to->weight_left = 1;
    if (to->n > 0)
        series_branch(to);
}

static bool is_branch_start(const struct series *s, size_t leaf)
{
    size_t lo = 0, hi = s->branches;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->starts[mid] < leaf)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->branches && s->starts[lo] == leaf;
}

static int smooth_sum(const struct series_sum *a, double w, struct series *to)
{
    if (a->count > 0) {
        double mean = a->total / (double)a->count;
        if (!isfinite(mean))
            mean = a->min / 2 + a->max / 2;
        if (series_append(to, a->x_hi, smooth_step(to, w, mean, (double)a->count)) < 0)
            return -1;
    }
    return 0;
}

int series_smooth(const struct series *from, double w, struct series *to)
{
    while (to->seen_leaf < from->n) {
        const struct leaf *l = &from->leaves[to->seen_leaf];
        bool newest = to->seen_leaf + 1 == from->n;

        if (to->seen_points == 0 && is_branch_start(from, to->seen_leaf))
            smooth_restart(to);
        for (; to->seen_points < l->n; to->seen_points++) {
            struct point p = l->raw[to->seen_points];
            double y = isfinite(p.y) ? smooth_step(to, w, p.y, 1) : p.y;
            if (series_append(to, p.x, y) < 0)
                return -1;
        }
        if (!l->raw && to->seen_points == 0 && smooth_sum(&l->sum, w, to) < 0)
            return -1;
        if (newest && from->open)
            return 0;
        to->seen_leaf++;
        to->seen_points = 0;
    }
    return 0;
}
