/* SPDX-License-Identifier: MIT */
/* The stack of blocks: forward, backward, with and without states; and the checked entry points of model.h. */
#include <string.h>

#include "base/clock.h"
#include "base/device.h"
#include "model/state.h"
#include "model/work.h"

pal_pass pal_work_pass(pal_work *w, int tokens, int sequences, const int *cu_seqlens) {
    return (pal_pass){ .cx = w->cx,
                       .tokens = tokens,
                       .sequences = sequences,
                       .cu_seqlens = cu_seqlens,
                       .training = w->options.training,
                       .rotary = w->rotary,
                       .scratch = w->scratch,
                       .scratch_bytes = w->scratch_bytes,
                       .timers = &w->timers };
}

static pal_rmsnorm_args norm_args(const pal_work *w, const pal_pass *ps, const float *weight, float *dweight,
                                  const float *h, float *x) {
    const size_t E = (size_t)w->model->config.hidden;
    return (pal_rmsnorm_args){ .rows = (size_t)ps->tokens,
                               .groups = 1,
                               .width = w->model->config.hidden,
                               .eps = (float)w->model->config.norm_eps,
                               .w = weight,
                               .dw = dweight,
                               .x = { h, E },
                               .y = { x, E } };
}

/* work->x = norm(h) */
static void norm_forward(pal_work *w, const pal_pass *ps, const float *weight, const float *h, int op) {
    const double t = pal_tick(ps);
    const pal_rmsnorm_args args = norm_args(w, ps, weight, NULL, h, w->x);
    pal_rmsnorm(ps->cx, &args);
    pal_tock(ps, op, t);
}

/* work->dh += d norm(h) / dh * work->dx */
static void norm_backward(pal_work *w, const pal_pass *ps, const float *weight, float *dweight, const float *h) {
    const size_t E = (size_t)w->model->config.hidden;
    const double t = pal_tick(ps);
    pal_rmsnorm_args args = norm_args(w, ps, weight, dweight, h, NULL);
    args.dy = (pal_const_view){ w->dx, E };
    args.add = (pal_const_view){ w->dh, E };
    args.dx = (pal_view){ w->dh, E };
    pal_rmsnorm_backward(ps->cx, &args, ps->scratch);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_NORM, t);
}

static void carry(const pal_work *w, const pal_pass *ps, float *to, const float *from) {
    if (to != from) pal_copy_floats(ps->cx, to, from, (size_t)ps->tokens * (size_t)w->model->config.hidden);
}

/* The second mixer reads the same input and adds to the same stream. */
static void beside_forward(pal_work *w, const pal_pass *ps, int i, float *h) {
    pal_block *b = &w->blocks[i];
    pal_pass own = *ps;
    own.variance = NULL;
    pal_mixer_forward(&own, &b->beside.plan, &w->layers->beside[i], &b->beside.mixer, &b->beside.work, w->x, h);
}

/* h: the stream that the mixers add to; NULL: only what backward reads. */
static void mixers_forward(pal_work *w, const pal_pass *ps, int i, float *h) {
    pal_block *b = &w->blocks[i];
    const bool watched = w->watching && ps->memory;
    pal_pass own = *ps;
    pal_watched watch = { .work = w, .pass = ps, .block = i };
    const pal_pass *first = ps;
    if (watched) own.before_memory = pal_watch_before, own.before_memory_user = &watch, first = &own;
    if (b->mixers) pal_mixer_forward(first, &b->plan, &w->layers->layers[i], &b->mixer, &b->mixer_work, w->x, h);
    if (watched) pal_watch_after(&watch); /* while the mixer's workspace is not yet the MLP's */
    if (b->mixers > 1) beside_forward(w, ps, i, h);
}

