/* grad_ew.c - gradients of the elementwise ops. g is the gradient of the result y; shapes are all
 * alike. */
#include <math.h>

#include "engine/graph/priv.h"

#define MUL(a, b) g_bin(g, (enum op)EW_MUL, a, b, e)
#define ADD(a, b) g_bin(g, (enum op)EW_ADD, a, b, e)
#define DIV(a, b) g_bin(g, (enum op)EW_DIV, a, b, e)
#define UN(what, a) g_un(g, (enum op)EW_##what, a, e)
#define SCALE(a, v) g_scale(g, a, v, e)
#define PLUS(a, v) graph_scalar_op(g, (enum op)EW_ADD, a, v, false, e)
#define SELECT(c, a, b) graph_select(g, c, a, b, e)

static int zero(struct graph *g, struct err *e)
{
    struct shape s = {0};
    return graph_const(g, 0, &s, DT_F32, e);
}

/* 1 - y^2 */
static int one_less_square(struct graph *g, int y, struct err *e)
{
    return graph_scalar_op(g, (enum op)EW_SUB, MUL(y, y), 1, true, e);
}

static int unary(struct graph *g, enum ew op, int x, int y, int dy, struct err *e)
{
    switch (op) {
    case EW_NEG:
        return UN(NEG, dy);
    case EW_ABS:
        return MUL(dy, UN(SIGN, x));
    case EW_EXP:
        return MUL(dy, y);
    case EW_EXPM1:
        return MUL(dy, PLUS(y, 1));
    case EW_LOG:
        return DIV(dy, x);
    case EW_LOG1P:
        return DIV(dy, PLUS(x, 1));
    case EW_SQRT:
        return DIV(SCALE(dy, 0.5), y);
    case EW_RSQRT:
        return MUL(SCALE(dy, -0.5), MUL(y, MUL(y, y)));
    case EW_RECIP:
        return UN(NEG, MUL(dy, MUL(y, y)));
    case EW_SIN:
        return MUL(dy, UN(COS, x));
    case EW_COS:
        return UN(NEG, MUL(dy, UN(SIN, x)));
    case EW_TANH:
        return MUL(dy, one_less_square(g, y, e));
    case EW_ERF: /* 2 / sqrt(pi) * exp(-x^2) */
        return MUL(dy, SCALE(UN(EXP, UN(NEG, MUL(x, x))), 1.1283791670955126));
    case EW_SIGMOID:
        return MUL(dy, MUL(y, graph_scalar_op(g, (enum op)EW_SUB, y, 1, true, e)));
    case EW_RELU: /* of the result, which is kept anyway: y > 0 exactly where x > 0 */
        return SELECT(g_bin(g, (enum op)EW_LT, zero(g, e), y, e), dy, zero(g, e));
    default:
        return -1;
    }
}

/* Share of the gradient that goes to a where `less` says that b lost; ties half each, as PyTorch.
 */
static int winner(struct graph *g, int less, int a, int b, struct err *e)
{
    int wins = graph_cast(g, less, DT_F32, e),
        tie = graph_cast(g, g_bin(g, (enum op)EW_EQ, a, b, e), DT_F32, e);
    return ADD(wins, SCALE(tie, 0.5));
}

/* d a^b: b * a^(b-1), 0 where b = 0; a^b * log a where a > 0, else 0. The power and the logarithm
 * of what is not used are taken of 1, so that no NaN enters, in the gradient's gradient neither. */
static void power(struct graph *g, int a, int b, int y, int dy, int *da, int *db, struct err *e)
{
    struct shape s = {0};
    int one = graph_const(g, 1, &s, DT_F32, e),
        positive = g_bin(g, (enum op)EW_LT, zero(g, e), a, e);
    int exponent = PLUS(SELECT(g_bin(g, (enum op)EW_EQ, b, zero(g, e), e), one, b), -1);
    int safe = SELECT(positive, a, one);

    *da = MUL(dy, MUL(b, g_bin(g, (enum op)EW_POW, a, exponent, e)));
    *db = MUL(dy, SELECT(positive, MUL(y, UN(LOG, safe)), zero(g, e)));
}

enum err_code grad_ew(struct graph *g, int node, const int *d_out, int *d_in, struct err *e)
{
    const struct node *n = graph_node(g, node);
    enum ew op = (enum ew)n->op;
    int a = n->in[0], b = n->n_in > 1 ? n->in[1] : -1, dy = d_out[0], w;

    if (n->dtype != DT_F32)
        return ERR_OK; /* whole numbers carry no gradient */
    switch (op) {
    case EW_ADD:
        d_in[0] = d_in[1] = dy;
        return ERR_OK;
    case EW_SUB:
        d_in[0] = dy;
        d_in[1] = UN(NEG, dy);
        break;
    case EW_MUL:
        d_in[0] = MUL(dy, b);
        d_in[1] = MUL(dy, a);
        break;
    case EW_DIV:
        d_in[0] = DIV(dy, b);
        d_in[1] = UN(NEG, DIV(MUL(dy, node), b));
        break;
    case EW_POW:
        power(g, a, b, node, dy, &d_in[0], &d_in[1], e);
        break;
    case EW_MAX:
    case EW_MIN:
        w = op == EW_MAX ? winner(g, g_bin(g, (enum op)EW_LT, b, a, e), a, b, e)
                         : winner(g, g_bin(g, (enum op)EW_LT, a, b, e), a, b, e);
        d_in[0] = MUL(dy, w);
        d_in[1] = MUL(dy, graph_scalar_op(g, (enum op)EW_SUB, w, 1, true, e));
        break;
    case EW_MOD: /* a - b * floor(a / b) */
        d_in[0] = dy;
        d_in[1] = UN(NEG, MUL(dy, UN(FLOOR, DIV(a, b))));
        break;
    case EW_SELECT:
        d_in[1] = SELECT(a, dy, zero(g, e));
        d_in[2] = SELECT(a, zero(g, e), dy);
        return d_in[1] < 0 || d_in[2] < 0 ? ERR_SHAPE : ERR_OK;
    default:
        d_in[0] = unary(g, op, a, node, dy, e);
        break;
    }
    return d_in[0] < 0 || (b >= 0 && d_in[1] < 0) ? ERR_SHAPE : ERR_OK;
}
