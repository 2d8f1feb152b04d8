/* SPDX-License-Identifier: MIT */
/* Working memory of a model: everything a computation writes, placed once. */
#ifndef PAL_MODEL_WORK_H
#define PAL_MODEL_WORK_H

#include "layers/ends.h"
#include "layers/mixer.h"
#include "layers/mlp.h"
#include "model/model.h"
#include "palimpsa/watch.h"

/* One block's part. Without training, or with recomputation, blocks share what they keep. */
typedef struct pal_block {
    int mixers;
    pal_mixer_plan plan; /* of the first mixer */
    float *h,
        *middle; /* (T, E) residual stream before the mixers and before the MLP; inference has one stream for all */
    pal_mixer_kept mixer;
    pal_mixer_work mixer_work;
    struct {
        pal_mixer_plan plan;
        pal_mixer_kept mixer;
        pal_mixer_work work;
    } beside; /* the second mixer, where there is one */
    pal_mlp_plan mlp_plan;
    pal_mlp_kept mlp;
} pal_block;

/* Whether a block has a memory of fixed size; whether that decays once the block has run, and A dt of one token and
 * head, the mean of its key channels where they decay apart: exp(-A dt) of it is kept. */
static inline bool pal_block_remembers(const pal_block *b) { return b->mixers && b->plan.program == PAL_MIXER_GATED; }
static inline bool pal_block_forgets(const pal_block *b) { return pal_block_remembers(b) && b->plan.dt >= 0; }
static inline float pal_block_decay(const pal_block *b, int token, int head) {
    if (b->plan.trapezoid) {
        const pal_mixer_extra *e = &b->plan.extra[PAL_TRAPEZOID_G];
        const size_t at = (size_t)token * (size_t)b->plan.heads + (size_t)head;
        return -(e->least + e->factor * b->mixer.extra[PAL_TRAPEZOID_G][at]) * b->mixer.dt[at];
    }
    const int each = b->plan.dt_width / b->plan.heads;
    const float *dt = b->mixer.dt + (size_t)token * (size_t)b->plan.dt_width + (size_t)(head * each);
    double sum = 0;
    for (int j = 0; j < each; j++) sum += (double)dt[j];
    return b->mixer_work.A[head] * (float)(sum / each);
}

typedef void pal_learned_fn(void *user, size_t from);

struct pal_work {
    const pal_model *model;
    const pal_model_layers *layers; /* the model's, or those on the device of cx */
    pal_model_layers own;           /* of the model, where the CPU computes */
    const pal_context *cx;
    pal_work_options options;
    pal_plan plan;
    pal_arena arena;   /* numbers: on the device, where there is one */
    pal_arena lists;   /* on the host */
    pal_block *blocks; /* (layers) */
    float *h;          /* (T, E) the stream after the last block */
    float *x;          /* (T, E) normed */
    float *dh, *dx;    /* (T, E) training */
    pal_mlp_work mlp_work;
    pal_head head;
    float *rotary;         /* table of positions, computed as far as sequences came */
    int turning;           /* channels of a head that turn: the table's width */
    int positions, angles; /* in the table; that are computed */
    void *scratch;
    size_t scratch_bytes;
    int *rows, *past, *cu;         /* (T) positions with targets, (N) tokens seen, (2) a prefill's own cu_seqlens */
    float **memory, **conv_window; /* (N) of the layer that runs */
    float **caches;                /* (N) its keys and values on a device, when it attends */
    pal_paged *paged;              /* (N) its keys and values, when it attends */
    float **tried;             /* (layers) rows of a trial as their first product left them; where a layer remembers */
    float *trial;              /* windows and memory of one layer, for a trial */
    int tried_tokens;          /* of the last trial, until it is kept */
    const float **before;      /* (N) its windows as forward found them */
    float *variance;           /* (T, values) of the layer that runs; NULL: not wanted */
    double *mean_variance;     /* (N) summed over layers, at each sequence's last token */
    int variance_layers;       /* in that sum */
    const pal_watch **watches; /* (N) who looks at a sequence */
    int watching;              /* how many do */
    pal_timers timers;
    pal_learned_fn *learned; /* NULL: none */
    void *learned_user;
};

