/* SPDX-License-Identifier: MIT */
/* SentencePiece's rules beyond the usual ones, and vocabularies of GGUF with more or other keys than most files have;
 * what of them can be written to a GGUF file again. */
#include "format/gguf_values.h"
#include "support/text.h"
#include "text/gguf_export.h"

#define SIGN "\xE2\x96\x81"

static void put(pal_bytes *out, const void *data, size_t size) { OK(pal_bytes_append(out, data, size, err)); }

/* ---- SentencePiece's file: fields of protobuf */

static void put_field(pal_bytes *out, int number, const void *data, size_t size) {
    unsigned char head[8] = { (unsigned char)(number << 3 | 2) };
    size_t n = 1;
    for (size_t left = size; n == 1 || left; left >>= 7)
        head[n++] = (unsigned char)((left & 0x7F) | (left > 0x7F ? 0x80 : 0));
    put(out, head, n);
    put(out, data, size);
}

typedef struct {
    const char *name;
    float score;
    unsigned char kind; /* 0: not said */
} piece;

static void put_pieces(pal_bytes *out, const piece *pieces, size_t count) {
    for (size_t i = 0; i < count; i++) {
        pal_bytes one = { 0 };
        put_field(&one, 1, pieces[i].name, strlen(pieces[i].name));
        put(&one, "\x15", 1);
        put(&one, &pieces[i].score, 4);
        if (pieces[i].kind) put(&one, (unsigned char[2]){ 0x18, pieces[i].kind }, 2);
        put_field(out, 1, one.data, one.size);
        pal_bytes_free(&one);
    }
}

static pal_status read_file(const pal_bytes *file, int reader, pal_tokenizer **tok, pal_error *err) {
    return test_read(reader, file->data, file->size, tok, err);
}

/* rules: dummy prefix, blanks that become one, escaped blanks. */
static pal_tokenizer *pieces_of(const piece *pieces, size_t count, bool unigram, const char rules[3],
                                const pal_bytes *map) {
    pal_bytes file = { 0 }, normalizer = { 0 };
    pal_tokenizer *tok;
    put_pieces(&file, pieces, count);
    put_field(&file, 2, unigram ? "\x18\x01" : "\x18\x02", 2);
    if (map) put_field(&normalizer, 2, map->data, map->size);
    for (int i = 0; i < 3; i++)
        put(&normalizer, (unsigned char[2]){ (unsigned char)(0x18 + 8 * i), rules[i] == '1' }, 2);
    put_field(&file, 3, normalizer.data, normalizer.size);
    OK(read_file(&file, READER_SPM, &tok, err));
    pal_bytes_free(&file);
    pal_bytes_free(&normalizer);
    return tok;
}

static const piece letters[] = {
    { "<unk>", 0, PAL_PIECE_UNKNOWN }, { "a", -1 }, { "b", -2 }, { SIGN, -3 }, { " ", -3 }, { "ab", 0.5f }
};

static void blanks_follow_the_rules(void **state) {
    (void)state;
    static const struct {
        const char *rules, *text, *names;
    } cases[] = {
        { "101", " a  b ", SIGN "|" SIGN "|a|" SIGN "|" SIGN "|b|" SIGN },
        { "111", " a  b ", SIGN "|a|" SIGN "|b" },
        { "011", "  a", "a" },
        { "111", "   ", "" },
        { "110", "  a  b  ", " |a| |b" },
        { "000", "a ", "a| " },
        { "001", "ab", "ab" },
        { "111", "zz a zb", SIGN "|<unk>|" SIGN "|a|" SIGN "|<unk>|b" },
    };
    for (int unigram = 0; unigram < 2; unigram++)
        for (size_t i = 0; i < PAL_COUNT(cases); i++) {
            pal_tokenizer *tok = pieces_of(letters, PAL_COUNT(letters), unigram, cases[i].rules, NULL);
            test_names_are(tok, "pieces", cases[i].text, cases[i].names);
            pal_tokenizer_close(tok);
        }
}

/* Unknowns side by side are one id; the blank between two words is known. */
static void unknowns_join(void **state) {
    (void)state;
    static const piece pieces[] = {
        { "<unk>", 0, PAL_PIECE_UNKNOWN }, { "a", -1 }, { SIGN, -2 }, { "<u>", 0, PAL_PIECE_USER }
    };
    pal_tokenizer *tok = pieces_of(pieces, PAL_COUNT(pieces), false, "001", NULL);
    assert_true(tok->words);
    test_names_are(tok, "pieces", "zz z", "<unk>|" SIGN "|<unk>");
    test_names_are(tok, "pieces", "z<u>z az", "<unk>|<u>|<unk>|" SIGN "|a|<unk>");
    pal_tokenizer_close(tok);
}

