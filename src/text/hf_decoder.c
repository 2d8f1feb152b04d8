/* SPDX-License-Identifier: MIT */
/* The decoder of a tokenizer.json: a chain that the package runs over the list of a text's tokens.
 *
 * Here a text is decoded token by token, so every id gets its text once, when the file is read, and only what depends
 * on the place in the text is left for later: the signs that Metaspace drops from the first token, the blanks that
 * Strip takes from the start of the fused text. Chains whose steps would have to see several tokens at once are
 * refused. */
#include "base/alloc.h"
#include "text/hf_json.h"
#include "text/utf8.h"

#define SIGN "\xE2\x96\x81"

typedef enum { REPLACE, STRIP, METASPACE, BYTE_FALLBACK, BYTE_LEVEL } text_kind;
typedef struct {
    text_kind kind;
    pal_slice from, to; /* Replace; Strip: from */
    json_int_t count;   /* Strip */
} text_step;

typedef struct {
    pal_tokenizer *tok;
    const char *name;
    text_step steps[PAL_STEPS_MAX];
    size_t count;
    bool fused;           /* tokens are one string from here on */
    bool drop_first_sign; /* Metaspace: the first token loses its signs */
    pal_error *err;
} chain;

static bool is(pal_slice text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

static bool has(const chain *c, text_kind kind) {
    for (size_t i = 0; i < c->count; i++)
        if (c->steps[i].kind == kind) return true;
    return false;
}

static pal_status refuse(const chain *c, const char *what) {
    return pal_fail(c->err, PAL_E_UNSUPPORTED, "%s: the decoder %s is not supported", c->name, what);
}

static pal_status add(chain *c, text_step step) {
    if (c->count == PAL_STEPS_MAX)
        return pal_fail(c->err, PAL_E_UNSUPPORTED, "%s: more than %d decoder steps", c->name, PAL_STEPS_MAX);
    c->steps[c->count++] = step;
    return PAL_OK;
}

static pal_status add_replace(chain *c, const json_t *node) {
    const json_t *from = json_object_get(json_object_get(node, "pattern"), "String"),
                 *to = json_object_get(node, "content");
    uint32_t code;
    if (!json_is_string(from) || !json_is_string(to) || json_string_length(from) == 0)
        return refuse(c, "Replace with anything but two strings");
    const text_step step = { .kind = REPLACE, .from = pal_json_slice(from), .to = pal_json_slice(to) };
    if (has(c, METASPACE)) return refuse(c, "Replace after Metaspace");
    if (c->tok->strip_start) return refuse(c, "Replace after Fuse and Strip");
    /* One character is the same in one string or in several, unless single bytes make it up. */
    if (c->fused && pal_utf8_read(step.from.data, step.from.size, &code) != step.from.size)
        return refuse(c, "Replace of several characters after Fuse");
    if ((has(c, BYTE_FALLBACK) || has(c, BYTE_LEVEL)) && (!c->fused || step.from.size > 1))
        return refuse(c, "Replace after bytes");
    return add(c, step);
}

static pal_status add_strip(chain *c, const json_t *node) {
    const json_t *content = json_object_get(node, "content");
    const json_int_t start = json_integer_value(json_object_get(node, "start")),
                     stop = json_integer_value(json_object_get(node, "stop"));
    if (!json_is_string(content) || json_string_length(content) == 0 || start < 0 || start > UINT32_MAX || stop != 0)
        return refuse(c, "Strip at the end");
    if (!c->fused) {
        if (has(c, METASPACE) || has(c, BYTE_FALLBACK))
            return refuse(c, "Strip of each token after Metaspace or bytes");
        return add(c, (text_step){ .kind = STRIP, .from = pal_json_slice(content), .count = start });
    }
    if (!is(pal_json_slice(content), " ")) return refuse(c, "Strip after Fuse of anything but blanks");
    c->tok->strip_start += (size_t)start;
    return PAL_OK;
}

static pal_status add_metaspace(chain *c, const json_t *node) {
    const json_t *sign = json_object_get(node, "replacement");
    const char *when = json_string_value(json_object_get(node, "prepend_scheme"));
    if (sign && !is(pal_json_slice(sign), SIGN)) return refuse(c, "Metaspace with a sign other than U+2581");
    if (c->count || c->fused) return refuse(c, "Metaspace after another decoder");
    c->drop_first_sign = when ? strcmp(when, "never") != 0 : !json_is_false(json_object_get(node, "add_prefix_space"));
    return add(c, (text_step){ .kind = METASPACE });
}

static pal_status add_node(chain *c, const json_t *node, int depth) {
    const char *type = pal_json_type(node);
    pal_status st;
    if (depth > PAL_NESTING_MAX)
        return pal_fail(c->err, PAL_E_FORMAT, "%s: sequences within sequences, more than %d deep", c->name,
                        PAL_NESTING_MAX);
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(node, "decoders");
        for (size_t i = 0; i < json_array_size(list); i++)
            if ((st = add_node(c, json_array_get(list, i), depth + 1))) return st;
        return PAL_OK;
    }
    if (strcmp(type, "Replace") == 0) return add_replace(c, node);
    if (strcmp(type, "Strip") == 0) return add_strip(c, node);
    if (strcmp(type, "Metaspace") == 0) return add_metaspace(c, node);
    if (strcmp(type, "Fuse") == 0) {
        c->fused = true;
        return PAL_OK;
    }
    if (strcmp(type, "ByteFallback") == 0) {
        if (c->fused || has(c, BYTE_FALLBACK)) return refuse(c, "ByteFallback after Fuse, ByteLevel or itself");
        return add(c, (text_step){ .kind = BYTE_FALLBACK });
    }
    if (strcmp(type, "ByteLevel") == 0) {
        if (c->count || c->fused) return refuse(c, "ByteLevel after another decoder");
        c->fused = true;
        return add(c, (text_step){ .kind = BYTE_LEVEL });
    }
    return pal_hf_unsupported(c->name, "decoder", node, c->err);
}

