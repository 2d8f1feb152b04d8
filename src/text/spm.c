/* SPDX-License-Identifier: MIT */
/* SentencePiece: its normaliser, its merges (the piece with the highest score, the leftmost of equals) and what becomes
 * of unknown characters, in the order of the original, so that ids are the same. */
#include <math.h>

#include "base/alloc.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define SIGN "\xE2\x96\x81" /* stands for a blank */

/* The stored map is a double array of 32-bit units: whether a leaf hangs below (bit 8), the label (low byte, and bit 31
 * for a leaf's value), the offset to the children (bits 10 and up, shifted by 8 more when bit 9 is set). */
static uint32_t charsmap_unit(const pal_bytes *map, size_t index) {
    const unsigned char *p = map->data + 4 + 4 * index;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static size_t charsmap_units(const pal_bytes *map) {
    const uint32_t bytes = (uint32_t)map->data[0] | (uint32_t)map->data[1] << 8 | (uint32_t)map->data[2] << 16 |
                           (uint32_t)map->data[3] << 24;
    return bytes / 4;
}

static size_t unit_offset(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 0x200) >> 6); }

/* The longest rule that text starts with: bytes it takes (0: none) and what they become. The units of a damaged map may
 * lead round and round. */
static pal_status charsmap_longest(const pal_bytes *map, pal_slice text, pal_slice *to, size_t *taken, pal_error *err) {
    enum { RULE_MAX = 256 };
    const size_t units = charsmap_units(map);
    size_t node = unit_offset(charsmap_unit(map, 0)), becomes = 0;
    *taken = 0;
    for (size_t i = 0; i < text.size; i++) {
        node ^= text.data[i];
        if (node >= units) break;
        const uint32_t unit = charsmap_unit(map, node);
        if ((unit & 0x800000FFu) != text.data[i]) break;
        if (i == RULE_MAX)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "the tokenizer's character map has rules for more than %d bytes at once, which are not "
                            "supported",
                            RULE_MAX);
        node ^= unit_offset(unit);
        if (!(unit & 0x100)) continue;
        if (node >= units) break;
        const size_t at = 4 + 4 * units + (charsmap_unit(map, node) & 0x7FFFFFFF);
        if (at >= map->size) break;
        becomes = at;
        *taken = i + 1;
    }
    if (*taken) /* the map ends with a zero, see pal_spm_finish */
        *to = (pal_slice){ map->data + becomes, strlen((const char *)map->data + becomes) };
    return PAL_OK;
}

/* Bytes of the user-defined symbol that the text starts with; 0: none. */
static size_t user_symbol(const pal_tokenizer *tok, pal_slice text, bool special_as_text, uint32_t *id) {
    const pal_trie *user = &tok->spm.user;
    const size_t length = user->nodes ? pal_trie_longest(user, text.data, text.size, id) : 0;
    return length && special_as_text && (tok->flags[*id] & PAL_TOKEN_CONTROL) ? 0 : length;
}

/* What the text starts with, *taken bytes, becomes `to`. */
static pal_status normal_prefix(const pal_tokenizer *tok, pal_slice text, bool special_as_text, pal_slice *to,
                                size_t *taken, pal_error *err) {
    const pal_spm_rules *rules = &tok->spm;
    uint32_t code;
    if ((*taken = user_symbol(tok, text, special_as_text, &code))) {
        *to = (pal_slice){ text.data, *taken };
        return PAL_OK;
    }
    if (rules->charsmap.size) {
        const pal_status st = charsmap_longest(&rules->charsmap, text, to, taken, err);
        if (st || *taken) return st;
    }
    if ((*taken = pal_utf8_read(text.data, text.size, &code))) {
        *to = (pal_slice){ text.data, *taken };
        return PAL_OK;
    }
    *to = (pal_slice){ (const unsigned char *)"\xEF\xBF\xBD", 3 };
    *taken = 1;
    return PAL_OK;
}

