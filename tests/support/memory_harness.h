/* SPDX-License-Identifier: MIT */
/* Checks that every memory rule must pass, written once over the rule interface. A rule's test file describes its rule as
 * a memory_subject, whose loss in float64 is the rule's second, independent implementation, and calls the checks. */
#ifndef PAL_TEST_MEMORY_HARNESS_H
#define PAL_TEST_MEMORY_HARNESS_H

#include "support/memory_case.h"

/* Every recorded case of this rule in tests/golden/ops and $PALIMPSA_GOLDEN/ops, at every CPU level, as a whole, token by
 * token and backward. */
void memory_check_golden(const memory_subject *subject);
void memory_check_gradients(const memory_subject *subject);      /* against differences of subject->loss */
void memory_check_splits(const memory_subject *subject);         /* pieces and steps = whole; 30 cases, 1,000 in long tests */
void memory_check_packed(const memory_subject *subject);         /* packed = each sequence alone */
void memory_check_threads(const memory_subject *subject);        /* 1, 2, 3, 7 threads: same bits */
void memory_check_levels(const memory_subject *subject);         /* every level = reference, odd sizes, strided rows */
void memory_check_groups(const memory_subject *subject);         /* shared keys = repeated keys */
void memory_check_optional(const memory_subject *subject);       /* gradients nobody wants change no other */
void memory_check_starts(const memory_subject *subject);         /* fresh or no memories = default ones */
void memory_check_no_allocation(const memory_subject *subject);

#endif
