/* SPDX-License-Identifier: MIT */
#include "support/memory_harness.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"

static double accept_out(const memory_subject *s) { return s->accept_out > 0 ? s->accept_out : 5e-6; }

enum { SAME_BITS = -1 };

/* least: size below which a few numbers that all come out near zero, by cancellation, are not compared with their own
 * size. */
static void compare_few(const memory_case *c, const char *how, const char *name, const float *x, const float *ref,
                        size_t count, double accept, double least) {
    char what[256];
    if (!x || !ref) return;
    snprintf(what, sizeof what, "%s, %s, %s, N %d T %d H %d/%d dk %d dv %d", c->rule->name, how, name,
             c->shape.sequences, c->shape.tokens, c->shape.heads, c->shape.key_heads, c->shape.dk, c->shape.dv);
    if (accept < 0) {
        test_same_bits(what, x, ref, count);
        return;
    }
    enum { FEW = 16 };
    const double largest = count < FEW ? test_largest(ref, count) : 0;
    const double near_zero = count < FEW && largest > 0 && largest < least ? least / largest : 1;
    test_near(what, x, ref, count, (accept + memory_longest(c) * 0x1p-24) * near_zero);
}

/* Inputs are of size 1, and so are most results. */
static void compare_one(const memory_case *c, const char *how, const char *name, const float *x, const float *ref,
                        size_t count, double accept) {
    compare_few(c, how, name, x, ref, count, accept, 0.1);
}

/* Compares all that both results have. */
static void compare(const memory_case *c, const char *how, const memory_result *x, const memory_result *ref, double out,
                    double grad) {
    const size_t outputs = (size_t)c->shape.tokens * (size_t)c->shape.heads * (size_t)c->shape.dv,
                 N = (size_t)c->shape.sequences;
    compare_one(c, how, "y", x->y, ref->y, outputs, out);
    compare_one(c, how, "y_var", x->y_var, ref->y_var, outputs, out);
    for (int p = 0; p < 2 && c->part[p]; p++) {
        compare_one(c, how, c->rule->parts[p], x->final[p], ref->final[p], N * c->part[p], out);
        compare_one(c, how, "gradient of the initial memory", x->dinitial[p], ref->dinitial[p], N * c->part[p], grad);
    }
    /* A parameter's gradient is a sum of such numbers over tokens and values; its error is that of the terms. */
    const double many = sqrt((double)outputs / (double)c->shape.heads);
    for (int i = 0; i < MEMORY_INPUTS; i++)
        compare_few(c, how, memory_fields[i].name, x->grad[i], ref->grad[i], c->count[i], grad,
                    memory_fields[i].parameter ? 0.1 * many : 0.1);
}

static int random_case_lengths(pal_rng *rng, int lengths[4], int most) {
    const int n = 1 + (int)pal_rng_below(rng, 4);
    for (int i = 0; i < n; i++) lengths[i] = 1 + (int)pal_rng_below(rng, (uint32_t)most);
    return n;
}
static double random_forgetting(pal_rng *rng) {
    static const double strengths[] = { 0, 1e-3, 0.1, 1, 1, 1, 30 };
    return strengths[pal_rng_below(rng, (uint32_t)PAL_COUNT(strengths))];
}
static memory_case *random_case(const memory_subject *subject, pal_rng *rng, int most_tokens) {
    static const int sizes[] = { 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40 };
    int lengths[4];
    const int n = random_case_lengths(rng, lengths, most_tokens);
    const int key_heads = 1 + (int)pal_rng_below(rng, 3), heads = key_heads * (1 + (int)pal_rng_below(rng, 2));
    const int dk = sizes[pal_rng_below(rng, (uint32_t)PAL_COUNT(sizes))],
              dv = sizes[pal_rng_below(rng, (uint32_t)PAL_COUNT(sizes))];
    return memory_case_new(subject, n, lengths, heads, key_heads, dk, dv, pal_rng_below(rng, 2), random_forgetting(rng),
                           rng);
}

static int campaign(int quick) { return getenv("PALIMPSA_TEST_LONG") ? 1000 : quick / memory_fewer(); }

