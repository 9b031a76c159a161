/* set.h - what stands behind data.h: the schema that both sets of a run share, and a set's memory.
 *
 * Inside engine/data only. The training file decides the schema; the validation set is read by it.
 */
#ifndef DATA_SET_H
#define DATA_SET_H

#include "engine/base/arena.h"
#include "engine/data/csv.h"
#include "engine/data/data.h"

enum missing { MISSING_ERROR, MISSING_MEAN, MISSING_ZERO, MISSING_DROP };
enum normalize { NORMALIZE_NONE, NORMALIZE_STANDARD, NORMALIZE_MINMAX };

/* A feature is one number of a sample; the fields of the inputs lie one behind the other. */
struct feature {
    const char *name; /* of its column; "column 3" when the file has no names */
    int column;       /* in the training file, from 0 */
    bool has_origin;
    bool integral; /* every value of every set is a whole number that f32 keeps even when normalised
                    */
    double origin; /* stored is value - origin: a column of large near-equal numbers keeps its
                      digits */
    double fill;   /* what a missing cell gets */
    double min, max, mean,
        deviation;        /* of the training set's values; deviation over n, not n - 1 */
    double offset, scale; /* delivered is (value - offset) / scale */
};

struct schema {
    struct arena arena;
    int n_columns;             /* of the training file */
    const char *const *column; /* [n_columns] names, or NULL */
    char **ignore;             /* borrowed from the config; may be NULL */
    int n_features;
    struct feature *feature; /* [n_features] */
    int n_fields;
    struct data_field field[DATA_FIELDS];
    int first[DATA_FIELDS]; /* a field's first feature */
    int target;             /* its column in the training file; -1: none */
    int target_field;       /* -1: none */
    const char *target_name;
    bool text_target;
    int64_t label_base;
    enum missing missing;
    enum normalize normalize;
};

struct data_set {
    struct schema *schema;
    bool owns_schema; /* the training set does */
    char *file;       /* owned */
    int64_t n;
    float *x;       /* [n][n_features]; NaN: missing, until normalised */
    double *y;      /* [n]: class number of a text target, else the value; NULL without a target */
    uint32_t *line; /* [n] in the file */
    int64_t n_missing, missing_line; /* cells, and the first one's line */
    int64_t n_dropped, dropped_line; /* rows */
};

void data_set_free(struct data_set *s); /* NULL is a no-op */

/* columns.c: the schema of a training file, from its header and the config. */
enum err_code schema_choose(struct schema *m, const struct csv *csv, const struct config *c,
                            struct err *e);
/* Where another file has the schema's columns: column[n_features] and *target. By name when both
 * files have names, else by number. */
enum err_code schema_match(const struct schema *m, const struct csv *csv, int *column, int *target,
                           struct err *e);

/* rows.c: all rows of a file into a new set. For the training set the class names are found here
 * and put into the schema; `known` says that they stand already. *out is owned by the caller. */
enum err_code rows_read(struct schema *m, struct csv *csv, const int *column, int target,
                        bool known, struct data_set **out, struct err *e);

/* split.c: round(n * share) of s's samples, drawn by key, become *valid; both keep the file's
 * order. */
enum err_code set_split(struct data_set *s, double share, uint64_t seed, struct data_set **valid,
                        struct err *e);

/* normal.c: statistics over the training set, then missing cells and normalisation in both; valid
 * may be NULL. */
enum err_code sets_normalize(struct data_set *train, struct data_set *valid, struct err *e);

#endif
