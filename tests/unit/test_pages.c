/* SPDX-License-Identifier: MIT */
/* Keys and values in pages that states have in common. */
#include <math.h>
#include <pthread.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/random.h"
#include "memory/attention/attention.h"
#include "model/model.h"
#include "model/state.h"
#include "model/work.h"
#include "support/files.h"
#include "support/models.h"

enum { V = TEST_VOCAB, CONTEXT = 300, MOST_ROWS = 32, PAGE = PAL_PAGE_TOKENS };

typedef struct {
    pal_model *model;
    pal_work *work;
    int32_t ids[CONTEXT];
    size_t rows;
} reader;

static pal_context *cx;

static reader open_reader(size_t kind) {
    reader r;
    r.model = test_model(&test_kinds[kind], PAL_FOR_INFERENCE, cx);
    OK(pal_work_new(&r.work, r.model, cx, &(pal_work_options){ .tokens = CONTEXT, .sequences = 4, .context = CONTEXT },
                    err));
    test_ids(r.ids, CONTEXT, V, 5);
    r.rows = (size_t)pal_model_config_of(r.model)->vocab_rows;
    return r;
}

static void close_reader(reader *r) {
    pal_work_free(r->work);
    if (r->model->pages) assert_int_equal(atomic_load(&r->model->pages->count), 0);
    pal_model_close(r->model);
}

static pal_state *new_state(const reader *r) {
    pal_state *s;
    OK(pal_state_new(&s, r->model, CONTEXT, err));
    return s;
}

/* Reads ids from the state's position to `end`, step by step, and leaves the last logits. */
static void steps(const reader *r, pal_state *s, int64_t end, float logits[MOST_ROWS]) {
    while (s->position < end) OK(pal_model_step(r->model, r->work, &s, 1, &r->ids[s->position], logits, err));
}

static size_t pages(const reader *r) { return r->model->pages ? atomic_load(&r->model->pages->count) : 0; }

/* The first kind from k on that attends. */
static size_t from_kind(size_t k) {
    for (; k < test_kind_count; k++) {
        const pal_model_config c = test_model_config(&test_kinds[k]);
        if (pal_model_grows(&c)) break;
    }
    return k;
}

static void a_fork_takes_no_page_until_one_of_the_two_reads_on(void **state) {
    (void)state;
    for (size_t k = from_kind(0); k < test_kind_count; k = from_kind(k + 1)) {
        reader r = open_reader(k);
        pal_state *a = new_state(&r), *b = new_state(&r);
        float logits[MOST_ROWS];
        assert_int_equal(pages(&r), 0); /* a context that is not used */
        OK(pal_model_prefill(r.model, r.work, a, r.ids, 3 * PAGE + 5, NULL, err));
        assert_int_equal(pages(&r), 4);
        assert_int_equal(pal_model_page_bytes(r.model), 4 * r.model->pages->bytes);
        OK(pal_state_copy(b, a, err));
        assert_int_equal(pages(&r), 4);
        steps(&r, b, b->position + 1, logits); /* a copy of the last page, which is not full */
        assert_int_equal(pages(&r), 5);
        steps(&r, a, a->position + 1, logits);
        assert_int_equal(pages(&r), 5);
        pal_state_free(b);
        assert_int_equal(pages(&r), 4);
        pal_state_reset(a);
        assert_int_equal(pages(&r), 0);
        pal_state_free(a);
        close_reader(&r);
    }
}

/* At every place around the border of a page: forks that both read on, other tokens each, are what two states are that
 * read everything themselves. */
