/* SPDX-License-Identifier: MIT */
/* RULER and LongBench against recordings of the programs that published them: every score equal in every bit. */
#include "support/support.h"

#include <math.h>

#include "base/random.h"
#include "eval/answers/answers.h"
#include "eval/longbench.h"
#include "eval/records.h"
#include "eval/ruler.h"

static const char *const golden = PAL_TEST_GOLDEN;

static pal_records *open_records(const char *directory, const char *name) {
    char path[1400];
    pal_records *records;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    OK(pal_records_open(&records, path, err));
    return records;
}

static json_t *row_of(const pal_records *records, size_t i) {
    json_t *row;
    OK(pal_records_read(records, i, &row, err));
    return row;
}

static json_t *read_json(const char *directory, const char *name) {
    char path[1400];
    json_error_t why;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    json_t *value = json_load_file(path, 0, &why);
    if (!value) fail_msg("%s: %s", path, why.text);
    return value;
}

static pal_slice slice_of(const json_t *value) {
    assert_true(json_is_string(value));
    return (pal_slice){ (const unsigned char *)json_string_value(value), json_string_length(value) };
}

static const char *text_in(const json_t *row, const char *field) {
    return json_string_value(json_object_get(row, field));
}

/* The directory next to the project, or NULL with a note. */
static const char *more(const char *what) {
    const char *directory = getenv("PALIMPSA_GOLDEN");
    if (!directory) print_message("skipped: %s (PALIMPSA_GOLDEN)\n", what);
    return directory;
}

static size_t check_ruler(const char *directory) {
    pal_records *records = open_records(directory, "ruler/scoring.jsonl");
    const size_t count = pal_records_count(records);
    for (size_t i = 0; i < count; i++) {
        json_t *row = row_of(records, i);
        const pal_ruler_task *task = pal_ruler_find(text_in(row, "task"));
        const json_t *predictions = json_object_get(row, "predictions"),
                     *references = json_object_get(row, "references");
        pal_ruler_sum sum[2] = { { 0 }, { 0 } };
        char nulls[64];
        assert_non_null(task);
        assert_true(json_array_size(predictions) > 0);
        for (size_t k = 0; k < json_array_size(predictions); k++)
            for (int s = PAL_RULER_OWN; s <= PAL_RULER_LM_EVAL; s++)
                OK(pal_ruler_count(task, (pal_ruler_scoring)s, slice_of(json_array_get(predictions, k)),
                                   json_array_get(references, k), &sum[s], NULL, err));
        const double found = pal_ruler_score(PAL_RULER_OWN, &sum[0]),
                     fraction = pal_ruler_score(PAL_RULER_LM_EVAL, &sum[1]);
        const double expected = json_number_value(json_object_get(row, "score"));
        const json_t *lm_eval = json_object_get(row, "lm_eval");
        if (found != expected)
            fail_msg("%s, %s: %.17g, expected %.17g", task->name, text_in(row, "case"), found, expected);
        if (json_is_number(lm_eval) && fraction != json_number_value(lm_eval))
            fail_msg("%s, %s: %.17g, lm-eval %.17g", task->name, text_in(row, "case"), fraction,
                     json_number_value(lm_eval));
        snprintf(nulls, sizeof nulls, "%zu/%zu", sum[0].empty, sum[0].count);
        assert_string_equal(nulls, text_in(row, "nulls"));
        json_decref(row);
    }
    pal_records_close(records);
    return count;
}

static void ruler_scores_are_the_recorded_ones(void **state) {
    (void)state;
    assert_true(check_ruler(golden) >= 60);
    const char *all = more("all recorded RULER scores");
    if (all) assert_int_equal(check_ruler(all), 104);
}

static void strings_of(pal_strings *out, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const pal_slice word = slice_of(json_array_get(list, i));
        OK(pal_strings_add(out, word.data, word.size, err));
    }
}

static void join(pal_bytes *out, const json_t *words) {
    for (size_t i = 0; i < json_array_size(words); i++) {
        const pal_slice word = slice_of(json_array_get(words, i));
        if (i) OK(pal_bytes_append(out, " ", 1, err));
        OK(pal_bytes_append(out, word.data, word.size, err));
    }
}

