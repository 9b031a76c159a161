/* checkpoint.h - a checkpoint is a folder RUN/checkpoints/step-000000500 that is there whole or not
 * at all.
 *
 * Order of writing: a temporary folder, model.safetensors, optimizer.safetensors, trainer.json,
 * data.json, each fsynced, MANIFEST.json (file, bytes, sha256; last), fsync of the folder, rename,
 * fsync of checkpoints/. Only then may an older one go. */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include <stdbool.h>

#include "engine/run/rundir.h"
#include "engine/run/safetensors.h"

#define CHECKPOINT_FORMAT 1

struct checkpoint {
    int64_t step;
    struct st_tensor *model; /* parameters and buffers */
    int n_model;
    struct st_tensor *optimizer;
    int n_optimizer;
    const char *trainer_json; /* whole JSON objects */
    const char *data_json;
};

/* *path (may be NULL) gets the folder, owned. A folder of that step that is there already is
 * replaced. Leaves nothing behind on failure. */
enum err_code checkpoint_write(const char *run_path, const struct checkpoint *c, char **path,
                               struct err *e);

/* MANIFEST complete, sizes and checksums right. */
enum err_code checkpoint_verify(const char *path, struct err *e);

/* Steps that have a checkpoint folder with a MANIFEST, ascending; owned. Sorted by number, not by
 * name. */
enum err_code checkpoint_list(const char *run_path, int64_t **steps, int *n, struct err *e);

/* Removes all but the newest `keep` and the step `best` (-1: none). Touches only folders of our
 * pattern that have a MANIFEST, and left-over temporary folders of dead writers. */
enum err_code checkpoint_rotate(const char *run_path, int keep, int64_t best, struct err *e);

#endif
