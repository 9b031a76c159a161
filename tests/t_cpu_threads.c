/* Every family of the CPU backend gives the same bits from 1, 2, 3 and 7 threads, writes all of its
 * results, and reads nothing that was not written: each run finds other bytes in its results'
 * memory, and poison in fresh memory or none. (Matrix products: t_matmul.c.) */
#include "tests/kern_util.h"

static const struct {
    int threads;
    bool poison;
    int stale; /* bytes that lie in the results before the run */
} runs[] = {{1, false, 0x00}, {2, true, 0xff}, {3, false, 0x55}, {7, true, 0xff}};
enum { RUNS = sizeof runs / sizeof *runs };

static struct kt_dev cpu;
static struct kt t;

/* ---- running ---- */

static bool run_as(int run, int which, int steps)
{
    const struct kern_devopts o = {.threads = runs[run].threads, .poison = runs[run].poison};
    struct kt_dev k = cpu;
    struct kern_err e = {KERN_OK, ""};
    bool good;

    if (k.b->open(0, &o, &k.d, &e) != KERN_OK) {
        note("%d threads: %s", o.threads, e.msg);
        return false;
    }
    for (int b = 0; b < t.p.n_bufs; b++)
        if (t.buf[b].space == KERN_RESULT)
            memset(t.init[b], runs[run].stale, kt_bytes(&t, b));
    good = kt_run_steps(&k, &t, which, steps, NULL);
    k.b->close(k.d);
    return good;
}

/* First buffer whose contents differ between the two runs held; -1: none. */
static int first_difference(void)
{
    for (int b = 0; b < t.p.n_bufs; b++)
        if (t.init[b] && memcmp(t.got[0][b], t.got[1][b], kt_bytes(&t, b)) != 0)
            return b;
    return -1;
}

static void same_bits(int steps, const char *what)
{
    bool same = run_as(0, 0, steps);

    for (int i = 1; same && i < RUNS; i++) {
        same = run_as(i, 1, steps);
        if (same && first_difference() >= 0) {
            note("%s: buffer %d differs with %d threads", what, first_difference(),
                 runs[i].threads);
            same = false;
        }
    }
    ok(same, "%s: the same bits from 1, 2, 3 and 7 threads", what);
}

/* ---- fused: strides, draws, indices ---- */

static int draw(struct kern_fused *f, enum kern_insn_code code, enum dtype type, bool per_sample)
{
    return kt_insn(&t, f,
                   (struct kern_insn){.code = (uint8_t)code,
                                      .type = (uint8_t)type,
                                      .a = -1,
                                      .b = -1,
                                      .c = -1,
                                      .stream = 5,
                                      .per_sample = per_sample});
}

static void test_fused(void)
{
    const int64_t rows = 419, cols = 977;
    struct kern_fused *f;
    int x, y, bits, flipped, sum;

    kt_begin(&t);
    t.h.sample_base = 3;
    x = kt_rand(&t, KERN_INPUT, rows * cols, -3, 3, 1);
    y = kt_out(&t, DT_F32, rows * cols);
    bits = kt_out(&t, DT_I32, rows * cols);
    flipped = kt_out(&t, DT_F32, rows * cols);
    f = kt_fused(&t, 2, rows, cols, 0);
    sum = kt_ew(&t, f, EW_MUL, DT_F32,
                kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 1, rows, 0)), /* a column-major x */
                draw(f, KERN_I_UNIFORM, DT_F32, true), -1);
    sum = kt_ew(&t, f, EW_SIGMOID, DT_F32, sum, -1, -1);
    kt_store(&t, f, DT_F32, sum, kt_view(&t, f, y, 0, cols, 1, 0));
    kt_store(&t, f, DT_I32, draw(f, KERN_I_BITS, DT_I32, false),
             kt_view(&t, f, bits, 0, cols, 1, 0));
    sum = kt_ew(
        &t, f, EW_ADD, DT_F32, sum,
        kt_insn(&t, f,
                (struct kern_insn){
                    .code = KERN_I_IOTA, .type = DT_F32, .axis = 1, .a = -1, .b = -1, .c = -1}),
        -1);
    kt_store(&t, f, DT_F32, sum, kt_view(&t, f, flipped, rows * cols - 1, -cols, -1, 0));
    same_bits(1, "a fused group of strides, draws and indices");
}

