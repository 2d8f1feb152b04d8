/* SPDX-License-Identifier: MIT */
/* Grammars by themselves: what is read, what a machine follows, and masks against a plain search. */
#include <ctype.h>
#include <math.h>

#include "base/alloc.h"
#include "grammar/guide.h"
#include "support/text.h"
#include "text/strings.h"

static pal_grammar *read_rules(const char *text) {
    pal_grammar *g;
    OK(pal_grammar_read(&g, text, strlen(text), err));
    return g;
}

/* A plain search over the nodes: where a match that begins at a byte can end, as bits, and whether the text ended while
 * one was still under way. Texts have fewer than 63 bytes. */
typedef struct {
    const pal_grammar *g;
    const unsigned char *text;
    size_t size;
    bool under_way;
} search;

static uint64_t ends_of(search *s, uint32_t node, size_t at);

static uint64_t ends_from(search *s, uint32_t node, uint64_t starts) {
    uint64_t ends = 0;
    for (size_t i = 0; i <= s->size; i++)
        if (starts >> i & 1) ends |= ends_of(s, node, i);
    return ends;
}

static uint64_t ends_of(search *s, uint32_t node, size_t at) {
    const pal_node *n = &s->g->node[node];
    uint64_t ends = 0, now = (uint64_t)1 << at;
    switch (n->kind) {
    case PAL_NODE_RANGE:
        if (at == s->size) s->under_way = true;
        else if (s->text[at] >= n->low && s->text[at] <= n->high) ends = (uint64_t)2 << at;
        return ends;
    case PAL_NODE_RULE: return ends_of(s, s->g->rule[n->first], at);
    case PAL_NODE_CHOICE:
        for (uint32_t i = 0; i < n->count; i++) ends |= ends_of(s, s->g->child[n->first + i], at);
        return ends;
    case PAL_NODE_SEQUENCE:
        for (uint32_t i = 0; i < n->count; i++) now = ends_from(s, s->g->child[n->first + i], now);
        return now;
    default:
        for (uint32_t i = 0; i <= n->most && now; i++) {
            const uint64_t before = ends;
            if (i >= n->least) ends |= now;
            if (i > n->least && ends == before) break;
            if (i < n->most) now = ends_from(s, n->first, now);
        }
        return ends;
    }
}

static bool may_begin(const pal_grammar *g, const void *text, size_t size, bool *complete) {
    search s = { g, text, size, false };
    const uint64_t ends = ends_of(&s, g->root, 0);
    if (complete) *complete = ends >> size & 1;
    return s.under_way || ends >> size & 1;
}

/* +1: of the grammar; 0: the beginning of one; -1: neither. Machine and search must agree. */
static int judge(const pal_grammar *g, const char *text, size_t size) {
    pal_machine *m;
    pal_place place;
    bool complete;
    OK(pal_machine_new(&m, g, 100, err));
    pal_machine_hold(m, &place);
    const int32_t at = pal_machine_bytes(m, place.at, (const unsigned char *)text, size);
    const int found = at <= 0 ? -1 : pal_machine_complete(m, at);
    if (size < 60) {
        const bool begins = may_begin(g, text, size, &complete);
        assert_int_equal(found, complete ? 1 : begins ? 0 : -1);
    }
    pal_machine_drop(&place);
    pal_machine_free(m);
    return found;
}

