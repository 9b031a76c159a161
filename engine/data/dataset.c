/* dataset.c - what an open set answers: samples by number, checks, its description. */
#include "engine/data/set.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"

void data_set_free(struct data_set *s)
{
    if (!s)
        return;
    if (s->owns_schema) {
        arena_release(&s->schema->arena);
        mem_free(s->schema);
    }
    mem_free(s->file);
    mem_free(s->x);
    mem_free(s->y);
    mem_free(s->line);
    mem_free(s);
}

int64_t data_count(const struct data_set *s)
{
    return s->n;
}

int data_fields(const struct data_set *s, const struct data_field **fields)
{
    *fields = s->schema->field;
    return s->schema->n_fields;
}

static bool field_exists(const struct data_set *s, int field, struct err *e)
{
    if (field >= 0 && field < s->schema->n_fields)
        return true;
    err_set(e, ERR_INTERNAL, "%s: no field %d among %d", s->file, field, s->schema->n_fields);
    return false;
}

/* A whole number of the file: of the target less label_base; of a feature as it stood before
 * normalisation (the set was checked for that to be exact). */
static double whole_value(const struct data_set *s, int field, int64_t sample, int64_t k)
{
    const struct schema *m = s->schema;
    const struct feature *f;

    if (field == m->target_field)
        return s->y[sample] - (m->text_target ? 0 : (double)m->label_base);
    k += m->first[field];
    f = &m->feature[k];
    return nearbyint((double)s->x[sample * m->n_features + k] * f->scale + f->offset);
}

static enum err_code refuse_type(const struct data_set *s, const struct data_want *w, struct err *e)
{
    const struct data_field *f = &s->schema->field[w->field];
    const char *name = f->is_target ? s->schema->target_name : f->name;

    if (w->dtype == DT_F32)
        return err_set(e, ERR_DATA,
                       "%s: '%s' is text (%d classes) and cannot be learned as a number; use a "
                       "classification loss",
                       s->file, name, f->n_classes);
    if (w->dtype == DT_I32)
        return err_set(e, ERR_DATA,
                       "%s: '%s' has values that are no whole numbers and cannot be class ids",
                       s->file, name);
    return err_set(e, ERR_INTERNAL, "%s: '%s' asked for as %s; data are f32 or i32", s->file, name,
                   dtype_name(w->dtype));
}

static void gather_target(const struct data_set *s, const struct data_want *w, const int64_t *ids,
                          int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++) {
        if (w->dtype == DT_F32)
            ((float *)out)[i] = (float)s->y[ids[i]];
        else
            ((int32_t *)out)[i] = (int32_t)whole_value(s, w->field, ids[i], 0);
    }
}

static void gather_input(const struct data_set *s, const struct data_want *w, const int64_t *ids,
                         int64_t n, void *out)
{
    int64_t width = s->schema->field[w->field].dim[0], first = s->schema->first[w->field];

    for (int64_t i = 0; i < n; i++) {
        const float *x = s->x + ids[i] * s->schema->n_features + first;
        if (w->dtype == DT_F32) {
            memcpy((float *)out + i * width, x, (size_t)width * sizeof *x);
            continue;
        }
        for (int64_t k = 0; k < width; k++)
            ((int32_t *)out)[i * width + k] = (int32_t)whole_value(s, w->field, ids[i], k);
    }
}

enum err_code data_gather(const struct data_set *s, const struct data_want *w, const int64_t *ids,
                          int64_t n, void *out, struct err *e)
{
    const struct data_field *f;

    if (!field_exists(s, w->field, e))
        return ERR_INTERNAL;
    f = &s->schema->field[w->field];
    if (!(w->dtype == DT_F32 && f->can_f32) && !(w->dtype == DT_I32 && f->can_i32))
        return refuse_type(s, w, e);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->n)
            return err_set(e, ERR_INTERNAL, "%s: sample %lld asked for; there are %lld", s->file,
                           (long long)ids[i], (long long)s->n);
    if (f->is_target)
        gather_target(s, w, ids, n, out);
    else
        gather_input(s, w, ids, n, out);
    return ERR_OK;
}

/* ---- checks before step 1 ---- */

