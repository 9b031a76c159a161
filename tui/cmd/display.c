/* display.c - the drawing thread of `cupola train`. */
#include "tui/cmd/display.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/clock.h"
#include "engine/base/fsio.h"
#include "engine/base/json.h"
#include "engine/base/ring.h"
#include "tui/progress.h"

enum { VALUES = 24, SLOTS = 512, LINE_SECONDS = 5 };

/* A copy of what the trainer said: a row, or a message. */
struct item {
    bool is_row;
    int64_t step;
    double epoch, t;
    int seg;
    bool is_eval;
    int n;
    struct {
        char name[64];
        double value;
    } v[VALUES];
    char message[512];
};

struct display {
    enum display_kind kind;
    int out_fd, err_fd, wake;
    bool utf8;
    char run[256];
    int64_t steps;
    struct ring *ring;
    pthread_t thread;
    atomic_llong step;
    _Atomic double t;
    atomic_bool gone, ending;
    atomic_int dropped;
    char end_state[16]; /* written before `ending` is set */

    /* the drawing thread's own */
    struct progress progress;
    struct series *train, *valid;
    struct progress_value values[VALUES];
    char names[VALUES][64];
    int n_values;
    double epoch, rate, begin, last_line;
    bool news; /* since the last line */
    char state[16];
};

void display_row_json(const struct train_row *row, struct str *out)
{
    json_begin(out);
    json_put_int(out, "step", row->step);
    json_put_number(out, "epoch", row->epoch);
    json_put_number(out, "t", row->t);
    json_put_int(out, "seg", row->seg);
    for (int i = 0; i < row->n; i++)
        json_put_number(out, row->metric[i].name, row->metric[i].value);
    json_end(out);
}

/* ---- the trainer's side ---- */

static void push(struct display *d, const struct item *it)
{
    uint64_t one = 1;

    if (!ring_push(d->ring, it))
        atomic_fetch_add(&d->dropped, 1);
    if (write(d->wake, &one, sizeof one) < 0)
        return; /* the thread looks by itself ten times a second */
}

void display_row(struct display *d, const struct train_row *row)
{
    struct item it = {.is_row = true,
                      .step = row->step,
                      .epoch = row->epoch,
                      .t = row->t,
                      .seg = row->seg,
                      .is_eval = row->is_eval};

    if (d->kind == DISPLAY_JSON) {
        struct str s = {0};
        display_row_json(row, &s);
        str_addc(&s, '\n');
        if (!s.oom && !atomic_load(&d->gone) && fs_write_all(d->out_fd, s.s, s.len) < 0)
            atomic_store(&d->gone, true);
        str_release(&s);
        return;
    }
    for (int i = 0; i < row->n && it.n < VALUES; i++) {
        snprintf(it.v[it.n].name, sizeof it.v[0].name, "%s", row->metric[i].name);
        it.v[it.n++].value = row->metric[i].value;
    }
    push(d, &it);
}

void display_tick(struct display *d, int64_t step, double t)
{
    atomic_store_explicit(&d->step, step, memory_order_relaxed);
    atomic_store_explicit(&d->t, t, memory_order_relaxed);
}

void display_message(struct display *d, const char *line)
{
    struct item it = {0};

    snprintf(it.message, sizeof it.message, "%s", line);
    push(d, &it);
}

void display_hangup(struct display *d)
{
    atomic_store(&d->gone, true);
}

/* ---- the drawing thread ---- */

static void emit(struct display *d, const struct str *s)
{
    if (s->oom || s->len == 0 || atomic_load(&d->gone))
        return;
    if (fs_write_all(d->err_fd, s->s, s->len) < 0)
        atomic_store(&d->gone, true); /* EIO, EPIPE: nobody looks any more */
}

/* Values on the display: losses, other metrics of the model, the learning rate. */
static bool is_shown(const char *name)
{
    return strncmp(name, "train.", 6) == 0 || strncmp(name, "valid.", 6) == 0 ||
           strcmp(name, "lr") == 0;
}

static void remember(struct display *d, const char *name, double value)
{
    int at = d->n_values;

    for (int i = 0; i < d->n_values; i++)
        if (strcmp(d->names[i], name) == 0)
            at = i;
    if (at == VALUES)
        return;
    snprintf(d->names[at], sizeof d->names[at], "%s", name);
    d->values[at] = (struct progress_value){d->names[at], value};
    if (at == d->n_values)
        d->n_values++;
}

