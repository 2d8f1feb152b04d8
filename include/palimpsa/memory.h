/* SPDX-License-Identifier: MIT */
/* Memory rules: the rows of the paper's table with one interface.
 *
 * A rule turns queries, keys, values and gates into outputs by way of a memory of fixed size. Every rule offers the
 * same functions, so a caller names a rule and need not know which one it drives:
 *
 *     forward   a packed batch of sequences, from given or default initial memories
 *     backward  gradients for every input, parameter and initial memory
 *     step      one more token for each of many independent sequences
 *
 * Layout. Tokens are packed: sequence n owns tokens cu_seqlens[n] .. cu_seqlens[n+1]-1, and a token's channels are
 * contiguous, head after head. There is no padding, and nothing passes from one sequence to another.
 *
 * Work memory is the caller's: ask pal_memory_saved_floats() and pal_memory_scratch_bytes() once, allocate, and run as
 * often as you like; no call allocates. Results do not depend on the number of threads, bit for bit. */
#ifndef PALIMPSA_MEMORY_H
#define PALIMPSA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/context.h"
#include "palimpsa/status.h"
#include "palimpsa/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pal_memory_rule pal_memory_rule;

/* Inputs a rule reads, as bits of pal_memory_inputs_of(). */
enum {
    PAL_INPUT_Q = 1 << 0,
    PAL_INPUT_K = 1 << 1,
    PAL_INPUT_V = 1 << 2,
    PAL_INPUT_B = 1 << 3,
    PAL_INPUT_BETA = 1 << 4,
    PAL_INPUT_DT = 1 << 5,
    PAL_INPUT_G = 1 << 6,
    PAL_INPUT_A = 1 << 7,
    PAL_INPUT_IP = 1 << 8,
    PAL_INPUT_LAM = 1 << 9,
    PAL_INPUT_GK = 1 << 10,
    PAL_INPUT_P = 1 << 11,
    PAL_INPUT_ERASE = 1 << 12,
    PAL_INPUT_WRITE = 1 << 13,
    PAL_INPUT_GP = 1 << 14,
    PAL_INPUT_BETAP = 1 << 15,
    PAL_INPUT_NOISE = 1 << 16,
    PAL_INPUT_NOISEK = 1 << 17,
    PAL_INPUT_R = 1 << 18,
    PAL_INPUT_KEEP = 1 << 19,
    PAL_INPUT_DRIFT = 1 << 20,
    PAL_INPUT_LAG = 1 << 21,
    PAL_INPUT_TURN = 1 << 22
};

typedef struct pal_memory_shape {
    int sequences;         /* N >= 1 */
    int tokens;            /* T, all sequences together; a step has T = N */
    const int *cu_seqlens; /* N+1 numbers: 0 .. T, strictly increasing. A step ignores it */
    int heads;             /* H, heads of the memory and of y */
    int key_heads; /* heads of q and k (attention: of k and v), a divisor of H; head h reads key head h*key_heads/H */
    int dk, dv;    /* channels per head of q, k and of v */
    int context;   /* attention only: how many tokens one sequence's state can hold */
    bool tiled;    /* head h reads key head h % key_heads instead; not for backward */
} pal_memory_shape;

/* T rows each; channels per row in brackets. What a rule does not read may be left out. */
typedef struct pal_memory_inputs {
    pal_const_view q, k;  /* (key_heads*dk); attention's q has (H*dk) */
    pal_const_view v;     /* (H*dv); attention (key_heads*dv). Palimpsa expects the gated value */
    pal_const_view b;     /* (H*dv) palimpsa: importance gate >= 0; longhorn: beta; kla: precision of the value >= 0 */
    pal_const_view beta;  /* (H) delta rules, mesa; mamba3: factor of what a token writes */
    pal_const_view dt;    /* (H) palimpsa: time step >= 0, decay exp(-A dt) */
    pal_const_view g;     /* (H) gla, gdn, gdn_app, comba, mesa, mamba3: log of the decay, <= 0 */
    pal_const_view gk;    /* (H*dk) kda, gdn2, rwkv7, pkda, kdn, kdn_iso: log of the decay of each key channel, <= 0 */
    pal_const_view p;     /* (H*dk) comba, rwkv7: the key whose content is compared */
    pal_const_view erase; /* (H*dk) gdn2: erase gate; rwkv7: the key under which the content of p is taken away */
    pal_const_view write; /* (H*dv) gdn2: write gate */
    pal_const_view gp, betap;     /* (H) pkda: log of the preconditioner's decay, <= 0; its step >= 0 */
    pal_const_view noise, noisek; /* (H) kdn_iso, (H*dk) kdn: variance that a token adds to the memory, >= 0 */
    pal_const_view r;             /* (H) kdn, kdn_iso: variance of the value, > 0 */
    pal_const_view lag;           /* (H) mamba3: factor with which the token before is written once more */
    pal_const_view turn;          /* (H*((dk+1)/2)) mamba3: angle in radians by which each pair of key channels turns */
    const float *A, *Ip;          /* (H) palimpsa: forgetting rate; prior importance > 0, also kla, kdn, kdn_iso */
    const float *lam;             /* (H*dk) mesa: prior precision > 0 */
    const float *keep, *drift;    /* (H*dk*dv) kla: factor of the mean, > 0; variance that a token adds, >= 0 */
    float scale;                  /* of the query */
    float mesa_tolerance; /* mesa: 0 solves exactly, > 0 by conjugate gradient until the residual falls below this
                             fraction */
} pal_memory_inputs;