void memory_check_splits(void **given) {
    const memory_subject *subject = *given;
    pal_rng rng = pal_rng_at(11, 0);
    pal_context *cx = test_context(
        1, NULL); /* thread counts have their own check, and small pieces would only wait for them */
    for (int i = 0, cases = campaign(30); i < cases; i++) {
        memory_case *c = random_case(subject, &rng, 150);
        memory_result *whole = memory_run_case(c, cx, 0, false), *pieces = memory_run_pieces(c, cx, i % 3 == 0, &rng);
        compare(c, i % 3 == 0 ? "steps against whole" : "pieces against whole", pieces, whole, accept_out(subject), 0);
        memory_result_free(whole);
        memory_result_free(pieces);
        memory_case_free(c);
    }
    pal_context_free(cx);
}

void memory_check_levels(void **given) {
    const memory_subject *subject = *given;
    static const struct {
        int n, heads, key_heads, dk, dv;
        int lengths[3];
    } fixed[] = {
        { 1, 1, 1, 1, 1, { 1 } },
        { 1, 1, 1, 1, 1, { 3 } },
        { 2, 1, 1, 2, 3, { 1, 2 } },
        { 1, 2, 2, 7, 9, { 33 } },
        { 3, 3, 3, 16, 32, { 31, 32, 97 } },
        { 1, 2, 2, 48, 96, { 130 } },
        { 1, 1, 1, 17, 130, { 70 } },
        { 2, 4, 2, 65, 33, { 64, 65 } },
        { 1, 1, 1, 130, 70, { 66 } },
    };
    pal_rng rng = pal_rng_at(12, 0);
    pal_context *ref = test_context(1, "ref");
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t i = 0; i < PAL_COUNT(fixed) + (size_t)campaign(20); i++) {
            memory_case *c = i < PAL_COUNT(fixed) ? memory_case_new(subject, fixed[i].n, fixed[i].lengths,
                                                                    fixed[i].heads, fixed[i].key_heads, fixed[i].dk,
                                                                    fixed[i].dv, i % 2, random_forgetting(&rng), &rng)
                                                  : random_case(subject, &rng, 100);
            memory_result *x = memory_run_case(c, cx, (int)(i % 4), true), *exact = memory_run_case(c, ref, 0, true);
            compare(c, pal_cpu_level_name(level), x, exact, accept_out(subject), memory_accept_grad(subject));
            memory_result_free(x);
            memory_result_free(exact);
            memory_case_free(c);
        }
        pal_context_free(cx);
    }
    pal_context_free(ref);
}

void memory_check_forgetting(const memory_subject *subject, const double (*strengths)[2], size_t count,
                             float key_length) {
    static const int lengths[] = { 67, 5 };
    pal_rng rng = pal_rng_at(31, 0);
    pal_context *ref = test_context(1, "ref");
    for (TEST_LEVELS(level))
        for (size_t i = 0; i < count; i++) {
            memory_case *c = memory_case_new(subject, 2, lengths, 2, 2, 9, 12, true, 1, &rng);
            pal_context *cx = test_context(2, pal_cpu_level_name(level));
            for (size_t j = 0; j < c->count[MEMORY_K]; j++) c->input[MEMORY_K][j] *= key_length;
            for (size_t j = 0; j < c->count[MEMORY_G]; j++)
                c->input[MEMORY_G][j] = -(float)strengths[i][pal_rng_below(&rng, 2)];
            for (size_t j = 0; j < c->count[MEMORY_GK]; j++)
                c->input[MEMORY_GK][j] = -(float)strengths[i][pal_rng_below(&rng, 2)];
            memory_result *x = memory_run_case(c, cx, 0, true), *expected = memory_run_case(c, ref, 0, true);
            test_near("y", x->y, expected->y, (size_t)c->shape.tokens * 24, 5e-6);
            test_near("S", x->final[0], expected->final[0], 2 * c->part[0], 5e-6);
            for (int input = 0; input < MEMORY_INPUTS; input++)
                if (c->input[input])
                    test_near("a gradient", x->grad[input], expected->grad[input], c->count[input], 1e-5);
            test_near("the gradient of S0", x->dinitial[0], expected->dinitial[0], 2 * c->part[0], 1e-5);
            memory_result_free(x);
            memory_result_free(expected);
            pal_context_free(cx);
            memory_case_free(c);
        }
    pal_context_free(ref);
}

