/* rows.c - the rows of a file into a set: numbers, missing cells, class names. */
#include "engine/data/set.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/hash.h"
#include "engine/base/str.h"

#define CLASSES_MAX (1 << 16)
#define CLASS_NAME_MAX 1024
#define INTEGRAL_MAX                                                                               \
    1048576.0 /* normalised to f32 and back, whole numbers up to here are off by 1/8 at most */
#define VALUE_MAX (FLT_MAX / 2) /* so that the difference of two is a float, too */

/* Texts of the target column, numbered as they come. */
struct class_table {
    const char **name; /* texts in the schema's arena; the array is owned */
    size_t n, cap;
    uint32_t *slot; /* open addressing, number + 1; owned */
    size_t n_slots; /* a power of two, 0 at first */
};

struct rows {
    struct schema *m;
    struct csv *csv;
    const int *column;
    int target;
    bool known;       /* classes stand already */
    bool target_seen; /* a target cell has decided between number and text */
    bool integral;    /* targets so far are whole numbers */
    bool mixed;       /* text came up after whole numbers: to be read again as text */
    struct class_table classes;
    struct data_set *s;
    size_t cap; /* samples there is room for */
};

static enum err_code no_memory(const struct rows *r, struct err *e)
{
    return err_set(e, ERR_NOMEM, "%s: out of memory for %lld samples of %d numbers", r->csv->file,
                   (long long)r->s->n + 1, r->m->n_features);
}

/* ---- class names ---- */

static int class_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t class_probe(const struct class_table *t, const char *name)
{
    size_t i = (size_t)hash_fnv64(FNV64_INIT, name, strlen(name));

    for (i &= t->n_slots - 1; t->slot[i]; i = (i + 1) & (t->n_slots - 1))
        if (strcmp(t->name[t->slot[i] - 1], name) == 0)
            break;
    return i;
}

static bool class_rehash(struct class_table *t)
{
    struct class_table old = *t;

    t->n_slots = old.n_slots ? old.n_slots * 2 : 64;
    t->slot = mem_array(t->n_slots, sizeof *t->slot);
    if (!t->slot) {
        *t = old;
        return false;
    }
    for (size_t k = 0; k < t->n; k++)
        t->slot[class_probe(t, t->name[k])] = (uint32_t)k + 1;
    mem_free(old.slot);
    return true;
}

/* The number of a name, new or known; -1: no memory. */
static int64_t class_number(struct rows *r, const char *name)
{
    struct class_table *t = &r->classes;
    size_t i;

    if (t->n * 2 >= t->n_slots && !class_rehash(t))
        return -1;
    i = class_probe(t, name);
    if (t->slot[i])
        return (int64_t)t->slot[i] - 1;
    if (mem_grow((void **)&t->name, &t->cap, t->n, sizeof *t->name) < 0 ||
        !(t->name[t->n] = arena_strdup(&r->m->arena, name)))
        return -1;
    t->slot[i] = (uint32_t)++t->n;
    return (int64_t)t->n - 1;
}

static enum err_code unknown_class(const struct rows *r, const char *name, struct err *e)
{
    const struct data_field *f = &r->m->field[r->m->target_field];
    int near = str_nearest(name, f->classes, f->n_classes);
    char a[96], b[96];

    str_visible(a, sizeof a, name);
    if (near >= 0)
        return err_set(
            e, ERR_DATA,
            "%s:%lld: column '%s': class '%s' is not in the training set; did you mean '%s'?",
            r->csv->file, (long long)r->csv->row_line, r->m->target_name, a,
            str_visible(b, sizeof b, f->classes[near]));
    return err_set(e, ERR_DATA,
                   "%s:%lld: column '%s': class '%s' is not in the training set, which has %d",
                   r->csv->file, (long long)r->csv->row_line, r->m->target_name, a, f->n_classes);
}

