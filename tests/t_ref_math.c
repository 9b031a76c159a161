/* The reference backend computes what kernels.h says: numbers worked out by hand, and the draws of
 * philox.h. (Gradients: t_ref_grad.) */
#include "tests/kern_util.h"

static struct kt_dev ref;
static struct kt t;

/* Runs the program and compares one buffer, f32 to a rounding of the result, i32 equal; NaN is NaN.
 */
static bool gives_f(int out, const float *want)
{
    const float *got = t.got[0][out];

    if (!kt_run(&ref, &t, 0))
        return false;
    for (int64_t i = 0; i < t.buf[out].count; i++) {
        if (!kt_near((double)got[i], (double)want[i], 2, 1e-30)) {
            note("[%lld]: got %.9g want %.9g", (long long)i, (double)got[i], (double)want[i]);
            return false;
        }
    }
    return true;
}

static bool gives_i(int out, const int32_t *want)
{
    return kt_run(&ref, &t, 0) && !memcmp(t.got[0][out], want, kt_bytes(&t, out));
}

#define F(...) ((const float[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})

/* ---- elementwise operations ---- */

struct ew_want {
    enum ew op;
    float a, b,
        want; /* bool results as 0 and 1; select's condition is a < b, and it gives a or b */
};

static const struct ew_want ew_wants[] = {
    {EW_NEG, 2, 0, -2},
    {EW_ABS, -2, 0, 2},
    {EW_EXP, 1, 0, 2.71828183f},
    {EW_EXPM1, 1e-5f, 0, 1.00000500e-5f},
    {EW_LOG, 10, 0, 2.30258509f},
    {EW_LOG, 0, 0, -INFINITY},
    {EW_LOG, -1, 0, NAN},
    {EW_LOG1P, 1e-5f, 0, 9.99995e-6f},
    {EW_SQRT, 2, 0, 1.41421356f},
    {EW_RSQRT, 4, 0, 0.5f},
    {EW_RECIP, 8, 0, 0.125f},
    {EW_SIN, 1, 0, 0.841470985f},
    {EW_COS, 1, 0, 0.540302306f},
    {EW_TANH, 0.5f, 0, 0.462117157f},
    {EW_ERF, 0.5f, 0, 0.520499878f},
    {EW_SIGMOID, 1, 0, 0.731058579f},
    {EW_SIGMOID, -1000, 0, 0},
    {EW_RELU, -2, 0, 0},
    {EW_RELU, 3, 0, 3},
    {EW_RELU, NAN, 0, NAN},
    {EW_FLOOR, -1.5f, 0, -2},
    {EW_ROUND, 2.5f, 0, 2},
    {EW_ROUND, 3.5f, 0, 4},
    {EW_ROUND, -0.6f, 0, -1},
    {EW_SIGN, -7, 0, -1},
    {EW_SIGN, 0, 0, 0},
    {EW_SIGN, NAN, 0, NAN},
    {EW_ISFINITE, INFINITY, 0, 0},
    {EW_ISFINITE, NAN, 0, 0},
    {EW_ISFINITE, 1, 0, 1},
    {EW_ADD, 2, 3, 5},
    {EW_SUB, 2, 3, -1},
    {EW_MUL, 2, 3, 6},
    {EW_DIV, 3, 2, 1.5f},
    {EW_DIV, 1, 0, INFINITY},
    {EW_POW, 2, 10, 1024},
    {EW_POW, -2, 3, -8},
    {EW_POW, NAN, 0, 1},
    {EW_POW, -2, 0.5f, NAN},
    {EW_MAX, 2, 3, 3},
    {EW_MAX, 2, NAN, NAN},
    {EW_MAX, NAN, 2, NAN},
    {EW_MIN, 2, 3, 2},
    {EW_MIN, NAN, 2, NAN},
    {EW_MOD, 5, 3, 2},
    {EW_MOD, -5, 3, 1},
    {EW_MOD, 5, -3, -1},
    {EW_MOD, -5, -3, -2},
    {EW_MOD, 5, INFINITY, 5},
    {EW_MOD, -5, INFINITY, INFINITY},
    {EW_LT, 1, 2, 1},
    {EW_LT, NAN, 2, 0},
    {EW_LE, 2, 2, 1},
    {EW_LE, 3, 2, 0},
    {EW_EQ, 2, 2, 1},
    {EW_EQ, NAN, NAN, 0},
    {EW_NE, 2, 2, 0},
    {EW_NE, NAN, NAN, 1},
    {EW_SELECT, 1, 2, 1},
    {EW_SELECT, 2, 1, 1},
    {EW_NOT, 1, 0, 0},
    {EW_NOT, 0, 0, 1},
    {EW_AND, 1, 1, 1},
    {EW_AND, 1, 0, 0},
    {EW_OR, 0, 0, 0},
    {EW_OR, 0, 1, 1},
};

