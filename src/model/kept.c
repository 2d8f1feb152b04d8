/* SPDX-License-Identifier: MIT */
#include "model/kept.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/hash.h"
#include "base/size.h"

enum { VERSION = 1, MOST_TOKENS = 1 << 24 };
static const char kept_magic[8] = { 'P', 'A', 'L', 'K', 'E', 'P', 'T', 0 };
static const char pages_magic[8] = { 'P', 'A', 'L', 'P', 'A', 'G', 'E', 'S' };

/* Little-endian. After the head: ids (filled up to an even number), places, floats of fixed size, and the bytes of the
 * page that is not full. */
typedef struct {
    char magic[8];
    uint32_t version, type; /* of keys and values, as GGUF numbers them */
    uint64_t fingerprint, tokens, text, floats, page_bytes;
    uint64_t body, head; /* checksums: of what follows the head, and of the head up to here */
} kept_header;

/* Then a checksum for each page, then the pages. */
typedef struct {
    char magic[8];
    uint32_t version, type;
    uint64_t fingerprint, count, page_bytes;
    uint64_t head;
} pages_header;

static uint64_t type_number(const pal_model *m) { return pal_block_format_of(pal_model_kept_as(m))->ggml; }
static uint64_t page_bytes(const pal_model *m) { return m->pages ? m->pages->bytes : 0; }

static size_t full_pages(const pal_model *m, uint64_t tokens) {
    return m->pages ? (size_t)tokens / PAL_PAGE_TOKENS : 0;
}

/* Bytes of what follows the head. */
static size_t body_bytes(const kept_header *h) {
    const size_t tokens = (size_t)h->tokens, full = h->page_bytes ? tokens / PAL_PAGE_TOKENS : 0;
    const size_t rest = tokens % PAL_PAGE_TOKENS ? (size_t)h->page_bytes : 0;
    const size_t floats = h->floats > SIZE_MAX / 8 ? PAL_TOO_LARGE : (size_t)h->floats * sizeof(float);
    return pal_size_add((tokens + 1) / 2 * 8 + full * sizeof(pal_kept_place), pal_size_add(floats, rest));
}

static pal_status write_all(const char *path, const void *const *parts, const size_t *sizes, size_t count,
                            pal_error *err) {
    pal_writer w;
    const pal_status st = pal_writer_open(&w, path, err);
    if (st) return st;
    for (size_t i = 0; i < count; i++) {
        if (!sizes[i] || fwrite(parts[i], sizes[i], 1, w.stream) == 1) continue;
        const int why = errno;
        pal_writer_drop(&w);
        return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", path, strerror(why));
    }
    return pal_writer_commit(&w, err);
}

pal_status pal_kept_save(const pal_state *s, const uint32_t *ids, const pal_kept_place *places, const char *path,
                         pal_error *err) {
    static const uint32_t zero = 0;
    const size_t tokens = (size_t)s->position, full = full_pages(s->model, tokens);
    const bool rest = s->pages && tokens % PAL_PAGE_TOKENS;
    const void *const parts[] = { NULL, ids, &zero, places, s->data, rest ? s->pages[full]->data : NULL };
    const size_t sizes[] = { sizeof(kept_header),     tokens * sizeof *ids,
                             tokens % 2 * sizeof zero, full * sizeof *places,
                             s->fixed * sizeof(float), rest ? s->model->pages->bytes : 0 };
    kept_header h = { .version = VERSION,
                      .type = (uint32_t)type_number(s->model),
                      .fingerprint = pal_model_fingerprint(s->model),
                      .tokens = tokens,
                      .floats = s->fixed,
                      .page_bytes = page_bytes(s->model) };
    memcpy(h.magic, kept_magic, sizeof h.magic);
    for (size_t i = 0; i < tokens; i++) h.text = pal_kept_hash(h.text, ids[i]);
    for (size_t i = 1; i < PAL_COUNT(parts); i++) h.body = pal_hash(h.body, parts[i], sizes[i]);
    h.head = pal_hash(0, &h, offsetof(kept_header, head));
    const void *all[PAL_COUNT(parts)];
    memcpy(all, parts, sizeof all);
    all[0] = &h;
    return write_all(path, all, sizes, PAL_COUNT(all), err);
}

static pal_status read_head(kept_header *h, const pal_map *map, const char *path, pal_error *err) {
    if (map->size < sizeof *h)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, a kept prompt has at least %zu", path, map->size, sizeof *h);
    memcpy(h, map->data, sizeof *h);
    if (memcmp(h->magic, kept_magic, sizeof h->magic) != 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: not a kept prompt", path);
    if (h->version != VERSION)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: a kept prompt of version %u, this program reads version %d", path,
                        h->version, VERSION);
    if (h->head != pal_hash(0, h, offsetof(kept_header, head)) || h->tokens > MOST_TOKENS)
        return pal_fail(err, PAL_E_FORMAT, "%s: the checksum of its head does not fit: the file is damaged", path);
    const size_t expected = pal_size_add(sizeof *h, body_bytes(h));
    if (map->size != expected)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected %zu", path, map->size, expected);
    return PAL_OK;
}

