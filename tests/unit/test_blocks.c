/* SPDX-License-Identifier: MIT */
/* Stored number types: what decoding gives for bytes set by hand, and how close encoding comes. Other programs'
 * decoders are compared in tests/interop. */
#include "support/support.h"

#include <math.h>

#include "base/blocks.h"

static const pal_dtype blocks[] = { PAL_Q8_0, PAL_Q4_0, PAL_Q4_K, PAL_Q6_K };

static double squared_error(const float *x, const float *y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

static void every_type_decodes_what_its_bytes_say(void **state) {
    (void)state;
    unsigned char b[256] = { 0 };
    float x[256];
    b[1] = 0x3c; /* f16 1.0 */
    b[2] = 0x85, b[2 + 31] = 0x7f;
    pal_block_format_of(PAL_Q8_0)->decode(b, x);
    assert_true(x[0] == -123 && x[1] == 0 && x[31] == 127);
    b[2] = 0x9f, b[2 + 15] = 0x21;
    pal_block_format_of(PAL_Q4_0)->decode(b, x);
    assert_true(x[0] == 7 && x[16] == 1 && x[15] == -7 && x[31] == -6);

    memset(b, 0, sizeof b);
    b[1] = 0x3c, b[3] = 0x40;                                      /* d 1, m 2 */
    b[4] = 0xc1, b[8] = 0x83, b[12] = 0x52;                        /* groups 0: 1, 3; 4: 2 + 48, 5 + 32 */
    b[16] = 0x0f, b[16 + 32 + 32] = 0x30, b[16 + 32 + 32 + 1] = 4; /* values 0 of group 0, 160 of 5, 129 of 4 */
    pal_block_format_of(PAL_Q4_K)->decode(b, x);
    assert_true(x[0] == 15 - 2 * 3 && x[1] == -6 && x[32] == 0);
    assert_true(x[128] == -2 * 37 && x[129] == 4 * 50 - 2 * 37 && x[160] == 0);

    memset(b, 0, sizeof b);
    b[209] = 0x38;                              /* d 0.5 */
    b[192] = 2, b[193] = 0xff, b[192 + 15] = 4; /* scales */
    b[0] = 0x0f, b[128] = 0x03;                 /* value 0: 15 + 48 */
    pal_block_format_of(PAL_Q6_K)->decode(b, x);
    assert_true(x[0] == 31 && x[1] == -32 && x[16] == 16 && x[32] == 0 && x[255] == -64);
}

static void plain_types_round_to_nearest(void **state) {
    (void)state;
    const float x[3] = { 1, 1.0f + 0x1p-11f, -70000 };
    float y[3];
    unsigned char b[12];
    for (pal_dtype type = PAL_F32; type < PAL_DTYPES; type++) {
        const pal_block_format *f = pal_block_format_of(type);
        assert_true(!f == !pal_matrix_fits(type, 256));
        if (!f || f->values > 1) continue;
        pal_blocks_encode(f, x, 3, b);
        pal_blocks_decode(f, b, 3, y);
        assert_true(y[0] == 1 && y[1] == (type == PAL_F32 ? x[1] : 1));
        assert_true(type == PAL_F16 ? isinf(y[2]) : fabsf(y[2] - x[2]) <= 256);
        assert_true(pal_blocks_finite(f, b, 3) == (type != PAL_F16));
        assert_true(pal_block_format_of_ggml(f->ggml) == f);
    }
    assert_null(pal_block_format_of_ggml(3));
}

/* The plainest quantiser: the largest magnitude fills the range. A search may not be worse in the sum of squares. */
static double plain_error(const float *x, int n, int high, bool minimum) {
    float low = 0, largest = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
        low = fminf(low, x[i]);
    }
    float top = low;
    for (int i = 0; i < n; i++) top = fmaxf(top, x[i]);
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const float d = minimum ? (top - low) / (float)high : largest / -(float)(high + 1), from = minimum ? low : 0;
        const float q = d != 0 ? fminf(rintf((x[i] - from) / d), (float)high) : 0;
        const double e = (double)x[i] - (double)(from + d * q);
        sum += e * e;
    }
    return sum;
}

