/* grad_probe.c - central differences. */
#include "grad_probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct shape probe_shape(int rank, int64_t a, int64_t b, int64_t c)
{
    struct shape s = {.rank = rank, .dim = {a, b, c}};
    for (int d = rank; d < SHAPE_RANK; d++)
        s.dim[d] = 0;
    return s;
}

/* n values over lo .. hi, one a stratum, in a mixed order: all differ, and none is at the border of
 * two. */
static void spread(double *out, int64_t n, double lo, double hi, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)i;
    for (int64_t i = n - 1; i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        int64_t j = (int64_t)(seed >> 8) % (i + 1);
        double t = out[i];
        out[i] = out[j];
        out[j] = t;
    }
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] =
            lo + (hi - lo) * (out[i] + 0.4 + 0.2 * (double)(seed >> 8) / 16777216.0) / (double)n;
    }
}

int probe_leaf(struct probe *p, struct shape s, double lo, double hi)
{
    char name[16];

    snprintf(name, sizeof name, "p%d", p->n);
    spread(p->value[p->n], shape_count(&s), lo, hi, 77u + (uint32_t)p->n);
    p->leaf[p->n] = graph_param(p->g, name, &s, &p->e);
    return p->leaf[p->n++];
}

void probe_fill(void *arg, const struct node *n, double *out)
{
    const struct probe *p = arg;
    int64_t count = shape_count(&n->shape);

    if (n->name[0] == 'p')
        memcpy(out, p->value[n->name[1] - '0'], (size_t)count * sizeof *out);
    else if (n->name[0] == 'w')
        memcpy(out, p->w, (size_t)count * sizeof *out);
    else if (n->name[0] == 'v')
        memcpy(out, p->v, (size_t)count * sizeof *out);
    else /* labels, indices: 0 1 2 .. but for a repeat */
        for (int64_t i = 0; i < count; i++)
            out[i] = (double)(i == 2 ? 0 : i % 3);
}

/* ---- the comparison ---- */

static double dot(struct probe *p, int y, const double *weight)
{
    struct graph_eval o = {.leaf = probe_fill, .arg = p, .seed = 5, .step = 3};
    double **v = graph_values(p->g, &o), sum = 0;

    for (int64_t i = 0; v && i < shape_count(&graph_node(p->g, y)->shape); i++)
        sum += v[y][i] * weight[i];
    graph_values_free(v, p->g);
    return sum;
}

/* The largest error of gradient node `grad` (-1: zero) of sum(y * weight) by leaf k. */
double probe_worst(struct probe *p, int y, const double *weight, int k, int grad)
{
    struct graph_eval o = {.leaf = probe_fill, .arg = p, .seed = 5, .step = 3};
    double **v = graph_values(p->g, &o), most = 0;
    int64_t n = shape_count(&graph_node(p->g, p->leaf[k])->shape);

    if (grad >= 0 &&
        !shape_equal(&graph_node(p->g, grad)->shape, &graph_node(p->g, p->leaf[k])->shape))
        most = HUGE_VAL;
    for (int64_t i = 0; v && i < n && most < HUGE_VAL; i++) {
        double x = p->value[k][i], h = 6.055e-6 * fmax(1, fabs(x)), up, down, want, d;
        p->value[k][i] = x + h;
        up = dot(p, y, weight);
        p->value[k][i] = x - h;
        down = dot(p, y, weight);
        p->value[k][i] = x;
        want = (up - down) / (2 * h);
        d = fabs((grad >= 0 ? v[grad][i] : 0) - want) / fmax(1, fabs(want));
        if (!(d <= most)) /* a NaN counts */
            most = isnan(d) ? HUGE_VAL : d;
    }
    graph_values_free(v, p->g);
    return most;
}

int probe_weights(struct probe *p, const char *name, const struct shape *s)
{
    spread(name[0] == 'w' ? p->w : p->v, shape_count(s), 0.5, 1.5, 99);
    return graph_input(p->g, name, s, DT_F32, &p->e);
}
