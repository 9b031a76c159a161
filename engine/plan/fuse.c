/* fuse.c - the instructions of a fused group: loads, registers, stores. */
#include "engine/plan/lower.h"

#include <string.h>

#include "engine/base/alloc.h"

/* Instructions are built with a register each; registers are shared afterwards by last use. */
struct fuse {
    struct lowered *l;
    const struct group *g;
    int group;
    struct kern_insn insn[2 * GROUP_MAX_INSNS + 64];
    struct kern_view view[2 * GROUP_MAX_INSNS + 64];
    int n_insns, n_views;
    struct {
        int node, reg;
    } made[2 * GROUP_MAX_INSNS + 64]; /* node -> register */
    int n_made;
    bool full;
};

static enum dtype register_type(enum dtype t)
{
    return t == DT_U8 ? DT_I32 : t;
}

static int push(struct fuse *f, struct kern_insn in)
{
    if (f->n_insns == (int)(sizeof f->insn / sizeof *f->insn)) {
        f->full = true;
        return 0;
    }
    in.dst = (int16_t)f->n_insns;
    f->insn[f->n_insns] = in;
    return f->n_insns++;
}

static int remember(struct fuse *f, int node, int reg)
{
    if (f->n_made < (int)(sizeof f->made / sizeof *f->made)) {
        f->made[f->n_made].node = node;
        f->made[f->n_made++].reg = reg;
    }
    return reg;
}

static const struct kern_insn insn_zero = {.a = -1, .b = -1, .c = -1, .view = -1, .slot = -1};

static int push_view(struct fuse *f, int buf, const struct view *v)
{
    struct kern_view *kv;

    if (f->n_views == (int)(sizeof f->view / sizeof *f->view)) {
        f->full = true;
        return 0;
    }
    kv = &f->view[f->n_views];
    memset(kv, 0, sizeof *kv);
    kv->buf = buf;
    kv->offset = v->offset;
    memcpy(kv->stride, v->stride, sizeof v->stride);
    return f->n_views++;
}

static int load(struct fuse *f, const struct view *v)
{
    struct kern_insn in = insn_zero;

    in.code = KERN_I_LOAD;
    in.type = (uint8_t)register_type(lower_node(f->l, v->base)->dtype);
    in.view = push_view(f, emit_buf(f->l, v->base), v);
    return push(f, in);
}

static int inline_leaf(struct fuse *f, int id)
{
    const struct node *n = lower_node(f->l, id);
    struct kern_insn in = insn_zero;

    in.type = (uint8_t)register_type(n->dtype);
    if (n->op == OP_CONST) {
        in.code = KERN_I_CONST;
        in.value = n->attr.value;
    } else {
        in.code = KERN_I_HYPER;
        in.slot = n->attr.slot;
    }
    return push(f, in);
}

static int register_of(struct fuse *f, int id);

static int compute(struct fuse *f, int id)
{
    const struct node *n = lower_node(f->l, id);
    struct kern_insn in = insn_zero;
    int16_t r[3] = {-1, -1, -1};

    for (int i = 0; i < n->n_in && i < 3; i++)
        r[i] = (int16_t)register_of(f, n->in[i]);
    in.a = r[0];
    in.b = r[1];
    in.c = r[2];
    in.type = (uint8_t)register_type(n->dtype);
    switch ((int)n->op) {
    case OP_IOTA:
        in.code = KERN_I_IOTA;
        in.axis = (uint8_t)n->attr.axis;
        break;
    case OP_RNG_UNIFORM:
    case OP_RNG_BITS:
    case OP_DROPOUT:
        in.code = n->op == OP_RNG_UNIFORM ? KERN_I_UNIFORM
                  : n->op == OP_RNG_BITS  ? KERN_I_BITS
                                          : KERN_I_DROPOUT;
        in.stream = n->attr.stream;
        in.per_sample = n->attr.per_sample;
        break;
    case OP_CAST:
        in.code = KERN_I_CAST;
        break;
    default:
        in.code = KERN_I_EW;
        in.ew = (uint8_t)n->op;
        /* comparisons work in the type of what they compare */
        if (n->op < (enum op)EW_COUNT && n->dtype == DT_BOOL && n->n_in > 0)
            in.type = (uint8_t)register_type(lower_node(f->l, n->in[0])->dtype);
        if (n->op == (enum op)EW_SELECT)
            in.type = (uint8_t)register_type(n->dtype);
        break;
    }
    return push(f, in);
}

