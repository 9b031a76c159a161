/* split.c - a validation set drawn from the training file. */
#include "engine/data/set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/str.h"
#include "kernels/philox.h"

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sample i's draw, with i below it so that no two are equal. A file has less than 2^32 rows. */
static uint64_t split_key(uint64_t seed, int64_t i)
{
    return (uint64_t)philox_word(seed, PHILOX_SPLIT, 0, 0, (uint64_t)i) << 32 | (uint64_t)i;
}

/* The m-th smallest key (m from 1): those up to it are drawn. */
static bool split_threshold(uint64_t seed, int64_t n, int64_t m, uint64_t *out)
{
    uint64_t *key = mem_array((size_t)n, sizeof *key);

    if (!key)
        return false;
    for (int64_t i = 0; i < n; i++)
        key[i] = split_key(seed, i);
    qsort(key, (size_t)n, sizeof *key, compare_keys);
    *out = key[m - 1];
    mem_free(key);
    return true;
}

static void copy_sample(struct data_set *to, int64_t at, const struct data_set *from, int64_t i)
{
    size_t width = (size_t)from->schema->n_features;

    memmove(to->x + (size_t)at * width, from->x + (size_t)i * width, width * sizeof *to->x);
    to->line[at] = from->line[i];
    if (from->y)
        to->y[at] = from->y[i];
}

static struct data_set *set_like(const struct data_set *s, int64_t n)
{
    struct data_set *v = mem_zalloc(sizeof *v);

    if (!v)
        return NULL;
    v->schema = s->schema;
    v->n_missing = s->n_missing; /* some of them may be here: both are looked through */
    v->file = mem_strdup(s->file);
    v->x = mem_array((size_t)n, (size_t)s->schema->n_features * sizeof *v->x);
    v->line = mem_array((size_t)n, sizeof *v->line);
    v->y = s->y ? mem_array((size_t)n, sizeof *v->y) : NULL;
    if (v->file && v->x && v->line && (v->y || !s->y))
        return v;
    data_set_free(v);
    return NULL;
}

enum err_code set_split(struct data_set *s, double share, uint64_t seed, struct data_set **valid,
                        struct err *e)
{
    int64_t m = llround((double)s->n * share), kept = 0;
    struct data_set *v;
    uint64_t threshold;
    char text[32];

    if (m < 1 || m >= s->n)
        return err_set(
            e, ERR_DATA,
            "%s: data.split: %s of %lld rows is %lld, which leaves one of the two sets empty",
            s->file, str_double(text, share), (long long)s->n, (long long)m);
    v = set_like(s, m);
    if (!v || !split_threshold(seed, s->n, m, &threshold)) {
        data_set_free(v);
        return err_set(e, ERR_NOMEM, "%s: out of memory for the split of %lld rows", s->file,
                       (long long)s->n);
    }
    for (int64_t i = 0; i < s->n; i++) {
        if (split_key(seed, i) <= threshold)
            copy_sample(v, v->n++, s, i);
        else
            copy_sample(s, kept++, s, i);
    }
    s->n = kept;
    *valid = v;
    return ERR_OK;
}
