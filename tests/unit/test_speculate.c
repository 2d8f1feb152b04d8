/* SPDX-License-Identifier: MIT */
/* Sessions that guess write what sessions write that do not, and leave the same memory. */
#include <dirent.h>

#include "base/alloc.h"
#include "infer/session.h"
#include "model/state.h"
#include "support/files.h"
#include "support/sessions.h"

enum { PROMPT = 24, TOKENS = 60, CONTEXT = 160, CASES = 12 };

/* Of all texts of a test: a guess that is never right, or always, would test little. */
static uint64_t accepted, rejected;

static const char *const grammar_text = "root ::= ( [a-c] [a-e ] \"no\"? )+ \".\"";

/* A prompt that repeats itself, so that there is something to guess from. */
static void repeating(uint32_t ids[PROMPT], uint64_t seed) {
    test_prompt(ids, PROMPT / 3, seed);
    for (int i = PROMPT / 3; i < PROMPT; i++) ids[i] = ids[i - PROMPT / 3];
}

/* Options of case i; of a tokenizer of letters, letters also have what needs text. */
static pal_session_options options_of(int i, bool letters, const pal_grammar *grammar) {
    static const char *const stops[] = { "oo", "ab", "q", "e" };
    static const pal_logit_bias bias[] = { { 3, 4.0 }, { 5, 3.5 }, { 7, -100 } };
    pal_session_options o = { .max_tokens = TOKENS, .ignore_eos = true, .seed = (uint64_t)i + 5 };
    o.sampling.temperature = i % 3 ? 0.05 * (i % 3) : 0;
    if (i % 4 == 1) o.sampling.top_k = 4;
    if (i % 4 == 2) o.sampling.repetition_penalty = 1.05, o.sampling.frequency_penalty = 0.05;
    if (i % 4 == 3) o.sampling.bias = bias, o.sampling.bias_count = 3;
    o.logprobs = i % 2;
    o.alternatives = i % 2 ? 3 : 0;
    if (i == 4) o.max_tokens = 3;
    if (i == 5) o.max_tokens = CONTEXT; /* attention ends the text */
    if (letters && i % 5 == 1) o.stop = stops, o.stop_count = 4;
    if (letters && i >= 8) o.grammar = grammar;
    return o;
}

static void same_text(const char *name, const written *a, const written *b) {
    if (a->count != b->count || memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) != 0)
        fail_msg("%s: %d tokens with guesses, %d without, or others", name, a->count, b->count);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->text, b->text, a->size);
    assert_memory_equal(a->edge, b->edge, sizeof a->edge);
    assert_memory_equal(a->logprob, b->logprob, (size_t)a->count * sizeof *a->logprob);
    assert_memory_equal(a->variance, b->variance, (size_t)a->count * sizeof *a->variance);
}

