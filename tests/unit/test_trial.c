/* SPDX-License-Identifier: MIT */
/* Tokens that are read on trial: the bits of steps, and a memory that never knew of them. */
#include <dirent.h>

#include "base/alloc.h"
#include "model/state.h"
#include "model/work.h"
#include "support/models.h"
#include "support/support.h"

enum { CONTEXT = 160, TRIAL = 9, PROMPT = 59, MOST = 1 << 12 };

typedef struct {
    const pal_context *cx;
    pal_model *model;
    pal_work *work;
    pal_state *tried, *stepped;
    float *logits, *expected;
    size_t rows;
    int vocab;
    const char *name;
} trial;

static trial begin(pal_model *model, const pal_context *cx, const char *name) {
    const pal_model_config *c = pal_model_config_of(model);
    trial t = { .cx = cx, .model = model, .rows = (size_t)c->vocab_rows, .vocab = c->vocab, .name = name };
    OK(pal_work_new(
        &t.work, model, cx,
        &(pal_work_options){
            .tokens = 64, .sequences = TRIAL, .logits = TRIAL, .context = CONTEXT, .variance = true, .trial = TRIAL },
        err));
    OK(pal_state_new(&t.tried, model, CONTEXT, err));
    OK(pal_state_new(&t.stepped, model, CONTEXT, err));
    t.logits = pal_alloc(TRIAL * t.rows, sizeof(float));
    t.expected = pal_alloc(TRIAL * t.rows, sizeof(float));
    return t;
}

static void end(trial *t) {
    pal_free(t->logits);
    pal_free(t->expected);
    pal_state_free(t->tried);
    pal_state_free(t->stepped);
    pal_work_free(t->work);
    pal_model_close(t->model);
}

/* Every number of two memories, and of keys and values of the tokens that were read. */
static void same_memory(const trial *t) {
    const pal_state *a = t->tried, *b = t->stepped;
    const pal_pages *pages = t->model->pages;
    assert_int_equal(a->position, b->position);
    test_same_bits(t->name, a->data, b->data, a->fixed);
    for (int l = 0; pages && l < pages->layers; l++)
        for (size_t strip = 0; strip < pages->of[l].strips; strip++)
            for (int64_t at = 0; at < a->position; at++) {
                const pal_cache *k = &pages->of[l];
                assert_memory_equal(pal_page_row(a->pages[at / PAL_PAGE_TOKENS], k, strip, at),
                                    pal_page_row(b->pages[at / PAL_PAGE_TOKENS], k, strip, at), k->row);
            }
}

/* Trials of 1 to TRIAL tokens, of which 1 to all are kept; in between a step; across the end of a page. */
static void check(trial *t) {
    int32_t ids[CONTEXT];
    double variance[TRIAL];
    test_ids(ids, CONTEXT, t->vocab, 11);
    OK(pal_model_prefill(t->model, t->work, t->tried, ids, PROMPT, NULL, err));
    OK(pal_state_copy(t->stepped, t->tried, err));
    pal_state *shares; /* its last page must stay as it is */
    OK(pal_state_new(&shares, t->model, CONTEXT, err));
    OK(pal_state_copy(shares, t->tried, err));
    for (int n = 1, kept; n <= TRIAL; n++) {
        kept = n > 2 ? n - 2 : n;
        const int64_t at = t->tried->position;
        OK(pal_model_try(t->model, t->work, t->tried, ids + at, n, t->logits, err));
        for (int i = 0; i < n; i++) variance[i] = pal_work_variance(t->work, i);
        same_memory(t); /* nothing was read */
        pal_model_keep_tried(t->work, t->tried, kept);
        for (int i = 0; i < kept; i++) {
            OK(pal_model_step(t->model, t->work, &t->stepped, 1, ids + at + i, t->expected, err));
            test_same_bits(t->name, t->logits + (size_t)i * t->rows, t->expected, t->rows);
            const double stepped = pal_work_variance(t->work, 0);
            assert_memory_equal(&variance[i], &stepped, sizeof stepped);
        }
        same_memory(t);
        OK(pal_model_step(t->model, t->work, &t->tried, 1, ids + at + kept, t->logits, err));
        OK(pal_model_step(t->model, t->work, &t->stepped, 1, ids + at + kept, t->expected, err));
        test_same_bits(t->name, t->logits, t->expected, t->rows);
    }
    same_memory(t);
    OK(pal_state_copy(t->tried, shares, err));
    pal_state_reset(t->stepped);
    OK(pal_model_prefill(t->model, t->work, t->stepped, ids, PROMPT, NULL, err));
    same_memory(t);
    pal_state_free(shares);
}

