/* SPDX-License-Identifier: MIT */
/* What the short convolution promises about sequences: packed equals separate, and any way of cutting a sequence into
 * pieces, down to single tokens, equals the whole when the window is carried along. */
#include "base/alloc.h"
#include "kernels/conv/conv.h"
#include "support/support.h"

enum { MAX_SEQUENCES = 8, MAX_TOKENS = 400, MAX_CHANNELS = 300 };

typedef struct {
    pal_conv_args a;
    int cu[MAX_SEQUENCES + 1];
    float *x, *w, *bias, *y, *dy, *dx, *dw, *dbias, *scratch;
} fixture;

static int tokens(const fixture *f) { return f->cu[f->a.sequences]; }

static fixture *make(pal_rng *rng, int sequences, int longest, int channels, int taps) {
    fixture *f = pal_alloc(1, sizeof *f);
    for (int n = 0; n < sequences; n++) f->cu[n + 1] = f->cu[n] + 1 + (int)pal_rng_below(rng, (uint32_t)longest);
    assert_true(f->cu[sequences] <= MAX_TOKENS && channels <= MAX_CHANNELS);
    const size_t C = (size_t)channels, n = MAX_TOKENS * C;
    f->x = pal_alloc(n, 4), f->y = pal_alloc(n, 4), f->dy = pal_alloc(n, 4), f->dx = pal_alloc(n, 4);
    f->w = pal_alloc(C * (size_t)taps, 4), f->dw = pal_alloc(C * (size_t)taps, 4), f->bias = pal_alloc(C, 4),
    f->dbias = pal_alloc(C, 4);
    test_fill_normal(f->x, n, rng, 1), test_fill_normal(f->dy, n, rng, 1);
    test_fill_normal(f->w, C * (size_t)taps, rng, 0.5), test_fill_normal(f->bias, C, rng, 0.5);
    f->a = (pal_conv_args){ .sequences = sequences,
                            .cu_seqlens = f->cu,
                            .channels = channels,
                            .taps = taps,
                            .w = f->w,
                            .bias = f->bias,
                            .x = { f->x, C },
                            .y = { f->y, C },
                            .dy = { f->dy, C },
                            .dx = { f->dx, C },
                            .dw = f->dw,
                            .dbias = f->dbias };
    f->scratch = pal_alloc(pal_conv_silu_scratch_floats(&f->a), 4);
    return f;
}
static void drop(fixture *f) {
    float *blocks[] = { f->x, f->w, f->bias, f->y, f->dy, f->dx, f->dw, f->dbias, f->scratch };
    for (size_t i = 0; i < PAL_COUNT(blocks); i++) pal_free(blocks[i]);
    pal_free(f);
}

static void packed_equals_separate(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(1, 1);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (int round = 0; round < 12; round++) {
            fixture *f = make(&rng, 1 + (int)pal_rng_below(&rng, MAX_SEQUENCES), round % 3 ? 5 : 50,
                              1 + (int)pal_rng_below(&rng, 140), 1 + round % 6);
            f->a.linear = round % 4 == 0;
            const size_t C = (size_t)f->a.channels, n = (size_t)tokens(f) * C, taps = C * (size_t)f->a.taps;
            pal_conv_silu(cx, &f->a);
            pal_conv_silu_backward(cx, &f->a, f->scratch);
            float *y = pal_alloc(n, 4), *dx = pal_alloc(n, 4), *dw = pal_alloc(taps, 4), *dbias = pal_alloc(C, 4);
            for (int s = 0; s < f->a.sequences; s++) {
                const size_t at = (size_t)f->cu[s] * C;
                const int alone[] = { 0, f->cu[s + 1] - f->cu[s] };
                pal_conv_args one = f->a;
                one.sequences = 1, one.cu_seqlens = alone;
                one.x.data += at, one.dy.data += at;
                one.y.data = y + at, one.dx.data = dx + at, one.dw = dw, one.dbias = dbias;
                pal_conv_silu(cx, &one);
                pal_conv_silu_backward(cx, &one, f->scratch);
            }
            test_same_bits("y", f->y, y, n);
            test_same_bits("dx", f->dx, dx, n);
            test_near("dw", f->dw, dw, taps, 2e-6);
            test_near("dbias", f->dbias, dbias, C, 2e-6);
            pal_free(y), pal_free(dx), pal_free(dw), pal_free(dbias);
            drop(f);
        }
        pal_context_free(cx);
    }
}

