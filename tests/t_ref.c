/* The reference backend starts nothing before it must, shares no memory, poisons what is not
 * written, rounds only on the way out, and refuses what it cannot do by name. */
#include "tests/kern_util.h"

static struct kt_dev ref;
static struct kt t;
static struct kern_err err;

/* out = in * hyper[0], both of one element. */
static struct kern_plan *scale_plan(void)
{
    struct kern_plan *plan = NULL;
    struct kern_fused *f;
    int in, out, r;

    kt_begin(&t);
    in = kt_in(&t, DT_F32, 1, NULL);
    out = kt_out(&t, DT_F32, 1);
    f = kt_fused(&t, 1, 1, 0, 0);
    r = kt_insn(
        &t, f, (struct kern_insn){.code = KERN_I_HYPER, .type = DT_F32, .a = -1, .b = -1, .c = -1});
    r = kt_ew(&t, f, EW_MUL, DT_F32, r, kt_load(&t, f, DT_F32, kt_view(&t, f, in, 0, 1, 0, 0)), -1);
    kt_store(&t, f, DT_F32, r, kt_view(&t, f, out, 0, 1, 0, 0));
    ref.b->plan_new(ref.d, &t.p, &plan, &err);
    return plan;
}

static struct kern_mem *memory(int64_t bytes)
{
    struct kern_mem *m = NULL;
    ref.b->mem_new(ref.d, KERN_DEVICE, bytes, &m, &err);
    return m;
}

static void test_open(void)
{
    const struct kern_backend *(*entry)(uint32_t);
    void *sym = dlsym(ref.so, "cupola_backend");
    struct kern_devinfo info;
    struct kern_dev *none;
    char text[200];

    memcpy(&entry, &sym, sizeof entry);
    ok(entry(KERN_ABI + 1) == NULL, "another ABI is refused");
    ok(ref.b->enumerate(&info, 1) == 1 && info.usable, "one usable device");
    ok(ref.b->open(1, NULL, &none, &err) == KERN_EINVAL && !none, "there is no second: %s",
       err.msg);
    ref.b->describe(ref.d, text, sizeof text);
    ok(strstr(text, "f64") != NULL, "it says what it is: %s", text);
}

/* ---- when things happen ---- */

static void test_deferral(void)
{
    struct kern_plan *plan = scale_plan();
    struct kern_mem *m = memory(1024);
    struct kern_bind bind = {.mem = {[KERN_INPUT] = m, [KERN_RESULT] = m},
                             .base = {[KERN_RESULT] = 256}};
    struct kern_hyper h = {.n = 1, .value = {2}};
    struct kern_event *ev = NULL;
    float x = 1, y = -1;
    bool done[3];

    ref.b->event_new(ref.d, &ev, &err);
    ok(ref.b->event_done(ev) && ref.b->event_wait(ev, 0, &err) == KERN_OK, "never recorded: done");
    ref.b->copy_in(m, 0, DT_F32, 1, &x, &err);
    ref.b->plan_run(plan, &bind, &h, &err);
    ref.b->copy_out(m, 256, DT_F32, 1, &y, &err);
    ref.b->event_record(ev, &err);
    ok(y == -1, "nothing has happened before the wait");
    x = 3;
    h.value[0] = 100;
    ok(ref.b->event_wait(ev, -1, &err) == KERN_OK, "the wait succeeds");
    ok(y == 6, "host memory is read at the wait (3), hyper at the call (2): %g", (double)y);

    ref.b->copy_in(m, 256, DT_F32, 1, &x, &err);
    ref.b->copy_out(m, 256, DT_F32, 1, &y, &err);
    ref.b->event_record(ev, &err);
    for (int i = 0; i < 3; i++)
        done[i] = ref.b->event_done(ev);
    ok(!done[0] && !done[1] && done[2] && y == 3,
       "event_done: not yet, not yet, then it has done it");

    ref.b->fill_zero(m, 256, 4, &err);
    ref.b->copy_out(m, 256, DT_F32, 1, &y, &err);
    ref.b->event_record(ev, &err);
    while (ref.b->event_wait(ev, 0, &err) == KERN_ETIMEDOUT)
        ;
    ok(y == 0, "waits of 0 ms get there");
    ref.b->event_free(ev);
    ref.b->plan_free(plan);
    ref.b->mem_free(m);
}

