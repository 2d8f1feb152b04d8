/* SPDX-License-Identifier: MIT */
/* What reads strangers' files and what keeps a user's work, while each allocation and each call to the disk fails, one
 * after the other: an error of the right kind, what was to be written is there whole or not at all, nothing leaks. */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/io.h"
#include "data/chars.h"
#include "data/text.h"
#include "faults/places.h"
#include "format/json.h"
#include "format/model_dir.h"
#include "format/options.h"
#include "model/state.h"
#include "support/models.h"
#include "support/shards.h"
#include "support/text.h"
#include "train/checkpoint.h"

static pal_context *cx;
static pal_model *model; /* for training */
static pal_optimiser *optimiser;
static pal_state *memory;

/* ---- what is done; `path` is what it reads or makes */

static const char text[] = "the singing <u> xy 12 hello\n  \xC3\xA9 \xFF<|endoftext|>";

static pal_status use_tokenizer(pal_tokenizer *tok, pal_error *err) {
    pal_tokenizer_scratch *s = NULL;
    pal_ids ids = { 0 };
    pal_bytes back = { 0 };
    pal_status st = pal_tokenizer_scratch_new(&s, tok, err);
    if (!st) st = pal_tokenizer_encode(tok, s, text, sizeof text - 1, NULL, &ids, err);
    if (st && s) (void)pal_tokenizer_encode(tok, s, text, sizeof text - 1, NULL, &ids, NULL); /* it may be used again */
    if (!st) st = pal_tokenizer_decode(tok, ids.data, ids.count, false, &back, err);
    pal_ids_free(&ids);
    pal_bytes_free(&back);
    pal_tokenizer_scratch_free(s);
    return st;
}

static pal_status open_tokenizer(const char *path, pal_error *err) {
    pal_tokenizer *tok;
    pal_status st = pal_tokenizer_open(&tok, path, err);
    if (st) return st;
    st = use_tokenizer(tok, err);
    pal_tokenizer_close(tok);
    return st;
}

static pal_status learn_words(const char *path, pal_error *err) {
    static const char words[] = "abc abc ab abd ab abc it's abc";
    pal_tokenizer *tok;
    (void)path;
    const pal_status st = pal_tokenizer_train_bpe(&tok, &(pal_slice){ (const unsigned char *)words, strlen(words) }, 1,
                                                  262, err);
    if (!st) pal_tokenizer_close(tok);
    return st;
}

static pal_status learn_characters(const char *path, pal_error *err) {
    pal_tokenizer *tok;
    const pal_status st = pal_files_learn_chars(&tok, &path, 1, pal_text_field(path, NULL), 16, 1 << 20, err);
    if (!st) pal_tokenizer_close(tok);
    return st;
}

static pal_status read_documents(const char *path, pal_error *err) {
    pal_documents *d;
    pal_slice document;
    bool found = true;
    pal_status st = pal_documents_open(&d, path, pal_text_field(path, NULL), 1 << 20, err);
    if (st) return st;
    while (!st && found) st = pal_documents_next(d, &document, &found, err);
    pal_documents_close(d);
    return st;
}

static pal_status open_model(const char *path, pal_error *err) {
    pal_model *m;
    const pal_status st = pal_model_open(&m, path, PAL_FOR_INFERENCE, cx, err);
    if (!st) pal_model_close(m);
    return st;
}

static pal_status open_shards(const char *path, pal_error *err) {
    pal_shards *s;
    pal_status st = pal_shards_open(&s, path, err);
    if (st) return st;
    st = pal_shards_verify(s, err);
    pal_shards_close(s);
    return st;
}

static pal_status load_memory(const char *path, pal_error *err) {
    pal_state *s;
    pal_state_head head;
    pal_status st = pal_state_new(&s, model, 100, err);
    if (st) return st;
    if (!(st = pal_state_peek(&head, path, err))) st = pal_state_load(s, path, err);
    pal_state_free(s);
    return st;
}

