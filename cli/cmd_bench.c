/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cli.h"

int bench_model(int argc, char **argv);

int cmd_bench(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "model") == 0) return bench_model(argc - 1, argv + 1);
    return cli_error(CLI_USAGE, "bench: expected what to measure: model");
}
