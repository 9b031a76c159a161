/* The CPU backend's functions are within an ulp of the true value over all of f32, specials too. */
#include "tests/kern_util.h"

#include <float.h>

static struct kt_dev cpu;
static struct kt t;

static const char *const ew_names[EW_COUNT] = {
#define X(name, text, arity, rule) text,
    EW_MAP(X)
#undef X
};

/* ---- functions against long double ---- */

enum { SWEEP = 1 << 20 };

static long double true_sigmoid(long double x)
{
    return 1 / (1 + expl(-x));
}

/* Range: every float from lo to hi is equally likely, so most are small. 0 stands for the whole of
 * f32. */
static const struct {
    enum ew op;
    long double (*truth)(long double);
    float lo, hi;
    double ulps;
} sweeps[] = {
    {EW_EXP, expl, -110, 95, 1},
    {EW_EXP, expl, 0, 0, 1},
    {EW_EXPM1, expm1l, -110, 95, 1},
    {EW_EXPM1, expm1l, 0, 0, 1},
    {EW_LOG, logl, 0, 0, 1},
    {EW_LOG, logl, 0.5f, 2, 1},
    {EW_LOG1P, log1pl, 0, 0, 1},
    {EW_LOG1P, log1pl, -1, 4, 1},
    {EW_TANH, tanhl, 0, 0, 1},
    {EW_TANH, tanhl, -10, 10, 1},
    {EW_ERF, erfl, 0, 0, 1},
    {EW_ERF, erfl, -5, 5, 1},
    {EW_SIGMOID, true_sigmoid, 0, 0, 1},
    {EW_SIGMOID, true_sigmoid, -110, 110, 1},
    {EW_SIN, sinl, -10, 10, 1},
    {EW_SIN, sinl, -2e5f, 2e5f, 1},
    {EW_SIN, sinl, 0, 0, 1},
    {EW_COS, cosl, -10, 10, 1},
    {EW_COS, cosl, -2e5f, 2e5f, 1},
    {EW_COS, cosl, 0, 0, 1},
};

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Any bits at all, NaN, infinities and denormals among them; or linear in [lo, hi). */
static float sweep_value(int i, float lo, float hi, uint32_t stream)
{
    const uint32_t word = philox_word(1, PHILOX_SCRIPT, stream, 1, (uint64_t)i);
    static const float special[] = {0,        -0.0f,     1,       -1,        FLT_MIN,  -FLT_MIN,
                                    1e-45f,   -1e-45f,   FLT_MAX, -FLT_MAX,  89,       -104,
                                    INFINITY, -INFINITY, NAN,     88.72284f, 0x1p-24f, 0.5f};

    if (i < 18)
        return special[i];
    return lo == hi ? float_of(word) : lo + (hi - lo) * ((float)word * 0x1p-32f);
}

/* |got - want| in units of the last place of want as an f32; 0 for equal specials, huge for unequal
 * ones. */
static double ulps_off(float got, long double want)
{
    const float rounded = (float)want;
    int e;

    if (isnan(rounded) || isinf(rounded) || isnan(got) || isinf(got))
        return (isnan(rounded) && isnan(got)) || rounded == got ? 0 : 1e9;
    if (want == 0)
        return got == 0 ? 0 : 1e9;
    frexpl(want, &e);
    return (double)(fabsl((long double)got - want) / ldexpl(1, e - 24 < -149 ? -149 : e - 24));
}

static double sweep_worst(size_t k)
{
    const int64_t n = SWEEP;
    struct kern_fused *f;
    double worst = 0;
    int x, y;

    kt_begin(&t);
    x = kt_in(&t, DT_F32, n, NULL);
    y = kt_out(&t, DT_F32, n);
    for (int i = 0; i < n; i++)
        ((float *)t.init[x])[i] = sweep_value(i, sweeps[k].lo, sweeps[k].hi, (uint32_t)k);
    f = kt_fused(&t, 1, n, 0, 0);
    kt_store(&t, f, DT_F32,
             kt_ew(&t, f, sweeps[k].op, DT_F32,
                   kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 1, 0, 0)), -1, -1),
             kt_view(&t, f, y, 0, 1, 0, 0));
    if (!kt_run(&cpu, &t, 0))
        return INFINITY;
    for (int i = 0; i < n; i++) {
        const float a = ((float *)t.init[x])[i], got = ((float *)t.got[0][y])[i];
        const double off = ulps_off(got, sweeps[k].truth((long double)a));
        if (off > worst)
            worst = off;
        if (off > sweeps[k].ulps && off == worst)
            note("%s(%a): got %a want %La", ew_names[sweeps[k].op], (double)a, (double)got,
                 sweeps[k].truth((long double)a));
    }
    return worst;
}

