/* SPDX-License-Identifier: MIT */
/* One set of claims for every row kernel: each is described once (its arrays by name and how to run it) and then checked
 * at every CPU level, at sizes around the vector widths, against finite differences, for thread counts, for outputs that
 * lie on inputs and for NaN that must stay in its row. Gradients are named "d" + what they belong to. */
#include <math.h>

#include "base/alloc.h"
#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norms/norms.h"
#include "kernels/rotary/rotary.h"
#include "support/support.h"

typedef enum { IN, PARAM, UPSTREAM, OUT, GRAD, SUM } role; /* SUM: gradient of a parameter, added to */
typedef struct {
    const char *name;
    role role;
    size_t rows, width, stride;
    float *data, *block; /* block: as allocated; data may be lent another array's rows */
} array;

enum { MAX_ARRAYS = 16, MAX_TOKENS = 2048 };
typedef struct op op;
typedef struct {
    const char *name;
    void (*make)(op *o, size_t rows, int width);
    void (*run)(op *o, const pal_context *cx);
    const char *on[6][2]; /* outputs that may lie on inputs */
    int smallest;         /* width */
} kind;
struct op {
    const kind *kind;
    pal_rng rng;
    array arrays[MAX_ARRAYS];
    int count;
    size_t rows;
    int groups, width, sequences;
    int cu_seqlens[MAX_TOKENS + 1], numbers[MAX_TOKENS];
};

static size_t floats_of(const array *a) { return (a->rows - 1) * a->stride + a->width; }

static array *find_array(op *o, const char *name) {
    for (int i = 0; i < o->count; i++)
        if (strcmp(o->arrays[i].name, name) == 0) return &o->arrays[i];
    return NULL;
}
static pal_view view(op *o, const char *name) {
    const array *a = find_array(o, name);
    return a ? (pal_view){ a->data, a->stride } : (pal_view){ 0 };
}
static pal_const_view reading(op *o, const char *name) { return pal_reading(view(o, name)); }
static float *data(op *o, const char *name) { return view(o, name).data; }

/* Rows are a few floats further apart than they are wide; the last one ends at a guard page. */
static array *add(op *o, const char *name, role r, size_t rows, size_t width) {
    assert_true(o->count < MAX_ARRAYS);
    array *a = &o->arrays[o->count];
    *a = (array){ .name = name, .role = r, .rows = rows, .width = width, .stride = rows > 1 ? width + (size_t)(o->count % 4) : width };
    o->count++;
    a->data = a->block = test_guarded(floats_of(a));
    return a;
}

/* Fresh numbers: inputs random, outputs NaN, sums 1 (so that "added to" shows). Bytes between rows are NaN. */
static void fill(op *o, array *a) {
    for (size_t i = 0; i < floats_of(a); i++) a->data[i] = NAN;
    if (a->role == OUT || a->role == GRAD) return;
    for (size_t t = 0; t < a->rows; t++)
        for (size_t j = 0; j < a->width; j++) a->data[t * a->stride + j] = a->role == SUM ? 1.0f : (float)pal_rng_normal(&o->rng);
}

