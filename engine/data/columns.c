/* columns.c - which columns of a file become which fields of a sample. */
#include "engine/data/set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/str.h"

static enum err_code no_memory(const struct csv *csv, struct err *e)
{
    return err_set(e, ERR_NOMEM, "%s: out of memory for %d columns", csv->file, csv->columns);
}

/* Text of a file or config, fit for a message. */
struct shown {
    char s[96];
};

static struct shown show(const char *text)
{
    struct shown v;

    str_visible(v.s, sizeof v.s, text);
    return v;
}

static int compare_names(const void *a, const void *b)
{
    int order = strcmp(**(char **const *)a, **(char **const *)b);

    if (order != 0)
        return order;
    return *(char **const *)a < *(char **const *)b ? -1 : 1;
}

/* Two columns of one name cannot be told apart. Columns without a name can, by number. */
static enum err_code refuse_doubles(const struct csv *csv, struct err *e)
{
    char ***sorted = mem_array((size_t)csv->columns, sizeof *sorted);
    enum err_code rc = ERR_OK;

    if (!sorted)
        return no_memory(csv, e);
    for (int i = 0; i < csv->columns; i++)
        sorted[i] = &csv->name[i];
    qsort(sorted, (size_t)csv->columns, sizeof *sorted, compare_names);
    for (int i = 1; i < csv->columns && rc == ERR_OK; i++)
        if (**sorted[i] != '\0' && strcmp(*sorted[i - 1], *sorted[i]) == 0)
            rc = err_set(e, ERR_DATA, "%s:%lld: columns %d and %d are both named '%s'", csv->file,
                         (long long)csv->row_line, (int)(sorted[i - 1] - csv->name) + 1,
                         (int)(sorted[i] - csv->name) + 1, show(*sorted[i]).s);
    mem_free(sorted);
    return rc;
}

/* The column that a name, or a number from 1, means; -1: none. A name wins over a number. */
static int column_find(const struct csv *csv, const char *want)
{
    int64_t number;

    for (int i = 0; csv->name && i < csv->columns; i++)
        if (strcmp(csv->name[i], want) == 0)
            return i;
    if (str_to_int(want, strlen(want), &number) && number >= 1 && number <= csv->columns)
        return (int)number - 1;
    return -1;
}

static enum err_code column_get(const struct csv *csv, const char *key, const char *want, int *out,
                                struct err *e)
{
    int near;

    *out = column_find(csv, want);
    if (*out >= 0)
        return ERR_OK;
    if (!csv->name)
        return err_set(e, ERR_DATA,
                       "%s: %s: no column '%s'; the file has no header, give a number 1 .. %d",
                       csv->file, key, show(want).s, csv->columns);
    near = str_nearest(want, (const char *const *)csv->name, csv->columns);
    if (near >= 0)
        return err_set(e, ERR_DATA, "%s: %s: no column '%s'; did you mean '%s'?", csv->file, key,
                       show(want).s, show(csv->name[near]).s);
    return err_set(e, ERR_DATA, "%s: %s: no column '%s' among %d (%s%s%s)", csv->file, key,
                   show(want).s, csv->columns, show(csv->name[0]).s,
                   csv->columns > 1 ? ", ... " : "",
                   csv->columns > 1 ? show(csv->name[csv->columns - 1]).s : "");
}

static bool add_feature(struct schema *m, const struct csv *csv, int column)
{
    struct feature *f = &m->feature[m->n_features++];

    *f = (struct feature){.column = column, .integral = true, .scale = 1};
    f->name = csv->name && csv->name[column][0] ? arena_strdup(&m->arena, csv->name[column])
                                                : arena_printf(&m->arena, "column %d", column + 1);
    return f->name != NULL;
}

static struct data_field *add_field(struct schema *m, const char *name)
{
    struct data_field *f = &m->field[m->n_fields];

    *f = (struct data_field){.name = arena_strdup(&m->arena, name), .rank = 1, .can_f32 = true};
    m->first[m->n_fields++] = m->n_features;
    return f->name ? f : NULL;
}

/* The name or number an item of data.inputs stands for, in buf when it is a number. */
static const char *item_text(const struct cfg_node *v, char *buf)
{
    if (v->kind == CFG_INT)
        return str_double(buf, (double)v->i);
    return v->kind == CFG_STRING ? v->s : NULL;
}

