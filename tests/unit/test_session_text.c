/* SPDX-License-Identifier: MIT */
/* What sessions say: whole characters, stop strings, the end of a text; and their files, through which all continues.
 */
#include "infer/stops.h"
#include "model/state.h"
#include "support/files.h"
#include "support/sessions.h"
#include "text/strings.h"
#include "text/utf8.h"

enum { V = TEST_VOCAB };

static void a_saved_session_goes_on_with_the_same_tokens(void **state) {
    (void)state;
    enum { TOKENS = 30 };
    for (size_t k = 0; k < test_kind_count; k++) {
        speaker f = test_speaker(k);
        static written straight, parts;
        uint32_t prompt[9];
        char folder[256], file[300];
        test_directory(folder);
        snprintf(file, sizeof file, "%s/memory", folder);
        test_prompt(prompt, 9, 8);
        straight = parts = (written){ 0 };
        pal_session_options o = { .sampling = { .temperature = 1, .repetition_penalty = 1.7 }, .seed = 3 };
        pal_engine *e = test_engine(&f, &(pal_engine_options){ .context = 64 });
        pal_session *a = test_session(e), *b;
        o.max_tokens = TOKENS;
        test_begin(a, &straight, prompt, 9, o);
        test_run(e);
        pal_session_reset(a);
        o.max_tokens = 0;
        test_begin(a, &parts, prompt, 9, o); /* read only */
        test_run(e);
        assert_int_equal(parts.count, 0);
        assert_int_equal(parts.finish, PAL_FINISH_LENGTH);
        o.max_tokens = 10;
        for (int piece = 0; piece < TOKENS; piece += 10) {
            OK(pal_session_save(a, file, err));
            b = test_session(e);
            if (piece == 10) OK(pal_session_copy(b, a, err)); /* a fork is as good as a file */
            else OK(pal_session_load(b, file, err));
            pal_session_free(a);
            a = b;
            test_begin(a, &parts, NULL, 0, o);
            test_run(e);
        }
        assert_int_equal(parts.count, TOKENS);
        assert_memory_equal(parts.ids, straight.ids, sizeof(int32_t) * TOKENS);
        pal_session_free(a);
        pal_engine_free(e);
        test_remove(folder);
        test_speaker_free(&f);
    }
}

/* Text that continues without a prompt is in its middle: words keep the blank in front of them, also where
 * SentencePiece has none at the start of a text, and characters are whole, however many tokens they were begun by:
 * through files. */
static void text_goes_on_where_it_stopped(void **state) {
    (void)state;
    static const tiny_kind kinds[] = { TINY_SPM, TINY_BYTES };
    enum { PARTS = 120 };
    int blanks = 0, inside = 0;
    char folder[256], file[300];
    test_directory(folder);
    snprintf(file, sizeof file, "%s/memory", folder);
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        speaker f = test_tiny_speaker(kinds[k]);
        pal_engine *e = test_engine(&f, NULL);
        pal_session *s = test_session(e);
        pal_bytes whole = { 0 }, pieces = { 0 };
        pal_decoder *decoder;
        static written w;
        w = (written){ 0 };
        const uint32_t start = kinds[k] == TINY_BYTES ? 'a' : (uint32_t)pal_tokenizer_size(f.tok) - 1;
        test_begin(s, &w, &start, 1, (pal_session_options){ 0 });
        test_run(e);
        OK(pal_decoder_new(&decoder, f.tok, true, err));
        OK(pal_decoder_push(decoder, start, &whole, err));
        whole.size = 0;
        /* Bytes of three-byte characters are what is needed often: U+20AC, cut everywhere. */
        static const pal_logit_bias often[] = { { 0xE2, 4 }, { 0x82, 4 }, { 0xAC, 4 } };
        for (int part = 0; part < PARTS; part++) {
            pal_session_options o = {
                .sampling = { .temperature = 1 }, .max_tokens = 1, .seed = (uint64_t)part, .ignore_eos = true
            };
            if (kinds[k] == TINY_BYTES) o.sampling.bias = often, o.sampling.bias_count = PAL_COUNT(often);
            w = (written){ 0 };
            OK(pal_session_save(s, file, err));
            pal_session_free(s);
            s = test_session(e);
            OK(pal_session_load(s, file, err));
            test_begin(s, &w, NULL, 0, o);
            test_run(e);
            assert_int_equal(w.count, 1);
            const size_t before = whole.size;
            OK(pal_decoder_push(decoder, (uint32_t)w.ids[0], &whole, err)); /* as someone who sees all tokens */
            inside += whole.size - before >= 3;
            OK(pal_bytes_append(&pieces, w.text, w.size, err));
            blanks += w.size && w.text[0] == ' ';
            assert_int_equal(pieces.size, whole.size);
            if (whole.size) assert_memory_equal(pieces.data, whole.data, whole.size);
        }
        OK(pal_decoder_finish(decoder, &whole, err)); /* nothing is lost at the end */
        const pal_slice rest = pal_session_rest(s);
        OK(pal_bytes_append(&pieces, rest.data, rest.size, err));
        assert_int_equal(pieces.size, whole.size);
        assert_memory_equal(pieces.data, whole.data, whole.size);
        pal_decoder_free(decoder);
        pal_bytes_free(&whole), pal_bytes_free(&pieces);
        pal_session_free(s);
        pal_engine_free(e);
        test_speaker_free(&f);
    }
    assert_true(blanks > 0 && inside > 3);
    test_remove(folder);
}

