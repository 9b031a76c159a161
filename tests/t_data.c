/* A CSV file and a config become the right numbers, or an error that says where and what to do. */
#include "engine/base/alloc.h"
#include "engine/base/str.h"
#include "engine/data/data.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

static char dir[64], train_path[96], valid_path[96];

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    fputs(text, f);
    fclose(f);
}

/* A config as the loader would fill it: everything else at its default. */
static struct config config_for(const char *target, const char *normalize, const char *missing)
{
    struct config c = {.seed = 42};

    c.data.format = "csv";
    c.data.train = train_path;
    c.data.target = (char *)target;
    c.data.delimiter = "auto";
    c.data.header = "auto";
    c.data.normalize = (char *)normalize;
    c.data.missing = (char *)missing;
    return c;
}

static struct data d;
static struct err e;

static int opens(const struct config *c)
{
    enum err_code rc;

    data_release(&d);
    e.msg[0] = '\0';
    rc = data_open(c, &d, &e);
    if (rc != ERR_OK)
        note("%s", e.msg);
    return rc == ERR_OK;
}

static int opens_text(const char *text, const char *target, const char *normalize,
                      const char *missing)
{
    struct config c = config_for(target, normalize, missing);

    write_file(train_path, text);
    return opens(&c);
}

/* The config is refused with ERR_DATA (or `code`) and a message that says this. */
static int refuses(const struct config *c, enum err_code code, const char *says)
{
    enum err_code rc;

    data_release(&d);
    rc = data_open(c, &d, &e);
    if (rc == code && strstr(e.msg, says) && !d.train && !d.valid)
        return 1;
    note("code %d: %s", rc, rc ? e.msg : "it was opened");
    return 0;
}

static int refuses_text(const char *text, const char *target, const char *missing, const char *says)
{
    struct config c = config_for(target, "none", missing);

    write_file(train_path, text);
    return refuses(&c, ERR_DATA, says);
}

static int refuses_valid(const char *train, const char *valid, const char *says)
{
    struct config c = config_for("y", "none", "error");

    c.data.valid = valid_path;
    write_file(train_path, train);
    write_file(valid_path, valid);
    return refuses(&c, ERR_DATA, says);
}

/* All samples of a field as f32 are these. */
static int holds(const struct data_set *s, int field, const float *want, int n)
{
    float got[256];
    int64_t ids[256];
    struct data_want w = {field, DT_F32};

    for (int64_t i = 0; i < data_count(s); i++)
        ids[i] = i;
    if (data_gather(s, &w, ids, data_count(s), got, &e) != ERR_OK)
        return 0;
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * fmaxf(1, fabsf(want[i])))) {
            note("[%d] is %g, want %g", i, (double)got[i], (double)want[i]);
            return 0;
        }
    return 1;
}

static int holds_ids(const struct data_set *s, int field, const int32_t *want, int n)
{
    int32_t got[256];
    int64_t ids[256];
    struct data_want w = {field, DT_I32};

    for (int64_t i = 0; i < data_count(s); i++)
        ids[i] = i;
    return data_gather(s, &w, ids, data_count(s), got, &e) == ERR_OK &&
           memcmp(got, want, (size_t)n * sizeof *want) == 0;
}

static const struct data_field *field(const struct data_set *s, int i)
{
    const struct data_field *f;

    return i < data_fields(s, &f) ? &f[i] : NULL;
}

static int notes_say(const char *what)
{
    for (int i = 0; i < d.notes.n; i++)
        if (strstr(d.notes.err[i].msg, what))
            return 1;
    for (int i = 0; i < d.notes.n; i++)
        note("%s", d.notes.err[i].msg);
    return 0;
}

