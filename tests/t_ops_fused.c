/* Every elementwise operation and instruction gives on the cpu backend what the f64 reference
 * gives: on every type, size and view, for NaN and infinities too; random draws to the bit. */
#include "tests/kern_util.h"

#include <float.h>

/* How an op is tried on floats: operands in [lo, hi), and how many half-ulps of max(|result|,
 * floor) it may be off. 0 where f32 and f64-then-rounded agree to the bit (one correctly rounded
 * operation: a double has more than twice the digits). Functions of our own: 4 ulp. pow: its error
 * grows with |b log a|, here below 6. mod: the quotient is below 2^4, so the product of the plain
 * formula loses 4 bits of a. */
struct ew_try {
    float lo, hi;
    double roundings, floor;
    bool huge; /* 1e30 among the special values: not where the argument must be reduced */
};

#define EXACT(lo, hi)                                                                              \
    {                                                                                              \
        lo, hi, 0, 0, true                                                                         \
    }
static const struct ew_try tries[EW_COUNT] = {
    [EW_NEG] = EXACT(-3, 3),
    [EW_ABS] = EXACT(-3, 3),
    [EW_EXP] = {-20, 20, 8, FLT_MIN, true},
    [EW_EXPM1] = {-3, 3, 8, FLT_MIN, true},
    [EW_LOG] = {1e-3f, 10, 8, FLT_MIN, true},
    [EW_LOG1P] = {-0.9f, 3, 8, FLT_MIN, true},
    [EW_SQRT] = EXACT(0, 9),
    [EW_RSQRT] = {0.01f, 9, 3, FLT_MIN, true},
    [EW_RECIP] = EXACT(0.1f, 9),
    [EW_SIN] = {-30, 30, 8, 1, false},
    [EW_COS] = {-30, 30, 8, 1, false},
    [EW_TANH] = {-6, 6, 8, FLT_MIN, true},
    [EW_ERF] = {-4, 4, 8, FLT_MIN, true},
    [EW_SIGMOID] = {-20, 20, 8, FLT_MIN, true},
    [EW_RELU] = EXACT(-3, 3),
    [EW_FLOOR] = EXACT(-5, 5),
    [EW_ROUND] = EXACT(-5, 5),
    [EW_SIGN] = EXACT(-3, 3),
    [EW_ISFINITE] = EXACT(-3, 3),
    [EW_NOT] = EXACT(0, 1),
    [EW_ADD] = EXACT(-3, 3),
    [EW_SUB] = EXACT(-3, 3),
    [EW_MUL] = EXACT(-3, 3),
    [EW_DIV] = EXACT(0.1f, 5),
    [EW_POW] = {0.25f, 4, 32, FLT_MIN, true},
    [EW_MAX] = EXACT(-3, 3),
    [EW_MIN] = EXACT(-3, 3),
    [EW_MOD] = {0.5f, 5, 32, 1, false},
    [EW_LT] = EXACT(-3, 3),
    [EW_LE] = EXACT(-3, 3),
    [EW_EQ] = EXACT(-3, 3),
    [EW_NE] = EXACT(-3, 3),
    [EW_AND] = EXACT(0, 1),
    [EW_OR] = EXACT(0, 1),
    [EW_SELECT] = EXACT(-3, 3),
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

enum layout { FLAT, ROW_OVER, COLUMN_OVER, FLIPPED, PERMUTED, LAYOUTS };

static const char *const layout_names[LAYOUTS] = {"flat", "second operand a row",
                                                  "first operand a column",
                                                  "flipped, stepped, offset", "permuted"};

static struct kt_dev cpu, ref;
static struct kt t;

/* An operand of `type`; every third float is small, every fourth integer or so is 0. */
static int operand(enum dtype type, int64_t count, const struct ew_try *how, uint32_t seed)
{
    int b;

    if (type == DT_I32)
        return kt_rand_i(&t, count, -6, 7, seed);
    if (type == DT_F32) {
        b = kt_rand(&t, KERN_INPUT, count, how->lo, how->hi, seed);
        for (int64_t i = seed % 3; i < count && how->lo < 0; i += 3)
            ((float *)t.init[b])[i] *= 1e-3f;
        return b;
    }
    b = kt_in(&t, type, count, NULL);
    for (int64_t i = 0; i < count; i++)
        ((uint8_t *)t.init[b])[i] = (uint8_t)(philox_word(seed, PHILOX_SCRIPT, 3, 1, (uint64_t)i) &
                                              (type == DT_BOOL ? 1 : 255));
    return b;
}

/* The type of operand k of ew when its instruction has `type`. */
static enum dtype operand_type(enum ew ew, int k, enum dtype type)
{
    if (info[ew].rule == EW_RULE_LOGIC || (info[ew].rule == EW_RULE_SEL && k == 0))
        return DT_BOOL;
    return type;
}

static enum dtype result_type(enum ew ew, enum dtype type)
{
    return info[ew].rule == EW_RULE_LOGIC || info[ew].rule == EW_RULE_BOOL ? DT_BOOL : type;
}

/* The iteration space of a layout, and how operand k (3: the result) lies in a buffer of 12 n + 12.
 */
static struct kern_fused *layout_space(enum layout l, int64_t n)
{
    if (l == PERMUTED)
        return kt_fused(&t, 3, 3, n, 2);
    return l == ROW_OVER || l == COLUMN_OVER ? kt_fused(&t, 2, n, 5, 0) : kt_fused(&t, 1, n, 0, 0);
}

static int layout_view(struct kern_fused *f, enum layout l, int k, int buf, int64_t n)
{
    switch (l) {
    case ROW_OVER: /* [n][5] with a row [5], and a column [n] */
        return k == 1   ? kt_view(&t, f, buf, 0, 0, 1, 0)
               : k == 2 ? kt_view(&t, f, buf, 0, 1, 0, 0)
                        : kt_view(&t, f, buf, 0, 5, 1, 0);
    case COLUMN_OVER:
        return k == 0   ? kt_view(&t, f, buf, 0, 1, 0, 0)
               : k == 2 ? kt_view(&t, f, buf, 0, 0, 1, 0)
                        : kt_view(&t, f, buf, 0, 5, 1, 0);
    case FLIPPED:
        return k == 0   ? kt_view(&t, f, buf, n + 1, -1, 0, 0)
               : k == 1 ? kt_view(&t, f, buf, 1, 2, 0, 0)
               : k == 2 ? kt_view(&t, f, buf, 4, 0, 0, 0)
                        : kt_view(&t, f, buf, 2 * n + 3, -2, 0, 0);
    case PERMUTED: /* space [3][n][2] */
        return k == 0   ? kt_view(&t, f, buf, 0, 1, 6, 3)
               : k == 1 ? kt_view(&t, f, buf, 5, 2 * n, 2, -1)
               : k == 2 ? kt_view(&t, f, buf, 3 * n + 2, -n, 1, 1)
                        : kt_view(&t, f, buf, 3, 2, 6, 1);
    default:
        return kt_view(&t, f, buf, 0, 1, 0, 0);
    }
}

static void build_ew(enum ew ew, enum dtype type, enum layout l, int64_t n)
{
    const int64_t count = 12 * n + 12;
    struct kern_fused *f;
    int buf[3], reg[3] = {-1, -1, -1}, out;

    kt_begin(&t);
    for (int k = 0; k < info[ew].arity; k++)
        buf[k] = operand(operand_type(ew, k, type), count, &tries[ew], (uint32_t)(k + 1));
    out = kt_out(&t, result_type(ew, type), count);
    f = layout_space(l, n);
    for (int k = 0; k < info[ew].arity; k++)
        reg[k] = kt_load(&t, f, operand_type(ew, k, type), layout_view(f, l, k, buf[k], n));
    kt_store(&t, f, result_type(ew, type), kt_ew(&t, f, ew, type, reg[0], reg[1], reg[2]),
             layout_view(f, l, 3, out, n));
}

static bool try_sizes(enum ew ew, enum dtype type)
{
    static const int64_t sizes[] = {1, 0, 7, 13, 31, 32, 33, 1025};
    char what[128];
    bool same = true;

    for (int l = 0; l < LAYOUTS; l++) {
        for (size_t i = 0; same && i < sizeof sizes / sizeof *sizes; i++) {
            snprintf(what, sizeof what, "%s %s, n = %lld, %s", info[ew].name, dtype_name(type),
                     (long long)sizes[i], layout_names[l]);
            build_ew(ew, type, (enum layout)l, sizes[i]);
            same = kt_agree(&cpu, &ref, &t, tries[ew].roundings, tries[ew].floor, what);
        }
    }
    return same;
}

/* Every pair of special values; 1e30 where the op takes it. */
static bool try_special_floats(enum ew ew)
{
    static const float special[] = {NAN,   INFINITY, -INFINITY, 0,      -0.0f, 1,    -1,
                                    0.5f,  -0.5f,    2,         3,      -3,    1.5f, 2.5f,
                                    -1.5f, -2.5f,    1e30f,     -1e30f, 1e-30f};
    const int64_t n = tries[ew].huge ? 19 : 16;
    struct kern_fused *f;
    int a, out;

    kt_begin(&t);
    a = kt_in(&t, DT_F32, n, special);
    out = kt_out(&t, result_type(ew, DT_F32), n * n);
    f = kt_fused(&t, 2, n, n, 0);
    const int x = kt_load(&t, f, DT_F32, kt_view(&t, f, a, 0, 1, 0, 0));
    const int y = kt_load(&t, f, DT_F32, kt_view(&t, f, a, 0, 0, 1, 0));
    int r = info[ew].rule == EW_RULE_SEL ? kt_ew(&t, f, EW_LT, DT_F32, x, y, -1) : x;
    r = info[ew].rule == EW_RULE_SEL ? kt_ew(&t, f, ew, DT_F32, r, x, y)
                                     : kt_ew(&t, f, ew, DT_F32, x, info[ew].arity > 1 ? y : -1, -1);
    kt_store(&t, f, result_type(ew, DT_F32), r, kt_view(&t, f, out, 0, n, 1, 0));
    return kt_agree(&cpu, &ref, &t, tries[ew].roundings, tries[ew].floor, info[ew].name);
}

static bool try_special_ints(enum ew ew)
{
    static const int32_t special[] = {INT32_MIN, INT32_MIN + 1, INT32_MAX, -1, 0, 1, 2, -2, 7,
                                      -7,        65536,         46341};
    const int64_t n = 12;
    struct kern_fused *f;
    int a, out, x, y;

    kt_begin(&t);
    a = kt_in(&t, DT_I32, n, special);
    out = kt_out(&t, result_type(ew, DT_I32), n * n);
    f = kt_fused(&t, 2, n, n, 0);
    x = kt_load(&t, f, DT_I32, kt_view(&t, f, a, 0, 1, 0, 0));
    y = kt_load(&t, f, DT_I32, kt_view(&t, f, a, 0, 0, 1, 0));
    kt_store(&t, f, result_type(ew, DT_I32),
             kt_ew(&t, f, ew, DT_I32, x, info[ew].arity > 1 ? y : -1, -1),
             kt_view(&t, f, out, 0, n, 1, 0));
    return kt_agree(&cpu, &ref, &t, 0, 0, info[ew].name);
}

static void test_ew(enum ew ew)
{
    const enum ew_rule rule = info[ew].rule;

    if (!ok(tries[ew].hi > tries[ew].lo, "%s has a case", info[ew].name))
        return;
    if (rule == EW_RULE_LOGIC) {
        ok(try_sizes(ew, DT_BOOL), "%s bool: cpu as ref", info[ew].name);
        return;
    }
    ok(try_sizes(ew, DT_F32), "%s f32: cpu as ref", info[ew].name);
    ok(try_special_floats(ew), "%s f32: NaN, infinities and zeros too", info[ew].name);
    if (rule == EW_RULE_F32)
        return;
    ok(try_sizes(ew, DT_I32), "%s i32: cpu equals ref", info[ew].name);
    if (rule != EW_RULE_SEL)
        ok(try_special_ints(ew), "%s i32: the ends of the range too", info[ew].name);
}

/* ---- random draws ---- */

static bool try_random(enum kern_insn_code code, bool per_sample, float p, int64_t rows)
{
    const bool is_int = code == KERN_I_BITS;
    const int64_t cols = 33;
    struct kern_insn n = {.code = (uint8_t)code,
                          .type = is_int ? DT_I32 : DT_F32,
                          .a = -1,
                          .b = -1,
                          .c = -1,
                          .stream = 0xdeadbeef,
                          .per_sample = per_sample};
    struct kern_fused *f;
    char what[96];
    int x, out;

    kt_begin(&t);
    t.h.sample_base = 5;
    t.h.value[9] = p;
    x = kt_rand(&t, KERN_INPUT, rows * cols, 1, 2, 4); /* not 0: a kept element is seen */
    out = kt_out(&t, is_int ? DT_I32 : DT_F32, rows * cols);
    f = kt_fused(&t, 2, rows, cols, 0);
    if (code == KERN_I_DROPOUT) {
        n.a = (int16_t)kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, cols, 1, 0));
        n.b = (int16_t)kt_insn(
            &t, f,
            (struct kern_insn){
                .code = KERN_I_HYPER, .type = DT_F32, .a = -1, .b = -1, .c = -1, .slot = 9});
    }
    kt_store(&t, f, n.type, kt_insn(&t, f, n), kt_view(&t, f, out, 0, cols, 1, 0));
    snprintf(what, sizeof what, "%lld rows, p %g", (long long)rows, (double)p);
    return kt_agree(&cpu, &ref, &t, code == KERN_I_DROPOUT ? 3 : 0, FLT_MIN, what);
}

