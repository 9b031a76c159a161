/* The CPU backend at the edges: a caller with other floating-point settings, a fully masked row,
 * more than 2^31 elements. */
#include "tests/kern_util.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static struct kt_dev cpu;
static struct kt t;

/* ---- rounding ---- */

/* y = x * x of values whose squares are denormal, with the caller's floating point set as asked. */
static bool square_tiny(int which, unsigned set)
{
    const int64_t n = 100003; /* several chunks: workers take part */
    struct kern_fused *f;
    bool good;
    int x, r;

    if (which == 0) {
        kt_begin(&t);
        x = kt_rand(&t, KERN_INPUT, n, 1e-21f, 1e-20f, 1);
        f = kt_fused(&t, 1, n, 0, 0);
        r = kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 1, 0, 0));
        r = kt_ew(&t, f, EW_MUL, DT_F32, r, r, -1);
        kt_store(&t, f, DT_F32, r, kt_view(&t, f, kt_out(&t, DT_F32, n), 0, 1, 0, 0));
    }
#if defined(__x86_64__)
    const unsigned was = _mm_getcsr();
    _mm_setcsr(was | set);
    good = kt_run(&cpu, &t, which) && (_mm_getcsr() & set) == set;
    _mm_setcsr(was);
#else
    (void)set;
    good = kt_run(&cpu, &t, which);
#endif
    return good;
}

static void test_rounding(void)
{
    bool same = square_tiny(0, 0) && ((float *)t.got[0][1])[7] > 0;

    same = same && square_tiny(1, 0xe040); /* toward zero; flush results and operands */
    ok(same && memcmp(t.got[0][1], t.got[1][1], kt_bytes(&t, 1)) == 0,
       "the caller's rounding and denormals change nothing, and are left as they were");
}

/* ---- a masked row ---- */

static void add_axis(enum kern_code code, int in, int out, int64_t n)
{
    struct kern_op *op = kt_op(&t, code, "axis");

    op->in[0] = in;
    op->out[0] = out;
    op->u.axis = (struct kern_axis){.outer = 3, .n = n, .inner = 1};
}

/* Softmax and logsumexp of [3][n]; row 1 is fully masked or not. */
static bool softmax_masked(int which, bool masked, int64_t n)
{
    static const enum kern_code codes[] = {KERN_SOFTMAX, KERN_LOG_SOFTMAX, KERN_LOGSUMEXP};
    int x;

    if (which == 0) {
        kt_begin(&t);
        x = kt_rand(&t, KERN_INPUT, 3 * n, -5, 5, 1);
        for (int c = 0; c < 3; c++)
            add_axis(codes[c], x, kt_out(&t, DT_F32, c == 2 ? 3 : 3 * n), n);
    }
    for (int64_t i = n; masked && i < 2 * n; i++)
        ((float *)t.init[0])[i] = -INFINITY;
    return kt_run(&cpu, &t, which);
}

static bool is_masked_quiet(int64_t n)
{
    bool good = softmax_masked(0, false, n) && softmax_masked(1, true, n);

    for (int64_t i = 0; good && i < 3 * n; i++) {
        const bool in = i >= n && i < 2 * n;
        for (int b = 1; b < 3; b++) {
            const float was = ((float *)t.got[0][b])[i], is = ((float *)t.got[1][b])[i];
            good &= in ? is == (b == 1 ? 0 : -INFINITY) : was == is;
        }
    }
    return good && ((float *)t.got[1][3])[1] == -INFINITY &&
           ((float *)t.got[0][3])[2] == ((float *)t.got[1][3])[2];
}

static void test_masked(void)
{
    ok(is_masked_quiet(1) && is_masked_quiet(33) && is_masked_quiet(2053),
       "a fully masked row: zeros and -inf, the other rows as they were");
}

/* ---- more than 2^31 elements ---- */

#if defined(__SANITIZE_THREAD__)
static void test_large(void)
{
    ok(true, "more than 2^31 elements # SKIP the thread sanitizer needs several times the memory");
}
#else
/* A program over `rows` x `cols` bytes, more than 2^31 of them: a row taken, and the same row by a
 * view, behind element 2^31. */
