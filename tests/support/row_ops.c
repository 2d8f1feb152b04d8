/* SPDX-License-Identifier: MIT */
#include "support/row_ops.h"

#include <math.h>

#include "base/alloc.h"
#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norms/norms.h"
#include "kernels/rotary/rotary.h"

size_t row_array_floats(const row_array *a) { return (a->rows - 1) * a->stride + a->width; }

row_array *row_array_named(row_op *o, const char *name) {
    for (int i = 0; i < o->count; i++)
        if (strcmp(o->arrays[i].name, name) == 0) return &o->arrays[i];
    return NULL;
}
static pal_view view(row_op *o, const char *name) {
    const row_array *a = row_array_named(o, name);
    return a ? (pal_view){ a->data, a->stride } : (pal_view){ 0 };
}
static pal_const_view reading(row_op *o, const char *name) { return pal_reading(view(o, name)); }
static float *data(row_op *o, const char *name) { return view(o, name).data; }

/* Rows are a few floats further apart than they are wide; the last one ends at a guard page. */
static row_array *add(row_op *o, const char *name, row_role r, size_t rows, size_t width) {
    assert_true(o->count < ROW_ARRAYS);
    row_array *a = &o->arrays[o->count];
    *a = (row_array){ .name = name,
                      .role = r,
                      .rows = rows,
                      .width = width,
                      .stride = rows > 1 ? width + (size_t)(o->count % 4) : width };
    o->count++;
    a->data = a->block = test_guarded(row_array_floats(a));
    return a;
}

/* Fresh numbers: inputs random, outputs NaN, sums 1 (so that "added to" shows). Bytes between rows are NaN. */
static void fill(row_op *o, row_array *a) {
    for (size_t i = 0; i < row_array_floats(a); i++) a->data[i] = NAN;
    if (a->role == ROW_OUT || a->role == ROW_GRAD) return;
    for (size_t t = 0; t < a->rows; t++)
        for (size_t j = 0; j < a->width; j++)
            a->data[t * a->stride + j] = a->role == ROW_SUM ? 1.0f : (float)pal_rng_normal(&o->rng);
}

row_op *row_op_new(const row_kind *k, size_t rows, int width, uint64_t seed) {
    row_op *o = pal_alloc(1, sizeof *o);
    assert_non_null(o);
    o->kind = k;
    o->rng = pal_rng_at(seed, (uint64_t)width);
    o->rows = rows;
    o->width = width;
    o->groups = 1;
    k->make(o, rows, width);
    for (int i = 0; i < o->count; i++) fill(o, &o->arrays[i]);
    return o;
}
void row_op_free(row_op *o) {
    for (int i = 0; i < o->count; i++) test_guarded_free(o->arrays[i].block, row_array_floats(&o->arrays[i]));
    pal_free(o);
}
bool row_array_is_result(const row_array *a) { return a->role == ROW_OUT || a->role == ROW_GRAD || a->role == ROW_SUM; }
row_op *row_op_copy(row_op *o) {
    row_op *c = pal_alloc(1, sizeof *c);
    *c = *o;
    for (int i = 0; i < c->count; i++) {
        row_array *a = &c->arrays[i];
        a->data = a->block = test_guarded(row_array_floats(a));
        memcpy(a->data, o->arrays[i].data, row_array_floats(a) * sizeof *a->data);
    }
    return c;
}

