/* The CPU backend's own promises: results do not depend on the number of threads, programs that are
 * not right are refused, and draws are those of philox.h. (Its functions: t_cpu_math.c. Against the
 * reference: t_ops*.c.) */
#include "tests/kern_util.h"

static struct kt_dev cpu;
static struct kt t;

/* ---- threads ---- */

/* out: all that the programs below compute, on a device of so many threads. */
static bool run_with(int threads, int which)
{
    struct kt_dev k = cpu;
    struct kern_err e = {KERN_OK, ""};
    bool good;

    if (k.b->open(0, &(struct kern_devopts){.threads = threads}, &k.d, &e) != KERN_OK) {
        note("%d threads: %s", threads, e.msg);
        return false;
    }
    good = kt_run(&k, &t, which);
    k.b->close(k.d);
    return good;
}

static bool same_bits(const char *what)
{
    static const int threads[] = {2, 3, 7};
    bool same = run_with(1, 0);

    for (int i = 0; same && i < 3; i++) {
        same = run_with(threads[i], 1);
        for (int b = 0; same && b < t.p.n_bufs; b++)
            if (t.init[b] && memcmp(t.got[0][b], t.got[1][b], kt_bytes(&t, b)) != 0) {
                note("%s: buffer %d differs with %d threads", what, b, threads[i]);
                same = false;
            }
    }
    return ok(same, "%s: the same bits from 1, 2, 3 and 7 threads", what);
}

static void test_threads_fused(void)
{
    const int64_t rows = 333, cols = 1025;
    struct kern_fused *f;
    int x, bias, y, r;

    kt_begin(&t);
    x = kt_rand(&t, KERN_INPUT, rows * cols, -3, 3, 1);
    bias = kt_rand(&t, KERN_INPUT, cols, -1, 1, 2);
    y = kt_out(&t, DT_F32, rows * cols);
    f = kt_fused(&t, 2, rows, cols, 0);
    r = kt_ew(&t, f, EW_ADD, DT_F32, kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 1, rows, 0)),
              kt_load(&t, f, DT_F32, kt_view(&t, f, bias, 0, 0, 1, 0)), -1);
    r = kt_ew(&t, f, EW_TANH, DT_F32, r, -1, -1);
    r = kt_insn(&t, f,
                (struct kern_insn){.code = KERN_I_DROPOUT,
                                   .type = DT_F32,
                                   .a = (int16_t)r,
                                   .b = (int16_t)kt_const(&t, f, 0.25),
                                   .c = -1,
                                   .stream = 9});
    kt_store(&t, f, DT_F32, r, kt_view(&t, f, y, 0, cols, 1, 0));
    same_bits("a fused group");
}

static void axis(enum kern_code code, int in, int out, int64_t outer, int64_t n, int64_t inner)
{
    struct kern_op *op = kt_op(&t, code, "axis");

    op->in[0] = in;
    op->out[0] = out;
    op->u.axis = (struct kern_axis){.outer = outer, .n = n, .inner = inner, .reduce = KERN_SUM};
}

