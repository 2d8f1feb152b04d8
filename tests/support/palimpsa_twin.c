/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "support/palimpsa_problem.h"

twin twin_new(const problem *p) {
    twin w = { 0 };
    for (int i = 0; i < INPUTS; i++) {
        if (!p->in[i]) continue;
        const size_t n = problem_input_count(p, i);
        w.in[i] = malloc(n * sizeof(double));
        for (size_t e = 0; e < n; e++) w.in[i][e] = (double)p->in[i][e];
    }
    for (int r = 0; r < RESULTS; r++) w.x[r] = calloc(problem_result_count(p, r), sizeof(double));
    return w;
}
void twin_free(twin *w) {
    for (int i = 0; i < INPUTS; i++) free(w->in[i]);
    for (int r = 0; r < RESULTS; r++) free(w->x[r]);
}

/* One head of one sequence; history: (T+1, dv, dk) M and the same I, or NULL. */
static void twin_forward(const problem *p, twin *w, int n, int h, double *M, double *I, double *history) {
    const int dk = p->dk, dv = p->dv, g = h / (p->H / p->G);
    const size_t e = (size_t)dk * (size_t)dv, part = ((size_t)n * (size_t)p->H + (size_t)h) * e;
    for (size_t i = 0; i < e; i++) {
        I[i] = w->in[IN_I0] ? w->in[IN_I0][part + i] : w->in[IN_IP][h];
        M[i] = w->in[IN_MU0] ? w->in[IN_MU0][part + i] * I[i] : 0;
    }
    for (int t = p->cu[n]; t < p->cu[n + 1]; t++) {
        const double *q = w->in[IN_Q] + ((size_t)t * (size_t)p->G + (size_t)g) * (size_t)dk,
                     *k = w->in[IN_K] + (q - w->in[IN_Q]);
        const size_t row = ((size_t)t * (size_t)p->H + (size_t)h) * (size_t)dv;
        const double adt = w->in[IN_A][h] * w->in[IN_DT][t * p->H + h], a = exp(-adt),
                     c = -expm1(-adt) * w->in[IN_IP][h];
        if (history) memcpy(history, M, e * sizeof *M), memcpy(history + e, I, e * sizeof *I), history += 2 * e;
        for (int i = 0; i < dv; i++) {
            double y = 0, y_var = 0;
            for (int j = 0; j < dk; j++) {
                const int at = i * dk + j;
                M[at] = a * M[at] + w->in[IN_V][row + (size_t)i] * k[j];
                I[at] = a * I[at] + c + w->in[IN_B][row + (size_t)i] * k[j] * k[j];
                const double sq = (double)p->scale * q[j];
                y += sq * M[at] / I[at];
                y_var += sq * sq / I[at];
            }
            w->x[Y][row + (size_t)i] = y;
            w->x[Y_VAR][row + (size_t)i] = y_var;
        }
    }
    if (history) memcpy(history, M, e * sizeof *M), memcpy(history + e, I, e * sizeof *I);
    for (size_t i = 0; i < e; i++) w->x[MU_T][part + i] = M[i] / I[i], w->x[I_T][part + i] = I[i];
}

