/* runs.c - finding runs. */
#include "engine/run/runs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"

static bool is_run(const char *path)
{
    char file[PATH_MAX];
    int n = snprintf(file, sizeof file, "%s/state.json", path);

    if (n < 0 || (size_t)n >= sizeof file)
        return false;
    if (fs_exists(file))
        return true;
    snprintf(file, sizeof file, "%s/lock", path);
    return fs_exists(file);
}

static int by_run_name(const void *pa, const void *pb)
{
    const struct run_entry *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

static enum err_code add_run(struct run_list *l, size_t *cap, const char *runs, const char *name,
                             struct err *e)
{
    char *path = fs_join(runs, name);
    struct run_entry *r;
    struct err why;

    if (path && !is_run(path)) {
        mem_free(path);
        return ERR_OK;
    }
    if (!path || mem_grow((void **)&l->run, cap, (size_t)l->n, sizeof *l->run) < 0) {
        mem_free(path);
        return err_set(e, ERR_NOMEM, "runs: out of memory");
    }
    r = &l->run[l->n];
    memset(r, 0, sizeof *r);
    r->path = path;
    r->name = mem_strdup(name);
    if (!r->name) {
        mem_free(path);
        return err_set(e, ERR_NOMEM, "runs: out of memory");
    }
    l->n++;
    r->readable = run_state_read(path, &r->state, &why) == ERR_OK;
    if (!r->readable)
        snprintf(r->why, sizeof r->why, "%.*s", (int)sizeof r->why - 1, why.msg);
    return ERR_OK;
}

enum err_code runs_list(const char *runs, struct run_list *out, struct err *e)
{
    DIR *d = opendir(runs);
    struct dirent *de;
    size_t cap = 0;
    enum err_code rc = ERR_OK;

    memset(out, 0, sizeof *out);
    if (!d)
        return errno == ENOENT ? ERR_OK : err_set(e, ERR_IO, "%s: %s", runs, strerror(errno));
    while (rc == ERR_OK && (de = readdir(d)))
        if (de->d_name[0] != '.')
            rc = add_run(out, &cap, runs, de->d_name, e);
    closedir(d);
    if (rc != ERR_OK)
        run_list_release(out);
    else if (out->n > 0)
        qsort(out->run, (size_t)out->n, sizeof *out->run, by_run_name);
    return rc;
}

void run_list_release(struct run_list *l)
{
    for (int i = 0; i < l->n; i++) {
        mem_free(l->run[i].path);
        mem_free(l->run[i].name);
    }
    mem_free(l->run);
    memset(l, 0, sizeof *l);
}

/* ---- one run by what the user typed ---- */

static bool newer(const struct run_entry *a, const struct run_entry *b)
{
    if (a->state.started != b->state.started)
        return a->state.started > b->state.started;
    return strcmp(a->name, b->name) > 0;
}

static enum err_code pick(const struct run_list *l, const char *runs, const char *want, char **path,
                          struct err *e)
{
    const struct run_entry *found = NULL;
    struct str several = {0};
    int n = 0;
    enum err_code rc;

    for (int i = 0; i < l->n; i++) {
        const struct run_entry *r = &l->run[i];
        if (strcmp(want, "@") == 0) {
            found = !found || newer(r, found) ? r : found;
            n = 1;
            continue;
        }
        if (strcmp(r->name, want) == 0) {
            found = r;
            n = 1;
            break;
        }
        if (!*want || !strstr(r->name, want))
            continue;
        found = r;
        if (n++ < 8)
            str_addf(&several, "%s%s", n > 1 ? ", " : "", r->name);
    }
    if (n == 1) {
        *path = mem_strdup(found->path);
        rc = *path ? ERR_OK : err_set(e, ERR_NOMEM, "runs: out of memory");
    } else if (n > 1) {
        rc = err_set(e, ERR_USAGE, "'%s' fits %d runs: %s%s", want, n, str_c(&several),
                     n > 8 ? ", ..." : "");
    } else {
        rc = err_set(e, ERR_USAGE,
                     l->n ? "no run in %s fits '%s' (cupola ls lists them)"
                          : "there are no runs in %s ('%s' was asked for)",
                     runs, want);
    }
    str_release(&several);
    return rc;
}

enum err_code runs_find(const char *runs, const char *want, char **path, struct err *e)
{
    struct run_list l;
    enum err_code rc;

    *path = NULL;
    if (*want && is_run(want)) {
        *path = mem_strdup(want);
        return *path ? ERR_OK : err_set(e, ERR_NOMEM, "runs: out of memory");
    }
    rc = runs_list(runs, &l, e);
    if (rc == ERR_OK) {
        rc = pick(&l, runs, want, path, e);
        run_list_release(&l);
    }
    return rc;
}

/* ---- the end of the journal ---- */

enum err_code journal_tail(const char *run_path, int max, struct str *out, struct err *e)
{
    enum { TAIL = 1 << 20 };
    char *path = fs_join(run_path, "journal.jsonl"), *text = mem_alloc(TAIL + 1), *p;
    int fd = path && text ? open(path, O_RDONLY | O_CLOEXEC) : -1, lines = 0;
    struct stat st;
    ssize_t n = 0;
    enum err_code rc = ERR_OK;

    if (!path || !text)
        rc = err_set(e, ERR_NOMEM, "journal: out of memory");
    else if (fd < 0 || fstat(fd, &st) < 0)
        rc = errno == ENOENT ? ERR_OK : err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    else if ((n = pread(fd, text, TAIL, st.st_size > TAIL ? st.st_size - TAIL : 0)) < 0)
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (rc == ERR_OK && n > 0) {
        char *from = text;

        while (n > 0 && text[n - 1] != '\n') /* a torn last line */
            n--;
        text[n] = 0;
        if (st.st_size > TAIL) /* the first line has lost its beginning */
            from += strcspn(text, "\n") + (n > 0);
        p = text + n;
        while (p > from && lines <= max)
            if (*--p == '\n')
                lines++;
        str_add(out, lines > max ? p + 1 : p);
        if (out->oom)
            rc = err_set(e, ERR_NOMEM, "journal: out of memory");
    }
    if (fd >= 0)
        close(fd);
    mem_free(path);
    mem_free(text);
    return rc;
}
