/* SPDX-License-Identifier: MIT */
#include "train/task_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "format/json.h"
#include "model/state.h"
#include "palimpsa/state.h"
#include "train/dynamics.h"
#include "train/sample.h"

enum { OBSERVED = 4096 /* tokens that are looked into at an evaluation */ };

struct pal_text_task {
    const pal_context *cx;
    const pal_comm *comm;
    pal_text_options o;
    pal_share mine;        /* rows, and lanes, of every batch that are this rank's */
    int most;              /* rows of any rank */
    int tokens, sequences; /* most in this rank's part of a batch */
    int row_sequences;
    pal_loader *loader, *valid[PAL_SOURCES];
    int32_t *ids, *targets;
    int *cu_seqlens;
    pal_row *rows; /* (most + 1) */
    pal_observer *observer;
    /* Carried memories: each row of a batch is a lane that reads on from its own place. */
    pal_loader_position *lanes;  /* (batch) */
    pal_state **carried, **used; /* (batch) what each lane remembers; (sequences) of the current batch */
    const pal_state **before;    /* (sequences) what each begins with: its lane's, or NULL */
};

static pal_loader_options loader_options(const pal_text_options *o) {
    pal_loader_options l = { .sources = o->sources,
                             .row = o->row,
                             .context = o->carry ? 0 : o->context,
                             .order = o->carry ? PAL_ORDER_STORED : o->order,
                             .seed = o->seed,
                             .responses = o->responses };
    memcpy(l.source, o->source, sizeof l.source);
    return l;
}

static uint64_t subset_tokens(const pal_text_source *s) {
    return pal_shards_info_of(s->shards)->subset[s->subset].tokens;
}

int64_t pal_text_epoch_steps(const pal_text_options *o) {
    uint64_t tokens = 0;
    for (int i = 0; i < o->sources; i++) tokens += subset_tokens(&o->source[i]);
    const uint64_t updates = tokens / (uint64_t)o->row / (uint64_t)o->batch /
                             (uint64_t)o->accumulate; /* their product may be above 2^64 */
    return updates > 1 ? (int64_t)updates : 1;
}

static int64_t steps(void *self, int stage) {
    (void)stage;
    return ((const pal_text_task *)self)->o.steps;
}

static int64_t epoch(void *self, int stage) {
    (void)stage;
    return pal_text_epoch_steps(&((const pal_text_task *)self)->o);
}

/* The batch that is being put together. */
typedef struct {
    int rows, tokens, sequences;
} filling;

/* Reads the next row into the room after those that are there, to stay or to be overwritten. */
static pal_status read_row(pal_text_task *t, pal_loader *loader, filling *f, bool stays, pal_error *err) {
    pal_row *row = &t->rows[f->rows];
    int *ends = t->cu_seqlens + 1 + f->sequences;
    const pal_status st = pal_loader_next(loader, t->ids + f->tokens, t->targets + f->tokens, ends, row, err);
    if (st || !stays) return st;
    for (int i = 0; i < row->sequences; i++) ends[i] += f->tokens;
    f->rows++;
    f->tokens += row->tokens;
    f->sequences += row->sequences;
    return PAL_OK;
}

static pal_batch batch_of(const pal_text_task *t, const filling *f) {
    t->cu_seqlens[0] = 0;
    return (pal_batch){ .tokens = f->tokens,
                        .sequences = f->sequences,
                        .ids = t->ids,
                        .cu_seqlens = t->cu_seqlens,
                        .targets = t->targets };
}

/* The rows `kept` of the next `rows`, one after the other. All are read: the position in the data does not depend on
 * who trains on it. */
static pal_status fill(pal_text_task *t, pal_loader *loader, int rows, pal_share kept, pal_batch *out, pal_error *err) {
    filling f = { 0 };
    pal_status st = PAL_OK;
    for (int r = 0; r < rows && !st; r++)
        st = read_row(t, loader, &f, r >= kept.first && r < kept.first + kept.count, err);
    *out = batch_of(t, &f);
    return st;
}

