/* safetensors.h - reading and writing the safetensors format.
 *
 * Layout: u64 little-endian header length, a JSON header {"name": {"dtype","shape","data_offsets"},
 * ...,
 * "__metadata__": {text: text}}, then the data. Source: huggingface/safetensors, README "Format".
 * A file is a stranger's: lengths, offsets, overlaps, holes, duplicates, types and products of
 * shapes are checked before anything is taken from them; the header is at most 100 MB and data is
 * never copied on opening. */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "kernels/dtype.h"

#define ST_RANK 8

struct st_tensor {
    const char *name;
    char dtype[8]; /* as in the file: "F32", "F16", "BF16", "F64", "I32", "I64", "U8", "BOOL" ... */
    int rank;
    int64_t dim[ST_RANK];
    int64_t count;
    const void *data; /* reading: in the mapped file; writing: the caller's */
    size_t bytes;
};

struct safetensors {
    int n;
    struct st_tensor *tensor; /* sorted by name */
    struct st_priv *priv;
};

enum err_code safetensors_open(const char *path, struct safetensors *out, struct err *e);
void safetensors_close(struct safetensors *s);
const struct st_tensor *safetensors_find(const struct safetensors *s,
                                         const char *name); /* NULL: not there */
/* Converts to f32 (from F64, F32, F16, BF16, I64.., U8, BOOL). ERR_CORRUPT for a type that is no
 * number of ours. */
enum err_code st_to_f32(const struct st_tensor *t, float *out, struct err *e);

/* Parses a header that lies in memory: what safetensors_open does after mapping (and the fuzz
 * target). */
enum err_code safetensors_parse(const void *file, size_t len, const char *label,
                                struct safetensors *out, struct err *e);

/* Writes to an open descriptor: header keys sorted, tensors in that order, __metadata__
 * {"format":"cupola", "version":"1"} and nothing else, so that equal tensors give equal files.
 * `sha` (65 bytes) may be NULL: the SHA-256 of the file, and *size its length. Does not fsync. */
enum err_code safetensors_write(int fd, const char *label, struct st_tensor *tensors, int n,
                                char *sha, int64_t *size, struct err *e);

#endif
