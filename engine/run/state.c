/* state.c - state.json. */
#define _GNU_SOURCE /* F_OFD_GETLK */
#include "engine/run/state.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/clock.h"
#include "engine/base/fsio.h"
#include "engine/base/json.h"

enum { STATE_MAX = 1 << 16 };

static void first_line(const char *path, char *buf, size_t cap)
{
    char *text;
    size_t len;

    buf[0] = 0;
    if (fs_read_file(path, 4096, ERR_IO, &text, &len, NULL) != ERR_OK)
        return;
    text[strcspn(text, "\n")] = 0;
    snprintf(buf, cap, "%s", text);
    mem_free(text);
}

/* Field 22 of /proc/self/stat; the name in field 2 may hold anything, so it is counted from its
 * last ')'. */
static int64_t own_start_time(void)
{
    char line[1024], *at;

    first_line("/proc/self/stat", line, sizeof line);
    at = strrchr(line, ')');
    for (int i = 2; at && i < 22; i++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return at ? strtoll(at, NULL, 10) : 0;
}

void run_state_init(struct run_state *s)
{
    memset(s, 0, sizeof *s);
    snprintf(s->state, sizeof s->state, "new");
    s->pid = getpid();
    s->start_time = own_start_time();
    if (gethostname(s->host, sizeof s->host - 1) < 0)
        snprintf(s->host, sizeof s->host, "?");
    first_line("/proc/sys/kernel/random/boot_id", s->boot_id, sizeof s->boot_id);
    s->started = s->updated = clock_wall();
}

void run_state_value(struct run_state *s, const char *name, double value)
{
    for (int i = 0; i < s->n_last; i++)
        /* a name too long is kept cut: it must still be found, or state.json has it twice */
        if (strncmp(s->last[i].name, name, sizeof s->last[i].name - 1) == 0) {
            s->last[i].value = value;
            return;
        }
    if (s->n_last == RUN_VALUES)
        return;
    snprintf(s->last[s->n_last].name, sizeof s->last[0].name, "%s", name);
    s->last[s->n_last++].value = value;
}

static void put_body(struct str *s, const struct run_state *st)
{
    json_put_int(s, "format", RUN_STATE_FORMAT);
    json_put_text(s, "state", st->state);
    json_put_int(s, "step", st->step);
    json_put_int(s, "steps", st->steps);
    json_put_number(s, "epoch", st->epoch);
    json_put_number(s, "t", st->t);
    json_key(s, "last");
    json_begin(s);
    for (int i = 0; i < st->n_last; i++)
        json_put_number(s, st->last[i].name, st->last[i].value);
    json_end(s);
    if (st->has_best) {
        json_key(s, "best");
        json_begin(s);
        json_put_text(s, "metric", st->best.name);
        json_put_number(s, "value", st->best.value);
        json_put_int(s, "step", st->best_step);
        json_end(s);
    }
    json_put_int(s, "pid", st->pid);
    json_put_int(s, "start_time", st->start_time);
    json_put_text(s, "host", st->host);
    json_put_text(s, "boot_id", st->boot_id);
    json_put_number(s, "started", st->started);
    json_put_number(s, "updated", st->updated);
    json_put_text(s, "device", st->device);
    json_put_int(s, "exit_code", st->exit_code);
    json_put_text(s, "reason", st->reason);
}

enum err_code run_state_write(const char *run_path, const struct run_state *st, struct err *e)
{
    struct str s = {0};
    enum err_code rc;

    json_begin(&s);
    put_body(&s, st);
    json_end(&s);
    str_addc(&s, '\n');
    rc = s.oom ? err_set(e, ERR_NOMEM, "state.json: out of memory")
               : fs_replace_quick(run_path, "state.json", s.s, s.len, e);
    str_release(&s);
    return rc;
}

/* ---- reading ---- */

/* Numbers, and the strings that stand for those JSON has not. */
static double number(const json_t *v, double other)
{
    const char *s;

    if (json_is_number(v))
        return json_number_value(v);
    s = json_string_value(v);
    if (!s)
        return other;
    return strcmp(s, "nan") == 0    ? NAN
           : strcmp(s, "inf") == 0  ? INFINITY
           : strcmp(s, "-inf") == 0 ? -INFINITY
                                    : other;
}

static int64_t integer(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : 0;
}

static void text(const json_t *o, const char *key, char *buf, size_t cap)
{
    const char *s = json_string_value(json_object_get(o, key));
    snprintf(buf, cap, "%s", s ? s : "");
}

static void take_body(const json_t *o, struct run_state *st)
{
    const json_t *best = json_object_get(o, "best");
    json_t *last = json_object_get(o, "last"), *v;
    const char *key;

    text(o, "state", st->state, sizeof st->state);
    st->step = integer(o, "step");
    st->steps = integer(o, "steps");
    st->epoch = number(json_object_get(o, "epoch"), 0);
    st->t = number(json_object_get(o, "t"), 0);
    json_object_foreach(last, key, v) run_state_value(st, key, number(v, NAN));
    if (json_is_object(best)) {
        st->has_best = true;
        text(best, "metric", st->best.name, sizeof st->best.name);
        st->best.value = number(json_object_get(best, "value"), NAN);
        st->best_step = integer(best, "step");
    }
    st->pid = integer(o, "pid");
    st->start_time = integer(o, "start_time");
    text(o, "host", st->host, sizeof st->host);
    text(o, "boot_id", st->boot_id, sizeof st->boot_id);
    st->started = number(json_object_get(o, "started"), 0);
    st->updated = number(json_object_get(o, "updated"), 0);
    text(o, "device", st->device, sizeof st->device);
    st->exit_code = (int)integer(o, "exit_code");
    text(o, "reason", st->reason, sizeof st->reason);
}

/* Is the run's lock held? Unknown (no lock file, no locks here) counts as not. */
static bool lock_held(const char *run_path)
{
    char path[PATH_MAX];
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int n = snprintf(path, sizeof path, "%s/lock", run_path), fd;
    bool held;

    if (n < 0 || (size_t)n >= sizeof path)
        return false;
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        /* somebody else's run, read only: ask for a read lock instead */
        fd = open(path, O_RDONLY | O_CLOEXEC);
        fl.l_type = F_RDLCK;
    }
    held = fd >= 0 && fcntl(fd, F_OFD_GETLK, &fl) == 0 && fl.l_type != F_UNLCK;
    if (fd >= 0)
        close(fd);
    return held;
}

