/* SPDX-License-Identifier: MIT */
#include "support/support.h"

#include <math.h>

#include "base/blocks.h"
#include "kernels/product/product.h"

static const pal_dtype types[] = { PAL_F32,  PAL_F16,  PAL_BF16, PAL_Q8_0, PAL_Q4_0,
                                   PAL_Q5_0, PAL_Q4_K, PAL_Q5_K, PAL_Q6_K };

static bool runs_here(const pal_variant *v) { return !(v->need & ~pal_cpu_features()); }

/* A matrix of random values in some type, and scratch; everything ends at an inaccessible page. */
typedef struct {
    pal_matrix w;
    float *x, *y, *expected, *blocks, *scratch;
    size_t nx, ny, nb, ns; /* floats */
    pal_matvec_args a;
    pal_rounded_rows rounded;
} setup;

static float *guarded_bytes(size_t bytes, size_t *floats, char **begin) {
    *floats = (bytes + 3) / 4;
    float *block = test_guarded(*floats);
    *begin = (char *)block + (*floats * 4 - bytes);
    return block;
}

static setup set_up(pal_dtype type, int rows, int in, int out, pal_rng *rng) {
    setup s = { .nx = (size_t)rows * (size_t)in, .ny = (size_t)rows * (size_t)out };
    const pal_block_format *format = pal_block_format_of(type);
    const size_t count = (size_t)in * (size_t)out, bytes = count / format->values * format->bytes;
    char *begin;
    s.blocks = guarded_bytes(bytes, &s.nb, &begin);
    float *values = malloc(count * sizeof *values);
    test_fill_normal(values, count, rng, 1);
    pal_blocks_encode(format, values, count, begin);
    free(values);
    s.w = pal_matrix_of(type, begin, out, in);
    s.x = test_guarded(s.nx), s.y = test_guarded(s.ny), s.expected = test_guarded(s.ny);
    test_fill_normal(s.x, s.nx, rng, 1);
    s.ns = pal_matvec_scratch_bytes(rows, in) / 4 + 16;
    s.scratch = test_guarded(s.ns);
    s.a = (pal_matvec_args){ .rows = rows, .x = s.x, .ldx = (size_t)in, .y = s.y, .ldy = (size_t)out };
    s.a.scratch = (void *)(((uintptr_t)s.scratch + 63) & ~(uintptr_t)63);
    if (format->values > 1) s.rounded = pal_matvec_place(s.a.scratch, (size_t)rows, (size_t)in);
    return s;
}

static void tear_down(setup *s) {
    test_guarded_free(s->blocks, s->nb);
    test_guarded_free(s->x, s->nx);
    test_guarded_free(s->y, s->ny);
    test_guarded_free(s->expected, s->ny);
    test_guarded_free(s->scratch, s->ns);
}

/* Rounding errors of `in` products and sums: every one at most half a unit of the largest sum there can be. */
static void check_outputs(const setup *s, const char *what) {
    const size_t in = (size_t)s->w.columns, out = (size_t)s->w.rows;
    float *w = malloc(in * sizeof *w);
    for (size_t o = 0; o < out; o++) {
        float largest = 0;
        pal_matrix_row(&s->w, o, w);
        for (size_t i = 0; i < in; i++) largest = fmaxf(largest, fabsf(w[i]));
        for (size_t r = 0; r < (size_t)s->a.rows; r++) {
            double sum = 0;
            for (size_t i = 0; i < in; i++) sum += fabs((double)s->x[r * in + i]);
            const size_t sums = in / 8 + 16;
            const double accept = 0x1p-24 * (double)sums * 2 * sum * (double)largest + 1e-6;
            const double found = fabs((double)s->y[r * out + o] - (double)s->expected[r * out + o]);
            if (!(found <= accept))
                fail_msg("%s, %s, %d rows of %zu to %zu: output %zu of row %zu is %g off, accepted %g", what,
                         pal_dtype_name(s->w.type), s->a.rows, in, out, o, r, found, accept);
        }
    }
    free(w);
}

