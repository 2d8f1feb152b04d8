/* SPDX-License-Identifier: MIT */
/* Schedules, the optimiser's groups, metrics that survive a kill. Whole runs are tested through the program. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "format/run_dir.h"
#include "kernels/optimiser/adamw.h"
#include "support/files.h"
#include "support/support.h"
#include "train/checkpoint.h"
#include "train/metrics_log.h"
#include "train/optimiser.h"
#include "train/schedule.h"

static void schedules_start_rise_and_end_where_they_should(void **state) {
    (void)state;
    const pal_schedule cosine = { .kind = PAL_SCHEDULE_COSINE, .peak = 2, .floor = 0.1, .warmup = 10, .total = 110 };
    assert_true(fabs(pal_schedule_rate(&cosine, 0) - 0.2) < 1e-12);
    assert_true(fabs(pal_schedule_rate(&cosine, 9) - 2) < 1e-12);
    assert_true(fabs(pal_schedule_rate(&cosine, 10) - 2) < 1e-12);
    assert_true(fabs(pal_schedule_rate(&cosine, 60) - 1.1) < 1e-12);
    assert_true(fabs(pal_schedule_rate(&cosine, 110) - 0.2) < 1e-12);
    const pal_schedule constant = { .kind = PAL_SCHEDULE_CONSTANT, .peak = 3, .total = 5 };
    assert_true(pal_schedule_rate(&constant, 0) == 3 && pal_schedule_rate(&constant, 1000) == 3);
    /* Stepped once per epoch: 4 epochs of 5 updates. */
    const pal_schedule epochs = { .kind = PAL_SCHEDULE_COSINE_EPOCH, .peak = 1, .total = 20, .epoch = 5 };
    for (int step = 0; step < 20; step++) {
        const int epoch = step / 5;
        assert_true(fabs(pal_schedule_rate(&epochs, step) - 0.5 * (1 + cos(M_PI * epoch / 4.0))) < 1e-12);
    }
    pal_schedule_kind kind;
    pal_error err;
    assert_int_equal(pal_schedule_parse(&kind, "cosine-epoch", &err), PAL_OK);
    assert_int_equal(kind, PAL_SCHEDULE_COSINE_EPOCH);
    assert_int_equal(pal_schedule_parse(&kind, "linear", &err), PAL_E_ARGUMENT);
}

static pal_model *small_model(const pal_context *cx) {
    const pal_preset_options options = { .task = "mqar", .vocab = 32, .hidden = 16, .heads = 2 };
    pal_model_config config;
    pal_model *model = NULL;
    pal_error err;
    if (pal_model_preset(&config, "palimpsa-d", &options, &err) ||
        pal_model_new(&model, &config, 1, PAL_FOR_TRAINING, cx, &err))
        fail_msg("%s", err.text);
    return model;
}

static const pal_optimiser_options adamw = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.5 };

static void set_gradients(pal_model *model, float value) {
    for (size_t i = 0; i < pal_model_weight_count(model); i++) {
        const pal_weight *w = pal_model_weight(model, i);
        for (size_t k = 0; k < w->count; k++) pal_model_flat_gradients(model)[w->offset + k] = value;
    }
}

/* One update with unit gradients moves a trained weight by rate * factor (and its decay), a frozen one not at all. */
static void groups_freeze_and_scale_by_name(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    pal_model *model = small_model(cx);
    pal_optimiser_options options = adamw;
    options.weight_decay = 0;
    options.freeze = "*.q_proj.weight,*.D";
    options.rates = "*.b_scale=10,*norm*=0.5";
    pal_optimiser *o;
    pal_error err;
    if (pal_optimiser_new(&o, model, &options, NULL, &err)) fail_msg("%s", err.text);
    const size_t n = pal_model_flat(model);
    float *before = pal_alloc(n, sizeof *before);
    memcpy(before, pal_model_flat_parameters(model), n * sizeof *before);
    set_gradients(model, 1);
    assert_true(isfinite(pal_optimiser_step(o, model, cx, 1, 1e-3)));
    size_t trained = 0;
    for (size_t i = 0; i < pal_model_weight_count(model); i++) {
        const pal_weight *w = pal_model_weight(model, i);
        const char *dot = strrchr(w->name, '.');
        double expected = 1e-3;
        if (strstr(w->name, "q_proj") || strcmp(dot, ".D") == 0 || w->frozen || w->unused) expected = 0;
        else if (strcmp(dot, ".b_scale") == 0) expected = 1e-2;
        else if (strstr(w->name, "norm")) expected = 5e-4;
        if (expected > 0) trained += w->count;
        for (size_t k = 0; k < w->count; k++) {
            const double moved = (double)before[w->offset + k] -
                                 (double)pal_model_flat_parameters(model)[w->offset + k];
            if (!(fabs(moved - expected) < 2e-6)) fail_msg("%s moved by %g, expected %g", w->name, moved, expected);
        }
    }
    assert_int_equal(pal_optimiser_trainable(o), trained);
    pal_optimiser_free(o);
    pal_free(before);
    pal_model_close(model);
    pal_context_free(cx);
}

