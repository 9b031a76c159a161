/* fused.c - fused elementwise groups: an interpreter over tiles.
 *
 * A register is a tile of CPU_TILE elements of 4 bytes (f32, i32, bool as 0 or 1). A tile is that
 * many consecutive elements of the iteration space, the last one fewer: memory is touched for those
 * alone, arithmetic runs over whole tiles. A chunk, the unit of the thread pool, is CHUNK_TILES of
 * them. Loads of a tile come before its stores, so a group may work in place. */
#include "kernels/cpu/fused.h"

#include "kernels/philox.h"

enum { CHUNK_TILES = 8 };

union tile {
    float f[CPU_TILE];
    int32_t i[CPU_TILE];
};

/* One tile of a run. */
struct place {
    const struct cpu_run *r;
    const struct fused *g;
    union tile *reg;
    int64_t begin; /* first element */
    int n;         /* elements */
};

/* ---- memory ---- */

/* Contiguous and broadcast runs have loops of their own, which the compiler makes vectors of. */
#define LOAD_RUN(name, dst_t, src_t, expr)                                                         \
    static void name(dst_t *dst, const src_t *src, int64_t stride, int n)                          \
    {                                                                                              \
        if (stride == 1)                                                                           \
            for (int i = 0; i < n; i++) {                                                          \
                const src_t v = src[i];                                                            \
                dst[i] = (expr);                                                                   \
            }                                                                                      \
        else if (stride == 0)                                                                      \
            for (int i = 0; i < n; i++) {                                                          \
                const src_t v = *src;                                                              \
                dst[i] = (expr);                                                                   \
            }                                                                                      \
        else                                                                                       \
            for (int i = 0; i < n; i++) {                                                          \
                const src_t v = src[i * stride];                                                   \
                dst[i] = (expr);                                                                   \
            }                                                                                      \
    }
LOAD_RUN(load_f32, float, float, v)
LOAD_RUN(load_i32, int32_t, int32_t, v)
LOAD_RUN(load_u8, int32_t, uint8_t, v)
LOAD_RUN(load_bool, int32_t, uint8_t, v != 0)

#define STORE_RUN(name, dst_t, src_t, expr)                                                        \
    static void name(dst_t *dst, int64_t stride, const src_t *src, int n)                          \
    {                                                                                              \
        if (stride == 1)                                                                           \
            for (int i = 0; i < n; i++) {                                                          \
                const src_t v = src[i];                                                            \
                dst[i] = (dst_t)(expr);                                                            \
            }                                                                                      \
        else                                                                                       \
            for (int i = 0; i < n; i++) {                                                          \
                const src_t v = src[i];                                                            \
                dst[i * stride] = (dst_t)(expr);                                                   \
            }                                                                                      \
    }
STORE_RUN(store_f32, float, float, v)
STORE_RUN(store_i32, int32_t, int32_t, v)
STORE_RUN(store_byte, uint8_t, int32_t, v)

static void load_run(enum dtype t, union tile *dst, int at, const char *buf, int64_t from,
                     int64_t stride, int n)
{
    const char *src = buf + from * dtype_size(t);

    if (t == DT_F32)
        load_f32(dst->f + at, (const float *)(const void *)src, stride, n);
    else if (t == DT_I32)
        load_i32(dst->i + at, (const int32_t *)(const void *)src, stride, n);
    else if (t == DT_U8)
        load_u8(dst->i + at, (const uint8_t *)src, stride, n);
    else
        load_bool(dst->i + at, (const uint8_t *)src, stride, n);
}

static void store_run(enum dtype t, char *buf, int64_t to, int64_t stride, const union tile *src,
                      int at, int n)
{
    char *dst = buf + to * dtype_size(t);

    if (t == DT_F32)
        store_f32((float *)(void *)dst, stride, src->f + at, n);
    else if (t == DT_I32)
        store_i32((int32_t *)(void *)dst, stride, src->i + at, n);
    else
        store_byte((uint8_t *)dst, stride, src->i + at, n);
}

/* Walks the elements of a tile in runs along the view's last dimension. */
struct walk {
    const struct fused_view *v;
    int64_t index[KERN_RANK];
    int64_t at; /* element of the buffer */
};

static struct walk walk_begin(const struct fused_view *v, int64_t element)
{
    struct walk w = {.v = v, .at = v->offset};

    for (int d = v->rank - 1; d >= 0; d--) {
        w.index[d] = element % v->dim[d];
        element /= v->dim[d];
        w.at += w.index[d] * v->stride[d];
    }
    return w;
}

/* Elements of the run that begins here, at most `most`. */
static int walk_run(const struct walk *w, int most)
{
    const int last = w->v->rank - 1;
    const int64_t left = w->v->dim[last] - w->index[last];
    return left < most ? (int)left : most;
}

