/* SPDX-License-Identifier: MIT */
/* Hugging Face's tokenizer.json with a BPE model, and GPT-2's vocab.json with merges.txt, which is the same in two
 * files. */
#include "text/hf_json.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "format/json.h"

static pal_status load(json_t **out, const char *name, const void *bytes, size_t size, pal_error *err) {
    json_error_t why;
    bool starved;
    if (size > PAL_TOKENIZER_FILE_MAX)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes; a tokenizer of more than %zu is refused", name, size,
                        PAL_TOKENIZER_FILE_MAX);
    if (size == 0) return pal_fail(err, PAL_E_FORMAT, "%s: the file is empty", name);
    *out = pal_json_parse(bytes, size, JSON_ALLOW_NUL, &why, &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "out of memory reading %s", name);
    if (!*out) return pal_fail(err, PAL_E_FORMAT, "%s: not valid JSON: %s (line %d)", name, why.text, why.line);
    return PAL_OK;
}

/* Names by id, in one table for the model's vocabulary and the added tokens. */
typedef struct {
    pal_slice *names;
    size_t count;
} id_table;

static pal_status table_size(const char *name, const json_t *vocab, const json_t *added, size_t *count,
                             pal_error *err) {
    json_int_t top = -1;
    const char *key;
    json_t *value;
    size_t entries = json_object_size(vocab) + json_array_size(added);
    json_object_foreach((json_t *)vocab, key, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return pal_fail(err, PAL_E_FORMAT, "%s: token '%s' has no id", name,
                            pal_show((pal_slice){ (const unsigned char *)key, strlen(key) }).text);
        if (json_integer_value(value) > top) top = json_integer_value(value);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *id = json_object_get(json_array_get(added, i), "id");
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return pal_fail(err, PAL_E_FORMAT, "%s: added token %zu has no id", name, i);
        if (json_integer_value(id) > top) top = json_integer_value(id);
    }
    /* Ids may have holes, but not so many that a small file takes a lot of memory. */
    if (top >= 0 && (uint64_t)top > 4 * (uint64_t)entries + 65536)
        return pal_fail(err, PAL_E_FORMAT, "%s: id %lld in a vocabulary of %zu tokens", name, (long long)top, entries);
    *count = (size_t)(top + 1);
    return PAL_OK;
}

static pal_status place(const char *name, id_table *t, uint64_t id, pal_slice text, pal_error *err) {
    pal_slice *slot = &t->names[id];
    if (slot->data && (slot->size != text.size || memcmp(slot->data, text.data, text.size) != 0))
        return pal_fail(err, PAL_E_FORMAT, "%s: '%s' and '%s' have the same id %llu", name, pal_show(*slot).text,
                        pal_show(text).text, (unsigned long long)id);
    *slot = text;
    return PAL_OK;
}

static pal_status read_names(pal_tokenizer *tok, const char *name, const json_t *vocab, const json_t *added,
                             pal_error *err) {
    id_table t = { 0 };
    pal_status st;
    void *block = NULL;
    const char *key;
    json_t *value;
    if (!json_is_object(vocab))
        return pal_fail(err, PAL_E_FORMAT, "%s: the vocabulary is not an object of tokens and ids", name);
    if ((st = table_size(name, vocab, added, &t.count, err))) return st;
    if ((st = pal_alloc_named(&block, t.count, sizeof *t.names, "a vocabulary", err))) return st;
    t.names = block;
    json_object_foreach((json_t *)vocab, key,
                        value) if ((st = place(name, &t, (uint64_t)json_integer_value(value),
                                               (pal_slice){ (const unsigned char *)key, strlen(key) }, err))) goto done;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i), *content = json_object_get(token, "content");
        if (!json_is_string(content) || json_string_length(content) == 0) {
            st = pal_fail(err, PAL_E_FORMAT, "%s: added token %zu has no content", name, i);
            goto done;
        }
        if ((st = place(name, &t, (uint64_t)json_integer_value(json_object_get(token, "id")), pal_json_slice(content),
                        err)))
            goto done;
    }
    if ((st = pal_vocabulary_set(tok, name, t.names, t.count, err))) goto done;
    json_object_foreach((json_t *)vocab, key, value) tok->flags[json_integer_value(value)] |= PAL_TOKEN_IN_MODEL;
