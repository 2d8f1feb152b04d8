/* SPDX-License-Identifier: MIT */
/* One text: what it has read and written, and its file. */
#include "infer/session.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "model/state.h"
#include "text/strings.h"
#include "text/tokenizer.h"

const char *pal_finish_name(pal_finish finish) {
    static const char *const names[] = { "", "length", "eos", "stop", "context", "grammar", "error" };
    return (unsigned)finish < PAL_COUNT(names) ? names[finish] : "";
}

static void drop_options(pal_session_options *o) {
    pal_free((void *)o->sampling.bias);
    *o = (pal_session_options){ 0 };
}

/* Own copies of what the caller's options point to. */
static pal_status keep_options(pal_session_options *to, pal_stops *stops, const pal_session_options *from,
                               const pal_tokenizer *tok, pal_error *err) {
    void *block;
    pal_status st;
    *to = *from;
    to->stop = NULL, to->sampling.bias = NULL, to->stop_count = 0, to->known = NULL;
    if ((st = pal_stops_new(stops, from->stop, from->stop_count, err))) return st;
    for (size_t i = 0; i < stops->count; i++) {
        const int64_t id = pal_tokenizer_find(tok, from->stop[i]);
        if (id >= 0 && pal_tokenizer_is_special(tok, (uint32_t)id)) stops->list[i].id = id;
    }
    if (!from->sampling.bias_count) return PAL_OK;
    st = pal_alloc_named(&block, from->sampling.bias_count, sizeof *to->sampling.bias, "biases", err);
    if (st) pal_stops_free(stops);
    else to->sampling.bias = memcpy(block, from->sampling.bias, from->sampling.bias_count * sizeof *to->sampling.bias);
    return st;
}

pal_status pal_session_new(pal_session **out, pal_engine *e, pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_session), "a session", err))) return st;
    pal_session *s = block;
    s->engine = e;
    pal_guess_forget(&s->guesser);
    st = pal_state_new(&s->state, e->model, e->options.context, err);
    if (!st) st = pal_decoder_new(&s->decoder, e->tok, true, err);
    if (!st) st = pal_alloc_named((void **)&s->seen, (size_t)e->vocab, 1, "a session", err);
    if (!st) st = pal_bytes_reserve(&s->held, PAL_RECENT * (e->longest_token + 4), err);
    if (st) {
        pal_session_free(s);
        return st;
    }
    *out = s;
    return PAL_OK;
}

void pal_session_free(pal_session *s) {
    if (!s) return;
    pal_engine_remove(s);
    pal_session_unguide(s);
    pal_bytes_free(&s->spelled);
    pal_ids_free(&s->guesser.text);
    pal_state_free(s->state);
    pal_decoder_free(s->decoder);
    pal_bytes_free(&s->held);
    pal_free(s->seen);
    pal_free(s->written);
    pal_ids_free(&s->ids);
    drop_options(&s->options);
    pal_stops_free(&s->stops);
    pal_free(s);
}

void pal_session_note(pal_session *s, uint32_t id) {
    s->seen[id] = 1;
    pal_guess_note(&s->guesser, id);
    if (pal_tokenizer_is_special(s->engine->tok, id)) return; /* no text */
    if (s->recent_count == PAL_RECENT) memmove(s->recent, s->recent + 1, --s->recent_count * sizeof *s->recent);
    s->recent[s->recent_count++] = id;
}

void pal_session_note_prompt(pal_session *s, size_t end) {
    for (; s->noted < end; s->noted++) pal_session_note(s, s->ids.data[s->noted]);
}

/* Neither call can fail: ids were checked when they came, and held has room for all of them. */
void pal_session_follow(pal_session *s) {
    s->held.size = 0;
    (void)pal_decoder_finish(s->decoder, &s->held, NULL);
    s->held.size = 0;
    for (size_t i = 0; i < s->recent_count; i++) (void)pal_decoder_push(s->decoder, s->recent[i], &s->held, NULL);
    if (s->guide) pal_decoder_forget(s->decoder); /* its grammar begins with a whole character */
    s->held.size = 0;
}

