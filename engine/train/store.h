/* store.h - parameters, gradients and optimizer state of a run on its device, each one contiguous
 * arena.
 *
 * Parameters lie in the order of their names, each at a multiple of 64 bytes; the gaps stay zero.
 * So the norm, the clipping, the optimizer and a save are one call each. Owned by the trainer's
 * thread. */
#ifndef STORE_H
#define STORE_H

#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "engine/train/hyper.h"

struct store_param {
    char *name, *where;
    struct shape shape;
    int64_t offset, count; /* elements, from the base of the arena */
    int group;             /* of the optimizer; -1: frozen, or never reached by the loss */
    const char
        *group_why; /* for the table of check: "model: no decay", "optimizer.groups[2]", "frozen" */
};

struct store {
    const struct device *d;
    int n;
    struct store_param *param;
    int64_t count;         /* elements of the arena, gaps included */
    int64_t total;         /* elements of parameters */
    enum kern_code update; /* KERN_SGD or KERN_ADAM */
    int n_moments;
    const char *const *moment_names; /* "momentum"; "m", "v" */
    struct device_mem params, grads, state;
    struct kern_segment *segment;
    int n_segments;
};

/* Lays the parameters out and asks the groups of the config; takes no memory of the device yet. */
enum err_code store_init(struct store *s, const struct device *d, const struct trace *t,
                         const struct config *c, struct hyper *h, struct err *e);
int64_t store_bytes(const struct store *s);               /* what store_take will ask for */
enum err_code store_take(struct store *s, struct err *e); /* takes the arenas, zeroed */
void store_release(struct store *s);

/* The segments of the update: stretches of one group, after `reached` has said which parameters
 * have a gradient. */
enum err_code store_segments(struct store *s, const bool *reached, struct err *e);

/* Initial values: drawn (init.h), then what init.from has. `report` gets a line a file or a
 * mismatch. */
enum err_code store_fill(struct store *s, const struct trace *t, const struct config *c,
                         struct str *report, struct err *e);

int store_find(const struct store *s, const char *name); /* index, or -1 */
bool store_glob(const char *pattern, const char *text);  /* * any run of characters, ? one */

#endif
