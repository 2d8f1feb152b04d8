/* SPDX-License-Identifier: MIT */
/* palimpsa convert --metaplastic: surgery with its choice of layers and its proof. */
#ifndef PAL_CLI_SURGERY_H
#define PAL_CLI_SURGERY_H

#include "cli.h"

typedef struct cli_surgery {
    const char *metaplastic; /* NULL: no surgery */
    const char *data, *b_scale;
    int tokens, proof_tokens, rank; /* 0: default */
    int64_t seed;
    bool exact, no_proof;
} cli_surgery;
#define CLI_SURGERY_OPTIONS(s)                                                                                      \
    { "metaplastic", OPT_TEXT, &(s).metaplastic, "LAYERS",                                                          \
      "surgery: layers to make metaplastic: top:K (longest memory windows), all, or 0,5,7" },                       \
        { "data", OPT_TEXT, &(s).data, "TEXT",                                                                      \
          "text file: print what the conversion cost; surgery: text for windows and proof" },                       \
        { "tokens", OPT_INT, &(s).tokens, "N", "tokens of TEXT to use (default: at most 4096)" },                   \
        { "proof-tokens", OPT_INT, &(s).proof_tokens, "N",                                                          \
          "surgery: tokens of TEXT for the proof (default: at most 256)" },                                         \
        { "rank", OPT_INT, &(s).rank, "R",                                                                          \
          "surgery: rank of new importance gates (default: the model's, else hidden/16)" },                         \
        { "b-scale", OPT_TEXT, &(s).b_scale, "LO:HI",                                                               \
          "surgery: initial range of b_scale, before softplus (default 0.1:1.0)" },                                 \
        { "exact", OPT_FLAG, &(s).exact, NULL, "surgery: start at the Mamba2 limit, equal to SRC up to rounding" }, \
        { "seed", OPT_LONG, &(s).seed, "N", "surgery: seed of the new weights (default 1)" }, {                     \
        "no-proof", OPT_FLAG, &(s).no_proof, NULL, "surgery: do not compare DST with SRC"                           \
    }

typedef struct cli_surgery_job {
    const char *src, *dst;
    const char *tokenizer; /* NULL: the one that lies with SRC, if any; "none": none */
    const char *dtype;     /* f32, bf16 or f16; NULL: of each tensor as it is */
    cli_common common;
} cli_surgery_job;

/* What goes with --metaplastic only; --tokens also with --data. */
static inline bool cli_surgery_stray(const cli_surgery *s) {
    return !s->metaplastic &&
           ((s->tokens && !s->data) || s->b_scale || s->proof_tokens || s->rank || s->exact || s->no_proof);
}
/* Returns an exit code. */
int cli_operate(const cli_surgery *options, const cli_surgery_job *job);

#endif
