/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "memory/attention/attention_simd.inc"
