/* A hyperparameter's value follows the forms of change; schedules follow their formulas; a clock
 * never jumps. */
#include "engine/tune/schedule.h"
#include "engine/tune/tune.h"
#include "tap.h"

#include <string.h>

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(1, fabs(b));
}

/* ---- schedules ---- */

static void test_schedule_points(void)
{
    struct schedule constant = {SCHEDULE_CONSTANT, 0, 0, 0, 0},
                    linear = {SCHEDULE_LINEAR, 0, 0.2, 0, 0};
    struct schedule cosine = {SCHEDULE_COSINE, 10, 0.1, 0, 0},
                    step = {SCHEDULE_STEP, 0, 0, 30, 0.5};
    struct schedule warm_step = {SCHEDULE_STEP, 10, 0, 30, 0.5};
    enum schedule_kind k;

    ok(schedule_from_name("cosine", &k) && k == SCHEDULE_COSINE && schedule_from_name("step", &k) &&
           k == SCHEDULE_STEP && schedule_from_name("linear", &k) && k == SCHEDULE_LINEAR &&
           schedule_from_name("constant", &k) && k == SCHEDULE_CONSTANT,
       "four names");
    ok(!schedule_from_name("cosin", &k) && !schedule_from_name("", &k), "and no other");
    ok(schedule_factor(&constant, 0, 100) == 1 && schedule_factor(&constant, 1e9, 100) == 1,
       "constant: 1");
    ok(near(schedule_factor(&linear, 0, 100), 1) && near(schedule_factor(&linear, 25, 100), 0.8) &&
           near(schedule_factor(&linear, 50, 100), 0.6) &&
           near(schedule_factor(&linear, 100, 100), 0.2),
       "linear: 1, 0.8, 0.6, 0.2");
    ok(near(schedule_factor(&cosine, 0, 110), 0.1) && near(schedule_factor(&cosine, 4, 110), 0.5) &&
           near(schedule_factor(&cosine, 9, 110), 1),
       "a warm-up of 10: step s has (s + 1) / 10");
    ok(near(schedule_factor(&cosine, 10, 110), 1) &&
           near(schedule_factor(&cosine, 60, 110), 0.55) &&
           near(schedule_factor(&cosine, 35, 110), 0.1 + 0.9 * 0.5 * (1 + sqrt(0.5))) &&
           near(schedule_factor(&cosine, 110, 110), 0.1),
       "cosine after it: 1, the quarter, the half, the end");
    ok(schedule_factor(&step, 29, 100) == 1 && schedule_factor(&step, 30, 100) == 0.5 &&
           schedule_factor(&step, 60, 100) == 0.25 && schedule_factor(&step, 99, 100) == 0.125,
       "step: halves at 30, 60, 90");
    ok(schedule_factor(&warm_step, 39, 100) == 1 && schedule_factor(&warm_step, 40, 100) == 0.5,
       "step: counted from the end of the warm-up");
}

static void test_schedule_edges(void)
{
    struct schedule k = {SCHEDULE_COSINE, 10, 0.1, 0, 0};
    int finite = 1;

    ok(near(schedule_factor(&k, 1e6, 110), 0.1), "past the end: the last value");
    ok(near(schedule_factor(&k, -5, 110), 0.1), "before the start: the first");
    ok(near(schedule_factor(&k, 3, 5), 0.4), "a warm-up longer than the schedule still rises");
    k = (struct schedule){SCHEDULE_STEP, 0, 0, 1e-300, 10};
    finite &= isfinite(schedule_factor(&k, 1e9, 1e10)) != 0;
    k = (struct schedule){SCHEDULE_STEP, 0, 0, 0, 0.1};
    ok(schedule_factor(&k, 50, 100) == 1, "step with every 0 never drops");
    for (int kind = 0; kind < 4; kind++)
        for (int total = 0; total < 3; total++)
            for (int warmup = 0; warmup < 4; warmup++) {
                k = (struct schedule){(enum schedule_kind)kind, warmup, 0, 0, 0};
                finite &= isfinite(schedule_factor(&k, 0, total)) &&
                          isfinite(schedule_factor(&k, 2, total));
            }
    ok(finite, "finite for every odd length, warm-up and drop");
}

static void test_schedule_series(void)
{
    struct schedule k = {SCHEDULE_COSINE, 23, 0.1, 0, 0};
    int n = 460, wrong = 0, whole = 0;
    double s = 0;

    for (int step = 0; step < n; step++) {
        double p = ((double)step - 23) / (460 - 23);
        double want =
            step < 23 ? (step + 1) / 23.0 : 0.1 + 0.9 * (1 + cos(3.14159265358979323846 * p)) / 2;
        whole += s == step;
        wrong += !near(schedule_factor(&k, s, n), want);
        s = schedule_advance(s, n, n - step);
    }
    ok(whole == n, "with a constant length the clock advances by exactly 1 each step");
    ok(wrong == 0, "a whole series of %d steps is the formula's", n);
    ok(s == n, "and ends at the end");
}

