/* plan.h - a graph made runnable: order, fused groups, lifetimes, offsets in one arena.
 *
 * plan_lower turns a graph and what is wanted of it into a flat program (kernels.h) and a report of
 * what takes memory; plan_compile hands it to a device. Both are done before step 1; plan_run
 * allocates nothing. */
#ifndef PLAN_H
#define PLAN_H

#include "engine/base/str.h"
#include "engine/device/device.h"
#include "engine/graph/graph.h"

/* Where a leaf (param, buffer, input) of the graph lies. */
struct plan_leaf {
    const char *name;
    enum kern_space space;
    int64_t offset; /* bytes */
};

/* A value that is wanted, and where it goes. */
struct plan_root {
    int node;
    enum kern_space space;
    int64_t offset;  /* bytes */
    bool accumulate; /* add onto what is there (f32) */
};

struct plan_request {
    const struct graph *graph;
    const struct plan_leaf *leaves;
    int n_leaves;
    const struct plan_root *roots;
    int n_roots;
    bool no_reuse; /* every buffer its own memory: to prove that reuse changes nothing (tests) */
    bool no_fuse;  /* every elementwise node a group of its own (tests) */
};

struct plan_holder {
    char label[96]; /* "layers.1 (linear.lua:7): matmul [64, 128]" */
    int64_t bytes;
};

struct plan_report {
    int64_t arena_bytes; /* taken */
    int64_t lower_bound; /* most bytes live at once */
    int n_ops, n_fused, n_bufs;
    double flops; /* multiply-adds count 2 */
    int n_holders;
    struct plan_holder holder[8]; /* largest arena buffers */
};

struct lowered; /* a program with the memory it stands in */

enum err_code plan_lower(const struct plan_request *r, struct lowered **out, struct err *e);
void lowered_free(struct lowered *l);
const struct kern_program *lowered_program(const struct lowered *l);
const struct plan_report *lowered_report(const struct lowered *l);
/* First and last op that touches buffer i, for tests; -1 when none does. */
void lowered_lifetime(const struct lowered *l, int buf, int *first, int *last);
void lowered_print(const struct lowered *l, struct str *out); /* one line an op */

/* The update of one step: norm, prologue, optimizer over the segments of the parameter arena. */
struct plan_update {
    enum kern_code code; /* KERN_SGD or KERN_ADAM */
    struct kern_opt opt; /* segments borrowed during the call */
    int64_t param_count; /* elements of the whole arena */
    int n_moments;       /* 0, 1 or 2: arenas in KERN_STATE, after the 256 bytes of scalar state */
};
#define PLAN_STATE_SCALARS                                                                         \
    256 /* bytes at the head of KERN_STATE: f64 {applied, b1prod, b2prod, latch} */
int64_t plan_moment_offset(int64_t param_count, int k); /* bytes, in KERN_STATE */
int64_t plan_state_bytes(int64_t param_count, int n_moments);

/* Results of an update in KERN_STEP: f32 norm at 0, f32 {clip coefficient, skip, ..} at 64. */
enum { PLAN_STEP_NORM = 0, PLAN_STEP_BLOCK = 256, PLAN_STEP_BYTES = 512 };

enum err_code plan_lower_update(const struct plan_update *u, struct lowered **out, struct err *e);

struct plan;
enum err_code plan_compile(const struct device *d, const struct lowered *l, struct plan **out,
                           struct err *e);
void plan_free(struct plan *p); /* NULL is a no-op */
/* Asynchronous. The arena is the device memory given in bind.mem[KERN_ARENA]. */
enum err_code plan_run(struct plan *p, const struct kern_bind *b, const struct kern_hyper *h,
                       struct err *e);
int64_t plan_arena_bytes(const struct plan *p);

#endif
