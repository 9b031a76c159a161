/* Every layer, loss and metric of scripts/nn.lua gives the values PyTorch gives
 * (golden/nn_values.py). */
#include "engine/script/priv.h"

#include <stdlib.h>
#include <string.h>

#include "golden/nn_values.h"
#include "graph_eval.h"
#include "tap.h"

/* The formula of nn_values.py. */
static double filled(int64_t i, int salt)
{
    return (double)((i * 7 + 3 * salt) % 23 - 11) / 8;
}

static struct shape shape_of(int rank, const long *dim)
{
    struct shape s = {.rank = rank};
    for (int d = 0; d < rank; d++)
        s.dim[d] = dim[d];
    return s;
}

/* What the leaves of a trace hold. */
struct leaves {
    const struct trace *t;
    char kind; /* of y: class ids, numbers, bits */
};

static void leaf(void *arg, const struct node *n, double *out)
{
    const struct leaves *l = arg;
    int64_t count = shape_count(&n->shape);
    int salt = strcmp(n->name, "x") == 0 ? 1 : 2;
    bool ids = n->op == OP_INPUT && n->dtype == DT_I32;

    for (int i = 0; n->op == OP_PARAM && i < l->t->n_params; i++)
        if (strcmp(l->t->params[i].name, n->name) == 0)
            salt = 3 + i;
    for (int64_t i = 0; i < count; i++) {
        double v = filled(i, salt);
        if (n->op == OP_HYPER)
            v = l->t->tunables[n->attr.slot].value;
        else if (ids)
            v = (double)((i * 5 + 1) % 6);
        else if (salt == 2 && l->kind == 'b')
            v = v > 0;
        out[i] = v;
    }
}

static struct script *open_and_trace(const char *text, const struct script_field *fields, int n,
                                     struct trace *t)
{
    struct script_opts o = {.path = "model/case.lua", .shipped = "scripts", .seed = 1};
    struct script *s = NULL;
    struct err e = {0};

    memset(t, 0, sizeof *t);
    if (script_open_text(&o, text, strlen(text), &s, &e) == ERR_OK &&
        script_trace(s, false, fields, n, 0, t, &e) == ERR_OK)
        return s;
    note("%s", e.msg);
    script_free(s);
    return NULL;
}

static double scalar(const struct leaves *l, int node)
{
    struct graph_eval o = {.leaf = leaf, .arg = (void *)l};
    double **v = graph_values(l->t->graph, &o), r = v[node][0];
    graph_values_free(v, l->t->graph);
    return r;
}

static double mean_value(const struct leaves *l, const struct trace_mean *m)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++)
        sum += m->term[i].coef * scalar(l, m->term[i].sum) / scalar(l, m->term[i].weight);
    return sum;
}

static double worst(const double *got, const double *want, int n)
{
    double w = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs(got[i] - want[i]) / fmax(1, fabs(want[i]));
        if (!(d <= w))
            w = d;
    }
    return w;
}

/* Constants pass through f32 options (eps), and expected values have nine digits. */
#define TOLERANCE 2e-7

static void test_layer(const struct nn_layer_case *c)
{
    char text[1024];
    struct script_field x = {.name = "x", .shape = shape_of(c->rank, c->dim), .dtype = DT_F32};
    struct trace t;
    bool good = false;

    snprintf(text, sizeof text,
             "local nn = require 'nn' local emb = nn.embedding(23, 3) return function()\n"
             "local f = %s\nreturn {forward = function(x) return f(x) end,\n"
             "loss = function(out) return nn.average(out) end} end",
             c->lua);
    struct script *s = open_and_trace(text, &x, 1, &t);
    if (s && shape_count(&graph_node(t.graph, t.outputs[0])->shape) == c->n) {
        struct leaves l = {.t = &t};
        struct graph_eval o = {.leaf = leaf, .arg = &l};
        double **v = graph_values(t.graph, &o), *got = v[t.outputs[0]];
        double w = worst(got, c->want, c->n);
        good = w <= TOLERANCE;
        if (!good)
            note("off by %g; first %g, want %g", w, got[0], c->want[0]);
        graph_values_free(v, t.graph);
    }
    ok(good, "%s", c->name);
    trace_free(&t);
    script_free(s);
}

static struct script *trace_mean_case(const struct nn_mean_case *c, bool metric, struct trace *t)
{
    char text[1024];
    struct script_field f[2] = {{.name = "x", .shape = shape_of(c->rank, c->dim), .dtype = DT_F32},
                                {.name = "y",
                                 .shape = shape_of(c->y_rank, c->y_dim),
                                 .open_type = true,
                                 .is_target = true}};

