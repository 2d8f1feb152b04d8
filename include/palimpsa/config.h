/* SPDX-License-Identifier: MIT */
/* What a model is: its kind and its sizes. docs/explanation/models.md explains them. */
#ifndef PALIMPSA_CONFIG_H
#define PALIMPSA_CONFIG_H

#include <stdbool.h>

enum { PAL_MAX_LAYERS = 1024 };

/* What stands in a block between the residual stream's norm and its sum. */
typedef enum pal_mixer { PAL_MIXER_D, PAL_MIXER_M, PAL_MIXER_GDN, PAL_MIXER_ATTENTION, PAL_MIXERS } pal_mixer;

/* Forgetting rates that an MQAR model starts from. */
typedef enum pal_forgetting { PAL_FORGET_SMALL, PAL_FORGET_NORMAL, PAL_FORGET_VERY_SMALL } pal_forgetting;

/* Everything that config.json says, in one vocabulary for all kinds. */
typedef struct pal_model_config {
    pal_mixer mixer;
    bool mqar;     /* blocks without MLP, final LayerNorm, labels not shifted */
    bool official; /* Mamba2 in the layout of state-spaces */
    int layers;
    int hidden;      /* E, width of the residual stream */
    int vocab;       /* tokens that exist */
    int vocab_rows;  /* rows of the embedding, >= vocab; the padding takes part in the softmax but is never sampled */
    int heads;       /* of the memory and its output */
    int key_heads;   /* M: groups; attention: key-value heads; else = heads */
    int dk, dv;      /* key and value channels per head */
    int rank;        /* of the importance gate's projection; 0: attention, GDN and official Mamba2 have none */
    int conv;        /* taps of the short convolutions; 0: none */
    int mlp;         /* width of the gated MLP; 0: none */
    int norm_groups; /* M: groups of the gated norm */
    bool tied;       /* the head is the embedding */
    bool proj_bias, conv_bias; /* M only */
    bool rescale_residual;     /* M: out_proj starts smaller in deeper models */
    bool recall_init;          /* a language model whose weights start as an MQAR model's; not in config.json */
    bool finetuning;           /* new importance gates start at b_scale U(0.1, 1) instead of 1 */
    double norm_eps;
    double rope_theta;
    double init_range;      /* standard deviation of initial matrices */
    double dt_low, dt_high; /* M: time_step_limit; dt_high may be infinite */
    pal_forgetting forgetting;
    char rule[16]; /* memory rule of the metaplastic layers; "palimpsa" unless the D backbone was given another */
    double mesa_tolerance; /* rule mesa: 0 solves its systems exactly, > 0 by conjugate gradient to this residual */
    bool metaplasticity;   /* every layer, unless layers are listed */
    bool listed;           /* metaplastic[] was given as metaplastic_layers and wins over metaplasticity */
    bool metaplastic[PAL_MAX_LAYERS];
} pal_model_config;

#endif