static enum err_code add_input_column(struct schema *m, const struct csv *csv, const char *field,
                                      const struct cfg_node *v, struct err *e)
{
    char buf[32], key[128];
    const char *text = item_text(v, buf);
    struct shown name = show(field);
    int column;

    snprintf(key, sizeof key, "data.inputs.%s", name.s);
    if (!text)
        return err_set(e, ERR_CONFIG, "%s: %s: a column is a name or a number",
                       v->origin ? v->origin : "config", key);
    if (column_get(csv, key, text, &column, e) != ERR_OK)
        return ERR_DATA;
    if (column == m->target)
        return err_set(e, ERR_DATA, "%s: %s: '%s' is the target", csv->file, key, show(text).s);
    for (int i = m->first[m->n_fields - 1]; i < m->n_features; i++)
        if (m->feature[i].column == column)
            return err_set(e, ERR_DATA, "%s: %s: '%s' stands there twice", csv->file, key,
                           show(text).s);
    return add_feature(m, csv, column) ? ERR_OK : no_memory(csv, e);
}

static enum err_code choose_named(struct schema *m, const struct csv *csv,
                                  const struct cfg_node *inputs, struct err *e)
{
    if (inputs->kind != CFG_MAP || inputs->n < 1 || inputs->n > DATA_FIELDS - 1)
        return err_set(e, ERR_CONFIG,
                       "data.inputs: expected a map of 1 .. %d fields, each a list of columns",
                       DATA_FIELDS - 1);
    for (int i = 0; i < inputs->n; i++) {
        const struct cfg_node *v = inputs->item[i];
        int n = v->kind == CFG_LIST ? v->n : 1;
        struct data_field *f;

        if (strcmp(inputs->key[i], "y") == 0)
            return err_set(e, ERR_CONFIG, "data.inputs.y: y is the name of the target");
        if (n < 1)
            return err_set(e, ERR_CONFIG, "data.inputs.%s: no columns", show(inputs->key[i]).s);
        f = add_field(m, inputs->key[i]);
        if (!f)
            return no_memory(csv, e);
        f->dim[0] = n;
        for (int k = 0; k < n; k++)
            if (add_input_column(m, csv, f->name, v->kind == CFG_LIST ? v->item[k] : v, e) !=
                ERR_OK)
                return e ? e->code : ERR_DATA;
    }
    return ERR_OK;
}

/* x: every column but the target and the ignored ones, in the file's order. */
static enum err_code choose_rest(struct schema *m, const struct csv *csv, const bool *ignored,
                                 struct err *e)
{
    struct data_field *f = add_field(m, "x");

    if (!f)
        return no_memory(csv, e);
    for (int i = 0; i < csv->columns; i++)
        if (i != m->target && !ignored[i] && !add_feature(m, csv, i))
            return no_memory(csv, e);
    f->dim[0] = m->n_features;
    if (m->n_features == 0)
        return err_set(e, ERR_DATA, "%s: no input column is left beside the target", csv->file);
    return ERR_OK;
}

static enum err_code mark_ignored(const struct schema *m, const struct csv *csv, bool *ignored,
                                  struct err *e)
{
    for (char **name = m->ignore; name && *name; name++) {
        int column;
        if (column_get(csv, "data.ignore", *name, &column, e) != ERR_OK)
            return ERR_DATA;
        if (column == m->target)
            return err_set(e, ERR_DATA, "%s: data.ignore: '%s' is the target", csv->file,
                           show(*name).s);
        ignored[column] = true;
    }
    return ERR_OK;
}

static size_t feature_limit(const struct csv *csv, const struct cfg_node *inputs)
{
    size_t n = 0;

    if (!inputs)
        return (size_t)csv->columns;
    for (int i = 0; i < inputs->n && inputs->kind == CFG_MAP; i++)
        n += inputs->item[i]->kind == CFG_LIST ? (size_t)inputs->item[i]->n : 1;
    return n + 1;
}

static enum err_code choose_inputs(struct schema *m, const struct csv *csv,
                                   const struct cfg_node *inputs, struct err *e)
{
    bool *ignored = mem_array((size_t)csv->columns, sizeof *ignored);
    enum err_code rc;

    m->feature = arena_array(&m->arena, feature_limit(csv, inputs), sizeof *m->feature);
    if (!ignored || !m->feature)
        rc = no_memory(csv, e);
    else if ((rc = mark_ignored(m, csv, ignored, e)) == ERR_OK)
        rc = inputs ? choose_named(m, csv, inputs, e) : choose_rest(m, csv, ignored, e);
    for (int i = 0; inputs && rc == ERR_OK && i < m->n_features; i++)
        if (ignored[m->feature[i].column])
            rc = err_set(e, ERR_DATA, "%s: '%s' stands in data.inputs and in data.ignore",
                         csv->file, show(m->feature[i].name).s);
    mem_free(ignored);
    return rc;
}

