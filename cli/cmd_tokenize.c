/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/lock.h"
#include "base/map.h"
#include "cli.h"
#include "data/text.h"
#include "data/tokenize.h"
#include "progress.h"
#include "stop.h"
#include "text/strings.h"
#include "text/tokenizer.h"
#include "text_model.h"

typedef struct {
    const char *tokenizer, *encode, *encode_file, *decode, *decode_file, *out;
    int train_bpe;
    bool learn_chars, add_special, special_as_text, no_eos;
    const char *field;
    double valid;
    int64_t shard_tokens;
    cli_common common;
} tokenize_options;

static int print_ids(const pal_tokenizer *tok, const tokenize_options *o, const void *text, size_t size,
                     pal_error *err) {
    const pal_encode_options options = { .add_special = o->add_special, .special_as_text = o->special_as_text };
    pal_tokenizer_scratch *scratch;
    pal_ids ids = { 0 };
    if (pal_tokenizer_scratch_new(&scratch, tok, err)) return cli_fail(err);
    const pal_status st = pal_tokenizer_encode(tok, scratch, text, size, &options, &ids, err);
    if (!st) {
        for (size_t i = 0; i < ids.count; i++) printf(i ? " %u" : "%u", ids.data[i]);
        putchar('\n');
    }
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(scratch);
    return st ? cli_fail(err) : CLI_OK;
}

/* A file whole; '-' and pipes too. */
typedef struct {
    pal_map map;
    pal_bytes bytes;
    pal_slice text;
} whole_file;

