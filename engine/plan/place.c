/* place.c - lifetimes to offsets in one arena.
 *
 * Greedy by size: the largest buffer first, each at the lowest offset where it meets no buffer that
 * lives at the same time (engine-wide expectation: at most a few per cent over the lower bound). */
#include "engine/plan/lower.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"

static int64_t rounded(int64_t bytes)
{
    return (bytes + KERN_ALIGN - 1) / KERN_ALIGN * KERN_ALIGN;
}

static int64_t buf_bytes(const struct kern_buf *b)
{
    return b->count * dtype_size(b->dtype);
}

static void touch(struct lowered *l, int buf, int op)
{
    struct buf_info *b;

    if (buf < 0)
        return;
    b = &l->buf[buf];
    if (b->first < 0)
        b->first = op;
    b->last = op;
}

static void lifetimes(struct lowered *l)
{
    for (int i = 0; i < l->n_ops; i++) {
        const struct kern_op *op = &l->op[i];
        if (op->code == KERN_FUSED)
            for (int v = 0; v < op->u.fused.n_views; v++)
                touch(l, op->u.fused.views[v].buf, i);
        for (int k = 0; k < KERN_IN; k++)
            touch(l, op->in[k], i);
        for (int k = 0; k < KERN_OUT; k++)
            touch(l, op->out[k], i);
    }
}

/* ---- in place: an output takes the memory of an input that dies in the same op ---- */

static bool same_order(const struct kern_fused *f, const struct kern_view *v)
{
    int64_t step = 1;

    if (v->offset != 0)
        return false;
    for (int d = f->rank - 1; d >= 0; d--) {
        if (f->dim[d] > 1 && v->stride[d] != step)
            return false;
        step *= f->dim[d];
    }
    return true;
}

/* Every access of this group to the buffer is at the element being computed. */
static bool read_in_order(const struct kern_fused *f, int buf)
{
    for (int v = 0; v < f->n_views; v++)
        if (f->views[v].buf == buf && !same_order(f, &f->views[v]))
            return false;
    return true;
}

static bool can_merge(const struct lowered *l, int i, int in, int out)
{
    const struct buf_info *a = &l->buf[in], *b = &l->buf[out];

    return in != out && a->kb.space == KERN_ARENA && b->kb.space == KERN_ARENA && a->last == i &&
           b->first == i && a->first < i && b->merged_into < 0 && a->kb.count == b->kb.count &&
           dtype_size(a->kb.dtype) == dtype_size(b->kb.dtype);
}

static bool is_stored(const struct kern_fused *f, int view)
{
    for (int k = 0; k < f->n_insns; k++)
        if (f->insns[k].code == KERN_I_STORE && f->insns[k].view == view)
            return true;
    return false;
}

static void merge_fused(struct lowered *l, int i, bool *taken)
{
    const struct kern_fused *f = &l->op[i].u.fused;

    for (int o = 0; o < f->n_views; o++) {
        int out = f->views[o].buf;
        if (!is_stored(f, o) || !same_order(f, &f->views[o]))
            continue;
        for (int v = 0; v < f->n_views; v++) {
            int in = f->views[v].buf;
            if (!is_stored(f, v) && !taken[in] && can_merge(l, i, in, out) &&
                read_in_order(f, in)) {
                l->buf[out].merged_into = in;
                taken[in] = true;
                break;
            }
        }
    }
}

static enum err_code merge_all(struct lowered *l, struct err *e)
{
    bool *taken = mem_array((size_t)l->n_bufs + 1, sizeof *taken);

    if (!taken)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    for (int i = 0; i < l->n_ops; i++) {
        const struct kern_op *op = &l->op[i];
        if (op->code == KERN_FUSED)
            merge_fused(l, i, taken);
        else if (op->code == KERN_XENT_GRAD && !taken[op->in[0]] &&
                 can_merge(l, i, op->in[0], op->out[0]))
            l->buf[op->out[0]].merged_into = op->in[0], taken[op->in[0]] = true;
    }
    mem_free(taken);
    return ERR_OK;
}

static int owner_of(const struct lowered *l, int b)
{
    while (l->buf[b].merged_into >= 0)
        b = l->buf[b].merged_into;
    return b;
}

/* ---- offsets ---- */

struct interval {
    int buf, first, last;
    int64_t bytes, offset;
};

static int by_size(const void *pa, const void *pb)
{
    const struct interval *a = pa, *b = pb;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->buf - b->buf;
}

static int by_offset(const void *pa, const void *pb)
{
    const struct interval *const *a = pa, *const *b = pb;
    return (*a)->offset < (*b)->offset ? -1 : (*a)->offset > (*b)->offset;
}

