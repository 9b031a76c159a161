/* Ops and their gradient ops are pairs: on the reference backend each gradient is that by central
 * differences. All of a check is one program, so that nothing is rounded to f32 but the error that
 * comes out. */
#include "tests/kern_util.h"

/* Differences of h = 2^-17: their errors, h^2 and 2^-53 / h, are both near 1e-10. */
enum { OPERANDS = 3, STEP_INV = 1 << 17 };

/* A pair: forward writes an op and returns the buffer of its result; grad writes the gradient op,
 * for the gradient w of the result, and fills d. count: elements of each operand; 0 for none. */
struct pair {
    const char *name;
    int64_t count[OPERANDS];
    int (*forward)(const int *in);
    void (*grad)(const int *in, int w, int *d);
};

static const struct kern_norm norm_shape = {.rows = 3, .cols = 5, .eps = 1e-3f};
static const struct kern_xent xent_shape = {.rows = 3, .cols = 4, .has_ignore = true, .ignore = -1};
static const struct kern_axis take_shape = {.outer = 2, .n = 4, .inner = 2, .k = 5};

static struct kt_dev ref;
static struct kt t;
static int labels, smooth, indices; /* buffers of the program that is written */

static int arena(int64_t count)
{
    return kt_buf(&t, KERN_ARENA, DT_F32, count, NULL);
}

/* ---- the pairs ---- */

static struct kern_op *norm_op(enum kern_code code)
{
    struct kern_op *op = kt_op(&t, code, "norm");
    op->u.norm = norm_shape;
    return op;
}

static struct kern_op *norm_forward(bool layer, const int *in)
{
    struct kern_op *op = norm_op(layer ? KERN_LAYER_NORM : KERN_RMS_NORM);

    op->in[0] = in[0];
    op->in[1] = in[1];
    op->out[0] = arena(norm_shape.rows * norm_shape.cols);
    op->out[1] = arena(norm_shape.rows);
    if (layer) {
        op->in[2] = in[2];
        op->out[2] = arena(norm_shape.rows);
    }
    return op;
}

static int layer_norm(const int *in)
{
    return norm_forward(true, in)->out[0];
}

static int rms_norm(const int *in)
{
    return norm_forward(false, in)->out[0];
}

static void layer_norm_grad(const int *in, int w, int *d)
{
    const struct kern_op *y = norm_forward(true, in);
    struct kern_op *op = norm_op(KERN_LAYER_NORM_GRAD);

    op->in[0] = w;
    op->in[1] = in[0];
    op->in[2] = in[1];
    op->in[3] = y->out[1];
    op->in[4] = y->out[2];
    op->out[0] = d[0] = arena(norm_shape.rows * norm_shape.cols);
    op->out[1] = d[1] = arena(norm_shape.cols);
    op->out[2] = d[2] = arena(norm_shape.cols);
}

static void rms_norm_grad(const int *in, int w, int *d)
{
    const struct kern_op *y = norm_forward(false, in);
    struct kern_op *op = norm_op(KERN_RMS_NORM_GRAD);

    op->in[0] = w;
    op->in[1] = in[0];
    op->in[2] = in[1];
    op->in[3] = y->out[1];
    op->out[0] = d[0] = arena(norm_shape.rows * norm_shape.cols);
    op->out[1] = d[1] = arena(norm_shape.cols);
}

static struct kern_op *xent_op(enum kern_code code, int logits)
{
    struct kern_op *op = kt_op(&t, code, "xent");

    op->u.xent = xent_shape;
    op->in[0] = logits;
    op->in[1] = labels;
    op->in[2] = smooth;
    return op;
}

static struct kern_op *xent_forward(const int *in)
{
    struct kern_op *op = xent_op(KERN_XENT, in[0]);

    op->out[0] = arena(xent_shape.rows);
    op->out[1] = arena(xent_shape.rows);
    return op;
}

static int xent(const int *in)
{
    return xent_forward(in)->out[0];
}

static void xent_grad(const int *in, int w, int *d)
{
    const struct kern_op *y = xent_forward(in);
    struct kern_op *op = xent_op(KERN_XENT_GRAD, in[0]);

    op->in[3] = y->out[1];
    op->in[4] = w;
    op->out[0] = d[0] = arena(xent_shape.rows * xent_shape.cols);
}

static int take(const int *in)
{
    struct kern_op *op = kt_op(&t, KERN_TAKE, "take");

    op->u.axis = take_shape;
    op->in[0] = in[0];
    op->in[1] = indices;
    return op->out[0] = arena(take_shape.outer * take_shape.k * take_shape.inner);
}

static void take_grad(const int *in, int w, int *d)
{
    struct kern_op *op = kt_op(&t, KERN_TAKE_GRAD, "take grad");

    (void)in;
    op->u.axis = take_shape;
    op->in[0] = w;
    op->in[1] = indices;
    op->out[0] = d[0] = arena(take_shape.outer * take_shape.n * take_shape.inner);
}

/* ---- the check ---- */

enum mix { PLUS_SCALED, SCALED_DIFFERENCE, PRODUCT };

