/* SPDX-License-Identifier: MIT */
/* What a conversion cost: both models read one text, and their distributions of the next token are compared. */
#include <math.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "palimpsa/convert.h"
#include "palimpsa/state.h"

enum { PIECE = 128, BEFORE = 0, AFTER = 1, SIDES = 2 }; /* tokens whose logits are compared at once */

typedef struct {
    pal_model *model;
    pal_work *work;
    pal_state *state;
    float *logits; /* (PIECE, rows) */
} reading;

/* Of one position. */
typedef struct {
    double nll[SIDES], divergence;
    bool changed;
} comparison;

static pal_status reading_open(reading *r, const char *path, int tokens, const pal_context *cx, pal_error *err) {
    pal_status st;
    if ((st = pal_model_open(&r->model, path, PAL_FOR_INFERENCE, cx, err))) return st;
    const pal_work_options options = { .tokens = PIECE, .sequences = 1, .logits = PIECE, .context = tokens };
    if ((st = pal_work_new(&r->work, r->model, cx, &options, err))) return st;
    if ((st = pal_state_new(&r->state, r->model, tokens, err))) return st;
    return pal_alloc_named((void **)&r->logits, (size_t)PIECE * (size_t)pal_model_config_of(r->model)->vocab_rows,
                           sizeof(float), "logits", err);
}

static void reading_close(reading *r) {
    pal_state_free(r->state);
    pal_work_free(r->work);
    pal_model_close(r->model);
    pal_free(r->logits);
}

static int likeliest(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static double log_sum_exp(const float *x, int n, double most) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)x[i] - most);
    return most + log(sum);
}

typedef struct {
    const reading *sides;
    const int32_t *targets; /* of each position; NULL: it has none */
    int vocab, rows;
    comparison *out;
} compare_job;

static void compare_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const compare_job *job = arg;
    for (size_t t = begin; t < end; t++) {
        const float *x[SIDES];
        double norm[SIDES], divergence = 0;
        int top[SIDES];
        for (int s = 0; s < SIDES; s++) {
            x[s] = job->sides[s].logits + t * (size_t)job->rows;
            top[s] = likeliest(x[s], job->vocab);
            norm[s] = log_sum_exp(x[s], job->rows, (double)x[s][likeliest(x[s], job->rows)]);
            job->out[t].nll[s] = norm[s] - (double)x[s][job->targets[t]];
        }
        for (int i = 0; i < job->rows; i++) {
            const double p = (double)x[BEFORE][i] - norm[BEFORE], q = (double)x[AFTER][i] - norm[AFTER];
            divergence += exp(p) * (p - q);
        }
        job->out[t].divergence = divergence > 0 ? divergence : divergence < 0 ? 0 : divergence; /* NaN stays */
        job->out[t].changed = top[BEFORE] != top[AFTER];
    }
}

static void add(pal_convert_cost *out, const comparison *c, int n) {
    const double share = 1.0 / (out->tokens - 1);
    for (int t = 0; t < n; t++) {
        out->loss_before += share * c[t].nll[BEFORE];
        out->loss_after += share * c[t].nll[AFTER];
        out->kl_mean += share * c[t].divergence;
        if (!(c[t].divergence <= out->kl_most)) out->kl_most = c[t].divergence;
        out->changed += share * c[t].changed;
    }
}

static pal_status run(pal_convert_cost *out, const reading *r, const int32_t *ids, const pal_context *cx,
                      pal_error *err) {
    const pal_model_config *c = pal_model_config_of(r[BEFORE].model), *after = pal_model_config_of(r[AFTER].model);
    comparison compared[PIECE];
    pal_status st;
    if (c->vocab_rows != after->vocab_rows)
        return pal_fail(err, PAL_E_ARGUMENT, "the source has %d logits, the result %d", c->vocab_rows,
                        after->vocab_rows);
    for (int done = 0; done + 1 < out->tokens; done += PIECE) { /* the last token has no next one */
        const int left = out->tokens - 1 - done, piece = left < PIECE ? left : PIECE, cu[2] = { 0, piece };
        const pal_batch batch = { .tokens = piece, .sequences = 1, .ids = ids + done, .cu_seqlens = cu };
        for (int s = 0; s < SIDES; s++)
            if ((st = pal_model_continue(r[s].model, r[s].work, &r[s].state, &batch, NULL, piece, r[s].logits, err)))
                return st;
        compare_job job = {
            .sides = r, .targets = ids + done + 1, .vocab = c->vocab, .rows = c->vocab_rows, .out = compared
        };
        pal_parallel_ranges(cx, (size_t)piece, 1, compare_task, &job);
        add(out, compared, piece);
    }
    return PAL_OK;
}

pal_status pal_convert_measure(pal_convert_cost *out, const char *source, const char *target, const int32_t *ids,
                               int tokens, const pal_context *cx, pal_error *err) {
    reading r[SIDES] = { { 0 } };
    *out = (pal_convert_cost){ .tokens = tokens };
    if (tokens < 2) return pal_fail(err, PAL_E_ARGUMENT, "a text of %d tokens: expected at least 2", tokens);
    pal_status st = reading_open(&r[BEFORE], source, tokens, cx, err);
    if (!st) st = reading_open(&r[AFTER], target, tokens, cx, err);
    if (!st) st = run(out, r, ids, cx, err);
    for (int s = 0; s < SIDES; s++) reading_close(&r[s]);
    return st;
}
