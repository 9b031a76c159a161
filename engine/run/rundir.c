/* rundir.c - the writer's side of a run directory. */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include "engine/run/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/clock.h"
#include "engine/base/fsio.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"

enum { NAME_MAX_BYTES = 80, MAX_TRIES = 10000, LUA_MAX = 1 << 20 };

/* What a file name may hold everywhere: other bytes become '-'. */
static void clean_name(char *dst, const char *name)
{
    size_t n = 0;

    for (; *name && n < NAME_MAX_BYTES; name++) {
        char c = *name;
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-' || (c == '.' && n > 0);
        dst[n++] = good ? c : '-';
    }
    if (n == 0)
        dst[n++] = '-';
    dst[n] = 0;
}

/* mkdir is the one who decides who gets a name. */
static enum err_code make_dir(const char *runs, const char *name, char **path, struct err *e)
{
    char clean[NAME_MAX_BYTES + 1], stamp[32], base[PATH_MAX];

    clean_name(clean, name);
    clock_stamp(stamp, sizeof stamp, clock_wall());
    for (int i = 1; i <= MAX_TRIES; i++) {
        int n = i == 1 ? snprintf(base, sizeof base, "%s-%s", stamp, clean)
                       : snprintf(base, sizeof base, "%s-%s-%d", stamp, clean, i);

        if (n < 0 || (size_t)n >= sizeof base)
            return err_set(e, ERR_IO, "%s: name too long", runs);
        *path = fs_join(runs, base);
        if (!*path)
            return err_set(e, ERR_NOMEM, "run directory: out of memory");
        if (mkdir(*path, 0777) == 0)
            return ERR_OK;
        if (errno != EEXIST) {
            err_set(e, ERR_IO, "%s: %s", *path, strerror(errno));
            mem_free(*path);
            *path = NULL;
            return ERR_IO;
        }
        mem_free(*path);
        *path = NULL;
    }
    return err_set(e, ERR_IO, "%s: %d names for %s are taken", runs, MAX_TRIES, clean);
}

static int open_in(const char *dir, const char *name, int flags)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);

    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, flags | O_CREAT | O_CLOEXEC, 0644);
}

static enum err_code take_lock(struct rundir *r, struct err *e)
{
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    r->lock_fd = open_in(r->path, "lock", O_RDWR);
    if (r->lock_fd < 0)
        return err_set(e, ERR_IO, "%s/lock: %s", r->path, strerror(errno));
    if (fcntl(r->lock_fd, F_OFD_SETLK, &fl) == 0)
        return ERR_OK;
    if (errno == EAGAIN || errno == EACCES)
        return err_set(e, ERR_BUSY, "%s: another trainer holds its lock", r->path);
    return err_set(e, ERR_IO, "%s/lock: %s", r->path, strerror(errno));
}

static enum err_code open_files(struct rundir *r, struct err *e)
{
    char path[PATH_MAX];

    r->metrics_fd = open_in(r->path, "metrics.jsonl", O_WRONLY | O_APPEND);
    r->journal_fd = open_in(r->path, "journal.jsonl", O_WRONLY | O_APPEND);
    r->log_fd = open_in(r->path, "log.txt", O_WRONLY | O_APPEND);
    if (r->metrics_fd < 0 || r->journal_fd < 0 || r->log_fd < 0)
        return err_set(e, ERR_IO, "%s: %s", r->path, strerror(errno));
    snprintf(path, sizeof path, "%s/checkpoints", r->path);
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    return fs_sync_dir(r->path, e);
}

enum err_code rundir_create(const char *runs, const char *name, struct rundir **out, struct err *e)
{
    struct rundir *r = mem_zalloc(sizeof *r);
    enum err_code rc;

    *out = NULL;
    if (!r)
        return err_set(e, ERR_NOMEM, "run directory: out of memory");
    r->lock_fd = r->metrics_fd = r->journal_fd = r->log_fd = -1;
    r->seq = 1;
    rc = fs_mkdirs(runs, e);
    if (rc == ERR_OK)
        rc = make_dir(runs, name, &r->path, e);
    if (rc == ERR_OK) {
        r->name = fs_basename(r->path);
        rc = take_lock(r, e);
    }
    if (rc == ERR_OK)
        rc = open_files(r, e);
    if (rc == ERR_OK)
        *out = r;
    else
        rundir_free(r);
    return rc;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void rundir_free(struct rundir *r)
{
    if (!r)
        return;
    close_fd(r->metrics_fd);
    close_fd(r->journal_fd);
    close_fd(r->log_fd);
    close_fd(r->lock_fd);
    mem_free(r->path);
    mem_free(r);
}

enum err_code rundir_write(struct rundir *r, const char *file, const char *text, size_t len,
                           struct err *e)
{
    return fs_replace(r->path, file, text, len, e);
}

/* ---- the model's copy ---- */

static bool escapes(const char *path)
{
    if (path[0] == '/' || path[0] == 0)
        return true;
    for (const char *p = path; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == 0))
            return true;
    return false;
}

static enum err_code copy_one(struct rundir *r, const char *from, const char *as,
                              struct str *hashes, struct err *e)
{
    char *text = NULL, *dir = NULL, to[PATH_MAX], hex[65];
    size_t len;
    enum err_code rc;
    int n = snprintf(to, sizeof to, "%s/model/%s", r->path, as);

