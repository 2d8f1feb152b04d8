/* SPDX-License-Identifier: MIT */
/* The Palimpsa rule against recorded float64 numbers and against itself: whole, split and stepped, packed and separate,
 * in rows of wider matrices, at every CPU level and with any number of threads. */
#include <dirent.h>
#include <math.h>

#include "base/alloc.h"
#include "support/memory_harness.h"
#include "support/palimpsa_problem.h"

static const char *const input_names[INPUTS] = { "in.q",   "in.k",  "in.v",  "in.b",      "in.dt",    "in.A",   "in.Ip",
                                                 "in.mu0", "in.I0", "in.dy", "in.dy_var", "in.dmu_T", "in.dI_T" };

/* A golden file as a problem. */
static problem problem_from(const pal_safetensors *file, const char *path) {
    problem p = { 0 };
    const pal_tensor *q = pal_safetensors_find(file, "in.q"), *v = pal_safetensors_find(file, "in.v");
    const pal_tensor *cu = pal_safetensors_find(file, "in.cu_seqlens");
    if (!q || !v || q->rank != 4) fail_msg("%s: not a case of this rule", path);
    p.H = p.G = (int)q->shape[2], p.dk = (int)q->shape[3], p.dv = (int)v->shape[3];
    p.T = (int)(q->shape[0] * q->shape[1]);
    p.N = cu ? (int)cu->count - 1 : (int)q->shape[0];
    p.cu = malloc(((size_t)p.N + 1) * sizeof *p.cu);
    for (int n = 0; n <= p.N; n++) {
        int64_t at = n * q->shape[1];
        if (cu) memcpy(&at, (const char *)cu->data + (size_t)n * sizeof at, sizeof at); /* data need not be aligned */
        p.cu[n] = (int)at;
    }
    for (int i = 0; i < INPUTS; i++) {
        const pal_tensor *t = pal_safetensors_find(file, input_names[i]);
        if (!t) continue;
        assert_int_equal(t->count, problem_input_count(&p, i));
        p.in[i] = test_guarded(t->count);
        pal_error err;
        if (pal_tensor_to_f32(t, p.in[i], &err)) fail_msg("%s: %s", path, err.text);
    }
    const pal_tensor *scale = pal_safetensors_find(file, "in.scale");
    assert_non_null(scale);
    memcpy(&p.scale, scale->data, sizeof p.scale);
    return p;
}

static int check_golden_file(const char *path) {
    pal_safetensors *file;
    pal_error err;
    int checked = 0;
    if (pal_safetensors_open(&file, path, &err)) fail_msg("%s", err.text);
    problem p = problem_from(file, path);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        outcome o = outcome_new(&p);
        problem_run(cx, &p, (wanted){ .backward = true, .variance = true }, &o);
        for (int r = 0; r < RESULTS; r++) {
            const pal_tensor *t = pal_safetensors_find(file, problem_results[r].name);
            if (!t || !problem_has(&p, r)) continue;
            assert_int_equal(t->count, problem_result_count(&p, r));
            double *ref = malloc(t->count * sizeof *ref);
            memcpy(ref, t->data, t->count * sizeof *ref);
            const double found = test_nmax_f64(o.x[r], ref, t->count);
            if (getenv("PALIMPSA_TEST_VERBOSE"))
                print_message("%-40s %-7s %-10s %.2e of %.0e\n", strrchr(path, '/') + 1, pal_cpu_level_name(level),
                              problem_results[r].name, found, problem_results[r].accept);
            if (!(found <= problem_results[r].accept))
                fail_msg("%s, %s, %s: error %.3g, accepted %.3g", path, pal_cpu_level_name(level),
                         problem_results[r].name, found, problem_results[r].accept);
            free(ref);
            checked++;
        }
        outcome_free(&p, &o);
        pal_context_free(cx);
    }
    problem_free(&p);
    pal_safetensors_close(file);
    return checked;
}

static int check_golden_folder(const char *folder) {
    char path[4096];
    int files = 0;
    DIR *dir = opendir(folder);
    if (!dir) fail_msg("%s: cannot be opened", folder);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strncmp(e->d_name, "palimpsa_", 9) != 0 || !strstr(e->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        assert_true(check_golden_file(path) >= 10);
        files++;
    }
    closedir(dir);
    return files;
}

