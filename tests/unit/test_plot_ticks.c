/* SPDX-License-Identifier: MIT */
/* Where ticks stand and how they read, over all magnitudes. */
#include <math.h>

#include "plot/ticks.h"
#include "support/support.h"

static void check_ticks(const pal_ticks *t, double lo, double hi, int wanted) {
    if (t->count < 2 || t->count > wanted + wanted / 2 + 5)
        fail_msg("%g .. %g: %d ticks, expected %d", lo, hi, t->count, wanted);
    for (int i = 0; i < t->count; i++) {
        assert_true(t->at[i] >= lo && t->at[i] <= hi);
        assert_true(t->text[i][0] != '\0');
        if (i == 0) continue;
        assert_true(t->at[i] > t->at[i - 1]);
        if (strcmp(t->text[i], t->text[i - 1]) == 0)
            fail_msg("%.17g .. %.17g: two ticks read '%s'", lo, hi, t->text[i]);
    }
    for (int i = 0; i < t->minor_count; i++) assert_true(t->minor[i] >= lo && t->minor[i] <= hi);
}

static void ticks_are_round_increasing_and_told_apart(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(5, 1);
    pal_ticks t;
    for (int k = 0; k < 20000; k++) {
        const double centre = (k % 3 ? 1 : 0) * (pal_rng_uniform(&rng) - 0.5) *
                              pow(10, 30 * (pal_rng_uniform(&rng) - 0.5));
        double lo = centre - pow(10, 40 * (pal_rng_uniform(&rng) - 0.5)),
               hi = centre + pow(10, 40 * (pal_rng_uniform(&rng) - 0.5));
        const int wanted = 2 + (int)pal_rng_below(&rng, 12);
        pal_range_widen(&lo, &hi, false);
        assert_true(lo < hi);
        pal_ticks_linear(&t, lo, hi, wanted);
        check_ticks(&t, lo, hi, wanted);
        const double step = t.at[1] - t.at[0];
        for (int i = 2; i < t.count; i++) assert_true(fabs((t.at[i] - t.at[i - 1]) / step - 1) < 1e-5);
    }
    for (int k = 0; k < 20000; k++) {
        double lo = pow(10, 300 * (pal_rng_uniform(&rng) - 0.5)),
               hi = lo * pow(10, (k % 2 ? 2.5 : 140) * pal_rng_uniform(&rng));
        const int wanted = 2 + (int)pal_rng_below(&rng, 12);
        pal_range_widen(&lo, &hi, true);
        assert_true(lo < hi);
        pal_ticks_log(&t, lo, hi, wanted);
        check_ticks(&t, lo, hi, wanted);
        pal_ticks_doubling(&t, lo, hi, wanted);
        check_ticks(&t, lo, hi, wanted);
    }
    static const char *const lengths[] = { "64", "128", "256" };
    pal_ticks_doubling(&t, 64, 256, 8);
    assert_int_equal(t.count, 3);
    for (int i = 0; i < 3; i++) assert_string_equal(t.text[i], lengths[i]);
    pal_ticks_doubling(&t, 1, 1 << 20, 5);
    assert_in_range(t.count, 4, 6);
    assert_string_equal(t.text[0], "1");
}

static void tick_texts_read_as_people_write(void **state) {
    (void)state;
    static const struct {
        double lo, hi;
        int wanted;
        bool log;
        const char *first, *last;
    } cases[] = {
        { 0, 1, 5, false, "0", "1.0" },      { 0, 20000, 4, false, "0", "20k" },   { 0, 3.3e7, 6, false, "0", "30M" },
        { -2, 2, 4, false, "−2", "2" },      { 0, 3e-3, 6, false, "0", "0.0030" }, { 0, 2e-5, 2, false, "0", "2×10⁻⁵" },
        { 0.01, 10, 4, true, "0.01", "10" }, { 1e-6, 1, 7, true, "10⁻⁶", "10⁰" },  { 1, 50, 6, true, "1", "50" },
        { 0, 2000, 5, false, "0", "2000" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_ticks t;
        if (cases[i].log) pal_ticks_log(&t, cases[i].lo, cases[i].hi, cases[i].wanted);
        else pal_ticks_linear(&t, cases[i].lo, cases[i].hi, cases[i].wanted);
        assert_string_equal(t.text[0], cases[i].first);
        assert_string_equal(t.text[t.count - 1], cases[i].last);
    }
    static const struct {
        double value;
        const char *text;
    } numbers[] = { { 0, "0" },           { 0.98765, "0.9877" },  { 2000, "2000" }, { 257034, "257.0k" },
                    { -1.5e6, "−1.50M" }, { 2e-5, "2×10⁻⁵" },     { NAN, "–" },     { INFINITY, "∞" },
                    { 12.3456, "12.35" }, { 9.9999e-7, "1×10⁻⁶" } };
    for (size_t i = 0; i < PAL_COUNT(numbers); i++) {
        char text[64];
        pal_number_text(text, sizeof text, numbers[i].value);
        assert_string_equal(text, numbers[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_round_increasing_and_told_apart),
        cmocka_unit_test(tick_texts_read_as_people_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
