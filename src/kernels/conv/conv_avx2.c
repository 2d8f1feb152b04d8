/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "kernels/conv/conv_simd.inc"
