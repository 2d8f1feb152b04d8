/* SPDX-License-Identifier: MIT */
#include "data/tokenize.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/io.h"
#include "base/log.h"
#include "base/parallel.h"
#include "data/chars.h"
#include "data/response.h"
#include "data/text.h"
#include "format/json.h"
#include "format/model_dir.h"
#include "text/cut.h"
#include "text/strings.h"
#include "text/tokenizer.h"

/* A wave of blocks is read, encoded in parallel, and written. Sizes are fixed: where a text is cut must not depend on
 * threads. */
enum { BLOCK = 256 << 10, WAVE = 64, WAVE_BYTES = WAVE * BLOCK, LARGE = 1 << 20 };
static const uint64_t SHARD_TOKENS = (uint64_t)64 << 20;

typedef struct {
    size_t end; /* in item.ids */
    uint64_t bytes, words;
    size_t response; /* of a pair: tokens before it */
} item_document;

typedef struct {
    size_t file;
    pal_text_block block;
    pal_ids ids;
    item_document *documents; /* JSONL; a plain text's document ends with the block that is its last */
    size_t document_count, document_capacity;
    uint64_t blanks; /* plain text: runs of white space that begin in it */
    pal_status st;
    pal_error err;
} item;

typedef struct {
    const pal_tokenize_job *job;
    pal_tokenizer *tok;
    pal_cut cut;
    int64_t eos; /* -1: documents are not ended */
    size_t most;
    pal_tokenizer_scratch **scratch; /* by thread */
    int threads;
    item *items;

    json_t *description; /* of the job: a directory belongs to one */
    pal_shard_sums *shards;
    size_t shard_count, shard_capacity;
    size_t file;          /* reading stands in this file, */
    pal_text_place place; /* here, when the last finished shard ended */
    pal_shard_writer *writer;
    uint64_t part_bytes, part_blanks, part_tokens; /* in this shard, of the document that is being written */
    bool continued;                                /* that document has tokens in the shard before */
    uint64_t total, before;                        /* bytes of all files, and of those before `file` */
    pal_tokenize_progress done;
    /* The directory: an earlier call of this job has begun it; everything in it is from this call; it is ready. */
    bool ours, made, begun;
} work;

static const char *name_of(const char *path) { return strcmp(path, "-") == 0 ? "standard input" : path; }

/* Encoding */

static pal_status add_document(item *it, uint64_t bytes, uint64_t words, size_t response, pal_error *err) {
    pal_status st = pal_grow((void **)&it->documents, &it->document_capacity, it->document_count,
                             it->document_count + 1, sizeof *it->documents, err);
    if (!st) it->documents[it->document_count++] = (item_document){ it->ids.count, bytes, words, response };
    return st;
}

static pal_status encode_lines(const work *w, item *it, pal_tokenizer_scratch *scratch, const char *field,
                               pal_error *err) {
    const char *path = w->job->files[it->file];
    const unsigned char *at = it->block.bytes.data, *end = at + it->block.bytes.size;
    uint64_t line = it->block.start.line;
    while (at < end) {
        const unsigned char *stop = memchr(at, '\n', (size_t)(end - at));
        void *owner;
        pal_slice text;
        const size_t size = (size_t)((stop ? stop : end) - at), before = it->ids.count;
        size_t response = 0;
        pal_status st = pal_text_parse(path, field, ++line, (pal_slice){ at, size }, &owner, &text, err);
        at += size + 1;
        if (st) return st;
        if (text.size) st = pal_tokenizer_encode(w->tok, scratch, text.data, text.size, NULL, &it->ids, err);
        if (!st && text.size && pal_text_field_pairs(field))
            st = pal_response_token(w->tok, scratch, text, pal_text_response(owner), it->ids.data + before,
                                    it->ids.count - before, &response, err);
        if (st) {
            const pal_error why = *err;
            st = pal_fail(err, why.status, "%s: line %" PRIu64 ": %s", name_of(path), line, why.text);
        }
        if (!st && text.size && w->eos >= 0) st = pal_ids_append(&it->ids, (uint32_t)w->eos, err);
        if (!st && it->ids.count > before) st = add_document(it, text.size, pal_text_words(text), response, err);
        pal_text_release(owner);
        if (st) return st;
    }
    return PAL_OK;
}

