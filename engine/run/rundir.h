/* rundir.h - a run's directory: made, locked, written to (design section 7).
 *
 * One trainer writes, any number of readers read at the same time. Append-only files get whole
 * lines by one write(2) each. Owned by the trainer's thread. */
#ifndef RUNDIR_H
#define RUNDIR_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

struct rundir {
    char *path;       /* "runs/20261130-204455-digits-mlp", as usable from the working directory */
    const char *name; /* its last part; borrowed from path */
    int lock_fd;      /* OFD write lock on RUN/lock, held for life */
    int metrics_fd, journal_fd, log_fd; /* O_APPEND */
    int64_t seq;                        /* of the next journal record, from 1 */
    int64_t lost;                       /* metrics rows that could not be written */
    bool mid_line; /* metrics.jsonl ends in a torn line: the next row begins with a newline */
};

/* Makes runs/STAMP-NAME (local time; a taken name gets -2, -3 ...: mkdir decides), its lock, files
 * and checkpoints/ folder, and takes the lock. `name` is made fit for a file name: letters, digits,
 * . _ - stay, the rest becomes -, at most 80 bytes. runs is made when it is not there. */
enum err_code rundir_create(const char *runs, const char *name, struct rundir **out, struct err *e);
void rundir_free(struct rundir *r); /* closes all, gives the lock back; NULL is a no-op */

enum err_code rundir_write(struct rundir *r, const char *file, const char *text, size_t len,
                           struct err *e);

/* Copies Lua files into RUN/model/: path i becomes RUN/model/as[i] (folders are made; no ".." in
 * it). One journal-ready list of {"file", "sha256"} goes to *hashes (JSON list). */
enum err_code rundir_copy_model(struct rundir *r, const char *const *paths, const char *const *as,
                                int n, struct str *hashes, struct err *e);

struct metric {
    const char *name;
    double value; /* non-finite ones are written as "nan", "inf", "-inf" */
};

/* One row of metrics.jsonl: {"step","epoch","t","seg", then the metrics in order}. A row that
 * cannot be written is counted in r->lost and the error comes back. */
enum err_code rundir_metrics(struct rundir *r, int64_t step, double epoch, double t, int seg,
                             const struct metric *m, int n, struct err *e);

/* One record of journal.jsonl, fsynced: {"seq","step","t","wall","event", then members, "by"}.
 * `members` is JSON text of further members without braces ("\"key\":\"lr\",\"to\":3e-4"), or "".
 * by is "user@host" or "-". */
enum err_code rundir_journal(struct rundir *r, int64_t step, double t, const char *event,
                             const char *members, const char *by, struct err *e);

/* One line of log.txt. */
void rundir_log(struct rundir *r, const char *line);

/* "ana@lab3", of this process. */
char *rundir_whoami(char *buf, size_t cap);

#endif
