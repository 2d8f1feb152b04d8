/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "memory/longhorn/longhorn_simd.inc"
