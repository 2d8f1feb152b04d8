/* SPDX-License-Identifier: MIT */
/* JSON Schemas as grammars: what they allow, and that everything a random model writes under them is valid. */
#include <math.h>

#include "base/alloc.h"
#include "format/json.h"
#include "grammar/machine.h"
#include "grammar/spellings.h"
#include "support/sessions.h"
#include "text/strings.h"
#include "text/utf8.h"

/* +1: of the grammar; 0: the beginning of one; -1: neither. */
static int judge(const pal_grammar *g, const char *text) {
    pal_machine *m;
    pal_place place;
    OK(pal_machine_new(&m, g, 100, err));
    pal_machine_hold(m, &place);
    const int32_t at = pal_machine_bytes(m, place.at, (const unsigned char *)text, strlen(text));
    const int found = at <= 0 ? -1 : pal_machine_complete(m, at);
    pal_machine_drop(&place);
    pal_machine_free(m);
    return found;
}

static pal_grammar *read_schema(const char *schema) {
    pal_grammar *g;
    pal_error err;
    if (pal_grammar_from_schema(&g, schema, strlen(schema), &err)) fail_msg("%s: %s", schema, err.text);
    return g;
}

static void expect(const char *schema, const char *const *yes, const char *const *no) {
    pal_grammar *g = read_schema(schema);
    for (; *yes; yes++)
        if (judge(g, *yes) != 1) fail_msg("%s: %s is %d", schema, *yes, judge(g, *yes));
    for (; *no; no++)
        if (judge(g, *no) == 1) fail_msg("%s: %s is allowed", schema, *no);
    pal_grammar_free(g);
}
#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void schemas_mean_what_they_say(void **state) {
    (void)state;
    expect("{\"type\":\"integer\"}", LIST("0", "-12", "9007199254740993"), LIST("01", "1.0", "-", ""));
    expect("{\"type\":\"number\"}", LIST("0", "-1.5", "1e5", "2.25E-10"), LIST(".5", "1.", "1e400", "+1"));
    expect("{\"type\":\"integer\",\"minimum\":7,\"maximum\":1203}", LIST("7", "10", "99", "999", "1203", "1199"),
           LIST("6", "1204", "-7", "2000", "07"));
    expect("{\"type\":\"integer\",\"minimum\":-15,\"exclusiveMaximum\":3}", LIST("-15", "-9", "0", "2"),
           LIST("-16", "3", "-0"));
    expect("{\"type\":\"integer\",\"minimum\":2.5}", LIST("3", "1000000"), LIST("2", "-3"));
    expect("{\"type\":\"number\",\"minimum\":-1,\"maximum\":1}", LIST("0", "0.5", "-0.25", "1", "-1", "1.00"),
           LIST("1.5", "-1.01", "2", "1.01"));
    expect("{\"type\":\"number\",\"exclusiveMinimum\":0}", LIST("0.001", "3", "12.5"), LIST("0", "-1", "0.0", "0.000"));
    expect("{\"type\":\"number\",\"exclusiveMinimum\":-2,\"maximum\":-1}", LIST("-1", "-1.9", "-1.0"),
           LIST("-2", "-2.0", "-0.5", "0"));
    expect("{\"type\":\"boolean\"}", LIST("true", "false"), LIST("1", "null", "True"));
    expect("{\"type\":[\"string\",\"null\"]}", LIST("null", "\"a\\n\\u00e4\\\"\"", "\"\xC3\xA4\""),
           LIST("\"\n\"", "\"\\ud800\"", "\"\\u0000\"", "\"\\x\"", "\"\xC3\"", "1"));
    expect("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", LIST("\"ab\"", "\"a\xE2\x82\xAC\\n\""),
           LIST("\"a\"", "\"abcd\"", "\"\""));
    expect("{\"enum\":[\"a\\\"b\",1,null,{\"x\":[1]}]}", LIST("\"a\\\"b\"", "1", "null", "{\"x\":[1]}"),
           LIST("2", "\"a\""));
    expect("{\"const\":\"x\"}", LIST("\"x\""), LIST("x"));
    expect("{\"type\":\"string\",\"enum\":[1,\"one\"]}", LIST("\"one\""), LIST("1"));
    expect("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
           LIST("[1]", "[1,2,3]", "[ 1, 2]", "[\n  1,\n  2\n]"), LIST("[]", "[1,2,3,4]", "[1,]", "[\"a\"]", "[1 2]"));
    expect("{\"items\":{\"type\":\"null\"},\"maxItems\":0}", LIST("[]", "[ ]"), LIST("[null]"));
    expect("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", LIST("[1, \"a\"]"),
           LIST("[1]", "[\"a\",1]", "[1,\"a\",2]"));
    expect("{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},\"minItems\":2}",
           LIST("[1,null]", "[1,null,null]"), LIST("[1]"));
    expect("{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":true,\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}",
           LIST("{\"b\":[{}]}", "{\"a\":1,\"b\":2}", "{\"b\": 2, \"c\": null}",
                "{\n \"a\": 1, \"b\": \"\", \"c\": null\n}"),
           LIST("{}", "{\"a\":1}", "{\"b\":1,\"a\":1}", "{\"b\":1,}", "{\"b\":1,\"d\":1}", "{,\"b\":1}"));
    expect("{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"},\"a\":{\"type\":\"integer\"}},"
           "\"additionalProperties\":{\"type\":\"null\"}}",
           LIST("{}", "{\"x\":null}", "{\"ab\":1,\"a\":1,\"abc\":null,\"\":null}", "{\"a\":1,\"b\":null}"),
           LIST("{\"a\":null}", "{\"ab\":null}", "{\"x\":null,\"a\":1}", "{\"x\":1}", "{\"\\u0061\":null}"));
    expect("{\"type\":\"object\",\"additionalProperties\":false}", LIST("{}"), LIST("{\"a\":1}"));
    expect("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", LIST("1", "null"), LIST("true"));
    expect("{\"$ref\":\"#/$defs/"
           "tree\",\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"kids\":{\"type\":\"array\",\"items\":{\"$"
           "ref\":\"#/$defs/tree\"}}}}}}",
           LIST("{}", "{\"kids\":[{},{\"kids\":[{}]}]}"), LIST("{\"kids\":{}}", "[]"));
    expect("{\"oneOf\":[{\"$ref\":\"#/$defs/"
           "a\"},{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"],\"type\":\"object\"}],\"$defs\":{\"a\":"
           "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":\"integer\"}},\"required\":["
           "\"k\"]}}}",
           LIST("{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}"), LIST("{\"k\":\"b\",\"v\":1}"));
    expect("{\"type\":\"string\",\"format\":\"date-time\"}",
           LIST("\"2024-02-28T23:59:59Z\"", "\"1999-12-31T00:00:00.5+01:30\""),
           LIST("\"2024-02-30T00:00:00Z\"", "\"2024-13-01T00:00:00Z\""));
    expect("{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-\\\\d+$\"}", LIST("\"AB-1\"", "\"XY-0123\""),
           LIST("\"A-1\"", "\"AB-\"", "\"xAB-1\""));
    expect("{\"type\":\"string\",\"pattern\":\"a|^b$\"}", LIST("\"a\"", "\"xxaxx\"", "\"b\""), LIST("\"bb\"", "\"\""));
    expect("{\"type\":\"string\",\"pattern\":\"^(?:\\\"|\\\\\\\\|[^a-z])*$\"}",
           LIST("\"\\\"\\\\\"", "\"A\"", "\"\\n\""), LIST("\"a\"", "\"\"\""));
    expect("true", LIST("[1,{\"a\":null}]", "\"x\"", "-1"), LIST("{a:1}", "[1,]", "nul"));
    expect("{\"title\":\"T\",\"description\":\"d\",\"type\":\"null\",\"default\":null}", LIST("null"), LIST("0"));
    expect("{\"allOf\":[{\"type\":\"null\"}],\"description\":\"one\"}", LIST("null"), LIST("0"));
}