static void a_pending_token_is_part_of_the_file(void **state) {
    (void)state;
    speaker f = test_speaker(0);
    pal_state *a, *b;
    pal_error why;
    char folder[256], file[300];
    test_directory(folder);
    snprintf(file, sizeof file, "%s/memory", folder);
    OK(pal_state_new(&a, f.model, 8, err));
    OK(pal_state_new(&b, f.model, 8, err));
    assert_int_equal(pal_state_pending(a), -1);
    assert_int_equal(pal_state_set_pending(a, V, &why), PAL_E_ARGUMENT);
    OK(pal_state_set_pending(a, 7, err));
    OK(pal_state_save(a, file, err));
    OK(pal_state_load(b, file, err));
    assert_int_equal(pal_state_pending(b), 7);
    pal_state_reset(b);
    assert_int_equal(pal_state_pending(b), -1);
    OK(pal_state_copy(b, a, err));
    assert_int_equal(pal_state_pending(b), 7);
    FILE *raw = fopen(file, "r+b"); /* another pending token without its checksum */
    assert_non_null(raw);
    fseek(raw, 12, SEEK_SET);
    fputc(3, raw);
    fclose(raw);
    assert_int_equal(pal_state_load(b, file, &why), PAL_E_FORMAT);
    pal_state_free(a);
    pal_state_free(b);
    test_remove(folder);
    test_speaker_free(&f);
}

/* A file of version 1 as it was written before there was a version 2: the same without the last field. */
static void a_state_file_of_version_1_is_still_read(void **state) {
    (void)state;
    speaker f = test_speaker(0);
    pal_state *a, *b;
    pal_error why;
    char folder[256], file[300];
    int32_t ids[5];
    test_directory(folder);
    snprintf(file, sizeof file, "%s/memory", folder);
    pal_engine *e = test_engine(&f, NULL);
    pal_session *s = test_session(e);
    static written w;
    test_ids(ids, 5, V, 3);
    OK(pal_state_new(&a, f.model, 8, err));
    OK(pal_state_new(&b, f.model, 8, err));
    pal_work *work;
    OK(pal_work_new(&work, f.model, f.cx, &(pal_work_options){ .tokens = 8 }, err));
    OK(pal_model_prefill(f.model, work, a, ids, 5, NULL, err));
    OK(pal_state_set_pending(a, 7, err));
    OK(pal_state_save(a, file, err));
    unsigned char bytes[1 << 16];
    FILE *raw = fopen(file, "rb");
    const size_t size = fread(bytes, 1, sizeof bytes, raw);
    fclose(raw);
    assert_in_range(size, 100, sizeof bytes - 1);
    bytes[8] = 1;
    raw = fopen(file, "wb");
    fwrite(bytes, 1, 56, raw);
    fwrite(bytes + 64, 1, size - 64, raw);
    fclose(raw);
    OK(pal_state_load(b, file, err));
    assert_int_equal(pal_state_pending(b), 7);
    assert_int_equal(pal_state_position(b), 5);
    test_same_bits("a state", b->data, a->data, a->fixed);
    OK(pal_session_load(s, file, err));
    test_begin(s, &w, NULL, 0, (pal_session_options){ .max_tokens = 2 });
    test_run(e);
    for (size_t cut = 0; cut < 130; cut += 7) { /* cut short: refused, and the session keeps what it has */
        raw = fopen(file, "wb");
        fwrite(bytes, 1, cut < 120 ? cut : size - 1, raw);
        fclose(raw);
        assert_int_not_equal(pal_session_load(s, file, &why), PAL_OK);
        assert_int_equal(pal_state_position(pal_session_state(s)), 7);
    }
    pal_work_free(work);
    pal_state_free(a);
    pal_state_free(b);
    pal_session_free(s);
    pal_engine_free(e);
    test_remove(folder);
    test_speaker_free(&f);
}

