/* runs.h - finding runs and reading what they wrote. Readers only: nothing here changes a run. */
#ifndef RUNS_H
#define RUNS_H

#include "engine/base/str.h"
#include "engine/run/state.h"

struct run_entry {
    char *path, *name;
    struct run_state state;
    bool readable; /* else `why` says why not, and state is empty */
    char why[256];
};

struct run_list {
    int n;
    struct run_entry *run; /* oldest first by name */
};

/* All runs of a folder: sub-folders with a state.json or a lock. A folder that is not there is an
 * empty list. */
enum err_code runs_list(const char *runs, struct run_list *out, struct err *e);
void run_list_release(struct run_list *l);

/* The path of RUN: a path of a run directory, "@" for the newest, or any part of a name that fits
 * one run. None or several: ERR_USAGE with the candidates. Owned by the caller. */
enum err_code runs_find(const char *runs, const char *want, char **path, struct err *e);

/* Reads metrics.jsonl row by row with our own scanner: calls row() for each whole line with its
 * values. A torn last line is left out and counted in *torn; a line that is no row is counted in
 * *bad. Memory does not grow with the file. Names are interned in the reader and stay valid until
 * the call returns. */
struct metrics_row {
    int64_t step;
    double epoch, t;
    int seg;
    int n;
    const char *const *name;
    const double *value;
};
typedef void metrics_row_fn(void *arg, const struct metrics_row *row);
enum err_code metrics_read(const char *run_path, metrics_row_fn *row, void *arg, int64_t *torn,
                           int64_t *bad, struct err *e);

/* The journal's records as text lines, newest last: at most `max` of the last ones. */
enum err_code journal_tail(const char *run_path, int max, struct str *out, struct err *e);

#endif
