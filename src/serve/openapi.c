/* SPDX-License-Identifier: MIT */
/* GET /openapi.json: this interface as programs read it, from tables. */
#include <math.h>
#include <string.h>

#include "format/json.h"
#include "serve/inside.h"

typedef struct {
    const char *name, *type; /* "" for several types */
    double low, high;        /* of numbers; lengths of texts and lists; both 0: any; high -1: --max-tokens */
    const char *about;
    bool required;
} row;

static const row text_rows[] = {
    { "model", "string", 0, 0, "a name of /v1/models; any when one is served", false },
    { "max_tokens", "integer", 0, -1, "to write; 0 only reads", false },
    { "temperature", "number", 0, 100, "0: always the likeliest token", false },
    { "top_p", "number", 0, 1, "the likeliest tokens that have this probability together", false },
    { "top_k", "integer", -1, 2147483647, "the likeliest tokens; -1 and 0: all", false },
    { "min_p", "number", 0, 1, "tokens at least this fraction as likely as the likeliest", false },
    { "repetition_penalty", "number", 0.01, 100, "of tokens in prompt and answer; 1: none", false },
    { "presence_penalty", "number", -2, 2, "of tokens in the answer", false },
    { "frequency_penalty", "number", -2, 2, "of tokens in the answer, for each time", false },
    { "n", "integer", 1, 128, "answers to each prompt", false },
    { "seed", "integer", 0, 0, "the same seed gives the same text", false },
    { "stop", "", 0, 0, "a text, or a list of at most 16, that ends the answer", false },
    { "stream", "boolean", 0, 0, "server-sent events as the text comes", false },
    { "stream_options", "object", 0, 0, "include_usage: usage in the last event; with stream", false },
    { "logit_bias", "object", 0, 0, "from ids of the vocabulary to numbers, -100 to 100", false },
    { "ignore_eos", "boolean", 0, 0, "continue when the model ends its text", false },
    { "response_format", "object", 0, 0, "type: text, json_object, or json_schema with a schema in json_schema",
      false },
    { "grammar", "string", 0, 0, "rules that the answer follows", false },
    { "variance", "boolean", 0, 0, "the variance of the memory's answer next to each logprob", false },
    { "cache_prompt", "boolean", 0, 0, "false: read the prompt in full and keep nothing of it", false },
    { "memory", "string", 1, 0, "the id of a memory to continue from", false },
    { "update_memory", "boolean", 0, 0, "the memory then holds prompt and answer too", false },
    { 0 },
};
static const row completion_rows[] = {
    { "prompt", "", 0, 0, "a text, a list of texts, a list of ids, or a list of lists of ids", true },
    { "echo", "boolean", 0, 0, "the prompt in front of the text", false },
    { "logprobs", "integer", 0, PAL_ALTERNATIVES, "log-probabilities, with this many alternatives", false },
    { 0 },
};
static const row chat_rows[] = {
    { "messages", "array", 1, PAL_CHAT_MESSAGES, "objects with role (system, user, assistant, tool) and content",
      true },
    { "tools", "array", 0, PAL_CHAT_TOOLS, "functions that the model may call", false },
    { "tool_choice", "", 0, 0, "auto, none, required, or an object with the name of a function", false },
    { "parallel_tool_calls", "boolean", 0, 0, "false: a required call is one call", false },
    { "chat_template_kwargs", "object", 0, 0, "what else the chat template sees", false },
    { "documents", "array", 0, 0, "of the chat template", false },
    { "reasoning_effort", "string", 0, 0, "of the chat template", false },
    { "max_completion_tokens", "integer", 0, -1, "the same as max_tokens", false },
    { "logprobs", "boolean", 0, 0, "log-probabilities of the tokens", false },
    { "top_logprobs", "integer", 0, PAL_ALTERNATIVES, "alternatives; with logprobs", false },
    { 0 },
};
static const row tokenize_rows[] = {
    { "model", "string", 0, 0, "a name of /v1/models; any when one is served", false },
    { "prompt", "string", 0, 0, "the text", true },
    { "add_special_tokens", "boolean", 0, 0, "put the tokenizer's own around it", false },
    { 0 },
};
static const row detokenize_rows[] = {
    { "model", "string", 0, 0, "a name of /v1/models; any when one is served", false },
    { "tokens", "array", 0, 0, "ids of the vocabulary", true },
    { 0 },
};
static const row make_rows[] = {
    { "model", "string", 0, 0, "a name of /v1/models; any when one is served", false },
    { "name", "string", 0, 200, "what people call it", false },
    { "text", "string", 0, 0, "to read", false },
    { "tokens", "array", 1, 0, "to read, instead of text", false },
    { "from", "string", 1, 0, "the id of a memory to begin as", false },
    { "mark", "string", 1, 64, "... as it was at this mark", false },
    { 0 },
};
static const row observe_rows[] = {
    { "messages", "array", 0, PAL_CHAT_MESSAGES, "instead of a prompt, as for chats", false },
    { "observe", "object", 0, 0, "tiles, every, from, map {layer, heads, size, reduce}, elements", false },
    { 0 },
};
static const row change_rows[] = {
    { "map", "object", 0, 0, "layer, heads, size, reduce; null: no maps", false },
    { "elements", "array", 0, PAL_ELEMENTS, "lists [layer, head, key, value] to follow", false },
    { 0 },
};
static const row attribution_rows[] = {
    { "model", "string", 0, 0, "a name of /v1/models; any when one is served", false },
    { "prompt", "array", 1, 4096, "ids of a text from its beginning", true },
    { 0 },
};
static const row name_rows[] = { { "name", "string", 0, 200, "what people call it", false }, { 0 } };
static const row mark_rows[] = { { "name", "string", 1, 64, "letters, digits, dots, dashes, underscores", true },
                                 { 0 } };
