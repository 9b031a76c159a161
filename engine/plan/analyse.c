/* analyse.c - which nodes live, which must lie in memory, which a matrix product's kernel takes
 * along. */
#include "engine/plan/lower.h"

#include "engine/base/alloc.h"

const struct node *lower_node(const struct lowered *l, int id)
{
    return graph_node(l->g, id);
}

bool lower_is_leaf(const struct lowered *l, int id)
{
    enum op op = lower_node(l, id)->op;
    return op == OP_PARAM || op == OP_BUFFER || op == OP_INPUT;
}

bool lower_is_inline(const struct lowered *l, int id)
{
    enum op op = lower_node(l, id)->op;
    return op == OP_CONST || op == OP_HYPER;
}

bool lower_is_insn(const struct lowered *l, int id)
{
    /* what a matrix product's kernel does is no instruction of a group */
    if (l->info[id].folded_into >= 0 || l->info[id].epilogue >= 0)
        return false;
    return op_table[lower_node(l, id)->op].lower == OP_LOWER_INSN;
}

bool lower_is_kernel(const struct lowered *l, int id)
{
    enum op op = lower_node(l, id)->op;
    return op_table[op].lower == OP_LOWER_KERNEL || op == OP_PAD || op == OP_CONCAT;
}

bool lower_again(const struct lowered *l, int id)
{
    const struct node_info *i = &l->info[id];
    return lower_is_insn(l, id) && !i->is_static && i->cost <= COST_AGAIN &&
           i->source != SOURCE_MANY;
}

/* ---- liveness and uses ---- */

static void mark_live(struct lowered *l)
{
    for (int r = 0; r < l->req->n_roots; r++)
        l->info[l->req->roots[r].node].live = true;
    for (int id = l->n_nodes - 1; id >= 0; id--) {
        const struct node *n = lower_node(l, id);
        if (!l->info[id].live)
            continue;
        for (int i = 0; i < n->n_in; i++)
            l->info[n->in[i]].live = true;
    }
}

static void count_uses(struct lowered *l)
{
    for (int id = 0; id < l->n_nodes; id++) {
        const struct node *n = lower_node(l, id);
        if (!l->info[id].live)
            continue;
        for (int i = 0; i < n->n_in; i++)
            l->info[n->in[i]].uses++;
        if (n->op == OP_OUT && n->attr.k >= 1 && n->attr.k <= 2)
            l->info[n->in[0]].out[n->attr.k - 1] = id;
    }
    for (int r = 0; r < l->req->n_roots; r++)
        l->info[l->req->roots[r].node].uses++;
}

/* ---- bias and activation in the matrix product's kernel ---- */

/* Is id, added to a [.., cols] tensor, a row of cols numbers repeated? Then the node it lies in. */
static int bias_row(const struct lowered *l, int id, const struct shape *s)
{
    struct view v = view_of(l, id);
    int last = s->rank - 1;

    if (!shape_equal(&lower_node(l, id)->shape, s) || v.offset != 0 || v.stride[last] != 1)
        return -1;
    for (int d = 0; d < last; d++)
        if (s->dim[d] > 1 && v.stride[d] != 0)
            return -1;
    if (lower_is_inline(l, v.base) || shape_count(&lower_node(l, v.base)->shape) != s->dim[last])
        return -1;
    return v.base;
}

static enum kern_act act_of(enum op op)
{
    switch ((int)op) {
    case EW_RELU:
        return KERN_ACT_RELU;
    case EW_TANH:
        return KERN_ACT_TANH;
    case EW_SIGMOID:
        return KERN_ACT_SIGMOID;
    default:
        return KERN_ACT_NONE;
    }
}

/* The one live user of id, or -1 when there are several or it is a root. */
static int only_user(const int *user, const struct lowered *l, int id)
{
    return l->info[id].uses == 1 ? user[id] : -1;
}

static enum err_code find_epilogues(struct lowered *l, struct err *e)
{
    int *user = arena_array(&l->mem, (size_t)l->n_nodes + 1, sizeof *user);

    if (!user)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    for (int id = 0; id < l->n_nodes; id++)
        user[id] = -1;
    for (int id = 0; id < l->n_nodes; id++)
        for (int i = 0; l->info[id].live && i < lower_node(l, id)->n_in; i++)
            user[lower_node(l, id)->in[i]] = id;
    for (int id = 0; id < l->n_nodes; id++) {
        const struct node *n = lower_node(l, id);
        struct epilogue ep = {id, -1, KERN_ACT_NONE};
        int last = id, next;

        if (!l->info[id].live || n->op != OP_MATMUL)
            continue;
        if (l->req->no_fuse)
            next = -1;
        else
            next = only_user(user, l, id);
        if (next >= 0 && lower_node(l, next)->op == (enum op)EW_ADD) {
            const struct node *add = lower_node(l, next);
            int other = add->in[0] == id ? add->in[1] : add->in[0];
            int bias = bias_row(l, other, &n->shape);
            if (bias >= 0 && bias != id) {
                ep.bias = bias;
                l->info[last].folded_into = next;
                last = next;
                next = only_user(user, l, last);
            }
        }
        if (next >= 0 && act_of(lower_node(l, next)->op) != KERN_ACT_NONE) {
            ep.act = act_of(lower_node(l, next)->op);
            l->info[last].folded_into = next;
            last = next;
        }
        if (mem_grow((void **)&l->epilogue, &l->epilogue_cap, (size_t)l->n_epilogues, sizeof ep) <
            0)
            return err_set(e, ERR_NOMEM, "plan: out of memory");
        l->info[last].epilogue = l->n_epilogues;
        l->epilogue[l->n_epilogues++] = ep;
    }
    return ERR_OK;
}

