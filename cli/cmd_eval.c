/* SPDX-License-Identifier: MIT */
#include "cli.h"
int cmd_eval(int argc, char **argv) { (void)argc; (void)argv; return CLI_OK; }
