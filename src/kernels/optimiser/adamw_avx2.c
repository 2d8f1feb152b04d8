/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "kernels/optimiser/adamw_simd.inc"
