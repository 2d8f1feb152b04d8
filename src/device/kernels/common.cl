/* SPDX-License-Identifier: MIT */
/* What all kernels begin with. OpenCL C 1.2 with nothing optional: no subgroups, halves only as storage, no doubles, no
 * atomics. A kernel is given a buffer and where in it its numbers begin, in bytes. */
#define NONE (~(ulong)0)
#define PTR(name)  global char *name##_base, const ulong name##_at
#define VIEW(name) global char *name##_base, const ulong name##_at, const ulong name##_ld
#define AT(type, name) \
    global type *const name = name##_at == NONE ? (global type *)0 : (global type *)(name##_base + name##_at)

#define ITEMS 64 /* of a group, unless a kernel says otherwise */

static float sigmoid_of(float x) {
    const float e = exp(-fabs(x));
    return (x >= 0 ? 1.0f : e) / (1.0f + e);
}
static float softplus_of(float x) { return fmax(x, 0.0f) + log1p(exp(-fabs(x))); }
static float silu_of(float x) { return x * sigmoid_of(x); }
static float silu_slope(float x) {
    const float s = sigmoid_of(x);
    return s * (1.0f + x * (1.0f - s));
}

/* The sum over a group of ITEMS; every item gets it, and `sums` may be written again. */
static float sum_of_group(float x, local float *sums) {
    const int id = get_local_id(0);
    sums[id] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_of = ITEMS / 2; half_of > 0; half_of /= 2) {
        if (id < half_of) sums[id] += sums[id + half_of];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float sum = sums[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

/* The packed sequence that holds a token; cu none: one token a sequence. */
static int sequence_of(global const int *cu, int sequences, int token) {
    int low = 0, high = sequences;
    if (!cu) return token;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (cu[middle] <= token) low = middle;
        else high = middle;
    }
    return low;
}
static int sequence_begin(global const int *cu, int n) { return cu ? cu[n] : n; }

/* x + y with what rounding lost so far. */
static void add_exactly(float x, float *sum, float *lost) {
    const float y = x - *lost, t = *sum + y;
    *lost = (t - *sum) - y;
    *sum = t;
}
