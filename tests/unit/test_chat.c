/* SPDX-License-Identifier: MIT */
/* Chats: what templates show of their models, what messages may be, answers taken apart in pieces of any size, and
 * grammars that only allow what can be read back. */
#include <dirent.h>
#include <jansson.h>
#include <unistd.h>

#include "chat/chat.h"
#include "grammar/guide.h"
#include "support/files.h"
#include "support/text.h"
#include "text/strings.h"

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"of a city\", "
    "\"parameters\": "
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"description\": \"name\"}, \"days\": "
    "{\"type\": "
    "\"integer\"}, \"unit\": {\"type\": \"string\", \"enum\": [\"C\", \"F\"]}, \"more\": {\"type\": \"object\", "
    "\"properties\": {\"a\": {\"type\": \"array\", \"items\": {\"type\": \"boolean\"}}}}}, \"required\": "
    "[\"city\"]}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"now\", \"description\": \"time\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {}}}}]";

static json_t *parsed(const char *text) {
    json_error_t why;
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!value) fail_msg("%s: %s", text, why.text);
    return value;
}

static const pal_call_syntax *syntax_of(const char *name) {
    for (size_t i = 0; i < pal_call_syntax_count; i++)
        if (strcmp(pal_call_syntaxes[i].name, name) == 0) return &pal_call_syntaxes[i];
    fail_msg("no syntax is called '%s'", name);
    return NULL;
}

/* What came of a text: {"thought": ..., "said": ..., "calls": [[name, arguments], ...]}. */
static json_t *result(const pal_reader *r) {
    json_t *calls = json_array();
    for (size_t i = 0; i < r->calls.count; i++)
        json_array_append_new(calls, json_pack("[s, o]", r->calls.list[i].name, parsed(r->calls.list[i].arguments)));
    return json_pack("{s:s%, s:s%, s:o}", "thought", r->reasoning.size ? (char *)r->reasoning.data : "",
                     r->reasoning.size, "said", r->content.size ? (char *)r->content.data : "", r->content.size,
                     "calls", calls);
}

/* In pieces of this many bytes, the first of another size. */
static json_t *read_in_pieces(const pal_reader_options *o, const char *text, size_t first, size_t each) {
    const size_t size = strlen(text);
    pal_reader r;
    pal_reader_begin(&r, o);
    for (size_t at = 0, n = first; at < size; at += n, n = each) {
        if (n > size - at) n = size - at;
        char *copy = malloc(n ? n : 1); /* so that sanitizers see what is read beyond it */
        memcpy(copy, text + at, n);
        OK(pal_reader_push(&r, copy, n, false, err));
        free(copy);
    }
    OK(pal_reader_push(&r, NULL, 0, true, err));
    assert_int_equal(r.held.size, 0);
    json_t *made = result(&r);
    pal_reader_free(&r);
    return made;
}

static void reads_as(const pal_reader_options *o, const char *text, const char *expected) {
    json_t *want = parsed(expected);
    const size_t size = strlen(text);
    for (size_t first = 0; first <= size; first++) {
        json_t *got = read_in_pieces(o, text, first, first ? size : 1);
        if (!json_equal(got, want))
            fail_msg("%s, cut at %zu:\n%s\nexpected\n%s", text, first, json_dumps(got, 0), expected);
        json_decref(got);
    }
    json_decref(want);
}

#define JSON   "JSON in <tool_call>"
#define LIST   "a list in <TOOLCALL>"
#define XML    "functions and parameters in <tool_call>"
#define PYTHON "calls in Python"

/* tests/golden/chat/calls.json: what a model writes in a syntax, and what that is. */
static void calls_are_read_in_pieces_of_any_size(void **state) {
    (void)state;
    json_t *tools = parsed(tools_text), *cases = json_load_file(PAL_TEST_GOLDEN "/chat/calls.json", 0, NULL), *one;
    size_t i;
    assert_true(json_array_size(cases) > 30);
    json_array_foreach(cases, i, one) {
        const pal_reader_options o = { .syntax = syntax_of(json_string_value(json_object_get(one, "syntax"))),
                                       .tools = tools };
        json_t *expected = json_pack("{s:s, s:O, s:O}", "thought", "", "said", json_object_get(one, "said"), "calls",
                                     json_object_get(one, "calls"));
        char *text = json_dumps(expected, 0);
        reads_as(&o, json_string_value(json_object_get(one, "text")), text);
        free(text);
        json_decref(expected);
    }
    json_decref(cases);
    json_decref(tools);
}

