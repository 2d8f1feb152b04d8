/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "kernels/loss/cross_entropy_simd.inc"
