/* SPDX-License-Identifier: MIT */
#include "eval/perplexity.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "layers/pass.h"
#include "palimpsa/state.h"
#include "text/strings.h"

enum { PIECE = 1024, DOCUMENTS = 8, MOST_DOCUMENTS = 1024 };

/* A document that is being read: ids[at] is the next token to read, ids[at+1] what it should predict. */
typedef struct {
    pal_eval_document doc;
    pal_state *state;
    size_t at, window; /* window: where the memory was empty */
    size_t index;      /* of the document, among those that are not passed over */
    bool busy;
    bool right; /* every token so far of the answer that ids[at] belongs to was the likeliest */
} reader;

typedef struct {
    const pal_model *model;
    pal_eval_data *data;
    const pal_perplexity_options *o;
    int64_t prefix;
    int piece, count;
    pal_work *work;
    reader *readers;
    bool ended; /* no document is left */
    const pal_comm *comm;
    uint64_t seen;  /* documents, those of other ranks included */
    uint64_t given; /* tokens to predict in the documents so far */
    /* One pass. */
    int32_t *ids, *targets;
    float *nll;
    unsigned char *likeliest;
    int *cu, *who;
    pal_state **states;
} evaluation;

static size_t left(const evaluation *e, const reader *r) {
    const size_t document = r->doc.ids.count - 1 - r->at;
    if (!e->o->context) return document;
    const size_t window = r->window + (size_t)e->o->context - r->at;
    return window < document ? window : document;
}

void pal_perplexity_free(pal_perplexity *p) {
    pal_free(p->of_document);
    p->of_document = NULL;
    p->capacity = 0;
}

/* Bins for one more document. */
static pal_status add_document(const evaluation *e, pal_perplexity *sum, pal_error *err) {
    if (e->o->by_document) {
        void *block = sum->of_document;
        const size_t n = (size_t)sum->documents;
        const pal_status st = pal_grow(&block, &sum->capacity, n, n + 1, sizeof *sum->of_document, err);
        sum->of_document = block;
        if (st) return st;
        memset(sum->of_document[n], 0, sizeof *sum->of_document);
    }
    sum->documents++;
    return PAL_OK;
}

static pal_status next_document(evaluation *e, reader *r, pal_perplexity *sum, pal_error *err) {
    pal_status st;
    bool found, taken;
    do {
        r->doc.ids.count = 0;
        r->at = r->window = 0;
        if (e->prefix >= 0 && (st = pal_ids_append(&r->doc.ids, (uint32_t)e->prefix, err))) return st;
        if ((st = pal_eval_data_next(e->data, &r->doc, &found, err))) return st;
        if (!found) {
            e->ended = true;
            return PAL_OK;
        }
        const bool long_enough = r->doc.ids.count - (e->prefix >= 0) >= e->o->least,
                   mine = e->seen++ % (uint64_t)e->comm->size == (uint64_t)e->comm->rank;
        taken = long_enough && mine;
        sum->passed_over += !long_enough && mine;
        if (!taken) continue;
        r->index = (size_t)sum->documents;
        if ((st = add_document(e, sum, err))) return st;
        sum->bytes += r->doc.bytes;
        if (!r->doc.distances.count) sum->words += r->doc.words; /* answers are counted where they end */
    } while (!taken || r->doc.ids.count < 2);
    r->busy = true;
    const size_t all = r->doc.ids.count - 1, window = e->o->first_window ? (size_t)e->o->context : 0;
    e->given += window && window < all ? window : all;
    if (!r->state)
        return pal_state_new(&r->state, e->model, e->o->context, err); /* no sooner: states of attention are large */
    pal_state_reset(r->state);
    return PAL_OK;
}

/* Packs what fits into one pass; returns the number of sequences. */
static int pack(evaluation *e) {
    int n = 0, tokens = 0;
    for (int i = 0; i < e->count && tokens < e->piece; i++) {
        const reader *r = &e->readers[i];
        if (!r->busy) continue;
        size_t take = left(e, r);
        if (take > (size_t)(e->piece - tokens)) take = (size_t)(e->piece - tokens);
        for (size_t t = 0; t < take; t++) {
            e->ids[(size_t)tokens + t] = (int32_t)r->doc.ids.data[r->at + t];
            e->targets[(size_t)tokens + t] = (int32_t)r->doc.ids.data[r->at + t + 1];
        }
        e->cu[n] = tokens;
        e->who[n] = i;
        e->states[n++] = r->state;
        tokens += (int)take;
    }
    e->cu[n] = tokens;
    return n;
}

