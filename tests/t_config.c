/* An experiment is read against the table of keys: every mistake is named with its place, and
 * nothing is guessed. */
#include "engine/config/config.h"
#include "tap.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/config/tree.h"

static const char base[] = "name: a\nmodel: {script: m.lua}\ndata: {format: csv, train: t.csv, "
                           "valid: v.csv}\ntrain: {epochs: 2}\n";

static struct err_list errs;

static struct config *load_words(const char *text, char *const *words, int n)
{
    err_list_release(&errs);
    return config_load_text(text, strlen(text), "f.yaml", "/d", words, n, &errs);
}

static struct config *load(const char *text)
{
    return load_words(text, NULL, 0);
}

/* base with one more line; the text of the first error, or "" when it loads. */
static const char *fault(const char *line)
{
    static char kept[4][1100]; /* several may be named in one claim */
    static int turn;
    char text[4096];

    snprintf(text, sizeof text, "%s%s\n", base, line);
    config_free(load(text));
    turn = (turn + 1) % 4;
    snprintf(kept[turn], sizeof kept[turn], "%s", errs.n ? errs.err[0].msg : "");
    return kept[turn];
}

#define refused(line, want) ok(strcmp(fault(line), want) == 0, "%s -> %s", line, fault(line))

static void values(void)
{
    struct config *c = load(base);

    ok(c != NULL, "the least config loads");
    if (!c)
        return;
    ok(strcmp(c->name, "a") == 0 && c->seed == 42 && strcmp(c->device, "auto") == 0,
       "values and defaults");
    ok(strcmp(c->model.script, "/d/m.lua") == 0 && strcmp(c->data.train, "/d/t.csv") == 0,
       "paths stand against the file's folder");
    ok(c->model.args && c->model.args->kind == CFG_MAP && c->model.args->n == 0,
       "args are a map, empty here");
    ok(c->train.has_epochs && !c->train.has_steps && c->train.epochs == 2,
       "epochs given, steps not");
    ok(c->data.batch == 64 && c->data.shuffle && c->optimizer.beta1 == 0.9 &&
           c->optimizer.beta2 == 0.999 && c->optimizer.eps == 1e-8,
       "defaults of numbers and lists");
    ok(strcmp(config_origin(c, config_key_find("name", NULL)), "f.yaml:1:7") == 0, "origin: %s",
       config_origin(c, config_key_find("name", NULL)));
    ok(strcmp(config_origin(c, config_key_find("lr", NULL)), "default") == 0,
       "origin of what is not written");
    config_free(c);
}

/* The error that says so, or NULL. */
static const char *said(const char *want)
{
    for (int i = 0; i < errs.n; i++)
        if (strstr(errs.err[i].msg, want))
            return errs.err[i].msg;
    return NULL;
}

static void not_loaded(const char *text, const char *want, const char *what)
{
    struct config *c = load(text);

    ok(!c && said(want), "%s: %s", what, said(want) ? said(want) : errs.n ? errs.err[0].msg : "");
    config_free(c);
}

