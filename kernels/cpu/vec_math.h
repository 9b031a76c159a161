/* vec_math.h - the functions of one element that the loops of vec_loops.h turn into vector code.
 *
 * Every one is a single path of selects, without a branch or a call, in plain IEEE products and
 * sums: a compiler makes vectors of whatever width of it, and each lane, tail or scalar use gives
 * the same bits. Transcendental ones work in f64 and round once: at most 1 ulp off, without tables
 * or split constants. Exceptions, in ints or where an argument is huge, are loops of their own
 * beside the vector code.
 *
 * Sources: reduction and series of exp and log as in Muller, "Elementary Functions", ch. 11; sin
 * and cos for huge arguments: Payne & Hanek 1983. The two polynomials of erf interpolate it at
 * Chebyshev nodes. */
#ifndef CPU_VEC_MATH_H
#define CPU_VEC_MATH_H

#include <stdbool.h>
#include <stdint.h>

union vec_d {
    double d;
    uint64_t u;
};
union vec_f {
    float f;
    uint32_t u;
};

static inline double vec_d_of(uint64_t u)
{
    const union vec_d v = {.u = u};
    return v.d;
}

static inline uint64_t vec_bits(double d)
{
    const union vec_d v = {.d = d};
    return v.u;
}

static inline float vec_abs(float x)
{
    union vec_f v = {.f = x};
    v.u &= 0x7fffffffu;
    return v.f;
}

/* |x| with the sign of s. */
static inline float vec_sign_of(float x, float s)
{
    union vec_f v = {.f = x};
    const union vec_f w = {.f = s};
    v.u = (v.u & 0x7fffffffu) | (w.u & 0x80000000u);
    return v.f;
}

#define VEC_NAN __builtin_nan("")
#define VEC_INF __builtin_inf()
#define VEC_MAGIC 0x1.8p52 /* added: an integer in the low bits, rounded half to even */

/* ---- exp ---- */

/* exp(x) = scale * (1 + *p), scale a power of two; |x| < 700 or NaN. *p is good to 1e-9 relative.
 */
static inline double vec_exp_parts(double x, double *p)
{
    const double n = x * 1.4426950408889634 + VEC_MAGIC;
    const double r = x - (n - VEC_MAGIC) * 0.6931471805599453;
    double s = 1.0 / 40320;

    s = s * r + 1.0 / 5040;
    s = s * r + 1.0 / 720;
    s = s * r + 1.0 / 120;
    s = s * r + 1.0 / 24;
    s = s * r + 1.0 / 6;
    s = s * r + 0.5;
    s = s * r + 1.0;
    *p = r * s;
    return vec_d_of((vec_bits(n) + 1023) << 52);
}

/* Beyond +-120 an f32 result is 0 or inf anyway. NaN stays. */
static inline double vec_clamp_exp(double x)
{
    x = x > 120 ? 120 : x;
    return x < -120 ? -120 : x;
}

static inline double vec_exp_d(double x)
{
    double p;
    const double scale = vec_exp_parts(vec_clamp_exp(x), &p);
    return scale + scale * p;
}

static inline double vec_expm1_d(double x)
{
    double p;
    const double scale = vec_exp_parts(vec_clamp_exp(x), &p);
    return scale * p + (scale - 1);
}

static inline float vec_exp(float x)
{
    return (float)vec_exp_d((double)x);
}

static inline float vec_expm1(float x)
{
    return x == 0 ? x : (float)vec_expm1_d((double)x);
}

/* ---- log ---- */

/* log of a positive, finite, normal double; anything for others. Good to 1e-11 relative. */
static inline double vec_log_d(double x)
{
    /* exponent such that the rest is in [sqrt(1/2), sqrt(2)); biased by 1024 to stay positive */
    const uint64_t shifted = vec_bits(x) - 0x3fe6a09e667f3bcdu + (UINT64_C(1024) << 52);
    const uint64_t k = shifted >> 52;
    const double m = vec_d_of(vec_bits(x) - ((k - 1024) << 52));
    const double s = (m - 1) / (m + 1), z = s * s;
    double q = 1.0 / 13;

    q = q * z + 1.0 / 11;
    q = q * z + 1.0 / 9;
    q = q * z + 1.0 / 7;
    q = q * z + 1.0 / 5;
    q = q * z + 1.0 / 3;
    q = q * z + 1.0;
    return (vec_d_of(k | 0x4330000000000000u) - 0x1p52 - 1024) * 0.6931471805599453 + 2 * s * q;
}

/* log where x may be anything: NaN below 0, -inf at 0. */
static inline double vec_log_any(double x)
{
    const double y = vec_log_d(x);
    double special = x == 0 ? -VEC_INF : VEC_NAN;

    special = x == VEC_INF ? VEC_INF : special;
    return (x > 0) & (x < VEC_INF) ? y : special;
}

static inline float vec_log(float x)
{
    return (float)vec_log_any((double)x);
}