static void count(pal_perplexity *sum, size_t document, size_t position, double nll) {
    int bin = 0;
    while (bin + 1 < PAL_POSITION_BINS && position >> (bin + 1)) bin++;
    sum->bins[bin].count++;
    sum->bins[bin].nll += nll;
    if (sum->of_document) {
        sum->of_document[document][bin].count++;
        sum->of_document[document][bin].nll += nll;
    }
    if (bin >= sum->bin_count) sum->bin_count = bin + 1;
    if (position > sum->last) sum->last = position;
    sum->tokens++;
    sum->nll += nll;
}

/* An answer is a run of tokens with one distance. */
static void count_answer(pal_perplexity *sum, reader *r, const uint32_t *distances, bool likeliest) {
    const bool first = distances[r->at - 1] != distances[r->at],
               last = r->at + 1 == r->doc.ids.count || distances[r->at + 1] != distances[r->at];
    r->right = (first || r->right) && likeliest;
    sum->words += last;
    sum->right += last && r->right;
}

static pal_status run_pass(evaluation *e, pal_perplexity *sum, pal_error *err) {
    pal_loss loss;
    const int n = pack(e);
    const pal_batch batch = {
        .tokens = e->cu[n], .sequences = n, .ids = e->ids, .cu_seqlens = e->cu, .targets = e->targets
    };
    const bool answers = e->readers[e->who[0]].doc.distances.count > 0; /* all documents have them, or none */
    const pal_status st = pal_model_score(e->model, e->work, e->states, &batch, e->nll, answers ? e->likeliest : NULL,
                                          &loss, err);
    if (st) return st;
    for (int i = 0; i < n; i++) {
        reader *r = &e->readers[e->who[i]];
        const uint32_t *distances = r->doc.distances.count ? r->doc.distances.data : NULL;
        for (int t = e->cu[i]; t < e->cu[i + 1]; t++) {
            r->at++;
            const size_t position = distances ? distances[r->at] : r->at - r->window;
            if (position) count(sum, r->index, position, (double)e->nll[t]);
            if (distances && position) count_answer(sum, r, distances, e->likeliest[t]);
        }
        sum->read += (uint64_t)(e->cu[i + 1] - e->cu[i]);
        const bool full = e->o->context && r->at == r->window + (size_t)e->o->context;
        if (r->at + 1 == r->doc.ids.count || (full && e->o->first_window)) {
            r->busy = false;
        } else if (full) {
            r->window = r->at;
            pal_state_reset(r->state);
        }
    }
    return PAL_OK;
}

/* What all ranks have counted. Counts are exact in doubles. */
static pal_status sum_ranks(const pal_comm *c, pal_perplexity *p, pal_error *err) {
    double x[8 + 2 * PAL_POSITION_BINS] = { (double)p->documents, (double)p->tokens, (double)p->passed_over,
                                            (double)p->bytes,     (double)p->words,  p->nll,
                                            (double)p->read,      (double)p->right };
    pal_status st;
    if (c->size == 1) return PAL_OK;
    for (int b = 0; b < PAL_POSITION_BINS; b++) x[8 + 2 * b] = (double)p->bins[b].count, x[9 + 2 * b] = p->bins[b].nll;
    if ((st = pal_comm_meet(c, err)) || /* documents are of any length */
        (st = pal_comm_sum(c, x, sizeof x / sizeof x[0], err)))
        return st;
    p->documents = (uint64_t)x[0], p->tokens = (uint64_t)x[1], p->passed_over = (uint64_t)x[2];
    p->bytes = (uint64_t)x[3], p->words = (uint64_t)x[4], p->nll = x[5], p->read = (uint64_t)x[6];
    p->right = (uint64_t)x[7];
    for (int b = 0; b < PAL_POSITION_BINS; b++) {
        p->bins[b] = (pal_position_bin){ (uint64_t)x[8 + 2 * b], x[9 + 2 * b] };
        if (p->bins[b].count) p->bin_count = b + 1;
    }
    for (int r = 1; r < c->size && !st; r++) {
        uint64_t theirs = p->last;
        st = pal_comm_move(c, r, 0, &theirs, sizeof theirs, err);
        if (theirs > p->last) p->last = theirs;
    }
    return st ? st : pal_comm_broadcast(c, &p->last, sizeof p->last, err);
}

