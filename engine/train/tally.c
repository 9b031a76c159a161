/* tally.c - sums over batches. */
#include "engine/train/tally.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

static void mean_init(struct tally_mean *m, const struct program_term *t, int n)
{
    m->n = n < HYPER_TERMS ? n : HYPER_TERMS;
    for (int i = 0; i < m->n; i++)
        m->coef[i] = t[i].coef;
}

enum err_code tally_init(struct tally *t, const struct program *p, struct err *e)
{
    memset(t, 0, sizeof *t);
    mean_init(&t->loss, p->term, p->n_terms);
    t->metric = mem_array((size_t)p->n_metrics + 1, sizeof *t->metric);
    if (!t->metric)
        return err_set(e, ERR_NOMEM, "metrics: out of memory");
    for (int i = 0; i < p->n_metrics; i++) {
        const struct program_metric *pm = &p->metric[i];
        struct tally_metric *tm = &t->metric[t->n_metrics++];
        int64_t count = 0;

        memcpy(tm->name, pm->name, sizeof tm->name);
        memcpy(tm->better, pm->better, sizeof tm->better);
        tm->is_mean = pm->is_mean;
        mean_init(&tm->mean, pm->term, pm->n_terms);
        for (int k = 0; k < pm->n_stats; k++)
            count += pm->stat[k].count;
        if (count > INT32_MAX)
            return err_set(e, ERR_SCRIPT, "metric %s sums %lld numbers; at most 2^31 fit", pm->name,
                           (long long)count);
        tm->n_stats = (int)count;
        tm->stats = mem_array((size_t)count + 1, sizeof *tm->stats);
        if (!tm->stats)
            return err_set(e, ERR_NOMEM, "metrics: out of memory");
    }
    return ERR_OK;
}

void tally_release(struct tally *t)
{
    for (int i = 0; i < t->n_metrics; i++)
        mem_free(t->metric[i].stats);
    mem_free(t->metric);
    memset(t, 0, sizeof *t);
}

static void mean_reset(struct tally_mean *m)
{
    memset(m->sum, 0, sizeof m->sum);
    memset(m->weight, 0, sizeof m->weight);
}

void tally_reset(struct tally *t)
{
    t->batches = 0;
    mean_reset(&t->loss);
    for (int i = 0; i < t->n_metrics; i++) {
        mean_reset(&t->metric[i].mean);
        memset(t->metric[i].stats, 0, (size_t)t->metric[i].n_stats * sizeof(double));
    }
}

static void mean_add(struct tally_mean *m, const struct program_term *t, const float *result)
{
    for (int i = 0; i < m->n; i++) {
        m->sum[i] += (double)result[t[i].sum];
        m->weight[i] += t[i].fixed ? t[i].fixed_weight : (double)result[t[i].weight];
    }
}

void tally_add(struct tally *t, const struct program *p, const float *result)
{
    t->batches++;
    mean_add(&t->loss, p->term, result);
    for (int i = 0; i < t->n_metrics; i++) {
        const struct program_metric *pm = &p->metric[i];
        struct tally_metric *tm = &t->metric[i];
        int at = 0;

        mean_add(&tm->mean, pm->term, result);
        for (int k = 0; k < pm->n_stats; k++)
            for (int64_t j = 0; j < pm->stat[k].count; j++)
                tm->stats[at++] += (double)result[pm->stat[k].first + j];
    }
}

double tally_mean_value(const struct tally_mean *m)
{
    double v = 0;

    if (m->n == 0)
        return NAN;
    for (int i = 0; i < m->n; i++)
        v += m->weight[i] != 0 ? m->coef[i] * m->sum[i] / m->weight[i] : NAN;
    return v;
}

int tally_values(const struct tally *t, struct script *s, const char *prefix, struct metric *out,
                 char (*names)[80], int cap)
{
    int n = 0;

    if (cap > 0) {
        snprintf(names[n], sizeof names[n], "%s.loss", prefix);
        out[n].value = tally_mean_value(&t->loss);
        out[n].name = names[n];
        n++;
    }
    for (int i = 0; i < t->n_metrics && n < cap; i++) {
        const struct tally_metric *m = &t->metric[i];

        snprintf(names[n], sizeof names[n], "%s.%s", prefix, m->name);
        out[n].name = names[n];
        out[n].value = m->is_mean ? tally_mean_value(&m->mean)
                                  : script_metric_value(s, i, m->stats, m->n_stats, NULL);
        n++;
    }
    return n;
}
