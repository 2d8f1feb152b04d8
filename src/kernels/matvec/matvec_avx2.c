/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "kernels/matvec/matvec.h"

#include "kernels/matvec/matvec_simd.inc"
