/* SPDX-License-Identifier: MIT */
/* Memory windows: how many tokens back a layer remembers. A layer that keeps exp(-A dt_t) of its memory at token t has
 * the window N_t = 1/(1 - exp(-A dt_t)); metaplasticity does most where windows are long, so surgery ranks layers by
 * them. */
#ifndef PALIMPSA_WINDOWS_H
#define PALIMPSA_WINDOWS_H

#include "palimpsa/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pal_windows {
    int layers, tokens;
    double *n_t;    /* (layers, tokens) median over heads; NaN in a layer that has no window */
    double *median; /* (layers) median of n_t over tokens */
    int *order;     /* (layers) layers by falling median, ties to the lower layer, those without a window last */
} pal_windows;

/* Reads the text as one sequence, in pieces of a size that does not depend on its length. go_on, if not NULL: tokens
 * read. */
PAL_API pal_status pal_windows_measure(pal_windows *out, const pal_model *model, const pal_context *cx,
                                       const int32_t *ids, int tokens, pal_go_on_fn *go_on, void *user, pal_error *err);
PAL_API void pal_windows_free(pal_windows *windows); /* a zeroed one is fine */

#ifdef __cplusplus
}
#endif
#endif
