/* SPDX-License-Identifier: MIT */
/* Shards, text by blocks, and rows for training: what is written is what was read, whatever happens in between. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "data/loader.h"
#include "data/permutation.h"
#include "data/text.h"
#include "data/tokenize.h"
#include "support/text.h"
#include "text/cut.h"

static char folder[64];

static const char *in_folder(const char *name) {
    static char paths[8][160];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/test_data_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static void remove_in(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char inner[512];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        if (unlink(inner) != 0) remove_in(inner);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

static int remove_folder(void **state) {
    (void)state;
    remove_in(folder);
    return 0;
}

static void write_file(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static pal_bytes read_whole(const char *path) {
    pal_map map;
    pal_error err;
    pal_bytes copy = { 0 };
    if (pal_map_open(&map, path, &err)) fail_msg("%s", err.text);
    pal_bytes_append(&copy, map.data, map.size, &err);
    pal_map_close(&map);
    return copy;
}

static void assert_same_files(const char *a, const char *b) {
    pal_bytes x = read_whole(a), y = read_whole(b);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    pal_bytes_free(&x), pal_bytes_free(&y);
}

/* Every file of one directory of shards is in the other, byte for byte. */
static void assert_same_shards(const char *a, const char *b) {
    int files = 0, others = 0;
    DIR *dir = opendir(a);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char x[512], y[512];
        if (e->d_name[0] == '.') continue;
        snprintf(x, sizeof x, "%s/%s", a, e->d_name), snprintf(y, sizeof y, "%s/%s", b, e->d_name);
        assert_same_files(x, y);
        files++;
    }
    closedir(dir);
    dir = opendir(b);
    for (struct dirent *e; (e = readdir(dir));) others += e->d_name[0] != '.';
    closedir(dir);
    assert_int_equal(files, others);
}

static pal_tokenize_result tokenize(const pal_tokenize_job *job) {
    pal_tokenize_result r;
    pal_error err;
    if (pal_tokenize(job, &r, &err)) fail_msg("%s", err.text);
    return r;
}

static pal_shards *open_shards(const char *path) {
    pal_shards *s;
    pal_error err;
    if (pal_shards_open(&s, path, &err)) fail_msg("%s", err.text);
    if (pal_shards_verify(s, &err)) fail_msg("%s", err.text);
    return s;
}

static void permutation_is_a_bijection(void **state) {
    (void)state;
    static unsigned char seen[5000];
    for (uint64_t n = 1; n < 5000; n += n < 70 ? 1 : 617) {
        int moved = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t j = pal_permute(i, n, n * 7919);
            assert_true(j < n && !seen[j]);
            seen[j] = 1;
            moved += i != j;
        }
        if (n > 20) assert_true(moved > (int)n / 2);
    }
    /* Far beyond any table, and different under another key. */
    const uint64_t huge = ((uint64_t)1 << 40) + 12345;
    int same = 0;
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(pal_permute(i, huge, 1) < huge);
        same += pal_permute(i, huge, 1) == pal_permute(i, huge, 2);
    }
    assert_true(same < 3);
}

static void words_are_counted_as_python_splits(void **state) {
    (void)state;
    static const struct { const char *text; uint64_t words; } cases[] = { /* len(re.split(r'\s+', text)) */
        { "", 1 }, { "a", 1 }, { " a", 2 }, { " a \n", 3 }, { "a b\t\tc", 3 }, { "a\xC2\xA0" "b\xE3\x80\x80" "c", 3 }, { "a\x1c" "b", 2 }, { "a\xE2\x80\x8B" "b", 1 }, { "\xff \xff", 2 },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++)
        for (size_t cut = 0; cut <= strlen(cases[i].text); cut++) {
            const unsigned char *t = (const unsigned char *)cases[i].text;
            bool blank = false;
            assert_int_equal(pal_text_words((pal_slice){ t, strlen(cases[i].text) }), cases[i].words);
            if (cut < strlen(cases[i].text) && (t[cut] & 0xC0) == 0x80) continue; /* blocks are cut between characters */
            const uint64_t runs = pal_text_blanks((pal_slice){ t, cut }, &blank) + pal_text_blanks((pal_slice){ t + cut, strlen(cases[i].text) - cut }, &blank);
            assert_int_equal(runs + 1, cases[i].words);
        }
}

/* Blocks of a text, however small, put together give the text; encoded one by one, the ids of the whole. */
static void encode_in_blocks(const pal_tokenizer *tok, const char *path, size_t target, pal_ids *ids) {
    const pal_cut cut = pal_tokenizer_cut(tok);
    const pal_text_unit unit = cut == PAL_CUT_CHARACTERS ? PAL_TEXT_CHARACTERS : cut == PAL_CUT_NEVER ? PAL_TEXT_WHOLE : PAL_TEXT_WORDS;
    pal_tokenizer_scratch *scratch;
    pal_text_block block = { 0 };
    pal_text *text;
    pal_error err;
    bool found;
    if (pal_tokenizer_scratch_new(&scratch, tok, &err) || pal_text_open(&text, path, unit, target, (size_t)1 << 20, NULL, &err)) fail_msg("%s", err.text);
    for (;;) {
        if (pal_text_read(text, &block, &found, &err)) fail_msg("%s", err.text);
        if (!found) break;
        const size_t skip = cut == PAL_CUT_BLANKS && block.start.inside;
        if (pal_tokenizer_encode(tok, scratch, block.bytes.data + skip, block.bytes.size - skip, NULL, ids, &err)) fail_msg("%s", err.text);
    }
    pal_bytes_free(&block.bytes);
    pal_text_close(text);
    pal_tokenizer_scratch_free(scratch);
}

