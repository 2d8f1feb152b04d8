/* SPDX-License-Identifier: MIT */
/* Selftest of whole models: DIR/config.json, model.safetensors and the recorded numbers of expected.safetensors. Each
 * model runs forward, backward, packed, and one token at a time. */
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "format/view.h"
#include "model/work.h"
#include "palimpsa/palimpsa.h"
#include "selftest.h"

typedef struct {
    selftest_case *c;
    pal_model *model;
    const pal_model_config *config;
    double accept; /* of logits and hidden states */
} model_case;

/* WebAssembly rounds after every product: it has no fused multiply-add. */
static const double accept_gradient = PAL_WASM ? 1e-3 : 1e-4, accept_loss = 5e-6;

/* A required I64 tensor as int32. */
static int32_t *read_ids(selftest_case *c, const char *name, size_t *count) {
    const pal_tensor *t = pal_safetensors_find(c->file, name);
    if (!t || t->dtype != PAL_I64) {
        selftest_break(c, "%s is missing or not I64", name);
        return NULL;
    }
    int32_t *ids = selftest_bytes(c, t->count * sizeof *ids);
    for (size_t i = 0; ids && i < t->count; i++) {
        int64_t id;
        memcpy(&id, (const char *)t->data + i * sizeof id, sizeof id);
        ids[i] = id >= INT32_MIN && id <= INT32_MAX ? (int32_t)id : INT32_MAX;
    }
    *count = t->count;
    return ids;
}

static void library(model_case *m, pal_status st) {
    if (st) m->c->broken = true; /* the sentence is in c->error */
}

static pal_work *make_work(model_case *m, int tokens, int sequences, bool training) {
    pal_work *work = NULL;
    if (!m->c->broken)
        library(m, pal_work_new(&work, m->model, m->c->cx,
                                &(pal_work_options){ .tokens = tokens, .sequences = sequences, .training = training },
                                &m->c->error));
    return work;
}

/* Language models predict the next label; MQAR's labels stand where they are predicted. */
static void make_targets(const pal_model_config *config, int32_t *targets, const int32_t *labels, int rows,
                         int length) {
    for (int r = 0; r < rows; r++, targets += length, labels += length) {
        if (config->mqar) memcpy(targets, labels, (size_t)length * sizeof *targets);
        else pal_shift_targets(targets, labels, length);
    }
}

/* Recorded under the name that the model's file has, which may hold several of our tensors. */
static void check_gradient(model_case *m, const pal_weight *w) {
    const pal_source *source = &m->model->source;
    const pal_tensor *t = pal_source_find(source, w->name);
    char name[200], part[32];
    size_t first = 0;
    snprintf(name, sizeof name, "grad.%s", t ? pal_source_name(source, t) : w->name);
    if (t) first = pal_view_first(source, t);
    const pal_tensor *expected = pal_safetensors_find(m->c->file, name);
    const bool whole = expected && expected->count == w->count;
    snprintf(part, sizeof part, "from %zu", first);
    selftest_check_part(m->c, name, whole ? NULL : part, pal_model_flat_gradients(m->model) + w->offset, first,
                        w->count, accept_gradient);
}

/* What a device computes yet: no gradients. */
static void check_logits(model_case *m, pal_work *work, const pal_batch *batch) {
    selftest_case *c = m->c;
    const size_t count = (size_t)batch->tokens * (size_t)m->config->vocab_rows;
    float *logits = selftest_floats(c, count);
    if (!logits) return;
    library(m, pal_model_forward(m->model, work, batch, NULL, batch->tokens, logits, &c->error));
    if (!c->broken) selftest_check(c, "logits", NULL, logits, count, m->accept);
}

static void check_trained(model_case *m, pal_work *work, const pal_batch *batch) {
    selftest_case *c = m->c;
    const size_t T = (size_t)batch->tokens, V = (size_t)m->config->vocab_rows, E = (size_t)m->config->hidden;
    float *logits = selftest_floats(c, T * V);
    if (!logits) return;
    library(m, pal_model_forward(m->model, work, batch, NULL, batch->tokens, logits, &c->error));
    if (c->broken) return;
    selftest_check(c, "logits", NULL, logits, T * V, m->accept);
    for (int i = 0; i <= m->config->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "hidden.%d", i);
        selftest_check(c, name, NULL, pal_work_stream(work, i), T * E, m->accept);
    }
    selftest_check(c, "layers.0.op.y", NULL, work->blocks[0].mixer.y, T * (size_t)work->blocks[0].plan.values,
                   m->accept);

    pal_loss loss;
    library(m, pal_model_loss(m->model, work, batch, &loss, NULL, &c->error));
    if (c->broken) return;
    const float mean = loss.count ? (float)(loss.sum / (double)loss.count) : 0;
    selftest_check(c, "loss", NULL, &mean, 1, accept_loss);
    library(m,
            pal_model_learn(m->model, work, batch, loss.count ? 1.0f / (float)loss.count : 0, &loss, NULL, &c->error));
    if (c->broken) return;
    for (size_t i = 0; i < pal_model_weight_count(m->model); i++) {
        const pal_weight *w = pal_model_weight(m->model, i);
        check_gradient(m, w);
    }
}

