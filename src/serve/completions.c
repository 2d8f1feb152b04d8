/* SPDX-License-Identifier: MIT */
/* POST /v1/completions: completes a prompt. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "format/json.h"
#include "serve/inside.h"
#include "text/json_text.h"
#include "text/strings.h"
#include "text/tokenizer.h"

json_t *serve_real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

const char *serve_finish(const serve_text *t) {
    switch (t->finish) {
    case PAL_FINISH_LENGTH:
    case PAL_FINISH_CONTEXT: return "length";
    case PAL_FINISH_EOS:
    case PAL_FINISH_GRAMMAR:
    case PAL_FINISH_STOP: return "stop";
    default: return NULL;
    }
}

static json_t *finish_json(const serve_text *t) {
    const char *name = serve_finish(t);
    return name ? json_string(name) : json_null();
}

json_t *serve_counts_json(const serve_job *job) {
    json_t *counts = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)job->prompt_tokens,
                               "completion_tokens", (json_int_t)job->written_tokens, "total_tokens",
                               (json_int_t)job->prompt_tokens + job->written_tokens, "prompt_tokens_details",
                               "cached_tokens", (json_int_t)job->cached_tokens);
    if (counts && job->server->options.speculate)
        pal_json_set(counts, "completion_tokens_details",
                     json_pack("{s:I, s:I}", "accepted_prediction_tokens", (json_int_t)job->guessed.accepted,
                               "rejected_prediction_tokens", (json_int_t)job->guessed.rejected));
    return counts;
}

static json_t *envelope(const serve_job *job, const char *object, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", job->id, "object", object, "created", (json_int_t)job->created,
                     "model", job->model->name, "choices", choices);
}

json_t *serve_usage(const serve_job *job) {
    json_t *root = envelope(job, job->chat ? "chat.completion.chunk" : "text_completion", json_array());
    if (root) pal_json_set(root, "usage", serve_counts_json(job));
    return root;
}

static json_t *token_text(const serve_text *t, int32_t id) {
    const pal_slice text = pal_tokenizer_text(t->job->model->bundle.tokenizer, (uint32_t)id);
    return pal_json_bytes(text.data, text.size);
}

/* Characters that begin in what a token adds to the text; the other bytes of one that began before do not count.
 * Special tokens add nothing to what is decoded, and the first token of a text may lose the blank in front of it. */
static size_t characters(serve_text *t, const serve_token *k) {
    const pal_tokenizer *tok = t->job->model->bundle.tokenizer;
    const uint32_t id = (uint32_t)k->id;
    pal_slice text = pal_tokenizer_text(tok, id);
    pal_bytes first = { 0 };
    size_t n = 0;
    if (pal_tokenizer_is_special(tok, id)) {
        if (!k->prompt || !t->job->prompt_is_text) return 0;
        text = pal_tokenizer_name(tok, id); /* as the request spells it */
    } else if (k->prompt && !t->begun && !t->job->memory_id[0] &&
               !pal_tokenizer_decode(tok, &id, 1, true, &first, NULL))
        text = (pal_slice){ first.data, first.size };
    for (size_t i = 0; i < text.size; i++) n += (text.data[i] & 0xC0) != 0x80;
    t->begun |= text.size > 0 || !tok->spm.collapse_blanks; /* where blanks collapse, all in front go */
    pal_bytes_free(&first);
    return n;
}

/* A token's alternatives by their text, the token itself always among them. Of two with one text the likelier stays, so
 * that the likeliest of all is never lost. */
static json_t *top_json(const serve_text *t, const serve_token *k) {
    if (isnan(k->logprob)) return json_null();
    json_t *map = json_object();
    for (size_t i = 0; i <= k->top_count; i++) {
        const int32_t id = i < k->top_count ? t->top[k->top + i].id : k->id;
        const double logprob = i < k->top_count ? t->top[k->top + i].logprob : k->logprob;
        json_t *text = token_text(t, id);
        const json_t *there = json_object_get(map, json_string_value(text));
        if (json_is_string(text) && (!there || json_real_value(there) < logprob))
            pal_json_set(map, json_string_value(text), serve_real(logprob));
        json_decref(text);
    }
    return map;
}

/* The tokens that were not said yet: all of them, but in a stream. */
static json_t *logprobs_json(serve_text *t) {
    json_t *tokens = json_array(), *logprobs = json_array(), *top = json_array(), *offsets = json_array();
    json_t *variance = json_array();
    for (size_t i = t->told_tokens; i < t->token_count; i++) {
        const serve_token *k = &t->tokens[i];
        pal_json_append(tokens, token_text(t, k->id));
        pal_json_append(logprobs, serve_real(k->logprob));
        pal_json_append(top, top_json(t, k));
        pal_json_append(offsets, json_integer((json_int_t)t->told_characters));
        pal_json_append(variance, serve_real(k->variance));
        t->told_characters += characters(t, k);
    }
    json_t *root = json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", top,
                             "text_offset", offsets);
    if (root && t->job->variance) pal_json_set(root, "variance", json_incref(variance));
    json_decref(variance);
    return root;
}

static json_t *choice(serve_text *t) {
    return json_pack("{s:i, s:o, s:o, s:o}", "index", t->index, "text",
                     pal_json_bytes(t->text.data + t->told_text, t->text.size - t->told_text), "logprobs",
                     t->job->logprobs ? logprobs_json(t) : json_null(), "finish_reason", finish_json(t));
}