static enum err_code take_class(struct rows *r, const struct csv_cell *cell, double *y,
                                struct err *e)
{
    const struct data_field *f = &r->m->field[r->m->target_field];
    char text[CLASS_NAME_MAX], *name = text;
    int64_t number;

    if (csv_cell_text(cell, text, sizeof text) >= sizeof text)
        return err_set(e, ERR_DATA, "%s:%lld: column '%s': a class name of %zu bytes; at most %d",
                       r->csv->file, (long long)r->csv->row_line, r->m->target_name, cell->n,
                       CLASS_NAME_MAX - 1);
    if (r->known) {
        const char *const *at =
            bsearch(&name, f->classes, (size_t)f->n_classes, sizeof name, class_compare);
        if (!at)
            return unknown_class(r, text, e);
        *y = (double)(at - f->classes);
        return ERR_OK;
    }
    number = class_number(r, text);
    if (number < 0)
        return no_memory(r, e);
    if (number >= CLASSES_MAX)
        return err_set(e, ERR_DATA,
                       "%s:%lld: column '%s': more than %d different texts are no classes",
                       r->csv->file, (long long)r->csv->row_line, r->m->target_name, CLASSES_MAX);
    *y = (double)number;
    return ERR_OK;
}

/* Numbers in order of appearance become numbers in order of the names, bytewise. */
static enum err_code sort_classes(struct rows *r, struct err *e)
{
    struct class_table *t = &r->classes;
    struct data_field *f = &r->m->field[r->m->target_field];
    const char **sorted = arena_array(&r->m->arena, t->n, sizeof *sorted);
    int *rank = mem_array(t->n, sizeof *rank);

    if (!sorted || !rank) {
        mem_free(rank);
        return no_memory(r, e);
    }
    memcpy(sorted, t->name, t->n * sizeof *sorted);
    qsort(sorted, t->n, sizeof *sorted, class_compare);
    for (size_t k = 0; k < t->n; k++)
        rank[t->slot[class_probe(t, sorted[k])] - 1] = (int)k;
    for (int64_t i = 0; i < r->s->n; i++)
        r->s->y[i] = rank[(int64_t)r->s->y[i]];
    mem_free(rank);
    f->classes = sorted;
    f->n_classes = (int)t->n;
    return ERR_OK;
}

/* ---- cells ---- */

static enum err_code not_a_number(const struct rows *r, const char *column,
                                  const struct csv_cell *cell, struct err *e)
{
    char text[96], name[CLASS_NAME_MAX];
    const char *why = "is not a number (data.ignore leaves a column out)";

    csv_cell_text(cell, name, sizeof name);
    if (csv_cell_decimal_comma(cell))
        why = "has a decimal comma; write numbers with a dot";
    else if (r->csv->has_header && strcmp(name, column) == 0)
        why = "is the column's own name: the header stands here again";
    else if (r->m->target < 0)
        why = "is not a number (data.target names the column to learn, data.ignore leaves one out)";
    return err_set(e, ERR_DATA, "%s:%lld: column '%s': '%s' %s", r->csv->file,
                   (long long)r->csv->row_line, column, csv_cell_show(cell, text, sizeof text),
                   why);
}

static enum err_code too_large(const struct rows *r, const char *column, double v, struct err *e)
{
    char text[32];

    return err_set(e, ERR_DATA, "%s:%lld: column '%s': %s is too large for f32", r->csv->file,
                   (long long)r->csv->row_line, column, str_double(text, v));
}

static enum err_code missing_error(const struct rows *r, const char *column,
                                   const struct csv_cell *cell, bool is_target, struct err *e)
{
    char text[96], what[128] = "is empty";

    if (cell->n > 0)
        snprintf(what, sizeof what, "is missing ('%s')", csv_cell_show(cell, text, sizeof text));
    if (is_target)
        return err_set(e, ERR_DATA,
                       "%s:%lld: the target '%s' %s; data.missing: drop leaves such rows out",
                       r->csv->file, (long long)r->csv->row_line, column, what);
    return err_set(e, ERR_DATA,
                   "%s:%lld: column '%s' %s; data.missing: mean, zero or drop says what to do",
                   r->csv->file, (long long)r->csv->row_line, column, what);
}

