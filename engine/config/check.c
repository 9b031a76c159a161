/* check.c - what must hold between keys, once each is right by itself. */
#include <string.h>

#include "engine/config/tree.h"

static struct tree whole_file(const struct loading *l)
{
    return (struct tree){.file = l->c->file, .line = 1, .column = 1};
}

/* The place a key was written, else the file. */
static struct tree place_of(const struct loading *l, const char *path)
{
    const struct key_def *k = config_key_find(path, NULL);
    const struct tree *t = k ? l->c->priv->value[key_index(k)].tree : NULL;
    return t ? *t : whole_file(l);
}

static bool was_written(const struct loading *l, const char *path)
{
    const struct key_def *k = config_key_find(path, NULL);
    return k && l->c->priv->value[key_index(k)].tree;
}

static bool is_set(const struct loading *l, const char *path)
{
    const struct key_def *k = config_key_find(path, NULL);
    return k && l->c->priv->value[key_index(k)].set;
}

static void check_required(struct loading *l)
{
    struct tree top = whole_file(l);

    for (const struct key_def *k = config_keys; k->path; k++)
        if (k->required && !was_written(l, k->path))
            errors_add(&l->e, &top, k->path, "is missing (%s)", k->help);
    if (!was_written(l, "train.epochs") && !was_written(l, "train.steps"))
        errors_add(&l->e, &top, "train.epochs",
                   "is missing: how long? write train.epochs or train.steps");
}

static void check_best(struct loading *l)
{
    struct config *c = l->c;
    bool validates = is_set(l, "data.valid") || is_set(l, "data.split");
    struct tree at = place_of(l, "train.best");

    if (!c->train.best_metric || strncmp(c->train.best_metric, "valid.", 6) != 0 || validates)
        return;
    if (was_written(l, "train.best"))
        errors_add(&l->e, &at, "train.best", "%s needs data.valid or data.split",
                   c->train.best_metric);
    else
        c->train.best_metric = arena_strdup(&c->priv->mem, "train.loss");
}

void config_check(struct loading *l)
{
    struct config *c = l->c;

    check_required(l);
    c->train.has_epochs = is_set(l, "train.epochs");
    c->train.has_steps = is_set(l, "train.steps");
    if (!c->model.args)
        c->model.args = value_free_tree(l, &(struct tree){.kind = TREE_MAP, .file = "default"},
                                        "model.args", 0);
    check_best(l);
    if (c->train.has_steps && c->schedule.warmup > c->train.steps) {
        struct tree at = place_of(l, "schedule.warmup");
        errors_add(&l->e, &at, "schedule.warmup", "%lld steps are more than train.steps, %lld",
                   (long long)c->schedule.warmup, (long long)c->train.steps);
    }
    if (c->optimizer.nesterov && c->optimizer.name && strcmp(c->optimizer.name, "sgd") != 0) {
        struct tree at = place_of(l, "optimizer.nesterov");
        errors_add(&l->e, &at, "optimizer.nesterov", "is of sgd, not of %s", c->optimizer.name);
    }
}

const char *config_origin(const struct config *c, const struct key_def *k)
{
    const char *o = c->priv->value[key_index(k)].origin;
    return o ? o : "default";
}

bool config_is_set(const struct config *c, const struct key_def *k)
{
    return c->priv->value[key_index(k)].set;
}

const char *config_notes(const struct config *c)
{
    return str_c(&c->priv->notes);
}
