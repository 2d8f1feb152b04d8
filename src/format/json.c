/* SPDX-License-Identifier: MIT */
#include "format/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static _Thread_local bool lost;

static bool kept(int failed) {
    if (failed) lost = true;
    return !failed;
}

bool pal_json_set(json_t *object, const char *key, json_t *value) {
    return kept(json_object_set_new(object, key, value));
}

bool pal_json_setn(json_t *object, const char *key, size_t size, json_t *value) {
    return kept(json_object_setn_new(object, key, size, value));
}

bool pal_json_append(json_t *array, json_t *value) { return kept(json_array_append_new(array, value)); }

bool pal_json_update(json_t *object, json_t *other) { return kept(json_object_update_new(object, other)); }

void pal_json_lose(void) { lost = true; }

void pal_json_forget(void) { lost = false; }

static bool was_lost(void) {
    const bool was = lost;
    lost = false;
    return was;
}

json_t *pal_json_copy(const json_t *value) {
    json_t *copy = json_deep_copy(value);
    if (kept(value && !json_equal(value, copy))) return copy; /* parts may be missing */
    json_decref(copy);
    return NULL;
}

json_t *pal_json_whole(json_t *value) {
    if (!was_lost()) return value;
    json_decref(value);
    return NULL;
}

typedef struct {
    char *text;
    size_t size, room;
} dumped;

static int take(const char *bytes, size_t size, void *user) {
    dumped *d = user;
    if (lost) return -1;
    if (size >= d->room - d->size) {
        const size_t room = 2 * d->room + size;
        char *larger = realloc(d->text, room);
        if (!larger) {
            lost = true;
            return -1;
        }
        d->text = larger;
        d->room = room;
    }
    memcpy(d->text + d->size, bytes, size);
    d->size += size;
    d->text[d->size] = 0;
    return 0;
}

/* By json_dump_callback, because json_dumps goes on behind a key that it had no memory for. */
char *pal_json_dumps(const json_t *value, size_t flags) {
    enum { FIRST = 256 };
    dumped d = { .text = was_lost() ? NULL : malloc(FIRST), .room = FIRST };
    const bool failed = !d.text || json_dump_callback(value, take, &d, flags) != 0;
    if (!was_lost() && !failed) return d.text;
    free(d.text);
    errno = ENOMEM;
    return NULL;
}

bool pal_json_print(const json_t *value, size_t flags, FILE *to) {
    char *text = pal_json_dumps(value, flags);
    const bool printed = text && fputs(text, to) != EOF && fputc('\n', to) != EOF;
    free(text);
    return printed;
}

/* What was read since `before` was asked; nothing if something was lost on the way, even if jansson did not say so. */
static json_t *unless_starved(json_t *value, bool before, bool *starved) {
    *starved = was_lost();
    lost = before;
    if (!*starved) return value;
    json_decref(value);
    return NULL;
}

json_t *pal_json_parse(const char *text, size_t size, size_t flags, json_error_t *why, bool *starved) {
    const bool before = was_lost();
    return unless_starved(json_loadb(text, size, flags, why), before, starved);
}

json_t *pal_json_load(const char *path, size_t flags, json_error_t *why, bool *starved) {
    const bool before = was_lost();
    return unless_starved(json_load_file(path, flags, why), before, starved);
}

json_t *pal_json_text(const char *text) {
    json_error_t why;
    json_t *value = json_pack_ex(&why, 0, "s", text);
    if (value || json_error_code(&why) != json_error_invalid_utf8) return value;
    const size_t size = strlen(text);
    char *hex = pal_alloc(2 * size + 1, 1);
    if (!hex) return NULL;
    for (size_t i = 0; i < size; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)text[i]);
    value = json_pack("{s:s#}", "bytes", hex, (int)(2 * size));
    pal_free(hex);
    return value;
}

static int digit(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

json_t *pal_json_text_read(const json_t *value) {
    if (json_is_string(value)) return json_incref((json_t *)value);
    const json_t *bytes = json_object_size(value) == 1 ? json_object_get(value, "bytes") : NULL;
    const char *hex = json_string_value(bytes);
    const size_t length = json_string_length(bytes), size = length / 2;
    char *text = hex && length % 2 == 0 ? pal_alloc(size + 1, 1) : NULL;
    for (size_t i = 0; text && i < size; i++) {
        const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
        if (high < 0 || low < 0 || high + low == 0) {
            pal_free(text);
            return NULL;
        }
        text[i] = (char)(16 * high + low);
    }
    json_t *read = text ? json_stringn_nocheck(text, size) : NULL;
    pal_free(text);
    return read;
}
