/* SPDX-License-Identifier: MIT */
#include "format/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* By json_dump_callback, because json_dumps continues after a key that it could not allocate. */
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

static atomic_bool watched, was_short;

/* What jansson's reader keeps the word in that it reads, the first block it asks for; it is doubled again and again, by
 * asking for the new one and then giving the old one back. */
static _Thread_local struct {
    bool on;
    void *word, *doubled;
    size_t size;
    char *reserve, *end;
    size_t used;
} reading;
enum { SMALL_RESERVE = 8192, FILE_MOST = 1 << 30 };

static void *watched_memory(size_t size) {
    void *block = (reading.on && lost) || pal_alloc_refused() ? NULL : malloc(size);
    if (!block) lost = true, atomic_store(&was_short, true);
    if (!reading.on) return block;
    if (!reading.word) {
        reading.word = block;
        reading.size = size;
    } else if (size == 2 * reading.size) {
        if (!block && size <= (size_t)(reading.end - reading.reserve) - reading.used) {
            block = reading.reserve + reading.used;
            reading.used += size;
        }
        reading.doubled = block;
    }
    return block;
}

static void watched_free(void *block) {
    if (reading.on && block && block == reading.word) {
        reading.word = reading.doubled;
        reading.size *= 2;
        reading.doubled = NULL;
    }
    const uintptr_t at = (uintptr_t)block;
    if (reading.on && at >= (uintptr_t)reading.reserve && at < (uintptr_t)reading.end) return;
    free(block);
}

void pal_json_watch(void) {
    json_set_alloc_funcs(watched_memory, watched_free);
    atomic_store(&watched, true);
}

bool pal_json_short(void) { return atomic_load(&was_short); }

/* How much a text asks for, beyond its own size. */
typedef struct {
    size_t longest;    /* an upper limit of the bytes of a word: a string, a number, a name */
    size_t containers; /* objects and lists */
    size_t words;
} demand;

static bool separates(char c) { return strchr(" \t\r\n,:[]{}\"", c) != NULL; }

static demand look_over(const char *text, size_t size) {
    demand d = { 0 };
    for (size_t i = 0; i < size;) {
        const size_t begin = i;
        const char c = text[i++];
        if (c == '"') {
            while (i < size && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
            i++;
            d.words++;
        } else if (c == '{' || c == '[') {
            d.containers++;
            continue;
        } else {
            while (i < size && !separates(text[i])) i++;
            d.words += !separates(c) || i - begin > 1;
        }
        if (i - begin > d.longest) d.longest = i - begin;
    }
    return d;
}

size_t pal_json_containers(const char *text, size_t size) { return look_over(text, size).containers; }

__attribute__((format(printf, 3, 4))) static void say(json_error_t *why, int line, const char *format, ...) {
    va_list values;
    if (!why) return;
    *why = (json_error_t){ .line = line };
    va_start(values, format);
    vsnprintf(why->text, sizeof why->text, format, values);
    va_end(values);
}

json_t *pal_json_parse(const char *text, size_t size, size_t flags, json_error_t *why, bool *starved) {
    char small[SMALL_RESERVE], *large = NULL;
    const bool before = was_lost();
    const demand wanted = look_over(text, size);
    const size_t longest = atomic_load(&watched) ? wanted.longest : 0;
    /* Doubling up to twice the word takes four times as much in all; something else may be of the size of a doubling.
     */
    const size_t room = longest < SMALL_RESERVE / 8 ? sizeof small : 8 * (longest + 16);
    json_t *value = NULL;
    if (wanted.containers > PAL_JSON_CONTAINERS) {
        say(why, 0, "more than %d objects and lists", PAL_JSON_CONTAINERS);
    } else if (wanted.words > PAL_JSON_WORDS) {
        say(why, 0, "more than %d names, texts and numbers", PAL_JSON_WORDS);
    } else if (room > sizeof small && !(large = pal_alloc_refused() ? NULL : malloc(room))) {
        lost = true;
        atomic_store(&was_short, true);
        say(why, -1, "out of memory");
    } else {
        reading.on = true;
        reading.word = reading.doubled = NULL;
        reading.used = 0;
        reading.reserve = large ? large : small;
        reading.end = reading.reserve + room;
        value = json_loadb(text, size, flags, why);
        if (lost) { /* also where jansson did not say so */
            json_decref(value);
            value = NULL;
        }
        reading.on = false;
        reading.reserve = reading.end = NULL;
    }
    free(large);
    if (starved) *starved = was_lost();
    lost |= before;
    return value;
}

/* A regular file's bytes, to be freed; NULL, and why: it cannot be read, or there is no memory. */
static char *read_file(const char *path, size_t *size, json_error_t *why, bool *starved) {
    struct stat info;
    char *text = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    *starved = false;
    *size = 0;
    if (fd < 0 || fstat(fd, &info) != 0) say(why, -1, "cannot open: %s", strerror(errno));
    else if (S_ISDIR(info.st_mode)) say(why, -1, "a directory, expected a file");
    else if (!S_ISREG(info.st_mode)) say(why, -1, "not a regular file");
    else if (info.st_size > FILE_MOST) say(why, -1, "more than %lld bytes of JSON", (long long)FILE_MOST);
    else if (!(text = pal_alloc_refused() ? NULL : malloc((size_t)info.st_size + 1))) *starved = true;
    for (ssize_t got = 1; text && got > 0 && *size < (size_t)info.st_size;) {
        got = read(fd, text + *size, (size_t)info.st_size - *size);
        if (got < 0 && errno == EINTR) got = 1;
        else if (got > 0) *size += (size_t)got;
        if (got >= 0) continue;
        say(why, -1, "cannot read: %s", strerror(errno));
        free(text);
        text = NULL;
    }
    if (fd >= 0) close(fd);
    return text;
}

json_t *pal_json_load(const char *path, size_t flags, json_error_t *why, bool *starved) {
    size_t size;
    bool no_memory;
    char *text = read_file(path, &size, why, &no_memory);
    json_t *value = text ? pal_json_parse(text, size, flags, why, starved) : NULL;
    if (!text) {
        if (no_memory) {
            atomic_store(&was_short, true);
            say(why, -1, "out of memory");
        }
        if (starved) *starved = no_memory;
        else lost |= no_memory;
    }
    free(text);
    return value;
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
