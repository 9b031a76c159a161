/* cmd.h - the table of subcommands, and what they share. */
#ifndef CMD_H
#define CMD_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/config/config.h"

#define CUPOLA_VERSION "0.1.0"

struct command {
    const char *name;
    const char *brief;                 /* one line of `cupola --help` */
    const char *usage;                 /* "cupola train CONFIG [key=value ...] [options]" */
    const char *options;               /* one line an option */
    const char *example;               /* lines */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit code */
};

extern const struct command cmd_table[]; /* ends with a NULL name */

int cmd_train(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_show(int argc, char **argv);

void cmd_help(const struct command *c);
const struct command *cmd_find(const char *name); /* NULL: none */

/* ---- options ---- */

/* A long option of a command; `word` receives the argument of one that takes it. */
struct cmd_option {
    const char *name;
    char letter;       /* short form, or 0 */
    bool *flag;        /* without an argument */
    const char **word; /* with one */
};

/* Parses argv: options anywhere, the other words are left in words[0..n). -h and --help are
 * handled: then, and after an error (said on stderr, with the nearest option), false comes back
 * with *code. options end with a NULL name. */
bool cmd_parse(int argc, char **argv, const struct cmd_option *options, char **words, int *n,
               int *code);

/* "cupola: ..." on stderr. */
void cmd_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int cmd_fail(const struct err *e); /* says it and returns its exit code */

/* The one word that is no override is the config, the others are overrides; loads it and says every
 * error. */
struct config *cmd_config(char **words, int n, const char *command, int *code);

const char *cmd_runs_dir(const char *option); /* --runs, CUPOLA_RUNS, "runs" */
/* The folder of the shipped Lua files: CUPOLA_SCRIPTS, beside an installed program, or in the
 * source tree. */
const char *cmd_scripts_dir(void);

#endif