static void forks_that_both_read_on_do_not_see_each_other(void **state) {
    (void)state;
    static const int at[] = { 0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE };
    for (size_t k = from_kind(0); k < test_kind_count; k = from_kind(k + 1)) {
        reader r = open_reader(k);
        for (size_t i = 0; i < PAL_COUNT(at); i++) {
            pal_state *s[4];
            float first[MOST_ROWS], second[MOST_ROWS];
            for (int n = 0; n < 4; n++) s[n] = new_state(&r);
            if (at[i])
                for (int n = 0; n < 3; n += 2) OK(pal_model_prefill(r.model, r.work, s[n], r.ids, at[i], NULL, err));
            OK(pal_state_copy(s[1], s[0], err));
            if (at[i]) OK(pal_model_prefill(r.model, r.work, s[3], r.ids, at[i], NULL, err));
            for (int t = 0; t < PAGE + 3; t++) { /* forks take turns */
                const int32_t one = r.ids[t], other = (r.ids[t] + 1) % V;
                OK(pal_model_step(r.model, r.work, &s[0], 1, &one, first, err));
                OK(pal_model_step(r.model, r.work, &s[1], 1, &other, second, err));
            }
            float alone[MOST_ROWS];
            for (int t = 0; t < PAGE + 3; t++) OK(pal_model_step(r.model, r.work, &s[2], 1, &r.ids[t], alone, err));
            test_same_bits("one branch", first, alone, r.rows);
            for (int t = 0; t < PAGE + 3; t++) {
                const int32_t other = (r.ids[t] + 1) % V;
                OK(pal_model_step(r.model, r.work, &s[3], 1, &other, alone, err));
            }
            test_same_bits("the other branch", second, alone, r.rows);
            for (int n = 0; n < 4; n++) pal_state_free(s[n]);
        }
        close_reader(&r);
    }
}

/* A mark, then text that is taken back, several pages of it: as if it had never been read. */
static void rolling_back_across_pages_leaves_nothing_of_what_came_after(void **state) {
    (void)state;
    static const int marks[] = { 0, 1, PAGE - 1, PAGE, PAGE + 1 };
    for (size_t k = from_kind(0); k < test_kind_count; k = from_kind(k + 1)) {
        reader r = open_reader(k);
        for (size_t i = 0; i < PAL_COUNT(marks); i++) {
            pal_state *s = new_state(&r), *mark = new_state(&r), *straight = new_state(&r);
            float back[MOST_ROWS], expected[MOST_ROWS];
            if (marks[i]) OK(pal_model_prefill(r.model, r.work, s, r.ids, marks[i], NULL, err));
            OK(pal_state_copy(mark, s, err));
            int32_t others[2 * PAGE + 7];
            for (int t = 0; t < 2 * PAGE + 7; t++) others[t] = (r.ids[t] + 3) % V;
            OK(pal_model_prefill(r.model, r.work, s, others, 2 * PAGE + 7, NULL, err));
            OK(pal_state_copy(s, mark, err));
            assert_int_equal(s->position, marks[i]);
            if (marks[i]) OK(pal_model_prefill(r.model, r.work, straight, r.ids, marks[i], NULL, err));
            steps(&r, s, marks[i] + PAGE + 2, back);
            steps(&r, straight, marks[i] + PAGE + 2, expected);
            test_same_bits("after a rollback", back, expected, r.rows);
            pal_state_free(s);
            pal_state_free(mark);
            pal_state_free(straight);
        }
        close_reader(&r);
    }
}

static void states_in_every_type_are_saved_and_loaded_at_the_borders_of_pages(void **state) {
    (void)state;
    static const pal_dtype types[] = { PAL_F32, PAL_F16 };
    static const int at[] = { 0, 1, PAGE - 1, PAGE, PAGE + 1 };
    char root[256], path[512];
    test_directory(root);
    test_join(path, root, "state");
    for (size_t k = from_kind(0); k < test_kind_count; k = from_kind(k + 1)) {
        for (size_t type = 0; type < PAL_COUNT(types); type++) {
            reader r = open_reader(k);
            OK(pal_model_keep_as(r.model, types[type], err));
            for (size_t i = 0; i < PAL_COUNT(at); i++) {
                pal_state *a = new_state(&r), *b = new_state(&r);
                float expected[MOST_ROWS], found[MOST_ROWS];
                OK(pal_model_prefill(r.model, r.work, b, r.ids, 2 * PAGE + 9, NULL, err)); /* something else */
                if (at[i]) OK(pal_model_prefill(r.model, r.work, a, r.ids, at[i], NULL, err));
                OK(pal_state_save(a, path, err));
                OK(pal_state_load(b, path, err));
                assert_int_equal(b->position, at[i]);
                steps(&r, a, at[i] + 3, expected);
                steps(&r, b, at[i] + 3, found);
                test_same_bits("loaded", found, expected, r.rows);
                pal_state_free(a);
                pal_state_free(b);
            }
            close_reader(&r);
        }
    }
    test_remove(root);
}

