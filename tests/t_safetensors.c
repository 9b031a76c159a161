/* The safetensors format: written the same each time, read from strangers (N20). */
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "engine/run/safetensors.h"
#include "tap.h"
#include "tmp_dir.h"

static struct st_tensor tensor(const char *name, const char *dtype, int rank, const int64_t *dim,
                               const void *data, size_t bytes)
{
    struct st_tensor t = {.name = name, .rank = rank, .count = 1, .data = data, .bytes = bytes};

    snprintf(t.dtype, sizeof t.dtype, "%s", dtype);
    for (int i = 0; i < rank; i++)
        t.count *= t.dim[i] = dim[i];
    return t;
}

static enum err_code write_file(const char *path, struct st_tensor *t, int n, char *sha,
                                int64_t *size, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    enum err_code rc = safetensors_write(fd, path, t, n, sha, size, e);

    close(fd);
    return rc;
}

static int same_file(const char *a, const char *b)
{
    size_t na, nb;
    char *x = slurp(a, &na), *y = slurp(b, &nb);
    int same = x && y && na == nb && memcmp(x, y, na) == 0;

    mem_free(x);
    mem_free(y);
    return same;
}

static void test_round_trip(const char *dir)
{
    static const float w[6] = {1, -2, 3.5f, 0, 1e-40f, 6};
    static const int64_t ids[2] = {-5, INT64_MAX}, d23[] = {2, 3}, d2[] = {2}, d0[] = {4, 0};
    struct st_tensor t[4] = {tensor("w", "F32", 2, d23, w, sizeof w),
                             tensor("Ids", "I64", 1, d2, ids, sizeof ids),
                             tensor("empty", "F32", 2, d0, NULL, 0),
                             tensor("a \"quoted\" \xc3\xa9", "F32", 0, NULL, w + 2, 4)},
                     back[4] = {t[3], t[2], t[1], t[0]};
    struct safetensors s;
    const struct st_tensor *f;
    struct err e;
    char sha[65], again[65];
    int64_t size = 0;
    size_t len;
    int sorted = 1;

    ok(write_file(at(dir, "a"), t, 4, sha, &size, &e) == ERR_OK, "four tensors are written");
    ok(write_file(at(dir, "b"), back, 4, again, NULL, &e) == ERR_OK && !strcmp(sha, again) &&
           same_file(at(dir, "a"), at(dir, "b")),
       "in any order: equal tensors give equal files");
    mem_free(slurp(at(dir, "a"), &len));
    ok(size == (int64_t)len, "the size is told");
    ok(safetensors_open(at(dir, "a"), &s, &e) == ERR_OK && s.n == 4, "they are read");
    for (int i = 1; i < s.n; i++)
        sorted &= strcmp(s.tensor[i - 1].name, s.tensor[i].name) < 0;
    ok(sorted, "sorted by name");
    f = safetensors_find(&s, "w");
    ok(f && f->rank == 2 && f->dim[0] == 2 && f->dim[1] == 3 && f->count == 6 &&
           f->bytes == sizeof w && memcmp(f->data, w, sizeof w) == 0,
       "shape and bytes come back");
    f = safetensors_find(&s, "a \"quoted\" \xc3\xa9");
    ok(f && f->rank == 0 && f->count == 1 && *(const float *)f->data == 3.5f, "a scalar");
    f = safetensors_find(&s, "empty");
    ok(f && f->count == 0 && f->bytes == 0, "an empty one");
    ok(!safetensors_find(&s, "nothing"), "one that is not there is NULL");
    safetensors_close(&s);
}

static void test_layout(const char *dir)
{
    static const float w[2] = {1, 2};
    static const int64_t d[] = {2};
    struct st_tensor t = tensor("w", "F32", 1, d, w, sizeof w);
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"cupola\",\"version\":\"1\"},\"w\":{"
        "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    size_t len, padded = (sizeof header - 1 + 7) / 8 * 8;
    char *file;

    write_file(at(dir, "layout"), &t, 1, NULL, NULL, NULL);
    file = slurp(at(dir, "layout"), &len);
    ok(len == 8 + padded + 8 && (size_t)(unsigned char)file[0] == padded && file[1] == 0,
       "length first, header padded to 8");
    ok(memcmp(file + 8, header, sizeof header - 1) == 0 &&
           memcmp(file + 8 + padded, w, sizeof w) == 0,
       "then the header and the data");
    mem_free(file);
}

static void test_write_fails(const char *dir)
{
    static const float w[2] = {1, 2};
    static const int64_t d[] = {2};
    struct st_tensor t[2] = {tensor("w", "F32", 1, d, w, sizeof w),
                             tensor("w", "F32", 1, d, w, sizeof w)};
    struct err e;

    ok(write_file(at(dir, "twice"), t, 2, NULL, NULL, &e) == ERR_INTERNAL && strstr(e.msg, "'w'"),
       "two tensors of one name are not written");
    ok(safetensors_write(-1, "label", t, 1, NULL, NULL, &e) == ERR_IO &&
           strncmp(e.msg, "label: ", 7) == 0,
       "a write that fails is an error");
}

