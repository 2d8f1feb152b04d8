/* SPDX-License-Identifier: MIT */
/* Published families of hybrid models. A family is a translator at the edge of files: its config.json becomes one that
 * lists blocks (model_type palimpsa_blocks) with the original under `origin`, and a table says how its tensors are
 * called and laid out in Hugging Face's directories and in GGUF files. What runs a model never learns of families.
 *
 * The metadata of GGUF files are JSON objects here, without the architecture before the keys. */
#ifndef PAL_FORMAT_FAMILY_H
#define PAL_FORMAT_FAMILY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "palimpsa/status.h"

/* Which blocks hold a tensor. */
enum {
    PAL_ON_TOP = 1,    /* none: its name stands alone */
    PAL_ON_MODEL = 2,  /* none: its name follows the prefix */
    PAL_ON_LAYER = 4,  /* all */
    PAL_ON_MEMORY = 8, /* those with a mixer that does not attend */
    PAL_ON_ATTENTION = 16,
    PAL_ON_MLP = 32,
    PAL_MAY_LACK = 64 /* whether it is there depends on the configuration */
};

/* Which rows of a tensor of theirs is one of ours. */
typedef enum pal_tensor_part {
    PAL_WHOLE,
    PAL_FIRST_HALF,
    PAL_SECOND_HALF,
    PAL_QUERIES,
    PAL_KEYS,
    PAL_VALUES
} pal_tensor_part;

/* What their values are. */
typedef enum pal_tensor_op { PAL_AS_IS, PAL_LESS_ONE /* ours less 1 */, PAL_NEG_EXP /* -exp of ours */ } pal_tensor_op;

/* The extents in GGUF, slowest first, of ours. */
typedef enum pal_gguf_form {
    PAL_FORM_SAME,
    PAL_FORM_TAPS /* [C,1,W] is [C,W] */,
    PAL_FORM_COLUMN /* [H] is [H,1] */,
    PAL_FORM_GROUPS /* [C] is [G,C/G] */
} pal_gguf_form;

/* The order of value heads in GGUF: theirs is head 0 of every group, head 1 of every group, ... */
typedef enum pal_tiling { PAL_UNTILED, PAL_TILED_ROWS, PAL_TILED_COLUMNS } pal_tiling;

typedef struct pal_family_tensor {
    const char *ours, *hf, *gguf; /* of a layer: without what names the layer; hf, gguf: NULL where it has none */
    unsigned on;
    pal_tensor_part part; /* of the tensor of Hugging Face */
    pal_tensor_part gguf_part;
    pal_tensor_op hf_op, gguf_op;
    pal_gguf_form form;
    pal_tiling tiling;
} pal_family_tensor;

/* Reads one configuration. The first failure stays; reads after it are harmless. */
typedef struct pal_family_reader {
    const char *path;             /* of the file that is spoken of */
    const char *where;            /* before a key in a sentence: "text_config.", "qwen35." or "" */
    const json_t *config, *outer; /* outer: where `config` may stand inside */
    json_t *defaults; /* what the class of transformers 5.23.0 takes for a key that is absent; NULL: nothing */
    pal_error *err;
    pal_status st;
} pal_family_reader;

typedef struct pal_family {
    const char *model_types[3], *architecture; /* in config.json; the first type is what is written */
    const char *gguf;                          /* general.architecture; NULL: no such files */
    const char *prefixes[3];                   /* of Hugging Face's names; the first is what is written */
    const char *ignored[3];                    /* beginnings of names outside the text model */
    const pal_family_tensor *tensors;          /* ends with ours NULL */
    const char *inside;                        /* the key under which the configuration may stand, or NULL */
    const char *defaults, *fixed; /* JSON objects: absent keys; keys that must have this value where they are */
    bool folds;                   /* GGUF files hold multipliers inside weights */
    /* A configuration of theirs as one of blocks: what pal_family_begin made, filled in. */
    void (*read)(pal_family_reader *r, json_t *to);
    /* The metadata of a GGUF file as a configuration of theirs; head: it holds a head besides the embedding. */
    void (*from_gguf)(pal_family_reader *r, json_t *to, bool head);
    /* A configuration of theirs as metadata. */
    void (*to_gguf)(pal_family_reader *r, json_t *to);
} pal_family;

#define PAL_FAMILIES(X)          X(granite_hybrid) X(bamba) X(nemotron_h) X(qwen3_5) X(falcon_h1) X(lfm2)
#define PAL_FAMILY_DECLARE(name) extern const pal_family pal_family_##name;
PAL_FAMILIES(PAL_FAMILY_DECLARE)

