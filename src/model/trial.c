/* SPDX-License-Identifier: MIT */
/* Tokens that are read on trial. Products take all of them at once, row by row the same bits as steps; memories take
 * one after the other, on a copy of one layer's that is forgotten with the next layer. What the memory of a layer is
 * moved on by, the product that enters it, is kept: to read some of the tokens for good needs no matrix again but that
 * of an importance gate. Attention appends to its pages, where what is after the state's position means nothing. */
#include <assert.h>

#include "model/state.h"
#include "model/work.h"

static size_t line_of(size_t floats) { return (floats + 15) & ~(size_t)15; }

/* Whether a block has a memory or window of fixed size, in its first mixer. */
static bool moves(const pal_block *b) { return b->mixers && b->plan.program != PAL_MIXER_ATTENDING; }

/* Numbers of a block's windows and memory, as a state lays them out. */
static size_t fixed_floats(const pal_block *b) {
    const pal_mixer_plan *m = &b->plan;
    const pal_memory_shape shape = pal_mixer_shape(m, 1, 1, NULL, 0);
    const size_t window = line_of(pal_mixer_window_floats(m));
    return m->program == PAL_MIXER_GATED ? window + line_of(m->rule->state_floats(&shape)) : window;
}

void pal_trial_layout(pal_work *w, pal_arena *arena) {
    size_t most = 0;
    for (int i = 0; i < w->model->config.layers; i++) {
        const pal_block *b = &w->blocks[i];
        float *rows = NULL;
        if (moves(b)) {
            rows = pal_take(arena, (size_t)w->options.trial * (size_t)b->plan.columns, sizeof(float));
            if (fixed_floats(b) > most) most = fixed_floats(b);
        }
        if (w->tried) w->tried[i] = rows;
    }
    w->trial = pal_take(arena, most, sizeof(float));
}

void pal_trial_block(pal_work *w, pal_pass *ps, pal_state *state, int i) {
    pal_block *b = &w->blocks[i];
    float *const shared = b->mixer.p;
    if (moves(b)) {
        pal_copy_floats(w->cx, w->trial, w->conv_window[0], fixed_floats(b));
        w->memory[0] = w->trial + (state->memory_at[i] - state->conv_window_at[i]);
        w->conv_window[0] = w->trial;
        b->mixer.p = w->tried[i];
    }
    pal_stack_block(w, ps, i);
    b->mixer.p = shared;
}

pal_status pal_model_try(const pal_model *m, pal_work *w, pal_state *state, const int32_t *ids, int n, float *logits,
                         pal_error *err) {
    pal_piece piece = { .state = state, .ids = ids, .tokens = n };
    const int cu[2] = { 0, n };
    const pal_batch batch = { .tokens = n, .sequences = 1, .ids = ids, .cu_seqlens = cu };
    pal_pass ps;
    pal_status st;
    if (n > w->options.trial)
        return pal_fail(err, PAL_E_ARGUMENT, "a trial of %d tokens: the workspace was made for %d", n,
                        w->options.trial);
    if ((st = pal_piece_begin(&piece, m, w, err)) || (st = pal_stack_enter(w, m, &batch, &ps, err))) return st;
    ps.apart = true;
    ps.variance = w->variance;
    pal_stack_continue(w, &ps, &state);
    pal_stack_forward(w, &ps, &state);
    pal_head_logits(&ps, &w->layers->outer, &w->head, w->h, NULL, n, logits);
    w->tried_tokens = n;
    return pal_device_check(w->cx, err);
}

void pal_model_keep_tried(pal_work *w, pal_state *state, int n) {
    const int cu[2] = { 0, n };
    pal_pass ps = pal_work_pass(w, n, 1, cu);
    assert(n >= 1 && n <= w->tried_tokens);
    ps.apart = ps.projected = true;
    for (int i = 0; i < w->model->config.layers; i++) {
        pal_block *b = &w->blocks[i];
        float *const shared = b->mixer.p;
        if (!moves(b)) continue;
        pal_stack_use_states(w, &ps, &state, i);
        b->mixer.p = w->tried[i];
        pal_mixer_forward(&ps, &b->plan, &w->layers->layers[i], &b->mixer, &b->mixer_work, NULL, NULL);
        b->mixer.p = shared;
    }
    state->position += n;
    w->tried_tokens = 0;
}
