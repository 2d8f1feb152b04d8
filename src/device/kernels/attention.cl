/* SPDX-License-Identifier: MIT */
/* Causal softmax attention. Keys and values come from the cache where there is one, else from the rows themselves. */
#define CHANNELS 8 /* of a work-item: values have at most ITEMS times as many */

typedef struct {
    int dk, dv, heads, key_heads, tiled, context, first;
    float scale;
} shape;

/* What tokens add to the caches: a work-item a token, key head and channel of its key or value. */
kernel void append(const shape s, VIEW(k), VIEW(v), PTR(cu), PTR(past), PTR(state), PTR(states), const ulong n,
                   const int first, const int sequences) {
    const ulong i = get_global_id(0);
    const int width = s.dk + s.dv, c = i % width, head = i / width % s.key_heads;
    const int t = first + (int)(i / width / s.key_heads);
    AT(const float, k);
    AT(const float, v);
    AT(const int, cu);
    AT(const int, past);
    AT(const ulong, states);
    if (i >= n) return;
    const int own = cu ? sequence_of(cu, sequences, t) : t - first;
    const ulong position = t - (cu ? cu[own] : t) + (past ? past[own] : 0);
    global float *cache = (global float *)(state_base + states[own]);
    if (c < s.dk)
        cache[((ulong)head * s.context + position) * s.dk + c] = k[(ulong)t * k_ld + (ulong)head * s.dk + c];
    else
        cache[(ulong)s.key_heads * s.context * s.dk + ((ulong)head * s.context + position) * s.dv + c - s.dk] =
            v[(ulong)t * v_ld + (ulong)head * s.dv + c - s.dk];
}

/* A group a token and head; 64 keys at a time, with the largest score so far. */
kernel void attend(const shape s, VIEW(q), VIEW(k), VIEW(v), VIEW(y), PTR(lse), PTR(cu), PTR(past), PTR(state),
                   PTR(states), const int first, const int sequences, local float *query, local float *weights,
                   local float *sums) {
    const int id = get_local_id(0), h = get_group_id(1), t = first + (int)get_group_id(0);
    const int key_head = s.tiled ? h % s.key_heads : (int)((long)h * s.key_heads / s.heads);
    AT(const float, q);
    AT(const float, k);
    AT(const float, v);
    AT(float, y);
    AT(float, lse);
    AT(const int, cu);
    AT(const int, past);
    AT(const ulong, states);
    const int own = cu ? sequence_of(cu, sequences, t) : t - first, start = cu ? cu[own] : t;
    const int keys = t - start + 1 + (past ? past[own] : 0);
    global const float *key_rows = k + (ulong)start * k_ld + (ulong)key_head * s.dk,
                       *value_rows = v + (ulong)start * v_ld + (ulong)key_head * s.dv;
    ulong key_ld = k_ld, value_ld = v_ld;
    if (states) {
        global const float *cache = (global const float *)(state_base + states[own]);
        key_rows = cache + (ulong)key_head * s.context * s.dk, key_ld = s.dk;
        value_rows = cache + (ulong)s.key_heads * s.context * s.dk + (ulong)key_head * s.context * s.dv, value_ld = s.dv;
    }
    float most = -INFINITY, total = 0, sum[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) sum[c] = 0;
    for (int j = id; j < s.dk; j += ITEMS) query[j] = s.scale * q[(ulong)t * q_ld + (ulong)h * s.dk + j];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int from = 0; from < keys; from += ITEMS) {
        const int n = min(ITEMS, keys - from);
        float score = -INFINITY;
        if (id < n) {
            score = 0;
            for (int j = 0; j < s.dk; j++) score = fma(query[j], key_rows[(ulong)(from + id) * key_ld + j], score);
        }
        sums[id] = score;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int half_of = ITEMS / 2; half_of > 0; half_of /= 2) {
            if (id < half_of) sums[id] = fmax(sums[id], sums[id + half_of]);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        const float now = fmax(most, sums[0]), shrink = exp(most - now), weight = id < n ? exp(score - now) : 0.0f;
        weights[id] = weight;
        barrier(CLK_LOCAL_MEM_FENCE);
        total = fma(total, shrink, sum_of_group(weight, sums));
        most = now;
        for (int c = 0; c < CHANNELS; c++) {
            const int channel = id + c * ITEMS;
            if (channel >= s.dv) break;
            float part = 0;
            for (int u = 0; u < n; u++) part = fma(weights[u], value_rows[(ulong)(from + u) * value_ld + channel], part);
            sum[c] = fma(sum[c], shrink, part);
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* before the next weights */
    }
    for (int c = 0; c < CHANNELS; c++) {
        const int channel = id + c * ITEMS;
        if (channel < s.dv) y[(ulong)t * y_ld + (ulong)h * s.dv + channel] = sum[c] / total;
    }
    if (lse && id == 0) lse[(ulong)t * s.heads + h] = most + log(total);
}
