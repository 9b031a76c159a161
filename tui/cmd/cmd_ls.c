/* cmd_ls.c - cupola ls, cupola show. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/clock.h"
#include "engine/base/fsio.h"
#include "engine/base/json.h"
#include "engine/run/runs.h"
#include "tui/cmd/cmd.h"

static void put_state(struct str *s, const char *name, const char *path, const struct run_state *st)
{
    json_put_text(s, "run", name);
    json_put_text(s, "path", path);
    json_put_text(s, "state", st->state);
    json_put_int(s, "step", st->step);
    json_put_int(s, "steps", st->steps);
    json_put_number(s, "epoch", st->epoch);
    json_put_number(s, "t", st->t);
    json_key(s, "best");
    if (st->has_best) {
        json_begin(s);
        json_put_number(s, st->best.name, st->best.value);
        json_put_int(s, "step", st->best_step);
        json_end(s);
    } else {
        json_raw(s, "null");
    }
    json_key(s, "last");
    json_begin(s);
    for (int i = 0; i < st->n_last; i++)
        json_put_number(s, st->last[i].name, st->last[i].value);
    json_end(s);
    if (*st->reason)
        json_put_text(s, "reason", st->reason);
}

/* The newest value of the metric that best is about, else of train.loss. */
static double last_of(const struct run_state *st)
{
    const char *want = st->has_best ? st->best.name : "train.loss";

    for (int i = 0; i < st->n_last; i++)
        if (strcmp(st->last[i].name, want) == 0)
            return st->last[i].value;
    return NAN;
}

static const char *cell(char *buf, size_t cap, bool known, double v)
{
    if (known)
        snprintf(buf, cap, "%.5g", v);
    else
        snprintf(buf, cap, "-");
    return buf;
}

static void print_run(const struct run_entry *r)
{
    const struct run_state *st = &r->state;
    char name[256], best[32], last[32], why[600];

    str_visible(name, sizeof name, r->name);
    if (!r->readable) {
        printf("%-9s %-36s %s\n", "?", name, str_visible(why, sizeof why, r->why));
        return;
    }
    printf("%-9s %-36s %9" PRId64 " %4.0f%% %10s %10s  %s%s%s\n", st->state, name, st->step,
           st->steps > 0 ? 100.0 * (double)st->step / (double)st->steps : 0.0,
           cell(best, sizeof best, st->has_best, st->best.value),
           cell(last, sizeof last, st->n_last > 0, last_of(st)), st->has_best ? st->best.name : "",
           *st->reason ? "  " : "", str_visible(why, sizeof why, st->reason));
}

int cmd_ls(int argc, char **argv)
{
    bool json = false;
    const char *runs = NULL;
    const struct cmd_option options[] = {{"json", 0, &json, NULL}, {"runs", 0, NULL, &runs}, {0}};
    char **words = calloc((size_t)argc + 1, sizeof *words);
    struct run_list l = {0};
    struct err e = {0};
    int n = 0, code = 5;

    if (!words || !cmd_parse(argc, argv, options, words, &n, &code))
        goto out;
    if (n > 0) {
        cmd_say("ls: takes no words, got '%s'", words[0]);
        code = 2;
        goto out;
    }
    code = runs_list(cmd_runs_dir(runs), &l, &e) == ERR_OK ? 0 : cmd_fail(&e);
    if (code == 0 && !json && l.n > 0)
        printf("%-9s %-36s %9s %5s %10s %10s  %s\n", "state", "run", "step", "", "best", "last",
               "metric");
    for (int i = 0; i < l.n; i++) {
        struct str s = {0};
        if (!json) {
            print_run(&l.run[i]);
            continue;
        }
        json_begin(&s);
        put_state(&s, l.run[i].name, l.run[i].path, &l.run[i].state);
        if (!l.run[i].readable)
            json_put_text(&s, "error", l.run[i].why);
        json_end(&s);
        puts(str_c(&s));
        str_release(&s);
    }
    if (code == 0 && !json && l.n == 0)
        cmd_say("no runs in %s yet; start one: cupola train configs/digits.yaml",
                cmd_runs_dir(runs));
out:
    run_list_release(&l);
    free(words);
    return code;
}

