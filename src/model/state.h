/* SPDX-License-Identifier: MIT */
#ifndef PAL_MODEL_STATE_H
#define PAL_MODEL_STATE_H

#include "base/device.h"
#include "model/model.h"
#include "palimpsa/state.h"
#include "palimpsa/watch.h"

struct pal_state {
    const pal_model *model;
    int context;
    int64_t position;
    int32_t pending;      /* a token of the sequence that has not been read yet; -1: none */
    size_t fixed;         /* of data */
    float *data;          /* windows and memories of fixed size */
    pal_device *device;   /* where data is, with keys and values of the whole context after it; NULL: on the host */
    float *start;         /* on a device: the fixed part of a state that has seen nothing, on the host */
    size_t *conv_window_at, *memory_at; /* (layers) offsets in data */
    pal_page **pages;     /* keys and values; other states may hold them too. NULL: no layer attends */
    size_t held;          /* how many there are: those of `position` tokens, and of tokens that are about to come */
};

/* Floats that a state of this model holds after so many tokens: what its file takes, without head and padding. */
size_t pal_state_used_floats(const pal_model *model, int64_t position);

/* On a device: keys and values of a layer that attends, strip by strip, each with room for the context. */
static inline float *pal_state_cache(const pal_state *s, int layer, size_t strip) {
    const pal_cache *k = &s->model->pages->of[layer];
    const size_t before = k->at / (PAL_PAGE_TOKENS * sizeof(float)) + strip * k->width; /* numbers of a token */
    return s->data + s->fixed + before * (size_t)s->context;
}
/* A device's state as one of the host, which is the caller's; and the other way round. */
pal_status pal_state_bring(const pal_state *state, pal_state **out, pal_error *err);
void pal_state_send(pal_state *state, const pal_state *host);
/* A state of a model that is on the host, whatever the model is on. */
pal_status pal_state_new_on_host(pal_state **out, const pal_model *model, int context, pal_error *err);

/* Pages for so many more tokens, the first of which no other state holds any more: before a model runs. */
pal_status pal_state_make_room(pal_state *state, int tokens, pal_error *err);
/* Leaves its pages and takes new ones for tokens 0 .. tokens - 1, which mean nothing yet. */
pal_status pal_state_new_pages(pal_state *state, int64_t tokens, pal_error *err);
/* Row `token` of strip `strip` (keys of each head, then values) of a layer that attends. */
void pal_state_row(const pal_state *state, int layer, size_t strip, int64_t token, float *to);

/* One sentence when these n states cannot take the tokens of cu_seqlens (NULL: one each) of this model. borrowed: see
 * pal_model_score_rows. */
pal_status pal_states_check(const pal_model *model, pal_state *const *states, const bool *borrowed, int n,
                            const int *cu_seqlens, pal_error *err);

bool pal_state_is_finite(const pal_state *state); /* every number of it */

/* pal_model_score with targets of its own: nll[i] and correct[i] of target[i] (an id of the vocabulary) after position
 * at[i] of the batch, which may be asked for several targets. n may be 0. borrowed (NULL: none): states that are read
 * and left as they were, so that several sequences can continue the same one; not attention's, which grow. */
pal_status pal_model_score_rows(const pal_model *model, pal_work *work, pal_state *const *states, const bool *borrowed,
                                const pal_batch *batch, const int *at, const int32_t *target, int n, float *nll,
                                unsigned char *correct, pal_error *err);

/* Truncated back-propagation: pal_model_learn where sequence n continues before[n], as from a constant (NULL: it
 * starts afresh), and leaves its memory in after[n]. Not for attention, and not with recomputation. */
pal_status pal_model_learn_carried(pal_model *model, pal_work *work, const pal_state *const *before,
                                   pal_state *const *after, const pal_batch *batch, float scale, pal_loss *loss,
                                   pal_error *err);

/* The file of a state with a trailer of the caller: `more` (size bytes) is stored and given back as it is. load_with
 * returns it in a block of the caller (pal_free; NULL and 0 when the file has none). */
pal_status pal_state_save_with(const pal_state *state, const void *more, size_t size, const char *path, pal_error *err);
pal_status pal_state_load_with(pal_state *state, void **more, size_t *size, const char *path, pal_error *err);
/* What the head of a state's file says, whose size fits it; the rest is not looked at. */
typedef struct pal_state_head {
    uint64_t fingerprint;
    int64_t tokens, context; /* tokens: with the pending one */
    size_t bytes;            /* of the file */
} pal_state_head;
pal_status pal_state_peek(pal_state_head *out, const char *path, pal_error *err);

#endif