/* Case 22: how a number is written. */
static void numbers(void)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1e-3", 1e-3},  {"1E-3", 1e-3}, {"1e+0", 1}, {".5", .5},   {"5.", 5},
                {"1.e-3", 1e-3}, {"010", 10},    {"+1", 1},   {"1e-400", 0}};
    static const char *const bad[] = {"1_000", "0x10", "0o10",   ".inf", "-.inf", ".nan",
                                      "nan",   "inf",  "1e400",  "yes",  "1e",    "--1",
                                      "true",  "[1]",  "{a: 1}", "''",   "1 2"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[400];
        struct config *c;
        snprintf(text, sizeof text, "%soptimizer: {lr: %s}\n", base, good[i].text);
        c = load(text);
        ok(c && c->optimizer.lr == good[i].value, "lr: %s is %g", good[i].text, good[i].value);
        config_free(c);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[200];
        snprintf(line, sizeof line, "optimizer: {lr: %s}", bad[i]);
        ok(strncmp(fault(line), "f.yaml:5:17: optimizer.lr: ", 27) == 0, "lr: %s -> %s", bad[i],
           fault(line));
    }
    refused("optimizer: {lr: \"0.1\"}", "f.yaml:5:17: optimizer.lr: a number is needed, not a "
                                        "text: write it without quotes (\"0.1\")");
    refused("optimizer: {lr: -1}", "f.yaml:5:17: optimizer.lr: -1 is not in 0 .. 10");
    refused("seed: 2.0", "f.yaml:5:7: seed: '2.0' is no whole number as it is written; write 2");
    refused("seed: 2.5", "f.yaml:5:7: seed: a whole number is needed, not '2.5'");
    refused(
        "seed: '2'",
        "f.yaml:5:7: seed: a whole number is needed, not a text: write it without quotes (\"2\")");
    refused("seed: 99999999999999999999",
            "f.yaml:5:7: seed: a whole number is needed, not '99999999999999999999'");
}

/* Cases 24, 25, 27. */
static void mistakes(void)
{
    refused("learnng_rate: 1e-4", "f.yaml:5:1: learnng_rate: unknown key");
    refused("lr: 1e-4", "f.yaml:5:1: lr: unknown key; did you mean optimizer.lr?");
    refused("optimizer: {lrr: 1}",
            "f.yaml:5:13: optimizer.lrr: unknown key; did you mean optimizer.lr?");
    refused("Seed: 1", "f.yaml:5:1: Seed: unknown key; did you mean seed?");
    refused("\"seed \": 1", "f.yaml:5:1: seed : unknown key; did you mean seed?");
    refused("seed: 1\nseed: 2", "f.yaml:6:1: seed: twice in one map; first at line 5");
    refused("optimizer: adamw",
            "f.yaml:5:12: optimizer: is a section: write optimizer: {name: adamw}");
    refused("optimizer: {name: adamm}",
            "f.yaml:5:19: optimizer.name: 'adamm' is none of sgd|adam|adamw; did you mean adam?");
    refused("optimizer: {betas: [0.9]}",
            "f.yaml:5:20: optimizer.betas: a list of 2 numbers is needed");
    refused("optimizer: {betas: [0.9, 1.0]}",
            "f.yaml:5:26: optimizer.betas: 1.0 is not in 0 .. 0.99999");
    refused("optimizer: {beta1: 0.9}",
            "f.yaml:5:13: optimizer.beta1: in a file write optimizer.betas: [0.9, 0.999]");
    refused("optimizer: {groups: [{mach: a}]}",
            "f.yaml:5:22: optimizer.groups: a group needs match");
    refused("optimizer: {groups: [{match: a, deca: 0}]}",
            "f.yaml:5:33: optimizer.groups: deca: unknown key of a group; did you mean decay");
    refused("optimizer:\n  lr: 1,5",
            "f.yaml:6:7: optimizer.lr: '1,5' is no number (1e-3, 0.001 and 3 are)");
    refused("optimizer: {nesterov: yes}",
            "f.yaml:5:23: optimizer.nesterov: true or false is needed, not 'yes'");
    refused("<<: {seed: 1}",
            "f.yaml:5:1: merge keys (<<) are not taken; write the keys, or use extends");
    refused("optimizer.lr: 1",
            "f.yaml:5:1: optimizer.lr: write sections as maps: optimizer: {lr: ...}");
    refused("lrate: 1", "f.yaml:5:1: lrate: unknown key; did you mean optimizer.lr?");
    refused("schedule: {lrate: 1}",
            "f.yaml:5:12: schedule.lrate: unknown key; did you mean optimizer.lr?");
    refused("schedule: {warmup: -1}",
            "f.yaml:5:20: schedule.warmup: -1 is not in 0 .. 1000000000000");
    refused("device: cuda", "f.yaml:5:9: device: 'cuda' is none of auto|cpu|ref");
    refused("name: ", "f.yaml:5:1: name: twice in one map; first at line 1");
    ok(strstr(fault("a: [1"), "f.yaml:6:1: YAML: "), "an open bracket: %s", fault("a: [1"));
    ok(strstr(fault("a:\n\tb: 1"), "f.yaml:6:1: YAML: "), "a tab: %s", fault("a:\n\tb: 1"));
    ok(strstr(fault("---\nb: 1"), "a second document"), "a second document: %s",
       fault("---\nb: 1"));
    ok(strstr(fault("a: \xff\xfe"), "YAML: "), "bytes that are no UTF-8: %s", fault("a: \xff\xfe"));
    not_loaded("", "f.yaml:1:1: is empty", "an empty file");
    not_loaded("# nothing\n", "is empty", "only a comment");
    not_loaded("- a\n", "an experiment is a map", "a list");
}

