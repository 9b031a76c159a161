/* group.c - which elementwise nodes share one loop.
 *
 * A group has one shape and one level. The level of a node is the number of kernels on the longest
 * way to it, so a way from a member out to a kernel and back into the group cannot exist. A way
 * through other groups of the same level can; those dependencies are kept and searched before a
 * node joins. */
#include "engine/plan/lower.h"

#include "engine/base/alloc.h"

/* Does group a need group b to have run, directly or through others of their level? */
static bool group_needs(struct lowered *l, int a, int b)
{
    struct group *g = &l->group[a];

    if (a == b)
        return true;
    if (g->stamp == l->stamp)
        return false;
    g->stamp = l->stamp;
    for (int i = 0; i < g->n_deps; i++)
        if (group_needs(l, g->dep[i], b))
            return true;
    return false;
}

static enum err_code add_dep(struct lowered *l, int group, int dep, struct err *e)
{
    struct group *g = &l->group[group];

    if (dep < 0 || dep == group || l->group[dep].level != g->level)
        return ERR_OK;
    for (int i = 0; i < g->n_deps; i++)
        if (g->dep[i] == dep)
            return ERR_OK;
    if (mem_grow((void **)&g->dep, &g->dep_cap, (size_t)g->n_deps, sizeof *g->dep) < 0)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    l->group[group].dep[g->n_deps++] = dep;
    return ERR_OK;
}

static int group_new(struct lowered *l, int id)
{
    if (mem_grow((void **)&l->group, &l->group_cap, (size_t)l->n_groups, sizeof *l->group) < 0)
        return -1;
    l->group[l->n_groups] =
        (struct group){.shape = lower_node(l, id)->shape, .level = l->info[id].level};
    return l->n_groups++;
}

/* Calls found(l, owner group of the memory read) for everything that computing node id reads from
 * memory, going through what is computed again. `stay` is the group being built: its members are
 * registers. */
static enum err_code each_read(struct lowered *l, int id, int stay, bool mark,
                               enum err_code (*found)(struct lowered *, int, int, struct err *),
                               struct err *e)
{
    const struct node *n = lower_node(l, id);
    enum err_code rc = ERR_OK;

    for (int i = 0; i < n->n_in && rc == ERR_OK; i++) {
        int in = n->in[i], base = view_of(l, in).base;

        if (lower_is_inline(l, base))
            continue;
        if (base != in || !lower_is_insn(l, in)) { /* a view, a leaf, a kernel's result */
            rc = found(l, stay, l->info[base].group, e);
        } else if (l->info[in].group == stay) {
            continue;
        } else if (lower_again(l, in)) {
            rc = each_read(l, in, stay, mark, found, e);
        } else {
            if (mark)
                l->info[in].in_memory = true;
            rc = found(l, stay, l->info[in].group, e);
        }
    }
    return rc;
}

/* found: would reading that group's memory make a circle with the group that wants to grow? */
static enum err_code refuse_circle(struct lowered *l, int stay, int dep, struct err *e)
{
    (void)e;
    if (dep < 0 || dep == stay || l->group[dep].level != l->group[stay].level)
        return ERR_OK;
    l->stamp++;
    return group_needs(l, dep, stay) ? ERR_SHAPE : ERR_OK;
}

static int pick_group(struct lowered *l, int id)
{
    const struct node *n = lower_node(l, id);
    int best = -1;

    if (l->req->no_fuse)
        return -1;
    for (int i = 0; i < n->n_in; i++) {
        int in = n->in[i], g = l->info[in].group;
        if (g <= best || lower_is_inline(l, in) || !lower_is_insn(l, in))
            continue;
        if (l->group[g].level != l->info[id].level || !shape_equal(&l->group[g].shape, &n->shape))
            continue;
        if (l->group[g].cost + l->info[id].cost > GROUP_MAX_INSNS)
            continue;
        if (each_read(l, id, g, false, refuse_circle, NULL) == ERR_OK)
            best = g;
    }
    return best;
}

static enum err_code join(struct lowered *l, int g, int id, struct err *e)
{
    struct group *grp = &l->group[g];

    if (mem_grow((void **)&grp->member, &grp->cap, (size_t)grp->n_members, sizeof *grp->member) < 0)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    grp->member[grp->n_members++] = id;
    grp->cost += l->info[id].cost + 1;
    l->info[id].group = g;
    return ERR_OK;
}

/* A view that has to lie dense (a transposed tensor that is reshaped) is a group that loads and
 * stores. */
static bool is_copied_view(const struct lowered *l, int id)
{
    enum op op = lower_node(l, id)->op;
    return node_is_view(op) && op != OP_RESHAPE && l->info[id].in_memory;
}

enum err_code group_all(struct lowered *l, struct err *e)
{
    enum err_code rc = ERR_OK;

    for (int id = 0; id < l->n_nodes && rc == ERR_OK; id++) {
        const struct node_info *info = &l->info[id];
        bool insn = lower_is_insn(l, id) && (!lower_is_inline(l, id) || info->in_memory);
        int g;

        if (!info->live || info->folded_into >= 0 || info->epilogue >= 0 ||
            !(insn || is_copied_view(l, id)))
            continue;
        g = insn && !lower_is_inline(l, id) ? pick_group(l, id) : -1;
        if (g < 0)
            g = group_new(l, id);
        if (g < 0)
            return err_set(e, ERR_NOMEM, "plan: out of memory");
        rc = join(l, g, id, e);
        if (rc == ERR_OK && insn)
            rc = each_read(l, id, g, true, add_dep, e);
        else if (rc == ERR_OK)
            rc = add_dep(l, g, l->info[view_of(l, id).base].group, e);
    }
    return rc;
}
