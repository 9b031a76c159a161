/* reduce.c - along one axis of [outer][n][inner]: sums and the like, the largest, running sums.
 *
 * What is added to what, and in which order, is a function of the shape. A long axis with few
 * results is cut into stretches whose results are joined in order. */
#include <math.h>

#include "kernels/cpu/cpu.h"

#pragma GCC optimize(                                                                              \
    "no-trapping-math") /* a select of floats may then be a vector's; values do not change */

enum {
    COLS = 64,       /* results side by side in one accumulator */
    CHUNK = 8192,    /* elements that are worth a chunk */
    STRETCH = 16384, /* elements of a stretch */
    STRETCHES = 64
};

struct job {
    const struct kern_axis *a;
    const struct cpu_vec *v;
    const float *in;
    const int32_t *in_i; /* the same where it is i32: NULL otherwise */
    float *out;
    int32_t *out_i;
    int64_t per; /* units of a chunk */
    int64_t units;
    int64_t stretches, rows; /* of a long axis, and how long each is */
};

/* Units of `each` elements in a chunk. */
static int64_t per_chunk(int64_t each)
{
    return each < 1 ? CHUNK : each < CHUNK ? CHUNK / each : 1;
}

static int64_t blocks_of(const struct kern_axis *a)
{
    return ceil_div(a->inner, COLS);
}

/* ---- REDUCE ---- */

static float start_of(enum kern_reduce how)
{
    static const float start[] = {
        [KERN_SUM] = 0, [KERN_RMAX] = -INFINITY, [KERN_RMIN] = INFINITY, [KERN_PROD] = 1};
    return start[how];
}

static int32_t start_of_i(enum kern_reduce how)
{
    static const int32_t start[] = {
        [KERN_SUM] = 0, [KERN_RMAX] = INT32_MIN, [KERN_RMIN] = INT32_MAX, [KERN_PROD] = 1};
    return start[how];
}

/* acc[0 .. w-1] joined with x. A NaN wins and stays: nothing compares with it. */
static void join(enum kern_reduce how, float *restrict acc, const float *restrict x, int64_t w)
{
    switch (how) {
    case KERN_SUM:
        for (int64_t c = 0; c < w; c++)
            acc[c] += x[c];
        break;
    case KERN_PROD:
        for (int64_t c = 0; c < w; c++)
            acc[c] *= x[c];
        break;
    case KERN_RMAX:
        for (int64_t c = 0; c < w; c++)
            acc[c] = (x[c] > acc[c]) | (x[c] != x[c]) ? x[c] : acc[c];
        break;
    case KERN_RMIN:
        for (int64_t c = 0; c < w; c++)
            acc[c] = (x[c] < acc[c]) | (x[c] != x[c]) ? x[c] : acc[c];
        break;
    }
}

/* n elements that lie together; lanes by place, joined at the end. */
static float along_row(const struct cpu_vec *v, enum kern_reduce how, const float *x, int64_t n)
{
    float acc[COLS], all = start_of(how);

    if (how == KERN_SUM)
        return v->sum(x, n);
    if (how == KERN_RMAX)
        return v->max(x, n);
    for (int c = 0; c < COLS; c++)
        acc[c] = all;
    for (int64_t i = 0; i < n; i += COLS)
        join(how, acc, x + i, min64(n - i, COLS));
    for (int c = 0; c < COLS; c++)
        join(how, &all, &acc[c], 1);
    return all;
}

/* out[0 .. w-1]: n rows of w columns, `stride` apart, joined in order. */
static void down_columns(enum kern_reduce how, float *out, const float *x, int64_t n,
                         int64_t stride, int64_t w)
{
    float acc[COLS];

    for (int c = 0; c < COLS; c++)
        acc[c] = start_of(how);
    for (int64_t i = 0; i < n; i++)
        join(how, acc, x + i * stride, w);
    memcpy(out, acc, (size_t)w * sizeof *out);
}

/* A unit is one stretch of one block of columns of one outer index. */
static void reduce_unit(const struct job *j, int64_t unit)
{
    const struct kern_axis *a = j->a;
    const int64_t blocks = blocks_of(a), c0 = unit % blocks * COLS,
                  s = unit / blocks % j->stretches;
    const int64_t o = unit / blocks / j->stretches, from = s * j->rows,
                  n = min64(a->n - from, j->rows);
    const float *x = j->in + (o * a->n + from) * a->inner + c0;
    float *out = j->out + (o * j->stretches + s) * a->inner + c0;

    if (a->inner == 1)
        *out = along_row(j->v, a->reduce, x, n);
    else
        down_columns(a->reduce, out, x, n, a->inner, min64(a->inner - c0, COLS));
}

