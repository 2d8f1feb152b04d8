/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "memory/mesa/mesa_simd.inc"
