/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "memory/change/change.h"

void pal_change_plain_ref(const float *before, const float *after, size_t n, pal_memory_change *c) {
    *c = (pal_memory_change){ .low = NAN, .high = NAN };
    for (size_t i = 0; i < n; i++) {
        const double x = (double)after[i], moved = x - (double)before[i];
        c->change += moved * moved;
        c->size += x * x;
    }
}

void pal_change_paired_ref(const float *before, const float *after, size_t row, int dk, int dv, pal_memory_change *c) {
    *c = (pal_memory_change){ .low = after[PAL_CHANGE_GROUP], .high = after[PAL_CHANGE_GROUP] };
    for (size_t j = 0; j < (size_t)dk; j++)
        for (size_t i = 0; i < (size_t)dv; i++) {
            const size_t at = j * row + i / PAL_CHANGE_GROUP * 2 * PAL_CHANGE_GROUP + i % PAL_CHANGE_GROUP;
            const float I = after[at + PAL_CHANGE_GROUP];
            const double mu = (double)after[at] / (double)I;
            const double moved = mu - (double)before[at] / (double)before[at + PAL_CHANGE_GROUP];
            c->change += moved * moved;
            c->size += mu * mu;
            c->low = I < c->low ? I : c->low;
            c->high = I > c->high ? I : c->high;
        }
}
