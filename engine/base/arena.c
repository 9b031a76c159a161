/* arena.c - memory given back all at once. */
#include "engine/base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

struct arena_block {
    struct arena_block *next;
    size_t size, used;
    _Alignas(16) unsigned char data[];
};

enum { BLOCK = 16384 };

void arena_init(struct arena *a, size_t limit)
{
    *a = (struct arena){.limit = limit};
}

void arena_release(struct arena *a)
{
    while (a->head) {
        struct arena_block *next = a->head->next;
        mem_free(a->head);
        a->head = next;
    }
    a->used = 0;
}

static struct arena_block *block_new(struct arena *a, size_t bytes)
{
    size_t size = bytes > BLOCK ? bytes : BLOCK, whole;
    struct arena_block *b;

    if (__builtin_add_overflow(size, sizeof *b, &whole))
        return NULL;
    b = mem_zalloc(whole);
    if (!b)
        return NULL;
    b->size = size;
    b->next = a->head;
    a->head = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t rounded, used;
    struct arena_block *b = a->head;
    void *p;

    if (__builtin_add_overflow(bytes, (size_t)15, &rounded))
        return NULL;
    rounded &= ~(size_t)15;
    if (__builtin_add_overflow(a->used, rounded, &used) || (a->limit && used > a->limit))
        return NULL;
    if (!b || b->size - b->used < rounded)
        b = block_new(a, rounded);
    if (!b)
        return NULL;
    p = b->data + b->used;
    b->used += rounded;
    a->used = used;
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? NULL : arena_alloc(a, bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = arena_alloc(a, len + 1);

    if (p)
        memcpy(p, s, len);
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    char *p;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (!p)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}
