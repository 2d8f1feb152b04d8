/* SPDX-License-Identifier: MIT */
/* Tasks against recordings of lm-evaluation-harness: the requests byte for byte, what is done with scores to the last
 * digit, and, where the recorded model is available (PALIMPSA_GOLDEN), the scores themselves. */
#include "support/support.h"

#include <math.h>
#include <sys/stat.h>

#include "eval/metrics.h"
#include "eval/pairs.h"
#include "eval/python_text.h"
#include "eval/records.h"
#include "eval/task_data.h"

static const char *const golden = PAL_TEST_GOLDEN "/eval";

/* The row of a recorded file that is due; fails where it cannot be read. */
static json_t *row_of(const pal_records *records, size_t i) {
    json_t *row;
    OK(pal_records_read(records, i, &row, err));
    return row;
}

static bool try_open(pal_records **out, const char *folder, const char *kind, const char *name) {
    char path[600];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s/%s.jsonl", folder, kind, name);
    if (stat(path, &info) != 0) return false;
    OK(pal_records_open(out, path, err));
    return true;
}

static void same_text(const char *what, size_t doc, pal_slice found, const json_t *expected) {
    assert_true(json_is_string(expected));
    if (found.size != json_string_length(expected) || memcmp(found.data, json_string_value(expected), found.size) != 0)
        fail_msg("%s, document %zu: found '%.*s', expected '%s'", what, doc, (int)found.size, (const char *)found.data,
                 json_string_value(expected));
}

static void compare_requests(const char *data, const char *folder) {
    size_t tasks = 0;
    for (const pal_eval_task *t = pal_tasks; t->name; t++) {
        pal_records *recorded;
        pal_task_data *documents;
        pal_task_doc doc = { 0 };
        if (!try_open(&recorded, folder, "requests", t->name)) continue;
        OK(pal_task_data_open(&documents, t, data, err));
        for (size_t i = 0; i < pal_records_count(recorded); i++) {
            json_t *row = row_of(recorded, i);
            const size_t at = (size_t)json_integer_value(json_object_get(row, "doc"));
            OK(pal_task_data_read(documents, at, &doc, NULL, err));
            if (t->kind == PAL_TASK_ROLLING) {
                same_text(t->name, at, pal_strings_at(&doc.texts, 0), json_object_get(row, "text"));
                assert_int_equal(doc.words, json_integer_value(json_object_get(row, "words")));
                assert_int_equal(doc.bytes, json_integer_value(json_object_get(row, "bytes")));
            } else {
                const json_t *choices = json_object_get(row, "choices");
                assert_int_equal(doc.count, json_array_size(choices));
                assert_int_equal(doc.gold, json_integer_value(json_object_get(row, "gold")));
                for (size_t c = 0; c < doc.count; c++) {
                    const json_t *choice = json_array_get(choices, c);
                    same_text(t->name, at, pal_task_context(&doc, c), json_object_get(choice, "context"));
                    same_text(t->name, at, pal_task_continuation(&doc, c), json_object_get(choice, "continuation"));
                }
            }
            json_decref(row);
        }
        tasks++;
        pal_task_doc_free(&doc);
        pal_task_data_close(documents);
        pal_records_close(recorded);
    }
    assert_int_equal(tasks, 10);
}

static void requests_are_the_recorded_ones(void **state) {
    (void)state;
    char data[600];
    snprintf(data, sizeof data, "%s/data", golden);
    compare_requests(data, golden);
    const char *more = getenv("PALIMPSA_GOLDEN"), *all = getenv("PALIMPSA_DATA");
    if (!more || !all) {
        print_message("skipped: the recordings next to the project (PALIMPSA_GOLDEN, PALIMPSA_DATA)\n");
        return;
    }
    snprintf(data, sizeof data, "%s/eval", more);
    compare_requests(all, data);
}