static enum err_code bad_class(const struct data_set *s, int field, int64_t i, double id,
                               int64_t n_classes, bool from_one, struct err *e)
{
    const struct schema *m = s->schema;
    const struct data_field *f = &m->field[field];
    double raw = id + (f->is_target && !m->text_target ? (double)m->label_base : 0);
    char after[64] = "";

    if (f->n_classes > 0)
        return err_set(e, ERR_DATA, "%s: '%s' has %d classes, the model has %lld", s->file,
                       m->target_name, f->n_classes, (long long)n_classes);
    if (f->is_target && m->label_base != 0)
        snprintf(after, sizeof after, " counted from %lld (data.label_base)",
                 (long long)m->label_base);
    return err_set(e, ERR_DATA,
                   "%s:%lld: '%s': label %.15g at sample %lld, classes are %lld..%lld%s%s", s->file,
                   (long long)s->line[i], f->is_target ? m->target_name : f->name, raw,
                   (long long)i, (long long)(f->is_target ? m->label_base : 0),
                   (long long)(n_classes - 1 + (f->is_target ? m->label_base : 0)), after,
                   from_one ? "; is the file 1-based? set data.label_base: 1" : "");
}

/* The least and the largest id, and the sample where the first one outside stands (-1: none). */
static int64_t find_outside(const struct data_set *s, int field, int64_t n_classes, double *least,
                            double *most)
{
    int64_t width = field == s->schema->target_field ? 1 : s->schema->field[field].dim[0], at = -1;

    *least = INFINITY;
    *most = -INFINITY;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t k = 0; k < width; k++) {
            double v = whole_value(s, field, i, k);
            *least = v < *least ? v : *least;
            *most = v > *most ? v : *most;
            if (at < 0 && !(v >= 0 && v < (double)n_classes))
                at = i;
        }
    return at;
}

static double outside_value(const struct data_set *s, int field, int64_t i, int64_t n_classes)
{
    int64_t width = field == s->schema->target_field ? 1 : s->schema->field[field].dim[0];
    double v = 0;

    for (int64_t k = 0; k < width; k++) {
        v = whole_value(s, field, i, k);
        if (!(v >= 0 && v < (double)n_classes))
            break;
    }
    return v;
}

/* The sample whose target is no whole number of 32 bits. */
static enum err_code not_whole(const struct data_set *s, struct err *e)
{
    const struct schema *m = s->schema;
    char text[32];

    for (int64_t i = 0; i < s->n; i++) {
        double v = s->y[i] - (double)m->label_base;
        if (v != trunc(v) || !(v >= INT32_MIN && v <= INT32_MAX))
            return err_set(
                e, ERR_DATA,
                "%s:%lld: '%s': %s at sample %lld is no class id; class ids are whole numbers",
                s->file, (long long)s->line[i], m->target_name, str_double(text, s->y[i]),
                (long long)i);
    }
    return ERR_OK; /* the other set has it, and is asked in its turn */
}

enum err_code data_check_classes(const struct data_set *s, int field, int64_t n_classes,
                                 struct err *e)
{
    double least, most;
    int64_t at;

    if (!field_exists(s, field, e))
        return ERR_INTERNAL;
    if (n_classes <= 0)
        return data_check_finite(s, e);
    if (!s->schema->field[field].can_i32) {
        if (field == s->schema->target_field)
            return not_whole(s, e);
        return refuse_type(s, &(struct data_want){field, DT_I32}, e);
    }
    if (s->schema->field[field].n_classes > n_classes)
        return bad_class(s, field, 0, 0, n_classes, false, e);
    at = find_outside(s, field, n_classes, &least, &most);
    if (at < 0)
        return ERR_OK;
    return bad_class(s, field, at, outside_value(s, field, at, n_classes), n_classes,
                     field == s->schema->target_field && s->schema->label_base == 0 && least >= 1 &&
                         most == (double)n_classes,
                     e);
}

enum err_code data_check_finite(const struct data_set *s, struct err *e)
{
    const struct schema *m = s->schema;
    char a[32], b[32];

    for (int64_t i = 0; i < s->n; i++) {
        for (int k = 0; k < m->n_features; k++)
            if (!isfinite(s->x[i * m->n_features + k]))
                return err_set(
                    e, ERR_DATA,
                    "%s:%lld: column '%s': not finite after normalisation (mean %s, deviation %s)",
                    s->file, (long long)s->line[i], m->feature[k].name,
                    str_double(a, m->feature[k].mean), str_double(b, m->feature[k].deviation));
        if (s->y && !isfinite(s->y[i]))
            return err_set(e, ERR_DATA, "%s:%lld: '%s' is not finite", s->file,
                           (long long)s->line[i], m->target_name);
    }
    return ERR_OK;
}

/* ---- for the record ---- */

