/* SPDX-License-Identifier: MIT */
/* What a model writes: the first byte says in which syntax, the second whether it thinks and into what pieces it comes
 * apart. Pieces of any size give what the whole gives, arguments are objects, and all else is text. */
#include <jansson.h>

#include "chat/reader.h"
#include "input.h"

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"a\": "
    "{\"type\": \"string\"}, \"b\": {\"type\": [\"string\", \"null\"]}, \"c\": {\"type\": \"integer\"}}}}}]";

static bool same_bytes(const pal_bytes *a, const pal_bytes *b) {
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

static void read_all(pal_reader *r, const pal_reader_options *o, const uint8_t *text, size_t size, size_t each) {
    pal_error err;
    pal_reader_begin(r, o);
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < each ? size - at : each;
        FUZZ_CHECK(pal_reader_push(r, text + at, n, false, &err) == PAL_OK);
    }
    FUZZ_CHECK(pal_reader_push(r, NULL, 0, true, &err) == PAL_OK && !r->held.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *tools;
    if (!tools) tools = json_loads(tools_text, 0, NULL);
    if (size < 2) return 0;
    const bool thinks = data[1] & 1;
    const pal_reader_options o = { .syntax = &pal_call_syntaxes[data[0] % pal_call_syntax_count],
                                   .tools = tools,
                                   .think_open = thinks ? "<think>" : NULL,
                                   .think_close = thinks ? "</think>" : NULL,
                                   .thinking = thinks && data[1] & 2 };
    pal_reader whole, pieces;
    read_all(&whole, &o, data + 2, size - 2, size);
    read_all(&pieces, &o, data + 2, size - 2, 1 + (data[1] >> 2));
    FUZZ_CHECK(same_bytes(&whole.content, &pieces.content) && same_bytes(&whole.reasoning, &pieces.reasoning));
    FUZZ_CHECK(whole.calls.count == pieces.calls.count);
    for (size_t i = 0; i < whole.calls.count; i++) {
        const pal_call *one = &whole.calls.list[i], *two = &pieces.calls.list[i];
        FUZZ_CHECK(*one->name && strcmp(one->name, two->name) == 0 && strcmp(one->arguments, two->arguments) == 0);
        json_t *arguments = json_loads(one->arguments, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        FUZZ_CHECK(json_is_object(arguments));
        json_decref(arguments);
    }
    if (!thinks && !whole.calls.count)
        FUZZ_CHECK(whole.content.size == size - 2 &&
                   memcmp(whole.content.data ? whole.content.data : (const void *)"", data + 2, size - 2) == 0);
    pal_reader_free(&whole);
    pal_reader_free(&pieces);
    return 0;
}
