/* SPDX-License-Identifier: MIT */
#include "eval/records.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "format/json.h"
#include "text/strings.h"
#include "text/utf8.h"

static const char hex[] = "0123456789abcdef";

typedef struct {
    size_t at, size; /* bytes */
    uint64_t line;   /* from 1 */
} row_place;

struct pal_records {
    char *path;
    pal_map map;
    bool csv;
    json_t *names; /* of a table's columns */
    row_place *rows;
    size_t count, capacity;
};

void pal_records_close(pal_records *r) {
    if (!r) return;
    pal_map_close(&r->map);
    json_decref(r->names);
    pal_free(r->rows);
    pal_free(r->path);
    pal_free(r);
}

size_t pal_records_count(const pal_records *r) { return r->count; }

void pal_records_place(const pal_records *r, size_t i, char *text, size_t size) {
    snprintf(text, size, "%s: line %llu", r->path, (unsigned long long)r->rows[i].line);
}

/* Bytes of the row at `at` with its line break; a break inside quotes is part of a cell. Quotes are quotes where they
 * begin a cell; elsewhere they are a sign of the text. */
static size_t row_size(const pal_records *r, size_t at, uint64_t *lines) {
    bool in_quotes = false, quoted = false;
    size_t i = at;
    while (i < r->map.size) {
        const bool begins = i == at || (!in_quotes && r->map.data[i - 1] == ',');
        const unsigned char c = r->map.data[i++];
        if (begins) quoted = r->csv && c == '"';
        if (quoted && c == '"') in_quotes = !in_quotes;
        if (c != '\n') continue;
        ++*lines;
        if (!in_quotes) break;
    }
    return i - at;
}

static bool is_empty(const unsigned char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r' && s[i] != '\n') return false;
    return true;
}

/* A cell from *at on, without its quotes; *at at the comma after it, or at the end of the row. */
static pal_status read_cell(const unsigned char *s, size_t n, size_t *at, pal_bytes *cell, pal_error *err) {
    pal_status st = PAL_OK;
    const bool quoted = *at < n && s[*at] == '"';
    bool open = quoted;
    cell->size = 0;
    if (quoted) ++*at;
    while (*at < n && !st && (open || s[*at] != ',')) {
        if (quoted && !open) return pal_fail(err, PAL_E_FORMAT, "text after the closing quote of a cell");
        const bool quote = open && s[*at] == '"', doubled = quote && *at + 1 < n && s[*at + 1] == '"';
        *at += doubled; /* a doubled quote is one */
        if (quote && !doubled) open = false;
        else st = pal_bytes_append(cell, s + *at, 1, err);
        ++*at;
    }
    return !st && open ? pal_fail(err, PAL_E_FORMAT, "the quotes of a cell are not closed") : st;
}

/* Lists and objects that Python's repr or JSON wrote into a cell: ['a', "b's"], {'a': array(['x'], dtype=object)}. */
typedef struct {
    const char *s;
    size_t at, n;
    int depth;
    size_t groups, texts; /* so far */
} literal;

static void skip(literal *l) {
    static const char *const words[] = { "array(", "dtype=object", ")" };
    for (bool again = true; again;) {
        again = false;
        while (l->at < l->n && strchr(" \t\r\n", l->s[l->at])) l->at++, again = true;
        for (size_t i = 0; i < 3; i++) {
            const size_t length = strlen(words[i]);
            if (l->n - l->at >= length && memcmp(l->s + l->at, words[i], length) == 0) l->at += length, again = true;
        }
    }
}

static json_t *read_literal(literal *l);

