/* SPDX-License-Identifier: MIT */
/* Chat templates: what each construct gives (as Python's jinja2 3.1 gives it in transformers' settings), what is
 * refused and where, the limits, and which bytes count as the input's. */
#include <dirent.h>
#include <jansson.h>

#include "support/files.h"
#include "support/support.h"
#include "template/template.h"

static const struct tm noon = {
    .tm_year = 126, .tm_mon = 10, .tm_mday = 18, .tm_hour = 12, .tm_min = 34, .tm_sec = 56
};

static const char chat[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"  Be <brief>. \"}, {\"role\": "
                           "\"user\", \"content\": \"Caf\\u00e9?\"},"
                           " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
                           "\"add\", \"arguments\": {\"b\": "
                           "[1, 2.5, -3e100], \"a\": {\"x\": true}}}}]}], \"kwargs\": {\"n\": 3, \"name\": \"B\", "
                           "\"nothing\": null, \"real\": 1.0,"
                           " \"list\": [3, 1, 2], \"words\": [\"b\", \"A\", \"c\"], \"text\": \"one two  three\", "
                           "\"odd\": \"it's\\n\\u0007\"}}";

static pal_status render(const char *source, const char *input, pal_rendered *out, pal_error *err) {
    pal_template *t;
    json_t *root = json_loads(input, 0, NULL);
    assert_non_null(root);
    pal_status st = pal_template_read(&t, source, strlen(source), err);
    if (!st) {
        const pal_template_input in = { .messages = json_object_get(root, "messages"),
                                        .tools = json_object_get(root, "tools"),
                                        .kwargs = json_object_get(root, "kwargs"),
                                        .bos = "<s>",
                                        .add_generation_prompt = true,
                                        .now = &noon };
        st = pal_template_render(t, &in, out, err);
    }
    json_decref(root);
    pal_template_free(t);
    return st;
}

static void constructs_give_what_jinja2_gives(void **state) {
    (void)state;
    static const struct {
        const char *source, *expected;
    } cases[] = {
        { "a\n{% if n > 2 %}\n  b\n{% endif %}\nc\n", "a\n  b\nc" },
        { "a {%- if true -%} b {%- else -%} c {%- endif %} d", "ab d" },
        { "  {% if true %}x{% endif %}  y", "x  y" },
        { "  {%+ if true %}x{% endif +%}\ny", "  x\ny" },
        { "a{# note #}\nb{#- note -#} c", "abc" },
        { "{% raw %}{{ x }}{% endraw %}|{{ '}}' }}|{{ {'a': {'b': 1}}.a.b }}", "{{ x }}|}}|1" },
        { "{% for m in messages %}{{ loop.index }}{{ m.role[0] }}{% if not loop.last %},{% endif %}{% endfor %}",
          "1s,2u,3a" },
        { "{% for a, b in [(1, 2), [3, 4]] %}{{ a * b }} {% else %}none{% endfor %}", "2 12 " },
        { "{% for x in [] %}{% else %}none{% endfor %}{% for x in missing %}{{ x }}{% endfor %}", "none" },
        { "{% for x in list if x != 1 %}{{ loop.length }}{{ x }}{{ loop.nextitem|default('.') }}{% endfor %}",
          "23222." },
        { "{% for x in range(5) %}{% if x == 1 %}{% continue %}{% elif x == 3 %}{% break %}{% endif %}{{ x }}{% endfor "
          "%}",
          "02" },
        { "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21" },
        { "{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "4" },
        { "{% set a, b = 1, 'z' %}{{ b ~ a ~ none ~ true ~ 1.5 ~ missing }}", "z1NoneTrue1.5" },
        { "{% set x %} a {{ n }} {% endset %}[{{ x|trim }}]{% set y | upper %}q{% endset %}{{ y }}", "[a 3]Q" },
        { "{% macro f(a, b='-', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=2) }}{{ f(b=0, a=9) }}",
          "1-11-2909" },
        { "{% macro f(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) f(4) %}[{{ y }}{{ n }}]{% endcall %}", "<[43]>" },
        { "{% macro f(d) %}{% if d %}({{ f(d - 1) }}){% endif %}{% endmacro %}{{ f(3) }}", "((()))" },
        { "{% filter upper|replace('A', 'o') %}banana{% endfilter %}", "BoNoNo" },
        { "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False" },
        { "{% generation %}x{% set q = 1 %}{% endgeneration %}{{ q is undefined }}", "xTrue" },
        { "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1 - 2 - 3 }} {{ 'a' * 3 }} {{ [1] + "
          "[2] }}",
          "3 -4 2 3.5 1024 -4 aaa [1, 2]" },
        { "{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ 'a' in 'cat' }} {{ 4 not in list }} {{ 'n' in {'n': 1} }} {{ not 1 == 2 "
          "}}",
          "True False True True True True" },
        { "{{ '%s and %d%%' % ('x', 3) }} {{ '{} {1} {k} {{}}'.format('a', 'b', k=1) }}", "x and 3% a b 1 {}" },
        { "{{ text.split() }} {{ text.split(' ', 1)[1] }} {{ 'a,b'.split(',')[-1] }} {{ 'x'.split('y') }}",
          "['one', 'two', 'three'] two  three b ['x']" },
        { "{{ text[4:7] }}|{{ text[::-1][:3] }}|{{ messages[1].content[-2:] }}|{{ list[1:] }}|{{ 'abc'[5] }}|{{ "
          "list[7] }}",
          "two|eer|\u00e9?|[1, 2]||" },
        { "{{ ' ab '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'aXbX'.rstrip('X') }}|{{ 'a b'.replace(' ', '') }}",
          "ab|a|aXb|ab" },
        { "{{ 'Stra\u00dfe \u03a3\u03a3'.upper() }} {{ '\u0391\u03a3'.lower() }} {{ 'hello wORLD'|title }} {{ 'aB "
          "c'|capitalize }}",
          "STRASSE \u03a3\u03a3 \u03b1\u03c2 Hello World Ab c" },
        { "{{ messages[2].tool_calls[0].function.arguments|tojson }}",
          "{\"b\": [1, 2.5, -3e+100], \"a\": {\"x\": true}}" },
        { "{{ {'a': [1, {}], 'b': []}|tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}" },
        { "{{ {'b': 1, 'a': '\u00e9\U0001F600\"\\n'}|tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) "
          "}}",
          "{\"a\":\"\\u00e9\\ud83d\\ude00\\\"\\n\",\"b\":1}" },
        { "{{ {1: none, true: 0.1, 'x': 1e16, 'y': 1e-7} }} {{ (1,) }} {{ odd }}|{{ [odd] }}",
          "{1: 0.1, 'x': 1e+16, 'y': 1e-07} (1,) it's\n\a|[\"it's\\n\\x07\"]" },
        { "{{ words|sort|join(',') }} {{ words|sort(case_sensitive=true, reverse=true)|join }} {{ list|max }}{{ "
          "list|min }}",
          "A,b,c cbA 31" },
        { "{% for k, v in {'b': 1, 'A': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}{{ {'a': 1}|items|list }}",
          "A2b1[('a', 1)]" },
        { "{{ messages|map(attribute='role')|join('/') }} {{ messages|selectattr('role', 'equalto', "
          "'user')|list|length }}",
          "system/user/assistant 1" },
        { "{{ messages|selectattr('tool_calls')|map(attribute='tool_calls.0.function.name')|first }}", "add" },
        { "{{ [1, 1, 2]|unique|list }} {{ words|map('upper')|list }} {{ none|map('upper')|list }} {{ list|reject('eq', "
          "1)|list }}",
          "[1, 2] ['B', 'A', 'C'] [] [3, 2]" },
        { "{{ missing|default('d') }} {{ ''|default('e', true) }} {{ nothing|default('f') }} {{ missing|length }}",
          "d e None 0" },
        { "{{ 'a\nb'|indent(2) }} {{ ' x '|trim }} {{ '12'|int + 1 }} {{ '1.5'|float }} {{ 'q'|int(4) }} {{ 2.5|round "
          "}}",
          "a\n  b x 13 1.5 4 2.0" },
        { "{{ 1 is number }}{{ '' is string }}{{ {} is mapping }}{{ [] is sequence }}{{ 4 is divisibleby 2 }}{{ x is "
          "none }}",
          "TrueTrueTrueTrueTrueFalse" },
        { "{{ 'a' if false }}|{{ 'a' if n else 'b' }}|{{ nothing.x is defined }}|{{ messages[0]['content']|trim }}",
          "|a|False|Be <brief>." },
        { "{{ strftime_now('%d %b %Y %H:%M') }} {{ bos_token }} {{ add_generation_prompt }}",
          "18 Nov 2026 12:34 <s> True" },
        { "{{ '<'|safe + '<' ~ '<' }} {{ messages[0].items()|list|length }} {{ {'items': 1}['items'] }}",
          "<&lt;&lt; 2 1" },
        { "{{ 'a\\n\\x41\\u00e9\\'\\q' 'b' }} {{ 1_000 }} {{ .5 is defined if false else 'x' }}", NULL },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_rendered out = { 0 };
        pal_error err = { .text = "" };
        const pal_status st = render(cases[i].source, chat, &out, &err);
        if (!cases[i].expected) {
            assert_int_equal(st, PAL_E_FORMAT);
            continue;
        }
        if (st || out.size != strlen(cases[i].expected) || memcmp(out.text, cases[i].expected, out.size) != 0)
            fail_msg("%s\ngives    %.*s %s\nexpected %s", cases[i].source, (int)out.size, (char *)out.text, err.text,
                     cases[i].expected);
        pal_rendered_free(&out);
    }
}

static void refusals_say_where(void **state) {
    (void)state;
    static const struct {
        const char *source, *sentence;
    } cases[] = {
        { "a\n  {% include 'x' %}", "line 2, column 6: 'include'; expected one of for, if, set, macro" },
        { "{{ x|frobnicate }}", "line 1, column 6: no filter is called 'frobnicate'" },
        { "{{ x is frobnicated }}", "line 1, column 9: no test is called 'frobnicated'" },
        { "{% if x %}{{ x|frobnicate }}{% endif %}{{ 1 if true else 2|frobnicate }}", NULL },
        { "{% if true %}{{ x|frobnicate }}{% endif %}", "no filter is called 'frobnicate'" },
        { "{{ 'a\\", "a text without its closing quote" },
        { "\u00e9{% if x %}", "the template ends; expected 'endif'" },
        { "\u00e9{{ x", "line 1, column 6: a tag without its end }}" },
        { "{# x", "line 1, column 1: a comment without its end" },
        { "{% raw %}x", "'raw' without its 'endraw'" },
        { "{{ f(*x) }}", "line 1, column 6: arguments from a list or" },
        { "{% for x in y recursive %}{% endfor %}", "recursive loops are not supported" },
        { "{% break %}", "'break' outside of a loop" },
        { "{{ 'x }}", "a text without its closing quote" },
        { "{{ 99999999999999999999 }}", "expected an integer of 64 bits" },
        { "{{ cycler('a') }}", "'cycler' is not supported" },
        { "{{ x ! y }}", "an unexpected character '!'" },
        { "{{ [1, 2 }}", "'['" + 3 },
        { "{{ missing.x }}", "line 1, column 4: 'missing' is undefined" },
        { "{{ 1 + 'a' }}", "+ does not go with values of type int and str" },
        { "{{ list.append(1) }}", "'append' is not allowed in a template" },
        { "{{ raise_exception('no ' ~ n) }}", "the template refuses these messages: no 3" },
        { "{{ nothing|length }}", "length: a value of type None has none" },
        { "{{ messages|map('upper')|tojson }}", "tojson: a value of type generator cannot be written" },
        { "{{ 'x' in nothing }}", "a value of type None cannot be iterated" },
        { "{{ 9223372036854775807 + 1 }}", "an integer of more than 64 bits" },
        { "{{ 1 // 0 }}", "a division by zero" },
        { "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "f: more arguments than it has parameters" },
        { "{{ namespace(_x=1) }}", "names may not begin with '_'" },
        { "{{ ''.__class__() }}", "'__class__' is not allowed in a template" },
        { "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
          "more than 20971520 steps" },
        { "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros call each other more than 120 deep" },
        { "{% set ns = namespace(x='0123456789') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
          "MiB" },
        { "{{ range(100001) }}", "range: more than 100000 numbers" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_rendered out = { 0 };
        pal_error err = { .text = "" };
        const pal_status st = render(cases[i].source, chat, &out, &err);
        if (!cases[i].sentence) assert_int_equal(st, PAL_OK);
        else if (!st || !strstr(err.text, cases[i].sentence))
            fail_msg("%s\nsays     %s\nexpected %s", cases[i].source, err.text, cases[i].sentence);
        pal_rendered_free(&out);
    }
}

static void depth_is_limited(void **state) {
    (void)state;
    enum { DEEP = 100000 };
    static const char *const parts[][3] = { { "{{ ", "(", "1 }}" },
                                            { "{{ ", "-", "1 }}" },
                                            { "{{ ", "not ", "1 }}" },
                                            { "{{ 1", "+1", " }}" },
                                            { "{{ n", ".a", " }}" },
                                            { "{{ n", "|trim", " }}" },
                                            { "", "{% if n %}", "" },
                                            { "{{ ", "[", "1 }}" },
                                            { "{{ ", "1 if 1 else ", "1 }}" },
                                            { "{% if 0 %}", "{% elif 0 %}", "{% endif %}" },
                                            { "{% macro f() %}{% if 0 %}", "{% elif 0 %}",
                                              "{% endif %}{% endmacro %}" },
                                            { "{% macro f() %}{{ 1", "+1", "}}{% endmacro %}" } };
    for (size_t i = 0; i < PAL_COUNT(parts); i++) {
        pal_error err;
        pal_rendered out = { 0 };
        const size_t size = strlen(parts[i][1]);
        char *source = malloc(DEEP * size + 100), *end = source + sprintf(source, "%s", parts[i][0]);
        for (int k = 0; k < DEEP; k++) end += sprintf(end, "%s", parts[i][1]);
        sprintf(end, "%s", parts[i][2]);
        if (render(source, chat, &out, &err))
            assert_true(strstr(err.text, "nested more than 1200 deep") || strstr(err.text, "a tag without its end"));
        pal_rendered_free(&out);
        free(source);
    }
}

/* Bytes of the input are in capitals in `expected`, all others in small letters. */
static void marks_follow_what_messages_say(void **state) {
    (void)state;
    static const char input[] = "{\"messages\": [{\"role\": \"user\", \"content\": \" ABC \", \"list\": [\"X\", "
                                "\"Y\"]}, {\"role\": \"OTHER\", \"content\": "
                                "\"A<B\"}], \"tools\": [{\"NAME\": \"TOOL\"}], \"kwargs\": {\"given\": \"K\"}}";
    static const struct {
        const char *source, *expected;
    } cases[] = {
        { "<|{{ messages[0].role }}|>{{ messages[0].content }}<|end|>", "<|user|> ABC <|end|>" },
        { "<|{{ messages[1].role }}|>", "<|OTHER|>" },
        { "{{ ('<|' + messages[0].content|trim + '|>').split('|')[1] }}", "ABC" },
        { "{{ messages[0].content.strip()[1:] ~ 'x' ~ messages[0].content[1] }}", "BCxA" },
        { "{{ messages[0].list|join('-') }} {{ messages[0].list }}", "X-Y ['X', 'Y']" },
        { "{{ tools|tojson }} {{ given }}", "[{\"NAME\": \"TOOL\"}] K" },
        { "{{ messages[1].content.replace('<', 'lt') }} {{ 'q'.replace('q', given) }}", "AltB K" },
        { "{% macro f(x) %}[{{ x|lower|upper }}]{% endmacro %}{{ f(given) }}{% set s %}{{ given }}!{% endset %}{{ s }}",
          "[K]K!" },
        { "{{ '%s-%s' % (given, 'z') }} {{ '{}'.format(given) }} {{ given|indent(1, true) }}", "K-z K  K" },
        { "{% for c in given %}{{ c }}{{ loop.index }}{% endfor %}{{ {given: 'v'}|dictsort }}", "K1[('K', 'v')]" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_rendered out;
        pal_error err = { .text = "" };
        if (render(cases[i].source, input, &out, &err)) fail_msg("%s: %s", cases[i].source, err.text);
        assert_int_equal(out.size, strlen(cases[i].expected));
        assert_memory_equal(out.text, cases[i].expected, out.size);
        for (size_t k = 0; k < out.size; k++) {
            const char c = cases[i].expected[k];
            if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) assert_int_equal(out.said[k], c <= 'Z');
        }
        pal_rendered_free(&out);
    }
}

/* Every published template with every recorded set of messages. */
static int compare_one(const char *name, const pal_template *t, const json_t *set, const json_t *recorded) {
    const json_t *prompt = json_object_get(set, "add_generation_prompt");
    const pal_template_input in = { .messages = json_object_get(set, "messages"),
                                    .tools = json_object_get(set, "tools"),
                                    .kwargs = json_object_get(set, "kwargs"),
                                    .bos = "<s>",
                                    .eos = "</s>",
                                    .add_generation_prompt = !prompt || json_is_true(prompt),
                                    .now = &noon };
    const json_t *text = json_object_get(recorded, "text");
    pal_rendered out = { 0 };
    pal_error err = { .text = "" };
    const pal_status st = pal_template_render(t, &in, &out, &err);
    const bool same = text ? !st && out.size == json_string_length(text) &&
                                 memcmp(out.text, json_string_value(text), out.size) == 0
                           : st != PAL_OK;
    if (!same) print_error("%s, %s: %s\n", name, json_string_value(json_object_get(set, "name")), err.text);
    pal_rendered_free(&out);
    return same;
}

/* tests/golden/chat/templates.json, which tests/interop/record_chat_templates.py wrote. */
static void our_templates_give_what_was_recorded(void **state) {
    (void)state;
    json_t *root = json_load_file(PAL_TEST_GOLDEN "/chat/templates.json", 0, NULL), *recorded;
    const json_t *sets = json_object_get(root, "sets");
    const char *name;
    int same = 0, all = 0;
    json_object_foreach(json_object_get(root, "rendered"), name, recorded) {
        char path[4096];
        size_t size;
        pal_template *t;
        snprintf(path, sizeof path, PAL_TEST_GOLDEN "/../templates/%s", name);
        unsigned char *source = test_read_file(path, &size);
        OK(pal_template_read(&t, source, size, err));
        free(source);
        for (size_t i = 0; i < json_array_size(sets); i++, all++)
            same += compare_one(name, t, json_array_get(sets, i), json_array_get(recorded, i));
        pal_template_free(t);
    }
    json_decref(root);
    assert_true(all >= 80);
    assert_int_equal(same, all);
}

static void published_templates_give_what_was_recorded(void **state) {
    (void)state;
    const char *data = getenv("PALIMPSA_DATA"), *golden = getenv("PALIMPSA_GOLDEN");
    char path[4096], line[1 << 16];
    int same = 0, all = 0;
    snprintf(path, sizeof path, "%s/chat/messages.json", golden ? golden : "");
    json_t *sets = json_load_file(path, 0, NULL);
    if (!data || !sets) {
        print_message("skipped: PALIMPSA_DATA or PALIMPSA_GOLDEN is not set, or has no chat templates\n");
        return;
    }
    snprintf(path, sizeof path, "%s/chat_templates", data);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *one; (one = readdir(directory));) {
        const size_t length = strlen(one->d_name);
        pal_template *t;
        pal_error err;
        if (length < 6 || strcmp(one->d_name + length - 6, ".jinja") != 0) continue;
        snprintf(path, sizeof path, "%s/chat_templates/%s", data, one->d_name);
        size_t size;
        unsigned char *source = test_read_file(path, &size);
        const pal_status st = pal_template_read(&t, source, size, &err);
        free(source);
        if (st) fail_msg("%s: %s", one->d_name, err.text);
        snprintf(path, sizeof path, "%s/chat/rendered/%.*s.jsonl", golden, (int)length - 6, one->d_name);
        FILE *recorded = fopen(path, "r");
        assert_non_null(recorded);
        for (size_t i = 0; i < json_array_size(sets); i++, all++) {
            assert_non_null(fgets(line, sizeof line, recorded));
            json_t *expected = json_loads(line, 0, NULL);
            same += compare_one(one->d_name, t, json_array_get(sets, i), expected);
            json_decref(expected);
        }
        fclose(recorded);
        pal_template_free(t);
    }
    closedir(directory);
    json_decref(sets);
    print_message("%d of %d results are equal, or refused on both sides\n", same, all);
    assert_int_equal(same, all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructs_give_what_jinja2_gives),
        cmocka_unit_test(refusals_say_where),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(marks_follow_what_messages_say),
        cmocka_unit_test(our_templates_give_what_was_recorded),
        cmocka_unit_test(published_templates_give_what_was_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
