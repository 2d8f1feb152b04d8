/* SPDX-License-Identifier: MIT */
/* WikiText's tokens back into ordinary text: a list of replacements, each one pass over the text. */
#include "eval/python_text.h"
#include "eval/tasks/task.h"
#include "text/strings.h"

/* NULL in front: the pairs of signs are tightened here. */
static const char *const replacements[][2] = {
    { "s '", "s'" },
    { " @-@ ", "-" },
    { " @,@ ", "," },
    { " @.@ ", "." },
    { " : ", ": " },
    { " ; ", "; " },
    { " . ", ". " },
    { " ! ", "! " },
    { " ? ", "? " },
    { " , ", ", " },
    { NULL, "()" },
    { NULL, "[]" },
    { NULL, "{}" },
    { NULL, "\"\"" },
    { NULL, "''" },
    { "= = = =", "====" },
    { "= = =", "===" },
    { "= =", "==" },
    { " \xC2\xB0 ", "\xC2\xB0" },
    { " \n", "\n" },
    { "\n ", "\n" },
    { " N ", " 1 " },
    { " 's", "'s" },
};

/* White space just inside an opening sign and the next closing one goes. */
static pal_status tighten(pal_bytes *out, pal_slice t, const char signs[2], pal_error *err) {
    pal_status st = PAL_OK;
    while (t.size && !st) {
        const unsigned char *open = memchr(t.data, signs[0], t.size);
        const size_t before = open ? (size_t)(open - t.data) + 1 : t.size;
        const unsigned char *close = before < t.size ? memchr(t.data + before, signs[1], t.size - before) : NULL;
        if (!open || !close) return pal_bytes_append(out, t.data, t.size, err);
        const size_t inside = (size_t)(close - t.data) - before;
        const pal_slice kept = pal_py_strip((pal_slice){ t.data + before, inside });
        if (!(st = pal_bytes_append(out, t.data, before, err)) &&
            !(st = pal_bytes_append(out, kept.data, kept.size, err)))
            st = pal_bytes_append(out, &signs[1], 1, err);
        t.data += before + inside + 1;
        t.size -= before + inside + 1;
    }
    return st;
}

pal_status pal_wikitext_detokenize(pal_bytes *out, pal_slice text, pal_error *err) {
    pal_bytes work[2] = { { 0 }, { 0 } };
    pal_status st = pal_bytes_append(&work[0], text.data, text.size, err);
    size_t which = 0;
    for (size_t i = 0; i < sizeof replacements / sizeof *replacements && !st; i++, which = 1 - which) {
        const char *from = replacements[i][0], *to = replacements[i][1];
        work[1 - which].size = 0;
        st = from ? pal_py_replace(&work[1 - which], pal_slice_of(&work[which]), from, to, err)
                  : tighten(&work[1 - which], pal_slice_of(&work[which]), to, err);
    }
    if (!st) st = pal_bytes_append(out, work[which].data, work[which].size, err);
    pal_bytes_free(&work[0]);
    pal_bytes_free(&work[1]);
    return st;
}
