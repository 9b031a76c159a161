/* Matrix products of the cpu backend are those of a plain loop in f64, with the same bits whatever
 * the number of threads, and nothing but the result is written. */
#include "tests/kern_util.h"

static const int thread_counts[] = {1, 2, 3, 7};
enum { DEVICES = 4 };

static struct kt_dev cpu[DEVICES];
static struct kt t;
static float *first; /* the result with one thread */

struct
try {
    struct kern_matmul m;
    int64_t pad; /* rows are so much longer in memory */
    bool bias;
};

/* ---- a product, and what it should be ---- */

static double activate(enum kern_act act, double v)
{
    switch (act) {
    case KERN_ACT_RELU:
        return v > 0 || isnan(v) ? v : 0;
    case KERN_ACT_GELU_TANH:
        return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    case KERN_ACT_GELU_ERF:
        return 0.5 * v * (1 + erf(v * 0.7071067811865476));
    case KERN_ACT_SIGMOID:
        return 1 / (1 + exp(-v));
    case KERN_ACT_TANH:
        return tanh(v);
    case KERN_ACT_NONE:
        break;
    }
    return v;
}

/* Result (i, j) of batch s, and the sum of the sizes of what is added up. */
static double want_at(const struct try *x, int64_t s, int64_t i, int64_t j, double *size)
{
    const struct kern_matmul *m = &x->m;
    const struct kern_op *op = &t.op[0];
    const float *a = (const float *)t.init[op->in[0]] + s * m->stride_a;
    const float *b = (const float *)t.init[op->in[1]] + s * m->stride_b;
    const float old = ((const float *)t.init[op->out[0]])[s * m->stride_c + i * m->ldc + j];
    double sum = x->bias ? (double)((const float *)t.init[op->in[2]])[j] : 0;

    *size = fabs(sum) + 1;
    for (int64_t k = 0; k < m->k; k++) {
        const double p = (double)a[m->ta ? k * m->lda + i : i * m->lda + k] *
                         (double)b[m->tb ? j * m->ldb + k : k * m->ldb + j];
        sum += p;
        *size += fabs(p);
    }
    sum = activate(m->act, sum);
    return m->accumulate ? sum + (double)old : sum;
}

/* Roundings of k sums in an order that is not known grow like sqrt(k); an activation loses some of
 * its own. */
static bool is_right(const struct try *x)
{
    const struct kern_matmul *m = &x->m;
    const float *got = t.got[0][t.op[0].out[0]];
    const double roundings = 4 * sqrt((double)m->k) + (m->act ? 24 : 4);

    for (int64_t at = 0; at < m->batch * m->m * m->n; at++) {
        const int64_t s = at / m->n / m->m, i = at / m->n % m->m, j = at % m->n;
        double size, want = want_at(x, s, i, j, &size);
        if (kt_near((double)got[s * m->stride_c + i * m->ldc + j], want, roundings, size))
            continue;
        note("[%lld][%lld][%lld]: got %.9g want %.9g", (long long)s, (long long)i, (long long)j,
             (double)got[s * m->stride_c + i * m->ldc + j], want);
        return false;
    }
    return true;
}

/* What lies between the rows of the result is as it was. */
static bool is_padding_kept(const struct try *x)
{
    const int out = t.op[0].out[0];
    const float *was = t.init[out], *is = t.got[0][out];

    for (int64_t at = 0; at < t.buf[out].count; at++)
        if (at % x->m.ldc >= x->m.n && memcmp(&was[at], &is[at], sizeof *is) != 0)
            return false;
    return true;
}

