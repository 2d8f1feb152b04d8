/* SPDX-License-Identifier: MIT */
/* Building blocks: nearly all of them are limited by memory, so each is shown next to a plain copy that moves as many
 * bytes, with the same threads and in the same run. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/parallel.h"
#include "base/random.h"
#include "bench.h"
#include "cli.h"
#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norms/norms.h"
#include "kernels/optimiser/adamw.h"
#include "kernels/rotary/rotary.h"

/* Rows as a language model has them; larger than any cache in all. */
enum {
    ROWS = 4096,
    WIDTH = 2048,
    HEADS = 16,
    SEQUENCES = 4,
    TAPS = 4,
    VOCAB = 8192,
    LOGIT_ROWS = 1024,
    FLAT = 1 << 23,
    ARRAYS = 7
};

typedef struct {
    const pal_context *cx;
    float *x[ARRAYS]; /* (ROWS, WIDTH) each, which is also (LOGIT_ROWS, VOCAB) and FLAT */
    float *w, *dw, *b, *db, *scratch;
    float nll[LOGIT_ROWS];
    int cu[SEQUENCES + 1], labels[LOGIT_ROWS];
    size_t copy_floats;
} subject;

static pal_const_view in(const subject *s, int i) { return (pal_const_view){ s->x[i], WIDTH }; }
static pal_view out(const subject *s, int i) { return (pal_view){ s->x[i], WIDTH }; }

static pal_rmsnorm_args rmsnorm(const subject *s, pal_norm_gate gate) {
    const bool per_head = gate == PAL_GATE_AFTER;
    return (pal_rmsnorm_args){ .rows = ROWS,
                               .groups = per_head ? HEADS : 1,
                               .width = per_head ? WIDTH / HEADS : WIDTH,
                               .gate = gate,
                               .shared_weight = per_head,
                               .eps = 1e-6f,
                               .w = s->w,
                               .x = in(s, 0),
                               .z = in(s, 1),
                               .y = out(s, 2),
                               .dy = in(s, 3),
                               .dx = out(s, 4),
                               .dz = out(s, 5),
                               .dw = s->dw };
}
static pal_layernorm_args layernorm(const subject *s) {
    return (pal_layernorm_args){ .rows = ROWS,
                                 .width = WIDTH,
                                 .eps = 1e-5f,
                                 .w = s->w,
                                 .b = s->b,
                                 .x = in(s, 0),
                                 .y = out(s, 2),
                                 .dy = in(s, 3),
                                 .dx = out(s, 4),
                                 .dw = s->dw,
                                 .db = s->db };
}
static pal_l2norm_args l2norm(const subject *s) {
    return (pal_l2norm_args){ .rows = ROWS,
                              .groups = HEADS,
                              .width = WIDTH / HEADS,
                              .kind = PAL_L2_CLAMP,
                              .x = in(s, 0),
                              .y = out(s, 2),
                              .dy = in(s, 3),
                              .dx = out(s, 4) };
}
static pal_conv_args conv(const subject *s) {
    return (pal_conv_args){ .sequences = SEQUENCES,
                            .cu_seqlens = s->cu,
                            .channels = WIDTH,
                            .taps = TAPS,
                            .w = s->w,
                            .x = in(s, 0),
                            .y = out(s, 2),
                            .dy = in(s, 3),
                            .dx = out(s, 4),
                            .dw = s->dw };
}
static pal_swiglu_args swiglu(const subject *s) {
    return (pal_swiglu_args){ .rows = ROWS,
                              .width = WIDTH,
                              .gate = in(s, 0),
                              .up = in(s, 1),
                              .y = out(s, 2),
                              .dy = in(s, 3),
                              .dgate = out(s, 4),
                              .dup = out(s, 5) };
}
static pal_activation_args activation(const subject *s, pal_activation kind) {
    return (pal_activation_args){
        .rows = ROWS, .width = WIDTH, .kind = kind, .x = in(s, 0), .y = out(s, 2), .dy = in(s, 3), .dx = out(s, 4)
    };
}

