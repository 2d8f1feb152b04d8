/* SPDX-License-Identifier: MIT */
/* POST /tokenize and /detokenize, GET /tokenizer_info: the tokenizer, as evaluation programs ask for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "serve/inside.h"
#include "text/json_text.h"
#include "text/strings.h"

/* Values of JSON would take ten times the memory of the text. */
static char *print_ids(const pal_ids *ids, int context) {
    enum { HEAD = 96, LONGEST = 11 }; /* of an id: ten digits and a comma */
    char *text = malloc(HEAD + ids->count * LONGEST), *smaller;
    if (!text) return NULL;
    int n = snprintf(text, HEAD, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", ids->count, context);
    char *at = text + n;
    for (size_t i = 0; i < ids->count; i++, at += n)
        n = snprintf(at, LONGEST + 1, i ? ",%u" : "%u", (unsigned)ids->data[i]);
    memcpy(at, "]}", 3);
    smaller = realloc(text, (size_t)(at - text) + 3);
    return smaller ? smaller : text;
}

serve_result serve_tokenize(serve_exchange *x) {
    serve_fields f = { .x = x, .result = MHD_NO };
    pal_ids ids = { 0 };
    pal_error err;
    bool special = false;
    json_t *root = serve_body(x, &f.result);
    serve_model *model = root ? serve_find_model(x, root, &f.result) : NULL;
    f.root = root;
    if (model && serve_boolean(&f, "add_special_tokens", &special)) {
        const json_t *text = json_object_get(root, "prompt");
        if (!text) text = json_object_get(root, "content");
        if (!json_is_string(text)) serve_wrong(&f, "prompt", "a text");
        else if (!serve_numbers_fit(model->bundle.tokenizer, json_string_value(text)))
            serve_wrong(&f, "prompt", serve_numbers);
        else if (serve_encode(x, model, json_string_value(text), json_string_length(text),
                              &(pal_encode_options){ .add_special = special }, &ids, &err))
            f.result = serve_error(x, err.status == PAL_E_MEMORY ? 500 : 400, "prompt", "'prompt': %s", err.text);
        else f.result = serve_reply_text(x, 200, print_ids(&ids, model->context));
    }
    pal_ids_free(&ids);
    json_decref(root);
    return f.result;
}

static bool read_ids(serve_fields *f, pal_ids *ids, size_t vocab) {
    const json_t *list = json_object_get(f->root, "tokens");
    if (!json_is_array(list)) return serve_wrong(f, "tokens", "a list of ids");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || (size_t)value >= vocab)
            return serve_wrong(f, "tokens", "ids of the vocabulary");
        if (pal_ids_append(ids, (uint32_t)value, NULL)) return serve_no_memory(f);
    }
    return true;
}

/* A token may be a thousand times longer than its id in the request, so the text is bounded as it grows. */
static bool decode(serve_fields *f, const pal_tokenizer *tok, const pal_ids *ids, pal_bytes *text) {
    enum { COPIES = 8 }; /* the text with room to grow, as JSON, and printed, where a byte may take six */
    const size_t most = f->x->server->options.max_answer / COPIES;
    pal_decoder *decoder;
    pal_error err;
    pal_status st = pal_decoder_new(&decoder, tok, false, &err);
    for (size_t i = 0; i < ids->count && !st && text->size <= most; i++)
        st = pal_decoder_push(decoder, ids->data[i], text, &err);
    if (!st) st = pal_decoder_finish(decoder, text, &err);
    pal_decoder_free(decoder);
    if (st) f->result = serve_error(f->x, st == PAL_E_MEMORY ? 500 : 400, "tokens", "'tokens': %s", err.text);
    else if (text->size > most)
        f->result = serve_error(f->x, 400, "tokens", "'tokens': expected a text of at most %zu bytes (--max-answer)",
                                most);
    return !st && text->size <= most;
}

serve_result serve_detokenize(serve_exchange *x) {
    serve_fields f = { .x = x, .result = MHD_NO };
    pal_ids ids = { 0 };
    pal_bytes text = { 0 };
    json_t *root = serve_body(x, &f.result);
    serve_model *model = root ? serve_find_model(x, root, &f.result) : NULL;
    f.root = root;
    if (model && read_ids(&f, &ids, pal_tokenizer_size(model->bundle.tokenizer)) &&
        decode(&f, model->bundle.tokenizer, &ids, &text))
        f.result = serve_reply_json(x, 200, json_pack("{s:o}", "prompt", pal_json_bytes(text.data, text.size)));
    pal_ids_free(&ids);
    pal_bytes_free(&text);
    json_decref(root);
    return f.result;
}

static json_t *name_of(const pal_tokenizer *tok, int64_t id) {
    if (id < 0) return json_null();
    const pal_slice name = pal_tokenizer_name(tok, (uint32_t)id);
    return pal_json_bytes(name.data, name.size);
}

serve_result serve_tokenizer_info(serve_exchange *x) {
    if (!x->server->count) return serve_error(x, 404, NULL, "this server has no model");
    const pal_tokenizer *tok = x->server->models[0].bundle.tokenizer;
    const int64_t bos = pal_tokenizer_bos(tok), eos = pal_tokenizer_eos(tok);
    return serve_reply_json(x, 200,
                            json_pack("{s:s, s:I, s:o, s:o, s:o, s:I, s:I, s:n}", "kind", pal_tokenizer_kind(tok),
                                      "vocab_size", (json_int_t)pal_tokenizer_size(tok), "bos_token", name_of(tok, bos),
                                      "eos_token", name_of(tok, eos), "pad_token", name_of(tok, eos), "bos_token_id",
                                      (json_int_t)bos, "eos_token_id", (json_int_t)eos, "chat_template"));
}
