/* index.c - reading and adding by index. Sums go in order of the list of indices: a chunk owns a
 * part of the destination, never a share of the list. */
#include "kernels/cpu/cpu.h"

enum {
    CHUNK = 8192, /* elements that are worth a chunk */
    COLS = 256,   /* columns of a part */
    PARTS = 16    /* of the destination's rows, where there are few chunks otherwise */
};

struct job {
    const struct kern_axis *a;
    const char *x; /* in[0], elements of `size` bytes */
    size_t size;
    const int32_t *index;
    const float *src, *add;
    const int32_t *add_i;
    char *out;
    int64_t per, units;
    int64_t parts, rows; /* of the destination, and rows of each */
    bool add_int;
};

static int64_t per_chunk(int64_t each)
{
    return each < 1 ? CHUNK : each < CHUNK ? CHUNK / each : 1;
}

static bool inside(int32_t i, int64_t n)
{
    return i >= 0 && i < n;
}

/* ---- TAKE, TAKE_ALONG: a unit is a row [inner] of the result ---- */

static void take_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = j->a;
    const size_t bytes = (size_t)a->inner * j->size;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++) {
        const int32_t at = j->index[u % a->k];
        char *out = j->out + (size_t)u * bytes;
        if (inside(at, a->n))
            memcpy(out, j->x + (size_t)(u / a->k * a->n + at) * bytes, bytes);
        else
            memset(out, 0, bytes);
    }
}

/* Elements of one byte or of four. */
static void pick(const struct job *j, int64_t to, int64_t from)
{
    if (j->size == 1)
        j->out[to] = j->x[from];
    else
        memcpy(j->out + to * 4, j->x + from * 4, 4);
}

static void take_along_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = j->a;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++) {
        const int64_t base = u / a->k * a->n;
        for (int64_t c = 0; c < a->inner; c++) {
            const int64_t to = u * a->inner + c;
            if (inside(j->index[to], a->n))
                pick(j, to, (base + j->index[to]) * a->inner + c);
            else
                memset(j->out + (size_t)to * j->size, 0, j->size);
        }
    }
}

/* ---- TAKE_GRAD: a unit is a part of the rows and a block of columns of one outer index ---- */

static void take_grad_unit(const struct job *j, int64_t unit)
{
    const struct kern_axis *a = j->a;
    const int64_t blocks = ceil_div(a->inner, COLS), c0 = unit % blocks * COLS,
                  w = min64(a->inner - c0, COLS);
    const int64_t first = unit / blocks % j->parts * j->rows, end = min64(first + j->rows, a->n);
    const int64_t o = unit / blocks / j->parts;
    float *out = (float *)(void *)j->out + o * a->n * a->inner + c0;

    for (int64_t i = first; i < end; i++)
        memset(out + i * a->inner, 0, (size_t)w * sizeof *out);
    for (int64_t k = 0; k < a->k; k++) {
        const float *src = j->src + (o * a->k + k) * a->inner + c0;
        if (j->index[k] < first || j->index[k] >= end)
            continue;
        for (int64_t c = 0; c < w; c++)
            out[j->index[k] * a->inner + c] += src[c];
    }
}

static void take_grad_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++)
        take_grad_unit(j, u);
}

/* ---- SCATTER_ADD: a unit is a block of columns of one outer index ---- */

static void add(const struct job *j, int64_t to, int64_t from)
{
    float *f = (float *)(void *)j->out;
    int32_t *i = (int32_t *)(void *)j->out;

    if (j->add_int)
        i[to] = (int32_t)((uint32_t)i[to] + (uint32_t)j->add_i[from]);
    else
        f[to] += j->add[from];
}

static void scatter_unit(const struct job *j, int64_t unit)
{
    const struct kern_axis *a = j->a;
    const int64_t blocks = ceil_div(a->inner, COLS), c0 = unit % blocks * COLS,
                  w = min64(a->inner - c0, COLS);
    const int64_t base = unit / blocks * a->n;

    for (int64_t i = 0; i < a->n && j->out != j->x; i++) {
        const int64_t at = ((base + i) * a->inner + c0) * 4;
        memcpy(j->out + at, j->x + at, (size_t)w * 4);
    }
    for (int64_t k = 0; k < a->k; k++)
        for (int64_t c = c0; c < c0 + w; c++) {
            const int64_t from = (unit / blocks * a->k + k) * a->inner + c;
            if (inside(j->index[from], a->n))
                add(j, (base + j->index[from]) * a->inner + c, from);
        }
}

static void scatter_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++)
        scatter_unit(j, u);
}

/* ---- running ---- */

static void run_nothing(const struct cpu_op *op, const struct cpu_run *r)
{
    (void)op;
    (void)r;
}

static struct job job_of(const struct cpu_op *op, const struct cpu_run *r)
{
    const struct kern_op *k = &op->op;
    const int *kind = op->own; /* enum dtype of the elements that move */

