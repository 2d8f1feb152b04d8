/* SPDX-License-Identifier: MIT */
/* The strict safetensors reader and the atomic writer. JSON is jansson's work; every rule of the format is checked
 * here. */
#include "palimpsa/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/context.h"
#include "base/half.h"
#include "base/map.h"
#include "base/size.h"
#include "format/json.h"
#include "format/safetensors_header.h"

enum {
    HEADER_PREFIX = 8,
    HEADER_MAX = 100000000,
    ENTRY_MIN = 48 /* the shortest entry, "":{"dtype":"U8","shape":[],"data_offsets":[0,1]}, has one byte more */
};

enum { KNOWN_TYPES = PAL_BOOL + 1 }; /* blocks have no place in these files */

struct pal_safetensors {
    pal_map map; /* owned, unless the bytes came from the caller */
    json_t *header;
    size_t count;
    pal_tensor *tensors;        /* by data offset */
    const pal_tensor **by_name; /* sorted */
};

typedef struct {
    pal_safetensors *st;
    const char *path;
    const unsigned char *data; /* first byte after the header */
    size_t size;               /* bytes after the header */
    pal_error *err;
} parse;

static pal_status parse_dtype(const parse *p, const char *name, const json_t *entry, pal_dtype *out) {
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text) return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s' has no dtype", p->path, name);
    for (int i = 0; i < KNOWN_TYPES; i++)
        if (strcmp(text, pal_dtype_name((pal_dtype)i)) == 0) {
            *out = (pal_dtype)i;
            return PAL_OK;
        }
    return pal_fail(p->err, PAL_E_UNSUPPORTED, "%s: tensor '%s' has dtype '%.20s', which this program does not know",
                    p->path, name, text);
}

static pal_status parse_shape(const parse *p, pal_tensor *t, const json_t *entry) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s' has no shape", p->path, t->name);
    const size_t rank = json_array_size(shape);
    if (rank > PAL_MAX_RANK)
        return pal_fail(p->err, PAL_E_UNSUPPORTED, "%s: tensor '%s' has %zu dimensions, at most %d are supported",
                        p->path, t->name, rank, PAL_MAX_RANK);
    t->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *extent = json_array_get(shape, i);
        const json_int_t value = json_integer_value(extent);
        if (!json_is_integer(extent) || value < 0)
            return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s': dimension %zu is not a number >= 0", p->path,
                            t->name, i);
        t->shape[i] = (int64_t)value;
    }
    t->count = pal_size_of_shape(t->rank, t->shape);
    if (t->count == PAL_TOO_LARGE)
        return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s': the product of its shape overflows", p->path, t->name);
    return PAL_OK;
}

static pal_status parse_tensor(const parse *p, pal_tensor *t, const char *name, const json_t *entry) {
    pal_status st;
    t->name = name;
    if (!json_is_object(entry))
        return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s' is not described by an object", p->path, name);
    if (json_object_size(entry) != 3)
        return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s' must have exactly dtype, shape and data_offsets",
                        p->path, name);
    if ((st = parse_dtype(p, name, entry, &t->dtype))) return st;
    if ((st = parse_shape(p, t, entry))) return st;
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s': data_offsets must be two numbers", p->path, name);
    const json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || !pal_size_inside((uint64_t)begin, (uint64_t)(end - begin), p->size))
        return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s' claims bytes %lld to %lld, the file has %zu", p->path,
                        name, (long long)begin, (long long)end, p->size);
    if (pal_size_mul(t->count, pal_dtype_size(t->dtype)) != (size_t)(end - begin))
        return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s' has %zu elements of %s but %lld bytes", p->path, name,
                        t->count, pal_dtype_name(t->dtype), (long long)(end - begin));
    t->data = p->data + begin;
    return PAL_OK;
}

static size_t tensor_bytes(const pal_tensor *t) { return t->count * pal_dtype_size(t->dtype); }

