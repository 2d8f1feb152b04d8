/* SPDX-License-Identifier: MIT */
#include "support/text.h"

#include "base/alloc.h"
#include "text/utf8.h"

const char *const tiny_names[TINY_KINDS] = {
    [TINY_BYTES] = "bytes",
    [TINY_JSON] = "tokenizer.json",
    [TINY_JSON_NFC] = "tokenizer.json with NFC",
    [TINY_GPT2] = "vocab.json and merges.txt",
    [TINY_SPM] = "SentencePiece BPE",
    [TINY_UNIGRAM] = "SentencePiece unigram",
    [TINY_GGUF_BPE] = "GGUF gpt2",
    [TINY_GGUF_SPM] = "GGUF llama",
    [TINY_TRAINED] = "trained BPE",
};

static void put(pal_bytes *out, const void *data, size_t size) {
    assert_int_equal(pal_bytes_append(out, data, size, NULL), PAL_OK);
}
static void put_text(pal_bytes *out, const char *text) { put(out, text, strlen(text)); }

/* Merges in the spelling of byte-level BPE: a blank is U+0120. Not in the order of a greedy match, so that ranks
 * matter. */
static const char *const merges[][2] = { { "h", "e" },          { "t", "he" },
                                         { "\xC4\xA0", "the" }, { "l", "l" },
                                         { "i", "n" },          { "in", "g" },
                                         { "o", "w" },          { "l", "ow" },
                                         { "e", "r" },          { "ll", "o" },
                                         { "he", "llo" },       { "\xC4\xA0", "\xC4\xA0" },
                                         { "e", "l" },          { "\xC3\x83", "\xC2\xA9" } };
enum { MERGES = sizeof merges / sizeof merges[0] };

/* id -> name: <|endoftext|>, 256 bytes, then what the merges make */
static void byte_level_names(pal_strings *names) {
    assert_int_equal(pal_strings_add(names, "<|endoftext|>", 13, NULL), PAL_OK);
    for (unsigned b = 0; b < 256; b++) {
        pal_bytes name = { 0 };
        assert_int_equal(pal_byte_level_name((pal_slice){ (unsigned char[1]){ (unsigned char)b }, 1 }, &name, NULL),
                         PAL_OK);
        assert_int_equal(pal_strings_add(names, name.data, name.size, NULL), PAL_OK);
        pal_bytes_free(&name);
    }
    for (int i = 0; i < MERGES; i++) {
        char joined[32];
        snprintf(joined, sizeof joined, "%s%s", merges[i][0], merges[i][1]);
        assert_int_equal(pal_strings_add(names, joined, strlen(joined), NULL), PAL_OK);
    }
}

static void put_vocab(pal_bytes *out) {
    pal_strings names = { 0 };
    byte_level_names(&names);
    put_text(out, "{");
    for (size_t id = 0; id < names.count; id++) {
        const pal_slice name = pal_strings_at(&names, id);
        char tail[32];
        put_text(out, id ? ",\"" : "\"");
        if (name.data[0] == '"' || name.data[0] == '\\') put_text(out, "\\");
        put(out, name.data, name.size);
        snprintf(tail, sizeof tail, "\":%zu", id);
        put_text(out, tail);
    }
    put_text(out, "}");
    pal_strings_free(&names);
}

void test_tiny_json(pal_bytes *out, const char *normalizer) {
    put_text(out, "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<|endoftext|>\",\"single_word\":"
                  "false,\"lstrip\":false,"
                  "\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\":");
    put_text(out, normalizer);
    put_text(out, ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"post_processor\":{\"type\":"
                  "\"TemplateProcessing\","
                  "\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<|endoftext|>\"}}],\"special_"
                  "tokens\":{\"<|endoftext|>\":"
                  "{\"id\":\"<|endoftext|>\",\"ids\":[0]}}},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
                  "\"BPE\",\"vocab\":");
    put_vocab(out);
    put_text(out, ",\"merges\":[");
    for (int i = 0; i < MERGES; i++) {
        char line[64];
        if (i % 2) snprintf(line, sizeof line, ",\"%s %s\"", merges[i][0], merges[i][1]);
        else snprintf(line, sizeof line, "%s[\"%s\",\"%s\"]", i ? "," : "", merges[i][0], merges[i][1]);
        put_text(out, line);
    }
    put_text(out, "]}}");
}

