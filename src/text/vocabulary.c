/* SPDX-License-Identifier: MIT */
/* What every reader ends with: the list of names becomes texts, maps from text to id, byte ids and merges. */
#include <stdio.h>

#include "base/alloc.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

pal_shown pal_show(pal_slice name) {
    pal_shown shown;
    size_t n = name.size < 40 ? name.size : 40;
    while (n && n < name.size && (name.data[n] & 0xC0) == 0x80) n--; /* not through a character */
    for (size_t i = 0; i < n; i++)
        shown.text[i] = name.data[i] < 0x20 || name.data[i] == 0x7F ? '?' : (char)name.data[i];
    snprintf(shown.text + n, sizeof shown.text - n, "%s", n < name.size ? "..." : "");
    return shown;
}

/* GPT-2's alphabet: printable Latin-1 stands for itself, the others follow from U+0100 on. */
static bool stands_for_itself(uint32_t b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

void pal_byte_alphabet(uint32_t code_of[256]) {
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) code_of[b] = stands_for_itself(b) ? b : next++;
}

pal_status pal_byte_level_name(pal_slice text, pal_bytes *out, pal_error *err) {
    uint32_t code_of[256];
    pal_status st;
    pal_byte_alphabet(code_of);
    if ((st = pal_bytes_reserve(out, 2 * text.size, err))) return st;
    for (size_t i = 0; i < text.size; i++) out->size += pal_utf8_write(code_of[text.data[i]], out->data + out->size);
    return PAL_OK;
}

/* The byte that a code point of this alphabet stands for, or -1. */
static int byte_of(uint32_t code) {
    if (code < 0x100) return stands_for_itself(code) ? (int)code : -1;
    if (code <= 0x120) return (int)code - 0x100;        /* 0x00 to 0x20 */
    if (code <= 0x142) return (int)code - 0x121 + 0x7F; /* to 0xA0 */
    return code == 0x143 ? 0xAD : -1;
}

pal_status pal_byte_level_text(pal_slice name, pal_bytes *out, pal_error *err) {
    const size_t before = out->size;
    pal_status st;
    if ((st = pal_bytes_reserve(out, name.size, err))) return st;
    for (size_t i = 0; i < name.size;) {
        uint32_t code = 0;
        const size_t length = pal_utf8_read(name.data + i, name.size - i, &code);
        const int byte = byte_of(code);
        if (!length || byte < 0) {
            out->size = before;
            return PAL_OK;
        }
        out->data[out->size++] = (unsigned char)byte;
        i += length;
    }
    return PAL_OK;
}

pal_status pal_vocabulary_set(pal_tokenizer *tok, const char *name, const pal_slice *names, size_t count,
                              pal_error *err) {
    pal_status st;
    void *block;
    if (count == 0) return pal_fail(err, PAL_E_FORMAT, "%s: the vocabulary is empty", name);
    if ((st = pal_alloc_named(&block, count, sizeof *tok->flags, "a vocabulary", err))) return st;
    tok->flags = block;
    tok->size = count;
    if ((st = pal_string_map_reserve(&tok->by_name, count, err))) return st;
    for (size_t id = 0; id < count; id++) {
        if ((st = pal_strings_add(&tok->names, names[id].data, names[id].data ? names[id].size : 0, err))) return st;
        if (!names[id].data) continue;
        tok->flags[id] |= PAL_TOKEN_PRESENT;
        const uint32_t same = pal_string_map_add(&tok->by_name, &tok->names, (uint32_t)id);
        if (same != id)
            return pal_fail(err, PAL_E_FORMAT, "%s: ids %u and %zu have the same name '%s'", name, same, id,
                            pal_show(names[id]).text);
    }
    return PAL_OK;
}

