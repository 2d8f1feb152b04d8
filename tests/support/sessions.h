/* SPDX-License-Identifier: MIT */
/* Engines and sessions of small models, and what sessions write. */
#ifndef PAL_TEST_SESSIONS_H
#define PAL_TEST_SESSIONS_H

#include "support/models.h"
#include "support/text.h"

enum { WRITTEN_MOST = 512 };
typedef struct written {
    int count;
    int32_t ids[WRITTEN_MOST];
    double logprob[WRITTEN_MOST], variance[WRITTEN_MOST];
    char text[8 * WRITTEN_MOST];
    bool edge[8 * WRITTEN_MOST]; /* where pieces of text end */
    size_t size;
    pal_finish finish;
} written;

typedef struct speaker {
    pal_context *cx;
    pal_model *model;
    pal_tokenizer *tok;
} speaker;
speaker test_speaker(size_t kind);         /* of test_kinds, with test_letters() */
speaker test_tiny_speaker(tiny_kind kind); /* a model with more ids than this tokenizer has */
void test_speaker_free(speaker *s);

pal_engine *test_engine(const speaker *s, const pal_engine_options *options);
pal_session *test_session(pal_engine *engine);
/* Starts it; *w, which is not emptied, takes what it says. */
void test_begin(pal_session *s, written *w, const uint32_t *ids, size_t count, pal_session_options options);
void test_run(pal_engine *engine);                     /* until all have ended */
void test_prompt(uint32_t *ids, int n, uint64_t seed); /* of TEST_VOCAB */

#endif