/* An unused piece helps to merge, and is taken apart in the end. */
static void unused_pieces_fall_apart(void **state) {
    (void)state;
    static const piece pieces[] = { { "<unk>", 0, PAL_PIECE_UNKNOWN },
                                    { "a", -1 },
                                    { "b", -1 },
                                    { "c", -1, PAL_PIECE_UNUSED },
                                    { "ab", -2, PAL_PIECE_UNUSED },
                                    { "bb", -3, PAL_PIECE_UNUSED },
                                    { "abc", -4 } };
    for (int unigram = 0; unigram < 2; unigram++) {
        pal_tokenizer *tok = pieces_of(pieces, PAL_COUNT(pieces), unigram, "001", NULL);
        test_names_are(tok, "pieces", "abc", "abc");
        test_names_are(tok, "pieces", "ab", "a|b");
        test_names_are(tok, "pieces", "abb", "a|b|b");
        test_names_are(tok, "pieces", "bbab", "b|b|a|b");
        test_names_are(tok, "pieces", "c", unigram ? "<unk>" : "c");
        pal_tokenizer_close(tok);
    }
}

/* However long the text and however deep the pieces: these would take hours, or all of the stack. */
static void many_unused_pieces_fall_apart(void **state) {
    (void)state;
    enum { PAIRS = 400000, DEEP = 1500 };
    static const piece pieces[] = {
        { "<unk>", 0, PAL_PIECE_UNKNOWN }, { "a", -1 }, { "b", -1 }, { "c", -1 }, { "ab", -2, PAL_PIECE_UNUSED },
        { "ac", -2, PAL_PIECE_UNUSED }
    };
    pal_tokenizer *tok = pieces_of(pieces, PAL_COUNT(pieces), false, "001", NULL);
    char *text = malloc(4 * PAIRS);
    pal_ids ids = { 0 };
    assert_non_null(text);
    for (size_t i = 0; i < 2 * PAIRS; i++) memcpy(text + 2 * i, i < PAIRS ? "ab" : "ac", 2);
    test_encode(tok, text, 4 * PAIRS, &ids);
    assert_int_equal(ids.count, 4 * PAIRS);
    for (size_t i = 0; i < ids.count; i++)
        if (ids.data[i] != (i % 2 == 0 ? 1u : i < 2 * PAIRS ? 2u : 3u)) fail_msg("id %u at %zu", ids.data[i], i);
    pal_tokenizer_close(tok);
    free(text);

    /* abbb...: each piece is the one before and a letter. */
    piece *deep = malloc((DEEP + 2) * sizeof *deep);
    char *names = malloc((DEEP + 1) * (DEEP + 1));
    assert_true(deep && names);
    deep[0] = pieces[0];
    deep[DEEP + 1] = pieces[2];
    for (size_t i = 0; i < DEEP; i++) {
        char *name = names + i * (DEEP + 1);
        memset(name, 'b', i + 1);
        name[0] = 'a';
        name[i + 1] = 0;
        deep[i + 1] = (piece){ name, -1, i ? PAL_PIECE_UNUSED : PAL_PIECE_NORMAL };
    }
    tok = pieces_of(deep, DEEP + 2, false, "001", NULL);
    ids.count = 0;
    test_encode(tok, deep[DEEP].name, DEEP, &ids);
    assert_int_equal(ids.count, DEEP);
    for (size_t i = 0; i < DEEP; i++) assert_int_equal(ids.data[i], i ? DEEP + 1 : 1);
    pal_ids_free(&ids);
    pal_tokenizer_close(tok);
    free(deep);
    free(names);
}

