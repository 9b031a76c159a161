/* canvas.h - a grid of cells that widgets draw on. Knows no terminal: term.c and ansi.c copy it
 * out.
 *
 * Everything is clipped: drawing outside does nothing, so that widgets need not ask. Text comes
 * from strangers (run names, file names, tensor names): whatever bytes it holds, it takes the cells
 * utf8_cells says, in its own row. One thread at a time. */
#ifndef CANVAS_H
#define CANVAS_H

#include <stdint.h>

#include "engine/base/str.h"

#define CANVAS_SIDE_MAX 4096 /* cells, each way */

enum { ATTR_BOLD = 1, ATTR_DIM = 2, ATTR_REVERSE = 4, ATTR_UNDERLINE = 8 };

#define COLOUR_OWN (-1) /* the terminal's own foreground or background */

struct style {
    int16_t fg, bg; /* index into the terminal's 256 colours, or COLOUR_OWN */
    uint8_t attr;   /* ATTR_* */
};
#define STYLE_PLAIN ((struct style){COLOUR_OWN, COLOUR_OWN, 0})

struct cell {
    uint32_t ch;   /* code point; 0: the right half of the wide one to the left */
    uint32_t mark; /* a combining mark on it, or 0; only the first of several is kept */
    struct style style;
};

/* A canvas, or a window into one. Copy a window freely; only what canvas_init filled is released.
 */
struct canvas {
    int w, h;
    int stride;      /* cells from one row to the next */
    int left, right; /* cells that the row has beside the window: a wide character may lie across */
    struct cell *cells; /* top left; owned by the canvas that canvas_init filled, else borrowed */
};

/* w and h in 0 .. CANVAS_SIDE_MAX (clamped). All blanks. 0, or -1 if out of memory: then w and h
 * are 0. */
int canvas_init(struct canvas *c, int w, int h);
void canvas_release(struct canvas *c); /* {0} is a no-op */

/* The part of the rectangle that lies inside c, as a window that draws on c's cells. Where x or y
 * is negative its 0,0 is the first cell inside. May be empty (w or h 0), and then draws nothing. */
struct canvas canvas_sub(const struct canvas *c, int x, int y, int w, int h);

void canvas_clear(struct canvas *c); /* blanks in the terminal's own colours */
void canvas_fill(struct canvas *c, int x, int y, int w, int h, uint32_t ch, struct style st);

/* One code point of width 1 or 2. What has no width (controls) becomes '?'. A wide one that would
 * be cut by the edge becomes a blank; half of a wide one that is overwritten leaves a blank for its
 * other half. */
void canvas_put(struct canvas *c, int x, int y, uint32_t ch, struct style st);

/* Draw UTF-8 text at x, y; returns the x after it (as if nothing had been clipped). Control and
 * broken bytes and invisible formats are drawn as \x1b, \u202e. canvas_textf formats first (at most
 * 1023 bytes). */
int canvas_text(struct canvas *c, int x, int y, struct style st, const char *text);
__attribute__((format(printf, 5, 6))) int canvas_textf(struct canvas *c, int x, int y,
                                                       struct style st, const char *fmt, ...);

/* Set attributes (ATTR_*) on top of what the cells have: a cursor's column, a bar. */
void canvas_add_attr(struct canvas *c, int x, int y, int w, int h, uint8_t attr);

const struct cell *canvas_at(const struct canvas *c, int x, int y); /* NULL outside */

/* Append the canvas as UTF-8 text: rows end in '\n', blanks at the end of a row are left out. */
void canvas_to_text(const struct canvas *c, struct str *out);

#endif