static void test_threads_rows(void)
{
    const int64_t rows = 517, cols = 771;
    struct kern_op *op;
    int x, dy, mean, rstd, gain;

    kt_begin(&t);
    x = kt_rand(&t, KERN_INPUT, rows * cols, -3, 3, 1);
    dy = kt_rand(&t, KERN_INPUT, rows * cols, -1, 1, 2);
    gain = kt_rand(&t, KERN_PARAM, cols, -1, 1, 3);
    mean = kt_out(&t, DT_F32, rows);
    rstd = kt_out(&t, DT_F32, rows);
    axis(KERN_SOFTMAX, x, kt_out(&t, DT_F32, rows * cols), rows, cols, 1);
    axis(KERN_REDUCE, x, kt_out(&t, DT_F32, rows), rows, cols, 1);
    axis(KERN_REDUCE, x, kt_out(&t, DT_F32, cols), 1, rows, cols);
    axis(KERN_REDUCE, x, kt_out(&t, DT_F32, 1), 1, rows * cols, 1);
    op = kt_op(&t, KERN_LAYER_NORM, "norm");
    op->in[0] = x;
    op->in[1] = gain;
    op->out[0] = kt_out(&t, DT_F32, rows * cols);
    op->out[1] = mean;
    op->out[2] = rstd;
    op->u.norm = (struct kern_norm){.rows = rows, .cols = cols, .eps = 1e-5f};
    op = kt_op(&t, KERN_LAYER_NORM_GRAD, "norm_grad");
    op->in[0] = dy;
    op->in[1] = x;
    op->in[2] = gain;
    op->in[3] = mean;
    op->in[4] = rstd;
    op->out[0] = kt_out(&t, DT_F32, rows * cols);
    op->out[1] = kt_out(&t, DT_F32, cols);
    op->out[2] = kt_out(&t, DT_F32, cols);
    op->u.norm = (struct kern_norm){.rows = rows, .cols = cols, .eps = 1e-5f};
    same_bits("softmax, sums, layer norm and its gradient");
}

static void test_threads_matmul(void)
{
    const int64_t m = 197, n = 131, k = 259;
    static const struct kern_segment segments[] = {{.begin = 0, .count = 100000},
                                                   {.begin = 100032, .count = 77777}};
    struct kern_op *op;

    kt_begin(&t);
    op = kt_op(&t, KERN_MATMUL, "matmul");
    op->in[0] = kt_rand(&t, KERN_INPUT, 3 * m * k, -1, 1, 1);
    op->in[1] = kt_rand(&t, KERN_INPUT, 3 * k * n, -1, 1, 2);
    op->out[0] = kt_out(&t, DT_F32, 3 * m * n);
    op->u.matmul = (struct kern_matmul){.batch = 3,
                                        .m = m,
                                        .n = n,
                                        .k = k,
                                        .lda = k,
                                        .ldb = n,
                                        .ldc = n,
                                        .stride_a = m * k,
                                        .stride_b = k * n,
                                        .stride_c = m * n};
    op = kt_op(&t, KERN_GRAD_NORM, "grad_norm");
    op->in[0] = kt_rand(&t, KERN_GRAD, 200000, -1, 1, 3);
    op->out[0] = kt_buf(&t, KERN_STEP, DT_F32, 1, NULL);
    op->u.opt = (struct kern_opt){.segments = segments, .n_segments = 2};
    same_bits("matmul and the norm of the gradients");
}

/* ---- draws ---- */