static const struct {
    const char *name;
    int arity;
    enum ew_rule rule;
} info[EW_COUNT] = {
#define X(name, text, arity, rule) {text, arity, EW_RULE_##rule},
    EW_MAP(X)
#undef X
};

static bool ew_gives(const struct ew_want *w)
{
    const enum ew_rule rule = info[w->op].rule;
    struct kern_fused *f;
    int in, out, a, b, r;

    kt_begin(&t);
    in = kt_in(&t, DT_F32, 2, F(w->a, w->b));
    out = kt_out(&t, DT_F32, 1);
    f = kt_fused(&t, 1, 1, 0, 0);
    a = kt_load(&t, f, DT_F32, kt_view(&t, f, in, 0, 1, 0, 0));
    b = kt_load(&t, f, DT_F32, kt_view(&t, f, in, 1, 1, 0, 0));
    if (rule == EW_RULE_LOGIC) {
        const struct kern_insn cast = {
            .code = KERN_I_CAST, .type = DT_BOOL, .a = (int16_t)a, .b = -1, .c = -1};
        struct kern_insn second = cast;
        second.a = (int16_t)b;
        a = kt_insn(&t, f, cast);
        b = kt_insn(&t, f, second);
    }
    if (rule == EW_RULE_SEL)
        r = kt_ew(&t, f, w->op, DT_F32, kt_ew(&t, f, EW_LT, DT_F32, a, b, -1), a, b);
    else
        r = kt_ew(&t, f, w->op, rule == EW_RULE_LOGIC ? DT_BOOL : DT_F32, a,
                  info[w->op].arity > 1 ? b : -1, -1);
    kt_store(&t, f, DT_F32, r, kt_view(&t, f, out, 0, 1, 0, 0));
    return gives_f(out, &w->want);
}

static void test_ew(void)
{
    for (int op = 0; op < EW_COUNT; op++) {
        int n = 0;
        bool right = true;
        for (size_t i = 0; i < sizeof ew_wants / sizeof *ew_wants; i++) {
            if ((int)ew_wants[i].op != op)
                continue;
            n++;
            if (!ew_gives(&ew_wants[i])) {
                note("%s of %g and %g", info[op].name, (double)ew_wants[i].a,
                     (double)ew_wants[i].b);
                right = false;
            }
        }
        ok(n > 0 && right, "%s: %d by hand", info[op].name, n);
    }
}

static void test_ew_int(void)
{
    static const struct {
        enum ew op;
        int32_t a, b, want;
    } wants[] = {
        {EW_ADD, INT32_MAX, 1, INT32_MIN},
        {EW_SUB, INT32_MIN, 1, INT32_MAX},
        {EW_MUL, 65536, 65537, 65536},
        {EW_DIV, -7, 2, -3},
        {EW_DIV, 7, 0, 0},
        {EW_DIV, INT32_MIN, -1, INT32_MIN},
        {EW_MOD, -7, 2, 1},
        {EW_MOD, 7, -2, -1},
        {EW_MOD, 7, 0, 0},
        {EW_MOD, INT32_MIN, -1, 0},
        {EW_NEG, INT32_MIN, 0, INT32_MIN},
        {EW_ABS, INT32_MIN, 0, INT32_MIN},
        {EW_SIGN, -9, 0, -1},
        {EW_MAX, -1, 1, 1},
        {EW_MIN, -1, 1, -1},
    };

    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        struct kern_fused *f;
        int in, out, a, b;
        kt_begin(&t);
        in = kt_in(&t, DT_I32, 2, I(wants[i].a, wants[i].b));
        out = kt_out(&t, DT_I32, 1);
        f = kt_fused(&t, 1, 1, 0, 0);
        a = kt_load(&t, f, DT_I32, kt_view(&t, f, in, 0, 1, 0, 0));
        b = kt_load(&t, f, DT_I32, kt_view(&t, f, in, 1, 1, 0, 0));
        a = kt_ew(&t, f, wants[i].op, DT_I32, a, info[wants[i].op].arity > 1 ? b : -1, -1);
        kt_store(&t, f, DT_I32, a, kt_view(&t, f, out, 0, 1, 0, 0));
        ok(gives_i(out, &wants[i].want), "%s i32 of %d and %d is %d", info[wants[i].op].name,
           wants[i].a, wants[i].b, wants[i].want);
    }
}

