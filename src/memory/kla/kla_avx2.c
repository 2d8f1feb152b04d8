/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"

#include "memory/kla/kla_simd.inc"
