/* normal.c - statistics of the training set, missing cells, normalisation.
 *
 * Everything is computed in f64 over the training samples alone, in the file's order, so that the
 * same file gives the same bits. */
#include "engine/data/set.h"

#include <math.h>

#include "engine/base/alloc.h"

/* One number a feature, of stored values (value - origin). */
struct stats {
    double *sum, *square, *count; /* owned, one block: sum */
    float *min, *max;             /* owned, one block: min */
};

static bool stats_init(struct stats *t, int n)
{
    t->sum = mem_array((size_t)n, 3 * sizeof *t->sum);
    t->min = mem_array((size_t)n, 2 * sizeof *t->min);
    if (!t->sum || !t->min)
        return false;
    t->square = t->sum + n;
    t->count = t->square + n;
    t->max = t->min + n;
    return true;
}

static void stats_release(struct stats *t)
{
    mem_free(t->sum);
    mem_free(t->min);
}

/* What a missing cell gets: of the values that are there. */
static enum err_code choose_fill(const struct data_set *s, struct stats *t, struct err *e)
{
    struct schema *m = s->schema;
    int n = m->n_features;

    for (int64_t i = 0; i < s->n; i++)
        for (int k = 0; k < n; k++) {
            float v = s->x[i * n + k];
            bool there = !isnan(v);
            t->sum[k] += there ? (double)v : 0;
            t->count[k] += there;
        }
    for (int k = 0; k < n; k++) {
        struct feature *f = &m->feature[k];
        if (m->missing == MISSING_MEAN && t->count[k] == 0)
            return err_set(e, ERR_DATA,
                           "%s: column '%s' has no value in the training set to take a mean of",
                           s->file, f->name);
        f->fill = m->missing == MISSING_MEAN ? f->origin + t->sum[k] / t->count[k] : 0;
        t->sum[k] = t->count[k] = 0;
    }
    return ERR_OK;
}

static void fill_missing(struct data_set *s)
{
    int n = s->schema->n_features;

    if (s->n_missing == 0)
        return;
    for (int64_t i = 0; i < s->n; i++)
        for (int k = 0; k < n; k++)
            if (isnan(s->x[i * n + k]))
                s->x[i * n + k] =
                    (float)(s->schema->feature[k].fill - s->schema->feature[k].origin);
}

static void measure(const struct data_set *s, struct stats *t)
{
    double *restrict sum = t->sum, *restrict square = t->square;
    float *restrict min = t->min, *restrict max = t->max;
    int n = s->schema->n_features;

    for (int k = 0; k < n; k++)
        min[k] = max[k] = s->x[k];
    for (int64_t i = 0; i < s->n; i++) {
        const float *restrict x = s->x + i * n;
        for (int k = 0; k < n; k++) {
            sum[k] += (double)x[k];
            min[k] = x[k] < min[k] ? x[k] : min[k];
            max[k] = x[k] > max[k] ? x[k] : max[k];
        }
    }
    for (int k = 0; k < n; k++)
        sum[k] /= (double)s->n; /* the mean from here on */
    for (int64_t i = 0; i < s->n; i++) {
        const float *restrict x = s->x + i * n;
        for (int k = 0; k < n; k++)
            square[k] += ((double)x[k] - sum[k]) * ((double)x[k] - sum[k]);
    }
}

static void conclude(struct schema *m, const struct stats *t, int64_t n)
{
    for (int k = 0; k < m->n_features; k++) {
        struct feature *f = &m->feature[k];
        double scale = 1;

        f->mean = f->origin + t->sum[k];
        f->deviation = sqrt(t->square[k] / (double)n);
        f->min = f->origin + (double)t->min[k];
        f->max = f->origin + (double)t->max[k];
        if (m->normalize == NORMALIZE_STANDARD)
            scale = f->deviation;
        else if (m->normalize == NORMALIZE_MINMAX)
            scale = (double)t->max[k] - (double)t->min[k];
        f->scale = scale > 0 ? scale : 1; /* a constant column becomes zeros, not 0/0 */
        f->offset = m->normalize == NORMALIZE_STANDARD ? f->mean
                    : m->normalize == NORMALIZE_MINMAX ? f->min
                                                       : 0;
    }
}

/* shift is the offset counted from the origin. */
static void apply(struct data_set *s, const double *restrict shift, const double *restrict scale)
{
    int n = s->schema->n_features;

    for (int64_t i = 0; i < s->n; i++) {
        float *restrict x = s->x + i * n;
        for (int k = 0; k < n; k++)
            x[k] = (float)(((double)x[k] - shift[k]) / scale[k]);
    }
}

enum err_code sets_normalize(struct data_set *train, struct data_set *valid, struct err *e)
{
    struct schema *m = train->schema;
    struct stats t = {0};
    double *shift, *scale;
    enum err_code rc = ERR_OK;

    if (!stats_init(&t, m->n_features))
        rc = err_set(e, ERR_NOMEM, "%s: out of memory for %d columns", train->file, m->n_features);
    else if (train->n_missing > 0 || (valid && valid->n_missing > 0))
        rc = choose_fill(train, &t, e);
    if (rc != ERR_OK)
        goto out;
    fill_missing(train);
    if (valid)
        fill_missing(valid);
    measure(train, &t);
    conclude(m, &t, train->n);
    if (m->normalize == NORMALIZE_NONE)
        goto out;
    shift = t.square; /* both have served */
    scale = t.count;
    for (int k = 0; k < m->n_features; k++) {
        shift[k] = m->normalize == NORMALIZE_MINMAX ? (double)t.min[k] : t.sum[k];
        scale[k] = m->feature[k].scale;
    }
    apply(train, shift, scale);
    if (valid)
        apply(valid, shift, scale);
out:
    stats_release(&t);
    return rc;
}
