/* SPDX-License-Identifier: MIT */
#include "data/shards.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/size.h"
#include "data/shards_inside.h"
#include "data/text.h"
#include "format/json.h"
#include "format/model_dir.h"

/* Tokens are hashed in blocks of fixed size, so that a writer need not hold them. */
static uint64_t hash_tokens(const unsigned char *data, size_t bytes) {
    uint64_t hash = 0;
    for (size_t at = 0; at < bytes; at += HASH_BLOCK)
        hash = pal_hash(hash, data + at, bytes - at < HASH_BLOCK ? bytes - at : HASH_BLOCK);
    return hash;
}

/* Reading */

typedef struct {
    pal_map map;
    const unsigned char *tokens, *table;
    uint64_t documents, count; /* count: tokens */
    uint64_t first;            /* number of its first document in the set */
    uint64_t checksum;
    size_t entry;   /* bytes of a document in the table */
    bool continues; /* its first document continues from the previous shard */
} shard;

struct pal_shards {
    pal_shards_info info;
    char *path;
    int width;
    shard *list;
    /* Where validation begins: documents before this one are for training alone, this one from token `cut` on is not.
     */
    uint64_t valid_document, valid_cut;
};

bool pal_document_copy(const pal_document *d, uint64_t first, size_t count, uint32_t vocabulary, int32_t *ids) {
    bool good = true;
    if (d->width == 2) {
        const unsigned char *from = d->data + 2 * first;
        for (size_t i = 0; i < count; i++) {
            uint16_t id;
            memcpy(&id, from + 2 * i, 2);
            good &= id < vocabulary;
            ids[i] = id;
        }
        return good;
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t id = pal_document_token(d, first + i);
        good &= id < vocabulary;
        ids[i] = (int32_t)id;
    }
    return good;
}

/* Header, table and size of one mapped file. */
static pal_status check_shard(shard *s, const char *path, const pal_shards *set, uint64_t number, pal_error *err) {
    const unsigned char *p = s->map.data;
    const size_t size = s->map.size;
    if (size < HEADER)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, a shard's header alone has %d", path, size, HEADER);
    if (memcmp(p, SHARD_MAGIC, 8) != 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: does not begin with %s: not a shard of tokens", path, SHARD_MAGIC);
    const uint32_t version = get32(p + AT_VERSION);
    if (version != VERSION && version != PAIRS_VERSION)
        return pal_fail(err, PAL_E_FORMAT, "%s: version %" PRIu32 " of shards, expected %d or %d", path, version,
                        VERSION, PAIRS_VERSION);
    s->entry = version == PAIRS_VERSION ? PAIRS_ENTRY : ENTRY;
    if (number && s->entry != set->list[0].entry)
        return pal_fail(err, PAL_E_FORMAT, "%s: version %" PRIu32 " of shards, unlike those before it", path, version);
    if (get64(p + AT_SUM) != pal_hash(0, p, AT_SUM))
        return pal_fail(err, PAL_E_FORMAT, "%s: the header does not match its checksum", path);
    const uint64_t width = get32(p + AT_WIDTH), vocabulary = get64(p + AT_VOCABULARY),
                   tokenizer = get64(p + AT_TOKENIZER);
    s->documents = get64(p + AT_DOCUMENTS);
    s->count = get64(p + AT_TOKENS);
    s->checksum = get64(p + AT_SUM);
    if (tokenizer != set->info.tokenizer || vocabulary != set->info.vocabulary)
        return pal_fail(err, PAL_E_FORMAT,
                        "%s: made with tokenizer %016" PRIx64 " of %" PRIu64 " ids, the set with %016" PRIx64
                        " of %" PRIu32,
                        path, tokenizer, vocabulary, set->info.tokenizer, set->info.vocabulary);
    if ((int)width != set->width)
        return pal_fail(err, PAL_E_FORMAT, "%s: tokens of %" PRIu64 " bytes, expected %d", path, width, set->width);
    if (get64(p + AT_NUMBER) != number)
        return pal_fail(err, PAL_E_FORMAT, "%s: this is shard %" PRIu64 ", expected %" PRIu64, path,
                        get64(p + AT_NUMBER), number);
    const size_t tokens = pal_size_pad(pal_size_mul(s->count, (size_t)width), 8),
                 table = pal_size_mul(s->documents, s->entry),
                 expected = pal_size_add(HEADER, pal_size_add(tokens, table));
    if (s->documents < 1 || s->count < s->documents || tokens > size - HEADER || table > size - HEADER)
        return pal_fail(err, PAL_E_FORMAT, "%s: %" PRIu64 " tokens in %" PRIu64 " documents do not fit %zu bytes", path,
                        s->count, s->documents, size);
    if (get64(p + AT_CONTINUES) > (number > 0))
        return pal_fail(err, PAL_E_FORMAT, "%s: the flag of a continued document is %" PRIu64 ", expected 0%s", path,
                        get64(p + AT_CONTINUES), number ? " or 1" : "");
    s->continues = get64(p + AT_CONTINUES) != 0;
    if (size != expected)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected %zu: the file was cut short or added to", path,
                        size, expected);
    s->tokens = p + HEADER;
    s->table = s->tokens + tokens;
    if (get64(p + AT_TABLE_SUM) != pal_hash(0, s->table, table))
        return pal_fail(err, PAL_E_FORMAT, "%s: the table of documents does not match its checksum", path);
    uint64_t before = 0;
    for (uint64_t d = 0; d < s->documents; d++) {
        const unsigned char *entry = s->table + d * s->entry;
        const uint64_t end = get64(entry);
        if (end <= before || end > s->count)
            return pal_fail(err, PAL_E_FORMAT,
                            "%s: document %" PRIu64 " ends at token %" PRIu64 ", expected %" PRIu64 " to %" PRIu64,
                            path, d, end, before + 1, s->count);
        if (s->entry == PAIRS_ENTRY && get64(entry + 24) > end - before)
            return pal_fail(err, PAL_E_FORMAT,
                            "%s: the response of document %" PRIu64 " begins at token %" PRIu64 " of %" PRIu64, path, d,
                            get64(entry + 24), end - before);
        before = end;
    }
    if (before != s->count)
        return pal_fail(err, PAL_E_FORMAT, "%s: the last document ends at token %" PRIu64 ", expected %" PRIu64, path,
                        before, s->count);
    return PAL_OK;
}

