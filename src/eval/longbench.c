/* SPDX-License-Identifier: MIT */
#include "eval/longbench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "eval/answers/answers.h"

enum { SINGLE, MULTI, SUMMARY, EXAMPLES, SYNTHETIC, CODE };
const char *const pal_longbench_categories[PAL_LONGBENCH_CATEGORIES] = { "single-document QA", "multi-document QA",
                                                                         "summarisation",      "few-shot",
                                                                         "synthetic",          "code" };

const pal_longbench_set pal_longbench_sets[PAL_LONGBENCH_SETS] = {
    { "narrativeqa", PAL_LONGBENCH_F1, SINGLE, 128, false, false, false },
    { "qasper", PAL_LONGBENCH_F1, SINGLE, 128, true, false, false },
    { "multifieldqa_en", PAL_LONGBENCH_F1, SINGLE, 64, true, false, false },
    { "multifieldqa_zh", PAL_LONGBENCH_F1_ZH, SINGLE, 64, false, false, false },
    { "hotpotqa", PAL_LONGBENCH_F1, MULTI, 32, true, false, false },
    { "2wikimqa", PAL_LONGBENCH_F1, MULTI, 32, true, false, false },
    { "musique", PAL_LONGBENCH_F1, MULTI, 32, false, false, false },
    { "dureader", PAL_LONGBENCH_ROUGE_ZH, MULTI, 128, false, false, false },
    { "gov_report", PAL_LONGBENCH_ROUGE, SUMMARY, 512, true, false, false },
    { "qmsum", PAL_LONGBENCH_ROUGE, SUMMARY, 512, false, false, false },
    { "multi_news", PAL_LONGBENCH_ROUGE, SUMMARY, 512, true, false, false },
    { "vcsum", PAL_LONGBENCH_ROUGE_ZH, SUMMARY, 512, false, false, false },
    { "trec", PAL_LONGBENCH_CLASS, EXAMPLES, 64, true, true, false },
    { "triviaqa", PAL_LONGBENCH_F1, EXAMPLES, 32, true, true, false },
    { "samsum", PAL_LONGBENCH_ROUGE, EXAMPLES, 128, true, true, true },
    { "lsht", PAL_LONGBENCH_CLASS, EXAMPLES, 64, false, true, false },
    { "passage_count", PAL_LONGBENCH_COUNT, SYNTHETIC, 32, true, false, false },
    { "passage_retrieval_en", PAL_LONGBENCH_PLACE, SYNTHETIC, 32, true, false, false },
    { "passage_retrieval_zh", PAL_LONGBENCH_PLACE_ZH, SYNTHETIC, 32, false, false, false },
    { "lcc", PAL_LONGBENCH_CODE, CODE, 64, true, false, false },
    { "repobench-p", PAL_LONGBENCH_CODE, CODE, 64, true, false, false },
};

const pal_longbench_set *pal_longbench_find(const char *name) {
    for (int i = 0; i < PAL_LONGBENCH_SETS; i++)
        if (strcmp(pal_longbench_sets[i].name, name) == 0) return &pal_longbench_sets[i];
    return NULL;
}

bool pal_longbench_cuts_words(const pal_longbench_set *set) {
    return set->metric == PAL_LONGBENCH_F1_ZH || set->metric == PAL_LONGBENCH_ROUGE_ZH;
}

static pal_status join(pal_bytes *out, const pal_strings *words, pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t i = 0; i < words->count && !st; i++) {
        const pal_slice word = pal_strings_at(words, i);
        if (i) st = pal_bytes_append(out, " ", 1, err);
        if (!st) st = pal_bytes_append(out, word.data, word.size, err);
    }
    return st;
}

static pal_status score_words(const pal_longbench_set *set, const pal_chinese *chinese, pal_slice prediction,
                              pal_slice answer, size_t *work, double *score, pal_error *err) {
    pal_strings p = { 0 }, a = { 0 };
    pal_bytes joined_p = { 0 }, joined_a = { 0 };
    pal_status st = pal_chinese_cut(chinese, prediction, &p, err);
    if (!st) st = pal_chinese_cut(chinese, answer, &a, err);
    if (!st && set->metric == PAL_LONGBENCH_F1_ZH) st = pal_answer_f1_zh(&p, &a, score, err);
    else if (!st && !(st = join(&joined_p, &p, err)) && !(st = join(&joined_a, &a, err)))
        st = pal_answer_rouge(pal_slice_of(&joined_p), pal_slice_of(&joined_a), PAL_ROUGE_STEPS_ZH, work, score, err);
    pal_strings_free(&p);
    pal_strings_free(&a);
    pal_bytes_free(&joined_p);
    pal_bytes_free(&joined_a);
    return st;
}

