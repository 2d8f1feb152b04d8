/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "kernels/rotary/rotary_simd.inc"