static pal_status resume(const char *path, pal_error *err) {
    pal_model *m;
    json_t *trainer;
    int64_t step = 0;
    bool finished;
    pal_optimiser *o = NULL;
    pal_status st = pal_checkpoint_open(path, NULL, cx, &m, &trainer, &step, err);
    if (!st && !m) st = pal_fail(err, PAL_E_IO, "no checkpoint");
    if (!st) st = pal_optimiser_new(&o, m, &(pal_optimiser_options){ .beta1 = 0.9, .beta2 = 0.99 }, NULL, err);
    if (!st) st = pal_checkpoint_load_optimiser(path, step, o, m, err);
    if (!st) st = pal_checkpoint_finished(path, &finished, err);
    pal_optimiser_free(o);
    json_decref(trainer);
    pal_model_close(m);
    return st;
}

static pal_status read_options(const char *path, pal_error *err) {
    bool flag = false;
    int small = 0;
    const char *name = NULL;
    pal_option_list list = { 0 };
    const pal_option options[] = { { "flag", PAL_OPTION_FLAG, &flag },
                                   { "small-number", PAL_OPTION_INT, &small },
                                   { "name", PAL_OPTION_TEXT, &name },
                                   { "list", PAL_OPTION_LIST, &list } };
    json_t *kept = json_array(), *whole = NULL;
    pal_status st = kept ? pal_options_read(options, PAL_COUNT(options), path, kept, err)
                         : pal_fail(err, PAL_E_MEMORY, "out of memory");
    if (!st && (!flag || small != 7 || strcmp(name, "n") != 0 || list.count != 2)) fail_msg("other options");
    if (!st && !(whole = pal_json_whole(pal_options_json(options, PAL_COUNT(options)))))
        st = pal_fail(err, PAL_E_MEMORY, "out of memory");
    if (!st && json_object_size(whole) != 4) fail_msg("an option was lost");
    json_decref(whole);
    json_decref(kept);
    pal_json_forget();
    return st;
}

static pal_status save_model(const char *path, pal_error *err) { return pal_model_save(model, path, PAL_F32, err); }

static pal_status save_memory(const char *path, pal_error *err) {
    return pal_state_save_with(memory, "more", 4, path, err);
}

static pal_status save_tokenizer(const char *path, pal_error *err) {
    pal_tokenizer *tok;
    pal_status st = pal_tokenizer_open(&tok, in_folder("json"), err);
    if (st) return st;
    if (!(st = pal_make_directory(path, err))) st = pal_tokenizer_save(tok, path, err);
    pal_tokenizer_close(tok);
    return st;
}

static pal_status convert(const char *path, const char *dtype, pal_layout to, pal_error *err) {
    return pal_convert(in_folder("model"), path, &(pal_convert_options){ .to = to, .dtype = dtype }, NULL, err);
}
static pal_status convert_to_gguf(const char *path, pal_error *err) {
    return convert(path, "q8_0", PAL_LAYOUT_GGUF, err);
}
static pal_status convert_to_bf16(const char *path, pal_error *err) {
    return convert(path, "bf16", PAL_LAYOUT_PALIMPSA, err);
}

static pal_status write_shards(const char *path, pal_error *err) {
    const uint32_t ids[] = { 5, 6, 7, 8 };
    pal_tokenizer *tok;
    pal_shard_writer *w;
    pal_shard_sums sums;
    pal_status st = pal_tokenizer_open(&tok, "bytes", err);
    if (st) return st;
    if (!(st = pal_make_directory(path, err)))
        st = pal_shard_writer_new(&w, path, 0, pal_tokenizer_fingerprint(tok), 256, err);
    if (!st) {
        for (int d = 0; d < 3 && !st; d++)
            if (!(st = pal_shard_writer_tokens(w, ids, 4, err))) st = pal_shard_writer_end_document(w, 4, 1, err);
        if (st) pal_shard_writer_drop(w);
        else st = pal_shard_writer_finish(w, &sums, err);
    }
    if (!st)
        st = pal_shards_finish(
            path, &(pal_shards_summary){ .tokenizer = tok, .eos = -1, .count = 1, .shards = &sums, .valid = 0.4 }, err);
    pal_tokenizer_close(tok);
    return st;
}

