/* SPDX-License-Identifier: MIT */
/* Which tokens wrote what is read: that it adds up, for every rule and in every kind of model. */
#include "support/support.h"

#include <math.h>

#include "base/alloc.h"
#include "memory/rule.h"
#include "model/model.h"
#include "palimpsa/attribution.h"
#include "support/memory_case.h"
#include "support/models.h"

enum { HEADS = 3, DK = 6, DV = 5, T = 37 };

/* The last token's reading of a case, one for every head and channel, and the weights of all values in it. */
static memory_result *read_last(memory_case *c, const pal_context *cx) {
    const size_t values = (size_t)c->shape.heads * (size_t)c->shape.dv, rows = (size_t)c->shape.tokens;
    memset(c->dy, 0, rows * values * sizeof *c->dy);
    for (size_t i = 0; i < values; i++) c->dy[(rows - 1) * values + i] = 1;
    if (c->dy_var) memset(c->dy_var, 0, rows * values * sizeof *c->dy_var);
    for (int p = 0; p < 2; p++)
        if (c->dfinal[p]) memset(c->dfinal[p], 0, c->part[p] * sizeof *c->dfinal[p]);
    return memory_run_case(c, cx, 0, true);
}

static void every_rule_reads_a_weighted_sum_of_values(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    for (int n = 0; pal_memory_at(n); n++) {
        const memory_subject subject = { .rule = pal_memory_name(pal_memory_at(n)),
                                         .cache = pal_memory_keeps_tokens(pal_memory_at(n)) };
        pal_rng rng = pal_rng_at(7, (uint64_t)n);
        const int length = T;
        memory_case *c = memory_case_new(&subject, 1, &length, HEADS, HEADS, DK, DV, false, 0.1, &rng);
        memory_result *r = read_last(c, cx);
        const size_t values = HEADS * DV;
        for (size_t i = 0; i < values; i++) {
            double sum = 0, size = 0;
            for (size_t s = 0; s < T; s++) {
                const size_t at = s * values + i;
                const double term = (double)r->grad[MEMORY_V][at] * (double)c->input[MEMORY_V][at];
                sum += term, size += fabs(term);
            }
            const double error = fabs(sum - (double)r->y[(T - 1) * values + i]) / size;
            if (!(error < 1e-6)) fail_msg("%s, channel %zu: the sum is off by %g of its terms", subject.rule, i, error);
        }
        /* And each weight is that of its own value: with the others at zero nothing else is read. */
        float *own = memory_floats(values), *given = c->input[MEMORY_V];
        for (size_t s = 0; s < T; s += 9) {
            float *alone = memory_floats(T * values);
            memcpy(alone + s * values, given + s * values, values * sizeof *alone);
            c->input[MEMORY_V] = alone;
            memory_result *one = memory_run_case(c, cx, 0, false);
            double scale = 0;
            for (size_t i = 0; i < values; i++) {
                own[i] = r->grad[MEMORY_V][s * values + i] * alone[s * values + i];
                scale = fmax(scale, fabs((double)own[i]));
            }
            for (size_t i = 0; i < values; i++) {
                const double error = fabs((double)own[i] - (double)one->y[(T - 1) * values + i]);
                if (!(error <= 2e-6 * scale + 1e-9))
                    fail_msg("%s, token %zu, channel %zu: off by %g of %g", subject.rule, s, i, error, scale);
            }
            memory_result_free(one);
            pal_free(alone);
        }
        c->input[MEMORY_V] = given;
        pal_free(own);
        memory_result_free(r);
        memory_case_free(c);
    }
    pal_context_free(cx);
}

typedef struct {
    const char *kind;
    int tokens, calls, last, stop_after;
} listener;

static bool check(void *user, const pal_attribution *a) {
    listener *l = user;
    assert_true(a->layer > l->last);
    assert_int_equal(a->tokens, l->tokens);
    if (!(a->error < 1e-6)) fail_msg("%s, layer %d (%s): off by %g", l->kind, a->layer, a->rule, a->error);
    for (int h = 0; h < a->heads; h++) {
        double sum = 0, length = 0;
        for (int t = 0; t < a->tokens; t++) sum += (double)a->shares[t * a->heads + h];
        for (int i = 0; i < a->dv; i++) length += fabs((double)a->read[h * a->dv + i]);
        if (length > 1e-6 && !(fabs(sum - 1) < 1e-3))
            fail_msg("%s, layer %d: shares add up to %g", l->kind, a->layer, sum);
    }
    l->last = a->layer;
    return ++l->calls != l->stop_after;
}

static void models_say_which_tokens_wrote_what_they_read(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    static const int lengths[] = { 1, 2, 40 };
    int32_t ids[40];
    test_ids(ids, 40, TEST_VOCAB, 3);
    for (size_t k = 0; k < test_kind_count; k++) {
        pal_model *model = test_model(&test_kinds[k], PAL_FOR_INFERENCE, cx);
        const pal_model_config *c = pal_model_config_of(model);
        int reading = 0;
        for (int i = 0; i < c->layers; i++) reading += strcmp(pal_model_layer_rule(c, i), "none") != 0;
        for (size_t n = 0; n < PAL_COUNT(lengths); n++) {
            listener l = { .kind = test_kinds[k].name, .tokens = lengths[n], .last = -1 };
            OK(pal_model_attribute(model, cx, ids, lengths[n], PAL_EVERY_LAYER, check, &l, err));
            assert_int_equal(l.calls, reading);
        }
        pal_model_close(model);
    }
    pal_context_free(cx);
}

static void wrong_questions_are_refused(void **state) {
    (void)state;
    pal_error err;
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(test_kind_named("m, attention, mlp alone with relu2"), PAL_FOR_INFERENCE, cx);
    const int32_t ids[3] = { 1, 2, TEST_VOCAB };
    listener l = { .kind = "refused", .tokens = 2, .last = -1, .stop_after = 1 };
    assert_int_equal(pal_model_attribute(model, cx, ids, 2, 9, check, &l, &err), PAL_E_ARGUMENT);
    assert_string_equal(err.text, "attribution of layer 9: the model has layers 0 to 3");
    assert_int_equal(pal_model_attribute(model, cx, ids, 2, 1, check, &l, &err), PAL_E_ARGUMENT);
    assert_string_equal(err.text, "layer 1 neither remembers nor attends: its rule is none");
    assert_int_equal(pal_model_attribute(model, cx, ids, 0, 0, check, &l, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_attribute(model, cx, ids, 3, 0, check, &l, &err), PAL_E_ARGUMENT);
    assert_int_equal(l.calls, 0);
    assert_int_equal(pal_model_attribute(model, cx, ids, 2, PAL_EVERY_LAYER, check, &l, &err), PAL_STOPPED);
    assert_int_equal(l.calls, 1);
    pal_model_close(model);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_reads_a_weighted_sum_of_values),
        cmocka_unit_test(models_say_which_tokens_wrote_what_they_read),
        cmocka_unit_test(wrong_questions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