/* What a session leaves, with what it has seen. */
static void same_file(pal_session *a, pal_session *b) {
    unsigned char *bytes[2];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        OK(pal_session_save(i ? b : a, in_folder("memory"), err));
        bytes[i] = test_read_file(in_folder("memory"), &size[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    free(bytes[0]);
    free(bytes[1]);
}

/* Some of the cases, and of each a second text that continues the first one's memory, with guesses and without. */
static void check(const char *name, const speaker *f, bool letters, int first, int apart) {
    static written w[2];
    pal_engine *e[2];
    pal_session *s[2];
    pal_grammar *grammar;
    OK(pal_grammar_read(&grammar, grammar_text, strlen(grammar_text), err));
    for (int k = 0; k < 2; k++) {
        e[k] = test_engine(
            f, &(pal_engine_options){ .piece = 16, .context = CONTEXT, .variance = true, .speculate = k ? 0 : 7 });
        s[k] = test_session(e[k]);
    }
    for (int i = first; i < CASES; i += apart) {
        uint32_t prompt[PROMPT];
        repeating(prompt, (uint64_t)i + 3);
        const pal_session_options o = options_of(i, letters, grammar);
        for (int turn = 0; turn < 2; turn++) {
            for (int k = 0; k < 2; k++) {
                w[k] = (written){ 0 };
                if (!turn) pal_session_reset(s[k]);
                test_begin(s[k], &w[k], prompt, turn ? 3 : PROMPT, o);
                test_run(e[k]);
            }
            same_text(name, &w[0], &w[1]);
            same_file(s[0], s[1]);
            const pal_guessed guessed = pal_session_guessed(s[0]);
            accepted += (uint64_t)guessed.accepted;
            rejected += (uint64_t)guessed.rejected;
            if (pal_state_position(pal_session_state(s[0])) + 4 > CONTEXT) break;
        }
    }
    const pal_engine_counts with = pal_engine_counted(e[0]), without = pal_engine_counted(e[1]);
    assert_int_equal(with.written, without.written);
    assert_int_equal(without.accepted + without.rejected, 0);
    for (int k = 0; k < 2; k++) {
        pal_session_free(s[k]);
        pal_engine_free(e[k]);
    }
    pal_grammar_free(grammar);
}

static void begin_counting(void) { accepted = rejected = 0; }

static void much_was_guessed(void) {
    print_message("%llu guesses came true, %llu did not\n", (unsigned long long)accepted, (unsigned long long)rejected);
    assert_true(accepted > 400);
    assert_true(rejected > 100);
}

static void guesses_change_no_text_and_no_memory_in_every_kind(void **state) {
    (void)state;
    begin_counting();
    for (size_t k = 0; k < test_kind_count; k++) {
        speaker f = test_speaker(k);
        check(test_kinds[k].name, &f, true, (int)k % 4, 4);
        test_speaker_free(&f);
    }
    much_was_guessed();
}

/* Recorded models with ids for a tokenizer, as they are and in types of blocks, with keys and values in halves. */
static void check_folder(const char *folder) {
    static const pal_dtype types[] = { PAL_F32, PAL_Q8_0, PAL_Q4_0 };
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", PAL_TEST_GOLDEN, folder);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s/%s", PAL_TEST_GOLDEN, folder, entry->d_name);
        for (size_t type = 0; type < PAL_COUNT(types); type++) {
            pal_bundle m;
            speaker f = { .cx = test_context(1, NULL) };
            OK(pal_bundle_open(&m, path, "ids", NULL, f.cx, err));
            if (type) OK(pal_model_retype(m.model, types[type], f.cx, err));
            if (type) OK(pal_model_keep_as(m.model, PAL_F16, err));
            f.model = m.model;
            f.tok = m.tokenizer;
            check(entry->d_name, &f, false, (int)type, 6);
            pal_bundle_close(&m);
            pal_context_free(f.cx);
        }
    }
    closedir(d);
}

static void guesses_change_no_text_and_no_memory_of_recorded_models(void **state) {
    (void)state;
    begin_counting();
    check_folder("models");
    check_folder("families");
    much_was_guessed();
}

/* Guesses stop while there is company, and what a session writes stays the same; so does a copy's text. */
static void company_and_copies_change_nothing(void **state) {
    (void)state;
    enum { SESSIONS = 3 };
    static written alone[SESSIONS], together[SESSIONS];
    speaker f = test_speaker(0);
    pal_engine *e = test_engine(&f, &(pal_engine_options){ .context = CONTEXT, .speculate = 15 });
    pal_session *s[SESSIONS], *start = test_session(e);
    uint32_t prompt[PROMPT];
    repeating(prompt, 9);
    test_begin(start, &alone[0], prompt, PROMPT, (pal_session_options){ 0 });
    test_run(e);
    for (int i = 0; i < SESSIONS; i++) {
        const pal_session_options o = {
            .sampling = { .temperature = 0.1 * i }, .seed = 8, .max_tokens = 20 + 20 * i, .ignore_eos = true
        };
        s[i] = test_session(e);
        OK(pal_session_copy(s[i], start, err));
        alone[i] = together[i] = (written){ 0 };
        test_begin(s[i], &alone[i], NULL, 0, o);
        test_run(e);
        OK(pal_session_copy(s[i], start, err));
        test_begin(s[i], &together[i], NULL, 0, o);
        pal_session_pause(s[i], true);
    }
    for (int i = 0; i < SESSIONS; i++) pal_session_pause(s[i], false);
    test_run(e); /* the longest text is alone in the end */
    for (int i = 0; i < SESSIONS; i++) {
        same_text("company", &together[i], &alone[i]);
        pal_session_free(s[i]);
    }
    assert_true(pal_engine_counted(e).accepted > 10);
    pal_session_free(start);
    pal_engine_free(e);
    test_speaker_free(&f);
}