done:
    pal_free(block);
    return st;
}

/* The package numbers added tokens itself: one that the model has keeps its id, others follow in the order of the list
 * from the number of the model's tokens on. A file that says otherwise would get other ids there. */
static pal_status check_added(pal_tokenizer *tok, const char *name, const json_t *added, pal_error *err) {
    size_t next = 0;
    for (size_t id = 0; id < tok->size; id++) next += (tok->flags[id] & PAL_TOKEN_IN_MODEL) != 0;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const size_t id = (size_t)json_integer_value(json_object_get(token, "id"));
        if (tok->flags[id] & (PAL_TOKEN_IN_MODEL | PAL_TOKEN_ADDED)) continue;
        tok->flags[id] |= PAL_TOKEN_ADDED; /* listed twice it is one */
        if (id != next)
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "%s: the added token '%s' has id %zu where the package would give it %zu: added tokens "
                            "must follow the model's without holes and in order",
                            name, pal_show(pal_json_slice(json_object_get(token, "content"))).text, id, next);
        next++;
    }
    return PAL_OK;
}

pal_status pal_hf_added(pal_tokenizer *tok, const json_t *added, pal_error *err) {
    pal_status st;
    void *block;
    if ((st = pal_alloc_named(&block, json_array_size(added), sizeof *tok->added, "added tokens", err))) return st;
    tok->added = block;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i), *normalized = json_object_get(token, "normalized");
        pal_added_token *a = &tok->added[tok->added_count++];
        *a = (pal_added_token){ .id = (uint32_t)json_integer_value(json_object_get(token, "id")),
                                .single_word = json_is_true(json_object_get(token, "single_word")),
                                .lstrip = json_is_true(json_object_get(token, "lstrip")),
                                .rstrip = json_is_true(json_object_get(token, "rstrip")),
                                .special = json_is_true(json_object_get(token, "special")) };
        a->normalized = normalized ? json_is_true(normalized) : !a->special;
        tok->flags[a->id] |= (uint8_t)(PAL_TOKEN_ADDED | (a->special ? PAL_TOKEN_SPECIAL : 0));
    }
    return PAL_OK;
}

static pal_status read_added(pal_tokenizer *tok, const char *name, const json_t *added, pal_error *err) {
    const pal_status st = check_added(tok, name, added, err);
    return st ? st : pal_hf_added(tok, added, err);
}

static pal_status read_merges(pal_tokenizer *tok, const char *name, const json_t *merges, pal_error *err) {
    pal_status st = PAL_OK;
    if (merges && !json_is_array(merges)) return pal_fail(err, PAL_E_FORMAT, "%s: the merges are not a list", name);
    for (size_t i = 0; i < json_array_size(merges) && !st; i++) {
        const json_t *item = json_array_get(merges, i), *left = json_array_get(item, 0),
                     *right = json_array_get(item, 1);
        if (json_is_string(item)) {
            const pal_slice line = pal_json_slice(item);
            const unsigned char *blank = memchr(line.data, ' ', line.size);
            const size_t at = blank ? (size_t)(blank - line.data) : line.size;
            if (!blank || memchr(blank + 1, ' ', line.size - at - 1))
                return pal_fail(err, PAL_E_FORMAT, "%s: merge %zu is '%s', expected two tokens with a blank between",
                                name, i, pal_show(line).text);
            st = pal_vocabulary_merge(tok, name, (pal_slice){ line.data, at },
                                      (pal_slice){ blank + 1, line.size - at - 1 }, i, err);
        } else if (json_array_size(item) == 2 && json_is_string(left) && json_is_string(right)) {
            st = pal_vocabulary_merge(tok, name, pal_json_slice(left), pal_json_slice(right), i, err);
        } else {
            return pal_fail(err, PAL_E_FORMAT, "%s: merge %zu is neither a string nor two strings", name, i);
        }
    }
    return st;
}