/* The register that holds node id, as the group's iteration space sees it. */
static int register_of(struct fuse *f, int id)
{
    struct lowered *l = f->l;
    const struct node *n = lower_node(l, id);
    struct view v;

    for (int i = f->n_made - 1; i >= 0; i--)
        if (f->made[i].node == id)
            return f->made[i].reg;
    v = view_of(l, id);
    if (lower_is_inline(l, v.base))
        return remember(f, id, inline_leaf(f, v.base));
    if (v.base == id && lower_is_insn(l, id) && shape_equal(&n->shape, &f->g->shape) &&
        (l->info[id].group == f->group || lower_again(l, id)))
        return remember(f, id, compute(f, id));
    /* a scalar beside a larger space (the rate of a dropout) is read with stride 0 */
    if (!shape_equal(&n->shape, &f->g->shape))
        memset(v.stride, 0, sizeof v.stride);
    return remember(f, id, load(f, &v));
}

/* Registers by last use. False when more than KERN_REGS are live at once. */
static bool share_registers(struct fuse *f, int *n_regs)
{
    int last[sizeof f->insn / sizeof *f->insn], reg[sizeof f->insn / sizeof *f->insn];
    bool busy[KERN_REGS] = {false};

    *n_regs = 1;
    for (int i = 0; i < f->n_insns; i++) {
        const int16_t use[3] = {f->insn[i].a, f->insn[i].b, f->insn[i].c};
        last[i] = i;
        for (int k = 0; k < 3; k++)
            if (use[k] >= 0)
                last[use[k]] = i;
    }
    for (int i = 0; i < f->n_insns; i++) {
        struct kern_insn *in = &f->insn[i];
        int16_t *use[3] = {&in->a, &in->b, &in->c};
        int r = 0;

        /* the result's register is taken before the operands' are given back: no backend has to
         * work in place */
        while (in->code != KERN_I_STORE && r < KERN_REGS && busy[r])
            r++;
        if (r == KERN_REGS)
            return false;
        for (int k = 0; k < 3; k++)
            if (*use[k] >= 0) {
                int from = *use[k];
                *use[k] = (int16_t)reg[from];
                if (last[from] == i)
                    busy[reg[from]] = false;
            }
        in->dst = -1;
        if (in->code == KERN_I_STORE)
            continue;
        reg[i] = r;
        busy[r] = last[i] > i;
        in->dst = (int16_t)r;
        if (r + 1 > *n_regs)
            *n_regs = r + 1;
    }
    return true;
}

static enum err_code push_op(struct fuse *f, const struct shape *s, int n_regs, const char *label,
                             struct err *e)
{
    struct lowered *l = f->l;
    struct kern_insn *insns = arena_array(&l->mem, (size_t)f->n_insns, sizeof *insns);
    struct kern_view *views = arena_array(&l->mem, (size_t)f->n_views, sizeof *views);
    struct kern_op *op = insns && views ? op_new(l, KERN_FUSED, label) : NULL;

    if (!op)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    memcpy(insns, f->insn, (size_t)f->n_insns * sizeof *insns);
    memcpy(views, f->view, (size_t)f->n_views * sizeof *views);
    op->u.fused.rank = s->rank > 0 ? s->rank : 1;
    op->u.fused.dim[0] = 1;
    for (int d = 0; d < s->rank; d++)
        op->u.fused.dim[d] = s->dim[d];
    op->u.fused.n_insns = f->n_insns;
    op->u.fused.n_views = f->n_views;
    op->u.fused.n_regs = n_regs;
    op->u.fused.insns = insns;
    op->u.fused.views = views;
    return ERR_OK;
}

static void store(struct fuse *f, int reg, int buf, const struct view *v, enum dtype t)
{
    struct kern_insn in = insn_zero;

    in.code = KERN_I_STORE;
    in.type = (uint8_t)register_type(t);
    in.a = (int16_t)reg;
    in.view = push_view(f, buf, v);
    push(f, in);
}

static struct view dense_view(const struct shape *s)
{
    struct view v = {.base = -1};

    view_dense(s, v.stride);
    return v;
}

/* The register of a member: an instruction of the group, or a view or constant that is copied. */
static int member_register(struct fuse *f, int id)
{
    struct view from = view_of(f->l, id);

    if (lower_is_inline(f->l, from.base))
        return inline_leaf(f, from.base);
    return node_is_view(lower_node(f->l, id)->op) ? load(f, &from) : register_of(f, id);
}

struct stored {
    int node, reg;
};

/* Everything the members need is asked for before an instruction is made: emit_buf of a value that
 * is not yet computed emits its op first. */