static int by_data(const void *a, const void *b) {
    const pal_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    const size_t nx = tensor_bytes(x), ny = tensor_bytes(y); /* empty tensors share an offset with the next one */
    return nx != ny ? (nx < ny ? -1 : 1) : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const pal_tensor *const *)a)->name, (*(const pal_tensor *const *)b)->name);
}

static pal_status check_coverage(const parse *p) {
    size_t at = 0;
    for (size_t i = 0; i < p->st->count; i++) {
        const pal_tensor *t = &p->st->tensors[i];
        const size_t begin = (size_t)((const unsigned char *)t->data - p->data);
        if (begin != at)
            return pal_fail(p->err, PAL_E_FORMAT, "%s: tensor '%s' starts at byte %zu of the data, expected %zu (%s)",
                            p->path, t->name, begin, at, begin < at ? "tensors overlap" : "there is a hole");
        at += tensor_bytes(t);
    }
    if (at != p->size)
        return pal_fail(p->err, PAL_E_FORMAT, "%s: tensors cover %zu bytes of data, the file has %zu", p->path, at,
                        p->size);
    return PAL_OK;
}

static pal_status check_metadata(const parse *p, const json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return pal_fail(p->err, PAL_E_FORMAT, "%s: __metadata__ is not an object", p->path);
    json_object_foreach((json_t *)metadata, key, value) {
        if (!json_is_string(value))
            return pal_fail(p->err, PAL_E_FORMAT, "%s: __metadata__ '%s' is not a string", p->path, key);
    }
    return PAL_OK;
}

static pal_status parse_header(const parse *p, const unsigned char *text, size_t size) {
    pal_safetensors *st = p->st;
    json_error_t json_error;
    bool starved;
    pal_status status;
    if (size == 0 || text[0] != '{')
        return pal_fail(p->err, PAL_E_FORMAT, "%s: the header does not start with '{'", p->path);
    st->header = pal_json_parse((const char *)text, size, JSON_REJECT_DUPLICATES, &json_error, &starved);
    if (starved) return pal_fail(p->err, PAL_E_MEMORY, "out of memory while reading the header of %s", p->path);
    if (!st->header)
        return pal_fail(p->err, PAL_E_FORMAT, "%s: the header is not valid JSON: %s (byte %d)", p->path,
                        json_error.text, json_error.position);
    if (!json_is_object(st->header))
        return pal_fail(p->err, PAL_E_FORMAT, "%s: the header is not a JSON object", p->path);

    const size_t entries = json_object_size(st->header);
    if (entries > 1 + size / ENTRY_MIN) /* one may be __metadata__ */
        return pal_fail(p->err, PAL_E_FORMAT, "%s: %zu entries in a header of %zu bytes cannot all be tensors", p->path,
                        entries, size);
    void *block;
    if ((status = pal_alloc_named(&block, entries, sizeof *st->tensors, "the list of tensors", p->err))) return status;
    st->tensors = block;
    if ((status = pal_alloc_named(&block, entries, sizeof *st->by_name, "the list of tensors", p->err))) return status;
    st->by_name = block;

    const char *name;
    json_t *entry;
    json_object_foreach(st->header, name, entry) {
        if (strcmp(name, "__metadata__") == 0) status = check_metadata(p, entry);
        else status = parse_tensor(p, &st->tensors[st->count++], name, entry);
        if (status) return status;
    }
    qsort(st->tensors, st->count, sizeof *st->tensors, by_data);
    for (size_t i = 0; i < st->count; i++) st->by_name[i] = &st->tensors[i];
    qsort(st->by_name, st->count, sizeof *st->by_name, by_name);
    return check_coverage(p);
}