static void numbers_stay_as_they_are_written(void **state) {
    (void)state;
    static const char text[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 123456789012345678901234567890, "
                               "\"y\": 0.10}}";
    const pal_reader_options o = { .syntax = syntax_of(JSON) };
    pal_reader r;
    pal_reader_begin(&r, &o);
    OK(pal_reader_push(&r, text, sizeof text - 1, true, err));
    assert_int_equal(r.calls.count, 1);
    assert_string_equal(r.calls.list[0].arguments, "{\"x\": 123456789012345678901234567890, \"y\": 0.10}");
    pal_reader_free(&r);
}

static void thinking_is_taken_apart(void **state) {
    (void)state;
    json_t *tools = parsed(tools_text);
    pal_reader_options o = {
        .syntax = syntax_of(JSON), .tools = tools, .think_open = "<think>", .think_close = "</think>"
    };
    reads_as(&o, "<think>\nso  \n</think>\n\nHi <think>\n",
             "{\"thought\": \"so\", \"said\": \"Hi <think>\\n\", "
             "\"calls\": []}");
    reads_as(&o, " \n<think></think><tool_call>{\"name\": \"f\"}</tool_call>",
             "{\"thought\": \"\", \"said\": \"\", \"calls\": [[\"f\", {}]]}");
    reads_as(&o, "<think>never ends </thin", "{\"thought\": \"never ends </thin\", \"said\": \"\", \"calls\": []}");
    reads_as(&o, "<thin", "{\"thought\": \"\", \"said\": \"<thin\", \"calls\": []}");
    reads_as(&o, "", "{\"thought\": \"\", \"said\": \"\", \"calls\": []}");
    reads_as(&o, " a </think> b", "{\"thought\": \"\", \"said\": \" a </think> b\", \"calls\": []}");
    o.thinking = true;
    reads_as(&o, "a\xC3\xA9 </</think>\n", "{\"thought\": \"a\xC3\xA9 </\", \"said\": \"\", \"calls\": []}");
    reads_as(&o, "a</think> b </think>", "{\"thought\": \"a\", \"said\": \"b </think>\", \"calls\": []}");
    o.syntax = NULL;
    reads_as(&o, "a</think> b <tool_call>{\"name\": \"f\"}</tool_call>\n",
             "{\"thought\": \"a\", \"said\": \"b <tool_call>{\\\"name\\\": \\\"f\\\"}</tool_call>\\n\", \"calls\": "
             "[]}");
    json_decref(tools);
}

/* Whatever is written, all of it comes out: as text, or as the parts of calls. */
static void nothing_is_lost(void **state) {
    (void)state;
    static const char *const parts[] = { "<tool_call>",
                                         "</tool_call>",
                                         "{\"name\": \"now\"",
                                         "}",
                                         "[",
                                         "]",
                                         "<function=",
                                         "f",
                                         ">",
                                         "<parameter=a>",
                                         "</parameter>",
                                         "</function>",
                                         "<|tool_call_start|>",
                                         "f(a=",
                                         "'",
                                         "\"",
                                         "\\",
                                         ")",
                                         "<|tool_call_end|>",
                                         " ",
                                         "\n",
                                         "x",
                                         "\xC3\xA9",
                                         "<TOOLCALL>",
                                         "</TOOLCALL>",
                                         ",",
                                         "1",
                                         "<think>",
                                         "</think>",
                                         "<" };
    json_t *tools = parsed(tools_text);
    pal_rng rng = pal_rng_at(41, 0);
    for (int i = 0; i < test_cases(4000, 100000); i++) {
        char text[512] = "";
        for (uint32_t n = pal_rng_below(&rng, 24); n; n--)
            strcat(text, parts[pal_rng_below(&rng, sizeof parts / sizeof *parts)]);
        const pal_call_syntax *syntax = &pal_call_syntaxes[pal_rng_below(&rng, (uint32_t)pal_call_syntax_count)];
        const bool thinks = pal_rng_below(&rng, 2);
        const pal_reader_options o = { .syntax = syntax,
                                       .tools = tools,
                                       .think_open = thinks ? "<think>" : NULL,
                                       .think_close = thinks ? "</think>" : NULL,
                                       .thinking = thinks && pal_rng_below(&rng, 2) };
        json_t *whole = read_in_pieces(&o, text, strlen(text), 1),
               *pieces = read_in_pieces(&o, text, 1, 1 + pal_rng_below(&rng, 5));
        if (!json_equal(whole, pieces))
            fail_msg("%s (%s):\n%s\n%s", text, syntax->name, json_dumps(whole, 0), json_dumps(pieces, 0));
        const char *said = json_string_value(json_object_get(whole, "said"));
        if (!thinks && !json_array_size(json_object_get(whole, "calls"))) assert_string_equal(said, text);
        json_decref(whole);
        json_decref(pieces);
    }
    json_decref(tools);
}

static pal_chat *chat_of(const pal_tokenizer *tok, const char *path) {
    pal_chat *chat;
    OK(pal_chat_open(&chat, tok, path, err));
    return chat;
}

static void templates_show_how_their_models_write(void **state) {
    (void)state;
    static const struct {
        const char *file, *syntax, *think, *stop;
    } cases[] = { { "json_tags", JSON, "<think>", "<|im_end|>" },
                  { "toolcall_list", LIST, NULL, "<SPECIAL_11>" },
                  { "xml_function", XML, "<think>", "<|im_end|>" },
                  { "python_calls", PYTHON, NULL, "<|im_end|>" },
                  { "plain", NULL, NULL, "\nUser:" },
                  { "chatml", NULL, NULL, "<|im_end|>" } };
    pal_tokenizer *tok = test_open("bytes");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[4096];
        snprintf(path, sizeof path, cases[i].syntax ? PAL_TEST_GOLDEN "/../templates/%s.jinja" : "%s", cases[i].file);
        pal_chat *chat = chat_of(tok, path);
        assert_ptr_equal(chat->syntax, cases[i].syntax ? syntax_of(cases[i].syntax) : NULL);
        assert_int_equal(chat->takes_tools, cases[i].syntax != NULL);
        if (cases[i].think) assert_string_equal(chat->think_open, cases[i].think);
        else assert_null(chat->think_open);
        assert_string_equal(chat->stop, cases[i].stop);
        pal_chat_free(chat);
    }
    pal_tokenizer_close(tok);
}