/* The lowest gap for v among those placed that live at the same time. */
static void place_one(struct interval *v, struct interval *placed, int n, struct interval **near)
{
    int m = 0;
    int64_t at = 0;

    for (int i = 0; i < n; i++)
        if (placed[i].bytes > 0 && placed[i].first <= v->last && v->first <= placed[i].last)
            near[m++] = &placed[i];
    qsort(near, (size_t)m, sizeof *near, by_offset);
    for (int i = 0; i < m; i++) {
        if (near[i]->offset - at >= v->bytes)
            break;
        if (near[i]->offset + near[i]->bytes > at)
            at = near[i]->offset + near[i]->bytes;
    }
    v->offset = at;
}

static int64_t most_live(const struct interval *v, int n, int n_ops)
{
    int64_t most = 0;
    int64_t *change = mem_array((size_t)n_ops + 2, sizeof *change), live = 0;

    if (!change)
        return 0;
    for (int i = 0; i < n; i++) {
        change[v[i].first] += v[i].bytes;
        change[v[i].last + 1] -= v[i].bytes;
    }
    for (int i = 0; i <= n_ops; i++) {
        live += change[i];
        if (live > most)
            most = live;
    }
    mem_free(change);
    return most;
}

static void report_holders(struct lowered *l, const struct interval *v, int n)
{
    for (int i = 0;
         i < n && l->report.n_holders < (int)(sizeof l->report.holder / sizeof *l->report.holder);
         i++) {
        struct plan_holder *h = &l->report.holder[l->report.n_holders++];
        snprintf(h->label, sizeof h->label, "%s",
                 l->buf[v[i].buf].label ? l->buf[v[i].buf].label : "?");
        h->bytes = v[i].bytes;
    }
}

enum err_code place_all(struct lowered *l, struct err *e)
{
    struct interval *v = mem_array((size_t)l->n_bufs + 1, sizeof *v), **near = NULL;
    int *of = mem_array((size_t)l->n_bufs + 1, sizeof *of), n = 0;
    enum err_code rc = ERR_OK;

    lifetimes(l);
    if (!l->req || !l->req->no_reuse)
        rc = merge_all(l, e);
    near = mem_array((size_t)l->n_bufs + 1, sizeof(struct interval *));
    if (rc == ERR_OK && (!v || !near || !of))
        rc = err_set(e, ERR_NOMEM, "plan: out of memory");
    if (rc != ERR_OK)
        goto out;
    for (int b = 0; b < l->n_bufs; b++) {
        of[b] = -1;
        if (l->buf[b].kb.space != KERN_ARENA || l->buf[b].first < 0 || l->buf[b].merged_into >= 0)
            continue;
        of[b] = n;
        v[n++] = (struct interval){.buf = b,
                                   .first = l->buf[b].first,
                                   .last = l->buf[b].last,
                                   .bytes = rounded(buf_bytes(&l->buf[b].kb))};
    }
    for (int b = 0; b < l->n_bufs; b++) /* merged ones stretch the life of the memory they share */
        if (l->buf[b].merged_into >= 0) {
            struct interval *o = &v[of[owner_of(l, b)]];
            if (l->buf[b].last > o->last)
                o->last = l->buf[b].last;
        }
    if (l->req && l->req->no_reuse)
        for (int i = 0; i < n; i++)
            v[i].first = 0, v[i].last = l->n_ops;
    qsort(v, (size_t)n, sizeof *v, by_size);
    for (int i = 0; i < n; i++) {
        place_one(&v[i], v, i, near);
        l->buf[v[i].buf].kb.offset = v[i].offset;
        if (v[i].offset + v[i].bytes > l->report.arena_bytes)
            l->report.arena_bytes = v[i].offset + v[i].bytes;
    }
    for (int b = 0; b < l->n_bufs; b++)
        if (l->buf[b].merged_into >= 0)
            l->buf[b].kb.offset = l->buf[owner_of(l, b)].kb.offset;
    l->report.lower_bound = most_live(v, n, l->n_ops);
    report_holders(l, v, n);
out:
    mem_free(v);
    mem_free(near);
    mem_free(of);
    return rc;
}

enum err_code lower_finish(struct lowered *l, struct err *e)
{
    enum err_code rc = place_all(l, e);

    if (rc != ERR_OK)
        return rc;
    l->flat = arena_array(&l->mem, (size_t)l->n_bufs + 1, sizeof *l->flat);
    if (!l->flat)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    for (int b = 0; b < l->n_bufs; b++) {
        const struct kern_buf *kb = &l->buf[b].kb;
        int64_t end = kb->offset + buf_bytes(kb);

        l->flat[b] = *kb;
        if (end > l->program.space_bytes[kb->space])
            l->program.space_bytes[kb->space] = end;
    }
    if (l->report.arena_bytes > l->program.space_bytes[KERN_ARENA])
        l->program.space_bytes[KERN_ARENA] = l->report.arena_bytes;
    l->program.bufs = l->flat;
    l->program.n_bufs = l->n_bufs;
    l->program.ops = l->op;
    l->program.n_ops = l->n_ops;
    l->report.n_ops = l->n_ops;
    l->report.n_bufs = l->n_bufs;
    for (int i = 0; i < l->n_ops; i++)
        l->report.n_fused += l->op[i].code == KERN_FUSED;
    return ERR_OK;
}