/* The next row of each of this rank's lanes, which has its own place in the data. */
static pal_status fill_lanes(pal_text_task *t, pal_batch *out, pal_error *err) {
    filling f = { 0 };
    for (int r = t->mine.first; r < t->mine.first + t->mine.count; r++) {
        pal_status st = pal_loader_seek(t->loader, &t->lanes[r], err);
        if (!st) st = read_row(t, t->loader, &f, true, err);
        if (st) return st;
        t->lanes[r] = pal_loader_tell(t->loader);
    }
    *out = batch_of(t, &f);
    return PAL_OK;
}

static pal_status batch(void *self, int stage, int64_t step, int micro, pal_batch *out, pal_error *err) {
    (void)stage, (void)step, (void)micro;
    pal_text_task *t = self;
    return t->o.carry ? fill_lanes(t, out, err) : fill(t, t->loader, t->o.batch, t->mine, out, err);
}

static pal_status make_states(pal_text_task *t, const pal_model *model, pal_error *err) {
    pal_status st = PAL_OK;
    if (pal_model_grows(pal_model_config_of(model)))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "memories can be carried from row to row only where they have a fixed size; attention's grows");
    for (int i = 0; i < t->o.batch && !st; i++) st = pal_state_new(&t->carried[i], model, 0, err);
    for (int i = 0; i < t->sequences && !st; i++) st = pal_state_new(&t->used[i], model, 0, err);
    return st;
}

static pal_status prepare(void *self, const pal_model *model, size_t *bytes, pal_error *err) {
    pal_text_task *t = self;
    pal_status st = PAL_OK;
    *bytes = 0;
    if (t->o.carry) {
        st = make_states(t, model, err);
        *bytes += (size_t)(t->o.batch + t->sequences) * pal_state_bytes(model, 0);
    }
    if (!st && t->o.valid_sources) {
        const int tokens = t->tokens < OBSERVED ? t->tokens : OBSERVED;
        st = pal_observer_new(&t->observer, model, tokens, t->row_sequences < tokens ? t->row_sequences : tokens, err);
        if (!st) *bytes += pal_observer_bytes(t->observer);
    }
    return st;
}

/* Truncated back-propagation: a row's first sequence starts from what its lane remembers, as from a constant. */
static pal_status learn(void *self, pal_model *model, pal_work *work, const pal_batch *b, pal_loss *loss,
                        pal_error *err) {
    pal_text_task *t = self;
    pal_state **lane = t->carried + t->mine.first;
    for (int r = 0, n = 0; r < t->mine.count; r++)
        for (int i = 0; i < t->rows[r].sequences; i++, n++)
            t->before[n] = i == 0 && t->rows[r].continues && pal_state_position(lane[r]) ? lane[r] : NULL;
    pal_status st = pal_model_learn_carried(model, work, t->before, t->used, b, 1.0f, loss, err);
    for (int r = 0, n = 0; r < t->mine.count && !st; r++) {
        n += t->rows[r].sequences;
        if (pal_state_is_finite(t->used[n - 1])) st = pal_state_copy(lane[r], t->used[n - 1], err);
        else pal_state_reset(lane[r]); /* it would spoil every row up to the document's end: the next starts anew */
    }
    return st;
}

