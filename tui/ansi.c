/* ansi.c - cells to bytes. */
#include "tui/ansi.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/base/fsio.h"
#include "tui/chart.h"
#include "tui/utf8.h"

bool ansi_locale_utf8(void)
{
    if (!setlocale(LC_CTYPE, ""))
        return false;
    const char *set = nl_langinfo(CODESET);
    return strcmp(set, "UTF-8") == 0 || strcmp(set, "utf8") == 0;
}

enum ansi_colour ansi_colour_for(const char *term, const char *colorterm, const char *no_color)
{
    if (no_color && no_color[0])
        return ANSI_NONE;
    if (!term || !term[0] || strcmp(term, "dumb") == 0 || strcmp(term, "unknown") == 0 ||
        strncmp(term, "vt", 2) == 0)
        return ANSI_NONE;
    if (strstr(term, "256") || strstr(term, "direct") || strstr(term, "kitty") ||
        strstr(term, "alacritty") || (colorterm && colorterm[0]))
        return ANSI_256;
    return ANSI_16;
}

bool ansi_size(int fd, int *cols, int *rows)
{
    struct winsize ws;

    if (ioctl(fd, TIOCGWINSZ, &ws) < 0 || ws.ws_col == 0 || ws.ws_row == 0)
        return false;
    *cols = ws.ws_col;
    *rows = ws.ws_row;
    return true;
}

void ansi_facts_of(int fd, bool utf8, struct ansi_facts *f)
{
    const char *term = getenv("TERM");

    *f = (struct ansi_facts){.tty = isatty(fd) == 1, .cols = 80, .rows = 24};
    f->dumb = !term || !term[0] || strcmp(term, "dumb") == 0 || strcmp(term, "unknown") == 0;
    f->mode.utf8 = utf8;
    if (f->tty)
        f->mode.colour = ansi_colour_for(term, getenv("COLORTERM"), getenv("NO_COLOR"));
    ansi_size(fd, &f->cols, &f->rows);
}

const struct chart_palette *ansi_palette(enum ansi_colour colour)
{
    return colour == ANSI_256 ? &chart_dark : colour == ANSI_16 ? &chart_16 : &chart_mono;
}

static uint32_t braille_ascii(uint32_t ch)
{
    return ch == 0x2800 ? ' ' : '*';
}

/* What stands for a sign of ours where only ASCII may leave. */
static uint32_t to_ascii(uint32_t ch)
{
    static const struct {
        uint32_t ch;
        char ascii;
    } map[] = {{0x2500, '-'}, {0x2502, '|'}, {0x250a, ':'}, {0x254c, '-'}, {0x2524, '+'},
               {0x251c, '+'}, {0x253c, '+'}, {0x252c, '+'}, {0x2534, '+'}, {0x250c, '+'},
               {0x2510, '+'}, {0x2514, '+'}, {0x2518, '+'}, {0x2591, '-'}, {0x2592, '+'},
               {0x2593, '#'}, {0x00b7, '.'}, {0x2192, '>'}, {0x25bc, 'v'}, {0x25b2, '^'},
               {0x00d7, 'x'}, {0x2026, '~'}, {0x00b0, 'o'}};

    if (ch < 0x80)
        return ch;
    if (ch >= 0x2800 && ch <= 0x28ff)
        return braille_ascii(ch);
    if (ch >= 0x2581 && ch <= 0x258f)
        return '#';
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (map[i].ch == ch)
            return (unsigned char)map[i].ascii;
    return '?';
}

static void add_char(struct str *out, uint32_t ch)
{
    char buf[5];
    str_addn(out, buf, (size_t)utf8_encode(buf, ch));
}

static void add_cell(const struct cell *p, const struct cell *before, bool utf8, struct str *out)
{
    if (utf8) {
        if (p->ch)
            add_char(out, p->ch);
        if (p->mark)
            add_char(out, p->mark);
        return;
    }
    /* the right half of a wide character is a cell too: two signs for two cells */
    add_char(out, p->ch ? to_ascii(p->ch) : before ? to_ascii(before->ch) : '?');
}

/* Nearest of the 16 colours to one of the 256: by which of red, green and blue are strong. */
static int to_16(int n)
{
    if (n < 16)
        return n;
    if (n >= 232)
        return n < 238 ? 0 : n < 244 ? 8 : n < 250 ? 7 : 15;
    int r = (n - 16) / 36, g = (n - 16) / 6 % 6, b = (n - 16) % 6;
    int top = r > g ? r : g;
    top = b > top ? b : top;
    int half = (top + 1) / 2;
    return (r >= half && r ? 1 : 0) + (g >= half && g ? 2 : 0) + (b >= half && b ? 4 : 0) +
           (top == 5 ? 8 : 0);
}

