/* SPDX-License-Identifier: MIT */
/* Memories of keys by values that forget by one factor a head: Palimpsa (RULE 1)
 *
 *     M_t = a_t M_{t-1} + v k'      I_t = a_t I_{t-1} + (1-a_t) Ip + b (k^2)'      y = s (M/I) q      a_t = exp(-A dt)
 *
 * the gated linear memory S_t = a_t S_{t-1} + v k', y = s S q, a_t = exp(g) (RULE 0), M alone; and the delta rules
 * (RULE 2), which write the error of what the memory holds under the key, with a factor for each key where KEYED:
 *
 *     u = D_t S_{t-1} k, or S_{t-1} k where UNDECAYED      S_t = D_t S_{t-1} + beta (v - u) k'
 *
 * A group owns VB values of one head of one sequence; a work-item owns a tile of RV values by RK keys, whose memory
 * stays in registers while tokens pass one after another. Sums across work-items go through local memory in a fixed
 * order. A step is a forward over one token. Memories lie as src/memory lays them out: key by key, values fastest, with
 * importance in groups of 16 values next to 16 importances. */
#define IMPORTANCE (RULE == 1)
#define DELTA      (RULE == 2)
#ifndef KEYED
#define KEYED 0
#endif
#ifndef UNDECAYED
#define UNDECAYED 0
#endif
#define RV 4
#define RK 4
#define E  (RV * RK)

enum { FRESH = 1, STATE = 2, SAVE = 4, VARIANCE = 8 };

typedef struct {
    int dk, dv, heads, key_heads, tiled;
    int tk, blocks; /* work-items along keys; groups along values */
    int row, head;  /* floats of a key's row, and of a head's memory */
    int sq, sk, sv, sb, st, sy, syv; /* floats between rows */
    int first, chunk; /* sequence; tokens from one saved memory to the next */
    int flags;
    float scale;
} shape;

/* Where a work-item's tile lies. */
typedef struct {
    int id, size, key, value; /* in the group; its first key in the head and value in the block */
    int dkp, h, first_value, key_head;
} place;

static place find_place(const shape *s) {
    place p;
    p.id = get_local_id(0), p.size = get_local_size(0);
    p.key = p.id % s->tk * RK, p.value = p.id / s->tk * RV;
    p.dkp = s->tk * RK;
    p.h = get_group_id(1);
    p.first_value = (int)(get_group_id(0) % s->blocks) * VB;
    p.key_head = s->tiled ? p.h % s->key_heads : (int)((long)p.h * s->key_heads / s->heads);
    return p;
}

static ulong element(const shape *s, int i, int j) {
#if IMPORTANCE
    return (ulong)j * s->row + i / 16 * 32 + i % 16;
#else
    return (ulong)j * s->row + i;
#endif
}

static void load_tile(const shape *s, const place *p, global const float *memory, float other, float *M, float *I) {
    memory += (ulong)p->h * s->head;
    for (int r = 0; r < RV; r++)
        for (int c = 0; c < RK; c++) {
            const int i = p->first_value + p->value + r, j = p->key + c;
            const bool in = i < s->dv && j < s->dk;
            const ulong at = in ? element(s, i, j) : 0;
            M[r * RK + c] = in ? memory[at] : 0.0f;
#if IMPORTANCE
            I[r * RK + c] = in ? memory[at + 16] : other;
#endif
        }
}
static void store_tile(const shape *s, const place *p, global float *memory, const float *M, const float *I) {
    memory += (ulong)p->h * s->head;
    for (int r = 0; r < RV; r++)
        for (int c = 0; c < RK; c++) {
            const int i = p->first_value + p->value + r, j = p->key + c;
            if (i >= s->dv || j >= s->dk) continue;
            const ulong at = element(s, i, j);
            memory[at] = M[r * RK + c];
#if IMPORTANCE
            memory[at + 16] = I[r * RK + c];
#endif
        }
}

