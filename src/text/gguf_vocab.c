/* SPDX-License-Identifier: MIT */
/* The vocabulary inside a GGUF file. Only the metadata is read, and of that only what concerns the tokenizer; every
 * count and length is checked against the bytes that are left, so that no number in a file costs more memory than the
 * file. */
#include "base/alloc.h"
#include "base/context.h"
#include "format/gguf_values.h"
#include "format/json.h"
#include "text/gguf_pre.h"
#include "text/hf_json.h"
#include "text/side_files.h"

typedef struct {
    pal_slice model, pre, architecture, json;
    pal_gguf_value tokens, merges, scores, kinds, charsmap, ends;
    int64_t bos, eos, unk, eot, eom;
    int add_bos, add_eos, add_space, collapse; /* -1: not said */
} metadata;

static void take(metadata *m, pal_slice key, const pal_gguf_value *v) {
    const struct {
        const char *name;
        pal_slice *text;
        pal_gguf_value *list;
        int64_t *id;
        int *flag;
    } wanted[] = {
        { "general.architecture", &m->architecture, NULL, NULL, NULL },
        { "tokenizer.ggml.model", &m->model, NULL, NULL, NULL },
        { "tokenizer.ggml.pre", &m->pre, NULL, NULL, NULL },
        { "tokenizer.huggingface.json", &m->json, NULL, NULL, NULL },
        { "tokenizer.ggml.tokens", NULL, &m->tokens, NULL, NULL },
        { "tokenizer.ggml.merges", NULL, &m->merges, NULL, NULL },
        { "tokenizer.ggml.scores", NULL, &m->scores, NULL, NULL },
        { "tokenizer.ggml.token_type", NULL, &m->kinds, NULL, NULL },
        { "tokenizer.ggml.precompiled_charsmap", NULL, &m->charsmap, NULL, NULL },
        { "tokenizer.ggml.bos_token_id", NULL, NULL, &m->bos, NULL },
        { "tokenizer.ggml.eos_token_id", NULL, NULL, &m->eos, NULL },
        { "tokenizer.ggml.unknown_token_id", NULL, NULL, &m->unk, NULL },
        { "tokenizer.ggml.eot_token_id", NULL, NULL, &m->eot, NULL },
        { "tokenizer.ggml.eom_token_id", NULL, NULL, &m->eom, NULL },
        { "tokenizer.ggml.eos_token_ids", NULL, &m->ends, NULL, NULL },
        { "tokenizer.ggml.add_bos_token", NULL, NULL, NULL, &m->add_bos },
        { "tokenizer.ggml.add_eos_token", NULL, NULL, NULL, &m->add_eos },
        { "tokenizer.ggml.add_space_prefix", NULL, NULL, NULL, &m->add_space },
        { "tokenizer.ggml.remove_extra_whitespaces", NULL, NULL, NULL, &m->collapse },
    };
    for (size_t i = 0; i < PAL_COUNT(wanted); i++) {
        if (!pal_gguf_is(key, wanted[i].name)) continue;
        if (wanted[i].text && v->type == PAL_GGUF_STRING) *wanted[i].text = v->text;
        if (wanted[i].list && v->type == PAL_GGUF_ARRAY) *wanted[i].list = *v;
        if (wanted[i].id &&
            (v->type == PAL_GGUF_U32 || v->type == PAL_GGUF_I32 || v->type == PAL_GGUF_U64 || v->type == PAL_GGUF_I64))
            *wanted[i].id = v->bits < UINT32_MAX ? (int64_t)v->bits : UINT32_MAX; /* no id is that large */
        if (wanted[i].flag && v->type == PAL_GGUF_BOOL) *wanted[i].flag = v->bits != 0;
    }
}

