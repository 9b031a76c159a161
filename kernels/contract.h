/* contract.h - what kernels.h says of a program, as code: the types of a fused group's instructions
 * and what a matrix reaches over. The same in every backend that checks or runs one. Compiles as C
 * and C++. */
#ifndef KERN_CONTRACT_H
#define KERN_CONTRACT_H

#include "kernels/kernels.h"

/* What a register holds. u8 values live in REG_INT. */
enum reg_type { REG_NONE, REG_FLOAT, REG_INT, REG_BOOL };

struct ew_shape {
    int arity;
    enum ew_rule rule;
};

/* ew < EW_COUNT */
static inline struct ew_shape ew_shape_of(int ew)
{
    static const struct ew_shape rows[EW_COUNT] = {
#define X(name, text, arity, rule) {arity, EW_RULE_##rule},
        EW_MAP(X)
#undef X
    };
    return rows[ew];
}

/* The register that holds a buffer's elements; REG_NONE for a type no fused group has. */
static inline enum reg_type reg_type_of(int dtype)
{
    switch (dtype) {
    case DT_F32:
        return REG_FLOAT;
    case DT_I32:
    case DT_U8:
        return REG_INT;
    case DT_BOOL:
        return REG_BOOL;
    default:
        return REG_NONE;
    }
}

/* The types of the operands an instruction needs, REG_NONE where it has none (CAST and STORE take
 * any type in a). False: ew is none of EW_MAP. */
static inline bool insn_operands(const struct kern_insn *n, enum reg_type want[3])
{
    want[0] = want[1] = want[2] = REG_NONE;
    if (n->code == KERN_I_DROPOUT) {
        want[0] = want[1] = REG_FLOAT;
    } else if (n->code == KERN_I_EW) {
        struct ew_shape s;

        if (n->ew >= EW_COUNT)
            return false;
        s = ew_shape_of(n->ew);
        for (int k = 0; k < s.arity; k++)
            want[k] = s.rule == EW_RULE_LOGIC ? REG_BOOL : reg_type_of(n->type);
        if (s.rule == EW_RULE_SEL)
            want[0] = REG_BOOL;
    }
    return true;
}

/* Is `type` one that the instruction can have? (Of the result; rule BOOL: of the operands.) */
static inline bool insn_type_fits(const struct kern_insn *n)
{
    const enum reg_type t = reg_type_of(n->type);

    switch (n->code) {
    case KERN_I_HYPER:
    case KERN_I_UNIFORM:
    case KERN_I_DROPOUT:
        return t == REG_FLOAT;
    case KERN_I_BITS:
        return t == REG_INT;
    case KERN_I_IOTA:
        return t == REG_FLOAT || t == REG_INT;
    case KERN_I_EW:
        if (ew_shape_of(n->ew).rule == EW_RULE_SAME)
            return t == REG_FLOAT || t == REG_INT;
        if (ew_shape_of(n->ew).rule == EW_RULE_F32)
            return t == REG_FLOAT;
        return ew_shape_of(n->ew).rule == EW_RULE_LOGIC || t != REG_NONE;
    default:
        return t != REG_NONE;
    }
}

static inline enum reg_type insn_result_type(const struct kern_insn *n)
{
    if (n->code == KERN_I_EW) {
        const enum ew_rule rule = ew_shape_of(n->ew).rule;
        if (rule == EW_RULE_BOOL || rule == EW_RULE_LOGIC)
            return REG_BOOL;
    }
    return reg_type_of(n->type);
}

/* Elements that [batch][rows][cols] with these strides spans; -1 for a bad one. */
static inline int64_t matrix_extent(int64_t batch, int64_t rows, int64_t cols, int64_t ld,
                                    int64_t stride)
{
    int64_t a, b, sum;

    if (batch < 0 || rows < 0 || cols < 0 || stride < 0 || ld < cols)
        return -1;
    if (batch == 0 || rows == 0 || cols == 0)
        return 0;
    if (__builtin_mul_overflow(batch - 1, stride, &a) || __builtin_mul_overflow(rows - 1, ld, &b) ||
        __builtin_add_overflow(a, b, &sum) || __builtin_add_overflow(sum, cols, &sum))
        return -1;
    return sum;
}

#endif