static void reduce_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++)
        reduce_unit(j, u);
}

static uint32_t join_i(enum kern_reduce how, uint32_t acc, uint32_t x)
{
    switch (how) {
    case KERN_SUM:
        return acc + x;
    case KERN_PROD:
        return acc * x;
    case KERN_RMAX:
        return (int32_t)x > (int32_t)acc ? x : acc;
    case KERN_RMIN:
        break;
    }
    return (int32_t)x < (int32_t)acc ? x : acc;
}

static void reduce_i_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = j->a;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++) {
        const int32_t *x = j->in_i + u / a->inner * a->n * a->inner + u % a->inner;
        uint32_t acc = (uint32_t)start_of_i(a->reduce);
        for (int64_t i = 0; i < a->n; i++)
            acc = join_i(a->reduce, acc, (uint32_t)x[i * a->inner]);
        j->out_i[u] = (int32_t)acc;
    }
}

/* How many stretches the axis is cut into: 1 where there are chunks enough without. */
static int64_t stretches_of(const struct kern_axis *a)
{
    const int64_t width = min64(a->inner, COLS), most = STRETCHES / (a->outer * blocks_of(a) + 1);
    const int64_t n = a->n / (STRETCH / (width > 0 ? width : 1));

    return n < 2 || most < 2 ? 1 : min64(n, most);
}

static double work_ns(const struct kern_axis *a, double each)
{
    return (double)a->outer * (double)a->n * (double)a->inner * each;
}

static struct job job_of(const struct cpu_op *op, const struct cpu_run *r, bool is_int)
{
    struct job j = {.a = &op->op.u.axis, .v = cpu_vec_for(r->d->isa)};

    if (is_int)
        j.in_i = (const int32_t *)(void *)r->buf[op->op.in[0]];
    else
        j.in = (const float *)(void *)r->buf[op->op.in[0]];
    j.out = (float *)(void *)r->buf[op->op.out[0]];
    j.out_i = (int32_t *)(void *)r->buf[op->op.out[0]];
    return j;
}

static void run_reduce(const struct cpu_op *op, const struct cpu_run *r)
{
    struct job j = job_of(op, r, false);
    const struct kern_axis *a = j.a;
    float *const out = j.out;

    j.stretches = stretches_of(a);
    j.rows = a->n > 0 ? ceil_div(a->n, j.stretches) : 1;
    j.stretches = a->n > 0 ? ceil_div(a->n, j.rows) : 1;
    j.units = a->outer * j.stretches * blocks_of(a);
    j.per = per_chunk(j.rows * min64(a->inner, COLS));
    if (j.stretches > 1)
        j.out = op->scratch;
    pool_run(r->d->pool, ceil_div(j.units, j.per), work_ns(a, 0.15), reduce_chunk, &j);
    if (j.stretches == 1)
        return;
    for (int64_t o = 0; o < a->outer; o++)
        for (int64_t c = 0; c < a->inner; c += COLS)
            down_columns(a->reduce, out + o * a->inner + c,
                         op->scratch + o * j.stretches * a->inner + c, j.stretches, a->inner,
                         min64(a->inner - c, COLS));
}

static void run_each(const struct cpu_op *op, const struct cpu_run *r, bool is_int, pool_fn *fn)
{
    struct job j = job_of(op, r, is_int);

    j.units = j.a->outer * j.a->inner;
    j.per = per_chunk(j.a->n);
    pool_run(r->d->pool, ceil_div(j.units, j.per), work_ns(j.a, 1), fn, &j);
}

static void run_reduce_i(const struct cpu_op *op, const struct cpu_run *r)
{
    run_each(op, r, true, reduce_i_chunk);
}

/* ---- ARGMAX, TOPK ---- */

/* Orders elements: of floats by value, -0 as 0, every NaN above all. */
static int64_t rank_of(const struct job *j, int64_t at)
{
    float x;
    int32_t bits;

    if (j->in_i)
        return j->in_i[at];
    x = j->in[at] + 0.0f;
    if (x != x)
        return INT64_MAX;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? bits ^ INT32_MAX : bits;
}

