/* gen_docs.c - docs/config.md from the table of keys: `make docs` writes it, a test says when it is
 * stale. */
#include <stdio.h>

#include "engine/config/config.h"

int main(void)
{
    struct str s = {0};

    config_docs(&s);
    fputs(str_c(&s), stdout);
    str_release(&s);
    return 0;
}
