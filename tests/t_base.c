/* The base: memory, text, numbers, JSON, hashes, errors, time. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "engine/base/alloc.h"
#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/base/err.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "tap.h"

enum { MANY = 100000 };

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* ---- memory ---- */

static void test_alloc(void)
{
    void *p = NULL, *zero = mem_zalloc(64), *aligned = mem_aligned(100);
    size_t cap = 0;
    int grown = 1, fails = 0;
    long before = mem_count();

    ok(zero && memcmp(zero, (char[64]){0}, 64) == 0, "zalloc is zeroed");
    ok(aligned && (uintptr_t)aligned % 64 == 0, "aligned to 64 bytes");
    mem_free(zero);
    mem_free(aligned);
    ok(!mem_array(SIZE_MAX / 2, 3) && !mem_array(SIZE_MAX / 8, 8), "sizes that overflow: NULL");
    ok(!mem_aligned(SIZE_MAX) && !mem_aligned(SIZE_MAX - 63), "so it is for aligned ones");
    for (size_t n = 0; n < 1000; n++) {
        grown &= mem_grow(&p, &cap, n, sizeof(size_t)) == 0 && cap > n;
        ((size_t *)p)[n] = n;
    }
    for (size_t n = 0; n < 1000; n++)
        grown &= ((size_t *)p)[n] == n;
    ok(grown && cap == 1024, "an array grows by doubling and keeps what it has");
    ok(mem_grow(&p, &cap, SIZE_MAX / 4, 8) < 0 && cap == 1024 && ((size_t *)p)[999] == 999,
       "growth that overflows changes nothing");
    mem_fail_nth(3);
    for (int i = 1; i <= 5; i++) {
        void *q = mem_alloc(1);
        fails += !q * i;
        mem_free(q);
    }
    ok(fails == 3, "the third allocation fails, once");
    mem_fail_nth(1);
    ok(mem_grow(&p, &cap, 1024, 8) < 0 && cap == 1024, "no memory to grow: nothing changes");
    mem_fail_nth(1);
    mem_fail_nth(0);
    zero = mem_alloc(0);
    ok(zero != NULL, "0 switches it off, and 0 bytes are something");
    ok(mem_count() > before, "allocations are counted");
    mem_free(zero);
    mem_free(p);
    p = mem_strndup("abc", 2);
    ok(p && strcmp(p, "ab") == 0, "strndup");
    mem_free(p);
    mem_free(NULL);
}

static void test_arena(void)
{
    struct arena a;
    int good = 1;
    char *big;

    arena_init(&a, 0);
    for (size_t i = 1; i < 2000; i++) {
        unsigned char *p = arena_alloc(&a, i % 100);
        good &= p && (uintptr_t)p % 16 == 0;
        for (size_t k = 0; good && k < i % 100; k++) {
            good &= p[k] == 0;
            p[k] = 0xaa;
        }
    }
    ok(good, "pieces are zeroed, aligned to 16 and apart");
    big = arena_array(&a, 1000, 1000);
    ok(big && big[999999] == 0, "a piece larger than a block");
    ok(!strcmp(arena_strdup(&a, "text"), "text") && !strcmp(arena_strndup(&a, "text", 2), "te") &&
           !strcmp(arena_printf(&a, "%d-%s", 7, "x"), "7-x"),
       "text");
    ok(!arena_alloc(&a, SIZE_MAX) && !arena_array(&a, SIZE_MAX / 2, 3),
       "sizes that overflow: NULL");
    arena_release(&a);
    ok(a.used == 0 && !a.head, "all is given back");
    arena_init(&a, 64);
    ok(arena_alloc(&a, 48) && !arena_alloc(&a, 32) && arena_alloc(&a, 16), "the limit holds");
    arena_release(&a);
}

/* ---- text ---- */

static void test_str(void)
{
    struct str s = {0};

    ok(!strcmp(str_c(&s), ""), "an empty one reads as \"\"");
    for (int i = 0; i < 1000; i++)
        str_addf(&s, "%d,", i);
    ok(s.len == 3890 && !strncmp(s.s, "0,1,2,", 6) && !strcmp(s.s + 3886, "999,"), "text grows");
    str_reset(&s);
    str_addn(&s, "a\0b", 3);
    str_addc(&s, 'c');
    str_add(&s, "");
    ok(s.len == 4 && memcmp(s.s, "a\0bc", 5) == 0, "bytes, terminated");
    str_release(&s);
    str_add(&s, "kept");
    mem_fail_nth(1);
    str_addf(&s, "%200d", 1);
    mem_fail_nth(0);
    str_add(&s, "more");
    ok(s.oom && !strcmp(str_c(&s), "kept"), "without memory it says so and stays as it was");
    str_release(&s);
}

