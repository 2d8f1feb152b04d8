/* SPDX-License-Identifier: MIT */
/* Models that are trained in part: what is trained has the gradients that it has in a model trained whole, and what is
 * not stays in the file, in its type. */
#include <math.h>

#include "base/half.h"
#include "layers/dense.h"
#include "model/model.h"
#include "palimpsa/convert.h"
#include "support/files.h"
#include "train/optimiser.h"

enum { TOKENS = 40 };

static pal_context *cx;

static const char *const directories[] = { "qwen3_5_published", "nemotron_h", "granite_4_h", "falcon_h1_norm", "lfm2" };
static const char *const parts[] = {
    "mixer", "norm,*.layers.1.*", "*.layers.2.*", "mlp", "embedding", "head,*.norm.*"
};

/* The gradients of a batch of two sequences. */
static void learn(pal_model *model, double *loss) {
    int32_t ids[TOKENS], targets[TOKENS];
    pal_work *work;
    pal_loss sum;
    const int cu[3] = { 0, 17, TOKENS };
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 37 + 11) % 250;
    pal_shift_targets(targets, ids, TOKENS);
    const pal_batch batch = { .tokens = TOKENS, .sequences = 2, .ids = ids, .targets = targets, .cu_seqlens = cu };
    const pal_work_options options = { .tokens = TOKENS, .sequences = 2, .training = true };
    OK(pal_work_new(&work, model, cx, &options, err));
    memset(pal_model_flat_gradients(model), 0, pal_model_flat(model) * sizeof(float));
    OK(pal_model_learn(model, work, &batch, 1, &sum, NULL, err));
    pal_work_free(work);
    *loss = sum.sum;
}

static double apart(const float *x, const float *y, size_t n) {
    double worst = 0, largest = 1e-30;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)x[i] - (double)y[i]), size = fabs((double)y[i]);
        if (!(d <= worst)) worst = d;
        if (size > largest) largest = size;
    }
    return worst / largest;
}

/* Gradients of all that is trained, and where everything else lies. */
static void compare(const char *path, const char *part, pal_dtype dtype) {
    const pal_optimiser_options only = { .train_only = part };
    pal_model *whole, *partly;
    double expected, found;
    size_t floats = 0, trained = 0, mapped = 0;
    OK(pal_model_open(&whole, path, PAL_FOR_TRAINING, cx, err));
    OK(pal_model_open_partly(&partly, path, pal_optimiser_trains, &only, cx, err));
    learn(whole, &expected);
    learn(partly, &found);
    if (!(fabs(found - expected) <= 1e-5 * expected)) fail_msg("%s, %s: loss %g, not %g", path, part, found, expected);
    for (size_t i = 0; i < pal_model_weight_count(partly); i++) {
        const pal_weight *w = pal_model_weight(partly, i), *same = pal_model_weight(whole, i);
        if (!pal_optimiser_trains(&only, same)) {
            const pal_tensor *t = pal_source_find(&partly->source, w->name);
            if (!w->quantisable) continue;
            if (w->data != t->data || w->type != dtype) fail_msg("%s, %s: %s was copied", path, part, w->name);
            mapped++;
            continue;
        }
        const double error = apart(pal_model_flat_gradients(partly) + w->offset,
                                   pal_model_flat_gradients(whole) + same->offset, w->count);
        if (!(error <= 1e-4)) fail_msg("%s, %s: the gradient of %s is %g apart", path, part, w->name, error);
        trained++;
        floats += (w->count + 15) / 16 * 16;
    }
    assert_true(trained && mapped);
    assert_true(pal_model_flat(partly) <= floats && pal_model_flat(partly) < pal_model_flat(whole));
    pal_model_close(whole);
    pal_model_close(partly);
}

static void gradients_of_a_part_are_those_of_the_whole(void **state) {
    (void)state;
    static const pal_dtype types[] = { PAL_F32, PAL_BF16, PAL_F16 };
    for (size_t d = 0; d < PAL_COUNT(directories); d++) {
        char root[256], original[TEST_PATH], path[TEST_PATH];
        snprintf(original, sizeof original, "%s/families/%s", PAL_TEST_GOLDEN, directories[d]);
        test_directory(root);
        for (size_t t = 0; t < PAL_COUNT(types); t++) {
            test_join(path, root, pal_dtype_name(types[t]));
            static const char *const names[] = { "f32", "bf16", "f16" };
            const pal_convert_options options = {
                .to = PAL_LAYOUT_HF, .dtype = names[t], .tokenizer = "none", .cx = cx
            };
            OK(pal_convert(original, path, &options, NULL, err));
            for (size_t p = 0; p < PAL_COUNT(parts); p++) {
                const bool tied = p == 5 && (d == 0 || d == 2 || d == 4);
                compare(path, tied ? "*.norm.*" : parts[p], types[t]);
            }
        }
        test_remove(root);
    }
}

