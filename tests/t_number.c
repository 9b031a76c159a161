/* Numbers are written in the shortest form that reads back, whatever the locale, and nothing that
 * is not a number is read as one. */
#include "engine/base/str.h"
#include "tap.h"

#include <float.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#define is(got, want) ok(strcmp(got, want) == 0, "\"%s\" is \"%s\"", got, want)

/* A fixed sequence; xorshift64. */
static uint64_t drawn(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The text of v is want in any locale, and reads back. */
static void written(double v, const char *want)
{
    char buf[32];
    double back;

    str_double(buf, v);
    ok(strcmp(buf, want) == 0 && str_to_double(buf, strlen(buf), &back) &&
           memcmp(&back, &v, sizeof v) == 0,
       "%s is written %s", want, buf);
}

static void test_written(void)
{
    char buf[32];

    written(0.1, "0.1");
    written(1e-5, "1e-05");
    written(3, "3");
    written(-0.0, "-0");
    written(1.0 / 3, "0.3333333333333333");
    written(0.1 + 0.2, "0.30000000000000004");
    written(DBL_MAX, "1.7976931348623157e+308");
    written(DBL_MIN, "2.2250738585072014e-308");
    written(DBL_TRUE_MIN, "5e-324");
    written(-1.5e-320, "-1.5e-320");
    written(9007199254740993.0, "9007199254740992");
    is(str_double(buf, (double)NAN), "nan");
    is(str_double(buf, -(double)NAN), "nan");
    is(str_double(buf, (double)INFINITY), "inf");
    is(str_double(buf, -(double)INFINITY), "-inf");
    is(str_float(buf, 0.1f), "0.1");
    is(str_float(buf, 16777216.0f), "16777216");
    is(str_float(buf, FLT_MAX), "3.4028235e+38");
    is(str_float(buf, FLT_TRUE_MIN), "1e-45");
    is(str_float(buf, -INFINITY), "-inf");
}

static void test_round_trip(void)
{
    uint64_t state = 88172645463325252u;
    int bad = 0, bad_f = 0, longest = 0;

    for (int i = 0; i < 50000; i++) {
        uint64_t bits = drawn(&state);
        uint32_t half = (uint32_t)(bits >> 32);
        double v, back;
        float f;
        char buf[32];

        memcpy(&v, &bits, sizeof v);
        memcpy(&f, &half, sizeof f);
        if (isfinite(v)) {
            int n = (int)strlen(str_double(buf, v));
            longest = n > longest ? n : longest;
            bad += !str_to_double(buf, (size_t)n, &back) || back != v;
        }
        if (isfinite(f))
            bad_f += strtof(str_float(buf, f), NULL) != f;
    }
    ok(bad == 0, "50000 drawn doubles read back");
    ok(bad_f == 0, "50000 drawn floats read back");
    ok(longest < 32, "the longest text, %d bytes, fits the 32 asked for", longest);
}

static void test_to_double(void)
{
    static const char *const good[] = {"0",   "-0",   "+1",    "010",    ".5",    "5.",
                                       "1e5", "1E+5", "1.e-3", "1e-999", "0e9999"};
    static const double value[] = {0, -0.0, 1, 10, .5, 5, 1e5, 1e5, 1e-3, 0, 0};
    static const char *const no[] = {"",
                                     ".",
                                     "+",
                                     "-.",
                                     "e5",
                                     "1e",
                                     "1e+",
                                     "0x10",
                                     "inf",
                                     "nan",
                                     "1_000",
                                     " 1",
                                     "1 ",
                                     "1,5",
                                     "--1",
                                     "1.2.3",
                                     "1e5.",
                                     "1e400",
                                     "-1e999999999999",
                                     "\xd9\xa1"};
    char zeros[500];
    double v = 0;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ok(str_to_double(good[i], strlen(good[i]), &v) && v == value[i], "%s is a number", good[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        v = 7;
        ok(!str_to_double(no[i], strlen(no[i]), &v) && v == 7, "\"%s\" is none", no[i]);
    }
    ok(!str_to_double("1\0002", 3, &v), "a NUL within is no number");
    ok(str_to_double("12345", 2, &v) && v == 12, "n bytes are read, not one more");
    memset(zeros, '0', sizeof zeros);
    memcpy(zeros + sizeof zeros - 4, "12.5", 4);
    ok(str_to_double(zeros, sizeof zeros, &v) && v == 12.5, "500 digits are read");
}

static void test_to_int(void)
{
    static const char *const no[] = {"",
                                     "+",
                                     "-",
                                     "1.0",
                                     "1e3",
                                     " 1",
                                     "0x1",
                                     "9223372036854775808",
                                     "-9223372036854775809",
                                     "99999999999999999999"};
    int64_t v = 0;

    ok(str_to_int("9223372036854775807", 19, &v) && v == INT64_MAX, "the largest int");
    ok(str_to_int("-9223372036854775808", 20, &v) && v == INT64_MIN, "the smallest int");
    ok(str_to_int("+007", 4, &v) && v == 7, "+007 is 7");
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        v = 5;
        ok(!str_to_int(no[i], strlen(no[i]), &v) && v == 5, "\"%s\" is no int", no[i]);
    }
}

static void test_for_people(void)
{
    char b[32];

    is(str_bytes(b, sizeof b, 512), "512 B");
    is(str_bytes(b, sizeof b, 1023), "1023 B");
    is(str_bytes(b, sizeof b, 1024), "1.0 KiB");
    is(str_bytes(b, sizeof b, 1024 * 1024 - 1), "1.0 MiB");
    is(str_bytes(b, sizeof b, 9771050599u), "9.1 GiB");
    is(str_bytes(b, sizeof b, UINT64_MAX), "16.0 EiB");
    is(str_count(b, sizeof b, 0), "0");
    is(str_count(b, sizeof b, 999), "999");
    is(str_count(b, sizeof b, 12345), "12.3k");
    is(str_count(b, sizeof b, 999960), "1.0M");
    is(str_count(b, sizeof b, -4.5e6), "-4.5M");
    is(str_duration(b, sizeof b, 7.4), "0:07");
    is(str_duration(b, sizeof b, 59.6), "1:00");
    is(str_duration(b, sizeof b, 14241), "3:57:21");
    is(str_duration(b, sizeof b, 2 * 86400 + 4 * 3600), "2d 4:00:00");
    is(str_duration(b, sizeof b, (double)NAN), "--");
    is(str_duration(b, sizeof b, -5), "--");
}

static void test_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "nl_NL.UTF-8",
                                        "de_DE",       "cs_CZ.UTF-8", "ru_RU.UTF-8"};
    const char *found = NULL;
    char b[32];
    double v = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = setlocale(LC_ALL, names[i]);
    if (!found || strcmp(localeconv()->decimal_point, ",") != 0) {
        ok(1, "numbers under a comma locale # SKIP none of the locales tried is installed");
    } else {
        written(0.1, "0.1");
        written(1.25e-7, "1.25e-07");
        is(str_float(b, 1.5f), "1.5");
        is(str_bytes(b, sizeof b, 1536), "1.5 KiB");
        is(str_count(b, sizeof b, 12345), "12.3k");
        ok(str_to_double("2.5", 3, &v) && v == 2.5, "2.5 is read under %s", found);
        ok(!str_to_double("2,5", 3, &v), "2,5 is not");
    }
    setlocale(LC_ALL, "C");
}

int main(void)
{
    test_written();
    test_round_trip();
    test_to_double();
    test_to_int();
    test_for_people();
    test_comma_locale();
    return tap_done();
}