static void test_functions(void)
{
    for (size_t k = 0; k < sizeof sweeps / sizeof *sweeps; k++) {
        const double worst = sweep_worst(k);
        ok(worst <= sweeps[k].ulps, "%s over %s: %.3f ulp of %g", ew_names[sweeps[k].op],
           sweeps[k].lo == sweeps[k].hi ? "all of f32" : "its range", worst, sweeps[k].ulps);
    }
}

/* Lua's %, exactly: fmodl of floats is exact, the sign fix rounds once. */
static long double true_mod(long double a, long double b)
{
    const long double m = fmodl(a, b);
    return (m > 0 ? b < 0 : m < 0 && b > 0) ? m + b : m;
}

static double two_worst(enum ew op, long double (*truth)(long double, long double), bool any)
{
    const int64_t n = SWEEP / 2;
    struct kern_fused *f;
    double worst = 0;
    int x, y, z, a, b;

    kt_begin(&t);
    x = kt_in(&t, DT_F32, n, NULL);
    y = kt_in(&t, DT_F32, n, NULL);
    z = kt_out(&t, DT_F32, n);
    for (int i = 0; i < n; i++) {
        const float p = sweep_value(any ? i % 18 + (i < 324 ? 0 : i) : i + 18, 0, any ? 0 : 8, 50);
        const float q =
            sweep_value(any && i < 324 ? i / 18 : i + 18, any ? 0 : -20, any ? 0 : 20, 51);
        ((float *)t.init[x])[i] = p;
        ((float *)t.init[y])[i] = i % 3 == 0 && fabsf(q) < 1e6f ? truncf(q) : q; /* whole powers */
        if (i % 5 == 0 && i >= 324)
            ((float *)t.init[x])[i] = -p;
    }
    f = kt_fused(&t, 1, n, 0, 0);
    a = kt_load(&t, f, DT_F32, kt_view(&t, f, x, 0, 1, 0, 0));
    b = kt_load(&t, f, DT_F32, kt_view(&t, f, y, 0, 1, 0, 0));
    kt_store(&t, f, DT_F32, kt_ew(&t, f, op, DT_F32, a, b, -1), kt_view(&t, f, z, 0, 1, 0, 0));
    if (!kt_run(&cpu, &t, 0))
        return INFINITY;
    for (int i = 0; i < n; i++) {
        const float p = ((float *)t.init[x])[i], q = ((float *)t.init[y])[i];
        const float got = ((float *)t.got[0][z])[i];
        const double off = ulps_off(got, truth((long double)p, (long double)q));
        if (off > 1 && off > worst)
            note("%s(%a, %a): got %a want %La", ew_names[op], (double)p, (double)q, (double)got,
                 truth((long double)p, (long double)q));
        worst = off > worst ? off : worst;
    }
    return worst;
}

static void test_two_operands(void)
{
    double worst = two_worst(EW_POW, powl, false);

    ok(worst <= 1, "pow of ordinary operands: %.3f ulp", worst);
    worst = two_worst(EW_POW, powl, true);
    ok(worst <= 1, "pow of any bits, and every pair of special values: %.3f ulp", worst);
    worst = two_worst(EW_MOD, true_mod, false);
    ok(worst <= 1, "mod of ordinary operands: %.3f ulp", worst);
    worst = two_worst(EW_MOD, true_mod, true);
    ok(worst <= 1, "mod of any bits, quotients up to 2^277: %.3f ulp", worst);
}

int main(void)
{
    if (ok(kt_open(&cpu, "cpu"), "the plugin opens")) {
        test_functions();
        test_two_operands();
        kt_begin(&t);
    }
    kt_close(&cpu);
    return tap_done();
}