/* Masks write gates like -1e30. Such a token forgets everything before it, and every other gate keeps its meaning. */
static void strengthen(memory_case *c, float strength, pal_rng *rng) {
    static const int at[] = { 0, 40, 41, 69, 70, 75 }; /* the first token of each sequence among them */
    for (int i = MEMORY_DT; i <= MEMORY_G; i++)
        for (size_t j = 0; c->input[i] && j < PAL_COUNT(at); j++)
            for (size_t h = 0; h < c->channels[i]; h++)
                if (pal_rng_below(rng, 4))
                    c->input[i][(size_t)at[j] * c->channels[i] + h] = i == MEMORY_G ? -strength : strength;
}

void memory_check_strong_gates(void **given) {
    const memory_subject *subject = *given;
    static const float strengths[] = { 1e4f, 1e9f, 1e12f, 1e15f, 1e30f, FLT_MAX };
    static const int lengths[] = { 70, 130 };
    static const double forgetting[] = { 1e-3, 1 };
    pal_rng rng = pal_rng_at(33, 0);
    pal_context *ref = test_context(1, "ref");
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t i = 0; i < PAL_COUNT(strengths) * PAL_COUNT(forgetting); i++) {
            memory_case *c = memory_case_new(subject, 2, lengths, 2, 2, 9, 12, true,
                                             forgetting[i % PAL_COUNT(forgetting)], &rng);
            strengthen(c, strengths[i / PAL_COUNT(forgetting)], &rng);
            memory_result *x = memory_run_case(c, cx, 0, true), *exact = memory_run_case(c, ref, 0, true),
                          *steps = memory_run_pieces(c, cx, true, &rng);
            compare(c, pal_cpu_level_name(level), x, exact, accept_out(subject), memory_accept_grad(subject));
            compare(c, "steps", steps, exact, accept_out(subject), 0);
            memory_result_free(x);
            memory_result_free(steps);
            memory_result_free(exact);
            memory_case_free(c);
        }
        pal_context_free(cx);
    }
    pal_context_free(ref);
}

void memory_check_threads(void **given) {
    const memory_subject *subject = *given;
    static const int threads[] = { 2, 3, 7 };
    pal_rng rng = pal_rng_at(13, 0);
    for (int i = 0; i < 9 / memory_fewer(); i++) {
        memory_case *c = random_case(subject, &rng, 150);
        pal_context *one = test_context(1, NULL);
        memory_result *expected = memory_run_case(c, one, 0, true);
        pal_rng cuts = pal_rng_at(14, (uint64_t)i);
        memory_result *steps = memory_run_pieces(c, one, false, &cuts);
        for (size_t j = 0; j < PAL_COUNT(threads); j++) {
            pal_context *cx = test_context(threads[j], NULL);
            memory_result *x = memory_run_case(c, cx, 0, true);
            compare(c, "threads", x, expected, SAME_BITS, SAME_BITS);
            memory_result_free(x);
            cuts = pal_rng_at(14, (uint64_t)i);
            x = memory_run_pieces(c, cx, false, &cuts);
            compare(c, "threads, pieces", x, steps, SAME_BITS, SAME_BITS);
            memory_result_free(x);
            pal_context_free(cx);
        }
        memory_result_free(expected);
        memory_result_free(steps);
        pal_context_free(one);
        memory_case_free(c);
    }
}

/* Sequence n of c as its own case. */
static memory_case *one_sequence(const memory_case *c, size_t n) {
    const size_t begin = (size_t)c->cu[n], outputs = (size_t)c->shape.heads * (size_t)c->shape.dv;
    const int length = c->cu[n + 1] - c->cu[n];
    memory_case *one = memory_case_of_shape(c->subject, 1, &length, c->shape.heads, c->shape.key_heads, c->shape.dk,
                                            c->shape.dv);
    one->scale = c->scale;
    one->mesa_tolerance = c->mesa_tolerance;
    one->shape.context = c->shape.context; /* the size of a cache, which is a part's */
    for (int i = 0; i < MEMORY_INPUTS; i++)
        if (c->input[i]) memcpy(one->input[i], c->input[i] + begin * c->channels[i], one->count[i] * sizeof(float));
    memcpy(one->dy, c->dy + begin * outputs, (size_t)length * outputs * sizeof(float));
    if (c->dy_var) memcpy(one->dy_var, c->dy_var + begin * outputs, (size_t)length * outputs * sizeof(float));
    for (int p = 0; p < 2 && c->part[p]; p++) {
        one->part[p] = c->part[p];
        if (c->subject->cache) continue;
        memcpy(one->dfinal[p], c->dfinal[p] + n * c->part[p], c->part[p] * sizeof(float));
        if (!c->initial[p]) continue;
        one->initial[p] = memory_floats(c->part[p]);
        memcpy(one->initial[p], c->initial[p] + n * c->part[p], c->part[p] * sizeof(float));
    }
    return one;
}