static void test_round_trip(void)
{
    uint64_t seed = 0x9e3779b97f4a7c15u;
    int doubles = 0, floats = 0;
    char buf[32];

    for (int i = 0; i < MANY; i++) {
        uint64_t r = next_random(&seed);
        uint32_t half = (uint32_t)(r >> 32);
        double d, back;
        float f;

        memcpy(&d, &r, sizeof d);
        memcpy(&f, &half, sizeof f);
        str_double(buf, d);
        if (isfinite(d))
            doubles += strlen(buf) > 31 || !str_to_double(buf, strlen(buf), &back) || back != d;
        str_float(buf, f);
        if (isfinite(f))
            floats += strlen(buf) > 31 || strtof(buf, NULL) != f;
    }
    ok(doubles == 0, "%d doubles of any bits read back", MANY);
    ok(floats == 0, "and so do floats");
}

static int writes(double v, const char *want)
{
    char buf[32];
    return strcmp(str_double(buf, v), want) == 0;
}

static int writes_float(float v, const char *want)
{
    char buf[32];
    return strcmp(str_float(buf, v), want) == 0;
}

static void test_number_text(void)
{
    ok(writes(0.1, "0.1") && writes(1e-5, "1e-05") && writes(3, "3") && writes(-2.5, "-2.5") &&
           writes(0, "0") && writes(1e300, "1e+300"),
       "doubles as short as can be");
    ok(writes(NAN, "nan") && writes(INFINITY, "inf") && writes(-INFINITY, "-inf"), "non-finite");
    ok(writes(5e-324, "5e-324") && writes_float(1e-45f, "1e-45"), "the least denormals");
    ok(writes_float(0.1f, "0.1") && writes_float(16777216.0f, "16777216") &&
           writes_float(3e-4f, "0.0003") && writes_float(NAN, "nan"),
       "floats as short as can be");
}

static int reads(const char *text, double want)
{
    double v = -77;
    return str_to_double(text, strlen(text), &v) && v == want;
}

static void test_parse(void)
{
    static const char *const bad[] = {"",     " 1",  "1 ",    "+",      "-",     ".",   "e5",
                                      "1e",   "1e+", "0x1",   "inf",    "nan",   "1_0", "1,5",
                                      "1e5.", "--1", "1e999", "-1e999", "1.2.3", "1f",  "\xd9\xa1"};
    int refused = 0;
    double v;
    int64_t i = 0;
    char longer[200];

    ok(reads("010", 10) && reads("+.5", 0.5) && reads("5.", 5) && reads("-1E-2", -0.01) &&
           reads("1e-400", 0) && reads("1e+3", 1000),
       "decimal numbers");
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        refused += !str_to_double(bad[k], strlen(bad[k]), &v);
    ok(refused == (int)(sizeof bad / sizeof *bad), "everything else is refused");
    ok(!str_to_double("1\0002", 3, &v) && str_to_double("123", 2, &v) && v == 12,
       "the length counts, not a NUL");
    memset(longer, '0', sizeof longer);
    longer[sizeof longer - 1] = '7';
    ok(str_to_double(longer, sizeof longer, &v) && v == 7, "a long one");
    ok(str_to_int("-9223372036854775808", 20, &i) && i == INT64_MIN &&
           str_to_int("9223372036854775807", 19, &i) && i == INT64_MAX && str_to_int("+0", 2, &i) &&
           i == 0,
       "integers to their limits");
    ok(!str_to_int("9223372036854775808", 19, &i) && !str_to_int("-9223372036854775809", 20, &i) &&
           !str_to_int("", 0, &i) && !str_to_int("-", 1, &i) && !str_to_int("1.", 2, &i) &&
           !str_to_int("99999999999999999999999", 23, &i),
       "and not beyond");
}

static void test_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    const char *set = NULL;
    char buf[32];

    for (size_t k = 0; k < 4 && !set; k++)
        set = setlocale(LC_ALL, names[k]);
    ok(writes(0.5, "0.5") && reads("0.5", 0.5) && !str_to_double("0,5", 3, &(double){0}) &&
           !strcmp(str_bytes(buf, sizeof buf, 1536), "1.5 KiB"),
       "a point is a point%s", set ? " where the locale has a comma" : " # no such locale here");
    setlocale(LC_ALL, "C");
}

