/* checkpoint.c - folders that are there whole or not at all. */
#include "engine/run/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"

enum { MANIFEST_MAX = 1 << 20 };

static bool path_in(char *buf, const char *dir, const char *name)
{
    int n = snprintf(buf, PATH_MAX, "%s/%s", dir, name);
    return n > 0 && n < PATH_MAX;
}

static void manifest_file(struct str *m, const char *name, int64_t bytes, const char *sha)
{
    json_begin(m);
    json_put_text(m, "file", name);
    json_put_int(m, "bytes", bytes);
    json_put_text(m, "sha256", sha);
    json_end(m);
}

static enum err_code write_tensors(const char *dir, const char *name, struct st_tensor *t, int n,
                                   struct str *manifest, struct err *e)
{
    char path[PATH_MAX], sha[65];
    int64_t size = 0;
    int fd =
        path_in(path, dir, name) ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : -1;
    enum err_code rc;

    if (fd < 0)
        return err_set(e, ERR_IO, "%s/%s: %s", dir, name, strerror(errno));
    rc = safetensors_write(fd, path, t, n, sha, &size, e);
    if (rc == ERR_OK && fsync(fd) < 0)
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    close(fd);
    if (rc == ERR_OK)
        manifest_file(manifest, name, size, sha);
    return rc;
}

static enum err_code write_text(const char *dir, const char *name, const char *text,
                                struct str *manifest, struct err *e)
{
    char sha[65];
    size_t len = strlen(text);
    enum err_code rc = fs_replace(dir, name, text, len, e);

    if (rc == ERR_OK && manifest) {
        sha256_text(text, len, sha);
        manifest_file(manifest, name, (int64_t)len, sha);
    }
    return rc;
}

static enum err_code write_all_files(const char *dir, const struct checkpoint *c, struct err *e)
{
    struct str m = {0};
    enum err_code rc;

    json_begin(&m);
    json_put_int(&m, "format", CHECKPOINT_FORMAT);
    json_put_int(&m, "step", c->step);
    json_key(&m, "files");
    json_list_begin(&m);
    rc = write_tensors(dir, "model.safetensors", c->model, c->n_model, &m, e);
    if (rc == ERR_OK)
        rc = write_tensors(dir, "optimizer.safetensors", c->optimizer, c->n_optimizer, &m, e);
    if (rc == ERR_OK)
        rc = write_text(dir, "trainer.json", c->trainer_json, &m, e);
    if (rc == ERR_OK)
        rc = write_text(dir, "data.json", c->data_json, &m, e);
    json_list_end(&m);
    json_end(&m);
    str_addc(&m, '\n');
    if (rc == ERR_OK && m.oom)
        rc = err_set(e, ERR_NOMEM, "checkpoint: out of memory");
    if (rc == ERR_OK)
        rc = write_text(dir, "MANIFEST.json", str_c(&m), NULL, e);
    str_release(&m);
    return rc == ERR_OK ? fs_sync_dir(dir, e) : rc;
}

/* The new folder takes its name; one of that step that was there steps aside first and goes
 * afterwards. */
static enum err_code move_in(const char *all, const char *tmp, const char *final, struct err *e)
{
    char old[PATH_MAX];
    bool aside = false;
    int n = snprintf(old, sizeof old, "%s.old.%ld", tmp, (long)getpid());

    if (n < 0 || (size_t)n >= sizeof old)
        return err_set(e, ERR_IO, "%s: name too long", tmp);
    if (fs_exists(final)) {
        if (rename(final, old) < 0)
            return err_set(e, ERR_IO, "%s: %s", final, strerror(errno));
        aside = true;
    }
    if (rename(tmp, final) < 0) {
        err_set(e, ERR_IO, "%s: %s", final, strerror(errno));
        if (aside && rename(old, final) < 0)
            err_prefix(e, "%s is the checkpoint that was there", old);
        return ERR_IO;
    }
    if (aside)
        fs_remove_tree(old, NULL);
    return fs_sync_dir(all, e);
}