static const row rollback_rows[] = { { "mark", "string", 1, 64, "a mark of this memory", true }, { 0 } };

static const struct {
    const char *path, *method, *about, *type; /* type: of a good answer */
    int status;
    const row *rows, *more; /* of the body; NULL: none */
} operations[] = {
    { "/v1/completions", "post", "Completes a prompt", "application/json", 200, completion_rows, text_rows },
    { "/v1/chat/completions", "post", "An answer to messages", "application/json", 200, chat_rows, text_rows },
    { "/v1/observe", "post", "A text with its memory", "text/event-stream", 200, observe_rows, text_rows },
    { "/v1/observe/{id}", "post", "What is shown of it", "application/json", 200, change_rows, NULL },
    { "/v1/attribution", "post", "Which tokens wrote what the last one reads", "application/json", 200,
      attribution_rows, NULL },
    { "/v1/recall", "get", "An example of recall: ?model=&pairs=&length=&seed=", "application/json", 200, NULL, NULL },
    { "/v1/runs", "get", "Training runs", "application/json", 200, NULL, NULL },
    { "/v1/runs/metrics", "get", "What a run logged: ?run=&from=", "application/json", 200, NULL, NULL },
    { "/v1/models", "get", "The models that are served", "application/json", 200, NULL, NULL },
    { "/v1/models/{id}", "get", "A model", "application/json", 200, NULL, NULL },
    { "/v1/memories", "get", "The memories that are kept", "application/json", 200, NULL, NULL },
    { "/v1/memories", "post", "Makes a memory", "application/json", 201, make_rows, NULL },
    { "/v1/memories/{id}", "get", "A memory", "application/json", 200, NULL, NULL },
    { "/v1/memories/{id}", "post", "Names a memory", "application/json", 200, name_rows, NULL },
    { "/v1/memories/{id}", "delete", "Deletes a memory", "application/json", 200, NULL, NULL },
    { "/v1/memories/{id}/file", "get", "A memory's file", "application/octet-stream", 200, NULL, NULL },
    { "/v1/memories/{id}/marks", "post", "Marks a memory as it is now", "application/json", 201, mark_rows, NULL },
    { "/v1/memories/{id}/marks/{mark}", "delete", "Forgets a mark", "application/json", 200, NULL, NULL },
    { "/v1/memories/{id}/rollback", "post", "Back to a mark", "application/json", 200, rollback_rows, NULL },
    { "/tokenize", "post", "Text to ids", "application/json", 200, tokenize_rows, NULL },
    { "/detokenize", "post", "Ids to text", "application/json", 200, detokenize_rows, NULL },
    { "/tokenizer_info", "get", "The tokenizer of the first model", "application/json", 200, NULL, NULL },
    { "/health", "get", "Whether the server takes requests", "application/json", 200, NULL, NULL },
    { "/metrics", "get", "Counters, gauges and histograms for Prometheus", "text/plain", 200, NULL, NULL },
};