/* `first`: of the first token Metaspace drops the signs. */
static pal_status apply(const text_step *step, bool first, pal_slice text, pal_growth *g, pal_bytes *out,
                        pal_error *err) {
    const pal_slice sign = { (const unsigned char *)SIGN, 3 }, blank = { (const unsigned char *)" ", !first };
    const size_t before = out->size;
    unsigned byte;
    switch (step->kind) {
    case REPLACE: return pal_replace(text, step->from, step->to, g, out, err);
    case METASPACE: return pal_replace(text, sign, blank, g, out, err);
    case STRIP:
        for (json_int_t i = 0; i < step->count && text.size >= step->from.size &&
                               memcmp(text.data, step->from.data, step->from.size) == 0;
             i++)
            text.data += step->from.size, text.size -= step->from.size;
        break;
    case BYTE_FALLBACK:
        if (pal_is_byte_name(text, &byte))
            return pal_bytes_append(out, (unsigned char[1]){ (unsigned char)byte }, 1, err);
        break;
    case BYTE_LEVEL: {
        const pal_status st = pal_byte_level_text(text, out, err);
        if (st || out->size > before) return st;
    }
    }
    return pal_bytes_append(out, text.data, text.size, err);
}

static pal_status add_text(const chain *c, bool first, pal_slice spelling, pal_growth *g, pal_strings *texts) {
    pal_bytes now = { 0 }, next = { 0 };
    pal_status st = pal_bytes_append(&now, spelling.data, spelling.size, c->err);
    for (size_t i = 0; i < c->count && !st; i++) {
        next.size = 0;
        st = apply(&c->steps[i], first, (pal_slice){ now.data, now.size }, g, &next, c->err);
        const pal_bytes spare = now;
        now = next;
        next = spare;
    }
    if (!st) st = pal_strings_add(texts, now.data, now.size, c->err);
    pal_bytes_free(&now);
    pal_bytes_free(&next);
    return st;
}

pal_status pal_hf_decoder(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err) {
    chain c = { .tok = tok, .name = name, .err = err };
    pal_tokenizer_scratch s = { .growth = pal_growth_of(tok->names.bytes.size, PAL_TOKENS_GROW, name) };
    pal_status st = PAL_OK;
    void *block;
    if (!node || json_is_null(node)) tok->join_blank = true;
    else if ((st = add_node(&c, node, 0))) return st;
    /* What the package gives for a normalized token is what it looks for, not what the file says. */
    if ((st = pal_alloc_named(&block, tok->size, sizeof(bool), "added tokens", err))) return st;
    bool *normalized = block;
    for (size_t i = 0; i < tok->added_count; i++) normalized[tok->added[i].id] = tok->added[i].normalized;
    for (size_t id = 0; id < tok->size && !st; id++) {
        pal_slice spelling = pal_strings_at(&tok->names, id);
        if (normalized[id]) st = pal_normalize(tok, &s, spelling, &spelling, err);
        if (!st) st = add_text(&c, false, spelling, &s.growth, &tok->texts);
        if (!st && c.drop_first_sign) st = add_text(&c, true, spelling, &s.growth, &tok->first_texts);
    }
    pal_free(block);
    pal_normal_scratch_free(&s);
    return st;
}
