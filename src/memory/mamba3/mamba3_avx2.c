/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"

#include "memory/mamba3/mamba3_simd.inc"
