/* SPDX-License-Identifier: MIT */
#include "infer/frames.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "format/json.h"
#include "model/model.h"
#include "model/state.h"
#include "text/json_text.h"
#include "text/utf8.h"

void pal_look_free(pal_look *look) {
    pal_watch *w = &look->watch;
    pal_free(w->tiles), pal_free(w->writes), pal_free(w->windows), pal_free(w->variances);
    pal_free(w->followed), pal_free(w->scratch);
    pal_free(look->floats), pal_free(look->halves);
    *look = (pal_look){ 0 };
}

bool pal_look_make(pal_look *look, const pal_model *model, bool tiles) {
    int most_heads, dk, dv;
    pal_model_widest(&model->config, &most_heads, &dk, &dv);
    const size_t layers = (size_t)model->config.layers, heads = (size_t)most_heads, elements = (size_t)dk * (size_t)dv;
    const size_t most = heads * elements < PAL_LARGEST_MAP ? heads * elements : PAL_LARGEST_MAP;
    pal_watch *w = &look->watch;
    *look = (pal_look){ 0 };
    look->floats = pal_alloc(3 * elements + 2 * heads, sizeof(float));
    look->halves = pal_alloc(2 * most, sizeof(uint16_t));
    w->tokens = PAL_LONGEST_PIECE;
    w->followed = pal_alloc((size_t)PAL_LONGEST_PIECE * PAL_ELEMENTS * 2, sizeof(float));
    w->variances = pal_alloc(PAL_LONGEST_PIECE * layers, sizeof(float)); /* tokens of a prompt say theirs, always */
    w->scratch = pal_alloc(pal_watch_bytes(model), 1);
    if (tiles) {
        w->tiles = pal_alloc(layers, sizeof *w->tiles);
        w->writes = pal_alloc(layers * heads, sizeof(float));
        w->windows = pal_alloc(PAL_LONGEST_PIECE * layers, sizeof(float));
        if (!w->tiles || !w->writes || !w->windows) return false;
    }
    return look->floats && look->halves && w->followed && w->scratch && w->variances;
}

static bool put(pal_bytes *to, const char *text) { return !pal_bytes_append(to, text, strlen(text), NULL); }

static bool put_base64(pal_bytes *to, const void *data, size_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = data;
    if (pal_bytes_reserve(to, (size + 2) / 3 * 4, NULL)) return false;
    unsigned char *out = to->data + to->size;
    for (size_t i = 0; i < size; i += 3, out += 4) {
        const uint32_t a = in[i], b = i + 1 < size ? in[i + 1] : 0, c = i + 2 < size ? in[i + 2] : 0;
        const uint32_t three = a << 16 | b << 8 | c;
        out[0] = (unsigned char)digits[three >> 18];
        out[1] = (unsigned char)digits[three >> 12 & 63];
        out[2] = (unsigned char)(i + 1 < size ? digits[three >> 6 & 63] : '=');
        out[3] = (unsigned char)(i + 2 < size ? digits[three & 63] : '=');
    }
    to->size = (size_t)(out - to->data);
    return true;
}

static bool put_floats(pal_bytes *to, const char *name, const float *x, size_t n) {
    return put(to, ",\"") && put(to, name) && put(to, "\":\"") && put_base64(to, x, n * sizeof *x) && put(to, "\"");
}

static bool put_event(pal_bytes *to, json_t *value) {
    char *text = pal_json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(value);
    const bool done = text && put(to, "data: ") && put(to, text) && put(to, "\n\n");
    free(text);
    return done;
}

static json_t *token_text(const pal_tokenizer *tok, int32_t id) {
    const pal_slice text = pal_tokenizer_text(tok, (uint32_t)id);
    return pal_json_bytes(text.data, text.size);
}

