/* SPDX-License-Identifier: MIT */
#include "format/gguf_mamba2.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/half.h"
#include "format/gguf.h"
#include "format/json.h"

enum { LAYERS_MAX = 4096 };

static const struct {
    const char *gguf, *ours;
    pal_gguf_shape shape;
} outer_names[] = {
    { "token_embd.weight", "backbone.embeddings.weight", PAL_GGUF_MATRIX },
    { "output.weight", "lm_head.weight", PAL_GGUF_MATRIX },
    { "output_norm.weight", "backbone.norm_f.weight", PAL_GGUF_VECTOR },
}, layer_names[] = {
    { "attn_norm.weight", "norm.weight", PAL_GGUF_VECTOR },
    { "ssm_in.weight", "mixer.in_proj.weight", PAL_GGUF_MATRIX },
    { "ssm_in.bias", "mixer.in_proj.bias", PAL_GGUF_VECTOR },
    { "ssm_conv1d.weight", "mixer.conv1d.weight", PAL_GGUF_TAPS },
    { "ssm_conv1d.bias", "mixer.conv1d.bias", PAL_GGUF_VECTOR },
    { "ssm_dt.bias", "mixer.dt_bias", PAL_GGUF_VECTOR },
    { "ssm_a", "mixer.A_log", PAL_GGUF_DECAY },
    { "ssm_d", "mixer.D", PAL_GGUF_FLAT },
    { "ssm_norm.weight", "mixer.norm.weight", PAL_GGUF_FLAT },
    { "ssm_out.weight", "mixer.out_proj.weight", PAL_GGUF_MATRIX },
    { "ssm_out.bias", "mixer.out_proj.bias", PAL_GGUF_VECTOR },
};

static bool whole(const pal_gguf_value *v, uint64_t *out) {
    const bool sign = v->type == PAL_GGUF_I32 || v->type == PAL_GGUF_I64;
    if (v->type != PAL_GGUF_U32 && v->type != PAL_GGUF_U64 && !sign) return false;
    if (sign && v->bits >> (v->type == PAL_GGUF_I32 ? 31 : 63)) return false;
    *out = v->bits;
    return true;
}

pal_status pal_gguf_take(pal_gguf_facts *k, const char *path, pal_slice key, const pal_gguf_value *v, pal_error *err) {
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
    if (pal_gguf_is(key, "palimpsa.config") && v->type == PAL_GGUF_STRING) k->config = v->text;
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

pal_status pal_gguf_mamba2_check(const pal_gguf_facts *k, const char *path, pal_error *err) {
    const struct {
        const char *name;
        uint64_t value;
    } needed[] = { { "embedding_length", k->embedding }, { "block_count", k->blocks },
                   { "ssm.conv_kernel", k->conv },       { "ssm.inner_size", k->inner },
                   { "ssm.state_size", k->state },       { "ssm.time_step_rank", k->heads } };
    for (size_t i = 0; i < PAL_COUNT(needed); i++)
        if (!needed[i].value) return pal_fail(err, PAL_E_FORMAT, "%s: mamba2.%s is missing or 0", path, needed[i].name);
    if (k->feed_forward)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: mamba2.feed_forward_length is %llu; an MLP in Mamba2 is not supported", path,
                        (unsigned long long)k->feed_forward);
    if (k->inner % k->heads)
        return pal_fail(err, PAL_E_FORMAT,
                        "%s: mamba2.ssm.inner_size %llu is not divided by %llu heads (time_step_rank)", path,
                        (unsigned long long)k->inner, (unsigned long long)k->heads);
    if (k->eps != 0 && !(k->eps > 0 && k->eps < 1))
        return pal_fail(err, PAL_E_FORMAT, "%s: layer_norm_rms_epsilon is %g, expected a small positive number", path,
                        k->eps);
    return PAL_OK;
}

bool pal_gguf_mamba2_name(char out[PAL_GGUF_MAPPED_NAME], pal_gguf_shape *shape, pal_slice name) {
    for (size_t i = 0; i < PAL_COUNT(outer_names); i++)
        if (pal_gguf_is(name, outer_names[i].gguf)) {
            snprintf(out, PAL_GGUF_MAPPED_NAME, "%s", outer_names[i].ours);
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
            snprintf(out, PAL_GGUF_MAPPED_NAME, "backbone.layers.%u.%s", layer, layer_names[i].ours);
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
            *matrix = outer_names[i].shape == PAL_GGUF_MATRIX;
            return true;
        }
    if (sscanf(ours, "backbone.layers.%u.%n", &layer, &used) != 1 || !used) return false;
    for (size_t i = 0; i < PAL_COUNT(layer_names); i++)
        if (strcmp(ours + used, layer_names[i].ours) == 0) {
            snprintf(out, 64, "blk.%u.%s", layer, layer_names[i].gguf);
            *matrix = layer_names[i].shape == PAL_GGUF_MATRIX;
            *decay = layer_names[i].shape == PAL_GGUF_DECAY;
            return true;
        }
    return false;
}