static void steps_with_guesses_allocate_nothing(void **state) {
    (void)state;
    static written w;
    speaker f = test_speaker(0);
    pal_engine *e = test_engine(&f, &(pal_engine_options){ .speculate = 7 });
    pal_session *s = test_session(e);
    uint32_t prompt[PROMPT];
    repeating(prompt, 4);
    w = (written){ 0 };
    test_begin(s, &w, prompt, PROMPT,
               (pal_session_options){ .sampling = { .bias = &(pal_logit_bias){ 3, 100 }, .bias_count = 1 },
                                      .max_tokens = 200,
                                      .ignore_eos = true });
    const size_t before = pal_alloc_count();
    test_run(e);
    assert_int_equal(pal_alloc_count(), before);
    assert_true(pal_session_guessed(s).accepted > 10);
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

/* The guesser alone. */
static void guesses_are_what_followed_before(void **state) {
    (void)state;
    enum { SAME = 12 };
    pal_guesser g = { 0 };
    int32_t draft[8];
    pal_guess_forget(&g);
    OK(pal_guess_reserve(&g, 100, err));
    assert_int_equal(pal_guess(&g, draft, 8), 0);
    for (int turn = 0; turn < 2; turn++) /* 0 to 11 and 50 90 2 3 70 60, and the beginning again */
        for (uint32_t i = 0; i < SAME; i++) {
            if (turn && i == 4)
                assert_int_equal(pal_guess(&g, draft, 8), 1); /* after 0 1 2 3, not after the newer 2 3 */
            if (turn && i == 4) assert_int_equal(draft[0], 4);
            if (turn && i == 2) assert_int_equal(pal_guess(&g, draft, 8), 0); /* two alike may mean nothing */
            pal_guess_note(&g, i);
            if (turn || i < SAME - 1) continue;
            const uint32_t between[] = { 50, 90, 2, 3, 70, 60 };
            for (size_t k = 0; k < PAL_COUNT(between); k++) pal_guess_note(&g, between[k]);
        }
    assert_int_equal(pal_guess(&g, draft, 8), 4); /* eight alike: a longer draft, and longer ones as it comes true */
    const int32_t follows[] = { 50, 90, 2, 3 };
    assert_memory_equal(draft, follows, sizeof follows);
    for (int i = 0; i < 20; i++) pal_guess_learn(&g, 4, 4);
    assert_int_equal(pal_guess(&g, draft, 8), 8);
    assert_int_equal(pal_guess(&g, draft, 2), 2);
    for (int i = 0; i < 20; i++) pal_guess_learn(&g, 1, 0); /* in vain: none for a while, but not for good */
    int steps = 0;
    while (!pal_guess(&g, draft, 8) && steps < 1000) steps++;
    assert_true(steps > 20 && steps < 1000);
    pal_guess_forget(&g);
    assert_int_equal(pal_guess(&g, draft, 8), 0);
    for (int i = 0; i < 9; i++) pal_guess_note(&g, 4); /* what follows goes beyond the end of the text */
    assert_int_equal(pal_guess(&g, draft, 8), 4);
    for (int i = 0; i < 4; i++) assert_int_equal(draft[i], 4);
    OK(pal_guess_reserve(&g, 1 << 17, err)); /* a long text: its newest part */
    for (uint32_t i = 0; i < 100000; i++) pal_guess_note(&g, i);
    assert_int_equal(g.text.data[g.text.count - 1], 99999);
    assert_true(g.text.count <= 1 << 16);
    pal_ids_free(&g.text);
}

static void more_guesses_than_there_is_room_for_are_refused(void **state) {
    (void)state;
    speaker f = test_speaker(0);
    pal_engine *e;
    pal_error why;
    assert_int_equal(pal_engine_new(&e, f.model, f.tok, f.cx, &(pal_engine_options){ .speculate = 32 }, &why),
                     PAL_E_ARGUMENT);
    assert_string_equal(why.text, "an engine that guesses 32 tokens: expected 0 to 31");
    test_speaker_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_change_no_text_and_no_memory_in_every_kind),
        cmocka_unit_test(guesses_change_no_text_and_no_memory_of_recorded_models),
        cmocka_unit_test(company_and_copies_change_nothing),
        cmocka_unit_test(steps_with_guesses_allocate_nothing),
        cmocka_unit_test(guesses_are_what_followed_before),
        cmocka_unit_test(more_guesses_than_there_is_room_for_are_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
