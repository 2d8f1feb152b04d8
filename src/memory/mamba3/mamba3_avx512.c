/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"

#include "memory/mamba3/mamba3_simd.inc"
