/* SPDX-License-Identifier: MIT */
/* How likely a model finds given continuations, many at a time.
 *
 *     pal_scorer_new(&scorer, model, cx, &(pal_scorer_options){ 0 }, &err);
 *     pal_score(scorer, requests, count, scores, &err);
 *
 * Requests of one group that begin alike share the reading: their common prefix is read once, and each continues
 * from the memory it left. Requests of any lengths are packed into passes of a planned size. A score depends on its
 * request alone, up to rounding. */
#ifndef PALIMPSA_SCORE_H
#define PALIMPSA_SCORE_H

#include "palimpsa/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pal_score_request {
    const uint32_t *ids;      /* (count) the context, then the continuation */
    size_t count, scored;     /* the last `scored` ids are the continuation; at least one id stands before them */
    size_t group;             /* requests of one group, a document for instance, may share what they read */
    float *logprobs;          /* (scored) of each token, or NULL */
    unsigned char *likeliest; /* (scored) 1 where no id had a larger logit, or NULL */
} pal_score_request;

typedef struct pal_score_result {
    double logprob; /* sum of log p over the continuation; every row of the head takes part in the softmax */
    bool greedy;    /* every token of it was the likeliest */
} pal_score_result;

typedef struct pal_scorer_options {
    int tokens;               /* of one pass; 0: 1024 */
    int states;               /* memories held at a time, plus an empty one; 0: what fits into `memory`, 4 to 64 */
    size_t memory;            /* bytes for them; 0: 1 GiB */
    int context;              /* tokens that attention layers hold; other models ignore it */
    pal_go_on_fn *progress;   /* after each pass: tokens read, of those that this call has to read; or NULL */
    void *user;
} pal_scorer_options;

/* Model and context are borrowed until the scorer is freed. */
typedef struct pal_scorer pal_scorer;
PAL_API pal_status pal_scorer_new(pal_scorer **out, const pal_model *model, const pal_context *cx,
                                  const pal_scorer_options *options, pal_error *err);
PAL_API void pal_scorer_free(pal_scorer *scorer);
/* scores (count), in the order of the requests. */
PAL_API pal_status pal_score(pal_scorer *scorer, const pal_score_request *requests, size_t count,
                             pal_score_result *scores, pal_error *err);

typedef struct pal_score_counts { /* since the scorer was made */
    uint64_t sent;                /* tokens that the requests would have taken one by one */
    uint64_t read;                /* tokens that went through the model */
    uint64_t scored;              /* rows of logits */
} pal_score_counts;
PAL_API pal_score_counts pal_scorer_counts(const pal_scorer *scorer);

#ifdef __cplusplus
}
#endif
#endif