/* Gradients of inputs are overwritten, those of parameters (A, Ip, lam, keep, drift) are added to; NULL where not
 * wanted.
 * initial[p]: gradient of part p of the initial memory, N x pal_memory_part_floats(), laid out as exported. */
typedef struct pal_memory_gradients {
    pal_view q, k, v, b, beta, dt, g, gk, p, erase, write, gp, betap, noise, noisek, r, lag, turn;
    float *A, *Ip, *lam, *keep, *drift;
    float *initial[2];
} pal_memory_gradients;

struct pal_paged;
typedef struct pal_memory_run {
    pal_memory_shape shape;
    pal_memory_inputs in;

    float *const *state;  /* N memories, read as the initial and overwritten by the final ones; NULL: default start, end
                           * dropped. Backward only looks whether it is NULL */
    const bool *borrowed; /* forward: (N) true: the state is only read, so that sequences can share it; NULL: none. Not
                           * attention's, whose memory grows */
    bool fresh;           /* start from the default whatever state holds */
    const int *past;      /* attention: tokens already in each state; NULL: none */
    const struct pal_paged *paged; /* attention: (N) states in pages that the library shares; NULL: in `state` */
    float *saved;  /* what backward needs of forward, pal_memory_saved_floats(); NULL when no backward follows */
    void *scratch; /* pal_memory_scratch_bytes(), 64-byte aligned */

    pal_view y;     /* (H*dv) output of forward and step; backward reads it */
    pal_view y_var; /* (H*dv) output variance, where the rule has one; data NULL where not wanted */

    /* step: called for each head just before it changes, by the thread that changes it next and so has it in its cache;
     * NULL: no callback. Longhorn, mesa and attention do not call it */
    void (*before_head)(void *user, int sequence, int head);
    void *before_head_user;

    pal_const_view dy, dy_var;  /* backward: gradients of y and y_var; data NULL means zero (dy_var) */
    const float *dfinal[2];     /* backward: gradient of each part of the final memory; NULL means zero */
    const float *const *before; /* backward, palimpsa: (N), NULL for a sequence whose initial state was the default,
                                 * whose gradient goes to Ip; NULL: all were or none, as `state` and `fresh` say */
    pal_memory_gradients grad;  /* backward: where the results go */
} pal_memory_run;

typedef enum pal_memory_pass { PAL_FORWARD, PAL_BACKWARD, PAL_STEP } pal_memory_pass;

/* Rules by name ("palimpsa", "gla", "kda", ...) and by index; NULL past the end, and for no name. */
PAL_API const pal_memory_rule *pal_memory_find(const char *name);
PAL_API const pal_memory_rule *pal_memory_at(int index);
PAL_API const char *pal_memory_name(const pal_memory_rule *rule);
PAL_API const char *pal_memory_summary(const pal_memory_rule *rule);
PAL_API unsigned pal_memory_inputs_of(const pal_memory_rule *rule);
/* Whether it gives y_var; whether its memory grows by every token, as attention's does, instead of having a fixed
 * size. */
PAL_API bool pal_memory_has_variance(const pal_memory_rule *rule);
PAL_API bool pal_memory_keeps_tokens(const pal_memory_rule *rule);

/* Sizes. A state is one sequence's memory in the rule's own layout; parts are what it means, laid out (H, dv, dk) or as
 * the rule's README says. past the last part, its name is NULL and its size 0. A shape without tokens needs nothing to
 * be saved and no scratch. */
PAL_API size_t pal_memory_state_floats(const pal_memory_rule *rule, const pal_memory_shape *shape);
PAL_API size_t pal_memory_saved_floats(const pal_memory_rule *rule, const pal_memory_shape *shape);
PAL_API size_t pal_memory_scratch_bytes(const pal_memory_rule *rule, const pal_context *cx,
                                        const pal_memory_shape *shape, pal_memory_pass pass);
PAL_API const char *pal_memory_part_name(const pal_memory_rule *rule, int part);
PAL_API int pal_memory_mean_part(const pal_memory_rule *rule);       /* which is mu, S or G, (H, dv, dk); -1: none */
PAL_API int pal_memory_importance_part(const pal_memory_rule *rule); /* which is I, (H, dv, dk); -1: none */
PAL_API size_t pal_memory_part_floats(const pal_memory_rule *rule, const pal_memory_shape *shape, int part);

/* One sequence's state: to its default, from parts, to parts. `in` supplies the prior (Ip); other rules ignore it. */
PAL_API void pal_memory_reset(const pal_memory_rule *rule, const pal_memory_shape *shape, const pal_memory_inputs *in,
                              float *state);
PAL_API void pal_memory_import(const pal_memory_rule *rule, const pal_memory_shape *shape, const pal_memory_inputs *in,
                               const float *const parts[2], float *state);
PAL_API void pal_memory_export(const pal_memory_rule *rule, const pal_memory_shape *shape, const pal_memory_inputs *in,
                               float *const parts[2], const float *state);

/* Checked entry points: sizes, pointers, cu_seqlens and the ranges of dt, g and Ip are looked at before anything is
 * written. */
PAL_API pal_status pal_memory_forward(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_run *run,
                                      pal_error *err);
PAL_API pal_status pal_memory_backward(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_run *run,
                                       pal_error *err);
PAL_API pal_status pal_memory_step(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_run *run,
                                   pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