void test_tiny_vocab(pal_bytes *vocab, pal_bytes *lines) {
    put_vocab(vocab);
    put_text(lines, "#version: 0.2\n");
    for (int i = 0; i < MERGES; i++) {
        char line[64];
        snprintf(line, sizeof line, "%s %s\n", merges[i][0], merges[i][1]);
        put_text(lines, line);
    }
}

static void put_varint(pal_bytes *out, uint64_t value) {
    do {
        const unsigned char byte = (unsigned char)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        put(out, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_field(pal_bytes *out, int number, const void *data, size_t size) {
    put_varint(out, (uint64_t)number << 3 | 2);
    put_varint(out, size);
    put(out, data, size);
}

static void put_number(pal_bytes *out, int number, uint64_t value) {
    put_varint(out, (uint64_t)number << 3);
    put_varint(out, value);
}

#define B "\xE2\x96\x81" /* the sign for a blank */
static const struct {
    const char *name;
    float score;
    int kind;
} pieces[] = {
    { "<unk>", 0, PAL_PIECE_UNKNOWN }, { "<s>", 0, PAL_PIECE_CONTROL }, { "</s>", 0, PAL_PIECE_CONTROL },
    { "<u>", 0, PAL_PIECE_USER },      { B "t", -1, PAL_PIECE_NORMAL }, { "he", -2, PAL_PIECE_NORMAL },
    { B "the", -3, PAL_PIECE_NORMAL }, { "in", -4, PAL_PIECE_NORMAL },  { "ing", -5, PAL_PIECE_NORMAL },
    { "er", -6, PAL_PIECE_NORMAL },    { B B, -7, PAL_PIECE_NORMAL },   { B "i", -7.5f, PAL_PIECE_NORMAL },
    { B, -8, PAL_PIECE_NORMAL },       { "e", -9, PAL_PIECE_NORMAL },   { "t", -10, PAL_PIECE_NORMAL },
    { "h", -11, PAL_PIECE_NORMAL },    { "i", -12, PAL_PIECE_NORMAL },  { "n", -13, PAL_PIECE_NORMAL },
    { "g", -14, PAL_PIECE_NORMAL },    { "r", -15, PAL_PIECE_NORMAL },  { "\xC3\xA9", -16, PAL_PIECE_NORMAL },
};
enum { PIECES = sizeof pieces / sizeof pieces[0], SPM_SIZE = PIECES + 256 };

/* The pieces above, then <0x00> .. <0xFF>. */
static const char *spm_piece(int id, char room[8], float *score, int *kind) {
    if (id < PIECES) {
        *score = pieces[id].score;
        *kind = pieces[id].kind;
        return pieces[id].name;
    }
    snprintf(room, 8, "<0x%02X>", (unsigned)(id - PIECES) & 0xFF);
    *score = 0;
    *kind = PAL_PIECE_BYTE;
    return room;
}

void test_tiny_spm(pal_bytes *out, bool unigram) {
    for (int id = 0; id < SPM_SIZE; id++) {
        pal_bytes piece = { 0 };
        char room[8];
        float score;
        int kind;
        const char *name = spm_piece(id, room, &score, &kind);
        put_field(&piece, 1, name, strlen(name));
        put_varint(&piece, 2 << 3 | 5);
        put(&piece, &score, 4);
        if (kind != PAL_PIECE_NORMAL) put_number(&piece, 3, (uint64_t)kind);
        put_field(out, 1, piece.data, piece.size);
        pal_bytes_free(&piece);
    }
    pal_bytes spec = { 0 };
    put_number(&spec, 3, unigram ? 1 : 2);
    put_number(&spec, 35, 1);
    put_field(out, 2, spec.data, spec.size);
    spec.size = 0;
    put_field(&spec, 1, "identity", 8);
    put_number(&spec, 3, 1); /* dummy prefix */
    put_number(&spec, 4, 0); /* blanks stay */
    put_field(out, 3, spec.data, spec.size);
    pal_bytes_free(&spec);
}

static void put_u32(pal_bytes *out, uint32_t x) {
    put(out,
        (unsigned char[]){ (unsigned char)x, (unsigned char)(x >> 8), (unsigned char)(x >> 16),
                           (unsigned char)(x >> 24) },
        4);
}
static void put_u64(pal_bytes *out, uint64_t x) {
    put_u32(out, (uint32_t)x);
    put_u32(out, (uint32_t)(x >> 32));
}
static void put_string(pal_bytes *out, const void *text, size_t size) {
    put_u64(out, size);
    put(out, text, size);
}
static void put_key(pal_bytes *out, const char *key, uint32_t type) {
    put_string(out, key, strlen(key));
    put_u32(out, type);
}
static void put_array(pal_bytes *out, const char *key, uint32_t type, uint64_t count) {
    put_key(out, key, 9);
    put_u32(out, type);
    put_u64(out, count);
}

void test_tiny_gguf(pal_bytes *out, bool spm) {
    put_text(out, "GGUF");
    put_u32(out, 3);
    put_u64(out, 0);
    put_u64(out, spm ? 6 : 7);
    put_key(out, "general.architecture", 8);
    put_string(out, "gpt2", 4);
    put_key(out, "tokenizer.ggml.model", 8);
    put_string(out, spm ? "llama" : "gpt2", spm ? 5 : 4);
    put_key(out, "tokenizer.ggml.eos_token_id", 4);
    put_u32(out, spm ? 2 : 0);
    if (spm) {
        put_array(out, "tokenizer.ggml.tokens", 8, SPM_SIZE);
        char room[8];
        float score;
        int kind;
        for (int id = 0; id < SPM_SIZE; id++) {
            const char *name = spm_piece(id, room, &score, &kind);
            put_string(out, name, strlen(name));
        }
        put_array(out, "tokenizer.ggml.scores", 6, SPM_SIZE);
        for (int id = 0; id < SPM_SIZE; id++) {
            spm_piece(id, room, &score, &kind);
            put(out, &score, 4);
        }
        put_array(out, "tokenizer.ggml.token_type", 5, SPM_SIZE);
        for (int id = 0; id < SPM_SIZE; id++) {
            spm_piece(id, room, &score, &kind);
            put_u32(out, (uint32_t)kind);
        }
        return;
    }
    pal_strings names = { 0 };
    byte_level_names(&names);
    put_key(out, "tokenizer.ggml.pre", 8);
    put_string(out, "gpt-2", 5);
    put_array(out, "tokenizer.ggml.tokens", 8, names.count);
    for (size_t id = 0; id < names.count; id++)
        put_string(out, pal_strings_at(&names, id).data, pal_strings_at(&names, id).size);
    put_array(out, "tokenizer.ggml.token_type", 5, names.count);
    for (size_t id = 0; id < names.count; id++) put_u32(out, id ? PAL_PIECE_NORMAL : PAL_PIECE_CONTROL);
    put_array(out, "tokenizer.ggml.merges", 8, MERGES);
    for (int i = 0; i < MERGES; i++) {
        char line[64];
        snprintf(line, sizeof line, "%s %s", merges[i][0], merges[i][1]);
        put_string(out, line, strlen(line));
    }
    pal_strings_free(&names);
}

pal_status test_read(int reader, const unsigned char *bytes, size_t size, pal_tokenizer **out, pal_error *err) {
    pal_tokenizer *tok = pal_alloc(1, sizeof *tok);
    pal_status st = PAL_E_MEMORY;
    *out = NULL;
    assert_non_null(tok);
    tok->bos = tok->eos = -1;
    tok->unk = PAL_NO_ID;
    if (reader == READER_JSON) st = pal_read_tokenizer_json(tok, "tiny", bytes, size, NULL, err);
    if (reader == READER_SPM) st = pal_read_sentencepiece(tok, "tiny", bytes, size, NULL, err);
    if (reader == READER_GGUF) st = pal_read_gguf_vocab(tok, "tiny", bytes, size, err);
    if (reader == READER_VOCAB) { /* both files in one block, a zero between them */
        const unsigned char *zero = size ? memchr(bytes, 0, size) : NULL;
        const size_t first = zero ? (size_t)(zero - bytes) : size, rest = zero ? first + 1 : size;
        st = pal_read_gpt2_files(tok, "tiny", (pal_slice){ bytes, first }, (pal_slice){ bytes + rest, size - rest },
                                 NULL, err);
    }
    if (st) pal_tokenizer_close(tok);
    else *out = tok;
    return st;
}

pal_tokenizer *test_open(const char *spec) {
    pal_tokenizer *tok;
    OK(pal_tokenizer_open(&tok, spec, err));
    return tok;
}

pal_tokenizer *test_letters(void) {
    pal_tokenizer *tok;
    const pal_slice text = { (const unsigned char *)"abcdefghijklmnopqrstuvwxyz .\n", TEST_VOCAB };
    OK(pal_tokenizer_learn_chars(&tok, &text, 1, err));
    assert_int_equal(pal_tokenizer_size(tok), TEST_VOCAB);
    return tok;
}

pal_tokenizer *test_data_tokenizer(const char *path) {
    const char *data = getenv("PALIMPSA_DATA");
    char full[1024];
    if (!data) {
        print_message("skipped: PALIMPSA_DATA is not set, %s is not tried\n", path);
        return NULL;
    }
    snprintf(full, sizeof full, "%s/tokenizers/%s", data, path);
    return test_open(full);
}

pal_tokenizer *test_tiny(tiny_kind kind) {
    pal_bytes file = { 0 }, more = { 0 };
    pal_tokenizer *tok = NULL;
    pal_error err = { 0 };
    pal_status st = PAL_OK;
    pal_rng rng = pal_rng_at(1, 1);
    switch (kind) {
    case TINY_BYTES: return test_open("bytes");
    case TINY_JSON:
        test_tiny_json(&file, "null");
        st = test_read(READER_JSON, file.data, file.size, &tok, &err);
        break;
    case TINY_JSON_NFC:
        test_tiny_json(&file, "{\"type\":\"NFC\"}");
        st = test_read(READER_JSON, file.data, file.size, &tok, &err);
        break;
    case TINY_GPT2:
        test_tiny_vocab(&file, &more);
        put(&file, "", 1);
        put(&file, more.data, more.size);
        st = test_read(READER_VOCAB, file.data, file.size, &tok, &err);
        break;
    case TINY_SPM:
    case TINY_UNIGRAM:
        test_tiny_spm(&file, kind == TINY_UNIGRAM);
        st = test_read(READER_SPM, file.data, file.size, &tok, &err);
        break;
    case TINY_GGUF_BPE:
    case TINY_GGUF_SPM:
        test_tiny_gguf(&file, kind == TINY_GGUF_SPM);
        st = test_read(READER_GGUF, file.data, file.size, &tok, &err);
        break;
    case TINY_TRAINED:
        test_prose(&file, &rng, 60000);
        st = pal_tokenizer_train_bpe(&tok, &(pal_slice){ file.data, file.size }, 1, 700, &err);
        break;
    case TINY_KINDS: break;
    }
    if (st) fail_msg("%s: %s", tiny_names[kind], err.text);
    pal_bytes_free(&file);
    pal_bytes_free(&more);
    return tok;
}

void test_prose(pal_bytes *out, pal_rng *rng, size_t size) {
    static const char *const words[] = { "the",
                                         "a",
                                         "of",
                                         "lower",
                                         "newest",
                                         "hello",
                                         "winter",
                                         "singing",
                                         "thinking",
                                         "it's",
                                         "they'll",
                                         "I",
                                         "in",
                                         "1905",
                                         "\xC3\xA9t\xC3\xA9",
                                         "na\xC3\xAFve",
                                         "x",
                                         "bigger",
                                         "banana",
                                         "aaaa",
                                         "mississippi",
                                         "\xE6\x97\xA5\xE6\x9C\xAC" };
    while (out->size < size) {
        put_text(out, words[pal_rng_below(rng, (uint32_t)PAL_COUNT(words))]);
        if (pal_rng_below(rng, 3) == 0) put_text(out, words[pal_rng_below(rng, (uint32_t)PAL_COUNT(words))]);
        put_text(out, pal_rng_below(rng, 12) ? " " : pal_rng_below(rng, 2) ? ", " : ".\n\n");
    }
}

void test_random_bytes(pal_bytes *out, pal_rng *rng, size_t most) {
    const size_t size = pal_rng_below(rng, (uint32_t)most + 1);
    for (size_t i = 0; i < size; i++) put(out, &(unsigned char){ (unsigned char)pal_rng_u32(rng) }, 1);
}

void test_random_text(pal_bytes *out, pal_rng *rng, size_t most) {
    static const struct {
        uint32_t first, last;
    } ranges[] = { { 0x20, 0x7E },      { 0x20, 0x20 },     { 0x61, 0x7A },       { 1, 0x20 },
                   { 0x80, 0x24F },     { 0x300, 0x36F },   { 0x391, 0x3A1 },     { 0x410, 0x44F },
                   { 0x5D0, 0x5EA },    { 0x620, 0x669 },   { 0x905, 0x939 },     { 0x93E, 0x94D },
                   { 0x1100, 0x11FF },  { 0x1E00, 0x1EFF }, { 0x2000, 0x206F },   { 0x2150, 0x2189 },
                   { 0x3041, 0x3096 },  { 0x4E00, 0x9FA5 }, { 0xAC00, 0xD7A3 },   { 0xF900, 0xFA6D },
                   { 0xFB00, 0xFB06 },  { 0xFF01, 0xFF5E }, { 0x1D400, 0x1D454 }, { 0x1F300, 0x1F5FF },
                   { 0x20000, 0x2A6D6 } };
    static const char *const pieces_of_text[] = { "<|endoftext|>", " the",  "hello", "'s", "'ll", "'ve",
                                                  "'re",           "'m",    "'d",    "'t", "'RE", "   ",
                                                  "<u>",           "lower", "\r\n",  "ing" };
    size_t count = pal_rng_below(rng, (uint32_t)most + 1);
    while (count--) {
        if (pal_rng_below(rng, 8) == 0) {
            put_text(out, pieces_of_text[pal_rng_below(rng, (uint32_t)PAL_COUNT(pieces_of_text))]);
            continue;
        }
        const size_t r = pal_rng_below(rng, (uint32_t)PAL_COUNT(ranges));
        const uint32_t code = ranges[r].first + pal_rng_below(rng, ranges[r].last - ranges[r].first + 1);
        unsigned char bytes[4];
        put(out, bytes, pal_utf8_write(code, bytes));
    }
}

void test_encode(const pal_tokenizer *tok, const void *text, size_t size, pal_ids *ids) {
    pal_tokenizer_scratch *s;
    pal_error err;
    if (pal_tokenizer_scratch_new(&s, tok, &err)) fail_msg("%s", err.text);
    if (pal_tokenizer_encode(tok, s, text, size, NULL, ids, &err)) fail_msg("%s", err.text);
    pal_tokenizer_scratch_free(s);
}

void test_names(const pal_tokenizer *tok, const pal_ids *ids, char names[TEST_NAMES]) {
    size_t used = 0;
    names[0] = '\0';
    for (size_t i = 0; i < ids->count; i++) {
        const pal_slice name = pal_tokenizer_name(tok, ids->data[i]);
        used += (size_t)snprintf(names + used, TEST_NAMES - used, "%s%.*s", i ? "|" : "", (int)name.size,
                                 (const char *)name.data);
        assert_true(used < TEST_NAMES);
    }
}

void test_names_are(const pal_tokenizer *tok, const char *what, const char *text, const char *expected) {
    pal_ids ids = { 0 };
    char names[TEST_NAMES];
    test_encode(tok, text, strlen(text), &ids);
    test_names(tok, &ids, names);
    if (strcmp(names, expected) != 0) fail_msg("%s: '%s' gives %s, expected %s", what, text, names, expected);
    pal_ids_free(&ids);
}

pal_tokenizer *test_tokenizer_of(const char *json) {
    pal_tokenizer *tok;
    pal_error err;
    if (test_read(READER_JSON, (const unsigned char *)json, strlen(json), &tok, &err))
        fail_msg("%s\nrefused: %s", json, err.text);
    return tok;
}