/* All of a validation source, or its first valid_tokens, in stored order. Ranks take turns with its batches. */
static pal_status evaluate_source(pal_text_task *t, int i, const pal_model *model, pal_work *work, double sums[2],
                                  pal_error *err) {
    static const pal_loader_position start = { .source = -1 };
    uint64_t left = subset_tokens(&t->o.valid[i]);
    pal_status st = pal_loader_seek(t->valid[i], &start, err);
    if (t->o.valid_tokens && left > (uint64_t)t->o.valid_tokens) left = (uint64_t)t->o.valid_tokens;
    for (int turn = 0; left && !st; turn = (turn + 1) % t->comm->size) {
        pal_batch b;
        pal_loss loss = { 0 };
        if (!turn && (st = pal_ask(&t->o.asking, err))) break;
        if ((st = fill(t, t->valid[i], t->most, (pal_share){ 0, t->most }, &b, err))) break;
        if ((uint64_t)b.tokens > left) { /* the last rows begin the subset once more */
            b.tokens = (int)left;
            b.sequences = 1;
            while (t->cu_seqlens[b.sequences] < b.tokens) b.sequences++;
            t->cu_seqlens[b.sequences] = b.tokens;
            t->targets[b.tokens - 1] = PAL_IGNORE;
        }
        if (turn == t->comm->rank) st = pal_model_loss(model, work, &b, &loss, NULL, err);
        sums[0] += loss.sum;
        sums[1] += (double)loss.count;
        left -= (uint64_t)b.tokens;
    }
    return st;
}

/* Continues the prompt; the same for the same weights and seed, whether the run was resumed or not. */
static pal_status sample(pal_text_task *t, const pal_model *model, json_t *metrics, pal_error *err) {
    pal_bytes text = { 0 };
    const pal_status st = pal_sample(&text, model, t->o.tokenizer, t->cx, t->o.sample, t->o.sample_tokens, t->o.seed,
                                     err);
    if (!st) pal_json_set(metrics, "sample", json_stringn(text.size ? (const char *)text.data : "", text.size));
    pal_bytes_free(&text);
    return st;
}

/* Windows, importance and so on over the first sequences of the batch that was filled last. */
static pal_status observe(pal_text_task *t, const pal_model *model, pal_work *work, json_t *metrics, pal_error *err) {
    int sequences = 1;
    const int most = t->tokens < OBSERVED ? t->tokens : OBSERVED;
    pal_batch b;
    pal_status st = fill(t, t->valid[0], 1, (pal_share){ 0, 1 }, &b, err);
    if (st) return st;
    while (sequences < b.sequences && t->cu_seqlens[sequences + 1] <= most) sequences++;
    if (t->cu_seqlens[sequences] > most) t->cu_seqlens[sequences] = most;
    b.sequences = sequences;
    b.tokens = t->cu_seqlens[sequences];
    return pal_dynamics_measure(model, work, t->observer, &b, metrics, err);
}

static pal_status evaluate(void *self, int stage, const pal_model *model, pal_work *work, json_t *metrics,
                           double *score, pal_error *err) {
    (void)stage;
    pal_text_task *t = self;
    double sums[2] = { 0 } /* of losses, and how many */, tokens = 0, bytes = 0, words = 0;
    pal_status st = PAL_OK;
    for (int i = 0; i < t->o.valid_sources && !st; i++) {
        const pal_text_source *s = &t->o.valid[i];
        const pal_shards_info *info = pal_shards_info_of(s->shards);
        tokens += (double)info->subset[s->subset].tokens;
        bytes += (double)info->subset[s->subset].bytes;
        words += (double)info->subset[s->subset].words;
        st = evaluate_source(t, i, model, work, sums, err);
    }
    if (!st) st = pal_comm_sum(t->comm, sums, 2, err);
    if (!st && t->o.valid_sources && pal_comm_is_root(t->comm)) {
        static const pal_loader_position start = { .source = -1 };
        st = pal_loader_seek(t->valid[0], &start, err);
        if (!st) st = observe(t, model, work, metrics, err);
    }
    if (st) return st;
    *score = NAN;
    if (sums[1] > 0) {
        const double loss = sums[0] / sums[1];
        *score = isfinite(loss) ? -loss : -INFINITY;
        pal_json_set(metrics, "valid_loss", pal_json_number(loss));
        pal_json_set(metrics, "token_perplexity", pal_json_number(exp(loss)));
        if (bytes > 0) pal_json_set(metrics, "byte_perplexity", pal_json_number(exp(loss * tokens / bytes)));
        if (words > 0) pal_json_set(metrics, "word_perplexity", pal_json_number(exp(loss * tokens / words)));
    }
    if (!pal_comm_is_root(t->comm)) return PAL_OK;
    if (t->o.also && (st = t->o.also(t->o.user, model, metrics, err))) return st;
    return t->o.sample ? sample(t, model, metrics, err) : PAL_OK;
}

