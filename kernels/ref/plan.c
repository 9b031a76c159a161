/* plan.c - a program copied, its arena spread out, and one run of it.
 *
 * The rule for KERN_ARENA: an entry of kern_program.bufs is one value. Two entries at one offset
 * are two values of which the later takes the earlier one's place (an in-place result, dlogits over
 * logits), so giving each entry memory of its own changes nothing, as long as every entry is fully
 * written, in this run, before it is read. What is read without that is poison: NaN, 0x7f7f7f7f. A
 * result that adds onto what is there (MATMUL with accumulate) names the same entry as the op that
 * wrote it before, and so does a reshaped reader. */
#include "kernels/ref/ref.h"

#include <stdlib.h>
#include <string.h>

/* A copy of n elements of size; NULL for none, *failed set when there is no memory. */
static void *copy_array(const void *src, int64_t n, size_t size, bool *failed)
{
    void *dst;

    if (n <= 0)
        return NULL;
    dst = calloc((size_t)n, size);
    if (dst)
        memcpy(dst, src, (size_t)n * size);
    else
        *failed = true;
    return dst;
}

static bool is_update(enum kern_code code)
{
    return code == KERN_GRAD_NORM || code == KERN_PROLOGUE || code == KERN_SGD || code == KERN_ADAM;
}

/* The op's own arrays; what could not be copied is NULL, so that op_release is right after a
 * failure. */
static void op_copy(struct kern_op *dst, const struct kern_op *src, bool *failed)
{
    *dst = *src;
    dst->label = NULL; /* only checks use it, and they are over */
    if (src->code == KERN_FUSED) {
        const struct kern_fused *f = &src->u.fused;
        dst->u.fused.views = copy_array(f->views, f->n_views, sizeof *f->views, failed);
        dst->u.fused.insns = copy_array(f->insns, f->n_insns, sizeof *f->insns, failed);
    } else if (is_update(src->code)) {
        const struct kern_opt *o = &src->u.opt;
        dst->u.opt.segments = copy_array(o->segments, o->n_segments, sizeof *o->segments, failed);
    }
}

static void op_release(struct kern_op *op)
{
    if (op->code == KERN_FUSED) {
        free((void *)(uintptr_t)op->u.fused.views); /* const in the interface, but ours */
        free((void *)(uintptr_t)op->u.fused.insns);
    } else if (is_update(op->code)) {
        free((void *)(uintptr_t)op->u.opt.segments);
    }
}

static void note_uses(int *last_use, const struct kern_op *op, int at)
{
    if (op->code == KERN_FUSED) {
        for (int v = 0; v < op->u.fused.n_views; v++)
            last_use[op->u.fused.views[v].buf] = at;
        return;
    }
    for (int k = 0; k < KERN_IN; k++)
        if (op->in[k] >= 0)
            last_use[op->in[k]] = at;
    for (int k = 0; k < KERN_OUT; k++)
        if (op->out[k] >= 0)
            last_use[op->out[k]] = at;
}

static size_t buf_cell_bytes(const struct kern_buf *b)
{
    return 2 * (size_t)b->count * (size_t)dtype_size(b->dtype);
}

static void arena_poison(const struct kern_plan *p, int buf)
{
    if (p->arena[buf])
        memset(p->arena[buf], dtype_is_float(p->bufs[buf].dtype) ? 0xff : 0x7f,
               buf_cell_bytes(&p->bufs[buf]));
}

/* Program and tables; false if memory ran out. */
static bool plan_fill(struct kern_plan *p, const struct kern_program *src)
{
    const size_t n_bufs = (size_t)src->n_bufs + 1, n_ops = (size_t)src->n_ops + 1; /* never 0 */
    bool failed = false;

    p->bufs = calloc(n_bufs, sizeof *p->bufs);
    p->ops = calloc(n_ops, sizeof *p->ops);
    p->last_use = calloc(n_bufs, sizeof *p->last_use);
    p->arena = calloc(n_bufs, sizeof *p->arena);
    p->cells = calloc(n_bufs, sizeof *p->cells);
    if (!p->bufs || !p->ops || !p->last_use || !p->arena || !p->cells)
        return false;
    p->prog = *src;
    p->prog.bufs = p->bufs;
    p->prog.ops = p->ops;
    for (int i = 0; i < src->n_bufs; i++) {
        p->bufs[i] = src->bufs[i];
        p->last_use[i] = -1;
        if (src->bufs[i].space == KERN_ARENA) {
            p->arena[i] = malloc(buf_cell_bytes(&src->bufs[i]) + 1);
            failed |= !p->arena[i];
        }
    }
    for (int i = 0; i < src->n_ops; i++) {
        const int slots = ref_op_slots(&src->ops[i]);
        op_copy(&p->ops[i], &src->ops[i], &failed);
        note_uses(p->last_use, &src->ops[i], i);
        p->n_slots = slots > p->n_slots ? slots : p->n_slots;
    }
    return !failed;
}