static void test_plain(void)
{
    static const float x[] = {1, 2, 3, 4, 5, 6}, y[] = {10, 20, 30};
    static const int32_t ids[] = {10, 20, 30};
    const struct data_field *f;
    struct config c;
    float one;

    ok(opens_text("a,b,y\n1,2,10\n3,4,20\n5,6,30\n", "y", "none", "error"), "a small table opens");
    ok(data_count(d.train) == 3 && !d.valid, "3 samples, no validation set");
    f = field(d.train, 0);
    ok(strcmp(f->name, "x") == 0 && f->rank == 1 && f->dim[0] == 2 && !f->is_target && f->can_f32,
       "x is f32 [2]");
    f = field(d.train, 1);
    ok(strcmp(f->name, "y") == 0 && f->rank == 0 && f->is_target && f->can_f32 && f->can_i32 &&
           f->n_classes == 0 && !field(d.train, 2),
       "y is a number, or a class id");
    ok(holds(d.train, 0, x, 6) && holds(d.train, 1, y, 3) && holds_ids(d.train, 1, ids, 3),
       "the values are the file's");
    ok(data_gather(d.train, &(struct data_want){0, DT_F32}, &(int64_t){3}, 1, &one, &e) ==
               ERR_INTERNAL &&
           data_gather(d.train, &(struct data_want){0, DT_F32}, &(int64_t){-1}, 1, &one, &e) ==
               ERR_INTERNAL &&
           data_gather(d.train, &(struct data_want){2, DT_F32}, &(int64_t){0}, 1, &one, &e) ==
               ERR_INTERNAL &&
           data_gather(d.train, &(struct data_want){0, DT_U8}, &(int64_t){0}, 1, &one, &e) ==
               ERR_INTERNAL,
       "samples, fields and types that do not exist are refused");
    c = config_for("1", "none", "error");
    ok(opens(&c) && holds(d.train, 1, (const float[]){1, 3, 5}, 3) &&
           field(d.train, 0)->dim[0] == 2,
       "the target by number");
    c = config_for(NULL, "none", "error");
    ok(opens(&c) && field(d.train, 0)->dim[0] == 3 && !field(d.train, 1),
       "no target: all columns are inputs");
    ok(opens_text("1;2\n3;4\n", "2", "none", "error") &&
           holds(d.train, 1, (const float[]){2, 4}, 2),
       "no header, other delimiter");
    ok(opens_text("a,b,y\n1,2,0.5\n", "y", "none", "error") && !field(d.train, 1)->can_i32 &&
           field(d.train, 1)->can_f32,
       "a target with a fraction is no class id");
}

