/* str.h - growing text, and numbers to and from text in the C locale whatever the user's is. */
#ifndef STR_H
#define STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Growing text. {0} is an empty one. When memory runs out `oom` is set, further appends do nothing
 * and the text stays terminated: check oom once, at the end. */
struct str {
    char *s; /* owned, NUL-terminated; NULL while empty: read it with str_c */
    size_t len, cap;
    bool oom;
};

void str_release(struct str *s);
void str_reset(struct str *s);          /* empty, memory kept */
const char *str_c(const struct str *s); /* never NULL */
void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const char *text, size_t n);
void str_addc(struct str *s, char c);
__attribute__((format(printf, 2, 3))) void str_addf(struct str *s, const char *fmt, ...);

/* Shortest decimal text that reads back as the same double: 0.1, 1e-05 as "1e-05", 3, nan, inf,
 * -inf. `buf` has at least 32 bytes; returns buf. */
char *str_double(char *buf, double v);
char *str_float(char *buf, float v); /* shortest that reads back as the same float */

/* The whole of s[0..n) is one YAML 1.2 core / JSON style decimal number: [+-] digits [. digits]
 * [e[+-]digits], with at least one digit before or after the dot. No hex, no underscores, no inf or
 * nan, no spaces; 010 is 10. False otherwise, and on overflow to infinity. Underflow gives 0 or a
 * denormal. */
bool str_to_double(const char *s, size_t n, double *out);
bool str_to_int(const char *s, size_t n, int64_t *out); /* [+-] digits; false on overflow */

/* Edit distance (insert, delete, replace, swap of neighbours each 1; of the first 128 bytes), and
 * the nearest of n names to `want` (index, or -1 when none is within a third of the longer length,
 * at least 1; case is ignored). */
int str_distance(const char *a, const char *b);
int str_nearest(const char *want, const char *const *names, int n);

/* Copy text so that it cannot harm a terminal: control characters (C0, DEL, C1) and broken UTF-8
 * become \xNN. Always terminated, cut between characters; returns dst. */
char *str_visible(char *dst, size_t cap, const char *text);

char *str_bytes(char *buf, size_t cap, uint64_t bytes);    /* "9.1 GiB", "512 B" */
char *str_count(char *buf, size_t cap, double n);          /* "12.3k", "4.5M" */
char *str_duration(char *buf, size_t cap, double seconds); /* "0:07", "3:57:21", "2d 4:00:00" */

#endif
