/* store.c - parameters on the device, their groups, their first values. */
#include "engine/train/store.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/run/safetensors.h"
#include "engine/train/init.h"

#define PARAM_ALIGN 16 /* elements */

static const char *const sgd_moments[] = {"momentum"};
static const char *const adam_moments[] = {"m", "v"};

bool store_glob(const char *pattern, const char *text)
{
    const char *star = NULL, *back = NULL;

    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            back = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++back;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

int store_find(const struct store *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->param[i].name, name) == 0)
            return i;
    return -1;
}

/* First match in optimizer.groups wins; else the model's own word (no decay on biases and norms).
 */
static enum err_code choose_group(struct store_param *p, const struct trace_param *tp,
                                  const struct config *c, struct hyper *h, struct err *e)
{
    double lr = 1, decay = tp->decay ? 1 : 0;

    p->group_why = tp->decay ? "default" : "no decay (bias or norm)";
    for (int i = 0; i < c->optimizer.n_groups; i++) {
        const struct cfg_group *g = &c->optimizer.groups[i];
        if (!store_glob(g->match, tp->name))
            continue;
        p->group_why = g->match;
        if (g->freeze) {
            p->group = -1;
            return ERR_OK;
        }
        lr = g->lr;
        decay = g->decay;
        break;
    }
    p->group = hyper_add_group(h, lr, decay);
    if (p->group < 0)
        return err_set(e, ERR_CONFIG, "optimizer.groups: more than %d different groups",
                       HYPER_GROUPS);
    return ERR_OK;
}

static enum err_code unmatched_groups(const struct store *s, const struct config *c, struct err *e)
{
    for (int i = 0; i < c->optimizer.n_groups; i++) {
        bool any = false;
        for (int k = 0; k < s->n; k++)
            any = any || store_glob(c->optimizer.groups[i].match, s->param[k].name);
        if (!any)
            return err_set(e, ERR_CONFIG,
                           "%s: optimizer.groups: no parameter is called '%s'; the first is '%s'",
                           c->optimizer.groups[i].origin, c->optimizer.groups[i].match,
                           s->n ? s->param[0].name : "-");
    }
    return ERR_OK;
}

static enum err_code lay_out(struct store *s, const struct trace *t, const struct config *c,
                             struct hyper *h, struct err *e)
{
    s->param = mem_array((size_t)t->n_params + 1, sizeof *s->param);
    if (!s->param)
        return err_set(e, ERR_NOMEM, "parameters: out of memory");
    for (int i = 0; i < t->n_params; i++) {
        struct store_param *p = &s->param[s->n++];
        enum err_code rc;

        p->name = mem_strdup(t->params[i].name);
        p->where = mem_strdup(t->params[i].where ? t->params[i].where : "");
        if (!p->name || !p->where)
            return err_set(e, ERR_NOMEM, "parameters: out of memory");
        p->shape = t->params[i].shape;
        p->count = shape_count(&p->shape);
        p->offset = s->count;
        s->total += p->count;
        if (__builtin_add_overflow(
                s->count, (p->count + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN, &s->count) ||
            s->count > SHAPE_MAX_COUNT)
            return err_set(e, ERR_SHAPE, "the model has too many parameters (%s is one too many)",
                           p->name);
        rc = choose_group(p, &t->params[i], c, h, e);
        if (rc != ERR_OK)
            return rc;
    }
    return unmatched_groups(s, c, e);
}

enum err_code store_init(struct store *s, const struct device *d, const struct trace *t,
                         const struct config *c, struct hyper *h, struct err *e)
{

    memset(s, 0, sizeof *s);
    s->d = d;
    if (strcmp(c->optimizer.name, "sgd") == 0) {
        s->update = KERN_SGD;
        s->n_moments = 1;
        s->moment_names = sgd_moments;
    } else {
        s->update = KERN_ADAM;
        s->n_moments = 2;
        s->moment_names = adam_moments;
    }
    return lay_out(s, t, c, h, e);
}

int64_t store_bytes(const struct store *s)
{
    return s->count * 8 + plan_state_bytes(s->count, s->n_moments);
}

enum err_code store_take(struct store *s, struct err *e)
{
    enum err_code rc = device_mem_new(s->d, s->count * 4, &s->params, e);

