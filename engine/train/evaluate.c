/* evaluate.c - loss and metrics over the whole validation set, exact for the short last batch too.
 */
#include "engine/train/session.h"

enum err_code evaluate(struct trainer *t, struct tally *out, struct err *e)
{
    int64_t batch = t->valid_count < t->batch ? t->valid_count : t->batch;
    struct tally train = t->window;
    struct program *p = NULL;
    enum err_code rc = step_flush(t, e);

    if (rc == ERR_OK)
        rc = trainer_program(t, PROGRAM_EVAL, batch, &p, e);
    if (rc == ERR_OK)
        rc = tally_init(out, p, e);
    if (rc != ERR_OK)
        return rc;
    /* flights land in the window of the trainer: for now that is this tally */
    train = t->window;
    t->window = *out;
    for (int64_t first = 0; first < t->valid_count && rc == ERR_OK; first += batch) {
        int64_t n = t->valid_count - first < batch ? t->valid_count - first : batch;
        rc = trainer_program(t, PROGRAM_EVAL, n, &p, e);
        if (rc == ERR_OK)
            rc = step_enqueue(t, t->valid_loader, p, 0, first, n, false, e);
    }
    if (rc == ERR_OK)
        rc = step_flush(t, e);
    else
        step_flush(t, NULL);
    *out = t->window;
    t->window = train;
    if (rc != ERR_OK)
        tally_release(out);
    return rc;
}
