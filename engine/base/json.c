/* json.c - JSON onto a str. */
#include "engine/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A comma is due unless something was just opened or a key just written. */
static void separate(struct str *s)
{
    char last = s->len > 0 ? s->s[s->len - 1] : '{';

    if (last != '{' && last != '[' && last != ':' && last != '\n')
        str_addc(s, ',');
}

void json_begin(struct str *s)
{
    separate(s);
    str_addc(s, '{');
}

void json_end(struct str *s)
{
    str_addc(s, '}');
}

void json_list_begin(struct str *s)
{
    separate(s);
    str_addc(s, '[');
}

void json_list_end(struct str *s)
{
    str_addc(s, ']');
}

/* Bytes of the well-formed UTF-8 character at s (n bytes left), or 0. */
static size_t utf8_at(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80                   ? 1
                 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                               : 0;

    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return len;
}

static void quoted(struct str *s, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;

    str_addc(s, '"');
    for (size_t i = 0; i < n;) {
        size_t len = utf8_at(p + i, n - i);

        if (p[i] == '"' || p[i] == '\\') {
            str_addc(s, '\\');
            str_addc(s, (char)p[i]);
            i++;
        } else if (p[i] == '\n' || p[i] == '\t' || p[i] == '\r') {
            str_add(s, p[i] == '\n' ? "\\n" : p[i] == '\t' ? "\\t" : "\\r");
            i++;
        } else if (len == 0 || p[i] < 0x20 || p[i] == 0x7f) {
            str_addf(s, "\\u%04x", p[i]);
            i++;
        } else {
            str_addn(s, text + i, len);
            i += len;
        }
    }
    str_addc(s, '"');
}

void json_key(struct str *s, const char *key)
{
    separate(s);
    quoted(s, key, strlen(key));
    str_addc(s, ':');
}

void json_textn(struct str *s, const char *text, size_t n)
{
    separate(s);
    quoted(s, text, n);
}

void json_text(struct str *s, const char *text)
{
    if (text)
        json_textn(s, text, strlen(text));
    else
        json_raw(s, "null");
}

void json_number(struct str *s, double v)
{
    char buf[32];

    separate(s);
    str_double(buf, v);
    if (isfinite(v)) {
        str_add(s, buf);
    } else {
        str_addc(s, '"');
        str_add(s, buf);
        str_addc(s, '"');
    }
}

void json_int(struct str *s, int64_t v)
{
    separate(s);
    str_addf(s, "%" PRId64, v);
}

void json_bool(struct str *s, bool v)
{
    json_raw(s, v ? "true" : "false");
}

void json_raw(struct str *s, const char *json)
{
    separate(s);
    str_add(s, json);
}

void json_put_text(struct str *s, const char *key, const char *text)
{
    json_key(s, key);
    json_text(s, text);
}

void json_put_number(struct str *s, const char *key, double v)
{
    json_key(s, key);
    json_number(s, v);
}

void json_put_int(struct str *s, const char *key, int64_t v)
{
    json_key(s, key);
    json_int(s, v);
}

void json_put_bool(struct str *s, const char *key, bool v)
{
    json_key(s, key);
    json_bool(s, v);
}