void memory_check_packed(void **given) {
    const memory_subject *subject = *given;
    pal_rng rng = pal_rng_at(15, 0);
    pal_context *cx = test_context(1, NULL);
    for (int round = 0; round < 10; round++) {
        memory_case *c = random_case(subject, &rng, 100);
        const size_t outputs = (size_t)c->shape.heads * (size_t)c->shape.dv;
        memory_result *packed = memory_run_case(c, cx, 0, true), *joined = pal_alloc(1, sizeof *joined);
        joined->y = memory_floats((size_t)c->shape.tokens * outputs);
        if (packed->y_var) joined->y_var = memory_floats((size_t)c->shape.tokens * outputs);
        for (int i = 0; i < MEMORY_INPUTS; i++)
            if (c->input[i]) joined->grad[i] = memory_floats(c->count[i]);
        for (int p = 0; p < 2 && c->part[p]; p++) {
            joined->final[p] = memory_floats((size_t)c->shape.sequences * c->part[p]);
            if (c->initial[p]) joined->dinitial[p] = memory_floats((size_t)c->shape.sequences * c->part[p]);
        }
        for (size_t n = 0; n < (size_t)c->shape.sequences; n++) {
            memory_case *one = one_sequence(c, n);
            memory_result *r = memory_run_case(one, cx, 0, true);
            const size_t begin = (size_t)c->cu[n], tokens = (size_t)one->shape.tokens;
            memcpy(joined->y + begin * outputs, r->y, tokens * outputs * sizeof(float));
            if (r->y_var) memcpy(joined->y_var + begin * outputs, r->y_var, tokens * outputs * sizeof(float));
            for (int i = 0; i < MEMORY_INPUTS; i++) {
                if (!c->input[i]) continue;
                if (c->channels[i])
                    memcpy(joined->grad[i] + begin * c->channels[i], r->grad[i], one->count[i] * sizeof(float));
                else
                    for (size_t j = 0; j < c->count[i]; j++) joined->grad[i][j] += r->grad[i][j];
            }
            for (int p = 0; p < 2 && c->part[p]; p++) {
                memcpy(joined->final[p] + n * c->part[p], r->final[p], c->part[p] * sizeof(float));
                if (c->initial[p])
                    memcpy(joined->dinitial[p] + n * c->part[p], r->dinitial[p], c->part[p] * sizeof(float));
            }
            memory_result_free(r);
            memory_case_free(one);
        }
        compare(c, "packed against separate", packed, joined, 1e-6, memory_accept_grad(subject));
        memory_result_free(packed);
        memory_result_free(joined);
        memory_case_free(c);
    }
    pal_context_free(cx);
}

/* q of a token, or q, k and v. */
static void poison(memory_case *c, bool all, size_t token, float value) {
    for (int i = MEMORY_Q; i <= (all ? MEMORY_V : MEMORY_Q); i++)
        for (size_t e = 0; e < c->channels[i]; e++) c->input[i][token * c->channels[i] + e] = value;
}

/* One step of all sequences at once: y (N, H*dv). */
static float *step_together(const memory_case *c, const pal_context *cx) {
    const size_t outputs = (size_t)c->shape.heads * (size_t)c->shape.dv, n = (size_t)c->shape.sequences;
    memory_buffers set = { .used = 0 };
    pal_memory_run run = { .shape = c->shape };
    pal_error err;
    int *past = pal_alloc(n, sizeof *past);
    memory_set_inputs(&run, c, &set, 0);
    float **state = memory_make_states(c, &run.in, &set), *y = memory_floats(n * outputs);
    run.state = state;
    run.past = past;
    run.y = (pal_view){ y, outputs };
    run.scratch = memory_take_scratch(&set, c->rule->scratch_bytes(cx, &run.shape, PAL_STEP));
    memory_must(pal_memory_step(c->rule, cx, &run, &err), &err);
    memory_release(&set);
    pal_free(past);
    pal_free(state);
    return y;
}

