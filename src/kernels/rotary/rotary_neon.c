/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "kernels/rotary/rotary_simd.inc"