/* p at, half a step and a step above the words of the first draws: an f32 comparison would go wrong
 * here. */
static bool try_thresholds(void)
{
    bool same = true;

    kt_begin(&t);
    const uint64_t seed = t.h.seed, step = t.h.step;
    for (uint64_t i = 0; i < 33; i++) {
        const float p =
            philox_uniform(philox_word(seed, PHILOX_GRAPH, 0xdeadbeef, (uint32_t)step, i));
        for (int k = 0; k < 3; k++)
            same &= try_random(KERN_I_DROPOUT, false, p + (float)k * 0x1p-25f, 1);
    }
    return same;
}

static void test_random(void)
{
    static const float p[] = {0, 1, 0.5f, 0.1f, 0.999f, 1e-8f, 0.3f};
    static const int64_t rows[] = {1, 7, 33, 0};
    bool same[3][2] = {{true, true}, {true, true}, {true, true}};

    for (int per = 0; per < 2; per++) {
        for (size_t i = 0; i < 4; i++) {
            same[0][per] &= try_random(KERN_I_UNIFORM, per, 0, rows[i]);
            same[1][per] &= try_random(KERN_I_BITS, per, 0, rows[i]);
            for (size_t k = 0; k < sizeof p / sizeof *p; k++)
                same[2][per] &= try_random(KERN_I_DROPOUT, per, p[k], rows[i]);
        }
        ok(same[0][per], "uniform, per sample %d: equal bits", per);
        ok(same[1][per], "bits, per sample %d: equal bits", per);
        ok(same[2][per], "dropout, per sample %d: the same elements are kept", per);
    }
    ok(try_thresholds(), "dropout where p is just at an element's word");
}

