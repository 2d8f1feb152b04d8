/* SPDX-License-Identifier: MIT */
/* Running a grammar over bytes. A place in the text is every way in which the grammar can have come there: a set of
 * stacks, which share what they have in common. Stacks, sets and the ways from one to the next are made when they are
 * first needed and found again by hashing, in tables of fixed size: nothing is allocated after the machine is made.
 * When the tables are full, everything is dropped but the places that are in use. */
#ifndef PAL_GRAMMAR_MACHINE_H
#define PAL_GRAMMAR_MACHINE_H

#include "grammar/program.h"

typedef struct pal_machine pal_machine;

enum {
    PAL_PLACE_DEAD = 0,  /* no text of the grammar begins like this */
    PAL_PLACE_FULL = -1, /* the tables are full: pal_machine_collect(), then again */
    PAL_PLACE_ODD = -2   /* internal: a way that was not taken yet */
};

/* A place that survives collections: its number may change there. */
typedef struct pal_place {
    struct pal_place *next, **back;
    int32_t at;
} pal_place;

/* `reach`: more bytes than this are never looked ahead (pal_machine_near). The grammar is borrowed. */
pal_status pal_machine_new(pal_machine **out, const pal_grammar *grammar, uint32_t reach, pal_error *err);
void pal_machine_free(pal_machine *m);
void pal_machine_hold(pal_machine *m, pal_place *place); /* at the beginning of a text */
void pal_machine_drop(pal_place *place);

int32_t pal_machine_step(pal_machine *m, int32_t at, unsigned char byte); /* a place, DEAD or FULL */
/* Ways that were taken before, by class of bytes; ODD: not yet. */
const int32_t *pal_machine_ways(const pal_machine *m, int32_t at);
int32_t pal_machine_bytes(pal_machine *m, int32_t at, const unsigned char *bytes, size_t size); /* the same */
bool pal_machine_complete(const pal_machine *m, int32_t at); /* the text so far is one of the grammar */
bool pal_machine_over(pal_machine *m, int32_t at);           /* ... and cannot be continued */
/* A place that agrees with this one for the next `reach` bytes, the same for many: counts that are farther away than
 * that are none. Or FULL. */
int32_t pal_machine_near(pal_machine *m, int32_t at);
/* Drops what no held place needs; numbers of others mean nothing afterwards. False: that is not enough room for one
 * more step. */
bool pal_machine_collect(pal_machine *m);
uint32_t pal_machine_age(const pal_machine *m); /* collections so far: what was remembered by number is void */
enum { PAL_MACHINE_PLACES = 4096 };             /* numbers are below */

#endif