static void golden_cases_hold_at_every_level(void **state) {
    (void)state;
    assert_true(check_golden_folder(PAL_TEST_GOLDEN "/ops") >= 10);
    const char *more = getenv("PALIMPSA_GOLDEN");
    if (!more || !*more) return;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/ops", more);
    assert_true(check_golden_folder(folder) >= 1);
}

static void outcome_same(const char *what, const problem *p, const outcome *o, const outcome *ref, wanted want) {
    for (int r = 0; r < RESULTS; r++) {
        if (!problem_has(p, r) || (r >= DQ && !want.backward) || (r == Y_VAR && !want.variance)) continue;
        char name[128];
        snprintf(name, sizeof name, "%s, dk %d dv %d: %s", what, p->dk, p->dv, problem_results[r].name);
        test_same_bits(name, o->x[r], ref->x[r], problem_result_count(p, r));
    }
}

/* Tokens from..to-1 of the only sequence, continuing from its memory: as a forward, or as steps. */
static void run_piece(const pal_context *cx, const problem *p, memories *m, int from, int to, bool steps, outcome *o) {
    const int end = steps ? from + 1 : to;
    for (int t = from; t < to; t += end - from) {
        int cu[2] = { 0, end - from };
        pal_memory_run run = problem_inputs(p);
        pal_error err = { 0 };
        const size_t at = (size_t)t;
        size_t floats;
        run.shape.tokens = cu[1];
        run.shape.cu_seqlens = steps ? NULL : cu;
        run.in.q.data += at * run.in.q.stride, run.in.k.data += at * run.in.k.stride,
            run.in.dt.data += at * run.in.dt.stride;
        run.in.v.data += at * run.in.v.stride, run.in.b.data += at * run.in.b.stride;
        run.y = out_rows(o->x[Y] + at * (size_t)(p->H * p->dv), p->H * p->dv);
        run.y_var = out_rows(o->x[Y_VAR] + at * (size_t)(p->H * p->dv), p->H * p->dv);
        run.state = m->state;
        run.fresh = t == 0 && !p->in[IN_MU0];
        float *scratch = palimpsa_scratch(cx, &run.shape, steps ? PAL_STEP : PAL_FORWARD, &floats);
        run.scratch = scratch;
        if ((steps ? pal_memory_step : pal_memory_forward)(&pal_rule_palimpsa, cx, &run, &err))
            fail_msg("%s", err.text);
        test_guarded_free(scratch, floats);
    }
}

static void split_at_random_equals_whole(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(35, 1);
    for (int c = 0; c < test_cases(30, 1000); c++) {
        recipe r = recipe_usual(&rng);
        r.N = 1, r.length = draw(&rng, 1, 100), r.adt_hi = c % 3 ? 1 : 30;
        problem p = problem_new(&rng, r);
        twin w = twin_new(&p);
        twin_run(&p, &w, (wanted){ .variance = true });
        outcome o = outcome_new(&p);
        memories m = memories_new(&p);
        for (int from = 0; from < p.T;) { /* every piece at a level of its own: a memory serves at any */
            const pal_cpu_level level = (pal_cpu_level)draw(&rng, 0, (int)pal_cpu_detect());
            pal_context *cx = test_context(draw(&rng, 1, 2), pal_cpu_level_name(level));
            const int to = draw(&rng, from + 1, p.T);
            run_piece(cx, &p, &m, from, to, draw(&rng, 0, 1), &o);
            from = to;
            pal_context_free(cx);
        }
        memories_export(&p, &m, &o);
        outcome_check("split", &p, &o, &w, (wanted){ .variance = true }, 0);
        memories_free(&p, &m);
        outcome_free(&p, &o);
        twin_free(&w);
        problem_free(&p);
    }
}