static void a_file_in_another_type_is_refused_and_nothing_of_it_is_loaded(void **state) {
    (void)state;
    char root[256], path[512];
    pal_error why;
    test_directory(root);
    test_join(path, root, "state");
    reader r = open_reader(from_kind(0)), other = open_reader(from_kind(0));
    OK(pal_model_keep_as(other.model, PAL_F16, err));
    pal_state *a = new_state(&r), *b = new_state(&other);
    OK(pal_model_prefill(r.model, r.work, a, r.ids, 70, NULL, err));
    OK(pal_model_prefill(other.model, other.work, b, r.ids, 5, NULL, err));
    OK(pal_state_save(a, path, err));
    assert_int_equal(pal_state_load(b, path, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "keys and values are F32, this model keeps them as F16"));
    assert_int_equal(b->position, 5);
    assert_int_equal(pal_model_keep_as(other.model, PAL_F32, &why), PAL_E_ARGUMENT); /* some are held */
    assert_int_equal(pal_model_keep_as(other.model, PAL_Q4_0, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "expected F32, F16 or Q8_0"));
    pal_state_free(a);
    pal_state_free(b);
    close_reader(&r);
    close_reader(&other);
    test_remove(root);
}

/* A quarter of a million tokens: a fork takes no page, a step of either sees all of them, and files hold them. */
static void forks_of_a_text_of_258_thousand_tokens_are_cheap(void **state) {
    (void)state;
    enum { LONG = 258000 };
    char root[256], path[512];
    test_directory(root);
    test_join(path, root, "state");
    pal_model *model = test_model(&test_kinds[from_kind(0)], PAL_FOR_INFERENCE, cx);
    pal_work *work;
    pal_state *s[3];
    float logits[2 * MOST_ROWS], loaded[MOST_ROWS];
    const int32_t ids[2] = { 3, 3 };
    OK(pal_model_keep_as(model, PAL_F16, err));
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = 2, .sequences = 2, .context = LONG + 100 }, err));
    for (int i = 0; i < 3; i++) OK(pal_state_new(&s[i], model, LONG + 100, err));
    OK(pal_state_make_room(s[0], LONG, err)); /* zeros: reading them all would take minutes */
    s[0]->position = LONG;
    const size_t before = atomic_load(&model->pages->count);
    assert_int_equal(before, (LONG + PAGE - 1) / PAGE);
    OK(pal_state_copy(s[1], s[0], err));
    assert_int_equal(atomic_load(&model->pages->count), before);
    OK(pal_state_save(s[0], path, err));
    OK(pal_model_step(model, work, s, 2, ids, logits, err));
    assert_int_equal(atomic_load(&model->pages->count), before + 1);
    const size_t rows = (size_t)pal_model_config_of(model)->vocab_rows;
    test_same_bits("a fork", logits, logits + rows, rows);
    OK(pal_state_load(s[2], path, err));
    OK(pal_model_step(model, work, &s[2], 1, ids, loaded, err));
    test_same_bits("from a file", loaded, logits, rows);
    for (int i = 0; i < 3; i++) pal_state_free(s[i]);
    assert_int_equal(atomic_load(&model->pages->count), 0);
    pal_work_free(work);
    pal_model_close(model);
    test_remove(root);
}

