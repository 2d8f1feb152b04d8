/* SPDX-License-Identifier: MIT */
/* palimpsa devices: what can compute in place of the CPU. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "base/context.h"
#include "cli.h"
#include "format/json.h"
#include "palimpsa/device.h"

enum { MOST = 64 };

static json_t *device_json(int number, const pal_device_info *d) {
    char name[32];
    snprintf(name, sizeof name, "opencl:%d", number);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:b, s:b, s:s*}", "device", name, "name",
                     d->name, "platform", d->platform, "driver", d->driver, "version", d->version, "memory_bytes",
                     (json_int_t)d->memory, "largest_buffer_bytes", (json_int_t)d->largest, "local_bytes",
                     (json_int_t)d->local, "compute_units", d->units, "group_items", d->group, "cpu", (int)d->is_cpu,
                     "usable", (int)d->usable, "why_not", d->usable ? NULL : d->why);
}

static void print_device(int number, const pal_device_info *d) {
    printf("opencl:%d  %s\n", number, d->name);
    printf("    %s, driver %s, %s\n", d->platform, d->driver, d->version);
    printf("    %d compute units, %.1f GiB of memory, buffers up to %.1f GiB, %llu KiB of local memory\n", d->units,
           (double)d->memory / 1073741824, (double)d->largest / 1073741824, (unsigned long long)d->local / 1024);
    if (!d->usable) printf("    not usable: %s\n", d->why);
    else if (d->is_cpu) puts("    usable, but a CPU: used only when it is named by number");
    else puts("    usable");
}

/* A tiny model with weights of its own. */
typedef struct {
    const char *preset;
    pal_dtype type;
    int heads;
} subject;

enum { VOCAB = 320, TOKENS = 70, STEPS = 3 };

/* Logits of two packed sequences, and then of a few steps after a prompt, by one context. */
static pal_status compute(const subject *what, const pal_context *cx, float *logits, pal_error *err) {
    const pal_preset_options sizes = {
        .task = "text", .vocab = VOCAB, .hidden = 256, .layers = 2, .heads = what->heads, .head_dim = 64, .mlp = 256
    };
    const int cu[3] = { 0, 27, TOKENS };
    int32_t ids[TOKENS];
    pal_model_config config;
    pal_model *model = NULL;
    pal_work *work = NULL;
    pal_state *state = NULL;
    for (int i = 0; i < TOKENS; i++) ids[i] = i * 37 % VOCAB;
    const pal_batch batch = { .tokens = TOKENS, .sequences = 2, .ids = ids, .cu_seqlens = cu };
    pal_status st = pal_model_preset(&config, what->preset, &sizes, err);
    if (!st) st = pal_model_new(&model, &config, 1, PAL_FOR_INFERENCE, cx, err);
    const size_t rows = st ? 0 : (size_t)config.vocab_rows;
    if (!st && what->type != PAL_F32) st = pal_model_retype(model, what->type, cx, err);
    if (!st) st = pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = TOKENS, .sequences = 2 }, err);
    if (!st) st = pal_model_forward(model, work, &batch, NULL, TOKENS, logits, err);
    if (!st) st = pal_state_new(&state, model, TOKENS, err);
    if (!st) st = pal_model_prefill(model, work, state, ids, TOKENS - STEPS, NULL, err);
    for (int i = 0; i < STEPS && !st; i++)
        st = pal_model_step(model, work, &state, 1, ids + TOKENS - STEPS + i, logits + (size_t)(TOKENS + i) * rows,
                            err);
    pal_state_free(state);
    pal_work_free(work);
    pal_model_close(model);
    return st;
}

static double distance(const float *x, const float *right, size_t n) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)x[i] - (double)right[i]);
        if (!(d <= most)) most = d; /* NaN too */
        largest = fmax(largest, fabs((double)right[i]));
    }
    return most / largest;
}

