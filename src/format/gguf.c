/* SPDX-License-Identifier: MIT */
/* A GGUF file. One of architecture mamba2 is turned into a Hugging Face Mamba2: tensors get their names and shapes,
 * A_log is taken back out of -exp(A_log), and the metadata becomes a configuration. An architecture of ours holds
 * a configuration and tensors under the names that safetensors have. One of a published family becomes a view. */
#include "format/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/context.h"
#include "base/half.h"
#include "base/map.h"
#include "base/size.h"
#include "format/gguf_mamba2.h"
#include "format/gguf_types.h"
#include "format/json.h"

enum {
    KEY_MAX = 96,
    PAIRS_MAX = 512,
    LIST_MAX = 1024,
    NAME_MAX_TEXT = 63,
    INFO_MIN = 8 + 1 + 4 + 8 + 4 + 8,
    PREVIEW = 40
};

typedef struct {
    const pal_block_format *format;
    const unsigned char *data;
    size_t offset, bytes; /* of the data within all data */
    bool decay;           /* the file holds -exp of what is asked for */
} stored_tensor;

typedef struct {
    const char *path;
    pal_map map;
    bool mamba2;
    const pal_family *family; /* without both: one of our architectures */
    json_t *pairs;            /* numbers and short lists of them */
    size_t count;
    stored_tensor *stored;
    char *names; /* (count, PAL_GGUF_MAPPED_NAME) */
} gguf_file;