static void what_is_not_supported_is_refused_with_its_path(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "{", "not JSON: line 1" },
        { "3", "#: expected a schema" },
        { "false", "#: expected a schema" },
        { "{\"type\":\"text\"}", "#: 'type': expected object" },
        { "{\"type\":[]}", "#: 'type'" },
        { "{\"properties\":{\"a\":{\"items\":{\"multipleOf\":2}}}}",
          "#/properties/a/items: 'multipleOf' is not supported" },
        { "{\"anyOf\":[{},{\"not\":{}}]}", "#/anyOf/1: 'not' is not supported" },
        { "{\"anyOf\":[{}],\"type\":\"object\"}", "#: 'anyOf' together with 'type'" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "#: 'oneOf': a value may be of both 0 and 1" },
        { "{\"allOf\":[{},{}]}", "#: 'allOf' of several" },
        { "{\"$ref\":\"#/$defs/a\"}", "#: '$ref': \"#/$defs/a\" is not there" },
        { "{\"$ref\":\"http://example.org/a\"}", "#: '$ref'" },
        { "{\"$ref\":\"#\"}", "#: " },
        { "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"properties\":{\"b\":{\"$ref\":\"#/$defs/"
          "a\"}},\"required\":[\"b\"]}}}",
          ": always needs itself again" },
        { "{\"required\":[\"a\"]}", "#: 'required': expected names of 'properties', found \"a\"" },
        { "{\"minimum\":3,\"maximum\":2,\"type\":\"integer\"}", "#: no number is between" },
        { "{\"minimum\":0.5,\"type\":\"number\"}", "#: 'minimum' is 0.5, expected a whole number" },
        { "{\"minimum\":\"a\"}", "#: 'minimum': expected a number" },
        { "{\"minLength\":3,\"maxLength\":2}", "#: 'minLength' is 3" },
        { "{\"minLength\":-1}", "#: 'minLength': expected a whole number" },
        { "{\"type\":\"array\",\"uniqueItems\":true}", "#: 'uniqueItems' is not supported" },
        { "{\"format\":\"email\"}", "#: 'format': expected date" },
        { "{\"pattern\":\"(?=a)\"}", "#: 'pattern': a group that is not supported" },
        { "{\"pattern\":\"a\\\\b\"}", "#: 'pattern': an escape that is not supported" },
        { "{\"pattern\":\"[a\"}", "#: 'pattern': a class without its end" },
        { "{\"pattern\":\"a**\"}", "#: 'pattern': a repetition of a repetition" },
        { "{\"enum\":[]}", "#: 'enum': expected a list" },
        { "{\"enum\":[1],\"type\":\"string\"}", "#: no value of 'enum'" },
        { "{\"properties\":3}", "#: 'properties': expected an object" },
        { "{\"items\":[{}]}", "#/items: expected a schema" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_grammar *g;
        pal_error err;
        assert_int_equal(pal_grammar_from_schema(&g, cases[i][0], strlen(cases[i][0]), &err), PAL_E_ARGUMENT);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], err.text);
    }
    char deep[4096] = "";
    for (int i = 0; i < 120; i++) strcat(deep, "{\"items\":");
    strcat(deep, "{}");
    for (int i = 0; i < 120; i++) strcat(deep, "}");
    pal_grammar *g;
    pal_error err;
    assert_int_equal(pal_grammar_from_schema(&g, deep, strlen(deep), &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "more than 100 schemas in each other"));
}