static pal_status add_blank(const pal_spm_rules *rules, pal_bytes *out, pal_error *err) {
    return rules->escape_blanks ? pal_bytes_append(out, SIGN, 3, err) : pal_bytes_append(out, " ", 1, err);
}

pal_status pal_spm_normalize(const pal_tokenizer *tok, pal_slice text, bool prefix, bool special_as_text, pal_growth *g,
                             pal_bytes *out, pal_error *err) {
    const pal_spm_rules *rules = &tok->spm;
    pal_slice piece = { NULL, 0 };
    size_t taken, at = 0;
    pal_status st;
    out->size = 0;
    if (rules->collapse_blanks)
        for (; at < text.size; at += taken) {
            st = normal_prefix(tok, (pal_slice){ text.data + at, text.size - at }, special_as_text, &piece, &taken,
                               err);
            if (st) return st;
            if (piece.size != 1 || piece.data[0] != ' ') break;
        }
    if (at == text.size) return PAL_OK;
    if (rules->dummy_prefix && prefix && (st = add_blank(rules, out, err))) return st;
    bool after_blank = rules->collapse_blanks;
    for (; at < text.size; at += taken) {
        st = normal_prefix(tok, (pal_slice){ text.data + at, text.size - at }, special_as_text, &piece, &taken, err);
        if (st || (st = pal_growth_take(g, taken, piece.size, err))) return st;
        while (after_blank && piece.size && piece.data[0] == ' ') piece.data++, piece.size--;
        for (size_t i = 0; i < piece.size; i++) {
            st = piece.data[i] == ' ' ? add_blank(rules, out, err) : pal_bytes_append(out, piece.data + i, 1, err);
            if (st) return st;
        }
        if (piece.size) after_blank = piece.data[piece.size - 1] == ' ';
        if (!rules->collapse_blanks) after_blank = false;
    }
    const size_t blank = rules->escape_blanks ? 3 : 1;
    if (rules->collapse_blanks)
        while (out->size >= blank &&
               memcmp(out->data + out->size - blank, rules->escape_blanks ? SIGN : " ", blank) == 0)
            out->size -= blank;
    return PAL_OK;
}

pal_status pal_spm_emit(const pal_tokenizer *tok, pal_slice piece, uint32_t id, size_t start, pal_ids *ids,
                        pal_error *err) {
    pal_status st = PAL_OK;
    if (id == tok->unk && tok->byte_fallback) {
        for (size_t i = 0; i < piece.size && !st; i++) st = pal_ids_append(ids, tok->fallback_id[piece.data[i]], err);
        return st;
    }
    if (id == tok->unk && ids->count > start && ids->data[ids->count - 1] == id)
        return PAL_OK; /* one id for a run of unknowns */
    return pal_ids_append(ids, id, err);
}

typedef struct {
    const pal_tokenizer *tok;
    pal_slice text;
    pal_pair_map *splits; /* by id of an unused piece: where it was last seen (a), and where in it two met (b) */
    pal_ids *parts;       /* of a piece that falls apart: start and end of those still to come, the next one last */
    pal_error *err;
    pal_status *status;
} word_arg;

static uint32_t score_rank(float score) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u); /* falls as the score rises */
}

static uint32_t piece_pair(const void *arg, const pal_symbol *sym, uint32_t left, uint32_t right, uint32_t *value) {
    const word_arg *w = arg;
    const uint32_t start = sym[left].value,
                   end = sym[right].next == PAL_NO_ID ? (uint32_t)w->text.size : sym[sym[right].next].value;
    if (value) {
        *value = start;
        return 0;
    }
    const uint32_t id = pal_string_map_find(&w->tok->by_key, &w->tok->names, w->text.data + start, end - start);
    if (id == PAL_NO_ID || (w->tok->flags[id] & PAL_TOKEN_CONTROL)) return PAL_NO_ID; /* those are cut out before */
    if (w->tok->flags[id] & PAL_TOKEN_UNUSED) {
        if (!*w->status) *w->status = pal_pair_map_reserve(w->splits, w->splits->count + 1, w->err);
        if (*w->status) return PAL_NO_ID;
        pal_pair_slot *split = pal_pair_map_put(w->splits, id);
        split->a = start;
        split->b = sym[right].value;
    }
    return score_rank(w->tok->scores[id]);
}

