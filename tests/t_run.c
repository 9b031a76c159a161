/* Run directories: made by many at once, locked, written to, read by strangers, found again. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "engine/run/rundir.h"
#include "engine/run/runs.h"
#include "engine/run/state.h"
#include "tap.h"
#include "tmp_dir.h"

enum { RACERS = 30 };

static int create_and_tell(const char *runs, int fd)
{
    struct rundir *r;
    struct err e;

    if (rundir_create(runs, "race", &r, &e) != ERR_OK)
        return 1;
    dprintf(fd, "%s\n", r->name);
    rundir_free(r);
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void test_race(const char *dir)
{
    char *runs = at(dir, "race/deep"), name[RACERS][160];
    int pipes[2], failed = 0, n = 0, twice = 0, status;
    FILE *f;

    if (pipe(pipes) < 0)
        return;
    for (int i = 0; i < RACERS; i++)
        if (fork() == 0)
            _exit(create_and_tell(runs, pipes[1]));
    close(pipes[1]);
    while (wait(&status) > 0)
        failed += status != 0;
    f = fdopen(pipes[0], "r");
    while (f && n < RACERS && fgets(name[n], sizeof name[0], f))
        n++;
    if (f)
        fclose(f);
    qsort(name, (size_t)n, sizeof name[0], by_text);
    for (int i = 1; i < n; i++)
        twice += strcmp(name[i], name[i - 1]) == 0;
    ok(failed == 0 && n == RACERS, "%d processes at once: all get a run directory", RACERS);
    ok(twice == 0, "no two of them get the same one");
}

static void test_names(const char *dir)
{
    struct rundir *r = NULL;
    struct err e;
    char longer[300], *runs = at(dir, "names");

    rundir_create(runs, "../a b/\xc3\xa9.x_y-Z", &r, &e);
    ok(r && strcmp(r->name + 16, "-.-a-b---.x_y-Z") == 0, "what is unfit becomes '-'");
    ok(r && strncmp(r->path, runs, strlen(runs)) == 0, "the run lies inside its folder");
    ok(r && fs_exists(at(r->path, "lock")) && fs_exists(at(r->path, "checkpoints")) &&
           fs_exists(at(r->path, "metrics.jsonl")) && fs_exists(at(r->path, "journal.jsonl")) &&
           fs_exists(at(r->path, "log.txt")),
       "its files are there");
    rundir_free(r);
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    rundir_create(runs, longer, &r, &e);
    ok(r && strlen(r->name) <= 16 + 80, "a name is at most 80 bytes");
    rundir_free(r);
    rundir_create(runs, "", &r, &e);
    ok(r && strcmp(r->name + 15, "--") == 0, "an empty name is one too");
    rundir_free(r);
    put_text(at(dir, "plain"), "x");
    ok(rundir_create(at(dir, "plain"), "a", &r, &e) == ERR_IO && !r && strstr(e.msg, "plain"),
       "a file where the runs should lie is an error that names it");
    rundir_free(NULL);
}

static void set_state(const char *path, const char *state)
{
    struct run_state s;

    run_state_init(&s);
    snprintf(s.state, sizeof s.state, "%s", state);
    run_state_write(path, &s, NULL);
}

/* The owner: holds the lock until it is told to end. */
static pid_t start_owner(const char *runs, char *path, size_t cap, int *hold)
{
    int told[2], wait_for[2];
    ssize_t n;
    pid_t pid;

    if (pipe(told) < 0 || pipe(wait_for) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        struct rundir *r = NULL;
        char c;

        close(wait_for[1]);
        rundir_create(runs, "owner", &r, NULL);
        if (!r)
            _exit(1);
        set_state(r->path, "running");
        dprintf(told[1], "%s", r->path);
        close(told[1]);
        while (read(wait_for[0], &c, 1) > 0)
            ;
        _exit(0); /* without giving anything back */
    }
    close(told[1]);
    close(wait_for[0]);
    n = read(told[0], path, cap - 1);
    path[n > 0 ? n : 0] = 0;
    close(told[0]);
    *hold = wait_for[1];
    return pid;
}

static void test_lock(const char *dir)
{
    char path[1024];
    struct run_state s;
    struct err e;
    int hold = -1;
    pid_t pid = start_owner(at(dir, "locked"), path, sizeof path, &hold);

    ok(run_state_read(path, &s, &e) == ERR_OK && strcmp(s.state, "running") == 0 && s.pid == pid,
       "a run whose lock another process holds is running");
    ok(s.start_time > 0 && s.boot_id[0] && s.host[0] && s.started > 1e9, "its owner is described");
    close(hold);
    waitpid(pid, NULL, 0);
    ok(run_state_read(path, &s, &e) == ERR_OK && strcmp(s.state, "crashed") == 0 && s.reason[0],
       "once that process is gone it is crashed");
    set_state(path, "done");
    ok(run_state_read(path, &s, &e) == ERR_OK && strcmp(s.state, "done") == 0,
       "a run that ended is not crashed");
}

