/* canvas.c - cells, clipping, and text that stays in its row. */
#include "tui/canvas.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "tui/utf8.h"

static struct cell *cell_at(const struct canvas *c, int x, int y)
{
    return c->cells + (ptrdiff_t)y * c->stride + x;
}

static bool inside(const struct canvas *c, int x, int y)
{
    return x >= 0 && x < c->w && y >= 0 && y < c->h;
}

/* Before cell x is overwritten: what is left of a wide character that lay on it becomes a blank,
 * also where that half is outside the window - else the terminal would shift the rest of the row.
 */
static void split_wide(struct canvas *c, int x, int y)
{
    struct cell *p = cell_at(c, x, y);

    if (p->ch == 0 && x + c->left > 0) {
        p[-1].ch = ' ';
        p[-1].mark = 0;
    }
    if (x + 1 < c->w + c->right && p[1].ch == 0)
        p[1].ch = ' ';
}

static void put_cell(struct canvas *c, int x, int y, uint32_t ch, struct style st)
{
    split_wide(c, x, y);
    *cell_at(c, x, y) = (struct cell){ch, 0, st};
}

/* Both halves of a wide character, or a blank in the half that is visible. */
static void put_wide(struct canvas *c, int x, int y, uint32_t ch, struct style st)
{
    bool a = inside(c, x, y), b = inside(c, x + 1, y);

    if (b)
        put_cell(c, x + 1, y, a ? 0 : ' ', st);
    if (a) {
        /* Not put_cell: that would take the new right half for the rest of an old character. */
        struct cell *p = cell_at(c, x, y);
        if (!b)
            split_wide(c, x, y);
        else if (p->ch == 0 && x + c->left > 0)
            p[-1] = (struct cell){' ', 0, p[-1].style};
        *p = (struct cell){b ? ch : ' ', 0, st};
    }
}

static void put_glyph(struct canvas *c, int x, int y, uint32_t ch, int width, struct style st)
{
    if (width == 2)
        put_wide(c, x, y, ch, st);
    else if (inside(c, x, y))
        put_cell(c, x, y, ch, st);
}

int canvas_init(struct canvas *c, int w, int h)
{
    w = w < 0 ? 0 : w > CANVAS_SIDE_MAX ? CANVAS_SIDE_MAX : w;
    h = h < 0 ? 0 : h > CANVAS_SIDE_MAX ? CANVAS_SIDE_MAX : h;
    *c = (struct canvas){.w = w, .h = h, .stride = w};
    if (w == 0 || h == 0)
        return 0;
    c->cells = mem_array((size_t)w * (size_t)h, sizeof *c->cells);
    if (!c->cells) {
        *c = (struct canvas){0};
        return -1;
    }
    canvas_clear(c);
    return 0;
}

void canvas_release(struct canvas *c)
{
    mem_free(c->cells);
    *c = (struct canvas){0};
}

struct canvas canvas_sub(const struct canvas *c, int x, int y, int w, int h)
{
    /* in 64 bits: x + w may not fit an int when a caller passes INT_MAX for "the rest" */
    int64_t x1 = (int64_t)x + w, y1 = (int64_t)y + h;
    int64_t x0 = x < 0 ? 0 : x, y0 = y < 0 ? 0 : y;

    x1 = x1 > c->w ? c->w : x1;
    y1 = y1 > c->h ? c->h : y1;
    if (x0 >= x1 || y0 >= y1)
        return (struct canvas){0};
    return (struct canvas){.w = (int)(x1 - x0),
                           .h = (int)(y1 - y0),
                           .stride = c->stride,
                           .left = c->left + (int)x0,
                           .right = c->right + c->w - (int)x1,
                           .cells = cell_at(c, (int)x0, (int)y0)};
}

void canvas_clear(struct canvas *c)
{
    canvas_fill(c, 0, 0, c->w, c->h, ' ', STYLE_PLAIN);
}