bool pal_is_byte_name(pal_slice name, unsigned *byte) {
    if (name.size != 6 || memcmp(name.data, "<0x", 3) != 0 || name.data[5] != '>') return false;
    *byte = 0;
    for (int i = 3; i < 5; i++) {
        const unsigned char c = name.data[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return false;
        *byte = *byte * 16 + (unsigned)digit;
    }
    return true;
}

/* Text of a token in a file without a decoder: in SentencePiece the blank sign becomes a blank, <0xNN> a
 * byte; in byte-level BPE the name is bytes, but an added token is what it was matched as. */
static pal_status text_of(const pal_tokenizer *tok, uint32_t id, pal_bytes *out, pal_error *err) {
    const pal_slice name = pal_strings_at(&tok->names, id),
                    key = tok->byte_level ? pal_strings_at(&tok->keys, id) : name;
    unsigned byte;
    pal_status st;
    out->size = 0;
    if (tok->byte_level) {
        const bool bytes = key.size && !(tok->flags[id] & PAL_TOKEN_ADDED);
        return pal_bytes_append(out, bytes ? key.data : name.data, bytes ? key.size : name.size, err);
    }
    if (tok->flags[id] & PAL_TOKEN_SPECIAL) return PAL_OK; /* SentencePiece's control symbols are invisible */
    if (id == tok->unk) return pal_bytes_append(out, tok->spm.unk_surface.data, tok->spm.unk_surface.size, err);
    if ((tok->flags[id] & PAL_TOKEN_BYTE) && pal_is_byte_name(name, &byte))
        return pal_bytes_append(out, (unsigned char[1]){ (unsigned char)byte }, 1, err);
    for (size_t i = 0; i < name.size;) {
        const bool sign = name.size - i >= 3 && memcmp(name.data + i, "\xE2\x96\x81", 3) == 0;
        if ((st = pal_bytes_append(out, sign ? (const unsigned char *)" " : name.data + i, 1, err))) return st;
        i += sign ? 3 : 1;
    }
    return PAL_OK;
}

/* The bytes that each name stands for in byte-level BPE. */
static pal_status byte_keys(pal_tokenizer *tok, pal_error *err) {
    pal_bytes text = { 0 };
    pal_status st = PAL_OK;
    for (uint32_t id = 0; id < tok->size && !st; id++) {
        text.size = 0;
        if (!(st = pal_byte_level_text(pal_strings_at(&tok->names, id), &text, err)))
            st = pal_strings_add(&tok->keys, text.data, text.size, err);
    }
    pal_bytes_free(&text);
    return st;
}

pal_status pal_vocabulary_finish(pal_tokenizer *tok, const char *name, pal_error *err) {
    pal_status st = PAL_OK;
    pal_bytes text = { 0 };
    const bool texts = tok->texts.count == 0; /* else the file's decoder has made them */
    memset(tok->byte_id, 0xFF, sizeof tok->byte_id);
    memset(tok->fallback_id, 0xFF, sizeof tok->fallback_id);

    size_t in_model = 0;
    for (size_t id = 0; id < tok->size; id++) in_model += (tok->flags[id] & PAL_TOKEN_IN_MODEL) != 0;
    if (in_model == 0) return pal_fail(err, PAL_E_FORMAT, "%s: the vocabulary is empty", name);
    if ((st = pal_string_map_reserve(&tok->by_key, in_model, err))) return st;
    if (tok->byte_level && (st = byte_keys(tok, err))) return st;
    const pal_strings *keys = tok->byte_level ? &tok->keys : &tok->names;
    for (uint32_t id = 0; id < tok->size && !st; id++) {
        const pal_slice key = pal_strings_at(keys, id);
        const bool model = tok->flags[id] & PAL_TOKEN_IN_MODEL;
        unsigned byte;
        if (tok->byte_fallback && (model || (tok->flags[id] & PAL_TOKEN_BYTE)) &&
            pal_is_byte_name(pal_strings_at(&tok->names, id), &byte)) {
            tok->fallback_id[byte] = id;
            tok->flags[id] |= PAL_TOKEN_BYTE;
        }
        if (texts) {
            if ((st = text_of(tok, id, &text, err))) break;
            st = pal_strings_add(&tok->texts, text.data, text.size, err);
        }
        if (!model || key.size == 0) continue;
        pal_string_map_add(&tok->by_key, keys, id);
        if (key.size == 1 && (tok->byte_level || key.data[0] < 0x80)) tok->byte_id[key.data[0]] = id;
    }
    pal_bytes_free(&text);
    return st;
}

pal_status pal_vocabulary_merge(pal_tokenizer *tok, const char *name, pal_slice left, pal_slice right, size_t rank,
                                pal_error *err) {
    pal_status st;
    pal_bytes joined = { 0 };
    const pal_slice parts[3] = { left, right, { NULL, 0 } };
    uint32_t ids[3];
    if (rank >= UINT32_MAX) return pal_fail(err, PAL_E_FORMAT, "%s: too many merges", name);
    if (left.size == 0 || right.size == 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: merge %zu has an empty side", name, rank);
    if (!(st = pal_bytes_append(&joined, left.data, left.size, err)))
        st = pal_bytes_append(&joined, right.data, right.size, err);
    for (int i = 0; i < 3 && !st; i++) {
        const pal_slice part = i < 2 ? parts[i] : (pal_slice){ joined.data, joined.size };
        ids[i] = pal_string_map_find(&tok->by_name, &tok->names, part.data, part.size);
        if (ids[i] == PAL_NO_ID || !(tok->flags[ids[i]] & PAL_TOKEN_IN_MODEL))
            st = pal_fail(err, PAL_E_FORMAT, "%s: merge %zu %s '%s', which is not in the vocabulary", name, rank,
                          i < 2 ? "names" : "makes", pal_show(part).text);
    }
    pal_bytes_free(&joined);
    if (st) return st;
    if ((st = pal_pair_map_reserve(&tok->merges, tok->merges.count + 1, err))) return st;
    pal_pair_slot *slot = pal_pair_map_put(&tok->merges, pal_pair_key(ids[0], ids[1]));
    slot->a = (uint32_t)rank; /* of a pair listed twice the last rank counts, as in the package */
    slot->b = ids[2];
    return PAL_OK;
}

bool pal_vocabulary_keeps_words(const pal_tokenizer *tok) {
    static const unsigned char sign[3] = { 0xE2, 0x96, 0x81 };
    for (size_t id = 0; id < tok->size; id++) {
        const pal_slice name = pal_strings_at(&tok->names, id);
        if (!(tok->flags[id] & PAL_TOKEN_IN_MODEL) || (tok->flags[id] & PAL_TOKEN_USER)) continue;
        size_t i = 0;
        while (name.size - i >= 3 && memcmp(name.data + i, sign, 3) == 0) i += 3;
        if (i < name.size && memmem(name.data + i, name.size - i, sign, 3)) return false;
    }
    return pal_string_map_find(&tok->by_key, &tok->names, sign, 3) != PAL_NO_ID;
}