static pal_kept_head head_of(const kept_header *h, const pal_map *map) {
    return (pal_kept_head){
        .fingerprint = h->fingerprint, .text = h->text, .tokens = (int64_t)h->tokens, .bytes = map->size
    };
}

/* Of another model, or with keys and values in another type. */
static pal_status check_model(const pal_model *m, uint64_t fingerprint, uint64_t type, uint64_t bytes, const char *path,
                              pal_error *err) {
    const pal_block_format *found = pal_block_format_of_ggml(type);
    if (fingerprint != pal_model_fingerprint(m))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: of another model (fingerprint %016llx, this model has %016llx)", path,
                        (unsigned long long)fingerprint, (unsigned long long)pal_model_fingerprint(m));
    if (type != type_number(m))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: keys and values are %s, this model keeps them as %s", path,
                        found ? found->name : "of an unknown type", pal_dtype_name(pal_model_kept_as(m)));
    if (bytes != page_bytes(m))
        return pal_fail(err, PAL_E_FORMAT, "%s: pages of %llu bytes, expected %llu", path, (unsigned long long)bytes,
                        (unsigned long long)page_bytes(m));
    return PAL_OK;
}

/* Where the parts lie; checked: and that their bytes are those that were written. */
static pal_status look_inside(pal_kept *k, const kept_header *h, bool checked, const char *path, pal_error *err) {
    const unsigned char *at = k->map.data + sizeof *h;
    const size_t tokens = (size_t)h->tokens, rest = tokens % PAL_PAGE_TOKENS ? (size_t)h->page_bytes : 0;
    const size_t sizes[] = { tokens * sizeof *k->ids, tokens % 2 * sizeof *k->ids, k->pages * sizeof *k->places,
                             (size_t)h->floats * sizeof(float), rest };
    const unsigned char *part[PAL_COUNT(sizes)];
    uint64_t body = 0, text = 0;
    for (size_t i = 0; i < PAL_COUNT(sizes); i++, at += sizes[i - 1]) {
        part[i] = at;
        if (checked) body = pal_hash(body, at, sizes[i]);
    }
    k->ids = (const uint32_t *)(const void *)part[0];
    k->places = (const pal_kept_place *)(const void *)part[2];
    k->fixed = (const float *)(const void *)part[3];
    k->rest = rest ? part[4] : NULL;
    if (!checked) return PAL_OK;
    for (size_t i = 0; i < tokens; i++) text = pal_kept_hash(text, k->ids[i]);
    if (body != h->body || text != h->text)
        return pal_fail(err, PAL_E_FORMAT, "%s: the checksum does not fit: the file is damaged", path);
    return PAL_OK;
}

pal_status pal_kept_open(pal_kept *out, const pal_model *m, const char *path, pal_error *err) {
    kept_header h;
    *out = (pal_kept){ 0 };
    pal_status st = pal_map_open(&out->map, path, err);
    if (st) return st;
    if (!(st = read_head(&h, &out->map, path, err)) && m)
        st = check_model(m, h.fingerprint, h.type, h.page_bytes, path, err);
    if (!st && m && h.floats != pal_state_bytes(m, 0) / sizeof(float))
        st = pal_fail(err, PAL_E_FORMAT, "%s: %llu numbers of fixed size, expected %zu", path,
                      (unsigned long long)h.floats, pal_state_bytes(m, 0) / sizeof(float));
    if (!st) {
        out->head = head_of(&h, &out->map);
        out->pages = h.page_bytes ? (size_t)h.tokens / PAL_PAGE_TOKENS : 0;
        st = look_inside(out, &h, m, path, err);
    }
    if (st) pal_kept_close(out);
    return st;
}

void pal_kept_close(pal_kept *k) {
    pal_map_close(&k->map);
    *k = (pal_kept){ 0 };
}

pal_status pal_kept_take(pal_state *s, const pal_kept *k, pal_page *const *full, pal_error *err) {
    pal_page *rest = NULL;
    if (s->pages && k->head.tokens > s->context)
        return pal_fail(err, PAL_E_ARGUMENT, "a kept prompt of %lld tokens, but the state holds %d",
                        (long long)k->head.tokens, s->context);
    if (k->rest) {
        if (!(rest = pal_page_new(s->model->pages)))
            return pal_fail(err, PAL_E_MEMORY, "out of memory: %zu bytes of keys and values", s->model->pages->bytes);
        memcpy(rest->data, k->rest, s->model->pages->bytes);
    }
    pal_state_reset(s);
    memcpy(s->data, k->fixed, s->fixed * sizeof *s->data);
    for (size_t i = 0; i < k->pages; i++) s->pages[s->held++] = full[i];
    if (rest) s->pages[s->held++] = rest;
    s->position = k->head.tokens;
    return PAL_OK;
}

