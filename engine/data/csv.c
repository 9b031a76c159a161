/* csv.c - rows of cells out of memory. What it accepts: csv.h. */
#include "engine/data/csv.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/str.h"

static const double pow10_exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static bool is_blank(char ch, char delimiter)
{
    return (ch == ' ' || ch == '\t') && ch != delimiter;
}

static bool ends_cell(char ch, char delimiter)
{
    return ch == delimiter || ch == '\n' || ch == '\r';
}

/* Over the end of a line, if p stands on one. */
static void skip_line_end(struct csv *c)
{
    if (c->p == c->end)
        return;
    if (*c->p == '\r' && c->end - c->p > 1 && c->p[1] == '\n')
        c->p++;
    c->p++;
    c->line++;
}

/* p stands behind an opening quote. */
static int scan_quoted(struct csv *c, struct csv_cell *out, struct err *e)
{
    int64_t opened = c->line;
    const char *p = c->p;

    *out = (struct csv_cell){.s = p, .quoted = true};
    for (;; p++) {
        if (p == c->end) {
            err_set(e, ERR_DATA, "%s:%lld: a quote is opened here and never closed", c->file,
                    (long long)opened);
            return -1;
        }
        if (*p == '\n' || (*p == '\r' && !(c->end - p > 1 && p[1] == '\n')))
            c->line++;
        if (*p != '"')
            continue;
        if (!(c->end - p > 1 && p[1] == '"'))
            break;
        out->doubled = true;
        p++;
    }
    out->n = (size_t)(p - out->s);
    for (p++; p < c->end && is_blank(*p, c->delimiter); p++)
        ;
    c->p = p;
    if (p == c->end || ends_cell(*p, c->delimiter))
        return 1;
    err_set(e, ERR_DATA,
            "%s:%lld: text after a closing quote (a quote inside quotes is written \"\")", c->file,
            (long long)c->line);
    return -1;
}

/* The cell at p, which blanks may stand before; p is then behind it. Small whole numbers are the
 * most frequent cells and are read in passing: a second look at each costs a fifth of the whole. */
static inline int scan_cell(struct csv *c, struct csv_cell *out, struct err *e)
{
    const char *p = c->p, *end = c->end, *last;
    const char d = c->delimiter;

    while (p < end && is_blank(*p, d))
        p++;
    if (p < end && *p == '"') {
        c->p = p + 1;
        return scan_quoted(c, out, e);
    }
    *out = (struct csv_cell){.s = p};
    for (; p < end && *p >= '0' && *p <= '9' && p - out->s < 15; p++)
        out->digits = out->digits * 10 + (*p - '0');
    out->is_digits = p > out->s && (p == end || ends_cell(*p, d));
    while (p < end && !ends_cell(*p, d))
        p++;
    for (last = p; last > out->s && is_blank(last[-1], d); last--)
        ;
    out->n = (size_t)(last - out->s);
    c->p = p;
    return 1;
}

/* Room for one more cell. */
static int grow_row(struct csv *c, struct err *e)
{
    if (c->n == CSV_COLUMNS_MAX)
        err_set(e, ERR_DATA, "%s:%lld: more than %d columns", c->file, (long long)c->row_line,
                CSV_COLUMNS_MAX);
    else if (mem_grow((void **)&c->cell, &c->cap, c->cap, sizeof *c->cell) < 0)
        err_set(e, ERR_NOMEM, "%s: out of memory for the cells of a row", c->file);
    else
        return 1;
    return -1;
}

int csv_scan_row(struct csv *c, struct err *e)
{
    c->n = 0;
    c->row_line = c->line;
    if (c->p == c->end)
        return 0;
    for (;;) {
        if (((size_t)c->n == c->cap || c->n == CSV_COLUMNS_MAX) && grow_row(c, e) < 0)
            return -1;
        if (scan_cell(c, &c->cell[c->n++], e) < 0)
            return -1;
        if (c->p == c->end || *c->p != c->delimiter)
            break;
        c->p++;
    }
    skip_line_end(c);
    return 1;
}

static bool row_is_blank(const struct csv *c)
{
    return c->n == 1 && c->cell[0].n == 0 && !c->cell[0].quoted;
}

int csv_next(struct csv *c, struct err *e)
{
    int got;

    do
        got = csv_scan_row(c, e);
    while (got > 0 && c->columns != 1 && row_is_blank(c));
    if (got <= 0 || c->n == c->columns)
        return got;
    err_set(e, ERR_DATA, "%s:%lld: %d column%s, but the %s has %d (delimiter %s%c%s)", c->file,
            (long long)c->row_line, c->n, c->n == 1 ? "" : "s",
            c->has_header ? "header" : "first row", c->columns, c->delimiter == '\t' ? "ta" : "'",
            c->delimiter == '\t' ? 'b' : c->delimiter, c->delimiter == '\t' ? "" : "'");
    return -1;
}

/* Digits [. digits], at most 19 of them in all and a value of at most 2^53: then integer and power
 * of ten are exact doubles, and one division rounds once, which is the nearest double (Clinger
 * 1990). */
static bool number_short(const char *s, size_t n, double *out)
{
    size_t i = n > 0 && (*s == '-' || *s == '+'), first = i, digits, dot = n;
    uint64_t m = 0;

    if (n - i > 20)
        return false;
    for (; i < n; i++) {
        unsigned v = (unsigned char)s[i] - (unsigned)'0';
        if (v <= 9)
            m = m * 10 + v;
        else if (s[i] == '.' && dot == n)
            dot = i;
        else
            return false;
    }
    digits = n - first - (dot < n);
    if (digits == 0 || digits > 19 || m > (UINT64_C(1) << 53))
        return false;
    *out = (double)m;
    if (dot + 1 < n)
        *out /= pow10_exact[n - dot - 1];
    if (*s == '-')
        *out = -*out;
    return true;
}

