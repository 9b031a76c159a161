/* csv_guess.c - which character parts the cells, and whether the first row names them.
 *
 * Both read the first GUESS_ROWS rows of at most GUESS_BYTES, so a guess costs the same for any
 * file. */
#include "engine/data/csv.h"

#include <string.h>

#include "engine/base/alloc.h"

#define GUESS_ROWS 21
#define GUESS_BYTES ((ptrdiff_t)1 << 20)

enum cell_kind { CELL_MISSING, CELL_NUMBER, CELL_TEXT };

static enum cell_kind cell_kind(const struct csv_cell *c)
{
    double v;

    if (csv_cell_missing(c))
        return CELL_MISSING;
    return csv_cell_number(c, &v) ? CELL_NUMBER : CELL_TEXT;
}

static struct csv head_of(const char *p, const char *end, char delimiter)
{
    if (end - p > GUESS_BYTES)
        end = p + GUESS_BYTES;
    return (struct csv){.file = "", .p = p, .end = end, .line = 1, .delimiter = delimiter};
}

/* The next row that is not blank: 1. 0: there is none, or it cannot be read; a row that the limit
 * may have cut is none. -1: out of memory. */
static int head_row(struct csv *c, const char *end)
{
    struct err e = {0};
    int got;

    for (;;) {
        got = csv_scan_row(c, &e);
        if (got <= 0)
            return got < 0 && e.code == ERR_NOMEM ? -1 : 0;
        if (c->n > 1 || c->cell[0].n > 0 || c->cell[0].quoted)
            return c->p < c->end || c->end == end;
    }
}

struct score {
    int columns;    /* of the first row */
    bool even;      /* all rows looked at have as many */
    double numbers; /* share of cells below the first row that are numbers, decimal comma or not */
};

/* False: out of memory. */
static bool score_delimiter(const char *p, const char *end, char delimiter, struct score *out)
{
    struct csv c = head_of(p, end, delimiter);
    struct score s = {.even = true};
    int64_t cells = 0, numbers = 0;
    int got = 1;

    for (int row = 0; row < GUESS_ROWS && (got = head_row(&c, end)) > 0; row++) {
        if (row == 0)
            s.columns = c.n;
        s.even = s.even && c.n == s.columns;
        for (int i = 0; row > 0 && i < c.n; i++, cells++)
            numbers += cell_kind(&c.cell[i]) != CELL_TEXT || csv_cell_decimal_comma(&c.cell[i]);
    }
    s.numbers = cells ? (double)numbers / (double)cells : 0;
    mem_free(c.cell);
    *out = s;
    return got >= 0;
}

static bool score_better(const struct score *a, const struct score *b)
{
    bool a_cuts = a->columns > 1, b_cuts = b->columns > 1;

    if (a_cuts != b_cuts)
        return a_cuts;
    if (a->even != b->even)
        return a->even;
    if (a->even && a->numbers != b->numbers)
        return a->numbers > b->numbers;
    return a->columns > b->columns;
}

char csv_guess_delimiter(const char *p, const char *end)
{
    static const char candidates[] = {',', ';', '\t', '|'};
    struct score best = {0};
    char found = ',';

    for (size_t i = 0; i < sizeof candidates; i++) {
        struct score s;
        if (!score_delimiter(p, end, candidates[i], &s))
            return '\0';
        if (i == 0 || score_better(&s, &best)) {
            best = s;
            found = candidates[i];
        }
    }
    return found;
}

/* A column: its cell in the first row, and what stands below it. */
struct seen {
    struct csv_cell top;
    bool number, text;
};

/* A header that stands in the file a second time is a mistake to be reported with its line, and
 * must not make the first one look like data: a cell equal to the top one says nothing. */
static void see_row(const struct csv *c, struct seen *seen, int columns)
{
    for (int i = 0; i < c->n && i < columns; i++) {
        const struct csv_cell *cell = &c->cell[i];
        enum cell_kind k = cell_kind(cell);
        seen[i].number |= k == CELL_NUMBER;
        seen[i].text |= k == CELL_TEXT &&
                        !(cell->n == seen[i].top.n && memcmp(cell->s, seen[i].top.s, cell->n) == 0);
    }
}

static bool is_name(const struct seen *s, int rows)
{
    return cell_kind(&s->top) == CELL_TEXT && (rows == 0 || (s->number && !s->text));
}

/* c stands behind the first row. */
static int judge_rows(struct csv *c, const char *end, struct seen *seen)
{
    int columns = c->n, rows = 0, got = 1;

    for (int i = 0; i < columns; i++)
        seen[i].top = c->cell[i];
    while (rows < GUESS_ROWS && (got = head_row(c, end)) > 0) {
        see_row(c, seen, columns);
        rows++;
    }
    for (int i = 0; i < columns && got >= 0; i++)
        if (is_name(&seen[i], rows))
            return 1;
    return got < 0 ? -1 : 0;
}

int csv_guess_header(const char *p, const char *end, char delimiter)
{
    struct csv c = head_of(p, end, delimiter);
    struct seen *seen = NULL;
    int header = head_row(&c, end);

    if (header > 0) {
        seen = mem_array((size_t)c.n, sizeof *seen);
        header = seen ? judge_rows(&c, end, seen) : -1;
    }
    mem_free(seen);
    mem_free(c.cell);
    return header;
}
