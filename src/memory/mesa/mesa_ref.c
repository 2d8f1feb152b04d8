/* SPDX-License-Identifier: MIT */
/* Mesa in plain C: reads like the formulas of README.md and is what the vector kernels are checked against. Memories
 * are single precision as everywhere; the systems are solved in double. */
#include <math.h>
#include <string.h>

#include "memory/mesa/mesa.h"

/* One system (H + diag(lam)) z = b and room to solve it. */
typedef struct {
    int dk;
    double *A, *z, *r, *p, *Ap; /* (dk, dk) and vectors (dk) */
} mesa_system;

static mesa_system system_in(float *scratch, int dk) {
    double *block = (double *)(void *)scratch;
    const size_t n = (size_t)dk;
    return (mesa_system){ dk, block, block + n * n, block + n * n + n, block + n * n + 2 * n, block + n * n + 3 * n };
}

static size_t system_floats(int dk) { return 2 * ((size_t)dk * (size_t)dk + 4 * (size_t)dk); }

static void fill(mesa_system *s, const float *H, const float *lam) {
    const size_t n = (size_t)s->dk;
    for (size_t j = 0; j < n; j++)
        for (size_t m = 0; m < n; m++)
            s->A[j * n + m] = (double)H[j > m ? j * n + m : m * n + j] + (j == m ? (double)lam[j] : 0.0);
}

/* z = A^-1 z, A is replaced by its factor. */
static void solve_cholesky(mesa_system *s) {
    const size_t n = (size_t)s->dk;
    double *A = s->A, *z = s->z;
    for (size_t j = 0; j < n; j++)
        for (size_t m = 0; m <= j; m++) {
            const double start = A[j * n + m];
            double sum = start;
            for (size_t p = 0; p < m; p++) sum -= A[j * n + p] * A[m * n + p];
            if (j != m) A[j * n + m] = sum / A[m * n + m];
            else
                A[j * n + m] = sum <= PAL_MESA_PIVOT * start ? INFINITY
                                                             : sqrt(sum); /* infinite: the direction is left out */
        }
    for (size_t j = 0; j < n; j++) {
        for (size_t p = 0; p < j; p++) z[j] -= A[j * n + p] * z[p];
        z[j] /= A[j * n + j];
    }
    for (size_t j = n; j-- > 0;) {
        for (size_t p = j + 1; p < n; p++) z[j] -= A[p * n + j] * z[p];
        z[j] /= A[j * n + j];
    }
}

/* z = A^-1 z by conjugate gradient, preconditioned with A's diagonal, until |r| <= tolerance |b|. */
static void solve_gradient(mesa_system *s, double tolerance) {
    const size_t n = (size_t)s->dk;
    const double *A = s->A;
    double *z = s->z, *r = s->r, *p = s->p, *Ap = s->Ap;
    double rr = 0, rz = 0;
    for (size_t j = 0; j < n; j++) {
        r[j] = z[j];
        z[j] = 0;
        p[j] = r[j] / A[j * n + j];
        rr += r[j] * r[j];
        rz += r[j] * p[j];
    }
    const double enough = tolerance * tolerance * rr;
    for (int round = 0; round < pal_mesa_rounds(s->dk) && rr > enough; round++) {
        double pAp = 0;
        for (size_t j = 0; j < n; j++) {
            Ap[j] = 0;
            for (size_t m = 0; m < n; m++) Ap[j] += A[j * n + m] * p[m];
            pAp += p[j] * Ap[j];
        }
        const double alpha = rz / pAp, before = rz;
        rr = rz = 0;
        for (size_t j = 0; j < n; j++) {
            z[j] += alpha * p[j];
            r[j] -= alpha * Ap[j];
            rr += r[j] * r[j];
            rz += r[j] * r[j] / A[j * n + j];
        }
        for (size_t j = 0; j < n; j++) p[j] = r[j] / A[j * n + j] + rz / before * p[j];
    }
    for (size_t j = 0; j < n && !isfinite(enough); j++) z[j] = NAN; /* b holds NaN or infinity: no round ran */
}

