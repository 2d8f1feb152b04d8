/* SPDX-License-Identifier: MIT */
/* Sessions: what is written, and that company and what is known already change nothing. */
#include <math.h>

#include "base/alloc.h"
#include "infer/session.h"
#include "model/state.h"
#include "support/sessions.h"

enum { V = TEST_VOCAB };

static void greedy_equals_argmax_of_forward(void **state) {
    (void)state;
    enum { PROMPT = 6, TOKENS = 9, ALL = PROMPT + TOKENS };
    for (size_t k = 0; k < test_kind_count; k++) {
        speaker f = test_speaker(k);
        static written w;
        const size_t rows = (size_t)pal_model_config_of(f.model)->vocab_rows;
        uint32_t prompt[PROMPT];
        int32_t ids[ALL];
        pal_work *work;
        w = (written){ 0 };
        test_prompt(prompt, PROMPT, 3);
        pal_engine *e = test_engine(&f, &(pal_engine_options){ .variance = true, .piece = 4 });
        pal_session *s = test_session(e);
        test_begin(s, &w, prompt, PROMPT,
                   (pal_session_options){ .max_tokens = TOKENS, .logprobs = true, .prompt_logprobs = true });
        test_run(e);
        assert_int_equal(w.count, ALL); /* the prompt's tokens are reported too */
        assert_int_equal(w.finish, PAL_FINISH_LENGTH);
        for (int t = 0; t < PROMPT; t++) assert_int_equal(w.ids[t], prompt[t]);
        memcpy(ids, w.ids, sizeof ids);
        OK(pal_work_new(&work, f.model, f.cx, &(pal_work_options){ .tokens = ALL }, err));
        float *logits = pal_alloc(ALL * rows, sizeof *logits);
        const int cu[2] = { 0, ALL };
        const pal_batch batch = { .tokens = ALL, .sequences = 1, .ids = ids, .cu_seqlens = cu };
        OK(pal_model_forward(f.model, work, &batch, NULL, ALL, logits, err));
        assert_true(isnan(w.logprob[0]));
        const pal_model_config *c = pal_model_config_of(f.model);
        bool has = false;
        for (int i = 0; i < c->layers; i++) {
            const pal_memory_rule *rule = pal_memory_find(pal_model_layer_rule(c, i));
            has |= rule && pal_memory_has_variance(rule);
        }
        for (int t = 1; t < ALL; t++) {
            const float *row = logits + (size_t)(t - 1) * rows;
            float most = -INFINITY; /* no double: see test_largest() */
            for (int i = 0; i < V; i++) most = fmaxf(most, row[i]);
            const double top = (double)most;
            double sum = 0;
            for (size_t i = 0; i < rows; i++) sum += exp((double)row[i] - top);
            if (t >= PROMPT && !((double)row[ids[t]] >= top - 1e-4))
                fail_msg("%s: token %d is not the likeliest", test_kinds[k].name, t);
            if (!(fabs(w.logprob[t] - ((double)row[ids[t]] - top - log(sum))) < 1e-4))
                fail_msg("%s: log-probability %g of token %d", test_kinds[k].name, w.logprob[t], t);
            assert_true(t >= PROMPT && has ? w.variance[t] > 0 : isnan(w.variance[t]));
        }
        pal_free(logits);
        pal_work_free(work);
        pal_session_free(s);
        pal_engine_free(e);
        test_speaker_free(&f);
    }
}

typedef struct {
    int count, top_count[32];
    int32_t ids[32], top[32][PAL_ALTERNATIVES];
    double logprob[32];
} judged;

static void take_judged(void *user, const pal_token *t) {
    judged *j = user;
    if (t->id < 0) return;
    j->ids[j->count] = t->id;
    j->logprob[j->count] = t->logprob;
    j->top_count[j->count] = t->top_count;
    for (int i = 0; i < t->top_count; i++) j->top[j->count][i] = t->top[i].id;
    j->count++;
}

