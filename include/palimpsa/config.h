/* SPDX-License-Identifier: MIT */
/* What a model is: a list of layers, each of one of a few kinds of blocks. The models page of the documentation
 * explains the kinds. Numbers and factors that are 0 mean "the usual one" where it says so. */
#ifndef PALIMPSA_CONFIG_H
#define PALIMPSA_CONFIG_H

#include <stdbool.h>

enum { PAL_MAX_LAYERS = 1024, PAL_MAX_BLOCKS = 16, PAL_BLOCK_MIXERS = 2 };

/* What stands in a block between the residual stream's norm and its sum. */
typedef enum pal_mixer {
    PAL_MIXER_D,         /* Palimpsa-D: the backbone that every memory rule runs on */
    PAL_MIXER_M,         /* Palimpsa-M, and Mamba2 */
    PAL_MIXER_GDN,       /* Gated DeltaNet */
    PAL_MIXER_ATTENTION, /* softmax attention; its memory grows with the text */
    PAL_MIXER_CONV,      /* a gated short convolution, without a memory */
    PAL_MIXERS
} pal_mixer;

/* What stands between the memory's answer y and the output projection; z is the gate. */
typedef enum pal_mixer_norm {
    PAL_NORM_USUAL,        /* of the kind: D and GDN norm each head and then gate, M norms what is gated */
    PAL_NORM_OF_GATED,     /* M: norm(y silu(z)) */
    PAL_NORM_THEN_GATE,    /* M: norm(y) silu(z) */
    PAL_GATE_WITHOUT_NORM, /* M: y silu(z) */
    PAL_MIXER_NORMS
} pal_mixer_norm;

typedef enum pal_mlp_form {
    PAL_MLP_NONE,
    PAL_MLP_SWIGLU, /* down(silu(gate x) * up x) */
    PAL_MLP_RELU2,  /* down(relu(up x)^2), without a gate */
    PAL_MLP_FORMS
} pal_mlp_form;

/* One mixer with its own shape. */
typedef struct pal_mixer_spec {
    pal_mixer kind;
    char rule[16];         /* D, M: the memory rule; "palimpsa" is it in metaplastic layers, and gla in the others */
    double mesa_tolerance; /* rule mesa: 0 solves its systems exactly, > 0 by conjugate gradient to this residual */
    bool softplus_rate;    /* rule mamba3: rates are softplus(x) instead of 1 + x, below zero 1/(1 - x) */
    int heads;             /* of values and of the output; convolution: 1 */
    int key_heads;         /* of keys; M: groups; attention: key-value heads; else = heads */
    int dk, dv;            /* key and value channels per head; convolution: its channels */
    int conv;              /* taps of the short convolutions; attention: 0 */
    int rank;              /* of the importance gate's projection; 0: no layer of this block can have one */
    bool proj_bias, conv_bias; /* M only */
    bool tiled; /* head h reads key head h % key_heads instead of h * key_heads / heads; inference only */
    pal_mixer_norm norm;
    int norm_groups;        /* M: groups of the norm */
    double dt_low, dt_high; /* M: limits of the time step; dt_high may be infinite */
    double scale;           /* of the query; 0: 1/sqrt(dk), M: 1 */
    int rotary;             /* attention: leading channels of a head that turn with the position; 0: none */
    bool qk_norm;           /* attention: RMSNorm of each head of queries and keys, before they turn */
    bool out_gate;      /* attention: the query projection makes [query | gate] per head; y sig(gate) is projected */
    double in_scale[5]; /* M: factors of z, x, B, C and dt after the input projection; 0 means 1 */
    double out_scale;   /* factor of what enters the output projection; 0 means 1 */
} pal_mixer_spec;

/* One kind of block: norm, mixers side by side on the same normed input, and with an MLP its norm and the MLP. */
typedef struct pal_block_spec {
    int mixers;                             /* 0: the MLP alone, on the first norm */
    pal_mixer_spec mixer[PAL_BLOCK_MIXERS]; /* with two, the first has a memory of fixed size and the second attends */
    pal_mlp_form form;
    int mlp;                       /* width */
    double gate_scale, down_scale; /* SwiGLU: silu(gate_scale g) u; factor of what enters down; 0 means 1 */
} pal_block_spec;

/* Forgetting rates that an MQAR model starts from. */
typedef enum pal_forgetting { PAL_FORGET_SMALL, PAL_FORGET_NORMAL, PAL_FORGET_VERY_SMALL } pal_forgetting;

typedef struct pal_model_config {
    /* What is computed. */
    int layers;
    int hidden;     /* E, width of the residual stream */
    int vocab;      /* tokens that exist */
    int vocab_rows; /* rows of the embedding, >= vocab; the padding takes part in the softmax but is never sampled */
    int blocks;
    pal_block_spec block[PAL_MAX_BLOCKS];
    unsigned char layer_block[PAL_MAX_LAYERS]; /* of each layer, which block it is */
    bool mqar;                                 /* final LayerNorm; labels are not shifted */
    bool tied;                                 /* the head is the embedding */
    double norm_eps;
    double rope_theta;
    double embedding_scale, logit_scale; /* x = scale * embedding; logits = scale * (head x); 0 means 1 */
    bool metaplasticity;                 /* every layer of rule palimpsa, unless layers are listed */
    bool listed;                         /* metaplastic[] decides */
    bool metaplastic[PAL_MAX_LAYERS];

    /* How files say it. */
    bool official; /* Mamba2 in the layout of state-spaces */
    bool hybrid;   /* config.json lists blocks (palimpsa_blocks), which every model can be said in; the layouts of a
                    * single kind of layer need blocks == 1 */

    /* How weights start. */
    bool rescale_residual; /* M: out_proj starts smaller in deeper models */
    bool recall_init;      /* a language model whose weights start as an MQAR model's; not in config.json */
    bool finetuning;       /* new importance gates start at b_scale U(0.1, 1) instead of 1 */
    double init_range;     /* standard deviation of initial matrices */
    pal_forgetting forgetting;
} pal_model_config;

#endif
