/* SPDX-License-Identifier: MIT */
#include "support/memory_case.h"

#include <assert.h>
#include <math.h>

#include "base/alloc.h"

const memory_field memory_fields[MEMORY_INPUTS] = {
#define ROWS(field, lo, hi) \
    { #field, offsetof(pal_memory_inputs, field), offsetof(pal_memory_gradients, field), false, lo, hi }
#define PARAMETER(field, lo, hi) \
    { #field, offsetof(pal_memory_inputs, field), offsetof(pal_memory_gradients, field), true, lo, hi }
    [MEMORY_Q] = ROWS(q, 0, 0),
    [MEMORY_K] = ROWS(k, 0, 0),
    [MEMORY_V] = ROWS(v, 0, 0),
    [MEMORY_B] = ROWS(b, 0, 1),
    [MEMORY_BETA] = ROWS(beta, 0, 1),
    [MEMORY_DT] = ROWS(dt, 0, 0.7),
    [MEMORY_G] = ROWS(g, -0.7, 0),
    [MEMORY_A] = PARAMETER(A, 0.2, 1),
    [MEMORY_IP] = PARAMETER(Ip, 0.5, 2),
    [MEMORY_LAM] = PARAMETER(lam, 0.5, 2),
    [MEMORY_GK] = ROWS(gk, -0.7, 0),
    [MEMORY_P] = ROWS(p, 0, 0),
    [MEMORY_ERASE] = ROWS(erase, 0, 1),
    [MEMORY_WRITE] = ROWS(write, 0, 1),
    [MEMORY_GP] = ROWS(gp, -0.7, 0),
    [MEMORY_BETAP] = ROWS(betap, 0, 1),
    [MEMORY_NOISE] = ROWS(noise, 0, 0.5),
    [MEMORY_NOISEK] = ROWS(noisek, 0, 0.5),
    [MEMORY_R] = ROWS(r, 0.3, 1),
    [MEMORY_KEEP] = PARAMETER(keep, 0.5, 1),
    [MEMORY_DRIFT] = PARAMETER(drift, 0, 0.3),
    [MEMORY_LAG] = ROWS(lag, 0, 1),
    [MEMORY_TURN] = ROWS(turn, -2, 2),
};
static_assert((int)MEMORY_INPUTS == (int)PAL_MEMORY_INPUTS, "an input is missing here");

static bool is_key(int input) { return input == MEMORY_K || input == MEMORY_P; }
static bool is_log_decay(int input) {
    return input == MEMORY_DT || input == MEMORY_G || input == MEMORY_GK || input == MEMORY_GP;
}

int memory_input_index(unsigned bit) {
    int i = 0;
    while (bit >>= 1) i++;
    return i;
}

static size_t at_least_one(size_t n) { return n ? n : 1; }
float *memory_floats(size_t n) {
    float *x = pal_alloc(at_least_one(n), sizeof *x);
    assert_non_null(x);
    return x;
}

static const pal_memory_rule *rule_of(const memory_subject *subject) {
    const pal_memory_rule *rule = pal_memory_find(subject->rule);
    if (!rule) fail_msg("no rule '%s'", subject->rule);
    return rule;
}

memory_case *memory_case_of_shape(const memory_subject *subject, int n, const int *lengths, int heads, int key_heads,
                                  int dk, int dv) {
    memory_case *c = pal_alloc(1, sizeof *c);
    assert_non_null(c);
    c->subject = subject;
    c->rule = rule_of(subject);
    c->cu = pal_alloc((size_t)n + 1, sizeof *c->cu);
    for (int i = 0; i < n; i++) c->cu[i + 1] = c->cu[i] + lengths[i];
    c->shape = (pal_memory_shape){ .sequences = n,
                                   .tokens = c->cu[n],
                                   .cu_seqlens = c->cu,
                                   .heads = heads,
                                   .key_heads = key_heads,
                                   .dk = dk,
                                   .dv = dv,
                                   .context = c->cu[n] };
    c->scale = (float)(1 / sqrt(dk));
    c->mesa_tolerance = subject->mesa_tolerance;
    for (int i = 0; i < MEMORY_INPUTS; i++) {
        if (!(c->rule->inputs & 1u << i)) continue;
        const size_t numbers = (size_t)pal_memory_channels(c->rule, &c->shape, 1u << i);
        c->channels[i] = memory_fields[i].parameter ? 0 : numbers;
        c->count[i] = memory_fields[i].parameter ? numbers : (size_t)c->cu[n] * numbers;
        c->input[i] = memory_floats(c->count[i]);
    }
    const size_t outputs = (size_t)c->cu[n] * (size_t)heads * (size_t)dv;
    c->dy = memory_floats(outputs);
    if (c->rule->has_variance) c->dy_var = memory_floats(outputs);
    for (int p = 0; p < 2 && c->rule->parts[p]; p++) {
        c->part[p] = c->rule->part_floats(&c->shape, p);
        c->dfinal[p] = memory_floats((size_t)n * c->part[p]);
    }
    return c;
}

static void normalise_rows(float *x, size_t count, int width, pal_rng *rng) {
    for (size_t r = 0; r + (size_t)width <= count; r += (size_t)width) {
        double norm = 1e-12;
        for (int j = 0; j < width; j++) norm += (double)x[r + (size_t)j] * (double)x[r + (size_t)j];
        const double factor = (0.6 + 0.6 * pal_rng_uniform(rng)) / sqrt(norm);
        for (int j = 0; j < width; j++) x[r + (size_t)j] *= (float)factor;
    }
}

memory_case *memory_case_new(const memory_subject *subject, int n, const int *lengths, int heads, int key_heads, int dk,
                             int dv, bool initial, double forgetting, pal_rng *rng) {
    memory_case *c = memory_case_of_shape(subject, n, lengths, heads, key_heads, dk, dv);
    const size_t outputs = (size_t)c->shape.tokens * (size_t)heads * (size_t)dv;
    for (int i = 0; i < MEMORY_INPUTS; i++) {
        if (!c->input[i]) continue;
        const double stretch = is_log_decay(i) ? forgetting : 1;
        if (i <= MEMORY_V || i == MEMORY_P) test_fill_normal(c->input[i], c->count[i], rng, 1);
        else test_fill(c->input[i], c->count[i], rng, memory_fields[i].lo * stretch, memory_fields[i].hi * stretch);
        if (is_key(i)) normalise_rows(c->input[i], c->count[i], dk, rng);
    }
    test_fill_normal(c->dy, outputs, rng, 1);
    if (c->dy_var) test_fill_normal(c->dy_var, outputs, rng, 1);
    for (int p = 0; p < 2 && c->part[p]; p++) test_fill_normal(c->dfinal[p], (size_t)n * c->part[p], rng, 1);
    for (int p = 0; p < 2 && initial && !subject->cache && c->part[p]; p++) {
        c->initial[p] = memory_floats((size_t)n * c->part[p]);
        test_fill_normal(c->initial[p], (size_t)n * c->part[p], rng, 1);
    }
    if (c->initial[0] && subject->fill_initial) subject->fill_initial(c, rng);
    return c;
}

int memory_longest(const memory_case *c) {
    int most = 0;
    for (int n = 0; n < c->shape.sequences; n++)
        if (c->cu[n + 1] - c->cu[n] > most) most = c->cu[n + 1] - c->cu[n];
    return most;
}

void memory_case_free(memory_case *c) {
    for (int i = 0; i < MEMORY_INPUTS; i++) pal_free(c->input[i]);
    for (int p = 0; p < 2; p++) pal_free(c->initial[p]), pal_free(c->dfinal[p]);
    pal_free(c->dy);
    pal_free(c->dy_var);
    pal_free(c->cu);
    pal_free(c);
}

void memory_result_free(memory_result *r) {
    pal_free(r->y);
    pal_free(r->y_var);
    for (int i = 0; i < MEMORY_INPUTS; i++) pal_free(r->grad[i]);
    for (int p = 0; p < 2; p++) pal_free(r->final[p]), pal_free(r->dinitial[p]);
    pal_free(r);
}

float *memory_take(memory_buffers *set, size_t n) {
    assert_true(set->used < 64);
    n = at_least_one(n);
    float *x = test_guarded(n);
    set->block[set->used].x = x;
    set->block[set->used++].n = n;
    return x;
}
void *memory_take_scratch(memory_buffers *set, size_t bytes) {
    return bytes ? memory_take(set, (bytes + 63) / 64 * 16) : NULL;
}
void memory_release(memory_buffers *set) {
    while (set->used--) test_guarded_free(set->block[set->used].x, set->block[set->used].n);
}

static size_t strided_floats(int rows, size_t channels, size_t gap) { return (size_t)rows * (channels + gap) - gap; }

pal_const_view memory_guard_rows(memory_buffers *set, const float *dense, int rows, size_t channels, size_t gap) {
    float *x = memory_take(set, strided_floats(rows, channels, gap));
    for (size_t t = 0; t < (size_t)rows; t++)
        memcpy(x + t * (channels + gap), dense + t * channels, channels * sizeof *x);
    return (pal_const_view){ x, channels + gap };
}
pal_view memory_guard_output(memory_buffers *set, int rows, size_t channels, size_t gap) {
    return (pal_view){ memory_take(set, strided_floats(rows, channels, gap)), channels + gap };
}
/* Dense copy of an output; its gap must still be NaN. */
static float *dense_of(const char *what, pal_view view, int rows, size_t channels) {
    float *x = memory_floats((size_t)rows * channels);
    for (size_t t = 0; t < (size_t)rows; t++) {
        memcpy(x + t * channels, view.data + t * view.stride, channels * sizeof *x);
        for (size_t c = channels; t + 1 < (size_t)rows && c < view.stride; c++)
            if (!isnan(view.data[t * view.stride + c])) fail_msg("%s: wrote between rows %zu and %zu", what, t, t + 1);
    }
    return x;
}

void memory_set_inputs(pal_memory_run *run, const memory_case *c, memory_buffers *set, size_t gap) {
    for (int i = 0; i < MEMORY_INPUTS; i++) {
        if (!c->input[i]) continue;
        void *field = (char *)&run->in + memory_fields[i].view;
        if (memory_fields[i].parameter) {
            float *x = memory_take(set, c->count[i]);
            memcpy(x, c->input[i], c->count[i] * sizeof *x);
            *(const float **)field = x;
        } else {
            *(pal_const_view *)field = memory_guard_rows(set, c->input[i], c->shape.tokens, c->channels[i], gap);
        }
    }
    run->in.scale = c->scale;
    run->in.mesa_tolerance = c->mesa_tolerance;
}

float **memory_make_states(const memory_case *c, const pal_memory_inputs *in, memory_buffers *set) {
    float **state = pal_alloc((size_t)c->shape.sequences, sizeof *state);
    for (size_t n = 0; n < (size_t)c->shape.sequences; n++) {
        state[n] = memory_take(set, c->rule->state_floats(&c->shape));
        const float *parts[2] = { NULL, NULL };
        for (int p = 0; p < 2 && c->initial[p]; p++) parts[p] = c->initial[p] + n * c->part[p];
        if (c->initial[0]) c->rule->import(&c->shape, in, parts, state[n]);
        else c->rule->reset(&c->shape, in, state[n]);
    }
    return state;
}
void memory_read_states(const memory_case *c, const pal_memory_inputs *in, float *const *state, float *final[2]) {
    if (!c->part[0]) return;
    for (int p = 0; p < 2 && c->part[p]; p++)
        if (!final[p]) final[p] = memory_floats((size_t)c->shape.sequences * c->part[p]);
    for (size_t n = 0; n < (size_t)c->shape.sequences; n++) {
        float *parts[2] = { NULL, NULL };
        for (int p = 0; p < 2 && c->part[p]; p++) parts[p] = final[p] + n * c->part[p];
        c->rule->export(&c->shape, in, parts, state[n]);
    }
}

void memory_must(pal_status st, const pal_error *err) {
    if (st) fail_msg("%s", err->text);
}

/* Blocks as a context with a device can use them, and no longer. */
static void lend(const pal_context *cx, float *x, size_t n) {
    pal_error err;
    if (cx->device) memory_must(cx->device->ops->lend(cx->device, x, n * sizeof *x, &err), &err);
}
static void lend_all(const pal_context *cx, const memory_buffers *set) {
    for (int i = 0; i < set->used; i++) lend(cx, set->block[i].x, set->block[i].n);
}
static void take_back(const pal_context *cx, const memory_buffers *set) {
    pal_error err;
    for (int i = 0; cx->device && i < set->used; i++) cx->device->ops->free(cx->device, set->block[i].x);
    memory_must(pal_device_check(cx, &err), &err);
}

memory_result *memory_run_wanting(const memory_case *c, const pal_context *cx, int gap_floats, bool backward,
                                  unsigned wanted) {
    const pal_memory_rule *rule = c->rule;
    const size_t outputs = (size_t)c->shape.heads * (size_t)c->shape.dv, gap = (size_t)gap_floats;
    const int T = c->shape.tokens;
    memory_buffers set = { .used = 0 };
    memory_result *r = pal_alloc(1, sizeof *r);
    pal_memory_run run = { .shape = c->shape };
    pal_error err;
    memory_set_inputs(&run, c, &set, gap);
    float **state = memory_make_states(c, &run.in, &set);
    run.state = state;
    run.y = memory_guard_output(&set, T, outputs, gap);
    if (rule->has_variance) run.y_var = memory_guard_output(&set, T, outputs, gap);
    if (backward) run.saved = memory_take(&set, rule->saved_floats(&c->shape));
    run.scratch = memory_take_scratch(&set, rule->scratch_bytes(cx, &c->shape, PAL_FORWARD));
    lend_all(cx, &set);
    memory_must(pal_memory_forward(rule, cx, &run, &err), &err);
    take_back(cx, &set);
    r->y = dense_of("y", run.y, T, outputs);
    if (rule->has_variance) r->y_var = dense_of("y_var", run.y_var, T, outputs);
    memory_read_states(c, &run.in, state, r->final);
    if (backward) {
        run.fresh = !c->initial[0]; /* the memories were default ones: what they get belongs to the prior */
        run.scratch = memory_take_scratch(&set, rule->scratch_bytes(cx, &c->shape, PAL_BACKWARD));
        run.dy = memory_guard_rows(&set, c->dy, T, outputs, gap);
        if (c->dy_var) run.dy_var = memory_guard_rows(&set, c->dy_var, T, outputs, gap);
        for (int i = 0; i < MEMORY_INPUTS; i++) {
            if (!c->input[i] || !(wanted & 1u << i)) continue;
            void *field = (char *)&run.grad + memory_fields[i].gradient;
            if (!memory_fields[i].parameter) {
                *(pal_view *)field = memory_guard_output(&set, T, c->channels[i], gap);
                continue;
            }
            float *x = memory_take(&set, c->count[i]); /* these are added to: start from zero */
            memset(x, 0, c->count[i] * sizeof *x);
            *(float **)field = x;
        }
        for (int p = 0; p < 2 && c->part[p] && !c->subject->cache; p++) {
            const size_t count = (size_t)c->shape.sequences * c->part[p];
            float *d = memory_take(&set, count);
            memcpy(d, c->dfinal[p], count * sizeof *d);
            run.dfinal[p] = d;
            if (c->initial[p]) run.grad.initial[p] = memory_take(&set, count);
        }
        memory_must(pal_memory_backward(rule, cx, &run, &err), &err);
        for (int i = 0; i < MEMORY_INPUTS; i++) {
            if (!c->input[i] || !(wanted & 1u << i)) continue;
            const void *field = (const char *)&run.grad + memory_fields[i].gradient;
            if (memory_fields[i].parameter) {
                r->grad[i] = memory_floats(c->count[i]);
                memcpy(r->grad[i], *(float *const *)field, c->count[i] * sizeof(float));
            } else {
                r->grad[i] = dense_of(memory_fields[i].name, *(const pal_view *)field, T, c->channels[i]);
            }
        }
        for (int p = 0; p < 2 && c->initial[p]; p++) {
            const size_t count = (size_t)c->shape.sequences * c->part[p];
            r->dinitial[p] = memory_floats(count);
            memcpy(r->dinitial[p], run.grad.initial[p], count * sizeof(float));
        }
    }
    memory_release(&set);
    pal_free(state);
    return r;
}

memory_result *memory_run_case(const memory_case *c, const pal_context *cx, int gap, bool backward) {
    return memory_run_wanting(c, cx, gap, backward, ~0u);
}

memory_result *memory_run_pieces(const memory_case *c, const pal_context *cx, bool only_steps, pal_rng *rng) {
    const pal_memory_rule *rule = c->rule;
    const size_t outputs = (size_t)c->shape.heads * (size_t)c->shape.dv;
    const size_t N = (size_t)c->shape.sequences;
    memory_buffers fixed = { .used = 0 };
    memory_result *r = pal_alloc(1, sizeof *r);
    pal_memory_run all = { .shape = c->shape };
    pal_error err;
    memory_set_inputs(&all, c, &fixed, 0);
    float **state = memory_make_states(c, &all.in, &fixed);
    r->y = memory_floats((size_t)c->shape.tokens * outputs);
    if (rule->has_variance) r->y_var = memory_floats((size_t)c->shape.tokens * outputs);
    lend_all(cx, &fixed);
    lend(cx, r->y, (size_t)c->shape.tokens * outputs);
    if (r->y_var) lend(cx, r->y_var, (size_t)c->shape.tokens * outputs);
    for (size_t n = 0; n < N; n++) {
        const int end = c->cu[n + 1];
        for (int t = c->cu[n], length; t < end; t += length) {
            const int left = end - t;
            length = only_steps || pal_rng_below(rng, 3) == 0 ? 1 : 1 + (int)pal_rng_below(rng, (uint32_t)left);
            const int cu[2] = { 0, length }, past = t - c->cu[n];
            const bool step = length == 1 && (only_steps || pal_rng_below(rng, 2));
            memory_buffers set = { .used = 0 };
            pal_memory_run run = all;
            run.shape.sequences = 1;
            run.shape.tokens = length;
            run.shape.cu_seqlens = cu;
            run.state = &state[n];
            run.past = &past;
            for (int i = 0; i < MEMORY_INPUTS; i++)
                if (c->channels[i]) {
                    pal_const_view *view = (pal_const_view *)((char *)&run.in + memory_fields[i].view);
                    view->data += (size_t)t * view->stride;
                }
            run.y = (pal_view){ r->y + (size_t)t * outputs, outputs };
            if (r->y_var) run.y_var = (pal_view){ r->y_var + (size_t)t * outputs, outputs };
            run.scratch = memory_take_scratch(&set, rule->scratch_bytes(cx, &run.shape, step ? PAL_STEP : PAL_FORWARD));
            memory_must(step ? pal_memory_step(rule, cx, &run, &err) : pal_memory_forward(rule, cx, &run, &err), &err);
            memory_release(&set);
        }
    }
    take_back(cx, &fixed);
    for (int i = 0; cx->device && i < 2; i++) cx->device->ops->free(cx->device, i ? r->y_var : r->y);
    memory_read_states(c, &all.in, state, r->final);
    memory_release(&fixed);
    pal_free(state);
    return r;
}