/* Steps and prompts of blocks have the same reference. */
static void check_variants(setup *s, const pal_variant *list, const char *what) {
    const pal_matvec_job job = { .a = &s->a, .rounded = s->rounded };
    for (const pal_variant *v = list; v->fn; v++) {
        if (!runs_here(v)) continue;
        for (int add = 0; add < 2; add++) {
            s->a.add = add;
            for (size_t k = 0; k < s->ny; k++) s->y[k] = s->expected[k] = add ? (float)(k % 5) : NAN;
            s->a.y = s->expected;
            ((pal_matvec_fn *)list->fn)(&job, 0, (size_t)s->w.rows);
            s->a.y = s->y;
            ((pal_matvec_fn *)v->fn)(&job, 0, (size_t)s->w.rows);
            check_outputs(s, what);
        }
    }
}

static void variants_match_the_reference(void **state) {
    (void)state;
    static const int blocks[] = { 1, 2, 3, 5, 8, 9, 17 }, plain[] = { 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 65, 300 };
    static const int many[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 17 };
    pal_rng rng = pal_rng_at(1, 2);
    for (size_t t = 0; t < PAL_COUNT(types); t++) {
        const int block = (int)pal_dtype_values(types[t]);
        for (size_t i = 0; i < (block > 1 ? PAL_COUNT(blocks) : PAL_COUNT(plain)); i++)
            for (size_t n = 0; n < PAL_COUNT(many); n++) {
                const int in = block > 1 ? block * blocks[i] : plain[i], out = 1 + (int)pal_rng_below(&rng, 40);
                setup s = set_up(types[t], many[n], in, out, &rng);
                s.a.w = &s.w;
                if (block > 1) pal_matvec_round_ref(&s.a, &s.rounded, 0, (size_t)many[n]);
                check_variants(&s, pal_matvec_variants(types[t]), "matvec");
                if (block > 1) check_variants(&s, pal_product_blocks_variants, "product");
                tear_down(&s);
            }
    }
}

static void check_rounding(pal_dtype type) {
    enum { ROWS = 5, IN = 256 };
    pal_rng rng = pal_rng_at(7, 2);
    setup s = set_up(type, ROWS, IN, 1, &rng);
    s.a.w = &s.w;
    for (int i = 0; i < 32; i++) s.x[i] = 0, s.x[32 + i] *= 1e-32f, s.x[64 + i] *= 1e30f;
    s.x[IN + 3] = INFINITY, s.x[IN + 40] = NAN, s.x[IN + 95] = -INFINITY;
    s.x[2 * IN] = 200, s.x[2 * IN + 1] = 200.0f / PAL_ROUNDED_MOST * 1.5f; /* halves round to even */
    pal_matvec_round_ref(&s.a, &s.rounded, 0, ROWS);
    const size_t bytes = pal_matvec_scratch_bytes(ROWS, IN);
    char *kept = malloc(bytes);
    memcpy(kept, s.a.scratch, bytes);
    for (const pal_variant *v = pal_matvec_round_variants; v->fn; v++) {
        if (!runs_here(v)) continue;
        memset(s.rounded.q, 77, ROWS * IN * sizeof *s.rounded.q);
        ((pal_matvec_round_fn *)v->fn)(&s.a, &s.rounded, 0, ROWS);
        const pal_rounded_rows before = pal_matvec_place(kept, ROWS, IN);
        assert_memory_equal(s.rounded.q, before.q, ROWS * IN * sizeof *before.q);
        for (size_t i = 0; i < ROWS * IN / 32; i++)
            if (isnan(before.d[i]))
                assert_true(isnan(s.rounded.d[i]) && isnan(s.rounded.sums[i]));
            else {
                test_same_bits("scale", &s.rounded.d[i], &before.d[i], 1);
                test_same_bits("sums", &s.rounded.sums[i], &before.sums[i], 1);
            }
    }
    size_t bad = 0;
    for (size_t i = 0; i < ROWS * IN / 32; i++) bad += isnan(s.rounded.d[i]) != 0;
    assert_int_equal(bad, 3);
    free(kept);
    tear_down(&s);
}

static void rounding_is_the_same_in_every_variant(void **state) {
    (void)state;
    check_rounding(PAL_Q8_0);
    check_rounding(PAL_Q6_K); /* whose values lie in another order */
}

typedef void run_fn(const pal_context *cx, const pal_matvec_args *a);

