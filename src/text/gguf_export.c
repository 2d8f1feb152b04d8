/* SPDX-License-Identifier: MIT */
#include "text/gguf_export.h"

#include <stdio.h>

#include "base/alloc.h"
#include "format/gguf_values.h"
#include "text/gguf_pre.h"

typedef struct {
    pal_bytes *out;
    size_t *count;
    pal_error *err;
    pal_status st;
} exporter;

static void put(exporter *e, const void *bytes, size_t size) {
    if (!e->st) e->st = pal_bytes_append(e->out, bytes, size, e->err);
}

static void put_number(exporter *e, uint64_t x, int bytes) {
    unsigned char out[8];
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(x >> (8 * i));
    put(e, out, (size_t)bytes);
}

static void put_string(exporter *e, const void *text, size_t size) {
    put_number(e, size, 8);
    put(e, text, size);
}

static void begin(exporter *e, const char *key, pal_gguf_type type) {
    put_string(e, key, strlen(key));
    put_number(e, type, 4);
    ++*e->count;
}

static void begin_array(exporter *e, const char *key, pal_gguf_type element, size_t n) {
    begin(e, key, PAL_GGUF_ARRAY);
    put_number(e, element, 4);
    put_number(e, n, 8);
}

static void pair_string(exporter *e, const char *key, const char *value) {
    begin(e, key, PAL_GGUF_STRING);
    put_string(e, value, strlen(value));
}

static void pair_u32(exporter *e, const char *key, int64_t value) {
    begin(e, key, PAL_GGUF_U32);
    put_number(e, (uint64_t)value, 4);
}

static void pair_bool(exporter *e, const char *key, bool value) {
    begin(e, key, PAL_GGUF_BOOL);
    put_number(e, value, 1);
}

/* How chats are written and end. llama.cpp knows one more end than EOS; a list of all is ours. */
static void pair_chat(exporter *e, const pal_tokenizer *tok) {
    size_t named = 0;
    for (size_t i = 0; i < tok->template_count; i++) {
        const pal_chat_template *t = &tok->templates[i];
        const bool usual = t->name.size == 7 && memcmp(t->name.data, "default", 7) == 0;
        char key[128];
        snprintf(key, sizeof key, "tokenizer.chat_template%s%.*s", usual ? "" : ".", usual ? 0 : (int)t->name.size,
                 t->name.data);
        begin(e, key, PAL_GGUF_STRING);
        put_string(e, t->text.data, t->text.size);
        named += !usual;
    }
    if (named) begin_array(e, "tokenizer.chat_templates", PAL_GGUF_STRING, named);
    for (size_t i = 0; i < tok->template_count && named; i++) {
        const pal_bytes *name = &tok->templates[i].name;
        if (name->size != 7 || memcmp(name->data, "default", 7) != 0) put_string(e, name->data, name->size);
    }
    if (!tok->ends.count) return;
    pair_u32(e, "tokenizer.ggml.eot_token_id", tok->ends.data[0]);
    begin_array(e, "tokenizer.ggml.eos_token_ids", PAL_GGUF_U32, tok->ends.count);
    for (size_t i = 0; i < tok->ends.count; i++) put_number(e, tok->ends.data[i], 4);
}

static uint32_t kind_of(const pal_tokenizer *tok, size_t id) {
    if (!pal_is_token(tok, (int64_t)id)) return PAL_PIECE_UNUSED;
    const uint8_t f = tok->flags[id];
    if (tok->unk != PAL_NO_ID && id == tok->unk && tok->model != PAL_MODEL_BPE) return PAL_PIECE_UNKNOWN;
    if (f & PAL_TOKEN_SPECIAL) return PAL_PIECE_CONTROL;
    if (f & PAL_TOKEN_BYTE) return PAL_PIECE_BYTE;
    if (f & PAL_TOKEN_UNUSED) return PAL_PIECE_UNUSED;
    if (f & (PAL_TOKEN_ADDED | PAL_TOKEN_USER)) return PAL_PIECE_USER;
    return PAL_PIECE_NORMAL;
}

static void put_tokens(exporter *e, const pal_tokenizer *tok, size_t rows) {
    begin_array(e, "tokenizer.ggml.tokens", PAL_GGUF_STRING, rows);
    for (size_t id = 0; id < rows && !e->st; id++) {
        char padding[32];
        const pal_slice name = pal_is_token(tok, (int64_t)id) ? pal_strings_at(&tok->names, id)
                                                              : (pal_slice){ (const unsigned char *)padding, 0 };
        if (pal_is_token(tok, (int64_t)id)) put_string(e, name.data, name.size);
        else put_string(e, padding, (size_t)snprintf(padding, sizeof padding, "[PAD%zu]", id));
    }
    begin_array(e, "tokenizer.ggml.token_type", PAL_GGUF_I32, rows);
    for (size_t id = 0; id < rows && !e->st; id++) put_number(e, kind_of(tok, id), 4);
}

