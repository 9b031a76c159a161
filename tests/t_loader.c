/* Batches come as asked for, whatever is read ahead. Run under tsan by `make check-tsan`. */
#include "engine/base/alloc.h"
#include "engine/base/str.h"
#include "engine/data/loader.h"
#include "engine/data/shuffle.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct data d;
static struct err e;

/* n samples: x = [i, -i], y = i. */
static int open_numbers(int n)
{
    struct config c = {.seed = 42};
    struct str text = {0};
    const char *tmp = getenv("TMPDIR");
    char dir[64], path[80];
    FILE *f = NULL;
    int rc;

    str_add(&text, "a,b,y\n");
    for (int i = 0; i < n; i++)
        str_addf(&text, "%d,%d,%d\n", i, -i, i);
    snprintf(dir, sizeof dir, "%.40s/t_loader.XXXXXX",
             tmp && *tmp && strlen(tmp) <= 40 ? tmp : "/tmp");
    if (mkdtemp(dir)) {
        snprintf(path, sizeof path, "%s/t.csv", dir);
        f = fopen(path, "w");
    }
    rc = f && fputs(text.s, f) >= 0;
    rc = f && fclose(f) == 0 && rc;
    c.data.train = path;
    c.data.target = "y";
    c.data.normalize = "none";
    data_release(&d);
    rc = rc && data_open(&c, &d, &e) == ERR_OK;
    unlink(path);
    rmdir(dir);
    str_release(&text);
    return rc;
}

static const struct data_want wants[] = {{0, DT_F32}, {1, DT_I32}};

static struct loader *make(int ahead, int64_t max_batch, bool shuffle, bool drop_last)
{
    struct loader_opts o = {.set = d.train,
                            .wants = wants,
                            .n_wants = 2,
                            .shuffle = shuffle,
                            .seed = 42,
                            .drop_last = drop_last,
                            .ahead = ahead,
                            .max_batch = max_batch};
    struct loader *l = NULL;

    return loader_new(&o, &l, &e) == ERR_OK ? l : NULL;
}

/* The batch is the samples it should be, in both fields, at aligned addresses. */
static int batch_right(const struct loader_batch *b, int64_t epoch, int64_t first, int64_t n,
                       bool shuffle)
{
    const float *x = b->field[0];
    const int32_t *y = b->field[1];
    struct shuffle order;
    int wrong = b->epoch != epoch || b->first != first || b->n != n || (uintptr_t)x % 64 ||
                (uintptr_t)y % 64;

    shuffle_init(&order, 42, epoch, data_count(d.train));
    for (int64_t i = 0; i < n; i++) {
        int64_t id = shuffle ? shuffle_at(&order, first + i) : first + i;
        wrong += y[i] != id || x[2 * i] != (float)id || x[2 * i + 1] != (float)-id;
    }
    return wrong == 0;
}

static int get_right(struct loader *l, int64_t epoch, int64_t first, int64_t n, bool shuffle)
{
    struct loader_batch b;
    int right;

    if (loader_get(l, epoch, first, n, &b, NULL, &e) != ERR_OK)
        return 0;
    right = batch_right(&b, epoch, first, n, shuffle);
    loader_done(l, &b);
    return right;
}

/* Three epochs in batches of n; the last of an epoch is short, or left out. */
static int epochs_right(int ahead, int64_t n, bool shuffle, bool drop_last)
{
    struct loader *l = make(ahead, n, shuffle, drop_last);
    int64_t count = data_count(d.train);
    int right = l != NULL;

    for (int64_t epoch = 0; right && epoch < 3; epoch++)
        for (int64_t at = 0; right && at < count; at += n) {
            int64_t left = count - at, take = left < n ? left : n;
            if (take == n || !drop_last)
                right = get_right(l, epoch, at, take, shuffle);
        }
    loader_free(l);
    return right;
}