static void test_philox(void)
{
    const struct philox zero = philox4x32((struct philox){{0, 0, 0, 0}}, 0, 0);
    const uint32_t f = 0xffffffffu;
    const struct philox ones = philox4x32((struct philox){{f, f, f, f}}, f, f);
    const struct philox pi = philox4x32(
        (struct philox){{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0);

    ok(zero.v[0] == 0x6627e8d5 && zero.v[1] == 0xe169c58d && zero.v[2] == 0xbc57ac4c &&
           zero.v[3] == 0x9b00dbd8,
       "philox4x32-10: the published words for counter and key 0");
    ok(ones.v[0] == 0x408f276d && ones.v[1] == 0x41c83b0e && ones.v[2] == 0xa20bc7c6 &&
           ones.v[3] == 0x6d5451fd,
       "and for all ones");
    ok(pi.v[0] == 0xd16cfe09 && pi.v[1] == 0x94fdcceb && pi.v[2] == 0x5001e420 &&
           pi.v[3] == 0x24126ea1,
       "and for the digits of pi, whose words all differ");
}

static bool dropout_is_philox(float p, uint64_t sample_base)
{
    const int64_t rows = 37, cols = 301; /* odd: tiles begin inside blocks of four */
    struct kern_fused *f;
    int x, y, kept = 0;

    kt_begin(&t);
    t.h.sample_base = sample_base;
    t.h.step = UINT64_C(0x100000007); /* the low word counts */
    x = kt_rand(&t, KERN_INPUT, rows * cols, 1, 2, 1);
    y = kt_out(&t, DT_F32, rows * cols);
    f = kt_fused(&t, 2, rows, cols, 0);
    struct kern_insn n = {.code = KERN_I_DROPOUT,
                          .type = DT_F32,
                          .c = -1,
                          .stream = 77,
                          .per_sample = sample_base > 0};
    n.a = (int16_t)kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, cols, 1, 0));
    n.b = (int16_t)kt_const(&t, f, (double)p);
    kt_store(&t, f, DT_F32, kt_insn(&t, f, n), kt_view(&t, f, y, 0, cols, 1, 0));
    if (!kt_run(&cpu, &t, 0))
        return false;
    for (int64_t i = 0; i < rows * cols; i++) {
        const uint64_t at = (uint64_t)i + sample_base * (uint64_t)cols;
        const uint32_t word = philox_word(t.h.seed, PHILOX_GRAPH, 77, 7, at);
        const bool keep = word >> 8 >= (uint32_t)ceilf(p * 16777216.0f);
        const float got = ((float *)t.got[0][y])[i];
        if (got != (keep ? ((float *)t.init[x])[i] * (1 / (1 - p)) : 0))
            return false;
        kept += keep;
    }
    return fabs((double)kept / (double)(rows * cols) - (1 - (double)p)) < 0.02;
}

/* ---- what is refused ---- */

static const char *const bad_names[] = {"a buffer of a space that does not exist",
                                        "a negative offset",
                                        "an offset inside an element",
                                        "a negative count",
                                        "a buffer that passes its space",
                                        "a count whose bytes overflow",
                                        "an f16 buffer",
                                        "a view of no buffer",
                                        "a view that reaches past its buffer",
                                        "a view that reaches before it",
                                        "a stride that overflows",
                                        "rank 0",
                                        "rank 7",
                                        "a negative dimension",
                                        "dimensions whose product overflows",
                                        "a register that is not set",
                                        "a register out of range",
                                        "an unknown instruction",
                                        "an unknown operation",
                                        "an operand of another type",
                                        "a store over itself",
                                        "an instruction's view out of range",
                                        "a slot out of range",
                                        "65 registers",
                                        "an operation of no code",
                                        "an axis out of range"};

static void spoil(int how, struct kern_fused *f)
{
    struct kern_buf *b = &t.buf[0];
    struct kern_insn *n = &t.insn[0];
    struct kern_view *v = &t.view[0];

    switch (how) {
    case 0:
        b->space = (enum kern_space)KERN_SPACES;
        break;
    case 1:
        b->offset = -256;
        break;
    case 2:
        b->offset = 2;
        break;
    case 3:
        b->count = -1;
        break;
    case 4:
        b->count = 1 << 20;
        break;
    case 5:
        b->count = INT64_MAX / 2;
        break;
    case 6:
        b->dtype = DT_F16;
        break;
    case 7:
        v->buf = 2;
        break;
    case 8:
        v->offset = 1;
        break;
    case 9:
        v->offset = -1;
        break;
    case 10:
        v->stride[0] = INT64_MAX / 2;
        break;
    case 11:
        f->rank = 0;
        break;
    case 12:
        f->rank = KERN_RANK + 1;
        break;
    case 13:
        f->dim[0] = -1;
        break;
    case 14:
        f->rank = 2, f->dim[1] = INT64_MAX / 2;
        break;
    case 15:
        n[1].a = 1;
        break;
    case 16:
        n[0].dst = 2;
        break;
    case 17:
        n[0].code = KERN_I_EW + 1;
        break;
    case 18:
        n[1].ew = EW_COUNT;
        break;
    case 19:
        n[1].type = DT_I32;
        break;
    case 20:
        t.view[1].stride[0] = 0;
        break;
    case 21:
        n[2].view = 2;
        break;
    case 22:
        n[0].code = KERN_I_HYPER, n[0].slot = KERN_HYPER_MAX;
        break;
    case 23:
        f->n_regs = KERN_REGS + 1;
        break;
    case 24:
        t.op[0].code = KERN_CODES;
        break;
    default:
        n[0].code = KERN_I_IOTA, n[0].axis = 1;
        break;
    }
}

