/* SPDX-License-Identifier: MIT */
/* Text from a model: a sampler that picks a token from logits, and a generator that reads prompts and writes
 * continuations, several at a time.
 *
 *     pal_generator_new(&g, model, tokenizer, cx, &(pal_generator_options){ .sampling = { .temperature = 0.8 } },
 * &err); pal_generator_begin(g, 0, prompt, prompt_tokens, 100, seed, &err); while (pal_generator_running(g))
 * pal_generator_step(g, print, NULL, &err);
 *
 * A continuation depends on the model, the options, the prompt and the seed alone, not on what else is being generated.
 * Between two steps a slot's state is complete: saved and loaded, it goes on with the same tokens. */
#ifndef PALIMPSA_GENERATE_H
#define PALIMPSA_GENERATE_H

#include "palimpsa/model.h"
#include "palimpsa/state.h"
#include "palimpsa/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Applied in this order: penalty, temperature, top_k, top_p (of what top_k left), min_p. */
typedef struct pal_sampling {
    double temperature; /* divides the logits; 0: always the likeliest token */
    int top_k;          /* keep the k likeliest; 0: all */
    double top_p;       /* keep the likeliest that have this probability together; 0 or 1: all */
    double min_p;       /* keep what is at least this fraction as likely as the likeliest; 0: all */
    double
        repetition_penalty; /* divides positive and multiplies negative logits of tokens that occurred; 0 or 1: none */
} pal_sampling;

typedef struct pal_sampler pal_sampler; /* a checked pal_sampling and work memory for one pick at a time */
PAL_API pal_status pal_sampler_new(pal_sampler **out, const pal_sampling *sampling, int vocab, pal_error *err);
PAL_API void pal_sampler_free(pal_sampler *sampler);
/* The id, 0 .. vocab-1, picked from logits (vocab); of equal logits the smaller id is the likelier. seen (vocab, or
 * NULL) is not 0 where an id occurred. A pure function of all arguments: index says which random number of the seed
 * decides. -1 when no logit is a number. */
PAL_API int32_t pal_sampler_pick(pal_sampler *sampler, const float *logits, const unsigned char *seen, uint64_t seed,
                                 uint64_t index);

typedef enum pal_finish {
    PAL_FINISH_NOT,
    PAL_FINISH_LENGTH, /* max_tokens were written */
    PAL_FINISH_EOS,    /* the model ended its text */
    PAL_FINISH_STOP,   /* a stop string came */
    PAL_FINISH_CONTEXT /* attention layers can hold no more */
} pal_finish;
PAL_API const char *pal_finish_name(pal_finish finish); /* "length", "eos", "stop", "context"; "" for NOT */

typedef struct pal_generator_options {
    pal_sampling sampling;
    int slots;               /* continuations at a time; 0: 1 */
    int piece;               /* tokens of a prompt that are read at once; 0: 512 */
    int context;             /* tokens that attention layers hold; 0: 4096 */
    const char *const *stop; /* texts that end a continuation and are not part of it */
    size_t stop_count;
    bool ignore_eos;  /* EOS does not end a continuation */
    bool uncertainty; /* tell each token's probability and variance, which costs a little */
} pal_generator_options;

typedef struct pal_token {
    int slot;
    int32_t id;         /* -1: no token, the continuation ended for want of context */
    double probability; /* by the model itself, before penalty, temperature and filters; NaN unless asked for */
    double
        variance;   /* of the memory's answer, pal_work_variance(); NaN unless asked for, or where the model has none */
    pal_slice text; /* what can be shown now: whole characters, nothing that may become a stop string; borrowed */
    pal_finish finish;
} pal_token;
typedef void pal_token_fn(void *user, const pal_token *token);

/* Model, tokenizer and context are borrowed until the generator is freed. A tokenizer with more ids than the model's
 * vocabulary is refused. */
typedef struct pal_generator pal_generator;
PAL_API pal_status pal_generator_new(pal_generator **out, const pal_model *model, const pal_tokenizer *tokenizer,
                                     const pal_context *cx, const pal_generator_options *options, pal_error *err);
PAL_API void pal_generator_free(pal_generator *generator);
/* A slot's memory, to be reset, saved or loaded between continuations. */
PAL_API pal_state *pal_generator_state(pal_generator *generator, int slot);
/* Reads a prompt behind what the slot's memory holds and starts a continuation of at most max_tokens (0: read only).
 * The prompt may be empty when the memory has a pending token. */
PAL_API pal_status pal_generator_begin(pal_generator *generator, int slot, const uint32_t *ids, size_t count,
                                       int64_t max_tokens, uint64_t seed, pal_error *err);
/* One more token for every slot that runs, and a call for each. Allocates nothing. */
PAL_API pal_status pal_generator_step(pal_generator *generator, pal_token_fn *fn, void *user, pal_error *err);
PAL_API int pal_generator_running(const pal_generator *generator); /* slots that are not finished */

#ifdef __cplusplus
}
#endif
#endif
