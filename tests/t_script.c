/* A model script becomes a graph: args, names, places and traces are as documented. */
#include "script_util.h"

#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/hash.h"

/* ---- args ---- */

static struct cfg_node number = {.kind = CFG_INT, .i = 3}, rate = {.kind = CFG_REAL, .r = 0.5},
                       text_node = {.kind = CFG_STRING, .s = "relu"},
                       yes = {.kind = CFG_BOOL, .b = true}, nothing = {.kind = CFG_NULL};
static struct cfg_node w64 = {.kind = CFG_INT, .i = 64}, w32 = {.kind = CFG_INT, .i = 32};
static struct cfg_node hidden = {
    .kind = CFG_LIST, .n = 2, .item = (struct cfg_node *[]){&w64, &w32}};
static struct cfg_node inner = {.kind = CFG_MAP,
                                .n = 2,
                                .item = (struct cfg_node *[]){&number, &text_node},
                                .key = (const char *[]){"depth", "act"}};
static struct cfg_node args = {
    .kind = CFG_MAP,
    .n = 6,
    .item = (struct cfg_node *[]){&hidden, &rate, &number, &inner, &yes, &nothing},
    .key = (const char *[]){"hidden", "dropout", "classes", "block", "flag", "none"}};

static void test_args(void)
{
    struct err e = {0};
    struct str unread = {0}, read = {0};
    struct script *s =
        load("return function(a) print(type(a), #a.hidden, a.hidden[2], a.dropout, a.block.act, "
             "a.none)\n"
             "for i, w in ipairs(a.hidden) do print(i, w) end print(table.concat(a.hidden, ' '))\n"
             "print(table.unpack(a.hidden)) for k, v in pairs(a.hidden) do print(k, v) end\n"
             "print(next(a) ~= nil, rawlen(a.hidden), rawget(a, 'typo'))\n"
             "a.extra = 1 print(a.extra) table.insert(a.hidden, 16) print(#a.hidden)\n"
             "return {forward = print, loss = print} end",
             &args, &e);
    ok(s && strcmp(said, "table\t2\t32\t0.5\trelu\tnil;1\t64;2\t32;64 32;64\t32;1\t64;2\t32;"
                         "true\t2\tnil;1;3;") == 0,
       "args behave as ordinary tables: %s%s", said, e.msg);
    ok(s && script_unread_args(s, &unread, &read), "there are keys that were not read");
    ok(strcmp(str_c(&unread), "classes, block.depth, flag") == 0, "they are named: %s",
       str_c(&unread));
    ok(strcmp(str_c(&read), "block, block.act, dropout, extra, hidden, none, typo") == 0,
       "and those that were: %s", str_c(&read));
    script_free(s);
    str_reset(&unread);
    s = load(
        "return function(a) for k, v in pairs(a) do if type(v) == 'table' then for _ in pairs(v) "
        "do end end end return {forward = print, loss = print} end",
        &args, &e);
    ok(s && !script_unread_args(s, &unread, &read), "walking over all is reading all %s",
       str_c(&unread));
    script_free(s);
    str_release(&unread);
    str_release(&read);
}

/* ---- shipped models ---- */

static struct script *shipped(const char *path, struct err *e)
{
    struct script_opts o = {.path = path, .shipped = "scripts", .args = &args, .seed = 7};
    struct script *s = NULL;
    script_open(&o, &s, e);
    return s;
}

