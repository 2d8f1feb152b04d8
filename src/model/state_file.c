/* SPDX-License-Identifier: MIT */
/* Files of states. The numbers of a file are those of fixed size, then of each layer that attends the keys and values
 * of the tokens that exist, strip after strip: how they lie in pages does not show. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/size.h"
#include "model/state.h"

/* Version 2 is written of models that do not attend, 3 of those that keep keys and values as F32, 4 in other types. */
enum { FIXED_VERSION = 2, F32_VERSION = 3, FILE_VERSION = 4, MAX_MORE = 64 << 20 };
/* Tokens that a sequence of a model without attention may count: as many again can follow without an overflow. */
static const int64_t MAX_POSITION = INT64_MAX / 2;
static const char magic[8] = { 'P', 'A', 'L', 'S', 'T', 'A', 'T', 'E' };

/* All fields are little-endian, as every machine this runs on is. Of caches versions 3 and 4 have the tokens that
 * exist, where 1 and 2 have the whole context. */
typedef struct {
    char magic[8];
    uint32_t version, pending; /* pending: id + 1; 0: none */
    uint64_t fingerprint;
    int64_t position, context;
    uint64_t floats, checksum; /* floats: units of four bytes */
    uint64_t more; /* bytes after the floats; version 1 has neither this field nor such bytes */
    uint64_t type; /* of keys and values, as GGUF numbers them; from version 4 on */
} state_header;
static const size_t header_bytes_1 = offsetof(state_header, more), header_bytes_2 = offsetof(state_header, type);

static size_t header_bytes(uint32_t version) {
    return version == 1 ? header_bytes_1 : version < FILE_VERSION ? header_bytes_2 : sizeof(state_header);
}

static size_t cache_bytes(const pal_pages *pages, int64_t tokens) {
    size_t bytes = 0;
    for (int i = 0; pages && i < pages->layers; i++) bytes += pages->of[i].strips * (size_t)tokens * pages->of[i].row;
    return bytes;
}

size_t pal_state_used_floats(const pal_model *m, int64_t position) {
    return pal_state_bytes(m, 0) / sizeof(float) + (cache_bytes(m->pages, position) + 3) / 4;
}

/* Floats of versions 1 and 2, whose caches have room for the whole context, each in whole lines. */
static size_t whole_floats(const pal_state *s) {
    const pal_pages *pages = s->model->pages;
    size_t floats = s->fixed;
    for (int i = 0; pages && i < pages->layers; i++)
        floats += (pages->of[i].strips * (size_t)s->context * pages->of[i].width + 15) / 16 * 16;
    return floats;
}

/* Rows 0 .. position - 1 of a strip to or from one block of rows. */
static void copy_strip(const pal_state *s, const pal_cache *k, size_t strip, unsigned char *block, bool out) {
    for (int64_t t = 0; t < s->position; t += PAL_PAGE_TOKENS) {
        const int64_t rows = s->position - t < PAL_PAGE_TOKENS ? s->position - t : PAL_PAGE_TOKENS;
        unsigned char *paged = pal_page_row(s->pages[t / PAL_PAGE_TOKENS], k, strip, t);
        unsigned char *packed = block + (size_t)t * k->row;
        memcpy(out ? packed : paged, out ? paged : packed, (size_t)rows * k->row);
    }
}

static void pack(const pal_state *s, float *to) {
    const pal_pages *pages = s->model->pages;
    unsigned char *at = (unsigned char *)(to + s->fixed);
    memcpy(to, s->data, s->fixed * sizeof *to);
    for (int i = 0; i < pages->layers; i++)
        for (size_t strip = 0; strip < pages->of[i].strips; strip++, at += (size_t)s->position * pages->of[i].row)
            copy_strip(s, &pages->of[i], strip, at, true);
}

/* `apart`: tokens from strip to strip. There are pages for all tokens. */
static void unpack(pal_state *s, const float *from, int64_t apart, bool lines) {
    const pal_pages *pages = s->model->pages;
    unsigned char *at = (unsigned char *)(uintptr_t)(from + s->fixed);
    memcpy(s->data, from, s->fixed * sizeof *from);
    for (int i = 0; pages && i < pages->layers; i++) {
        const pal_cache *k = &pages->of[i];
        for (size_t strip = 0; strip < k->strips; strip++)
            copy_strip(s, k, strip, at + strip * (size_t)apart * k->row, false);
        const size_t bytes = k->strips * (size_t)apart * k->row;
        at += lines ? (bytes + 63) / 64 * 64 : bytes;
    }
}

