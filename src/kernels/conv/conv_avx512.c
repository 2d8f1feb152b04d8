/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "kernels/conv/conv_simd.inc"
