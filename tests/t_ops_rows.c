/* Norms, cross entropy and the update give on the cpu backend what the f64 reference gives (t_ops
 * has the operations before them, and says how tolerances are counted). */
#include "tests/kern_util.h"

#include <float.h>

static struct kt_dev cpu, ref;
static struct kt t;

static bool agree(double roundings, double floor, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool agree(double roundings, double floor, const char *fmt, ...)
{
    char what[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return kt_agree(&cpu, &ref, &t, roundings, floor, what);
}

/* ---- norms ---- */

static const int64_t tables[][2] = {{1, 1},    {1, 2},    {7, 13}, {31, 33}, {33, 31},
                                    {3, 1025}, {257, 32}, {0, 5},  {5, 64},  {65537, 3}};
enum { N_TABLES = sizeof tables / sizeof *tables };

/* Forward: bits of `with` are gain and bias. One row is constant, one has a NaN. */
static bool try_norm(enum kern_code code, int64_t rows, int64_t cols, int with, float at)
{
    const bool layer = code == KERN_LAYER_NORM;
    struct kern_op *op;

    kt_begin(&t);
    op = kt_op(&t, code, "norm");
    op->u.norm = (struct kern_norm){.rows = rows, .cols = cols, .eps = 1e-5f};
    op->in[0] = kt_rand(&t, KERN_INPUT, rows * cols, at - 2, at + 2, 1);
    for (int64_t j = 0; rows > 2 && j < cols; j++)
        ((float *)t.init[op->in[0]])[cols + j] = 1;
    if (rows > 5)
        ((float *)t.init[op->in[0]])[3 * cols] = NAN;
    if (with & 1)
        op->in[1] = kt_rand(&t, KERN_PARAM, cols, -1, 2, 2);
    if (with & 2 && layer)
        op->in[2] = kt_rand(&t, KERN_PARAM, cols, -1, 1, 3);
    op->out[0] = kt_out(&t, DT_F32, rows * cols);
    op->out[1] = kt_out(&t, DT_F32, rows);
    if (layer)
        op->out[2] = kt_out(&t, DT_F32, rows);
    return agree((double)cols + 32, 4 + 4 * (double)at, "[%lld][%lld] around %g, with %d",
                 (long long)rows, (long long)cols, (double)at, with);
}

static bool case_norm(enum kern_code code)
{
    bool same = true;

    for (int i = 0; i < N_TABLES; i++)
        for (int with = 0; with < 4; with++)
            same = try_norm(code, tables[i][0], tables[i][1], with, 0) &
                   try_norm(code, tables[i][0], tables[i][1], with, 30) & same;
    return same;
}

static bool case_layer_norm(void)
{
    return case_norm(KERN_LAYER_NORM);
}

static bool case_rms_norm(void)
{
    return case_norm(KERN_RMS_NORM);
}

/* What the forward op gives, by plain f64 on the host: inputs of the gradient must fit together. */
static void row_statistics(const float *x, int64_t cols, bool layer, float *mean, float *rstd)
{
    double sum = 0, square = 0;

    for (int64_t j = 0; layer && j < cols; j++)
        sum += (double)x[j] / (double)cols;
    for (int64_t j = 0; j < cols; j++)
        square += ((double)x[j] - sum) * ((double)x[j] - sum) / (double)cols;
    *mean = (float)sum;
    *rstd = (float)(1 / sqrt(square + 1e-3));
}

/* Backward: bits of `with` are gain, dgain, dbias. */
static bool try_norm_grad(enum kern_code code, int64_t rows, int64_t cols, int with)
{
    const bool layer = code == KERN_LAYER_NORM_GRAD;
    struct kern_op *op;
    int mean, rstd;

    kt_begin(&t);
    op = kt_op(&t, code, "norm grad");
    op->u.norm = (struct kern_norm){.rows = rows, .cols = cols, .eps = 1e-3f};
    op->in[0] = kt_rand(&t, KERN_INPUT, rows * cols, -1, 1, 1);
    op->in[1] = kt_rand(&t, KERN_INPUT, rows * cols, -2, 2, 2);
    if (with & 1)
        op->in[2] = kt_rand(&t, KERN_PARAM, cols, -1, 2, 3);
    mean = kt_in(&t, DT_F32, rows, NULL);
    rstd = kt_in(&t, DT_F32, rows, NULL);
    for (int64_t i = 0; i < rows; i++)
        row_statistics((float *)t.init[op->in[1]] + i * cols, cols, layer,
                       (float *)t.init[mean] + i, (float *)t.init[rstd] + i);
    op->in[3] = layer ? mean : rstd;
    op->in[4] = layer ? rstd : -1;
    op->out[0] = kt_out(&t, DT_F32, rows * cols);
    if (with & 2)
        op->out[1] = kt_out(&t, DT_F32, cols);
    if (with & 4 && layer)
        op->out[2] = kt_out(&t, DT_F32, cols);
    /* a row of one or two columns has a gradient that cancels to nothing at rstd up to 30 */
    return agree((double)(cols + rows) + 32, cols < 3 ? 64 : 8, "[%lld][%lld], with %d",
                 (long long)rows, (long long)cols, with);
}

static bool case_norm_grad(enum kern_code code)
{
    bool same = true;

    for (int i = 0; i < N_TABLES; i++)
        for (int with = 0; with < 8; with++)
            same = try_norm_grad(code, tables[i][0], tables[i][1], with) && same;
    return same;
}

static bool case_layer_norm_grad(void)
{
    return case_norm_grad(KERN_LAYER_NORM_GRAD);
}

static bool case_rms_norm_grad(void)
{
    return case_norm_grad(KERN_RMS_NORM_GRAD);
}

/* ---- cross entropy ---- */

/* s < 0: no smoothing buffer. Rows: label in range, ignored (-1), and in `bad` also no class at
 * all. */
static struct kern_op *xent_op(enum kern_code code, int64_t rows, int64_t cols, float s,
                               bool ignore, bool bad)
{
    struct kern_op *op;
    int32_t *label;

    kt_begin(&t);
    op = kt_op(&t, code, "xent");
    op->u.xent = (struct kern_xent){.rows = rows, .cols = cols, .has_ignore = ignore, .ignore = -1};
    op->in[0] = kt_rand(&t, KERN_RESULT, rows * cols, -5, 5, 1);
    op->in[1] = kt_rand_i(&t, rows, 0, (int32_t)cols, 2);
    label = t.init[op->in[1]];
    for (int64_t i = 0; i < rows; i++) {
        if (ignore && i % 3 == 2)
            label[i] = -1;
        if (bad && i % 7 == 1)
            label[i] = i % 2 ? (int32_t)cols : -2;
    }
    if (s >= 0)
        op->in[2] = kt_in(&t, DT_F32, 1, &s);
    return op;
}

/* Masked classes of -inf (not the label's), and a row of nothing else. */
static void mask_logits(int logits, const int32_t *label, int64_t rows, int64_t cols)
{
    float *x = t.init[logits];

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            if (i == 3 || (j % 2 == 0 && j != label[i]))
                x[i * cols + j] = -INFINITY;
}

static bool case_xent(void)
{
    static const float smooth[] = {-1, 0, 0.1f, 1};
    bool same = true;

    for (int i = 0; i < N_TABLES; i++) {
        for (int how = 0; how < 16; how++) {
            const int64_t rows = tables[i][0], cols = tables[i][1];
            const float s = smooth[how % 4];
            struct kern_op *op = xent_op(KERN_XENT, rows, cols, s, how & 4, true);
            if (how & 8 && s <= 0)
                mask_logits(op->in[0], t.init[op->in[1]], rows, cols);
            op->out[0] = kt_out(&t, DT_F32, rows);
            op->out[1] = kt_out(&t, DT_F32, rows);
            same &= agree((double)cols + 24, 10, "[%lld][%lld], smoothing %g, ignore %d, masked %d",
                          (long long)rows, (long long)cols, (double)s, how & 4, how & 8);
        }
    }
    return same;
}

/* On even turns the gradient takes the memory of the logits. */
static bool try_xent_grad(int64_t rows, int64_t cols, float s, bool ignore, bool masked,
                          bool in_place)
{
    struct kern_op *op = xent_op(KERN_XENT_GRAD, rows, cols, s, ignore, false);
    float *x = t.init[op->in[0]], *lse;

    if (masked)
        mask_logits(op->in[0], t.init[op->in[1]], rows, cols);
    op->in[3] = kt_in(&t, DT_F32, rows, NULL);
    op->in[4] = kt_rand(&t, KERN_INPUT, rows, -1, 1, 5);
    lse = t.init[op->in[3]];
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < cols; j++)
            sum += exp((double)x[i * cols + j]);
        lse[i] = (float)log(sum);
    }
    op->out[0] = kt_buf(&t, KERN_RESULT, DT_F32, rows * cols, x);
    if (in_place)
        t.buf[op->out[0]].offset = t.buf[op->in[0]].offset;
    return agree(24, 1, "[%lld][%lld], smoothing %g, ignore %d, masked %d, in place %d",
                 (long long)rows, (long long)cols, (double)s, ignore, masked, in_place);
}

