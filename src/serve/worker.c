/* SPDX-License-Identifier: MIT */
/* Jobs: the queue, and the one thread that calls models. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/inside.h"
#include "text/strings.h"

static const double WATCH_SECONDS = 0.1, FULL_SECONDS = 60;

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
        pal_free(t->tokens);
        pal_free(t->top);
    }
    for (size_t i = 0; i < job->prompt_count; i++) {
        pal_ids_free(&job->prompts[i]);
        pal_bytes_free(&job->prompt_texts[i]);
    }
    for (size_t i = 0; job->stop && i < job->options.stop_count; i++) pal_free(job->stop[i]);
    pal_free(job->stop);
    pal_free((void *)job->options.sampling.bias);
    pal_free(job->prompts);
    pal_free(job->prompt_texts);
    pal_free(job->texts);
    pal_bytes_free(&job->reply);
    pal_free(job);
}

/* Room for one more element; false: no memory, and the text ends with an error. */
static bool room(void **list, size_t *capacity, size_t count, size_t size) {
    return pal_grow(list, capacity, count, count + 1, size, NULL) == PAL_OK;
}

static void on_token(void *user, const pal_token *token) {
    serve_text *t = user;
    serve_job *job = t->job;
    bool fits = true;
    if (token->id >= 0 && job->logprobs && (!token->prompt || job->echo)) {
        fits = room((void **)&t->tokens, &t->token_room, t->token_count, sizeof *t->tokens);
        if (fits) {
            serve_token *k = &t->tokens[t->token_count++];
            *k = (serve_token){ .id = token->id,
                                .prompt = token->prompt,
                                .logprob = token->logprob,
                                .variance = token->variance,
                                .top = t->top_count };
            for (int i = 0; i < token->top_count && fits; i++) {
                fits = room((void **)&t->top, &t->top_room, t->top_count, sizeof *t->top);
                if (fits) t->top[t->top_count++] = token->top[i], k->top_count++;
            }
        }
    }
    if (token->id >= 0 && !token->prompt) t->written++;
    if (token->text.size && pal_bytes_append(&t->text, token->text.data, token->text.size, NULL)) fits = false;
    t->finish = token->finish;
    if (token->finish == PAL_FINISH_ERROR) snprintf(t->error, sizeof t->error, "%s", token->error);
    if (!fits) {
        snprintf(t->error, sizeof t->error, "no memory for the answer");
        t->finish = PAL_FINISH_ERROR;
    }
}

/* The connection goes on: there is something to send, or nothing will come. With the lock. */
static void resume(serve_job *job) {
    if (!job->connection || !job->suspended) return;
    job->suspended = false;
    MHD_resume_connection(job->connection);
}

static bool append_event(serve_job *job, json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(value);
    const bool done = text && !pal_bytes_append(&job->reply, "data: ", 6, NULL) &&
                      !pal_bytes_append(&job->reply, text, strlen(text), NULL) &&
                      !pal_bytes_append(&job->reply, "\n\n", 2, NULL);
    free(text);
    return done;
}

/* What is new in the texts of a stream. With the lock. */
static void publish_stream(serve_job *job) {
    bool fits = true;
    for (size_t i = 0; i < job->started && fits; i++) {
        serve_text *t = &job->texts[i];
        if (t->told_end) continue;
        if (t->finish == PAL_FINISH_ERROR) fits = append_event(job, serve_error_json(500, NULL, t->error));
        json_t *chunk = t->finish == PAL_FINISH_ERROR ? NULL
                        : job->chat                   ? serve_chat_chunk(t)
                                                      : serve_completion_chunk(t);
        if (chunk) fits = append_event(job, chunk);
        if (t->finish) t->told_end = true;
    }
    if (!fits) job->cancelled = true;
    if (job->reply.size) resume(job);
}

static void publish_whole(serve_job *job) {
    const char *error = NULL;
    for (size_t i = 0; i < job->count; i++)
        if (job->texts[i].finish == PAL_FINISH_ERROR) error = job->texts[i].error;
    json_t *value = error       ? serve_error_json(500, NULL, error)
                    : job->chat ? serve_chat_json(job)
                                : serve_completion_json(job);
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(value);
    job->status = error ? 500 : 200;
    if (!text || pal_bytes_append(&job->reply, text, strlen(text), NULL)) job->status = 500;
    free(text);
}

