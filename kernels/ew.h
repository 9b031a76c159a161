/* ew.h - the elementwise operations: one list for the graph, the fuser and every backend.
 *
 * A row: NAME, text, number of operands, what the result's type is.
 *   SAME  the operands' type (f32 or i32; all operands alike)
 *   F32   operands and result f32
 *   BOOL  bool result from two operands of one type
 *   LOGIC bool operands and result
 *   SEL   select(bool c, a, b): type of a and b
 * The formulas are engine-wide contracts: comparisons with NaN are false but for ne; max and min
 * give NaN if either operand is NaN; relu(NaN) is NaN; mod has the divisor's sign (Lua's %); round
 * is half to even; sign(0) = 0, sign(NaN) = NaN; integer division and mod by zero give 0. pow is
 * IEEE pow. */
#ifndef EW_H
#define EW_H

// clang-format off
#define EW_MAP(X)                        \
    X(NEG,      "neg",      1, SAME)     \
    X(ABS,      "abs",      1, SAME)     \
    X(EXP,      "exp",      1, F32)      \
    X(EXPM1,    "expm1",    1, F32)      \
    X(LOG,      "log",      1, F32)      \
    X(LOG1P,    "log1p",    1, F32)      \
    X(SQRT,     "sqrt",     1, F32)      \
    X(RSQRT,    "rsqrt",    1, F32)      \
    X(RECIP,    "recip",    1, F32)      \
    X(SIN,      "sin",      1, F32)      \
    X(COS,      "cos",      1, F32)      \
    X(TANH,     "tanh",     1, F32)      \
    X(ERF,      "erf",      1, F32)      \
    X(SIGMOID,  "sigmoid",  1, F32)      \
    X(RELU,     "relu",     1, F32)      \
    X(FLOOR,    "floor",    1, F32)      \
    X(ROUND,    "round",    1, F32)      \
    X(SIGN,     "sign",     1, SAME)     \
    X(ISFINITE, "isfinite", 1, BOOL)     \
    X(NOT,      "not",      1, LOGIC)    \
    X(ADD,      "add",      2, SAME)     \
    X(SUB,      "sub",      2, SAME)     \
    X(MUL,      "mul",      2, SAME)     \
    X(DIV,      "div",      2, SAME)     \
    X(POW,      "pow",      2, F32)      \
    X(MAX,      "max",      2, SAME)     \
    X(MIN,      "min",      2, SAME)     \
    X(MOD,      "mod",      2, SAME)     \
    X(LT,       "lt",       2, BOOL)     \
    X(LE,       "le",       2, BOOL)     \
    X(EQ,       "eq",       2, BOOL)     \
    X(NE,       "ne",       2, BOOL)     \
    X(AND,      "and",      2, LOGIC)    \
    X(OR,       "or",       2, LOGIC)    \
    X(SELECT,   "select",   3, SEL)
// clang-format on

enum ew_rule { EW_RULE_SAME, EW_RULE_F32, EW_RULE_BOOL, EW_RULE_LOGIC, EW_RULE_SEL };

enum ew {
#define X(name, text, arity, rule) EW_##name,
    EW_MAP(X)
#undef X
        EW_COUNT
};

#endif
