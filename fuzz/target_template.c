/* SPDX-License-Identifier: MIT */
/* A chat template and the JSON it gets: a list of messages, or an object with messages, tools and kwargs. What renders
 * once renders the same again, and every byte belongs to the template or to the input. What is read serves chats. */
#include <jansson.h>

#include "chat/chat.h"
#include "input.h"

static const struct tm noon = { .tm_year = 126, .tm_mon = 10, .tm_mday = 18, .tm_hour = 12 };

static json_t *of(json_t *root, const char *name) { return json_is_object(root) ? json_object_get(root, name) : NULL; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_slice rest = { data, size };
    const pal_slice source = fuzz_next(&rest);
    pal_template *t;
    pal_error err;
    if (pal_template_read(&t, source.data, source.size, &err)) return 0;
    json_t *root = json_loadb((const char *)rest.data, rest.size, JSON_ALLOW_NUL, NULL);
    json_t *messages = json_is_object(root) ? of(root, "messages") : root, *kwargs = of(root, "kwargs");
    const pal_template_input in = { .messages = messages,
                                    .tools = of(root, "tools"),
                                    .kwargs = json_is_object(kwargs) ? kwargs : NULL,
                                    .bos = "<s>",
                                    .add_generation_prompt = true,
                                    .now = &noon };
    pal_rendered one, two;
    if (pal_template_render(t, &in, &one, &err) == PAL_OK) {
        FUZZ_CHECK(pal_template_render(t, &in, &two, &err) == PAL_OK);
        FUZZ_CHECK(one.size == two.size && memcmp(one.text, two.text, one.size) == 0);
        for (size_t i = 0; i < one.size; i++) FUZZ_CHECK(one.said[i] <= 1);
        pal_rendered_free(&one);
        pal_rendered_free(&two);
    } else FUZZ_CHECK(err.text[0]);
    json_decref(root);
    static pal_tokenizer *tok;
    pal_chat *chat;
    if (!tok) FUZZ_CHECK(!pal_tokenizer_open(&tok, "bytes", &err));
    FUZZ_CHECK(!pal_chat_open(&chat, tok, fuzz_file("template.jinja", source.data, source.size), &err));
    pal_chat_free(chat);
    pal_template_free(t);
    return 0;
}