/* Random schemas as text. */
static void say(pal_bytes *out, const char *text) { OK(pal_bytes_append(out, text, strlen(text), err)); }

static void random_schema(pal_bytes *out, pal_rng *rng, int depth) {
    static const char *const leaves[] = { "{\"type\":\"string\"}",
                                          "{\"type\":\"string\",\"minLength\":1,\"maxLength\":5}",
                                          "{\"type\":\"boolean\"}",
                                          "{\"type\":\"integer\",\"minimum\":-20,\"maximum\":305}",
                                          "{\"type\":\"number\",\"minimum\":0,\"exclusiveMaximum\":3}",
                                          "{\"type\":\"number\"}",
                                          "{\"enum\":[\"red\",\"green\",3,null]}",
                                          "{\"type\":[\"integer\",\"null\"]}",
                                          "{\"type\":\"string\",\"pattern\":\"^[a-c]+(-[0-9]{2,3})?$\"}",
                                          "{\"type\":\"string\",\"format\":\"date\"}",
                                          "{\"const\":{\"k\":[true]}}" };
    static const char *const names[] = { "name", "a", "ab", "\\\"q\\\"", "\xC3\xA4", "id" };
    const uint32_t kind = depth < 3 ? pal_rng_below(rng, 6) : 5;
    if (kind == 0 || kind == 1) {
        bool required[6];
        const uint32_t n = 1 + pal_rng_below(rng, 5);
        say(out, "{\"type\":\"object\",\"properties\":{");
        for (uint32_t i = 0; i < n; i++) {
            required[i] = pal_rng_below(rng, 2);
            say(out, i ? ",\"" : "\""), say(out, names[i]), say(out, "\":");
            random_schema(out, rng, depth + 1);
        }
        say(out, "},\"required\":[");
        bool any = false;
        for (uint32_t i = 0; i < n; i++)
            if (required[i]) say(out, any ? ",\"" : "\""), say(out, names[i]), say(out, "\""), any = true;
        say(out, pal_rng_below(rng, 3) ? "],\"additionalProperties\":false}"
                                       : "],\"additionalProperties\":{\"type\":\"integer\"}}");
    } else if (kind == 2) {
        say(out, "{\"type\":\"array\",\"maxItems\":4,\"items\":");
        random_schema(out, rng, depth + 1);
        say(out, pal_rng_below(rng, 2) ? ",\"minItems\":2}" : "}");
    } else if (kind == 3) {
        say(out, "{\"anyOf\":[");
        random_schema(out, rng, depth + 1), say(out, ","), random_schema(out, rng, depth + 1);
        say(out, "]}");
    } else {
        say(out, leaves[pal_rng_below(rng, PAL_COUNT(leaves))]);
    }
}