static void check_packed(model_case *m) {
    selftest_case *c = m->c;
    size_t tokens = 0, bounds = 0;
    if (c->broken || !pal_safetensors_find(c->file, "packed.input_ids")) return;
    const int32_t *ids = read_ids(c, "packed.input_ids", &tokens), *cu = read_ids(c, "packed.cu_seqlens", &bounds);
    if (c->broken) return;
    if (bounds < 2) return selftest_break(c, "packed.cu_seqlens has fewer than two entries");
    const size_t V = (size_t)m->config->vocab_rows;
    float *logits = selftest_floats(c, tokens * V);
    pal_work *work = make_work(m, (int)tokens, (int)bounds - 1, false);
    if (work && logits) {
        const pal_batch batch = { .tokens = (int)tokens, .sequences = (int)bounds - 1, .ids = ids, .cu_seqlens = cu };
        library(m, pal_model_forward(m->model, work, &batch, NULL, (int)tokens, logits, &c->error));
        if (!c->broken) selftest_check(c, "packed.logits", NULL, logits, tokens * V, m->accept);
    }
    pal_work_free(work);
}

/* All rows at once, in pieces that each continue where the last one ended. */
static void check_split(model_case *m, const int32_t *ids, int rows, int length) {
    enum { PIECE = 23 };
    selftest_case *c = m->c;
    const size_t V = (size_t)m->config->vocab_rows, R = (size_t)rows, L = (size_t)length;
    float *logits = selftest_floats(c, R * L * V), *piece = selftest_floats(c, R * PIECE * V);
    int32_t *now = selftest_bytes(c, R * PIECE * sizeof *now);
    int *cu = selftest_bytes(c, (R + 1) * sizeof *cu);
    pal_state **states = selftest_bytes(c, R * sizeof *states);
    pal_work *work = make_work(m, rows * PIECE, rows, false);
    for (int r = 0; r < rows && !c->broken; r++) library(m, pal_state_new(&states[r], m->model, length, &c->error));
    for (int at = 0; at < length && !c->broken; at += PIECE) {
        const int n = length - at < PIECE ? length - at : PIECE;
        for (int r = 0; r < rows; r++) memcpy(now + r * n, ids + r * length + at, (size_t)n * sizeof *now);
        for (int r = 0; r <= rows; r++) cu[r] = r * n;
        const pal_batch batch = { .tokens = rows * n, .sequences = rows, .ids = now, .cu_seqlens = cu };
        library(m, pal_model_continue(m->model, work, states, &batch, NULL, rows * n, piece, &c->error));
        for (int r = 0; r < rows; r++)
            memcpy(logits + ((size_t)r * L + (size_t)at) * V, piece + (size_t)(r * n) * V,
                   (size_t)n * V * sizeof *piece);
    }
    if (!c->broken) selftest_check(c, "logits", "split", logits, R * L * V, m->accept);
    for (int r = 0; states && r < rows; r++) pal_state_free(states[r]);
    pal_work_free(work);
}

/* All rows at once, a token a time: the same logits, and the final memory of layer 0. */
static void check_stepped(model_case *m, const int32_t *ids, int rows, int length) {
    selftest_case *c = m->c;
    const size_t V = (size_t)m->config->vocab_rows;
    float *logits = selftest_floats(c, (size_t)rows * (size_t)length * V), *step = selftest_floats(c, (size_t)rows * V);
    int32_t *now = selftest_bytes(c, (size_t)rows * sizeof *now);
    pal_state **states = selftest_bytes(c, (size_t)rows * sizeof *states);
    pal_work *work = make_work(m, rows, rows, false);
    for (int r = 0; r < rows && !c->broken; r++) library(m, pal_state_new(&states[r], m->model, length, &c->error));
    for (int t = 0; t < length && !c->broken; t++) {
        for (int r = 0; r < rows; r++) now[r] = ids[r * length + t];
        library(m, pal_model_step(m->model, work, states, rows, now, step, &c->error));
        for (int r = 0; r < rows; r++)
            memcpy(logits + ((size_t)r * (size_t)length + (size_t)t) * V, step + (size_t)r * V, V * sizeof *step);
    }
    if (!c->broken) selftest_check(c, "logits", "stepped", logits, (size_t)rows * (size_t)length * V, m->accept);
    size_t floats[2] = { 0, 0 };
    const char *names[2] = { NULL, NULL };
    float *parts[2] = { NULL, NULL };
    const bool keeps = strcmp(pal_model_layer_rule(m->config, 0), "none") != 0;
    for (int p = 0; p < 2 && keeps && !c->broken; p++)
        if ((names[p] = pal_state_part(states[0], 0, p, &floats[p])))
            parts[p] = selftest_floats(c, (size_t)rows * floats[p]);
    for (int r = 0; r < rows && keeps && !c->broken; r++)
        library(m, pal_state_export(states[r], 0, parts[0] + (size_t)r * floats[0],
                                    parts[1] ? parts[1] + (size_t)r * floats[1] : NULL, &c->error));
    for (int p = 0; p < 2 && !c->broken; p++) {
        char name[64];
        if (!names[p]) continue;
        snprintf(name, sizeof name, "layers.0.op.%s_T", names[p]);
        selftest_check(c, name, "stepped", parts[p], (size_t)rows * floats[p], m->accept);
    }
    for (int r = 0; states && r < rows; r++) pal_state_free(states[r]);
    pal_work_free(work);
}