/* again: the second time, when layers are recomputed; what backward does not read is left out. */
static void block_forward(pal_work *w, const pal_pass *ps, int i, bool again) {
    pal_block *b = &w->blocks[i];
    const pal_layer *layer = &w->layers->layers[i];
    const bool mlp = b->mlp_plan.form != PAL_MLP_NONE, both = mlp && b->mixers;
    float *next = i + 1 < w->model->config.layers ? w->blocks[i + 1].h : w->h;
    float *middle = both ? b->middle : again ? NULL : next;
    norm_forward(w, ps, layer->w[PAL_W_NORM], b->h, PAL_T_NORM);
    if (middle) carry(w, ps, middle, b->h);
    mixers_forward(w, ps, i, middle);
    if (!mlp) return;
    if (both) {
        norm_forward(w, ps, layer->w[PAL_W_MLP_NORM], middle, PAL_T_NORM);
        if (!again) carry(w, ps, next, middle);
    }
    pal_mlp_forward(ps, &b->mlp_plan, &b->mlp, &w->mlp_work, w->x, again ? NULL : next);
}

void pal_stack_block(pal_work *w, const pal_pass *ps, int i) { block_forward(w, ps, i, false); }

void pal_stack_use_states(pal_work *w, pal_pass *ps, pal_state *const *states, int i) {
    const pal_pages *pages = w->model->pages;
    const bool attends = pages && pages->of[i].strips;
    ps->paged = attends && !w->cx->device ? w->paged : NULL;
    ps->caches = attends && w->cx->device ? w->caches : NULL;
    ps->room = states[0]->context;
    for (int n = 0; n < ps->sequences; n++) {
        w->memory[n] = states[n]->data + states[n]->memory_at[i];
        w->conv_window[n] = states[n]->data + states[n]->conv_window_at[i];
        if (ps->caches) w->caches[n] = pal_state_cache(states[n], i, 0);
        if (ps->paged) w->paged[n] = (pal_paged){ states[n]->pages, pages->of[i].at, pages->type };
    }
    ps->memory = w->memory;
    ps->conv_window = w->conv_window;
}

/* Positions of a pass with a variance: the last of each sequence, or all of a trial. */
static int judged(const pal_pass *ps) { return ps->apart ? ps->tokens : ps->sequences; }

/* Adds layer i's mean output variance at each of them. */
static void add_variance(pal_work *w, const pal_pass *ps, const pal_block *b) {
    const pal_mixer_plan *m = &b->plan;
    if (!pal_block_remembers(b) || !m->rule->has_variance) return;
    for (int n = 0; n < judged(ps); n++) {
        enum { PIECE = 256 };
        const size_t last = (size_t)(ps->cu_seqlens && !ps->apart ? ps->cu_seqlens[n + 1] - 1 : n),
                     values = (size_t)m->values;
        double sum = 0;
        for (size_t i = 0; i < values; i += PIECE) {
            float row[PIECE];
            const size_t here = values - i < PIECE ? values - i : PIECE;
            pal_copy_floats(ps->cx, row, w->variance + last * values + i, here);
            for (size_t k = 0; k < here; k++) sum += (double)row[k];
        }
        w->mean_variance[n] += sum / (double)values;
    }
    w->variance_layers++;
}

static void forward_one(pal_work *w, pal_pass *ps, pal_state *const *states, int i) {
    if (states) pal_stack_use_states(w, ps, states, i);
    if (states && ps->apart) pal_trial_block(w, ps, states[0], i);
    else block_forward(w, ps, i, false);
    if (ps->variance) add_variance(w, ps, &w->blocks[i]);
}

/* Nothing was added to the variances yet. */
static void begin_variance(pal_work *w, const pal_pass *ps) {
    w->variance_layers = 0;
    for (int n = 0; ps->variance && n < judged(ps); n++) w->mean_variance[n] = 0;
}

void pal_stack_forward(pal_work *w, pal_pass *ps, pal_state *const *states) {
    begin_variance(w, ps);
    for (int i = 0; i < w->model->config.layers; i++) forward_one(w, ps, states, i);
}

