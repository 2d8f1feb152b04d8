/* SPDX-License-Identifier: MIT */
#include "text/side_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/log.h"
#include "base/map.h"
#include "format/json.h"
#include "format/model_dir.h"
#include "text/hf_json.h"

enum { FILE_MAX = 64 << 20, PATH_SIZE = 4096 };

static pal_status path_near(char out[PATH_SIZE], const char *path, const char *name, pal_error *err) {
    const char *slash = strrchr(path, '/');
    return pal_path(out, PATH_SIZE, err, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
}

static pal_status directory_of(char out[PATH_SIZE], const char *path, pal_error *err) {
    const char *slash = strrchr(path, '/');
    return pal_path(out, PATH_SIZE, err, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

static bool exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

/* The bytes of a file, appended; a file that is not there leaves out empty. */
static pal_status read_small(pal_bytes *out, const char *path, pal_error *err) {
    pal_map map;
    pal_status st;
    if (!exists(path)) return PAL_OK;
    if ((st = pal_map_open(&map, path, err))) return st;
    if (map.size > FILE_MAX)
        st = pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected at most %d", path, map.size, FILE_MAX);
    else st = pal_bytes_append(out, map.data, map.size, err);
    pal_map_close(&map);
    return st;
}

static pal_status parse(json_t **out, const char *path, const pal_bytes *text, pal_error *err) {
    json_error_t why;
    bool starved = false;
    *out = pal_json_parse(text->data ? (const char *)text->data : "", text->size, 0, &why, &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "out of memory reading %s", path);
    if (!*out) return pal_fail(err, PAL_E_FORMAT, "%s: not valid JSON: %s (line %d)", path, why.text, why.line);
    if (json_is_object(*out)) return PAL_OK;
    json_decref(*out);
    *out = NULL;
    return pal_fail(err, PAL_E_FORMAT, "%s: expected a JSON object", path);
}

/* A JSON file of a directory; *out NULL: it is not there. */
static pal_status read_json(json_t **out, const char *path, pal_error *err) {
    pal_bytes text = { 0 };
    *out = NULL;
    pal_status st = exists(path) ? read_small(&text, path, err) : PAL_OK;
    if (!st && exists(path)) st = parse(out, path, &text, err);
    pal_bytes_free(&text);
    return st;
}

static pal_bytes *kept_file(pal_tokenizer *tok, const char *name) {
    for (int i = 2; i < PAL_TOKENIZER_FILES; i++)
        if (tok->files[i].name && strcmp(tok->files[i].name, name) == 0) return &tok->files[i].bytes;
    return NULL;
}

static pal_status keep_files(pal_tokenizer *tok, const char *path, pal_error *err) {
    static const char *const names[] = { "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                         "chat_template.jinja", "generation_config.json" };
    char file[PATH_SIZE];
    pal_status st = PAL_OK;
    for (size_t i = 0; i < PAL_COUNT(names) && !st; i++) {
        if ((st = path_near(file, path, names[i], err)) || !exists(file)) continue;
        int at = 2;
        while (tok->files[at].name) at++;
        tok->files[at].name = names[i];
        st = read_small(&tok->files[at].bytes, file, err);
    }
    return st;
}

/* One added token as tokenizer.json lists it. */
static json_t *added_token(json_int_t id, const json_t *token, bool special) {
    static const char *const flags[] = { "single_word", "lstrip", "rstrip" };
    json_t *made = json_pack("{s:I, s:O}", "id", id, "content",
                             json_is_object(token) ? json_object_get(token, "content") : token);
    for (size_t i = 0; i < PAL_COUNT(flags); i++)
        pal_json_set(made, flags[i], json_boolean(json_is_true(json_object_get(token, flags[i]))));
    const json_t *normalized = json_object_get(token, "normalized");
    pal_json_set(made, "normalized", json_boolean(normalized ? json_is_true(normalized) : !special));
    pal_json_set(made, "special", json_boolean(special));
    return made;
}

/* Whether tokenizer_config.json or special_tokens_map.json names a token: such tokens are special. */
static bool is_named(const json_t *config, const char *text) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value) {
        const size_t n = strlen(key);
        const bool one = n > 6 && strcmp(key + n - 6, "_token") == 0,
                   many = n > 7 && strcmp(key + n - 7, "_tokens") == 0;
        if (!one && !many) continue;
        for (size_t i = 0; i < (many ? json_array_size(value) : 1); i++) {
            const json_t *item = many ? json_array_get(value, i) : value;
            const char *name = json_string_value(json_is_object(item) ? json_object_get(item, "content") : item);
            if (name && strcmp(name, text) == 0) return true;
        }
    }
    return false;
}

static int by_id(const void *a, const void *b) {
    const json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "id")),
                     y = json_integer_value(json_object_get(*(json_t *const *)b, "id"));
    return (x > y) - (x < y);
}

