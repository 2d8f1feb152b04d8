/* SPDX-License-Identifier: MIT */
/* Scoring. Nodes of the forest of prefixes run in passes. A node that has read its tokens keeps its memory for its
 * children. Most of them are tips, which no request continues: they borrow the memory, which nothing changes; a root
 * that is a tip borrows the empty one. Other children take a copy, and the last of all takes the memory itself.
 *
 * How many memories a tree can hold at once is known (pal_prefix.need), and it is begun only when that many can be had.
 * A tree that needs more than there are is begun branch by branch in the same way. Should that come to a halt, the
 * youngest waiting memory is given up, and the branches after it are read from the start: slower, never wrong. */
#include "palimpsa/score.h"

#include <string.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "eval/prefixes.h"
#include "model/state.h"

enum { TOKENS = 1024, LEAST_STATES = 4, MOST_STATES = 64, MOST_SEQUENCES = 1024 };
static const size_t memory_default = (size_t)1 << 30;

typedef struct {
    pal_state *state;
    size_t at;   /* the next position to read */
    int waiting; /* children that have not begun, or borrow and have not ended */
    bool begun;
    bool alone; /* its parent's memory was given up: it reads from position 0 */
} progress;

/* A memory that a node is about to read into. */
typedef struct {
    int node;
    int slot;              /* of `states`, where it has to be made; -1: it is there */
    const pal_state *from; /* whose contents it begins with; NULL: empty */
    pal_error why;         /* it could not be made */
} fresh;

struct pal_scorer {
    const pal_model *model;
    const pal_context *cx;
    pal_scorer_options o;
    pal_work *work;
    bool lends;         /* memories can be borrowed */
    int sequences;      /* of a pass, at most */
    pal_state *empty;   /* what roots borrow, if any do */
    pal_state **states; /* (o.states), made when first needed */
    int made, free_count;
    pal_state **free_states; /* (o.states) */
    fresh *fresh;            /* (o.states) of the next pass */
    int fresh_count;
    pal_score_counts counts;
    /* One pass. */
    int32_t *ids; /* (o.tokens) */
    int *cu;             /* (sequences + 1) */
    int *running;        /* (sequences) nodes of the last pass that are not finished, then those that have begun */
    pal_state **in_pass; /* (sequences) */
    bool *borrowed;      /* (sequences) */
    int running_count;
    /* One call. */
    pal_prefixes tree;
    progress *nodes; /* (tree.count) */
    int *ready;      /* (tree.count) a stack of children that may begin */
    size_t ready_count, next_root;
    size_t begun; /* tokens that trees which have begun have still to read */
    int reserved;
    size_t rows;
    int *row_at, *row_node; /* (o.tokens + tree.count): position in the batch; whose requests it belongs to */
    size_t *row_token;      /* the position that it predicts */
    int32_t *row_target;
    float *row_nll;
    unsigned char *row_correct;
};

static void drop_call(pal_scorer *s) {
    pal_free(s->nodes), pal_free(s->ready), pal_free(s->row_at), pal_free(s->row_node), pal_free(s->row_token);
    pal_free(s->row_target), pal_free(s->row_nll), pal_free(s->row_correct);
    s->nodes = NULL;
    s->ready = s->row_at = s->row_node = NULL;
    s->row_token = NULL;
    s->row_target = NULL;
    s->row_nll = NULL;
    s->row_correct = NULL;
}

void pal_scorer_free(pal_scorer *s) {
    if (!s) return;
    drop_call(s);
    pal_prefixes_free(&s->tree);
    for (int i = 0; i < s->made; i++) pal_state_free(s->states[i]);
    pal_state_free(s->empty);
    pal_work_free(s->work);
    pal_free(s->states), pal_free(s->free_states), pal_free(s->ids), pal_free(s->cu), pal_free(s->running);
    pal_free(s->in_pass), pal_free(s->borrowed), pal_free(s->fresh);
    pal_free(s);
}

