/* fused.c - fused elementwise groups: an interpreter, one element at a time, every instruction in
 * turn. */
#include "kernels/ref/ref.h"

#include "kernels/contract.h"
#include "kernels/philox.h"

union reg {
    double f;
    int64_t i; /* REG_INT: a value of int32; REG_BOOL: 0 or 1 */
};

/* ---- checks ---- */

static int64_t space_count(const struct kern_fused *f)
{
    int64_t n = 1;

    for (int d = 0; d < f->rank; d++)
        n = ref_product(n, f->dim[d], 1);
    return n;
}

/* First and last element that a view touches lie in its buffer. Space is not empty. */
static bool check_view(const struct ref_check *c, int at)
{
    const struct kern_fused *f = &c->op->u.fused;
    const struct kern_view *v = &f->views[at];
    int64_t low = v->offset, high = v->offset, reach;

    for (int d = 0; d < f->rank; d++) {
        int64_t *end = v->stride[d] < 0 ? &low : &high;
        if (__builtin_mul_overflow(f->dim[d] - 1, v->stride[d], &reach) ||
            __builtin_add_overflow(*end, reach, end))
            return ref_refuse(c, KERN_EINVAL, "view %d: stride %lld", at, (long long)v->stride[d]);
    }
    if (low < 0 || high >= c->p->bufs[v->buf].count)
        return ref_refuse(c, KERN_EINVAL, "view %d touches elements %lld .. %lld of %lld", at,
                          (long long)low, (long long)high, (long long)c->p->bufs[v->buf].count);
    return true;
}

static bool check_views(const struct ref_check *c)
{
    const struct kern_fused *f = &c->op->u.fused;
    const int64_t count = space_count(f);

    for (int i = 0; i < f->n_views; i++) {
        const int32_t buf = f->views[i].buf;
        if (buf < 0 || buf >= c->p->n_bufs)
            return ref_refuse(c, KERN_EINVAL, "view %d is of buffer %d of %d", i, buf,
                              c->p->n_bufs);
        if (ref_check_buf(c->p, buf, c->e) != KERN_OK)
            return false;
        if (reg_type_of(c->p->bufs[buf].dtype) == REG_NONE)
            return ref_refuse(c, KERN_EUNSUPPORTED, "view %d: %s in a fused group", i,
                              dtype_name(c->p->bufs[buf].dtype));
        if (count > 0 && !check_view(c, i))
            return false;
    }
    return true;
}

static bool check_memory(const struct ref_check *c, const struct kern_insn *n, int at)
{
    const struct kern_fused *f = &c->op->u.fused;
    const struct kern_view *v;
    enum reg_type held, want = reg_type_of(n->type);

    if (n->view < 0 || n->view >= f->n_views)
        return ref_refuse(c, KERN_EINVAL, "insn %d names view %d of %d", at, n->view, f->n_views);
    v = &f->views[n->view];
    held = reg_type_of(c->p->bufs[v->buf].dtype);
    if (n->code == KERN_I_LOAD && held != want && !(held == REG_BOOL && want == REG_INT))
        return ref_refuse(c, KERN_EINVAL, "insn %d loads %s as %s", at,
                          dtype_name(c->p->bufs[v->buf].dtype), dtype_name((enum dtype)n->type));
    for (int d = 0; n->code == KERN_I_STORE && d < f->rank; d++)
        if (v->stride[d] == 0 && f->dim[d] > 1)
            return ref_refuse(c, KERN_EINVAL, "insn %d stores over itself", at);
    return true;
}

static bool check_reads(const struct ref_check *c, const struct kern_insn *n, int at,
                        const enum reg_type *type)
{
    const int16_t reg[3] = {n->a, n->b, n->c};
    const bool any = n->code == KERN_I_CAST || n->code == KERN_I_STORE; /* any type, in a */
    enum reg_type want[3];

    if (!insn_operands(n, want))
        return ref_refuse(c, KERN_EINVAL, "insn %d: operation %d is not known", at, n->ew);
    for (int k = 0; k < 3; k++) {
        if (want[k] == REG_NONE && !(any && k == 0))
            continue;
        if (reg[k] < 0 || reg[k] >= c->op->u.fused.n_regs || type[reg[k]] == REG_NONE)
            return ref_refuse(c, KERN_EINVAL, "insn %d reads register %d before it is set", at,
                              reg[k]);
        if (!any && type[reg[k]] != want[k])
            return ref_refuse(c, KERN_EINVAL, "insn %d: register %d has another type", at, reg[k]);
    }
    return true;
}

