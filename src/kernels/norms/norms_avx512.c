/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "kernels/norms/norms_simd.inc"
