/* SPDX-License-Identifier: MIT */
#include "base/simd_neon.h"
#include "kernels/matvec/matvec.h"

#include "kernels/matvec/matvec_simd.inc"