/* Calls "f" for each template of a directory. */
static int each_template(const char *directory, void f(const char *path, const char *name)) {
    DIR *all = opendir(directory);
    int count = 0;
    assert_non_null(all);
    for (struct dirent *one; (one = readdir(all));) {
        char path[4096];
        const size_t length = strlen(one->d_name);
        if (length < 6 || strcmp(one->d_name + length - 6, ".jinja") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", directory, one->d_name);
        f(path, one->d_name);
        count++;
    }
    closedir(all);
    return count;
}

static void each_known_template(void f(const char *path, const char *name)) {
    const char *data = getenv("PALIMPSA_DATA");
    char path[4096];
    each_template(PAL_TEST_GOLDEN "/../templates", f);
    snprintf(path, sizeof path, "%s/chat_templates", data ? data : "");
    if (!data || access(path, R_OK) != 0)
        print_message("skipped: PALIMPSA_DATA is not set, or has no chat "
                      "templates\n");
    else assert_true(each_template(path, f) > 60);
}

static const char two_calls[] =
    "[{\"role\": \"user\", \"content\": \"QUESTION\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
    "[{\"id\": "
    "\"abcdefghi\", \"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": "
    "\"{\\\"city\\\": \\\"K\xC3\xB6ln, "
    "\\\\\\\"a\\\\\\\" <b>\\\", \\\"days\\\": 3, \\\"more\\\": {\\\"a\\\": [true, false]}}\"}}%s]}]";
static const char second_call[] = ", {\"id\": \"abcdefghj\", \"type\": \"function\", \"function\": {\"name\": "
                                  "\"now\", \"arguments\": \"\"}}";

static int read_back, known;

/* What the template makes of calls in an assistant's message, the reader takes apart into the same calls. */
static bool reads_back(const pal_chat *chat, const json_t *tools, int count) {
    char text[2048];
    pal_error why;
    pal_chat_prompt p = { 0 };
    json_t *messages;
    snprintf(text, sizeof text, two_calls, count > 1 ? second_call : "");
    json_t *given = parsed(text);
    OK(pal_chat_messages(&messages, chat, given, err));
    const pal_template_input in = { .messages = messages, .tools = tools };
    bool same = true; /* or the template refuses */
    if (pal_chat_render(chat, &in, &p, &why) == PAL_OK) {
        const unsigned char *from = memmem(p.text.text, p.text.size, "QUESTION", 8);
        pal_reader_options o = pal_chat_reading(chat, tools, false);
        const size_t size = p.text.size - (size_t)(from - p.text.text) - 8;
        char *answer = strndup((const char *)from + 8, size);
        if (chat->syntax->bare) memmove(answer, strchr(answer, '{'), strlen(strchr(answer, '{')) + 1);
        o.think_open = o.think_close = NULL;
        json_t *got = read_in_pieces(&o, answer, 3, 7);
        json_t *want = json_pack("[[s, {s:s, s:i, s:{s:[b, b]}}]]", "get_weather", "city", "K\xC3\xB6ln, \"a\" <b>",
                                 "days", 3, "more", "a", 1, 0);
        if (count > 1) json_array_append_new(want, json_pack("[s, {}]", "now"));
        same = json_equal(json_object_get(got, "calls"), want);
        if (!strstr(answer, "get_weather")) same = true; /* it only leaves room for them */
        if (!same && count == 1) print_error("%s\n", answer);
        json_decref(got), json_decref(want);
        free(answer);
        pal_chat_prompt_free(&p);
    }
    json_decref(messages), json_decref(given);
    return same;
}

static void read_template_back(const char *path, const char *name) {
    pal_tokenizer *tok = test_open("bytes");
    pal_chat *chat = chat_of(tok, path);
    json_t *tools = parsed(tools_text);
    if (chat->syntax) {
        known++;
        const bool one = reads_back(chat, tools, 1), two = reads_back(chat, tools, 2);
        if (one) read_back++;
        else print_error("%s: %s: its calls do not come back\n", name, chat->syntax->name);
        if (!two) print_message("%s: %s: two calls do not come back\n", name, chat->syntax->name);
    }
    json_decref(tools);
    pal_chat_free(chat);
    pal_tokenizer_close(tok);
}

static void what_templates_write_is_read_back(void **state) {
    (void)state;
    known = read_back = 0;
    each_known_template(read_template_back);
    print_message("%d of %d templates with calls: they come back\n", read_back, known);
    assert_int_equal(read_back, known);
}

/* A tokenizer of bytes whose special tokens are all marks of a template. */
static pal_tokenizer *tokenizer_with_marks(const char *source, size_t size, char *all, size_t room) {
    json_t *added = json_array(), *vocab = json_object();
    uint32_t code_of[256];
    pal_byte_alphabet(code_of);
    for (int b = 0; b < 256; b++) {
        char name[3] = { (char)code_of[b] };
        if (code_of[b] >= 0x80) name[0] = (char)(0xC0 | code_of[b] >> 6), name[1] = (char)(0x80 | (code_of[b] & 63));
        json_object_set_new(vocab, name, json_integer(b));
    }
    for (size_t i = 0; i + 1 < size; i++) {
        const char close = source[i] == '<' ? '>' : source[i] == '[' ? ']' : 0;
        const char *end = close ? memchr(source + i, close, size - i < 48 ? size - i : 48) : NULL;
        const size_t length = end ? (size_t)(end - source) - i + 1 : 0;
        if (length < 3 || strcspn(source + i, " '\"\\\n{}()") < length) continue;
        char mark[64];
        snprintf(mark, sizeof mark, "%.*s", (int)length, source + i);
        if (strstr(all, mark) || strlen(all) + length + 2 > room) continue;
        strcat(strcat(all, " "), mark);
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                               256 + (int)json_array_size(added), "content", mark, "special", 1,
                                               "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0));
    }
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                              "use_regex", 1);
    json_t *root = json_pack("{s:s, s:o, s:n, s:O, s:n, s:o, s:{s:s, s:o, s:[]}}", "version", "1.0", "added_tokens",
                             added, "normalizer", "pre_tokenizer", level, "post_processor", "decoder", level, "model",
                             "type", "BPE", "vocab", vocab, "merges");
    char *text = json_dumps(root, 0);
    pal_tokenizer *tok = test_tokenizer_of(text);
    free(text);
    json_decref(root);
    return tok;
}