static void make_norm(row_op *o, size_t rows, int width, int groups, bool shared, bool gate) {
    const size_t channels = (size_t)groups * (size_t)width;
    o->groups = groups;
    add(o, "x", ROW_IN, rows, channels);
    add(o, "w", ROW_PARAM, 1, shared ? (size_t)width : channels);
    add(o, "dy", ROW_UPSTREAM, rows, channels);
    add(o, "y", ROW_OUT, rows, channels);
    add(o, "dx", ROW_GRAD, rows, channels);
    add(o, "dw", ROW_SUM, 1, shared ? (size_t)width : channels);
    if (!gate) return;
    add(o, "z", ROW_IN, rows, channels);
    add(o, "dz", ROW_GRAD, rows, channels);
}
static void make_rmsnorm(row_op *o, size_t rows, int width) { make_norm(o, rows, width, 1, false, false); }
static void make_rmsnorm_add(row_op *o, size_t rows, int width) {
    make_norm(o, rows, width, 1, false, false);
    add(o, "add", ROW_UPSTREAM, rows, (size_t)width);
}
static void make_norm_then_gate(row_op *o, size_t rows, int width) { make_norm(o, rows, width, 3, true, true); }
static void make_gate_then_norm(row_op *o, size_t rows, int width) { make_norm(o, rows, width, 2, false, true); }

static void run_norm(row_op *o, const pal_context *cx, pal_norm_gate gate, bool shared) {
    const size_t channels = (size_t)o->groups * (size_t)o->width;
    float *again = test_guarded(o->rows * channels);
    const pal_rmsnorm_args a = {
        .rows = o->rows,
        .groups = o->groups,
        .width = o->width,
        .gate = gate,
        .shared_weight = shared,
        .eps = 1e-3f,
        .w = data(o, "w"),
        .x = reading(o, "x"),
        .z = reading(o, "z"),
        .y = view(o, "y"),
        .dy = reading(o, "dy"),
        .add = reading(o, "add"),
        .dx = view(o, "dx"),
        .dz = view(o, "dz"),
        .again = { again, channels },
        .dw = data(o, "dw"),
    };
    if (a.y.data) pal_rmsnorm(cx, &a);
    if (a.dx.data) {
        const size_t n = pal_rmsnorm_scratch_floats(&a);
        float *scratch = test_guarded(n);
        pal_rmsnorm_backward(cx, &a, scratch);
        test_guarded_free(scratch, n);
        const bool whole = a.y.data && a.y.data != a.x.data && a.y.data != a.z.data; /* not y of the y on x */
        for (size_t i = 0; i < o->rows * channels && whole; i++) { /* backward gives the bits of forward */
            const float y = pal_row(a.y, i / channels)[i % channels];
            if (again[i] != y && !(isnan(again[i]) && isnan(y)))
                fail_msg("y %zu is %a, again %a", i, (double)y, (double)again[i]);
        }
    }
    test_guarded_free(again, o->rows * channels);
}
static void run_rmsnorm(row_op *o, const pal_context *cx) { run_norm(o, cx, PAL_GATE_NONE, false); }
static void run_norm_then_gate(row_op *o, const pal_context *cx) { run_norm(o, cx, PAL_GATE_AFTER, true); }
static void run_gate_then_norm(row_op *o, const pal_context *cx) { run_norm(o, cx, PAL_GATE_BEFORE, false); }

static void make_layernorm(row_op *o, size_t rows, int width) {
    make_norm(o, rows, width, 1, false, false);
    add(o, "b", ROW_PARAM, 1, (size_t)width);
    add(o, "db", ROW_SUM, 1, (size_t)width);
}
static void run_layernorm(row_op *o, const pal_context *cx) {
    const pal_layernorm_args a = { .rows = o->rows,
                                   .width = o->width,
                                   .eps = 1e-3f,
                                   .w = data(o, "w"),
                                   .b = data(o, "b"),
                                   .x = reading(o, "x"),
                                   .y = view(o, "y"),
                                   .dy = reading(o, "dy"),
                                   .dx = view(o, "dx"),
                                   .dw = data(o, "dw"),
                                   .db = data(o, "db") };
    if (a.y.data) pal_layernorm(cx, &a);
    if (!a.dx.data) return;
    const size_t n = pal_layernorm_scratch_floats(&a);
    float *scratch = test_guarded(n);
    pal_layernorm_backward(cx, &a, scratch);
    test_guarded_free(scratch, n);
}