static bool case_xent_grad(void)
{
    static const float smooth[] = {-1, 0, 0.1f, 1};
    bool same = true;

    for (int i = 0; i < N_TABLES; i++)
        for (int how = 0; how < 32; how++)
            same &= try_xent_grad(tables[i][0], tables[i][1], smooth[how % 4], how & 4, how & 8,
                                  how & 16);
    return same;
}

/* ---- the update ---- */

/* Hyper slots of these tests. */
enum { LR = 1, DECAY = 3, MOMENTUM = 5, BETA1 = 6, BETA2 = 7, EPS = 8, CLIP = 9, GRAD_SCALE = 10 };

static const struct kern_segment segments[] = {
    {0, 33, 0}, {48, 1025, 1}, {1104, 1, 0}, {1120, 0, 1}};
enum { N_PARAMS = 1136, N_SEGMENTS = 4 };

static struct kern_op *opt_op(enum kern_code code, int in0)
{
    struct kern_op *op = kt_op(&t, code, "update");

    op->in[0] = in0;
    op->u.opt = (struct kern_opt){.segments = segments,
                                  .n_segments = N_SEGMENTS,
                                  .lr = LR,
                                  .weight_decay = DECAY,
                                  .momentum = MOMENTUM,
                                  .beta1 = BETA1,
                                  .beta2 = BETA2,
                                  .eps = EPS,
                                  .clip = CLIP};
    t.h.value[LR] = 0.01f;
    t.h.value[LR + 1] = 0.03f;
    t.h.value[DECAY] = 0;
    t.h.value[DECAY + 1] = 0.1f;
    t.h.value[MOMENTUM] = 0.9f;
    t.h.value[BETA1] = 0.9f;
    t.h.value[BETA2] = 0.99f;
    t.h.value[EPS] = 1e-6f;
    return op;
}