/* A small validator of what random_schema() makes. */
static bool valid(const json_t *schema, const json_t *value);

static bool valid_type(const char *type, const json_t *v) {
    if (strcmp(type, "object") == 0) return json_is_object(v);
    if (strcmp(type, "array") == 0) return json_is_array(v);
    if (strcmp(type, "string") == 0) return json_is_string(v);
    if (strcmp(type, "integer") == 0) return json_is_integer(v);
    if (strcmp(type, "number") == 0) return json_is_number(v);
    return strcmp(type, "boolean") == 0 ? json_is_boolean(v) : json_is_null(v);
}

static bool valid_text(const json_t *schema, const json_t *v) {
    const char *text = json_string_value(v);
    size_t n = 0;
    for (const char *at = text; *at; at++) n += (*at & 0xC0) != 0x80;
    const json_t *least = json_object_get(schema, "minLength"), *most = json_object_get(schema, "maxLength");
    if ((least && (json_int_t)n < json_integer_value(least)) || (most && (json_int_t)n > json_integer_value(most)))
        return false;
    if (json_object_get(schema, "pattern")) {
        const size_t letters = strspn(text, "abc"), left = n - letters;
        return letters && (!left || ((left == 3 || left == 4) && text[letters] == '-' &&
                                     strspn(text + letters + 1, "0123456789") == left - 1));
    }
    int y, m, d, end = 0;
    return !json_object_get(schema, "format") || (sscanf(text, "%4d-%2d-%2d%n", &y, &m, &d, &end) == 3 && end == 10 &&
                                                  !text[10] && m >= 1 && m <= 12 && d >= 1 &&
                                                  d <= (m == 2                                  ? 28
                                                        : m == 4 || m == 6 || m == 9 || m == 11 ? 30
                                                                                                : 31));
}

static bool valid_number(const json_t *schema, const json_t *v) {
    const double x = json_number_value(v);
    const json_t *low = json_object_get(schema, "minimum"), *high = json_object_get(schema, "maximum");
    const json_t *below = json_object_get(schema, "exclusiveMaximum");
    return !(low && x < json_number_value(low)) && !(high && x > json_number_value(high)) &&
           !(below && x >= json_number_value(below));
}

static bool valid_object(const json_t *schema, const json_t *v) {
    const json_t *properties = json_object_get(schema, "properties"),
                 *other = json_object_get(schema, "additionalProperties");
    const json_t *required = json_object_get(schema, "required");
    const char *key;
    json_t *one;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i)))) return false;
    json_object_foreach((json_t *)v, key, one) {
        const json_t *of = json_object_get(properties, key);
        if (of ? !valid(of, one) : json_is_false(other) || !valid(other, one)) return false;
    }
    return true;
}

static bool valid(const json_t *schema, const json_t *v) {
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    const json_t *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "const");
    bool found = false;
    if (any) return valid(json_array_get(any, 0), v) || valid(json_array_get(any, 1), v);
    if (one) return json_equal(one, v);
    for (size_t i = 0; i < json_array_size(list); i++) found |= json_equal(json_array_get(list, i), v);
    if (list) return found;
    for (size_t i = 0; i < (json_is_array(type) ? json_array_size(type) : 1); i++)
        found |= valid_type(json_string_value(json_is_array(type) ? json_array_get(type, i) : type), v);
    if (!found) return false;
    if (json_is_string(v)) return valid_text(schema, v);
    if (json_is_number(v)) return valid_number(schema, v);
    if (json_is_object(v)) return valid_object(schema, v);
    if (!json_is_array(v)) return true;
    const json_t *least = json_object_get(schema, "minItems");
    if (json_array_size(v) > 4 || (least && json_array_size(v) < (size_t)json_integer_value(least))) return false;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!valid(json_object_get(schema, "items"), json_array_get(v, i))) return false;
    return true;
}

