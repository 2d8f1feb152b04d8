/* SPDX-License-Identifier: MIT */
/* A problem for the Palimpsa rule, its run in guarded buffers, and its float64 twin: the formula and its derivative
 * written plainly over the same inputs. More than memory_case.h knows: the twin gives every gradient at every element,
 * over the whole range of decays and importances. */
#ifndef PAL_TEST_PALIMPSA_PROBLEM_H
#define PAL_TEST_PALIMPSA_PROBLEM_H

#include "memory/palimpsa/palimpsa.h"
#include "memory/rule.h"
#include "support/support.h"

/* Everything a run can produce. */
enum { Y, Y_VAR, MU_T, I_T, DQ, DK, DV, DB, DDT, DA, DIP, DMU0, DI0, RESULTS };
typedef struct problem_result {
    const char *name; /* as in golden files */
    double accept;    /* nmax for these tensors */
} problem_result;
extern const problem_result problem_results[RESULTS];

/* Inputs and upstream gradients; those that are absent are NULL. */
enum { IN_Q, IN_K, IN_V, IN_B, IN_DT, IN_A, IN_IP, IN_MU0, IN_I0, IN_DY, IN_DY_VAR, IN_DMU, IN_DI, INPUTS };

typedef struct problem {
    int N, T, H, G, dk, dv; /* G key heads */
    int *cu;
    float scale;
    float *in[INPUTS]; /* guarded */
} problem;

/* How to draw a problem. Zero means: as the test likes. */
typedef struct recipe {
    int N, H, group, dk, dv; /* group: heads that share a key head */
    int length;              /* of every sequence; 0: each its own, 1 .. 80 */
    bool initial, final;     /* with initial memories; with gradients of the final ones */
    double adt_lo, adt_hi;   /* A dt is drawn from a log-uniform range */
    double b_lo, b_hi;       /* likewise b; 0, 0: b is zero */
} recipe;
recipe recipe_usual(pal_rng *rng);
int draw(pal_rng *rng, int lo, int hi);

problem problem_new(pal_rng *rng, recipe r);
void problem_free(problem *p);
size_t problem_input_count(const problem *p, int which);
size_t problem_result_count(const problem *p, int which);
bool problem_has(const problem *p, int result);  /* whether the problem defines this result */
pal_memory_run problem_inputs(const problem *p); /* a run with shape and inputs, nothing else */

pal_const_view rows(const float *data, int channels);
pal_view out_rows(float *data, int channels);

/* Results of a run in f32, each buffer poisoned and ending at a guard page. */
typedef struct outcome {
    float *x[RESULTS];
} outcome;
outcome outcome_new(const problem *p);
void outcome_free(const problem *p, outcome *o);

/* Memories of all sequences, each guarded and holding the initial one (or its default). */
typedef struct memories {
    float **state;
    size_t floats;
} memories;
memories memories_new(const problem *p);
void memories_export(const problem *p, const memories *m, outcome *o);
void memories_free(const problem *p, memories *m);

/* A poisoned scratch whose end is guarded; its size is a multiple of 64, so its start is aligned. */
float *palimpsa_scratch(const pal_context *cx, const pal_memory_shape *shape, pal_memory_pass pass, size_t *floats);

typedef struct wanted {
    bool backward, variance; /* what is asked for */
} wanted;
/* Forward, and backward from what forward saved. */
void problem_run(const pal_context *cx, const problem *p, wanted want, outcome *o);

/* The formula and its derivative in float64, over float64 inputs. */
typedef struct twin {
    double *in[INPUTS], *x[RESULTS];
} twin;
twin twin_new(const problem *p);
void twin_free(twin *w);
void twin_run(const problem *p, twin *w, wanted want);
double twin_loss(const problem *p, twin *w); /* <upstream, outputs> */

/* nmax of every result of o against the twin; slack is added to what the rule accepts. */
void outcome_check(const char *what, const problem *p, const outcome *o, const twin *w, wanted want, double slack);

#endif