void canvas_fill(struct canvas *c, int x, int y, int w, int h, uint32_t ch, struct style st)
{
    struct canvas s = canvas_sub(c, x, y, w, h);

    if (utf8_width(ch) != 1)
        ch = ' ';
    for (int j = 0; j < s.h; j++)
        for (int i = 0; i < s.w; i++)
            put_cell(&s, i, j, ch, st);
}

void canvas_put(struct canvas *c, int x, int y, uint32_t ch, struct style st)
{
    int width = utf8_width(ch);

    if (width <= 0) {
        ch = '?';
        width = 1;
    }
    put_glyph(c, x, y, ch, width, st);
}

/* A combining mark goes onto the glyph that was drawn last, `back` cells left of x. Variation
 * selectors are dropped: some terminals change the width of the base for them. */
static void put_mark(struct canvas *c, int x, int y, int back, uint32_t ch)
{
    if ((ch >= 0xfe00 && ch <= 0xfe0f) || (ch >= 0xe0100 && ch <= 0xe01ef))
        return;
    if (inside(c, x - back, y) && cell_at(c, x - back, y)->mark == 0)
        cell_at(c, x - back, y)->mark = ch;
}

static int put_visible(struct canvas *c, int x, int y, struct style st, uint32_t ch, char byte)
{
    char buf[UTF8_VISIBLE_MAX];
    int n = utf8_visible(buf, ch, (unsigned char)byte);

    for (int i = 0; i < n; i++)
        put_glyph(c, x + i, y, (unsigned char)buf[i], 1, st);
    return n;
}

int canvas_text(struct canvas *c, int x, int y, struct style st, const char *text)
{
    size_t n = strlen(text);
    int back = 0; /* width of the glyph before; 0 at the start */

    while (n > 0) {
        uint32_t ch;
        int len = utf8_decode(text, n, &ch), w = utf8_width(ch);

        if (w == 0 && back == 0) {
            put_glyph(c, x, y, ' ', 1, st);
            x += back = 1;
        }
        if (w == 0) {
            put_mark(c, x, y, back, ch);
        } else if (w < 0) {
            x += put_visible(c, x, y, st, ch, text[0]);
            back = 1;
        } else {
            put_glyph(c, x, y, ch, w, st);
            x += back = w;
        }
        text += len;
        n -= (size_t)len;
        /* Beyond the right edge only the width still counts; a text of any length stays cheap. */
        if (x > CANVAS_SIDE_MAX && x > c->w)
            break;
    }
    return x;
}

int canvas_textf(struct canvas *c, int x, int y, struct style st, const char *fmt, ...)
{
    char buf[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    return canvas_text(c, x, y, st, buf);
}

void canvas_add_attr(struct canvas *c, int x, int y, int w, int h, uint8_t attr)
{
    struct canvas s = canvas_sub(c, x, y, w, h);

    for (int j = 0; j < s.h; j++)
        for (int i = 0; i < s.w; i++)
            cell_at(&s, i, j)->style.attr |= attr;
}

const struct cell *canvas_at(const struct canvas *c, int x, int y)
{
    return inside(c, x, y) ? cell_at(c, x, y) : NULL;
}

static bool is_blank(const struct cell *p)
{
    return p->ch == ' ' && p->mark == 0;
}

void canvas_to_text(const struct canvas *c, struct str *out)
{
    char buf[5];

    for (int y = 0; y < c->h; y++) {
        int end = c->w;
        while (end > 0 && is_blank(cell_at(c, end - 1, y)))
            end--;
        for (int x = 0; x < end; x++) {
            const struct cell *p = cell_at(c, x, y);
            if (p->ch)
                str_addn(out, buf, (size_t)utf8_encode(buf, p->ch));
            if (p->mark)
                str_addn(out, buf, (size_t)utf8_encode(buf, p->mark));
        }
        str_addc(out, '\n');
    }
}