static void every_changed_byte_of_a_session_file_is_noticed(void **state) {
    (void)state;
    speaker f = test_speaker(0);
    char folder[256], file[300];
    pal_error why;
    test_directory(folder);
    snprintf(file, sizeof file, "%s/memory", folder);
    pal_engine *e = test_engine(&f, NULL);
    pal_session *s = test_session(e);
    static written w;
    test_begin(s, &w, (const uint32_t[]){ 3, 4, 5 }, 3, (pal_session_options){ .max_tokens = 4 });
    test_run(e);
    OK(pal_session_save(s, file, err));
    FILE *raw = fopen(file, "r+b");
    fseek(raw, 0, SEEK_END);
    const long size = ftell(raw);
    for (long at = 0; at < size; at += at < 64 || at > size - 60 ? 1 : 97) {
        fseek(raw, at, SEEK_SET);
        const int was = fgetc(raw);
        fseek(raw, at, SEEK_SET);
        fputc(was ^ 0x10, raw);
        fflush(raw);
        if (pal_session_load(s, file, &why) == PAL_OK) fail_msg("byte %ld of %ld was changed, unnoticed", at, size);
        fseek(raw, at, SEEK_SET);
        fputc(was, raw);
        fflush(raw);
    }
    OK(pal_session_load(s, file, err));
    fclose(raw);
    pal_session_free(s);
    pal_engine_free(e);
    test_remove(folder);
    test_speaker_free(&f);
}

