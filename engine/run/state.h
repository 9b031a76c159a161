/* state.h - state.json: what a run is doing, in one small file that is replaced whole. */
#ifndef RUN_STATE_H
#define RUN_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

#define RUN_STATE_FORMAT 1
#define RUN_VALUES 24

struct run_value {
    char name[64];
    double value;
};

/* States written: new, ready, running, saving, done, stopped, failed, killed. A reader decides
 * "crashed". */
struct run_state {
    char state[16];
    int64_t step, steps; /* done; in all */
    double epoch, t;     /* epochs done; seconds trained */
    int n_last;
    struct run_value last[RUN_VALUES]; /* newest value of each metric */
    bool has_best;
    struct run_value best; /* metric and value */
    int64_t best_step;
    int64_t pid,
        start_time; /* of the process; start_time in clock ticks since boot (/proc/PID/stat) */
    char host[64], boot_id[40];
    double started, updated; /* wall seconds */
    char device[256];        /* the backend's line on itself */
    int exit_code;           /* once ended */
    char reason[512];        /* why it ended, "" while running or done */
};

/* Fills pid, start_time, host, boot_id, started. */
void run_state_init(struct run_state *s);
/* Sets a value in last (by name; a full table drops the new name). */
void run_state_value(struct run_state *s, const char *name, double value);

enum err_code run_state_write(const char *run_path, const struct run_state *s, struct err *e);

/* Reads state.json (at most 64 KiB; every field checked) and decides: when the state says that a
 * trainer is alive and nobody holds RUN/lock, it becomes "crashed". ERR_CORRUPT when it is no
 * state.json of a format we know (newer: says so). */
enum err_code run_state_read(const char *run_path, struct run_state *out, struct err *e);

#endif