static void test_free_drains(void)
{
    struct kern_plan *plan = scale_plan();
    struct kern_mem *m = memory(1024), *other = memory(64);
    struct kern_bind bind = {.mem = {[KERN_INPUT] = m, [KERN_RESULT] = m},
                             .base = {[KERN_RESULT] = 256}};
    struct kern_hyper h = {.n = 1, .value = {2}};
    float x = 5, y = -1;

    ref.b->copy_in(m, 0, DT_F32, 1, &x, &err);
    ref.b->plan_run(plan, &bind, &h, &err);
    ref.b->copy_out(m, 256, DT_F32, 1, &y, &err);
    ref.b->mem_free(other);
    ok(y == -1, "memory that nothing queued names can go without a wait");
    ref.b->plan_free(plan);
    ok(y == 10, "a queued plan is run before it is freed");
    ref.b->copy_out(m, 0, DT_F32, 1, &y, &err);
    ref.b->mem_free(m);
    ok(y == 5, "and memory is copied from before it is freed");
}

static void test_queue_bound(void)
{
    struct kern_mem *m = memory(64);
    float x = 1, y = 0;
    int n = 1;

    ref.b->copy_in(m, 0, DT_F32, 1, &x, &err);
    for (; y == 0 && n < 100000; n++)
        ref.b->copy_out(m, 0, DT_F32, 1, &y, &err);
    ok(n == 4097, "the queue empties itself when it holds 4096: %d", n);
    ref.b->mem_free(m);
}

/* On a device of its own: it stays failed. */
static void test_failure(void)
{
    struct kern_dev *own = ref.d;
    struct kern_plan *plan;
    struct kern_mem *m;
    struct kern_event *before = NULL, *after = NULL;
    struct kern_hyper h = {.n = 0};
    float y = -1;

    ref.b->open(0, NULL, &ref.d, &err);
    plan = scale_plan();
    m = memory(1024);
    struct kern_bind bind = {.mem = {[KERN_INPUT] = m, [KERN_RESULT] = m},
                             .base = {[KERN_RESULT] = 256}};
    ref.b->event_new(ref.d, &before, &err);
    ref.b->event_new(ref.d, &after, &err);
    ref.b->fill_zero(m, 0, 512, &err);
    ref.b->event_record(before, &err);
    ok(ref.b->plan_run(plan, &bind, &h, &err) == KERN_OK, "a run that will fail is enqueued");
    ref.b->copy_out(m, 256, DT_F32, 1, &y, &err);
    ref.b->event_record(after, &err);
    ok(ref.b->event_wait(after, -1, &err) == KERN_EINVAL && strstr(err.msg, "1 hyperparameters"),
       "its wait says why: %s", err.msg);
    ok(y == -1, "what came after it is dropped");
    ok(ref.b->event_wait(before, -1, &err) == KERN_OK, "what came before it is done");
    ok(ref.b->event_wait(after, -1, &err) == KERN_EINVAL, "the error stays");
    ref.b->event_free(before);
    ref.b->event_free(after);
    ref.b->plan_free(plan);
    ref.b->mem_free(m);
    ref.b->close(ref.d);
    ref.d = own;
}

/* ---- what memory holds ---- */

static void move(enum dtype type, int from, int to)
{
    struct kern_fused *f = kt_fused(&t, 1, t.buf[to].count, 0, 0);
    kt_store(&t, f, type, kt_load(&t, f, type, kt_view(&t, f, from, 0, 1, 0, 0)),
             kt_view(&t, f, to, 0, 1, 0, 0));
}