static pal_status read_hex(const json_t *o, const char *key, const char *path, uint64_t *out, pal_error *err) {
    const char *text = json_string_value(json_object_get(o, key));
    char *end = NULL;
    if (text && strlen(text) == 16) *out = strtoull(text, &end, 16);
    if (!end || *end) return pal_fail(err, PAL_E_FORMAT, "%s: '%s' must be 16 hexadecimal digits", path, key);
    return PAL_OK;
}

static pal_status read_count(const json_t *o, const char *key, const char *path, uint64_t most, uint64_t *out,
                             pal_error *err) {
    const json_t *value = json_object_get(o, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > most)
        return pal_fail(err, PAL_E_FORMAT, "%s: '%s' must be a number from 0 to %" PRIu64, path, key, most);
    *out = (uint64_t)json_integer_value(value);
    return PAL_OK;
}

/* Opens shard `number` and checks it against its entry in shards.json. */
static pal_status open_shard(pal_shards *s, const json_t *entry, uint64_t number, const char *index, pal_error *err) {
    char path[4096], name[32];
    uint64_t documents = 0, tokens = 0, checksum = 0;
    pal_status st;
    shard *one = &s->list[number];
    snprintf(name, sizeof name, "%05" PRIu64 ".shard", number);
    if ((st = read_count(entry, "documents", index, INT64_MAX, &documents, err)) ||
        (st = read_count(entry, "tokens", index, INT64_MAX, &tokens, err)) ||
        (st = read_hex(entry, "checksum", index, &checksum, err)))
        return st;
    if ((st = path_of(path, s->path, name, err)) || (st = pal_map_open(&one->map, path, err))) return st;
    if ((st = check_shard(one, path, s, number, err))) return st;
    if (one->documents != documents || one->count != tokens || one->checksum != checksum)
        return pal_fail(err, PAL_E_FORMAT,
                        "%s: not the shard that %s lists: %" PRIu64 " documents, %" PRIu64
                        " tokens, checksum %016" PRIx64 ", expected %" PRIu64 ", %" PRIu64 ", %016" PRIx64,
                        path, index, one->documents, one->count, one->checksum, documents, tokens, checksum);
    one->first = number ? s->list[number - 1].first + s->list[number - 1].documents : 0;
    return PAL_OK;
}

