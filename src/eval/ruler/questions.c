/* SPDX-License-Identifier: MIT */
/* Questions about one of many documents. */
#include "base/alloc.h"
#include "eval/ruler/inside.h"

/* The documents near a question, its own first; how many those are in *own. */
static size_t list_near(const pal_ruler_questions *q, const pal_ruler_question *question, uint32_t *list, size_t *own) {
    const uint32_t *near = q->near.data + question->near;
    size_t count = 0;
    *own = question->own == PAL_NO_ID ? question->count : 1;
    if (question->own != PAL_NO_ID) list[count++] = question->own;
    for (size_t i = 0; i < question->count; i++)
        if (near[i] != question->own) list[count++] = near[i];
    return count;
}

/* `size` documents: the question's own, those near it, then any others; all of them where there are not more. */
static pal_status choose(pal_ruler_maker *m, const pal_ruler_questions *q, const pal_ruler_question *question,
                         size_t size, uint32_t *chosen, size_t *count, pal_error *err) {
    const size_t all = q->documents.count;
    bool *near;
    uint32_t *list = NULL, *others = NULL, *drawn = NULL;
    size_t left = 0, own;
    *count = 0;
    if (size >= all) {
        for (uint32_t i = 0; i < all; i++) chosen[(*count)++] = i;
        return PAL_OK;
    }
    pal_status st = pal_alloc_named((void **)&near, all, sizeof *near, "documents", err);
    if (!st) st = pal_alloc_named((void **)&list, question->count + 1, sizeof *list, "documents", err);
    if (!st) /* an article may have more paragraphs than there are documents: the same ones again */
        st = pal_alloc_named((void **)&others, all + question->count, sizeof *others, "documents", err);
    if (!st) st = pal_alloc_named((void **)&drawn, all, sizeof *drawn, "documents", err);
    if (st) goto done;
    const size_t close = list_near(q, question, list, &own);
    const bool any = size > close;
    const size_t fixed = any ? close : own;
    for (size_t i = 0; i < close; i++) near[list[i]] = true;
    for (uint32_t i = 0; i < all && any; i++)
        if (!near[i]) others[left++] = i;
    for (size_t i = own; i < close && !any; i++) others[left++] = list[i];
    for (size_t i = 0; i < fixed; i++) chosen[(*count)++] = list[i];
    size_t more = size > fixed ? size - fixed : 0;
    if (more > left) more = left;
    st = pal_mersenne_sample(&m->random, (uint32_t)left, (uint32_t)more, drawn, err);
    for (size_t i = 0; i < more && !st; i++) chosen[(*count)++] = others[drawn[i]];
done:
    pal_free(near);
    pal_free(list);
    pal_free(others);
    pal_free(drawn);
    return st;
}

pal_status pal_ruler_draw_questions(pal_ruler_maker *m, size_t size, size_t index, pal_error *err) {
    const pal_ruler_questions *q = &m->sources->questions[m->task->set];
    uint32_t *chosen;
    size_t count = 0;
    if (index >= q->count)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: row %zu needs another question, there are %zu", m->task->name,
                        index + 1, q->count);
    const pal_ruler_question *question = &q->list[index];
    pal_status st = pal_alloc_named((void **)&chosen, q->documents.count + question->count, sizeof *chosen, "documents",
                                    err);
    if (st) return st;
    st = choose(m, q, question, size, chosen, &count, err);
    if (!st) pal_ruler_shuffle(m, chosen, count);
    m->text.size = m->input.size = m->prefix.size = 0;
    for (size_t i = 0; i < count && !st; i++) {
        char number[24];
        const pal_fill values[] = { { "number", pal_ruler_number(number, i + 1) },
                                    { "text", pal_strings_at(&q->documents, chosen[i]) },
                                    { NULL } };
        if (i) st = pal_bytes_append(&m->text, "\n\n", 2, err);
        if (!st) st = pal_ruler_fill(&m->text, m->templates->document, values, err);
    }
    pal_free(chosen);
    pal_ruler_clear(&m->outputs);
    for (size_t i = 0; i < json_array_size(question->outputs) && !st; i++) {
        const json_t *answer = json_array_get(question->outputs, i);
        st = pal_strings_add(&m->outputs, json_string_value(answer), json_string_length(answer), err);
    }
    const pal_fill values[] = {
        { "text", pal_slice_of(&m->text) },
        { "query", { (const unsigned char *)json_string_value(question->query), json_string_length(question->query) } },
        { NULL }
    };
    if (!st) st = pal_ruler_fill(&m->input, m->templates->question, values, err);
    return st ? st : pal_ruler_fill(&m->prefix, m->templates->question_answer, values, err);
}
