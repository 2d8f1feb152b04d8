/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "memory/attention/attention_simd.inc"
