/* SPDX-License-Identifier: MIT */
#include "base/mersenne.h"

#include <math.h>
#include <stdbool.h>

#include "base/alloc.h"

enum { N = 624, M = 397 };

void pal_mersenne_seed_plain(pal_mersenne *m, uint32_t seed) {
    m->state[0] = seed;
    for (uint32_t i = 1; i < N; i++) m->state[i] = 1812433253u * (m->state[i - 1] ^ (m->state[i - 1] >> 30)) + i;
    m->next = N;
}

/* The reference's seeding by an array, of one word. */
void pal_mersenne_seed(pal_mersenne *m, uint32_t seed) {
    uint32_t *s = m->state;
    uint32_t i = 1;
    pal_mersenne_seed_plain(m, 19650218u);
    for (int k = 0; k < N; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525u)) + seed;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    for (int k = 0; k < N - 1; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    s[0] = 0x80000000u;
}

static uint32_t twist(uint32_t high, uint32_t low) {
    const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ (-(y & 1) & 0x9908b0dfu);
}

static void refill(pal_mersenne *m) {
    uint32_t *s = m->state;
    for (int i = 0; i < N - M; i++) s[i] = s[i + M] ^ twist(s[i], s[i + 1]);
    for (int i = N - M; i < N - 1; i++) s[i] = s[i + M - N] ^ twist(s[i], s[i + 1]);
    s[N - 1] = s[M - 1] ^ twist(s[N - 1], s[0]);
    m->next = 0;
}

uint32_t pal_mersenne_u32(pal_mersenne *m) {
    if (m->next >= N) refill(m);
    uint32_t y = m->state[m->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

double pal_mersenne_double(pal_mersenne *m) {
    const uint32_t a = pal_mersenne_u32(m) >> 5, b = pal_mersenne_u32(m) >> 6;
    return ((double)a * 67108864.0 + (double)b) / 9007199254740992.0;
}

uint32_t pal_mersenne_below(pal_mersenne *m, uint32_t n) {
    int bits = 0;
    while (bits < 32 && n >> bits) bits++;
    uint32_t r;
    do r = pal_mersenne_u32(m) >> (32 - bits);
    while (r >= n);
    return r;
}

void pal_mersenne_shuffle(pal_mersenne *m, uint32_t *x, size_t n) {
    for (size_t i = n; i-- > 1;) {
        const uint32_t k = pal_mersenne_below(m, (uint32_t)i + 1), other = x[i];
        x[i] = x[k];
        x[k] = other;
    }
}

/* Python draws from a shrinking list where that is smaller than a set of what was drawn, else again and again. */
pal_status pal_mersenne_sample(pal_mersenne *m, uint32_t n, uint32_t k, uint32_t *out, pal_error *err) {
    double set = 21;
    uint32_t *list;
    if (k > 5) set += pow(4, ceil(log(3.0 * k) / log(4)));
    const bool shrinking = n <= set;
    const pal_status st = pal_alloc_named((void **)&list, (size_t)n + 1, sizeof *list, "a random sample", err);
    if (st) return st;
    for (uint32_t i = 0; i < n && shrinking; i++) list[i] = i;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t j = pal_mersenne_below(m, shrinking ? n - i : n);
        if (shrinking) {
            out[i] = list[j];
            list[j] = list[n - i - 1];
            continue;
        }
        while (list[j]) j = pal_mersenne_below(m, n);
        list[j] = 1;
        out[i] = j;
    }
    pal_free(list);
    return PAL_OK;
}