enum { LONGEST = 5000 }; /* bytes of a path */

static pal_status save_notes(void *self, const char *folder, bool resumable, pal_error *err) {
    char path[LONGEST];
    (void)self;
    if (!resumable) return PAL_OK;
    json_t *notes = json_object();
    pal_json_set(notes, "n", json_integer(1));
    snprintf(path, sizeof path, "%s/notes.json", folder);
    const pal_status st = (notes = pal_json_whole(notes)) ? pal_json_write(path, notes, err)
                                                          : pal_fail(err, PAL_E_MEMORY, "out of memory for notes");
    json_decref(notes);
    return st;
}

/* The second of a run, of which the first is then dropped, and the best so far. */
static pal_status write_checkpoint(const char *path, pal_error *err) {
    const pal_checkpoint_more more = { NULL, save_notes };
    json_t *trainer = json_object();
    pal_json_set(trainer, "step", json_integer(2));
    pal_status st = (trainer = pal_json_whole(trainer)) ? PAL_OK
                                                        : pal_fail(err, PAL_E_MEMORY, "out of memory while starting");
    if (!st) st = pal_checkpoint_write(path, 2, model, optimiser, trainer, 1, more, &pal_comm_alone, err);
    if (!st) st = pal_checkpoint_write_best(path, model, PAL_BF16, more, err);
    if (!st) st = pal_checkpoint_write_best(path, model, PAL_F32, more, err);
    json_decref(trainer);
    return st;
}

/* ---- and how it fails */

typedef pal_status work_fn(const char *path, pal_error *err);

typedef struct {
    const char *name;
    work_fn *work;
    const char *path; /* in the folder, or the name of a tokenizer */
    work_fn *check;   /* of what was made: opens it; NULL: nothing is made */
    bool parts;       /* in a directory, file by file */
    const char *from; /* a copy of this is there before; NULL: nothing is */
} job;

static const job jobs[] = {
    { "read tokenizer.json", open_tokenizer, "json" },
    { "read an odd tokenizer.json", open_tokenizer, "odd" },
    { "read vocab.json", open_tokenizer, "gpt2" },
    { "read tokenizer.model", open_tokenizer, "spm" },
    { "read a unigram", open_tokenizer, "unigram" },
    { "read a vocabulary of GGUF", open_tokenizer, "bpe.gguf" },
    { "read pieces of GGUF", open_tokenizer, "spm.gguf" },
    { "bytes", open_tokenizer, "bytes" },
    { "learn words", learn_words, "" },
    { "learn characters", learn_characters, "plain.txt" },
    { "learn characters of lines", learn_characters, "lines.jsonl" },
    { "read documents", read_documents, "plain.txt" },
    { "read lines", read_documents, "lines.jsonl" },
    { "open a model", open_model, "model" },
    { "open torch", open_model, "torch" },
    { "open several torch files", open_model, "torch_sharded" },
    { "open several files", open_model, "hf_sharded" },
    { "open GGUF", open_model, "gguf/model.gguf" },
    { "open GGUF in blocks", open_model, "gguf_q8_0/model.gguf" },
    { "open a run", open_model, "run" },
    { "open shards", open_shards, "shards" },
    { "load a memory", load_memory, "memory" },
    { "resume", resume, "run" },
    { "read options", read_options, "options.json" },
    { "save a model", save_model, "made/model", open_model, true },
    { "save a memory", save_memory, "made/memory", load_memory },
    { "save a tokenizer", save_tokenizer, "made/tokenizer", open_tokenizer, true },
    { "convert to GGUF", convert_to_gguf, "made/model.gguf", open_model },
    { "convert to BF16", convert_to_bf16, "made/model", open_model },
    { "write shards", write_shards, "made/shards", open_shards, true },
    { "write checkpoints", write_checkpoint, "made/run", resume, false, "run" },
};

