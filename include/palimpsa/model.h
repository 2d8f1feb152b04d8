/* SPDX-License-Identifier: MIT */
/* Models: Palimpsa-D, Palimpsa-M (and Mamba2, its limit), Gated DeltaNet, Transformer++, hybrids of them, and the D
 * backbone with any memory rule. docs/explanation/models.md explains them, docs/reference/formats.md the files.
 *
 *     pal_model *model;
 *     pal_model_open(&model, "my-model", PAL_FOR_INFERENCE, cx, &err);
 *     pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = 512, .sequences = 1 }, &err);
 *     pal_state_new(&state, model, 4096, &err);
 *     pal_model_prefill(model, work, state, prompt, prompt_tokens, logits, &err);
 *     pal_model_step(model, work, &state, 1, &next, logits, &err);
 *
 * A model is its weights; it is only read while it runs, so many works may run one model at the same time. A work is
 * the memory that one computation needs; it is planned once, and no call below allocates after it exists. */
#ifndef PALIMPSA_MODEL_H
#define PALIMPSA_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/batch.h"
#include "palimpsa/config.h"
#include "palimpsa/context.h"
#include "palimpsa/safetensors.h"
#include "palimpsa/status.h"
#include "palimpsa/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The block that layer i is. */
PAL_API const pal_block_spec *pal_model_block(const pal_model_config *config, int layer);
/* The memory of fixed size that layer i has: its first mixer, unless that attends or has none; else NULL. */
PAL_API const pal_mixer_spec *pal_model_memory(const pal_model_config *config, int layer);
/* The mixer that all layers have in common; NULL in a model of several kinds of blocks. */
PAL_API const pal_mixer_spec *pal_model_mixer(const pal_model_config *config);
/* "mamba2", "attention", ...: the kind as a list of blocks has it; NULL for a number that is none. */
PAL_API const char *pal_mixer_name(pal_mixer kind);
/* Whether states grow with the text: some layer attends. */
PAL_API bool pal_model_grows(const pal_model_config *config);
/* The most heads, keys and values of the layers' first mixers, convolutions apart; 0 without any. Each may be NULL. */
PAL_API void pal_model_widest(const pal_model_config *config, int *heads, int *dk, int *dv);
/* The rule that layer i runs: "palimpsa", "gla", "gdn", "attention", ...; "none" without a memory. Of two mixers it is
 * the first one's. */
PAL_API const char *pal_model_layer_rule(const pal_model_config *config, int layer);
/* "Palimpsa-D", "Palimpsa-M (without metaplasticity)", "Mamba2", "hybrid Palimpsa-M", ... */
PAL_API void pal_model_describe(const pal_model_config *config, char text[64]);

/* A named model: palimpsa-d, palimpsa-m, gated-deltanet, transformer with -15m, -60m, -170m or -760m; mamba2 with -130m
 * ... -2.7b; -wo-meta before the size turns metaplasticity off. A bare name means the size for its task, "mqar" or
 * "text". A pattern such as "palimpsa-m:3,attention:1" or "mamba2-60m,attention,mlp" names layers, which repeat until
 * the model has its number of layers; "+" joins what is in one layer: two mixers, its MLP. Numbers that are 0 and texts
 * that are NULL leave the preset's own; the others replace it and what follows from it. */
typedef struct pal_preset_options {
    const char *task;      /* "mqar", "text" or NULL */
    const char *rule;      /* of the D backbone */
    double mesa_tolerance; /* with rule mesa */
    bool softplus_rate;    /* with rule mamba3 */
    int vocab, hidden, layers, heads, head_dim, state_size, rank, mlp;
    double expand_v;
    bool recall_init;       /* weights start as those for mqar: slow forgetting, matrices N(0, 1/128) */
    const char *forgetting; /* where A starts in a model for mqar: "small", "normal", "very_small"; NULL: small */
    int norm_groups;        /* M: groups of the gated norm */
} pal_preset_options;
PAL_API pal_status pal_model_preset(pal_model_config *out, const char *name, const pal_preset_options *options,
                                    pal_error *err);
PAL_API const char *pal_model_preset_at(int index); /* names that exist, for help texts; NULL past the end */
/* Checks sizes against each other and against what this library addresses. */
PAL_API pal_status pal_model_config_check(const pal_model_config *config, pal_error *err);

typedef struct pal_model pal_model;

/* One stored tensor. Flat buffers (parameters, gradients, optimiser moments) share `offset`; gaps between tensors are
 * zero and stay zero. */
