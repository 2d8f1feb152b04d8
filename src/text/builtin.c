/* SPDX-License-Identifier: MIT */
/* Vocabularies that need no file: bytes, and the characters of a text. Both are written as a tokenizer.json, which is
 * then read like any other, so that what is saved in a model's directory is what was used, and others can load it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "format/json.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

static pal_status dump(json_t *root, pal_bytes *out, pal_error *err) {
    char *text = pal_json_dumps(root, JSON_INDENT(1));
    pal_status st = text ? pal_bytes_append(out, text, strlen(text), err)
                         : pal_fail(err, PAL_E_MEMORY, "out of memory while writing a vocabulary");
    free(text);
    json_decref(root);
    return st;
}

pal_status pal_builtin_bytes_json(pal_bytes *out, pal_error *err) {
    uint32_t code_of[256];
    json_t *vocab = json_object();
    pal_byte_alphabet(code_of);
    for (int b = 0; b < 256; b++) {
        unsigned char name[4];
        const size_t size = pal_utf8_write(code_of[b], name);
        pal_json_setn(vocab, (const char *)name, size, json_integer(b));
    }
    return dump(json_pack("{s:s, s:n, s:n, s:[], s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s, s:b, s:b, s:b}, s:{s:s, "
                          "s:n, s:n, s:n, s:n, s:b, s:o, s:[]}}",
                          "version", "1.0", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                          "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0,
                          "post_processor", "decoder", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                          "use_regex", 0, "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                          "end_of_word_suffix", "fuse_unk", 0, "vocab", vocab, "merges"),
                out, err);
}

/* Numbers separated by blanks: every number is a token that is found before anything else looks at the text. */
pal_status pal_tokenizer_ids(pal_tokenizer **out, size_t count, pal_error *err) {
    json_t *vocab = json_object(), *added = json_array();
    pal_bytes text = { 0 };
    for (size_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        pal_json_set(vocab, name, json_integer((json_int_t)i));
        pal_json_append(added, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content", name,
                                         "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 0));
    }
    *out = NULL;
    pal_status st = dump(json_pack("{s:s, s:n, s:n, s:o, s:n, s:{s:s, s:{s:s}, s:s, s:b}, s:n, s:n, s:{s:s, s:n, s:n, "
                                   "s:n, s:n, s:b, s:o, s:[]}}",
                                   "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                                   "pre_tokenizer", "type", "Split", "pattern", "String", " ", "behavior", "Removed",
                                   "invert", 0, "post_processor", "decoder", "model", "type", "BPE", "dropout",
                                   "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                                   "vocab", vocab, "merges"),
                         &text, err);
    if (!st) st = pal_tokenizer_from_json(out, "the vocabulary of numbers", &text, err);
    if (!st) (*out)->kind = "ids";
    pal_bytes_free(&text);
    return st;
}

/* One bit per code point. */
static pal_status mark_characters(const pal_slice *texts, size_t count, uint8_t *seen, pal_error *err) {
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0, length; i < texts[t].size; i += length) {
            uint32_t code = 0;
            length = pal_utf8_read(texts[t].data + i, texts[t].size - i, &code);
            if (!length)
                return pal_fail(err, PAL_E_ARGUMENT,
                                "byte %zu (0x%02X) of text %zu is not UTF-8; a vocabulary of characters needs UTF-8", i,
                                texts[t].data[i], t);
            if (code == 0)
                return pal_fail(err, PAL_E_ARGUMENT,
                                "byte %zu of text %zu is zero; a vocabulary of characters cannot hold that", i, t);
            seen[code / 8] |= (uint8_t)(1u << (code % 8));
        }
    return PAL_OK;
}

pal_status pal_tokenizer_learn_chars(pal_tokenizer **out, const pal_slice *texts, size_t count, pal_error *err) {
    pal_status st;
    void *block = NULL;
    pal_bytes text = { 0 };
    json_int_t next = 0;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 0x110000 / 8, 1, "a set of characters", err))) return st;
    const uint8_t *seen = block;
    if ((st = mark_characters(texts, count, block, err))) goto done;
    json_t *vocab = json_object();
    for (uint32_t code = 1; code < 0x110000; code++) {
        unsigned char name[4];
        if (!(seen[code / 8] >> (code % 8) & 1)) continue;
        pal_json_setn(vocab, (const char *)name, pal_utf8_write(code, name), json_integer(next++));
    }
    if (next == 0) {
        json_decref(vocab);
        st = pal_fail(err, PAL_E_ARGUMENT, "there are no characters to learn from: the text is empty");
        goto done;
    }
    st = dump(json_pack("{s:s, s:n, s:n, s:[], s:n, s:n, s:n, s:{s:s}, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:o, s:[]}}",
                        "version", "1.0", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                        "post_processor", "decoder", "type", "Fuse", "model", "type", "BPE", "dropout", "unk_token",
                        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "vocab", vocab, "merges"),
              &text, err);
    if (!st) st = pal_tokenizer_from_json(out, "the vocabulary of characters", &text, err);
done:
    pal_bytes_free(&text);
    pal_free(block);
    return st;
}