static pal_status put_merges(exporter *e, const pal_tokenizer *tok) {
    void *block;
    const pal_pair_map *map = &tok->merges;
    pal_status st = pal_alloc_named(&block, map->count + 1, sizeof(uint64_t), "merges", e->err);
    if (st) return st;
    uint64_t *by_rank = block;
    memset(by_rank, 0xff, (map->count + 1) * sizeof *by_rank);
    for (size_t i = 0; map->slots && i <= map->mask; i++)
        if (map->slots[i].key != UINT64_MAX && map->slots[i].a < map->count)
            by_rank[map->slots[i].a] = map->slots[i].key;
    size_t n = 0;
    while (n < map->count && by_rank[n] != UINT64_MAX) n++;
    if (n != map->count)
        st = pal_fail(
            e->err, PAL_E_UNSUPPORTED,
            "the tokenizer's merges are not numbered from 0 without gaps, so they cannot be written to a GGUF file");
    begin_array(e, "tokenizer.ggml.merges", PAL_GGUF_STRING, n);
    for (size_t i = 0; i < n && !st && !e->st; i++) {
        const pal_slice left = pal_strings_at(&tok->names, (size_t)(by_rank[i] >> 32)),
                        right = pal_strings_at(&tok->names, (size_t)(by_rank[i] & UINT32_MAX));
        put_number(e, left.size + 1 + right.size, 8);
        put(e, left.data, left.size);
        put(e, " ", 1);
        put(e, right.data, right.size);
    }
    pal_free(block);
    return st;
}

/* Added tokens, of which the file keeps the kind only: control tokens are found in the text as it is, others there or
 * in the normalised text, by the name of the rules; none looks at its neighbours. */
static pal_status check_added(const pal_tokenizer *tok, const pal_gguf_pre *rules, pal_error *err) {
    bool raw = false, normal = false, moved = false;
    for (size_t i = 0; i < tok->added_count; i++) {
        const pal_added_token *a = &tok->added[i];
        const char *flag = a->lstrip ? "lstrip" : a->rstrip ? "rstrip" : a->single_word ? "single_word" : NULL;
        const pal_shown shown = pal_show(pal_strings_at(&tok->names, a->id));
        if (flag)
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "the added token '%s' has %s, which cannot be written to a GGUF file", shown.text, flag);
        if (!a->special && (tok->flags[a->id] & PAL_TOKEN_IN_MODEL))
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "the added token '%s' is one of the model, too, which cannot be written to a GGUF file",
                            shown.text);
        raw = raw || !a->normalized;
        normal = normal || a->normalized;
        moved = moved || a->normalized != (!a->special && !rules->raw_added);
    }
    if (moved && (tok->normal_count || (raw && normal)))
        return pal_fail(
            err, PAL_E_UNSUPPORTED,
            "the added tokens cannot be written to a GGUF file: with the pre-tokenizer '%s' it says of special tokens "
            "that they are not normalized, and of all others that they are%s",
            rules->name, rules->raw_added ? " not, either" : "");
    return PAL_OK;
}

/* The template around a text: BOS in front, EOS after, or nothing. */
static pal_status check_template(const pal_tokenizer *tok, pal_error *err) {
    const int64_t bos = tok->bos >= 0 ? tok->bos : tok->eos, eos = tok->eos >= 0 ? tok->eos : tok->bos;
    const bool front = tok->prefix.count == 0 || (tok->prefix.count == 1 && tok->prefix.data[0] == bos),
               behind = tok->suffix.count == 0 || (tok->suffix.count == 1 && tok->suffix.data[0] == eos);
    if (front && behind) return PAL_OK;
    return pal_fail(err, PAL_E_UNSUPPORTED,
                    "the tokenizer puts other tokens than BOS and EOS around a text, which cannot be written to a GGUF "
                    "file");
}

