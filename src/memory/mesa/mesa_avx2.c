/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "memory/mesa/mesa_simd.inc"
