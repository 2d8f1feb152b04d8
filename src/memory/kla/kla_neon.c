/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"

#include "memory/kla/kla_simd.inc"
