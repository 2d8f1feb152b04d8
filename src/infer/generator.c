/* SPDX-License-Identifier: MIT */
/* Continuations. A slot's state always holds everything of its sequence but the newest token, which is pending: a step
 * reads the pending tokens of all slots, picks the next ones and leaves those pending. So a sequence can be saved, and
 * another prompt put behind it, between any two steps.
 *
 * Text leaves a slot when it can no longer be part of a stop string: what is held back is the longest end of the text
 * that a stop string starts with. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "palimpsa/generate.h"
#include "text/strings.h"
#include "text/tokenizer.h"

enum {
    PIECE = 512,
    CONTEXT = 4096,
    MOST_SLOTS = 4096,
    TOGETHER = 8 /* rows that are the same bits alone and in company */
};

typedef struct {
    pal_state *state;
    pal_decoder *decoder;
    pal_bytes held;      /* text that is not shown yet */
    unsigned char *seen; /* (vocab), for the penalty; NULL: none */
    uint64_t seed;
    int64_t left; /* tokens that may still be written */
    bool running;
} slot;

struct pal_generator {
    const pal_model *model;
    const pal_tokenizer *tok;
    pal_generator_options options;
    int vocab;  /* ids that can be written: of the model and of the tokenizer */
    bool grows; /* attention */
    pal_work *work;
    pal_sampler *sampler;
    slot *slots;
    float *logits;    /* (TOGETHER, vocab_rows) */
    int32_t *missing; /* ids below vocab that the tokenizer does not have */
    size_t missing_count;
    char **stop; /* own copies */
    size_t longest_stop;
};

const char *pal_finish_name(pal_finish finish) {
    static const char *const names[] = { "", "length", "eos", "stop", "context" };
    return (unsigned)finish < PAL_COUNT(names) ? names[finish] : "";
}

void pal_generator_free(pal_generator *g) {
    if (!g) return;
    for (int i = 0; g->slots && i < g->options.slots; i++) {
        pal_state_free(g->slots[i].state);
        pal_decoder_free(g->slots[i].decoder);
        pal_bytes_free(&g->slots[i].held);
        pal_free(g->slots[i].seen);
    }
    for (size_t i = 0; g->stop && i < g->options.stop_count; i++) pal_free(g->stop[i]);
    pal_free(g->stop);
    pal_work_free(g->work);
    pal_sampler_free(g->sampler);
    pal_free(g->slots);
    pal_free(g->logits);
    pal_free(g->missing);
    pal_free(g);
}

static pal_status keep_stops(pal_generator *g, const pal_generator_options *o, pal_error *err) {
    if (!o->stop_count) return PAL_OK;
    if (!(g->stop = pal_alloc(o->stop_count, sizeof *g->stop)))
        return pal_fail(err, PAL_E_MEMORY, "no memory for %zu stop strings", o->stop_count);
    for (size_t i = 0; i < o->stop_count; i++) {
        const size_t size = o->stop[i] ? strlen(o->stop[i]) : 0;
        if (!size) return pal_fail(err, PAL_E_ARGUMENT, "stop string %zu is empty", i);
        if (size > g->longest_stop) g->longest_stop = size;
        if (!(g->stop[i] = pal_strdup(o->stop[i]))) return pal_fail(err, PAL_E_MEMORY, "no memory for a stop string");
    }
    return PAL_OK;
}

static pal_status list_missing(pal_generator *g, pal_error *err) {
    void *block;
    pal_status st;
    if ((st = pal_alloc_named(&block, (size_t)g->vocab, sizeof *g->missing, "a generator", err))) return st;
    g->missing = block;
    for (int32_t i = 0; i < g->vocab; i++)
        if (!(g->tok->flags[i] & PAL_TOKEN_PRESENT)) g->missing[g->missing_count++] = i;
    return PAL_OK;
}

static pal_status make_slot(pal_generator *g, slot *s, size_t longest_token, pal_error *err) {
    pal_status st;
    void *block;
    const double penalty = g->options.sampling.repetition_penalty;
    if ((st = pal_state_new(&s->state, g->model, g->options.context, err))) return st;
    if ((st = pal_bytes_reserve(&s->held, longest_token + g->longest_stop + 16, err))) return st;
    if (penalty == 0 || penalty == 1) return PAL_OK;
    if ((st = pal_alloc_named(&block, (size_t)g->vocab, 1, "a slot", err))) return st;
    s->seen = block;
    return PAL_OK;
}