/* Pieces that are looked for at each place of a text have a limit; those that merges make do not. */
static void what_is_looked_for_is_not_long(void **state) {
    (void)state;
    enum { LONGEST = 1024 };
    char name[LONGEST + 2] = "";
    for (int unigram = 0; unigram < 2; unigram++)
        for (int user = 0; user < 2; user++)
            for (size_t size = LONGEST; size <= LONGEST + 1; size++) {
                pal_bytes file = { 0 };
                pal_tokenizer *tok;
                pal_error err = { 0 };
                memset(name, 'a', size);
                name[size] = 0;
                const piece pieces[] = { { "<unk>", 0, PAL_PIECE_UNKNOWN },
                                         { "a", -1 },
                                         { name, -1, user ? PAL_PIECE_USER : PAL_PIECE_NORMAL } };
                put_pieces(&file, pieces, PAL_COUNT(pieces));
                put_field(&file, 2, unigram ? "\x18\x01" : "\x18\x02", 2);
                const bool refused = size > LONGEST && (unigram || user);
                assert_int_equal(read_file(&file, READER_SPM, &tok, &err), refused ? PAL_E_UNSUPPORTED : PAL_OK);
                if (!refused) pal_tokenizer_close(tok);
                else assert_non_null(strstr(err.text, "piece 2 has 1025 bytes; at most 1024 are accepted"));
                pal_bytes_free(&file);
            }
}

/* Sums of scores begin anew before they lose their digits, and all of them: a piece that reaches over stays as bad. */
static void long_texts_keep_their_best_way(void **state) {
    (void)state;
    static const piece pieces[] = { { "<unk>", 0, PAL_PIECE_UNKNOWN }, { "a", -40000 }, { "aa", -90000 }, { "b", -1 } };
    pal_tokenizer *tok = pieces_of(pieces, PAL_COUNT(pieces), true, "001", NULL);
    test_names_are(tok, "pieces", "aaaaaaaab", "a|a|a|a|a|a|a|a|b");
    pal_tokenizer_close(tok);
}

/* ---- the map of characters: a double array of 256 units, then strings */

enum { UNITS = 256 };
static void put_unit(unsigned char *units, size_t at, uint32_t unit) {
    for (int i = 0; i < 4; i++) units[4 * at + (size_t)i] = (unsigned char)(unit >> (8 * i));
}

/* A -> "ab", CD -> "b", E and F -> beyond the map, G -> half a character */
static void character_map(pal_bytes *map) {
    static const char strings[] = "ab\0b\0\xF0";
    unsigned char units[4 * UNITS] = { 0 };
    put_unit(units, 'A', 'A' | 0x100 | ('A' ^ 0x80u) << 10);
    put_unit(units, 0x80, 0x80000000u);
    put_unit(units, 'C', 'C' | ('C' ^ 0x90u) << 10);
    put_unit(units, 0x90 ^ 'D', 'D' | 0x100 | (0x90u ^ 'D' ^ 0x81u) << 10);
    put_unit(units, 0x81, 0x80000003u);
    put_unit(units, 'E', 'E' | 0x100 | 0x200 | 0xFFu << 10); /* its leaf lies after the units */
    put_unit(units, 'F', 'F' | 0x100 | ('F' ^ 0x82u) << 10);
    put_unit(units, 0x82, 0x80001000u); /* its string lies after the end */
    put_unit(units, 'G', 'G' | 0x100 | ('G' ^ 0x83u) << 10);
    put_unit(units, 0x83, 0x80000005u);
    put_unit(units, 'H', 'H' | 0x3FFu << 20); /* its children lie after the units */
    put_unit(units, 'I', 'I' | 'I' << 10);    /* the next one is itself */
    put(map, (unsigned char[4]){ 0, 4 * UNITS >> 8, 0, 0 }, 4);
    put(map, units, sizeof units);
    put(map, strings, sizeof strings);
}

static void characters_are_mapped(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "A", "ab" },       { "aAb", "a|ab|b" }, { "CD", "b" },    { "C", "<unk>" },     { "CA", "<unk>|ab" },
        { "aE", "a|<unk>" }, { "F", "<unk>" },    { "G", "<unk>" }, { "HA", "<unk>|ab" }, { "aG", "a|<unk>" },
    };
    pal_bytes map = { 0 };
    character_map(&map);
    for (int unigram = 0; unigram < 2; unigram++) {
        pal_tokenizer *tok = pieces_of(letters, PAL_COUNT(letters), unigram, "001", &map);
        for (size_t i = 0; i < PAL_COUNT(cases); i++) test_names_are(tok, "pieces", cases[i][0], cases[i][1]);
        pal_tokenizer_close(tok);
    }
    /* And damaged. */
    static const struct {
        size_t at;
        unsigned char byte;
        size_t size;
    } damages[] = { { 0, 0, 8 }, { 0, 2, 0 }, { 1, 0, 0 }, { 1, 0x10, 0 }, { 4 + 4 * UNITS + 6, 'x', 0 } };
    for (size_t i = 0; i < PAL_COUNT(damages); i++) {
        pal_bytes file = { 0 }, normalizer = { 0 };
        pal_tokenizer *tok;
        pal_error err = { 0 };
        const unsigned char was = map.data[damages[i].at];
        map.data[damages[i].at] = damages[i].byte;
        put_pieces(&file, letters, PAL_COUNT(letters));
        put_field(&normalizer, 2, map.data, damages[i].size ? damages[i].size : map.size);
        put_field(&file, 3, normalizer.data, normalizer.size);
        if (!read_file(&file, READER_SPM, &tok, &err)) fail_msg("damage %zu was accepted", i);
        assert_non_null(strstr(err.text, "character map is damaged"));
        map.data[damages[i].at] = was;
        pal_bytes_free(&file);
        pal_bytes_free(&normalizer);
    }
    pal_bytes_free(&map);
}