static op *new_op(const kind *k, size_t rows, int width, uint64_t seed) {
    op *o = pal_alloc(1, sizeof *o);
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
static void free_op(op *o) {
    for (int i = 0; i < o->count; i++) test_guarded_free(o->arrays[i].block, floats_of(&o->arrays[i]));
    pal_free(o);
}
static bool is_result(const array *a) { return a->role == OUT || a->role == GRAD || a->role == SUM; }
/* The same op with the same numbers. */
static op *copy_op(op *o) {
    op *c = pal_alloc(1, sizeof *c);
    *c = *o;
    for (int i = 0; i < c->count; i++) {
        array *a = &c->arrays[i];
        a->data = a->block = test_guarded(floats_of(a));
        memcpy(a->data, o->arrays[i].data, floats_of(a) * sizeof *a->data);
    }
    return c;
}

static void make_norm(op *o, size_t rows, int width, int groups, bool shared, bool gate) {
    const size_t channels = (size_t)groups * (size_t)width;
    o->groups = groups;
    add(o, "x", IN, rows, channels);
    add(o, "w", PARAM, 1, shared ? (size_t)width : channels);
    add(o, "dy", UPSTREAM, rows, channels);
    add(o, "y", OUT, rows, channels);
    add(o, "dx", GRAD, rows, channels);
    add(o, "dw", SUM, 1, shared ? (size_t)width : channels);
    if (!gate) return;
    add(o, "z", IN, rows, channels);
    add(o, "dz", GRAD, rows, channels);
}
static void make_rmsnorm(op *o, size_t rows, int width) { make_norm(o, rows, width, 1, false, false); }
static void make_rmsnorm_add(op *o, size_t rows, int width) {
    make_norm(o, rows, width, 1, false, false);
    add(o, "add", UPSTREAM, rows, (size_t)width);
}
static void make_norm_then_gate(op *o, size_t rows, int width) { make_norm(o, rows, width, 3, true, true); }
static void make_gate_then_norm(op *o, size_t rows, int width) { make_norm(o, rows, width, 2, false, true); }

static void run_norm(op *o, const pal_context *cx, pal_norm_gate gate, bool shared) {
    const pal_rmsnorm_args a = {
        .rows = o->rows, .groups = o->groups, .width = o->width, .gate = gate, .shared_weight = shared, .eps = 1e-3f,
        .w = data(o, "w"), .x = reading(o, "x"), .z = reading(o, "z"), .y = view(o, "y"), .dy = reading(o, "dy"),
        .add = reading(o, "add"), .dx = view(o, "dx"), .dz = view(o, "dz"), .dw = data(o, "dw"),
    };
    if (a.y.data) pal_rmsnorm(cx, &a);
    if (!a.dx.data) return;
    const size_t n = pal_rmsnorm_scratch_floats(&a);
    float *scratch = test_guarded(n);
    pal_rmsnorm_backward(cx, &a, scratch);
    test_guarded_free(scratch, n);
}
static void run_rmsnorm(op *o, const pal_context *cx) { run_norm(o, cx, PAL_GATE_NONE, false); }
static void run_norm_then_gate(op *o, const pal_context *cx) { run_norm(o, cx, PAL_GATE_AFTER, true); }
static void run_gate_then_norm(op *o, const pal_context *cx) { run_norm(o, cx, PAL_GATE_BEFORE, false); }

static void make_layernorm(op *o, size_t rows, int width) {
    make_norm(o, rows, width, 1, false, false);
    add(o, "b", PARAM, 1, (size_t)width);
    add(o, "db", SUM, 1, (size_t)width);
}
static void run_layernorm(op *o, const pal_context *cx) {
    const pal_layernorm_args a = { .rows = o->rows, .width = o->width, .eps = 1e-3f, .w = data(o, "w"), .b = data(o, "b"),
                                   .x = reading(o, "x"), .y = view(o, "y"), .dy = reading(o, "dy"), .dx = view(o, "dx"),
                                   .dw = data(o, "dw"), .db = data(o, "db") };
    if (a.y.data) pal_layernorm(cx, &a);
    if (!a.dx.data) return;
    const size_t n = pal_layernorm_scratch_floats(&a);
    float *scratch = test_guarded(n);
    pal_layernorm_backward(cx, &a, scratch);
    test_guarded_free(scratch, n);
}

static void make_l2(op *o, size_t rows, int width) {
    const size_t channels = 3 * (size_t)width;
    o->groups = 3;
    add(o, "x", IN, rows, channels);
    add(o, "dy", UPSTREAM, rows, channels);
    add(o, "y", OUT, rows, channels);
    add(o, "dx", GRAD, rows, channels);
}
static void run_l2(op *o, const pal_context *cx, pal_l2_kind l2) {
    const pal_l2norm_args a = { .rows = o->rows, .groups = o->groups, .width = o->width, .kind = l2, .x = reading(o, "x"),
                                .y = view(o, "y"), .dy = reading(o, "dy"), .dx = view(o, "dx") };
    if (a.y.data) pal_l2norm(cx, &a);
    if (a.dx.data) pal_l2norm_backward(cx, &a);
}
static void run_l2_clamp(op *o, const pal_context *cx) { run_l2(o, cx, PAL_L2_CLAMP); }
static void run_l2_eps(op *o, const pal_context *cx) { run_l2(o, cx, PAL_L2_EPS); }

/* Cuts the rows into sequences of random lengths, with some of length 1. */
static void cut(op *o, size_t rows) {
    assert_true(rows <= MAX_TOKENS);
    for (int at = 0; at < (int)rows; o->sequences++) {
        const int left = (int)rows - at, most = left < 40 ? left : 40;
        at += pal_rng_below(&o->rng, 4) ? 1 + (int)pal_rng_below(&o->rng, (uint32_t)most) : 1;
        o->cu_seqlens[o->sequences + 1] = at;
    }
}

static void make_conv_taps(op *o, size_t rows, int width, int taps, bool bias) {
    const size_t C = (size_t)width;
    cut(o, rows);
    o->groups = taps;
    add(o, "x", IN, rows, C);
    add(o, "w", PARAM, 1, C * (size_t)taps);
    add(o, "dy", UPSTREAM, rows, C);
    add(o, "y", OUT, rows, C);
    add(o, "dx", GRAD, rows, C);
    add(o, "dw", SUM, 1, C * (size_t)taps);
    if (!bias) return;
    add(o, "b", PARAM, 1, C);
    add(o, "db", SUM, 1, C);
}
static void make_conv(op *o, size_t rows, int width) { make_conv_taps(o, rows, width, 4, true); }
static void make_conv_odd(op *o, size_t rows, int width) { make_conv_taps(o, rows, width, 1 + width % 6, false); }
static pal_conv_args conv_args(op *o) {
    return (pal_conv_args){ .sequences = o->sequences, .cu_seqlens = o->cu_seqlens, .channels = o->width, .taps = o->groups,
                            .w = data(o, "w"), .bias = data(o, "b"), .x = reading(o, "x"), .y = view(o, "y"),
                            .dy = reading(o, "dy"), .dx = view(o, "dx"), .dw = data(o, "dw"), .dbias = data(o, "db") };
}
static void run_conv(op *o, const pal_context *cx) {
    const pal_conv_args a = conv_args(o);
    if (a.dx.data) {
        const size_t n = pal_conv_silu_scratch_floats(&a);
        float *scratch = test_guarded(n);
        pal_conv_silu_backward(cx, &a, scratch);
        test_guarded_free(scratch, n);
    }
    if (a.y.data) pal_conv_silu(cx, &a);
}

static void make_rotary(op *o, size_t rows, int width) {
    cut(o, rows);
    o->width = 2 * width;
    o->groups = 3;
    for (int n = 0; n < o->sequences; n++) o->numbers[n] = (int)pal_rng_below(&o->rng, 50);
    add(o, "x", IN, rows, 6 * (size_t)width);
    add(o, "dy", UPSTREAM, rows, 6 * (size_t)width);
    add(o, "y", OUT, rows, 6 * (size_t)width);
    add(o, "dx", GRAD, rows, 6 * (size_t)width);
}
static void run_rotary(op *o, const pal_context *cx) {
    enum { POSITIONS = 90 };
    const size_t n = pal_rotary_table_floats(POSITIONS, o->width);
    float *table = test_guarded(n);
    pal_rotary_table(cx, table, 0, POSITIONS, o->width, 100.0);
    const pal_rotary_args a = { .sequences = o->sequences, .cu_seqlens = o->cu_seqlens, .offsets = o->numbers, .heads = o->groups,
                                .width = o->width, .table = table, .x = reading(o, "x"), .y = view(o, "y"),
                                .dy = reading(o, "dy"), .dx = view(o, "dx") };
    if (a.y.data) pal_rotary(cx, &a);
    if (a.dx.data) pal_rotary_backward(cx, &a);
    test_guarded_free(table, n);
}

static void make_activation(op *o, size_t rows, int width) {
    add(o, "x", IN, rows, (size_t)width);
    add(o, "bias", PARAM, 1, (size_t)width);
    add(o, "dy", UPSTREAM, rows, (size_t)width);
    add(o, "y", OUT, rows, (size_t)width);
    add(o, "dx", GRAD, rows, (size_t)width);
    add(o, "dbias", SUM, 1, (size_t)width);
}
static void run_activation(op *o, const pal_context *cx, pal_activation f) {
    const pal_activation_args a = { .rows = o->rows, .width = o->width, .kind = f, .bias = data(o, "bias"), .x = reading(o, "x"),
                                    .y = view(o, "y"), .dy = reading(o, "dy"), .dx = view(o, "dx"), .dbias = data(o, "dbias") };
    if (a.y.data) pal_activate(cx, &a);
    if (!a.dx.data) return;
    const size_t n = pal_activate_scratch_floats(&a);
    float *scratch = test_guarded(n);
    pal_activate_backward(cx, &a, scratch);
    test_guarded_free(scratch, n);
}
static void run_silu(op *o, const pal_context *cx) { run_activation(o, cx, PAL_SILU); }
static void run_sigmoid(op *o, const pal_context *cx) { run_activation(o, cx, PAL_SIGMOID); }
static void run_softplus(op *o, const pal_context *cx) { run_activation(o, cx, PAL_SOFTPLUS); }

static void make_swiglu(op *o, size_t rows, int width) {
    static const char *const names[] = { "gate", "up", "dy", "y", "dgate", "dup" };
    static const role roles[] = { IN, IN, UPSTREAM, OUT, GRAD, GRAD };
    for (size_t i = 0; i < PAL_COUNT(names); i++) add(o, names[i], roles[i], rows, (size_t)width);
}
static void run_swiglu(op *o, const pal_context *cx) {
    const pal_swiglu_args a = { .rows = o->rows, .width = o->width, .gate = reading(o, "gate"), .up = reading(o, "up"), .y = view(o, "y"),
                                .dy = reading(o, "dy"), .dgate = view(o, "dgate"), .dup = view(o, "dup") };
    if (a.y.data) pal_swiglu(cx, &a);
    if (a.dgate.data) pal_swiglu_backward(cx, &a);
}

static void make_head_gate(op *o, size_t rows, int width) {
    const size_t channels = 3 * (size_t)width;
    o->groups = 3;
    add(o, "x", IN, rows, channels);
    add(o, "s", IN, rows, 3);
    add(o, "v", OUT, rows, channels);
    add(o, "dv", UPSTREAM, rows, channels);
    add(o, "dx", GRAD, rows, channels);
    add(o, "ds", GRAD, rows, 3);
}
static void make_head_gate_b(op *o, size_t rows, int width) {
    const size_t channels = 3 * (size_t)width;
    make_head_gate(o, rows, width);
    add(o, "pre", IN, rows, channels);
    add(o, "c", PARAM, 1, 3);
    add(o, "b", OUT, rows, channels);
    add(o, "db", UPSTREAM, rows, channels);
    add(o, "dpre", GRAD, rows, channels);
    add(o, "dc", SUM, 1, 3);
}
static void make_head_gate_skip(op *o, size_t rows, int width) {
    make_head_gate(o, rows, width);
    add(o, "D", PARAM, 1, 3);
    add(o, "o", OUT, rows, 3 * (size_t)width);
    add(o, "do", UPSTREAM, rows, 3 * (size_t)width);
    add(o, "dD", SUM, 1, 3);
}
static void make_head_gate_all(op *o, size_t rows, int width) {
    make_head_gate_b(o, rows, width);
    add(o, "D", PARAM, 1, 3);
    add(o, "o", OUT, rows, 3 * (size_t)width);
    add(o, "do", UPSTREAM, rows, 3 * (size_t)width);
    add(o, "dD", SUM, 1, 3);
}
static void run_head_gate(op *o, const pal_context *cx) {
    const pal_head_gate_args a = {
        .rows = o->rows, .heads = 3, .width = o->width, .x = reading(o, "x"), .pre = reading(o, "pre"), .s = reading(o, "s"),
        .c = data(o, "c"), .D = data(o, "D"), .v = view(o, "v"), .b = view(o, "b"), .o = view(o, "o"), .dv = reading(o, "dv"),
        .db = reading(o, "db"), .d_o = reading(o, "do"), .dx = view(o, "dx"), .dpre = view(o, "dpre"), .ds = view(o, "ds"),
        .dc = data(o, "dc"), .dD = data(o, "dD"),
    };
    if (a.o.data) { /* the skip adds to what the memory gave: a quarter here */
        array *out = find_array(o, "o");
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

static void make_loss(op *o, size_t rows, int width) {
    for (size_t t = 0; t < rows; t++)
        o->numbers[t] = pal_rng_below(&o->rng, 4) ? (int)pal_rng_below(&o->rng, (uint32_t)width) : PAL_LABEL_IGNORED;
    add(o, "logits", IN, rows, (size_t)width);
    add(o, "nll", OUT, rows, 1)->stride = 1;
    add(o, "dlogits", GRAD, rows, (size_t)width);
    add(o, "dnll", UPSTREAM, rows, 1)->stride = 1;
}
static void run_loss(op *o, const pal_context *cx) {
    array *up = find_array(o, "dnll");
    for (size_t t = 0; t < up->rows; t++) up->data[t] = 0.125f;
    float *nll = find_array(o, "nll")->block; /* cannot be left out */
    const pal_cross_entropy_args a = { .rows = o->rows, .vocab = o->width, .logits = reading(o, "logits"), .labels = o->numbers,
                                       .scale = 0.125f, .nll = nll, .dlogits = view(o, "dlogits") };
    pal_cross_entropy(cx, &a);
}

static const kind kinds[] = {
    { "rmsnorm", make_rmsnorm, run_rmsnorm, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1 },
    { "rmsnorm_add", make_rmsnorm_add, run_rmsnorm, { { "dx", "add" } }, 1 },
    { "norm_then_gate", make_norm_then_gate, run_norm_then_gate, { { "y", "x" }, { "y", "z" }, { "dx", "dy" }, { "dz", "z" } }, 1 },
    { "gate_then_norm", make_gate_then_norm, run_gate_then_norm, { { "y", "x" }, { "y", "z" }, { "dx", "x" }, { "dx", "dy" }, { "dz", "z" } }, 1 },
    { "layernorm", make_layernorm, run_layernorm, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1 },
    { "l2_clamp", make_l2, run_l2_clamp, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1 },
    { "l2_eps", make_l2, run_l2_eps, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1 },
    { "conv", make_conv, run_conv, { { "y", "x" } }, 1 },
    { "conv_odd", make_conv_odd, run_conv, { { "y", "x" } }, 1 },
    { "rotary", make_rotary, run_rotary, { { "y", "x" }, { "dx", "dy" } }, 1 },
    { "silu", make_activation, run_silu, { { "y", "x" }, { "dx", "dy" }, { "dx", "x" } }, 1 },
    { "sigmoid", make_activation, run_sigmoid, { { "y", "x" }, { "dx", "dy" }, { "dx", "y" } }, 1 },
    { "softplus", make_activation, run_softplus, { { "y", "x" }, { "dx", "dy" }, { "dx", "y" } }, 1 },
    { "swiglu", make_swiglu, run_swiglu, { { "y", "gate" }, { "y", "up" }, { "dgate", "gate" }, { "dgate", "dy" }, { "dup", "up" }, { "dup", "dy" } }, 1 },
    { "head_gate", make_head_gate, run_head_gate, { { "v", "x" }, { "dx", "x" }, { "dx", "dv" } }, 1 },
    { "head_gate_b", make_head_gate_b, run_head_gate, { { "b", "pre" }, { "dpre", "pre" }, { "dpre", "db" } }, 1 },
    { "head_gate_skip", make_head_gate_skip, run_head_gate, { { "dx", "do" } }, 1 },
    { "head_gate_all", make_head_gate_all, run_head_gate, { { "dx", "dv" } }, 1 },
    { "cross_entropy", make_loss, run_loss, { { "dlogits", "logits" } }, 2 },
};

/* Rows equal within accept (relative to the largest of the array), gaps between rows untouched. */
static void compare(const char *what, const op *o, const array *found, const array *expected, double accept) {
    char text[160];
    double worst = 0, scale = 0;
    for (size_t t = 0; t < found->rows; t++)
        for (size_t j = 0; j < found->stride && t * found->stride + j < floats_of(found); j++) {
            const size_t at = t * found->stride + j;
            if (j >= found->width) {
                if (!isnan(found->data[at])) fail_msg("%s of %s, width %d: wrote past the end of row %zu", found->name, o->kind->name, o->width, t);
                continue;
            }
            const double diff = fabs((double)found->data[at] - (double)expected->data[at]);
            if (!(diff <= worst)) worst = isnan(diff) ? INFINITY : diff;
            scale = fmax(scale, fabs((double)expected->data[at]));
        }
    if (found->role == GRAD && o->width <= 2) scale = fmax(scale, 4); /* one or two channels: nearly all of it cancels */
    snprintf(text, sizeof text, "%s: %s of %s, %zu rows of %d", what, found->name, o->kind->name, o->rows, o->width);
    if (!(worst <= accept * scale)) fail_msg("%s: error %.3g, accepted %.3g", text, worst / scale, accept);
}

/* Same bits, wherever the rows lie; row `but` is left out. */
static void compare_bits(const char *what, const op *o, const array *found, const array *expected, size_t but) {
    for (size_t t = 0; t < found->rows; t++)
        for (size_t j = 0; j < found->width && t != but; j++)
            if (memcmp(&found->data[t * found->stride + j], &expected->data[t * expected->stride + j], sizeof(float)) != 0)
                fail_msg("%s: %s of %s, width %d: row %zu, channel %zu is %.9g, expected exactly %.9g", what, found->name, o->kind->name, o->width,
                         t, j, (double)found->data[t * found->stride + j], (double)expected->data[t * expected->stride + j]);
}

static void every_level_matches_the_reference(void **state) {
    (void)state;
    pal_context *plain = test_context(1, "ref");
    static const int wide[] = { 127, 128, 129, 140, 257, 4099 };
    for (size_t k = 0; k < PAL_COUNT(kinds); k++)
        for (int size = kinds[k].smallest; size <= 70 + (int)PAL_COUNT(wide); size++) {
            const int width = size <= 70 ? size : wide[size - 71];
            op *expected = new_op(&kinds[k], 1 + (size_t)size % 7, width, 11), *o = copy_op(expected);
            op *start = copy_op(expected);
            expected->kind->run(expected, plain);
            for (TEST_LEVELS(level)) {
                pal_context *cx = test_context(1, pal_cpu_level_name(level));
                for (int i = 0; i < o->count; i++) memcpy(o->arrays[i].data, start->arrays[i].data, floats_of(&o->arrays[i]) * sizeof(float));
                o->kind->run(o, cx);
                for (int i = 0; i < o->count; i++)
                    if (is_result(&o->arrays[i])) compare(pal_cpu_level_name(level), o, &o->arrays[i], &expected->arrays[i], 1.5e-6);
                pal_context_free(cx);
            }
            free_op(expected);
            free_op(start);
            free_op(o);
        }
    pal_context_free(plain);
}

static double loss_of(op *o, const pal_context *cx) {
    o->kind->run(o, cx);
    double loss = 0;
    for (int i = 0; i < o->count; i++) {
        if (o->arrays[i].role != OUT) continue;
        char name[32];
        snprintf(name, sizeof name, "d%s", o->arrays[i].name);
        const array *out = &o->arrays[i], *up = find_array(o, name);
        for (size_t t = 0; t < out->rows; t++)
            for (size_t j = 0; j < out->width; j++) loss += (double)out->data[t * out->stride + j] * (double)up->data[t * up->stride + j];
    }
    return loss;
}

static void gradients_match_finite_differences(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    const double h = 0x1p-7;
    int checked = 0;
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        if (kinds[k].make == make_rmsnorm_add) continue; /* its extra term is no function of x */
        op *o = new_op(&kinds[k], 6, 13, 5);
        loss_of(o, cx);
        op *at = copy_op(o);
        for (int i = 0; i < o->count; i++) {
            const array *g = &at->arrays[i];
            if (g->role != GRAD && g->role != SUM) continue;
            array *x = find_array(o, g->name + 1);
            assert_non_null(x);
            pal_rng rng = pal_rng_at(3, (uint64_t)i);
            double expected = 0, size = 0;
            float *direction = pal_alloc(x->rows * x->width, sizeof *direction);
            for (size_t t = 0; t < x->rows; t++)
                for (size_t j = 0; j < x->width; j++) {
                    const float d = (float)pal_rng_normal(&rng);
                    const double gradient = (double)g->data[t * g->stride + j] - (g->role == SUM ? 1 : 0);
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
            memcpy(x->data, find_array(at, x->name)->data, floats_of(x) * sizeof *x->data);
            const double found = (side[0] - side[1]) / (2 * h);
            if (!(fabs(found - expected) <= 3e-3 * sqrt(size))) fail_msg("%s of %s: differences give %.8g, the gradient %.8g", g->name, kinds[k].name, found, expected);
            pal_free(direction);
            checked++;
        }
        free_op(at);
        free_op(o);
    }
    assert_true(checked > 40);
    pal_context_free(cx);
}

static void thread_count_does_not_change_a_bit(void **state) {
    (void)state;
    static const int threads[] = { 1, 2, 3, 7 };
    for (TEST_LEVELS(level))
        for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
            op *start = new_op(&kinds[k], 600, 67, 9), *one = NULL;
            for (size_t i = 0; i < PAL_COUNT(threads); i++) {
                pal_context *cx = test_context(threads[i], pal_cpu_level_name(level));
                op *o = copy_op(start);
                o->kind->run(o, cx);
                pal_context_free(cx);
                if (!one) {
                    one = o;
                    continue;
                }
                for (int j = 0; j < o->count; j++)
                    if (is_result(&o->arrays[j])) compare_bits("threads", o, &o->arrays[j], &one->arrays[j], SIZE_MAX);
                free_op(o);
            }
            free_op(one);
            free_op(start);
        }
}

static void outputs_may_lie_on_inputs(void **state) {
    (void)state;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t k = 0; k < PAL_COUNT(kinds); k++)
            for (int pair = 0; pair < 6 && kinds[k].on[pair][0]; pair++) {
                op *apart = new_op(&kinds[k], 40, 21, 3), *o = copy_op(apart);
                apart->kind->run(apart, cx);
                array *out = find_array(o, kinds[k].on[pair][0]);
                const array *in = find_array(o, kinds[k].on[pair][1]);
                if (in->role == OUT) memcpy(in->data, find_array(apart, in->name)->data, floats_of(in) * sizeof *in->data);
                const bool from_y = kinds[k].run == run_sigmoid || kinds[k].run == run_softplus; /* backward reads y */
                for (int i = 0; i < o->count; i++) /* only the pass that writes it: other results are left out */
                    if (is_result(&o->arrays[i]) && (o->arrays[i].role == OUT) != (out->role == OUT) && !(from_y && o->arrays[i].role == OUT))
                        o->arrays[i].data = NULL;
                out->data = in->data;
                out->stride = in->stride;
                if (in->role == OUT) { /* backward from an output: forward must not run again and overwrite it */
                    const pal_activation_args a = { .rows = o->rows, .width = o->width, .kind = kinds[k].run == run_sigmoid ? PAL_SIGMOID : PAL_SOFTPLUS,
                                                    .y = view(o, "y"), .dy = reading(o, "dy"), .dx = view(o, "dx") };
                    pal_activate_backward(cx, &a, NULL);
                } else o->kind->run(o, cx);
                compare_bits("in place", o, out, find_array(apart, out->name), SIZE_MAX);
                free_op(apart);
                free_op(o);
            }
        pal_context_free(cx);
    }
}