static enum err_code emit_members(struct lowered *l, int group, const int *member, int n,
                                  struct err *e)
{
    struct fuse *f = mem_zalloc(sizeof *f);
    struct stored *stored = mem_array((size_t)n, sizeof *stored);
    struct group as = l->group[group];
    struct view dense = dense_view(&as.shape);
    enum err_code rc = ERR_OK;
    int n_regs, n_stored = 0;

    if (!f || !stored) {
        mem_free(f);
        mem_free(stored);
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    }
    f->l = l;
    f->g = &as;
    f->group = group;
    for (int i = 0; i < n; i++)
        if (l->info[member[i]].in_memory)
            stored[n_stored++] = (struct stored){member[i], member_register(f, member[i])};
    /* Stores come last: one may go to the memory of something another member still reads. */
    for (int i = 0; i < n_stored; i++)
        store(f, stored[i].reg, emit_buf(l, stored[i].node), &dense,
              lower_node(l, stored[i].node)->dtype);
    if (l->rc != ERR_OK)
        rc = l->rc;
    else if (n_stored > 0 && !f->full && share_registers(f, &n_regs))
        rc = push_op(f, &as.shape, n_regs, node_label(l, member[n - 1]), e);
    else if (n_stored > 0)
        rc = ERR_SHAPE; /* too large: the caller splits */
    mem_free(f);
    mem_free(stored);
    return rc;
}

enum err_code fuse_emit(struct lowered *l, int group, struct err *e)
{
    enum err_code rc;

    l->group[group].emitted = true;
    rc = emit_members(l, group, l->group[group].member, l->group[group].n_members, e);
    if (rc != ERR_SHAPE)
        return rc;
    /* More values live at once than there are registers: each member a loop of its own, through
     * memory. */
    for (int i = 0; i < l->group[group].n_members; i++)
        l->info[l->group[group].member[i]].in_memory = true;
    for (int i = 0; i < l->group[group].n_members; i++) {
        int id = l->group[group].member[i];
        int single = l->n_groups;
        if (mem_grow((void **)&l->group, &l->group_cap, (size_t)l->n_groups, sizeof *l->group) < 0)
            return err_set(e, ERR_NOMEM, "plan: out of memory");
        l->group[l->n_groups++] = (struct group){
            .shape = l->group[group].shape, .level = l->group[group].level, .emitted = true};
        l->info[id].group = single;
        rc = emit_members(l, single, &id, 1, e);
        if (rc != ERR_OK)
            return rc == ERR_SHAPE
                       ? err_set(e, ERR_INTERNAL, "plan: %s does not fit into registers",
                                 node_label(l, id))
                       : rc;
    }
    return ERR_OK;
}

enum err_code fuse_copy(struct lowered *l, const struct shape *s, int in_buf, const struct view *in,
                        int out_buf, const struct view *out, bool add, const char *label,
                        struct err *e)
{
    struct fuse *f = mem_zalloc(sizeof *f);
    enum dtype t = l->buf[in_buf].kb.dtype;
    struct kern_insn a = insn_zero;
    enum err_code rc;
    int r, n_regs;

    if (!f)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    f->l = l;
    a.code = KERN_I_LOAD;
    a.type = (uint8_t)register_type(t);
    a.view = push_view(f, in_buf, in);
    r = push(f, a);
    if (add) {
        struct kern_insn b = a, sum = insn_zero;
        b.view = push_view(f, out_buf, out);
        sum.code = KERN_I_EW;
        sum.ew = EW_ADD;
        sum.type = a.type;
        sum.a = (int16_t)push(f, b);
        sum.b = (int16_t)r;
        r = push(f, sum);
    }
    store(f, r, out_buf, out, t);
    share_registers(f, &n_regs);
    rc = push_op(f, s, n_regs, label, e);
    mem_free(f);
    return rc;
}

enum err_code fuse_fill(struct lowered *l, const struct shape *s, int out_buf, double value,
                        const char *label, struct err *e)
{
    struct fuse *f = mem_zalloc(sizeof *f);
    struct kern_insn in = insn_zero;
    struct view v = dense_view(s);
    enum err_code rc;
    int n_regs;

    if (!f)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    f->l = l;
    in.code = KERN_I_CONST;
    in.type = (uint8_t)register_type(l->buf[out_buf].kb.dtype);
    in.value = value;
    store(f, push(f, in), out_buf, &v, l->buf[out_buf].kb.dtype);
    share_registers(f, &n_regs);
    rc = push_op(f, s, n_regs, label, e);
    mem_free(f);
    return rc;
}
