/* SPDX-License-Identifier: MIT */
/* One set of claims for every row kernel of support/row_ops.h, at every CPU level and at sizes around the vector
 * widths: against the reference and finite differences, for thread counts, for outputs that lie on inputs and for NaN
 * that must stay in its row. */
#include <math.h>

#include "base/alloc.h"
#include "kernels/activations/activations.h"
#include "kernels/rotary/rotary.h"
#include "support/row_ops.h"

/* Rows equal within accept (relative to the largest of the array), gaps between rows untouched. */
static void compare(const char *what, const row_op *o, const row_array *found, const row_array *expected,
                    double accept) {
    char text[160];
    double worst = 0, scale = 0;
    for (size_t t = 0; t < found->rows; t++)
        for (size_t j = 0; j < found->stride && t * found->stride + j < row_array_floats(found); j++) {
            const size_t at = t * found->stride + j;
            if (j >= found->width) {
                if (!isnan(found->data[at]))
                    fail_msg("%s of %s, width %d: wrote past the end of row %zu", found->name, o->kind->name, o->width,
                             t);
                continue;
            }
            const double diff = fabs((double)found->data[at] - (double)expected->data[at]);
            if (!(diff <= worst)) worst = isnan(diff) ? INFINITY : diff;
            scale = fmax(scale, fabs((double)expected->data[at]));
        }
    if (found->role == ROW_GRAD && o->width <= 2)
        scale = fmax(scale, 4); /* one or two channels: nearly all of it cancels */
    snprintf(text, sizeof text, "%s: %s of %s, %zu rows of %d", what, found->name, o->kind->name, o->rows, o->width);
    if (!(worst <= accept * scale)) fail_msg("%s: error %.3g, accepted %.3g", text, worst / scale, accept);
}

/* Same bits, wherever the rows lie; row `but` is left out. */
static void compare_bits(const char *what, const row_op *o, const row_array *found, const row_array *expected,
                         size_t but) {
    for (size_t t = 0; t < found->rows; t++)
        for (size_t j = 0; j < found->width && t != but; j++)
            if (memcmp(&found->data[t * found->stride + j], &expected->data[t * expected->stride + j], sizeof(float)) !=
                0)
                fail_msg("%s: %s of %s, width %d: row %zu, channel %zu is %.9g, expected exactly %.9g", what,
                         found->name, o->kind->name, o->width, t, j, (double)found->data[t * found->stride + j],
                         (double)expected->data[t * expected->stride + j]);
}

static void every_level_matches_the_reference(void **state) {
    (void)state;
    pal_context *plain = test_context(1, "ref");
    static const int wide[] = { 127, 128, 129, 140, 257, 4099 };
    for (size_t k = 0; k < row_kind_count; k++)
        for (int size = row_kinds[k].smallest; size <= 70 + (int)PAL_COUNT(wide); size++) {
            const int width = size <= 70 ? size : wide[size - 71];
            row_op *expected = row_op_new(&row_kinds[k], 1 + (size_t)size % 7, width, 11), *o = row_op_copy(expected);
            row_op *start = row_op_copy(expected);
            expected->kind->run(expected, plain);
            for (TEST_LEVELS(level)) {
                pal_context *cx = test_context(1, pal_cpu_level_name(level));
                for (int i = 0; i < o->count; i++)
                    memcpy(o->arrays[i].data, start->arrays[i].data, row_array_floats(&o->arrays[i]) * sizeof(float));
                o->kind->run(o, cx);
                for (int i = 0; i < o->count; i++)
                    if (row_array_is_result(&o->arrays[i]))
                        compare(pal_cpu_level_name(level), o, &o->arrays[i], &expected->arrays[i], 1.5e-6);
                pal_context_free(cx);
            }
            row_op_free(expected);
            row_op_free(start);
            row_op_free(o);
        }
    pal_context_free(plain);
}

static double loss_of(row_op *o, const pal_context *cx) {
    o->kind->run(o, cx);
    double loss = 0;
    for (int i = 0; i < o->count; i++) {
        if (o->arrays[i].role != ROW_OUT) continue;
        char name[32];
        snprintf(name, sizeof name, "d%s", o->arrays[i].name);
        const row_array *out = &o->arrays[i], *up = row_array_named(o, name);
        for (size_t t = 0; t < out->rows; t++)
            for (size_t j = 0; j < out->width; j++)
                loss += (double)out->data[t * out->stride + j] * (double)up->data[t * up->stride + j];
    }
    return loss;
}

