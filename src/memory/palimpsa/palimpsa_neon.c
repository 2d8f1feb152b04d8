/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"

#include "memory/palimpsa/palimpsa_simd.inc"