/* Chinese answers by the recorded words. */
static double score_cut(const pal_longbench_set *set, const json_t *row) {
    const json_t *cut = json_object_get(row, "answers_cut"), *prediction = json_object_get(row, "prediction_cut");
    double best = 0;
    for (size_t i = 0; i < json_array_size(cut); i++) {
        double own = 0;
        if (set->metric == PAL_LONGBENCH_F1_ZH) {
            pal_strings p = { 0 }, a = { 0 };
            strings_of(&p, prediction);
            strings_of(&a, json_array_get(cut, i));
            OK(pal_answer_f1_zh(&p, &a, &own, err));
            pal_strings_free(&p);
            pal_strings_free(&a);
        } else {
            pal_bytes p = { 0 }, a = { 0 };
            join(&p, prediction);
            join(&a, json_array_get(cut, i));
            size_t work = 0;
            OK(pal_answer_rouge(pal_slice_of(&p), pal_slice_of(&a), PAL_ROUGE_STEPS_ZH, &work, &own, err));
            pal_bytes_free(&p);
            pal_bytes_free(&a);
        }
        if (own > best) best = own;
    }
    return best;
}

static size_t check_longbench(const char *directory) {
    pal_records *records = open_records(directory, "longbench/scoring.jsonl");
    const size_t count = pal_records_count(records);
    for (size_t i = 0; i < count; i++) {
        json_t *row = row_of(records, i);
        const pal_longbench_set *set = pal_longbench_find(text_in(row, "dataset"));
        const double expected = json_number_value(json_object_get(row, "score"));
        double found;
        assert_non_null(set);
        if (pal_longbench_cuts_words(set)) found = score_cut(set, row);
        else
            OK(pal_longbench_score(set, NULL, slice_of(json_object_get(row, "prediction")),
                                   json_object_get(row, "answers"), json_object_get(row, "all_classes"), &found, err));
        if (found != expected) fail_msg("%s: %.17g, expected %.17g", text_in(row, "id"), found, expected);
        json_decref(row);
    }
    pal_records_close(records);
    return count;
}

static void longbench_scores_are_the_recorded_ones(void **state) {
    (void)state;
    assert_int_equal(check_longbench(golden), 243);
    const char *all = more("all recorded LongBench scores");
    if (all) assert_int_equal(check_longbench(all), 244);
}

/* Predictions of a data set as one score, or by length. */
static void longbench_files_give_the_recorded_results(void **state) {
    (void)state;
    char directory[600], name[100];
    for (int extended = 0; extended < 2; extended++) {
        snprintf(directory, sizeof directory, "%s/longbench/pred%s", golden, extended ? "_e" : "");
        json_t *result = read_json(directory, "result.json");
        const char *key;
        json_t *value;
        json_object_foreach(result, key, value) {
            const pal_longbench_set *set = pal_longbench_find(key);
            double scores[PAL_LONGBENCH_BUCKETS][200];
            size_t counts[PAL_LONGBENCH_BUCKETS] = { 0 };
            assert_non_null(set);
            assert_true(!extended || set->extended);
            if (pal_longbench_cuts_words(set)) continue;
            snprintf(name, sizeof name, "%s.jsonl", key);
            pal_records *records = open_records(directory, name);
            const size_t count = pal_records_count(records);
            json_t *last = row_of(records, count - 1);
            for (size_t i = 0; i < count; i++) {
                json_t *row = row_of(records, i);
                const int b = extended ? pal_longbench_bucket(json_integer_value(json_object_get(row, "length"))) : 0;
                OK(pal_longbench_score(set, NULL, slice_of(json_object_get(row, "pred")),
                                       json_object_get(row, "answers"), json_object_get(last, "all_classes"),
                                       &scores[b][counts[b]++], err));
                json_decref(row);
            }
            json_decref(last);
            pal_records_close(records);
            if (!extended) assert_true(pal_longbench_percent(scores[0], counts[0]) == json_number_value(value));
            for (int b = 0; b < PAL_LONGBENCH_BUCKETS && extended; b++) {
                const json_t *expected = json_object_get(value, pal_longbench_bucket_names[b]);
                const double found = pal_longbench_percent_numpy(scores[b], counts[b]);
                assert_true(json_is_null(expected) ? isnan(found) : found == json_number_value(expected));
            }
        }
        json_decref(result);
    }
}