/* ---- the other instructions ---- */

static struct kern_insn insn(enum kern_insn_code code, enum dtype type, int a)
{
    return (struct kern_insn){
        .code = (uint8_t)code, .type = (uint8_t)type, .a = (int16_t)a, .b = -1, .c = -1};
}

static bool try_cast(enum dtype from, enum dtype to, const void *values, int64_t n)
{
    struct kern_fused *f;
    int in, out, r;

    kt_begin(&t);
    in = kt_in(&t, from, n, values);
    out = kt_out(&t, to, n);
    f = kt_fused(&t, 1, n, 0, 0);
    r = kt_load(&t, f, from == DT_U8 ? DT_I32 : from, kt_view(&t, f, in, 0, 1, 0, 0));
    kt_store(&t, f, to, kt_insn(&t, f, insn(KERN_I_CAST, to, r)), kt_view(&t, f, out, 0, 1, 0, 0));
    return kt_agree(&cpu, &ref, &t, 1, 1, "cast");
}

static void test_cast(void)
{
    static const float x[] = {0,        -0.0f,     1.5f, -1.5f, 0.99f,         -0.99f, NAN,
                              INFINITY, -INFINITY, 3e9f, -3e9f, 2147483520.0f, 1e-30f};
    static const int32_t n[] = {0, 1, -1, INT32_MIN, INT32_MAX, 16777217, 255};
    static const uint8_t u[] = {0, 1, 127, 128, 255}, b[] = {0, 1, 1, 0, 1};

    ok(try_cast(DT_F32, DT_I32, x, 13), "cast f32 to i32: toward zero, NaN 0, the nearest beyond");
    ok(try_cast(DT_F32, DT_BOOL, x, 13), "cast f32 to bool: != 0");
    ok(try_cast(DT_I32, DT_F32, n, 7), "cast i32 to f32");
    ok(try_cast(DT_I32, DT_BOOL, n, 7), "cast i32 to bool");
    ok(try_cast(DT_U8, DT_F32, u, 5), "u8 loads as i32, cast to f32");
    ok(try_cast(DT_BOOL, DT_F32, b, 5), "cast bool to f32");
    ok(try_cast(DT_BOOL, DT_I32, b, 5), "cast bool to i32");
}