pal_status pal_safetensors_parse(pal_safetensors **out, const char *name, const void *bytes, size_t size,
                                 pal_error *err) {
    const unsigned char *file = bytes;
    pal_status status;
    void *block;
    *out = NULL;
    if (size < HEADER_PREFIX)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, a safetensors file has at least %d", name, size,
                        HEADER_PREFIX);
    uint64_t header = 0;
    for (int i = 0; i < HEADER_PREFIX; i++) header |= (uint64_t)file[i] << (8 * i);
    if (header > HEADER_MAX)
        return pal_fail(err, PAL_E_FORMAT, "%s: claims a header of %llu bytes, at most %d are allowed", name,
                        (unsigned long long)header, HEADER_MAX);
    if (header > size - HEADER_PREFIX)
        return pal_fail(err, PAL_E_FORMAT, "%s: claims a header of %llu bytes, the file has %zu", name,
                        (unsigned long long)header, size);
    if ((status = pal_alloc_named(&block, 1, sizeof **out, "a safetensors file", err))) return status;
    pal_safetensors *st = block;
    const size_t data = HEADER_PREFIX + (size_t)header;
    const parse p = { .st = st, .path = name, .data = file + data, .size = size - data, .err = err };
    if ((status = parse_header(&p, file + HEADER_PREFIX, (size_t)header))) {
        pal_safetensors_close(st);
        return status;
    }
    *out = st;
    return PAL_OK;
}

pal_status pal_safetensors_open(pal_safetensors **out, const char *path, pal_error *err) {
    pal_map map;
    *out = NULL;
    pal_status status = pal_map_open(&map, path, err);
    if (status) return status;
    if ((status = pal_safetensors_parse(out, path, map.data, map.size, err))) pal_map_close(&map);
    else (*out)->map = map;
    return status;
}

void pal_safetensors_close(pal_safetensors *st) {
    if (!st) return;
    json_decref(st->header);
    pal_free(st->tensors);
    pal_free(st->by_name);
    pal_map_close(&st->map);
    pal_free(st);
}

size_t pal_safetensors_count(const pal_safetensors *st) { return st->count; }
const pal_tensor *pal_safetensors_at(const pal_safetensors *st, size_t index) {
    return index < st->count ? &st->tensors[index] : NULL;
}

const pal_tensor *pal_safetensors_find(const pal_safetensors *st, const char *name) {
    const pal_tensor key = { .name = name }, *const key_pointer = &key;
    const pal_tensor **found = bsearch(&key_pointer, st->by_name, st->count, sizeof *st->by_name, by_name);
    return found ? *found : NULL;
}

const char *pal_safetensors_metadata(const pal_safetensors *st, const char *key) {
    return json_string_value(json_object_get(json_object_get(st->header, "__metadata__"), key));
}

#define CONVERT(type, expression)                       \
    do {                                                \
        for (size_t i = 0; i < tensor->count; i++) {    \
            type x;                                     \
            memcpy(&x, bytes + i * sizeof x, sizeof x); \
            dst[i] = (expression);                      \
        }                                               \
        return PAL_OK;                                  \
    } while (0)

pal_status pal_tensor_to_f32(const pal_tensor *tensor, float *dst, pal_error *err) {
    const unsigned char *bytes = tensor->data; /* files do not promise alignment */
    switch (tensor->dtype) {
    case PAL_F32: CONVERT(float, x);
    case PAL_F64: CONVERT(double, (float)x);
    case PAL_F16: CONVERT(uint16_t, pal_f16_to_f32(x));
    case PAL_BF16: CONVERT(uint16_t, pal_bf16_to_f32(x));
    case PAL_I64: CONVERT(int64_t, (float)x);
    case PAL_I32: CONVERT(int32_t, (float)x);
    case PAL_I16: CONVERT(int16_t, (float)x);
    case PAL_I8: CONVERT(int8_t, (float)x);
    case PAL_U64: CONVERT(uint64_t, (float)x);
    case PAL_U32: CONVERT(uint32_t, (float)x);
    case PAL_U16: CONVERT(uint16_t, (float)x);
    case PAL_U8:
    case PAL_BOOL: CONVERT(uint8_t, (float)x);
    default: /* blocks */
        if (tensor->dtype >= PAL_DTYPES || tensor->count % pal_dtype_values(tensor->dtype)) break;
        pal_blocks_decode(pal_block_format_of(tensor->dtype), bytes, tensor->count, dst);
        return PAL_OK;
    }
    return pal_fail(err, PAL_E_UNSUPPORTED, "tensor '%s': dtype %d cannot be converted to f32", tensor->name,
                    (int)tensor->dtype);
}

