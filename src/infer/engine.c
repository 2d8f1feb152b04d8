/* SPDX-License-Identifier: MIT */
/* Steps. A step is one piece of the prompt that has waited longest, or as many of its layers as there is time for, then
 * one token for every writer: separate products, so that no one's numbers depend on who else is there, and no one waits
 * for more than one piece. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/device.h"
#include "base/parallel.h"
#include "infer/session.h"
#include "text/strings.h"
#include "text/tokenizer.h"

enum { PIECE = 256, CONTEXT = 4096, MOST_PIECE = 1 << 20 };

void pal_engine_free(pal_engine *e) {
    if (!e) return;
    pal_work_free(e->work);
    for (int i = 0; e->samplers && i < pal_context_threads(e->cx); i++) pal_sampler_free(e->samplers[i]);
    pal_free(e->samplers);
    pal_free(e->logits);
    pal_free(e->prompt_logits);
    pal_free(e->prompt_sums);
    pal_free(e->piece.stream);
    pal_spellings_free(e->spellings);
    pal_free(e->allowed);
    pal_free(e);
}

/* The workspace of an engine whose options are complete. */
static pal_work_options work_options(const pal_engine_options *o) {
    const int most = o->piece > PAL_TOGETHER ? o->piece : PAL_TOGETHER;
    return (pal_work_options){ .tokens = most,
                               .sequences = PAL_TOGETHER,
                               .logits = most,
                               .context = o->context,
                               .variance = o->variance,
                               .trial = o->speculate ? o->speculate + 1 : 0 };
}

static void complete(pal_engine_options *o) {
    if (!o->piece) o->piece = PIECE;
    if (!o->context) o->context = CONTEXT;
}

pal_status pal_engine_plan(size_t *bytes, const pal_model *model, const pal_context *cx, pal_engine_options options,
                           pal_error *err) {
    pal_plan plan;
    complete(&options);
    const pal_work_options work = work_options(&options);
    const pal_status st = pal_work_plan(&plan, model, cx, &work, err);
    const pal_model_config *c = pal_model_config_of(model);
    const size_t stream = options.read_seconds > 0 ? (size_t)options.piece * (size_t)c->hidden : 0;
    *bytes = st ? 0 : plan.total + (PAL_TOGETHER * (size_t)c->vocab_rows + stream) * sizeof(float);
    return st;
}

static pal_status build(pal_engine *e, const pal_context *cx, pal_error *err) {
    const pal_model_config *c = pal_model_config_of(e->model);
    const size_t ids = pal_tokenizer_size(e->tok);
    pal_engine_options *o = &e->options;
    pal_status st;
    complete(o);
    if (o->piece < 1 || o->piece > MOST_PIECE || o->context < 1)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "an engine with pieces of %d tokens and a context of %d: expected 1 to %d, and at least 1",
                        o->piece, o->context, MOST_PIECE);
    if (!(o->read_seconds >= 0))
        return pal_fail(err, PAL_E_ARGUMENT, "an engine that reads for %g s a step: expected 0 or more",
                        o->read_seconds);
    if (o->speculate < 0 || o->speculate > PAL_SPECULATE_MOST)
        return pal_fail(err, PAL_E_ARGUMENT, "an engine that guesses %d tokens: expected 0 to %d", o->speculate,
                        PAL_SPECULATE_MOST);
    if (ids > (size_t)c->vocab)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "the tokenizer (%s) has %zu ids, the model's vocabulary %d: they do not belong together",
                        pal_tokenizer_kind(e->tok), ids, c->vocab);
    e->vocab = (int)ids;
    e->rows = c->vocab_rows;
    e->grows = pal_model_grows(c);
    for (uint32_t i = 0; i < ids; i++) {
        const size_t size = pal_tokenizer_text(e->tok, i).size;
        if (size > e->longest_token) e->longest_token = size;
    }
    const pal_work_options work = work_options(o);
    const int threads = pal_context_threads(cx);
    if ((st = pal_alloc_named((void **)&e->samplers, (size_t)threads, sizeof *e->samplers, "samplers", err))) return st;
    for (int i = 0; i < threads; i++)
        if ((st = pal_sampler_new(&e->samplers[i], e->vocab, err))) return st;
    if ((st = pal_work_new(&e->work, e->model, cx, &work, err))) return st;
    if (o->read_seconds > 0 && (st = pal_alloc_named((void **)&e->piece.stream, (size_t)o->piece * (size_t)c->hidden,
                                                     sizeof *e->piece.stream, "a piece of a prompt", err)))
        return st;
    return pal_alloc_named((void **)&e->logits, PAL_TOGETHER * (size_t)e->rows, sizeof *e->logits, "logits", err);
}

