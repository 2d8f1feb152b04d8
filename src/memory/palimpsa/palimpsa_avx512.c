/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"

#include "memory/palimpsa/palimpsa_simd.inc"