/* A piece that may not be the result falls apart into the two it was last seen made of, and so may they. */
static pal_status emit_piece(const word_arg *w, uint32_t from, uint32_t to, size_t start, pal_ids *ids) {
    pal_status st;
    for (w->parts->count = 0;;) {
        const pal_slice piece = { w->text.data + from, to - from };
        const uint32_t id = pal_string_map_find(&w->tok->by_key, &w->tok->names, piece.data, piece.size);
        const bool unused = id != PAL_NO_ID && (w->tok->flags[id] & PAL_TOKEN_UNUSED);
        const pal_pair_slot *split = unused ? pal_pair_map_find(w->splits, id) : NULL;
        if (split) {
            if ((st = pal_ids_append(w->parts, split->b, w->err))) return st;
            if ((st = pal_ids_append(w->parts, split->a + (to - from), w->err))) return st;
            from = split->a;
            to = split->b;
            continue;
        }
        if ((st = pal_spm_emit(w->tok, piece, id == PAL_NO_ID ? w->tok->unk : id, start, ids, w->err))) return st;
        if (w->parts->count == 0) return PAL_OK;
        to = w->parts->data[--w->parts->count];
        from = w->parts->data[--w->parts->count];
    }
}

static size_t char_length(unsigned char lead) { return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

static pal_status merge_text(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, size_t start,
                             pal_ids *ids, pal_error *err) {
    pal_pair_map splits = { 0 };
    pal_ids parts = { 0 };
    pal_status st, inner = PAL_OK;
    const word_arg w = { .tok = tok, .text = text, .splits = &splits, .parts = &parts, .err = err, .status = &inner };
    if (text.size > PAL_PRETOKEN_MAX)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a stretch of %zu bytes without a place to split it; at most %zu are accepted", text.size,
                        PAL_PRETOKEN_MAX);
    if ((st = pal_symbols_reserve(s, text.size, err))) return st;
    uint32_t count = 0;
    for (size_t i = 0; i < text.size; i += char_length(text.data[i]), count++)
        s->symbols[count] =
            (pal_symbol){ .value = (uint32_t)i, .prev = count ? count - 1 : PAL_NO_ID, .next = count + 1 };
    s->symbols[count - 1].next = PAL_NO_ID;
    if (!(st = pal_merge(s, count, piece_pair, &w, err))) st = inner;
    for (uint32_t i = 0; i != PAL_NO_ID && !st; i = s->symbols[i].next) {
        const uint32_t next = s->symbols[i].next;
        st = emit_piece(&w, s->symbols[i].value, next == PAL_NO_ID ? (uint32_t)text.size : s->symbols[next].value,
                        start, ids);
    }
    pal_pair_map_free(&splits);
    pal_ids_free(&parts);
    return st;
}

/* One word, from the cache if it was seen before. It begins with the sign for a blank, which is known, or follows a
 * symbol: a run of unknowns never continues from the word before. */
static pal_status encode_word(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice word, pal_ids *ids,
                              pal_error *err) {
    pal_status st;
    uint64_t key[3];
    const bool keep = pal_cache_key(key, word.data, word.size);
    const pal_cache_entry *e = keep ? pal_cache_find(s, key, word.size) : NULL;
    const uint32_t *from = e ? e->ids : NULL;
    size_t count = e ? e->count : 0;
    if (!e) {
        s->word.count = 0;
        if ((st = merge_text(tok, s, word, 0, &s->word, err))) return st;
        if (keep) pal_cache_store(s, key, word.size, s->word.data, s->word.count);
        from = s->word.data;
        count = s->word.count;
    }
    if ((st = pal_ids_reserve(ids, count, err))) return st;
    for (size_t i = 0; i < count; i++) ids->data[ids->count++] = from[i];
    return PAL_OK;
}

