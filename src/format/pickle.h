/* SPDX-License-Identifier: MIT */
/* The part of Python's pickle that checkpoints are made of, read as a tree. Nothing is ever called: where a pickle asks
 * for a call, the tree holds the function's name and the arguments. Names outside the caller's list, and instructions
 * outside a small set, are refused by name. */
#ifndef PAL_FORMAT_PICKLE_H
#define PAL_FORMAT_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

typedef enum pal_pickle_kind {
    PAL_PICKLE_NONE,
    PAL_PICKLE_BOOL,
    PAL_PICKLE_INT,
    PAL_PICKLE_FLOAT,
    PAL_PICKLE_TEXT,
    PAL_PICKLE_LIST,      /* tuples and sets too: items */
    PAL_PICKLE_DICT,      /* items: key, value, key, value, ... */
    PAL_PICKLE_GLOBAL,    /* value: index in the caller's list */
    PAL_PICKLE_CALL,      /* value: of the function in that list; items: one list of arguments */
    PAL_PICKLE_PERSISTENT /* items: one node, the description */
} pal_pickle_kind;

enum { PAL_PICKLE_END = UINT32_MAX };

typedef struct pal_pickle_node {
    pal_pickle_kind kind;
    uint32_t first, last, count; /* cells */
    int64_t value;
    double real;
    const char *text; /* not ended by a zero byte */
    size_t size;
} pal_pickle_node;

/* Items of a node: for (uint32_t c = node->first; c != PAL_PICKLE_END; c = p->cells[c].next) p->nodes[p->cells[c].node]
 */
typedef struct pal_pickle_cell {
    uint32_t node, next;
} pal_pickle_cell;

typedef struct pal_pickle {
    pal_pickle_node *nodes;
    pal_pickle_cell *cells;
    size_t node_count, cell_count, node_room, cell_room;
    uint32_t root;
} pal_pickle;

/* globals: "module name", NULL ends. `path` is for messages. Texts point into bytes. A call of a name that starts with
 * "collections" is an empty dictionary; state given to it is ignored. */
pal_status pal_pickle_read(pal_pickle *out, const char *path, const void *bytes, size_t size,
                           const char *const *globals, pal_error *err);
void pal_pickle_free(pal_pickle *p); /* a zeroed one is fine */

/* Item i of a node, or NULL. */
const pal_pickle_node *pal_pickle_item(const pal_pickle *p, const pal_pickle_node *node, uint32_t i);

#endif