static void test_rows(const char *dir)
{
    struct metric m[] = {{"train.loss", 0.1}, {"a\"b", NAN}, {"x", -INFINITY}};
    struct rundir *r = NULL;
    struct err e;
    char who[300];

    rundir_create(at(dir, "rows"), "r", &r, &e);
    ok(rundir_metrics(r, 7, 0.5, 1.25, 2, m, 3, &e) == ERR_OK && r->lost == 0, "a row is written");
    ok(file_is(at(r->path, "metrics.jsonl"),
               "{\"step\":7,\"epoch\":0.5,\"t\":1.25,\"seg\":2,\"train.loss\":0.1,"
               "\"a\\\"b\":\"nan\",\"x\":\"-inf\"}\n"),
       "as the format says");
    rundir_log(r, "one");
    rundir_log(r, "two");
    ok(file_is(at(r->path, "log.txt"), "one\ntwo\n"), "the log has a line for each call");
    ok(rundir_write(r, "config.yaml", "a: 1\n", 5, &e) == ERR_OK &&
           file_is(at(r->path, "config.yaml"), "a: 1\n"),
       "a file is written whole");
    ok(strchr(rundir_whoami(who, sizeof who), '@') != NULL, "whoami is user@host");
    rundir_free(r);
}

static void test_journal(const char *dir)
{
    struct rundir *r = NULL;
    struct str tail = {0};
    struct err e;
    char *text, *second;
    json_t *o;
    FILE *f;

    rundir_create(at(dir, "journal"), "j", &r, &e);
    rundir_journal(r, 0, 0, "start", "", "-", &e);
    rundir_journal(r, 5, 1.5, "set", "\"key\":\"lr\",\"to\":3e-4", "ana@lab3", &e);
    text = slurp(at(r->path, "journal.jsonl"), NULL);
    second = text ? strstr(text, "{\"seq\":2,") : NULL;
    o = second ? json_loads(second, 0, NULL) : NULL;
    ok(json_integer_value(json_object_get(o, "seq")) == 2 && r->seq == 3, "seq counts from 1");
    ok(json_integer_value(json_object_get(o, "step")) == 5 &&
           json_real_value(json_object_get(o, "to")) == 3e-4 &&
           !strcmp(json_string_value(json_object_get(o, "event")), "set") &&
           !strcmp(json_string_value(json_object_get(o, "by")), "ana@lab3") &&
           strlen(json_string_value(json_object_get(o, "wall"))) == 25,
       "a record is JSON with its members");
    json_decref(o);
    ok(journal_tail(r->path, 1, &tail, &e) == ERR_OK && second && !strcmp(str_c(&tail), second),
       "the tail of one record is the last");
    str_reset(&tail);
    ok(journal_tail(r->path, 9, &tail, &e) == ERR_OK && !strcmp(str_c(&tail), text),
       "a longer tail is all of them");
    f = fopen(at(r->path, "journal.jsonl"), "a");
    fputs("{\"seq\":3,\"tor", f);
    fclose(f);
    str_reset(&tail);
    ok(journal_tail(r->path, 9, &tail, &e) == ERR_OK && !strcmp(str_c(&tail), text),
       "a torn record is left out");
    mem_free(text);
    str_release(&tail);
    rundir_free(r);
}

static void test_long_journal(const char *dir)
{
    struct str tail = {0};
    FILE *f;
    struct err e;

    mkdir(at(dir, "long"), 0777);
    f = fopen(at(at(dir, "long"), "journal.jsonl"), "w");
    for (int i = 0; i < 30000; i++)
        fprintf(f, "{\"seq\":%05d,\"text\":\"0123456789012345678901234567890\"}\n", i);
    fclose(f);
    ok(journal_tail(at(dir, "long"), 1000000, &tail, &e) == ERR_OK && tail.len > 500000 &&
           strncmp(str_c(&tail), "{\"seq\":", 7) == 0,
       "the tail of a long journal begins with a whole record");
    ok(strstr(str_c(&tail), "{\"seq\":29999,") != NULL, "and ends with the last");
    str_release(&tail);
    ok(journal_tail(at(dir, "nothing"), 5, &tail, &e) == ERR_OK && tail.len == 0,
       "no journal is an empty one");
}