/* Places in the data. */

static json_t *place_to_json(const pal_text_task *t, const pal_loader_position *p) {
    json_t *of = json_array();
    for (int i = 0; i < t->o.sources; i++)
        pal_json_append(of, json_pack("[I, I, I]", (json_int_t)p->of[i].epoch, (json_int_t)p->of[i].unit,
                                      (json_int_t)p->of[i].tokens));
    return json_pack("{s:i, s:I, s:o}", "source", p->source, "offset", (json_int_t)p->offset, "sources", of);
}

static bool place_from_json(const pal_text_task *t, const json_t *o, pal_loader_position *p) {
    json_int_t source = -1, offset = -1;
    json_t *of = NULL;
    if (json_unpack((json_t *)o, "{s:I, s:I, s:o}", "source", &source, "offset", &offset, "sources", &of) != 0 ||
        source < -1 || source >= t->o.sources || offset < 0)
        return false;
    *p = (pal_loader_position){ .source = (int)source };
    p->offset = (uint64_t)offset;
    if (json_array_size(of) != (size_t)t->o.sources) return false;
    for (int i = 0; i < t->o.sources; i++) {
        json_int_t n[3];
        if (json_unpack(json_array_get(of, (size_t)i), "[I, I, I]", &n[0], &n[1], &n[2]) != 0 || n[0] < 0 || n[1] < 0 ||
            n[2] < 0)
            return false;
        p->of[i].epoch = (uint64_t)n[0], p->of[i].unit = (uint64_t)n[1], p->of[i].tokens = (uint64_t)n[2];
    }
    return true;
}

/* What the lanes of other ranks have come to, to rank 0, or from it. */
static pal_status move_lanes(pal_text_task *t, bool to_root, pal_error *err) {
    pal_status st = PAL_OK;
    for (int r = 0, owner = 0; t->o.carry && r < t->o.batch && !st; r++) {
        pal_state *s = t->carried[r];
        const pal_share of_owner = pal_comm_share_of(t->comm, owner, t->o.batch);
        if (r == of_owner.first + of_owner.count) owner++;
        const int from = to_root ? owner : 0, to = to_root ? 0 : owner;
        st = pal_comm_move(t->comm, from, to, &t->lanes[r], sizeof t->lanes[r], err);
        if (!st) st = pal_comm_move(t->comm, from, to, &s->position, sizeof s->position, err);
        if (!st) st = pal_comm_move(t->comm, from, to, s->data, s->fixed * sizeof *s->data, err);
    }
    return st;
}

static pal_status gather(void *self, pal_error *err) { return move_lanes(self, true, err); }

static json_t *position(void *self) {
    const pal_text_task *t = self;
    if (!t->o.carry) {
        const pal_loader_position at = pal_loader_tell(t->loader);
        return place_to_json(t, &at);
    }
    json_t *lanes = json_array();
    for (int r = 0; r < t->o.batch; r++) pal_json_append(lanes, place_to_json(t, &t->lanes[r]));
    return json_pack("{s:o}", "lanes", lanes);
}

static pal_status lane_path(char path[4096], const char *folder, int lane, pal_error *err) {
    return pal_path(path, 4096, err, "%s/memory-%03d.state", folder, lane);
}

