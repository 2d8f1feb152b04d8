/* SPDX-License-Identifier: MIT */
/* The interface: encoding from text to ids, decoding back whole or piece by piece, and what is asked about a tokenizer.
 */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "text/pattern.h"
#include "text/utf8.h"

void pal_tokenizer_close(pal_tokenizer *tok) {
    if (!tok) return;
    pal_free(tok->flags);
    pal_free(tok->scores);
    pal_free(tok->added);
    pal_strings_free(&tok->names);
    pal_strings_free(&tok->texts);
    pal_strings_free(&tok->first_texts);
    pal_strings_free(&tok->keys);
    pal_string_map_free(&tok->by_name);
    pal_string_map_free(&tok->by_key);
    pal_pair_map_free(&tok->merges);
    pal_trie_free(&tok->pieces);
    pal_trie_free(&tok->spm.user);
    pal_bytes_free(&tok->spm.charsmap);
    pal_bytes_free(&tok->spm.unk_surface);
    pal_trie_free(&tok->added_raw.trie);
    pal_trie_free(&tok->added_normal.trie);
    for (size_t i = 0; i < PAL_STEPS_MAX; i++) {
        pal_bytes_free(&tok->normal[i].from);
        pal_bytes_free(&tok->normal[i].to);
        pal_pattern_free(tok->split[i].pattern);
        pal_bytes_free(&tok->split[i].literal);
    }
    pal_ids_free(&tok->prefix);
    pal_ids_free(&tok->suffix);
    pal_ids_free(&tok->ends);
    for (size_t i = 0; i < PAL_TOKENIZER_FILES; i++) pal_bytes_free(&tok->files[i].bytes);
    for (size_t i = 0; i < tok->template_count; i++) {
        pal_bytes_free(&tok->templates[i].name);
        pal_bytes_free(&tok->templates[i].text);
    }
    pal_free(tok->templates);
    pal_free(tok);
}

const char *pal_tokenizer_kind(const pal_tokenizer *tok) { return tok->kind; }
size_t pal_tokenizer_size(const pal_tokenizer *tok) { return tok->size; }
int64_t pal_tokenizer_bos(const pal_tokenizer *tok) { return tok->bos; }
int64_t pal_tokenizer_eos(const pal_tokenizer *tok) { return tok->eos; }
uint64_t pal_tokenizer_fingerprint(const pal_tokenizer *tok) { return tok->fingerprint; }
bool pal_tokenizer_is_special(const pal_tokenizer *tok, uint32_t id) {
    return id < tok->size && (tok->flags[id] & PAL_TOKEN_SPECIAL);
}

pal_slice pal_tokenizer_text(const pal_tokenizer *tok, uint32_t id) {
    return id < tok->size ? pal_strings_at(&tok->texts, id) : (pal_slice){ (const unsigned char *)"", 0 };
}

pal_slice pal_tokenizer_name(const pal_tokenizer *tok, uint32_t id) {
    return id < tok->size ? pal_strings_at(&tok->names, id) : (pal_slice){ (const unsigned char *)"", 0 };
}

int64_t pal_tokenizer_find(const pal_tokenizer *tok, const char *name) {
    const uint32_t id = pal_string_map_find(&tok->by_name, &tok->names, name, strlen(name));
    return id == PAL_NO_ID ? -1 : (int64_t)id;
}

pal_status pal_tokenizer_scratch_new(pal_tokenizer_scratch **out, const pal_tokenizer *tok, pal_error *err) {
    pal_status st;
    void *block, *cache;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof **out, "a tokenizer's work memory", err))) return st;
    if ((st = pal_alloc_named(&cache, 2 * CACHE_SETS, sizeof(pal_cache_entry), "a tokenizer's cache", err))) {
        pal_free(block);
        return st;
    }
    *out = block;
    (*out)->owner = tok;
    (*out)->cache = cache;
    return PAL_OK;
}

void pal_tokenizer_scratch_free(pal_tokenizer_scratch *s) {
    if (!s) return;
    for (int i = 0; i < 2; i++) {
        pal_bytes_free(&s->stage[i]);
        pal_free(s->spans[i].data);
    }
    pal_normal_scratch_free(s);
    pal_free(s->symbols);
    pal_free(s->heap);
    pal_free(s->best);
    pal_ids_free(&s->word);
    pal_free(s->cache);
    pal_pattern_scratch_free(s);
    pal_free(s);
}

