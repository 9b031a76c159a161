/* Twenty steps of an MLP give PyTorch's losses and final weights, on the CPU backend and on the
 * reference; one thread and four give the same bits. tests/golden/make_mlp.py made the numbers. */
#include "engine/train/trainer.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"
#include "engine/run/safetensors.h"

enum { STEPS = 20 };

static const struct {
    const char *name;
    const char *words[8]; /* overrides */
} cases[] = {
    {"sgd", {0}},
    {"nesterov", {"lr=0.05", "optimizer.nesterov=true"}},
    {"adam", {"optimizer.name=adam", "lr=0.01"}},
    {"adamw", {"optimizer.name=adamw", "lr=0.01", "weight_decay=0.1"}},
    {"clip", {"clip_norm=0.5"}},
    {"accumulate",
     {"optimizer.name=adamw", "lr=0.01", "weight_decay=0.1", "batch=16", "accumulate=2"}},
};

struct result {
    double loss[STEPS + 1];
    char *weights; /* the bytes of model.safetensors; owned */
    size_t len;
    char path[512];
};

static void on_row(void *arg, const struct train_row *row)
{
    struct result *r = arg;

    for (int i = 0; i < row->n; i++)
        if (strcmp(row->metric[i].name, "train.loss") == 0 && row->step <= STEPS)
            r->loss[row->step] = row->metric[i].value;
}

/* Trains one case; the run directory is below dir. */
static enum err_code train(const char *dir, char *const *words, int n, struct result *r,
                           struct err *e)
{
    struct trainer_opts o = {.shipped = "scripts"};
    struct train_observer obs = {.arg = r, .row = on_row};
    struct err_list errs = {0};
    struct config *c = config_load("tests/golden/mlp/mlp.yaml", words, n, &errs);
    struct trainer *t = NULL;
    struct rundir *run = NULL;
    struct train_end end;
    enum err_code rc = c ? ERR_OK : err_set(e, ERR_CONFIG, "%s", errs.n ? errs.err[0].msg : "?");

    if (rc == ERR_OK)
        rc = trainer_open(c, &o, &t, e);
    if (rc == ERR_OK)
        rc = rundir_create(dir, "golden", &run, e);
    if (rc == ERR_OK)
        rc = trainer_run(t, run, &obs, NULL, &end, e);
    if (rc == ERR_OK) {
        snprintf(r->path, sizeof r->path, "%s/checkpoints/step-000000020/model.safetensors",
                 run->path);
        rc = fs_read_file(r->path, 1 << 20, ERR_IO, &r->weights, &r->len, e);
    }
    trainer_free(t);
    rundir_free(run);
    config_free(c);
    err_list_release(&errs);
    return rc;
}

/* Largest |loss - golden| over the steps. */
static double loss_off(const char *name, const struct result *r)
{
    char path[256], *text, *line;
    size_t len;
    double worst = 0;
    int seen = 0;

    snprintf(path, sizeof path, "tests/golden/mlp/%s.csv", name);
    if (fs_read_file(path, 1 << 16, ERR_IO, &text, &len, NULL) != ERR_OK)
        return INFINITY;
    for (line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        int step = 0;
        double want = 0, d;
        if (sscanf(line + 1, "%d,%lf", &step, &want) != 2 || step < 1 || step > STEPS)
            continue;
        d = fabs(r->loss[step] - want);
        if (!(d <= worst))
            worst = d;
        seen++;
    }
    mem_free(text);
    return seen == STEPS ? worst : INFINITY;
}

/* Largest difference of a weight to PyTorch's. */
static double weights_off(const char *name, const struct result *r)
{
    struct safetensors want, got;
    struct err e = {0};
    char path[256];
    double worst = 0;

    snprintf(path, sizeof path, "tests/golden/mlp/%s.safetensors", name);
    if (safetensors_open(path, &want, &e) != ERR_OK)
        return INFINITY;
    if (safetensors_open(r->path, &got, &e) != ERR_OK || got.n != want.n)
        worst = INFINITY;
    for (int i = 0; worst < INFINITY && i < want.n; i++) {
        const struct st_tensor *a = safetensors_find(&got, want.tensor[i].name);
        float *x = mem_array((size_t)want.tensor[i].count, 4),
              *y = mem_array((size_t)want.tensor[i].count, 4);

        if (!a || a->count != want.tensor[i].count || st_to_f32(a, x, &e) != ERR_OK ||
            st_to_f32(&want.tensor[i], y, &e) != ERR_OK)
            worst = INFINITY;
        for (int64_t k = 0; worst < INFINITY && k < a->count; k++)
            if (!(fabs((double)x[k] - (double)y[k]) <= worst))
                worst = fabs((double)x[k] - (double)y[k]);
        mem_free(x);
        mem_free(y);
    }
    safetensors_close(&want);
    safetensors_close(&got);
    return worst;
}