static void missing_and_cross(void)
{
    struct config *c = load("name: a\n");

    ok(!c && errs.n == 4, "what is required is asked for: %d errors", errs.n);
    ok(strcmp(fault("schedule: {warmup: 3}"), "") == 0, "a warm-up in epochs' time is fine");
    c = load("name: a\nmodel: {script: m}\ndata: {format: csv, train: t}\ntrain: {steps: 5, best: "
             "valid.loss}\nschedule: {warmup: 9}\n");
    ok(!c && errs.n == 2 && strstr(errs.err[0].msg, "valid.loss needs data.valid or data.split") &&
           strstr(errs.err[1].msg, "9 steps are more than train.steps, 5"),
       "best without validation data, warm-up past the end");
    c = load("name: a\nmodel: {script: m}\ndata: {format: csv, train: t}\ntrain: {steps: 5}\n");
    ok(c && strcmp(c->train.best_metric, "train.loss") == 0,
       "without validation data the best is by train.loss");
    config_free(c);
    c = load("name: a\nmodel: {script: m}\ndata: {format: csv, train: t, valid: v, split: "
             "0.1}\ntrain: {steps: 5, epochs: 1}\n");
    ok(!c && errs.n == 2 &&
           strcmp(errs.err[0].msg,
                  "f.yaml:3:48: data.split: excludes data.valid, which is at f.yaml:3:38") == 0,
       "two of an exclusive pair: %s", errs.n ? errs.err[0].msg : "");
}

static void overrides(void)
{
    char *words[] = {(char[]){"lr=3e-4"},
                     (char[]){"train.steps=7"},
                     (char[]){"batch=8"},
                     (char[]){"beta1=0.8"},
                     (char[]){"model.args.hidden=[4, 5]"},
                     (char[]){"lr=1e-2"},
                     (char[]){"shuffle=false"},
                     (char[]){"data.split=0.2"}};
    char *bad[] = {(char[]){"optimizer.lrr=1"}, (char[]){"name="}, (char[]){"seed=x"}};
    struct config *c = load_words(base, words, 8);

    ok(c && c->optimizer.lr == 1e-2, "the last override of a key wins");
    ok(c && c->train.has_steps && !c->train.has_epochs && c->train.steps == 7,
       "an override replaces the other of an exclusive pair");
    ok(c && strstr(config_notes(c),
                   "train.steps (command line) replaces train.epochs (f.yaml:4:17)"),
       "and says so");
    ok(c && !c->data.valid && c->data.split == 0.2, "data.split replaces data.valid");
    ok(c && c->data.batch == 8 && !c->data.shuffle && c->optimizer.beta1 == 0.8 &&
           c->optimizer.beta2 == 0.999,
       "short names, ends of paths, one of a list");
    ok(c && c->model.args->n == 1 && c->model.args->item[0]->n == 2 &&
           c->model.args->item[0]->item[1]->i == 5,
       "a key of the model's arguments");
    ok(c && strcmp(config_origin(c, config_key_find("lr", NULL)), "command line") == 0,
       "their origin");
    config_free(c);
    c = load_words(base, bad, 3);
    ok(!c && errs.n == 3, "three bad ones, three errors");
    ok(errs.n == 3 &&
           strstr(errs.err[0].msg,
                  "command line: optimizer.lrr: unknown key; did you mean optimizer.lr?"),
       "%s", errs.n ? errs.err[0].msg : "");
    c = load_words(base,
                   (char *[]){(char[]){"data.delimiter=,"}, (char[]){"name=a: [b"},
                              (char[]){"data.valid=null"}, (char[]){"data.target=\"null\""}},
                   4);
    ok(c && strcmp(c->data.delimiter, ",") == 0 && strcmp(c->name, "a: [b") == 0,
       "a text is taken as it stands");
    ok(c && !c->data.valid && c->data.target && strcmp(c->data.target, "null") == 0,
       "null is none, in quotes it is a text");
    config_free(c);
    c = load_words(base, (char *[]){(char[]){"optimizer=sgd"}}, 1);
    ok(!c && strcmp(errs.err[0].msg, "command line: optimizer: is a section: give its keys one by "
                                     "one (optimizer.name=...)") == 0,
       "an override of a section");
    ok(config_is_override("lr=1") && config_is_override("model.args.x=[1]") &&
           !config_is_override("configs/a.yaml") && !config_is_override("./a=b") &&
           !config_is_override("a/b=c"),
       "what a word is");
}