/* Weights, rates and decay reach pal_adamw_bf16, and what is not trained stays. */
static void bf16_precision_rounds_what_is_trained(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    pal_model *model = small_model(cx);
    pal_optimiser_options options = adamw;
    options.bf16 = true;
    options.freeze = "*.D";
    options.rates = "*.b_scale=10";
    pal_optimiser *o;
    OK(pal_optimiser_new(&o, model, &options, NULL, err));
    const size_t n = pal_model_flat(model);
    float *before = pal_alloc(n, sizeof *before);
    for (int update = 1; update <= 3; update++) {
        memcpy(before, pal_model_flat_parameters(model), n * sizeof *before);
        set_gradients(model, 0.3f); /* moments of equal gradients do not depend on the weight */
        assert_true(isfinite(pal_optimiser_step(o, model, cx, 1, 1e-2)));
        for (size_t i = 0; i < pal_model_weight_count(model); i++) {
            const pal_weight *w = pal_model_weight(model, i);
            const char *dot = strrchr(w->name, '.');
            float expected = before[w->offset], m = 0, v = 0;
            pal_adamw_step step = { .lr = strcmp(dot, ".b_scale") == 0 ? 0.1 : 1e-2,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .eps = 1e-8,
                                    .weight_decay = 0.5,
                                    .factor = 1 };
            const float g = 0.3f;
            for (step.step = 1; step.step <= update; step.step++) {
                expected = before[w->offset];
                pal_adamw_bf16(cx, &step, &expected, &m, &v, &g, 1);
            }
            if (strcmp(dot, ".D") == 0 || w->frozen || w->unused) expected = before[w->offset];
            test_same_bits(w->name, &pal_model_flat_parameters(model)[w->offset], &expected, 1);
        }
    }
    pal_optimiser_free(o);
    pal_free(before);
    pal_model_close(model);
    pal_context_free(cx);
}

static void train_only_freezes_the_rest(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_model *model = small_model(cx);
    pal_optimiser_options options = adamw;
    options.train_only = "*.b_scale,*.b_proj.weight";
    pal_optimiser *o;
    pal_error err;
    size_t expected = 0;
    for (size_t i = 0; i < pal_model_weight_count(model); i++) {
        const pal_weight *w = pal_model_weight(model, i);
        if (strstr(w->name, ".b_scale") || strstr(w->name, ".b_proj.weight")) expected += w->count;
    }
    assert_true(expected > 0);
    if (pal_optimiser_new(&o, model, &options, NULL, &err)) fail_msg("%s", err.text);
    assert_int_equal(pal_optimiser_trainable(o), expected);
    pal_optimiser_free(o);
    options.train_only = "*.no_such_weight";
    assert_int_equal(pal_optimiser_new(&o, model, &options, NULL, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "*.no_such_weight"));
    options.train_only = NULL, options.rates = "*=fast";
    assert_int_equal(pal_optimiser_new(&o, model, &options, NULL, &err), PAL_E_ARGUMENT);
    options.rates = NULL, options.freeze = "*";
    assert_int_equal(pal_optimiser_new(&o, model, &options, NULL, &err), PAL_E_ARGUMENT);
    pal_model_close(model);
    pal_context_free(cx);
}