static void packed_equals_separate(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(36, 1);
    for (int c = 0; c < test_cases(8, 100); c++) {
        problem p = problem_new(&rng, (recipe){ .N = 4,
                                                .group = 1,
                                                .initial = true,
                                                .final = true,
                                                .adt_lo = 1e-3,
                                                .adt_hi = 2,
                                                .b_lo = 0.1,
                                                .b_hi = 2 });
        const wanted want = { true, c % 2 };
        for (TEST_LEVELS(level)) {
            pal_context *cx = test_context(1, pal_cpu_level_name(level));
            outcome whole = outcome_new(&p);
            problem_run(cx, &p, want, &whole);
            for (int n = 0; n < p.N; n++) {
                int cu[2] = { 0, p.cu[n + 1] - p.cu[n] };
                problem alone = p;
                alone.N = 1, alone.T = cu[1], alone.cu = cu;
                for (int i = 0; i < INPUTS; i++) {
                    if (i == IN_A || i == IN_IP || !p.in[i]) continue;
                    const bool part = i == IN_MU0 || i == IN_I0 || i == IN_DMU || i == IN_DI;
                    const size_t each = problem_input_count(&alone, i) / (part ? 1 : (size_t)alone.T);
                    alone.in[i] = p.in[i] + (part ? (size_t)n : (size_t)p.cu[n]) * each;
                }
                outcome o = outcome_new(&alone);
                problem_run(cx, &alone, want, &o);
                for (int r = 0; r < RESULTS; r++) {
                    if (r == DA || r == DIP || (r == Y_VAR && !want.variance))
                        continue; /* those two sum over sequences */
                    const bool part = r == MU_T || r == I_T || r == DMU0 || r == DI0;
                    const size_t count = problem_result_count(&alone, r), each = count / (part ? 1 : (size_t)alone.T);
                    test_same_bits(problem_results[r].name, o.x[r],
                                   whole.x[r] + (part ? (size_t)n : (size_t)p.cu[n]) * each, count);
                }
                outcome_free(&alone, &o);
            }
            outcome_free(&p, &whole);
            pal_context_free(cx);
        }
        problem_free(&p);
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    static const recipe shapes[] = {
        { .N = 3, .H = 2, .group = 1, .dk = 16, .dv = 32 },                 /* one block of values */
        { .N = 1, .H = 4, .group = 2, .dk = 9, .dv = 70, .initial = true }, /* shared keys, two blocks, summed
                                                                               afterwards */
        { .N = 17, .H = 2, .group = 2, .dk = 5, .dv = 65, .length = 9 },    /* the same, summed on the way */
        { .N = 1, .H = 1, .group = 1, .dk = 17, .dv = 200, .final = true },
    };
    pal_rng rng = pal_rng_at(37, 1);
    for (size_t c = 0; c < PAL_COUNT(shapes); c++) {
        recipe r = shapes[c];
        r.adt_lo = 1e-3, r.adt_hi = 4, r.b_lo = 0.1, r.b_hi = 2;
        problem p = problem_new(&rng, r);
        for (TEST_LEVELS(level)) {
            const wanted want = { true, level % 2 };
            pal_context *one = test_context(1, pal_cpu_level_name(level));
            outcome ref = outcome_new(&p);
            problem_run(one, &p, want, &ref);
            for (int threads = 2; threads <= 7; threads = threads == 3 ? 7 : threads + 1) {
                pal_context *cx = test_context(threads, pal_cpu_level_name(level));
                outcome o = outcome_new(&p);
                problem_run(cx, &p, want, &o);
                outcome_same("threads", &p, &o, &ref, want);
                outcome_free(&p, &o);
                pal_context_free(cx);
            }
            outcome_free(&p, &ref);
            pal_context_free(one);
        }
        problem_free(&p);
    }
}

/* Rows inside a wider matrix give the same bits, leave their neighbours alone, and gradients not wanted are not
 * written. */
static void views_into_wider_rows_work(void **state) {
    (void)state;
    enum { GAP = 5 };
    pal_rng rng = pal_rng_at(39, 1);
    problem p = problem_new(
        &rng,
        (recipe){
            .N = 2, .H = 2, .group = 2, .dk = 11, .dv = 21, .adt_lo = 1e-3, .adt_hi = 1, .b_lo = 0.1, .b_hi = 2 });
    const wanted want = { true, true };
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        outcome ref = outcome_new(&p);
        problem_run(cx, &p, want, &ref);
        const int keys = p.G * p.dk, outputs = p.H * p.dv, T = p.T;
        pal_memory_run run = problem_inputs(&p);
        pal_error err = { 0 };
        size_t forward, backward, saved_floats = pal_memory_saved_floats(&pal_rule_palimpsa, &run.shape);
        float *wide[7], *saved = test_guarded(saved_floats);
        const int channels[7] = { outputs, outputs, keys, keys, outputs, outputs, p.H };
        for (int i = 0; i < 7; i++) wide[i] = test_guarded((size_t)(T * (channels[i] + GAP)));
        run.y = out_rows(wide[0], outputs + GAP), run.y_var = out_rows(wide[1], outputs + GAP);
        run.saved = saved;
        run.scratch = palimpsa_scratch(cx, &run.shape, PAL_FORWARD, &forward);
        if (pal_memory_forward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        test_guarded_free(run.scratch, forward);
        run.scratch = palimpsa_scratch(cx, &run.shape, PAL_BACKWARD, &backward);
        run.dy = rows(p.in[IN_DY], outputs), run.dy_var = rows(p.in[IN_DY_VAR], outputs);
        run.grad.dt = out_rows(wide[6], p.H + GAP);
        run.grad.k = out_rows(wide[3], keys + GAP);
        if (pal_memory_backward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        run.grad = (pal_memory_gradients){ .q = out_rows(wide[2], keys + GAP),
                                           .v = out_rows(wide[4], outputs + GAP),
                                           .b = out_rows(wide[5], outputs + GAP) };
        if (pal_memory_backward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        test_guarded_free(run.scratch, backward);
        static const int which[7] = { Y, Y_VAR, DQ, DK, DV, DB, DDT };
        for (int i = 0; i < 7; i++) {
            for (int t = 0; t < T; t++) {
                const float *row = wide[i] + t * (channels[i] + GAP);
                test_same_bits(problem_results[which[i]].name, row, ref.x[which[i]] + t * channels[i],
                               (size_t)channels[i]);
                for (int g = 0; g < GAP; g++) assert_true(isnan(row[channels[i] + g]));
            }
            test_guarded_free(wide[i], (size_t)(T * (channels[i] + GAP)));
        }
        test_guarded_free(saved, saved_floats);
        outcome_free(&p, &ref);
        pal_context_free(cx);
    }
    problem_free(&p);
}

static void nothing_is_allocated(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(40, 1);
    problem p = problem_new(&rng, (recipe){ .N = 2,
                                            .H = 2,
                                            .group = 1,
                                            .dk = 8,
                                            .dv = 80,
                                            .initial = true,
                                            .final = true,
                                            .adt_lo = 1e-3,
                                            .adt_hi = 1,
                                            .b_lo = 0.1,
                                            .b_hi = 2 });
    outcome o = outcome_new(&p), again = outcome_new(&p);
    memories m = memories_new(&p);
    pal_context *cx = test_context(2, NULL);
    const uint64_t before = pal_alloc_count();
    problem_run(cx, &p, (wanted){ true, true }, &o);
    int cu[2] = { 0, 1 };
    problem one = p;
    one.N = one.T = 1, one.cu = cu;
    run_piece(cx, &one, &m, 0, 1, true, &again);
    assert_int_equal(pal_alloc_count() - before, 0);
    pal_context_free(cx);
    memories_free(&p, &m);
    outcome_free(&p, &o);
    outcome_free(&p, &again);
    problem_free(&p);
}

static void export_gives_back_what_import_took(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(41, 1);
    problem p = problem_new(&rng, (recipe){ .N = 3, .dk = 5, .dv = 19, .initial = true, .adt_lo = 1, .adt_hi = 1 });
    outcome o = outcome_new(&p);
    memories m = memories_new(&p);
    memories_export(&p, &m, &o);
    test_same_bits("I", o.x[I_T], p.in[IN_I0], problem_input_count(&p, IN_I0));
    test_near("mu", o.x[MU_T], p.in[IN_MU0], problem_input_count(&p, IN_MU0), 2e-7);
    memories_free(&p, &m);
    outcome_free(&p, &o);
    problem_free(&p);
}

static const memory_subject palimpsa = { .rule = "palimpsa" };

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_cases_hold_at_every_level),
        cmocka_unit_test(split_at_random_equals_whole),
        cmocka_unit_test(packed_equals_separate),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(views_into_wider_rows_work),
        cmocka_unit_test(nothing_is_allocated),
        MEMORY_TEST(palimpsa, starts_from_nothing_when_asked, memory_check_starts),
        cmocka_unit_test(export_gives_back_what_import_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