static void close_file(void *handle) {
    gguf_file *f = handle;
    pal_map_close(&f->map);
    json_decref(f->pairs);
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

static json_int_t whole_of(uint64_t type, uint64_t bits) {
    return type == PAL_GGUF_I8    ? (int8_t)bits
           : type == PAL_GGUF_I16 ? (int16_t)bits
           : type == PAL_GGUF_I32 ? (int32_t)bits
                                  : (json_int_t)bits;
}

static json_t *number_json(uint64_t type, uint64_t bits) {
    double real;
    memcpy(&real, &bits, sizeof real);
    if (type == PAL_GGUF_BOOL) return json_boolean(bits);
    if (type == PAL_GGUF_F32) return pal_json_number((double)pal_bits_f32((uint32_t)bits));
    return type == PAL_GGUF_F64 ? pal_json_number(real) : json_integer(whole_of(type, bits));
}

/* Keeps a pair that may speak of the model's shape: a number, or a list of whole ones. */
static pal_status keep_pair(gguf_file *f, pal_slice key, const pal_gguf_value *v, pal_error *err) {
    static const int sizes[] = { 1, 1, 2, 2, 4, 4, 0, 1 };
    json_t *value = NULL;
    if (v->type == PAL_GGUF_STRING || key.size > KEY_MAX || (key.size > 10 && memcmp(key.data, "tokenizer.", 10) == 0))
        return PAL_OK;
    if (v->type == PAL_GGUF_ARRAY && v->count <= LIST_MAX && v->element < PAL_COUNT(sizes) && sizes[v->element]) {
        pal_gguf_reader r = { .data = f->map.data, .size = f->map.size, .at = v->at };
        value = json_array();
        for (uint64_t i = 0; i < v->count; i++) {
            const uint64_t bits = pal_gguf_number(&r, (size_t)sizes[v->element]);
            pal_json_append(value, json_integer(whole_of(v->element, bits)));
        }
    } else if (v->type != PAL_GGUF_ARRAY) {
        value = number_json(v->type, v->bits);
    }
    if (!value) return PAL_OK;
    if (json_object_size(f->pairs) >= PAIRS_MAX) {
        json_decref(value);
        return pal_fail(err, PAL_E_FORMAT, "%s: more than %d pairs of metadata", f->path, PAIRS_MAX);
    }
    pal_json_setn(f->pairs, (const char *)key.data, key.size, value);
    return PAL_OK;
}

static pal_status refuse_architecture(const gguf_file *f, pal_slice architecture, pal_error *err) {
    char text[PREVIEW + 1];
    size_t n = 0;
    if (!architecture.size) return pal_fail(err, PAL_E_FORMAT, "%s: general.architecture is missing", f->path);
    for (; n < PREVIEW && n < architecture.size; n++)
        text[n] = (char)(architecture.data[n] < ' ' || architecture.data[n] > '~' ? '?' : architecture.data[n]);
    text[n] = 0;
    return pal_fail(
        err, PAL_E_UNSUPPORTED,
        "%s: the architecture is '%s'%s; of GGUF files, mamba2, granitehybrid, nemotron_h, qwen35, falcon-h1, lfm2 and "
        "those of this program are read",
        f->path, text, n > 3 && strcmp(text + n - 3, "moe") == 0 ? ", a mixture of experts" : "");
}

static pal_status read_pairs(gguf_file *f, pal_gguf_reader *r, pal_gguf_facts *k, uint64_t pairs, pal_error *err) {
    pal_status st;
    char architecture[PREVIEW + 1] = "";
    f->pairs = json_object();
    for (uint64_t i = 0; i < pairs; i++) {
        const pal_slice key = pal_gguf_string(r);
        const pal_gguf_value v = pal_gguf_read(r);
        if (r->bad)
            return pal_fail(err, PAL_E_FORMAT, "%s: the metadata is damaged or cut short in entry %llu of %llu",
                            f->path, (unsigned long long)i, (unsigned long long)pairs);
        if ((st = pal_gguf_take(k, f->path, key, &v, err)) || (st = keep_pair(f, key, &v, err))) return st;
    }
    f->mamba2 = pal_gguf_is(k->architecture, "mamba2");
    if (k->architecture.size <= PREVIEW && k->architecture.size)
        memcpy(architecture, k->architecture.data, k->architecture.size);
    f->family = pal_family_of_gguf(architecture);
    if (!f->mamba2 && !f->family && !is_ours(k->architecture)) return refuse_architecture(f, k->architecture, err);
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
    source->config = pal_json_parse((const char *)k->config.data, k->config.size, JSON_REJECT_DUPLICATES, &why,
                                    &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", source->path);
    if (!json_is_object(source->config))
        return pal_fail(err, PAL_E_FORMAT, "%s: palimpsa.config is not a JSON object%s%s", source->path,
                        source->config ? "" : ": ", source->config ? "" : why.text);
    return PAL_OK;
}

/* The pairs of the family, without the architecture before their keys, and of a few tensors, whether they are there. */
static json_t *family_pairs(const gguf_file *f, const pal_source *source) {
    static const char *const telling[] = { "blk.0.ssm_norm.weight" };
    const size_t length = strlen(f->family->gguf);
    json_t *to = json_object(), *value;
    const char *key;
    json_object_foreach(f->pairs, key, value) if (strncmp(key, f->family->gguf, length) == 0 && key[length] == '.')
        pal_json_set(to, key + length + 1, json_incref(value));
    for (size_t i = 0; i < PAL_COUNT(telling); i++)
        pal_json_set(to, telling[i], json_boolean(pal_source_find(source, telling[i]) != NULL));
    return to;
}

static void set_tiled(json_t *config) {
    json_t *blocks = json_object_get(config, "blocks");
    for (size_t b = 0; b < json_array_size(blocks); b++) {
        json_t *mixer = json_array_get(json_object_get(json_array_get(blocks, b), "mixers"), 0);
        const json_int_t heads = json_integer_value(json_object_get(mixer, "heads"));
        const json_int_t key_heads = json_integer_value(json_object_get(mixer, "key_heads"));
        const char *kind = json_string_value(json_object_get(mixer, "kind"));
        if (kind && strcmp(kind, "gated_deltanet") == 0 && heads > key_heads && key_heads > 1)
            pal_json_set(mixer, "tiled", json_true());
    }
}

static pal_status translate(pal_source *out, const gguf_file *f, const pal_gguf_facts *k, pal_view_use use,
                            pal_error *err) {
    const pal_tensor *embedding = pal_source_find(out, "token_embd.weight");
    json_t *pairs, *theirs = NULL;
    if (!embedding || embedding->rank != 2)
        return pal_fail(err, PAL_E_FORMAT, "%s: token_embd.weight is missing or no matrix", out->path);
    pairs = family_pairs(f, out);
    pal_status st = pal_family_from_gguf(&theirs, f->family, pairs, embedding->shape[0],
                                         pal_source_find(out, "output.weight") != NULL, out->path, err);
    if (!st) st = pal_family_read(&out->config, f->family, theirs, out->path, err);
    json_decref(pairs);
    json_decref(theirs);
    if (st) return st;
    const uint64_t rows = (uint64_t)embedding->shape[0], vocab = pal_gguf_vocabulary(f->map.data, k, rows);
    if (vocab < rows) pal_json_set(out->config, "unpadded_vocab_size", json_integer((json_int_t)vocab));
    if (use == PAL_VIEW_AS_IT_LIES && f->family->inside) set_tiled(out->config);
    out->config = pal_json_whole(out->config);
    if (!out->config) return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", out->path);
    return pal_view_import(out, f->family, true, use, err);
}

pal_status pal_gguf_open(pal_source *out, const char *path, pal_view_use use, pal_error *err) {
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
    if (f->family) return translate(out, f, &k, use, err);
    return f->mamba2 ? pal_gguf_mamba2_config(out, &k, f->map.data, err) : read_config(out, &k, err);
failed:
    close_file(f);
    return st;
}
