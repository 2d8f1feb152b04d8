/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"

#include "memory/delta/delta_simd.inc"