static void make_l2(row_op *o, size_t rows, int width) {
    const size_t channels = 3 * (size_t)width;
    o->groups = 3;
    add(o, "x", ROW_IN, rows, channels);
    add(o, "dy", ROW_UPSTREAM, rows, channels);
    add(o, "y", ROW_OUT, rows, channels);
    add(o, "dx", ROW_GRAD, rows, channels);
}
static void run_l2(row_op *o, const pal_context *cx, pal_l2_kind l2) {
    const pal_l2norm_args a = { .rows = o->rows,
                                .groups = o->groups,
                                .width = o->width,
                                .kind = l2,
                                .x = reading(o, "x"),
                                .y = view(o, "y"),
                                .dy = reading(o, "dy"),
                                .dx = view(o, "dx") };
    if (a.y.data) pal_l2norm(cx, &a);
    if (a.dx.data) pal_l2norm_backward(cx, &a);
}
static void run_l2_clamp(row_op *o, const pal_context *cx) { run_l2(o, cx, PAL_L2_CLAMP); }
static void run_l2_eps(row_op *o, const pal_context *cx) { run_l2(o, cx, PAL_L2_EPS); }

/* Cuts the rows into sequences of random lengths, with some of length 1. */
static void cut(row_op *o, size_t rows) {
    assert_true(rows <= ROW_TOKENS);
    for (int at = 0; at < (int)rows; o->sequences++) {
        const int left = (int)rows - at, most = left < 40 ? left : 40;
        at += pal_rng_below(&o->rng, 4) ? 1 + (int)pal_rng_below(&o->rng, (uint32_t)most) : 1;
        o->cu_seqlens[o->sequences + 1] = at;
    }
}

static void make_conv_taps(row_op *o, size_t rows, int width, int taps, bool bias) {
    const size_t C = (size_t)width;
    cut(o, rows);
    o->groups = taps;
    add(o, "x", ROW_IN, rows, C);
    add(o, "w", ROW_PARAM, 1, C * (size_t)taps);
    add(o, "dy", ROW_UPSTREAM, rows, C);
    add(o, "y", ROW_OUT, rows, C);
    add(o, "dx", ROW_GRAD, rows, C);
    add(o, "dw", ROW_SUM, 1, C * (size_t)taps);
    if (!bias) return;
    add(o, "b", ROW_PARAM, 1, C);
    add(o, "db", ROW_SUM, 1, C);
}
static void make_conv(row_op *o, size_t rows, int width) { make_conv_taps(o, rows, width, 4, true); }
static void make_conv_odd(row_op *o, size_t rows, int width) { make_conv_taps(o, rows, width, 1 + width % 6, false); }
static bool is_linear(const row_op *o) { return strcmp(o->kind->name, "conv_linear") == 0; }
static pal_conv_args conv_args(row_op *o) {
    return (pal_conv_args){ .sequences = o->sequences,
                            .cu_seqlens = o->cu_seqlens,
                            .channels = o->width,
                            .taps = o->groups,
                            .linear = is_linear(o),
                            .w = data(o, "w"),
                            .bias = data(o, "b"),
                            .x = reading(o, "x"),
                            .y = view(o, "y"),
                            .dy = reading(o, "dy"),
                            .dx = view(o, "dx"),
                            .dw = data(o, "dw"),
                            .dbias = data(o, "db") };
}
static void run_conv(row_op *o, const pal_context *cx) {
    const pal_conv_args a = conv_args(o);
    if (a.dx.data) {
        const size_t n = pal_conv_silu_scratch_floats(&a);
        float *scratch = test_guarded(n);
        pal_conv_silu_backward(cx, &a, scratch);
        test_guarded_free(scratch, n);
    }
    if (a.y.data) pal_conv_silu(cx, &a);
}