/* ---- one axis ---- */

static const struct kern_axis axes[] = {{.outer = 517, .n = 771, .inner = 1},
                                        {.outer = 1, .n = 517, .inner = 771},
                                        {.outer = 1, .n = 400003, .inner = 1},
                                        {.outer = 3, .n = 40001, .inner = 5}};
enum { AXES = sizeof axes / sizeof *axes };

static struct kern_axis *add_axis(enum kern_code code, int in, int out, struct kern_axis a)
{
    struct kern_op *op = kt_op(&t, code, "axis");

    op->in[0] = in;
    op->out[0] = out;
    op->u.axis = a;
    return &op->u.axis;
}

static int64_t axis_all(struct kern_axis a)
{
    return a.outer * a.n * a.inner;
}

static void test_reduce(void)
{
    kt_begin(&t);
    for (int i = 0; i < AXES; i++) {
        const int64_t rows = axes[i].outer * axes[i].inner;
        const int x = kt_rand(&t, KERN_INPUT, axis_all(axes[i]), 0.5f, 1.5f, (uint32_t)i);
        for (int how = KERN_SUM; how <= KERN_PROD; how++)
            add_axis(KERN_REDUCE, x, kt_out(&t, DT_F32, rows), axes[i])->reduce =
                (enum kern_reduce)how;
        add_axis(KERN_ARGMAX, x, kt_out(&t, DT_I32, rows), axes[i]);
    }
    same_bits(1, "sum, max, min, prod and argmax");
}

static void test_scan(void)
{
    kt_begin(&t);
    for (int i = 0; i < AXES; i++) {
        const int64_t all = axis_all(axes[i]);
        const int x = kt_rand(&t, KERN_INPUT, all, -1, 1, (uint32_t)i);
        struct kern_axis *a = add_axis(KERN_CUMSUM, x, kt_out(&t, DT_F32, all), axes[i]);
        a->reverse = i % 2;
        a->exclusive = i / 2;
        if (axes[i].inner == 1)
            add_axis(KERN_TOPK, x, kt_out(&t, DT_I32, axes[i].outer * 7), axes[i])->k = 7;
    }
    same_bits(1, "running sums and the seven largest");
}

/* A row, and a column, of nothing but -inf among the others. */
static void test_softmax(void)
{
    static const enum kern_code codes[] = {KERN_SOFTMAX, KERN_LOG_SOFTMAX, KERN_LOGSUMEXP};

    kt_begin(&t);
    for (int i = 0; i < AXES; i++) {
        const struct kern_axis a = axes[i];
        const int x = kt_rand(&t, KERN_INPUT, axis_all(a), -9, 9, (uint32_t)i);
        for (int64_t k = 0; k < a.n && a.outer * a.inner > 1; k++)
            ((float *)t.init[x])[k * a.inner] = -INFINITY;
        for (int c = 0; c < 3; c++)
            add_axis(
                codes[c], x,
                kt_out(&t, DT_F32, codes[c] == KERN_LOGSUMEXP ? a.outer * a.inner : axis_all(a)),
                a);
    }
    same_bits(1, "softmax, its logarithm, logsumexp");
}

/* ---- indices: few rows, so that every one is named many times ---- */

