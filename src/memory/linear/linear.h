/* SPDX-License-Identifier: MIT */
/* What gla and the delta rules have in common: one matrix S per head, read by the query and changed token by token,
 *
 *     y_t = S_t (s q_t)
 *
 * This folder owns the layout of the memory, the cutting into chunks, items and threads, and the sums over heads that
 * share a key; a rule brings kernels for one chunk of one head.
 *
 * Layout of a state: a head is (dk, dvp), the transpose of the exported (dv, dk), so that values fill the vectors of
 * step and the rows of matrix products; dvp rounds dv up to 16 floats, and the padding is zero. A rule that carries
 * more numbers from token to token (its second part) has them after the matrix: numbers that all values share, or a
 * second matrix of the same rows, whose padding is 1.
 *
 * Saved for backward: each head as it is at the start of every chunk. */
#ifndef PAL_MEMORY_LINEAR_H
#define PAL_MEMORY_LINEAR_H

#include "memory/rule.h"

enum { PAL_LINEAR_CHUNK = 64 }; /* most tokens in a chunk */

typedef struct pal_linear_kernels pal_linear_kernels;

/* n tokens of one head, or of a block of its values. Views stand at their first token and channel; what the rule does
 * not read is NULL. */
typedef struct pal_linear_chunk {
    const pal_linear_kernels *kernels;
    int n, dk, dv;
    pal_memory_inputs in;
    float *carried;  /* the second part: forward and step replace it; backward finds that of the chunk's start */
    float *dcarried; /* backward: the gradient of that at the end, replaced by that at the start */
    pal_view y_var;  /* (n, dv) where a rule has it and it was asked for; backward: its gradient, in dy_var */
    pal_const_view dy_var;
    bool ends; /* nothing reads S after this chunk: forward may leave anything there */
} pal_linear_chunk;

/* S (dk, ld) goes from the start of the chunk to its end; y (n, dv). */
typedef void pal_linear_forward_fn(const pal_linear_chunk *c, float *S, size_t ld, pal_view y, float *scratch);
/* S is the memory at the start of the chunk, dS the gradient of that at its end, replaced by that at its start. Every
 * gradient of a token row that the rule reads is needed and overwritten; those of keep and drift are added to. */
typedef void pal_linear_backward_fn(const pal_linear_chunk *c, const float *S, size_t ld, float *dS, size_t dld,
                                    pal_const_view dy, const pal_memory_gradients *grad, float *scratch);
/* One token; n = 1. */
typedef void pal_linear_step_fn(const pal_linear_chunk *c, float *S, size_t ld, float *y, float *scratch);

struct pal_linear_kernels {
    unsigned inputs; /* PAL_INPUT_* that the rule reads */
    /* Numbers a head in the second part; a matrix has the rows of S, and starts at Ip, the others at 1/Ip. A token is
     * its key and then its value. */
    enum { PAL_CARRIES_NONE, PAL_CARRIES_ONE, PAL_CARRIES_KEY, PAL_CARRIES_TOKEN, PAL_CARRIES_MATRIX } carries;
    const pal_variant *forward, *backward, *step;
    /* one chunk of n tokens at this level */
    size_t (*scratch_floats)(const pal_linear_kernels *kernels, pal_cpu_level level, pal_memory_pass pass, int n,
                             int dk, int dv);
    const struct pal_delta_rule *delta; /* delta rules: what they make of their inputs */
};

/* Scratch of the chunked form (chunk_simd.inc), in floats: dense rows start on cache lines; two squares of tokens and
 * two sets of scaled rows of keys come on top of the dense rows a kernel takes. */
static inline size_t pal_linear_row(int width) { return ((size_t)width + 15) / 16 * 16; }
static inline size_t pal_linear_chunk_scratch(int n, int dk) {
    return 2 * (size_t)n * (PAL_LINEAR_CHUNK + pal_linear_row(dk));
}

/* Steps walk memories that may lie far from the processor. */
static inline void pal_linear_fetch_ahead(const float *S) { __builtin_prefetch(S + 512); }

/* The functions of a pal_memory_rule, which PAL_LINEAR_RULE calls with the rule's kernels. */
size_t pal_linear_part_floats(const pal_linear_kernels *kernels, const pal_memory_shape *shape, int part);
size_t pal_linear_state_floats(const pal_linear_kernels *kernels, const pal_memory_shape *shape);
size_t pal_linear_saved_floats(const pal_linear_kernels *kernels, const pal_memory_shape *shape);
void pal_linear_reset(const pal_linear_kernels *kernels, const pal_memory_shape *shape, const pal_memory_inputs *in,
                      float *state);
