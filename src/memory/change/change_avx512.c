/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"

#include "memory/change/change_simd.inc"
