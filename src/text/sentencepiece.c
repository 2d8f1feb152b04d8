/* SPDX-License-Identifier: MIT */
/* A SentencePiece model file. It is a protocol buffer; this reads the few fields that decide ids and skips the others,
 * with every length checked against what is left. */
#include "base/alloc.h"
#include "text/hf_json.h"

typedef struct {
    const unsigned char *data;
    size_t size, at;
    bool bad;
} wire;

typedef struct {
    uint32_t number;
    int type;       /* 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes */
    uint64_t value; /* of types 0, 1, 5 */
    pal_slice bytes;
} field;

static uint64_t varint(wire *w) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (w->at == w->size) break;
        const unsigned char byte = w->data[w->at++];
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) return value;
    }
    w->bad = true;
    return 0;
}

/* The next field; false at the end or when the buffer is damaged (w->bad). */
static bool next_field(wire *w, field *f) {
    if (w->bad || w->at == w->size) return false;
    const uint64_t key = varint(w);
    *f = (field){ .number = (uint32_t)(key >> 3), .type = (int)(key & 7) };
    const size_t left = w->size - w->at;
    const bool known = f->type <= 2 || f->type == 5; /* groups are not used by this format */
    if (w->bad || key >> 3 == 0 || key >> 3 > UINT32_MAX || !known) {
        w->bad = true;
    } else if (f->type == 0) {
        f->value = varint(w);
    } else if (f->type == 1 || f->type == 5) {
        const size_t bytes = f->type == 1 ? 8 : 4;
        if (left < bytes) w->bad = true;
        for (size_t i = 0; i < bytes && !w->bad; i++) f->value |= (uint64_t)w->data[w->at++] << (8 * i);
    } else {
        const uint64_t bytes = varint(w);
        if (w->bad || bytes > w->size - w->at) {
            w->bad = true;
        } else {
            f->bytes = (pal_slice){ w->data + w->at, (size_t)bytes };
            w->at += (size_t)bytes;
        }
    }
    return !w->bad;
}

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

typedef struct {
    pal_slice *names;
    uint8_t *kinds;
    size_t count, names_capacity, kinds_capacity, scores_capacity;
    uint64_t model;
    bool byte_fallback, suffix;
    pal_slice bos, eos, surface, charsmap, decoding_map;
} model_file;

static bool read_piece(pal_slice bytes, pal_slice *name, float *score, uint64_t *kind) {
    wire w = { bytes.data, bytes.size, 0, false };
    field f;
    *name = (pal_slice){ (const unsigned char *)"", 0 };
    *score = 0;
    *kind = PAL_PIECE_NORMAL;
    while (next_field(&w, &f)) {
        if (f.number == 1 && f.type == 2) *name = f.bytes;
        if (f.number == 3 && f.type == 0) *kind = f.value;
        if (f.number == 2 && f.type == 5) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(score, &bits, sizeof *score);
        }
    }
    return !w.bad;
}

static pal_status add_row(pal_tokenizer *tok, model_file *m, pal_slice piece, float score, uint8_t kind,
                          pal_error *err) {
    pal_status st;
    void *names = m->names, *kinds = m->kinds, *scores = tok->scores;
    st = pal_grow(&names, &m->names_capacity, m->count, m->count + 1, sizeof *m->names, err);
    m->names = names;
    if (!st) st = pal_grow(&kinds, &m->kinds_capacity, m->count, m->count + 1, sizeof *m->kinds, err);
    m->kinds = kinds;
    if (!st) st = pal_grow(&scores, &m->scores_capacity, m->count, m->count + 1, sizeof *tok->scores, err);
    tok->scores = scores;
    if (st) return st;
    m->names[m->count] = piece;
    m->kinds[m->count] = kind;
    tok->scores[m->count++] = score;
    return PAL_OK;
}

static pal_status add_piece(pal_tokenizer *tok, model_file *m, const char *name, pal_slice bytes, pal_error *err) {
    pal_slice piece;
    float score;
    uint64_t kind;
    if (!read_piece(bytes, &piece, &score, &kind))
        return pal_fail(err, PAL_E_FORMAT, "%s: piece %zu is damaged", name, m->count);
    return add_row(tok, m, piece, score, kind > 255 ? 255 : (uint8_t)kind, err);
}

static bool read_trainer(model_file *m, pal_slice bytes) {
    wire w = { bytes.data, bytes.size, 0, false };
    field f;
    while (next_field(&w, &f)) {
        if (f.number == 3 && f.type == 0) m->model = f.value;
        if (f.number == 24 && f.type == 0) m->suffix = f.value != 0;
        if (f.number == 35 && f.type == 0) m->byte_fallback = f.value != 0;
        if (f.number == 44 && f.type == 2) m->surface = f.bytes;
        if (f.number == 46 && f.type == 2) m->bos = f.bytes;
        if (f.number == 47 && f.type == 2) m->eos = f.bytes;
    }
    return !w.bad;
}

static bool read_normalizer(pal_slice bytes, pal_spm_rules *rules, pal_slice *charsmap) {
    wire w = { bytes.data, bytes.size, 0, false };
    field f;
    while (next_field(&w, &f)) {
        if (f.number == 2 && f.type == 2) *charsmap = f.bytes;
        if (f.number == 3 && f.type == 0) rules->dummy_prefix = f.value != 0;
        if (f.number == 4 && f.type == 0) rules->collapse_blanks = f.value != 0;
        if (f.number == 5 && f.type == 0) rules->escape_blanks = f.value != 0;
    }
    return !w.bad;
}

