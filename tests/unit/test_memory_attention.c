/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/alloc.h"
#include "support/memory_harness.h"

/* The rule in float64. */
static double loss(const memory_case *c, const memory_doubles *x) {
    const pal_memory_shape *s = &c->shape;
    const size_t H = (size_t)s->heads, KH = (size_t)s->key_heads, dk = (size_t)s->dk, dv = (size_t)s->dv;
    double sum = 0;
    for (size_t n = 0; n < (size_t)s->sequences; n++)
        for (size_t h = 0; h < H; h++)
            for (size_t t = (size_t)c->cu[n]; t < (size_t)c->cu[n + 1]; t++) {
                double total = 0, along = 0; /* along: sum of exp(score) v.dy; scores of a test do not overflow */
                for (size_t u = (size_t)c->cu[n]; u <= t; u++) {
                    double score = 0, vdy = 0;
                    for (size_t j = 0; j < dk; j++)
                        score += x->input[0][(t * H + h) * dk + j] * x->input[1][(u * KH + h * KH / H) * dk + j];
                    for (size_t i = 0; i < dv; i++)
                        vdy += x->input[2][(u * KH + h * KH / H) * dv + i] * (double)c->dy[(t * H + h) * dv + i];
                    total += exp((double)c->scale * score);
                    along += exp((double)c->scale * score) * vdy;
                }
                sum += along / total;
            }
    return sum;
}

static const memory_subject attention = { .rule = "attention", .loss = loss, .cache = true };

static const pal_tensor *tensor(const pal_safetensors *file, const char *name) {
    const pal_tensor *t = pal_safetensors_find(file, name);
    if (!t) fail_msg("%s is missing", name);
    return t;
}

static void attention_matches_golden(void **state) {
    (void)state;
    pal_safetensors *file;
    pal_error err;
    if (pal_safetensors_open(&file, PAL_TEST_GOLDEN "/ops/prim_attention_gqa.safetensors", &err))
        fail_msg("%s", err.text);
    const pal_tensor *q = tensor(file, "in.q"), *k = tensor(file, "in.k"), *v = tensor(file, "in.v"),
                     *dy = tensor(file, "in.do");
    const pal_tensor *y = tensor(file, "out.o"), *dq = tensor(file, "grad.q"), *dk = tensor(file, "grad.k"),
                     *dv = tensor(file, "grad.v");
    const int batch = (int)q->shape[0], length = (int)q->shape[1];
    int cu[16];
    for (int n = 0; n <= batch; n++) cu[n] = n * length;
    pal_memory_run run = { .shape = { .sequences = batch,
                                      .tokens = batch * length,
                                      .cu_seqlens = cu,
                                      .heads = (int)q->shape[2],
                                      .key_heads = (int)k->shape[2],
                                      .dk = (int)q->shape[3],
                                      .dv = (int)v->shape[3] } };
    const size_t qw = (size_t)(q->shape[2] * q->shape[3]), kw = (size_t)(k->shape[2] * k->shape[3]),
                 vw = (size_t)(v->shape[2] * v->shape[3]);
    run.in = (pal_memory_inputs){
        .q = { q->data, qw }, .k = { k->data, kw }, .v = { v->data, vw }, .scale = 1.0f / sqrtf((float)q->shape[3])
    };
    run.dy = (pal_const_view){ dy->data, (size_t)(q->shape[2] * v->shape[3]) };
    const pal_memory_rule *rule = pal_memory_find("attention");
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        float *gy = test_guarded(y->count), *gq = test_guarded(dq->count), *gk = test_guarded(dk->count),
              *gv = test_guarded(dv->count);
        run.saved = pal_alloc(pal_memory_saved_floats(rule, &run.shape), sizeof(float));
        run.y = (pal_view){ gy, run.dy.stride };
        run.grad = (pal_memory_gradients){ .q = { gq, qw }, .k = { gk, kw }, .v = { gv, vw } };
        run.scratch = pal_alloc(pal_memory_scratch_bytes(rule, cx, &run.shape, PAL_FORWARD) + 64, 1);
        if (pal_memory_forward(rule, cx, &run, &err)) fail_msg("%s", err.text);
        pal_free(run.scratch);
        run.scratch = pal_alloc(pal_memory_scratch_bytes(rule, cx, &run.shape, PAL_BACKWARD) + 64, 1);
        if (pal_memory_backward(rule, cx, &run, &err)) fail_msg("%s", err.text);
        pal_free(run.scratch);
        assert_true(test_nmax_f64(gy, y->data, y->count) <= 2e-6);
        assert_true(test_nmax_f64(gq, dq->data, dq->count) <= 5e-6);
        assert_true(test_nmax_f64(gk, dk->data, dk->count) <= 5e-6);
        assert_true(test_nmax_f64(gv, dv->data, dv->count) <= 5e-6);
        pal_free(run.saved);
        test_guarded_free(gy, y->count);
        test_guarded_free(gq, dq->count);
        test_guarded_free(gk, dk->count);
        test_guarded_free(gv, dv->count);
        pal_context_free(cx);
    }
    pal_safetensors_close(file);
}