typedef struct pal_weight {
    const char *name; /* as in files */
    int rank;
    int64_t shape[3];
    size_t count, offset;
    pal_dtype type;    /* matrices for inference are as the file has them; everything else is F32 */
    pal_dtype stored;  /* as type; the file's where that is only read (Q2_K), and type is Q8_0 */
    const void *data;  /* rows of whole blocks, one after the other */
    int layer;         /* -1: outside the blocks */
    const char *group; /* "embedding", "mixer", "importance", "mlp", "norm" or "head" */
    bool frozen;       /* gets a gradient but is never updated */
    bool unused;       /* stored for compatibility; takes part in nothing and is never updated */
    bool decay;        /* false: marked "no weight decay" */
    bool quantisable;  /* a matrix that only matrix products read */
} pal_weight;

typedef enum pal_model_use {
    PAL_FOR_INFERENCE, /* matrices stay in the mapped file, in the type they have there; nothing can be changed */
    PAL_FOR_TRAINING   /* weights in one flat buffer, gradients in another */
} pal_model_use;

/* Makes a model with initial weights (spec: docs/explanation/models.md), the same for any number of threads. */
PAL_API pal_status pal_model_new(pal_model **out, const pal_model_config *config, uint64_t seed, pal_model_use use,
                                 const pal_context *cx, pal_error *err);
/* Opens a model directory, the newest checkpoint of a run directory, or a GGUF file. Blocks (Q8_0, Q4_K, ...) are not
 * trained. */
PAL_API pal_status pal_model_open(pal_model **out, const char *directory, pal_model_use use, const pal_context *cx,
                                  pal_error *err);
/* Reads only config.json and tensor shapes. A path to a lone config.json works when it states every size. */
PAL_API pal_status pal_model_read_config(pal_model_config *out, const char *path, pal_error *err);
PAL_API void pal_model_close(pal_model *model);

/* Writes config.json and model.safetensors (dtype PAL_F32, PAL_BF16 or PAL_F16) into a directory that it makes if
 * needed. Each file is written aside and renamed. */
PAL_API pal_status pal_model_save(const pal_model *model, const char *directory, pal_dtype dtype, pal_error *err);

PAL_API const pal_model_config *pal_model_config_of(const pal_model *model);
PAL_API size_t pal_model_weight_count(const pal_model *model);
PAL_API const pal_weight *pal_model_weight(const pal_model *model, size_t index);          /* NULL past the end */
PAL_API const pal_weight *pal_model_find_weight(const pal_model *model, const char *name); /* NULL if absent */
/* Values first .. first+count-1 of a weight as f32. */
PAL_API void pal_weight_read(const pal_weight *weight, size_t first, size_t count, float *to);
PAL_API size_t pal_weight_bytes(const pal_weight *weight);
PAL_API size_t pal_model_parameters(const pal_model *model); /* numbers stored, unused ones included */
/* The type that a weight gets in a model of `type`: vectors stay F32; embedding and head are not made coarser than
 * Q6_K. Rows that do not fill blocks of 256 get Q5_0 (for Q4_K) or Q8_0, those that do not fill blocks of 32 F16. */
PAL_API pal_dtype pal_weight_type_in(const pal_weight *weight, pal_dtype type);
/* A model for inference gets its matrices in another type, in memory of its own. */
PAL_API pal_status pal_model_retype(pal_model *model, pal_dtype type, const pal_context *cx, pal_error *err);
/* Of every value that decides what the model computes, and of types made of blocks, which round activations. States
 * carry it. Taken once from a model for inference. */
PAL_API uint64_t pal_model_fingerprint(const pal_model *model);

/* Training: flat buffers of pal_model_flat() floats; NULL for a model opened for inference. */
PAL_API size_t pal_model_flat(const pal_model *model);
PAL_API float *pal_model_flat_parameters(pal_model *model);
PAL_API float *pal_model_flat_gradients(pal_model *model);

/* Working memory. */
typedef struct pal_work pal_work;
typedef struct pal_work_options {
    int tokens;     /* of one batch, all sequences together */
    int sequences;  /* of one batch; 0: 1 */
    int logits;     /* positions whose logits are made at once; 0: one a sequence */
    int context;    /* positions that attention will meet; 0: 4096, or tokens if more */
    bool loss;      /* pal_model_loss or pal_model_score will be called */
    bool variance;  /* pal_work_variance will be asked after steps and prefills */
    bool training;  /* pal_model_learn will be called: forward keeps what backward needs */
    int trial;      /* tokens that sessions may guess and read at once; at most `sequences`. 0: none */
    bool recompute; /* training: keep only the residual stream and run each layer's forward twice */
} pal_work_options;
typedef struct pal_plan { /* bytes */
    size_t activations;   /* kept from forward to backward */
    size_t transient;     /* used again by every layer */
    size_t head;          /* logits and what stands around them */
    size_t scratch;       /* of single kernels */
    size_t total;
} pal_plan;
PAL_API pal_status pal_work_plan(pal_plan *out, const pal_model *model, const pal_context *cx,
                                 const pal_work_options *options, pal_error *err);
