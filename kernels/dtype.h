/* dtype.h - element types: the same in C, C++ and CUDA. */
#ifndef DTYPE_H
#define DTYPE_H

#include <stdint.h>

// clang-format off
#define DTYPE_MAP(X)     \
    X(F32,  "f32",  4)   \
    X(F64,  "f64",  8)   \
    X(BF16, "bf16", 2)   \
    X(F16,  "f16",  2)   \
    X(I32,  "i32",  4)   \
    X(U8,   "u8",   1)   \
    X(BOOL, "bool", 1)
// clang-format on

enum dtype {
#define X(name, text, bytes) DT_##name,
    DTYPE_MAP(X)
#undef X
        DT_COUNT
};

static inline int dtype_size(enum dtype t)
{
    switch (t) {
#define X(name, text, bytes)                                                                       \
    case DT_##name:                                                                                \
        return bytes;
        DTYPE_MAP(X)
#undef X
    case DT_COUNT:
        break;
    }
    return 0;
}

static inline const char *dtype_name(enum dtype t)
{
    switch (t) {
#define X(name, text, bytes)                                                                       \
    case DT_##name:                                                                                \
        return text;
        DTYPE_MAP(X)
#undef X
    case DT_COUNT:
        break;
    }
    return "?";
}

static inline int dtype_is_float(enum dtype t)
{
    return t == DT_F32 || t == DT_F64 || t == DT_BF16 || t == DT_F16;
}

#endif
