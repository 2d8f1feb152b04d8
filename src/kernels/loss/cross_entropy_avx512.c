/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "kernels/loss/cross_entropy_simd.inc"
