/* SPDX-License-Identifier: MIT */
#include "template/heap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"

enum { BLOCK = 64 << 10, ALIGN = 16 };

struct tpl_block {
    tpl_block *next;
    size_t used, room;
    _Alignas(ALIGN) unsigned char bytes[];
};

void *pal_tpl_take(tpl_heap *h, size_t n, size_t size) {
    if (size && n > TPL_MOST_BYTES / size) pal_tpl_fail(h, "more memory is needed than %d MiB", TPL_MOST_BYTES >> 20);
    const size_t bytes = (n * size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!h->blocks || h->blocks->room - h->blocks->used < bytes) {
        const size_t room = bytes > BLOCK ? bytes : BLOCK;
        if (room > TPL_MOST_BYTES - h->taken)
            pal_tpl_fail(h, "more memory is needed than %d MiB", TPL_MOST_BYTES >> 20);
        tpl_block *b = pal_alloc(1, sizeof *b + room);
        if (!b) pal_tpl_fail(h, "out of memory");
        b->room = room;
        b->next = h->blocks;
        h->blocks = b;
        h->taken += room;
    }
    void *block = h->blocks->bytes + h->blocks->used;
    h->blocks->used += bytes;
    return block;
}

void pal_tpl_release(tpl_heap *h) {
    for (tpl_block *b = h->blocks, *next; b; b = next) {
        next = b->next;
        pal_free(b);
    }
    h->blocks = NULL;
}

void pal_tpl_fail(tpl_heap *h, const char *format, ...) {
    size_t line = 1, column = 1;
    char sentence[768];
    va_list values;
    for (size_t i = 0; i < h->at && i < h->source_size; i++) {
        if (h->source[i] == '\n') line++, column = 1;
        else if ((h->source[i] & 0xC0) != 0x80) column++;
    }
    va_start(values, format);
    vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    pal_fail(h->err, PAL_E_FORMAT, "line %zu, column %zu: %s", line, column, sentence);
    longjmp(h->leave, 1);
}

void pal_tpl_step(tpl_heap *h, size_t steps) {
    h->steps += steps;
    if (h->steps > TPL_MOST_STEPS) pal_tpl_fail(h, "the template takes more than %d steps", TPL_MOST_STEPS);
}

void pal_tpl_enter(tpl_heap *h) {
    if (++h->depth > TPL_MOST_DEPTH) pal_tpl_fail(h, "nested more than %d deep", TPL_MOST_DEPTH);
}

static void reserve(tpl_heap *h, tpl_out *o, size_t more) {
    if (more > TPL_MOST_OUTPUT - o->size) pal_tpl_fail(h, "a text of more than %d MiB", TPL_MOST_OUTPUT >> 20);
    pal_tpl_step(h, more / 64);
    if (o->size + more <= o->room) return;
    size_t room = o->room ? 2 * o->room : 128;
    if (room < o->size + more) room = o->size + more;
    unsigned char *block = pal_tpl_take(h, 2, room);
    if (o->size) {
        memcpy(block, o->data, o->size);
        memcpy(block + room, o->mark, o->size);
    }
    o->data = block;
    o->mark = block + room;
    o->room = room;
}

void pal_tpl_put(tpl_heap *h, tpl_out *o, tpl_text text) {
    if (!text.size) return;
    reserve(h, o, text.size);
    memcpy(o->data + o->size, text.data, text.size);
    if (text.mark) memcpy(o->mark + o->size, text.mark, text.size);
    else memset(o->mark + o->size, 0, text.size);
    o->size += text.size;
}

void pal_tpl_put_bytes(tpl_heap *h, tpl_out *o, const void *data, size_t size, unsigned char mark) {
    if (!size) return;
    reserve(h, o, size);
    memcpy(o->data + o->size, data, size);
    memset(o->mark + o->size, mark, size);
    o->size += size;
}

void pal_tpl_put_string(tpl_heap *h, tpl_out *o, const char *text) { pal_tpl_put_bytes(h, o, text, strlen(text), 0); }

void pal_tpl_put_code(tpl_heap *h, tpl_out *o, uint32_t code, unsigned char mark) {
    unsigned char bytes[4];
    pal_tpl_put_bytes(h, o, bytes, pal_utf8_write(code, bytes), mark);
}

void pal_tpl_printf(tpl_heap *h, tpl_out *o, unsigned char mark, const char *format, ...) {
    char text[128];
    va_list values;
    va_start(values, format);
    const int size = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    pal_tpl_put_bytes(h, o, text, size < 0 ? 0 : (size_t)size, mark);
}