static void texts_are_cleaned_as_recorded(void **state) {
    (void)state;
    const pal_eval_task *task = pal_task_find("hellaswag");
    pal_records *recorded;
    pal_task_doc doc = { 0 };
    assert_true(try_open(&recorded, golden, "edge", "hellaswag_cleanup"));
    assert_int_equal(pal_records_count(recorded), 5);
    for (size_t i = 0; i < 5; i++) {
        json_t *row = row_of(recorded, i);
        const json_t *choices = json_object_get(row, "choices");
        OK(task->make(task, row, &doc, err));
        assert_int_equal(doc.count, json_array_size(choices));
        for (size_t c = 0; c < doc.count; c++) {
            const pal_slice continuation = pal_task_continuation(&doc, c);
            same_text("query", i, pal_task_context(&doc, c), json_object_get(row, "query"));
            assert_int_equal(continuation.data[0], ' ');
            same_text("choice", i, (pal_slice){ continuation.data + 1, continuation.size - 1 },
                      json_array_get(choices, c));
        }
        assert_int_equal(doc.gold, json_integer_value(json_object_get(row, "gold")));
        json_decref(row);
    }
    pal_task_doc_free(&doc);
    pal_records_close(recorded);
    assert_true(try_open(&recorded, golden, "edge", "wikitext_detokenize"));
    for (size_t i = 0; i < pal_records_count(recorded); i++) {
        json_t *row = row_of(recorded, i);
        pal_bytes out = { 0 };
        OK(pal_wikitext_detokenize(&out, pal_slice_text(json_string_value(json_object_get(row, "in"))), err));
        same_text("detokenised", i, pal_slice_of(&out), json_object_get(row, "out"));
        pal_bytes_free(&out);
        json_decref(row);
    }
    pal_records_close(recorded);
}

static void tags_end_in_their_line(void **state) {
    (void)state;
    enum { SIZE = 4 << 20 };
    static const char *const cases[][2] = { { "a[b]c", "ac" },     { "a[[b]]c", "a]c" },       { "[a\n]b", "[a\n]b" },
                                            { "[[\n[a]b", "[[\nb" }, { "a] [b [c] d", "a] d" }, { "[]a[", "a[" } };
    pal_bytes text = { 0 }, out = { 0 };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        out.size = 0;
        OK(pal_hellaswag_clean(&out, pal_slice_text(cases[i][0]), err));
        assert_int_equal(out.size, strlen(cases[i][1]));
        assert_memory_equal(out.data, cases[i][1], out.size);
    }
    out.size = 0; /* none of them is closed: minutes, when each looked for its end alone */
    while (text.size < SIZE) OK(pal_bytes_append(&text, "[", 1, err));
    OK(pal_hellaswag_clean(&out, pal_slice_of(&text), err));
    assert_int_equal(out.size, text.size);
    pal_bytes_free(&out);
    pal_bytes_free(&text);
}

/* As the harness takes it: text.split(' ') of a single word leaves nothing before it. */
static void a_single_word_has_an_empty_context(void **state) {
    (void)state;
    const pal_eval_task *task = pal_task_find("lambada_openai");
    static const char *const texts[][3] = { { "word", "", " word" }, { "", "", " " }, { "a b ", "a b", " " } };
    pal_task_doc doc = { 0 };
    for (size_t i = 0; i < PAL_COUNT(texts); i++) {
        json_t *row = json_pack("{s:s}", "text", texts[i][0]);
        OK(task->make(task, row, &doc, err));
        const pal_slice context = pal_task_context(&doc, 0), word = pal_task_continuation(&doc, 0);
        assert_int_equal(context.size, strlen(texts[i][1]));
        assert_memory_equal(context.data, texts[i][1], context.size);
        assert_int_equal(word.size, strlen(texts[i][2]));
        assert_memory_equal(word.data, texts[i][2], word.size);
        json_decref(row);
    }
    pal_task_doc_free(&doc);
}