static pal_status encode_text(const work *w, item *it, pal_tokenizer_scratch *scratch, pal_error *err) {
    const pal_text_block *b = &it->block;
    pal_slice text = { b->bytes.data, b->bytes.size };
    bool blank = b->start.blank;
    it->blanks = pal_text_blanks(text, &blank);
    if (w->cut == PAL_CUT_BLANKS && b->start.inside) text.data++, text.size--;
    pal_status st = pal_tokenizer_encode(w->tok, scratch, text.data, text.size, NULL, &it->ids, err);
    if (st) {
        const pal_error why = *err;
        return pal_fail(err, why.status, "%s: in the text from byte %" PRIu64 " on: %s",
                        name_of(w->job->files[it->file]), b->start.offset, why.text);
    }
    return b->last && w->eos >= 0 ? pal_ids_append(&it->ids, (uint32_t)w->eos, err) : PAL_OK;
}

static void encode_item(void *arg, size_t index, int thread) {
    const work *w = arg;
    item *it = &w->items[index];
    const char *field = pal_text_field(w->job->files[it->file], w->job->field);
    it->ids.count = it->document_count = 0;
    it->st = field ? encode_lines(w, it, w->scratch[thread], field, &it->err)
                   : encode_text(w, it, w->scratch[thread], &it->err);
}

/* Where the work stands, on disk: DIR/tokenize.json */

static json_t *describe(const work *w) {
    const pal_tokenize_job *j = w->job;
    char hex[17];
    json_t *files = json_array();
    for (size_t i = 0; i < j->count; i++) {
        struct stat info;
        const bool known = strcmp(j->files[i], "-") != 0 && stat(j->files[i], &info) == 0;
        pal_json_append(files,
                        json_pack("{s:o, s:I, s:I}", "name", pal_json_text(j->files[i]), "bytes",
                                  known ? (json_int_t)info.st_size : 0, "modified",
                                  known ? (json_int_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec : 0));
    }
    snprintf(hex, sizeof hex, "%016" PRIx64, pal_tokenizer_fingerprint(w->tok));
    json_t *job = json_pack("{s:s, s:o, s:s?, s:b, s:I}", "tokenizer", hex, "files", files, "field", j->field, "eos",
                            w->eos >= 0, "shard_tokens", (json_int_t)j->shard_tokens);
    if (pal_text_field_pairs(j->field)) pal_json_set(job, "shards", json_integer(2)); /* their version */
    return job;
}

static pal_status save_place(const work *w, size_t file, const pal_text_place *place, pal_error *err) {
    char path[4096];
    json_t *shards = json_array();
    for (size_t i = 0; i < w->shard_count; i++) {
        const pal_shard_sums *s = &w->shards[i];
        pal_json_append(shards, json_pack("[I, I, I, I, I]", (json_int_t)s->documents, (json_int_t)s->tokens,
                                          (json_int_t)s->bytes, (json_int_t)s->words, (json_int_t)s->checksum));
    }
    json_t *root = json_pack("{s:O, s:f, s:I, s:{s:I, s:I, s:b, s:b}, s:b, s:I, s:o}", "job", w->description, "valid",
                             w->job->valid, "file", (json_int_t)file, "place", "offset", (json_int_t)place->offset,
                             "line", (json_int_t)place->line, "inside", place->inside, "blank", place->blank, "cut",
                             w->continued, "documents", (json_int_t)w->done.documents, "shards", shards);
    pal_status st = pal_path(path, sizeof path, err, "%s/%s", w->job->out, "tokenize.json");
    if (!st)
        st = root ? pal_json_write(path, root, err)
                  : pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", path);
    json_decref(root);
    return st;
}

static pal_status add_shard(work *w, const pal_shard_sums *sums, pal_error *err) {
    const pal_status st = pal_grow((void **)&w->shards, &w->shard_capacity, w->shard_count, w->shard_count + 1,
                                   sizeof *w->shards, err);
    if (!st) w->shards[w->shard_count++] = *sums;
    return st;
}

static bool is_stem(const char *name, size_t stem, const char *whole) {
    return strlen(whole) == stem && memcmp(name, whole, stem) == 0;
}

static bool is_shard(const char *name, size_t length) {
    return length == 11 && strspn(name, "0123456789") == 5 && memcmp(name + 5, ".shard", 6) == 0;
}

/* Whether a name is one of ours with the suffix of a temporary: a dot and eight hexadecimal digits. A directory that is
 * not yet ours has tokenize.json's alone. */
static bool is_temporary(const char *name, bool ours) {
    const size_t length = strlen(name), stem = length - 9;
    if (length < 10 || name[stem] != '.' || strspn(name + stem + 1, "0123456789abcdef") != 8) return false;
    if (is_stem(name, stem, "tokenize.json")) return true;
    if (!ours) return false;
    if (is_shard(name, stem) || is_stem(name, stem, "shards.json")) return true;
    size_t i = 0;
    while (pal_tokenizer_files[i] && !is_stem(name, stem, pal_tokenizer_files[i])) i++;
    return pal_tokenizer_files[i] != NULL;
}

/* Files that a killed process left: temporaries, and shards that are not yet in tokenize.json. */
static void tidy(const work *w) {
    DIR *dir = opendir(w->job->out);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const bool stray = w->ours && is_shard(e->d_name, strlen(e->d_name)) &&
                           strtoull(e->d_name, NULL, 10) >= w->shard_count;
        char path[4096];
        if ((stray || is_temporary(e->d_name, w->ours)) &&
            !pal_path(path, sizeof path, NULL, "%s/%s", w->job->out, e->d_name))
            pal_io_unlink(path);
    }
    if (dir) closedir(dir);
}

