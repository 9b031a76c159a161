/* loader.c - batches read ahead. See loader.h.
 *
 * A slot is one batch's memory and goes round
 *   FREE -> FILLING (the thread's alone) -> READY -> HELD (the caller's, until loader_done) ->
 * FREE. States, the guess and the flags are under the mutex; buffers belong to whom the state says.
 * A wrong guess makes READY slots FREE again and marks the one being filled stale. */
#include "engine/data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/clock.h"
#include "engine/data/shuffle.h"

#define AHEAD_MAX 16

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_HELD };

/* Where a batch begins and how long it is. */
struct span {
    int64_t epoch, first, n;
};

struct slot {
    enum slot_state state;
    bool stale; /* being filled for a guess that turned out wrong */
    struct span span;
    int64_t cap;              /* samples there is room for */
    int64_t *ids;             /* [cap], owned */
    void *field[DATA_FIELDS]; /* [cap][elements], owned */
    struct err err;           /* code ERR_OK, or why the batch could not be made */
};

struct loader {
    struct loader_opts o; /* wants: owned */
    int64_t count;
    size_t sample_bytes[DATA_FIELDS];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* for the thread; for the caller */
    bool stop;
    bool guessing;    /* next is worth preparing */
    struct span next; /* the batch to make next; its n before the epoch's end cuts it is base */
    int64_t base;     /* the batch size asked for last */
    int n_slots, n_held, n_ahead; /* n_ahead: slots READY or FILLING and not stale */
    struct slot slot[2 * AHEAD_MAX];
};

/* ---- one batch ---- */

static bool slot_reserve(const struct loader *l, struct slot *s, int64_t n)
{
    size_t bytes;

    if (n <= s->cap)
        return true;
    mem_free(s->ids);
    s->cap = 0;
    s->ids = mem_array((size_t)n, sizeof *s->ids);
    if (!s->ids)
        return false;
    for (int i = 0; i < l->o.n_wants; i++) {
        mem_free(s->field[i]);
        s->field[i] = NULL;
        if (__builtin_mul_overflow((size_t)n, l->sample_bytes[i], &bytes) ||
            !(s->field[i] = mem_aligned(bytes)))
            return false;
    }
    s->cap = n;
    return true;
}

static void slot_fill(const struct loader *l, struct slot *s)
{
    struct shuffle order;

    s->err.code = ERR_OK;
    if (!slot_reserve(l, s, s->span.n)) {
        err_set(&s->err, ERR_NOMEM, "out of memory for a batch of %lld samples",
                (long long)s->span.n);
        return;
    }
    shuffle_init(&order, l->o.seed, s->span.epoch, l->count);
    for (int64_t i = 0; i < s->span.n; i++)
        s->ids[i] = l->o.shuffle ? shuffle_at(&order, s->span.first + i) : s->span.first + i;
    for (int i = 0; i < l->o.n_wants && s->err.code == ERR_OK; i++)
        data_gather(l->o.set, &l->o.wants[i], s->ids, s->span.n, s->field[i], &s->err);
}

/* ---- the guess; all under the lock ---- */

/* What follows a batch when the size stays: the epoch's end cuts it, and drop_last leaves out what
 * is cut. */
static void guess_after(struct loader *l, struct span done)
{
    struct span next = {done.epoch, done.first + done.n, l->base};

    l->guessing = true;
    if (next.first >= l->count || (l->o.drop_last && l->base > l->count - next.first)) {
        next.epoch++;
        next.first = 0;
    }
    if (next.n > l->count - next.first) {
        next.n = l->count - next.first;
        l->guessing = !l->o.drop_last; /* else the set is smaller than a batch */
    }
    l->next = next;
}

static bool span_equal(struct span a, struct span b)
{
    return a.epoch == b.epoch && a.first == b.first && a.n == b.n;
}

static struct slot *slot_of(struct loader *l, struct span want)
{
    for (int i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slot[i];
        if ((s->state == SLOT_READY || (s->state == SLOT_FILLING && !s->stale)) &&
            span_equal(s->span, want))
            return s;
    }
    return NULL;
}