static pal_status prepare(pal_scorer *s, const pal_context *cx, pal_error *err) {
    s->lends = !pal_model_grows(pal_model_config_of(s->model));
    s->sequences = s->lends ? MOST_SEQUENCES : s->o.states;
    if (s->sequences > s->o.tokens) s->sequences = s->o.tokens;
    const size_t tokens = (size_t)s->o.tokens, states = (size_t)s->o.states, sequences = (size_t)s->sequences;
    const pal_work_options work = {
        .tokens = s->o.tokens, .sequences = s->sequences, .context = s->o.context, .loss = true
    };
    pal_status st = pal_work_new(&s->work, s->model, cx, &work, err);
    if (!st && s->lends) st = pal_state_new(&s->empty, s->model, 0, err);
    if (st) return st;
    s->states = pal_alloc(states, sizeof *s->states);
    s->free_states = pal_alloc(states, sizeof *s->free_states);
    s->fresh = pal_alloc(states, sizeof *s->fresh);
    s->ids = pal_alloc(tokens, sizeof *s->ids);
    s->cu = pal_alloc(sequences + 1, sizeof *s->cu);
    s->running = pal_alloc(sequences, sizeof *s->running);
    s->in_pass = pal_alloc(sequences, sizeof *s->in_pass);
    s->borrowed = pal_alloc(sequences, sizeof *s->borrowed);
    if (!s->states || !s->free_states || !s->fresh || !s->ids || !s->cu || !s->running || !s->in_pass || !s->borrowed)
        return pal_fail(err, PAL_E_MEMORY, "out of memory for scoring %d tokens at a time", s->o.tokens);
    return PAL_OK;
}

pal_status pal_scorer_new(pal_scorer **out, const pal_model *model, const pal_context *cx,
                          const pal_scorer_options *options, pal_error *err) {
    pal_status st;
    void *block;
    pal_scorer_options o = *options;
    *out = NULL;
    if (o.tokens < 0 || o.states < 0 || o.context < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "tokens %d, states %d, context %d: expected 0 or more", o.tokens, o.states,
                        o.context);
    if (pal_model_grows(pal_model_config_of(model)) && !o.context)
        return pal_fail(err, PAL_E_ARGUMENT, "a model with attention needs a context: its memory grows with the text");
    if (!o.tokens) o.tokens = TOKENS;
    if (!o.states) {
        const size_t fit = (o.memory ? o.memory : memory_default) / (pal_state_bytes(model, o.context) + 1);
        o.states = fit < LEAST_STATES ? LEAST_STATES : fit > MOST_STATES ? MOST_STATES : (int)fit;
    }
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_scorer), "a scorer", err))) return st;
    pal_scorer *s = block;
    s->model = model;
    s->cx = cx;
    s->o = o;
    if ((st = prepare(s, cx, err))) {
        pal_scorer_free(s);
        return st;
    }
    *out = s;
    return PAL_OK;
}

pal_score_counts pal_scorer_counts(const pal_scorer *s) { return s->counts; }

static pal_status check(const pal_scorer *s, const pal_score_request *requests, size_t count, pal_error *err) {
    const pal_model_config *c = pal_model_config_of(s->model);
    const size_t most = pal_model_grows(c) ? (size_t)s->o.context : SIZE_MAX - 1;
    for (size_t i = 0; i < count; i++) {
        const pal_score_request *r = &requests[i];
        if (!r->ids || !r->scored || r->scored >= r->count)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "request %zu scores %zu of %zu tokens: expected at least one, and one before them", i,
                            r->scored, r->count);
        if (r->count - 1 > most)
            return pal_fail(err, PAL_E_ARGUMENT, "request %zu reads %zu tokens, attention was given room for %zu", i,
                            r->count - 1, most);
        for (size_t t = 0; t < r->count; t++)
            if (r->ids[t] >= (uint32_t)c->vocab)
                return pal_fail(err, PAL_E_ARGUMENT, "request %zu: token %zu is id %u, the vocabulary has 0 to %d", i,
                                t, r->ids[t], c->vocab - 1);
    }
    return PAL_OK;
}

static pal_status begin_call(pal_scorer *s, pal_error *err) {
    const size_t nodes = s->tree.count, rows = nodes + (size_t)s->o.tokens;
    s->nodes = pal_alloc(nodes, sizeof *s->nodes);
    s->ready = pal_alloc(nodes, sizeof *s->ready);
    s->row_at = pal_alloc(rows, sizeof *s->row_at);
    s->row_node = pal_alloc(rows, sizeof *s->row_node);
    s->row_token = pal_alloc(rows, sizeof *s->row_token);
    s->row_target = pal_alloc(rows, sizeof *s->row_target);
    s->row_nll = pal_alloc(rows, sizeof *s->row_nll);
    s->row_correct = pal_alloc(rows, sizeof *s->row_correct);
    if (!s->nodes || !s->ready || !s->row_at || !s->row_node || !s->row_token || !s->row_target || !s->row_nll ||
        !s->row_correct)
        return pal_fail(err, PAL_E_MEMORY, "out of memory for %zu prefixes of requests", nodes);
    s->ready_count = s->next_root = s->begun = 0;
    s->reserved = s->running_count = 0;
    s->free_count = s->fresh_count = 0;
    for (int i = 0; i < s->made; i++) s->free_states[s->free_count++] = s->states[i];
    return PAL_OK;
}