/* Several sessions with grammars and one without, all at once; what ends before max_tokens is valid, what does not is
 * the beginning of something valid, and both say which. */
static void what_a_random_model_writes_is_valid(void **state) {
    (void)state;
    enum { TOGETHER = 5 };
    static const tiny_kind kinds[] = { TINY_BYTES, TINY_JSON, TINY_SPM, TINY_GGUF_BPE, TINY_TRAINED };
    static written w[TOGETHER];
    pal_rng rng = pal_rng_at(11, 4);
    int whole = 0, cut = 0;
    for (size_t kind = 0; kind < PAL_COUNT(kinds); kind++) {
        speaker f = test_tiny_speaker(kinds[kind]);
        pal_engine *e = test_engine(&f, NULL);
        pal_session *s[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) s[i] = test_session(e);
        for (int trial = 0; trial < test_cases(6, 60); trial++) {
            pal_bytes schema[TOGETHER] = { 0 };
            pal_grammar *g[TOGETHER];
            for (int i = 0; i < TOGETHER; i++) {
                const bool same = i == 1, none = i == 2;
                random_schema(&schema[i], &rng, same);
                g[i] = NULL;
                if (same) g[i] = g[0];
                else if (!none) OK(pal_grammar_from_schema(&g[i], (const char *)schema[i].data, schema[i].size, err));
                memset(&w[i], 0, sizeof w[i]);
                pal_session_reset(s[i]);
                const uint32_t prompt[] = { 5, 6 };
                test_begin(
                    s[i], &w[i], prompt, 2,
                    (pal_session_options){ .sampling = { .temperature = i == 3 ? 0 : 1.5, .top_k = i == 4 ? 10 : 0 },
                                           .seed = (uint64_t)trial,
                                           .max_tokens = 400,
                                           .grammar = g[i] });
            }
            test_run(e);
            for (int i = 0; i < TOGETHER; i++) {
                if (g[i] && w[i].finish == PAL_FINISH_LENGTH) {
                    cut++;
                    char text[sizeof w[i].text + 1] = "";
                    memcpy(text, w[i].text, w[i].size);
                    if (judge(g[i], text) < 0) fail_msg("\"%s\" does not begin a valid answer", text);
                } else if (g[i]) {
                    json_t *of = json_loadb((const char *)schema[i == 1 ? 0 : i].data, schema[i == 1 ? 0 : i].size, 0,
                                            NULL);
                    json_t *value = json_loadb(w[i].text, w[i].size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES * 0,
                                               NULL);
                    whole++;
                    if (w[i].finish != PAL_FINISH_GRAMMAR && w[i].finish != PAL_FINISH_EOS)
                        fail_msg("%s: ends by %s: %.*s", tiny_names[kinds[kind]], pal_finish_name(w[i].finish),
                                 (int)w[i].size, w[i].text);
                    if (!value || !valid(of, value))
                        fail_msg("%s: %.*s: %.*s", tiny_names[kinds[kind]], (int)schema[i].size,
                                 (const char *)schema[i].data, (int)w[i].size, w[i].text);
                    json_decref(of), json_decref(value);
                }
            }
            for (int i = 0; i < TOGETHER; i++) {
                pal_bytes_free(&schema[i]);
                if (i != 1) pal_grammar_free(g[i]);
            }
        }
        for (int i = 0; i < TOGETHER; i++) pal_session_free(s[i]);
        pal_engine_free(e);
        test_speaker_free(&f);
    }
    if (whole < 60 || !cut) fail_msg("%d whole, %d cut", whole, cut);
}

/* One text under a grammar, which must be given with its bytes. */
static void write_one(pal_engine *e, const char *rules, pal_session_options o, written *w) {
    pal_session *s = test_session(e);
    pal_grammar *g;
    static const uint32_t prompt[] = { 5, 6 };
    OK(pal_grammar_read(&g, rules, strlen(rules), err));
    o.grammar = g;
    memset(w, 0, sizeof *w);
    test_begin(s, w, prompt, 2, o);
    test_run(e);
    pal_session_free(s);
    pal_grammar_free(g);
}