static void run_rmsnorm(void *p) {
    const subject *s = p;
    const pal_rmsnorm_args a = rmsnorm(s, PAL_GATE_NONE);
    pal_rmsnorm(s->cx, &a);
}
static void run_rmsnorm_backward(void *p) {
    const subject *s = p;
    const pal_rmsnorm_args a = rmsnorm(s, PAL_GATE_NONE);
    pal_rmsnorm_backward(s->cx, &a, s->scratch);
}
static void run_gate_after(void *p) {
    const subject *s = p;
    const pal_rmsnorm_args a = rmsnorm(s, PAL_GATE_AFTER);
    pal_rmsnorm(s->cx, &a);
}
static void run_gate_after_backward(void *p) {
    const subject *s = p;
    const pal_rmsnorm_args a = rmsnorm(s, PAL_GATE_AFTER);
    pal_rmsnorm_backward(s->cx, &a, s->scratch);
}
static void run_gate_before(void *p) {
    const subject *s = p;
    const pal_rmsnorm_args a = rmsnorm(s, PAL_GATE_BEFORE);
    pal_rmsnorm(s->cx, &a);
}
static void run_gate_before_backward(void *p) {
    const subject *s = p;
    const pal_rmsnorm_args a = rmsnorm(s, PAL_GATE_BEFORE);
    pal_rmsnorm_backward(s->cx, &a, s->scratch);
}
static void run_layernorm(void *p) {
    const subject *s = p;
    const pal_layernorm_args a = layernorm(s);
    pal_layernorm(s->cx, &a);
}
static void run_layernorm_backward(void *p) {
    const subject *s = p;
    const pal_layernorm_args a = layernorm(s);
    pal_layernorm_backward(s->cx, &a, s->scratch);
}
static void run_l2norm(void *p) {
    const subject *s = p;
    const pal_l2norm_args a = l2norm(s);
    pal_l2norm(s->cx, &a);
}
static void run_l2norm_backward(void *p) {
    const subject *s = p;
    const pal_l2norm_args a = l2norm(s);
    pal_l2norm_backward(s->cx, &a);
}
static void run_conv(void *p) {
    const subject *s = p;
    const pal_conv_args a = conv(s);
    pal_conv_silu(s->cx, &a);
}
static void run_conv_backward(void *p) {
    const subject *s = p;
    const pal_conv_args a = conv(s);
    pal_conv_silu_backward(s->cx, &a, s->scratch);
}
static void run_swiglu(void *p) {
    const subject *s = p;
    const pal_swiglu_args a = swiglu(s);
    pal_swiglu(s->cx, &a);
}
static void run_swiglu_backward(void *p) {
    const subject *s = p;
    const pal_swiglu_args a = swiglu(s);
    pal_swiglu_backward(s->cx, &a);
}
static void run_softplus(void *p) {
    const subject *s = p;
    const pal_activation_args a = activation(s, PAL_SOFTPLUS);
    pal_activate(s->cx, &a);
}
static void run_sigmoid(void *p) {
    const subject *s = p;
    const pal_activation_args a = activation(s, PAL_SIGMOID);
    pal_activate(s->cx, &a);
}

static void run_cross_entropy(void *p) {
    subject *s = p;
    const pal_cross_entropy_args a = { .rows = LOGIT_ROWS,
                                       .vocab = VOCAB,
                                       .logits = { s->x[0], VOCAB },
                                       .labels = s->labels,
                                       .scale = 1e-3f,
                                       .nll = s->nll,
                                       .dlogits = { s->x[2], VOCAB } };
    pal_cross_entropy(s->cx, &a);
}
static void run_adamw(void *p) {
    const subject *s = p;
    const pal_adamw_step step = {
        .lr = 1e-9, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .factor = 1, .step = 10
    };
    pal_adamw(s->cx, &step, s->x[3], s->x[4], s->x[5], s->x[0], FLAT);
}

static void copy_range(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const subject *s = arg;
    memcpy(s->x[6] + begin, s->x[0] + begin, (end - begin) * sizeof(float));
}
/* Reads and writes one array: 8 bytes a number. */
static void run_copy(void *p) {
    const subject *s = p;
    pal_parallel_ranges(s->cx, FLAT, 1 << 16, copy_range, p);
}

