/* metrics.jsonl: read row by row, whatever is in it; a torn line is followed by a fresh one. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "engine/run/rundir.h"
#include "engine/run/runs.h"
#include "tap.h"
#include "tmp_dir.h"

enum { KEEP = 16, WIDE = 8 };

struct seen {
    int64_t rows, steps; /* count, and sum of steps */
    int64_t step[KEEP];
    double epoch[KEEP], t[KEEP], value[KEEP][WIDE];
    char name[KEEP][WIDE][32];
    int seg[KEEP], n[KEEP];
};

static void take(void *arg, const struct metrics_row *r)
{
    struct seen *s = arg;
    int64_t k = s->rows++;

    s->steps += r->step;
    if (k >= KEEP)
        return;
    s->step[k] = r->step;
    s->epoch[k] = r->epoch;
    s->t[k] = r->t;
    s->seg[k] = r->seg;
    s->n[k] = r->n;
    for (int i = 0; i < r->n && i < WIDE; i++) {
        s->value[k][i] = r->value[i];
        snprintf(s->name[k][i], sizeof s->name[k][i], "%s", r->name[i]);
    }
}

static struct seen seen;
static int64_t torn, bad;

static enum err_code read_text(const char *dir, const char *text)
{
    memset(&seen, 0, sizeof seen);
    put_text(at(dir, "metrics.jsonl"), text);
    return metrics_read(dir, take, &seen, &torn, &bad, NULL);
}

#define HEAD "\"epoch\":0.5,\"t\":1.25,\"seg\":2"

static void test_values(const char *dir)
{
    read_text(dir, "{\"step\":7," HEAD ",\"train.loss\":1e-05,\"b\":-3}\n"
                   "{ \"step\" : 9007199254740992 ,\t" HEAD " , \"c\" : 0.1 }\n"
                   "{\"step\":0," HEAD "}\n");
    ok(seen.rows == 3 && bad == 0 && torn == 0, "three rows");
    ok(seen.step[0] == 7 && seen.epoch[0] == 0.5 && seen.t[0] == 1.25 && seen.seg[0] == 2,
       "the four keys");
    ok(seen.n[0] == 2 && seen.value[0][0] == 1e-05 && seen.value[0][1] == -3 &&
           !strcmp(seen.name[0][0], "train.loss") && !strcmp(seen.name[0][1], "b"),
       "the metrics, in order");
    ok(seen.step[1] == 1ll << 53 && seen.value[1][0] == 0.1, "spaces are none of our business");
    ok(seen.n[2] == 0, "a row may have no metrics");
    read_text(dir, "{\"step\":1," HEAD ",\"a\":\"nan\",\"b\":\"inf\",\"c\":\"-inf\"}\n");
    ok(seen.rows == 1 && isnan(seen.value[0][0]) && seen.value[0][1] == INFINITY &&
           seen.value[0][2] == -INFINITY,
       "nan, inf and -inf are text");
}

static void test_lines(const char *dir)
{
    read_text(dir, "{\"step\":1," HEAD "}\r\n\r\n\n{\"step\":2," HEAD "}\r\n");
    ok(seen.rows == 2 && bad == 0 && torn == 0, "CRLF and blank lines");
    read_text(dir, "{\"step\":1," HEAD "}\n{\"step\":2," HEAD);
    ok(seen.rows == 1 && bad == 0 && torn == 1, "a torn last line is left out and counted");
    read_text(dir, "{\"step\":1," HEAD "}");
    ok(seen.rows == 0 && torn == 1, "a line is whole with its newline only");
    read_text(dir, "");
    ok(seen.rows == 0 && bad == 0 && torn == 0, "an empty file");
    ok(metrics_read(at(dir, "none"), take, &seen, &torn, &bad, NULL) == ERR_OK && seen.rows == 0,
       "no file: no rows");
    mkdir(at(dir, "odd"), 0777);
    mkdir(at(at(dir, "odd"), "metrics.jsonl"), 0777);
    ok(metrics_read(at(dir, "odd"), take, &seen, &torn, &bad, NULL) == ERR_IO, "a folder: error");
}

static void test_bad(const char *dir)
{
    static const char *const line[] = {"x",
                                       "{",
                                       "{}",
                                       "[]",
                                       "null",
                                       "{\"step\":1}",
                                       "{\"step\":1," HEAD "} x",
                                       "{\"step\":1," HEAD ",}",
                                       "{\"step\":1," HEAD ",\"a\":}",
                                       "{\"step\":1," HEAD ",\"a\":nan}",
                                       "{\"step\":1," HEAD ",\"a\":\"x\"}",
                                       "{\"step\":1," HEAD ",\"a\":[1]}",
                                       "{\"step\":1," HEAD ",\"a\":1e999}",
                                       "{\"step\":1," HEAD ",\"a\":0x10}",
                                       "{\"step\":1," HEAD ",\"a\\n\":1}",
                                       "{\"step\":-1," HEAD "}",
                                       "{\"step\":1.5," HEAD "}",
                                       "{\"step\":1e30," HEAD "}",
                                       "{\"step\":\"nan\"," HEAD "}",
                                       "{\"epoch\":0,\"step\":1,\"t\":0,\"seg\":0}",
                                       "{\"step\":1,\"epoch\":0,\"t\":0,\"seg\":1e10}",
                                       "{\"step\":1," HEAD ",\"a\":1",
                                       "{\"step\":1," HEAD " \"a\":1}"};
    char text[300];

    for (size_t i = 0; i < sizeof line / sizeof *line; i++) {
        snprintf(text, sizeof text, "%s\n{\"step\":3," HEAD "}\n", line[i]);
        read_text(dir, text);
        ok(bad == 1 && seen.rows == 1 && seen.step[0] == 3, "bad and passed over: %s", line[i]);
    }
}