/* Text between added tokens of the first kind: normalise, cut out those of the second kind, split and encode the rest.
 */
static pal_status encode_part(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice part, bool first,
                              bool special_as_text, pal_ids *ids, pal_error *err) {
    pal_slice text;
    pal_added_match match;
    pal_status st;
    size_t from = 0, at = 0;
    if (part.size == 0) return PAL_OK;
    if (tok->model != PAL_MODEL_BPE) return pal_spm_encode(tok, s, part, first, special_as_text, ids, err);
    if ((st = pal_normalize(tok, s, part, &text, err))) return st;
    while (pal_added_next(tok, &tok->added_normal, special_as_text, text, &at, from, &match)) {
        if (match.start > from && (st = pal_encode_segment(tok, s, (pal_slice){ text.data + from, match.start - from },
                                                           first && from == 0, ids, err)))
            return st;
        if ((st = pal_ids_append(ids, match.token->id, err))) return st;
        from = match.end;
    }
    return pal_encode_segment(tok, s, (pal_slice){ text.data + from, text.size - from }, first && from == 0, ids, err);
}

static pal_status encode(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, bool special_as_text,
                         pal_ids *ids, pal_error *err) {
    pal_added_match match;
    pal_status st;
    size_t from = 0, at = 0;
    if (text.size == 0) return PAL_OK;
    if (tok->model == PAL_MODEL_BPE && tok->merges.count == 0 && tok->added_count == 0 && tok->normal_count == 0 &&
        tok->split_count == 0)
        return pal_bpe_plain(tok, text, ids, err);
    while (pal_added_next(tok, &tok->added_raw, special_as_text, text, &at, from, &match)) {
        if (match.start > from && (st = encode_part(tok, s, (pal_slice){ text.data + from, match.start - from },
                                                    from == 0, special_as_text, ids, err)))
            return st;
        if ((st = pal_ids_append(ids, match.token->id, err))) return st;
        from = match.end;
    }
    return encode_part(tok, s, (pal_slice){ text.data + from, text.size - from }, from == 0, special_as_text, ids, err);
}

static pal_status append_all(pal_ids *ids, const pal_ids *more, pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t i = 0; i < more->count && !st; i++) st = pal_ids_append(ids, more->data[i], err);
    return st;
}

pal_status pal_tokenizer_encode(const pal_tokenizer *tok, pal_tokenizer_scratch *scratch, const void *text, size_t size,
                                const pal_encode_options *options, pal_ids *ids, pal_error *err) {
    static const pal_encode_options plain = { 0 };
    const size_t before = ids->count;
    pal_status st = PAL_OK;
    if (!options) options = &plain;
    if (scratch->owner != tok) return pal_fail(err, PAL_E_ARGUMENT, "this work memory was made for another tokenizer");
    if (!text && size) return pal_fail(err, PAL_E_ARGUMENT, "a text of %zu bytes is NULL", size);
    pal_pattern_begin(scratch, size);
    scratch->growth = pal_growth_of(size, PAL_TEXTS_GROW, NULL);
    if (options->add_special) st = append_all(ids, &tok->prefix, err);
    if (!st) st = encode(tok, scratch, (pal_slice){ text, size }, options->special_as_text, ids, err);
    if (!st && options->add_special) st = append_all(ids, &tok->suffix, err);
    pal_pattern_end(scratch);
    if (st) ids->count = before;
    return st;
}

/* What decoding keeps from token to token: where in the text it is, and the bytes of an unfinished character. */
struct pal_decoder {
    const pal_tokenizer *tok;
    bool skip_special;
    bool any;     /* a token came */
    bool started; /* SentencePiece: something was written */
    size_t strip; /* blanks that the start of the text may still lose */
    unsigned char pending[4];
    size_t pending_size;
};

static pal_decoder decoder_of(const pal_tokenizer *tok, bool skip_special) {
    return (pal_decoder){ .tok = tok, .skip_special = skip_special, .strip = tok->strip_start };
}

