/* SPDX-License-Identifier: MIT */
#include "format/families/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "format/json.h"

enum { FOUND = 48, SIZE_MOST = 1 << 30, LAYERS_MOST = 1024 };

#define LISTED(name) &pal_family_##name,
static const pal_family *const families[] = { PAL_FAMILIES(LISTED) };

const pal_family *pal_family_of(const json_t *config) {
    const char *type = json_string_value(json_object_get(config, "model_type"));
    for (size_t i = 0; i < PAL_COUNT(families) && type; i++)
        for (size_t k = 0; k < PAL_COUNT(families[i]->model_types); k++)
            if (families[i]->model_types[k] && strcmp(families[i]->model_types[k], type) == 0) return families[i];
    return NULL;
}

const pal_family *pal_family_of_gguf(const char *architecture) {
    for (size_t i = 0; i < PAL_COUNT(families); i++)
        if (families[i]->gguf && strcmp(families[i]->gguf, architecture) == 0) return families[i];
    return NULL;
}

const json_t *pal_family_value(const pal_family_reader *r, const char *key) {
    const json_t *value = json_object_get(r->config, key);
    if (!value) value = json_object_get(r->defaults, key);
    return json_is_null(value) ? NULL : value;
}

static void refuse_value(pal_family_reader *r, const char *key, const json_t *value, const char *expected) {
    if (r->st) return;
    char *text = value ? pal_json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    const bool unsaid = !json_object_get(r->config, key);
    r->st = pal_fail(r->err, PAL_E_UNSUPPORTED, "%s: %s%s is %s%.*s, expected %s", r->path, r->where, key,
                     text && unsaid ? "absent, which means " : "", FOUND, text ? text : "absent", expected);
    free(text);
}

void pal_family_refuse(pal_family_reader *r, const char *key, const char *expected) {
    refuse_value(r, key, pal_family_value(r, key), expected);
}

static bool is_size(const json_t *value) {
    return json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= SIZE_MOST;
}

int64_t pal_family_size(pal_family_reader *r, const char *key) {
    const json_t *value = pal_family_value(r, key);
    if (!is_size(value)) refuse_value(r, key, value, "a whole number from 1 to 2^30");
    return is_size(value) ? json_integer_value(value) : 1;
}

int64_t pal_family_size_or(pal_family_reader *r, const char *key, int64_t fallback) {
    return pal_family_value(r, key) ? pal_family_size(r, key) : fallback;
}

double pal_family_real(pal_family_reader *r, const char *key) {
    const json_t *value = pal_family_value(r, key);
    if (!json_is_number(value)) refuse_value(r, key, value, "a number");
    return json_number_value(value);
}

double pal_family_factor(pal_family_reader *r, const char *key) {
    const double x = pal_family_real(r, key);
    if (!(fabs(x) > 0)) pal_family_refuse(r, key, "a number other than 0");
    return x;
}

bool pal_family_flag(pal_family_reader *r, const char *key) {
    const json_t *value = pal_family_value(r, key);
    if (!json_is_boolean(value)) refuse_value(r, key, value, "true or false");
    return json_is_true(value);
}

const char *pal_family_text(pal_family_reader *r, const char *key) {
    const char *text = json_string_value(pal_family_value(r, key));
    return text ? text : "";
}

int64_t pal_family_element(pal_family_reader *r, const char *key, int64_t index) {
    const json_t *value = pal_family_value(r, key);
    if (json_is_array(value)) value = json_array_get(value, (size_t)index);
    const json_int_t x = json_integer_value(value);
    if (json_is_boolean(value)) return json_is_true(value);
    if (json_is_integer(value) && x >= 0 && x <= SIZE_MOST) return x;
    pal_family_refuse(r, key, "a whole number, or one for each layer");
    return 0;
}

void pal_family_rotary(pal_family_reader *r, double *theta, double *part) {
    pal_family_reader inside = *r;
    const json_t *scaling = json_object_get(r->config, "rope_scaling"),
                 *set = json_object_get(r->config, "rope_parameters");
    if (!json_is_object(set) && json_is_object(scaling)) set = scaling;
    const json_t *type = json_object_get(set, "rope_type");
    if (!type) type = json_object_get(set, "type");
    inside.config = set;
    if (json_is_string(type) && strcmp(json_string_value(type), "default") != 0)
        refuse_value(r, set == scaling ? "rope_scaling" : "rope_parameters", type,
                     "rotary positions of type \"default\"");
    const bool set_theta = json_object_get(set, "rope_theta") != NULL,
               set_part = json_object_get(set, "partial_rotary_factor") != NULL;
    *theta = pal_family_real(set_theta ? &inside : r, "rope_theta");
    *part = pal_family_real(set_part ? &inside : r, "partial_rotary_factor");
    if (!r->st) r->st = inside.st;
}

