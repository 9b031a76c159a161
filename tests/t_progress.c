/* The headless display: whole lines for files, one picture redrawn in place for terminals of any
 * size. */
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>

#include "tui/progress.h"
#include "tui/utf8.h"

static struct progress_value values[] = {
    {"train.loss", 0.31239}, {"valid.loss", 0.29812}, {"lr", 0.001}};

static struct progress_view view_of(const struct series *train, const struct series *valid)
{
    return (struct progress_view){.run = "digits-mlp",
                                  .state = "running",
                                  .step = 120,
                                  .steps = 460,
                                  .epoch = 5.2,
                                  .values = values,
                                  .n_values = 3,
                                  .rate = 51234,
                                  .elapsed_s = 1.4,
                                  .left_s = 3.2,
                                  .train = train,
                                  .valid = valid};
}

/* A terminal that knows what the display uses: ESC[nA, ESC[K, ESC[J, CR, LF. Wider lines wrap. */
struct term {
    int cols, rows, x, y;
    char cell[64][200];
    int bad; /* went where it must not */
};

static void term_put(struct term *t, const char *s)
{
    while (*s) {
        uint32_t ch;
        if (*s == 27) {
            int n = 1;
            if (s[2] == 'K')
                memset(t->cell[t->y] + t->x, ' ', (size_t)(t->cols - t->x));
            else if (s[2] == 'J')
                for (int y = t->y; y < t->rows; y++)
                    memset(t->cell[y], ' ', sizeof t->cell[y]);
            else
                n = atoi(s + 2);
            s += 2 + strspn(s + 2, "0123456789;");
            if (*s == 'A')
                t->y -= n;
            t->bad += t->y < 0 || !strchr("AKJm", *s);
            t->y = t->y < 0 ? 0 : t->y;
            s++;
            continue;
        }
        s += utf8_decode(s, strlen(s), &ch);
        if (ch == '\r') {
            t->x = 0;
        } else if (ch == '\n') {
            t->x = 0;
            if (++t->y == t->rows) {
                memmove(t->cell[0], t->cell[1], (size_t)(t->rows - 1) * sizeof t->cell[0]);
                memset(t->cell[--t->y], ' ', sizeof t->cell[0]);
            }
        } else {
            t->bad += t->x >= t->cols - 1 && t->cols > 1; /* the last column stays free */
            t->cell[t->y][t->x < t->cols ? t->x++ : 0] = ch < 0x80 ? (char)ch : '#';
        }
    }
}

static int count_rows(const struct term *t, const char *text)
{
    int n = 0;
    for (int y = 0; y < t->rows; y++)
        n += strstr(t->cell[y], text) != NULL;
    return n;
}

static void test_line(void)
{
    struct progress_view v = view_of(NULL, NULL);
    struct str s = {0};

    progress_format_line(&v, true, &s);
    ok(!strcmp(str_c(&s), "step 120/460  epoch 5.2  train.loss 0.3124  valid.loss 0.2981  lr 0.001 "
                          " 51.2k/s  left 0:03\n"),
       "the plain line");
    str_reset(&s);
    struct progress_value odd[] = {{"loss\r\x1b[2J\xc3\xa9", NAN}, {"x", -INFINITY}};
    v.values = odd, v.n_values = 2, v.steps = 0, v.epoch = NAN, v.rate = NAN, v.left_s = NAN;
    v.message = "two\nlines";
    progress_format_line(&v, false, &s);
    ok(!strcmp(str_c(&s), "two\\x0alines\nstep 120  loss\\x0d\\x1b[2J? nan  x -inf  left --\n"),
       "what is not known is left out; names cannot break the line; nan is nan");
    ok(!strpbrk(str_c(&s), "\r\x1b"), "no CR and no ESC");
    str_reset(&s);
    v = view_of(NULL, NULL);
    v.step = 460, v.left_s = NAN, v.state = "done", v.n_values = 0;
    progress_format_line(&v, true, &s);
    ok(strstr(str_c(&s), "left 0:00"), "at the end nothing is left");
    str_release(&s);
}

