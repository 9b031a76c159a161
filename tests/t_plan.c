/* A planned run gives the same bits as a run where every tensor has memory of its own, and no two
 * live tensors overlap. */
#include "engine/plan/plan.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "kernels/philox.h"

enum { DAGS = 400, INPUTS = 4, MAX_ROOTS = 6 };

/* ---- random graphs ---- */

struct dice {
    uint32_t stream, n;
};

static uint32_t roll(struct dice *d, uint32_t sides)
{
    return philox_word(7, PHILOX_SCRIPT, d->stream, 0, d->n++) % sides;
}

static const struct shape shapes[] = {{.rank = 2, .dim = {6, 5}},    {.rank = 2, .dim = {5, 7}},
                                      {.rank = 1, .dim = {5}},       {.rank = 0},
                                      {.rank = 3, .dim = {2, 6, 5}}, {.rank = 2, .dim = {33, 65}}};

/* One more node on top of a random one; -1 when the dice ask for what does not fit. */
static int grow(struct graph *g, struct dice *d)
{
    int x = (int)roll(d, (uint32_t)graph_count(g)), y = (int)roll(d, (uint32_t)graph_count(g));
    const struct shape s = graph_node(g, x)->shape;
    struct op_attr a = {0};
    int perm[SHAPE_RANK] = {0};
    static const enum ew unary[] = {EW_NEG,  EW_ABS, EW_TANH, EW_SIGMOID,
                                    EW_RELU, EW_SIN, EW_COS,  EW_EXP};
    static const enum ew binary[] = {EW_ADD, EW_SUB, EW_MUL, EW_MAX, EW_MIN};

    if (graph_node(g, x)->dtype != DT_F32 || graph_node(g, y)->dtype != DT_F32)
        return -1;
    switch (roll(d, 16)) {
    case 0:
    case 1:
    case 2:
        /* kept small: exp of exp of exp says nothing */
        return graph_scalar_op(g, (enum op)EW_MUL,
                               graph_unary(g, (enum op)unary[roll(d, 8)],
                                           graph_unary(g, (enum op)EW_TANH, x, NULL), NULL),
                               0.5, false, NULL);
    case 3:
    case 4:
    case 5:
        return graph_binary(g, (enum op)binary[roll(d, 5)], x, y, NULL);
    case 6:
        return graph_select(g, graph_binary(g, (enum op)EW_LT, x, y, NULL), x,
                            graph_scalar_op(g, (enum op)EW_MUL, x, 1.0005, false, NULL),
                            NULL); /* a tie broken otherwise must not show */
    case 7:
        return graph_matmul(g, x, y, roll(d, 2), roll(d, 2), NULL);
    case 8:
        return s.rank ? graph_reduce(g, roll(d, 2) ? OP_SUM : OP_RMAX, x,
                                     1u << roll(d, (uint32_t)s.rank), roll(d, 2), NULL)
                      : -1;
    case 9:
        for (int i = 0; i < s.rank; i++)
            perm[i] = s.rank - 1 - i;
        return graph_permute(g, x, perm, NULL);
    case 10:
        return graph_reshape(g, x, &(struct shape){.rank = 1, .dim = {-1}}, NULL);
    case 11:
        if (s.rank == 0)
            return -1;
        a.axis = s.rank - 1;
        return graph_add(g, OP_SOFTMAX, &x, 1, &a, NULL);
    case 12:
        if (s.rank == 0)
            return -1;
        for (int i = 0; i < s.rank; i++) {
            a.start[i] = roll(d, 2);
            a.stop[i] = s.dim[i];
            a.step[i] = 1 + roll(d, 2);
        }
        return graph_add(g, OP_SLICE, &x, 1, &a, NULL);
    case 13:
        a.start[0] = s.rank ? 1 : 0;
        a.value = 0.25;
        return s.rank ? graph_add(g, OP_PAD, &x, 1, &a, NULL) : -1;
    case 14:
        return s.rank ? graph_add(g, OP_CONCAT, (int[]){x, x}, 2, &a, NULL) : -1;
    default:
        a.axes = s.rank ? 1u : 0;
        return graph_add(g, OP_FLIP, &x, 1, &a, NULL);
    }
}

static struct graph *random_graph(uint32_t seed, int *roots, int *n_roots)
{
    struct dice d = {.stream = seed};
    struct graph *g = graph_new();
    int want = 8 + (int)roll(&d, 60);

    for (int i = 0; i < INPUTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "i%d", i);
        graph_input(g, name, &shapes[roll(&d, sizeof shapes / sizeof *shapes)], DT_F32, NULL);
    }
    for (int i = 0; i < 300 && graph_count(g) < want; i++)
        grow(g, &d);
    *n_roots = 0;
    for (int i = graph_count(g) - 1; i >= INPUTS && *n_roots < MAX_ROOTS; i -= 1 + (int)roll(&d, 7))
        if (graph_node(g, i)->dtype == DT_F32 && shape_count(&graph_node(g, i)->shape) < 100000)
            roots[(*n_roots)++] = i;
    return g;
}

/* ---- running one ---- */

struct run {
    float *out;
    int64_t count;
    bool ok;
};

