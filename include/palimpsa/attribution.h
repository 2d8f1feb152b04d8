/* SPDX-License-Identifier: MIT */
/* Which tokens wrote what a token reads. Every rule here is linear in the values, so what a head reads at token t is
 *
 *     y_t[i] = sum over s of w_t[s][i] v_s[i],   s = 0 .. t
 *
 * with weights w that do not depend on the values: of a memory what decay, erasure and importance left of each write,
 * of attention its softmax. They are found exactly, by one pass backward from y_t, not estimated from changes of the
 * input.
 *
 *     static bool show(void *user, const pal_attribution *a) {
 *         printf("layer %d: token 0 gives %g of what head 0 reads\n", a->layer, a->shares[0]);
 *         return true;
 *     }
 *     pal_model_attribute(model, cx, ids, count, PAL_EVERY_LAYER, show, NULL, &err); */
#ifndef PALIMPSA_ATTRIBUTION_H
#define PALIMPSA_ATTRIBUTION_H

#include "palimpsa/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One layer's reading at the last token. Everything is borrowed for the call. */
typedef struct pal_attribution {
    int layer;
    const char *rule;
    int tokens, heads, dv;
    const float *weights; /* (tokens, heads, dv) w_t[s]; v is what the memory reads: gated, where the rule gates it */
    const float *shares;  /* (tokens, heads) of y_t: the part of w_t[s] v_s that points along y_t, over its length; they
                           * add up to 1, and one that works against the others is negative. 0 where y_t is 0 */
    const float *read;    /* (heads, dv) y_t, before the norm, the gate and the skip of the layer */
    double error;         /* largest distance of y_t[i] from the sum above, over the size of the terms that make it */
} pal_attribution;
/* False: stop. */
typedef bool pal_attribution_fn(void *user, const pal_attribution *a);

enum { PAL_EVERY_LAYER = -1 };
/* The last of `count` ids, which are a text from its beginning: a call for each layer that remembers or attends, in
 * order; of a layer with two mixers its first. PAL_STOPPED when fn says so. A layer that neither remembers nor attends
 * is refused by number, and passed over among all. */
PAL_API pal_status pal_model_attribute(const pal_model *model, const pal_context *cx, const int32_t *ids, int count,
                                       int layer, pal_attribution_fn *fn, void *user, pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
