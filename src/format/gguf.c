/* SPDX-License-Identifier: MIT */
/* A GGUF file of architecture mamba2, turned into a Hugging Face Mamba2: tensors get their names and shapes, A_log is
 * taken back out of -exp(A_log), and the metadata becomes a configuration. */
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
#include "format/gguf_types.h"
#include "format/gguf_values.h"

enum { NAME_MAX_TEXT = 63, MAPPED_NAME = 96, LAYERS_MAX = 4096, INFO_MIN = 8 + 1 + 4 + 8 + 4 + 8, PREVIEW = 40 };

/* How the extents of a tensor, listed fastest first, become ours. */
typedef enum { VECTOR, MATRIX, TAPS, FLAT, DECAY } shape_kind;
static const struct {
    const char *gguf, *ours;
    shape_kind shape;
} outer_names[] = {
    { "token_embd.weight", "backbone.embeddings.weight", MATRIX },
    { "output.weight", "lm_head.weight", MATRIX },
    { "output_norm.weight", "backbone.norm_f.weight", VECTOR },
}, layer_names[] = {
    { "attn_norm.weight", "norm.weight", VECTOR },
    { "ssm_in.weight", "mixer.in_proj.weight", MATRIX },
    { "ssm_in.bias", "mixer.in_proj.bias", VECTOR },
    { "ssm_conv1d.weight", "mixer.conv1d.weight", TAPS },
    { "ssm_conv1d.bias", "mixer.conv1d.bias", VECTOR },
    { "ssm_dt.bias", "mixer.dt_bias", VECTOR },
    { "ssm_a", "mixer.A_log", DECAY },
    { "ssm_d", "mixer.D", FLAT },
    { "ssm_norm.weight", "mixer.norm.weight", FLAT },
    { "ssm_out.weight", "mixer.out_proj.weight", MATRIX },
    { "ssm_out.bias", "mixer.out_proj.bias", VECTOR },
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
    size_t count;
    stored_tensor *stored;
    char *names; /* (count, MAPPED_NAME) */
} gguf_file;

/* What the pairs say; 0 where they say nothing. */
typedef struct {
    pal_slice architecture;
    uint64_t alignment, embedding, blocks, feed_forward, conv, inner, state, heads, groups, vocab, unpadded;
    double eps;
    pal_gguf_value tokens, kinds;
} facts;

static void close_file(void *handle) {
    gguf_file *f = handle;
    pal_map_close(&f->map);
    pal_free(f->stored);
    pal_free(f->names);
    pal_free(f);
}

static pal_status read_values(const void *handle, size_t index, size_t first, size_t count, float *to, pal_error *err) {
    (void)err;
    const gguf_file *f = handle;
    const stored_tensor *t = &f->stored[index];
    float block[PAL_BLOCK_VALUES_MAX];
    size_t at = 0;
    while (at < count) {
        const size_t number = (first + at) / t->format->values, inside = (first + at) % t->format->values;
        const size_t n = count - at < t->format->values - inside ? count - at : t->format->values - inside;
        const unsigned char *bytes = t->data + number * t->format->bytes;
        t->format->decode(bytes, block);
        for (size_t i = 0; i < n; i++) to[at + i] = t->decay ? logf(-block[inside + i]) : block[inside + i];
        at += n;
    }
    return PAL_OK;
}

static bool whole(const pal_gguf_value *v, uint64_t *out) {
    const bool sign = v->type == PAL_GGUF_I32 || v->type == PAL_GGUF_I64;
    if (v->type != PAL_GGUF_U32 && v->type != PAL_GGUF_U64 && !sign) return false;
    if (sign && v->bits >> (v->type == PAL_GGUF_I32 ? 31 : 63)) return false;
    *out = v->bits;
    return true;
}

