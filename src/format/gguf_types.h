/* SPDX-License-Identifier: MIT */
/* Names of the number types that GGUF files can hold, to speak of those that are not read. Those that are: blocks.h. */
#ifndef PAL_FORMAT_GGUF_TYPES_H
#define PAL_FORMAT_GGUF_TYPES_H

#include <stdint.h>

const char *pal_gguf_type_name(uint64_t id); /* NULL: no such number */

#endif