static void a_label_is_a_decimal_number(void **state) {
    (void)state;
    static const char *const good[] = { "1", " 1", "1.0", "1e0" };
    static const char *const bad[] = { "0x1", "0X1p0", "", "one", "nan", "inf", "1 " };
    pal_error why;
    int gold;
    for (size_t i = 0; i < PAL_COUNT(good); i++) {
        json_t *row = json_pack("{s:s}", "label", good[i]);
        OK(pal_task_gold(row, "label", 0, 2, &gold, err));
        assert_int_equal(gold, 1);
        json_decref(row);
    }
    for (size_t i = 0; i < PAL_COUNT(bad); i++) {
        json_t *row = json_pack("{s:s}", "label", bad[i]);
        if (pal_task_gold(row, "label", 0, 2, &gold, &why) != PAL_E_FORMAT)
            fail_msg("'%s' is taken as %d", bad[i], gold);
        json_decref(row);
    }
}

static void ties_and_lengths_are_decided_as_recorded(void **state) {
    (void)state;
    pal_records *recorded;
    assert_true(try_open(&recorded, golden, "edge", "metrics"));
    for (size_t i = 0; i < pal_records_count(recorded); i++) {
        json_t *row = row_of(recorded, i);
        const json_t *choices = json_object_get(row, "choices"), *scores = json_object_get(row, "loglikelihood");
        const int gold = (int)json_integer_value(json_object_get(row, "gold"));
        const size_t n = json_array_size(choices);
        double logprob[8];
        uint32_t characters[8];
        for (size_t c = 0; c < n; c++) {
            logprob[c] = json_number_value(json_array_get(scores, c));
            characters[c] = (uint32_t)pal_py_length(pal_slice_text(json_string_value(json_array_get(choices, c))));
        }
        const bool acc = pal_best_choice(logprob, NULL, n) == gold,
                   acc_norm = pal_best_choice(logprob, characters, n) == gold;
        if (acc != (json_number_value(json_object_get(row, "acc")) == 1) ||
            acc_norm != (json_number_value(json_object_get(row, "acc_norm")) == 1))
            fail_msg("%s: acc %d, acc_norm %d", json_string_value(json_object_get(row, "what")), acc, acc_norm);
        json_decref(row);
    }
    pal_records_close(recorded);
}

static void near(const char *task, const char *what, double found, const json_t *expected, double accept) {
    if (json_is_string(expected)) { /* "N/A" */
        assert_true(isnan(found));
        return;
    }
    assert_true(json_is_number(expected));
    const double x = json_number_value(expected);
    if (!(fabs(found - x) <= accept * fabs(x))) fail_msg("%s %s: %.17g, expected %.17g", task, what, found, x);
}

/* Recorded scores of a document: log probabilities and greedy flags. */
static size_t recorded_scores(const json_t *row, double *logprob, bool *greedy) {
    const json_t *scores = json_object_get(row, "loglikelihood");
    if (json_is_number(scores)) {
        logprob[0] = json_number_value(scores);
        return 1;
    }
    for (size_t i = 0; i < json_array_size(scores); i++) {
        logprob[i] = json_number_value(json_array_get(scores, i));
        greedy[i] = json_is_true(json_array_get(json_object_get(row, "is_greedy"), i));
    }
    return json_array_size(scores);
}

