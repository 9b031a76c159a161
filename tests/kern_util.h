/* kern_util.h - for tests of backends: open a plugin, write a small program, run it on one backend
 * or two and compare. One program at a time, in one struct kt; failures of a backend's calls are
 * TAP notes and `false`. */
#ifndef KERN_UTIL_H
#define KERN_UTIL_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/philox.h"
#include "tests/tap.h"

#define KT_BUFS 64
#define KT_OPS 32
#define KT_PARTS 160   /* views, instructions */
#define KT_ULP 0x1p-24 /* half a unit in the last place of an f32 in [1, 2): one rounding */

struct kt_dev {
    void *so;
    const struct kern_backend *b;
    struct kern_dev *d;
};

struct kt {
    struct kern_buf buf[KT_BUFS];
    void *init[KT_BUFS];   /* dense host contents before the run; NULL in the arena */
    void *got[2][KT_BUFS]; /* and after it, by `which` of kt_run */
    struct kern_op op[KT_OPS];
    struct kern_view view[KT_PARTS];
    struct kern_insn insn[KT_PARTS];
    struct kern_program p;
    struct kern_hyper h;
    int n_views, n_insns;
};

/* Opens cupola_NAME.so of $CUPOLA_PLUGIN_DIR (build/release without it). False: noted. */
static inline bool kt_open(struct kt_dev *k, const char *name)
{
    const char *dir = getenv("CUPOLA_PLUGIN_DIR");
    const struct kern_backend *(*entry)(uint32_t);
    struct kern_err e = {KERN_OK, ""};
    char path[4096];
    void *sym;

    memset(k, 0, sizeof *k);
    snprintf(path, sizeof path, "%s/cupola_%s.so", dir ? dir : "build/release", name);
    k->so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    sym = k->so ? dlsym(k->so, "cupola_backend") : NULL;
    if (!sym) {
        note("%s", dlerror());
        return false;
    }
    memcpy(&entry, &sym, sizeof entry);
    k->b = entry(KERN_ABI);
    if (!k->b || k->b->size != sizeof(struct kern_backend) ||
        k->b->open(0, &(struct kern_devopts){.threads = 2, .poison = true}, &k->d, &e) != KERN_OK) {
        note("%s does not open: %s", path, e.msg);
        return false;
    }
    return true;
}

/* The library stays loaded: its leaks can then be named. */
static inline void kt_close(struct kt_dev *k)
{
    if (k->b)
        k->b->close(k->d);
}

/* ---- writing a program ---- */

/* An empty program; frees what the last one held (zero the struct before its first use). */
static inline void kt_begin(struct kt *t)
{
    for (int i = 0; i < KT_BUFS; i++) {
        free(t->init[i]);
        free(t->got[0][i]);
        free(t->got[1][i]);
    }
    memset(t, 0, sizeof *t);
    t->p.bufs = t->buf;
    t->p.ops = t->op;
    t->h.seed = 0x9E3779B97F4A7C15u;
    t->h.step = 3;
    t->h.n = 32;
}

static inline size_t kt_bytes(const struct kt *t, int b)
{
    return (size_t)t->buf[b].count * (size_t)dtype_size(t->buf[b].dtype);
}

/* A new buffer, its host contents copied from init (zeros without one). Returns its index. */
static inline int kt_buf(struct kt *t, enum kern_space space, enum dtype dtype, int64_t count,
                         const void *init)
{
    const int b = t->p.n_bufs++;
    int64_t *end = &t->p.space_bytes[space];

    t->buf[b] = (struct kern_buf){.space = space, .dtype = dtype, .offset = *end, .count = count};
    *end += ((int64_t)kt_bytes(t, b) / KERN_ALIGN + 1) * KERN_ALIGN;
    if (space == KERN_ARENA)
        return b;
    t->init[b] = calloc(kt_bytes(t, b) + 1, 1);
    t->got[0][b] = calloc(kt_bytes(t, b) + 1, 1);
    t->got[1][b] = calloc(kt_bytes(t, b) + 1, 1);
    if (init)
        memcpy(t->init[b], init, kt_bytes(t, b));
    return b;
}

static inline int kt_in(struct kt *t, enum dtype dtype, int64_t count, const void *init)
{
    return kt_buf(t, KERN_INPUT, dtype, count, init);
}

static inline int kt_out(struct kt *t, enum dtype dtype, int64_t count)
{
    return kt_buf(t, KERN_RESULT, dtype, count, NULL);
}

/* An f32 input of values in [lo, hi), the same for the same seed. */
static inline int kt_rand(struct kt *t, enum kern_space space, int64_t count, float lo, float hi,
                          uint32_t seed)
{
    const int b = kt_buf(t, space, DT_F32, count, NULL);
    float *x = t->init[b];

    for (int64_t i = 0; i < count; i++)
        x[i] = lo + (hi - lo) * philox_uniform(philox_word(seed, PHILOX_SCRIPT, 1, 1, (uint64_t)i));
    return b;
}