static const shard *shard_of(const pal_shards *s, uint64_t document) {
    size_t low = 0, high = s->info.shards; /* the shard is in low .. high-1 */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (s->list[middle].first <= document) low = middle;
        else high = middle;
    }
    return &s->list[low];
}

/* The whole document `index` of the set. */
static pal_document whole(const pal_shards *s, uint64_t index) {
    const shard *one = shard_of(s, index);
    const uint64_t d = index - one->first;
    const unsigned char *entry = one->table + d * one->entry;
    const uint64_t begin = d ? get64(entry - one->entry) : 0;
    return (pal_document){ .data = one->tokens + begin * (uint64_t)s->width,
                           .width = s->width,
                           .tokens = get64(entry) - begin,
                           .bytes = get64(entry + 8),
                           .words = get64(entry + 16),
                           .response = one->entry == PAIRS_ENTRY ? get64(entry + 24) : 0,
                           .continues = d == 0 && one->continues };
}

/* Tokens of all documents before `index`. */
static uint64_t tokens_before(const pal_shards *s, uint64_t index) {
    const shard *one = shard_of(s, index);
    const uint64_t d = index - one->first;
    uint64_t tokens = d ? get64(one->table + (d - 1) * one->entry) : 0;
    for (const shard *earlier = s->list; earlier < one; earlier++) tokens += earlier->count;
    return tokens;
}

pal_document pal_shards_document(const pal_shards *s, pal_subset subset, uint64_t index) {
    const uint64_t first = subset == PAL_SUBSET_VALID ? s->valid_document : 0;
    pal_document d = whole(s, first + index);
    if (subset == PAL_SUBSET_TRAIN && index == s->valid_document && s->valid_cut) d.tokens = s->valid_cut;
    if (subset == PAL_SUBSET_VALID && index == 0 && s->valid_cut) {
        d.data += s->valid_cut * (uint64_t)s->width;
        d.tokens -= s->valid_cut;
        d.response = d.response > s->valid_cut ? d.response - s->valid_cut : 0;
    }
    if (d.response > d.tokens) d.response = d.tokens;
    if (index == 0) d.continues = false; /* what comes before does not belong to this */
    if (s->valid_cut && subset != PAL_SUBSET_ALL &&
        first + index == s->valid_document) { /* what the subset's other documents leave of its sums */
        d.bytes = s->info.subset[subset].bytes, d.words = s->info.subset[subset].words;
        for (uint64_t i = 0; i < s->info.subset[subset].documents; i++) {
            if (i == index) continue;
            const pal_document other = whole(s, first + i);
            d.bytes -= other.bytes, d.words -= other.words;
        }
    }
    return d;
}

static pal_status read_parts(pal_shards *s, const json_t *root, const char *path, pal_error *err) {
    pal_shards_info *info = &s->info;
    const shard *last = &s->list[info->shards - 1];
    const json_t *valid = json_object_get(root, "valid");
    const uint64_t all = last->first + last->documents;
    uint64_t tokens = 0;
    pal_status st;
    info->subset[PAL_SUBSET_ALL].documents = all;
    for (size_t i = 0; i < info->shards; i++) info->subset[PAL_SUBSET_ALL].tokens += s->list[i].count;
    if ((st = read_count(root, "bytes", path, INT64_MAX, &info->subset[PAL_SUBSET_ALL].bytes, err)) ||
        (st = read_count(root, "words", path, INT64_MAX, &info->subset[PAL_SUBSET_ALL].words, err)))
        return st;
    s->valid_document = all;
    info->subset[PAL_SUBSET_TRAIN] = info->subset[PAL_SUBSET_ALL];
    if (!valid || json_is_null(valid)) return PAL_OK;
    if ((st = read_count(valid, "document", path, all - 1, &s->valid_document, err)) ||
        (st = read_count(valid, "token", path, INT64_MAX, &s->valid_cut, err)) ||
        (st = read_count(valid, "tokens", path, info->subset[PAL_SUBSET_ALL].tokens, &tokens, err)) ||
        (st = read_count(valid, "bytes", path, info->subset[PAL_SUBSET_ALL].bytes,
                         &info->subset[PAL_SUBSET_VALID].bytes, err)) ||
        (st = read_count(valid, "words", path, INT64_MAX, &info->subset[PAL_SUBSET_VALID].words, err)))
        return st;
    const uint64_t whole_tokens = whole(s, s->valid_document).tokens;
    if (s->valid_cut >= whole_tokens)
        return pal_fail(err, PAL_E_FORMAT, "%s: validation begins at token %" PRIu64 " of a document of %" PRIu64, path,
                        s->valid_cut, whole_tokens);
    const uint64_t behind = info->subset[PAL_SUBSET_ALL].tokens - tokens_before(s, s->valid_document) - s->valid_cut;
    if (tokens != behind)
        return pal_fail(err, PAL_E_FORMAT, "%s: %" PRIu64 " tokens of validation, its documents have %" PRIu64, path,
                        tokens, behind);
    info->subset[PAL_SUBSET_VALID].documents = all - s->valid_document;
    info->subset[PAL_SUBSET_VALID].tokens = tokens;
    info->subset[PAL_SUBSET_TRAIN].documents = s->valid_document + (s->valid_cut > 0);
    info->subset[PAL_SUBSET_TRAIN].tokens -= tokens;
    info->subset[PAL_SUBSET_TRAIN].bytes -= info->subset[PAL_SUBSET_VALID].bytes;
    const uint64_t words = info->subset[PAL_SUBSET_VALID].words;
    info->subset[PAL_SUBSET_TRAIN].words -= words < info->subset[PAL_SUBSET_TRAIN].words
                                                ? words
                                                : info->subset[PAL_SUBSET_TRAIN].words;
    return PAL_OK;
}

