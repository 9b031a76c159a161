/* config.h - an experiment, read from YAML against one table of keys.
 *
 * config_load reads the file (and what it extends), applies the overrides, checks everything and
 * fills one struct. All errors come at once, each a line `file:line:column: key.path: message`
 * (overrides: `command line: key.path: message`). Nothing else is read or allocated from it before
 * it is whole.
 *
 * The table (config_keys) is also what check, set, completion, the docs and the edit dialog read.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

enum key_type {
    KEY_STRING,
    KEY_PATH, /* resolved against the file it stands in; overrides against the working directory */
    KEY_INT,
    KEY_REAL,
    KEY_BOOL,
    KEY_ENUM,    /* one of choices */
    KEY_REALS,   /* list of numbers, exactly `fixed` long when fixed > 0 */
    KEY_STRINGS, /* list of strings; one string is a list of one */
    KEY_FREE,    /* any YAML tree, typed by the core rules (model.args, data.inputs, init.map) */
    KEY_GROUPS,  /* optimizer.groups: list of {match, lr, decay, freeze} */
    KEY_BEST     /* train.best: text or {metric, mode} */
};

struct key_def {
    const char *path;  /* "optimizer.lr" */
    const char *brief; /* the one short name, or NULL: "lr" */
    enum key_type type;
    size_t offset;   /* in struct config */
    double min, max; /* numbers; list elements */
    bool above_min;  /* the range is min < v */
    bool required;
    bool may_be_null; /* `null` (or absent) leaves it unset: NULL, or 0 with its has_ flag false */
    int fixed;        /* KEY_REALS: its length */
    const char *choices; /* KEY_ENUM: "auto|cpu" */
    const char *unit;    /* "samples", "" */
    const char *dflt;    /* as one would write it; NULL: none */
    bool live;           /* may change between two steps (section 6) */
    bool element; /* one number of a list (optimizer.beta1 of optimizer.betas): for overrides and
                     live changes; in a file the list is written */
    const char *help; /* one line */
};

extern const struct key_def config_keys[]; /* ends with a NULL path */

/* A free tree. Owned by the config. */
enum node_kind { CFG_NULL, CFG_BOOL, CFG_INT, CFG_REAL, CFG_STRING, CFG_LIST, CFG_MAP };
struct cfg_node {
    enum node_kind kind;
    bool b;
    int64_t i;
    double r;
    const char *s;
    int n;                  /* items of a list or map */
    struct cfg_node **item; /* values, in order */
    const char **key;       /* of a map */
    const char *origin;     /* "digits.yaml:9:3" or "command line" */
};

struct cfg_group {
    const char *match; /* glob over parameter names */
    double lr, decay;  /* multipliers, default 1 */
    bool freeze;
    const char *origin;
};

struct config {
    char *file; /* as given; "" when none */
    char *name;
    int64_t seed;
    char *device;      /* auto | cpu | ref (tests) */
    char *precision;   /* f32 */
    char *determinism; /* strict | fast */
    int64_t threads;   /* 0: affinity mask and cgroup quota */
    struct {
        char *script;
        struct cfg_node *args; /* map, never NULL */
    } model;
    struct {
        char *format; /* csv */
        char *train, *valid;
        double split;    /* share that becomes the validation set; 0: none */
        char *target;    /* column name or number from 1; NULL: none */
        char *delimiter; /* "auto", "," ";" "tab" ... */
        char *header;    /* auto | yes | no */
        struct cfg_node
            *inputs;        /* {left: [c1, c2], right: [c3]}, or NULL: all columns but the target */
        char **ignore;      /* columns left out; NULL-terminated; may be NULL */
        char *normalize;    /* standard | minmax | none : of f32 inputs, by the training set */
        char *missing;      /* error | mean | zero | drop : cells that are empty, NA, nan */
        int64_t label_base; /* class ids in the file start here: 0 or 1 */
        int64_t batch;
        char *last; /* partial | drop */
        bool shuffle;
    } data;
    struct {
        double epochs;
        bool has_epochs;
        int64_t steps;
        bool has_steps;
        int64_t accumulate;
        double clip_norm; /* 0: none */
        int64_t log_every, eval_every, save_every,
            keep;          /* steps; eval_every 0: once an epoch; save_every 0: at the end */
        char *best_metric; /* "valid.loss" */
        char *best_mode;   /* min | max | "" when known from the metric */
    } train;
    struct {
        char *name; /* sgd | adam | adamw */
        double lr, momentum, beta1, beta2, eps, weight_decay;
        bool nesterov;
        struct cfg_group *groups;
        int n_groups;
    } optimizer;
    struct {
        char *name;     /* constant | linear | cosine | step */
        int64_t warmup; /* steps from 0 to the peak */
        double final;   /* share of the peak at the end (linear, cosine) */
        int64_t every;  /* step: steps between two drops */
        double factor;  /* step: of each drop */
    } schedule;
    struct {
        char *from;           /* a safetensors file, or NULL */
        struct cfg_node *map; /* {"prefix in file": "prefix here"}, or NULL */
        bool strict;          /* every parameter must be found */
    } init;
    struct config_priv *priv; /* origins, memory */
};

/* Errors of a load, in file order. */
struct err_list {
    int n;
    struct err *err; /* owned */
};
void err_list_release(struct err_list *l);

/* Words are overrides "key.path=value" (path or short name or any unique end of a path), the value
 * in YAML flow form; last wins. NULL, with at least one error in *errs, when anything is wrong. The
 * file is at most 4 MiB. */
struct config *config_load(const char *file, char *const *words, int n_words,
                           struct err_list *errs);
void config_free(struct config *c);

/* The definition of a path, short name or unique end of a path; NULL with the nearest names in *e.
 */
const struct key_def *config_key_find(const char *name, struct err *e);
/* A word of a command line is an override when it has the form key=value with a key-like left side.
 */
bool config_is_override(const char *word);

/* Where the value in force comes from: "digits.yaml:9:3", "command line", "default". Borrowed. */
const char *config_origin(const struct config *c, const struct key_def *k);
/* The value as one would write it in YAML (one line, flow form). */
void config_value_text(const struct config *c, const struct key_def *k, struct str *out);
bool config_is_set(const struct config *c, const struct key_def *k); /* false: absent and may be */

/* The whole as YAML, every value explicit, each line ending in a comment that says where it came
 * from. Loading what was written gives an equal config (paths are absolute in it). */
void config_dump(const struct config *c, const char *script, struct str *out);
/* Things worth saying that are no errors: "train.epochs (command line) replaces train.steps
 * (digits.yaml:20:3)". One a line. */
const char *config_notes(const struct config *c);

/* The table as the page docs/config.md. */
void config_docs(struct str *out);

#endif
