/* SPDX-License-Identifier: MIT */
/* Kimi Delta Attention (arXiv 2510.26692): Gated DeltaNet whose key channels decay each at its own rate. */
#include "memory/delta/delta.h"

static const pal_delta_rule rule = { 0 };

PAL_DELTA_RULE(kda, rule, PAL_INPUT_BETA | PAL_INPUT_GK,
               .summary = "Kimi Delta Attention: D = S diag(a), S = D + beta (v - D k) k'");
