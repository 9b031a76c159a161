/* The pool runs every chunk once, from any number of threads, and leaves the caller's settings
 * alone. pool.c is in the CPU plugin, which exports none of it: so the source itself is compiled in
 * here. */
#include "kernels/cpu/pool.c"

#include <math.h>
#include <unistd.h>

#include "tests/tap.h"

enum { CHUNKS = 1000 };

struct count {
    _Atomic int seen[CHUNKS];
    double sum[CHUNKS];
};

static void count_chunk(void *arg, int64_t chunk)
{
    struct count *c = arg;

    atomic_fetch_add(&c->seen[chunk], 1);
    for (int i = 0; i < 100; i++)
        c->sum[chunk] += (double)(chunk * i);
}

static bool all_once(const struct count *c, int64_t chunks, int times)
{
    for (int64_t i = 0; i < CHUNKS; i++)
        if (c->seen[i] != (i < chunks ? times : 0))
            return false;
    return true;
}

/* Plain memory that the caller writes before and reads after a job: a thread sanitizer watches the
 * order. */
static bool try_jobs(int threads, int64_t chunks, double work_ns, int jobs)
{
    static struct count c;
    struct pool *p = pool_new(threads);
    bool good = p && pool_threads(p) >= 1 && pool_threads(p) <= threads;

    memset(&c, 0, sizeof c);
    for (int k = 0; good && k < jobs; k++) {
        c.sum[0] = k;
        pool_run(p, chunks, work_ns, count_chunk, &c);
        good = chunks == 0 || c.sum[0] == k;
    }
    pool_free(p);
    return good && all_once(&c, chunks, jobs);
}

struct where {
    pthread_t caller;
    _Atomic int elsewhere, signals_open, odd_csr;
    unsigned csr;
};

static void look_around(void *arg, int64_t chunk)
{
    struct where *w = arg;
    sigset_t set;

    (void)chunk;
    if (pthread_equal(pthread_self(), w->caller))
        return;
    atomic_fetch_add(&w->elsewhere, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    if (!sigismember(&set, SIGINT) || !sigismember(&set, SIGTERM))
        atomic_fetch_add(&w->signals_open, 1);
    if (csr_get() != w->csr)
        atomic_fetch_add(&w->odd_csr, 1);
}

/* The caller lingers in its chunk until a worker has had one: so a worker is seen, without a sleep.
 */
static void wait_for_worker(void *arg, int64_t chunk)
{
    struct where *w = arg;

    look_around(arg, chunk);
    if (pthread_equal(pthread_self(), w->caller))
        while (atomic_load(&w->elsewhere) == 0)
            sched_yield();
}

static void test_workers(void)
{
    struct pool *p = pool_new(4);
    struct where w = {.caller = pthread_self(), .csr = csr_get() ^ 0x8000u};

    if (!ok(p && pool_threads(p) == 4, "a pool of 4"))
        return;
#if defined(__x86_64__)
    csr_set(w.csr); /* flush to zero: another setting than workers begin with */
#else
    w.csr = csr_get();
#endif
    pool_run(p, 64, 1e9, wait_for_worker, &w);
#if defined(__x86_64__)
    csr_set(w.csr ^ 0x8000u);
#endif
    ok(w.elsewhere > 0, "a job that is large enough runs on other threads too");
    ok(w.signals_open == 0, "where all signals are blocked");
    ok(w.odd_csr == 0, "and rounding and denormals are as in the caller");
    w.elsewhere = 0;
    pool_run(p, 64, 100, look_around, &w);
    ok(w.elsewhere == 0, "a job of 100 ns stays on the caller's thread");
    ok(helpers_for(p, 64, 1.5 * WAKE_NS) == 1 && helpers_for(p, 64, 2.5 * WAKE_NS) == 2,
       "a small job wakes no more workers than it can feed");
    ok(helpers_for(p, 64, INFINITY) == 3 && helpers_for(p, 2, 1e9) == 1,
       "a large one all of them, where each has a chunk");
    pool_free(p);
    pool_free(NULL);
}

static void test_quota(void)
{
    ok(quota_cpus(150000, 100000, 8) == 1 && quota_cpus(200000, 100000, 8) == 2,
       "a quota counts whole CPUs");
    ok(quota_cpus(50000, 100000, 8) == 1, "but at least one");
    ok(quota_cpus(-1, 100000, 8) == 8 && quota_cpus(1e9, 100000, 8) == 8,
       "no quota, or a large one, leaves the affinity mask's");
    ok(pool_cpus() >= 1 && pool_cpus() <= (int)sysconf(_SC_NPROCESSORS_CONF), "this machine: %d",
       pool_cpus());
}

int main(void)
{
    static const int64_t chunks[] = {0, 1, 2, 3, 7, 1000};
    bool good = true;

    for (int threads = 1; threads <= 7; threads += 2)
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
            good &= try_jobs(threads, chunks[i], 1e9, 3);
    ok(good, "every chunk once: 0 to 1000 chunks, 1 to 7 threads");
    ok(try_jobs(3, 5, 1e9, 5000), "5000 jobs in a row, workers waking late or not");
    ok(try_jobs(3, 5, 0, 100), "jobs too small to share");
    test_workers();
    test_quota();
    return tap_done();
}