/* What follows a backslash, as UTF-8: \n and its like, \xhh, \uhhhh, \Uhhhhhhhh, or the character itself. */
static pal_status read_escape(literal *l, pal_bytes *text) {
    const char c = l->s[l->at++];
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const char plain = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    uint32_t code = 0;
    if (!digits) return pal_bytes_append(text, &plain, 1, NULL);
    for (size_t i = 0; i < digits; i++, l->at++) {
        const char *found = l->at < l->n && l->s[l->at] ? strchr(hex, tolower(l->s[l->at])) : NULL;
        if (!found) return PAL_E_FORMAT;
        code = code << 4 | (uint32_t)(found - hex);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return PAL_E_FORMAT;
    unsigned char bytes[4];
    return pal_bytes_append(text, bytes, pal_utf8_write(code, bytes), NULL);
}

static json_t *read_quoted(literal *l) {
    const char quote = l->s[l->at++];
    pal_bytes text = { 0 };
    bool closed = false;
    while (l->at < l->n && !(closed = l->s[l->at] == quote)) {
        const char c = l->s[l->at++];
        const bool escape = c == '\\' && l->at < l->n;
        const pal_status st = escape ? read_escape(l, &text) : pal_bytes_append(&text, &c, 1, NULL);
        if (st == PAL_E_MEMORY) pal_json_lose();
        if (st) break;
    }
    l->at += closed;
    json_t *value = closed ? json_stringn(text.data ? (const char *)text.data : "", text.size) : NULL;
    pal_bytes_free(&text);
    return value;
}

static json_t *read_group(literal *l) {
    const bool list = l->s[l->at++] == '[';
    json_t *group = list ? json_array() : json_object();
    while (l->depth < 16) {
        skip(l);
        if (l->at < l->n && l->s[l->at] == ',') {
            l->at++;
            continue;
        }
        if (l->at >= l->n) break;
        if (l->s[l->at] == (list ? ']' : '}')) {
            l->at++;
            return group;
        }
        json_t *value = read_literal(l);
        if (list) {
            if (json_array_append_new(group, value)) break;
            continue;
        }
        skip(l);
        if (!json_is_string(value) || l->at >= l->n || l->s[l->at] != ':') {
            json_decref(value);
            break;
        }
        l->at++;
        skip(l);
        const int failed = json_object_set_new(group, json_string_value(value), read_literal(l));
        json_decref(value);
        if (failed) break;
    }
    json_decref(group);
    return NULL;
}

static json_t *read_literal(literal *l) {
    skip(l);
    if (l->at >= l->n) return NULL;
    const char c = l->s[l->at];
    if (c == '\'' || c == '"') return ++l->texts > PAL_JSON_WORDS ? NULL : read_quoted(l);
    if ((c != '[' && c != '{') || ++l->groups > PAL_JSON_CONTAINERS) return NULL;
    l->depth++;
    json_t *group = read_group(l);
    l->depth--;
    return group;
}

/* A list, an object or a text; NULL, and why. */
static json_t *cell_value(const pal_bytes *cell, const char **why) {
    const char *text = cell->data ? (const char *)cell->data : "";
    json_t *value = NULL;
    if (cell->size && (text[0] == '[' || text[0] == '{')) {
        bool starved;
        value = pal_json_parse(text, cell->size, JSON_REJECT_DUPLICATES, NULL, &starved);
        if (starved) pal_json_lose();
        literal l = { .s = text, .n = cell->size };
        if (!value) value = read_literal(&l);
        if (l.groups > PAL_JSON_CONTAINERS || l.texts > PAL_JSON_WORDS) {
            *why = "a cell holds too many lists, objects or texts";
            return NULL;
        }
        skip(&l);
        if (l.at && l.at < l.n) { /* text that only begins like a list */
            json_decref(value);
            value = NULL;
        }
    }
    *why = "a cell is not UTF-8";
    return value ? value : json_stringn(text, cell->size);
}

static pal_status read_table_row(const pal_records *r, row_place row, json_t **out, pal_error *err) {
    const unsigned char *s = r->map.data + row.at;
    size_t n = row.size, at = 0, column = 0;
    pal_bytes cell = { 0 };
    pal_status st = PAL_OK;
    while (n && (s[n - 1] == '\n' || s[n - 1] == '\r')) n--;
    *out = r->names ? json_object() : json_array();
    for (bool more = true; more && !st; column++) {
        pal_error why;
        if ((st = read_cell(s, n, &at, &cell, &why))) {
            pal_fail(err, st, "%s: line %llu: %s", r->path, (unsigned long long)row.line, why.text);
            break;
        }
        more = at++ < n; /* a comma, after which there is a cell, if only an empty one */
        const char *name = json_string_value(json_array_get(r->names, column));
        const char *wrong = "a cell is not UTF-8";
        json_t *value = r->names ? cell_value(&cell, &wrong)
                                 : json_stringn(cell.data ? (const char *)cell.data : "", cell.size);
        if (!value || (r->names && !name)) {
            json_decref(value);
            st = pal_fail(err, PAL_E_FORMAT, "%s: line %llu: %s", r->path, (unsigned long long)row.line,
                          value ? "more cells than the first line names" : wrong);
        } else if (r->names) pal_json_set(*out, name, value);
        else pal_json_append(*out, value);
    }
    pal_bytes_free(&cell);
    if (!st && (*out = pal_json_whole(*out))) return PAL_OK;
    if (!st) st = pal_fail(err, PAL_E_MEMORY, "out of memory for a row of %s", r->path);
    json_decref(*out);
    *out = NULL;
    return st;
}

pal_status pal_records_read(const pal_records *r, size_t i, json_t **out, pal_error *err) {
    const row_place row = r->rows[i];
    json_error_t why;
    *out = NULL;
    if (r->csv) return read_table_row(r, row, out, err);
    *out = pal_json_parse((const char *)r->map.data + row.at, row.size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why,
                          NULL);
    if (!*out)
        return pal_fail(err, PAL_E_FORMAT, "%s: line %llu: not JSON: %s", r->path, (unsigned long long)row.line,
                        why.text);
    if (json_is_object(*out)) return PAL_OK;
    json_decref(*out);
    *out = NULL;
    return pal_fail(err, PAL_E_FORMAT, "%s: line %llu: expected an object with fields", r->path,
                    (unsigned long long)row.line);
}

static pal_status check_names(const pal_records *r, pal_error *err) {
    json_t *seen = json_object();
    pal_status st = PAL_OK;
    for (size_t i = 0; i < json_array_size(r->names) && !st; i++) {
        const char *name = json_string_value(json_array_get(r->names, i));
        if (json_object_get(seen, name))
            st = pal_fail(err, PAL_E_FORMAT, "%s: line %llu: two columns are named '%s'", r->path,
                          (unsigned long long)r->rows[0].line, name);
        else pal_json_set(seen, name, json_true());
    }
    if (!st && !(seen = pal_json_whole(seen)))
        st = pal_fail(err, PAL_E_MEMORY, "out of memory for the names of %s", r->path);
    json_decref(seen);
    return st;
}

static pal_status find_rows(pal_records *r, pal_error *err) {
    uint64_t line = 1;
    const bool marked = r->map.size >= 3 && memcmp(r->map.data, "\xEF\xBB\xBF", 3) == 0;
    for (size_t at = marked ? 3 : 0; at < r->map.size;) {
        uint64_t next = line;
        const row_place row = { .at = at, .size = row_size(r, at, &next), .line = line };
        if (!is_empty(r->map.data + at, row.size)) {
            void *block = r->rows;
            const pal_status st = pal_grow(&block, &r->capacity, r->count, r->count + 1, sizeof row, err);
            if (st) return st;
            r->rows = block;
            r->rows[r->count++] = row;
        }
        at += row.size;
        line = next;
    }
    if (!r->csv) return PAL_OK;
    if (!r->count) return pal_fail(err, PAL_E_FORMAT, "%s: an empty file, expected a line with names", r->path);
    json_t *names;
    pal_status st = read_table_row(r, r->rows[0], &names, err);
    r->names = names;
    if (!st) st = check_names(r, err);
    memmove(r->rows, r->rows + 1, --r->count * sizeof *r->rows);
    return st;
}

pal_status pal_records_open(pal_records **out, const char *path, pal_error *err) {
    void *block;
    pal_status st;
    const size_t length = strlen(path);
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_records), "the rows of a data set", err))) return st;
    pal_records *r = block;
    r->csv = length > 4 && strcmp(path + length - 4, ".csv") == 0;
    if (!(r->path = pal_strdup(path))) st = pal_fail(err, PAL_E_MEMORY, "out of memory for the name of a file");
    if (st || (st = pal_map_open(&r->map, path, err)) || (st = find_rows(r, err))) {
        pal_records_close(r);
        return st;
    }
    *out = r;
    return PAL_OK;
}