void pal_linear_import(const pal_linear_kernels *kernels, const pal_memory_shape *shape, const float *const parts[2],
                       float *state);
void pal_linear_export(const pal_linear_kernels *kernels, const pal_memory_shape *shape, float *const parts[2],
                       const float *state);
void pal_linear_foresee(const pal_context *cx, const pal_memory_run *run, pal_memory_change *change); /* gla's */
void pal_linear_compare(const pal_context *cx, const pal_memory_shape *shape, const float *before, const float *after,
                        pal_memory_change *change);
size_t pal_linear_scratch_bytes(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_shape *shape,
                                pal_memory_pass pass);
void pal_linear_forward(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run);
void pal_linear_backward(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run);
void pal_linear_step(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run);

/* The rule `word` from its kernels; word_inputs are its inputs, as a constant; further arguments are fields of
 * pal_memory_rule. The second form has its own compare. */
#define PAL_LINEAR_RULE(word, its_kernels, ...) \
    PAL_LINEAR_COMPARED_RULE(word, its_kernels, pal_linear_compare, __VA_ARGS__)
#define PAL_LINEAR_COMPARED_RULE(word, its_kernels, its_compare, ...)                                                  \
    static size_t word##_part_floats(const pal_memory_shape *shape, int part) {                                        \
        return pal_linear_part_floats(&(its_kernels), shape, part);                                                    \
    }                                                                                                                  \
    static size_t word##_state_floats(const pal_memory_shape *shape) {                                                 \
        return pal_linear_state_floats(&(its_kernels), shape);                                                         \
    }                                                                                                                  \
    static size_t word##_saved_floats(const pal_memory_shape *shape) {                                                 \
        return pal_linear_saved_floats(&(its_kernels), shape);                                                         \
    }                                                                                                                  \
    static size_t word##_scratch(const pal_context *cx, const pal_memory_shape *shape, pal_memory_pass pass) {         \
        return pal_linear_scratch_bytes(&(its_kernels), cx, shape, pass);                                              \
    }                                                                                                                  \
    static void word##_reset(const pal_memory_shape *shape, const pal_memory_inputs *in, float *state) {               \
        pal_linear_reset(&(its_kernels), shape, in, state);                                                            \
    }                                                                                                                  \
    static void word##_import(const pal_memory_shape *shape, const pal_memory_inputs *in, const float *const parts[2], \
                              float *state) {                                                                          \
        (void)in;                                                                                                      \
        pal_linear_import(&(its_kernels), shape, parts, state);                                                        \
    }                                                                                                                  \
    static void word##_export(const pal_memory_shape *shape, const pal_memory_inputs *in, float *const parts[2],       \
                              const float *state) {                                                                    \
        (void)in;                                                                                                      \
        pal_linear_export(&(its_kernels), shape, parts, state);                                                        \
    }                                                                                                                  \
    static void word##_forward(const pal_context *cx, const pal_memory_run *run) {                                     \
        pal_linear_forward(&(its_kernels), cx, run);                                                                   \
    }                                                                                                                  \
    static void word##_backward(const pal_context *cx, const pal_memory_run *run) {                                    \
        pal_linear_backward(&(its_kernels), cx, run);                                                                  \
    }                                                                                                                  \
    static void word##_step(const pal_context *cx, const pal_memory_run *run) {                                        \
        pal_linear_step(&(its_kernels), cx, run);                                                                      \
    }                                                                                                                  \
    const pal_memory_rule pal_rule_##word = { .name = #word,                                                           \
                                              .inputs = word##_inputs,                                                 \
                                              .part_floats = word##_part_floats,                                       \
                                              .state_floats = word##_state_floats,                                     \
                                              .saved_floats = word##_saved_floats,                                     \
                                              .scratch_bytes = word##_scratch,                                         \
                                              .reset = word##_reset,                                                   \
                                              .import = word##_import,                                                 \
                                              .export = word##_export,                                                 \
                                              .compare = its_compare,                                                  \
                                              .forward = word##_forward,                                               \
                                              .backward = word##_backward,                                             \
                                              .step = word##_step,                                                     \
                                              __VA_ARGS__ }

#endif
