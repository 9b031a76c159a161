/* onednn.h - matrix products by oneDNN, one-threaded: the only door to the library. Nothing throws
 * through it.
 *
 * dnnl_cache_new -> mm_new (when a plan is made) -> mm_run* -> mm_free -> dnnl_cache_free. */
#ifndef CPU_ONEDNN_H
#define CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dnnl_cache; /* engine and primitives by shape; of one device, one thread at a time */
struct mm; /* one product of a fixed shape, with scratch of its own: run by one thread at a time */

/* c [m][n] = op(a) [m][k] . op(b) [k][n] + bias [n], onto c where `accumulate`. ld: row length
 * in memory, of the matrix as it lies there (of a, m when ta). All dimensions >= 1. */
struct mm_shape {
    int64_t m, n, k, lda, ldb, ldc;
    bool ta, tb, bias, accumulate;
};

struct dnnl_cache *dnnl_cache_new(void);    /* NULL: no memory, or no CPU engine */
void dnnl_cache_free(struct dnnl_cache *c); /* NULL is a no-op; every mm is gone before */

/* Makes the primitive when the cache has none of that shape, and the scratch. 0, or -1 with a line
 * in why. */
int mm_new(struct dnnl_cache *c, const struct mm_shape *s, struct mm **out, char *why, size_t cap);
void mm_free(struct mm *m); /* NULL is a no-op */

/* Any thread; two mm of one shape may run at once. bias is not read where the shape has none. 0, or
 * -1: c is then undefined. */
int mm_run(struct mm *m, const float *a, const float *b, const float *bias, float *c);

/* "2.6.3" in buf, which is returned. */
const char *cpu_dnnl_version(char *buf, size_t cap);

#ifdef __cplusplus
}
#endif

#endif