/* ---- random draws ---- */

/* Draws of rows [first .. first + rows) of a [8][5] tensor, as a micro-batch. */
static int draw(enum kern_insn_code code, int64_t first, int64_t rows, float p)
{
    struct kern_insn n = {
        .code = (uint8_t)code, .a = -1, .b = -1, .c = -1, .stream = 77, .per_sample = true};
    struct kern_fused *f;
    int out, x;

    kt_begin(&t);
    t.h.sample_base = (uint64_t)first;
    n.type = code == KERN_I_BITS ? DT_I32 : DT_F32;
    x = kt_in(&t, DT_F32, 2, F(3, p));
    out = kt_out(&t, n.type, rows * 5);
    f = kt_fused(&t, 2, rows, 5, 0);
    if (code == KERN_I_DROPOUT) {
        n.a = (int16_t)kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 0, 0, 0));
        n.b = (int16_t)kt_load(&t, f, DT_F32, kt_view(&t, f, x, 1, 0, 0, 0));
    }
    kt_store(&t, f, n.type, kt_insn(&t, f, n), kt_view(&t, f, out, 0, 5, 1, 0));
    return out;
}

static void test_random(void)
{
    static const float p[] = {0, 1, 0.5f, 0.1f};
    int32_t bits[40];
    float uniform[40], kept[40];
    uint32_t word[40];

    kt_begin(&t);
    for (uint64_t i = 0; i < 40; i++) {
        word[i] = philox_word(t.h.seed, PHILOX_GRAPH, 77, (uint32_t)t.h.step, i);
        bits[i] = (int32_t)word[i];
        uniform[i] = (float)((double)(word[i] >> 8) / 16777216);
    }
    ok(gives_i(draw(KERN_I_BITS, 0, 8, 0), bits), "bits are the words of philox.h");
    ok(gives_i(draw(KERN_I_BITS, 3, 5, 0), bits + 15),
       "a micro-batch from sample 3 draws its part");
    ok(gives_f(draw(KERN_I_UNIFORM, 2, 6, 0), uniform + 10), "uniform: 24 bits of them");
    for (size_t k = 0; k < sizeof p / sizeof *p; k++) {
        int n = 0;
        for (int i = 0; i < 40; i++) {
            const bool keep = (word[i] >> 8) >= (uint32_t)ceilf(p[k] * 16777216.0f);
            kept[i] = keep ? (float)(3 / (1 - (double)p[k])) : 0;
            n += keep;
        }
        ok(gives_f(draw(KERN_I_DROPOUT, 1, 7, p[k]), kept + 5), "dropout %g keeps %d of 40",
           (double)p[k], n);
    }
}

/* The elements kept are those with word >> 8 at or above the threshold: p just at one element's
 * word, half a step above, and a whole step. */
static void test_threshold(void)
{
    int at = 0;
    float p, got[3];

    kt_begin(&t);
    while (philox_word(t.h.seed, PHILOX_GRAPH, 77, 3, (uint64_t)at) >> 31)
        at++; /* a word of 23 bits, so that a half can be added in an f32 */
    p = philox_uniform(philox_word(t.h.seed, PHILOX_GRAPH, 77, 3, (uint64_t)at));
    for (int k = 0; k < 3; k++) {
        const int out = draw(KERN_I_DROPOUT, 0, 8, p + (float)k * 0x1p-25f);
        kt_run(&ref, &t, 0);
        got[k] = ((float *)t.got[0][out])[at];
    }
    ok(got[0] > 0 && got[1] == 0 && got[2] == 0, "dropout compares integers: %g %g %g",
       (double)got[0], (double)got[1], (double)got[2]);
}

