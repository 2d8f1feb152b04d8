/* SPDX-License-Identifier: MIT */
#include "chat/calls.h"

#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "chat/scan.h"
#include "format/json.h"

/* Of two that begin alike and could read the same text, the stricter comes first. */
const pal_call_syntax pal_call_syntaxes[] = {
    /* clang-format off */
    { .name = "JSON in <tool_call>", .kind = PAL_CALL_JSON, .open = "<tool_call>", .close = "</tool_call>",
      .call = "name", .after = "arguments" },
    { .name = "a list in <TOOLCALL>", .kind = PAL_CALL_JSON, .open = "<TOOLCALL>", .close = "</TOOLCALL>",
      .call = "name", .after = "arguments", .list = true },
    { .name = "functions and parameters in <tool_call>", .kind = PAL_CALL_XML, .open = "<tool_call>",
      .close = "</tool_call>", .call = "<function=", .after = ">", .end = "</function>", .key = "<parameter=",
      .key_end = ">", .value = "", .value_end = "</parameter>", .lines = true },
    { .name = "calls in Python", .kind = PAL_CALL_PYTHON, .open = "<|tool_call_start|>",
      .close = "<|tool_call_end|>", .call = "" },
    { .name = "keys and values in <tool_call>", .kind = PAL_CALL_XML, .open = "<tool_call>",
      .close = "</tool_call>", .call = "", .after = "", .end = "", .key = "<arg_key>", .key_end = "</arg_key>",
      .value = "<arg_value>", .value_end = "</arg_value>" },
    { .name = "functions and parameters in <seed:tool_call>", .kind = PAL_CALL_XML, .open = "<seed:tool_call>",
      .close = "</seed:tool_call>", .call = "<function=", .after = ">", .end = "</function>",
      .key = "<parameter=", .key_end = ">", .value = "", .value_end = "</parameter>" },
    { .name = "invocations in <minimax:tool_call>", .kind = PAL_CALL_XML, .open = "<minimax:tool_call>",
      .close = "</minimax:tool_call>", .call = "<invoke name=\"", .after = "\">", .end = "</invoke>",
      .key = "<parameter name=\"", .key_end = "\">", .value = "", .value_end = "</parameter>" },
    { .name = "functions and params", .kind = PAL_CALL_XML, .open = "", .close = "",
      .call = "<function name=\"", .after = "\">", .end = "</function>", .key = "<param name=\"",
      .key_end = "\">", .value = "", .value_end = "</param>" },
    { .name = "JSON in <tool_calls>", .kind = PAL_CALL_JSON, .open = "<tool_calls>", .close = "</tool_calls>",
      .call = "name", .after = "arguments", .list = true },
    { .name = "a list after <|tool_call|>", .kind = PAL_CALL_JSON, .open = "<|tool_call|>", .close = "",
      .call = "name", .after = "arguments", .list = true },
    { .name = "a list after [TOOL_CALLS]", .kind = PAL_CALL_JSON, .open = "[TOOL_CALLS]", .close = "",
      .call = "name", .after = "arguments", .list = true },
    { .name = "names and JSON after [TOOL_CALLS]", .kind = PAL_CALL_NAMED, .open = "", .close = "",
      .call = "[TOOL_CALLS]", .after = "[ARGS]", .end = "" },
    { .name = "a list in <|START_ACTION|>", .kind = PAL_CALL_JSON, .open = "<|START_ACTION|>",
      .close = "<|END_ACTION|>", .call = "tool_name", .after = "parameters", .list = true },
    { .name = "a list in <|tools_prefix|>", .kind = PAL_CALL_JSON, .open = "<|tools_prefix|>",
      .close = "<|tools_suffix|>", .call = "", .list = true, .keyed = true },
    { .name = "JSON after <|function_call|>", .kind = PAL_CALL_JSON, .open = "<|function_call|>", .close = "",
      .call = "name", .after = "arguments" },
    { .name = "calls between <|tool_call_begin|>", .kind = PAL_CALL_NAMED,
      .open = "<|tool_calls_section_begin|>", .close = "<|tool_calls_section_end|>",
      .call = "<|tool_call_begin|>functions.", .after = "<|tool_call_argument_begin|>",
      .end = "<|tool_call_end|>", .index = true },
    { .name = "calls of DeepSeek R1", .kind = PAL_CALL_NAMED, .open = "<｜tool▁calls▁begin｜>",
      .close = "<｜tool▁calls▁end｜>", .call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", .after = "```json",
      .end = "```<｜tool▁call▁end｜>" },
    { .name = "calls of DeepSeek V3.1", .kind = PAL_CALL_NAMED, .open = "<｜tool▁calls▁begin｜>",
      .close = "<｜tool▁calls▁end｜>", .call = "<｜tool▁call▁begin｜>", .after = "<｜tool▁sep｜>",
      .end = "<｜tool▁call▁end｜>" },
    { .name = "functions and JSON", .kind = PAL_CALL_NAMED, .open = "", .close = "", .call = "<function=",
      .after = ">", .end = "</function>" },
    { .name = "JSON alone", .kind = PAL_CALL_JSON, .open = "", .close = "", .call = "name",
      .after = "parameters", .bare = true },
    /* clang-format on */
};
const size_t pal_call_syntax_count = PAL_COUNT(pal_call_syntaxes);

const char *pal_call_opener(const pal_call_syntax *s) { return s->bare ? "{" : *s->open ? s->open : s->call; }

void pal_calls_free(pal_calls *calls) {
    for (size_t i = 0; i < calls->count; i++) pal_free(calls->list[i].name), pal_free(calls->list[i].arguments);
    pal_free(calls->list);
    *calls = (pal_calls){ 0 };
}

static const json_t *tool_named(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *its = json_string_value(json_object_get(function, "name"));
        if (its && strcmp(its, name) == 0) return function;
    }
    return NULL;
}

const json_t *pal_tool_parameters(const json_t *tools, const char *name) {
    return json_object_get(tool_named(tools, name), "parameters");
}

pal_parse pal_calls_parse(const pal_call_syntax *s, const json_t *tools, pal_slice text, bool last, pal_calls *out,
                          size_t *taken) {
    static pal_parse (*const parsers[])(scan *) = { [PAL_CALL_JSON] = pal_parse_json_calls,
                                                    [PAL_CALL_NAMED] = pal_parse_named_calls,
                                                    [PAL_CALL_XML] = pal_parse_xml_calls,
                                                    [PAL_CALL_PYTHON] = pal_parse_python_calls };
    scan at = {
        .at = text.data, .end = text.data + text.size, .last = last, .syntax = s, .tools = tools, .calls = out
    };
    const size_t before = out->count;
    pal_parse found = parsers[s->kind](&at);
    if (found == PAL_PARSE_DONE && s->bare && tools && !tool_named(tools, out->list[before].name)) found = PAL_PARSE_NO;
    *taken = (size_t)(at.at - text.data);
    if (found == PAL_PARSE_DONE) return found;
    for (; out->count > before; out->count--) {
        pal_free(out->list[out->count - 1].name);
        pal_free(out->list[out->count - 1].arguments);
    }
    return found;
}
