/* SPDX-License-Identifier: MIT */
/* Mesa: ridge regression of all values seen on all keys seen, solved anew at every token (README.md has the
 * mathematics).
 *
 *     a = exp(g),  H <- a H + beta k k^T,  G <- a G + beta v k^T
 *     (H + diag(lam)) x = scale q,  y = G x
 *
 * A kernel works on one head over one sequence. Its memory is H (dk, dk), symmetric, followed by G transposed, (dk,
 * dv). Only H's lower triangle is read; both are written. Variants differ in rounding and in the order of sums. */
#ifndef PAL_MEMORY_MESA_H
#define PAL_MEMORY_MESA_H

#include "base/context.h"
#include "palimpsa/memory.h"

enum {
    PAL_MESA_CHUNK = 64, /* tokens between saved memories */
    PAL_MESA_STEPS = 16  /* heads that one call of a step kernel takes at most */
};

/* H is single precision, so a pivot below this fraction of its diagonal element is rounding: nothing is known about
 * that direction but a prior too weak to be seen next to the rest. It is left out of the solution, as a pseudo-inverse
 * does. */
#define PAL_MESA_PIVOT 0x1p-22f

/* Views start at the sequence's first token and this head's channels. */
typedef struct pal_mesa_head {
    int tokens, dk, dv;
    float scale, tolerance; /* tolerance 0: Cholesky; else conjugate gradient */
    pal_const_view q, k, v, beta, g;
    const float *lam; /* (dk) */

    pal_view y;
    const float *initial; /* the memory; NULL: zero */
    float *final;         /* may be `initial`; NULL: dropped */
    float *saved;         /* memories before tokens 0, CHUNK, ..., `between` apart; NULL: not wanted */
    size_t between;
    pal_view x; /* (dk) solutions, kept for backward; data NULL when not wanted */

    pal_const_view dy;     /* backward */
    const float *dfinal_H; /* (dk, dk), or NULL for zero */
    const float *dfinal_G; /* (dv, dk), or NULL for zero */
    float *dinitial_H, *dinitial_G;
    pal_view dv_rows, dbeta, dg; /* overwritten; data NULL where not wanted */
    pal_view dq, dk_rows;        /* overwritten, or added to when `add` */
    bool add;
    double *dlam; /* (dk) this sequence's share, overwritten */

    float *scratch; /* pal_mesa_scratch_floats() */
} pal_mesa_head;

/* What the variants of a level need, a multiple of 16. */
size_t pal_mesa_scratch_floats(pal_cpu_level level, int dk, int dv, pal_memory_pass pass);

/* Conjugate gradient gives up after this many rounds: exact arithmetic needs dk at most, rounding costs some more. */
static inline int pal_mesa_rounds(int dk) { return 4 * dk + 20; }

typedef void pal_mesa_forward_fn(const pal_mesa_head *head);
typedef void pal_mesa_backward_fn(const pal_mesa_head *head);
/* One token each for `count` heads of the same sizes: `final` is updated in place. The first one's scratch is used. */
typedef void pal_mesa_step_fn(const pal_mesa_head *heads, int count);

PAL_DECLARE_VARIANTS(mesa_forward)
PAL_DECLARE_VARIANTS(mesa_backward)
PAL_DECLARE_VARIANTS(mesa_step)

#endif
