/* main.c - finds the command. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "tui/cmd/cmd.h"

static void usage(FILE *to)
{
    fprintf(to, "cupola - a terminal workbench for training neural networks\n\nUsage: cupola "
                "COMMAND [words] [options]\n\nCommands:\n");
    for (const struct command *c = cmd_table; c->name; c++)
        fprintf(to, "  %-8s %s\n", c->name, c->brief);
    fprintf(to,
            "\nOptions:\n"
            "  -h, --help     this text; `cupola COMMAND --help` for a command\n"
            "  --version      the version\n\n"
            "Example:\n  cupola train configs/digits.yaml\n\n"
            "Exit codes: 0 done, 1 failed at run time, 2 usage or config, 3 data, 4 not finite,\n"
            "5 out of memory or device lost, 130/143 interrupted or terminated after saving.\n");
}

static int unknown_command(const char *name)
{
    const char *names[64];
    int n = 0, near;

    for (const struct command *c = cmd_table; c->name && n < 64; c++)
        names[n++] = c->name;
    near = str_nearest(name, names, n);
    if (near >= 0)
        cmd_say("unknown command '%s'; did you mean %s?", name, names[near]);
    else
        cmd_say("unknown command '%s' (cupola --help lists them)", name);
    return 2;
}

int main(int argc, char **argv)
{
    const struct command *c;

    /* A reader that goes away is an error of a write, not a death. */
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "help") == 0) {
        c = argc > 2 ? cmd_find(argv[2]) : NULL;
        if (c)
            cmd_help(c);
        else
            usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("cupola %s\n", CUPOLA_VERSION);
        return 0;
    }
    c = cmd_find(argv[1]);
    return c ? c->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}
