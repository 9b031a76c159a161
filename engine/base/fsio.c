/* fsio.c - files. */
#include "engine/base/fsio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/alloc.h"

int fs_write_all(int fd, const void *buf, size_t n)
{
    const char *p = buf;

    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w == 0)
            errno = EIO; /* nothing written and no error: do not try for ever */
        if (w <= 0)
            return -1;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

static int read_all(int fd, char *p, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        ssize_t r = read(fd, p + *got, n - *got);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -1;
        if (r == 0)
            break;
        *got += (size_t)r;
    }
    return 0;
}

/* The file's text, at most max bytes and one to see that there are more. A size of 0 means nothing
 * in /proc, so the buffer grows; 0, or -1 and errno. */
static int slurp(int fd, size_t size, size_t max, char **text, size_t *len)
{
    size_t room = size > 0 ? size : 4096;

    *len = 0;
    for (;;) {
        char *p = mem_realloc(*text, room + 1);
        size_t got;

        if (!p) {
            errno = ENOMEM;
            return -1;
        }
        *text = p;
        if (read_all(fd, p + *len, room - *len, &got) < 0)
            return -1;
        *len += got;
        if (*len < room || size > 0 || *len > max)
            return 0;
        room = room < max / 2 ? 2 * room : max + 1;
    }
}

enum err_code fs_read_file(const char *path, size_t max, enum err_code too_large, char **out,
                           size_t *len, struct err *e)
{
    struct stat st;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    enum err_code rc;

    *out = NULL;
    if (fd < 0 || fstat(fd, &st) < 0)
        goto fail;
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_IO, "%s: %s", path,
                     S_ISDIR(st.st_mode) ? "is a folder" : "is no regular file");
        goto out;
    }
    if ((uintmax_t)st.st_size > max) {
        rc = err_set(e, too_large, "%s: has %jd bytes; at most %zu are read", path,
                     (intmax_t)st.st_size, max);
        goto out;
    }
    if (slurp(fd, (size_t)st.st_size, max, &text, len) < 0) {
        if (errno != ENOMEM)
            goto fail;
        rc = err_set(e, ERR_NOMEM, "%s: out of memory", path);
        goto out;
    }
    if (*len > max) {
        rc = err_set(e, too_large, "%s: has more than %zu bytes", path, max);
        goto out;
    }
    text[*len] = 0;
    *out = text;
    text = NULL;
    rc = ERR_OK;
    goto out;
fail:
    rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
out:
    mem_free(text);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Make the names in a folder durable. Some network file systems cannot and say EINVAL: no reason to
 * refuse to save there. */
static int sync_folder(int dfd)
{
    return fsync(dfd) < 0 && errno != EINVAL ? -1 : 0;
}

static enum err_code replace(const char *dir, const char *name, const void *buf, size_t len,
                             bool sync, struct err *e)
{
    static atomic_uint serial;
    enum err_code rc = ERR_OK;
    int dfd = -1, fd = -1;
    char tmp[300];
    bool made = false, failed;

    if ((size_t)snprintf(tmp, sizeof tmp, ".%s.%ld.%u.tmp", name, (long)getpid(),
                         atomic_fetch_add(&serial, 1)) >= sizeof tmp)
        return err_set(e, ERR_IO, "%s/%s: name too long", dir, name);
    dfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dfd < 0)
        goto fail;
    fd = openat(dfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        goto fail;
    made = true;
    if (fs_write_all(fd, buf, len) < 0 || (sync && fsync(fd) < 0))
        goto fail;
    /* NFS says only here that the disk is full */
    failed = close(fd) < 0 && errno != EINTR;
    fd = -1;
    if (failed)
        goto fail;
    /* Rename only after fsync: else a crash can leave the new name on an empty file. */
    if (renameat(dfd, tmp, dfd, name) < 0)
        goto fail;
    made = false;
    if (sync && sync_folder(dfd) < 0)
        goto fail;
    goto out;
fail:
    rc = err_set(e, ERR_IO, "%s/%s: %s", dir, name, strerror(errno));
    if (made)
        unlinkat(dfd, tmp, 0);
out:
    if (fd >= 0)
        close(fd);
    if (dfd >= 0)
        close(dfd);
    return rc;
}

enum err_code fs_replace(const char *dir, const char *name, const void *buf, size_t len,
                         struct err *e)
{
    return replace(dir, name, buf, len, true, e);
}

