/* fused.h - private to fused.c and fused_check.c: a fused group made ready. */
#ifndef CPU_FUSED_H
#define CPU_FUSED_H

#include "kernels/cpu/cpu.h"
#include "kernels/contract.h"

/* A view with its own dimensions merged: those of extent 1 dropped, those that continue each other
 * made one. */
struct fused_view {
    int32_t buf;
    enum dtype dtype;
    int64_t offset;
    int rank; /* 0: one element, broadcast */
    int64_t dim[KERN_RANK], stride[KERN_RANK];
};

struct fused_insn {
    struct kern_insn n;
    enum reg_type from, to; /* of register a, and of the result (STORE: of the buffer) */
    bool once;              /* the same for all tiles: done for the first of a chunk */
    int64_t inner, extent;  /* IOTA: index = element / inner % extent */
};

struct fused {
    int n_views, n_insns, n_regs;
    int64_t count;   /* elements of the iteration space */
    int64_t per_row; /* of one step along dimension 0 */
    double ns;       /* estimate of the work for one element */
    const struct cpu_vec *vec;
    struct fused_view *views; /* owned */
    struct fused_insn *insns; /* owned */
};

/* Checks the group of op: registers, types, views inside their buffers, no store over itself. Fills
 * from and to of every instruction (insns: [n_insns], zeroed) and *count. */
enum kern_status fused_check(const struct kern_program *p, const struct kern_op *op,
                             struct fused_insn *insns, int64_t *count, struct kern_err *e);

#endif