    if (escapes(as) || n < 0 || (size_t)n >= sizeof to)
        return err_set(e, ERR_INTERNAL, "model copy: bad name %s", as);
    rc = fs_read_file(from, LUA_MAX, ERR_SCRIPT, &text, &len, e);
    if (rc != ERR_OK)
        return rc;
    dir = fs_dirname(to);
    rc = dir ? fs_mkdirs(dir, e) : err_set(e, ERR_NOMEM, "model copy: out of memory");
    if (rc == ERR_OK)
        rc = fs_replace(dir, fs_basename(to), text, len, e);
    if (rc == ERR_OK) {
        sha256_text(text, len, hex);
        json_begin(hashes);
        json_put_text(hashes, "file", as);
        json_put_text(hashes, "sha256", hex);
        json_end(hashes);
    }
    mem_free(text);
    mem_free(dir);
    return rc;
}

enum err_code rundir_copy_model(struct rundir *r, const char *const *paths, const char *const *as,
                                int n, struct str *hashes, struct err *e)
{
    enum err_code rc = ERR_OK;

    json_list_begin(hashes);
    for (int i = 0; i < n && rc == ERR_OK; i++)
        rc = copy_one(r, paths[i], as[i], hashes, e);
    json_list_end(hashes);
    if (rc == ERR_OK && hashes->oom)
        rc = err_set(e, ERR_NOMEM, "model copy: out of memory");
    return rc;
}

/* ---- append-only files ---- */

/* One line by one write. A short write (a full disk) leaves a torn line behind; the next one begins
 * anew. */
static int append(int fd, const struct str *line, bool *mid_line)
{
    ssize_t w;

    do
        w = write(fd, line->s, line->len);
    while (w < 0 && errno == EINTR);
    if (w == (ssize_t)line->len) {
        *mid_line = false;
        return 0;
    }
    if (w > 0) {
        *mid_line = true;
        errno = ENOSPC;
    }
    return -1;
}

enum err_code rundir_metrics(struct rundir *r, int64_t step, double epoch, double t, int seg,
                             const struct metric *m, int n, struct err *e)
{
    struct str s = {0};
    enum err_code rc = ERR_OK;

    if (r->mid_line)
        str_addc(&s, '\n');
    json_begin(&s);
    json_put_int(&s, "step", step);
    json_put_number(&s, "epoch", epoch);
    json_put_number(&s, "t", t);
    json_put_int(&s, "seg", seg);
    for (int i = 0; i < n; i++)
        json_put_number(&s, m[i].name, m[i].value);
    json_end(&s);
    str_addc(&s, '\n');
    if (s.oom)
        rc = err_set(e, ERR_NOMEM, "metrics: out of memory");
    else if (append(r->metrics_fd, &s, &r->mid_line) < 0)
        rc = err_set(e, ERR_IO, "%s/metrics.jsonl: %s", r->path, strerror(errno));
    if (rc != ERR_OK)
        r->lost++;
    str_release(&s);
    return rc;
}

enum err_code rundir_journal(struct rundir *r, int64_t step, double t, const char *event,
                             const char *members, const char *by, struct err *e)
{
    struct str s = {0};
    char wall[40];
    bool torn = false;
    off_t before = lseek(r->journal_fd, 0, SEEK_END);
    enum err_code rc = ERR_OK;

    json_begin(&s);
    json_put_int(&s, "seq", r->seq);
    json_put_int(&s, "step", step);
    json_put_number(&s, "t", t);
    json_put_text(&s, "wall", clock_iso(wall, sizeof wall, clock_wall()));
    json_put_text(&s, "event", event);
    if (*members) {
        str_addc(&s, ',');
        str_add(&s, members);
    }
    json_put_text(&s, "by", by);
    json_end(&s);
    str_addc(&s, '\n');
    if (s.oom)
        rc = err_set(e, ERR_NOMEM, "journal: out of memory");
    else if (append(r->journal_fd, &s, &torn) < 0 || fsync(r->journal_fd) < 0)
        rc = err_set(e, ERR_IO, "%s/journal.jsonl: %s", r->path, strerror(errno));
    else
        r->seq++;
    /* a record that is refused must not stay behind in part */
    if (rc != ERR_OK && before >= 0 && ftruncate(r->journal_fd, before) < 0)
        err_prefix(e, "torn record left");
    str_release(&s);
    return rc;
}

void rundir_log(struct rundir *r, const char *line)
{
    struct str s = {0};
    bool torn;

    str_add(&s, line);
    str_addc(&s, '\n');
    if (!s.oom)
        append(r->log_fd, &s, &torn); /* nowhere to say that saying failed */
    str_release(&s);
}

char *rundir_whoami(char *buf, size_t cap)
{
    struct passwd pw, *found = NULL;
    char text[1024], host[HOST_NAME_MAX + 1] = "?";

    gethostname(host, sizeof host - 1);
    if (getpwuid_r(getuid(), &pw, text, sizeof text, &found) == 0 && found)
        snprintf(buf, cap, "%s@%s", pw.pw_name, host);
    else
        snprintf(buf, cap, "%ld@%s", (long)getuid(), host);
    return buf;
}
