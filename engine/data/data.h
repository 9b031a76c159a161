/* data.h - data sets: named fields, samples by number, whatever the file format.
 *
 * data_open reads and checks the training and validation sets of a config; a set answers any list
 * of samples by number. The loader (loader.h) puts them in order and reads ahead. */
#ifndef DATA_H
#define DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/config/config.h"
#include "kernels/dtype.h"

#define DATA_RANK 5 /* of one sample's field */
#define DATA_FIELDS 16

struct data_field {
    const char *name; /* "x", "y", or a name of data.inputs */
    int rank;         /* of one sample: 0 for a number */
    int64_t dim[DATA_RANK];
    bool is_target;
    bool can_f32,
        can_i32;   /* what the values can be asked for as: a text target only as class ids */
    int n_classes; /* > 0: text classes, by name */
    const char *const *classes; /* sorted; borrowed */
};

struct data_set; /* immutable once open: read by several threads */

struct data {
    struct data_set *train, *valid; /* owned; valid may be NULL */
    struct err_list notes;          /* things worth saying: columns used, rows dropped */
};

/* Opens and checks everything data.* names. With data.split the validation samples are drawn by
 * key: sample i is in it when its Philox draw (PHILOX_SPLIT) says so, exactly round(n * split) of
 * them. Normalisation is computed on the training samples alone. ERR_DATA with file and line for
 * bad content; a missing file is ERR_DATA too. */
enum err_code data_open(const struct config *c, struct data *out, struct err *e);
void data_release(struct data *d);

int64_t data_count(const struct data_set *s);
int data_fields(const struct data_set *s, const struct data_field **fields);

/* What a plan asks for: one field as one type. */
struct data_want {
    int field;        /* index into data_fields */
    enum dtype dtype; /* DT_F32 or DT_I32 */
};

/* Writes samples ids[0..n) of field w, packed row-major, in w's dtype, normalised. ids are checked.
 */
enum err_code data_gather(const struct data_set *s, const struct data_want *w, const int64_t *ids,
                          int64_t n, void *out, struct err *e);

/* Before step 1: class ids of `field` lie in 0 .. n_classes-1 (the message names the sample, its
 * line in the file and what to do when the file counts from 1), numbers are finite. n_classes 0:
 * only finiteness. */
enum err_code data_check_classes(const struct data_set *s, int field, int64_t n_classes,
                                 struct err *e);
enum err_code data_check_finite(const struct data_set *s, struct err *e);

/* SHA-256 over count, fields and all bytes: the record in the run. */
void data_fingerprint(const struct data_set *s, char hex[65]);

/* data.json: fields with shapes, class names, normalisation (mean and deviation a feature), counts.
 */
void data_describe(const struct data *d, struct str *json);

#endif
