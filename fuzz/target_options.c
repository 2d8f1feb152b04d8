/* SPDX-License-Identifier: MIT */
/* A file of options, as `train --config` takes one. */
#include "cli.h"
#include "input.h"
#include "ranks.h"

/* No sentence is printed: there would be millions. */
const char *ranks_speak(int code) {
    (void)code;
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool flag = false;
    int whole = 0;
    int64_t large = 0;
    double real = 0;
    const char *text = "";
    cli_list list = { .count = 0 };
    const cli_option options[] = { { "flag", OPT_FLAG, &flag },   { "whole-number", OPT_INT, &whole },
                                   { "large", OPT_LONG, &large }, { "real", OPT_FLOAT, &real },
                                   { "text", OPT_TEXT, &text },   { "list", OPT_LIST, &list } };
    const cli_usage usage = { .synopsis = "fuzz",
                              .options = options,
                              .option_count = sizeof options / sizeof options[0] };
    if (cli_read_config(&usage, fuzz_file("options.json", data, size)) == CLI_OK) {
        size_t length = strlen(text);
        for (int i = 0; i < list.count; i++) length += strlen(list.items[i]);
        FUZZ_CHECK(length <= size);
    }
    return 0;
}