static void decay_can_leave_out_vectors(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    for (int matrices = 0; matrices < 2; matrices++) {
        pal_model *model = small_model(cx);
        pal_optimiser_options options = adamw;
        options.decay_matrices = matrices;
        pal_optimiser *o;
        pal_error err;
        if (pal_optimiser_new(&o, model, &options, NULL, &err)) fail_msg("%s", err.text);
        set_gradients(model, 0);
        const pal_weight *norm = pal_model_find_weight(model, "backbone.ln_f.weight");
        assert_non_null(norm);
        pal_optimiser_step(o, model, cx, 1, 0.1);
        const float after = pal_model_flat_parameters(model)[norm->offset];
        if (matrices) assert_true(after == 1.0f);
        else assert_true(fabsf(after - 0.95f) < 1e-6f);
        pal_optimiser_free(o);
        pal_model_close(model);
    }
    pal_context_free(cx);
}

static void infinite_gradients_change_nothing(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    pal_model *model = small_model(cx);
    pal_optimiser *o;
    pal_error err;
    if (pal_optimiser_new(&o, model, &adamw, NULL, &err)) fail_msg("%s", err.text);
    const size_t n = pal_model_flat(model);
    float *before = pal_alloc(n, sizeof *before);
    memcpy(before, pal_model_flat_parameters(model), n * sizeof *before);
    set_gradients(model, 1);
    pal_model_flat_gradients(model)[pal_model_weight(model, 0)->offset] = NAN;
    assert_true(!isfinite(pal_optimiser_step(o, model, cx, 1, 1e-3)));
    test_same_bits("weights after a skipped update", pal_model_flat_parameters(model), before, n);
    pal_optimiser_free(o);
    pal_free(before);
    pal_model_close(model);
    pal_context_free(cx);
}

static size_t count_lines(const char *path, char *last, size_t size) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = 0;
    while (fgets(last, (int)size, f)) n++;
    fclose(f);
    return n;
}

static void metrics_drop_what_lies_past_the_checkpoint(void **state) {
    (void)state;
    char path[] = "/tmp/palimpsa-metrics-XXXXXX", last[256];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char text[] = "{\"step\":10,\"loss\":1.5}\n{\"step\":20,\"loss\":1.4}\nnot "
                        "json\n{\"step\":15}\n{\"step\":30,\"loss\":1.3}\n{\"step\":40,\"lo";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    pal_metrics_log log;
    pal_error err;
    if (pal_metrics_log_open(&log, path, 25, &err)) fail_msg("%s", err.text);
    assert_int_equal(pal_metrics_log_write(&log, json_pack("{s:i}", "step", 26), &err), PAL_OK);
    assert_int_equal(pal_metrics_log_close(&log, &err), PAL_OK);
    assert_int_equal(count_lines(path, last, sizeof last), 3);
    assert_string_equal(last, "{\"step\":26}\n");
    if (pal_metrics_log_open(&log, path, 0, &err)) fail_msg("%s", err.text);
    assert_int_equal(pal_metrics_log_close(&log, &err), PAL_OK);
    assert_int_equal(count_lines(path, last, sizeof last), 0);
    unlink(path);
    assert_int_equal(pal_metrics_log_open(&log, "/nonexistent/metrics.jsonl", 0, &err), PAL_E_IO);
}

/* The next update adds one to what the file says. */
static void a_count_of_updates_without_room_for_more_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *updates, *says;
    } cases[] = { { "4611686018427387904", "is missing" }, /* 2^62; then its moments are looked for */
                  { "4611686018427387905", "no valid count of updates" },
                  { "9223372036854775807", "no valid count of updates" },
                  { "-1", "no valid count of updates" },
                  { "", "no valid count of updates" } };
    char root[256], path[300];
    test_directory(root);
    snprintf(path, sizeof path, "%s/optimizer.safetensors", root);
    pal_context *cx = test_context(1, NULL);
    pal_model *model = small_model(cx);
    pal_optimiser *o;
    OK(pal_optimiser_new(&o, model, &adamw, NULL, err));
    const float one = 1;
    const pal_tensor tensor = { .name = "m", .dtype = PAL_F32, .rank = 1, .shape = { 1 }, .count = 1, .data = &one };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_error why = { 0 };
        const char *const metadata[] = { "updates", cases[i].updates, NULL };
        OK(pal_safetensors_write(path, &tensor, 1, metadata, err));
        assert_int_equal(pal_optimiser_load(o, model, path, &why), PAL_E_FORMAT);
        if (!strstr(why.text, cases[i].says)) fail_msg("%s: %s", cases[i].updates, why.text);
    }
    test_remove(root);
    pal_optimiser_free(o);
    pal_model_close(model);
    pal_context_free(cx);
}