static void test_model_copy(const char *dir)
{
    const char *from[2], *as[2] = {"main.lua", "lib/net.lua"};
    static const char *const out[] = {"../x.lua", "/x.lua", "lib/../../x.lua", "..", "", "a/.."};
    struct rundir *r = NULL;
    struct str hashes = {0};
    struct err e;
    int refused = 0;
    json_t *l;

    from[0] = from[1] = at(dir, "abc.lua");
    put_text(from[0], "abc");
    rundir_create(at(dir, "model"), "m", &r, &e);
    ok(rundir_copy_model(r, from, as, 2, &hashes, &e) == ERR_OK &&
           file_is(at(r->path, "model/main.lua"), "abc") &&
           file_is(at(r->path, "model/lib/net.lua"), "abc"),
       "the model's files are copied, folders made");
    l = json_loads(str_c(&hashes), 0, NULL);
    ok(json_array_size(l) == 2 &&
           !strcmp(json_string_value(json_object_get(json_array_get(l, 1), "sha256")),
                   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
       "their hashes are listed");
    json_decref(l);
    for (int i = 0; i < 6; i++) {
        str_reset(&hashes);
        refused += rundir_copy_model(r, from, &out[i], 1, &hashes, &e) != ERR_OK;
    }
    ok(refused == 6 && !fs_exists(at(r->path, "x.lua")) && !fs_exists(at(dir, "x.lua")),
       "a path that leads out of model/ is refused");
    str_release(&hashes);
    rundir_free(r);
}

static enum err_code read_text(const char *dir, const char *text, struct run_state *s,
                               struct err *e)
{
    put_text(at(dir, "state.json"), text);
    return run_state_read(dir, s, e);
}

static void test_state_round_trip(const char *dir)
{
    struct run_state s, got;
    struct err e;
    char name[200];

    run_state_init(&s);
    snprintf(s.state, sizeof s.state, "failed");
    snprintf(s.reason, sizeof s.reason, "loss is \"nan\" \x1b[31m\n");
    s.step = 1LL << 53;
    s.steps = INT64_MAX;
    s.epoch = 0.1;
    s.t = 1e-300;
    s.exit_code = 4;
    s.has_best = true;
    s.best = (struct run_value){"valid.loss", 0.25};
    s.best_step = 9;
    run_state_value(&s, "loss", 1);
    run_state_value(&s, "loss", NAN);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    run_state_value(&s, name, 1);
    run_state_value(&s, name, 2);
    ok(s.n_last == 2 && s.last[1].value == 2, "a value is found again, however long its name");
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "m%d", i);
        run_state_value(&s, name, i);
    }
    ok(s.n_last == RUN_VALUES, "a full table drops new names");
    ok(run_state_write(dir, &s, &e) == ERR_OK && run_state_read(dir, &got, &e) == ERR_OK,
       "a state is written and read");
    ok(got.step == s.step && got.steps == s.steps && got.epoch == 0.1 && got.t == 1e-300 &&
           got.exit_code == 4 && !strcmp(got.reason, s.reason) && got.pid == s.pid &&
           got.start_time == s.start_time && got.started == s.started,
       "its fields come back");
    ok(got.n_last == RUN_VALUES && isnan(got.last[0].value) && got.last[2].value == 0 &&
           got.has_best && !strcmp(got.best.name, "valid.loss") && got.best.value == 0.25 &&
           got.best_step == 9,
       "its values and its best too");
}

static void test_state_bad(const char *dir)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "null",
                                      "{}",
                                      "{\"format\":0,\"state\":\"done\"}",
                                      "{\"format\":\"1\",\"state\":\"done\"}",
                                      "{\"format\":1}",
                                      "{\"format\":1,\"state\":7}",
                                      "{\"format\":1,\"state\":\"done\",\"state\":\"new\"}",
                                      "{\"format\":1,\"state\":\"done\"} x",
                                      "{\"format\":1,\"state\":\"\xff\"}"};
    struct run_state s;
    struct err e = {.msg = ""};
    char *huge = mem_alloc(1 << 17);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ok(read_text(dir, bad[i], &s, &e) == ERR_CORRUPT && strstr(e.msg, "state.json") &&
               s.state[0] == 0,
           "corrupt: case %zu", i);
    ok(read_text(dir, "{\"format\":2,\"state\":\"done\"}", &s, &e) == ERR_CORRUPT &&
           strstr(e.msg, "newer"),
       "a newer format is refused by name");
    memset(huge, ' ', 1 << 17);
    memcpy(huge + (1 << 17) - 32, "{\"format\":1,\"state\":\"done\"}", 28);
    huge[(1 << 17) - 4] = 0;
    ok(read_text(dir, huge, &s, &e) == ERR_CORRUPT && strstr(e.msg, "bytes"),
       "a huge one is not read");
    mem_free(huge);
    ok(read_text(dir,
                 "{\"format\":1,\"state\":\"a state whose name is too long\",\"step\":\"x\","
                 "\"last\":[1],\"best\":3,\"epoch\":{},\"host\":5}",
                 &s, &e) == ERR_OK &&
           strlen(s.state) == sizeof s.state - 1 && s.step == 0 && s.n_last == 0 && !s.has_best,
       "fields of a wrong type are left out, long ones cut");
    remove(at(dir, "state.json"));
    ok(run_state_read(dir, &s, &e) == ERR_IO, "none at all is ERR_IO");
}