static pal_status open_set(pal_shards *s, const json_t *root, const char *path, pal_error *err) {
    uint64_t version = 0, vocabulary = 0;
    pal_status st;
    if (!json_is_object(root)) return pal_fail(err, PAL_E_FORMAT, "%s: expected a JSON object", path);
    if ((st = read_count(root, "version", path, INT64_MAX, &version, err))) return st;
    if (version != VERSION)
        return pal_fail(err, PAL_E_FORMAT, "%s: version %" PRIu64 " of shards, expected %d", path, version, VERSION);
    if ((st = read_hex(root, "tokenizer", path, &s->info.tokenizer, err)) ||
        (st = read_count(root, "vocabulary", path, INT32_MAX, &vocabulary, err)))
        return st;
    s->info.vocabulary = (uint32_t)vocabulary;
    s->width = width_of(s->info.vocabulary);
    const json_t *eos = json_object_get(root, "eos"), *list = json_object_get(root, "shards");
    s->info.eos = -1;
    if (json_is_integer(eos)) {
        s->info.eos = json_integer_value(eos);
        if (s->info.eos < 0 || s->info.eos >= (int64_t)vocabulary)
            return pal_fail(err, PAL_E_FORMAT, "%s: 'eos' is %" PRId64 ", expected an id below %" PRIu64, path,
                            s->info.eos, vocabulary);
    }
    const size_t count = json_array_size(list);
    if (count < 1 || count > MOST_SHARDS)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu shards, expected 1 to %d", path, count, MOST_SHARDS);
    if ((st = pal_alloc_named((void **)&s->list, count, sizeof *s->list, "a list of shards", err))) return st;
    for (size_t i = 0; i < count; i++) {
        s->info.shards = i + 1; /* for closing */
        if ((st = open_shard(s, json_array_get(list, i), i, path, err))) return st;
        s->info.fingerprint = pal_hash(s->info.fingerprint, &s->list[i].checksum, 8);
    }
    s->info.pairs = s->list[0].entry == PAIRS_ENTRY;
    if ((st = read_parts(s, root, path, err))) return st;
    const uint64_t cut[2] = { s->valid_document, s->valid_cut };
    s->info.fingerprint = pal_hash(s->info.fingerprint, cut, sizeof cut);
    return PAL_OK;
}

bool pal_shards_exist(const char *directory) { return pal_directory_has(directory, "shards.json"); }

pal_status pal_shards_open(pal_shards **out, const char *directory, pal_error *err) {
    char path[4096];
    pal_shards *s = NULL;
    json_t *root = NULL;
    pal_status st;
    *out = NULL;
    if ((st = path_of(path, directory, "shards.json", err))) return st;
    if (!pal_shards_exist(directory))
        return pal_fail(err, PAL_E_IO, "%s: no shards.json in it: not a finished directory of shards", directory);
    if ((st = pal_json_read(&root, path, err))) return st;
    if (!(st = pal_alloc_named((void **)&s, 1, sizeof *s, "a set of shards", err))) {
        if (!(s->path = pal_strdup(directory))) st = pal_fail(err, PAL_E_MEMORY, "out of memory for a path");
        else st = open_set(s, root, path, err);
        s->info.path = s->path;
    }
    json_decref(root);
    if (st) {
        pal_shards_close(s);
        return st;
    }
    *out = s;
    return PAL_OK;
}

