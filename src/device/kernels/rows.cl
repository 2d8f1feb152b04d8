/* SPDX-License-Identifier: MIT */
/* Norms, activations, gates and rows: the formulas of src/kernels. */

/* A group a row and part of it. gate: 0 none, 1 after, 2 before. */
kernel void rmsnorm(VIEW(x), VIEW(z), VIEW(y), PTR(w), const int parts, const int width, const int gate,
                    const int shared, const float eps, local float *sums) {
    const ulong row = get_group_id(0) / parts;
    const int part = get_group_id(0) % parts, id = get_local_id(0);
    const ulong from = (ulong)part * width;
    AT(const float, x);
    AT(const float, z);
    AT(float, y);
    AT(const float, w);
    float square = 0;
    for (int j = id; j < width; j += ITEMS) {
        float u = x[row * x_ld + from + j];
        if (gate == 2) u *= silu_of(z[row * z_ld + from + j]);
        square = fma(u, u, square);
    }
    const float r = 1.0f / sqrt(sum_of_group(square, sums) / width + eps);
    for (int j = id; j < width; j += ITEMS) {
        float u = x[row * x_ld + from + j];
        if (gate == 2) u *= silu_of(z[row * z_ld + from + j]);
        u *= w[shared ? (ulong)j : from + j] * r;
        if (gate == 1) u *= silu_of(z[row * z_ld + from + j]);
        y[row * y_ld + from + j] = u;
    }
}

kernel void layernorm(VIEW(x), VIEW(y), PTR(w), PTR(b), const int width, const float eps, local float *sums) {
    const ulong row = get_group_id(0);
    const int id = get_local_id(0);
    AT(const float, x);
    AT(float, y);
    AT(const float, w);
    AT(const float, b);
    float sum = 0, square = 0;
    for (int j = id; j < width; j += ITEMS) sum += x[row * x_ld + j];
    const float mean = sum_of_group(sum, sums) / width;
    for (int j = id; j < width; j += ITEMS) {
        const float u = x[row * x_ld + j] - mean;
        square = fma(u, u, square);
    }
    const float r = 1.0f / sqrt(sum_of_group(square, sums) / width + eps);
    for (int j = id; j < width; j += ITEMS) y[row * y_ld + j] = fma((x[row * x_ld + j] - mean) * r, w[j], b[j]);
}

/* clamp: x / max(|x|, 1e-12), else x / sqrt(|x|^2 + 1e-6). */
kernel void l2norm(VIEW(x), VIEW(y), const int parts, const int width, const int clamp_it, local float *sums) {
    const ulong row = get_group_id(0) / parts, from = (ulong)(get_group_id(0) % parts) * width;
    const int id = get_local_id(0);
    AT(const float, x);
    AT(float, y);
    float square = 0;
    for (int j = id; j < width; j += ITEMS) {
        const float u = x[row * x_ld + from + j];
        square = fma(u, u, square);
    }
    square = sum_of_group(square, sums);
    const float r = clamp_it ? 1.0f / fmax(sqrt(square), 1e-12f) : 1.0f / sqrt(square + 1e-6f);
    for (int j = id; j < width; j += ITEMS) y[row * y_ld + from + j] = x[row * x_ld + from + j] * r;
}

/* kind: 0 silu, 1 sigmoid, 2 softplus. */
kernel void activate(VIEW(x), VIEW(y), PTR(bias), const ulong n, const int width, const int kind) {
    const ulong i = get_global_id(0), row = i / width, j = i % width;
    AT(const float, x);
    AT(float, y);
    AT(const float, bias);
    if (i >= n) return;
    const float in = x[row * x_ld + j] + (bias ? bias[j] : 0.0f);
    y[row * y_ld + j] = kind == 0 ? silu_of(in) : kind == 1 ? sigmoid_of(in) : softplus_of(in);
}

kernel void swiglu(VIEW(gate), VIEW(up), VIEW(y), const ulong n, const int width) {
    const ulong i = get_global_id(0), row = i / width, j = i % width;
    AT(const float, gate);
    AT(const float, up);
    AT(float, y);
    if (i < n) y[row * y_ld + j] = silu_of(gate[row * gate_ld + j]) * up[row * up_ld + j];
}

