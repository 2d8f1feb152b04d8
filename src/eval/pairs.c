/* SPDX-License-Identifier: MIT */
#include "eval/pairs.h"

#include <string.h>

#include "base/alloc.h"
#include "eval/python_text.h"
#include "text/strings.h"

pal_status pal_encoder_new(pal_encoder *e, const pal_tokenizer *tok, size_t most, pal_error *err) {
    const int64_t bos = pal_tokenizer_bos(tok);
    *e = (pal_encoder){ .tok = tok, .most = most, .prefix = bos >= 0 ? bos : pal_tokenizer_eos(tok) };
    return pal_tokenizer_scratch_new(&e->scratch, tok, err);
}

void pal_encoder_free(pal_encoder *e) {
    pal_tokenizer_scratch_free(e->scratch);
    pal_bytes_free(&e->text);
    pal_ids_free(&e->context);
    *e = (pal_encoder){ 0 };
}

static pal_status encode(const pal_encoder *e, pal_slice text, pal_ids *ids, pal_error *err) {
    return pal_tokenizer_encode(e->tok, e->scratch, text.data, text.size, NULL, ids, err);
}

static pal_status no_prefix(pal_error *err) {
    return pal_fail(err, PAL_E_ARGUMENT,
                    "the context is empty, and the tokenizer has neither a BOS nor an EOS to stand for it");
}

/* Drops tokens at the beginning until the request reads no more than it may. */
static pal_status cut(const pal_encoder *e, pal_ids *ids, pal_pair *p, pal_error *err) {
    if (p->scored > e->most)
        return pal_fail(err, PAL_E_ARGUMENT, "a continuation of %zu tokens: the model reads at most %zu", p->scored,
                        e->most);
    if (p->count <= e->most + 1) return PAL_OK;
    p->cut = p->count - e->most - 1;
    memmove(ids->data + p->at, ids->data + p->at + p->cut, (p->count - p->cut) * sizeof *ids->data);
    ids->count -= p->cut;
    p->count -= p->cut;
    return PAL_OK;
}

pal_status pal_encode_pair(pal_encoder *e, pal_slice context, pal_slice continuation, pal_ids *ids, pal_pair *p,
                           pal_error *err) {
    const pal_slice kept = pal_py_rstrip(context);
    pal_status st;
    *p = (pal_pair){ .at = ids->count };
    e->text.size = 0;
    if ((st = pal_bytes_append(&e->text, context.data, context.size, err)) ||
        (st = pal_bytes_append(&e->text, continuation.data, continuation.size, err)))
        return st;
    e->context.count = 0;
    if (kept.size && (st = encode(e, kept, &e->context, err))) return st;
    if ((st = encode(e, pal_slice_of(&e->text), ids, err))) return st;
    size_t whole = ids->count - p->at, before = e->context.count;
    if (!kept.size && (e->prefix < 0 || !whole))
        return whole ? no_prefix(err) : pal_fail(err, PAL_E_ARGUMENT, "an empty request");
    if (!kept.size) { /* the prefix token is the context, unless the text begins with it */
        before = 1;
        if (ids->data[p->at] != (uint32_t)e->prefix || whole == 1) {
            if ((st = pal_ids_append(ids, 0, err))) return st;
            memmove(ids->data + p->at + 1, ids->data + p->at, whole++ * sizeof *ids->data);
            ids->data[p->at] = (uint32_t)e->prefix;
        }
    } else if (whole > before) { /* the context's own ids, even where the whole text begins with others */
        memcpy(ids->data + p->at, e->context.data, before * sizeof *ids->data);
    }
    if (whole <= before) {
        ids->count = p->at;
        return pal_fail(err, PAL_E_ARGUMENT, "a continuation without a token: '%.*s'",
                        (int)(continuation.size < 60 ? continuation.size : 60), (const char *)continuation.data);
    }
    p->context_tokens = before;
    p->count = whole;
    p->scored = whole - before;
    return cut(e, ids, p, err);
}

void pal_pairs_free(pal_pairs *p) {
    pal_free(p->data);
    *p = (pal_pairs){ 0 };
}

pal_status pal_pairs_add(pal_pairs *p, pal_pair pair, pal_error *err) {
    void *block = p->data;
    const pal_status st = pal_grow(&block, &p->capacity, p->count, p->count + 1, sizeof pair, err);
    p->data = block;
    if (!st) p->data[p->count++] = pair;
    return st;
}

pal_status pal_encode_rolling(pal_encoder *e, pal_slice text, pal_ids *ids, pal_pairs *windows, pal_error *err) {
    const size_t at = ids->count;
    pal_status st;
    if (e->prefix < 0) return no_prefix(err);
    if ((st = pal_ids_append(ids, (uint32_t)e->prefix, err)) || (st = encode(e, text, ids, err))) return st;
    const size_t tokens = ids->count - at - 1; /* ids[at + i] is token i, counted from 1 after the prefix */
    for (size_t done = 0; done < tokens && !st;) {
        const size_t scored = tokens - done < e->most ? tokens - done : e->most, end = done + scored;
        const size_t from = end > e->most ? end - e->most : 0;
        st = pal_pairs_add(
            windows,
            (pal_pair){
                .at = at + from, .count = end - from + 1, .scored = scored, .context_tokens = end - from + 1 - scored },
            err);
        done = end;
    }
    return st;
}
