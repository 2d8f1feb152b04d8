/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/alloc.h"
#include "memory/rule.h"
#include "support/support.h"

static const pal_tensor *tensor(const pal_safetensors *file, const char *name) {
    const pal_tensor *t = pal_safetensors_find(file, name);
    if (!t) fail_msg("%s is missing", name);
    return t;
}

static void attention_matches_golden(void **state) {
    (void)state;
    pal_safetensors *file;
    pal_error err;
    if (pal_safetensors_open(&file, PAL_TEST_GOLDEN "/ops/prim_attention_gqa.safetensors", &err)) fail_msg("%s", err.text);
    const pal_tensor *q = tensor(file, "in.q"), *k = tensor(file, "in.k"), *v = tensor(file, "in.v"), *dy = tensor(file, "in.do");
    const pal_tensor *y = tensor(file, "out.o"), *dq = tensor(file, "grad.q"), *dk = tensor(file, "grad.k"), *dv = tensor(file, "grad.v");
    const int batch = (int)q->shape[0], length = (int)q->shape[1];
    int cu[16];
    for (int n = 0; n <= batch; n++) cu[n] = n * length;
    pal_memory_run run = { .shape = { .sequences = batch, .tokens = batch * length, .cu_seqlens = cu, .heads = (int)q->shape[2],
                                      .key_heads = (int)k->shape[2], .dk = (int)q->shape[3], .dv = (int)v->shape[3] } };
    const size_t qw = (size_t)(q->shape[2] * q->shape[3]), kw = (size_t)(k->shape[2] * k->shape[3]), vw = (size_t)(v->shape[2] * v->shape[3]);
    run.in = (pal_memory_inputs){ .q = { q->data, qw }, .k = { k->data, kw }, .v = { v->data, vw }, .scale = 1.0f / sqrtf((float)q->shape[3]) };
    run.dy = (pal_const_view){ dy->data, (size_t)(q->shape[2] * v->shape[3]) };
    const pal_memory_rule *rule = pal_memory_find("attention");
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        float *gy = test_guarded(y->count), *gq = test_guarded(dq->count), *gk = test_guarded(dk->count), *gv = test_guarded(dv->count);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