/* tokenizer.chat_template, or tokenizer.chat_template.NAME of several. Templates of files next to it come first. */
static pal_status take_template(pal_tokenizer *tok, pal_slice key, const pal_gguf_value *v, pal_error *err) {
    static const char start[] = "tokenizer.chat_template";
    const size_t size = sizeof start - 1;
    if (v->type != PAL_GGUF_STRING || key.size < size || memcmp(key.data, start, size) != 0) return PAL_OK;
    if (key.size == size)
        return pal_chat_template_set(tok, (pal_slice){ (const unsigned char *)"default", 7 }, v->text, err);
    if (key.data[size] != '.') return PAL_OK;
    return pal_chat_template_set(tok, (pal_slice){ key.data + size + 1, key.size - size - 1 }, v->text, err);
}

/* Walks the key-value pairs, and keeps those that make a file with the vocabulary alone. */
static pal_status read_metadata(pal_tokenizer *tok, metadata *m, const char *name, pal_gguf_reader *r, pal_error *err) {
    pal_status st = PAL_OK;
    uint64_t kept = 0;
    pal_bytes *copy = &tok->files[0].bytes;
    uint64_t tensors, pairs = 0;
    const bool templates = !tok->template_count;
    if ((st = pal_gguf_begin(r, name, &tensors, &pairs, err))) return st;
    if ((st = pal_bytes_append(copy, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, err))) return st;
    for (uint64_t i = 0; i < pairs && !st; i++) {
        const size_t begin = r->at;
        const pal_slice key = pal_gguf_string(r);
        const pal_gguf_value v = pal_gguf_read(r);
        if (r->bad)
            return pal_fail(err, PAL_E_FORMAT, "%s: the metadata is damaged or cut short in entry %llu of %llu", name,
                            (unsigned long long)i, (unsigned long long)pairs);
        take(m, key, &v);
        if (templates && (st = take_template(tok, key, &v, err))) break;
        if (!pal_gguf_is(key, "general.architecture") && !(key.size > 10 && memcmp(key.data, "tokenizer.", 10) == 0))
            continue;
        kept++;
        st = pal_bytes_append(copy, r->data + begin, r->at - begin, err);
    }
    for (int i = 0; i < 8 && !st; i++) copy->data[16 + i] = (unsigned char)(kept >> (8 * i));
    tok->files[0].name = "tokenizer.gguf";
    return st;
}

/* Tokens without the padding at the end that makes up the rows of an embedding: [PADn], marked unused. */
static size_t without_padding(const metadata *m, const pal_gguf_reader *file, const pal_slice *names) {
    size_t count = (size_t)m->tokens.count;
    if (m->kinds.type != PAL_GGUF_ARRAY || m->kinds.count != count ||
        (m->kinds.element != PAL_GGUF_I32 && m->kinds.element != PAL_GGUF_U32))
        return count;
    for (; count > 1 && names[count - 1].size > 4 && memcmp(names[count - 1].data, "[PAD", 4) == 0; count--) {
        pal_gguf_reader r = *file;
        r.at = m->kinds.at + 4 * (count - 1);
        if (pal_gguf_number(&r, 4) != PAL_PIECE_UNUSED) break;
    }
    return count;
}

static pal_status read_tokens(pal_tokenizer *tok, const metadata *m, const char *name, const pal_gguf_reader *file,
                              uint8_t **kinds, pal_error *err) {
    pal_gguf_reader r = *file;
    pal_status st;
    void *block;
    size_t count = (size_t)m->tokens.count;
    if (m->tokens.type != PAL_GGUF_ARRAY || m->tokens.element != PAL_GGUF_STRING)
        return pal_fail(err, PAL_E_FORMAT, "%s: there is no list of tokens in it", name);
    if ((st = pal_alloc_named(&block, count, sizeof(pal_slice), "a vocabulary", err))) return st;
    pal_slice *names = block;
    r.at = m->tokens.at;
    for (size_t i = 0; i < count; i++) names[i] = pal_gguf_string(&r);
    count = without_padding(m, &r, names);
    st = pal_vocabulary_set(tok, name, names, count, err);
    pal_free(names);
    if (st) return st;
    if ((st = pal_alloc_named(&block, count, 1, "kinds of tokens", err))) return st;
    *kinds = block;
    memset(*kinds, PAL_PIECE_NORMAL, count);
    if (m->kinds.type != PAL_GGUF_ARRAY) return PAL_OK;
    if (m->kinds.count != m->tokens.count || (m->kinds.element != PAL_GGUF_I32 && m->kinds.element != PAL_GGUF_U32))
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu tokens, but %llu kinds of tokens of type %llu", name, count,
                        (unsigned long long)m->kinds.count, (unsigned long long)m->kinds.element);
    r.at = m->kinds.at;
    for (size_t i = 0; i < count; i++) {
        const uint64_t kind = pal_gguf_number(&r, 4);
        (*kinds)[i] = kind < 255 ? (uint8_t)kind : 255;
    }
    return PAL_OK;
}

