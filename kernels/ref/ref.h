/* ref.h - what the files of the reference backend share.
 *
 * Cells: an element of s dense bytes at dense byte offset o lives at 2 * o, in a cell of 2 * s
 * bytes. An f32 is held as a double (so nothing is rounded between copy_in and copy_out), an f64 as
 * a double in a cell of 16, an i32 as an int64_t that always has a value of int32, u8 and bool as a
 * byte in a cell of 2.
 *
 * Not thread-safe, as a device is not: one thread at a time. */
#ifndef REF_H
#define REF_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct kern_mem {
    struct kern_dev *dev;
    int64_t bytes; /* dense */
    unsigned char *cells;
};

struct kern_plan {
    struct kern_dev *dev;
    struct kern_program prog; /* owned copies of all that it points to */
    struct kern_buf *bufs;
    struct kern_op *ops;
    int *last_use; /* per buffer: the last op that touches it, -1: none */
    unsigned char *
        *arena; /* per buffer: memory of its own, NULL where the space is not KERN_ARENA */
    unsigned char **cells; /* per buffer: where it is in the run that goes on */
    int n_slots;           /* hyper slots 0 .. n_slots-1 may be read */
};

/* One op of a run. All is borrowed. */
struct ref_run {
    const struct kern_buf *bufs;
    unsigned char *const *cells;
    const struct kern_hyper *hyper;
};

/* One op to check. */
struct ref_check {
    const struct kern_program *p;
    const struct kern_op *op;
    struct kern_err *e;
};

/* Fills *e (may be NULL) and returns status. */
enum kern_status ref_err(struct kern_err *e, enum kern_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, false, with the op's label in front. */
bool ref_refuse(const struct ref_check *c, enum kern_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* check.c: what every op must satisfy before a loop runs over its buffers. */
enum kern_status ref_check_buf(const struct kern_program *p, int buf, struct kern_err *e);
enum kern_status ref_check_op(const struct kern_program *p, const struct kern_op *op,
                              struct kern_err *e);
/* a * b * c, or -1 when one is negative or the product is more than int64_t holds. */
int64_t ref_product(int64_t a, int64_t b, int64_t c);
/* How many hyper slots (from 0) op may read. op has passed ref_check_op. */
int ref_op_slots(const struct kern_op *op);

/* fused.c */
bool ref_fused_check(const struct ref_check *c);
void ref_fused_run(const struct ref_run *r, const struct kern_op *op);

/* ops.c, rows.c, opt.c: run one op that has passed ref_check_op. */
void ref_op_run(const struct ref_run *r, const struct kern_op *op);
void ref_softmax(const struct ref_run *r, const struct kern_op *op);
void ref_layer_norm(const struct ref_run *r, const struct kern_op *op);
void ref_layer_norm_grad(const struct ref_run *r, const struct kern_op *op);
void ref_rms_norm(const struct ref_run *r, const struct kern_op *op);
void ref_rms_norm_grad(const struct ref_run *r, const struct kern_op *op);
void ref_xent(const struct ref_run *r, const struct kern_op *op);
void ref_xent_grad(const struct ref_run *r, const struct kern_op *op);
void ref_grad_norm(const struct ref_run *r, const struct kern_op *op);
void ref_prologue(const struct ref_run *r, const struct kern_op *op);
void ref_sgd(const struct ref_run *r, const struct kern_op *op);
void ref_adam(const struct ref_run *r, const struct kern_op *op);

/* plan.c. Arguments of plan_run are checked by ref_plan_check_bind; ref_plan_execute does the work.
 */
enum kern_status ref_plan_new(struct kern_dev *d, const struct kern_program *p,
                              struct kern_plan **out, struct kern_err *e);
void ref_plan_release(struct kern_plan *p); /* NULL is a no-op */
enum kern_status ref_plan_check_bind(const struct kern_plan *p, const struct kern_bind *b,
                                     struct kern_err *e);
enum kern_status ref_plan_execute(struct kern_plan *p, const struct kern_bind *b,
                                  const struct kern_hyper *h, struct kern_err *e);

/* Cells of a buffer whose dtype is f32; NULL for buffer -1. */
static inline double *ref_f32(const struct ref_run *r, int32_t buf)
{
    return buf < 0 ? NULL : (double *)(void *)r->cells[buf];
}

/* Cells of a buffer whose dtype is i32; NULL for buffer -1. */
static inline int64_t *ref_i32(const struct ref_run *r, int32_t buf)
{
    return buf < 0 ? NULL : (int64_t *)(void *)r->cells[buf];
}

/* The value of an int32 after arithmetic in 64 bits: the low word, as two's complement. */
static inline int64_t ref_wrap(int64_t v)
{
    return (int32_t)(uint32_t)(uint64_t)v;
}

/* Slot of the hyperparameters as a double; a slot of -1 (the program has none) reads as 0. */
static inline double ref_slot(const struct ref_run *r, int32_t slot)
{
    return slot < 0 ? 0 : (double)r->hyper->value[slot];
}

#endif