static void check_cuts(const pal_tokenizer *tok, const char *name, int cases) {
    pal_rng rng = pal_rng_at(11, 5);
    static const char *const pieces[] = { " ", " ", "  ", "   ", "\n", "\n\n", " \n", "\t", "a", "the", "The", "'s", "'re", "12", "3456", ".", "...", "!", "\r\n", "\xC3\xA9", "e\xCC\x81", " x", "<u>",
                                          "\xC2\xA0", "\xE2\x96\x81", "\xF0\x9F\x98\x80", "hello", " = ", "<|endoftext|>" };
    pal_error err;
    for (int i = 0; i < cases; i++) {
        pal_bytes text = { 0 };
        pal_ids whole = { 0 }, parts = { 0 };
        for (uint32_t k = 1 + pal_rng_below(&rng, 120); k; k--) {
            const char *piece = pieces[pal_rng_below(&rng, PAL_COUNT(pieces))];
            pal_bytes_append(&text, piece, strlen(piece), &err);
        }
        write_file(in_folder("cuts"), text.data, text.size);
        test_encode(tok, text.data, text.size, &whole);
        encode_in_blocks(tok, in_folder("cuts"), 8 + pal_rng_below(&rng, 40), &parts);
        if (whole.count != parts.count || memcmp(whole.data, parts.data, whole.count * 4) != 0) fail_msg("%s: case %d, cut into blocks, has other ids: '%.*s'", name, i, (int)text.size, text.data);
        pal_bytes_free(&text), pal_ids_free(&whole), pal_ids_free(&parts);
    }
}

static void text_in_blocks_encodes_as_the_whole(void **state) {
    (void)state;
    int cuttable = 0;
    for (int kind = 0; kind < TINY_KINDS; kind++) {
        pal_tokenizer *tok = test_tiny((tiny_kind)kind);
        cuttable += pal_tokenizer_cut(tok) != PAL_CUT_NEVER;
        check_cuts(tok, tiny_names[kind], test_cases(150, 5000));
        pal_tokenizer_close(tok);
    }
    assert_true(cuttable >= 4);
    static const char *const real[] = { "gpt-neox/tokenizer.json", "gpt2/vocab.json", "llama2/tokenizer.model" };
    for (size_t i = 0; i < PAL_COUNT(real); i++) {
        pal_tokenizer *tok = test_data_tokenizer(real[i]);
        if (!tok) break;
        assert_int_not_equal(pal_tokenizer_cut(tok), PAL_CUT_NEVER);
        check_cuts(tok, real[i], test_cases(150, 5000));
        pal_tokenizer_close(tok);
    }
}

/* Three files, one of them JSONL, more than one wave of blocks. */
typedef struct {
    const char *files[3];
    pal_bytes prose;
} corpus;

static corpus make_corpus(size_t size) {
    corpus c = { .files = { in_folder("one.txt"), in_folder("two.jsonl"), in_folder("three.txt") } };
    for (int i = 0; i < 3; i++) c.files[i] = strdup(c.files[i]);
    pal_rng rng = pal_rng_at(3, 1);
    pal_error err;
    test_prose(&c.prose, &rng, size);
    write_file(c.files[0], c.prose.data, c.prose.size);
    write_file(c.files[2], c.prose.data + 100, c.prose.size / 3);
    FILE *f = fopen(c.files[1], "wb");
    for (size_t at = 0; at + 2000 < c.prose.size / 2;) {
        const size_t length = 1 + pal_rng_below(&rng, 700);
        fputs("{\"n\": 1, \"text\": \"", f);
        for (size_t i = 0; i < length; i++) {
            const unsigned char ch = c.prose.data[at + i];
            if (ch == '\n') fputs("\\n", f);
            else if (ch == '"' || ch == '\\') fprintf(f, "\\%c", ch);
            else if (ch < 0x80) fputc(ch, f);
        }
        fputs("\"}\n", f);
        if (pal_rng_below(&rng, 20) == 0) fputs(" \n{\"text\": \"\"}\n", f);
        at += length;
    }
    fclose(f);
    (void)err;
    return c;
}

static void free_corpus(corpus *c) {
    for (int i = 0; i < 3; i++) free((char *)c->files[i]);
    pal_bytes_free(&c->prose);
}

