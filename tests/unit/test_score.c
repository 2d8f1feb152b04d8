/* SPDX-License-Identifier: MIT */
/* Scoring: plain log softmax, whatever is read together, however often memories are too few. */
#include "support/support.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "eval/prefixes.h"
#include "support/models.h"

enum { V = TEST_VOCAB, REQUESTS = 60, LONGEST = 48 };

typedef struct {
    uint32_t ids[REQUESTS][LONGEST];
    pal_score_request requests[REQUESTS];
    double logprob[REQUESTS][LONGEST]; /* of each token after the first, by plain forward */
    bool likeliest[REQUESTS][LONGEST];
} problem;

/* Groups whose requests begin alike in many ways: common contexts, choices that begin alike, one request inside
 * another, equal ones, and a group that has nothing in common. */
static void fill(problem *p, uint64_t seed) {
    pal_rng rng = pal_rng_at(seed, 0);
    for (int i = 0; i < REQUESTS; i++) {
        const int kept = i % 6 ? (int)pal_rng_below(&rng, LONGEST / 2) : 0;
        const size_t count = i % 6 == 5 && kept > 2 ? (size_t)kept : 2 + pal_rng_below(&rng, LONGEST - 2);
        const int like = i % 6 ? i - 1 - (int)pal_rng_below(&rng, (uint32_t)(i % 6)) : i;
        for (size_t t = 0; t < LONGEST; t++)
            p->ids[i][t] = (int)t < kept ? p->ids[like][t] : (uint32_t)pal_rng_below(&rng, V);
        if (i % 13 == 12) memcpy(p->ids[i], p->ids[i - 1], sizeof p->ids[i]);
        p->requests[i] = (pal_score_request){ .ids = p->ids[i],
                                              .count = i % 13 == 12 ? p->requests[i - 1].count : count,
                                              .group = (size_t)(i / 6) };
        p->requests[i].scored = 1 + pal_rng_below(&rng, (uint32_t)p->requests[i].count - 1);
    }
}

static void solve(problem *p, const pal_model *model, const pal_context *cx) {
    const size_t rows = (size_t)pal_model_config_of(model)->vocab_rows;
    float *logits = pal_alloc(LONGEST * rows, sizeof *logits);
    pal_work *work;
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = LONGEST }, err));
    for (int i = 0; i < REQUESTS; i++) {
        const int n = (int)p->requests[i].count, cu[2] = { 0, n };
        int32_t ids[LONGEST];
        for (int t = 0; t < n; t++) ids[t] = (int32_t)p->ids[i][t];
        const pal_batch batch = { .tokens = n, .sequences = 1, .ids = ids, .cu_seqlens = cu };
        OK(pal_model_forward(model, work, &batch, NULL, n, logits, err));
        for (int t = 0; t + 1 < n; t++) {
            const float *row = logits + (size_t)t * rows;
            double sum = 0;
            size_t top = 0;
            for (size_t j = 1; j < rows; j++)
                if (row[j] > row[top]) top = j;
            for (size_t j = 0; j < rows; j++) sum += exp((double)row[j] - (double)row[top]);
            p->logprob[i][t + 1] = (double)row[ids[t + 1]] - (double)row[top] - log(sum);
            p->likeliest[i][t + 1] = top == (size_t)ids[t + 1];
        }
    }
    pal_work_free(work);
    pal_free(logits);
}

static void compare(const problem *p, const pal_score_result *scores, const char *what) {
    for (int i = 0; i < REQUESTS; i++) {
        const pal_score_request *r = &p->requests[i];
        double sum = 0;
        bool greedy = true;
        for (size_t t = r->count - r->scored; t < r->count; t++) {
            sum += p->logprob[i][t];
            greedy &= p->likeliest[i][t];
            if (r->likeliest) {
                const size_t at = t - (r->count - r->scored);
                assert_int_equal(r->likeliest[at], p->likeliest[i][t]);
                if (!(fabs((double)r->logprobs[at] - p->logprob[i][t]) <= 1e-4))
                    fail_msg("%s: request %d, token %zu", what, i, t);
            }
        }
        if (!(fabs(scores[i].logprob - sum) <= 1e-5 * (double)r->scored * 4) || scores[i].greedy != greedy)
            fail_msg("%s: request %d (%zu of %zu tokens): %.9g %d, expected %.9g %d", what, i, r->scored, r->count,
                     scores[i].logprob, scores[i].greedy, sum, greedy);
    }
}