static void without_memory_for_a_page_a_state_stays_as_it_was(void **state) {
    (void)state;
    for (size_t k = from_kind(0); k < test_kind_count; k = from_kind(k + 1)) {
        reader r = open_reader(k);
        pal_state *a = new_state(&r), *b = new_state(&r);
        pal_error why;
        float expected[MOST_ROWS], found[MOST_ROWS];
        OK(pal_model_prefill(r.model, r.work, a, r.ids, PAGE, NULL, err));
        OK(pal_state_copy(b, a, err));
        steps(&r, b, PAGE + 1, expected);
        pal_alloc_fail_at(1);
        const pal_status st = pal_model_step(r.model, r.work, &a, 1, &r.ids[PAGE], found, &why);
        pal_alloc_fail_at(0);
        assert_int_equal(st, PAL_E_MEMORY);
        assert_non_null(strstr(why.text, "bytes of keys and values"));
        assert_int_equal(a->position, PAGE);
        steps(&r, a, PAGE + 1, found);
        test_same_bits("after the failure", found, expected, r.rows);
        pal_state_free(a);
        pal_state_free(b);
        close_reader(&r);
    }
}

/* The rule over pages against the rule over one block of floats, grouped heads and all; and over pages of other types
 * against a plain computation on numbers that were rounded like them. */
typedef struct {
    int heads, key_heads, dk;
    bool tiled;
    pal_dtype type;
    double limit; /* 0: the same bits */
} rule_case;

static void round_rows(pal_dtype type, float *x, size_t n) {
    unsigned char stored[1 << 16];
    const pal_block_format *format = pal_block_format_of(type);
    assert_true(n / format->values * format->bytes <= sizeof stored);
    pal_blocks_encode(format, x, n, stored);
    pal_blocks_decode(format, stored, n, x);
}

static void attend_over_pages(const rule_case *c, const pal_context *on) {
    enum { T = 150, SPLIT = 70 };
    const size_t dk = (size_t)c->dk, qw = (size_t)c->heads * dk, kw = (size_t)c->key_heads * dk;
    const pal_memory_rule *rule = pal_memory_find("attention");
    const pal_block_format *format = pal_block_format_of(c->type);
    const size_t strip = PAL_PAGE_TOKENS * (dk / format->values * format->bytes),
                 bytes = 2 * (size_t)c->key_heads * strip;
    float *q = pal_alloc(T * qw, 4), *k = pal_alloc(T * kw, 4), *v = pal_alloc(T * kw, 4), *y = pal_alloc(T * qw, 4),
          *expected = pal_alloc(T * qw, 4), *block = pal_alloc(2 * T * kw, 4);
    pal_page *list[3];
    for (int i = 0; i < 3; i++) list[i] = pal_alloc(sizeof(pal_page) + 192 + bytes, 1);
    pal_rng rng = pal_rng_at(77, 0);
    for (size_t i = 0; i < T * qw; i++) q[i] = 2 * (float)pal_rng_uniform(&rng) - 1;
    for (size_t i = 0; i < T * kw; i++) {
        k[i] = 2 * (float)pal_rng_uniform(&rng) - 1;
        v[i] = 2 * (float)pal_rng_uniform(&rng) - 1;
    }
    const pal_paged paged = { .pages = list, .at = 128, .type = c->type };
    for (int paged_now = 1; paged_now >= 0; paged_now--) {
        float *to = paged_now ? y : expected, *states[] = { block };
        for (int t = 0; !paged_now && t < T; t++) { /* what pages hold, in one block */
            for (size_t h = 0; h < (size_t)c->key_heads; h++) {
                round_rows(c->type, k + (size_t)t * kw + h * dk, dk);
                round_rows(c->type, v + (size_t)t * kw + h * dk, dk);
            }
        }
        for (int t = 0; t < T;) { /* two pieces, then steps */
            const int n = t < SPLIT ? SPLIT : t < 2 * SPLIT ? 3 : 1, past[] = { t }, cu[] = { 0, n };
            pal_memory_run run = { .shape = { 1, n, n > 1 ? cu : NULL, c->heads, c->key_heads, c->dk, c->dk, T,
                                              c->tiled },
                                   .state = states,
                                   .past = past,
                                   .paged = paged_now ? &paged : NULL,
                                   .y = { to + (size_t)t * qw, qw } };
            run.in = (pal_memory_inputs){ .q = { q + (size_t)t * qw, qw },
                                          .k = { k + (size_t)t * kw, kw },
                                          .v = { v + (size_t)t * kw, kw },
                                          .scale = 0.3f };
            run.scratch = pal_alloc(
                pal_memory_scratch_bytes(rule, on, &run.shape, n > 1 ? PAL_FORWARD : PAL_STEP) + 64, 1);
            if (n > 1) OK(pal_memory_forward(rule, on, &run, err));
            else OK(pal_memory_step(rule, on, &run, err));
            pal_free(run.scratch);
            t += n;
        }
    }
    if (c->limit == 0) test_same_bits("over pages", y, expected, T * qw);
    else test_near("over pages", y, expected, T * qw, c->limit);
    for (int i = 0; i < 3; i++) pal_free(list[i]);
    pal_free(q), pal_free(k), pal_free(v), pal_free(y), pal_free(expected), pal_free(block);
}

