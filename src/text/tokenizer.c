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

/* A text on its way, or a part of it. */
typedef struct {
    pal_slice text;
    const unsigned char *said; /* NULL: nothing */
    bool first;                /* it starts at the start of the input */
    bool special_as_text;
} stretch;

static stretch part_of(const stretch *t, size_t from, size_t to) {
    stretch part = *t;
    part.text = (pal_slice){ t->text.data + from, to - from };
    if (t->said) part.said = t->said + from;
    part.first = t->first && from == 0;
    return part;
}

static bool anything_said(const stretch *t) { return t->said && memchr(t->said, 1, t->text.size); }

/* Text between added tokens of the first kind: normalise, cut out those of the second kind, split and encode the rest.
 */
static pal_status encode_bpe(const pal_tokenizer *tok, pal_tokenizer_scratch *s, const stretch *t, pal_ids *ids,
                             pal_error *err) {
    const unsigned char *said = tok->normal_count ? NULL : t->said; /* else the text is another after the first step */
    pal_slice text;
    pal_added_match match;
    pal_status st;
    size_t from = 0, at = 0;
    if ((st = pal_normalize(tok, s, t->text, &text, err))) return st;
    while (pal_added_next(tok, &tok->added_normal, t->special_as_text, said, text, &at, from, &match)) {
        if (match.start > from && (st = pal_encode_segment(tok, s, (pal_slice){ text.data + from, match.start - from },
                                                           t->first && from == 0, ids, err)))
            return st;
        if ((st = pal_ids_append(ids, match.token->id, err))) return st;
        from = match.end;
    }
    return pal_encode_segment(tok, s, (pal_slice){ text.data + from, text.size - from }, t->first && from == 0, ids,
                              err);
}

/* Piece by piece, where control tokens are only found in the normalised text, which no longer says whose it is. */
static pal_status encode_bpe_pieces(const pal_tokenizer *tok, pal_tokenizer_scratch *s, const stretch *t, pal_ids *ids,
                                    pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t from = 0, to; from < t->text.size && !st; from = to) {
        for (to = from + 1; to < t->text.size && t->said[to] == t->said[from];) to++;
        stretch piece = part_of(t, from, to);
        piece.special_as_text |= t->said[from];
        st = encode_bpe(tok, s, &piece, ids, err);
    }
    return st;
}

/* SentencePiece: marks that are user-defined symbols cut the text here where they are the template's; the others are
 * text. */
static pal_status encode_spm(const pal_tokenizer *tok, pal_tokenizer_scratch *s, const stretch *t, pal_ids *ids,
                             pal_error *err) {
    bool prefix = t->first || !tok->spm.prefix_once;
    size_t from = 0;
    pal_status st;
    if (!tok->spm.user.nodes || !anything_said(t))
        return pal_spm_encode(tok, s, t->text, prefix, t->special_as_text, ids, err);
    for (size_t i = 0; i < t->text.size && !t->special_as_text;) {
        uint32_t id;
        const size_t length = pal_trie_longest(&tok->spm.user, t->text.data + i, t->text.size - i, &id);
        if (!length || !(tok->flags[id] & PAL_TOKEN_CONTROL) || memchr(t->said + i, 1, length)) {
            i++;
            continue;
        }
        const pal_slice before = { t->text.data + from, i - from };
        if (before.size && (st = pal_spm_encode(tok, s, before, prefix, true, ids, err))) return st;
        if ((st = pal_ids_append(ids, id, err))) return st;
        prefix = false;
        from = i += length;
    }
    const pal_slice rest = { t->text.data + from, t->text.size - from };
    return rest.size ? pal_spm_encode(tok, s, rest, prefix, true, ids, err) : PAL_OK;
}

static pal_status encode_part(const pal_tokenizer *tok, pal_tokenizer_scratch *s, const stretch *t, bool late,
                              pal_ids *ids, pal_error *err) {
    if (t->text.size == 0) return PAL_OK;
    if (tok->model != PAL_MODEL_BPE) return encode_spm(tok, s, t, ids, err);
    return late && anything_said(t) ? encode_bpe_pieces(tok, s, t, ids, err) : encode_bpe(tok, s, t, ids, err);
}

/* Whether control tokens are looked for in the normalised text. */
static bool has_late_marks(const pal_tokenizer *tok) {
    for (size_t i = 0; i < tok->added_count && tok->normal_count; i++)
        if (tok->added[i].normalized && (tok->flags[tok->added[i].id] & PAL_TOKEN_CONTROL)) return true;
    return false;
}

static pal_status encode(const pal_tokenizer *tok, pal_tokenizer_scratch *s, const stretch *t, pal_ids *ids,
                         pal_error *err) {
    pal_added_match match;
    pal_status st;
    size_t from = 0, at = 0;
    if (t->text.size == 0) return PAL_OK;
    if (tok->model == PAL_MODEL_BPE && tok->merges.count == 0 && tok->added_count == 0 && tok->normal_count == 0 &&
        tok->split_count == 0)
        return pal_bpe_plain(tok, t->text, ids, err);
    const bool late = has_late_marks(tok);
    while (pal_added_next(tok, &tok->added_raw, t->special_as_text, t->said, t->text, &at, from, &match)) {
        const stretch before = part_of(t, from, match.start > from ? match.start : from);
        if ((st = encode_part(tok, s, &before, late, ids, err))) return st;
        if ((st = pal_ids_append(ids, match.token->id, err))) return st;
        from = match.end;
    }
    const stretch rest = part_of(t, from, t->text.size);
    return encode_part(tok, s, &rest, late, ids, err);
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
    const stretch whole = { { text, size }, options->said, true, options->special_as_text };
    if (!st) st = encode(tok, scratch, &whole, ids, err);
    if (!st && options->add_special) st = append_all(ids, &tok->suffix, err);
    pal_pattern_end(scratch);
    if (st) ids->count = before;
    return st;
}

/* What decoding keeps from token to token: where in the text it is, and the bytes of an unfinished character. */
struct pal_decoder {
    const pal_tokenizer *tok;
    bool skip_special;
    const uint32_t *shown; /* special tokens that are not skipped */
    size_t shown_count;
    bool any;     /* a token came */
    bool started; /* SentencePiece: something was written */
    size_t strip; /* blanks that the start of the text may still lose */
    unsigned char pending[4];
    size_t pending_size;
};

static pal_decoder decoder_of(const pal_tokenizer *tok, bool skip_special) {
    return (pal_decoder){ .tok = tok, .skip_special = skip_special, .strip = tok->strip_start };
}

void pal_decoder_show(pal_decoder *d, const uint32_t *ids, size_t count) {
    d->shown = ids;
    d->shown_count = count;
}

static bool is_skipped(const pal_decoder *d, uint32_t id) {
    if (!d->skip_special || !(d->tok->flags[id] & PAL_TOKEN_SPECIAL)) return false;
    for (size_t i = 0; i < d->shown_count; i++)
        if (d->shown[i] == id) return false;
    return true;
}

static pal_status append_token(pal_decoder *d, uint32_t id, pal_bytes *text, pal_error *err) {
    const pal_tokenizer *tok = d->tok;
    pal_status st = PAL_OK;
    if (!pal_is_token(tok, id))
        return pal_fail(err, PAL_E_ARGUMENT, "id %u is not in the vocabulary, which has %zu ids", id, tok->size);
    if (is_skipped(d, id)) return PAL_OK;
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
    const pal_decoder before = *d;
    if (!st) {
        *d = decoder_of(d->tok, d->skip_special);
        pal_decoder_show(d, before.shown, before.shown_count);
    }
    return st;
}
