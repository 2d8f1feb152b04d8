/* SPDX-License-Identifier: MIT */
/* The parts of every rule's memory, as the interface names and measures them. */
#include "memory/rule.h"
#include "support/support.h"

static void what_does_not_exist_has_no_size(void **state) {
    (void)state;
    const pal_memory_shape shape = {
        .sequences = 1, .tokens = 1, .heads = 2, .key_heads = 2, .dk = 3, .dv = 4, .context = 5
    };
    assert_null(pal_memory_find(NULL));
    for (int r = 0; pal_memory_at(r); r++)
        for (int part = -1; part <= 2; part++)
            assert_int_equal(pal_memory_part_floats(pal_memory_at(r), &shape, part) > 0,
                             pal_memory_part_name(pal_memory_at(r), part) != NULL);
    float state_of[2 * 3 * 16] = { 0 }, *const nowhere[2] = { NULL, NULL };
    assert_true(sizeof state_of >= pal_memory_state_floats(pal_memory_find("gla"), &shape) * sizeof(float));
    pal_memory_export(pal_memory_find("gla"), &shape, NULL, nowhere, state_of);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_exist_has_no_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