static pal_status append_token(pal_decoder *d, uint32_t id, pal_bytes *text, pal_error *err) {
    const pal_tokenizer *tok = d->tok;
    pal_status st = PAL_OK;
    if (!pal_is_token(tok, id))
        return pal_fail(err, PAL_E_ARGUMENT, "id %u is not in the vocabulary, which has %zu ids", id, tok->size);
    if (d->skip_special && (tok->flags[id] & PAL_TOKEN_SPECIAL)) return PAL_OK;
    const bool first = !d->any;
    d->any = true;
    pal_slice piece = pal_strings_at(first && tok->first_texts.count ? &tok->first_texts : &tok->texts, id);
    if (!first && tok->join_blank && (st = pal_bytes_append(text, " ", 1, err))) return st;
    for (; d->strip && piece.size && piece.data[0] == ' '; d->strip--) piece.data++, piece.size--;
    if (piece.size) d->strip = 0;
    if (!d->started && tok->strip_blank && piece.size && piece.data[0] == ' ' && !(tok->flags[id] & PAL_TOKEN_BYTE) &&
        id != tok->unk)
        piece.data++, piece.size--, d->started = !tok->spm.collapse_blanks; /* where blanks collapse, all in front go */
    if (piece.size) d->started = true;
    return pal_bytes_append(text, piece.data, piece.size, err);
}

pal_status pal_tokenizer_decode(const pal_tokenizer *tok, const uint32_t *ids, size_t count, bool skip_special,
                                pal_bytes *text, pal_error *err) {
    pal_decoder d = decoder_of(tok, skip_special);
    const size_t before = text->size;
    pal_status st = PAL_OK;
    for (size_t i = 0; i < count && !st; i++) st = append_token(&d, ids[i], text, err);
    if (st) text->size = before;
    return st;
}

pal_status pal_decoder_new(pal_decoder **out, const pal_tokenizer *tok, bool skip_special, pal_error *err) {
    void *block;
    pal_status st;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof **out, "a decoder", err))) return st;
    *out = block;
    **out = decoder_of(tok, skip_special);
    return PAL_OK;
}

void pal_decoder_free(pal_decoder *d) { pal_free(d); }

/* Bytes at the end of a text that may become a character when more comes: at most 3. */
static size_t unfinished(const unsigned char *s, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char lead = s[n - back];
        if ((lead & 0xC0) == 0x80) continue;
        if (lead < 0xC2 || lead > 0xF4) return 0;
        if (back >= (lead < 0xE0 ? 2u : lead < 0xF0 ? 3u : 4u)) return 0;
        /* The second byte may already rule the character out (overlong, surrogate, too large). */
        if (back >= 2) {
            const unsigned char second = s[n - back + 1];
            if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
                (lead == 0xF4 && second > 0x8F))
                return 0;
        }
        return back;
    }
    return 0;
}

pal_status pal_decoder_push(pal_decoder *d, uint32_t id, pal_bytes *text, pal_error *err) {
    const size_t before = text->size;
    pal_status st;
    if (!(st = pal_bytes_append(text, d->pending, d->pending_size, err))) st = append_token(d, id, text, err);
    if (st) {
        text->size = before;
        return st;
    }
    d->pending_size = text->size > before ? unfinished(text->data + before, text->size - before) : 0;
    text->size -= d->pending_size;
    if (d->pending_size) memcpy(d->pending, text->data + text->size, d->pending_size);
    return PAL_OK;
}

pal_status pal_decoder_peek(const pal_decoder *d, uint32_t id, pal_bytes *text, pal_error *err) {
    pal_decoder copy = *d;
    return append_token(&copy, id, text, err);
}

bool pal_decoder_begins(const pal_decoder *d) {
    return (!d->any && (d->tok->first_texts.count || d->tok->join_blank)) || d->strip ||
           (!d->started && d->tok->strip_blank);
}

void pal_decoder_forget(pal_decoder *d) { d->pending_size = 0; }

pal_status pal_decoder_finish(pal_decoder *d, pal_bytes *text, pal_error *err) {
    const pal_status st = pal_bytes_append(text, d->pending, d->pending_size, err);
    if (!st) *d = decoder_of(d->tok, d->skip_special);
    return st;
}
