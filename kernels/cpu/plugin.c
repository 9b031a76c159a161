/* plugin.c - the CPU backend's table: one device, ordinary memory, everything done when a call
 * returns. */
#include <stdio.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/plan.h"

#define CPU_EXPORT __attribute__((visibility("default")))

enum { MEM_ALIGN = 64, THREADS_MAX = 1024 };

struct kern_event {
    struct kern_dev *dev;
};

/* ---- device ---- */

static enum cpu_isa isa_detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("fma"))
        return CPU_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return CPU_AVX2;
#endif
    return CPU_BASE;
}

static const char *isa_name(enum cpu_isa isa)
{
    static const char *const names[] = {
        [CPU_BASE] = "baseline", [CPU_AVX2] = "avx2", [CPU_AVX512] = "avx512"};
    return names[isa];
}

/* "model name" of /proc/cpuinfo, or "CPU". */
static void model_name(char *buf, size_t cap)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(buf, cap, "CPU");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(buf, cap, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (f)
        fclose(f);
}

/* sysconf's number of pages in bytes; 0: unknown. */
static uint64_t pages_bytes(int name)
{
    const long pages = sysconf(name), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static int cpu_enumerate(struct kern_devinfo *out, int cap)
{
    if (cap > 0 && out) {
        memset(out, 0, sizeof *out);
        model_name(out->name, sizeof out->name);
        snprintf(out->uuid, sizeof out->uuid, "cpu-0");
        out->mem_total = pages_bytes(_SC_PHYS_PAGES);
        out->mem_free = pages_bytes(_SC_AVPHYS_PAGES);
        out->usable = true;
    }
    return 1;
}

static void cpu_close(struct kern_dev *d)
{
    if (!d)
        return;
    dnnl_cache_free(d->dnnl);
    pool_free(d->pool);
    free(d);
}

static enum kern_status cpu_open(int ordinal, const struct kern_devopts *o, struct kern_dev **out,
                                 struct kern_err *e)
{
    int threads = o && o->threads != 0 ? o->threads : pool_cpus();
    struct kern_dev *d;

    *out = NULL;
    if (ordinal != 0)
        return cpu_err(e, KERN_EINVAL, "cpu: there is one device, 0, not %d", ordinal);
    if (threads < 0 || threads > THREADS_MAX)
        return cpu_err(e, KERN_EINVAL, "cpu: %d threads; 1 to %d, or 0 to choose", threads,
                       THREADS_MAX);
    d = calloc(1, sizeof *d);
    if (d)
        d->pool = pool_new(threads);
    if (d)
        d->dnnl = dnnl_cache_new();
    if (!d || !d->pool || !d->dnnl) {
        cpu_close(d);
        return cpu_err(e, KERN_ENOMEM, "cpu: no memory for a device");
    }
    d->threads = pool_threads(d->pool);
    d->isa = isa_detect();
    d->poison = o && o->poison;
    *out = d;
    return KERN_OK;
}

static void cpu_describe(struct kern_dev *d, char *buf, size_t cap)
{
    char model[128], dnnl[64];

    model_name(model, sizeof model);
    snprintf(buf, cap, "%s, %s, %d thread%s, oneDNN %s", model, isa_name(d->isa), d->threads,
             d->threads == 1 ? "" : "s", cpu_dnnl_version(dnnl, sizeof dnnl));
}

/* Why a buffer is not for this device; false with *why filled. f64 is for the optimizer's state of
 * four alone. */
static bool buf_fits(const struct kern_program *p, const struct kern_op *op, int32_t buf, char *why,
                     size_t cap)
{
    enum dtype t;

    if (buf < 0 || buf >= p->n_bufs)
        return true; /* none, or nonsense that plan_new refuses */
    t = p->bufs[buf].dtype;
    if (t == DT_F32 || t == DT_I32 || t == DT_U8 || t == DT_BOOL ||
        (t == DT_F64 && op->code == KERN_PROLOGUE))
        return true;
    if (why && cap)
        snprintf(why, cap, "the cpu backend computes in f32, i32, u8 and bool, not in %s",
                 dtype_name(t));
    return false;
}

static bool cpu_supports(struct kern_dev *d, const struct kern_program *p, const struct kern_op *op,
                         char *why, size_t cap)
{
    (void)d;
    if ((unsigned)op->code >= KERN_CODES) {
        if (why && cap)
            snprintf(why, cap, "the cpu backend has no operation %d", (int)op->code);
        return false;
    }
    if (op->code == KERN_FUSED) {
        for (int v = 0; v < op->u.fused.n_views; v++)
            if (!buf_fits(p, op, op->u.fused.views[v].buf, why, cap))
                return false;
        return true;
    }
    for (int k = 0; k < KERN_IN; k++)
        if (!buf_fits(p, op, op->in[k], why, cap))
            return false;
    for (int k = 0; k < KERN_OUT; k++)
        if (!buf_fits(p, op, op->out[k], why, cap))
            return false;
    return true;
}

/* ---- memory ---- */

static enum kern_status cpu_mem_new(struct kern_dev *d, enum kern_memkind kind, int64_t bytes,
                                    struct kern_mem **out, struct kern_err *e)
{
    const uint64_t total = pages_bytes(_SC_PHYS_PAGES);
    struct kern_mem *m;
    size_t size;

    (void)kind; /* both kinds are ordinary memory here */
    *out = NULL;
    if (bytes < 0 || bytes > INT64_MAX / 2)
        return cpu_err(e, KERN_EINVAL, "cpu: %lld bytes of memory asked for", (long long)bytes);
    if (total > 0 && (uint64_t)bytes > total) /* its pages are touched below: no hope */
        return cpu_err(e, KERN_ENOMEM, "cpu: %lld bytes asked for, this machine has %llu",
                       (long long)bytes, (unsigned long long)total);
    size = ((size_t)bytes / MEM_ALIGN + 1) * MEM_ALIGN;
    m = calloc(1, sizeof *m);
    if (m)
        m->at = aligned_alloc(MEM_ALIGN, size);
    if (!m || !m->at) {
        free(m);
        return cpu_err(e, KERN_ENOMEM, "cpu: no memory for %lld bytes", (long long)bytes);
    }
    /* Touches every page: what is short of memory fails here, not in the middle of training. */
    memset(m->at, d->poison ? 0xff : 0, size);
    m->dev = d;
    m->bytes = bytes;
    *out = m;
    return KERN_OK;
}

static void cpu_mem_free(struct kern_mem *m)
{
    if (!m)
        return;
    free(m->at);
    free(m);
}

/* Is [offset, offset + count elements) in m? */
static enum kern_status check_copy(const struct kern_mem *m, int64_t offset, enum dtype t,
                                   int64_t count, const void *host, struct kern_err *e)
{
    int64_t bytes, end;

    if (t != DT_F32 && t != DT_F64 && t != DT_I32 && t != DT_U8 && t != DT_BOOL)
        return cpu_err(e, KERN_EUNSUPPORTED, "cpu: copies of %s are not supported", dtype_name(t));
    if (!m || (!host && count > 0))
        return cpu_err(e, KERN_EINVAL, "cpu: a copy without memory");
    if (offset < 0 || count < 0 || offset % dtype_size(t) != 0 ||
        __builtin_mul_overflow(count, dtype_size(t), &bytes) ||
        __builtin_add_overflow(offset, bytes, &end) || end > m->bytes)
        return cpu_err(e, KERN_EINVAL, "cpu: a copy of %lld %s at byte %lld of %lld",
                       (long long)count, dtype_name(t), (long long)offset, (long long)m->bytes);
    return KERN_OK;
}

static enum kern_status cpu_copy_in(struct kern_mem *dst, int64_t offset, enum dtype t,
                                    int64_t count, const void *src, struct kern_err *e)
{
    const enum kern_status rc = check_copy(dst, offset, t, count, src, e);

    if (rc == KERN_OK && count > 0)
        memcpy(dst->at + offset, src, (size_t)count * (size_t)dtype_size(t));
    return rc;
}

static enum kern_status cpu_copy_out(struct kern_mem *src, int64_t offset, enum dtype t,
                                     int64_t count, void *dst, struct kern_err *e)
{
    const enum kern_status rc = check_copy(src, offset, t, count, dst, e);

    if (rc == KERN_OK && count > 0)
        memcpy(dst, src->at + offset, (size_t)count * (size_t)dtype_size(t));
    return rc;
}

static enum kern_status cpu_fill_zero(struct kern_mem *dst, int64_t offset, int64_t bytes,
                                      struct kern_err *e)
{
    if (!dst || offset < 0 || bytes < 0 || offset > dst->bytes || bytes > dst->bytes - offset)
        return cpu_err(e, KERN_EINVAL, "cpu: zeros for %lld bytes at byte %lld of %lld",
                       (long long)bytes, (long long)offset, (long long)(dst ? dst->bytes : 0));
    memset(dst->at + offset, 0, (size_t)bytes);
    return KERN_OK;
}

/* ---- events: all work is done when it is enqueued ---- */

static enum kern_status cpu_event_new(struct kern_dev *d, struct kern_event **out,
                                      struct kern_err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return cpu_err(e, KERN_ENOMEM, "cpu: no memory for an event");
    (*out)->dev = d;
    return KERN_OK;
}

static enum kern_status cpu_event_record(struct kern_event *ev, struct kern_err *e)
{
    (void)ev;
    (void)e;
    return KERN_OK;
}

static bool cpu_event_done(struct kern_event *ev)
{
    (void)ev;
    return true;
}

static enum kern_status cpu_event_wait(struct kern_event *ev, int timeout_ms, struct kern_err *e)
{
    (void)ev;
    (void)timeout_ms;
    (void)e;
    return KERN_OK;
}

static void cpu_event_free(struct kern_event *ev)
{
    free(ev);
}

static const struct kern_backend cpu_backend = {
    .abi = KERN_ABI,
    .size = sizeof(struct kern_backend),
    .name = "cpu",
    .enumerate = cpu_enumerate,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .supports = cpu_supports,
    .mem_new = cpu_mem_new,
    .mem_free = cpu_mem_free,
    .copy_in = cpu_copy_in,
    .copy_out = cpu_copy_out,
    .fill_zero = cpu_fill_zero,
    .plan_new = cpu_plan_new,
    .plan_run = cpu_plan_run,
    .plan_profile = cpu_plan_profile,
    .plan_free = cpu_plan_free,
    .event_new = cpu_event_new,
    .event_record = cpu_event_record,
    .event_done = cpu_event_done,
    .event_wait = cpu_event_wait,
    .event_free = cpu_event_free,
};

CPU_EXPORT const struct kern_backend *cupola_backend(uint32_t abi)
{
    return abi == KERN_ABI ? &cpu_backend : NULL;
}