static enum kern_status check_program(const struct kern_program *p, struct kern_err *e)
{
    enum kern_status rc;

    if (!p || p->n_bufs < 0 || p->n_ops < 0 || (p->n_bufs && !p->bufs) || (p->n_ops && !p->ops))
        return ref_err(e, KERN_EINVAL, "ref: a program without buffers or operations");
    for (int i = 0; i < p->n_bufs; i++) {
        rc = ref_check_buf(p, i, e);
        if (rc != KERN_OK)
            return rc;
    }
    for (int i = 0; i < p->n_ops; i++) {
        rc = ref_check_op(p, &p->ops[i], e);
        if (rc != KERN_OK)
            return rc;
    }
    return KERN_OK;
}

enum kern_status ref_plan_new(struct kern_dev *d, const struct kern_program *p,
                              struct kern_plan **out, struct kern_err *e)
{
    enum kern_status rc = check_program(p, e);
    struct kern_plan *plan;

    *out = NULL;
    if (rc != KERN_OK)
        return rc;
    plan = calloc(1, sizeof *plan);
    if (!plan || !plan_fill(plan, p)) {
        ref_plan_release(plan);
        return ref_err(e, KERN_ENOMEM, "ref: no memory for a plan of %d buffers, none reused",
                       p->n_bufs);
    }
    plan->dev = d;
    *out = plan;
    return KERN_OK;
}

void ref_plan_release(struct kern_plan *p)
{
    if (!p)
        return;
    for (int i = 0; p->ops && i < p->prog.n_ops; i++)
        op_release(&p->ops[i]);
    for (int i = 0; p->arena && i < p->prog.n_bufs; i++)
        free(p->arena[i]);
    free(p->bufs);
    free(p->ops);
    free(p->last_use);
    free(p->arena);
    free(p->cells);
    free(p);
}

enum kern_status ref_plan_check_bind(const struct kern_plan *p, const struct kern_bind *b,
                                     struct kern_err *e)
{
    for (int s = 0; s < KERN_SPACES; s++) {
        const int64_t need = p->prog.space_bytes[s];
        if (need == 0)
            continue;
        if (!b->mem[s] || b->mem[s]->dev != p->dev)
            return ref_err(e, KERN_EINVAL, "ref: space %d has no memory of this device bound", s);
        if (b->base[s] < 0 || b->base[s] % KERN_ALIGN != 0 || b->base[s] > b->mem[s]->bytes ||
            need > b->mem[s]->bytes - b->base[s])
            return ref_err(e, KERN_EINVAL,
                           "ref: space %d needs %lld bytes at %lld of memory of %lld", s,
                           (long long)need, (long long)b->base[s], (long long)b->mem[s]->bytes);
    }
    return KERN_OK;
}

enum kern_status ref_plan_execute(struct kern_plan *p, const struct kern_bind *b,
                                  const struct kern_hyper *h, struct kern_err *e)
{
    const struct ref_run run = {.bufs = p->bufs, .cells = p->cells, .hyper = h};

    if (h->n < p->n_slots)
        return ref_err(e, KERN_EINVAL, "ref: the program reads %d hyperparameters, the run gave %d",
                       p->n_slots, h->n);
    for (int i = 0; i < p->prog.n_bufs; i++) {
        const struct kern_buf *buf = &p->bufs[i];
        const int64_t at = b->base[buf->space] + buf->offset;
        p->cells[i] = p->arena[i];
        if (!p->arena[i] &&
            p->prog.space_bytes[buf->space] > 0) /* else it is empty: nobody looks */
            p->cells[i] = b->mem[buf->space]->cells + 2 * at;
        arena_poison(p, i);
    }
    for (int i = 0; i < p->prog.n_ops; i++) {
        ref_op_run(&run, &p->ops[i]);
        for (int k = 0; k < p->prog.n_bufs; k++)
            if (p->last_use[k] == i)
                arena_poison(p, k);
    }
    return KERN_OK;
}
