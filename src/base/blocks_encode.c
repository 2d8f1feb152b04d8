/* SPDX-License-Identifier: MIT */
/* Numbers to blocks. Scales are searched for the least sum of squared errors: several roundings of the values are
 * tried, each with the scale that fits it best (least squares, which gives its error as well), and after scales have
 * been rounded to what a block can hold, their neighbours. Three times as many roundings would lower the error by less
 * than half a percent. Plain C in a fixed order: the same bytes everywhere. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/blocks.h"
#include "base/half.h"

static bool all_finite(const float *x, int n) {
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Stores d as f16 and returns what was stored. */
static float store_scale(unsigned char *p, float d) {
    const uint16_t h = pal_f32_to_f16(d);
    p[0] = (unsigned char)h;
    p[1] = (unsigned char)(h >> 8);
    return pal_f16_to_f32(h);
}

/* Four numbers at once, in any processor's vectors. */
enum { LANES = 4 };
typedef float lanes __attribute__((vector_size(16)));
typedef int32_t masks __attribute__((vector_size(16)));

static lanes load(const float *x) {
    lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}
static lanes all(float x) { return (lanes){ x, x, x, x }; }
static lanes choose(masks where, lanes a, lanes b) { return (lanes)(((masks)a & where) | ((masks)b & ~where)); }
static float sum_of(lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }

/* To the nearest whole number from low to high, halves to even. Adding 1.5 * 2^23 leaves no bits for a fraction;
 * without it every rounding would be a call. 0 times infinity, when all values are next to nothing, counts as low. */
static lanes nearest_lanes(lanes q, int low, int high) {
    const lanes least = all((float)low), most = all((float)high), magic = all(12582912.0f);
    q = choose(q > least, q, least);
    return choose(q < most, q, most) + magic - magic;
}
static int nearest(float x, float inverse, int low, int high) {
    return (int)nearest_lanes(all(x * inverse), low, high)[0];
}

static float inverse_of(float d) { return d != 0 ? 1 / d : 0; }

/* The sum of squared errors of x = d q, q nearest in low .. high. */
static float error_of(const float *x, int n, float d, int low, int high) {
    const lanes inverse = all(inverse_of(d)), step = all(d);
    lanes sum = all(0);
    for (int i = 0; i < n; i += LANES) {
        const lanes y = load(x + i), e = y - step * nearest_lanes(y * inverse, low, high);
        sum += e * e;
    }
    return sum_of(sum);
}

/* The d for which x = d q, q in low .. high with low = -high - 1, has the least squared error. `high + 1` steps reach
 * the value of largest magnitude, so d has its sign turned. With q given the best d is xq / qq, and the error that is
 * left is xx - xq^2 / qq. */
static float search_scale(const float *x, int n, int low, int high) {
    enum { TRIES = 4 };
    float largest = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    float best = 0, most = 0;
    for (int t = -TRIES; t <= TRIES && largest != 0; t++) {
        const lanes inverse = all(((float)low - 0.3f * (float)t) / largest);
        lanes xqs = all(0), qqs = all(0);
        for (int i = 0; i < n; i += LANES) {
            const lanes y = load(x + i), q = nearest_lanes(y * inverse, low, high);
            xqs += y * q;
            qqs += q * q;
        }
        const float qq = sum_of(qqs), d = qq > 0 ? sum_of(xqs) / qq : 0, gain = d * d * qq;
        if (gain > most) best = d, most = gain;
    }
    return best;
}

void pal_encode_q8_0(const float *x, unsigned char *block) {
    float largest = 0;
    for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[i]));
    const bool good = all_finite(x, 32);
    const float d = largest / 127, inverse = inverse_of(d);
    store_scale(block, good ? d : NAN);
    for (int i = 0; i < 32; i++) {
        const float q = good ? roundf(x[i] * inverse) : 0;
        block[2 + i] = (unsigned char)(int8_t)q;
    }
}

void pal_encode_q4_0(const float *x, unsigned char *block) {
    const bool good = all_finite(x, 32);
    const float d = store_scale(block, good ? search_scale(x, 32, -8, 7) : NAN), inverse = good ? inverse_of(d) : 0;
    int q[32];
    for (int i = 0; i < 32; i++) q[i] = (good ? nearest(x[i], inverse, -8, 7) : 0) + 8;
    for (int i = 0; i < 16; i++) block[2 + i] = (unsigned char)(q[i] | q[i + 16] << 4);
}

void pal_encode_q5_0(const float *x, unsigned char *block) {
    const bool good = all_finite(x, 32);
    const float d = store_scale(block, good ? search_scale(x, 32, -16, 15) : NAN), inverse = good ? inverse_of(d) : 0;
    memset(block + 2, 0, 20);
    for (int i = 0; i < 32; i++) {
        const int q = (good ? nearest(x[i], inverse, -16, 15) : 0) + 16;
        block[2 + i / 8] |= (unsigned char)(q >> 4 << i % 8);
        block[6 + i % 16] |= (unsigned char)((q & 15) << (i < 16 ? 0 : 4));
    }
}