static struct run run_plan(const struct device *dev, const struct graph *g, const int *roots,
                           int n_roots, bool no_reuse, bool no_fuse, bool accumulate)
{
    struct plan_leaf leaf[INPUTS];
    struct plan_root root[MAX_ROOTS];
    struct plan_request req = {.graph = g,
                               .leaves = leaf,
                               .roots = root,
                               .n_roots = n_roots,
                               .no_reuse = no_reuse,
                               .no_fuse = no_fuse};
    struct lowered *low = NULL;
    struct plan *plan = NULL;
    struct device_mem in, arena, out;
    struct kern_bind bind = {0};
    static struct kern_hyper hyper;
    struct run r = {0};
    struct err e = {0};
    int64_t at = 0, out_at = 0;
    float *values;

    for (int i = 0; i < graph_count(g); i++)
        if (graph_node(g, i)->op == OP_INPUT) {
            leaf[req.n_leaves++] = (struct plan_leaf){graph_node(g, i)->name, KERN_INPUT, at};
            at += (shape_count(&graph_node(g, i)->shape) * 4 + 255) / 256 * 256;
        }
    for (int i = 0; i < n_roots; i++) {
        root[i] = (struct plan_root){
            .node = roots[i], .space = KERN_RESULT, .offset = out_at, .accumulate = accumulate};
        out_at += (shape_count(&graph_node(g, roots[i])->shape) * 4 + 255) / 256 * 256;
    }
    values = mem_array((size_t)at / 4 + 1, 4);
    for (int64_t i = 0; i < at / 4; i++)
        values[i] = philox_uniform(philox_word(3, PHILOX_SCRIPT, 1, 0, (uint64_t)i)) * 2 - 1;
    if (plan_lower(&req, &low, &e) != ERR_OK || plan_compile(dev, low, &plan, &e) != ERR_OK) {
        note("%s", e.msg);
        lowered_free(low);
        mem_free(values);
        return r;
    }
    device_mem_new(dev, at, &in, &e);
    device_mem_new(dev, out_at, &out, &e);
    device_mem_new(dev, plan_arena_bytes(plan), &arena, &e);
    device_zero(&out, &e);
    device_put(&in, 0, DT_F32, at / 4, values, &e);
    bind.mem[KERN_INPUT] = in.mem;
    bind.mem[KERN_RESULT] = out.mem;
    bind.mem[KERN_ARENA] = arena.mem;
    r.count = out_at / 4;
    r.out = mem_array((size_t)r.count + 1, 4);
    r.ok = true;
    for (int k = 0; k < (accumulate ? 2 : 1); k++)
        r.ok = plan_run(plan, &bind, &hyper, &e) == ERR_OK && r.ok;
    r.ok = device_get(&out, 0, DT_F32, r.count, r.out, &e) == ERR_OK &&
           device_sync(dev, &e) == ERR_OK && r.ok;
    if (!r.ok)
        note("%s", e.msg);
    plan_free(plan);
    lowered_free(low);
    device_mem_free(&in);
    device_mem_free(&out);
    device_mem_free(&arena);
    mem_free(values);
    return r;
}

static bool same_bits(const struct run *a, const struct run *b)
{
    return a->ok && b->ok && a->count == b->count &&
           memcmp(a->out, b->out, (size_t)a->count * 4) == 0;
}

static double worst(const struct run *a, const struct run *b)
{
    double w = 0;

    for (int64_t i = 0; a->ok && b->ok && i < a->count; i++) {
        double d = fabs((double)a->out[i] - (double)b->out[i]) / fmax(1, fabs((double)b->out[i]));
        if (!(d <= w))
            w = d;
    }
    return a->ok && b->ok ? w : INFINITY;
}

/* ---- no two live buffers overlap ---- */

static bool overlap(const struct lowered *l, int a, int b)
{
    const struct kern_buf *x = &lowered_program(l)->bufs[a], *y = &lowered_program(l)->bufs[b];
    int64_t xe = x->offset + x->count * dtype_size(x->dtype),
            ye = y->offset + y->count * dtype_size(y->dtype);
    int fa, la, fb, lb;

    if (x->space != KERN_ARENA || y->space != KERN_ARENA)
        return false;
    lowered_lifetime(l, a, &fa, &la);
    lowered_lifetime(l, b, &fb, &lb);
    if (fa < 0 || fb < 0 || la < fb || lb < fa || xe <= y->offset || ye <= x->offset)
        return false;
    /* in place: one ends in the op in which the other begins, at the very same bytes */
    return !((la == fb || lb == fa) && x->offset == y->offset && xe == ye);
}