/* ---- the other operations ---- */

static struct kern_op *axis_op(enum kern_code code, int64_t outer, int64_t n, int64_t inner,
                               int64_t k, const float *x)
{
    struct kern_op *op;

    kt_begin(&t);
    op = kt_op(&t, code, "axis");
    op->u.axis = (struct kern_axis){.outer = outer, .n = n, .inner = inner, .k = k};
    op->in[0] =
        kt_in(&t, DT_F32, code == KERN_TAKE_GRAD ? outer * k * inner : outer * n * inner, x);
    return op;
}

static int axis_out(struct kern_op *op, enum dtype type, int64_t count)
{
    return op->out[0] = kt_out(&t, type, count);
}

static void test_matmul(void)
{
    struct kern_op *op;

    kt_begin(&t);
    op = kt_op(&t, KERN_MATMUL, "matmul");
    op->in[0] = kt_in(&t, DT_F32, 6, F(1, 2, 3, 4, 5, 6));
    op->in[1] = kt_in(&t, DT_F32, 6, F(1, 0, 2, -1, 0, 1));
    op->in[2] = kt_in(&t, DT_F32, 2, F(0.5f, -100));
    op->out[0] = kt_buf(&t, KERN_RESULT, DT_F32, 4, F(1000, 1000, 1000, 1000));
    op->u.matmul =
        (struct kern_matmul){.batch = 1, .m = 2, .n = 2, .k = 3, .lda = 3, .ldb = 2, .ldc = 2};
    op->in[2] = -1;
    ok(gives_f(op->out[0], F(5, 1, 14, 1)), "matmul");
    op->in[2] = 2;
    op->u.matmul.act = KERN_ACT_RELU;
    ok(gives_f(op->out[0], F(5.5f, 0, 14.5f, 0)), "with a bias and relu");
    op->u.matmul.accumulate = true;
    op->u.matmul.act = KERN_ACT_NONE;
    ok(gives_f(op->out[0], F(1005.5f, 901, 1014.5f, 901)), "added on");
    op->u.matmul.accumulate = false;
    op->in[2] = -1;
    op->u.matmul.ta = true; /* a is now [3][2], b [2][3] */
    op->u.matmul.tb = true;
    op->u.matmul.lda = 2;
    op->u.matmul.ldb = 3;
    ok(gives_f(op->out[0], F(11, 4, 14, 4)), "both transposed");
}

static void test_axis(void)
{
    static const float x[12] = {1, 5, 2, 5, NAN, 0, 4, 3, 9, 1, 2, 2};
    struct kern_op *op = axis_op(KERN_REDUCE, 2, 3, 2, 0, x);

    ok(gives_f(axis_out(op, DT_F32, 4), F(NAN, 10, 15, 6)), "sum");
    op->u.axis.reduce = KERN_RMAX;
    ok(gives_f(op->out[0], F(NAN, 5, 9, 3)), "max: NaN wins");
    op->u.axis.reduce = KERN_RMIN;
    ok(gives_f(op->out[0], F(NAN, 0, 2, 1)), "min");
    op->u.axis.reduce = KERN_PROD;
    ok(gives_f(op->out[0], F(NAN, 0, 72, 6)), "prod");
    op->u.axis.n = 0;
    op->u.axis.reduce = KERN_RMAX;
    ok(gives_f(op->out[0], F(-INFINITY, -INFINITY, -INFINITY, -INFINITY)), "max of none");
    op = axis_op(KERN_ARGMAX, 2, 3, 2, 0, x);
    ok(gives_i(axis_out(op, DT_I32, 4), I(2, 0, 1, 0)), "argmax: the first, NaN is largest");
    op = axis_op(KERN_TOPK, 2, 6, 1, 3, x);
    ok(gives_i(axis_out(op, DT_I32, 6), I(4, 1, 3, 2, 0, 1)), "topk: by size, then by index");
    op = axis_op(KERN_CUMSUM, 1, 4, 1, 0, x);
    ok(gives_f(axis_out(op, DT_F32, 4), F(1, 6, 8, 13)), "cumsum");
    op->u.axis.exclusive = true;
    ok(gives_f(op->out[0], F(0, 1, 6, 8)), "exclusive");
    op->u.axis.reverse = true;
    ok(gives_f(op->out[0], F(12, 7, 5, 0)), "reverse, exclusive");
}

