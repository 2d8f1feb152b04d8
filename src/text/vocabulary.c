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

void pal_byte_alphabet(uint32_t code_of[256]) {
    /* GPT-2's alphabet: printable Latin-1 stands for itself, the others follow from U+0100 on. */
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        code_of[b] = itself ? b : next++;
    }
}

pal_status pal_byte_level_name(pal_slice text, pal_bytes *out, pal_error *err) {
    uint32_t code_of[256];
    pal_status st;
    pal_byte_alphabet(code_of);
    if ((st = pal_bytes_reserve(out, 2 * text.size, err))) return st;
    for (size_t i = 0; i < text.size; i++) out->size += pal_utf8_write(code_of[text.data[i]], out->data + out->size);
    return PAL_OK;
}

/* Appends the bytes that a name stands for; false, with nothing appended, when a character is none of the alphabet. */
static bool decode_name(pal_slice name, const int byte_of[0x200], pal_bytes *out) {
    const size_t before = out->size;
    for (size_t i = 0; i < name.size;) {
        uint32_t code = 0;
        const size_t length = pal_utf8_read(name.data + i, name.size - i, &code);
        if (!length || code >= 0x200 || byte_of[code] < 0) {
            out->size = before;
            return false;
        }
        out->data[out->size++] = (unsigned char)byte_of[code];
        i += length;
    }
    return true;
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

static bool is_byte_name(pal_slice name, unsigned *byte) {
    if (name.size != 6 || memcmp(name.data, "<0x", 3) != 0 || name.data[5] != '>') return false;
    *byte = 0;
    for (int i = 3; i < 5; i++) {
        const unsigned char c = name.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'))) return false;
        *byte = *byte * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'A' + 10);
    }
    return true;
}

/* Text of a token outside byte-level BPE: the blank sign becomes a blank, <0xNN> a byte. */
static pal_status plain_text(const pal_tokenizer *tok, uint32_t id, pal_bytes *out, pal_error *err) {
    const pal_slice name = pal_strings_at(&tok->names, id);
    unsigned byte;
    pal_status st;
    out->size = 0;
    if (tok->model != PAL_MODEL_BPE && (tok->flags[id] & PAL_TOKEN_SPECIAL))
        return PAL_OK; /* SentencePiece's control symbols are invisible */
    if (tok->model != PAL_MODEL_BPE && id == tok->unk)
        return pal_bytes_append(out, tok->spm.unk_surface.data, tok->spm.unk_surface.size, err);
    if ((tok->flags[id] & PAL_TOKEN_BYTE) && is_byte_name(name, &byte))
        return pal_bytes_append(out, (unsigned char[1]){ (unsigned char)byte }, 1, err);
    for (size_t i = 0; i < name.size;) {
        const bool sign = tok->sign_is_blank && name.size - i >= 3 && memcmp(name.data + i, "\xE2\x96\x81", 3) == 0;
        if ((st = pal_bytes_append(out, sign ? (const unsigned char *)" " : name.data + i, 1, err))) return st;
        i += sign ? 3 : 1;
    }
    return PAL_OK;
}

pal_status pal_vocabulary_finish(pal_tokenizer *tok, const char *name, pal_error *err) {
    pal_status st = PAL_OK;
    pal_bytes text = { 0 };
    int byte_of[0x200];
    uint32_t code_of[256];
    memset(byte_of, 0xFF, sizeof byte_of);
    pal_byte_alphabet(code_of);
    for (int b = 0; b < 256; b++) byte_of[code_of[b]] = b;
    memset(tok->byte_id, 0xFF, sizeof tok->byte_id);
    memset(tok->fallback_id, 0xFF, sizeof tok->fallback_id);

    size_t in_model = 0;
    for (size_t id = 0; id < tok->size; id++) in_model += (tok->flags[id] & PAL_TOKEN_IN_MODEL) != 0;
    if (in_model == 0) return pal_fail(err, PAL_E_FORMAT, "%s: the vocabulary is empty", name);
    if ((st = pal_string_map_reserve(&tok->by_key, in_model, err))) return st;
    for (uint32_t id = 0; id < tok->size && !st; id++) {
        const pal_slice spelling = pal_strings_at(&tok->names, id);
        unsigned byte;
        const bool model = tok->flags[id] & PAL_TOKEN_IN_MODEL;
        if (!tok->byte_level) {
            if (tok->byte_fallback && (model || (tok->flags[id] & PAL_TOKEN_BYTE)) && is_byte_name(spelling, &byte)) {
                tok->fallback_id[byte] = id;
                tok->flags[id] |= PAL_TOKEN_BYTE;
            }
            if ((st = plain_text(tok, id, &text, err))) break;
            if ((st = pal_strings_add(&tok->texts, text.data, text.size, err))) break;
            if (model) pal_string_map_add(&tok->by_key, &tok->names, id);
            if (model && spelling.size == 1 && spelling.data[0] < 0x80) tok->byte_id[spelling.data[0]] = id;
            continue;
        }
        text.size = 0;
        if ((st = pal_bytes_reserve(&text, spelling.size, err))) break;
        const bool bytes = decode_name(spelling, byte_of, &text);
        const bool itself = !bytes ||
                            (tok->flags[id] & PAL_TOKEN_ADDED); /* an added token decodes to what it was matched as */
        if ((st = pal_strings_add(&tok->texts, itself ? spelling.data : text.data, itself ? spelling.size : text.size,
                                  err)))
            break;
        if (!model || !bytes) continue;
        const bool same = text.size == spelling.size && memcmp(text.data, spelling.data, text.size) == 0;
        if (!itself || same) pal_string_map_add(&tok->by_key, &tok->texts, id);
        if (text.size == 1) tok->byte_id[text.data[0]] = id;
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