static void argmax_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;
    const struct kern_axis *a = j->a;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++) {
        const int64_t at = u / a->inner * a->n * a->inner + u % a->inner;
        int64_t best = 0, best_rank = rank_of(j, at);
        for (int64_t i = 1; i < a->n; i++) {
            const int64_t rank = rank_of(j, at + i * a->inner);
            if (rank > best_rank) {
                best = i;
                best_rank = rank;
            }
        }
        j->out_i[u] = (int32_t)best;
    }
}

/* Is element x of the row that starts at `row` before y among the largest? */
static bool before(const struct job *j, int64_t row, int32_t x, int32_t y)
{
    const int64_t a = rank_of(j, row + x), b = rank_of(j, row + y);
    return a > b || (a == b && x < y);
}

/* heap[0 .. n-1] with the last in order at the root: moves the root down to where it belongs. */
static void sift(const struct job *j, int64_t row, int32_t *heap, int64_t n)
{
    for (int64_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
        const int32_t x = heap[at];
        child += child + 1 < n && before(j, row, heap[child], heap[child + 1]);
        if (!before(j, row, x, heap[child]))
            return;
        heap[at] = heap[child];
        heap[child] = x;
    }
}

static void rise(const struct job *j, int64_t row, int32_t *heap, int64_t at)
{
    while (at > 0 && before(j, row, heap[(at - 1) / 2], heap[at])) {
        const int32_t x = heap[at];
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
        heap[at] = x;
    }
}

/* The k first in order so far stand in a heap; then the heap is sorted where it is. */
static void topk_row(const struct job *j, int64_t row, int32_t *top)
{
    const int64_t k = j->a->k;

    for (int64_t i = 0; i < j->a->n && k > 0; i++) {
        if (i < k) {
            top[i] = (int32_t)i;
            rise(j, row, top, i);
        } else if (before(j, row, (int32_t)i, top[0])) {
            top[0] = (int32_t)i;
            sift(j, row, top, k);
        }
    }
    for (int64_t n = k - 1; n > 0; n--) {
        const int32_t last = top[0];
        top[0] = top[n];
        top[n] = last;
        sift(j, row, top, n);
    }
}

static void topk_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;

    for (int64_t o = chunk * j->per; o < min64((chunk + 1) * j->per, j->units); o++)
        topk_row(j, o * j->a->n, j->out_i + o * j->a->k);
}

static void run_argmax(const struct cpu_op *op, const struct cpu_run *r)
{
    run_each(op, r, false, argmax_chunk);
}

static void run_argmax_i(const struct cpu_op *op, const struct cpu_run *r)
{
    run_each(op, r, true, argmax_chunk);
}

static void run_topk(const struct cpu_op *op, const struct cpu_run *r)
{
    run_each(op, r, false, topk_chunk);
}

static void run_topk_i(const struct cpu_op *op, const struct cpu_run *r)
{
    run_each(op, r, true, topk_chunk);
}

/* ---- CUMSUM: a unit is a block of columns of one outer index; the result may be the input's
 * memory ---- */

static void cumsum_unit(const struct job *j, int64_t unit)
{
    const struct kern_axis *a = j->a;
    const int64_t c0 = unit % blocks_of(a) * COLS, w = min64(a->inner - c0, COLS);
    const int64_t at = unit / blocks_of(a) * a->n * a->inner + c0;
    float sum[COLS] = {0};

    for (int64_t i = 0; i < a->n; i++) {
        const int64_t row = at + (a->reverse ? a->n - 1 - i : i) * a->inner;
        for (int64_t c = 0; c < w; c++) {
            const float next = sum[c] + j->in[row + c];
            j->out[row + c] = a->exclusive ? sum[c] : next;
            sum[c] = next;
        }
    }
}

static void cumsum_i_unit(const struct job *j, int64_t unit)
{
    const struct kern_axis *a = j->a;
    const int64_t c0 = unit % blocks_of(a) * COLS, w = min64(a->inner - c0, COLS);
    const int64_t at = unit / blocks_of(a) * a->n * a->inner + c0;
    uint32_t sum[COLS] = {0};

    for (int64_t i = 0; i < a->n; i++) {
        const int64_t row = at + (a->reverse ? a->n - 1 - i : i) * a->inner;
        for (int64_t c = 0; c < w; c++) {
            const uint32_t next = sum[c] + (uint32_t)j->in_i[row + c];
            j->out_i[row + c] = (int32_t)(a->exclusive ? sum[c] : next);
            sum[c] = next;
        }
    }
}