static void longbench2_scores_are_the_recorded_ones(void **state) {
    (void)state;
    char directory[600], line[700];
    snprintf(directory, sizeof directory, "%s/longbench/v2", golden);
    pal_records *records = open_records(directory, "scoring.jsonl");
    for (size_t i = 0; i < pal_records_count(records); i++) {
        json_t *row = row_of(records, i);
        const char *expected = text_in(row, "pred");
        const char found = pal_longbench2_answer(slice_of(json_object_get(row, "response")));
        if (found != (expected ? expected[0] : 0)) fail_msg("'%s': found '%c'", text_in(row, "response"), found);
        json_decref(row);
    }
    assert_true(pal_records_count(records) > 10);
    pal_records_close(records);
    for (int compensated = 0; compensated < 2; compensated++) {
        snprintf(line, sizeof line, "%s/%s", directory, compensated ? "result_compensated.tsv" : "result.tsv");
        FILE *file = fopen(line, "r");
        assert_non_null(file);
        assert_non_null(fgets(line, sizeof line, file));
        for (int model = 0; model < 2; model++) {
            char name[64];
            double expected[PAL_LONGBENCH2_COLUMNS];
            pal_longbench2_sum sum = { 0 };
            assert_int_equal(fscanf(file, "%31s %lf %lf %lf %lf %lf %lf", name, &expected[0], &expected[1],
                                    &expected[2], &expected[3], &expected[4], &expected[5]),
                             7);
            snprintf(line, sizeof line, "results/%s.jsonl", name);
            records = open_records(directory, line);
            for (size_t i = 0; i < pal_records_count(records); i++) {
                json_t *row = row_of(records, i);
                const char *pred = text_in(row, "pred");
                const char answer = pal_longbench2_answer(slice_of(json_object_get(row, "response")));
                bool right;
                assert_int_equal(answer, pred ? pred[0] : 0);
                OK(pal_longbench2_count(&sum, row, answer, &right, err));
                assert_int_equal(right, json_is_true(json_object_get(row, "judge")));
                json_decref(row);
            }
            pal_records_close(records);
            for (int c = 0; c < PAL_LONGBENCH2_COLUMNS; c++)
                if (pal_longbench2_score(&sum, c, compensated) != expected[c])
                    fail_msg("%s %s: %g, expected %g", name, pal_longbench2_columns[c],
                             pal_longbench2_score(&sum, c, compensated), expected[c]);
        }
        fclose(file);
    }
}

/* A template is what the recorded prompt leaves when the row's texts are taken out of it. */
static void template_of(pal_bytes *out, pal_slice prompt, const char *const (*texts)[2]) {
    pal_bytes from = { 0 };
    OK(pal_bytes_append(&from, prompt.data, prompt.size, err));
    for (; (*texts)[0]; texts++) {
        out->size = 0;
        OK(pal_py_replace(out, pal_slice_of(&from), (*texts)[0], (*texts)[1], err));
        from.size = 0;
        OK(pal_bytes_append(&from, out->data, out->size, err));
    }
    pal_bytes_free(&from);
}

static void same_text(const char *what, pal_slice found, const json_t *expected) {
    const pal_slice e = slice_of(expected);
    if (found.size != e.size || memcmp(found.data, e.data, e.size) != 0)
        fail_msg("%s: found '%.*s', expected '%.*s'", what, (int)found.size, (const char *)found.data, (int)e.size,
                 (const char *)e.data);
}

static void open_tokenizer(pal_middle_cut *m, pal_tokenizer **tok) {
    char path[600];
    snprintf(path, sizeof path, "%s/tokenizers/gpt-neox", getenv("PALIMPSA_DATA"));
    OK(pal_tokenizer_open(tok, path, err));
    m->tokenizer = *tok;
    OK(pal_tokenizer_scratch_new(&m->scratch, *tok, err));
}

