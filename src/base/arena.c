/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <stdint.h>

#include "base/alloc.h"

void *pal_take(pal_arena *arena, size_t n, size_t size) {
    const size_t at = (arena->used + 63) & ~(size_t)63;
    if (arena->bad || at < arena->used || (size && n > (SIZE_MAX - at) / size)) {
        arena->bad = true;
        return NULL;
    }
    arena->used = at + n * size;
    if (!arena->base) return NULL;
    if (arena->used > arena->capacity) {
        arena->bad = true;
        return NULL;
    }
    return arena->base + at;
}

pal_status pal_arena_reserve(pal_arena *arena, const char *what, pal_error *err) {
    if (arena->bad) return pal_fail(err, PAL_E_MEMORY, "%s: the sizes overflow what this machine can address", what);
    void *block;
    const pal_status st = pal_alloc_named(&block, arena->used, 1, what, err);
    if (st) return st;
    *arena = (pal_arena){ .base = block, .capacity = arena->used };
    return PAL_OK;
}

void pal_arena_release(pal_arena *arena) {
    pal_free(arena->base);
    *arena = (pal_arena){ 0 };
}