/* Dense but for the padding; lda, ldb, ldc and the strides are set here. */
static void write_program(struct try *x)
{
    struct kern_matmul *m = &x->m;
    const bool one_a = m->stride_a == 0, one_b = m->stride_b == 0;
    struct kern_op *op;

    m->lda = (m->ta ? m->m : m->k) + x->pad;
    m->ldb = (m->tb ? m->k : m->n) + x->pad;
    m->ldc = m->n + x->pad;
    m->stride_a = (m->ta ? m->k : m->m) * m->lda;
    m->stride_b = (m->tb ? m->n : m->k) * m->ldb;
    m->stride_c = m->m * m->ldc;
    kt_begin(&t);
    op = kt_op(&t, KERN_MATMUL, "product");
    op->in[0] = kt_rand(&t, KERN_INPUT, m->stride_a * m->batch, -1, 1, 1);
    op->in[1] = kt_rand(&t, KERN_PARAM, m->stride_b * m->batch, -1, 1, 2);
    op->in[2] = x->bias ? kt_rand(&t, KERN_PARAM, m->n, -1, 1, 3) : -1;
    op->out[0] = kt_rand(&t, KERN_RESULT, m->stride_c * m->batch, -1, 1, 4);
    m->stride_a = one_a ? 0 : m->stride_a;
    m->stride_b = one_b ? 0 : m->stride_b;
    op->u.matmul = *m;
}

/* Runs on every device; false where one fails or has other bits than the first. */
static bool is_same_for_all(void)
{
    const int out = t.op[0].out[0];
    bool same = true;

    for (int d = 0; d < DEVICES && same; d++) {
        same = kt_run(&cpu[d], &t, 0);
        if (d == 0) {
            free(first);
            first = malloc(kt_bytes(&t, out) + 1);
            memcpy(first, t.got[0][out], kt_bytes(&t, out));
        }
        same = same && memcmp(first, t.got[0][out], kt_bytes(&t, out)) == 0;
        if (!same)
            note("%d threads differ from %d", thread_counts[d], thread_counts[0]);
    }
    return same;
}

static bool try_product(struct try x)
{
    write_program(&x);
    if (is_same_for_all() && is_right(&x) && is_padding_kept(&x))
        return true;
    note("failed: %lld x [%lld][%lld][%lld] ta %d tb %d strides %lld %lld pad %lld bias %d act %d "
         "accumulate %d",
         (long long)x.m.batch, (long long)x.m.m, (long long)x.m.n, (long long)x.m.k, x.m.ta, x.m.tb,
         (long long)x.m.stride_a, (long long)x.m.stride_b, (long long)x.pad, x.bias, (int)x.m.act,
         x.m.accumulate);
    return false;
}

/* ---- shapes: with each of the four transpositions another of the 48 ways to end ---- */

static struct try way(int64_t batch, int64_t m, int64_t n, int64_t k, int which)
{
    static int end;
    struct try x = {.m = {.batch = batch, .m = m, .n = n, .k = k, .stride_a = 1, .stride_b = 1}};

    end = (end + (which == 3 ? 8 : 7)) % 48;
    x.m.ta = which & 1;
    x.m.tb = which & 2;
    x.bias = end & 1;
    x.m.accumulate = end & 2;
    x.pad = end & 4 ? 5 : 0;
    x.m.act = (enum kern_act)(end / 8);
    return x;
}

static bool case_sizes(int64_t m)
{
    static const int64_t sizes[] = {1, 3, 31, 33, 257};
    bool right = true;

    for (int i = 0; i < 25; i++)
        for (int which = 0; which < 4; which++)
            right &= try_product(way(1, m, sizes[i / 5], sizes[i % 5], which));
    return right;
}

static bool case_batches(void)
{
    static const int64_t shapes[][4] = {{2, 1, 1, 1},     {5, 7, 9, 11},    {3, 40, 33, 65},
                                        {37, 33, 17, 40}, {100, 3, 600, 2}, {2, 300, 260, 31}};
    bool right = true;

    for (int i = 0; i < 6 * 16; i++) {
        const int64_t *s = shapes[i / 16];
        struct try x = way(s[0], s[1], s[2], s[3], i % 4);
        x.m.stride_a =
            i / 4 % 4 != 1 && i / 4 % 4 != 3; /* 0: the same matrix for all of the batch */
        x.m.stride_b = i / 4 % 4 < 2;
        right &= try_product(x);
    }
    return right;
}

/* Several tiles, along rows and along columns, the last one short. */
static bool case_tiles(void)
{
    static const int64_t shapes[][3] = {{64, 784, 256},  {784, 256, 64},  {1, 2001, 1025},
                                        {2001, 1, 1025}, {515, 130, 100}, {130, 515, 100}};
    bool right = true;

    for (int i = 0; i < 6 * 4; i++)
        right &= try_product(way(1, shapes[i / 4][0], shapes[i / 4][1], shapes[i / 4][2], i % 4));
    return right;
}

