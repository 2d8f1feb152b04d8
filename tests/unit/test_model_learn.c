/* SPDX-License-Identifier: MIT */
/* Models of every kind as they learn: gradients are those of the loss. */
#include "support/support.h"

#include <math.h>

#include "base/alloc.h"
#include "model/model.h"
#include "model/state.h"
#include "support/models.h"

enum { V = TEST_VOCAB, LENGTH = 23, MOST_ROWS = 32 /* embedding rows with padding */ };

typedef struct {
    int32_t ids[3 * LENGTH], targets[3 * LENGTH];
    int cu[4];
    pal_batch batch;
} lesson;

static void make_lesson(lesson *l) {
    pal_rng rng = pal_rng_at(31, 0);
    test_ids(l->ids, 3 * LENGTH, V, 9);
    test_ids(l->targets, 3 * LENGTH, V, 10);
    for (int t = 0; t < 3 * LENGTH; t++)
        if (pal_rng_below(&rng, 3) == 0) l->targets[t] = PAL_IGNORE;
    l->cu[0] = 0, l->cu[1] = 1, l->cu[2] = LENGTH + 7, l->cu[3] = 3 * LENGTH;
    l->batch =
        (pal_batch){ .tokens = 3 * LENGTH, .sequences = 3, .ids = l->ids, .cu_seqlens = l->cu, .targets = l->targets };
}

/* Memories that the lesson begins with: of a few tokens each, or none. */
typedef struct {
    pal_work *work; /* one for training takes no states but to learn with */
    pal_state *before[3], *now[3];
} memories;

enum { BEGINS = 1 }; /* this sequence begins with none */

static void make_memories(memories *m, runner *f) {
    int32_t ids[5];
    OK(pal_work_new(&m->work, f->model, f->cx,
                    &(pal_work_options){ .tokens = 3 * LENGTH, .sequences = 3, .loss = true }, err));
    for (int i = 0; i < 3; i++) {
        test_ids(ids, 5, V, 40 + (uint64_t)i);
        OK(pal_state_new(&m->before[i], f->model, 0, err));
        OK(pal_state_new(&m->now[i], f->model, 0, err));
        OK(pal_model_prefill(f->model, m->work, m->before[i], ids, 5, NULL, err));
    }
    pal_state_free(m->before[BEGINS]);
    m->before[BEGINS] = NULL;
}

static pal_state *const *fresh(memories *m) {
    for (int i = 0; i < 3; i++)
        if (m->before[i]) OK(pal_state_copy(m->now[i], m->before[i], err));
        else pal_state_reset(m->now[i]);
    return m->now;
}

static double loss_now(runner *f, const lesson *l, memories *m) {
    float nll[3 * LENGTH];
    pal_loss loss;
    if (m) OK(pal_model_score(f->model, m->work, fresh(m), &l->batch, nll, NULL, &loss, err));
    else OK(pal_model_loss(f->model, f->work, &l->batch, &loss, NULL, err));
    return loss.sum;
}

/* Along a random direction u, (L(p + eu) - L(p - eu)) / 2e is <gradient, u>. */
static void compare_with_differences(bool carried) {
    const pal_work_options options = { .tokens = 3 * LENGTH, .sequences = 3, .training = true };
    for (size_t k = 0; k < test_kind_count; k++) {
        runner f = test_runner(k, PAL_FOR_TRAINING, options);
        if (carried && pal_model_grows(pal_model_config_of(f.model))) {
            test_runner_free(&f);
            continue;
        }
        lesson l;
        memories kept = { 0 }, *m = carried ? &kept : NULL;
        make_lesson(&l);
        if (m) make_memories(m, &f);
        const size_t n = pal_model_flat(f.model);
        float *p = pal_model_flat_parameters(f.model), *g = pal_model_flat_gradients(f.model);
        float *start = pal_alloc(n, sizeof *start), *u = pal_alloc(n, sizeof *u);
        pal_loss loss;
        if (m)
            OK(pal_model_learn_carried(f.model, f.work, (const pal_state *const *)m->before, m->now, &l.batch, 0.5f,
                                       &loss, err));
        else OK(pal_model_learn(f.model, f.work, &l.batch, 0.5f, &loss, NULL, err));
        if (m && !(fabs(loss.sum - loss_now(&f, &l, m)) <= 1e-5 * loss.sum))
            fail_msg("%s: learning and reading on differ in their loss", f.name);
        memcpy(start, p, n * sizeof *p);
        pal_rng rng = pal_rng_at(77, k);
        double slope = 0;
        for (size_t i = 0; i < pal_model_weight_count(f.model); i++) {
            const pal_weight *w = pal_model_weight(f.model, i);
            for (size_t j = w->offset; j < w->offset + w->count; j++) {
                u[j] = w->unused ? 0.0f : (float)pal_rng_normal(&rng);
                slope += 2 * (double)g[j] * (double)u[j];
            }
        }
        double difference[2]; /* at steps e and 2e; together they cancel the third derivative */
        const double e = 1.5e-4;
        for (int d = 0; d < 2; d++) {
            const double by = e * (1 + d);
            for (size_t i = 0; i < n; i++) p[i] = start[i] + (float)by * u[i];
            const double up = loss_now(&f, &l, m);
            for (size_t i = 0; i < n; i++) p[i] = start[i] - (float)by * u[i];
            difference[d] = (up - loss_now(&f, &l, m)) / (2 * by);
        }
        const double best = (4 * difference[0] - difference[1]) / 3;
        if (!(fabs(best - slope) <= 2e-3 * fabs(slope) + 0.1))
            fail_msg("%s: slope %.6g, differences %.6g", f.name, slope, best);
        assert_true(loss.count > 10);
        for (int i = 0; m && i < 3; i++) pal_state_free(m->before[i]), pal_state_free(m->now[i]);
        if (m) pal_work_free(m->work);
        pal_free(start);
        pal_free(u);
        test_runner_free(&f);
    }
}