static void test_picture(const struct series *train, const struct series *valid)
{
    struct progress p = {.mode = {ANSI_NONE, true}, .cols = 100, .rows = 24};
    struct progress_view v = view_of(train, valid);
    struct str s = {0};

    ok(progress_due(&p, 0.001), "the first picture is due at once");
    progress_draw(&v, &p, 5, &s);
    ok(!strncmp(str_c(&s), "digits-mlp  running  epoch 5.2  lr 0.001", 40),
       "first run, state, epoch, lr");
    ok(strstr(str_c(&s), " loss   train ") && strstr(str_c(&s), "┤") &&
           strstr(str_c(&s), " step  0 "),
       "then the losses in braille with their axes");
    ok(strstr(str_c(&s), "\nstep 120/460 ████░░░░░░░░░") &&
           strstr(str_c(&s),
                  "░ 26%  51.2k samples/s  train.loss 0.3124  valid.loss 0.2981  left 0:03"),
       "then the line with the bar");
    ok(p.drawn == PROGRESS_ROWS, "in %d rows", p.drawn);
    ok(!progress_due(&p, 5.09) && progress_due(&p, 5.11) && progress_due(&p, 4 + 1e9),
       "the next one a tenth of a second later");
    str_reset(&s);
    progress_draw(&v, &p, 5.2, &s);
    ok(!strncmp(str_c(&s), "\x1b[10A\r", 6), "it replaces the first");
    str_reset(&s);
    progress_erase(&p, &s);
    ok(!strcmp(str_c(&s), "\x1b[10A\r\x1b[J") && p.drawn == 0,
       "and can be taken away for a line in its place");
    str_reset(&s);
    p.mode.utf8 = false;
    v.run = "caf\xc3\xa9\x1b";
    progress_draw(&v, &p, 6, &s);
    int high = 0;
    for (size_t i = 0; i < s.len; i++)
        high += (s.s[i] & 0x80) != 0;
    ok(high == 0 && strstr(str_c(&s), "[###-----") && strstr(str_c(&s), "caf?\\x1b"),
       "without UTF-8 all is ASCII");
    str_reset(&s);
    v.step = 999;
    p.cols = 80;
    progress_draw(&v, &p, 7, &s);
    ok(strstr(str_c(&s), " 100% "), "never more than 100 %%");
    str_release(&s);
}

/* Every size, each drawn twice on a terminal with three lines before it, with resizes between. */
static void test_sizes(const struct series *train, const struct series *valid)
{
    struct progress_view v = view_of(train, valid);
    int bad = 0, lost = 0, doubled = 0, wide = 0, header = 0;

    v.message = "checkpoint \xe4\xb8\xad saved";
    for (int cols = 1; cols <= 120; cols++)
        for (int rows = 1; rows <= 40; rows++) {
            struct progress p = {.mode = {cols % 2 ? ANSI_256 : ANSI_NONE, rows % 3 > 0},
                                 .cols = cols,
                                 .rows = rows};
            static struct term t;
            struct str s = {0};
            memset(&t, 0, sizeof t);
            memset(t.cell, ' ', sizeof t.cell);
            for (int y = 0; y < 64; y++)
                t.cell[y][199] = '\0';
            t.cols = cols, t.rows = rows;
            if (rows > 12)
                term_put(&t, cols > 5 ? "old\nold\nold\n" : "\n\n\n");
            for (int k = 0; k < 3; k++) {
                str_reset(&s);
                v.steps = k == 1 ? 0 : 460;
                progress_draw(&v, &p, k, &s);
                term_put(&t, str_c(&s));
            }
            bad += t.bad;
            lost += rows > 14 && cols > 5 && count_rows(&t, "old") != 3;
            doubled += count_rows(&t, "120/460") > 1 ||
                       (cols >= 20 && rows > 1 && count_rows(&t, "120/460") != 1);
            wide += cols >= 20 && rows > 1 && count_rows(&t, "26%") != 1;
            header += cols >= 20 && rows > 2 && count_rows(&t, "digits-mlp") != 1;
            str_release(&s);
        }
    ok(header == 0, "the header is there from 3 rows on, not scrolled away");
    ok(bad == 0, "120 x 40 sizes: never above the screen, never in the last column");
    ok(lost == 0, "what stood there before is kept");
    ok(doubled == 0, "the picture is there once, not twice");
    ok(wide == 0, "steps and percent are there from 20 columns on");
}

int main(void)
{
    struct series *train = series_new(0), *valid = series_new(0);

    for (int i = 1; i <= 120; i++) {
        series_append(train, i, 0.3 + 2 * exp(-i / 30.0));
        if (i % 23 == 0)
            series_append(valid, i, 0.4 + 2 * exp(-i / 30.0));
    }
    test_line();
    test_picture(train, valid);
    test_sizes(train, valid);
    series_free(train);
    series_free(valid);
    return tap_done();
}
