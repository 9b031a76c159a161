/* program.h - the programs of a model for one batch size, from trace to plan.
 *
 * MICRO  forward, backward: writes (FIRST) or adds (NEXT) the gradients, leaves sums of losses and
 * metrics WEIGH  adds up the weights of loss terms whose weight depends on the batch, before any
 * gradient EVAL   forward in eval mode: sums of losses and metrics UPDATE the optimizer (once,
 * whatever the batch) A batch size is a property of a program: another one (the last partial batch)
 * is another program over the same parameters, cached. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "engine/data/data.h"
#include "engine/plan/plan.h"
#include "engine/train/hyper.h"
#include "engine/train/store.h"

enum program_kind { PROGRAM_FIRST, PROGRAM_NEXT, PROGRAM_WEIGH, PROGRAM_EVAL, PROGRAM_KINDS };

/* What a program reads of the batch: field `field` of the data as `dtype`, at `offset` of
 * KERN_INPUT. */
struct program_input {
    int field;
    enum dtype dtype;
    int64_t count, offset;
};

/* Where a value of the results lies: element index in the f32 block read back. */
struct program_term {
    double coef;
    int64_t sum, weight; /* indices into the results */
    bool fixed;          /* the weight is the same for every batch of this size: fixed_weight */
    double fixed_weight;
};

struct program_stat {
    int64_t first, count;
};

struct program_metric {
    char name[64], better[4];
    bool is_mean;
    int n_terms;
    struct program_term *term; /* is_mean */
    int n_stats;
    struct program_stat *stat; /* else: tensors whose elements are summed over the set */
};

struct program {
    enum program_kind kind;
    int64_t batch;
    struct lowered *low;
    struct plan *plan; /* NULL until first used */
    int n_inputs;
    struct program_input input[DATA_FIELDS];
    int64_t input_bytes, result_count; /* f32 elements read back */
    int n_terms;
    struct program_term *term; /* of the loss */
    int n_metrics;
    struct program_metric *metric;
};

/* What programs are made of; shared by all of a run. */
struct program_maker {
    struct script *script;
    const struct device *d;
    const struct data_field *fields; /* of the data set */
    int n_fields;
    struct store *store; /* NULL while the first trace only asks for the parameters */
    struct hyper *hyper;
};

/* Traces the model for (mode, batch). The fields' shapes get the batch in front. */
enum err_code program_trace(const struct program_maker *m, bool training, int64_t batch,
                            struct trace *out, struct err *e);

/* Lowers one kind of program from a trace (training traces: FIRST, NEXT, WEIGH; eval traces: EVAL).
 * *out NULL with ERR_OK for a WEIGH program that has nothing to weigh. reached (may be NULL) says
 * which parameters have a gradient. The trace's graph is left as it was. */
enum err_code program_new(const struct program_maker *m, const struct trace *t,
                          enum program_kind kind, int64_t batch, bool *reached,
                          struct program **out, struct err *e);
void program_free(struct program *p);
enum err_code program_compile(const struct program_maker *m, struct program *p,
                              struct err *e); /* once */

/* Bytes of KERN_STEP: the update's scalars, then one total weight a loss term. */
#define PROGRAM_STEP_BYTES (PLAN_STEP_BYTES + HYPER_TERMS * KERN_ALIGN)

#endif