/* An i32 input of values lo .. hi-1. */
static inline int kt_rand_i(struct kt *t, int64_t count, int32_t lo, int32_t hi, uint32_t seed)
{
    const int b = kt_in(t, DT_I32, count, NULL);
    int32_t *x = t->init[b];

    for (int64_t i = 0; i < count; i++) {
        const uint32_t word = philox_word(seed, PHILOX_SCRIPT, 2, 1, (uint64_t)i);
        x[i] = (int32_t)(lo + (int64_t)(word % (uint32_t)(hi - lo)));
    }
    return b;
}

/* A new op that names no buffer. */
static inline struct kern_op *kt_op(struct kt *t, enum kern_code code, const char *label)
{
    struct kern_op *op = &t->op[t->p.n_ops++];

    op->code = code;
    op->label = label;
    for (int k = 0; k < KERN_IN; k++)
        op->in[k] = -1;
    for (int k = 0; k < KERN_OUT; k++)
        op->out[k] = -1;
    return op;
}

/* A new fused group over [d0][d1][d2]; its views and instructions follow. */
static inline struct kern_fused *kt_fused(struct kt *t, int rank, int64_t d0, int64_t d1,
                                          int64_t d2)
{
    struct kern_fused *f = &kt_op(t, KERN_FUSED, "fused")->u.fused;

    f->rank = rank;
    f->dim[0] = d0;
    f->dim[1] = d1;
    f->dim[2] = d2;
    f->views = &t->view[t->n_views];
    f->insns = &t->insn[t->n_insns];
    return f;
}

static inline int kt_view(struct kt *t, struct kern_fused *f, int buf, int64_t offset, int64_t s0,
                          int64_t s1, int64_t s2)
{
    t->view[t->n_views++] =
        (struct kern_view){.buf = buf, .offset = offset, .stride = {s0, s1, s2}};
    return f->n_views++;
}

/* The instruction sets a new register, which is returned (-1 for STORE). */
static inline int kt_insn(struct kt *t, struct kern_fused *f, struct kern_insn n)
{
    n.dst = (int16_t)(n.code == KERN_I_STORE ? -1 : f->n_regs++);
    t->insn[t->n_insns++] = n;
    f->n_insns++;
    return n.dst;
}

static inline int kt_load(struct kt *t, struct kern_fused *f, enum dtype type, int view)
{
    return kt_insn(
        t, f,
        (struct kern_insn){
            .code = KERN_I_LOAD, .type = (uint8_t)type, .a = -1, .b = -1, .c = -1, .view = view});
}

static inline void kt_store(struct kt *t, struct kern_fused *f, enum dtype type, int reg, int view)
{
    kt_insn(t, f,
            (struct kern_insn){.code = KERN_I_STORE,
                               .type = (uint8_t)type,
                               .a = (int16_t)reg,
                               .b = -1,
                               .c = -1,
                               .view = view});
}

static inline int kt_ew(struct kt *t, struct kern_fused *f, enum ew ew, enum dtype type, int a,
                        int b, int c)
{
    return kt_insn(t, f,
                   (struct kern_insn){.code = KERN_I_EW,
                                      .ew = (uint8_t)ew,
                                      .type = (uint8_t)type,
                                      .a = (int16_t)a,
                                      .b = (int16_t)b,
                                      .c = (int16_t)c});
}

static inline int kt_const(struct kt *t, struct kern_fused *f, double value)
{
    return kt_insn(
        t, f,
        (struct kern_insn){
            .code = KERN_I_CONST, .type = DT_F32, .a = -1, .b = -1, .c = -1, .value = value});
}

/* ---- running it ---- */

static inline enum kern_status kt_transfer(const struct kt_dev *k, const struct kt *t, int which,
                                           const struct kern_bind *bind, bool out,
                                           struct kern_err *e)
{
    enum kern_status rc = KERN_OK;

    for (int b = 0; b < t->p.n_bufs && rc == KERN_OK; b++) {
        const struct kern_buf *x = &t->buf[b];
        const int64_t at = bind->base[x->space] + x->offset;
        if (!t->init[b])
            continue;
        rc = out ? k->b->copy_out(bind->mem[x->space], at, x->dtype, x->count, t->got[which][b], e)
                 : k->b->copy_in(bind->mem[x->space], at, x->dtype, x->count, t->init[b], e);
    }
    return rc;
}

static inline enum kern_status kt_steps(const struct kt_dev *k, struct kt *t,
                                        struct kern_plan *plan, const struct kern_bind *bind,
                                        int steps, void (*before)(struct kt *, int),
                                        struct kern_err *e)
{
    enum kern_status rc = KERN_OK;

    for (int s = 1; s <= steps && rc == KERN_OK; s++) {
        if (before)
            before(t, s);
        rc = k->b->plan_run(plan, bind, &t->h, e);
    }
    return rc;
}

/* Copies every buffer in, runs the program `steps` times (before(t, 1..), if any, changes t->h in
 * between), and copies every buffer out into got[which]. False: noted. */