static void scores_equal_log_softmax_of_forward(void **state) {
    (void)state;
    static const int states[] = { 1, 2, 3, 5, 64 }, tokens[] = { 1, 7, 500 };
    static problem p;
    static float logprobs[REQUESTS][LONGEST];
    static unsigned char likeliest[REQUESTS][LONGEST];
    pal_score_result scores[REQUESTS];
    pal_context *cx = test_context(1, NULL);
    for (size_t k = 0; k < test_kind_count; k++) {
        pal_model *model = test_model(&test_kinds[k], PAL_FOR_INFERENCE, cx);
        fill(&p, k);
        solve(&p, model, cx);
        for (size_t a = 0; a < PAL_COUNT(states); a++)
            for (size_t b = k ? PAL_COUNT(tokens) - 1 : 0; b < PAL_COUNT(tokens); b++) {
                pal_scorer *scorer;
                const pal_scorer_options o = { .tokens = tokens[b], .states = states[a], .context = LONGEST };
                OK(pal_scorer_new(&scorer, model, cx, &o, err));
                OK(pal_score(scorer, p.requests, REQUESTS, scores, err));
                compare(&p, scores, test_kinds[k].name);
                for (int i = 0; i < REQUESTS; i++) {
                    p.requests[i].logprobs = logprobs[i];
                    p.requests[i].likeliest = likeliest[i];
                }
                memset(likeliest, 7, sizeof likeliest);
                OK(pal_score(scorer, p.requests, REQUESTS, scores, err)); /* again, with what the first call left */
                compare(&p, scores, test_kinds[k].name);
                for (int i = 0; i < REQUESTS; i++) {
                    p.requests[i].logprobs = NULL;
                    p.requests[i].likeliest = NULL;
                }
                pal_scorer_free(scorer);
            }
        pal_model_close(model);
    }
    pal_context_free(cx);
}

/* The model of test_kinds that says greedy often enough to see both answers. */
static void a_greedy_continuation_is_greedy_to_its_last_token(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(&test_kinds[0], PAL_FOR_INFERENCE, cx);
    const size_t rows = (size_t)pal_model_config_of(model)->vocab_rows;
    float *logits = pal_alloc(rows, sizeof *logits);
    pal_state *memory;
    pal_work *work;
    uint32_t ids[3][12] = { { 3, 1, 4 } };
    OK(pal_state_new(&memory, model, 0, err));
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = 12 }, err));
    OK(pal_model_prefill(model, work, memory, (int32_t[]){ 3, 1, 4 }, 3, logits, err));
    for (size_t t = 3; t < 12; t++) {
        uint32_t top = 0;
        for (uint32_t j = 1; j < V; j++)
            if (logits[j] > logits[top]) top = j;
        ids[0][t] = top;
        OK(pal_model_step(model, work, &memory, 1, (int32_t[]){ (int32_t)top }, logits, err));
    }
    memcpy(ids[1], ids[0], sizeof ids[0]);
    memcpy(ids[2], ids[0], sizeof ids[0]);
    ids[1][11] = (ids[1][11] + 1) % V;
    ids[2][3] = (ids[2][3] + 1) % V;
    const pal_score_request requests[3] = { { .ids = ids[0], .count = 12, .scored = 9 },
                                            { .ids = ids[1], .count = 12, .scored = 9 },
                                            { .ids = ids[2], .count = 4, .scored = 1 } };
    pal_score_result scores[3];
    pal_scorer *scorer;
    OK(pal_scorer_new(&scorer, model, cx, &(pal_scorer_options){ 0 }, err));
    OK(pal_score(scorer, requests, 3, scores, err));
    assert_true(scores[0].greedy);
    assert_false(scores[1].greedy);
    assert_false(scores[2].greedy);
    assert_int_equal(pal_scorer_counts(scorer).read, 11); /* all three begin alike, and no last token is read */
    assert_int_equal(pal_scorer_counts(scorer).sent, 11 + 11 + 3);
    pal_scorer_free(scorer);
    pal_state_free(memory);
    pal_work_free(work);
    pal_free(logits);
    pal_model_close(model);
    pal_context_free(cx);
}

