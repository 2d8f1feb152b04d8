/* SPDX-License-Identifier: MIT */
/* Packed sequences of tokens: what a model reads, what it should predict, and how well it did. */
#ifndef PALIMPSA_BATCH_H
#define PALIMPSA_BATCH_H

#include <stddef.h>
#include <stdint.h>

enum { PAL_IGNORE = -100 /* a target that is not trained on */ };

typedef struct pal_batch {
    int tokens, sequences;
    const int32_t *ids;     /* (tokens) */
    const int *cu_seqlens;  /* (sequences + 1): sequence n owns tokens cu_seqlens[n] .. cu_seqlens[n+1]-1 */
    const int32_t *targets; /* (tokens) the id that each position should predict, or PAL_IGNORE */
} pal_batch;

typedef struct pal_loss {
    double sum;     /* of -log softmax over the trained positions */
    size_t count;   /* trained positions */
    size_t correct; /* of them, where the target has the largest logit */
} pal_loss;

#endif
