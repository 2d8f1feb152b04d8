/* SPDX-License-Identifier: MIT */
/* Picking a token from logits. */
#ifndef PALIMPSA_SAMPLER_H
#define PALIMPSA_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pal_logit_bias {
    int32_t id;
    double bias; /* added to the id's logit; -100 and below forbid it */
} pal_logit_bias;

/* Applied in this order: bias, penalties, temperature, top_k, top_p (of what top_k left), min_p. */
typedef struct pal_sampling {
    double temperature; /* divides the logits; 0: always the likeliest token */
    int top_k;          /* keep the k likeliest; 0: all */
    double top_p;       /* keep the likeliest that have this probability together; 0 or 1: all */
    double min_p;       /* keep what is at least this fraction as likely as the likeliest; 0: all */
    /* Divides positive and multiplies negative logits of ids that were read or written; 0 or 1: none. */
    double repetition_penalty;
    double presence_penalty;  /* subtracted from the logits of ids that were written */
    double frequency_penalty; /* ... for each time */
    const pal_logit_bias *bias;
    size_t bias_count;
} pal_sampling;
/* One sentence when a number is out of its range, or a bias is for an id that the vocabulary does not have. */
PAL_API pal_status pal_sampling_check(const pal_sampling *sampling, int vocab, pal_error *err);

typedef struct pal_sampler pal_sampler; /* work memory for one pick at a time */
PAL_API pal_status pal_sampler_new(pal_sampler **out, int vocab, pal_error *err);
PAL_API void pal_sampler_free(pal_sampler *sampler);
/* The id, 0 .. vocab-1, picked from logits (vocab); of equal logits the smaller id is the likelier. seen (vocab, or
 * NULL) is not 0 where an id was read or written, written (vocab, or NULL) counts how often it was written. A pure
 * function of all arguments: index says which random number of the seed decides. -1 when no logit is a number. */
PAL_API int32_t pal_sampler_pick(pal_sampler *sampler, const pal_sampling *sampling, const float *logits,
                                 const unsigned char *seen, const uint32_t *written, uint64_t seed, uint64_t index);

#ifdef __cplusplus
}
#endif
#endif