static void expect(const char *rules, const char *const *whole, const char *const *begun, const char *const *wrong) {
    pal_grammar *g = read_rules(rules);
    for (int kind = 0; kind < 3; kind++) {
        const char *const *list = kind == 0 ? whole : kind == 1 ? begun : wrong;
        for (; *list; list++)
            if (judge(g, *list, strlen(*list)) != 1 - kind)
                fail_msg("%s: \"%s\" is %d, expected %d", rules, *list, judge(g, *list, strlen(*list)), 1 - kind);
    }
    pal_grammar_free(g);
}
#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void rules_mean_what_they_say(void **state) {
    (void)state;
    expect("root ::= \"yes\" | \"no\"", LIST("yes", "no"), LIST("", "y", "ye", "n"), LIST("x", "yess", "nn"));
    expect("root ::= a{2,3} \"b\"?\na ::= [x-z]", LIST("xy", "zzz", "xyb"), LIST("", "x"), LIST("xyzx", "b", "xbb"));
    expect("# a list\nroot ::= \"(\" (root (\",\" root)*)? \")\" # nested\n", LIST("()", "(())", "((),(()))"),
           LIST("(", "((),"), LIST(")", "())", "(,"));
    expect("root ::= [^a-c\\n]+", LIST("d", "\xC3\xA4\xE2\x82\xAC", "\xF0\x9F\x98\x80"),
           LIST("", "\xC3", "\xF0\x9F", "d\xE2"), LIST("a", "da", "\n", "\xC0", "\xED\xA0", "\xFF", "d\x80"));
    expect("root ::= (\"a\"* \"b\"?)* \"c\"", LIST("c", "aabc", "bbabac"), LIST("", "ab"), LIST("d", "cc"));
    expect("root ::= . \"\\u00e4\" \"\\x41\\t\"",
           LIST("x\xC3\xA4"
                "A\t"),
           LIST("x", "x\xC3"), LIST("xA"));
    expect("root ::= [\\]\\-^]{3}", LIST("]-^"), LIST("-"), LIST("a"));
    expect("root ::= \"a\" |\n  \"b\"\n | tail\ntail::=\"c\"+", LIST("a", "b", "cc"), LIST(""), LIST("ab", "d"));
    expect("root ::= \"\" | \"a\"", LIST("", "a"), (const char *const[]){ NULL }, LIST("b"));
    expect("root ::= [0-9]{0,1000000}", LIST("", "123"), (const char *const[]){ NULL }, LIST("a"));
}

static void bad_rules_are_refused_with_their_line(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "", "no rule named 'root'" },
        { "rule ::= \"a\"", "no rule named 'root'" },
        { "root ::= b", "line 1: rule 'b' is not there" },
        { "root ::= \"a\"\nroot ::= \"b\"", "line 2: rule 'root' is there twice" },
        { "root ::= \"a", "line 1: a literal" },
        { "root ::= (\"a\"", "line 1: expected )" },
        { "root ::= \"a\")", "line 1: a ) without its (" },
        { "root ::= [z-a]", "ends before it begins" },
        { "root ::= []", "without characters" },
        { "root ::= \"\\q\"", "unknown escape" },
        { "root ::= \"\\ud800\"", "no character" },
        { "root ::= \"\xFF\"", "not UTF-8" },
        { "root ::= \"a\"{3,2}", "{n,m}" },
        { "root ::= \"a\"{x}", "{n,m}" },
        { "root ::= \n!", "line 2: '!' found" },
        { "root ::= root \"a\" | \"b\"", "rule 'root' begins with itself" },
        { "root ::= \"x\"? a\na ::= b\nb ::= root \"c\" | \"d\"", "begins with itself" },
        { "root ::= \"a\" root", "rule 'root' always needs itself" },
        { "root ::= (\"a\"?){2,3}", "of what may be empty" },
        { "::= \"a\"", "line 1: expected a rule" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_grammar *g;
        pal_error err;
        assert_int_equal(pal_grammar_read(&g, cases[i][0], strlen(cases[i][0]), &err), PAL_E_ARGUMENT);
        assert_null(g);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], err.text);
    }
}

/* Random rules over a few letters, some of them of several bytes. A rule names only later ones, or itself at the end.
 */
static void random_item(pal_bytes *out, pal_rng *rng, int depth, int rule, int rules) {
    static const char *const atoms[] = { "\"a\"",        "\"ab\"",       "[a-c]",
                                         "[^a\xC3\xA4]", "\"\xC3\xA4\"", "[\xC3\xA4-\xE2\x82\xAC]",
                                         "\".\"",        "\"\\\"\"" };
    static const char *const counts[] = { "", "", "", "?", "*", "+", "{2}", "{1,3}", "{0,40}", "{2,}" };
    char name[16];
    const uint32_t what = pal_rng_below(rng, 10);
    if (what < 2 && depth < 3) {
        (void)pal_bytes_append(out, "(\"c\" ", 5, NULL); /* never empty, whatever follows */
        random_item(out, rng, depth + 1, rule, rules);
        (void)pal_bytes_append(out, " | ", 3, NULL);
        random_item(out, rng, depth + 1, rule, rules);
        (void)pal_bytes_append(out, " \"b\")", 5, NULL);
    } else if (what < 4 && rule + 1 < rules) {
        snprintf(name, sizeof name, "(\"b\" r%d)", rule + 1 + (int)pal_rng_below(rng, (uint32_t)(rules - rule - 1)));
        (void)pal_bytes_append(out, name, strlen(name), NULL);
    } else {
        const char *atom = atoms[pal_rng_below(rng, PAL_COUNT(atoms))];
        (void)pal_bytes_append(out, atom, strlen(atom), NULL);
    }
    const char *count = counts[pal_rng_below(rng, PAL_COUNT(counts))];
    (void)pal_bytes_append(out, count, strlen(count), NULL);
}