static void aggregates_of_recorded_scores_are_the_recorded_ones(void **state) {
    (void)state;
    char path[600];
    pal_context *cx = test_context(2, NULL);
    snprintf(path, sizeof path, "%s/summary.json", golden);
    json_t *summary = json_load_file(path, 0, NULL);
    const char *name;
    json_t *expected;
    size_t tasks = 0;
    assert_non_null(summary);
    json_object_foreach(json_object_get(summary, "tasks"), name, expected) {
        const pal_eval_task *task = pal_task_find(strcmp(name, "lambada_greedy") == 0 ? "lambada_openai" : name);
        pal_records *recorded;
        pal_task_sums sums = { 0 };
        assert_non_null(task);
        assert_true(try_open(&recorded, golden, "scores", name));
        for (size_t i = 0; i < pal_records_count(recorded); i++) {
            json_t *row = row_of(recorded, i);
            const json_t *metrics = json_object_get(row, "metrics");
            double logprob[PAL_TASK_CHOICES], values[PAL_METRICS];
            bool greedy[PAL_TASK_CHOICES] = { false };
            pal_task_doc doc = { .count = recorded_scores(row, logprob, greedy),
                                 .gold = (int)json_integer_value(json_object_get(row, "gold")),
                                 .words = (uint64_t)json_integer_value(json_object_get(row, "words")),
                                 .bytes = (uint64_t)json_integer_value(json_object_get(row, "bytes")) };
            for (size_t c = 0; c < doc.count; c++)
                doc.characters[c] = (uint32_t)json_integer_value(
                    json_array_get(json_object_get(row, "choice_chars"), c));
            OK(pal_task_count(task, &doc, logprob, greedy, &sums, values, err));
            for (int m = 0; metrics && m < PAL_METRICS; m++)
                if (task->metrics >> m & 1)
                    near(name, pal_metric_name((pal_metric)m), values[m],
                         json_object_get(metrics, pal_metric_name((pal_metric)m)), 0);
            json_decref(row);
        }
        for (int m = 0; m < PAL_METRICS; m++) {
            char error[64];
            const char *metric = pal_metric_name((pal_metric)m);
            if (!(task->metrics >> m & 1)) continue;
            snprintf(error, sizeof error, "%s_stderr", metric);
            near(name, metric, pal_task_value(task, &sums, (pal_metric)m), json_object_get(expected, metric), 1e-12);
            near(name, error, pal_task_error(cx, task, &sums, (pal_metric)m, PAL_BOOTSTRAP),
                 json_object_get(expected, error), 1e-10);
        }
        tasks++;
        pal_task_sums_free(&sums);
        pal_records_close(recorded);
    }
    assert_int_equal(tasks, 11);
    json_decref(summary);
    pal_context_free(cx);
}

typedef struct {
    char folder[500];
    pal_context *cx;
    pal_model *model;
    pal_tokenizer *tok;
    pal_scorer *scorer;
    pal_encoder encoder;
} recording;

static bool open_recording(recording *r) {
    const char *more = getenv("PALIMPSA_GOLDEN");
    char path[600];
    if (!more) {
        print_message("skipped: PALIMPSA_GOLDEN is not set\n");
        return false;
    }
    *r = (recording){ .cx = test_context(2, NULL) };
    snprintf(r->folder, sizeof r->folder, "%s/eval", more);
    snprintf(path, sizeof path, "%s/model", r->folder);
    OK(pal_model_open(&r->model, path, PAL_FOR_INFERENCE, r->cx, err));
    OK(pal_tokenizer_open(&r->tok, path, err));
    OK(pal_scorer_new(&r->scorer, r->model, r->cx, &(pal_scorer_options){ .tokens = 2048 }, err));
    OK(pal_encoder_new(&r->encoder, r->tok, 2048, err));
    return true;
}

static void close_recording(recording *r) {
    pal_encoder_free(&r->encoder);
    pal_scorer_free(r->scorer);
    pal_tokenizer_close(r->tok);
    pal_model_close(r->model);
    pal_context_free(r->cx);
}

static void compare_score(const char *what, size_t doc, pal_score_result found, size_t tokens, double expected,
                          const json_t *greedy) {
    if (!(fabs(found.logprob - expected) <= 1e-5 * (double)tokens) || (greedy && found.greedy != json_is_true(greedy)))
        fail_msg("%s, document %zu: %.9g greedy %d, expected %.9g", what, doc, found.logprob, found.greedy, expected);
}

static void compare_ids(const char *what, size_t doc, const uint32_t *found, size_t n, const json_t *expected) {
    assert_int_equal(n, json_array_size(expected));
    for (size_t i = 0; i < n; i++)
        if (found[i] != (uint32_t)json_integer_value(json_array_get(expected, i)))
            fail_msg("%s, document %zu: id %zu is %u", what, doc, i, found[i]);
}

