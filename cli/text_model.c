/* SPDX-License-Identifier: MIT */
#include "text_model.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/context.h"
#include "base/directory.h"
#include "base/log.h"
#include "cli.h"
#include "model/model.h"
#include "text/strings.h"
#include "text/utf8.h"

static bool has_tokenizer(const char *directory) {
    static const char *const names[] = { "tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer.gguf" };
    for (size_t i = 0; i < PAL_COUNT(names); i++)
        if (pal_directory_has(directory, names[i])) return true;
    return false;
}

static int open_tokenizer(text_model *m, const char *path, const char *tokenizer, const char *fallback, bool quiet) {
    pal_error err;
    if (!tokenizer && (strcmp(m->model->source.format, "gguf") == 0 || has_tokenizer(m->model->source.path)))
        tokenizer = m->model->source.path; /* a GGUF file holds its own; of a run directory: the checkpoint's */
    if (!tokenizer && has_tokenizer(path)) tokenizer = path;
    if (!tokenizer && fallback && has_tokenizer(fallback)) tokenizer = fallback;
    if (!tokenizer)
        return cli_error(CLI_USAGE, "%s: there is no tokenizer in this directory; name one with --tokenizer", path);
    if (pal_tokenizer_open(&m->tokenizer, tokenizer, &err)) return cli_fail(&err);
    const size_t ids = pal_tokenizer_size(m->tokenizer), vocab = (size_t)pal_model_config_of(m->model)->vocab;
    if (ids > vocab)
        return cli_error(
            CLI_USAGE,
            "%s: the model's vocabulary has %zu tokens, but the tokenizer %s has %zu ids: they do not belong together",
            path, vocab, tokenizer, ids);
    if (ids < vocab / 4 * 3 && !quiet)
        pal_warn("%s: the model's vocabulary has %zu tokens, the tokenizer %s only %zu ids: do they belong together?",
                 path, vocab, tokenizer, ids);
    return pal_tokenizer_scratch_new(&m->scratch, m->tokenizer, &err) ? cli_fail(&err) : CLI_OK;
}

int text_model_open(text_model *m, const char *path, const char *tokenizer, const char *fallback,
                    const pal_context *cx) {
    pal_error err;
    *m = (text_model){ 0 };
    const pal_status st = cx ? pal_model_open(&m->model, path, PAL_FOR_INFERENCE, cx, &err)
                             : pal_model_open_unloaded(&m->model, path, PAL_FOR_INFERENCE, &err);
    const int code = st ? cli_fail(&err) : open_tokenizer(m, path, tokenizer, fallback, !cx);
    if (code) text_model_close(m);
    return code;
}

void text_model_close(text_model *m) {
    pal_tokenizer_scratch_free(m->scratch);
    pal_tokenizer_close(m->tokenizer);
    pal_model_close(m->model);
    *m = (text_model){ 0 };
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

json_t *text_json(const void *bytes, size_t size) {
    json_t *whole = json_stringn(bytes ? bytes : "", size); /* NULL when it is not UTF-8 */
    if (whole) return whole;
    pal_bytes clean = { 0 };
    const unsigned char *s = bytes;
    for (size_t i = 0; i < size;) {
        uint32_t code;
        const size_t n = pal_utf8_read(s + i, size - i, &code);
        if (pal_bytes_append(&clean, n ? (const char *)s + i : "\xEF\xBF\xBD", n ? n : 3, NULL)) break;
        i += n ? n : 1;
    }
    whole = json_stringn((const char *)clean.data, clean.size);
    pal_bytes_free(&clean);
    return whole ? whole : json_null();
}

void text_size(char out[32], size_t bytes) {
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB" };
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 3; unit++) value /= 1024;
    snprintf(out, 32, "%.4g %s", value, units[unit]);
}