static void same_but_for(const char *what, const float *x, const float *y, size_t outputs, size_t rows, size_t bad) {
    test_same_bits(what, x, y, bad * outputs);
    test_same_bits(what, x + (bad + 1) * outputs, y + (bad + 1) * outputs, (rows - bad - 1) * outputs);
}

void memory_check_neighbours(void **given) {
    const memory_subject *subject = *given;
    static const int ones[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, lengths[] = { 70 };
    enum { SEQUENCES = 9, BAD = 3, TOKEN = 20, HEADS = 4, DV = 20 };
    const size_t outputs = HEADS * DV;
    for (TEST_LEVELS(level)) {
        pal_rng rng = pal_rng_at(17, 0);
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (int huge = 0; huge < 2; huge++) {
            const float value = huge ? 1e21f : NAN;
            memory_case *c = memory_case_new(subject, SEQUENCES, ones, HEADS, 2, 9, DV, !subject->cache, 1, &rng);
            float *clean = step_together(c, cx);
            poison(c, !huge, BAD, value);
            float *y = step_together(c, cx);
            same_but_for("a step's neighbours", y, clean, outputs, SEQUENCES, BAD);
            for (size_t i = 0; i < outputs; i++)
                if (isnan(value) != isnan(y[BAD * outputs + i]))
                    fail_msg("y of %g is %g", (double)value, (double)y[BAD * outputs + i]);
            pal_free(clean);
            pal_free(y);
            memory_case_free(c);

            c = memory_case_new(subject, 1, lengths, HEADS, 2, 9, DV, !subject->cache, 1, &rng);
            memory_result *before = memory_run_case(c, cx, 0, false);
            poison(c, false, TOKEN, value); /* a query is read and forgotten */
            memory_result *after = memory_run_case(c, cx, 0, false);
            same_but_for("tokens around a query", after->y, before->y, outputs, 70, TOKEN);
            for (size_t i = TOKEN * outputs; i < (TOKEN + 1) * outputs; i++)
                if (isnan(value) != isnan(after->y[i]))
                    fail_msg("y of %g is %g", (double)value, (double)after->y[i]);
            memory_result_free(after);
            memory_result_free(before);
            memory_case_free(c);
        }
        pal_context_free(cx);
    }
}

void memory_check_groups(void **given) {
    const memory_subject *subject = *given;
    static const int lengths[] = { 37, 70 };
    enum { HEADS = 6, GROUPS = 2, EACH = HEADS / GROUPS };
    pal_rng rng = pal_rng_at(16, 0);
    pal_context *cx = test_context(2, NULL);
    memory_case *shared = memory_case_new(subject, 2, lengths, HEADS, GROUPS, 9, 20, true, 1, &rng);
    memory_case *repeated = memory_case_of_shape(subject, 2, lengths, HEADS, HEADS, 9, 20);
    const size_t T = (size_t)shared->shape.tokens;
    for (int i = 0; i < MEMORY_INPUTS; i++) {
        if (!shared->input[i]) continue;
        if (shared->count[i] == repeated->count[i]) {
            memcpy(repeated->input[i], shared->input[i], shared->count[i] * sizeof(float));
            continue;
        }
        const size_t width = shared->channels[i] / GROUPS;
        for (size_t t = 0; t < T; t++)
            for (size_t h = 0; h < HEADS; h++)
                memcpy(repeated->input[i] + (t * HEADS + h) * width, shared->input[i] + (t * GROUPS + h / EACH) * width,
                       width * sizeof(float));
    }
    memcpy(repeated->dy, shared->dy, T * HEADS * 20 * sizeof(float));
    if (shared->dy_var) memcpy(repeated->dy_var, shared->dy_var, T * HEADS * 20 * sizeof(float));
    for (int p = 0; p < 2 && shared->part[p] && shared->part[p] == repeated->part[p]; p++) {
        memcpy(repeated->dfinal[p], shared->dfinal[p], 2 * shared->part[p] * sizeof(float));
        repeated->initial[p] = memory_floats(2 * shared->part[p]);
        memcpy(repeated->initial[p], shared->initial[p], 2 * shared->part[p] * sizeof(float));
    }
    for (TEST_LEVELS(level)) {
        pal_context *at = test_context(2, pal_cpu_level_name(level));
        memory_result *x = memory_run_case(shared, at, 0, true), *expected = memory_run_case(repeated, at, 0, true);
        for (int i = 0; i < MEMORY_INPUTS; i++) {
            if (!shared->input[i] || shared->count[i] == repeated->count[i]) continue;
            const size_t width = shared->channels[i] / GROUPS;
            float *sum = memory_floats(shared->count[i]);
            for (size_t t = 0; t < T; t++)
                for (size_t h = 0; h < HEADS; h++)
                    for (size_t j = 0; j < width; j++)
                        sum[(t * GROUPS + h / EACH) * width + j] += expected->grad[i][(t * HEADS + h) * width + j];
            pal_free(expected->grad[i]);
            expected->grad[i] = sum;
        }
        for (int p = 0; p < 2 && subject->cache; p++) { /* one of them keeps each key several times */
            pal_free(expected->final[p]);
            expected->final[p] = NULL;
        }
        compare(shared, "shared keys", x, expected, 1e-6, 2e-6);
        memory_result_free(x);
        memory_result_free(expected);
        pal_context_free(at);
    }
    memory_case_free(shared);
    memory_case_free(repeated);
    pal_context_free(cx);
}

void memory_check_optional(void **given) {
    const memory_subject *subject = *given;
    static const int lengths[] = { 41 };
    pal_rng rng = pal_rng_at(17, 0);
    for (int groups = 1; groups <= 2; groups++)
        for (TEST_LEVELS(level)) {
            memory_case *c = memory_case_new(subject, 1, lengths, 2, groups, 8, 40, false, 1, &rng);
            pal_context *cx = test_context(1, pal_cpu_level_name(level));
            memory_result *all = memory_run_case(c, cx, 0, true);
            for (int i = 0; i < MEMORY_INPUTS; i++) {
                if (!c->input[i]) continue;
                memory_result *x = memory_run_wanting(c, cx, 0, true, ~(1u << i)),
                              *only = memory_run_wanting(c, cx, 0, true, 1u << i);
                compare(c, "without one gradient", x, all, SAME_BITS, SAME_BITS);
                compare(c, "with one gradient", only, all, SAME_BITS, SAME_BITS);
                memory_result_free(x);
                memory_result_free(only);
            }
            memory_result_free(all);
            pal_context_free(cx);
            memory_case_free(c);
        }
}

/* One token a sequence: a fresh start in used memories gives the bits of a start from default ones. */
static void check_fresh_step(const memory_subject *subject, pal_rng *rng) {
    static const int lengths[] = { 1, 1, 1 }, used[] = { 1, 1, 1 };
    memory_case *c = memory_case_new(subject, 3, lengths, 4, 2, 9, 70, false, 1, rng);
    c->shape.context = 2;
    const size_t outputs = (size_t)c->shape.heads * (size_t)c->shape.dv, floats_each = c->rule->state_floats(&c->shape);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        memory_buffers set = { .used = 0 };
        pal_memory_run run = { .shape = c->shape };
        pal_error err;
        float *fresh[3], *reset[3];
        memory_set_inputs(&run, c, &set, 0);
        run.scratch = memory_take_scratch(&set, c->rule->scratch_bytes(cx, &c->shape, PAL_STEP));
        for (int n = 0; n < 3; n++) {
            fresh[n] = memory_take(&set, floats_each); /* full of NaN */
            reset[n] = memory_take(&set, floats_each);
            c->rule->reset(&c->shape, &run.in, reset[n]);
        }
        run.state = reset;
        run.y = memory_guard_output(&set, 3, outputs, 0);
        memory_must(pal_memory_step(c->rule, cx, &run, &err), &err);
        const float *expected = run.y.data;
        run.state = fresh;
        run.fresh = true;
        run.past = used;
        run.y = memory_guard_output(&set, 3, outputs, 0);
        memory_must(pal_memory_step(c->rule, cx, &run, &err), &err);
        test_same_bits("y of a fresh step", run.y.data, expected, 3 * outputs);
        for (int n = 0; n < 3 && !subject->cache; n++)
            test_same_bits("memory after a fresh step", fresh[n], reset[n], floats_each);
        memory_release(&set);
        pal_context_free(cx);
    }
    memory_case_free(c);
}

