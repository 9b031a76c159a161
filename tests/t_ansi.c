/* What reaches a terminal: few colour codes, none when asked, and no byte it cannot show. */
#define _GNU_SOURCE /* posix_openpt */
#include "tests/tap.h"

#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tui/ansi.h"
#include "tui/chart.h"

static int row_is(const struct canvas *c, enum ansi_colour colour, bool utf8, const char *want)
{
    struct str s = {0};
    ansi_row(c, 0, (struct ansi_mode){colour, utf8}, &s);
    int same = strcmp(str_c(&s), want) == 0;
    for (size_t i = 0; !same && i < s.len; i++)
        if (s.s[i] == 27)
            s.s[i] = '^';
    if (!same)
        note("got <%s>", str_c(&s));
    str_release(&s);
    return same;
}

static void test_colours(void)
{
    struct style blue = {75, COLOUR_OWN, 0}, bold = {75, COLOUR_OWN, ATTR_BOLD},
                 bar = {COLOUR_OWN, 52, ATTR_REVERSE};
    struct canvas c;

    canvas_init(&c, 10, 1);
    canvas_text(&c, 0, 0, STYLE_PLAIN, "a");
    canvas_text(&c, 1, 0, blue, "b c");
    ok(row_is(&c, ANSI_256, true, "a\x1b[38;5;75mb c\x1b[0m"), "one code for a run of one colour");
    ok(row_is(&c, ANSI_NONE, true, "ab c"), "none when asked");
    ok(row_is(&c, ANSI_16, true, "a\x1b[96mb c\x1b[0m"), "the nearest of 16");
    canvas_text(&c, 4, 0, bold, "d");
    canvas_text(&c, 5, 0, blue, "e");
    ok(row_is(&c, ANSI_256, true, "a\x1b[38;5;75mb c\x1b[1md\x1b[0;38;5;75me\x1b[0m"),
       "an attribute is added, and taken off by a reset");
    canvas_clear(&c);
    canvas_text(&c, 0, 0, STYLE_PLAIN, "x");
    canvas_fill(&c, 2, 0, 2, 1, ' ', bar);
    ok(row_is(&c, ANSI_256, true, "x \x1b[7;48;5;52m  \x1b[0m"),
       "coloured blanks are kept, plain ones at the end not");
    canvas_release(&c);
}

static void test_ascii(void)
{
    struct canvas c;
    struct str s = {0};

    canvas_init(&c, 20, 1);
    canvas_text(&c, 0, 0, STYLE_PLAIN, "┤│┊╌█→⣀°C中e\xcc\x81é");
    ok(row_is(&c, ANSI_NONE, false, "+|:-#>*oC??e?"), "without UTF-8 every cell is one ASCII sign");
    ok(row_is(&c, ANSI_NONE, true, "┤│┊╌█→⣀°C中e\xcc\x81é"), "with it all is as drawn");
    canvas_release(&c);
    ansi_text("a\x1b[2J\r\xff é\n", true, &s);
    ok(strcmp(str_c(&s), "a\\x1b[2J\\x0d\\xff é\\x0a") == 0,
       "text of a line: controls are visible");
    str_reset(&s);
    ansi_text("é中", false, &s);
    ok(strcmp(str_c(&s), "??") == 0, "and ASCII where that is all there is");
    str_release(&s);
}

static void test_facts(void)
{
    ok(ansi_colour_for("xterm-256color", NULL, NULL) == ANSI_256 &&
           ansi_colour_for("xterm", "truecolor", NULL) == ANSI_256 &&
           ansi_colour_for("linux", NULL, NULL) == ANSI_16,
       "colours by TERM and COLORTERM");
    ok(ansi_colour_for("xterm-256color", "truecolor", "1") == ANSI_NONE &&
           ansi_colour_for("xterm-256color", NULL, "") == ANSI_256,
       "NO_COLOR takes them away, unless it is empty");
    ok(ansi_colour_for("dumb", "truecolor", NULL) == ANSI_NONE &&
           ansi_colour_for(NULL, NULL, NULL) == ANSI_NONE &&
           ansi_colour_for("vt100", NULL, NULL) == ANSI_NONE,
       "dumb, unset and vt100 have none");
    struct ansi_facts f;
    int fd = open("/dev/null", O_RDWR);
    ansi_facts_of(fd, true, &f);
    ok(!f.tty && f.mode.colour == ANSI_NONE && f.cols == 80 && f.rows == 24,
       "a file is no terminal: 80 x 24, no colour");
    close(fd);
    int pty = posix_openpt(O_RDWR | O_NOCTTY), slave = -1;
    if (pty >= 0 && grantpt(pty) == 0 && unlockpt(pty) == 0)
        slave = open(ptsname(pty), O_RDWR | O_NOCTTY);
    struct winsize ws = {.ws_col = 97, .ws_row = 31};
    if (slave < 0 || ioctl(slave, TIOCSWINSZ, &ws) < 0) {
        note("no pseudo-terminal here");
    } else {
        setenv("TERM", "xterm-256color", 1);
        unsetenv("NO_COLOR");
        ansi_facts_of(slave, true, &f);
        ok(f.tty && !f.dumb && f.cols == 97 && f.rows == 31 && f.mode.colour == ANSI_256,
           "a terminal says its size");
        ws.ws_col = 0;
        ioctl(slave, TIOCSWINSZ, &ws);
        int cols = 5, rows = 6;
        ok(!ansi_size(slave, &cols, &rows) && cols == 5 && rows == 6, "a size of 0 is none");
    }
    close(slave);
    close(pty);
    setenv("LC_ALL", "C", 1);
    ok(!ansi_locale_utf8(), "LC_ALL=C is not UTF-8");
    setenv("LC_ALL", "C.UTF-8", 1);
    int utf8 = ansi_locale_utf8();
    if (strstr(setlocale(LC_CTYPE, NULL), "UTF-8"))
        ok(utf8, "C.UTF-8 is");
    ok(strcmp(setlocale(LC_NUMERIC, NULL), "C") == 0, "numbers stay in the C locale");
}

static void test_write(void)
{
    struct canvas c;
    struct err e;
    char buf[64] = "";
    int p[2];

    canvas_init(&c, 3, 2);
    canvas_text(&c, 0, 0, STYLE_PLAIN, "hi");
    ok(pipe(p) == 0 && ansi_write(p[1], &c, (struct ansi_mode){ANSI_256, true}, &e) == ERR_OK,
       "written");
    ok(read(p[0], buf, sizeof buf - 1) == 4 && strcmp(buf, "hi\n\n") == 0,
       "plain cells need no code at all");
    close(p[0]);
    close(p[1]);
    ok(ansi_write(-1, &c, (struct ansi_mode){ANSI_NONE, true}, &e) == ERR_IO &&
           strstr(e.msg, "output: "),
       "an error names the output: %s", e.msg);
    canvas_release(&c);
}

int main(void)
{
    test_colours();
    test_ascii();
    test_facts();
    test_write();
    return tap_done();
}