static void mlp_backward(pal_work *w, const pal_pass *ps, int i) {
    pal_block *b = &w->blocks[i];
    const pal_layer *layer = &w->layers->layers[i];
    const pal_weight_id norm = b->mixers ? PAL_W_MLP_NORM : PAL_W_NORM;
    const float *h = b->mixers ? b->middle : b->h;
    norm_forward(w, ps, layer->w[norm], h, PAL_T_BACKWARD + PAL_T_NORM);
    pal_mlp_backward(ps, &b->mlp_plan, &b->mlp, &w->mlp_work, w->x, w->dh, w->dx);
    norm_backward(w, ps, layer->w[norm], layer->d[norm], h);
}

static void block_backward(pal_work *w, const pal_pass *ps, int i) {
    pal_block *b = &w->blocks[i];
    const pal_layer *layer = &w->layers->layers[i];
    if (w->options.recompute) block_forward(w, ps, i, true);
    if (b->mlp_plan.form) mlp_backward(w, ps, i);
    if (!b->mixers) return;
    norm_forward(w, ps, layer->w[PAL_W_NORM], b->h, PAL_T_BACKWARD + PAL_T_NORM);
    if (b->mixers > 1)
        pal_mixer_backward(ps, &b->beside.plan, &w->layers->beside[i], &b->beside.mixer, &b->beside.work, w->x, w->dh,
                           PAL_OVERWRITE, w->dx);
    pal_mixer_backward(ps, &b->plan, layer, &b->mixer, &b->mixer_work, w->x, w->dh,
                       b->mixers > 1 ? PAL_ADD : PAL_OVERWRITE, w->dx);
    norm_backward(w, ps, layer->w[PAL_W_NORM], layer->d[PAL_W_NORM], b->h);
}

/* Weights lie in the order in which forward meets them, a layer's norm first. */
static void tell_learned(const pal_work *w, const float *first) {
    if (w->learned && first) w->learned(w->learned_user, (size_t)(first - w->model->gradients));
}

void pal_stack_backward(pal_work *w, pal_pass *ps, const pal_state *const *before) {
    if (before) ps->before = w->before;
    for (int i = w->model->config.layers - 1; i >= w->model->lowest; i--) {
        for (int n = 0; before && n < ps->sequences; n++)
            w->before[n] = before[n] ? before[n]->data + before[n]->conv_window_at[i] : NULL;
        block_backward(w, ps, i);
        tell_learned(w, w->layers->layers[i].d[PAL_W_NORM]);
    }
}

void pal_work_on_learned(pal_work *work, pal_learned_fn *fn, void *user) {
    work->learned = fn;
    work->learned_user = user;
}

static pal_status check_ids(const pal_model *m, const int32_t *ids, int tokens, pal_error *err) {
    if (!ids) return pal_fail(err, PAL_E_ARGUMENT, "token ids are NULL");
    for (int t = 0; t < tokens; t++)
        if (ids[t] < 0 || ids[t] >= m->config.vocab)
            return pal_fail(err, PAL_E_ARGUMENT, "token %d is id %d, the vocabulary has 0 to %d", t, (int)ids[t],
                            m->config.vocab - 1);
    return PAL_OK;
}

static pal_status check_batch(const pal_model *m, const pal_work *w, const pal_batch *b, pal_error *err) {
    if (w->model != m) return pal_fail(err, PAL_E_ARGUMENT, "the workspace was made for another model");
    if (b->tokens < 1 || b->tokens > w->options.tokens || b->sequences < 1 || b->sequences > w->options.sequences)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a batch of %d tokens in %d sequences: the workspace was made for %d in %d", b->tokens,
                        b->sequences, w->options.tokens, w->options.sequences);
    if (!b->cu_seqlens || b->cu_seqlens[0] != 0) return pal_fail(err, PAL_E_ARGUMENT, "cu_seqlens must start with 0");
    for (int n = 0; n < b->sequences; n++)
        if (b->cu_seqlens[n + 1] <= b->cu_seqlens[n])
            return pal_fail(err, PAL_E_ARGUMENT, "cu_seqlens must increase; entry %d is %d after %d", n + 1,
                            b->cu_seqlens[n + 1], b->cu_seqlens[n]);
    if (b->cu_seqlens[b->sequences] != b->tokens)
        return pal_fail(err, PAL_E_ARGUMENT, "cu_seqlens ends at %d, expected the number of tokens, %d",
                        b->cu_seqlens[b->sequences], b->tokens);
    return check_ids(m, b->ids, b->tokens, err);
}