static void test_index(void)
{
    struct kern_op *op = axis_op(KERN_TAKE, 2, 2, 2, 3, F(1, 2, 3, 4, 5, 6, 7, 8));

    op->in[1] = kt_in(&t, DT_I32, 3, I(1, 2, 0));
    ok(gives_f(axis_out(op, DT_F32, 12), F(3, 4, 0, 0, 1, 2, 7, 8, 0, 0, 5, 6)),
       "take: zeros outside");
    op = axis_op(KERN_TAKE_GRAD, 1, 2, 2, 3, F(1, 2, 3, 4, 5, 6));
    op->in[1] = kt_in(&t, DT_I32, 3, I(1, -1, 1));
    ok(gives_f(axis_out(op, DT_F32, 4), F(0, 0, 6, 8)), "take_grad: repeated rows add up");
    op = axis_op(KERN_TAKE_ALONG, 1, 3, 2, 2, F(1, 2, 3, 4, 5, 6));
    op->in[1] = kt_in(&t, DT_I32, 4, I(2, 0, 0, 3));
    ok(gives_f(axis_out(op, DT_F32, 4), F(5, 2, 1, 0)), "take_along");
    op = axis_op(KERN_SCATTER_ADD, 1, 3, 2, 2, F(1, 2, 3, 4, 5, 6));
    op->in[1] = kt_in(&t, DT_I32, 4, I(2, 0, 2, -1));
    op->in[2] = kt_in(&t, DT_F32, 4, F(10, 20, 30, 40));
    ok(gives_f(axis_out(op, DT_F32, 6), F(1, 22, 3, 4, 45, 6)), "scatter_add");
}

/* Where a dtype is not said, ref also takes i32, and take moves anything. */
static void test_axis_int(void)
{
    struct kern_op *op = axis_op(KERN_REDUCE, 1, 3, 1, 0, NULL);
    const int x = kt_in(&t, DT_I32, 3, I(INT32_MAX, 2, -3));

    op->in[0] = x;
    ok(gives_i(axis_out(op, DT_I32, 1), I(INT32_MAX - 1)), "sum of i32");
    op->u.axis.reduce = KERN_PROD;
    ok(gives_i(op->out[0], I(6)), "prod of i32 wraps");
    op->u.axis.reduce = KERN_RMIN;
    ok(gives_i(op->out[0], I(-3)), "min of i32");
    op->u.axis.reduce = KERN_RMAX;
    ok(gives_i(op->out[0], I(INT32_MAX)), "max of i32");
    op->code = KERN_ARGMAX;
    ok(gives_i(op->out[0], I(0)), "argmax of i32");
    op->code = KERN_CUMSUM;
    ok(gives_i(axis_out(op, DT_I32, 3), I(INT32_MAX, INT32_MIN + 1, INT32_MAX - 1)),
       "cumsum of i32");
    op->u.axis.exclusive = true;
    ok(gives_i(op->out[0], I(0, INT32_MAX, INT32_MIN + 1)), "exclusive");
    op->code = KERN_SCATTER_ADD;
    op->u.axis.k = 1;
    op->in[1] = kt_in(&t, DT_I32, 1, I(0));
    op->in[2] = kt_in(&t, DT_I32, 1, I(1));
    ok(gives_i(op->out[0], I(INT32_MIN, 2, -3)), "scatter_add of i32");
    op->code = KERN_TAKE;
    op->u.axis.k = 2;
    op->in[0] = kt_in(&t, DT_U8, 3, (const uint8_t[]){7, 8, 9});
    op->in[1] = kt_in(&t, DT_I32, 2, I(2, -1));
    op->in[2] = -1;
    ok(kt_run(&ref, &t, 0) == false, "take of u8 into i32 is refused");
    axis_out(op, DT_U8, 2);
    ok(kt_run(&ref, &t, 0) && ((uint8_t *)t.got[0][op->out[0]])[0] == 9 &&
           ((uint8_t *)t.got[0][op->out[0]])[1] == 0,
       "take of u8");
}

