/* SPDX-License-Identifier: MIT */
/* POST /v1/chat/completions: messages become a prompt by a named template. What a message says is text: it never yields
 * a special token. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "format/json.h"
#include "serve/inside.h"
#include "text/json_text.h"
#include "text/strings.h"
#include "text/tokenizer.h"

struct serve_template {
    const char *name;
    const char *mark, *other; /* what a chat template of a model holds when it is this one */
    const char *stop;         /* ends an answer where the model does not know how to; NULL: nothing */
};

static const serve_template templates[] = { { "chatml", "<|im_start|>", "<|im_end|>", "<|im_end|>" },
                                            { "llama2", "[INST]", "<<SYS>>", NULL },
                                            { "plain", NULL, NULL, "\nUser:" } };
enum { CHATML, LLAMA2, PLAIN, TEMPLATES };
const char serve_template_names[] = "chatml, llama2, plain";

const serve_template *serve_template_named(const char *name) {
    for (int i = 0; i < TEMPLATES; i++)
        if (strcmp(templates[i].name, name) == 0) return &templates[i];
    return NULL;
}

static bool holds(pal_slice text, const char *mark) { return memmem(text.data, text.size, mark, strlen(mark)) != NULL; }

const serve_template *serve_template_of(const pal_tokenizer *tok, char why[256]) {
    const pal_slice text = pal_tokenizer_chat_template(tok, "default");
    if (!tok->template_count) return &templates[PLAIN];
    for (int i = 0; i < PLAIN; i++)
        if (text.size && holds(text, templates[i].mark) && holds(text, templates[i].other)) return &templates[i];
    snprintf(why, 256, "the chat template of this model is not known; choose one of %s", serve_template_names);
    return NULL;
}

/* A prompt in pieces: what the template says, and what people say. */
typedef struct {
    pal_bytes text;
    struct piece {
        size_t from, to;
        bool said;
    } pieces[2 * 1024 + 2];
    int count;
} script;

static bool add_bytes(script *s, bool said, const char *text, size_t size) {
    if (!size) return true;
    if (s->count && s->pieces[s->count - 1].said == said) s->pieces[s->count - 1].to += size;
    else if (s->count < (int)(sizeof s->pieces / sizeof *s->pieces))
        s->pieces[s->count++] = (struct piece){ s->text.size, s->text.size + size, said };
    else return false;
    return !pal_bytes_append(&s->text, text, size, NULL);
}

static bool add(script *s, bool said, const char *text) { return add_bytes(s, said, text, strlen(text)); }

/* Without blanks in front and behind. */
static bool add_stripped(script *s, bool front, bool back, const char *text) {
    static const char blanks[] = " \t\n\r\v\f";
    size_t size = strlen(text);
    const size_t skipped = front ? strspn(text, blanks) : 0;
    while (back && size > skipped && strchr(blanks, text[size - 1])) size--;
    return add_bytes(s, true, text + skipped, size - skipped);
}

/* The name of a special token, which the template writes. */
static bool add_token(script *s, const pal_tokenizer *tok, int64_t id) {
    const pal_slice name = id < 0 ? (pal_slice){ NULL, 0 } : pal_tokenizer_name(tok, (uint32_t)id);
    return add_bytes(s, false, (const char *)name.data, name.size);
}

enum { MOST_MESSAGES = 512 };
typedef struct {
    const char *role, *content;
    char *joined; /* content of several parts; NULL: it is one text of the request */
} message;

/* As Meta's code writes it: BOS, [INST], what the user says; the answer and EOS. What the system says is part of what
 * the user says first. */
static bool write_llama2(script *s, const pal_tokenizer *tok, const message *m, size_t count) {
    const char *system = NULL;
    bool fits = true;
    for (size_t i = 0; i < count && fits; i++) {
        if (strcmp(m[i].role, "system") == 0) {
            system = m[i].content;
        } else if (strcmp(m[i].role, "assistant") == 0) {
            fits = add(s, false, " ") && add_stripped(s, true, true, m[i].content) && add(s, false, " ") &&
                   add_token(s, tok, pal_tokenizer_eos(tok));
        } else {
            fits = add_token(s, tok, pal_tokenizer_bos(tok)) && add(s, false, "[INST] ");
            if (system && fits)
                fits = add(s, false, "<<SYS>>\n") && add(s, true, system) && add(s, false, "\n<</SYS>>\n\n");
            fits = fits && add_stripped(s, !system, true, m[i].content) && add(s, false, " [/INST]");
            system = NULL;
        }
    }
    return fits;
}

