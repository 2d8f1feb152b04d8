/* SPDX-License-Identifier: MIT */
/* Pairs of prompt and response: only the response is trained on, wherever rows and contexts cut. */
#include "support/support.h"

#include <stdlib.h>

#include "data/loader.h"
#include "data/response.h"
#include "data/text.h"
#include "data/tokenize.h"
#include "support/files.h"

enum { DOCUMENTS = 4, MOST = 512 };

static const char lines[] = "{\"prompt\": \"How high?\", \"response\": \"Up to the knee.\", \"other\": 1}\n"
                            "{\"response\": \"### Response: is said here too\", \"prompt\": \"\"}\n\n"
                            "{\"prompt\": \"caf\\u00e9\", \"response\": \"\"}\n"
                            "{\"prompt\": \"Say\\n### Response:\\nno\", \"response\": \"no\"}\n";
static const char *const prompts[DOCUMENTS] = { "How high?", "", "caf\xc3\xa9", "Say\n### Response:\nno" },
                         *const responses[DOCUMENTS] = { "Up to the knee.", "### Response: is said here too", "",
                                                         "no" };

/* What the targets of all documents one after another must be, from the strings. */
static int expected(int32_t *ids, int32_t *targets) {
    int n = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        char whole[200];
        const int size = snprintf(whole, sizeof whole, "%s\n### Response:\n%s", prompts[d], responses[d]);
        const int first = (int)strlen(prompts[d]) + (int)strlen("\n### Response:");
        for (int t = 0; t < size; t++, n++) {
            ids[n] = (unsigned char)whole[t];
            targets[n] = t + 1 >= first && t + 1 < size ? (unsigned char)whole[t + 1] : PAL_IGNORE;
        }
    }
    return n;
}

static pal_status make(const char *folder, const char *text, pal_error *err) {
    char path[300], out[300];
    const char *file = path;
    pal_tokenize_result r;
    pal_context *cx = test_context(1, NULL);
    snprintf(path, sizeof path, "%s/pairs.jsonl", folder);
    snprintf(out, sizeof out, "%s/shards", folder);
    test_write_text(path, text);
    const pal_status st = pal_tokenize(
        &(pal_tokenize_job){
            .files = &file, .count = 1, .field = "prompt+response", .out = out, .tokenizer = "bytes", .cx = cx },
        &r, err);
    pal_context_free(cx);
    return st;
}

static void only_responses_are_targets_wherever_rows_are_cut(void **state) {
    (void)state;
    static const int rows[] = { 300, 64, 17, 5, 1 }, contexts[] = { 0, 300, 9, 4 };
    char folder[256], path[300];
    int32_t ids[MOST], targets[MOST], got_ids[MOST], got[MOST];
    int ends[MOST];
    pal_shards *shards;
    pal_error err;
    test_directory(folder);
    if (make(folder, lines, &err)) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/shards", folder);
    if (pal_shards_open(&shards, path, &err)) fail_msg("%s", err.text);
    const int n = expected(ids, targets);
    assert_int_equal(pal_shards_info_of(shards)->subset[PAL_SUBSET_ALL].tokens, n);
    for (size_t r = 0; r < PAL_COUNT(rows); r++)
        for (size_t c = 0; c < PAL_COUNT(contexts); c++) {
            pal_loader *loader;
            pal_row row;
            const pal_loader_options o = { .sources = 1,
                                           .source = { { .shards = shards, .subset = PAL_SUBSET_ALL, .weight = 1 } },
                                           .row = rows[r],
                                           .context = contexts[c],
                                           .order = PAL_ORDER_STORED,
                                           .responses = true };
            if (pal_loader_new(&loader, &o, &err)) fail_msg("%s", err.text);
            for (int at = 0; at < n; at += row.tokens) {
                if (pal_loader_next(loader, got_ids, got, ends, &row, &err)) fail_msg("%s", err.text);
                for (int t = 0; t < row.tokens && at + t < n; t++)
                    if (got_ids[t] != ids[at + t] || got[t] != targets[at + t])
                        fail_msg("row %d, context %d: token %d is %d with target %d, expected %d and %d", rows[r],
                                 contexts[c], at + t, got_ids[t], got[t], ids[at + t], targets[at + t]);
            }
            pal_loader_free(loader);
        }
    pal_shards_close(shards);
    test_remove(folder);
}