/* A layer as a client needs to know it before the first frame. */
static json_t *layer_json(const pal_model *model, int i) {
    const pal_block_spec *block = pal_model_block(&model->config, i);
    const pal_mixer_spec *m = block->mixers ? &block->mixer[0] : NULL;
    const bool memory = pal_model_memory(&model->config, i) != NULL;
    const pal_layer *layer = &model->layers[i];
    const pal_memory_rule *rule = layer->rule;
    const unsigned inputs = memory ? pal_memory_inputs_of(rule) : 0;
    const bool importance = memory && pal_memory_importance_part(rule) >= 0;
    const bool sized = rule != NULL; /* keys and values, or a cache of them */
    json_t *parts = json_array(), *prior = importance ? json_array() : json_null(), *mixers = json_array();
    for (int k = 0; k < block->mixers; k++) pal_json_append(mixers, json_string(pal_mixer_name(block->mixer[k].kind)));
    if (memory) pal_json_append(parts, json_string(pal_memory_part_name(rule, pal_memory_mean_part(rule))));
    if (importance) pal_json_append(parts, json_string("I"));
    for (int h = 0; importance && h < m->heads; h++)
        pal_json_append(prior, pal_json_number((double)expf(layer->w[PAL_W_IP_LOG][h])));
    return json_pack("{s:s, s:o, s:i, s:i, s:i, s:o, s:b, s:b, s:b, s:o}", "rule",
                     pal_model_layer_rule(&model->config, i), "mixers", mixers, "heads", sized ? m->heads : 0, "keys",
                     sized ? m->dk : 0, "values", sized ? m->dv : 0, "parts", parts, "importance", importance, "window",
                     (inputs & (PAL_INPUT_DT | PAL_INPUT_G | PAL_INPUT_GK)) != 0, "variance",
                     memory && pal_memory_has_variance(rule), "prior", prior);
}

bool pal_frame_start(pal_bytes *to, const pal_bundle *m, const char *id, const char *name, int64_t position,
                     const uint32_t *ids, size_t count) {
    json_t *layers = json_array(), *prompt = json_array();
    static const char *const names[] = { "i_min", "i_q05",  "i_q25", "i_q50", "i_q75", "i_q95",
                                         "i_max", "window", "ratio", "write", "norm",  "variance" };
    json_t *fields = json_array();
    for (size_t i = 0; i < PAL_COUNT(names); i++) pal_json_append(fields, json_string(names[i]));
    for (int i = 0; i < m->model->config.layers; i++) pal_json_append(layers, layer_json(m->model, i));
    for (size_t i = 0; i < count; i++)
        pal_json_append(prompt, json_pack("[i, o]", (int)ids[i], token_text(m->tokenizer, (int32_t)ids[i])));
    return put_event(to, json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o}", "type", "start", "id", id, "model", name,
                                   "position", (json_int_t)position, "prompt", prompt, "layers", layers, "tile_fields",
                                   fields));
}

/* Whether bytes are whole characters of UTF-8. */
static bool is_text(pal_slice s) {
    for (size_t i = 0, n; i < s.size; i += n) {
        uint32_t code;
        if (!(n = pal_utf8_read(s.data + i, s.size - i, &code))) return false;
    }
    return true;
}

bool pal_frame_token(pal_bytes *to, const pal_bundle *m, const pal_token *token, int64_t index) {
    const pal_slice own = pal_tokenizer_text(m->tokenizer, (uint32_t)token->id);
    pal_bytes bytes = { 0 };
    json_t *top = json_array();
    for (int i = 0; i < token->top_count; i++)
        pal_json_append(top, json_pack("[i, o, o]", (int)token->top[i].id, token_text(m->tokenizer, token->top[i].id),
                                       pal_json_number(token->top[i].logprob)));
    json_t *root = json_pack("{s:s, s:I, s:i, s:o, s:b, s:o, s:o, s:o}", "type", "token", "index", (json_int_t)index,
                             "id", (int)token->id, "text", token_text(m->tokenizer, token->id), "prompt", token->prompt,
                             "logprob", pal_json_number(token->logprob), "top", top, "variance",
                             pal_json_number(token->variance));
    bool done = true;
    if (!is_text(own) && (done = put_base64(&bytes, own.data, own.size)))
        pal_json_set(root, "bytes", json_stringn((const char *)bytes.data, bytes.size));
    pal_bytes_free(&bytes);
    return put_event(to, root) && done;
}