/* Runs each sequence in random pieces, all sequences side by side as long as they last; in_place: y on x. */
static void run_in_pieces(const pal_context *cx, pal_rng *rng, fixture *f, bool single, bool in_place) {
    const size_t C = (size_t)f->a.channels, n = (size_t)tokens(f) * C, past = (size_t)(f->a.taps - 1);
    float *whole = pal_alloc(n, 4), *window[MAX_SEQUENCES];
    int done[MAX_SEQUENCES] = { 0 };
    pal_conv_silu(cx, &f->a);
    memcpy(whole, f->y, n * sizeof *whole);
    for (int s = 0; s < f->a.sequences; s++) {
        window[s] = pal_alloc(past * C + 1, 4);
        for (size_t i = 0; i < past * C; i++) window[s][i] = 1e30f; /* must not be read: the first call is fresh */
    }
    float *in = pal_alloc(n, 4), *out = in_place ? in : pal_alloc(n, 4), *last = pal_alloc(past * C + 1, 4);
    for (bool first = true;; first = false) {
        int cu[MAX_SEQUENCES + 1] = { 0 }, owner[MAX_SEQUENCES], count = 0;
        float *windows[MAX_SEQUENCES];
        for (int s = 0; s < f->a.sequences; s++) {
            const int left = f->cu[s + 1] - f->cu[s] - done[s];
            if (!left) continue;
            const int take = single ? 1 : 1 + (int)pal_rng_below(rng, (uint32_t)left);
            memcpy(in + (size_t)cu[count] * C, f->x + (size_t)(f->cu[s] + done[s]) * C, (size_t)take * C * sizeof *in);
            owner[count] = s;
            windows[count] = window[s];
            cu[count + 1] = cu[count] + take;
            count++;
        }
        if (!count) break;
        pal_conv_args a = f->a;
        a.sequences = count, a.cu_seqlens = single ? NULL : cu, a.window = windows, a.fresh = first;
        a.x.data = in, a.y.data = out;
        pal_conv_silu(cx, &a);
        for (int i = 0; i < count; i++) {
            const int s = owner[i], take = cu[i + 1] - cu[i];
            test_same_bits("a piece", out + (size_t)cu[i] * C, whole + (size_t)(f->cu[s] + done[s]) * C,
                           (size_t)take * C);
            done[s] += take;
        }
    }
    for (int s = 0; s < f->a.sequences; s++) { /* the window left over: the last raw inputs, zeros before the start */
        const int length = f->cu[s + 1] - f->cu[s];
        for (size_t i = 0; i < past; i++)
            for (size_t c = 0; c < C; c++) {
                const int t = length - (int)past + (int)i;
                last[i * C + c] = t >= 0 ? f->x[(size_t)(f->cu[s] + t) * C + c] : 0.0f;
            }
        test_same_bits("the window", window[s], last, past * C);
        pal_free(window[s]);
    }
    if (!in_place) pal_free(out);
    pal_free(in), pal_free(whole), pal_free(last);
}

static void pieces_equal_the_whole(void **state) {
    (void)state;
    const int rounds = getenv("PALIMPSA_TEST_LONG") ? 1000 : 30;
    pal_rng rng = pal_rng_at(2, 1);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        for (int round = 0; round < rounds; round++) {
            fixture *f = make(&rng, 1 + (int)pal_rng_below(&rng, MAX_SEQUENCES), 12,
                              1 + (int)pal_rng_below(&rng, MAX_CHANNELS), 1 + (int)pal_rng_below(&rng, 6));
            if (round % 3 == 0) f->a.bias = NULL;
            f->a.linear = round % 5 == 0;
            run_in_pieces(cx, &rng, f, false, round % 2);
            run_in_pieces(cx, &rng, f, true, round % 2);
            drop(f);
        }
        pal_context_free(cx);
    }
}

