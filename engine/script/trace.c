/* trace.c - running forward, loss and metrics on symbols. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/script/priv.h"

/* Stack of the body: these places hold these values throughout. */
enum { AT_MODEL = 1, AT_BATCH, AT_X, AT_Y, AT_OUT };

struct job {
    struct tracing t;
    struct trace *out;
};

static char batch_key;

/* ---- in: the batch ---- */

/* core.is_batch(v): the third argument of a loss, which one may pass on without a thought. */
static int l_is_batch(lua_State *L)
{
    lua_settop(L, 1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &batch_key);
    lua_pushboolean(L, lua_istable(L, 1) && lua_rawequal(L, 1, 2));
    return 1;
}

void trace_open(lua_State *L)
{
    lua_pushcfunction(L, l_is_batch);
    lua_setfield(L, -2, "is_batch");
}

static void push_batch(lua_State *L, const struct tracing *t)
{
    int inputs = 0, target = -1, last = -1;

    lua_newtable(L); /* AT_BATCH */
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &batch_key);
    lua_newtable(L); /* AT_X */
    for (int i = 0; i < t->n_fields; i++) {
        tensor_push_field(L, i);
        lua_pushvalue(L, -1);
        lua_setfield(L, AT_BATCH, t->field[i].name);
        if (t->field[i].is_target) {
            target = target < 0 || strcmp(t->field[i].name, "y") == 0 ? i : target;
            lua_pop(L, 1);
            continue;
        }
        inputs++;
        last = i;
        lua_setfield(L, AT_X, t->field[i].name);
    }
    lua_pushboolean(L, t->training);
    lua_setfield(L, AT_BATCH, "training");
    if (inputs == 1) {
        tensor_push_field(L, last);
        lua_replace(L, AT_X);
    }
    if (target < 0)
        lua_pushnil(L); /* AT_Y */
    else
        lua_getfield(L, AT_BATCH, t->field[target].name);
}

/* Where messages are put that know no better line (a tail call has erased it): at the function on
 * the top. */
static void set_here(lua_State *L)
{
    struct sandbox *sb = sandbox_of(L);
    lua_Debug ar;

    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &ar);
    if (ar.source[0] == '@' && ar.linedefined > 0)
        snprintf(sb->here, sizeof sb->here, "%.200s:%d", ar.source + 1, ar.linedefined);
}

/* f(out, y, batch), f on the top; one result. */
static void call_with_out(lua_State *L)
{
    set_here(L);
    lua_pushvalue(L, AT_OUT);
    lua_pushvalue(L, AT_Y);
    lua_pushvalue(L, AT_BATCH);
    lua_call(L, 3, 1);
}

/* ---- out: nodes of what came back ---- */

static char *own_text(lua_State *L, const char *s)
{
    char *copy = mem_strdup(s);
    if (!copy)
        sandbox_raise(L, ERR_NOMEM, "out of memory");
    return copy;
}

static void *own_array(lua_State *L, lua_Integer n, size_t size)
{
    void *p = mem_array((size_t)n, size);
    if (!p)
        sandbox_raise(L, ERR_NOMEM, "out of memory");
    return p;
}

static void take_outputs(lua_State *L, struct trace *out)
{
    if (tensor_test(L, AT_OUT)) {
        out->outputs = own_array(L, 1, sizeof *out->outputs);
        out->output_names = own_array(L, 1, sizeof *out->output_names);
        out->output_names[0] = own_text(L, "out");
        out->n_outputs = 1;
        out->outputs[0] = tensor_arg(L, AT_OUT);
        return;
    }
    if (!lua_istable(L, AT_OUT))
        luaL_error(L, "forward must return a tensor or a table of tensors, but returned %s",
                   luaL_typename(L, AT_OUT));
    lua_Integer n = sandbox_sorted_keys(L, AT_OUT);
    if (n < 1)
        luaL_error(L, "forward returned an empty table");
    out->outputs = own_array(L, n, sizeof *out->outputs);
    out->output_names = own_array(L, n, sizeof *out->output_names);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, i);
        lua_pushvalue(L, -1);
        lua_rawget(L, AT_OUT);
        const char *name = sandbox_tostring(L, -2);
        if (!tensor_test(L, -2))
            luaL_error(L, "forward's field %s must be a tensor, but is %s", name,
                       luaL_typename(L, -2));
        out->outputs[i - 1] = tensor_arg(L, lua_gettop(L) - 1);
        out->output_names[i - 1] = own_text(L, name);
        out->n_outputs = (int)i;
        lua_pop(L, 3);
    }
    lua_pop(L, 1);
}

