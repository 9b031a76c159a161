/* loader.h - batches in order, read ahead by a thread.
 *
 * The caller asks for exactly what it wants next: (epoch, first sample of the epoch, how many). The
 * thread guesses that the same size follows and prepares it; a wrong guess (a live change of the
 * batch size) costs one batch of waiting, never a wrong batch. So the order delivered depends on
 * nothing but the requests. */
#ifndef LOADER_H
#define LOADER_H

#include "engine/data/data.h"

struct loader;

struct loader_opts {
    const struct data_set *set;    /* borrowed, outlives the loader */
    const struct data_want *wants; /* copied */
    int n_wants;
    bool shuffle; /* by (seed, epoch); false: file order */
    uint64_t seed;
    bool drop_last;    /* a guess never crosses an epoch's end; with this it skips a short batch */
    int ahead;         /* batches to prepare, 1 .. 16 */
    int64_t max_batch; /* buffers are sized for this many samples; a larger request grows them */
};

struct loader_batch {
    int64_t epoch, first, n;
    void *
        field[DATA_FIELDS]; /* one a want, 64-byte aligned; valid until loader_done of this batch */
    int slot;
};

enum err_code loader_new(const struct loader_opts *o, struct loader **out, struct err *e);
void loader_free(struct loader *l); /* stops the thread; NULL is a no-op */

/* Waits for the batch of n samples that begins at position `first` of `epoch` (from 0). The batch
 * is borrowed until loader_done; up to `ahead` batches may be held at once. *waited, when not NULL,
 * grows by the seconds this call waited. */
enum err_code loader_get(struct loader *l, int64_t epoch, int64_t first, int64_t n,
                         struct loader_batch *out, double *waited, struct err *e);
void loader_done(struct loader *l, const struct loader_batch *b);

#endif