    snprintf(text, sizeof text,
             "local nn = require 'nn' return function() local m = %s\n"
             "return {forward = function(x) return x end, loss = %s, metrics = {m = m}} end",
             c->lua, metric ? "function(out) return nn.average(out) end" : "m");
    return open_and_trace(text, f, 2, t);
}

static void test_loss(const struct nn_mean_case *c)
{
    struct trace t;
    struct script *s = trace_mean_case(c, true, &t);
    struct leaves l = {.t = &t, .kind = c->kind};
    double got = s && t.metrics[0].is_mean ? mean_value(&l, &t.metrics[0].mean) : (double)NAN;

    if (!ok(fabs(got - c->want) <= TOLERANCE * fmax(1, fabs(c->want)), "%s", c->name))
        note("%.9g, want %.9g", got, c->want);
    trace_free(&t);
    script_free(s);
}

static void test_sums(const struct nn_mean_case *c)
{
    struct trace t;
    struct script *s = trace_mean_case(c, true, &t);
    struct leaves l = {.t = &t, .kind = c->kind};
    double sums[8] = {0}, got = (double)NAN;
    struct err e = {0};

    if (s && !t.metrics[0].is_mean && t.metrics[0].n_stats <= 8) {
        for (int i = 0; i < t.metrics[0].n_stats; i++)
            sums[i] = scalar(&l, t.metrics[0].stats[i]);
        got = script_metric_value(s, 0, sums, t.metrics[0].n_stats, &e);
    }
    if (!ok(fabs(got - c->want) <= TOLERANCE * fmax(1, fabs(c->want)), "%s", c->name))
        note("%.9g, want %.9g %s", got, c->want, e.msg);
    trace_free(&t);
    script_free(s);
}

/* ---- initial values: the numbers of the distribution ---- */

static void test_init(const char *lua, enum init_kind kind, double a, double b)
{
    char text[512];
    struct script_field x = {.name = "x", .shape = {.rank = 2, .dim = {4, 6}}, .dtype = DT_F32};
    struct trace t;

    snprintf(text, sizeof text,
             "local nn = require 'nn' return function() return {forward = function(x)\n"
             "return x:matmul(nn.param('w', {8, 6}, {init = %s}), false, true) end,\n"
             "loss = function(out) return nn.average(out) end} end",
             lua);
    struct script *s = open_and_trace(text, &x, 1, &t);
    const struct trace_param *p = s ? &t.params[0] : NULL;
    if (!ok(p && p->init == kind && fabs(p->a - a) < 1e-12 && fabs(p->b - b) < 1e-12, "%s", lua) &&
        p)
        note("%d %g %g", p->init, p->a, p->b);
    trace_free(&t);
    script_free(s);
}

static void test_inits(void)
{
    test_init("nn.init.zeros()", INIT_ZEROS, 0, 0);
    test_init("nn.init.ones()", INIT_ONES, 0, 0);
    test_init("nn.init.const(0.5)", INIT_CONST, 0.5, 0);
    test_init("nn.init.uniform(-1, 2)", INIT_UNIFORM, -1, 2);
    test_init("nn.init.normal(0, 0.02)", INIT_NORMAL, 0, 0.02);
    test_init("nn.init.trunc_normal(0, 0.02)", INIT_TRUNC_NORMAL, 0, 0.02);
    test_init("nn.init.orthogonal(2)", INIT_ORTHOGONAL, 2, 0);
    test_init("nn.init.kaiming_uniform()", INIT_UNIFORM, -1, 1); /* sqrt(2) sqrt(3 / 6) */
    test_init("nn.init.kaiming_normal{mode = 'fan_out'}", INIT_NORMAL, 0, 0.5);
    test_init("nn.init.xavier_uniform()", INIT_UNIFORM, -sqrt(6.0 / 14), sqrt(6.0 / 14));
    test_init("nn.init.xavier_normal{gain = 2}", INIT_NORMAL, 0, 2 * sqrt(2.0 / 14));
    test_init("nil", INIT_UNIFORM, -1 / sqrt(6), 1 / sqrt(6));
}

int main(void)
{
    for (size_t i = 0; i < sizeof nn_layers / sizeof *nn_layers; i++)
        test_layer(&nn_layers[i]);
    for (size_t i = 0; i < sizeof nn_means / sizeof *nn_means; i++)
        test_loss(&nn_means[i]);
    for (size_t i = 0; i < sizeof nn_sums / sizeof *nn_sums; i++)
        test_sums(&nn_sums[i]);
    test_inits();
    return tap_done();
}