static void test_softmax(void)
{
    static const float x[8] = {0, 0, 1000, -INFINITY, -INFINITY, -INFINITY, NAN, 1};
    struct kern_op *op = axis_op(KERN_SOFTMAX, 4, 2, 1, 0, x);

    ok(gives_f(axis_out(op, DT_F32, 8), F(0.5f, 0.5f, 1, 0, 0, 0, NAN, NAN)),
       "softmax: a masked row gives zeros");
    op->code = KERN_LOG_SOFTMAX;
    ok(gives_f(op->out[0],
               F(-0.693147181f, -0.693147181f, 0, -INFINITY, -INFINITY, -INFINITY, NAN, NAN)),
       "log_softmax: and -inf");
    op = axis_op(KERN_LOGSUMEXP, 4, 2, 1, 0, x);
    ok(gives_f(axis_out(op, DT_F32, 4), F(0.693147181f, 1000, -INFINITY, NAN)),
       "logsumexp: and -inf");
}

static void test_norms(void)
{
    struct kern_op *op;

    kt_begin(&t);
    op = kt_op(&t, KERN_LAYER_NORM, "norm");
    op->u.norm = (struct kern_norm){.rows = 1, .cols = 2, .eps = 3};
    op->in[0] = kt_in(&t, DT_F32, 2, F(4, 6));
    op->in[1] = kt_in(&t, DT_F32, 2, F(1, 10));
    op->in[2] = kt_in(&t, DT_F32, 2, F(0, 1));
    op->out[0] = kt_out(&t, DT_F32, 2);
    op->out[1] = kt_out(&t, DT_F32, 1);
    op->out[2] = kt_out(&t, DT_F32, 1);
    ok(gives_f(op->out[0], F(-0.5f, 6)) && gives_f(op->out[1], F(5)) &&
           gives_f(op->out[2], F(0.5f)),
       "layer_norm: y, mean, rstd");
    kt_begin(&t);
    op = kt_op(&t, KERN_RMS_NORM, "norm");
    op->u.norm = (struct kern_norm){.rows = 1, .cols = 2, .eps = 0.5f};
    op->in[0] = kt_in(&t, DT_F32, 2, F(1, 2));
    op->in[1] = kt_in(&t, DT_F32, 2, F(3, -1));
    op->out[0] = kt_out(&t, DT_F32, 2);
    op->out[1] = kt_out(&t, DT_F32, 1);
    ok(gives_f(op->out[0], F(1.73205081f, -1.15470054f)) && gives_f(op->out[1], F(0.577350269f)),
       "rms_norm: y, rstd");
}

static void test_xent(void)
{
    struct kern_op *op;

    kt_begin(&t);
    op = kt_op(&t, KERN_XENT, "xent");
    op->u.xent = (struct kern_xent){.rows = 4, .cols = 2, .has_ignore = true, .ignore = -7};
    op->in[0] = kt_in(&t, DT_F32, 8, F(0, 0, 1, 1, 3, 3, 0, 2));
    op->in[1] = kt_in(&t, DT_I32, 4, I(1, -7, 2, 0));
    op->in[2] = kt_in(&t, DT_F32, 1, F(0.5f));
    op->out[0] = kt_out(&t, DT_F32, 4);
    op->out[1] = kt_out(&t, DT_F32, 4);
    ok(gives_f(op->out[0], F(0.693147181f, 0, NAN, 1.62692801f)),
       "xent: 0 where ignored, NaN where no class");
    ok(gives_f(op->out[1], F(0.693147181f, 1.69314718f, 3.69314718f, 2.12692801f)),
       "and lse of every row");
}

