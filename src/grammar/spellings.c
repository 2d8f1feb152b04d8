/* SPDX-License-Identifier: MIT */
#include "grammar/spellings.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "grammar/program.h"
#include "text/strings.h"

void pal_spellings_free(pal_spellings *s) {
    if (!s) return;
    pal_free(s->all.node), pal_free(s->all.order);
    pal_free(s->rest.node), pal_free(s->rest.order);
    pal_free(s->plain);
    pal_free(s);
}

pal_status pal_spell(const pal_tokenizer *tok, uint32_t id, pal_bytes *out, pal_error *err) {
    static const unsigned char mark = PAL_TOKEN_MARK;
    pal_status st;
    if (!pal_is_token(tok, id) || id == tok->unk || pal_tokenizer_is_end(tok, id)) return PAL_OK;
    const bool special = tok->flags[id] & PAL_TOKEN_SPECIAL;
    const pal_slice text = special ? pal_tokenizer_name(tok, id) : pal_tokenizer_text(tok, id);
    if (!text.size || text.size > PAL_SPELLING_MOST || memchr(text.data, PAL_TOKEN_MARK, text.size)) return PAL_OK;
    if (special && (st = pal_bytes_append(out, &mark, 1, err))) return st;
    if (!special && tok->join_blank && (st = pal_bytes_append(out, " ", 1, err))) return st;
    if ((st = pal_bytes_append(out, text.data, text.size, err))) return st;
    return special ? pal_bytes_append(out, &mark, 1, err) : PAL_OK;
}

typedef struct {
    const pal_strings *text;
    uint32_t *id; /* sorted by text */
    size_t count;
} sorted;

static int by_text(const void *a, const void *b, void *user) {
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const pal_slice x = pal_strings_at(user, i), y = pal_strings_at(user, j);
    const int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    if (order) return order;
    if (x.size != y.size) return x.size < y.size ? -1 : 1;
    return i < j ? -1 : i > j;
}

static size_t common(pal_slice a, pal_slice b) {
    size_t n = 0;
    while (n < a.size && n < b.size && a.data[n] == b.data[n]) n++;
    return n;
}

static pal_status build(pal_letters *l, const sorted *s, pal_error *err) {
    uint32_t open[PAL_SPELLING_MOST + 8]; /* nodes of the current text, by depth */
    size_t nodes = 0, depth = 0;
    pal_slice last = { NULL, 0 };
    pal_status st;
    for (size_t i = 0; i < s->count; i++) {
        const pal_slice text = pal_strings_at(s->text, s->id[i]);
        nodes += text.size - common(last, text);
        last = text;
    }
    void *block;
    if ((st = pal_alloc_named((void **)&l->node, nodes + 1, sizeof *l->node, "a grammar's vocabulary", err))) return st;
    if ((st = pal_alloc_named(&block, s->count + 1, sizeof *l->order, "a grammar's vocabulary", err))) return st;
    l->order = block;
    last.size = 0;
    for (size_t i = 0; i < s->count; i++) {
        const pal_slice text = pal_strings_at(s->text, s->id[i]);
        const size_t same = common(last, text);
        while (depth > same) l->node[open[--depth]].end = l->nodes;
        for (; depth < text.size; depth++) {
            open[depth] = l->nodes;
            l->node[l->nodes++] =
                (pal_letter){ .first = (uint32_t)i, .depth = (uint16_t)(depth + 1), .byte = text.data[depth] };
        }
        /* Nodes on the way to this one hold no token: theirs begin where its own do. */
        l->order[i] = s->id[i];
        last = text;
    }
    while (depth) l->node[open[--depth]].end = l->nodes;
    l->node[l->nodes].first = (uint32_t)s->count;
    return PAL_OK;
}

static bool is_plain(pal_slice text) {
    for (size_t i = 0; i < text.size; i++)
        if (!pal_byte_is_plain(text.data[i])) return false;
    return true;
}

static pal_status fill(pal_spellings *s, pal_strings *text, sorted *all, pal_error *err) {
    const size_t ids = pal_tokenizer_size(s->tok);
    pal_bytes one = { 0 };
    pal_status st = PAL_OK;
    s->words = (ids + 63) / 64;
    void *block;
    if ((st = pal_alloc_named(&block, s->words + 1, sizeof *s->plain, "a grammar's vocabulary", err))) return st;
    s->plain = block;
    for (uint32_t id = 0; id < ids && !st; id++) {
        one.size = 0;
        if ((st = pal_spell(s->tok, id, &one, err)) || (st = pal_strings_add(text, one.data, one.size, err))) break;
        if (one.size) all->id[all->count++] = id;
        if (one.size > s->longest) s->longest = one.size;
    }
    pal_bytes_free(&one);
    if (st) return st;
    qsort_r(all->id, all->count, sizeof *all->id, by_text, text);
    if ((st = build(&s->all, all, err))) return st;
    size_t rest = 0;
    for (size_t i = 0; i < all->count; i++) {
        const uint32_t id = all->id[i];
        if (is_plain(pal_strings_at(text, id))) s->plain[id / 64] |= (uint64_t)1 << id % 64;
        else all->id[rest++] = id;
    }
    all->count = rest;
    return build(&s->rest, all, err);
}

pal_status pal_spellings_new(pal_spellings **out, const pal_tokenizer *tok, pal_error *err) {
    void *block;
    pal_status st = pal_alloc_named(&block, 1, sizeof(pal_spellings), "a grammar's vocabulary", err);
    *out = NULL;
    if (st) return st;
    pal_spellings *s = block;
    pal_strings text = { 0 };
    sorted all = { .text = &text };
    s->tok = tok;
    st = pal_alloc_named((void **)&all.id, pal_tokenizer_size(tok) + 1, sizeof *all.id, "a grammar's vocabulary", err);
    if (!st) st = fill(s, &text, &all, err);
    pal_free(all.id);
    pal_strings_free(&text);
    if (st) pal_spellings_free(s);
    else *out = s;
    return st;
}
