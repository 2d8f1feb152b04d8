/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "memory/longhorn/longhorn_simd.inc"
