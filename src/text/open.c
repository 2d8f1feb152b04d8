/* SPDX-License-Identifier: MIT */
/* Finding a tokenizer's files, distinguishing formats  by content, and writing a tokenizer back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/map.h"
#include "format/json.h"
#include "format/run_dir.h"
#include "text/side_files.h"

static uint64_t mix(uint64_t h, uint64_t x) { return pal_hash_u64(h * 31 + x); }
static uint64_t mix_bytes(uint64_t h, const void *data, size_t size) { return mix(h, pal_hash_bytes(data, size)); }

static uint64_t fingerprint(const pal_tokenizer *tok) {
    uint64_t h = mix(1, (uint64_t)tok->model), merges = 0;
    const bool flags[] = { tok->byte_level, tok->byte_fallback, tok->fuse_unk, tok->ignore_merges, tok->strict };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) h = mix(h, flags[i]);
    /* Of SentencePiece, control symbols are added tokens without anything saying so. */
    const bool bpe = tok->model == PAL_MODEL_BPE;
    const unsigned ignored = PAL_TOKEN_CONTROL | (bpe ? 0u : PAL_TOKEN_ADDED);
    h = mix(mix(mix(h, (uint64_t)tok->bos), (uint64_t)tok->eos), tok->unk);
    for (size_t id = 0; id < tok->size; id++) {
        const pal_slice name = pal_strings_at(&tok->names, id);
        h = mix(mix_bytes(h, name.data, name.size), tok->flags[id] & ~ignored);
        if (tok->scores) h = mix_bytes(h, &tok->scores[id], sizeof tok->scores[id]);
    }
    for (size_t i = 0; tok->merges.slots && i <= tok->merges.mask; i++) { /* in any order */
        const pal_pair_slot *slot = &tok->merges.slots[i];
        if (slot->key != UINT64_MAX) merges += mix(mix(mix(2, slot->key), slot->a), slot->b);
    }
    h = mix(h, merges);
    for (size_t i = 0; i < tok->added_count; i++) {
        const pal_added_token *a = &tok->added[i];
        if (!bpe && !a->single_word && !a->lstrip && !a->rstrip && !a->normalized) continue;
        h = mix(mix(h, a->id),
                (uint64_t)(a->single_word | a->lstrip << 1 | a->rstrip << 2 | a->normalized << 3 | a->special << 4));
    }
    for (size_t i = 0; i < tok->normal_count; i++) {
        const pal_normal_step *n = &tok->normal[i];
        h = mix_bytes(mix_bytes(mix(h, (uint64_t)n->kind), n->from.data, n->from.size), n->to.data, n->to.size);
    }
    for (size_t i = 0; i < tok->split_count; i++) {
        const pal_split_step *s = &tok->split[i];
        h = mix(h, (uint64_t)s->kind | (uint64_t)s->behaviour << 8 | (uint64_t)s->invert << 16 |
                       (uint64_t)s->each << 17 | (uint64_t)s->prefix << 18);
        h = mix(mix_bytes(h, s->literal.data, s->literal.size), s->pattern != NULL);
    }
    h = mix(h, (uint64_t)(tok->spm.dummy_prefix | tok->spm.collapse_blanks << 1 | tok->spm.escape_blanks << 2));
    return mix_bytes(h, tok->spm.charsmap.data, tok->spm.charsmap.size);
}

static pal_status tokenizer_new(pal_tokenizer **out, pal_error *err) {
    void *block;
    const pal_status st = pal_alloc_named(&block, 1, sizeof **out, "a tokenizer", err);
    if (st) return st;
    *out = block;
    (*out)->bos = (*out)->eos = -1;
    (*out)->unk = PAL_NO_ID;
    return PAL_OK;
}

