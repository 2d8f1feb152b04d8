/* SPDX-License-Identifier: MIT */
#include "text_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/blocks.h"
#include "cli.h"
#include "infer/session.h"
#include "text/strings.h"

int text_model_open(pal_bundle *m, const char *path, const char *tokenizer, const char *fallback,
                    const pal_context *cx) {
    pal_error err;
    return pal_bundle_open(m, path, tokenizer, fallback, cx, &err) ? cli_fail(&err) : CLI_OK;
}

int text_model_keep_as(pal_model *model, const char *type) {
    pal_error err;
    const pal_dtype found = type ? pal_dtype_named(type, strlen(type)) : PAL_F32;
    if (!type) return CLI_OK;
    if (found != PAL_F32 && found != PAL_F16 && found != PAL_Q8_0)
        return cli_error(CLI_USAGE, "--kv-type expects f32, f16 or q8_0, found '%s'", type);
    return pal_model_keep_as(model, found, &err) ? cli_error(CLI_USAGE, "--kv-type %s: %s", type, err.text) : CLI_OK;
}

int text_model_tell_memory(const pal_model *model, const pal_engine_options *options, int sequences, size_t budget,
                           const pal_context *cx) {
    pal_error err;
    size_t weights = 0, work;
    const size_t state = pal_state_bytes(model, options->context);
    char weights_text[32], work_text[32], state_text[32], last[32];
    for (size_t i = 0; i < pal_model_weight_count(model); i++) weights += pal_weight_bytes(pal_model_weight(model, i));
    if (pal_engine_plan(&work, model, cx, *options, &err)) return cli_fail(&err);
    text_size(weights_text, weights);
    text_size(work_text, work);
    text_size(state_text, state);
    text_size(last, budget ? budget : weights + work + (size_t)sequences * state);
    const bool grows = pal_model_grows(pal_model_config_of(model));
    fprintf(stderr, "RAM: weights %s, workspace %s, %s%s a sequence; ", weights_text, work_text, grows ? "up to " : "",
            state_text);
    if (budget) fprintf(stderr, "%s for sequences and the cache (--memory-budget)\n", last);
    else if (sequences == 1) fprintf(stderr, "%s in all\n", last);
    else fprintf(stderr, "%s with %d sequences\n", last, sequences);
    return CLI_OK;
}

int text_read(const char *path, pal_bytes *text) {
    pal_error err;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    if (!file) return cli_error(CLI_USAGE, "%s: cannot open: %s", path, strerror(errno));
    int code = CLI_OK;
    while (!code) {
        if (pal_bytes_reserve(text, 1 << 16, &err)) {
            code = cli_fail(&err);
            break;
        }
        const size_t got = fread(text->data + text->size, 1, 1 << 16, file);
        if (!got) break;
        text->size += got;
    }
    if (!code && ferror(file))
        code = cli_error(CLI_USAGE, "%s: cannot read: %s", file == stdin ? "standard input" : path, strerror(errno));
    if (file != stdin) fclose(file);
    return code;
}

void text_size(char out[32], size_t bytes) {
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB" };
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 3; unit++) value /= 1024;
    snprintf(out, 32, "%.4g %s", value, units[unit]);
}