static bool check_insn(const struct ref_check *c, int at, enum reg_type *type)
{
    const struct kern_fused *f = &c->op->u.fused;
    const struct kern_insn *n = &f->insns[at];

    if (n->code > KERN_I_EW)
        return ref_refuse(c, KERN_EINVAL, "insn %d: code %d is not known", at, n->code);
    if (!check_reads(c, n, at, type))
        return false;
    if (n->code != KERN_I_STORE && !insn_type_fits(n))
        return ref_refuse(c, KERN_EINVAL, "insn %d: type %s", at, dtype_name((enum dtype)n->type));
    if ((n->code == KERN_I_LOAD || n->code == KERN_I_STORE) && !check_memory(c, n, at))
        return false;
    if (n->code == KERN_I_IOTA && n->axis >= f->rank)
        return ref_refuse(c, KERN_EINVAL, "insn %d: axis %d of %d", at, n->axis, f->rank);
    if (n->code == KERN_I_HYPER && (n->slot < 0 || n->slot >= KERN_HYPER_MAX))
        return ref_refuse(c, KERN_EINVAL, "insn %d: slot %d", at, n->slot);
    if (n->code == KERN_I_STORE)
        return true;
    if (n->dst < 0 || n->dst >= f->n_regs)
        return ref_refuse(c, KERN_EINVAL, "insn %d: register %d of %d", at, n->dst, f->n_regs);
    type[n->dst] = insn_result_type(n);
    return true;
}

bool ref_fused_check(const struct ref_check *c)
{
    const struct kern_fused *f = &c->op->u.fused;
    enum reg_type type[KERN_REGS] = {REG_NONE};

    if (f->rank < 1 || f->rank > KERN_RANK || space_count(f) < 0)
        return ref_refuse(c, KERN_EINVAL, "the iteration space has rank %d, or is too large",
                          f->rank);
    if (f->n_regs < 0 || f->n_regs > KERN_REGS || f->n_views < 0 || f->n_insns < 0 ||
        (f->n_views > 0 && !f->views) || (f->n_insns > 0 && !f->insns))
        return ref_refuse(c, KERN_EINVAL, "%d registers, %d views, %d insns", f->n_regs, f->n_views,
                          f->n_insns);
    if (!check_views(c))
        return false;
    for (int i = 0; i < f->n_insns; i++)
        if (!check_insn(c, i, type))
            return false;
    return true;
}

/* ---- elementwise operations ---- */

/* Lua's %: the result has the divisor's sign. */
static double mod_f(double a, double b)
{
    double m = fmod(a, b);

    if (m > 0 ? b < 0 : m < 0 && b > 0)
        m += b;
    return m;
}

static double ew_float1(enum ew op, double a)
{
    switch (op) {
    case EW_NEG:
        return -a;
    case EW_ABS:
        return fabs(a);
    case EW_EXP:
        return exp(a);
    case EW_EXPM1:
        return expm1(a);
    case EW_LOG:
        return log(a);
    case EW_LOG1P:
        return log1p(a);
    case EW_SQRT:
        return sqrt(a);
    case EW_RSQRT:
        return 1 / sqrt(a);
    case EW_RECIP:
        return 1 / a;
    case EW_SIN:
        return sin(a);
    case EW_COS:
        return cos(a);
    case EW_TANH:
        return tanh(a);
    case EW_ERF:
        return erf(a);
    case EW_SIGMOID:
        return 1 / (1 + exp(-a));
    case EW_RELU:
        return a > 0 || isnan(a) ? a : 0;
    case EW_FLOOR:
        return floor(a);
    case EW_ROUND:
        return nearbyint(a); /* half to even in the default mode, which nobody changes */
    case EW_SIGN:
        return isnan(a) ? a : (a > 0) - (a < 0);
    default:
        return NAN;
    }
}

