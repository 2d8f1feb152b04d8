/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "kernels/rotary/rotary_simd.inc"