static pal_status encode_stretch(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, size_t start,
                                 pal_ids *ids, pal_error *err) {
    pal_status st = PAL_OK;
    if (text.size == 0) return PAL_OK;
    if (!tok->words) return merge_text(tok, s, text, start, ids, err);
    for (size_t at = 0, end; at < text.size && !st; at = end) {
        for (end = at; text.size - end >= 3 && memcmp(text.data + end, SIGN, 3) == 0;) end += 3;
        const unsigned char *next = memmem(text.data + end, text.size - end, SIGN, 3);
        end = next ? (size_t)(next - text.data) : text.size;
        st = encode_word(tok, s, (pal_slice){ text.data + at, end - at }, ids, err);
    }
    return st;
}

pal_status pal_spm_encode(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, bool prefix,
                          bool special_as_text, pal_ids *ids, pal_error *err) {
    pal_bytes *normal = &s->normal[0];
    const size_t start = ids->count;
    pal_status st;
    if ((st = pal_spm_normalize(tok, text, prefix, special_as_text, &s->growth, normal, err)) || normal->size == 0)
        return st;
    if (tok->model == PAL_MODEL_UNIGRAM)
        return pal_unigram_encode(tok, s, (pal_slice){ normal->data, normal->size }, special_as_text, ids, err);
    /* User-defined symbols are never merged with anything: they cut the text. */
    size_t done = 0;
    for (size_t i = 0; i < normal->size && tok->spm.user.nodes;) {
        uint32_t id;
        const pal_slice rest = { normal->data + i, normal->size - i };
        const size_t length = user_symbol(tok, rest, special_as_text, &id);
        if (!length) {
            i += char_length(normal->data[i]);
            continue;
        }
        if ((st = encode_stretch(tok, s, (pal_slice){ normal->data + done, i - done }, start, ids, err))) return st;
        if ((st = pal_spm_emit(tok, (pal_slice){ normal->data + i, length }, id, start, ids, err))) return st;
        done = i += length;
    }
    return encode_stretch(tok, s, (pal_slice){ normal->data + done, normal->size - done }, start, ids, err);
}