static void test_order(void)
{
    static const int64_t sizes[] = {1, 3, 7, 64, 99, 100, 101, 300};
    int right = 1;

    for (int ahead = 1; ahead <= 16; ahead += 3)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            right &= epochs_right(ahead, sizes[i], true, false) &&
                     epochs_right(ahead, sizes[i], false, false) &&
                     epochs_right(ahead, sizes[i], true, true);
    ok(right,
       "three epochs are right for any batch and any number ahead, shuffled or not, whole or cut");
}

/* A request of any size anywhere, as live changes, rewinds and rollbacks make them. */
static void test_changes(void)
{
    struct loader *l = make(3, 8, true, false);
    uint64_t x = 88172645463325252u;
    int right = 1;

    for (int64_t i = 0, epoch = 0, at = 0, n = 8; i < 2000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        if (x % 5 == 0)
            n = 1 + (int64_t)(x >> 20) % 40;
        if (x % 17 == 0)
            at = (int64_t)(x >> 30) % 100;
        if (x % 41 == 0)
            epoch = (int64_t)(x >> 40) % 7;
        right &= get_right(l, epoch, at, at + n > 100 ? 100 - at : n, true);
        at += n;
        if (at >= 100)
            at = 0, epoch++;
    }
    ok(right,
       "2000 requests with sizes and positions changing midway, some larger than the buffers");
    right = 1;
    for (int64_t i = 0; i < 200; i++)
        right &= get_right(l, i, 0, 5, true) && get_right(l, i, 10, 5, true);
    ok(right, "every second batch passed over");
    loader_free(l);
}

static void test_held(void)
{
    struct loader *l = make(3, 10, true, false);
    struct loader_batch b[3], more;
    int right = 1;

    for (int64_t i = 0; i < 3; i++)
        right &= loader_get(l, 0, i * 10, 10, &b[i], NULL, &e) == ERR_OK;
    ok(right && loader_get(l, 0, 30, 10, &more, NULL, &e) == ERR_INTERNAL,
       "three batches can be held, a fourth is refused");
    for (int64_t i = 0; i < 3; i++)
        right &= batch_right(&b[i], 0, i * 10, 10, true);
    ok(right && b[0].field[0] != b[1].field[0] && b[1].field[0] != b[2].field[0],
       "and each keeps its own memory");
    loader_done(l, &b[1]);
    ok(loader_get(l, 0, 30, 10, &more, NULL, &e) == ERR_OK && batch_right(&more, 0, 30, 10, true) &&
           batch_right(&b[0], 0, 0, 10, true) && batch_right(&b[2], 0, 20, 10, true),
       "one given back makes room for one");
    loader_done(l, &(struct loader_batch){.slot = 99});
    ok(loader_get(l, 0, 40, 10, &b[1], NULL, &e) == ERR_INTERNAL,
       "what was never lent cannot be given back");
    loader_free(l); /* while batches are held */
}

/* 10 samples in batches of 3, stopped after 5 batches, gone on with another depth. */
static void test_resume(void)
{
    int64_t whole[40], parts[40], n_whole = 0, n_parts = 0;
    struct loader_batch b;

    open_numbers(10);
    for (int life = 0; life < 3; life++) {
        struct loader *l = make(life == 2 ? 9 : 4, 3, true, false);
        int from = life == 2 ? 5 : 0, to = life == 1 ? 5 : 12;
        for (int k = from; k < to; k++) {
            int64_t epoch = k / 4, at = k % 4 * 3;
            int rc = loader_get(l, epoch, at, at + 3 > 10 ? 10 - at : 3, &b, NULL, &e);
            for (int64_t i = 0; rc == ERR_OK && i < b.n; i++) {
                int64_t id = ((const int32_t *)b.field[1])[i];
                if (life == 0)
                    whole[n_whole++] = id;
                else
                    parts[n_parts++] = id;
            }
            loader_done(l, &b);
        }
        loader_free(l);
    }
    ok(n_whole == 30 && n_parts == 30 && memcmp(whole, parts, sizeof *whole * 30) == 0,
       "stopped mid epoch 2 and gone on: the same 30 ids");
}