static void test_mlp(void)
{
    struct err e = {0};
    struct trace t = {0}, v = {0};
    struct script *s = shipped("scripts/models/mlp.lua", &e);

    ok(s && trace(s, true, &t, &e) == ERR_OK, "mlp.lua is traced for training %s", e.msg);
    ok(names_are(&t, "layers.2.bias layers.2.weight layers.5.bias layers.5.weight layers.8.bias "
                     "layers.8.weight"),
       "its parameters have stable names, sorted");
    const struct trace_param *w = param(&t, "layers.2.weight"), *b = param(&t, "layers.2.bias");
    ok(w && w->shape.rank == 2 && w->shape.dim[0] == 64 && w->shape.dim[1] == 10,
       "weights are [out, in], the input width is inferred");
    ok(w && w->init == INIT_UNIFORM && fabs(w->b - 1 / sqrt(10)) < 1e-12 && w->a == -w->b && b &&
           b->init == INIT_UNIFORM && fabs(b->b - 1 / sqrt(10)) < 1e-12,
       "the bound of weight and bias is 1/sqrt(fan_in)");
    ok(w && w->decay && b && !b->decay, "biases do not decay");
    ok(w && strcmp(w->where, "mlp.lua:8") == 0, "places are the model's: %s", w ? w->where : "");
    ok(t.n_tunables == 2 && strcmp(t.tunables[0].name, "layers.4.p") == 0 &&
           strcmp(t.tunables[1].name, "layers.7.p") == 0 && t.tunables[0].value == 0.5 &&
           t.tunables[0].max == 1 && t.tunables[0].slot == 16 && t.tunables[1].slot == 17,
       "dropout rates are tunables with slots");
    ok(count_op(&t, OP_DROPOUT) == 2 &&
           find(&t, OP_DROPOUT, NULL, 0)->attr.stream != find(&t, OP_DROPOUT, NULL, 1)->attr.stream,
       "each dropout has a random stream of its own");
    ok(find(&t, OP_DROPOUT, NULL, 0)->attr.stream == hash_fnv32("layers.4") &&
           find(&t, OP_DROPOUT, NULL, 0)->attr.per_sample,
       "it is that of the path, and counts by sample");
    ok(t.n_metrics == 1 && strcmp(t.metrics[0].name, "accuracy") == 0 && t.metrics[0].is_mean &&
           strcmp(t.metrics[0].better, "max") == 0,
       "accuracy is a mean, and more is better");
    ok(t.predict >= 0 && graph_node(t.graph, t.predict)->op == OP_SOFTMAX,
       "predictions are the softmax of the logits");
    ok(t.n_outputs == 1 && strcmp(t.output_names[0], "out") == 0 && t.loss.n == 1, "one output");
    const struct node *mm = find(&t, OP_MATMUL, NULL, 0);
    ok(mm && strcmp(mm->path, "layers.2") == 0 && strcmp(mm->where, "mlp.lua:8") == 0,
       "nodes carry path and line");
    ok(find(&t, OP_INPUT, "y.class", 0) && !find(&t, OP_INPUT, "y", 0), "labels are class ids");
    ok(s && trace(s, false, &v, &e) == ERR_OK && count_op(&v, OP_DROPOUT) == 0 && v.n_params == 6 &&
           v.n_tunables == 2,
       "in eval there is no dropout, but the same parameters and tunables");
    const char *const *files = NULL;
    ok(s && script_files(s, &files) == 2 && strstr(files[0], "models/mlp.lua") &&
           strstr(files[1], "scripts/nn.lua"),
       "both files are listed");
    trace_free(&v);
    trace_free(&t);
    script_free(s);
}

static void test_byhand(void)
{
    struct err e = {0};
    struct trace t = {0};
    struct script *s = shipped("scripts/models/byhand.lua", &e);

    args.key[0] = "hiddens";
    script_free(s);
    s = shipped("scripts/models/byhand.lua", &e);
    args.key[0] = "hidden";
    ok(s && trace(s, true, &t, &e) == ERR_OK, "byhand.lua is traced %s", e.msg);
    ok(names_are(&t, "first.b first.w last.b last.w"), "its parameters have the names it gave");
    const struct trace_param *w = param(&t, "first.w");
    ok(w && w->init == INIT_NORMAL && fabs(w->b - sqrt(2.0 / 10)) < 1e-12 &&
           strcmp(w->where, "byhand.lua:11") == 0,
       "with its init and its line (%s)", w ? w->where : "");
    trace_free(&t);
    script_free(s);
}

/* ---- names ---- */

