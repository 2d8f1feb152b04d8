/* SPDX-License-Identifier: MIT */
/* A file of options, as `train --config` takes one. */
#include "format/options.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool flag = false;
    int whole = 0;
    int64_t large = 0;
    double real = 0;
    const char *text = "";
    pal_option_list list = { .count = 0 };
    const pal_option options[] = {
        { "flag", PAL_OPTION_FLAG, &flag },   { "whole-number", PAL_OPTION_INT, &whole },
        { "large", PAL_OPTION_LONG, &large }, { "real", PAL_OPTION_FLOAT, &real },
        { "text", PAL_OPTION_TEXT, &text },   { "list", PAL_OPTION_LIST, &list },
    };
    pal_error err;
    json_t *kept = json_array(); /* texts point into it */
    if (pal_options_read(options, sizeof options / sizeof options[0], fuzz_written("options.json", data, size), kept,
                         &err) == PAL_OK) {
        size_t length = strlen(text);
        for (int i = 0; i < list.count; i++) length += strlen(list.items[i]);
        FUZZ_CHECK(length <= size);
    }
    json_decref(kept);
    return 0;
}