pal_status pal_engine_new(pal_engine **out, const pal_model *model, const pal_tokenizer *tokenizer,
                          const pal_context *cx, const pal_engine_options *options, pal_error *err) {
    void *block;
    pal_status st;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_engine), "an engine", err))) return st;
    pal_engine *e = block;
    *e = (pal_engine){ .model = model, .tok = tokenizer, .cx = cx };
    if (options) e->options = *options;
    if ((st = build(e, cx, err))) {
        pal_engine_free(e);
        return st;
    }
    *out = e;
    return PAL_OK;
}

static pal_session **list_of(pal_session *s) {
    return s->phase == PAL_READING ? &s->engine->readers : &s->engine->writers;
}

void pal_engine_remove(pal_session *s) {
    if (!s->phase) return;
    pal_session **at = list_of(s);
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    s->next = NULL;
    s->phase = PAL_IDLE;
    if (s->engine->under_way == s) s->engine->under_way = NULL;
}

void pal_engine_add(pal_session *s, pal_phase phase) {
    s->phase = phase;
    s->next = NULL;
    pal_session **at = list_of(s);
    while (*at) at = &(*at)->next;
    *at = s;
}

int pal_engine_busy(const pal_engine *e) {
    int n = 0;
    for (const pal_session *s = e->readers; s; s = s->next) n += !s->paused;
    for (const pal_session *s = e->writers; s; s = s->next) n += !s->paused;
    return n;
}

pal_engine_counts pal_engine_counted(const pal_engine *e) { return e->counts; }

/* The memory of who tries its guess reads what has become its text. */
static void settle(pal_engine *e) {
    if (e->trying) pal_model_keep_tried(e->work, e->trying->state, e->tried);
    e->trying = NULL;
}

static void tell(const pal_session *s, const pal_token *token) {
    if (token->finish) settle(s->engine); /* its memory may be looked at */
    if (s->options.on_token) s->options.on_token(s->options.user, token);
}

/* The end without its own token. */
static void end(pal_session *s, pal_finish finish, const char *error) {
    pal_session_stop(s);
    s->finish = finish;
    const pal_token token = { .id = -1,
                              .logprob = NAN,
                              .variance = NAN,
                              .text = { s->held.data, s->held.size },
                              .finish = finish,
                              .error = error };
    tell(s, &token);
    s->held.size = 0;
}

/* Log of the sum of exp over a row. Rows that pad the vocabulary are part of the softmax, as in training. */
static double log_sum(const float *logits, int rows) {
    float top = -INFINITY; /* no double: gcc 12 fails to vectorise a largest double among floats for ARM64 */
    double sum = 0;
    for (int i = 0; i < rows; i++) top = fmaxf(top, logits[i]);
    for (int i = 0; i < rows; i++) sum += exp((double)logits[i] - (double)top);
    return (double)top + log(sum);
}

/* The likeliest n tokens, likeliest first, the smaller id of equals. */
static int likeliest(const pal_engine *e, const float *logits, int n, double all, pal_alternative *top) {
    int count = 0;
    for (int32_t id = 0; n > 0 && id < e->vocab; id++) {
        const double x = (double)logits[id] - all;
        if (!(e->tok->flags[id] & PAL_TOKEN_PRESENT) || !(x > -INFINITY)) continue;
        if (count == n && !(x > top[n - 1].logprob)) continue;
        int at = count < n ? count++ : n - 1;
        for (; at > 0 && top[at - 1].logprob < x; at--) top[at] = top[at - 1];
        top[at] = (pal_alternative){ id, x };
    }
    return count;
}

static void prompt_sum_task(void *arg, size_t i, int thread) {
    pal_engine *e = arg;
    (void)thread;
    e->prompt_sums[i] = log_sum(e->prompt_logits + i * (size_t)e->rows, e->rows);
}

/* What the model itself says of a token, where a session asks for it; all: the log_sum() of its logits. */
static void judge(const pal_session *s, const float *logits, double all, pal_token *token, pal_alternative *top) {
    const pal_engine *e = s->engine;
    token->logprob = (double)logits[token->id] - all;
    token->top_count = likeliest(e, logits, s->options.alternatives, all, top);
    token->top = top;
}