static pal_status sorted(json_t **list, pal_error *err) {
    const size_t n = json_array_size(*list);
    json_t **items;
    const pal_status st = pal_alloc_named((void **)&items, n, sizeof *items, "added tokens", err);
    if (st) return st;
    json_t *made = json_array();
    if (!made) {
        pal_free(items);
        return pal_fail(err, PAL_E_MEMORY, "out of memory for added tokens");
    }
    for (size_t i = 0; i < n; i++) items[i] = json_array_get(*list, i);
    if (n) qsort(items, n, sizeof *items, by_id);
    for (size_t i = 0; i < n; i++) pal_json_append(made, json_incref(items[i]));
    pal_free(items);
    json_decref(*list);
    *list = made;
    return PAL_OK;
}

/* added_tokens_decoder of tokenizer_config.json, which says everything of each token. */
static pal_status read_decoder(pal_side_files *b, const char *path, const json_t *decoder, pal_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)decoder, key, value) {
        char *end;
        const long long id = strtoll(key, &end, 10);
        if (*end || end == key || id < 0 || id > INT_MAX || !json_string_length(json_object_get(value, "content")))
            return pal_fail(err, PAL_E_FORMAT, "%s: 'added_tokens_decoder' has no id and content in '%.40s'", path,
                            key);
        pal_json_append(b->added, added_token(id, value, json_is_true(json_object_get(value, "special"))));
    }
    return PAL_OK;
}

/* added_tokens.json has names and ids; special tokens are those that another file names. */
static pal_status read_names(pal_side_files *b, const char *path, const json_t *names, const json_t *map,
                             pal_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)names, key, value) {
        const json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > INT_MAX || !*key)
            return pal_fail(err, PAL_E_FORMAT, "%s: token '%.40s' has no id", path, key);
        json_t *content = json_string(key);
        pal_json_append(b->added, added_token(id, content, is_named(b->config, key) || is_named(map, key)));
        json_decref(content);
    }
    return PAL_OK;
}

static pal_status read_added(pal_side_files *b, const char *path, pal_error *err) {
    const json_t *decoder = json_object_get(b->config, "added_tokens_decoder");
    json_t *names = NULL, *map = NULL;
    char file[PATH_SIZE];
    pal_status st;
    b->added = json_array();
    if (decoder) {
        if (!(st = path_near(file, path, "tokenizer_config.json", err))) st = read_decoder(b, file, decoder, err);
    } else {
        if (!(st = path_near(file, path, "special_tokens_map.json", err))) st = read_json(&map, file, err);
        if (!st) st = path_near(file, path, "added_tokens.json", err);
        if (!st) st = read_json(&names, file, err);
        if (!st) st = read_names(b, file, names, map, err);
    }
    json_decref(names);
    json_decref(map);
    return st ? st : sorted(&b->added, err);
}

pal_status pal_side_files_read(pal_side_files *out, pal_tokenizer *tok, const char *path, pal_error *err) {
    char file[PATH_SIZE];
    *out = (pal_side_files){ 0 };
    pal_status st = keep_files(tok, path, err);
    if (!st && kept_file(tok, "tokenizer_config.json") && !(st = path_near(file, path, "tokenizer_config.json", err)))
        st = parse(&out->config, file, kept_file(tok, "tokenizer_config.json"), err);
    if (!st) st = read_added(out, path, err);
    if (!st && !(st = directory_of(file, path, err))) st = pal_chat_templates_read(tok, file, err);
    if (st) pal_side_files_free(out);
    return st;
}

void pal_side_files_free(pal_side_files *beside) {
    json_decref(beside->config);
    json_decref(beside->added);
    *beside = (pal_side_files){ 0 };
}

/* "eos_token": "</s>" or { "content": "</s>" }; null says that there is none. False: it says nothing. */
static bool named_token(const pal_tokenizer *tok, const char *path, const json_t *config, const char *key,
                        int64_t *id) {
    const json_t *value = json_object_get(config, key);
    if (!value) return false;
    const char *name = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (!name && !json_is_null(value)) return false;
    *id = name ? pal_tokenizer_find(tok, name) : -1;
    if (name && *id < 0)
        pal_warn("%s: '%s' of tokenizer_config.json is '%.80s', which no token has: the tokenizer is used without one",
                 path, key, name);
    return true;
}

