/* SPDX-License-Identifier: MIT */
/* The page's engine: models, observed texts and examples as a worker of the browser asks for them (web/worker.js). What
 * goes in and comes out is the JSON of the server's HTTP interface, so that the page need not know which of the two it
 * talks to. One text at a time: page_begin, then page_step until it returns 0, with events after each. */
#include <emscripten.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/context.h"
#include "data/mqar_example.h"
#include "format/json.h"
#include "infer/frames.h"
#include "model/model.h"
#include "model/surgery.h"
#include "text/json_text.h"

enum { MOST_MODELS = 16, CONTEXT = 4096 };
static const double MAP_SECONDS = 0.1;

typedef struct {
    char name[96];
    const char *plain_of, *plain;
    pal_bundle bundle;
    pal_engine *engine;
} page_model;

static page_model models[MOST_MODELS];
static int model_count;
static pal_context *context;

/* The text that runs. */
static struct {
    page_model *model;
    pal_session *session;
    pal_ids prompt;
    pal_session_options options;
    pal_look look;
    pal_map_view view;
    pal_element elements[PAL_ELEMENTS];
    bool maps;
    int64_t from, position, index, written, mapped_at;
    double mapped;
    bool wrong;
} text;

static pal_bytes out; /* what the last call says; a zero ends it */

static const char *answer(json_t *value) {
    char *printed = pal_json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(value);
    out.size = 0;
    if (printed) pal_bytes_append(&out, printed, strlen(printed) + 1, NULL);
    free(printed);
    return out.size ? (const char *)out.data : "{\"error\":\"out of memory\"}";
}
static const char *failed(const char *sentence) { return answer(json_pack("{s:s}", "error", sentence)); }

static pal_status add(const char *name, pal_bundle bundle, const char *plain_of, pal_error *err) {
    page_model *m = &models[model_count];
    if (model_count == MOST_MODELS) return pal_fail(err, PAL_E_ARGUMENT, "more than %d models", MOST_MODELS);
    *m = (page_model){ .bundle = bundle, .plain_of = plain_of };
    snprintf(m->name, sizeof m->name, "%s", name);
    const pal_status st = pal_engine_new(&m->engine, bundle.model, bundle.tokenizer, context,
                                         &(pal_engine_options){ .context = CONTEXT, .variance = true }, err);
    if (!st) model_count++;
    return st;
}

/* A model whose files are in the worker's file system, and the same with plasticity off where it has any. */
EMSCRIPTEN_KEEPALIVE const char *page_open(const char *path, const char *name) {
    pal_bundle bundle = { 0 };
    pal_error err;
    bool metaplastic = false;
    pal_status st = context ? PAL_OK : pal_context_new(&context, 1, NULL, &err);
    if (!st) st = pal_bundle_open(&bundle, path, NULL, "ids", context, &err);
    if (!st) st = add(name, bundle, NULL, &err);
    if (st) return failed(err.text);
    page_model *const given = &models[model_count - 1];
    const pal_model_config *c = pal_model_config_of(bundle.model);
    for (int i = 0; i < c->layers; i++) metaplastic |= strcmp(pal_model_layer_rule(c, i), "palimpsa") == 0;
    if (metaplastic) {
        char plain[100];
        snprintf(plain, sizeof plain, "%s@plain", name);
        st = pal_model_view(&bundle.model, given->bundle.model, NULL, &err);
        if (!st) st = add(plain, bundle, given->name, &err);
        if (st) return failed(err.text);
        given->plain = models[model_count - 1].name;
    }
    return answer(json_object());
}

