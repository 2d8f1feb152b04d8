/* SPDX-License-Identifier: MIT */
/* Which allocations to let fail. All would be thousands, of which most are one loop's: of each place that asks for
 * memory, which is a stack of callers, the first is enough. */
#ifndef TESTS_FAULTS_PLACES_H
#define TESTS_FAULTS_PLACES_H

#include <stddef.h>
#include <stdint.h>

/* From now on places are noted anew, distinguished by so many callers; 0: no longer. */
void places_watch(int callers);
typedef struct allocating_place {
    uint64_t number;  /* of its first allocation, as pal_alloc_fail_at counts when it is called where the watch began */
    uint64_t callers; /* a hash of their addresses */
} allocating_place;
size_t places_found(const allocating_place **places);

#endif