static void nan_stays_in_its_row(void **state) {
    (void)state;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
            op *clean = new_op(&kinds[k], 9, 19, 2), *start = copy_op(clean);
            if (clean->sequences) { /* what follows in the same sequence may see it: one token a sequence here */
                for (int n = 0; n <= 9; n++) clean->cu_seqlens[n] = start->cu_seqlens[n] = n;
                clean->sequences = start->sequences = 9;
            }
            for (int t = 0; t < 9; t++)
                if (clean->kind->run == run_loss) clean->numbers[t] = start->numbers[t] = t % 3;
            clean->kind->run(clean, cx);
            for (int i = 0; i < start->count; i++) {
                if (start->arrays[i].role != IN) continue;
                op *o = copy_op(start);
                array *in = &o->arrays[i];
                in->data[5 * in->stride + in->width / 2] = NAN;
                o->kind->run(o, cx);
                bool seen = false;
                for (int j = 0; j < o->count; j++) {
                    array *out = &o->arrays[j];
                    if (out->role != OUT && out->role != GRAD) continue;
                    compare_bits("NaN in row 5", o, out, find_array(clean, out->name), 5);
                    for (size_t c = 0; c < out->width && out->role == OUT; c++) seen |= isnan(out->data[5 * out->stride + c]);
                }
                if (!seen) fail_msg("%s (%s): NaN in %s went unnoticed", kinds[k].name, pal_cpu_level_name(level), in->name);
                free_op(o);
            }
            free_op(start);
            free_op(clean);
        }
        pal_context_free(cx);
    }
}

