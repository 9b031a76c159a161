/* Every operation of kernels.h gives on the cpu backend what the f64 reference gives. Here: those
 * up to the softmax family; t_ops_rows has the rest, t_ops_fused elementwise operations and
 * instructions.
 *
 * Tolerances are counted in half-ulps (one rounding) of max(|result|, floor). A sum of n terms may
 * lose n of them, of its largest partial sum; functions of ours lose up to 8 each; 4 to 32 are for
 * the few operations around. floor is the size of what is added up where terms cancel. */
#include "tests/kern_util.h"

#include <float.h>

static struct kt_dev cpu, ref;
static struct kt t;
static const struct kern_axis no_axis;

static bool agree(double roundings, double floor, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool agree(double roundings, double floor, const char *fmt, ...)
{
    char what[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return kt_agree(&cpu, &ref, &t, roundings, floor, what);
}

/* ---- shapes [outer][n][inner]: ones, odd, prime, around 32, long, empty in each place,
 * more rows than a 16-bit index ---- */
static const int64_t shapes[][3] = {
    {1, 1, 1}, {3, 7, 1}, {13, 31, 1}, {5, 32, 1},  {2, 33, 5}, {1, 1025, 1}, {33, 32, 3},
    {0, 5, 1}, {4, 0, 3}, {2, 5, 0},   {1, 13, 31}, {7, 2, 33}, {2, 1025, 2}, {65537, 2, 1},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static struct kern_axis axis_of(int i)
{
    struct kern_axis a = no_axis;

    a.outer = shapes[i][0];
    a.n = shapes[i][1];
    a.inner = shapes[i][2];
    return a;
}

enum spice { PLAIN, WITH_NAN, WITH_INF, WITH_MASK, SPICES };

static const char *const spice_names[SPICES] = {"plain", "with NaN", "with infinities",
                                                "with rows of -inf"};

/* A value or two in the middle of an [outer][n][inner] input; for WITH_MASK half the elements, and
 * every element of the first row. */
static void add_spice(int buf, const struct kern_axis *a, enum spice s)
{
    const int64_t count = t.buf[buf].count;
    float *x = t.init[buf];

    if (count == 0)
        return;
    if (s == WITH_NAN)
        x[count / 2] = x[count - 1] = NAN;
    if (s == WITH_INF)
        x[count / 2] = INFINITY, x[count / 3] = -INFINITY;
    for (int64_t i = 0; s == WITH_MASK && i < count; i++)
        if (i % 2 == 0 || (i < a->n * a->inner && i % a->inner == 0))
            x[i] = -INFINITY;
}

static struct kern_op *axis_op(enum kern_code code, struct kern_axis a, int in, int out)
{
    struct kern_op *op = kt_op(&t, code, "axis");

    op->in[0] = in;
    op->out[0] = out;
    op->u.axis = a;
    return op;
}

/* ---- cases ---- */

static bool case_fused(void)
{
    struct kern_fused *f;
    int x, y;

    kt_begin(&t);
    x = kt_rand(&t, KERN_INPUT, 1025, -1, 1, 1);
    y = kt_out(&t, DT_F32, 1025);
    f = kt_fused(&t, 1, 1025, 0, 0);
    kt_store(&t, f, DT_F32,
             kt_ew(&t, f, EW_RELU, DT_F32, kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 1, 0, 0)),
                   -1, -1),
             kt_view(&t, f, y, 0, 1, 0, 0));
    return agree(0, 0, "relu");
}

struct mm {
    int64_t batch, m, n, k;
    int64_t pad;       /* leading dimensions are so much longer than a row */
    bool one_a, one_b; /* batch stride 0 */
    bool bias, accumulate;
    enum kern_act act;
};

static bool try_matmul(const struct mm *s, bool ta, bool tb)
{
    const int64_t lda = (ta ? s->m : s->k) + s->pad, ldb = (tb ? s->k : s->n) + s->pad;
    const int64_t ldc = s->n + s->pad;
    const int64_t size_a = (ta ? s->k : s->m) * lda, size_b = (tb ? s->n : s->k) * ldb;
    struct kern_op *op;
    int a, b, bias = -1, out;

    kt_begin(&t);
    a = kt_rand(&t, KERN_INPUT, size_a * s->batch, -1, 1, 1);
    b = kt_rand(&t, KERN_PARAM, size_b * s->batch, -1, 1, 2);
    if (s->bias)
        bias = kt_rand(&t, KERN_PARAM, s->n, -1, 1, 3);
    out = kt_rand(&t, KERN_RESULT, s->m * ldc * s->batch, -1, 1, 4);
    op = kt_op(&t, KERN_MATMUL, "matmul");
    op->in[0] = a;
    op->in[1] = b;
    op->in[2] = bias;
    op->out[0] = out;
    op->u.matmul = (struct kern_matmul){.batch = s->batch,
                                        .m = s->m,
                                        .n = s->n,
                                        .k = s->k,
                                        .lda = lda,
                                        .ldb = ldb,
                                        .ldc = ldc,
                                        .stride_a = s->one_a ? 0 : size_a,
                                        .stride_b = s->one_b ? 0 : size_b,
                                        .stride_c = s->m * ldc,
                                        .ta = ta,
                                        .tb = tb,
                                        .accumulate = s->accumulate,
                                        .act = s->act};
    /* terms are below 1: partial sums stay near sqrt(k); gelu's slope is below 1.2, and it loses a
     * function */
    return agree(
        (double)s->k + (s->act ? 24 : 4), s->act ? 2 : 1,
        "%lld x [%lld][%lld][%lld], ta %d tb %d, bias %d, act %d, one a %d b %d, pad %lld, acc %d",
        (long long)s->batch, (long long)s->m, (long long)s->n, (long long)s->k, ta, tb, s->bias,
        (int)s->act, s->one_a, s->one_b, (long long)s->pad, s->accumulate);
}

static bool case_matmul(void)
{
    static const struct mm tries[] = {
        {.batch = 1, .m = 1, .n = 1, .k = 1},
        {.batch = 1, .m = 7, .n = 13, .k = 5},
        {.batch = 1, .m = 31, .n = 33, .k = 32, .bias = true},
        {.batch = 1, .m = 33, .n = 1, .k = 1025, .bias = true},
        {.batch = 1, .m = 1, .n = 65, .k = 129},
        {.batch = 1, .m = 100, .n = 97, .k = 101, .pad = 3},
        {.batch = 3, .m = 7, .n = 9, .k = 11, .pad = 1},
        {.batch = 3, .m = 7, .n = 9, .k = 11, .one_a = true},
        {.batch = 3, .m = 7, .n = 9, .k = 11, .one_b = true, .bias = true},
        {.batch = 2, .m = 5, .n = 6, .k = 7, .accumulate = true, .pad = 2},
        {.batch = 1, .m = 64, .n = 64, .k = 64, .accumulate = true},
        {.batch = 1, .m = 3, .n = 4, .k = 0},
        {.batch = 2, .m = 3, .n = 4, .k = 0, .bias = true, .act = KERN_ACT_TANH},
        {.batch = 1, .m = 3, .n = 4, .k = 0, .accumulate = true},
        {.batch = 1, .m = 0, .n = 4, .k = 5},
        {.batch = 1, .m = 4, .n = 0, .k = 5},
        {.batch = 0, .m = 4, .n = 3, .k = 5},
        {.batch = 2, .m = 13, .n = 17, .k = 19, .bias = true, .act = KERN_ACT_RELU},
        {.batch = 2, .m = 13, .n = 17, .k = 19, .bias = true, .act = KERN_ACT_GELU_TANH},
        {.batch = 1, .m = 33, .n = 17, .k = 19, .bias = true, .act = KERN_ACT_GELU_ERF},
        {.batch = 1, .m = 33, .n = 17, .k = 19, .act = KERN_ACT_SIGMOID},
        {.batch = 1, .m = 33, .n = 17, .k = 19, .pad = 5, .act = KERN_ACT_TANH},
    };
    bool same = true;

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        for (int k = 0; k < 4; k++)
            same = try_matmul(&tries[i], k & 1, k & 2) && same;
    return same;
}

static bool case_reduce(void)
{
    bool same = true;

    for (int i = 0; i < N_SHAPES; i++) {
        for (int how = KERN_SUM; how <= KERN_PROD; how++) {
            for (int s = PLAIN; s <= WITH_INF; s++) {
                struct kern_axis a = axis_of(i);
                kt_begin(&t);
                a.reduce = (enum kern_reduce)how;
                const float low = how == KERN_PROD ? 0.95f : -2,
                            high = how == KERN_PROD ? 1.05f : 2;
                const int in = kt_rand(&t, KERN_INPUT, a.outer * a.n * a.inner, low, high, 1);
                add_spice(in, &a, (enum spice)s);
                axis_op(KERN_REDUCE, a, in, kt_out(&t, DT_F32, a.outer * a.inner));
                same &= agree(how == KERN_RMAX || how == KERN_RMIN ? 0 : (double)a.n + 4, 1,
                              "reduction %d, shape %d, %s", how, i, spice_names[s]);
            }
        }
    }
    return same;
}

/* Few different values, so that there are equals. */
static int with_ties(const struct kern_axis *a, enum spice s)
{
    const int in = kt_rand(&t, KERN_INPUT, a->outer * a->n * a->inner, -3, 3, 1);
    float *x = t.init[in];

    for (int64_t i = 0; i < t.buf[in].count; i++)
        x[i] = rintf(x[i]);
    add_spice(in, a, s);
    return in;
}

static bool case_argmax(void)
{
    bool same = true;

    for (int i = 0; i < N_SHAPES; i++) {
        for (int s = PLAIN; s < SPICES; s++) {
            const struct kern_axis a = axis_of(i);
            if (a.n == 0)
                continue;
            kt_begin(&t);
            axis_op(KERN_ARGMAX, a, with_ties(&a, (enum spice)s),
                    kt_out(&t, DT_I32, a.outer * a.inner));
            same &= agree(0, 0, "shape %d, %s", i, spice_names[s]);
        }
    }
    return same;
}

static bool case_topk(void)
{
    bool same = true;

    for (int i = 0; i < N_SHAPES; i++) {
        for (int s = PLAIN; s < SPICES; s++) {
            for (int which = 0; which < 4; which++) {
                struct kern_axis a = axis_of(i);
                a.k = which == 0 ? 0 : which == 1 ? 1 : which == 2 ? (a.n + 1) / 2 : a.n;
                if (a.inner != 1 || a.k > a.n)
                    continue;
                kt_begin(&t);
                axis_op(KERN_TOPK, a, with_ties(&a, (enum spice)s),
                        kt_out(&t, DT_I32, a.outer * a.k));
                same &= agree(0, 0, "shape %d, k %lld, %s", i, (long long)a.k, spice_names[s]);
            }
        }
    }
    return same;
}

static bool case_cumsum(void)
{
    bool same = true;

    for (int i = 0; i < N_SHAPES; i++) {
        for (int how = 0; how < 4; how++) {
            for (int s = PLAIN; s <= WITH_INF; s++) {
                struct kern_axis a = axis_of(i);
                const int64_t count = a.outer * a.n * a.inner;
                kt_begin(&t);
                a.reverse = how & 1;
                a.exclusive = how & 2;
                const int in = kt_rand(&t, KERN_INPUT, count, -2, 2, 1);
                add_spice(in, &a, (enum spice)s);
                axis_op(KERN_CUMSUM, a, in, kt_out(&t, DT_F32, count));
                same &= agree((double)a.n + 4, 2, "shape %d, reverse %d, exclusive %d, %s", i,
                              a.reverse, a.exclusive, spice_names[s]);
            }
        }
    }
    return same;
}

/* The four ops with indices, some of them outside 0 .. n-1; k from 0 to more than n, so that some
 * repeat. */
static bool try_index(enum kern_code code, int shape, int64_t k)
{
    struct kern_axis a = axis_of(shape);
    const int64_t dense = a.outer * a.n * a.inner, picked = a.outer * k * a.inner;
    const bool along = code == KERN_TAKE_ALONG || code == KERN_SCATTER_ADD;
    const bool grad = code == KERN_TAKE_GRAD;
    struct kern_op *op;
    int in, out;

    kt_begin(&t);
    a.k = k;
    in = kt_rand(&t, KERN_INPUT, grad ? picked : dense, -2, 2, 1);
    out = kt_out(&t, DT_F32, code == KERN_SCATTER_ADD || grad ? dense : picked);
    op = axis_op(code, a, in, out);
    op->in[1] = kt_rand_i(&t, along ? picked : k, -2, (int32_t)a.n + 2, 7);
    if (code == KERN_SCATTER_ADD)
        op->in[2] = kt_rand(&t, KERN_INPUT, picked, -2, 2, 2);
    return agree((double)k + 4, 1, "shape %d, k %lld", shape, (long long)k);
}

static bool case_index(enum kern_code code)
{
    bool same = true;

    for (int i = 0; i < N_SHAPES; i++)
        same = try_index(code, i, 0) & try_index(code, i, 1) & try_index(code, i, 33) &
               try_index(code, i, 2 * shapes[i][1] + 1) & same;
    return same;
}

static bool case_take(void)
{
    return case_index(KERN_TAKE);
}

static bool case_take_grad(void)
{
    return case_index(KERN_TAKE_GRAD);
}

static bool case_take_along(void)
{
    return case_index(KERN_TAKE_ALONG);
}

static bool case_scatter_add(void)
{
    return case_index(KERN_SCATTER_ADD);
}

/* Around 0 and around 500, where exp alone would overflow. */
static bool case_softmax_of(enum kern_code code)
{
    static const enum spice spices[] = {PLAIN, WITH_NAN, WITH_MASK};
    bool same = true;

    for (int i = 0; i < N_SHAPES; i++) {
        for (int s = 0; s < 3; s++) {
            for (int far = 0; far < 2; far++) {
                const struct kern_axis a = axis_of(i);
                const int64_t count = a.outer * a.n * a.inner, rows = a.outer * a.inner;
                const float at = far ? 500 : 0;
                kt_begin(&t);
                const int in = kt_rand(&t, KERN_INPUT, count, at - 5, at + 5, 1);
                add_spice(in, &a, spices[s]);
                axis_op(code, a, in, kt_out(&t, DT_F32, code == KERN_LOGSUMEXP ? rows : count));
                same &= agree((double)a.n + 16, code == KERN_SOFTMAX ? FLT_MIN : (double)at + 8,
                              "shape %d around %g, %s", i, (double)at, spice_names[spices[s]]);
            }
        }
    }
    return same;
}

static bool case_softmax(void)
{
    return case_softmax_of(KERN_SOFTMAX);
}

static bool case_log_softmax(void)
{
    return case_softmax_of(KERN_LOG_SOFTMAX);
}

static bool case_logsumexp(void)
{
    return case_softmax_of(KERN_LOGSUMEXP);
}

static const struct {
    const char *name;
    bool (*run)(void);
} cases[KERN_CODES] = {
    [KERN_FUSED] = {"fused", case_fused},
    [KERN_MATMUL] = {"matmul", case_matmul},
    [KERN_REDUCE] = {"reduce", case_reduce},
    [KERN_ARGMAX] = {"argmax", case_argmax},
    [KERN_TOPK] = {"topk", case_topk},
    [KERN_CUMSUM] = {"cumsum", case_cumsum},
    [KERN_TAKE] = {"take", case_take},
    [KERN_TAKE_GRAD] = {"take_grad", case_take_grad},
    [KERN_TAKE_ALONG] = {"take_along", case_take_along},
    [KERN_SCATTER_ADD] = {"scatter_add", case_scatter_add},
    [KERN_SOFTMAX] = {"softmax", case_softmax},
    [KERN_LOG_SOFTMAX] = {"log_softmax", case_log_softmax},
    [KERN_LOGSUMEXP] = {"logsumexp", case_logsumexp},
};

int main(void)
{
    const bool open = kt_open(&ref, "ref") & kt_open(&cpu, "cpu");

    if (ok(open, "both plugins open")) {
        for (int code = 0; code < KERN_LAYER_NORM; code++) {
            if (ok(cases[code].run, "code %d has a case", code))
                ok(cases[code].run(), "%s: cpu as ref", cases[code].name);
        }
        kt_begin(&t);
    }
    kt_close(&cpu);
    kt_close(&ref);
    return tap_done();
}
