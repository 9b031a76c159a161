/* metrics_scan.h - private to engine/run and its fuzz target: the scanner of metrics.jsonl, line by
 * line. */
#ifndef METRICS_SCAN_H
#define METRICS_SCAN_H

#include "engine/run/runs.h"

struct scanner;
struct scanner *scanner_new(metrics_row_fn *row, void *arg);      /* NULL: no memory */
void scanner_free(struct scanner *s);                             /* NULL is a no-op */
void scanner_line(struct scanner *s, const char *line, size_t n); /* without its newline */
int64_t scanner_bad(const struct scanner *s);

#endif