static void test_targets(void)
{
    const struct data_field *f;
    struct config c;
    int32_t got;

    ok(opens_text("a,y\n1,virginica\n2,setosa\n3,versicolor\n4,setosa\n", "y", "none", "error"),
       "a text target");
    f = field(d.train, 1);
    ok(f->n_classes == 3 && strcmp(f->classes[0], "setosa") == 0 &&
           strcmp(f->classes[1], "versicolor") == 0 && strcmp(f->classes[2], "virginica") == 0 &&
           f->can_i32 && !f->can_f32,
       "its names are sorted");
    ok(holds_ids(d.train, 1, (const int32_t[]){2, 0, 1, 0}, 4), "and are the ids");
    ok(data_gather(d.train, &(struct data_want){1, DT_F32}, &(int64_t){0}, 1, &got, &e) ==
               ERR_DATA &&
           strstr(e.msg, "is text (3 classes)"),
       "it is no number");
    ok(data_check_classes(d.train, 1, 3, &e) == ERR_OK &&
           data_check_classes(d.train, 1, 2, &e) == ERR_DATA &&
           strstr(e.msg, "has 3 classes, the model has 2"),
       "a model with fewer classes is refused");
    ok(opens_text("a,y\n1,1\n2,2\n3,b\n4,a\n", "y", "none", "error") &&
           field(d.train, 1)->n_classes == 4 &&
           holds_ids(d.train, 1, (const int32_t[]){0, 1, 3, 2}, 4),
       "whole numbers and text mixed are text, from the first row on");
    ok(refuses_text("a,y\n1,1.5\n2,2.5\n3,3.x\n", "y", "error",
                    ":4: column 'y': '3.x' is not a number"),
       "after a fraction a text is a mistake");
    ok(opens_text("a,y\n1,\"say \"\"a\"\"\"\n2,\"x, y\"\n", "y", "none", "error") &&
           strcmp(field(d.train, 1)->classes[0], "say \"a\"") == 0,
       "names with quotes and delimiters");
    ok(opens_text("a,y\n1,\"NA\"\n2,b\n", "y", "none", "error") == 0,
       "NA alone is missing even in quotes when numbers are expected");
    ok(opens_text("a,y\n1,b\n2,\"NA\"\n", "y", "none", "error") &&
           field(d.train, 1)->n_classes == 2,
       "in a text target a quoted NA is a name");
    write_file(train_path, "a,y\n1,1\n2,2\n3,10\n");
    c = config_for("y", "none", "error");
    c.data.label_base = 1;
    ok(opens(&c) && holds_ids(d.train, 1, (const int32_t[]){0, 1, 9}, 3) &&
           holds(d.train, 1, (const float[]){1, 2, 10}, 3),
       "label_base moves ids, not numbers");
    ok(data_check_classes(d.train, 1, 10, &e) == ERR_OK, "1 .. 10 from 1 are ten classes");
    ok(data_check_classes(d.train, 1, 9, &e) == ERR_DATA &&
           strstr(e.msg, "label 10 at sample 2, classes are 1..9"),
       "but not nine");
    c.data.label_base = 0;
    ok(opens(&c) && data_check_classes(d.train, 1, 10, &e) == ERR_DATA &&
           strstr(e.msg, "t.csv:4: 'y': label 10 at sample 2, classes are 0..9; is the file "
                         "1-based? set data.label_base: 1"),
       "labels from 1: sample, line and what to do");
    note("%s", e.msg);
    ok(opens_text("a,y\n1,0\n2,-1\n", "y", "none", "error") &&
           data_check_classes(d.train, 1, 10, &e) == ERR_DATA && strstr(e.msg, "label -1") &&
           !strstr(e.msg, "1-based"),
       "a negative label is another mistake");
    ok(opens_text("a,y\n1,0\n2,1.5\n", "y", "none", "error") &&
           data_check_classes(d.train, 1, 3, &e) == ERR_DATA &&
           strstr(e.msg, ":3: 'y': 1.5 at sample 1 is no class id"),
       "a fraction is no class");
    ok(opens_text("a,y\n1,0\n2,3000000000\n", "y", "none", "error") &&
           data_check_classes(d.train, 1, 3, &e) == ERR_DATA && !field(d.train, 1)->can_i32,
       "nor is what 32 bits do not hold");
}