static pal_status resume(void *self, const json_t *place, const char *folder, pal_error *err) {
    pal_text_task *t = self;
    pal_loader_position at;
    pal_status st = PAL_OK;
    if (!t->o.carry) {
        if (!place_from_json(t, place, &at))
            return pal_fail(err, PAL_E_FORMAT, "%s/trainer.json: 'data' does not say where in the data the run was",
                            folder);
        return pal_loader_seek(t->loader, &at, err);
    }
    const json_t *lanes = json_object_get(place, "lanes");
    if (json_array_size(lanes) != (size_t)t->o.batch)
        return pal_fail(err, PAL_E_FORMAT, "%s/trainer.json: 'data' does not have %d lanes", folder, t->o.batch);
    for (int r = 0; r < t->o.batch && !st; r++) {
        char path[4096];
        if (!place_from_json(t, json_array_get(lanes, (size_t)r), &t->lanes[r]))
            return pal_fail(err, PAL_E_FORMAT, "%s/trainer.json: 'data' does not say where in the data lane %d was",
                            folder, r);
        if (pal_comm_is_root(t->comm) && !(st = lane_path(path, folder, r, err)))
            st = pal_state_load(t->carried[r], path, err);
    }
    return st ? st : move_lanes(t, false, err);
}

static pal_status save(void *self, const char *folder, bool resumable, pal_error *err) {
    const pal_text_task *t = self;
    pal_status st = t->o.tokenizer ? pal_tokenizer_save(t->o.tokenizer, folder, err) : PAL_OK;
    for (int r = 0; resumable && t->carried && r < t->o.batch && !st; r++) {
        char path[4096];
        if (!(st = lane_path(path, folder, r, err))) st = pal_state_save(t->carried[r], path, err);
    }
    return st;
}

/* Lane r of n begins n-th parts into the data. */
static pal_status place_lanes(pal_text_task *t, pal_error *err) {
    const pal_text_source *s = &t->o.source[0];
    const uint64_t all = subset_tokens(s);
    uint64_t before = 0, d = 0;
    pal_status st;
    if ((st = pal_alloc_named((void **)&t->lanes, (size_t)t->o.batch, sizeof *t->lanes, "a batch", err))) return st;
    if ((st = pal_alloc_named((void **)&t->carried, (size_t)t->o.batch, sizeof *t->carried, "a batch", err))) return st;
    if ((st = pal_alloc_named((void **)&t->used, (size_t)t->sequences, sizeof *t->used, "a batch", err))) return st;
    if ((st = pal_alloc_named((void **)&t->before, (size_t)t->sequences, sizeof *t->before, "a batch", err))) return st;
    for (int r = 0; r < t->o.batch; r++) {
        const uint64_t at = all / (uint64_t)t->o.batch * (uint64_t)r;
        for (;; d++) {
            const uint64_t tokens = pal_shards_document(s->shards, s->subset, d).tokens;
            if (at < before + tokens) break;
            before += tokens;
        }
        t->lanes[r] = (pal_loader_position){ .source = at == before ? -1 : 0, .offset = at - before };
        t->lanes[r].of[0].unit = d;
    }
    return PAL_OK;
}

void pal_text_task_free(pal_text_task *t) {
    if (!t) return;
    pal_loader_free(t->loader);
    for (int i = 0; i < PAL_SOURCES; i++) pal_loader_free(t->valid[i]);
    for (int i = 0; t->carried && i < t->o.batch; i++) pal_state_free(t->carried[i]);
    for (int i = 0; t->used && i < t->sequences; i++) pal_state_free(t->used[i]);
    pal_free(t->carried), pal_free(t->used), pal_free(t->before), pal_free(t->lanes);
    pal_free(t->ids), pal_free(t->targets), pal_free(t->cu_seqlens), pal_free(t->rows);
    pal_observer_free(t->observer);
    pal_free(t);
}

/* Sequences that a row has room for: four times what is usual. A row of shorter documents ends early. */
static int row_sequences(const pal_text_options *o) {
    uint64_t tokens = 0, documents = 0;
    for (int i = 0; i < o->sources + o->valid_sources; i++) {
        const pal_text_source *s = i < o->sources ? &o->source[i] : &o->valid[i - o->sources];
        tokens += subset_tokens(s);
        documents += pal_shards_info_of(s->shards)->subset[s->subset].documents;
    }
    double usual = (double)tokens / (double)documents;
    if (o->context && !o->carry && usual > o->context) usual = o->context;
    const double room = 4.0 * o->row / usual + 16;
    return room < o->row ? (int)room : o->row;
}