static void encoding_says(const pal_tokenizer *tok, const char *text, size_t size, const char *says) {
    pal_tokenizer_scratch *s;
    pal_ids ids = { 0 };
    pal_error err = { 0 };
    assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
    const pal_status st = pal_tokenizer_encode(tok, s, text, size, NULL, &ids, &err);
    if (says ? st != PAL_E_ARGUMENT || !strstr(err.text, says) : st != PAL_OK)
        fail_msg("'%s' does not say '%s'", st ? err.text : "encoded", says ? says : "nothing");
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(s);
}

/* A map may lead round and round, and make much of a little: blanks, too, of which nothing is left. */
static void a_character_map_has_limits(void **state) {
    (void)state;
    enum { RULE_MAX = 256, LONG = 4000 };
    char text[RULE_MAX + 2], becomes[LONG + 1] = "";
    memset(text, 'I', sizeof text);
    pal_bytes map = { 0 };
    character_map(&map);
    pal_tokenizer *tok = pieces_of(letters, PAL_COUNT(letters), false, "001", &map);
    encoding_says(tok, text, RULE_MAX, NULL);
    encoding_says(tok, text, RULE_MAX + 1, "rules for more than 256 bytes at once");
    pal_tokenizer_close(tok);

    memset(text, 'A', sizeof text);
    for (int blanks = 0; blanks < 2; blanks++) {
        memset(becomes, blanks ? ' ' : 'a', LONG);
        map.size = 4 + 4 * UNITS;
        put(&map, becomes, sizeof becomes);
        tok = pieces_of(letters, PAL_COUNT(letters), false, blanks ? "011" : "001", &map);
        encoding_says(tok, text, 16, NULL);
        encoding_says(tok, text, 20, "make this text more than 65856 bytes longer");
        pal_tokenizer_close(tok);
    }
    pal_bytes_free(&map);
}

static void settings_of_another_type_are_none(void **state) {
    (void)state;
    pal_bytes file = { 0 };
    pal_tokenizer *tok;
    put_pieces(&file, letters, PAL_COUNT(letters));
    put_field(&file, 2, "\x18\x02\xC2\x01\x00\x9A\x02\x00\xE0\x02\x00\xF0\x02\x00\xF8\x02\x00", 17);
    put_field(&file, 3, "\x10\x07\x1A\x01\x00\x22\x01\x00\x2A\x01\x00", 11);
    put_field(&file, 1, "\x08\x07\x0A\x01z\x12\x01\x00\x1A\x01\x00", 11);
    OK(read_file(&file, READER_SPM, &tok, err));
    assert_true(tok->spm.dummy_prefix && tok->spm.collapse_blanks && tok->spm.escape_blanks && !tok->byte_fallback);
    test_names_are(tok, "pieces", " z", SIGN "|z");
    pal_tokenizer_close(tok);
    pal_bytes_free(&file);
}

/* ---- GGUF: pairs after those of a tiny vocabulary */

static void add_pair(pal_bytes *file, const char *key, uint32_t type, const void *value, size_t size) {
    const uint64_t length = strlen(key);
    put(file, &length, 8);
    put(file, key, (size_t)length);
    put(file, &type, 4);
    put(file, value, size);
    file->data[16]++; /* the number of pairs */
}

static void add_text(pal_bytes *file, const char *key, const char *text) {
    pal_bytes value = { 0 };
    const uint64_t size = strlen(text);
    put(&value, &size, 8);
    put(&value, text, (size_t)size);
    add_pair(file, key, PAL_GGUF_STRING, value.data, value.size);
    pal_bytes_free(&value);
}