void pal_family_begin(pal_family_reader *r, json_t *to, const char *eps, bool tied) {
    pal_json_set(to, "model_type", json_string("palimpsa_blocks"));
    pal_json_set(to, "hidden_size", json_integer(pal_family_size(r, "hidden_size")));
    pal_json_set(to, "vocab_size", json_integer(pal_family_size(r, "vocab_size")));
    pal_json_set(to, "norm_eps", json_real(pal_family_real(r, eps)));
    pal_json_set(to, "tie_word_embeddings", json_boolean(tied));
    pal_json_set(to, "blocks", json_array());
    pal_json_set(to, "layers", json_array());
}

json_t *pal_family_mixer(const char *kind, int64_t heads, int64_t key_heads, int64_t state, int64_t width) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "kind", kind, "heads", (json_int_t)heads, "key_heads",
                     (json_int_t)key_heads, "state_size", (json_int_t)state, "head_dim", (json_int_t)width);
}

/* Whether time steps are limited, to [low, high], where high may be infinite: a null or {"__float__": "Infinity"}. */
static bool read_limit(pal_family_reader *r, double *least, double *most) {
    static const char key[] = "time_step_limit";
    const json_t *limit = pal_family_value(r, key);
    const json_t *low = json_array_get(limit, 0), *high = json_array_get(limit, 1);
    const char *word = json_string_value(json_object_get(high, "__float__"));
    if (!limit) return false;
    if (json_array_size(limit) != 2 || !json_is_number(low) ||
        !(json_is_number(high) || json_is_null(high) || (word && strcmp(word, "Infinity") == 0))) {
        pal_family_refuse(r, key, "two numbers, of which the second may be infinite");
        return false;
    }
    *least = json_number_value(low);
    *most = json_is_number(high) ? json_number_value(high) : INFINITY;
    return *least > 0 || json_is_number(high);
}

json_t *pal_family_mamba2(pal_family_reader *r, int64_t heads, int64_t groups, int64_t state, int64_t width,
                          const char *taps, const char *conv_bias) {
    double low, high;
    json_t *to = pal_family_mixer("mamba2", heads, groups, state, width);
    pal_json_set(to, "conv", json_integer(pal_family_size(r, taps)));
    pal_json_set(to, "conv_bias", json_boolean(pal_family_flag(r, conv_bias)));
    pal_json_set(to, "norm_groups", json_integer(groups));
    if (read_limit(r, &low, &high)) pal_json_set(to, "time_step_limit", json_pack("[f,o]", low, pal_json_number(high)));
    return to;
}

json_t *pal_family_attention(int64_t heads, int64_t key_heads, int64_t width, int64_t rotary) {
    json_t *to = pal_family_mixer("attention", heads, key_heads, width, width);
    pal_json_set(to, "rotary", json_integer(rotary));
    return to;
}

json_t *pal_family_block(json_t *first, json_t *second, const char *form, int64_t width) {
    json_t *to = json_object(), *mixers = json_array();
    if (first) pal_json_append(mixers, first);
    if (second) pal_json_append(mixers, second);
    pal_json_set(to, "mixers", mixers);
    if (form) pal_json_set(to, "mlp", json_pack("{s:s, s:I}", "form", form, "width", (json_int_t)width));
    return to;
}

void pal_family_set(json_t *to, const char *key, double factor) {
    if (factor != 1) pal_json_set(to, key, json_real(factor));
}

void pal_family_copy(json_t *to, const char *key, json_t *value) {
    if (value) pal_json_set(to, key, json_incref(value));
}

/* The object that holds the sizes: the configuration itself, or one inside. */
static const json_t *inner_config(const pal_family *family, const json_t *config) {
    const json_t *inner = family->inside ? json_object_get(config, family->inside) : NULL;
    return json_is_object(inner) ? inner : config;
}

