/* err.c - errors as values. */
#include "engine/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (e) {
        struct err made = {.code = code}; /* the arguments may point into e->msg */
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(made.msg, sizeof made.msg, fmt, ap);
        va_end(ap);
        *e = made;
    }
    return code;
}

enum err_code err_prefix(struct err *e, const char *fmt, ...)
{
    struct err made;
    va_list ap;
    int n;

    if (!e)
        return ERR_INTERNAL;
    made.code = e->code;
    va_start(ap, fmt);
    n = vsnprintf(made.msg, sizeof made.msg, fmt, ap);
    va_end(ap);
    n = n < 0 ? 0 : n < (int)sizeof made.msg ? n : (int)sizeof made.msg - 1;
    made.msg[n] = 0;
    strncat(made.msg, ": ", sizeof made.msg - 1 - strlen(made.msg));
    strncat(made.msg, e->msg, sizeof made.msg - 1 - strlen(made.msg));
    *e = made;
    return e->code;
}

const char *err_name(enum err_code code)
{
    switch (code) {
#define X(name, text, exit_code)                                                                   \
    case ERR_##name:                                                                               \
        return text;
        ERR_MAP(X)
#undef X
    }
    return "unknown error";
}

int err_exit_code(enum err_code code)
{
    switch (code) {
#define X(name, text, exit_code)                                                                   \
    case ERR_##name:                                                                               \
        return exit_code;
        ERR_MAP(X)
#undef X
    }
    return 1;
}