static void ends_come_where_the_grammar_is_complete(void **state) {
    (void)state;
    static written w;
    speaker f = test_tiny_speaker(TINY_SPM);
    pal_engine *e = test_engine(&f, NULL);
    const int64_t eos = pal_tokenizer_eos(f.tok);
    assert_true(eos >= 0);
    const pal_logit_bias bias = { (int32_t)eos, 1000 };
    pal_session_options o = { .sampling = { .temperature = 1, .bias = &bias, .bias_count = 1 }, .max_tokens = 40 };
    write_one(e, "root ::= \"ab\"+", o, &w); /* EOS is preferred at once, and may come after the first */
    assert_int_equal(w.finish, PAL_FINISH_EOS);
    assert_int_equal(w.size, 2);
    assert_memory_equal(w.text, "ab", 2);
    o.ignore_eos = true;
    write_one(e, "root ::= \"ab\"+", o, &w);
    assert_int_equal(w.finish, PAL_FINISH_LENGTH);
    for (int i = 0; i < w.count; i++) assert_true(w.ids[i] != eos);
    write_one(e, "root ::= \"ab\"{3}", o, &w);
    assert_int_equal(w.finish, PAL_FINISH_GRAMMAR);
    assert_memory_equal(w.text, "ababab", w.size);
    write_one(e, "root ::= \"\\xe4\"", (pal_session_options){ .max_tokens = 1 }, &w);
    assert_true(w.finish == PAL_FINISH_LENGTH || w.finish == PAL_FINISH_GRAMMAR);
    pal_engine_free(e);
    test_speaker_free(&f);
}

/* The model's own numbers: those of the same tokens read as a prompt. */
static void logprobs_are_those_without_a_grammar(void **state) {
    (void)state;
    static written w;
    speaker f = test_tiny_speaker(TINY_BYTES);
    pal_engine *e = test_engine(&f, NULL);
    pal_session_options o = { .sampling = { .temperature = 1 }, .seed = 5, .max_tokens = 20, .logprobs = true };
    write_one(e, "root ::= [a-c]{20}", o, &w);
    assert_int_equal(w.count, 20);
    uint32_t ids[22] = { 5, 6 };
    for (int i = 0; i < 20; i++) ids[2 + i] = (uint32_t)w.ids[i];
    pal_session *s = test_session(e);
    static written again;
    memset(&again, 0, sizeof again);
    test_begin(s, &again, ids, 22, (pal_session_options){ .logprobs = true, .prompt_logprobs = true });
    test_run(e);
    for (int i = 0; i < 20; i++)
        if (!(fabs(w.logprob[i] - again.logprob[2 + i]) < 1e-4))
            fail_msg("token %d: %g, read %g", i, w.logprob[i], again.logprob[2 + i]);
    pal_session_free(s);
    pal_engine_free(e);
    test_speaker_free(&f);
}

/* What is sampled is distributed as the model's probabilities, made to sum to 1 over what is allowed. */
static void what_is_left_keeps_its_proportions(void **state) {
    (void)state;
    enum { DRAWS = 4000 };
    static written w;
    speaker f = test_tiny_speaker(TINY_BYTES);
    pal_engine *e = test_engine(&f, NULL);
    int count[3] = { 0 };
    double p[3] = { 0 }, sum = 0, chi = 0;
    for (int i = 0; i < DRAWS; i++) {
        write_one(e, "root ::= [x-z]",
                  (pal_session_options){
                      .sampling = { .temperature = 1 }, .seed = (uint64_t)i, .max_tokens = 1, .logprobs = true },
                  &w);
        assert_int_equal(w.size, 1);
        count[w.text[0] - 'x']++;
        p[w.text[0] - 'x'] = exp(w.logprob[0]);
    }
    for (int k = 0; k < 3; k++) sum += p[k];
    for (int k = 0; k < 3; k++) chi += pow(count[k] - DRAWS * p[k] / sum, 2) / (DRAWS * p[k] / sum);
    if (!(chi < 14)) fail_msg("chi-square %g: %d %d %d", chi, count[0], count[1], count[2]); /* 1 in 1,000 */
    pal_engine_free(e);
    test_speaker_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_mean_what_they_say),
        cmocka_unit_test(what_is_not_supported_is_refused_with_its_path),
        cmocka_unit_test(what_a_random_model_writes_is_valid),
        cmocka_unit_test(ends_come_where_the_grammar_is_complete),
        cmocka_unit_test(logprobs_are_those_without_a_grammar),
        cmocka_unit_test(what_is_left_keeps_its_proportions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
