/* SPDX-License-Identifier: MIT */
/* Reading requests: every field is checked before anything is done with it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "format/json.h"
#include "serve/inside.h"
#include "text/tokenizer.h"

bool(serve_wrong)(serve_fields *f, const char *name, const char *expected) {
    char full[100];
    snprintf(full, sizeof full, "%s%s", f->prefix ? f->prefix : "", name);
    f->result = serve_error(f->x, 400, full, "'%s': expected %s", full, expected);
    return false;
}

bool(serve_no_memory)(serve_fields *f) {
    f->result = serve_error(f->x, 500, NULL, "out of memory while the request was read");
    return false;
}

bool serve_failed(serve_fields *f, const char *name, const pal_error *err) {
    f->result = serve_error(f->x, err->status == PAL_E_MEMORY ? 500 : 400, name, "'%s': %s", name, err->text);
    return false;
}

pal_status serve_encode(const serve_exchange *x, const serve_model *model, const void *text, size_t size,
                        const pal_encode_options *options, pal_ids *ids, pal_error *err) {
    pal_tokenizer_scratch *scratch = x->aside ? model->aside_scratch : model->bundle.scratch;
    return pal_tokenizer_encode(model->bundle.tokenizer, scratch, text, size, options, ids, err);
}

static const json_t *field(const serve_fields *f, const char *name) {
    const json_t *value = json_object_get(f->root, name);
    return json_is_null(value) ? NULL : value;
}

bool serve_integer(serve_fields *f, const char *name, int64_t low, int64_t high, int64_t *out) {
    const json_t *value = field(f, name);
    char expected[96];
    if (!value) return true;
    const bool whole = json_is_real(value) && json_real_value(value) == floor(json_real_value(value)) &&
                       fabs(json_real_value(value)) < 9e15;
    const int64_t found = json_is_integer(value) ? json_integer_value(value)
                          : whole                ? (int64_t)json_real_value(value)
                                                 : 0;
    if ((json_is_integer(value) || whole) && found >= low && found <= high) {
        *out = found;
        return true;
    }
    snprintf(expected, sizeof expected, "a whole number, %lld to %lld", (long long)low, (long long)high);
    return serve_wrong(f, name, expected);
}

bool serve_number(serve_fields *f, const char *name, double low, double high, double *out) {
    const json_t *value = field(f, name);
    char expected[96];
    if (!value) return true;
    const double found = json_number_value(value);
    if (json_is_number(value) && found >= low && found <= high) {
        *out = found;
        return true;
    }
    snprintf(expected, sizeof expected, "a number, %g to %g", low, high);
    return serve_wrong(f, name, expected);
}

bool serve_boolean(serve_fields *f, const char *name, bool *out) {
    const json_t *value = field(f, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return serve_wrong(f, name, "true or false");
    *out = json_is_true(value);
    return true;
}

bool serve_query(serve_exchange *x, const char *name, int64_t low, int64_t high, int64_t *out, serve_result *result) {
    const char *text = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
    char *end;
    if (!text) return true;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (*text && *text != ' ' && !*end && !errno && value >= low && value <= high) {
        *out = value;
        return true;
    }
    *result = serve_error(x, 400, name, "'%s': expected a whole number, %lld to %lld", name, (long long)low,
                          (long long)high);
    return false;
}

static bool stops(serve_fields *f, serve_job *job) {
    const json_t *value = field(f, "stop");
    const size_t count = json_is_array(value) ? json_array_size(value) : value != NULL;
    static const char expected[] = "a text, or a list of at most 16 texts, none of them empty or with a zero byte";
    if (!value) return true;
    if (count > SERVE_MOST_STOPS) return serve_wrong(f, "stop", expected);
    if (!count) return true;
    if (!(job->stop = pal_alloc(count, sizeof *job->stop))) return serve_no_memory(f);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        const char *text = json_string_value(one);
        if (!text || !*text || strlen(text) != json_string_length(one) || strlen(text) > 4096)
            return serve_wrong(f, "stop", expected);
        if (!(job->stop[i] = pal_strdup(text))) return serve_no_memory(f);
        job->options.stop_count = i + 1;
    }
    job->options.stop = (const char *const *)job->stop;
    return true;
}

/* Whether some token is not banned; no id is in the list twice. */
static bool leaves_one(const pal_sampling *s, const pal_tokenizer *tok) {
    size_t tokens = 0;
    for (size_t id = 0; id < pal_tokenizer_size(tok); id++) tokens += pal_is_token(tok, (int64_t)id);
    for (size_t i = 0; i < s->bias_count; i++) tokens -= s->bias[i].bias <= -100 && pal_is_token(tok, s->bias[i].id);
    return tokens > 0;
}

