/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "kernels/optimiser/adamw_simd.inc"