/* A vocabulary with unused ids: they take part in the softmax, both of what is read and of what is written. */
static void written_tokens_have_the_logprobs_of_read_ones(void **state) {
    (void)state;
    enum { PROMPT = 4, TOKENS = 12 };
    speaker f = test_speaker(0);
    for (size_t id = 0; id < V; id += 2) f.tok->flags[id] &= (unsigned char)~PAL_TOKEN_PRESENT;
    pal_engine *e = test_engine(&f, &(pal_engine_options){ .piece = 64 });
    pal_session *s = test_session(e);
    static judged wrote, read;
    const uint32_t prompt[PROMPT] = { 3, 7, 1, 21 };
    pal_session_options o = { .sampling = { .temperature = 1 },
                              .seed = 4,
                              .max_tokens = TOKENS,
                              .ignore_eos = true,
                              .logprobs = true,
                              .alternatives = 5,
                              .prompt_logprobs = true,
                              .on_token = take_judged,
                              .user = &wrote };
    OK(pal_session_begin(s, prompt, PROMPT, &o, err));
    test_run(e);
    assert_int_equal(wrote.count, PROMPT + TOKENS);
    o.user = &read;
    o.max_tokens = 0;
    pal_session_reset(s);
    OK(pal_session_begin(s, (const uint32_t *)wrote.ids, PROMPT + TOKENS, &o, err));
    test_run(e);
    assert_int_equal(read.count, PROMPT + TOKENS);
    for (int t = 1; t < PROMPT + TOKENS; t++) {
        if (!(fabs(read.logprob[t] - wrote.logprob[t]) < 1e-4))
            fail_msg("token %d: log-probability %g when written, %g when read", t, wrote.logprob[t], read.logprob[t]);
        assert_int_equal(wrote.top_count[t], 5);
        assert_int_equal(read.top_count[t], 5);
        assert_memory_equal(wrote.top[t], read.top[t], 5 * sizeof(int32_t));
    }
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

static void variance_is_the_same_for_a_prompt_and_for_steps(void **state) {
    (void)state;
    for (size_t k = 0; k < 6; k++) {
        speaker f = test_speaker(k);
        pal_work *work;
        pal_state *a, *b;
        int32_t ids[13];
        test_ids(ids, 13, V, 4);
        OK(pal_work_new(&work, f.model, f.cx, &(pal_work_options){ .tokens = 13, .sequences = 2, .variance = true },
                        err));
        OK(pal_state_new(&a, f.model, 16, err));
        OK(pal_state_new(&b, f.model, 16, err));
        OK(pal_model_prefill(f.model, work, a, ids, 13, NULL, err));
        const double whole = pal_work_variance(work, 0);
        for (int t = 0; t < 13; t++) OK(pal_model_step(f.model, work, &b, 1, &ids[t], NULL, err));
        const double stepped = pal_work_variance(work, 0);
        assert_true((isnan(whole) && isnan(stepped)) || fabs(whole - stepped) <= 2e-5 * whole);
        pal_state_free(a);
        pal_state_free(b);
        pal_work_free(work);
        test_speaker_free(&f);
    }
}

static const pal_sampling lively = { .temperature = 1.2, .top_k = 20, .top_p = 0.97, .repetition_penalty = 1.1 };

/* Prompts of all lengths begin while others read and write; a session is used again for another text. */
static void company_changes_nothing(void **state) {
    (void)state;
    enum { TEXTS = 21, TOKENS = 12, LONGEST = 50 };
    const size_t kinds[] = { 0, 3, 6, 7, 8 };
    for (size_t c = 0; c < PAL_COUNT(kinds); c++) {
        speaker f = test_speaker(kinds[c]);
        static written alone[TEXTS], together[TEXTS];
        memset(alone, 0, sizeof alone);
        memset(together, 0, sizeof together);
        pal_engine *one = test_engine(&f, &(pal_engine_options){ .piece = 16 });
        pal_engine *many = test_engine(&f, &(pal_engine_options){ .piece = 16 });
        pal_session *single = test_session(one), *sessions[TEXTS];
        for (int i = 0; i < TEXTS; i++) {
            uint32_t prompt[LONGEST];
            const size_t n = 1 + (size_t)i * 7 % (LONGEST - 1);
            pal_session_options o = { .sampling = lively, .max_tokens = TOKENS + i, .seed = 5 };
            o.sampling.presence_penalty = 0.1 * (i % 3), o.sampling.frequency_penalty = 0.05 * (i % 2);
            test_prompt(prompt, LONGEST, (uint64_t)i);
            pal_session_reset(single);
            test_begin(single, &alone[i], prompt, n, o);
            test_run(one);
            sessions[i] = test_session(many);
            test_begin(sessions[i], &together[i], prompt, n, o);
            pal_engine_step(many);
        }
        test_run(many);
        for (int i = 0; i < TEXTS; i++) {
            assert_int_equal(alone[i].count, TOKENS + i);
            assert_int_equal(together[i].count, TOKENS + i);
            assert_memory_equal(alone[i].ids, together[i].ids, (size_t)alone[i].count * sizeof *alone[i].ids);
            pal_session_free(sessions[i]);
        }
        pal_session_free(single);
        pal_engine_free(one);
        pal_engine_free(many);
        test_speaker_free(&f);
    }
}

typedef struct {
    pal_state *copy;
    int64_t positions[16];
    int count;
} reading;

static void note_reading(void *user, const pal_state *state) {
    reading *r = user;
    r->positions[r->count++] = pal_state_position(state);
    assert_int_equal(pal_state_pending(state), -1);
    OK(pal_state_copy(r->copy, state, err));
}

/* on_read comes after every piece, and what it copies at a prompt's end is known to the same prompt. */
static void readers_are_told_of_every_piece(void **state) {
    (void)state;
    enum { PROMPT = 21, PIECE = 8, TOKENS = 6 };
    speaker f = test_speaker(3);
    static written whole, again;
    whole = again = (written){ 0 };
    uint32_t prompt[PROMPT];
    reading r = { 0 };
    test_prompt(prompt, PROMPT, 9);
    pal_engine *e = test_engine(&f, &(pal_engine_options){ .piece = PIECE });
    pal_session *s = test_session(e);
    OK(pal_state_new(&r.copy, f.model, 4096, err));
    OK(pal_session_begin(s, prompt, PROMPT, &(pal_session_options){ .on_read = note_reading, .user = &r }, err));
    test_run(e);
    assert_int_equal(r.count, 3);
    const int64_t expected[3] = { 8, 16, 20 }; /* the last token is read by the step that writes */
    assert_memory_equal(r.positions, expected, sizeof expected);
    pal_session_reset(s);
    pal_session_options o = { .sampling = lively, .max_tokens = TOKENS, .logprobs = true };
    test_begin(s, &whole, prompt, PROMPT, o);
    test_run(e);
    o.known = r.copy;
    test_begin(s, &again, prompt, PROMPT, o);
    test_run(e);
    assert_int_equal(again.count, TOKENS);
    assert_memory_equal(again.ids, whole.ids, sizeof(int32_t) * TOKENS);
    assert_memory_equal(again.logprob, whole.logprob, sizeof(double) * TOKENS);
    pal_state_free(r.copy);
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

/* A memory copied where a piece ends continues with the same bits as one that reads everything itself. */
static void what_is_known_need_not_be_read(void **state) {
    (void)state;
    enum { PROMPT = 37, PIECE = 8, TOKENS = 10 };
    for (size_t k = 0; k < test_kind_count; k++) {
        speaker f = test_speaker(k);
        uint32_t prompt[PROMPT];
        static written whole, rest;
        whole = rest = (written){ 0 };
        test_prompt(prompt, PROMPT, 6);
        pal_engine *e = test_engine(&f, &(pal_engine_options){ .piece = PIECE });
        pal_session *a = test_session(e), *b = test_session(e);
        pal_state *snapshot;
        OK(pal_state_new(&snapshot, f.model, 4096, err));
        const pal_session_options o = { .sampling = lively, .max_tokens = TOKENS, .logprobs = true, .seed = 2 };
        test_begin(a, &whole, prompt, PROMPT, o);
        for (int piece = 0; piece < 3; piece++) pal_engine_step(e);
        OK(pal_state_copy(snapshot, pal_session_state(a), err));
        assert_int_equal(pal_state_position(snapshot), 3 * PIECE);
        test_run(e);
        pal_session_options known = o;
        known.known = snapshot;
        test_begin(b, &rest, prompt, PROMPT, known);
        test_run(e);
        assert_int_equal(rest.count, TOKENS);
        assert_memory_equal(rest.ids, whole.ids, sizeof(int32_t) * TOKENS);
        assert_memory_equal(rest.logprob, whole.logprob, sizeof(double) * TOKENS);
        pal_error why;
        known.on_token = NULL;
        assert_int_equal(pal_session_begin(b, prompt, 3 * PIECE, &known, &why), PAL_E_ARGUMENT);
        assert_non_null(strstr(why.text, "24"));
        pal_state_free(snapshot);
        pal_session_free(a);
        pal_session_free(b);
        pal_engine_free(e);
        test_speaker_free(&f);
    }
}

/* What was seen belongs to the text: a session that wrote a different one before gives the same as a new one. */
static void what_was_seen_belongs_to_the_text(void **state) {
    (void)state;
    enum { TOKENS = 40 };
    speaker f = test_speaker(3);
    static written first, second, other;
    first = second = other = (written){ 0 };
    uint32_t prompt[12];
    test_prompt(prompt, 12, 8);
    const pal_session_options o = { .sampling = { .repetition_penalty = 2 }, .max_tokens = TOKENS };
    pal_engine *e = test_engine(&f, NULL);
    pal_session *memory = test_session(e), *a = test_session(e), *b = test_session(e);
    test_begin(memory, &other, prompt, 12, (pal_session_options){ 0 });
    test_run(e);
    OK(pal_session_copy(a, memory, err));
    test_begin(a, &other, prompt + 4, 3, o); /* sees other tokens */
    test_run(e);
    OK(pal_session_copy(a, memory, err));
    OK(pal_session_copy(b, memory, err));
    test_begin(a, &first, prompt + 2, 2, o);
    test_begin(b, &second, prompt + 2, 2, o);
    test_run(e);
    assert_int_equal(first.count, TOKENS);
    assert_memory_equal(first.ids, second.ids, sizeof(int32_t) * TOKENS);
    pal_session_free(memory);
    pal_session_free(a);
    pal_session_free(b);
    pal_engine_free(e);
    test_speaker_free(&f);
}

/* Ended in the middle of its prompt, a session holds a beginning of it, and continues with the rest. */
static void a_cancelled_prompt_can_be_gone_on_with(void **state) {
    (void)state;
    enum { PROMPT = 30, TOKENS = 8 };
    speaker f = test_speaker(0);
    static written whole, parts;
    whole = parts = (written){ 0 };
    uint32_t prompt[PROMPT];
    test_prompt(prompt, PROMPT, 4);
    const pal_session_options o = { .sampling = { .temperature = 1, .repetition_penalty = 2 }, .max_tokens = TOKENS };
    pal_engine *e = test_engine(&f, &(pal_engine_options){ .piece = 8 });
    pal_session *a = test_session(e), *b = test_session(e);
    test_begin(a, &whole, prompt, PROMPT, o);
    test_run(e);
    test_begin(b, &parts, prompt, PROMPT, o);
    pal_engine_step(e);
    pal_session_cancel(b);
    assert_int_equal(pal_engine_busy(e), 0);
    assert_int_equal(pal_state_position(pal_session_state(b)), 8);
    assert_int_equal(pal_state_pending(pal_session_state(b)), prompt[8]);
    test_begin(b, &parts, prompt + 9, PROMPT - 9, o);
    test_run(e);
    assert_memory_equal(whole.ids, parts.ids, sizeof(int32_t) * TOKENS); /* pieces are where they were */
    pal_session_free(a);
    pal_session_free(b);
    pal_engine_free(e);
    test_speaker_free(&f);
}

/* A memory that holds NaN ends its own text and no other's. */
static void a_neighbour_full_of_nan_changes_nothing(void **state) {
    (void)state;
    speaker f = test_speaker(3);
    static written alone, beside, broken;
    alone = beside = broken = (written){ 0 };
    uint32_t prompt[9];
    test_prompt(prompt, 9, 4);
    const pal_session_options o = { .sampling = { .temperature = 1 }, .max_tokens = 20 };
    pal_engine *e = test_engine(&f, NULL);
    pal_session *a = test_session(e), *b = test_session(e), *bad = test_session(e);
    test_begin(a, &alone, prompt, 9, o);
    test_run(e);
    for (size_t i = 0; i < bad->state->fixed; i++) bad->state->data[i] = NAN;
    test_begin(bad, &broken, prompt, 9, o);
    test_begin(b, &beside, prompt, 9, o);
    test_run(e);
    assert_int_equal(broken.finish, PAL_FINISH_ERROR);
    assert_int_equal(broken.count, 0);
    assert_int_equal(beside.count, 20);
    assert_memory_equal(alone.ids, beside.ids, sizeof(int32_t) * 20);
    pal_session_free(a);
    pal_session_free(b);
    pal_session_free(bad);
    pal_engine_free(e);
    test_speaker_free(&f);
}

static void padding_rows_and_missing_ids_are_never_written(void **state) {
    (void)state;
    speaker f = test_speaker(6);
    static written w;
    assert_true(pal_model_config_of(f.model)->vocab_rows > V);
    w = (written){ 0 };
    pal_engine *e = test_engine(&f, NULL);
    pal_session *s = test_session(e);
    test_begin(s, &w, &(uint32_t){ 1 }, 1,
               (pal_session_options){ .sampling = { .temperature = 100 }, .max_tokens = 500, .seed = 3 });
    test_run(e);
    for (int i = 0; i < w.count; i++) assert_in_range(w.ids[i], 0, V - 1);
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

static void count_alternatives(void *user, const pal_token *t) {
    int *counted = user;
    assert_int_equal(t->top_count, 5);
    for (int i = 1; i < t->top_count; i++) assert_true(t->top[i].logprob <= t->top[i - 1].logprob);
    assert_true(t->logprob == t->top[0].logprob && t->id == t->top[0].id); /* greedy, and the same number */
    ++*counted;
}

static void alternatives_are_the_likeliest(void **state) {
    (void)state;
    speaker f = test_speaker(3);
    int counted = 0;
    pal_engine *e = test_engine(&f, NULL);
    pal_session *s = test_session(e);
    OK(pal_session_begin(
        s, &(uint32_t){ 1 }, 1,
        &(pal_session_options){
            .max_tokens = 20, .logprobs = true, .alternatives = 5, .on_token = count_alternatives, .user = &counted },
        err));
    test_run(e);
    assert_int_equal(counted, 20);
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

static void a_step_allocates_nothing_but_pages_of_keys_and_values(void **state) {
    (void)state;
    const size_t kinds[] = { 0, 3, 7, 8 };
    for (size_t c = 0; c < PAL_COUNT(kinds); c++) {
        speaker f = test_speaker(kinds[c]);
        static written w[3];
        memset(w, 0, sizeof w);
        const char *const stop[] = { "zz.z.zz", "a.b" };
        uint32_t prompt[40];
        test_prompt(prompt, 40, 7);
        pal_engine *e = test_engine(&f, &(pal_engine_options){ .piece = 16, .variance = true });
        pal_session *s[3];
        pal_session_options o = { .sampling = lively,
                                  .max_tokens = 50,
                                  .stop = stop,
                                  .stop_count = 2,
                                  .logprobs = true,
                                  .prompt_logprobs = true,
                                  .alternatives = 3 };
        o.sampling.frequency_penalty = 0.1;
        for (int i = 0; i < 3; i++) {
            s[i] = test_session(e);
            test_begin(s[i], &w[i], prompt, 1 + 19 * (size_t)i, o);
        }
        const uint64_t before = pal_alloc_count();
        test_run(e);
        uint64_t pages = 0;
        for (int i = 0; i < 3 && pal_model_grows(&f.model->config); i++) pages += s[i]->state->held;
        assert_int_equal(pal_alloc_count() - before, pages);
        assert_true(w[0].count + w[1].count + w[2].count > 20);
        const pal_engine_counts counts = pal_engine_counted(e);
        assert_int_equal(counts.read, 0 + 19 + 38);
        assert_int_equal(counts.written + 1 + 20 + 39, w[0].count + w[1].count + w[2].count);
        for (int i = 0; i < 3; i++) pal_session_free(s[i]);
        pal_engine_free(e);
        test_speaker_free(&f);
    }
}

static void attention_ends_with_its_context(void **state) {
    (void)state;
    speaker f = test_speaker(8);
    static written w;
    pal_error why;
    uint32_t prompt[5];
    w = (written){ 0 };
    test_prompt(prompt, 5, 2);
    assert_true(pal_model_grows(pal_model_config_of(f.model)));
    pal_engine *e = test_engine(&f, &(pal_engine_options){ .context = 12 });
    pal_session *s = test_session(e);
    test_begin(s, &w, prompt, 5, (pal_session_options){ .max_tokens = 100 });
    test_run(e);
    assert_int_equal(w.finish, PAL_FINISH_CONTEXT);
    assert_int_equal(w.count, 8); /* the twelfth token is read, and one more written from it */
    assert_int_equal(pal_session_begin(s, prompt, 5, &(pal_session_options){ 0 }, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "hold 12"));
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

static void what_does_not_fit_is_refused_with_a_sentence(void **state) {
    (void)state;
    speaker f = test_speaker(0);
    pal_engine *e;
    pal_tokenizer *bytes;
    pal_error why;
    OK(pal_tokenizer_open(&bytes, "bytes", err));
    assert_int_equal(pal_engine_new(&e, f.model, bytes, f.cx, NULL, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "256"));
    assert_non_null(strstr(why.text, "29"));
    assert_null(e);
    pal_tokenizer_close(bytes);
    assert_int_equal(pal_engine_new(&e, f.model, f.tok, f.cx, &(pal_engine_options){ .piece = -1 }, &why),
                     PAL_E_ARGUMENT);
    e = test_engine(&f, NULL);
    pal_session *s = test_session(e);
    const char *const empty[] = { "a", "" };
    static const pal_logit_bias beyond = { V, 1 };
    const pal_session_options wrong[] = { { .max_tokens = -1 },
                                          { .alternatives = 21 },
                                          { .stop = empty, .stop_count = 2 },
                                          { .sampling = { .temperature = -1 } },
                                          { .sampling = { .bias = &beyond, .bias_count = 1 } } };
    for (size_t i = 0; i < PAL_COUNT(wrong); i++)
        assert_int_equal(pal_session_begin(s, &(uint32_t){ 1 }, 1, &wrong[i], &why), PAL_E_ARGUMENT);
    const pal_session_options fine = { .max_tokens = 1 };
    assert_int_equal(pal_session_begin(s, NULL, 0, &fine, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_session_begin(s, &(uint32_t){ V }, 1, &fine, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "29"));
    assert_int_equal(pal_engine_busy(e), 0);
    pal_session_free(s);
    pal_engine_free(e);
    for (uint64_t at = 1;; at++) { /* every allocation fails once */
        pal_alloc_fail_at(at);
        pal_session_options o = { .sampling = lively, .stop = empty, .stop_count = 1, .prompt_logprobs = true };
        o.sampling.presence_penalty = 1;
        s = NULL;
        pal_status st = pal_engine_new(&e, f.model, f.tok, f.cx, NULL, &why);
        if (!st) st = pal_session_new(&s, e, &why);
        if (!st) st = pal_session_begin(s, &(uint32_t){ 1 }, 1, &o, &why);
        pal_alloc_fail_at(0);
        pal_session_free(s);
        pal_engine_free(e);
        if (!st) break;
        assert_int_equal(st, PAL_E_MEMORY);
    }
    test_speaker_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_equals_argmax_of_forward),
        cmocka_unit_test(written_tokens_have_the_logprobs_of_read_ones),
        cmocka_unit_test(variance_is_the_same_for_a_prompt_and_for_steps),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(what_is_known_need_not_be_read),
        cmocka_unit_test(readers_are_told_of_every_piece),
        cmocka_unit_test(what_was_seen_belongs_to_the_text),
        cmocka_unit_test(a_cancelled_prompt_can_be_gone_on_with),
        cmocka_unit_test(a_neighbour_full_of_nan_changes_nothing),
        cmocka_unit_test(padding_rows_and_missing_ids_are_never_written),
        cmocka_unit_test(alternatives_are_the_likeliest),
        cmocka_unit_test(a_step_allocates_nothing_but_pages_of_keys_and_values),
        cmocka_unit_test(attention_ends_with_its_context),
        cmocka_unit_test(what_does_not_fit_is_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