static void test_names(void)
{
    struct trace t;
    struct script *s;

    s = traced(MODEL("local a, b = nn.linear(10), nn.linear(3)", "return b(a(x))"), &t);
    ok(s && names_are(&t, "linear1.bias linear1.weight linear2.bias linear2.weight"),
       "unnamed layers are numbered in order of first use");
    trace_free(&t);
    script_free(s);
    s = traced(MODEL("local a = nn.linear(10, {bias = false})", "return a(a(x))"), &t);
    ok(s && names_are(&t, "linear1.weight") && count_op(&t, OP_MATMUL) == 2 &&
           count_op(&t, OP_PARAM) == 1,
       "a layer used twice is one parameter");
    trace_free(&t);
    script_free(s);
    s = traced(MODEL("local m = nn.module{fc = nn.linear(4), blocks = {nn.linear(4), nn.linear(4)},"
                     " forward = function(self, x) for _, b in ipairs(self.blocks) do x = b(x) end"
                     " return self.late(self.fc(x)) end} m.late = nn.linear(3, {bias = false})"
                     " local net = nn.sequential{m, nn.name('head', nn.linear(3, {bias = false}))}",
                     "return net(x)"),
               &t);
    ok(s && names_are(&t, "head.weight layers.1.blocks.1.bias layers.1.blocks.1.weight "
                          "layers.1.blocks.2.bias layers.1.blocks.2.weight layers.1.fc.bias "
                          "layers.1.fc.weight layers.1.late.weight"),
       "fields, lists and nn.name give paths");
    trace_free(&t);
    script_free(s);
    s = traced(MODEL("local d = nn.dropout(0.3)", "return d(d(x))"), &t);
    ok(s && count_op(&t, OP_DROPOUT) == 2 &&
           find(&t, OP_DROPOUT, NULL, 0)->attr.stream != find(&t, OP_DROPOUT, NULL, 1)->attr.stream,
       "a dropout used twice draws twice");
    trace_free(&t);
    script_free(s);
    s = traced(MODEL("", "local h = nn.linear(4, {bias = false})(x) return nn.linear(3)(h)"), &t);
    struct trace v = {0};
    struct err e = {0};
    ok(s && names_are(&t, "linear1.weight linear2.bias linear2.weight") &&
           trace(s, false, &v, &e) == ERR_OK && v.n_params == 3,
       "layers made within forward have the same names in every trace %s", e.msg);
    trace_free(&v);
    trace_free(&t);
    script_free(s);
    s = traced(MODEL("local a, b = nn.linear(10), nn.linear(10)",
                     "if batch.training then return b(a(x)) end return a(b(x))"),
               &t);
    ok(s && trace(s, false, &v, &e) == ERR_OK && strcmp(v.params[1].name, "linear1.weight") == 0 &&
           graph_node(v.graph, v.params[1].node) && v.params[1].node > v.params[3].node &&
           t.params[1].node < t.params[3].node,
       "another order of use does not exchange names");
    trace_free(&v);
    trace_free(&t);
    script_free(s);
    refused(MODEL("local a, b = nn.name('f', nn.linear(4)), nn.name('f', nn.linear(4))",
                  "return b(a(x))"),
            ERR_SCRIPT, "two layers have the path f: m.lua:1 and m.lua:1",
            "two layers of one path are refused");
    refused(MODEL("", "nn.param('w', {2}) nn.param('w', {3})"), ERR_SCRIPT,
            "m.lua:2: parameter w is [3] here, but [2] earlier in this trace (m.lua:2)",
            "one name with two shapes is refused");
    refused(MODEL("", "nn.param('a/b', {2})"), ERR_SCRIPT, "a name has", "names are plain");
}

/* ---- traces ---- */