/* arrays: how many (ROWS, WIDTH) arrays a call reads and writes. */
static const struct {
    const char *name;
    bench_fn *fn;
    int arrays;
} kernels[] = {
    { "rmsnorm.forward", run_rmsnorm, 2 },
    { "rmsnorm.backward", run_rmsnorm_backward, 3 },
    { "norm_gate.forward", run_gate_after, 3 },
    { "norm_gate.backward", run_gate_after_backward, 5 },
    { "gate_norm.forward", run_gate_before, 3 },
    { "gate_norm.backward", run_gate_before_backward, 5 },
    { "layernorm.forward", run_layernorm, 2 },
    { "layernorm.backward", run_layernorm_backward, 3 },
    { "l2norm.forward", run_l2norm, 2 },
    { "l2norm.backward", run_l2norm_backward, 3 },
    { "conv_silu.forward", run_conv, 2 },
    { "conv_silu.backward", run_conv_backward, 3 },
    { "swiglu.forward", run_swiglu, 3 },
    { "swiglu.backward", run_swiglu_backward, 5 },
    { "softplus", run_softplus, 2 },
    { "sigmoid", run_sigmoid, 2 },
    { "cross_entropy", run_cross_entropy, 2 },
    { "adamw", run_adamw, 7 },
};

static size_t largest_scratch(const subject *s) {
    const pal_rmsnorm_args r = rmsnorm(s, PAL_GATE_NONE), ra = rmsnorm(s, PAL_GATE_AFTER),
                           rb = rmsnorm(s, PAL_GATE_BEFORE);
    const pal_layernorm_args l = layernorm(s);
    const pal_conv_args c = conv(s);
    const size_t all[] = { pal_rmsnorm_scratch_floats(&r), pal_rmsnorm_scratch_floats(&ra),
                           pal_rmsnorm_scratch_floats(&rb), pal_layernorm_scratch_floats(&l),
                           pal_conv_silu_scratch_floats(&c) };
    size_t most = 0;
    for (size_t i = 0; i < PAL_COUNT(all); i++) most = all[i] > most ? all[i] : most;
    return most;
}

int bench_kernels(bench *b, const pal_context *cx) {
    subject *s = pal_alloc(1, sizeof *s);
    bool made = s != NULL;
    if (made) s->cx = cx;
    for (int i = 0; i < ARRAYS && made; i++) {
        made = (s->x[i] = pal_alloc(FLAT, sizeof(float))) != NULL;
        if (made)
            pal_fill_uniform(cx, s->x[i], FLAT, 3, (uint64_t)i, i == 5 ? 0.1 : -1,
                             1); /* 5 is also a second moment: above 0 */
    }
    for (int n = 0; made && n <= SEQUENCES; n++) s->cu[n] = n * (ROWS / SEQUENCES);
    for (int i = 0; made && i < LOGIT_ROWS; i++) s->labels[i] = i * 7 % VOCAB;
    if (made) {
        float **small[] = { &s->w, &s->dw, &s->b, &s->db };
        for (size_t i = 0; i < PAL_COUNT(small) && made; i++)
            made = (*small[i] = pal_alloc(WIDTH * TAPS, sizeof(float))) != NULL;
        made = made && (s->scratch = pal_alloc(largest_scratch(s), sizeof(float))) != NULL;
    }
    if (made) {
        bench_item items[PAL_COUNT(kernels) + 1];
        char shape[64];
        snprintf(shape, sizeof shape, "%d x %d", ROWS, WIDTH);
        items[0] = bench_make("copy", shape, "memcpy", pal_context_threads(cx), run_copy, s);
        items[0].bytes = 8.0 * FLAT;
        for (size_t i = 0; i < PAL_COUNT(kernels); i++) {
            items[i + 1] = bench_make(kernels[i].name, shape, pal_cpu_level_name(pal_context_level(cx)),
                                      pal_context_threads(cx), kernels[i].fn, s);
            items[i + 1].bytes = 4.0 * FLAT * kernels[i].arrays;
            items[i + 1].bound = 0;
            items[i + 1].bound_share = kernels[i].arrays / 2.0;
        }
        snprintf(items[PAL_COUNT(kernels) - 1].shape, sizeof items->shape, "%d x %d", LOGIT_ROWS, VOCAB);
        snprintf(items[PAL_COUNT(kernels)].shape, sizeof items->shape, "%d", FLAT);
        bench_group(b, "building blocks; the bound is a copy that moves as many bytes", items, (int)PAL_COUNT(items));
    }
    if (s) {
        for (int i = 0; i < ARRAYS; i++) pal_free(s->x[i]);
        pal_free(s->w), pal_free(s->dw), pal_free(s->b), pal_free(s->db), pal_free(s->scratch);
    }
    pal_free(s);
    return made ? CLI_OK : cli_error(CLI_FAILED, "bench: not enough memory for the building blocks");
}
