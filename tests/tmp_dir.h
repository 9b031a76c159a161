/* tmp_dir.h - a folder of its own for a test that writes files. */
#ifndef TMP_DIR_H
#define TMP_DIR_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/fsio.h"

static char tmp_root[512];

/* Under $TMPDIR or /tmp; exits when there is none, for nothing could be tested then. */
static inline const char *tmp_make(void)
{
    const char *base = getenv("TMPDIR");
    int n =
        snprintf(tmp_root, sizeof tmp_root, "%s/cupola-test-XXXXXX", base && *base ? base : "/tmp");

    if (n < 0 || (size_t)n >= sizeof tmp_root || !mkdtemp(tmp_root)) {
        printf("Bail out! no temporary folder\n");
        exit(1);
    }
    return tmp_root;
}

static inline void tmp_remove(void)
{
    fs_remove_tree(tmp_root, NULL);
}

/* One of 32 buffers in turn: "dir/name". */
static inline char *at(const char *dir, const char *name)
{
    static char buf[32][1024];
    static unsigned turn;
    char *b = buf[turn++ & 31];

    snprintf(b, sizeof buf[0], "%s/%s", dir, name);
    return b;
}

static inline void put_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(bytes, 1, n, f) != n)
        printf("# %s cannot be written\n", path);
    if (f)
        fclose(f);
}

static inline void put_text(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

/* The file's bytes, NUL behind them; NULL when it cannot be read. Free with mem_free. */
static inline char *slurp(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    long size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *text = size >= 0 ? mem_zalloc((size_t)size + 1) : NULL;

    if (text) {
        rewind(f);
        if (fread(text, 1, (size_t)size, f) != (size_t)size)
            size = 0;
    }
    if (f)
        fclose(f);
    if (len)
        *len = text ? (size_t)size : 0;
    return text;
}

static inline int file_is(const char *path, const char *want)
{
    char *got = slurp(path, NULL);
    int same = got && strcmp(got, want) == 0;

    mem_free(got);
    return same;
}

/* Names in a folder, but for . and .. */
static inline int entries(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *de;
    int n = 0;

    while (d && (de = readdir(d)))
        n += strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n;
}

#endif
