/* SPDX-License-Identifier: MIT */
#include "train/task_mqar.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "format/json.h"
#include "train/dynamics.h"

typedef struct {
    pal_mqar *train, *test;
    int *cu_seqlens;
} stage_data;

struct pal_mqar_task {
    const pal_context *cx;
    const pal_comm *comm;
    pal_mqar_options options;
    int tokens, sequences; /* of the largest batch */
    stage_data stage[PAL_MQAR_STAGES];
    int32_t *ids, *labels, *predicted;
    unsigned char *correct;
    void *scratch;
    pal_observer *observer;
};

int64_t pal_mqar_epoch_steps(int64_t examples, int batch, int accumulate) {
    const int64_t per_update = (int64_t)batch * accumulate;
    return examples >= per_update ? examples / per_update : 1;
}

static int64_t steps(void *self, int stage) { return ((const pal_mqar_task *)self)->options.stage[stage].steps; }

static int64_t epoch(void *self, int stage) {
    const pal_mqar_task *t = self;
    const pal_mqar_stage *s = &t->options.stage[stage];
    return t->options.examples ? pal_mqar_epoch_steps(t->options.examples, s->batch, t->options.accumulate) : s->steps;
}

static pal_batch batch_of(const pal_mqar_task *t, int stage, int examples) {
    return (pal_batch){ .tokens = examples * t->options.stage[stage].data.length,
                        .sequences = examples,
                        .ids = t->ids,
                        .cu_seqlens = t->stage[stage].cu_seqlens,
                        .targets = t->labels };
}

static pal_status batch(void *self, int stage, int64_t step, int micro, pal_batch *out, pal_error *err) {
    (void)err;
    pal_mqar_task *t = self;
    const pal_mqar_stage *s = &t->options.stage[stage];
    /* A fixed set is gone through in whole updates; what is left at its end is not used, as in the reference. */
    const int64_t within = t->options.examples ? step % epoch(self, stage) : step;
    const pal_share mine = pal_comm_share(t->comm, s->batch);
    /* unsigned: after 2^64 examples the first comes again */
    const uint64_t update = (uint64_t)within * (uint64_t)t->options.accumulate + (uint64_t)micro,
                   index = update * (uint64_t)s->batch + (uint64_t)mine.first;
    pal_mqar_fill(t->stage[stage].train, t->cx, index, (size_t)mine.count, t->ids, t->labels, t->scratch);
    *out = batch_of(t, stage, mine.count);
    return PAL_OK;
}

static void describe(void *self, int stage, json_t *metrics) {
    const pal_mqar_config *data = &((const pal_mqar_task *)self)->options.stage[stage].data;
    pal_json_set(metrics, "length", json_integer(data->length));
    pal_json_set(metrics, "pairs", json_integer(data->pairs));
}

/* Accuracy by distance from a key to its question, in powers of two. */
static json_t *by_distance(const pal_mqar_score *score) {
    json_t *list = json_array();
    for (int bin = 0; bin < PAL_MQAR_BINS; bin++)
        if (score->asked[bin])
            pal_json_append(list,
                            json_pack("{s:I, s:I, s:f}", "from", (json_int_t)1 << bin, "to",
                                      ((json_int_t)1 << (bin + 1)) - 1, "accuracy", pal_mqar_accuracy_at(score, bin)));
    return list;
}

/* Test examples from `first` on, as many as there are and a batch of this rank has room for. */
static pal_batch test_batch(pal_mqar_task *t, int stage, int64_t first) {
    const int most = pal_comm_largest_share(t->comm, t->options.stage[stage].batch);
    const int64_t left = t->options.test_examples - first;
    const int examples = left < most ? (int)left : most;
    pal_mqar_fill(t->stage[stage].test, t->cx, (uint64_t)first, (size_t)examples, t->ids, t->labels, t->scratch);
    return batch_of(t, stage, examples);
}

