/* SPDX-License-Identifier: MIT */
/* Configuration inside the library: its way from and to JSON, and sizes that follow from it. */
#ifndef PAL_MODEL_CONFIG_H
#define PAL_MODEL_CONFIG_H

#include <jansson.h>

#include "format/source.h"
#include "palimpsa/model.h"

/* A kind of mixer: what config.json calls it, and what the rest of the library needs to know of it. */
typedef struct pal_config_kind {
    const char *model_type, *architecture, *block_type; /* of a model of this kind alone; the last in recall models */
    const char *name, *prefix;                          /* in a list of blocks, and of its tensors there */
    const char *rule;                                   /* the only one it runs; NULL: chosen */
    const char *described;                              /* for people */
    bool attends;                                       /* its state grows with the text */
    int taps;                                           /* fewest of its convolution */
    bool headless; /* neither heads nor a memory: written as one head of all its channels */
} pal_config_kind;
extern const pal_config_kind pal_config_kinds[PAL_MIXERS];

/* Where forgetting starts, by name: false if there is no such kind. */
bool pal_forgetting_named(pal_forgetting *out, const char *name);
const char *pal_forgetting_name(pal_forgetting kind);

/* Looks up a tensor's shape by its name in files; NULL if absent. `find` itself is NULL when only config.json is there.
 */
typedef struct pal_shapes {
    const pal_tensor *(*find)(const void *source, const char *name);
    const void *source;
} pal_shapes;

/* What a file does not state comes from tensor shapes, and only then from defaults. `path` is for messages. */
pal_status pal_config_read(pal_model_config *out, const json_t *root, const pal_shapes *shapes, const char *path,
                           pal_error *err);
/* The same of an open checkpoint, with its tensors' shapes. */
pal_status pal_config_of_source(pal_model_config *out, const pal_source *source, pal_error *err);
/* A new object. Keys of `base` (may be NULL) that mean nothing to us are kept. NULL when memory is short. */
json_t *pal_config_write(const pal_model_config *config, const json_t *base);
/* The same of a model made of another, whose configuration `base` is: what it says of other things stays, less what
 * makes a directory an official one. Official code accepts no foreign keys, so an official one gets none. */
json_t *pal_config_write_from(const pal_model_config *config, const pal_model_config *from, const json_t *base);
/* Plain Mamba2 as Hugging Face's class describes it; vocab_size there counts rows. */
json_t *pal_config_write_hugging_face(const pal_model_config *config);

/* Values with the defaults of a model of one kind, sizes 0; its only mixer, and its only block, are returned by the two
 * below. */
void pal_config_defaults(pal_model_config *config, pal_mixer mixer);
/* A mixer with the defaults of its kind, sizes 0. */
pal_mixer_spec pal_mixer_spec_of(pal_mixer kind);
/* What the layouts of a single kind of layer describe. */
static inline pal_mixer_spec *pal_config_mixer(pal_model_config *c) { return &c->block[0].mixer[0]; }
static inline const pal_mixer_spec *pal_config_mixer_of(const pal_model_config *c) { return &c->block[0].mixer[0]; }
/* 256 * ceil(trunc(hidden * ratio * 2/3) / 256) */
int pal_config_mlp_width(int hidden, double ratio);

static inline int pal_mixer_inner(const pal_mixer_spec *m) { return m->heads * m->dv; }
/* Whether it keeps a memory of fixed size, and whether that may be palimpsa's. */
static inline bool pal_mixer_has_memory(const pal_mixer_spec *m) {
    return !pal_config_kinds[m->kind].attends && !pal_config_kinds[m->kind].headless;
}
static inline bool pal_mixer_may_gate(const pal_mixer_spec *m) {
    return m->kind == PAL_MIXER_D || m->kind == PAL_MIXER_M;
}
/* The rule that a mixer runs in a layer. */
const char *pal_mixer_rule(const pal_model_config *config, const pal_mixer_spec *mixer, int layer);

/* Names in files: prefixes and the parts that differ between layouts. */
const char *pal_config_embedding_name(const pal_model_config *config);
const char *pal_config_layers_prefix(const pal_model_config *config);                             /* "model.layers." */
const char *pal_config_mixer_prefix(const pal_model_config *config, const pal_mixer_spec *mixer); /* "attn." */

/* pattern.c: models by a pattern of layers, and whether a name is one. */
bool pal_is_pattern(const char *name);
pal_status pal_model_from_pattern(pal_model_config *out, const char *name, const pal_preset_options *options,
                                  pal_error *err);

/* blocks_json.c: model_type palimpsa_blocks. */
pal_status pal_config_read_blocks(pal_model_config *out, const json_t *root, const char *path, pal_error *err);
void pal_config_write_blocks(json_t *to, const pal_model_config *config);

#endif