pal_status pal_kept_save_pages(const pal_model *m, pal_page *const *pages, size_t count, const char *path,
                               pal_error *err) {
    pages_header h = { .version = VERSION,
                       .type = (uint32_t)type_number(m),
                       .fingerprint = pal_model_fingerprint(m),
                       .count = count,
                       .page_bytes = page_bytes(m) };
    void *block;
    pal_status st = pal_alloc_named(&block, 2 + count, sizeof(void *) + sizeof(size_t) + sizeof(uint64_t),
                                    "a file of pages", err);
    if (st) return st;
    uint64_t *sums = block;
    const void **parts = (const void **)(sums + count);
    size_t *sizes = (size_t *)(parts + 2 + count);
    memcpy(h.magic, pages_magic, sizeof h.magic);
    for (size_t i = 0; i < count; i++) {
        sums[i] = pal_hash(0, pages[i]->data, m->pages->bytes);
        parts[2 + i] = pages[i]->data;
        sizes[2 + i] = m->pages->bytes;
    }
    h.head = pal_hash(pal_hash(0, &h, offsetof(pages_header, head)), sums, count * sizeof *sums);
    parts[0] = &h, sizes[0] = sizeof h;
    parts[1] = sums, sizes[1] = count * sizeof *sums;
    st = write_all(path, parts, sizes, 2 + count, err);
    pal_free(block);
    return st;
}

pal_status pal_kept_open_pages(pal_kept_pages *out, const pal_model *m, const char *path, pal_error *err) {
    pages_header h;
    *out = (pal_kept_pages){ 0 };
    pal_status st = pal_map_open(&out->map, path, err);
    const size_t size = out->map.size;
    if (st) return st;
    if (size >= sizeof h) memcpy(&h, out->map.data, sizeof h);
    if (size < sizeof h || memcmp(h.magic, pages_magic, sizeof h.magic) != 0)
        st = pal_fail(err, PAL_E_FORMAT, "%s: not a file of pages", path);
    else if (h.version != VERSION)
        st = pal_fail(err, PAL_E_UNSUPPORTED, "%s: pages of version %u, this program reads version %d", path, h.version,
                      VERSION);
    else st = check_model(m, h.fingerprint, h.type, h.page_bytes, path, err);
    const size_t each = st ? 0 : pal_size_add((size_t)h.page_bytes, sizeof(uint64_t));
    const size_t expected = st || h.count > SIZE_MAX ? PAL_TOO_LARGE
                                                     : pal_size_add(sizeof h, pal_size_mul((size_t)h.count, each));
    if (!st && size != expected)
        st = pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected %zu for %llu pages", path, size, expected,
                      (unsigned long long)h.count);
    if (!st && h.head != pal_hash(pal_hash(0, &h, offsetof(pages_header, head)), out->map.data + sizeof h,
                                  (size_t)h.count * sizeof(uint64_t)))
        st = pal_fail(err, PAL_E_FORMAT, "%s: the checksum of its head does not fit: the file is damaged", path);
    if (st) {
        pal_map_close(&out->map);
        *out = (pal_kept_pages){ 0 };
        return st;
    }
    out->count = (size_t)h.count;
    out->bytes = h.page_bytes;
    return PAL_OK;
}

void pal_kept_close_pages(pal_kept_pages *pages) {
    pal_map_close(&pages->map);
    *pages = (pal_kept_pages){ 0 };
}

pal_status pal_kept_read_page(pal_page **out, const pal_kept_pages *p, const pal_model *m, uint64_t index,
                              const char *path, pal_error *err) {
    uint64_t sum;
    *out = NULL;
    if (index >= p->count)
        return pal_fail(err, PAL_E_FORMAT, "%s: page %llu is missing, the file has %zu", path,
                        (unsigned long long)index, p->count);
    const unsigned char *sums = p->map.data + sizeof(pages_header);
    const unsigned char *data = sums + p->count * sizeof sum + (size_t)index * (size_t)p->bytes;
    memcpy(&sum, sums + (size_t)index * sizeof sum, sizeof sum);
    if (sum != pal_hash(0, data, (size_t)p->bytes))
        return pal_fail(err, PAL_E_FORMAT, "%s: the checksum of page %llu does not fit: the file is damaged", path,
                        (unsigned long long)index);
    if (!(*out = pal_page_new(m->pages)))
        return pal_fail(err, PAL_E_MEMORY, "out of memory: %zu bytes of keys and values", m->pages->bytes);
    memcpy((*out)->data, data, (size_t)p->bytes);
    return PAL_OK;
}
