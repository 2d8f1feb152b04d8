/* SPDX-License-Identifier: MIT */
/* `palimpsa selftest DIR` alone, for Node: the library's recorded cases as WebAssembly. */
#include "base/log.h"
#include "builtin_cases.h"
#include "cli.h"

const builtin_case builtin_cases[] = { { 0 } }; /* cases come from a directory */

int main(int argc, char **argv) { return cmd_selftest(argc, argv); }