/* Ends what a job still has under way. The worker's. */
static void end_texts(serve_job *job) {
    for (size_t i = 0; i < job->count; i++) {
        serve_text *t = &job->texts[i];
        if (t->session) {
            pal_session_free(t->session);
            t->session = NULL;
            job->server->texts_running--;
        }
    }
}

/* The bytes of a character that will not be finished are part of the text. */
static void end_text(serve_text *t) {
    if (t->finish != PAL_FINISH_ERROR) {
        const pal_slice rest = pal_session_rest(t->session);
        (void)pal_bytes_append(&t->text, rest.data, rest.size, NULL);
    }
    pal_session_free(t->session);
    t->session = NULL;
    t->done = true;
    t->job->ended++;
    t->job->server->texts_running--;
    t->job->written_tokens += t->written;
}

static void start_text(serve_text *t) {
    serve_job *job = t->job;
    pal_error err;
    pal_session_options options = job->options;
    options.seed = t->seed;
    options.logprobs = job->logprobs;
    options.prompt_logprobs = job->logprobs && job->echo;
    options.alternatives = job->alternatives;
    options.on_token = on_token;
    options.user = t;
    pal_status st = pal_session_new(&t->session, job->model->engine, &err);
    if (st) t->session = NULL;
    else job->server->texts_running++;
    if (!st && job->echo && pal_bytes_append(&t->text, t->prompt_text.data, t->prompt_text.size, &err))
        st = PAL_E_MEMORY;
    if (!st) st = pal_session_begin(t->session, t->prompt->data, t->prompt->count, &options, &err);
    if (!st) return;
    snprintf(t->error, sizeof t->error, "%.255s", err.text);
    t->finish = PAL_FINISH_ERROR;
    if (t->session) end_text(t);
    else t->done = true, job->ended++;
}

/* A reader that has closed its end is not noticed by the HTTP library while a connection is suspended. */
static bool hung_up(int socket) {
    char byte;
    const ssize_t n = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Takes it out of the list; frees it unless a connection still needs its reply. With the lock. */
static void finish_job(serve_job **at) {
    serve_job *job = *at;
    pal_server *s = job->server;
    *at = job->next;
    job->finished = true;
    s->counts.prompt_tokens += (uint64_t)job->prompt_tokens;
    s->counts.written_tokens += (uint64_t)job->written_tokens;
    if (job->cancelled) s->counts.cancelled++;
    if (job->connection) resume(job);
    else serve_job_free(job);
}

/* One look at every job: starts texts where there is room, tells what is new, ends what is done. With the lock. */
static void tend(pal_server *s, bool watch) {
    const double now = pal_seconds();
    for (serve_job **at = &s->running; *at;) {
        serve_job *job = *at;
        if (watch && job->connection && job->suspended && hung_up(job->socket)) job->cancelled = true;
        if (job->stream && job->reply.size > SERVE_UNSENT) {
            if (job->full_since == 0) job->full_since = now;
            if (now - job->full_since > FULL_SECONDS) job->cancelled = true;
        } else {
            job->full_since = 0;
        }
        for (size_t i = 0; i < job->started && !job->cancelled; i++) {
            serve_text *t = &job->texts[i];
            if (t->session && t->finish) end_text(t);
            if (t->session) pal_session_pause(t->session, job->full_since > 0);
        }
        while (job->started < job->count && s->texts_running < s->options.max_sessions && !job->cancelled)
            start_text(&job->texts[job->started++]);
        if (job->stream && !job->cancelled) publish_stream(job);
        if (job->ended == job->count && !job->cancelled) {
            if (!job->stream) publish_whole(job);
            else {
                if (job->usage) (void)append_event(job, serve_usage(job));
                (void)pal_bytes_append(&job->reply, "data: [DONE]\n\n", 14, NULL);
            }
        }
        if (job->ended == job->count || job->cancelled) {
            end_texts(job);
            finish_job(at);
        } else {
            at = &job->next;
        }
    }
}

/* The job that has waited longest, when there is room. With the lock. */
static void take_queued(pal_server *s) {
    if (!s->queue || s->texts_running >= s->options.max_sessions) return;
    serve_job *job = s->queue, **end = &s->running;
    while (*end) end = &(*end)->next;
    s->queue = job->next;
    job->next = NULL;
    s->queued--;
    *end = job;
}

static void wait_until(pal_server *s, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->wake, &s->lock, &until);
}

