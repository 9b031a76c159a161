/* Checkpoints: there whole or not at all, verified byte by byte, rotated by number. */
#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/run/checkpoint.h"
#include "tap.h"
#include "tmp_dir.h"

static float weights[64], moments[64];

static enum err_code save(const char *run, int64_t step, float value, char **path, struct err *e)
{
    struct st_tensor m = {.name = "w",
                          .dtype = "F32",
                          .rank = 1,
                          .dim = {64},
                          .count = 64,
                          .data = weights,
                          .bytes = sizeof weights},
                     o = {.name = "w.m",
                          .dtype = "F32",
                          .rank = 1,
                          .dim = {64},
                          .count = 64,
                          .data = moments,
                          .bytes = sizeof moments};
    struct checkpoint c = {.step = step,
                           .model = &m,
                           .n_model = 1,
                           .optimizer = &o,
                           .n_optimizer = 1,
                           .trainer_json = "{\"seed\":1}\n",
                           .data_json = "{\"at\":2}\n"};

    for (int i = 0; i < 64; i++)
        weights[i] = value + (float)i;
    return checkpoint_write(run, &c, path, e);
}

static void new_run(const char *run)
{
    fs_remove_tree(run, NULL);
    fs_mkdirs(at(run, "checkpoints"), NULL);
}

static int steps_are(const char *run, const int64_t *want, int n_want)
{
    int64_t *steps;
    int n, same;

    if (checkpoint_list(run, &steps, &n, NULL) != ERR_OK)
        return 0;
    same = n == n_want && (n == 0 || memcmp(steps, want, (size_t)n * sizeof *want) == 0);
    mem_free(steps);
    return same;
}
#define STEPS(run, ...)                                                                            \
    steps_are(run, (const int64_t[]){__VA_ARGS__},                                                 \
              (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static void test_write(const char *run)
{
    struct safetensors s;
    struct err e;
    char *path = NULL;

    new_run(run);
    ok(save(run, 500, 1, &path, &e) == ERR_OK && path &&
           !strcmp(path, at(run, "checkpoints/step-000000500")),
       "a checkpoint has a name of nine digits");
    ok(entries(path) == 5 && entries(at(run, "checkpoints")) == 1,
       "four files and the manifest, and nothing beside it");
    ok(checkpoint_verify(path, &e) == ERR_OK, "it verifies");
    ok(file_is(at(path, "trainer.json"), "{\"seed\":1}\n") &&
           file_is(at(path, "data.json"), "{\"at\":2}\n"),
       "its texts are as given");
    ok(safetensors_open(at(path, "model.safetensors"), &s, &e) == ERR_OK && s.n == 1 &&
           memcmp(s.tensor[0].data, weights, sizeof weights) == 0,
       "its tensors too");
    safetensors_close(&s);
    mem_free(path);
}

static void flip(const char *path, long from_end)
{
    FILE *f = fopen(path, "r+b");
    int c;

    fseek(f, -from_end, SEEK_END);
    c = fgetc(f);
    fseek(f, -from_end, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
}

static void test_verify(const char *run)
{
    static const char *const file[] = {"model.safetensors", "optimizer.safetensors", "trainer.json",
                                       "data.json"};
    struct err e;
    char *path = NULL;
    size_t len;

    new_run(run);
    save(run, 1, 1, &path, &e);
    for (int i = 0; i < 4; i++) {
        flip(at(path, file[i]), 3);
        ok(checkpoint_verify(path, &e) == ERR_CORRUPT && strstr(e.msg, file[i]),
           "one bit flipped in %s is found", file[i]);
        flip(at(path, file[i]), 3);
    }
    ok(checkpoint_verify(path, &e) == ERR_OK, "flipped back it verifies");
    mem_free(slurp(at(path, "model.safetensors"), &len));
    ok(truncate(at(path, "model.safetensors"), (off_t)len - 1) == 0 &&
           checkpoint_verify(path, &e) == ERR_CORRUPT && strstr(e.msg, "bytes"),
       "a short file is found");
    remove(at(path, "model.safetensors"));
    ok(checkpoint_verify(path, &e) == ERR_CORRUPT && strstr(e.msg, "model.safetensors"),
       "a missing file is found");
    mkfifo(at(path, "model.safetensors"), 0600);
    alarm(20);
    ok(checkpoint_verify(path, &e) == ERR_CORRUPT, "a FIFO in its place does not hang us");
    alarm(0);
    remove(at(path, "MANIFEST.json"));
    ok(checkpoint_verify(path, &e) != ERR_OK && strstr(e.msg, "MANIFEST.json"),
       "without a manifest it is none");
    mem_free(path);
}

static void test_bad_manifest(const char *run)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"format\":1}",
        "{\"format\":1,\"files\":[]}",
        "{\"format\":1,\"files\":[{\"file\":\"data.json\",\"bytes\":9,\"sha256\":\"\"}]}",
        "{\"format\":1,\"files\":[{\"file\":\"../x\",\"bytes\":0,\"sha256\":\"x\"},"
        "{\"file\":\"model.safetensors\"},{\"file\":\"optimizer.safetensors\"},"
        "{\"file\":\"trainer.json\"},{\"file\":\"data.json\"}]}"};
    struct err e;
    char *path = NULL;

    new_run(run);
    save(run, 1, 1, &path, &e);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text(at(path, "MANIFEST.json"), bad[i]);
        ok(checkpoint_verify(path, &e) == ERR_CORRUPT && strstr(e.msg, "MANIFEST.json"),
           "manifest %zu is refused", i);
    }
    put_text(at(path, "MANIFEST.json"), "{\"format\":2,\"files\":[]}");
    ok(checkpoint_verify(path, &e) == ERR_CORRUPT && strstr(e.msg, "newer"),
       "a newer one is refused by name");
    mem_free(path);
}

