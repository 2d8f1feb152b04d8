/* SPDX-License-Identifier: MIT */
/* Writes one association into a Palimpsa memory and reads it back, with the uncertainty of the answer.
 *     cc remember.c $(pkg-config --cflags --libs palimpsa) -o remember && ./remember */
#include <palimpsa/palimpsa.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    const pal_memory_rule *rule = pal_memory_find("palimpsa");
    const int one_sequence[] = { 0, 2 };                    /* two tokens: write, then read */
    const float q[] = { 0, 0, 1, 0 }, k[] = { 1, 0, 0, 0 }; /* the key (1,0), asked for at token 1 */
    const float v[] = { 3, -2, 0, 0 }, b[] = { 1, 1, 0, 0 }, dt[] = { 0.1f, 0.1f }, A = 0.01f, prior = 1;
    float y[4], y_var[4];
    pal_memory_run run = {
        .shape = { .sequences = 1,
                   .tokens = 2,
                   .cu_seqlens = one_sequence,
                   .heads = 1,
                   .key_heads = 1,
                   .dk = 2,
                   .dv = 2 },
        .in = { .q = { q, 2 },
                .k = { k, 2 },
                .v = { v, 2 },
                .b = { b, 2 },
                .dt = { dt, 1 },
                .A = &A,
                .Ip = &prior,
                .scale = 1 },
        .y = { y, 2 },
        .y_var = { y_var, 2 },
    };
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, 1, NULL, &err)) return fprintf(stderr, "%s\n", err.text), 2;
    run.scratch = aligned_alloc(64, (pal_memory_scratch_bytes(rule, cx, &run.shape, PAL_FORWARD) + 64) / 64 * 64);
    if (pal_memory_forward(rule, cx, &run, &err)) return fprintf(stderr, "%s\n", err.text), 2;
    printf("remembered %.3f %.3f, variance %.3f %.3f\n", (double)y[2], (double)y[3], (double)y_var[2],
           (double)y_var[3]);
    free(run.scratch);
    pal_context_free(cx);
    return 0;
}