/* Opening a run directory gets the checkpoint that resuming would continue from. */
static void a_damaged_checkpoint_is_passed_over_by_every_reader(void **state) {
    (void)state;
    static const char *const files[] = { "model.safetensors", "optimizer.safetensors", "trainer.json", "config.json" };
    pal_context *cx = test_context(1, NULL);
    pal_model *model = small_model(cx);
    pal_optimiser *o;
    pal_error err;
    char root[256];
    if (pal_optimiser_new(&o, model, &adamw, NULL, &err)) fail_msg("%s", err.text);
    for (size_t f = 0; f <= PAL_COUNT(files); f++) { /* the last round damages nothing */
        test_directory(root);
        for (int64_t step = 8; step <= 10; step += 2) { /* 10 is newer than 8, but not by the alphabet */
            json_t *trainer = json_pack("{s:i}", "step", (int)step);
            pal_model_flat_parameters(model)[0] = (float)step;
            if (pal_checkpoint_write(root, step, model, o, trainer, 0, (pal_checkpoint_more){ 0 }, &pal_comm_alone,
                                     &err))
                fail_msg("%s", err.text);
            json_decref(trainer);
        }
        if (f < PAL_COUNT(files)) {
            char path[512];
            snprintf(path, sizeof path, "%s/checkpoints/step-10/%s", root, files[f]);
            FILE *file = fopen(path, "r+b");
            assert_non_null(file);
            fseek(file, -3, SEEK_END);
            const int byte = fgetc(file);
            fseek(file, -3, SEEK_END);
            fputc(byte ^ 1, file);
            fclose(file);
        }
        const float expected = f < PAL_COUNT(files) ? 8 : 10;
        pal_model *resumed, *opened = NULL;
        json_t *trainer;
        int64_t step;
        if (pal_checkpoint_open(root, NULL, cx, &resumed, &trainer, &step, &err) ||
            pal_model_open(&opened, root, PAL_FOR_INFERENCE, cx, &err))
            fail_msg("%s", err.text);
        assert_true(step == (int64_t)expected && pal_model_flat_parameters(resumed)[0] == expected);
        float first;
        pal_weight_read(pal_model_weight(opened, 0), 0, 1, &first);
        if (first != expected)
            fail_msg("%s: opened step %g, resumed from step %g", f < PAL_COUNT(files) ? files[f] : "whole",
                     (double)first, (double)expected);
        json_decref(trainer);
        pal_model_close(resumed);
        pal_model_close(opened);
        test_remove(root);
    }
    pal_optimiser_free(o);
    pal_model_close(model);
    pal_context_free(cx);
}

/* Two checkpoints, of steps 1 and 2; the first parameter is the step. */
static void write_two(const char *root, pal_model *model) {
    pal_optimiser *o;
    OK(pal_optimiser_new(&o, model, &adamw, NULL, err));
    for (int64_t step = 1; step <= 2; step++) {
        json_t *trainer = json_pack("{s:i}", "step", (int)step);
        pal_model_flat_parameters(model)[0] = (float)step;
        OK(pal_checkpoint_write(root, step, model, o, trainer, 0, (pal_checkpoint_more){ 0 }, &pal_comm_alone, err));
        json_decref(trainer);
    }
    pal_optimiser_free(o);
}

