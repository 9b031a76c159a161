/* plan.c - from a graph to a program, and from a program to something a device runs. */
#include "engine/plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/plan/lower.h"

static struct lowered *lowered_new(void)
{
    struct lowered *l = mem_zalloc(sizeof *l);

    if (l)
        arena_init(&l->mem, 0);
    return l;
}

void lowered_free(struct lowered *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->n_groups; i++) {
        mem_free(l->group[i].member);
        mem_free(l->group[i].dep);
    }
    mem_free(l->group);
    mem_free(l->epilogue);
    mem_free(l->buf);
    mem_free(l->op);
    arena_release(&l->mem);
    mem_free(l);
}

static enum err_code init_nodes(struct lowered *l, struct err *e)
{
    l->n_nodes = graph_count(l->g);
    l->info = arena_array(&l->mem, (size_t)l->n_nodes + 1, sizeof *l->info);
    if (!l->info)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    for (int i = 0; i < l->n_nodes; i++)
        l->info[i] = (struct node_info){
            .group = -1, .buf = -1, .folded_into = -1, .root = -1, .out = {-1, -1}, .epilogue = -1};
    return ERR_OK;
}

enum err_code plan_lower(const struct plan_request *r, struct lowered **out, struct err *e)
{
    struct lowered *l = lowered_new();
    enum err_code rc;

    *out = NULL;
    if (!l)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    l->req = r;
    l->g = r->graph;
    rc = init_nodes(l, e);
    if (rc == ERR_OK)
        rc = lower_analyse(l, e);
    if (rc == ERR_OK)
        rc = group_all(l, e);
    if (rc == ERR_OK)
        rc = emit_all(l, e);
    if (rc == ERR_OK)
        rc = lower_finish(l, e);
    for (int i = 0; rc == ERR_OK && i < l->n_nodes; i++)
        if (l->info[i].live)
            l->report.flops += graph_flops(l->g, i);
    l->req = NULL; /* borrowed only during this call */
    l->g = NULL;
    if (rc == ERR_OK)
        *out = l;
    else
        lowered_free(l);
    return rc;
}

/* ---- the update ---- */

static int64_t round_up(int64_t n)
{
    return (n + KERN_ALIGN - 1) / KERN_ALIGN * KERN_ALIGN;
}

int64_t plan_moment_offset(int64_t param_count, int k)
{
    return PLAN_STATE_SCALARS + k * round_up(param_count * 4);
}

int64_t plan_state_bytes(int64_t param_count, int n_moments)
{
    return plan_moment_offset(param_count, n_moments);
}

static void set_opt(struct lowered *l, struct kern_op *op, const struct kern_opt *opt)
{
    struct kern_segment *s = arena_array(&l->mem, (size_t)opt->n_segments + 1, sizeof *s);

    if (s && opt->n_segments > 0)
        memcpy(s, opt->segments, (size_t)opt->n_segments * sizeof *s);
    op->u.opt = *opt;
    op->u.opt.segments = s;
}

static enum err_code emit_update(struct lowered *l, const struct plan_update *u, struct err *e)
{
    int param = buf_new(l, KERN_PARAM, DT_F32, 0, u->param_count, "parameters");
    int grad = buf_new(l, KERN_GRAD, DT_F32, 0, u->param_count, "gradients");
    int scalars = buf_new(l, KERN_STATE, DT_F64, 0, 4, "optimizer scalars");
    int norm = buf_new(l, KERN_STEP, DT_F32, PLAN_STEP_NORM, 1, "gradient norm");
    int block = buf_new(l, KERN_STEP, DT_F32, PLAN_STEP_BLOCK, 4, "step block");
    int moment[2] = {-1, -1};
    struct kern_op *op;

    for (int k = 0; k < u->n_moments && k < 2; k++)
        moment[k] = buf_new(l, KERN_STATE, DT_F32, plan_moment_offset(u->param_count, k),
                            u->param_count, "moment");
    op = op_new(l, KERN_GRAD_NORM, "gradient norm");
    if (!op || block < 0 || param < 0 || grad < 0 || scalars < 0 || norm < 0)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    op->in[0] = grad;
    op->out[0] = norm;
    set_opt(l, op, &u->opt);
    op = op_new(l, KERN_PROLOGUE, "step prologue");
    if (!op)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    op->in[0] = norm;
    op->in[1] = scalars;
    op->out[0] = block;
    set_opt(l, op, &u->opt);
    op = op_new(l, u->code, "optimizer");
    if (!op)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    op->in[0] = param;
    op->in[1] = grad;
    op->in[2] = block;
    op->in[3] = moment[0];
    op->in[4] = moment[1];
    set_opt(l, op, &u->opt);
    return ERR_OK;
}

enum err_code plan_lower_update(const struct plan_update *u, struct lowered **out, struct err *e)
{
    struct lowered *l = lowered_new();
    enum err_code rc;

    *out = NULL;
    if (!l)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    rc = emit_update(l, u, e);
    if (rc == ERR_OK)
        rc = lower_finish(l, e);
    if (rc == ERR_OK)
        *out = l;
    else
        lowered_free(l);
    return rc;
}

