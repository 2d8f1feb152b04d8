/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "kernels/activations/activations_simd.inc"
