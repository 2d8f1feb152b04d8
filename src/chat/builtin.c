/* SPDX-License-Identifier: MIT */
#include "chat/builtin.h"

#include <string.h>

#include "base/context.h"
#include "chat/chat.h"

/* An answer is written as it was, so that what the model read and wrote comes back: it follows "Assistant:" at once,
 * and ends where the stop "\nUser:" began. */
static const char plain[] =
    "{%- for message in messages -%}"
    "{%- if message.role == 'system' -%}{{- message.content + '\\n\\n' -}}"
    "{%- elif message.role == 'assistant' -%}"
    "{{- 'Assistant:' + message.content + ('\\n' if message.content.endswith('\\n') else '\\n\\n') -}}"
    "{%- elif message.role == 'user' -%}{{- 'User: ' + message.content + '\\n\\n' -}}"
    "{%- else -%}{{- raise_exception('the template plain has no messages of the role ' + message.role) -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}";

static const char chatml[] = "{%- for message in messages -%}"
                             "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
                             "{%- endfor -%}"
                             "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

/* As Meta's code writes it. What the system says is part of what the user says next. */
static const char llama2[] =
    "{%- set said = namespace(system=none) -%}"
    "{%- for message in messages -%}"
    "{%- if message.role == 'system' -%}"
    "{%- if loop.last or loop.nextitem.role != 'user' -%}"
    "{{- raise_exception('the template llama2 wants a user message right after a system message') -}}"
    "{%- endif -%}"
    "{%- set said.system = message.content -%}"
    "{%- elif message.role == 'assistant' -%}{{- ' ' + message.content.strip() + ' ' + (eos_token or '') -}}"
    "{%- elif message.role == 'user' -%}"
    "{{- (bos_token or '') + '[INST] ' -}}"
    "{%- if said.system is not none -%}"
    "{{- '<<SYS>>\\n' + said.system + '\\n<</SYS>>\\n\\n' + message.content.rstrip() -}}"
    "{%- else -%}{{- message.content.strip() -}}{%- endif -%}"
    "{{- ' [/INST]' -}}"
    "{%- set said.system = none -%}"
    "{%- else -%}{{- raise_exception('the template llama2 has no messages of the role ' + message.role) -}}"
    "{%- endif -%}"
    "{%- endfor -%}";

static const struct {
    const char *name, *text;
} templates[] = { { "chatml", chatml }, { "llama2", llama2 }, { "plain", plain } };
const char pal_chat_names[] = "chatml, llama2, plain";

const char *pal_chat_builtin(const char *name) {
    for (size_t i = 0; i < PAL_COUNT(templates); i++)
        if (strcmp(templates[i].name, name) == 0) return templates[i].text;
    return NULL;
}