static pal_status check_rows(const pal_batch *b, const int *at, int n, const float *logits, pal_error *err) {
    if (n < 0 || (!at && n > b->tokens))
        return pal_fail(err, PAL_E_ARGUMENT, "logits of %d positions: the batch has %d", n, b->tokens);
    if (n && !logits) return pal_fail(err, PAL_E_ARGUMENT, "logits are NULL");
    for (int i = 0; at && i < n; i++)
        if (at[i] < 0 || at[i] >= b->tokens)
            return pal_fail(err, PAL_E_ARGUMENT, "logits of position %d: the batch has %d", at[i], b->tokens);
    return PAL_OK;
}

static float embedding_scale(const pal_model *m) {
    return m->config.embedding_scale != 0 ? (float)m->config.embedding_scale : 1;
}

static pal_pass enter(pal_work *w, const pal_batch *b) {
    pal_pass ps = pal_work_pass(w, b->tokens, b->sequences, b->cu_seqlens);
    pal_embedding_forward(&ps, &w->layers->outer.m[PAL_W_EMBEDDING], embedding_scale(w->model), b->ids, w->blocks[0].h);
    return ps;
}

pal_status pal_stack_enter(pal_work *w, const pal_model *m, const pal_batch *b, pal_pass *pass, pal_error *err) {
    const pal_status st = check_batch(m, w, b, err);
    if (!st) *pass = enter(w, b);
    return st;
}

pal_status pal_model_forward(const pal_model *m, pal_work *w, const pal_batch *b, const int *at, int n, float *logits,
                             pal_error *err) {
    pal_status st;
    if ((st = check_batch(m, w, b, err)) || (st = check_rows(b, at, n, logits, err))) return st;
    pal_pass ps = enter(w, b);
    pal_stack_forward(w, &ps, NULL);
    pal_head_logits(&ps, &w->layers->outer, &w->head, w->h, at, n, logits);
    return pal_device_check(w->cx, err);
}

/* Lists the positions that have a target. */
static pal_status find_targets(const pal_model *m, pal_work *w, const pal_batch *b, int *count, pal_error *err) {
    *count = 0;
    if (!b->targets) return pal_fail(err, PAL_E_ARGUMENT, "targets are NULL");
    for (int t = 0; t < b->tokens; t++) {
        if (b->targets[t] == PAL_IGNORE) continue;
        if (b->targets[t] < 0 || b->targets[t] >= m->config.vocab)
            return pal_fail(err, PAL_E_ARGUMENT, "the target of token %d is id %d, the vocabulary has 0 to %d", t,
                            (int)b->targets[t], m->config.vocab - 1);
        w->rows[(*count)++] = t;
    }
    return PAL_OK;
}

pal_status pal_model_loss(const pal_model *m, pal_work *w, const pal_batch *b, pal_loss *loss, unsigned char *correct,
                          pal_error *err) {
    pal_status st;
    int n;
    if ((st = check_batch(m, w, b, err)) || (st = find_targets(m, w, b, &n, err))) return st;
    if (!w->head.nll) return pal_fail(err, PAL_E_ARGUMENT, "this workspace was not made for a loss");
    *loss = (pal_loss){ 0 };
    if (correct) memset(correct, 0, (size_t)b->tokens);
    pal_pass ps = enter(w, b);
    pal_stack_forward(w, &ps, NULL);
    pal_head_loss(&ps, &w->layers->outer, &w->head, w->h, w->rows, n, b->targets, 0, loss, correct, NULL, NULL);
    return pal_device_check(w->cx, err);
}