static json_t *bound(double x) { return x == floor(x) ? json_integer((json_int_t)x) : json_real(x); }

static void set_bounds(json_t *field, const row *r, const pal_server *s) {
    const bool text = strcmp(r->type, "string") == 0, list = strcmp(r->type, "array") == 0;
    if (r->low == 0 && r->high == 0) return;
    pal_json_set(field, text ? "minLength" : list ? "minItems" : "minimum", bound(r->low));
    const double high = r->high < 0 ? s->options.max_tokens : r->high;
    if (high > 0) pal_json_set(field, text ? "maxLength" : list ? "maxItems" : "maximum", bound(high));
}

static void add_rows(json_t *properties, json_t *required, const row *rows, const pal_server *s) {
    for (const row *r = rows; r && r->name; r++) {
        json_t *field = json_pack("{s:s}", "description", r->about);
        if (*r->type) pal_json_set(field, "type", json_string(r->type));
        if (strcmp(r->type, "array") == 0) pal_json_set(field, "items", json_object());
        if (!r->required) pal_json_set(field, "nullable", json_true());
        set_bounds(field, r, s);
        pal_json_set(properties, r->name, field);
        if (r->required) pal_json_append(required, json_string(r->name));
    }
}

static json_t *body(const row *rows, const row *more, const pal_server *s) {
    json_t *properties = json_object(), *required = json_array();
    add_rows(properties, required, rows, s);
    add_rows(properties, required, more, s);
    json_t *schema = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
    if (json_array_size(required)) pal_json_set(schema, "required", required);
    else json_decref(required);
    return json_pack("{s:b, s:{s:{s:o}}}", "required", 1, "content", "application/json", "schema", schema);
}

static json_t *answer(const char *about, const char *type, const char *schema) {
    json_t *shape = schema ? json_pack("{s:s}", "$ref", schema) : json_object();
    return json_pack("{s:s, s:{s:{s:o}}}", "description", about, "content", type, "schema", shape);
}

/* The {} of a path. */
static json_t *parameters(const char *path) {
    static const char *const names[] = { "id", "mark" };
    json_t *list = json_array();
    for (size_t i = 0; i < 2; i++) {
        char part[16];
        snprintf(part, sizeof part, "{%s}", names[i]);
        if (strstr(path, part))
            pal_json_append(list, json_pack("{s:s, s:s, s:b, s:{s:s}}", "name", names[i], "in", "path", "required", 1,
                                            "schema", "type", "string"));
    }
    return list;
}

serve_result serve_openapi(serve_exchange *x) {
    json_t *paths = json_object();
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        char status[8];
        snprintf(status, sizeof status, "%d", operations[i].status);
        json_t *one = json_pack(
            "{s:s, s:o, s:{s:o, s:o, s:o}}", "summary", operations[i].about, "parameters",
            parameters(operations[i].path), "responses", status, answer(operations[i].about, operations[i].type, NULL),
            "4XX", answer("one sentence says what is wrong", "application/json", "#/components/schemas/Error"), "5XX",
            answer("the server cannot do it now", "application/json", "#/components/schemas/Error"));
        if (operations[i].rows)
            pal_json_set(one, "requestBody", body(operations[i].rows, operations[i].more, x->server));
        json_t *path = json_object_get(paths, operations[i].path);
        if (!path) pal_json_set(paths, operations[i].path, path = json_object());
        pal_json_set(path, operations[i].method, one);
    }
    json_t *text = json_pack("{s:s, s:b}", "type", "string", "nullable", 1);
    json_t *error = json_pack("{s:s, s:[s], s:{s:{s:s, s:[s,s], s:{s:{s:s}, s:{s:s}, s:O, s:O}}}}", "type", "object",
                              "required", "error", "properties", "error", "type", "object", "required", "message",
                              "type", "properties", "message", "type", "string", "type", "type", "string", "param",
                              text, "code", text);
    json_decref(text);
    return serve_reply_json(x, 200,
                            json_pack("{s:s, s:{s:s, s:s}, s:o, s:{s:{s:o}}}", "openapi", "3.0.3", "info", "title",
                                      "palimpsa serve", "version", "1", "paths", paths, "components", "schemas",
                                      "Error", error));
}
