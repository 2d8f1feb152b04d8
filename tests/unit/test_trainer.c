/* SPDX-License-Identifier: MIT */
/* The trainer with a task of a few sequences: what an update descends on, and what it does with scores. */
#include <math.h>

#include "support/files.h"
#include "support/models.h"
#include "support/shards.h"
#include "support/support.h"
#include "train/checkpoint.h"
#include "train/task_text.h"
#include "train/trainer.h"

enum { SEQUENCES = 4, LENGTH = 6, TOKENS = SEQUENCES * LENGTH, STEPS = 3 };

/* Sequences in order; micro-batch m holds those from first[m] to first[m+1]. */
typedef struct {
    int32_t ids[TOKENS], targets[TOKENS];
    int cu_seqlens[SEQUENCES + 1], first[SEQUENCES + 1];
    const double *scores; /* of one evaluation after the other */
    int evaluations;
    int given_up, times; /* the evaluation that is given up, from 1 on, and how often before it is made */
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
    (void)stage, (void)model, (void)work, (void)metrics;
    few *f = self;
    if (f->times && f->evaluations + 1 == f->given_up) {
        f->times--;
        return pal_fail(err, PAL_STOPPED, "given up");
    }
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
    pal_train_bytes plan;
    pal_error err;
    if (pal_train_prepare(&trainer, model, &plan, &err)) fail_msg("%s", err.text);
    const pal_status st = pal_train(&trainer, model, NULL, 0, &result, &err);
    if (st != (options.stop_after ? PAL_STOPPED : PAL_OK)) fail_msg("%s", err.text);
    return result;
}

/* The same from the newest checkpoint, which has an evaluation to make or not. */
static pal_status resume(const char *run, const pal_context *cx, few *f, pal_train_options options, bool due,
                         pal_train_result *result) {
    const pal_task task = task_of(f);
    const pal_trainer trainer = { .run = run, .cx = cx, .task = &task, .options = options };
    pal_model *model;
    json_t *trainer_state;
    int64_t step;
    pal_error err;
    if (pal_checkpoint_open(run, NULL, cx, &model, &trainer_state, &step, &err)) fail_msg("%s", err.text);
    assert_true(!pal_train_state_of(trainer_state).finished && pal_train_state_of(trainer_state).planned == STEPS);
    assert_int_equal(json_object_get(trainer_state, "evaluation_due") != NULL, due);
    const pal_status st = pal_train(&trainer, model, trainer_state, step, result, &err);
    if (st && st != PAL_STOPPED) fail_msg("%s", err.text);
    json_decref(trainer_state);
    pal_model_close(model);
    return st;
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

/* What a folder of the run holds in its model's first weight. */
static float first_weight_in(const char *run, const char *folder, const pal_context *cx) {
    char path[TEST_PATH];
    pal_model *model;
    pal_error err;
    snprintf(path, sizeof path, "%s/%s", run, folder);
    if (pal_model_open(&model, path, PAL_FOR_TRAINING, cx, &err)) fail_msg("%s", err.text);
    const float found = pal_model_flat_parameters(model)[0];
    pal_model_close(model);
    return found;
}

/* A model that diverged is never the best one, whether its score is not a number or there is no score. */
static void the_best_model_outlives_divergence(void **state) {
    (void)state;
    static const struct {
        double scores[STEPS];
        int best;
    } cases[] = { { { -3, -1, -INFINITY }, 2 },
                  { { -INFINITY, -2, -INFINITY }, 2 },
                  { { -1, -2, -3 }, 1 },
                  { { NAN, NAN, NAN }, 3 },
                  { { -INFINITY, -INFINITY, -INFINITY }, -1 } };
    pal_context *cx = test_context(1, NULL);
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        few f = make_few();
        f.scores = cases[i].scores;
        pal_train_options o = plain;
        o.eval_every = o.checkpoint_every = 1;
        pal_model *model = new_model(cx);
        char run[256], step[64];
        test_directory(run);
        const pal_train_result r = train(run, cx, &f, o, model);
        snprintf(step, sizeof step, "checkpoints/step-%d", cases[i].best);
        assert_int_equal(r.best_step, cases[i].best);
        if (cases[i].best < 0) {
            test_remove(run);
            pal_model_close(model);
            continue;
        }
        assert_true(first_weight_in(run, "checkpoints/best", cx) == first_weight_in(run, step, cx));
        test_remove(run);
        pal_model_close(model);
    }
    pal_context_free(cx);
}

static void a_run_resumed_where_it_shall_stop_makes_no_update(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    few f = make_few();
    pal_train_options o = plain;
    o.stop_after = 2;
    pal_model *model = new_model(cx);
    char run[256];
    test_directory(run);
    train(run, cx, &f, o, model);
    pal_model_close(model);
    pal_train_result r;
    assert_int_equal(resume(run, cx, &f, o, false, &r), PAL_STOPPED);
    assert_int_equal(r.step, 2);
    test_remove(run);
    pal_context_free(cx);
}

