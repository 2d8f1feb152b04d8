/* SPDX-License-Identifier: MIT */
/* The one thread that calls models: takes jobs from the queue, runs their texts and fills their replies. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/map.h"
#include "format/json.h"
#include "infer/session.h"
#include "model/state.h"
#include "serve/inside.h"
#include "text/strings.h"

static const double WATCH_SECONDS = 0.1;

/* The first text of the same prompt. */
static serve_text *first_of(const serve_text *t) {
    return &t->job->texts[(size_t)t->index - (size_t)t->index % t->job->n];
}

static void fail_text(serve_text *t, int status, const char *why) {
    pal_error shown;
    snprintf(shown.text, sizeof shown.text, "%s", why);
    serve_hide_paths(t->job->server, shown.text);
    snprintf(t->error, sizeof t->error, "%.255s", shown.text);
    t->finish = PAL_FINISH_ERROR;
    t->status = status;
}

/* Room for one more element; false: no memory, and the text ends with an error. */
static bool room(void **list, size_t *capacity, size_t count, size_t size) {
    return pal_grow(list, capacity, count, count + 1, size, NULL) == PAL_OK;
}

static void on_token(void *user, const pal_token *token) {
    serve_text *t = user;
    serve_job *job = t->job;
    bool fits = true;
    if (job->observe) fits = serve_observe_on_token(t, token);
    else if (token->id >= 0 && job->logprobs && (!token->prompt || job->echo)) {
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
    if (token->id >= 0 && !token->prompt) {
        if (!t->written++) t->first = pal_seconds();
        if ((job->caches || job->update) && pal_ids_append(&t->ids, (uint32_t)token->id, NULL)) fits = false;
    }
    if (token->text.size && pal_bytes_append(&t->text, token->text.data, token->text.size, NULL)) fits = false;
    if (job->chat && pal_reader_push(&t->said, token->text.data, token->text.size, false, NULL)) fits = false;
    job->taken += serve_token_bytes(job, token);
    t->finish = token->finish;
    if (token->finish == PAL_FINISH_ERROR) fail_text(t, 500, token->error);
    if (!fits) fail_text(t, 500, "out of memory for the answer");
}

size_t serve_bytes_taken(const pal_server *s) {
    size_t bytes = s->session_fixed + s->cache.bytes + (s->spare ? s->spare_model->fixed_bytes : 0);
    for (int i = 0; i < s->count; i++) bytes += pal_model_page_bytes(s->models[i].bundle.model);
    for (const serve_job *job = s->running; job; job = job->next)
        for (size_t i = 0; i < job->started; i++) {
            const serve_text *t = &job->texts[i];
            const pal_state *state = t->session ? pal_session_state(t->session) : NULL;
            const size_t held = state ? state->held * job->model->page_bytes : 0;
            if (t->promised > held) bytes += t->promised - held;
        }
    return bytes;
}

static size_t page_bytes(const pal_server *s) {
    size_t bytes = 0;
    for (int i = 0; i < s->count; i++) bytes += pal_model_page_bytes(s->models[i].bundle.model);
    return bytes;
}

/* What /metrics shows. With the lock. */
static void note_bytes(pal_server *s) {
    s->cache_bytes = s->cache.bytes;
    s->cache_count = s->cache.count;
    s->page_bytes = page_bytes(s);
}

/* Room for a prompt's memory, for its other texts, which read it themselves when there is none. */
static void make_shared(serve_job *job) {
    pal_server *s = job->server;
    const serve_model *m = job->model;
    if (job->n == 1 || job->memory || job->shared) return;
    serve_drop_spare(s);
    if (s->session_bytes + m->fixed_bytes > s->options.memory_budget) return;
    if (pal_state_new(&job->shared, m->bundle.model, m->context ? m->context : 1, NULL)) return;
    s->session_bytes += m->fixed_bytes;
    s->session_fixed += m->fixed_bytes;
    (void)serve_cache_shrink(s, 0);
}

static void drop_shared(serve_job *job) {
    if (!job->shared) return;
    pal_state_free(job->shared);
    job->shared = NULL;
    job->server->session_bytes -= job->model->fixed_bytes;
    job->server->session_fixed -= job->model->fixed_bytes;
}

static void share(serve_job *job, const pal_state *state) {
    if (job->shared) (void)pal_state_copy(job->shared, state, NULL); /* of the same model */
}

static bool is_mark(const serve_text *t, size_t at) {
    for (size_t i = 0; i < SERVE_MARKS; i++)
        if (t->marks[i] == at) return true;
    return false;
}

/* After a piece of a prompt: kept where others may continue from, on the grid and at the prompt's end. */
static void on_read(void *user, const pal_state *state) {
    serve_text *t = user;
    serve_job *job = t->job;
    pal_server *s = job->server;
    const size_t at = (size_t)pal_state_position(state);
    t->read = !job->memory && at + 1 == t->prompt->count;
    if (job->observe) {
        if (!serve_observe_on_read(t, state)) fail_text(t, 500, "out of memory for the answer");
    } else if (job->caches && (t->read || at % (size_t)s->options.cache_distance == 0 || is_mark(t, at))) {
        const bool last = t->read && job->options.max_tokens; /* the answer is kept soon */
        serve_cache_put(s, job->model, t->prompt->data, at, state, !last);
    }
    if (t->read) share(job, state);
}

/* What a text has read and written is kept: conversations continue from there. With the lock. */
static void keep_answer(serve_text *t) {
    const serve_job *job = t->job;
    pal_server *s = job->server;
    const pal_state *state = pal_session_state(t->session);
    const size_t at = (size_t)pal_state_position(state);
    pal_ids all = { 0 };
    if (job->caches && t->ids.count && at <= t->prompt->count + t->ids.count &&
        !pal_ids_reserve(&all, t->prompt->count + t->ids.count, NULL)) {
        memcpy(all.data, t->prompt->data, t->prompt->count * sizeof *all.data);
        memcpy(all.data + t->prompt->count, t->ids.data, t->ids.count * sizeof *all.data);
        pthread_mutex_unlock(&s->lock); /* files may be waited for */
        serve_cache_put(s, job->model, all.data, at, state, true);
        pthread_mutex_lock(&s->lock);
    }
    pal_ids_free(&all);
}

/* The connection continues: there is something to send, or nothing will come. With the lock. */
static void resume(serve_job *job) {
    if (!job->connection || !job->suspended) return;
    job->suspended = false;
    MHD_resume_connection(job->connection);
}

/* One that cannot be made cancels the stream: what is reported must not lack a part. */
static bool tell_news(serve_text *t) {
    serve_job *job = t->job;
    if (t->finish == PAL_FINISH_ERROR) return serve_job_event(job, serve_error_json(t->status, NULL, t->error));
    if (job->observe || (t->text.size == t->told_text && t->token_count == t->told_tokens && !t->finish)) return true;
    if (!job->chat) return serve_job_event(job, serve_completion_chunk(t));
    while (serve_chat_has_news(t))
        if (!serve_job_event(job, serve_chat_chunk(t))) return false;
    return true;
}

/* What is new in the texts of a stream. With the lock. */
static void publish_stream(serve_job *job) {
    bool fits = true;
    for (size_t i = 0; i < job->started && fits; i++) {
        serve_text *t = &job->texts[i];
        if (t->told_end || (t->again && !t->done)) continue;
        fits = (!job->observe || serve_observe_publish(t)) && tell_news(t);
        if (t->finish) t->told_end = true;
    }
    if (!fits) job->cancelled = true;
    if (job->reply.size > job->sent) resume(job);
}

/* The whole reply. A long one takes a while, in which others may have the lock: until it is finished, no one else
 * touches a job's texts. */
static void publish_whole(serve_job *job) {
    const char *error = NULL;
    int status = job->makes ? 201 : 200;
    if (!job->makes) pthread_mutex_unlock(&job->server->lock);
    for (size_t i = 0; i < job->count; i++)
        if (job->texts[i].finish == PAL_FINISH_ERROR) error = job->texts[i].error, status = job->texts[i].status;
    json_t *value = error        ? serve_error_json(status, NULL, error)
                    : job->makes ? serve_memory_json(job->memory)
                    : job->chat  ? serve_chat_json(job)
                                 : serve_completion_json(job);
    char *text = pal_json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(value);
    if (!job->makes) pthread_mutex_lock(&job->server->lock);
    job->status = status;
    if (!text || pal_bytes_append(&job->reply, text, strlen(text), NULL)) job->status = 500, job->reply.size = 0;
    free(text);
}

/* Bytes of pages that a text may come to hold: of all that it can read and write, or of what it writes alone where it
 * continues what another text of its job has read. */
static size_t pages_wanted(const serve_text *t) {
    const serve_job *job = t->job;
    const serve_model *m = job->model;
    const size_t most = (size_t)m->context, read = t->prompt->count + (job->memory ? (size_t)job->memory->tokens : 0);
    const size_t written = (size_t)job->options.max_tokens + 1;
    if (!most) return 0;
    const size_t all = written < most && read < most - written ? read + written : most;
    const size_t own = first_of(t) != t && job->shared && written < all ? written + 64 : all;
    return (own + 63) / 64 * m->page_bytes;
}

/* A session to begin a text with. The last one that ended is taken again: most of a known prompt's time to its first
 * token would be spent on making a new one, whose pages the system has to find and clear. */
static pal_status take_session(serve_text *t, pal_error *err) {
    pal_server *s = t->job->server;
    serve_model *m = t->job->model;
    const bool again = s->spare && s->spare_model == m;
    if (again) t->session = s->spare, s->spare = NULL;
    else serve_drop_spare(s);
    const pal_status st = again ? PAL_OK : pal_session_new(&t->session, m->engine, err);
    if (st) return st;
    s->texts_running++;
    t->promised = pages_wanted(t);
    s->session_fixed += m->fixed_bytes;
    s->session_bytes += m->fixed_bytes + t->promised;
    return PAL_OK;
}

void serve_drop_spare(pal_server *s) {
    pal_session_free(s->spare);
    s->spare = NULL;
}

static void drop_session(serve_text *t) {
    pal_server *s = t->job->server;
    if (!t->session) return;
    serve_drop_spare(s);
    if (t->finish && !t->job->model->context) pal_session_cancel(t->session);
    else pal_session_reset(t->session); /* leaves its pages; and the rest of a piece is not needed that is under way */
    s->spare = t->session;
    s->spare_model = t->job->model;
    t->session = NULL;
    s->texts_running--;
    s->session_fixed -= t->job->model->fixed_bytes;
    s->session_bytes -= t->job->model->fixed_bytes + t->promised;
    t->promised = 0;
}

/* What a text leaves becomes the memory. Files are written without the lock: no one else changes this one. */
static void keep_memory(serve_text *t) {
    serve_job *job = t->job;
    pal_server *s = job->server;
    serve_memory *m = job->memory;
    char path[4096];
    pal_error err;
    serve_memory_path(s, m, 0, path);
    pthread_mutex_unlock(&s->lock);
    const pal_status saved = job->update ? pal_session_save(t->session, path, &err) : pal_sync_file(path, &err);
    pthread_mutex_lock(&s->lock);
    const pal_status st = saved ? saved : serve_memory_keep(s, m, &err);
    if (!st && job->update) {
        const uint64_t version = m->version;
        pthread_mutex_unlock(&s->lock);
        serve_cache_put_saved(s, job->model, version, t->session);
        pthread_mutex_lock(&s->lock);
    }
    if (st)
        fail_text(t, strstr(err.text, strerror(ENOSPC)) || strstr(err.text, strerror(EDQUOT)) ? 507 : 500, err.text);
}

/* Whether a token is part of the text. */
static bool is_shown(const serve_job *job, uint32_t id) {
    for (size_t i = 0; i < job->options.shown_count; i++)
        if (job->options.shown[i] == id) return true;
    return !pal_tokenizer_is_special(job->model->bundle.tokenizer, id);
}

/* The ids of a prompt and of its answer as far as the answer goes: of the token that a stop string begins in, what is
 * in front of the stop. */
static pal_status kept_ids(const serve_text *t, pal_ids *ids, pal_error *err) {
    const serve_model *m = t->job->model;
    const size_t size = t->text.size - (t->job->echo ? t->prompt_text.size : 0);
    const unsigned char *text = t->text.data + (t->text.size - size);
    size_t at = 0, taken = 0;
    pal_status st = pal_ids_reserve(ids, t->prompt->count + t->ids.count, err);
    if (st) return st;
    for (size_t i = 0; i < t->prompt->count; i++) ids->data[ids->count++] = t->prompt->data[i];
    while (taken < t->ids.count && at < size) {
        const uint32_t id = t->ids.data[taken];
        const size_t more = is_shown(t->job, id) ? pal_tokenizer_text(m->bundle.tokenizer, id).size : 0;
        if (more > size - at) break;
        at += more;
        ids->data[ids->count++] = t->ids.data[taken++];
    }
    pal_tokenizer_scratch *scratch = NULL;
    if (at == size) return PAL_OK;
    st = pal_tokenizer_scratch_new(&scratch, m->bundle.tokenizer, err);
    if (!st)
        st = pal_tokenizer_encode(m->bundle.tokenizer, scratch, text + at, size - at,
                                  &(pal_encode_options){ .special_as_text = true }, ids, err);
    pal_tokenizer_scratch_free(scratch);
    return st;
}

static pal_status load_memory(serve_text *t, pal_error *err);

static void add_guessed(const serve_text *t) {
    const pal_guessed guessed = pal_session_guessed(t->session);
    t->job->guessed.accepted += guessed.accepted;
    t->job->guessed.rejected += guessed.rejected;
}

/* A session that has met a stop string has read it. What becomes the memory is read again without it; true: the text
 * has not ended yet. */
static bool reads_again(serve_text *t) {
    serve_job *job = t->job;
    pal_ids ids = { 0 };
    pal_error err;
    if (t->again) return pal_session_busy(t->session);
    if (t->finish != PAL_FINISH_STOP || !job->update) return false;
    t->again = true;
    add_guessed(t);
    pal_status st = load_memory(t, &err);
    if (!st) st = kept_ids(t, &ids, &err);
    if (!st) st = pal_session_begin(t->session, ids.data, ids.count, &(pal_session_options){ 0 }, &err);
    pal_ids_free(&ids);
    if (st) fail_text(t, 500, err.text);
    return !st;
}

static void measure(const serve_text *t) {
    pal_server *s = t->job->server;
    if (t->prompt) serve_measure(s, SERVE_PROMPT_TOKENS, (double)t->prompt->count);
    if (!t->written) return;
    serve_measure(s, SERVE_FIRST_TOKEN_SECONDS, t->first - t->job->arrived);
    if (t->written > 1)
        serve_measure(s, SERVE_TOKEN_SECONDS, (pal_seconds() - t->first) / (double)(t->written - 1));
}

/* The bytes of a character that will not be finished are part of the text. A memory is updated only by an answer that
 * is whole. */
static void end_text(serve_text *t) {
    if (t->again && pal_session_finish(t->session) == PAL_FINISH_ERROR)
        fail_text(t, 500, "the answer could not be read again without its stop string");
    if (t->finish != PAL_FINISH_ERROR && !t->again) {
        const pal_slice rest = pal_session_rest(t->session);
        if (pal_bytes_append(&t->text, rest.data, rest.size, NULL) ||
            (t->job->chat && pal_reader_push(&t->said, rest.data, rest.size, false, NULL)) ||
            (t->job->observe && !serve_observe_last_map(t)))
            fail_text(t, 500, "out of memory for the answer");
    }
    if (t->finish != PAL_FINISH_ERROR && t->job->chat && pal_reader_push(&t->said, NULL, 0, true, NULL))
        fail_text(t, 500, "out of memory for the answer");
    if (t->finish != PAL_FINISH_ERROR) {
        if (t->job->makes || t->job->update) keep_memory(t);
        keep_answer(t);
    }
    measure(t);
    if (!t->again) add_guessed(t);
    drop_session(t);
    t->done = true;
    t->job->ended++;
    t->job->written_tokens += t->written;
}

/* The memory that a text begins with. Read without the lock: a memory in use is not taken apart. */
static pal_status load_memory(serve_text *t, pal_error *err) {
    serve_job *job = t->job;
    pal_server *s = job->server;
    char path[4096];
    if (!job->memory || !job->memory->has_file) return PAL_OK;
    if (job->memory->deleted) {
        t->status = 404;
        return pal_fail(err, PAL_E_ARGUMENT, "memory %s was deleted", job->memory->id);
    }
    const int room = job->model->context;
    if (room && job->memory->tokens > room + 1) { /* the last one may still wait to be read */
        t->status = 400;
        return pal_fail(err, PAL_E_ARGUMENT,
                        "memory %s has %lld tokens, this server's attention layers hold %d (--max-context)",
                        job->memory->id, (long long)job->memory->tokens, room);
    }
    serve_memory_path(s, job->memory, 0, path);
    const uint64_t version = job->memory->version;
    const serve_snapshot *known = version ? serve_cache_find_saved(s, job->model, version) : NULL;
    if (known)
        return pal_session_resume(t->session, known->state, (pal_slice){ known->record.data, known->record.size }, err);
    pthread_mutex_unlock(&s->lock);
    const pal_status st = pal_session_load(t->session, path, err);
    pthread_mutex_lock(&s->lock);
    if (!st && version && version == job->memory->version) serve_cache_put_saved(s, job->model, version, t->session);
    if (st && job->memory->deleted) { /* meanwhile */
        t->status = 404;
        return pal_fail(err, PAL_E_ARGUMENT, "memory %s was deleted", job->memory->id);
    }
    if (st && strcmp(job->memory->origin, "upload") == 0 && job->makes) t->status = 400;
    return st;
}

/* Texts of one prompt begin when the first has read it. */
static bool may_start(const serve_text *t) {
    const serve_text *first = first_of(t);
    return first == t || t->job->memory || first->read || first->done || t->prompt->count < 2;
}

/* What need not be read, because another text has read it. With the lock. */
static void begin_known(serve_text *t, pal_session_options *o) {
    serve_job *job = t->job;
    const serve_text *first = first_of(t);
    if (job->memory) return;
    if (first != t && first->read && job->shared) {
        o->known = job->shared;
        for (size_t i = 0; o->prompt_logprobs && i < first->token_count && first->tokens[i].prompt; i++) {
            const serve_token *k = &first->tokens[i];
            const pal_token token = { .prompt = true,
                                      .id = k->id,
                                      .logprob = k->logprob,
                                      .variance = k->variance,
                                      .top = first->top + k->top,
                                      .top_count = (int)k->top_count };
            on_token(t, &token);
        }
        o->prompt_logprobs = false;
    } else if (job->caches) {
        const size_t most = job->observe ? serve_observe_known(job->observe) : t->prompt->count;
        pthread_mutex_unlock(&job->server->lock); /* it may come from a file */
        o->known = serve_cache_find(job->server, job->model, t->prompt->data,
                                    most < t->prompt->count ? most : t->prompt->count);
        pthread_mutex_lock(&job->server->lock);
        if (o->known && first == t) job->cached_tokens += pal_state_position(o->known);
        t->read = o->known && (size_t)pal_state_position(o->known) + 1 == t->prompt->count;
        if (t->read) share(job, o->known);
    }
}

static void start_text(serve_text *t) {
    serve_job *job = t->job;
    pal_error err;
    pal_session_options options = job->options;
    options.seed = t->seed;
    options.logprobs = job->logprobs;
    options.prompt_logprobs = job->logprobs && job->echo;
    options.alternatives = job->alternatives;
    if (job->observe) serve_observe_view(job->observe);
    if (job->observe) serve_observe_options(job->observe, &options);
    options.on_token = on_token;
    options.on_read = on_read;
    options.user = t;
    pal_status st = serve_model_engine(job->server, job->model, &err);
    if (!st) st = take_session(t, &err);
    if (!st) st = load_memory(t, &err);
    if (!st && job->echo && !job->observe &&
        pal_bytes_append(&t->text, t->prompt_text.data, t->prompt_text.size, &err))
        st = PAL_E_MEMORY;
    if (!st) make_shared(job);
    if (!st && !job->memory && !job->observe) {
        if (!serve_cut(t)) st = pal_fail(&err, PAL_E_MEMORY, "out of memory for a prompt");
        options.cuts = t->cuts, options.cut_count = t->cut_count;
    }
    if (!st) begin_known(t, &options);
    if (!st && !options.known && !(job->memory && job->memory->has_file)) pal_session_reset(t->session);
    if (!st && job->observe) serve_observe_ready(t, options.known);
    if (!st && !job->prompt_count) t->finish = PAL_FINISH_LENGTH; /* nothing to read */
    else if (!st) st = pal_session_begin(t->session, t->prompt->data, t->prompt->count, &options, &err);
    if (!st && job->observe && !serve_observe_begin(t))
        st = pal_fail(&err, PAL_E_MEMORY, "out of memory for the answer");
    if (!st) return;
    fail_text(t, t->status ? t->status : st == PAL_E_ARGUMENT ? 400 : 500, err.text);
    if (t->session) end_text(t);
    else t->done = true, job->ended++;
}

/* Whether this text may run now. At least one always may. */
static bool has_room(const pal_server *s, const serve_text *t) {
    const size_t more = t->job->model->fixed_bytes + pages_wanted(t);
    return s->texts_running < s->options.max_sessions &&
           (!s->texts_running || s->session_bytes + more <= s->options.memory_budget);
}

/* Takes it out of the list; frees it unless a connection still needs its reply. With the lock. */
static void finish_job(serve_job **at) {
    serve_job *job = *at;
    pal_server *s = job->server;
    *at = job->next;
    job->finished = true;
    drop_shared(job);
    s->counts.prompt_tokens += (uint64_t)job->prompt_tokens;
    s->counts.written_tokens += (uint64_t)job->written_tokens;
    s->counts.cached_tokens += (uint64_t)job->cached_tokens;
    if (job->prompt_tokens)
        serve_measure(s, SERVE_CACHED_RATIO, (double)job->cached_tokens / (double)job->prompt_tokens);
    if (job->cancelled) s->counts.cancelled++;
    if (job->memory) {
        if (job->update) job->memory->updating = false;
        serve_memory_leave(s, job->memory);
        job->memory = NULL;
    }
    if (job->connection) {
        resume(job);
    } else {
        serve_job_release(job);
        serve_job_free(job);
    }
}

/* A stream that is read too slowly pauses. Time that it waits full counts against its reader, who works it off by
 * reading: one that takes a byte now and then does not keep its place. With the lock. */
static void wait_for_reader(serve_job *job, double now) {
    if (job->full) job->behind += now - job->looked;
    job->looked = now;
    job->full = job->stream && job->reply.size - job->sent > SERVE_UNSENT;
    if (job->full && job->behind > job->server->options.timeout) job->cancelled = true;
}

/* An answer that has become longer than was thought wants more room; where there is none, its texts end. With the lock.
 */
static void hold_answer(serve_job *job) {
    pal_server *s = job->server;
    char why[200];
    if (job->taken <= job->answer) return;
    const size_t more = job->taken - job->answer;
    if (more <= s->options.max_answer - s->answers) {
        s->answers += more;
        job->answer = job->taken;
        return;
    }
    const bool alone = job->taken > s->options.max_answer;
    snprintf(why, sizeof why,
             alone ? SERVE_LARGE_ANSWER
                   : "answers take %zu of %zu bytes (--max-answer), and this one wants more: try again",
             alone ? job->taken : s->answers, s->options.max_answer);
    for (size_t i = 0; i < job->count; i++) {
        serve_text *t = &job->texts[i];
        if (i < job->started && !t->done) fail_text(t, alone ? 400 : 503, why);
        if (i >= job->started) t->done = t->told_end = true, job->ended++;
    }
    job->started = job->count;
}

/* One look at every job: starts texts where there is room, says what is new, ends what is done. With the lock. */
static void tend(pal_server *s, bool watch) {
    const double now = pal_seconds();
    for (serve_job **at = &s->running; *at;) {
        serve_job *job = *at;
        if (watch && job->connection && job->suspended && serve_hung_up(job->socket)) job->cancelled = true;
        wait_for_reader(job, now);
        hold_answer(job);
        for (size_t i = 0; i < job->started && !job->cancelled; i++) {
            serve_text *t = &job->texts[i];
            if (t->session && t->finish && !reads_again(t)) end_text(t);
            if (t->session && job->observe) serve_observe_view(job->observe);
            if (t->session) pal_session_pause(t->session, job->full);
        }
        while (job->started < job->count && has_room(s, &job->texts[job->started]) && !job->cancelled &&
               may_start(&job->texts[job->started])) {
            start_text(&job->texts[job->started++]);
            (void)serve_cache_shrink(s, 0);
        }
        if (job->stream && !job->cancelled) publish_stream(job);
        if (job->ended == job->count && !job->cancelled) {
            if (!job->stream) publish_whole(job);
            else if ((job->usage && !serve_job_event(job, serve_usage(job))) ||
                     pal_bytes_append(&job->reply, "data: [DONE]\n\n", 14, NULL))
                job->cancelled = true;
        }
        if (job->ended == job->count || job->cancelled) {
            for (size_t i = 0; i < job->count; i++) drop_session(&job->texts[i]);
            finish_job(at);
        } else {
            at = &job->next;
        }
    }
}

/* Who went away while waiting takes no place in the queue, and no memory from others. With the lock. */
static void watch_queue(pal_server *s) {
    for (serve_job **at = &s->queue; *at;) {
        serve_job *job = *at;
        if (job->connection && job->suspended && serve_hung_up(job->socket)) job->cancelled = true;
        if (job->cancelled) s->queued--, finish_job(at);
        else at = &job->next;
    }
}

/* Whether there is room for a text of the job that has waited longest, and for its answer. With the lock. */
static bool may_take(const pal_server *s) {
    return s->queue && has_room(s, &s->queue->texts[0]) && s->queue->answer <= s->options.max_answer - s->answers;
}

static void take_queued(pal_server *s) {
    if (!may_take(s)) return;
    serve_job *job = s->queue, **end = &s->running;
    job->begun = true;
    serve_measure(s, SERVE_QUEUE_SECONDS, pal_seconds() - job->arrived);
    s->answers += job->answer;
    while (*end) end = &(*end)->next;
    s->queue = job->next;
    job->next = NULL;
    s->queued--;
    *end = job;
}

static void wait_until(pal_server *s, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
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
        if (watch) {
            watched = now;
            serve_connections_watch(s);
            watch_queue(s);
        }
        take_queued(s);
        tend(s, watch);
        note_bytes(s);
        int busy = 0;
        for (int i = 0; i < s->count; i++)
            if (s->models[i].engine) busy += pal_engine_busy(s->models[i].engine);
        if (!busy) {
            if (!may_take(s)) wait_until(s, WATCH_SECONDS); /* answers that are not read yet may be in the way */
            continue;
        }
        pthread_mutex_unlock(&s->lock); /* sessions are this thread's alone */
        pal_engine_counts sum = { 0 };
        for (int i = 0; i < s->count; i++) {
            if (!s->models[i].engine) continue;
            pal_engine_step(s->models[i].engine);
            const pal_engine_counts c = pal_engine_counted(s->models[i].engine);
            sum.read += c.read, sum.written += c.written;
            sum.accepted += c.accepted, sum.rejected += c.rejected;
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
