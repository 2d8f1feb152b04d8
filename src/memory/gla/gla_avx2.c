/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"

#include "memory/gla/gla_simd.inc"
