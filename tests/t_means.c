/* What a script's losses, metrics and predictions become: types of the target, means, statistics.
 */
#include "script_util.h"

/* ---- types, losses, metrics ---- */

static void test_fields(void)
{
    struct trace t;
    struct script *s = traced(LOSS("print(y.shape[1], y.rank, y.dtype, out.dtype, batch.training)"
                                   " return nn.mse(out:slice(2, 1, 1), y)"),
                              &t);

    ok(s && strcmp(said, "8\t1\topen\tf32\ttrue;") == 0, "fields have shapes and types: %s", said);
    ok(find(&t, OP_INPUT, "y", 0) && find(&t, OP_INPUT, "y", 0)->dtype == DT_F32 &&
           !find(&t, OP_INPUT, "y.class", 0),
       "a regression makes y numbers");
    trace_free(&t);
    script_free(s);
    s = traced(LOSS("return nn.cross_entropy(out, y) + nn.mse(nn.sum(out, 2), batch.y)"), &t);
    ok(find(&t, OP_INPUT, "y", 0) && find(&t, OP_INPUT, "y.class", 0) &&
           find(&t, OP_INPUT, "y.class", 0)->dtype == DT_I32,
       "both may be");
    trace_free(&t);
    script_free(s);

    struct err e = {0};
    struct script_field two[] = {{.name = "left", .shape = DIMS(8, 3), .dtype = DT_F32},
                                 {.name = "ids", .shape = DIMS(8), .dtype = DT_I32}};
    s = load("local nn = require 'nn' return function() return {forward = function(x) print(x.left,"
             " x.ids) return {b = x.left * x.ids:reshape{8, 1}, a = x.left} end,"
             " loss = function(out, y) print(y) return nn.average(out.b) end} end",
             NULL, &e);
    ok(s && script_trace(s, true, two, 2, 0, &t, &e) == ERR_OK &&
           strcmp(said, "tensor f32 [8, 3]\ttensor i32 [8];nil;") == 0,
       "several inputs are a table, no target is nil: %s %s", said, e.msg);
    ok(t.n_outputs == 2 && strcmp(t.output_names[0], "a") == 0 && t.predict == t.outputs[0],
       "a table of outputs is sorted by name");
    ok(t.loss.n == 1 && graph_node(t.graph, t.loss.term[0].weight)->op == OP_CONST &&
           graph_node(t.graph, t.loss.term[0].weight)->attr.value == 8,
       "a plain scalar counts once per sample");
    trace_free(&t);
    two[1].shape.dim[0] = 7;
    ok(s && script_trace(s, true, two, 2, 0, &t, &e) == ERR_SHAPE && strstr(e.msg, "ids is [7]"),
       "fields of different batches are refused");
    script_free(s);
    refused(LOSS("return nn.cross_entropy(out, out:sum(2))"), ERR_SCRIPT,
            "class ids must be integers", "class ids are integers");
    refused(LOSS("return nn.mse(out, y)"), ERR_SCRIPT,
            "m.lua:2: nn.mse: outputs ask for targets of [8, 5], but they are [8]",
            "targets are not broadcast");
    refused(LOSS("return nn.cross_entropy(out, nil)"), ERR_SCRIPT, "no target", "a loss needs one");
}

static void test_means(void)
{
    struct trace t;
    struct script *s =
        traced(LOSS("return 2 * nn.cross_entropy(out, y) - nn.average(out) / 4 +"
                    " nn.tunable('beta', 0.5, {min = 0}) * nn.l1(nn.sum(out, 2), y)"),
               &t);

    ok(s && t.loss.n == 3 && t.loss.term[0].coef == 2 && t.loss.term[1].coef == -1 &&
           t.loss.term[2].coef == 1,
       "means are closed under + - and * and / by numbers");
    ok(t.n_tunables == 1 && strcmp(t.tunables[0].name, "beta") == 0 && t.tunables[0].min == 0 &&
           isinf(t.tunables[0].max) && count_op(&t, OP_HYPER) == 1,
       "and under * by a tunable");
    trace_free(&t);
    script_free(s);
    s = traced(LOSS("return nn.cross_entropy(out, y, {smoothing = 0.1, ignore = 3})"), &t);
    ok(t.n_tunables == 1 && strcmp(t.tunables[0].name, "loss.smoothing") == 0 &&
           count_op(&t, OP_XENT) == 1 && find(&t, OP_XENT, NULL, 0)->attr.has_ignore &&
           find(&t, OP_XENT, NULL, 0)->attr.k == 3,
       "label smoothing is a tunable, ignore an attribute");
    trace_free(&t);
    script_free(s);
    refused(LOSS("return nn.mean(nn.sum(out), nn.sum(out))"), ERR_SCRIPT, "depends on parameters",
            "a weight that depends on parameters is refused");
    refused(LOSS("return out"), ERR_SHAPE, "the loss is [8, 5], but must be a mean or a scalar",
            "a loss that is no scalar is refused");
    refused(LOSS("return nn.l1(nn.sum(out, 2), y) * nn.sum(out)"), ERR_SCRIPT,
            "a number or a tunable", "means are not multiplied by tensors");
    refused(LOSS("return nn.mean(out)"), ERR_SCRIPT, "nn.average", "nn.mean of one is explained");
    refused(LOSS("return 1"), ERR_SCRIPT, "the loss must be", "a number is no loss");
    refused(LOSS(""), ERR_SCRIPT, "is nil", "nothing neither");
    refused(LOSS("nn.tunable('a', 1) nn.tunable('a', 2)"), ERR_SCRIPT, "two meanings",
            "a tunable has one meaning");
    refused(LOSS("nn.tunable('a', 1, {max = 0.5})"), ERR_SCRIPT, "1 is not in",
            "and lies in its range");
    refused(LOSS("nn.tunable('a', 0/0)"), ERR_SCRIPT, "is not in", "NaN does not");
}

