/* pool.c - workers that sleep on a condition until there is a job.
 *
 * A job is open from pool_run's start until its chunks are handed out. A worker that wakes while it
 * is open joins (active + 1) and takes chunks from the counter; one that wakes too late finds it
 * closed and sleeps again, so the caller waits only for workers that have begun something. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT, RTLD_DEFAULT */
#endif
#include "kernels/cpu/pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define WAKE_NS 10000.0 /* one worker from sleep to its first chunk */
#define STACK_BYTES ((size_t)1 << 20)

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    pthread_t *thread; /* [threads - 1] */
    int threads;

    /* under lock */
    bool open, quit;
    int active;
    uint64_t job; /* number of the newest */
    pool_fn *fn;
    void *arg;
    int64_t chunks;
    unsigned csr;

    _Alignas(64) _Atomic int64_t next; /* chunk */
};

/* Rounding and denormals are as the caller has them, in every thread. */
static unsigned csr_get(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fu; /* not the exceptions that were seen */
#else
    return 0;
#endif
}

static void csr_set(unsigned csr)
{
#if defined(__x86_64__)
    _mm_setcsr(csr);
#else
    (void)csr;
#endif
}

/* A library that brings OpenMP must not start a team inside a worker. */
static void openmp_one_thread(void)
{
    void *sym = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    void (*set)(int);

    if (!sym)
        return;
    memcpy(&set, &sym, sizeof set);
    set(1);
}

static void take_chunks(struct pool *p, pool_fn *fn, void *arg, int64_t chunks)
{
    for (;;) {
        /* relaxed: the lock orders what the job reads and writes against the caller */
        const int64_t c = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (c >= chunks)
            return;
        fn(arg, c);
    }
}

static void *worker(void *arg)
{
    struct pool *p = arg;
    uint64_t seen = 0;

    openmp_one_thread();
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        if (!p->open || p->job == seen) {
            pthread_cond_wait(&p->wake, &p->lock);
            continue;
        }
        seen = p->job;
        p->active++;
        pool_fn *const fn = p->fn;
        void *const job_arg = p->arg;
        const int64_t chunks = p->chunks;
        csr_set(p->csr);
        pthread_mutex_unlock(&p->lock);
        take_chunks(p, fn, job_arg, chunks);
        pthread_mutex_lock(&p->lock);
        if (--p->active == 0)
            pthread_cond_signal(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Starts up to `want` workers; how many there are now. Signals are for the program's own threads.
 */
static int start_workers(struct pool *p, int want)
{
    sigset_t all, old;
    pthread_attr_t attr;
    int n = 0;

    sigfillset(&all);
    if (pthread_attr_init(&attr) != 0)
        return 0;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (n < want && pthread_create(&p->thread[n], &attr, worker, p) == 0)
        n++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return n;
}

struct pool *pool_new(int threads)
{
    struct pool *p =
        aligned_alloc(64, sizeof *p); /* a multiple of 64: it holds an aligned member */
    const int workers = threads > 1 ? threads - 1 : 0;

    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    p->thread = calloc((size_t)workers + 1, sizeof *p->thread);
    if (!p->thread) {
        free(p);
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->idle, NULL);
    p->threads = 1 + start_workers(p, workers);
    return p;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->threads - 1; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->thread);
    free(p);
}

int pool_threads(const struct pool *p)
{
    return p->threads;
}

/* Workers worth waking: each has a chunk, and as much to do as its waking costs. */
static int64_t helpers_for(const struct pool *p, int64_t chunks, double work_ns)
{
    const int64_t most = chunks - 1 < p->threads - 1 ? chunks - 1 : p->threads - 1;
    const double worth = work_ns / WAKE_NS;

    return worth < (double)most ? (int64_t)worth : most;
}

static void wake_workers(struct pool *p, int64_t helpers)
{
    if (helpers >= p->threads - 1) {
        pthread_cond_broadcast(&p->wake);
        return;
    }
    for (int64_t i = 0; i < helpers; i++)
        pthread_cond_signal(&p->wake);
}

void pool_run(struct pool *p, int64_t chunks, double work_ns, pool_fn *fn, void *arg)
{
    if (p->threads == 1 || chunks < 2 || work_ns < 2 * WAKE_NS) {
        for (int64_t c = 0; c < chunks; c++)
            fn(arg, c);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->arg = arg;
    p->chunks = chunks;
    p->csr = csr_get();
    p->job++;
    p->open = true;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    wake_workers(p, helpers_for(p, chunks, work_ns));
    pthread_mutex_unlock(&p->lock);

    take_chunks(p, fn, arg, chunks);

    pthread_mutex_lock(&p->lock);
    p->open = false;
    while (p->active > 0)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* ---- how many CPUs ---- */

/* First line of a file, without its end; false if there is none. */
static bool read_line(const char *path, char *buf, int cap)
{
    FILE *f = fopen(path, "re");
    const bool got = f && fgets(buf, cap, f);

    if (f)
        fclose(f);
    if (got)
        buf[strcspn(buf, "\n")] = 0;
    return got;
}

/* CPUs that quota per period is worth, rounded down but at least 1; `most` where there is none. */
static int quota_cpus(double quota, double period, int most)
{
    const double n = quota > 0 && period > 0 ? quota / period : most;
    return n < 1 ? 1 : n < most ? (int)n : most;
}

static int quota_in(const char *dir, bool v2, int most)
{
    char path[512], line[128];
    double quota = 0, period = 0;

    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2)
            return most; /* "max 100000": no limit */
        return quota_cpus(quota, period, most);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lf", &quota) != 1)
        return most;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lf", &period) != 1)
        return most;
    return quota_cpus(quota, period, most);
}

/* The smallest quota of a group and those around it, up to the mount. */
static int quota_upward(const char *mount, const char *group, bool v2, int most)
{
    char dir[384];
    size_t root = strlen(mount);

    if ((size_t)snprintf(dir, sizeof dir, "%s%s", mount, group) >= sizeof dir)
        return most;
    for (;;) {
        char *slash;
        most = quota_in(dir, v2, most);
        slash = strrchr(dir, '/');
        if (strlen(dir) <= root || !slash || (size_t)(slash - dir) < root)
            return most;
        *slash = 0;
    }
}

/* A line of /proc/self/cgroup: "0::/group" (v2), "4:cpu,cpuacct:/group" (v1). */
static int quota_of_line(char *line, int most)
{
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;

    if (!group)
        return most;
    *group++ = 0;
    names++;
    group[strcspn(group, "\n")] = 0;
    if (*names == 0)
        return quota_upward("/sys/fs/cgroup", group, true, most);
    if (strncmp(names, "cpu", 3) != 0 || (names[3] != 0 && names[3] != ','))
        return most;
    most = quota_upward("/sys/fs/cgroup/cpu", group, false, most);
    return quota_upward("/sys/fs/cgroup/cpu,cpuacct", group, false, most);
}

int pool_cpus(void)
{
    cpu_set_t set;
    char line[384];
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    FILE *f = fopen("/proc/self/cgroup", "re");

    n = n < 1 ? 1 : n;
    while (f && fgets(line, sizeof line, f))
        n = quota_of_line(line, n);
    if (f)
        fclose(f);
    return n;
}