/* Nothing comes before the first token of a text: it has no probability. */
static void tell_first(pal_session *s) {
    if (!s->first) return;
    s->first = false;
    if (!s->options.prompt_logprobs || !s->ids.count) return;
    const pal_token token = { .prompt = true, .id = (int32_t)s->ids.data[0], .logprob = NAN, .variance = NAN };
    tell(s, &token);
}

/* Of token i of a piece, mean over the layers that have one. */
static double watched_variance(const pal_session *s, int piece, int i) {
    const pal_watch *watch = s->options.watch;
    const int layers = pal_model_config_of(s->engine->model)->layers;
    double sum = 0;
    int count = 0;
    if (!watch || !watch->variances || piece > watch->tokens) return NAN;
    for (int l = 0; l < layers; l++) {
        const float x = watch->variances[(size_t)i * (size_t)layers + (size_t)l];
        if (!isnan(x)) sum += (double)x, count++;
    }
    return sum / count;
}

static bool has_to_read(const pal_session *s) { return s->read + 1 < s->ids.count; }

/* Begins with one piece of a prompt, up to the next multiple of the engine's piece. Everything but the last token is
 * read; that is read in the step that writes the first one after it. False: it cannot be read, the text has ended. */
static bool begin_piece(pal_session *s) {
    pal_engine *e = s->engine;
    const size_t all = s->ids.count - 1 - s->read;
    const int piece = s->options.piece ? s->options.piece : e->options.piece;
    const int64_t at = pal_state_position(s->state);
    int room = piece - (int)(at % piece);
    for (size_t i = 0; i < s->options.cut_count && (int64_t)s->options.cuts[i] < at + room; i++)
        if ((int64_t)s->options.cuts[i] > at) room = (int)((int64_t)s->options.cuts[i] - at);
    pal_error err;
    e->piece.state = s->state;
    e->piece.ids = (const int32_t *)(s->ids.data + s->read);
    e->piece.tokens = all < (size_t)room ? (int)all : room;
    if (pal_piece_begin(&e->piece, e->model, e->work, &err)) {
        end(s, PAL_FINISH_ERROR, err.text);
        return false;
    }
    e->under_way = s;
    return true;
}

/* Reads on in the piece that is under way; true: to its end. Who watches gets it in one go: what is looked at may
 * change between steps. */
static bool go_on_reading(pal_session *s, double seconds, float *logits) {
    pal_engine *e = s->engine;
    (void)pal_work_watch(e->work, 0, s->options.watch, NULL); /* was checked */
    const bool done = pal_piece_go_on(&e->piece, e->work, s->options.watch ? INFINITY : seconds, logits);
    (void)pal_work_watch(e->work, 0, NULL, NULL);
    if (!done) return false;
    e->under_way = NULL;
    e->counts.read += (size_t)e->piece.tokens;
    s->read += (size_t)e->piece.tokens;
    return true;
}

void pal_engine_finish_piece(pal_session *s) {
    if (s->engine->under_way == s) (void)go_on_reading(s, INFINITY, NULL);
}

/* Reads a piece of a prompt, or what there is time for. */
static void read_piece(pal_session *s) {
    pal_engine *e = s->engine;
    const bool judged = s->options.prompt_logprobs;
    const double seconds = e->options.read_seconds > 0 ? e->options.read_seconds : INFINITY;
    pal_error err;
    int n = 0;
    tell_first(s);
    if (has_to_read(s)) {
        if (e->under_way != s && !begin_piece(s)) return;
        if (!go_on_reading(s, seconds, judged ? e->prompt_logits : NULL)) return;
        if (pal_device_check(e->cx, &err)) {
            end(s, PAL_FINISH_ERROR, err.text);
            return;
        }
        n = e->piece.tokens;
    }
    const uint32_t *ids = s->ids.data + s->read - n;
    if (judged && s->options.logprobs) pal_parallel_for(e->cx, (size_t)n, prompt_sum_task, e);
    for (int i = 0; judged && i < n; i++) {
        pal_alternative top[PAL_ALTERNATIVES];
        pal_token token = {
            .prompt = true, .id = (int32_t)ids[i + 1], .logprob = NAN, .variance = watched_variance(s, n, i)
        };
        if (s->options.logprobs)
            judge(s, e->prompt_logits + (size_t)i * (size_t)e->rows, e->prompt_sums[i], &token, top);
        tell(s, &token);
    }
    if (n && s->options.on_read) s->options.on_read(s->options.user, s->state);
    pal_session_note_prompt(s, s->read + !has_to_read(s));
    if (has_to_read(s)) return;
    (void)pal_state_set_pending(s->state, (int32_t)ids[n], NULL);
    pal_engine_remove(s);
    pal_session_follow(s);
    if (s->left) pal_engine_add(s, PAL_WRITING);
    else end(s, PAL_FINISH_LENGTH, NULL);
}

