/* vec_loops.h - the loops of struct cpu_vec, included by one file an instruction set, which defines
 * CPU_VEC as the name of its table. Compiled with -O3 they become vector code (the pragma: a select
 * of floats, and sqrt, count as free of side effects; values do not change). */
#ifndef CPU_VEC
#error "CPU_VEC: the name of the table"
#endif
#pragma GCC optimize("no-trapping-math", "no-math-errno")

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_math.h"

/* Free of errno: without this a loop with a square root stays scalar, whatever the pragma says. It
 * is an instruction, never a call. */
float sqrtf(float x) __attribute__((const));

/* ---- tiles: CPU_TILE elements, dst may be an operand ---- */

typedef void ew1f(float *y, const float *x);
typedef void ew2f(float *y, const float *p, const float *q);
typedef void ew1i(int32_t *y, const int32_t *x);
typedef void ew2i(int32_t *y, const int32_t *p, const int32_t *q);
typedef void cmpf(int32_t *y, const float *p, const float *q);

/* ivdep: element i depends on element i alone, even where y is an operand. */
#define EACH _Pragma("GCC ivdep") for (int i = 0; i < CPU_TILE; i++)

#define FN1F(name, expr)                                                                           \
    static void f_##name(float *y, const float *x)                                                 \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            const float a = x[i];                                                                  \
            y[i] = expr;                                                                           \
        }                                                                                          \
    }
#define FN2F(name, expr)                                                                           \
    static void f_##name(float *y, const float *p, const float *q)                                 \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            const float a = p[i], b = q[i];                                                        \
            y[i] = expr;                                                                           \
        }                                                                                          \
    }
#define FN1I(name, expr)                                                                           \
    static void i_##name(int32_t *y, const int32_t *x)                                             \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            const int32_t a = x[i];                                                                \
            y[i] = expr;                                                                           \
        }                                                                                          \
    }
#define FN2I(name, expr)                                                                           \
    static void i_##name(int32_t *y, const int32_t *p, const int32_t *q)                           \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            const int32_t a = p[i], b = q[i];                                                      \
            y[i] = expr;                                                                           \
        }                                                                                          \
    }
#define FNCMP(name, expr)                                                                          \
    static void c_##name(int32_t *y, const float *p, const float *q)                               \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            const float a = p[i], b = q[i];                                                        \
            y[i] = expr;                                                                           \
        }                                                                                          \
    }                                                                                              \
    FN2I(name, expr)

FN1F(neg, -a)
FN1F(abs, vec_abs(a))
FN1F(exp, vec_exp(a))
FN1F(expm1, vec_expm1(a))
FN1F(log, vec_log(a))
FN1F(log1p, vec_log1p(a))
FN1F(sqrt, sqrtf(a))
FN1F(rsqrt, 1.0f / sqrtf(a))
FN1F(recip, 1.0f / a)
FN1F(tanh, vec_tanh(a))
FN1F(erf, vec_erf(a))
FN1F(sigmoid, vec_sigmoid(a))
FN1F(relu, a <= 0 ? 0.0f : a)
FN1F(floor, vec_floor(a))
FN1F(round, vec_round(a))
FN1F(sign, vec_sign(a))
FN2F(add, a + b)
FN2F(sub, a - b)
FN2F(mul, a *b)
FN2F(div, a / b)
FN2F(pow, vec_pow(a, b))
FN2F(max, vec_max(a, b))
FN2F(min, vec_min(a, b))
FN1I(neg, vec_wrap(0u - (uint32_t)a))
FN1I(abs, a < 0 ? vec_wrap(0u - (uint32_t)a) : a)
FN1I(sign, (a > 0) - (a < 0))
FN1I(not, !a)
FN2I(add, vec_wrap((uint32_t)a + (uint32_t)b))
FN2I(sub, vec_wrap((uint32_t)a - (uint32_t)b))
FN2I(mul, vec_wrap((uint32_t)a *(uint32_t)b))
FN2I(div, vec_div_i(a, b))
FN2I(max, a > b ? a : b)
FN2I(min, a < b ? a : b)
FN2I(mod, vec_mod_i(a, b))
FN2I(and, a &b)
FN2I(or, a | b)
FNCMP(lt, a < b)
FNCMP(le, a <= b)
FNCMP(eq, a == b)
FNCMP(ne, a != b)

static void c_isfinite(int32_t *y, const float *x)
{
    EACH y[i] = vec_abs(x[i]) < __builtin_inff();
}

static void i_isfinite(int32_t *y)
{
    EACH y[i] = 1;
}

static void i_select(int32_t *y, const int32_t *c, const int32_t *p, const int32_t *q)
{
    EACH y[i] = c[i] ? p[i] : q[i];
}