/* A conversation in which every text is this one. */
static json_t *conversation(const char *said) {
    return json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:n, s:[{s:s, s:s, s:{s:s, s:{s:s, s:i}}}]}, {s:s, s:s, s:s, "
                     "s:s}, {s:s, s:s}]",
                     "role", "system", "content", said, "role", "user", "content", said, "role", "assistant", "content",
                     "tool_calls", "id", "abcdefghi", "type", "function", "function", "name", "get_weather",
                     "arguments", "city", said, "days", 3, "role", "tool", "tool_call_id", "abcdefghi", "name",
                     "get_weather", "content", said, "role", "user", "content", said);
}

static int attacked;

static bool control_ids(const pal_chat *chat, const char *said, pal_ids *out) {
    pal_tokenizer_scratch *scratch;
    pal_chat_prompt p = { 0 };
    pal_error why;
    json_t *given = conversation(said), *messages, *tools = parsed(tools_text);
    json_t *documents = json_pack("[{s:s, s:s}]", "title", said, "text", said);
    json_object_set_new(json_object_get(json_array_get(tools, 0), "function"), "description", json_string(said));
    OK(pal_chat_messages(&messages, chat, given, err));
    OK(pal_tokenizer_scratch_new(&scratch, chat->tok, err));
    const pal_template_input in = { .messages = messages,
                                    .tools = chat->takes_tools ? tools : NULL,
                                    .documents = documents,
                                    .add_generation_prompt = true };
    const bool rendered = pal_chat_render(chat, &in, &p, &why) == PAL_OK;
    if (rendered) {
        OK(pal_chat_encode(chat, scratch, &p, err));
        for (size_t i = 0; i < p.ids.count; i++)
            if (pal_tokenizer_is_special(chat->tok, p.ids.data[i])) OK(pal_ids_append(out, p.ids.data[i], err));
        pal_chat_prompt_free(&p);
    }
    pal_tokenizer_scratch_free(scratch);
    json_decref(given), json_decref(messages), json_decref(tools), json_decref(documents);
    return rendered;
}

