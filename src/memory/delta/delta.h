/* SPDX-License-Identifier: MIT */
/* The delta rules are one rule with parameters. What a token writes is the error of what the memory holds under a key:
 *
 *     u_t = a_t' D_t S_{t-1}   or, for rules that compare before the memory decays,   u_t = a_t' S_{t-1}
 *     e_t = beta_t (v_t - u_t)                   S_t = D_t S_{t-1} + c_t e_t'
 *     e_t = -beta_t u_t                          S_t = D_t S_{t-1} + c_t e_t' + k_t v_t'      where `apart`
 *
 * D_t is a number or one per key channel. The kernels know this alone; a rule is a pal_delta_rule and says what a, c
 * and the rest are made of. README.md derives the chunked form; signatures are those of memory/linear/linear.h. */
#ifndef PAL_MEMORY_DELTA_H
#define PAL_MEMORY_DELTA_H

#include "memory/linear/linear.h"

/* What the kernels read, as dense rows: (n, kl) or, for v, (n, vl), padded with zeros to whole cache lines. As
 * gradients: of the same, with that of log D in D. */
typedef struct pal_delta_rows {
    size_t kl, vl;
    float *q, *k, *a, *c, *D; /* a and c are k itself where the rule says nothing else */
    float *v, *beta;          /* beta (n) */
    float *before;            /* (n, kl) the second part before each token, kept by fill for unfill */
} pal_delta_rows;

typedef struct pal_delta_rule {
    bool undecayed;    /* u is read before the memory decays */
    bool apart;        /* v is written under k, the error under c */
    bool own_a, own_c; /* fill writes a or c; otherwise they are k */
    /* Rows hold q, k, D, v and beta (1 where the rule has none) as they come in. fill changes what the rule makes
     * otherwise, and moves c->carried on by n tokens. unfill gets the gradients of all rows, adds what own a and c give
     * to d->k, and writes the gradients of inputs beyond q, k, v, beta, g and gk. NULL: nothing to do. */
    void (*fill)(const pal_linear_chunk *c, const pal_delta_rows *x);
    void (*unfill)(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                   const pal_memory_gradients *grad);
} pal_delta_rule;

/* Takes the rows from *scratch and fills them. Where the rule reads gk, D still holds log D: the kernel calls its exp
 * and then pal_delta_fill. */
pal_delta_rows pal_delta_take(const pal_linear_chunk *c, float **scratch);
void pal_delta_fill(const pal_linear_chunk *c, const pal_delta_rows *x);
/* Rows for gradients, and from them the gradients of the inputs. */
pal_delta_rows pal_delta_take_gradients(const pal_linear_chunk *c, float **scratch);
void pal_delta_unfill(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                      const pal_memory_gradients *grad);

/* The variance of token t's answer, sum (s q)^2 var, if it was asked for: var is one number or one for each key
 * channel, as carried after the token. Backward adds to d->q and to c->dcarried, the gradient of var. */
void pal_delta_variance(const pal_linear_chunk *c, const pal_delta_rows *x, size_t t);
void pal_delta_variance_backward(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d, size_t t,
                                 const float *var);

typedef pal_linear_forward_fn pal_delta_forward_fn;
typedef pal_linear_backward_fn pal_delta_backward_fn;
typedef pal_linear_step_fn pal_delta_step_fn;
PAL_DECLARE_VARIANTS(delta_forward)
PAL_DECLARE_VARIANTS(delta_backward)
PAL_DECLARE_VARIANTS(delta_step)
size_t pal_delta_backward_scratch_ref(int n, int dk, int dv); /* floats, beyond the rows */

enum { PAL_DELTA_BLOCK = 8 }; /* tokens that the vector kernels take at once */
size_t pal_delta_scratch_floats(const pal_linear_kernels *kernels, pal_cpu_level level, pal_memory_pass pass, int n,
                                int dk, int dv);

/* The rule `word`: its pal_delta_rule, its inputs besides q, k and v, and fields of pal_memory_rule. */
#define PAL_DELTA_RULE(word, rule, more_inputs, ...) \
    PAL_DELTA_CARRYING_RULE(word, rule, PAL_CARRIES_NONE, NULL, more_inputs, __VA_ARGS__)
/* The same for a rule with a second part. */
#define PAL_DELTA_CARRYING_RULE(word, rule, how_many, second_part, more_inputs, ...) \
    enum { word##_inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | (more_inputs) };  \
    static const pal_linear_kernels word##_kernels = {                               \
        .inputs = word##_inputs,                                                     \
        .carries = how_many,                                                         \
        .forward = pal_delta_forward_variants,                                       \
        .backward = pal_delta_backward_variants,                                     \
        .step = pal_delta_step_variants,                                             \
        .scratch_floats = pal_delta_scratch_floats,                                  \
        .delta = &(rule),                                                            \
    };                                                                               \
    PAL_LINEAR_RULE(word, word##_kernels, .parts = { "S", second_part }, __VA_ARGS__)

#endif
