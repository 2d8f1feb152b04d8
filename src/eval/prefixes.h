/* SPDX-License-Identifier: MIT */
/* Requests as a forest: a node owns tokens that all requests below it have in common, its children differ in their
 * first token. Reading every node once reads every common prefix once. */
#ifndef PAL_EVAL_PREFIXES_H
#define PAL_EVAL_PREFIXES_H

#include "palimpsa/score.h"

typedef struct pal_prefix {
    size_t low, high;    /* requests order[low .. high-1] pass through it */
    size_t begin, end;   /* the positions whose tokens it owns */
    size_t read_end;     /* it reads begin .. read_end-1; a request's last token is never read, only predicted */
    size_t score_from;   /* the first position that any of its requests scores */
    int parent;          /* -1: a root */
    int child, children; /* nodes child .. child+children-1 */
    bool borrows;        /* a tip that is short enough to be read at once: it changes no memory, its parent's will do */
    int need;            /* memories that the subtree can hold at once */
    size_t tokens;       /* that it and its descendants read */
} pal_prefix;

typedef struct pal_prefixes {
    size_t *order; /* requests by group, then ids */
    pal_prefix *nodes;
    size_t count, capacity; /* of nodes; the roots come first, by order */
    size_t roots;
} pal_prefixes;

/* Grows what is there; free with pal_prefixes_free. Every request has at least two ids. Tips that read at most `most`
 * tokens borrow. */
pal_status pal_prefixes_build(pal_prefixes *out, const pal_score_request *requests, size_t count, size_t most,
                              pal_error *err);
static inline bool pal_prefix_reads(const pal_prefix *node) { return node->read_end > node->begin; }
void pal_prefixes_free(pal_prefixes *p);

#endif
