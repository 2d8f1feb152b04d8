/* SPDX-License-Identifier: MIT */
/* Rows of any type to f32, with the operations of the reference. */
#include <string.h>

#include "base/half.h"
#include "base/simd_avx2.h"
#include "kernels/product/product.h"

PAL_INLINE __m256 halves(const unsigned char *p) {
    unsigned short h;
    memcpy(&h, p, sizeof h);
    return _mm256_set1_ps(_cvtsh_ss(h));
}

/* x[0..15] = scale q - minus, q the bytes as unsigned or signed. */
PAL_INLINE void put16(float *x, __m128i q, __m256 scale, __m256 minus) {
    const __m256i low = _mm256_cvtepi8_epi32(q), high = _mm256_cvtepi8_epi32(_mm_srli_si128(q, 8));
    vf_store(x, _mm256_fmsub_ps(_mm256_cvtepi32_ps(low), scale, minus));
    vf_store(x + 8, _mm256_fmsub_ps(_mm256_cvtepi32_ps(high), scale, minus));
}
PAL_INLINE __m128i load16(const unsigned char *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
PAL_INLINE __m128i nibbles(__m128i bytes, int high) {
    return _mm_and_si128(high ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
}

static void q8_0(const unsigned char *b, float *x) {
    const __m256 d = halves(b);
    put16(x, load16(b + 2), d, _mm256_setzero_ps());
    put16(x + 16, load16(b + 18), d, _mm256_setzero_ps());
}

static void q4_0(const unsigned char *b, float *x) {
    const __m128i q = load16(b + 2), eight = _mm_set1_epi8(8);
    const __m256 d = halves(b);
    put16(x, _mm_sub_epi8(nibbles(q, 0), eight), d, _mm256_setzero_ps());
    put16(x + 16, _mm_sub_epi8(nibbles(q, 1), eight), d, _mm256_setzero_ps());
}

/* 16 where a bit of two bytes is set, else 0. */
PAL_INLINE __m128i sixteens(const unsigned char *fifths) {
    const __m128i bits = _mm_set1_epi64x((long long)0x8040201008040201);
    const __m128i spread = _mm_set_epi64x((long long)(0x0101010101010101u * fifths[1]),
                                          (long long)(0x0101010101010101u * fifths[0]));
    return _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(spread, bits), bits), _mm_set1_epi8(16));
}

static void q5_0(const unsigned char *b, float *x) {
    const __m128i q = load16(b + 6), sixteen = _mm_set1_epi8(16);
    const __m256 d = halves(b);
    for (int i = 0; i < 2; i++) {
        const __m128i five = _mm_or_si128(nibbles(q, i), sixteens(b + 2 + 2 * i));
        put16(x + 16 * i, _mm_sub_epi8(five, sixteen), d, _mm256_setzero_ps());
    }
}

/* Q4_K, and with fifth bits before the nibbles Q5_K. */
PAL_INLINE void groups_of_32(const unsigned char *b, float *x, bool fifth) {
    const __m256 d = halves(b), m = halves(b + 2);
    const unsigned char *packed = b + 4, *low = b + (fifth ? 48 : 16);
    for (int g = 0; g < 8; g++) {
        const int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
        const int minimum = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
        const __m256 ds = _mm256_mul_ps(d, _mm256_set1_ps((float)scale));
        const __m256 ms = _mm256_mul_ps(m, _mm256_set1_ps((float)minimum));
        for (int i = 0; i < 32; i += 16) {
            __m128i q = nibbles(load16(low + 32 * (g / 2) + i), g % 2);
            if (fifth) {
                const __m128i bits = _mm_srl_epi16(load16(b + 16 + i), _mm_cvtsi32_si128(g));
                q = _mm_or_si128(q, _mm_and_si128(_mm_slli_epi16(bits, 4), _mm_set1_epi8(16)));
            }
            put16(x + 32 * g + i, q, ds, ms);
        }
    }
}
static void q4_k(const unsigned char *b, float *x) { groups_of_32(b, x, false); }
static void q5_k(const unsigned char *b, float *x) { groups_of_32(b, x, true); }

static void q6_k(const unsigned char *b, float *x) {
    const __m256 d = halves(b + 208);
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < 32; i += 16) {
            const __m128i high = load16(b + 128 + 32 * part + i);
            const __m128i two[4] = { _mm_slli_epi16(high, 4), _mm_slli_epi16(high, 2), high, _mm_srli_epi16(high, 2) };
            for (int run = 0; run < 4; run++) {
                const __m128i low = nibbles(load16(b + 64 * part + 32 * (run % 2) + i), run >= 2);
                const __m128i q = _mm_or_si128(low, _mm_and_si128(two[run], _mm_set1_epi8(0x30)));
                const signed char scale = (signed char)b[192 + 8 * part + 2 * run + i / 16];
                put16(x + 128 * part + 32 * run + i, _mm_sub_epi8(q, _mm_set1_epi8(32)),
                      _mm256_mul_ps(d, _mm256_set1_ps((float)scale)), _mm256_setzero_ps());
            }
        }
}

static void plain(const pal_matrix *w, const unsigned char *row, float *x) {
    const size_t n = (size_t)w->columns;
    const unsigned short *h = (const unsigned short *)(const void *)row;
    size_t i = 0;
    if (w->type == PAL_F32) memcpy(x, row, n * sizeof *x);
    else if (w->type == PAL_F16) {
        for (; i + PAL_W <= n; i += PAL_W) vf_store(x + i, vf_load_f16(h + i));
        for (; i < n; i++) x[i] = pal_f16_to_f32(h[i]);
    } else {
        for (; i + PAL_W <= n; i += PAL_W) vf_store(x + i, vf_load_bf16(h + i));
        for (; i < n; i++) x[i] = pal_bf16_to_f32(h[i]);
    }
}

void pal_decode_rows_avx2(const pal_matrix *w, size_t begin, size_t end, float *out) {
    const size_t values = pal_dtype_values(w->type), bytes = pal_dtype_size(w->type), in = (size_t)w->columns;
    for (size_t o = begin; o < end; o++, out += in) {
        const unsigned char *row = (const unsigned char *)w->data + o * w->row_bytes;
        if (values == 1) plain(w, row, out);
        else
            for (size_t at = 0; at < in; at += values, row += bytes)
                if (w->type == PAL_Q8_0) q8_0(row, out + at);
                else if (w->type == PAL_Q4_0) q4_0(row, out + at);
                else if (w->type == PAL_Q5_0) q5_0(row, out + at);
                else if (w->type == PAL_Q4_K) q4_k(row, out + at);
                else if (w->type == PAL_Q5_K) q5_k(row, out + at);
                else q6_k(row, out + at);
    }
}