/* Large elements first, so that every tensor is aligned to its element size; then by name. */
static int writing_order(const void *a, const void *b) {
    const pal_tensor *x = *(const pal_tensor *const *)a, *y = *(const pal_tensor *const *)b;
    const size_t sx = pal_dtype_size(x->dtype), sy = pal_dtype_size(y->dtype);
    return sx != sy ? (sx > sy ? -1 : 1) : strcmp(x->name, y->name);
}

static pal_status check_tensor(const char *path, const pal_tensor *t, size_t index, bool with_data, pal_error *err) {
    if (!t->name) return pal_fail(err, PAL_E_ARGUMENT, "%s: tensor %zu has no name", path, index);
    if (strcmp(t->name, "__metadata__") == 0)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: a tensor cannot be named '%s'", path, t->name);
    if ((unsigned)t->dtype >= KNOWN_TYPES)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: tensor '%s' has no dtype, found %d", path, t->name, (int)t->dtype);
    if (t->rank < 0 || t->rank > PAL_MAX_RANK)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: tensor '%s' has %d dimensions, expected 0 to %d", path, t->name,
                        t->rank, PAL_MAX_RANK);
    for (int d = 0; d < t->rank; d++)
        if (pal_size_of_shape(d + 1, t->shape) == PAL_TOO_LARGE)
            return pal_fail(err, PAL_E_ARGUMENT, "%s: tensor '%s': dimension %d is %lld, which cannot be", path,
                            t->name, d, (long long)t->shape[d]);
    const size_t count = pal_size_of_shape(t->rank, t->shape);
    if (count != t->count || pal_size_mul(count, pal_dtype_size(t->dtype)) == PAL_TOO_LARGE)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: tensor '%s' has %zu elements, its shape %zu", path, t->name, t->count,
                        count);
    if (with_data && !t->data && count)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: tensor '%s' has no data", path, t->name);
    return PAL_OK;
}