static void hash_i64(struct sha256 *h, int64_t v)
{
    uint8_t b[8];

    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)((uint64_t)v >> 8 * i);
    sha256_update(h, b, sizeof b);
}

void data_fingerprint(const struct data_set *s, char hex[65])
{
    const struct schema *m = s->schema;
    struct sha256 h;

    sha256_init(&h);
    hash_i64(&h, s->n);
    hash_i64(&h, m->n_fields);
    for (int i = 0; i < m->n_fields; i++) {
        const struct data_field *f = &m->field[i];
        sha256_update(&h, f->name, strlen(f->name) + 1);
        hash_i64(&h, f->rank);
        for (int k = 0; k < f->rank; k++)
            hash_i64(&h, f->dim[k]);
        for (int k = 0; k < f->n_classes; k++)
            sha256_update(&h, f->classes[k], strlen(f->classes[k]) + 1);
    }
    sha256_update(&h, s->x, (size_t)s->n * (size_t)m->n_features * sizeof *s->x);
    if (s->y)
        sha256_update(&h, s->y, (size_t)s->n * sizeof *s->y);
    sha256_final(&h, hex);
}

static void describe_numbers(const struct schema *m, int field, const char *key, size_t offset,
                             struct str *json)
{
    json_key(json, key);
    json_list_begin(json);
    for (int64_t k = 0; k < m->field[field].dim[0]; k++) {
        const char *f = (const char *)&m->feature[m->first[field] + k];
        json_number(json, *(const double *)(f + offset));
    }
    json_list_end(json);
}

static void describe_input(const struct schema *m, int field, struct str *json)
{
    json_key(json, "columns");
    json_list_begin(json);
    for (int64_t k = 0; k < m->field[field].dim[0]; k++)
        json_text(json, m->feature[m->first[field] + k].name);
    json_list_end(json);
    describe_numbers(m, field, "mean", offsetof(struct feature, mean), json);
    describe_numbers(m, field, "deviation", offsetof(struct feature, deviation), json);
    describe_numbers(m, field, "min", offsetof(struct feature, min), json);
    describe_numbers(m, field, "max", offsetof(struct feature, max), json);
    describe_numbers(m, field, "offset", offsetof(struct feature, offset), json);
    describe_numbers(m, field, "scale", offsetof(struct feature, scale), json);
    if (m->missing == MISSING_MEAN || m->missing == MISSING_ZERO)
        describe_numbers(m, field, "fill", offsetof(struct feature, fill), json);
}

static void describe_target(const struct schema *m, struct str *json)
{
    const struct data_field *f = &m->field[m->target_field];

    json_put_bool(json, "target", true);
    json_put_text(json, "column", m->target_name);
    json_put_int(json, "label_base", m->text_target ? 0 : m->label_base);
    if (f->n_classes == 0)
        return;
    json_key(json, "classes");
    json_list_begin(json);
    for (int k = 0; k < f->n_classes; k++)
        json_text(json, f->classes[k]);
    json_list_end(json);
}

static void describe_field(const struct schema *m, int field, struct str *json)
{
    const struct data_field *f = &m->field[field];

    json_begin(json);
    json_put_text(json, "name", f->name);
    json_key(json, "shape");
    json_list_begin(json);
    for (int k = 0; k < f->rank; k++)
        json_int(json, f->dim[k]);
    json_list_end(json);
    if (f->is_target)
        describe_target(m, json);
    else
        describe_input(m, field, json);
    json_end(json);
}

static void describe_set(const struct data_set *s, const char *key, struct str *json)
{
    char hex[65];

    json_key(json, key);
    json_begin(json);
    json_put_text(json, "file", s->file);
    json_put_int(json, "count", s->n);
    data_fingerprint(s, hex);
    json_put_text(json, "sha256", hex);
    json_end(json);
}

void data_describe(const struct data *d, struct str *json)
{
    static const char *const normalize[] = {"none", "standard", "minmax"};
    static const char *const missing[] = {"error", "mean", "zero", "drop"};
    const struct schema *m = d->train->schema;

    json_begin(json);
    json_put_int(json, "version", 1);
    json_put_text(json, "format", "csv");
    json_put_text(json, "normalize", normalize[m->normalize]);
    json_put_text(json, "missing", missing[m->missing]);
    describe_set(d->train, "train", json);
    if (d->valid)
        describe_set(d->valid, "valid", json);
    json_key(json, "fields");
    json_list_begin(json);
    for (int i = 0; i < m->n_fields; i++)
        describe_field(m, i, json);
    json_list_end(json);
    json_end(json);
}