static pal_status build(pal_generator *g, const pal_context *cx, const pal_generator_options *options, pal_error *err) {
    const pal_model_config *c = pal_model_config_of(g->model);
    const size_t ids = pal_tokenizer_size(g->tok);
    pal_generator_options *o = &g->options;
    pal_status st;
    void *block;
    size_t longest = 0;
    if (ids > (size_t)c->vocab)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "the tokenizer (%s) has %zu ids, the model's vocabulary %d: they do not belong together",
                        pal_tokenizer_kind(g->tok), ids, c->vocab);
    g->vocab = (int)ids;
    g->grows = c->mixer == PAL_MIXER_ATTENTION;
    if ((st = keep_stops(g, options, err)) || (st = list_missing(g, err))) return st;
    if ((st = pal_sampler_new(&g->sampler, &o->sampling, g->vocab, err))) return st;
    if ((st = pal_alloc_named(&block, (size_t)o->slots, sizeof *g->slots, "slots", err))) return st;
    g->slots = block;
    for (uint32_t i = 0; i < ids; i++) {
        const size_t size = pal_tokenizer_text(g->tok, i).size;
        if (size > longest) longest = size;
    }
    for (int i = 0; i < o->slots; i++)
        if ((st = make_slot(g, &g->slots[i], longest, err)))
            return st; /* the largest part of a long context: first to be refused */
    const int together = o->slots < TOGETHER ? o->slots : TOGETHER;
    const pal_work_options work = {
        .tokens = o->piece, .sequences = together, .context = o->context, .variance = o->uncertainty
    };
    if ((st = pal_work_new(&g->work, g->model, cx, &work, err))) return st;
    if ((st = pal_alloc_named(&block, (size_t)together * (size_t)c->vocab_rows, sizeof *g->logits, "logits", err)))
        return st;
    g->logits = block;
    return PAL_OK;
}

pal_status pal_generator_new(pal_generator **out, const pal_model *model, const pal_tokenizer *tokenizer,
                             const pal_context *cx, const pal_generator_options *options, pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_generator), "a generator", err))) return st;
    pal_generator *g = block;
    *g = (pal_generator){ .model = model, .tok = tokenizer, .options = *options };
    pal_generator_options *o = &g->options;
    o->stop = NULL;
    if (!o->slots) o->slots = 1;
    if (!o->piece) o->piece = PIECE;
    if (!o->context) o->context = CONTEXT;
    if (o->slots < 1 || o->slots > MOST_SLOTS || o->piece < 1 || o->context < 1)
        st = pal_fail(err, PAL_E_ARGUMENT,
                      "a generator of %d slots, pieces of %d tokens and a context of %d: expected 1 to %d slots, the "
                      "others at least 1",
                      o->slots, o->piece, o->context, MOST_SLOTS);
    if (o->piece < o->slots && o->piece < TOGETHER) o->piece = TOGETHER; /* a step has a token of each */
    if (!st) st = build(g, cx, options, err);
    if (st) {
        pal_generator_free(g);
        return st;
    }
    *out = g;
    return PAL_OK;
}

pal_state *pal_generator_state(pal_generator *g, int index) {
    return index >= 0 && index < g->options.slots ? g->slots[index].state : NULL;
}

int pal_generator_running(const pal_generator *g) {
    int n = 0;
    for (int i = 0; i < g->options.slots; i++) n += g->slots[i].running;
    return n;
}

/* Puts the decoder behind the prompt, or behind the pending token when there is none, so that a blank in front of the
 * first new word is not taken for the text's start, and a character that the token began is shown whole. */
static pal_status follow_prompt(pal_generator *g, slot *s, const uint32_t *ids, size_t count, pal_error *err) {
    pal_status st;
    const uint32_t pending = (uint32_t)pal_state_pending(s->state);
    if (!count) ids = &pending, count = 1;
    pal_decoder_free(s->decoder);
    s->decoder = NULL;
    if ((st = pal_decoder_new(&s->decoder, g->tok, true, err))) return st;
    for (size_t i = 0; i < count && !st; i++) {
        s->held.size = 0;
        st = pal_decoder_push(s->decoder, ids[i], &s->held, err);
    }
    s->held.size = 0;
    return st;
}

pal_status pal_generator_begin(pal_generator *g, int index, const uint32_t *ids, size_t count, int64_t max_tokens,
                               uint64_t seed, pal_error *err) {
    pal_status st;
    if (index < 0 || index >= g->options.slots)
        return pal_fail(err, PAL_E_ARGUMENT, "slot %d: the generator has %d", index, g->options.slots);
    slot *s = &g->slots[index];
    const int32_t pending = pal_state_pending(s->state);
    if (max_tokens < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "a continuation of %lld tokens: expected 0 or more",
                        (long long)max_tokens);
    if (!count && pending < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "the prompt is empty: there is nothing to continue");
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= (uint32_t)g->vocab)
            return pal_fail(err, PAL_E_ARGUMENT, "token %zu of the prompt is id %u, the vocabulary has 0 to %d", i,
                            ids[i], g->vocab - 1);
    if (g->grows && pal_state_position(s->state) + (int64_t)count + (pending >= 0) > g->options.context)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "the prompt has %zu tokens behind %lld, but attention layers hold %d (--max-context)", count,
                        (long long)pal_state_position(s->state), g->options.context);
    s->running = false;
    if ((st = follow_prompt(g, s, ids, count, err))) return st;
    if (s->seen) {
        if (!pal_state_position(s->state) && pending < 0) memset(s->seen, 0, (size_t)g->vocab);
        for (size_t i = 0; i < count; i++) s->seen[ids[i]] = 1;
    }
    if (count) { /* everything but the last token is read now */
        if (pending >= 0 && (st = pal_model_step(g->model, g->work, &s->state, 1, &pending, NULL, err))) return st;
        if (count > INT_MAX)
            return pal_fail(err, PAL_E_ARGUMENT, "a prompt of %zu tokens: expected at most %d", count, INT_MAX);
        if (count > 1 &&
            (st = pal_model_prefill(g->model, g->work, s->state, (const int32_t *)ids, (int)count - 1, NULL, err)))
            return st;
        if ((st = pal_state_set_pending(s->state, (int32_t)ids[count - 1], err))) return st;
    }
    s->seed = seed;
    s->left = max_tokens;
    s->running = max_tokens > 0;
    return PAL_OK;
}

