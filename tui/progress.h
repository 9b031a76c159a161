/* progress.h - the headless display of a run: a small picture that is redrawn in place on a
 * terminal, whole lines everywhere else.
 *
 * Formatting is apart from writing: these functions append to a str, the caller writes it in one
 * write and ends the drawing (never the training) when that fails. It knows nothing of engine or
 * terminal but what is in struct progress_view. One thread: the one that draws. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/str.h"
#include "tui/ansi.h"
#include "tui/series.h"

#define PROGRESS_ROWS 10        /* of the picture, at most; one more with a message */
#define PROGRESS_INTERVAL_S 0.1 /* least time between two pictures */

struct progress_value {
    const char *name; /* train.loss, valid.loss, lr, ... */
    double value;     /* NaN and inf are shown as such */
};

/* What is known of the run now; all borrowed for the call. */
struct progress_view {
    const char *run;     /* name; NULL: none */
    const char *state;   /* "running", "done", ...; NULL: none */
    int64_t step, steps; /* steps 0: how many is not known */
    double epoch;        /* NaN: not known */
    const struct progress_value *values;
    int n_values;
    double rate;                        /* rate_unit per second; NaN: not known */
    const char *rate_unit;              /* "samples"; NULL: the same */
    double elapsed_s, left_s;           /* NaN: not known */
    const struct series *train, *valid; /* for the chart; NULL: none */
    const char *chart;                  /* its title; NULL: "loss" */
    const char *message;                /* a line below; NULL: none */
};

/* The picture on the terminal. {0} plus mode, cols and rows is a display that has drawn nothing
 * yet. */
struct progress {
    struct ansi_mode mode;
    int cols, rows; /* of the terminal, read again before each draw */
    int drawn;      /* rows of our picture above the cursor */
    double last_s;  /* when it was drawn; 0: never */
};

/* Is it time for another picture? now_s is clock_now(). Never more than ten a second. */
bool progress_due(const struct progress *p, double now_s);

/* Append what replaces the last picture by one of `view`: cursor up, rows cleared and written,
 * cursor on the line below. It takes at most rows - 1 lines and cols - 1 columns, so it never
 * scrolls itself apart; from 8 lines and 40 columns down it loses the chart, then the header, then
 * parts of its one line. Notes the time. Out of memory shows as out->oom; then nothing of `out`
 * should be written. */
void progress_draw(const struct progress_view *view, struct progress *p, double now_s,
                   struct str *out);

/* Append what takes the picture away, so that a line can be printed in its place; draw again after
 * it. The last picture of a run is simply left where it is. */
void progress_erase(struct progress *p, struct str *out);

/* Append the plain form, one whole line with its '\n' and neither CR nor ESC:
 * step 120/460  epoch 5.2  train.loss 0.3124  valid.loss 0.2981  lr 0.001  51.2k/s  left 0:03
 * What is not known is left out, but for `left --`. The message is a line of its own before it. */
void progress_format_line(const struct progress_view *view, bool utf8, struct str *out);

#endif