static void gradients_match_differences_in_a_random_direction(void **state) {
    (void)state;
    compare_with_differences(false);
}

/* Truncated back-propagation: what the memory held before is a constant. */
static void gradients_behind_a_carried_memory_match_differences(void **state) {
    (void)state;
    compare_with_differences(true);
}

static void recomputed_layers_give_the_same_gradients(void **state) {
    (void)state;
    pal_work_options options = { .tokens = 3 * LENGTH, .sequences = 3, .training = true };
    for (size_t k = 0; k < test_kind_count; k++) {
        runner kept = test_runner(k, PAL_FOR_TRAINING, options);
        options.recompute = true;
        runner again = test_runner(k, PAL_FOR_TRAINING, options);
        options.recompute = false;
        lesson l;
        make_lesson(&l);
        pal_loss a, b;
        pal_plan large, small;
        OK(pal_model_learn(kept.model, kept.work, &l.batch, 1.0f, &a, NULL, err));
        OK(pal_model_learn(again.model, again.work, &l.batch, 1.0f, &b, NULL, err));
        test_same_bits(kept.name, pal_model_flat_gradients(again.model), pal_model_flat_gradients(kept.model),
                       pal_model_flat(kept.model));
        OK(pal_work_plan(&large, kept.model, kept.cx, &options, err));
        options.recompute = true;
        OK(pal_work_plan(&small, kept.model, kept.cx, &options, err));
        options.recompute = false;
        assert_true(small.activations < large.activations && small.total < large.total);
        test_runner_free(&kept);
        test_runner_free(&again);
    }
}

static void gradients_add_up_and_scale(void **state) {
    (void)state;
    runner f = test_runner(0, PAL_FOR_TRAINING,
                           (pal_work_options){ .tokens = 3 * LENGTH, .sequences = 3, .training = true });
    lesson l;
    make_lesson(&l);
    const size_t n = pal_model_flat(f.model);
    float *g = pal_model_flat_gradients(f.model), *once = pal_alloc(n, sizeof *once);
    pal_loss loss;
    unsigned char correct[3 * LENGTH];
    OK(pal_model_learn(f.model, f.work, &l.batch, 1.0f, &loss, correct, err));
    size_t right = 0;
    for (int t = 0; t < 3 * LENGTH; t++) right += correct[t];
    assert_int_equal(right, loss.correct);
    memcpy(once, g, n * sizeof *g);
    OK(pal_model_learn(f.model, f.work, &l.batch, 2.0f, &loss, correct, err));
    for (size_t i = 0; i < n; i++) once[i] *= 3;
    test_near("three times the gradient", g, once, n, 1e-5);
    for (size_t i = 0; i < n; i++) { /* gaps between tensors stay zero */
        bool inside = false;
        for (size_t j = 0; j < pal_model_weight_count(f.model) && !inside; j++) {
            const pal_weight *w = pal_model_weight(f.model, j);
            inside = i >= w->offset && i < w->offset + w->count;
        }
        if (!inside) assert_true(g[i] == 0);
    }
    pal_free(once);
    test_runner_free(&f);
}

static void running_allocates_nothing_but_pages_of_keys_and_values(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        runner t = test_runner(
            k, PAL_FOR_TRAINING,
            (pal_work_options){ .tokens = 3 * LENGTH, .sequences = 3, .training = true, .recompute = k % 2 });
        runner f = test_runner(k, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = LENGTH, .sequences = 2 });
        lesson l;
        make_lesson(&l);
        pal_state *s[2];
        float logits[2 * MOST_ROWS];
        pal_loss loss;
        OK(pal_state_new(&s[0], f.model, 100, err));
        OK(pal_state_new(&s[1], f.model, 100, err));
        const uint64_t before = pal_alloc_count();
        for (int i = 0; i < 3; i++) {
            OK(pal_model_learn(t.model, t.work, &l.batch, 1.0f, &loss, NULL, err));
            OK(pal_model_step(f.model, f.work, s, 2, l.ids, logits, err));
            OK(pal_model_prefill(f.model, f.work, s[0], l.ids, LENGTH, logits, err));
        }
        assert_int_equal(pal_alloc_count() - before, s[0]->held + s[1]->held);
        pal_state_free(s[0]);
        pal_state_free(s[1]);
        test_runner_free(&t);
        test_runner_free(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences_in_a_random_direction),
        cmocka_unit_test(gradients_behind_a_carried_memory_match_differences),
        cmocka_unit_test(recomputed_layers_give_the_same_gradients),
        cmocka_unit_test(gradients_add_up_and_scale),
        cmocka_unit_test(running_allocates_nothing_but_pages_of_keys_and_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