/* Squares are summed in f64: sizes whose squares leave f32's range are no trouble, and little is
 * lost. */
static bool case_grad_norm(void)
{
    static const float scale[] = {1, 1e25f, 1e-25f, 0, INFINITY, NAN};
    bool same = true;

    for (int i = 0; i < 7; i++) {
        kt_begin(&t);
        const int g = kt_rand(&t, KERN_GRAD, N_PARAMS, 0.5f, 2, 1);
        float *x = t.init[g];
        for (int64_t k = 0; i < 4 && k < N_PARAMS; k++)
            x[k] *= scale[i];
        if (i >= 4 && i < 6)
            x[49] = scale[i];
        x[33] = NAN; /* between segments: not looked at */
        struct kern_op *op = opt_op(KERN_GRAD_NORM, g);
        op->out[0] = kt_buf(&t, KERN_STEP, DT_F32, 1, NULL);
        op->u.opt.n_segments = i == 6 ? 0 : N_SEGMENTS;
        same &= agree(3, FLT_MIN, "gradients, try %d", i);
    }
    return same;
}

static bool try_prologue(float norm, float clip, uint32_t flags, double latch)
{
    const double state[4] = {3, 0.729, 0.97, latch};
    struct kern_op *op;
    bool same;

    kt_begin(&t);
    op = opt_op(KERN_PROLOGUE, kt_buf(&t, KERN_STEP, DT_F32, 1, &norm));
    op->in[1] = kt_buf(&t, KERN_STATE, DT_F64, 4, state);
    op->out[0] = kt_buf(&t, KERN_STEP, DT_F32, 4, NULL);
    t.h.value[CLIP] = clip;
    t.h.flags = flags;
    same = kt_run(&cpu, &t, 0) && kt_run(&ref, &t, 1);
    if (((float *)t.got[1][op->out[0]])[1] != 0) /* skipped: nobody uses the coefficient */
        memcpy(t.got[0][op->out[0]], t.got[1][op->out[0]], sizeof(float));
    same = same && kt_same(&t, op->out[0], 4, FLT_MIN, "step block") &&
           kt_same(&t, op->in[1], 0, 0, "state");
    if (!same)
        note("norm %g, clip %g, flags %u, latch %g", (double)norm, (double)clip, flags, latch);
    return same;
}

