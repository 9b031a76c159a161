/* raster.h - lines in dots finer than a cell, turned into the signs a terminal has for them.
 *
 * Braille has 2 x 4 dots a cell, blocks 1 x 8 (a bar from the bottom of the cell up), ASCII one.
 * Coordinates are dots, 0,0 at the top left; what lies outside is not drawn. */
#ifndef RASTER_H
#define RASTER_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/canvas.h"

enum raster_glyphs { RASTER_BRAILLE, RASTER_BLOCK, RASTER_ASCII };

struct raster {
    enum raster_glyphs glyphs;
    int w, h;           /* cells */
    int dots_x, dots_y; /* w and h in dots */
    uint8_t *dots;      /* [dots_y][dots_x], owned */
};

int raster_fine_x(enum raster_glyphs g); /* dots a cell, across */
int raster_fine_y(enum raster_glyphs g); /* and down */

int raster_init(struct raster *r, enum raster_glyphs g, int w,
                int h); /* 0, or -1 if out of memory */
void raster_release(struct raster *r);
void raster_clear(struct raster *r);

void raster_point(struct raster *r, int x, int y);
void raster_span(struct raster *r, int x, int y0, int y1); /* a vertical line, both ends included */
void raster_line(struct raster *r, int x0, int y0, int x1, int y1);

/* Draw the cells that have dots onto c, at its 0,0. Where c already has braille, the dots of both
 * are drawn together, except over cells in the style `behind` (may be NULL), which are replaced. */
void raster_paint(const struct raster *r, struct canvas *c, struct style st,
                  const struct style *behind);

#endif
