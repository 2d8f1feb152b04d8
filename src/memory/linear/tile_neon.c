/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"

#include "memory/linear/tile_simd.inc"
