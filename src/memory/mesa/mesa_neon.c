/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "memory/mesa/mesa_simd.inc"