/* Distinct prefixes of all requests' inputs, counted one by one. */
static uint64_t plain_prefixes(const problem *p) {
    uint64_t distinct = 0;
    for (int i = 0; i < REQUESTS; i++)
        for (size_t n = 1; n < p->requests[i].count; n++) {
            bool seen = false;
            for (int j = 0; j < i && !seen; j++)
                seen = p->requests[j].group == p->requests[i].group && p->requests[j].count > n &&
                       memcmp(p->ids[i], p->ids[j], n * sizeof p->ids[i][0]) == 0;
            distinct += !seen;
        }
    return distinct;
}

static void what_is_common_is_read_once(void **state) {
    (void)state;
    static problem p;
    pal_score_result scores[REQUESTS];
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(&test_kinds[0], PAL_FOR_INFERENCE, cx);
    for (uint64_t seed = 0; seed < 8; seed++) {
        pal_scorer *scorer;
        uint64_t sent = 0;
        fill(&p, 100 + seed);
        for (int i = 0; i < REQUESTS; i++) sent += p.requests[i].count - 1;
        OK(pal_scorer_new(&scorer, model, cx, &(pal_scorer_options){ .states = 7, .tokens = 50 }, err));
        OK(pal_score(scorer, p.requests, REQUESTS, scores, err));
        assert_int_equal(pal_scorer_counts(scorer).read, plain_prefixes(&p));
        assert_int_equal(pal_scorer_counts(scorer).sent, sent);
        pal_scorer_free(scorer);
    }
    /* All in one group: a tree of more branches than memories is still read once. */
    pal_scorer *scorer;
    for (int i = 0; i < REQUESTS; i++) {
        for (size_t t = 0; t < 10; t++) p.ids[i][t] = (uint32_t)t;
        if (p.requests[i].count < 13) p.requests[i].count = 13, p.requests[i].scored = 2;
        p.requests[i].group = 0;
    }
    solve(&p, model, cx);
    OK(pal_scorer_new(&scorer, model, cx, &(pal_scorer_options){ .states = 8, .tokens = 100 }, err));
    OK(pal_score(scorer, p.requests, REQUESTS, scores, err));
    compare(&p, scores, "one group");
    assert_int_equal(pal_scorer_counts(scorer).read, plain_prefixes(&p));
    pal_scorer_free(scorer);
    pal_model_close(model);
    pal_context_free(cx);
}

/* Memories that the first call of a scorer made, by their allocations: the second call makes none. */
static uint64_t memories_made(const pal_model *model, const pal_context *cx, const pal_scorer_options *o,
                              const problem *p, pal_score_result *scores) {
    enum { ALLOCATIONS_OF_A_STATE = 3 };
    pal_scorer *scorer;
    OK(pal_scorer_new(&scorer, model, cx, o, err));
    const uint64_t start = pal_alloc_count();
    OK(pal_score(scorer, p->requests, REQUESTS, scores, err));
    const uint64_t first = pal_alloc_count() - start;
    OK(pal_score(scorer, p->requests, REQUESTS, scores, err));
    const uint64_t second = pal_alloc_count() - start - first;
    pal_scorer_free(scorer);
    return (first - second) / ALLOCATIONS_OF_A_STATE;
}