static bool has_shards(const char *directory) {
    bool found = false;
    DIR *dir = opendir(directory);
    for (struct dirent *e; dir && !found && (e = readdir(dir));) found = is_shard(e->d_name, strlen(e->d_name));
    if (dir) closedir(dir);
    return found;
}

/* Takes over what an earlier call of the same job has done; refuses a directory of another job. */
static pal_status load_place(work *w, bool *complete, pal_error *err) {
    char path[4096];
    json_t *root = NULL;
    pal_status st;
    *complete = false;
    const bool finished = pal_shards_exist(w->job->out);
    if ((st = pal_path(path, sizeof path, err, "%s/%s", w->job->out, "tokenize.json"))) return st;
    if (access(path, F_OK) != 0) {
        if (finished || has_shards(w->job->out))
            return pal_fail(err, PAL_E_ARGUMENT, "%s already holds shards; choose another directory", w->job->out);
        const char *other = pal_directory_has(w->job->out, "config.json") ? "config.json"
                                                                          : pal_tokenizer_file_in(w->job->out);
        if (!other) return PAL_OK;
        return pal_fail(err, PAL_E_ARGUMENT,
                        "%s holds %s, which shards would replace or belie; choose another directory", w->job->out,
                        other);
    }
    if ((st = pal_json_read(&root, path, err))) return st;
    w->ours = true;
    const json_t *shards = json_object_get(root, "shards"), *place = json_object_get(root, "place");
    /* Before the end another fraction may be asked for. */
    if (!json_equal(json_object_get(root, "job"), w->description) ||
        (finished && json_number_value(json_object_get(root, "valid")) != w->job->valid)) {
        st = pal_fail(err, PAL_E_ARGUMENT,
                      "%s holds shards of other files, another tokenizer or other options; choose another directory",
                      w->job->out);
    } else if (finished) {
        for (size_t i = 0; i < w->job->count && !st; i++)
            if (strcmp(w->job->files[i], "-") == 0)
                st = pal_fail(err, PAL_E_ARGUMENT,
                              "%s is complete, and holds what standard input was then; choose another directory",
                              w->job->out);
        *complete = true;
    } else {
        json_int_t file = 0, offset = 0, line = 0, documents = 0;
        int inside = 0, blank = 0, cut = 0;
        if (json_unpack(root, "{s:I, s:{s:I, s:I, s:b, s:b}, s:b, s:I}", "file", &file, "place", "offset", &offset,
                        "line", &line, "inside", &inside, "blank", &blank, "cut", &cut, "documents", &documents) != 0 ||
            !json_is_array(shards) || !place || file < 0 || (size_t)file > w->job->count || offset < 0 || line < 0 ||
            documents < 0)
            st = pal_fail(err, PAL_E_FORMAT, "%s: not what this program writes; remove the directory and start again",
                          path);
        w->file = (size_t)file;
        w->continued = cut != 0;
        w->done.documents = (uint64_t)documents;
        w->place = (pal_text_place){
            .offset = (uint64_t)offset, .line = (uint64_t)line, .inside = inside != 0, .blank = blank != 0
        };
        for (size_t i = 0; i < json_array_size(shards) && !st; i++) {
            json_int_t n[5];
            json_t *entry = json_array_get(shards, i);
            if (json_unpack(entry, "[I, I, I, I, I]", &n[0], &n[1], &n[2], &n[3], &n[4]) != 0 || n[0] < 0 || n[1] < 0 ||
                n[2] < 0 || n[3] < 0) /* n[4] is a checksum */
                st = pal_fail(err, PAL_E_FORMAT,
                              "%s: not what this program writes; remove the directory and start again", path);
            else
                st = add_shard(
                    w,
                    &(pal_shard_sums){ (uint64_t)n[0], (uint64_t)n[1], (uint64_t)n[2], (uint64_t)n[3], (uint64_t)n[4] },
                    err);
        }
    }
    json_decref(root);
    return st;
}

