/* alloc.h - the only road to malloc, so that a test can make the n-th allocation fail.
 *
 * Every size is checked for overflow before it is used. NULL means out of memory; the caller turns
 * it into ERR_NOMEM. mem_free(NULL) is a no-op. Thread safe. */
#ifndef ALLOC_H
#define ALLOC_H

#include <stddef.h>

void *mem_alloc(size_t bytes);            /* not zeroed */
void *mem_zalloc(size_t bytes);           /* zeroed */
void *mem_array(size_t n, size_t size);   /* zeroed; NULL if n * size overflows */
void *mem_realloc(void *p, size_t bytes); /* p stays valid when NULL comes back */
void *mem_aligned(size_t bytes);          /* 64-byte aligned, not zeroed; free with mem_free */
void mem_free(void *p);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);

/* Make room for one more item in a growing array: *items has *cap slots of `size` bytes, n of them
 * in use. Doubles. 0, or -1 if out of memory (and then nothing has changed). */
int mem_grow(void **items, size_t *cap, size_t n, size_t size);

/* Tests only: the n-th allocation from now (1 = the next) fails, once; 0 switches it off. */
void mem_fail_nth(long n);

/* Allocations asked for so far, by all threads: a test takes the difference over steps that must
 * make none. */
long mem_count(void);

#endif