static pal_status take(facts *k, const char *path, pal_slice key, const pal_gguf_value *v, pal_error *err) {
    const struct {
        const char *name;
        uint64_t *to;
    } wanted[] = {
        { "general.alignment", &k->alignment },
        { "mamba2.embedding_length", &k->embedding },
        { "mamba2.block_count", &k->blocks },
        { "mamba2.feed_forward_length", &k->feed_forward },
        { "mamba2.ssm.conv_kernel", &k->conv },
        { "mamba2.ssm.inner_size", &k->inner },
        { "mamba2.ssm.state_size", &k->state },
        { "mamba2.ssm.time_step_rank", &k->heads },
        { "mamba2.ssm.group_count", &k->groups },
        { "mamba2.vocab_size", &k->vocab },
        { "palimpsa.unpadded_vocab_size", &k->unpadded },
    };
    if (pal_gguf_is(key, "general.architecture") && v->type == PAL_GGUF_STRING) k->architecture = v->text;
    if (pal_gguf_is(key, "tokenizer.ggml.tokens") && v->type == PAL_GGUF_ARRAY && v->element == PAL_GGUF_STRING)
        k->tokens = *v;
    if (pal_gguf_is(key, "tokenizer.ggml.token_type") && v->type == PAL_GGUF_ARRAY && v->element == PAL_GGUF_I32)
        k->kinds = *v;
    if (pal_gguf_is(key, "mamba2.attention.layer_norm_rms_epsilon")) {
        if (v->type != PAL_GGUF_F32)
            return pal_fail(err, PAL_E_FORMAT, "%s: mamba2.attention.layer_norm_rms_epsilon is not an f32", path);
        k->eps = pal_bits_f32((uint32_t)v->bits);
    }
    for (size_t i = 0; i < PAL_COUNT(wanted); i++) {
        if (!pal_gguf_is(key, wanted[i].name)) continue;
        if (!whole(v, wanted[i].to) || *wanted[i].to > 1 << 30)
            return pal_fail(err, PAL_E_FORMAT, "%s: %s is not a whole number up to 2^30", path, wanted[i].name);
    }
    return PAL_OK;
}

static pal_status read_pairs(const gguf_file *f, pal_gguf_reader *r, facts *k, uint64_t pairs, pal_error *err) {
    pal_status st;
    for (uint64_t i = 0; i < pairs; i++) {
        const pal_slice key = pal_gguf_string(r);
        const pal_gguf_value v = pal_gguf_read(r);
        if (r->bad)
            return pal_fail(err, PAL_E_FORMAT, "%s: the metadata is damaged or cut short in entry %llu of %llu",
                            f->path, (unsigned long long)i, (unsigned long long)pairs);
        if ((st = take(k, f->path, key, &v, err))) return st;
    }
    if (!pal_gguf_is(k->architecture, "mamba2")) {
        if (!k->architecture.size) return pal_fail(err, PAL_E_FORMAT, "%s: general.architecture is missing", f->path);
        char text[PREVIEW + 1];
        size_t n = 0;
        for (; n < PREVIEW && n < k->architecture.size; n++)
            text[n] = (char)(k->architecture.data[n] < ' ' || k->architecture.data[n] > '~' ? '?'
                                                                                            : k->architecture.data[n]);
        text[n] = 0;
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: the architecture is '%s'; of GGUF files, mamba2 is read", f->path,
                        text);
    }
    if (!k->alignment) k->alignment = 32;
    if (k->alignment & (k->alignment - 1) || k->alignment < 8 || k->alignment > 1 << 20)
        return pal_fail(err, PAL_E_FORMAT, "%s: general.alignment is %llu, expected a power of two from 8 to 2^20",
                        f->path, (unsigned long long)k->alignment);
    const struct {
        const char *name;
        uint64_t value;
    } needed[] = { { "embedding_length", k->embedding }, { "block_count", k->blocks },
                   { "ssm.conv_kernel", k->conv },       { "ssm.inner_size", k->inner },
                   { "ssm.state_size", k->state },       { "ssm.time_step_rank", k->heads } };
    for (size_t i = 0; i < PAL_COUNT(needed); i++)
        if (!needed[i].value)
            return pal_fail(err, PAL_E_FORMAT, "%s: mamba2.%s is missing or 0", f->path, needed[i].name);
    if (k->feed_forward)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: mamba2.feed_forward_length is %llu; an MLP in Mamba2 is not supported", f->path,
                        (unsigned long long)k->feed_forward);
    if (k->inner % k->heads)
        return pal_fail(err, PAL_E_FORMAT,
                        "%s: mamba2.ssm.inner_size %llu is not divided by %llu heads (time_step_rank)", f->path,
                        (unsigned long long)k->inner, (unsigned long long)k->heads);
    if (k->eps != 0 && !(k->eps > 0 && k->eps < 1))
        return pal_fail(err, PAL_E_FORMAT, "%s: layer_norm_rms_epsilon is %g, expected a small positive number",
                        f->path, k->eps);
    return PAL_OK;
}