static int64_t usual(const pal_tokenizer *tok, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const int64_t id = pal_tokenizer_find(tok, names[i]);
        if (id >= 0 && pal_tokenizer_is_special(tok, (uint32_t)id)) return id;
    }
    return -1;
}

void pal_find_bos_and_eos(pal_tokenizer *tok, const char *path, const json_t *config) {
    static const char *const ends[] = { "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[EOS]" };
    static const char *const begins[] = { "<s>", "<|begin_of_text|>", "<bos>", "[BOS]" };
    if (!named_token(tok, path, config, "eos_token", &tok->eos)) tok->eos = usual(tok, ends, PAL_COUNT(ends));
    if (!named_token(tok, path, config, "bos_token", &tok->bos)) tok->bos = usual(tok, begins, PAL_COUNT(begins));
}

static pal_status around(pal_ids *ids, int64_t id, const json_t *config, const char *key, bool usually,
                         pal_error *err) {
    const json_t *given = json_object_get(config, key);
    ids->count = 0;
    return id >= 0 && (json_is_boolean(given) ? json_is_true(given) : usually) ? pal_ids_append(ids, (uint32_t)id, err)
                                                                               : PAL_OK;
}

pal_status pal_find_around(pal_tokenizer *tok, const char *path, const json_t *config, pal_error *err) {
    (void)named_token(tok, path, config, "eos_token", &tok->eos);
    (void)named_token(tok, path, config, "bos_token", &tok->bos);
    const pal_status st = around(&tok->prefix, tok->bos, config, "add_bos_token", true, err);
    return st ? st : around(&tok->suffix, tok->eos, config, "add_eos_token", false, err);
}

bool pal_tokenizer_is_end(const pal_tokenizer *tok, uint32_t id) {
    for (size_t i = 0; i < tok->ends.count; i++)
        if (tok->ends.data[i] == id) return true;
    return (int64_t)id == tok->eos;
}

pal_status pal_tokenizer_add_ends(pal_tokenizer *tok, const json_t *config, pal_error *err) {
    const json_t *given = json_object_get(config, "eos_token_id");
    pal_status st = PAL_OK;
    for (size_t i = 0; i < (json_is_array(given) ? json_array_size(given) : 1) && !st; i++) {
        const json_t *one = json_is_array(given) ? json_array_get(given, i) : given;
        const json_int_t id = json_integer_value(one);
        if (!json_is_integer(one) || !pal_is_token(tok, id)) continue;
        if (!(tok->flags[id] & (PAL_TOKEN_SPECIAL | PAL_TOKEN_ADDED)) || pal_tokenizer_is_end(tok, (uint32_t)id))
            continue;
        st = pal_ids_append(&tok->ends, (uint32_t)id, err);
    }
    return st;
}

pal_status pal_tokenizer_add_ends_of(pal_tokenizer *tok, const char *directory, pal_error *err) {
    static const char *const names[] = { "generation_config.json", "config.json" };
    bool said = false;
    pal_status st = PAL_OK;
    for (size_t i = 0; i < PAL_COUNT(names) && !st && !said; i++) {
        char path[PATH_SIZE];
        json_t *root = NULL;
        if ((st = pal_path(path, sizeof path, err, "%s/%s", directory, names[i]))) break;
        if (!exists(path)) continue;
        if ((st = pal_json_read(&root, path, err)) && i == 0) break;
        st = PAL_OK; /* a config.json that cannot be read is the model's matter */
        const json_t *given = json_object_get(root, "eos_token_id");
        said = given && !json_is_null(given);
        st = pal_tokenizer_add_ends(tok, root, err);
        json_decref(root);
    }
    return st;
}

pal_status pal_tokenizer_add_ends_near(pal_tokenizer *tok, const char *path, pal_error *err) {
    char directory[PATH_SIZE];
    const pal_status st = directory_of(directory, path, err);
    return st ? st : pal_tokenizer_add_ends_of(tok, directory, err);
}

pal_status pal_chat_template_set(pal_tokenizer *tok, pal_slice name, pal_slice text, pal_error *err) {
    size_t i = 0;
    while (i < tok->template_count &&
           (tok->templates[i].name.size != name.size || memcmp(tok->templates[i].name.data, name.data, name.size) != 0))
        i++;
    if (i == tok->template_count) {
        void *more = tok->templates;
        size_t room = i;
        const pal_status st = pal_grow(&more, &room, i, i + 1, sizeof *tok->templates, err);
        tok->templates = more;
        if (st) return st;
        tok->templates[tok->template_count++] = (pal_chat_template){ 0 };
        if (pal_bytes_append(&tok->templates[i].name, name.data, name.size, err)) return PAL_E_MEMORY;
    }
    tok->templates[i].text.size = 0;
    return pal_bytes_append(&tok->templates[i].text, text.data, text.size, err);
}

