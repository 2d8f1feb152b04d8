/* SPDX-License-Identifier: MIT */
/* The mixers. Palimpsa-D, Gated DeltaNet and Palimpsa-M are one program with different columns: project, convolve,
 * (normalise keys,) gate, remember, skip, norm and gate the output, project back. A pal_mixer_plan says which columns
 * and which gates; the memory rule is whatever the configuration names. Attention (attention.c) and the gated short
 * convolution (convolution.c) have programs of their own. */
#ifndef PAL_LAYERS_MIXER_H
#define PAL_LAYERS_MIXER_H

#include "base/arena.h"
#include "kernels/activations/activations.h"
#include "kernels/norms/norms.h"
#include "layers/dense.h"
#include "layers/layer.h"
#include "layers/pass.h"
#include "memory/rule.h"
#include "palimpsa/config.h"

typedef enum pal_mixer_program { PAL_MIXER_GATED, PAL_MIXER_ATTENDING, PAL_MIXER_CONVOLVING } pal_mixer_program;

/* A gate that some rules read besides those of Palimpsa-D: f(Lin x + bias), one or more numbers a token and head. */
typedef struct pal_mixer_extra {
    int input; /* bit number of PAL_INPUT_* */
    int at, width;
    pal_activation kind;
    pal_weight_id bias;  /* PAL_W_COUNT: none */
    float factor, least; /* the rule reads least + factor f */
    bool of_key;         /* and that times the key; a trapezoid's: times its head's time step */
} pal_mixer_extra;
enum { PAL_MIXER_EXTRAS = 3 };               /* most that one rule reads */
enum { PAL_TRAPEZOID_G, PAL_TRAPEZOID_LAG }; /* the first extras where gates are rates times a time step */

typedef struct pal_mixer_plan {
    pal_mixer_program program;
    const pal_memory_rule *rule; /* NULL: a convolution has none */
    int hidden, heads, key_heads, dk, dv, rank, taps;
    int keys, values; /* channels of k and of v; attention's q has heads*dk */
    float scale, eps, mesa_tolerance;
    float dt_low, dt_high; /* limits of the time step */
    float in_scale[5];     /* M: factors of z, x, B, C, dt */
    bool scales_in;        /* one of them is not 1 */
    float out_scale;       /* of what enters `out` */
    bool tiled;            /* head h reads key head h % key_heads */
    /* Columns of the joined projection p; -1: none. */
    int columns, conv_at, z, dt, bs, rank_at;
    /* Columns of what the memory reads, in the convolution's output c (attention: in p). */
    int channels, q, k, v;
    pal_dense in, out, b;
    /* Attention: with norms or a gate queries have a separate product, (T heads, query_width) with the gate of each
     * head after its query. */
    pal_dense query;
    int query_width; /* 0: q is a column of p */
    int rotary;      /* leading channels of a head that turn */
    bool qk_norm, out_gate;
    bool l2;
    pal_l2_kind l2_kind;
    bool gate_v;   /* the memory gets v* = s v */
    bool gate_b;   /* and b = sig(pre) softplus(b_scale) s */
    bool dt_gates; /* s is dt (M), else bs (D) */
    bool uses_dt, uses_g, uses_beta, skip;
    int dt_width;   /* time steps of a token: one a head, or one a key channel where the rule reads gk */
    bool compares;  /* the rule reads p, which is made of the key */
    bool trapezoid; /* the rule reads lag: a time step's writing is divided between beta and lag */
    int extras;
    pal_mixer_extra extra[PAL_MIXER_EXTRAS];
    pal_norm_gate norm;
    bool normed;      /* false: gated without a norm */
    bool norm_shared; /* one weight for every group */
    int norm_groups;
} pal_mixer_plan;

/* `layer` has the weights of this mixer and its rule. */
void pal_mixer_plan_make(pal_mixer_plan *plan, const pal_model_config *config, const pal_mixer_spec *spec,
                         const pal_layer *layer);