static struct slot *slot_free(struct loader *l)
{
    for (int i = 0; i < l->n_slots; i++)
        if (l->slot[i].state == SLOT_FREE)
            return &l->slot[i];
    return NULL;
}

static void forget_guesses(struct loader *l)
{
    for (int i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slot[i];
        if (s->state == SLOT_READY)
            s->state = SLOT_FREE;
        else if (s->state == SLOT_FILLING)
            s->stale = true;
    }
    l->n_ahead = 0;
}

/* The caller has passed over some guesses: they will not be asked for, and their slots are needed.
 */
static void forget_before(struct loader *l, struct span want)
{
    for (int i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slot[i];
        bool earlier = s->span.epoch < want.epoch ||
                       (s->span.epoch == want.epoch && s->span.first < want.first);
        if (!earlier || s->state != SLOT_READY)
            continue;
        s->state = SLOT_FREE;
        l->n_ahead--;
    }
}

/* The request is none of the guesses: begin again from it. */
static void guess_again(struct loader *l, struct span want)
{
    forget_guesses(l);
    l->next = want;
    l->guessing = true;
    pthread_cond_signal(&l->work);
}

/* ---- the thread ---- */

static void *loader_main(void *arg)
{
    struct loader *l = arg;
    struct slot *s;

    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && (!l->guessing || l->n_ahead >= l->o.ahead || !(s = slot_free(l))))
            pthread_cond_wait(&l->work, &l->lock);
        if (l->stop)
            break;
        s->state = SLOT_FILLING;
        s->stale = false;
        s->span = l->next;
        l->n_ahead++;
        guess_after(l, s->span);
        pthread_mutex_unlock(&l->lock);
        slot_fill(l, s);
        pthread_mutex_lock(&l->lock);
        s->state = s->stale ? SLOT_FREE : SLOT_READY;
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- public ---- */

static enum err_code check_opts(const struct loader_opts *o, struct err *e)
{
    const struct data_field *f;
    int n_fields = data_fields(o->set, &f);

    if (data_count(o->set) < 1)
        return err_set(e, ERR_DATA, "the data set has no samples");
    if (o->ahead < 1 || o->ahead > AHEAD_MAX || o->n_wants < 1 || o->n_wants > DATA_FIELDS ||
        o->max_batch < 1)
        return err_set(e, ERR_INTERNAL, "loader: %d batches of %lld samples and %d fields ahead",
                       o->ahead, (long long)o->max_batch, o->n_wants);
    for (int i = 0; i < o->n_wants; i++)
        if (o->wants[i].field < 0 || o->wants[i].field >= n_fields)
            return err_set(e, ERR_INTERNAL, "loader: no field %d among %d", o->wants[i].field,
                           n_fields);
    return ERR_OK;
}

static bool sample_sizes(struct loader *l)
{
    const struct data_field *fields;

    data_fields(l->o.set, &fields);
    for (int i = 0; i < l->o.n_wants; i++) {
        const struct data_field *f = &fields[l->o.wants[i].field];
        l->sample_bytes[i] = (size_t)dtype_size(l->o.wants[i].dtype);
        for (int k = 0; k < f->rank; k++)
            if (__builtin_mul_overflow(l->sample_bytes[i], (size_t)f->dim[k], &l->sample_bytes[i]))
                return false;
    }
    return true;
}

static bool take_memory(struct loader *l)
{
    int64_t n = l->o.max_batch < l->count ? l->o.max_batch : l->count;
    struct data_want *wants = mem_array((size_t)l->o.n_wants, sizeof *wants);

    if (!wants)
        return false;
    memcpy(wants, l->o.wants, (size_t)l->o.n_wants * sizeof *wants);
    l->o.wants = wants;
    if (!sample_sizes(l))
        return false;
    for (int i = 0; i < l->n_slots; i++)
        if (!slot_reserve(l, &l->slot[i], n))
            return false;
    return true;
}

static void give_memory(struct loader *l)
{
    for (int i = 0; i < l->n_slots; i++) {
        mem_free(l->slot[i].ids);
        for (int k = 0; k < l->o.n_wants; k++)
            mem_free(l->slot[i].field[k]);
    }
    mem_free((void *)l->o.wants);
    mem_free(l);
}

