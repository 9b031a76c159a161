/* fsio.h - files: read whole with a bound, replace atomically, make folders durable.
 *
 * All return ERR_OK or fill *e with a message that begins with the path. EINTR and short writes are
 * handled here and nowhere else. Descriptors are close-on-exec. */
#ifndef FSIO_H
#define FSIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/err.h"

int fs_write_all(int fd, const void *buf, size_t n); /* 0, or -1 and errno */

/* Read a regular file of at most `max` bytes. *out is NUL-terminated beyond *len; free with
 * mem_free. ERR_IO if it cannot be read or is no regular file, `too_large` (e.g. ERR_CONFIG) if
 * over max. */
enum err_code fs_read_file(const char *path, size_t max, enum err_code too_large, char **out,
                           size_t *len, struct err *e);

/* Write dir/name so that a crash at any point leaves the old file or the whole new one: temporary
 * name, fsync, rename, fsync of the folder. On failure the old file is as it was and no temporary
 * is left (if only the last fsync fails, the new one stands, perhaps not for good). */
enum err_code fs_replace(const char *dir, const char *name, const void *buf, size_t len,
                         struct err *e);
/* As fs_replace without either fsync: for state.json, rewritten often and rebuilt from the journal.
 */
enum err_code fs_replace_quick(const char *dir, const char *name, const void *buf, size_t len,
                               struct err *e);

enum err_code fs_mkdirs(const char *path, struct err *e); /* like mkdir -p, mode 0777 & ~umask */
enum err_code fs_sync_dir(const char *path, struct err *e);
/* Does not follow links, path itself included; a path that is not there is no error. At most 64
 * deep. */
enum err_code fs_remove_tree(const char *path, struct err *e);
/* By way of memory, at most 1 GiB; `to` is made as by fs_replace. */
enum err_code fs_copy_file(const char *from, const char *to, struct err *e);

char *fs_join(const char *dir,
              const char *name);    /* "dir/name", or name if absolute; owned; NULL: no memory */
char *fs_dirname(const char *path); /* owned; "." when there is no slash */
const char *fs_basename(const char *path); /* borrowed, inside path */
bool fs_exists(const char *path);
/* The folder the program itself lies in, "." when that is not known; buf is returned. */
char *fs_program_dir(char *buf, size_t cap);

#endif