pal_status pal_tokenizer_from_json(pal_tokenizer **out, const char *name, pal_bytes *json, pal_error *err) {
    pal_tokenizer *tok;
    pal_status st;
    *out = NULL;
    if ((st = tokenizer_new(&tok, err))) return st;
    if ((st = pal_read_tokenizer_json(tok, name, json->data, json->size, NULL, err))) {
        pal_tokenizer_close(tok);
        return st;
    }
    pal_find_bos_and_eos(tok, name, NULL);
    tok->files[0].name = "tokenizer.json";
    tok->files[0].bytes = *json;
    *json = (pal_bytes){ 0 };
    tok->fingerprint = fingerprint(tok);
    *out = tok;
    return PAL_OK;
}

/* directory of path (with its slash) + name; NULL: no memory */
static char *beside(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    const size_t head = slash ? (size_t)(slash - path) + 1 : 0, size = head + strlen(name) + 1;
    char *joined = pal_alloc(size, 1);
    if (joined) snprintf(joined, size, "%.*s%s", (int)head, path, name);
    return joined;
}

static bool ends_with(const char *path, const char *tail) {
    const size_t n = strlen(path), t = strlen(tail);
    return n >= t && strcmp(path + n - t, tail) == 0;
}

/* Unless the reader has kept it in its own form. */
static pal_status keep_file(pal_tokenizer *tok, int index, const char *name, pal_slice bytes, pal_error *err) {
    tok->files[index].name = name;
    if (tok->files[index].bytes.size) return PAL_OK;
    return pal_bytes_append(&tok->files[index].bytes, bytes.data, bytes.size, err);
}

static pal_status open_gpt2(pal_tokenizer *tok, const char *path, pal_slice given, const json_t *added,
                            pal_error *err) {
    const bool is_merges = ends_with(path, "merges.txt");
    char *other_path = beside(path, is_merges ? "vocab.json" : "merges.txt");
    pal_map map = { 0 };
    pal_status st;
    if (!other_path) return pal_fail(err, PAL_E_MEMORY, "out of memory for a path");
    if ((st = pal_map_open(&map, other_path, err))) goto done;
    const pal_slice other = { map.data, map.size }, vocab = is_merges ? other : given,
                    merges = is_merges ? given : other;
    if ((st = pal_read_gpt2_files(tok, path, vocab, merges, added, err))) goto done;
    if ((st = keep_file(tok, 0, "vocab.json", vocab, err))) goto done;
    st = keep_file(tok, 1, "merges.txt", merges, err);
done:
    pal_map_close(&map);
    pal_free(other_path);
    return st;
}

static pal_status open_file(pal_tokenizer *tok, const char *path, pal_error *err) {
    pal_map map;
    pal_status st;
    if ((st = pal_map_open(&map, path, err))) return st;
    const pal_slice bytes = { map.data, map.size };
    const bool gguf = bytes.size >= 4 && memcmp(bytes.data, "GGUF", 4) == 0;
    const bool alone = gguf && !ends_with(path, "tokenizer.gguf"); /* a model in one file, which has it all */
    pal_side_files beside = { 0 };
    size_t i = 0;
    if (!alone && (st = pal_side_files_read(&beside, tok, path, err))) {
        pal_map_close(&map);
        return st;
    }
    while (i < bytes.size &&
           (bytes.data[i] == ' ' || bytes.data[i] == '\n' || bytes.data[i] == '\r' || bytes.data[i] == '\t'))
        i++;
    if (bytes.size == 0) {
        st = pal_fail(err, PAL_E_FORMAT, "%s: the file is empty", path);
    } else if (gguf) {
        st = pal_read_gguf_vocab(tok, path, bytes.data, bytes.size, err);
    } else if (ends_with(path, "merges.txt") || ends_with(path, "vocab.json")) {
        st = open_gpt2(tok, path, bytes, beside.added, err);
        if (!st) pal_find_bos_and_eos(tok, path, beside.config);
    } else if (i < bytes.size && bytes.data[i] == '{') {
        st = pal_read_tokenizer_json(tok, path, bytes.data, bytes.size, beside.added, err);
        if (!st) st = keep_file(tok, 0, "tokenizer.json", bytes, err);
        if (!st) pal_find_bos_and_eos(tok, path, beside.config);
    } else if (bytes.data[0] == 0x0A) { /* the first field of a SentencePiece model is a piece */
        st = pal_read_sentencepiece(tok, path, bytes.data, bytes.size, beside.added, err);
        if (!st) st = keep_file(tok, 0, "tokenizer.model", bytes, err);
        if (!st) st = pal_find_around(tok, path, beside.config, err);
    } else {
        st = pal_fail(err, PAL_E_FORMAT,
                      "%s: neither a tokenizer.json, a SentencePiece model, a GGUF file nor GPT-2's vocabulary", path);
    }
    if (!st && !alone) st = pal_tokenizer_add_ends_near(tok, path, err);
    pal_side_files_free(&beside);
    pal_map_close(&map);
    return st;
}