/* A separate memory for a node, filled by fill_memories before the pass. */
static void take_state(pal_scorer *s, int node, const pal_state *from) {
    fresh *f = &s->fresh[s->fresh_count++];
    *f = (fresh){ .node = node, .slot = -1, .from = from };
    if (s->free_count) s->nodes[node].state = s->free_states[--s->free_count];
    else f->slot = s->made++;
}

static void fill_memory(void *arg, size_t index, int thread) {
    (void)thread;
    pal_scorer *s = arg;
    fresh *f = &s->fresh[index];
    pal_state **state = &s->nodes[f->node].state;
    if (f->slot >= 0) {
        if (pal_state_new(&s->states[f->slot], s->model, s->o.context, &f->why)) return;
        *state = s->states[f->slot];
    } else if (!f->from) pal_state_reset(*state);
    if (f->from) pal_state_copy(*state, f->from, &f->why);
}

/* Memories are large: several threads make and fill them. */
static pal_status fill_memories(pal_scorer *s, pal_error *err) {
    pal_status st = PAL_OK;
    pal_parallel_for(s->cx, (size_t)s->fresh_count, fill_memory, s);
    for (int i = 0; i < s->fresh_count && !st; i++)
        if ((st = s->fresh[i].why.status)) pal_fail(err, st, "%s", s->fresh[i].why.text);
    s->fresh_count = 0;
    int made = 0;
    for (int i = 0; i < s->made; i++)
        if (s->states[i]) s->states[made++] = s->states[i];
    s->made = made;
    return st;
}

static bool state_left(const pal_scorer *s) { return s->free_count || s->made < s->o.states; }

/* A tree that needs more memories than there are, less one for the memory it branches from. */
static bool is_big(const pal_scorer *s, const pal_prefix *p) { return p->need >= s->o.states; }

static bool borrows(const pal_scorer *s, int node) { return s->tree.nodes[node].borrows && !s->nodes[node].alone; }

/* A tree has set one aside for a memory that is borrowed in addition to those that continue it. */
static bool lends_and_passes_on(const pal_scorer *s, int node) {
    const pal_prefix *p = &s->tree.nodes[node];
    bool lends = false, passes = false;
    for (int c = p->child; c < p->child + p->children; c++)
        lends |= s->tree.nodes[c].borrows, passes |= s->tree.nodes[c].need > 0;
    return lends && passes;
}

/* What beginning a node sets aside: nothing where the tree above it has set it aside. */
static int to_reserve(const pal_scorer *s, int node) {
    const pal_prefix *p = &s->tree.nodes[node];
    if (borrows(s, node)) return 0;
    if (p->parent >= 0 && !is_big(s, &s->tree.nodes[p->parent]) && !s->nodes[node].alone) return 0;
    return is_big(s, p) ? 1 : p->need;
}

static bool may_begin(const pal_scorer *s, int node, bool forced) {
    if (borrows(s, node)) return true;
    const int parent = s->nodes[node].alone ? -1 : s->tree.nodes[node].parent;
    const bool heir = parent >= 0 && s->nodes[parent].waiting == 1;
    if (!heir && !state_left(s)) return false;
    return forced || s->reserved + to_reserve(s, node) - (heir && is_big(s, &s->tree.nodes[parent])) <= s->o.states;
}

static void begin_node(pal_scorer *s, int node) {
    const pal_prefix *p = &s->tree.nodes[node];
    progress *g = &s->nodes[node];
    s->reserved += to_reserve(s, node);
    g->begun = true;
    g->at = g->alone ? 0 : p->begin;
    if (borrows(s, node)) {
        g->state = p->parent < 0 ? s->empty : s->nodes[p->parent].state;
    } else if (p->parent < 0 || g->alone) {
        take_state(s, node, NULL);
    } else {
        progress *parent = &s->nodes[p->parent];
        if (--parent->waiting == 0) {
            g->state = parent->state;
            parent->state = NULL;
            if (is_big(s, &s->tree.nodes[p->parent]) || lends_and_passes_on(s, p->parent)) s->reserved--;
        } else {
            take_state(s, node, parent->state);
        }
    }
    s->running[s->running_count++] = node;
}