static pal_status prepare(evaluation *e, const pal_context *cx, pal_error *err) {
    const pal_perplexity_options *o = e->o;
    const pal_work_options work = { .tokens = e->piece, .sequences = e->count, .context = o->context, .loss = true };
    pal_status st;
    if ((st = pal_work_new(&e->work, e->model, cx, &work, err))) return st;
    const size_t tokens = (size_t)e->piece, readers = (size_t)e->count;
    e->readers = pal_alloc(readers, sizeof *e->readers);
    e->ids = pal_alloc(tokens, sizeof *e->ids);
    e->targets = pal_alloc(tokens, sizeof *e->targets);
    e->nll = pal_alloc(tokens, sizeof *e->nll);
    e->likeliest = pal_alloc(tokens, sizeof *e->likeliest);
    e->cu = pal_alloc(readers + 1, sizeof *e->cu);
    e->who = pal_alloc(readers, sizeof *e->who);
    e->states = pal_alloc(readers, sizeof *e->states);
    if (!e->readers || !e->ids || !e->targets || !e->nll || !e->likeliest || !e->cu || !e->who || !e->states)
        return pal_fail(err, PAL_E_MEMORY, "out of memory for an evaluation of %d tokens at a time", e->piece);
    return PAL_OK;
}

static void release(evaluation *e) {
    for (int i = 0; e->readers && i < e->count; i++) {
        pal_state_free(e->readers[i].state);
        pal_ids_free(&e->readers[i].doc.ids);
        pal_ids_free(&e->readers[i].doc.distances);
    }
    pal_work_free(e->work);
    pal_free(e->readers), pal_free(e->ids), pal_free(e->targets), pal_free(e->nll);
    pal_free(e->likeliest);
    pal_free(e->cu), pal_free(e->who), pal_free(e->states);
}

pal_status pal_perplexity_run(pal_perplexity *out, const pal_model *model, const pal_tokenizer *tok,
                              const pal_context *cx, pal_eval_data *data, const pal_perplexity_options *o,
                              pal_error *err) {
    const pal_model_config *c = pal_model_config_of(model);
    const double start = pal_seconds();
    pal_status st;
    *out = (pal_perplexity){ 0 };
    if (pal_tokenizer_size(tok) > (size_t)c->vocab)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "the tokenizer has %zu ids, the model's vocabulary %d: they do not belong together",
                        pal_tokenizer_size(tok), c->vocab);
    if (o->context < 0 || o->piece < 0 || o->documents < 0 || o->documents > MOST_DOCUMENTS)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "context %d, piece %d, documents %d: expected 0 or more, and at most %d documents", o->context,
                        o->piece, o->documents, MOST_DOCUMENTS);
    if (pal_model_grows(c) && !o->context)
        return pal_fail(err, PAL_E_ARGUMENT, "a model with attention needs a context: its memory grows with the text");
    if (o->by_document && pal_comm_or_alone(o->comm)->size > 1)
        return pal_fail(err, PAL_E_UNSUPPORTED, "losses of single documents are measured on one process, not on ranks");
    const int64_t bos = pal_tokenizer_bos(tok);
    evaluation e = { .model = model,
                     .data = data,
                     .o = o,
                     .comm = pal_comm_or_alone(o->comm),
                     .piece = o->piece ? o->piece : PIECE,
                     .count = o->documents ? o->documents : DOCUMENTS };
    e.prefix = o->no_prefix ? -1 : bos >= 0 ? bos : pal_tokenizer_eos(tok);
    if (e.count > e.piece) e.count = e.piece;
    st = prepare(&e, cx, err);
    while (!st) {
        bool busy = false;
        for (int i = 0; i < e.count && !st; i++) {
            if (!e.readers[i].busy && !e.ended) st = next_document(&e, &e.readers[i], out, err);
            busy |= e.readers[i].busy;
        }
        if (st || !busy) break;
        st = run_pass(&e, out, err);
        out->seconds = pal_seconds() - start;
        const double all = (double)e.given / pal_eval_data_done(data); /* NaN: unknown */
        if (!st && o->progress && !o->progress(o->user, (size_t)out->read, all > 0 && all < 1e18 ? (size_t)all : 0))
            st = pal_fail(err, PAL_STOPPED, "interrupted after %llu token%s", (unsigned long long)out->read,
                          out->read == 1 ? "" : "s");
    }
    release(&e);
    if (!st) st = sum_ranks(e.comm, out, err);
    if (st) pal_perplexity_free(out);
    if (!st && !out->tokens && out->passed_over)
        st = pal_fail(err, PAL_E_ARGUMENT, "no document has %zu tokens: %llu are shorter", o->least,
                      (unsigned long long)out->passed_over);
    if (!st && !out->tokens) st = pal_fail(err, PAL_E_ARGUMENT, "there is no token to predict: the data are empty");
    return st;
}