/* log(1 + x): what 1 + x rounds away comes back to first order. */
static inline float vec_log1p(float x)
{
    const double d = (double)x, u = 1 + d;
    const double y = vec_log_d(u) + (d - (u - 1)) / u;
    const double rest = vec_log_any(u);
    const float f = (float)((u > 0) & (u < VEC_INF) ? y : rest);
    return x == 0 ? x : f;
}

/* ---- tanh, sigmoid, erf ---- */

static inline float vec_tanh(float x)
{
    const double t = vec_expm1_d(2 * (double)vec_abs(x));
    const float y = (float)(t / (t + 2));
    return x == x ? vec_sign_of(y, x) : x;
}

static inline float vec_sigmoid(float x)
{
    return (float)(1 / (1 + vec_exp_d(-(double)x)));
}

/* Below 1 an odd polynomial, above one of |x| - 2.5; from 4 on erf is 1 in f32. */
static inline float vec_erf(float x)
{
    const double a = (double)vec_abs(x), z = a * a;
    const double u = (a > 4 ? 4 : a) - 2.5;
    double p = -9.667044294739274e-06, q = 1.7133283960558778e-08;

    p = p * z + 0.00011265958924531086;
    p = p * z - 0.0008484080390904634;
    p = p * z + 0.005221031806797378;
    p = p * z - 0.026865430727272425;
    p = p * z + 0.11283782495229802;
    p = p * z - 0.3761263846802829;
    p = p * z + 1.1283791670615435;
    q = q * u - 3.5116319942143456e-07;
    q = q * u + 7.357494792803978e-07;
    q = q * u + 3.4615283192154248e-06;
    q = q * u - 1.515399512925449e-05;
    q = q * u + 7.76015756391663e-06;
    q = q * u + 8.002250168324786e-05;
    q = q * u - 0.0002534303815734729;
    q = q * u + 0.0002598692588696941;
    q = q * u + 0.0005445393425788283;
    q = q * u - 0.0027982086375776013;
    q = q * u + 0.006116585071584512;
    q = q * u - 0.008622419844873523;
    q = q * u + 0.008350212261757427;
    q = q * u - 0.00544570848666509;
    q = q * u + 0.002178278477149471;
    q = q * u + 0.999593047982555;
    q = a >= 4 ? 1 : q;
    p = a > 1 ? q : a * p;
    return x == x ? vec_sign_of((float)p, x) : x;
}

/* ---- sin, cos ---- */

#define VEC_TRIG_MAX 100000.0f /* up to here a product with two parts of pi/2 is exact enough */

/* sin(r + quarter * pi/2) for |r| <= pi/4 (and a little). */
static inline float vec_sin_quarter(double r, uint64_t quarter)
{
    const double z = r * r;
    double s = 1.0 / 6227020800, c = 1.0 / 479001600;

    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = r + r * z * s;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1.0;
    s = quarter & 1 ? c : s;
    return (float)vec_d_of(vec_bits(s) ^ (quarter & 2) << 62);
}

/* sin of x + quarter * pi/2, |x| <= VEC_TRIG_MAX or not finite. -0 stays. */
static inline float vec_sin(float x, uint64_t quarter)
{
    const double d = (double)x, n = d * 0.6366197723675814 + VEC_MAGIC;
    const double k = n - VEC_MAGIC;
    /* pi/2 in 33 bits and the rest (fdlibm): k * the first is exact */
    const double r = d - k * 1.57079632673412561417e+00 - k * 6.07710050650619224932e-11;
    return vec_sin_quarter(r, vec_bits(n) + quarter);
}

/* The same for a finite x from 2^16 up: the bits of 2/pi that matter for x mod 2 pi, times the
 * mantissa. */
static inline float vec_sin_huge(float x, uint64_t quarter)
{
    static const uint32_t two_over_pi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                           0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
    const union vec_f v = {.f = x};
    const int e = (int)(v.u >> 23 & 0xff) - 150; /* |x| = mantissa * 2^e, -7 <= e <= 104 */
    const int skip = e + 31 - 1; /* bits, after 32 zeros, that give multiples of 4 */
    const int word = skip / 32, bit = skip % 32;
    unsigned __int128 bits = 0, product;
    double r;

    for (int i = 0; i < 4; i++)
        bits = bits << 32 | (word + i == 0 ? 0 : two_over_pi[word + i - 1]);
    bits = bits << bit >> 32; /* 96 of them */
    product = (bits & (((unsigned __int128)1 << 96) - 1)) * ((v.u & 0x7fffffu) | 0x800000u);
    product <<= 32; /* mod 4: the quarter is in the two highest bits */
    uint64_t q = (uint64_t)(product >> 126);
    __int128 fraction = (__int128)(product << 2);
    q += fraction < 0; /* over a half: the next quarter, from below */
    r = (double)(fraction >> 32) * 0x1p-96 * 1.5707963267948966;
    if (v.u >> 31) {
        r = -r;
        q = -q;
    }
    return vec_sin_quarter(r, q + quarter);
}