pal_status pal_text_task_new(pal_text_task **out, const pal_context *cx, const pal_text_options *options,
                             pal_task *task, pal_error *err) {
    pal_text_task *t;
    pal_status st;
    const pal_text_options *o = options;
    *out = NULL;
    if (o->batch < 1 || o->row < 1)
        return pal_fail(err, PAL_E_ARGUMENT, "a batch of %d rows of %d tokens: expected at least 1", o->batch, o->row);
    if ((int64_t)o->batch * o->row > (1 << 28))
        return pal_fail(err, PAL_E_ARGUMENT, "a batch of %d x %d tokens is too large", o->batch, o->row);
    if (o->batch < pal_comm_or_alone(o->comm)->size)
        return pal_fail(err, PAL_E_ARGUMENT, "a batch of %d rows for %d ranks: expected at least one for each",
                        o->batch, o->comm->size);
    if (o->steps < 1) return pal_fail(err, PAL_E_ARGUMENT, "%lld updates, expected at least 1", (long long)o->steps);
    if (o->carry && o->sources > 1)
        return pal_fail(err, PAL_E_ARGUMENT, "memories can be carried through one source of data, found %d",
                        o->sources);
    if (o->sample) { /* known now, not when the first evaluation comes */
        pal_ids prompt = { 0 };
        st = pal_sample_prompt(o->tokenizer, o->sample, &prompt, err);
        pal_ids_free(&prompt);
        if (st) return st;
    }
    if ((st = pal_alloc_named((void **)&t, 1, sizeof *t, "the task", err))) return st;
    t->cx = cx;
    t->comm = pal_comm_or_alone(o->comm);
    t->o = *o;
    t->mine = pal_comm_share(t->comm, o->batch);
    t->most = pal_comm_largest_share(t->comm, o->batch);
    t->row_sequences = row_sequences(o);
    t->tokens = t->most * o->row;
    t->sequences = t->most * t->row_sequences;
    pal_loader_options l = loader_options(o);
    l.sequences = t->row_sequences;
    st = pal_loader_new(&t->loader, &l, err);
    for (int i = 0; i < o->valid_sources && !st; i++) {
        l = (pal_loader_options){ .sources = 1,
                                  .source = { o->valid[i] },
                                  .row = o->row,
                                  .context = o->context,
                                  .sequences = t->row_sequences,
                                  .documents_end = true,
                                  .responses = o->responses };
        st = pal_loader_new(&t->valid[i], &l, err);
    }
    const size_t n = (size_t)t->tokens + (size_t)o->row; /* and one row that another rank trains on */
    if (!st) st = pal_alloc_named((void **)&t->ids, n, sizeof *t->ids, "a batch", err);
    if (!st) st = pal_alloc_named((void **)&t->targets, n, sizeof *t->targets, "a batch", err);
    if (!st)
        st = pal_alloc_named((void **)&t->cu_seqlens, (size_t)(t->sequences + t->row_sequences) + 1,
                             sizeof *t->cu_seqlens, "a batch", err);
    if (!st) st = pal_alloc_named((void **)&t->rows, (size_t)t->most + 1, sizeof *t->rows, "a batch", err);
    if (!st && o->carry) st = place_lanes(t, err);
    if (st) {
        pal_text_task_free(t);
        return st;
    }
    *task = (pal_task){ .self = t,
                        .stages = 1,
                        .tokens = t->tokens,
                        .sequences = t->sequences,
                        .steps = steps,
                        .epoch = epoch,
                        .batch = batch,
                        .learn = o->carry ? learn : NULL,
                        .evaluate = evaluate,
                        .prepare = prepare,
                        .gather = gather,
                        .position = position,
                        .resume = resume,
                        .save = save };
    *out = t;
    return PAL_OK;
}
