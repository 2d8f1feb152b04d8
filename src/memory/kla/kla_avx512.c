/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"

#include "memory/kla/kla_simd.inc"