static void test_traces(void)
{
    struct err e = {0};
    struct trace t = {0}, v = {0};
    struct script *s =
        load(MODEL("", "return nn.name('a',\nnn.linear(batch.training and 4 or 5))(x)"), NULL, &e);

    ok(s && trace(s, true, &t, &e) == ERR_OK && trace(s, false, &v, &e) == ERR_SCRIPT &&
           strstr(e.msg, "parameter a.bias") == NULL &&
           strstr(e.msg, "parameter a.weight is [5, 10] here, but [4, 10] in the first trace "
                         "(m.lua:3; train, x [8, 10])"),
       "another shape in a later trace is refused: %s", e.msg);
    trace_free(&t);
    script_free(s);
    s = load(MODEL("", "nn.param('a', {2}) if not batch.training then\nnn.param('aa', {2}) end"
                       " return x"),
             NULL, &e);
    ok(s && trace(s, true, &t, &e) == ERR_OK && trace(s, false, &v, &e) == ERR_SCRIPT &&
           strstr(e.msg, "m.lua:3: parameter aa is new: the first trace (train, x [8, 10]) did not "
                         "make it, but a (m.lua:2)"),
       "a new parameter too: %s", e.msg);
    trace_free(&t);
    script_free(s);
    s = load(MODEL("", "if batch.training then nn.param('a', {2}) end return x"), NULL, &e);
    ok(s && trace(s, true, &t, &e) == ERR_OK && trace(s, false, &v, &e) == ERR_OK &&
           v.n_params == 1 && v.params[0].node == -1 && t.params[0].node >= 0,
       "one that is not used in a trace has no node there");
    trace_free(&v);
    trace_free(&t);
    script_free(s);
    s = load(MODEL("local kept", "kept = kept or x return kept * 1"), NULL, &e);
    ok(s && trace(s, true, &t, &e) == ERR_OK && trace(s, false, &v, &e) == ERR_SCRIPT &&
           strstr(e.msg, "m.lua:2: a tensor of an earlier trace"),
       "a tensor kept from an earlier trace is refused: %s", e.msg);
    trace_free(&t);
    script_free(s);
    s = load(MODEL("", "print(math.random(1000000)) return x"), NULL, &e);
    trace(s, true, &t, &e);
    trace(s, true, &v, &e);
    char *second = strchr(said, ';');
    ok(second && strncmp(said, second + 1, (size_t)(second - said)) == 0,
       "random numbers are the same in every trace");
    trace_free(&v);
    trace_free(&t);
    script_free(s);
    refused("local nn = require 'nn' return function() nn.param('w', {2}) end", ERR_SCRIPT,
            "m.lua:1: tensors exist only while forward", "no tensors outside of traces");
}

static void test_errors(void)
{
    refused(MODEL("local net = nn.sequential{nn.linear(8),\nnn.reshape{7}}",
                  "local h = net(x) return h"),
            ERR_SHAPE, "m.lua:2: layers.2 (reshape): ",
            "a shape error names line, path and kind of the layer");
    refused(MODEL("", "\nreturn x:matmul(nn.param('w', {9, 3}))"), ERR_SHAPE,
            "m.lua:3: ", "outside of layers the line of the call");
    refused(MODEL("local net = nn.sequential{nn.module{forward = function(self, x)\n"
                  "return x:matmul(x) end}}",
                  "return net(x)"),
            ERR_SHAPE, "m.lua:2: layers.1 (module): ", "in one's own layers the line within");
    refused(MODEL("local net = nn.sequential{nn.linear(8),\nnn.dropout('x')}", "return net(x)"),
            ERR_SCRIPT, "m.lua:2: nn.dropout: p must be", "wrong arguments name the call");
    refused(MODEL("local fc =\nnn.linear(8)", "return fc(nil)"), ERR_SCRIPT,
            "m.lua:2: linear1 (linear): ", "Lua's errors inside nn.lua name the layer's line");
    refused(MODEL("", "return fc(x)"), ERR_SCRIPT, "m.lua:2: attempt to call", "Lua's own as ever");
    refused(MODEL("nn.linear(4, {bais = false})", ""), ERR_SCRIPT,
            "m.lua:1: nn.linear: unknown option bais; did you mean bias?",
            "an unknown option names the nearest");
    refused(MODEL("nn.linaer(4)", ""), ERR_SCRIPT, "nn has no \"linaer\"; did you mean nn.linear?",
            "so does an unknown function");
    refused(MODEL("nn.linear = 1", ""), ERR_SCRIPT, "nn cannot be changed", "nn cannot be changed");
    refused(MODEL("", "return x < 1"), ERR_SCRIPT, "nn.lt", "comparisons by < are refused");
    refused(MODEL("", "if x == batch.y then end return x"), ERR_SCRIPT, "nn.eq", "and ==");
    refused(MODEL("", "return 'a' .. x"), ERR_SCRIPT, "nn.concat", "and ..");
    refused(MODEL("", "return x + {}"), ERR_SCRIPT, "m.lua:2: a tensor is needed here",
            "and tables as operands");
    refused(MODEL("", "return x:sum(0)"), ERR_SHAPE, "axes are 1 .. 2", "axis 0 is refused");
    refused(MODEL("", "return x.foo"), ERR_SCRIPT, "no field or method \"foo\"",
            "so are unknown methods");
    refused(MODEL("", "return 3"), ERR_SCRIPT, "forward must return a tensor", "forward's result");
    refused(MODEL("", "return {}"), ERR_SCRIPT, "empty table", "an empty one");
    refused(MODEL("", ""), ERR_SCRIPT, "returned nil", "none at all");
    refused(MODEL("", "while true do nn.relu(x) end"), ERR_SCRIPT, "over the budget",
            "a trace without end is ended");
    refused(
        MODEL("local m m = nn.module{forward = function(self, x) return m(x) end}", "return m(x)"),
        ERR_SCRIPT, "m.lua:1: ", "layers without end are ended");
    refused(MODEL("", "local ok, e = pcall(function() return nn.linear(3)(nil) end) return x + {}"),
            ERR_SCRIPT, "m.lua:2: a tensor", "a caught error leaves no layer behind");
}

