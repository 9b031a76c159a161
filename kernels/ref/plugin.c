/* plugin.c - the reference backend's table: one device, memory of double width, a queue that starts
 * nothing until someone waits.
 *
 * States of the queue: entries done .. enqueued-1 are recorded and have not begun. Everything that
 * a caller names in them but host pointers and memory handles is copied when it is enqueued.
 * Running happens only in queue_drain: from event_wait, from event_done when a caller polls, before
 * something queued is freed, and when the queue is full.
 *
 * A failure of queued work is sticky, as a GPU's is: the work after it is dropped (it would read
 * what was never written), and every wait for an event recorded after it returns the error. */
#include "kernels/ref/ref.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REF_EXPORT __attribute__((visibility("default")))

enum {
    QUEUE_CAP = 4096,
    POLLS_IN_VAIN = 2 /* event_done says "not yet" so often before it does the work itself */
};

enum entry_kind { ENTRY_IN, ENTRY_OUT, ENTRY_ZERO, ENTRY_RUN };

struct entry {
    enum entry_kind kind;
    struct kern_mem *mem;  /* IN, OUT, ZERO */
    int64_t offset, count; /* dense bytes; elements (ZERO: bytes) */
    enum dtype dtype;
    const void *src;
    void *dst;
    struct kern_plan *plan; /* RUN */
    struct kern_bind bind;
    struct kern_hyper *hyper; /* owned */
};

struct kern_dev {
    struct entry *queue; /* entry number n is queue[n % QUEUE_CAP] */
    uint64_t enqueued, done;
    bool failed;
    uint64_t failed_at; /* number of the entry that failed */
    struct kern_err failure;
};

struct kern_event {
    struct kern_dev *dev;
    uint64_t seq; /* done when the device's count is */
    int polls;
};

enum kern_status ref_err(struct kern_err *e, enum kern_status status, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return status;
    e->status = status;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    return status;
}

/* ---- copies between cells and dense host memory ---- */

static void copy_in_now(const struct entry *q)
{
    unsigned char *cell = q->mem->cells + 2 * q->offset;
    const unsigned char *src = q->src;
    const size_t size = (size_t)dtype_size(q->dtype);

    for (int64_t i = 0; i < q->count; i++, cell += 2 * size, src += size) {
        float f;
        int32_t n;
        if (q->dtype == DT_F32) {
            memcpy(&f, src, sizeof f);
            *(double *)(void *)cell = (double)f;
        } else if (q->dtype == DT_I32) {
            memcpy(&n, src, sizeof n);
            *(int64_t *)(void *)cell = n;
        } else {
            memcpy(cell, src, size);
        }
    }
}

static void copy_out_now(const struct entry *q)
{
    const unsigned char *cell = q->mem->cells + 2 * q->offset;
    unsigned char *dst = q->dst;
    const size_t size = (size_t)dtype_size(q->dtype);

    for (int64_t i = 0; i < q->count; i++, cell += 2 * size, dst += size) {
        float f;
        int32_t n;
        if (q->dtype == DT_F32) {
            f = (float)*(const double *)(const void *)cell;
            memcpy(dst, &f, sizeof f);
        } else if (q->dtype == DT_I32) {
            n = (int32_t)ref_wrap(*(const int64_t *)(const void *)cell);
            memcpy(dst, &n, sizeof n);
        } else {
            memcpy(dst, cell, size);
        }
    }
}

/* ---- the queue ---- */

static enum kern_status entry_execute(struct entry *q, struct kern_err *e)
{
    switch (q->kind) {
    case ENTRY_IN:
        copy_in_now(q);
        break;
    case ENTRY_OUT:
        copy_out_now(q);
        break;
    case ENTRY_ZERO:
        memset(q->mem->cells + 2 * q->offset, 0, 2 * (size_t)q->count);
        break;
    case ENTRY_RUN:
        return ref_plan_execute(q->plan, &q->bind, q->hyper, e);
    }
    return KERN_OK;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Runs entries up to number `until`; false if timeout_ms (< 0: none) passed before. At least one
 * entry runs a call, so that repeated short waits make progress. */
static bool queue_drain(struct kern_dev *d, uint64_t until, int timeout_ms)
{
    const int64_t begun = now_ms();

    while (d->done < until) {
        struct entry *q = &d->queue[d->done % QUEUE_CAP];
        if (!d->failed && entry_execute(q, &d->failure) != KERN_OK) {
            d->failed = true;
            d->failed_at = d->done;
        }
        free(q->hyper);
        q->hyper = NULL;
        d->done++;
        if (timeout_ms >= 0 && d->done < until && now_ms() - begun >= timeout_ms)
            return false;
    }
    return true;
}

static void queue_add(struct kern_dev *d, const struct entry *q)
{
    if (d->enqueued - d->done == QUEUE_CAP)
        queue_drain(d, d->enqueued, -1);
    d->queue[d->enqueued++ % QUEUE_CAP] = *q;
}

static bool entry_uses(const struct entry *q, const struct kern_mem *m, const struct kern_plan *p)
{
    if (q->kind != ENTRY_RUN)
        return m && q->mem == m;
    if (p && q->plan == p)
        return true;
    for (int s = 0; m && s < KERN_SPACES; s++)
        if (q->bind.mem[s] == m)
            return true;
    return false;
}

/* What is still queued may name m or p, which are about to go. */
static void queue_let_go(struct kern_dev *d, const struct kern_mem *m, const struct kern_plan *p)
{
    for (uint64_t n = d->done; n < d->enqueued; n++) {
        if (entry_uses(&d->queue[n % QUEUE_CAP], m, p)) {
            queue_drain(d, d->enqueued, -1);
            return;
        }
    }
}

/* ---- device ---- */

static int ref_enumerate(struct kern_devinfo *out, int cap)
{
    if (cap > 0) {
        memset(out, 0, sizeof *out);
        snprintf(out->name, sizeof out->name, "reference, f64");
        snprintf(out->uuid, sizeof out->uuid, "ref-0");
        out->usable = true;
    }
    return 1;
}

/* Options are not needed: there is one thread, and memory is always poisoned. */
static enum kern_status ref_open(int ordinal, const struct kern_devopts *o, struct kern_dev **out,
                                 struct kern_err *e)
{
    struct kern_dev *d;