static void trials_have_the_bits_of_steps_in_every_kind(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    for (size_t k = 0; k < test_kind_count; k++) {
        trial t = begin(test_model(&test_kinds[k], PAL_FOR_INFERENCE, cx), cx, test_kinds[k].name);
        check(&t);
        end(&t);
    }
    pal_context_free(cx);
}

/* Every model of a folder of tests/golden, as it is and in Q8_0. */
static void check_folder(const char *folder) {
    pal_context *cx = test_context(1, NULL);
    char path[MOST];
    snprintf(path, sizeof path, "%s/%s", PAL_TEST_GOLDEN, folder);
    DIR *d = opendir(path);
    assert_non_null(d);
    int found = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s/%s", PAL_TEST_GOLDEN, folder, e->d_name);
        for (int quantised = 0; quantised < 2; quantised++) {
            pal_model *model;
            OK(pal_model_open(&model, path, PAL_FOR_INFERENCE, cx, err));
            if (quantised) OK(pal_model_retype(model, PAL_Q8_0, cx, err));
            trial t = begin(model, cx, e->d_name);
            check(&t);
            end(&t);
        }
        found++;
    }
    closedir(d);
    assert_true(found > 5);
    pal_context_free(cx);
}

static void trials_have_the_bits_of_steps_in_recorded_models(void **state) {
    (void)state;
    check_folder("models");
    check_folder("families");
}

static void trials_have_the_bits_of_steps_at_every_cpu_level(void **state) {
    (void)state;
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(3, pal_cpu_level_name(level));
        for (size_t k = 0; k < test_kind_count; k += 3) {
            trial t = begin(test_model(&test_kinds[k], PAL_FOR_INFERENCE, cx), cx, test_kinds[k].name);
            check(&t);
            end(&t);
        }
        pal_context_free(cx);
    }
}

static void what_cannot_be_tried_is_refused(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    trial t = begin(test_model(test_kind_named("transformer"), PAL_FOR_INFERENCE, cx), cx, "transformer");
    int32_t ids[CONTEXT];
    pal_error why;
    test_ids(ids, CONTEXT, t.vocab, 3);
    assert_int_equal(pal_model_try(t.model, t.work, t.tried, ids, TRIAL + 1, t.logits, &why), PAL_E_ARGUMENT);
    assert_string_equal(why.text, "a trial of 10 tokens: the workspace was made for 9");
    OK(pal_model_prefill(t.model, t.work, t.tried, ids, CONTEXT - 2, NULL, err));
    assert_int_equal(pal_model_try(t.model, t.work, t.tried, ids, 3, t.logits, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "maximum context of 160"));
    OK(pal_model_try(t.model, t.work, t.tried, ids, 2, t.logits, err));
    pal_work *work;
    assert_int_equal(pal_work_new(&work, t.model, cx, &(pal_work_options){ .tokens = 9, .trial = 2 }, &why),
                     PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "a trial of 2 tokens: expected 0 to the number of sequences, 1"));
    end(&t);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trials_have_the_bits_of_steps_in_every_kind),
        cmocka_unit_test(trials_have_the_bits_of_steps_in_recorded_models),
        cmocka_unit_test(trials_have_the_bits_of_steps_at_every_cpu_level),
        cmocka_unit_test(what_cannot_be_tried_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
