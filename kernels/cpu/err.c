/* err.c - how the CPU backend says no. */
#include "kernels/cpu/cpu.h"

#include <stdarg.h>
#include <stdio.h>

enum kern_status cpu_err(struct kern_err *e, enum kern_status st, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return st;
    e->status = st;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    return st;
}

enum kern_status cpu_want(const struct kern_program *p, const struct kern_op *op, int32_t index,
                          bool optional, enum dtype t, int64_t count, const char *what,
                          struct kern_err *e)
{
    const char *label = op->label ? op->label : "op";
    const struct kern_buf *b;

    if (optional && index == -1)
        return KERN_OK;
    if (index < 0 || index >= p->n_bufs)
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: %s is buffer %d of %d", label, what, index,
                       p->n_bufs);
    b = &p->bufs[index];
    if (b->dtype != t)
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: %s is %s, not %s", label, what,
                       dtype_name(b->dtype), dtype_name(t));
    if (count < 0)
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: the shape of %s is too large or negative",
                       label, what);
    if (b->count < count)
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: %s holds %lld elements, %lld are needed", label,
                       what, (long long)b->count, (long long)count);
    return KERN_OK;
}
