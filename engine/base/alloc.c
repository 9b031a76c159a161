/* alloc.c - malloc with a hook for tests. */
#include "engine/base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_long countdown; /* tests: 0 off, 1: the next one fails */

static atomic_long asked;

long mem_count(void)
{
    return atomic_load(&asked);
}

static bool fails(void)
{
    long n = atomic_load_explicit(&countdown, memory_order_relaxed);

    atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
    while (n > 0)
        if (atomic_compare_exchange_weak(&countdown, &n, n - 1))
            return n == 1;
    return false;
}

void mem_fail_nth(long n)
{
    atomic_store(&countdown, n);
}

void *mem_alloc(size_t bytes)
{
    return fails() ? NULL : malloc(bytes ? bytes : 1);
}

void *mem_zalloc(size_t bytes)
{
    return fails() ? NULL : calloc(1, bytes ? bytes : 1);
}

void *mem_array(size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX)
        return NULL;
    return mem_zalloc(bytes);
}

void *mem_realloc(void *p, size_t bytes)
{
    return fails() ? NULL : realloc(p, bytes ? bytes : 1);
}

void *mem_aligned(size_t bytes)
{
    size_t rounded;

    if (__builtin_add_overflow(bytes, (size_t)64, &rounded) || fails())
        return NULL;
    return aligned_alloc(64, rounded & ~(size_t)63);
}

void mem_free(void *p)
{
    free(p);
}

char *mem_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = mem_alloc(len + 1);

    if (p) {
        memcpy(p, s, len);
        p[len] = 0;
    }
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

int mem_grow(void **items, size_t *cap, size_t n, size_t size)
{
    size_t want, bytes;
    void *p;

    if (n < *cap)
        return 0;
    want = *cap ? *cap : 8;
    while (want <= n)
        if (__builtin_mul_overflow(want, (size_t)2, &want))
            return -1;
    if (__builtin_mul_overflow(want, size, &bytes) || bytes > PTRDIFF_MAX)
        return -1;
    p = mem_realloc(*items, bytes);
    if (!p)
        return -1;
    *items = p;
    *cap = want;
    return 0;
}