static bool biases(serve_fields *f, serve_job *job) {
    const json_t *value = field(f, "logit_bias");
    static const char expected[] = "an object from ids of the vocabulary to numbers, -100 to 100";
    const size_t vocab = pal_tokenizer_size(job->model->bundle.tokenizer);
    const char *key;
    json_t *bias;
    if (!value) return true;
    if (!json_is_object(value)) return serve_wrong(f, "logit_bias", expected);
    if (!json_object_size(value)) return true;
    pal_logit_bias *list = pal_alloc(json_object_size(value), sizeof *list);
    if (!list) return serve_no_memory(f);
    job->options.sampling.bias = list;
    json_object_foreach((json_t *)value, key, bias) {
        const unsigned long id = strtoul(key, NULL, 10);
        const double x = json_number_value(bias);
        /* Spelled in one way only: no id comes twice, and there are no more than ids. */
        const bool spelled = *key && !key[strspn(key, "0123456789")] && (*key != '0' || !key[1]);
        if (!spelled || id >= vocab || !json_is_number(bias) || !(fabs(x) <= 100))
            return serve_wrong(f, "logit_bias", expected);
        list[job->options.sampling.bias_count++] = (pal_logit_bias){ (int32_t)id, x };
    }
    return leaves_one(&job->options.sampling, job->model->bundle.tokenizer) ||
           serve_wrong(f, "logit_bias", "at least one token whose bias is above -100, which bans it");
}

static bool stream(serve_fields *f, serve_job *job) {
    const json_t *options = field(f, "stream_options");
    if (!serve_boolean(f, "stream", &job->stream)) return false;
    if (!options) return true;
    if (!json_is_object(options) || !job->stream)
        return serve_wrong(f, "stream_options", "an object, together with \"stream\": true");
    serve_fields inner = { .x = f->x, .root = options };
    if (serve_boolean(&inner, "include_usage", &job->usage)) return true;
    f->result = inner.result;
    return false;
}

/* Fields that other servers know and that would change the answer: not silently ignored. */
static bool unsupported(serve_fields *f, bool chat) {
    static const char *const names[] = { "functions",   "function_call", "suffix",
                                         "guided_json", "tools",         "tool_choice" };
    const size_t count = sizeof names / sizeof *names - (chat ? 2 : 0);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = field(f, names[i]);
        const char *text = json_string_value(value);
        if (!value || (json_is_array(value) && !json_array_size(value)) ||
            (text && (!*text || strcmp(text, "none") == 0 || strcmp(text, "auto") == 0)))
            continue;
        f->result = serve_error(f->x, 400, names[i], "'%s' is not supported", names[i]);
        return false;
    }
    return true;
}

static pal_status schema_grammar(pal_grammar **out, const json_t *schema, pal_error *err) {
    char *text = pal_json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return pal_fail(err, PAL_E_MEMORY, "out of memory for a schema");
    const pal_status st = pal_grammar_from_schema(out, text, strlen(text), err);
    free(text);
    return st;
}

