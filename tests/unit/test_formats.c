/* SPDX-License-Identifier: MIT */
/* Checkpoints of others, written by tests/checkpoint_writers.py: what the readers make of them, whole and damaged. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/half.h"
#include "format/model_writer.h"
#include "format/pickle.h"
#include "model/model.h"
#include "support/files.h"
#include "support/models.h"
#include "support/support.h"

/* kind as the script names it; "_tiny" after it asks for its smallest model. */
static void make(const char *kind, const char *directory) {
    char command[1400];
    const char *tiny = strstr(kind, "_tiny");
    const int length = tiny ? (int)(tiny - kind) : (int)strlen(kind);
    snprintf(command, sizeof command, "python3 '%s/../checkpoint_writers.py' %.*s '%s' %s", PAL_TEST_GOLDEN, length,
             kind, directory, tiny ? "tiny" : "");
    if (system(command) != 0) fail_msg("the writer of '%s' failed", kind);
}

typedef struct {
    const char *kind, *file; /* file: the one that is damaged */
    bool gguf;
} subject;
static const subject subjects[] = {
    { "torch", "pytorch_model.bin", false }, { "torch_zip64", "pytorch_model.bin", false },
    { "gguf", "model.gguf", true },          { "gguf_q8_0", "model.gguf", true },
    { "hf", "model.safetensors", false },    { "official", "model.safetensors", false },
};

typedef struct {
    size_t count, floats;
    size_t *begin; /* of each tensor of the table in values */
    float *values;
} content;

/* Every tensor of a checkpoint, or the error. */
static pal_status read_content(content *out, const char *path, pal_error *err) {
    pal_model *m;
    *out = (content){ 0 };
    pal_status st = pal_model_open_unloaded(&m, path, PAL_FOR_INFERENCE, err);
    if (st) return st;
    out->count = m->table.count;
    out->begin = calloc(m->table.count + 1, sizeof *out->begin);
    out->values = malloc(m->table.parameters * sizeof *out->values);
    assert_true(out->begin && out->values);
    for (size_t i = 0; i < m->table.count && !st; i++) {
        const pal_tensor *t = pal_source_find(&m->source, m->table.entries[i].view.name);
        assert_non_null(t);
        out->begin[i] = out->floats;
        st = pal_source_read(&m->source, t, 0, t->count, out->values + out->floats, err);
        out->floats += t->count;
    }
    out->begin[out->count] = out->floats;
    pal_model_close(m);
    return st;
}

static void drop(content *c) {
    free(c->begin);
    free(c->values);
    *c = (content){ 0 };
}

/* How many values differ in bits, and the first and last of them. */
static size_t differences(const content *a, const content *b, size_t *first, size_t *last) {
    size_t n = 0;
    *first = *last = 0;
    if (a->count != b->count || a->floats != b->floats) return SIZE_MAX;
    for (size_t i = 0; i < a->floats; i++)
        if (pal_f32_bits(a->values[i]) != pal_f32_bits(b->values[i])) {
            if (!n++) *first = i;
            *last = i;
        }
    return n;
}

static void paths(const subject *s, const char *root, char file[600], char path[600]) {
    snprintf(file, 600, "%s/%s", root, s->file);
    snprintf(path, 600, "%s", s->gguf ? file : root);
}

static bool long_run(void) { return getenv("PALIMPSA_TEST_LONG") != NULL; }

static void a_file_cut_short_is_refused_or_reads_the_same(void **state) {
    (void)state;
    for (size_t k = 0; k < PAL_COUNT(subjects); k++) {
        char root[256], file[600], path[600];
        test_directory(root);
        const bool blocks = strstr(subjects[k].kind, "_q") != NULL; /* which need rows of 32 */
        char kind[40];
        snprintf(kind, sizeof kind, "%s%s", subjects[k].kind, blocks ? "" : "_tiny");
        make(kind, root);
        paths(&subjects[k], root, file, path);
        content whole, cut;
        OK(read_content(&whole, path, err));
        size_t size, first, last, refused = 0;
        free(test_read_file(file, &size));
        /* Every length of the heads and tails; in between, data follows data. */
        const size_t every = long_run() ? 1 : 13;
        for (size_t n = size; n-- > 0;) {
            if (n % every && n > 300 && size - n > 300) continue;
            assert_int_equal(truncate(file, (off_t)n), 0);
            pal_error why = { .text = "" };
            if (read_content(&cut, path, &why)) {
                refused++;
                if (!why.text[0]) fail_msg("%s of %zu bytes: refused without a word", subjects[k].kind, n);
            } else if (differences(&whole, &cut, &first, &last)) {
                fail_msg("%s of %zu bytes instead of %zu: other tensors", subjects[k].kind, n, size);
            }
            drop(&cut);
        }
        assert_true(refused > 0);
        drop(&whole);
        test_remove(root);
    }
}