static enum err_code parse(const char *header, size_t data, struct err *e)
{
    size_t n = strlen(header);
    char *file = mem_zalloc(8 + n + data);
    struct safetensors s;
    enum err_code rc;

    for (int i = 0; i < 8; i++)
        file[i] = (char)(n >> (8 * i));
    memcpy(file + 8, header, n);
    e->msg[0] = 0;
    rc = safetensors_parse(file, 8 + n + data, "F", &s, e);
    if (rc == ERR_OK)
        safetensors_close(&s);
    mem_free(file);
    return rc;
}

#define T(name, dtype, shape, off)                                                                 \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" off "}"

/* Each differs from a good header in one thing. */
static void test_faults(void)
{
    static const struct {
        const char *what, *header, *names;
        size_t data;
    } bad[] = {
        {"offsets too small for the shape", "{" T("big", "F32", "[1000,1000]", "[0,4]") "}", "big",
         4},
        {"begin behind end", "{" T("rev", "F32", "[1]", "[4,0]") "}", "rev", 4},
        {"an end behind the file", "{" T("far", "F32", "[2]", "[0,8]") "}", "far", 4},
        {"a negative begin", "{" T("neg", "F32", "[2]", "[-4,4]") "}", "neg", 8},
        {"overlap", "{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[4,8]") "}", "b",
         8},
        {"the same bytes twice",
         "{" T("a", "U8", "[8]", "[0,8]") "," T("b", "U8", "[8]", "[0,8]") "}", "'", 8},
        {"a hole", "{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", "b",
         12},
        {"bytes behind the last", "{" T("a", "F32", "[1]", "[0,4]") "}", "behind", 8},
        {"a product that overflows", "{" T("ovf", "U8", "[4294967296,4294967296]", "[0,0]") "}",
         "ovf", 0},
        {"bytes that overflow", "{" T("ovf", "F64", "[2305843009213693952]", "[0,0]") "}", "ovf",
         0},
        {"a duplicate name",
         "{" T("dup", "F32", "[1]", "[0,4]") "," T("dup", "F32", "[1]", "[0,4]") "}", "dup", 4},
        {"an unknown type", "{" T("odd", "F99", "[1]", "[0,4]") "}", "odd", 4},
        {"a negative dimension", "{" T("dim", "F32", "[-1]", "[0,4]") "}", "dim", 4},
        {"a dimension that is no integer", "{" T("dim", "F32", "[1.0]", "[0,4]") "}", "dim", 4},
        {"nine dimensions", "{" T("dim", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", "dim", 1},
        {"a shape that is no list", "{" T("dim", "U8", "1", "[0,1]") "}", "dim", 1},
        {"three offsets", "{" T("off", "U8", "[1]", "[0,1,1]") "}", "off", 1},
        {"offsets as text", "{" T("off", "U8", "[1]", "[\"0\",\"1\"]") "}", "off", 1},
        {"an offset of 2^64", "{" T("off", "U8", "[1]", "[0,18446744073709551616]") "}", "integer",
         1},
        {"no shape", "{\"less\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", "less", 1},
        {"a member more",
         "{\"more\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", "more", 1},
        {"an entry that is no map", "{\"list\":[1]}", "list", 0},
        {"a name that is not UTF-8", "{" T("\xff", "U8", "[1]", "[0,1]") "}", "header", 1},
        {"a name with a NUL", "{" T("a\\u0000b", "U8", "[1]", "[0,1]") "}", "header", 1},
        {"text behind the map", "{" T("a", "U8", "[1]", "[0,1]") "}{}", "header", 1},
        {"a header that ends early", "{\"a\":{\"dtype\":", "header", 0},
        {"a list", "[1,2]", "no safetensors", 0},
        {"nothing", "", "no safetensors", 0},
    };
    struct err e;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!ok(parse(bad[i].header, bad[i].data, &e) == ERR_CORRUPT &&
                    strncmp(e.msg, "F: ", 3) == 0 && strstr(e.msg, bad[i].names),
                "refused and named: %s", bad[i].what))
            note("message: %s", e.msg);
    ok(parse("{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[4,8]") "}   ", 8, &e) ==
           ERR_OK,
       "without a fault it is read");
    ok(parse("{}", 0, &e) == ERR_OK, "so is a file of no tensors");
}