static void test_columns(void)
{
    struct cfg_node a = {.kind = CFG_STRING, .s = "a"}, three = {.kind = CFG_INT, .i = 3},
                    y = {.kind = CFG_STRING, .s = "y"}, nope = {.kind = CFG_STRING, .s = "lenght"};
    struct cfg_node *left_items[] = {&three, &a}, *both[2];
    struct cfg_node left = {.kind = CFG_LIST, .n = 2, .item = left_items},
                    inputs = {.kind = CFG_MAP, .n = 2, .item = both};
    const char *names[] = {"left", "right"};
    char *ignore[] = {"b", NULL}, *typo[] = {"bb", NULL}, *target[] = {"y", NULL};
    struct config c = config_for("y", "none", "error");

    both[0] = &left;
    both[1] = &a;
    inputs.key = names;
    write_file(train_path, "a,b,length,y\n1,2,3,0\n4,5,6,1\n");
    c.data.inputs = &inputs;
    ok(opens(&c) && strcmp(field(d.train, 0)->name, "left") == 0 &&
           strcmp(field(d.train, 1)->name, "right") == 0 && field(d.train, 2)->is_target,
       "inputs by name");
    ok(holds(d.train, 0, (const float[]){3, 1, 6, 4}, 4) &&
           holds(d.train, 1, (const float[]){1, 4}, 2),
       "in the order asked for, by name or number, one or a list");
    both[1] = &nope;
    ok(refuses(&c, ERR_DATA, "data.inputs.right: no column 'lenght'; did you mean 'length'?"),
       "a mistyped column");
    both[1] = &y;
    ok(refuses(&c, ERR_DATA, "'y' is the target"), "the target is no input");
    left_items[1] = &three;
    ok(refuses(&c, ERR_DATA, "stands there twice"), "a column twice in a field");
    left_items[1] = &a;
    names[1] = "y";
    ok(refuses(&c, ERR_CONFIG, "y is the name of the target"), "a field named y");
    c.data.inputs = NULL;
    c.data.ignore = ignore;
    ok(opens(&c) && holds(d.train, 0, (const float[]){1, 3, 4, 6}, 4),
       "ignored columns are left out");
    c.data.ignore = typo;
    ok(refuses(&c, ERR_DATA, "data.ignore: no column 'bb'"), "a mistyped one");
    c.data.ignore = target;
    ok(refuses(&c, ERR_DATA, "data.ignore: 'y' is the target"), "the target cannot be ignored");
    c = config_for("lenth", "none", "error");
    ok(refuses(&c, ERR_DATA, "data.target: no column 'lenth'; did you mean 'length'?"),
       "a mistyped target");
    c = config_for("9", "none", "error");
    ok(refuses(&c, ERR_DATA, "data.target: no column '9'"), "a number too large");
    ok(refuses_text("1,2\n3,4\n", "y", "error", "the file has no header, give a number 1 .. 2"),
       "a name for a file without names");
    ok(refuses_text("a,b,a\n1,2,3\n", "b", "error", "columns 1 and 3 are both named 'a'"),
       "a name twice");
    ok(refuses_text("y\n1\n", "y", "error", "no input column"), "nothing but a target");
}

static void test_faults(void)
{
    struct config c = config_for("y", "none", "error");

    unlink(train_path);
    ok(refuses(&c, ERR_DATA, "t.csv: "), "a missing file is a fault of the data");
    ok(refuses_text("", "y", "error", "t.csv: the file is empty") &&
           refuses_text("\n\n", "y", "error", "empty"),
       "an empty file");
    ok(refuses_text("a,y\n", "y", "error", "a header and no rows"), "a header alone");
    ok(refuses_text("a,y\n1,2\n3\n", "y", "error", ":3: 1 column, but the header has 2"),
       "a ragged row");
    ok(refuses_text("a,b,y\n1,x,2\n", "y", "error", ":2: column 'b': 'x' is not a number"),
       "text in an input column");
    ok(refuses_text("a;b;y\n1;2;3\n1,5;2;3\n", "y", "error",
                    ":3: column 'a': '1,5' has a decimal comma"),
       "a decimal comma in an input");
    ok(refuses_text("a;y\n1;1,5\n2;2,5\n", "y", "error",
                    ":2: column 'y': '1,5' has a decimal comma"),
       "and in the target");
    ok(refuses_text("a,y\n1,2\na,y\n3,4\n", "y", "error",
                    ":3: column 'a': 'a' is the column's own name"),
       "the header again in the middle");
    ok(refuses_text("a,y\n1e39,2\n", "y", "error", "too large for f32") &&
           refuses_text("a,y\n1,1e39\n", "y", "error", "too large"),
       "numbers f32 does not hold");
    ok(refuses_text("a,y\n1e999,2\n", "y", "error", "'1e999' is not a number") &&
           refuses_text("a,y\n1,2\ninf,2\n", "y", "error", "'inf'"),
       "and no numbers at all");
    ok(refuses_text("a,y\n1,2\n\x1b[2J,2\n", "y", "error", "'\\x1b[2J'"),
       "what is shown cannot harm a terminal");
    c.data.delimiter = "ab";
    ok(refuses(&c, ERR_CONFIG, "data.delimiter"), "a delimiter of two characters");
    c.data.delimiter = "auto";
    c.data.normalize = "zscore";
    ok(refuses(&c, ERR_CONFIG, "data.normalize: 'zscore'"), "an unknown normalisation");
}