static void score_choices(recording *r, const char *name) {
    pal_records *requests, *scores;
    pal_ids ids = { 0 };
    pal_pairs pairs = { 0 };
    assert_true(try_open(&requests, r->folder, "requests", name));
    assert_true(try_open(&scores, r->folder, "scores", name));
    for (size_t i = 0; i < pal_records_count(requests); i++) {
        json_t *row = row_of(requests, i), *choice;
        size_t c;
        json_array_foreach(json_object_get(row, "choices"), c, choice) {
            const json_t *context = json_object_get(choice, "context"),
                         *continuation = json_object_get(choice, "continuation");
            pal_pair pair;
            OK(pal_encode_pair(&r->encoder, pal_slice_text(json_string_value(context)),
                               pal_slice_text(json_string_value(continuation)), &ids, &pair, err));
            pair.cut = i; /* the group */
            OK(pal_pairs_add(&pairs, pair, err));
        }
        json_decref(row);
    }
    assert_true(pairs.count > 0);
    pal_score_request *list = calloc(pairs.count, sizeof *list);
    pal_score_result *found = calloc(pairs.count, sizeof *found);
    for (size_t p = 0; p < pairs.count; p++)
        list[p] = (pal_score_request){ .ids = ids.data + pairs.data[p].at,
                                       .count = pairs.data[p].count,
                                       .scored = pairs.data[p].scored,
                                       .group = pairs.data[p].cut };
    OK(pal_score(r->scorer, list, pairs.count, found, err));
    size_t p = 0;
    for (size_t i = 0; i < pal_records_count(scores); i++) {
        json_t *row = row_of(scores, i), *tokens;
        size_t c;
        json_array_foreach(json_object_get(row, "tokens"), c, tokens) {
            assert_int_equal(pairs.data[p].context_tokens,
                             json_integer_value(json_object_get(tokens, "context_tokens")));
            compare_ids(name, i, list[p].ids + list[p].count - list[p].scored, list[p].scored,
                        json_object_get(tokens, "continuation_ids"));
            compare_score(name, i, found[p], list[p].scored,
                          json_number_value(json_array_get(json_object_get(row, "loglikelihood"), c)),
                          json_array_get(json_object_get(row, "is_greedy"), c));
            p++;
        }
        json_decref(row);
    }
    assert_int_equal(p, pairs.count);
    free(list), free(found);
    pal_ids_free(&ids);
    pal_pairs_free(&pairs);
    pal_records_close(requests);
    pal_records_close(scores);
}

/* A rolling text in windows; the sum of their scores. */
static double score_rolling(recording *r, const json_t *text, const json_t *windows, size_t *tokens) {
    pal_ids ids = { 0 };
    pal_pairs pairs = { 0 };
    double sum = 0;
    *tokens = 0;
    OK(pal_encode_rolling(&r->encoder, pal_slice_text(json_string_value(text)), &ids, &pairs, err));
    assert_int_equal(pairs.count, json_array_size(windows));
    for (size_t w = 0; w < pairs.count; w++) {
        const json_t *window = json_array_get(windows, w);
        const bool plain = json_is_array(window); /* [input, scored] */
        const pal_score_request request = { .ids = ids.data + pairs.data[w].at,
                                            .count = pairs.data[w].count,
                                            .scored = pairs.data[w].scored };
        pal_score_result found;
        assert_int_equal(request.count - 1,
                         json_integer_value(plain ? json_array_get(window, 0) : json_object_get(window, "input")));
        assert_int_equal(request.scored,
                         json_integer_value(plain ? json_array_get(window, 1) : json_object_get(window, "scored")));
        OK(pal_score(r->scorer, &request, 1, &found, err));
        if (!plain)
            compare_score("window", w, found, request.scored,
                          json_number_value(json_object_get(window, "loglikelihood")), NULL);
        sum += found.logprob;
        *tokens += request.scored;
    }
    pal_ids_free(&ids);
    pal_pairs_free(&pairs);
    return sum;
}