/* ---- what must lie in memory ---- */

/* What an elementwise reader of id needs in memory: nothing when id is an instruction of its own.
 */
static void need_base(struct lowered *l, int id)
{
    int base = view_of(l, id).base;

    if (base != id || !lower_is_insn(l, id))
        if (!lower_is_inline(l, base))
            l->info[base].in_memory = true;
}

static void need_matrix(struct lowered *l, int id)
{
    struct matrix_view m;
    l->info[view_as_matrix(l, id, &m) ? m.base : view_owner(l, id)].in_memory = true;
}

static void need_inputs(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    int ep = l->info[id].epilogue;

    if (ep >= 0) {
        const struct node *mm = lower_node(l, l->epilogue[ep].matmul);
        need_matrix(l, mm->in[0]);
        need_matrix(l, mm->in[1]);
        if (l->epilogue[ep].bias >= 0)
            l->info[l->epilogue[ep].bias].in_memory = true;
    } else if (n->op == OP_PAD || n->op == OP_CONCAT) {
        for (int i = 0; i < n->n_in; i++)
            l->info[view_of(l, n->in[i]).base].in_memory = true;
    } else if (lower_is_kernel(l, id)) {
        for (int i = 0; i < n->n_in; i++)
            l->info[view_owner(l, n->in[i])].in_memory = true;
    } else if (lower_is_insn(l, id)) {
        for (int i = 0; i < n->n_in; i++)
            need_base(l, n->in[i]);
        /* a scalar operand of another shape (the rate of a dropout) is read, not computed here */
        for (int i = 0; i < n->n_in; i++)
            if (!shape_equal(&lower_node(l, n->in[i])->shape, &n->shape) &&
                !lower_is_inline(l, view_of(l, n->in[i]).base))
                l->info[view_of(l, n->in[i]).base].in_memory = true;
    }
}

static void need_roots(struct lowered *l)
{
    for (int r = 0; r < l->req->n_roots; r++) {
        const struct plan_root *root = &l->req->roots[r];
        int owner = view_owner(l, root->node);

        l->info[owner].in_memory = true;
        if (!root->accumulate && !lower_is_leaf(l, owner) && l->info[owner].root < 0)
            l->info[owner].root = r;
    }
}

/* A copied view reads its own base. Going down the ids settles chains of them. */
static void need_copies(struct lowered *l)
{
    for (int id = l->n_nodes - 1; id >= 0; id--) {
        const struct node *n = lower_node(l, id);
        if (l->info[id].in_memory && node_is_view(n->op) && n->op != OP_RESHAPE) {
            int base = view_of(l, id).base;
            if (!lower_is_inline(l, base))
                l->info[base].in_memory = true;
        }
    }
}

/* ---- levels, and what it costs to compute a value again ---- */

static int own_cost(enum op op)
{
    switch ((int)op) {
    case EW_EXP:
    case EW_EXPM1:
    case EW_LOG:
    case EW_LOG1P:
    case EW_SIN:
    case EW_COS:
    case EW_TANH:
    case EW_ERF:
    case EW_SIGMOID:
    case EW_POW:
    case OP_DROPOUT:
    case OP_RNG_UNIFORM:
    case OP_RNG_BITS:
        return 4;
    default:
        return 1;
    }
}

static void join_source(int *source, int other)
{
    if (*source == SOURCE_NONE)
        *source = other;
    else if (other != SOURCE_NONE && other != *source)
        *source = SOURCE_MANY;
}

static void cost_of(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    struct node_info *info = &l->info[id];

    info->cost = own_cost(n->op);
    info->source = SOURCE_NONE;
    for (int i = 0; i < n->n_in; i++) {
        int in = n->in[i];
        if (lower_is_insn(l, in) && !lower_is_inline(l, in) && !l->info[in].in_memory) {
            if (info->cost < COST_AGAIN)
                info->cost += l->info[in].cost;
            else
                info->cost = COST_AGAIN + 1;
            join_source(&info->source, l->info[in].source);
        } else if (!lower_is_inline(l, view_of(l, in).base)) {
            info->cost += 1;
            /* small operands (a bias, a rate) do not count: keeping them costs nothing */
            if (shape_count(&lower_node(l, view_of(l, in).base)->shape) * 4 >=
                shape_count(&n->shape))
                join_source(&info->source, view_of(l, in).base);
        }
    }
}

static void level_of(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    int level = 0, ep = l->info[id].epilogue;

    for (int i = 0; i < n->n_in; i++)
        if (l->info[n->in[i]].level > level)
            level = l->info[n->in[i]].level;
    /* nodes folded into a kernel pass the level of their inputs on to the node it ends in */
    if (l->info[id].folded_into < 0 && (ep >= 0 || lower_is_kernel(l, id)))
        level++;
    l->info[id].level = level;
}

enum err_code lower_analyse(struct lowered *l, struct err *e)
{
    enum err_code rc;

    mark_live(l);
    count_uses(l);
    rc = find_epilogues(l, e);
    if (rc != ERR_OK)
        return rc;
    for (int id = 0; id < l->n_nodes; id++)
        if (l->info[id].live && l->info[id].folded_into < 0)
            need_inputs(l, id);
    need_roots(l);
    need_copies(l);
    for (int id = 0; id < l->n_nodes; id++)
        l->info[id].is_static = l->info[id].in_memory;
    for (int id = 0; id < l->n_nodes; id++) {
        if (!l->info[id].live)
            continue;
        level_of(l, id);
        if (lower_is_insn(l, id) && l->info[id].folded_into < 0)
            cost_of(l, id);
    }
    return ERR_OK;
}