/* Saved as F32, what was left alone keeps its type; then it is the same model. */
static void what_is_left_alone_is_saved_as_it_was(void **state) {
    (void)state;
    const pal_optimiser_options only = { .train_only = "norm,*.D" };
    char root[256], original[TEST_PATH], half[TEST_PATH], saved[TEST_PATH];
    pal_model *first, *second;
    double loss, again;
    snprintf(original, sizeof original, "%s/families/granite_4_h", PAL_TEST_GOLDEN);
    test_directory(root);
    test_join(half, root, "half");
    test_join(saved, root, "saved");
    const pal_convert_options options = {
        .to = PAL_LAYOUT_HF, .dtype = "bf16", .tokenizer = "none", .cx = cx
    };
    OK(pal_convert(original, half, &options, NULL, err));
    OK(pal_model_open_partly(&first, half, pal_optimiser_trains, &only, cx, err));
    OK(pal_model_save(first, saved, PAL_F32, err));
    OK(pal_model_open_partly(&second, saved, pal_optimiser_trains, &only, cx, err));
    size_t left = 0;
    for (size_t i = 0; i < pal_model_weight_count(second); i++)
        left += pal_model_weight(second, i)->type == PAL_BF16 && pal_model_weight(first, i)->type == PAL_BF16;
    assert_int_equal(left, 6 + 8 + 15 + 1); /* of Mamba2, attention, MLPs; the embedding */
    learn(first, &loss);
    learn(second, &again);
    assert_true(loss == again);
    assert_int_equal(pal_model_flat(first), pal_model_flat(second));
    assert_memory_equal(pal_model_flat_gradients(first), pal_model_flat_gradients(second),
                        pal_model_flat(first) * sizeof(float));
    pal_model_close(first);
    pal_model_close(second);
    test_remove(root);
}

/* A matrix that is decoded in three panels, as rows of a number for each of its own and of its input's channels. */
static void matrices_go_back_in_several_panels(void **state) {
    (void)state;
    enum { IN = 1024, OUT = 2500, ROWS = 3, VALUES = IN * OUT };
    uint16_t *half = malloc(VALUES * sizeof *half);
    float *plain = malloc(VALUES * sizeof *plain), dy[ROWS * OUT], dx[2][ROWS * IN];
    for (int i = 0; i < VALUES; i++) {
        plain[i] = (float)(i % 255 - 127) / 128;
        half[i] = pal_f32_to_bf16(plain[i]);
        assert_true(pal_bf16_to_f32(half[i]) == plain[i]);
    }
    for (int i = 0; i < ROWS * OUT; i++) dy[i] = (float)(i % 17 - 8) / 8;
    for (int k = 0; k < 2; k++) {
        const pal_dtype type = k ? PAL_BF16 : PAL_F32;
        const pal_dense dense = { .in = IN,
                                  .matrices = 1,
                                  .out = { OUT },
                                  .w = { pal_matrix_of(type, k ? (void *)half : (void *)plain, OUT, IN) },
                                  .trains = true };
        pal_timers timers = { 0 };
        pal_pass pass = { .cx = cx, .timers = &timers, .scratch_bytes = pal_dense_scratch_bytes(&dense, ROWS) };
        pass.scratch = aligned_alloc(64, (pass.scratch_bytes + 64) / 64 * 64);
        for (int i = 0; i < ROWS * IN; i++) dx[k][i] = 1; /* is added to */
        pal_dense_backward(&pass, &dense, ROWS, NULL, 0, dy, OUT, PAL_ADD, dx[k], IN);
        free(pass.scratch);
    }
    const double error = apart(dx[1], dx[0], ROWS * IN);
    if (!(error <= 1e-6)) fail_msg("%g of the largest apart", error);
    free(half);
    free(plain);
}

static int make_context(void **state) {
    (void)state;
    pal_error err;
    return pal_context_new(&cx, 2, NULL, &err);
}

static int free_context(void **state) {
    (void)state;
    pal_context_free(cx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_a_part_are_those_of_the_whole),
        cmocka_unit_test(what_is_left_alone_is_saved_as_it_was),
        cmocka_unit_test(matrices_go_back_in_several_panels),
    };
    return cmocka_run_group_tests(tests, make_context, free_context);
}
