/* SPDX-License-Identifier: MIT */
/* Needles in haystacks: long documents of ordinary text in which a few sentences state secret numbers, and some of them
 * are asked for at the end. They teach a model to carry facts over a long context. */
#ifndef PAL_DATA_NEEDLE_H
#define PAL_DATA_NEEDLE_H

#include "palimpsa/tokenizer.h"

enum { PAL_NEEDLES = 64, PAL_NEEDLE_KEY = 8 };

typedef struct pal_needle_options {
    int tokens;    /* most that a document has */
    int needles;   /* sentences hidden in it, 1 .. PAL_NEEDLES */
    int questions; /* how many of them are asked for, each once, 1 .. needles */
    bool brief;    /* notes such as "bafe 53", of 64 names and two digits; the same line again is the question */
    uint64_t seed; /* document i is a function of the haystack, the options and i */
} pal_needle_options;

typedef struct pal_needle { /* what a document asks for */
    char key[PAL_NEEDLE_KEY];
    int value;     /* seven digits, or two */
    size_t depth;  /* bytes of the document before the sentence that states it */
    size_t answer; /* bytes of the document before the number that answers the question */
} pal_needle;

typedef struct pal_haystack pal_haystack;
/* text is borrowed; it is cut after line breaks and full stops. Without data documents are needles and questions
 * alone. */
pal_status pal_haystack_new(pal_haystack **out, pal_slice text, const pal_tokenizer *tokenizer, pal_error *err);
void pal_haystack_free(pal_haystack *haystack);
uint64_t pal_haystack_tokens(const pal_haystack *haystack); /* pieces counted one by one */

/* Appends document i: consecutive pieces of the haystack from a random place on (and from its start again after its
 * end), as many as fit, the needles between them at random places, then the questions in random order, each with its
 * answer. asked takes `questions` needles, in the order in which they are asked for. */
pal_status pal_needle_make(pal_haystack *haystack, const pal_needle_options *options, uint64_t index, pal_bytes *text,
                           pal_needle *asked, pal_error *err);

#endif
