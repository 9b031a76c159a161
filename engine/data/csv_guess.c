/* csv_guess.c - which character parts the cells, and whether the first row names them.
 *
 * Both read the first GUESS_ROWS rows of at most GUESS_BYTES, so a guess costs the same for any file. */
#include "engine/data/csv.h"

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

/* The next row that is not blank. A row that the limit may have cut is none. */
static bool head_row(struct csv *c, const char *end)
{
    struct err e;

    for (;;) {
        if (csv_scan_row(c, &e) <= 0)
            return false;
        if (c->n > 1 || c->cell[0].n > 0 || c->cell[0].quoted)
            return c->p < c->end || c->end == end;
    }
}

struct score {
    int columns;    /* of the first row */
    bool even;      /* all rows looked at have as many */
    double numbers; /* share of cells below the first row that are numbers, decimal comma or not */
};

static struct score score_delimiter(const char *p, const char *end, char delimiter)
{
    struct csv c = head_of(p, end, delimiter);
    struct score s = {.even = true};
    int64_t cells = 0, numbers = 0;

    for (int row = 0; row < GUESS_ROWS && head_row(&c, end); row++) {
        if (row == 0)
            s.columns = c.n;
        s.even = s.even && c.n == s.columns;
        for (int i = 0; row > 0 && i < c.n; i++, cells++)
            numbers += cell_kind(&c.cell[i]) != CELL_TEXT || csv_cell_decimal_comma(&c.cell[i]);
    }
    s.numbers = cells ? (double)numbers / (double)cells : 0;
    mem_free(c.cell);
    return s;
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
        struct score s = score_delimiter(p, end, candidates[i]);
        if (i == 0 || score_better(&s, &best)) {
            best = s;
            found = candidates[i];
        }
    }
    return found;
}

/* A column under the first row: what of its cells was seen. */
struct seen {
    bool text_on_top, number, text;
};

static void see_row(const struct csv *c, struct seen *seen, int columns)
{
    for (int i = 0; i < c->n && i < columns; i++) {
        enum cell_kind k = cell_kind(&c->cell[i]);
        seen[i].number |= k == CELL_NUMBER;
        seen[i].text |= k == CELL_TEXT;
    }
}

bool csv_guess_header(const char *p, const char *end, char delimiter)
{
    struct csv c = head_of(p, end, delimiter);
    struct seen *seen = NULL;
    bool header = false;
    int columns, rows = 0;

    if (!head_row(&c, end))
        goto out;
    columns = c.n;
    seen = mem_array((size_t)columns, sizeof *seen);
    if (!seen)
        goto out;
    for (int i = 0; i < columns; i++)
        seen[i].text_on_top = cell_kind(&c.cell[i]) == CELL_TEXT;
    for (; rows < GUESS_ROWS && head_row(&c, end); rows++)
        see_row(&c, seen, columns);
    for (int i = 0; i < columns && !header; i++)
        header = seen[i].text_on_top && (rows == 0 || (seen[i].number && !seen[i].text));
out:
    mem_free(seen);
    mem_free(c.cell);
    return header;
}
