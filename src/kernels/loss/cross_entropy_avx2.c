/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "kernels/loss/cross_entropy_simd.inc"
