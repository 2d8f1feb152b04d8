/* SPDX-License-Identifier: MIT */
/* Surgery: plain layers (Mamba2's, or Palimpsa's without metaplasticity) become metaplastic. Their weights stay what
 * they are, to the bit; each gets an importance gate. As its b_scale falls, a metaplastic layer becomes the plain one
 * exactly, so the new model starts near the old one, and with the new plasticity off it is the old one, which a proof
 * shows by running both. */
#ifndef PALIMPSA_SURGERY_H
#define PALIMPSA_SURGERY_H

#include "palimpsa/windows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the result differs from its source on a text. Differences are the largest of a logit, over the source's largest
 * logit; infinite for what is not a number. */
typedef struct pal_proof {
    int tokens;
    double off, on;              /* with the new plasticity off and on */
    int moved;                   /* positions whose most likely token changes with plasticity on */
    double loss_source, loss_on; /* mean -log p of the next token, in nats */
} pal_proof;

typedef struct pal_surgery_options {
    const char *layers;     /* "top:8" (longest memory windows, among plain layers), "all" that are plain, or "0,5,7" */
    const int32_t *ids;     /* a text in the source's vocabulary */
    int window_tokens;      /* of it, to measure windows on; only top:K needs them */
    int proof_tokens;       /* of it, for the proof; 0: no proof */
    int rank;               /* of the importance gates; 0: the model's, else hidden/16 */
    const double *b_scale;  /* (2) where it starts, uniform between these, before softplus; NULL: 0.1 and 1 */
    bool exact;             /* it starts at the Mamba2 limit, where the model equals its source up to rounding */
    uint64_t seed;          /* of the new weights */
    const char *dtype;      /* "f32", "bf16" or "f16"; NULL: of each tensor as it is */
    const char *tokenizer;  /* that goes along, as for pal_convert */
    pal_go_on_fn *progress; /* tokens or bytes; false leaves nothing; may be NULL */
    void *user;
} pal_surgery_options;

typedef struct pal_surgery_report {
    bool layers[PAL_MAX_LAYERS]; /* that became metaplastic */
    pal_windows windows;         /* .layers 0: they were not measured */
    pal_proof proof;
    bool writing;   /* the target had been begun: an error of PAL_E_IO is about it */
    bool proving;   /* the proof had begun: an error of PAL_E_FORMAT is its result */
    bool tokenizer; /* the target has one */
    double window_seconds, write_seconds, proof_seconds;
    size_t parameters; /* of the source */
} pal_surgery_report;

/* source: anything that pal_model_open opens. target: a directory that does not exist or is empty; it is there whole or
 * not at all. A result that with plasticity off differs from its source is refused. report: to be freed also after a
 * failure. */
PAL_API pal_status pal_surgery_operate(const char *source, const char *target, const pal_surgery_options *options,
                                       const pal_context *cx, pal_surgery_report *report, pal_error *err);
PAL_API void pal_surgery_report_free(pal_surgery_report *report); /* a zeroed one is fine */

#ifdef __cplusplus
}
#endif
#endif