/* Small models of several kinds and every type, by the device and by the plain C reference. */
static int check_device(int number, const pal_device_info *d) {
    static const subject subjects[] = { { "palimpsa-d", PAL_F32, 4 },         { "palimpsa-m", PAL_F32, 8 },
                                        { "palimpsa-m-wo-meta", PAL_F32, 8 }, { "gated-deltanet", PAL_F32, 4 },
                                        { "transformer", PAL_F32, 4 },        { "palimpsa-d", PAL_F16, 4 },
                                        { "palimpsa-d", PAL_BF16, 4 },        { "palimpsa-d", PAL_Q8_0, 4 },
                                        { "palimpsa-d", PAL_Q4_0, 4 },        { "palimpsa-d", PAL_Q4_K, 4 },
                                        { "palimpsa-d", PAL_Q6_K, 4 } };
    enum { FLOATS = (TOKENS + STEPS) * VOCAB };
    static float right[FLOATS], found[FLOATS];
    pal_context *here = NULL, *there = NULL;
    pal_error err;
    char name[32];
    int code = CLI_OK;
    snprintf(name, sizeof name, "opencl:%d", number);
    pal_status st = pal_context_new(&here, 0, "ref", &err);
    if (!st) st = pal_context_new_on(&there, 1, NULL, name, &err);
    for (size_t i = 0; i < PAL_COUNT(subjects) && !st; i++) {
        /* Where weights are blocks the CPU rounds activations to 15 bits, and a device does not. */
        const double accept = pal_dtype_values(subjects[i].type) > 1 ? 1e-3 : 2e-5;
        if ((st = compute(&subjects[i], here, right, &err)) || (st = compute(&subjects[i], there, found, &err))) break;
        const double error = distance(found, right, FLOATS);
        const bool passed = error <= accept;
        printf("    %-18s %-5s error %.1e, accepted %.0e: %s\n", subjects[i].preset, pal_dtype_name(subjects[i].type),
               error, accept, passed ? "passed" : "FAILED");
        if (!passed) code = CLI_FAILED;
    }
    pal_context_free(there);
    pal_context_free(here);
    if (st) return cli_fail(&err);
    if (code) return cli_error(code, "%s, %s, computes other numbers than plain C", name, d->name);
    return CLI_OK;
}

int cmd_devices(int argc, char **argv) {
    bool json = false, check = false;
    const cli_option options[] = {
        { "check", OPT_FLAG, &check, NULL, "let each usable device run small models, and compare with plain C" },
        { "json", OPT_FLAG, &json, NULL, "print a JSON list" },
    };
    const cli_usage usage = {
        .synopsis = "devices [options]",
        .about = "Lists the devices that can compute in place of the CPU, over OpenCL 1.2.\n\n"
                 "Numbers are those of --device opencl:N. Without OpenCL the list is empty. PALIMPSA_OPENCL "
                 "names another library than libOpenCL.so.1. --check exits with 1 if a device computes other "
                 "numbers than plain C.",
        .examples = "  palimpsa devices\n  palimpsa devices --check\n  palimpsa devices --json\n  palimpsa generate "
                    "my-model --device opencl:0 "
                    "--prompt 'Once'\n",
        .options = options,
        .option_count = PAL_COUNT(options),
    };
    static pal_device_info devices[MOST];
    const char *none;
    pal_error err;
    int count;
    const int parsed = cli_parse(&usage, argc, argv, &none, 0, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (json && check)
        return cli_error(CLI_USAGE, "devices: --json lists, and --check prints what it compares; give one");
    if (pal_devices(devices, MOST, &count, &err)) return cli_fail(&err);
    if (count > MOST) count = MOST;
    if (json) {
        json_t *list = json_array();
        for (int i = 0; i < count; i++) pal_json_append(list, device_json(i, &devices[i]));
        return cli_print_json(list, JSON_INDENT(2));
    }
    for (int i = 0; i < count; i++) {
        print_device(i, &devices[i]);
        const int code = check && devices[i].usable ? check_device(i, &devices[i]) : CLI_OK;
        if (code) return code;
    }
    if (!count) puts("OpenCL finds no device here");
    return CLI_OK;
}