static void make_rotary(row_op *o, size_t rows, int width) {
    cut(o, rows);
    o->width = 2 * width;
    o->groups = 3;
    for (int n = 0; n < o->sequences; n++) o->numbers[n] = (int)pal_rng_below(&o->rng, 50);
    add(o, "x", ROW_IN, rows, 6 * (size_t)width);
    add(o, "dy", ROW_UPSTREAM, rows, 6 * (size_t)width);
    add(o, "y", ROW_OUT, rows, 6 * (size_t)width);
    add(o, "dx", ROW_GRAD, rows, 6 * (size_t)width);
}
static void run_rotary(row_op *o, const pal_context *cx) {
    enum { POSITIONS = 90 };
    const size_t n = pal_rotary_table_floats(POSITIONS, o->width);
    float *table = test_guarded(n);
    pal_rotary_table(cx, table, 0, POSITIONS, o->width, 100.0);
    const pal_rotary_args a = { .sequences = o->sequences,
                                .cu_seqlens = o->cu_seqlens,
                                .offsets = o->numbers,
                                .heads = o->groups,
                                .width = o->width,
                                .table = table,
                                .x = reading(o, "x"),
                                .y = view(o, "y"),
                                .dy = reading(o, "dy"),
                                .dx = view(o, "dx") };
    if (a.y.data) pal_rotary(cx, &a);
    if (a.dx.data) pal_rotary_backward(cx, &a);
    test_guarded_free(table, n);
}

/* y = f(x), or y = f(x, by), one number a channel. */
static void make_elementwise(row_op *o, size_t rows, int width) {
    add(o, "x", ROW_IN, rows, (size_t)width);
    add(o, "dy", ROW_UPSTREAM, rows, (size_t)width);
    add(o, "y", ROW_OUT, rows, (size_t)width);
    add(o, "dx", ROW_GRAD, rows, (size_t)width);
}
static void make_multiply(row_op *o, size_t rows, int width) {
    make_elementwise(o, rows, width);
    add(o, "by", ROW_IN, rows, (size_t)width);
    add(o, "dby", ROW_GRAD, rows, (size_t)width);
}
typedef void elementwise_fn(const pal_context *cx, const pal_elementwise_args *a);
static void elementwise(row_op *o, const pal_context *cx, elementwise_fn *fn, const char *x, const char *by,
                        const char *y) {
    const pal_elementwise_args a = { .rows = o->rows,
                                     .width = (int)row_array_named(o, x)->width,
                                     .factor = -1.75f,
                                     .x = reading(o, x),
                                     .by = reading(o, by),
                                     .y = view(o, y) };
    if (a.y.data) fn(cx, &a);
}
static void run_scale(row_op *o, const pal_context *cx) {
    elementwise(o, cx, pal_scale_rows, "x", "none", "y");
    elementwise(o, cx, pal_scale_rows, "dy", "none", "dx");
}
static void run_relu2(row_op *o, const pal_context *cx) {
    elementwise(o, cx, pal_relu2_backward, "x", "dy", "dx");
    elementwise(o, cx, pal_relu2, "x", "none", "y");
}
static void run_multiply(row_op *o, const pal_context *cx) {
    elementwise(o, cx, pal_multiply_rows, "dy", "x", "dby");
    elementwise(o, cx, pal_multiply_rows, "dy", "by", "dx");
    elementwise(o, cx, pal_multiply_rows, "x", "by", "y");
}

/* The first 2/3 of each of three heads turn where they lie, in a copy. */
static void make_rotary_part(row_op *o, size_t rows, int width) {
    cut(o, rows);
    o->width = 2 * width;
    o->groups = 3;
    for (int n = 0; n < o->sequences; n++) o->numbers[n] = (int)pal_rng_below(&o->rng, 50);
    make_elementwise(o, rows, 9 * width);
}
static void run_rotary_part(row_op *o, const pal_context *cx) {
    enum { POSITIONS = 90 };
    const size_t n = pal_rotary_table_floats(POSITIONS, o->width);
    float *table = test_guarded(n);
    pal_rotary_table(cx, table, 0, POSITIONS, o->width, 100.0);
    const pal_rotary_args a = { .sequences = o->sequences,
                                .cu_seqlens = o->cu_seqlens,
                                .offsets = o->numbers,
                                .heads = o->groups,
                                .width = o->width,
                                .stride = o->width / 2 * 3,
                                .table = table,
                                .x = reading(o, "y"),
                                .y = view(o, "y"),
                                .dy = reading(o, "dx"),
                                .dx = view(o, "dx") };
    elementwise(o, cx, pal_copy_rows, "x", "none", "y");
    elementwise(o, cx, pal_copy_rows, "dy", "none", "dx");
    if (a.y.data) pal_rotary(cx, &a);
    if (a.dx.data) pal_rotary_backward(cx, &a);
    test_guarded_free(table, n);
}

