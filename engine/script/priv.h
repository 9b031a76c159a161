/* priv.h - private to engine/script: what a script, a trace in the making and its values are. */
#ifndef SCRIPT_PRIV_H
#define SCRIPT_PRIV_H

#include "engine/script/sandbox.h"
#include "engine/script/script.h"

#define LAYER_DEPTH 100 /* layers called within layers; Lua's own limit of C calls is 200 */
#define PARAM_NAME_MAX 200
#define TRACE_PARAMS_MAX 100000
#define TUNABLES_MAX 512

/* A layer that is being called. The texts are held by the Lua stack meanwhile. */
struct layer {
    const char *path, *kind, *where;
};

/* A parameter as a trace made it. Names and places are owned. */
struct param_def {
    char *name, *where;
    struct shape shape;
    enum init_kind init;
    double a, b;
    bool decay;
    int node;
};

struct param_list {
    struct param_def *item;
    int n;
    size_t cap;
};

struct tunable_def {
    char *name; /* owned */
    double value, min, max;
};

/* A metric of the model; the sizes of its statistics are those of the first trace. */
struct metric_info {
    char *name; /* owned */
    int n_stats;
    int64_t *count; /* owned; elements of each one, -1: a scalar */
    int64_t total;  /* elements of all */
};

/* A trace in the making. */
struct tracing {
    struct graph *graph;
    bool training;
    const struct script_field *field;
    int n_fields;
    int64_t batch;
    int first_slot;
    struct param_list params;
    uint32_t *streams; /* random streams taken */
    int n_streams;
    size_t stream_cap;
    enum {
        ANSWER_PLAIN,
        ANSWER_SOFTMAX,
        ANSWER_SIGMOID
    } answer;      /* what the loss says of the outputs */
    int answer_of; /* the node it was said of */
    bool in_loss;
};

struct script {
    struct sandbox sb;
    char *path, *dir, *shipped, *name; /* name: as messages have it */
    const struct cfg_node *args;
    char **files; /* owned, absolute */
    int n_files;
    size_t file_cap;
    struct tracing *tracing;  /* NULL between traces */
    uint64_t generation;      /* of the tensors in use: one a trace */
    struct param_list params; /* of the first trace */
    char first_trace[96];     /* "train, x [64, 10]"; "" before it */
    struct tunable_def *tunable;
    int n_tunables;
    size_t tunable_cap;
    struct metric_info *metric; /* of the model's metrics, by name */
    int n_metrics;
    char *hooks; /* optional fields the model has that do not work yet, "on_step, init" */
    struct layer layer[LAYER_DEPTH];
    int depth;
};

struct script *script_of(lua_State *L);
/* Opens text from memory as the main script (script_open reads the file first). */
enum err_code script_open_text(const struct script_opts *o, const char *text, size_t len,
                               struct script **out, struct err *e);

/* Push the model's table. */
void script_model(lua_State *L);

/* ---- require.c ---- */
bool script_note_file(struct script *s,
                      const char *path); /* false: out of memory or no such file */
void script_open_require(lua_State *L);
/* Reads a Lua file and notes that it was used. The text is a Lua string on the stack. */
void script_read(lua_State *L, const char *path);

/* ---- args.c ---- */
void args_push(lua_State *L, const struct cfg_node *args);
void args_unread(lua_State *L, const struct cfg_node *args, struct str *unread, struct str *read);

/* ---- layer.c: places, parameters, tunables ---- */

/* Raise "<place>: <layer> (<kind>): <message>"; the place is the user's line where there is one
 * above the current layer, else the line that made the layer. */
__attribute__((format(printf, 3, 4))) int script_raise(lua_State *L, enum err_code code,
                                                       const char *fmt, ...);
void script_place(lua_State *L, char buf[SANDBOX_WHERE]);
/* The trace that is being made; raises when there is none. The graph is told path and place. */
struct tracing *script_tracing(lua_State *L);
/* The id an adding function returned, or the error it filled in. */
int script_node(lua_State *L, int id, const struct err *e);
/* A random stream of the current path that no other node of the trace has. */
uint32_t script_stream(lua_State *L, struct tracing *t);
void param_list_release(struct param_list *l);
void layer_open(lua_State *L); /* adds to the table on top: nn.core */

/* ---- tensor.c: symbols ---- */
enum tensor_kind { TENSOR_NODE, TENSOR_FIELD, TENSOR_TUNABLE };
struct tensor {
    enum tensor_kind kind;
    uint64_t generation; /* not of tunables */
    int id;              /* node, field or tunable */
};
#define TENSOR_TYPE "tensor"

void tensor_open(lua_State *L);
int tensor_push(lua_State *L, int node); /* returns 1 */
void tensor_push_field(lua_State *L, int field);
void tensor_push_tunable(lua_State *L, int tunable);
struct tensor *tensor_test(lua_State *L, int idx); /* NULL if it is none */
/* The node of the tensor at idx (an open field becomes numbers); raises if it is no tensor of this
 * trace. */
int tensor_arg(lua_State *L, int idx);
/* The same as class ids, i32. */
int tensor_labels(lua_State *L, int idx);
const struct node *tensor_node(lua_State *L, int node);
int tensor_cast(lua_State *L, int node, enum dtype t);
/* Elementwise on tensors, numbers and booleans at `first`..: types made alike, shapes broadcast. */
int tensor_elementwise(lua_State *L, enum op op, int first);

/* ---- ops.c, ops_shape.c: more of nn.core ---- */
void ops_open(lua_State *L);
void ops_shape_open(lua_State *L);
void args_shape(lua_State *L, int idx, struct shape *s, int64_t least); /* a list of sizes */
int args_axis(lua_State *L, int idx,
              int rank); /* 1-based or negative -> 0-based; default: the last */

/* ---- trace.c ---- */
void trace_open(lua_State *L); /* adds to nn.core */

/* ---- mean.c ---- */
#define MEAN_TYPE "mean"
void mean_open(lua_State *L); /* adds to nn.core too */
/* The mean at idx, or a plain scalar as one that counts once per sample. `what` is for the message.
 * Owned. */
void mean_take(lua_State *L, int idx, const char *what, struct trace_mean *out);

#endif