static void test_poison(void)
{
    struct kern_mem *m = memory(64);
    struct kern_event *ev = NULL;
    float fresh = 0;
    int never, never_i, x, out, out_i, late, a, b;

    ref.b->event_new(ref.d, &ev, &err);
    ref.b->copy_out(m, 60, DT_F32, 1, &fresh, &err);
    ref.b->event_record(ev, &err);
    ref.b->event_wait(ev, -1, &err);
    ref.b->event_free(ev);
    ref.b->mem_free(m);
    ok(isnan(fresh), "new memory is NaN");

    kt_begin(&t);
    never = kt_buf(&t, KERN_ARENA, DT_F32, 3, NULL);
    never_i = kt_buf(&t, KERN_ARENA, DT_I32, 3, NULL);
    out = kt_out(&t, DT_F32, 3);
    out_i = kt_out(&t, DT_I32, 3);
    move(DT_F32, never, out);
    move(DT_I32, never_i, out_i);
    kt_run(&ref, &t, 0);
    ok(isnan(((float *)t.got[0][out])[2]), "an arena buffer that was never written reads as NaN");
    ok(((int32_t *)t.got[0][out_i])[2] == 0x7f7f7f7f, "and as 0x7f7f7f7f if it is i32");

    kt_begin(&t);
    x = kt_rand(&t, KERN_INPUT, 3, 1, 2, 1);
    late = kt_buf(&t, KERN_ARENA, DT_F32, 3, NULL);
    out = kt_out(&t, DT_F32, 3);
    move(DT_F32, late, out);
    move(DT_F32, x, late);
    kt_run_steps(&ref, &t, 0, 2, NULL);
    ok(isnan(((float *)t.got[0][out])[0]), "nothing in the arena lasts from run to run");

    kt_begin(&t);
    x = kt_rand(&t, KERN_INPUT, 3, 1, 2, 1);
    a = kt_buf(&t, KERN_ARENA, DT_F32, 3, NULL);
    b = kt_buf(&t, KERN_ARENA, DT_F32, 3, NULL);
    t.buf[b].offset = t.buf[a].offset;
    out = kt_out(&t, DT_F32, 3);
    move(DT_F32, x, a);
    struct kern_fused *f = kt_fused(&t, 1, 3, 0, 0);
    kt_store(&t, f, DT_F32, kt_const(&t, f, 7), kt_view(&t, f, b, 0, 1, 0, 0));
    move(DT_F32, a, out);
    kt_run(&ref, &t, 0);
    ok(!memcmp(t.got[0][out], t.init[x], 12), "two buffers at one offset do not share memory");
}

static void test_cells(void)
{
    static const uint8_t u[5] = {0, 1, 2, 254, 255};
    static const double d[2] = {1.0 / 3, -1e300};
    static const int32_t n[3] = {INT32_MIN, -1, INT32_MAX};
    struct kern_mem *m = memory(256);
    struct kern_event *ev = NULL;
    uint8_t u_out[3];
    double d_out = 0;
    int32_t n_out[2];
    int x, between, out;

    ref.b->event_new(ref.d, &ev, &err);
    ref.b->copy_in(m, 3, DT_U8, 5, u, &err);
    ref.b->copy_in(m, 16, DT_F64, 2, d, &err);
    ref.b->copy_in(m, 64, DT_I32, 3, n, &err);
    ref.b->copy_out(m, 5, DT_U8, 3, u_out, &err);
    ref.b->copy_out(m, 24, DT_F64, 1, &d_out, &err);
    ref.b->copy_out(m, 68, DT_I32, 2, n_out, &err);
    ref.b->event_record(ev, &err);
    ref.b->event_wait(ev, -1, &err);
    ok(!memcmp(u_out, u + 2, 3) && d_out == d[1] && !memcmp(n_out, n + 1, 8),
       "copies of parts: offsets are those of dense elements");
    ok(ref.b->copy_out(m, 252, DT_F32, 2, n_out, &err) == KERN_EINVAL &&
           ref.b->copy_in(m, 2, DT_F32, 1, n, &err) == KERN_EINVAL &&
           ref.b->fill_zero(m, 200, 57, &err) == KERN_EINVAL,
       "copies beyond the memory or between elements are refused: %s", err.msg);
    ok(ref.b->copy_out(m, 0, DT_BF16, 1, n_out, &err) == KERN_EUNSUPPORTED, "bf16 is refused: %s",
       err.msg);
    ref.b->event_free(ev);
    ref.b->mem_free(m);

    kt_begin(&t);
    x = kt_in(&t, DT_F32, 1, &(float){1});
    between = kt_buf(&t, KERN_ARENA, DT_F32, 1, NULL);
    out = kt_out(&t, DT_F32, 1);
    struct kern_fused *f = kt_fused(&t, 1, 1, 0, 0);
    int r = kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 1, 0, 0));
    r = kt_ew(&t, f, EW_ADD, DT_F32, r, kt_const(&t, f, 1e-12), -1);
    kt_store(&t, f, DT_F32, r, kt_view(&t, f, between, 0, 1, 0, 0));
    f = kt_fused(&t, 1, 1, 0, 0);
    r = kt_load(&t, f, DT_F32, kt_view(&t, f, between, 0, 1, 0, 0));
    r = kt_ew(&t, f, EW_SUB, DT_F32, r, kt_const(&t, f, 1), -1);
    kt_store(&t, f, DT_F32, r, kt_view(&t, f, out, 0, 1, 0, 0));
    kt_run(&ref, &t, 0);
    ok(fabs((double)((float *)t.got[0][out])[0] - 1e-12) < 1e-15,
       "(1 + 1e-12) - 1 through an f32 buffer is 1e-12: nothing is rounded on the way");
}