bool pal_frame_tiles(pal_bytes *to, const pal_model *model, const pal_watch *watch, int64_t from, int64_t position) {
    const pal_model_config *c = pal_model_config_of(model);
    const size_t layers = (size_t)c->layers, tokens = (size_t)(position - from);
    int heads;
    pal_model_widest(c, &heads, NULL, NULL);
    char head[128];
    if (!watch->tiles && !watch->element_count) return true;
    snprintf(head, sizeof head, "data: {\"type\":\"tiles\",\"from\":%lld,\"position\":%lld", (long long)from,
             (long long)position);
    bool done = put(to, head);
    if (watch->tiles)
        done = done &&
               put_floats(to, "tiles", (const float *)watch->tiles, layers * sizeof(pal_tile) / sizeof(float)) &&
               put_floats(to, "write", watch->writes, layers * (size_t)heads) &&
               put_floats(to, "window", watch->windows, tokens * layers) &&
               put_floats(to, "variance", watch->variances, tokens * layers);
    if (watch->element_count)
        done = done && put_floats(to, "elements", watch->followed, tokens * (size_t)watch->element_count * 2);
    return done && put(to, "}\n\n");
}

/* One number for a block of rows x columns: its mean, or what is largest. x is (values, keys). */
static float reduce(const float *x, size_t dk, const size_t keys[2], const size_t values[2], bool mean) {
    double sum = 0;
    float most = 0;
    for (size_t i = values[0]; i < values[1]; i++)
        for (size_t j = keys[0]; j < keys[1]; j++) {
            const float one = x[i * dk + j];
            sum += (double)one;
            if (fabsf(one) > fabsf(most)) most = one;
        }
    return mean ? (float)(sum / (double)((keys[1] - keys[0]) * (values[1] - values[0]))) : most;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* One head as f16 times a scale, keys by values. */
static float shrink(const float *x, size_t dk, size_t dv, const size_t block[2], bool mean, float *shown,
                    uint16_t *out) {
    const size_t rows = (dk + block[0] - 1) / block[0], columns = (dv + block[1] - 1) / block[1];
    float scale = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            const size_t keys[2] = { r * block[0], smaller((r + 1) * block[0], dk) };
            const size_t values[2] = { c * block[1], smaller((c + 1) * block[1], dv) };
            const float one = reduce(x, dk, keys, values, mean);
            shown[r * columns + c] = one;
            if (isfinite(one)) scale = fmaxf(scale, fabsf(one));
        }
    for (size_t i = 0; i < rows * columns; i++) out[i] = pal_f32_to_f16(scale > 0 ? shown[i] / scale : shown[i]);
    return scale;
}

static bool put_scales(pal_bytes *to, const char *name, const float *scales, const uint16_t *data, int heads,
                       size_t each) {
    char number[32];
    bool done = put(to, ",\"") && put(to, name) && put(to, "\":{\"scale\":[");
    for (int h = 0; h < heads && done; h++) {
        snprintf(number, sizeof number, "%s%.9g", h ? "," : "", (double)scales[h]);
        done = put(to, number);
    }
    return done && put(to, "],\"data\":\"") && put_base64(to, data, (size_t)heads * each * sizeof *data) &&
           put(to, "\"}");
}