static void scores_are_the_recorded_ones(void **state) {
    (void)state;
    recording r;
    if (!open_recording(&r)) return;
    for (const pal_eval_task *t = pal_tasks; t->name; t++)
        if (t->kind != PAL_TASK_ROLLING && strcmp(t->name, "lambada_standard") != 0) score_choices(&r, t->name);
    score_choices(&r, "lambada_greedy");
    pal_records *requests, *scores;
    assert_true(try_open(&requests, r.folder, "requests", "wikitext"));
    assert_true(try_open(&scores, r.folder, "scores", "wikitext"));
    for (size_t i = 0; i < pal_records_count(requests); i++) {
        json_t *request = row_of(requests, i), *score = row_of(scores, i);
        size_t tokens;
        const double sum = score_rolling(&r, json_object_get(request, "text"), json_object_get(score, "windows"),
                                         &tokens);
        assert_int_equal(tokens, json_integer_value(json_object_get(score, "tokens")));
        compare_score("wikitext", i, (pal_score_result){ .logprob = sum }, tokens,
                      json_number_value(json_object_get(score, "loglikelihood")), NULL);
        json_decref(request), json_decref(score);
    }
    pal_records_close(requests);
    pal_records_close(scores);
    close_recording(&r);
}

static void edges_of_encoding_are_the_recorded_ones(void **state) {
    (void)state;
    recording r;
    pal_records *recorded;
    if (!open_recording(&r)) return;
    assert_true(try_open(&recorded, r.folder, "edge", "loglikelihood"));
    for (size_t i = 0; i < pal_records_count(recorded); i++) {
        json_t *row = row_of(recorded, i);
        const char *what = json_string_value(json_object_get(row, "what"));
        pal_ids ids = { 0 };
        pal_pair pair;
        pal_score_result found;
        OK(pal_encode_pair(&r.encoder, pal_slice_text(json_string_value(json_object_get(row, "context"))),
                           pal_slice_text(json_string_value(json_object_get(row, "continuation"))), &ids, &pair, err));
        assert_int_equal(pair.context_tokens, json_integer_value(json_object_get(row, "context_tokens")));
        compare_ids(what, i, ids.data + pair.count - pair.scored, pair.scored,
                    json_object_get(row, "continuation_ids"));
        const json_t *context = json_object_get(row, "context_ids");
        if (context && !pair.cut) compare_ids(what, i, ids.data, pair.count - pair.scored, context);
        assert_true(pair.count <= 2049);
        const pal_score_request request = { .ids = ids.data, .count = pair.count, .scored = pair.scored };
        OK(pal_score(r.scorer, &request, 1, &found, err));
        compare_score(what, i, found, pair.scored, json_number_value(json_object_get(row, "loglikelihood")),
                      json_object_get(row, "is_greedy"));
        pal_ids_free(&ids);
        json_decref(row);
    }
    pal_records_close(recorded);
    assert_true(try_open(&recorded, r.folder, "edge", "rolling"));
    for (size_t i = 0; i < pal_records_count(recorded); i++) {
        json_t *row = row_of(recorded, i);
        size_t tokens;
        const double sum = score_rolling(&r, json_object_get(row, "text"), json_object_get(row, "windows"), &tokens);
        compare_score(json_string_value(json_object_get(row, "what")), i, (pal_score_result){ .logprob = sum }, tokens,
                      json_number_value(json_object_get(row, "loglikelihood")), NULL);
        json_decref(row);
    }
    pal_records_close(recorded);
    close_recording(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_the_recorded_ones),
        cmocka_unit_test(texts_are_cleaned_as_recorded),
        cmocka_unit_test(tags_end_in_their_line),
        cmocka_unit_test(a_single_word_has_an_empty_context),
        cmocka_unit_test(a_label_is_a_decimal_number),
        cmocka_unit_test(ties_and_lengths_are_decided_as_recorded),
        cmocka_unit_test(aggregates_of_recorded_scores_are_the_recorded_ones),
        cmocka_unit_test(scores_are_the_recorded_ones),
        cmocka_unit_test(edges_of_encoding_are_the_recorded_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