static enum err_code copy_names(struct schema *m, const struct csv *csv, struct err *e)
{
    const char **name = arena_array(&m->arena, (size_t)csv->columns, sizeof *name);

    for (int i = 0; name && i < csv->columns; i++)
        if (!(name[i] = arena_strdup(&m->arena, csv->name[i])))
            name = NULL;
    m->column = name;
    return name ? ERR_OK : no_memory(csv, e);
}

enum err_code schema_choose(struct schema *m, const struct csv *csv, const struct config *c,
                            struct err *e)
{
    enum err_code rc;

    m->n_columns = csv->columns;
    m->ignore = c->data.ignore;
    m->target = m->target_field = -1;
    if (csv->name &&
        ((rc = refuse_doubles(csv, e)) != ERR_OK || (rc = copy_names(m, csv, e)) != ERR_OK))
        return rc;
    if (c->data.target &&
        (rc = column_get(csv, "data.target", c->data.target, &m->target, e)) != ERR_OK)
        return rc;
    rc = choose_inputs(m, csv, c->data.inputs, e);
    if (rc != ERR_OK || m->target < 0)
        return rc;
    m->target_name = csv->name && csv->name[m->target][0] ? csv->name[m->target] : NULL;
    m->target_name = m->target_name ? arena_strdup(&m->arena, m->target_name)
                                    : arena_printf(&m->arena, "column %d", m->target + 1);
    m->target_field = m->n_fields;
    if (!m->target_name || !add_field(m, "y"))
        return no_memory(csv, e);
    m->field[m->target_field].rank = 0;
    m->field[m->target_field].is_target = true;
    return ERR_OK;
}

static bool is_ignored(const struct schema *m, const char *name)
{
    for (char **p = m->ignore; p && *p; p++)
        if (strcmp(*p, name) == 0)
            return true;
    return false;
}

static bool has_column(const char *const *names, int n, const char *want)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], want) == 0)
            return true;
    return false;
}

/* Says which columns of one file the other lacks. */
static enum err_code name_difference(const struct schema *m, const struct csv *csv,
                                     const char *lacks, struct err *e)
{
    for (int i = 0; i < csv->columns; i++)
        if (csv->name[i][0] && !is_ignored(m, csv->name[i]) &&
            !has_column(m->column, m->n_columns, csv->name[i])) {
            if (!lacks)
                return err_set(
                    e, ERR_DATA,
                    "%s: column '%s' is not in the training file (data.ignore leaves it out)",
                    csv->file, show(csv->name[i]).s);
            return err_set(e, ERR_DATA,
                           "%s: column '%s' of the training file is missing; '%s' is only here",
                           csv->file, show(lacks).s, show(csv->name[i]).s);
        }
    if (lacks)
        return err_set(e, ERR_DATA, "%s: column '%s' of the training file is missing", csv->file,
                       show(lacks).s);
    return ERR_OK;
}

/* A training file's column in this one: by number where either file has no name for it. */
static int column_match(const struct schema *m, const struct csv *csv, int column)
{
    if (!csv->name || !m->column)
        return column;
    if (!m->column[column][0])
        return column < csv->columns && !csv->name[column][0] ? column : -1;
    /* Mostly the files have the same order, and the search ends where it begins. */
    for (int i = 0; i < csv->columns; i++) {
        int at = (column + i) % csv->columns;
        if (strcmp(csv->name[at], m->column[column]) == 0)
            return at;
    }
    return -1;
}

enum err_code schema_match(const struct schema *m, const struct csv *csv, int *column, int *target,
                           struct err *e)
{
    bool by_name = csv->name && m->column;
    enum err_code rc;

    if (csv->name && (rc = refuse_doubles(csv, e)) != ERR_OK)
        return rc;
    if (!by_name && csv->columns != m->n_columns)
        return err_set(e, ERR_DATA, "%s: %d columns, the training file has %d", csv->file,
                       csv->columns, m->n_columns);
    for (int i = 0; i < m->n_features; i++) {
        column[i] = column_match(m, csv, m->feature[i].column);
        if (column[i] < 0)
            return name_difference(m, csv, m->feature[i].name, e);
    }
    *target = m->target < 0 ? -1 : column_match(m, csv, m->target);
    if (m->target >= 0 && *target < 0)
        return name_difference(m, csv, m->target_name, e);
    return by_name ? name_difference(m, csv, NULL, e) : ERR_OK;
}