/* Writing */

static pal_status end_document(work *w, uint64_t bytes, uint64_t words, pal_error *err) {
    const bool continued = w->continued;
    w->continued = false;
    if (w->part_tokens == 0) return PAL_OK;
    w->part_tokens = 0;
    w->done.documents += !continued;
    return pal_shard_writer_end_document(w->writer, bytes, words, err);
}

static pal_status put_tokens(work *w, const uint32_t *ids, size_t count, pal_error *err) {
    w->part_tokens += count;
    w->done.tokens += count;
    return pal_shard_writer_tokens(w->writer, ids, count, err);
}

/* Ends the shard, and a document that it cuts; then what was done is recorded. */
static pal_status finish_shard(work *w, size_t file, const pal_text_place *place, pal_error *err) {
    pal_shard_sums sums;
    const bool cut = w->part_tokens > 0;
    pal_status st = end_document(w, w->part_bytes, w->part_blanks, err);
    w->part_bytes = w->part_blanks = 0;
    w->continued = cut;
    if (st) return st;
    pal_shard_writer *writer = w->writer;
    w->writer = NULL;
    if ((st = pal_shard_writer_finish(writer, &sums, err)) || (st = add_shard(w, &sums, err))) return st;
    w->done.shards = w->shard_count;
    return save_place(w, file, place, err);
}

/* The directory is made with the first tokens: a text that cannot be encoded at all leaves nothing. */
static pal_status begin_directory(work *w, pal_error *err) {
    w->made = pal_directory_is_empty(w->job->out);
    pal_status st = pal_make_directory(w->job->out, err);
    if (!st) tidy(w);
    if (!st) st = save_place(w, w->file, &w->place, err); /* first: it says whose the directory is */
    if (!st) st = pal_tokenizer_save(w->tok, w->job->out, err);
    w->begun = !st;
    return st;
}

static pal_status write_item(work *w, item *it, pal_error *err) {
    pal_status st = PAL_OK;
    if (it->st) {
        *err = it->err;
        return it->st;
    }
    if (!w->begun && it->ids.count && (st = begin_directory(w, err))) return st;
    if (!w->writer && it->ids.count) {
        if ((st = pal_shard_writer_new(&w->writer, w->job->out, w->shard_count, pal_tokenizer_fingerprint(w->tok),
                                       (uint32_t)pal_tokenizer_size(w->tok), err)))
            return st;
        if (w->continued) pal_shard_writer_continue(w->writer);
    }
    if (pal_text_field(w->job->files[it->file], w->job->field)) {
        for (size_t d = 0, begin = 0; d < it->document_count && !st; begin = it->documents[d++].end)
            if (!(st = put_tokens(w, it->ids.data + begin, it->documents[d].end - begin, err))) {
                if (pal_text_field_pairs(w->job->field))
                    pal_shard_writer_response(w->writer, it->documents[d].response);
                st = end_document(w, it->documents[d].bytes, it->documents[d].words, err);
            }
    } else {
        if (it->ids.count) st = put_tokens(w, it->ids.data, it->ids.count, err);
        w->part_bytes += it->block.bytes.size;
        w->part_blanks += it->blanks;
        if (!st && it->block.last) {
            st = end_document(w, w->part_bytes, w->part_blanks + 1, err);
            w->part_bytes = w->part_blanks = 0;
        }
    }
    if (st || !w->writer || pal_shard_writer_count(w->writer) < w->job->shard_tokens) return st;
    static const pal_text_place start = { 0 };
    return it->block.last ? finish_shard(w, it->file + 1, &start, err)
                          : finish_shard(w, it->file, &it->block.next, err);
}

