/* SPDX-License-Identifier: MIT */
#include "eval/task_run.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "text/strings.h"

/* Documents that are scored in one call: enough for full passes, few enough that little is lost when it is interrupted.
 */
enum { BATCH_DOCUMENTS = 256, BATCH_TOKENS = 8192 };

typedef struct {
    size_t index;
    json_t *row;
    pal_task_doc doc;
    bool known;         /* it was scored before; logprob, greedy and cut are there */
    size_t first, last; /* its requests; a choice is one, a rolling text one a window */
    double logprob[PAL_TASK_CHOICES];
    bool greedy[PAL_TASK_CHOICES];
    size_t cut;
} waiting;

typedef struct {
    const pal_task_run *run;
    pal_task_sums *sums;
    uint64_t *cut;
    waiting *docs; /* (BATCH_DOCUMENTS) */
    size_t count, known;
    pal_ids ids;
    pal_pairs pairs;
    pal_bytes context;
    pal_score_request *requests;
    pal_score_result *scores;
    size_t capacity;
} batch;

static pal_status add_requests(batch *b, waiting *w, pal_error *err) {
    const pal_task_run *r = b->run;
    pal_status st = PAL_OK;
    w->first = b->pairs.count;
    if (r->task->kind == PAL_TASK_ROLLING)
        st = pal_encode_rolling(r->encoder, pal_strings_at(&w->doc.texts, 0), &b->ids, &b->pairs, err);
    else
        for (size_t i = 0; i < w->doc.count && !st; i++) {
            pal_slice context = pal_task_context(&w->doc, i);
            pal_pair pair;
            if (r->shots.size) {
                b->context.size = 0;
                if ((st = pal_bytes_append(&b->context, r->shots.data, r->shots.size, err)) ||
                    (st = pal_bytes_append(&b->context, context.data, context.size, err)))
                    return st;
                context = (pal_slice){ b->context.data, b->context.size };
            }
            if ((st = pal_encode_pair(r->encoder, context, pal_task_continuation(&w->doc, i), &b->ids, &pair, err)))
                return st;
            w->cut += pair.cut > 0;
            st = pal_pairs_add(&b->pairs, pair, err);
        }
    w->last = b->pairs.count;
    return st;
}

static pal_status make_room(batch *b, pal_error *err) {
    if (b->pairs.count <= b->capacity) return PAL_OK;
    pal_free(b->requests), pal_free(b->scores);
    b->capacity = 0;
    b->requests = pal_alloc(b->pairs.count, sizeof *b->requests);
    b->scores = pal_alloc(b->pairs.count, sizeof *b->scores);
    if (!b->requests || !b->scores)
        return pal_fail(err, PAL_E_MEMORY, "out of memory for %zu requests", b->pairs.count);
    b->capacity = b->pairs.count;
    return PAL_OK;
}

static pal_status count_document(batch *b, const waiting *w, pal_error *err) {
    const pal_task_run *r = b->run;
    double values[PAL_METRICS];
    const pal_status st = pal_task_count(r->task, &w->doc, w->logprob, w->greedy, b->sums, values, err);
    *b->cut += w->cut;
    if (st || w->known || !r->on_sample) return st;
    return r->on_sample(r->user,
                        &(pal_task_sample){ .index = w->index,
                                            .row = w->row,
                                            .doc = &w->doc,
                                            .shots = r->shots,
                                            .logprob = w->logprob,
                                            .greedy = w->greedy,
                                            .cut = w->cut,
                                            .values = values },
                        err);
}

/* What the requests of a document were given. */
static pal_status take_scores(const batch *b, waiting *w, pal_error *err) {
    const pal_task_run *r = b->run;
    const pal_score_result *scores = b->scores; /* NULL where no document has requests */
    memset(w->logprob, 0, sizeof w->logprob);
    for (size_t i = w->first; scores && i < w->last; i++) {
        const size_t to = r->task->kind == PAL_TASK_ROLLING ? 0 : i - w->first;
        w->logprob[to] += scores[i].logprob;
        w->greedy[to] = scores[i].greedy;
        if (!isfinite(w->logprob[to]))
            return pal_fail(err, PAL_E_FORMAT,
                            "%s: document %zu: the model's answer is not a number: its weights hold NaN or infinity",
                            pal_task_data_path(r->data), w->index);
    }
    return PAL_OK;
}