static const char *place(const job *j) { return strcmp(j->path, "bytes") ? in_folder(j->path) : j->path; }

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static void prepare(const job *j) {
    char command[3 * TEST_PATH];
    if (!j->check) return;
    nftw(in_folder("made"), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(in_folder("made"), 0777), 0);
    if (!j->from) return;
    snprintf(command, sizeof command, "cp -r '%s' '%s'", in_folder(j->from), place(j));
    assert_int_equal(system(command), 0);
}

static int strays(const char *path) {
    DIR *dir = opendir(path);
    int found = 0;
    if (!dir) return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char below[2 * TEST_PATH];
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        const char *end = strrchr(e->d_name, '.'); /* a file that is written has a random suffix */
        const bool random = end && strlen(end) == 9 && strspn(end + 1, "0123456789abcdef") == 8;
        found += e->d_name[0] == '.' || random;
        if (e->d_type == DT_DIR) found += strays(below);
    }
    closedir(dir);
    return found;
}

/* What was made is whole, or what was there before still is. */
static void is_sound(const job *j, const char *what, uint64_t k, bool done, bool tidy) {
    pal_error err = { 0 };
    pal_json_forget(); /* the error was reported */
    if (!j->check) return;
    if (tidy && strays(in_folder("made"))) fail_msg("%s, %s %d: a temporary is left", j->name, what, (int)k);
    const bool there = access(place(j), F_OK) == 0;
    if (done && !there) fail_msg("%s, %s %d: nothing was made", j->name, what, (int)k);
    if (there && (done || !j->parts) && j->check(place(j), &err))
        fail_msg("%s, %s %d: what is there does not open: %s", j->name, what, (int)k, err.text);
}

static void without_memory(void **state) {
    (void)state;
    pal_json_watch();
    for (const job *j = jobs; j < jobs + PAL_COUNT(jobs); j++) {
        int refused = 0;
        const allocating_place *places;
        prepare(j);
        OK(j->work(place(j), err)); /* what is allocated once and for all would shift the numbers of the others */
        prepare(j);
        const char *path = place(j);
        const uint64_t before = pal_alloc_count();
        places_watch(5);
        OK(j->work(path, err));
        places_watch(0);
        const size_t count = places_found(&places);
        is_sound(j, "allocation", 0, true, true);
        const uint64_t all = pal_alloc_count() - before;
        for (size_t i = 0; i < count; i++)
            for (int once = 0; once < 2; once++) {
                pal_error err = { 0 };
                const uint64_t k = places[i].number;
                prepare(j);
                path = place(j);
                if (once) pal_alloc_fail_once(k);
                else pal_alloc_fail_at(k);
                const pal_status st = j->work(path, &err);
                pal_alloc_fail_at(0);
                if (st && (st != PAL_E_MEMORY || !err.text[0]))
                    fail_msg("%s, allocation %d%s: status %d: %s", j->name, (int)k, once ? " alone" : "", (int)st,
                             err.text);
                refused += st != PAL_OK;
                is_sound(j, once ? "allocation alone" : "allocation", k, !st, true);
            }
        assert_true(refused > 0);
        print_message("%s: %d allocations, %d tries, %d refused\n", j->name, (int)all, 2 * (int)count, refused);
    }
    json_set_alloc_funcs(malloc, free);
}

static struct {
    uint64_t calls, at;
    int error; /* or PAL_IO_SHORT */
    bool all;  /* from the at-th on */
} disk;

static int watch(const pal_io_call *call) {
    disk.calls++;
    const bool frees = call->kind == PAL_IO_UNLINK || call->kind == PAL_IO_RMDIR; /* a full disk lets these pass */
    return disk.all ? disk.calls >= disk.at && !frees ? disk.error : 0 : disk.calls == disk.at ? disk.error : 0;
}

