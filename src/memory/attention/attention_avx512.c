/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "memory/attention/attention_simd.inc"
