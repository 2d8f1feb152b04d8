/* SPDX-License-Identifier: MIT */
/* From text to shards: what is written is what was read, whatever happens in between. */
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/text.h"
#include "data/tokenize.h"
#include "support/files.h"
#include "support/shards.h"
#include "support/text.h"
#include "text/cut.h"

static void assert_same_files(const char *a, const char *b) {
    size_t sizes[2];
    unsigned char *x = test_read_file(a, &sizes[0]), *y = test_read_file(b, &sizes[1]);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(x, y, sizes[0]);
    free(x), free(y);
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
    OK(pal_tokenize(job, &r, err));
    return r;
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
    test_prose(&c.prose, &rng, size);
    test_write_file(c.files[0], c.prose.data, c.prose.size);
    test_write_file(c.files[2], c.prose.data + 100, c.prose.size / 3);
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

/* Blocks encode as the whole through the whole way to disk, where the blank is dropped that SentencePiece puts in front
 * of each block anyway. */
static void shards_of_a_text_in_blocks_hold_the_ids_of_the_whole(void **state) {
    (void)state;
    const char *file = in_folder("long.txt"), *out = in_folder("long-shards"), *directory = in_folder("sentencepiece");
    pal_bytes prose = { 0 }, model = { 0 };
    pal_ids expected = { 0 };
    pal_rng rng = pal_rng_at(8, 1);
    pal_context *cx = test_context(1, NULL);
    test_prose(&prose, &rng, 20000);
    test_write_file(file, prose.data, prose.size);
    test_tiny_spm(&model, false);
    unsigned char *symbol = memmem(model.data, model.size, "<u>\x15",
                                   4); /* its only user-defined symbol, which could stand across a cut */
    assert_true(symbol && symbol[8] == 0x18 && symbol[9] == 4);
    symbol[9] = 1; /* is an ordinary piece here */
    mkdir(directory, 0777);
    test_write_file(in_folder("sentencepiece/tokenizer.model"), model.data, model.size);
    pal_tokenizer *tok = test_open(directory);
    assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_BLANKS);
    test_encode(tok, prose.data, prose.size, &expected);
    const pal_tokenize_job job = {
        .files = &file, .count = 1, .out = out, .tokenizer = directory, .no_eos = true, .most = 700, .cx = cx
    }; /* blocks of 700 bytes */
    tokenize(&job);
    pal_shards *s = test_shards_open(out);
    const pal_document d = pal_shards_document(s, PAL_SUBSET_ALL, 0);
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
    pal_tokenize_job job = {
        .files = c.files, .count = 3, .tokenizer = in_folder("bpe"), .valid = 0.1, .shard_tokens = 100000
    };
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
    pal_shards *s = test_shards_open(in_folder("t1"));
    const pal_shards_info *info = pal_shards_info_of(s);
    pal_ids whole = { 0 };
    pal_error err;
    uint64_t documents = 0, bytes = 0, words = 0;
    for (int i = 0; i < 3; i++) {
        pal_documents *d;
        pal_slice text;
        bool found;
        if (pal_documents_open(&d, c.files[i], pal_text_field(c.files[i], NULL), PAL_DOCUMENT_MAX, &err))
            fail_msg("%s", err.text);
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
    assert_int_equal(info->subset[PAL_SUBSET_ALL].tokens, whole.count);
    assert_int_equal(info->subset[PAL_SUBSET_ALL].bytes, bytes);
    assert_int_equal(info->subset[PAL_SUBSET_ALL].words, words);
    assert_true(info->subset[PAL_SUBSET_ALL].documents >= documents); /* long ones are cut where shards end */
    size_t at = 0;
    assert_non_null(whole.data);
    for (uint64_t d = 0; d < info->subset[PAL_SUBSET_ALL].documents; d++) {
        const pal_document doc = pal_shards_document(s, PAL_SUBSET_ALL, d);
        for (uint64_t k = 0; k < doc.tokens; k++) assert_int_equal(pal_document_token(&doc, k), whole.data[at++]);
    }
    assert_int_equal(at, whole.count);
    assert_int_equal(info->subset[PAL_SUBSET_TRAIN].documents + info->subset[PAL_SUBSET_VALID].documents,
                     info->subset[PAL_SUBSET_ALL].documents);
    assert_int_equal(info->subset[PAL_SUBSET_TRAIN].tokens + info->subset[PAL_SUBSET_VALID].tokens,
                     info->subset[PAL_SUBSET_ALL].tokens);
    pal_ids_free(&whole);
    pal_shards_close(s);
    pal_tokenizer_close(tok);
    free_corpus(&c);
}

static bool stop_at(void *user, size_t done, size_t total) {
    (void)done, (void)total;
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
    char path[TEST_PATH], straight[TEST_PATH], broken[TEST_PATH];
    strcpy(path, in_folder("long.txt")), strcpy(straight, in_folder("straight")), strcpy(broken, in_folder("broken"));
    pal_context *cx = test_context(2, NULL);
    const char *files[] = { path };
    pal_tokenize_job job = { .files = files,
                             .count = 1,
                             .tokenizer = "bytes",
                             .out = straight,
                             .valid = 0.1,
                             .shard_tokens = 5 << 20,
                             .cx = cx };
    tokenize(&job);
    int waves = 1;
    bool temporary;
    job.out = broken, job.progress = stop_at, job.user = &waves;
    pal_tokenize_result r;
    assert_int_equal(pal_tokenize(&job, &r, NULL), PAL_STOPPED);
    assert_true(r.done.shards == 3 && !pal_shards_exist(broken));
    assert_int_equal(count_shards(broken, &temporary), 3);
    assert_false(temporary);
    /* What no one writes: less than nothing done. */
    pal_error err;
    char place[TEST_PATH];
    strcpy(place, in_folder("broken/tokenize.json"));
    json_t *sound = json_load_file(place, 0, NULL);
    for (int i = 0; i < 2; i++) {
        json_t *forged = json_deep_copy(sound), *shard = json_array_get(json_object_get(forged, "shards"), 0);
        if (i) json_array_set_new(shard, 1, json_integer(-1));
        else json_object_set_new(forged, "documents", json_integer(-1));
        assert_int_equal(json_dump_file(forged, place, 0), 0);
        assert_int_equal(pal_tokenize(&job, &r, &err), PAL_E_FORMAT);
        assert_non_null(strstr(err.text, "not what this program writes"));
        json_decref(forged);
    }
    assert_int_equal(json_dump_file(sound, place, 0), 0);
    json_decref(sound);
    /* What a killed process may leave: a temporary, a shard that was not recorded yet. */
    test_write_file(in_folder("broken/00003.shard"), "junk", 4);
    test_write_file(in_folder("broken/00003.shard.0badcafe"), "junk", 4);
    waves = 1000;
    r = tokenize(&job);
    assert_int_equal(r.kept, 3);
    assert_same_shards(straight, broken);

    /* Another job must not touch it. */
    job.no_eos = true, job.shard_tokens = 1000;
    assert_int_equal(pal_tokenize(&job, &r, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "another directory"));
    pal_bytes_free(&text);
    pal_context_free(cx);
}

/* What a subset of the set holds: its tokens are bytes of `text` from `at` on, and its documents add up to its sums. */
static size_t assert_part(const pal_shards *s, pal_subset subset, const pal_bytes *text, size_t at) {
    const pal_shards_info *info = pal_shards_info_of(s);
    uint64_t tokens = 0, bytes = 0, words = 0;
    for (uint64_t d = 0; d < info->subset[subset].documents; d++) {
        const pal_document one = pal_shards_document(s, subset, d);
        for (uint64_t i = 0; i < one.tokens; i++)
            assert_int_equal(pal_document_token(&one, i), text->data[at++ % text->size]);
        tokens += one.tokens, bytes += one.bytes, words += one.words;
    }
    assert_int_equal(tokens, info->subset[subset].tokens);
    assert_int_equal(bytes, info->subset[subset].bytes);
    assert_int_equal(words, info->subset[subset].words);
    return at;
}

static void a_text_in_several_shards_is_one_document_to_hold_back_from(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(8, 2);
    pal_bytes text = { 0 };
    test_prose(&text, &rng, (3 << 20) - 100000);
    char path[TEST_PATH], out[TEST_PATH];
    strcpy(path, in_folder("one.txt"));
    test_write_file(path, text.data, text.size);
    pal_context *cx = test_context(1, NULL);
    const char *files[] = { path, path };
    /* The cut lies in the last piece, in one before it, and in the first. */
    for (int i = 0; i < 3; i++) {
        const double valid = (double[]){ 0.1, 0.4, 0.9 }[i];
        snprintf(out, sizeof out, "%s%d", in_folder("one-text-"), i);
        const pal_tokenize_job job = { .files = files,
                                       .count = 1,
                                       .tokenizer = "bytes",
                                       .out = out,
                                       .valid = valid,
                                       .shard_tokens = 1000000,
                                       .cx = cx };
        assert_int_equal(tokenize(&job).done.documents, 1);
        pal_shards *s = test_shards_open(out);
        assert_int_equal(pal_shards_info_of(s)->shards, 3);
        const double share = (double)pal_shards_info_of(s)->subset[PAL_SUBSET_VALID].bytes / (double)text.size;
        assert_true(share > valid - 1e-5 && share < valid + 1e-5);
        assert_int_equal(assert_part(s, PAL_SUBSET_VALID, &text, assert_part(s, PAL_SUBSET_TRAIN, &text, 0)),
                         text.size);
        pal_shards_close(s);
    }
    /* Of two such texts a fifth is the second one, not its last piece. */
    strcpy(out, in_folder("two-texts"));
    const pal_tokenize_job job = {
        .files = files, .count = 2, .tokenizer = "bytes", .out = out, .valid = 0.2, .shard_tokens = 1000000, .cx = cx
    };
    assert_int_equal(tokenize(&job).done.documents, 2);
    pal_shards *s = test_shards_open(out);
    assert_int_equal(assert_part(s, PAL_SUBSET_TRAIN, &text, 0), text.size);
    assert_int_equal(assert_part(s, PAL_SUBSET_VALID, &text, text.size), 2 * text.size);
    pal_shards_close(s);
    pal_bytes_free(&text);
    pal_context_free(cx);
}

static void full_disk_leaves_whole_shards_only(void **state) {
    (void)state;
    corpus c = make_corpus((size_t)1 << 18);
    char straight[TEST_PATH], full[TEST_PATH];
    strcpy(straight, in_folder("enough")), strcpy(full, in_folder("full"));
    pal_context *cx = test_context(1, NULL);
    pal_tokenize_job job = {
        .files = c.files, .count = 3, .tokenizer = "bytes", .out = straight, .shard_tokens = 200000, .cx = cx
    };
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
        const struct rlimit limit = { .rlim_cur = (rlim_t[]){ 100, 20000, 300000, 520000 }[i],
                                      .rlim_max = before.rlim_max };
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
    char out[TEST_PATH];
    strcpy(out, in_folder("poor"));
    pal_context *cx = test_context(1, NULL);
    const pal_tokenize_job job = {
        .files = c.files, .count = 3, .tokenizer = "bytes", .out = out, .shard_tokens = 4000, .valid = 0.1, .cx = cx
    };
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
    pal_shards_close(test_shards_open(out));
    pal_context_free(cx);
    free_corpus(&c);
}

static pal_status tokenize_text(const char *name, const void *text, size_t size, const char *tokenizer,
                                const char *field, size_t most, pal_error *err) {
    char path[TEST_PATH], out[TEST_PATH];
    pal_tokenize_result r;
    pal_context *cx = test_context(2, NULL);
    strcpy(path, in_folder(name)), strcpy(out, in_folder("refused"));
    test_write_file(path, text, size);
    const char *files[] = { path };
    const pal_tokenize_job job = {
        .files = files, .count = 1, .tokenizer = tokenizer, .out = out, .field = field, .most = most, .cx = cx
    };
    const pal_status st = pal_tokenize(&job, &r, err);
    if (st) assert_int_not_equal(access(out, F_OK), 0); /* nothing was begun */
    else test_remove(out);
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
    char bpe[TEST_PATH];
    strcpy(bpe, in_folder("bpe"));
    static const struct {
        const char *name, *text, *tokenizer, *field, *says;
    } cases[] = {
        { "empty.txt", "", "bytes", NULL, "no text" },
        { "empty.jsonl", "", "bytes", NULL, "no text" },
        { "blank.jsonl", "\n \n{\"text\": \"\"}\n", "bytes", NULL, "no text" },
        { "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n", "bytes", NULL,
          "line 2: expected an object with a string 'text'" },
        { "none.jsonl", "{\"text\": \"a\"}\n", "bytes", "body", "line 1: expected an object with a string 'body'" },
        { "list.jsonl", "[1]\n", "bytes", NULL, "line 1: expected an object" },
        { "torn.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"a\n", "bytes", NULL, "line 3" },
        { "nul.txt",
          "ab\xff"
          "c",
          "chars", NULL, "not UTF-8" },
        { "garbage.jsonl", "\x01\x02\xff\xfe\n", "bytes", NULL, "line 1" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        if (tokenize_text(cases[i].name, cases[i].text, strlen(cases[i].text), cases[i].tokenizer, cases[i].field, 0,
                          &err) == PAL_OK)
            fail_msg("%s was taken", cases[i].name);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: '%s' does not say '%s'", cases[i].name, err.text, cases[i].says);
    }
    /* Bytes of any kind are text to a byte-level vocabulary. */
    test_random_bytes(&prose, &rng, 5000);
    assert_int_equal(tokenize_text("garbage.txt", prose.data, prose.size, "bytes", NULL, 0, &err), PAL_OK);
    assert_int_equal(tokenize_text("garbage.txt", prose.data, prose.size, bpe, NULL, 0, &err), PAL_OK);
    pal_bytes_free(&prose);

    /* Lines and words without end: as if of a gigabyte, with a smaller limit; without merges nothing is too long. */
    const size_t size = getenv("PALIMPSA_TEST_LONG") ? (size_t)1 << 30 : (size_t)1 << 20,
                 most = getenv("PALIMPSA_TEST_LONG") ? 0 : 1 << 16;
    char *line = malloc(size);
    assert_non_null(line);
    memset(line, 'x', size);
    assert_int_equal(tokenize_text("word.txt", line, size, bpe, NULL, most, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "no place to cut it"));
    assert_int_equal(tokenize_text("line.jsonl", line, size, "bytes", NULL, most, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "line 1 is longer"));
    assert_int_equal(tokenize_text("word.txt", line, size, "bytes", NULL, most, &err), PAL_OK);
    free(line);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_of_a_text_in_blocks_hold_the_ids_of_the_whole),
        cmocka_unit_test(shards_do_not_depend_on_threads),
        cmocka_unit_test(stopped_work_goes_on_behind_finished_shards),
        cmocka_unit_test(a_text_in_several_shards_is_one_document_to_hold_back_from),
        cmocka_unit_test(full_disk_leaves_whole_shards_only),
        cmocka_unit_test(tokenizing_survives_want_of_memory),
        cmocka_unit_test(bad_text_is_refused_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