/* Where the bytes of tensors lie in the file: [begin, end). */
static void data_range(const subject *s, const char *path, const char *file, size_t size, size_t *begin, size_t *end) {
    pal_source source;
    OK(pal_source_open(&source, path, err));
    *begin = size, *end = 0;
    if (s->gguf) { /* after the head, each padded to 32 */
        size_t all = 0;
        for (size_t i = 0; i < source.count; i++) {
            const bool q8 = strcmp(pal_source_stored(&source, &source.tensors[i]), "Q8_0") == 0;
            all += ((q8 ? source.tensors[i].count / 32 * 34 : 4 * source.tensors[i].count) + 31) & ~(size_t)31;
        }
        *begin = size - all, *end = size;
    } else {
        const unsigned char *first = NULL, *last = NULL;
        for (size_t i = 0; i < source.count; i++) {
            const unsigned char *at = source.tensors[i].data;
            if (!first || at < first) first = at;
            if (at + 4 * source.tensors[i].count > last) last = at + 4 * source.tensors[i].count;
        }
        assert_non_null(first);
        size_t bytes;
        unsigned char *whole = test_read_file(file, &bytes);
        const unsigned char *at = memmem(whole, bytes, first, 64);
        assert_non_null(at);
        *begin = (size_t)(at - whole);
        *end = *begin + (size_t)(last - first);
        free(whole);
    }
    pal_source_close(&source);
}

