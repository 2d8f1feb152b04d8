/* SPDX-License-Identifier: MIT */
/* Pairs of prompt and response: only the response is trained on, wherever rows and contexts cut. */
#include "support/support.h"

#include "data/loader.h"
#include "data/text.h"
#include "data/tokenize.h"
#include "support/files.h"

enum { DOCUMENTS = 3, MOST = 512 };

static const char lines[] = "{\"prompt\": \"How high?\", \"response\": \"Up to the knee.\", \"other\": 1}\n"
                            "{\"response\": \"### Response: is said here too\", \"prompt\": \"\"}\n\n"
                            "{\"prompt\": \"caf\\u00e9\", \"response\": \"\"}\n";
static const char *const prompts[DOCUMENTS] = { "How high?", "", "caf\xc3\xa9" }, *const responses[DOCUMENTS] = {
    "Up to the knee.", "### Response: is said here too", ""
};

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
    uint32_t mark[sizeof PAL_RESPONSE_MARK - 1];
    pal_shards *shards;
    pal_error err;
    for (size_t i = 0; i < PAL_COUNT(mark); i++) mark[i] = (unsigned char)PAL_RESPONSE_MARK[i];
    test_directory(folder);
    if (make(folder, lines, &err)) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/shards", folder);
    if (pal_shards_open(&shards, path, &err)) fail_msg("%s", err.text);
    const int n = expected(ids, targets);
    assert_int_equal(pal_shards_info_of(shards)->part[PAL_PART_ALL].tokens, n);
    for (size_t r = 0; r < PAL_COUNT(rows); r++)
        for (size_t c = 0; c < PAL_COUNT(contexts); c++) {
            pal_loader *loader;
            pal_row row;
            const pal_loader_options o = { .sources = 1,
                                           .source = { { .shards = shards, .part = PAL_PART_ALL, .weight = 1 } },
                                           .row = rows[r],
                                           .context = contexts[c],
                                           .order = PAL_ORDER_STORED,
                                           .mark = mark,
                                           .mark_count = (int)PAL_COUNT(mark) };
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_responses_are_targets_wherever_rows_are_cut),
        cmocka_unit_test(lines_without_a_pair_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
