/* SPDX-License-Identifier: MIT */
/* Rows of tokens for training, out of one or more sets of shards.
 *
 * Documents are put one after another in a shuffled order and cut into rows of `row` tokens. Inside a row every
 * document is one sequence, and one that is longer than `context` is several: nothing is remembered across a
 * boundary. The target of a token is the next one of its document, also after a cut; that of a document's last token
 * is the first of the next document in the row. A row's end cuts a document, and the rest of it begins the next row.
 *
 * The reading position is a small struct; from it another loader continues with the same rows, without going through
 * those before. An epoch of a source shows each of its tokens once. */
#ifndef PAL_DATA_LOADER_H
#define PAL_DATA_LOADER_H

#include "data/shards.h"

typedef enum pal_order {
    PAL_ORDER_STORED,    /* documents as they are stored */
    PAL_ORDER_DOCUMENTS, /* documents shuffled, anew in each epoch */
    PAL_ORDER_SEQUENCES  /* documents are first cut into pieces of `context`, at places that change with the epoch, and
                          * the  pieces are shuffled; a document's last token then has no target */
} pal_order;

enum { PAL_SOURCES = 16 };
typedef struct pal_text_source {
    const pal_shards *shards; /* borrowed */
    pal_subset subset;
    double weight; /* its share of the tokens, relative to the other sources' */
} pal_text_source;

typedef struct pal_loader_options {
    int sources;
    pal_text_source source[PAL_SOURCES];
    int row, context; /* tokens; context 0: documents are not cut */
    int sequences;    /* most in a row, which then ends early; 0: as many as `row` */
    pal_order order;
    bool documents_end; /* a document's last token has no target */
    bool responses;     /* of pairs: only tokens of responses are targets; documents end as above */
    uint64_t seed;
} pal_loader_options;

typedef struct pal_loader_position {
    int source;      /* that is being read; -1: the next document may come from any */
    uint64_t offset; /* tokens of its document, or piece, that are done */
    struct {
        uint64_t epoch, unit; /* the current document or piece, counted in shuffled order */
        uint64_t tokens;      /* read in all */
    } of[PAL_SOURCES];
} pal_loader_position;

typedef struct pal_loader pal_loader;
pal_status pal_loader_new(pal_loader **out, const pal_loader_options *options, pal_error *err);
void pal_loader_free(pal_loader *loader);
uint64_t pal_loader_tokens(const pal_loader *loader); /* in one epoch of all sources */

pal_loader_position pal_loader_tell(const pal_loader *loader);
/* The beginning is a zeroed position with source -1. One that no loader of these options can have is refused. */
pal_status pal_loader_seek(pal_loader *loader, const pal_loader_position *position, pal_error *err);

/* The next row: ids and targets (row), and where each of its sequences ends (ends, of options.sequences entries). */
typedef struct pal_row {
    int tokens, sequences;
    bool continues; /* the first sequence continues the document that the previous row ended in */
} pal_row;
pal_status pal_loader_next(pal_loader *loader, int32_t *ids, int32_t *targets, int *ends, pal_row *row, pal_error *err);

#endif