static void test_missing(void)
{
    static const char *const text = "a,b,y\n1,10,0\n,20,1\n3,NA,0\n5,60,1\n";
    struct config c;

    ok(refuses_text(text, "y", "error",
                    ":3: column 'a' is empty; data.missing: mean, zero or drop"),
       "error: an empty cell");
    ok(refuses_text("a,y\n1,2\n?,3\n", "y", "error", "is missing ('?')"), "error: a word for it");
    ok(opens_text(text, "y", "none", "mean") &&
           holds(d.train, 0, (const float[]){1, 10, 3, 20, 3, 30, 5, 60}, 8),
       "mean: of the values there are");
    ok(notes_say("2 missing cells filled with the mean of the training set, the first at line 3"),
       "and it is said");
    ok(opens_text(text, "y", "none", "zero") &&
           holds(d.train, 0, (const float[]){1, 10, 0, 20, 3, 0, 5, 60}, 8),
       "zero");
    ok(opens_text(text, "y", "minmax", "zero") &&
           holds(d.train, 0, (const float[]){0.2f, 1.f / 6, 0, 1.f / 3, 0.6f, 0, 1, 1}, 8),
       "zero comes before normalisation");
    ok(opens_text(text, "y", "none", "drop") && data_count(d.train) == 2 &&
           holds(d.train, 0, (const float[]){1, 10, 5, 60}, 4),
       "drop");
    ok(notes_say("2 rows with missing cells dropped, the first at line 3"), "and it is said");
    ok(refuses_text("a,y\n,1\nNA,2\n", "y", "drop", "all 2 rows have missing cells"),
       "drop: nothing is left");
    ok(refuses_text("a,b,y\n1,,1\n2,,2\n", "y", "mean", "column 'b' has no value"),
       "mean of nothing");
    ok(refuses_text("a,y\n1,2\n2,\n", "y", "mean", "the target 'y' is empty; data.missing: drop"),
       "a target cannot be made up");
    ok(opens_text("a,y\n1,2\n2,\n3,4\n", "y", "none", "drop") &&
           holds(d.train, 1, (const float[]){2, 4}, 2),
       "but its row dropped");
    write_file(train_path, "a,y\n1,2\n2,3\n3,4\n");
    write_file(valid_path, "a,y\n,2\n9,3\n");
    c = config_for("y", "none", "mean");
    c.data.valid = valid_path;
    ok(opens(&c) && holds(d.valid, 0, (const float[]){2, 9}, 2),
       "a validation cell gets the training mean");
    write_file(train_path, "a,y\n1,1\n2,2\n,3\n4,4\n5,5\n,6\n7,7\n,8\n9,9\n10,10\n");
    c = config_for("y", "none", "mean");
    c.data.split = 0.5;
    ok(opens(&c) && data_check_finite(d.train, &e) == ERR_OK &&
           data_check_finite(d.valid, &e) == ERR_OK,
       "with a split no hole is left in either set");
}