static void a_checkpoint_that_does_not_fit_into_memory_is_not_passed_over(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_model *model = small_model(cx);
    char root[256];
    test_directory(root);
    write_two(root, model);
    bool opened = false;
    for (uint64_t k = 1; !opened; k++) {
        pal_model *resumed;
        json_t *trainer;
        int64_t step = 0;
        pal_error err;
        const uint64_t before = pal_alloc_count();
        pal_alloc_fail_once(k);
        const pal_status st = pal_checkpoint_open(root, NULL, cx, &resumed, &trainer, &step, &err);
        opened = pal_alloc_count() - before < k;
        pal_alloc_fail_once(0);
        if (st ? st != PAL_E_MEMORY : step != 2)
            fail_msg("allocation %d failed: status %d, step %d", (int)k, (int)st, (int)step);
        json_decref(trainer);
        pal_model_close(resumed);
    }
    test_remove(root);
    pal_model_close(model);
    pal_context_free(cx);
}

/* Checkpoints that are passed over, one after the other, until none is left. */
static void a_run_without_a_usable_checkpoint_says_why(void **state) {
    (void)state;
    static const struct {
        const char *file, *json, *says; /* of step 2, whose trainer.json keeps its checksum */
    } cases[] = {
        { "trainer.json", "{", "'}' expected" },
        { "trainer.json", "{\"step\":2}", "trainer.json: its checksum is" },
        { "trainer.json", "{\"step\":2,\"checksum\":\"0123456789abcdef\"}", "expected 0123456789abcdef" },
        { "config.json", "{}", "config.json: its checksum is" },
        { "optimizer.safetensors", NULL, "optimizer.safetensors: cannot open" },
    };
    pal_context *cx = test_context(1, NULL);
    pal_model *model = small_model(cx), *opened;
    json_t *trainer;
    int64_t step;
    bool finished;
    char root[256], path[600], newest[600];
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_error why = { 0 };
        test_directory(root);
        write_two(root, model);
        for (int n = 2; n >= 1; n--) {
            snprintf(path, sizeof path, "%s/checkpoints/step-%d/%s", root, n, cases[i].file);
            if (cases[i].json) test_write_text(path, cases[i].json);
            else unlink(path);
            if (n == 2) {
                OK(pal_checkpoint_open(root, NULL, cx, &opened, &trainer, &step, err));
                assert_int_equal(step, 1);
                pal_model_close(opened);
                json_decref(trainer);
                OK(pal_run_newest(root, newest, sizeof newest, err));
                assert_non_null(strstr(newest, "step-1"));
            }
        }
        assert_int_equal(pal_checkpoint_open(root, NULL, cx, &opened, &trainer, &step, &why), PAL_E_FORMAT);
        if (!strstr(why.text, "none of its 2 checkpoints is usable") || !strstr(why.text, cases[i].says))
            fail_msg("case %zu: %s", i, why.text);
        assert_true(!opened && !trainer);
        assert_int_equal(pal_run_newest(root, newest, sizeof newest, &why), PAL_E_FORMAT);
        assert_non_null(strstr(why.text, "none of its checkpoints is usable"));
        OK(pal_checkpoint_finished(root, &finished, err));
        assert_false(finished);
        test_remove(root);
    }
    pal_model_close(model);
    pal_context_free(cx);
}

/* Names that are not checkpoints, models that someone laid out like a run, what a killed process left. */
static void folders_of_checkpoints_may_hold_more(void **state) {
    (void)state;
    static const char *const others[] = {
        "step-", "step-x", "step-3x", "step-99999999999999999999", "best", ".hidden"
    };
    pal_context *cx = test_context(1, NULL);
    pal_model *model = small_model(cx), *opened;
    pal_error why = { 0 };
    json_t *trainer;
    int64_t step;
    size_t count;
    char root[256], path[300], newest[400];
    test_directory(root);
    assert_int_equal(pal_run_newest(root, newest, sizeof newest, &why), PAL_E_IO);
    OK(pal_checkpoint_open(root, NULL, cx, &opened, &trainer, &step, err)); /* a run that has only begun */
    assert_null(opened);
    write_two(root, model);
    snprintf(path, sizeof path, "%s/checkpoints", root);
    for (size_t i = 0; i < PAL_COUNT(others); i++) {
        snprintf(newest, sizeof newest, "%s/%s", path, others[i]);
        assert_int_equal(mkdir(newest, 0777), 0);
    }
    snprintf(newest, sizeof newest, "%s/.step-7.tmp", path);
    assert_int_equal(mkdir(newest, 0777), 0);
    int64_t *steps = pal_run_steps(path, &count, false);
    assert_true(count == 2 && steps[0] == 2 && steps[1] == 1);
    pal_free(steps);
    assert_int_equal(access(newest, F_OK), 0);
    steps = pal_run_steps(path, &count, true);
    assert_int_equal(count, 2);
    pal_free(steps);
    assert_int_not_equal(access(newest, F_OK), 0);
    for (int n = 1; n <= 2; n++) {
        snprintf(newest, sizeof newest, "%s/step-%d/trainer.json", path, n);
        assert_int_equal(unlink(newest), 0);
    }
    OK(pal_run_newest(root, newest, sizeof newest, err));
    assert_non_null(strstr(newest, "step-2"));
    assert_int_equal(pal_run_newest(root, newest, 8, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "too long"));
    test_remove(root);
    pal_model_close(model);
    pal_context_free(cx);
}

