/* init.c - initial values of parameters. */
#include "engine/train/init.h"

#include <math.h>

#include "engine/base/alloc.h"
#include "engine/base/hash.h"
#include "kernels/philox.h"

/* Draws of one parameter: attempt k of element i, so that a redraw disturbs no other element. */
struct draws {
    uint64_t seed;
    uint32_t stream;
};

static double uniform(const struct draws *d, int64_t i, uint32_t attempt)
{
    struct philox p = philox_block(d->seed, PHILOX_INIT, d->stream, attempt, (uint64_t)i);
    /* 53 bits: init is made in f64 and rounded once */
    return ((double)(p.v[0] >> 5) * 67108864.0 + (double)(p.v[1] >> 6)) *
           (1.0 / 9007199254740992.0);
}

static double normal(const struct draws *d, int64_t i, uint32_t attempt)
{
    struct philox p = philox_block(d->seed, PHILOX_INIT, d->stream, attempt, (uint64_t)i);
    double u = ((double)p.v[0] + 1.0) * (1.0 / 4294967296.0); /* (0, 1]: its logarithm is finite */
    double v = (double)p.v[1] * (1.0 / 4294967296.0);

    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

static double truncated(const struct draws *d, int64_t i)
{
    for (uint32_t attempt = 0; attempt < 64; attempt++) {
        double x = normal(d, i, attempt);
        if (fabs(x) <= 2)
            return x;
    }
    return 0; /* 0.05^64: never */
}

/* Rows of m[rows][cols], rows <= cols, made orthonormal in place. Twice is enough (Kahan, in
 * Parlett 1980). */
static void gram_schmidt(double *m, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        double *a = m + r * cols, norm = 0;

        for (int pass = 0; pass < 2; pass++)
            for (int64_t q = 0; q < r; q++) {
                const double *b = m + q * cols;
                double dot = 0;
                for (int64_t c = 0; c < cols; c++)
                    dot += a[c] * b[c];
                for (int64_t c = 0; c < cols; c++)
                    a[c] -= dot * b[c];
            }
        for (int64_t c = 0; c < cols; c++)
            norm += a[c] * a[c];
        norm = sqrt(norm);
        for (int64_t c = 0; c < cols; c++)
            a[c] = norm > 0 ? a[c] / norm : 0;
    }
}

static enum err_code orthogonal(const struct trace_param *p, const struct draws *d, float *out,
                                struct err *e)
{
    int64_t count = shape_count(&p->shape), rows = p->shape.rank > 0 ? p->shape.dim[0] : 1;
    int64_t cols = rows > 0 ? count / rows : 0, small = rows < cols ? rows : cols,
            large = rows < cols ? cols : rows;
    double *m = mem_array((size_t)count, sizeof *m);

    if (!m)
        return err_set(e, ERR_NOMEM, "%s: out of memory for its initial values", p->name);
    for (int64_t i = 0; i < count; i++)
        m[i] = normal(d, i, 0);
    gram_schmidt(m, small, large);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out[r * cols + c] =
                (float)(p->a * (rows <= cols ? m[r * large + c] : m[c * large + r]));
    mem_free(m);
    return ERR_OK;
}

enum err_code init_param(const struct trace_param *p, uint64_t seed, float *out, struct err *e)
{
    struct draws d = {seed, hash_fnv32(p->name)};
    int64_t n = shape_count(&p->shape);

    if (p->init == INIT_ORTHOGONAL && n > 0)
        return orthogonal(p, &d, out, e);
    for (int64_t i = 0; i < n; i++) {
        switch (p->init) {
        case INIT_ONES:
            out[i] = 1;
            break;
        case INIT_CONST:
            out[i] = (float)p->a;
            break;
        case INIT_UNIFORM:
            out[i] = (float)(p->a + (p->b - p->a) * uniform(&d, i, 0));
            break;
        case INIT_NORMAL:
            out[i] = (float)(p->a + p->b * normal(&d, i, 0));
            break;
        case INIT_TRUNC_NORMAL:
            out[i] = (float)(p->a + p->b * truncated(&d, i));
            break;
        case INIT_ZEROS:
        case INIT_ORTHOGONAL:
            out[i] = 0;
            break;
        }
    }
    return ERR_OK;
}