static void walk_on(struct walk *w, int n)
{
    int d = w->v->rank - 1;

    w->index[d] += n;
    w->at += n * w->v->stride[d];
    for (; d > 0 && w->index[d] == w->v->dim[d]; d--) {
        w->at += w->v->stride[d - 1] - w->v->dim[d] * w->v->stride[d];
        w->index[d] = 0;
        w->index[d - 1]++;
    }
}

static void tile_load(const struct place *t, const struct fused_insn *n)
{
    const struct fused_view *v = &t->g->views[n->n.view];
    union tile *dst = &t->reg[n->n.dst];
    struct walk w;

    if (v->rank == 0) {
        load_run(v->dtype, dst, 0, t->r->buf[v->buf], v->offset, 0, CPU_TILE);
        return;
    }
    w = walk_begin(v, t->begin);
    for (int i = 0, run; i < t->n; i += run) {
        run = walk_run(&w, t->n - i);
        load_run(v->dtype, dst, i, t->r->buf[v->buf], w.at, v->stride[v->rank - 1], run);
        walk_on(&w, run);
    }
}

/* ---- conversions ---- */

static int32_t to_i32(float v)
{
    const float c = v >= -0x1p31f ? v : -0x1p31f; /* NaN too, for now */
    const int32_t i = (int32_t)(c < 0x1p31f ? c : 0);

    return v != v ? 0 : v >= 0x1p31f ? INT32_MAX : i;
}

/* dst = src as `type`, which may be u8: its low byte. */
static void convert(union tile *dst, const union tile *src, enum reg_type from, int type)
{
    const enum reg_type to = reg_type_of(type);

    if (from == REG_FLOAT && to == REG_INT)
        for (int i = 0; i < CPU_TILE; i++)
            dst->i[i] = to_i32(src->f[i]);
    else if (from == REG_FLOAT && to == REG_BOOL)
        for (int i = 0; i < CPU_TILE; i++)
            dst->i[i] = src->f[i] != 0;
    else if (from != REG_FLOAT && to == REG_FLOAT)
        for (int i = 0; i < CPU_TILE; i++)
            dst->f[i] = (float)src->i[i];
    else if (from == REG_INT && to == REG_BOOL)
        for (int i = 0; i < CPU_TILE; i++)
            dst->i[i] = src->i[i] != 0;
    else if (dst != src)
        memcpy(dst, src, sizeof *dst);
    for (int i = 0; type == DT_U8 && i < CPU_TILE; i++)
        dst->i[i] &= 0xff;
}

static void tile_store(const struct place *t, const struct fused_insn *n)
{
    const struct fused_view *v = &t->g->views[n->n.view];
    const union tile *src = &t->reg[n->n.a];
    union tile other;
    struct walk w;

    if (n->from != n->to || v->dtype == DT_U8) {
        convert(&other, src, n->from, (int)v->dtype);
        src = &other;
    }
    if (v->rank == 0) {
        store_run(v->dtype, t->r->buf[v->buf], v->offset, 0, src, 0, 1);
        return;
    }
    w = walk_begin(v, t->begin);
    for (int i = 0, run; i < t->n; i += run) {
        run = walk_run(&w, t->n - i);
        store_run(v->dtype, t->r->buf[v->buf], w.at, v->stride[v->rank - 1], src, i, run);
        walk_on(&w, run);
    }
}

/* ---- what makes values ---- */

static void fill_f32(union tile *dst, float v)
{
    for (int i = 0; i < CPU_TILE; i++)
        dst->f[i] = v;
}

static void tile_const(const struct place *t, const struct fused_insn *n)
{
    union tile *dst = &t->reg[n->n.dst];
    const double v = n->n.value;
    int32_t i = v != v ? 0 : v >= INT32_MAX ? INT32_MAX : v <= INT32_MIN ? INT32_MIN : (int32_t)v;

    if (n->to == REG_FLOAT) {
        fill_f32(dst, (float)v);
        return;
    }
    if (n->to == REG_BOOL)
        i = v != 0;
    if (n->n.type == DT_U8)
        i &= 0xff;
    for (int k = 0; k < CPU_TILE; k++)
        dst->i[k] = i;
}

static void tile_iota(const struct place *t, const struct fused_insn *n)
{
    union tile *dst = &t->reg[n->n.dst];
    int64_t index = t->begin / n->inner % n->extent, within = t->begin % n->inner;

    for (int i = 0; i < t->n; i++) {
        if (n->to == REG_FLOAT)
            dst->f[i] = (float)(int32_t)(uint32_t)index;
        else
            dst->i[i] = (int32_t)(uint32_t)index;
        if (++within < n->inner)
            continue;
        within = 0;
        index = index + 1 < n->extent ? index + 1 : 0;
    }
    if (n->n.type == DT_U8)
        convert(dst, dst, REG_INT, DT_U8);
}