/* Of everything but the magic, the version and the checksum itself. */
static uint64_t checksum_of(const state_header *h, const float *data, const void *more) {
    const uint64_t seed = (uint64_t)h->position ^ (uint64_t)h->pending << 32 ^ h->type << 56;
    const uint64_t numbers = pal_hash_floats(seed, data, h->floats);
    return h->more ? pal_hash(numbers ^ h->more, more, h->more) : numbers;
}

static pal_status write_file(const state_header *header, const float *data, const void *more, const char *path,
                             pal_error *err) {
    pal_writer w;
    const pal_status st = pal_writer_open(&w, path, err);
    if (st) return st;
    if (fwrite(header, header_bytes(header->version), 1, w.stream) != 1 ||
        fwrite(data, sizeof *data, header->floats, w.stream) != header->floats ||
        (header->more && fwrite(more, 1, header->more, w.stream) != header->more)) {
        const int why = errno;
        pal_writer_drop(&w);
        return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", path, strerror(why));
    }
    return pal_writer_commit(&w, err);
}

pal_status pal_state_save_with(const pal_state *s, const void *more, size_t size, const char *path, pal_error *err) {
    if (s->device) {
        pal_state *host;
        pal_status st = pal_state_bring(s, &host, err);
        if (st) return st;
        st = pal_state_save_with(host, more, size, path, err);
        pal_state_free(host);
        return st;
    }
    const pal_pages *pages = s->model->pages;
    const bool f32 = !pages || pages->type == PAL_F32;
    state_header header = { .version = !pages ? FIXED_VERSION : f32 ? F32_VERSION : FILE_VERSION,
                            .type = f32 ? 0 : pal_block_format_of(pages->type)->ggml,
                            .fingerprint = pal_model_fingerprint(s->model),
                            .position = s->position,
                            .pending = (uint32_t)(s->pending + 1),
                            .context = s->context,
                            .floats = pal_state_used_floats(s->model, s->position),
                            .more = size };
    void *packed = NULL;
    if (pages) {
        const pal_status st = pal_alloc_named(&packed, header.floats, sizeof(float), "a state's file", err);
        if (st) return st;
        pack(s, packed);
    }
    const float *data = pages ? packed : s->data;
    memcpy(header.magic, magic, sizeof magic);
    header.checksum = checksum_of(&header, data, more);
    const pal_status st = write_file(&header, data, more, path, err);
    pal_free(packed);
    return st;
}

pal_status pal_state_save(const pal_state *s, const char *path, pal_error *err) {
    return pal_state_save_with(s, NULL, 0, path, err);
}

/* Fills the header and says where the floats begin. */
static pal_status read_header(const pal_map *map, const char *path, state_header *header, size_t *start,
                              pal_error *err) {
    *header = (state_header){ 0 };
    if (map->size < header_bytes_1)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, a state file has at least %zu", path, map->size,
                        header_bytes_1);
    memcpy(header, map->data, header_bytes_1);
    if (memcmp(header->magic, magic, sizeof magic) != 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: not a state file", path);
    if (header->version < 1 || header->version > FILE_VERSION)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: state file of version %u, this program reads versions 1 to %d",
                        path, header->version, FILE_VERSION);
    *start = header_bytes(header->version);
    if (map->size < *start)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, a state file has at least %zu", path, map->size, *start);
    memcpy(header, map->data, *start);
    return PAL_OK;
}

static size_t size_of(size_t start, uint64_t floats, uint64_t more) {
    const size_t numbers = floats > SIZE_MAX ? PAL_TOO_LARGE : pal_size_mul((size_t)floats, sizeof(float));
    return pal_size_add(start, pal_size_add(numbers, more > MAX_MORE ? PAL_TOO_LARGE : (size_t)more));
}