static void solve(mesa_system *s, const pal_mesa_head *head, const float *H) {
    fill(s, H, head->lam);
    if (head->tolerance > 0) solve_gradient(s, (double)head->tolerance);
    else solve_cholesky(s);
}

static void copy_memory(float *to, const float *from, size_t n) {
    if (from) memcpy(to, from, n * sizeof *to);
    else memset(to, 0, n * sizeof *to);
}

static size_t memory_floats(const pal_mesa_head *p) { return (size_t)p->dk * (size_t)(p->dk + p->dv); }

static void update(const pal_mesa_head *p, size_t t, float *memory) {
    const size_t dk = (size_t)p->dk, dv = (size_t)p->dv;
    const float *k = p->k.data + t * p->k.stride, *v = p->v.data + t * p->v.stride;
    const double a = exp((double)p->g.data[t * p->g.stride]), beta = (double)p->beta.data[t * p->beta.stride];
    float *H = memory, *G = memory + dk * dk;
    for (size_t j = 0; j < dk; j++) {
        for (size_t m = 0; m <= j; m++)
            H[j * dk + m] = H[m * dk + j] = (float)(a * (double)H[j * dk + m] + beta * (double)k[j] * (double)k[m]);
        for (size_t i = 0; i < dv; i++)
            G[j * dv + i] = (float)(a * (double)G[j * dv + i] + beta * (double)v[i] * (double)k[j]);
    }
}

static void token(const pal_mesa_head *p, size_t t, float *memory, mesa_system *s) {
    const size_t dk = (size_t)p->dk, dv = (size_t)p->dv;
    update(p, t, memory);
    for (size_t j = 0; j < dk; j++) s->z[j] = (double)p->scale * (double)p->q.data[t * p->q.stride + j];
    solve(s, p, memory);
    for (size_t i = 0; i < dv; i++) {
        double sum = 0;
        for (size_t j = 0; j < dk; j++) sum += (double)memory[dk * dk + j * dv + i] * s->z[j];
        p->y.data[t * p->y.stride + i] = (float)sum;
    }
    for (size_t j = 0; j < dk && p->x.data; j++) p->x.data[t * p->x.stride + j] = (float)s->z[j];
}

void pal_mesa_step_ref(const pal_mesa_head *heads, int count) {
    mesa_system s = system_in(heads->scratch, heads->dk);
    for (int l = 0; l < count; l++) token(&heads[l], 0, heads[l].final, &s);
}

void pal_mesa_forward_ref(const pal_mesa_head *p) {
    const size_t n = memory_floats(p);
    mesa_system s = system_in(p->scratch, p->dk);
    float *memory = p->scratch + system_floats(p->dk);
    copy_memory(memory, p->initial, n);
    for (size_t t = 0; t < (size_t)p->tokens; t++) {
        if (p->saved && t % PAL_MESA_CHUNK == 0)
            memcpy(p->saved + t / PAL_MESA_CHUNK * p->between, memory, n * sizeof *memory);
        token(p, t, memory, &s);
    }
    if (p->final) memcpy(p->final, memory, n * sizeof *memory);
}

/* Through one token: memories before and after it; d is the gradient of the memory after it (dG laid out (dk, dv), dH
 * not symmetric), replaced by that before it. */
