/* SPDX-License-Identifier: MIT */
/* Checks that every memory rule must pass, written once over the rule interface. A rule's test file describes its rule
 * as a memory_subject, whose loss in float64 is the rule's second, independent implementation, and lists MEMORY_TESTS
 * of it among its tests. */
#ifndef PAL_TEST_MEMORY_HARNESS_H
#define PAL_TEST_MEMORY_HARNESS_H

#include "support/memory_case.h"

/* Instrumented builds are slow and look for other things: a third of the cases. Emulators are slower. */
static inline int memory_fewer(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 3;
#else
    return test_short() ? 5 : 1;
#endif
}

static inline double memory_accept_grad(const memory_subject *s) { return s->accept_grad > 0 ? s->accept_grad : 1e-5; }

/* Tests for cmocka; the state of each is the memory_subject. */

/* Every recorded case of this rule in tests/golden/ops and $PALIMPSA_GOLDEN/ops, at every CPU level, as a whole, token
 * by token and backward. */
void memory_check_golden(void **subject);
void memory_check_gradients(void **subject); /* against differences of subject->loss */
void memory_check_splits(void **subject);    /* pieces and steps = whole; 30 cases, 1,000 in long tests */
void memory_check_packed(void **subject);    /* packed = each sequence alone */
void memory_check_threads(void **subject);   /* 1, 2, 3, 7 threads: same bits */
void memory_check_levels(void **subject);    /* every level = reference, odd sizes, strided rows */
void memory_check_strong_gates(void **subject); /* every level = reference, step = whole, with gates up to FLT_MAX */
void memory_check_groups(void **subject);    /* shared keys = repeated keys */
void memory_check_optional(void **subject);  /* gradients no one wants change no other */
void memory_check_starts(void **subject);    /* fresh or no memories = default ones */
void memory_check_neighbours(void **subject); /* NaN and huge numbers in one sequence or token stay there */
void memory_check_no_allocation(void **subject);

/* One of them as an entry of the list of tests, named SUBJECT_CLAIM. */
#define MEMORY_TEST(subject, claim, check) \
    { #subject "_" #claim, check, NULL, NULL, (void *)&subject }

/* All but the recorded cases, which not every rule has in this form. */
#define MEMORY_TESTS(subject)                                                           \
    MEMORY_TEST(subject, gradients_match_differences, memory_check_gradients),          \
        MEMORY_TEST(subject, pieces_and_steps_equal_whole, memory_check_splits),        \
        MEMORY_TEST(subject, packed_equals_separate, memory_check_packed),              \
        MEMORY_TEST(subject, is_the_same_for_any_thread_count, memory_check_threads),   \
        MEMORY_TEST(subject, levels_match_the_reference, memory_check_levels),          \
        MEMORY_TEST(subject, strong_gates_forget_and_spoil_nothing, memory_check_strong_gates), \
        MEMORY_TEST(subject, shared_keys_equal_repeated_keys, memory_check_groups),     \
        MEMORY_TEST(subject, gradients_are_optional, memory_check_optional),            \
        MEMORY_TEST(subject, starts_from_nothing_when_asked, memory_check_starts),      \
        MEMORY_TEST(subject, bad_numbers_stay_where_they_are, memory_check_neighbours), \
        MEMORY_TEST(subject, allocates_nothing, memory_check_no_allocation)

/* Every level = reference, once for each pair of strengths: g of a token, and gk of each of its channels, is minus one
 * or the other of them. Keys are about as long as key_length. */
void memory_check_forgetting(const memory_subject *subject, const double (*strengths)[2], size_t count,
                             float key_length);

/* The loss of a rule whose memory is one matrix S (dv, dk), as exported, which a token first changes and then reads by
 * y = S (scale q). A rule's own part is the change. `more` is the second part of a head, where the rule has one; it
 * starts at 1/Ip, or at 0 without Ip. */
typedef struct memory_token {
    const double *input[MEMORY_INPUTS]; /* of one head; NULL where the rule has none */
    double *more;
} memory_token;
typedef void memory_change(double *S, const memory_token *token, size_t dk, size_t dv);
double memory_matrix_loss(const memory_case *c, const memory_doubles *x, memory_change *change);

#endif
