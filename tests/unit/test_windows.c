/* SPDX-License-Identifier: MIT */
/* Memory windows against plain computations of the same numbers. */
#include "support/support.h"

#include <math.h>

#include "base/alloc.h"
#include "model/model.h"
#include "model/windows.h"
#include "support/models.h"

/* By counting, without sorting. */
static double plain_median(const double *x, size_t n) {
    double low = NAN, high = NAN;
    for (size_t i = 0; i < n; i++) {
        size_t below = 0, equal = 0;
        for (size_t j = 0; j < n; j++) below += x[j] < x[i], equal += x[j] == x[i];
        if (below <= (n - 1) / 2 && (n - 1) / 2 < below + equal) low = x[i];
        if (below <= n / 2 && n / 2 < below + equal) high = x[i];
    }
    return (low + high) / 2;
}

static void near_to(const char *what, double x, double expected, double accept) {
    if (!(fabs(x - expected) <= accept * fabs(expected))) fail_msg("%s is %.9g, expected %.9g", what, x, expected);
}

static void median_of_odd_and_even_counts(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(4, 0);
    for (size_t n = 1; n <= 20; n++) {
        double x[20];
        for (size_t i = 0; i < n; i++) x[i] = (double)pal_rng_below(&rng, 9); /* with repetitions */
        const double expected = plain_median(x, n);
        near_to("median", pal_median(x, n), expected, 0);
    }
    double forever[2] = { INFINITY, INFINITY };
    assert_true(isinf(pal_median(forever, 2)));
}

/* Layer 0 of the recorded models has its time steps and rates in float64. */
static void windows_of_recorded_layer(void **state) {
    (void)state;
    static const char *const names[] = { "mamba2_official", "hybrid_m" };
    for (size_t m = 0; m < PAL_COUNT(names); m++) {
        char path[512];
        pal_context *cx = test_context(2, NULL);
        pal_model *model;
        pal_safetensors *expected;
        pal_windows w;
        snprintf(path, sizeof path, "%s/models/%s", PAL_TEST_GOLDEN, names[m]);
        OK(pal_model_open(&model, path, PAL_FOR_INFERENCE, cx, err));
        snprintf(path, sizeof path, "%s/models/%s/expected.safetensors", PAL_TEST_GOLDEN, names[m]);
        OK(pal_safetensors_open(&expected, path, err));
        const pal_tensor *ids = pal_safetensors_find(expected, "input_ids"),
                         *dt = pal_safetensors_find(expected, "layers.0.op.dt");
        const pal_tensor *A = pal_safetensors_find(expected, "layers.0.op.A"),
                         *g = pal_safetensors_find(expected, "layers.0.op.g");
        const int T = (int)ids->shape[1], H = pal_model_mixer(pal_model_config_of(model))->heads;
        assert_true(T <= 64 && H <= 16);
        int32_t row[64];
        double medians[64];
        for (int t = 0; t < T; t++) {
            double n_t[16];
            row[t] = (int32_t)((const int64_t *)ids->data)[t];
            for (int h = 0; h < H; h++) {
                const double decay = g ? -((const double *)g->data)[t * H + h]
                                       : ((const double *)A->data)[h] * ((const double *)dt->data)[t * H + h];
                n_t[h] = 1 / (1 - exp(-decay));
            }
            medians[t] = plain_median(n_t, (size_t)H);
        }
        OK(pal_windows_measure(&w, model, cx, row, T, NULL, NULL, err));
        for (int t = 0; t < T; t++) near_to("N_t", w.n_t[t], medians[t], 1e-4);
        near_to("median N_t", w.median[0], plain_median(medians, (size_t)T), 1e-4);
        pal_windows_free(&w);
        pal_safetensors_close(expected);
        pal_model_close(model);
        pal_context_free(cx);
    }
}

typedef struct {
    double *n_t; /* (layers, tokens) */
} seen;

static bool take(void *user, const pal_observation *o) {
    const seen *s = user;
    double heads[64];
    for (int t = 0; t < o->tokens; t++) {
        for (int h = 0; h < o->heads; h++) heads[h] = 1 / (1 - exp(-(double)o->decay[t * o->heads + h]));
        s->n_t[o->layer * o->tokens + t] = plain_median(heads, (size_t)o->heads);
    }
    return true;
}

static bool enough(void *user, const pal_observation *o) {
    *(int *)user = o->layer;
    return o->layer < 1;
}