/* y = -x over 100 elements; `how` spoils it, or -1. */
static enum kern_status plan_spoiled(int how, struct kern_err *e)
{
    struct kern_plan *plan = NULL;
    enum kern_status rc;
    struct kern_fused *f;
    int x, y, r;

    kt_begin(&t);
    x = kt_rand(&t, KERN_INPUT, 100, 0, 1, 1);
    y = kt_out(&t, DT_F32, 100);
    f = kt_fused(&t, 1, 100, 0, 0);
    r = kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 1, 0, 0));
    r = kt_ew(&t, f, EW_NEG, DT_F32, r, -1, -1);
    kt_store(&t, f, DT_F32, r, kt_view(&t, f, y, 0, 1, 0, 0));
    struct kern_buf keep = t.buf[0];
    spoil(how, f);
    if (how < 0)
        t.buf[0] = keep;
    rc = cpu.b->plan_new(cpu.d, &t.p, &plan, e);
    cpu.b->plan_free(plan);
    t.buf[0] = keep;
    return rc;
}

static void test_refused(void)
{
    const int n = (int)(sizeof bad_names / sizeof *bad_names);

    for (int how = 0; how < n; how++) {
        struct kern_err e = {KERN_OK, ""};
        const enum kern_status rc = plan_spoiled(how, &e);
        ok((rc == KERN_EINVAL || rc == KERN_EUNSUPPORTED) && e.status == rc && e.msg[0],
           "refused: %s: %s", bad_names[how], e.msg);
    }
}

/* A good plan, bound wrongly. */
static void test_bind(void)
{
    struct kern_bind bind = {{NULL}, {0}};
    struct kern_err e = {KERN_OK, ""};
    struct kern_plan *plan = NULL;
    struct kern_fused *f;
    struct kern_mem *m = NULL;
    int y;

    kt_begin(&t);
    y = kt_out(&t, DT_F32, 100);
    f = kt_fused(&t, 1, 100, 0, 0);
    struct kern_insn n = {
        .code = KERN_I_HYPER, .type = DT_F32, .a = -1, .b = -1, .c = -1, .slot = 31};
    kt_store(&t, f, DT_F32, kt_insn(&t, f, n), kt_view(&t, f, y, 0, 1, 0, 0));
    if (!ok(cpu.b->plan_new(cpu.d, &t.p, &plan, &e) == KERN_OK &&
                cpu.b->mem_new(cpu.d, KERN_DEVICE, 512, &m, &e) == KERN_OK,
            "a plan and memory for it"))
        return;
    ok(cpu.b->plan_run(plan, &bind, &t.h, &e) == KERN_EINVAL, "no memory bound: %s", e.msg);
    bind.mem[KERN_RESULT] = m;
    ok(cpu.b->plan_run(plan, &bind, &t.h, &e) == KERN_OK, "memory of just the size");
    bind.base[KERN_RESULT] = KERN_ALIGN;
    ok(cpu.b->plan_run(plan, &bind, &t.h, &e) == KERN_EINVAL, "too little behind the base: %s",
       e.msg);
    bind.base[KERN_RESULT] = 4;
    ok(cpu.b->plan_run(plan, &bind, &t.h, &e) == KERN_EINVAL, "a base that is not aligned");
    bind.base[KERN_RESULT] = 0;
    t.h.n = 31;
    ok(cpu.b->plan_run(plan, &bind, &t.h, &e) == KERN_EINVAL, "a slot that was not given: %s",
       e.msg);
    cpu.b->plan_free(plan);
    cpu.b->mem_free(m);
}