static void test_nearest(void)
{
    static const char *const names[] = {"learning_rate", "batch", "seed"};

    ok(str_distance("", "abc") == 3 && str_distance("kitten", "sitting") == 3 &&
           str_distance("ab", "ba") == 1 && str_distance("same", "same") == 0,
       "edit distance; a swap is one edit");
    ok(str_nearest("learnig_rate", names, 3) == 0 && str_nearest("BATHC", names, 3) == 1 &&
           str_nearest("sede", names, 3) == 2,
       "the nearest name, whatever the case");
    ok(str_nearest("optimizer", names, 3) == -1 && str_nearest("x", names, 0) == -1,
       "none that is far away");
}

static int visible(const char *text, const char *want)
{
    char buf[64];
    return strcmp(str_visible(buf, sizeof buf, text), want) == 0;
}

static void test_visible(void)
{
    char small[6] = "zzzzz";

    ok(visible("a\x1b[31m\n\x7f", "a\\x1b[31m\\x0a\\x7f"), "control characters");
    ok(visible("\xc2\x9b"
               "31m",
               "\\xc2\\x9b31m"),
       "C1 controls");
    ok(visible("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
       "good UTF-8 stays");
    ok(visible("\xc3", "\\xc3") && visible("\xff\x80", "\\xff\\x80") &&
           visible("\xc0\xaf", "\\xc0\\xaf") && visible("\xed\xa0\x80", "\\xed\\xa0\\x80") &&
           visible("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80") && visible("\xe2\x82", "\\xe2\\x82"),
       "broken, overlong, surrogate and too large are shown by their bytes");
    ok(!strcmp(str_visible(small, 5, "abc\xc3\xa9"), "abc"), "cut between characters");
    ok(!strcmp(str_visible(small, 4, "\n"), "") && str_visible(small, 0, "x") == small,
       "or to nothing");
}

static void test_people(void)
{
    char b[32];

    ok(!strcmp(str_bytes(b, 32, 512), "512 B") && !strcmp(str_bytes(b, 32, 9771050598u), "9.1 GiB"),
       "bytes");
    ok(!strcmp(str_count(b, 32, 12345), "12.3k") && !strcmp(str_count(b, 32, 4.5e6), "4.5M"),
       "counts");
    ok(!strcmp(str_duration(b, 32, 7), "0:07") && !strcmp(str_duration(b, 32, 14241), "3:57:21") &&
           !strcmp(str_duration(b, 32, 187200), "2d 4:00:00") &&
           !strcmp(str_duration(b, 32, NAN), "--"),
       "durations");
}

/* ---- JSON ---- */

static void test_json(void)
{
    struct str s = {0};
    json_t *o;

    json_begin(&s);
    json_put_int(&s, "i", INT64_MIN);
    json_key(&s, "list");
    json_list_begin(&s);
    json_number(&s, 0.1);
    json_number(&s, NAN);
    json_list_begin(&s);
    json_list_end(&s);
    json_begin(&s);
    json_end(&s);
    json_text(&s, NULL);
    json_list_end(&s);
    json_put_bool(&s, "b", true);
    json_put_number(&s, "n", -INFINITY);
    json_end(&s);
    ok(!strcmp(str_c(&s), "{\"i\":-9223372036854775808,\"list\":[0.1,\"nan\",[],{},null],"
                          "\"b\":true,\"n\":\"-inf\"}"),
       "commas where they are due");
    str_reset(&s);
    json_list_begin(&s);
    json_text(&s, "\"\\/\n\t\r\x01\x7f\xc3\xa9\xff{:,");
    json_text(&s, "");
    json_textn(&s, "a\0b", 3);
    json_list_end(&s);
    o = json_loads(str_c(&s), JSON_ALLOW_NUL, NULL);
    ok(o &&
           !strcmp(json_string_value(json_array_get(o, 0)),
                   "\"\\/\n\t\r\x01\x7f\xc3\xa9\xc3\xbf{:,") &&
           json_string_length(json_array_get(o, 2)) == 3,
       "text comes back; a byte that is no UTF-8 as U+00NN");
    ok(!strpbrk(str_c(&s), "\n\t\r\x01\x7f\xff"), "no control character is left in it");
    json_decref(o);
    str_release(&s);
}

/* ---- hashes ---- */

static int sha_is(const char *text, const char *want)
{
    char hex[65];

    sha256_text(text, strlen(text), hex);
    return strcmp(hex, want) == 0;
}

static void test_sha(void)
{
    struct sha256 h;
    char hex[65], block[977];

    ok(sha_is("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855") &&
           sha_is("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") &&
           sha_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
       "SHA-256 as FIPS 180-4 has it");
    memset(block, 'a', sizeof block);
    sha256_init(&h);
    for (size_t left = 1000000; left > 0;) {
        size_t n = left < sizeof block ? left : sizeof block;
        sha256_update(&h, block, n);
        sha256_update(&h, NULL, 0);
        left -= n;
    }
    sha256_final(&h, hex);
    ok(!strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
       "a million a, in odd pieces");
}

static void test_hash(void)
{
    unsigned char up[32], ff[32], text[100];
    int differ = 0;

    ok(hash_fnv64(FNV64_INIT, "", 0) == 0xcbf29ce484222325u &&
           hash_fnv64(FNV64_INIT, "a", 1) == 0xaf63dc4c8601ec8cu &&
           hash_fnv64(FNV64_INIT, "foobar", 6) == 0x85944171f73967e8u,
       "FNV-1a of 64 bits");
    ok(hash_fnv32("") == 0x811c9dc5u && hash_fnv32("a") == 0xe40c292cu &&
           hash_fnv32("foobar") == 0xbf9cf968u,
       "FNV-1a of 32 bits");
    for (int i = 0; i < 32; i++)
        up[i] = (unsigned char)i;
    memset(ff, 0xff, sizeof ff);
    ok(hash_crc32c(0, (char[32]){0}, 32) == 0x8a9136aau && hash_crc32c(0, ff, 32) == 0x62a8ab43u &&
           hash_crc32c(0, up, 32) == 0x46dd794eu && hash_crc32c(0, "123456789", 9) == 0xe3069283u,
       "CRC-32C as RFC 3720 has it");
    ok(hash_crc32c(hash_crc32c(0, "1234", 4), "56789", 5) == 0xe3069283u, "in pieces too");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i * 37);
    for (size_t from = 0; from < 9; from++)
        for (size_t n = 0; from + n <= sizeof text; n++)
            differ += hash_crc32c(7, text + from, n) != hash_crc32c_plain(7, text + from, n);
    ok(differ == 0, "by table and by the machine it is the same, at any address and length");
}