/* Rows t .. t+n-1 of keys (queries) into local memory, padded with zeros; and of values. All work-items call it. */
static void stage_keys(const shape *s, const place *p, global const float *x, int stride, int t, int n, float factor,
                       local float *to) {
    for (int o = p->id; o < n * p->dkp; o += p->size) {
        const int u = o / p->dkp, j = o % p->dkp;
        to[o] = j < s->dk ? factor * x[(ulong)(t + u) * stride + (ulong)p->key_head * s->dk + j] : 0.0f;
    }
}
static void stage_values(const shape *s, const place *p, global const float *x, int stride, int t, int n,
                         local float *to) {
    for (int o = p->id; o < n * VB; o += p->size) {
        const int u = o / VB, i = p->first_value + o % VB;
        to[o] = i < s->dv ? x[(ulong)(t + u) * stride + (ulong)p->h * s->dv + i] : 0.0f;
    }
}
/* Decays, and what the prior gives back: (1 - a) Ip. */
static void stage_decays(const shape *s, const place *p, global const float *forget, float A, float Ip, int t, int n,
                         local float *a, local float *c) {
    for (int u = p->id; u < n; u += p->size) {
        const float g = forget ? forget[(ulong)(t + u) * s->st + p->h] : 0.0f;
#if IMPORTANCE
        const float x = -A * g;
        c[u] = -expm1(x) * Ip;
#else
        const float x = g;
#endif
        a[u] = exp(x);
    }
}

/* One token through a tile. */
static void advance(const place *p, local const float *k, local const float *v, local const float *b, float a, float c,
                    float *M, float *I) {
    for (int r = 0; r < RV; r++)
        for (int j = 0; j < RK; j++) {
            const int e = r * RK + j;
            const float key = k[p->key + j];
            M[e] = fma(a, M[e], v[p->value + r] * key);
#if IMPORTANCE
            I[e] = fma(a, I[e], fma(b[p->value + r], key * key, c));
#endif
        }
}

#if DELTA
/* One token through a tile. sums: (tk, VB) what the keys of each work-item hold; error: (VB) beta (v - u). */
static void correct(const shape *s, const place *p, local const float *k, local const float *v, local const float *decay,
                    float a, float beta, local float *sums, local float *error, float *M) {
    for (int r = 0; r < RV; r++) {
        float sum = 0;
        for (int j = 0; j < RK; j++) {
            const float held = UNDECAYED ? 1.0f : KEYED ? decay[p->key + j] : a;
            sum = fma(held * k[p->key + j], M[r * RK + j], sum);
        }
        sums[p->id % s->tk * VB + p->value + r] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = p->id; i < VB; i += p->size) {
        float sum = 0;
        for (int c = 0; c < s->tk; c++) sum += sums[c * VB + i];
        error[i] = beta * (v[i] - sum);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = 0; r < RV; r++)
        for (int j = 0; j < RK; j++) {
            const int e = r * RK + j;
            M[e] = fma(KEYED ? decay[p->key + j] : a, M[e], error[p->value + r] * k[p->key + j]);
        }
}
#endif

/* The first dimension of groups is sequences x blocks of values, the second heads. forget: dt, g, or g of each key.
 * b: the gate of each value, or beta of each head. */