/* Training adds to the counts of a checkpoint. One that leaves no room for that is refused, whatever its checksum. */
static void counts_that_could_overflow_are_refused(void **state) {
    (void)state;
    static const char *const counts[] = { "step",    "stage",      "stage_step", "tokens",
                                          "skipped", "loss_count", "correct",    "best_step" };
    const json_int_t most = INT64_C(1) << 62;
    pal_context *cx = test_context(1, NULL);
    few f = make_few();
    pal_train_options o = plain;
    o.stop_after = 1;
    pal_model *model = new_model(cx);
    char run[256];
    test_directory(run);
    train(run, cx, &f, o, model);
    pal_model_close(model);
    json_t *sound;
    int64_t step;
    pal_error err;
    if (pal_checkpoint_open(run, NULL, cx, &model, &sound, &step, &err)) fail_msg("%s", err.text);
    const pal_task task = task_of(&f);
    const pal_trainer trainer = { .run = run, .cx = cx, .task = &task, .options = o };
    pal_train_result r;
    for (size_t i = 0; i < PAL_COUNT(counts); i++)
        for (int beyond = 0; beyond < 2; beyond++) {
            json_t *changed = json_copy(sound);
            json_object_set_new(changed, counts[i], json_integer(most + beyond));
            char says[64];
            snprintf(says, sizeof says, "'%s' is not a count", counts[i]);
            err.text[0] = 0;
            pal_train(&trainer, model, changed, i ? step : most + beyond, &r, &err);
            if (!strstr(err.text, says) != !beyond) fail_msg("%s + %d: %s", counts[i], beyond, err.text);
            json_decref(changed);
        }
    json_decref(sound);
    pal_model_close(model);
    test_remove(run);
    pal_context_free(cx);
}

/* Lines of metrics without what a clock says. */
static json_t *lines_of(const char *run) {
    char path[TEST_PATH];
    size_t size;
    json_t *lines = json_array();
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = (char *)test_read_file(path, &size);
    for (size_t at = 0; at < size;) {
        const size_t length = (size_t)((char *)memchr(text + at, '\n', size - at) - (text + at));
        json_t *line = json_loadb(text + at, length, 0, NULL);
        assert_non_null(line);
        json_object_del(line, "tokens_per_s");
        json_object_del(line, "data_share");
        json_array_append_new(lines, line);
        at += length + 1;
    }
    free(text);
    return lines;
}

static void same_file(const char *run, const char *whole, const char *name) {
    char path[2][TEST_PATH];
    unsigned char *data[2];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/checkpoints/%s", i ? whole : run, name);
        data[i] = test_read_file(path[i], &size[i]);
    }
    if (size[0] != size[1] || memcmp(data[0], data[1], size[0]) != 0) fail_msg("%s differs from %s", path[0], path[1]);
    free(data[0]);
    free(data[1]);
}

/* Once or twice, at any update: the lines of metrics, the best model and the last checkpoint are those of a run
 * that was never stopped. */
static void an_evaluation_that_was_given_up_is_made_when_resumed(void **state) {
    (void)state;
    static const double scores[] = { 0.25, 0.5, 0.375 };
    pal_context *cx = test_context(1, NULL);
    pal_train_options o = plain;
    o.eval_every = 1, o.checkpoint_every = 2;
    few f = make_few();
    f.scores = scores;
    pal_model *model = new_model(cx);
    char whole[256], run[256];
    test_directory(whole);
    const pal_train_result expected = train(whole, cx, &f, o, model);
    pal_model_close(model);
    json_t *lines = lines_of(whole);
    for (int i = 0; i < 4 * STEPS; i++) {
        const int step = 1 + i / 4, times = 1 + i % 2;
        f = make_few();
        f.scores = scores;
        f.given_up = step, f.times = times;
        o.keep = i / 2 % 2;
        o.stop_after = STEPS + 1; /* so that train expects a stop */
        model = new_model(cx);
        test_directory(run);
        pal_train_result r = train(run, cx, &f, o, model);
        pal_model_close(model);
        assert_int_equal(r.step, step);
        if (times == 2) assert_int_equal(resume(run, cx, &f, o, true, &r), PAL_STOPPED);
        o.stop_after = step; /* which it has reached, except for the evaluation */
        assert_int_equal(resume(run, cx, &f, o, true, &r), step < STEPS ? PAL_STOPPED : PAL_OK);
        o.stop_after = 0;
        if (step < STEPS) assert_int_equal(resume(run, cx, &f, o, false, &r), PAL_OK);
        assert_true(r.step == STEPS && r.score == expected.score && r.best_score == expected.best_score);
        assert_int_equal(r.best_step, expected.best_step);
        json_t *found = lines_of(run);
        if (!json_equal(found, lines)) fail_msg("given up at step %d: other lines of metrics", step);
        json_decref(found);
        same_file(run, whole, "best/model.safetensors");
        same_file(run, whole, "step-3/model.safetensors");
        same_file(run, whole, "step-3/optimizer.safetensors");
        same_file(run, whole, "step-3/trainer.json");
        if (!o.keep) same_file(run, whole, "step-2/trainer.json");
        test_remove(run);
    }
    json_decref(lines);
    test_remove(whole);
    pal_context_free(cx);
}