static void text_ends_before_the_first_stop_string(void **state) {
    (void)state;
    enum { TOKENS = 300 };
    speaker f = test_speaker(3);
    static written free_text, stopped;
    uint32_t prompt[3];
    free_text = (written){ 0 };
    test_prompt(prompt, 3, 8);
    pal_engine *e = test_engine(&f, NULL);
    pal_session *s = test_session(e);
    pal_session_options o = { .sampling = { .temperature = 1 }, .max_tokens = TOKENS, .seed = 3 };
    test_begin(s, &free_text, prompt, 3, o);
    test_run(e);
    assert_int_equal(free_text.size, TOKENS);
    free_text.text[TOKENS] = '\0';
    pal_rng rng = pal_rng_at(3, 1);
    for (int c = 0; c < 15; c++) {
        char first[12] = "", second[12] = "qqqqqqqqq";
        const size_t size = 1 + pal_rng_below(&rng, 7), at = pal_rng_below(&rng, TOKENS - 10);
        memcpy(first, free_text.text + at, size);
        first[size] = '\0';
        if (c % 3 == 0) memcpy(second, free_text.text + pal_rng_below(&rng, TOKENS - 10), 3), second[3] = '\0';
        if (c % 5 == 0) first[size - 1] = '\n'; /* perhaps nowhere */
        const char *one = strstr(free_text.text, first), *two = strstr(free_text.text, second);
        /* The one that is complete first ends the text. */
        const char *end = free_text.text + TOKENS;
        const size_t one_ends = one ? (size_t)(one - free_text.text) + strlen(first) : SIZE_MAX,
                     two_ends = two ? (size_t)(two - free_text.text) + strlen(second) : SIZE_MAX;
        if (one_ends < two_ends) end = one;
        else if (two_ends < one_ends) end = two;
        else if (one) end = one < two ? one : two;
        const char *const stop[] = { first, second };
        stopped = (written){ 0 };
        o.stop = stop, o.stop_count = 2;
        pal_session_reset(s);
        test_begin(s, &stopped, prompt, 3, o);
        test_run(e);
        assert_int_equal(stopped.size, (size_t)(end - free_text.text));
        assert_memory_equal(stopped.text, free_text.text, stopped.size);
        assert_int_equal(stopped.finish, one || two ? PAL_FINISH_STOP : PAL_FINISH_LENGTH);
        assert_int_equal(pal_session_finish(s), stopped.finish);
        assert_int_equal(pal_session_rest(s).size, 0);
    }
    /* Ended from outside, what might have become a stop string is the rest. */
    const char stop[] = { free_text.text[0], '\n', '\n', '\0' };
    const char *const stops[] = { stop };
    stopped = (written){ 0 };
    o.stop = stops, o.stop_count = 1;
    pal_session_reset(s);
    test_begin(s, &stopped, prompt, 3, o);
    pal_engine_step(e);
    assert_int_equal(stopped.size, 0);
    pal_session_cancel(s);
    const pal_slice rest = pal_session_rest(s);
    assert_int_equal(rest.size, 1);
    assert_int_equal(rest.data[0], free_text.text[0]);
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

/* How much of a held text can be reported, by comparing every place with every stop string. */
static size_t compare_everywhere(const char *const *stops, size_t count, const char *held, size_t size, bool *stopped) {
    size_t certain = size;
    *stopped = false;
    for (size_t at = 0; at < size; at++)
        for (size_t i = 0; i < count; i++) {
            const size_t rest = size - at, whole = strlen(stops[i]);
            if (memcmp(held + at, stops[i], rest < whole ? rest : whole) != 0) continue;
            if (rest >= whole) {
                *stopped = true;
                return at;
            }
            if (at < certain) certain = at;
        }
    return certain;
}

/* Repetitive stop strings in texts of two or three letters, which come a few at a time. */
static void stop_strings_are_found_as_by_plain_comparison(void **state) {
    (void)state;
    enum { TRIES = 3000, MOST = 5, LONGEST = 24, TEXT = 200 };
    pal_rng rng = pal_rng_at(11, 1);
    int found = 0, held_back = 0;
    for (int try = 0; try < TRIES; try++) {
        const uint32_t letters = try % 2 ? 3 : 2;
        char texts[MOST][LONGEST + 1] = { 0 }, held[TEXT + 8]; /* linters do not see that a period is above 0 */
        const char *list[MOST];
        const size_t count = 1 + pal_rng_below(&rng, MOST);
        for (size_t i = 0; i < count; i++) {
            const size_t size = 1 + pal_rng_below(&rng, LONGEST), period = 1 + pal_rng_below(&rng, 5);
            for (size_t k = 0; k < size; k++)
                texts[i][k] = k < period ? (char)('a' + pal_rng_below(&rng, letters)) : texts[i][k - period];
            if (try % 3 == 0) texts[i][size - 1] = 'a';
            texts[i][size] = '\0';
            list[i] = texts[i];
        }
        pal_stops stops;
        OK(pal_stops_new(&stops, list, count, err));
        size_t size = 0, period = 1 + pal_rng_below(&rng, 7);
        bool stopped = false;
        char text[TEXT] = { 0 };
        for (size_t k = 0; k < TEXT; k++)
            text[k] = k < period || !pal_rng_below(&rng, 12) ? (char)('a' + pal_rng_below(&rng, letters))
                                                             : text[k - period];
        for (size_t from = 0; from < TEXT && !stopped;) {
            const size_t seen = size;
            bool expected;
            for (size_t more = 1 + pal_rng_below(&rng, 7); more && from < TEXT; more--) held[size++] = text[from++];
            const size_t told = pal_stops_tellable(&stops, (const unsigned char *)held, size, seen, &stopped);
            assert_int_equal(told, compare_everywhere(list, count, held, size, &expected));
            assert_int_equal(stopped, expected);
            size -= told;
            memmove(held, held + told, size);
            held_back += size > 8;
            if (pal_rng_below(&rng, 40)) continue;
            size = 0; /* someone took what was held back */
            pal_stops_restart(&stops);
        }
        found += stopped;
        pal_stops_free(&stops);
    }
    assert_true(found > TRIES / 10 && found < TRIES && held_back > TRIES / 10);
}

static void only_whole_characters_are_shown(void **state) {
    (void)state;
    speaker f = test_tiny_speaker(TINY_BYTES);
    static written w;
    pal_bytes all = { 0 };
    pal_engine *e = test_engine(&f, NULL);
    pal_session *s = test_session(e);
    for (uint64_t seed = 0; seed < 8; seed++) {
        w = (written){ 0 };
        all.size = 0;
        pal_session_reset(s);
        test_begin(s, &w, &(uint32_t){ 65 }, 1,
                   (pal_session_options){ .sampling = { .temperature = 1 }, .max_tokens = 400, .seed = seed });
        test_run(e);
        assert_int_equal(w.count, 400);
        OK(pal_tokenizer_decode(f.tok, (const uint32_t *)w.ids, 400, true, &all, err));
        const pal_slice rest = pal_session_rest(s);
        assert_int_equal(w.size + rest.size, all.size);
        assert_memory_equal(w.text, all.data, w.size);
        if (rest.size) assert_memory_equal(rest.data, all.data + w.size, rest.size);
        for (size_t at = 0; at < w.size;) {
            uint32_t code;
            const size_t n = pal_utf8_read((const unsigned char *)w.text + at, w.size - at, &code);
            for (size_t i = 1; i < n; i++)
                if (w.edge[at + i]) fail_msg("a piece of text ends inside a character of %zu bytes", n);
            at += n ? n : 1;
        }
    }
    pal_session_free(s);
    pal_engine_free(e);
    pal_bytes_free(&all);
    test_speaker_free(&f);
}

static void eos_ends_a_text_and_is_not_shown(void **state) {
    (void)state;
    speaker f = { .cx = test_context(1, NULL) };
    pal_model_config c;
    static written ends, goes_on;
    ends = goes_on = (written){ 0 };
    const pal_slice text = { (const unsigned char *)"the cat sat on the mat", 22 };
    OK(pal_tokenizer_train_bpe(&f.tok, &text, 1, 259, err));
    assert_int_equal(pal_tokenizer_eos(f.tok), 0);
    OK(pal_model_preset(
        &c, "palimpsa-m",
        &(pal_preset_options){
            .task = "text", .vocab = 260, .hidden = 16, .layers = 1, .head_dim = 8, .state_size = 4, .rank = 2 },
        err));
    OK(pal_model_new(&f.model, &c, 1, PAL_FOR_INFERENCE, f.cx, err));
    pal_engine *e = test_engine(&f, NULL);
    pal_session *s = test_session(e);
    pal_session_options o = { .sampling = { .temperature = 1 }, .max_tokens = 100 };
    /* Nearly uniform over 259 ids: one in three meets it within 100. */
    for (; ends.finish != PAL_FINISH_EOS && o.seed < 100; o.seed++) {
        ends = (written){ 0 };
        pal_session_reset(s);
        test_begin(s, &ends, &(uint32_t){ 65 }, 1, o);
        test_run(e);
    }
    assert_int_equal(ends.finish, PAL_FINISH_EOS);
    assert_int_equal(ends.ids[ends.count - 1], 0);
    pal_session_reset(s);
    o.seed--;
    o.ignore_eos = true;
    test_begin(s, &goes_on, &(uint32_t){ 65 }, 1, o);
    test_run(e);
    assert_int_equal(goes_on.count, 100);
    assert_memory_equal(goes_on.ids, ends.ids, (size_t)ends.count * sizeof *ends.ids);
    goes_on.text[goes_on.size] = '\0';
    assert_null(strstr(goes_on.text, "endoftext"));
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_session_goes_on_with_the_same_tokens),
        cmocka_unit_test(text_goes_on_where_it_stopped),
        cmocka_unit_test(a_pending_token_is_part_of_the_file),
        cmocka_unit_test(a_state_file_of_version_1_is_still_read),
        cmocka_unit_test(every_changed_byte_of_a_session_file_is_noticed),
        cmocka_unit_test(text_ends_before_the_first_stop_string),
        cmocka_unit_test(stop_strings_are_found_as_by_plain_comparison),
        cmocka_unit_test(only_whole_characters_are_shown),
        cmocka_unit_test(eos_ends_a_text_and_is_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
