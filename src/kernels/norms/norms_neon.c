/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "kernels/norms/norms_simd.inc"
