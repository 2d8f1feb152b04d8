/* SPDX-License-Identifier: MIT */
/* How a rule's backward pass is cut into items. The heads (or blocks of values) that read one key head all add to the
 * same dq and dk. An item is therefore (sequence, key head, slot): a slot works off its share of those units one after
 * the other, and where there are several slots each writes its own partial sum, added up afterwards in the order
 * of the slots. How many there are depends on the problem alone: one where sequences and key heads give enough items.
 */
#ifndef PAL_MEMORY_ITEMS_H
#define PAL_MEMORY_ITEMS_H

#include "memory/rule.h"

/* Slots for `units` pieces of work that share a key head. */
static inline int pal_items_slots(const pal_memory_shape *s, int units) {
    const int enough = 8; /* items that keep the processors busy; each further slot costs a copy of dq and dk */
    const int pairs = s->sequences < enough ? s->sequences * (s->key_heads < enough ? s->key_heads : enough) : enough;
    const int slots = (enough + pairs - 1) / pairs;
    return slots < units ? slots : units;
}

/* First unit of a slot; slot + 1 gives the end. */
static inline int pal_items_unit(int units, int slots, int slot) { return (int)((long long)units * slot / slots); }

/* What the partial sums of one gradient of the key heads take, in whole cache lines: nothing with one slot. */
static inline size_t pal_items_partial_floats(const pal_memory_shape *s, int slots, int width) {
    return slots > 1 ? ((size_t)slots * (size_t)s->tokens * (size_t)s->key_heads * (size_t)width + 15) / 16 * 16 : 0;
}

/* Pieces of `length` tokens: where sequence n starts counting when every sequence has pieces of its own. Sequence n
 * owns pieces first(n) .. first(n+1)-1, of which the last may be unused; no scan over the sequences is needed. */
static inline size_t pal_items_first(const pal_memory_shape *s, int length, int n) {
    return (size_t)(s->cu_seqlens[n] / length) + (size_t)n;
}
static inline size_t pal_items_pieces(const pal_memory_shape *s, int length) {
    return (size_t)(s->tokens / length) + (size_t)s->sequences;
}
/* The sequence that owns a piece. */
int pal_items_sequence(const pal_memory_shape *s, int length, size_t piece);

/* sum[t][c] = part 0 + part 1 + ..., each rows x channels and contiguous. */
void pal_items_sum(const pal_context *cx, const float *parts, int slots, int rows, int channels, pal_view sum);

#endif
