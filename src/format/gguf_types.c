/* SPDX-License-Identifier: MIT */
#include "format/gguf_types.h"

#include <stddef.h>

#include "base/context.h"

const char *pal_gguf_type_name(uint64_t id) {
    static const char *const names[] = { "F32",     "F16",    "Q4_0",    "Q4_1",  NULL,     NULL,    "Q5_0",  "Q5_1",
                                         "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
                                         "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
                                         "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16" };
    return id < PAL_COUNT(names) ? names[id] : NULL;
}