void pal_session_stop(pal_session *s) {
    pal_engine_finish_piece(s);
    if (s->phase == PAL_READING) { /* after the next token of the prompt the memory can be continued */
        (void)pal_state_set_pending(s->state, (int32_t)s->ids.data[s->read], NULL);
        pal_session_note_prompt(s, s->read + 1);
        pal_session_follow(s);
    }
    pal_engine_remove(s);
    pal_session_unguide(s);
}

void pal_session_cancel(pal_session *s) { pal_session_stop(s); }

void pal_session_pause(pal_session *s, bool pause) { s->paused = pause; }
bool pal_session_busy(const pal_session *s) { return s->phase != PAL_IDLE; }
pal_finish pal_session_finish(const pal_session *s) { return s->finish; }
pal_guessed pal_session_guessed(const pal_session *s) { return s->guessed; }
const pal_state *pal_session_state(const pal_session *s) { return s->state; }

void pal_session_reset(pal_session *s) {
    pal_engine_remove(s);
    pal_session_unguide(s);
    pal_state_reset(s->state);
    memset(s->seen, 0, (size_t)s->engine->vocab);
    s->recent_count = 0;
    pal_guess_forget(&s->guesser);
    s->finish = PAL_FINISH_NOT;
    pal_session_follow(s);
}

pal_slice pal_session_rest(pal_session *s) {
    if (s->finish == PAL_FINISH_STOP) s->held.size = 0;
    else if (!s->phase) (void)pal_decoder_finish(s->decoder, &s->held, NULL); /* 3 bytes, for which there is room */
    const pal_slice rest = { s->held.data, s->held.size };
    s->held.size = 0;
    pal_stops_restart(&s->stops);
    return rest;
}

static pal_status check_begin(const pal_session *s, const pal_state *state, const uint32_t *ids, size_t count,
                              const pal_session_options *o, pal_error *err) {
    const pal_engine *e = s->engine;
    const int64_t at = pal_state_position(state), pending = pal_state_pending(state) >= 0;
    pal_status st;
    if (o->max_tokens < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "a text of %lld tokens: expected 0 or more", (long long)o->max_tokens);
    if (o->alternatives < 0 || o->alternatives > PAL_ALTERNATIVES)
        return pal_fail(err, PAL_E_ARGUMENT, "%d alternatives a token: expected 0 to %d", o->alternatives,
                        PAL_ALTERNATIVES);
    if (o->piece < 0 || o->piece > e->options.piece)
        return pal_fail(err, PAL_E_ARGUMENT, "pieces of %d tokens: expected at most the engine's %d", o->piece,
                        e->options.piece);
    if (o->watch && (st = pal_watch_check(o->watch, e->model, err))) return st;
    if ((st = pal_sampling_check(&o->sampling, e->vocab, err))) return st;
    if (!count && !pending) return pal_fail(err, PAL_E_ARGUMENT, "the prompt is empty: there is nothing to continue");
    if (count > INT_MAX)
        return pal_fail(err, PAL_E_ARGUMENT, "a prompt of %zu tokens: expected at most %d", count, INT_MAX);
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= (uint32_t)e->vocab || !(e->tok->flags[ids[i]] & PAL_TOKEN_PRESENT))
            return pal_fail(err, PAL_E_ARGUMENT, "token %zu of the prompt is id %u, which the vocabulary (0 to %d) %s",
                            i, ids[i], e->vocab - 1, ids[i] < (uint32_t)e->vocab ? "leaves out" : "does not have");
    if (o->known && (pending || at < 0 || (size_t)at >= count))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a memory of %lld tokens, expected one of fewer than the prompt's %zu, none of them pending",
                        (long long)at, count);
    const int64_t before = o->known ? 0 : at + pending;
    if (e->grows && before + (int64_t)count > e->options.context)
        return pal_fail(err, PAL_E_ARGUMENT, "the prompt has %zu tokens after %lld, but attention layers hold %d",
                        count, (long long)before, e->options.context);
    return PAL_OK;
}