static void test_errors(void)
{
    struct loader_opts o = {
        .set = d.train, .wants = wants, .n_wants = 2, .seed = 1, .ahead = 2, .max_batch = 4};
    struct loader *l = make(2, 4, true, false), *none = NULL;
    struct data_want bad = {1, DT_U8}, nowhere = {7, DT_F32};
    struct loader_batch b;

    ok(loader_get(l, 0, 10, 1, &b, NULL, &e) == ERR_INTERNAL &&
           loader_get(l, 0, 0, 11, &b, NULL, &e) == ERR_INTERNAL &&
           loader_get(l, -1, 0, 1, &b, NULL, &e) == ERR_INTERNAL &&
           loader_get(l, 0, -1, 1, &b, NULL, &e) == ERR_INTERNAL &&
           loader_get(l, 0, 0, 0, &b, NULL, &e) == ERR_INTERNAL &&
           loader_get(l, 0, 5, INT64_MAX, &b, NULL, &e) == ERR_INTERNAL,
       "requests outside the epoch are refused");
    ok(get_right(l, 0, 0, 4, true), "and harm nothing");
    loader_free(l);
    o.ahead = 0;
    ok(loader_new(&o, &none, &e) == ERR_INTERNAL && !none, "0 ahead");
    o.ahead = 17;
    ok(loader_new(&o, &none, &e) == ERR_INTERNAL, "17 ahead");
    o.ahead = 2;
    o.wants = &nowhere;
    o.n_wants = 1;
    ok(loader_new(&o, &none, &e) == ERR_INTERNAL, "a field that is not there");
    o.wants = &bad;
    ok(loader_new(&o, &l, &e) == ERR_OK && loader_get(l, 0, 0, 2, &b, NULL, &e) == ERR_INTERNAL &&
           strstr(e.msg, "u8") && loader_get(l, 0, 0, 2, &b, NULL, &e) == ERR_INTERNAL,
       "an error in the thread comes back to the caller, each time");
    loader_free(l);
    loader_free(NULL);
}

static void test_no_memory(void)
{
    struct loader_opts o = {
        .set = d.train, .wants = wants, .n_wants = 2, .seed = 1, .ahead = 2, .max_batch = 4};
    struct loader *l = NULL;
    struct loader_batch b;
    int refused = 0, n = 1;

    for (; n < 100; n++) {
        enum err_code rc;
        mem_fail_nth(n);
        rc = loader_new(&o, &l, &e);
        mem_fail_nth(0);
        if (rc == ERR_OK)
            break;
        refused += rc == ERR_NOMEM;
    }
    ok(n > 5 && n < 100 && refused == n - 1, "each of %d allocations failing is an error", n - 1);
    mem_fail_nth(1);
    ok(loader_get(l, 0, 0, 9, &b, NULL, &e) == ERR_NOMEM && strstr(e.msg, "9 samples"),
       "a larger batch without memory for it is an error");
    mem_fail_nth(0);
    ok(loader_get(l, 0, 0, 9, &b, NULL, &e) == ERR_OK && b.n == 9, "and can be asked for again");
    loader_free(l);
}

static void test_waits(void)
{
    struct loader *l = make(2, 4, true, false);
    struct loader_batch b;
    double waited = 0;
    int made = 0;

    ok(loader_get(l, 0, 0, 4, &b, &waited, &e) == ERR_OK && waited >= 0 && waited < 60,
       "waiting is counted");
    loader_free(l);
    for (int i = 0; i < 200; i++) {
        l = make(1 + i % 16, 4, true, false);
        made += l != NULL;
        loader_free(l);
    }
    ok(made == 200, "200 loaders begin and end with nothing asked");
}

int main(void)
{
    ok(open_numbers(100), "100 samples");
    test_order();
    test_changes();
    test_held();
    test_resume();
    test_errors();
    test_no_memory();
    test_waits();
    data_release(&d);
    return tap_done();
}