static int open_whole(whole_file *f, const char *path) {
    struct stat info;
    pal_error err;
    *f = (whole_file){ 0 };
    if (strcmp(path, "-") != 0 && (stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) {
        if (pal_map_open(&f->map, path, &err)) return cli_fail(&err);
        f->text = (pal_slice){ f->map.data, f->map.size };
        return CLI_OK;
    }
    const int code = text_read(path, &f->bytes);
    f->text = (pal_slice){ f->bytes.data, f->bytes.size };
    return code;
}

static void close_whole(whole_file *f) {
    pal_bytes_free(&f->bytes);
    pal_map_close(&f->map);
}

static int encode_file(const pal_tokenizer *tok, const tokenize_options *o, pal_error *err) {
    whole_file file;
    int code = open_whole(&file, o->encode_file);
    if (!code) code = print_ids(tok, o, file.text.data, file.text.size, err);
    close_whole(&file);
    return code;
}

/* "1 2 3", separated by blanks or commas */
static int decode(const pal_tokenizer *tok, pal_slice list, const char *where, pal_error *err) {
    static const char between[] = " \t\r\n,";
    pal_decoder *decoder;
    pal_bytes text = { 0 };
    int code = CLI_OK;
    if (pal_decoder_new(&decoder, tok, false, err)) return cli_fail(err);
    for (size_t at = 0; code == CLI_OK;) {
        while (at < list.size && list.data[at] && strchr(between, list.data[at])) at++;
        if (at == list.size) break;
        const size_t start = at;
        uint64_t id = 0;
        for (; at < list.size && list.data[at] >= '0' && list.data[at] <= '9' && id <= UINT32_MAX; at++)
            id = 10 * id + (uint64_t)(list.data[at] - '0');
        const bool ended = at == list.size || (list.data[at] && strchr(between, list.data[at]));
        if (at == start || id > UINT32_MAX || !ended)
            code = cli_error(CLI_USAGE, "%s expects ids separated by blanks, found '%.*s'", where,
                             (int)(list.size - start < 20 ? list.size - start : 20), list.data + start);
        else if (pal_decoder_push(decoder, (uint32_t)id, &text, err)) code = cli_fail(err);
    }
    if (code == CLI_OK && pal_decoder_finish(decoder, &text, err)) code = cli_fail(err);
    if (code == CLI_OK && text.size) fwrite(text.data, 1, text.size, stdout);
    pal_bytes_free(&text);
    pal_decoder_free(decoder);
    return code;
}

static int decode_file(const pal_tokenizer *tok, const char *path, pal_error *err) {
    whole_file file;
    int code = open_whole(&file, path);
    if (!code) code = decode(tok, file.text, "--decode-file", err);
    close_whole(&file);
    return code;
}

/* What a vocabulary is learned from: plain files whole, of JSONL the documents. */
typedef struct {
    whole_file *files;
    int file_count;
    pal_slice *texts;
    size_t count, capacity;
} learn_from;

static int add_documents(learn_from *l, whole_file *file, const char *path, const char *field) {
    pal_documents *documents;
    pal_error err;
    pal_slice text;
    bool found;
    const size_t first = l->count;
    pal_status st = pal_documents_open(&documents, path, field, PAL_DOCUMENT_MAX, &err);
    if (st) return cli_fail(&err);
    while (!(st = pal_documents_next(documents, &text, &found, &err)) && found) {
        if ((st = pal_bytes_append(&file->bytes, text.data, text.size, &err))) break;
        if ((st = pal_grow((void **)&l->texts, &l->capacity, l->count, l->count + 1, sizeof *l->texts, &err))) break;
        l->texts[l->count++] = (pal_slice){ NULL, text.size };
    }
    pal_documents_close(documents);
    const unsigned char *at = file->bytes.data; /* which has moved while it grew */
    for (size_t i = first; i < l->count; at += l->texts[i++].size) l->texts[i].data = at;
    return st ? cli_fail(&err) : CLI_OK;
}

static int open_texts(learn_from *l, const tokenize_options *o, const char **files, int count) {
    pal_error err;
    int code = CLI_OK;
    if (pal_alloc_named((void **)&l->files, (size_t)count, sizeof *l->files, "a list of files", &err))
        return cli_fail(&err);
    for (int i = 0; i < count && !code; i++) {
        const char *field = pal_text_field(files[i], o->field);
        l->file_count = i + 1;
        if (field) {
            code = add_documents(l, &l->files[i], files[i], field);
            continue;
        }
        if ((code = open_whole(&l->files[i], files[i]))) break;
        if (pal_grow((void **)&l->texts, &l->capacity, l->count, l->count + 1, sizeof *l->texts, &err))
            return cli_fail(&err);
        l->texts[l->count++] = l->files[i].text;
    }
    return code;
}

/* A directory of something else, where a learned vocabulary (NULL: not yet) would be taken for its own. */
static int check_vocabulary_home(const char *out, const pal_tokenizer *learned) {
    const char *vocabulary = pal_tokenizer_file_in(out), *other = NULL;
    if (vocabulary && strcmp(vocabulary, "tokenizer.json") != 0) other = vocabulary;
    if (pal_directory_has(out, "tokenize.json")) other = "tokenize.json";
    if (pal_directory_has(out, "shards.json")) other = "shards.json";
    pal_tokenizer *there;
    pal_error err;
    if (other)
        return cli_error(CLI_USAGE, "%s holds %s, which another vocabulary does not fit; choose another directory", out,
                         other);
    if (!learned || !vocabulary) return CLI_OK;
    const bool same = pal_tokenizer_open_path(&there, out, &err) == PAL_OK &&
                      pal_tokenizer_fingerprint(there) == pal_tokenizer_fingerprint(learned);
    pal_tokenizer_close(there);
    return same ? CLI_OK
                : cli_error(CLI_USAGE, "%s holds another tokenizer.json, which would be lost; choose another directory",
                            out);
}

static int learn(const tokenize_options *o, const char **files, int count, pal_error *err) {
    pal_tokenizer *tok = NULL;
    learn_from from = { 0 };
    pal_status st = PAL_OK;
    int lock = -1;
    bool made = false;
    int code = check_vocabulary_home(o->out, NULL);
    if (!code) code = open_texts(&from, o, files, count);
    if (!code) code = cli_lock_new(o->out, &lock, &made);
    if (!code)
        st = o->learn_chars ? pal_tokenizer_learn_chars(&tok, from.texts, from.count, err)
                            : pal_tokenizer_train_bpe(&tok, from.texts, from.count, (size_t)o->train_bpe, err);
    if (st) code = cli_fail(err);
    if (!code) code = check_vocabulary_home(o->out, tok);
    if (!code && pal_tokenizer_save(tok, o->out, err)) code = cli_fail_writing(err);
    pal_unlock_directory(lock, o->out, code && made); /* a directory that nothing was learned for is not left over */
    if (!code) fprintf(stderr, "%s: %zu ids (%s)\n", o->out, pal_tokenizer_size(tok), pal_tokenizer_kind(tok));
    if (!code && !o->learn_chars && pal_tokenizer_size(tok) < (size_t)o->train_bpe)
        fprintf(stderr, "The text had no more pairs that occur twice: %zu ids instead of %d.\n",
                pal_tokenizer_size(tok), o->train_bpe);
    pal_tokenizer_close(tok);
    for (int i = 0; i < from.file_count; i++) close_whole(&from.files[i]);
    pal_free(from.files);
    pal_free(from.texts);
    return code;
}

typedef struct {
    live_line line;
    double started;
    const pal_tokenize_progress *now;
} shards_view;

static bool show_shards(void *user, size_t done, size_t total) {
    shards_view *v = user;
    const pal_tokenize_progress *p = v->now;
    (void)done, (void)total;
    const double seconds = pal_seconds() - v->started, rate = (double)(p->bytes - p->resumed) / seconds;
    if (!live_due(&v->line)) return !cli_stopping();
    char left[32], share[32] = "";
    progress_duration(left, p->total ? (double)(p->total - p->bytes) / rate : NAN);
    if (p->total) snprintf(share, sizeof share, " of %.1f", (double)p->total / 1e6);
    live_show(&v->line, "%.1f%s MB%s%s%s  %.1f MB/s  %.2f M tokens  %zu shard%s", (double)p->bytes / 1e6, share,
              p->total ? "  " : "", p->total ? left : "", p->total ? " left" : "", rate / 1e6, (double)p->tokens / 1e6,
              p->shards, p->shards == 1 ? "" : "s");
    return !cli_stopping();
}

/* Why the work ended before its end, and what of it is there to continue from. */
static int tell_end(pal_status st, const pal_tokenize_result *r, const pal_error *err) {
    const size_t shards = r->done.shards;
    const int code = st == PAL_E_IO && r->began ? CLI_FAILED : cli_code_of(st);
    char kept[96] = "";
    if (shards && (code != CLI_USAGE || st == PAL_E_IO))
        snprintf(kept, sizeof kept, "; %zu finished shard%s kept, and the same command continues after %s", shards,
                 shards == 1 ? " is" : "s are", shards == 1 ? "it" : "them");
    else if (st == PAL_STOPPED) snprintf(kept, sizeof kept, "; nothing was finished yet");
    return cli_error(code, "%s%s", err->text, kept);
}

static int write_shards(const tokenize_options *o, const char **files, int count) {
    pal_context *cx;
    pal_error err;
    pal_tokenize_result r;
    if (o->shard_tokens < 0)
        return cli_error(CLI_USAGE, "--shard-tokens is %lld, expected a number above 0", (long long)o->shard_tokens);
    if (pal_context_new(&cx, o->common.threads, o->common.cpu, &err)) return cli_fail(&err);
    int lock;
    bool made;
    int code = cli_lock_new(o->out, &lock, &made);
    if (code) {
        pal_context_free(cx);
        return code;
    }
    shards_view view = { .line = live_begin(stderr), .started = pal_seconds(), .now = &r.done };
    cli_stop_on_signals(true);
    const pal_tokenize_job job = { .files = files,
                                   .count = (size_t)count,
                                   .field = o->field,
                                   .out = o->out,
                                   .tokenizer = o->tokenizer,
                                   .no_eos = o->no_eos,
                                   .valid = o->valid,
                                   .shard_tokens = (uint64_t)o->shard_tokens,
                                   .cx = cx,
                                   .progress = show_shards,
                                   .user = &view };
    const pal_status st = pal_tokenize(&job, &r, &err);
    const double seconds = pal_seconds() - view.started;
    live_clear(&view.line);
    if (!st && r.kept)
        fprintf(stderr, "%zu finished shard%s of an earlier run %s kept\n", r.kept, r.kept == 1 ? "" : "s",
                r.kept == 1 ? "was" : "were");
    if (st) code = tell_end(st, &r, &err);
    else if (r.complete_before) fprintf(stderr, "%s is complete; nothing to do\n", o->out);
    else
        fprintf(stderr, "%s: %llu tokens, %llu document%s, %zu shard%s; %.1f MB in %.1f s (%.1f MB/s)\n", o->out,
                (unsigned long long)r.done.tokens, (unsigned long long)r.done.documents,
                r.done.documents == 1 ? "" : "s", r.done.shards, r.done.shards == 1 ? "" : "s",
                (double)r.done.bytes / 1e6, seconds, (double)(r.done.bytes - r.done.resumed) / seconds / 1e6);
    pal_unlock_directory(lock, o->out, made);
    pal_context_free(cx);
    return code;
}

int cmd_tokenize(int argc, char **argv) {
    enum { MAX_FILES = 4096 };
    tokenize_options o = { .train_bpe = INT_MIN };
    pal_error err;
    pal_tokenizer *tok;
    static const char *files[MAX_FILES];
    int count;
    const cli_option options[] = {
        { "tokenizer", OPT_TEXT, &o.tokenizer, "X",
          "tokenizer.json, tokenizer.model, vocab.json, a GGUF file, a directory, 'bytes', or for "
          "shards 'chars'" },
        { "encode", OPT_TEXT, &o.encode, "TEXT", "print the ids of TEXT on one line" },
        { "encode-file", OPT_TEXT, &o.encode_file, "FILE",
          "print the ids of a whole file ('-': standard input) on one line" },
        { "decode", OPT_TEXT, &o.decode, "IDS", "print the text of IDS, byte for byte, without a newline" },
        { "decode-file", OPT_TEXT, &o.decode_file, "FILE",
          "print the text of the ids in a file ('-': standard input)" },
        { "add-special", OPT_FLAG, &o.add_special, NULL, "encode: add the tokenizer's own tokens (BOS, EOS)" },
        { "special-as-text", OPT_FLAG, &o.special_as_text, NULL,
          "encode: treat '<|endoftext|>' in the text as ordinary text" },
        { "train-bpe", OPT_INT, &o.train_bpe, "N", "learn a byte-level BPE vocabulary of N ids from the files" },
        { "learn-chars", OPT_FLAG, &o.learn_chars, NULL, "learn a vocabulary of the characters in the files" },
        { "out", OPT_TEXT, &o.out, "DIR", "directory for the shards, or for the learned vocabulary (tokenizer.json)" },
        { "field", OPT_TEXT, &o.field, "NAME",
          "the files are JSONL with the text in this field (default: 'text' for *.jsonl)" },
        { "valid", OPT_FLOAT, &o.valid, "F",
          "shards: hold back this fraction for validation: the last documents, or the end of the "
          "only one" },
        { "no-eos", OPT_FLAG, &o.no_eos, NULL, "shards: do not end documents with the tokenizer's end-of-text token" },
        { "shard-tokens", OPT_LONG, &o.shard_tokens, "N", "shards: tokens per shard (default 67108864)" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = {
        .synopsis = "tokenize [options] [FILE...]",
        .about =

            "Turns text into token ids and back, learns a vocabulary, or makes shards.\n\n"
            "Ids are exactly those of the program that the tokenizer comes from. For shards ('-': "
            "standard input), a plain file is one document, and so is each line of a JSONL file; each "
            "document ends with the tokenizer's end-of-text token if it has one. After an "
            "interruption the same command continues after the last finished shard.",
        .examples = "  palimpsa tokenize --tokenizer gpt-neox/tokenizer.json --encode 'Hello world'\n"
                    "  palimpsa tokenize --tokenizer llama2/tokenizer.model --decode '15043 3186'\n"
                    "  palimpsa tokenize --train-bpe 4096 --out vocabulary book.txt\n"
                    "  palimpsa tokenize book.txt --tokenizer vocabulary --valid 0.05 --out shards\n"
                    "  zcat pages.jsonl.gz | palimpsa tokenize - --field text --tokenizer gpt-neox --out shards\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int code = cli_parse(&usage, argc, argv, files, MAX_FILES, &count);
    if (code) return code < 0 ? CLI_OK : code;

    const bool trains = o.train_bpe != INT_MIN, learns = trains || o.learn_chars;
    const bool shards = count && o.out && !learns && !o.encode && !o.encode_file && !o.decode && !o.decode_file;
    const int actions = !!o.encode + !!o.encode_file + !!o.decode + !!o.decode_file + trains + o.learn_chars + shards;
    if (actions == 0 && count && o.tokenizer)
        return cli_error(CLI_USAGE, "tokenize: shards of the files need --out DIR");
    if (actions != 1)
        return cli_error(CLI_USAGE, "tokenize needs exactly one of --encode, --encode-file, --decode, --decode-file, "
                                    "--train-bpe, --learn-chars, or FILE... with --out DIR");
    if (learns && !o.out)
        return cli_error(CLI_USAGE, "--%s needs --out DIR for the vocabulary",
                         o.learn_chars ? "learn-chars" : "train-bpe");
    if (learns && count == 0)
        return cli_error(CLI_USAGE, "--%s needs at least one FILE to learn from",
                         o.learn_chars ? "learn-chars" : "train-bpe");
    if (trains && o.train_bpe < 1)
        return cli_error(CLI_USAGE, "--train-bpe expects a number of ids, found %d", o.train_bpe);
    if (learns) return learn(&o, files, count, &err);
    if (count && !shards)
        return cli_error(CLI_USAGE, "tokenize: unexpected argument '%s'; see 'palimpsa tokenize --help'", files[0]);
    if (!o.tokenizer) return cli_error(CLI_USAGE, "tokenize needs --tokenizer");
    if (shards) return write_shards(&o, files, count);
    if (pal_tokenizer_open(&tok, o.tokenizer, &err)) return cli_fail(&err);
    if (o.encode) code = print_ids(tok, &o, o.encode, strlen(o.encode), &err);
    else if (o.encode_file) code = encode_file(tok, &o, &err);
    else if (o.decode_file) code = decode_file(tok, o.decode_file, &err);
    else code = decode(tok, (pal_slice){ (const unsigned char *)o.decode, strlen(o.decode) }, "--decode", &err);
    pal_tokenizer_close(tok);
    return code;
}
