/* shape.c - shapes. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/graph/op.h"

int64_t shape_count(const struct shape *s)
{
    int64_t n = 1;
    bool empty = false;

    /* the other sizes of an empty tensor are bounded too: strides are products of them */
    for (int d = 0; d < s->rank; d++) {
        if (s->dim[d] < 0)
            return -1;
        empty = empty || s->dim[d] == 0;
        if (s->dim[d] > 0 && (__builtin_mul_overflow(n, s->dim[d], &n) || n > SHAPE_MAX_COUNT))
            return -1;
    }
    return empty ? 0 : n;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d])
            return false;
    return true;
}

char *shape_text(char *buf, size_t cap, const struct shape *s)
{
    size_t n = 0;

    if (cap == 0)
        return buf;
    buf[0] = 0;
    n += (size_t)snprintf(buf, cap, "[");
    for (int d = 0; d < s->rank && n < cap; d++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%" PRId64, d ? ", " : "", s->dim[d]);
    if (n < cap)
        snprintf(buf + n, cap - n, "]");
    return buf;
}

bool shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out)
{
    struct shape r = {.rank = a->rank > b->rank ? a->rank : b->rank};

    for (int d = 0; d < r.rank; d++) {
        int da = d - (r.rank - a->rank), db = d - (r.rank - b->rank);
        int64_t x = da >= 0 ? a->dim[da] : 1, y = db >= 0 ? b->dim[db] : 1;

        if (x != y && x != 1 && y != 1)
            return false;
        r.dim[d] = x == 1 ? y : x;
    }
    *out = r;
    return true;
}
