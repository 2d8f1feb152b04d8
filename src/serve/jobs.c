/* SPDX-License-Identifier: MIT */
/* Jobs as the HTTP thread sees them: into the queue, suspended while they wait, and their replies. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "format/json.h"
#include "serve/inside.h"
#include "serve/unsent.h"
#include "text/strings.h"

serve_job *serve_job_new(serve_exchange *x, serve_model *model) {
    serve_job *job = pal_alloc(1, sizeof *job);
    if (!job) return NULL;
    job->server = x->server;
    job->model = model;
    job->created = time(NULL);
    job->arrived = x->arrived;
    job->connection = x->connection;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    job->socket = info ? info->connect_fd : -1;
    return job;
}

void serve_job_free(serve_job *job) {
    if (!job) return;
    for (size_t i = 0; i < job->count; i++) {
        serve_text *t = &job->texts[i];
        pal_bytes_free(&t->text);
        pal_reader_free(&t->said);
        pal_ids_free(&t->ids);
        pal_free(t->tokens);
        pal_free(t->top);
        pal_free(t->cuts);
    }
    for (size_t i = 0; i < job->prompt_count; i++) {
        pal_ids_free(&job->prompts[i]);
        pal_bytes_free(&job->prompt_texts[i]);
    }
    for (size_t i = 0; job->stop && i < job->options.stop_count; i++) pal_free(job->stop[i]);
    pal_free(job->stop);
    pal_free((void *)job->options.sampling.bias);
    pal_grammar_free(job->grammar);
    json_decref(job->tools);
    pal_free(job->prompts);
    pal_free(job->prompt_texts);
    pal_free(job->texts);
    serve_observe_free(job->observe);
    pal_bytes_free(&job->reply);
    pal_free(job);
}

bool serve_job_event(serve_job *job, json_t *value) {
    char *text = pal_json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(value);
    const bool done = text && !pal_bytes_append(&job->reply, "data: ", 6, NULL) &&
                      !pal_bytes_append(&job->reply, text, strlen(text), NULL) &&
                      !pal_bytes_append(&job->reply, "\n\n", 2, NULL);
    free(text);
    return done;
}

/* Hands out what a stream has; waits, suspended, when there is nothing. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t most) {
    serve_job *job = user;
    (void)position;
    pthread_mutex_lock(&job->server->lock);
    ssize_t n = (ssize_t)serve_take(&job->reply, &job->sent, out, most);
    if (n > 0) {
        job->behind = fmax(0, job->behind - (double)n / SERVE_BYTES_A_SECOND);
    } else if (job->finished) {
        n = job->cancelled ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        job->suspended = true;
        MHD_suspend_connection(job->connection);
    }
    pthread_mutex_unlock(&job->server->lock);
    return n;
}

static serve_result answer_stream(serve_exchange *x) {
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, x->job,
                                                                      NULL);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    if (x->server->options.cors)
        MHD_add_response_header(response, "Access-Control-Allow-Origin", x->server->options.cors);
    const serve_result result = MHD_queue_response(x->connection, 200, response);
    MHD_destroy_response(response);
    x->status = 200;
    x->answered = true;
    return result;
}

static bool make_texts(serve_job *job, int64_t n) {
    job->n = (size_t)n;
    static const pal_ids nothing; /* for a memory that was uploaded: one text without a prompt */
    if (!job->prompt_count) {
        if (!(job->texts = pal_alloc(1, sizeof *job->texts))) return false;
        job->count = 1;
        job->texts[0] = (serve_text){ .job = job, .prompt = &nothing };
        return true;
    }
    job->texts = pal_alloc(job->prompt_count * (size_t)n, sizeof *job->texts);
    if (!job->texts) return false;
    job->count = job->prompt_count * (size_t)n;
    for (size_t i = 0; i < job->count; i++) {
        const size_t p = i / (size_t)n;
        job->texts[i] = (serve_text){ .job = job,
                                      .index = (int)i,
                                      .prompt = &job->prompts[p],
                                      .prompt_text = { job->prompt_texts[p].data, job->prompt_texts[p].size },
                                      .seed = job->options.seed + i % (size_t)n };
        const pal_reader_options said = job->form ? pal_chat_reading(job->form, job->tools, job->thinking)
                                                  : (pal_reader_options){ 0 };
        pal_reader_begin(&job->texts[i].said, &said);
    }
    for (size_t p = 0; p < job->prompt_count; p++) job->prompt_tokens += (int64_t)job->prompts[p].count;
    return true;
}

/* What a job holds from its request until it is freed, and each of its texts while it runs: a copy of the biases, and
 * of the stop strings with how to find them. */