json_t *serve_completion_json(const serve_job *job) {
    json_t *choices = json_array();
    for (size_t i = 0; i < job->count; i++) pal_json_append(choices, choice(&job->texts[i]));
    json_t *root = envelope(job, "text_completion", choices);
    if (root) pal_json_set(root, "usage", serve_counts_json(job));
    return root;
}

json_t *serve_completion_chunk(serve_text *t) {
    json_t *choices = json_array();
    pal_json_append(choices, choice(t));
    t->told_text = t->text.size;
    t->told_tokens = t->token_count;
    return envelope(t->job, "text_completion", choices);
}

/* One prompt from a list of ids. */
static bool take_ids(serve_fields *f, serve_job *job, const char *name, const json_t *list, size_t at) {
    const int64_t vocab = (int64_t)pal_tokenizer_size(job->model->bundle.tokenizer);
    char expected[80];
    pal_error err;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= vocab) {
            snprintf(expected, sizeof expected, "ids of the vocabulary, 0 to %lld", (long long)vocab - 1);
            return serve_wrong(f, name, expected);
        }
        if (pal_ids_append(&job->prompts[at], (uint32_t)value, &err)) return serve_no_memory(f);
    }
    if (!job->echo || pal_tokenizer_decode(job->model->bundle.tokenizer, job->prompts[at].data, job->prompts[at].count,
                                           true, &job->prompt_texts[at], &err) == PAL_OK)
        return true;
    return serve_failed(f, name, &err);
}

const char serve_numbers[] = "numbers below the size of the vocabulary, separated by blanks";

bool serve_numbers_fit(const pal_tokenizer *tok, const char *text) {
    if (strcmp(pal_tokenizer_kind(tok), "ids") != 0) return true;
    for (const char *at = text; *at;) {
        char *end = NULL;
        const size_t blanks = strspn(at, " ");
        const unsigned long long id = blanks ? 0 : strtoull(at, &end, 10);
        if (!blanks && (*at < '0' || *at > '9' || (*end && *end != ' ') || id >= pal_tokenizer_size(tok))) return false;
        at = blanks ? at + blanks : end;
    }
    return true;
}

/* One prompt from a text; an empty one begins with the tokenizer's first token. */
static bool take_text(serve_fields *f, serve_job *job, const char *name, const json_t *text, size_t at) {
    pal_error err;
    if (!serve_numbers_fit(job->model->bundle.tokenizer, json_string_value(text)))
        return serve_wrong(f, name, serve_numbers);
    if (serve_encode(f->x, job->model, json_string_value(text), json_string_length(text), NULL, &job->prompts[at],
                     &err) ||
        pal_bytes_append(&job->prompt_texts[at], json_string_value(text), json_string_length(text), &err))
        return serve_failed(f, name, &err);
    job->prompt_is_text = true;
    return true;
}

static bool begin_empty(serve_fields *f, serve_job *job, const char *name, size_t at) {
    const pal_tokenizer *tok = job->model->bundle.tokenizer;
    const int64_t bos = pal_tokenizer_bos(tok), start = bos >= 0 ? bos : pal_tokenizer_eos(tok);
    if (start < 0) return serve_wrong(f, name, "a text: this tokenizer has no token to begin an empty one with");
    return !pal_ids_append(&job->prompts[at], (uint32_t)start, NULL) || serve_no_memory(f);
}

/* A text, a list of texts, a list of ids, or a list of lists of ids. */
bool serve_prompts(serve_fields *f, serve_job *job, const char *name) {
    const json_t *value = json_object_get(f->root, name), *first = json_array_get(value, 0);
    static const char expected[] = "a text, a list of texts, a list of ids, or a list of lists of ids";
    const bool many = json_is_string(first) || json_is_array(first);
    if (!json_is_string(value) && !(json_is_array(value) && first)) return serve_wrong(f, name, expected);
    const size_t count = many ? json_array_size(value) : 1;
    if (count > SERVE_MOST_TEXTS) return serve_wrong(f, name, "at most 4096 prompts");
    job->prompts = pal_alloc(count, sizeof *job->prompts);
    job->prompt_texts = pal_alloc(count, sizeof *job->prompt_texts);
    if (!job->prompts || !job->prompt_texts) return serve_no_memory(f);
    job->prompt_count = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = many ? json_array_get(value, i) : value;
        const bool fine = json_is_string(one)  ? take_text(f, job, name, one, i)
                          : json_is_array(one) ? take_ids(f, job, name, one, i)
                                               : serve_wrong(f, name, expected);
        const bool begins = !job->memory && !job->memory_id[0]; /* a memory continues without a word */
        if (!fine || (!job->prompts[i].count && begins && !begin_empty(f, job, name, i))) return false;
    }
    return true;
}

bool serve_read_completion(serve_fields *f, serve_job *job, int64_t *n) {
    int64_t logprobs = -1;
    if (!serve_common(f, job, n) || !serve_boolean(f, "echo", &job->echo) ||
        !serve_max_tokens(f, job, 16, "max_tokens", NULL))
        return false;
    if (json_is_boolean(json_object_get(f->root, "logprobs"))) /* as chats spell it */
        logprobs = json_is_true(json_object_get(f->root, "logprobs")) ? 0 : -1;
    else if (!serve_integer(f, "logprobs", 0, PAL_ALTERNATIVES, &logprobs)) return false;
    job->logprobs = logprobs >= 0 || job->variance;
    job->alternatives = logprobs > 0 ? (int)logprobs : 0;
    return serve_prompts(f, job, "prompt");
}

serve_result serve_completions(serve_exchange *x) { return serve_text_request(x, serve_read_completion); }
