/* hyper.c - from configured values and schedules to the block kernels read. */
#include "engine/train/hyper.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

enum {
    SLOT_LR = 0,
    SLOT_DECAY = SLOT_LR + HYPER_GROUPS,
    SLOT_MOMENTUM = SLOT_DECAY + HYPER_GROUPS,
    SLOT_BETA1,
    SLOT_BETA2,
    SLOT_EPS,
    SLOT_CLIP,
    SLOT_TERMS,
    SLOT_TUNABLES = SLOT_TERMS + HYPER_TERMS
};

int hyper_first_tunable_slot(void)
{
    return SLOT_TUNABLES;
}

static const struct {
    const char *path; /* the key of the config's table that gives name and range */
    int slot;
    bool scheduled;
} keys[HYPER_KEYS] = {
    [HYPER_LR] = {"optimizer.lr", SLOT_LR, true},
    [HYPER_WEIGHT_DECAY] = {"optimizer.weight_decay", SLOT_DECAY, false},
    [HYPER_MOMENTUM] = {"optimizer.momentum", SLOT_MOMENTUM, false},
    [HYPER_BETA1] = {"optimizer.beta1", SLOT_BETA1, false},
    [HYPER_BETA2] = {"optimizer.beta2", SLOT_BETA2, false},
    [HYPER_EPS] = {"optimizer.eps", SLOT_EPS, false},
    [HYPER_CLIP] = {"train.clip_norm", SLOT_CLIP, false},
};

static double configured(const struct config *c, enum hyper_key k)
{
    switch (k) {
    case HYPER_LR:
        return c->optimizer.lr;
    case HYPER_WEIGHT_DECAY:
        return c->optimizer.weight_decay;
    case HYPER_MOMENTUM:
        return c->optimizer.momentum;
    case HYPER_BETA1:
        return c->optimizer.beta1;
    case HYPER_BETA2:
        return c->optimizer.beta2;
    case HYPER_EPS:
        return c->optimizer.eps;
    case HYPER_CLIP:
        return c->train.clip_norm;
    case HYPER_KEYS:
        break;
    }
    return 0;
}

enum err_code hyper_init(struct hyper *h, const struct config *c, int64_t steps, struct err *e)
{
    memset(h, 0, sizeof *h);
    h->item = mem_array(HYPER_KEYS, sizeof *h->item);
    if (!h->item)
        return err_set(e, ERR_NOMEM, "hyperparameters: out of memory");
    for (int k = 0; k < HYPER_KEYS; k++) {
        const struct key_def *d = config_key_find(keys[k].path, e);
        struct hyper_item *it = &h->item[h->n];

        if (!d)
            return ERR_INTERNAL;
        snprintf(it->name, sizeof it->name, "%s", d->brief ? d->brief : d->path);
        tune_init(&it->tune, configured(c, (enum hyper_key)k), keys[k].scheduled);
        it->min = d->min;
        it->max = d->max;
        it->slot = keys[k].slot;
        it->logged = NAN;
        h->n++;
    }
    if (!schedule_from_name(c->schedule.name, &h->schedule.kind))
        return err_set(e, ERR_INTERNAL, "schedule.name: %s has no function", c->schedule.name);
    h->schedule.warmup = (double)c->schedule.warmup;
    h->schedule.final = c->schedule.final;
    h->schedule.every = (double)c->schedule.every;
    h->schedule.factor = c->schedule.factor;
    h->total = (double)steps;
    h->term_slot = SLOT_TERMS;
    h->tunable_slot = SLOT_TUNABLES;
    return ERR_OK;
}

void hyper_release(struct hyper *h)
{
    mem_free(h->item);
    memset(h, 0, sizeof *h);
}

enum err_code hyper_add_tunables(struct hyper *h, const struct trace *t, struct err *e)
{
    struct hyper_item *grown;

    if (t->n_tunables > KERN_HYPER_MAX - SLOT_TUNABLES)
        return err_set(e, ERR_SCRIPT, "the model has %d tunables; at most %d fit", t->n_tunables,
                       KERN_HYPER_MAX - SLOT_TUNABLES);
    grown = mem_realloc(h->item, (size_t)(HYPER_KEYS + t->n_tunables) * sizeof *grown);
    if (!grown)
        return err_set(e, ERR_NOMEM, "hyperparameters: out of memory");
    h->item = grown;
    h->n = HYPER_KEYS;
    for (int i = 0; i < t->n_tunables; i++) {
        struct hyper_item *it = &h->item[h->n++];

        memset(it, 0, sizeof *it);
        snprintf(it->name, sizeof it->name, "model.%s", t->tunables[i].name);
        tune_init(&it->tune, t->tunables[i].value, false);
        it->min = t->tunables[i].min;
        it->max = t->tunables[i].max;
        it->slot = t->tunables[i].slot;
        it->logged = NAN;
    }
    return ERR_OK;
}

int hyper_add_group(struct hyper *h, double lr, double decay)
{
    for (int g = 0; g < h->n_groups; g++)
        if (h->group[g].lr == lr && h->group[g].decay == decay)
            return g;
    if (h->n_groups == HYPER_GROUPS)
        return -1;
    h->group[h->n_groups] = (struct hyper_group){lr, decay};
    return h->n_groups++;
}

void hyper_fill(struct hyper *h, int64_t step, struct kern_hyper *out)
{
    double factor = schedule_factor(&h->schedule, h->clock, h->total);

    for (int i = 0; i < h->n; i++) {
        struct hyper_item *it = &h->item[i];

        it->now = tune_value(&it->tune, step, factor);
        out->value[it->slot] = (float)it->now;
    }
    /* rounded once, from the product in double */
    for (int g = 0; g < h->n_groups; g++) {
        out->value[SLOT_LR + g] = (float)(h->item[HYPER_LR].now * h->group[g].lr);
        out->value[SLOT_DECAY + g] = (float)(h->item[HYPER_WEIGHT_DECAY].now * h->group[g].decay);
    }
    out->n = SLOT_TUNABLES + h->n - HYPER_KEYS;
}

void hyper_advance(struct hyper *h, int64_t steps_left)
{
    h->clock = schedule_advance(h->clock, h->total, steps_left);
}

void hyper_opt_slots(struct kern_opt *o)
{
    o->lr = SLOT_LR;
    o->weight_decay = SLOT_DECAY;
    o->momentum = SLOT_MOMENTUM;
    o->beta1 = SLOT_BETA1;
    o->beta2 = SLOT_BETA2;
    o->eps = SLOT_EPS;
    o->clip = SLOT_CLIP;
}
