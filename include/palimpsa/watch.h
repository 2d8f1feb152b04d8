/* SPDX-License-Identifier: MIT */
/* Looking into a memory while it reads and writes. A watch is what the caller wants to see of one sequence, and where
 * it shall go; from pal_work_watch on, every step, prefill piece or continuation of that sequence fills it. Nothing is
 * allocated, no result of the model changes, and without a watch nothing is done.
 *
 *     pal_tile tiles[24];
 *     pal_watch watch = { .tiles = tiles, .scratch = block of pal_watch_bytes(model) };
 *     pal_work_watch(work, 0, &watch, &err);
 *     pal_model_step(model, work, &state, 1, &id, logits, &err);
 *     printf("layer 0 kept %g tokens\n", tiles[0].window); */
#ifndef PALIMPSA_WATCH_H
#define PALIMPSA_WATCH_H

#include "palimpsa/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One layer after the last token. NaN: the layer's rule has none. `mean` is mu, or S or G where there is no mu. */
enum { PAL_TILE_SPREAD = 7 };
typedef struct pal_tile {
    float importance[PAL_TILE_SPREAD]; /* over all elements of all heads: least, 5%, 25%, 50%, 75%, 95%, most; the
                                        * middle ones of at most 256 evenly spaced elements a head, within 0.4% */
    float window;   /* N_t = 1/(1 - exp(-A dt)) of the last token, median over heads; infinite: nothing was forgotten */
    float ratio;    /* (most - least)/least importance of a head, mean over heads */
    float write;    /* norm of the mean's change by the tokens that were read, over the norm of the mean */
    float norm;     /* root mean square of the mean */
    float variance; /* of the memory's answer to the last token, mean over channels; with pal_work_options.variance */
} pal_tile;

typedef struct pal_element {
    int layer, head, key, value;
} pal_element;
enum { PAL_ELEMENTS = 16 }; /* at most */

/* What is NULL is not computed. */
typedef struct pal_watch {
    pal_tile *tiles;             /* (layers) */
    float *writes;               /* (layers, heads) `write` of each head */
    float *windows;              /* (tokens, layers) `window` of every token that was read */
    float *variances;            /* (tokens, layers) `variance` of every token that was read */
    const pal_element *elements; /* (element_count) to be followed */
    int element_count;
    float *followed; /* (tokens, elements, 2) their mean and importance after every token that was read */
    int tokens;      /* that the last three have room for; a longer piece fills none of the three */
    void *scratch;   /* pal_watch_bytes() of zeros to begin with, 64-byte aligned; of this watch alone */
} pal_watch;

PAL_API size_t pal_watch_bytes(const pal_model *model);
/* From now on `watch` (borrowed; its pointers may change between calls of the model) is filled by what the work runs as
 * sequence `sequence` of a batch with states. NULL: stop observing. Elements that the model does not have are refused.
 */
PAL_API pal_status pal_work_watch(pal_work *work, int sequence, const pal_watch *watch, pal_error *err);
PAL_API pal_status pal_watch_check(const pal_watch *watch, const pal_model *model, pal_error *err);

/* One head's memory as matrices (values, keys): the mean (mu, S or G), and the importance where there is one (else
 * NaN). Either may be NULL. Attention has no such matrix, which is an error. */
PAL_API pal_status pal_state_export_head(const pal_state *state, int layer, int head, float *mean, float *importance,
                                  pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
