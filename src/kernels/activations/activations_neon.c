/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "kernels/activations/activations_simd.inc"