/* Without an interval of evaluations, each stage is evaluated once in its own epoch. */
static int64_t two_epochs(void *self, int stage) {
    (void)self;
    return stage ? 4 : 2;
}
static int64_t two_stages(void *self, int stage) {
    (void)self, (void)stage;
    return 8;
}

static void every_stage_is_evaluated_by_its_own_epoch(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    few f = make_few();
    pal_task task = task_of(&f);
    task.stages = 2, task.epoch = two_epochs, task.steps = two_stages;
    const pal_trainer trainer = { .cx = cx, .task = &task, .options = plain };
    pal_trainer t = trainer;
    const double scores[8] = { 0 };
    f.scores = scores;
    pal_model *model = new_model(cx);
    pal_train_result r;
    pal_error err;
    char run[256];
    test_directory(run);
    t.run = run;
    if (pal_train(&t, model, NULL, 0, &r, &err)) fail_msg("%s", err.text);
    assert_int_equal(f.evaluations, 8 / 2 + 8 / 4);
    test_remove(run);
    pal_model_close(model);
    pal_context_free(cx);
}

/* A memory that is not finite ends with its row: the lane's next row starts anew. */
static void a_carried_memory_recovers_from_what_is_not_a_number(void **state) {
    (void)state;
    enum { ROW = 32, BAD = 7 * 40 % 256 /* token 40 of the only document, in its second row */ };
    const uint64_t length = 220; /* no token twice */
    pal_context *cx = test_context(1, NULL);
    pal_model_config config;
    pal_model *model = NULL;
    pal_work *work;
    pal_text_task *text;
    pal_task task;
    pal_tokenizer *bytes = NULL;
    size_t size;
    pal_error err;
    const pal_preset_options preset = { .task = "text", .vocab = 256, .hidden = 16, .layers = 1, .heads = 2 };
    if (pal_model_preset(&config, "palimpsa-d", &preset, &err) ||
        pal_model_new(&model, &config, 1, PAL_FOR_TRAINING, cx, &err) || pal_tokenizer_open(&bytes, "bytes", &err))
        fail_msg("%s", err.text);
    pal_shards *shards = test_shards("lanes", &length, 1, 1, 0);
    const pal_text_options o = { .sources = 1,
                                 .source = { { .shards = shards, .subset = PAL_SUBSET_TRAIN, .weight = 1 } },
                                 .tokenizer = bytes,
                                 .row = ROW,
                                 .batch = 1,
                                 .accumulate = 1,
                                 .steps = 6,
                                 .carry = true };
    if (pal_text_task_new(&text, cx, &o, &task, &err) || task.prepare(task.self, model, &size, &err) ||
        pal_work_new(&work, model, cx,
                     &(pal_work_options){ .tokens = task.tokens, .sequences = task.sequences, .training = true }, &err))
        fail_msg("%s", err.text);
    const pal_weight *embedding = pal_model_find_weight(model, "model.embeddings.weight");
    assert_non_null(embedding);
    float *weight = &pal_model_flat_parameters(model)[embedding->offset + BAD * 16];
    const float sound = *weight;
    for (int row = 0; row < 6; row++) {
        *weight = row == 1 ? NAN : sound;
        pal_batch b;
        pal_loss loss;
        if (task.batch(task.self, 0, row, 0, &b, &err) || task.learn(task.self, model, work, &b, &loss, &err))
            fail_msg("%s", err.text);
        if (!isfinite(loss.sum) != (row == 1)) fail_msg("row %d has the loss %g", row, loss.sum);
    }
    static const json_int_t sources[] = { 1, -2, INT64_C(1) << 32,
                                          INT64_MAX }; /* there is one: 0, or -1 for none yet */
    for (size_t i = 0; i < PAL_COUNT(sources); i++) {
        json_t *place = task.position(task.self), *lane = json_array_get(json_object_get(place, "lanes"), 0);
        json_object_set_new(lane, "source", json_integer(sources[i]));
        assert_int_equal(task.resume(task.self, place, "here", &err), PAL_E_FORMAT);
        assert_non_null(strstr(err.text, "does not say where in the data lane 0 was"));
        json_decref(place);
    }
    pal_work_free(work);
    pal_text_task_free(text);
    pal_tokenizer_close(bytes);
    pal_shards_close(shards);
    pal_model_close(model);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulated_batches_give_the_update_of_a_whole_one),
        cmocka_unit_test(updates_descend_on_the_loss_that_is_logged),
        cmocka_unit_test(the_best_model_outlives_divergence),
        cmocka_unit_test(a_run_resumed_where_it_shall_stop_makes_no_update),
        cmocka_unit_test(counts_that_could_overflow_are_refused),
        cmocka_unit_test(an_evaluation_that_was_given_up_is_made_when_resumed),
        cmocka_unit_test(every_stage_is_evaluated_by_its_own_epoch),
        cmocka_unit_test(a_carried_memory_recovers_from_what_is_not_a_number),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