static pal_status check_model(const char *name, const json_t *model, pal_error *err) {
    const char *type = pal_json_type(model);
    if (*type && strcmp(type, "BPE") != 0)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: the model '%.20s' is not supported, only BPE is", name, type);
    if (!*type && !json_object_get(model, "merges")) /* WordPiece, WordLevel or Unigram, by what else it has */
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: the model has neither a type nor merges, so it is not BPE, and only BPE is supported",
                        name);
    return PAL_OK;
}

/* Truncation and padding are part of the package's ids, though not of a text's; padding to the longest of one text is
 * none. */
static pal_status check_lengths(const char *name, const json_t *root, pal_error *err) {
    const json_t *truncation = json_object_get(root, "truncation"), *padding = json_object_get(root, "padding");
    if (json_is_object(truncation))
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: it cuts texts at %lld ids, which is not supported; set \"truncation\" to null in it", name,
                        (long long)json_integer_value(json_object_get(truncation, "max_length")));
    const json_t *multiple = json_object_get(padding, "pad_to_multiple_of");
    const char *strategy = json_string_value(json_object_get(padding, "strategy"));
    if (json_is_object(padding) &&
        (!strategy || strcmp(strategy, "BatchLongest") != 0 || (multiple && !json_is_null(multiple))))
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: it pads texts to a length, which is not supported; set \"padding\" to null in it", name);
    return PAL_OK;
}

static pal_status read_model(pal_tokenizer *tok, const char *name, const json_t *model, pal_error *err) {
    const json_t *dropout = json_object_get(model, "dropout"), *unk = json_object_get(model, "unk_token");
    if (json_number_value(dropout) != 0)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: BPE with dropout has no fixed ids and is not supported", name);
    for (int i = 0; i < 2; i++) {
        const char *what = i ? "end_of_word_suffix" : "continuing_subword_prefix";
        if (json_string_length(json_object_get(model, what)))
            return pal_fail(err, PAL_E_UNSUPPORTED, "%s: BPE with %s is not supported", name, what);
    }
    tok->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    tok->fuse_unk = json_is_true(json_object_get(model, "fuse_unk"));
    tok->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    if (json_is_string(unk)) {
        tok->unk = pal_string_map_find(&tok->by_name, &tok->names, json_string_value(unk), json_string_length(unk));
        if (tok->unk == PAL_NO_ID || !(tok->flags[tok->unk] & PAL_TOKEN_IN_MODEL))
            return pal_fail(err, PAL_E_FORMAT, "%s: the unknown token '%s' is not in the vocabulary", name,
                            pal_show(pal_json_slice(unk)).text);
    }
    return read_merges(tok, name, json_object_get(model, "merges"), err);
}

/* Parts that are known one by one and not together. */
static pal_status check_parts(const pal_tokenizer *tok, const char *name, pal_error *err) {
    bool normalized = false;
    for (size_t i = 0; i < tok->added_count; i++) normalized = normalized || tok->added[i].normalized;
    for (size_t i = 0; i < tok->split_count; i++) {
        if (tok->split[i].kind != PAL_SPLIT_METASPACE || tok->split[i].prefix != PAL_PREFIX_FIRST) continue;
        /* The package asks where in the original text a stretch begins, which a normaliser blurs. */
        bool blurs = i > 0 && tok->split[i - 1].kind == PAL_SPLIT_METASPACE;
        for (size_t k = 0; k < tok->normal_count; k++)
            blurs = blurs || i > 0 || normalized || (tok->normal[k].kind == PAL_REPLACE && tok->normal[k].to.size == 0);
        if (blurs)
            return pal_fail(
                err, PAL_E_UNSUPPORTED,
                "%s: Metaspace with prepend_scheme 'first' is not supported after a normaliser that deletes "
                "or, with one, after added tokens that are normalized or another pre-tokenizer",
                name);
    }
    for (int b = 0; b < 256 && tok->byte_level && tok->byte_fallback; b++)
        if (tok->byte_id[b] == PAL_NO_ID)
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "%s: ByteLevel with byte_fallback and no token for the byte 0x%02X is not supported", name,
                            b);
    return PAL_OK;
}

