/* SPDX-License-Identifier: MIT */
#include "train/sample.h"

#include <string.h>

#include "palimpsa/session.h"
#include "text/strings.h"
#include "text/utf8.h"

static bool printable(uint32_t c) {
    return c == '\n' || c == '\t' || c == '\r' || (c >= 0x20 && c < 0x7F) || c >= 0xA0;
}

/* JSON holds UTF-8 only: bytes that are not, as an untrained model writes them, become U+FFFD, and so do control
 * characters, since samples go to terminals. */
static pal_status readable(const pal_bytes *text, pal_bytes *out, pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t i = 0, length; i < text->size && !st; i += length ? length : 1) {
        uint32_t code = 0;
        length = pal_utf8_read(text->data + i, text->size - i, &code);
        st = length && printable(code) ? pal_bytes_append(out, text->data + i, length, err)
                                       : pal_bytes_append(out, "\xEF\xBF\xBD", 3, err);
    }
    return st;
}

pal_status pal_sample_prompt(const pal_tokenizer *tok, const char *prompt, pal_ids *ids, pal_error *err) {
    pal_tokenizer_scratch *scratch = NULL;
    pal_status st = pal_tokenizer_scratch_new(&scratch, tok, err);
    if (!st) st = pal_tokenizer_encode(tok, scratch, prompt, strlen(prompt), NULL, ids, err);
    if (!st && !ids->count) st = pal_fail(err, PAL_E_ARGUMENT, "a sample needs a prompt of at least one token");
    pal_tokenizer_scratch_free(scratch);
    return st;
}

typedef struct {
    pal_bytes text;
    pal_status st;
    pal_error *err;
} written;

static void listen(void *user, const pal_token *t) {
    written *w = user;
    if (t->finish ==
        PAL_FINISH_ERROR) { /* a model that diverged: its numbers are in the metrics, and training continues */
        w->text.size = 0;
        return;
    }
    if (!w->st) w->st = pal_bytes_append(&w->text, t->text.data, t->text.size, w->err);
}

pal_status pal_sample(pal_bytes *out, const pal_model *model, const pal_tokenizer *tok, const pal_context *cx,
                      const char *prompt, int64_t tokens, uint64_t seed, pal_error *err) {
    pal_ids ids = { 0 };
    pal_engine *engine = NULL;
    pal_session *session = NULL;
    written w = { .err = err };
    pal_status st = pal_sample_prompt(tok, prompt, &ids, err);
    const int64_t all = (int64_t)ids.count + tokens;
    const pal_engine_options options = { .context = all < PAL_SAMPLE_MOST ? (int)all : PAL_SAMPLE_MOST };
    if (!st) st = pal_engine_new(&engine, model, tok, cx, &options, err);
    if (!st) st = pal_session_new(&session, engine, err);
    if (!st)
        st = pal_session_begin(
            session, ids.data, ids.count,
            &(pal_session_options){
                .sampling = { .temperature = 1 }, .seed = seed, .max_tokens = tokens, .on_token = listen, .user = &w },
            err);
    while (!st && !w.st && pal_engine_step(engine)) {
    }
    if (!st) st = w.st;
    if (!st) st = readable(&w.text, out, err);
    pal_session_free(session);
    pal_engine_free(engine);
    pal_ids_free(&ids);
    pal_bytes_free(&w.text);
    return st;
}
