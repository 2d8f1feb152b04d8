/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"

#include "memory/delta/delta_simd.inc"
