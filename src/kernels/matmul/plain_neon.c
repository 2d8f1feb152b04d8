/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"

#include "kernels/matmul/plain_simd.inc"