static bool case_prologue(void)
{
    static const float norms[] = {0, 0.5f, 1, 7, 1e30f, INFINITY, NAN},
                       clips[] = {0, 1, 0.25f, 100};
    bool same = true;

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        for (size_t k = 0; k < sizeof clips / sizeof *clips; k++)
            for (uint32_t flags = 0; flags < 4; flags++)
                for (int latch = 0; latch < 2; latch++)
                    same = try_prologue(norms[i], clips[k], flags, latch) && same;
    return same;
}

/* Step 3 has a gradient of NaN and is skipped; under KERN_LATCH so is 4, until 5 clears it. The
 * rate changes. */
static void before_step(struct kt *k, int step)
{
    k->h.value[GRAD_SCALE] = step == 3 ? NAN : 1 / (float)step;
    k->h.value[LR] = 0.01f * (float)step;
    k->h.step = (uint64_t)step;
    k->h.flags = step == 5 ? KERN_CLEAR_LATCH : k->h.value[20] != 0 ? KERN_LATCH : 0;
}

/* gradient = what came * a hyperparameter -> norm -> prologue -> the update, six times. */
static bool try_update(enum kern_code code, bool momentum, bool variant, float clip, bool latch)
{
    static const double state[4] = {0, 1, 1, 0};
    struct kern_fused *f;
    struct kern_op *op;
    int raw, p, g, norm, st, block, m = -1, v = -1, r;

    kt_begin(&t);
    raw = kt_rand(&t, KERN_INPUT, N_PARAMS, -1, 1, 1);
    p = kt_rand(&t, KERN_PARAM, N_PARAMS, -1, 1, 2);
    g = kt_buf(&t, KERN_GRAD, DT_F32, N_PARAMS, NULL);
    norm = kt_buf(&t, KERN_STEP, DT_F32, 1, NULL);
    block = kt_buf(&t, KERN_STEP, DT_F32, 4, NULL);
    st = kt_buf(&t, KERN_STATE, DT_F64, 4, state);
    if (momentum)
        m = kt_buf(&t, KERN_STATE, DT_F32, N_PARAMS, NULL);
    if (code == KERN_ADAM)
        v = kt_buf(&t, KERN_STATE, DT_F32, N_PARAMS, NULL);
    f = kt_fused(&t, 1, N_PARAMS, 0, 0);
    r = kt_insn(
        &t, f,
        (struct kern_insn){
            .code = KERN_I_HYPER, .type = DT_F32, .a = -1, .b = -1, .c = -1, .slot = GRAD_SCALE});
    r = kt_ew(&t, f, EW_MUL, DT_F32, kt_load(&t, f, DT_F32, kt_view(&t, f, raw, 0, 1, 0, 0)), r,
              -1);
    kt_store(&t, f, DT_F32, r, kt_view(&t, f, g, 0, 1, 0, 0));
    opt_op(KERN_GRAD_NORM, g)->out[0] = norm;
    op = opt_op(KERN_PROLOGUE, norm);
    op->in[1] = st;
    op->out[0] = block;
    op = opt_op(code, p);
    op->in[1] = g;
    op->in[2] = block;
    op->in[3] = m;
    op->in[4] = v;
    op->u.opt.nesterov = op->u.opt.decoupled = variant;
    t.h.value[CLIP] = clip;
    t.h.value[20] = latch;
    /* Six steps of a dozen roundings. Adam divides by sqrt(v), whose error is half that of v. */
    if (kt_run_steps(&cpu, &t, 0, 6, before_step) && kt_run_steps(&ref, &t, 1, 6, before_step) &&
        kt_same(&t, p, 64, 1, "parameters") && kt_same(&t, block, 16, FLT_MIN, "step block") &&
        kt_same(&t, st, 0, 0, "state") && (m < 0 || kt_same(&t, m, 64, 0.01, "m")) &&
        (v < 0 || kt_same(&t, v, 64, 1e-4, "v")) && ((double *)t.got[0][st])[0] == (latch ? 4 : 5))
        return true;
    note("momentum %d, variant %d, clip %g, latch %d", momentum, variant, (double)clip, latch);
    return false;
}

