/* bench.c - this machine's ceilings, through the backend's own interface.
 *
 *     bench ceilings    matrix rate by shape, copy and triad bandwidth, the cost of a program of
 * one tiny op
 *
 * Prints one JSON object a line. Medians of several rounds; run it on a quiet machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/plan/plan.h"

enum { ROUNDS = 9 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median seconds of one run of the plan. */
static double time_plan(struct plan *p, const struct kern_bind *b, double at_least)
{
    static struct kern_hyper h;
    double t[ROUNDS];
    int runs = 1;

    plan_run(p, b, &h, NULL);
    for (;;) {
        double begin = clock_now();
        for (int i = 0; i < runs; i++)
            plan_run(p, b, &h, NULL);
        if (clock_now() - begin > at_least || runs > 1 << 20)
            break;
        runs *= 2;
    }
    for (int r = 0; r < ROUNDS; r++) {
        double begin = clock_now();
        for (int i = 0; i < runs; i++)
            plan_run(p, b, &h, NULL);
        t[r] = (clock_now() - begin) / runs;
    }
    qsort(t, ROUNDS, sizeof *t, by_value);
    return t[ROUNDS / 2];
}

/* A plan for y = f(inputs) made of one graph; inputs in KERN_INPUT, the result in KERN_RESULT. */
static double time_graph(const struct device *d, struct graph *g, int root)
{
    struct plan_leaf leaf[8];
    struct plan_root r = {.node = root, .space = KERN_RESULT};
    struct plan_request q = {.graph = g, .leaves = leaf, .roots = &r, .n_roots = 1};
    struct lowered *l = NULL;
    struct plan *p = NULL;
    struct device_mem in, out, arena;
    struct kern_bind b = {0};
    struct err e = {0};
    int64_t bytes = 0;
    double s = 0;

    for (int i = 0; i < graph_count(g); i++)
        if (graph_node(g, i)->op == OP_INPUT) {
            leaf[q.n_leaves++] = (struct plan_leaf){graph_node(g, i)->name, KERN_INPUT, bytes};
            bytes += (shape_count(&graph_node(g, i)->shape) * 4 + KERN_ALIGN - 1) / KERN_ALIGN *
                     KERN_ALIGN;
        }
    if (plan_lower(&q, &l, &e) != ERR_OK || plan_compile(d, l, &p, &e) != ERR_OK ||
        device_mem_new(d, bytes, &in, &e) != ERR_OK ||
        device_mem_new(d, shape_count(&graph_node(g, root)->shape) * 4, &out, &e) != ERR_OK ||
        device_mem_new(d, plan_arena_bytes(p), &arena, &e) != ERR_OK) {
        fprintf(stderr, "bench: %s\n", e.msg);
        exit(1);
    }
    device_zero(&in, &e);
    b.mem[KERN_INPUT] = in.mem;
    b.mem[KERN_RESULT] = out.mem;
    b.mem[KERN_ARENA] = arena.mem;
    s = time_plan(p, &b, 0.02);
    plan_free(p);
    lowered_free(l);
    device_mem_free(&in);
    device_mem_free(&out);
    device_mem_free(&arena);
    return s;
}

static void matmul(const struct device *d, int threads, int64_t m, int64_t n, int64_t k)
{
    struct graph *g = graph_new();
    int a = graph_input(g, "a", &(struct shape){.rank = 2, .dim = {m, k}}, DT_F32, NULL),
        b = graph_input(g, "b", &(struct shape){.rank = 2, .dim = {n, k}}, DT_F32, NULL);
    double s = time_graph(d, g, graph_matmul(g, a, b, false, true, NULL));

    printf("{\"what\":\"matmul\",\"threads\":%d,\"m\":%lld,\"n\":%lld,\"k\":%lld,\"us\":%.2f,"
           "\"gflops\":%.1f}\n",
           threads, (long long)m, (long long)n, (long long)k, s * 1e6,
           2e-9 * (double)m * (double)n * (double)k / s);
    graph_free(g);
}

/* b = a (copy), c = a + 3 b (triad), over 64 MiB tensors: bytes that cross memory a second. */
static void bandwidth(const struct device *d, int threads)
{
    struct shape big = {.rank = 1, .dim = {16 << 20}};
    struct graph *g = graph_new();
    int a = graph_input(g, "a", &big, DT_F32, NULL), b = graph_input(g, "b", &big, DT_F32, NULL);
    double bytes = (double)big.dim[0] * 4,
           copy = time_graph(d, g, graph_unary(g, (enum op)EW_NEG, a, NULL));
    double triad =
        time_graph(d, g,
                   graph_binary(g, (enum op)EW_ADD, a,
                                graph_scalar_op(g, (enum op)EW_MUL, b, 3, false, NULL), NULL));

    printf("{\"what\":\"copy\",\"threads\":%d,\"gbps\":%.1f}\n{\"what\":\"triad\",\"threads\":%d,"
           "\"gbps\":%.1f}\n",
           threads, 2e-9 * bytes / copy, threads, 3e-9 * bytes / triad);
    graph_free(g);
}

/* A program of one op of one element: what a run costs before any work. */
static void overhead(const struct device *d, int threads)
{
    struct graph *g = graph_new();
    int a = graph_input(g, "a", &(struct shape){.rank = 1, .dim = {1}}, DT_F32, NULL);

    printf("{\"what\":\"run\",\"threads\":%d,\"us\":%.3f}\n", threads,
           1e6 * time_graph(d, g, graph_unary(g, (enum op)EW_NEG, a, NULL)));
    graph_free(g);
}

static const int64_t shapes[][3] = {
    {64, 256, 784}, {64, 128, 256}, {256, 768, 768}, {1024, 1024, 1024}};

int main(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "ceilings") != 0) {
        fprintf(stderr, "usage: bench ceilings\n");
        return 2;
    }
    for (int threads = 1; threads <= 2; threads++) {
        struct device *d = NULL;
        struct err e = {0};

        if (device_open(&(struct device_opts){.want = "cpu", .threads = threads}, &d, &e) !=
            ERR_OK) {
            fprintf(stderr, "bench: %s\n", e.msg);
            return 1;
        }
        if (threads == 1)
            printf("{\"what\":\"device\",\"name\":\"%s\"}\n", d->describe);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            matmul(d, threads, shapes[i][0], shapes[i][1], shapes[i][2]);
        bandwidth(d, threads);
        overhead(d, threads);
        device_free(d);
    }
    return 0;
}
