/* SPDX-License-Identifier: MIT */
#include "base/simd_avx512.h"
#include "kernels/matvec/matvec.h"

#include "kernels/matvec/matvec_simd.inc"