static pal_status score_one(const pal_longbench_set *set, const pal_chinese *chinese, pal_slice p, pal_slice answer,
                            const json_t *classes, size_t *work, double *score, pal_error *err) {
    switch (set->metric) {
    case PAL_LONGBENCH_F1: return pal_answer_f1(p, answer, score, err);
    case PAL_LONGBENCH_F1_ZH:
    case PAL_LONGBENCH_ROUGE_ZH: return score_words(set, chinese, p, answer, work, score, err);
    case PAL_LONGBENCH_ROUGE: return pal_answer_rouge(p, answer, PAL_ROUGE_STEPS, work, score, err);
    case PAL_LONGBENCH_CLASS: return pal_answer_class(p, answer, classes, score, err);
    case PAL_LONGBENCH_COUNT: return pal_answer_count(p, answer, score, err);
    case PAL_LONGBENCH_PLACE: return pal_answer_place(p, answer, "Paragraph ", score, err);
    case PAL_LONGBENCH_PLACE_ZH: return pal_answer_place(p, answer, "\u6bb5\u843d", score, err);
    default: return pal_answer_code(p, answer, work, score, err);
    }
}

/* Each answer goes through the prediction again. Where it is a class, every class is looked for in both, and those that
 * are found are moved about in their list. */
static bool is_too_much(const pal_longbench_set *set, size_t prediction, const json_t *answers, const json_t *classes) {
    const size_t count = json_array_size(answers), names = json_array_size(classes);
    size_t size = 0;
    if (set->metric != PAL_LONGBENCH_CLASS) return pal_size_mul(count, prediction) > PAL_ANSWER_BYTES;
    for (size_t i = 0; i < count; i++) size = pal_size_add(size, json_string_length(json_array_get(answers, i)));
    size = pal_size_add(size, pal_size_mul(count, pal_size_add(prediction, names)));
    return pal_size_mul(size, names) > PAL_ANSWER_WORK;
}

pal_status pal_longbench_score(const pal_longbench_set *set, const pal_chinese *chinese, pal_slice prediction,
                               const json_t *answers, const json_t *classes, double *score, pal_error *err) {
    pal_status st = PAL_OK;
    double best = 0;
    size_t work = 0;
    if (!json_is_array(answers)) return pal_fail(err, PAL_E_FORMAT, "there is no list in field 'answers'");
    if (set->first_line) prediction = pal_answer_first_line(prediction);
    const size_t count = json_array_size(answers);
    if (is_too_much(set, prediction.size, answers, classes))
        return pal_fail(err, PAL_E_FORMAT, "%zu answers for a prediction of %zu bytes: too much to compare", count,
                        prediction.size);
    for (size_t i = 0; i < count && !st; i++) {
        const json_t *a = json_array_get(answers, i);
        double own = 0;
        if (!json_is_string(a)) return pal_fail(err, PAL_E_FORMAT, "answer %zu is not a text", i + 1);
        const pal_slice answer = { (const unsigned char *)json_string_value(a), json_string_length(a) };
        st = score_one(set, chinese, prediction, answer, classes, &work, &own, err);
        if (own > best) best = own;
    }
    *score = best;
    return st;
}

double pal_longbench_percent(const double *scores, size_t count) {
    double sum = 0;
    char text[32];
    if (!count) return NAN;
    for (size_t i = 0; i < count; i++) sum += scores[i];
    snprintf(text, sizeof text, "%.2f", 100 * sum / (double)count);
    return strtod(text, NULL);
}

/* numpy's order of summation: eight sums side by side, and halves of what has more than 128. */
static double pairwise(const double *x, size_t n) {
    if (n < 8) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += x[i];
        return sum;
    }
    if (n <= 128) {
        double r[8];
        size_t i;
        for (i = 0; i < 8; i++) r[i] = x[i];
        for (; i + 8 <= n; i += 8)
            for (size_t k = 0; k < 8; k++) r[k] += x[i + k];
        double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
        for (; i < n; i++) sum += x[i];
        return sum;
    }
    const size_t half = n / 2 - n / 2 % 8;
    return pairwise(x, half) + pairwise(x + half, n - half);
}