static pal_status finish(batch *b, pal_error *err) {
    const pal_task_run *r = b->run;
    const pal_pair *pairs = b->pairs.data; /* as in take_scores */
    pal_status st = make_room(b, err);
    for (size_t d = 0; d < b->count && !st; d++)
        for (size_t i = b->docs[d].first; pairs && i < b->docs[d].last; i++) {
            const pal_pair *p = &pairs[i];
            b->requests[i] = (pal_score_request){
                .ids = b->ids.data + p->at, .count = p->count, .scored = p->scored, .group = r->shots.size ? 0 : d
            };
        }
    if (!st) st = pal_score(r->scorer, b->requests, b->pairs.count, b->scores, err);
    for (size_t d = 0; d < b->count; d++) {
        waiting *w = &b->docs[d];
        if (!st && !w->known) st = take_scores(b, w, err);
        if (!st) st = count_document(b, w, err);
        json_decref(w->row);
        w->row = NULL;
    }
    b->count = b->known = b->ids.count = b->pairs.count = 0;
    return st;
}

static pal_status take_document(batch *b, size_t index, pal_error *err) {
    const pal_task_run *r = b->run;
    waiting *w = &b->docs[b->count];
    pal_error why;
    pal_status st = pal_task_data_read(r->data, index, &w->doc, &w->row, err);
    if (st) return st;
    *w = (waiting){ .index = index, .row = w->row, .doc = w->doc, .first = b->pairs.count, .last = b->pairs.count };
    b->count++;
    w->known = r->known && r->known(r->user, index, &w->doc, w->logprob, w->greedy, &w->cut);
    if (w->known) {
        b->known++;
        return PAL_OK;
    }
    if ((st = add_requests(b, w, &why)))
        pal_fail(err, st, "%s: document %zu: %s", pal_task_data_path(r->data), index, why.text);
    return st;
}

pal_status pal_task_measure(const pal_task_run *r, pal_task_sums *sums, uint64_t *cut, pal_error *err) {
    batch b = { .run = r, .sums = sums, .cut = cut };
    void *docs;
    pal_status st = pal_alloc_named(&docs, BATCH_DOCUMENTS, sizeof *b.docs, "a batch of documents", err);
    if (st) return st;
    b.docs = docs;
    const uint64_t before = pal_scorer_counts(r->scorer).read;
    for (size_t i = r->from; i < r->to && !st; i++) {
        st = take_document(&b, i, err);
        if (st || (b.count < BATCH_DOCUMENTS && b.ids.count < BATCH_TOKENS && i + 1 < r->to)) continue;
        const size_t new = b.count - b.known;
        if (r->on_batch && new)
            r->on_batch(r->user, i + 1 - r->from - new, new, pal_scorer_counts(r->scorer).read - before);
        st = finish(&b, err);
    }
    for (size_t d = 0; d < BATCH_DOCUMENTS; d++) {
        json_decref(b.docs[d].row);
        pal_task_doc_free(&b.docs[d].doc);
    }
    pal_free(docs), pal_free(b.requests), pal_free(b.scores);
    pal_ids_free(&b.ids);
    pal_pairs_free(&b.pairs);
    pal_bytes_free(&b.context);
    return st;
}

pal_status pal_task_shots(const pal_eval_task *task, const pal_task_data *data, size_t count, pal_bytes *out,
                          pal_error *err) {
    pal_task_doc doc = { 0 };
    pal_status st = PAL_OK;
    if (task->kind == PAL_TASK_ROLLING)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: whole texts have no examples before them", task->name);
    if (count > pal_task_data_count(data))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: %zu examples asked for, there are %zu", pal_task_data_path(data),
                        count, pal_task_data_count(data));
    for (size_t i = 0; i < count && !st; i++) {
        if ((st = pal_task_data_read(data, i, &doc, NULL, err))) break;
        const size_t right = (size_t)doc.gold;
        const pal_slice context = pal_task_context(&doc, right), answer = pal_task_continuation(&doc, right);
        if (!(st = pal_bytes_append(out, context.data, context.size, err)) &&
            !(st = pal_bytes_append(out, answer.data, answer.size, err)))
            st = pal_bytes_append(out, "\n\n", 2, err);
    }
    pal_task_doc_free(&doc);
    return st;
}