static void write_large(int64_t rows, int64_t cols)
{
    const int32_t last = (int32_t)rows - 1;
    struct kern_fused *f;
    struct kern_op *op;
    int table;

    kt_begin(&t);
    table = t.p.n_bufs++;
    t.buf[table] = (struct kern_buf){.space = KERN_CONST, .dtype = DT_U8, .count = rows * cols};
    t.p.space_bytes[KERN_CONST] = rows * cols;
    op = kt_op(&t, KERN_TAKE, "take");
    op->in[0] = table;
    op->in[1] = kt_in(&t, DT_I32, 1, &last);
    op->out[0] = kt_out(&t, DT_U8, cols);
    op->u.axis = (struct kern_axis){.outer = 1, .n = rows, .inner = cols, .k = 1};
    f = kt_fused(&t, 1, cols, 0, 0);
    kt_store(&t, f, DT_I32,
             kt_load(&t, f, DT_I32, kt_view(&t, f, table, (rows - 1) * cols, 1, 0, 0)),
             kt_view(&t, f, kt_out(&t, DT_I32, cols), 0, 1, 0, 0));
}

/* The program of write_large on the backend; its results in got. */
static bool run_large(struct kern_mem *table, struct kern_bind *bind, const uint8_t *row,
                      int64_t rows, int64_t cols)
{
    struct kern_err e = {KERN_OK, ""};
    struct kern_plan *plan = NULL;
    enum kern_status rc = cpu.b->copy_in(table, (rows - 1) * cols, DT_U8, cols, row, &e);

    bind->mem[KERN_CONST] = table;
    for (int s = KERN_INPUT; s <= KERN_RESULT && rc == KERN_OK; s++)
        rc = cpu.b->mem_new(cpu.d, KERN_DEVICE, t.p.space_bytes[s], &bind->mem[s], &e);
    if (rc == KERN_OK)
        rc = kt_transfer(&cpu, &t, 0, bind, false, &e);
    if (rc == KERN_OK)
        rc = cpu.b->plan_new(cpu.d, &t.p, &plan, &e);
    if (rc == KERN_OK)
        rc = cpu.b->plan_run(plan, bind, &t.h, &e);
    if (rc == KERN_OK)
        rc = kt_transfer(&cpu, &t, 0, bind, true, &e);
    if (rc != KERN_OK)
        note("%s", e.msg);
    cpu.b->plan_free(plan);
    cpu.b->mem_free(bind->mem[KERN_INPUT]);
    cpu.b->mem_free(bind->mem[KERN_RESULT]);
    return rc == KERN_OK;
}

static void test_large(void)
{
    static uint8_t row[32769];
    const int64_t rows = 65536, cols = sizeof row;
    struct kern_bind bind = {{NULL}, {0}};
    struct kern_err e = {KERN_OK, ""};
    struct kern_devinfo info;
    struct kern_mem *m = NULL;
    bool same;

    cpu.b->enumerate(&info, 1);
    if (info.mem_free < UINT64_C(6) << 30 ||
        cpu.b->mem_new(cpu.d, KERN_DEVICE, rows * cols, &m, &e) != KERN_OK) {
        ok(true, "more than 2^31 elements # SKIP less than 6 GiB of memory are free");
        return;
    }
    for (int64_t i = 0; i < cols; i++)
        row[i] = (uint8_t)(i * 7 + 1);
    write_large(rows, cols);
    same = run_large(m, &bind, row, rows, cols);
    for (int64_t i = 0; i < cols; i++)
        same &= ((uint8_t *)t.got[0][2])[i] == row[i] && ((int32_t *)t.got[0][3])[i] == row[i];
    ok(same, "a row behind 2^31 elements is found, by index and by view");
    cpu.b->mem_free(m);
}
#endif

int main(void)
{
    if (ok(kt_open(&cpu, "cpu"), "the plugin opens")) {
        test_rounding();
        test_masked();
        test_large();
        kt_begin(&t);
    }
    kt_close(&cpu);
    return tap_done();
}
