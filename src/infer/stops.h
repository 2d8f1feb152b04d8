/* SPDX-License-Identifier: MIT */
/* Texts that end a text. Each is looked for by Knuth, Morris and Pratt: a new byte costs the same however much is held
 * back, because everybody waits for the step that writes it. */
#ifndef PAL_INFER_STOPS_H
#define PAL_INFER_STOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

typedef struct pal_stop {
    size_t *borders; /* [i]: how many of its first bytes end its first i + 1 bytes, too, but not all; owns the block */
    const unsigned char *text;
    size_t size, matched; /* matched: how much of it the text ends with now */
    int64_t id;           /* of the special token that it names, which has no text; -1: none */
} pal_stop;

typedef struct pal_stops {
    pal_stop *list;
    size_t count, longest;
} pal_stops;

pal_status pal_stops_new(pal_stops *out, const char *const *texts, size_t count, pal_error *err); /* own copies */
/* Whether a token is one that a stop string names. */
bool pal_stops_name(const pal_stops *stops, int64_t id);
void pal_stops_free(pal_stops *stops);
void pal_stops_restart(pal_stops *stops); /* nothing is held back any more */
/* How much of the held text can be reported: up to the first that is there (*stopped), or else up to where one may
 * begin. The bytes from `seen` on are new; what was found before must have been held. */
size_t pal_stops_tellable(pal_stops *stops, const unsigned char *held, size_t size, size_t seen, bool *stopped);

#endif
