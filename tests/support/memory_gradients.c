/* SPDX-License-Identifier: MIT */
/* The harness's check of gradients against differences of a loss in float64, and that loss for rules whose memory is
 * one matrix. */
#include <math.h>

#include "base/alloc.h"
#include "support/memory_harness.h"

static double *doubles_of(const float *x, size_t n) {
    double *d = pal_alloc(n ? n : 1, sizeof *d);
    for (size_t i = 0; i < n; i++) d[i] = (double)x[i];
    return d;
}

/* Central differences at up to 20 elements of x, against what backward gave. */
static void check_differences(const memory_case *c, const memory_doubles *all, const char *what, double *x,
                              const float *grad, size_t count, pal_rng *rng) {
    enum { MOST = 20 };
    float found[MOST], expected[MOST];
    const size_t most = MOST / (size_t)memory_fewer(), tries = count < most ? count : most;
    const double scale = test_largest(grad, count);
    for (size_t i = 0; i < tries; i++) {
        const size_t at = tries == count ? i : pal_rng_below(rng, (uint32_t)count);
        const double kept = x[at], h = 1e-5 * fmax(1, fabs(kept));
        x[at] = kept + h;
        const double above = c->subject->loss(c, all);
        x[at] = kept - h;
        const double below = c->subject->loss(c, all);
        x[at] = kept;
        expected[i] = (float)((above - below) / (2 * h));
        found[i] = grad[at];
    }
    for (size_t i = 0; i < tries; i++) {
        const double diff = fabs((double)found[i] - (double)expected[i]),
                     accept = 10 * memory_accept_grad(c->subject) * scale + 1e-7;
        if (!(diff <= accept))
            fail_msg("%s: gradient of %s is %g, differences give %g (largest %g)", c->rule->name, what,
                     (double)found[i], (double)expected[i], scale);
    }
}

void memory_check_gradients(void **given) {
    const memory_subject *subject = *given;
    static const struct {
        int n, heads, key_heads, dk, dv;
        int lengths[2];
        double forgetting;
    } shapes[] = {
        { 1, 1, 1, 3, 2, { 5 }, 1 },     { 2, 4, 2, 5, 7, { 1, 9 }, 1 },   { 1, 2, 1, 4, 66, { 40 }, 0.2 },
        { 2, 1, 1, 9, 3, { 35, 3 }, 8 }, { 1, 1, 1, 40, 40, { 67 }, 0.2 },
    };
    pal_rng rng = pal_rng_at(19, 0);
    for (size_t s = 0; s < PAL_COUNT(shapes); s++)
        for (TEST_LEVELS(level))
            for (int initial = 0; initial < 2; initial++) {
                memory_case *c = memory_case_new(subject, shapes[s].n, shapes[s].lengths, shapes[s].heads,
                                                 shapes[s].key_heads, shapes[s].dk, shapes[s].dv, initial,
                                                 shapes[s].forgetting, &rng);
                pal_context *cx = test_context(1, pal_cpu_level_name(level));
                memory_result *r = memory_run_case(c, cx, 0, true);
                memory_doubles x = { { NULL }, { NULL } };
                for (int i = 0; i < MEMORY_INPUTS; i++)
                    if (c->input[i]) x.input[i] = doubles_of(c->input[i], c->count[i]);
                for (int p = 0; p < 2 && c->initial[p]; p++)
                    x.initial[p] = doubles_of(c->initial[p], (size_t)c->shape.sequences * c->part[p]);
                for (int i = 0; i < MEMORY_INPUTS; i++)
                    if (c->input[i])
                        check_differences(c, &x, memory_fields[i].name, x.input[i], r->grad[i], c->count[i], &rng);
                for (int p = 0; p < 2 && c->initial[p]; p++)
                    check_differences(c, &x, c->rule->parts[p], x.initial[p], r->dinitial[p],
                                      (size_t)c->shape.sequences * c->part[p], &rng);
                for (int i = 0; i < MEMORY_INPUTS; i++) pal_free(x.input[i]);
                for (int p = 0; p < 2; p++) pal_free(x.initial[p]);
                memory_result_free(r);
                pal_context_free(cx);
                memory_case_free(c);
            }
}

/* Numbers a head of an input. */
static size_t head_width(const memory_case *c, int input) {
    switch (pal_memory_input_list[input].width) {
    case PAL_PER_KEY:
    case PAL_PER_OWN_KEY: return (size_t)c->shape.dk;
    case PAL_PER_PAIR: return ((size_t)c->shape.dk + 1) / 2;
    case PAL_PER_VALUE: return (size_t)c->shape.dv;
    case PAL_PER_ELEMENT: return (size_t)c->shape.dv * (size_t)c->shape.dk;
    default: return 1;
    }
}

static memory_token token_at(const memory_case *c, const memory_doubles *x, size_t t, size_t h) {
    memory_token token = { .more = NULL };
    for (int i = 0; i < MEMORY_INPUTS; i++) {
        if (!x->input[i]) continue;
        const bool shared = pal_memory_input_list[i].width == PAL_PER_KEY;
        const size_t head = shared ? h * (size_t)c->shape.key_heads / (size_t)c->shape.heads : h;
        token.input[i] = x->input[i] + t * c->channels[i] + head * head_width(c, i);
    }
    return token;
}

double memory_matrix_loss(const memory_case *c, const memory_doubles *x, memory_change *change) {
    const size_t H = (size_t)c->shape.heads, dk = (size_t)c->shape.dk, dv = (size_t)c->shape.dv, many = c->part[1] / H;
    double sum = 0, *S = pal_alloc(dv * dk, sizeof *S), *more = pal_alloc(many + 1, sizeof *more);
    for (size_t n = 0; n < (size_t)c->shape.sequences; n++)
        for (size_t h = 0; h < H; h++) {
            const size_t part = (n * H + h) * dv * dk, second = (n * H + h) * many;
            const double prior = x->input[MEMORY_IP] ? 1 / x->input[MEMORY_IP][h] : 0;
            for (size_t e = 0; e < dv * dk; e++) S[e] = x->initial[0] ? x->initial[0][part + e] : 0;
            for (size_t e = 0; e < many; e++) more[e] = x->initial[1] ? x->initial[1][second + e] : prior;
            for (size_t t = (size_t)c->cu[n]; t < (size_t)c->cu[n + 1]; t++) {
                memory_token token = token_at(c, x, t, h);
                token.more = more;
                change(S, &token, dk, dv);
                for (size_t i = 0; i < dv; i++) {
                    double y = 0;
                    for (size_t j = 0; j < dk; j++) y += S[i * dk + j] * (double)c->scale * token.input[MEMORY_Q][j];
                    sum += y * (double)c->dy[(t * H + h) * dv + i];
                    for (size_t j = 0; c->dy_var && j < dk; j++)
                        sum += (double)c->dy_var[(t * H + h) * dv + i] * more[many > 1 ? j : 0] *
                               pow((double)c->scale * token.input[MEMORY_Q][j], 2);
                }
            }
            for (size_t e = 0; e < dv * dk; e++) sum += S[e] * (double)c->dfinal[0][part + e];
            for (size_t e = 0; e < many; e++) sum += more[e] * (double)c->dfinal[1][second + e];
        }
    pal_free(S);
    pal_free(more);
    return sum;
}
