/* SPDX-License-Identifier: MIT */
#include "data/chars.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/text.h"
#include "text/strings.h"
#include "text/utf8.h"

enum { CODES = 0x110000 };

typedef struct {
    uint8_t *marks; /* a bit for each code that was seen */
    pal_bytes seen; /* the characters, each once */
} char_set;

/* Adds the characters of a text; *bad: the first byte that is none. */
static pal_status add_text(char_set *set, pal_slice text, size_t *bad, pal_error *err) {
    *bad = text.size;
    for (size_t i = 0, length; i < text.size; i += length) {
        uint32_t code = 0;
        if (!(length = pal_utf8_read(text.data + i, text.size - i, &code)) || code == 0) {
            *bad = i;
            return PAL_OK;
        }
        if (set->marks[code / 8] >> (code % 8) & 1) continue;
        set->marks[code / 8] |= (uint8_t)(1u << (code % 8));
        const pal_status st = pal_bytes_append(&set->seen, text.data + i, length, err);
        if (st) return st;
    }
    return PAL_OK;
}

static pal_status refuse(const char *path, const char *where, unsigned char byte, pal_error *err) {
    return pal_fail(err, PAL_E_FORMAT, "%s: %s (0x%02X) is %s; a vocabulary of characters cannot hold that", path,
                    where, byte, byte ? "not UTF-8" : "zero");
}

static pal_status add_plain(char_set *set, const char *path, const pal_text_block *b, pal_error *err) {
    const pal_slice text = { b->bytes.data, b->bytes.size };
    char where[64];
    size_t bad;
    const pal_status st = add_text(set, text, &bad, err);
    if (st || bad == text.size) return st;
    snprintf(where, sizeof where, "byte %" PRIu64, b->start.offset + (uint64_t)bad);
    return refuse(path, where, text.data[bad], err);
}

static pal_status add_lines(char_set *set, const char *path, const char *field, const pal_text_block *b,
                            pal_error *err) {
    uint64_t line = b->start.line;
    pal_status st = PAL_OK;
    for (size_t at = 0; at < b->bytes.size && !st;) {
        pal_slice part = { b->bytes.data + at, b->bytes.size - at };
        const unsigned char *stop = memchr(part.data, '\n', part.size);
        char where[64];
        void *owner;
        size_t bad;
        if (stop) part.size = (size_t)(stop - part.data);
        at += part.size + 1;
        if ((st = pal_text_parse(path, field, ++line, part, &owner, &part, err))) break;
        st = add_text(set, part, &bad, err);
        snprintf(where, sizeof where, "line %" PRIu64 ": byte %zu of the text", line, bad);
        if (!st && bad < part.size) st = refuse(path, where, part.data[bad], err);
        pal_text_release(owner);
    }
    return st;
}

static pal_status add_file(char_set *set, const char *path, const char *field, size_t block, size_t most,
                           pal_error *err) {
    pal_text *text;
    pal_text_block b = { 0 };
    bool found;
    if (strcmp(path, "-") == 0)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "'chars' is learned from the text before it is encoded, but standard input can be read only "
                        "once; name a file");
    pal_status st = pal_text_open(&text, path, field ? PAL_TEXT_LINES : PAL_TEXT_CHARACTERS, block, most, NULL, err);
    if (st) return st;
    while (!(st = pal_text_read(text, &b, &found, err)) && found)
        if ((st = field ? add_lines(set, path, field, &b, err) : add_plain(set, path, &b, err))) break;
    pal_bytes_free(&b.bytes);
    pal_text_close(text);
    return st;
}

pal_status pal_files_learn_chars(pal_tokenizer **out, const char *const *files, size_t count, const char *field,
                                 size_t block, size_t most, pal_error *err) {
    char_set set = { 0 };
    pal_status st = pal_alloc_named((void **)&set.marks, CODES / 8, 1, "a set of characters", err);
    for (size_t i = 0; i < count && !st; i++)
        st = add_file(&set, files[i], pal_text_field(files[i], field), block, most, err);
    if (!st && !set.seen.size) st = pal_fail(err, PAL_E_FORMAT, "%s: there is no text in it", files[0]);
    if (!st) st = pal_tokenizer_learn_chars(out, &(pal_slice){ set.seen.data, set.seen.size }, 1, err);
    pal_bytes_free(&set.seen);
    pal_free(set.marks);
    return st;
}