/* Our name of a tensor, or false. */
static bool map_name(char out[MAPPED_NAME], shape_kind *shape, pal_slice name) {
    for (size_t i = 0; i < PAL_COUNT(outer_names); i++)
        if (pal_gguf_is(name, outer_names[i].gguf)) {
            snprintf(out, MAPPED_NAME, "%s", outer_names[i].ours);
            *shape = outer_names[i].shape;
            return true;
        }
    if (name.size < 7 || memcmp(name.data, "blk.", 4) != 0) return false;
    size_t at = 4;
    unsigned layer = 0;
    for (; at < name.size && name.data[at] >= '0' && name.data[at] <= '9' && layer < LAYERS_MAX; at++)
        layer = 10 * layer + (name.data[at] - '0');
    if (at == 4 || at >= name.size || name.data[at] != '.' || layer >= LAYERS_MAX || (name.data[4] == '0' && at != 5))
        return false;
    const pal_slice rest = { name.data + at + 1, name.size - at - 1 };
    for (size_t i = 0; i < PAL_COUNT(layer_names); i++)
        if (pal_gguf_is(rest, layer_names[i].gguf)) {
            snprintf(out, MAPPED_NAME, "backbone.layers.%u.%s", layer, layer_names[i].ours);
            *shape = layer_names[i].shape;
            return true;
        }
    return false;
}

bool pal_gguf_name_of(char out[64], bool *matrix, bool *decay, const char *ours) {
    unsigned layer;
    int used = 0;
    *decay = false;
    if (strcmp(ours, "backbone.embedding.weight") == 0) ours = "backbone.embeddings.weight";
    for (size_t i = 0; i < PAL_COUNT(outer_names); i++)
        if (strcmp(ours, outer_names[i].ours) == 0) {
            snprintf(out, 64, "%s", outer_names[i].gguf);
            *matrix = outer_names[i].shape == MATRIX;
            return true;
        }
    if (sscanf(ours, "backbone.layers.%u.%n", &layer, &used) != 1 || !used) return false;
    for (size_t i = 0; i < PAL_COUNT(layer_names); i++)
        if (strcmp(ours + used, layer_names[i].ours) == 0) {
            snprintf(out, 64, "blk.%u.%s", layer, layer_names[i].gguf);
            *matrix = layer_names[i].shape == MATRIX;
            *decay = layer_names[i].shape == DECAY;
            return true;
        }
    return false;
}

/* Extents as we list them, slowest first. A contradiction with the configuration is found when the model is built. */
static void set_shape(pal_tensor *t, shape_kind shape, int rank, const int64_t *dims) {
    const int64_t count = (int64_t)t->count;
    if (shape == TAPS && rank == 2) {
        t->rank = 3;
        t->shape[0] = dims[1], t->shape[1] = 1, t->shape[2] = dims[0];
    } else if (shape == FLAT || shape == DECAY) {
        t->rank = 1;
        t->shape[0] = count;
    } else {
        t->rank = rank;
        for (int i = 0; i < rank; i++) t->shape[i] = dims[rank - 1 - i];
    }
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
    char *mapped = f->names + index * MAPPED_NAME;
    shape_kind shape = VECTOR;
    if (name.size > NAME_MAX_TEXT || !map_name(mapped, &shape, name))
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' does not belong to the architecture mamba2", f->path,
                        shown);
    if (count == PAL_TOO_LARGE)
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s': its dimensions cannot be", f->path, shown);
    const pal_block_format *format = pal_block_format_of_ggml(type);
    if (!format) {
        const char *known = pal_gguf_type_name(type);
        if (known)
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "%s: tensor '%s' is %s; F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K are read", f->path, shown,
                            known);
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' has type %llu, which does not exist", f->path, shown,
                        (unsigned long long)type);
    }
    if ((size_t)dims[0] % format->values)
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' is %s in rows of %lld values, expected a multiple of %zu",
                        f->path, shown, format->name, (long long)dims[0], format->values);
    const size_t bytes = pal_size_mul(count / format->values, format->bytes);
    if (!pal_size_inside(offset, bytes, f->map.size))
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' needs more bytes than the file has", f->path, shown);
    *out = (pal_tensor){ .name = mapped, .count = count, .dtype = format->values > 1 ? PAL_F32 : format->type };
    set_shape(out, shape, (int)rank, dims);
    f->stored[index] =
        (stored_tensor){ .format = format, .offset = (size_t)offset, .bytes = bytes, .decay = shape == DECAY };
    if (shape == DECAY) out->dtype = PAL_F32;
    return PAL_OK;
}

static pal_status read_tensors(gguf_file *f, pal_gguf_reader *r, const facts *k, pal_source *source, pal_error *err) {
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
        pal_source_add(source, &t, i, f->stored[i].format->name);
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
                return pal_fail(err, PAL_E_FORMAT, "%s: the padding behind '%s' is not zero", f->path, t->name);
        t->data = s->decay || s->format->values > 1 ? NULL : s->data;
    }
    if (room > end) return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes follow the last tensor", f->path, room - end);
    return PAL_OK;
}