/* Stack top: the list of statistics. */
static void take_stats(lua_State *L, struct metric_info *info, struct trace_metric *m)
{
    int list = lua_gettop(L);
    int64_t total = 0;

    if (!lua_istable(L, list))
        luaL_error(L, "metric %s: stats must return a list of tensors, but returned %s", m->name,
                   luaL_typename(L, list));
    lua_Integer n = luaL_len(L, list);
    if (n < 1 || n > 64)
        luaL_error(L, "metric %s: stats must return a list of 1 to 64 tensors", m->name);
    bool first = !info->count;
    if (first) {
        info->count = own_array(L, n, sizeof *info->count);
        info->n_stats = (int)n;
    }
    m->stats = own_array(L, n, sizeof *m->stats);
    m->n_stats = (int)n;
    for (int i = 0; i < n; i++) {
        lua_geti(L, list, i + 1);
        m->stats[i] = tensor_cast(L, tensor_arg(L, lua_gettop(L)), DT_F32);
        const struct shape *s = &tensor_node(L, m->stats[i])->shape;
        int64_t count = s->rank == 0 ? -1 : shape_count(s);
        total += count < 0 ? 1 : count;
        if (first)
            info->count[i] = count;
        if (n != info->n_stats || count != info->count[i] || total > 1000000)
            luaL_error(L,
                       "metric %s: its statistics must have the same sizes in every trace, at "
                       "most a million numbers; they do not depend on the batch size",
                       m->name);
        lua_pop(L, 1);
    }
    info->total = total;
}

/* Stack top: the metric's function or table; popped. */
static void take_metric(lua_State *L, struct metric_info *info, struct trace_metric *m)
{
    char what[128];

    m->name = own_text(L, info->name);
    m->is_mean = true;
    if (lua_istable(L, -1)) {
        if (lua_getfield(L, -1, "better") == LUA_TSTRING)
            snprintf(m->better, sizeof m->better, "%s", lua_tostring(L, -1));
        lua_pop(L, 1);
        m->is_mean = lua_getfield(L, -1, "mean") == LUA_TFUNCTION;
        if (!m->is_mean) {
            lua_pop(L, 1);
            lua_getfield(L, -1, "stats");
        }
        lua_remove(L, -2);
    }
    call_with_out(L);
    snprintf(what, sizeof what, "metric %s", m->name);
    if (m->is_mean)
        mean_take(L, lua_gettop(L), what, &m->mean);
    else
        take_stats(L, info, m);
    lua_pop(L, 1);
}

static void take_metrics(lua_State *L, struct trace *out)
{
    struct script *s = script_of(L);

    if (s->n_metrics == 0)
        return;
    out->metrics = own_array(L, s->n_metrics, sizeof *out->metrics);
    out->n_metrics = s->n_metrics;
    for (int i = 0; i < s->n_metrics; i++) {
        lua_getfield(L, AT_MODEL, "metrics");
        lua_getfield(L, -1, s->metric[i].name);
        lua_remove(L, -2);
        take_metric(L, &s->metric[i], &out->metrics[i]);
    }
}

static void take_predict(lua_State *L, const struct tracing *t, struct trace *out)
{
    struct op_attr a = {0};
    struct err e;

    if (lua_getfield(L, AT_MODEL, "predict") == LUA_TFUNCTION) {
        set_here(L);
        lua_pushvalue(L, AT_OUT);
        lua_call(L, 1, 1);
        out->predict = tensor_arg(L, lua_gettop(L));
        lua_pop(L, 1);
        return;
    }
    lua_pop(L, 1);
    bool one = tensor_test(L, AT_OUT) != NULL;
    out->predict = out->outputs[0];
    if (t->answer == ANSWER_PLAIN)
        return;
    script_tracing(L);
    int x = one ? out->outputs[0] : t->answer_of;
    a.axis = tensor_node(L, x)->shape.rank - 1;
    if (t->answer == ANSWER_SOFTMAX)
        out->predict = script_node(L, graph_add(t->graph, OP_SOFTMAX, &x, 1, &a, &e), &e);
    else
        out->predict = script_node(L, graph_unary(t->graph, OP_SIGMOID, x, &e), &e);
}

/* ---- parameters and tunables ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct param_def *)a)->name, ((const struct param_def *)b)->name);
}

/* The first trace's parameters are those of the script: in the order of their names. */
static void keep_params(lua_State *L, struct script *s, struct tracing *t)
{
    const struct script_field *f = NULL;
    char text[64];

    for (int i = 0; i < t->n_fields && !f; i++)
        f = t->field[i].is_target ? NULL : &t->field[i];
    param_list_release(&s->params); /* of a first trace that failed on the way */
    s->params.item = own_array(L, t->params.n + 1, sizeof *s->params.item);
    for (int i = 0; i < t->params.n; i++) {
        const struct param_def *p = &t->params.item[i];
        s->params.item[i] = *p;
        s->params.item[i].name = mem_strdup(p->name);
        s->params.item[i].where = mem_strdup(p->where);
        s->params.n = i + 1; /* the list owns what it has, whole or not */
        if (!s->params.item[i].name || !s->params.item[i].where)
            sandbox_raise(L, ERR_NOMEM, "out of memory");
    }
    qsort(s->params.item, (size_t)s->params.n, sizeof *s->params.item, by_name);
    snprintf(s->first_trace, sizeof s->first_trace, "%s, %.20s %s", t->training ? "train" : "eval",
             f ? f->name : "no input", f ? shape_text(text, sizeof text, &f->shape) : "");
}