static void test_normalize(void)
{
    static const char *const text =
        "a,b,c,y\n1,7,1000000001,1\n2,7,1000000002,2\n3,7,1000000003,3\n4,7,1000000004,4\n";
    const float s = 1.f / sqrtf(1.25f);
    struct config c;

    ok(opens_text(text, "y", "standard", "error"), "opens");
    ok(holds(d.train, 0,
             (const float[]){-1.5f * s, 0, -1.5f * s, -.5f * s, 0, -.5f * s, .5f * s, 0, .5f * s,
                             1.5f * s, 0, 1.5f * s},
             12),
       "standard: deviation over n, a constant column is 0, large near-equal numbers keep their "
       "digits");
    ok(holds(d.train, 1, (const float[]){1, 2, 3, 4}, 4), "the target is not normalised");
    ok(notes_say("1 column has the same value in every training sample: b"),
       "constant columns are named");
    ok(field(d.train, 0)->can_i32 == false, "1000000001 is more than f32 keeps whole");
    ok(opens_text(text, "y", "minmax", "error") &&
           holds(d.train, 0,
                 (const float[]){0, 0, 0, 1.f / 3, 0, 1.f / 3, 2.f / 3, 0, 2.f / 3, 1, 0, 1}, 12),
       "minmax");
    ok(opens_text(text, "y", "none", "error") &&
           holds(d.train, 0, (const float[]){1, 7, 1000000001.f, 2, 7, 1000000002.f}, 6),
       "none");
    write_file(train_path, "a,y\n0,1\n10,2\n");
    write_file(valid_path, "a,y\n20,1\n5,2\n");
    c = config_for("y", "minmax", "error");
    c.data.valid = valid_path;
    ok(opens(&c) && holds(d.valid, 0, (const float[]){2, 0.5f}, 2),
       "the validation set by the training set's numbers");
    ok(holds_ids(d.valid, 0, (const int32_t[]){20, 5}, 2),
       "asked for as ids an input is what stood in the file");
    write_file(train_path, "a,y\n1,1\n1.0000000000000000000000000001e-30,2\n2e-30,3\n");
    write_file(valid_path, "a,y\n1e38,1\n");
    write_file(train_path, "a,y\n1e-30,1\n2e-30,2\n");
    ok(opens(&c) && data_check_finite(d.train, &e) == ERR_OK &&
           data_check_finite(d.valid, &e) == ERR_DATA &&
           strstr(e.msg, "v.csv:2: column 'a': not finite after normalisation"),
       "what normalisation blows up is found");
}

static void test_valid(void)
{
    struct config c = config_for("y", "none", "error");
    char *ignore[] = {"id", NULL};

    c.data.valid = valid_path;
    write_file(train_path, "a,b,y\n1,2,p\n3,4,q\n");
    write_file(valid_path, "y,b,a\nq,20,10\n");
    ok(opens(&c) && holds(d.valid, 0, (const float[]){10, 20}, 2) &&
           holds_ids(d.valid, 1, (const int32_t[]){1}, 1),
       "columns are matched by name");
    ok(field(d.valid, 1)->n_classes == 2, "and have the training set's classes");
    write_file(valid_path, "y;b;a\nq;20;10\n");
    ok(opens(&c), "whatever delimiter the other file has");
    write_file(valid_path, "id,y,b,a\n7,q,20,10\n");
    c.data.ignore = NULL;
    ok(refuses(&c, ERR_DATA, "column 'id' is not in the training file"), "a column too many");
    write_file(train_path, "id,a,b,y\n7,1,2,p\n8,3,4,q\n");
    c.data.ignore = ignore;
    ok(opens(&c) && holds(d.valid, 0, (const float[]){10, 20}, 2), "unless it is ignored");
    ok(refuses_valid("a,b,y\n1,2,0\n", "a,c,y\n1,2,0\n",
                     "v.csv: column 'b' of the training file is missing; 'c' is only here"),
       "another name: both are told");
    ok(refuses_valid("a,b,y\n1,2,0\n", "a,y\n1,0\n", "column 'b' of the training file is missing"),
       "a column too few");
    ok(refuses_valid("a,b,y\n1,2,0\n", "a,b\n1,0\n", "column 'y' of the training file is missing"),
       "no target");
    ok(refuses_valid("a,b,y\n1,2,0\n", "1,2\n", "v.csv: 2 columns, the training file has 3"),
       "without a header by number: both counts");
    ok(refuses_valid("a,y\n1,setosa\n2,virginica\n", "a,y\n1,setosa\n2,virginca\n",
                     ":3: column 'y': class 'virginca' is not in the training set; did you mean "
                     "'virginica'?"),
       "a class nobody has trained");
    ok(refuses_valid("a,y\n1,1\n", "a,y\n1,x\n", "v.csv:2: column 'y': 'x' is not a number"),
       "text for a number");
    write_file(train_path, "a,y\n1,1\n2,2\n");
    write_file(valid_path, "3,1.5\n");
    c.data.ignore = NULL;
    ok(opens(&c) && holds(d.valid, 0, (const float[]){3}, 1), "a headerless file by number");
    ok(!field(d.train, 1)->can_i32 && data_check_classes(d.train, 1, 9, &e) == ERR_OK &&
           data_check_classes(d.valid, 1, 9, &e) == ERR_DATA,
       "whole targets must be whole in both");
    c.data.valid = train_path;
    ok(opens(&c) && notes_say("trained and validated on the same file"),
       "the same file twice is said");
}