enum err_code checkpoint_write(const char *run_path, const struct checkpoint *c, char **path,
                               struct err *e)
{
    char all[PATH_MAX], tmp[PATH_MAX], final[PATH_MAX], name[64], tmp_name[96];
    enum err_code rc;

    snprintf(name, sizeof name, "step-%09" PRId64, c->step);
    snprintf(tmp_name, sizeof tmp_name, ".tmp-%s-%ld", name, (long)getpid());
    if (!path_in(all, run_path, "checkpoints") || !path_in(tmp, all, tmp_name) ||
        !path_in(final, all, name))
        return err_set(e, ERR_IO, "%s: name too long", run_path);
    rc = fs_remove_tree(tmp, e); /* of an earlier try */
    if (rc == ERR_OK && mkdir(tmp, 0777) < 0)
        rc = err_set(e, ERR_IO, "%s: %s", tmp, strerror(errno));
    if (rc == ERR_OK)
        rc = write_all_files(tmp, c, e);
    if (rc == ERR_OK)
        rc = move_in(all, tmp, final, e);
    if (rc != ERR_OK) {
        fs_remove_tree(tmp, NULL);
        return rc;
    }
    if (path)
        *path = mem_strdup(final);
    return path && !*path ? err_set(e, ERR_NOMEM, "checkpoint: out of memory") : ERR_OK;
}

/* ---- verifying ---- */

static enum err_code verify_file(const char *dir, const json_t *entry, struct err *e)
{
    const char *name = json_string_value(json_object_get(entry, "file")),
               *want = json_string_value(json_object_get(entry, "sha256"));
    int64_t bytes = json_integer_value(json_object_get(entry, "bytes")), got = 0;
    struct sha256 h;
    struct stat st;
    char path[PATH_MAX], hex[65], *chunk = NULL;
    enum err_code rc = ERR_OK;
    ssize_t n = 0;
    int fd;

    if (!name || !want || strchr(name, '/') || !path_in(path, dir, name))
        return err_set(e, ERR_CORRUPT, "%s/MANIFEST.json: bad entry", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_CORRUPT, "%s: %s", path,
                     fd < 0 ? strerror(errno) : "is no regular file");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    chunk = mem_alloc(1 << 16);
    sha256_init(&h);
    while (chunk && (n = read(fd, chunk, 1 << 16)) > 0) {
        sha256_update(&h, chunk, (size_t)n);
        got += n;
    }
    if (!chunk)
        rc = err_set(e, ERR_NOMEM, "%s: out of memory", path);
    else if (n < 0)
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    else if (got != bytes)
        rc = err_set(e, ERR_CORRUPT, "%s: has %lld bytes, the manifest says %lld", path,
                     (long long)got, (long long)bytes);
    if (rc == ERR_OK) {
        sha256_final(&h, hex);
        if (strcmp(hex, want) != 0)
            rc = err_set(e, ERR_CORRUPT, "%s: checksum differs from the manifest", path);
    }
    mem_free(chunk);
    close(fd);
    return rc;
}

/* A manifest that leaves one out would let it be missing or changed. */
static bool lists_all(const json_t *files)
{
    static const char *const all[] = {"model.safetensors", "optimizer.safetensors", "trainer.json",
                                      "data.json"};
    size_t found = 0;

    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (size_t i = 0; i < json_array_size(files); i++) {
            const json_t *entry = json_array_get(files, i);
            const char *name = json_string_value(json_object_get(entry, "file"));
            if (name && strcmp(name, all[k]) == 0) {
                found++;
                break;
            }
        }
    return found == sizeof all / sizeof *all;
}

enum err_code checkpoint_verify(const char *path, struct err *e)
{
    char manifest[PATH_MAX], *text = NULL;
    json_t *o = NULL, *files;
    json_error_t je;
    size_t len;
    enum err_code rc;

