/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"

#include "memory/palimpsa/palimpsa_simd.inc"
