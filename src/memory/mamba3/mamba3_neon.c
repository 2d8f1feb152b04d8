/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"

#include "memory/mamba3/mamba3_simd.inc"
