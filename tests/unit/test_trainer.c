/* SPDX-License-Identifier: MIT */
/* The trainer with a task of a few sequences: what an update descends on, and what it does with scores. */
#include <math.h>

#include "support/files.h"
#include "support/models.h"
#include "support/support.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

enum { SEQUENCES = 4, LENGTH = 6, TOKENS = SEQUENCES * LENGTH, STEPS = 3 };

/* Sequences in order; micro-batch m holds those from first[m] to first[m+1]. */
typedef struct {
    int32_t ids[TOKENS], targets[TOKENS];
    int cu_seqlens[SEQUENCES + 1], first[SEQUENCES + 1];
    const double *scores; /* of one evaluation after the other */
    int evaluations;
} few;

static int64_t steps(void *self, int stage) {
    (void)self, (void)stage;
    return STEPS;
}

static pal_status batch(void *self, int stage, int64_t step, int micro, pal_batch *out, pal_error *err) {
    (void)stage, (void)step, (void)err;
    few *f = self;
    const int first = f->first[micro], count = f->first[micro + 1] - first;
    for (int i = 0; i <= count; i++) f->cu_seqlens[i] = i * LENGTH;
    *out = (pal_batch){ .tokens = count * LENGTH,
                        .sequences = count,
                        .ids = f->ids + first * LENGTH,
                        .targets = f->targets + first * LENGTH,
                        .cu_seqlens = f->cu_seqlens };
    return PAL_OK;
}

static pal_status evaluate(void *self, int stage, const pal_model *model, pal_work *work, json_t *metrics,
                           double *score, pal_error *err) {
    (void)stage, (void)model, (void)work, (void)metrics, (void)err;
    few *f = self;
    *score = f->scores ? f->scores[f->evaluations++] : 0;
    return PAL_OK;
}

static pal_status prepare(void *self, const pal_model *model, size_t *bytes, pal_error *err) {
    (void)self, (void)model, (void)err;
    *bytes = 0;
    return PAL_OK;
}

static few make_few(void) {
    few f = { .first = { 0, SEQUENCES } };
    test_ids(f.ids, TOKENS, TEST_VOCAB, 3);
    test_ids(f.targets, TOKENS, TEST_VOCAB, 4);
    /* 6, 1, 3 and 6 targets */
    for (int i = 0; i < LENGTH; i++) {
        if (i != 4) f.targets[LENGTH + i] = PAL_IGNORE;
        if (i % 2) f.targets[2 * LENGTH + i] = PAL_IGNORE;
    }
    return f;
}

static pal_task task_of(few *f) {
    return (pal_task){ .self = f,
                       .stages = 1,
                       .tokens = TOKENS,
                       .sequences = SEQUENCES,
                       .score_name = "accuracy",
                       .steps = steps,
                       .epoch = steps,
                       .batch = batch,
                       .evaluate = evaluate,
                       .prepare = prepare };
}

/* AdamW's epsilon is far above any gradient: an update moves weights in proportion to the gradient. */
static const pal_train_options plain = { .schedule = PAL_SCHEDULE_CONSTANT,
                                         .rate = 10,
                                         .accumulate = 1,
                                         .log_every = 1,
                                         .stop_score = 2,
                                         .optimiser = { .beta1 = 0.9, .beta2 = 0.999, .eps = 100 } };

static pal_model *new_model(const pal_context *cx) {
    return test_model(test_kind_named("palimpsa-d"), PAL_FOR_TRAINING, cx);
}

/* Trains until `stop_after` (0: the end), from the beginning or from the newest checkpoint. */
static pal_train_result train(const char *run, const pal_context *cx, few *f, pal_train_options options,
                              pal_model *model) {
    const pal_task task = task_of(f);
    const pal_trainer trainer = { .run = run, .cx = cx, .task = &task, .options = options };
    pal_train_result result;
    pal_train_plan plan;
    pal_error err;
    if (pal_train_prepare(&trainer, model, &plan, &err) || pal_train(&trainer, model, NULL, 0, &result, &err))
        fail_msg("%s", err.text);
    return result;
}

/* The line of metrics of the first update. */
static json_t *first_line(const char *run) {
    char path[TEST_PATH];
    size_t size;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = (char *)test_read_file(path, &size);
    json_t *line = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(line);
    free(text);
    return line;
}

/* Every target weighs the same, whether its neighbours are masked and however the batch is split. */
static void accumulated_batches_give_the_update_of_a_whole_one(void **state) {
    (void)state;
    static const int splits[][SEQUENCES + 2] = { { 1, 0, 4 }, { 2, 0, 1, 4 }, { 2, 0, 3, 4 }, { 4, 0, 1, 2, 3, 4 } };
    pal_context *cx = test_context(1, NULL);
    pal_model *whole = NULL;
    double norm = 0;
    for (size_t s = 0; s < PAL_COUNT(splits); s++) {
        few f = make_few();
        memcpy(f.first, splits[s] + 1, (size_t)(splits[s][0] + 1) * sizeof(int));
        pal_train_options o = plain;
        o.accumulate = splits[s][0];
        o.stop_after = 1;
        pal_model *model = new_model(cx);
        char run[256];
        test_directory(run);
        train(run, cx, &f, o, model);
        json_t *line = first_line(run);
        const double found = json_number_value(json_object_get(line, "grad_norm"));
        json_decref(line);
        test_remove(run);
        if (!whole) {
            whole = model;
            norm = found;
            continue;
        }
        if (!(fabs(found - norm) <= 1e-5 * norm)) fail_msg("split %zu: norm %.9g, of the whole %.9g", s, found, norm);
        for (size_t i = 0; i < pal_model_flat(model); i++) {
            const double a = (double)pal_model_flat_parameters(whole)[i],
                         b = (double)pal_model_flat_parameters(model)[i];
            if (!(fabs(a - b) <= 2e-6 * (1 + fabs(a))))
                fail_msg("split %zu: weight %zu is %.9g, of the whole %.9g", s, i, b, a);
        }
        pal_model_close(model);
    }
    pal_model_close(whole);
    pal_context_free(cx);
}

/* The update is the gradient of the logged loss: along it, the loss changes by what the logged norm says. */
static void updates_descend_on_the_loss_that_is_logged(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    few f = make_few();
    f.first[1] = 1, f.first[2] = SEQUENCES;
    pal_train_options o = plain;
    o.accumulate = 2;
    o.optimiser.eps = 1e4;
    const double small = 1e-4; /* of the gradient */
    o.rate = small * o.optimiser.eps;
    pal_model *model = new_model(cx);
    char run[256];
    test_directory(run);
    train(run, cx, &f, o, model);
    json_t *line = first_line(run);
    const double norm = json_number_value(json_object_get(line, "grad_norm")),
                 before = json_number_value(json_object_get(line, "loss"));
    json_decref(line);
    char path[TEST_PATH];
    size_t size;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = (char *)test_read_file(path, &size);
    json_t *second = json_loads(strchr(text, '\n') + 1, JSON_DISABLE_EOF_CHECK, NULL);
    const double fell = before - json_number_value(json_object_get(second, "loss")), expected = small * norm * norm;
    if (!(fabs(fell - expected) <= 0.05 * expected))
        fail_msg("the loss fell by %.6g, its gradient says %.6g", fell, expected);
    json_decref(second);
    free(text);
    test_remove(run);
    pal_model_close(model);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulated_batches_give_the_update_of_a_whole_one),
        cmocka_unit_test(updates_descend_on_the_loss_that_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