/* The pre-tokenizer that the file names, or that its architecture implies; NULL: a name that is not known. */
static const pal_gguf_pre *rules_of(const metadata *m, pal_slice *named) {
    static const struct {
        const char *architecture, *pre;
    } implied[] = {
        { "gptneox", "mpt" }, { "gpt2", "gpt-2" }, { "mamba", "mpt" }, { "mamba2", "mpt" }, { "mpt", "mpt" }
    };
    *named = m->pre;
    if (m->pre.size == 0 || pal_gguf_is(m->pre, "default"))
        for (size_t i = 0; i < PAL_COUNT(implied); i++)
            if (pal_gguf_is(m->architecture, implied[i].architecture))
                *named = (pal_slice){ (const unsigned char *)implied[i].pre, strlen(implied[i].pre) };
    return pal_gguf_pre_find(*named);
}

static pal_status read_bpe(pal_tokenizer *tok, const metadata *m, const char *name, const pal_gguf_reader *file,
                           const uint8_t *kinds, pal_error *err) {
    pal_gguf_reader r = *file;
    pal_status st;
    void *block;
    pal_slice named;
    const pal_gguf_pre *rules = rules_of(m, &named);
    if (!rules)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: the pre-tokenizer '%s' is not supported here; use the model's tokenizer.json", name,
                        pal_show(named).text);
    tok->model = PAL_MODEL_BPE;
    tok->ignore_merges = rules->whole;
    if (rules->nfc) tok->normal[tok->normal_count++].kind = PAL_NFC;
    tok->kind = "byte-level BPE";
    tok->byte_level = true;
    tok->unk = PAL_NO_ID;
    if ((st = pal_alloc_named(&block, tok->size, sizeof *tok->added, "added tokens", err))) return st;
    tok->added = block;
    for (uint32_t id = 0; id < tok->size; id++) {
        const bool special = kinds[id] == PAL_PIECE_CONTROL, user = kinds[id] == PAL_PIECE_USER;
        if (kinds[id] != PAL_PIECE_UNUSED && !user) tok->flags[id] |= PAL_TOKEN_IN_MODEL;
        if (!special && !user) continue;
        if (pal_strings_at(&tok->names, id).size == 0)
            return pal_fail(err, PAL_E_FORMAT, "%s: the added token %u is empty", name, id);
        tok->flags[id] |= (uint8_t)(PAL_TOKEN_ADDED | (special ? PAL_TOKEN_SPECIAL : 0));
        tok->added[tok->added_count++] =
            (pal_added_token){ .id = id, .special = special, .normalized = user && !rules->raw_added };
    }
    if (m->merges.type != PAL_GGUF_ARRAY || m->merges.element != PAL_GGUF_STRING)
        return pal_fail(err, PAL_E_FORMAT, "%s: there is no list of merges in it", name);
    r.at = m->merges.at;
    for (size_t i = 0; i < m->merges.count; i++) {
        const pal_slice line = pal_gguf_string(&r);
        const unsigned char *blank = line.size ? memchr(line.data + 1, ' ', line.size - 1) : NULL;
        if (!blank)
            return pal_fail(err, PAL_E_FORMAT, "%s: merge %zu is '%s', expected two tokens with a blank between", name,
                            i, pal_show(line).text);
        const size_t left = (size_t)(blank - line.data);
        if ((st = pal_vocabulary_merge(tok, name, (pal_slice){ line.data, left },
                                       (pal_slice){ blank + 1, line.size - left - 1 }, i, err)))
            return st;
    }
    const pal_slice pattern = { (const unsigned char *)rules->pattern, strlen(rules->pattern) };
    if ((st = pal_split_pattern_add(tok, name, pattern, PAL_ISOLATED, false, err))) return st;
    if ((st = pal_vocabulary_finish(tok, name, err))) return st;
    return pal_added_finish(tok, name, err);
}

