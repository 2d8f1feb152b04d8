/* SPDX-License-Identifier: MIT */
#include "data/loader.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "data/permutation.h"
#include "palimpsa/batch.h"

enum { STRIDE = 256 }; /* documents between entries of the index of pieces */

/* A piece of a document. */
typedef struct {
    pal_document document;
    uint64_t begin, end;
    uint64_t trained; /* tokens before this one are not targets */
} unit;

typedef struct {
    pal_text_source from;
    uint64_t documents;
    uint64_t units; /* in the current epoch */
    uint64_t
        phase; /* PAL_ORDER_SEQUENCES: where the first cut of a long document lies in this epoch; 0: at `context` */
    uint64_t indexed; /* epoch that the index is of, + 1 */
    uint64_t *index;  /* PAL_ORDER_SEQUENCES: pieces before document STRIDE*i */
} source;

struct pal_loader {
    pal_loader_options o;
    source s[PAL_SOURCES];
    pal_loader_position at;
    unit now;       /* of source at.source */
    bool continued; /* the last row ended inside a document */
};

static uint64_t key_of(const pal_loader *l, int i, uint64_t epoch) {
    return pal_mix64(pal_mix64(l->o.seed + 0x9e3779b97f4a7c15u * (uint64_t)(i + 1)) + epoch);
}

static uint64_t pieces(const pal_loader *l, const source *s, uint64_t tokens) {
    const uint64_t context = (uint64_t)l->o.context;
    if (tokens <= context) return 1;
    return (s->phase > 0) + (tokens - s->phase + context - 1) / context;
}

/* Cuts of this epoch, and how many pieces they make. */
static void begin_epoch(pal_loader *l, int i) {
    source *s = &l->s[i];
    const uint64_t epoch = l->at.of[i].epoch;
    if (s->indexed == epoch + 1) return;
    s->indexed = epoch + 1;
    s->units = s->documents;
    if (!s->index) return;
    s->phase = pal_mix64(key_of(l, i, epoch)) % (uint64_t)l->o.context;
    s->units = 0;
    for (uint64_t d = 0; d < s->documents; d++) {
        if (d % STRIDE == 0) s->index[d / STRIDE] = s->units;
        s->units += pieces(l, s, pal_shards_document(s->from.shards, s->from.subset, d).tokens);
    }
}

static unit find_unit(const pal_loader *l, int i, uint64_t number) {
    const source *s = &l->s[i];
    unit u = { 0 };
    if (l->o.order != PAL_ORDER_STORED) number = pal_permute(number, s->units, key_of(l, i, l->at.of[i].epoch));
    if (!s->index) {
        u.document = pal_shards_document(s->from.shards, s->from.subset, number);
        u.end = u.document.tokens;
        u.trained = l->o.responses ? u.document.response : 0;
        return u;
    }
    uint64_t low = 0, high = (s->documents + STRIDE - 1) / STRIDE; /* the entry is in low .. high-1 */
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (s->index[middle] <= number) low = middle;
        else high = middle;
    }
    uint64_t left = number - s->index[low];
    for (uint64_t d = low * STRIDE;; d++) {
        u.document = pal_shards_document(s->from.shards, s->from.subset, d);
        const uint64_t count = pieces(l, s, u.document.tokens), context = (uint64_t)l->o.context;
        if (left >= count) {
            left -= count;
            continue;
        }
        u.end = u.document.tokens;
        u.trained = l->o.responses ? u.document.response : 0;
        if (count > 1) {
            const uint64_t first = s->phase ? s->phase : context; /* end of piece 0 */
            u.begin = left ? first + (left - 1) * context : 0;
            if (left + 1 < count) u.end = first + left * context;
        }
        return u;
    }
}

/* The source that lags its share most. */
static int next_source(const pal_loader *l) {
    int best = 0;
    for (int i = 1; i < l->o.sources; i++)
        if ((double)l->at.of[i].tokens / l->s[i].from.weight < (double)l->at.of[best].tokens / l->s[best].from.weight)
            best = i;
    return best;
}

static void open_unit(pal_loader *l) {
    l->at.source = next_source(l);
    l->at.offset = 0;
    begin_epoch(l, l->at.source);
    l->now = find_unit(l, l->at.source, l->at.of[l->at.source].unit);
}

static void close_unit(pal_loader *l) {
    const int i = l->at.source;
    if (++l->at.of[i].unit == l->s[i].units) {
        l->at.of[i].unit = 0;
        l->at.of[i].epoch++;
    }
    l->at.source = -1;
    l->at.offset = 0;
}

