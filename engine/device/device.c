/* device.c - opening backends. */
#include "engine/device/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"

static bool plugin_at(char *path, size_t cap, const char *dir, const char *between,
                      const char *name)
{
    int n = snprintf(path, cap, "%s%s/cupola_%s.so", dir, between, name);
    return n > 0 && (size_t)n < cap && fs_exists(path);
}

static bool plugin_path(char *path, size_t cap, const char *name)
{
    const char *env = getenv("CUPOLA_PLUGIN_DIR");
    char dir[4096];

    if (env && *env)
        return plugin_at(path, cap, env, "", name);
    fs_program_dir(dir, sizeof dir);
    return plugin_at(path, cap, dir, "", name) || plugin_at(path, cap, dir, "/../lib/cupola", name);
}

enum err_code device_err(enum kern_status st, const struct kern_err *ke, const char *what,
                         struct err *e)
{
    if (st == KERN_OK)
        return ERR_OK;
    return err_set(e, st == KERN_ENOMEM ? ERR_NOMEM : ERR_DEVICE, "%s: %s", what,
                   *ke->msg ? ke->msg : "failed");
}

static enum err_code load(struct device *d, const char *name, struct err *e)
{
    const struct kern_backend *(*entry)(uint32_t);
    char path[4400];

    if (!plugin_path(path, sizeof path, name))
        return err_set(e, ERR_DEVICE,
                       "device %s: cupola_%s.so not found beside the program, in ../lib/cupola or "
                       "in CUPOLA_PLUGIN_DIR",
                       name, name);
    d->plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!d->plugin)
        return err_set(e, ERR_DEVICE, "device %s: %s", name, dlerror());
    *(void **)&entry = dlsym(d->plugin, "cupola_backend");
    if (!entry)
        return err_set(e, ERR_DEVICE, "device %s: %s exports no cupola_backend", name, path);
    d->be = entry(KERN_ABI);
    if (!d->be || d->be->abi != KERN_ABI || d->be->size != sizeof *d->be)
        return err_set(e, ERR_DEVICE,
                       "device %s: %s is of another version of cupola (ABI %u is needed)", name,
                       path, KERN_ABI);
    return ERR_OK;
}

enum err_code device_open(const struct device_opts *o, struct device **out, struct err *e)
{
    bool automatic = strcmp(o->want, "auto") == 0;
    const char *name = automatic ? "cpu" : o->want;
    struct kern_devopts ko = {.threads = o->threads, .poison = o->poison};
    struct device *d = mem_zalloc(sizeof *d);
    struct kern_err ke = {0};
    enum err_code rc;

    *out = NULL;
    if (!d)
        return err_set(e, ERR_NOMEM, "device: out of memory");
    /* The pool is ours: a second team of threads inside the libraries would fight it. Read at their
     * load. */
    setenv("OMP_NUM_THREADS", "1", 1);
    rc = load(d, name, e);
    if (rc == ERR_OK)
        rc = device_err(d->be->open(0, &ko, &d->dev, &ke), &ke, name, e);
    if (rc != ERR_OK) {
        device_free(d);
        return rc;
    }
    d->name = d->be->name;
    if (automatic)
        snprintf(d->why, sizeof d->why, "auto: this version trains on the CPU");
    else
        snprintf(d->why, sizeof d->why, "as asked");
    d->be->describe(d->dev, d->describe, sizeof d->describe);
    *out = d;
    return ERR_OK;
}

void device_free(struct device *d)
{
    if (!d)
        return;
    if (d->dev)
        d->be->close(d->dev);
    /* The plugin stays loaded: oneDNN's and OpenMP's threads and atexit handlers would outlive
     * their code. */
    mem_free(d);
}

struct device_opening {
    struct device_opts opts;
    char want[32];
    pthread_t thread;
    struct device *d;
    struct err e;
    enum err_code rc;
};

static void *open_thread(void *arg)
{
    struct device_opening *o = arg;
    o->rc = device_open(&o->opts, &o->d, &o->e);
    return NULL;
}

struct device_opening *device_open_begin(const struct device_opts *opts)
{
    struct device_opening *o = mem_zalloc(sizeof *o);

    if (!o)
        return NULL;
    o->opts = *opts;
    snprintf(o->want, sizeof o->want, "%s", opts->want);
    o->opts.want = o->want;
    if (pthread_create(&o->thread, NULL, open_thread, o) != 0) {
        mem_free(o);
        return NULL;
    }
    return o;
}

enum err_code device_open_finish(struct device_opening *o, struct device **out, struct err *e)
{
    enum err_code rc;

    pthread_join(o->thread, NULL);
    rc = o->rc;
    if (rc != ERR_OK)
        err_set(e, rc, "%s", o->e.msg);
    if (out)
        *out = o->d;
    else
        device_free(o->d);
    mem_free(o);
    return rc;
}

/* ---- memory ---- */

enum err_code device_mem_new(const struct device *d, int64_t bytes, struct device_mem *out,
                             struct err *e)
{
    struct kern_err ke = {0};

    *out = (struct device_mem){.d = d, .bytes = bytes};
    return device_err(
        d->be->mem_new(d->dev, KERN_DEVICE, bytes > 0 ? bytes : KERN_ALIGN, &out->mem, &ke), &ke,
        "memory", e);
}

void device_mem_free(struct device_mem *m)
{
    if (m->mem)
        m->d->be->mem_free(m->mem);
    *m = (struct device_mem){0};
}

static bool outside(const struct device_mem *m, int64_t offset, enum dtype t, int64_t count)
{
    int64_t bytes, end;
    return offset < 0 || count < 0 ||
           __builtin_mul_overflow(count, (int64_t)dtype_size(t), &bytes) ||
           __builtin_add_overflow(offset, bytes, &end) || end > m->bytes;
}

enum err_code device_put(const struct device_mem *m, int64_t offset, enum dtype t, int64_t count,
                         const void *src, struct err *e)
{
    struct kern_err ke = {0};

    if (outside(m, offset, t, count))
        return err_set(e, ERR_INTERNAL, "copy to device: %lld elements at %lld pass the end",
                       (long long)count, (long long)offset);
    return device_err(m->d->be->copy_in(m->mem, offset, t, count, src, &ke), &ke, "copy to device",
                      e);
}

enum err_code device_get(const struct device_mem *m, int64_t offset, enum dtype t, int64_t count,
                         void *dst, struct err *e)
{
    struct kern_err ke = {0};

    if (outside(m, offset, t, count))
        return err_set(e, ERR_INTERNAL, "copy from device: %lld elements at %lld pass the end",
                       (long long)count, (long long)offset);
    return device_err(m->d->be->copy_out(m->mem, offset, t, count, dst, &ke), &ke,
                      "copy from device", e);
}

enum err_code device_zero(const struct device_mem *m, struct err *e)
{
    struct kern_err ke = {0};
    return device_err(m->d->be->fill_zero(m->mem, 0, m->bytes, &ke), &ke, "fill", e);
}

enum err_code device_sync(const struct device *d, struct err *e)
{
    struct kern_event *ev = NULL;
    struct kern_err ke = {0};
    enum kern_status st = d->be->event_new(d->dev, &ev, &ke);

    if (st == KERN_OK)
        st = d->be->event_record(ev, &ke);
    if (st == KERN_OK)
        st = d->be->event_wait(ev, -1, &ke);
    d->be->event_free(ev);
    return device_err(st, &ke, "device", e);
}
