/* onednn.h - matrix products by oneDNN, one-threaded: the only door to the library. Nothing throws
 * through it. */
#ifndef CPU_ONEDNN_H
#define CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dnnl_cache; /* engine and primitives by shape; of one device */
struct mm;         /* one product of a fixed shape, run by one thread at a time */

struct mm_shape {
    int64_t m, n, k, lda, ldb, ldc;
    bool ta, tb, bias, accumulate;
    int act; /* enum kern_act */
};

struct dnnl_cache *dnnl_cache_new(void); /* NULL: no memory */
void dnnl_cache_free(struct dnnl_cache *c);

/* 0, or -1 with a line in why. Makes the primitive when the cache has none of that shape. */
int mm_new(struct dnnl_cache *c, const struct mm_shape *s, struct mm **out, char *why, size_t cap);
void mm_free(struct mm *m); /* NULL is a no-op */
int mm_run(struct mm *m, const float *a, const float *b, const float *bias,
           float *c); /* 0, or -1 */

const char *cpu_dnnl_version(char *buf, size_t cap);

#ifdef __cplusplus
}
#endif

#endif