static size_t held_by(const serve_job *job) {
    const pal_session_options *o = &job->options;
    const size_t most = (size_t)job->server->options.max_sessions, running = job->count < most ? job->count : most;
    size_t bytes = sizeof *job + job->count * sizeof *job->texts + job->tools_bytes;
    bytes += (1 + running) * o->sampling.bias_count * sizeof *o->sampling.bias;
    for (size_t i = 0; i < o->stop_count; i++) bytes += (strlen(o->stop[i]) + 1) * (1 + running * (1 + sizeof(size_t)));
    for (size_t i = 0; i < job->prompt_count; i++)
        bytes += sizeof *job->prompts + sizeof *job->prompt_texts + job->prompt_texts[i].capacity +
                 job->prompts[i].capacity * sizeof *job->prompts[i].data;
    return bytes;
}

/* What an answer takes for a token: its text, as the text, as JSON, printed and sent; with probabilities that, too, as
 * lists that grow by doubling and as values of JSON, for the token and for each alternative. Those were measured
 * (tests/project/serve_limits.py). A chat says more of each, and every byte of it as a number. */
enum {
    USUAL_TEXT = 8, /* bytes; few texts have longer tokens on average ... */
    ANSWER = 16384, /* ... but a few tokens may be longer: for every answer */
    TEXT_COPIES = 6,
    TOKEN = 16,
    TOKEN_JSON = 720,
    TOP_JSON = 208,
    CHAT_TOKEN_JSON = 1280,
    CHAT_TOP_JSON = 1024,
    CHAT_BYTE = 48,
    START_TOKEN = 320 /* of a prompt that is observed, next to its text */
};

/* text: printed bytes of the text that comes with a token; names: of the token itself and of its `top` alternatives. */
static size_t token_bytes(const serve_job *job, bool prompt, size_t text, size_t top, size_t names) {
    size_t bytes = TOKEN + text * TEXT_COPIES;
    if (!job->logprobs) return bytes;
    if (!job->observe) bytes += 2 * (sizeof(serve_token) + top * sizeof(pal_alternative));
    if (job->stream && !prompt) return bytes; /* said bit by bit */
    return bytes + (job->chat ? CHAT_TOKEN_JSON + top * CHAT_TOP_JSON + names * CHAT_BYTE
                              : TOKEN_JSON + top * TOP_JSON + names * TEXT_COPIES);
}

/* Bytes of a text in JSON. */
static size_t printed(pal_slice text) {
    size_t n = text.size;
    for (size_t i = 0; i < text.size; i++) {
        const unsigned char c = text.data[i];
        if (c < ' ') n += 5;
        else if (c == '"' || c == '\\') n++;
    }
    return n;
}

static size_t name_bytes(const serve_job *job, int32_t id) {
    return printed(pal_tokenizer_text(job->model->bundle.tokenizer, (uint32_t)id));
}

size_t serve_token_bytes(const serve_job *job, const pal_token *token) {
    if (token->id < 0) return printed(token->text) * TEXT_COPIES; /* the end */
    if (job->observe || !job->logprobs) return TOKEN + printed(token->text) * TEXT_COPIES;
    size_t names = name_bytes(job, token->id);
    for (int i = 0; i < token->top_count; i++) names += name_bytes(job, token->top[i].id);
    return token_bytes(job, token->prompt, printed(token->text), (size_t)token->top_count, names);
}

/* The first event of an observed text has every token of its prompt, with `echo` or without. */
static size_t start_bytes(const serve_job *job, const pal_ids *prompt) {
    size_t bytes = prompt->count * START_TOKEN;
    for (size_t i = 0; i < prompt->count; i++) bytes += name_bytes(job, (int32_t)prompt->data[i]) * TEXT_COPIES;
    return bytes;
}

/* What the answer takes if its tokens are as long as usual. A prompt that is reported is there from the start. */
static void estimate(serve_job *job) {
    const size_t top = (size_t)job->alternatives, names = (1 + top) * USUAL_TEXT;
    for (size_t i = 0; i < job->prompt_count; i++) {
        const size_t read = job->prompts[i].count, asked = (size_t)job->options.max_tokens;
        const size_t room = (size_t)job->model->context - read; /* of attention, which the prompt fits */
        const size_t written = job->model->context && room < asked ? room : asked;
        const pal_slice text = { job->prompt_texts[i].data, job->prompt_texts[i].size };
        job->answer += job->n * written * token_bytes(job, false, USUAL_TEXT, top, names);
        if (job->observe) job->taken += start_bytes(job, &job->prompts[i]);
        if (!job->echo) continue;
        if (!job->observe) job->taken += job->n * printed(text) * TEXT_COPIES;
        if (job->logprobs) job->answer += job->n * read * token_bytes(job, true, 0, top, names);
    }
    job->answer += ANSWER + job->taken;
}

void serve_job_release(serve_job *job) {
    job->server->held -= job->held;
    if (job->begun) job->server->answers -= job->answer;
}

/* Why a job cannot run; the answer was given. With the lock, which is given back. */
static serve_result refuse(serve_exchange *x, serve_job *job, int status, const char *param, const char *why) {
    if (job->makes) serve_memory_leave(x->server, job->memory);
    if (status == 429) x->server->counts.refused++;
    x->server->held -= job->held;
    pthread_mutex_unlock(&x->server->lock);
    serve_job_free(job);
    return serve_error(x, status, param, "%s", why);
}

