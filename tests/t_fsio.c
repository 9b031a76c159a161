/* Files: replaced whole or not at all, read with a bound, trees removed without following links. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"
#include "tmp_dir.h"

static void limit(rlim_t bytes)
{
    struct rlimit l;

    getrlimit(RLIMIT_FSIZE, &l);
    l.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &l);
}

static void test_replace(const char *dir)
{
    static char big[4096];
    struct rlimit old;
    struct err e;
    char *d = at(dir, "replace");
    int failed;

    mkdir(d, 0777);
    ok(fs_replace(d, "f", "one", 3, &e) == ERR_OK && file_is(at(d, "f"), "one"), "a new file");
    ok(fs_replace(d, "f", "two!", 4, &e) == ERR_OK && file_is(at(d, "f"), "two!"), "replaced");
    ok(fs_replace_quick(d, "q", "", 0, &e) == ERR_OK && file_is(at(d, "q"), ""), "an empty one");
    ok(entries(d) == 2, "no temporary is left");
    memset(big, 'b', sizeof big);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    limit(1000);
    failed = fs_replace(d, "f", big, sizeof big, &e) == ERR_IO &&
             fs_replace_quick(d, "q", big, sizeof big, NULL) == ERR_IO;
    limit(old.rlim_cur);
    ok(failed && strncmp(e.msg, at(d, "f: "), strlen(d) + 4) == 0, "a full disk is an error");
    ok(file_is(at(d, "f"), "two!") && file_is(at(d, "q"), ""), "the old files are as they were");
    ok(entries(d) == 2, "no temporary is left of that either");
    mkdir(at(d, "sub"), 0777);
    ok(fs_replace(d, "sub", "x", 1, &e) == ERR_IO && entries(d) == 3 && entries(at(d, "sub")) == 0,
       "a folder is not replaced");
    ok(fs_replace(at(d, "none"), "f", "x", 1, &e) == ERR_IO && strstr(e.msg, "none/f"),
       "nor is anything written where there is no folder");
}

static void test_read(const char *dir)
{
    struct err e;
    char *text, *path = at(dir, "read");
    size_t len;

    put_bytes(path, "a\0b", 3);
    ok(fs_read_file(path, 3, ERR_CONFIG, &text, &len, &e) == ERR_OK && len == 3 &&
           memcmp(text, "a\0b", 4) == 0,
       "all bytes, and a NUL behind them");
    mem_free(text);
    ok(fs_read_file(path, 2, ERR_CONFIG, &text, &len, &e) == ERR_CONFIG && !text &&
           strstr(e.msg, "3 bytes"),
       "one byte too many is the error asked for");
    ok(fs_read_file(at(dir, "none"), 9, ERR_CONFIG, &text, &len, &e) == ERR_IO && !text &&
           strncmp(e.msg, at(dir, "none: "), strlen(dir) + 7) == 0,
       "no file: ERR_IO, the path first");
    ok(fs_read_file(dir, 1 << 20, ERR_CONFIG, &text, &len, &e) == ERR_IO && !text,
       "a folder is refused");
    mkfifo(at(dir, "fifo"), 0600);
    alarm(20);
    ok(fs_read_file(at(dir, "fifo"), 9, ERR_CONFIG, &text, &len, &e) == ERR_IO && !text,
       "a FIFO is refused and does not hang");
    alarm(0);
    ok(fs_read_file("/proc/self/stat", 4096, ERR_IO, &text, &len, &e) == ERR_OK && len > 20,
       "a file that says it has no bytes is read");
    mem_free(text);
    mem_fail_nth(1);
    ok(fs_read_file(path, 9, ERR_CONFIG, &text, &len, &e) == ERR_NOMEM && !text, "no memory");
    mem_fail_nth(0);
}

static void test_tree(const char *dir)
{
    struct err e;
    char *tree = at(dir, "tree"), *other = at(dir, "other");

    fs_mkdirs(at(tree, "a/b/c"), &e);
    fs_mkdirs(other, &e);
    put_text(at(tree, "a/b/f"), "x");
    put_text(at(other, "precious"), "x");
    ok(symlink(other, at(tree, "a/link")) == 0 && symlink("nowhere", at(tree, "dangling")) == 0,
       "a tree with links in it");
    ok(fs_remove_tree(tree, &e) == ERR_OK && !fs_exists(tree), "is removed");
    ok(fs_exists(at(other, "precious")), "what its links pointed at is not");
    ok(symlink(other, tree) == 0 && fs_remove_tree(tree, &e) == ERR_OK &&
           fs_exists(at(other, "precious")),
       "a link itself is removed, not what it points at");
    ok(symlink(other, tree) == 0 &&
           (fs_remove_tree(at(tree, ""), NULL), fs_exists(at(other, "precious"))),
       "also when its name ends in a slash");
    unlink(tree);
    ok(fs_remove_tree(tree, &e) == ERR_OK, "what is not there is removed already");
    put_text(tree, "x");
    ok(fs_remove_tree(tree, &e) == ERR_OK && !fs_exists(tree), "a plain file");
}

static void test_mkdirs(const char *dir)
{
    struct err e;

    ok(fs_mkdirs(at(dir, "m/n//o/"), &e) == ERR_OK && fs_exists(at(dir, "m/n/o")),
       "folders are made one in the other");
    ok(fs_mkdirs(at(dir, "m/n"), &e) == ERR_OK && fs_mkdirs("/", &e) == ERR_OK,
       "those that are there are fine");
    put_text(at(dir, "m/file"), "x");
    ok(fs_mkdirs(at(dir, "m/file"), &e) == ERR_IO && strstr(e.msg, "no folder"),
       "a file is no folder");
    ok(fs_mkdirs(at(dir, "m/file/x"), &e) == ERR_IO, "nothing is made below one");
    ok(fs_sync_dir(dir, &e) == ERR_OK && fs_sync_dir(at(dir, "none"), &e) == ERR_IO, "sync_dir");
}

static void test_copy(const char *dir)
{
    struct err e;

    put_text(at(dir, "from"), "text");
    ok(fs_copy_file(at(dir, "from"), at(dir, "to"), &e) == ERR_OK && file_is(at(dir, "to"), "text"),
       "a file is copied");
    ok(fs_copy_file(at(dir, "none"), at(dir, "to"), &e) == ERR_IO && file_is(at(dir, "to"), "text"),
       "a copy that fails leaves the old one");
}

static int join_is(const char *dir, const char *name, const char *want)
{
    char *p = fs_join(dir, name);
    int same = p && strcmp(p, want) == 0;

    mem_free(p);
    return same;
}

static int dirname_is(const char *path, const char *want)
{
    char *p = fs_dirname(path);
    int same = p && strcmp(p, want) == 0;

    mem_free(p);
    return same;
}

static void test_names(void)
{
    char here[1024];

    ok(join_is("a", "b", "a/b") && join_is("a/", "b", "a/b") && join_is("a", "/b", "/b") &&
           join_is("", "b", "b"),
       "join");
    ok(dirname_is("a/b/c", "a/b") && dirname_is("a", ".") && dirname_is("/a", "/"), "dirname");
    ok(!strcmp(fs_basename("a/b"), "b") && !strcmp(fs_basename("b"), "b"), "basename");
    ok(fs_exists(fs_program_dir(here, sizeof here)), "the program's folder is there");
    ok(fs_write_all(-1, "x", 1) < 0 && fs_write_all(-1, "x", 0) == 0, "write_all fails by -1");
}

int main(void)
{
    const char *dir = tmp_make();

    test_replace(dir);
    test_read(dir);
    test_tree(dir);
    test_mkdirs(dir);
    test_copy(dir);
    test_names();
    tmp_remove();
    return tap_done();
}