static void make_activation(row_op *o, size_t rows, int width) {
    add(o, "x", ROW_IN, rows, (size_t)width);
    add(o, "bias", ROW_PARAM, 1, (size_t)width);
    add(o, "dy", ROW_UPSTREAM, rows, (size_t)width);
    add(o, "y", ROW_OUT, rows, (size_t)width);
    add(o, "dx", ROW_GRAD, rows, (size_t)width);
    add(o, "dbias", ROW_SUM, 1, (size_t)width);
}
static void run_activation(row_op *o, const pal_context *cx, pal_activation f) {
    const pal_activation_args a = { .rows = o->rows,
                                    .width = o->width,
                                    .kind = f,
                                    .bias = data(o, "bias"),
                                    .x = reading(o, "x"),
                                    .y = view(o, "y"),
                                    .dy = reading(o, "dy"),
                                    .dx = view(o, "dx"),
                                    .dbias = data(o, "dbias") };
    if (a.y.data) pal_activate(cx, &a);
    if (!a.dx.data) return;
    const size_t n = pal_activate_scratch_floats(&a);
    float *scratch = test_guarded(n);
    pal_activate_backward(cx, &a, scratch);
    test_guarded_free(scratch, n);
}
static void run_silu(row_op *o, const pal_context *cx) { run_activation(o, cx, PAL_SILU); }
static void run_sigmoid(row_op *o, const pal_context *cx) { run_activation(o, cx, PAL_SIGMOID); }
static void run_softplus(row_op *o, const pal_context *cx) { run_activation(o, cx, PAL_SOFTPLUS); }
static void run_rational(row_op *o, const pal_context *cx) { run_activation(o, cx, PAL_RATIONAL); }

/* Without forward, which would write y again, and without a bias. */
static void activation_backward(row_op *o, const pal_context *cx, pal_activation f) {
    const pal_activation_args a = {
        .rows = o->rows, .width = o->width, .kind = f, .y = view(o, "y"), .dy = reading(o, "dy"), .dx = view(o, "dx")
    };
    pal_activate_backward(cx, &a, NULL);
}
static void sigmoid_backward(row_op *o, const pal_context *cx) { activation_backward(o, cx, PAL_SIGMOID); }
static void softplus_backward(row_op *o, const pal_context *cx) { activation_backward(o, cx, PAL_SOFTPLUS); }
static void rational_backward(row_op *o, const pal_context *cx) { activation_backward(o, cx, PAL_RATIONAL); }

static void make_swiglu(row_op *o, size_t rows, int width) {
    static const char *const names[] = { "gate", "up", "dy", "y", "dgate", "dup" };
    static const row_role roles[] = { ROW_IN, ROW_IN, ROW_UPSTREAM, ROW_OUT, ROW_GRAD, ROW_GRAD };
    for (size_t i = 0; i < PAL_COUNT(names); i++) add(o, names[i], roles[i], rows, (size_t)width);
}
static void run_swiglu(row_op *o, const pal_context *cx) {
    const pal_swiglu_args a = { .rows = o->rows,
                                .width = o->width,
                                .gate = reading(o, "gate"),
                                .up = reading(o, "up"),
                                .y = view(o, "y"),
                                .dy = reading(o, "dy"),
                                .dgate = view(o, "dgate"),
                                .dup = view(o, "dup") };
    if (a.y.data) pal_swiglu(cx, &a);
    if (a.dgate.data) pal_swiglu_backward(cx, &a);
}