/* An answer is written as it was, so that what the model read and wrote comes back: it follows "Assistant:" at once,
 * and ends where the stop "\nUser:" began. */
static bool write_plain(script *s, const message *m, size_t count) {
    bool fits = true;
    for (size_t i = 0; i < count && fits; i++) {
        const bool system = strcmp(m[i].role, "system") == 0, answer = strcmp(m[i].role, "assistant") == 0;
        const size_t size = strlen(m[i].content);
        const bool ended = answer && size && m[i].content[size - 1] == '\n';
        fits = add(s, false,
                   system   ? ""
                   : answer ? "Assistant:"
                            : "User: ") &&
               add(s, true, m[i].content) && add(s, false, ended ? "\n" : "\n\n");
    }
    return fits && add(s, false, "Assistant:");
}

static bool write_chatml(script *s, const message *m, size_t count) {
    bool fits = true;
    for (size_t i = 0; i < count && fits; i++)
        fits = add(s, false, "<|im_start|>") && add(s, false, m[i].role) && add(s, false, "\n") &&
               add(s, true, m[i].content) && add(s, false, "<|im_end|>\n");
    return fits && add(s, false, "<|im_start|>assistant\n");
}

static bool write_script(script *s, const serve_template *t, const pal_tokenizer *tok, const message *m, size_t count) {
    return t == &templates[CHATML]   ? write_chatml(s, m, count)
           : t == &templates[LLAMA2] ? write_llama2(s, tok, m, count)
                                     : write_plain(s, m, count);
}

/* Who asks, and which model. */
typedef struct {
    const serve_exchange *x;
    const serve_model *model;
} asked;

static pal_status encode(asked a, const script *s, size_t from, size_t to, bool said, pal_ids *ids, pal_error *err) {
    return serve_encode(a.x, a.model, s->text.data + from, to - from, &(pal_encode_options){ .special_as_text = said },
                        ids, err);
}

/* Whether what people say holds the text of a special token. */
static pal_status has_special(asked a, const script *s, bool *found, pal_error *err) {
    pal_ids with = { 0 }, without = { 0 };
    pal_status st = PAL_OK;
    *found = false;
    for (int i = 0; i < s->count && !st; i++) {
        const struct piece *p = &s->pieces[i];
        if (!p->said) continue;
        with.count = without.count = 0;
        st = encode(a, s, p->from, p->to, false, &with, err);
        if (!st) st = encode(a, s, p->from, p->to, true, &without, err);
        if (with.count != without.count ||
            (with.count && memcmp(with.data, without.data, with.count * sizeof *with.data) != 0))
            *found = true;
    }
    pal_ids_free(&with);
    pal_ids_free(&without);
    return st;
}

/* As one text, which is what models were trained on, unless somebody says a special token: then piece by piece. */
static pal_status encode_script(asked a, const script *s, pal_ids *ids, pal_error *err) {
    bool special;
    pal_status st = has_special(a, s, &special, err);
    if (!st && !special) return encode(a, s, 0, s->text.size, false, ids, err);
    for (int i = 0; i < s->count && !st; i++) {
        const struct piece *p = &s->pieces[i];
        st = encode(a, s, p->from, p->to, p->said, ids, err);
    }
    return st;
}

/* The texts of a list of parts, each on lines of its own as other servers join them; NULL: there are other parts. */
static char *join_parts(const json_t *parts) {
    pal_bytes text = { 0 };
    bool fine = true;
    for (size_t i = 0; i < json_array_size(parts) && fine; i++) {
        const json_t *one = json_array_get(parts, i), *part = json_object_get(one, "text");
        const char *type = json_string_value(json_object_get(one, "type")), *said = json_string_value(part);
        fine = type && strcmp(type, "text") == 0 && said && strlen(said) == json_string_length(part) &&
               !(i && pal_bytes_append(&text, "\n", 1, NULL)) && !pal_bytes_append(&text, said, strlen(said), NULL);
    }
    if (fine && !pal_bytes_append(&text, "", 1, NULL)) return (char *)text.data;
    pal_bytes_free(&text);
    return NULL;
}