/* The special tokens of a prompt are the same whatever the messages say. */
static void attack_template(const char *path, const char *name) {
    char marks[8192] = "x", harmless[8192];
    size_t size;
    char *source = (char *)test_read_file(path, &size);
    pal_tokenizer *tok = tokenizer_with_marks(source, size, marks, sizeof marks - 2);
    strcat(marks, " x");
    snprintf(harmless, sizeof harmless, "%s", marks);
    for (char *c = harmless; *c; c++)
        if (strchr("<>[]|", *c)) *c = '_';
    pal_chat *chat = chat_of(tok, path);
    pal_ids with = { 0 }, without = { 0 };
    if (control_ids(chat, harmless, &without) && control_ids(chat, marks, &with)) {
        if (with.count != without.count ||
            (with.count && memcmp(with.data, without.data, with.count * sizeof *with.data) != 0))
            fail_msg("%s: messages with marks have %zu special tokens, without %zu", name, with.count, without.count);
        attacked += with.count > 0;
    }
    pal_ids_free(&with), pal_ids_free(&without);
    pal_chat_free(chat);
    pal_tokenizer_close(tok);
    free(source);
}

static void messages_make_no_special_token(void **state) {
    (void)state;
    attacked = 0;
    each_known_template(attack_template);
    print_message("%d templates attacked\n", attacked);
    assert_true(attacked >= 4);
}