static void attention_over_pages_is_attention_over_one_block(void **state) {
    (void)state;
    static const rule_case cases[] = {
        { 4, 2, 64, false, PAL_F32, 0 },  { 6, 2, 64, true, PAL_F32, 0 },    { 3, 3, 20, false, PAL_F32, 0 },
        { 7, 1, 80, false, PAL_F32, 0 },  { 4, 2, 64, false, PAL_F16, 0 },   { 6, 2, 32, true, PAL_F16, 0 },
        { 5, 1, 20, false, PAL_F16, 0 },  { 4, 2, 64, false, PAL_Q8_0, 1e-6 }, { 8, 2, 32, true, PAL_Q8_0, 1e-6 },
        { 70, 1, 32, false, PAL_F32, 0 },
    };
    for (TEST_LEVELS(level))
        for (int threads = 1; threads < 4; threads += 2) {
            pal_context *on = test_context(threads, pal_cpu_level_name(level));
            for (size_t i = 0; i < PAL_COUNT(cases); i++) attend_over_pages(&cases[i], on);
            pal_context_free(on);
        }
}

/* Two threads, each with forks of its own of one state: what they count is shared. */
static void *fork_and_read(void *user) {
    pal_state *const *s = user; /* the shared one, then an own one */
    for (int i = 0; i < 2000; i++)
        if (pal_state_copy(s[1], s[0], NULL) || pal_state_make_room(s[1], 1 + i % 100, NULL)) return s[0];
    return NULL;
}

static void threads_may_share_pages(void **state) {
    (void)state;
    reader r = open_reader(from_kind(0));
    pal_state *from = new_state(&r), *own[2] = { new_state(&r), new_state(&r) };
    OK(pal_model_prefill(r.model, r.work, from, r.ids, PAGE + 10, NULL, err));
    pal_state *given[2][2] = { { from, own[0] }, { from, own[1] } };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, fork_and_read, given[i]), 0);
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    pal_state_free(own[0]);
    pal_state_free(own[1]);
    assert_int_equal(pages(&r), 2);
    pal_state_free(from);
    close_reader(&r);
}

static int make_context(void **state) {
    (void)state;
    cx = test_context(2, NULL);
    return 0;
}
static int free_context(void **state) {
    (void)state;
    pal_context_free(cx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_takes_no_page_until_one_of_the_two_reads_on),
        cmocka_unit_test(forks_that_both_read_on_do_not_see_each_other),
        cmocka_unit_test(rolling_back_across_pages_leaves_nothing_of_what_came_after),
        cmocka_unit_test(states_in_every_type_are_saved_and_loaded_at_the_borders_of_pages),
        cmocka_unit_test(a_file_in_another_type_is_refused_and_nothing_of_it_is_loaded),
        cmocka_unit_test(forks_of_a_text_of_258_thousand_tokens_are_cheap),
        cmocka_unit_test(without_memory_for_a_page_a_state_stays_as_it_was),
        cmocka_unit_test(attention_over_pages_is_attention_over_one_block),
        cmocka_unit_test(threads_may_share_pages),
    };
    return cmocka_run_group_tests(tests, make_context, free_context);
}