enum { MAIN_FILES = 4 }; /* one of these is the tokenizer; the others say more about it */
const char *const pal_tokenizer_files[] = { "tokenizer.json",
                                            "tokenizer.model",
                                            "vocab.json",
                                            "tokenizer.gguf",
                                            "merges.txt",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "chat_template.jinja",
                                            "generation_config.json",
                                            NULL };

const char *pal_tokenizer_file_in(const char *directory) {
    for (size_t i = 0; i < MAIN_FILES; i++)
        if (pal_directory_has(directory, pal_tokenizer_files[i])) return pal_tokenizer_files[i];
    return NULL;
}

static pal_status open_directory(pal_tokenizer *tok, const char *path, pal_error *err) {
    char checkpoint[4096], file[4096 + 32];
    const char *name = pal_tokenizer_file_in(path);
    if (!name && pal_directory_has(path, "checkpoints") && !pal_run_newest(path, checkpoint, sizeof checkpoint, NULL)) {
        path = checkpoint; /* of a run directory */
        name = pal_tokenizer_file_in(path);
    }
    if (!name)
        return pal_fail(err, PAL_E_IO,
                        "%s: no tokenizer.json, tokenizer.model, vocab.json or tokenizer.gguf in this directory", path);
    const pal_status st = pal_path(file, sizeof file, err, "%s/%s", path, name);
    return st ? st : open_file(tok, file, err);
}

pal_status pal_tokenizer_open_path(pal_tokenizer **out, const char *path, pal_error *err) {
    pal_tokenizer *tok = NULL;
    struct stat info;
    pal_status st;
    *out = NULL;
    if (stat(path, &info) != 0) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", path, strerror(errno));
    if ((st = tokenizer_new(&tok, err))) return st;
    st = S_ISDIR(info.st_mode) ? open_directory(tok, path, err) : open_file(tok, path, err);
    if (st) {
        pal_tokenizer_close(tok);
        return st;
    }
    tok->fingerprint = fingerprint(tok);
    *out = tok;
    return PAL_OK;
}

pal_status pal_tokenizer_open(pal_tokenizer **out, const char *spec, pal_error *err) {
    pal_bytes json = { 0 };
    pal_status st;
    *out = NULL;
    if (!spec || !*spec) return pal_fail(err, PAL_E_ARGUMENT, "no tokenizer is named");
    if (strcmp(spec, "bytes") == 0) {
        if (!(st = pal_builtin_bytes_json(&json, err)))
            st = pal_tokenizer_from_json(out, "the vocabulary of bytes", &json, err);
        pal_bytes_free(&json);
        return st;
    }
    if (strcmp(spec, "chars") == 0)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "'chars' must first be learned from a text and saved; then name the directory it was saved in");
    return pal_tokenizer_open_path(out, spec, err);
}

