/* open.c - from a config to the two sets. */
#include "engine/data/set.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"

/* A choice of the config that may be absent. */
static const char *or_else(const char *text, const char *dflt)
{
    return text ? text : dflt;
}

static enum err_code parse_word(const char *key, const char *text, const char *const *words, int n,
                                int *out, struct err *e)
{
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return ERR_OK;
        }
    return err_set(e, ERR_CONFIG, "%s: '%.40s' is not one of its values", key, text);
}

/* One character, "tab", or "auto" (0). */
static enum err_code parse_delimiter(const char *text, char *out, struct err *e)
{
    unsigned char ch = (unsigned char)text[0];

    *out = 0;
    if (strcmp(text, "auto") == 0)
        return ERR_OK;
    if (strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0) {
        *out = '\t';
        return ERR_OK;
    }
    if (ch == '\0' || text[1] != '\0' || strchr("\"\r\n.+-eE0123456789", ch) || ch >= 0x80)
        return err_set(
            e, ERR_CONFIG,
            "data.delimiter: '%.40s' is not auto, tab or one character that no number holds", text);
    *out = (char)ch;
    return ERR_OK;
}

/* How files are read, out of the config. */
struct reading {
    char delimiter;
    enum csv_header header;
};

static enum err_code parse_config(const struct config *c, struct schema *m, struct reading *how,
                                  struct err *e)
{
    static const char *const header[] = {"auto", "yes", "no"};
    static const char *const missing[] = {"error", "mean", "zero", "drop"};
    static const char *const normalize[] = {"none", "standard", "minmax"};
    int h = 0, miss = 0, norm = 0;
    enum err_code rc;

    if (c->data.format && strcmp(c->data.format, "csv") != 0)
        return err_set(e, ERR_CONFIG, "data.format: '%.40s' is not csv", c->data.format);
    if (!c->data.train)
        return err_set(e, ERR_CONFIG, "data.train: no file is given");
    if ((rc = parse_delimiter(or_else(c->data.delimiter, "auto"), &how->delimiter, e)) != ERR_OK ||
        (rc = parse_word("data.header", or_else(c->data.header, "auto"), header, 3, &h, e)) !=
            ERR_OK ||
        (rc = parse_word("data.missing", or_else(c->data.missing, "error"), missing, 4, &miss,
                         e)) != ERR_OK ||
        (rc = parse_word("data.normalize", or_else(c->data.normalize, "standard"), normalize, 3,
                         &norm, e)) != ERR_OK)
        return rc;
    how->header = (enum csv_header)h;
    m->missing = (enum missing)miss;
    m->normalize = (enum normalize)norm;
    m->label_base = c->data.label_base;
    return ERR_OK;
}

/* *text is owned by the caller even when the CSV in it is refused. */
static enum err_code open_file(const char *path, const struct reading *how, char **text,
                               struct csv *csv, struct err *e)
{
    enum err_code rc;
    size_t len;

    rc = fs_read_file(path, CSV_BYTES_MAX, ERR_DATA, text, &len, e);
    if (rc == ERR_IO) { /* for a user a missing data file is a fault of the data, whatever the call
                           said */
        if (e)
            e->code = ERR_DATA;
        return ERR_DATA;
    }
    if (rc != ERR_OK)
        return rc;
    rc = csv_open(csv, path, *text, len, how->delimiter, how->header, e);
    if (rc == ERR_OK && csv->columns == 0)
        rc = err_set(e, ERR_DATA, "%s: the file is empty", path);
    return rc;
}

static enum err_code read_train(struct schema *m, const struct config *c, const struct reading *how,
                                struct data_set **out, struct err *e)
{
    char *text = NULL;
    struct csv csv = {0};
    int *column = NULL;
    enum err_code rc;

    rc = open_file(c->data.train, how, &text, &csv, e);
    if (rc == ERR_OK)
        rc = schema_choose(m, &csv, c, e);
    if (rc != ERR_OK)
        goto out;
    column = mem_array((size_t)m->n_features, sizeof *column);
    if (!column) {
        rc =
            err_set(e, ERR_NOMEM, "%s: out of memory for %d columns", c->data.train, m->n_features);
        goto out;
    }
    for (int i = 0; i < m->n_features; i++)
        column[i] = m->feature[i].column;
    rc = rows_read(m, &csv, column, m->target, false, out, e);
out:
    mem_free(column);
    csv_release(&csv);
    mem_free(text);
    return rc;
}

static enum err_code read_valid(struct schema *m, const char *path, const struct reading *how,
                                struct data_set **out, struct err *e)
{
    char *text = NULL;
    struct csv csv = {0};
    int *column = mem_array((size_t)m->n_features, sizeof *column), target;
    enum err_code rc;

    if (!column)
        rc = err_set(e, ERR_NOMEM, "%s: out of memory for %d columns", path, m->n_features);
    else
        rc = open_file(path, how, &text, &csv, e);
    if (rc == ERR_OK)
        rc = schema_match(m, &csv, column, &target, e);
    if (rc == ERR_OK)
        rc = rows_read(m, &csv, column, target, true, out, e);
    mem_free(column);
    csv_release(&csv);
    mem_free(text);
    return rc;
}

/* ---- what the fields can be asked for as ---- */

static bool whole_targets(const struct data_set *s)
{
    for (int64_t i = 0; s && i < s->n; i++) {
        double v = s->y[i] - (double)s->schema->label_base;
        if (v != trunc(v) || !(v >= INT32_MIN && v <= INT32_MAX))
            return false;
    }
    return true;
}

