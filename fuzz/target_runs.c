/* SPDX-License-Identifier: MIT */
/* A run directory as `palimpsa plot` reads it: config.json and metrics.jsonl, drawn as SVG in one of four ways; the
 * input's size chooses, because drawing takes nearly all of the time. */
#include "input.h"
#include "plot/runs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_slice rest = { data, size };
    const pal_slice config = fuzz_next(&rest);
    pal_runs *runs;
    pal_error err;
    fuzz_written("drawn/config.json", config.data, config.size);
    fuzz_written("drawn/metrics.jsonl", rest.data, rest.size);
    const char *directory = fuzz_path("drawn");
    if (pal_runs_open(&runs, &directory, 1, &err)) return 0;
    const int kind = size % 4;
    pal_runs_write(runs, &(pal_runs_options){ .dynamics = kind & 1, .log_y = kind & 2, .smooth = kind },
                   fuzz_path("figure.svg"), &err);
    pal_runs_free(runs);
    return 0;
}