/* What a step through a row comes to, beside an error. */
enum took { TOOK_IT, TOOK_DROP, TOOK_ERROR };

static enum took take_missing(struct rows *r, struct feature *f, const struct csv_cell *cell,
                              float *x, struct err *e)
{
    if (!csv_cell_missing(cell)) {
        not_a_number(r, f->name, cell, e);
        return TOOK_ERROR;
    }
    if (r->m->missing == MISSING_ERROR) {
        missing_error(r, f->name, cell, false, e);
        return TOOK_ERROR;
    }
    if (r->m->missing == MISSING_DROP)
        return TOOK_DROP;
    if (r->s->n_missing++ == 0)
        r->s->missing_line = r->csv->row_line;
    f->integral = f->integral && r->m->missing == MISSING_ZERO;
    *x = NAN;
    return TOOK_IT;
}

static enum took take_features(struct rows *r, float *x, struct err *e)
{
    for (int i = 0; i < r->m->n_features; i++) {
        struct feature *f = &r->m->feature[i];
        const struct csv_cell *cell = &r->csv->cell[r->column[i]];
        enum took took;
        double v;

        if (!csv_cell_number(cell, &v)) {
            if ((took = take_missing(r, f, cell, &x[i], e)) != TOOK_IT)
                return took;
            continue;
        }
        if (!(fabs(v) <= VALUE_MAX)) {
            too_large(r, f->name, v, e);
            return TOOK_ERROR;
        }
        if (!f->has_origin) {
            f->has_origin = true;
            f->origin = r->m->normalize == NORMALIZE_NONE ? 0 : v;
        }
        f->integral = f->integral && fabs(v) <= INTEGRAL_MAX && v == (double)(int32_t)v;
        x[i] = (float)(v - f->origin);
    }
    return TOOK_IT;
}

/* The target's cell is no number: a class, or an error. */
static enum took take_target_text(struct rows *r, const struct csv_cell *cell, double *y,
                                  struct err *e)
{
    bool number_like = csv_cell_decimal_comma(cell); /* a mistake to report, no class */

    if (!r->known && !r->target_seen && !number_like)
        r->m->text_target = true;
    r->target_seen = true;
    if (r->m->text_target)
        return take_class(r, cell, y, e) == ERR_OK ? TOOK_IT : TOOK_ERROR;
    r->mixed = !r->known && r->integral && !number_like;
    not_a_number(r, r->m->target_name, cell, e);
    return TOOK_ERROR;
}

static enum took take_target(struct rows *r, double *y, struct err *e)
{
    const struct csv_cell *cell = &r->csv->cell[r->target];

    if (csv_cell_missing(cell) && !(cell->quoted && cell->n > 0 && r->m->text_target)) {
        if (r->m->missing == MISSING_DROP)
            return TOOK_DROP;
        missing_error(r, r->m->target_name, cell, true, e);
        return TOOK_ERROR;
    }
    if (r->m->text_target || !csv_cell_number(cell, y))
        return take_target_text(r, cell, y, e);
    r->target_seen = true;
    r->integral = r->integral && *y == trunc(*y);
    if (fabs(*y) <= FLT_MAX)
        return TOOK_IT;
    too_large(r, r->m->target_name, *y, e);
    return TOOK_ERROR;
}

/* ---- rows ---- */

static bool resize(struct rows *r, size_t cap)
{
    struct data_set *s = r->s;
    size_t row = (size_t)r->m->n_features * sizeof *s->x, bytes;
    float *x;
    double *y;
    uint32_t *line;

    if (__builtin_mul_overflow(cap, row, &bytes) || !(x = mem_realloc(s->x, bytes)))
        return false;
    s->x = x;
    if (__builtin_mul_overflow(cap, sizeof *s->line, &bytes) ||
        !(line = mem_realloc(s->line, bytes)))
        return false;
    s->line = line;
    if (r->target >= 0) {
        if (__builtin_mul_overflow(cap, sizeof *s->y, &bytes) || !(y = mem_realloc(s->y, bytes)))
            return false;
        s->y = y;
    }
    r->cap = cap;
    return true;
}