static void ten_faults(void)
{
    struct config *c = load("name: [x]\nsed: 1\nseed: x\nmodel: {script: m.lua}\ndata: {format: "
                            "csv, train: t.csv, bach: 3, last: maybe}\n"
                            "train: {epochs: two, log_every: -1}\noptimizer: {name: adamm, lr: "
                            "0x10}\nscheduel: {name: cosine}\n");
    bool sorted = true;
    int last = 0;

    ok(!c && errs.n == 10, "ten faults, %d errors", errs.n);
    for (int i = 0; i < errs.n; i++) {
        int line = 0, col = 0;
        sorted =
            sscanf(errs.err[i].msg, "f.yaml:%d:%d", &line, &col) == 2 && line >= last && sorted;
        last = line;
    }
    ok(sorted, "each with its place, in the order of the file");
}

static void hostile(void)
{
    char *big = malloc(1 << 20), *deep = malloc(4096);
    struct str bomb = {0}, many = {0};
    struct config *c;
    char line[64];

    memset(big, 'x', (1 << 20) - 1);
    memcpy(big, "name: ", 6);
    big[(1 << 20) - 1] = 0;
    c = load("\xef\xbb\xbf---\nname: a\nmodel: {script: m}\ndata: {format: csv, train: t}\ntrain: "
             "{steps: 5}\n");
    ok(c && strcmp(c->name, "a") == 0, "a byte order mark, and a document's beginning");
    config_free(c);
    for (int i = 0; i < 100000; i++)
        str_addf(&many, "k%d: 1\n", i);
    not_loaded(str_c(&many), "more than 4096 keys", "a hundred thousand keys");
    str_release(&many);
    ok(load(big) == NULL && errs.n > 0, "a scalar of a megabyte is no crash");
    strcpy(deep, "model: {args: ");
    for (int i = 0; i < 200; i++)
        strcat(deep, "[");
    not_loaded(deep, "64 deep", "deep nesting");
    str_add(&bomb, base);
    str_add(&bomb, "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n");
    for (int i = 1; i < 12; i++) {
        snprintf(line, sizeof line, "x%d: &x%d [", i, i);
        str_add(&bomb, line);
        for (int k = 0; k < 10; k++)
            str_addf(&bomb, "%s*x%d", k ? ", " : "", i - 1);
        str_add(&bomb, "]\n");
    }
    str_reset(&bomb);
    str_add(&bomb,
            "name: a\nmodel:\n  script: m\n  args:\n    x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n");
    for (int i = 1; i < 12; i++) {
        str_addf(&bomb, "    x%d: &x%d [", i, i);
        for (int k = 0; k < 10; k++)
            str_addf(&bomb, "%s*x%d", k ? ", " : "", i - 1);
        str_add(&bomb, "]\n");
    }
    not_loaded(str_c(&bomb), "more than", "an alias bomb ends");
    not_loaded("a: &a [*a]\n", "alias inside", "an alias to itself");
    str_release(&bomb);
    free(big);
    free(deep);
}

