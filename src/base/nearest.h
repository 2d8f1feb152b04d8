/* SPDX-License-Identifier: MIT */
/* "Did you mean ...?": the known word that is spelled most like an unknown one. */
#ifndef PAL_BASE_NEAREST_H
#define PAL_BASE_NEAREST_H

/* The entry of a NULL-terminated list with the fewest edits (the first of several), or NULL when none is close: at most
 * one edit, and one more for every three characters of word. */
const char *pal_nearest(const char *word, const char *const *list);

#endif
