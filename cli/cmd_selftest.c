/* SPDX-License-Identifier: MIT */
#include "cli.h"

int cmd_selftest(int argc, char **argv) {
    (void)argc;
    (void)argv;
    return cli_error(CLI_USAGE, "selftest: no case yet");
}
