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

void pal_change_plain_ahead_ref(const pal_change_token *t, const float *S, size_t ld, pal_memory_change *c) {
    *c = (pal_memory_change){ .low = NAN, .high = NAN };
    for (size_t j = 0; j < (size_t)t->dk; j++)
        for (size_t i = 0; i < (size_t)t->dv; i++) {
            const double s = (double)S[j * ld + i], moved = (double)t->lost * s + (double)t->v[i] * (double)t->k[j];
            c->change += moved * moved;
            c->size += (s + moved) * (s + moved);
        }
}

void pal_change_paired_ahead_ref(const pal_change_token *t, const float *memory, size_t row, pal_memory_change *c) {
    const float a = 1 + t->lost;
    *c = (pal_memory_change){ .low = INFINITY, .high = 0 };
    for (size_t j = 0; j < (size_t)t->dk; j++)
        for (size_t i = 0; i < (size_t)t->dv; i++) {
            const float *M = memory + j * row + i / PAL_CHANGE_GROUP * 2 * PAL_CHANGE_GROUP + i % PAL_CHANGE_GROUP;
            const float I = M[PAL_CHANGE_GROUP], next = a * I + t->fresh + t->b[i] * (t->k[j] * t->k[j]);
            const double mu = ((double)a * (double)M[0] + (double)t->v[i] * (double)t->k[j]) / (double)next;
            const double moved = mu - (double)M[0] / (double)I;
            c->change += moved * moved;
            c->size += mu * mu;
            c->low = next < c->low ? next : c->low;
            c->high = next > c->high ? next : c->high;
        }
}
