/* script.h - a model in Lua, run in a sandbox on symbols, which makes graphs.
 *
 * script_open loads the file, checks that it returns a function, calls it with `args` and keeps the
 * table it gives. script_trace runs forward, loss and metrics once for a mode and a batch shape and
 * returns the graph. Lua is not in the training loop: between traces only metric values
 * (script_metric_value) are computed. All entries are one protected call under the budgets of the
 * sandbox; errors name the script's file and line. One thread, the
 * trainer's. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/config/config.h"
#include "engine/graph/graph.h"

struct script;

struct script_opts {
    const char *path;    /* the model script */
    const char *shipped; /* folder of nn.lua: the second and last place `require` looks in */
    const struct cfg_node *args; /* map; borrowed for the life of the script */
    uint64_t seed;               /* keys math.random */
    int64_t max_instructions;    /* 0: 200 million an entry */
    int64_t max_bytes;           /* 0: 256 MiB */
    double max_seconds;          /* 0: 20 an entry */
    /* What `print` says, one line without its newline. */
    void (*print)(void *arg, const char *line);
    void *print_arg;
};

enum err_code script_open(const struct script_opts *o, struct script **out, struct err *e);
void script_free(struct script *s); /* NULL is a no-op */

/* The Lua files the model used (main script first, then what it required from its own folder and
 * from the shipped one): absolute paths, for the copy in the run directory. Borrowed. */
int script_files(const struct script *s, const char *const **paths);

enum init_kind {
    INIT_ZEROS,
    INIT_ONES,
    INIT_CONST,
    INIT_UNIFORM,
    INIT_NORMAL,
    INIT_TRUNC_NORMAL,
    INIT_ORTHOGONAL
};

/* A parameter: the same list (names, shapes) in every trace of a script, in the order of their
 * names. */
struct trace_param {
    const char *name;  /* "layers.2.weight" */
    const char *where; /* where its layer was made: "mlp.lua:7" */
    struct shape shape;
    enum init_kind init;
    double a, b; /* const: a; uniform: a .. b; normal: mean a, deviation b; trunc: the same, cut at
                    2 deviations; orthogonal: gain a, rows are the first dimension */
    bool decay;  /* false for biases and norms: no weight decay by default */
    int node;    /* its PARAM node in this trace, or -1 when this trace does not use it */
};

/* A sum over samples with its weight: value = sum of coef * (sum / weight).
 * Weight depends on the batch only. */
struct trace_term {
    double coef;
    int sum, weight; /* f32 scalar nodes */
};

struct trace_mean {
    int n;
    struct trace_term *term; /* owned by the trace */
};

struct trace_metric {
    const char *name; /* "accuracy": logged as train.accuracy and valid.accuracy */
    char better[4];   /* "min", "max" or "" (unknown) */
    bool is_mean;
    struct trace_mean mean; /* is_mean */
    int n_stats; /* else: nodes whose elements are summed over the set, then given to `value` */
    int *stats;  /* f32 nodes */
};

/* A scalar that can be tuned live. Slot i of the model's tunables is hyper slot `slot`. */
struct trace_tunable {
    const char *name; /* as `set` names it, without "model.": "layers.3.p", "loss.smoothing" */
    double value, min, max;
    int slot;
};

/* What a trace gives. The graph is not optimised yet. */
struct trace {
    struct graph *graph;
    bool training;
    int n_params;
    struct trace_param *params;
    struct trace_mean loss;
    int n_metrics;
    struct trace_metric *metrics;
    int n_outputs;
    int *outputs;              /* nodes of what forward returned (a tensor: one) */
    const char **output_names; /* "out", or the keys of the table in sorted order */
    /* How `predict` makes answers of the output: the model's predict(out) as a node, else softmax
     * after cross_entropy, sigmoid after bce_logits, the output itself. */
    int predict;
    int n_tunables;
    struct trace_tunable *tunables;
};

/* A field of the batch as the model sees it. A field whose dtype is not fixed (a target column that
 * is used as class ids by one loss and as a number by another) has `open_type`: its input nodes are
 * "y" (f32) and "y.class" (i32), made when used. */
struct script_field {
    const char *name;   /* "x", "y" */
    struct shape shape; /* with the batch as first dimension */
    enum dtype dtype;
    bool open_type;
    bool is_target; /* y: not handed to forward as x */
};

/* The first trace fixes the parameters; a later one that makes others is refused naming both lines.
 * first_slot is the hyper slot of the model's first tunable. *out is owned: trace_free. ERR_SCRIPT
 * for errors of the script, ERR_SHAPE for shapes, each with the layer's path, its line and both
 * shapes. Inputs become nodes when the model uses them. Tunables are numbered in the order in which
 * the script first makes them, over all its traces: a later trace may have more of them. */
enum err_code script_trace(struct script *s, bool training, const struct script_field *fields,
                           int n, int first_slot, struct trace *out, struct err *e);
void trace_free(struct trace *t);

/* A metric that is no mean: runs its `value` over the sums (in the order of stats, flattened). NaN
 * and *e filled when the function fails. */
double script_metric_value(struct script *s, int metric, const double *sums, int n, struct err *e);

/* Keys of args that the model never read (an error for the caller to raise, naming the ones it
 * did): filled into *unread and *read as "a, b". True when there are any unread ones. Call after
 * the first trace. */
bool script_unread_args(struct script *s, struct str *unread, struct str *read);

/* Fields of the model that come later (init, on_eval, on_step, optimizer_groups) and do nothing
 * yet, as text for the user: "init, on_step"; NULL when it has none. Borrowed. */
const char *script_optional(const struct script *s);

#endif
