/* SPDX-License-Identifier: MIT */
/* What every layer gets per call, and the clock that says where time goes. What a layer is comes from its plan. */
#ifndef PAL_LAYERS_PASS_H
#define PAL_LAYERS_PASS_H

#include "base/clock.h"
#include "base/context.h"
#include "palimpsa/memory.h"
#include "palimpsa/timing.h"

typedef enum pal_timed_op {
    PAL_T_EMBEDDING,
    PAL_T_NORM,
    PAL_T_PROJECT,
    PAL_T_CONV,
    PAL_T_GATES,
    PAL_T_MEMORY,
    PAL_T_OUT,
    PAL_T_MLP,
    PAL_T_SWIGLU,
    PAL_T_HEAD,
    PAL_T_LOSS,
    PAL_T_BACKWARD, /* the same again for backward, in the same order */
    PAL_T_COUNT = 2 * PAL_T_BACKWARD
} pal_timed_op;

typedef struct pal_timers {
    bool on;
    pal_timing entry[PAL_T_COUNT + 1];
} pal_timers;

typedef struct pal_pass {
    const pal_context *cx;
    int tokens, sequences;
    const int *cu_seqlens;      /* NULL: one token a sequence */
    bool training;              /* backward follows, or is running */
    bool apart;     /* the tokens of one sequence are computed as steps compute them, one after the other: same bits */
    bool projected; /* the first mixer's first product is there already: only its memory and window move on */
    float *const *memory;       /* N memories of this layer; NULL: sequences start afresh */
    float *const *conv_window;  /* N convolution windows of this layer; NULL likewise */
    const float *const *before; /* backward: those windows as forward found them; NULL, or one that is NULL: zeros */
    const bool *borrowed;       /* (N) whether memory and window are only read; NULL: none is */
    const int *past;            /* (N) tokens seen before; NULL: none */
    float *const *caches;          /* (N) keys and values on a device, in one piece with room for so many tokens */
    int room;
    const struct pal_paged *paged; /* (N) keys and values, when the layer attends; NULL: sequences start afresh */
    float *variance; /* (T, values) where rules that have one leave their output variance; NULL: not wanted */
    /* Optional hook before the memory runs; it may set run->before_head. */
    void (*before_memory)(void *user, pal_memory_run *run);
    void *before_memory_user;
    const float *rotary; /* table of positions */
    void *scratch;       /* for one kernel at a time */
    size_t scratch_bytes;
    pal_timers *timers;
} pal_pass;

/* double since = pal_tick(pass); work; since = pal_tock(pass, PAL_T_CONV, since); */
static inline double pal_tick(const pal_pass *pass) { return pass->timers->on ? pal_seconds() : 0; }
static inline double pal_tock(const pal_pass *pass, int op, double since) {
    if (!pass->timers->on) return 0;
    const double now = pal_seconds();
    pass->timers->entry[op].seconds += now - since;
    pass->timers->entry[op].calls++;
    return now;
}

#endif