static void a_flipped_bit_is_refused_or_changes_one_value(void **state) {
    (void)state;
    const size_t flips = long_run() ? 10000 : 400;
    for (size_t k = 0; k < PAL_COUNT(subjects); k++) {
        const subject *s = &subjects[k];
        const bool torch = strncmp(s->kind, "torch", 5) == 0;
        char root[256], file[600], path[600];
        test_directory(root);
        make(s->kind, root);
        paths(s, root, file, path);
        content whole, flipped;
        OK(read_content(&whole, path, err));
        size_t size, begin, end, first, last, refused = 0, changed = 0;
        unsigned char *bytes = test_read_file(file, &size);
        data_range(s, path, file, size, &begin, &end);
        const int fd = open(file, O_WRONLY);
        assert_true(fd >= 0);
        pal_rng rng = pal_rng_at(7, k);
        for (size_t i = 0; i < flips; i++) {
            /* Half of them before the data or after it. */
            const size_t outside = begin + (size - end);
            size_t at = pal_rng_below(&rng, (uint32_t)(i % 2 ? size : outside));
            if (i % 2 == 0 && at >= begin) at = end + (at - begin);
            const unsigned char bit = (unsigned char)(1u << pal_rng_below(&rng, 8)), byte = bytes[at] ^ bit;
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
            const bool data = at >= begin && at < end;
            pal_error why = { .text = "" };
            if (read_content(&flipped, path, &why)) {
                refused++;
                if (!why.text[0]) fail_msg("%s: byte %zu, bit %02x: refused without a word", s->kind, at, bit);
            } else {
                const size_t n = differences(&whole, &flipped, &first, &last);
                changed += n > 0;
                if (n && (torch || !data))
                    fail_msg("%s: byte %zu of %zu, bit %02x: %zu values changed unnoticed", s->kind, at, size, bit, n);
                if (n > 1 && last - first >= 32)
                    fail_msg("%s: byte %zu of %zu, bit %02x: %zu values changed", s->kind, at, size, bit, n);
            }
            drop(&flipped);
            assert_int_equal(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
        }
        close(fd);
        assert_true(refused > 0);
        if (!torch) assert_true(changed > 0);
        content again;
        OK(read_content(&again, path, err));
        assert_int_equal(differences(&whole, &again, &first, &last), 0);
        drop(&again);
        drop(&whole);
        free(bytes);
        test_remove(root);
    }
}

static void memory_shortage_is_an_error_not_a_crash(void **state) {
    (void)state;
    for (size_t k = 0; k < PAL_COUNT(subjects); k++) {
        char root[256], file[600], path[600];
        test_directory(root);
        make(subjects[k].kind, root);
        paths(&subjects[k], root, file, path);
        bool opened = false;
        for (uint64_t n = 1; n < 200 && !opened; n++) {
            pal_model *m;
            pal_error why;
            pal_alloc_fail_at(n);
            opened = pal_model_open_unloaded(&m, path, PAL_FOR_INFERENCE, &why) == PAL_OK;
            pal_alloc_fail_at(0);
            if (opened) pal_model_close(m);
            else assert_int_equal(why.status, PAL_E_MEMORY);
        }
        assert_true(opened);
        test_remove(root);
    }
}

/* ---- the pickle reader alone */

static const char *const some_globals[] = { "collections OrderedDict", "torch._utils _rebuild_tensor_v2", NULL };

static pal_status read_pickle(const char *bytes, size_t size, pal_error *err) {
    pal_pickle p;
    const pal_status st = pal_pickle_read(&p, "test", bytes, size, some_globals, err);
    if (!st) pal_pickle_free(&p);
    return st;
}
static void a_pickle_runs_nothing_and_names_what_it_refuses(void **state) {
    (void)state;
    static const char empty[] = "\x80\x02}.", ordered[] = "\x80\x02"
                                                          "ccollections\nOrderedDict\n)R.";
    OK(read_pickle(empty, sizeof empty - 1, err));
    OK(read_pickle(ordered, sizeof ordered - 1, err));
    static const struct {
        const char *bytes;
        size_t size;
        pal_pickle_kind kind;
        int64_t value; /* of a number, or how many items */
    } good[] = {
#define GOOD(bytes, kind, value) { "\x80\x03" bytes ".", sizeof("\x80\x03" bytes ".") - 1, kind, value }
        GOOD("N", PAL_PICKLE_NONE, 0),
        GOOD("G\x40\x08\0\0\0\0\0\0", PAL_PICKLE_FLOAT, 3),
        GOOD("U\1a", PAL_PICKLE_TEXT, 1),
        GOOD("K\1K\2\x86", PAL_PICKLE_LIST, 2),
        GOOD("K\1K\2K\3\x87", PAL_PICKLE_LIST, 3),
        GOOD("](K\1K\2e", PAL_PICKLE_LIST, 2),
        GOOD("]K\1q\0aj\0\0\0\0a", PAL_PICKLE_LIST, 2),
        GOOD("\x8a\1\xff", PAL_PICKLE_INT, -1),
        GOOD("\x8a\2\1\1", PAL_PICKLE_INT, 257),
        GOOD("\x8a\0", PAL_PICKLE_INT, 0),
        GOOD("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff", PAL_PICKLE_INT, -1),
        GOOD("ccollections\nOrderedDict\n)\x81", PAL_PICKLE_DICT, 0),
    };
    for (size_t i = 0; i < PAL_COUNT(good); i++) {
        pal_pickle p;
        OK(pal_pickle_read(&p, "test", good[i].bytes, good[i].size, some_globals, err));
        const pal_pickle_node *root = &p.nodes[p.root];
        const int64_t value = root->kind == PAL_PICKLE_INT     ? root->value
                              : root->kind == PAL_PICKLE_FLOAT ? (int64_t)root->real
                              : root->kind == PAL_PICKLE_TEXT  ? (int64_t)root->size
                                                               : (int64_t)root->count;
        if (root->kind != good[i].kind || value != good[i].value)
            fail_msg("pickle %zu: kind %d, %lld", i, (int)root->kind, (long long)value);
        pal_pickle_free(&p);
    }
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } bad[] = {
#define BAD(bytes, says) { bytes, sizeof(bytes) - 1, says }
        BAD("\x80\x02"
            "cos\nsystem\nX\2\0\0\0ls\x85R.",
            "'os.system'"),
        BAD("\x80\x02"
            "cbuiltins\neval\nX\1\0\0\0"
            "1\x85R.",
            "'builtins.eval'"),
        BAD("\x80\x02"
            "ctorch._utils\n_rebuild_tensor\n)R.",
            "'torch._utils._rebuild_tensor'"),
        BAD("\x80\x02"
            "ccollections\nOrderedDict\x01\n)R.",
            "'collections.OrderedDict?'"),
        BAD("\x80\x04"
            "}.",
            "protocol 4"),
        BAD("\x80\x02"
            "i__main__\nx\n.",
            "instruction 0x69"),
        BAD("\x80\x02"
            "\x93.",
            "instruction 0x93"),
        BAD("", "cut short"),
        BAD("\x80\x02", "cut short"),
        BAD("\x80\x02}", "cut short"),
        BAD("\x80\x02.", "not there"),
        BAD("\x80\x02}}.", "more than one"),
        BAD("\x80\x02}.}", "follow its end"),
        BAD("\x80\x02h\x07.", "never made"),
        BAD("\x80\x02}r\xff\xff\xff\xff.", "out of order"),
        BAD("\x80\x02t.", "no mark"),
        BAD("\x80\x02)K\1a.", "more than one"),
        BAD("\x80\x02K\1K\1a.", "does not take"),
        BAD("\x80\x02}(K\1u.", "does not take"),
        BAD("\x80\x02K\1)R.", "not a function"),
        BAD("\x80\x02K\1}b.", "takes none"),
        BAD("\x80\x02X\xff\xff\xff\x7f"
            "a.",
            "cut short"),
        BAD("\x80\x02\x8a\x09"
            "123456789.",
            "64 bits"),
        BAD("\x80\x02"
            "cos",
            "does not end"),
        BAD("\x80\x02"
            "ccollections\nOrderedDict\nK\1\x85R.",
            "with arguments"),
        BAD("\x80\x02(.", "not there"),
        BAD("\x80\x02(Q.", "not there"),
        BAD("\x80\x02G123", "cut short"),
        BAD("\x80\x02"
            "ctorch._utils\n_rebuild_tensor_v2\n)\x81.",
            "an object of a kind"),
        BAD("\x80\x02"
            "ctorch._utils\n_rebuild_tensor_v2\nK\1R.",
            "not a function"),
        BAD("\x80\x02R.", "not there"),
        BAD("\x80\x02K\1b.", "not there"),
        BAD("\x80\x02(e.", "not there"),
        BAD("\x80\x02j\7\0\0\0.", "never made"),
        BAD("\x80\x02}(q\7.", "not there"),
        BAD("\x80\x02}}}}q\3h\1.", "never made"),
        BAD("\x80\x02h", "cut short"),
        BAD("\x80", "cut short"),
        BAD("\x80\x02\x8a", "cut short"),
        BAD("\x80\x02"
            "cmodule_of_more_than_fifty_characters_that_goes_on_and_on\n"
            "name_of_more_than_sixty_characters_that_goes_on_and_on_and_on_and_on\n)R.",
            "'module_of_more_than_fifty_characters_that_goes_on_.name_of_more_than_sixty"),
    };
    for (size_t i = 0; i < PAL_COUNT(bad); i++) {
        pal_error why = { .text = "" };
        if (i == 16) { /* a tuple takes items as a list does, but two values stay */
            OK(read_pickle(bad[i].bytes, bad[i].size, err));
            continue;
        }
        const pal_status st = read_pickle(bad[i].bytes, bad[i].size, &why);
        if (!st) fail_msg("pickle %zu is accepted", i);
        if (!strstr(why.text, bad[i].says)) fail_msg("pickle %zu: '%s' does not say '%s'", i, why.text, bad[i].says);
    }
}

