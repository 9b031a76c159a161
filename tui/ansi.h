/* ansi.h - a canvas as text with colour codes, and what is known of the terminal that gets it.
 *
 * For what writes lines and goes on (cupola plot, the progress display); the workbench has term.c.
 */
#ifndef ANSI_H
#define ANSI_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "tui/canvas.h"

struct chart_palette;

enum ansi_colour { ANSI_NONE, ANSI_16, ANSI_256 };

struct ansi_mode {
    enum ansi_colour colour; /* ANSI_NONE: no escape sequence at all */
    bool utf8;               /* false: no byte above 0x7f leaves; lines and signs become ASCII */
};

struct ansi_facts {
    bool tty;
    bool dumb; /* TERM is unset, empty, "dumb" or "unknown": no cursor movement */
    struct ansi_mode mode;
    int cols, rows; /* 80 x 24 where the terminal does not say */
};

/* Take the character set (LC_CTYPE and nothing else: numbers stay in the C locale) from the
 * environment and say whether it is UTF-8. Main thread, before any other. */
bool ansi_locale_utf8(void);

/* What fd is, from isatty, TIOCGWINSZ, TERM, COLORTERM, NO_COLOR. `utf8` from ansi_locale_utf8. */
void ansi_facts_of(int fd, bool utf8, struct ansi_facts *f);
/* The size now. False where fd has none: then *cols and *rows are as they were. */
bool ansi_size(int fd, int *cols, int *rows);
/* Colours for a terminal; each argument as getenv gives it, NULL when unset. */
enum ansi_colour ansi_colour_for(const char *term, const char *colorterm, const char *no_color);

const struct chart_palette *ansi_palette(enum ansi_colour colour);

/* Append row y without a line end: blanks in plain style at the end are left out; colours change
 * only where they differ, and are plain again at the end. */
void ansi_row(const struct canvas *c, int y, struct ansi_mode mode, struct str *out);
/* Append all rows, each with '\n'. */
void ansi_render(const struct canvas *c, struct ansi_mode mode, struct str *out);
/* The same to a descriptor, in one write where it takes it. */
enum err_code ansi_write(int fd, const struct canvas *c, struct ansi_mode mode, struct err *e);

/* Append text as canvas_text would draw it, for lines that need no canvas: controls and broken
 * bytes made visible, and without UTF-8 every other sign beyond ASCII a '?'. */
void ansi_text(const char *text, bool utf8, struct str *out);

#endif