/* The id that follows `position` tokens of a session, from its row of logits. *sum: log_sum() of them, as the model
 * gave them, where the session asks for log-probabilities. */
static int32_t pick(const pal_session *s, size_t row, int64_t position, int thread, double *sum) {
    const pal_engine *e = s->engine;
    float *logits = e->logits + row * (size_t)e->rows;
    if (s->options.logprobs) *sum = log_sum(logits, e->rows);
    for (int k = 0; k < e->vocab; k++)
        if (!(e->tok->flags[k] & PAL_TOKEN_PRESENT)) logits[k] = -INFINITY;
    return pal_sampler_pick_allowed(e->samplers[thread], &s->options.sampling, logits, s->seen, s->written,
                                    s->guide ? e->allowed + row * e->spellings->words : NULL, s->options.seed,
                                    (uint64_t)position);
}

typedef struct {
    pal_session *const *group;
    int32_t *ids;
    double *sums;
} pick_job;

static void pick_task(void *arg, size_t i, int thread) {
    const pick_job *job = arg;
    const pal_session *s = job->group[i];
    job->ids[i] = pick(s, i, pal_state_position(s->state), thread, &job->sums[i]);
}

/* Continues a session by the id that was picked from its row of logits, whose log_sum() is `all`. */
static void write_token(pal_session *s, int32_t id, int row, double all) {
    pal_engine *e = s->engine;
    const float *logits = e->logits + (size_t)row * (size_t)e->rows;
    pal_alternative top[PAL_ALTERNATIVES];
    pal_token token = { .id = id, .logprob = NAN, .variance = NAN };
    bool stopped = false, over = false;
    const size_t seen = s->held.size;
    pal_error err;
    if (token.id < 0) {
        (void)pal_state_set_pending(s->state, -1, NULL); /* it was read */
        end(s, PAL_FINISH_ERROR,
            s->guide ? "no token can follow: the grammar allows none, or those that it allows have no probability"
            : s->options.sampling.bias_count
                ? "no token can follow: biases ban every one, or the model's logits are not numbers"
                : "the model's logits are not numbers: its weights or its memory hold NaN");
        return;
    }
    if (s->options.logprobs) judge(s, logits, all, &token, top);
    if (e->options.variance) token.variance = pal_work_variance(e->work, row);
    if (s->written) s->written[token.id]++;
    e->counts.written++;
    pal_session_note(s, (uint32_t)token.id);
    (void)pal_state_set_pending(s->state, token.id, NULL);
    s->left--;
    const bool named = pal_stops_name(&s->stops, id),
               ended = named || (!s->options.ignore_eos && pal_tokenizer_is_end(e->tok, (uint32_t)id));
    if (s->guide && !ended && !pal_session_accept(s, (uint32_t)id, &over)) {
        end(s, PAL_FINISH_ERROR, "the grammar has more ways at once than there is room for");
        return;
    }
    const pal_status st = ended ? pal_decoder_finish(s->decoder, &s->held, &err) /* no more bytes come */
                                : pal_decoder_push(s->decoder, (uint32_t)token.id, &s->held, &err);
    if (st) {
        end(s, PAL_FINISH_ERROR, err.text);
        return;
    }
    size_t told = pal_stops_tellable(&s->stops, s->held.data, s->held.size, seen, &stopped);
    if (stopped || named) token.finish = PAL_FINISH_STOP;
    else if (ended) token.finish = PAL_FINISH_EOS;
    else if (over) token.finish = PAL_FINISH_GRAMMAR;
    else if (!s->left) token.finish = PAL_FINISH_LENGTH;
    if (token.finish && !stopped) told = s->held.size; /* what might have become a stop string did not */
    token.text = (pal_slice){ s->held.data, told };
    if (token.finish) pal_engine_remove(s), pal_session_unguide(s);
    s->finish = token.finish;
    tell(s, &token);
    memmove(s->held.data, s->held.data + told, s->held.size - told);
    s->held.size -= told;
}

