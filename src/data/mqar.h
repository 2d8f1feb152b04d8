/* SPDX-License-Identifier: MIT */
/* Multi-query associative recall: examples made on the fly, each a pure function of (configuration, seed, subset,
 * index).
 *
 * An example of length L with N pairs:
 *     k1 v1 k2 v2 .. kN vN   then S = (L-2N)/2 slots of two tokens, slot c at positions 2N+2c and 2N+2c+1
 * Keys are N distinct ids of 1 .. V/2-1, values N distinct ids of V/2 .. V-1, uniform. Key i is asked again at the
 * first position of slot c_i; c_1, c_2, .. are drawn one after another without replacement with weights (c+1)^(p-1), so
 * earlier keys tend to earlier slots. The label there is value i; every other label is PAL_MQAR_IGNORED and every other
 * token of the tail is 0, or with random_fill uniform over all V ids. */
#ifndef PAL_DATA_MQAR_H
#define PAL_DATA_MQAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/context.h"
#include "palimpsa/status.h"

enum { PAL_MQAR_IGNORED = -100 };

typedef struct pal_mqar_config {
    int length;       /* L, even */
    int pairs;        /* N >= 1, 4N <= L */
    int vocabulary;   /* V, N < V/2 */
    double exponent;  /* p; 1 is uniform, the paper's 0.01 favours early slots */
    bool random_fill; /* tail tokens that ask nothing are random rather than 0 */
} pal_mqar_config;

pal_status pal_mqar_check(const pal_mqar_config *config, pal_error *err);

/* Train and test never share random numbers, nor do two lengths or numbers of pairs, whatever the seed. */
typedef enum pal_mqar_subset { PAL_MQAR_TRAIN, PAL_MQAR_TEST } pal_mqar_subset;

typedef struct pal_mqar pal_mqar;
pal_status pal_mqar_new(pal_mqar **out, const pal_mqar_config *config, uint64_t seed, pal_mqar_subset subset,
                        pal_error *err);
void pal_mqar_free(pal_mqar *data);
const pal_mqar_config *pal_mqar_config_of(const pal_mqar *data);

/* Scratch for one call at a time on a context, 64-byte aligned. */
size_t pal_mqar_scratch_bytes(const pal_mqar *data, const pal_context *cx);

/* Examples first .. first+count-1 into ids and labels, (count, L) each. In parallel; the same for any number of
 * threads. */
void pal_mqar_fill(const pal_mqar *data, const pal_context *cx, uint64_t first, size_t count, int32_t *ids,
                   int32_t *labels, void *scratch);

/* Accuracy, added up over batches. Start from a zeroed score. An example's accuracy is the share of its queries
 * answered right, the accuracy is the mean over examples. Distance is from a key in the context to its query, in
 * tokens, in bins of powers of two: bin b holds distances 2^b .. 2^(b+1)-1. */
enum { PAL_MQAR_BINS = 31 };
typedef struct pal_mqar_score {
    size_t examples;
    double sum; /* of the examples' accuracies */
    uint64_t asked[PAL_MQAR_BINS], right[PAL_MQAR_BINS];
} pal_mqar_score;

/* predicted: one id per labelled position, in the order of the tokens (so N per example). */
void pal_mqar_score_add(pal_mqar_score *score, const pal_mqar_config *config, size_t count, const int32_t *ids,
                        const int32_t *labels, const int32_t *predicted);
double pal_mqar_accuracy(const pal_mqar_score *score);             /* NaN before the first example */
double pal_mqar_accuracy_at(const pal_mqar_score *score, int bin); /* NaN where nothing was asked */

#endif