static int same_values(const struct data_set *a, const struct data_set *b)
{
    char ha[65], hb[65];

    data_fingerprint(a, ha);
    data_fingerprint(b, hb);
    return strcmp(ha, hb) == 0;
}

static void test_split(void)
{
    struct str text = {0};
    struct config c = config_for("y", "none", "error");
    char seen[100] = {0}, first[65], again[65];
    int twice = 0, rising = 1;
    float v, last = -1;

    str_add(&text, "a,y\n");
    for (int i = 0; i < 99; i++)
        str_addf(&text, "%d,%d\n", i, i % 3);
    write_file(train_path, text.s);
    c.data.split = 0.25;
    ok(opens(&c) && data_count(d.valid) == 25 && data_count(d.train) == 74,
       "exactly round(n * split)");
    for (int s = 0; s < 2; s++) {
        const struct data_set *set = s ? d.valid : d.train;
        last = -1;
        for (int64_t i = 0; i < data_count(set); i++) {
            data_gather(set, &(struct data_want){0, DT_F32}, &i, 1, &v, &e);
            twice += seen[(int)v]++;
            rising &= v > last;
            last = v;
        }
    }
    ok(twice == 0 && memchr(seen, 0, 99) == NULL, "each sample is in one of the two");
    ok(rising, "in the file's order");
    data_fingerprint(d.valid, first);
    ok(opens(&c), "again");
    data_fingerprint(d.valid, again);
    ok(strcmp(first, again) == 0, "the same seed draws the same samples");
    c.seed = 43;
    opens(&c);
    data_fingerprint(d.valid, again);
    ok(strcmp(first, again) != 0, "another seed others");
    ok(!same_values(d.train, d.valid), "fingerprints tell sets apart");
    c.data.split = 0.001;
    ok(refuses(&c, ERR_DATA, "data.split: 0.001 of 99 rows is 0"), "a share that is no sample");
    c.data.split = 0.999;
    ok(refuses(&c, ERR_DATA, "leaves one of the two sets empty"), "or all of them");
    str_release(&text);
}

static void test_describe(void)
{
    struct str json = {0};
    json_t *j, *x, *y;

    opens_text("a,\"b \"\"q\"\"\",y\n1,2,p\n3,2,q\n", "y", "standard", "error");
    data_describe(&d, &json);
    j = json_loads(str_c(&json), 0, NULL);
    ok(j && json_integer_value(json_object_get(j, "version")) == 1 &&
           json_integer_value(json_object_get(json_object_get(j, "train"), "count")) == 2,
       "data.json is JSON with a version and counts");
    x = json_array_get(json_object_get(j, "fields"), 0);
    y = json_array_get(json_object_get(j, "fields"), 1);
    ok(strcmp(json_string_value(json_array_get(json_object_get(x, "columns"), 1)), "b \"q\"") ==
               0 &&
           json_number_value(json_array_get(json_object_get(x, "mean"), 0)) == 2 &&
           json_number_value(json_array_get(json_object_get(x, "deviation"), 1)) == 0 &&
           json_number_value(json_array_get(json_object_get(x, "scale"), 1)) == 1,
       "columns, mean, deviation, and the scale a constant column gets");
    ok(strcmp(json_string_value(json_array_get(json_object_get(y, "classes"), 1)), "q") == 0 &&
           json_is_true(json_object_get(y, "target")),
       "class names");
    json_decref(j);
    str_release(&json);
}