static pal_status learn(pal_model *m, pal_work *w, const pal_state *const *before, pal_state *const *after,
                        const pal_batch *b, float scale, pal_loss *loss, unsigned char *correct, pal_error *err) {
    pal_status st;
    int n;
    if ((st = check_batch(m, w, b, err)) || (st = find_targets(m, w, b, &n, err))) return st;
    if (!w->options.training) return pal_fail(err, PAL_E_ARGUMENT, "this workspace was not made for training");
    *loss = (pal_loss){ 0 };
    if (correct) memset(correct, 0, (size_t)b->tokens);
    pal_pass ps = enter(w, b);
    pal_stack_forward(w, &ps, after);
    pal_clear_floats(w->cx, w->dh, (size_t)b->tokens * (size_t)m->config.hidden);
    pal_head_loss(&ps, &w->layers->outer, &w->head, w->h, w->rows, n, b->targets, scale, loss, correct, NULL, w->dh);
    tell_learned(w, m->outer.d[PAL_W_FINAL_NORM]);
    pal_stack_backward(w, &ps, before);
    if (m->outer.d[PAL_W_EMBEDDING])
        pal_embedding_backward(&ps, m->outer.d[PAL_W_EMBEDDING], m->config.hidden, embedding_scale(m), b->ids, w->dh);
    tell_learned(w, m->gradients);
    return pal_device_check(w->cx, err);
}

pal_status pal_model_learn(pal_model *m, pal_work *w, const pal_batch *b, float scale, pal_loss *loss,
                           unsigned char *correct, pal_error *err) {
    return learn(m, w, NULL, NULL, b, scale, loss, correct, err);
}

pal_status pal_model_learn_carried(pal_model *m, pal_work *w, const pal_state *const *before, pal_state *const *after,
                                   const pal_batch *b, float scale, pal_loss *loss, pal_error *err) {
    pal_status st = PAL_OK;
    if (pal_model_grows(&m->config))
        return pal_fail(err, PAL_E_ARGUMENT, "attention has no memory of fixed size to carry");
    if (w->options.recompute)
        return pal_fail(err, PAL_E_ARGUMENT, "carried memories do not go with recomputed activations");
    for (int i = 0; i < b->sequences && !st; i++)
        if (before[i]) st = pal_state_copy(after[i], before[i], err);
        else pal_state_reset(after[i]);
    if (!st) st = learn(m, w, before, after, b, scale, loss, NULL, err);
    for (int i = 0; !st && i < b->sequences; i++) after[i]->position += b->cu_seqlens[i + 1] - b->cu_seqlens[i];
    return st;
}

void pal_shift_targets(int32_t *targets, const int32_t *ids, int tokens) {
    for (int t = 0; t + 1 < tokens; t++) targets[t] = ids[t + 1];
    if (tokens > 0) targets[tokens - 1] = PAL_IGNORE;
}

void pal_stack_continue(pal_work *w, pal_pass *ps, pal_state *const *states) {
    for (int i = 0; i < ps->sequences; i++) {
        w->past[i] = (int)states[i]->position;
        pal_work_reach(w, w->past[i] + (ps->cu_seqlens ? ps->cu_seqlens[i + 1] - ps->cu_seqlens[i] : 1));
    }
    ps->past = w->past;
}

static pal_pass remember(pal_work *w, pal_state *const *states, const bool *borrowed, const pal_batch *b) {
    pal_pass ps = enter(w, b);
    ps.variance = w->variance;
    ps.borrowed = borrowed;
    pal_stack_continue(w, &ps, states);
    pal_stack_forward(w, &ps, states);
    for (int i = 0; i < b->sequences; i++)
        if (!borrowed || !borrowed[i])
            states[i]->position += b->cu_seqlens ? b->cu_seqlens[i + 1] - b->cu_seqlens[i] : 1;
    return ps;
}

