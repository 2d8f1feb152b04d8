/* SPDX-License-Identifier: MIT */
/* A GGUF file. One of architecture mamba2 is turned into a Hugging Face Mamba2: tensors get their names and shapes,
 * A_log is taken back out of -exp(A_log), and the metadata becomes a configuration. An architecture of ours holds
 * a configuration and tensors under the names that safetensors have. */
#include "format/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/context.h"
#include "base/map.h"
#include "base/size.h"
#include "format/gguf_mamba2.h"
#include "format/gguf_types.h"
#include "format/json.h"

enum { NAME_MAX_TEXT = 63, INFO_MIN = 8 + 1 + 4 + 8 + 4 + 8, PREVIEW = 40 };

typedef struct {
    const pal_block_format *format;
    const unsigned char *data;
    size_t offset, bytes; /* of the data within all data */
    bool decay;           /* the file holds -exp of what is asked for */
} stored_tensor;

typedef struct {
    const char *path;
    pal_map map;
    bool mamba2; /* else one of our architectures */
    size_t count;
    stored_tensor *stored;
    char *names; /* (count, PAL_GGUF_MAPPED_NAME) */
} gguf_file;

static void close_file(void *handle) {
    gguf_file *f = handle;
    pal_map_close(&f->map);
    pal_free(f->stored);
    pal_free(f->names);
    pal_free(f);
}

/* Values of a tensor that has to be made: a decay. */
static pal_status read_values(const void *handle, size_t index, size_t first, size_t count, float *to, pal_error *err) {
    const gguf_file *f = handle;
    const stored_tensor *t = &f->stored[index];
    (void)err;
    pal_values_decode(t->format->type, t->data, first, count, to);
    for (size_t i = 0; i < count; i++) to[i] = logf(-to[i]);
    return PAL_OK;
}

/* Architectures whose configuration stands in the file as ours do. */
static bool is_ours(pal_slice architecture) {
    for (size_t i = 0; i < PAL_COUNT(pal_gguf_architectures); i++)
        if (pal_gguf_is(architecture, pal_gguf_architectures[i])) return true;
    return false;
}

static pal_status read_pairs(gguf_file *f, pal_gguf_reader *r, pal_gguf_facts *k, uint64_t pairs, pal_error *err) {
    pal_status st;
    for (uint64_t i = 0; i < pairs; i++) {
        const pal_slice key = pal_gguf_string(r);
        const pal_gguf_value v = pal_gguf_read(r);
        if (r->bad)
            return pal_fail(err, PAL_E_FORMAT, "%s: the metadata is damaged or cut short in entry %llu of %llu",
                            f->path, (unsigned long long)i, (unsigned long long)pairs);
        if ((st = pal_gguf_take(k, f->path, key, &v, err))) return st;
    }
    f->mamba2 = pal_gguf_is(k->architecture, "mamba2");
    if (!f->mamba2 && !is_ours(k->architecture)) {
        if (!k->architecture.size) return pal_fail(err, PAL_E_FORMAT, "%s: general.architecture is missing", f->path);
        char text[PREVIEW + 1];
        size_t n = 0;
        for (; n < PREVIEW && n < k->architecture.size; n++)
            text[n] = (char)(k->architecture.data[n] < ' ' || k->architecture.data[n] > '~' ? '?'
                                                                                            : k->architecture.data[n]);
        text[n] = 0;
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: the architecture is '%s'; of GGUF files, mamba2 and those of this program are read",
                        f->path, text);
    }
    if (!k->alignment) k->alignment = 32;
    if (k->alignment & (k->alignment - 1) || k->alignment < 8 || k->alignment > 1 << 20)
        return pal_fail(err, PAL_E_FORMAT, "%s: general.alignment is %llu, expected a power of two from 8 to 2^20",
                        f->path, (unsigned long long)k->alignment);
    return f->mamba2 ? pal_gguf_mamba2_check(k, f->path, err) : PAL_OK;
}

