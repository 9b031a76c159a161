/* tune.c - one hyperparameter's value in force, and the forms of changing it. */
#include "engine/tune/tune.h"

#include <math.h>
#include <string.h>

#include "engine/base/str.h"

#define STEPS_MAX                                                                                  \
    1000000000000000.0 /* 1e15: far below 2^53, so that a product with k or M is exact */

void tune_init(struct tune *t, double base, bool scheduled)
{
    *t = (struct tune){.base = base, .scheduled = scheduled, .scale = 1};
}

double tune_value(const struct tune *t, int64_t step, double schedule_factor)
{
    if (t->pinned)
        return t->pin;
    if (t->ramping) {
        int64_t done = step - t->ramp_start;
        if (done <= 0)
            return t->ramp_from;
        if (done >= t->ramp_steps)
            return t->ramp_to;
        return t->ramp_from + (t->ramp_to - t->ramp_from) * ((double)done / (double)t->ramp_steps);
    }
    return t->base * (t->scheduled ? schedule_factor : 1) * t->scale;
}

static void set_pin(struct tune *t, double v)
{
    t->ramping = false;
    t->pinned = true;
    t->pin = v;
    t->scale = 1;
}

static void multiply(struct tune *t, double f)
{
    if (t->pinned) {
        t->pin *= f;
    } else if (t->ramping) {
        t->ramp_from *= f;
        t->ramp_to *= f;
    } else {
        t->scale *= f;
    }
}

static void unpin(struct tune *t, double scale)
{
    t->pinned = t->ramping = false;
    t->scale = scale;
}

void tune_apply(struct tune *t, const struct tune_change *c, int64_t step, double factor)
{
    double now = tune_value(t, step, factor);

    if (t->ramping && step - t->ramp_start >= t->ramp_steps) /* it has ended: a pin by now */
        set_pin(t, t->ramp_to);
    switch (c->form) {
    case TUNE_PIN:
        set_pin(t, c->value);
        break;
    case TUNE_MULTIPLY:
        multiply(t, c->value);
        break;
    case TUNE_SCALE:
        unpin(t, c->value);
        break;
    case TUNE_SCHEDULE:
        unpin(t, 1);
        break;
    case TUNE_RAMP:
        unpin(t, 1);
        t->ramping = true;
        t->ramp_from = now;
        t->ramp_to = c->value;
        t->ramp_start = step;
        t->ramp_steps = c->over;
        break;
    }
}

/* ---- the text of a change ---- */

struct scan {
    const char *text, *p;
};

/* The next word, not terminated; its length, 0 at the end. */
static size_t next_word(struct scan *s, const char **word)
{
    while (*s->p == ' ' || *s->p == '\t')
        s->p++;
    *word = s->p;
    while (*s->p && *s->p != ' ' && *s->p != '\t')
        s->p++;
    return (size_t)(s->p - *word);
}

static bool word_is(const char *word, size_t n, const char *want)
{
    return strlen(want) == n && memcmp(word, want, n) == 0;
}

static enum err_code refuse(const struct scan *s, const char *word, const char *expected,
                            struct err *e)
{
    char shown[64];

    if (*word == '\0')
        return err_set(e, ERR_USAGE, "column %d: expected %s, found the end",
                       (int)(word - s->text) + 1, expected);
    return err_set(e, ERR_USAGE, "column %d: expected %s, found '%s'", (int)(word - s->text) + 1,
                   expected, str_visible(shown, sizeof shown, word));
}

/* 500, 2k, 1.5k, 3M: a whole number of steps from 1. */
static bool parse_steps(const char *word, size_t n, int64_t *out)
{
    double v, unit = 1;

    if (n > 0 && (word[n - 1] == 'k' || word[n - 1] == 'M'))
        unit = word[--n] == 'k' ? 1e3 : 1e6;
    if (!str_to_double(word, n, &v))
        return false;
    v *= unit;
    if (!(v >= 1 && v <= STEPS_MAX && v == floor(v)))
        return false;
    *out = (int64_t)v;
    return true;
}

/* The first word: the value, and with it the form. */
static enum err_code parse_value(struct scan *s, char op, struct tune_change *c, struct err *e)
{
    const char *word;
    size_t n = next_word(s, &word);

    if (op == '*') {
        c->form = TUNE_MULTIPLY;
        return str_to_double(word, n, &c->value) ? ERR_OK : refuse(s, word, "a factor", e);
    }
    if (op != '=')
        return err_set(e, ERR_USAGE, "expected = or *= after the key");
    if (word_is(word, n, "schedule")) {
        c->form = TUNE_SCHEDULE;
        return ERR_OK;
    }
    if (n > 0 && *word == 'x') {
        c->form = TUNE_SCALE;
        return str_to_double(word + 1, n - 1, &c->value)
                   ? ERR_OK
                   : refuse(s, word, "x and a factor, as in x0.5", e);
    }
    c->form = TUNE_PIN;
    if (str_to_double(word, n, &c->value))
        return ERR_OK;
    return refuse(s, word, "a number, xFACTOR or schedule", e);
}

static enum err_code parse_count(struct scan *s, const char *what, int64_t *out, struct err *e)
{
    const char *word;
    size_t n = next_word(s, &word);

    return parse_steps(word, n, out) ? ERR_OK : refuse(s, word, what, e);
}

enum err_code tune_parse(char op, const char *text, struct tune_change *out, struct err *e)
{
    struct scan s = {text, text};
    struct tune_change c = {0};
    enum err_code rc = parse_value(&s, op, &c, e);
    const char *word;
    size_t n;

    if (rc != ERR_OK)
        return rc;
    n = next_word(&s, &word);
    if (c.form == TUNE_PIN && word_is(word, n, "over")) {
        c.form = TUNE_RAMP;
        if ((rc = parse_count(&s, "a number of steps from 1", &c.over, e)) != ERR_OK)
            return rc;
        n = next_word(&s, &word);
    }
    if (word_is(word, n, "at")) {
        if ((rc = parse_count(&s, "a step from 1", &c.at, e)) != ERR_OK)
            return rc;
        n = next_word(&s, &word);
    }
    if (n > 0)
        return refuse(&s, word,
                      c.at                 ? "nothing more"
                      : c.form == TUNE_PIN ? "'over STEPS' or 'at STEP'"
                                           : "'at STEP'",
                      e);
    *out = c;
    return ERR_OK;
}
