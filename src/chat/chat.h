/* SPDX-License-Identifier: MIT */
/* Chats as a model means them: messages become a prompt by its own template, and what it writes becomes a message. */
#ifndef PAL_CHAT_CHAT_H
#define PAL_CHAT_CHAT_H

#include "chat/reader.h"
#include "palimpsa/grammar.h"
#include "template/template.h"

enum { PAL_CHAT_MESSAGES = 4096, PAL_CHAT_TOOLS = 1024 };

/* A template, and what follows from it and from the vocabulary. */
typedef struct pal_chat {
    pal_template *template;
    const pal_tokenizer *tok;
    char *bos, *eos;                      /* NULL: none */
    const pal_call_syntax *syntax;        /* of calls; NULL: not known */
    const char *think_open, *think_close; /* around thinking; NULL: there is none */
    char *stop;                           /* ends an answer; NULL: nothing but the end of a text */
    pal_ids shown;                        /* special tokens that mark calls and thinking */
    bool takes_tools;
    bool text_arguments;         /* expects the arguments of a call as the text of an object */
    bool null_content;           /* a message of calls alone has no content, not an empty one */
    bool says_developer;         /* knows this role */
    bool says_thinking;          /* as messages call what others call reasoning_content */
    struct pal_chat *with_tools; /* another template, for requests with tools; NULL: the same */
} pal_chat;

extern const char pal_chat_names[]; /* of the templates that are built in */
/* given: a built-in template's name, or a file with a template; NULL: the tokenizer's own, else "plain". The tokenizer
 * is borrowed. */
pal_status pal_chat_open(pal_chat **out, const pal_tokenizer *tok, const char *given, pal_error *err);
void pal_chat_free(pal_chat *chat); /* NULL is fine */
/* The one for a request with tools, or without. */
const pal_chat *pal_chat_for(const pal_chat *chat, bool tools);

/* Messages as clients send them, checked, as templates want them; to be released. */
pal_status pal_chat_messages(json_t **out, const pal_chat *chat, const json_t *given, pal_error *err);
pal_status pal_chat_tools(json_t **out, const json_t *given, pal_error *err);

typedef struct pal_chat_prompt {
    pal_rendered text;
    pal_ids ids;
    bool thinking; /* it ends with the beginning of the model's thinking */
} pal_chat_prompt;
/* messages and tools as the two above give them; of the input bos and eos are not looked at. */
pal_status pal_chat_render(const pal_chat *chat, const pal_template_input *in, pal_chat_prompt *out, pal_error *err);
/* ... and its ids. Each text is encoded once, with what the template puts around it. */
pal_status pal_chat_encode(const pal_chat *chat, pal_tokenizer_scratch *scratch, pal_chat_prompt *prompt,
                           pal_error *err);
void pal_chat_prompt_free(pal_chat_prompt *p); /* fine on zeroes */

/* For the reader of an answer to this prompt. tools NULL: calls are not looked for. */
pal_reader_options pal_chat_reading(const pal_chat *chat, const json_t *tools, bool thinking);

/* What an answer must be, apart from thinking that it begins with: one of what is asked for. */
typedef struct pal_chat_rules {
    const json_t *schema; /* JSON under it */
    bool object;          /* any JSON object */
    const json_t *tools;  /* calls of these; with JSON, which may come instead, only if it is known how */
    const char *only;     /* calls of this tool alone; NULL: of any */
    bool single;          /* one call */
    bool thinking;        /* of the prompt */
} pal_chat_rules;
pal_status pal_chat_grammar(pal_grammar **out, const pal_chat *chat, const pal_chat_rules *rules, pal_error *err);

#endif