/* ---- rounding and remainders ---- */

static inline float vec_round(float x)
{
    const float a = vec_abs(x), y = (a + 0x1p23f) - 0x1p23f; /* half to even */
    return a < 0x1p23f ? vec_sign_of(y, x) : x;
}

static inline float vec_floor(float x)
{
    const float y = vec_round(x);
    return y - (float)(y > x);
}

#define VEC_MOD_MAX 0x1p28 /* quotients up to here: times b is exact in f64 */

/* a mod b with b's sign, |a / b| < VEC_MOD_MAX or a case of no number: exact, then rounded. */
static inline float vec_mod(float a, float b)
{
    const double x = (double)a, y = (double)b;
    const double n = (x / y + VEC_MAGIC) - VEC_MAGIC; /* the nearest: the rest is exact */
    const double r = x - n * y;
    const double wrapped = r * y < 0 ? r + y : r;
    const bool over_inf = (vec_abs(b) == __builtin_inff()) & (vec_abs(a) < __builtin_inff());
    const double whole = x * y < 0 ? y : x;
    return (float)(over_inf ? whole : wrapped);
}

static inline bool vec_mod_is_far(float a, float b)
{
    const double q = (double)vec_abs(a) / (double)vec_abs(b);
    return (q >= VEC_MOD_MAX) & (q < VEC_INF);
}

/* |x| = *m * 2^result, *m below 2^24. */
static inline int vec_split(float x, uint64_t *m)
{
    const union vec_f v = {.f = x};
    const int e = (int)(v.u >> 23 & 0xff);

    *m = (v.u & 0x7fffffu) | (e > 0 ? 0x800000u : 0);
    return e > 0 ? e : 1;
}

/* vec_mod for a quotient of any size: 32 bits of it a step. a, b finite, b not 0, |a| > |b|. */
static inline float vec_mod_far(float a, float b)
{
    uint64_t ma, mb;
    const int ea = vec_split(a, &ma), eb = vec_split(b, &mb);
    double r;

    ma %= mb;
    for (int left = ea - eb; left > 0; left -= 32)
        ma = (ma << (left < 32 ? left : 32)) % mb;
    r = (double)ma * (eb > 150 ? vec_d_of((uint64_t)(eb - 150 + 1023) << 52)
                               : 1 / vec_d_of((uint64_t)(150 - eb + 1023) << 52));
    r = a < 0 ? -r : r;
    return (float)(r * (double)b < 0 ? r + (double)b : r);
}

/* ---- pow, max, min, sign ---- */

/* c ? a : b, in bits: many selects in a row would otherwise become branches, and the loop stay
 * scalar. */
static inline float vec_pick(int c, float a, float b)
{
    const union vec_f v = {.f = a}, w = {.f = b};
    const uint32_t mask = 0u - (uint32_t)c;
    const union vec_f r = {.u = (v.u & mask) | (w.u & ~mask)};
    return r.f;
}

/* IEEE pow. */
static inline float vec_pow(float a, float b)
{
    const float inf = __builtin_inff(), base = vec_abs(a);
    const float small = vec_pick(vec_abs(b) < 0x1p24f, b, 0); /* from there on all are even */
    const int32_t n = (int32_t)small;
    const int whole = (float)n == small;
    const union vec_f sign = {.f = a};
    union vec_f v = {.f = (float)vec_exp_d((double)b * vec_log_any((double)base))};

    v.f = vec_pick((base == 1) & (b == b), 1, v.f); /* to the infinite too */
    v.u ^= (uint32_t)n << 31 & sign.u & (0u - (uint32_t)whole);
    v.f = vec_pick((a < 0) & (a > -inf) & !whole & (b == b), __builtin_nanf(""), v.f);
    return vec_pick((b == 0) | (a == 1), 1, v.f); /* even of, or to, NaN */
}

static inline float vec_max(float a, float b)
{
    const float m = a > b ? a : b;
    return (a == a) & (b == b) ? m : a + b;
}

static inline float vec_min(float a, float b)
{
    const float m = a < b ? a : b;
    return (a == a) & (b == b) ? m : a + b;
}

static inline float vec_sign(float a)
{
    const float s = (float)((a > 0) - (a < 0));
    return a == a ? s : a;
}

/* ---- i32: two's complement, division by zero gives 0 ---- */

static inline int32_t vec_wrap(uint32_t u)
{
    return (int32_t)u;
}

static inline int32_t vec_div_i(int32_t a, int32_t b)
{
    return b == 0 ? 0 : b == -1 ? vec_wrap(0u - (uint32_t)a) : a / b;
}

static inline int32_t vec_mod_i(int32_t a, int32_t b)
{
    const int32_t m = b == 0 || b == -1 ? 0 : a % b;
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

#endif