static pal_status export_bpe(exporter *e, const pal_tokenizer *tok, size_t rows) {
    const pal_gguf_pre *rules = pal_gguf_pre_of(tok);
    if (!rules)
        return pal_fail(e->err, PAL_E_UNSUPPORTED,
                        "this tokenizer (%s) cannot be written to a GGUF file: llama.cpp has no name for its rules; "
                        "byte-level BPE with the rules of GPT-2, MPT, DBRX, Llama 3, Qwen 2, Qwen 3.5 or Tekken and "
                        "SentencePiece BPE can",
                        tok->kind);
    for (int b = 0; b < 256 && tok->unk != PAL_NO_ID; b++)
        if (tok->byte_id[b] == PAL_NO_ID)
            return pal_fail(e->err, PAL_E_UNSUPPORTED,
                            "the tokenizer has an unknown token and none for the byte 0x%02X, which cannot be written "
                            "to a GGUF file",
                            (unsigned)b);
    const pal_status st = check_added(tok, rules, e->err);
    if (st) return st;
    pair_string(e, "tokenizer.ggml.model", "gpt2");
    pair_string(e, "tokenizer.ggml.pre", rules->name);
    put_tokens(e, tok, rows);
    return put_merges(e, tok);
}

static pal_status export_spm(exporter *e, const pal_tokenizer *tok, size_t rows) {
    const pal_spm_rules *r = &tok->spm;
    const char *lost = r->charsmap.size     ? "a normaliser"
                       : r->collapse_blanks ? "runs of blanks that become one (remove_extra_whitespaces)"
                       : !r->escape_blanks  ? "blanks that are not escaped"
                                            : NULL;
    if (lost)
        return pal_fail(e->err, PAL_E_UNSUPPORTED,
                        "this SentencePiece BPE cannot be written to a GGUF file: it has %s, which llama.cpp's 'llama' "
                        "tokenizer does not do; the ids would change",
                        lost);
    pair_string(e, "tokenizer.ggml.model", "llama");
    pair_string(e, "tokenizer.ggml.pre", "default");
    put_tokens(e, tok, rows);
    begin_array(e, "tokenizer.ggml.scores", PAL_GGUF_F32, rows);
    for (size_t id = 0; id < rows && !e->st; id++) {
        const float score = pal_is_token(tok, (int64_t)id) ? tok->scores[id] : -1000;
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        put_number(e, bits, 4);
    }
    pair_bool(e, "tokenizer.ggml.add_space_prefix", tok->spm.dummy_prefix);
    if (tok->unk != PAL_NO_ID) pair_u32(e, "tokenizer.ggml.unknown_token_id", tok->unk);
    return PAL_OK;
}

pal_status pal_gguf_export(const pal_tokenizer *tok, size_t rows, pal_bytes *out, size_t *count, pal_error *err) {
    exporter e = { .out = out, .count = count, .err = err };
    pal_status st = PAL_OK;
    if (!tok) {
        pair_string(&e, "tokenizer.ggml.model", "none");
        return e.st;
    }
    if (tok->size > rows)
        return pal_fail(err, PAL_E_ARGUMENT, "the tokenizer has %zu ids, the model's embedding %zu rows", tok->size,
                        rows);
    if ((st = check_template(tok, err))) return st;
    st = tok->model == PAL_MODEL_SPM_BPE && tok->scores ? export_spm(&e, tok, rows) : export_bpe(&e, tok, rows);
    if (st) return st;
    const int64_t bos = tok->bos >= 0 ? tok->bos : tok->eos, eos = tok->eos >= 0 ? tok->eos : tok->bos;
    if (bos >= 0) pair_u32(&e, "tokenizer.ggml.bos_token_id", bos);
    if (eos >= 0) pair_u32(&e, "tokenizer.ggml.eos_token_id", eos);
    pair_bool(&e, "tokenizer.ggml.add_bos_token", tok->prefix.count > 0);
    pair_bool(&e, "tokenizer.ggml.add_eos_token", tok->suffix.count > 0);
    pair_chat(&e, tok);
    return e.st;
}

pal_status pal_gguf_export_own(const pal_tokenizer *tok, size_t rows, pal_bytes *out, size_t *count, pal_error *err) {
    exporter e = { .out = out, .count = count, .err = err };
    if (!tok) return PAL_OK;
    if (!tok->files[0].name || strcmp(tok->files[0].name, "tokenizer.json") != 0)
        return pal_gguf_export(tok, rows, out, count, err);
    begin(&e, "tokenizer.huggingface.json", PAL_GGUF_STRING);
    put_string(&e, tok->files[0].bytes.data, tok->files[0].bytes.size);
    if (tok->bos >= 0) pair_u32(&e, "tokenizer.ggml.bos_token_id", tok->bos);
    if (tok->eos >= 0) pair_u32(&e, "tokenizer.ggml.eos_token_id", tok->eos);
    pair_chat(&e, tok);
    return e.st;
}