double pal_longbench_percent_numpy(const double *scores, size_t count) {
    return count ? rint(100 * (pairwise(scores, count) / (double)count) * 100) / 100 : NAN;
}

int pal_longbench_bucket(int64_t length) { return length < 4000 ? 0 : length < 8000 ? 1 : 2; }
const char *const pal_longbench_bucket_names[PAL_LONGBENCH_BUCKETS] = { "0-4k", "4-8k", "8k+" };

static pal_status append_field(pal_bytes *out, const json_t *row, const char *field, bool strip, pal_error *err) {
    const json_t *value = json_object_get(row, field);
    if (!json_is_string(value)) return pal_fail(err, PAL_E_FORMAT, "there is no text in field '%s'", field);
    pal_slice text = { (const unsigned char *)json_string_value(value), json_string_length(value) };
    if (strip) text = pal_py_strip(text);
    return pal_bytes_append(out, text.data, text.size, err);
}

typedef struct {
    const char *sign, *field;
} placeholder;

static pal_status fill(pal_slice template, const placeholder *list, bool strip, const json_t *row, pal_bytes *out,
                       pal_error *err) {
    enum { MOST = 16 }; /* a long text that is repeated takes memory that its file does not show */
    pal_status st = PAL_OK;
    int filled = 0;
    for (size_t i = 0; i < template.size && !st;) {
        const placeholder *p = list;
        while (p->sign &&
               (template.size - i < strlen(p->sign) || memcmp(template.data + i, p->sign, strlen(p->sign)) != 0))
            p++;
        if (p->sign && ++filled > MOST)
            return pal_fail(err, PAL_E_FORMAT, "the prompt's template has more than %d places for texts", MOST);
        st = p->sign ? append_field(out, row, p->field, strip, err) : pal_bytes_append(out, template.data + i, 1, err);
        i += p->sign ? strlen(p->sign) : 1;
    }
    return st;
}

pal_status pal_longbench_prompt(pal_slice template, const json_t *row, pal_bytes *prompt, pal_error *err) {
    static const placeholder list[] = { { "{context}", "context" }, { "{input}", "input" }, { NULL, NULL } };
    return fill(template, list, false, row, prompt, err);
}

pal_status pal_longbench2_prompt(pal_slice template, const json_t *row, pal_bytes *prompt, pal_error *err) {
    static const placeholder list[] = { { "$DOC$", "context" },  { "$Q$", "question" },   { "$C_A$", "choice_A" },
                                        { "$C_B$", "choice_B" }, { "$C_C$", "choice_C" }, { "$C_D$", "choice_D" },
                                        { NULL, NULL } };
    return fill(template, list, true, row, prompt, err);
}

pal_status pal_cut_middle(const pal_middle_cut *m, pal_bytes *prompt, pal_ids *ids, size_t *cut, pal_error *err) {
    ids->count = 0;
    *cut = 0;
    pal_status st = pal_tokenizer_encode(m->tokenizer, m->scratch, prompt->data, prompt->size, NULL, ids, err);
    if (st || !m->most || ids->count <= m->most) return st;
    const size_t head = m->most / 2, tail = m->together ? m->most - head : head;
    *cut = ids->count - head - tail;
    prompt->size = 0;
    pal_bytes text = { 0 };
    if (m->together) {
        memmove(ids->data + head, ids->data + ids->count - tail, tail * sizeof *ids->data);
        st = pal_tokenizer_decode(m->tokenizer, ids->data, head + tail, true, &text, err);
        if (!st) st = pal_py_valid(prompt, pal_slice_of(&text), err);
    } else {
        const uint32_t *part[2] = { ids->data, ids->data + ids->count - tail };
        for (int i = 0; i < 2 && !st; i++) {
            text.size = 0;
            st = pal_tokenizer_decode(m->tokenizer, part[i], i ? tail : head, true, &text, err);
            if (!st) st = pal_py_valid(prompt, pal_slice_of(&text), err);
        }
    }
    pal_bytes_free(&text);
    ids->count = 0;
    return st ? st : pal_tokenizer_encode(m->tokenizer, m->scratch, prompt->data, prompt->size, NULL, ids, err);
}