static void make_head_gate(row_op *o, size_t rows, int width) {
    const size_t channels = 3 * (size_t)width;
    o->groups = 3;
    add(o, "x", ROW_IN, rows, channels);
    add(o, "s", ROW_IN, rows, 3);
    add(o, "v", ROW_OUT, rows, channels);
    add(o, "dv", ROW_UPSTREAM, rows, channels);
    add(o, "dx", ROW_GRAD, rows, channels);
    add(o, "ds", ROW_GRAD, rows, 3);
}
static void make_head_gate_b(row_op *o, size_t rows, int width) {
    const size_t channels = 3 * (size_t)width;
    make_head_gate(o, rows, width);
    add(o, "pre", ROW_IN, rows, channels);
    add(o, "c", ROW_PARAM, 1, 3);
    add(o, "b", ROW_OUT, rows, channels);
    add(o, "db", ROW_UPSTREAM, rows, channels);
    add(o, "dpre", ROW_GRAD, rows, channels);
    add(o, "dc", ROW_SUM, 1, 3);
}
static void make_head_gate_skip(row_op *o, size_t rows, int width) {
    make_head_gate(o, rows, width);
    add(o, "D", ROW_PARAM, 1, 3);
    add(o, "o", ROW_OUT, rows, 3 * (size_t)width);
    add(o, "do", ROW_UPSTREAM, rows, 3 * (size_t)width);
    add(o, "dD", ROW_SUM, 1, 3);
}
static void make_head_gate_all(row_op *o, size_t rows, int width) {
    make_head_gate_b(o, rows, width);
    add(o, "D", ROW_PARAM, 1, 3);
    add(o, "o", ROW_OUT, rows, 3 * (size_t)width);
    add(o, "do", ROW_UPSTREAM, rows, 3 * (size_t)width);
    add(o, "dD", ROW_SUM, 1, 3);
}
static void run_head_gate(row_op *o, const pal_context *cx) {
    const pal_head_gate_args a = {
        .rows = o->rows,
        .heads = 3,
        .width = o->width,
        .x = reading(o, "x"),
        .pre = reading(o, "pre"),
        .s = reading(o, "s"),
        .c = data(o, "c"),
        .D = data(o, "D"),
        .v = view(o, "v"),
        .b = view(o, "b"),
        .o = view(o, "o"),
        .dv = reading(o, "dv"),
        .db = reading(o, "db"),
        .d_o = reading(o, "do"),
        .dx = view(o, "dx"),
        .dpre = view(o, "dpre"),
        .ds = view(o, "ds"),
        .dc = data(o, "dc"),
        .dD = data(o, "dD"),
    };
    if (a.o.data) { /* the skip adds to what the memory gave: a quarter here */
        row_array *out = row_array_named(o, "o");
        for (size_t t = 0; t < out->rows; t++)
            for (size_t j = 0; j < out->width; j++) out->data[t * out->stride + j] = 0.25f;
        pal_head_skip(cx, &a);
    }
    if (a.v.data) pal_head_gate(cx, &a);
    if (!a.dx.data) return;
    const size_t n = pal_head_gate_scratch_floats(&a);
    float *scratch = test_guarded(n);
    pal_head_gate_backward(cx, &a, scratch);
    test_guarded_free(scratch, n);
}

static void make_loss(row_op *o, size_t rows, int width) {
    for (size_t t = 0; t < rows; t++)
        o->numbers[t] = pal_rng_below(&o->rng, 4) ? (int)pal_rng_below(&o->rng, (uint32_t)width) : PAL_LABEL_IGNORED;
    add(o, "logits", ROW_IN, rows, (size_t)width);
    add(o, "nll", ROW_OUT, rows, 1)->stride = 1;
    add(o, "dlogits", ROW_GRAD, rows, (size_t)width);
    add(o, "dnll", ROW_UPSTREAM, rows, 1)->stride = 1;
}
static void run_loss(row_op *o, const pal_context *cx) {
    row_array *up = row_array_named(o, "dnll");
    for (size_t t = 0; t < up->rows; t++) up->data[t] = 0.125f;
    float *nll = row_array_named(o, "nll")->block; /* cannot be left out */
    const pal_cross_entropy_args a = { .rows = o->rows,
                                       .vocab = o->width,
                                       .logits = reading(o, "logits"),
                                       .labels = o->numbers,
                                       .scale = 0.125f,
                                       .nll = nll,
                                       .dlogits = view(o, "dlogits") };
    pal_cross_entropy(cx, &a);
}