static void token_backward(const pal_mesa_head *p, size_t t, const float *before, const float *after, float *d,
                           mesa_system *s) {
    const size_t dk = (size_t)p->dk, dv = (size_t)p->dv;
    const float *k = p->k.data + t * p->k.stride, *v = p->v.data + t * p->v.stride;
    const float *x = p->x.data + t * p->x.stride, *dy = p->dy.data + t * p->dy.stride;
    const double a = exp((double)p->g.data[t * p->g.stride]), beta = (double)p->beta.data[t * p->beta.stride];
    float *dH = d, *dG = d + dk * dk;
    double *w = s->z;
    for (size_t j = 0; j < dk; j++) {
        w[j] = 0;
        for (size_t i = 0; i < dv; i++) w[j] += (double)after[dk * dk + j * dv + i] * (double)dy[i];
    }
    solve(s, p, after);
    double da = 0, dbeta = 0;
    for (size_t j = 0; j < dk; j++) {
        p->dlam[j] -= w[j] * (double)x[j];
        for (size_t m = 0; m < dk; m++) dH[j * dk + m] -= (float)(w[j] * (double)x[m]);
        for (size_t i = 0; i < dv; i++) dG[j * dv + i] += dy[i] * x[j];
    }
    for (size_t j = 0; j < dk; j++) {
        double along = 0; /* of (dH + dH^T) k and dG^T v */
        for (size_t m = 0; m < dk; m++) {
            along += ((double)dH[j * dk + m] + (double)dH[m * dk + j]) * (double)k[m];
            da += (double)dH[j * dk + m] * (double)before[j * dk + m];
            dbeta += (double)k[j] * (double)dH[j * dk + m] * (double)k[m];
        }
        for (size_t i = 0; i < dv; i++) {
            along += (double)dG[j * dv + i] * (double)v[i];
            da += (double)dG[j * dv + i] * (double)before[dk * dk + j * dv + i];
            dbeta += (double)v[i] * (double)dG[j * dv + i] * (double)k[j];
        }
        if (p->dk_rows.data)
            p->dk_rows.data[t * p->dk_rows.stride + j] = (p->add ? p->dk_rows.data[t * p->dk_rows.stride + j] : 0) +
                                                         (float)(beta * along);
        if (p->dq.data)
            p->dq.data[t * p->dq.stride + j] = (p->add ? p->dq.data[t * p->dq.stride + j] : 0) +
                                               (float)((double)p->scale * w[j]);
    }
    for (size_t i = 0; i < dv && p->dv_rows.data; i++) {
        double sum = 0;
        for (size_t j = 0; j < dk; j++) sum += (double)dG[j * dv + i] * (double)k[j];
        p->dv_rows.data[t * p->dv_rows.stride + i] = (float)(beta * sum);
    }
    if (p->dbeta.data) p->dbeta.data[t * p->dbeta.stride] = (float)dbeta;
    if (p->dg.data) p->dg.data[t * p->dg.stride] = (float)(a * da);
    for (size_t e = 0; e < memory_floats(p); e++) d[e] = (float)(a * (double)d[e]);
}

void pal_mesa_backward_ref(const pal_mesa_head *p) {
    const size_t dk = (size_t)p->dk, dv = (size_t)p->dv, n = memory_floats(p), chunk = PAL_MESA_CHUNK;
    mesa_system s = system_in(p->scratch, p->dk);
    float *d = p->scratch + system_floats(p->dk), *memory = d + n; /* memory: those around each token of a chunk */
    memset(p->dlam, 0, dk * sizeof *p->dlam);
    copy_memory(d, p->dfinal_H, dk * dk);
    for (size_t j = 0; j < dk; j++)
        for (size_t i = 0; i < dv; i++) d[dk * dk + j * dv + i] = p->dfinal_G ? p->dfinal_G[i * dk + j] : 0.0f;
    for (size_t first = ((size_t)p->tokens - 1) / chunk * chunk;; first -= chunk) {
        const size_t count = (size_t)p->tokens - first < chunk ? (size_t)p->tokens - first : chunk;
        memcpy(memory, p->saved + first / chunk * p->between, n * sizeof *memory);
        for (size_t t = 0; t < count; t++) {
            memcpy(memory + (t + 1) * n, memory + t * n, n * sizeof *memory);
            update(p, first + t, memory + (t + 1) * n);
        }
        for (size_t t = count; t-- > 0;) token_backward(p, first + t, memory + t * n, memory + (t + 1) * n, d, &s);
        if (first == 0) break;
    }
    if (p->dinitial_H) memcpy(p->dinitial_H, d, dk * dk * sizeof *d);
    for (size_t i = 0; i < dv && p->dinitial_G; i++)
        for (size_t j = 0; j < dk; j++) p->dinitial_G[i * dk + j] = d[dk * dk + j * dv + i];
}