/* The youngest memory that children wait for is given up. */
static void give_up_a_memory(pal_scorer *s) {
    size_t top = s->ready_count - 1;
    while (s->nodes[s->ready[top]].alone) top--; /* were all of them alone, memories would be free */
    const int parent = s->tree.nodes[s->ready[top]].parent;
    for (size_t i = 0; i < s->ready_count; i++)
        if (s->tree.nodes[s->ready[i]].parent == parent) s->nodes[s->ready[i]].alone = true;
    s->nodes[parent].waiting = 0;
    s->free_states[s->free_count++] = s->nodes[parent].state;
    s->nodes[parent].state = NULL;
    if (is_big(s, &s->tree.nodes[parent]) || lends_and_passes_on(s, parent)) s->reserved--;
}

/* Begins nodes while a pass has room: branches of what is being read before new trees, the youngest first. No tree is
 * begun while what is left of those that have begun fills a pass: its memory would only wait. */
static void begin_nodes(pal_scorer *s) {
    const size_t most = (size_t)s->o.tokens;
    size_t tokens = 0;
    for (int i = 0; i < s->running_count; i++) {
        const int node = s->running[i];
        tokens += s->tree.nodes[node].read_end - s->nodes[node].at;
    }
    for (size_t i = s->ready_count; i-- > 0 && tokens < most;) {
        const int node = s->ready[i];
        if (s->running_count == s->sequences || !may_begin(s, node, s->running_count == 0 && i == 0)) continue;
        memmove(s->ready + i, s->ready + i + 1, (s->ready_count - i - 1) * sizeof *s->ready);
        s->ready_count--;
        begin_node(s, node);
        tokens += s->tree.nodes[node].read_end - s->nodes[node].at;
    }
    while (s->next_root < s->tree.roots && s->begun < most && s->running_count < s->sequences &&
           may_begin(s, (int)s->next_root, s->running_count == 0 && s->ready_count == 0)) {
        const int node = (int)s->next_root++;
        begin_node(s, node);
        s->begun += s->tree.nodes[node].tokens;
    }
}

static void add_row(pal_scorer *s, int at, int node, size_t token, uint32_t target) {
    s->row_at[s->rows] = at;
    s->row_node[s->rows] = node;
    s->row_token[s->rows] = token;
    s->row_target[s->rows++] = (int32_t)target;
}

/* What position `at` of the batch, `read` of the node's requests, should predict. */
static void add_rows(pal_scorer *s, const pal_score_request *requests, int node, size_t read, int at) {
    const pal_prefix *p = &s->tree.nodes[node];
    const size_t token = read + 1;
    if (read < p->begin) return; /* read again */
    if (token < p->end && token >= p->score_from)
        add_row(s, at, node, token, requests[s->tree.order[p->low]].ids[token]);
    for (int c = p->child; token == p->end && c < p->child + p->children; c++)
        if (token >= s->tree.nodes[c].score_from)
            add_row(s, at, c, token, requests[s->tree.order[s->tree.nodes[c].low]].ids[token]);
}

/* Packs the running nodes; returns the number of sequences. What borrows is read at once, or in the next pass. */
static int pack(pal_scorer *s, const pal_score_request *requests) {
    int n = 0, tokens = 0;
    s->rows = 0;
    for (int i = 0; i < s->running_count && tokens < s->o.tokens; i++) {
        const int node = s->running[i];
        const pal_prefix *p = &s->tree.nodes[node];
        progress *g = &s->nodes[node];
        const bool borrowed = borrows(s, node);
        if (borrowed && p->read_end - g->at > (size_t)(s->o.tokens - tokens)) continue;
        s->cu[n] = tokens;
        s->borrowed[n] = borrowed;
        s->in_pass[n++] = g->state;
        for (; g->at < p->read_end && tokens < s->o.tokens; g->at++, tokens++) {
            s->ids[tokens] = (int32_t)requests[s->tree.order[p->low]].ids[g->at];
            add_rows(s, requests, node, g->at, tokens);
        }
    }
    s->cu[n] = tokens;
    return n;
}

