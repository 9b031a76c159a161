/* Whatever bytes a name has, it stays in its row, takes the cells it says, and shows what it is. */
#include "tests/tap.h"

#include <limits.h>
#include <string.h>

#include "tui/canvas.h"
#include "tui/utf8.h"

static int text_is(const struct canvas *c, const char *want)
{
    struct str s = {0};
    canvas_to_text(c, &s);
    int same = strcmp(str_c(&s), want) == 0;
    if (!same)
        note("got  <%s>", str_c(&s));
    str_release(&s);
    return same;
}

/* Every right half has a wide character before it, and no wide one lacks its right half. */
static int halves_match(const struct canvas *c)
{
    for (int y = 0; y < c->h; y++)
        for (int x = 0; x < c->w; x++) {
            const struct cell *p = canvas_at(c, x, y), *r = canvas_at(c, x + 1, y);
            if ((utf8_width(p->ch) == 2) != (r && r->ch == 0))
                return 0;
        }
    return canvas_at(c, 0, 0)->ch != 0;
}

static void test_decode(void)
{
    static const char *const broken[] = {
        "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\x80",     "\xff",         "\xe2\x82",     "\xf8\x88\x80\x80"};
    uint32_t ch;
    char buf[5];
    int good = 1, all = 1;

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        good &= utf8_decode(broken[i], strlen(broken[i]), &ch) == 1 && ch == UTF8_BROKEN;
    ok(good, "overlong, surrogate, too large, lone and cut sequences are broken, one byte each");
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        int n = utf8_encode(buf, c), surrogate = c >= 0xd800 && c <= 0xdfff;
        all &= utf8_decode(buf, (size_t)(n ? n : 1), &ch) == (c ? n : 1) && (surrogate || ch == c);
    }
    ok(all, "every code point survives encoding and decoding");
    ok(utf8_width('a') == 1 && utf8_width(0x4e2d) == 2 && utf8_width(0x1f600) == 2,
       "widths 1, 2, 2");
    ok(utf8_width(0x301) == 0 && utf8_width(0x280f) == 1 && utf8_width(0x2524) == 1,
       "combining 0, braille and lines 1");
    ok(utf8_width(0x1b) == -1 && utf8_width(0x85) == -1 && utf8_width(0x202e) == -1 &&
           utf8_width(0x200b) == -1 && utf8_width(UTF8_BROKEN) == -1,
       "controls, C1, direction override, zero-width space and broken bytes never reach a "
       "terminal");
}

static void test_text(void)
{
    struct canvas c;

    ok(canvas_init(&c, 12, 2) == 0, "a canvas of 12 x 2");
    ok(canvas_text(&c, 0, 0, STYLE_PLAIN, "a\x1b[2J\n\xff") == 16, "returns the x after the text");
    ok(text_is(&c, "a\\x1b[2J\\x0a\n\n"), "ESC, newline and a broken byte are visible, in one row");
    canvas_clear(&c);
    canvas_text(&c, 0, 0, STYLE_PLAIN, "e\xcc\x81x\xe2\x80\xae");
    ok(text_is(&c, "e\xcc\x81x\\u202e\n\n"),
       "a combining mark joins its letter, a bidi override is seen");
    ok(canvas_at(&c, 1, 0)->ch == 'x', "and takes no cell");
    canvas_clear(&c);
    canvas_text(&c, 9, 0, STYLE_PLAIN, "\xe4\xb8\xad\xe6\x96\x87");
    ok(text_is(&c, "         \xe4\xb8\xad\n\n") && halves_match(&c),
       "a wide character that the edge would cut is a blank");
    canvas_text(&c, 10, 0, STYLE_PLAIN, "z");
    ok(text_is(&c, "          z\n\n") && halves_match(&c), "overwriting one half blanks the other");
    canvas_text(&c, 0, 1, STYLE_PLAIN, "\xcc\x81g");
    ok(canvas_at(&c, 0, 1)->ch == ' ' && canvas_at(&c, 1, 1)->ch == 'g',
       "a mark with no letter stands on a blank");
    ok(utf8_cells("a\x1b[2J\n\xff") == 16 && utf8_cells("\xe4\xb8\xad"
                                                        "e\xcc\x81") == 3,
       "utf8_cells says what canvas_text takes");
    canvas_release(&c);
}

static void test_sub(void)
{
    struct canvas c, s;

    canvas_init(&c, 8, 4);
    s = canvas_sub(&c, 2, 1, 3, 2);
    canvas_fill(&s, -5, -5, INT_MAX, INT_MAX, '.', STYLE_PLAIN);
    canvas_text(&s, 1, 1, STYLE_PLAIN, "abcdef");
    ok(text_is(&c, "\n  ...\n  .ab\n\n"), "a window clips fill and text to itself");
    canvas_text(&s, -1, 0, STYLE_PLAIN, "xyz");
    ok(text_is(&c, "\n  yz.\n  .ab\n\n"), "text that begins left of it shows its rest");
    s = canvas_sub(&c, 7, 3, INT_MAX, INT_MAX);
    ok(s.w == 1 && s.h == 1, "the rest of a canvas, asked for with INT_MAX");
    s = canvas_sub(&c, 8, 0, 1, 1);
    canvas_put(&s, 0, 0, 'x', STYLE_PLAIN);
    ok(s.w == 0 && text_is(&c, "\n  yz.\n  .ab\n\n"), "an empty window draws nothing");
    canvas_text(&c, 0, 0, STYLE_PLAIN, "\xe4\xb8\xad\xe4\xb8\xad");
    s = canvas_sub(&c, 1, 0, 2, 1);
    canvas_fill(&s, 0, 0, 2, 1, '-', STYLE_PLAIN);
    ok(text_is(&c, " --\n  yz.\n  .ab\n\n") && halves_match(&c),
       "a window that cuts wide characters leaves no half outside it");
    canvas_add_attr(&c, 2, 1, 1, 9, ATTR_REVERSE);
    ok(canvas_at(&c, 2, 3)->style.attr == ATTR_REVERSE && canvas_at(&c, 3, 1)->style.attr == 0,
       "attributes are set in a rectangle");
    canvas_release(&c);
}

static void test_random(void)
{
    static const char *const bits[] = {"\xe4\xb8\xad",     "a",   "\xcc\x81", "\x1b",
                                       "\xf0\x9f\x98\x80", "\xe4"};
    struct canvas c;
    uint32_t r = 7;
    int good = 1;

    canvas_init(&c, 7, 3);
    for (int i = 0; i < 20000; i++) {
        struct canvas s;
        r = r * 1664525u + 1013904223u;
        s = canvas_sub(&c, (int)(r >> 8 & 7) - 1, (int)(r >> 11 & 3), (int)(r >> 13 & 7), 2);
        char text[16] = "";
        for (int k = 0; k < 3; k++)
            strcat(text, bits[(r >> (16 + 3 * k) & 7) % 6]);
        canvas_text(&s, (int)(r >> 25 & 7) - 3, (int)(r >> 28 & 1), STYLE_PLAIN, text);
        good &= halves_match(&c);
    }
    ok(good, "20000 random texts in random windows never leave half a character");
    canvas_release(&c);
    ok(canvas_init(&c, -1, 5) == 0 && c.w == 0, "a negative size is an empty canvas");
    canvas_text(&c, 0, 0, STYLE_PLAIN, "x");
    canvas_release(&c);
}

int main(void)
{
    test_decode();
    test_text();
    test_sub();
    test_random();
    return tap_done();
}