/* How much of the held text can be shown: up to the first stop string (*stopped), or else up to where one may begin. */
static size_t showable(const pal_generator *g, const pal_bytes *held, bool *stopped) {
    size_t certain = held->size;
    *stopped = false;
    for (size_t at = 0; at < held->size; at++)
        for (size_t i = 0; i < g->options.stop_count; i++) {
            const size_t rest = held->size - at, size = strlen(g->stop[i]);
            if (memcmp(held->data + at, g->stop[i], rest < size ? rest : size) != 0) continue;
            if (rest >= size) {
                *stopped = true;
                return at;
            }
            if (at < certain) certain = at;
        }
    return certain;
}

static double probability(const float *logits, int rows, int32_t id) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < rows; i++) top = fmax(top, (double)logits[i]);
    for (int i = 0; i < rows; i++) sum += exp((double)logits[i] - top);
    return exp((double)logits[id] - top) / sum;
}

/* The token that follows in slot s, from its row of logits. */
static pal_status write_token(pal_generator *g, int index, int row, pal_token_fn *fn, void *user, pal_error *err) {
    slot *s = &g->slots[index];
    const int rows = pal_model_config_of(g->model)->vocab_rows;
    float *logits = g->logits + (size_t)row * (size_t)rows;
    pal_token token = { .slot = index, .probability = NAN, .variance = NAN };
    pal_status st;
    bool stopped = false;
    for (size_t i = 0; i < g->missing_count; i++) logits[g->missing[i]] = -INFINITY;
    token.id = pal_sampler_pick(g->sampler, logits, s->seen, s->seed, (uint64_t)pal_state_position(s->state));
    if (token.id < 0)
        return pal_fail(err, PAL_E_FORMAT, "the model's logits are not numbers: its weights or its memory hold NaN");
    if (g->options.uncertainty)
        token.probability = probability(logits, rows, token.id), token.variance = pal_work_variance(g->work, row);
    if (s->seen) s->seen[token.id] = 1;
    if ((st = pal_state_set_pending(s->state, token.id, err))) return st;
    s->left--;
    const bool ended = !g->options.ignore_eos && token.id == pal_tokenizer_eos(g->tok);
    if (!ended && (st = pal_decoder_push(s->decoder, (uint32_t)token.id, &s->held, err))) return st;
    size_t shown = showable(g, &s->held, &stopped);
    if (stopped) token.finish = PAL_FINISH_STOP;
    else if (ended) token.finish = PAL_FINISH_EOS;
    else if (!s->left) token.finish = PAL_FINISH_LENGTH;
    if (token.finish && !stopped) shown = s->held.size; /* what might have become a stop string did not */
    token.text = (pal_slice){ s->held.data, shown };
    s->running = !token.finish;
    if (fn) fn(user, &token);
    memmove(s->held.data, s->held.data + shown, s->held.size - shown);
    s->held.size -= shown;
    return PAL_OK;
}

static void end_for_context(pal_generator *g, int index, pal_token_fn *fn, void *user) {
    slot *s = &g->slots[index];
    const pal_token token = { .slot = index,
                              .id = -1,
                              .probability = NAN,
                              .variance = NAN,
                              .text = { s->held.data, s->held.size },
                              .finish = PAL_FINISH_CONTEXT };
    s->running = false;
    if (fn) fn(user, &token);
}

pal_status pal_generator_step(pal_generator *g, pal_token_fn *fn, void *user, pal_error *err) {
    pal_status st;
    for (int next = 0; next < g->options.slots;) {
        pal_state *states[TOGETHER];
        int32_t ids[TOGETHER];
        int who[TOGETHER], n = 0;
        for (; next < g->options.slots && n < TOGETHER; next++) {
            const slot *s = &g->slots[next];
            if (!s->running) continue;
            if (g->grows && pal_state_position(s->state) >= g->options.context) {
                end_for_context(g, next, fn, user);
                continue;
            }
            states[n] = s->state;
            ids[n] = pal_state_pending(s->state);
            who[n++] = next;
        }
        if (!n) continue;
        if ((st = pal_model_step(g->model, g->work, states, n, ids, g->logits, err))) return st;
        for (int i = 0; i < n; i++)
            if ((st = write_token(g, who[i], i, fn, user, err))) return st;
    }
    return PAL_OK;
}