/* A group of q6_k: 16 values, x = (d scale) q. */
enum { Q6_GROUPS = 16, Q6_GROUP = 16, Q6_LOW = -32, Q6_HIGH = 31 };

/* With d given, the scale in -128 .. 127 next to `wish` whose error is least. */
static int q6_k_scale(const float *x, float d, float wish) {
    int best = 0;
    float least = INFINITY;
    const int middle = nearest(wish, inverse_of(d), -128, 127);
    for (int s = middle - 1; s <= middle + 1; s++) {
        if (s < -128 || s > 127) continue;
        const float e = error_of(x, Q6_GROUP, d * (float)s, Q6_LOW, Q6_HIGH);
        if (e < least) best = s, least = e;
    }
    return best;
}

void pal_encode_q6_k(const float *x, unsigned char *block) {
    enum { ROUNDS = 2 };
    memset(block, 0, 208);
    if (!all_finite(x, 256)) {
        store_scale(block + 208, NAN);
        return;
    }
    float wish[Q6_GROUPS], largest = 0;
    for (int g = 0; g < Q6_GROUPS; g++) {
        wish[g] = search_scale(x + Q6_GROUP * g, Q6_GROUP, Q6_LOW, Q6_HIGH);
        if (fabsf(wish[g]) > fabsf(largest)) largest = wish[g];
    }
    int scales[Q6_GROUPS] = { 0 };
    float d = store_scale(block + 208, largest / -128);
    for (int round = 0; round < ROUNDS; round++) {
        float xs = 0, ss = 0;
        for (int g = 0; g < Q6_GROUPS; g++) {
            scales[g] = q6_k_scale(x + Q6_GROUP * g, d, wish[g]);
            const float step = d * (float)scales[g], inverse = inverse_of(step);
            for (int i = 0; i < Q6_GROUP; i++) {
                const float y = x[Q6_GROUP * g + i], s = (float)(scales[g] * nearest(y, inverse, Q6_LOW, Q6_HIGH));
                xs += y * s;
                ss += s * s;
            }
        }
        if (round + 1 < ROUNDS && ss > 0) d = store_scale(block + 208, xs / ss);
    }
    for (int g = 0; g < Q6_GROUPS; g++) {
        const float inverse = inverse_of(d * (float)scales[g]);
        block[192 + g] = (unsigned char)(int8_t)scales[g];
        for (int i = 0; i < Q6_GROUP; i++) {
            const int at = Q6_GROUP * g + i, part = at / 128, run = at % 128 / 32, byte = at % 32;
            const int q = nearest(x[at], inverse, Q6_LOW, Q6_HIGH) + 32;
            block[64 * part + 32 * (run % 2) + byte] |= (unsigned char)((q & 15) << (run < 2 ? 0 : 4));
            block[128 + 32 * part + byte] |= (unsigned char)(q >> 4 << (2 * run));
        }
    }
}

/* A group of q4_k or q5_k: 32 values, x = scale q - minimum, q in 0 .. high, both factors >= 0. */
enum { GROUPS = 8, GROUP = 32, SCALES = 63 };

static float group_error(const float *x, float scale, float minimum, int high) {
    const lanes inverse = all(inverse_of(scale)), step = all(scale), shift = all(minimum);
    lanes sum = all(0);
    for (int i = 0; i < GROUP; i += LANES) {
        const lanes above = load(x + i) + shift, e = above - step * nearest_lanes(above * inverse, 0, high);
        sum += e * e;
    }
    return sum_of(sum);
}

/* Least squares of x = scale q - minimum over the values' nearest q for a first guess; guesses differ in how far the
 * steps reach. */
static void search_group(const float *x, int high, float *scale, float *minimum) {
    enum { TRIES = 6 };
    float low = 0, top = x[0], sum = 0;
    for (int i = 0; i < GROUP; i++) {
        low = fminf(low, x[i]);
        top = fmaxf(top, x[i]);
        sum += x[i];
    }
    *scale = (top - low) / (float)high;
    *minimum = -low;
    if (!(top > low)) return;
    float least = INFINITY; /* the error without the values' own squares */
    for (int t = -TRIES; t <= TRIES; t++) {
        const lanes inverse = all(((float)high + 0.2f * (float)t) / (top - low)), least_value = all(low);
        lanes ones = all(0), squares = all(0), products = all(0);
        for (int i = 0; i < GROUP; i += LANES) {
            const lanes y = load(x + i), q = nearest_lanes((y - least_value) * inverse, 0, high);
            ones += q;
            squares += q * q;
            products += y * q;
        }
        const float q1 = sum_of(ones), q2 = sum_of(squares), xq = sum_of(products);
        const float determinant = (float)GROUP * q2 - q1 * q1;
        if (!(determinant > 0)) continue;
        float s = ((float)GROUP * xq - q1 * sum) / determinant, m = (q1 * xq - q2 * sum) / determinant;
        if (m < 0) m = 0, s = xq / q2;
        if (!(s > 0)) continue;
        const float e = s * (s * q2 - 2 * xq) + m * ((float)GROUP * m + 2 * sum - 2 * s * q1);
        if (e < least) *scale = s, *minimum = m, least = e;
    }
}