/* Signals are for the threads that know what to do with them: this one takes none. */
static int start_thread(struct loader *l)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&l->thread, NULL, loader_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

enum err_code loader_new(const struct loader_opts *o, struct loader **out, struct err *e)
{
    enum err_code rc = check_opts(o, e);
    struct loader *l;
    int failed;

    if (rc != ERR_OK)
        return rc;
    l = mem_zalloc(sizeof *l);
    if (!l)
        return err_set(e, ERR_NOMEM, "out of memory for the loader");
    l->o = *o;
    l->count = data_count(o->set);
    l->n_slots = 2 * o->ahead; /* as many held as are being prepared */
    if (!take_memory(l)) {
        if (l->o.wants == o->wants)
            l->o.wants = NULL;
        give_memory(l);
        return err_set(e, ERR_NOMEM, "out of memory for %d batches of %lld samples", 2 * o->ahead,
                       (long long)o->max_batch);
    }
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    failed = start_thread(l);
    if (failed) {
        give_memory(l);
        return err_set(e, ERR_NOMEM, "cannot start the loader's thread: %s", strerror(failed));
    }
    *out = l;
    return ERR_OK;
}

void loader_free(struct loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    give_memory(l);
}

/* Waits under the lock until the wanted batch is READY. */
static struct slot *wait_for(struct loader *l, struct span want, double *waited)
{
    struct slot *s = slot_of(l, want);
    double begin;

    if (s && s->state == SLOT_READY)
        return s;
    begin = clock_now();
    if (!s)
        guess_again(l, want);
    while (!(s = slot_of(l, want)) || s->state != SLOT_READY)
        pthread_cond_wait(&l->ready, &l->lock);
    if (waited)
        *waited += clock_now() - begin;
    return s;
}

static enum err_code hand_out(struct loader *l, struct slot *s, struct loader_batch *out,
                              struct err *e)
{
    l->n_ahead--;
    if (s->err.code != ERR_OK) {
        s->state = SLOT_FREE;
        forget_guesses(l); /* what follows is made anew, so that a request can be tried again */
        l->guessing = false;
        return err_set(e, s->err.code, "%s", s->err.msg);
    }
    s->state = SLOT_HELD;
    l->n_held++;
    *out = (struct loader_batch){
        .epoch = s->span.epoch, .first = s->span.first, .n = s->span.n, .slot = (int)(s - l->slot)};
    memcpy(out->field, s->field, sizeof out->field);
    return ERR_OK;
}

/* The size to guess with. A batch that ends with the epoch may be short: it says nothing new. */
static void learn_base(struct loader *l, struct span want)
{
    if (want.first + want.n < l->count || want.n > l->base)
        l->base = want.n;
}

enum err_code loader_get(struct loader *l, int64_t epoch, int64_t first, int64_t n,
                         struct loader_batch *out, double *waited, struct err *e)
{
    struct span want = {epoch, first, n};
    struct slot *s;
    enum err_code rc;

    if (epoch < 0 || n < 1 || first < 0 || first >= l->count || n > l->count - first)
        return err_set(e, ERR_INTERNAL,
                       "loader: samples %lld .. +%lld of epoch %lld; an epoch has %lld",
                       (long long)first, (long long)n, (long long)epoch, (long long)l->count);
    pthread_mutex_lock(&l->lock);
    if (l->n_held >= l->o.ahead) {
        rc = err_set(e, ERR_INTERNAL, "loader: %d batches are held already", l->n_held);
    } else {
        learn_base(l, want);
        s = wait_for(l, want, waited);
        forget_before(l, want);
        rc = hand_out(l, s, out, e);
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void loader_done(struct loader *l, const struct loader_batch *b)
{
    pthread_mutex_lock(&l->lock);
    if (b->slot >= 0 && b->slot < l->n_slots && l->slot[b->slot].state == SLOT_HELD) {
        l->slot[b->slot].state = SLOT_FREE;
        l->n_held--;
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
}
