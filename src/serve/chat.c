/* SPDX-License-Identifier: MIT */
/* POST /v1/chat/completions: messages become a prompt by the model's template, and what it writes becomes a message
 * with its thinking and its calls of tools (src/chat/). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "format/json.h"
#include "serve/inside.h"
#include "text/json_text.h"
#include "text/strings.h"
#include "text/tokenizer.h"

/* What a request says besides the fields that completions have, too. */
typedef struct {
    json_t *messages, *kwargs; /* own */
    const json_t *documents, *schema;
    bool object;      /* any */
    bool called;      /* a call is required ... */
    const char *only; /* ... of this tool; NULL: of any */
    bool parallel;
} wishes;

static const json_t *given(const serve_fields *f, const char *name) {
    const json_t *value = json_object_get(f->root, name);
    return json_is_null(value) ? NULL : value;
}

/* An error of src/chat/ about a field. */
static bool refused(serve_fields *f, const char *name, const pal_error *err) {
    pal_json_forget();
    return serve_failed(f, name, err);
}

/* "auto", "none", "required", or the name of a tool. */
static bool read_choice(serve_fields *f, const serve_job *job, wishes *w, bool *none) {
    const json_t *choice = given(f, "tool_choice");
    const char *word = json_string_value(choice), *type = json_string_value(json_object_get(choice, "type"));
    w->only = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    *none = word && strcmp(word, "none") == 0;
    if (!choice || *none || (word && strcmp(word, "auto") == 0)) return true;
    w->called = (word && strcmp(word, "required") == 0) || (type && strcmp(type, "function") == 0 && w->only);
    if (!w->called)
        return serve_wrong(f, "tool_choice",
                           "auto, none, required, or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    bool offered = !w->only && json_array_size(job->tools);
    for (size_t i = 0; i < json_array_size(job->tools) && !offered; i++) {
        const json_t *tool = json_array_get(job->tools, i);
        offered = strcmp(json_string_value(json_object_get(json_object_get(tool, "function"), "name")), w->only) == 0;
    }
    return offered ||
           serve_wrong(f, "tool_choice", w->only ? "the name of one of 'tools'" : "'tools' together with it");
}

static bool read_tools(serve_fields *f, serve_job *job, wishes *w) {
    const json_t *tools = given(f, "tools");
    bool none;
    pal_error err;
    w->parallel = true;
    if (tools && pal_chat_tools(&job->tools, tools, &err)) return refused(f, "tools", &err);
    if (!read_choice(f, job, w, &none) || !serve_boolean(f, "parallel_tool_calls", &w->parallel)) return false;
    if (none || !json_array_size(job->tools)) {
        json_decref(job->tools);
        job->tools = NULL;
        return true;
    }
    char *text = pal_json_dumps(job->tools, JSON_COMPACT);
    if (!text) return serve_no_memory(f);
    job->tools_bytes = 24 * strlen(text); /* as values: see PAL_JSON_WORDS */
    free(text);
    return true;
}

static bool read_rest(serve_fields *f, wishes *w) {
    const json_t *kwargs = given(f, "chat_template_kwargs"), *effort = given(f, "reasoning_effort");
    w->documents = given(f, "documents");
    if (kwargs && !json_is_object(kwargs)) return serve_wrong(f, "chat_template_kwargs", "an object");
    if (w->documents && !json_is_array(w->documents)) return serve_wrong(f, "documents", "a list");
    if (effort && !json_is_string(effort)) return serve_wrong(f, "reasoning_effort", "a text");
    w->kwargs = kwargs ? pal_json_copy(kwargs) : json_object();
    if (effort && !json_object_get(w->kwargs, "reasoning_effort"))
        pal_json_set(w->kwargs, "reasoning_effort", json_incref((json_t *)effort));
    return (w->kwargs && (w->kwargs = pal_json_whole(w->kwargs))) || serve_no_memory(f);
}

static bool make_prompt(serve_fields *f, serve_job *job, const wishes *w) {
    const pal_template_input in = { .messages = w->messages,
                                    .tools = job->tools,
                                    .documents = w->documents,
                                    .kwargs = w->kwargs,
                                    .add_generation_prompt = true };
    pal_chat_prompt prompt = { 0 };
    pal_error err;
    job->prompts = pal_alloc(1, sizeof *job->prompts);
    job->prompt_texts = pal_alloc(1, sizeof *job->prompt_texts);
    if (!job->prompts || !job->prompt_texts) return serve_no_memory(f);
    job->prompt_count = 1;
    pal_status st = pal_chat_render(job->form, &in, &prompt, &err);
    if (!st) {
        const pal_encode_options options = { .said = prompt.text.said };
        st = serve_encode(f->x, job->model, prompt.text.text, prompt.text.size, &options, &job->prompts[0], &err);
    }
    if (!st && !job->prompts[0].count)
        st = pal_fail(&err, PAL_E_ARGUMENT, "the chat template makes nothing of these messages");
    job->thinking = prompt.thinking;
    pal_chat_prompt_free(&prompt);
    return !st || refused(f, "messages", &err);
}

/* Calls that are required, or JSON; thinking may come first. */
static bool make_grammar(serve_fields *f, serve_job *job, const wishes *w) {
    const bool format = w->schema || w->object;
    const pal_chat_rules rules = { .schema = w->schema,
                                   .object = w->object,
                                   .tools = w->called || format ? job->tools : NULL,
                                   .only = w->only,
                                   .single = !w->parallel,
                                   .thinking = job->thinking };
    pal_error err;
    if (!w->called && !format) return true;
    if (job->grammar || (w->called && format))
        return serve_wrong(f, w->called ? "tool_choice" : "response_format",
                           "only one of 'grammar', 'response_format' and a required call");
    if (pal_chat_grammar(&job->grammar, job->form, &rules, &err))
        return refused(f, w->called ? "tools" : "response_format", &err);
    job->options.grammar = job->grammar;
    return true;
}

/* What ends an answer of this template, after those of the request. */
static bool add_stop(serve_fields *f, serve_job *job) {
    const char *stop = job->form->stop;
    const size_t count = job->options.stop_count;
    if (!stop) return true;
    char **more = pal_alloc(count + 1, sizeof *more);
    if (!more || !(more[count] = pal_strdup(stop))) {
        pal_free(more);
        return serve_no_memory(f);
    }
    for (size_t i = 0; i < count; i++) more[i] = job->stop[i];
    pal_free(job->stop);
    job->stop = more;
    job->options.stop = (const char *const *)more;
    job->options.stop_count = count + 1;
    return true;
}

static bool read_chat(serve_fields *f, serve_job *job, wishes *w) {
    pal_error err;
    if (!job->model->chat) {
        f->result = serve_error(f->x, 400, NULL, "%s (--chat-template takes another)", job->model->chat_error);
        return false;
    }
    if (!read_tools(f, job, w) || !read_rest(f, w) || !serve_format(f, &w->schema, &w->object)) return false;
    job->form = pal_chat_for(job->model->chat, job->tools != NULL);
    job->options.shown = job->form->shown.data;
    job->options.shown_count = job->form->shown.count;
    if (job->tools && !job->form->takes_tools)
        return serve_wrong(f, "tools", "none: the chat template of this model does not take tools");
    if (pal_chat_messages(&w->messages, job->form, given(f, "messages"), &err)) return refused(f, "messages", &err);
    return make_prompt(f, job, w) && make_grammar(f, job, w) && add_stop(f, job);
}

bool serve_read_chat(serve_fields *f, serve_job *job, int64_t *n) {
    int64_t top = 0;
    wishes w = { 0 };
    job->chat = true;
    if (!serve_common(f, job, n) || !serve_max_tokens(f, job, 512, "max_tokens", "max_completion_tokens") ||
        !serve_boolean(f, "logprobs", &job->logprobs) || !serve_integer(f, "top_logprobs", 0, PAL_ALTERNATIVES, &top))
        return false;
    if (top && !job->logprobs) return serve_wrong(f, "top_logprobs", "\"logprobs\": true with it");
    job->alternatives = (int)top;
    job->logprobs |= job->variance;
    const bool read = read_chat(f, job, &w);
    json_decref(w.messages);
    json_decref(w.kwargs);
    return read;
}

serve_result serve_chat(serve_exchange *x) { return serve_text_request(x, serve_read_chat); }

static json_t *token_json(const serve_text *t, int32_t id, double logprob) {
    const pal_slice text = pal_tokenizer_text(t->job->model->bundle.tokenizer, (uint32_t)id);
    json_t *bytes = json_array();
    for (size_t i = 0; i < text.size; i++) pal_json_append(bytes, json_integer(text.data[i]));
    return json_pack("{s:o, s:o, s:o}", "token", pal_json_bytes(text.data, text.size), "logprob", serve_real(logprob),
                     "bytes", bytes);
}

static json_t *logprobs_json(const serve_text *t, size_t from) {
    json_t *content = json_array();
    for (size_t i = from; i < t->token_count; i++) {
        const serve_token *k = &t->tokens[i];
        json_t *one = token_json(t, k->id, k->logprob), *top = json_array();
        for (size_t j = 0; j < k->top_count; j++)
            pal_json_append(top, token_json(t, t->top[k->top + j].id, t->top[k->top + j].logprob));
        pal_json_set(one, "top_logprobs", top);
        if (t->job->variance) pal_json_set(one, "variance", serve_real(k->variance));
        pal_json_append(content, one);
    }
    return json_pack("{s:o}", "content", content);
}

/* A call's id: nine letters and digits, which is what the strictest templates accept back. */
static json_t *call_id(const serve_text *t, size_t call) {
    static const char signs[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    uint64_t hash = pal_hash_bytes(t->job->id, strlen(t->job->id));
    hash = pal_hash_u64(hash ^ ((uint64_t)t->index << 32 | (call + 1)));
    char id[10] = "";
    for (int i = 0; i < 9; i++, hash /= 36) id[i] = signs[hash % 36];
    return json_string(id);
}

/* Calls from this one on; as a stream spells them, with their place. */
static json_t *calls_json(const serve_text *t, size_t from, bool stream) {
    json_t *all = json_array();
    for (size_t i = from; i < t->said.calls.count; i++) {
        const pal_call *c = &t->said.calls.list[i];
        json_t *one = json_object();
        if (stream) pal_json_set(one, "index", json_integer((json_int_t)i));
        pal_json_set(one, "id", call_id(t, i));
        pal_json_set(one, "type", json_string("function"));
        pal_json_set(one, "function",
                     json_pack("{s:o, s:o}", "name", pal_json_bytes(c->name, strlen(c->name)), "arguments",
                               pal_json_bytes(c->arguments, strlen(c->arguments))));
        pal_json_append(all, one);
    }
    return all;
}

static json_t *rest_json(const pal_bytes *text, size_t from) {
    return pal_json_bytes(from ? text->data + from : text->data, text->size - from);
}

static const char *finish_of(const serve_text *t) {
    const char *finish = serve_finish(t);
    return finish && strcmp(finish, "stop") == 0 && t->said.calls.count ? "tool_calls" : finish;
}

static json_t *choice(const serve_text *t, const char *key, json_t *said, const char *finish, size_t tokens_from) {
    return json_pack("{s:i, s:o, s:o, s:o}", "index", t->index, key, said, "logprobs",
                     t->job->logprobs ? logprobs_json(t, tokens_from) : json_null(), "finish_reason",
                     finish ? json_string(finish) : json_null());
}

static json_t *envelope(const serve_job *job, const char *object, json_t *choices) {
    json_t *root = serve_usage(job);
    pal_json_set(root, "object", json_string(object));
    pal_json_set(root, "choices", choices);
    return root;
}

static json_t *message(const serve_text *t) {
    const pal_reader *r = &t->said;
    json_t *said = json_object();
    pal_json_set(said, "role", json_string("assistant"));
    pal_json_set(said, "content", r->content.size || !r->calls.count ? rest_json(&r->content, 0) : json_null());
    if (r->reasoning.size) pal_json_set(said, "reasoning_content", rest_json(&r->reasoning, 0));
    if (r->calls.count) pal_json_set(said, "tool_calls", calls_json(t, 0, false));
    return said;
}

json_t *serve_chat_json(const serve_job *job) {
    json_t *choices = json_array();
    for (size_t i = 0; i < job->count; i++)
        pal_json_append(choices,
                        choice(&job->texts[i], "message", message(&job->texts[i]), finish_of(&job->texts[i]), 0));
    return envelope(job, "chat.completion", choices);
}

static bool says_more(const serve_text *t) {
    const pal_reader *r = &t->said;
    return t->token_count > t->told_tokens || r->content.size > t->told_content ||
           r->reasoning.size > t->told_reasoning || r->calls.count > t->told_calls;
}

bool serve_chat_has_news(const serve_text *t) { return says_more(t) || (t->finish && !t->told_finish); }

json_t *serve_chat_chunk(serve_text *t) {
    const pal_reader *r = &t->said;
    json_t *said = json_object(), *choices = json_array();
    const bool more = says_more(t);
    const char *finish = more ? NULL : finish_of(t);
    if (!t->told_role) pal_json_set(said, "role", json_string("assistant"));
    if (r->reasoning.size > t->told_reasoning)
        pal_json_set(said, "reasoning_content", rest_json(&r->reasoning, t->told_reasoning));
    if (r->content.size > t->told_content) pal_json_set(said, "content", rest_json(&r->content, t->told_content));
    if (r->calls.count > t->told_calls) pal_json_set(said, "tool_calls", calls_json(t, t->told_calls, true));
    pal_json_append(choices, choice(t, "delta", said, finish, t->told_tokens));
    t->told_role = true, t->told_finish = !more;
    t->told_reasoning = r->reasoning.size, t->told_content = r->content.size, t->told_calls = r->calls.count;
    t->told_text = t->text.size;
    t->told_tokens = t->token_count;
    json_t *root = envelope(t->job, "chat.completion.chunk", choices);
    json_object_del(root, "usage");
    return root;
}