static bool case_sgd(void)
{
    bool same = true;

    for (int how = 0; how < 16; how++)
        same = try_update(KERN_SGD, how & 1, how & 2, how & 4 ? 0.5f : 0, how & 8) && same;
    return same;
}

static bool case_adam(void)
{
    bool same = true;

    for (int how = 0; how < 8; how++)
        same = try_update(KERN_ADAM, true, how & 1, how & 2 ? 0.5f : 0, how & 4) && same;
    return same;
}

static const struct {
    const char *name;
    bool (*run)(void);
} cases[KERN_CODES] = {
    [KERN_LAYER_NORM] = {"layer_norm", case_layer_norm},
    [KERN_LAYER_NORM_GRAD] = {"layer_norm_grad", case_layer_norm_grad},
    [KERN_RMS_NORM] = {"rms_norm", case_rms_norm},
    [KERN_RMS_NORM_GRAD] = {"rms_norm_grad", case_rms_norm_grad},
    [KERN_XENT] = {"xent", case_xent},
    [KERN_XENT_GRAD] = {"xent_grad", case_xent_grad},
    [KERN_GRAD_NORM] = {"grad_norm", case_grad_norm},
    [KERN_PROLOGUE] = {"prologue", case_prologue},
    [KERN_SGD] = {"sgd", case_sgd},
    [KERN_ADAM] = {"adam", case_adam},
};

int main(void)
{
    const bool open = kt_open(&ref, "ref") & kt_open(&cpu, "cpu");

    if (ok(open, "both plugins open")) {
        for (int code = KERN_LAYER_NORM; code < KERN_CODES; code++) {
            if (ok(cases[code].run, "code %d has a case", code))
                ok(cases[code].run(), "%s: cpu as ref", cases[code].name);
        }
        kt_begin(&t);
    }
    kt_close(&cpu);
    kt_close(&ref);
    return tap_done();
}