/* What the files next to it say of added tokens comes first: they change those of the list, and add to it. */
static pal_status merge_added(json_t *root, const json_t *more, bool *changed, pal_error *err) {
    json_t *list = json_object_get(root, "added_tokens");
    *changed = false;
    if (!json_array_size(more)) return PAL_OK;
    if (!list) pal_json_set(root, "added_tokens", list = json_array());
    for (size_t i = 0; i < json_array_size(more); i++) {
        const json_t *token = json_array_get(more, i), *content = json_object_get(token, "content");
        json_t *there = NULL;
        for (size_t k = 0; k < json_array_size(list) && !there; k++)
            if (json_equal(json_object_get(json_array_get(list, k), "content"), content))
                there = json_array_get(list, k);
        if (json_equal(there, token)) continue;
        *changed = true;
        json_t *copy = pal_json_copy(token);
        if (there) {
            json_object_del(copy, "id");
            pal_json_update(there, copy);
        } else {
            pal_json_append(list, copy);
        }
    }
    json_t *whole = pal_json_whole(json_incref(root));
    json_decref(whole);
    return whole ? PAL_OK : pal_fail(err, PAL_E_MEMORY, "out of memory for added tokens");
}

/* The file is kept as it is understood, so that it says the same where the others are missing. */
static pal_status keep_merged(pal_tokenizer *tok, const json_t *root, pal_error *err) {
    char *text = pal_json_dumps(root, JSON_INDENT(1));
    if (!text) return pal_fail(err, PAL_E_MEMORY, "out of memory for added tokens");
    tok->files[0].bytes.size = 0;
    const pal_status st = pal_bytes_append(&tok->files[0].bytes, text, strlen(text), err);
    free(text);
    return st;
}

pal_status pal_read_tokenizer_json(pal_tokenizer *tok, const char *name, const void *bytes, size_t size,
                                   const json_t *more, pal_error *err) {
    json_t *root = NULL;
    pal_status st;
    bool merged = false;
    if ((st = load(&root, name, bytes, size, err))) return st;
    if ((st = merge_added(root, more, &merged, err))) goto done;
    const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    tok->model = PAL_MODEL_BPE;
    tok->unk = PAL_NO_ID;
    if (!json_is_object(model)) {
        st = pal_fail(err, PAL_E_FORMAT, "%s: there is no model in it", name);
        goto done;
    }
    if ((st = check_model(name, model, err))) goto done; /* others have another vocabulary, too */
    if ((st = check_lengths(name, root, err))) goto done;
    if ((st = read_names(tok, name, json_object_get(model, "vocab"), added, err))) goto done;
    if ((st = read_model(tok, name, model, err))) goto done;
    if ((st = pal_hf_normalizer(tok, name, json_object_get(root, "normalizer"), err))) goto done;
    if ((st = pal_hf_pre_tokenizer(tok, name, json_object_get(root, "pre_tokenizer"), err))) goto done;
    if ((st = pal_hf_post_processor(tok, name, json_object_get(root, "post_processor"), err))) goto done;
    if ((st = read_added(tok, name, added, err))) goto done;
    if ((st = pal_hf_decoder(tok, name, json_object_get(root, "decoder"), err))) goto done;
    /* A vocabulary of characters and nothing else: what is not in it is refused rather than dropped without a word. */
    tok->strict = tok->merges.count == 0 && !tok->byte_level && !tok->byte_fallback && tok->unk == PAL_NO_ID;
    if ((st = pal_vocabulary_finish(tok, name, err))) goto done;
    if ((st = pal_added_finish(tok, name, err))) goto done;
    if ((st = check_parts(tok, name, err))) goto done;
    tok->words = tok->split_count == 0 && !tok->byte_level && !tok->ignore_merges && pal_vocabulary_keeps_words(tok);
    tok->kind = tok->strict                             ? "characters"
                : !tok->byte_level                      ? "BPE"
                : tok->merges.count || tok->size != 256 ? "byte-level BPE"
                                                        : "bytes";
    if (merged) st = keep_merged(tok, root, err);
done:
    json_decref(root);
    return st;
}

