/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "kernels/activations/activations_simd.inc"
