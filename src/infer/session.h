/* SPDX-License-Identifier: MIT */
/* What the engine and its sessions know of each other. */
#ifndef PAL_INFER_SESSION_H
#define PAL_INFER_SESSION_H

#include "grammar/guide.h"
#include "infer/guess.h"
#include "infer/stops.h"
#include "model/work.h"
#include "palimpsa/session.h"

enum { PAL_TOGETHER = 64 }; /* writers in one pass over the weights; rows are the same bits in any company */
enum { PAL_RECENT = 8 }; /* tokens that a decoder is primed with: more than any character has bytes */

typedef enum pal_phase { PAL_IDLE, PAL_READING, PAL_WRITING } pal_phase;

/* What sessions of one grammar share, while there are any. */
typedef struct pal_shared_guide {
    struct pal_shared_guide *next;
    pal_guide *guide;
    int users;
} pal_shared_guide;

/* A session's state holds everything of its text but the newest token, which is pending: a step reads the pending
 * tokens of all writers, picks the next ones and leaves those pending. While a prompt is read nothing is pending; `ids`
 * has it all. */
struct pal_session {
    pal_engine *engine;
    pal_session *next; /* in the engine's list of its phase */
    pal_phase phase;
    bool paused;
    pal_finish finish;
    pal_state *state;
    pal_decoder *decoder;
    pal_bytes held; /* text that is not reported yet */
    pal_stops stops;
    unsigned char *seen; /* (vocab) not 0 where an id was read or written */
    uint32_t *written;   /* (vocab) how often; NULL until a penalty wants it */
    uint32_t recent[PAL_RECENT];
    size_t recent_count;
    pal_session_options options; /* with an own copy of bias, and no stop */
    pal_ids ids;                 /* what is read now: the pending token, then the prompt */
    size_t read, noted;          /* of them, by the state; in seen and recent */
    bool first;                  /* the text's very first token is among ids and was not reported yet */
    int64_t left;                /* tokens that may still be written */
    pal_shared_guide *guide;     /* of its grammar; NULL: none */
    pal_place place;             /* in it */
    pal_bytes spelled;           /* a token, for the grammar */
    pal_guesser guesser;
    pal_guessed guessed;
};

struct pal_engine {
    const pal_model *model;
    const pal_tokenizer *tok;
    pal_engine_options options;
    int vocab, rows; /* ids that can be written: those of the tokenizer; numbers in a row of logits */
    bool grows;      /* attention */
    size_t longest_token;
    pal_work *work;
    const pal_context *cx;
    pal_sampler **samplers;         /* one a thread */
    float *logits;                  /* of a step's or a trial's rows */
    float *prompt_logits;           /* (piece, rows); NULL until a session wants them */
    double *prompt_sums;            /* (piece) their log_sum(); with them */
    pal_piece piece;                /* what is being read, by ... */
    pal_session *under_way;         /* ... this reader; NULL: nothing */
    pal_session *readers, *writers; /* readers: who has waited longest first */
    pal_engine_counts counts;
    pal_session *trying;      /* who tries its guess; NULL: no one, or its memory has read what came true */
    int tried;                /* tokens of the trial that are part of its text */
    pal_spellings *spellings; /* of the vocabulary; NULL until a session has a grammar, like the next one */
    uint64_t *allowed;        /* (rows of a step, words) bits of ids */
    pal_shared_guide *guides;
};

/* guided.c. A grammar's guide for one more session; NULL: no grammar. */
pal_status pal_engine_guide(pal_engine *e, const pal_grammar *grammar, pal_shared_guide **out, pal_error *err);
void pal_engine_unguide(pal_engine *e, pal_shared_guide *guide); /* one session fewer */
void pal_session_unguide(pal_session *s);                        /* its text has ended */
/* Fills row i of `allowed` for a session with a grammar. */
void pal_session_allow(pal_session *s, int i);
/* A token has been picked. False: the grammar forbids it, or is too large. *over: the text ends with it. */
bool pal_session_accept(pal_session *s, uint32_t id, bool *over);

/* pal_sampler_pick() among ids whose bit is set in allowed; NULL: among all. */
int32_t pal_sampler_pick_allowed(pal_sampler *sampler, const pal_sampling *sampling, const float *logits,
                                 const unsigned char *seen, const uint32_t *written, const uint64_t *allowed,
                                 uint64_t seed, uint64_t index);
/* The bytes that an engine takes besides weights and sessions: workspace and logits. */
pal_status pal_engine_plan(size_t *bytes, const pal_model *model, const pal_context *cx, pal_engine_options options,
                           pal_error *err);
/* What a session's file has after the state; and a session as after loading a file of a state and that. */
pal_status pal_session_record(const pal_session *s, pal_bytes *out, pal_error *err);
pal_status pal_session_resume(pal_session *s, const pal_state *state, pal_slice record, pal_error *err);
/* A token has become part of the text. */
void pal_session_note(pal_session *s, uint32_t id);
/* ... and those of the prompt before `end`, as far as they were not before. */
void pal_session_note_prompt(pal_session *s, size_t end);
/* Primes the decoder with what was noted, so that a blank in front of the first new word is not taken for the text's
 * start, and an incomplete character of the last token is completed. */
void pal_session_follow(pal_session *s);
/* Takes it out of its list, and leaves its memory complete: a piece that is under way is read to its end. */
void pal_session_stop(pal_session *s);
void pal_engine_add(pal_session *s, pal_phase phase); /* at the end of that list */
void pal_engine_remove(pal_session *s); /* a piece that is under way leaves its memory undefined */
void pal_engine_finish_piece(pal_session *s); /* if one is under way; its callback is not called */

#endif
