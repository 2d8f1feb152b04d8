/* SPDX-License-Identifier: MIT */
/* Products of stepping rows with weights of every stored type, at the shapes of Mamba2 130M and 780M, next to reading
 * as many bytes. Each call meets another copy of the weights, so that they come from memory as a model's do. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/context.h"
#include "base/random.h"
#include "bench.h"
#include "cli.h"
#include "kernels/product/product.h"

enum { MEMORY = 192 << 20, PATTERN = 64 /* rows that are repeated */, MOST_ROWS = 32, PROMPT = 512 };

typedef struct {
    const pal_context *cx;
    unsigned char *memory;
    float *x, *y;
    void *scratch;
} shared;

typedef struct {
    shared *s;
    pal_matrix w;
    int rows;
    size_t copies, next;
} product;

static const unsigned char *next_copy(product *p) {
    const size_t at = p->next++ % p->copies;
    return p->s->memory + at * p->w.row_bytes * (size_t)p->w.rows;
}

static pal_matvec_args arguments(product *p) {
    p->w.data = next_copy(p);
    return (pal_matvec_args){ .w = &p->w,
                              .rows = p->rows,
                              .x = p->s->x,
                              .ldx = (size_t)p->w.columns,
                              .y = p->s->y,
                              .ldy = (size_t)p->w.rows,
                              .scratch = p->s->scratch };
}

static void step(void *arg) {
    product *p = arg;
    const pal_matvec_args a = arguments(p);
    pal_matvec(p->s->cx, &a);
}

static void prompt(void *arg) {
    product *p = arg;
    const pal_matvec_args a = arguments(p);
    pal_product(p->s->cx, &a);
}

static void read_all(void *arg) {
    const shared *s = arg;
    bench_read(s->cx, (const float *)(const void *)s->memory, MEMORY / sizeof(float));
}

/* Fills the memory with rows of normal values in the type of w. */
static int fill(const shared *s, const pal_matrix *w) {
    const size_t n = PATTERN * (size_t)w->columns, bytes = PATTERN * w->row_bytes;
    float *values = pal_alloc(n, sizeof *values);
    if (!values) return cli_error(CLI_FAILED, "bench: out of memory for rows");
    pal_fill_normal(s->cx, values, n, 1, 1, 0.02);
    pal_blocks_encode(pal_block_format_of(w->type), values, n, s->memory);
    pal_free(values);
    for (size_t at = bytes; at < MEMORY; at += bytes)
        memcpy(s->memory + at, s->memory, at + bytes <= MEMORY ? bytes : MEMORY - at);
    return CLI_OK;
}

static int bench_shape(bench *b, shared *s, int in, int out, const char *title) {
    static const pal_dtype types[] = { PAL_F32,  PAL_F16,  PAL_BF16, PAL_Q8_0, PAL_Q6_K,
                                       PAL_Q5_K, PAL_Q5_0, PAL_Q4_K, PAL_Q4_0 };
    for (size_t t = 0; t < PAL_COUNT(types); t++) {
        const pal_matrix w = pal_matrix_of(types[t], s->memory, out, in);
        const size_t bytes = w.row_bytes * (size_t)out;
        const int code = fill(s, &w);
        if (code) return code;
        static const int rows[] = { 1, 8, MOST_ROWS, PROMPT };
        product products[PAL_COUNT(rows)];
        bench_item items[1 + PAL_COUNT(rows)];
        items[0] = bench_make("reading", "192 MiB", "plain", pal_context_threads(s->cx), read_all, s);
        items[0].bytes = MEMORY;
        items[0].hidden = t > 0;
        int count = 1;
        for (size_t r = 0; r < PAL_COUNT(rows); r++) {
            char name[48], shape[64];
            const bool steps = rows[r] != PROMPT;
            if (!steps && out > 8192) continue; /* of a prompt, only the last row meets the head */
            products[r] = (product){ .s = s, .w = w, .rows = rows[r], .copies = MEMORY / bytes };
            snprintf(name, sizeof name, "%s.%s", steps ? "matvec" : "product", pal_dtype_name(types[t]));
            snprintf(shape, sizeof shape, "%d -> %d, %d row%s", in, out, rows[r], rows[r] == 1 ? "" : "s");
            bench_item *item = &items[count++];
            *item = bench_make(name, shape, pal_cpu_level_name(pal_context_level(s->cx)), pal_context_threads(s->cx),
                               steps ? step : prompt, &products[r]);
            if (steps) {
                item->bytes = (double)bytes;
                item->bound = 0, item->bound_share = (double)bytes / MEMORY;
            } else item->flops = 2.0 * in * out * PROMPT;
        }
        bench_group(b, t ? "" : title, items, count);
    }
    return CLI_OK;
}

int bench_matvec(bench *b, const pal_context *cx) {
    static const int shapes[][2] = { { 768, 3352 }, { 1536, 768 }, { 768, 50288 }, { 1536, 6448 }, { 3072, 1536 } };
    shared *s = pal_alloc(1, sizeof *s);
    if (!s) return cli_error(CLI_FAILED, "bench: out of memory");
    *s = (shared){ .cx = cx, .memory = pal_alloc(MEMORY, 1) };
    s->x = pal_alloc((size_t)PROMPT * 3072, sizeof *s->x);
    s->y = pal_alloc((size_t)PROMPT * 8192, sizeof *s->y); /* more than 32 rows of 50288 */
    s->scratch = pal_alloc(pal_product_scratch_bytes(PROMPT, 3072), 1);
    int code = CLI_OK;
    if (!s->memory || !s->x || !s->y || !s->scratch) code = cli_error(CLI_FAILED, "bench: out of memory for weights");
    else pal_fill_normal(cx, s->x, (size_t)PROMPT * 3072, 1, 2, 1.0);
    for (size_t i = 0; i < PAL_COUNT(shapes) && !code; i++)
        code = bench_shape(b, s, shapes[i][0], shapes[i][1],
                           i ? "" : "matvec: rows that step, and prompts, with weights of every stored type");
    pal_free(s->memory), pal_free(s->x), pal_free(s->y), pal_free(s->scratch), pal_free(s);
    return code;
}
