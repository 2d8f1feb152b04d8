/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"

#include "memory/gla/gla_simd.inc"