static pal_status read_spm(pal_tokenizer *tok, const metadata *m, const char *name, const pal_gguf_reader *file,
                           uint8_t *kinds, pal_error *err) {
    pal_gguf_reader r = *file;
    pal_status st;
    void *block;
    const bool unigram = pal_gguf_is(m->model, "t5");
    tok->model = unigram ? PAL_MODEL_UNIGRAM : PAL_MODEL_SPM_BPE;
    tok->kind = unigram ? "SentencePiece unigram" : "SentencePiece BPE";
    tok->spm.dummy_prefix = m->add_space != 0;
    tok->spm.collapse_blanks = m->collapse == 1;
    tok->spm.escape_blanks = true;
    tok->strip_blank = tok->spm.dummy_prefix || tok->spm.collapse_blanks;
    if (m->scores.type != PAL_GGUF_ARRAY || m->scores.element != PAL_GGUF_F32 || m->scores.count != m->tokens.count)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu tokens, but not as many scores", name, tok->size);
    if ((st = pal_alloc_named(&block, tok->size, sizeof *tok->scores, "scores", err))) return st;
    tok->scores = block;
    r.at = m->scores.at;
    for (size_t i = 0; i < tok->size; i++) {
        const uint32_t bits = (uint32_t)pal_gguf_number(&r, 4);
        memcpy(&tok->scores[i], &bits, sizeof bits);
        tok->byte_fallback = tok->byte_fallback || kinds[i] == PAL_PIECE_BYTE;
    }
    /* Some files mark the unknown piece by its id only. */
    bool marked = false;
    for (size_t i = 0; i < tok->size; i++) marked = marked || kinds[i] == PAL_PIECE_UNKNOWN;
    const int64_t unk = m->unk < 0 && !unigram ? 0 : m->unk; /* llama.cpp's default */
    if (!marked && unk >= 0 && (size_t)unk < tok->size) kinds[unk] = PAL_PIECE_UNKNOWN;
    if (m->charsmap.type == PAL_GGUF_ARRAY &&
        (m->charsmap.element == PAL_GGUF_U8 || m->charsmap.element == PAL_GGUF_I8) &&
        (st = pal_bytes_append(&tok->spm.charsmap, r.data + m->charsmap.at, (size_t)m->charsmap.count, err)))
        return st;
    if ((st = pal_bytes_append(&tok->spm.unk_surface, " \xE2\x81\x87 ", 5, err))) return st;
    return pal_spm_finish(tok, name, kinds, err);
}

/* What llama.cpp takes where the file does not say it, by the kind of tokenizer. */
static void set_defaults(const pal_tokenizer *tok, metadata *m) {
    const bool spm = pal_gguf_is(m->model, "llama"), t5 = pal_gguf_is(m->model, "t5");
    const struct {
        int64_t *id;
        int64_t usual;
    } ids[] = { { &m->bos, spm ? 1 : -1 }, { &m->eos, spm ? 2 : t5 ? 1 : -1 } };
    for (size_t i = 0; i < PAL_COUNT(ids); i++)
        if (*ids[i].id < 0 && pal_is_token(tok, ids[i].usual) && (tok->flags[ids[i].usual] & PAL_TOKEN_SPECIAL))
            *ids[i].id = ids[i].usual;
    const pal_gguf_pre *rules = pal_gguf_pre_find(m->pre);
    if (m->add_bos < 0) m->add_bos = spm || (rules && rules->bos);
    if (m->add_eos < 0) m->add_eos = t5;
}