/* Scores of many hundreds: exp of them alone would overflow, so would a maximum taken over masked keys. */
static void attention_survives_huge_scores(void **state) {
    (void)state;
    static const int lengths[] = { 150 };
    pal_rng rng = pal_rng_at(32, 0);
    memory_case *c = memory_case_new(&attention, 1, lengths, 2, 1, 16, 24, false, 1, &rng);
    c->scale = 300.0f;
    pal_context *ref = test_context(1, "ref"), *cx = test_context(1, NULL);
    memory_result *exact = memory_run_case(c, ref, 0, true), *x = memory_run_case(c, cx, 0, true);
    test_near("y", x->y, exact->y, 150 * 48, 1e-3); /* a score of 1000 is known to 1e-4 in single precision */
    for (int i = 0; i < 3; i++) test_near("gradient", x->grad[i], exact->grad[i], c->count[i], 2e-3);
    memory_result_free(exact);
    memory_result_free(x);
    memory_case_free(c);
    pal_context_free(ref);
    pal_context_free(cx);
}

/* A NaN in a query must reach its output, and no other token's; one in a key every output that sees it, and no other
 * sequence's. */
static void attention_shows_a_nan_where_it_is(void **state) {
    (void)state;
    static const int lengths[] = { 70, 80 };
    pal_rng rng = pal_rng_at(33, 0);
    for (TEST_LEVELS(level)) {
        memory_case *c = memory_case_new(&attention, 2, lengths, 1, 1, 8, 5, false, 1, &rng);
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        memory_result *clean = memory_run_case(c, cx, 0, false);
        c->input[0][20 * 8 + 3] = NAN;
        memory_result *x = memory_run_case(c, cx, 0, false);
        for (int i = 0; i < 5; i++) assert_true(isnan(x->y[20 * 5 + i]));
        test_same_bits("before", x->y, clean->y, 20 * 5);
        test_same_bits("after", x->y + 21 * 5, clean->y + 21 * 5, 129 * 5);
        memory_result_free(x);
        c->input[0][20 * 8 + 3] = 0;
        c->input[1][30 * 8 + 3] = NAN;
        x = memory_run_case(c, cx, 0, false);
        for (int i = 30 * 5; i < 70 * 5; i++) assert_true(isnan(x->y[i]));
        test_same_bits("the other sequence", x->y + 70 * 5, clean->y + 70 * 5, 80 * 5);
        memory_result_free(clean);
        memory_result_free(x);
        memory_case_free(c);
        pal_context_free(cx);
    }
}

static void attention_refuses_gradients_through_a_cache(void **state) {
    (void)state;
    enum { T = 3, D = 2, CONTEXT = 8 };
    const int cu[] = { 0, T }, past[] = { 4 };
    float q[T * D] = { 0 }, y[T * D] = { 0 }, dy[T * D] = { 0 }, saved[T] = { 0 }, cache[2 * CONTEXT * D] = { 0 },
                *states[] = { cache };
    const pal_memory_rule *rule = pal_memory_find("attention");
    pal_context *cx = test_context(1, NULL);
    pal_memory_run run = { .shape = { 1, T, cu, 1, 1, D, D, CONTEXT },
                           .state = states,
                           .past = past,
                           .saved = saved,
                           .y = { y, D },
                           .dy = { dy, D } };
    pal_error err;
    run.in = (pal_memory_inputs){ .q = { q, D }, .k = { q, D }, .v = { q, D }, .scale = 1 };
    run.scratch = pal_alloc(pal_memory_scratch_bytes(rule, cx, &run.shape, PAL_BACKWARD), 1);
    assert_int_equal(pal_memory_backward(rule, cx, &run, &err), PAL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "sequence 0 had 4 tokens"));
    run.fresh = true;
    assert_int_equal(pal_memory_backward(rule, cx, &run, &err), PAL_OK);
    run.dfinal[1] = cache;
    assert_int_equal(pal_memory_backward(rule, cx, &run, &err), PAL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "part V"));
    run.fresh = false; /* and a cache that is too full is refused by forward */
    run.shape.context = 6;
    assert_int_equal(pal_memory_forward(rule, cx, &run, &err), PAL_E_ARGUMENT);
    pal_free(run.scratch);
    pal_context_free(cx);
}

static void attention_scratch_follows_from_the_sizes_alone(void **state) {
    (void)state;
    static const int even[] = { 0, 50, 100 }, uneven[] = { 0, 1, 100 };
    const pal_memory_rule *rule = pal_memory_find("attention");
    pal_context *cx = test_context(2, NULL);
    pal_memory_shape shape = { .sequences = 2, .tokens = 100, .heads = 2, .key_heads = 1, .dk = 8, .dv = 8 };
    const size_t bytes = pal_memory_scratch_bytes(rule, cx, &shape, PAL_BACKWARD);
    shape.cu_seqlens = even;
    assert_int_equal(pal_memory_scratch_bytes(rule, cx, &shape, PAL_BACKWARD), bytes);
    shape.cu_seqlens = uneven;
    assert_int_equal(pal_memory_scratch_bytes(rule, cx, &shape, PAL_BACKWARD), bytes);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_golden),
        MEMORY_TESTS(attention),
        cmocka_unit_test(attention_survives_huge_scores),
        cmocka_unit_test(attention_scratch_follows_from_the_sizes_alone),
        cmocka_unit_test(attention_shows_a_nan_where_it_is),
        cmocka_unit_test(attention_refuses_gradients_through_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