static void test_index(void)
{
    static const struct kern_axis shapes[] = {
        {.outer = 1, .n = 97, .inner = 33, .k = 20011},
        {.outer = 2, .n = 5003, .inner = 301, .k = 257},
        {.outer = 7, .n = 31, .inner = 1, .k = 9001},
    };

    kt_begin(&t);
    for (int i = 0; i < 3; i++) {
        const struct kern_axis a = shapes[i];
        const int64_t full = axis_all(a), part = a.outer * a.k * a.inner;
        const int table = kt_rand(&t, KERN_INPUT, full, -1, 1, 1);
        const int src = kt_rand(&t, KERN_INPUT, part, -1, 1, 2);
        const int list = kt_rand_i(&t, a.k, 0, (int32_t)a.n, 3);
        const int each = kt_rand_i(&t, part, 0, (int32_t)a.n, 4);
        add_axis(KERN_TAKE, table, kt_out(&t, DT_F32, part), a);
        t.op[t.p.n_ops - 1].in[1] = list;
        add_axis(KERN_TAKE_GRAD, src, kt_out(&t, DT_F32, full), a);
        t.op[t.p.n_ops - 1].in[1] = list;
        add_axis(KERN_TAKE_ALONG, table, kt_out(&t, DT_F32, part), a);
        t.op[t.p.n_ops - 1].in[1] = each;
        add_axis(KERN_SCATTER_ADD, table, kt_out(&t, DT_F32, full), a);
        t.op[t.p.n_ops - 1].in[1] = each;
        t.op[t.p.n_ops - 1].in[2] = src;
    }
    same_bits(1, "taking and adding by repeated indices");
}

/* ---- cross-entropy ---- */

static void add_xent(int64_t rows, int64_t cols, int smoothing)
{
    const struct kern_xent attr = {.rows = rows, .cols = cols, .has_ignore = true, .ignore = 3};
    const int x = kt_rand(&t, KERN_INPUT, rows * cols, -9, 9, 1);
    const int label = kt_rand_i(&t, rows, 0, (int32_t)cols, 2);
    const int lse = kt_out(&t, DT_F32, rows);
    struct kern_op *op = kt_op(&t, KERN_XENT, "xent");

    op->in[0] = x;
    op->in[1] = label;
    op->in[2] = smoothing;
    op->out[0] = kt_out(&t, DT_F32, rows);
    op->out[1] = lse;
    op->u.xent = attr;
    op = kt_op(&t, KERN_XENT_GRAD, "xent_grad");
    op->in[0] = x;
    op->in[1] = label;
    op->in[2] = smoothing;
    op->in[3] = lse;
    op->in[4] = kt_rand(&t, KERN_INPUT, rows, 0, 1, 3);
    op->out[0] = kt_out(&t, DT_F32, rows * cols);
    op->u.xent = attr;
}

static void test_xent(void)
{
    kt_begin(&t);
    add_xent(20011, 13, kt_rand(&t, KERN_CONST, 1, 0.125f, 0.25f, 9));
    add_xent(31, 10007, -1);
    same_bits(1, "cross-entropy and its gradient");
}

/* ---- norms: out[1] of RMS norm is what out[2] is of layer norm ---- */

static void add_norm(int64_t rows, int64_t cols, bool layer)
{
    const struct kern_norm attr = {.rows = rows, .cols = cols, .eps = 1e-5f};
    const int x = kt_rand(&t, KERN_INPUT, rows * cols, -3, 5, 1);
    const int gain = kt_rand(&t, KERN_PARAM, cols, -1, 1, 2);
    const int mean = kt_out(&t, DT_F32, rows), rstd = kt_out(&t, DT_F32, rows);
    struct kern_op *op = kt_op(&t, layer ? KERN_LAYER_NORM : KERN_RMS_NORM, "norm");

    op->in[0] = x;
    op->in[1] = gain;
    op->out[0] = kt_out(&t, DT_F32, rows * cols);
    op->out[1] = layer ? mean : rstd;
    op->out[2] = layer ? rstd : -1;
    op->u.norm = attr;
    op = kt_op(&t, layer ? KERN_LAYER_NORM_GRAD : KERN_RMS_NORM_GRAD, "norm_grad");
    op->in[0] = kt_rand(&t, KERN_INPUT, rows * cols, -1, 1, 3);
    op->in[1] = x;
    op->in[2] = gain;
    op->in[3] = layer ? mean : rstd;
    op->in[4] = layer ? rstd : -1;
    op->out[0] = kt_out(&t, DT_F32, rows * cols);
    op->out[1] = kt_out(&t, DT_F32, cols);
    op->out[2] = layer ? kt_out(&t, DT_F32, cols) : -1;
    op->u.norm = attr;
    if (!layer) /* nothing writes it */
        t.buf[mean].count = 0;
}