/* Counts are small enough to be exact in doubles. */
static pal_status sum_scores(const pal_comm *comm, pal_mqar_score *score, pal_loss *loss, pal_error *err) {
    double x[4 + 2 * PAL_MQAR_BINS] = { loss->sum, (double)loss->count, (double)score->examples, score->sum };
    for (int bin = 0; bin < PAL_MQAR_BINS; bin++)
        x[4 + 2 * bin] = (double)score->asked[bin], x[5 + 2 * bin] = (double)score->right[bin];
    const pal_status st = pal_comm_sum(comm, x, sizeof x / sizeof x[0], err);
    loss->sum = x[0], loss->count = (size_t)x[1], score->examples = (size_t)x[2], score->sum = x[3];
    for (int bin = 0; bin < PAL_MQAR_BINS; bin++)
        score->asked[bin] = (uint64_t)x[4 + 2 * bin], score->right[bin] = (uint64_t)x[5 + 2 * bin];
    return st;
}

static pal_status evaluate(void *self, int stage, const pal_model *model, pal_work *work, json_t *metrics, double *out,
                           pal_error *err) {
    pal_mqar_task *t = self;
    const pal_mqar_stage *s = &t->options.stage[stage];
    const int64_t each = pal_comm_largest_share(t->comm, s->batch), last = (t->options.test_examples - 1) / each * each;
    pal_mqar_score score = { 0 };
    pal_loss sums = { 0 };
    pal_status st;
    for (int64_t round = 0; round <= last; round += t->comm->size * each) {
        const int64_t first = round + t->comm->rank * each;
        if ((st = pal_ask(&t->options.asking, err))) return st;
        if (first > last) break;
        const pal_batch b = test_batch(t, stage, first);
        pal_loss loss;
        if ((st = pal_model_loss(model, work, &b, &loss, t->correct, err))) return st;
        sums.sum += loss.sum;
        sums.count += loss.count;
        size_t asked = 0;
        for (int i = 0; i < b.tokens; i++)
            if (t->labels[i] != PAL_MQAR_IGNORED) t->predicted[asked++] = t->correct[i] ? t->labels[i] : -1;
        pal_mqar_score_add(&score, &s->data, (size_t)b.sequences, t->ids, t->labels, t->predicted);
    }
    if ((st = sum_scores(t->comm, &score, &sums, err))) return st;
    /* The memory is looked into on the last test batch. */
    const pal_batch seen = test_batch(t, stage, last);
    if (pal_comm_is_root(t->comm) && (st = pal_dynamics_measure(model, work, t->observer, &seen, metrics, err)))
        return st;
    *out = pal_mqar_accuracy(&score);
    pal_json_set(metrics, "accuracy", json_real(*out));
    pal_json_set(metrics, "valid_loss", pal_json_number(sums.count ? sums.sum / (double)sums.count : 0));
    pal_json_set(metrics, "by_distance", by_distance(&score));
    return PAL_OK;
}

static pal_status prepare(void *self, const pal_model *model, size_t *bytes, pal_error *err) {
    pal_mqar_task *t = self;
    const pal_status st = pal_observer_new(&t->observer, model, t->tokens, t->sequences, err);
    if (!st) *bytes = pal_observer_bytes(t->observer);
    return st;
}

void pal_mqar_task_free(pal_mqar_task *t) {
    if (!t) return;
    for (int i = 0; i < t->options.stages; i++) {
        pal_mqar_free(t->stage[i].train), pal_mqar_free(t->stage[i].test);
        pal_free(t->stage[i].cu_seqlens);
    }
    pal_free(t->ids), pal_free(t->labels), pal_free(t->predicted), pal_free(t->correct), pal_free(t->scratch);
    pal_observer_free(t->observer);
    pal_free(t);
}