kernel void remember(const shape s, VIEW(q), VIEW(k), VIEW(v), VIEW(b), VIEW(forget), PTR(A), PTR(Ip), PTR(cu),
                     PTR(state), PTR(states), PTR(keep), PTR(saved), VIEW(y), VIEW(y_var), local float *mem) {
    const place p = find_place(&s);
    const int n = get_group_id(0) / s.blocks;
    AT(const float, q);
    AT(const float, k);
    AT(const float, v);
    AT(const float, b);
    AT(const float, forget);
    AT(const float, A);
    AT(const float, Ip);
    AT(const int, cu);
    AT(const ulong, states);
    AT(const uchar, keep);
    AT(float, saved);
    AT(float, y);
    AT(float, y_var);
    const int first = cu ? cu[n] : s.first + n, length = cu ? cu[n + 1] - cu[n] : 1;
    const float prior = Ip ? Ip[p.h] : 0.0f, rate = A ? A[p.h] : 0.0f;
    global float *own = s.flags & STATE ? (global float *)(state_base + states[n]) : (global float *)0;
    local float *lk = mem, *lq = lk + BATCH * p.dkp, *lv = lq + BATCH * p.dkp, *lb = lv + BATCH * VB,
                *la = lb + BATCH * VB, *lc = la + BATCH, *part = lc + BATCH, *part_var = part + BATCH * s.tk * VB;
    float M[E], I[E];
#if DELTA
    local float *sums = part_var, *error = sums + s.tk * VB, *beta = error + VB, *decay = beta + BATCH;
#endif
    if (s.flags & FRESH)
        for (int e = 0; e < E; e++) M[e] = 0, I[e] = prior;
    else load_tile(&s, &p, own, prior, M, I);
    for (int from = 0; from < length; from += BATCH) {
        const int tokens = min(BATCH, length - from), t = first + from;
        if (s.flags & SAVE && from % s.chunk == 0)
            store_tile(&s, &p, saved + (ulong)(first / s.chunk + s.first + n + from / s.chunk) * s.heads * s.head, M, I);
        stage_keys(&s, &p, k, s.sk, t, tokens, 1, lk);
        stage_keys(&s, &p, q, s.sq, t, tokens, s.scale, lq);
        stage_values(&s, &p, v, s.sv, t, tokens, lv);
#if IMPORTANCE
        stage_values(&s, &p, b, s.sb, t, tokens, lb);
#endif
#if DELTA
        for (int u = p.id; u < tokens; u += p.size) beta[u] = b[(ulong)(t + u) * s.sb + p.h];
#endif
#if KEYED
        for (int o = p.id; o < tokens * p.dkp; o += p.size) {
            const int u = o / p.dkp, j = o % p.dkp;
            decay[o] = j < s.dk ? exp(forget[(ulong)(t + u) * s.st + (ulong)p.h * s.dk + j]) : 1.0f;
        }
#else
        stage_decays(&s, &p, forget, rate, prior, t, tokens, la, lc);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int u = 0; u < tokens; u++) {
#if IMPORTANCE
            advance(&p, lk + u * p.dkp, lv + u * VB, lb + u * VB, la[u], lc[u], M, I);
#elif DELTA
            correct(&s, &p, lk + u * p.dkp, lv + u * VB, decay + u * p.dkp, la[u], beta[u], sums, error, M);
#else
            advance(&p, lk + u * p.dkp, lv + u * VB, lb, la[u], 0, M, I);
#endif
            for (int r = 0; r < RV; r++) {
                const int to = (u * s.tk + p.id % s.tk) * VB + p.value + r;
                float sum = 0, sum_var = 0;
                for (int c = 0; c < RK; c++) {
                    const float qc = lq[u * p.dkp + p.key + c];
#if IMPORTANCE
                    const float inverse = 1.0f / I[r * RK + c];
                    sum = fma(qc * M[r * RK + c], inverse, sum);
                    sum_var = fma(qc * qc, inverse, sum_var);
#else
                    sum = fma(qc, M[r * RK + c], sum);
#endif
                }
                part[to] = sum;
                if (s.flags & VARIANCE) part_var[to] = sum_var;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int o = p.id; o < tokens * VB; o += p.size) {
            const int u = o / VB, i = o % VB;
            if (p.first_value + i >= s.dv) continue;
            const ulong channel = (ulong)p.h * s.dv + p.first_value + i;
            float sum = 0, sum_var = 0;
            for (int c = 0; c < s.tk; c++) sum += part[(u * s.tk + c) * VB + i];
            y[(ulong)(t + u) * s.sy + channel] = sum;
            if (!(s.flags & VARIANCE)) continue;
            for (int c = 0; c < s.tk; c++) sum_var += part_var[(u * s.tk + c) * VB + i];
            y_var[(ulong)(t + u) * s.syv + channel] = sum_var;
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* the next tokens' sums go where these were */
    }
    if (own && !(keep && keep[n])) store_tile(&s, &p, own, M, I);
}

/* The default memory with its padding: a work-item a float. */
kernel void start_afresh(PTR(state), PTR(states), PTR(Ip), const ulong n, const ulong floats, const int head) {
    const ulong i = get_global_id(0), at = i % floats;
    AT(const ulong, states);
    AT(const float, Ip);
    if (i >= n) return;
    global float *own = (global float *)(state_base + states[i / floats]);
#if IMPORTANCE
    own[at] = at % 32 < 16 ? 0.0f : Ip[at / head];
#else
    own[at] = 0.0f;
#endif
}