typedef struct {
    int scale, minimum;
} factors;

/* With d and m given, the pair of 6-bit factors at most `reach` away from the wish whose error is least. */
static factors round_factors(const float *x, int high, float d, float m, float scale, float minimum, int reach) {
    const int s0 = nearest(scale, inverse_of(d), 0, SCALES), m0 = nearest(minimum, inverse_of(m), 0, SCALES);
    factors best = { s0, m0 };
    float least = INFINITY;
    for (int s = s0 - reach; s <= s0 + reach && reach; s++)
        for (int k = m0 - reach; k <= m0 + reach; k++) {
            if (s < 0 || s > SCALES || k < 0 || k > SCALES) continue;
            const float e = group_error(x, d * (float)s, m * (float)k, high);
            if (e < least) best = (factors){ s, k }, least = e;
        }
    return best;
}

/* The d and m for which x = (d s) q - m k has the least squared error over all groups. */
static void refit(const float *x, int high, const factors *of, float *d, float *m) {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int g = 0; g < GROUPS; g++) {
        const float scale = *d * (float)of[g].scale, minimum = *m * (float)of[g].minimum;
        const float inverse = inverse_of(scale);
        for (int i = 0; i < GROUP; i++) {
            const float y = x[GROUP * g + i];
            const double a = of[g].scale * nearest(y + minimum, inverse, 0, high), b = -of[g].minimum;
            aa += a * a, ab += a * b, bb += b * b;
            xa += (double)y * a, xb += (double)y * b;
        }
    }
    const double determinant = aa * bb - ab * ab;
    if (determinant > 1e-6 * aa * bb) {
        const double fitted = (xa * bb - xb * ab) / determinant, below = (xb * aa - xa * ab) / determinant;
        if (fitted > 0 && below >= 0) *d = (float)fitted, *m = (float)below;
    } else if (aa > 0 && bb == 0 && xa > 0) {
        *d = (float)(xa / aa);
    }
}

static void pack_factors(unsigned char *packed, int g, factors f) {
    const int s = f.scale, k = f.minimum;
    if (g < 4) {
        packed[g] |= (unsigned char)s;
        packed[g + 4] |= (unsigned char)k;
    } else {
        packed[g + 4] = (unsigned char)((s & 15) | (k & 15) << 4);
        packed[g - 4] |= (unsigned char)(s >> 4 << 6);
        packed[g] |= (unsigned char)(k >> 4 << 6);
    }
}

/* The two scales and the packed factors of a zeroed block, and the numbers q of its values. */
static void encode_groups(const float *x, int high, unsigned char *block, unsigned char q[256]) {
    enum { ROUNDS = 2 };
    memset(q, 0, 256);
    if (!all_finite(x, 256)) {
        store_scale(block, NAN);
        store_scale(block + 2, NAN);
        return;
    }
    float scale[GROUPS], minimum[GROUPS], d = 0, m = 0;
    for (int g = 0; g < GROUPS; g++) {
        search_group(x + GROUP * g, high, &scale[g], &minimum[g]);
        d = fmaxf(d, scale[g] / SCALES);
        m = fmaxf(m, minimum[g] / SCALES);
    }
    factors found[GROUPS];
    for (int round = 0; round < ROUNDS; round++) {
        if (round) refit(x, high, found, &d, &m);
        d = store_scale(block, d);
        m = store_scale(block + 2, m);
        for (int g = 0; g < GROUPS; g++)
            found[g] = round_factors(x + GROUP * g, high, d, m, scale[g], minimum[g], round);
    }
    for (int g = 0; g < GROUPS; g++) {
        pack_factors(block + 4, g, found[g]);
        const float below = m * (float)found[g].minimum, inverse = inverse_of(d * (float)found[g].scale);
        for (int i = GROUP * g; i < GROUP * (g + 1); i++) q[i] = (unsigned char)nearest(x[i] + below, inverse, 0, high);
    }
}

void pal_encode_q4_k(const float *x, unsigned char *block) {
    unsigned char q[256];
    memset(block, 0, 144);
    encode_groups(x, 15, block, q);
    for (int i = 0; i < 256; i++) block[16 + i / 64 * 32 + i % 32] |= (unsigned char)(q[i] << i % 64 / 32 * 4);
}

void pal_encode_q5_k(const float *x, unsigned char *block) {
    unsigned char q[256];
    memset(block, 0, 176);
    encode_groups(x, 31, block, q);
    for (int i = 0; i < 256; i++) {
        block[16 + i % 32] |= (unsigned char)(q[i] >> 4 << i / 32);
        block[48 + i / 64 * 32 + i % 32] |= (unsigned char)((q[i] & 15) << i % 64 / 32 * 4);
    }
}
