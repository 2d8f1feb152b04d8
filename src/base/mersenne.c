/* SPDX-License-Identifier: MIT */
#include "base/mersenne.h"

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
