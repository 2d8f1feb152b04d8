/* SPDX-License-Identifier: MIT */
#include "eval/prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/strings.h"

void pal_prefixes_free(pal_prefixes *p) {
    pal_free(p->order);
    pal_free(p->nodes);
    *p = (pal_prefixes){ 0 };
}

static int compare(const pal_score_request *a, const pal_score_request *b) {
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    const size_t n = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < n; i++)
        if (a->ids[i] != b->ids[i]) return a->ids[i] < b->ids[i] ? -1 : 1;
    return a->count < b->count ? -1 : a->count > b->count;
}

static int compare_indices(const void *a, const void *b, void *user) {
    const pal_score_request *requests = user;
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    const int c = compare(&requests[x], &requests[y]);
    return c ? c : x < y ? -1 : x > y; /* any order of equal ones would do; this one is always the same */
}

static pal_status add_node(pal_prefixes *p, pal_prefix node, pal_error *err) {
    void *block = p->nodes;
    const pal_status st = pal_grow(&block, &p->capacity, p->count, p->count + 1, sizeof *p->nodes, err);
    if (st) return st;
    p->nodes = block;
    p->nodes[p->count++] = node;
    return PAL_OK;
}

/* One node for each run of requests order[low .. high-1] of one group with the same id at `position`. */
static pal_status add_runs(pal_prefixes *p, const pal_score_request *requests, size_t low, size_t high, size_t position,
                           int parent, pal_error *err) {
    while (low < high) {
        const pal_score_request *first = &requests[p->order[low]];
        size_t next = low + 1;
        while (next < high && requests[p->order[next]].group == first->group &&
               requests[p->order[next]].ids[position] == first->ids[position])
            next++;
        const pal_status st = add_node(p, (pal_prefix){ .low = low, .high = next, .begin = position, .parent = parent },
                                       err);
        if (st) return st;
        low = next;
    }
    return PAL_OK;
}

/* Requests are sorted: what the first and the last have in common, all have. */
static size_t common(const pal_score_request *first, const pal_score_request *last, size_t from) {
    const size_t n = first->count < last->count ? first->count : last->count;
    while (from < n && first->ids[from] == last->ids[from]) from++;
    return from;
}

static pal_status fill_node(pal_prefixes *p, const pal_score_request *requests, size_t index, pal_error *err) {
    pal_prefix node = p->nodes[index];
    const pal_score_request *first = &requests[p->order[node.low]], *last = &requests[p->order[node.high - 1]];
    node.end = common(first, last, node.begin);
    node.score_from = SIZE_MAX;
    for (size_t i = node.low; i < node.high; i++) {
        const pal_score_request *r = &requests[p->order[i]];
        if (r->count - r->scored < node.score_from) node.score_from = r->count - r->scored;
    }
    size_t longer = node.low; /* requests that end here come first */
    while (longer < node.high && requests[p->order[longer]].count == node.end) longer++;
    node.read_end = longer < node.high ? node.end : node.end - 1;
    node.child = (int)p->count;
    const pal_status st = add_runs(p, requests, longer, node.high, node.end, (int)index, err);
    node.children = (int)(p->count - (size_t)node.child);
    p->nodes[index] = node;
    return st;
}

/* Tokens of the subtree, and memories: those of children that hold some, the last of which takes the node's own unless
 * another borrows that. */
static void count_subtree(const pal_prefixes *p, pal_prefix *node, size_t most) {
    bool tip = true, lends = false;
    for (int c = node->child; c < node->child + node->children; c++) {
        tip &= !pal_prefix_reads(&p->nodes[c]);
        lends |= p->nodes[c].borrows;
        node->need += p->nodes[c].need;
        node->tokens += p->nodes[c].tokens;
    }
    if (!pal_prefix_reads(node)) return;
    node->tokens += node->read_end - node->begin;
    node->borrows = tip && node->read_end - node->begin <= most;
    if (!node->borrows && (lends || !node->need)) node->need++;
}

pal_status pal_prefixes_build(pal_prefixes *p, const pal_score_request *requests, size_t count, size_t most,
                              pal_error *err) {
    pal_status st;
    void *order;
    pal_free(p->order);
    p->order = NULL;
    p->count = 0;
    if ((st = pal_alloc_named(&order, count, sizeof *p->order, "the order of requests", err))) return st;
    p->order = order;
    for (size_t i = 0; i < count; i++) p->order[i] = i;
    qsort_r(p->order, count, sizeof *p->order, compare_indices, (void *)(uintptr_t)requests);
    if ((st = add_runs(p, requests, 0, count, 0, -1, err))) return st;
    p->roots = p->count;
    for (size_t i = 0; i < p->count && !st; i++) st = fill_node(p, requests, i, err);
    for (size_t i = p->count; i-- > 0 && !st;) count_subtree(p, &p->nodes[i], most); /* children follow */
    return st;
}
