/* raster.c - dots to braille, blocks or ASCII. */
#include "tui/raster.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"

enum { DOT_NONE, DOT_SPAN, DOT_POINT };

int raster_fine_x(enum raster_glyphs g)
{
    return g == RASTER_BRAILLE ? 2 : 1;
}

int raster_fine_y(enum raster_glyphs g)
{
    return g == RASTER_BRAILLE ? 4 : g == RASTER_BLOCK ? 8 : 1;
}

int raster_init(struct raster *r, enum raster_glyphs g, int w, int h)
{
    *r = (struct raster){.glyphs = g, .w = w, .h = h};
    r->dots_x = w * raster_fine_x(g);
    r->dots_y = h * raster_fine_y(g);
    r->dots = mem_array((size_t)r->dots_x + 1, (size_t)r->dots_y + 1);
    return r->dots ? 0 : -1;
}

void raster_release(struct raster *r)
{
    mem_free(r->dots);
    *r = (struct raster){0};
}

void raster_clear(struct raster *r)
{
    memset(r->dots, DOT_NONE, (size_t)r->dots_x * (size_t)r->dots_y);
}

static void set_dot(struct raster *r, int x, int y, uint8_t kind)
{
    if (x < 0 || x >= r->dots_x || y < 0 || y >= r->dots_y)
        return;
    uint8_t *d = &r->dots[(size_t)y * (size_t)r->dots_x + (size_t)x];
    if (kind > *d)
        *d = kind;
}

static uint8_t get_dot(const struct raster *r, int x, int y)
{
    return r->dots[(size_t)y * (size_t)r->dots_x + (size_t)x];
}

void raster_point(struct raster *r, int x, int y)
{
    set_dot(r, x, y, DOT_POINT);
}

void raster_span(struct raster *r, int x, int y0, int y1)
{
    int lo = y0 < y1 ? y0 : y1, hi = y0 < y1 ? y1 : y0;

    for (int y = lo; y <= hi; y++)
        set_dot(r, x, y, DOT_SPAN);
}

/* A span a column, from where the line enters it to where it leaves it. So a steep line has no
 * holes, and in ASCII what is steep is '|' and what is flat is '*'. */
void raster_line(struct raster *r, int x0, int y0, int x1, int y1)
{
    if (x0 > x1) {
        raster_line(r, x1, y1, x0, y0);
        return;
    }
    if (x0 == x1) {
        raster_span(r, x0, y0, y1);
        return;
    }
    int dx = x1 - x0, dy = y1 - y0;
    for (int x = x0; x <= x1; x++) {
        /* twice the distance, so that half a column is a whole number */
        int a = 2 * (x - x0) - 1, b = 2 * (x - x0) + 1;
        a = a < 0 ? 0 : a;
        b = b > 2 * dx ? 2 * dx : b;
        int ya = y0 + (int)(((int64_t)dy * a + (dy < 0 ? -dx : dx)) / (2 * dx));
        int yb = y0 + (int)(((int64_t)dy * b + (dy < 0 ? -dx : dx)) / (2 * dx));
        /* where the next column begins, this one need not end on the same dot */
        if (yb > ya && x < x1)
            yb--;
        else if (yb < ya && x < x1)
            yb++;
        raster_span(r, x, ya, yb);
        if (ya == yb)
            raster_point(r, x, ya);
    }
}

static uint32_t braille_cell(const struct raster *r, int cx, int cy)
{
    static const uint8_t bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    uint32_t bits = 0;

    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 2; x++)
            if (get_dot(r, 2 * cx + x, 4 * cy + y))
                bits |= bit[y][x];
    return bits ? 0x2800 + bits : 0;
}

static uint32_t block_cell(const struct raster *r, int cx, int cy)
{
    for (int y = 0; y < 8; y++)
        if (get_dot(r, cx, 8 * cy + y))
            return 0x2588u - (uint32_t)y; /* full block down to one eighth */
    return 0;
}

static uint32_t ascii_cell(const struct raster *r, int cx, int cy)
{
    uint8_t d = get_dot(r, cx, cy);
    return d == DOT_POINT ? '*' : d ? '|' : 0;
}

static bool same_style(struct style a, struct style b)
{
    return a.fg == b.fg && a.bg == b.bg && a.attr == b.attr;
}

static void paint_cell(const struct raster *r, struct canvas *c, int x, int y, struct style st,
                       const struct style *behind)
{
    uint32_t ch = r->glyphs == RASTER_BRAILLE ? braille_cell(r, x, y)
                  : r->glyphs == RASTER_BLOCK ? block_cell(r, x, y)
                                              : ascii_cell(r, x, y);
    const struct cell *old = canvas_at(c, x, y);

    if (!ch || !old)
        return;
    bool covered = behind && same_style(old->style, *behind);
    if (r->glyphs == RASTER_BRAILLE && old->ch >= 0x2800 && old->ch <= 0x28ff && !covered)
        ch |= old->ch;
    canvas_put(c, x, y, ch, st);
}

void raster_paint(const struct raster *r, struct canvas *c, struct style st,
                  const struct style *behind)
{
    for (int y = 0; y < r->h; y++)
        for (int x = 0; x < r->w; x++)
            paint_cell(r, c, x, y, st, behind);
}
