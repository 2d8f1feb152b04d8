/* SPDX-License-Identifier: MIT */
/* What emscripten's C library lacks, included before the files that need it (cmake/Simd128.cmake). */
#ifndef PAL_WASM_MISSING_H
#define PAL_WASM_MISSING_H

#include <stddef.h>

void qsort_r(void *base, size_t count, size_t size, int (*compare)(const void *, const void *, void *), void *with);

#endif
