/* script_util.h - what the tests of scripts share: opening text, tracing it, looking into the
 * graph. */
#ifndef SCRIPT_UTIL_H
#define SCRIPT_UTIL_H

#include "engine/script/priv.h"

#include <stdlib.h>
#include <string.h>

#include "tap.h"

static char said[4096];

static inline void on_print(void *arg, const char *line)
{
    (void)arg;
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s;", line);
}

static inline struct script *load(const char *text, const struct cfg_node *args, struct err *e)
{
    struct script_opts o = {
        .path = "model/m.lua",
        .shipped = "scripts",
        .args = args,
        .seed = 7,
        .print = on_print,
        /* the instruction budget ends what has no end, however slow the machine */
        .max_instructions = 20000000,
        .max_seconds = 300};
    struct script *s = NULL;

    said[0] = '\0';
    e->msg[0] = '\0';
    script_open_text(&o, text, strlen(text), &s, e);
    return s;
}

#define DIMS(...)                                                                                  \
    {                                                                                              \
        .rank = sizeof((int[]){__VA_ARGS__}) / sizeof(int), .dim = { __VA_ARGS__ }                 \
    }

static const struct script_field xy[] = {
    {.name = "x", .shape = DIMS(8, 10), .dtype = DT_F32},
    {.name = "y", .shape = DIMS(8), .open_type = true, .is_target = true}};

static inline enum err_code trace(struct script *s, bool training, struct trace *t, struct err *e)
{
    e->msg[0] = '\0';
    return script_trace(s, training, xy, 2, 16, t, e);
}

/* Opens and traces text for training; NULL and a note when that fails. */
static inline struct script *traced(const char *text, struct trace *t)
{
    struct err e = {0};
    struct script *s = load(text, NULL, &e);

    if (s && trace(s, true, t, &e) == ERR_OK)
        return s;
    note("%s", e.msg);
    script_free(s);
    memset(t, 0, sizeof *t);
    return NULL;
}

/* The rest of a model around a forward function. */
#define MODEL(build, forward)                                                                      \
    "local nn = require 'nn' return function(args) " build                                         \
    "\nreturn {forward = function(x, batch) " forward " end,\n"                                    \
    "loss = function(out, y) return nn.cross_entropy(out, y) end} end"
/* The same around a loss function over a linear layer. */
#define LOSS(loss)                                                                                 \
    "local nn = require 'nn' return function(args) local fc = nn.linear(5)\n"                      \
    "return {forward = function(x) return fc(x) end, loss = function(out, y, batch)\n" loss        \
    " end} end"

static inline void refused(const char *text, enum err_code code, const char *want,
                           const char *claim)
{
    struct err e = {0};
    struct trace t = {0};
    struct script *s = load(text, NULL, &e);
    enum err_code rc = s ? trace(s, true, &t, &e) : e.code;

    if (!ok(rc == code && strstr(e.msg, want) && !t.graph, "%s", claim))
        note("%s: %s", err_name(rc), e.msg);
    if (rc == ERR_OK)
        trace_free(&t);
    script_free(s);
}

static inline const struct trace_param *param(const struct trace *t, const char *name)
{
    for (int i = 0; i < t->n_params; i++)
        if (strcmp(t->params[i].name, name) == 0)
            return &t->params[i];
    return NULL;
}

/* The parameters' names, joined. */
static inline bool names_are(const struct trace *t, const char *want)
{
    char all[512] = "";

    for (int i = 0; i < t->n_params; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "",
                 t->params[i].name);
    if (strcmp(all, want) != 0)
        note("names: %s", all);
    return strcmp(all, want) == 0;
}

static inline int count_op(const struct trace *t, enum op op)
{
    int n = 0;
    for (int i = 0; t->graph && i < graph_count(t->graph); i++)
        n += graph_node(t->graph, i)->op == op;
    return n;
}

static inline const struct node *find(const struct trace *t, enum op op, const char *name, int nth)
{
    for (int i = 0; t->graph && i < graph_count(t->graph); i++) {
        const struct node *n = graph_node(t->graph, i);
        if (n->op == op && (!name || strcmp(n->name, name) == 0) && nth-- == 0)
            return n;
    }
    return NULL;
}

#endif