static void drop_templates(pal_tokenizer *tok) {
    for (size_t i = 0; i < tok->template_count; i++) {
        pal_bytes_free(&tok->templates[i].name);
        pal_bytes_free(&tok->templates[i].text);
    }
    tok->template_count = 0;
}

static const pal_slice usual_name = { (const unsigned char *)"default", 7 };

/* "chat_template": a text, or a list of { "name", "template" }. */
static pal_status templates_of(pal_tokenizer *tok, const char *path, const json_t *given, pal_error *err) {
    pal_status st = PAL_OK;
    drop_templates(tok);
    if (json_is_string(given)) return pal_chat_template_set(tok, usual_name, pal_json_slice(given), err);
    for (size_t i = 0; i < json_array_size(given) && !st; i++) {
        const json_t *one = json_array_get(given, i), *name = json_object_get(one, "name"),
                     *text = json_object_get(one, "template");
        if (!json_is_string(name) || !json_is_string(text))
            return pal_fail(err, PAL_E_FORMAT, "%s: template %zu of 'chat_template' has no name and template", path, i);
        st = pal_chat_template_set(tok, pal_json_slice(name), pal_json_slice(text), err);
    }
    if (json_is_array(given)) return st;
    return pal_fail(err, PAL_E_FORMAT, "%s: 'chat_template' is neither a text nor a list of named templates", path);
}

pal_status pal_chat_templates_read(pal_tokenizer *tok, const char *directory, pal_error *err) {
    char path[PATH_SIZE];
    pal_bytes text = { 0 };
    json_t *config = NULL;
    pal_status st = pal_path(path, sizeof path, err, "%s/chat_template.jinja", directory);
    if (st) return st;
    if (exists(path)) {
        if (!(st = read_small(&text, path, err))) {
            drop_templates(tok);
            st = pal_chat_template_set(tok, usual_name, (pal_slice){ text.data, text.size }, err);
        }
        pal_bytes_free(&text);
        return st;
    }
    if ((st = pal_path(path, sizeof path, err, "%s/tokenizer_config.json", directory)) ||
        (st = read_json(&config, path, err)))
        return st;
    const json_t *given = json_object_get(config, "chat_template");
    if (given && !json_is_null(given)) st = templates_of(tok, path, given, err);
    json_decref(config);
    return st;
}

pal_status pal_tokenizer_add_from(pal_tokenizer *tok, const char *directory, pal_error *err) {
    pal_status st = pal_tokenizer_add_ends_of(tok, directory, err);
    if (!st && !tok->template_count) st = pal_chat_templates_read(tok, directory, err);
    if (!st) pal_mark_control(tok);
    return st;
}

pal_slice pal_tokenizer_chat_template(const pal_tokenizer *tok, const char *name) {
    for (size_t i = 0; i < tok->template_count; i++) {
        const pal_chat_template *t = &tok->templates[i];
        if (t->name.size == strlen(name) && memcmp(t->name.data, name, t->name.size) == 0)
            return (pal_slice){ t->text.data, t->text.size };
    }
    return (pal_slice){ (const unsigned char *)"", 0 };
}

/* <|im_start|>, or a name in brackets that a chat template writes: <start_of_turn>, [INST]. */
static bool is_mark(const pal_tokenizer *tok, pal_slice name) {
    if (name.size < 3) return false;
    const unsigned char first = name.data[0], last = name.data[name.size - 1];
    if (first == '<' && name.data[1] == '|' && last == '>' && name.data[name.size - 2] == '|') return true;
    if (!(first == '<' && last == '>') && !(first == '[' && last == ']')) return false;
    for (size_t i = 0; i < tok->template_count; i++)
        if (memmem(tok->templates[i].text.data, tok->templates[i].text.size, name.data, name.size)) return true;
    return false;
}

void pal_mark_control(pal_tokenizer *tok) {
    for (size_t id = 0; id < tok->size; id++) {
        const bool special = tok->flags[id] & PAL_TOKEN_SPECIAL;
        const bool looked_for = tok->flags[id] & (PAL_TOKEN_ADDED | PAL_TOKEN_USER);
        const bool unknown = tok->model != PAL_MODEL_BPE && id == tok->unk;
        if (special || unknown || (looked_for && is_mark(tok, pal_strings_at(&tok->names, id))))
            tok->flags[id] |= PAL_TOKEN_CONTROL;
    }
}