/* Fills order with the tensors in writing order. */
static pal_status check_tensors(const char *path, const pal_tensor *tensors, size_t count, bool with_data,
                                const pal_tensor **order, pal_error *err) {
    for (size_t i = 0; i < count; i++) {
        const pal_status st = check_tensor(path, &tensors[i], i, with_data, err);
        if (st) return st;
        order[i] = &tensors[i];
    }
    qsort(order, count, sizeof *order, by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            return pal_fail(err, PAL_E_ARGUMENT, "%s: two tensors are named '%s'", path, order[i]->name);
    qsort(order, count, sizeof *order, writing_order);
    return PAL_OK;
}

static json_t *header_json(const pal_tensor **order, size_t count, const char *const *metadata) {
    json_t *header = json_object();
    if (metadata) {
        json_t *pairs = json_object();
        for (; metadata[0]; metadata += 2) pal_json_set(pairs, metadata[0], json_string(metadata[1]));
        pal_json_set(header, "__metadata__", pairs);
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t end = at + tensor_bytes(order[i]);
        json_t *shape = json_array();
        for (int d = 0; d < order[i]->rank; d++) pal_json_append(shape, json_integer(order[i]->shape[d]));
        pal_json_set(header, order[i]->name,
                     json_pack("{s:s, s:o, s:[I,I]}", "dtype", pal_dtype_name(order[i]->dtype), "shape", shape,
                               "data_offsets", (json_int_t)at, (json_int_t)end));
        at = end;
    }
    return header;
}

/* Why there is no header: a name that JSON cannot hold, or no memory. */
static pal_status no_header(const char *path, const pal_tensor **order, size_t count, pal_error *err) {
    for (size_t i = 0; i < count; i++) {
        json_t *name = pal_json_text(order[i]->name);
        const bool other = json_is_object(name);
        json_decref(name);
        if (other)
            return pal_fail(err, PAL_E_ARGUMENT, "%s: the name of tensor '%s' is not UTF-8", path, order[i]->name);
    }
    return pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", path);
}

static pal_status write_all(FILE *f, const char *path, const void *bytes, size_t size, pal_error *err) {
    if (size && fwrite(bytes, 1, size, f) != size)
        return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", path, strerror(errno));
    return PAL_OK;
}

pal_status pal_safetensors_make_head(pal_safetensors_head *out, size_t *offsets, const pal_tensor **order_out,
                                     const char *path, const pal_tensor *tensors, size_t count,
                                     const char *const *metadata, bool with_data, pal_error *err) {
    pal_status st;
    char *text = NULL;
    json_t *header = NULL;
    void *block = NULL, *head;
    *out = (pal_safetensors_head){ 0 };
    if ((st = pal_alloc_named(&block, count, sizeof(pal_tensor *), "a list of tensors", err))) return st;
    const pal_tensor **order = block;
    if ((st = check_tensors(path, tensors, count, with_data, order, err))) goto done;
    header = header_json(order, count, metadata);
    text = pal_json_dumps(header, JSON_COMPACT);
    if (!text || json_object_size(header) != count + (metadata ? 1 : 0)) {
        st = no_header(path, order, count, err);
        goto done;
    }
    const size_t length = strlen(text), padded = (length + 7) & ~(size_t)7;
    if ((st = pal_alloc_named(&head, HEADER_PREFIX + padded, 1, "a header", err))) goto done;
    *out = (pal_safetensors_head){ .bytes = head, .size = HEADER_PREFIX + padded, .file = HEADER_PREFIX + padded };
    for (int i = 0; i < HEADER_PREFIX; i++) out->bytes[i] = (unsigned char)(padded >> (8 * i));
    memset(out->bytes + HEADER_PREFIX, ' ', padded);
    memcpy(out->bytes + HEADER_PREFIX, text, length);
    for (size_t i = 0; i < count; i++) {
        if (offsets) offsets[order[i] - tensors] = out->file;
        if (order_out) order_out[i] = order[i];
        out->file += tensor_bytes(order[i]);
    }
done:
    free(text);
    json_decref(header);
    pal_free(block);
    return st;
}

pal_status pal_safetensors_write_fetched(const char *path, const pal_tensor *tensors, size_t count,
                                         const char *const *metadata, pal_fetch_fn *fetch, void *user, pal_error *err) {
    pal_status st;
    const char *name = path ? path : "tensors";
    pal_writer w = { 0 };
    pal_safetensors_head head = { 0 };
    void *block = NULL;
    if ((st = pal_alloc_named(&block, count, sizeof(pal_tensor *), "a list of tensors", err))) return st;
    const pal_tensor **order = block;
    if ((st = pal_safetensors_make_head(&head, NULL, order, name, tensors, count, metadata, !fetch, err))) goto done;
    if (path && (st = pal_writer_open(&w, path, err))) goto done;
    if (path && (st = write_all(w.stream, path, head.bytes, head.size, err))) goto done;
    for (size_t i = 0; i < count; i++) {
        const void *data = order[i]->data;
        if (fetch && (st = fetch(user, order[i], &data, err))) goto done;
        if (path && (st = write_all(w.stream, path, data, tensor_bytes(order[i]), err))) goto done;
    }
    if (path) st = pal_writer_commit(&w, err);
done:
    pal_writer_drop(&w);
    pal_free(head.bytes);
    pal_free(block);
    return st;
}

pal_status pal_safetensors_write(const char *path, const pal_tensor *tensors, size_t count, const char *const *metadata,
                                 pal_error *err) {
    return pal_safetensors_write_fetched(path, tensors, count, metadata, NULL, NULL, err);
}
