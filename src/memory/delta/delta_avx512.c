/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"

#include "memory/delta/delta_simd.inc"
