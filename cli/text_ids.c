/* SPDX-License-Identifier: MIT */
#include "text_ids.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "cli.h"
#include "model/model.h"
#include "text/tokenizer.h"

static pal_status open_tokenizer(pal_tokenizer **out, const char *spec, const pal_model *model, pal_error *err) {
    if (spec && strcmp(spec, "none") != 0) return pal_tokenizer_open(out, spec, err);
    const pal_status st = pal_tokenizer_open_path(out, model->source.path, err);
    if (!st) return PAL_OK;
    const pal_error why = *err;
    return pal_fail(err, st, "no tokenizer comes with the model (%s); say --tokenizer FILE, DIR or bytes", why.text);
}

/* The first `size` bytes, less what would cut a word: ids near a cut could differ from those of the whole text. */
static size_t cut(const unsigned char *text, size_t size, size_t whole) {
    if (size >= whole) return whole;
    size_t end = size;
    while (end > size / 2 && text[end] != '\n' && text[end] != ' ') end--;
    if (end > size / 2) return end;
    for (end = size; end > 0 && (text[end] & 0xc0) == 0x80;) end--;
    return end;
}

static pal_status encode(pal_ids *ids, const pal_tokenizer *tok, const pal_map *map, int most, pal_error *err) {
    pal_tokenizer_scratch *scratch;
    pal_status st = pal_tokenizer_scratch_new(&scratch, tok, err);
    /* Few tokens are longer than eight bytes; where they are, more of the text is read. */
    for (size_t bytes = 8 * (size_t)most + 4096; !st; bytes *= 4) {
        const size_t size = cut(map->data, bytes, map->size);
        ids->count = 0;
        st = pal_tokenizer_encode(tok, scratch, map->data, size, NULL, ids, err);
        if (ids->count >= (size_t)most || size == map->size) break;
    }
    pal_tokenizer_scratch_free(scratch);
    return st;
}

int cli_text_ids_read(cli_text_ids *out, const char *path, const char *tokenizer, const pal_model *model, int least,
                      int most) {
    const int vocab = pal_model_config_of(model)->vocab;
    pal_tokenizer *tok = NULL;
    pal_map map = { 0 };
    pal_ids ids = { 0 };
    pal_error err;
    int code = CLI_OK;
    *out = (cli_text_ids){ 0 };
    pal_status st = open_tokenizer(&tok, tokenizer, model, &err);
    if (!st) st = pal_map_open(&map, path, &err);
    if (!st && map.size) st = encode(&ids, tok, &map, most, &err);
    if (st) code = cli_fail(&err);
    else if (ids.count < (size_t)least)
        code = cli_error(CLI_USAGE, "%s: the text has %zu tokens, expected at least %d", path, ids.count, least);
    if (!code) {
        out->count = ids.count < (size_t)most ? (int)ids.count : most;
        out->ids = pal_alloc((size_t)out->count, sizeof *out->ids);
        if (!out->ids) code = cli_error(CLI_FAILED, "out of memory for %d tokens", out->count);
    }
    for (int i = 0; i < out->count && !code; i++) {
        if (ids.data[i] >= (uint32_t)vocab)
            code = cli_error(CLI_USAGE,
                             "%s: token %d is id %u, but the model's vocabulary has 0 to %d; is this its tokenizer?",
                             path, i, (unsigned)ids.data[i], vocab - 1);
        else out->ids[i] = (int32_t)ids.data[i];
    }
    pal_ids_free(&ids);
    pal_map_close(&map);
    pal_tokenizer_close(tok);
    if (code) cli_text_ids_free(out);
    return code;
}

void cli_text_ids_free(cli_text_ids *text) {
    pal_free(text->ids);
    *text = (cli_text_ids){ 0 };
}