static void gradients_match_finite_differences(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    const double h = 0x1p-7;
    int checked = 0;
    for (size_t k = 0; k < row_kind_count; k++) {
        if (row_kinds[k].no_differences) continue;
        row_op *o = row_op_new(&row_kinds[k], 6, 13, 5);
        loss_of(o, cx);
        row_op *at = row_op_copy(o);
        for (int i = 0; i < o->count; i++) {
            const row_array *g = &at->arrays[i];
            if (g->role != ROW_GRAD && g->role != ROW_SUM) continue;
            row_array *x = row_array_named(o, g->name + 1);
            assert_non_null(x);
            pal_rng rng = pal_rng_at(3, (uint64_t)i);
            double expected = 0, size = 0;
            float *direction = pal_alloc(x->rows * x->width, sizeof *direction);
            for (size_t t = 0; t < x->rows; t++)
                for (size_t j = 0; j < x->width; j++) {
                    const float d = (float)pal_rng_normal(&rng);
                    const double gradient = (double)g->data[t * g->stride + j] - (g->role == ROW_SUM ? 1 : 0);
                    direction[t * x->width + j] = d;
                    expected += gradient * (double)d;
                    size += gradient * gradient;
                }
            double side[2];
            for (int s = 0; s < 2; s++) {
                for (size_t t = 0; t < x->rows; t++)
                    for (size_t j = 0; j < x->width; j++)
                        x->data[t * x->stride + j] += (float)(s ? -2 * h : h) * direction[t * x->width + j];
                side[s] = loss_of(o, cx);
            }
            memcpy(x->data, row_array_named(at, x->name)->data, row_array_floats(x) * sizeof *x->data);
            const double found = (side[0] - side[1]) / (2 * h);
            if (!(fabs(found - expected) <= 3e-3 * sqrt(size)))
                fail_msg("%s of %s: differences give %.8g, the gradient %.8g", g->name, row_kinds[k].name, found,
                         expected);
            pal_free(direction);
            checked++;
        }
        row_op_free(at);
        row_op_free(o);
    }
    assert_true(checked > 40);
    pal_context_free(cx);
}

static void thread_count_does_not_change_a_bit(void **state) {
    (void)state;
    static const int threads[] = { 1, 2, 3, 7 };
    for (TEST_LEVELS(level))
        for (size_t k = 0; k < row_kind_count; k++) {
            row_op *start = row_op_new(&row_kinds[k], 600, 67, 9), *one = NULL;
            for (size_t i = 0; i < PAL_COUNT(threads); i++) {
                pal_context *cx = test_context(threads[i], pal_cpu_level_name(level));
                row_op *o = row_op_copy(start);
                o->kind->run(o, cx);
                pal_context_free(cx);
                if (!one) {
                    one = o;
                    continue;
                }
                for (int j = 0; j < o->count; j++)
                    if (row_array_is_result(&o->arrays[j]))
                        compare_bits("threads", o, &o->arrays[j], &one->arrays[j], SIZE_MAX);
                row_op_free(o);
            }
            row_op_free(one);
            row_op_free(start);
        }
}

static void outputs_may_lie_on_inputs(void **state) {
    (void)state;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t k = 0; k < row_kind_count; k++)
            for (int pair = 0; pair < 6 && row_kinds[k].on[pair][0]; pair++) {
                row_op *apart = row_op_new(&row_kinds[k], 40, 21, 3), *o = row_op_copy(apart);
                apart->kind->run(apart, cx);
                row_array *out = row_array_named(o, row_kinds[k].on[pair][0]);
                const row_array *in = row_array_named(o, row_kinds[k].on[pair][1]);
                if (in->role == ROW_OUT)
                    memcpy(in->data, row_array_named(apart, in->name)->data, row_array_floats(in) * sizeof *in->data);
                const bool from_y = row_kinds[k].backward_from_output != NULL;
                for (int i = 0; i < o->count; i++) /* only the pass that writes it: other results are left out */
                    if (row_array_is_result(&o->arrays[i]) &&
                        (o->arrays[i].role == ROW_OUT) != (out->role == ROW_OUT) &&
                        !(from_y && o->arrays[i].role == ROW_OUT))
                        o->arrays[i].data = NULL;
                out->data = in->data;
                out->stride = in->stride;
                if (in->role == ROW_OUT)
                    o->kind->backward_from_output(o, cx); /* forward must not run again and overwrite it */
                else o->kind->run(o, cx);
                compare_bits("in place", o, out, row_array_named(apart, out->name), SIZE_MAX);
                row_op_free(apart);
                row_op_free(o);
            }
        pal_context_free(cx);
    }
}

