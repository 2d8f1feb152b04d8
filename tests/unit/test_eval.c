/* SPDX-License-Identifier: MIT */
/* Perplexity: the plain sum of log probabilities, however the text is cut into passes. */
#include "support/support.h"

#include <math.h>

#include "base/alloc.h"
#include "eval/perplexity.h"
#include "support/files.h"
#include "support/models.h"
#include "support/text.h"
#include "text/strings.h"

enum { V = TEST_VOCAB, LONGEST = 200 };

typedef struct {
    pal_context *cx;
    pal_model *model;
    pal_tokenizer *tok;
    char folder[256], file[300];
} fixture;

static fixture make(size_t kind) {
    fixture f = { .cx = test_context(1, NULL), .tok = test_letters() };
    f.model = test_model(&test_kinds[kind], PAL_FOR_INFERENCE, f.cx);
    test_directory(f.folder);
    return f;
}

static void drop(fixture *f) {
    test_remove(f->folder);
    pal_tokenizer_close(f->tok);
    pal_model_close(f->model);
    pal_context_free(f->cx);
}

/* Sum of -log softmax at positions 0 .. n-2 of one sequence, from plain logits; by position into nll when not NULL. */
static double plain_loss(const fixture *f, const int32_t *ids, int n, double *nll) {
    const size_t rows = (size_t)pal_model_config_of(f->model)->vocab_rows;
    const int cu[2] = { 0, n };
    const pal_batch batch = { .tokens = n, .sequences = 1, .ids = ids, .cu_seqlens = cu };
    float *logits = pal_alloc((size_t)n * rows, sizeof *logits);
    pal_work *work;
    double all = 0;
    OK(pal_work_new(&work, f->model, f->cx, &(pal_work_options){ .tokens = n }, err));
    OK(pal_model_forward(f->model, work, &batch, NULL, n, logits, err));
    for (int t = 0; t + 1 < n; t++) {
        const float *row = logits + (size_t)t * rows;
        const double above = test_largest(row, rows); /* of all */
        double sum = 0;
        for (size_t i = 0; i < rows; i++) sum += exp((double)row[i] - above);
        const double x = above + log(sum) - (double)row[ids[t + 1]];
        if (nll) nll[t] = x;
        all += x;
    }
    pal_work_free(work);
    pal_free(logits);
    return all;
}

static void near(const char *what, double found, double expected) {
    if (!(fabs(found - expected) <= 2e-5 * fabs(expected) + 1e-9))
        fail_msg("%s: %.9g, expected %.9g", what, found, expected);
}

static void scores_equal_log_softmax_of_forward(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        fixture f = make(k);
        int32_t ids[40], targets[40];
        float nll[40];
        unsigned char right[40];
        double expected[40];
        pal_work *work;
        pal_state *s;
        pal_loss loss;
        test_ids(ids, 40, V, k);
        pal_shift_targets(targets, ids, 40);
        targets[7] = PAL_IGNORE;
        OK(pal_work_new(&work, f.model, f.cx, &(pal_work_options){ .tokens = 23, .loss = true }, err));
        OK(pal_state_new(&s, f.model, 40, err));
        double sum = 0;
        for (int at = 0; at < 40;) { /* in two pieces, the memory carried */
            const int n = at ? 17 : 23, cu[2] = { 0, n };
            const pal_batch batch = {
                .tokens = n, .sequences = 1, .ids = ids + at, .cu_seqlens = cu, .targets = targets + at
            };
            OK(pal_model_score(f.model, work, &s, &batch, nll + at, right + at, &loss, err));
            size_t marked = 0;
            for (int t = at; t < at + n; t++) marked += right[t];
            assert_int_equal(marked, loss.correct);
            sum += loss.sum;
            at += n;
        }
        plain_loss(&f, ids, 40, expected);
        double plain = 0;
        for (int t = 0; t < 39; t++) {
            if (t == 7) assert_true(nll[t] == 0);
            else near(test_kinds[k].name, (double)nll[t], expected[t]), plain += expected[t];
        }
        near(test_kinds[k].name, sum, plain);
        pal_state_free(s);
        pal_work_free(work);
        drop(&f);
    }
}

