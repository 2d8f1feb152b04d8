/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"

#include "kernels/matmul/plain_simd.inc"
