/* SPDX-License-Identifier: MIT */
/* Text from a model. A session is one text: its memory, how its tokens are chosen, where it stops. An engine steps any
 * number of sessions of one model: a step reads one piece of one waiting prompt, or a part of it (read_seconds), and
 * writes one token for every session that writes.
 *
 *     pal_engine_new(&engine, model, tokenizer, cx, NULL, &err);
 *     pal_session_new(&session, engine, &err);
 *     pal_session_begin(session, ids, count,
 *                       &(pal_session_options){ .max_tokens = 100, .on_token = print, .user = stdout }, &err);
 *     while (pal_engine_step(engine)) {}
 *
 * What a session writes depends on the model, its options, its memory and its prompt alone, never on other sessions.
 * Prompts are read in pieces that end at multiples of `piece` tokens from the beginning of the text, whatever the load:
 * a memory that is copied there continues with the same bits as one that read everything in one go.
 *
 * An engine and its sessions belong to one thread at a time. */
#ifndef PALIMPSA_SESSION_H
#define PALIMPSA_SESSION_H

#include "palimpsa/grammar.h"
#include "palimpsa/model.h"
#include "palimpsa/sampler.h"
#include "palimpsa/state.h"
#include "palimpsa/tokenizer.h"
#include "palimpsa/watch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PAL_SPECULATE_MOST = 31 };
typedef struct pal_engine_options {
    int piece;     /* tokens of a prompt that are read at once; 0: 256 */
    int context;   /* tokens that attention layers hold; 0: 4096 */
    bool variance; /* report each generated token's variance, which costs a little */
    /* Most tokens that a session which runs alone guesses before a step, at most PAL_SPECULATE_MOST: the text's last
     * tokens are looked up in the text, and what followed them is read at once with the token that a step reads. What
     * is written, and the memory, are the same, bit for bit. Sessions with a watch do not guess. 0: none */
    int speculate;
    double read_seconds; /* a step ends reading at the next layer after so long, so that writers need not wait for a
                          * whole piece; the next step continues there, with the same numbers. 0: reads whole pieces */
} pal_engine_options;

typedef struct pal_engine pal_engine;
/* Model, tokenizer and context are borrowed until the engine is freed; options may be NULL. A tokenizer with more ids
 * than the model's vocabulary is refused; ids that only the model has are never written. */
PAL_API pal_status pal_engine_new(pal_engine **out, const pal_model *model, const pal_tokenizer *tokenizer,
                                  const pal_context *cx, const pal_engine_options *options, pal_error *err);
PAL_API void pal_engine_free(pal_engine *engine); /* after its sessions */
/* One step; returns how many sessions still read or write. Allocates nothing. */
PAL_API int pal_engine_step(pal_engine *engine);
PAL_API int pal_engine_busy(const pal_engine *engine); /* sessions that read or write */
typedef struct pal_engine_counts {                     /* since the engine was made */
    uint64_t read, written; /* tokens; a prompt's last one is read by the step that generates after it */
    double read_seconds, write_seconds;
    uint64_t accepted, rejected; /* guessed tokens that were written, and that were not */
} pal_engine_counts;
PAL_API pal_engine_counts pal_engine_counted(const pal_engine *engine);

typedef enum pal_finish {
    PAL_FINISH_NOT,
    PAL_FINISH_LENGTH,  /* max_tokens were written */
    PAL_FINISH_EOS,     /* the model ended its text: with EOS, or another id that its files name (eos_token_id) */
    PAL_FINISH_STOP,    /* a stop string came */
    PAL_FINISH_CONTEXT, /* attention layers can hold no more */
    PAL_FINISH_GRAMMAR, /* the grammar's text is complete, and nothing can follow */
    PAL_FINISH_ERROR    /* the model's numbers are not numbers; the token has a sentence */
} pal_finish;
/* "length", "eos", "stop", "context", "grammar", "error"; "" for NOT */
PAL_API const char *pal_finish_name(pal_finish finish);

enum { PAL_ALTERNATIVES = 20 }; /* at most */
typedef struct pal_alternative {
    int32_t id;
    double logprob;
} pal_alternative;

/* Everything is borrowed for the call. logprob, alternatives and variance are those of the model itself, before bias,
 * penalties, temperature, filters and grammar. */
typedef struct pal_token {
    bool prompt;     /* a token of the prompt; only with prompt_logprobs */
    int32_t id;      /* -1: no token, only the end */
    double logprob;  /* NaN unless asked for, and for the first token of a text */
    double variance; /* of the memory's answer, pal_work_variance(); NaN unless the engine has it and the model too; of
                      * a prompt's token only with a watch of variances */
    const pal_alternative *top; /* the likeliest tokens, likeliest first */
    int top_count;
    pal_slice text; /* what can be shown now: whole characters, nothing that may become a stop string */
    pal_finish finish;
    const char *error; /* PAL_FINISH_ERROR: one sentence */
} pal_token;
/* Must not call functions that change a session or an engine. */
typedef void pal_token_fn(void *user, const pal_token *token);
/* Called after every piece of a prompt, while the memory holds what was read so far and nothing is pending: such a
 * memory, copied, can be `known` to another text that begins with the same tokens. The same rule. */
typedef void pal_read_fn(void *user, const pal_state *state);