enum err_code fs_replace_quick(const char *dir, const char *name, const void *buf, size_t len,
                               struct err *e)
{
    return replace(dir, name, buf, len, false, e);
}

enum err_code fs_mkdirs(const char *path, struct err *e)
{
    char *p = mem_strdup(path);
    enum err_code rc = ERR_OK;
    struct stat st;

    if (!p)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    for (char *s = p + 1; *p && rc == ERR_OK; s++) {
        char c = *s;
        if (c != '/' && c != 0)
            continue;
        *s = 0;
        if (mkdir(p, 0777) < 0) {
            int why = errno; /* not always EEXIST for a folder that is there: automounts, EACCES */
            if (stat(p, &st) < 0 || !S_ISDIR(st.st_mode))
                rc =
                    err_set(e, ERR_IO, "%s: %s", p, why == EEXIST ? "is no folder" : strerror(why));
        }
        *s = c;
        if (c == 0)
            break;
    }
    mem_free(p);
    return rc;
}

enum err_code fs_sync_dir(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum err_code rc = ERR_OK;

    if (fd < 0 || sync_folder(fd) < 0)
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Removes what is in the folder dfd; closes dfd. */
static int empty_dir(int dfd, int depth)
{
    DIR *d = fdopendir(dfd);
    struct dirent *de;
    int rc = 0;

    if (!d) {
        close(dfd);
        return -1;
    }
    while (rc == 0 && (de = readdir(d))) {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        if (unlinkat(dfd, de->d_name, 0) == 0)
            continue;
        if (errno == EISDIR || errno == EPERM) {
            int sub = depth < 64
                          ? openat(dfd, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                          : -1;
            rc = sub < 0 || empty_dir(sub, depth + 1) < 0 ||
                         unlinkat(dfd, de->d_name, AT_REMOVEDIR) < 0
                     ? -1
                     : 0;
        } else {
            rc = -1;
        }
    }
    closedir(d);
    return rc;
}

/* path ends in no slash, which would have the kernel follow a link; 0, or -1 and errno. */
static int remove_tree(const char *path)
{
    int dfd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dfd >= 0)
        return empty_dir(dfd, 0) < 0 ? -1 : rmdir(path);
    if (errno == ENOENT)
        return 0;
    return errno == ENOTDIR || errno == ELOOP ? unlink(path) : -1;
}

enum err_code fs_remove_tree(const char *path, struct err *e)
{
    char *p = mem_strdup(path);
    enum err_code rc = ERR_OK;

    if (!p)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    for (size_t n = strlen(p); n > 1 && p[n - 1] == '/'; n--)
        p[n - 1] = 0;
    if (remove_tree(p) < 0)
        rc = err_set(e, ERR_IO, "%s: cannot be removed: %s", path, strerror(errno));
    mem_free(p);
    return rc;
}

enum err_code fs_copy_file(const char *from, const char *to, struct err *e)
{
    char *text;
    size_t len;
    char *dir = fs_dirname(to);
    enum err_code rc = dir ? fs_read_file(from, (size_t)1 << 30, ERR_IO, &text, &len, e)
                           : err_set(e, ERR_NOMEM, "%s: out of memory", to);

    if (rc == ERR_OK) {
        rc = fs_replace(dir, fs_basename(to), text, len, e);
        mem_free(text);
    }
    mem_free(dir);
    return rc;
}

char *fs_join(const char *dir, const char *name)
{
    size_t a = strlen(dir), b = strlen(name);
    char *p;

    if (name[0] == '/' || a == 0)
        return mem_strdup(name);
    p = mem_alloc(a + b + 2);
    if (!p)
        return NULL;
    memcpy(p, dir, a);
    if (p[a - 1] != '/')
        p[a++] = '/';
    memcpy(p + a, name, b + 1);
    return p;
}

char *fs_dirname(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return mem_strdup(".");
    return mem_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

const char *fs_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool fs_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

char *fs_program_dir(char *buf, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", buf, cap - 1);
    char *slash;

    buf[n > 0 && (size_t)n < cap - 1 ? n : 0] = 0; /* cut off is as good as not known */
    slash = strrchr(buf, '/');
    if (slash)
        slash[slash == buf] = 0;
    else
        snprintf(buf, cap, ".");
    return buf;
}