static int overlaps(const struct graph *g, const int *roots, int n_roots)
{
    struct plan_leaf leaf[INPUTS];
    struct plan_root root[MAX_ROOTS];
    struct plan_request req = {.graph = g, .leaves = leaf, .roots = root, .n_roots = n_roots};
    struct lowered *l = NULL;
    int found = 0;

    for (int i = 0; i < graph_count(g); i++)
        if (graph_node(g, i)->op == OP_INPUT)
            leaf[req.n_leaves++] = (struct plan_leaf){graph_node(g, i)->name, KERN_INPUT, 0};
    for (int i = 0; i < n_roots; i++)
        root[i] = (struct plan_root){.node = roots[i], .space = KERN_RESULT};
    if (plan_lower(&req, &l, NULL) != ERR_OK)
        return -1;
    for (int a = 0; a < lowered_program(l)->n_bufs; a++)
        for (int b = 0; b < a; b++)
            found += overlap(l, a, b);
    lowered_free(l);
    return found;
}

static void random_dags(const struct device *cpu, const struct device *ref)
{
    int broken = 0, differ = 0, fused = 0, wrong = 0, added = 0, live = 0;
    double most = 0;

    for (uint32_t seed = 0; seed < DAGS; seed++) {
        int roots[MAX_ROOTS], n_roots;
        struct graph *g = random_graph(seed, roots, &n_roots);
        struct run a, b, c, d, twice;

        if (seed % 2 && graph_optimize(g, roots, n_roots, NULL) != ERR_OK)
            broken++;
        a = run_plan(cpu, g, roots, n_roots, false, false, false);
        b = run_plan(cpu, g, roots, n_roots, true, false, false);
        c = run_plan(cpu, g, roots, n_roots, false, true, false);
        d = run_plan(ref, g, roots, n_roots, false, false, false);
        twice = run_plan(cpu, g, roots, n_roots, false, false, true);
        broken += !a.ok;
        differ += !same_bits(&a, &b);
        fused += worst(&c, &a) > 1e-4;
        if (worst(&a, &d) > 1e-3) {
            wrong++;
            note("graph %u: off the reference by %g", seed, worst(&a, &d));
        }
        most = fmax(most, worst(&a, &d));
        for (int64_t i = 0; twice.ok && i < a.count; i++)
            a.out[i] *= 2;
        added += worst(&twice, &a) > 1e-5;
        live += overlaps(g, roots, n_roots) != 0;
        mem_free(a.out);
        mem_free(b.out);
        mem_free(c.out);
        mem_free(d.out);
        mem_free(twice.out);
        graph_free(g);
    }
    ok(broken == 0, "%d random graphs run", DAGS);
    ok(live == 0, "no two live tensors overlap");
    ok(differ == 0, "reused memory and own memory give the same bits");
    ok(fused == 0, "fused and unfused agree to 1e-4");
    ok(wrong == 0, "the reference agrees to 1e-3 (worst %.2g)", most);
    ok(added == 0, "accumulating roots add: two runs give twice the value");
}

/* ---- what fuses ---- */

static void linear_is_one_op(void)
{
    struct graph *g = graph_new();
    int x = graph_input(g, "i0", &(struct shape){.rank = 2, .dim = {4, 8}}, DT_F32, NULL);
    int w = graph_param(g, "w", &(struct shape){.rank = 2, .dim = {3, 8}}, NULL),
        b = graph_param(g, "b", &(struct shape){.rank = 1, .dim = {3}}, NULL);
    int y = graph_unary(
        g, (enum op)EW_RELU,
        graph_binary(g, (enum op)EW_ADD, graph_matmul(g, x, w, false, true, NULL), b, NULL), NULL);
    struct plan_leaf leaf[] = {{"i0", KERN_INPUT, 0}, {"w", KERN_PARAM, 0}, {"b", KERN_PARAM, 256}};
    struct plan_root root = {.node = y, .space = KERN_RESULT};
    struct plan_request req = {
        .graph = g, .leaves = leaf, .n_leaves = 3, .roots = &root, .n_roots = 1};
    struct lowered *l = NULL;
    struct err e = {0};

    ok(plan_lower(&req, &l, &e) == ERR_OK && lowered_program(l)->n_ops == 1,
       "matmul, bias and relu are one op");
    ok(l && lowered_program(l)->ops[0].code == KERN_MATMUL &&
           lowered_program(l)->ops[0].u.matmul.act == KERN_ACT_RELU &&
           lowered_program(l)->ops[0].in[2] >= 0,
       "the product's kernel takes both along");
    ok(l && lowered_report(l)->arena_bytes == 0, "and no activation lies in the arena");
    lowered_free(l);
    req.n_leaves = 1;
    l = NULL;
    ok(plan_lower(&req, &l, &e) == ERR_INTERNAL && l == NULL && strstr(e.msg, "'w'"),
       "a leaf without a place: %s", e.msg);
    graph_free(g);
}

int main(void)
{
    struct device *cpu = NULL, *ref = NULL;
    struct err e = {0};

    linear_is_one_op();
    if (!ok(device_open(&(struct device_opts){.want = "cpu", .threads = 2, .poison = true}, &cpu,
                        &e) == ERR_OK,
            "the cpu backend opens%s%s", *e.msg ? ": " : "", e.msg) ||
        !ok(device_open(&(struct device_opts){.want = "ref"}, &ref, &e) == ERR_OK,
            "the reference opens%s%s", *e.msg ? ": " : "", e.msg))
        return tap_done();
    random_dags(cpu, ref);
    device_free(cpu);
    device_free(ref);
    return tap_done();
}