static pal_grammar *random_rules(pal_rng *rng, pal_bytes *text) {
    const int rules = 1 + (int)pal_rng_below(rng, 4);
    text->size = 0;
    for (int r = 0; r < rules; r++) {
        char head[24];
        snprintf(head, sizeof head, r ? "\nr%d ::= " : "root ::= ", r);
        (void)pal_bytes_append(text, head, strlen(head), NULL);
        for (uint32_t i = 0, n = 1 + pal_rng_below(rng, 4); i < n; i++) {
            if (i && pal_rng_below(rng, 4) == 0) (void)pal_bytes_append(text, " | ", 3, NULL);
            (void)pal_bytes_append(text, " ", 1, NULL);
            random_item(text, rng, 0, r, rules);
        }
        if (pal_rng_below(rng, 3) == 0) {
            snprintf(head, sizeof head, r ? " | \"a\" r%d" : " | \"a\" root", r);
            (void)pal_bytes_append(text, head, strlen(head), NULL);
        }
    }
    (void)pal_bytes_append(text, "", 1, NULL);
    return read_rules((const char *)text->data);
}

/* Texts under random rules, token by token: the mask of each step is what a search finds for each token. */
static void masks_are_what_a_search_finds(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(7, 1);
    pal_bytes rules = { 0 }, text = { 0 }, one = { 0 };
    size_t allowed_ones = 0, refused = 0;
    for (int kind = 0; kind < TINY_KINDS; kind++) {
        pal_tokenizer *tok = test_tiny((tiny_kind)kind);
        pal_spellings *spellings;
        const size_t ids = pal_tokenizer_size(tok), words = (ids + 63) / 64;
        uint64_t *allowed = pal_alloc(words, sizeof *allowed);
        OK(pal_spellings_new(&spellings, tok, err));
        for (int trial = 0; trial < test_cases(30, 300); trial++) {
            pal_grammar *g = random_rules(&rng, &rules);
            pal_guide *guide;
            pal_place place;
            bool over = false, complete, really;
            OK(pal_guide_new(&guide, g, spellings, err));
            pal_guide_begin(guide, &place);
            text.size = 0;
            for (int step = 0; step < 12 && !over && text.size < 30; step++) {
                uint32_t chosen = 0, count = 0;
                assert_true(pal_guide_next(guide, &place, allowed, &complete));
                assert_true(may_begin(g, text.data ? text.data : (unsigned char *)"", text.size, &really));
                assert_int_equal(complete, really);
                for (uint32_t id = 0; id < ids; id++) {
                    one.size = 0;
                    OK(pal_bytes_append(&one, text.data, text.size, err));
                    OK(pal_spell(tok, id, &one, err));
                    const bool may = one.size > text.size && one.size < 60 && may_begin(g, one.data, one.size, NULL);
                    if (one.size >= 60) continue;
                    if (may != (allowed[id / 64] >> id % 64 & 1))
                        fail_msg("%s, %s: after \"%.*s\" token %u is %d by search", tiny_names[kind], rules.data,
                                 (int)text.size, (const char *)text.data, id, may);
                    allowed_ones += may, refused += !may;
                    if (may && pal_rng_below(&rng, ++count) == 0) chosen = id;
                }
                if (!count) {
                    assert_true(complete);
                    break;
                }
                one.size = 0;
                OK(pal_spell(tok, chosen, &one, err));
                OK(pal_bytes_append(&text, one.data, one.size, err));
                assert_true(pal_guide_accept(guide, &place, (pal_slice){ one.data, one.size }, &over));
            }
            pal_machine_drop(&place);
            pal_guide_free(guide);
            pal_grammar_free(g);
        }
        pal_free(allowed);
        pal_spellings_free(spellings);
        pal_tokenizer_close(tok);
    }
    assert_true(allowed_ones > 1000 && refused > 10000);
    pal_bytes_free(&rules), pal_bytes_free(&text), pal_bytes_free(&one);
}

