/* SPDX-License-Identifier: MIT */
/* POST /v1/chat/completions: messages become a prompt by a named template. What a message says is text: it never yields
 * a special token. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "format/gguf_values.h"
#include "format/json.h"
#include "format/model_dir.h"
#include "serve/inside.h"
#include "text/json_text.h"
#include "text/strings.h"

struct serve_template {
    const char *name;
    const char *mark; /* what a chat template of a model holds when it is this one */
    const char *stop; /* ends an answer where the model does not know how to; NULL: nothing */
};

static const serve_template templates[] = { { "chatml", "<|im_start|>", "<|im_end|>" },
                                            { "llama2", "[INST]", NULL },
                                            { "plain", NULL, "\nUser:" } };
enum { CHATML, LLAMA2, PLAIN, TEMPLATES };
const char serve_template_names[] = "chatml, llama2, plain";

const serve_template *serve_template_named(const char *name) {
    for (int i = 0; i < TEMPLATES; i++)
        if (strcmp(templates[i].name, name) == 0) return &templates[i];
    return NULL;
}

static const serve_template *recognised(pal_slice text) {
    for (int i = 0; i < PLAIN; i++)
        if (text.size && memmem(text.data, text.size, templates[i].mark, strlen(templates[i].mark)))
            return &templates[i];
    return NULL;
}

/* Several templates are a list of objects; people talk by the one that is called default. */
static const json_t *default_template(const json_t *given) {
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *one = json_array_get(given, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0) return json_object_get(one, "template");
    }
    return given;
}

/* These set `found` to what a file says, NULL where it is not known, and leave it alone where the file says nothing. */
static pal_status read_config(const serve_template **found, const char *path, pal_error *err) {
    json_t *root = NULL;
    const pal_status st = pal_json_read(&root, path, err);
    const json_t *given = json_object_get(root, "chat_template"), *one = default_template(given);
    if (!st && given && !json_is_null(given))
        *found = recognised((pal_slice){ (const unsigned char *)json_string_value(one), json_string_length(one) });
    json_decref(root);
    return st;
}
static pal_status read_jinja(const serve_template **found, const char *path, pal_error *err) {
    pal_map map;
    const pal_status st = pal_map_open(&map, path, err);
    if (st) return st;
    *found = recognised((pal_slice){ map.data, map.size });
    pal_map_close(&map);
    return PAL_OK;
}
static pal_status read_gguf(const serve_template **found, const char *path, pal_error *err) {
    pal_map map;
    uint64_t tensors, pairs = 0;
    pal_status st = pal_map_open(&map, path, err);
    if (st) return st;
    pal_gguf_reader r = { .data = map.data, .size = map.size };
    if (map.size >= 4 && memcmp(map.data, "GGUF", 4) == 0) st = pal_gguf_begin(&r, path, &tensors, &pairs, err);
    for (uint64_t i = 0; i < pairs && !st && !r.bad; i++) {
        const pal_slice key = pal_gguf_string(&r);
        const pal_gguf_value v = pal_gguf_read(&r);
        if (!r.bad && pal_gguf_is(key, "tokenizer.chat_template")) *found = recognised(v.text);
    }
    pal_map_close(&map);
    return st;
}

/* Recognises the template of a model; without one it is plain. */
const serve_template *serve_template_of(const char *model, char why[256]) {
    static const struct {
        const char *name; /* behind the model's path */
        pal_status (*read)(const serve_template **found, const char *path, pal_error *err);
    } places[] = { { "", read_gguf }, /* a model that is one file */
                   { "/chat_template.jinja", read_jinja },
                   { "/tokenizer_config.json", read_config } };
    const serve_template *found = &templates[PLAIN];
    char path[4096];
    struct stat there;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        pal_error err;
        if (snprintf(path, sizeof path, "%s%s", model, places[i].name) >= (int)sizeof path || stat(path, &there) != 0 ||
            S_ISDIR(there.st_mode))
            continue;
        const char *file = i ? places[i].name + 1 : "GGUF file";
        if (places[i].read(&found, path, &err)) {
            pal_warn("%s: chats are refused until --chat-template chooses one", err.text);
            snprintf(why, 256, "this model's %s cannot be read; choose one of %s", file, serve_template_names);
            return NULL;
        }
        if (!found)
            snprintf(why, 256, "the chat template of this model's %s is not known; choose one of %s", file,
                     serve_template_names);
        if (found != &templates[PLAIN]) break; /* the first file that says one */
    }
    return found;
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

static bool add(script *s, bool said, const char *text) {
    const size_t size = strlen(text);
    if (!size) return true;
    if (s->count && s->pieces[s->count - 1].said == said) s->pieces[s->count - 1].to += size;
    else if (s->count < (int)(sizeof s->pieces / sizeof *s->pieces))
        s->pieces[s->count++] = (struct piece){ s->text.size, s->text.size + size, said };
    else return false;
    return !pal_bytes_append(&s->text, text, size, NULL);
}

enum { MOST_MESSAGES = 512 };
typedef struct {
    const char *role, *content;
} message;

