/* Any bytes as an experiment: an error list or a config, never a crash. What loads is dumped and
 * loads again. */
#include <stdint.h>
#include <stdlib.h>

#include "engine/config/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err_list errs, again;
    struct config *c, *d;
    struct str text = {0};

    if (size > 1 << 16)
        return 0;
    c = config_load_text((const char *)data, size, "fuzz.yaml", "/nonexistent", NULL, 0, &errs);
    if (!c) {
        if (errs.n == 0)
            abort(); /* refused without a word */
        err_list_release(&errs);
        return 0;
    }
    config_dump(c, NULL, &text);
    d = config_load_text(str_c(&text), text.len, "dump.yaml", "/nonexistent", NULL, 0, &again);
    if (!d)
        abort(); /* what we write we must read */
    config_free(d);
    config_free(c);
    str_release(&text);
    err_list_release(&errs);
    err_list_release(&again);
    return 0;
}