/* Two texts share a machine whose tables fill: a long random walk through nested lists of counted parts. */
static void full_tables_change_nothing(void **state) {
    (void)state;
    static const char rules[] =
        "root ::= list{300}\nlist ::= \"[\" (word | list){0,200} \"]\"\nword ::= [a-z]{1,150} \" \"";
    pal_grammar *g = read_rules(rules);
    pal_machine *m;
    pal_place place[2];
    pal_rng rng = pal_rng_at(3, 0);
    int depth[2] = { 0, 0 }, letters[2] = { 0, 0 }, lists[2] = { 0, 0 }, parts[2][64] = { { 0 } };
    OK(pal_machine_new(&m, g, 8, err));
    for (int i = 0; i < 2; i++) pal_machine_hold(m, &place[i]);
    for (int step = 0; step < 60000; step++) {
        const int i = (int)pal_rng_below(&rng, 2);
        const char c = "[] abz"[pal_rng_below(&rng, 6)];
        const bool word = isalpha((unsigned char)c);
        const bool may = c == '['
                             ? !letters[i] && depth[i] < 60 && (depth[i] ? parts[i][depth[i]] < 200 : lists[i] < 300)
                         : c == ']' ? depth[i] && !letters[i]
                         : c == ' ' ? letters[i] > 0
                                    : depth[i] && (letters[i] ? letters[i] < 150 : parts[i][depth[i]] < 200);
        if (c == '[' && depth[i] == 60) continue;
        int32_t to = pal_machine_step(m, place[i].at, (unsigned char)c);
        if (to == PAL_PLACE_FULL) {
            assert_true(pal_machine_collect(m));
            to = pal_machine_step(m, place[i].at, (unsigned char)c);
        }
        if ((to > 0) != may) fail_msg("step %d: '%c' leads to %d, expected %d", step, c, to, may);
        if (!may) continue;
        place[i].at = to;
        if (word) letters[i]++;
        if (c == ' ') letters[i] = 0;
        if ((word && letters[i] == 1) || (c == '[' && depth[i])) parts[i][depth[i]]++;
        if (c == '[') lists[i] += !depth[i], parts[i][++depth[i]] = 0;
        if (c == ']') depth[i]--;
    }
    assert_true(pal_machine_age(m) > 3);
    for (int i = 0; i < 2; i++) pal_machine_drop(&place[i]);
    pal_machine_free(m);
    pal_grammar_free(g);
}

static void special_tokens_come_where_they_are_named(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tiny(TINY_JSON);
    pal_spellings *spellings;
    pal_guide *guide;
    pal_place place;
    uint64_t allowed[64];
    bool complete, over;
    uint32_t special = PAL_NO_ID;
    for (uint32_t id = 0; id < pal_tokenizer_size(tok); id++)
        if (pal_tokenizer_is_special(tok, id) && !pal_tokenizer_is_end(tok, id)) special = id;
    if (special == PAL_NO_ID) skip();
    char rules[200];
    const pal_slice name = pal_tokenizer_name(tok, special);
    snprintf(rules, sizeof rules, "root ::= \"a\" <\"%.*s\"> .*", (int)name.size, (const char *)name.data);
    pal_grammar *g = read_rules(rules);
    pal_bytes one = { 0 };
    OK(pal_spellings_new(&spellings, tok, err));
    OK(pal_guide_new(&guide, g, spellings, err));
    pal_guide_begin(guide, &place);
    assert_true(pal_guide_accept(guide, &place, (pal_slice){ (const unsigned char *)"a", 1 }, &over));
    assert_true(pal_guide_next(guide, &place, allowed, &complete));
    for (uint32_t id = 0; id < pal_tokenizer_size(tok); id++)
        assert_int_equal(allowed[id / 64] >> id % 64 & 1, id == special);
    OK(pal_spell(tok, special, &one, err));
    assert_true(pal_guide_accept(guide, &place, (pal_slice){ one.data, one.size }, &over));
    assert_true(pal_guide_next(guide, &place, allowed, &complete));
    assert_false(allowed[special / 64] >> special % 64 & 1);
    pal_bytes_free(&one);
    pal_machine_drop(&place);
    pal_guide_free(guide);
    pal_spellings_free(spellings);
    pal_grammar_free(g);
    pal_tokenizer_close(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_mean_what_they_say),
        cmocka_unit_test(bad_rules_are_refused_with_their_line),
        cmocka_unit_test(masks_are_what_a_search_finds),
        cmocka_unit_test(full_tables_change_nothing),
        cmocka_unit_test(special_tokens_come_where_they_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