static void make_run(const char *runs, const char *name, double started)
{
    char path[1024];
    struct run_state s;

    snprintf(path, sizeof path, "%s", at(runs, name));
    fs_mkdirs(path, NULL);
    run_state_init(&s);
    snprintf(s.state, sizeof s.state, "done");
    s.started = started;
    run_state_write(path, &s, NULL);
}

static int finds(const char *runs, const char *want, const char *name)
{
    char *path = NULL;
    int same = runs_find(runs, want, &path, NULL) == ERR_OK && !strcmp(path, at(runs, name));

    mem_free(path);
    return same;
}

static void test_list(const char *runs)
{
    struct run_list l;
    struct err e;
    char broken[1024], lock_only[1024];

    snprintf(broken, sizeof broken, "%s", at(runs, "20260103-000000-broken"));
    snprintf(lock_only, sizeof lock_only, "%s", at(runs, "20260104-000000-begun"));
    fs_mkdirs(broken, NULL);
    put_text(at(broken, "state.json"), "{");
    fs_mkdirs(lock_only, NULL);
    put_text(at(lock_only, "lock"), "");
    fs_mkdirs(at(runs, "no-run"), NULL);
    put_text(at(runs, "file"), "");
    ok(runs_list(runs, &l, &e) == ERR_OK && l.n == 5, "folders with a state or a lock are runs");
    ok(l.n == 5 && !strcmp(l.run[0].name, "20260101-000000-digits-mlp") && l.run[0].readable &&
           !strcmp(l.run[4].name, "20260104-000000-begun"),
       "oldest first");
    ok(l.n == 5 && !l.run[3].readable && strstr(l.run[3].why, "state.json") &&
           l.run[3].state.state[0] == 0,
       "one that cannot be read says why");
    run_list_release(&l);
    ok(runs_list(at(runs, "nowhere"), &l, &e) == ERR_OK && l.n == 0, "no folder: no runs");
    ok(runs_list(at(runs, "file"), &l, &e) == ERR_IO, "a file is no folder of runs");
    fs_remove_tree(broken, NULL);
    fs_remove_tree(lock_only, NULL);
}

static void test_find(const char *dir)
{
    char runs[1024], *path;
    struct err e;

    snprintf(runs, sizeof runs, "%s", at(dir, "find"));
    make_run(runs, "20260101-000000-digits-mlp", 300);
    make_run(runs, "20260102-000000-digits-mlp-2", 100);
    make_run(runs, "20260102-000000-names", 200);
    test_list(runs);
    ok(finds(runs, "@", "20260101-000000-digits-mlp"), "@ is the one started last");
    ok(finds(runs, "names", "20260102-000000-names"), "part of a name that fits one");
    ok(finds(runs, "20260101-000000-digits-mlp", "20260101-000000-digits-mlp"),
       "a whole name wins over a longer one");
    ok(finds(runs, at(runs, "20260102-000000-names"), "20260102-000000-names"), "a path");
    ok(runs_find(runs, "digits", &path, &e) == ERR_USAGE && !path &&
           strstr(e.msg, "20260101-000000-digits-mlp") &&
           strstr(e.msg, "20260102-000000-digits-mlp-2"),
       "several: refused, with their names");
    ok(runs_find(runs, "zebra", &path, &e) == ERR_USAGE && !path && strstr(e.msg, "zebra"),
       "none: refused");
    ok(runs_find(runs, "", &path, &e) == ERR_USAGE && !path, "nothing fits an empty name");
    ok(runs_find(at(dir, "void"), "@", &path, &e) == ERR_USAGE && !path, "@ of no runs: refused");
    make_run(at(dir, "single"), "20260101-000000-only", 1);
    ok(runs_find(at(dir, "single"), "", &path, &e) == ERR_USAGE && !path,
       "an empty name does not even fit the only run");
}

int main(void)
{
    const char *dir = tmp_make();

    test_race(dir);
    test_names(dir);
    test_lock(dir);
    test_rows(dir);
    test_journal(dir);
    test_long_journal(dir);
    test_model_copy(dir);
    test_state_round_trip(dir);
    test_state_bad(dir);
    test_find(dir);
    tmp_remove();
    return tap_done();
}