/* Where the recordings and the tokenizer are available: prompts filled and cut in the middle. */
static void prompts_and_cuts_are_the_recorded_ones(void **state) {
    (void)state;
    char directory[600], name[100];
    const char *all = more("recorded prompts");
    if (!all) return;
    if (!getenv("PALIMPSA_DATA")) {
        print_message("skipped: recorded prompts (PALIMPSA_DATA)\n");
        return;
    }
    pal_middle_cut m = { 0 };
    pal_tokenizer *tok;
    pal_bytes prompt = { 0 }, text = { 0 };
    pal_ids ids = { 0 };
    json_t *templates = json_object();
    open_tokenizer(&m, &tok);
    snprintf(directory, sizeof directory, "%s/longbench", all);
    pal_records *records = open_records(directory, "prompts.jsonl");
    for (size_t i = 0; i < pal_records_count(records); i++) {
        json_t *row = row_of(records, i);
        const char *const texts[][2] = { { text_in(row, "context"), "{context}" },
                                         { text_in(row, "input"), "{input}" },
                                         { NULL } };
        template_of(&text, slice_of(json_object_get(row, "prompt")), texts);
        json_object_set_new(templates, text_in(row, "dataset"), json_stringn((const char *)text.data, text.size));
        prompt.size = 0;
        OK(pal_longbench_prompt(pal_slice_of(&text), row, &prompt, err));
        same_text(text_in(row, "dataset"), pal_slice_of(&prompt), json_object_get(row, "prompt"));
        assert_int_equal(pal_longbench_find(text_in(row, "dataset"))->generate,
                         json_integer_value(json_object_get(row, "max_gen")));
        json_decref(row);
    }
    assert_int_equal(pal_records_count(records), PAL_LONGBENCH_SETS);
    pal_records_close(records);
    records = open_records(directory, "truncation.jsonl");
    size_t cuts = 0;
    for (size_t i = 0; i < pal_records_count(records); i++) {
        json_t *row = row_of(records, i);
        const json_t *recorded = json_object_get(row, "ids");
        size_t cut;
        prompt.size = 0;
        m.most = (size_t)json_integer_value(json_object_get(row, "max_length"));
        if (json_object_get(row, "text")) { /* cuts inside characters */
            const pal_slice whole = slice_of(json_object_get(row, "text"));
            OK(pal_bytes_append(&prompt, whole.data, whole.size, err));
        } else {
            snprintf(name, sizeof name, "data/%s.jsonl", text_in(row, "dataset"));
            pal_records *data = open_records(directory, name);
            for (size_t k = 0; k < pal_records_count(data); k++) {
                json_t *document = row_of(data, k);
                if (strcmp(text_in(document, "_id"), text_in(row, "_id")) == 0)
                    OK(pal_longbench_prompt(slice_of(json_object_get(templates, text_in(row, "dataset"))), document,
                                            &prompt, err));
                json_decref(document);
            }
            pal_records_close(data);
        }
        OK(pal_cut_middle(&m, &prompt, &ids, &cut, err));
        if (json_object_get(row, "prompt")) same_text("cut", pal_slice_of(&prompt), json_object_get(row, "prompt"));
        assert_int_equal(cut > 0, json_is_true(json_object_get(row, "truncated")));
        assert_int_equal(ids.count, json_array_size(recorded));
        for (size_t k = 0; k < ids.count; k++)
            assert_int_equal(ids.data[k], json_integer_value(json_array_get(recorded, k)));
        cuts += cut > 0;
        json_decref(row);
    }
    assert_true(cuts > 10);
    pal_records_close(records);

    snprintf(directory, sizeof directory, "%s/longbench/v2", all);
    m.together = true;
    pal_bytes first = { 0 };
    records = open_records(directory, "prompts.jsonl");
    for (size_t i = 0; i < pal_records_count(records); i++) {
        json_t *row = row_of(records, i), *item = json_object_get(row, "item");
        const char *const texts[][2] = { { "A short text.", "$DOC$" },
                                         { "What did the commission decide about the ferry?", "$Q$" },
                                         { "It stays free of any fee", "$C_A$" },
                                         { "It pays half the fee of a cargo boat of the same size", "$C_B$" },
                                         { "It pays by length like a fishing boat", "$C_C$" },
                                         { "It may no longer land in Velm", "$C_D$" },
                                         { NULL } };
        template_of(&text, slice_of(json_object_get(row, "prompt")), texts);
        if (!i) OK(pal_bytes_append(&first, text.data, text.size, err));
        prompt.size = 0;
        OK(pal_longbench2_prompt(pal_slice_of(&text), item, &prompt, err));
        same_text(text_in(row, "kind"), pal_slice_of(&prompt), json_object_get(row, "prompt"));
        json_decref(row);
    }
    pal_records_close(records);
    json_t *data = read_json(directory, "data.json");
    records = open_records(directory, "truncation.jsonl");
    for (size_t i = 0; i < pal_records_count(records); i++) {
        json_t *row = row_of(records, i), *item;
        size_t k, cut;
        prompt.size = 0;
        json_array_foreach(data, k, item) if (strcmp(text_in(item, "_id"), text_in(row, "_id")) == 0)
            OK(pal_longbench2_prompt(pal_slice_of(&first), item, &prompt, err));
        m.most = (size_t)json_integer_value(json_object_get(row, "max_length"));
        OK(pal_cut_middle(&m, &prompt, &ids, &cut, err));
        same_text("cut of version 2", pal_slice_of(&prompt), json_object_get(row, "prompt"));
        json_decref(row);
    }
    assert_true(pal_records_count(records) > 2);
    pal_records_close(records);
    json_decref(data);
    json_decref(templates);
    pal_bytes_free(&prompt);
    pal_bytes_free(&text);
    pal_bytes_free(&first);
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(m.scratch);
    pal_tokenizer_close(tok);
}