    return (struct job){.a = &k->u.axis,
                        .x = r->buf[k->in[0]],
                        .src = (const float *)(void *)r->buf[k->in[0]],
                        .index = (const int32_t *)(void *)r->buf[k->in[1]],
                        .out = r->buf[k->out[0]],
                        .size = (size_t)dtype_size((enum dtype) * kind),
                        .add_int = *kind == DT_I32};
}

static void run_take(const struct cpu_op *op, const struct cpu_run *r)
{
    struct job j = job_of(op, r);

    j.units = j.a->outer * j.a->k;
    j.per = per_chunk(j.a->inner);
    pool_run(r->d->pool, ceil_div(j.units, j.per), (double)j.units * ((double)j.a->inner * 0.3 + 2),
             op->op.code == KERN_TAKE ? take_chunk : take_along_chunk, &j);
}

static void run_take_grad(const struct cpu_op *op, const struct cpu_run *r)
{
    struct job j = job_of(op, r);
    const struct kern_axis *a = j.a;
    const int64_t blocks = ceil_div(a->inner, COLS), width = min64(a->inner, COLS);

    j.parts = a->outer * blocks < PARTS ? min64(PARTS, ceil_div((a->n + a->k) * width, CHUNK)) : 1;
    j.parts = j.parts < 1 ? 1 : j.parts;
    j.rows = ceil_div(a->n, j.parts);
    j.units = a->outer * blocks * j.parts;
    j.per = per_chunk((a->n + a->k) * width / j.parts);
    pool_run(r->d->pool, ceil_div(j.units, j.per),
             (double)a->outer * (double)(a->n + a->k) * (double)a->inner * 0.3, take_grad_chunk,
             &j);
}

static void run_scatter_add(const struct cpu_op *op, const struct cpu_run *r)
{
    struct job j = job_of(op, r);
    const struct kern_axis *a = j.a;

    j.add = (const float *)(void *)r->buf[op->op.in[2]];
    j.add_i = (const int32_t *)(void *)r->buf[op->op.in[2]];
    j.units = a->outer * ceil_div(a->inner, COLS);
    j.per = per_chunk((a->n + a->k) * min64(a->inner, COLS));
    pool_run(r->d->pool, ceil_div(j.units, j.per),
             (double)a->outer * (double)(a->n + a->k) * (double)a->inner, scatter_chunk, &j);
}

/* ---- preparing ---- */

/* TAKE and TAKE_ALONG move any type, SCATTER_ADD adds f32 or i32, TAKE_GRAD f32. */
static enum dtype type_of(const struct kern_program *p, const struct kern_op *k)
{
    const bool moves = k->code == KERN_TAKE || k->code == KERN_TAKE_ALONG;
    const enum dtype t = k->in[0] >= 0 && k->in[0] < p->n_bufs ? p->bufs[k->in[0]].dtype : DT_F32;

    if (t == DT_I32 && k->code != KERN_TAKE_GRAD)
        return t;
    return moves && (t == DT_U8 || t == DT_BOOL) ? t : DT_F32;
}

static enum kern_status want_all(const struct kern_program *p, const struct kern_op *k,
                                 int64_t full, int64_t part, struct kern_err *e)
{
    const enum dtype t = type_of(p, k);
    const bool along = k->code == KERN_TAKE_ALONG || k->code == KERN_SCATTER_ADD;
    const bool grad = k->code == KERN_TAKE_GRAD, adds = grad || k->code == KERN_SCATTER_ADD;
    enum kern_status rc = cpu_want(p, k, k->in[0], false, t, grad ? part : full, "input", e);

    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->in[1], false, DT_I32, along ? part : k->u.axis.k, "indices", e);
    if (rc == KERN_OK && k->code == KERN_SCATTER_ADD)
        rc = cpu_want(p, k, k->in[2], false, t, part, "values", e);
    return rc == KERN_OK ? cpu_want(p, k, k->out[0], false, t, adds ? full : part, "result", e)
                         : rc;
}

enum kern_status cpu_prepare_index(struct kern_dev *d, const struct kern_program *p,
                                   struct cpu_op *op, struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const struct kern_axis *a = &k->u.axis;
    int64_t rows, full, part, sum;
    enum kern_status rc;
    int *kind;

    (void)d;
    if (a->outer < 0 || a->n < 0 || a->inner < 0 || a->k < 0 ||
        __builtin_mul_overflow(a->outer, a->inner, &rows) ||
        __builtin_mul_overflow(rows, a->n, &full) || __builtin_mul_overflow(rows, a->k, &part) ||
        __builtin_add_overflow(a->n, a->k, &sum))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: a dimension is negative or the shape too large",
                       k->label);
    op->run = run_nothing;
    rc = want_all(p, k, full, part, e);
    if (rc != KERN_OK || rows == 0)
        return rc;
    kind = malloc(sizeof *kind);
    if (!kind)
        return cpu_err(e, KERN_ENOMEM, "cpu: %.80s: no memory", k->label);
    *kind = (int)type_of(p, k);
    op->own = kind;
    op->free_own = free;
    op->run = k->code == KERN_TAKE_GRAD     ? run_take_grad
              : k->code == KERN_SCATTER_ADD ? run_scatter_add
                                            : run_take;
    return KERN_OK;
}
