/* SPDX-License-Identifier: MIT */
/* Stored number types: what decoding gives for bytes set by hand, and how close encoding comes. Other programs'
 * decoders are compared in tests/interop. */
#include "support/support.h"

#include <math.h>

#include "base/blocks.h"

/* Types with an encoder. */
static const pal_dtype blocks[] = { PAL_Q8_0, PAL_Q4_0, PAL_Q5_0, PAL_Q4_K, PAL_Q5_K, PAL_Q6_K };

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

    memset(b, 0, sizeof b);
    b[1] = 0x3c, b[2] = 0x01, b[5] = 0x80; /* d 1; fifth bits of values 0 and 31 */
    b[6] = 0x03, b[6 + 15] = 0xf0;
    pal_block_format_of(PAL_Q5_0)->decode(b, x);
    assert_true(x[0] == 3 && x[1] == -16 && x[15] == -16 && x[31] == 15);

    memset(b, 0, sizeof b);
    b[1] = 0x3c, b[3] = 0x40;               /* d 1, m 2 */
    b[4] = 0xc1, b[8] = 0x83, b[12] = 0x52; /* scales as for Q4_K */
    b[16] = 0x11;                           /* fifth bits of value 0 of groups 0 and 4 */
    b[48] = 0x0f, b[48 + 64 + 1] = 4;       /* value 0 of group 0, 1 of group 4 */
    pal_block_format_of(PAL_Q5_K)->decode(b, x);
    assert_true(x[0] == 31 - 2 * 3 && x[1] == -6 && x[32] == 0);
    assert_true(x[128] == 16 * 50 - 2 * 37 && x[129] == 4 * 50 - 2 * 37 && x[130] == -2 * 37);
}

static void types_that_are_only_read_decode_what_their_bytes_say(void **state) {
    (void)state;
    unsigned char b[256] = { 0 };
    float x[256];
    b[1] = 0x3c, b[3] = 0xc0; /* d 1, m -2 */
    b[4] = 0x5f;
    pal_block_format_of(PAL_Q4_1)->decode(b, x);
    assert_true(x[0] == 13 && x[16] == 3 && x[1] == -2 && x[31] == -2);
    memset(b + 4, 0, sizeof b - 4);
    b[4] = 0x01, b[7] = 0x80, b[8] = 0x0f; /* fifth bits of values 0 and 31 */
    pal_block_format_of(PAL_Q5_1)->decode(b, x);
    assert_true(x[0] == 29 && x[1] == -2 && x[16] == -2 && x[31] == 14);

    memset(b, 0, sizeof b);
    b[81] = 0x3c, b[83] = 0x40;             /* d 1, m 2 */
    b[0] = 0x35, b[2] = 0x01, b[15] = 0x20; /* scales below, minima above */
    b[16] = 0x0e, b[16 + 63] = 0xc0;        /* value 0: 2, value 32: 3; value 255: 3 */
    pal_block_format_of(PAL_Q2_K)->decode(b, x);
    assert_true(x[0] == 2 * 5 - 2 * 3 && x[1] == -6 && x[16] == 0 && x[32] == 3 && x[240] == -4 && x[255] == -4);

    memset(b, 0, sizeof b);
    b[109] = 0x3c;                  /* d 1 */
    b[96] = 0x53, b[96 + 8] = 0x13; /* scales 0: 3 + 48, 8: 5 + 16 */
    b[0] = 0x01, b[32] = 0x03;      /* value 0: its third bit, 3 */
    pal_block_format_of(PAL_Q3_K)->decode(b, x);
    assert_true(x[0] == 3 * (51 - 32) && x[1] == -4 * (51 - 32) && x[16] == -4 * -32);
    assert_true(x[64] == -4 * -32 && x[128] == -4 * (21 - 32));

    memset(b, 0, sizeof b);
    b[1] = 0x3c, b[2] = 0xf0, b[2 + 15] = 0x08;
    pal_block_format_of(PAL_IQ4_NL)->decode(b, x);
    assert_true(x[0] == -127 && x[16] == 113 && x[15] == 1 && x[31] == -127);
    memset(b, 0, sizeof b);
    b[1] = 0x3c, b[2] = 0x03, b[3] = 0x80;         /* scales 0: 48 .., 7: 32 .. */
    b[4] = 0x21, b[7] = 0x40;                      /* scale 0: 1, 1: 2; 7: 4 */
    b[8] = 0x09, b[8 + 16] = 0xf0, b[8 + 127] = 8; /* value 0; value 48; value 239 */
    pal_block_format_of(PAL_IQ4_XS)->decode(b, x);
    assert_true(x[0] == 13 * (49 - 32) && x[1] == -127 * (49 - 32) && x[16] == -127 * (49 - 32));
    assert_true(x[48] == 113 * (2 - 32) && x[239] == 1 * (36 - 32) && x[240] == -127 * (36 - 32));
}

static void plain_types_round_to_nearest(void **state) {
    (void)state;
    const float x[3] = { 1, 1.0f + 0x1p-11f, -70000 };
    float y[3];
    unsigned char b[12];
    for (pal_dtype type = PAL_F32; type < PAL_DTYPES; type++) {
        const pal_block_format *f = pal_block_format_of(type);
        assert_true(pal_matrix_fits(type, 256) == (f && f->encode));
        if (!f || f->values > 1) continue;
        pal_blocks_encode(f, x, 3, b);
        pal_blocks_decode(f, b, 3, y);
        assert_true(y[0] == 1 && y[1] == (type == PAL_F32 ? x[1] : 1));
        assert_true(type == PAL_F16 ? isinf(y[2]) : fabsf(y[2] - x[2]) <= 256);
        assert_true(pal_blocks_finite(f, b, 3) == (type != PAL_F16));
        assert_true(pal_block_format_of_ggml(f->ggml) == f);
    }
    assert_null(pal_block_format_of_ggml(4));
    for (size_t t = 0; t < PAL_COUNT(blocks); t++) assert_true(pal_matrix_fits(blocks[t], 256));
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
            static const int high[PAL_DTYPES] = {
                [PAL_Q8_0] = 127, [PAL_Q6_K] = 31, [PAL_Q5_K] = 31, [PAL_Q5_0] = 15, [PAL_Q4_K] = 15, [PAL_Q4_0] = 7
            };
            const bool minimum = blocks[t] == PAL_Q4_K || blocks[t] == PAL_Q5_K;
            for (int i = 0; i < N; i += group) plain[blocks[t]] += plain_error(x + i, group, high[blocks[t]], minimum);
        }
    }
    /* What the search reaches on these values; a narrower one stays above. */
    static const double accept[PAL_DTYPES] = {
        [PAL_Q8_0] = 0.0054, [PAL_Q6_K] = 0.0173, [PAL_Q5_K] = 0.0347,
        [PAL_Q5_0] = 0.0402, [PAL_Q4_K] = 0.0705, [PAL_Q4_0] = 0.0812,
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
    assert_int_equal(pal_dtype_named("q2_k", 4), PAL_DTYPES);
    assert_int_equal(pal_dtype_named("", 0), PAL_DTYPES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_decodes_what_its_bytes_say),
        cmocka_unit_test(types_that_are_only_read_decode_what_their_bytes_say),
        cmocka_unit_test(types_are_found_by_name),
        cmocka_unit_test(plain_types_round_to_nearest),
        cmocka_unit_test(encoding_is_close_and_better_than_without_a_search),
        cmocka_unit_test(blocks_hold_what_is_hard_to_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
