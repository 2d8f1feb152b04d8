/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "kernels/norms/norms_simd.inc"
