/* SPDX-License-Identifier: MIT */
/* What palimpsa_simd.inc becomes when compiled for an instruction set. */
#ifndef PAL_MEMORY_PALIMPSA_SIMD_H
#define PAL_MEMORY_PALIMPSA_SIMD_H

#include "memory/palimpsa/palimpsa.h"

pal_palimpsa_forward_fn pal_palimpsa_forward_avx2, pal_palimpsa_forward_avx512;
pal_palimpsa_backward_fn pal_palimpsa_backward_avx2, pal_palimpsa_backward_avx512;
pal_palimpsa_step_fn pal_palimpsa_step_avx2, pal_palimpsa_step_avx512;
size_t pal_palimpsa_scratch_avx2(int dk, int values, pal_memory_pass pass);
size_t pal_palimpsa_scratch_avx512(int dk, int values, pal_memory_pass pass);

#endif