PAL_API pal_status pal_work_new(pal_work **out, const pal_model *model, const pal_context *cx,
                                const pal_work_options *options, pal_error *err);
PAL_API void pal_work_free(pal_work *work);

/* Logits (n, vocab_rows) of the n positions listed in `at` (NULL: all); sequences start afresh. */
PAL_API pal_status pal_model_forward(const pal_model *model, pal_work *work, const pal_batch *batch, const int *at,
                                     int n, float *logits, pal_error *err);
/* Loss alone. correct, if not NULL, takes one byte a token: 1 where a trained position was right. */
PAL_API pal_status pal_model_loss(const pal_model *model, pal_work *work, const pal_batch *batch, pal_loss *loss,
                                  unsigned char *correct, pal_error *err);
/* Loss, and scale * d(sum)/d(weight) added to the gradients. scale 1/count gives the gradient of the mean. */
PAL_API pal_status pal_model_learn(pal_model *model, pal_work *work, const pal_batch *batch, float scale,
                                   pal_loss *loss, unsigned char *correct, pal_error *err);
/* targets[t] = ids[t+1] within the row, PAL_IGNORE at its end: what language models are trained on. */
PAL_API void pal_shift_targets(int32_t *targets, const int32_t *ids, int tokens);

typedef struct pal_state pal_state;
/* One more token for each of n sequences; logits (n, vocab_rows). */
PAL_API pal_status pal_model_step(const pal_model *model, pal_work *work, pal_state *const *states, int n,
                                  const int32_t *ids, float *logits, pal_error *err);
/* Any number of tokens for one sequence, in pieces that fit the work; logits (vocab_rows) of the last, or NULL. */
PAL_API pal_status pal_model_prefill(const pal_model *model, pal_work *work, pal_state *state, const int32_t *ids,
                                     int tokens, float *logits, pal_error *err);
/* A packed batch that continues states (one a sequence); logits as in pal_model_forward. */
PAL_API pal_status pal_model_continue(const pal_model *model, pal_work *work, pal_state *const *states,
                                      const pal_batch *batch, const int *at, int n, float *logits, pal_error *err);

/* The same with losses instead of logits: nll (tokens) is -log softmax of each position's target, 0 where that is
 * PAL_IGNORE; correct (tokens, or NULL) is 1 where the target has the largest logit. A text of any length is scored
 * piece by piece with constant memory. */
PAL_API pal_status pal_model_score(const pal_model *model, pal_work *work, pal_state *const *states,
                                   const pal_batch *batch, float *nll, unsigned char *correct, pal_loss *loss,
                                   pal_error *err);
/* How uncertain the memory's answer to the last token of `sequence` was in the last step, prefill or continue: the
 * output variance (docs/explanation/math.md), averaged over the channels and heads of the layers that have one, or NaN
 * if no layer has one. */
PAL_API double pal_work_variance(const pal_work *work, int sequence);

/* Looking into the memory: one forward over a batch, with a call per layer once that layer has read it. Everything is
 * borrowed for the call; what a rule does not have is NULL. */
typedef struct pal_observation {
    int layer;
    const char *rule;
    int tokens, sequences, heads, dk, dv;
    const int *cu_seqlens;
    const float
        *decay; /* (tokens, heads) A dt >= 0: the memory keeps exp(-decay) of itself; NULL: it does not forget */
    const float *importance; /* (sequences, heads, dv, dk) at each sequence's end; palimpsa only */
    const float *b_scale;    /* (heads) effective scale of the importance gate */
} pal_observation;
/* False ends the forward, which then returns PAL_STOPPED. */
typedef bool pal_observe_fn(void *user, const pal_observation *observation);

typedef struct pal_observer pal_observer; /* the memory that observing needs */
PAL_API pal_status pal_observer_new(pal_observer **out, const pal_model *model, int tokens, int sequences,
                                    pal_error *err);
PAL_API void pal_observer_free(pal_observer *observer);
PAL_API size_t pal_observer_bytes(const pal_observer *observer);
PAL_API pal_status pal_model_observe(const pal_model *model, pal_work *work, pal_observer *observer,
                                     const pal_batch *batch, pal_observe_fn *fn, void *user, pal_error *err);

/* Where the time went since the last reset; off until the first reset. Entries end with a NULL name. */
PAL_API void pal_work_timing_reset(pal_work *work);
PAL_API const pal_timing *pal_work_timing(const pal_work *work);

#ifdef __cplusplus
}
#endif
#endif