kernel void head_gate(VIEW(x), VIEW(pre), VIEW(s), VIEW(v), VIEW(b), PTR(c), const ulong n, const int heads,
                      const int width) {
    const ulong i = get_global_id(0), channels = (ulong)heads * width, row = i / channels, j = i % channels;
    const int h = j / width;
    AT(const float, x);
    AT(const float, pre);
    AT(const float, s);
    AT(float, v);
    AT(float, b);
    AT(const float, c);
    if (i >= n) return;
    const float gate = s[row * s_ld + h], in = b ? pre[row * pre_ld + j] : 0.0f;
    v[row * v_ld + j] = gate * x[row * x_ld + j];
    if (b) b[row * b_ld + j] = sigmoid_of(in) * c[h] * gate;
}

kernel void head_skip(VIEW(x), VIEW(o), PTR(D), const ulong n, const int heads, const int width) {
    const ulong i = get_global_id(0), channels = (ulong)heads * width, row = i / channels, j = i % channels;
    AT(const float, x);
    AT(float, o);
    AT(const float, D);
    if (i < n) o[row * o_ld + j] += D[j / width] * x[row * x_ld + j];
}

/* kind: as pal_device_elementwise. */
kernel void elementwise(VIEW(x), VIEW(by), VIEW(y), const ulong n, const int width, const float factor,
                        const int kind) {
    const ulong i = get_global_id(0), row = i / width, j = i % width;
    AT(const float, x);
    AT(const float, by);
    AT(float, y);
    if (i >= n) return;
    const float a = x[row * x_ld + j], b = by ? by[row * by_ld + j] : 0.0f, kept = a < 0 ? 0.0f : a;
    float out = a;
    if (kind == 0) out = factor * a;
    if (kind == 1) out = a * b;
    if (kind == 3) out = a + b;
    if (kind == 4) out = kept * kept;
    if (kind == 5) out = 2 * kept * b;
    y[row * y_ld + j] = out;
}

kernel void bias_add(VIEW(y), PTR(bias), const ulong n, const int width) {
    const ulong i = get_global_id(0), row = i / width, j = i % width;
    AT(float, y);
    AT(const float, bias);
    if (i < n) y[row * y_ld + j] += bias[j];
}

kernel void take_rows(PTR(to), PTR(from), PTR(rows), const ulong n, const int width) {
    const ulong i = get_global_id(0), row = i / width, j = i % width;
    AT(float, to);
    AT(const float, from);
    AT(const int, rows);
    if (i < n) to[i] = from[(rows ? (ulong)rows[row] : row) * width + j];
}

kernel void positive(PTR(x), PTR(y), const ulong n, const int softplus) {
    const ulong i = get_global_id(0);
    AT(const float, x);
    AT(float, y);
    if (i < n) y[i] = softplus ? softplus_of(x[i]) : exp(x[i]);
}

kernel void limit(PTR(x), const ulong n, const float low, const float high) {
    const ulong i = get_global_id(0);
    AT(float, x);
    if (i < n) x[i] = x[i] < low ? low : x[i] > high ? high : x[i];
}

kernel void log_decay(PTR(A), PTR(dt), PTR(g), const ulong n, const int heads, const int each) {
    const ulong i = get_global_id(0);
    AT(const float, A);
    AT(const float, dt);
    AT(float, g);
    if (i < n) g[i] = -A[i / each % heads] * dt[i];
}

/* A work-item a head, token and pair of channels. */
kernel void rotary(VIEW(x), VIEW(y), PTR(cu), PTR(offsets), PTR(table), const ulong n, const int sequences,
                   const int heads, const int width, const int stride, const float sign) {
    const ulong i = get_global_id(0);
    const int half_of = width / 2, m = i % half_of, h = i / half_of % heads;
    const ulong t = i / half_of / heads;
    AT(const float, x);
    AT(float, y);
    AT(const int, cu);
    AT(const int, offsets);
    AT(const float, table);
    if (i >= n) return;
    const int s = sequence_of(cu, sequences, t);
    const ulong position = t - sequence_begin(cu, s) + (offsets ? offsets[s] : 0);
    const float c = table[position * width + m], sine = sign * table[position * width + half_of + m];
    const ulong at = (ulong)h * stride + m;
    const float x1 = x[t * x_ld + at], x2 = x[t * x_ld + at + half_of];
    y[t * y_ld + at] = x1 * c - x2 * sine;
    y[t * y_ld + at + half_of] = x2 * c + x1 * sine;
}