/* More ids that end a text: those that the file names, and control tokens that end a turn by a name llama.cpp knows. */
static pal_status add_ends(pal_tokenizer *tok, const metadata *m, const pal_gguf_reader *file, pal_error *err) {
    static const char *const names[] = { "<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",      "<|end|>",
                                         "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>" };
    const int64_t stated[] = { m->eot, m->eom };
    const bool listed = m->ends.type == PAL_GGUF_ARRAY &&
                        (m->ends.element == PAL_GGUF_U32 || m->ends.element == PAL_GGUF_I32);
    pal_gguf_reader r = *file;
    json_t *ids = json_array();
    for (size_t i = 0; i < PAL_COUNT(stated); i++) pal_json_append(ids, json_integer((json_int_t)stated[i]));
    r.at = m->ends.at;
    for (uint64_t i = 0; listed && i < m->ends.count; i++)
        pal_json_append(ids, json_integer((json_int_t)pal_gguf_number(&r, 4)));
    for (size_t i = 0; i < PAL_COUNT(names); i++) {
        const int64_t id = pal_tokenizer_find(tok, names[i]);
        if (id >= 0 && pal_tokenizer_is_special(tok, (uint32_t)id)) pal_json_append(ids, json_integer((json_int_t)id));
    }
    json_t *config = pal_json_whole(json_pack("{s:o}", "eos_token_id", ids));
    const pal_status st = config ? pal_tokenizer_add_ends(tok, config, err)
                                 : pal_fail(err, PAL_E_MEMORY, "out of memory for ids that end a text");
    json_decref(config);
    return st;
}

pal_status pal_read_gguf_vocab(pal_tokenizer *tok, const char *name, const void *bytes, size_t size, pal_error *err) {
    pal_gguf_reader r = { bytes, size, 0, false };
    metadata m = { .bos = -1,
                   .eos = -1,
                   .unk = -1,
                   .eot = -1,
                   .eom = -1,
                   .add_bos = -1,
                   .add_eos = -1,
                   .add_space = -1,
                   .collapse = -1 };
    uint8_t *kinds = NULL;
    pal_status st;
    if ((st = read_metadata(tok, &m, name, &r, err))) return st;
    r.bad = false;
    if (m.model.size == 0 && m.json.size) {
        pal_bytes_free(&tok->files[0].bytes);
        tok->files[0].name = "tokenizer.json";
        if ((st = pal_bytes_append(&tok->files[0].bytes, m.json.data, m.json.size, err))) return st;
        if ((st = pal_read_tokenizer_json(tok, name, m.json.data, m.json.size, NULL, err))) return st;
        goto ends;
    }
    if (m.model.size == 0) return pal_fail(err, PAL_E_FORMAT, "%s has no tokenizer", name);
    if ((st = read_tokens(tok, &m, name, &r, &kinds, err))) goto done;
    if (pal_gguf_is(m.model, "gpt2")) st = read_bpe(tok, &m, name, &r, kinds, err);
    else if (pal_gguf_is(m.model, "llama") || pal_gguf_is(m.model, "t5")) st = read_spm(tok, &m, name, &r, kinds, err);
    else
        st = pal_fail(err, PAL_E_UNSUPPORTED, "%s: the tokenizer '%s' is not supported; gpt2, llama and t5 are", name,
                      pal_show(m.model).text);
    if (st) goto done;
ends:
    if (m.model.size) set_defaults(tok, &m);
    const int64_t ends[] = { m.bos, m.eos };
    for (size_t i = 0; i < PAL_COUNT(ends); i++)
        if (ends[i] >= 0 && !pal_is_token(tok, ends[i])) {
            st = pal_fail(err, PAL_E_FORMAT, "%s: %s is id %lld, which no token has; there are %zu ids", name,
                          i ? "EOS" : "BOS", (long long)ends[i], tok->size);
            goto done;
        }
    tok->bos = m.bos;
    tok->eos = m.eos;
    if ((st = add_ends(tok, &m, &r, err))) goto done;
    if (m.bos >= 0 && m.add_bos == 1) st = pal_ids_append(&tok->prefix, (uint32_t)m.bos, err);
    if (m.eos >= 0 && m.add_eos == 1 && !st) st = pal_ids_append(&tok->suffix, (uint32_t)m.eos, err);
done:
    pal_free(kinds);
    return st;
}