static void test_iota_const_hyper(void)
{
    static const enum dtype types[] = {DT_F32, DT_I32};
    bool same = true;
    struct kern_fused *f;
    struct kern_insn n;

    for (int axis = 0; axis < 3; axis++) {
        for (int k = 0; k < 2; k++) {
            kt_begin(&t);
            const int out = kt_out(&t, types[k], 5 * 33 * 3);
            f = kt_fused(&t, 3, 5, 33, 3);
            n = insn(KERN_I_IOTA, types[k], -1);
            n.axis = (uint8_t)axis;
            kt_store(&t, f, types[k], kt_insn(&t, f, n), kt_view(&t, f, out, 0, 99, 3, 1));
            same &= kt_agree(&cpu, &ref, &t, 0, 0, "iota");
        }
    }
    ok(same, "iota along each axis, f32 and i32");
    kt_begin(&t);
    t.h.value[31] = 0.1f;
    const int out = kt_out(&t, DT_F32, 66);
    f = kt_fused(&t, 1, 33, 0, 0);
    n = insn(KERN_I_HYPER, DT_F32, -1);
    n.slot = 31;
    kt_store(&t, f, DT_F32, kt_insn(&t, f, n), kt_view(&t, f, out, 0, 1, 0, 0));
    kt_store(&t, f, DT_F32, kt_const(&t, f, 0.1), kt_view(&t, f, out, 33, 1, 0, 0));
    ok(kt_agree(&cpu, &ref, &t, 1, 1, "hyper, const") && ((float *)t.got[0][out])[0] == 0.1f &&
           ((float *)t.got[0][out])[40] == 0.1f,
       "hyper and const");
}