static void check_rows(run_fn *run, pal_dtype type) {
    enum { IN = 512, OUT = 1003, ROWS = 19 };
    pal_rng rng = pal_rng_at(3, 4);
    setup s = set_up(type, ROWS, IN, OUT, &rng);
    static float one[OUT];
    s.a.w = &s.w;
    for (TEST_LEVELS(level)) {
        if (run == pal_product && level == PAL_CPU_REF) continue; /* decodes for pal_matmul */
        for (int threads = 1; threads <= 7; threads += 3) {
            pal_context *cx = test_context(threads, pal_cpu_level_name(level));
            s.a.rows = ROWS, s.a.x = s.x, s.a.y = s.y;
            run(cx, &s.a);
            if (threads == 1) memcpy(s.expected, s.y, s.ny * sizeof *s.y);
            test_same_bits("threads", s.y, s.expected, s.ny);
            s.a.rows = 1, s.a.y = one;
            for (size_t r = 0; r < ROWS && (level || r < 2); r++) {
                s.a.x = s.x + r * IN;
                run(cx, &s.a);
                test_same_bits("a row", one, s.y + r * OUT, OUT);
            }
            s.a.rows = 0, s.a.y = s.y;
            memcpy(s.expected, s.y, s.ny * sizeof *s.y);
            s.a.add = true;
            run(cx, &s.a);
            s.a.add = false;
            test_same_bits("no rows", s.y, s.expected, s.ny);
            pal_context_free(cx);
        }
    }
    tear_down(&s);
}

static void a_row_gives_the_same_bits_alone_and_among_others(void **state) {
    (void)state;
    for (size_t t = 0; t < PAL_COUNT(types); t++) {
        check_rows(pal_matvec, types[t]);
#if PAL_X86_64
        if (pal_dtype_values(types[t]) > 1) check_rows(pal_product, types[t]);
#endif
    }
}

/* The step that value i of row r was rounded to. */
static double scale_of(const setup *s, size_t r, size_t i) {
    size_t first = 0, rows = (size_t)s->a.rows, size = pal_matvec_group(rows, 0);
    while (r >= first + size) first += size, size = pal_matvec_group(rows, first);
    return (double)s->rounded.d[pal_matvec_place_of(&s->w, first, size, r - first, i / 32)];
}

/* Against f32 arithmetic on the decoded weights: each value of x is off by at most half a step of its run. */
static void rounded_rows_stay_close(void **state) {
    (void)state;
    enum { IN = 768, OUT = 200, ROWS = 3 };
    pal_rng rng = pal_rng_at(5, 4);
    pal_context *cx = test_context(2, NULL);
    for (size_t t = 0; t < PAL_COUNT(types); t++) {
        setup s = set_up(types[t], ROWS, IN, OUT, &rng);
        s.a.w = &s.w;
        for (size_t i = 0; i < IN; i += 97) s.x[i] *= 20; /* outliers in one row */
        pal_matvec(cx, &s.a);
        const bool rounds = pal_dtype_values(types[t]) > 1;
        for (size_t r = 0; r < ROWS; r++) {
            double dot = 0, yy = 0, ee = 0;
            for (size_t o = 0; o < OUT; o++) {
                float w[IN];
                pal_matrix_row(&s.w, o, w);
                double exact = 0, accept = 0, sizes = 0;
                for (size_t i = 0; i < IN; i++) {
                    exact += (double)s.x[r * IN + i] * (double)w[i];
                    sizes += fabs((double)s.x[r * IN + i] * (double)w[i]);
                    if (rounds) accept += 0.5001 * scale_of(&s, r, i) * fabs((double)w[i]);
                }
                const double y = (double)s.y[r * OUT + o];
                accept += 0x1p-22 * IN / 8 * sizes;
                if (!(fabs(y - exact) <= accept))
                    fail_msg("%s: output %zu is %g, exactly %g, accepted %g", pal_dtype_name(types[t]), o, y, exact,
                             accept);
                dot += y * exact, yy += y * y, ee += exact * exact;
            }
            const double cosine = dot / sqrt(yy * ee);
            if (!(cosine >= (rounds ? 1 - 1e-6 : 1 - 1e-9)))
                fail_msg("%s, row %zu: cosine %.9f", pal_dtype_name(types[t]), r, cosine);
        }
        tear_down(&s);
    }
    pal_context_free(cx);
}

