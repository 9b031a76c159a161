/* safetensors.c - the safetensors format, read from strangers and written byte for byte the same.
 */
#include "engine/run/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"

enum { HEADER_MAX = 100 << 20, TENSORS_MAX = 1 << 20 };

struct st_priv {
    json_t *header; /* owns the names */
    void *map;      /* NULL when the bytes are the caller's */
    size_t map_len;
};

static const struct {
    const char *name;
    size_t bytes;
} types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
             {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
             {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

static size_t type_bytes(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].bytes;
    return 0;
}

/* ---- reading ---- */

static enum err_code bad(const char *label, const char *name, const char *what, struct err *e)
{
    char shown[128];
    return err_set(e, ERR_CORRUPT, "%s: tensor '%s': %s", label,
                   str_visible(shown, sizeof shown, name), what);
}

static enum err_code read_shape(const json_t *v, struct st_tensor *t, const char *label,
                                struct err *e)
{
    size_t n = json_array_size(v);

    if (!json_is_array(v) || n > ST_RANK)
        return bad(label, t->name, "shape is no list of at most 8 numbers", e);
    t->rank = (int)n;
    t->count = 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(v, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return bad(label, t->name, "a dimension is no whole number from 0", e);
        t->dim[i] = json_integer_value(d);
        if (__builtin_mul_overflow(t->count, t->dim[i], &t->count))
            return bad(label, t->name, "its shape overflows", e);
    }
    return ERR_OK;
}

/* One entry; data_len is what lies behind the header. */
static enum err_code read_tensor(const char *name, const json_t *v, const char *data,
                                 size_t data_len, const char *label, struct st_tensor *t,
                                 struct err *e)
{
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    const json_t *off = json_object_get(v, "data_offsets"), *b = json_array_get(off, 0),
                 *z = json_array_get(off, 1);
    int64_t begin = json_integer_value(b), end = json_integer_value(z), bytes;
    enum err_code rc;

    memset(t, 0, sizeof *t);
    t->name = name;
    if (!json_is_object(v) || json_object_size(v) != 3 || !dtype)
        return bad(label, name, "needs exactly dtype, shape and data_offsets", e);
    if (type_bytes(dtype) == 0)
        return bad(label, name, "its dtype is unknown", e);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    rc = read_shape(json_object_get(v, "shape"), t, label, e);
    if (rc != ERR_OK)
        return rc;
    if (json_array_size(off) != 2 || !json_is_integer(b) || !json_is_integer(z) || begin < 0 ||
        end < begin || (uint64_t)end > data_len)
        return bad(label, name, "its offsets lie outside the file", e);
    if (__builtin_mul_overflow(t->count, (int64_t)type_bytes(dtype), &bytes) ||
        bytes != end - begin)
        return bad(label, name, "its offsets and its shape do not agree", e);
    t->data = data + begin;
    t->bytes = (size_t)bytes;
    return ERR_OK;
}

static int by_data(const void *pa, const void *pb)
{
    const struct st_tensor *a = pa, *b = pb;

    if (a->data != b->data)
        return (const char *)a->data < (const char *)b->data ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static int by_name(const void *pa, const void *pb)
{
    const struct st_tensor *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

/* The data must be covered once: no holes, no overlap, nothing behind. */
static enum err_code check_cover(struct safetensors *s, const char *data, size_t data_len,
                                 const char *label, struct err *e)
{
    const char *at = data;

    qsort(s->tensor, (size_t)s->n, sizeof *s->tensor, by_data);
    for (int i = 0; i < s->n; i++) {
        if ((const char *)s->tensor[i].data != at)
            return bad(label, s->tensor[i].name, "its data overlap or leave a hole before them", e);
        at += s->tensor[i].bytes;
    }
    if ((size_t)(at - data) != data_len)
        return err_set(e, ERR_CORRUPT, "%s: %zu bytes behind the last tensor", label,
                       data_len - (size_t)(at - data));
    qsort(s->tensor, (size_t)s->n, sizeof *s->tensor, by_name);
    return ERR_OK;
}

static uint64_t little_endian(const unsigned char *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static enum err_code read_header(struct safetensors *out, const char *file, size_t len,
                                 const char *label, struct err *e)
{
    uint64_t header = len >= 8 ? little_endian((const unsigned char *)file) : 0;
    const char *data, *key;
    size_t data_len;
    json_error_t je;
    json_t *v;
    enum err_code rc = ERR_OK;

    if (len < 8 || header > len - 8 || header > HEADER_MAX || header < 2 || file[8] != '{')
        return err_set(e, ERR_CORRUPT,
                       "%s: is no safetensors file (header of %llu bytes in a file of %zu)", label,
                       (unsigned long long)header, len);
    data = file + 8 + header;
    data_len = len - 8 - (size_t)header;
    out->priv->header = json_loadb(file + 8, (size_t)header, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(out->priv->header))
        return err_set(e, ERR_CORRUPT, "%s: header: %s", label,
                       out->priv->header ? "is no map" : je.text);
    if (json_object_size(out->priv->header) > TENSORS_MAX)
        return err_set(e, ERR_CORRUPT, "%s: more than %d tensors", label, TENSORS_MAX);
    out->tensor = mem_array(json_object_size(out->priv->header) + 1, sizeof *out->tensor);
    if (!out->tensor)
        return err_set(e, ERR_NOMEM, "%s: out of memory", label);
    json_object_foreach(out->priv->header, key, v)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        rc = read_tensor(key, v, data, data_len, label, &out->tensor[out->n], e);
        if (rc != ERR_OK)
            return rc;
        out->n++;
    }
    return check_cover(out, data, data_len, label, e);
}

enum err_code safetensors_parse(const void *file, size_t len, const char *label,
                                struct safetensors *out, struct err *e)
{
    enum err_code rc;

    memset(out, 0, sizeof *out);
    out->priv = mem_zalloc(sizeof *out->priv);
    if (!out->priv)
        return err_set(e, ERR_NOMEM, "%s: out of memory", label);
    rc = read_header(out, file, len, label, e);
    if (rc != ERR_OK)
        safetensors_close(out);
    return rc;
}

enum err_code safetensors_open(const char *path, struct safetensors *out, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    void *map;
    enum err_code rc;

    memset(out, 0, sizeof *out);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_IO, "%s: %s", path, fd < 0 ? strerror(errno) : "is no regular file");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    map =
        st.st_size > 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED)
        return err_set(e, ERR_CORRUPT, "%s: %s", path,
                       st.st_size > 0 ? "cannot be mapped" : "is empty");
    rc = safetensors_parse(map, (size_t)st.st_size, path, out, e);
    if (rc != ERR_OK) {
        munmap(map, (size_t)st.st_size);
        return rc;
    }
    out->priv->map = map;
    out->priv->map_len = (size_t)st.st_size;
    return ERR_OK;
}

void safetensors_close(struct safetensors *s)
{
    if (s->priv) {
        json_decref(s->priv->header);
        if (s->priv->map)
            munmap(s->priv->map, s->priv->map_len);
    }
    mem_free(s->priv);
    mem_free(s->tensor);
    memset(s, 0, sizeof *s);
}

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    struct st_tensor key = {.name = name};
    return s->n > 0 ? bsearch(&key, s->tensor, (size_t)s->n, sizeof *s->tensor, by_name) : NULL;
}