/* Documents of many lengths as JSONL; returns the sum of plain losses, cut into windows when context > 0. */
static double write_documents(fixture *f, int count, int context, uint64_t *tokens, uint64_t *bytes, uint64_t *words) {
    double sum = 0;
    *tokens = *bytes = *words = 0;
    snprintf(f->file, sizeof f->file, "%s/text.jsonl", f->folder);
    FILE *out = fopen(f->file, "wb");
    assert_non_null(out);
    for (int d = 0; d < count; d++) {
        int32_t ids[LONGEST];
        pal_rng rng = pal_rng_at(4, (uint64_t)d);
        const int n = d == 2 ? 1 : d == 3 ? LONGEST : 2 + (int)pal_rng_below(&rng, 90);
        test_ids(ids, n, V, (uint64_t)d);
        fputs("{\"text\": \"", out);
        bool blank = false;
        *words += 1;
        for (int i = 0; i < n; i++) { /* ids are the ranks of code points: \n, blank, '.', a .. z */
            const char c = "\n .abcdefghijklmnopqrstuvwxyz"[ids[i]];
            *words += (c == '\n' || c == ' ') && !blank;
            blank = c == '\n' || c == ' ';
            if (c == '\n') fputs("\\n", out);
            else fputc(c, out);
        }
        fputs("\"}\n", out);
        *bytes += (uint64_t)n;
        *tokens += (uint64_t)n - 1;
        const int window = context ? context : n;
        for (int at = 0; at + 1 < n; at += window)
            sum += plain_loss(f, ids + at, n - at < window + 1 ? n - at : window + 1, NULL);
    }
    fclose(out);
    return sum;
}

static void perplexity_equals_a_plain_sum_however_it_is_cut(void **state) {
    (void)state;
    const size_t kinds[] = { 0, 3, 5, 7, 8 };
    for (size_t c = 0; c < PAL_COUNT(kinds); c++)
        for (int context = 0; context <= 16; context += 16) {
            fixture f = make(kinds[c]);
            uint64_t tokens, bytes, words;
            const bool grows = pal_model_grows(pal_model_config_of(f.model));
            const double expected = write_documents(&f, 12, context, &tokens, &bytes, &words);
            for (int way = 0; way < 4; way++) {
                pal_eval_data *data;
                pal_perplexity found;
                pal_perplexity_options o = { .context = grows && !context ? LONGEST : context,
                                             .piece = (const int[]){ 1024, 7, 64, 1 }[way],
                                             .documents = (const int[]){ 8, 3, 1, 4 }[way] };
                OK(pal_eval_data_open(&data, f.file, f.tok, &(pal_eval_options){ 0 }, err));
                OK(pal_perplexity_run(&found, f.model, f.tok, f.cx, data, &o, err));
                near(test_kinds[kinds[c]].name, found.nll, expected);
                assert_int_equal(found.documents, 12);
                assert_int_equal(found.tokens, tokens);
                assert_int_equal(found.bytes, bytes);
                assert_int_equal(found.words, words);
                uint64_t count = 0;
                double nll = 0;
                for (int b = 0; b < found.bin_count; b++) count += found.bins[b].count, nll += found.bins[b].nll;
                assert_int_equal(count, tokens);
                near("sum of bins", nll, found.nll);
                assert_int_equal(found.bin_count, context ? 5 : 8); /* 16 is in 16..31, 199 in 128..255 */
                assert_int_equal(found.last, context ? 16 : 199);
                pal_eval_data_close(data);
            }
            drop(&f);
        }
}

static void loss_stands_at_the_position_it_belongs_to(void **state) {
    (void)state;
    fixture f = make(0);
    uint64_t tokens, bytes, words;
    pal_eval_data *data;
    pal_perplexity found;
    int32_t ids[LONGEST];
    double nll[LONGEST] = { 0 };
    (void)write_documents(&f, 1, 0, &tokens, &bytes, &words);
    test_ids(ids, (int)tokens + 1, V, 0);
    plain_loss(&f, ids, (int)tokens + 1, nll);
    OK(pal_eval_data_open(&data, f.file, f.tok, &(pal_eval_options){ 0 }, err));
    OK(pal_perplexity_run(&found, f.model, f.tok, f.cx, data, &(pal_perplexity_options){ .piece = 5 }, err));
    for (int b = 0; b < found.bin_count; b++) { /* the token after p others is predicted by the p-th */
        double sum = 0;
        for (uint64_t p = 1ull << b; p < 2ull << b && p <= tokens; p++) sum += nll[p - 1];
        near("bin", found.bins[b].nll, sum);
    }
    pal_eval_data_close(data);
    drop(&f);
}

static void pages_begin_at_titles(void **state) {
    (void)state;
    static const char *const pages[] = { " \n", " = One = \n \n text = = x\n = = Section = = \n more\n",
                                         " = Two words = \n = = = Deep = = = \n = not\n", " = Three = " };
    char all[256] = "";
    for (size_t i = 0; i < PAL_COUNT(pages); i++) strcat(all, pages[i]);
    pal_slice rest = { (const unsigned char *)all, strlen(all) };
    for (size_t i = 0; i < PAL_COUNT(pages); i++) {
        const size_t size = pal_wikitext_page(rest);
        assert_int_equal(size, strlen(pages[i]));
        rest.data += size, rest.size -= size;
    }
    assert_int_equal(rest.size, 0);
}

