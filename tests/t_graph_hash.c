/* t_graph_hash.c - the hash of a graph and the joining of equal nodes see every field of a node; a
 * graph is drawn as DOT. */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/graph.h"
#include "tap.h"

/* A graph of one op whose attributes nobody but the hash reads. */
static struct graph *one(const struct op_attr *a)
{
    struct graph *g = graph_new();
    struct err e;

    graph_add(g, OP_CONST, NULL, 0, a, &e);
    return g;
}

static const struct {
    const char *name;
    struct op_attr a;
} fields[] = {
#define S .shape = {.rank = 1, .dim = {2}}
    {"nothing", {S}},
    {"shape.dim", {.shape = {.rank = 1, .dim = {3}}}},
    {"shape.rank", {.shape = {.rank = 2, .dim = {2, 1}}}},
    {"shape.rank 0", {.shape = {.rank = 0}}},
    {"dtype", {S, .dtype = DT_I32}},
    {"axis", {S, .axis = 1}},
    {"axes", {S, .axes = 1}},
    {"keep", {S, .keep = true}},
    {"ta", {S, .ta = true}},
    {"tb", {S, .tb = true}},
    {"reverse", {S, .reverse = true}},
    {"exclusive", {S, .exclusive = true}},
    {"has_ignore", {S, .has_ignore = true}},
    {"per_sample", {S, .per_sample = true}},
    {"perm", {S, .perm = {1}}},
    {"last of perm", {S, .perm = {[SHAPE_RANK - 1] = 1}}},
    {"start", {S, .start = {1}}},
    {"last of start", {S, .start = {[SHAPE_RANK - 1] = 1}}},
    {"stop", {S, .stop = {1}}},
    {"step", {S, .step = {1}}},
    {"k", {S, .k = 1}},
    {"high bits of k", {S, .k = (int64_t)1 << 32}},
    {"value", {S, .value = 1}},
    {"eps", {S, .eps = 1}},
    {"slot", {S, .slot = 1}},
    {"stream", {S, .stream = 1}},
#undef S
};

enum { FIELDS = sizeof fields / sizeof *fields };

static void check_fields(void)
{
    char hex[FIELDS][65], again[65];

    for (int i = 0; i < FIELDS; i++) {
        struct graph *g = one(&fields[i].a), *c = graph_clone(g);
        bool other = true;

        graph_hash(g, hex[i]);
        graph_hash(c, again);
        for (int k = 0; k < i; k++)
            other = other && strcmp(hex[i], hex[k]) != 0;
        ok(graph_count(g) == 1 && other && strcmp(hex[i], again) == 0, "the hash sees %s",
           fields[i].name);
        graph_free(g);
        graph_free(c);
    }
}

/* The same of all of them side by side in one graph: none is taken for another. */
static void check_apart(void)
{
    struct graph *g = graph_new();
    struct err e;
    int roots[2 * FIELDS], twice = 0, joined = 0;

    for (int i = 0; i < 2 * FIELDS; i++)
        roots[i] = graph_add(g, OP_CONST, NULL, 0, &fields[i % FIELDS].a, &e);
    ok(graph_optimize(g, roots, 2 * FIELDS, &e) == ERR_OK && graph_count(g) == FIELDS,
       "each field keeps two nodes apart, and equal ones are one");
    for (int i = 0; i < FIELDS; i++) {
        joined += roots[i] == roots[i + FIELDS];
        for (int k = 0; k < i; k++)
            twice += roots[i] == roots[k];
    }
    ok(joined == FIELDS && twice == 0, "roots say which (%d, %d)", joined, twice);
    graph_free(g);
}

static void hash_of_two(enum op op, bool swap, const char *name, bool param, char *hex)
{
    struct graph *g = graph_new();
    struct shape s = {.rank = 1, .dim = {2}};
    struct err e;
    int in[2];

    in[swap] = graph_input(g, "x", &s, DT_F32, &e);
    in[!swap] = param ? graph_param(g, name, &s, &e) : graph_input(g, name, &s, DT_F32, &e);
    graph_add(g, op, in, 2, NULL, &e);
    graph_hash(g, hex);
    graph_free(g);
}