#define METRIC(body)                                                                               \
    "local nn = require 'nn' return function() return {forward = function(x) return x end,"        \
    " loss = function(out) return nn.average(out) end, metrics = {m = " body "}} end"

static void test_metrics(void)
{
    struct err e = {0};
    struct trace t;
    struct script *s =
        traced(METRIC("nn.metric{better = 'min', stats = function(out, y) return"
                      " {out:sum(), out:sum(1)} end, value = function(s) return s[1] +"
                      " s[2][10] end}"),
               &t);
    double sums[11] = {5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};

    ok(s && t.n_metrics == 1 && !t.metrics[0].is_mean && t.metrics[0].n_stats == 2 &&
           strcmp(t.metrics[0].better, "min") == 0,
       "a metric of statistics");
    ok(s && script_metric_value(s, 0, sums, 11, &e) == 7, "its value is made of the sums %s",
       e.msg);
    ok(s && isnan(script_metric_value(s, 0, sums, 3, &e)) && e.code == ERR_INTERNAL,
       "another number of sums is refused");
    trace_free(&t);
    script_free(s);
    s = traced(
        METRIC("nn.metric{stats = function(out) return {out:sum()} end, value = function(s)\n"
               "return s.x.y end}"),
        &t);
    ok(s && isnan(script_metric_value(s, 0, sums, 1, &e)) && strstr(e.msg, "m.lua:2: "),
       "an error in value names its line: %s", e.msg);
    trace_free(&t);
    script_free(s);
    s = traced(METRIC("nn.metric{stats = function(out) return {out:sum()} end, value = function()"
                      " while true do end end}"),
               &t);
    ok(s && isnan(script_metric_value(s, 0, sums, 1, &e)) && strstr(e.msg, "over the budget"),
       "value is bounded too");
    trace_free(&t);
    script_free(s);
    refused(METRIC("3"), ERR_SCRIPT, "metric m must be a function", "a number is no metric");
    refused(METRIC("nn.metric{stats = print}"), ERR_SCRIPT, "stats and value", "nor is half a one");
    refused(METRIC("nn.metric{stats = print, value = print, beter = 'min'}"), ERR_SCRIPT,
            "did you mean better", "misspelt options are found");
    refused(METRIC("function() return 'x' end"), ERR_SCRIPT, "metric m must be a mean",
            "a metric returns a mean");
}

static void test_predict(void)
{
    struct trace t;
    struct script *s = traced(LOSS("return nn.bce_logits(out:sum(2), y)"), &t);

    ok(s && graph_node(t.graph, t.predict)->op == OP_SIGMOID, "after bce_logits a sigmoid");
    trace_free(&t);
    script_free(s);
    s = traced(LOSS("return nn.mse(out:sum(2), y)"), &t);
    ok(s && t.predict == t.outputs[0], "after mse the output itself");
    trace_free(&t);
    script_free(s);
    s = traced(
        "local nn = require 'nn' return function() return {forward = function(x) return x end,"
        "loss = function(o) return nn.average(o) end, predict = function(o) return o:argmax(2)"
        " end, on_step = print, init = print} end",
        &t);
    ok(s && graph_node(t.graph, t.predict)->op == OP_ARGMAX, "predict(out) wins");
    ok(s && script_optional(s) && strcmp(script_optional(s), "init, on_step") == 0,
       "fields that come later are named");
    trace_free(&t);
    script_free(s);
}

int main(void)
{
    test_fields();
    test_means();
    test_metrics();
    test_predict();
    return tap_done();
}