static void empty_data_and_misfits_are_refused(void **state) {
    (void)state;
    fixture f = make(0), attention = make(8);
    pal_eval_data *data;
    pal_perplexity found;
    pal_tokenizer *bytes;
    pal_error why;
    char path[320];
    snprintf(path, sizeof path, "%s/empty.txt", f.folder);
    fclose(fopen(path, "wb"));
    OK(pal_eval_data_open(&data, path, f.tok, &(pal_eval_options){ 0 }, err));
    assert_int_equal(pal_perplexity_run(&found, f.model, f.tok, f.cx, data, &(pal_perplexity_options){ 0 }, &why),
                     PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "empty"));
    OK(pal_tokenizer_open(&bytes, "bytes", err));
    assert_int_equal(pal_perplexity_run(&found, f.model, bytes, f.cx, data, &(pal_perplexity_options){ 0 }, &why),
                     PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "256"));
    assert_int_equal(
        pal_perplexity_run(&found, attention.model, f.tok, f.cx, data, &(pal_perplexity_options){ 0 }, &why),
        PAL_E_ARGUMENT);
    assert_int_equal(
        pal_perplexity_run(&found, f.model, f.tok, f.cx, data, &(pal_perplexity_options){ .context = -1 }, &why),
        PAL_E_ARGUMENT);
    pal_eval_data_close(data);
    OK(pal_eval_data_open(&data, path, f.tok, &(pal_eval_options){ .split = PAL_SPLIT_WIKITEXT }, err));
    assert_int_equal(pal_perplexity_run(&found, f.model, f.tok, f.cx, data, &(pal_perplexity_options){ 0 }, &why),
                     PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "empty"));
    pal_eval_data_close(data);
    assert_int_equal(pal_eval_data_open(&data, f.folder, f.tok, &(pal_eval_options){ 0 }, &why), PAL_E_IO);
    assert_int_equal(pal_eval_data_open(&data, "/nowhere", f.tok, &(pal_eval_options){ 0 }, &why), PAL_E_IO);
    pal_tokenizer_close(bytes);
    drop(&attention);
    drop(&f);
}

/* A document that the end of a shard cuts is one: 5 tokens in the first shard, 4 in the second, 2 of another. */
static void a_document_in_two_shards_is_one(void **state) {
    (void)state;
    static const struct {
        uint32_t from;
        int tokens;
        bool continues;
    } pieces[] = { { 0, 5, false }, { 5, 4, true }, { 20, 2, false } };
    pal_tokenizer *bytes = test_open("bytes");
    pal_shard_sums sums[2];
    pal_shard_writer *w = NULL;
    char folder[256];
    test_directory(folder);
    for (size_t p = 0; p < PAL_COUNT(pieces); p++) {
        if (p < 2) OK(pal_shard_writer_new(&w, folder, p, pal_tokenizer_fingerprint(bytes), 256, err));
        if (pieces[p].continues) pal_shard_writer_continue(w);
        for (int i = 0; i < pieces[p].tokens; i++) {
            const uint32_t id = pieces[p].from + (uint32_t)i;
            OK(pal_shard_writer_tokens(w, &id, 1, err));
        }
        OK(pal_shard_writer_end_document(w, (uint64_t)pieces[p].tokens, 1, err));
        if (p != 1) OK(pal_shard_writer_finish(w, &sums[p > 0], err));
    }
    const pal_shards_summary summary = { .tokenizer = bytes, .eos = -1, .count = 2, .shards = sums };
    OK(pal_shards_finish(folder, &summary, err));
    pal_eval_data *data;
    OK(pal_eval_data_open(&data, folder, bytes, &(pal_eval_options){ .subset = PAL_SUBSET_ALL }, err));
    static const size_t expected[] = { 9, 2 };
    bool found;
    for (size_t d = 0; d < PAL_COUNT(expected); d++) {
        pal_eval_document doc = { 0 };
        OK(pal_eval_data_next(data, &doc, &found, err));
        assert_true(found);
        assert_int_equal(doc.ids.count, expected[d]);
        assert_int_equal(doc.bytes, expected[d]);
        for (size_t i = 0; i < doc.ids.count; i++) assert_int_equal(doc.ids.data[i], (d ? 20 : 0) + i);
        pal_ids_free(&doc.ids);
    }
    pal_eval_document none = { 0 };
    OK(pal_eval_data_next(data, &none, &found, err));
    assert_false(found);
    pal_eval_data_close(data);
    pal_tokenizer_close(bytes);
    test_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_equal_log_softmax_of_forward),
        cmocka_unit_test(perplexity_equals_a_plain_sum_however_it_is_cut),
        cmocka_unit_test(loss_stands_at_the_position_it_belongs_to),
        cmocka_unit_test(pages_begin_at_titles),
        cmocka_unit_test(empty_data_and_misfits_are_refused),
        cmocka_unit_test(a_document_in_two_shards_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