/* A new buffer of a + scale * b, (a - b) * scale, or a * b. */
static int mix(enum mix how, int a, int b, double scale, enum kern_space space)
{
    const int64_t count = t.buf[a].count;
    const int out = kt_buf(&t, space, DT_F32, count, NULL);
    struct kern_fused *f = kt_fused(&t, 1, count, 0, 0);
    const int x = kt_load(&t, f, DT_F32, kt_view(&t, f, a, 0, 1, 0, 0));
    const int y = kt_load(&t, f, DT_F32, kt_view(&t, f, b, 0, 1, 0, 0));
    const int s = kt_const(&t, f, scale);
    int r;

    if (how == PLUS_SCALED)
        r = kt_ew(&t, f, EW_ADD, DT_F32, x, kt_ew(&t, f, EW_MUL, DT_F32, y, s, -1), -1);
    else if (how == SCALED_DIFFERENCE)
        r = kt_ew(&t, f, EW_MUL, DT_F32, kt_ew(&t, f, EW_SUB, DT_F32, x, y, -1), s, -1);
    else
        r = kt_ew(&t, f, EW_MUL, DT_F32, x, y, -1);
    kt_store(&t, f, DT_F32, r, kt_view(&t, f, out, 0, 1, 0, 0));
    return out;
}

static int dot(int a, int b)
{
    const int product = mix(PRODUCT, a, b, 0, KERN_ARENA);
    struct kern_op *op = kt_op(&t, KERN_REDUCE, "dot");

    op->u.axis = (struct kern_axis){.outer = 1, .n = t.buf[a].count, .inner = 1};
    op->in[0] = product;
    return op->out[0] = arena(1);
}

/* A direction for operand k: random for only < 0, else 1 at element `only` of operand `of` and 0
 * elsewhere. */
static int direction(int64_t count, int k, int of, int64_t only, uint32_t seed)
{
    const int b = kt_rand(&t, KERN_INPUT, count, -1, 1, seed + 40);
    float *x = t.init[b];

    for (int64_t i = 0; only >= 0 && i < count; i++)
        x[i] = k == of && i == only;
    return b;
}

/* Writes sum(w * dy/d(direction)) by differences of forward. Returns its buffer. */
static int by_differences(const struct pair *p, int n, const int *in, const int *dir, int *w,
                          uint32_t seed)
{
    int plus[OPERANDS], minus[OPERANDS], y_plus, y_minus;

    for (int k = 0; k < n; k++) {
        plus[k] = mix(PLUS_SCALED, in[k], dir[k], 1.0 / STEP_INV, KERN_ARENA);
        minus[k] = mix(PLUS_SCALED, in[k], dir[k], -1.0 / STEP_INV, KERN_ARENA);
    }
    y_plus = p->forward(plus);
    y_minus = p->forward(minus);
    *w = kt_rand(&t, KERN_INPUT, t.buf[y_plus].count, -1, 1, seed + 90);
    return dot(*w, mix(SCALED_DIFFERENCE, y_plus, y_minus, STEP_INV / 2, KERN_ARENA));
}

/* Writes the same by the gradient op. */
static int by_gradient(const struct pair *p, int n, const int *in, const int *dir, int w)
{
    int d[OPERANDS], sum;

    p->grad(in, w, d);
    sum = dot(d[0], dir[0]);
    for (int k = 1; k < n; k++)
        sum = mix(PLUS_SCALED, sum, dot(d[k], dir[k]), 1, KERN_ARENA);
    return sum;
}

/* Operands, weights and so derivatives are of order 1: the error is compared with 1e-8. */
static bool pair_holds(const struct pair *p, int of, int64_t only, uint32_t seed)
{
    int in[OPERANDS], dir[OPERANDS], n = 0, w, differences, out;
    double error;

    kt_begin(&t);
    labels = kt_in(&t, DT_I32, 3, (const int32_t[]){2, -1, 0});
    smooth = kt_in(&t, DT_F32, 1, &(const float){0.1f});
    indices = kt_in(&t, DT_I32, 5, (const int32_t[]){3, 0, 3, 9, 1});
    for (; n < OPERANDS && p->count[n] > 0; n++) {
        in[n] = kt_rand(&t, KERN_INPUT, p->count[n], -2, 2, seed + (uint32_t)n);
        dir[n] = direction(p->count[n], n, of, only, seed + (uint32_t)n);
    }
    differences = by_differences(p, n, in, dir, &w, seed);
    out = mix(SCALED_DIFFERENCE, by_gradient(p, n, in, dir, w), differences, 1, KERN_RESULT);
    if (!kt_run(&ref, &t, 0))
        return false;
    error = (double)((float *)t.got[0][out])[0];
    if (fabs(error) <= 1e-8)
        return true;
    note("%s, operand %d, element %lld: off by %g", p->name, of, (long long)only, error);
    return false;
}

static void test_pair(const struct pair *p)
{
    bool along = true, each = true;

    for (uint32_t seed = 1; seed <= 3; seed++)
        along &= pair_holds(p, 0, -1, seed * 100);
    ok(along, "%s: the gradient is that by differences, in random directions", p->name);
    for (int k = 0; k < OPERANDS; k++)
        for (int64_t e = 0; e < p->count[k]; e++)
            each &= pair_holds(p, k, e, 7);
    ok(each, "%s: and element by element", p->name);
}

int main(void)
{
    static const struct pair pairs[] = {
        {"layer_norm", {15, 5, 5}, layer_norm, layer_norm_grad},
        {"rms_norm", {15, 5}, rms_norm, rms_norm_grad},
        {"xent", {12}, xent, xent_grad},
        {"take", {16}, take, take_grad},
    };

    if (ok(kt_open(&ref, "ref"), "the plugin opens")) {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            test_pair(&pairs[i]);
        kt_begin(&t);
    }
    kt_close(&ref);
    return tap_done();
}