EMSCRIPTEN_KEEPALIVE const char *page_models(void) {
    json_t *list = json_array();
    for (int i = 0; i < model_count; i++) {
        const page_model *m = &models[i];
        json_t *one = pal_model_json(&m->bundle);
        pal_json_update(one, json_pack("{s:s, s:s?, s:s?, s:I, s:I}", "id", m->name, "plain", m->plain, "plain_of",
                                       m->plain_of, "parameters", (json_int_t)pal_model_parameters(m->bundle.model),
                                       "memory_bytes", (json_int_t)pal_state_bytes(m->bundle.model, CONTEXT)));
        pal_json_append(list, one);
    }
    return answer(json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static page_model *find(const char *name) {
    for (int i = 0; i < model_count; i++)
        if (name && strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

EMSCRIPTEN_KEEPALIVE const char *page_recall(const char *name, int pairs, int length, double seed) {
    const page_model *m = find(name);
    json_t *value = NULL;
    pal_error err;
    if (!m) return failed("no model has this name");
    const pal_mqar_config c = { .length = length,
                                .pairs = pairs,
                                .vocabulary = pal_model_config_of(m->bundle.model)->vocab,
                                .exponent = 0.01 };
    if (pal_mqar_example(&value, &c, (uint64_t)seed, &err)) return failed(err.text);
    pal_json_set(value, "model", json_string(m->name));
    return answer(value);
}

EMSCRIPTEN_KEEPALIVE const char *page_tokenize(const char *name, const char *words) {
    const page_model *m = find(name);
    pal_ids ids = { 0 };
    pal_error err;
    json_t *list = json_array();
    if (!m) return failed("no model has this name");
    if (pal_tokenizer_encode(m->bundle.tokenizer, m->bundle.scratch, words, strlen(words), NULL, &ids, &err)) {
        json_decref(list);
        return failed(err.text);
    }
    for (size_t i = 0; i < ids.count; i++) pal_json_append(list, json_integer((json_int_t)ids.data[i]));
    pal_ids_free(&ids);
    return answer(json_pack("{s:o}", "tokens", list));
}

/* The body is that of POST /v1/attribution. */
EMSCRIPTEN_KEEPALIVE const char *page_attribution(const char *body) {
    json_t *root = pal_json_parse(body, strlen(body), 0, NULL, NULL), *found = NULL;
    const page_model *m = find(json_string_value(json_object_get(root, "model")));
    const json_t *list = json_object_get(root, "prompt");
    const size_t count = json_array_size(list);
    int32_t *ids = pal_alloc(count ? count : 1, sizeof *ids);
    pal_error err;
    for (size_t i = 0; ids && i < count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    pal_status st = !m ? pal_fail(&err, PAL_E_ARGUMENT, "no model has this name")
                       : pal_attribution_json(&found, m->bundle.model, context, ids, (int)count, &err);
    pal_free(ids);
    json_decref(root);
    return st ? failed(err.text) : answer(found);
}

static double number(const json_t *from, const char *name, double usual) {
    const json_t *value = json_object_get(from, name);
    return json_is_number(value) ? json_number_value(value) : usual;
}

static void note(bool fits) { text.wrong |= !fits; }

static void show_map(void) {
    const pal_state *state = pal_session_state(text.session);
    if (!text.maps || text.mapped_at == pal_state_position(state)) return;
    text.mapped_at = pal_state_position(state);
    text.mapped = pal_seconds();
    note(pal_frame_map(&out, state, &text.view, &text.look));
}

static void frame(const pal_state *state) {
    const int64_t from = text.position, position = pal_state_position(state);
    text.position = position;
    if (position <= text.from || position == from) return;
    note(pal_frame_tiles(&out, text.model->bundle.model, &text.look.watch, from, position));
    if (pal_seconds() - text.mapped >= MAP_SECONDS) show_map();
}

static void on_token(void *user, const pal_token *token) {
    (void)user;
    const pal_state *state = pal_session_state(text.session);
    if (token->finish == PAL_FINISH_ERROR) note(false);
    if (token->id < 0) return;
    if (!token->prompt) text.written++;
    note(pal_frame_token(&out, &text.model->bundle, token, token->prompt ? text.index++ : pal_state_position(state)));
    if (!token->prompt) frame(state);
}

static void on_read(void *user, const pal_state *state) {
    (void)user;
    frame(state);
}

static void read_view(const json_t *observe) {
    const json_t *map = json_object_get(observe, "map"), *elements = json_object_get(observe, "elements");
    const pal_model_config *c = pal_model_config_of(text.model->bundle.model);
    const int layer = (int)number(map, "layer", -1);
    const pal_mixer_spec *memory = layer >= 0 && layer < c->layers ? pal_model_memory(c, layer) : NULL;
    text.maps = json_is_object(map) && memory;
    if (text.maps) {
        const char *reduce = json_string_value(json_object_get(map, "reduce"));
        text.view.layer = layer, text.view.size = (int)number(map, "size", 64);
        text.view.mean = reduce && strcmp(reduce, "mean") == 0;
        text.view.head_count = memory->heads;
        for (int h = 0; h < memory->heads; h++) text.view.heads[h] = h;
    }
    pal_watch *w = &text.look.watch;
    w->elements = text.elements;
    w->element_count = 0;
    for (size_t i = 0; i < json_array_size(elements) && i < PAL_ELEMENTS; i++) {
        const json_t *e = json_array_get(elements, i);
        int at[4];
        for (size_t k = 0; k < 4; k++) at[k] = (int)json_integer_value(json_array_get(e, k));
        text.elements[w->element_count++] = (pal_element){ at[0], at[1], at[2], at[3] };
    }
}

static pal_status read_prompt(const json_t *prompt, pal_error *err) {
    const pal_bundle *m = &text.model->bundle;
    text.prompt.count = 0;
    if (json_is_string(prompt))
        return pal_tokenizer_encode(m->tokenizer, m->scratch, json_string_value(prompt), json_string_length(prompt),
                                    NULL, &text.prompt, err);
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        const json_int_t id = json_integer_value(json_array_get(prompt, i));
        if (id < 0 || id >= pal_model_config_of(m->model)->vocab)
            return pal_fail(err, PAL_E_ARGUMENT, "id %lld is not in the vocabulary of %s, which has %d", (long long)id,
                            text.model->name, pal_model_config_of(m->model)->vocab);
        if (pal_ids_append(&text.prompt, (uint32_t)id, err)) return PAL_E_MEMORY;
    }
    return PAL_OK;
}

static void end(void) {
    pal_session_free(text.session);
    text.session = NULL;
    pal_look_free(&text.look);
    pal_free(text.view.heads);
    text.view.heads = NULL;
}

static pal_status begin(const json_t *body, pal_error *err) {
    const json_t *observe = json_object_get(body, "observe");
    const bool tiles = !json_is_false(json_object_get(observe, "tiles"));
    pal_session_options *o = &text.options;
    int heads;
    text.model = find(json_string_value(json_object_get(body, "model")));
    if (!text.model) return pal_fail(err, PAL_E_ARGUMENT, "no model has this name");
    pal_status st = read_prompt(json_object_get(body, "prompt"), err);
    if (!st && !text.prompt.count) st = pal_fail(err, PAL_E_ARGUMENT, "expected a text to read");
    if (st) return st;
    pal_model_widest(pal_model_config_of(text.model->bundle.model), &heads, NULL, NULL);
    text.view.heads = pal_alloc((size_t)heads, sizeof(int));
    if (!text.view.heads || !pal_look_make(&text.look, text.model->bundle.model, tiles))
        return pal_fail(err, PAL_E_MEMORY, "out of memory for a look at the text");
    read_view(observe);
    *o = (pal_session_options){ .max_tokens = (int64_t)number(body, "max_tokens", 60),
                                .seed = (uint64_t)number(body, "seed", emscripten_random() * 4294967296.0),
                                .logprobs = true,
                                .prompt_logprobs = !json_is_false(json_object_get(body, "echo")),
                                .alternatives = (int)number(body, "logprobs", 5),
                                .piece = (int)number(observe, "every", 0),
                                .watch = &text.look.watch,
                                .on_token = on_token,
                                .on_read = on_read };
    if (!o->piece) o->piece = 128;
    if (o->alternatives > PAL_ALTERNATIVES) o->alternatives = PAL_ALTERNATIVES;
    o->sampling = (pal_sampling){ .temperature = number(body, "temperature", 1),
                                  .top_p = number(body, "top_p", 1),
                                  .top_k = (int)number(body, "top_k", 0),
                                  .min_p = number(body, "min_p", 0),
                                  .repetition_penalty = number(body, "repetition_penalty", 1) };
    if (o->sampling.top_p <= 0) o->sampling.top_p = 1e-9; /* the likeliest alone */
    text.from = (int64_t)number(observe, "from", 0);
    text.position = text.index = text.written = 0;
    text.mapped_at = -1;
    text.mapped = 0;
    text.wrong = false;
    st = pal_session_new(&text.session, text.model->engine, err);
    if (!st) st = pal_session_begin(text.session, text.prompt.data, text.prompt.count, o, err);
    return st;
}

/* Begins a text that is observed; the body is that of POST /v1/observe. Its first event, or an error. */
EMSCRIPTEN_KEEPALIVE const char *page_begin(const char *body) {
    pal_error err;
    if (text.session) end();
    json_t *root = pal_json_parse(body, strlen(body), 0, NULL, NULL);
    const pal_status st = root ? begin(root, &err) : pal_fail(&err, PAL_E_ARGUMENT, "the request cannot be read as JSON");
    json_decref(root);
    if (st) {
        end();
        return failed(err.text);
    }
    out.size = 0;
    note(pal_frame_start(&out, &text.model->bundle, "local", text.model->name, 0, text.prompt.data, text.prompt.count));
    pal_bytes_append(&out, "", 1, NULL);
    return (const char *)out.data;
}

/* Another map or other elements from now on. */
EMSCRIPTEN_KEEPALIVE void page_view(const char *body) {
    json_t *root = text.session ? pal_json_parse(body, strlen(body), 0, NULL, NULL) : NULL;
    if (root) read_view(root);
    json_decref(root);
}

/* One step; its events are page_events(). 0: the text is over. -1: something failed. */
EMSCRIPTEN_KEEPALIVE int page_step(void) {
    out.size = 0;
    if (!text.session) return 0;
    pal_engine_step(text.model->engine);
    const bool busy = pal_session_busy(text.session);
    if (!busy) {
        show_map();
        json_t *last = json_pack("{s:s, s:s, s:I}", "type", "end", "finish_reason",
                                 pal_finish_name(pal_session_finish(text.session)), "position", (json_int_t)text.position);
        char *printed = pal_json_dumps(last, JSON_COMPACT);
        note(printed && !pal_bytes_append(&out, "data: ", 6, NULL) &&
             !pal_bytes_append(&out, printed, strlen(printed), NULL) && !pal_bytes_append(&out, "\n\n", 2, NULL));
        free(printed);
        json_decref(last);
    }
    pal_bytes_append(&out, "", 1, NULL);
    if (!busy || text.wrong) end();
    return text.wrong ? -1 : busy;
}
EMSCRIPTEN_KEEPALIVE const char *page_events(void) { return (const char *)out.data; }

EMSCRIPTEN_KEEPALIVE void page_stop(void) {
    if (text.session) end();
}