static void without_disk(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int error;
        bool all, passes;
    } faults[] = { { "full disk at call", ENOSPC, true, false },
                   { "broken disk at call", EIO, false, false },
                   { "interrupted call", EINTR, false, true },
                   { "half writes from call", PAL_IO_SHORT, true, true } };
    for (const job *j = jobs; j < jobs + PAL_COUNT(jobs); j++) {
        if (!j->check) continue;
        uint64_t k = 1;
        for (size_t f = 0; f < PAL_COUNT(faults); f++) {
            for (k = 1;; k++) {
                pal_error err = { 0 };
                prepare(j);
                disk.calls = 0, disk.at = k, disk.error = faults[f].error, disk.all = faults[f].all;
                pal_io_watch = watch;
                const pal_status st = j->work(place(j), &err);
                pal_io_watch = NULL;
                if (st && (st != PAL_E_IO || !strstr(err.text, strerror(faults[f].error)) || faults[f].passes))
                    fail_msg("%s, %s %d: status %d: %s", j->name, faults[f].name, (int)k, (int)st, err.text);
                is_sound(j, faults[f].name, k, !st, faults[f].error != EIO);
                if (disk.calls < k) break;
            }
            assert_true(k > 1); /* it was asked */
        }
        print_message("%s: %d calls\n", j->name, (int)k);
    }
}

/* A directory deep down, from which links of any length lead back to the test's folder. */
static void make_deep(char path[LONGEST]) {
    static const size_t DEEP = 3850;
    strcpy(path, test_folder());
    while (strlen(path) < DEEP) {
        char name[202] = "/";
        const size_t left = DEEP - strlen(path);
        memset(name + 1, 'x', left < 200 ? left : 200);
        strcat(path, name);
        assert_int_equal(mkdir(path, 0777), 0);
    }
}

/* Names that were short enough may be too long when a different one follows. */
static void with_long_paths(void **state) {
    (void)state;
    static char deep[LONGEST], path[2 * LONGEST];
    make_deep(deep);
    for (const job *j = jobs; j < jobs + PAL_COUNT(jobs); j++) {
        int refused = 0;
        if (!strchr(place(j), '/') || !*j->path) continue;
        for (size_t length = 4000; length < 4110; length += 3) {
            char link[256] = "";
            pal_error err = { 0 };
            prepare(j);
            memset(link, 'l', length - strlen(deep) - strlen(j->path) - 2);
            snprintf(path, sizeof path, "%s/%s", deep, link);
            if (strlen(path) < 4096 && symlink(test_folder(), path) && errno != EEXIST) fail_msg("%s", strerror(errno));
            strcat(strcat(path, "/"), j->path);
            const pal_status st = j->work(path, &err);
            if (st && (st == PAL_E_MEMORY || !err.text[0]))
                fail_msg("%s, a path of %zu bytes: status %d: %s", j->name, strlen(path), (int)st, err.text);
            refused += st != PAL_OK;
            is_sound(j, "a path of bytes", strlen(path), !st, true);
        }
        assert_true(refused > 0);
    }
}

/* ---- the files */