static void what_is_not_finite_shows(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(8, 4);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t t = 0; t < PAL_COUNT(types); t++)
            for (int which = 0; which < 2; which++) {
                setup s = set_up(types[t], 2, 256, 6, &rng);
                s.a.w = &s.w;
                s.x[256 + 77] = which ? NAN : INFINITY;
                pal_matvec(cx, &s.a);
                for (int o = 0; o < 6; o++)
                    if (!isfinite(s.y[o]) || isfinite(s.y[6 + o]))
                        fail_msg("%s: %g next to %g", pal_dtype_name(types[t]), (double)s.y[o], (double)s.y[6 + o]);
                tear_down(&s);
            }
        pal_context_free(cx);
    }
}

static void products_and_gathered_rows_are_those_of_the_decoded_matrix(void **state) {
    (void)state;
    enum { IN = 8192, OUT = 270, ROWS = 3, PICKED = 70 }; /* more than a panel of rows */
    static float w[OUT * IN], picked[PICKED * (IN + 3)];
    const size_t out = test_short() ? 40 : OUT; /* the search for K-quants' scales is slow */
    pal_rng rng = pal_rng_at(9, 4);
    float *panel = aligned_alloc(64, (pal_product_scratch_bytes(ROWS, IN) + 63) / 64 * 64);
    for (size_t t = 0; t < PAL_COUNT(types); t++) {
        setup s = set_up(types[t], ROWS, IN, (int)out, &rng);
        const pal_matrix decoded = pal_matrix_of(PAL_F32, w, (int)out, IN);
        for (size_t o = 0; o < out; o++) pal_matrix_row(&s.w, o, w + o * IN);
        for (TEST_LEVELS(level)) {
            pal_context *cx = test_context(2, pal_cpu_level_name(level));
            const bool decodes = PAL_PICK(cx, product_blocks) == pal_product_blocks_ref;
            const bool rounds = pal_dtype_values(types[t]) > 1 && !decodes;
            const double close = rounds ? 1e-4 : 2e-6; /* rounding x: 4.4e-5 usually */
            for (int add = 0; add < 2; add++) {
                for (size_t i = 0; i < s.ny; i++) s.y[i] = s.expected[i] = add ? 1 : NAN;
                pal_matvec_args a = s.a;
                a.add = add, a.w = &decoded, a.y = s.expected, a.scratch = NULL;
                pal_product(cx, &a);
                a.w = &s.w, a.y = s.y, a.scratch = panel;
                pal_product(cx, &a);
                test_near(pal_dtype_name(types[t]), s.y, s.expected, s.ny, close);
            }
            int32_t ids[PICKED];
            for (size_t i = 0; i < PICKED; i++) ids[i] = (int32_t)pal_rng_below(&rng, (uint32_t)out);
            ids[0] = (int32_t)out - 1;
            pal_gather_rows(cx, &s.w, ids, PICKED, picked, IN + 3);
            for (size_t i = 0; i < PICKED; i++)
                test_same_bits(pal_dtype_name(types[t]), picked + i * (IN + 3), w + (size_t)ids[i] * IN, IN);
            pal_context_free(cx);
        }
        tear_down(&s);
    }
    free(panel);
}

static void scratch_for_more_is_enough_for_less(void **state) {
    (void)state;
    for (int columns = 1; columns <= 4096; columns += columns < 300 ? 1 : 64) {
        assert_true(pal_product_scratch_bytes(3, columns) <= pal_product_scratch_bytes(3, columns + 64));
        assert_true(pal_product_scratch_bytes(3, columns) >= pal_matvec_scratch_bytes(3, columns));
        assert_true(pal_matvec_scratch_bytes(3, columns) <= pal_matvec_scratch_bytes(3, columns + 64));
        assert_true(pal_matvec_scratch_bytes(3, columns) <= pal_matvec_scratch_bytes(4, columns));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_match_the_reference),
        cmocka_unit_test(rounding_is_the_same_in_every_variant),
        cmocka_unit_test(a_row_gives_the_same_bits_alone_and_among_others),
        cmocka_unit_test(rounded_rows_stay_close),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(scratch_for_more_is_enough_for_less),
        cmocka_unit_test(products_and_gathered_rows_are_those_of_the_decoded_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
