/* SPDX-License-Identifier: MIT */
/* What reading and rendering a template share: memory that is freed all at once, limits, and errors that leave from
 * anywhere by a long jump. Nothing in this directory holds anything that is not in a heap. */
#ifndef PAL_TEMPLATE_HEAP_H
#define PAL_TEMPLATE_HEAP_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

enum {
    TPL_MOST_BYTES = 512 << 20,  /* of memory */
    TPL_MOST_OUTPUT = 128 << 20, /* bytes of one text */
    TPL_MOST_STEPS = 20 << 20,   /* nodes evaluated, items looked at, and every 64 bytes of text handled */
    TPL_MOST_DEPTH = 1200,       /* expressions and statements in each other, while reading and while rendering */
    TPL_MOST_CALLS = 120         /* macros in each other */
};

typedef struct tpl_block tpl_block;

typedef struct tpl_heap {
    jmp_buf leave; /* set where reading or rendering starts */
    pal_error *err;
    tpl_block *blocks;
    size_t taken, steps;
    int depth;
    const char *source; /* of the template, for errors */
    size_t source_size;
    uint32_t at; /* offset of what is being read or run */
} tpl_heap;

/* Zeroed memory, aligned for anything. */
void *pal_tpl_take(tpl_heap *h, size_t n, size_t size);
void pal_tpl_release(tpl_heap *h);

/* Leaves with "line L, column C: sentence". */
_Noreturn void pal_tpl_fail(tpl_heap *h, const char *format, ...) PAL_PRINTF(2, 3);

/* Counts work; leaves when it is too much. */
void pal_tpl_step(tpl_heap *h, size_t steps);
void pal_tpl_enter(tpl_heap *h); /* one deeper; each with a pal_tpl_exit */
static inline void pal_tpl_exit(tpl_heap *h) { h->depth--; }

/* A piece of text with its marks: mark[i] is 1 where the byte comes from the input. No marks: all is the template's. */
typedef struct tpl_text {
    const unsigned char *data, *mark;
    size_t size;
} tpl_text;

/* A text that grows. */
typedef struct tpl_out {
    unsigned char *data, *mark;
    size_t size, room;
} tpl_out;
void pal_tpl_put(tpl_heap *h, tpl_out *o, tpl_text text);
void pal_tpl_put_bytes(tpl_heap *h, tpl_out *o, const void *data, size_t size, unsigned char mark);
void pal_tpl_put_string(tpl_heap *h, tpl_out *o, const char *text);                /* the template's */
void pal_tpl_put_code(tpl_heap *h, tpl_out *o, uint32_t code, unsigned char mark); /* a character */
void pal_tpl_printf(tpl_heap *h, tpl_out *o, unsigned char mark, const char *format, ...) PAL_PRINTF(4, 5);
static inline tpl_text pal_tpl_out_text(const tpl_out *o) {
    return (tpl_text){ .data = o->data, .mark = o->mark, .size = o->size };
}

#endif