static void make_tokenizers(void) {
    static const char odd[] =
        "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true},{\"id\":10,\"content\":\"xy\","
        "\"normalized\":true,\"single_word\":true,\"lstrip\":true,\"rstrip\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"a\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"h\"},\"content\":\"ee\"},{\"type\":\"NFKC\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[xy]\"},\"behavior\":\"Isolated\"},{\"type\":\"Split\","
        "\"pattern\":{\"String\":\"n\"},\"behavior\":\"MergedWithPrevious\"},{\"type\":\"Metaspace\"}]},"
        "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"<s>\",9],\"cls\":[\"<s>\",9]},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
        "\"stop\":0}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"vocab\":{\"?\":0,\"a\":1,"
        "\"e\":2,\"\xE2\x96\x81\":3,\"t\":4,\"i\":5,\"n\":6,\"1\":7,\"ee\":8},\"merges\":[[\"e\",\"e\"]]}}";
    pal_bytes file = { 0 }, more = { 0 };
    static const char *const folders[] = { "json", "odd", "gpt2", "spm", "unigram" };
    for (size_t i = 0; i < PAL_COUNT(folders); i++) assert_int_equal(mkdir(in_folder(folders[i]), 0777), 0);
    test_tiny_json(&file, "{\"type\":\"NFC\"}");
    test_write_file(in_folder("json/tokenizer.json"), file.data, file.size);
    test_write_text(in_folder("json/tokenizer_config.json"), "{\"eos_token\":{\"content\":\"<|endoftext|>\"}}");
    test_write_text(in_folder("odd/tokenizer.json"), odd);
    file.size = 0;
    test_tiny_vocab(&file, &more);
    test_write_file(in_folder("gpt2/vocab.json"), file.data, file.size);
    test_write_file(in_folder("gpt2/merges.txt"), more.data, more.size);
    for (int unigram = 0; unigram < 2; unigram++) {
        file.size = 0;
        test_tiny_spm(&file, unigram);
        test_write_file(in_folder(unigram ? "unigram/tokenizer.model" : "spm/tokenizer.model"), file.data, file.size);
        file.size = 0;
        test_tiny_gguf(&file, unigram);
        test_write_file(in_folder(unigram ? "spm.gguf" : "bpe.gguf"), file.data, file.size);
    }
    pal_bytes_free(&file);
    pal_bytes_free(&more);
}

static int make_all(void **state) {
    static const char *const kinds[] = { "torch", "torch_sharded", "hf_sharded", "gguf", "gguf_q8_0" };
    const pal_preset_options options = { .task = "mqar", .vocab = 300, .hidden = 32, .heads = 2 };
    const int32_t ids[] = { 1, 2, 3 };
    pal_model_config config;
    pal_work *work;
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0); /* a disk takes its time to sync */
    if (test_folder_make(state)) return -1;
    cx = test_context(1, NULL);
    OK(pal_model_preset(&config, "palimpsa-d", &options, err));
    OK(pal_model_new(&model, &config, 1, PAL_FOR_TRAINING, cx, err));
    OK(pal_optimiser_new(&optimiser, model, &(pal_optimiser_options){ .beta1 = 0.9, .beta2 = 0.99 }, NULL, err));
    OK(pal_state_new(&memory, model, 100, err));
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = 3 }, err));
    OK(pal_model_prefill(model, work, memory, ids, 3, NULL, err));
    pal_work_free(work);
    make_tokenizers();
    for (size_t i = 0; i < PAL_COUNT(kinds); i++) {
        char command[3 * TEST_PATH];
        snprintf(command, sizeof command, "python3 '%s/../checkpoint_writers.py' %s '%s' %s", PAL_TEST_GOLDEN, kinds[i],
                 in_folder(kinds[i]), strchr(kinds[i], '8') ? "" : "tiny");
        assert_int_equal(system(command), 0);
    }
    test_write_text(in_folder("plain.txt"), "the river came\nand went");
    test_write_text(in_folder("lines.jsonl"), "{\"text\":\"the river\"}\n\n{\"text\":\"c\\u00e9\"}\n");
    test_write_text(in_folder("options.json"),
                    "{\"flag\":true,\"small_number\":7,\"name\":\"n\",\"list\":[\"a\",\"b\"]}");
    OK(save_model(in_folder("model"), err));
    OK(save_tokenizer(in_folder("model"), err));
    OK(save_memory(in_folder("memory"), err));
    OK(write_shards(in_folder("shards"), err));
    json_t *trainer = json_pack("{s:i}", "step", 1);
    OK(pal_checkpoint_write(in_folder("run"), 1, model, optimiser, trainer, 0, (pal_checkpoint_more){ 0 },
                            &pal_comm_alone, err));
    json_decref(trainer);
    return 0;
}

static int remove_made(void **state) {
    pal_state_free(memory);
    pal_optimiser_free(optimiser);
    pal_model_close(model);
    pal_context_free(cx);
    return test_folder_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory),
        cmocka_unit_test(without_disk),
        cmocka_unit_test(with_long_paths),
    };
    return cmocka_run_group_tests(tests, make_all, remove_made);
}