static void lines_without_a_pair_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = { "{\"prompt\": \"a\"}\n", "{\"prompt\": 1, \"response\": \"b\"}\n", "[1]\n" };
    for (size_t i = 0; i < PAL_COUNT(bad); i++) {
        char folder[256];
        pal_error err;
        test_directory(folder);
        assert_int_equal(make(folder, bad[i], &err), PAL_E_FORMAT);
        if (!strstr(err.text, "line 1: expected an object with two strings 'prompt+response'"))
            fail_msg("%s", err.text);
        test_remove(folder);
    }
}

/* The first trained token follows the colon, whatever the tokenizer makes of the text around it. */
static void responses_begin_where_the_text_says(void **state) {
    (void)state;
    static const char *const names[] = { "llama2", "gpt2", "gpt-neox" };
    const char *data = getenv("PALIMPSA_DATA");
    if (!data) {
        print_message("skipped: PALIMPSA_DATA is not set\n");
        return;
    }
    for (size_t n = 0; n < PAL_COUNT(names); n++) {
        char path[400];
        pal_tokenizer *tok;
        pal_tokenizer_scratch *scratch;
        pal_error err;
        snprintf(path, sizeof path, "%s/tokenizers/%s", data, names[n]);
        if (pal_tokenizer_open(&tok, path, &err) || pal_tokenizer_scratch_new(&scratch, tok, &err))
            fail_msg("%s", err.text);
        for (int d = 0; d < DOCUMENTS; d++) {
            char whole[200];
            pal_ids ids = { 0 };
            pal_bytes before = { 0 };
            size_t first;
            const int behind = snprintf(whole, sizeof whole, "%s\n### Response:", prompts[d]);
            snprintf(whole + behind, sizeof whole - (size_t)behind, "\n%s", responses[d]);
            const pal_slice text = { (const unsigned char *)whole, strlen(whole) };
            if (pal_tokenizer_encode(tok, scratch, whole, strlen(whole), NULL, &ids, &err) ||
                pal_response_token(tok, scratch, text, (size_t)behind, ids.data, ids.count, &first, &err) ||
                pal_tokenizer_decode(tok, ids.data, first, false, &before, &err))
                fail_msg("%s: %s", names[n], err.text);
            if (before.size != (size_t)behind || memcmp(before.data, whole, before.size) != 0)
                fail_msg("%s: document %d: the response begins after '%.*s'", names[n], d, (int)before.size,
                         before.data);
            pal_ids_free(&ids);
            pal_bytes_free(&before);
        }
        pal_tokenizer_scratch_free(scratch);
        pal_tokenizer_close(tok);
    }
}

static void a_response_behind_its_document_is_refused(void **state) {
    (void)state;
    static const uint32_t ids[3] = { 1, 2, 3 };
    char folder[256];
    pal_tokenizer *tok;
    pal_shard_writer *w;
    pal_shard_sums sums;
    pal_error err;
    test_directory(folder);
    for (uint64_t response = 3; response <= 4; response++) {
        if (pal_tokenizer_open(&tok, "bytes", &err) ||
            pal_shard_writer_new(&w, folder, 0, pal_tokenizer_fingerprint(tok), 256, &err) ||
            pal_shard_writer_tokens(w, ids, 3, &err))
            fail_msg("%s", err.text);
        pal_shard_writer_response(w, response);
        if (pal_shard_writer_end_document(w, 3, 1, &err) || pal_shard_writer_finish(w, &sums, &err))
            fail_msg("%s", err.text);
        const pal_shards_summary summary = { .tokenizer = tok, .eos = -1, .count = 1, .shards = &sums };
        assert_int_equal(pal_shards_finish(folder, &summary, &err), response > 3 ? PAL_E_FORMAT : PAL_OK);
        pal_tokenizer_close(tok);
    }
    assert_non_null(strstr(err.text, "begins at token 4 of 3"));
    test_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_responses_are_targets_wherever_rows_are_cut),
        cmocka_unit_test(lines_without_a_pair_are_refused),
        cmocka_unit_test(responses_begin_where_the_text_says),
        cmocka_unit_test(a_response_behind_its_document_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