void memory_check_starts(void **given) {
    const memory_subject *subject = *given;
    static const int lengths[] = { 3, 40 };
    pal_rng rng = pal_rng_at(21, 0);
    memory_case *c = memory_case_new(subject, 2, lengths, 2, 2, 9, 20, false, 1, &rng);
    const size_t outputs = (size_t)c->shape.heads * (size_t)c->shape.dv;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        memory_result *expected = memory_run_case(c, cx, 0, false);
        for (int kept = 0; kept < 2; kept++) {
            memory_buffers set = { .used = 0 };
            pal_memory_run run = { .shape = c->shape, .fresh = true };
            pal_error err;
            float *state[2] = { NULL, NULL };
            memory_result r = { .y = NULL };
            memory_set_inputs(&run, c, &set, 0);
            for (int n = 0; n < 2; n++)
                state[n] = memory_take(&set, c->rule->state_floats(&c->shape)); /* full of NaN */
            if (kept) run.state = state;
            run.y = memory_guard_output(&set, c->shape.tokens, outputs, 0);
            if (c->rule->has_variance) run.y_var = memory_guard_output(&set, c->shape.tokens, outputs, 0);
            run.scratch = memory_take_scratch(&set, c->rule->scratch_bytes(cx, &c->shape, PAL_FORWARD));
            memory_must(pal_memory_forward(c->rule, cx, &run, &err), &err);
            r.y = run.y.data;
            r.y_var = run.y_var.data;
            if (kept && !subject->cache) memory_read_states(c, &run.in, state, r.final);
            compare(c, kept ? "a fresh start in used memories" : "no memories", &r, expected, SAME_BITS, SAME_BITS);
            for (int p = 0; p < 2; p++) pal_free(r.final[p]);
            memory_release(&set);
        }
        memory_result_free(expected);
        pal_context_free(cx);
    }
    memory_case_free(c);
    check_fresh_step(subject, &rng);
}

