/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"

#include "kernels/matmul/plain_simd.inc"