static void run_states(pal_work *w, pal_state *const *states, const pal_batch *b, const int *at, int n, float *logits) {
    const pal_pass ps = remember(w, states, NULL, b);
    if (n) pal_head_logits(&ps, &w->layers->outer, &w->head, w->h, at, n, logits);
}

static pal_status check_states(const pal_model *m, const pal_work *w, pal_state *const *states, const bool *borrowed,
                               int n, const int *cu_seqlens, pal_error *err) {
    pal_status st;
    if (w->options.training) return pal_fail(err, PAL_E_ARGUMENT, "states do not go with a workspace for training");
    if (!states) return pal_fail(err, PAL_E_ARGUMENT, "states are NULL");
    if ((st = pal_states_check(m, states, borrowed, n, cu_seqlens, err))) return st;
    for (int i = 0; i < n; i++) {
        if (states[i]->context != states[0]->context)
            return pal_fail(err, PAL_E_ARGUMENT, "states %d and 0 were made for different contexts", i);
        if (w->rotary && states[i]->context > w->positions)
            return pal_fail(err, PAL_E_ARGUMENT, "state %d was made for %d tokens of context, the workspace for %d", i,
                            states[i]->context, w->positions);
    }
    for (int i = 0; i < n; i++)
        if ((st = pal_state_make_room(states[i], cu_seqlens ? cu_seqlens[i + 1] - cu_seqlens[i] : 1, err))) return st;
    return PAL_OK;
}

pal_status pal_model_step(const pal_model *m, pal_work *w, pal_state *const *states, int n, const int32_t *ids,
                          float *logits, pal_error *err) {
    pal_status st;
    if (w->model != m) return pal_fail(err, PAL_E_ARGUMENT, "the workspace was made for another model");
    if (n < 1 || n > w->options.sequences)
        return pal_fail(err, PAL_E_ARGUMENT, "a step of %d sequences: the workspace was made for %d", n,
                        w->options.sequences);
    if ((st = check_ids(m, ids, n, err)) || (st = check_states(m, w, states, NULL, n, NULL, err))) return st;
    const pal_batch batch = { .tokens = n, .sequences = n, .ids = ids };
    run_states(w, states, &batch, NULL, logits ? n : 0, logits);
    return pal_device_check(w->cx, err);
}

pal_status pal_model_continue(const pal_model *m, pal_work *w, pal_state *const *states, const pal_batch *b,
                              const int *at, int n, float *logits, pal_error *err) {
    pal_status st;
    if ((st = check_batch(m, w, b, err)) || (st = check_rows(b, at, n, logits, err))) return st;
    if ((st = check_states(m, w, states, NULL, b->sequences, b->cu_seqlens, err))) return st;
    run_states(w, states, b, at, n, logits);
    return pal_device_check(w->cx, err);
}

pal_status pal_piece_begin(pal_piece *p, const pal_model *m, pal_work *w, pal_error *err) {
    const int cu[2] = { 0, p->tokens };
    const pal_batch b = { .tokens = p->tokens, .sequences = 1, .ids = p->ids, .cu_seqlens = cu };
    const pal_status st = check_batch(m, w, &b, err);
    p->block = 0;
    return st ? st : check_states(m, w, &p->state, NULL, 1, cu, err);
}

