/* SPDX-License-Identifier: MIT */
#include "data/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "format/json.h"
#include "text/strings.h"
#include "text/utf8.h"

static bool ends_with(const char *text, const char *end) {
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

const char *pal_text_field(const char *path, const char *field) {
    if (field) return field;
    return ends_with(path, ".jsonl") || ends_with(path, ".ndjson") ? "text" : NULL;
}

/* What Python's \s matches in a string: White_Space and the four separators U+001C .. U+001F. */
static bool is_white(uint32_t c) { return pal_is_blank(c) || (c >= 0x1C && c <= 0x1F); }

uint64_t pal_text_blanks(pal_slice text, bool *blank) {
    uint64_t runs = 0;
    bool inside = *blank;
    for (size_t i = 0, length; i < text.size; i += length) {
        uint32_t code = text.data[i];
        length = 1;
        if (code >= 0x80 && !(length = pal_utf8_read(text.data + i, text.size - i, &code))) length = 1, code = 0xFFFD;
        const bool white = is_white(code);
        runs += white && !inside;
        inside = white;
    }
    *blank = inside;
    return runs;
}

uint64_t pal_text_words(pal_slice text) {
    bool blank = false;
    return pal_text_blanks(text, &blank) + 1;
}

struct pal_text {
    char *path;
    int fd;
    bool standard, ended;
    pal_text_unit unit;
    size_t target, most;
    pal_bytes rest; /* read, but after the last cut */
    pal_text_place place;
};

void pal_text_close(pal_text *t) {
    if (!t) return;
    if (t->fd >= 0 && !t->standard) close(t->fd);
    pal_bytes_free(&t->rest);
    pal_free(t->path);
    pal_free(t);
}

static const char *name_of(const pal_text *t) { return t->standard ? "standard input" : t->path; }

/* Bytes that are appended; fewer than asked for at the end of the file only. */
static pal_status fill(pal_text *t, pal_bytes *into, size_t size, pal_error *err) {
    pal_status st;
    if (into->size >= size) return PAL_OK;
    if ((st = pal_bytes_reserve(into, size - into->size, err))) return st;
    while (into->size < size && !t->ended) {
        const ssize_t got = read(t->fd, into->data + into->size, size - into->size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return pal_fail(err, PAL_E_IO, "%s: cannot read: %s", name_of(t), strerror(errno));
        if (got == 0) t->ended = true;
        else into->size += (size_t)got;
    }
    return PAL_OK;
}

/* Standard input cannot be wound: what was done before is read once more. */
static pal_status skip(pal_text *t, uint64_t bytes, pal_error *err) {
    struct stat info;
    if (fstat(t->fd, &info) == 0 && S_ISREG(info.st_mode)) {
        if ((uint64_t)info.st_size < bytes || lseek(t->fd, (off_t)bytes, SEEK_CUR) < 0)
            return pal_fail(err, PAL_E_FORMAT,
                            "%s: %lld bytes, but %" PRIu64 " had been read before: it is not the same file", name_of(t),
                            (long long)info.st_size, bytes);
        return PAL_OK;
    }
    while (bytes) {
        const size_t piece = bytes < t->target ? (size_t)bytes : t->target;
        const pal_status st = fill(t, &t->rest, piece, err);
        if (st) return st;
        if (t->rest.size < piece)
            return pal_fail(err, PAL_E_FORMAT,
                            "%s: it ended before the place that had been reached: it is not the same text", name_of(t));
        bytes -= piece;
        t->rest.size = 0;
    }
    return PAL_OK;
}

pal_status pal_text_open(pal_text **out, const char *path, pal_text_unit unit, size_t target, size_t most,
                         const pal_text_place *from, pal_error *err) {
    pal_text *t;
    struct stat info;
    pal_status st;
    *out = NULL;
    if ((st = pal_alloc_named((void **)&t, 1, sizeof *t, "reading a text", err))) return st;
    *t = (pal_text){ .fd = -1,
                     .standard = strcmp(path, "-") == 0,
                     .unit = unit,
                     .target = target,
                     .most = most,
                     .path = pal_strdup(path) };
    if (!t->path) st = pal_fail(err, PAL_E_MEMORY, "out of memory for a path");
    else if ((t->fd = t->standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)) < 0)
        st = pal_fail(err, PAL_E_IO, "%s: cannot open: %s", path, strerror(errno));
    else if (fstat(t->fd, &info) == 0 && S_ISDIR(info.st_mode))
        st = pal_fail(err, PAL_E_IO, "%s: a directory, expected a text", path);
    if (!st && from) {
        t->place = *from;
        st = skip(t, from->offset, err);
    }
    if (st) {
        pal_text_close(t);
        return st;
    }
    *out = t;
    return PAL_OK;
}

/* The character that ends data[0 .. size); false when it is not UTF-8. */
static bool last_character(const unsigned char *data, size_t size, uint32_t *code) {
    for (size_t length = 1; length <= 4 && length <= size; length++)
        if ((data[size - length] & 0xC0) != 0x80) return pal_utf8_read(data + size - length, length, code) == length;
    return false;
}

static bool is_word(uint32_t c) {
    return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* A letter that no normal form takes apart into other kinds of characters. */
static bool is_letter(uint32_t c) {
    return pal_class_of(c) == PAL_CLASS_LETTER && utf8proc_get_property((utf8proc_int32_t)c)->decomp_type == 0;
}

pal_text_unit pal_text_unit_of(pal_cut cut) {
    switch (cut) {
    case PAL_CUT_NEVER: return PAL_TEXT_WHOLE;
    case PAL_CUT_WORDS:
    case PAL_CUT_BLANKS: return PAL_TEXT_WORDS;
    case PAL_CUT_LINES: return PAL_TEXT_WORDS_OR_LINES;
    case PAL_CUT_LETTERS: return PAL_TEXT_LETTERS_OR_LINES;
    case PAL_CUT_CHARACTERS: return PAL_TEXT_CHARACTERS;
    }
    return PAL_TEXT_WHOLE;
}

enum { BLANK_SIGN = 0x2581 }; /* SentencePiece's own sign for a blank, with which a blank would join */

/* The largest cut of data[0 .. size) that the unit allows; 0: there is none. More text follows. */
static size_t cut_at(pal_text_unit unit, const unsigned char *data, size_t size) {
    size_t i = size;
    switch (unit) {
    case PAL_TEXT_WHOLE: return 0;
    case PAL_TEXT_LINES:
        while (i > 0 && data[i - 1] != '\n') i--;
        return i;
    case PAL_TEXT_CHARACTERS:
        for (int back = 0; back < 3 && i > 1 && (data[i - 1] & 0xC0) == 0x80; back++)
            i--;                                        /* to the last character's first byte, */
        if (i > 1 && data[i - 1] >= 0xC0) return i - 1; /* which is cut off whole */
        return size;
    case PAL_TEXT_WORDS:
    case PAL_TEXT_WORDS_OR_LINES: /* text/cut.c says why there */
    case PAL_TEXT_LETTERS_OR_LINES:
        for (i = size > 5 ? size - 5 : 0; i > 0; i--) {
            uint32_t before, behind;
            if (data[i] != ' ' && !(data[i] == '\n' && unit != PAL_TEXT_WORDS)) continue;
            if (!last_character(data, i, &before) || !pal_utf8_read(data + i + 1, size - i - 1, &behind) ||
                is_white(behind))
                continue;
            if (data[i] == '\n' && !is_white(before)) return i + 1;
            if (data[i] == ' ' && before != ' ' && before != BLANK_SIGN &&
                (unit == PAL_TEXT_LETTERS_OR_LINES ? is_letter(behind) : is_word(behind)))
                return i;
        }
        return 0;
    }
    return 0;
}

pal_status pal_text_read(pal_text *t, pal_text_block *b, bool *found, pal_error *err) {
    pal_status st;
    pal_bytes free_buffer = b->bytes;
    *found = false;
    b->bytes = t->rest; /* the block grows on what is left over, its old buffer takes the next rest */
    t->rest = free_buffer;
    t->rest.size = 0;
    size_t want = t->target, cut;
    for (;;) {
        if ((st = fill(t, &b->bytes, want + 1, err))) return st;
        if ((b->last = b->bytes.size <= want)) { /* one byte more was asked for, so this is the end */
            cut = b->bytes.size;
            break;
        }
        if ((cut = cut_at(t->unit, b->bytes.data, want))) break;
        if (want >= t->most) {
            if (t->unit == PAL_TEXT_LINES)
                return pal_fail(err, PAL_E_FORMAT,
                                "%s: line %" PRIu64 " is longer than %zu bytes, the most that a line may have",
                                name_of(t), t->place.line + 1, t->most);
            if (t->unit == PAL_TEXT_WHOLE)
                return pal_fail(err, PAL_E_FORMAT,
                                "%s: longer than %zu bytes, the most that can be taken as one document here",
                                name_of(t), t->most);
            return pal_fail(err, PAL_E_FORMAT,
                            "%s: no place to cut it, as a blank between words, in the %zu bytes from byte %" PRIu64
                            " on: too long for one piece",
                            name_of(t), t->most, t->place.offset);
        }
        want = want * 2 < t->most ? want * 2 : t->most;
    }
    if (cut < b->bytes.size && (st = pal_bytes_append(&t->rest, b->bytes.data + cut, b->bytes.size - cut, err)))
        return st;
    b->bytes.size = cut;
    b->start = b->next = t->place;
    if (cut == 0) return PAL_OK;
    *found = true;
    b->next.offset += cut;
    b->next.inside = t->unit != PAL_TEXT_LINES && !b->last;
    if (t->unit == PAL_TEXT_LINES) {
        for (const unsigned char *at = b->bytes.data, *end = at + cut;
             at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++)
            b->next.line++;
    } else {
        uint32_t code;
        b->next.blank = last_character(b->bytes.data, cut, &code) && is_white(code);
    }
    t->place = b->next;
    return PAL_OK;
}

void pal_text_release(void *owner) { json_decref(owner); }

bool pal_text_field_pairs(const char *field) { return field && strchr(field, '+'); }

/* {"x": prompt + PAL_RESPONSE + response, "response": where it begins}; NULL: there is no such pair, or no memory. */
static json_t *join_pair(const json_t *root, const char *field, bool *starved) {
    const size_t size = (size_t)(strchr(field, '+') - field);
    char first[256];
    if (size >= sizeof first) return NULL;
    memcpy(first, field, size);
    first[size] = '\0';
    const json_t *prompt = json_object_get(root, first), *response = json_object_get(root, field + size + 1);
    if (!json_is_string(prompt) || !json_is_string(response)) return NULL;
    const size_t behind = json_string_length(prompt) + sizeof PAL_RESPONSE - 2; /* its line's end is the response's */
    json_t *pair = json_pack("{s:s#++#, s:I}", "x", json_string_value(prompt), (int)json_string_length(prompt),
                             PAL_RESPONSE, json_string_value(response), (int)json_string_length(response), "response",
                             (json_int_t)behind);
    *starved = !pair;
    return pair;
}

size_t pal_text_response(const void *owner) { return (size_t)json_integer_value(json_object_get(owner, "response")); }

pal_status pal_text_parse(const char *path, const char *field, uint64_t line, pal_slice json, void **owner,
                          pal_slice *text, pal_error *err) {
    json_error_t why;
    bool starved;
    size_t i = 0;
    *owner = NULL;
    *text = (pal_slice){ 0 };
    while (i < json.size &&
           (json.data[i] == ' ' || json.data[i] == '\t' || json.data[i] == '\r' || json.data[i] == '\n'))
        i++;
    if (i == json.size) return PAL_OK;
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    const size_t mark = line == 1 && json.size >= 3 && memcmp(json.data, "\xEF\xBB\xBF", 3) == 0 ? 3
                                                                                                 : 0; /* byte order */
    json_t *root = pal_json_parse((const char *)json.data + mark, json.size - mark, JSON_ALLOW_NUL, &why, &starved);
    if (!root && json_error_code(&why) == json_error_numeric_overflow) /* numbers in other fields may be of any size */
        root = pal_json_parse((const char *)json.data + mark, json.size - mark,
                              JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why, &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "%s: out of memory while reading line %" PRIu64, name, line);
    if (!root) return pal_fail(err, PAL_E_FORMAT, "%s: line %" PRIu64 ": %s", name, line, why.text);
    const json_t *value;
    if (pal_text_field_pairs(field)) {
        json_t *pair = join_pair(root, field, &starved);
        json_decref(root);
        if (starved) return pal_fail(err, PAL_E_MEMORY, "%s: out of memory while reading line %" PRIu64, name, line);
        if (!pair)
            return pal_fail(err, PAL_E_FORMAT, "%s: line %" PRIu64 ": expected an object with two strings '%s'", name,
                            line, field);
        root = pair;
        value = json_object_get(root, "x");
    } else value = json_object_get(root, field);
    if (!json_is_string(value)) {
        const pal_status st = pal_fail(err, PAL_E_FORMAT,
                                       "%s: line %" PRIu64 ": expected an object with a string '%s', found %s", name,
                                       line, field,
                                       !json_is_object(root) ? "no object"
                                       : value               ? "something else under that name"
                                                             : "no such field");
        json_decref(root);
        return st;
    }
    *owner = root;
    *text = (pal_slice){ (const unsigned char *)json_string_value(value), json_string_length(value) };
    return PAL_OK;
}

struct pal_documents {
    pal_text *text;
    pal_text_block block;
    char *path, *field; /* field NULL: plain */
    size_t at;          /* in the block */
    uint64_t line;
    void *owner;
};

pal_status pal_documents_open(pal_documents **out, const char *path, const char *field, size_t most, pal_error *err) {
    enum { TARGET = 1 << 20 };
    pal_documents *d;
    pal_status st;
    *out = NULL;
    if ((st = pal_alloc_named((void **)&d, 1, sizeof *d, "reading documents", err))) return st;
    d->path = pal_strdup(path);
    d->field = field ? pal_strdup(field) : NULL;
    if (!d->path || (field && !d->field)) st = pal_fail(err, PAL_E_MEMORY, "out of memory for a path");
    if (!st)
        st = pal_text_open(&d->text, path, field ? PAL_TEXT_LINES : PAL_TEXT_WHOLE, most < TARGET ? most : TARGET, most,
                           NULL, err);
    if (st) {
        pal_documents_close(d);
        return st;
    }
    *out = d;
    return PAL_OK;
}

void pal_documents_close(pal_documents *d) {
    if (!d) return;
    pal_text_close(d->text);
    pal_bytes_free(&d->block.bytes);
    pal_text_release(d->owner);
    pal_free(d->path);
    pal_free(d->field);
    pal_free(d);
}

pal_status pal_documents_next(pal_documents *d, pal_slice *text, bool *found, pal_error *err) {
    pal_status st;
    for (;;) {
        if (d->at == d->block.bytes.size) {
            d->at = 0; /* at the end too, where the block is empty */
            if ((st = pal_text_read(d->text, &d->block, found, err)) || !*found) return st;
            d->line = d->block.start.line;
        }
        *found = true;
        const pal_slice rest = { d->block.bytes.data + d->at, d->block.bytes.size - d->at };
        if (!d->field) {
            d->at += rest.size;
            *text = rest;
            return PAL_OK;
        }
        const unsigned char *end = memchr(rest.data, '\n', rest.size);
        const size_t size = end ? (size_t)(end - rest.data) : rest.size;
        d->at += size + (end != NULL);
        pal_text_release(d->owner);
        if ((st = pal_text_parse(d->path, d->field, ++d->line, (pal_slice){ rest.data, size }, &d->owner, text, err)))
            return st;
        if (text->size) return PAL_OK;
    }
}

const void *pal_documents_row(const pal_documents *d) { return d->owner; }

pal_text_place pal_documents_place(const pal_documents *d) {
    return (pal_text_place){ .offset = d->block.start.offset + d->at, .line = d->line };
}