/* ---- errors and time ---- */

static void test_err(void)
{
    struct err e = {.code = ERR_OK, .msg = "untouched"};
    char big[3000];
    int named = 1;

    ok(err_set(&e, ERR_DATA, "%s: %d", "row", 3) == ERR_DATA && e.code == ERR_DATA &&
           !strcmp(e.msg, "row: 3"),
       "err_set fills and returns");
    ok(err_prefix(&e, "file %d", 9) == ERR_DATA && !strcmp(e.msg, "file 9: row: 3"), "err_prefix");
    ok(err_set(NULL, ERR_IO, "x") == ERR_IO, "NULL is fine");
    err_set(&e, ERR_IO, "again: %s", e.msg);
    ok(!strcmp(e.msg, "again: file 9: row: 3"), "a message may be made of itself");
    memset(big, 'b', sizeof big - 1);
    big[sizeof big - 1] = 0;
    err_prefix(&e, "%s", big);
    ok(strlen(e.msg) == sizeof e.msg - 1, "a long prefix is cut");
    err_set(&e, ERR_IO, "%s", big);
    err_prefix(&e, "p");
    ok(strlen(e.msg) == sizeof e.msg - 1 && !strncmp(e.msg, "p: bbb", 6), "so is a long message");
    for (int c = ERR_OK; c <= ERR_INTERNAL; c++)
        named &= err_name((enum err_code)c)[0] != 0 && err_exit_code((enum err_code)c) <= 5 &&
                 (err_exit_code((enum err_code)c) == 0) == (c == ERR_OK);
    ok(named && err_exit_code(ERR_NONFINITE) == 4 && err_exit_code(ERR_CONFIG) == 2, "exit codes");
}

static void test_clock(void)
{
    char b[40];
    double a = clock_now();

    setenv("TZ", "UTC-1", 1);
    tzset();
    ok(!strcmp(clock_iso(b, sizeof b, 1796067895), "2026-11-30T20:44:55+01:00"), "ISO time: %s", b);
    ok(!strcmp(clock_stamp(b, sizeof b, 1796067895), "20261130-204455"), "stamp: %s", b);
    setenv("TZ", "XXX3:30", 1);
    tzset();
    ok(!strcmp(clock_iso(b, sizeof b, 0), "1969-12-31T20:30:00-03:30"), "west of it: %s", b);
    ok(clock_now() >= a && clock_wall() > 1.6e9, "clocks go forward");
}

int main(void)
{
    test_alloc();
    test_arena();
    test_str();
    test_round_trip();
    test_number_text();
    test_parse();
    test_locale();
    test_nearest();
    test_visible();
    test_people();
    test_json();
    test_sha();
    test_hash();
    test_err();
    test_clock();
    return tap_done();
}