static double ew_float2(enum ew op, double a, double b)
{
    switch (op) {
    case EW_ADD:
        return a + b;
    case EW_SUB:
        return a - b;
    case EW_MUL:
        return a * b;
    case EW_DIV:
        return a / b;
    case EW_POW:
        return pow(a, b);
    case EW_MAX:
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case EW_MIN:
        return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case EW_MOD:
        return mod_f(a, b);
    default:
        return NAN;
    }
}

static int64_t mod_i(int64_t a, int64_t b)
{
    const int64_t m = b == 0 ? 0 : a % b;
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static int64_t ew_int(enum ew op, int64_t a, int64_t b)
{
    switch (op) {
    case EW_NEG:
        return -a;
    case EW_ABS:
        return a < 0 ? -a : a;
    case EW_SIGN:
        return (a > 0) - (a < 0);
    case EW_ADD:
        return a + b;
    case EW_SUB:
        return a - b;
    case EW_MUL:
        return a * b;
    case EW_DIV:
        return b == 0 ? 0 : a / b; /* toward zero, as C */
    case EW_MAX:
        return a > b ? a : b;
    case EW_MIN:
        return a < b ? a : b;
    case EW_MOD:
        return mod_i(a, b);
    default:
        return 0;
    }
}

static bool compare_f(enum ew op, double a, double b)
{
    switch (op) {
    case EW_LT:
        return a < b;
    case EW_LE:
        return a <= b;
    case EW_EQ:
        return a == b;
    case EW_NE:
        return a != b;
    default: /* ISFINITE: of the f32 that it stands for */
        return isfinite((float)a);
    }
}

static bool compare_i(enum ew op, int64_t a, int64_t b)
{
    switch (op) {
    case EW_LT:
        return a < b;
    case EW_LE:
        return a <= b;
    case EW_EQ:
        return a == b;
    case EW_NE:
        return a != b;
    default: /* ISFINITE */
        return true;
    }
}

static union reg ew_run(const struct kern_insn *n, const union reg *r)
{
    const enum ew op = (enum ew)n->ew;
    const bool is_float = reg_type_of(n->type) == REG_FLOAT;
    const union reg zero = {.i = 0};
    const union reg a = r[n->a], b = ew_shape_of(op).arity > 1 ? r[n->b] : zero;
    union reg out = zero;

    switch (ew_shape_of(op).rule) {
    case EW_RULE_SAME:
    case EW_RULE_F32:
        if (!is_float)
            out.i = ref_wrap(ew_int(op, a.i, b.i));
        else
            out.f = ew_shape_of(op).arity == 1 ? ew_float1(op, a.f) : ew_float2(op, a.f, b.f);
        break;
    case EW_RULE_BOOL:
        out.i = is_float ? compare_f(op, a.f, b.f) : compare_i(op, a.i, b.i);
        break;
    case EW_RULE_LOGIC:
        out.i = op == EW_NOT ? !a.i : op == EW_AND ? a.i && b.i : a.i || b.i;
        break;
    case EW_RULE_SEL:
        out = a.i ? b : r[n->c];
        break;
    }
    return out;
}

/* ---- the interpreter ---- */

struct element {
    int64_t index[KERN_RANK];
    int64_t number;  /* row-major */
    int64_t per_row; /* elements of one step along dimension 0 */
};

static int64_t view_at(const struct kern_fused *f, const struct kern_view *v,
                       const struct element *el)
{
    int64_t at = v->offset;

    for (int d = 0; d < f->rank; d++)
        at += el->index[d] * v->stride[d];
    return at;
}

static int64_t float_to_int(double v)
{
    if (isnan(v))
        return 0;
    return v >= INT32_MAX ? INT32_MAX : v <= INT32_MIN ? INT32_MIN : (int64_t)v;
}

static union reg convert(union reg v, enum reg_type from, int dtype)
{
    union reg out = v;

    if (dtype == DT_F32) {
        out.f = from == REG_FLOAT ? v.f : (double)v.i;
        return out;
    }
    if (dtype == DT_BOOL) {
        out.i = from == REG_FLOAT ? v.f != 0 : v.i != 0;
        return out;
    }
    out.i = from == REG_FLOAT ? float_to_int(v.f) : v.i;
    if (dtype == DT_U8)
        out.i &= 0xff;
    return out;
}

static union reg cell_load(const unsigned char *cells, enum dtype t, int64_t at)
{
    union reg v;

    if (t == DT_F32)
        v.f = ((const double *)(const void *)cells)[at];
    else if (t == DT_I32)
        v.i = ref_wrap(((const int64_t *)(const void *)cells)[at]);
    else
        v.i = t == DT_BOOL ? cells[2 * at] != 0 : cells[2 * at];
    return v;
}

static void cell_store(unsigned char *cells, enum dtype t, int64_t at, union reg v)
{
    if (t == DT_F32)
        ((double *)(void *)cells)[at] = v.f;
    else if (t == DT_I32)
        ((int64_t *)(void *)cells)[at] = v.i;
    else
        cells[2 * at] = (unsigned char)v.i;
}

static uint32_t random_word(const struct ref_run *r, const struct kern_insn *n,
                            const struct element *el)
{
    uint64_t i = (uint64_t)el->number;

    if (n->per_sample)
        i += r->hyper->sample_base * (uint64_t)el->per_row;
    return philox_word(r->hyper->seed, PHILOX_GRAPH, n->stream, (uint32_t)r->hyper->step, i);
}

/* The same comparison of integers as on every backend: p is an f32 there, so it is made one here.
 */
static double dropout(double x, double p, uint32_t word)
{
    const float pf = (float)p;
    const uint32_t threshold = pf > 0 ? (uint32_t)ceilf((pf < 1 ? pf : 1) * 16777216.0f) : 0;

    return (word >> 8) >= threshold ? x * (1 / (1 - (double)pf)) : 0;
}

/* type[k] is what register k holds; the instruction that sets it sets that too. */
static void insn_run(const struct ref_run *r, const struct kern_fused *f, const struct kern_insn *n,
                     const struct element *el, union reg *reg, enum reg_type *type)
{
    const struct kern_view *v = NULL;
    union reg out = {.i = 0};

    if (n->code == KERN_I_LOAD || n->code == KERN_I_STORE)
        v = &f->views[n->view];
    switch ((enum kern_insn_code)n->code) {
    case KERN_I_STORE:
        cell_store(r->cells[v->buf], r->bufs[v->buf].dtype, view_at(f, v, el),
                   convert(reg[n->a], type[n->a], (int)r->bufs[v->buf].dtype));
        return;
    case KERN_I_LOAD:
        out = cell_load(r->cells[v->buf], r->bufs[v->buf].dtype, view_at(f, v, el));
        break;
    case KERN_I_CONST:
        out.f = n->value;
        out = reg_type_of(n->type) == REG_FLOAT ? out : convert(out, REG_FLOAT, n->type);
        break;
    case KERN_I_IOTA:
        out.i = ref_wrap(el->index[n->axis]);
        out = convert(out, REG_INT, n->type);
        break;
    case KERN_I_HYPER:
        out.f = (double)r->hyper->value[n->slot];
        break;
    case KERN_I_UNIFORM:
        out.f = (double)philox_uniform(random_word(r, n, el));
        break;
    case KERN_I_BITS:
        out.i = (int32_t)random_word(r, n, el);
        break;
    case KERN_I_DROPOUT:
        out.f = dropout(reg[n->a].f, reg[n->b].f, random_word(r, n, el));
        break;
    case KERN_I_CAST:
        out = convert(reg[n->a], type[n->a], n->type);
        break;
    case KERN_I_EW:
        out = ew_run(n, reg);
        break;
    }
    reg[n->dst] = out;
    type[n->dst] = insn_result_type(n);
}

static void element_next(const struct kern_fused *f, struct element *el)
{
    el->number++;
    for (int d = f->rank - 1; d >= 0; d--) {
        if (++el->index[d] < f->dim[d])
            return;
        el->index[d] = 0;
    }
}

void ref_fused_run(const struct ref_run *r, const struct kern_op *op)
{
    const struct kern_fused *f = &op->u.fused;
    const int64_t count = space_count(f);
    struct element el = {.per_row = count > 0 ? count / f->dim[0] : 0};
    union reg reg[KERN_REGS];
    enum reg_type type[KERN_REGS];

    for (; el.number < count; element_next(f, &el))
        for (int i = 0; i < f->n_insns; i++)
            insn_run(r, f, &f->insns[i], &el, reg, type);
}