/* Tokens at the end that are marked unused are padding of the embedding. */
static uint64_t vocabulary(const gguf_file *f, const facts *k, uint64_t rows) {
    uint64_t n = k->tokens.count;
    if (k->unpadded) return k->unpadded;
    if (!n || n != rows) return rows;
    for (; k->kinds.count == k->tokens.count && n > 1; n--) {
        const unsigned char *kind = f->map.data + k->kinds.at + 4 * (n - 1);
        if (kind[0] != 5 || kind[1] || kind[2] || kind[3]) break;
    }
    return n;
}

static pal_status make_config(const gguf_file *f, const facts *k, pal_source *source, pal_error *err) {
    const pal_tensor *embedding = pal_source_find(source, "backbone.embeddings.weight");
    if (!embedding || embedding->rank != 2)
        return pal_fail(err, PAL_E_FORMAT, "%s: token_embd.weight is missing or no matrix", f->path);
    const json_int_t rows = (json_int_t)embedding->shape[0];
    if ((k->vocab && (json_int_t)k->vocab != rows) || (k->tokens.count && (json_int_t)k->tokens.count != rows))
        return pal_fail(err, PAL_E_FORMAT, "%s: token_embd.weight has %lld rows, the vocabulary %llu tokens", f->path,
                        (long long)rows, (unsigned long long)(k->tokens.count ? k->tokens.count : k->vocab));
    double expand = (double)k->inner / (double)k->embedding;
    if ((uint64_t)((double)k->embedding * expand) != k->inner) expand = nextafter(expand, INFINITY);
    const json_int_t groups = k->groups ? (json_int_t)k->groups : 1;
    json_t *c = source->config = json_object();
    json_object_set_new(c, "model_type", json_string("mamba2"));
    json_object_set_new(c, "hidden_size", json_integer((json_int_t)k->embedding));
    json_object_set_new(c, "num_hidden_layers", json_integer((json_int_t)k->blocks));
    json_object_set_new(c, "vocab_size", json_integer(rows));
    const json_int_t vocab = (json_int_t)vocabulary(f, k, (uint64_t)rows);
    if (vocab != rows) json_object_set_new(c, "unpadded_vocab_size", json_integer(vocab));
    json_object_set_new(c, "state_size", json_integer((json_int_t)k->state));
    json_object_set_new(c, "num_heads", json_integer((json_int_t)k->heads));
    json_object_set_new(c, "head_dim", json_integer((json_int_t)(k->inner / k->heads)));
    json_object_set_new(c, "n_groups", json_integer(groups));
    json_object_set_new(c, "norm_groups", json_integer(groups));
    json_object_set_new(c, "expand", json_real(expand));
    json_object_set_new(c, "conv_kernel", json_integer((json_int_t)k->conv));
    json_object_set_new(c, "use_bias",
                        json_boolean(pal_source_find(source, "backbone.layers.0.mixer.in_proj.bias") != NULL));
    json_object_set_new(c, "use_conv_bias",
                        json_boolean(pal_source_find(source, "backbone.layers.0.mixer.conv1d.bias") != NULL));
    json_object_set_new(c, "layer_norm_epsilon",
                        json_real(k->eps > 0 ? (double)(float)k->eps == (double)1e-5f ? 1e-5 : k->eps : 1e-5));
    json_object_set_new(c, "tie_word_embeddings", json_boolean(pal_source_find(source, "lm_head.weight") == NULL));
    return c ? PAL_OK : pal_fail(err, PAL_E_MEMORY, "no memory to open %s", f->path);
}

pal_status pal_gguf_open(pal_source *out, const char *path, pal_error *err) {
    pal_status st;
    void *block;
    out->format = "gguf";
    if (!(out->path = pal_strdup(path))) return pal_fail(err, PAL_E_MEMORY, "no memory to open %s", path);
    if ((st = pal_alloc_named(&block, 1, sizeof(gguf_file), "a GGUF file", err))) return st;
    gguf_file *f = block;
    const pal_part part = { .handle = f, .read = read_values, .close = close_file };
    facts k = { 0 };
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
    f->names = pal_alloc(f->count + 1, MAPPED_NAME);
    if (!f->stored || !f->names) {
        st = pal_fail(err, PAL_E_MEMORY, "no memory for the tensors of %s", path);
        goto failed;
    }
    if ((st = pal_source_add_part(out, &part, f->count, err))) goto failed;
    if ((st = read_tensors(f, &r, &k, out, err)) || (st = pal_source_sort(out, err))) return st;
    return make_config(f, &k, out, err);
failed:
    close_file(f);
    return st;
}
