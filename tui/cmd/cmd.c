/* cmd.c - the table of subcommands: help and dispatch read it. */
#include "tui/cmd/cmd.h"

#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/fsio.h"
#include "engine/base/str.h"

const struct command cmd_table[] = {
    {"train", "train an experiment in the foreground",
     "cupola train CONFIG [key=value ...] [options]",
     "  --json         one JSON object a logged step on standard output, then {\"event\":\"done\", "
     "...}\n"
     "  --plain        plain lines instead of the live chart\n"
     "  --runs DIR     where run directories go (default: $CUPOLA_RUNS, else runs)\n",
     "  cupola train configs/digits.yaml\n"
     "  cupola train configs/digits.yaml lr=3e-3 train.epochs=5 'model.args.hidden=[256, 64]'\n",
     cmd_train},
    {"check",
     "show what an experiment would do: resolved config, layers, memory, time; trains nothing",
     "cupola check CONFIG [key=value ...] [options]",
     "  --json         the same as one JSON object\n"
     "  --no-trial     do not time trial steps\n"
     "  --graph        print the traced graph and stop\n"
     "  --dot          print it as Graphviz DOT and stop\n"
     "  --plan         print the training program, one line an operation, and stop\n",
     "  cupola check configs/digits.yaml\n"
     "  cupola check configs/digits.yaml batch=256 --no-trial\n",
     cmd_check},
    {"ls", "list runs: state, step, best, last", "cupola ls [options]",
     "  --json         one JSON object a run\n"
     "  --runs DIR     where to look (default: $CUPOLA_RUNS, else runs)\n",
     "  cupola ls\n", cmd_ls},
    {"show", "show one run whole", "cupola show RUN [options]",
     "  --json         as one JSON object\n"
     "  --runs DIR     where to look (default: $CUPOLA_RUNS, else runs)\n"
     "RUN is a path, @ for the newest, or any part of a name that fits one run.\n",
     "  cupola show @\n"
     "  cupola show digits-mlp\n",
     cmd_show},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

const struct command *cmd_find(const char *name)
{
    for (const struct command *c = cmd_table; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

void cmd_help(const struct command *c)
{
    printf("%s - %s\n\nUsage: %s\n\nOptions:\n%s  -h, --help     this text\n\nExample:\n%s",
           c->name, c->brief, c->usage, c->options, c->example);
}

void cmd_say(const char *fmt, ...)
{
    char line[2048], shown[4096];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fprintf(stderr, "cupola: %s\n", str_visible(shown, sizeof shown, line));
}

int cmd_fail(const struct err *e)
{
    cmd_say("%s", e->msg);
    return err_exit_code(e->code);
}

/* ---- options ---- */

enum { OPTIONS_MAX = 24 };

static int unknown_option(const char *given, const struct cmd_option *o, const char *command)
{
    const char *names[OPTIONS_MAX + 1] = {"help"};
    char bare[64];
    int n = 1, near;

    for (; o->name && n < OPTIONS_MAX; o++)
        names[n++] = o->name;
    while (*given == '-')
        given++;
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(given, "="), given);
    near = str_nearest(bare, names, n);
    if (near >= 0)
        cmd_say("%s: unknown option --%s; did you mean --%s?", command, bare, names[near]);
    else
        cmd_say("%s: unknown option --%s (cupola %s --help lists them)", command, bare, command);
    return 2;
}

static void set_option(const struct cmd_option *o, const char *arg)
{
    if (o->flag)
        *o->flag = true;
    if (o->word)
        *o->word = arg;
}

bool cmd_parse(int argc, char **argv, const struct cmd_option *options, char **words, int *n,
               int *code)
{
    struct option longs[OPTIONS_MAX + 2] = {{"help", no_argument, NULL, 'h'}};
    char shorts[3 * OPTIONS_MAX] = ":h";
    int count = 0, c, at;

    for (; options[count].name && count < OPTIONS_MAX; count++) {
        const struct cmd_option *o = &options[count];
        longs[count + 1] =
            (struct option){o->name, o->word ? required_argument : no_argument, NULL, 256 + count};
        if (o->letter) {
            size_t len = strlen(shorts);
            shorts[len] = o->letter;
            shorts[len + 1] = o->word ? ':' : 0;
        }
    }
    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, shorts, longs, &at)) != -1) {
        const char *given = argv[optind - 1];

        if (c == 'h') {
            cmd_help(cmd_find(argv[0]));
            *code = 0;
            return false;
        }
        if (c == ':' || c == '?') {
            if (c == ':')
                cmd_say("%s: %s needs an argument", argv[0], given);
            else
                unknown_option(given, options, argv[0]);
            *code = 2;
            return false;
        }
        for (int k = 0; k < count; k++)
            if (c == 256 + k || (options[k].letter && c == options[k].letter))
                set_option(&options[k], optarg);
    }
    *n = 0;
    for (; optind < argc; optind++)
        words[(*n)++] = argv[optind];
    return true;
}

/* ---- configs and folders ---- */

struct config *cmd_config(char **words, int n, const char *command, int *code)
{
    char **overrides = calloc((size_t)n + 1, sizeof *overrides);
    const char *file = NULL;
    struct err_list errs = {0};
    struct config *c = NULL;
    int n_over = 0;

    *code = 2;
    for (int i = 0; overrides && i < n; i++) {
        if (config_is_override(words[i])) {
            overrides[n_over++] = words[i];
        } else if (!file) {
            file = words[i];
        } else {
            cmd_say("%s: one config at a time: '%s' and '%s' (an override is key=value)", command,
                    file, words[i]);
            goto out;
        }
    }
    if (!file) {
        cmd_say("%s: which experiment? for example: cupola %s configs/digits.yaml", command,
                command);
        goto out;
    }
    c = config_load(file, overrides, n_over, &errs);
    for (int i = 0; i < errs.n; i++) {
        char shown[2048];
        fprintf(stderr, "%s\n", str_visible(shown, sizeof shown, errs.err[i].msg));
    }
    if (!c && errs.n > 0)
        *code = err_exit_code(errs.err[0].code);
    err_list_release(&errs);
out:
    free(overrides);
    return c;
}

const char *cmd_runs_dir(const char *option)
{
    const char *env = getenv("CUPOLA_RUNS");

    if (option && *option)
        return option;
    return env && *env ? env : "runs";
}

const char *cmd_scripts_dir(void)
{
    static char dir[PATH_MAX]; /* found once, before any thread */
    static const char *const places[] = {"../share/cupola/scripts", "../../scripts"};
    const char *env = getenv("CUPOLA_SCRIPTS");
    char base[PATH_MAX - 64], file[PATH_MAX + 16];

    if (env && *env)
        return env;
    fs_program_dir(base, sizeof base);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char found[PATH_MAX];
        snprintf(dir, sizeof dir, "%s/%s", base, places[i]);
        snprintf(file, sizeof file, "%s/nn.lua", dir);
        if (fs_exists(file) && realpath(dir, found)) {
            memcpy(dir, found, sizeof dir);
            return dir;
        }
    }
    return dir;
}