/* Nothing to add up, or nothing to write. */
static bool case_empty(void)
{
    static const int64_t shapes[][4] = {{1, 3, 4, 0}, {2, 130, 515, 0}, {1, 0, 4, 5},
                                        {1, 4, 0, 5}, {0, 4, 3, 5},     {0, 300, 300, 300}};
    bool right = true;

    for (int i = 0; i < 6 * 8; i++) {
        const int64_t *s = shapes[i / 8];
        right &= try_product(way(s[0], s[1], s[2], s[3], i % 4));
    }
    return right;
}

/* ---- numbers that are none ---- */

/* A NaN in row 2 of a reaches row 2 of the result, whatever comes after, and no other row. */
static bool case_nan(int64_t size)
{
    bool right = true;

    for (int act = KERN_ACT_NONE; act <= KERN_ACT_TANH; act++) {
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            struct try x = way(1, size, size, size, 0);
            x.m.act = (enum kern_act)act;
            x.m.accumulate = accumulate;
            write_program(&x);
            ((float *)t.init[t.op[0].in[0]])[2 * x.m.lda + 1] = NAN;
            right &= kt_run(&cpu[1], &t, 0) && is_right(&x);
        }
    }
    return right;
}

/* ---- refusals ---- */

static bool is_refused(const char *what)
{
    struct kern_err e = {KERN_OK, ""};
    struct kern_plan *plan = NULL;
    const enum kern_status rc = cpu[0].b->plan_new(cpu[0].d, &t.p, &plan, &e);

    cpu[0].b->plan_free(plan);
    if (rc == KERN_EINVAL && strstr(e.msg, what))
        return true;
    note("status %d, \"%s\" should name %s", (int)rc, e.msg, what);
    return false;
}

static struct kern_matmul *sound(void)
{
    struct try x = way(2, 40, 50, 60, 0);

    x.bias = true;
    write_program(&x);
    return &t.op[0].u.matmul;
}

static void test_refusals(void)
{
    sound()->lda--;
    ok(is_refused("a"), "rows longer than their leading dimension are refused");
    sound()->m = INT64_MAX / 2;
    ok(is_refused("a"), "a shape past 2^63 is refused");
    sound()->n++;
    ok(is_refused("b"), "b of too few elements is refused");
    sound()->stride_c = 0;
    ok(is_refused("batch"), "results over each other are refused");
    sound()->act = (enum kern_act)(KERN_ACT_TANH + 1);
    ok(is_refused("activation"), "an unknown activation is refused");
    sound()->batch = -1;
    ok(is_refused("a"), "a negative batch is refused");
    sound();
    t.op[0].in[1] = -1;
    ok(is_refused("b is"), "a product without b is refused");
    sound();
    t.buf[t.op[0].in[2]].count = 49;
    ok(is_refused("bias"), "a short bias is refused");
}

static bool open_all(void)
{
    struct kern_err e = {KERN_OK, ""};

    for (int i = 0; i < DEVICES; i++) {
        const struct kern_devopts o = {.threads = thread_counts[i], .poison = true};
        if (!kt_open(&cpu[i], "cpu"))
            return false;
        cpu[i].b->close(cpu[i].d);
        cpu[i].d = NULL;
        if (cpu[i].b->open(0, &o, &cpu[i].d, &e) != KERN_OK) {
            note("%s", e.msg);
            return false;
        }
    }
    return true;
}

int main(void)
{
    if (ok(open_all(), "the plugin opens with 1, 2, 3 and 7 threads")) {
        static const int64_t rows[] = {1, 3, 31, 33, 257};
        for (int i = 0; i < 5; i++)
            ok(case_sizes(rows[i]), "products of %lld rows: right, and the same on all",
               (long long)rows[i]);
        ok(case_batches(), "batches, with one matrix for all too");
        ok(case_tiles(), "products of several tiles");
        ok(case_empty(), "empty dimensions");
        ok(case_nan(5), "a NaN stays one in small products");
        ok(case_nan(65), "a NaN stays one in large products");
        test_refusals();
        kt_begin(&t);
    }
    free(first);
    for (int i = 0; i < DEVICES; i++)
        kt_close(&cpu[i]);
    return tap_done();
}