static void take_params(lua_State *L, struct script *s, struct tracing *t, struct trace *out)
{
    if (!s->first_trace[0])
        keep_params(L, s, t);
    for (int i = 0; i < s->params.n; i++)
        s->params.item[i].node = -1;
    for (int i = 0; i < t->params.n; i++) {
        struct param_def *p = bsearch(&t->params.item[i], s->params.item, (size_t)s->params.n,
                                      sizeof *s->params.item, by_name);
        p->node = t->params.item[i].node; /* others were refused when they were made */
    }
    out->params = own_array(L, s->params.n + 1, sizeof *out->params);
    for (int i = 0; i < s->params.n; i++) {
        const struct param_def *p = &s->params.item[i];
        out->n_params = i + 1;
        out->params[i] = (struct trace_param){.shape = p->shape,
                                              .init = p->init,
                                              .a = p->a,
                                              .b = p->b,
                                              .decay = p->decay,
                                              .node = p->node};
        out->params[i].name = own_text(L, p->name);
        out->params[i].where = own_text(L, p->where);
    }
}

static void take_tunables(lua_State *L, struct script *s, struct tracing *t, struct trace *out)
{
    out->tunables = own_array(L, s->n_tunables + 1, sizeof *out->tunables);
    for (int i = 0; i < s->n_tunables; i++) {
        const struct tunable_def *d = &s->tunable[i];
        out->n_tunables = i + 1;
        out->tunables[i] = (struct trace_tunable){
            .value = d->value, .min = d->min, .max = d->max, .slot = t->first_slot + i};
        out->tunables[i].name = own_text(L, d->name);
    }
}

/* ---- one trace ---- */

static int trace_body(lua_State *L)
{
    struct job *job = lua_touserdata(L, 1);
    struct script *s = script_of(L);
    struct tracing *t = &job->t;

    luaL_checkstack(L, 40, NULL);
    sandbox_reseed(&s->sb, 1);
    lua_settop(L, 0);
    script_model(L);
    push_batch(L, t);
    lua_getfield(L, AT_MODEL, "forward");
    set_here(L);
    lua_pushvalue(L, AT_X);
    lua_pushvalue(L, AT_BATCH);
    lua_call(L, 2, 1); /* AT_OUT */
    take_outputs(L, job->out);
    lua_getfield(L, AT_MODEL, "loss");
    t->in_loss = true;
    call_with_out(L);
    t->in_loss = false;
    mean_take(L, lua_gettop(L), "the loss", &job->out->loss);
    lua_pop(L, 1);
    take_metrics(L, job->out);
    take_predict(L, t, job->out);
    take_params(L, s, t, job->out);
    take_tunables(L, s, t, job->out);
    return 0;
}

static enum err_code check_fields(const struct script *s, const struct script_field *fields, int n,
                                  struct err *e)
{
    char text[128];

    for (int i = 0; i < n; i++)
        if (fields[i].shape.rank < 1 || fields[i].shape.dim[0] != fields[0].shape.dim[0])
            return err_set(e, ERR_SHAPE,
                           "%s: field %s is %s: the first dimension must be the batch", s->name,
                           fields[i].name, shape_text(text, sizeof text, &fields[i].shape));
    return ERR_OK;
}

enum err_code script_trace(struct script *s, bool training, const struct script_field *fields,
                           int n, int first_slot, struct trace *out, struct err *e)
{
    struct job job = {.out = out};
    struct tracing *t = &job.t;

    memset(out, 0, sizeof *out);
    out->predict = -1;
    out->training = training;
    enum err_code rc = check_fields(s, fields, n, e);
    if (rc != ERR_OK)
        return rc;
    *t = (struct tracing){.training = training,
                          .field = fields,
                          .n_fields = n,
                          .batch = n > 0 ? fields[0].shape.dim[0] : 0,
                          .first_slot = first_slot};
    t->graph = out->graph = graph_new();
    if (!t->graph)
        return err_set(e, ERR_NOMEM, "%s: out of memory", s->name);
    s->generation++;
    s->depth = 0;
    s->tracing = t;
    rc = sandbox_run(&s->sb, trace_body, &job, e);
    s->tracing = NULL;
    s->depth = 0;
    param_list_release(&t->params);
    mem_free(t->streams);
    if (rc != ERR_OK)
        trace_free(out);
    return rc;
}

void trace_free(struct trace *t)
{
    graph_free(t->graph);
    for (int i = 0; i < t->n_params; i++) {
        mem_free((char *)t->params[i].name);
        mem_free((char *)t->params[i].where);
    }
    for (int i = 0; i < t->n_metrics; i++) {
        mem_free((char *)t->metrics[i].name);
        mem_free(t->metrics[i].mean.term);
        mem_free(t->metrics[i].stats);
    }
    for (int i = 0; i < t->n_outputs; i++)
        mem_free((char *)t->output_names[i]);
    for (int i = 0; i < t->n_tunables; i++)
        mem_free((char *)t->tunables[i].name);
    mem_free(t->params);
    mem_free(t->loss.term);
    mem_free(t->metrics);
    mem_free(t->outputs);
    mem_free(t->output_names);
    mem_free(t->tunables);
    memset(t, 0, sizeof *t);
}
