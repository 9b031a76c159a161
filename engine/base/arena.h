/* arena.h - memory that is taken piece by piece and given back all at once (a parsed config, a
 * graph).
 *
 * Not thread safe: one owner. Pieces are 16-byte aligned and zeroed. */
#ifndef ARENA_H
#define ARENA_H

#include <stddef.h>

struct arena {
    struct arena_block *head; /* newest block first, owned */
    size_t used;              /* bytes handed out in all */
    size_t limit;             /* 0: none; else arena_alloc returns NULL beyond it */
};

void arena_init(struct arena *a, size_t limit);
void arena_release(struct arena *a);
void *arena_alloc(struct arena *a, size_t bytes); /* NULL: out of memory or over the limit */
void *arena_array(struct arena *a, size_t n, size_t size); /* NULL also if n * size overflows */
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
__attribute__((format(printf, 2, 3))) char *arena_printf(struct arena *a, const char *fmt, ...);

#endif