/* In any file of the newest checkpoint: it is passed over, or nothing changed by it. */
static void any_damage_to_a_checkpoint_is_seen(void **state) {
    (void)state;
    static const char *const files[] = { "model.safetensors", "optimizer.safetensors", "trainer.json", "config.json" };
    pal_context *cx = test_context(1, NULL);
    pal_model *model = small_model(cx);
    pal_rng rng = pal_rng_at(41, 0);
    char root[256], path[512];
    test_directory(root);
    write_two(root, model);
    for (size_t f = 0; f < PAL_COUNT(files); f++) {
        size_t size, seen = 0;
        snprintf(path, sizeof path, "%s/checkpoints/step-2/%s", root, files[f]);
        unsigned char *bytes = test_read_file(path, &size);
        const int flips = test_cases(25, 2500), cuts = test_cases(10, (int)size);
        for (int i = 0; i < flips + cuts; i++) {
            const uint32_t at = pal_rng_below(&rng, (uint32_t)size), bit = pal_rng_below(&rng, 8);
            const size_t cut = (size_t)(i - flips) * size / (size_t)cuts;
            bytes[at] ^= (unsigned char)(1u << bit);
            if (i < flips) test_write_file(path, bytes, size);
            bytes[at] ^= (unsigned char)(1u << bit);
            if (i >= flips) test_write_file(path, bytes, cut);
            pal_model *resumed;
            json_t *trainer;
            int64_t step;
            OK(pal_checkpoint_open(root, NULL, cx, &resumed, &trainer, &step, err));
            const float *there = pal_model_flat_parameters(resumed), *here = pal_model_flat_parameters(model);
            if (step == 2 && memcmp(there, here, pal_model_flat(model) * sizeof *here) != 0)
                fail_msg("%s: damage at byte %zu was not seen", files[f], i < flips ? (size_t)at : cut);
            seen += step == 1;
            json_decref(trainer);
            pal_model_close(resumed);
        }
        if (seen < (size_t)(flips + cuts) - (f < 2 ? 0 : (size_t)(flips + cuts) / 10))
            fail_msg("%s: damaged %d times, seen %zu times", files[f], flips + cuts, seen);
        test_write_file(path, bytes, size);
        free(bytes);
    }
    test_remove(root);
    pal_model_close(model);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_start_rise_and_end_where_they_should),
        cmocka_unit_test(groups_freeze_and_scale_by_name),
        cmocka_unit_test(bf16_precision_rounds_what_is_trained),
        cmocka_unit_test(train_only_freezes_the_rest),
        cmocka_unit_test(decay_can_leave_out_vectors),
        cmocka_unit_test(infinite_gradients_change_nothing),
        cmocka_unit_test(metrics_drop_what_lies_past_the_checkpoint),
        cmocka_unit_test(a_count_of_updates_without_room_for_more_is_refused),
        cmocka_unit_test(a_damaged_checkpoint_is_passed_over_by_every_reader),
        cmocka_unit_test(a_checkpoint_that_does_not_fit_into_memory_is_not_passed_over),
        cmocka_unit_test(a_run_without_a_usable_checkpoint_says_why),
        cmocka_unit_test(folders_of_checkpoints_may_hold_more),
        cmocka_unit_test(any_damage_to_a_checkpoint_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
