/* fused_check.c - a fused group against its registers and buffers, before anything runs. */
#include "kernels/cpu/fused.h"

#include <stdarg.h>
#include <stdio.h>

struct check {
    const struct kern_program *p;
    const struct kern_op *op;
    const struct kern_fused *f;
    struct kern_err *e;
    enum reg_type reg[KERN_REGS];
};

#define REFUSE(c, status, ...) (refuse(c, status, __VA_ARGS__), false)

__attribute__((format(printf, 3, 4))) static void
refuse(const struct check *c, enum kern_status status, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    cpu_err(c->e, status, "cpu: %.80s: %s", c->op->label ? c->op->label : "fused", text);
}

/* ---- the iteration space and its views ---- */

static bool check_space(const struct check *c, int64_t *count)
{
    *count = 1;
    if (c->f->rank < 1 || c->f->rank > KERN_RANK)
        return REFUSE(c, KERN_EINVAL, "an iteration space of rank %d", c->f->rank);
    for (int d = 0; d < c->f->rank; d++)
        if (c->f->dim[d] < 0 || __builtin_mul_overflow(*count, c->f->dim[d], count))
            return REFUSE(c, KERN_EINVAL, "a dimension is negative or the shape too large");
    return true;
}

/* The lowest and the highest element that a view touches lie in its buffer. The space is not empty.
 */
static bool check_reach(const struct check *c, int at)
{
    const struct kern_view *v = &c->f->views[at];
    int64_t low = v->offset, high = v->offset, reach;

    for (int d = 0; d < c->f->rank; d++) {
        int64_t *end = v->stride[d] < 0 ? &low : &high;
        if (__builtin_mul_overflow(c->f->dim[d] - 1, v->stride[d], &reach) ||
            __builtin_add_overflow(*end, reach, end))
            return REFUSE(c, KERN_EINVAL, "view %d: stride %lld", at, (long long)v->stride[d]);
    }
    if (low < 0 || high >= c->p->bufs[v->buf].count)
        return REFUSE(c, KERN_EINVAL, "view %d touches elements %lld .. %lld of %lld", at,
                      (long long)low, (long long)high, (long long)c->p->bufs[v->buf].count);
    return true;
}

static bool check_views(const struct check *c, int64_t count)
{
    for (int i = 0; i < c->f->n_views; i++) {
        const int32_t buf = c->f->views[i].buf;
        if (buf < 0 || buf >= c->p->n_bufs)
            return REFUSE(c, KERN_EINVAL, "view %d is of buffer %d of %d", i, buf, c->p->n_bufs);
        if (reg_type_of((int)c->p->bufs[buf].dtype) == REG_NONE)
            return REFUSE(c, KERN_EUNSUPPORTED, "view %d: %s in a fused group", i,
                          dtype_name(c->p->bufs[buf].dtype));
        if (count > 0 && !check_reach(c, i))
            return false;
    }
    return true;
}

/* ---- instructions ---- */

static bool check_reads(const struct check *c, const struct kern_insn *n, int at)
{
    const int16_t reg[3] = {n->a, n->b, n->c};
    const bool any = n->code == KERN_I_CAST || n->code == KERN_I_STORE; /* any type, in a */
    enum reg_type want[3];

    insn_operands(n, want);
    for (int k = 0; k < 3; k++) {
        if (want[k] == REG_NONE && !(any && k == 0))
            continue;
        if (reg[k] < 0 || reg[k] >= c->f->n_regs || c->reg[reg[k]] == REG_NONE)
            return REFUSE(c, KERN_EINVAL, "insn %d reads register %d before it is set", at, reg[k]);
        if (!any && c->reg[reg[k]] != want[k])
            return REFUSE(c, KERN_EINVAL, "insn %d: register %d has another type", at, reg[k]);
    }
    return true;
}

static bool check_load(const struct check *c, const struct kern_insn *n, int at)
{
    const enum dtype held = c->p->bufs[c->f->views[n->view].buf].dtype;
    const enum reg_type has = reg_type_of((int)held), want = reg_type_of(n->type);

    if (has != want && !(has == REG_BOOL && want == REG_INT))
        return REFUSE(c, KERN_EINVAL, "insn %d loads %s as %s", at, dtype_name(held),
                      dtype_name((enum dtype)n->type));
    return true;
}

static bool check_store(const struct check *c, const struct kern_insn *n, int at)
{
    const struct kern_view *v = &c->f->views[n->view];

    for (int d = 0; d < c->f->rank; d++)
        if (v->stride[d] == 0 && c->f->dim[d] > 1)
            return REFUSE(c, KERN_EINVAL, "insn %d stores over itself", at);
    return true;
}

/* The fields that the instruction's code gives a meaning. */
static bool check_fields(const struct check *c, const struct kern_insn *n, int at)
{
    const bool memory = n->code == KERN_I_LOAD || n->code == KERN_I_STORE;

    if (n->code > KERN_I_EW || (n->code == KERN_I_EW && n->ew >= EW_COUNT))
        return REFUSE(c, KERN_EINVAL, "insn %d: code %d, operation %d", at, n->code, n->ew);
    if (n->code != KERN_I_STORE && !insn_type_fits(n))
        return REFUSE(c, KERN_EINVAL, "insn %d: type %s", at, dtype_name((enum dtype)n->type));
    if (memory && (n->view < 0 || n->view >= c->f->n_views))
        return REFUSE(c, KERN_EINVAL, "insn %d names view %d of %d", at, n->view, c->f->n_views);
    if (n->code == KERN_I_IOTA && n->axis >= c->f->rank)
        return REFUSE(c, KERN_EINVAL, "insn %d: axis %d of %d", at, n->axis, c->f->rank);
    if (n->code == KERN_I_HYPER && (n->slot < 0 || n->slot >= KERN_HYPER_MAX))
        return REFUSE(c, KERN_EINVAL, "insn %d: slot %d", at, n->slot);
    if (n->code != KERN_I_STORE && (n->dst < 0 || n->dst >= c->f->n_regs))
        return REFUSE(c, KERN_EINVAL, "insn %d: register %d of %d", at, n->dst, c->f->n_regs);
    return true;
}

static bool check_insn(struct check *c, int at, struct fused_insn *out)
{
    const struct kern_insn *n = &c->f->insns[at];

    if (!check_fields(c, n, at) || !check_reads(c, n, at))
        return false;
    if (n->code == KERN_I_LOAD && !check_load(c, n, at))
        return false;
    out->n = *n;
    out->from = n->a >= 0 && n->a < c->f->n_regs ? c->reg[n->a] : REG_NONE;
    if (n->code == KERN_I_STORE) {
        out->to = reg_type_of((int)c->p->bufs[c->f->views[n->view].buf].dtype);
        return check_store(c, n, at);
    }
    out->to = c->reg[n->dst] = insn_result_type(n);
    return true;
}

enum kern_status fused_check(const struct kern_program *p, const struct kern_op *op,
                             struct fused_insn *insns, int64_t *count, struct kern_err *e)
{
    struct kern_err line = {KERN_OK, ""};
    struct check c = {.p = p, .op = op, .f = &op->u.fused, .e = &line};
    bool good = check_space(&c, count) && check_views(&c, *count);

    for (int i = 0; good && i < c.f->n_insns; i++)
        good = check_insn(&c, i, &insns[i]);
    return good ? KERN_OK : cpu_err(e, line.status, "%s", line.msg);
}