static bool same_dump(struct config *c)
{
    struct str a = {0}, b = {0};
    struct config *d;
    bool same;

    config_dump(c, NULL, &a);
    d = config_load_text(str_c(&a), a.len, "dump.yaml", "/", NULL, 0, &errs);
    if (!d) {
        note("%s", errs.n ? errs.err[0].msg : "?");
        str_release(&a);
        return false;
    }
    /* values alike, origins apart: compare what each key is written as */
    same = true;
    for (const struct key_def *k = config_keys; k->path; k++) {
        str_reset(&a);
        str_reset(&b);
        config_value_text(c, k, &a);
        config_value_text(d, k, &b);
        if (strcmp(str_c(&a), str_c(&b)) != 0) {
            note("%s: %s and %s", k->path, str_c(&a), str_c(&b));
            same = false;
        }
    }
    config_free(d);
    str_release(&a);
    str_release(&b);
    return same;
}

static void round_trip(void)
{
    static const char *const more[] = {
        "", "seed: 7\nthreads: 3",
        "optimizer: {name: sgd, nesterov: true, groups: [{match: '*.bias', lr: 0.5, decay: 0, "
        "freeze: true}]}",
        "init: {from: w.safetensors, map: {'net.': ''}, strict: false}",
        "schedule: {name: step, every: 10, factor: 0.5}"};
    struct config *c;

    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char text[1000];
        snprintf(text, sizeof text, "%s%s\n", base, more[i]);
        c = load(text);
        ok(c && same_dump(c), "what is written loads to the same: %s",
           *more[i] ? more[i] : "the least config");
        config_free(c);
    }
    c = load("name: \"no\"\nmodel: {script: m, args: {a: 1, b: 1.0, c: \"1\", d: true, e: "
             "\"true\", f: null, g: [x, {h: \"a b\\n\\\"q\\\"\"}], \"k: l\": -0.5}}\n"
             "data: {format: csv, train: t, ignore: [\"a,b\", c], inputs: {left: [c1], right: "
             "[c2]}, delimiter: \";\"}\ntrain: {steps: 3, best: {metric: valid.f1, mode: max}}\n");
    ok(c == NULL && errs.n == 1, "valid.f1 without validation data is refused here too");
    c = load("name: \"no\"\nmodel: {script: m, args: {a: 1, b: 1.0, c: \"1\", d: true, e: "
             "\"true\", f: null, g: [x, {h: \"a b\\n\\\"q\\\"\"}], \"k: l\": -0.5}}\n"
             "data: {format: csv, train: t, split: 0.1, ignore: [\"a,b\", c], inputs: {left: [c1], "
             "right: [c2]}, delimiter: \";\"}\ntrain: {steps: 3, best: {metric: valid.f1, mode: "
             "max}}\n");
    ok(c && same_dump(c), "free trees, lists, odd texts");
    ok(c && c->model.args->item[0]->kind == CFG_INT && c->model.args->item[1]->kind == CFG_REAL &&
           c->model.args->item[2]->kind == CFG_STRING && c->model.args->item[3]->kind == CFG_BOOL &&
           c->model.args->item[4]->kind == CFG_STRING && c->model.args->item[5]->kind == CFG_NULL,
       "free values keep their types");
    config_free(c);
}

