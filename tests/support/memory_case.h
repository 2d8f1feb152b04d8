/* SPDX-License-Identifier: MIT */
/* A problem for a memory rule, random or recorded, and running it in guarded buffers. The checks over it are in
 * memory_harness.h. */
#ifndef PAL_TEST_MEMORY_CASE_H
#define PAL_TEST_MEMORY_CASE_H

#include "memory/rule.h"
#include "support/support.h"

/* PAL_INPUT_* by bit number, as in pal_memory_input_list */
enum {
    MEMORY_Q,
    MEMORY_K,
    MEMORY_V,
    MEMORY_B,
    MEMORY_BETA,
    MEMORY_DT,
    MEMORY_G,
    MEMORY_A,
    MEMORY_IP,
    MEMORY_LAM,
    MEMORY_GK,
    MEMORY_P,
    MEMORY_ERASE,
    MEMORY_WRITE,
    MEMORY_GP,
    MEMORY_BETAP,
    MEMORY_NOISE,
    MEMORY_NOISEK,
    MEMORY_R,
    MEMORY_KEEP,
    MEMORY_DRIFT,
    MEMORY_LAG,
    MEMORY_TURN,
    MEMORY_INPUTS
};

typedef struct memory_subject memory_subject;

/* One problem: dense arrays, the shape, and the gradients that come from above. */
typedef struct memory_case {
    const memory_subject *subject;
    const pal_memory_rule *rule;
    pal_memory_shape shape;
    int *cu;
    float scale, mesa_tolerance;
    float *input[MEMORY_INPUTS]; /* rows (T, channels), or parameters; NULL where the rule has none */
    size_t count[MEMORY_INPUTS];
    size_t channels[MEMORY_INPUTS]; /* 0: a parameter */
    float *initial[2];              /* (N, part); NULL: default start */
    size_t part[2];                 /* floats of a part of one sequence */
    float *dy, *dy_var;             /* (T, H*dv); dy_var NULL for rules without a variance */
    float *dfinal[2];               /* (N, part) */
} memory_case;

/* What a run gave; arrays as in the case. */
typedef struct memory_result {
    float *y, *y_var, *final[2];
    float *grad[MEMORY_INPUTS], *dinitial[2];
} memory_result;

/* The same numbers in float64, for the loss. */
typedef struct memory_doubles {
    double *input[MEMORY_INPUTS], *initial[2]; /* initial NULL: default start */
} memory_doubles;

struct memory_subject {
    const char *rule;
    /* sum of y dy + y_var dy_var + final dfinal over everything, in float64. Needed by memory_check_gradients only. */
    double (*loss)(const memory_case *c, const memory_doubles *x);
    /* Fills c->initial with memories that make sense; NULL: standard normal numbers. */
    void (*fill_initial)(memory_case *c, pal_rng *rng);
    double accept_out, accept_grad; /* nmax against an exact result; 0: 5e-6 and 1e-5 */
    float mesa_tolerance;           /* of every case */
    bool cache;                     /* the memory is a cache: no start from one, no gradient of or into it */
};

/* One index per input, as stored in memory_case. */
int memory_input_index(unsigned bit);

/* lengths: tokens of each of n sequences. Keys have norms near 1; forgetting scales g and dt (1: decays around 0.7). */
memory_case *memory_case_new(const memory_subject *subject, int n, const int *lengths, int heads, int key_heads, int dk,
                             int dv, bool initial, double forgetting, pal_rng *rng);
void memory_case_free(memory_case *c);
int memory_longest(const memory_case *c); /* tokens of its longest sequence */

/* Forward (and backward) in guarded buffers whose outputs, scratch and saved numbers start as NaN, rows `gap` floats
 * apart beyond their channels; fails if the gap of an output is written. */
memory_result *memory_run_case(const memory_case *c, const pal_context *cx, int gap, bool backward);
void memory_result_free(memory_result *r);

/* The same with gradients of these PAL_INPUT_* only. */
memory_result *memory_run_wanting(const memory_case *c, const pal_context *cx, int gap, bool backward, unsigned wanted);
/* In pieces of random lengths, a piece of one token as a step; states carry over. Only y and the final memories. */
memory_result *memory_run_pieces(const memory_case *c, const pal_context *cx, bool only_steps, pal_rng *rng);

/* What those are made of, for checks that run a rule in their own way. */

typedef struct memory_field {
    const char *name;
    size_t view,
        gradient; /* where it sits in pal_memory_inputs and pal_memory_gradients; parameters are plain pointers */
    bool parameter;
    double lo, hi;
} memory_field;
extern const memory_field memory_fields[MEMORY_INPUTS];

/* Guarded buffers of one run, freed together. */
typedef struct memory_buffers {
    struct {
        float *x;
        size_t n;
    } block[64];
    int used;
} memory_buffers;

float *memory_floats(size_t n); /* zeros, for pal_free */
memory_case *memory_case_of_shape(const memory_subject *subject, int n, const int *lengths, int heads, int key_heads,
                                  int dk, int dv); /* all zero */
float *memory_take(memory_buffers *set, size_t n);
void *memory_take_scratch(memory_buffers *set, size_t bytes);
void memory_release(memory_buffers *set);
pal_const_view memory_guard_rows(memory_buffers *set, const float *dense, int rows, size_t channels, size_t gap);
pal_view memory_guard_output(memory_buffers *set, int rows, size_t channels, size_t gap);
void memory_set_inputs(pal_memory_run *run, const memory_case *c, memory_buffers *set, size_t gap);
float **memory_make_states(const memory_case *c, const pal_memory_inputs *in,
                           memory_buffers *set); /* as the case starts them */
void memory_read_states(const memory_case *c, const pal_memory_inputs *in, float *const *state, float *final[2]);
void memory_must(pal_status st, const pal_error *err);

#endif
