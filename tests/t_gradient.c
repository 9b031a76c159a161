/* t_gradient.c - the walk: what reaches what, how it adds up, and what is refused with its line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "grad_probe.h"
#include "tap.h"

static int values(struct probe *p, struct shape s)
{
    return probe_leaf(p, s, -1, 1);
}

static int make_layer_norm(struct probe *p)
{
    int x = values(p, probe_shape(3, 2, 2, 5)),
        gain = probe_leaf(p, probe_shape(1, 5, 0, 0), 0.5, 2);
    int in[3] = {x, gain, values(p, probe_shape(1, 5, 0, 0))};
    struct op_attr a = {.eps = 1e-3f};
    return graph_add(p->g, OP_LAYER_NORM, in, 3, &a, &p->e);
}

/* Ties share: half each for max and min, equal parts for rmax. */
static void check_ties(void)
{
    struct shape s = {.rank = 1, .dim = {4}};
    struct probe p = {.g = graph_new()};
    struct graph_eval o = {.leaf = probe_fill, .arg = &p};
    int x = probe_leaf(&p, s, 0, 1), two[2] = {x, probe_leaf(&p, s, 0, 1)}, g[2], y, w;
    double **v;

    for (int i = 0; i < 4; i++)
        p.value[0][i] = i == 3 ? 0 : 2, p.value[1][i] = 2;
    y = graph_binary(p.g, (enum op)EW_MAX, two[0], two[1], &p.e);
    w = graph_const(p.g, 1, &s, DT_F32, &p.e);
    ok(graph_gradient(p.g, &y, &w, 1, two, 2, g, &p.e) == ERR_OK, "max with ties");
    v = graph_values(p.g, &o);
    ok(v[g[0]][0] == 0.5 && v[g[1]][0] == 0.5 && v[g[0]][3] == 0 && v[g[1]][3] == 1,
       "max: half to each of two equals");
    graph_values_free(v, p.g);
    s.rank = 0;
    y = graph_reduce(p.g, OP_RMAX, x, 1, false, &p.e);
    w = graph_const(p.g, 1, &s, DT_F32, &p.e);
    ok(graph_gradient(p.g, &y, &w, 1, &x, 1, g, &p.e) == ERR_OK, "rmax with ties");
    v = graph_values(p.g, &o);
    ok(fabs(v[g[0]][1] - 1.0 / 3) < 1e-12 && v[g[0]][3] == 0, "rmax: a third to each of three");
    graph_values_free(v, p.g);
    graph_free(p.g);
}

static void check_whole_numbers(void)
{
    struct probe p = {.g = graph_new()};
    struct op_attr a = {.axis = 0};
    int x = values(&p, probe_shape(1, 4, 0, 0)), g = 0;
    int i = graph_cast(p.g, x, DT_I32, &p.e);
    int y = graph_cast(p.g, graph_binary(p.g, (enum op)EW_MUL, i, i, &p.e), DT_F32, &p.e);
    int w = graph_const(p.g, 1, &graph_node(p.g, y)->shape, DT_F32, &p.e), in[2] = {y, i}, t;

    ok(graph_gradient(p.g, &y, &w, 1, &x, 1, &g, &p.e) == ERR_OK && g == -1,
       "nothing goes back through whole numbers");
    t = graph_add(p.g, OP_TAKE, in, 2, &a, &p.e);
    ok(graph_gradient(p.g, &t, &w, 1, &x, 1, &g, &p.e) == ERR_OK && g == -1, "nor through indices");
    graph_free(p.g);
}

/* A parameter behind an op without a gradient is refused, and the line said; the same op elsewhere
 * is not. */
