/* SPDX-License-Identifier: MIT */
/* palimpsa version: what was built, what the processor offers, and what of it is used. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "cli.h"
#include "comm/mpi.h"
#include "format/json.h"

static json_t *names_of(unsigned features) {
    json_t *list = json_array();
    for (int i = 0; i < PAL_CPU_FEATURES; i++)
        if (features & 1u << i) pal_json_append(list, json_string(pal_cpu_feature_name(i)));
    return list;
}

static void print_features(const char *what, unsigned features) {
    printf("%s", what);
    for (int i = 0; i < PAL_CPU_FEATURES; i++)
        if (features & 1u << i) printf(" %s", pal_cpu_feature_name(i));
    puts(features ? "" : " none");
}

int cmd_version(int argc, char **argv) {
    cli_common common = { 0 };
    const cli_option options[] = {
        CLI_COMMON_OPTIONS(common),
        { "json", OPT_FLAG, &common.json, NULL, "print one JSON object" },
    };
    const cli_usage usage = {
        .synopsis = "version [options]",
        .about = "Prints the version and the processor features in use.\n\n"
                 "Also the matrix library and MPI it was built with, and the instruction level that --cpu "
                 "or PALIMPSA_CPU allows.",
        .examples = "  palimpsa version\n  palimpsa version --cpu avx2 --json\n",
        .options = options,
        .option_count = PAL_COUNT(options),
    };
    const char *none;
    int count;
    int code = CLI_OK;
    const int parsed = cli_parse(&usage, argc, argv, &none, 0, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, common.threads, common.cpu, &err)) return cli_fail(&err);
    const char *level = pal_cpu_level_name(pal_context_level(cx));
    if (common.json) {
        json_t *all = json_pack("{s:s, s:s, s:i, s:o, s:o, s:s?}", "version", pal_version(), "cpu", level, "threads",
                                pal_context_threads(cx), "found", names_of(pal_cpu_features()), "used",
                                names_of(pal_context_features(cx)), "mpi", pal_mpi_name());
        code = cli_print_json(all, JSON_INDENT(2));
    } else {
        printf("palimpsa %s\ncpu: %s, %d thread%s\n", pal_version(), level, pal_context_threads(cx),
               pal_context_threads(cx) == 1 ? "" : "s");
        print_features("features found:", pal_cpu_features());
        print_features("features used:", pal_context_features(cx));
        printf("mpi: %s\n", pal_mpi_name() ? pal_mpi_name() : "none");
    }
    pal_context_free(cx);
    return code;
}