/* sin of x + quarter * pi/2. Huge arguments are rare: looked for, then done one by one. */
static void trig(float *y, const float *x, uint64_t quarter)
{
    float huge[CPU_TILE];
    int any = 0;

    EACH any |= (vec_abs(x[i]) > VEC_TRIG_MAX) & (vec_abs(x[i]) < __builtin_inff());
    if (any)
        for (int i = 0; i < CPU_TILE; i++)
            huge[i] = x[i]; /* y may be x */
    EACH y[i] = vec_sin(x[i], quarter);
    for (int i = 0; any && i < CPU_TILE; i++)
        if (vec_abs(huge[i]) > VEC_TRIG_MAX && vec_abs(huge[i]) < __builtin_inff())
            y[i] = vec_sin_huge(huge[i], quarter);
}

static void f_sin(float *y, const float *x)
{
    trig(y, x, 0);
}

static void f_cos(float *y, const float *x)
{
    trig(y, x, 1);
}

static void f_mod(float *y, const float *p, const float *q)
{
    float far[CPU_TILE];
    int any = 0;

    EACH any |= vec_mod_is_far(p[i], q[i]);
    for (int i = 0; any && i < CPU_TILE; i++)
        if (vec_mod_is_far(p[i], q[i]))
            far[i] = vec_mod_far(p[i], q[i]);
        else
            far[i] = vec_mod(p[i], q[i]);
    if (any)
        memcpy(y, far, sizeof far);
    else
        EACH y[i] = vec_mod(p[i], q[i]);
}

static ew1f *const ew_1f[EW_COUNT] = {
    [EW_NEG] = f_neg,     [EW_ABS] = f_abs,         [EW_EXP] = f_exp,   [EW_EXPM1] = f_expm1,
    [EW_LOG] = f_log,     [EW_LOG1P] = f_log1p,     [EW_SQRT] = f_sqrt, [EW_RSQRT] = f_rsqrt,
    [EW_RECIP] = f_recip, [EW_SIN] = f_sin,         [EW_COS] = f_cos,   [EW_TANH] = f_tanh,
    [EW_ERF] = f_erf,     [EW_SIGMOID] = f_sigmoid, [EW_RELU] = f_relu, [EW_FLOOR] = f_floor,
    [EW_ROUND] = f_round, [EW_SIGN] = f_sign};
static ew2f *const ew_2f[EW_COUNT] = {
    [EW_ADD] = f_add, [EW_SUB] = f_sub, [EW_MUL] = f_mul, [EW_DIV] = f_div,
    [EW_POW] = f_pow, [EW_MAX] = f_max, [EW_MIN] = f_min, [EW_MOD] = f_mod};
static cmpf *const ew_cmp[EW_COUNT] = {
    [EW_LT] = c_lt, [EW_LE] = c_le, [EW_EQ] = c_eq, [EW_NE] = c_ne};
static ew1i *const ew_1i[EW_COUNT] = {
    [EW_NEG] = i_neg, [EW_ABS] = i_abs, [EW_SIGN] = i_sign, [EW_NOT] = i_not};
static ew2i *const ew_2i[EW_COUNT] = {
    [EW_ADD] = i_add, [EW_SUB] = i_sub, [EW_MUL] = i_mul, [EW_DIV] = i_div, [EW_MAX] = i_max,
    [EW_MIN] = i_min, [EW_MOD] = i_mod, [EW_LT] = i_lt,   [EW_LE] = i_le,   [EW_EQ] = i_eq,
    [EW_NE] = i_ne,   [EW_AND] = i_and, [EW_OR] = i_or};

static void ew(int op, int type, void *dst, const void *a, const void *b, const void *c)
{
    const bool is_float = type == DT_F32;

    if (op == EW_SELECT)
        i_select(dst, a, b, c);
    else if (op == EW_ISFINITE && is_float)
        c_isfinite(dst, a);
    else if (op == EW_ISFINITE)
        i_isfinite(dst);
    else if (is_float && ew_1f[op])
        ew_1f[op](dst, a);
    else if (is_float && ew_2f[op])
        ew_2f[op](dst, a, b);
    else if (is_float && ew_cmp[op])
        ew_cmp[op](dst, a, b);
    else if (ew_1i[op])
        ew_1i[op](dst, a);
    else
        ew_2i[op](dst, a, b);
}

/* ---- rows of any length ---- */

/* One accumulator is LANES wide; UNROLL of them hide the latency of a sum. Elements go to lanes by
 * their place, accumulators are added in order, lanes as a tree: the order of all sums is a
 * function of n. */
enum { LANES = 16, UNROLL = 4, BLOCK = LANES * UNROLL };

static float tree(float *lane)
{
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

/* lane[0][..] += lane[1..][..], then the tree. */
static float fold(float lane[UNROLL][LANES])
{
    for (int u = 1; u < UNROLL; u++)
        for (int j = 0; j < LANES; j++)
            lane[0][j] += lane[u][j];
    return tree(lane[0]);
}

static void exp_sub(float *y, const float *x, float sub, int64_t n)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = vec_exp(x[i] - sub);
}