/* ---- refusals ---- */

static enum kern_status plan_status(void)
{
    struct kern_plan *plan = NULL;
    enum kern_status rc = ref.b->plan_new(ref.d, &t.p, &plan, &err);

    ref.b->plan_free(plan);
    return rc;
}

/* relu over 4 elements, to be spoiled: view 0 is loaded, view 1 stored; insns load, relu, store. */
static struct kern_fused *small(void)
{
    struct kern_fused *f;
    int x, y, r;

    kt_begin(&t);
    x = kt_in(&t, DT_F32, 4, NULL);
    y = kt_out(&t, DT_F32, 4);
    f = kt_fused(&t, 1, 4, 0, 0);
    x = kt_view(&t, f, x, 0, 1, 0, 0);
    y = kt_view(&t, f, y, 0, 1, 0, 0);
    r = kt_load(&t, f, DT_F32, x);
    r = kt_ew(&t, f, EW_RELU, DT_F32, r, -1, -1);
    kt_store(&t, f, DT_F32, r, y);
    return f;
}

static void refused(const char *what)
{
    ok(plan_status() == KERN_EINVAL, "refused, %s: %s", what, err.msg);
}

static void test_refusals(void)
{
    char why[256];

    small();
    ok(plan_status() == KERN_OK && ref.b->supports(ref.d, &t.p, t.op, why, sizeof why),
       "a good one is taken");
    t.buf[0].dtype = DT_BF16;
    ok(!ref.b->supports(ref.d, &t.p, t.op, why, sizeof why) && strstr(why, "bf16") &&
           plan_status() == KERN_EUNSUPPORTED,
       "bf16 is not supported, with a reason: %s", why);
    small();
    t.buf[1].count = 3;
    refused("a view past its buffer");
    small();
    t.view[0].stride[0] = -1;
    refused("a view before its buffer");
    small();
    t.view[0].stride[0] = INT64_MAX;
    refused("a stride that overflows");
    small();
    t.view[1].stride[0] = 0;
    refused("stores over each other");
    small();
    t.buf[0].offset = 4;
    refused("a buffer between the lines");
    small();
    t.p.space_bytes[KERN_RESULT] = 8;
    refused("a buffer past its space");
    small();
    t.insn[1].a = 5;
    refused("a register that nothing sets");
    small();
    t.insn[0].type = DT_I32;
    refused("f32 loaded as i32");
    small();
    t.insn[1].ew = EW_NOT;
    refused("not of a float");
    small()->dim[0] = -1;
    refused("a negative dimension");
    small();
    t.op[0].code = KERN_MATMUL;
    t.op[0].in[0] = t.op[0].in[1] = 0;
    t.op[0].out[0] = 1;
    t.op[0].u.matmul =
        (struct kern_matmul){.batch = 1, .m = 2, .n = 2, .k = 2, .lda = 1, .ldb = 2, .ldc = 2};
    refused("lda shorter than a row");
    t.op[0].u.matmul.lda = 3;
    refused("a matrix larger than its buffer");
    t.op[0].u.matmul.lda = 2;
    ok(plan_status() == KERN_OK, "and taken with lda 2");
}

static void test_binding(void)
{
    struct kern_plan *plan = scale_plan();
    struct kern_mem *m = memory(300);
    struct kern_bind bind = {.mem = {[KERN_INPUT] = m}};
    struct kern_hyper h = {.n = 1};

    ok(ref.b->plan_run(plan, &bind, &h, &err) == KERN_EINVAL, "a space without memory: %s",
       err.msg);
    bind.mem[KERN_RESULT] = m;
    bind.base[KERN_RESULT] = 256;
    ok(ref.b->plan_run(plan, &bind, &h, &err) == KERN_EINVAL, "a space past its memory: %s",
       err.msg);
    bind.base[KERN_RESULT] = 4;
    ok(ref.b->plan_run(plan, &bind, &h, &err) == KERN_EINVAL, "a base between the lines: %s",
       err.msg);
    ref.b->plan_free(plan);
    ref.b->mem_free(m);
}

int main(void)
{
    if (ok(kt_open(&ref, "ref"), "the plugin opens")) {
        test_open();
        test_deferral();
        test_free_drains();
        test_queue_bound();
        test_failure();
        test_poison();
        test_cells();
        test_refusals();
        test_binding();
        kt_begin(&t);
    }
    kt_close(&ref);
    return tap_done();
}
