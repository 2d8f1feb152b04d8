/* SPDX-License-Identifier: MIT */
/* Checkpoints from one layout to another, tensor by tensor: memory does not grow with the model, and the target is
 * there whole or not at all. docs/reference/formats.md says what each layout can hold. */
#ifndef PALIMPSA_CONVERT_H
#define PALIMPSA_CONVERT_H

#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/model.h"
#include "palimpsa/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pal_layout {
    PAL_LAYOUT_PALIMPSA,  /* a directory as this library saves it; Mamba2 becomes a meta_mamba2 without metaplastic
                             layers */
    PAL_LAYOUT_HF,        /* a directory for Hugging Face's classes: Mamba2, or the family that the model came from */
    PAL_LAYOUT_OFFICIAL,  /* a directory with the configuration and the names of state-spaces, in safetensors */
    PAL_LAYOUT_GGUF,      /* one file; plain Mamba2 and published families as llama.cpp loads them, other models under
                             architectures of ours */
    PAL_LAYOUTS
} pal_layout;

PAL_API const char *pal_layout_name(pal_layout layout); /* "palimpsa", "hf", "official", "gguf" */

typedef struct pal_convert_options {
    pal_layout to;
    const char *dtype; /* "f32", "bf16", "f16" or, for GGUF, "q8_0", "q6_k", "q5_k", "q5_0", "q4_k", "q4_0"; NULL: each
                        * tensor as it is */
    const char *tokenizer;  /* as for pal_tokenizer_open; NULL: the source's own; "none": leave it out */
    pal_go_on_fn *progress; /* bytes written; false leaves nothing; may be NULL */
    void *user;
    const pal_context *cx; /* threads that quantise; NULL: the caller's */
} pal_convert_options;

typedef struct pal_converted {
    size_t tensors, bytes;
    size_t dropped; /* tensors of importance gates that nothing read */
    bool tokenizer; /* the target has one */
    bool writing;   /* the target had been begun: an error of PAL_E_IO is about it */
    size_t finer;   /* matrices whose rows do not fill the type's blocks, in a finer type */
} pal_converted;

/* source: anything that pal_model_open opens. target: must not exist (a directory may, if it is empty). report may be
 * NULL. A model that the layout cannot hold is refused with the reason. */
PAL_API pal_status pal_convert(const char *source, const char *target, const pal_convert_options *options,
                               pal_converted *report, pal_error *err);

/* What it cost: two models read one text, and their distributions of the next token are compared. */
typedef struct pal_convert_cost {
    int tokens;
    double loss_before, loss_after; /* mean -log p of the next token, in nats */
    double kl_mean, kl_most;        /* divergence of the result's distribution from the source's, in nats */
    double changed;                 /* share of positions whose likeliest token changed */
} pal_convert_cost;
/* ids of the source's vocabulary, at least 2. */
PAL_API pal_status pal_convert_measure(pal_convert_cost *out, const char *source, const char *target,
                                       const int32_t *ids, int tokens, const pal_context *cx, pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
