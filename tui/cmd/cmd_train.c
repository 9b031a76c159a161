/* cmd_train.c - cupola train. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/json.h"
#include "engine/train/trainer.h"
#include "tui/ansi.h"
#include "tui/cmd/cmd.h"
#include "tui/cmd/display.h"

/* Signal handlers can reach nothing else. */
static atomic_int caught;
static struct display *volatile shown;

static void on_stop(int sig)
{
    int none = 0;

    /* the first: finish the step, save, end; the second: end now */
    if (!atomic_compare_exchange_strong(&caught, &none, sig))
        _exit(128 + sig);
}

static void on_hangup(int sig)
{
    (void)sig;
    if (shown)
        display_hangup(shown);
}

static void catch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_stop},
                     hup = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};

    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGHUP, &hup, NULL);
}

/* ---- what the trainer says ---- */

struct watch {
    struct display *d; /* NULL before the first step */
    struct rundir *r;
};

static void on_note(void *arg, const char *line)
{
    struct watch *w = arg;

    if (w->d)
        display_message(w->d, line);
    else
        cmd_say("%s", line);
}

static void on_row(void *arg, const struct train_row *row)
{
    display_row(((struct watch *)arg)->d, row);
}

static void on_tick(void *arg, int64_t step, double t)
{
    display_tick(((struct watch *)arg)->d, step, t);
}

/* ---- descriptors: 1 and 2 go to the log, so that nothing a library prints tears the picture ----
 */

struct outputs {
    int out, err; /* where they led before */
};

static int save_fd(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static void redirect(struct outputs *o, int log_fd)
{
    fflush(NULL);
    o->out = save_fd(1);
    o->err = save_fd(2);
    dup2(log_fd, 1);
    dup2(log_fd, 2);
}

static void restore(struct outputs *o)
{
    fflush(NULL);
    if (o->out >= 0)
        dup2(o->out, 1);
    if (o->err >= 0)
        dup2(o->err, 2);
    close(o->out);
    close(o->err);
}

/* ---- the result ---- */

static void print_json_end(const struct rundir *r, const struct train_end *end)
{
    struct str s = {0};

    json_begin(&s);
    json_put_text(&s, "event", end->end);
    json_put_text(&s, "run", r->name);
    json_put_text(&s, "path", r->path);
    json_put_int(&s, "step", end->step);
    json_put_int(&s, "exit_code", end->exit_code);
    json_key(&s, "best");
    if (end->state.has_best) {
        json_begin(&s);
        json_put_number(&s, end->state.best.name, end->state.best.value);
        json_put_int(&s, "step", end->state.best_step);
        json_end(&s);
    } else {
        json_raw(&s, "null");
    }
    json_key(&s, "last");
    json_begin(&s);
    for (int i = 0; i < end->state.n_last; i++)
        json_put_number(&s, end->state.last[i].name, end->state.last[i].value);
    json_end(&s);
    if (*end->state.reason)
        json_put_text(&s, "reason", end->state.reason);
    json_end(&s);
    puts(str_c(&s));
    str_release(&s);
}

static void print_end(const struct rundir *r, const struct train_end *end)
{
    printf("%s: %s at step %" PRId64, r->path, end->end, end->step);
    if (end->state.has_best)
        printf(", best %s %.6g at step %" PRId64, end->state.best.name, end->state.best.value,
               end->state.best_step);
    for (int i = 0; i < end->state.n_last; i++)
        if (strncmp(end->state.last[i].name, "valid.", 6) == 0)
            printf(", %s %.6g", end->state.last[i].name, end->state.last[i].value);
    printf("\n");
}

/* ---- the command ---- */

static int train(struct trainer *t, struct rundir *r, struct watch *w, bool json, bool plain)
{
    struct train_observer o = {.arg = w, .row = on_row, .tick = on_tick, .note = on_note};
    struct trainer_summary sum;
    struct ansi_facts f;
    struct train_end end;
    struct outputs fds;
    struct err e = {0};
    enum err_code rc;
    bool utf8 = ansi_locale_utf8();

    trainer_summary(t, &sum);
    ansi_facts_of(2, utf8, &f);
    redirect(&fds, r->log_fd);
    w->d = display_new(json                         ? DISPLAY_JSON
                       : f.tty && !f.dumb && !plain ? DISPLAY_CHART
                                                    : DISPLAY_LINES,
                       fds.out, fds.err, utf8, r->name, sum.steps);
    if (!w->d) {
        restore(&fds);
        cmd_say("out of memory for the display");
        return 5;
    }
    shown = w->d;
    rc = trainer_run(t, r, &o, &caught, &end, &e);
    shown = NULL;
    display_free(w->d, end.end);
    w->d = NULL;
    restore(&fds);
    if (rc != ERR_OK)
        cmd_say("%s", e.msg);
    if (json)
        print_json_end(r, &end);
    else
        print_end(r, &end);
    return end.exit_code;
}

int cmd_train(int argc, char **argv)
{
    bool json = false, plain = false;
    const char *runs = NULL;
    const struct cmd_option options[] = {
        {"json", 0, &json, NULL}, {"plain", 0, &plain, NULL}, {"runs", 0, NULL, &runs}, {0}};
    char **words = calloc((size_t)argc + 1, sizeof *words);
    struct watch w = {0};
    struct trainer_opts o = {.shipped = cmd_scripts_dir(), .note = on_note, .arg = &w};
    struct config *c = NULL;
    struct trainer *t = NULL;
    struct err e = {0};
    int n = 0, code = 5;

    if (!words || !cmd_parse(argc, argv, options, words, &n, &code))
        goto out;
    c = cmd_config(words, n, "train", &code);
    if (!c)
        goto out;
    catch_signals();
    if (trainer_open(c, &o, &t, &e) != ERR_OK ||
        rundir_create(cmd_runs_dir(runs), c->name, &w.r, &e) != ERR_OK)
        code = cmd_fail(&e);
    else
        code = train(t, w.r, &w, json, plain);
out:
    trainer_free(t);
    rundir_free(w.r);
    config_free(c);
    free(words);
    return code;
}