/* Memory for what the options ask for. */
static pal_status make_room(pal_session *s, const pal_session_options *o, size_t longest_stop, pal_error *err) {
    pal_engine *e = s->engine;
    pal_status st;
    if ((st = pal_bytes_reserve(&s->held, PAL_RECENT * (e->longest_token + 4) + longest_stop, err))) return st;
    if (!s->written && (o->sampling.presence_penalty != 0 || o->sampling.frequency_penalty != 0))
        st = pal_alloc_named((void **)&s->written, (size_t)e->vocab, sizeof *s->written, "a session", err);
    if (!st && !e->prompt_logits && o->prompt_logprobs)
        st = pal_alloc_named((void **)&e->prompt_logits, (size_t)e->options.piece * (size_t)e->rows,
                             sizeof *e->prompt_logits, "the logits of a prompt", err);
    if (!st && !e->prompt_sums && o->prompt_logprobs)
        st = pal_alloc_named((void **)&e->prompt_sums, (size_t)e->options.piece, sizeof *e->prompt_sums,
                             "the logits of a prompt", err);
    return st;
}

pal_status pal_session_begin(pal_session *s, const uint32_t *ids, size_t count, const pal_session_options *options,
                             pal_error *err) {
    const pal_state *known = options->known;
    pal_session_options own;
    pal_stops stops;
    pal_shared_guide *guide = NULL;
    pal_status st;
    pal_session_stop(s);
    if ((st = check_begin(s, known ? known : s->state, ids, count, options, err))) return st;
    if ((st = keep_options(&own, &stops, options, s->engine->tok, err))) return st;
    s->ids.count = 0;
    s->held.size = 0;
    const size_t tokens = count + 1 + (size_t)options->max_tokens;
    if ((st = make_room(s, options, stops.longest, err)) ||
        (s->engine->options.speculate && (st = pal_guess_reserve(&s->guesser, tokens, err))) ||
        (st = pal_ids_reserve(&s->ids, count + 1, err)) ||
        (st = pal_engine_guide(s->engine, options->grammar, &guide, err)) ||
        (guide &&
         (st = pal_bytes_reserve(&s->spelled, s->engine->longest_token + s->engine->spellings->longest, err))) ||
        (known && (st = pal_state_copy(s->state, known, err)))) {
        pal_engine_unguide(s->engine, guide);
        drop_options(&own);
        pal_stops_free(&stops);
        return st;
    }
    drop_options(&s->options);
    pal_stops_free(&s->stops);
    s->options = own;
    s->stops = stops;
    pal_decoder_show(s->decoder, own.shown, own.shown_count);
    if ((s->guide = guide)) pal_guide_begin(guide->guide, &s->place);
    s->read = s->noted = 0;
    s->finish = PAL_FINISH_NOT;
    s->paused = false;
    s->guessed = (pal_guessed){ 0 };
    s->left = options->max_tokens;
    if (s->written) memset(s->written, 0, (size_t)s->engine->vocab * sizeof *s->written);
    if (known) {
        s->read = (size_t)pal_state_position(known);
        memset(s->seen, 0, (size_t)s->engine->vocab);
        s->recent_count = 0;
        pal_guess_forget(&s->guesser);
    }
    const int32_t pending = pal_state_pending(s->state);
    s->first = !pal_state_position(s->state) && pending < 0;
    if (pending >= 0) s->ids.data[s->ids.count++] = (uint32_t)pending, s->noted = 1;
    if (count) memcpy(s->ids.data + s->ids.count, ids, count * sizeof *ids);
    s->ids.count += count;
    (void)pal_state_set_pending(s->state, -1, NULL);
    pal_engine_add(s, PAL_READING);
    return PAL_OK;
}