static inline bool kt_run_steps(const struct kt_dev *k, struct kt *t, int which, int steps,
                                void (*before)(struct kt *, int))
{
    struct kern_err e = {KERN_OK, ""};
    struct kern_bind bind = {{NULL}, {0}};
    struct kern_plan *plan = NULL;
    struct kern_event *ev = NULL;
    enum kern_status rc = k->b->plan_new(k->d, &t->p, &plan, &e);

    for (int s = 0; s < KERN_SPACES && rc == KERN_OK; s++) {
        bind.base[s] = KERN_ALIGN; /* not 0, so that it matters */
        rc = t->p.space_bytes[s] == 0
                 ? KERN_OK
                 : k->b->mem_new(k->d, KERN_DEVICE, KERN_ALIGN + t->p.space_bytes[s], &bind.mem[s],
                                 &e);
    }
    if (rc == KERN_OK)
        rc = k->b->event_new(k->d, &ev, &e);
    if (rc == KERN_OK)
        rc = kt_transfer(k, t, which, &bind, false, &e);
    if (rc == KERN_OK)
        rc = kt_steps(k, t, plan, &bind, steps, before, &e);
    if (rc == KERN_OK)
        rc = kt_transfer(k, t, which, &bind, true, &e);
    if (rc == KERN_OK)
        rc = k->b->event_record(ev, &e);
    if (rc == KERN_OK)
        rc = k->b->event_wait(ev, -1, &e);
    if (rc != KERN_OK)
        note("%s: %s", k->b->name, e.msg);
    k->b->event_free(ev);
    k->b->plan_free(plan);
    for (int s = 0; s < KERN_SPACES; s++)
        k->b->mem_free(bind.mem[s]);
    return rc == KERN_OK;
}

static inline bool kt_run(const struct kt_dev *k, struct kt *t, int which)
{
    return kt_run_steps(k, t, which, 1, NULL);
}

/* ---- comparing ---- */

/* Both NaN, the same infinity, or within `roundings` half-ulps of max(|want|, floor). */
static inline bool kt_near(double got, double want, double roundings, double floor)
{
    if (!isfinite(got) || !isfinite(want))
        return got == want || (isnan(got) && isnan(want));
    return fabs(got - want) <= roundings * KT_ULP * fmax(fabs(want), floor);
}

/* got[0] against got[1] (the judge's) of one f32 buffer: every element by kt_near, and the mean
 * squared error below 1e-7 of the mean square: the first finds one bad element, the second many
 * that are a little off. */
static inline bool kt_same_f32(const struct kt *t, int b, double roundings, double floor,
                               const char *what)
{
    const float *got = t->got[0][b], *want = t->got[1][b];
    double error = 0, power = 0;

    for (int64_t i = 0; i < t->buf[b].count; i++) {
        if (!kt_near((double)got[i], (double)want[i], roundings, floor)) {
            note("%s: buffer %d [%lld]: got %.9g want %.9g", what, b, (long long)i, (double)got[i],
                 (double)want[i]);
            return false;
        }
        if (isfinite(want[i]) && fabsf(want[i]) < 1e18f) {
            error += pow((double)got[i] - (double)want[i], 2);
            power += pow((double)want[i], 2);
        }
    }
    if (error > 1e-7 * power + pow(roundings * KT_ULP * floor, 2) * (double)t->buf[b].count)
        note("%s: buffer %d: NMSE %g", what, b, error / power);
    else
        return true;
    return false;
}

/* Any buffer: f32 as above, f64 to 1e-12, integers and bools equal. */
static inline bool kt_same(const struct kt *t, int b, double roundings, double floor,
                           const char *what)
{
    if (t->buf[b].dtype == DT_F32)
        return kt_same_f32(t, b, roundings, floor, what);
    for (int64_t i = 0; t->buf[b].dtype == DT_F64 && i < t->buf[b].count; i++) {
        const double got = ((double *)t->got[0][b])[i], want = ((double *)t->got[1][b])[i];
        if (!kt_near(got, want, 1e-12 / KT_ULP, 0)) {
            note("%s: buffer %d [%lld]: got %.17g want %.17g", what, b, (long long)i, got, want);
            return false;
        }
    }
    if (t->buf[b].dtype == DT_F64 || !memcmp(t->got[0][b], t->got[1][b], kt_bytes(t, b)))
        return true;
    for (size_t i = 0; i < kt_bytes(t, b); i++) {
        if (((char *)t->got[0][b])[i] != ((char *)t->got[1][b])[i]) {
            note("%s: buffer %d: element %zu is not equal", what, b,
                 i / (size_t)dtype_size(t->buf[b].dtype));
            break;
        }
    }
    return false;
}

/* Runs on both and compares every buffer that has host contents. */
static inline bool kt_agree(const struct kt_dev *dev, const struct kt_dev *judge, struct kt *t,
                            double roundings, double floor, const char *what)
{
    bool same = kt_run(dev, t, 0) && kt_run(judge, t, 1);

    for (int b = 0; same && b < t->p.n_bufs; b++)
        if (t->init[b])
            same = kt_same(t, b, roundings, floor, what);
    if (!same)
        note("failed: %s", what);
    return same;
}

#endif