static int argmax(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void check_greedy(model_case *m) {
    selftest_case *c = m->c;
    size_t prompt = 0, tokens = 0;
    if (c->broken || !pal_safetensors_find(c->file, "greedy.tokens")) return;
    const int32_t *ids = read_ids(c, "greedy.prompt", &prompt), *expected = read_ids(c, "greedy.tokens", &tokens);
    if (c->broken) return;
    float *logits = selftest_floats(c, (size_t)m->config->vocab_rows);
    pal_state *state = NULL;
    /* Room for fewer tokens than the prompt has, so that it is read in pieces. */
    pal_work *work = make_work(m, prompt > 3 ? (int)prompt / 2 : 1, 1, false);
    if (!c->broken) library(m, pal_state_new(&state, m->model, (int)(prompt + tokens), &c->error));
    if (!c->broken) library(m, pal_model_prefill(m->model, work, state, ids, (int)prompt, logits, &c->error));
    size_t right = 0;
    for (size_t i = 0; i < tokens && !c->broken; i++) {
        const int32_t next = argmax(logits, m->config->vocab);
        right += next == expected[i];
        if (next != expected[i]) break;
        library(m, pal_model_step(m->model, work, &state, 1, &next, logits, &c->error));
    }
    if (!c->broken) selftest_count(c, "greedy.tokens", right, tokens);
    pal_state_free(state);
    pal_work_free(work);
}

static void run_model(model_case *m) {
    selftest_case *c = m->c;
    size_t count = 0, label_count = 0;
    const pal_tensor *shape = selftest_shape(c, "input_ids", 2);
    if (!shape) return;
    if (shape->count > 1 << 20 || shape->count == 0)
        return selftest_break(c, "input_ids has %zu tokens, expected 1 to 2^20", shape->count);
    const int rows = (int)shape->shape[0], length = (int)shape->shape[1];
    const int32_t *ids = read_ids(c, "input_ids", &count), *labels = read_ids(c, "labels", &label_count);
    int32_t *targets = selftest_bytes(c, count * sizeof *targets);
    int *cu = selftest_bytes(c, ((size_t)rows + 1) * sizeof *cu);
    if (c->broken) return;
    if (label_count != count) return selftest_break(c, "labels have %zu elements, expected %zu", label_count, count);
    for (int r = 0; r <= rows; r++) cu[r] = r * length;
    make_targets(m->config, targets, labels, rows, length);
    const bool trains = !pal_context_device(c->cx);
    pal_work *work = make_work(m, rows * length, rows, trains);
    const pal_batch batch = {
        .tokens = rows * length, .sequences = rows, .ids = ids, .cu_seqlens = cu, .targets = targets
    };
    if (work && trains) check_trained(m, work, &batch);
    else if (work) check_logits(m, work, &batch);
    pal_work_free(work);
    check_packed(m);
    if (!c->broken) check_split(m, ids, rows, length);
    if (!c->broken) check_stepped(m, ids, rows, length);
    check_greedy(m);
}

bool selftest_model(selftest_case *c, const char *directory) {
    char path[4200];
    pal_safetensors *file = NULL;
    model_case m = { .c = c };
    snprintf(path, sizeof path, "%s/expected.safetensors", directory);
    if (pal_safetensors_open(&file, path, &c->error)) {
        c->broken = true;
        return true;
    }
    c->file = file;
    const pal_model_use use = pal_context_device(c->cx) ? PAL_FOR_INFERENCE : PAL_FOR_TRAINING;
    library(&m, pal_model_open(&m.model, directory, use, c->cx, &c->error));
    if (!c->broken) {
        m.config = pal_model_config_of(m.model);
        const pal_mixer_spec *memory = &m.config->block[0].mixer[0];
        /* Normed keys of Gated DeltaNet amplify rounding; transformers in float32 is as far away. */
        m.accept = memory->kind == PAL_MIXER_GDN ? 5e-5 : m.config->hybrid ? 1e-5 : 2e-5;
        if (m.config->hybrid && use == PAL_FOR_TRAINING)
            c->seen = selftest_bytes(c, pal_safetensors_count(file) * sizeof *c->seen);
        run_model(&m);
        if (c->seen && !c->broken) selftest_unseen(c);
    }
    pal_model_close(m.model);
    pal_safetensors_close(file);
    c->file = NULL;
    c->seen = NULL;
    return true;
}
