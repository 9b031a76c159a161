/* fuzz_csv.c - any bytes as a table: rows or an error, and what the rows say of themselves holds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/str.h"
#include "engine/data/set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_cell(const struct csv *c, const struct csv_cell *cell, const char *begin,
                       const char *end)
{
    char text[64], shown[64];
    double fast = 0, slow = 0;
    bool is_fast = csv_cell_number(cell, &fast);

    must(cell->s >= begin && cell->s + cell->n <= end);
    must(csv_cell_text(cell, text, sizeof text) <= cell->n);
    must(strlen(csv_cell_show(cell, shown, sizeof shown)) < sizeof shown);
    must(is_fast == str_to_double(cell->s, cell->n, &slow));
    must(!is_fast || memcmp(&fast, &slow, sizeof fast) == 0);
    must(!is_fast || !csv_cell_missing(cell));
    must(cell->quoted || !memchr(cell->s, c->delimiter, cell->n));
    must(!csv_cell_decimal_comma(cell) || !is_fast);
}

/* Cell by cell. */
static void read_rows(const char *text, size_t len, char delimiter, enum csv_header header)
{
    struct csv c;
    struct err e = {0};
    int64_t line = 0;
    int got = 0;

    if (csv_open(&c, "f", text, len, delimiter, header, &e) != ERR_OK) {
        must(e.msg[0] != '\0');
        csv_release(&c);
        return;
    }
    while ((got = csv_next(&c, &e)) > 0) {
        must(c.n == c.columns && c.row_line > line);
        line = c.row_line;
        for (int i = 0; i < c.n; i++)
            check_cell(&c, &c.cell[i], text, text + len);
    }
    must(got == 0 || e.msg[0] != '\0');
    csv_release(&c);
}

/* As a training set, with the last column the target. */
static void read_set(const char *text, size_t len, const char *missing, uint8_t how)
{
    struct schema *m = mem_zalloc(sizeof *m);
    struct config config = {.seed = 1};
    struct data_set *set = NULL;
    struct data d = {0};
    struct csv c;
    struct err e = {0};
    char target[16], hex[65];
    struct str json = {0};
    int column[64];

    arena_init(&m->arena, 0);
    m->missing = (enum missing)(missing[0] == 'e' ? 0 : how % 4);
    m->normalize = (enum normalize)(how / 4 % 3);
    if (csv_open(&c, "f", text, len, 0, CSV_HEADER_AUTO, &e) == ERR_OK && c.columns > 0 &&
        c.columns <= 64) {
        snprintf(target, sizeof target, "%d", c.columns);
        config.data.target = target;
        if (schema_choose(m, &c, &config, &e) == ERR_OK) {
            for (int i = 0; i < m->n_features; i++)
                column[i] = m->feature[i].column;
            if (rows_read(m, &c, column, m->target, false, &set, &e) == ERR_OK &&
                sets_normalize(set, NULL, &e) == ERR_OK) {
                d.train = set;
                data_describe(&d, &json);
                data_fingerprint(set, hex);
                (void)data_check_finite(set, &e);
            }
        }
    }
    str_release(&json);
    csv_release(&c);
    data_set_free(set);
    arena_release(&m->arena);
    mem_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char delimiters[] = {0, ',', ';', '\t', '|'};
    char *text;
    uint8_t how;

    if (size < 1 || size > 65536)
        return 0;
    how = data[0];
    text = malloc(size > 1 ? size - 1 : 1); /* its own block, so that a read past the end is seen */
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    read_rows(text, size - 1, delimiters[how % 5], (enum csv_header)(how / 5 % 3));
    read_set(text, size - 1, how & 1 ? "error" : "other", how);
    free(text);
    return 0;
}
