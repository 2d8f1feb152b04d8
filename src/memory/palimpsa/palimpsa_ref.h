/* SPDX-License-Identifier: MIT */
/* The plain C variants of the Palimpsa kernels. */
#ifndef PAL_MEMORY_PALIMPSA_REF_H
#define PAL_MEMORY_PALIMPSA_REF_H

#include "memory/palimpsa/palimpsa.h"

pal_palimpsa_forward_fn pal_palimpsa_forward_ref;
pal_palimpsa_backward_fn pal_palimpsa_backward_ref;
pal_palimpsa_step_fn pal_palimpsa_step_ref;
pal_palimpsa_bound_fn pal_palimpsa_bound_ref;
size_t pal_palimpsa_scratch_ref(int dk, int values, pal_memory_pass pass);

#endif
