/* device.h - a backend plugin, opened, and the device in it.
 *
 * The program links no compute library: loading oneDNN costs 40 ms, so it happens on a thread of
 * its own while the config, the data and the model are read. kernels.h describes what an open
 * device can do. */
#ifndef DEVICE_H
#define DEVICE_H

#include "engine/base/err.h"
#include "kernels/kernels.h"

struct device {
    const struct kern_backend *be;
    struct kern_dev *dev;
    void *plugin;       /* dlopen handle */
    const char *name;   /* "cpu", "ref": the backend's */
    char why[256];      /* why this one: "auto: no CUDA plugin here, so the CPU" */
    char describe[256]; /* the backend's line on itself */
};

struct device_opts {
    const char *want; /* "auto", "cpu", "ref" */
    int threads;      /* 0: the backend chooses */
    bool poison;
};

/* Plugins are looked for in $CUPOLA_PLUGIN_DIR, beside the program, and in ../lib/cupola from it.
 */
enum err_code device_open(const struct device_opts *o, struct device **out, struct err *e);
void device_free(struct device *d); /* NULL is a no-op */

/* The same on a thread: begin early, finish when the device is needed. finish always ends the
 * thread and frees the opening; with out NULL the device is closed again (an error elsewhere came
 * first). */
struct device_opening;
struct device_opening *
device_open_begin(const struct device_opts *o); /* NULL: no memory or thread */
enum err_code device_open_finish(struct device_opening *o, struct device **out, struct err *e);

/* A backend's status as an error of ours: KERN_ENOMEM is ERR_NOMEM, the rest ERR_DEVICE. */
enum err_code device_err(enum kern_status st, const struct kern_err *ke, const char *what,
                         struct err *e);

/* Memory of the device that knows its size. */
struct device_mem {
    const struct device *d;
    struct kern_mem *mem;
    int64_t bytes;
};
enum err_code device_mem_new(const struct device *d, int64_t bytes, struct device_mem *out,
                             struct err *e);
void device_mem_free(struct device_mem *m);
/* Enqueues, checked against the size. */
enum err_code device_put(const struct device_mem *m, int64_t offset, enum dtype t, int64_t count,
                         const void *src, struct err *e);
enum err_code device_get(const struct device_mem *m, int64_t offset, enum dtype t, int64_t count,
                         void *dst, struct err *e);
enum err_code device_zero(const struct device_mem *m, struct err *e);
/* Waits until everything enqueued so far is done. */
enum err_code device_sync(const struct device *d, struct err *e);

#endif