/* Texts of one sentence with letters for words: the score by a whole table, whose walk back may take so many steps. */
static double rouge_by_whole_table(const char *p, size_t columns, const char *r, size_t rows, size_t steps) {
    enum { MOST = 32 };
    unsigned table[MOST][MOST] = { { 0 } };
    bool in_p[256] = { false }, in_r[256] = { false }, taken[256] = { false };
    double of_p = 0, of_r = 0, common = 0;
    assert_true(rows < MOST && columns < MOST);
    for (size_t j = 0; j < columns; j++) of_p += !in_p[(int)p[j]], in_p[(int)p[j]] = true;
    for (size_t i = 0; i < rows; i++) of_r += !in_r[(int)r[i]], in_r[(int)r[i]] = true;
    for (size_t i = 1; i <= rows; i++)
        for (size_t j = 1; j <= columns; j++) {
            const unsigned up = table[i - 1][j], left = table[i][j - 1];
            table[i][j] = r[i - 1] == p[j - 1] ? table[i - 1][j - 1] + 1 : up > left ? up : left;
        }
    size_t i = rows, j = columns;
    for (; i && j && steps; steps--) {
        if (r[i - 1] == p[j - 1]) {
            common += !taken[(int)r[i - 1]];
            taken[(int)r[i - 1]] = true;
            i--, j--;
        } else if (table[i - 1][j] > table[i][j - 1]) i--;
        else j--;
    }
    const double recall = common / of_r, precision = common / of_p;
    return i && j ? 0 : 2.0 * ((precision * recall) / (precision + recall + 1e-8));
}

static size_t draw_letters(pal_rng *rng, char *letters, char *text) {
    const size_t count = 1 + pal_rng_below(rng, 20);
    for (size_t i = 0; i < count; i++) {
        letters[i] = text[2 * i] = (char)('a' + pal_rng_below(rng, 5));
        text[2 * i + 1] = ' ';
    }
    return count;
}

/* Of the table only what a walk of so many steps can reach is kept. */
static void rouge_keeps_what_its_walk_can_reach(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(11, 5);
    int zeros = 0;
    for (int i = 0; i < 5000; i++) {
        char p[20], r[20], p_text[40], r_text[40];
        const size_t np = draw_letters(&rng, p, p_text), nr = draw_letters(&rng, r, r_text);
        const size_t steps = 1 + pal_rng_below(&rng, 40);
        const double expected = rouge_by_whole_table(p, np, r, nr, steps);
        double found;
        size_t work = 0;
        OK(pal_answer_rouge((pal_slice){ (const unsigned char *)p_text, 2 * np },
                            (pal_slice){ (const unsigned char *)r_text, 2 * nr }, steps, &work, &found, err));
        if (found != expected)
            fail_msg("'%.*s' and '%.*s' in %zu steps: %.17g, expected %.17g", (int)np, p, (int)nr, r, steps, found,
                     expected);
        zeros += found == 0;
    }
    assert_true(zeros > 500 && zeros < 4500);
}