/* A text longer than the pieces it is read in gives what one whole forward gives; and every rank is right. */
static void windows_in_pieces_equal_one_forward(void **state) {
    (void)state;
    static const char *const names[] = { "official mamba2", "hybrid palimpsa-m", "hybrid palimpsa-d", "gated deltanet",
                                         "rule mesa" };
    enum { T = 1100, LAYERS = 3 };
    for (size_t k = 0; k < PAL_COUNT(names); k++) {
        pal_context *cx = test_context(2, NULL);
        pal_model *model = test_model(test_kind_named(names[k]), PAL_FOR_INFERENCE, cx);
        const int layers = pal_model_config_of(model)->layers;
        const int cu[2] = { 0, T };
        int32_t ids[T];
        double n_t[LAYERS * T], median[LAYERS];
        seen s = { .n_t = n_t };
        pal_work *work;
        pal_observer *observer;
        pal_windows w;
        test_ids(ids, T, 29, 7);
        OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = T }, err));
        OK(pal_observer_new(&observer, model, T, 1, err));
        OK(pal_model_observe(model, work, observer,
                             &(pal_batch){ .tokens = T, .sequences = 1, .ids = ids, .cu_seqlens = cu }, take, &s, err));
        int last = -1;
        pal_error why;
        const pal_batch whole = { .tokens = T, .sequences = 1, .ids = ids, .cu_seqlens = cu };
        assert_int_equal(pal_model_observe(model, work, observer, &whole, enough, &last, &why), PAL_STOPPED);
        assert_int_equal(last, 1);
        OK(pal_windows_measure(&w, model, cx, ids, T, NULL, NULL, err));
        for (int i = 0; i < layers; i++) {
            for (int t = 0; t < T; t++) near_to(names[k], w.n_t[i * T + t], n_t[i * T + t], 2e-4);
            median[i] = plain_median(n_t + i * T, T);
            near_to(names[k], w.median[i], median[i], 2e-4);
        }
        for (int r = 1; r < layers; r++) assert_true(median[w.order[r - 1]] >= median[w.order[r]]);
        pal_windows_free(&w);
        pal_observer_free(observer);
        pal_work_free(work);
        pal_model_close(model);
        pal_context_free(cx);
    }
}

/* Constant time steps, the same in layers 0 and 2: they tie, and the lower layer comes first. */
static void equal_windows_rank_the_lower_layer_first(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(test_kind_named("hybrid palimpsa-d"), PAL_FOR_TRAINING, cx);
    static const float rate[] = { -3, -1, -3 };
    int32_t ids[40];
    pal_windows w;
    for (int i = 0; i < 3; i++) {
        static const char *const parts[] = { "dt_proj.weight", "dt_bias", "A_log" };
        for (int p = 0; p < 3; p++) {
            char name[64];
            snprintf(name, sizeof name, "model.layers.%d.attn.%s", i, parts[p]);
            const pal_weight *weight = pal_model_find_weight(model, name);
            assert_non_null(weight);
            for (size_t j = 0; j < weight->count; j++)
                pal_model_flat_parameters(model)[weight->offset + j] = p == 2 ? rate[i] : 0;
        }
    }
    test_ids(ids, 40, 29, 8);
    OK(pal_windows_measure(&w, model, cx, ids, 40, NULL, NULL, err));
    assert_int_equal(w.order[0], 0);
    assert_int_equal(w.order[1], 2);
    assert_int_equal(w.order[2], 1);
    near_to("window", w.median[1], 1 / (1 - exp(-exp(-1.0) * log(2.0))), 1e-5);
    pal_windows_free(&w);
    pal_model_close(model);
    pal_context_free(cx);
}

static void refused(const char *kind, int tokens, const char *words) {
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(test_kind_named(kind), PAL_FOR_INFERENCE, cx);
    int32_t ids[16];
    pal_windows w;
    pal_error err;
    test_ids(ids, 16, 29, 9);
    if (strcmp(kind, "palimpsa-m") == 0)
        model->parameters[pal_model_find_weight(model, "backbone.layers.1.mixer.A_log")->offset] = NAN;
    assert_int_not_equal(pal_windows_measure(&w, model, cx, ids, tokens, NULL, NULL, &err), PAL_OK);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
    pal_model_close(model);
    pal_context_free(cx);
}

static void windows_refuse_what_has_none(void **state) {
    (void)state;
    refused("transformer", 16, "no layer of this model has a memory");
    refused("rule delta", 16, "'delta' has no memory window");
    refused("palimpsa-d", 0, "expected at least 1");
    refused("palimpsa-m", 16, "layer 1, head 0 is not a number at token 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(median_of_odd_and_even_counts),
        cmocka_unit_test(windows_of_recorded_layer),
        cmocka_unit_test(windows_in_pieces_equal_one_forward),
        cmocka_unit_test(equal_windows_rank_the_lower_layer_first),
        cmocka_unit_test(windows_refuse_what_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