static int64_t control_id(const pal_tokenizer *tok, pal_slice name) {
    const uint32_t id = pal_string_map_find(&tok->by_name, &tok->names, name.data, name.size);
    return id != PAL_NO_ID && (tok->flags[id] & PAL_TOKEN_SPECIAL) ? (int64_t)id : -1;
}

static pal_status read_file(pal_tokenizer *tok, model_file *m, const char *name, const void *bytes, size_t size,
                            pal_error *err) {
    wire w = { bytes, size, 0, false };
    field f;
    pal_status st;
    pal_spm_rules unused = { 0 };
    while (next_field(&w, &f)) {
        if (f.type != 2) continue;
        if (f.number == 1 && (st = add_piece(tok, m, name, f.bytes, err))) return st;
        if (f.number == 2 && !read_trainer(m, f.bytes))
            return pal_fail(err, PAL_E_FORMAT, "%s: the trainer's settings are damaged", name);
        if (f.number == 3 && !read_normalizer(f.bytes, &tok->spm, &m->charsmap))
            return pal_fail(err, PAL_E_FORMAT, "%s: the normaliser is damaged", name);
        if (f.number == 5 && !read_normalizer(f.bytes, &unused, &m->decoding_map))
            return pal_fail(err, PAL_E_FORMAT, "%s: the denormaliser is damaged", name);
    }
    if (w.bad)
        return pal_fail(err, PAL_E_FORMAT, "%s: not a SentencePiece model, or cut short at byte %zu of %zu", name, w.at,
                        size);
    return PAL_OK;
}

/* Tokens that files next to the model add have ids after its pieces, or are pieces. */
static pal_status add_tokens(pal_tokenizer *tok, model_file *m, const char *name, const json_t *added, pal_error *err) {
    const size_t pieces = m->count;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const size_t id = (size_t)json_integer_value(json_object_get(token, "id"));
        const pal_slice text = pal_json_slice(json_object_get(token, "content"));
        if (id < pieces && (m->names[id].size != text.size || memcmp(m->names[id].data, text.data, text.size) != 0))
            return pal_fail(err, PAL_E_FORMAT, "%s: the added token '%s' has id %zu, which is the piece '%s'", name,
                            pal_show(text).text, id, pal_show(m->names[id]).text);
        if (id > pieces + json_array_size(added) + 65536)
            return pal_fail(err, PAL_E_FORMAT, "%s: the added token '%s' has id %zu, the model %zu pieces", name,
                            pal_show(text).text, id, pieces);
        pal_status st = PAL_OK;
        while (m->count <= id && !st) st = add_row(tok, m, (pal_slice){ NULL, 0 }, 0, PAL_PIECE_NONE, err);
        if (st) return st;
        if (id >= pieces) m->names[id] = text;
    }
    return PAL_OK;
}

pal_status pal_read_sentencepiece(pal_tokenizer *tok, const char *name, const void *bytes, size_t size,
                                  const json_t *added, pal_error *err) {
    /* What the format says when a field is not there. */
    model_file m = { .model = MODEL_UNIGRAM,
                     .bos = { (const unsigned char *)"<s>", 3 },
                     .eos = { (const unsigned char *)"</s>", 4 },
                     .surface = { (const unsigned char *)" \xE2\x81\x87 ", 5 } };
    pal_status st;
    tok->spm.dummy_prefix = tok->spm.collapse_blanks = tok->spm.escape_blanks = true;
    if (size == 0) return pal_fail(err, PAL_E_FORMAT, "%s: the file is empty", name);
    if (size > PAL_TOKENIZER_FILE_MAX)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes; a tokenizer of more than %zu is refused", name, size,
                        PAL_TOKENIZER_FILE_MAX);
    if ((st = read_file(tok, &m, name, bytes, size, err))) goto done;
    if (m.model != MODEL_UNIGRAM && m.model != MODEL_BPE) {
        st = pal_fail(err, PAL_E_UNSUPPORTED, "%s: SentencePiece's model kind %llu (word or char) is not supported",
                      name, (unsigned long long)m.model);
        goto done;
    }
    if (m.suffix || m.decoding_map.size) {
        st = pal_fail(err, PAL_E_UNSUPPORTED, "%s: SentencePiece with %s is not supported", name,
                      m.suffix ? "blanks as suffix" : "a denormaliser");
        goto done;
    }
    tok->model = m.model == MODEL_BPE ? PAL_MODEL_SPM_BPE : PAL_MODEL_UNIGRAM;
    tok->kind = m.model == MODEL_BPE ? "SentencePiece BPE" : "SentencePiece unigram";
    tok->byte_fallback = m.byte_fallback;
    tok->strip_blank = tok->spm.dummy_prefix || tok->spm.collapse_blanks;
    tok->spm.prefix_once = m.model == MODEL_BPE;
    if ((st = pal_bytes_append(&tok->spm.charsmap, m.charsmap.data, m.charsmap.size, err))) goto done;
    if ((st = pal_bytes_append(&tok->spm.unk_surface, m.surface.data, m.surface.size, err))) goto done;
    if ((st = add_tokens(tok, &m, name, added, err))) goto done;
    if ((st = pal_vocabulary_set(tok, name, m.names, m.count, err))) goto done;
    if ((st = pal_hf_added(tok, added, err))) goto done;
    /* The file's normaliser works on what is left: transformers finds these tokens as they are spelled. */
    for (size_t i = 0; i < tok->added_count; i++) tok->added[i].normalized = false;
    if ((st = pal_spm_finish(tok, name, m.kinds, err))) goto done;
    tok->bos = control_id(tok, m.bos);
    tok->eos = control_id(tok, m.eos);
    if (tok->bos >= 0) st = pal_ids_append(&tok->prefix, (uint32_t)tok->bos, err);
done:
    pal_free(m.names);
    pal_free(m.kinds);
    return st;
}