const row_kind row_kinds[] = {
    { "rmsnorm", make_rmsnorm, run_rmsnorm, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1, .norm = true },
    { "rmsnorm_add", make_rmsnorm_add, run_rmsnorm, { { "dx", "add" } }, 1, .norm = true, .no_differences = true },
    { "norm_then_gate",
      make_norm_then_gate,
      run_norm_then_gate,
      { { "y", "x" }, { "y", "z" }, { "dx", "dy" }, { "dz", "z" } },
      1,
      .norm = true },
    { "gate_then_norm",
      make_gate_then_norm,
      run_gate_then_norm,
      { { "y", "x" }, { "y", "z" }, { "dx", "x" }, { "dx", "dy" }, { "dz", "z" } },
      1,
      .norm = true },
    { "layernorm", make_layernorm, run_layernorm, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1, .norm = true },
    { "l2_clamp", make_l2, run_l2_clamp, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1, .norm = true },
    { "l2_eps", make_l2, run_l2_eps, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1, .norm = true },
    { "conv", make_conv, run_conv, { { "y", "x" } }, 1 },
    { "conv_odd", make_conv_odd, run_conv, { { "y", "x" } }, 1 },
    { "conv_linear", make_conv_odd, run_conv, { { "y", "x" } }, 1 },
    { "rotary", make_rotary, run_rotary, { { "y", "x" }, { "dx", "dy" } }, 1 },
    { "rotary_part", make_rotary_part, run_rotary_part, { { "y", "x" }, { "dx", "dy" } }, 1 },
    { "scale", make_elementwise, run_scale, { { "y", "x" }, { "dx", "dy" } }, 1 },
    { "relu2", make_elementwise, run_relu2, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1 },
    { "multiply", make_multiply, run_multiply, { { "y", "x" }, { "y", "by" }, { "dx", "dy" }, { "dx", "by" } }, 1 },
    { "silu", make_activation, run_silu, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1 },
    { "sigmoid",
      make_activation,
      run_sigmoid,
      { { "y", "x" }, { "dx", "dy" }, { "dx", "y" } },
      1,
      .backward_from_output = sigmoid_backward },
    { "softplus",
      make_activation,
      run_softplus,
      { { "y", "x" }, { "dx", "dy" }, { "dx", "y" } },
      1,
      .backward_from_output = softplus_backward },
    { "rational",
      make_activation,
      run_rational,
      { { "y", "x" }, { "dx", "dy" }, { "dx", "y" } },
      1,
      .backward_from_output = rational_backward },
    { "swiglu",
      make_swiglu,
      run_swiglu,
      { { "y", "gate" }, { "y", "up" }, { "dgate", "gate" }, { "dgate", "dy" }, { "dup", "up" }, { "dup", "dy" } },
      1 },
    { "head_gate", make_head_gate, run_head_gate, { { "v", "x" }, { "dx", "x" }, { "dx", "dv" } }, 1 },
    { "head_gate_b", make_head_gate_b, run_head_gate, { { "b", "pre" }, { "dpre", "pre" }, { "dpre", "db" } }, 1 },
    { "head_gate_skip", make_head_gate_skip, run_head_gate, { { "dx", "do" } }, 1 },
    { "head_gate_all", make_head_gate_all, run_head_gate, { { "dx", "dv" } }, 1 },
    { "cross_entropy", make_loss, run_loss, { { "dlogits", "logits" } }, 2, .labelled = true },
};
const size_t row_kind_count = PAL_COUNT(row_kinds);