static void a_pickle_beyond_all_measure_is_refused(void **state) {
    (void)state;
    pal_error why = { 0 };
    assert_int_equal(read_pickle("\x80\x02}.", (size_t)1 << 40, &why), PAL_E_FORMAT); /* its size alone is looked at */
    assert_non_null(strstr(why.text, "1099511627776 bytes"));
}

static void paths_that_are_no_models_are_named(void **state) {
    (void)state;
    char root[256], path[600], long_path[5000];
    pal_source source;
    pal_model_config config;
    pal_error why = { 0 };
    test_directory(root);
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_int_equal(pal_source_open(&source, long_path, &why), PAL_E_ARGUMENT);
    snprintf(path, sizeof path, "%s/none", root);
    assert_int_equal(pal_source_open(&source, path, &why), PAL_E_IO);
    assert_int_equal(pal_source_open(&source, root, &why), PAL_E_IO);
    assert_non_null(strstr(why.text, "neither model.safetensors"));
    assert_int_equal(pal_source_open(&source, "/dev/null", &why), PAL_E_IO);
    assert_non_null(strstr(why.text, "not a directory"));
    assert_int_equal(pal_model_read_config(&config, path, &why), PAL_E_IO);
    test_remove(root);
}

/* ---- number formats */

static void eight_bits_keep_values_and_come_back_the_same(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(3, 0);
    const pal_block_format *q8 = pal_block_format_of(PAL_Q8_0);
    for (int round = 0; round < 200; round++) {
        float x[32], y[32], z[32];
        unsigned char block[34], again[34];
        test_fill(x, 32, &rng, -2, 2);
        if (round == 0) memset(x, 0, sizeof x);
        q8->encode(x, block);
        q8->decode(block, y);
        float largest = 0;
        for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[i]));
        for (int i = 0; i < 32; i++) assert_true(fabsf(x[i] - y[i]) <= largest / 127 * 0.57f);
        q8->encode(y, again);
        q8->decode(again, z);
        test_same_bits("values of eight bits", z, y, 32);
    }
}