static pal_status write_file(const char *directory, const char *name, const void *bytes, size_t size, pal_error *err) {
    const size_t length = strlen(directory) + strlen(name) + 2;
    char *path = pal_alloc(length, 1);
    pal_writer w = { 0 };
    pal_status st;
    if (!path) return pal_fail(err, PAL_E_MEMORY, "out of memory for a path");
    snprintf(path, length, "%s/%s", directory, name);
    if (!(st = pal_writer_open(&w, path, err))) {
        if (size && fwrite(bytes, 1, size, w.stream) != size)
            st = pal_fail(err, PAL_E_IO, "%s: cannot write: %s", path, strerror(errno));
        else st = pal_writer_commit(&w, err);
    }
    pal_writer_drop(&w);
    pal_free(path);
    return st;
}

static json_t *name_or_null(const pal_tokenizer *tok, int64_t id) {
    if (id < 0) return json_null();
    const pal_slice name = pal_tokenizer_name(tok, (uint32_t)id);
    return json_stringn((const char *)name.data, name.size);
}

static bool has_file(const pal_tokenizer *tok, const char *name) {
    for (size_t i = 0; i < PAL_COUNT(tok->files); i++)
        if (tok->files[i].name && strcmp(tok->files[i].name, name) == 0) return true;
    return false;
}

static pal_status write_json(const char *directory, const char *name, json_t *value, pal_error *err) {
    char *text = pal_json_dumps(value, JSON_INDENT(1));
    const pal_status st = text ? write_file(directory, name, text, strlen(text), err)
                               : pal_fail(err, PAL_E_MEMORY, "out of memory for writing %s", name);
    free(text);
    json_decref(value);
    return st;
}

/* One template as a text, several as a list of named ones. */
static json_t *templates_json(const pal_tokenizer *tok) {
    const pal_slice one = pal_tokenizer_chat_template(tok, "default");
    if (tok->template_count == 1 && one.size) return json_stringn((const char *)one.data, one.size);
    json_t *list = json_array();
    for (size_t i = 0; i < tok->template_count; i++) {
        const pal_chat_template *t = &tok->templates[i];
        pal_json_append(list, json_pack("{s:s%, s:s%}", "name", t->name.data, t->name.size, "template", t->text.data,
                                        t->text.size));
    }
    return list;
}

/* What the tokenizer's file does not say: where texts begin and end, and the chat template. */
static pal_status save_config(const pal_tokenizer *tok, const char *directory, pal_error *err) {
    json_t *config = json_pack("{s:s, s:o, s:o, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "bos_token",
                               name_or_null(tok, tok->bos), "eos_token", name_or_null(tok, tok->eos),
                               "clean_up_tokenization_spaces", 0);
    if (tok->template_count) pal_json_set(config, "chat_template", templates_json(tok));
    return write_json(directory, "tokenizer_config.json", config, err);
}

static pal_status save_ends(const pal_tokenizer *tok, const char *directory, pal_error *err) {
    json_t *ids = json_array();
    if (tok->eos >= 0) pal_json_append(ids, json_integer((json_int_t)tok->eos));
    for (size_t i = 0; i < tok->ends.count; i++) pal_json_append(ids, json_integer((json_int_t)tok->ends.data[i]));
    return write_json(directory, "generation_config.json", json_pack("{s:o}", "eos_token_id", ids), err);
}

pal_status pal_tokenizer_save(const pal_tokenizer *tok, const char *directory, pal_error *err) {
    pal_status st = PAL_OK;
    const char *first = tok->files[0].name;
    for (size_t i = 0; i < PAL_COUNT(tok->files) && !st; i++)
        if (tok->files[i].name)
            st = write_file(directory, tok->files[i].name, tok->files[i].bytes.data, tok->files[i].bytes.size, err);
    if (st || !first || strcmp(first, "tokenizer.gguf") == 0) return st;
    if (tok->model == PAL_MODEL_BPE && !has_file(tok, "tokenizer_config.json")) st = save_config(tok, directory, err);
    if (!st && tok->ends.count && !has_file(tok, "generation_config.json")) st = save_ends(tok, directory, err);
    return st;
}