static pal_status check_charsmap(const pal_bytes *map, const char *name, pal_error *err) {
    if (map->size == 0) return PAL_OK;
    if (map->size < 9 || map->data[0] % 4 != 0 || charsmap_units(map) == 0 ||
        charsmap_units(map) > (map->size - 5) / 4 || map->data[map->size - 1] != 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: the precompiled character map is damaged", name);
    return PAL_OK;
}

/* Control symbols and the unknown piece are found in a text before its normaliser sees it, as transformers and
 * llama.cpp do; those that files next to the model add are in the list already. */
static pal_status add_symbols(pal_tokenizer *tok, const char *name, const uint8_t *kinds, pal_error *err) {
    size_t count = tok->added_count, capacity = count;
    for (size_t id = 0; id < tok->size; id++) count += kinds[id] == PAL_PIECE_CONTROL || kinds[id] == PAL_PIECE_UNKNOWN;
    void *list = tok->added;
    const pal_status st = pal_grow(&list, &capacity, tok->added_count, count, sizeof *tok->added, err);
    tok->added = list;
    if (st) return st;
    for (uint32_t id = 0; id < tok->size; id++)
        if ((kinds[id] == PAL_PIECE_CONTROL || kinds[id] == PAL_PIECE_UNKNOWN) && !(tok->flags[id] & PAL_TOKEN_ADDED))
            tok->added[tok->added_count++] = (pal_added_token){ .id = id, .special = true };
    return pal_added_finish(tok, name, err);
}

pal_status pal_spm_finish(pal_tokenizer *tok, const char *name, const uint8_t *kinds, pal_error *err) {
    static const uint8_t flags_of[] = { [PAL_PIECE_NORMAL] = PAL_TOKEN_IN_MODEL,
                                        [PAL_PIECE_UNKNOWN] = 0,
                                        [PAL_PIECE_CONTROL] = PAL_TOKEN_SPECIAL,
                                        [PAL_PIECE_USER] = PAL_TOKEN_IN_MODEL | PAL_TOKEN_USER,
                                        [PAL_PIECE_UNUSED] = PAL_TOKEN_IN_MODEL | PAL_TOKEN_UNUSED,
                                        [PAL_PIECE_BYTE] = PAL_TOKEN_BYTE };
    pal_status st;
    bool unused = false;
    tok->unk = PAL_NO_ID;
    tok->min_score = INFINITY;
    tok->max_score = 0x1p-126f; /* the original starts from FLT_MIN, so this is what it is for scores below zero */
    if ((st = check_charsmap(&tok->spm.charsmap, name, err))) return st;
    for (uint32_t id = 0; id < tok->size; id++) {
        const pal_slice piece = pal_strings_at(&tok->names, id);
        if (kinds[id] == PAL_PIECE_NONE && (!pal_is_token(tok, id) || (tok->flags[id] & PAL_TOKEN_ADDED))) continue;
        if (kinds[id] < PAL_PIECE_NORMAL || kinds[id] > PAL_PIECE_BYTE)
            return pal_fail(err, PAL_E_FORMAT, "%s: piece %u is of kind %d, which is not known", name, id, kinds[id]);
        if (piece.size == 0) return pal_fail(err, PAL_E_FORMAT, "%s: piece %u is empty", name, id);
        if (!isfinite(tok->scores[id]))
            return pal_fail(err, PAL_E_FORMAT, "%s: piece %u has a score that is not a number", name, id);
        tok->scores[id] += 0.0f; /* no minus zero */
        tok->flags[id] |= flags_of[kinds[id]];
        const bool looked_for = kinds[id] == PAL_PIECE_USER ||
                                (tok->model == PAL_MODEL_UNIGRAM && (tok->flags[id] & PAL_TOKEN_IN_MODEL));
        if (looked_for && piece.size > PAL_MATCHED_MAX)
            return pal_fail(err, PAL_E_UNSUPPORTED, "%s: piece %u has %zu bytes; at most %d are accepted", name, id,
                            piece.size, PAL_MATCHED_MAX);
        unused = unused || kinds[id] == PAL_PIECE_UNUSED;
        if (kinds[id] == PAL_PIECE_UNKNOWN) {
            if (tok->unk != PAL_NO_ID)
                return pal_fail(err, PAL_E_FORMAT, "%s: pieces %u and %u are both the unknown one", name, tok->unk, id);
            tok->unk = id;
        }
        if (kinds[id] == PAL_PIECE_NORMAL) {
            tok->min_score = fminf(tok->min_score, tok->scores[id]);
            tok->max_score = fmaxf(tok->max_score, tok->scores[id]);
        }
        if (kinds[id] == PAL_PIECE_USER && (st = pal_trie_add(&tok->spm.user, piece.data, piece.size, id, err)))
            return st;
        if (tok->model == PAL_MODEL_UNIGRAM && (tok->flags[id] & PAL_TOKEN_IN_MODEL) &&
            (st = pal_trie_add(&tok->pieces, piece.data, piece.size, id, err)))
            return st;
    }
    if (tok->unk == PAL_NO_ID) return pal_fail(err, PAL_E_FORMAT, "%s: there is no piece for what is unknown", name);
    if ((st = pal_vocabulary_finish(tok, name, err))) return st;
    for (int b = 0; b < 256 && tok->byte_fallback; b++)
        if (tok->fallback_id[b] == PAL_NO_ID)
            return pal_fail(err, PAL_E_FORMAT, "%s: the piece <0x%02X> is missing", name, b);
    tok->words = tok->model == PAL_MODEL_SPM_BPE && !unused && tok->spm.escape_blanks &&
                 pal_vocabulary_keeps_words(tok);
    return add_symbols(tok, name, kinds, err);
}