pal_status pal_session_copy(pal_session *to, pal_session *from, pal_error *err) {
    if (to->engine != from->engine)
        return pal_fail(err, PAL_E_ARGUMENT, "a session can be copied only within its engine");
    pal_session_stop(from);
    pal_session_stop(to);
    const pal_status st = pal_state_copy(to->state, from->state, err);
    if (st) return st;
    memcpy(to->seen, from->seen, (size_t)to->engine->vocab);
    memcpy(to->recent, from->recent, sizeof to->recent);
    to->recent_count = from->recent_count;
    pal_guess_forget(&to->guesser);
    to->finish = PAL_FINISH_NOT;
    pal_session_follow(to);
    return PAL_OK;
}

/* After the numbers in a state's file: the newest tokens, then a bit for each id that was seen. */
typedef struct {
    uint32_t vocab, recent_count, recent[PAL_RECENT];
} session_record;

pal_status pal_session_record(const pal_session *s, pal_bytes *out, pal_error *err) {
    const size_t vocab = (size_t)s->engine->vocab, size = sizeof(session_record) + (vocab + 7) / 8;
    session_record record = { .vocab = (uint32_t)vocab, .recent_count = (uint32_t)s->recent_count };
    const pal_status st = pal_bytes_reserve(out, size, err);
    if (st) return st;
    memcpy(record.recent, s->recent, s->recent_count * sizeof *s->recent);
    memcpy(out->data, &record, sizeof record);
    unsigned char *bits = out->data + sizeof record;
    memset(bits, 0, size - sizeof record);
    for (size_t i = 0; i < vocab; i++) bits[i / 8] |= (unsigned char)((s->seen[i] != 0) << i % 8);
    out->size = size;
    return PAL_OK;
}

pal_status pal_session_save(pal_session *s, const char *path, pal_error *err) {
    pal_bytes record = { 0 };
    pal_session_stop(s);
    pal_status st = pal_session_record(s, &record, err);
    if (!st) st = pal_state_save_with(s->state, record.data, record.size, path, err);
    pal_bytes_free(&record);
    return st;
}

/* True when a record is one of this vocabulary; without one, only what the state itself knows is known. */
static bool take_record(pal_session *s, const unsigned char *bytes, size_t size) {
    const size_t vocab = (size_t)s->engine->vocab;
    session_record record;
    if (size != sizeof record + (vocab + 7) / 8) return false;
    memcpy(&record, bytes, sizeof record);
    if (record.vocab != vocab || record.recent_count > PAL_RECENT) return false;
    for (size_t i = 0; i < record.recent_count; i++)
        if (record.recent[i] >= vocab || !(s->engine->tok->flags[record.recent[i]] & PAL_TOKEN_PRESENT)) return false;
    for (size_t i = 0; i < record.recent_count; i++) pal_session_note(s, record.recent[i]);
    for (size_t i = 0; i < vocab; i++) s->seen[i] = bytes[sizeof record + i / 8] >> i % 8 & 1;
    return true;
}

/* Its state is there. */
static void continue_from(pal_session *s, const void *record, size_t size) {
    const int32_t pending = pal_state_pending(s->state);
    memset(s->seen, 0, (size_t)s->engine->vocab);
    s->recent_count = 0;
    pal_guess_forget(&s->guesser);
    s->finish = PAL_FINISH_NOT;
    if (!take_record(s, record, size) && pending >= 0 && pending < s->engine->vocab)
        pal_session_note(s, (uint32_t)pending);
    pal_session_follow(s);
}

pal_status pal_session_load(pal_session *s, const char *path, pal_error *err) {
    void *more;
    size_t size;
    pal_session_stop(s);
    const pal_status st = pal_state_load_with(s->state, &more, &size, path, err);
    if (st) return st;
    continue_from(s, more, size);
    pal_free(more);
    return PAL_OK;
}

pal_status pal_session_resume(pal_session *s, const pal_state *state, pal_slice record, pal_error *err) {
    pal_session_stop(s);
    const pal_status st = pal_state_copy(s->state, state, err);
    if (!st) continue_from(s, record.data, record.size);
    return st;
}