/* The words of a tile's elements. Blocks of four words stand side by side, so that the rounds run
 * over vectors. */
static void tile_words(const struct place *t, const struct kern_insn *n, uint32_t *word)
{
    enum { BLOCKS = CPU_TILE / 4 + 1 };
    uint32_t lane[4][BLOCKS], all[4 * BLOCKS];
    const struct kern_hyper *h = t->r->hyper;
    uint64_t first = (uint64_t)t->begin;

    if (n->per_sample)
        first += h->sample_base * (uint64_t)t->g->per_row;
    for (int i = 0; i < BLOCKS; i++) {
        const struct philox b = philox_block(h->seed, PHILOX_GRAPH, n->stream, (uint32_t)h->step,
                                             first / 4 + (uint64_t)i);
        lane[0][i] = b.v[0];
        lane[1][i] = b.v[1];
        lane[2][i] = b.v[2];
        lane[3][i] = b.v[3];
    }
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < 4; k++)
            all[4 * i + k] = lane[k][i];
    memcpy(word, all + first % 4, CPU_TILE * sizeof *word);
}

/* Words >> 8 from here up are kept: ceil(p * 2^24). */
static uint32_t drop_below(float p)
{
    const float v = p > 0 ? (p < 1 ? p : 1) * 0x1p24f : 0;
    const int32_t i = (int32_t)v;
    return (uint32_t)(i + ((float)i < v));
}

static void tile_random(const struct place *t, const struct fused_insn *n)
{
    union tile *dst = &t->reg[n->n.dst];
    uint32_t word[CPU_TILE];

    tile_words(t, &n->n, word);
    if (n->n.code == KERN_I_UNIFORM) {
        for (int i = 0; i < CPU_TILE; i++)
            dst->f[i] = philox_uniform(word[i]);
    } else if (n->n.code == KERN_I_BITS) {
        memcpy(dst, word, sizeof *dst);
        if (n->n.type == DT_U8)
            convert(dst, dst, REG_INT, DT_U8);
    } else {
        const float *x = t->reg[n->n.a].f, *p = t->reg[n->n.b].f;
        for (int i = 0; i < CPU_TILE; i++) {
            const float scaled = x[i] * (1.0f / (1.0f - p[i]));
            dst->f[i] = word[i] >> 8 >= drop_below(p[i]) ? scaled : 0;
        }
    }
}

/* ---- running ---- */

static void *operand(const struct place *t, int16_t reg)
{
    return reg < 0 || reg >= t->g->n_regs ? NULL : &t->reg[reg];
}

static void tile_insn(const struct place *t, const struct fused_insn *n)
{
    switch ((enum kern_insn_code)n->n.code) {
    case KERN_I_LOAD:
        tile_load(t, n);
        break;
    case KERN_I_STORE:
        tile_store(t, n);
        break;
    case KERN_I_CONST:
        tile_const(t, n);
        break;
    case KERN_I_IOTA:
        tile_iota(t, n);
        break;
    case KERN_I_HYPER:
        fill_f32(&t->reg[n->n.dst], t->r->hyper->value[n->n.slot]);
        break;
    case KERN_I_UNIFORM:
    case KERN_I_BITS:
    case KERN_I_DROPOUT:
        tile_random(t, n);
        break;
    case KERN_I_CAST:
        convert(&t->reg[n->n.dst], &t->reg[n->n.a], n->from, n->n.type);
        break;
    case KERN_I_EW:
        t->g->vec->ew(n->n.ew, n->n.type, &t->reg[n->n.dst], operand(t, n->n.a), operand(t, n->n.b),
                      operand(t, n->n.c));
        break;
    }
}

struct job {
    const struct cpu_run *r;
    const struct fused *g;
};

static void chunk_run(void *arg, int64_t chunk)
{
    const struct job *job = arg;
    const struct fused *g = job->g;
    _Alignas(64) union tile reg[KERN_REGS];
    struct place t = {.r = job->r, .g = g, .reg = reg, .begin = chunk * CHUNK_TILES * CPU_TILE};

    memset(reg, 0, (size_t)g->n_regs * sizeof *reg); /* a last tile computes past its elements */
    for (int k = 0; k < CHUNK_TILES && t.begin < g->count; k++, t.begin += CPU_TILE) {
        t.n = g->count - t.begin < CPU_TILE ? (int)(g->count - t.begin) : CPU_TILE;
        for (int i = 0; i < g->n_insns; i++)
            if (k == 0 || !g->insns[i].once)
                tile_insn(&t, &g->insns[i]);
    }
}

static void fused_run(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct fused *g = op->own;
    const int64_t size = CHUNK_TILES * CPU_TILE, chunks = g->count / size + (g->count % size != 0);
    struct job job = {.r = r, .g = g};

    pool_run(r->d->pool, chunks, (double)g->count * g->ns, chunk_run, &job);
}