void pal_shards_close(pal_shards *s) {
    if (!s) return;
    for (size_t i = 0; s->list && i < s->info.shards; i++) pal_map_close(&s->list[i].map);
    pal_free(s->list);
    pal_free(s->path);
    pal_free(s);
}

const pal_shards_info *pal_shards_info_of(const pal_shards *s) { return &s->info; }

pal_status pal_shards_verify(const pal_shards *s, pal_error *err) {
    for (size_t i = 0; i < s->info.shards; i++) {
        const shard *one = &s->list[i];
        const size_t bytes = (size_t)one->count * (size_t)s->width;
        if (hash_tokens(one->tokens, bytes) != get64(one->map.data + AT_TOKEN_SUM))
            return pal_fail(err, PAL_E_FORMAT, "%s/%05zu.shard: the tokens do not match their checksum", s->path, i);
        for (size_t at = bytes; at % 8; at++)
            if (one->tokens[at])
                return pal_fail(err, PAL_E_FORMAT, "%s/%05zu.shard: the tokens are not followed by zeroes", s->path, i);
        const pal_document all = { .data = one->tokens, .width = s->width, .tokens = one->count };
        for (uint64_t t = 0; t < one->count; t++)
            if (pal_document_token(&all, t) >= s->info.vocabulary)
                return pal_fail(err, PAL_E_FORMAT,
                                "%s/%05zu.shard: token %" PRIu64 " is id %" PRIu32 ", the vocabulary has %" PRIu32,
                                s->path, i, t, pal_document_token(&all, t), s->info.vocabulary);
    }
    return PAL_OK;
}

/* Finishing */

typedef struct {
    uint64_t document, token;      /* where validation begins */
    uint64_t tokens, bytes, words; /* what it holds */
} valid_place;

/* The text that token i of the only document's piece p stands for; none for the token that ends the document. */
static pal_slice text_of(const pal_shards *s, const pal_shards_summary *m, uint64_t p, const pal_document *d,
                         uint64_t i) {
    if (m->eos >= 0 && i + 1 == d->tokens && p + 1 == s->info.subset[PAL_SUBSET_ALL].documents) return (pal_slice){ 0 };
    return pal_tokenizer_text(m->tokenizer, pal_document_token(d, i));
}

static uint64_t text_bytes(const pal_shards *s, const pal_shards_summary *m, uint64_t p) {
    const pal_document d = whole(s, p);
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < d.tokens; i++) bytes += text_of(s, m, p, &d, i).size;
    return bytes;
}

/* Where the last fraction of a set's only text begins, which may lie in several shards. A normaliser or bytes that are
 * not UTF-8 make the text of the tokens another than the original, so the fraction is of the former; and two tokens
 * must be left, or there is nothing to predict. */
static bool cut_text(const pal_shards *s, const pal_shards_summary *m, valid_place *v) {
    const uint64_t pieces = s->info.subset[PAL_SUBSET_ALL].documents;
    uint64_t all = 0, p = 0;
    for (uint64_t i = 0; i < pieces; i++) all += text_bytes(s, m, i);
    uint64_t before = (uint64_t)((double)all * (1 - m->valid) + 1e-6), piece;
    for (; (piece = text_bytes(s, m, p)) <= before && p + 1 < pieces; p++) before -= piece;
    const pal_document d = whole(s, p);
    uint64_t seen = 0, token = 0,
             words = p + 1 == pieces; /* words are runs of white space + 1, which the last piece counts */
    bool blank = false;
    while (token < d.tokens && seen < before) seen += text_of(s, m, p, &d, token++).size;
    for (uint64_t i = token; i < d.tokens; i++) words += pal_text_blanks(text_of(s, m, p, &d, i), &blank);
    const double share = piece ? (double)(piece - seen) / (double)piece : 0;
    *v = (valid_place){
        .document = p, .token = token, .tokens = d.tokens - token, .words = words < d.words ? words : d.words
    };
    v->bytes = piece == d.bytes ? piece - seen : (uint64_t)((double)d.bytes * share + 0.5);
    for (uint64_t i = p + 1; i < pieces; i++) {
        const pal_document later = whole(s, i);
        v->tokens += later.tokens, v->bytes += later.bytes, v->words += later.words;
    }
    return (p || token) && token < d.tokens && v->tokens >= (m->eos >= 0 ? 3 : 2);
}