static void test_clock(void)
{
    struct schedule k = {SCHEDULE_COSINE, 0, 0, 0, 0};
    double s = 0, before, worst = 0, total = 1000;

    for (int i = 0; i < 400; i++)
        s = schedule_advance(s, total, 1000 - i);
    before = schedule_factor(&k, s, total);
    ok(s == 400, "400 of 1000 steps done");
    /* The batch doubles: 300 steps are left instead of 600. */
    for (int left = 300; left > 0; left--) {
        double now;
        s = schedule_advance(s, total, left);
        now = schedule_factor(&k, s, total);
        worst = fmax(worst, fabs(now - before));
        before = now;
    }
    ok(worst < 0.0035, "a change of the steps left makes no jump (largest move %.5f)", worst);
    ok(s == total && schedule_factor(&k, s, total) < 1e-15,
       "and the schedule still ends with the run");
    ok(schedule_advance(5, 10, 0) == 5 && schedule_advance(5, 10, -3) == 5,
       "no steps left: the clock stands");
}

/* ---- forms ---- */

static struct tune state(int kind)
{
    struct tune t;

    tune_init(&t, 0.8, kind != 4);
    if (kind == 1) /* pinned */
        tune_apply(&t, &(struct tune_change){TUNE_PIN, 0.3, 0, 0}, 5, 0.5);
    if (kind == 2) /* scaled */
        tune_apply(&t, &(struct tune_change){TUNE_SCALE, 0.25, 0, 0}, 5, 0.5);
    if (kind == 3) /* ramping from 0.4 to 1.4 in 10 steps from step 5 */
        tune_apply(&t, &(struct tune_change){TUNE_RAMP, 1.4, 10, 0}, 5, 0.5);
    return t;
}

static void test_states(void)
{
    struct tune t = state(0);

    ok(tune_value(&t, 1, 1) == 0.8 && near(tune_value(&t, 9, 0.5), 0.4),
       "at first the schedule's value");
    t = state(4);
    ok(tune_value(&t, 9, 0.5) == 0.8, "without a schedule the configured one");
    t = state(1);
    ok(tune_value(&t, 9, 0.5) == 0.3 && tune_value(&t, 99, 0.1) == 0.3, "a pin holds");
    t = state(2);
    ok(near(tune_value(&t, 9, 0.5), 0.1) && near(tune_value(&t, 9, 1), 0.2),
       "a scale multiplies the schedule");
    t = state(3);
    ok(near(tune_value(&t, 5, 0.5), 0.4) && near(tune_value(&t, 10, 0.1), 0.9) &&
           near(tune_value(&t, 14, 0.1), 1.3) && tune_value(&t, 15, 0.1) == 1.4 &&
           tune_value(&t, 1000, 0.1) == 1.4,
       "a ramp goes from the value in force to the new one and stays");
}

/* What each form makes of each state at step 10 with the schedule at 0.5: the value at once and at
 * step 20. */
static void test_forms(void)
{
    static const char *const states[] = {"schedule", "pin", "scale", "ramp", "no schedule"};
    static const char *const forms[] = {"pin", "multiply", "scale", "ramp", "schedule"};
    /* the states' values at step 10: 0.4, 0.3, 0.1, 0.9, 0.8 */
    static const double now[5][5] = {
        /* pin 2, multiply 0.5, scale 3, ramp to 2 in 10, schedule */
        {2, 0.2, 1.2, 0.4, 0.4}, /* schedule: 0.4 */
        {2, 0.15, 1.2, 0.3, 0.4}, {2, 0.05, 1.2, 0.1, 0.4},
        {2, 0.45, 1.2, 0.9, 0.4}, {2, 0.4, 2.4, 0.8, 0.8},
    };
    static const double later[5][5] = {
        /* at step 20, the schedule at 0.25 */
        {2, 0.1, 0.6, 2, 0.2}, {2, 0.15, 0.6, 2, 0.2}, {2, 0.025, 0.6, 2, 0.2},
        {2, 0.7, 0.6, 2, 0.2}, {2, 0.4, 2.4, 2, 0.8},
    };
    static const double value[5] = {2, 0.5, 3, 2, 0};

    for (int s = 0; s < 5; s++)
        for (int f = 0; f < 5; f++) {
            struct tune t = state(s);
            struct tune_change c = {(enum tune_form)f, value[f], f == TUNE_RAMP ? 10 : 0, 0};
            tune_apply(&t, &c, 10, 0.5);
            ok(near(tune_value(&t, 10, 0.5), now[s][f]) &&
                   near(tune_value(&t, 20, 0.25), later[s][f]),
               "%s on %s: %g, then %g", forms[f], states[s], now[s][f], later[s][f]);
        }
}

