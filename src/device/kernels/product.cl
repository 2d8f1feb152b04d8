/* SPDX-License-Identifier: MIT */
/* y = (y +) x W' with W stored in any type: few rows read it once (matvec), many by tiles (product); and rows of W as
 * f32. TYPE is the number of pal_dtype. docs/reference/formats.md describes the blocks. */
#define F32 0
#define F16 2
#define BF16 3
#define Q8_0 13
#define Q4_0 14
#define Q5_0 15
#define Q4_K 16
#define Q5_K 17
#define Q6_K 18

static float f16_at(global const uchar *p) { return vload_half(0, (global const half *)p); }

#if TYPE == Q4_K || TYPE == Q5_K
static void scale_and_minimum(global const uchar *packed, int group, float *scale, float *minimum) {
    if (group < 4) {
        *scale = (float)(packed[group] & 63);
        *minimum = (float)(packed[group + 4] & 63);
    } else {
        *scale = (float)((packed[group + 4] & 15) | packed[group - 4] >> 6 << 4);
        *minimum = (float)(packed[group + 4] >> 4 | packed[group] >> 6 << 4);
    }
}
#endif

/* Values k .. k+7 of a row, of which n exist; k is a multiple of 8. */
static void load8(global const uchar *row, int k, int n, float *out) {
#if TYPE == F32
    global const float *x = (global const float *)row + k;
    for (int i = 0; i < 8; i++) out[i] = i < n ? x[i] : 0.0f;
#elif TYPE == F16
    global const half *x = (global const half *)row + k;
    for (int i = 0; i < 8; i++) out[i] = i < n ? vload_half(i, x) : 0.0f;
#elif TYPE == BF16
    global const ushort *x = (global const ushort *)row + k;
    for (int i = 0; i < 8; i++) out[i] = i < n ? as_float((uint)x[i] << 16) : 0.0f;
#elif TYPE == Q8_0
    global const uchar *b = row + (ulong)(k / 32) * 34;
    const float d = f16_at(b);
    for (int i = 0; i < 8; i++) out[i] = d * (float)(char)b[2 + k % 32 + i];
#elif TYPE == Q4_0
    global const uchar *b = row + (ulong)(k / 32) * 18, *q = b + 2 + k % 16;
    const float d = f16_at(b);
    const int shift = k % 32 < 16 ? 0 : 4;
    for (int i = 0; i < 8; i++) out[i] = d * (float)((q[i] >> shift & 15) - 8);
#elif TYPE == Q5_0
    global const uchar *b = row + (ulong)(k / 32) * 22, *q = b + 6 + k % 16;
    const float d = f16_at(b);
    const int shift = k % 32 < 16 ? 0 : 4;
    const uchar fifth = b[2 + k % 32 / 8];
    for (int i = 0; i < 8; i++) out[i] = d * (float)(((q[i] >> shift & 15) | (fifth >> i & 1) << 4) - 16);
#elif TYPE == Q4_K
    global const uchar *b = row + (ulong)(k / 256) * 144;
    const int group = k % 256 / 32, shift = group % 2 * 4;
    global const uchar *q = b + 16 + 32 * (group / 2) + k % 32;
    float scale, minimum;
    scale_and_minimum(b + 4, group, &scale, &minimum);
    const float ds = f16_at(b) * scale, ms = f16_at(b + 2) * minimum;
    for (int i = 0; i < 8; i++) out[i] = ds * (float)(q[i] >> shift & 15) - ms;
#elif TYPE == Q5_K
    global const uchar *b = row + (ulong)(k / 256) * 176;
    const int group = k % 256 / 32, shift = group % 2 * 4;
    global const uchar *q = b + 48 + 32 * (group / 2) + k % 32, *high = b + 16 + k % 32;
    float scale, minimum;
    scale_and_minimum(b + 4, group, &scale, &minimum);
    const float ds = f16_at(b) * scale, ms = f16_at(b + 2) * minimum;
    for (int i = 0; i < 8; i++) out[i] = ds * (float)((q[i] >> shift & 15) | (high[i] >> group & 1) << 4) - ms;
#elif TYPE == Q6_K
    global const uchar *b = row + (ulong)(k / 256) * 210;
    const int part = k % 256 / 128, run = k % 128 / 32, at = k % 32, shift = run < 2 ? 0 : 4;
    global const uchar *low = b + 64 * part + 32 * (run % 2) + at, *high = b + 128 + 32 * part + at;
    const float d = f16_at(b + 208), ds = d * (float)(char)b[192 + 8 * part + 2 * run + at / 16];
    for (int i = 0; i < 8; i++) out[i] = ds * (float)(((low[i] >> shift & 15) | (high[i] >> 2 * run & 3) << 4) - 32);
#endif
}