/* ---- looking at one ---- */

const struct kern_program *lowered_program(const struct lowered *l)
{
    return &l->program;
}

const struct plan_report *lowered_report(const struct lowered *l)
{
    return &l->report;
}

void lowered_lifetime(const struct lowered *l, int buf, int *first, int *last)
{
    *first = l->buf[buf].first;
    *last = l->buf[buf].last;
}

static const char *const code_names[KERN_CODES] = {
    [KERN_FUSED] = "fused",
    [KERN_MATMUL] = "matmul",
    [KERN_REDUCE] = "reduce",
    [KERN_ARGMAX] = "argmax",
    [KERN_TOPK] = "topk",
    [KERN_CUMSUM] = "cumsum",
    [KERN_TAKE] = "take",
    [KERN_TAKE_GRAD] = "take_grad",
    [KERN_TAKE_ALONG] = "take_along",
    [KERN_SCATTER_ADD] = "scatter_add",
    [KERN_SOFTMAX] = "softmax",
    [KERN_LOG_SOFTMAX] = "log_softmax",
    [KERN_LOGSUMEXP] = "logsumexp",
    [KERN_LAYER_NORM] = "layer_norm",
    [KERN_LAYER_NORM_GRAD] = "layer_norm_grad",
    [KERN_RMS_NORM] = "rms_norm",
    [KERN_RMS_NORM_GRAD] = "rms_norm_grad",
    [KERN_XENT] = "xent",
    [KERN_XENT_GRAD] = "xent_grad",
    [KERN_GRAD_NORM] = "grad_norm",
    [KERN_PROLOGUE] = "prologue",
    [KERN_SGD] = "sgd",
    [KERN_ADAM] = "adam",
};

static const char *const space_names[KERN_SPACES] = {"arena", "param", "grad",   "state", "buffer",
                                                     "step",  "input", "result", "const"};

static void print_buf(const struct lowered *l, int b, struct str *out)
{
    const struct kern_buf *kb = &l->buf[b].kb;

    if (b >= 0)
        str_addf(out, " %d:%s+%lld[%lld]", b, space_names[kb->space], (long long)kb->offset,
                 (long long)kb->count);
}

void lowered_print(const struct lowered *l, struct str *out)
{
    for (int i = 0; i < l->n_ops; i++) {
        const struct kern_op *op = &l->op[i];

        str_addf(out, "%4d %-12s", i, code_names[op->code]);
        for (int k = 0; k < KERN_IN; k++)
            print_buf(l, op->in[k], out);
        if (op->code == KERN_FUSED)
            for (int v = 0; v < op->u.fused.n_views; v++)
                print_buf(l, op->u.fused.views[v].buf, out);
        str_add(out, " ->");
        for (int k = 0; k < KERN_OUT; k++)
            print_buf(l, op->out[k], out);
        if (op->code == KERN_FUSED)
            str_addf(out, " (%d insns, %d regs)", op->u.fused.n_insns, op->u.fused.n_regs);
        str_addf(out, "  %s\n", op->label ? op->label : "");
    }
}

/* ---- running ---- */

struct plan {
    const struct device *d;
    struct kern_plan *kp;
    int64_t arena_bytes;
};

static enum err_code check_support(const struct device *d, const struct lowered *l, struct err *e)
{
    char why[256] = "";

    for (int i = 0; i < l->n_ops; i++)
        if (!d->be->supports(d->dev, &l->program, &l->op[i], why, sizeof why))
            return err_set(e, ERR_DEVICE, "%s cannot run %s (%s): %s", d->name,
                           code_names[l->op[i].code], l->op[i].label ? l->op[i].label : "?", why);
    return ERR_OK;
}

enum err_code plan_compile(const struct device *d, const struct lowered *l, struct plan **out,
                           struct err *e)
{
    struct plan *p = mem_zalloc(sizeof *p);
    struct kern_err ke = {0};
    enum kern_status st;
    enum err_code rc;

    *out = NULL;
    if (!p)
        return err_set(e, ERR_NOMEM, "plan: out of memory");
    p->d = d;
    p->arena_bytes = l->program.space_bytes[KERN_ARENA];
    rc = check_support(d, l, e);
    if (rc == ERR_OK) {
        st = d->be->plan_new(d->dev, &l->program, &p->kp, &ke);
        rc = device_err(st, &ke, "plan", e);
    }
    if (rc == ERR_OK)
        *out = p;
    else
        mem_free(p);
    return rc;
}

void plan_free(struct plan *p)
{
    if (!p)
        return;
    p->d->be->plan_free(p->kp);
    mem_free(p);
}

enum err_code plan_run(struct plan *p, const struct kern_bind *b, const struct kern_hyper *h,
                       struct err *e)
{
    struct kern_err ke;

    ke.msg[0] = 0;
    return device_err(p->d->be->plan_run(p->kp, b, h, &ke), &ke, "run", e);
}

int64_t plan_arena_bytes(const struct plan *p)
{
    return p->arena_bytes;
}