static void count_rows(pal_scorer *s, const pal_score_request *requests, pal_score_result *scores) {
    for (size_t i = 0; i < s->rows; i++) {
        const pal_prefix *p = &s->tree.nodes[s->row_node[i]];
        for (size_t k = p->low; k < p->high; k++) {
            const pal_score_request *r = &requests[s->tree.order[k]];
            const size_t first = r->count - r->scored;
            if (s->row_token[i] < first) continue;
            scores[s->tree.order[k]].logprob -= (double)s->row_nll[i];
            scores[s->tree.order[k]].greedy &= s->row_correct[i] != 0;
            if (r->logprobs) r->logprobs[s->row_token[i] - first] = -s->row_nll[i];
            if (r->likeliest) r->likeliest[s->row_token[i] - first] = s->row_correct[i];
        }
    }
}

static void release(pal_scorer *s, int node) {
    s->free_states[s->free_count++] = s->nodes[node].state;
    s->nodes[node].state = NULL;
    s->reserved--;
}

/* A node has read its tokens: its children may begin, or a memory is free. */
static void end_node(pal_scorer *s, int node) {
    const pal_prefix *p = &s->tree.nodes[node];
    progress *g = &s->nodes[node];
    if (borrows(s, node)) {
        g->state = NULL;
        if (p->parent >= 0 && --s->nodes[p->parent].waiting == 0) release(s, p->parent);
        return;
    }
    for (int c = p->children; c-- > 0;) /* the first child on top */
        if (pal_prefix_reads(&s->tree.nodes[p->child + c])) {
            s->ready[s->ready_count++] = p->child + c;
            g->waiting++;
        }
    if (!g->waiting) release(s, node);
}

static pal_status run_pass(pal_scorer *s, const pal_score_request *requests, pal_score_result *scores, pal_error *err) {
    const int n = pack(s, requests);
    const pal_batch batch = { .tokens = s->cu[n], .sequences = n, .ids = s->ids, .cu_seqlens = s->cu };
    const pal_status st = pal_model_score_rows(s->model, s->work, s->in_pass, s->lends ? s->borrowed : NULL, &batch,
                                               s->row_at, s->row_target, (int)s->rows, s->row_nll, s->row_correct, err);
    if (st) return st;
    count_rows(s, requests, scores);
    s->counts.read += (uint64_t)batch.tokens;
    s->begun -= (size_t)batch.tokens < s->begun ? (size_t)batch.tokens : s->begun; /* some may be read again */
    s->counts.scored += s->rows;
    int left = 0;
    for (int i = 0; i < s->running_count; i++) {
        const int node = s->running[i];
        if (s->nodes[node].at == s->tree.nodes[node].read_end) end_node(s, node);
        else s->running[left++] = node;
    }
    s->running_count = left;
    return PAL_OK;
}

static pal_status run_all(pal_scorer *s, const pal_score_request *requests, pal_score_result *scores, pal_error *err) {
    const uint64_t before = s->counts.read;
    size_t total = 0; /* a memory that is given up adds to it */
    pal_status st;
    for (size_t i = 0; i < s->tree.count; i++) total += s->tree.nodes[i].read_end - s->tree.nodes[i].begin;
    for (;;) {
        begin_nodes(s);
        if ((st = fill_memories(s, err))) return st;
        if (s->running_count) {
            if ((st = run_pass(s, requests, scores, err))) return st;
        } else if (s->ready_count) {
            give_up_a_memory(s);
        } else if (s->next_root == s->tree.roots) {
            return PAL_OK;
        }
        const size_t read = (size_t)(s->counts.read - before);
        if (s->o.progress && !s->o.progress(s->o.user, read < total ? read : total, total))
            return pal_fail(err, PAL_STOPPED, "interrupted after %zu of %zu tokens", read, total);
    }
}

pal_status pal_score(pal_scorer *s, const pal_score_request *requests, size_t count, pal_score_result *scores,
                     pal_error *err) {
    pal_status st;
    if (!count) return PAL_OK;
    const size_t most = s->lends ? (size_t)s->o.tokens : 0;
    if ((st = check(s, requests, count, err)) || (st = pal_prefixes_build(&s->tree, requests, count, most, err)))
        return st;
    for (size_t i = 0; i < count; i++) {
        scores[i] = (pal_score_result){ .greedy = true };
        s->counts.sent += requests[i].count - 1;
    }
    if (!(st = begin_call(s, err))) st = run_all(s, requests, scores, err);
    drop_call(s);
    return st;
}