/* A group an output, for rows first .. of at most ROWS: a row's sum does not depend on the others. */
#define ROWS 8
kernel void matvec(PTR(w), const ulong row_bytes, VIEW(x), VIEW(y), const int in, const int first, const int rows,
                   const int add, local float *sums) {
    const ulong o = get_group_id(0);
    const int id = get_local_id(0);
    AT(const float, x);
    AT(float, y);
    global const uchar *row = (global const uchar *)w_base + w_at + o * row_bytes;
    float sum[ROWS];
    for (int r = 0; r < ROWS; r++) sum[r] = 0;
    for (int k = 8 * id; k < in; k += 8 * ITEMS) {
        float values[8];
        const int n = min(8, in - k);
        load8(row, k, n, values);
        for (int r = 0; r < rows; r++) {
            global const float *from = x + (ulong)(first + r) * x_ld + k;
            for (int i = 0; i < n; i++) sum[r] = fma(values[i], from[i], sum[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        const float all = sum_of_group(sum[r], sums);
        const ulong at = (ulong)(first + r) * y_ld + o;
        if (id == 0) y[at] = add ? y[at] + all : all;
    }
}

/* A group a tile of TM rows by TN outputs, a work-item 4 x 4 of it. */
#define TM 32
#define TN 32
#define TK 16
kernel void product(PTR(w), const ulong row_bytes, VIEW(x), VIEW(y), const int rows, const int out, const int in,
                    const int add, local float *a, local float *b) {
    const int across = (out + TN - 1) / TN, id = get_local_id(0), tm = id / 8 * 4, tn = id % 8 * 4;
    const int m0 = get_group_id(0) / across * TM, n0 = get_group_id(0) % across * TN;
    AT(const float, x);
    AT(float, y);
    global const uchar *matrix = (global const uchar *)w_base + w_at;
    float sum[16];
    for (int e = 0; e < 16; e++) sum[e] = 0;
    for (int k0 = 0; k0 < in; k0 += TK) {
        const int own = id / 2, from = k0 + id % 2 * 8; /* 32 rows, two runs of 8 each */
        float values[8];
        for (int i = 0; i < 8; i++) values[i] = 0;
        if (n0 + own < out && from < in) load8(matrix + (ulong)(n0 + own) * row_bytes, from, min(8, in - from), values);
        for (int i = 0; i < 8; i++) b[(id % 2 * 8 + i) * TN + own] = values[i];
        for (int i = 0; i < 8; i++)
            a[(id % 2 * 8 + i) * TM + own] =
                m0 + own < rows && from + i < in ? x[(ulong)(m0 + own) * x_ld + from + i] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TK; k++)
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 4; c++)
                    sum[4 * r + c] = fma(a[k * TM + tm + r], b[k * TN + tn + c], sum[4 * r + c]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            if (m0 + tm + r >= rows || n0 + tn + c >= out) continue;
            const ulong at = (ulong)(m0 + tm + r) * y_ld + n0 + tn + c;
            y[at] = add ? y[at] + sum[4 * r + c] : sum[4 * r + c];
        }
}

/* A work-item 8 values of a row that is asked for. */
kernel void gather(PTR(w), const ulong row_bytes, PTR(ids), VIEW(y), const ulong n, const int columns) {
    const ulong i = get_global_id(0), eights = (columns + 7) / 8, row = i / eights;
    const int k = (int)(i % eights) * 8;
    AT(const int, ids);
    AT(float, y);
    if (i >= n) return;
    float values[8];
    const int count = min(8, columns - k);
    load8((global const uchar *)w_base + w_at + (ulong)ids[row] * row_bytes, k, count, values);
    for (int j = 0; j < count; j++) y[row * y_ld + k + j] = values[j];
}