static void nan_stays_in_its_row(void **state) {
    (void)state;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t k = 0; k < row_kind_count; k++) {
            row_op *clean = row_op_new(&row_kinds[k], 9, 19, 2), *start = row_op_copy(clean);
            if (clean->sequences) { /* what follows in the same sequence may see it: one token a sequence here */
                for (int n = 0; n <= 9; n++) clean->cu_seqlens[n] = start->cu_seqlens[n] = n;
                clean->sequences = start->sequences = 9;
            }
            for (int t = 0; t < 9; t++)
                if (clean->kind->labelled) clean->numbers[t] = start->numbers[t] = t % 3;
            clean->kind->run(clean, cx);
            for (int i = 0; i < start->count; i++) {
                if (start->arrays[i].role != ROW_IN) continue;
                row_op *o = row_op_copy(start);
                row_array *in = &o->arrays[i];
                in->data[5 * in->stride + in->width / 2] = NAN;
                o->kind->run(o, cx);
                bool seen = false;
                for (int j = 0; j < o->count; j++) {
                    row_array *out = &o->arrays[j];
                    if (out->role != ROW_OUT && out->role != ROW_GRAD) continue;
                    compare_bits("NaN in row 5", o, out, row_array_named(clean, out->name), 5);
                    for (size_t c = 0; c < out->width && out->role == ROW_OUT; c++)
                        seen |= isnan(out->data[5 * out->stride + c]);
                }
                if (!seen)
                    fail_msg("%s (%s): NaN in %s went unnoticed", row_kinds[k].name, pal_cpu_level_name(level),
                             in->name);
                row_op_free(o);
            }
            row_op_free(start);
            row_op_free(clean);
        }
        pal_context_free(cx);
    }
}

/* What backward adds to is added to, and what was not asked for is not written. */
static void parameter_gradients_add_up_and_may_be_left_out(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    for (size_t k = 0; k < row_kind_count; k++) {
        row_op *once = row_op_new(&row_kinds[k], 50, 17, 8), *twice = row_op_copy(once), *without = row_op_copy(once);
        once->kind->run(once, cx);
        twice->kind->run(twice, cx);
        twice->kind->run(twice, cx);
        for (int i = 0; i < once->count; i++) {
            if (once->arrays[i].role == ROW_SUM) without->arrays[i].data = NULL;
            for (size_t j = 0; once->arrays[i].role == ROW_SUM && j < once->arrays[i].width; j++) {
                const float first = once->arrays[i].data[j] - 1, both = twice->arrays[i].data[j] - 1;
                assert_true(fabsf(both - 2 * first) <= 1e-5f * (1 + fabsf(first)));
            }
        }
        without->kind->run(without, cx);
        for (int i = 0; i < once->count; i++)
            if (once->arrays[i].role == ROW_GRAD)
                compare_bits("left out", once, &without->arrays[i], &once->arrays[i], SIZE_MAX);
        row_op_free(once);
        row_op_free(twice);
        row_op_free(without);
    }
    pal_context_free(cx);
}

static void norms_hold_for_wide_rows_and_any_magnitude(void **state) {
    (void)state;
    static const double magnitudes[] = { 1e-18, 1e-6, 1, 1e6, 1e18 };
    pal_context *plain = test_context(1, "ref");
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t k = 0; k < row_kind_count; k++)
            for (size_t m = 0; row_kinds[k].norm && m < PAL_COUNT(magnitudes); m++) {
                row_op *expected = row_op_new(&row_kinds[k], 2, m == 2 ? 8192 : 500, 4);
                row_array *x = row_array_named(expected, "x");
                for (size_t i = 0; i < row_array_floats(x); i++)
                    x->data[i] = (float)((double)x->data[i] * magnitudes[m] + (m == 2 ? 3 : 0));
                row_op *o = row_op_copy(expected);
                expected->kind->run(expected, plain);
                o->kind->run(o, cx);
                for (int i = 0; i < o->count; i++)
                    if (row_array_is_result(&o->arrays[i]))
                        compare(pal_cpu_level_name(level), o, &o->arrays[i], &expected->arrays[i], 2e-6);
                row_op_free(expected);
                row_op_free(o);
            }
        pal_context_free(cx);
    }
    pal_context_free(plain);
}