static void take_row(struct display *d, const struct item *it)
{
    for (int i = 0; i < it->n; i++) {
        if (strcmp(it->v[i].name, "train.loss") == 0)
            series_append(d->train, (double)it->step, it->v[i].value);
        if (strcmp(it->v[i].name, "valid.loss") == 0)
            series_append(d->valid, (double)it->step, it->v[i].value);
        if (strcmp(it->v[i].name, "rate") == 0)
            d->rate = it->v[i].value;
        else if (is_shown(it->v[i].name))
            remember(d, it->v[i].name, it->v[i].value);
    }
    d->epoch = it->epoch;
    d->news = true;
}

static void make_view(struct display *d, struct progress_view *v)
{
    int64_t step = atomic_load_explicit(&d->step, memory_order_relaxed);
    double t = atomic_load_explicit(&d->t, memory_order_relaxed);

    *v = (struct progress_view){.run = d->run,
                                .state = d->state,
                                .step = step,
                                .steps = d->steps,
                                .epoch = d->epoch,
                                .values = d->values,
                                .n_values = d->n_values,
                                .rate = d->rate,
                                .elapsed_s = t,
                                .left_s =
                                    step >= 10 ? t / (double)step * (double)(d->steps - step) : NAN,
                                .train = d->train,
                                .valid = d->valid};
}

static void draw(struct display *d, bool last)
{
    struct progress_view v;
    struct str s = {0};
    double now = clock_now();

    make_view(d, &v);
    if (d->kind == DISPLAY_CHART && (last || progress_due(&d->progress, now))) {
        ansi_size(d->err_fd, &d->progress.cols, &d->progress.rows);
        progress_draw(&v, &d->progress, now, &s);
    } else if (d->kind == DISPLAY_LINES && d->news &&
               (last || now - d->last_line >= LINE_SECONDS)) {
        progress_format_line(&v, d->utf8, &s);
        d->last_line = now;
        d->news = false;
    }
    emit(d, &s);
    str_release(&s);
}

static void show_message(struct display *d, const char *text)
{
    struct str s = {0};

    if (d->kind == DISPLAY_CHART)
        progress_erase(&d->progress, &s);
    ansi_text(text, d->utf8, &s);
    str_addc(&s, '\n');
    emit(d, &s);
    str_release(&s);
}

static void *draw_thread(void *arg)
{
    struct display *d = arg;
    struct item *it = mem_alloc(sizeof *it);
    struct pollfd p = {.fd = d->wake, .events = POLLIN};
    bool ending = false;

    while (it && !ending) {
        uint64_t woken;

        poll(&p, 1, 100);
        if (p.revents & POLLIN && read(d->wake, &woken, sizeof woken) < 0)
            continue;
        ending =
            atomic_load(&d->ending); /* read before draining: what was pushed before it is drawn */
        if (ending)
            memcpy(d->state, d->end_state, sizeof d->state);
        while (ring_pop(d->ring, it)) {
            if (it->is_row)
                take_row(d, it);
            else
                show_message(d, it->message);
        }
        if (!atomic_load(&d->gone))
            draw(d, ending);
    }
    mem_free(it);
    return NULL;
}

struct display *display_new(enum display_kind kind, int out_fd, int err_fd, bool utf8,
                            const char *run, int64_t steps)
{
    struct display *d = mem_zalloc(sizeof *d);
    struct ansi_facts f;

    if (!d)
        return NULL;
    ansi_facts_of(err_fd, utf8, &f);
    d->kind = kind;
    d->out_fd = out_fd;
    d->err_fd = err_fd;
    d->utf8 = utf8;
    d->steps = steps;
    d->epoch = d->rate = NAN;
    d->begin = d->last_line = clock_now();
    d->progress = (struct progress){.mode = f.mode, .cols = f.cols, .rows = f.rows};
    snprintf(d->run, sizeof d->run, "%s", run);
    snprintf(d->state, sizeof d->state, "running");
    d->ring = ring_new(SLOTS, sizeof(struct item));
    d->train = series_new(0);
    d->valid = series_new(0);
    d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!d->ring || !d->train || !d->valid || d->wake < 0 ||
        pthread_create(&d->thread, NULL, draw_thread, d) != 0) {
        if (d->wake >= 0)
            close(d->wake);
        ring_free(d->ring);
        series_free(d->train);
        series_free(d->valid);
        mem_free(d);
        return NULL;
    }
    return d;
}

void display_free(struct display *d, const char *state)
{
    uint64_t one = 1;

    if (!d)
        return;
    snprintf(d->end_state, sizeof d->end_state, "%s", state); /* published by the store below */
    atomic_store(&d->ending, true);
    if (write(d->wake, &one, sizeof one) < 0)
        atomic_store(&d->ending, true);
    pthread_join(d->thread, NULL);
    close(d->wake);
    ring_free(d->ring);
    series_free(d->train);
    series_free(d->valid);
    mem_free(d);
}
