/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"

#include "memory/gla/gla_simd.inc"
