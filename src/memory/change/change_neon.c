/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"

#include "memory/change/change_simd.inc"