/* ---- the public interface */

static bool stop(void *user, size_t done, size_t total) {
    (void)done, (void)total;
    ++*(int *)user;
    return false;
}

enum { LENGTH = 19, TOKENS = 27, ROWS = 32 };

static void last_logits(const pal_model *model, const pal_context *cx, float out[ROWS]) {
    int32_t ids[LENGTH];
    test_ids(ids, LENGTH, TOKENS, 3);
    test_last_logits(model, cx, ids, LENGTH, out);
}

/* The target computes what the source does, and the official layout made of it holds the source's numbers. */
static void compare(const pal_model *a, const char *target, const char *back, bool gguf, const pal_context *cx) {
    pal_model *b;
    float x[ROWS], y[ROWS];
    OK(pal_model_open(&b, target, PAL_FOR_INFERENCE, cx, err));
    last_logits(a, cx, x);
    last_logits(b, cx, y);
    test_near(target, y, x, ROWS, 1e-5);
    assert_int_equal(pal_model_mixer(pal_model_config_of(b))->norm_groups,
                     pal_model_mixer(pal_model_config_of(a))->norm_groups);
    pal_model_close(b);
    OK(pal_convert(target, back, &(pal_convert_options){ .to = PAL_LAYOUT_OFFICIAL }, NULL, err));
    OK(pal_model_open(&b, back, PAL_FOR_INFERENCE, cx, err));
    for (size_t i = 0; i < pal_model_weight_count(a); i++) {
        const pal_weight *u = pal_model_weight(a, i);
        const pal_weight *v = pal_model_find_weight(
            b, strncmp(u->name, "backbone.embedding", 18) == 0 ? "backbone.embedding.weight" : u->name);
        assert_non_null(v);
        assert_int_equal(u->count, v->count);
        if (gguf && strstr(u->name, "A_log")) test_near(u->name, v->data, u->data, u->count, 1e-6);
        else test_same_bits(u->name, v->data, u->data, u->count);
    }
    assert_int_equal(pal_model_config_of(b)->vocab, pal_model_config_of(a)->vocab);
    assert_int_equal(pal_model_config_of(b)->vocab_rows, ROWS);
    pal_model_close(b);
}