pal_status pal_loader_next(pal_loader *l, int32_t *ids, int32_t *targets, int *ends, pal_row *row, pal_error *err) {
    int filled = 0, sequences = 0;
    const bool pieces_alone = l->o.order == PAL_ORDER_SEQUENCES || l->o.documents_end || l->o.responses;
    row->continues = l->continued;
    while (filled < l->o.row && sequences < l->o.sequences) {
        if (l->at.source < 0) open_unit(l);
        const int i = l->at.source;
        const pal_document *d = &l->now.document;
        const uint64_t from = l->now.begin + l->at.offset, left = l->now.end - from;
        const pal_shards_info *info = pal_shards_info_of(l->s[i].from.shards);
        uint64_t take = (uint64_t)(l->o.row - filled);
        if (take > left) take = left;
        if (l->o.context) {
            const uint64_t until = (uint64_t)l->o.context - l->at.offset % (uint64_t)l->o.context;
            if (take > until) take = until;
        }
        bool good = pal_document_copy(d, from, (size_t)take, info->vocabulary, ids + filled);
        if (filled && targets[filled - 1] == PAL_IGNORE && !pieces_alone) targets[filled - 1] = ids[filled];
        for (uint64_t k = 0; k + 1 < take; k++) targets[filled + (int)k] = ids[filled + (int)k + 1];
        filled += (int)take;
        targets[filled - 1] = PAL_IGNORE;
        if (from + take < d->tokens)
            good &= pal_document_copy(d, from + take, 1, info->vocabulary, &targets[filled - 1]);
        for (uint64_t k = 0; k < take && from + k + 1 < l->now.trained; k++)
            targets[filled - (int)take + (int)k] = PAL_IGNORE;
        if (!good)
            return pal_fail(err, PAL_E_FORMAT,
                            "%s: a token is not below %" PRIu32 ", the size of the vocabulary: the shards are damaged",
                            info->path, info->vocabulary);
        ends[sequences++] = filled;
        l->at.offset += take;
        l->at.of[i].tokens += take;
        if (take == left) close_unit(l);
    }
    l->continued = l->at.source >= 0 && l->at.offset > 0;
    *row = (pal_row){ .tokens = filled, .sequences = sequences, .continues = row->continues };
    return PAL_OK;
}

uint64_t pal_loader_tokens(const pal_loader *l) {
    uint64_t tokens = 0;
    for (int i = 0; i < l->o.sources; i++)
        tokens += pal_shards_info_of(l->s[i].from.shards)->subset[l->s[i].from.subset].tokens;
    return tokens;
}

pal_loader_position pal_loader_tell(const pal_loader *l) { return l->at; }

pal_status pal_loader_seek(pal_loader *l, const pal_loader_position *p, pal_error *err) {
    const pal_loader_position before = l->at;
    l->at = *p;
    bool good = p->source >= -1 && p->source < l->o.sources && (p->source >= 0 || p->offset == 0);
    for (int i = 0; i < l->o.sources && good; i++) {
        begin_epoch(l, i);
        good = p->of[i].unit < l->s[i].units;
    }
    if (good && p->source >= 0) {
        l->now = find_unit(l, p->source, p->of[p->source].unit);
        good = p->offset < l->now.end - l->now.begin;
    }
    if (!good) {
        l->at = before;
        for (int i = 0; i < l->o.sources; i++) begin_epoch(l, i);
        return pal_fail(err, PAL_E_FORMAT, "the recorded place in the data does not exist in it");
    }
    l->continued = p->source >= 0 && p->offset > 0;
    return PAL_OK;
}

void pal_loader_free(pal_loader *l) {
    if (!l) return;
    for (int i = 0; i < l->o.sources; i++) pal_free(l->s[i].index);
    pal_free(l);
}

pal_status pal_loader_new(pal_loader **out, const pal_loader_options *o, pal_error *err) {
    pal_loader *l;
    pal_status st;
    *out = NULL;
    if (o->sources < 1 || o->sources > PAL_SOURCES)
        return pal_fail(err, PAL_E_ARGUMENT, "%d sources of data, expected 1 to %d", o->sources, PAL_SOURCES);
    if (o->row < 1 || o->context < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "rows of %d tokens with a context of %d: expected at least 1", o->row,
                        o->context);
    for (int i = 0; i < o->sources; i++) {
        const pal_shards_info *info = pal_shards_info_of(o->source[i].shards);
        if (!(o->source[i].weight > 0) || !isfinite(o->source[i].weight))
            return pal_fail(err, PAL_E_ARGUMENT, "%s: its weight is %g, expected a number above 0", info->path,
                            o->source[i].weight);
        if (!info->subset[o->source[i].subset].documents)
            return pal_fail(err, PAL_E_ARGUMENT, "%s: nothing in it was held back for validation", info->path);
    }
    if ((st = pal_alloc_named((void **)&l, 1, sizeof *l, "a loader", err))) return st;
    l->o = *o;
    l->at.source = -1;
    if (o->sequences < 1 || o->sequences > o->row) l->o.sequences = o->row;
    for (int i = 0; i < o->sources; i++) {
        source *s = &l->s[i];
        s->from = o->source[i];
        s->documents = pal_shards_info_of(s->from.shards)->subset[s->from.subset].documents;
        s->units = s->documents;
        if (o->order == PAL_ORDER_SEQUENCES && o->context &&
            (st = pal_alloc_named((void **)&s->index, (size_t)((s->documents + STRIDE - 1) / STRIDE), sizeof *s->index,
                                  "an index of documents", err))) {
            pal_loader_free(l);
            return st;
        }
        begin_epoch(l, i);
    }
    *out = l;
    return PAL_OK;
}
