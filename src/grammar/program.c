/* SPDX-License-Identifier: MIT */
/* Nodes of a grammar, and what must hold for all of them together. */
#include "grammar/program.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "text/strings.h"
#include "text/utf8.h"

void pal_grammar_free(pal_grammar *g) {
    if (!g) return;
    pal_free(g->node);
    pal_free(g->child);
    pal_free(g->rule);
    pal_free(g);
}

pal_status pal_node_add(pal_grammar *g, pal_node node, uint32_t *out, pal_error *err) {
    if (g->nodes == PAL_GRAMMAR_NODES)
        return pal_fail(err, PAL_E_ARGUMENT, "the grammar has more than %d parts", PAL_GRAMMAR_NODES);
    const pal_status st = pal_grow((void **)&g->node, &g->node_room, g->nodes, g->nodes + 1, sizeof *g->node, err);
    if (st) return st;
    g->node[g->nodes] = node;
    *out = (uint32_t)g->nodes++;
    return PAL_OK;
}

pal_status pal_node_list(pal_grammar *g, pal_node_kind kind, const uint32_t *list, size_t count, uint32_t *out,
                         pal_error *err) {
    if (count == 1) {
        *out = list[0];
        return PAL_OK;
    }
    const pal_node node = { .kind = (uint8_t)kind, .first = (uint32_t)g->children, .count = (uint32_t)count };
    pal_status st = pal_node_add(g, node, out, err);
    if (!st)
        st = pal_grow((void **)&g->child, &g->child_room, g->children, g->children + count + 1, sizeof *g->child, err);
    if (st) return st;
    for (size_t i = 0; i < count; i++) g->child[g->children++] = list[i];
    return PAL_OK;
}

static pal_status add_range(pal_grammar *g, unsigned low, unsigned high, uint32_t *out, pal_error *err) {
    return pal_node_add(g, (pal_node){ .kind = PAL_NODE_RANGE, .low = (uint8_t)low, .high = (uint8_t)high }, out, err);
}

pal_status pal_node_bytes(pal_grammar *g, const void *bytes, size_t size, uint32_t *out, pal_error *err) {
    const unsigned char *s = bytes;
    pal_ids list = { 0 };
    pal_status st = PAL_OK;
    for (size_t i = 0; i < size && !st; i++) {
        uint32_t node = 0;
        if (!(st = add_range(g, s[i], s[i], &node, err))) st = pal_ids_append(&list, node, err);
    }
    if (!st) st = pal_node_list(g, PAL_NODE_SEQUENCE, list.data, list.count, out, err);
    pal_ids_free(&list);
    return st;
}

/* Characters of one length in UTF-8, as sequences of ranges of bytes, appended to list. */
static pal_status add_characters(pal_grammar *g, uint32_t low, uint32_t high, size_t length, pal_ids *list,
                                 pal_error *err) {
    unsigned char from[4], to[4];
    uint32_t node[4], whole;
    pal_status st;
    for (size_t i = 1; i < length; i++) { /* the last i bytes must be one value each, or all values */
        const uint32_t tail = ((uint32_t)1 << 6 * i) - 1;
        if ((low & ~tail) == (high & ~tail)) continue;
        uint32_t middle = 0;
        if (low & tail) middle = (low | tail) + 1;
        else if ((high & tail) != tail) middle = high & ~tail;
        if (!middle) continue;
        if ((st = add_characters(g, low, middle - 1, length, list, err))) return st;
        return add_characters(g, middle, high, length, list, err);
    }
    (void)pal_utf8_write(low, from);
    (void)pal_utf8_write(high, to);
    for (size_t i = 0; i < length; i++)
        if ((st = add_range(g, from[i], to[i], &node[i], err))) return st;
    if ((st = pal_node_list(g, PAL_NODE_SEQUENCE, node, length, &whole, err))) return st;
    return pal_ids_append(list, whole, err);
}