/* gelu of x + bias, written over x, in many instructions that use registers again. */
static void test_chain(void)
{
    struct kern_fused *f;
    int x, bias, y, r, inner;

    kt_begin(&t);
    x = kt_rand(&t, KERN_RESULT, 7 * 1025, -3, 3, 1);
    bias = kt_rand(&t, KERN_INPUT, 1025, -1, 1, 2);
    f = kt_fused(&t, 2, 7, 1025, 0);
    y = kt_view(&t, f, x, 0, 1025, 1, 0);
    r = kt_ew(&t, f, EW_ADD, DT_F32, kt_load(&t, f, DT_F32, y),
              kt_load(&t, f, DT_F32, kt_view(&t, f, bias, 0, 0, 1, 0)), -1);
    inner = kt_ew(&t, f, EW_MUL, DT_F32, kt_ew(&t, f, EW_MUL, DT_F32, r, r, -1), r, -1);
    inner = kt_ew(&t, f, EW_MUL, DT_F32, inner, kt_const(&t, f, 0.044715), -1);
    inner = kt_ew(&t, f, EW_ADD, DT_F32, inner, r, -1);
    inner = kt_ew(&t, f, EW_MUL, DT_F32, inner, kt_const(&t, f, 0.7978845608028654), -1);
    inner = kt_ew(&t, f, EW_TANH, DT_F32, inner, -1, -1);
    inner = kt_ew(&t, f, EW_ADD, DT_F32, inner, kt_const(&t, f, 1), -1);
    inner = kt_ew(&t, f, EW_MUL, DT_F32, inner, kt_const(&t, f, 0.5), -1);
    kt_store(&t, f, DT_F32, kt_ew(&t, f, EW_MUL, DT_F32, inner, r, -1), y);
    /* 1 + tanh cancels for negative x: absolute, of values up to 4 and 12 roundings */
    ok(kt_agree(&cpu, &ref, &t, 16, 4, "gelu"), "a chain of instructions, in place over its input");
}