static void check_refused(void)
{
    struct probe p = {.g = graph_new()};
    struct err e = {0};
    int y, w, g[3], x, u, v;

    graph_at(p.g, "layers.2", "mlp.lua:7");
    y = make_layer_norm(&p);
    graph_at(p.g, "loss", "mlp.lua:9");
    w = graph_const(p.g, 1, &graph_node(p.g, y)->shape, DT_F32, &p.e);
    ok(graph_gradient(p.g, &y, &w, 1, p.leaf, 3, g, &e) == ERR_OK, "layer_norm has a gradient");
    ok(strcmp(graph_node(p.g, g[0])->where, "mlp.lua:7") == 0 &&
           strcmp(graph_node(p.g, g[0])->path, "layers.2") == 0,
       "gradient nodes stand at the line of their node");
    x = graph_const(p.g, 2, &(struct shape){.rank = 0}, DT_F32, &e);
    ok(strcmp(graph_node(p.g, x)->where, "mlp.lua:9") == 0,
       "and the line in force is the old one after it");
    ok(graph_gradient(p.g, &g[0], &w, 1, p.leaf, 1, &x, &e) == ERR_SHAPE,
       "its gradient's gradient is refused");
    ok(strstr(e.msg, "layer_norm_grad") && strstr(e.msg, "mlp.lua:7") && strstr(e.msg, "layers.2"),
       "with op, path and line: %s", e.msg);
    u = graph_param(p.g, "q", &(struct shape){.rank = 1, .dim = {5}}, &e);
    v = graph_binary(p.g, (enum op)EW_MUL, u, g[0], &e);
    ok(graph_gradient(p.g, &v, &w, 1, &u, 1, &x, &e) == ERR_OK && x >= 0,
       "where no wanted leaf lies behind it, it is a value like others");
    graph_free(p.g);
}

static void check_walk(void)
{
    struct probe p = {.g = graph_new()};
    struct graph_eval o = {.leaf = probe_fill, .arg = &p};
    struct shape s = {.rank = 1, .dim = {3}};
    int x = probe_leaf(&p, s, -1, 1), h = graph_unary(p.g, (enum op)EW_EXP, x, &p.e),
        y = graph_unary(p.g, (enum op)EW_SIN, h, &p.e);
    int one = graph_const(p.g, 1, &s, DT_F32, &p.e), nodes[2] = {y, h}, seeds[2] = {one, one},
        wrt[3] = {x, h, y}, g[3];
    int far = probe_leaf(&p, s, -1, 1),
        wrong = graph_const(p.g, 1, &(struct shape){.rank = 1, .dim = {4}}, DT_F32, &p.e);
    double **v;

    ok(graph_gradient(p.g, nodes, seeds, 2, wrt, 3, g, &p.e) == ERR_OK,
       "several values, several wanted");
    v = graph_values(p.g, &o);
    ok(fabs(v[g[1]][0] - (cos(v[h][0]) + 1)) < 1e-12,
       "a value that is wanted and is also a source has both");
    ok(fabs(v[g[0]][0] - (cos(v[h][0]) + 1) * v[h][0]) < 1e-12, "and they go on to the leaf");
    ok(v[g[2]][0] == 1, "the gradient of the value itself is its seed");
    graph_values_free(v, p.g);
    ok(graph_gradient(p.g, &y, &one, 1, &far, 1, g, &p.e) == ERR_OK && g[0] == -1,
       "what nothing reaches has none");
    ok(graph_gradient(p.g, &y, &wrong, 1, &x, 1, g, &p.e) != ERR_OK,
       "a seed of another shape is refused: %s", p.e.msg);
    graph_free(p.g);
}

/* No memory at any point: an error with its own code, and nothing is lost. */
static void check_no_memory(void)
{
    int failed = 0, wrong = 0;

    for (long n = 1; n < 400; n++) {
        struct probe p = {.g = graph_new()};
        int y = make_layer_norm(&p), w, g[3];
        enum err_code rc;

        w = graph_const(p.g, 1, &graph_node(p.g, y)->shape, DT_F32, &p.e);
        mem_fail_nth(n);
        rc = graph_gradient(p.g, &y, &w, 1, p.leaf, 3, g, &p.e);
        mem_fail_nth(0);
        failed += rc != ERR_OK;
        wrong += rc != ERR_OK && (rc != ERR_NOMEM || p.e.code != ERR_NOMEM);
        graph_free(p.g);
        if (rc == ERR_OK)
            break;
    }
    ok(failed > 0 && wrong == 0, "out of memory is said as such (%d times, %d wrong)", failed,
       wrong);
}

int main(void)
{
    check_ties();
    check_whole_numbers();
    check_refused();
    check_walk();
    check_no_memory();
    return tap_done();
}