bool pal_frame_map(pal_bytes *to, const pal_state *state, const pal_map_view *v, pal_look *look) {
    const pal_model *model = state->model;
    const pal_mixer_spec *memory = pal_model_memory(&model->config, v->layer);
    const size_t dk = (size_t)memory->dk, dv = (size_t)memory->dv, size = (size_t)v->size;
    const size_t block[2] = { (dk + size - 1) / size, (dv + size - 1) / size };
    const size_t rows = (dk + block[0] - 1) / block[0], columns = (dv + block[1] - 1) / block[1], each = rows * columns;
    const bool importance = pal_memory_importance_part(model->layers[v->layer].rule) >= 0;
    float *x = look->floats, *shown = x + 2 * dk * dv, *scales = shown + dk * dv;
    uint16_t *data = look->halves, *more = data + (size_t)v->head_count * each;
    char text[400];
    for (int h = 0; h < v->head_count; h++) {
        if (pal_state_export_head(state, v->layer, v->heads[h], x, x + dk * dv, NULL)) return false;
        scales[h] = shrink(x, dk, dv, block, v->mean, shown, data + (size_t)h * each);
        if (importance)
            scales[v->head_count + h] = shrink(x + dk * dv, dk, dv, block, v->mean, shown, more + (size_t)h * each);
    }
    snprintf(text, sizeof text, "data: {\"type\":\"map\",\"position\":%lld,\"layer\":%d,\"heads\":[",
             (long long)pal_state_position(state), v->layer);
    bool done = put(to, text);
    for (int h = 0; h < v->head_count && done; h++) {
        snprintf(text, sizeof text, "%s%d", h ? "," : "", v->heads[h]);
        done = put(to, text);
    }
    const char *how = block[0] * block[1] == 1 ? "none" : v->mean ? "mean" : "max";
    snprintf(text, sizeof text, "],\"shape\":[%zu,%zu],\"shown\":[%zu,%zu],\"block\":[%zu,%zu],\"reduce\":\"%s\"", dk,
             dv, rows, columns, block[0], block[1], how);
    done = done && put(to, text) && put_scales(to, "mean", scales, data, v->head_count, each);
    if (importance) done = done && put_scales(to, "importance", scales + v->head_count, more, v->head_count, each);
    else done = done && put(to, ",\"importance\":null");
    return done && put(to, "}\n\n");
}

json_t *pal_model_json(const pal_bundle *m) {
    const pal_model_config *c = pal_model_config_of(m->model);
    char kind[64];
    int heads, keys, values;
    json_t *rules = json_array();
    pal_model_describe(c, kind);
    pal_model_widest(c, &heads, &keys, &values);
    for (int i = 0; i < c->layers; i++) pal_json_append(rules, json_string(pal_model_layer_rule(c, i)));
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:o, s:b}", "kind", kind, "tokenizer",
                     pal_tokenizer_kind(m->tokenizer), "vocabulary", c->vocab, "layers", c->layers, "heads", heads,
                     "keys", keys, "values", values, "rules", rules, "recall", c->mqar);
}

static bool add_layer(void *user, const pal_attribution *a) {
    json_t *heads = json_array();
    for (int h = 0; h < a->heads; h++) {
        json_t *shares = json_array();
        for (int t = 0; t < a->tokens; t++)
            pal_json_append(shares, pal_json_number((double)a->shares[t * a->heads + h]));
        pal_json_append(heads, shares);
    }
    pal_json_append(user, json_pack("{s:i, s:s, s:o, s:o}", "layer", a->layer, "rule", a->rule, "error",
                                    pal_json_number(a->error), "shares", heads));
    return true;
}

pal_status pal_attribution_json(json_t **out, const pal_model *model, const pal_context *cx, const int32_t *ids,
                                int count, pal_error *err) {
    json_t *layers = json_array();
    const pal_status st = pal_model_attribute(model, cx, ids, count, PAL_EVERY_LAYER, add_layer, layers, err);
    *out = st ? NULL : json_pack("{s:i, s:O}", "tokens", count, "layers", layers);
    json_decref(layers);
    return st;
}