static int by_low(const void *a, const void *b) {
    const pal_code_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

static pal_status add_any_length(pal_grammar *g, uint32_t low, uint32_t high, pal_ids *list, pal_error *err) {
    static const struct {
        uint32_t low, high;
        size_t length;
    } part[] = {
        { 0, 0x7F, 1 }, { 0x80, 0x7FF, 2 }, { 0x800, 0xD7FF, 3 }, { 0xE000, 0xFFFF, 3 }, { 0x10000, 0x10FFFF, 4 }
    };
    pal_status st = PAL_OK;
    for (size_t i = 0; i < 5 && !st; i++) {
        const uint32_t from = low > part[i].low ? low : part[i].low, to = high < part[i].high ? high : part[i].high;
        if (from <= to) st = add_characters(g, from, to, part[i].length, list, err);
    }
    return st;
}

pal_status pal_node_characters(pal_grammar *g, pal_code_range *range, size_t count, bool except, uint32_t *out,
                               pal_error *err) {
    pal_ids list = { 0 };
    pal_status st = PAL_OK;
    uint32_t next = 0; /* the first that no range before covers */
    if (count) qsort(range, count, sizeof *range, by_low);
    for (size_t i = 0; i < count && !st; i++) {
        if (range[i].high < next) continue;
        const uint32_t low = range[i].low > next ? range[i].low : next;
        if (except && low > next) st = add_any_length(g, next, low - 1, &list, err);
        else if (!except) st = add_any_length(g, low, range[i].high, &list, err);
        next = range[i].high + 1;
    }
    if (!st && except && next <= 0x10FFFF) st = add_any_length(g, next, 0x10FFFF, &list, err);
    if (!st && !list.count) st = pal_fail(err, PAL_E_ARGUMENT, "a class without characters");
    if (!st) st = pal_node_list(g, PAL_NODE_CHOICE, list.data, list.count, out, err);
    pal_ids_free(&list);
    return st;
}

/* What is known of nodes: each learns it once, and then its parent or the places that use its rule. */
enum { EMPTY = 1, ENDS = 2 }; /* may be the empty text; has a text at all */

typedef struct {
    uint32_t parent;  /* PAL_NO_ID: a rule's node */
    uint32_t lack[2]; /* SEQUENCE: children that are not known to be EMPTY, and to have ENDS */
    uint32_t users;   /* a rule's node: the first RULE that uses it ... */
    uint32_t next;    /* RULE: ... and the next one; PAL_NO_ID: none */
    uint8_t fact;
} knowledge;

typedef struct {
    const pal_grammar *g;
    knowledge *of;
    uint32_t *queue; /* nodes that learned something, twice at most each */
    size_t queued;
} inference;

static void learn(inference *f, uint32_t node, uint8_t fact) {
    const uint8_t news = fact & (uint8_t)~f->of[node].fact;
    if (!news) return;
    f->of[node].fact |= news;
    f->queue[f->queued++] = node << 2 | news;
}

static void link_nodes(inference *f) {
    const pal_grammar *g = f->g;
    for (size_t i = 0; i < g->nodes; i++) f->of[i] = (knowledge){ PAL_NO_ID, { 0, 0 }, PAL_NO_ID, PAL_NO_ID, 0 };
    for (uint32_t i = 0; i < g->nodes; i++) {
        const pal_node *n = &g->node[i];
        if (n->kind == PAL_NODE_REPEAT) f->of[n->first].parent = i;
        if (n->kind == PAL_NODE_RULE) {
            knowledge *used = &f->of[g->rule[n->first]];
            f->of[i].next = used->users;
            used->users = i;
        }
        if (n->kind != PAL_NODE_SEQUENCE && n->kind != PAL_NODE_CHOICE) continue;
        for (uint32_t k = 0; k < n->count; k++) f->of[g->child[n->first + k]].parent = i;
        f->of[i].lack[0] = f->of[i].lack[1] = n->count;
    }
}

static void infer(inference *f) {
    const pal_grammar *g = f->g;
    link_nodes(f);
    for (uint32_t i = 0; i < g->nodes; i++) {
        const pal_node *n = &g->node[i];
        if (n->kind == PAL_NODE_RANGE) learn(f, i, ENDS);
        if (n->kind == PAL_NODE_REPEAT && (!n->least || !n->most)) learn(f, i, EMPTY | ENDS);
        if (n->kind == PAL_NODE_SEQUENCE && !n->count) learn(f, i, EMPTY | ENDS);
    }
    for (size_t at = 0; at < f->queued; at++) {
        const uint32_t node = f->queue[at] >> 2, parent = f->of[node].parent;
        const uint8_t news = f->queue[at] & 3;
        for (uint32_t user = f->of[node].users; user != PAL_NO_ID; user = f->of[user].next) learn(f, user, news);
        if (parent == PAL_NO_ID) continue;
        if (g->node[parent].kind != PAL_NODE_SEQUENCE) learn(f, parent, news);
        else
            for (uint8_t bit = EMPTY, k = 0; k < 2; k++, bit = ENDS)
                if ((news & bit) && !--f->of[parent].lack[k]) learn(f, parent, bit);
    }
}

/* A walk over what a text may begin with, without recursion: a rule that is met while it is open begins with itself. */
typedef struct {
    uint32_t node, next;
} step;

static bool opens(const pal_grammar *g, const knowledge *of, const pal_node *n, uint32_t next, uint32_t *child) {
    switch (n->kind) {
    case PAL_NODE_RANGE: return false;
    case PAL_NODE_RULE: *child = g->rule[n->first]; return next == 0;
    case PAL_NODE_REPEAT: *child = n->first; return next == 0 && n->most;
    default: break;
    }
    if (next >= n->count) return false;
    if (n->kind == PAL_NODE_SEQUENCE && next && !(of[g->child[n->first + next - 1]].fact & EMPTY)) return false;
    *child = g->child[n->first + next];
    return true;
}

static pal_status check_beginnings(const pal_grammar *g, const knowledge *of, uint8_t *state, step *stack,
                                   pal_rule_name_fn *name_of, void *user, pal_error *err) {
    enum { NEW, OPEN, DONE };
    for (uint32_t r = 0; r < g->rules; r++) {
        size_t depth = 0;
        if (state[g->rule[r]] != NEW) continue;
        stack[depth++] = (step){ g->rule[r], 0 };
        state[g->rule[r]] = OPEN;
        while (depth) {
            step *top = &stack[depth - 1];
            uint32_t child;
            if (!opens(g, of, &g->node[top->node], top->next, &child)) {
                state[top->node] = DONE, depth--;
                continue;
            }
            top->next++;
            if (state[child] == OPEN) {
                for (size_t i = depth; i-- > 0;)
                    if (g->node[stack[i].node].kind == PAL_NODE_RULE)
                        return pal_fail(err, PAL_E_ARGUMENT, "%s begins with itself: it would never begin",
                                        name_of(user, g->node[stack[i].node].first));
                return pal_fail(err, PAL_E_ARGUMENT, "a rule begins with itself: it would never begin");
            }
            if (state[child] == NEW) state[child] = OPEN, stack[depth++] = (step){ child, 0 };
        }
    }
    return PAL_OK;
}

/* A repetition of what may be empty needs no least number; a most number would be counted without end. */
static pal_status check_counts(pal_grammar *g, const knowledge *of, pal_error *err) {
    for (size_t i = 0; i < g->nodes; i++) {
        pal_node *n = &g->node[i];
        if (n->kind != PAL_NODE_REPEAT) continue;
        if (of[n->first].fact & EMPTY) {
            if (n->most != PAL_NO_BOUND && n->most > 1)
                return pal_fail(err, PAL_E_ARGUMENT, "a repetition {%u,%u} of what may be empty: expected ?, * or +",
                                n->least, n->most);
            n->least = 0;
        }
        g->counts |= n->least > 1 || (n->most > 1 && n->most != PAL_NO_BOUND);
    }
    return PAL_OK;
}

static void find_classes(pal_grammar *g) {
    bool starts[257] = { true };
    for (size_t i = 0; i < g->nodes; i++)
        if (g->node[i].kind == PAL_NODE_RANGE) starts[g->node[i].low] = starts[g->node[i].high + 1] = true;
    for (int b = 0; b < 256; b++) {
        if (starts[b]) g->byte_of[g->classes++] = (uint8_t)b;
        g->class_of[b] = (uint8_t)(g->classes - 1);
    }
}

pal_status pal_grammar_finish(pal_grammar *g, pal_rule_name_fn *name_of, void *user, pal_error *err) {
    uint8_t *state = pal_alloc(g->nodes, 1);
    step *stack = pal_alloc_unset(g->nodes + 1, sizeof *stack);
    inference f = { .g = g,
                    .of = pal_alloc_unset(g->nodes, sizeof *f.of),
                    .queue = pal_alloc_unset(g->nodes, 2 * sizeof *f.queue) };
    pal_status st = PAL_OK;
    if (!state || !stack || !f.of || !f.queue) st = pal_fail(err, PAL_E_MEMORY, "out of memory for a grammar");
    if (!st) infer(&f);
    for (uint32_t r = 0; r < g->rules && !st; r++)
        if (!(f.of[g->rule[r]].fact & ENDS))
            st = pal_fail(err, PAL_E_ARGUMENT, "%s always needs itself again: it would never end", name_of(user, r));
    if (!st) st = check_counts(g, f.of, err);
    if (!st) st = check_beginnings(g, f.of, state, stack, name_of, user, err);
    if (!st) find_classes(g);
    pal_free(state);
    pal_free(stack);
    pal_free(f.of);
    pal_free(f.queue);
    return st;
}
