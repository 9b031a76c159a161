/* str.c - growing text. */
#include "engine/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

void str_release(struct str *s)
{
    mem_free(s->s);
    *s = (struct str){0};
}

void str_reset(struct str *s)
{
    s->len = 0;
    s->oom = false;
    if (s->s)
        s->s[0] = 0;
}

const char *str_c(const struct str *s)
{
    return s->s ? s->s : "";
}

/* Room for n more bytes and the NUL. */
static bool reserve(struct str *s, size_t n)
{
    void *p = s->s;
    size_t need;

    if (s->oom || __builtin_add_overflow(s->len, n, &need) || mem_grow(&p, &s->cap, need, 1) < 0) {
        s->oom = true;
        return false;
    }
    s->s = p;
    return true;
}

void str_addn(struct str *s, const char *text, size_t n)
{
    if (!reserve(s, n))
        return;
    if (n > 0)
        memcpy(s->s + s->len, text, n);
    s->len += n;
    s->s[s->len] = 0;
}

void str_add(struct str *s, const char *text)
{
    str_addn(s, text, strlen(text));
}

void str_addc(struct str *s, char c)
{
    str_addn(s, &c, 1);
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(s, (size_t)n)) {
        s->oom = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(s->s + s->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    s->len += (size_t)n;
}

/* ---- names that are nearly right ---- */

static int lower(int c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

enum { DISTANCE_MAX = 128 };

static int distance(const char *a, const char *b, bool fold)
{
    int n = (int)strnlen(a, DISTANCE_MAX), m = (int)strnlen(b, DISTANCE_MAX);
    int row[3][DISTANCE_MAX + 1];

    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *up = row[(i - 1) % 3], *upper = row[(i + 1) % 3];

        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int ca = fold ? lower(a[i - 1]) : a[i - 1], cb = fold ? lower(b[j - 1]) : b[j - 1];

            now[j] = least(least(up[j] + 1, now[j - 1] + 1), up[j - 1] + (ca != cb));
            if (i > 1 && j > 1) {
                int pa = fold ? lower(a[i - 2]) : a[i - 2], pb = fold ? lower(b[j - 2]) : b[j - 2];
                if (ca == pb && pa == cb && ca != cb)
                    now[j] = least(now[j], upper[j - 2] + 1);
            }
        }
    }
    return row[n % 3][m];
}

int str_distance(const char *a, const char *b)
{
    return distance(a, b, false);
}

int str_nearest(const char *want, const char *const *names, int n)
{
    int best = -1, best_d = 0;

    for (int i = 0; i < n; i++) {
        size_t a = strlen(want), b = strlen(names[i]);
        int longer = (int)(a > b ? a : b), allowed = longer / 3 > 1 ? longer / 3 : 1;
        int d = distance(want, names[i], true);

        if (d <= allowed && (best < 0 || d < best_d)) {
            best = i;
            best_d = d;
        }
    }
    return best;
}