static void check_nodes(void)
{
    char a[65], b[65];

    hash_of_two((enum op)EW_SUB, false, "y", true, a);
    hash_of_two((enum op)EW_SUB, false, "y", true, b);
    ok(strcmp(a, b) == 0, "built twice, the hash is one");
    ok(strcmp(a, "") != 0 && strspn(a, "0123456789abcdef") == 64, "of 64 digits");
    hash_of_two((enum op)EW_ADD, false, "y", true, b);
    ok(strcmp(a, b) != 0, "the op counts");
    hash_of_two((enum op)EW_SUB, true, "y", true, b);
    ok(strcmp(a, b) != 0, "the order of inputs counts");
    hash_of_two((enum op)EW_SUB, false, "z", true, b);
    ok(strcmp(a, b) != 0, "the name of a parameter counts");
    hash_of_two((enum op)EW_SUB, false, "y", false, b);
    ok(strcmp(a, b) != 0, "what kind of leaf it is counts");
}

/* What a caller left in the unused sizes of a shape is no difference. */
static void check_garbage(void)
{
    struct op_attr a = {.shape = {.rank = 1, .dim = {2}}}, b = a;
    struct graph *g, *h;
    char x[65], y[65];

    b.shape.dim[1] = 7;
    b.shape.dim[5] = -1;
    g = one(&a);
    h = one(&b);
    graph_hash(g, x);
    graph_hash(h, y);
    ok(strcmp(x, y) == 0, "unused sizes of a shape do not count");
    ok(graph_node(h, 0)->shape.dim[1] == 0 && graph_node(h, 0)->shape.dim[5] == 0,
       "they are 0 in the node");
    graph_free(g);
    graph_free(h);
}

static void check_dot(void)
{
    static const char want[] = "digraph model {\n"
                               "  rankdir=TB;\n"
                               "  node [shape=box, fontname=\"monospace\"];\n"
                               "  n0 [label=\"input [2, 3]\\nx\", style=rounded];\n"
                               "  n1 [label=\"param [3]\\na\\\"b\\\\c d\", style=rounded];\n"
                               "  n2 [label=\"broadcast [2, 3]\\nlayers.1\"];\n"
                               "  n1 -> n2;\n"
                               "  n3 [label=\"add [2, 3]\\nlayers.1\"];\n"
                               "  n0 -> n3;\n"
                               "  n2 -> n3;\n"
                               "}\n";
    struct graph *g = graph_new();
    struct shape s = {.rank = 2, .dim = {2, 3}}, r = {.rank = 1, .dim = {3}};
    struct str out = {0};
    struct err e;
    int x = graph_input(g, "x", &s, DT_F32, &e), b = graph_param(g, "a\"b\\c\nd", &r, &e);

    graph_at(g, "layers.1", NULL);
    graph_binary(g, (enum op)EW_ADD, x, b, &e);
    graph_print_dot(g, &out);
    if (!ok(strcmp(str_c(&out), want) == 0, "a graph as DOT, nothing of a name ends a label"))
        note("%s", str_c(&out));
    str_reset(&out);
    graph_free(g);
    g = graph_new();
    graph_print_dot(g, &out);
    ok(strstr(str_c(&out), "digraph") && strstr(str_c(&out), "->") == NULL, "an empty graph too");
    str_reset(&out);
    graph_print(g, &out);
    ok(out.len == 0, "which has no lines");
    str_release(&out);
    graph_free(g);
}

/* Path and line are those in force, copied, and end with NULL. */
static void check_at(void)
{
    struct graph *g = graph_new();
    struct shape s = {0};
    struct err e;
    char path[16] = "layers.1", where[16] = "a.lua:3";
    int x, y;

    graph_at(g, path, where);
    memset(path, 'x', 3);
    memset(where, 'x', 3);
    x = graph_param(g, "p", &s, &e);
    graph_at(g, NULL, NULL);
    y = graph_unary(g, (enum op)EW_EXP, x, &e);
    ok(strcmp(graph_node(g, x)->path, "layers.1") == 0 &&
           strcmp(graph_node(g, x)->where, "a.lua:3") == 0,
       "a node carries path and line, copied");
    ok(strcmp(graph_node(g, y)->path, "") == 0 && strcmp(graph_node(g, y)->where, "") == 0,
       "NULL ends them");
    ok(strcmp(graph_node(g, y)->name, "") == 0, "an op has no name");
    graph_free(g);
}

int main(void)
{
    check_fields();
    check_apart();
    check_nodes();
    check_garbage();
    check_dot();
    check_at();
    return tap_done();
}