/* Where the last fraction begins: its last documents, or the end of the only one. */
static bool find_valid(const pal_shards *s, const pal_shards_summary *m, valid_place *v) {
    const uint64_t pieces = s->info.subset[PAL_SUBSET_ALL].documents;
    uint64_t documents = pieces;
    for (size_t i = 0; i < s->info.shards; i++) documents -= s->list[i].continues;
    if (documents == 1) return cut_text(s, m, v);
    uint64_t wanted = (uint64_t)((double)documents * m->valid + 0.5);
    wanted = wanted < 1 ? 1 : wanted > documents - 1 ? documents - 1 : wanted;
    for (v->document = pieces; wanted > 0;) {
        const pal_document d = whole(s, --v->document);
        v->tokens += d.tokens, v->bytes += d.bytes, v->words += d.words;
        const shard *one = shard_of(s, v->document);
        wanted -= !(one->continues && one->first == v->document);
    }
    return true;
}

pal_status pal_shards_finish(const char *directory, const pal_shards_summary *m, pal_error *err) {
    char path[4096], hex[17];
    const uint64_t fingerprint = pal_tokenizer_fingerprint(m->tokenizer);
    const uint32_t vocabulary = (uint32_t)pal_tokenizer_size(m->tokenizer);
    pal_shards s = { .path = (char *)directory, .width = width_of(vocabulary) };
    uint64_t tokens = 0, bytes = 0, words = 0;
    valid_place v = { 0 };
    pal_status st;
    if ((st = path_of(path, directory, "shards.json", err))) return st;
    s.info.tokenizer = fingerprint;
    s.info.vocabulary = vocabulary;
    json_t *list = json_array(), *valid = json_null();
    if ((st = pal_alloc_named((void **)&s.list, m->count, sizeof *s.list, "a list of shards", err))) goto done;
    for (size_t i = 0; i < m->count; i++) {
        snprintf(hex, sizeof hex, "%016" PRIx64, m->shards[i].checksum);
        if (!pal_json_append(list, json_pack("{s:I, s:I, s:s}", "documents", (json_int_t)m->shards[i].documents,
                                             "tokens", (json_int_t)m->shards[i].tokens, "checksum", hex))) {
            st = pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", path);
            goto done;
        }
        tokens += m->shards[i].tokens, bytes += m->shards[i].bytes, words += m->shards[i].words;
        s.info.shards = i + 1;
        if ((st = open_shard(&s, json_array_get(list, i), i, path, err))) goto done;
        s.info.subset[PAL_SUBSET_ALL].documents += m->shards[i].documents;
    }
    if (m->valid > 0 && !find_valid(&s, m, &v)) {
        st = pal_fail(err, PAL_E_ARGUMENT,
                      "%s: %" PRIu64 " tokens are too few to hold a fraction of %.9g back for validation", directory,
                      tokens, m->valid);
        goto done;
    }
    if (m->valid > 0)
        valid = json_pack("{s:f, s:I, s:I, s:I, s:I, s:I}", "fraction", m->valid, "document", (json_int_t)v.document,
                          "token", (json_int_t)v.token, "tokens", (json_int_t)v.tokens, "bytes", (json_int_t)v.bytes,
                          "words", (json_int_t)v.words);
    snprintf(hex, sizeof hex, "%016" PRIx64, fingerprint);
    json_t *root = json_pack("{s:i, s:s, s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:O}", "version", VERSION, "tokenizer",
                             hex, "kind", pal_tokenizer_kind(m->tokenizer), "vocabulary", (json_int_t)vocabulary, "eos",
                             m->eos < 0 ? json_null() : json_integer(m->eos), "documents",
                             (json_int_t)s.info.subset[PAL_SUBSET_ALL].documents, "tokens", (json_int_t)tokens, "bytes",
                             (json_int_t)bytes, "words", (json_int_t)words, "valid", valid, "shards", list);
    valid = NULL; /* the object's */
    st = root ? pal_json_write(path, root, err) : pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", path);
    json_decref(root);
done:
    json_decref(valid);
    json_decref(list);
    for (size_t i = 0; s.list && i < s.info.shards; i++) pal_map_close(&s.list[i].map);
    pal_free(s.list);
    return st;
}
