/* pool.h - the one thread pool of the CPU backend: sleeping, not spinning.
 *
 * The calling thread takes part. Which thread runs a chunk is left to chance; what a chunk does
 * must not depend on it. One caller at a time. */
#ifndef POOL_H
#define POOL_H

#include <stdint.h>

struct pool;

/* threads >= 1, the caller counted. NULL: no memory; fewer threads than asked for are taken as they
 * come. */
struct pool *pool_new(int threads);
void pool_free(struct pool *p); /* NULL is a no-op */
int pool_threads(const struct pool *p);

typedef void pool_fn(void *arg, int64_t chunk);
/* Runs fn(arg, 0 .. chunks-1), returns when all are done. `work` estimates the whole in nanoseconds
 * on one thread: below a few wake-ups' worth it stays on this thread. */
void pool_run(struct pool *p, int64_t chunks, double work_ns, pool_fn *fn, void *arg);

/* CPUs in the affinity mask, cut by the cgroup's quota (v1 and v2), at least 1. */
int pool_cpus(void);

#endif