/* Kept from forward to backward, one set a layer (or one for all, when layers are recomputed or nothing is kept). */
typedef struct pal_mixer_kept {
    float *p;                       /* (T, columns) */
    float *c;                       /* (T, channels) after convolution and SiLU; of a short convolution: before it */
    float *query;                   /* (T heads, query_width) queries and gates as projected */
    float *qn, *kn;                 /* (T, heads dk), (T, keys) as attention reads them, where they are not in p */
    float *gate;                    /* (T, values) attention's, after the sigmoid */
    float *dt, *g, *bs;             /* (T, dt_width), the same, (T, H) */
    float *pre;                     /* (T, values) of the importance gate */
    float *extra[PAL_MIXER_EXTRAS]; /* (T, width) f */
    float *y;                       /* (T, values) */
    float *saved;                   /* of the memory rule */
} pal_mixer_kept;

/* Used by one layer after another. */
typedef struct pal_mixer_work {
    float *n;                                  /* (T, 2 keys) normalised q and k */
    float *v, *b, *o;                          /* (T, values) gated value and gate; output */
    float *A, *Ip, *c, *lam;                   /* (H) (H) (H) (H dk) from A_log, Ip_log, b_scale, lam_raw */
    float *share, *keep, *drift;               /* (H) (H dk dv) (H dk dv) from p_scale, keep_raw, drift_raw */
    float *compared, *extra[PAL_MIXER_EXTRAS]; /* (T, H dk) p and (T, width) gates as the memory reads them */
    float *beta;                               /* (T, H) of a trapezoid: what lag leaves of the time step */
    float *dA, *dIp, *dc, *dlam;               /* backward from here on */
    float *dshare, *dkeep, *ddrift, *dcompared, *dextra[PAL_MIXER_EXTRAS];
    float *zeros, *ones;       /* rows of (values) and (H) */
    float *d_o, *dv, *db;      /* (T, values) */
    float *dn;                 /* (T, 2 keys) */
    float *dconv;              /* (T, channels) */
    float *dquery, *dqn, *dkn; /* of attention's query, qn, kn */
    float *ddt, *dg, *dbs;     /* (T, dt_width), the same, (T, H) */
    float *dp;                 /* (T, columns) */
} pal_mixer_work;

void pal_mixer_keep(pal_mixer_kept *kept, const pal_mixer_plan *plan, int tokens, int sequences, bool training,
                    pal_arena *arena);
/* The memory's parameters A, Ip, c and lam, which windows and observers read after the whole block has run; then the
 * rest, which an MLP may overwrite. */
void pal_mixer_take_parameters(pal_mixer_work *work, const pal_mixer_plan *plan, pal_arena *arena);
void pal_mixer_take(pal_mixer_work *work, const pal_mixer_plan *plan, int tokens, bool training, pal_arena *arena);
/* Of the largest kernel, for up to this many tokens and sequences. */
size_t pal_mixer_scratch_bytes(const pal_mixer_plan *plan, const pal_context *cx, int tokens, int sequences,
                               bool training, const int *worst_cu_seqlens);
size_t pal_mixer_window_floats(const pal_mixer_plan *plan);
pal_memory_shape pal_mixer_shape(const pal_mixer_plan *plan, int tokens, int sequences, const int *cu_seqlens,
                                 int context);
/* Memory parameters for state import, export and reset: fills work->A, Ip, lam. */
void pal_mixer_parameters(const pal_context *cx, const pal_mixer_plan *plan, const pal_layer *layer,
                          pal_mixer_work *work);

/* h += mixer(x); x (T, E) is the normed input. h NULL: only what backward reads. */
void pal_mixer_forward(const pal_pass *pass, const pal_mixer_plan *plan, const pal_layer *layer, pal_mixer_kept *kept,
                       pal_mixer_work *work, const float *x, float *h);
/* dx = or += from dh, the gradient of the mixer's output. Weights are added to. */
void pal_mixer_backward(const pal_pass *pass, const pal_mixer_plan *plan, const pal_layer *layer, pal_mixer_kept *kept,
                        pal_mixer_work *work, const float *x, const float *dh, pal_accumulate acc, float *dx);

/* The memory run of this pass with its inputs. */
pal_memory_run pal_mixer_run(const pal_pass *pass, const pal_mixer_plan *plan, const pal_mixer_kept *kept,
                             const pal_mixer_work *work);
void pal_mixer_remember(const pal_pass *pass, const pal_mixer_plan *plan, const pal_memory_run *run);

#endif