/* One token for each of n writers. */
static void write_group(pal_engine *e, pal_session *const *group, int n) {
    pal_state *states[PAL_TOGETHER] = { 0 };
    int32_t ids[PAL_TOGETHER] = { 0 };
    double sums[PAL_TOGETHER] = { 0 };
    pal_error err;
    for (int i = 0; i < n; i++) {
        states[i] = group[i]->state;
        ids[i] = pal_state_pending(states[i]);
    }
    for (int i = 0; i < n; i++) (void)pal_work_watch(e->work, i, group[i]->options.watch, NULL); /* was checked */
    const pal_status st = pal_model_step(e->model, e->work, states, n, ids, e->logits, &err);
    for (int i = 0; i < n; i++) (void)pal_work_watch(e->work, i, NULL, NULL);
    pick_job job = { .group = group, .ids = ids, .sums = sums };
    for (int i = 0; i < n && !st; i++)
        if (group[i]->guide) pal_session_allow(group[i], i);
    if (!st) pal_parallel_for(e->cx, (size_t)n, pick_task, &job);
    for (int i = 0; i < n; i++)
        if (st) end(group[i], PAL_FINISH_ERROR, err.text);
        else write_token(group[i], ids[i], i, sums[i]);
}

/* The guess of a session that runs alone, for which there is room in its text and its memory; 0: none. */
static int guess(pal_session *s, int32_t *draft) {
    const pal_engine *e = s->engine;
    const int64_t room = e->grows ? e->options.context - pal_state_position(s->state) : INT32_MAX;
    int64_t most = e->options.speculate;
    if (!most || s->options.watch || pal_engine_busy(e) > 1) return 0;
    if (most > s->left - 1) most = s->left - 1;
    if (most > room - 1) most = room - 1;
    return pal_guess(&s->guesser, draft, (int)most);
}

/* As many tokens of one session as its guess holds for, and one more: each is picked as if the guess was unknown, from
 * logits with the bits that a step has. */
static void write_guessed(pal_session *s, const int32_t *draft, int drafted) {
    pal_engine *e = s->engine;
    const int64_t position = pal_state_position(s->state);
    int32_t ids[PAL_SPECULATE_MOST + 1] = { pal_state_pending(s->state) };
    bool right = true;
    int accepted = 0;
    pal_error err;
    memcpy(ids + 1, draft, (size_t)drafted * sizeof *draft);
    const pal_status st = pal_model_try(e->model, e->work, s->state, ids, drafted + 1, e->logits, &err);
    if (st) {
        end(s, PAL_FINISH_ERROR, err.text);
        return;
    }
    e->trying = s;
    for (int i = 0; right && s->phase == PAL_WRITING; i++) {
        double sum = 0;
        if (s->guide) pal_session_allow(s, i);
        const int32_t id = pick(s, (size_t)i, position + i + 1, 0, &sum);
        e->tried = i + 1;
        right = i < drafted && id == draft[i];
        accepted += right;
        if (!right) settle(e);
        write_token(s, id, i, sum);
    }
    pal_guess_learn(&s->guesser, drafted, accepted);
    s->guessed.accepted += accepted;
    s->guessed.rejected += drafted - accepted;
    e->counts.accepted += (uint64_t)accepted;
    e->counts.rejected += (uint64_t)(drafted - accepted);
}

int pal_engine_step(pal_engine *e) {
    pal_session *group[PAL_TOGETHER];
    for (pal_session *r = e->readers, *next; r; r = next) {
        next = r->next;
        if (!has_to_read(r) && !r->paused) read_piece(r); /* continues to write at once */
    }
    pal_session *s = e->under_way ? e->under_way : e->readers; /* what has begun is finished, whatever pauses */
    while (s && s->paused && s != e->under_way) s = s->next;
    if (s) {
        const double start = pal_seconds();
        read_piece(s);
        e->counts.read_seconds += pal_seconds() - start;
        if (s->phase == PAL_READING && !e->under_way) { /* to the end of the queue */
            pal_engine_remove(s);
            pal_engine_add(s, PAL_READING);
        }
    }
    const double start = pal_seconds();
    int n = 0;
    for (pal_session *w = e->writers, *next; w; w = next) {
        next = w->next; /* those of a group leave the list only when the group is full, all after `next` stay */
        if (e->grows && pal_state_position(w->state) >= e->options.context) {
            if (!w->paused) end(w, PAL_FINISH_CONTEXT, NULL);
        } else if (!w->paused) {
            group[n++] = w;
        }
        if (n == PAL_TOGETHER || (n && !next)) {
            int32_t draft[PAL_SPECULATE_MOST];
            const int drafted = n == 1 ? guess(group[0], draft) : 0;
            if (drafted) write_guessed(group[0], draft, drafted);
            else write_group(e, group, n);
            n = 0;
        }
    }
    e->counts.write_seconds += pal_seconds() - start;
    return pal_engine_busy(e);
}