static void test_chains(void)
{
    struct tune t = state(3);

    tune_apply(&t, &(struct tune_change){TUNE_MULTIPLY, 0.5, 0, 0}, 15, 0.5);
    ok(t.pinned && !t.ramping && near(tune_value(&t, 15, 0.5), 0.7),
       "a ramp that has ended is a pin: multiplied as one");
    t = state(1);
    tune_apply(&t, &(struct tune_change){TUNE_MULTIPLY, 2, 0, 0}, 6, 0.5);
    tune_apply(&t, &(struct tune_change){TUNE_SCHEDULE, 0, 0, 0}, 7, 0.5);
    ok(near(tune_value(&t, 7, 0.5), 0.4), "pin, multiply, schedule: as it was");
    t = state(2);
    tune_apply(&t, &(struct tune_change){TUNE_MULTIPLY, 2, 0, 0}, 6, 0.5);
    ok(near(t.scale, 0.5), "multiply times the scale in force");
    tune_apply(&t, &(struct tune_change){TUNE_SCALE, 2, 0, 0}, 6, 0.5);
    ok(t.scale == 2, "scale sets it");
    tune_apply(&t, &(struct tune_change){TUNE_PIN, 1, 0, 0}, 6, 0.5);
    ok(t.scale == 1, "a pin takes the scale away");
    t = state(3);
    tune_apply(&t, &(struct tune_change){TUNE_RAMP, 0, 4, 0}, 10, 0.5);
    ok(near(tune_value(&t, 10, 0), 0.9) && near(tune_value(&t, 12, 0), 0.45) &&
           tune_value(&t, 14, 0) == 0,
       "a ramp in a ramp starts from where the first one was");
    ok(t.base == 0.8 && t.scheduled, "no form touches the configured value");
}

/* ---- text ---- */

static int parses(char op, const char *text, enum tune_form form, double value, int64_t over,
                  int64_t at)
{
    struct tune_change c;
    struct err e;

    return tune_parse(op, text, &c, &e) == ERR_OK && c.form == form && c.value == value &&
           c.over == over && c.at == at;
}

static int refused(char op, const char *text, const char *says)
{
    struct tune_change c = {.at = 77};
    struct err e;
    int rc = tune_parse(op, text, &c, &e);

    if (rc != ERR_USAGE || !strstr(e.msg, says) || c.at != 77) {
        note("'%s' gave %d: %s", text, rc, rc ? e.msg : "");
        return 0;
    }
    return 1;
}

static void test_parse(void)
{
    ok(parses('=', "3e-4", TUNE_PIN, 3e-4, 0, 0), "3e-4");
    ok(parses('=', "  .5\t", TUNE_PIN, 0.5, 0, 0), "blanks around do not matter");
    ok(parses('*', "0.5", TUNE_MULTIPLY, 0.5, 0, 0), "*= 0.5");
    ok(parses('=', "x0.35", TUNE_SCALE, 0.35, 0, 0), "x0.35");
    ok(parses('=', "3e-4 over 500", TUNE_RAMP, 3e-4, 500, 0), "3e-4 over 500");
    ok(parses('=', "schedule", TUNE_SCHEDULE, 0, 0, 0), "schedule");
    ok(parses('=', "3e-4 at 2000", TUNE_PIN, 3e-4, 0, 2000) &&
           parses('*', "2 at 2k", TUNE_MULTIPLY, 2, 0, 2000) &&
           parses('=', "x2 at 7", TUNE_SCALE, 2, 0, 7) &&
           parses('=', "schedule at 9", TUNE_SCHEDULE, 0, 0, 9) &&
           parses('=', "1 over 1.5k at 2M", TUNE_RAMP, 1, 1500, 2000000),
       "each at a step; k and M are thousands and millions of steps");
    ok(refused('=', "", "column 1") && refused('=', "   ", "the end"), "nothing is refused");
    ok(refused('=', "abc", "'abc'") && refused('=', "nan", "'nan'") &&
           refused('=', "inf", "'inf'") && refused('=', "1e999", "1e999") &&
           refused('=', "1,5", "1,5") && refused('=', "1k", "1k"),
       "values that are no finite numbers are refused");
    ok(refused('=', "x", "x0.5") && refused('*', "x2", "factor") &&
           refused('*', "schedule", "factor"),
       "factors that are none");
    ok(refused('=', "1 over 0", "column 8") && refused('=', "1 over 1.5", "column 8") &&
           refused('=', "1 over -3", "-3") && refused('=', "1 over", "the end") &&
           refused('=', "1 over 1e30", "1e30") && refused('=', "1 at 0", "column 6"),
       "steps are whole and from 1; the column is told");
    ok(refused('*', "2 over 5", "column 3") && refused('=', "x2 over 5", "'at STEP'") &&
           refused('=', "schedule over 5", "at STEP"),
       "only a value can be reached over steps");
    ok(refused('=', "1 at 5 over 3", "nothing more") && refused('=', "1 2", "column 3") &&
           refused('=', "\x1b[2J", "\\x1b[2J"),
       "what is left over is refused, and shown safely");
    ok(refused('+', "1", "= or *="), "another operator is refused");
}

int main(void)
{
    test_schedule_points();
    test_schedule_edges();
    test_schedule_series();
    test_clock();
    test_states();
    test_forms();
    test_chains();
    test_parse();
    return tap_done();
}