static void any_layout_converts_into_any_other(void **state) {
    (void)state;
    static const char *const kinds[] = { "torch", "hf" /* with two groups */ };
    pal_context *cx = test_context(2, NULL);
    char root[256], source[300], target[300], back[300];
    pal_error why;
    test_directory(root);
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        pal_model *a;
        snprintf(source, sizeof source, "%s/%s", root, kinds[k]);
        make(kinds[k], source);
        OK(pal_model_open(&a, source, PAL_FOR_INFERENCE, cx, err));
        for (int to = 0; to < PAL_LAYOUTS; to++) {
            const pal_convert_options o = { .to = (pal_layout)to, .tokenizer = "none" };
            pal_converted report;
            snprintf(target, sizeof target, "%s/%s-%s", root, kinds[k], pal_layout_name(o.to));
            snprintf(back, sizeof back, "%s/%s-%s-back", root, kinds[k], pal_layout_name(o.to));
            OK(pal_convert(source, target, &o, &report, err));
            assert_int_equal(report.tensors, pal_model_weight_count(a) + (o.to == PAL_LAYOUT_OFFICIAL));
            assert_false(report.tokenizer);
            compare(a, target, back, o.to == PAL_LAYOUT_GGUF, cx);
            assert_int_equal(pal_convert(source, target, &o, NULL, &why), PAL_E_ARGUMENT); /* nothing is overwritten */
            /* Stopped by the caller: nothing is left. */
            int calls = 0;
            struct stat info;
            const pal_convert_options stopped = { .to = o.to, .tokenizer = "none", .progress = stop, .user = &calls };
            snprintf(target, sizeof target, "%s/stopped", root);
            assert_int_equal(pal_convert(source, target, &stopped, NULL, &why), PAL_STOPPED);
            assert_int_equal(calls, 1);
            assert_int_equal(stat(target, &info), -1);
        }
        pal_model_close(a);
    }
    assert_null(pal_layout_name(PAL_LAYOUTS));
    assert_int_equal(pal_convert(source, target, &(pal_convert_options){ .to = PAL_LAYOUTS }, NULL, &why),
                     PAL_E_ARGUMENT);
    test_remove(root);
    pal_context_free(cx);
}

static void a_writer_that_is_dropped_or_incomplete_leaves_nothing(void **state) {
    (void)state;
    char root[256], target[300];
    test_directory(root);
    snprintf(target, sizeof target, "%s/made", root);
    const pal_tensor t = { .name = "x", .dtype = PAL_BF16, .rank = 1, .shape = { 3 }, .count = 3 };
    const float x[3] = { 1, 2, 3 };
    pal_model_writer *w;
    struct stat info;
    json_t *config = json_object();
    pal_error why;
    OK(pal_model_writer_open(&w, target, &t, 1, err));
    OK(pal_model_writer_put_f32(w, 0, x, 2, err));
    assert_int_equal(pal_model_writer_put_f32(w, 0, x, 2, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_writer_commit(w, config, &why), PAL_E_ARGUMENT);
    assert_int_equal(stat(target, &info), -1);
    OK(pal_model_writer_open(&w, target, &t, 1, err));
    pal_model_writer_drop(w);
    assert_int_equal(rmdir(root), 0); /* nothing is in it */
    assert_int_equal(mkdir(root, 0777), 0);
    OK(pal_model_writer_open(&w, target, &t, 1, err));
    OK(pal_model_writer_put_f32(w, 0, x, 3, err));
    OK(pal_model_writer_commit(w, config, err));
    assert_int_equal(pal_model_writer_open(&w, target, &t, 1, &why), PAL_E_ARGUMENT);
    json_decref(config);
    test_remove(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_cut_short_is_refused_or_reads_the_same),
        cmocka_unit_test(a_flipped_bit_is_refused_or_changes_one_value),
        cmocka_unit_test(memory_shortage_is_an_error_not_a_crash),
        cmocka_unit_test(a_pickle_runs_nothing_and_names_what_it_refuses),
        cmocka_unit_test(a_pickle_beyond_all_measure_is_refused),
        cmocka_unit_test(paths_that_are_no_models_are_named),
        cmocka_unit_test(eight_bits_keep_values_and_come_back_the_same),
        cmocka_unit_test(any_layout_converts_into_any_other),
        cmocka_unit_test(a_writer_that_is_dropped_or_incomplete_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