    (void)o;
    *out = NULL;
    if (ordinal != 0)
        return ref_err(e, KERN_EINVAL, "ref: there is one device, 0, not %d", ordinal);
    d = calloc(1, sizeof *d);
    if (d)
        d->queue = calloc(QUEUE_CAP, sizeof *d->queue);
    if (!d || !d->queue) {
        free(d);
        return ref_err(e, KERN_ENOMEM, "ref: no memory for a queue");
    }
    *out = d;
    return KERN_OK;
}

static void ref_close(struct kern_dev *d)
{
    if (!d)
        return;
    for (uint64_t n = d->done; n < d->enqueued; n++)
        free(d->queue[n % QUEUE_CAP].hyper);
    free(d->queue);
    free(d);
}

static void ref_describe(struct kern_dev *d, char *buf, size_t cap)
{
    (void)d;
    snprintf(buf, cap,
             "ref: plain loops in f64, one thread, no memory reused, deferred until waited for");
}

static bool ref_supports(struct kern_dev *d, const struct kern_program *p, const struct kern_op *op,
                         char *why, size_t cap)
{
    struct kern_err e;

    (void)d;
    if (ref_check_op(p, op, &e) == KERN_OK)
        return true;
    if (why && cap)
        snprintf(why, cap, "%s", e.msg);
    return false;
}

/* ---- memory ---- */

static enum kern_status ref_mem_new(struct kern_dev *d, enum kern_memkind kind, int64_t bytes,
                                    struct kern_mem **out, struct kern_err *e)
{
    struct kern_mem *m = NULL;
    size_t size;

    (void)kind; /* both kinds are ordinary memory here */
    *out = NULL;
    if (bytes < 0 || bytes > INT64_MAX / 2 - KERN_ALIGN)
        return ref_err(e, KERN_EINVAL, "ref: %lld bytes of memory asked for", (long long)bytes);
    size = (2 * (size_t)bytes / KERN_ALIGN + 1) * KERN_ALIGN;
    m = calloc(1, sizeof *m);
    if (m)
        m->cells = aligned_alloc(KERN_ALIGN, size);
    if (!m || !m->cells) {
        free(m);
        return ref_err(e, KERN_ENOMEM, "ref: no memory for %lld bytes (held as twice as many)",
                       (long long)bytes);
    }
    memset(m->cells, 0xff, size); /* NaN, -1, 255 */
    m->dev = d;
    m->bytes = bytes;
    *out = m;
    return KERN_OK;
}

static void ref_mem_free(struct kern_mem *m)
{
    if (!m)
        return;
    queue_let_go(m->dev, m, NULL);
    free(m->cells);
    free(m);
}

static enum kern_status check_copy(const struct kern_mem *m, int64_t offset, enum dtype t,
                                   int64_t count, const void *host, struct kern_err *e)
{
    int64_t bytes, end;

    if (t != DT_F32 && t != DT_F64 && t != DT_I32 && t != DT_U8 && t != DT_BOOL)
        return ref_err(e, KERN_EUNSUPPORTED, "ref: copies of %s are not supported", dtype_name(t));
    if (!m || (!host && count > 0))
        return ref_err(e, KERN_EINVAL, "ref: a copy without memory");
    if (offset < 0 || count < 0 || offset % dtype_size(t) != 0 ||
        __builtin_mul_overflow(count, dtype_size(t), &bytes) ||
        __builtin_add_overflow(offset, bytes, &end) || end > m->bytes)
        return ref_err(e, KERN_EINVAL, "ref: a copy of %lld %s at byte %lld of %lld",
                       (long long)count, dtype_name(t), (long long)offset, (long long)m->bytes);
    return KERN_OK;
}

static enum kern_status ref_copy_in(struct kern_mem *dst, int64_t offset, enum dtype t,
                                    int64_t count, const void *src, struct kern_err *e)
{
    enum kern_status rc = check_copy(dst, offset, t, count, src, e);
    struct entry q = {
        .kind = ENTRY_IN, .mem = dst, .offset = offset, .count = count, .dtype = t, .src = src};

    if (rc == KERN_OK)
        queue_add(dst->dev, &q);
    return rc;
}

static enum kern_status ref_copy_out(struct kern_mem *src, int64_t offset, enum dtype t,
                                     int64_t count, void *dst, struct kern_err *e)
{
    enum kern_status rc = check_copy(src, offset, t, count, dst, e);
    struct entry q = {
        .kind = ENTRY_OUT, .mem = src, .offset = offset, .count = count, .dtype = t, .dst = dst};

    if (rc == KERN_OK)
        queue_add(src->dev, &q);
    return rc;
}

static enum kern_status ref_fill_zero(struct kern_mem *dst, int64_t offset, int64_t bytes,
                                      struct kern_err *e)
{
    struct entry q = {.kind = ENTRY_ZERO, .mem = dst, .offset = offset, .count = bytes};