    if (!path_in(manifest, path, "MANIFEST.json"))
        return err_set(e, ERR_IO, "%s: name too long", path);
    rc = fs_read_file(manifest, MANIFEST_MAX, ERR_CORRUPT, &text, &len, e);
    if (rc != ERR_OK)
        return rc;
    o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    files = json_object_get(o, "files");
    if (json_integer_value(json_object_get(o, "format")) > CHECKPOINT_FORMAT)
        rc = err_set(e, ERR_CORRUPT, "%s: was written by a newer cupola", manifest);
    else if (json_integer_value(json_object_get(o, "format")) < 1 || !lists_all(files))
        rc = err_set(e, ERR_CORRUPT, "%s: is no manifest", manifest);
    for (size_t i = 0; rc == ERR_OK && i < json_array_size(files); i++)
        rc = verify_file(path, json_array_get(files, i), e);
    json_decref(o);
    mem_free(text);
    return rc;
}

/* ---- listing and rotation ---- */

/* The step of "step-000000500"; -1 for any other name. */
static int64_t step_of(const char *name)
{
    char *end, ours[64];
    long long v;

    if (strncmp(name, "step-", 5) != 0 || strlen(name + 5) < 9)
        return -1;
    for (const char *p = name + 5; *p; p++)
        if (*p < '0' || *p > '9')
            return -1;
    errno = 0;
    v = strtoll(name + 5, &end, 10);
    if (errno || *end)
        return -1;
    snprintf(ours, sizeof ours, "step-%09lld", v);
    return strcmp(name, ours) == 0 ? v : -1; /* step-0000000005 is not ours */
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

enum err_code checkpoint_list(const char *run_path, int64_t **steps, int *n, struct err *e)
{
    char all[PATH_MAX], path[PATH_MAX], manifest[PATH_MAX];
    struct dirent *de;
    size_t cap = 0;
    DIR *d;

    *steps = NULL;
    *n = 0;
    if (!path_in(all, run_path, "checkpoints") || !(d = opendir(all)))
        return errno == ENOENT
                   ? ERR_OK
                   : err_set(e, ERR_IO, "%s/checkpoints: %s", run_path, strerror(errno));
    while ((de = readdir(d))) {
        if (step_of(de->d_name) < 0 || !path_in(path, all, de->d_name) ||
            !path_in(manifest, path, "MANIFEST.json") || !fs_exists(manifest))
            continue;
        if (mem_grow((void **)steps, &cap, (size_t)*n, sizeof **steps) < 0) {
            closedir(d);
            mem_free(*steps);
            *steps = NULL;
            *n = 0;
            return err_set(e, ERR_NOMEM, "checkpoints: out of memory");
        }
        (*steps)[(*n)++] = step_of(de->d_name);
    }
    closedir(d);
    if (*n > 0)
        qsort(*steps, (size_t)*n, sizeof **steps, by_number);
    return ERR_OK;
}

/* Left over by a writer that is dead: ".tmp-step-000000500-PID" and what it moved aside. */
static void remove_leftovers(const char *all)
{
    DIR *d = opendir(all);
    struct dirent *de;

    while (d && (de = readdir(d))) {
        char path[PATH_MAX];
        const char *dash = strrchr(de->d_name, '-');
        long pid = dash ? strtol(dash + 1, NULL, 10) : 0;

        if (strncmp(de->d_name, ".tmp-step-", 10) != 0 || pid <= 0 || pid == (long)getpid())
            continue;
        if (kill((pid_t)pid, 0) < 0 && errno == ESRCH && path_in(path, all, de->d_name))
            fs_remove_tree(path, NULL);
    }
    if (d)
        closedir(d);
}

enum err_code checkpoint_rotate(const char *run_path, int keep, int64_t best, struct err *e)
{
    char all[PATH_MAX], path[PATH_MAX], name[64];
    int64_t *steps;
    int n;
    enum err_code rc = checkpoint_list(run_path, &steps, &n, e);

    keep = keep < 0 ? 0 : keep;
    for (int i = 0; rc == ERR_OK && i < n - keep; i++) {
        if (steps[i] == best)
            continue;
        snprintf(name, sizeof name, "checkpoints/step-%09" PRId64, steps[i]);
        rc = path_in(path, run_path, name) ? fs_remove_tree(path, e)
                                           : err_set(e, ERR_IO, "%s: name too long", run_path);
    }
    mem_free(steps);
    if (rc == ERR_OK && path_in(all, run_path, "checkpoints"))
        remove_leftovers(all);
    return rc;
}