static void add_id(pal_bytes *file, const char *key, uint32_t type, uint64_t id) {
    add_pair(file, key, type, &id, type == PAL_GGUF_U32 || type == PAL_GGUF_I32 ? 4 : 8);
}

static void add_array(pal_bytes *file, const char *key, uint32_t element, const void *values, uint64_t count,
                      size_t size) {
    pal_bytes value = { 0 };
    put(&value, &element, 4);
    put(&value, &count, 8);
    put(&value, values, size);
    add_pair(file, key, PAL_GGUF_ARRAY, value.data, value.size);
    pal_bytes_free(&value);
}

static pal_tokenizer *gguf_of(pal_bytes *file) {
    pal_tokenizer *tok;
    OK(read_file(file, READER_GGUF, &tok, err));
    pal_bytes_free(file);
    *file = (pal_bytes){ 0 };
    return tok;
}

static void gguf_may_say_more(void **state) {
    (void)state;
    static const uint32_t types[] = { PAL_GGUF_U32, PAL_GGUF_I32, PAL_GGUF_U64, PAL_GGUF_I64 };
    pal_bytes file = { 0 }, map = { 0 };
    pal_tokenizer *tok;
    for (size_t i = 0; i < PAL_COUNT(types);
         i++) { /* ids of any integer type; tokens around a text; what is not ours */
        test_tiny_gguf(&file, false);
        add_id(&file, "tokenizer.ggml.bos_token_id", types[i], 5);
        add_id(&file, "tokenizer.ggml.eos_token_id", types[i], 6);
        add_pair(&file, "tokenizer.ggml.add_bos_token", PAL_GGUF_BOOL, "\1", 1);
        add_pair(&file, "tokenizer.ggml.add_eos_token", PAL_GGUF_BOOL, "\1", 1);
        add_text(&file, "tokenizer.chat_template", "{{ text }}");
        add_text(&file, "another.key.of.some.length", "x");
        add_text(&file, "short", "x");
        tok = gguf_of(&file);
        assert_true(tok->bos == 5 && tok->eos == 6);
        assert_true(tok->prefix.count == 1 && tok->prefix.data[0] == 5 && tok->suffix.count == 1 &&
                    tok->suffix.data[0] == 6);
        assert_int_equal(pal_tokenizer_chat_template(tok, "default").size, 10);
        assert_non_null(memmem(tok->files[0].bytes.data, tok->files[0].bytes.size, "chat_template", 13));
        assert_null(memmem(tok->files[0].bytes.data, tok->files[0].bytes.size, "another", 7));
        pal_tokenizer_close(tok);
    }
    test_tiny_gguf(&file, true); /* of other types than theirs, keys are none */
    add_id(&file, "tokenizer.ggml.model", PAL_GGUF_U32, 1);
    add_text(&file, "tokenizer.ggml.tokens", "x");
    add_text(&file, "tokenizer.ggml.eos_token_id", "x");
    add_text(&file, "tokenizer.ggml.add_space_prefix", "x");
    add_array(&file, "tokenizer.ggml.precompiled_charsmap", PAL_GGUF_F32, "\0\0\0\0", 1, 4);
    tok = gguf_of(&file);
    assert_true(tok->eos == 2 && tok->spm.dummy_prefix && tok->spm.charsmap.size == 0);
    /* What llama.cpp takes where a file says nothing, and where it puts the blank in front. */
    assert_true(tok->bos == 1 && tok->prefix.count == 1 && tok->prefix.data[0] == 1 && tok->suffix.count == 0);
    test_names_are(tok, "pieces", "a</s>a", "\xE2\x96\x81|<0x61>|</s>|\xE2\x96\x81|<0x61>");
    pal_tokenizer_close(tok);
    test_tiny_gguf(&file, true);
    add_pair(&file, "tokenizer.ggml.add_bos_token", PAL_GGUF_BOOL, "\0", 1);
    add_id(&file, "tokenizer.ggml.eot_token_id", PAL_GGUF_U32, 1);
    tok = gguf_of(&file);
    assert_true(tok->prefix.count == 0 && pal_tokenizer_is_end(tok, 1) && pal_tokenizer_is_end(tok, 2) &&
                !pal_tokenizer_is_end(tok, 3));
    pal_tokenizer_close(tok);

    character_map(&map);
    for (uint32_t element = PAL_GGUF_U8; element <= PAL_GGUF_I8; element++) { /* T5's: a unigram with a map */
        test_tiny_gguf(&file, true);
        add_text(&file, "tokenizer.ggml.model", "t5");
        add_pair(&file, "tokenizer.ggml.add_space_prefix", PAL_GGUF_BOOL, "\0", 1);
        add_pair(&file, "tokenizer.ggml.remove_extra_whitespaces", PAL_GGUF_BOOL, "\1", 1);
        add_array(&file, "tokenizer.ggml.precompiled_charsmap", element, map.data, map.size, map.size);
        tok = gguf_of(&file);
        assert_int_equal(tok->model, PAL_MODEL_UNIGRAM);
        assert_true(tok->spm.collapse_blanks && !tok->spm.dummy_prefix && tok->spm.charsmap.size == map.size);
        test_names_are(tok, "pieces", "CDA ", "<0x62>|<0x61>|<0x62>");
        pal_tokenizer_close(tok);
    }
    pal_bytes_free(&map);

    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}";
    put(&file, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24); /* a tokenizer.json inside */
    add_text(&file, "tokenizer.huggingface.json", json);
    add_id(&file, "tokenizer.ggml.eos_token_id", PAL_GGUF_U32, 1);
    tok = gguf_of(&file);
    assert_string_equal(tok->files[0].name, "tokenizer.json");
    assert_true(tok->eos == 1);
    test_names_are(tok, "pieces", "ab", "a|b");
    pal_tokenizer_close(tok);
}

