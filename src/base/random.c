/* SPDX-License-Identifier: MIT */
#include "base/random.h"

#include <math.h>

#include "base/parallel.h"

enum { PHILOX_ROUNDS = 10, FILL_BLOCK = 4096 };

void pal_random_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t pal_rng_u32(pal_rng *rng) {
    const unsigned lane = (unsigned)(rng->next & 3);
    if (lane == 0) pal_random_block(rng->seed, rng->stream, rng->next >> 2, rng->buffer);
    rng->next++;
    return rng->buffer[lane];
}

uint32_t pal_rng_below(pal_rng *rng, uint32_t n) {
    /* Multiply and reject the few products that would favour small results (Lemire). */
    const uint32_t reject = (uint32_t)(-n) % n;
    uint64_t product;
    do product = (uint64_t)pal_rng_u32(rng) * n;
    while ((uint32_t)product < reject);
    return (uint32_t)(product >> 32);
}

static double unit(uint32_t high, uint32_t low) { return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53; }

double pal_rng_uniform(pal_rng *rng) {
    const uint32_t high = pal_rng_u32(rng);
    return unit(high, pal_rng_u32(rng));
}

static double normal(double u1, double u2) { return sqrt(-2.0 * log1p(-u1)) * cos(6.283185307179586 * u2); }

double pal_rng_normal(pal_rng *rng) {
    const double u1 = pal_rng_uniform(rng);
    return normal(u1, pal_rng_uniform(rng));
}

typedef struct {
    float *x;
    size_t n;
    uint64_t seed, stream;
    double lo, hi, deviation;
} fill_job;

static void fill_uniform_task(void *arg, size_t index, int thread) {
    (void)thread;
    const fill_job *job = arg;
    const size_t end = (index + 1) * FILL_BLOCK < job->n ? (index + 1) * FILL_BLOCK : job->n;
    for (size_t i = index * FILL_BLOCK; i < end; i++) {
        uint32_t r[4];
        pal_random_block(job->seed, job->stream, i, r);
        /* +0.5 of the last bit keeps both ends out, which log(U(0,16)) needs. */
        job->x[i] = (float)(job->lo + (job->hi - job->lo) * (unit(r[0], r[1]) + 0x1p-54));
    }
}

static void fill_normal_task(void *arg, size_t index, int thread) {
    (void)thread;
    const fill_job *job = arg;
    const size_t end = (index + 1) * FILL_BLOCK < job->n ? (index + 1) * FILL_BLOCK : job->n;
    for (size_t i = index * FILL_BLOCK; i < end; i++) {
        uint32_t r[4];
        pal_random_block(job->seed, job->stream, i, r);
        job->x[i] = (float)(job->deviation * normal(unit(r[0], r[1]), unit(r[2], r[3])));
    }
}

void pal_fill_uniform(const pal_context *cx, float *x, size_t n, uint64_t seed, uint64_t stream, double lo, double hi) {
    fill_job job = { .x = x, .n = n, .seed = seed, .stream = stream, .lo = lo, .hi = hi };
    pal_parallel_for(cx, (n + FILL_BLOCK - 1) / FILL_BLOCK, fill_uniform_task, &job);
}

void pal_fill_normal(const pal_context *cx, float *x, size_t n, uint64_t seed, uint64_t stream, double deviation) {
    fill_job job = { .x = x, .n = n, .seed = seed, .stream = stream, .deviation = deviation };
    pal_parallel_for(cx, (n + FILL_BLOCK - 1) / FILL_BLOCK, fill_normal_task, &job);
}