const pal_family *pal_family_of(const json_t *config); /* by model_type; NULL: none of them */
const pal_family *pal_family_of_gguf(const char *architecture);
/* The configuration of blocks of one of theirs, with it as `origin`. */
pal_status pal_family_read(json_t **out, const pal_family *family, const json_t *config, const char *path,
                           pal_error *err);
/* config.json of theirs from the metadata of a GGUF file, and back. */
pal_status pal_family_from_gguf(json_t **out, const pal_family *family, const json_t *pairs, int64_t vocab, bool head,
                                const char *path, pal_error *err);
pal_status pal_family_to_gguf(json_t **out, const pal_family *family, const json_t *config, const char *path,
                              pal_error *err);
/* The configuration of theirs that holds the text model alone. */
json_t *pal_family_text_config(const pal_family *family, const json_t *config);

/* For families. Sizes are at least 1; a factor is not 0. Without a value and a default they refuse. */
void pal_family_refuse(pal_family_reader *r, const char *key, const char *expected);
const json_t *pal_family_value(const pal_family_reader *r, const char *key); /* NULL: absent, or null */
int64_t pal_family_size(pal_family_reader *r, const char *key);
int64_t pal_family_size_or(pal_family_reader *r, const char *key, int64_t fallback);
double pal_family_real(pal_family_reader *r, const char *key);
double pal_family_factor(pal_family_reader *r, const char *key);
bool pal_family_flag(pal_family_reader *r, const char *key);
const char *pal_family_text(pal_family_reader *r, const char *key); /* "" where there is none */
/* An element of a list, or the number that stands for all of them; true is 1. Absent elements are refused. */
int64_t pal_family_element(pal_family_reader *r, const char *key, int64_t index);
/* Rotary positions: their base, and the part of a head that turns. */
void pal_family_rotary(pal_family_reader *r, double *theta, double *part);

/* What all have in common: sizes, norms' epsilon (under this key), vocabulary, tying. */
void pal_family_begin(pal_family_reader *r, json_t *to, const char *eps, bool tied);
/* A mixer with the keys that all kinds have. */
json_t *pal_family_mixer(const char *kind, int64_t heads, int64_t key_heads, int64_t state, int64_t width);
/* Mamba2 of these sizes, with the limits of time steps that the configuration states. */
json_t *pal_family_mamba2(pal_family_reader *r, int64_t heads, int64_t groups, int64_t state, int64_t width,
                          const char *taps, const char *conv_bias);
json_t *pal_family_attention(int64_t heads, int64_t key_heads, int64_t width, int64_t rotary);
/* A block, of one or two mixers or none, with an MLP ("swiglu", "relu2") or none (NULL). */
json_t *pal_family_block(json_t *first, json_t *second, const char *form, int64_t width);
void pal_family_set(json_t *to, const char *key, double factor); /* unless it is 1 */
void pal_family_copy(json_t *to, const char *key, json_t *value);

/* Mamba2's tensors are called the same in most families. */
/* clang-format off */
#define PAL_MAMBA2_TENSORS(hf)                                                                                         \
    { "mamba.in_proj.weight", hf "in_proj.weight", "ssm_in.weight", PAL_ON_MEMORY },                                   \
    { "mamba.conv1d.weight", hf "conv1d.weight", "ssm_conv1d.weight", PAL_ON_MEMORY, .form = PAL_FORM_TAPS },          \
    { "mamba.conv1d.bias", hf "conv1d.bias", "ssm_conv1d.bias", PAL_ON_MEMORY | PAL_MAY_LACK },                        \
    { "mamba.dt_bias", hf "dt_bias", "ssm_dt.bias", PAL_ON_MEMORY },                                                   \
    { "mamba.A_log", hf "A_log", "ssm_a", PAL_ON_MEMORY, .gguf_op = PAL_NEG_EXP, .form = PAL_FORM_COLUMN },            \
    { "mamba.D", hf "D", "ssm_d", PAL_ON_MEMORY, .form = PAL_FORM_COLUMN },                                            \
    { "mamba.norm.weight", hf "norm.weight", "ssm_norm.weight", PAL_ON_MEMORY | PAL_MAY_LACK, \
      .form = PAL_FORM_GROUPS },\
    { "mamba.out_proj.weight", hf "out_proj.weight", "ssm_out.weight", PAL_ON_MEMORY }
/* clang-format on */

/* The text of a JSON object that is written as one. */
#define PAL_JSON(...) #__VA_ARGS__

#endif