static pal_text_unit unit_of(const work *w, const char *path) {
    if (pal_text_field(path, w->job->field)) return PAL_TEXT_LINES;
    return pal_text_unit_of(w->cut);
}

static uint64_t file_bytes(const char *path) {
    struct stat info;
    if (strcmp(path, "-") == 0)
        return fstat(STDIN_FILENO, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
    return stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

/* Reads, encodes and writes from where the last finished shard ended to the end. */
static pal_status run(work *w, pal_tokenize_progress *told, pal_error *err) {
    const pal_tokenize_job *j = w->job;
    pal_text *text = NULL;
    size_t file = w->file;
    pal_status st = PAL_OK;
    for (size_t i = 0; i < file; i++) w->before += file_bytes(j->files[i]);
    while (file < j->count && !st) {
        size_t count = 0, bytes = 0;
        while (file < j->count && count < WAVE && bytes < WAVE_BYTES) {
            bool found;
            item *it = &w->items[count];
            if (!text && (st = pal_text_open(&text, j->files[file], unit_of(w, j->files[file]),
                                             BLOCK < w->most ? BLOCK : w->most, w->most,
                                             file == w->file ? &w->place : NULL, err)))
                break;
            if ((st = pal_text_read(text, &it->block, &found, err))) break;
            if (found) {
                it->file = file;
                bytes += it->block.bytes.size;
                count++;
                w->done.bytes = w->before + it->block.next.offset;
                if (!it->block.last) continue;
            } else if (it->block.start.offset == 0 && j->count > 1)
                pal_warn("%s: there is no text in it; passed over", name_of(j->files[file]));
            w->before = w->done.bytes;
            file++;
            pal_text_close(text);
            text = NULL;
        }
        /* What was read before an error is whole, and is kept. */
        pal_error behind = st ? *err : (pal_error){ 0 };
        const pal_status failed = st;
        st = PAL_OK;
        pal_parallel_for(j->cx, count, encode_item, w);
        for (size_t i = 0; i < count && !st; i++) st = write_item(w, &w->items[i], err);
        for (size_t i = 0; i < count; i++) { /* one long line must not enlarge every block */
            if (w->items[i].block.bytes.capacity > LARGE) pal_bytes_free(&w->items[i].block.bytes);
            if (w->items[i].ids.capacity > LARGE) pal_ids_free(&w->items[i].ids);
        }
        if (!st && failed) *err = behind, st = failed;
        *told = w->done;
        if (!st && j->progress && !j->progress(j->user, (size_t)told->bytes, (size_t)told->total))
            st = pal_fail(err, PAL_STOPPED, "stopped");
    }
    pal_text_close(text);
    static const pal_text_place start = { 0 };
    if (!st && w->writer) st = finish_shard(w, j->count, &start, err);
    return st;
}

static pal_status prepare(work *w, pal_error *err) {
    const pal_tokenize_job *j = w->job;
    const size_t block = BLOCK < w->most ? BLOCK : w->most;
    pal_status st = strcmp(j->tokenizer, "chars") == 0
                        ? pal_files_learn_chars(&w->tok, j->files, j->count, j->field, block, w->most, err)
                        : pal_tokenizer_open(&w->tok, j->tokenizer, err);
    if (st) return st;
    w->cut = pal_tokenizer_cut(w->tok);
    w->eos = j->no_eos ? -1 : pal_tokenizer_eos(w->tok);
    w->threads = pal_context_threads(j->cx);
    if ((st = pal_alloc_named((void **)&w->scratch, (size_t)w->threads, sizeof *w->scratch, "tokenizing", err)))
        return st;
    for (int i = 0; i < w->threads; i++)
        if ((st = pal_tokenizer_scratch_new(&w->scratch[i], w->tok, err))) return st;
    if ((st = pal_alloc_named((void **)&w->items, WAVE, sizeof *w->items, "tokenizing", err))) return st;
    bool known = true;
    for (size_t i = 0; i < j->count; i++) {
        const uint64_t bytes = file_bytes(j->files[i]);
        w->done.total += bytes;
        if (!bytes) known = false;
    }
    if (!known) w->done.total = 0;
    return (w->description = describe(w)) ? PAL_OK
                                          : pal_fail(err, PAL_E_MEMORY, "out of memory while describing the work");
}

static void clear(work *w) {
    pal_shard_writer_drop(w->writer);
    for (size_t i = 0; w->items && i < WAVE; i++) {
        pal_bytes_free(&w->items[i].block.bytes);
        pal_ids_free(&w->items[i].ids);
        pal_free(w->items[i].documents);
    }
    pal_free(w->items);
    for (int i = 0; w->scratch && i < w->threads; i++) pal_tokenizer_scratch_free(w->scratch[i]);
    pal_free(w->scratch);
    pal_tokenizer_close(w->tok);
    pal_free(w->shards);
    json_decref(w->description);
}

pal_status pal_tokenize(const pal_tokenize_job *job, pal_tokenize_result *result, pal_error *err) {
    pal_tokenize_job j = *job;
    work w = { .job = &j, .eos = -1, .most = job->most ? job->most : PAL_DOCUMENT_MAX };
    bool complete = false;
    struct stat info;
    pal_status st;
    *result = (pal_tokenize_result){ 0 };
    if (!j.shard_tokens) j.shard_tokens = SHARD_TOKENS;
    if (j.count < 1) return pal_fail(err, PAL_E_ARGUMENT, "no files to tokenize");
    if (!(j.valid >= 0 && j.valid < 1))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a fraction of %g cannot be held back for validation: expected 0 to below 1", j.valid);
    json_t *field = j.field ? json_string(j.field) : json_null();
    if (!field) return pal_fail(err, PAL_E_ARGUMENT, "the name of a field of JSON must be UTF-8");
    json_decref(field);
    for (size_t i = 0, inputs = 0; i < j.count; i++) {
        if ((inputs += strcmp(j.files[i], "-") == 0) > 1)
            return pal_fail(err, PAL_E_ARGUMENT, "standard input can be read only once");
        if (strcmp(j.files[i], "-") == 0) continue;
        if (access(j.files[i], R_OK) != 0)
            return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", j.files[i], strerror(errno));
        if (stat(j.files[i], &info) == 0 && S_ISDIR(info.st_mode))
            return pal_fail(err, PAL_E_IO, "%s: a directory, expected a text", j.files[i]);
    }
    if ((st = prepare(&w, err))) goto done;
    if ((st = load_place(&w, &complete, err))) goto done;
    result->complete_before = complete;
    if (complete) goto done;
    result->kept = w.done.shards = w.shard_count;
    for (size_t i = 0; i < w.shard_count; i++) w.done.tokens += w.shards[i].tokens;
    w.done.resumed = w.place.offset;
    for (size_t i = 0; i < w.file && i < j.count; i++) w.done.resumed += file_bytes(j.files[i]);
    result->began = true;
    if ((st = run(&w, &result->done, err))) goto done;
    if (w.shard_count == 0) st = pal_fail(err, PAL_E_FORMAT, "%s: there is no text in it", name_of(j.files[0]));
    else if (!(st = save_place(&w, j.count, &(pal_text_place){ 0 },
                               err))) /* the fraction may be another than when its last shard was written */
        st = pal_shards_finish(
            j.out,
            &(pal_shards_summary){
                .tokenizer = w.tok, .eos = w.eos, .count = w.shard_count, .shards = w.shards, .valid = j.valid },
            err);
done:
    pal_shard_writer_drop(w.writer);
    w.writer = NULL;
    if (w.made && w.shard_count == 0 && st) pal_remove_directory(j.out); /* there is nothing to resume from */
    result->done = w.done;
    clear(&w);
    return st;
}