static bool write_script(script *s, const serve_template *t, const message *m, size_t count) {
    bool fits = true;
    const char *system = NULL;
    for (size_t i = 0; i < count && fits; i++) {
        const bool answer = strcmp(m[i].role, "assistant") == 0;
        if (t == &templates[CHATML]) {
            fits = add(s, false, "<|im_start|>") && add(s, false, m[i].role) && add(s, false, "\n") &&
                   add(s, true, m[i].content) && add(s, false, "<|im_end|>\n");
        } else if (t == &templates[LLAMA2]) {
            if (strcmp(m[i].role, "system") == 0) system = m[i].content;
            else if (answer) fits = add(s, true, m[i].content) && add(s, false, " </s><s>");
            else {
                fits = add(s, false, "[INST] ");
                if (system && fits)
                    fits = add(s, false, "<<SYS>>\n") && add(s, true, system) && add(s, false, "\n<</SYS>>\n\n");
                system = NULL;
                fits = fits && add(s, true, m[i].content) && add(s, false, " [/INST] ");
            }
        } else {
            const bool told = strcmp(m[i].role, "system") == 0;
            fits = add(s, false,
                       told     ? ""
                       : answer ? "Assistant: "
                                : "User: ") &&
                   add(s, true, m[i].content) && add(s, false, "\n\n");
        }
    }
    if (t == &templates[CHATML]) fits = fits && add(s, false, "<|im_start|>assistant\n");
    if (t == &templates[PLAIN]) fits = fits && add(s, false, "Assistant:");
    return fits;
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
static pal_status encode_script(asked a, const script *s, bool bos, pal_ids *ids, pal_error *err) {
    bool special;
    pal_status st = has_special(a, s, &special, err);
    if (!st && bos) st = pal_ids_append(ids, (uint32_t)pal_tokenizer_bos(a.model->bundle.tokenizer), err);
    if (!st && !special) return encode(a, s, 0, s->text.size, false, ids, err);
    for (int i = 0; i < s->count && !st; i++) {
        const struct piece *p = &s->pieces[i];
        st = encode(a, s, p->from, p->to, p->said, ids, err);
    }
    return st;
}

static bool read_messages(serve_fields *f, message *m, size_t *count) {
    static const char expected[] =
        "a list of 1 to 512 objects with \"role\" (system, user or assistant) and \"content\" (a text)";
    static const char *const roles[] = { "system", "user", "assistant" };
    const json_t *list = json_object_get(f->root, "messages");
    *count = json_array_size(list);
    if (!*count || *count > MOST_MESSAGES) return serve_wrong(f, "messages", expected);
    for (size_t i = 0; i < *count; i++) {
        const json_t *one = json_array_get(list, i), *content = json_object_get(one, "content");
        bool known = false;
        m[i].role = json_string_value(json_object_get(one, "role"));
        m[i].content = json_string_value(content);
        if (m[i].role && strcmp(m[i].role, "developer") == 0) m[i].role = "system";
        for (size_t r = 0; r < 3 && m[i].role; r++) known |= strcmp(roles[r], m[i].role) == 0;
        if (!known || !m[i].content || strlen(m[i].content) != json_string_length(content))
            return serve_wrong(f, "messages", expected);
    }
    return true;
}

static bool make_prompt(serve_fields *f, serve_job *job) {
    message m[MOST_MESSAGES];
    size_t count;
    pal_error err;
    const serve_template *t = job->model->template;
    if (!t) {
        f->result = serve_error(f->x, 400, NULL, "%s (--chat-template)", job->model->template_error);
        return false;
    }
    if (!read_messages(f, m, &count)) return false;
    for (size_t i = 0; t == &templates[LLAMA2] && i < count; i++) /* there it is part of what the user says */
        if (strcmp(m[i].role, "system") == 0 && (i + 1 == count || strcmp(m[i + 1].role, "user") != 0))
            return serve_wrong(f, "messages", "a user's message right behind a system message, as llama2 has it");
    script *s = pal_alloc(1, sizeof *s);
    job->prompts = pal_alloc(1, sizeof *job->prompts);
    job->prompt_texts = pal_alloc(1, sizeof *job->prompt_texts);
    bool fits = s && job->prompts && job->prompt_texts;
    if (fits) job->prompt_count = 1;
    fits = fits && write_script(s, t, m, count);
    if (!fits) serve_wrong(f, "messages", "less: no memory");
    else {
        const bool bos = t == &templates[LLAMA2] && pal_tokenizer_bos(job->model->bundle.tokenizer) >= 0;
        if (encode_script((asked){ f->x, job->model }, s, bos, &job->prompts[0], &err)) {
            f->result = serve_error(f->x, 400, "messages", "'messages': %s", err.text);
            fits = false;
        }
    }
    if (s) pal_bytes_free(&s->text);
    pal_free(s);
    return fits;
}

/* The template's own stop behind those of the request. */
static bool add_stop(serve_fields *f, serve_job *job) {
    const char *stop = job->model->template ? job->model->template->stop : NULL;
    const size_t count = job->options.stop_count;
    if (!stop) return true;
    char **more = pal_alloc(count + 1, sizeof *more);
    if (!more || !(more[count] = pal_strdup(stop))) {
        pal_free(more);
        return serve_wrong(f, "stop", "less: no memory");
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
