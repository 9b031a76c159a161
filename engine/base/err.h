/* err.h - how a function that can fail says so.
 *
 * It returns an err_code and takes a `struct err *` last. On ERR_OK *e is untouched; otherwise
 * e->msg is one line for the user, without a full stop, naming the file, key or tensor. */
#ifndef ERR_H
#define ERR_H

// clang-format off
/* code, text, and the exit code of a command that ends with it (design: 1 failed at run time, 2 usage
 * or config, 3 data, 4 non-finite, 5 out of memory or device lost) */
#define ERR_MAP(X)                            \
    X(OK,        "ok",                    0)  \
    X(USAGE,     "bad usage",             2)  \
    X(CONFIG,    "bad configuration",     2)  \
    X(SCRIPT,    "script failed",         2)  \
    X(SHAPE,     "shapes do not fit",     2)  \
    X(DATA,      "bad data",              3)  \
    X(NONFINITE, "not a finite number",   4)  \
    X(NOMEM,     "out of memory",         5)  \
    X(DEVICE,    "device failed",         5)  \
    X(IO,        "input/output",          1)  \
    X(CORRUPT,   "corrupt file",          1)  \
    X(BUSY,      "in use",                1)  \
    X(INTERNAL,  "a bug in cupola",       1)
// clang-format on

enum err_code {
#define X(name, text, exit_code) ERR_##name,
    ERR_MAP(X)
#undef X
};

struct err {
    enum err_code code;
    char msg[1024];
};

/* Fill *e (may be NULL) and return `code`, so that `return err_set(e, ERR_IO, ...)` reads well. */
__attribute__((format(printf, 3, 4))) enum err_code err_set(struct err *e, enum err_code code,
                                                            const char *fmt, ...);

/* Put "<prefix>: " before the message that *e already holds and return its code: how a caller adds
 * the file or key that the callee could not know. */
__attribute__((format(printf, 2, 3))) enum err_code err_prefix(struct err *e, const char *fmt, ...);

const char *err_name(enum err_code code); /* static text, never NULL */
int err_exit_code(enum err_code code);    /* 0 .. 5 */

#endif