/* PALIMPSA_JIEBA: the directory of that package. */
static void chinese_words_are_jiebas(void **state) {
    (void)state;
    const char *directory = getenv("PALIMPSA_JIEBA");
    if (!directory) {
        print_message("skipped: Chinese words (PALIMPSA_JIEBA names jieba's directory)\n");
        return;
    }
    pal_chinese *chinese;
    size_t texts = 0;
    OK(pal_chinese_open(&chinese, directory, err));
    pal_records *records = open_records(golden, "longbench/scoring.jsonl");
    for (size_t i = 0; i < pal_records_count(records); i++) {
        json_t *row = row_of(records, i);
        const json_t *cut = json_object_get(row, "prediction_cut");
        if (cut) {
            pal_strings words = { 0 };
            double score;
            OK(pal_chinese_cut(chinese, slice_of(json_object_get(row, "prediction")), &words, err));
            assert_int_equal(words.count, json_array_size(cut));
            for (size_t k = 0; k < words.count; k++)
                same_text(text_in(row, "id"), pal_strings_at(&words, k), json_array_get(cut, k));
            OK(pal_longbench_score(pal_longbench_find(text_in(row, "dataset")), chinese,
                                   slice_of(json_object_get(row, "prediction")), json_object_get(row, "answers"), NULL,
                                   &score, err));
            assert_true(score == json_number_value(json_object_get(row, "score")));
            pal_strings_free(&words);
            texts++;
        }
        json_decref(row);
    }
    assert_int_equal(texts, 44);
    pal_records_close(records);
    pal_chinese_close(chinese);
}

static void broken_characters_are_replaced_as_python_does(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "a\xC3\xA9\xE4\xBD", "a\xC3\xA9\xEF\xBF\xBD" },           /* one sign for a begun character */
        { "\xE4\x28\xA9", "\xEF\xBF\xBD(\xEF\xBF\xBD" },            /* and one for a byte that begins none */
        { "\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD" }, /* a surrogate: nothing continues */
        { "\xF0\x9F\x98z\xF5", "\xEF\xBF\xBDz\xEF\xBF\xBD" },
        { "\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pal_bytes out = { 0 };
        OK(pal_py_valid(&out, pal_slice_text(cases[i][0]), err));
        assert_int_equal(out.size, strlen(cases[i][1]));
        assert_memory_equal(out.data, cases[i][1], out.size);
        pal_bytes_free(&out);
    }
}

static void scoring_refuses_what_has_no_answer(void **state) {
    (void)state;
    pal_error err;
    pal_ruler_sum sum = { 0 };
    double score;
    json_t *none = json_array(), *number = json_pack("[i]", 3), *text = json_pack("[s]", "Absatz 7");
    const pal_slice yes = pal_slice_text("yes");
    assert_int_equal(pal_ruler_count(pal_ruler_find("vt"), PAL_RULER_OWN, yes, none, &sum, NULL, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "an empty one"));
    assert_int_equal(pal_ruler_count(pal_ruler_find("vt"), PAL_RULER_OWN, yes, NULL, &sum, NULL, &err), PAL_E_FORMAT);
    assert_int_equal(pal_ruler_count(pal_ruler_find("vt"), PAL_RULER_OWN, yes, number, &sum, NULL, &err), PAL_E_FORMAT);
    assert_int_equal(sum.count, 0);
    assert_true(isnan(pal_ruler_score(PAL_RULER_OWN, &sum)));
    assert_int_equal(pal_longbench_score(pal_longbench_find("trec"), NULL, yes, text, NULL, &score, &err),
                     PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "list of classes"));
    assert_int_equal(
        pal_longbench_score(pal_longbench_find("passage_retrieval_en"), NULL, yes, text, NULL, &score, &err),
        PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "no number after 'Paragraph '"));
    assert_int_equal(pal_longbench_score(pal_longbench_find("qasper"), NULL, yes, number, NULL, &score, &err),
                     PAL_E_FORMAT);
    json_t *row = json_pack("{s:s, s:s, s:s}", "answer", "E", "difficulty", "easy", "length", "short");
    pal_longbench2_sum columns = { 0 };
    bool right;
    assert_int_equal(pal_longbench2_count(&columns, row, 'A', &right, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "expected A, B, C or D, found 'E'"));
    json_decref(row);
    json_decref(none);
    json_decref(number);
    json_decref(text);
}

