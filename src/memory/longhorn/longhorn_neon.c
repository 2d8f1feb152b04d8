/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "memory/longhorn/longhorn_simd.inc"
