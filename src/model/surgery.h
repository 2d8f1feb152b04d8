/* SPDX-License-Identifier: MIT */
/* The steps of surgery (palimpsa/surgery.h). */
#ifndef PAL_MODEL_SURGERY_H
#define PAL_MODEL_SURGERY_H

#include "format/model_writer.h"
#include "model/windows.h"
#include "palimpsa/surgery.h"

/* b_scale before softplus: the paper's start for fine-tuning, and one so low that f32 does not separate the model
 * from its source. */
#define PAL_B_SCALE_LOW   0.1
#define PAL_B_SCALE_HIGH  1.0
#define PAL_B_SCALE_EXACT (-20.0)

typedef struct pal_surgery {
    bool layers[PAL_MAX_LAYERS]; /* to become metaplastic */
    int rank;         /* of their importance gates; 0: as the configuration has it, else hidden/16 rounded up */
    double low, high; /* b_scale starts uniform between them, before softplus */
    uint64_t seed;
    bool convert;    /* every tensor becomes `dtype`; else tensors keep theirs (quantised ones become F32) */
    pal_dtype dtype; /* PAL_F32, PAL_BF16 or PAL_F16 */
    pal_go_on_fn *go_on; /* bytes written, or tokens of the proof read; may be NULL */
    void *user;
} pal_surgery;

/* "top:8" (by window, among plain layers), "all" (that are plain) or "0,5,7". windows may be NULL unless
 * pal_surgery_needs_windows. */
bool pal_surgery_needs_windows(const char *choice);
pal_status pal_surgery_choose(bool layers[PAL_MAX_LAYERS], const char *choice, const pal_model_config *config,
                              const pal_windows *windows, pal_error *err);

/* What cannot be chosen whatever the windows are, before they are measured. */
pal_status pal_surgery_choosable(const char *choice, const pal_model_config *config, pal_error *err);

/* The configuration of the result. Refuses models and layers that cannot become metaplastic. */
pal_status pal_surgery_config(pal_model_config *out, const pal_model_config *from, const pal_surgery *surgery,
                              pal_error *err);

/* Writes the result tensor by tensor: everything but the commit. pal_model_writer_directory holds a complete model.
 * `from` may be unloaded. */
pal_status pal_surgery_write(pal_model_writer **out, const char *directory, const pal_model *from,
                             const pal_surgery *surgery, const pal_context *cx, pal_error *err);

/* The same weights with plasticity on only in layers of which `metaplastic` says so (NULL: in none), for inference.
 * They belong to `model`: the view is closed (pal_model_close) before it. Layers without an importance gate cannot be
 * turned on. */
pal_status pal_model_view(pal_model **out, const pal_model *model, const bool *metaplastic, pal_error *err);

#define PAL_PROOF_ACCEPT 1e-4 /* largest difference of logits with plasticity off */
#define PAL_PROOF_EXACT  1e-5 /* largest difference that rounding explains, with plasticity on at the Mamba2 limit */
/* surgery: for its go_on; may be NULL. Both models read the text as one sequence; plasticity off means off in the
 * layers that the source has plain. Refuses a difference with plasticity off above PAL_PROOF_ACCEPT. */
pal_status pal_surgery_prove(pal_proof *out, const pal_surgery *surgery, const pal_model *source,
                             const pal_model *result, const pal_context *cx, const int32_t *ids, int tokens,
                             pal_error *err);

#endif
