/* SPDX-License-Identifier: MIT */
/* Measure, then place: a layout function takes its blocks from an arena twice. Without a base the arena only adds up,
 * with one it hands out addresses; size and pointers cannot drift apart. */
#ifndef PAL_BASE_ARENA_H
#define PAL_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/status.h"

typedef struct pal_arena {
    char *base; /* NULL while measuring */
    size_t capacity, used;
    bool bad; /* a size overflowed or did not fit; every later take fails too */
} pal_arena;

/* n elements of `size` bytes on their own cache line. NULL while measuring or when bad. */
void *pal_take(pal_arena *arena, size_t n, size_t size);
/* After measuring: allocates what was measured and rewinds. */
pal_status pal_arena_reserve(pal_arena *arena, const char *what, pal_error *err);
void pal_arena_release(pal_arena *arena);

#endif