/* ---- the same everywhere, and no memory ---- */

static const char big_model[] =
    MODEL("local net = nn.sequential{} for k, w in pairs{b = 8, a = 6, [2] = 4, z = 9} do"
          " net:add(nn.linear(w + math.random(3)), nn.layer_norm(), nn.gelu(), nn.dropout(0.1)) end"
          " net:add(nn.linear(5))",
          "return net(x + 0.1 * nn.randn(x.shape))");

static void print_hash(void)
{
    struct err e = {0};
    struct trace t = {0};
    struct script *s = load(big_model, NULL, &e);
    char hex[65] = "failed";

    if (s && trace(s, true, &t, &e) == ERR_OK)
        graph_hash(t.graph, hex);
    trace_free(&t);
    script_free(s);
    printf("%s\n", hex);
}

static void test_hash(const char *self)
{
    char cmd[512], first[80] = "", line[80];
    int same = 0;

    snprintf(cmd, sizeof cmd, "'%s' --hash", self);
    for (int i = 0; i < 5; i++) {
        FILE *f = popen(cmd, "r");
        if (!f || !fgets(line, sizeof line, f))
            line[0] = '\0';
        if (f)
            pclose(f);
        if (i == 0)
            memcpy(first, line, sizeof first);
        same += strlen(line) == 65 && strcmp(line, first) == 0;
    }
    ok(same == 5, "five processes make the same graph: %.12s", first);
}

static void test_no_memory(void)
{
    int bad = 0, failed = 0, n = 1;

    for (; n < 20000; n += 1 + n / 40) {
        struct err e = {0};
        struct trace t = {0};
        mem_fail_nth(n);
        struct script *s = load(big_model, NULL, &e);
        enum err_code rc = s ? trace(s, true, &t, &e) : e.code;
        mem_fail_nth(0);
        failed += rc != ERR_OK;
        bad += rc == ERR_OK ? !t.graph : e.msg[0] == '\0' || t.graph;
        trace_free(&t);
        script_free(s);
    }
    ok(bad == 0 && failed > 0, "every n-th allocation may fail (%d tries failed)", failed);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--hash") == 0)
        return print_hash(), 0;
    test_args();
    test_mlp();
    test_byhand();
    test_names();
    test_traces();
    test_errors();
    test_hash(argv[0]);
    test_no_memory();
    return tap_done();
}