static float max(const float *x, int64_t n)
{
    float lane[BLOCK], m;
    int64_t i = 0;

    for (int j = 0; j < BLOCK; j++)
        lane[j] = -__builtin_inff();
    for (; i + BLOCK <= n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++)
            lane[j] = (x[i + j] > lane[j]) | (x[i + j] != x[i + j]) ? x[i + j] : lane[j];
    for (int j = 0; i < n; i++, j++)
        lane[j] = (x[i] > lane[j]) | (x[i] != x[i]) ? x[i] : lane[j];
    m = lane[0];
    for (int j = 1; j < BLOCK; j++)
        m = (lane[j] > m) | (lane[j] != lane[j]) ? lane[j] : m;
    return m;
}

static float sum(const float *x, int64_t n)
{
    float lane[UNROLL][LANES] = {{0}};
    int64_t i = 0;

    for (; i + BLOCK <= n; i += BLOCK)
        for (int u = 0; u < UNROLL; u++)
            for (int j = 0; j < LANES; j++)
                lane[u][j] += x[i + u * LANES + j];
    for (int k = 0; i < n; i++, k++)
        lane[k / LANES][k % LANES] += x[i];
    return fold(lane);
}

static float dot(const float *x, const float *y, int64_t n)
{
    float lane[UNROLL][LANES] = {{0}};
    int64_t i = 0;

    for (; i + BLOCK <= n; i += BLOCK)
        for (int u = 0; u < UNROLL; u++)
            for (int j = 0; j < LANES; j++)
                lane[u][j] += x[i + u * LANES + j] * y[i + u * LANES + j];
    for (int k = 0; i < n; i++, k++)
        lane[k / LANES][k % LANES] += x[i] * y[i];
    return fold(lane);
}

static double sum_squares(const float *x, int64_t n)
{
    double lane[BLOCK] = {0};
    int64_t i = 0;

    for (; i + BLOCK <= n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i < n; i++, j++)
        lane[j] += (double)x[i] * (double)x[i];
    for (int w = BLOCK / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

static float log1(float x)
{
    return vec_log(x);
}

/* ---- updates; p, g, m, v do not overlap ---- */

static void adam(float *restrict p, const float *restrict g, float *restrict m, float *restrict v,
                 int64_t n, const float k[8])
{
    const float coef = k[0], lr = k[1], decay = k[1] * k[2], b1 = k[3], b2 = k[4], eps = k[5];
    const float step = lr * k[6], root = k[7];

    for (int64_t i = 0; i < n; i++) {
        const float grad = g[i] * coef, q = p[i] - decay * p[i];
        m[i] = b1 * m[i] + (1 - b1) * grad;
        v[i] = b2 * v[i] + (1 - b2) * (grad * grad);
        p[i] = q - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

static void adam_l2(float *restrict p, const float *restrict g, float *restrict m,
                    float *restrict v, int64_t n, const float k[8])
{
    const float coef = k[0], lr = k[1], wd = k[2], b1 = k[3], b2 = k[4], eps = k[5];
    const float step = lr * k[6], root = k[7];

    for (int64_t i = 0; i < n; i++) {
        const float grad = g[i] * coef + wd * p[i];
        m[i] = b1 * m[i] + (1 - b1) * grad;
        v[i] = b2 * v[i] + (1 - b2) * (grad * grad);
        p[i] = p[i] - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

static void sgd_plain(float *restrict p, const float *restrict g, int64_t n, const float k[4])
{
    const float coef = k[0], lr = k[1], wd = k[2];

    for (int64_t i = 0; i < n; i++)
        p[i] -= lr * (g[i] * coef + wd * p[i]);
}

static void sgd_momentum(float *restrict p, const float *restrict g, float *restrict buf, int64_t n,
                         const float k[4], bool nesterov)
{
    const float coef = k[0], lr = k[1], wd = k[2], mu = k[3];

    for (int64_t i = 0; i < n; i++) {
        const float grad = g[i] * coef + wd * p[i];
        buf[i] = mu * buf[i] + grad;
        p[i] -= lr * (nesterov ? grad + mu * buf[i] : buf[i]);
    }
}

static void sgd(float *p, const float *g, float *buf, int64_t n, const float k[4], bool nesterov)
{
    if (buf)
        sgd_momentum(p, g, buf, n, k, nesterov);
    else
        sgd_plain(p, g, n, k);
}

const struct cpu_vec CPU_VEC = {
    .exp_sub = exp_sub,
    .max = max,
    .sum = sum,
    .dot = dot,
    .sum_squares = sum_squares,
    .log1 = log1,
    .adam = adam,
    .adam_l2 = adam_l2,
    .sgd = sgd,
    .ew = ew,
};