static void test_replace(const char *run)
{
    struct safetensors s;
    struct err e;
    char *path = NULL;

    new_run(run);
    save(run, 7, 1, NULL, &e);
    ok(save(run, 7, 100, &path, &e) == ERR_OK && checkpoint_verify(path, &e) == ERR_OK &&
           entries(at(run, "checkpoints")) == 1,
       "a step saved again replaces the first");
    safetensors_open(at(path, "model.safetensors"), &s, &e);
    ok(s.n == 1 && *(const float *)s.tensor[0].data == 100, "with the newer weights");
    safetensors_close(&s);
    mem_free(path);
}

static void test_rotate(const char *run)
{
    struct err e;

    new_run(run);
    ok(steps_are(run, NULL, 0), "no checkpoints at first");
    for (int64_t s = 1; s <= 6; s++)
        save(run, s * 300000000, 1, NULL, &e);
    ok(STEPS(run, 300000000, 600000000, 900000000, 1200000000, 1500000000, 1800000000),
       "the list is sorted by number, not by name");
    ok(checkpoint_rotate(run, 2, 600000000, &e) == ERR_OK &&
           STEPS(run, 600000000, 1500000000, 1800000000),
       "the newest two and the best stay");
    ok(checkpoint_rotate(run, 2, 1800000000, &e) == ERR_OK && STEPS(run, 1500000000, 1800000000),
       "a best among the newest is no third");
    ok(checkpoint_rotate(run, 5, -1, &e) == ERR_OK && STEPS(run, 1500000000, 1800000000),
       "fewer than keep: all stay");
    ok(checkpoint_rotate(run, 1, -1, &e) == ERR_OK && STEPS(run, 1800000000), "no best: newest");
}

static pid_t dead_pid(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    return pid;
}

static void test_junk(const char *run)
{
    static const char *const junk[] = {"step-12",        "step-00000000x",  "notes",
                                       "step-000000001", "step-0000000002", "xstep-000000001"};
    struct err e;
    char all[512], left[600], live[600];
    int there = 0;

    new_run(run);
    snprintf(all, sizeof all, "%s", at(run, "checkpoints"));
    for (size_t i = 0; i < 6; i++)
        mkdir(at(all, junk[i]), 0777);
    put_text(at(at(all, "step-0000000002"), "MANIFEST.json"), "{}"); /* ten digits: not ours */
    put_text(at(all, "step-000000009"), "a file");
    snprintf(left, sizeof left, "%s/.tmp-step-000000003-%ld", all, (long)dead_pid());
    snprintf(live, sizeof live, "%s/.tmp-step-000000003-%ld", all, (long)getppid());
    mkdir(left, 0777);
    mkdir(live, 0777);
    put_text(at(left, "model.safetensors"), "half");
    save(run, 4, 1, NULL, &e);
    save(run, 5, 1, NULL, &e);
    ok(STEPS(run, 4, 5), "junk is not listed");
    ok(checkpoint_rotate(run, 1, -1, &e) == ERR_OK && STEPS(run, 5), "rotation among junk");
    for (size_t i = 0; i < 6; i++)
        there += fs_exists(at(all, junk[i]));
    ok(there == 6 && fs_exists(at(all, "step-000000009")), "junk is left alone");
    ok(!fs_exists(left), "what a dead writer left goes");
    ok(fs_exists(live), "what a live one is writing stays");
    ok(checkpoint_rotate(run, -3, -1, &e) == ERR_OK && steps_are(run, NULL, 0),
       "keep below 0 is 0");
}

static void test_failure(const char *run)
{
    struct rlimit old, small;
    struct err e;
    char *path = NULL;
    int failed;

    new_run(run);
    save(run, 1, 1, NULL, &e);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 128; /* as on a full disk: in the middle of the first file */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    failed = save(run, 2, 1, &path, &e) == ERR_IO && save(run, 1, 5, &path, &e) == ERR_IO;
    setrlimit(RLIMIT_FSIZE, &old);
    ok(failed && !path, "a disk that is full fails the save");
    ok(entries(at(run, "checkpoints")) == 1, "and leaves nothing");
    ok(checkpoint_verify(at(run, "checkpoints/step-000000001"), &e) == ERR_OK,
       "the one before is whole");
    ok(save(run, 2, 1, NULL, &e) == ERR_OK && STEPS(run, 1, 2), "once there is room it goes on");
    fs_remove_tree(at(run, "checkpoints"), NULL);
    ok(save(run, 3, 1, &path, &e) == ERR_IO && !path && strstr(e.msg, run), "no folder: an error");
}

static void test_no_memory(const char *run)
{
    int bad = 0, n = 0;

    new_run(run);
    for (long k = 1; k < 200; k++) {
        struct err e;
        enum err_code rc;

        mem_fail_nth(k);
        rc = save(run, 1, 1, NULL, &e);
        mem_fail_nth(0);
        if (rc == ERR_OK)
            break;
        n++;
        bad += rc != ERR_NOMEM || entries(at(run, "checkpoints")) != 0;
    }
    ok(n > 2 && bad == 0, "each of %d allocations may fail: nothing is left behind", n);
}

int main(void)
{
    const char *dir = tmp_make();
    char run[600];

    snprintf(run, sizeof run, "%s/run", dir);
    test_write(run);
    test_verify(run);
    test_bad_manifest(run);
    test_replace(run);
    test_rotate(run);
    test_junk(run);
    test_failure(run);
    test_no_memory(run);
    tmp_remove();
    return tap_done();
}
