/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"

#include "memory/linear/tile_simd.inc"
