/* number.c - numbers to and from text in the C locale, and numbers for people. */
#define _GNU_SOURCE /* strtod_l */
#include "engine/base/str.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static double to_double(const char *s)
{
    pthread_once(&c_locale_once, make_locale);
    return c_locale ? strtod_l(s, NULL, c_locale) : strtod(s, NULL);
}

static float to_float(const char *s)
{
    pthread_once(&c_locale_once, make_locale);
    return c_locale ? strtof_l(s, NULL, c_locale) : strtof(s, NULL);
}

/* printf writes the locale's decimal point: put a dot there. */
static void dot(char *buf)
{
    const char *point = localeconv()->decimal_point;
    char *at = *point && strcmp(point, ".") != 0 ? strstr(buf, point) : NULL;

    if (at) {
        size_t n = strlen(point);
        *at = '.';
        memmove(at + 1, at + n, strlen(at + n) + 1);
    }
}

/* At most 17 digits, so at most 24 bytes once the point is one byte; the locale's may be longer. */
static void print(char *buf, int digits, double v)
{
    char text[64];

    snprintf(text, sizeof text, "%.*g", digits, v);
    dot(text);
    memcpy(buf, text, strlen(text) + 1);
}

static char *non_finite(char *buf, double v)
{
    strcpy(buf, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    return buf;
}

char *str_double(char *buf, double v)
{
    if (!isfinite(v))
        return non_finite(buf, v);
    /* a denormal holds fewer digits: 5e-324 is one */
    for (int digits = fabs(v) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        print(buf, digits, v);
        if (to_double(buf) == v)
            break;
    }
    return buf;
}

char *str_float(char *buf, float v)
{
    if (!isfinite(v))
        return non_finite(buf, (double)v);
    for (int digits = fabsf(v) < FLT_MIN ? 1 : 6; digits <= 9; digits++) {
        print(buf, digits, (double)v);
        if (to_float(buf) == v)
            break;
    }
    return buf;
}

static size_t digits_at(const char *s, size_t n, size_t i)
{
    size_t k = i;
    while (k < n && s[k] >= '0' && s[k] <= '9')
        k++;
    return k - i;
}

/* The grammar of the header; strtod alone would take hex, inf and spaces. */
static bool is_number(const char *s, size_t n)
{
    size_t i = 0, whole, part = 0;

    if (i < n && (s[i] == '+' || s[i] == '-'))
        i++;
    whole = digits_at(s, n, i);
    i += whole;
    if (i < n && s[i] == '.') {
        part = digits_at(s, n, i + 1);
        i += 1 + part;
    }
    if (whole + part == 0)
        return false;
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        size_t exp;
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-'))
            i++;
        exp = digits_at(s, n, i);
        if (exp == 0)
            return false;
        i += exp;
    }
    return i == n;
}

bool str_to_double(const char *s, size_t n, double *out)
{
    char small[64], *text = small;
    double v;

    if (!is_number(s, n))
        return false;
    if (n >= sizeof small) {
        text = mem_alloc(n + 1);
        if (!text)
            return false;
    }
    memcpy(text, s, n);
    text[n] = 0;
    v = to_double(text);
    if (text != small)
        mem_free(text);
    if (!isfinite(v))
        return false;
    *out = v;
    return true;
}

bool str_to_int(const char *s, size_t n, int64_t *out)
{
    size_t i = 0;
    bool negative = n > 0 && s[0] == '-';
    int64_t v = 0;

    if (n > 0 && (s[0] == '-' || s[0] == '+'))
        i++;
    if (i == n)
        return false;
    for (; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, negative ? -(s[i] - '0') : s[i] - '0', &v))
            return false;
    }
    *out = v;
    return true;
}

/* ---- for a terminal ---- */

/* Length of the well-formed UTF-8 character at s that is no control character; 0 when there is
 * none. */
static int character(const unsigned char *s)
{
    int n = s[0] < 0x80                   ? 1
            : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
            : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
            : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                          : 0;

    if (n == 1)
        return s[0] >= 0x20 && s[0] != 0x7f;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xc2 && s[1] < 0xa0) ||                                  /* C1 controls */
        (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) || /* overlong */
        (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf4 && s[1] >= 0x90)) /* surrogates, past U+10FFFF */
        return 0;
    return n;
}

char *str_visible(char *dst, size_t cap, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t at = 0;

    if (cap == 0)
        return dst;
    while (*s) {
        char piece[8];
        int n = character(s);
        size_t len;

        if (n > 0) {
            memcpy(piece, s, (size_t)n);
            piece[n] = 0;
        } else {
            snprintf(piece, sizeof piece, "\\x%02x", *s);
        }
        len = strlen(piece);
        if (at + len >= cap)
            break;
        memcpy(dst + at, piece, len);
        at += len;
        s += n > 0 ? n : 1;
    }
    dst[at] = 0;
    return dst;
}

char *str_bytes(char *buf, size_t cap, uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int u = 0;

    while (v >= (u == 0 ? 1024 : 1023.95) && u < 6) { /* not "1024.0 KiB" */
        v /= 1024;
        u++;
    }
    snprintf(buf, cap, u == 0 ? "%.0f %s" : "%.1f %s", v, unit[u]);
    dot(buf);
    return buf;
}

char *str_count(char *buf, size_t cap, double n)
{
    static const char *const unit[] = {"", "k", "M", "G", "T", "P"};
    int u = 0;

    while (fabs(n) >= 999.95 && u < 5) {
        n /= 1000;
        u++;
    }
    snprintf(buf, cap, u == 0 ? "%.4g%s" : "%.1f%s", n, unit[u]);
    dot(buf);
    return buf;
}

char *str_duration(char *buf, size_t cap, double seconds)
{
    long long s = seconds >= 0 && seconds < 1e12 ? (long long)(seconds + 0.5) : -1;

    if (s < 0)
        snprintf(buf, cap, "--");
    else if (s >= 86400)
        snprintf(buf, cap, "%lldd %lld:%02lld:%02lld", s / 86400, s / 3600 % 24, s / 60 % 60,
                 s % 60);
    else if (s >= 3600)
        snprintf(buf, cap, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, cap, "%lld:%02lld", s / 60, s % 60);
    return buf;
}