/* Every allocation of an open fails in its turn: an error each time, and nothing lost. */
static void test_no_memory(void)
{
    struct config c = config_for("y", "standard", "mean");
    int refused = 0, n = 1;

    c.data.split = 0.4;
    write_file(train_path, "a,b,y\n1,,p\n3,2,q\n5,6,p\n7,8,q\n9,9,r\n");
    data_release(&d);
    for (; n < 500; n++) {
        enum err_code rc;
        mem_fail_nth(n);
        rc = data_open(&c, &d, &e);
        mem_fail_nth(0);
        if (rc == ERR_OK)
            break;
        refused += rc == ERR_NOMEM || rc == ERR_IO || rc == ERR_DATA;
    }
    ok(n > 10 && n < 500 && refused == n - 1, "each of %d allocations failing is an error", n - 1);
}

static void test_shipped(void)
{
    struct config c = config_for("label", "standard", "error");

    c.data.train = "configs/data/digits-train.csv";
    c.data.valid = "configs/data/digits-valid.csv";
    ok(opens(&c) && data_count(d.train) == 1437 && data_count(d.valid) == 360 &&
           field(d.train, 0)->dim[0] == 64 && data_check_classes(d.train, 1, 10, &e) == ERR_OK &&
           data_check_classes(d.valid, 1, 10, &e) == ERR_OK &&
           data_check_finite(d.train, &e) == ERR_OK && data_check_finite(d.valid, &e) == ERR_OK,
       "the shipped digits");
    c = config_for("diagnosis", "standard", "error");
    c.data.train = "configs/data/breast-cancer.csv";
    c.data.split = 0.2;
    ok(opens(&c) && data_count(d.train) == 455 && data_count(d.valid) == 114 &&
           field(d.train, 1)->n_classes == 2 && field(d.train, 0)->dim[0] == 30,
       "the shipped breast cancer set");
    c = config_for("body_mass_kg", "standard", "drop");
    c.data.train = "configs/data/penguins.csv";
    c.data.ignore = (char *[]){"species", "island", "sex", "year", NULL};
    c.data.split = 0.2;
    ok(opens(&c) && data_count(d.train) + data_count(d.valid) == 342 &&
           field(d.train, 0)->dim[0] == 3 && field(d.train, 1)->can_f32 &&
           notes_say("2 rows with missing cells dropped"),
       "the shipped penguins");
    c = config_for("species", "standard", "drop");
    c.data.train = "configs/data/penguins.csv";
    c.data.ignore = (char *[]){"island", "sex", NULL};
    ok(opens(&c) && field(d.train, 1)->n_classes == 3 &&
           strcmp(field(d.train, 1)->classes[0], "Adelie") == 0,
       "and their species");
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(dir, sizeof dir, "%.40s/t_data.XXXXXX",
             tmp && *tmp && strlen(tmp) <= 40 ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    snprintf(train_path, sizeof train_path, "%s/t.csv", dir);
    snprintf(valid_path, sizeof valid_path, "%s/v.csv", dir);
    test_plain();
    test_targets();
    test_columns();
    test_faults();
    test_missing();
    test_normalize();
    test_valid();
    test_split();
    test_describe();
    test_no_memory();
    test_shipped();
    data_release(&d);
    unlink(train_path);
    unlink(valid_path);
    rmdir(dir);
    return tap_done();
}