bool csv_cell_number(const struct csv_cell *c, double *out)
{
    if (c->is_digits) {
        *out = (double)c->digits;
        return true;
    }
    return number_short(c->s, c->n, out) || str_to_double(c->s, c->n, out);
}

bool csv_cell_missing(const struct csv_cell *c)
{
    static const char *const words[] = {"NA",   "N/A",  "nan",  "NaN", "NAN",
                                        "null", "NULL", "Null", "?"};

    if (c->n == 0)
        return true;
    if (c->n > 4)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == c->n && memcmp(words[i], c->s, c->n) == 0)
            return true;
    return false;
}

bool csv_cell_decimal_comma(const struct csv_cell *c)
{
    char text[64];
    const char *comma = memchr(c->s, ',', c->n);
    double v;

    if (c->n >= sizeof text || !comma)
        return false;
    memcpy(text, c->s, c->n);
    text[comma - c->s] = '.';
    return str_to_double(text, c->n, &v);
}

size_t csv_cell_text(const struct csv_cell *c, char *dst, size_t cap)
{
    size_t len = 0;

    for (size_t i = 0; i < c->n; i++) {
        if (len + 1 < cap)
            dst[len] = c->s[i];
        len++;
        if (c->doubled && c->s[i] == '"')
            i++;
    }
    if (cap > 0)
        dst[len < cap ? len : cap - 1] = '\0';
    return len;
}

char *csv_cell_show(const struct csv_cell *c, char *dst, size_t cap)
{
    char raw[48];
    size_t len = csv_cell_text(c, raw, sizeof raw);

    for (size_t i = 0; i < len && i + 1 < sizeof raw; i++)
        if (raw[i] == '\0') /* else the text would seem to end here */
            raw[i] = '\1';
    if (len >= sizeof raw)
        memcpy(raw + sizeof raw - 4, "...", 4);
    return str_visible(dst, cap, raw);
}

/* What is plainly no table, told from its first bytes. */
static const char *looks_like(const char *p, size_t n)
{
    static const struct {
        const char *magic;
        size_t n;
        const char *what;
    } kinds[] = {
        {"\x1f\x8b", 2, "is gzip data; unpack it first"},
        {"PK\3\4", 4, "is a zip archive or a spreadsheet; export it as CSV"},
        {"\xff\xfe", 2, "is UTF-16 text; save it as UTF-8"},
        {"\xfe\xff", 2, "is UTF-16 text; save it as UTF-8"},
        {"<!", 2, "is an HTML page, no table"},
        {"<html", 5, "is an HTML page, no table"},
        {"\x93NUMPY", 6, "is a numpy array, no CSV"},
        {"PAR1", 4, "is a Parquet file; export it as CSV"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n >= kinds[i].n && memcmp(p, kinds[i].magic, kinds[i].n) == 0)
            return kinds[i].what;
    return NULL;
}

static enum err_code read_names(struct csv *c, struct err *e)
{
    char **name = arena_array(&c->arena, (size_t)c->n, sizeof *name);

    for (int i = 0; name && i < c->n; i++) {
        size_t cap = c->cell[i].n + 1;
        if (cap > CSV_NAME_MAX)
            return err_set(e, ERR_DATA, "%s:%lld: the name of column %d is longer than %d bytes",
                           c->file, (long long)c->row_line, i + 1, CSV_NAME_MAX - 1);
        name[i] = arena_alloc(&c->arena, cap);
        if (!name[i])
            name = NULL;
        else
            csv_cell_text(&c->cell[i], name[i], cap);
    }
    if (!name)
        return err_set(e, ERR_NOMEM, "%s: out of memory for the header", c->file);
    c->name = name;
    return ERR_OK;
}

enum err_code csv_open(struct csv *c, const char *file, const char *buf, size_t len, char delimiter,
                       enum csv_header header, struct err *e)
{
    const char *what = looks_like(buf, len), *first;
    int64_t first_line;
    int got;

    *c = (struct csv){.file = file, .p = buf, .end = buf + len, .line = 1};
    arena_init(&c->arena, 0);
    if (what)
        return err_set(e, ERR_DATA, "%s: %s", file, what);
    if (len > CSV_BYTES_MAX)
        return err_set(e, ERR_DATA, "%s: larger than 4 GiB", file);
    if (len >= 3 && memcmp(buf, "\xef\xbb\xbf", 3) == 0)
        c->p += 3;
    while (c->end > c->p && (c->end[-1] == '\n' || c->end[-1] == '\r'))
        c->end--;
    c->delimiter = delimiter ? delimiter : csv_guess_delimiter(c->p, c->end);
    if (!c->delimiter)
        return err_set(e, ERR_NOMEM, "%s: out of memory for its first rows", file);
    do {
        first = c->p;
        first_line = c->line;
        got = csv_scan_row(c, e);
    } while (got > 0 && row_is_blank(c));
    if (got < 0)
        return e ? e->code : ERR_DATA;
    if (got == 0)
        return ERR_OK;
    c->columns = c->n;
    got = header == CSV_HEADER_AUTO ? csv_guess_header(first, c->end, c->delimiter)
                                    : header == CSV_HEADER_YES;
    if (got < 0)
        return err_set(e, ERR_NOMEM, "%s: out of memory for its first rows", file);
    c->has_header = got > 0;
    if (c->has_header)
        return read_names(c, e);
    c->p = first;
    c->line = first_line;
    return ERR_OK;
}

void csv_release(struct csv *c)
{
    arena_release(&c->arena);
    mem_free(c->cell);
    *c = (struct csv){0};
}