static bool is_alive(const char *state)
{
    static const char *const alive[] = {"new", "ready", "running", "saving", "paused", "resting"};

    for (size_t i = 0; i < sizeof alive / sizeof *alive; i++)
        if (strcmp(state, alive[i]) == 0)
            return true;
    return false;
}

enum err_code run_state_read(const char *run_path, struct run_state *out, struct err *e)
{
    char *path = fs_join(run_path, "state.json"), *json = NULL;
    json_t *o = NULL;
    json_error_t je;
    size_t len;
    enum err_code rc;

    memset(out, 0, sizeof *out);
    if (!path)
        return err_set(e, ERR_NOMEM, "state.json: out of memory");
    rc = fs_read_file(path, STATE_MAX, ERR_CORRUPT, &json, &len, e);
    if (rc != ERR_OK)
        goto out;
    o = json_loadb(json, len, JSON_REJECT_DUPLICATES, &je);
    if (integer(o, "format") <= RUN_STATE_FORMAT &&
        (integer(o, "format") < 1 || !json_is_string(json_object_get(o, "state")))) {
        rc = err_set(e, ERR_CORRUPT, "%s: is no state of a run%s%s", path, o ? "" : ": ",
                     o ? "" : je.text);
    } else if (integer(o, "format") > RUN_STATE_FORMAT) {
        rc = err_set(e, ERR_CORRUPT,
                     "%s: was written by a newer cupola (format %lld, this one reads up to %d)",
                     path, (long long)integer(o, "format"), RUN_STATE_FORMAT);
    } else {
        take_body(o, out);
        if (is_alive(out->state) && !lock_held(run_path)) {
            snprintf(out->state, sizeof out->state, "crashed");
            snprintf(out->reason, sizeof out->reason,
                     "no end was recorded and no trainer holds the lock");
        }
    }
out:
    json_decref(o);
    mem_free(json);
    mem_free(path);
    return rc;
}
