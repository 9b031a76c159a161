/* Any text as a model script: opened and traced under small budgets, it ends in a graph or in a
 * message. */
#include "engine/script/priv.h"

#include <stdlib.h>
#include <unistd.h>

/* Budgets small enough that the slowest input is far below the fuzzer's limit of 5 s. */
static struct script_opts options = {.path = "none/m.lua",
                                     .seed = 1,
                                     .max_instructions = 300000,
                                     .max_bytes = 8 << 20,
                                     .max_seconds = 2};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void trace(struct script *s, bool training)
{
    static const struct script_field fields[] = {
        {.name = "x", .shape = {.rank = 2, .dim = {4, 6}}, .dtype = DT_F32},
        {.name = "y", .shape = {.rank = 1, .dim = {4}}, .open_type = true, .is_target = true}};
    struct trace t;
    struct err e = {0};
    double sums[4] = {1, 2, 3, 4};

    if (script_trace(s, training, fields, 2, 8, &t, &e) == ERR_OK) {
        for (int i = 0; i < t.n_metrics; i++)
            if (!t.metrics[i].is_mean)
                script_metric_value(s, i, sums, 4, &e);
        trace_free(&t);
    } else if (!e.msg[0]) {
        abort(); /* a failure without a message is the fault this looks for */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script *s = NULL;
    struct err e = {0};

    if (!options.shipped) /* run from the root, or as `make fuzz` does */
        options.shipped = access("scripts/nn.lua", R_OK) == 0 ? "scripts" : "../../scripts";
    if (script_open_text(&options, (const char *)data, size, &s, &e) == ERR_OK) {
        trace(s, true);
        trace(s, false);
        script_free(s);
    } else if (!e.msg[0] || s) {
        abort();
    }
    return 0;
}