static void test_norm(void)
{
    for (int layer = 0; layer < 2; layer++) {
        kt_begin(&t);
        add_norm(517, 771, layer);
        add_norm(20011, 17, layer);
        add_norm(3, 70001, layer);
        same_bits(1, layer ? "layer norm and its gradient" : "RMS norm and its gradient");
    }
}

/* ---- the update, three steps of it ---- */

static const struct kern_segment segments[] = {{.begin = 0, .count = 100003},
                                               {.begin = 100032, .count = 77777, .group = 1},
                                               {.begin = 177856, .count = 5, .group = 2}};
enum { PARAMS = 177861 };

static struct kern_opt opt_attr(void)
{
    return (struct kern_opt){.segments = segments,
                             .n_segments = 3,
                             .lr = 0,
                             .weight_decay = 3,
                             .momentum = 6,
                             .beta1 = 7,
                             .beta2 = 8,
                             .eps = 9,
                             .clip = 10};
}

/* Norm and prologue; returns the step block. */
static int add_prologue(int grad)
{
    static const double state[4] = {0, 1, 1, 0};
    const int norm = kt_out(&t, DT_F32, 1), block = kt_out(&t, DT_F32, 4);
    struct kern_op *op = kt_op(&t, KERN_GRAD_NORM, "grad_norm");

    op->in[0] = grad;
    op->out[0] = norm;
    op->u.opt = opt_attr();
    op = kt_op(&t, KERN_PROLOGUE, "prologue");
    op->in[0] = norm;
    op->in[1] = kt_buf(&t, KERN_STATE, DT_F64, 4, state);
    op->out[0] = block;
    op->u.opt = opt_attr();
    return block;
}

static void test_update(enum kern_code code, bool other, const char *what)
{
    static const float slots[] = {1e-2f, 2e-2f, 3e-2f, 0.1f,  0.2f,   0,
                                  0.9f,  0.9f,  0.99f, 1e-8f, 100.0f, 0};
    struct kern_op *op;
    int grad, block;

    kt_begin(&t);
    memcpy(t.h.value, slots, sizeof slots);
    grad = kt_rand(&t, KERN_GRAD, PARAMS, -1, 1, 1);
    block = add_prologue(grad);
    op = kt_op(&t, code, "update");
    op->in[0] = kt_rand(&t, KERN_PARAM, PARAMS, -1, 1, 2);
    op->in[1] = grad;
    op->in[2] = block;
    if (code == KERN_ADAM || other)
        op->in[3] = kt_buf(&t, KERN_STATE, DT_F32, PARAMS, NULL);
    if (code == KERN_ADAM)
        op->in[4] = kt_buf(&t, KERN_STATE, DT_F32, PARAMS, NULL);
    op->u.opt = opt_attr();
    op->u.opt.nesterov = op->u.opt.decoupled = other;
    same_bits(3, what);
    ok(memcmp(t.got[0][op->in[0]], t.init[op->in[0]], kt_bytes(&t, op->in[0])) != 0 &&
           ((float *)t.got[0][op->in[0]])[100010] == ((float *)t.init[op->in[0]])[100010],
       "%s: the segments move, what lies between them stays", what);
}

int main(void)
{
    if (ok(kt_open(&cpu, "cpu"), "the plugin opens")) {
        test_fused();
        test_reduce();
        test_scan();
        test_softmax();
        test_index();
        test_xent();
        test_norm();
        test_update(KERN_SGD, false, "SGD");
        test_update(KERN_SGD, true, "SGD with Nesterov momentum");
        test_update(KERN_ADAM, false, "Adam");
        test_update(KERN_ADAM, true, "AdamW");
        kt_begin(&t);
    }
    kt_close(&cpu);
    return tap_done();
}