/* ---- show ---- */

struct count {
    int64_t rows, eval_rows;
};

static void count_row(void *arg, const struct metrics_row *row)
{
    struct count *c = arg;

    c->rows++;
    if (row->n > 0 && strncmp(row->name[0], "valid.", 6) == 0)
        c->eval_rows++;
}

static void print_text(const char *path, const struct run_state *st, const struct count *c,
                       int64_t torn, int64_t bad, const char *journal)
{
    char buf[64], shown[1200];

    printf("run       %s\n", str_visible(shown, sizeof shown, path));
    printf("state     %s%s%s\n", st->state, *st->reason ? ": " : "",
           str_visible(shown, sizeof shown, st->reason));
    printf("step      %" PRId64 " of %" PRId64 ", epoch %.4g\n", st->step, st->steps, st->epoch);
    printf("started   %s on %s, pid %" PRId64 "\n", clock_iso(buf, sizeof buf, st->started),
           str_visible(shown, sizeof shown, st->host), st->pid);
    printf("trained   %s\n", str_duration(buf, sizeof buf, st->t));
    printf("device    %s\n", str_visible(shown, sizeof shown, st->device));
    if (st->has_best)
        printf("best      %s %.6g at step %" PRId64 "\n", st->best.name, st->best.value,
               st->best_step);
    for (int i = 0; i < st->n_last; i++)
        printf("%s%s %.6g\n", i == 0 ? "last      " : "          ", st->last[i].name,
               st->last[i].value);
    printf("rows      %" PRId64 ", %" PRId64 " of evaluations%s%s\n", c->rows, c->eval_rows,
           torn ? ", a torn last line left out" : "", bad ? ", some lines are no rows" : "");
    printf("journal\n");
    while (*journal) {
        size_t n = strcspn(journal, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)(n < sizeof line ? n : sizeof line - 1), journal);
        printf("  %s\n", str_visible(shown, sizeof shown, line));
        journal += n + (journal[n] == '\n');
    }
}

static void print_json(const char *path, const struct run_state *st, const struct count *c,
                       const char *journal)
{
    struct str s = {0};

    json_begin(&s);
    put_state(&s, fs_basename(path), path, st);
    json_put_text(&s, "host", st->host);
    json_put_int(&s, "pid", st->pid);
    json_put_text(&s, "device", st->device);
    json_put_int(&s, "rows", c->rows);
    json_key(&s, "journal");
    json_list_begin(&s);
    while (*journal) {
        size_t n = strcspn(journal, "\n");
        char *line = mem_strndup(journal, n);
        if (line && n > 0)
            json_raw(&s, line);
        mem_free(line);
        journal += n + (journal[n] == '\n');
    }
    json_list_end(&s);
    json_end(&s);
    puts(str_c(&s));
    str_release(&s);
}

int cmd_show(int argc, char **argv)
{
    bool json = false;
    const char *runs = NULL;
    const struct cmd_option options[] = {{"json", 0, &json, NULL}, {"runs", 0, NULL, &runs}, {0}};
    char **words = calloc((size_t)argc + 1, sizeof *words), *path = NULL;
    struct run_state st;
    struct count c = {0};
    struct str journal = {0};
    struct err e = {0};
    int64_t torn, bad;
    int n = 0, code = 5;

    if (!words || !cmd_parse(argc, argv, options, words, &n, &code))
        goto out;
    if (n != 1) {
        cmd_say("show: one RUN is needed, for example: cupola show @");
        code = 2;
        goto out;
    }
    if (runs_find(cmd_runs_dir(runs), words[0], &path, &e) != ERR_OK ||
        run_state_read(path, &st, &e) != ERR_OK ||
        metrics_read(path, count_row, &c, &torn, &bad, &e) != ERR_OK ||
        journal_tail(path, 20, &journal, &e) != ERR_OK) {
        code = cmd_fail(&e);
        goto out;
    }
    code = 0;
    if (json)
        print_json(path, &st, &c, str_c(&journal));
    else
        print_text(path, &st, &c, torn, bad, str_c(&journal));
out:
    str_release(&journal);
    mem_free(path);
    free(words);
    return code;
}