static pal_tokenizer *trained(const corpus *c) {
    pal_tokenizer *tok;
    pal_error err;
    const pal_slice text = { c->prose.data, c->prose.size < 50000 ? c->prose.size : 50000 };
    if (pal_tokenizer_train_bpe(&tok, &text, 1, 400, &err)) fail_msg("%s", err.text);
    mkdir(in_folder("bpe"), 0777);
    if (pal_tokenizer_save(tok, in_folder("bpe"), &err)) fail_msg("%s", err.text);
    return tok;
}

/* Blocks encode as the whole through the whole way to disk, where the blank is dropped that SentencePiece puts in front of each block anyway. */
static void shards_of_a_text_in_blocks_hold_the_ids_of_the_whole(void **state) {
    (void)state;
    const char *file = in_folder("long.txt"), *out = in_folder("long-shards"), *directory = in_folder("sentencepiece");
    pal_bytes prose = { 0 }, model = { 0 };
    pal_ids expected = { 0 };
    pal_rng rng = pal_rng_at(8, 1);
    pal_context *cx = test_context(1, NULL);
    test_prose(&prose, &rng, 20000);
    write_file(file, prose.data, prose.size);
    test_tiny_spm(&model, false);
    unsigned char *symbol = memmem(model.data, model.size, "<u>\x15", 4); /* its only user-defined symbol, which could stand across a cut */
    assert_true(symbol && symbol[8] == 0x18 && symbol[9] == 4);
    symbol[9] = 1; /* is an ordinary piece here */
    mkdir(directory, 0777);
    write_file(in_folder("sentencepiece/tokenizer.model"), model.data, model.size);
    pal_tokenizer *tok = test_open(directory);
    assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_BLANKS);
    test_encode(tok, prose.data, prose.size, &expected);
    const pal_tokenize_job job = { .files = &file, .count = 1, .out = out, .tokenizer = directory, .no_eos = true, .most = 700, .cx = cx }; /* blocks of 700 bytes */
    tokenize(&job);
    pal_shards *s = open_shards(out);
    const pal_document d = pal_shards_document(s, PAL_PART_ALL, 0);
    assert_int_equal(d.tokens, expected.count);
    assert_int_equal(d.bytes, prose.size);
    assert_int_equal(d.words, pal_text_words((pal_slice){ prose.data, prose.size }));
    for (uint64_t i = 0; i < d.tokens; i++) assert_int_equal(pal_document_token(&d, i), expected.data[i]);
    pal_shards_close(s);
    pal_context_free(cx);
    pal_tokenizer_close(tok);
    pal_bytes_free(&prose), pal_bytes_free(&model), pal_ids_free(&expected);
}

static void shards_do_not_depend_on_threads(void **state) {
    (void)state;
    corpus c = make_corpus((size_t)1 << 20);
    pal_tokenizer *tok = trained(&c);
    pal_tokenize_job job = { .files = c.files, .count = 3, .tokenizer = in_folder("bpe"), .valid = 0.1, .shard_tokens = 100000 };
    for (int threads = 1; threads <= 4; threads += 3) {
        pal_context *cx = test_context(threads, NULL);
        job.cx = cx;
        job.out = strdup(in_folder(threads == 1 ? "t1" : "t4"));
        const pal_tokenize_result r = tokenize(&job);
        assert_true(r.done.shards > 3 && !r.complete_before && !r.kept);
        assert_true(tokenize(&job).complete_before);
        free((char *)job.out);
        pal_context_free(cx);
    }
    assert_same_shards(in_folder("t1"), in_folder("t4"));

    /* And what is in them is the encoding of the files, whole, each document ended by EOS. */
    pal_shards *s = open_shards(in_folder("t1"));
    const pal_shards_info *info = pal_shards_info_of(s);
    pal_ids whole = { 0 };
    pal_error err;
    uint64_t documents = 0, bytes = 0, words = 0;
    for (int i = 0; i < 3; i++) {
        pal_documents *d;
        pal_slice text;
        bool found;
        if (pal_documents_open(&d, c.files[i], pal_text_field(c.files[i], NULL), PAL_DOCUMENT_MAX, &err)) fail_msg("%s", err.text);
        for (;;) {
            found = false; /* the call itself says it */
            if (pal_documents_next(d, &text, &found, &err)) fail_msg("%s", err.text);
            if (!found) break;
            test_encode(tok, text.data, text.size, &whole);
            pal_ids_append(&whole, (uint32_t)pal_tokenizer_eos(tok), &err);
            documents++, bytes += text.size, words += pal_text_words(text);
        }
        pal_documents_close(d);
    }
    assert_int_equal(info->part[PAL_PART_ALL].tokens, whole.count);
    assert_int_equal(info->part[PAL_PART_ALL].bytes, bytes);
    assert_int_equal(info->part[PAL_PART_ALL].words, words);
    assert_true(info->part[PAL_PART_ALL].documents >= documents); /* long ones are cut where shards end */
    size_t at = 0;
    for (uint64_t d = 0; d < info->part[PAL_PART_ALL].documents; d++) {
        const pal_document doc = pal_shards_document(s, PAL_PART_ALL, d);
        for (uint64_t k = 0; k < doc.tokens; k++) assert_int_equal(pal_document_token(&doc, k), whole.data[at++]);
    }
    assert_int_equal(at, whole.count);
    assert_int_equal(info->part[PAL_PART_TRAIN].documents + info->part[PAL_PART_VALID].documents, info->part[PAL_PART_ALL].documents);
    assert_int_equal(info->part[PAL_PART_TRAIN].tokens + info->part[PAL_PART_VALID].tokens, info->part[PAL_PART_ALL].tokens);
    pal_ids_free(&whole);
    pal_shards_close(s);
    pal_tokenizer_close(tok);
    free_corpus(&c);
}