static void answers_of_many_signs_take_linear_time(void **state) {
    (void)state;
    enum { SIZE = 4 << 20 };
    static const char *const signs[] = { "*", "T*", "The correct answer is (*" };
    pal_bytes text = { 0 }, lower = { 0 };
    for (size_t i = 0; i < PAL_COUNT(signs); i++) {
        text.size = 0; /* each asterisk was a start that passed over those after it */
        while (text.size < SIZE) OK(pal_bytes_append(&text, signs[i], strlen(signs[i]), err));
        assert_int_equal(pal_longbench2_answer(pal_slice_of(&text)), 0);
        OK(pal_bytes_append(&text, "The corr**ect answer is *(C*)", 29, err));
        assert_int_equal(pal_longbench2_answer(pal_slice_of(&text)), 'C');
    }
    text.size = 0; /* each sigma looked at all that stands before it */
    while (text.size < SIZE) OK(pal_bytes_append(&text, "\xCE\xA3.:", 4, err));
    OK(pal_py_lower(&lower, pal_slice_of(&text), err));
    assert_int_equal(lower.size, text.size);
    for (size_t i = 0; i + 4 < lower.size; i += 4) assert_memory_equal(lower.data + i, "\xCF\x83.:", 4);
    assert_memory_equal(lower.data + lower.size - 4, "\xCF\x82.:", 4);
    pal_bytes_free(&lower);
    pal_bytes_free(&text);
}

/* As str.lower and str.capitalize of Python write it. */
static void a_sigma_is_final_behind_a_letter_alone(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        { "\u03A3", "\u03C3", "\u03A3" },
        { "A\u03A3", "a\u03C2", "A\u03C2" },
        { "A.\u03A3:", "a.\u03C2:", "A.\u03C2:" },
        { "A \u03A3", "a \u03C3", "A \u03C3" },
        { "A\u03A3 \u03A3\u03A3'a", "a\u03C2 \u03C3\u03C3'a", "A\u03C2 \u03C3\u03C3'a" },
        { "\u03A3\u03A3", "\u03C3\u03C2", "\u03A3\u03C2" },
        { "\u0301\u03A3", "\u0301\u03C3", "\u0301\u03C3" },
        { "a\xFF\u03A3", "a\xFF\u03C3", "A\xFF\u03C3" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++)
        for (int capital = 0; capital < 2; capital++) {
            pal_bytes out = { 0 };
            const char *expected = cases[i][1 + capital];
            OK((capital ? pal_py_capitalize : pal_py_lower)(&out, pal_slice_text(cases[i][0]), err));
            assert_int_equal(out.size, strlen(expected));
            assert_memory_equal(out.data, expected, out.size);
            pal_bytes_free(&out);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ruler_scores_are_the_recorded_ones),
        cmocka_unit_test(longbench_scores_are_the_recorded_ones),
        cmocka_unit_test(longbench_files_give_the_recorded_results),
        cmocka_unit_test(longbench2_scores_are_the_recorded_ones),
        cmocka_unit_test(prompts_and_cuts_are_the_recorded_ones),
        cmocka_unit_test(rouge_keeps_what_its_walk_can_reach),
        cmocka_unit_test(chinese_words_are_jiebas),
        cmocka_unit_test(broken_characters_are_replaced_as_python_does),
        cmocka_unit_test(scoring_refuses_what_has_no_answer),
        cmocka_unit_test(answers_of_many_signs_take_linear_time),
        cmocka_unit_test(a_sigma_is_final_behind_a_letter_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
