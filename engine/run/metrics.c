/* metrics.c - reading metrics.jsonl: a scanner for the rows rundir_metrics writes, in memory that
 * does not grow with the file. Anything else on a line makes it a bad one; bad lines are counted
 * and passed over. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"
#include "engine/base/hash.h"
#include "engine/run/metrics_scan.h"
#include "engine/run/runs.h"

enum { CHUNK = 1 << 20, NAMES_MAX = 4096, ROW_MAX = 512, NAME_LEN = 200 };

struct scanner {
    metrics_row_fn *row;
    void *arg;
    int64_t bad;
    char *name[NAMES_MAX]; /* interned, in a hash table */
    int n_names;
    const char *row_name[ROW_MAX];
    double row_value[ROW_MAX];
};

struct scanner *scanner_new(metrics_row_fn *row, void *arg)
{
    struct scanner *s = mem_zalloc(sizeof *s);

    if (s) {
        s->row = row;
        s->arg = arg;
    }
    return s;
}

void scanner_free(struct scanner *s)
{
    for (int i = 0; s && i < NAMES_MAX; i++)
        mem_free(s->name[i]);
    mem_free(s);
}

int64_t scanner_bad(const struct scanner *s)
{
    return s->bad;
}

static const char *intern(struct scanner *s, const char *text, size_t n)
{
    uint64_t h = hash_fnv64(FNV64_INIT, text, n);

    for (int i = 0; i < NAMES_MAX; i++) {
        char **slot = &s->name[(h + (uint64_t)i) % NAMES_MAX];
        if (*slot && strncmp(*slot, text, n) == 0 && (*slot)[n] == 0)
            return *slot;
        if (!*slot) {
            if (s->n_names >= NAMES_MAX / 2)
                return NULL;
            *slot = mem_strndup(text, n);
            s->n_names += *slot != NULL;
            return *slot;
        }
    }
    return NULL;
}

static const char *spaces(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

/* A string without escapes: our names and our three words have none. */
static const char *string(const char *p, const char *end, const char **text, size_t *n)
{
    const char *q;

    if (p == end || *p != '"')
        return NULL;
    for (q = p + 1; q < end && *q != '"'; q++)
        if (*q == '\\' || (unsigned char)*q < 0x20)
            return NULL;
    if (q == end)
        return NULL;
    *text = p + 1;
    *n = (size_t)(q - p - 1);
    return q + 1;
}

static const char *value(const char *p, const char *end, double *out)
{
    const char *text = p;
    size_t n;

    if (p < end && *p == '"') {
        p = string(p, end, &text, &n);
        if (!p)
            return NULL;
        if (n == 3 && memcmp(text, "nan", 3) == 0)
            *out = NAN;
        else if (n == 3 && memcmp(text, "inf", 3) == 0)
            *out = INFINITY;
        else if (n == 4 && memcmp(text, "-inf", 4) == 0)
            *out = -INFINITY;
        else
            return NULL;
        return p;
    }
    while (p < end && ((*p >= '0' && *p <= '9') || *p == '-' || *p == '+' || *p == '.' ||
                       *p == 'e' || *p == 'E'))
        p++;
    return str_to_double(text, (size_t)(p - text), out) ? p : NULL;
}

static bool keep(struct scanner *s, struct metrics_row *r, int at, const char *name, size_t n,
                 double v)
{
    static const char *const first[] = {"step", "epoch", "t", "seg"};

    if (at < 4) { /* the first four keys, in this order */
        if (strlen(first[at]) != n || memcmp(first[at], name, n) != 0)
            return false;
        if (at == 0 && !(v >= 0 && v < 9.1e18 && v == floor(v)))
            return false;
        if (at == 3 && !(v >= 0 && v < 2e9 && v == floor(v)))
            return false;
        if (at == 0)
            r->step = (int64_t)v;
        else if (at == 1)
            r->epoch = v;
        else if (at == 2)
            r->t = v;
        else
            r->seg = (int)v;
        return true;
    }
    if (n > NAME_LEN || r->n == ROW_MAX)
        return false;
    s->row_name[r->n] = intern(s, name, n);
    s->row_value[r->n] = v;
    return s->row_name[r->n++] != NULL;
}

static bool scan_row(struct scanner *s, const char *p, const char *end, struct metrics_row *r)
{
    int at = 0;

    p = spaces(p, end);
    if (p == end || *p++ != '{')
        return false;
    for (;;) {
        const char *name;
        size_t n;
        double v;

        p = string(spaces(p, end), end, &name, &n);
        if (!p)
            return false;
        p = spaces(p, end);
        if (p == end || *p++ != ':')
            return false;
        p = value(spaces(p, end), end, &v);
        if (!p || !keep(s, r, at++, name, n, v))
            return false;
        p = spaces(p, end);
        if (p < end && *p == ',') {
            p++;
            continue;
        }
        return p < end && *p == '}' && spaces(p + 1, end) == end && at >= 4;
    }
}

void scanner_line(struct scanner *s, const char *line, size_t n)
{
    struct metrics_row r = {.name = s->row_name, .value = s->row_value};

    if (spaces(line, line + n) == line + n)
        return;
    if (scan_row(s, line, line + n, &r))
        s->row(s->arg, &r);
    else
        s->bad++;
}

enum err_code metrics_read(const char *run_path, metrics_row_fn *row, void *arg, int64_t *torn,
                           int64_t *bad, struct err *e)
{
    char *path = fs_join(run_path, "metrics.jsonl"), *buf = mem_alloc(CHUNK);
    struct scanner *s = scanner_new(row, arg);
    int fd = path && buf && s ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t have = 0;
    ssize_t n = 0;
    bool inside = false; /* a line longer than any of ours, whose beginning is gone */
    enum err_code rc = ERR_OK;

    *torn = *bad = 0;
    if (!path || !buf || !s)
        rc = err_set(e, ERR_NOMEM, "metrics: out of memory");
    else if (fd < 0)
        rc = errno == ENOENT ? ERR_OK : err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    while (fd >= 0 && (n = read(fd, buf + have, CHUNK - have)) > 0) {
        size_t from = 0;
        char *nl;

        have += (size_t)n;
        while ((nl = memchr(buf + from, '\n', have - from))) {
            if (!inside)
                scanner_line(s, buf + from, (size_t)(nl - buf) - from);
            inside = false;
            from = (size_t)(nl - buf) + 1;
        }
        memmove(buf, buf + from, have - from);
        have -= from;
        if (have == CHUNK) {
            s->bad += !inside;
            inside = true;
            have = 0;
        }
    }
    if (n < 0)
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    *torn = have > 0 || inside;
    *bad = s ? s->bad : 0;
    if (fd >= 0)
        close(fd);
    scanner_free(s);
    mem_free(buf);
    mem_free(path);
    return rc;
}