static int words_of(const char *const *from, char **to, const char *more)
{
    int n = 0;

    for (; from[n]; n++)
        to[n] = (char *)(uintptr_t)from[n];
    to[n++] = (char *)(uintptr_t)more;
    return n;
}

static void against_pytorch(const char *dir, const char *device)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct result r = {0};
        struct err e = {0};
        char *words[10];
        int n = words_of(cases[i].words, words, device);
        enum err_code rc = train(dir, words, n, &r, &e);

        ok(rc == ERR_OK, "%s, %s: trains%s%s", cases[i].name, device, rc ? ": " : "", e.msg);
        /* f32 sums of another order: a few ulp a step, twenty steps */
        ok(loss_off(cases[i].name, &r) <= 1e-5, "%s, %s: the losses of all steps (off by %.2g)",
           cases[i].name, device, loss_off(cases[i].name, &r));
        ok(weights_off(cases[i].name, &r) <= 2e-5, "%s, %s: the final weights (off by %.2g)",
           cases[i].name, device, weights_off(cases[i].name, &r));
        mem_free(r.weights);
    }
}

static void threads_do_not_matter(const char *dir)
{
    char *one[] = {(char[]){"threads=1"}, (char[]){"optimizer.name=adamw"}},
         *four[] = {(char[]){"threads=4"}, (char[]){"optimizer.name=adamw"}};
    struct result a = {0}, b = {0};
    struct err e = {0};

    ok(train(dir, one, 2, &a, &e) == ERR_OK && train(dir, four, 2, &b, &e) == ERR_OK,
       "one thread and four train%s%s", *e.msg ? ": " : "", e.msg);
    ok(a.len > 0 && a.len == b.len && memcmp(a.weights, b.weights, a.len) == 0,
       "and end with the same bytes");
    mem_free(a.weights);
    mem_free(b.weights);
}

/* ---- a step allocates nothing of ours ---- */

struct watch {
    long at[STEPS + 1];
};

static void on_tick(void *arg, int64_t step, double t)
{
    (void)t;
    if (step <= STEPS)
        ((struct watch *)arg)->at[step] = mem_count();
}

static void steps_allocate_nothing(void)
{
    char *words[] = {(char[]){"train.log_every=1000"}, (char[]){"optimizer.name=adamw"},
                     (char[]){"accumulate=2"}, (char[]){"batch=16"}};
    struct trainer_opts o = {.shipped = "scripts"};
    struct watch w = {0};
    struct train_observer obs = {.arg = &w, .tick = on_tick};
    struct err_list errs = {0};
    struct config *c = config_load("tests/golden/mlp/mlp.yaml", words, 4, &errs);
    struct trainer *t = NULL;
    struct train_end end;
    struct err e = {0};

    ok(c && trainer_open(c, &o, &t, &e) == ERR_OK &&
           trainer_run(t, NULL, &obs, NULL, &end, &e) == ERR_OK,
       "twenty quiet steps%s%s", *e.msg ? ": " : "", e.msg);
    /* the first epoch, of four steps, compiles a plan for each batch size; the last step evaluates
     */
    ok(w.at[STEPS - 1] > 0 && w.at[STEPS - 1] == w.at[5],
       "steps 6 to 19 allocate nothing of ours (%ld)", w.at[STEPS - 1] - w.at[5]);
    trainer_free(t);
    config_free(c);
    err_list_release(&errs);
}

int main(void)
{
    char dir[] = "/tmp/t_golden.XXXXXX";

    if (!mkdtemp(dir))
        skip_all("no writable /tmp");
    against_pytorch(dir, "device=cpu");
    against_pytorch(dir, "device=ref");
    threads_do_not_matter(dir);
    steps_allocate_nothing();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