pal_status pal_state_peek(pal_state_head *out, const char *path, pal_error *err) {
    pal_map map;
    state_header header;
    size_t start = 0;
    pal_status st = pal_map_open(&map, path, err);
    if (st) return st;
    st = read_header(&map, path, &header, &start, err);
    if (!st && (header.position < 0 || header.position > MAX_POSITION))
        st = pal_fail(err, PAL_E_FORMAT, "%s: the state has %lld tokens, expected 0 to %lld", path,
                      (long long)header.position, (long long)MAX_POSITION);
    const size_t expected = st ? 0 : size_of(start, header.floats, header.more);
    if (!st && map.size != expected)
        st = pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected %zu", path, map.size, expected);
    if (!st)
        *out = (pal_state_head){ .fingerprint = header.fingerprint,
                                 .tokens = header.position + (header.pending != 0),
                                 .context = header.context,
                                 .bytes = map.size };
    pal_map_close(&map);
    return st;
}

static pal_status check_file(const pal_state *s, const pal_map *map, const char *path, state_header *header,
                             size_t *start, pal_error *err) {
    const pal_status st = read_header(map, path, header, start, err);
    if (st) return st;
    if (header->fingerprint != pal_model_fingerprint(s->model))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "%s: the state was saved by another model (fingerprint %016llx, this model has %016llx)", path,
                        (unsigned long long)header->fingerprint, (unsigned long long)pal_model_fingerprint(s->model));
    const bool whole = header->version < F32_VERSION; /* caches with room for the whole context */
    const pal_pages *pages = s->model->pages;
    const pal_block_format *kept = pal_block_format_of(pages ? pages->type : PAL_F32),
                           *found = pal_block_format_of_ggml(header->type);
    if (pages && found != kept)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: the state's keys and values are %s, this model keeps them as %s",
                        path, found ? found->name : "of an unknown type", kept->name);
    if (whole && header->context != s->context)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: the state was made for %lld tokens of context, this one for %d", path,
                        (long long)header->context, s->context);
    const int64_t most = pages ? s->context : MAX_POSITION;
    if (header->position < 0 || header->position > most)
        return pal_fail(err, PAL_E_FORMAT, "%s: the state has %lld tokens, expected 0 to %lld", path,
                        (long long)header->position, (long long)most);
    if (header->pending > (uint32_t)s->model->config.vocab)
        return pal_fail(err, PAL_E_FORMAT, "%s: the token that comes next has id %lld, the vocabulary has 0 to %d",
                        path, (long long)header->pending - 1, s->model->config.vocab - 1);
    const size_t floats = whole ? whole_floats(s) : pal_state_used_floats(s->model, header->position);
    const size_t expected = size_of(*start, floats, header->more);
    if (header->floats != floats || map->size != expected)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected %zu", path, map->size, expected);
    const float *data = (const float *)(const void *)(map->data + *start);
    if (header->checksum != checksum_of(header, data, data + floats))
        return pal_fail(err, PAL_E_FORMAT, "%s: the checksum does not fit: the file is damaged", path);
    return PAL_OK;
}

pal_status pal_state_load_with(pal_state *s, void **more, size_t *size, const char *path, pal_error *err) {
    pal_map map;
    state_header header;
    size_t start = 0;
    *more = NULL;
    *size = 0;
    if (s->device) {
        pal_state *host;
        pal_status loaded = pal_state_new_on_host(&host, s->model, s->context, err);
        if (loaded) return loaded;
        loaded = pal_state_load_with(host, more, size, path, err);
        if (!loaded) pal_state_send(s, host);
        pal_state_free(host);
        return loaded;
    }
    pal_status st = pal_map_open(&map, path, err);
    if (st) return st;
    st = check_file(s, &map, path, &header, &start, err);
    if (!st && header.more) st = pal_alloc_named(more, header.more, 1, "what a state's file holds", err);
    if (!st && (st = pal_state_new_pages(s, header.position, err))) {
        pal_free(*more);
        *more = NULL;
    }
    if (!st) {
        const bool whole = header.version < F32_VERSION;
        const float *data = (const float *)(const void *)(map.data + start);
        s->position = header.position;
        s->pending = (int32_t)header.pending - 1;
        unpack(s, data, whole ? s->context : s->position, whole);
        *size = (size_t)header.more;
        if (*size) memcpy(*more, data + header.floats, *size);
    }
    pal_map_close(&map);
    return st;
}

pal_status pal_state_load(pal_state *s, const char *path, pal_error *err) {
    void *more;
    size_t size;
    const pal_status st = pal_state_load_with(s, &more, &size, path, err);
    pal_free(more);
    return st;
}