static bool read_messages(serve_fields *f, message *m, size_t *count) {
    static const char expected[] = "a list of 1 to 512 objects with \"role\" (system, user or assistant) and "
                                   "\"content\" (a text, or a list of parts of type text)";
    static const char *const roles[] = { "system", "user", "assistant" };
    const json_t *list = json_object_get(f->root, "messages");
    const size_t n = json_array_size(list);
    if (!n || n > MOST_MESSAGES) return serve_wrong(f, "messages", expected);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i), *content = json_object_get(one, "content");
        bool known = false;
        m[i].role = json_string_value(json_object_get(one, "role"));
        m[i].joined = json_is_array(content) ? join_parts(content) : NULL;
        *count = i + 1;
        m[i].content = m[i].joined ? m[i].joined : json_string_value(content);
        if (m[i].role && strcmp(m[i].role, "developer") == 0) m[i].role = "system";
        for (size_t r = 0; r < 3 && m[i].role; r++) known |= strcmp(roles[r], m[i].role) == 0;
        if (!known || !m[i].content || (!m[i].joined && strlen(m[i].content) != json_string_length(content)))
            return serve_wrong(f, "messages", expected);
    }
    return true;
}

static bool make_script(serve_fields *f, serve_job *job, const message *m, size_t count) {
    const pal_tokenizer *tok = job->model->bundle.tokenizer;
    const serve_template *t = job->model->template;
    pal_error err;
    for (size_t i = 0; t == &templates[LLAMA2] && i < count; i++) /* there it is part of what the user says */
        if (strcmp(m[i].role, "system") == 0 && (i + 1 == count || strcmp(m[i + 1].role, "user") != 0))
            return serve_wrong(f, "messages", "a user's message right behind a system message, as llama2 has it");
    script *s = pal_alloc(1, sizeof *s);
    job->prompts = pal_alloc(1, sizeof *job->prompts);
    job->prompt_texts = pal_alloc(1, sizeof *job->prompt_texts);
    bool fits = s && job->prompts && job->prompt_texts;
    if (fits) job->prompt_count = 1;
    fits = fits && write_script(s, t, tok, m, count);
    if (!fits) serve_no_memory(f);
    else if (encode_script((asked){ f->x, job->model }, s, &job->prompts[0], &err))
        fits = serve_failed(f, "messages", &err);
    if (s) pal_bytes_free(&s->text);
    pal_free(s);
    return fits;
}

static bool make_prompt(serve_fields *f, serve_job *job) {
    message m[MOST_MESSAGES];
    size_t count = 0;
    if (!job->model->template) {
        f->result = serve_error(f->x, 400, NULL, "%s (--chat-template)", job->model->template_error);
        return false;
    }
    const bool made = read_messages(f, m, &count) && make_script(f, job, m, count);
    for (size_t i = 0; i < count; i++) pal_free(m[i].joined);
    return made;
}

/* The template's own stop behind those of the request. */
static bool add_stop(serve_fields *f, serve_job *job) {
    const char *stop = job->model->template ? job->model->template->stop : NULL;
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

bool serve_read_chat(serve_fields *f, serve_job *job, int64_t *n) {
    int64_t top = 0;
    job->chat = true;
    if (!serve_common(f, job, n) || !serve_max_tokens(f, job, 512, "max_tokens", "max_completion_tokens") ||
        !serve_boolean(f, "logprobs", &job->logprobs) || !serve_integer(f, "top_logprobs", 0, PAL_ALTERNATIVES, &top))
        return false;
    if (top && !job->logprobs) return serve_wrong(f, "top_logprobs", "\"logprobs\": true beside it");
    job->alternatives = (int)top;
    job->logprobs |= job->variance;
    return add_stop(f, job) && make_prompt(f, job);
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

static json_t *choice(const serve_text *t, const char *key, json_t *said, size_t tokens_from) {
    const char *finish = serve_finish(t);
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

json_t *serve_chat_json(const serve_job *job) {
    json_t *choices = json_array();
    for (size_t i = 0; i < job->count; i++) {
        const serve_text *t = &job->texts[i];
        json_t *said = json_pack("{s:s, s:o}", "role", "assistant", "content",
                                 pal_json_bytes(t->text.data, t->text.size));
        pal_json_append(choices, choice(t, "message", said, 0));
    }
    return envelope(job, "chat.completion", choices);
}

json_t *serve_chat_chunk(serve_text *t) {
    json_t *said = json_object(), *choices = json_array();
    if (!t->told_text && !t->told_tokens) pal_json_set(said, "role", json_string("assistant"));
    if (t->text.size > t->told_text)
        pal_json_set(said, "content", pal_json_bytes(t->text.data + t->told_text, t->text.size - t->told_text));
    pal_json_append(choices, choice(t, "delta", said, t->told_tokens));
    t->told_text = t->text.size;
    t->told_tokens = t->token_count;
    json_t *root = envelope(t->job, "chat.completion.chunk", choices);
    json_object_del(root, "usage");
    return root;
}