/* Room for one more. The first guess is that all rows are as long as the first: then nothing moves
 * later. */
static bool reserve(struct rows *r, size_t row_bytes)
{
    size_t left = (size_t)(r->csv->end - r->csv->p);

    if ((size_t)r->s->n < r->cap)
        return true;
    return resize(r, r->cap ? r->cap * 2 : left / row_bytes + left / row_bytes / 16 + 16);
}

static enum took take_row(struct rows *r, struct err *e)
{
    struct data_set *s = r->s;
    double y = 0;
    enum took took = take_features(r, s->x + s->n * r->m->n_features, e);

    if (took == TOOK_IT && r->target >= 0)
        took = take_target(r, &y, e);
    if (took == TOOK_DROP && s->n_dropped++ == 0)
        s->dropped_line = r->csv->row_line;
    if (took != TOOK_IT)
        return took;
    if (r->target >= 0)
        s->y[s->n] = y;
    s->line[s->n++] = (uint32_t)r->csv->row_line;
    return TOOK_IT;
}

static enum err_code take_rows(struct rows *r, struct err *e)
{
    for (;;) {
        const char *at = r->csv->p;
        int got = csv_next(r->csv, e);

        if (got == 0)
            return ERR_OK;
        if (got < 0)
            return e->code;
        if (!reserve(r, (size_t)(r->csv->p - at)))
            return no_memory(r, e);
        if (take_row(r, e) == TOOK_ERROR)
            return e->code;
    }
}

static enum err_code no_rows(const struct rows *r, struct err *e)
{
    const char *file = r->csv->file;

    if (r->s->n_dropped > 0)
        return err_set(e, ERR_DATA, "%s: all %lld rows have missing cells and were dropped", file,
                       (long long)r->s->n_dropped);
    if (r->csv->has_header)
        return err_set(e, ERR_DATA, "%s: a header and no rows (data.header: no, if line 1 is data)",
                       file);
    return err_set(e, ERR_DATA, "%s: no rows", file);
}

static void start_over(struct rows *r, const char *p, int64_t line)
{
    r->csv->p = p;
    r->csv->line = line;
    r->mixed = r->target_seen = false;
    r->s->n = r->s->n_missing = r->s->n_dropped = 0;
}

enum err_code rows_read(struct schema *m, struct csv *csv, const int *column, int target,
                        bool known, struct data_set **out, struct err *e)
{
    struct rows r = {
        .m = m, .csv = csv, .column = column, .target = target, .known = known, .integral = true};
    const char *start = csv->p;
    int64_t start_line = csv->line;
    struct err mine;
    enum err_code rc;

    e = e ? e : &mine;
    r.s = mem_zalloc(sizeof *r.s);
    if (!r.s || !(r.s->file = mem_strdup(csv->file))) {
        mem_free(r.s);
        return err_set(e, ERR_NOMEM, "%s: out of memory", csv->file);
    }
    r.s->schema = m;
    rc = take_rows(&r, e);
    if (rc == ERR_DATA && r.mixed) {
        start_over(&r, start, start_line);
        m->text_target = true;
        rc = take_rows(&r, e);
    }
    if (rc == ERR_OK && r.s->n == 0)
        rc = no_rows(&r, e);
    if (rc == ERR_OK && m->text_target && !known)
        rc = sort_classes(&r, e);
    if (rc == ERR_OK && !resize(&r, (size_t)r.s->n))
        rc = no_memory(&r, e);
    mem_free(r.classes.name);
    mem_free(r.classes.slot);
    if (rc != ERR_OK)
        data_set_free(r.s);
    else
        *out = r.s;
    return rc;
}