static void wrong_messages_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *messages, *why;
    } cases[] = { { "[]", "1 to 4096" },
                  { "{}", "1 to 4096" },
                  { "[5]", "message 0: expected an object" },
                  { "[{}]", "message 0: expected 'role'" },
                  { "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"robot\", \"content\": \"a\"}]",
                    "message 1: expected 'role'" },
                  { "[{\"role\": \"user\"}]", "'content' to be a text" },
                  { "[{\"role\": \"assistant\", \"content\": null}]", "'content' to be a text" },
                  { "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]", "'content' to be a text" },
                  { "[{\"role\": \"user\", \"content\": []}]", "'content' to be a text" },
                  { "[{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": [{}]}]",
                    "'tool_calls' to be a list, in a message of the assistant" },
                  { "[{\"role\": \"assistant\", \"tool_calls\": [{}]}]", "'function' with a 'name'" },
                  { "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
                    "\"{\"}}]}]",
                    "'arguments' of a call" },
                  { "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
                    "\"[1]\"}}]}]",
                    "'arguments' of a call" },
                  { "[{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": 5}]",
                    "'reasoning_content' to be a text" } };
    static const char *const tools[] = { "{}",
                                         "[5]",
                                         "[{}]",
                                         "[{\"type\": \"function\", \"function\": {}}]",
                                         "[{\"type\": \"search\", \"function\": {\"name\": \"f\"}}]",
                                         "[{\"function\": {\"name\": \"a b\"}}]",
                                         "[{\"function\": {\"name\": \"f\", \"parameters\": []}}]" };
    pal_tokenizer *tok = test_open("bytes");
    pal_chat *chat = chat_of(tok, "chatml"), *none;
    pal_error err;
    json_t *out;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *given = parsed(cases[i].messages);
        assert_int_equal(pal_chat_messages(&out, chat, given, &err), PAL_E_ARGUMENT);
        assert_non_null(strstr(err.text, cases[i].why));
        json_decref(given);
    }
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
        json_t *given = parsed(tools[i]);
        assert_int_equal(pal_chat_tools(&out, given, &err), PAL_E_ARGUMENT);
        json_decref(given);
    }
    assert_int_equal(pal_chat_open(&none, tok, "/nowhere.jinja", &err), PAL_E_ARGUMENT);
    pal_chat_free(chat);
    pal_chat_free(chat_of(tok, "llama2"));
    pal_tokenizer_close(tok);
}

/* A random text of a grammar, which types the ends of free text now and then. */
static void write_by(const pal_grammar *g, const pal_spellings *spellings, pal_rng *rng, const char *const *ends,
                     pal_bytes *out) {
    pal_guide *guide;
    pal_place place = { 0 };
    uint64_t allowed[8];
    bool complete = false, over = false;
    const char *typed = "";
    OK(pal_guide_new(&guide, g, spellings, err));
    pal_guide_begin(guide, &place);
    out->size = 0;
    for (int n = 0; !over; n++) {
        uint32_t ids[512];
        size_t count = 0;
        memset(allowed, 0, sizeof allowed);
        assert_true(pal_guide_next(guide, &place, allowed, &complete));
        if (complete && pal_rng_below(rng, 2)) break;
        for (uint32_t id = 0; id < 64 * spellings->words; id++)
            if (allowed[id / 64] >> id % 64 & 1) ids[count++] = id;
        if (!count && complete) break;
        assert_true(count > 0 && n < 4000);
        if (!*typed && count > 60 && (pal_rng_below(rng, 8) == 0 || n > 200)) typed = ends[pal_rng_below(rng, 4)];
        uint32_t id = ids[pal_rng_below(rng, (uint32_t)count)];
        if (*typed) { /* if it is allowed */
            for (size_t i = 0; i < count; i++)
                if (ids[i] == (unsigned char)*typed) id = ids[i];
            typed++;
        }
        const unsigned char byte = (unsigned char)id;
        OK(pal_bytes_append(out, &byte, 1, err));
        assert_true(pal_guide_accept(guide, &place, (pal_slice){ &byte, 1 }, &over));
    }
    pal_machine_drop(&place);
    pal_guide_free(guide);
    OK(pal_bytes_append(out, "", 1, err));
    out->size--;
}