/* Raw input of a channel at token t of a sequence; t < 0 lies in its window. */
static float raw_input(global const float *x, ulong ld, global const float *window, int taps, int channels, int from,
                       int t, int c) {
    if (t >= 0) return x[(ulong)(from + t) * ld + c];
    return window ? window[(ulong)(taps - 1 + t) * channels + c] : 0.0f;
}

/* A work-item a token and channel, of tokens first .. of sequences that are counted from cu's first entry. */
kernel void conv(VIEW(x), VIEW(y), PTR(w), PTR(bias), PTR(cu), PTR(window), PTR(windows), const ulong n,
                 const int first, const int sequences, const int channels, const int taps, const int linear) {
    const ulong i = get_global_id(0);
    const int t = first + (int)(i / channels), c = i % channels;
    AT(const float, x);
    AT(float, y);
    AT(const float, w);
    AT(const float, bias);
    AT(const int, cu);
    AT(const ulong, windows);
    if (i >= n) return;
    const int s = cu ? sequence_of(cu, sequences, t) : t - first, from = cu ? cu[s] : t;
    global const float *own = windows ? (global const float *)(window_base + windows[s]) : (global const float *)0;
    float u = bias ? bias[c] : 0.0f;
    for (int k = 0; k < taps; k++)
        u = fma(w[c * taps + k], raw_input(x, x_ld, own, taps, channels, from, t - from - (taps - 1) + k, c), u);
    y[(ulong)t * y_ld + c] = linear ? u : silu_of(u);
}

/* The last inputs become the windows: a work-item a sequence and channel. keep: windows that stay as they are. */
kernel void conv_window(VIEW(x), PTR(cu), PTR(window), PTR(windows), PTR(keep), const ulong n, const int first,
                        const int fresh, const int channels, const int taps) {
    const ulong i = get_global_id(0);
    const int s = i / channels, c = i % channels;
    float next[16];
    AT(const float, x);
    AT(const int, cu);
    AT(const ulong, windows);
    AT(const uchar, keep);
    if (i >= n || (keep && keep[s])) return;
    global float *own = (global float *)(window_base + windows[s]);
    const int from = cu ? cu[s] : first + s, length = cu ? cu[s + 1] - cu[s] : 1;
    for (int k = 0; k < taps - 1; k++)
        next[k] = raw_input(x, x_ld, fresh ? (global const float *)0 : own, taps, channels, from,
                            length - (taps - 1) + k, c);
    for (int k = 0; k < taps - 1; k++) own[(ulong)k * channels + c] = next[k];
}

/* A group a row. */
kernel void cross_entropy(VIEW(x), VIEW(dx), PTR(labels), PTR(nll), PTR(best), const int vocab, const float scale,
                          const int ignored, local float *most, local int *where, local float *sums) {
    const ulong row = get_group_id(0);
    const int id = get_local_id(0);
    AT(const float, x);
    AT(float, dx);
    AT(const int, labels);
    AT(float, nll);
    AT(int, best);
    global const float *own = x + row * x_ld;
    const int label = labels[row];
    float largest = -INFINITY, sum = 0, lost = 0;
    int at = vocab;
    for (int j = id; j < vocab; j += ITEMS)
        if (own[j] > largest) largest = own[j], at = j;
    most[id] = largest, where[id] = at;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_of = ITEMS / 2; half_of > 0; half_of /= 2) { /* the first of those that are equal */
        if (id < half_of) {
            const float other = most[id + half_of];
            if (other > most[id] || (other == most[id] && where[id + half_of] < where[id]))
                most[id] = other, where[id] = where[id + half_of];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    largest = most[0];
    for (int j = id; j < vocab; j += ITEMS) add_exactly(exp(own[j] - largest), &sum, &lost);
    sum = sum_of_group(sum, sums);
    if (id == 0) {
        best[row] = where[0] < vocab ? where[0] : 0;
        nll[row] = label == ignored ? 0.0f : log(sum) + largest - own[label];
    }
    if (!dx) return;
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE); /* dx may lie on x, whose label was read */
    for (int j = id; j < vocab; j += ITEMS)
        dx[row * dx_ld + j] = label == ignored ? 0.0f : scale * (exp(own[j] - largest) / sum - (j == label ? 1.0f : 0.0f));
}