static void test_memory(void)
{
    struct kern_err e = {KERN_OK, ""};
    struct kern_mem *m = NULL;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};

    if (!ok(cpu.b->mem_new(cpu.d, KERN_PINNED, 16, &m, &e) == KERN_OK, "16 bytes"))
        return;
    ok(cpu.b->copy_out(m, 0, DT_F32, 4, y, &e) == KERN_OK && isnan(y[0]) && isnan(y[3]),
       "new memory is poisoned when asked");
    ok(cpu.b->copy_in(m, 0, DT_F32, 4, x, &e) == KERN_OK &&
           cpu.b->fill_zero(m, 4, 4, &e) == KERN_OK &&
           cpu.b->copy_out(m, 0, DT_F32, 4, y, &e) == KERN_OK && y[0] == 1 && y[1] == 0 &&
           y[3] == 4,
       "copies in, zeros, copies out");
    ok(cpu.b->copy_in(m, 4, DT_F32, 4, x, &e) == KERN_EINVAL, "past the end: %s", e.msg);
    ok(cpu.b->copy_in(m, -4, DT_F32, 1, x, &e) == KERN_EINVAL, "before the beginning");
    ok(cpu.b->copy_out(m, 0, DT_F32, INT64_MAX / 2, y, &e) == KERN_EINVAL,
       "a count that overflows");
    ok(cpu.b->fill_zero(m, 12, 8, &e) == KERN_EINVAL, "zeros past the end");
    cpu.b->mem_free(m);
    ok(cpu.b->mem_new(cpu.d, KERN_DEVICE, -1, &m, &e) == KERN_EINVAL, "negative bytes: %s", e.msg);
    ok(cpu.b->mem_new(cpu.d, KERN_DEVICE, INT64_MAX / 2, &m, &e) == KERN_ENOMEM && !m,
       "more than there is: %s", e.msg);
}

static void test_device(void)
{
    struct kern_devinfo info[2];
    struct kern_err e = {KERN_OK, ""};
    struct kern_dev *d = NULL;
    char line[512], why[256] = "";

    ok(cpu.b->enumerate(info, 2) == 1 && info[0].usable && info[0].name[0], "one device: %s",
       info[0].name);
    cpu.b->describe(cpu.d, line, sizeof line);
    ok(strstr(line, "2 threads") && strstr(line, "oneDNN "), "described: %s", line);
    ok(cpu.b->open(1, NULL, &d, &e) == KERN_EINVAL && !d, "a second device: %s", e.msg);
    ok(cpu.b->open(0, &(struct kern_devopts){.threads = -1}, &d, &e) == KERN_EINVAL,
       "-1 threads: %s", e.msg);
    kt_begin(&t);
    struct kern_op *op = kt_op(&t, KERN_SOFTMAX, "softmax");
    op->in[0] = kt_in(&t, DT_F32, 4, NULL);
    op->out[0] = kt_out(&t, DT_F32, 4);
    ok(cpu.b->supports(cpu.d, &t.p, op, why, sizeof why), "f32 is supported");
    t.buf[0].dtype = DT_BF16;
    ok(!cpu.b->supports(cpu.d, &t.p, op, why, sizeof why) && strstr(why, "bf16"), "bf16 is not: %s",
       why);
    t.buf[0].dtype = DT_F32;
}

int main(void)
{
    if (ok(kt_open(&cpu, "cpu"), "the plugin opens")) {
        test_threads_fused();
        test_threads_rows();
        test_threads_matmul();
        test_philox();
        ok(dropout_is_philox(0.3f, 0) && dropout_is_philox(0.5f, 0),
           "dropout masks are philox.h's");
        ok(dropout_is_philox(0.3f, 5), "and go on from the micro-batch's first sample");
        test_refused();
        test_bind();
        test_memory();
        test_device();
        kt_begin(&t);
    }
    kt_close(&cpu);
    return tap_done();
}
