/* SPDX-License-Identifier: MIT */
/* What a memory rule must provide. To add one: make a folder with its functions and a `const pal_memory_rule
 * pal_rule_NAME`, and put NAME into PAL_MEMORY_RULES. It is then checked, measured and found by its name.
 *
 * The functions below get arguments that memory.c has checked; they only assert. They cut their work into items by
 * (sequence, head, block of values), run items through pal_parallel_for, and never sum across items in an order that
 * depends on threads. */
#ifndef PAL_MEMORY_RULE_H
#define PAL_MEMORY_RULE_H

#include "base/device.h"
#include "palimpsa/memory.h"

#define PAL_MEMORY_RULES(X) \
    X(palimpsa)             \
    X(gla)                  \
    X(longhorn)             \
    X(delta)                \
    X(gdn) X(gdn_app) X(mesa) X(comba) X(kda) X(gdn2) X(rwkv7) X(pkda) X(kdn_iso) X(kdn) X(kla) X(mamba3) X(attention)

/* What some tokens did to one head. `mean` is mu, or S or G where a rule has no mu. */
enum { PAL_CHANGE_SAMPLE = 256 };
typedef struct pal_memory_change {
    double change, size;             /* sums of squares: of mean after - mean before, of mean after */
    float low, high;                 /* importance after; NaN without */
    float sample[PAL_CHANGE_SAMPLE]; /* of importances after, evenly spaced */
    int samples;                     /* that were taken */
} pal_memory_change;

struct pal_memory_rule {
    const char *name;
    const char *summary;  /* one line for people */
    unsigned inputs;      /* PAL_INPUT_* that it reads */
    bool has_variance;    /* gives y_var */
    bool has_importance;  /* of its two parts, the one that is not the mean is an importance for each element of that */
    bool keeps_tokens;    /* its memory grows by every token, as attention's does, instead of having a fixed size */
    const char *parts[2]; /* names of the memory's parts as users know them ("mu", "I"); the second may be NULL */
    int mean;             /* which of them is the mean: mu, S or G */

    size_t (*part_floats)(const pal_memory_shape *shape, int part); /* one sequence, exported layout */
    size_t (*state_floats)(const pal_memory_shape *shape);          /* one sequence, own layout */
    size_t (*saved_floats)(const pal_memory_shape *shape);
    size_t (*scratch_bytes)(const pal_context *cx, const pal_memory_shape *shape, pal_memory_pass pass);

    void (*reset)(const pal_memory_shape *shape, const pal_memory_inputs *in, float *state);
    void (*import)(const pal_memory_shape *shape, const pal_memory_inputs *in, const float *const parts[2],
                   float *state);
    void (*export)(const pal_memory_shape *shape, const pal_memory_inputs *in, float *const parts[2],
                   const float *state);

    /* One head (which lies in a state at head * state_floats/heads, whatever the rule) before and after some tokens;
     * NULL: a rule that keeps tokens. */
    void (*compare)(const pal_context *cx, const pal_memory_shape *shape, const float *before, const float *after,
                    pal_memory_change *change);

    /* The same for a step of one head that is about to be made; NULL: only compare() knows. */
    void (*foresee)(const pal_context *cx, const pal_memory_run *run, pal_memory_change *change);

    void (*forward)(const pal_context *cx, const pal_memory_run *run);
    void (*backward)(const pal_context *cx, const pal_memory_run *run);
    void (*step)(const pal_context *cx, const pal_memory_run *run);
};

#define X(name) extern const pal_memory_rule pal_rule_##name;
PAL_MEMORY_RULES(X)
#undef X

/* A pass whose arguments were checked, where the context computes. */
static inline void pal_memory_pass_on(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_run *run,
                                      pal_memory_pass pass) {
    if (cx->device) cx->device->ops->memory(cx->device, rule, run, (int)pass);
    else if (pass == PAL_FORWARD) rule->forward(cx, run);
    else if (pass == PAL_BACKWARD) rule->backward(cx, run);
    else rule->step(cx, run);
}

/* Whether this run starts from the default memory rather than from run->state. */
static inline bool pal_memory_starts_fresh(const pal_memory_run *run) { return run->fresh || !run->state; }

/* Whether sequence n of a forward run leaves its state as it was. */
static inline bool pal_memory_borrows(const pal_memory_run *run, int n) { return run->borrowed && run->borrowed[n]; }

/* The key head that head h reads. */
static inline size_t pal_memory_key_head(const pal_memory_shape *s, size_t h) {
    return s->tiled ? h % (size_t)s->key_heads : h * (size_t)s->key_heads / (size_t)s->heads;
}

/* x of a decay e^-x that kernels add up over tokens. Beyond 1e4 nothing is left of the memory either way, and a larger
 * number, such as a mask's 1e30, would swallow its neighbours in the sum. NaN stays NaN. */
static inline double pal_memory_forgetting(double x) { return x > 1e4 ? 1e4 : x; }

/* A view from a token and channel on; no view stays none. */
static inline pal_view pal_view_at(pal_view view, size_t token, size_t channel) {
    return (pal_view){ view.data ? view.data + token * view.stride + channel : NULL, view.stride };
}
static inline pal_const_view pal_const_view_at(pal_const_view view, size_t token, size_t channel) {
    return (pal_const_view){ view.data ? view.data + token * view.stride + channel : NULL, view.stride };
}

/* A memory of one head as (dv, dk): its mean, and its importance, NaN without. Either may be NULL. */
void pal_memory_head(const pal_memory_rule *rule, const pal_memory_shape *shape, const float *state, float *mean,
                     float *importance);

/* Every input, by bit number: where it and its gradient sit, how wide it is, and what its numbers may be. */
typedef enum {
    PAL_PER_HEAD,
    PAL_PER_KEY,
    PAL_PER_OWN_KEY,
    PAL_PER_PAIR,
    PAL_PER_VALUE,
    PAL_PER_ELEMENT
} pal_memory_width;
typedef enum { PAL_ANY, PAL_NOT_NEGATIVE, PAL_NOT_POSITIVE, PAL_POSITIVE } pal_memory_range;
typedef struct pal_memory_input {
    const char *name;
    size_t input, gradient; /* offsets in pal_memory_inputs and pal_memory_gradients */
    bool parameter;         /* a plain pointer; otherwise a view of token rows */
    pal_memory_width width; /* PER_KEY: (key_heads*dk); PER_OWN_KEY: (H*dk); PER_PAIR: of keys, (H*((dk+1)/2));
                               PER_ELEMENT: (H*dk*dv) */
    pal_memory_range range;
} pal_memory_input;
enum { PAL_MEMORY_INPUTS = 23 };
extern const pal_memory_input pal_memory_input_list[PAL_MEMORY_INPUTS];

static inline pal_const_view *pal_memory_input_rows(pal_memory_inputs *in, int input) {
    return (pal_const_view *)((char *)in + pal_memory_input_list[input].input);
}
static inline const pal_view *pal_memory_gradient_rows(const pal_memory_gradients *grad, int input) {
    return (const pal_view *)((const char *)grad + pal_memory_input_list[input].gradient);
}

/* Channels per token row of an input or gradient of the same name; of a parameter, its numbers. */
int pal_memory_channels(const pal_memory_rule *rule, const pal_memory_shape *shape, unsigned input);
/* The inputs of one head, from a token on. Not attention's. */
pal_memory_inputs pal_memory_inputs_at(const pal_memory_rule *rule, const pal_memory_shape *shape,
                                       const pal_memory_inputs *in, size_t token, size_t head);

#endif