static void check_fixed(pal_family_reader *r, const char *fixed) {
    json_t *all = pal_json_parse(fixed, strlen(fixed), 0, NULL, NULL), *value;
    const char *key;
    json_object_foreach(all, key, value) {
        const json_t *found = json_object_get(r->config, key);
        if (!found || json_is_null(found) || json_equal(found, value)) continue;
        char expected[FOUND + 64];
        char *text = pal_json_dumps(value, JSON_ENCODE_ANY);
        snprintf(expected, sizeof expected, "%.*s, as all that this program runs have it", FOUND,
                 text ? text : "another");
        free(text);
        refuse_value(r, key, found, expected);
    }
    json_decref(all);
}

static json_t *begin_reader(pal_family_reader *r, const pal_family *family, const json_t *config, const char *path,
                            pal_error *err) {
    const json_t *inner = inner_config(family, config);
    *r = (pal_family_reader){
        .path = path, .where = inner == config ? "" : "text_config.", .config = inner, .outer = config, .err = err
    };
    r->defaults = pal_json_parse(family->defaults, strlen(family->defaults), 0, NULL, NULL);
    check_fixed(r, family->fixed);
    return r->defaults;
}

static pal_status finish(pal_family_reader *r, json_t **out, json_t *to) {
    json_decref(r->defaults);
    if (r->st) {
        json_decref(to);
        pal_json_forget();
        return r->st;
    }
    *out = pal_json_whole(to);
    return *out ? PAL_OK : pal_fail(r->err, PAL_E_MEMORY, "out of memory while reading %s", r->path);
}

pal_status pal_family_read(json_t **out, const pal_family *family, const json_t *config, const char *path,
                           pal_error *err) {
    pal_family_reader r;
    json_t *to = json_object();
    *out = NULL;
    begin_reader(&r, family, config, path, err);
    if (!r.st) family->read(&r, to);
    pal_json_set(to, "origin", pal_json_copy(config));
    return finish(&r, out, to);
}

/* Some floats of GGUF files were decimal fractions: 1e-05, not 9.99999975e-06. */
static void shorten(json_t *pairs) {
    const char *key;
    json_t *value;
    json_object_foreach(pairs, key, value) {
        char text[32];
        if (!json_is_real(value)) continue;
        for (int digits = 1; digits <= 9; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, json_real_value(value));
            if (strtof(text, NULL) != (float)json_real_value(value)) continue;
            json_real_set(value, strtod(text, NULL));
            break;
        }
    }
}

pal_status pal_family_from_gguf(json_t **out, const pal_family *family, const json_t *pairs, int64_t vocab, bool head,
                                const char *path, pal_error *err) {
    char where[40];
    json_t *to = json_object(), *shortened = pal_json_copy(pairs);
    snprintf(where, sizeof where, "%s.", family->gguf);
    pal_family_reader r = { .path = path, .where = where, .config = shortened, .err = err };
    *out = NULL;
    shorten(shortened);
    pal_json_set(to, "architectures", json_pack("[s]", family->architecture));
    pal_json_set(to, "model_type", json_string(family->model_types[0]));
    pal_json_set(to, "vocab_size", json_integer(vocab));
    family->from_gguf(&r, to, head);
    json_decref(shortened);
    return finish(&r, out, to);
}

pal_status pal_family_to_gguf(json_t **out, const pal_family *family, const json_t *config, const char *path,
                              pal_error *err) {
    pal_family_reader r;
    double low, high;
    json_t *to = json_object();
    *out = NULL;
    begin_reader(&r, family, config, path, err);
    if (read_limit(&r, &low, &high))
        pal_family_refuse(&r, "time_step_limit", "[0, Infinity] in a GGUF file of a family");
    if (!r.st) family->to_gguf(&r, to);
    return finish(&r, out, to);
}

json_t *pal_family_text_config(const pal_family *family, const json_t *config) {
    const json_t *inner = inner_config(family, config);
    json_t *to = pal_json_copy(inner);
    static const char *const outer[] = { "tie_word_embeddings", "dtype", "torch_dtype", "transformers_version" };
    if (inner == config) return to;
    for (size_t i = 0; i < PAL_COUNT(outer); i++) pal_family_copy(to, outer[i], json_object_get(config, outer[i]));
    pal_json_set(to, "architectures", json_pack("[s]", family->architecture));
    pal_json_set(to, "model_type", json_string(family->model_types[0]));
    return to;
}