static pal_status make_stage(pal_mqar_task *t, int i, size_t *scratch, pal_error *err) {
    const pal_mqar_stage *s = &t->options.stage[i];
    stage_data *d = &t->stage[i];
    pal_status st;
    if (s->batch < 1) return pal_fail(err, PAL_E_ARGUMENT, "batch is %d, expected at least 1", s->batch);
    if (s->batch < t->comm->size)
        return pal_fail(err, PAL_E_ARGUMENT, "a batch of %d examples for %d ranks: expected at least one for each",
                        s->batch, t->comm->size);
    if (t->options.examples && t->options.examples < (int64_t)s->batch * t->options.accumulate)
        return pal_fail(err, PAL_E_ARGUMENT, "%lld training examples, and one update takes %d x %d of them",
                        (long long)t->options.examples, t->options.accumulate, s->batch);
    if (s->steps < 1)
        return pal_fail(err, PAL_E_ARGUMENT, "stage %d has %lld updates, expected at least 1", i, (long long)s->steps);
    if ((int64_t)s->batch * s->data.length > (1 << 28))
        return pal_fail(err, PAL_E_ARGUMENT, "a batch of %d x %d tokens is too large", s->batch, s->data.length);
    if ((st = pal_mqar_new(&d->train, &s->data, t->options.seed, PAL_MQAR_TRAIN, err))) return st;
    if ((st = pal_mqar_new(&d->test, &s->data, t->options.seed, PAL_MQAR_TEST, err))) return st;
    if ((st = pal_alloc_named((void **)&d->cu_seqlens, (size_t)s->batch + 1, sizeof *d->cu_seqlens, "a batch", err)))
        return st;
    for (int n = 0; n <= s->batch; n++) d->cu_seqlens[n] = n * s->data.length;
    const size_t bytes = pal_mqar_scratch_bytes(d->train, t->cx);
    if (bytes > *scratch) *scratch = bytes;
    return PAL_OK;
}

pal_status pal_mqar_task_new(pal_mqar_task **out, const pal_context *cx, const pal_mqar_options *options,
                             pal_task *task, pal_error *err) {
    pal_mqar_task *t;
    pal_status st;
    size_t scratch = 0;
    *out = NULL;
    if (options->test_examples < 1)
        return pal_fail(err, PAL_E_ARGUMENT, "%lld test examples, expected at least 1",
                        (long long)options->test_examples);
    if ((st = pal_alloc_named((void **)&t, 1, sizeof *t, "the task", err))) return st;
    t->cx = cx;
    t->comm = pal_comm_or_alone(options->comm);
    t->options = *options;
    *task = (pal_task){ .self = t,
                        .stages = options->stages,
                        .score_name = "accuracy",
                        .steps = steps,
                        .epoch = epoch,
                        .batch = batch,
                        .evaluate = evaluate,
                        .prepare = prepare,
                        .describe = describe };
    for (int i = 0; i < options->stages; i++) {
        if ((st = make_stage(t, i, &scratch, err))) break; /* its sizes may be too large to multiply */
        const int examples = pal_comm_largest_share(t->comm, options->stage[i].batch),
                  tokens = examples * options->stage[i].data.length;
        if (tokens > task->tokens) task->tokens = tokens;
        if (examples > task->sequences) task->sequences = examples;
    }
    t->tokens = task->tokens;
    t->sequences = task->sequences;
    const size_t n = (size_t)task->tokens;
    if (!st) st = pal_alloc_named((void **)&t->ids, n, sizeof *t->ids, "a batch", err);
    if (!st) st = pal_alloc_named((void **)&t->labels, n, sizeof *t->labels, "a batch", err);
    if (!st) st = pal_alloc_named((void **)&t->predicted, n, sizeof *t->predicted, "a batch", err);
    if (!st) st = pal_alloc_named((void **)&t->correct, n, 1, "a batch", err);
    if (!st) st = pal_alloc_named(&t->scratch, scratch, 1, "a batch", err);
    if (st) {
        pal_mqar_task_free(t);
        return st;
    }
    *out = t;
    return PAL_OK;
}
