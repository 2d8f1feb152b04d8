/* SPDX-License-Identifier: MIT */
/* Where snapshots of a prompt pay. Chats come again with more at their end, or with another last message, so memories
 * near the ends of messages are asked for again. Templates mark those ends by special tokens. A piece ends at one,
 * unless it would become short; that follows from the ids before it alone, so that a prompt is read in the same pieces,
 * to the same bits, whether some of it was known or not. */
#include "base/alloc.h"
#include "serve/inside.h"

enum {
    PIECE = 256, /* the engine's */
    SHORT = 64   /* tokens that are too few for a piece */
};

static bool is_special(const serve_text *t, size_t at) {
    return pal_tokenizer_is_special(t->job->model->bundle.tokenizer, t->prompt->data[at]);
}

/* The last end of a piece up to `at`. */
static size_t piece_end(const serve_text *t, size_t at) {
    size_t end = at / PIECE * PIECE;
    for (size_t i = 0; i < t->cut_count && t->cuts[i] <= at; i++)
        if (t->cuts[i] > end) end = t->cuts[i];
    return end;
}

bool serve_cut(serve_text *t) {
    const size_t count = t->prompt->count;
    size_t last = 0, mark = 0;
    if (t->cuts || count <= SHORT) return true;
    if (!(t->cuts = pal_alloc(count / SHORT + 1, sizeof *t->cuts))) return false;
    for (size_t at = SHORT; at < count; at++) {
        if (at - last < SHORT || at % PIECE < SHORT || PIECE - at % PIECE < SHORT || !is_special(t, at)) continue;
        t->cuts[t->cut_count++] = last = at;
    }
    t->marks[mark++] = piece_end(t, count - 1);
    for (size_t at = count - 1; at > 0 && mark < SERVE_MARKS; at--)
        if (is_special(t, at)) t->marks[mark++] = piece_end(t, at);
    return true;
}