static void encoding_is_close_and_better_than_without_a_search(void **state) {
    (void)state;
    enum { N = 256 };
    double found[PAL_DTYPES] = { 0 }, plain[PAL_DTYPES] = { 0 }, power = 0;
    pal_rng rng = pal_rng_at(11, 0);
    for (int round = 0; round < 200; round++) {
        float x[N], y[N];
        test_fill_normal(x, N, &rng, exp(3 * pal_rng_normal(&rng)));
        double size = 0;
        for (int i = 0; i < N; i++) size += (double)x[i] * (double)x[i];
        for (int i = 0; i < N; i++) x[i] = (float)((double)x[i] / sqrt(size / N));
        power += N;
        for (size_t t = 0; t < PAL_COUNT(blocks); t++) {
            const pal_block_format *f = pal_block_format_of(blocks[t]);
            unsigned char b[8 * 34], again[8 * 34];
            memset(b, 0, sizeof b);
            memset(again, 255, sizeof again);
            pal_blocks_encode(f, x, N, b);
            pal_blocks_encode(f, x, N, again);
            assert_memory_equal(b, again, N / f->values * f->bytes);
            assert_true(pal_blocks_finite(f, b, N));
            pal_blocks_decode(f, b, N, y);
            found[blocks[t]] += squared_error(x, y, N);
            const int group = blocks[t] == PAL_Q6_K ? 16 : 32;
            for (int i = 0; i < N; i += group)
                plain[blocks[t]] += plain_error(x + i, group,
                                                blocks[t] == PAL_Q8_0   ? 127
                                                : blocks[t] == PAL_Q6_K ? 31
                                                : blocks[t] == PAL_Q4_K ? 15
                                                                        : 7,
                                                blocks[t] == PAL_Q4_K);
        }
    }
    /* What the search reaches on these values; a narrower one stays above. */
    static const double accept[PAL_DTYPES] = {
        [PAL_Q8_0] = 0.0054, [PAL_Q6_K] = 0.0173, [PAL_Q4_K] = 0.0705, [PAL_Q4_0] = 0.0812
    };
    for (size_t t = 0; t < PAL_COUNT(blocks); t++) {
        const double error = sqrt(found[blocks[t]] / power), before = sqrt(plain[blocks[t]] / power);
        print_message("%s: error %.5f of normal values, %.5f without a search\n", pal_dtype_name(blocks[t]), error,
                      before);
        if (!(error <= accept[blocks[t]])) fail_msg("%s: error %.5f", pal_dtype_name(blocks[t]), error);
        if (blocks[t] != PAL_Q8_0 && !(error < before)) fail_msg("%s: no better", pal_dtype_name(blocks[t]));
    }
}

static void blocks_hold_what_is_hard_to_hold(void **state) {
    (void)state;
    enum { N = 256 };
    float x[N], y[N];
    unsigned char b[8 * 34];
    for (size_t t = 0; t < PAL_COUNT(blocks); t++) {
        const pal_block_format *f = pal_block_format_of(blocks[t]);
        const char *name = pal_dtype_name(blocks[t]);
        static const float constants[] = { 0, 1, -1, 1e-7f, -3e4f, 1e-20f, 1e-42f };
        for (size_t c = 0; c < PAL_COUNT(constants); c++) {
            for (int i = 0; i < N; i++) x[i] = constants[c];
            pal_blocks_encode(f, x, N, b);
            pal_blocks_decode(f, b, N, y);
            const float accept = fmaxf(0.006f * fabsf(constants[c]), 3e-7f); /* of an f16 scale, or its last bit */
            for (int i = 0; i < N; i++)
                if (!(fabsf(y[i] - x[i]) <= accept))
                    fail_msg("%s: %g came back as %g", name, (double)x[i], (double)y[i]);
        }
        for (int i = 0; i < N; i++) x[i] = i == 100 ? 1000 : 0.01f * (float)(i % 7);
        pal_blocks_encode(f, x, N, b);
        pal_blocks_decode(f, b, N, y);
        assert_true(fabsf(y[100] - 1000) <= 70);
        for (int i = 0; i < N; i++) assert_true(fabsf(y[i] - x[i]) <= 70);
        for (int bad = 0; bad < 2; bad++) {
            x[N - 1] = bad ? NAN : -INFINITY;
            pal_blocks_encode(f, x, N, b);
            assert_false(pal_blocks_finite(f, b, N));
            pal_blocks_decode(f, b, N, y);
            assert_true(isnan(y[N - 1]));
        }
    }
}

static void types_are_found_by_name(void **state) {
    (void)state;
    assert_int_equal(pal_dtype_named("q8_0", 4), PAL_Q8_0);
    assert_int_equal(pal_dtype_named("Q4_K,f32", 4), PAL_Q4_K);
    assert_int_equal(pal_dtype_named("bf16", 4), PAL_BF16);
    assert_int_equal(pal_dtype_named("bf16", 3), PAL_DTYPES);
    assert_int_equal(pal_dtype_named("I64", 3), PAL_DTYPES); /* nothing that models compute with */
    assert_int_equal(pal_dtype_named("", 0), PAL_DTYPES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_decodes_what_its_bytes_say),
        cmocka_unit_test(types_are_found_by_name),
        cmocka_unit_test(plain_types_round_to_nearest),
        cmocka_unit_test(encoding_is_close_and_better_than_without_a_search),
        cmocka_unit_test(blocks_hold_what_is_hard_to_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