typedef struct pal_session_options {
    pal_sampling sampling;
    uint64_t seed;
    int64_t max_tokens;      /* 0: read only */
    const char *const
        *stop; /* texts that end the text and are not part of it; the name of a special token: that token */
    size_t stop_count;
    bool ignore_eos;        /* EOS does not end the text */
    bool logprobs;          /* report each token's logprob */
    int alternatives;       /* ... and this many of the likeliest, at most PAL_ALTERNATIVES */
    bool prompt_logprobs;   /* ... of the prompt's tokens too */
    /* Only tokens after which the text can still become one of the grammar are written, and an end only where it is
     * one: a text that max_tokens or a stop string does not cut is of the grammar. Special tokens are written where it
     * names them. Borrowed until the text ends; NULL: none. */
    const pal_grammar *grammar;
    /* Special tokens whose names are part of the text; others are left out of it. Borrowed until the text ends. */
    const uint32_t *shown;
    size_t shown_count;
    const pal_state *known; /* begin as a copy of this memory, which has read the first tokens of ids and no others */
    int piece;              /* ... and pieces of the prompt end at multiples of this many tokens; 0: as the engine's */
    const size_t *cuts; /* ... and at these positions of the text, which rise; borrowed until the text ends */
    size_t cut_count;
    const pal_watch *watch; /* filled before each call of on_token with a written token, and of on_read; borrowed until
                             * the text ends; NULL: none */
    pal_token_fn *on_token; /* NULL: no callback */
    pal_read_fn *on_read;   /* NULL: no callback */
    void *user;
} pal_session_options;

typedef struct pal_session pal_session;
PAL_API pal_status pal_session_new(pal_session **out, pal_engine *engine, pal_error *err); /* with an empty memory */
PAL_API void pal_session_free(pal_session *session);
PAL_API void pal_session_reset(pal_session *session); /* empties the memory; what is under way is cancelled */
/* Appends ids to what the memory holds and starts to generate; what is under way is cancelled. options are
 * copied. count may be 0 when the memory has a pending token. On failure the session is as it was, but idle. */
PAL_API pal_status pal_session_begin(pal_session *session, const uint32_t *ids, size_t count,
                                     const pal_session_options *options, pal_error *err);
PAL_API void pal_session_cancel(pal_session *session); /* ends reading or writing; the memory holds what it came to */
/* A session that pauses keeps its place and is passed over by steps, and not counted as busy by the engine. A piece
 * that it has begun is still read to its end, or no other session could read. */
PAL_API void pal_session_pause(pal_session *session, bool pause);
PAL_API bool pal_session_busy(const pal_session *session);
PAL_API pal_finish pal_session_finish(const pal_session *session); /* of the last text */
/* Of the last text: guessed tokens (pal_engine_options.speculate) that were written, and that were not. */
typedef struct pal_guessed {
    int64_t accepted, rejected;
} pal_guessed;
PAL_API pal_guessed pal_session_guessed(const pal_session *session);
/* What the session has read and written, to be looked at, saved or copied while the session is idle. */
PAL_API const pal_state *pal_session_state(const pal_session *session);
/* Text that was not reported yet: what might have become a stop string when the session was cancelled, and the bytes of
 * a character that the last token left unfinished. A session that continues reports the complete character; call this
 * when none will. Borrowed until the session is used again. */
PAL_API pal_slice pal_session_rest(pal_session *session);

/* A fork: what `from` has read, written and seen. Both of one engine; both become idle. */
PAL_API pal_status pal_session_copy(pal_session *to, pal_session *from, pal_error *err);
/* Saves the memory (docs/reference/formats.md) with what the session has seen, so that penalties and incomplete
 * characters survive. load also takes files of pal_state_save. */
PAL_API pal_status pal_session_save(pal_session *session, const char *path, pal_error *err);
PAL_API pal_status pal_session_load(pal_session *session, const char *path, pal_error *err);

/* Many prompts, answered greedily (always the likeliest token), several at a time. */
typedef struct pal_prompt {
    const uint32_t *ids; /* (count), at least one */
    size_t count;
    int64_t max_tokens;      /* at most this many are written */
    const char *const *stop; /* texts that end the answer and are not part of it */
    size_t stop_count;
    bool ignore_eos; /* EOS does not end the answer */
} pal_prompt;
typedef struct pal_answer {
    size_t prompt;  /* which one is answered */
    pal_slice text; /* borrowed for the call; may end, or hold bytes, in the middle of a UTF-8 character */
    int64_t tokens; /* written, an EOS among them */
    pal_finish finish;
    const char *error; /* PAL_FINISH_ERROR: one sentence */
} pal_answer;
/* Called as answers come to an end, in no particular order. False: stop. */
typedef bool pal_answer_fn(void *user, const pal_answer *answer);
/* An answer depends on its prompt alone. `together` memories are held (0: 16), however many prompts there are; prompts
 * are read before anybody writes, so that a step writes for as many as possible. A prompt that cannot be answered
 * (empty, an unknown id, longer than attention layers hold) ends the call with a sentence that names it. */
PAL_API pal_status pal_engine_answer(pal_engine *engine, const pal_prompt *prompts, size_t count, int together,
                                     pal_answer_fn *on_answer, void *user, pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