/* Backward of a sequence whose first tokens have no gradient is that of the rest after the window that the first ones
 * leave; a second sequence, which starts afresh, must not see it. */
static void backward_goes_on_from_a_window(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(3, 1);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        for (int round = 0; round < 12; round++) {
            fixture *f = make(&rng, 2, 30, 1 + (int)pal_rng_below(&rng, 140), 1 + round % 6);
            const size_t C = (size_t)f->a.channels, past = (size_t)f->a.taps - 1, all = C * (past + 1);
            const int cut = (int)pal_rng_below(&rng, (uint32_t)f->cu[1]), cu[] = { 0, f->cu[1] - cut, f->cu[2] - cut };
            const size_t skipped = (size_t)cut * C, n = (size_t)cu[2] * C;
            float *window = pal_alloc(past * C + 1, 4), *dx = pal_alloc(n, 4), *dw = pal_alloc(all, 4),
                  *dbias = pal_alloc(C, 4);
            for (size_t i = 0; i < past; i++)
                if (i + (size_t)cut >= past) memcpy(window + i * C, f->x + (i + (size_t)cut - past) * C, C * 4);
            memset(f->dy, 0, skipped * 4);
            pal_conv_silu_backward(cx, &f->a, f->scratch);
            const float *const before[] = { window, NULL };
            pal_conv_args rest = f->a;
            rest.cu_seqlens = cu, rest.before = before;
            rest.x.data += skipped, rest.dy.data += skipped;
            rest.dx.data = dx, rest.dw = dw, rest.dbias = dbias;
            pal_conv_silu_backward(cx, &rest, f->scratch);
            test_near("dx", dx, f->dx + skipped, n, 1e-6);
            test_near("dw", dw, f->dw, all, 1e-6);
            test_near("dbias", dbias, f->dbias, C, 1e-6);
            pal_free(window), pal_free(dx), pal_free(dw), pal_free(dbias);
            drop(f);
        }
        pal_context_free(cx);
    }
}

static void thread_count_does_not_change_a_bit(void **state) {
    (void)state;
    static const int counts[] = { 1, 2, 3, 7 };
    pal_rng rng = pal_rng_at(4, 1);
    fixture *f = make(&rng, MAX_SEQUENCES, 45, MAX_CHANNELS, 4);
    const size_t C = MAX_CHANNELS, n = (size_t)tokens(f) * C;
    float *y = pal_alloc(n, 4), *dx = pal_alloc(n, 4), *dw = pal_alloc(4 * C, 4), *dbias = pal_alloc(C, 4);
    for (size_t i = 0; i < PAL_COUNT(counts); i++) {
        pal_context *cx = test_context(counts[i], NULL);
        memset(f->dw, 0, 16 * C), memset(f->dbias, 0, 4 * C);
        pal_conv_silu(cx, &f->a);
        pal_conv_silu_backward(cx, &f->a, f->scratch);
        pal_context_free(cx);
        if (i) {
            test_same_bits("y", f->y, y, n), test_same_bits("dx", f->dx, dx, n);
            test_same_bits("dw", f->dw, dw, 4 * C), test_same_bits("dbias", f->dbias, dbias, C);
        }
        memcpy(y, f->y, 4 * n), memcpy(dx, f->dx, 4 * n), memcpy(dw, f->dw, 16 * C), memcpy(dbias, f->dbias, 4 * C);
    }
    pal_free(y), pal_free(dx), pal_free(dw), pal_free(dbias);
    drop(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_equals_separate),
        cmocka_unit_test(pieces_equal_the_whole),
        cmocka_unit_test(backward_goes_on_from_a_window),
        cmocka_unit_test(thread_count_does_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
