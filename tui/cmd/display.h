/* display.h - what `cupola train` shows while it trains.
 *
 * The trainer's thread hands over copies of rows; a thread of its own draws them, ten times a
 * second at most, to copies of the descriptors taken before 1 and 2 went to the run's log. When the
 * terminal goes away (EIO, EPIPE, SIGHUP) the drawing ends, never the training. */
#ifndef DISPLAY_H
#define DISPLAY_H

#include <stdbool.h>

#include "engine/train/trainer.h"

enum display_kind { DISPLAY_CHART, DISPLAY_LINES, DISPLAY_JSON };

struct display;

/* run: the run's name, shown. DISPLAY_JSON writes rows to out_fd, the others draw to err_fd. Both
 * are owned by the caller and stay open until display_free. NULL: no memory or no thread. */
struct display *display_new(enum display_kind kind, int out_fd, int err_fd, bool utf8,
                            const char *run, int64_t steps);
/* Trainer's thread: copies. A row that finds the queue full is left out of the picture and counted.
 */
void display_row(struct display *d, const struct train_row *row);
void display_tick(struct display *d, int64_t step, double t);
void display_message(struct display *d, const char *line);
void display_hangup(struct display *d); /* the terminal is gone. Async-signal-safe. */
/* Draws the last picture with this state and ends the thread. */
void display_free(struct display *d, const char *state);

/* The row as it stands in metrics.jsonl, without its newline. */
void display_row_json(const struct train_row *row, struct str *out);

#endif
