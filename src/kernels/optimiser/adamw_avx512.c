/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "kernels/optimiser/adamw_simd.inc"