/* Our own files have our names, and extents in the other order. */
static bool take_name(char out[PAL_GGUF_MAPPED_NAME], pal_gguf_shape *shape, bool mamba2, pal_slice name) {
    if (mamba2) return pal_gguf_mamba2_name(out, shape, name);
    *shape = PAL_GGUF_VECTOR;
    memcpy(out, name.data, name.size);
    out[name.size] = 0;
    return name.size > 0 && !memchr(name.data, 0, name.size);
}

static pal_status read_info(gguf_file *f, pal_gguf_reader *r, size_t index, pal_tensor *out, pal_error *err) {
    const pal_slice name = pal_gguf_string(r);
    const uint64_t rank = pal_gguf_number(r, 4);
    int64_t dims[4] = { 1, 1, 1, 1 };
    char shown[NAME_MAX_TEXT + 1] = "";
    if (!r->bad && rank > 4)
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor %zu has %llu dimensions, at most 4 are allowed", f->path, index,
                        (unsigned long long)rank);
    for (uint64_t i = 0; i < rank && !r->bad; i++) dims[i] = (int64_t)pal_gguf_number(r, 8);
    const size_t count = pal_size_of_shape(4, dims);
    const uint64_t type = pal_gguf_number(r, 4);
    const uint64_t offset = pal_gguf_number(r, 8);
    if (r->bad)
        return pal_fail(err, PAL_E_FORMAT, "%s: the list of tensors is cut short at tensor %zu", f->path, index);
    for (size_t i = 0; i < name.size && i < NAME_MAX_TEXT; i++)
        shown[i] = (char)(name.data[i] < ' ' || name.data[i] > '~' ? '?' : name.data[i]);
    char *mapped = f->names + index * PAL_GGUF_MAPPED_NAME;
    pal_gguf_shape shape = PAL_GGUF_VECTOR;
    if (name.size > NAME_MAX_TEXT || !take_name(mapped, &shape, f->mamba2, name))
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' does not belong to the architecture%s", f->path, shown,
                        f->mamba2 ? " mamba2" : "");
    if (count == PAL_TOO_LARGE)
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s': its dimensions overflow", f->path, shown);
    const pal_block_format *format = pal_block_format_of_ggml(type);
    if (!format) {
        const char *known = pal_gguf_type_name(type);
        if (known)
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "%s: tensor '%s' is %s; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL "
                            "and IQ4_XS are read",
                            f->path, shown, known);
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' has type %llu, which is not known", f->path, shown,
                        (unsigned long long)type);
    }
    if ((size_t)dims[0] % format->values)
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' is %s in rows of %lld values, expected a multiple of %zu",
                        f->path, shown, pal_dtype_name(format->type), (long long)dims[0], format->values);
    const size_t bytes = pal_size_mul(count / format->values, format->bytes);
    if (!pal_size_inside(offset, bytes, f->map.size))
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' needs more bytes than the file has", f->path, shown);
    *out = (pal_tensor){ .name = mapped, .count = count, .dtype = shape == PAL_GGUF_DECAY ? PAL_F32 : format->type };
    pal_gguf_mamba2_shape(out, shape, (int)rank, dims);
    f->stored[index] =
        (stored_tensor){ .format = format, .offset = (size_t)offset, .bytes = bytes, .decay = shape == PAL_GGUF_DECAY };
    return PAL_OK;
}