/* Every two requests share a beginning of 2 tokens and read 11 more each: two pairs fill a pass of 32 tokens, while 16
 * beginnings would. */
static void pairs(problem *p) {
    fill(p, 7);
    for (int i = 0; i < REQUESTS; i++) {
        for (size_t t = 0; t < 14; t++) p->ids[i][t] = (uint32_t)(t < 2 ? t : t + (size_t)i % 2) % V;
        p->requests[i].count = 14;
        p->requests[i].scored = 4;
        p->requests[i].group = (size_t)i / 2;
    }
}

static void no_more_memories_wait_than_fill_a_pass(void **state) {
    (void)state;
    static problem p;
    pal_score_result scores[REQUESTS];
    pal_context *cx = test_context(2, NULL);
    pal_model *model = test_model(&test_kinds[0], PAL_FOR_INFERENCE, cx);
    pairs(&p);
    solve(&p, model, cx);
    const uint64_t made = memories_made(model, cx, &(pal_scorer_options){ .states = 64, .tokens = 32 }, &p, scores);
    compare(&p, scores, "pairs");
    assert_in_range(made, 2, 6); /* with a few blocks of the first call's tables */
    pal_model_close(model);
    pal_context_free(cx);
}

static void a_scorer_survives_want_of_memory(void **state) {
    (void)state;
    static problem p;
    pal_score_result scores[REQUESTS];
    pal_error why;
    pal_scorer *scorer;
    pal_context *cx = test_context(2, NULL);
    pal_model *model = test_model(&test_kinds[0], PAL_FOR_INFERENCE, cx);
    fill(&p, 9);
    solve(&p, model, cx);
    uint64_t failed = 0;
    for (uint64_t nth = 1;; nth++) {
        OK(pal_scorer_new(&scorer, model, cx, &(pal_scorer_options){ .states = 16, .tokens = 200 }, err));
        pal_alloc_fail_once(nth);
        const pal_status st = pal_score(scorer, p.requests, REQUESTS, scores, &why);
        pal_alloc_fail_at(0);
        if (st) assert_int_equal(st, PAL_E_MEMORY);
        OK(pal_score(scorer, p.requests, REQUESTS, scores, err));
        compare(&p, scores, "after want of memory");
        pal_scorer_free(scorer);
        if (!st) break;
        failed++;
    }
    assert_in_range(failed, 20, 200); /* tables of the call, and 16 memories of three blocks each */
    pal_model_close(model);
    pal_context_free(cx);
}

static void refuses_what_cannot_be_scored(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(&test_kinds[0], PAL_FOR_INFERENCE, cx);
    const uint32_t ids[] = { 1, 2, V };
    pal_score_result score;
    pal_scorer *scorer;
    pal_error why;
    OK(pal_scorer_new(&scorer, model, cx, &(pal_scorer_options){ 0 }, err));
    pal_score_request r = { .ids = ids, .count = 2, .scored = 2 };
    assert_int_equal(pal_score(scorer, &r, 1, &score, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "request 0 scores 2 of 2 tokens"));
    r.scored = 0;
    assert_int_equal(pal_score(scorer, &r, 1, &score, &why), PAL_E_ARGUMENT);
    r = (pal_score_request){ .ids = ids, .count = 3, .scored = 1 };
    assert_int_equal(pal_score(scorer, &r, 1, &score, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "token 2 is id"));
    OK(pal_score(scorer, NULL, 0, NULL, err));
    pal_scorer_free(scorer);
    pal_model_close(model);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_equal_log_softmax_of_forward),
        cmocka_unit_test(a_greedy_continuation_is_greedy_to_its_last_token),
        cmocka_unit_test(what_is_common_is_read_once),
        cmocka_unit_test(no_more_memories_wait_than_fill_a_pass),
        cmocka_unit_test(a_scorer_survives_want_of_memory),
        cmocka_unit_test(refuses_what_cannot_be_scored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