bool serve_format(serve_fields *f, const json_t **schema, bool *object) {
    static const char expected[] = "an object whose \"type\" is text, json_object, or json_schema with "
                                   "\"json_schema\": {\"schema\": ...}";
    const json_t *format = field(f, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    *object = type && strcmp(type, "json_object") == 0;
    const bool under = type && strcmp(type, "json_schema") == 0;
    if (format && !*object && !(under && *schema) && (!type || strcmp(type, "text") != 0))
        return serve_wrong(f, "response_format", expected);
    if (!under) *schema = NULL;
    return true;
}

/* What the answer must be: of response_format, or of rules. */
static bool grammar(serve_fields *f, serve_job *job) {
    const json_t *rules = field(f, "grammar"), *schema;
    bool object;
    pal_status st = PAL_OK;
    pal_error err;
    if (!serve_format(f, &schema, &object)) return false;
    if (rules && (!json_is_string(rules) || schema || object))
        return serve_wrong(f, "grammar", "a text of rules, without 'response_format'");
    if (rules) st = pal_grammar_read(&job->grammar, json_string_value(rules), json_string_length(rules), &err);
    else if (job->chat) return true;
    else if (object) st = pal_grammar_json_object(&job->grammar, &err);
    else if (schema) st = schema_grammar(&job->grammar, schema, &err);
    job->options.grammar = job->grammar;
    return st ? serve_failed(f, rules ? "grammar" : "response_format", &err) : true;
}

static bool memory(serve_fields *f, serve_job *job) {
    const json_t *id = field(f, "memory");
    if (!serve_boolean(f, "update_memory", &job->update)) return false;
    if (!id) return !job->update || serve_wrong(f, "memory", "the id of the memory to update");
    if (!json_is_string(id) || !*json_string_value(id)) return serve_wrong(f, "memory", "the id of a memory");
    snprintf(job->memory_id, sizeof job->memory_id, "%s", json_string_value(id)); /* what is longer is not found */
    return true;
}

bool serve_common(serve_fields *f, serve_job *job, int64_t *n) {
    pal_sampling *s = &job->options.sampling;
    int64_t top_k = 0, seed = 0, best_of;
    *s = (pal_sampling){ .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
    *n = 1;
    job->caches = true;
    if (!unsupported(f, job->chat) || !serve_number(f, "temperature", 0, 100, &s->temperature) ||
        !serve_number(f, "top_p", 0, 1, &s->top_p) || !serve_integer(f, "top_k", -1, INT32_MAX, &top_k) ||
        !serve_number(f, "min_p", 0, 1, &s->min_p) ||
        !serve_number(f, "repetition_penalty", 0.01, 100, &s->repetition_penalty) ||
        !serve_number(f, "presence_penalty", -2, 2, &s->presence_penalty) ||
        !serve_number(f, "frequency_penalty", -2, 2, &s->frequency_penalty) ||
        !serve_integer(f, "seed", INT64_MIN, INT64_MAX, &seed) || !serve_integer(f, "n", 1, 128, n) ||
        !serve_boolean(f, "cache_prompt", &job->caches) || !serve_boolean(f, "ignore_eos", &job->options.ignore_eos) ||
        !serve_boolean(f, "variance", &job->variance) || !grammar(f, job) || !stops(f, job) || !biases(f, job) ||
        !stream(f, job) || !memory(f, job))
        return false;
    best_of = *n;
    if (!serve_integer(f, "best_of", 1, 128, &best_of)) return false;
    if (best_of != *n) return serve_wrong(f, "best_of", "the same as 'n', or nothing");
    if (s->top_p == 0) s->top_p = 1e-9; /* the likeliest alone; 0 means all to the sampler */
    s->top_k = top_k < 0 ? 0 : (int)top_k;
    if (!json_object_get(f->root, "seed") || json_is_null(json_object_get(f->root, "seed"))) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = (int64_t)now.tv_nsec ^ (int64_t)now.tv_sec << 20;
    }
    job->options.seed = (uint64_t)seed;
    return true;
}

bool serve_max_tokens(serve_fields *f, serve_job *job, int usual, const char *name, const char *other) {
    const int most = f->x->server->options.max_tokens;
    job->options.max_tokens = usual < most ? usual : most;
    return serve_integer(f, name, 0, most, &job->options.max_tokens) &&
           (!other || serve_integer(f, other, 0, most, &job->options.max_tokens));
}

serve_result serve_text_request(serve_exchange *x, serve_reader *read) {
    serve_fields f = { .x = x, .result = MHD_NO };
    int64_t n;
    json_t *root = serve_body(x, &f.result);
    f.root = root;
    serve_model *model = root ? serve_find_model(x, root, &f.result) : NULL;
    serve_job *job = model ? serve_job_new(x, model) : NULL;
    if (model && !job) f.result = serve_error(x, 500, NULL, "out of memory for a request");
    if (job && read(&f, job, &n)) f.result = serve_job_run(x, job, n);
    else serve_job_free(job);
    json_decref(root);
    return f.result;
}