static void check_required(const pal_chat *chat, const json_t *tools, pal_chat_rules rules, pal_rng *rng,
                           const pal_spellings *spellings) {
    const pal_call_syntax *s = chat->syntax;
    const char *const ends[] = { s->value_end ? s->value_end : "\"", *s->close ? s->close : "}", "\"}",
                                 chat->think_close ? chat->think_close : "\")" };
    pal_grammar *g;
    pal_bytes text = { 0 };
    rules.tools = tools;
    OK(pal_chat_grammar(&g, chat, &rules, err));
    for (int i = 0; i < test_cases(6, 200); i++) {
        write_by(g, spellings, rng, ends, &text);
        pal_reader_options o = pal_chat_reading(chat, tools, rules.thinking);
        json_t *got = read_in_pieces(&o, (const char *)text.data, 5, 9), *called = json_object_get(got, "calls");
        if (!json_array_size(called) || json_string_length(json_object_get(got, "said")) ||
            (rules.single && json_array_size(called) != 1))
            fail_msg("%s:\n%s\n%s", s->name, (char *)text.data, json_dumps(got, 0));
        for (size_t k = 0; k < json_array_size(called); k++) {
            const char *name = json_string_value(json_array_get(json_array_get(called, k), 0));
            const json_t *with = json_array_get(json_array_get(called, k), 1);
            assert_true(strcmp(name, "now") == 0 ? !rules.only : strcmp(name, "get_weather") == 0);
            if (strcmp(name, "get_weather") == 0) assert_true(json_is_string(json_object_get(with, "city")));
            if (json_object_get(with, "days")) assert_true(json_is_integer(json_object_get(with, "days")));
        }
        json_decref(got);
    }
    pal_bytes_free(&text);
    pal_grammar_free(g);
}

/* In every syntax of the table, with thinking and without. */
static void required_calls_are_always_read(void **state) {
    (void)state;
    pal_tokenizer *tok = test_open("bytes");
    pal_spellings *spellings;
    pal_rng rng = pal_rng_at(7, 0);
    json_t *tools = parsed(tools_text);
    OK(pal_spellings_new(&spellings, tok, err));
    for (size_t i = 0; i < pal_call_syntax_count; i++) {
        pal_chat *chat = chat_of(tok, "chatml");
        chat->syntax = &pal_call_syntaxes[i];
        check_required(chat, tools, (pal_chat_rules){ .only = NULL }, &rng, spellings);
        check_required(chat, tools, (pal_chat_rules){ .only = "get_weather", .single = true }, &rng, spellings);
        chat->think_open = "<think>", chat->think_close = "</think>";
        check_required(chat, tools, (pal_chat_rules){ .thinking = true }, &rng, spellings);
        check_required(chat, tools, (pal_chat_rules){ .thinking = false }, &rng, spellings);
        pal_chat_free(chat);
    }
    pal_spellings_free(spellings);
    json_decref(tools);
    pal_tokenizer_close(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_read_in_pieces_of_any_size),  cmocka_unit_test(thinking_is_taken_apart),
        cmocka_unit_test(numbers_stay_as_they_are_written),      cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(templates_show_how_their_models_write), cmocka_unit_test(what_templates_write_is_read_back),
        cmocka_unit_test(messages_make_no_special_token),        cmocka_unit_test(wrong_messages_are_refused),
        cmocka_unit_test(required_calls_are_always_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
