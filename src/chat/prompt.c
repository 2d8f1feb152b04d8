/* SPDX-License-Identifier: MIT */
/* A prompt: what the template writes, with what people say marked, and its ids. */
#include <string.h>

#include "chat/chat.h"
#include "text/strings.h"
#include "text/tokenizer.h"

/* Where a text of the template's own stands last; NULL: nowhere. */
static const unsigned char *last_of(const pal_rendered *text, const char *what) {
    const size_t size = strlen(what);
    for (size_t i = text->size >= size ? text->size - size + 1 : 0; i--;)
        if (memcmp(text->text + i, what, size) == 0 && !memchr(text->said + i, 1, size)) return text->text + i;
    return NULL;
}

static bool ends_with_thinking(const pal_chat *chat, const pal_rendered *text) {
    if (!chat->think_open) return false;
    const unsigned char *open = last_of(text, chat->think_open), *end = text->text + text->size;
    if (!open) return false;
    for (open += strlen(chat->think_open); open < end; open++)
        if (!strchr(" \n\t\r", *open)) return false;
    return true;
}

pal_status pal_chat_render(const pal_chat *chat, const pal_template_input *in, pal_chat_prompt *out, pal_error *err) {
    pal_template_input full = *in;
    *out = (pal_chat_prompt){ 0 };
    full.bos = chat->bos, full.eos = chat->eos;
    const pal_status st = pal_template_render(chat->template, &full, &out->text, err);
    if (!st) out->thinking = ends_with_thinking(chat, &out->text);
    return st;
}

pal_status pal_chat_encode(const pal_chat *chat, pal_tokenizer_scratch *scratch, pal_chat_prompt *p, pal_error *err) {
    const pal_encode_options options = { .said = p->text.said };
    p->ids.count = 0;
    return pal_tokenizer_encode(chat->tok, scratch, p->text.text, p->text.size, &options, &p->ids, err);
}

void pal_chat_prompt_free(pal_chat_prompt *p) {
    pal_rendered_free(&p->text);
    pal_ids_free(&p->ids);
}

pal_reader_options pal_chat_reading(const pal_chat *chat, const json_t *tools, bool thinking) {
    return (pal_reader_options){ .syntax = tools ? chat->syntax : NULL,
                                 .tools = tools,
                                 .think_open = chat->think_open,
                                 .think_close = chat->think_close,
                                 .thinking = thinking };
}