static void test_update(void)
{
    static const struct kern_segment seg[] = {{0, 1, 0}, {2, 1, 1}};
    const struct kern_opt opt = {.segments = seg,
                                 .n_segments = 2,
                                 .lr = 0,
                                 .weight_decay = 2,
                                 .momentum = 4,
                                 .beta1 = 5,
                                 .beta2 = 6,
                                 .eps = 7,
                                 .clip = 8};
    static const float slots[] = {0.5f, 0.25f, 0, 1, 0.5f, 0.5f, 0.75f, 1, 2.5000005f};
    struct kern_op *op;
    int norm, state, block, p, g, m, v;

    kt_begin(&t);
    memcpy(t.h.value, slots, sizeof slots);
    p = kt_buf(&t, KERN_PARAM, DT_F32, 3, F(1, 2, 4));
    g = kt_buf(&t, KERN_GRAD, DT_F32, 3, F(3, NAN, 4));
    norm = kt_buf(&t, KERN_STEP, DT_F32, 1, NULL);
    block = kt_buf(&t, KERN_STEP, DT_F32, 4, NULL);
    state = kt_buf(&t, KERN_STATE, DT_F64, 4, (const double[]){0, 1, 1, 0});
    m = kt_buf(&t, KERN_STATE, DT_F32, 3, F(2, 7, 0));
    v = kt_buf(&t, KERN_STATE, DT_F32, 3, F(0, 7, 0));
    op = kt_op(&t, KERN_GRAD_NORM, "norm");
    op->u.opt = opt;
    op->in[0] = g;
    op->out[0] = norm;
    ok(gives_f(norm, F(5)), "grad_norm: what lies between segments does not count");
    op = kt_op(&t, KERN_PROLOGUE, "prologue");
    op->u.opt = opt;
    op->in[0] = norm;
    op->in[1] = state;
    op->out[0] = block;
    ok(gives_f(block, F(0.5f, 0, 2, 2)), "prologue: clipped to 2.5 of 5; bias corrections");
    ok(!memcmp(t.got[0][state], (const double[]){1, 0.5, 0.75, 0}, 32), "and its state");
    op = kt_op(&t, KERN_SGD, "sgd");
    op->u.opt = opt;
    op->in[0] = p;
    op->in[1] = g;
    op->in[2] = block;
    /* g: 1.5 and 2 + 4: by groups, the second decays */
    ok(gives_f(p, F(0.25f, 2, 2.5f)), "sgd without momentum");
    op->in[3] = m;
    ok(gives_f(p, F(-0.25f, 2, 2.5f)) && gives_f(m, F(2.5f, 7, 6)), "with momentum");
    op->u.opt.nesterov = true;
    ok(gives_f(p, F(-0.375f, 2, 1.75f)), "nesterov");
    op->code = KERN_ADAM;
    op->in[4] = v;
    /* group 0: g 1.5, m 1.75, v 0.5625: p -= 0.5 * 2 * 1.75 / (0.75 * 2 + 1); group 1: g 6, m 3, v
     * 9 */
    ok(gives_f(p, F(0.3f, 2, 3.78571429f)) && gives_f(m, F(1.75f, 7, 3)) &&
           gives_f(v, F(0.5625f, 7, 9)),
       "adam");
    op->u.opt.decoupled = true; /* group 1: p 3, g 2, m 1, v 1: p -= 0.25 * 2 * 1 / (1 * 2 + 1) */
    ok(gives_f(p, F(0.3f, 2, 2.83333333f)), "adam, decoupled decay");
    ((float *)t.init[g])[0] = INFINITY;
    t.h.flags = KERN_LATCH;
    ok(gives_f(p, F(1, 2, 4)) && ((double *)t.got[0][state])[3] == 1,
       "a norm that is not finite: nothing moves, latched");
}

int main(void)
{
    if (ok(kt_open(&ref, "ref"), "the plugin opens")) {
        test_ew();
        test_ew_int();
        test_random();
        test_threshold();
        test_matmul();
        test_axis();
        test_index();
        test_axis_int();
        test_softmax();
        test_norms();
        test_xent();
        test_update();
        kt_begin(&t);
    }
    kt_close(&ref);
    return tap_done();
}