void pal_gguf_mamba2_shape(pal_tensor *t, pal_gguf_shape shape, int rank, const int64_t *dims) {
    const int64_t count = (int64_t)t->count;
    if (shape == PAL_GGUF_TAPS && rank == 2) {
        t->rank = 3;
        t->shape[0] = dims[1], t->shape[1] = 1, t->shape[2] = dims[0];
    } else if (shape == PAL_GGUF_FLAT || shape == PAL_GGUF_DECAY) {
        t->rank = 1;
        t->shape[0] = count;
    } else {
        t->rank = rank;
        for (int i = 0; i < rank; i++) t->shape[i] = dims[rank - 1 - i];
    }
}

uint64_t pal_gguf_vocabulary(const unsigned char *file, const pal_gguf_facts *k, uint64_t rows) {
    uint64_t n = k->tokens.count;
    if (k->unpadded) return k->unpadded;
    if (!n || n != rows) return rows;
    for (; k->kinds.count == k->tokens.count && n > 1; n--) {
        const unsigned char *kind = file + k->kinds.at + 4 * (n - 1);
        if (kind[0] != 5 || kind[1] || kind[2] || kind[3]) break;
    }
    return n;
}

pal_status pal_gguf_mamba2_config(pal_source *source, const pal_gguf_facts *k, const unsigned char *file,
                                  pal_error *err) {
    const pal_tensor *embedding = pal_source_find(source, "backbone.embeddings.weight");
    if (!embedding || embedding->rank != 2)
        return pal_fail(err, PAL_E_FORMAT, "%s: token_embd.weight is missing or no matrix", source->path);
    const json_int_t rows = (json_int_t)embedding->shape[0];
    if ((k->vocab && (json_int_t)k->vocab != rows) || (k->tokens.count && (json_int_t)k->tokens.count != rows))
        return pal_fail(err, PAL_E_FORMAT, "%s: token_embd.weight has %lld rows, the vocabulary %llu tokens",
                        source->path, (long long)rows,
                        (unsigned long long)(k->tokens.count ? k->tokens.count : k->vocab));
    double expand = (double)k->inner / (double)k->embedding;
    if ((uint64_t)((double)k->embedding * expand) != k->inner) expand = nextafter(expand, INFINITY);
    const json_int_t groups = k->groups ? (json_int_t)k->groups : 1;
    json_t *c = source->config = json_object();
    pal_json_set(c, "model_type", json_string("mamba2"));
    pal_json_set(c, "hidden_size", json_integer((json_int_t)k->embedding));
    pal_json_set(c, "num_hidden_layers", json_integer((json_int_t)k->blocks));
    pal_json_set(c, "vocab_size", json_integer(rows));
    const json_int_t vocab = (json_int_t)pal_gguf_vocabulary(file, k, (uint64_t)rows);
    if (vocab != rows) pal_json_set(c, "unpadded_vocab_size", json_integer(vocab));
    pal_json_set(c, "state_size", json_integer((json_int_t)k->state));
    pal_json_set(c, "num_heads", json_integer((json_int_t)k->heads));
    pal_json_set(c, "head_dim", json_integer((json_int_t)(k->inner / k->heads)));
    pal_json_set(c, "n_groups", json_integer(groups));
    pal_json_set(c, "norm_groups", json_integer(groups));
    pal_json_set(c, "expand", json_real(expand));
    pal_json_set(c, "conv_kernel", json_integer((json_int_t)k->conv));
    pal_json_set(c, "use_bias", json_boolean(pal_source_find(source, "backbone.layers.0.mixer.in_proj.bias") != NULL));
    pal_json_set(c, "use_conv_bias",
                 json_boolean(pal_source_find(source, "backbone.layers.0.mixer.conv1d.bias") != NULL));
    pal_json_set(c, "layer_norm_epsilon",
                 json_real(k->eps > 0 ? (double)(float)k->eps == (double)1e-5f ? 1e-5 : k->eps : 1e-5));
    pal_json_set(c, "tie_word_embeddings", json_boolean(pal_source_find(source, "lm_head.weight") == NULL));
    source->config = pal_json_whole(c);
    return source->config ? PAL_OK : pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", source->path);
}