static void add_colour(struct str *out, int n, bool background, enum ansi_colour colour)
{
    int base = background ? 40 : 30;

    if (n == COLOUR_OWN)
        str_addf(out, ";%d", base + 9);
    else if (colour == ANSI_256 && n >= 16)
        str_addf(out, ";%d;5;%d", base + 8, n);
    else {
        n = to_16(n);
        str_addf(out, ";%d", n < 8 ? base + n : base + 60 + n - 8);
    }
}

static bool is_plain(struct style s)
{
    return s.fg == COLOUR_OWN && s.bg == COLOUR_OWN && s.attr == 0;
}

/* From style a to b. Attributes are only ever added; to take one off everything is reset first. */
static void add_style(struct str *out, struct style a, struct style b, enum ansi_colour colour)
{
    static const char code[] = {'1', '2', '7', '4'}; /* by bit of ATTR_* */
    bool reset = (a.attr & ~b.attr) != 0 || is_plain(b);
    size_t from;

    if (a.fg == b.fg && a.bg == b.bg && a.attr == b.attr)
        return;
    if (reset)
        a = STYLE_PLAIN;
    str_add(out, "\x1b[");
    from = out->len;
    if (reset)
        str_add(out, ";0");
    for (int i = 0; i < 4; i++)
        if ((b.attr & ~a.attr) & 1 << i)
            str_addf(out, ";%c", code[i]);
    if (b.fg != a.fg)
        add_colour(out, b.fg, false, colour);
    if (b.bg != a.bg)
        add_colour(out, b.bg, true, colour);
    if (!out->oom) { /* every part came with a ';' before it: the first is one too many */
        memmove(out->s + from, out->s + from + 1, out->len - from);
        out->len--;
    }
    str_addc(out, 'm');
}

static bool is_blank(const struct cell *p)
{
    return p->ch == ' ' && p->mark == 0 && p->style.bg == COLOUR_OWN &&
           !(p->style.attr & (ATTR_REVERSE | ATTR_UNDERLINE));
}

void ansi_row(const struct canvas *c, int y, struct ansi_mode mode, struct str *out)
{
    struct style now = STYLE_PLAIN;
    int end = c->w;

    while (end > 0 && is_blank(canvas_at(c, end - 1, y)))
        end--;
    for (int x = 0; x < end; x++) {
        const struct cell *p = canvas_at(c, x, y);
        if (mode.colour != ANSI_NONE && p->ch && !is_blank(p)) {
            add_style(out, now, p->style, mode.colour);
            now = p->style;
        } else if (mode.colour != ANSI_NONE && is_blank(p) &&
                   (now.bg != COLOUR_OWN || now.attr & (ATTR_REVERSE | ATTR_UNDERLINE))) {
            add_style(out, now, STYLE_PLAIN, mode.colour);
            now = STYLE_PLAIN;
        }
        add_cell(p, x > 0 ? canvas_at(c, x - 1, y) : NULL, mode.utf8, out);
    }
    add_style(out, now, STYLE_PLAIN, mode.colour);
}

void ansi_render(const struct canvas *c, struct ansi_mode mode, struct str *out)
{
    for (int y = 0; y < c->h; y++) {
        ansi_row(c, y, mode, out);
        str_addc(out, '\n');
    }
}

enum err_code ansi_write(int fd, const struct canvas *c, struct ansi_mode mode, struct err *e)
{
    struct str s = {0};
    enum err_code rc = ERR_OK;

    ansi_render(c, mode, &s);
    if (s.oom)
        rc = err_set(e, ERR_NOMEM, "output: out of memory");
    else if (fs_write_all(fd, str_c(&s), s.len) < 0)
        rc = err_set(e, ERR_IO, "output: %s", strerror(errno));
    str_release(&s);
    return rc;
}

void ansi_text(const char *text, bool utf8, struct str *out)
{
    size_t n = strlen(text);

    while (n > 0) {
        uint32_t ch;
        char buf[UTF8_VISIBLE_MAX];
        int len = utf8_decode(text, n, &ch);
        if (utf8_width(ch) < 0) {
            utf8_visible(buf, ch, (unsigned char)text[0]);
            str_add(out, buf);
        } else {
            add_char(out, utf8 ? ch : to_ascii(ch));
        }
        text += len;
        n -= (size_t)len;
    }
}