static void activations_hold_at_the_ends(void **state) {
    (void)state;
    enum { N = 4001, MIDDLE = N / 2 };
    float *x = test_guarded(N), *y = test_guarded(N), *dy = test_guarded(N), *dx = test_guarded(N);
    for (int i = 0; i < N; i++) x[i] = (float)(i - MIDDLE) * 0.06f, dy[i] = 1;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (pal_activation f = PAL_SILU; f <= PAL_RATIONAL; f++) {
            const pal_activation_args a = {
                .rows = 1, .width = N, .kind = f, .x = { x, N }, .y = { y, N }, .dy = { dy, N }, .dx = { dx, N }
            };
            pal_activate(cx, &a);
            pal_activate_backward(cx, &a, NULL);
            for (int i = 0; i < N; i++) {
                const double v = (double)x[i], e = exp(-fabs(v)), sig = (v >= 0 ? 1 : e) / (1 + e);
                const double value = f == PAL_SILU       ? v * sig
                                     : f == PAL_SIGMOID  ? sig
                                     : f == PAL_SOFTPLUS ? fmax(v, 0) + log1p(e)
                                     : v < 0             ? 1 / (1 - v)
                                                         : 1 + v;
                const double slope = f == PAL_SILU       ? sig * (1 + v * (1 - sig))
                                     : f == PAL_SIGMOID  ? sig * (1 - sig)
                                     : f == PAL_SOFTPLUS ? sig
                                     : v < 0             ? 1 / ((1 - v) * (1 - v))
                                                         : 1;
                /* relative, down to where f32 has no normal numbers; slopes that come from y keep y's own error */
                if (!(fabs((double)y[i] - value) <= 1e-6 * fabs(value) + 2e-36))
                    fail_msg("level %d, f %d: f(%g) = %g, expected %g", (int)level, (int)f, v, (double)y[i], value);
                if (!(fabs((double)dx[i] - slope) <= 1e-6 * fabs(slope) + (f == PAL_SOFTPLUS ? 2e-36 : 1.5e-7)))
                    fail_msg("level %d, f %d: f'(%g) = %.9g, expected %.9g", (int)level, (int)f, v, (double)dx[i],
                             slope);
            }
        }
        pal_context_free(cx);
    }
    test_guarded_free(x, N), test_guarded_free(y, N), test_guarded_free(dy, N), test_guarded_free(dx, N);
}

static void rotary_turns_by_the_position(void **state) {
    (void)state;
    enum { POSITIONS = 5000, D = 10 };
    const int far = 4321;
    pal_context *cx = test_context(2, NULL);
    float *table = test_guarded(pal_rotary_table_floats(POSITIONS, D)),
          *part = test_guarded(pal_rotary_table_floats(7, D));
    pal_rotary_table(cx, table, 0, POSITIONS, D, 10000.0);
    pal_rotary_table(cx, part, far, 7, D, 10000.0);
    test_same_bits("a later part of the table", part, table + (size_t)far * D, 7 * D);
    float x[D], y[D];
    for (int m = 0; m < D; m++) x[m] = (float)(m + 1);
    pal_rotary(
        cx,
        &(pal_rotary_args){
            .sequences = 1, .offsets = &far, .heads = 1, .width = D, .table = table, .x = { x, D }, .y = { y, D } });
    for (int m = 0; m < D / 2; m++) {
        const double angle = far * pow(10000.0, -2.0 * m / D), x1 = (double)x[m], x2 = (double)x[m + D / 2];
        assert_true(fabs((double)y[m] - (x1 * cos(angle) - x2 * sin(angle))) < 2e-6);
        assert_true(fabs((double)y[m + D / 2] - (x2 * cos(angle) + x1 * sin(angle))) < 2e-6);
    }
    test_guarded_free(table, pal_rotary_table_floats(POSITIONS, D));
    test_guarded_free(part, pal_rotary_table_floats(7, D));
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_matches_the_reference),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(thread_count_does_not_change_a_bit),
        cmocka_unit_test(outputs_may_lie_on_inputs),
        cmocka_unit_test(nan_stays_in_its_row),
        cmocka_unit_test(parameter_gradients_add_up_and_may_be_left_out),
        cmocka_unit_test(norms_hold_for_wide_rows_and_any_magnitude),
        cmocka_unit_test(activations_hold_at_the_ends),
        cmocka_unit_test(rotary_turns_by_the_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