static void *work(void *user) {
    pal_server *s = user;
    double watched = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping || s->running || s->queue) {
        const double now = pal_seconds();
        const bool watch = now - watched > WATCH_SECONDS;
        if (watch) watched = now;
        take_queued(s);
        tend(s, watch);
        int busy = 0;
        for (int i = 0; i < s->count; i++) busy += pal_engine_busy(s->models[i].engine);
        if (!busy) {
            if (!s->queue) wait_until(s, WATCH_SECONDS);
            continue;
        }
        pthread_mutex_unlock(&s->lock); /* sessions are this thread's alone */
        pal_engine_counts sum = { 0 };
        for (int i = 0; i < s->count; i++) {
            pal_engine_step(s->models[i].engine);
            const pal_engine_counts c = pal_engine_counted(s->models[i].engine);
            sum.read += c.read, sum.written += c.written;
            sum.read_seconds += c.read_seconds, sum.write_seconds += c.write_seconds;
        }
        pthread_mutex_lock(&s->lock);
        s->engine = sum;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

bool serve_worker_start(pal_server *s) {
    s->working = pthread_create(&s->worker, NULL, work, s) == 0;
    return s->working;
}

/* The HTTP thread's side. */

/* Hands out what a stream has; waits, suspended, when there is nothing. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t most) {
    serve_job *job = user;
    (void)position;
    pthread_mutex_lock(&job->server->lock);
    ssize_t n = (ssize_t)(job->reply.size < most ? job->reply.size : most);
    if (n > 0) {
        memcpy(out, job->reply.data, (size_t)n);
        memmove(job->reply.data, job->reply.data + n, job->reply.size - (size_t)n);
        job->reply.size -= (size_t)n;
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
    }
    for (size_t p = 0; p < job->prompt_count; p++) job->prompt_tokens += (int64_t)job->prompts[p].count;
    return true;
}

serve_result serve_job_run(serve_exchange *x, serve_job *job, int64_t n) {
    pal_server *s = x->server;
    if (job->prompt_count * (size_t)n > SERVE_MOST_TEXTS || !make_texts(job, n)) {
        serve_job_free(job);
        return serve_error(x, 400, "n", "'prompt' times 'n': expected at most %d texts", SERVE_MOST_TEXTS);
    }
    for (size_t i = 0; i < job->prompt_count; i++)
        if (job->model->context && job->prompts[i].count > (size_t)job->model->context) {
            const size_t found = job->prompts[i].count;
            const char *field = job->chat ? "messages" : "prompt";
            const int most = job->model->context;
            serve_job_free(job);
            return serve_error(x, 400, field, "'%s' has %zu tokens, but this model's attention holds %d", field, found,
                               most);
        }
    const bool stream = job->stream;
    pthread_mutex_lock(&s->lock);
    if (s->stopping || s->queued >= s->options.max_queue) {
        const bool stopping = s->stopping;
        s->counts.refused++;
        pthread_mutex_unlock(&s->lock);
        serve_job_free(job);
        return stopping ? serve_error(x, 503, NULL, "the server is stopping")
                        : serve_error(x, 429, NULL, "%d requests wait already; try again", s->options.max_queue);
    }
    snprintf(job->id, sizeof job->id, "%s-%016llx%06llx", job->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)job->created, (unsigned long long)++s->next_id);
    x->job = job;
    serve_job **end = &s->queue;
    while (*end) end = &(*end)->next;
    *end = job;
    s->queued++;
    if (!stream) {
        job->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return stream ? answer_stream(x) : MHD_YES;
}

serve_result serve_job_answer(serve_exchange *x) {
    serve_job *job = x->job;
    pthread_mutex_lock(&x->server->lock);
    const bool finished = job->finished, cancelled = job->cancelled;
    pthread_mutex_unlock(&x->server->lock);
    if (cancelled) return MHD_NO; /* nobody reads it */
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
    return serve_reply(x, job->status, "application/json", (const char *)job->reply.data, job->reply.size);
}

void serve_job_leave(serve_job *job) {
    pal_server *s = job->server;
    pthread_mutex_lock(&s->lock);
    const bool finished = job->finished;
    job->connection = NULL;
    if (!finished) {
        job->cancelled = true;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (finished) serve_job_free(job);
}