/* What backward adds to is added to, and what was not asked for is not written. */
static void parameter_gradients_add_up_and_may_be_left_out(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        op *once = new_op(&kinds[k], 50, 17, 8), *twice = copy_op(once), *without = copy_op(once);
        once->kind->run(once, cx);
        twice->kind->run(twice, cx);
        twice->kind->run(twice, cx);
        for (int i = 0; i < once->count; i++) {
            if (once->arrays[i].role == SUM) without->arrays[i].data = NULL;
            for (size_t j = 0; once->arrays[i].role == SUM && j < once->arrays[i].width; j++) {
                const float first = once->arrays[i].data[j] - 1, both = twice->arrays[i].data[j] - 1;
                assert_true(fabsf(both - 2 * first) <= 1e-5f * (1 + fabsf(first)));
            }
        }
        without->kind->run(without, cx);
        for (int i = 0; i < once->count; i++)
            if (once->arrays[i].role == GRAD) compare_bits("left out", once, &without->arrays[i], &once->arrays[i], SIZE_MAX);
        free_op(once);
        free_op(twice);
        free_op(without);
    }
    pal_context_free(cx);
}

static void norms_hold_for_wide_rows_and_any_magnitude(void **state) {
    (void)state;
    static const double magnitudes[] = { 1e-18, 1e-6, 1, 1e6, 1e18 };
    pal_context *plain = test_context(1, "ref");
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t k = 0; k < 7; k++)
            for (size_t m = 0; m < PAL_COUNT(magnitudes); m++) {
                op *expected = new_op(&kinds[k], 2, m == 2 ? 8192 : 500, 4);
                array *x = find_array(expected, "x");
                for (size_t i = 0; i < floats_of(x); i++) x->data[i] = (float)((double)x->data[i] * magnitudes[m] + (m == 2 ? 3 : 0));
                op *o = copy_op(expected);
                expected->kind->run(expected, plain);
                o->kind->run(o, cx);
                for (int i = 0; i < o->count; i++)
                    if (is_result(&o->arrays[i])) compare(pal_cpu_level_name(level), o, &o->arrays[i], &expected->arrays[i], 2e-6);
                free_op(expected);
                free_op(o);
            }
        pal_context_free(cx);
    }
    pal_context_free(plain);
}