/* Some files mark the unknown piece by its id only; padding is left out. */
static void gguf_marks_pieces_in_several_ways(void **state) {
    (void)state;
    enum { SIZE = 4 };
    static const char names[] = "\1\0\0\0\0\0\0\0u\1\0\0\0\0\0\0\0a\6\0\0\0\0\0\0\0[PAD2]\6\0\0\0\0\0\0\0[PAD3]";
    static const float scores[SIZE] = { 0, -1, -1, -1 };
    static const struct {
        int32_t kinds[SIZE];
        uint32_t element;
        int unknown; /* its id; -1: not said */
        size_t tokens;
        const char *says;
    } cases[] = {
        { { 1, 1, 5, 5 }, PAL_GGUF_I32, 0, 2, NULL },
        { { 2, 1, 5, 5 }, PAL_GGUF_U32, -1, 2, NULL },
        { { 2, 1, 1, 5 }, PAL_GGUF_I32, 1, 3, NULL },
        { { 2, 1, 5, 1 }, PAL_GGUF_I32, -1, 4, NULL },
        { { 1, 1, 5, 5 }, PAL_GGUF_I32, -1, 2, NULL }, /* id 0, as in llama.cpp */
        { { 1, 1, 5, 5 }, PAL_GGUF_I32, 9, 0, "no piece for what is unknown" },
        { { 2, 1, 300, 1 }, PAL_GGUF_I32, -1, 0, "kind 255" },
        { { 2, 1, 5, 5 }, PAL_GGUF_F32, -1, 0, "kinds of tokens of type 6" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_bytes file = { 0 };
        pal_tokenizer *tok = NULL;
        pal_error err = { 0 };
        put(&file, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
        add_text(&file, "tokenizer.ggml.model", "llama");
        add_array(&file, "tokenizer.ggml.tokens", PAL_GGUF_STRING, names, SIZE, sizeof names - 1);
        add_array(&file, "tokenizer.ggml.scores", PAL_GGUF_F32, scores, SIZE, sizeof scores);
        add_array(&file, "tokenizer.ggml.token_type", cases[i].element, cases[i].kinds, SIZE, sizeof cases[i].kinds);
        if (cases[i].unknown >= 0)
            add_id(&file, "tokenizer.ggml.unknown_token_id", PAL_GGUF_U32, (uint64_t)cases[i].unknown);
        const pal_status st = read_file(&file, READER_GGUF, &tok, &err);
        if (cases[i].says ? !st || !strstr(err.text, cases[i].says) : st || tok->size != cases[i].tokens)
            fail_msg("case %zu: %s", i, st ? err.text : "read");
        pal_tokenizer_close(tok);
        pal_bytes_free(&file);
    }
}

static void damaged_vocabularies_are_named(void **state) {
    (void)state;
    static const struct {
        const char *key;
        bool spm;
        uint32_t element;
        const char *values;
        uint64_t count;
        size_t size;
        const char *says;
    } cases[] = {
        { "tokenizer.ggml.tokens", false, PAL_GGUF_U8, "x", 1, 1, "no list of tokens" },
        { "tokenizer.ggml.merges", false, PAL_GGUF_U8, "x", 1, 1, "no list of merges" },
        { "tokenizer.ggml.merges", false, PAL_GGUF_STRING, "\0\0\0\0\0\0\0\0", 1, 8, "merge 0 is ''" },
        { "tokenizer.ggml.merges", false, PAL_GGUF_STRING, "\2\0\0\0\0\0\0\0ab", 1, 10, "merge 0 is 'ab'" },
        { "tokenizer.ggml.scores", true, PAL_GGUF_F32, "\0\0\0\0", 1, 4, "not as many scores" },
        { "tokenizer.ggml.scores", true, PAL_GGUF_U8, "x", 1, 1, "not as many scores" },
        { "tokenizer.ggml.token_type", false, PAL_GGUF_I32, "\1\0\0\0", 1, 4, "1 kinds of tokens" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_bytes file = { 0 };
        pal_tokenizer *tok;
        pal_error err = { 0 };
        test_tiny_gguf(&file, cases[i].spm);
        add_array(&file, cases[i].key, cases[i].element, cases[i].values, cases[i].count, cases[i].size);
        if (!read_file(&file, READER_GGUF, &tok, &err)) fail_msg("case %zu was accepted", i);
        if (!strstr(err.text, cases[i].says)) fail_msg("case %zu: %s", i, err.text);
        pal_bytes_free(&file);
    }
    static const struct {
        const char *key;
        uint32_t id;
        const char *says;
    } ends[] = { { "tokenizer.ggml.bos_token_id", 5000, "id 5000" },
                 { "tokenizer.ggml.eos_token_id", 6000, "id 6000" } };
    for (size_t i = 0; i < PAL_COUNT(ends); i++) {
        pal_bytes file = { 0 };
        pal_tokenizer *tok;
        pal_error err = { 0 };
        test_tiny_gguf(&file, false);
        add_id(&file, ends[i].key, PAL_GGUF_U32, ends[i].id);
        if (!read_file(&file, READER_GGUF, &tok, &err)) fail_msg("%s was accepted", ends[i].key);
        assert_non_null(strstr(err.text, ends[i].says));
        pal_bytes_free(&file);
    }
}

/* ---- written to GGUF */

static void export_says(const pal_tokenizer *tok, size_t rows, const char *says) {
    pal_bytes out = { 0 };
    pal_error err = { 0 };
    size_t count = 0;
    const pal_status st = pal_gguf_export(tok, rows, &out, &count, &err);
    if (says ? !st || !strstr(err.text, says) : st != PAL_OK)
        fail_msg("'%s' does not say '%s'", st ? err.text : "written", says ? says : "nothing");
    pal_bytes_free(&out);
}

/* What would change ids is not written: SentencePiece's trainer normalises and joins blanks unless said otherwise. */
static void what_gguf_cannot_say_is_not_written(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tiny(TINY_SPM);
    export_says(tok, tok->size, NULL);
    tok->spm.collapse_blanks = true;
    export_says(tok, tok->size, "runs of blanks");
    assert_int_equal(pal_bytes_append(&tok->spm.charsmap, "\4\0\0\0\0\0\0\0", 9, NULL), PAL_OK);
    export_says(tok, tok->size, "a normaliser");
    pal_tokenizer_close(tok);

    tok = test_tiny(TINY_JSON);
    tok->eos = 0; /* as opening it by name finds */
    export_says(tok, tok->size, NULL);
    assert_true(tok->added_count > 0);
    pal_added_token *a = &tok->added[0];
    a->lstrip = true;
    export_says(tok, tok->size, "lstrip");
    a->lstrip = false, a->rstrip = true;
    export_says(tok, tok->size, "rstrip");
    a->rstrip = false, a->single_word = true;
    export_says(tok, tok->size, "single_word");
    a->single_word = false;
    assert_int_equal(pal_ids_append(&tok->suffix, 1, NULL), PAL_OK);
    export_says(tok, tok->size, "around a text");
    pal_tokenizer_close(tok);
}

static void what_has_no_name_in_gguf_is_not_written(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tiny(TINY_JSON);
    const size_t rows = tok->size;
    tok->eos = 0; /* as opening it by name finds */
    export_says(tok, rows, NULL);
    export_says(tok, rows - 1, "the model's embedding");
    static const char no_name[] = "no name for its rules";
    tok->byte_level = false;
    export_says(tok, rows, no_name);
    tok->byte_level = true, tok->ignore_merges = true;
    export_says(tok, rows, no_name);
    tok->ignore_merges = false, tok->split[0].kind = PAL_SPLIT_DIGITS;
    export_says(tok, rows, no_name);
    tok->split[0].kind = PAL_SPLIT_GPT2, tok->split_count = 2;
    export_says(tok, rows, no_name);
    tok->split_count = 1, tok->normal_count = 2;
    export_says(tok, rows, no_name);
    tok->normal_count = 1, tok->normal[0].kind = PAL_NFKC;
    export_says(tok, rows, no_name);
    tok->normal[0].kind = PAL_NFC;
    export_says(tok, rows, NULL);
    tok->added[0].normalized = true; /* a special token that is */
    export_says(tok, rows, "the added tokens cannot be written");
    tok->normal_count = 0; /* where nothing is normalised, it makes no difference */
    export_says(tok, rows, NULL);
    tok->added[0].normalized = false, tok->added[0].special = false;
    tok->flags[tok->added[0].id] |= PAL_TOKEN_IN_MODEL;
    export_says(tok, rows, "is one of the model, too");
    tok->added[0].special = true;
    tok->unk = 5; /* nothing is unknown: there is a token for every byte */
    export_says(tok, rows, NULL);
    const uint32_t byte = tok->byte_id[7];
    tok->byte_id[7] = PAL_NO_ID;
    export_says(tok, rows, "none for the byte 0x07");
    tok->byte_id[7] = byte;
    tok->unk = PAL_NO_ID;
    OK(pal_ids_append(&tok->prefix, 3, err));
    export_says(tok, rows, "other tokens than BOS and EOS");
    tok->prefix.data[0] = 0; /* EOS stands for BOS */
    export_says(tok, rows, NULL);
    OK(pal_ids_append(&tok->prefix, 0, err));
    export_says(tok, rows, "other tokens than BOS and EOS");
    pal_tokenizer_close(tok);
    tok = test_tiny(TINY_UNIGRAM);
    export_says(tok, tok->size, no_name);
    pal_tokenizer_close(tok);
    tok = test_tiny(TINY_SPM);
    tok->spm.escape_blanks = false;
    export_says(tok, tok->size, "blanks that are not escaped");
    pal_tokenizer_close(tok);
    export_says(NULL, 7, NULL);
}

/* Every kind of token comes back from the file, with rows that no token has. */
static void a_written_vocabulary_reads_the_same(void **state) {
    (void)state;
    static const tiny_kind kinds[] = { TINY_SPM, TINY_JSON_NFC };
    for (size_t i = 0; i < PAL_COUNT(kinds); i++) {
        pal_tokenizer *tok = test_tiny(kinds[i]), *again;
        pal_bytes pairs = { 0 }, file = { 0 };
        size_t count = 0;
        if (kinds[i] == TINY_SPM) tok->flags[9] |= PAL_TOKEN_UNUSED;
        else tok->eos = 0;
        OK(pal_gguf_export(tok, tok->size + 3, &pairs, &count, err));
        put(&file, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
        put(&file, &(uint64_t){ count }, 8);
        put(&file, pairs.data, pairs.size);
        again = gguf_of(&file);
        assert_int_equal(again->size, tok->size);
        for (size_t id = 0; id < tok->size; id++) {
            const uint8_t kept = PAL_TOKEN_SPECIAL | PAL_TOKEN_BYTE | PAL_TOKEN_UNUSED | PAL_TOKEN_USER;
            if ((tok->flags[id] & kept) != (again->flags[id] & kept)) fail_msg("id %zu has other flags", id);
        }
        pal_tokenizer_close(tok);
        pal_tokenizer_close(again);
        pal_bytes_free(&pairs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blanks_follow_the_rules),
        cmocka_unit_test(unknowns_join),
        cmocka_unit_test(unused_pieces_fall_apart),
        cmocka_unit_test(many_unused_pieces_fall_apart),
        cmocka_unit_test(what_is_looked_for_is_not_long),
        cmocka_unit_test(long_texts_keep_their_best_way),
        cmocka_unit_test(characters_are_mapped),
        cmocka_unit_test(a_character_map_has_limits),
        cmocka_unit_test(settings_of_another_type_are_none),
        cmocka_unit_test(gguf_may_say_more),
        cmocka_unit_test(gguf_marks_pieces_in_several_ways),
        cmocka_unit_test(damaged_vocabularies_are_named),
        cmocka_unit_test(what_gguf_cannot_say_is_not_written),
        cmocka_unit_test(what_has_no_name_in_gguf_is_not_written),
        cmocka_unit_test(a_written_vocabulary_reads_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
