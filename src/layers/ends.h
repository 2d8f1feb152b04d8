/* SPDX-License-Identifier: MIT */
/* Both ends of the stack: token embedding, and final norm, head and loss. Logits exist only for the rows that are asked
 * for, a few at a time: forward, loss and backward of a piece happen before the next piece is begun. */
#ifndef PAL_LAYERS_ENDS_H
#define PAL_LAYERS_ENDS_H

#include "base/arena.h"
#include "layers/layer.h"
#include "layers/pass.h"
#include "palimpsa/batch.h"
#include "palimpsa/config.h"

/* h[t] = scale * table[ids[t]] */
void pal_embedding_forward(const pal_pass *pass, const pal_matrix *table, float scale, const int32_t *ids, float *h);
/* dtable (rows of `width`)[ids[t]] += scale * dh[t]; dh is scaled in place. */
void pal_embedding_backward(const pal_pass *pass, float *dtable, int width, float scale, const int32_t *ids, float *dh);

typedef struct pal_head {
    int rows;             /* of one piece */
    int hidden, vocab;    /* vocab: rows of the head */
    float eps, scale;     /* of the norm; of what the head reads */
    bool layernorm;       /* the final norm is a LayerNorm instead of an RMSNorm */
    float *h, *x;         /* (rows, E) gathered stream, and its norm */
    size_t ld;            /* floats from one row of logits to the next */
    float *logits;        /* (rows, vocab_rows); NULL when the caller owns them */
    float *dx, *dh;       /* (rows, E) training */
    float *nll;           /* (rows) */
    int *labels, *argmax; /* (rows) */
} pal_head;

typedef struct pal_head_use {
    int rows;            /* most that one call handles */
    bool loss, training; /* what will be asked for */
    bool logits;         /* they are made here before a caller gets them: on a device */
} pal_head_use;
/* lists: what the host writes and reads. */
void pal_head_take(pal_head *head, const pal_model_config *config, const pal_head_use *use, pal_arena *arena,
                   pal_arena *lists);
size_t pal_head_scratch_bytes(const pal_model_config *config, const pal_layer *outer, int rows);

/* Logits (n, vocab_rows) of stream rows at[0..n-1] (NULL: 0..n-1). */
void pal_head_logits(const pal_pass *pass, const pal_layer *outer, const pal_head *head, const float *stream,
                     const int *at, int n, float *logits);
/* Loss of rows at[0..n-1] with targets[at[i]]. With dstream not NULL also gradients: dstream (T, E), zero on entry,
 * gets its rows; weights are added to. correct and nll (either may be NULL) are indexed by row. */
void pal_head_loss(const pal_pass *pass, const pal_layer *outer, const pal_head *head, const float *stream,
                   const int *at, int n, const int32_t *targets, float scale, pal_loss *loss, unsigned char *correct,
                   float *nll, float *dstream);
/* nll[i] and correct[i] of target[i] after row at[i]; a row may be asked for several targets. No gradients. */
void pal_head_score(const pal_pass *pass, const pal_layer *outer, const pal_head *head, const float *stream,
                    const int *at, const int32_t *target, int n, float *nll, unsigned char *correct);

#endif
