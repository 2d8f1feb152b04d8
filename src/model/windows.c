/* SPDX-License-Identifier: MIT */
#include "model/windows.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/state.h"
#include "model/work.h"

enum { PIECE = 512 }; /* tokens that run at once */

static int rising(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pal_median(double *x, size_t n) {
    qsort(x, n, sizeof *x, rising);
    return n % 2 || x[n / 2 - 1] == x[n / 2] ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* What layer i kept of `tokens` tokens, as medians over heads. */
static pal_status take_layer(pal_windows *out, const pal_work *w, int i, int done, int tokens, double *heads,
                             pal_error *err) {
    const pal_block *b = &w->blocks[i];
    double *n_t = out->n_t + (size_t)i * (size_t)out->tokens + (size_t)done;
    for (int t = 0; t < tokens; t++) {
        n_t[t] = NAN;
        if (!pal_block_forgets(b)) continue;
        for (int h = 0; h < b->plan.heads; h++) {
            heads[h] = pal_window((double)pal_block_decay(b, t, h));
            if (isnan(heads[h]))
                return pal_fail(err, PAL_E_FORMAT,
                                "the memory window of layer %d, head %d is not a number at token %d; the model's "
                                "weights may be damaged",
                                i, h, done + t);
        }
        n_t[t] = pal_median(heads, (size_t)b->plan.heads);
    }
    return PAL_OK;
}

static pal_status run(pal_windows *out, pal_work *w, pal_state *state, const int32_t *ids, double *heads,
                      pal_go_on_fn *go_on, void *user, pal_error *err) {
    pal_status st;
    for (int done = 0; done < out->tokens; done += PIECE) {
        const int piece = out->tokens - done < PIECE ? out->tokens - done : PIECE;
        const int cu[2] = { 0, piece };
        const pal_batch batch = { .tokens = piece, .sequences = 1, .ids = ids + done, .cu_seqlens = cu };
        pal_pass ps;
        if (go_on && !go_on(user, (size_t)done, (size_t)out->tokens))
            return pal_fail(err, PAL_STOPPED, "stopped while memory windows were measured");
        if ((st = pal_stack_enter(w, w->model, &batch, &ps, err))) return st;
        if ((st = pal_state_make_room(state, piece, err))) return st;
        pal_stack_continue(w, &ps, &state);
        for (int i = 0; i < out->layers; i++) {
            pal_stack_use_states(w, &ps, &state, i);
            pal_stack_block(w, &ps, i);
            if ((st = take_layer(out, w, i, done, piece, heads, err))) return st;
        }
        state->position += piece;
    }
    return PAL_OK;
}

/* Insertion: layers are few, and equal medians keep their order. */
static void rank(pal_windows *out) {
    for (int i = 0; i < out->layers; i++) {
        const double m = out->median[i];
        int at = i;
        for (; at > 0 && !isnan(m) && !(out->median[out->order[at - 1]] >= m); at--)
            out->order[at] = out->order[at - 1];
        out->order[at] = i;
    }
}

static bool has_memory(const pal_model_config *c) {
    for (int i = 0; i < c->layers; i++)
        if (pal_model_memory(c, i)) return true;
    return false;
}

/* Of the first layer that has a memory. */
static const char *rule_of(const pal_model_config *c) {
    int i = 0;
    while (i + 1 < c->layers && !pal_model_memory(c, i)) i++;
    return pal_model_layer_rule(c, i);
}

pal_status pal_windows_measure(pal_windows *out, const pal_model *model, const pal_context *cx, const int32_t *ids,
                               int tokens, pal_go_on_fn *go_on, void *user, pal_error *err) {
    const pal_model_config *c = pal_model_config_of(model);
    int heads;
    pal_model_widest(c, &heads, NULL, NULL);
    const size_t layers = (size_t)c->layers, larger = (size_t)(tokens > heads ? tokens : heads);
    pal_work *work = NULL;
    pal_state *state = NULL;
    void *numbers = NULL;
    pal_status st;
    *out = (pal_windows){ .layers = c->layers, .tokens = tokens };
    if (model->on) return pal_fail(err, PAL_E_UNSUPPORTED, "memory windows are not measured on a device");
    if (!has_memory(c))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "no layer of this model has a memory that forgets: there is no window to measure");
    if (tokens < 1) return pal_fail(err, PAL_E_ARGUMENT, "memory windows of %d tokens: expected at least 1", tokens);
    st = pal_alloc_named((void **)&out->n_t, layers * (size_t)tokens, sizeof *out->n_t, "memory windows", err);
    if (!st) st = pal_alloc_named((void **)&out->median, layers, sizeof *out->median, "memory windows", err);
    if (!st) st = pal_alloc_named((void **)&out->order, layers, sizeof *out->order, "memory windows", err);
    if (!st) st = pal_alloc_named(&numbers, larger, sizeof(double), "memory windows", err);
    if (!st)
        st = pal_work_new(
            &work, model, cx,
            &(pal_work_options){ .tokens = tokens < PIECE ? tokens : PIECE, .sequences = 1, .context = tokens }, err);
    if (!st) st = pal_state_new(&state, model, tokens, err);
    if (!st) st = run(out, work, state, ids, numbers, go_on, user, err);
    for (size_t i = 0; i < layers && !st; i++) {
        const double *n_t = out->n_t + i * (size_t)tokens;
        memcpy(numbers, n_t, (size_t)tokens * sizeof *n_t);
        out->median[i] = isnan(n_t[0]) ? NAN : pal_median(numbers, (size_t)tokens);
    }
    if (!st) rank(out);
    if (!st && isnan(out->median[out->order[0]]))
        st = pal_fail(err, PAL_E_ARGUMENT, "rule '%s' has no memory window: it forgets nothing by itself", rule_of(c));
    pal_state_free(state);
    pal_work_free(work);
    pal_free(numbers);
    if (st) pal_windows_free(out);
    return st;
}

void pal_windows_free(pal_windows *windows) {
    pal_free(windows->n_t), pal_free(windows->median), pal_free(windows->order);
    *windows = (pal_windows){ 0 };
}
