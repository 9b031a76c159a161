/* csv.h - tables as text: RFC 4180 and its relatives, row by row over memory.
 *
 * csv_open finds out the delimiter and whether there is a header; csv_next then reads one row after
 * another. Cells point into the caller's buffer, which must stay as it is until csv_release.
 * Quotes, doubled quotes and line breaks inside quotes are RFC 4180; beyond it: LF, CRLF and CR end
 * a line, a UTF-8 BOM is skipped, blanks around a cell that is not in quotes do not belong to it,
 * blank lines are no rows (in a file of one column only those at the end).
 *
 * Errors are ERR_DATA and begin "file:line: ". Not thread safe: one owner. */
#ifndef CSV_H
#define CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/arena.h"
#include "engine/base/err.h"

#define CSV_COLUMNS_MAX (1 << 16)
#define CSV_NAME_MAX 1024 /* bytes of a column's name */
#define CSV_BYTES_MAX ((size_t)4 << 30)

struct csv_cell {
    const char *s; /* borrowed from the buffer; not terminated */
    size_t n;
    bool quoted;    /* it stood in quotes, which s leaves out */
    bool doubled;   /* it holds "" for a quote: csv_cell_text makes one of two */
    bool is_digits; /* 1 .. 15 digits and nothing else: `digits` is its value already */
    int64_t digits;
};

enum csv_header { CSV_HEADER_AUTO, CSV_HEADER_YES, CSV_HEADER_NO };

struct csv {
    const char *file;    /* borrowed; begins every message */
    const char *p, *end; /* what is not read yet */
    int64_t line;        /* the line p stands in, from 1 */
    char delimiter;
    bool has_header;
    int columns; /* of every row; 0: the file is empty */
    char **name; /* [columns], in arena; "" where the header has none; NULL without a header */
    struct arena arena;
    int64_t row_line;      /* where the row read last begins */
    struct csv_cell *cell; /* [n] of the row read last; owned */
    int n;
    size_t cap;
};

/* Ready to read the first row of data from buf[0..len), at most CSV_BYTES_MAX. `delimiter` 0: one
 * of , ; tab |, whichever cuts the first rows most evenly. CSV_HEADER_AUTO: the first row is a
 * header when it has text over numbers (missing cells prove nothing), or is text and all there is.
 * A file that is plainly something else (gzip, zip, UTF-16, HTML) is refused by name. An empty file
 * is no error here: columns is 0. ERR_NOMEM. After a failure only csv_release may follow. */
enum err_code csv_open(struct csv *c, const char *file, const char *buf, size_t len, char delimiter,
                       enum csv_header header, struct err *e);
void csv_release(struct csv *c); /* also of a zeroed one */

/* The next row into cell[0..n): 1; at the end: 0; on an error (a row with another number of cells,
 * an open quote, text after a closing one, no memory): -1, code and text in *e. */
int csv_next(struct csv *c, struct err *e);

/* The cell as a number, whole and exactly as str_to_double reads it. */
bool csv_cell_number(const struct csv_cell *c, double *out);
/* Empty, or one of NA, N/A, nan, NaN, NAN, null, Null, NULL, ?. */
bool csv_cell_missing(const struct csv_cell *c);
/* It would be a number with a dot in place of its only comma. */
bool csv_cell_decimal_comma(const struct csv_cell *c);
/* Its text, without doubling of quotes: at most cap - 1 bytes, terminated; returns the length of
 * the whole. */
size_t csv_cell_text(const struct csv_cell *c, char *dst, size_t cap);
/* The same for a message: cut to what fits, nothing that harms a terminal. Returns dst. */
char *csv_cell_show(const struct csv_cell *c, char *dst, size_t cap);

/* Steps of csv_open, apart for tests. Both look at the first rows only; what cannot be read is left
 * for csv_next to complain about. `end` is the end of the buffer. */
char csv_guess_delimiter(const char *p, const char *end);             /* '\0': out of memory */
int csv_guess_header(const char *p, const char *end, char delimiter); /* 1, 0; -1: out of memory */

/* One row from c->p, whatever its length, blank or not: 1, 0 at the end, -1. For the guesses. */
int csv_scan_row(struct csv *c, struct err *e);

#endif