static void twin_backward(const problem *p, twin *w, int n, int h, const double *history, bool variance) {
    const int dk = p->dk, dv = p->dv, g = h / (p->H / p->G), length = p->cu[n + 1] - p->cu[n];
    const size_t e = (size_t)dk * (size_t)dv, part = ((size_t)n * (size_t)p->H + (size_t)h) * e;
    const double s = (double)p->scale, A = w->in[IN_A][h], Ip = w->in[IN_IP][h];
    double *dM = calloc(e, sizeof *dM), *dI = calloc(e, sizeof *dI);
    const double *end = history + (size_t)length * 2 * e;
    for (size_t i = 0; i < e; i++) {
        const double dmu = w->in[IN_DMU] ? w->in[IN_DMU][part + i] : 0;
        dM[i] = dmu / end[e + i];
        dI[i] = (w->in[IN_DI] ? w->in[IN_DI][part + i] : 0) - dmu * end[i] / (end[e + i] * end[e + i]);
    }
    for (int t = p->cu[n + 1] - 1; t >= p->cu[n]; t--) {
        const double *before = history + (size_t)(t - p->cu[n]) * 2 * e, *after = before + 2 * e;
        const size_t key = ((size_t)t * (size_t)p->G + (size_t)g) * (size_t)dk,
                     row = ((size_t)t * (size_t)p->H + (size_t)h) * (size_t)dv;
        const double dt = w->in[IN_DT][t * p->H + h], a = exp(-A * dt);
        double da = 0, prior = 0;
        for (int i = 0; i < dv; i++)
            for (int j = 0; j < dk; j++) {
                const int at = i * dk + j;
                const double q = s * w->in[IN_Q][key + (size_t)j], k = w->in[IN_K][key + (size_t)j];
                const double v = w->in[IN_V][row + (size_t)i], b = w->in[IN_B][row + (size_t)i];
                const double dy = w->in[IN_DY][row + (size_t)i],
                             dy_var = variance ? w->in[IN_DY_VAR][row + (size_t)i] : 0;
                const double M = after[at], I = after[e + (size_t)at];
                dM[at] += dy * q / I;
                dI[at] -= dy * q * M / (I * I) + dy_var * q * q / (I * I);
                w->x[DQ][key + (size_t)j] += s * dy * M / I + 2 * s * q * dy_var / I;
                w->x[DK][key + (size_t)j] += dM[at] * v + 2 * k * dI[at] * b;
                w->x[DV][row + (size_t)i] += dM[at] * k;
                w->x[DB][row + (size_t)i] += dI[at] * k * k;
                da += dM[at] * before[at] + dI[at] * (before[e + (size_t)at] - Ip);
                prior += dI[at];
                dM[at] *= a;
                dI[at] *= a;
            }
        w->x[DDT][t * p->H + h] = -A * a * da;
        w->x[DA][h] -= dt * a * da;
        w->x[DIP][h] += -expm1(-A * dt) * prior;
    }
    for (size_t i = 0; i < e; i++) {
        w->x[DMU0][part + i] = dM[i] * history[e + i];
        w->x[DI0][part + i] = dM[i] * history[i] / history[e + i] + dI[i];
        if (!w->in[IN_MU0]) w->x[DIP][h] += dI[i];
    }
    free(dM);
    free(dI);
}

void twin_run(const problem *p, twin *w, wanted want) {
    const size_t e = (size_t)p->dk * (size_t)p->dv;
    double *M = calloc(e, sizeof *M), *I = calloc(e, sizeof *I),
           *history = malloc(((size_t)p->T + 1) * 2 * e * sizeof *history);
    for (int n = 0; n < p->N; n++)
        for (int h = 0; h < p->H; h++) {
            twin_forward(p, w, n, h, M, I, want.backward ? history : NULL);
            if (want.backward) twin_backward(p, w, n, h, history, want.variance);
        }
    free(M);
    free(I);
    free(history);
}

double twin_loss(const problem *p, twin *w) {
    static const int upstream[][2] = { { IN_DY, Y }, { IN_DY_VAR, Y_VAR }, { IN_DMU, MU_T }, { IN_DI, I_T } };
    double loss = 0;
    twin_run(p, w, (wanted){ 0 });
    for (size_t u = 0; u < PAL_COUNT(upstream); u++)
        for (size_t i = 0; w->in[upstream[u][0]] && i < problem_result_count(p, upstream[u][1]); i++)
            loss += w->in[upstream[u][0]][i] * w->x[upstream[u][1]][i];
    return loss;
}

void outcome_check(const char *what, const problem *p, const outcome *o, const twin *w, wanted want, double slack) {
    for (int r = 0; r < RESULTS; r++) {
        if (!problem_has(p, r) || (r >= DQ && !want.backward) || (r == Y_VAR && !want.variance)) continue;
        const double found = test_nmax_f64(o->x[r], w->x[r], problem_result_count(p, r));
        if (!(found <= problem_results[r].accept + slack))
            fail_msg("%s, N %d T %d H %d G %d dk %d dv %d: %s has error %.3g, accepted %.3g", what, p->N, p->T, p->H,
                     p->G, p->dk, p->dv, problem_results[r].name, found, problem_results[r].accept + slack);
    }
}
