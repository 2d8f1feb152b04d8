/* SPDX-License-Identifier: MIT */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

/* Edits that turn one word into the other; words are short, and a long one is far from all. */
static size_t distance(const char *a, const char *b) {
    enum { LONGEST = 63 };
    const size_t n = strlen(a), m = strlen(b);
    size_t row[LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t above = row[j], change = diagonal + (a[i - 1] != b[j - 1]);
            const size_t shorter = above < row[j - 1] ? above + 1 : row[j - 1] + 1;
            row[j] = change < shorter ? change : shorter;
            diagonal = above;
        }
    }
    return row[m];
}

const char *pal_nearest(const char *word, const char *const *list) {
    const char *best = NULL;
    size_t least = strlen(word) / 3 + 2;
    for (; *list; list++) {
        const size_t d = distance(word, *list);
        if (d < least) least = d, best = *list;
    }
    return best;
}