/* Lines "left right" by rank; a line that starts with #version is a heading. */
static pal_status read_merges_txt(pal_tokenizer *tok, const char *name, pal_slice text, pal_error *err) {
    pal_status st = PAL_OK;
    size_t rank = 0;
    for (size_t at = 0, end; at < text.size && !st; at = end + 1) {
        const unsigned char *line = text.data + at, *stop = memchr(line, '\n', text.size - at);
        end = stop ? (size_t)(stop - text.data) : text.size;
        size_t size = end - at;
        if (size && line[size - 1] == '\r') size--;
        if (size == 0 || (size >= 8 && memcmp(line, "#version", 8) == 0)) continue;
        const unsigned char *blank = memchr(line, ' ', size);
        const size_t left = blank ? (size_t)(blank - line) : size;
        if (!blank || memchr(blank + 1, ' ', size - left - 1))
            return pal_fail(err, PAL_E_FORMAT, "%s: merge %zu is '%s', expected two tokens with a blank between", name,
                            rank, pal_show((pal_slice){ line, size }).text);
        st = pal_vocabulary_merge(tok, name, (pal_slice){ line, left }, (pal_slice){ blank + 1, size - left - 1 },
                                  rank++, err);
    }
    return st;
}

/* GPT-2's files do not say that <|endoftext|> is special. */
static json_t *with_end_of_text(const json_t *vocab, const json_t *more) {
    json_t *list = more ? pal_json_copy(more) : json_array();
    const json_t *id = json_object_get(vocab, "<|endoftext|>");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_object_get(json_array_get(list, i), "id"), id)) return list;
    if (id) pal_json_append(list, json_pack("{s:O, s:s, s:b}", "id", id, "content", "<|endoftext|>", "special", 1));
    return list;
}

pal_status pal_read_gpt2_files(pal_tokenizer *tok, const char *name, pal_slice vocab, pal_slice merges,
                               const json_t *more, pal_error *err) {
    json_t *root = NULL, *added = NULL;
    pal_status st;
    tok->model = PAL_MODEL_BPE;
    tok->unk = PAL_NO_ID;
    tok->byte_level = true;
    tok->kind = "byte-level BPE";
    if (merges.size > PAL_TOKENIZER_FILE_MAX)
        return pal_fail(err, PAL_E_FORMAT, "%s: merges.txt has %zu bytes", name, merges.size);
    if ((st = load(&root, name, vocab.data, vocab.size, err))) return st;
    if (!(added = with_end_of_text(root, more))) {
        st = pal_fail(err, PAL_E_MEMORY, "out of memory for added tokens");
        goto done;
    }
    if ((st = read_names(tok, name, root, added, err))) goto done;
    if ((st = read_merges_txt(tok, name, merges, err))) goto done;
    pal_split_add(tok, PAL_SPLIT_GPT2);
    if ((st = read_added(tok, name, added, err))) goto done;
    if (!(st = pal_vocabulary_finish(tok, name, err))) st = pal_added_finish(tok, name, err);
done:
    json_decref(added);
    json_decref(root);
    return st;
}