static void the_table(void)
{
    int twice = 0, undefined = 0;

    for (const struct key_def *k = config_keys; k->path; k++) {
        for (const struct key_def *o = config_keys; o < k; o++)
            twice += strcmp(o->path, k->path) == 0 ||
                     (o->brief && k->brief && strcmp(o->brief, k->brief) == 0);
        undefined += !k->help || (!k->dflt && !k->required && !k->may_be_null && !k->element) ||
                     ((k->type == KEY_INT || k->type == KEY_REAL) && !(k->max > k->min));
        if (k->brief)
            undefined += config_key_find(k->brief, NULL) != k;
    }
    ok(twice == 0, "no path and no short name stands twice");
    ok(undefined == 0, "every key has help, a range, and a default or a reason to have none");
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[300];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static void extends(void)
{
    char dir[] = "/tmp/t_config.XXXXXX", path[300], want[300];
    struct config *c;

    if (!mkdtemp(dir))
        return;
    snprintf(path, sizeof path, "%s/sub", dir);
    mkdir(path, 0700);
    put(dir, "base.yaml",
        "name: base\nmodel: {script: m.lua, args: {a: 1, b: 2}}\ndata: {format: csv, train: t.csv, "
        "valid: v.csv}\ntrain: {epochs: 2}\noptimizer: {lr: 0.5, betas: [0.1, 0.2]}\n");
    put(dir, "sub/top.yaml",
        "extends: ../base.yaml\nname: top\nmodel: {args: {b: 3, c: 4}}\ntrain: {steps: "
        "9}\noptimizer: {betas: [0.3, 0.4]}\ndata: {valid: null}\n");
    put(dir, "loop.yaml", "extends: loop.yaml\nname: x\n");
    put(dir, "gone.yaml", "extends: nothing.yaml\nname: x\n");
    snprintf(path, sizeof path, "%s/sub/top.yaml", dir);
    c = config_load(path, NULL, 0, &errs);
    ok(c && strcmp(c->name, "top") == 0 && c->optimizer.lr == 0.5, "a file over what it extends");
    snprintf(want, sizeof want, "%s/sub/../m.lua", dir);
    ok(c && strcmp(c->model.script, want) == 0, "paths stand against the file they are written in");
    ok(c && c->model.args->n == 3 && c->optimizer.beta1 == 0.3, "maps merge, lists are replaced");
    ok(c && !c->train.has_epochs && c->train.steps == 9, "the other of an exclusive pair goes");
    ok(c && !c->data.valid, "null removes");
    ok(c && strstr(config_notes(c), "replaces train.epochs"), "and a note says so");
    config_free(c);
    snprintf(path, sizeof path, "%s/loop.yaml", dir);
    config_free(config_load(path, NULL, 0, &errs));
    ok(said("loop.yaml:1:10: extends: ") && said("extends itself"), "a circle");
    err_list_release(&errs);
    snprintf(path, sizeof path, "%s/gone.yaml", dir);
    config_free(config_load(path, NULL, 0, &errs));
    ok(said("gone.yaml:1:10: extends: ") && said("nothing.yaml: No such file"),
       "a base that is gone");
    err_list_release(&errs);
    config_free(config_load(dir, NULL, 0, &errs));
    ok(said("is a folder"), "a folder: %s", errs.n ? errs.err[0].msg : "");
    err_list_release(&errs);
    snprintf(path, sizeof path, "rm -r %s", dir);
    ok(system(path) == 0, "cleaned up");
}

static void ships(void)
{
    static const char *const files[] = {"configs/digits.yaml", "configs/breast-cancer.yaml",
                                        "configs/penguins.yaml"};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct config *c;
        err_list_release(&errs);
        c = config_load(files[i], NULL, 0, &errs);
        ok(c && same_dump(c), "%s loads, and round-trips", files[i]);
        config_free(c);
    }
}

int main(void)
{
    /* case 8: a decimal comma in the user's locale must not matter; where it is not installed this
     * stays C */
    note("locale: %s",
         setlocale(LC_ALL, "de_DE.UTF-8") ? "de_DE.UTF-8" : "C (de_DE.UTF-8 is not installed)");
    values();
    numbers();
    mistakes();
    missing_and_cross();
    overrides();
    ten_faults();
    hostile();
    round_trip();
    the_table();
    extends();
    ships();
    err_list_release(&errs);
    return tap_done();
}