static void test_many(const char *dir)
{
    enum { ROWS = 100000 };
    struct seen want = {0};
    FILE *f = fopen(at(dir, "metrics.jsonl"), "w");

    for (int i = 1; i <= ROWS; i++) {
        fprintf(f, "{\"step\":%d," HEAD ",\"loss\":%.9g,\"rate\":1}\n", i, 1.0 / i);
        want.steps += i;
    }
    fclose(f);
    memset(&seen, 0, sizeof seen);
    ok(metrics_read(dir, take, &seen, &torn, &bad, NULL) == ERR_OK && seen.rows == ROWS &&
           seen.steps == want.steps && bad == 0 && torn == 0,
       "%d rows, across the edges of any buffer", ROWS);
}

/* A line of `n` bytes that hides a row behind its first MiB. */
static void test_long(const char *dir)
{
    static const char row[] = "{\"step\":5," HEAD "}\n";
    size_t n = (1 << 20) + sizeof row - 1;
    char *line = mem_alloc(n + 2 * sizeof row);
    char *wide = mem_zalloc(40000), *p = wide;

    memset(line, 'x', n);
    memcpy(line + (1 << 20), row, sizeof row - 1);
    memcpy(line + n, row, sizeof row);
    read_text(dir, line);
    ok(seen.rows == 1 && bad == 1 && torn == 0,
       "a line of more than a MiB is one bad line, whatever its end looks like");
    line[n - 1] = 'x';
    line[n] = 0;
    read_text(dir, line);
    ok(seen.rows == 0 && torn == 1, "one without an end is torn");
    mem_free(line);
    p += sprintf(p, "{\"step\":1," HEAD);
    for (int i = 0; i < 600; i++)
        p += sprintf(p, ",\"m%d\":1", i);
    sprintf(p, "}\n");
    read_text(dir, wide);
    ok(seen.rows == 0 && bad == 1, "a row of more metrics than any of ours is bad");
    mem_free(wide);
}

static void test_names(const char *dir)
{
    FILE *f = fopen(at(dir, "metrics.jsonl"), "w");

    for (int i = 0; i < 10000; i++)
        fprintf(f, "{\"step\":1," HEAD ",\"name%d\":1}\n", i);
    fclose(f);
    memset(&seen, 0, sizeof seen);
    ok(metrics_read(dir, take, &seen, &torn, &bad, NULL) == ERR_OK && bad > 0 &&
           seen.rows + bad == 10000 && seen.rows > 1000,
       "memory for names is bounded: %d rows of 10000 fit", (int)seen.rows);
}

static void limit(rlim_t bytes)
{
    struct rlimit l;

    getrlimit(RLIMIT_FSIZE, &l);
    l.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &l);
}

static void test_torn(const char *dir)
{
    struct metric m = {"loss", 0.5};
    struct rlimit old;
    struct rundir *r = NULL;
    struct err e;
    struct stat st;
    char *text;
    int failed;

    rundir_create(at(dir, "runs"), "torn", &r, &e);
    rundir_metrics(r, 1, 0, 0, 0, &m, 1, &e);
    rundir_journal(r, 1, 0, "start", "", "-", &e);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    stat(at(r->path, "metrics.jsonl"), &st);
    limit((rlim_t)st.st_size + 10);
    failed = rundir_metrics(r, 2, 0, 0, 0, &m, 1, &e) == ERR_IO &&
             rundir_metrics(r, 3, 0, 0, 0, &m, 1, &e) == ERR_IO && r->lost == 2;
    stat(at(r->path, "journal.jsonl"), &st);
    limit((rlim_t)st.st_size + 10);
    failed &= rundir_journal(r, 2, 0, "end", "", "-", &e) == ERR_IO && r->seq == 2;
    limit(old.rlim_cur);
    ok(failed, "on a full disk rows and records fail and are counted");
    text = slurp(at(r->path, "journal.jsonl"), NULL);
    ok(text && strlen(text) == (size_t)st.st_size, "a record that failed leaves nothing");
    mem_free(text);
    memset(&seen, 0, sizeof seen);
    metrics_read(r->path, take, &seen, &torn, &bad, &e);
    ok(seen.rows == 1 && torn == 1, "a row that failed leaves a torn line");
    failed = rundir_metrics(r, 4, 0, 0, 0, &m, 1, &e) != ERR_OK ||
             rundir_metrics(r, 5, 0, 0, 0, &m, 1, &e) != ERR_OK;
    memset(&seen, 0, sizeof seen);
    metrics_read(r->path, take, &seen, &torn, &bad, &e);
    ok(!failed && seen.rows == 3 && seen.step[1] == 4 && seen.step[2] == 5 && bad == 1 &&
           torn == 0 && r->lost == 2,
       "the next row begins afresh");
    rundir_free(r);
}

int main(void)
{
    const char *dir = tmp_make();

    test_values(dir);
    test_lines(dir);
    test_bad(dir);
    test_many(dir);
    test_long(dir);
    test_names(dir);
    test_torn(dir);
    tmp_remove();
    return tap_done();
}
