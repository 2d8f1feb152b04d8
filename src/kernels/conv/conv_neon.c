/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "kernels/conv/conv_simd.inc"
