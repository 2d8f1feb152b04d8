/* SPDX-License-Identifier: MIT */
/* What may come next, guessed from the text itself: its last tokens came before, and what followed them may follow
 * again. */
#ifndef PAL_INFER_GUESS_H
#define PAL_INFER_GUESS_H

#include "text/strings.h"

enum { PAL_GUESS_LONGEST = 8 }; /* tokens that are compared */
typedef struct pal_guesser {
    pal_ids text;      /* that was read and written; the newest part of a long one */
    int agreed;   /* tokens that agreed where the last draft was found */
    /* By how many agreed: guessed tokens that were compared, and that came true; older ones count less. */
    double tried[PAL_GUESS_LONGEST + 1], right[PAL_GUESS_LONGEST + 1];
} pal_guesser;

/* Room for so many more tokens, or for as many as are looked at. */
pal_status pal_guess_reserve(pal_guesser *g, size_t tokens, pal_error *err);
void pal_guess_note(pal_guesser *g, uint32_t id); /* a token of the text; dropped where there is no room */
void pal_guess_forget(pal_guesser *g);            /* another text begins */
/* At most `most` tokens that may follow, and only as many as are likely to save more than they cost; 0: no guess. */
int pal_guess(pal_guesser *g, int32_t *draft, int most);
void pal_guess_learn(pal_guesser *g, int drafted, int right); /* how many of the last draft came true */

#endif
