/* json.h - writing JSON onto a str. Reading is jansson's, but for the metrics fast path in
 * engine/run.
 *
 * Commas are the writer's: begin an object, add members, end it. Non-finite numbers become the
 * strings "nan", "inf", "-inf" (design section 7). Text that is not UTF-8 is escaped byte by byte
 * as U+00NN. */
#ifndef JSON_H
#define JSON_H

#include "engine/base/str.h"

void json_begin(struct str *s);                  /* { */
void json_end(struct str *s);                    /* } */
void json_list_begin(struct str *s);             /* [ */
void json_list_end(struct str *s);               /* ] */
void json_key(struct str *s, const char *key);   /* "key": (with a comma where one is due) */
void json_text(struct str *s, const char *text); /* a value; NULL is null */
void json_textn(struct str *s, const char *text, size_t n);
void json_number(struct str *s, double v); /* shortest form that reads back */
void json_int(struct str *s, int64_t v);
void json_bool(struct str *s, bool v);
void json_raw(struct str *s, const char *json); /* a value that is JSON already */

/* A member in one call. */
void json_put_text(struct str *s, const char *key, const char *text);
void json_put_number(struct str *s, const char *key, double v);
void json_put_int(struct str *s, const char *key, int64_t v);
void json_put_bool(struct str *s, const char *key, bool v);

#endif