static bool stop_at(void *user, const pal_tokenize_progress *p) {
    (void)p;
    return --*(int *)user > 0;
}

static int count_shards(const char *path, bool *temporary) {
    int count = 0;
    *temporary = false;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const char *shard = strstr(e->d_name, ".shard");
        count += shard && !shard[6];
        if (shard && shard[6]) *temporary = true;
    }
    if (dir) closedir(dir);
    return count;
}

static void stopped_work_goes_on_behind_finished_shards(void **state) {
    (void)state;
    /* A wave is 16 MiB: enough for three of them, with the cheapest tokenizer. */
    pal_rng rng = pal_rng_at(8, 1);
    pal_bytes text = { 0 };
    test_prose(&text, &rng, 1 << 20);
    FILE *f = fopen(in_folder("long.txt"), "wb");
    for (int i = 0; i < 36; i++) fwrite(text.data, 1, text.size, f);
    fclose(f);
    char path[160], straight[160], broken[160];
    strcpy(path, in_folder("long.txt")), strcpy(straight, in_folder("straight")), strcpy(broken, in_folder("broken"));
    pal_context *cx = test_context(2, NULL);
    const char *files[] = { path };
    pal_tokenize_job job = { .files = files, .count = 1, .tokenizer = "bytes", .out = straight, .valid = 0.1, .shard_tokens = 5 << 20, .cx = cx };
    tokenize(&job);
    int waves = 1;
    bool temporary;
    job.out = broken, job.progress = stop_at, job.user = &waves;
    pal_tokenize_result r = tokenize(&job);
    assert_true(r.stopped && !pal_shards_exist(broken));
    assert_int_equal(count_shards(broken, &temporary), 3);
    assert_false(temporary);
    /* What a killed process may leave: a temporary, a shard that was not recorded yet. */
    write_file(in_folder("broken/00003.shard"), "junk", 4);
    write_file(in_folder("broken/00003.shard.0badcafe"), "junk", 4);
    waves = 1000;
    r = tokenize(&job);
    assert_true(r.kept == 3 && !r.stopped);
    assert_same_shards(straight, broken);

    /* Another job must not touch it. */
    pal_error err;
    job.no_eos = true, job.shard_tokens = 1000;
    assert_int_equal(pal_tokenize(&job, &r, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "another directory"));
    pal_bytes_free(&text);
    pal_context_free(cx);
}

static void full_disk_leaves_whole_shards_only(void **state) {
    (void)state;
    corpus c = make_corpus((size_t)1 << 18);
    char straight[160], full[160];
    strcpy(straight, in_folder("enough")), strcpy(full, in_folder("full"));
    pal_context *cx = test_context(1, NULL);
    pal_tokenize_job job = { .files = c.files, .count = 3, .tokenizer = "bytes", .out = straight, .shard_tokens = 200000, .cx = cx };
    tokenize(&job);
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    job.out = full;
    pal_tokenize_result r;
    pal_error err;
    bool temporary;
    /* Just below what shards of this text need: the first may be too large already, or a later one. */
    for (int i = 0; i < 4; i++) {
        const struct rlimit limit = { .rlim_cur = (rlim_t[]){ 100, 20000, 300000, 520000 }[i], .rlim_max = before.rlim_max };
        setrlimit(RLIMIT_FSIZE, &limit);
        const pal_status st = pal_tokenize(&job, &r, &err);
        setrlimit(RLIMIT_FSIZE, &before);
        assert_int_equal(st, PAL_E_IO);
        assert_false(pal_shards_exist(full));
        assert_int_equal(count_shards(full, &temporary), r.done.shards);
        assert_false(temporary);
    }
    tokenize(&job);
    assert_same_shards(straight, full);
    pal_context_free(cx);
    free_corpus(&c);
}

static void tokenizing_survives_want_of_memory(void **state) {
    (void)state;
    corpus c = make_corpus(20000);
    char out[160];
    strcpy(out, in_folder("poor"));
    pal_context *cx = test_context(1, NULL);
    const pal_tokenize_job job = { .files = c.files, .count = 3, .tokenizer = "bytes", .out = out, .shard_tokens = 4000, .valid = 0.1, .cx = cx };
    pal_tokenize_result r;
    pal_error err;
    int failed = 0;
    for (uint64_t k = 1; k < 4000; k += k < 60 ? 1 : 13) {
        pal_alloc_fail_at(k);
        const pal_status st = pal_tokenize(&job, &r, &err);
        pal_alloc_fail_at(0);
        if (st == PAL_OK) break;
        assert_int_equal(st, PAL_E_MEMORY);
        failed++;
    }
    assert_true(failed > 20);
    tokenize(&job);
    pal_shards_close(open_shards(out));
    pal_context_free(cx);
    free_corpus(&c);
}

