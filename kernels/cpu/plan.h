/* plan.h - private to kernels/cpu: memory, and a program made ready to run. The contracts are those
 * of kernels.h. */
#ifndef CPU_PLAN_H
#define CPU_PLAN_H

#include "kernels/kernels.h"

struct kern_mem {
    struct kern_dev *dev;
    int64_t bytes;
    unsigned char *at; /* 64-byte aligned */
};

enum kern_status cpu_plan_new(struct kern_dev *d, const struct kern_program *p,
                              struct kern_plan **out, struct kern_err *e);
enum kern_status cpu_plan_run(struct kern_plan *p, const struct kern_bind *b,
                              const struct kern_hyper *h, struct kern_err *e);
enum kern_status cpu_plan_profile(struct kern_plan *p, double *seconds, int cap,
                                  struct kern_err *e);
void cpu_plan_free(struct kern_plan *p);

#endif
