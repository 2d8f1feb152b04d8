/* SPDX-License-Identifier: MIT */
/* A grammar as nodes over bytes. Characters are sequences of ranges of bytes, so that a machine (machine.h) can stop in
 * the middle of one, as tokens do. */
#ifndef PAL_GRAMMAR_PROGRAM_H
#define PAL_GRAMMAR_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "palimpsa/grammar.h"
#include "palimpsa/tokenizer.h"

#define PAL_NO_BOUND UINT32_MAX

enum {
    PAL_GRAMMAR_TEXT = 16 << 20, /* bytes of rules at most */
    PAL_GRAMMAR_NODES = 1 << 18,
    PAL_GRAMMAR_DEPTH = 200, /* groups in groups */
    PAL_TOKEN_MARK = 0xFF    /* begins and ends a special token, as the machine sees it: no byte of UTF-8 */
};

typedef enum pal_node_kind {
    PAL_NODE_RANGE,
    PAL_NODE_SEQUENCE,
    PAL_NODE_CHOICE,
    PAL_NODE_RULE,
    PAL_NODE_REPEAT
} pal_node_kind;
typedef struct pal_node {
    uint8_t kind;
    uint8_t low, high;     /* RANGE: of one byte */
    uint32_t first, count; /* SEQUENCE, CHOICE: in pal_grammar.child; RULE: its number; REPEAT: node */
    uint32_t least, most;  /* REPEAT: how often; most may be PAL_NO_BOUND */
} pal_node;

struct pal_grammar {
    pal_node *node;
    size_t nodes, node_room;
    uint32_t *child;
    size_t children, child_room;
    uint32_t *rule; /* its node, by number */
    size_t rules, rule_room;
    uint32_t root; /* node */
    bool counts;   /* a repetition has a bound above 1 */
    /* Bytes that no range distinguishes are of one class. */
    uint8_t class_of[256], byte_of[256]; /* of a class, one of its bytes */
    int classes;
};

/* Nodes, as readers make them. */
pal_status pal_node_add(pal_grammar *g, pal_node node, uint32_t *out, pal_error *err);
/* A sequence or choice of these nodes; one alone is itself. */
pal_status pal_node_list(pal_grammar *g, pal_node_kind kind, const uint32_t *list, size_t count, uint32_t *out,
                         pal_error *err);
/* The bytes one after the other. */
pal_status pal_node_bytes(pal_grammar *g, const void *bytes, size_t size, uint32_t *out, pal_error *err);
typedef struct pal_code_range {
    uint32_t low, high;
} pal_code_range;
/* One character of these ranges, which are put in order; `except`: one outside all ranges. Surrogates do not count. */
pal_status pal_node_characters(pal_grammar *g, pal_code_range *range, size_t count, bool except, uint32_t *out,
                               pal_error *err);
/* After the last rule: refuses rules without an end and rules that begin with themselves, and fills the classes.
 * name_of(user, rule) is for messages. */
typedef const char *pal_rule_name_fn(void *user, uint32_t rule);
pal_status pal_grammar_finish(pal_grammar *g, pal_rule_name_fn *name_of, void *user, pal_error *err);

#endif
