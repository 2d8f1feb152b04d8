/* SPDX-License-Identifier: MIT */
#include "palimpsa/bundle.h"

#include <string.h>

#include "base/directory.h"
#include "base/log.h"
#include "model/model.h"
#include "text/side_files.h"
#include "text/tokenizer.h"

static pal_status open_tokenizer(pal_bundle *m, const char *path, const char *tokenizer, const char *fallback,
                                 bool quiet, pal_error *err) {
    const char *source = m->model->source.path; /* of a run directory: the checkpoint */
    const char *named = tokenizer ? tokenizer : fallback; /* as for pal_tokenizer_open; otherwise a path */
    pal_status st;
    if (!tokenizer && (m->model->source.one_file || pal_tokenizer_file_in(source))) tokenizer = source;
    if (!tokenizer && pal_tokenizer_file_in(path)) tokenizer = path;
    if (!tokenizer && fallback && (strcmp(fallback, "ids") == 0 || pal_tokenizer_file_in(fallback)))
        tokenizer = fallback;
    if (!tokenizer)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "%s has no tokenizer; name one: a file, a directory or 'bytes'", path);
    st = tokenizer != named ? pal_tokenizer_open_path(&m->tokenizer, tokenizer, err)
         : strcmp(tokenizer, "ids") == 0
             ? pal_tokenizer_ids(&m->tokenizer, (size_t)pal_model_config_of(m->model)->vocab, err)
             : pal_tokenizer_open(&m->tokenizer, tokenizer, err);
    if (!st) {
        const pal_source *from = &m->model->source;
        st = from->one_file ? pal_tokenizer_add_ends(m->tokenizer, from->config, err)
                            : pal_tokenizer_add_from(m->tokenizer, from->path, err);
    }
    if (st) return st;
    const size_t ids = pal_tokenizer_size(m->tokenizer), vocab = (size_t)pal_model_config_of(m->model)->vocab;
    if (ids > vocab)
        return pal_fail(
            err, PAL_E_ARGUMENT,
            "%s: the model's vocabulary has %zu tokens, but the tokenizer %s has %zu ids: they do not belong together",
            path, vocab, tokenizer, ids);
    if (ids < vocab / 4 * 3 && !quiet)
        pal_warn("%s: the model's vocabulary has %zu tokens, the tokenizer %s only %zu ids: do they belong together?",
                 path, vocab, tokenizer, ids);
    return pal_tokenizer_scratch_new(&m->scratch, m->tokenizer, err);
}

pal_status pal_bundle_open(pal_bundle *m, const char *path, const char *tokenizer, const char *fallback,
                           const pal_context *cx, pal_error *err) {
    *m = (pal_bundle){ 0 };
    pal_status st = cx ? pal_model_open(&m->model, path, PAL_FOR_INFERENCE, cx, err)
                       : pal_model_open_unloaded(&m->model, path, PAL_FOR_INFERENCE, err);
    if (!st) st = open_tokenizer(m, path, tokenizer, fallback, !cx, err);
    if (st) pal_bundle_close(m);
    return st;
}

void pal_bundle_close(pal_bundle *m) {
    pal_tokenizer_scratch_free(m->scratch);
    pal_tokenizer_close(m->tokenizer);
    pal_model_close(m->model);
    *m = (pal_bundle){ 0 };
}