    if (!dst || offset < 0 || bytes < 0 || offset > dst->bytes || bytes > dst->bytes - offset)
        return ref_err(e, KERN_EINVAL, "ref: zeros for %lld bytes at byte %lld of %lld",
                       (long long)bytes, (long long)offset, dst ? (long long)dst->bytes : 0);
    queue_add(dst->dev, &q);
    return KERN_OK;
}

/* ---- plans ---- */

/* Only the slots in use: a run that would read another is refused (plan.c). */
static struct kern_hyper *hyper_copy(const struct kern_hyper *h)
{
    struct kern_hyper *c = malloc(sizeof *c);

    if (c)
        memcpy(c, h, offsetof(struct kern_hyper, value) + (size_t)h->n * sizeof h->value[0]);
    return c;
}

static enum kern_status ref_plan_run(struct kern_plan *p, const struct kern_bind *b,
                                     const struct kern_hyper *h, struct kern_err *e)
{
    struct entry q = {.kind = ENTRY_RUN, .plan = p};
    enum kern_status rc;

    if (!p || !b || !h || h->n < 0 || h->n > KERN_HYPER_MAX)
        return ref_err(e, KERN_EINVAL, "ref: a run needs a plan, a binding and hyperparameters");
    rc = ref_plan_check_bind(p, b, e);
    if (rc != KERN_OK)
        return rc;
    q.bind = *b;
    q.hyper = hyper_copy(h);
    if (!q.hyper)
        return ref_err(e, KERN_ENOMEM, "ref: no memory for a run's hyperparameters");
    queue_add(p->dev, &q);
    return KERN_OK;
}

static void ref_plan_free(struct kern_plan *p)
{
    if (!p)
        return;
    queue_let_go(p->dev, NULL, p);
    ref_plan_release(p);
}

/* ---- events ---- */

static enum kern_status ref_event_new(struct kern_dev *d, struct kern_event **out,
                                      struct kern_err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return ref_err(e, KERN_ENOMEM, "ref: no memory for an event");
    (*out)->dev = d;
    return KERN_OK;
}

static enum kern_status ref_event_record(struct kern_event *ev, struct kern_err *e)
{
    (void)e;
    ev->seq = ev->dev->enqueued;
    ev->polls = 0;
    return KERN_OK;
}

static bool ref_event_done(struct kern_event *ev)
{
    if (ev->dev->done < ev->seq && ev->polls++ >= POLLS_IN_VAIN)
        queue_drain(ev->dev, ev->seq, -1);
    return ev->dev->done >= ev->seq;
}

static enum kern_status ref_event_wait(struct kern_event *ev, int timeout_ms, struct kern_err *e)
{
    const struct kern_dev *d = ev->dev;

    if (!queue_drain(ev->dev, ev->seq, timeout_ms))
        return ref_err(e, KERN_ETIMEDOUT, "ref: not done after %d ms", timeout_ms);
    if (d->failed && d->failed_at < ev->seq)
        return ref_err(e, d->failure.status, "%s", d->failure.msg);
    return KERN_OK;
}

static void ref_event_free(struct kern_event *ev)
{
    free(ev);
}

static const struct kern_backend ref_backend = {
    .abi = KERN_ABI,
    .size = sizeof(struct kern_backend),
    .name = "ref",
    .enumerate = ref_enumerate,
    .open = ref_open,
    .close = ref_close,
    .describe = ref_describe,
    .supports = ref_supports,
    .mem_new = ref_mem_new,
    .mem_free = ref_mem_free,
    .copy_in = ref_copy_in,
    .copy_out = ref_copy_out,
    .fill_zero = ref_fill_zero,
    .plan_new = ref_plan_new,
    .plan_run = ref_plan_run,
    .plan_profile = NULL, /* its times would tell nothing */
    .plan_free = ref_plan_free,
    .event_new = ref_event_new,
    .event_record = ref_event_record,
    .event_done = ref_event_done,
    .event_wait = ref_event_wait,
    .event_free = ref_event_free,
};

REF_EXPORT const struct kern_backend *cupola_backend(uint32_t abi)
{
    return abi == KERN_ABI ? &ref_backend : NULL;
}