/* ---- making ready ---- */

static void view_merge(struct fused_view *out, const struct kern_program *p,
                       const struct kern_fused *f, const struct kern_view *v)
{
    *out = (struct fused_view){.buf = v->buf, .offset = v->offset};
    out->dtype = p->bufs[v->buf].dtype;
    for (int d = 0; d < f->rank; d++) {
        const int last = out->rank - 1;
        int64_t span;
        if (f->dim[d] == 1)
            continue;
        if (out->rank > 0 && !__builtin_mul_overflow(f->dim[d], v->stride[d], &span) &&
            out->stride[last] == span) {
            out->dim[last] *= f->dim[d];
            out->stride[last] = v->stride[d];
            continue;
        }
        out->dim[out->rank] = f->dim[d];
        out->stride[out->rank++] = v->stride[d];
    }
    if (out->rank == 1 && out->stride[0] == 0)
        out->rank = 0;
}

/* Does this instruction give the same for every tile? Then its register must be its own, and its
 * source not stored to. */
static bool same_everywhere(const struct fused *g, int at)
{
    const struct kern_insn *n = &g->insns[at].n;

    if (n->code != KERN_I_CONST && n->code != KERN_I_HYPER &&
        !(n->code == KERN_I_LOAD && g->views[n->view].rank == 0))
        return false;
    for (int i = 0; i < g->n_insns; i++) {
        const struct kern_insn *m = &g->insns[i].n;
        if (m->code == KERN_I_STORE) {
            if (n->code == KERN_I_LOAD && g->views[m->view].buf == g->views[n->view].buf)
                return false;
        } else if (i != at && m->dst == n->dst) {
            return false;
        }
    }
    return true;
}

/* Nanoseconds an element, roughly: for the choice of one thread or all. */
static double insn_ns(const struct kern_insn *n)
{
    switch (n->code) {
    case KERN_I_UNIFORM:
    case KERN_I_BITS:
    case KERN_I_DROPOUT:
        return 4;
    case KERN_I_EW:
        if (n->ew == EW_POW || n->ew == EW_ERF)
            return 3;
        return n->ew >= EW_EXP && n->ew <= EW_SIGMOID ? 1.5 : 0.1;
    default:
        return 0.2;
    }
}

static void fused_free(void *own)
{
    struct fused *g = own;

    free(g->views);
    free(g->insns);
    free(g);
}

static void iota_prepare(struct fused_insn *n, const struct kern_fused *f)
{
    n->inner = 1;
    n->extent = f->dim[n->n.axis];
    for (int d = n->n.axis + 1; d < f->rank; d++)
        n->inner *= f->dim[d];
}

/* Everything that follows from a group that has passed its checks. */
static void fused_fill(struct fused *g, const struct kern_program *p, const struct kern_fused *f)
{
    if (g->count == 0)
        return; /* nothing will run; the other dimensions may be of any size */
    g->per_row = g->count / f->dim[0];
    for (int i = 0; i < g->n_views; i++)
        view_merge(&g->views[i], p, f, &f->views[i]);
    for (int i = 0; i < g->n_insns; i++) {
        if (g->insns[i].n.code == KERN_I_IOTA)
            iota_prepare(&g->insns[i], f);
        g->insns[i].once = same_everywhere(g, i);
        g->ns += insn_ns(&g->insns[i].n);
    }
}

enum kern_status cpu_prepare_fused(struct kern_dev *d, const struct kern_program *p,
                                   struct cpu_op *op, struct kern_err *e)
{
    const struct kern_fused *f = &op->op.u.fused;
    enum kern_status rc;
    struct fused *g;

    if (f->n_regs < 0 || f->n_regs > KERN_REGS || f->n_views < 0 || f->n_insns < 0 ||
        (f->n_views > 0 && !f->views) || (f->n_insns > 0 && !f->insns))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: %d registers, %d views, %d insns", op->op.label,
                       f->n_regs, f->n_views, f->n_insns);
    g = calloc(1, sizeof *g);
    if (!g)
        return cpu_err(e, KERN_ENOMEM, "cpu: no memory for a plan");
    op->own = g;
    op->free_own = fused_free;
    op->run = fused_run;
    g->n_views = f->n_views;
    g->n_insns = f->n_insns;
    g->n_regs = f->n_regs;
    g->vec = cpu_vec_for(d->isa);
    g->views = calloc((size_t)f->n_views + 1, sizeof *g->views);
    g->insns = calloc((size_t)f->n_insns + 1, sizeof *g->insns);
    if (!g->views || !g->insns)
        return cpu_err(e, KERN_ENOMEM, "cpu: no memory for a plan");
    rc = fused_check(p, &op->op, g->insns, &g->count, e);
    if (rc == KERN_OK)
        fused_fill(g, p, f);
    return rc;
}