static void decide_types(struct data *d)
{
    struct schema *m = d->train->schema;

    for (int i = 0; i < m->n_fields; i++) {
        struct data_field *f = &m->field[i];
        if (f->is_target) {
            f->can_f32 = !m->text_target;
            f->can_i32 = m->text_target || (whole_targets(d->train) && whole_targets(d->valid));
            continue;
        }
        f->can_f32 = f->can_i32 = true;
        for (int64_t k = 0; k < f->dim[0]; k++)
            f->can_i32 = f->can_i32 && m->feature[m->first[i] + k].integral;
    }
}

/* ---- notes ---- */

__attribute__((format(printf, 2, 3))) static enum err_code add_note(struct data *d, const char *fmt,
                                                                    ...)
{
    struct err *grown = mem_realloc(d->notes.err, ((size_t)d->notes.n + 1) * sizeof *grown), *note;
    va_list ap;

    if (!grown)
        return ERR_NOMEM;
    d->notes.err = grown;
    note = &grown[d->notes.n++];
    note->code = ERR_OK;
    va_start(ap, fmt);
    vsnprintf(note->msg, sizeof note->msg, fmt, ap);
    va_end(ap);
    return ERR_OK;
}

static enum err_code note_set(struct data *d, const struct data_set *s)
{
    const char *policy = s->schema->missing == MISSING_MEAN ? "the mean of the training set" : "0";
    enum err_code rc = ERR_OK;

    if (s->n_dropped > 0)
        rc = add_note(d, "%s: %lld row%s with missing cells dropped, the first at line %lld",
                      s->file, (long long)s->n_dropped, s->n_dropped == 1 ? "" : "s",
                      (long long)s->dropped_line);
    if (rc == ERR_OK && s->n_missing > 0)
        rc = add_note(d, "%s: %lld missing cell%s filled with %s, the first at line %lld", s->file,
                      (long long)s->n_missing, s->n_missing == 1 ? "" : "s", policy,
                      (long long)s->missing_line);
    return rc;
}

static enum err_code note_constants(struct data *d)
{
    const struct schema *m = d->train->schema;
    struct str names = {0};
    enum err_code rc = ERR_OK;
    int n = 0;

    for (int k = 0; k < m->n_features; k++)
        if (m->feature[k].min == m->feature[k].max && n++ < 8)
            str_addf(&names, "%s%.60s", names.len ? ", " : "", m->feature[k].name);
    if (n > 0)
        rc = add_note(d, "%s: %d column%s the same value in every training sample: %s%s",
                      d->train->file, n, n == 1 ? " has" : "s have", str_c(&names),
                      n > 8 ? ", ..." : "");
    str_release(&names);
    return rc;
}

static enum err_code note_used(struct data *d)
{
    const struct schema *m = d->train->schema;
    struct str what = {0};
    enum err_code rc;

    for (int i = 0; i < m->n_fields; i++)
        if (!m->field[i].is_target)
            str_addf(&what, ", %s: %lld columns", m->field[i].name, (long long)m->field[i].dim[0]);
    if (m->target < 0)
        str_add(&what, ", no target");
    else if (m->text_target)
        str_addf(&what, ", target %.60s: %d classes", m->target_name,
                 m->field[m->target_field].n_classes);
    else
        str_addf(&what, ", target %.60s: numbers", m->target_name);
    rc = add_note(d, "%s: %lld training samples%s", d->train->file, (long long)d->train->n,
                  str_c(&what));
    if (rc == ERR_OK && d->valid)
        rc = add_note(d, "%s: %lld validation samples", d->valid->file, (long long)d->valid->n);
    str_release(&what);
    return rc;
}

static enum err_code write_notes(struct data *d, const struct config *c, struct err *e)
{
    enum err_code rc = note_used(d);

    if (rc == ERR_OK)
        rc = note_set(d, d->train);
    if (rc == ERR_OK && c->data.valid)
        rc = note_set(d, d->valid);
    if (rc == ERR_OK)
        rc = note_constants(d);
    if (rc == ERR_OK && c->data.valid && strcmp(c->data.train, c->data.valid) == 0)
        rc = add_note(d, "%s: trained and validated on the same file", c->data.train);
    return rc == ERR_OK ? ERR_OK : err_set(e, rc, "%s: out of memory", c->data.train);
}

/* ---- open and release ---- */

static enum err_code open_sets(const struct config *c, struct data *d, struct err *e)
{
    struct schema *m = mem_zalloc(sizeof *m);
    struct reading how = {0};
    enum err_code rc;

    if (!m)
        return err_set(e, ERR_NOMEM, "out of memory for the data");
    arena_init(&m->arena, 0);
    rc = parse_config(c, m, &how, e);
    if (rc == ERR_OK)
        rc = read_train(m, c, &how, &d->train, e);
    if (rc != ERR_OK) {
        arena_release(&m->arena);
        mem_free(m);
        return rc;
    }
    d->train->owns_schema = true;
    if (c->data.valid)
        return read_valid(m, c->data.valid, &how, &d->valid, e);
    if (c->data.split > 0)
        return set_split(d->train, c->data.split, (uint64_t)c->seed, &d->valid, e);
    return ERR_OK;
}

enum err_code data_open(const struct config *c, struct data *out, struct err *e)
{
    enum err_code rc;

    *out = (struct data){0};
    rc = open_sets(c, out, e);
    if (rc == ERR_OK)
        rc = sets_normalize(out->train, out->valid, e);
    if (rc == ERR_OK) {
        decide_types(out);
        rc = write_notes(out, c, e);
    }
    if (rc != ERR_OK)
        data_release(out);
    return rc;
}

void data_release(struct data *d)
{
    data_set_free(d->valid); /* before the training set, which holds the schema of both */
    data_set_free(d->train);
    mem_free(d->notes.err);
    *d = (struct data){0};
}
