/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"

#include "memory/linear/tile_simd.inc"