/* From now on pal_model_learn calls fn while it goes backward, each time with how much of the flat gradients this batch
 * adds nothing to any more: [from ...]. NULL: no more calls. */
void pal_work_on_learned(pal_work *work, pal_learned_fn *fn, void *user);

/* The residual stream before block i, or after the last one, as the last forward left it; training only. */
const float *pal_work_stream(const pal_work *work, int block);

/* Computes the rotary table for positions below `end`, if there is one. */
void pal_work_reach(pal_work *work, int end);

/* watch.c: around the memory of block i, when states are run and watched. */
typedef struct pal_watched {
    pal_work *work;
    const pal_pass *pass;
    int block;
    const pal_memory_run *run; /* while it is made, with before_head */
} pal_watched;
void pal_watch_before(void *watched, pal_memory_run *run);
void pal_watch_after(const pal_watched *watched);

/* stack.c: the blocks, forward from work's first stream to its last; states NULL: sequences start afresh. */
void pal_stack_forward(pal_work *work, pal_pass *pass, pal_state *const *states);
/* Sets the positions that these states, one a sequence, continue from. */
void pal_stack_continue(pal_work *work, pal_pass *pass, pal_state *const *states);
/* Lets block i continue these states. */
void pal_stack_use_states(pal_work *work, pal_pass *pass, pal_state *const *states, int block);
/* Block i alone; afterwards it holds what its layer kept. */
void pal_stack_block(pal_work *work, const pal_pass *pass, int block);
/* Checks a batch, embeds it, and says what the blocks get. */
pal_status pal_stack_enter(pal_work *work, const pal_model *model, const pal_batch *batch, pal_pass *pass,
                           pal_error *err);

/* A piece of one prompt that is read a few blocks at a time, while the workspace does other things in between: the
 * same numbers as pal_model_continue. Until it is done its state is neither what it was nor what it will be. */
typedef struct pal_piece {
    pal_state *state;
    const int32_t *ids;
    int tokens;
    int block;     /* the next one; after the last: the logits */
    float *stream; /* (tokens, hidden) where the residual stream waits; NULL: it is read in one go */
} pal_piece;
pal_status pal_piece_begin(pal_piece *piece, const pal_model *model, pal_work *work, pal_error *err); /* checks it */
/* Runs for so many seconds, but by a block at least. True: it is done, and logits (tokens, vocab_rows) are written,
 * unless they are NULL. */
bool pal_piece_go_on(pal_piece *piece, pal_work *work, double seconds, float *logits);

/* trial.c. Reads n tokens of one sequence on trial: logits (n, vocab_rows), the same bits as of n steps. The state
 * stays as it was; its pages may get room for more. The workspace was made with `trial` of n or more. */
pal_status pal_model_try(const pal_model *model, pal_work *work, pal_state *state, const int32_t *ids, int n,
                         float *logits, pal_error *err);
/* The same state reads the first n of those tokens; nothing but a trial may have run in between. */
void pal_model_keep_tried(pal_work *work, pal_state *state, int n);
/* Where a trial of so many tokens keeps what it needs. */
void pal_trial_layout(pal_work *work, pal_arena *arena);
/* Block i of a trial runs on a copy of its memory and leaves its product in work->tried. */
void pal_trial_block(pal_work *work, pal_pass *pass, pal_state *state, int block);

/* From dh of the last stream to dh of the first; before: the states that forward began with (NULL: afresh), constants.
 */
void pal_stack_backward(pal_work *work, pal_pass *pass, const pal_state *const *before);
pal_pass pal_work_pass(pal_work *work, int tokens, int sequences, const int *cu_seqlens);

#endif
