/* SPDX-License-Identifier: MIT */
/* Checks that every memory rule must pass, written once over the rule interface. A rule's test file describes its rule as
 * a memory_subject, whose loss in float64 is the rule's second, independent implementation, and calls the checks. */
#ifndef PAL_TEST_MEMORY_HARNESS_H
#define PAL_TEST_MEMORY_HARNESS_H

#include "memory/rule.h"
#include "support/support.h"

enum { MEMORY_INPUTS = 10 }; /* PAL_INPUT_* by bit number: q k v b beta dt g A Ip lam */

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
memory_case *memory_case_new(const memory_subject *subject, int n, const int *lengths, int heads, int key_heads, int dk, int dv,
                             bool initial, double forgetting, pal_rng *rng);
void memory_case_free(memory_case *c);

/* Forward (and backward) in guarded buffers whose outputs, scratch and saved numbers start as NaN, rows `gap` floats apart
 * beyond their channels; fails if the gap of an output is written. */
memory_result *memory_run_case(const memory_case *c, const pal_context *cx, int gap, bool backward);
void memory_result_free(memory_result *r);

/* Every recorded case of this rule in tests/golden/ops and $PALIMPSA_GOLDEN/ops, at every CPU level, as a whole, token by
 * token and backward. */
void memory_check_golden(const memory_subject *subject);
void memory_check_gradients(const memory_subject *subject);      /* against differences of subject->loss */
void memory_check_splits(const memory_subject *subject);         /* pieces and steps = whole; 30 cases, 1,000 in long tests */
void memory_check_packed(const memory_subject *subject);         /* packed = each sequence alone */
void memory_check_threads(const memory_subject *subject);        /* 1, 2, 3, 7 threads: same bits */
void memory_check_levels(const memory_subject *subject);         /* every level = reference, odd sizes, strided rows */
void memory_check_groups(const memory_subject *subject);         /* shared keys = repeated keys */
void memory_check_optional(const memory_subject *subject);       /* gradients nobody wants change no other */
void memory_check_starts(const memory_subject *subject);         /* fresh or no memories = default ones */
void memory_check_no_allocation(const memory_subject *subject);

#endif