static void test_lengths(const char *dir)
{
    static const uint64_t lens[] = {1ull << 63, UINT64_MAX, UINT64_MAX - 7, 1ull << 40, 9, 1, 0};
    struct safetensors s;
    struct err e;
    char file[16] = "";
    int refused = 0;

    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        memcpy(file + 8, "{}      ", 8);
        for (int b = 0; b < 8; b++)
            file[b] = (char)(lens[i] >> (8 * b));
        refused += safetensors_parse(file, sizeof file, "F", &s, &e) == ERR_CORRUPT && s.n == 0;
    }
    ok(refused == 7, "header lengths that cannot be are refused");
    refused = 0;
    for (size_t n = 0; n < 8; n++)
        refused += safetensors_parse(file, n, "F", &s, &e) == ERR_CORRUPT;
    ok(refused == 8, "so is a file of less than 8 bytes");
    put_text(at(dir, "void"), "");
    ok(safetensors_open(at(dir, "void"), &s, &e) == ERR_CORRUPT && strstr(e.msg, "void"),
       "an empty file is corrupt");
    ok(safetensors_open(at(dir, "none"), &s, &e) == ERR_IO && strstr(e.msg, "none"),
       "a missing one cannot be read");
    ok(safetensors_open(dir, &s, &e) == ERR_IO, "nor can a folder");
    safetensors_close(&s);
}

/* A header nested as deep as one likes must not end the process. */
static void test_deep(void)
{
    enum { DEEP = 1 << 20 };
    char *header = mem_alloc(DEEP + 1);
    struct err e;

    memset(header, '[', DEEP);
    memcpy(header, "{\"a\":", 5);
    header[DEEP] = 0;
    ok(parse(header, 0, &e) == ERR_CORRUPT, "deep nesting is refused");
    mem_free(header);
}

static int close_f32(const char *dtype, const void *data, size_t bytes, const float *want,
                     int64_t n)
{
    struct st_tensor t = tensor("t", dtype, 1, &n, data, bytes);
    float out[8];
    int same = st_to_f32(&t, out, NULL) == ERR_OK;

    for (int i = 0; same && i < n; i++)
        same = isnan(want[i]) ? isnan(out[i])
                              : out[i] == want[i] && !signbit(out[i]) == !signbit(want[i]);
    return same;
}

static void test_convert(void)
{
    static const uint16_t f16[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000, 0x7e00, 0x03ff};
    static const float half[] = {1, -2, 0x1p-24f, 65504, INFINITY, -0.0f, NAN, 1023 * 0x1p-24f};
    static const uint16_t bf[] = {0x3f80, 0xc000, 0xff80, 0x7fc0, 0x0001};
    static const float bfloat[] = {1, -2, -INFINITY, NAN, 0x1p-133f};
    static const int64_t i64[] = {-3, 1ll << 40};
    static const double f64[] = {0.1, -1e300};
    static const uint8_t u8[] = {0, 1, 255};
    static const int8_t i8[] = {-128, 127};
    unsigned char odd[9] = {0};
    struct st_tensor f8 = {.name = "f8", .dtype = "F8_E4M3", .count = 1, .data = u8, .bytes = 1};
    float out[1];
    struct err e;

    ok(close_f32("F16", f16, sizeof f16, half, 8), "F16");
    ok(close_f32("BF16", bf, sizeof bf, bfloat, 5), "BF16");
    ok(close_f32("I64", i64, sizeof i64, (const float[]){-3, 0x1p40f}, 2), "I64");
    ok(close_f32("F64", f64, sizeof f64, (const float[]){0.1f, -INFINITY}, 2), "F64");
    ok(close_f32("U8", u8, sizeof u8, (const float[]){0, 1, 255}, 3), "U8");
    ok(close_f32("I8", i8, sizeof i8, (const float[]){-128, 127}, 2), "I8");
    ok(close_f32("BOOL", u8, 2, (const float[]){0, 1}, 2), "BOOL");
    memcpy(odd + 1, &(float){2.5f}, 4);
    ok(close_f32("F32", odd + 1, 4, (const float[]){2.5f}, 1), "F32 at an odd address");
    ok(st_to_f32(&f8, out, &e) == ERR_CORRUPT && strstr(e.msg, "f8"), "F8 is refused by name");
}

static void test_python(void)
{
    struct safetensors s;
    struct err e = {.msg = ""};
    int finite = 1;
    int64_t n = 0;

    if (!ok(safetensors_open("tests/golden/mlp/init.safetensors", &s, &e) == ERR_OK,
            "a file that Python wrote is read"))
        note("%s", e.msg);
    for (int i = 0; i < s.n; i++) {
        float *v = mem_array((size_t)s.tensor[i].count, sizeof *v);
        finite &= st_to_f32(&s.tensor[i], v, NULL) == ERR_OK;
        for (int64_t k = 0; k < s.tensor[i].count; k++)
            finite &= isfinite(v[k]) && fabsf(v[k]) < 100;
        n += s.tensor[i].count;
        mem_free(v);
    }
    ok(s.n > 1 && n > 100 && finite, "its %d tensors hold sensible numbers", s.n);
    safetensors_close(&s);
}

int main(void)
{
    const char *dir = tmp_make();

    test_round_trip(dir);
    test_layout(dir);
    test_write_fails(dir);
    test_faults();
    test_lengths(dir);
    test_deep();
    test_convert();
    test_python();
    tmp_remove();
    return tap_done();
}