    if (rc == ERR_OK)
        rc = device_mem_new(s->d, s->count * 4, &s->grads, e);
    if (rc == ERR_OK)
        rc = device_mem_new(s->d, plan_state_bytes(s->count, s->n_moments), &s->state, e);
    if (rc == ERR_OK)
        rc = device_zero(&s->params, e);
    if (rc == ERR_OK)
        rc = device_zero(&s->grads, e);
    if (rc == ERR_OK)
        rc = device_zero(&s->state, e);
    return rc;
}

void store_release(struct store *s)
{
    for (int i = 0; i < s->n; i++) {
        mem_free(s->param[i].name);
        mem_free(s->param[i].where);
    }
    mem_free(s->param);
    mem_free(s->segment);
    device_mem_free(&s->params);
    device_mem_free(&s->grads);
    device_mem_free(&s->state);
    memset(s, 0, sizeof *s);
}

enum err_code store_segments(struct store *s, const bool *reached, struct err *e)
{
    mem_free(s->segment);
    s->n_segments = 0;
    s->segment = mem_array((size_t)s->n + 1, sizeof *s->segment);
    if (!s->segment)
        return err_set(e, ERR_NOMEM, "parameters: out of memory");
    for (int i = 0; i < s->n; i++) {
        struct store_param *p = &s->param[i];
        struct kern_segment *last = s->n_segments > 0 ? &s->segment[s->n_segments - 1] : NULL;

        if (p->group < 0 || !reached[i]) {
            if (p->group >= 0)
                p->group_why = "not reached by the loss";
            p->group = -1;
            continue;
        }
        /* the gap between two parameters is zeros and stays so: it may lie inside a stretch */
        if (last && last->group == p->group &&
            p->offset - (last->begin + last->count) < PARAM_ALIGN)
            last->count = p->offset + p->count - last->begin;
        else
            s->segment[s->n_segments++] = (struct kern_segment){p->offset, p->count, p->group};
    }
    return ERR_OK;
}

/* The name under which a parameter is looked for in a file: init.map renames prefixes (theirs:
 * ours). */
static void file_name(const struct config *c, const char *ours, char *out, size_t cap)
{
    const struct cfg_node *map = c->init.map;

    for (int i = 0; map && map->kind == CFG_MAP && i < map->n; i++) {
        const char *prefix = map->item[i]->kind == CFG_STRING ? map->item[i]->s : "";
        size_t n = strlen(prefix);
        if (strncmp(ours, prefix, n) == 0) {
            snprintf(out, cap, "%s%s", map->key[i], ours + n);
            return;
        }
    }
    snprintf(out, cap, "%s", ours);
}

static bool same_shape(const struct st_tensor *t, const struct shape *s)
{
    if (t->rank != s->rank)
        return false;
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] != s->dim[d])
            return false;
    return true;
}

static enum err_code fill_from(struct store *s, const struct config *c, float *host,
                               struct str *report, struct err *e)
{
    struct safetensors st;
    enum err_code rc = safetensors_open(c->init.from, &st, e);
    int found = 0;

    if (rc == ERR_IO) /* a file that the config names is not there */
        return err_set(e, ERR_CONFIG, "init.from: %s", e ? e->msg : "");
    if (rc != ERR_OK)
        return rc;
    for (int i = 0; i < s->n && rc == ERR_OK; i++) {
        const struct store_param *p = &s->param[i];
        const struct st_tensor *t;
        char name[512], want[96];

        file_name(c, p->name, name, sizeof name);
        t = safetensors_find(&st, name);
        if (t && same_shape(t, &p->shape)) {
            rc = st_to_f32(t, host + p->offset, e);
            found++;
        } else if (t) {
            str_addf(report, "init: %s has another shape in the file than %s %s\n", name, p->name,
                     shape_text(want, sizeof want, &p->shape));
        } else {
            str_addf(report, "init: %s is not in the file\n", name);
        }
    }
    str_addf(report, "init: %d of %d parameters from %s\n", found, s->n, c->init.from);
    if (rc == ERR_OK && c->init.strict && found < s->n)
        rc = err_set(e, ERR_CONFIG,
                     "init.from: %s has only %d of the model's %d parameters (init.strict: false "
                     "takes what fits)",
                     c->init.from, found, s->n);
    else if (rc == ERR_OK && found == 0)
        rc = err_set(e, ERR_CONFIG,
                     "init.from: %s has none of the model's %d parameters; the first is '%s', the "
                     "file's first '%s'",
                     c->init.from, s->n, s->n ? s->param[0].name : "-",
                     st.n ? st.tensor[0].name : "-");
    safetensors_close(&st);
    return rc;
}

enum err_code store_fill(struct store *s, const struct trace *t, const struct config *c,
                         struct str *report, struct err *e)
{
    float *host = mem_array((size_t)s->count + 1, sizeof *host);
    enum err_code rc = ERR_OK;

    if (!host)
        return err_set(e, ERR_NOMEM, "parameters: out of memory");
    for (int i = 0; i < s->n && rc == ERR_OK; i++)
        rc = init_param(&t->params[i], (uint64_t)c->seed, host + s->param[i].offset, e);
    if (rc == ERR_OK && c->init.from)
        rc = fill_from(s, c, host, report, e);
    if (rc == ERR_OK)
        rc = device_put(&s->params, 0, DT_F32, s->count, host, e);
    if (rc == ERR_OK)
        rc = device_sync(s->d, e); /* host goes away */
    mem_free(host);
    return rc;
}
