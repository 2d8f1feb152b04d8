/* SPDX-License-Identifier: MIT */
/* What a model remembers of one sequence: short convolution windows and a memory per layer, of a size that does not
 * grow with the sequence. Attention layers are the exception: they keep keys and values, for at most `context` tokens,
 * in pages of 64 tokens that states have in common: a copy of a state takes its fixed part and no page, until one of
 * the two reads more. What is not read yet takes nothing. */
#ifndef PALIMPSA_STATE_H
#define PALIMPSA_STATE_H

#include <stdint.h>

#include "palimpsa/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* context: tokens that attention layers can hold; models without attention ignore it. The model must outlive the state.
 */
PAL_API pal_status pal_state_new(pal_state **out, const pal_model *model, int context, pal_error *err);
PAL_API void pal_state_free(pal_state *state);
PAL_API void pal_state_reset(pal_state *state);
/* Both of the same model, and the context of `to` holds the tokens of `from`, or nothing happens but an error. */
PAL_API pal_status pal_state_copy(pal_state *to, const pal_state *from, pal_error *err);

/* The type in which states of this model keep keys and values: F32 unless this chooses F16 or Q8_0, before there are
 * any. Models without attention take every type and keep nothing in it. */
PAL_API pal_status pal_model_keep_as(pal_model *model, pal_dtype type, pal_error *err);
PAL_API pal_dtype pal_model_kept_as(const pal_model *model);
/* Bytes of all pages of keys and values that there are now, of all states together. */
PAL_API size_t pal_model_page_bytes(const pal_model *model);

PAL_API size_t pal_state_bytes(const pal_model *model, int context); /* that one state takes with so many tokens */
PAL_API int64_t pal_state_position(const pal_state *state);          /* tokens seen */

/* A token that belongs to the sequence but has not been read yet, or -1: what makes a saved state one that text can be
 * generated from, since logits come from reading. It is copied, saved and loaded with the state; running a model
 * neither reads nor clears it, a session does both. */
PAL_API int32_t pal_state_pending(const pal_state *state);
PAL_API pal_status pal_state_set_pending(pal_state *state, int32_t id, pal_error *err);

/* One part of layer i's memory in the terms of its rule (docs/explanation/math.md): part 0 is mu, S, G or keys, part 1
 * is I, H or values. NULL name: no such part. floats: how many numbers export writes. */
PAL_API const char *pal_state_part(const pal_state *state, int layer, int part, size_t *floats);
PAL_API pal_status pal_state_export(const pal_state *state, int layer, float *part0, float *part1, pal_error *err);

/* A file with magic, version, the model's fingerprint, position and checksum. A state of another model is refused. */
PAL_API pal_status pal_state_save(const pal_state *state, const char *path, pal_error *err);
PAL_API pal_status pal_state_load(pal_state *state, const char *path, pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