/* The memory that a text begins with. With the lock; a status that is not 0 says why not. */
static int take_memory(pal_server *s, serve_job *job, char why[200]) {
    if (!job->memory_id[0]) return 0;
    serve_memory *m = serve_memory_find(s, job->memory_id);
    if (!m) {
        snprintf(why, 200, "no memory has the id '%s'", job->memory_id);
        return 404;
    }
    if (m->model != job->model && m->fingerprint != pal_model_fingerprint(job->model->bundle.model)) {
        snprintf(why, 200, "memory %s is of another model (%.100s)", m->id, m->model ? m->model->name : "not served");
        return 400;
    }
    if (job->update && job->count != 1) {
        snprintf(why, 200, "a memory is updated by one text, not by %zu", job->count);
        return 400;
    }
    if (job->update && m->updating) {
        snprintf(why, 200, "memory %s is being updated by another request", m->id);
        return 409;
    }
    m->users++;
    m->updating |= job->update;
    job->memory = m;
    return 0;
}

serve_result serve_job_run(serve_exchange *x, serve_job *job, int64_t n) {
    pal_server *s = x->server;
    char why[200];
    const char *field = job->chat ? "messages" : job->makes ? "text" : "prompt";
    const bool few = job->prompt_count * (size_t)n <= SERVE_MOST_TEXTS, fits = few && make_texts(job, n);
    pthread_mutex_lock(&s->lock);
    if (few && !fits) return refuse(x, job, 500, NULL, "out of memory for the texts of this request");
    if (!fits) {
        snprintf(why, sizeof why, "'prompt' times 'n': expected at most %d texts", SERVE_MOST_TEXTS);
        return refuse(x, job, 400, "n", why);
    }
    for (size_t i = 0; i < job->prompt_count; i++)
        if (job->model->context && job->prompts[i].count > (size_t)job->model->context) {
            snprintf(why, sizeof why, "'%s' has %zu tokens, but this model's attention holds %d", field,
                     job->prompts[i].count, job->model->context);
            return refuse(x, job, 400, field, why);
        }
    estimate(job);
    if (job->answer > s->options.max_answer) {
        snprintf(why, sizeof why, SERVE_LARGE_ANSWER, job->answer, s->options.max_answer);
        return refuse(x, job, 400, NULL, why);
    }
    if (s->stopping) return refuse(x, job, 503, NULL, "the server is stopping");
    if (s->queued >= s->options.max_queue) {
        snprintf(why, sizeof why, "%d requests wait already; try again", s->options.max_queue);
        return refuse(x, job, 429, NULL, why);
    }
    const size_t held = held_by(job);
    if (!serve_hold(s, held)) return refuse(x, job, 503, NULL, serve_too_many);
    job->held = held;
    const int status = job->makes ? 0 : take_memory(s, job, why);
    if (status) return refuse(x, job, status, "memory", why);
    /* The probabilities of a prompt come from reading it. */
    job->caches &= s->options.cache_distance && !job->memory && (job->observe || !(job->echo && job->logprobs));
    snprintf(job->id, sizeof job->id, "%s-%016llx%06llx", job->observe ? "obs" : job->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)job->created, (unsigned long long)++s->next_id);
    x->job = job;
    serve_job **end = &s->queue;
    while (*end) end = &(*end)->next;
    *end = job;
    s->queued++;
    const bool stream = job->stream, aside = x->aside != NULL; /* aside: it is suspended */
    job->suspended = !stream;
    if (!stream && !aside) MHD_suspend_connection(x->connection);
    if (stream && aside) MHD_resume_connection(x->connection); /* for the HTTP thread to begin the stream */
    if (aside) x->aside->handed = true;
    x->aside = NULL;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return stream && !aside ? answer_stream(x) : MHD_YES;
}

serve_result serve_job_answer(serve_exchange *x) {
    serve_job *job = x->job;
    if (job->stream) return answer_stream(x);
    pthread_mutex_lock(&x->server->lock);
    const bool finished = job->finished, cancelled = job->cancelled;
    pthread_mutex_unlock(&x->server->lock);
    if (cancelled) return MHD_NO; /* no one reads it */
    if (!finished) {              /* resumed for another reason: wait on */
        pthread_mutex_lock(&x->server->lock);
        const bool now = job->finished;
        if (!now) {
            job->suspended = true;
            MHD_suspend_connection(x->connection);
        }
        pthread_mutex_unlock(&x->server->lock);
        if (!now) return MHD_YES;
    }
    if (!job->reply.size) return serve_error(x, job->status, NULL, "out of memory for an answer");
    serve_connection_stage(x, SERVE_SENDING, job->reply.size);
    return serve_reply(x, job->status, "application/json", (const char *)job->reply.data, job->reply.size);
}

void serve_job_leave(serve_job *job) {
    pal_server *s = job->server;
    pthread_mutex_lock(&s->lock);
    const bool finished = job->finished;
    job->connection = NULL;
    if (finished) serve_job_release(job);
    else job->cancelled = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (finished) serve_job_free(job);
}