static void activations_hold_at_the_ends(void **state) {
    (void)state;
    enum { N = 4001 };
    float *x = test_guarded(N), *y = test_guarded(N), *dy = test_guarded(N), *dx = test_guarded(N);
    for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * 0.06f, dy[i] = 1;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (pal_activation f = PAL_SILU; f <= PAL_SOFTPLUS; f++) {
            const pal_activation_args a = { .rows = 1, .width = N, .kind = f, .x = { x, N }, .y = { y, N }, .dy = { dy, N }, .dx = { dx, N } };
            pal_activate(cx, &a);
            pal_activate_backward(cx, &a, NULL);
            for (int i = 0; i < N; i++) {
                const double v = (double)x[i], e = exp(-fabs(v)), sig = (v >= 0 ? 1 : e) / (1 + e);
                const double value = f == PAL_SILU ? v * sig : f == PAL_SIGMOID ? sig : fmax(v, 0) + log1p(e);
                const double slope = f == PAL_SILU ? sig * (1 + v * (1 - sig)) : f == PAL_SIGMOID ? sig * (1 - sig) : sig;
                /* relative, down to where f32 has no normal numbers; slopes that come from y keep y's own error */
                if (!(fabs((double)y[i] - value) <= 1e-6 * fabs(value) + 2e-36)) fail_msg("level %d, f %d: f(%g) = %g, expected %g", (int)level, (int)f, v, (double)y[i], value);
                if (!(fabs((double)dx[i] - slope) <= 1e-6 * fabs(slope) + (f == PAL_SOFTPLUS ? 2e-36 : 1.5e-7)))
                    fail_msg("level %d, f %d: f'(%g) = %.9g, expected %.9g", (int)level, (int)f, v, (double)dx[i], slope);
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
    float *table = test_guarded(pal_rotary_table_floats(POSITIONS, D)), *part = test_guarded(pal_rotary_table_floats(7, D));
    pal_rotary_table(cx, table, 0, POSITIONS, D, 10000.0);
    pal_rotary_table(cx, part, far, 7, D, 10000.0);
    test_same_bits("a later part of the table", part, table + (size_t)far * D, 7 * D);
    float x[D], y[D];
    for (int m = 0; m < D; m++) x[m] = (float)(m + 1);
    pal_rotary(cx, &(pal_rotary_args){ .sequences = 1, .offsets = &far, .heads = 1, .width = D, .table = table, .x = { x, D }, .y = { y, D } });
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