bool pal_piece_go_on(pal_piece *p, pal_work *w, double seconds, float *logits) {
    const double start = pal_seconds();
    const int cu[2] = { 0, p->tokens }, layers = w->model->config.layers;
    const pal_batch b = { .tokens = p->tokens, .sequences = 1, .ids = p->ids, .cu_seqlens = cu };
    pal_pass ps = p->block ? pal_work_pass(w, p->tokens, 1, cu) : enter(w, &b);
    if (p->block) carry(w, &ps, p->block < layers ? w->blocks[p->block].h : w->h, p->stream);
    ps.variance = w->variance; /* only those who watch see it, and they read in one go */
    begin_variance(w, &ps);
    pal_stack_continue(w, &ps, &p->state);
    while (p->block < layers) {
        forward_one(w, &ps, &p->state, p->block++);
        if ((p->block < layers || logits) && !(pal_seconds() - start < seconds)) {
            carry(w, &ps, p->stream, p->block < layers ? w->blocks[p->block].h : w->h);
            return false;
        }
    }
    p->state->position += p->tokens;
    if (logits) pal_head_logits(&ps, &w->layers->outer, &w->head, w->h, NULL, p->tokens, logits);
    return true;
}

/* Whether a batch can be scored after these states. */
static pal_status check_scoring(const pal_model *m, const pal_work *w, pal_state *const *states, const bool *borrowed,
                                const pal_batch *b, pal_error *err) {
    pal_status st;
    if ((st = check_batch(m, w, b, err)) ||
        (st = check_states(m, w, states, borrowed, b->sequences, b->cu_seqlens, err)))
        return st;
    return w->head.nll ? PAL_OK : pal_fail(err, PAL_E_ARGUMENT, "this workspace was not made for a loss");
}

pal_status pal_model_score(const pal_model *m, pal_work *w, pal_state *const *states, const pal_batch *b, float *nll,
                           unsigned char *correct, pal_loss *loss, pal_error *err) {
    pal_status st;
    int n;
    if ((st = check_scoring(m, w, states, NULL, b, err)) || (st = find_targets(m, w, b, &n, err))) return st;
    if (!nll) return pal_fail(err, PAL_E_ARGUMENT, "there is no place for the losses");
    *loss = (pal_loss){ 0 };
    memset(nll, 0, (size_t)b->tokens * sizeof *nll);
    if (correct) memset(correct, 0, (size_t)b->tokens);
    const pal_pass ps = remember(w, states, NULL, b);
    pal_head_loss(&ps, &w->layers->outer, &w->head, w->h, w->rows, n, b->targets, 0, loss, correct, nll, NULL);
    return pal_device_check(w->cx, err);
}

pal_status pal_model_score_rows(const pal_model *m, pal_work *w, pal_state *const *states, const bool *borrowed,
                                const pal_batch *b, const int *at, const int32_t *target, int n, float *nll,
                                unsigned char *correct, pal_error *err) {
    const pal_status st = check_scoring(m, w, states, borrowed, b, err);
    if (st) return st;
    const pal_pass ps = remember(w, states, borrowed, b);
    pal_head_score(&ps, &w->layers->outer, &w->head, w->h, at, target, n, nll, correct);
    return pal_device_check(w->cx, err);
}

pal_status pal_model_prefill(const pal_model *m, pal_work *w, pal_state *state, const int32_t *ids, int tokens,
                             float *logits, pal_error *err) {
    pal_status st;
    const int all[2] = { 0, tokens };
    if (w->model != m) return pal_fail(err, PAL_E_ARGUMENT, "the workspace was made for another model");
    if (tokens < 1) return pal_fail(err, PAL_E_ARGUMENT, "a prompt of %d tokens: expected at least 1", tokens);
    if ((st = check_ids(m, ids, tokens, err)) || (st = check_states(m, w, &state, NULL, 1, all, err))) return st;
    for (int done = 0; done < tokens;) {
        const int piece = tokens - done < w->options.tokens ? tokens - done : w->options.tokens;
        const bool last = done + piece == tokens;
        const int at = piece - 1;
        w->cu[0] = 0;
        w->cu[1] = piece;
        const pal_batch batch = { .tokens = piece, .sequences = 1, .ids = ids + done, .cu_seqlens = w->cu };
        run_states(w, &state, &batch, &at, last && logits ? 1 : 0, logits);
        done += piece;
        if ((st = pal_device_check(w->cx, err))) return st;
    }
    return PAL_OK;
}