static pal_status tokenize_text(const char *name, const void *text, size_t size, const char *tokenizer, const char *field, size_t most, pal_error *err) {
    char path[160], out[160];
    pal_tokenize_result r;
    pal_context *cx = test_context(2, NULL);
    strcpy(path, in_folder(name)), strcpy(out, in_folder("refused"));
    write_file(path, text, size);
    const char *files[] = { path };
    const pal_tokenize_job job = { .files = files, .count = 1, .tokenizer = tokenizer, .out = out, .field = field, .most = most, .cx = cx };
    const pal_status st = pal_tokenize(&job, &r, err);
    if (st) assert_int_not_equal(access(out, F_OK), 0); /* nothing was begun */
    else remove_in(out);
    pal_context_free(cx);
    return st;
}

static void bad_text_is_refused_and_leaves_nothing(void **state) {
    (void)state;
    pal_error err;
    pal_bytes prose = { 0 };
    pal_rng rng = pal_rng_at(5, 1);
    corpus c = make_corpus(60000);
    pal_tokenizer_close(trained(&c));
    free_corpus(&c);
    char bpe[160];
    strcpy(bpe, in_folder("bpe"));
    static const struct { const char *name, *text, *tokenizer, *field, *says; } cases[] = {
        { "empty.txt", "", "bytes", NULL, "no text" },
        { "empty.jsonl", "", "bytes", NULL, "no text" },
        { "blank.jsonl", "\n \n{\"text\": \"\"}\n", "bytes", NULL, "no text" },
        { "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n", "bytes", NULL, "line 2: expected an object with a string 'text'" },
        { "none.jsonl", "{\"text\": \"a\"}\n", "bytes", "body", "line 1: expected an object with a string 'body'" },
        { "list.jsonl", "[1]\n", "bytes", NULL, "line 1: expected an object" },
        { "torn.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"a\n", "bytes", NULL, "line 3" },
        { "nul.txt", "ab\xff" "c", "chars", NULL, "not UTF-8" },
        { "garbage.jsonl", "\x01\x02\xff\xfe\n", "bytes", NULL, "line 1" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        if (tokenize_text(cases[i].name, cases[i].text, strlen(cases[i].text), cases[i].tokenizer, cases[i].field, 0, &err) == PAL_OK) fail_msg("%s was taken", cases[i].name);
        if (!strstr(err.text, cases[i].says)) fail_msg("%s: '%s' does not say '%s'", cases[i].name, err.text, cases[i].says);
    }
    /* Bytes of any kind are text to a byte-level vocabulary. */
    test_random_bytes(&prose, &rng, 5000);
    assert_int_equal(tokenize_text("garbage.txt", prose.data, prose.size, "bytes", NULL, 0, &err), PAL_OK);
    assert_int_equal(tokenize_text("garbage.txt", prose.data, prose.size, bpe, NULL, 0, &err), PAL_OK);
    pal_bytes_free(&prose);

    /* Lines and words without end: as if of a gigabyte, with a smaller limit; without merges nothing is too long. */
    const size_t size = getenv("PALIMPSA_TEST_LONG") ? (size_t)1 << 30 : (size_t)1 << 20, most = getenv("PALIMPSA_TEST_LONG") ? 0 : 1 << 16;
    char *line = malloc(size);
    assert_non_null(line);
    memset(line, 'x', size);
    assert_int_equal(tokenize_text("word.txt", line, size, bpe, NULL, most, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "no blank between words"));
    assert_int_equal(tokenize_text("line.jsonl", line, size, "bytes", NULL, most, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "line 1 is longer"));
    assert_int_equal(tokenize_text("word.txt", line, size, "bytes", NULL, most, &err), PAL_OK);
    free(line);
}

/* A small set: documents of given lengths, whose tokens say which document and position they are. */
static pal_shards *small_set(const char *name, const uint64_t *lengths, size_t documents, size_t per_shard, double valid) {
    char out[160];
    pal_error err;
    pal_tokenizer *tok = test_open("bytes");
    pal_shard_sums sums[64];
    size_t count = 0;
    strcpy(out, in_folder(name));
    mkdir(out, 0777);
    for (size_t d = 0; d < documents; count++) {
        pal_shard_writer *w;
        if (pal_shard_writer_new(&w, out, count, pal_tokenizer_fingerprint(tok), 256, &err)) fail_msg("%s", err.text);
        for (size_t k = 0; k < per_shard && d < documents; k++, d++) {
            for (uint64_t i = 0; i < lengths[d]; i++) {
                const uint32_t id = (uint32_t)((d * 31 + i * 7) % 256);
                if (pal_shard_writer_tokens(w, &id, 1, &err)) fail_msg("%s", err.text);
            }
            if (pal_shard_writer_end_document(w, lengths[d], 1, &err)) fail_msg("%s", err.text);
        }
        if (pal_shard_writer_finish(w, &sums[count], &err)) fail_msg("%s", err.text);
    }
    const pal_shards_summary summary = { .tokenizer = tok, .eos = -1, .count = count, .shards = sums, .valid = valid };
    if (pal_shards_finish(out, &summary, &err)) fail_msg("%s", err.text);
    pal_tokenizer_close(tok);
    return open_shards(out);
}

static void damaged_shards_are_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = { 5, 1, 17, 3, 9 };
    pal_shards_close(small_set("damaged", lengths, 5, 3, 0.2));
    char path[160], set[160];
    strcpy(set, in_folder("damaged"));
    static const char *const names[] = { "damaged/00000.shard", "damaged/00001.shard" };
    pal_shards *s;
    pal_error err;
    for (int n = 0; n < 2; n++) {
        strcpy(path, in_folder(names[n]));
        pal_bytes good = read_whole(path);
        for (size_t size = 0; size < good.size; size++) {
            write_file(path, good.data, size);
            if (pal_shards_open(&s, set, &err) == PAL_OK) fail_msg("%s was taken when cut to %zu bytes", names[n], size);
        }
        for (size_t bit = 0; bit < 8 * good.size; bit++) {
            good.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            write_file(path, good.data, good.size);
            good.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            if (pal_shards_open(&s, set, &err)) continue;
            if (bit / 8 < 128 || pal_shards_verify(s, &err) == PAL_OK) fail_msg("%s was taken with bit %zu turned", names[n], bit);
            pal_shards_close(s);
        }
        pal_bytes_append(&good, "x", 1, &err);
        write_file(path, good.data, good.size);
        assert_int_equal(pal_shards_open(&s, set, &err), PAL_E_FORMAT);
        write_file(path, good.data, good.size - 1);
        pal_shards_close(open_shards(set));
        pal_bytes_free(&good);
    }
    /* The list itself: cut, or with numbers that do not fit. */
    strcpy(path, in_folder("damaged/shards.json"));
    pal_bytes list = read_whole(path);
    for (size_t size = 0; size + 2 < list.size; size++) {
        write_file(path, list.data, size);
        assert_int_not_equal(pal_shards_open(&s, set, &err), PAL_OK);
    }
    for (size_t i = 0; i < list.size; i++) {
        if (list.data[i] < '0' || list.data[i] > '9') continue;
        const unsigned char digit = list.data[i];
        list.data[i] = digit == '9' ? '1' : (unsigned char)(digit + 1);
        write_file(path, list.data, list.size);
        if (pal_shards_open(&s, set, &err) == PAL_OK) { /* a count that nothing depends on */
            const pal_shards_info *info = pal_shards_info_of(s);
            for (int part = 0; part < PAL_PARTS; part++)
                for (uint64_t d = 0; d < info->part[part].documents; d++) {
                    const pal_document doc = pal_shards_document(s, (pal_shards_part)part, d);
                    volatile uint32_t last = pal_document_token(&doc, doc.tokens - 1);
                    (void)last;
                }
            pal_shards_close(s);
        }
        list.data[i] = digit;
    }
    write_file(path, list.data, list.size);
    unlink(in_folder(names[1]));
    assert_int_equal(pal_shards_open(&s, set, &err), PAL_E_IO);
    pal_bytes_free(&list);
}

static uint64_t random_lengths(uint64_t *lengths, size_t n, uint64_t seed, uint32_t most) {
    pal_rng rng = pal_rng_at(seed, 9);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += lengths[i] = 1 + pal_rng_below(&rng, pal_rng_below(&rng, 4) ? 12 : most);
    return sum;
}

enum { DOCUMENTS = 300, MOST_ROW = 256 };

/* One epoch shows every token once, in sequences that never hold two documents and are at most `context` long; a target is
 * the next token of the document. */
static void rows_show_every_document_once_and_keep_them_apart(void **state) {
    (void)state;
    uint64_t lengths[DOCUMENTS];
    const uint64_t tokens = random_lengths(lengths, DOCUMENTS, 4, 90);
    pal_shards *s = small_set("rows", lengths, DOCUMENTS, 60, 0);
    static const struct { int row, context, sequences; pal_order order; } cases[] = {
        { 64, 16, 0, PAL_ORDER_DOCUMENTS }, { 61, 16, 0, PAL_ORDER_SEQUENCES }, { 37, 0, 0, PAL_ORDER_STORED }, { 200, 64, 5, PAL_ORDER_DOCUMENTS }, { 16, 16, 0, PAL_ORDER_SEQUENCES }, { 1, 1, 0, PAL_ORDER_SEQUENCES },
    };
    for (size_t c = 0; c < PAL_COUNT(cases); c++) {
        const pal_loader_options o = { .sources = 1, .source = { { s, PAL_PART_ALL, 1 } }, .row = cases[c].row, .context = cases[c].context, .sequences = cases[c].sequences, .order = cases[c].order, .seed = 7 };
        pal_loader *l;
        pal_error err;
        if (pal_loader_new(&l, &o, &err)) fail_msg("%s", err.text);
        assert_int_equal(pal_loader_tokens(l), tokens);
        for (int epoch = 0; epoch < 2; epoch++) {
            size_t histogram[256] = { 0 }, expected[256] = { 0 };
            uint64_t seen = 0, starts = 0;
            while (pal_loader_tell(l).of[0].tokens < tokens * (uint64_t)(epoch + 1)) {
                int32_t ids[MOST_ROW], targets[MOST_ROW];
                int ends[MOST_ROW];
                pal_row row;
                if (pal_loader_next(l, ids, targets, ends, &row, &err)) fail_msg("%s", err.text);
                assert_true(row.tokens >= 1 && row.tokens <= o.row && row.sequences >= 1 && ends[row.sequences - 1] == row.tokens);
                if (o.sequences) assert_true(row.sequences <= o.sequences);
                else if (o.order == PAL_ORDER_STORED) assert_int_equal(row.tokens, o.row);
                for (int n = 0, at = 0; n < row.sequences; at = ends[n++]) {
                    assert_true(ends[n] > at);
                    if (o.context) assert_true(ends[n] - at <= o.context);
                    starts++;
                    for (int t = at; t < ends[n]; t++) {
                        if (t + 1 < ends[n]) assert_int_equal((ids[t] + 7) % 256, ids[t + 1]); /* tokens of one document rise by 7 */
                        if (t + 1 < ends[n]) assert_int_equal(targets[t], ids[t + 1]);
                        else if (targets[t] != PAL_IGNORE && targets[t] != (ids[t] + 7) % 256) /* else the next document's first */
                            assert_true(o.order != PAL_ORDER_SEQUENCES && n + 1 < row.sequences && targets[t] == ids[t + 1]);
                    }
                }
                for (int t = 0; t < row.tokens && seen < tokens; t++, seen++) histogram[ids[t]]++;
                if (seen == tokens && o.order == PAL_ORDER_STORED) break;
            }
            if (o.order != PAL_ORDER_STORED && (o.row != 1 && epoch)) break; /* rows run across the end of an epoch */
            for (size_t d = 0; d < DOCUMENTS; d++)
                for (uint64_t i = 0; i < lengths[d]; i++) expected[(d * 31 + i * 7) % 256]++;
            assert_memory_equal(histogram, expected, sizeof expected);
            assert_true(starts >= DOCUMENTS);
            if (o.order == PAL_ORDER_STORED) break;
        }
        pal_loader_free(l);
    }
    pal_shards_close(s);
}

/* The tokens of two epochs, one after the other: the same ones, in another order each time, and in another one by another seed. */
static void every_epoch_is_shuffled_anew(void **state) {
    (void)state;
    enum { MOST_TOKENS = 20000 };
    uint64_t lengths[DOCUMENTS];
    const uint64_t tokens = random_lengths(lengths, DOCUMENTS, 5, 90);
    static int32_t seen[2][2 * MOST_TOKENS]; /* by seed */
    assert_true(tokens <= MOST_TOKENS);
    pal_shards *s = small_set("epochs", lengths, DOCUMENTS, 60, 0);
    for (pal_order order = PAL_ORDER_DOCUMENTS; order <= PAL_ORDER_SEQUENCES; order++) {
        for (int seed = 0; seed < 2; seed++) {
            const pal_loader_options o = { .sources = 1, .source = { { s, PAL_PART_ALL, 1 } }, .row = 1, .context = 1, .order = order, .seed = 7 + (uint64_t)seed };
            pal_loader *l;
            pal_error err;
            if (pal_loader_new(&l, &o, &err)) fail_msg("%s", err.text);
            for (uint64_t i = 0; i < 2 * tokens; i++) {
                int32_t target;
                int end;
                pal_row row;
                if (pal_loader_next(l, &seen[seed][i], &target, &end, &row, &err)) fail_msg("%s", err.text);
            }
            pal_loader_free(l);
            assert_memory_not_equal(seen[seed], seen[seed] + tokens, (size_t)tokens * sizeof seen[0][0]);
        }
        assert_memory_not_equal(seen[0], seen[1], (size_t)tokens * sizeof seen[0][0]);
    }
    pal_shards_close(s);
}

static void rows_go_on_from_any_place(void **state) {
    (void)state;
    uint64_t lengths[DOCUMENTS];
    random_lengths(lengths, DOCUMENTS, 6, 200);
    pal_shards *a = small_set("place-a", lengths, DOCUMENTS, 100, 0.1);
    random_lengths(lengths, DOCUMENTS, 7, 50);
    pal_shards *b = small_set("place-b", lengths, DOCUMENTS / 2, 1000, 0);
    pal_rng rng = pal_rng_at(1, 2);
    for (int i = 0; i < test_cases(60, 1000); i++) {
        const pal_loader_options o = { .sources = 2, .source = { { a, PAL_PART_TRAIN, 3 }, { b, PAL_PART_TRAIN, 1 } }, .row = 1 + (int)pal_rng_below(&rng, MOST_ROW - 1),
                                       .context = 1 + (int)pal_rng_below(&rng, 100), .order = (pal_order)pal_rng_below(&rng, 3), .seed = (uint64_t)i,
                                       .sequences = pal_rng_below(&rng, 2) ? 8 : 0 };
        pal_loader *straight, *resumed;
        pal_error err;
        if (pal_loader_new(&straight, &o, &err) || pal_loader_new(&resumed, &o, &err)) fail_msg("%s", err.text);
        int32_t ids[2][MOST_ROW], targets[2][MOST_ROW];
        int ends[2][MOST_ROW];
        pal_row row[2];
        for (uint32_t skip = pal_rng_below(&rng, 200); skip; skip--)
            if (pal_loader_next(straight, ids[0], targets[0], ends[0], &row[0], &err)) fail_msg("%s", err.text);
        const pal_loader_position place = pal_loader_tell(straight);
        if (pal_loader_seek(resumed, &place, &err)) fail_msg("%s", err.text);
        for (int r = 0; r < 30; r++) {
            if (pal_loader_next(straight, ids[0], targets[0], ends[0], &row[0], &err) || pal_loader_next(resumed, ids[1], targets[1], ends[1], &row[1], &err)) fail_msg("%s", err.text);
            assert_memory_equal(&row[0], &row[1], sizeof row[0]);
            assert_memory_equal(ids[0], ids[1], (size_t)row[0].tokens * sizeof ids[0][0]);
            assert_memory_equal(targets[0], targets[1], (size_t)row[0].tokens * sizeof targets[0][0]);
            assert_memory_equal(ends[0], ends[1], (size_t)row[0].sequences * sizeof ends[0][0]);
        }
        /* Shares: three tokens of the first for one of the second, to within a document. */
        const pal_loader_position end = pal_loader_tell(straight);
        assert_true((double)end.of[0].tokens - 3 * (double)end.of[1].tokens < 800 && 3 * (double)end.of[1].tokens - (double)end.of[0].tokens < 800);
        /* Places that do not exist. */
        pal_loader_position wrong = place;
        wrong.of[1].unit = 1000000;
        assert_int_equal(pal_loader_seek(resumed, &wrong, &err), PAL_E_FORMAT);
        wrong = place, wrong.source = 2;
        assert_int_equal(pal_loader_seek(resumed, &wrong, &err), PAL_E_FORMAT);
        pal_loader_free(straight), pal_loader_free(resumed);
    }
    pal_shards_close(a), pal_shards_close(b);
}

static void one_document_is_cut_for_validation(void **state) {
    (void)state;
    static const uint64_t length = 1000;
    pal_shards *s = small_set("single", &length, 1, 1, 0.1);
    const pal_shards_info *info = pal_shards_info_of(s);
    assert_int_equal(info->part[PAL_PART_TRAIN].tokens, 900);
    assert_int_equal(info->part[PAL_PART_VALID].tokens, 100);
    assert_int_equal(info->part[PAL_PART_VALID].bytes, 100);
    const pal_document train = pal_shards_document(s, PAL_PART_TRAIN, 0), valid = pal_shards_document(s, PAL_PART_VALID, 0), all = pal_shards_document(s, PAL_PART_ALL, 0);
    assert_true(train.tokens == 900 && valid.tokens == 100);
    assert_true(all.bytes == 1000 && train.bytes == 900 && valid.bytes == 100); /* or perplexities per byte would be those of nothing */
    assert_int_equal(valid.words, info->part[PAL_PART_VALID].words);
    assert_int_equal(train.words, info->part[PAL_PART_TRAIN].words);
    for (uint64_t i = 0; i < 900; i++) assert_int_equal(pal_document_token(&train, i), pal_document_token(&all, i));
    for (uint64_t i = 0; i < 100; i++) assert_int_equal(pal_document_token(&valid, i), pal_document_token(&all, 900 + i));
    pal_shards_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(words_are_counted_as_python_splits),
        cmocka_unit_test(text_in_blocks_encodes_as_the_whole),
        cmocka_unit_test(shards_of_a_text_in_blocks_hold_the_ids_of_the_whole),
        cmocka_unit_test(shards_do_not_depend_on_threads),
        cmocka_unit_test(stopped_work_goes_on_behind_finished_shards),
        cmocka_unit_test(full_disk_leaves_whole_shards_only),
        cmocka_unit_test(tokenizing_survives_want_of_memory),
        cmocka_unit_test(bad_text_is_refused_and_leaves_nothing),
        cmocka_unit_test(damaged_shards_are_refused),
        cmocka_unit_test(rows_show_every_document_once_and_keep_them_apart),
        cmocka_unit_test(every_epoch_is_shuffled_anew),
        cmocka_unit_test(rows_go_on_from_any_place),
        cmocka_unit_test(one_document_is_cut_for_validation),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