/* ---- conversion ---- */

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* IEEE binary16 to binary32, exact. */
static float from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 0x1fu, man = h & 0x3ffu;

    if (exp == 0) /* zero and subnormal: man * 2^-24 */
        return (sign ? -1.0f : 1.0f) * (float)man * (1.0f / 16777216.0f);
    if (exp == 31)
        return from_bits(sign | 0x7f800000u | man << 13);
    return from_bits(sign | (exp + 112) << 23 | man << 13);
}

/* The file gives no alignment: each element is copied out. */
#define EACH(type, expr)                                                                           \
    do {                                                                                           \
        for (int64_t i = 0; i < t->count; i++) {                                                   \
            type v;                                                                                \
            memcpy(&v, p + i * (int64_t)sizeof v, sizeof v);                                       \
            out[i] = (float)(expr);                                                                \
        }                                                                                          \
    } while (0)

enum err_code st_to_f32(const struct st_tensor *t, float *out, struct err *e)
{
    const char *p = t->data, *d = t->dtype;

    if (strcmp(d, "F32") == 0)
        EACH(float, v);
    else if (strcmp(d, "F64") == 0)
        EACH(double, v);
    else if (strcmp(d, "F16") == 0)
        EACH(uint16_t, from_half(v));
    else if (strcmp(d, "BF16") == 0)
        EACH(uint16_t, from_bits((uint32_t)v << 16));
    else if (strcmp(d, "I64") == 0)
        EACH(int64_t, v);
    else if (strcmp(d, "I32") == 0)
        EACH(int32_t, v);
    else if (strcmp(d, "I16") == 0)
        EACH(int16_t, v);
    else if (strcmp(d, "I8") == 0)
        EACH(int8_t, v);
    else if (strcmp(d, "U64") == 0)
        EACH(uint64_t, v);
    else if (strcmp(d, "U32") == 0)
        EACH(uint32_t, v);
    else if (strcmp(d, "U16") == 0)
        EACH(uint16_t, v);
    else if (strcmp(d, "U8") == 0 || strcmp(d, "BOOL") == 0)
        EACH(uint8_t, v);
    else
        return err_set(e, ERR_CORRUPT, "tensor '%s': %s cannot be read as numbers", t->name, d);
    return ERR_OK;
}