void memory_check_no_allocation(void **given) {
    const memory_subject *subject = *given;
    static const int lengths[] = { 20, 50 };
    pal_rng rng = pal_rng_at(18, 0);
    memory_case *c = memory_case_new(subject, 2, lengths, 2, 1, 12, 20, true, 1, &rng);
    const size_t outputs = (size_t)c->shape.heads * (size_t)c->shape.dv;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        memory_buffers set = { .used = 0 };
        pal_memory_run run = { .shape = c->shape };
        pal_error err;
        memory_set_inputs(&run, c, &set, 0);
        float **state = memory_make_states(c, &run.in, &set);
        run.state = state;
        run.y = memory_guard_output(&set, c->shape.tokens, outputs, 0);
        run.saved = memory_take(&set, c->rule->saved_floats(&c->shape));
        run.scratch = memory_take_scratch(&set, c->rule->scratch_bytes(cx, &c->shape, PAL_FORWARD));
        uint64_t before = pal_alloc_count();
        memory_must(pal_memory_forward(c->rule, cx, &run, &err), &err);
        assert_int_equal(pal_alloc_count() - before, 0);
        run.scratch = memory_take_scratch(&set, c->rule->scratch_bytes(cx, &c->shape, PAL_BACKWARD));
        run.dy = memory_guard_rows(&set, c->dy, c->shape.tokens, outputs, 0);
        before = pal_alloc_count();
        memory_must(pal_memory_backward(c->rule, cx, &run, &err), &err);
        assert_int_equal(pal_alloc_count() - before, 0);
        run.shape.tokens = run.shape.sequences;
        run.scratch = memory_take_scratch(&set, c->rule->scratch_bytes(cx, &run.shape, PAL_STEP));
        before = pal_alloc_count();
        memory_must(pal_memory_step(c->rule, cx, &run, &err), &err);
        assert_int_equal(pal_alloc_count() - before, 0);
        memory_release(&set);
        pal_free(state);
        pal_context_free(cx);
    }
    memory_case_free(c);
}