/* A group that uses all 64 registers, and stores more than once. */
static void test_registers(void)
{
    struct kern_fused *f;
    int x, out, r[30];

    kt_begin(&t);
    x = kt_rand(&t, KERN_INPUT, 30 * 33, -1, 1, 1);
    out = kt_out(&t, DT_F32, 2 * 33);
    f = kt_fused(&t, 1, 33, 0, 0);
    for (int i = 0; i < 30; i++)
        r[i] = kt_load(&t, f, DT_F32, kt_view(&t, f, x, 33 * i, 1, 0, 0));
    int sum = r[29], max = r[0];
    for (int i = 28; i >= 12; i--)
        sum = kt_ew(&t, f, EW_ADD, DT_F32, sum, r[i], -1);
    for (int i = 1; i < 18; i++)
        max = kt_ew(&t, f, EW_MAX, DT_F32, max, r[i], -1);
    kt_store(&t, f, DT_F32, sum, kt_view(&t, f, out, 0, 1, 0, 0));
    kt_store(&t, f, DT_F32, max, kt_view(&t, f, out, 33, 1, 0, 0));
    ok(f->n_regs == KERN_REGS && kt_agree(&cpu, &ref, &t, 2 * 18, 4, "registers"),
       "%d registers, two stores", f->n_regs);
}

int main(void)
{
    const bool open = kt_open(&ref, "ref") & kt_open(&cpu, "cpu");

    if (ok(open, "both plugins open")) {
        for (int ew = 0; ew < EW_COUNT; ew++)
            test_ew((enum ew)ew);
        test_random();
        test_cast();
        test_iota_const_hyper();
        test_chain();
        test_registers();
        kt_begin(&t);
    }
    kt_close(&cpu);
    kt_close(&ref);
    return tap_done();
}