static pal_status read_tensors(gguf_file *f, pal_gguf_reader *r, const pal_gguf_facts *k, pal_source *source,
                               pal_error *err) {
    pal_status st;
    const size_t first = source->count;
    size_t end = 0; /* of the data so far, padded */
    for (size_t i = 0; i < f->count; i++) {
        pal_tensor t;
        if ((st = read_info(f, r, i, &t, err))) return st;
        if (f->stored[i].offset != end)
            return pal_fail(err, PAL_E_FORMAT, "%s: the data of '%s' begins at %zu, expected %zu", f->path, t.name,
                            f->stored[i].offset, end);
        end = pal_size_pad(pal_size_add(end, f->stored[i].bytes), k->alignment);
        pal_source_add(source, &t, i, pal_dtype_name(f->stored[i].format->type));
    }
    const size_t begin = pal_size_pad(r->at, k->alignment), room = f->map.size > begin ? f->map.size - begin : 0;
    for (size_t i = 0; i < f->count; i++) {
        pal_tensor *t = &source->tensors[first + i];
        stored_tensor *s = &f->stored[i];
        if (!pal_size_inside(s->offset, s->bytes, room))
            return pal_fail(err, PAL_E_FORMAT, "%s: the data of '%s' ends at byte %zu, the file has %zu", f->path,
                            t->name, begin + s->offset + s->bytes, f->map.size);
        s->data = source->origin[first + i].bytes = f->map.data + begin + s->offset;
        const size_t next = pal_size_pad(s->offset + s->bytes, k->alignment);
        for (size_t at = s->offset + s->bytes; at < next && at < room;
             at++) /* a wrong type or shape would leave values here */
            if (f->map.data[begin + at])
                return pal_fail(err, PAL_E_FORMAT, "%s: the padding after '%s' is not zero", f->path, t->name);
        t->data = s->decay ? NULL : s->data;
    }
    if (room > end) return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes follow the last tensor", f->path, room - end);
    return PAL_OK;
}

/* config.json as it was when the file was written. */
static pal_status read_config(pal_source *source, const pal_gguf_facts *k, pal_error *err) {
    json_error_t why;
    bool starved;
    if (!k->config.size) return pal_fail(err, PAL_E_FORMAT, "%s: palimpsa.config is missing", source->path);
    source->config =
        pal_json_parse((const char *)k->config.data, k->config.size, JSON_REJECT_DUPLICATES, &why, &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", source->path);
    if (!json_is_object(source->config))
        return pal_fail(err, PAL_E_FORMAT, "%s: palimpsa.config is not a JSON object%s%s", source->path,
                        source->config ? "" : ": ", source->config ? "" : why.text);
    return PAL_OK;
}

pal_status pal_gguf_open(pal_source *out, const char *path, pal_error *err) {
    pal_status st;
    void *block;
    out->one_file = true;
    if (!(out->path = pal_strdup(path))) return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", path);
    if ((st = pal_alloc_named(&block, 1, sizeof(gguf_file), "a GGUF file", err))) return st;
    gguf_file *f = block;
    const pal_tensor_file file = { .handle = f, .read = read_values, .close = close_file };
    pal_gguf_facts k = { 0 };
    uint64_t tensors = 0, pairs = 0;
    f->path = out->path;
    if ((st = pal_map_open(&f->map, path, err))) goto failed;
    pal_gguf_reader r = { .data = f->map.data, .size = f->map.size };
    if (f->map.size < 4 || memcmp(f->map.data, "GGUF", 4) != 0) {
        st = pal_fail(err, PAL_E_FORMAT, "%s: neither a model directory nor a GGUF file", path);
        goto failed;
    }
    if ((st = pal_gguf_begin(&r, path, &tensors, &pairs, err)) || (st = read_pairs(f, &r, &k, pairs, err))) goto failed;
    if (tensors > (r.size - r.at) / INFO_MIN) {
        st = pal_fail(err, PAL_E_FORMAT, "%s: claims %llu tensors in %zu bytes", path, (unsigned long long)tensors,
                      r.size - r.at);
        goto failed;
    }
    f->count = (size_t)tensors;
    f->stored = pal_alloc(f->count + 1, sizeof *f->stored);
    f->names = pal_alloc(f->count + 1, PAL_GGUF_MAPPED_NAME);
    if (!f->stored || !f->names) {
        st = pal_fail(err, PAL_E_MEMORY, "out of memory for the tensors of %s", path);
        goto failed;
    }
    if ((st = pal_source_add_file(out, &file, f->count, err))) goto failed;
    if ((st = read_tensors(f, &r, &k, out, err)) || (st = pal_source_sort(out, err))) return st;
    return f->mamba2 ? pal_gguf_mamba2_config(out, &k, f->map.data, err) : read_config(out, &k, err);
failed:
    close_file(f);
    return st;
}