static void cumsum_chunk(void *arg, int64_t chunk)
{
    const struct job *j = arg;

    for (int64_t u = chunk * j->per; u < min64((chunk + 1) * j->per, j->units); u++)
        if (j->in_i)
            cumsum_i_unit(j, u);
        else
            cumsum_unit(j, u);
}

static void cumsum(const struct cpu_op *op, const struct cpu_run *r, bool is_int)
{
    struct job j = job_of(op, r, is_int);

    j.units = j.a->outer * blocks_of(j.a);
    j.per = per_chunk(j.a->n * min64(j.a->inner, COLS));
    pool_run(r->d->pool, ceil_div(j.units, j.per), work_ns(j.a, 1), cumsum_chunk, &j);
}

static void run_cumsum(const struct cpu_op *op, const struct cpu_run *r)
{
    cumsum(op, r, false);
}

static void run_cumsum_i(const struct cpu_op *op, const struct cpu_run *r)
{
    cumsum(op, r, true);
}

/* ---- preparing ---- */

static void run_nothing(const struct cpu_op *op, const struct cpu_run *r)
{
    (void)op;
    (void)r;
}

static bool is_i32(const struct kern_program *p, int32_t buf)
{
    return buf >= 0 && buf < p->n_bufs && p->bufs[buf].dtype == DT_I32;
}

static enum kern_status check_axis(const struct cpu_op *op, int64_t *rows, int64_t *all,
                                   struct kern_err *e)
{
    const struct kern_axis *a = &op->op.u.axis;
    const char *label = op->op.label;

    if (a->outer < 0 || a->n < 0 || a->inner < 0 || a->k < 0 ||
        __builtin_mul_overflow(a->outer, a->inner, rows) ||
        __builtin_mul_overflow(*rows, a->n, all))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: a dimension is negative or the shape too large",
                       label);
    if (op->op.code == KERN_REDUCE && (unsigned)a->reduce > KERN_PROD)
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: reduction %d is not known", label,
                       (int)a->reduce);
    if (op->op.code == KERN_ARGMAX && a->n == 0 && *rows > 0)
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: an axis of 0 elements has no largest", label);
    if (op->op.code == KERN_TOPK && (a->inner != 1 || a->k > a->n))
        return cpu_err(e, KERN_EINVAL, "cpu: %.80s: the %lld largest of %lld, inner %lld", label,
                       (long long)a->k, (long long)a->n, (long long)a->inner);
    if ((op->op.code == KERN_TOPK || op->op.code == KERN_ARGMAX) && a->n > INT32_MAX)
        return cpu_err(e, KERN_EUNSUPPORTED, "cpu: %.80s: an index into %lld elements is no i32",
                       label, (long long)a->n);
    return KERN_OK;
}

static void choose_run(struct cpu_op *op, bool is_int)
{
    const struct kern_axis *a = &op->op.u.axis;

    switch (op->op.code) {
    case KERN_ARGMAX:
        op->run = is_int ? run_argmax_i : run_argmax;
        break;
    case KERN_TOPK:
        op->run = is_int ? run_topk_i : run_topk;
        break;
    case KERN_CUMSUM:
        op->run = is_int ? run_cumsum_i : run_cumsum;
        break;
    default:
        op->run = is_int ? run_reduce_i : run_reduce;
        if (!is_int && stretches_of(a) > 1)
            op->scratch_count =
                a->outer * stretches_of(a) * a->inner; /* fewer than the input has */
        break;
    }
}

enum kern_status cpu_prepare_reduce(struct kern_dev *d, const struct kern_program *p,
                                    struct cpu_op *op, struct kern_err *e)
{
    const struct kern_op *k = &op->op;
    const bool is_int = is_i32(p, k->in[0]), picks = k->code == KERN_ARGMAX || k->code == KERN_TOPK;
    const enum dtype t = is_int ? DT_I32 : DT_F32;
    int64_t rows = 0, all = 0, out;
    enum kern_status rc = check_axis(op, &rows, &all, e);

    (void)d;
    if (rc != KERN_OK)
        return rc;
    out = k->code == KERN_CUMSUM ? all
          : k->code == KERN_TOPK ? rows * k->u.axis.k
                                 : rows; /* k <= n */
    rc = cpu_want(p, k, k->in[0], false, t, all, "input", e);
    if (rc == KERN_OK)
        rc = cpu_want(p, k, k->out[0], false, picks ? DT_I32 : t, out, "result", e);
    op->run = run_nothing;
    if (rc == KERN_OK && rows > 0)
        choose_run(op, is_int);
    return rc;
}
