/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"

#include "memory/change/change_simd.inc"
