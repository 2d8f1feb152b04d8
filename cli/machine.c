/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include <stdio.h>

#include "bench.h"
#include "cli.h"
#include "format/json.h"

/* Less than this stays in caches, and the speed of RAM says nothing about it. */
#define MEASURED_BYTES (64.0 * 1024 * 1024)

/* RAM that programs can have without others being put out; 0: this system does not say. */
static double available_bytes(void) {
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    double found = 0, kib;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1) found = kib * 1024;
    if (file) fclose(file);
    return found;
}

static int measure(cli_machine *to, const pal_context *cx) {
    bench_limits limits = { 0 };
    const int code = bench_limits_open(&limits);
    if (!code) {
        bench_limits_measure(&limits, cx, 0); /* warms up */
        bench_limits_measure(&limits, cx, 0);
        to->read_rate = limits.bytes[0];
        to->product = limits.flops[0];
    }
    bench_limits_close(&limits);
    return code;
}

int cli_machine_ask(cli_machine *out, const pal_model *model, const pal_context *cx, size_t needed, int context,
                    const pal_dtype *types, const size_t *bytes_as, size_t count) {
    const bench_moved moved = bench_step_moved(model, context, 1);
    *out = (cli_machine){ .needed = (double)needed,
                          .available = available_bytes(),
                          .step_bytes = moved.total,
                          .smaller = PAL_DTYPES };
    double weights = 0;
    for (size_t i = 0; i < pal_model_weight_count(model); i++)
        weights += (double)pal_weight_bytes(pal_model_weight(model, i));
    for (size_t t = 0; t < count && out->available > 0 && out->needed > out->available; t++) {
        if (out->smaller != PAL_DTYPES || (double)bytes_as[types[t]] >= weights) continue;
        if (out->needed - weights + (double)bytes_as[types[t]] <= out->available) out->smaller = types[t];
    }
    if (weights < MEASURED_BYTES) return CLI_OK;
    const int code = measure(out, cx);
    if (code) return code;
    out->writing = out->read_rate / moved.total;
    out->reading = out->product / (2 * bench_block_parameters(model));
    return CLI_OK;
}

static const char *sized(char text[24], double bytes) {
    const bool large = bytes >= 1 << 30;
    snprintf(text, 24, "%.3g %s", bytes / (large ? 1 << 30 : 1 << 20), large ? "GiB" : "MiB");
    return text;
}

void cli_machine_print(const cli_machine *m) {
    char needed[24], free_now[24];
    printf("on this machine:\n  RAM to generate            %s", sized(needed, m->needed));
    if (m->available > 0) printf(", and %s are free", sized(free_now, m->available));
    if (m->available >= m->needed) printf(": it fits");
    else if (m->available > 0) printf(": it does not fit");
    if (m->smaller != PAL_DTYPES) printf("; as %s it would", pal_dtype_name(m->smaller));
    putchar('\n');
    if (!(m->writing > 0)) return;
    printf("  writing                    %.3g tokens/s at most: %.3g GB a token, and RAM is read at %.3g GB/s\n",
           m->writing, m->step_bytes * 1e-9, m->read_rate * 1e-9);
    printf("  reading a prompt           %.3g tokens/s, about: products of matrices run at %.3g GFLOP/s\n", m->reading,
           m->product * 1e-9);
}

json_t *cli_machine_json(const cli_machine *m) {
    json_t *to = json_pack("{s:f, s:f, s:b, s:f}", "needed_bytes", m->needed, "available_bytes", m->available, "fits",
                           !(m->available > 0) || m->needed <= m->available, "step_bytes", m->step_bytes);
    if (m->smaller != PAL_DTYPES) pal_json_set(to, "fits_as", json_string(pal_dtype_name(m->smaller)));
    if (!(m->writing > 0)) return to;
    pal_json_set(to, "read_bytes_per_s", json_real(m->read_rate));
    pal_json_set(to, "product_flops", json_real(m->product));
    pal_json_set(to, "writing_tokens_per_s", json_real(m->writing));
    pal_json_set(to, "reading_tokens_per_s", json_real(m->reading));
    return to;
}