/* ---- writing ---- */

static void header_text(const struct st_tensor *t, int n, struct str *s)
{
    int64_t at = 0;

    json_begin(s);
    json_key(s, "__metadata__");
    json_begin(s);
    json_put_text(s, "format", "cupola");
    json_put_text(s, "version", "1");
    json_end(s);
    for (int i = 0; i < n; i++) {
        json_key(s, t[i].name);
        json_begin(s);
        json_put_text(s, "dtype", t[i].dtype);
        json_key(s, "shape");
        json_list_begin(s);
        for (int d = 0; d < t[i].rank; d++)
            json_int(s, t[i].dim[d]);
        json_list_end(s);
        json_key(s, "data_offsets");
        json_list_begin(s);
        json_int(s, at);
        at += (int64_t)t[i].bytes;
        json_int(s, at);
        json_list_end(s);
        json_end(s);
    }
    json_end(s);
    while (!s->oom && s->len % 8 != 0) /* so that the data are aligned in a mapping */
        str_addc(s, ' ');
}

static int put(int fd, struct sha256 *h, int64_t *size, const void *data, size_t n)
{
    sha256_update(h, data, n);
    *size += (int64_t)n;
    return fs_write_all(fd, data, n);
}

enum err_code safetensors_write(int fd, const char *label, struct st_tensor *tensors, int n,
                                char *sha, int64_t *size, struct err *e)
{
    struct str s = {0};
    struct sha256 h;
    unsigned char len[8];
    int64_t written = 0;
    enum err_code rc = ERR_OK;

    if (n > 0)
        qsort(tensors, (size_t)n, sizeof *tensors, by_name);
    for (int i = 1; i < n; i++)
        if (strcmp(tensors[i].name, tensors[i - 1].name) == 0)
            return err_set(e, ERR_INTERNAL, "%s: two tensors are named '%s'", label,
                           tensors[i].name);
    header_text(tensors, n, &s);
    if (s.oom) {
        str_release(&s);
        return err_set(e, ERR_NOMEM, "%s: out of memory", label);
    }
    for (int i = 0; i < 8; i++)
        len[i] = (unsigned char)((uint64_t)s.len >> (8 * i));
    sha256_init(&h);
    if (put(fd, &h, &written, len, sizeof len) < 0 || put(fd, &h, &written, s.s, s.len) < 0)
        rc = err_set(e, ERR_IO, "%s: %s", label, strerror(errno));
    for (int i = 0; i < n && rc == ERR_OK; i++)
        if (put(fd, &h, &written, tensors[i].data, tensors[i].bytes) < 0)
            rc = err_set(e, ERR_IO, "%s: %s", label, strerror(errno));
    if (rc == ERR_OK && sha)
        sha256_final(&h, sha);
    if (size)
        *size = written;
    str_release(&s);
    return rc;
}
