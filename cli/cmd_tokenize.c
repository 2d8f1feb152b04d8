/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/map.h"
#include "bench.h"
#include "cli.h"
#include "data/tokenize.h"
#include "progress.h"
#include "text_model.h"

typedef struct {
    const char *tokenizer, *encode, *encode_file, *decode, *out;
    int train_bpe;
    bool learn_chars, add_special, special_as_text, no_eos;
    const char *field;
    double valid;
    int64_t shard_tokens;
    cli_common common;
} tokenize_options;

static int print_ids(const pal_tokenizer *tok, const tokenize_options *o, const void *text, size_t size, pal_error *err) {
    const pal_encode_options options = { .add_special = o->add_special, .special_as_text = o->special_as_text };
    pal_tokenizer_scratch *scratch;
    pal_ids ids = { 0 };
    pal_status st;
    if ((st = pal_tokenizer_scratch_new(&scratch, tok, err))) return cli_fail(err);
    if (!(st = pal_tokenizer_encode(tok, scratch, text, size, &options, &ids, err))) {
        for (size_t i = 0; i < ids.count; i++) printf(i ? " %u" : "%u", ids.data[i]);
        putchar('\n');
    }
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(scratch);
    return st ? cli_fail(err) : CLI_OK;
}

static int encode_file(const pal_tokenizer *tok, const tokenize_options *o, pal_error *err) {
    pal_map map = { 0 };
    pal_bytes text = { 0 };
    const bool standard = strcmp(o->encode_file, "-") == 0;
    int code = CLI_OK;
    if (standard) code = text_read("-", &text);
    else if (pal_map_open(&map, o->encode_file, err)) code = cli_fail(err);
    if (!code) code = print_ids(tok, o, standard ? text.data : map.data, standard ? text.size : map.size, err);
    pal_bytes_free(&text);
    pal_map_close(&map);
    return code;
}

/* "1 2 3", separated by blanks or commas */
static int decode(const pal_tokenizer *tok, const char *list, pal_error *err) {
    pal_decoder *decoder;
    pal_bytes text = { 0 };
    int code = CLI_OK;
    if (pal_decoder_new(&decoder, tok, false, err)) return cli_fail(err);
    for (const char *at = list; code == CLI_OK;) {
        char *end;
        at += strspn(at, " \t\r\n,");
        if (!*at) break;
        errno = 0;
        const unsigned long id = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || id > UINT32_MAX || (*end && !strchr(" \t\r\n,", *end)))
            code = cli_error(CLI_USAGE, "--decode expects ids separated by blanks, found '%.20s'", at);
        else if (pal_decoder_push(decoder, (uint32_t)id, &text, err)) code = cli_fail(err);
        at = end;
    }
    if (code == CLI_OK && pal_decoder_finish(decoder, &text, err)) code = cli_fail(err);
    if (code == CLI_OK && text.size) fwrite(text.data, 1, text.size, stdout);
    pal_bytes_free(&text);
    pal_decoder_free(decoder);
    return code;
}

static int learn(const tokenize_options *o, const char **files, int count, pal_error *err) {
    pal_tokenizer *tok = NULL;
    pal_map *maps = pal_alloc((size_t)count, sizeof *maps);
    pal_slice *texts = pal_alloc((size_t)count, sizeof *texts);
    pal_status st = PAL_OK;
    int code = CLI_OK;
    bool made = false; /* a directory that nothing was learned for is not left behind */
    if (!maps || !texts) st = pal_fail(err, PAL_E_MEMORY, "no memory for a list of %d files", count);
    for (int i = 0; i < count && !st; i++)
        if (!(st = pal_map_open(&maps[i], files[i], err))) texts[i] = (pal_slice){ maps[i].data, maps[i].size };
    if (!st) pal_make_parents(o->out);
    if (!st && !(made = mkdir(o->out, 0777) == 0) && errno != EEXIST) st = pal_fail(err, PAL_E_IO, "%s: cannot make this directory: %s", o->out, strerror(errno));
    if (!st) st = o->learn_chars ? pal_tokenizer_learn_chars(&tok, texts, (size_t)count, err) : pal_tokenizer_train_bpe(&tok, texts, (size_t)count, (size_t)o->train_bpe, err);
    if (!st) st = pal_tokenizer_save(tok, o->out, err);
    if (st && made) rmdir(o->out);
    if (st) code = cli_fail(err);
    else fprintf(stderr, "%s: %zu ids (%s)\n", o->out, pal_tokenizer_size(tok), pal_tokenizer_kind(tok));
    if (!st && !o->learn_chars && pal_tokenizer_size(tok) < (size_t)o->train_bpe)
        fprintf(stderr, "The text had no more pairs that occur twice: %zu ids instead of %d.\n", pal_tokenizer_size(tok), o->train_bpe);
    pal_tokenizer_close(tok);
    for (int i = 0; i < count && maps; i++) pal_map_close(&maps[i]);
    pal_free(maps);
    pal_free(texts);
    return code;
}

static volatile sig_atomic_t interrupted;
static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

typedef struct {
    bool terminal, open;
    double started, shown;
} shards_view;

static bool show_shards(void *user, const pal_tokenize_progress *p) {
    shards_view *v = user;
    const double clock = bench_now(), seconds = clock - v->started, rate = (double)(p->bytes - p->resumed) / seconds;
    if (clock - v->shown < (v->terminal ? 0.2 : 10)) return !interrupted;
    char left[32], share[32] = "";
    progress_duration(left, p->total ? (double)(p->total - p->bytes) / rate : NAN);
    if (p->total) snprintf(share, sizeof share, " of %.1f", (double)p->total / 1e6);
    fprintf(stderr, "%s%.1f%s MB  %.1f MB/s  %.2f M tokens  %zu shard%s%s%s%s", v->terminal ? "\r\033[K" : "", (double)p->bytes / 1e6, share, rate / 1e6,
            (double)p->tokens / 1e6, p->shards, p->shards == 1 ? "" : "s", p->total ? "  " : "", p->total ? left : "", p->total ? " left" : "");
    if (!v->terminal) fputc('\n', stderr);
    v->open = v->terminal;
    v->shown = clock;
    return !interrupted;
}

static int write_shards(const tokenize_options *o, const char **files, int count) {
    pal_context *cx;
    pal_error err;
    pal_tokenize_result r;
    if (o->shard_tokens < 0) return cli_error(CLI_USAGE, "--shard-tokens is %lld, expected a number above 0", (long long)o->shard_tokens);
    if (pal_context_new(&cx, o->common.threads, o->common.cpu, &err)) return cli_fail(&err);
    int lock = -1, code = CLI_OK;
    pal_make_parents(o->out);
    if (mkdir(o->out, 0777) == 0) rmdir(o->out); /* whether it can be made is known before the work; it is made with the first tokens */
    else if (errno != EEXIST) {
        pal_context_free(cx);
        return cli_error(CLI_FAILED, "%s: cannot make this directory: %s", o->out, strerror(errno));
    } else if ((code = cli_lock(o->out, false, &lock))) {
        pal_context_free(cx);
        return code;
    }
    shards_view view = { .terminal = isatty(STDERR_FILENO), .started = bench_now(), .shown = bench_now() };
    const struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    const pal_tokenize_job job = { .files = files, .count = (size_t)count, .field = o->field, .out = o->out, .tokenizer = o->tokenizer, .no_eos = o->no_eos,
                                   .valid = o->valid, .shard_tokens = (uint64_t)o->shard_tokens, .cx = cx, .progress = show_shards, .user = &view };
    const pal_status st = pal_tokenize(&job, &r, &err);
    const double seconds = bench_now() - view.started;
    if (view.open) fputs("\r\033[K", stderr);
    if (st) {
        char kept[96] = "";
        if (r.done.shards) snprintf(kept, sizeof kept, "; %zu finished shards are kept, and the same command goes on behind them", r.done.shards);
        code = cli_error((st == PAL_E_IO && r.began) || st == PAL_E_MEMORY ? CLI_FAILED : CLI_USAGE, "%s%s", err.text, kept);
    } else if (r.complete_before) {
        fprintf(stderr, "%s is complete; nothing to do\n", o->out);
    } else {
        if (r.kept) fprintf(stderr, "%zu finished shards of an earlier run were kept\n", r.kept);
        if (r.stopped) code = cli_error(CLI_FAILED, "stopped; %zu finished shards are kept, and the same command goes on behind them", r.done.shards);
        else
            fprintf(stderr, "%s: %llu tokens, %llu document%s, %zu shard%s; %.1f MB in %.1f s (%.1f MB/s)\n", o->out, (unsigned long long)r.done.tokens,
                    (unsigned long long)r.done.documents, r.done.documents == 1 ? "" : "s", r.done.shards, r.done.shards == 1 ? "" : "s", (double)r.done.bytes / 1e6,
                    seconds, (double)(r.done.bytes - r.done.resumed) / seconds / 1e6);
    }
    if (lock >= 0) close(lock);
    pal_context_free(cx);
    return code;
}

int cmd_tokenize(int argc, char **argv) {
    enum { MAX_FILES = 4096 };
    tokenize_options o = { 0 };
    pal_error err;
    pal_tokenizer *tok;
    static const char *files[MAX_FILES];
    int count;
    const cli_option options[] = {
        { "tokenizer", OPT_TEXT, &o.tokenizer, "X", "tokenizer.json, tokenizer.model, vocab.json, a GGUF file, a directory, 'bytes', or for shards 'chars'" },
        { "encode", OPT_TEXT, &o.encode, "TEXT", "print the ids of TEXT on one line" },
        { "encode-file", OPT_TEXT, &o.encode_file, "FILE", "print the ids of a whole file ('-': standard input) on one line" },
        { "decode", OPT_TEXT, &o.decode, "IDS", "print the text of IDS, byte for byte and without a newline" },
        { "add-special", OPT_FLAG, &o.add_special, NULL, "encode: put the tokenizer's own tokens (BOS, EOS) around the text" },
        { "special-as-text", OPT_FLAG, &o.special_as_text, NULL, "encode: '<|endoftext|>' in the text is ordinary text" },
        { "train-bpe", OPT_INT, &o.train_bpe, "N", "learn a byte-level BPE vocabulary of N ids from the files" },
        { "learn-chars", OPT_FLAG, &o.learn_chars, NULL, "learn a vocabulary of the characters in the files" },
        { "out", OPT_TEXT, &o.out, "DIR", "where shards of the files' tokens go, or a learned vocabulary (tokenizer.json)" },
        { "field", OPT_TEXT, &o.field, "NAME", "shards: the files are JSONL, the text is in this field (default: 'text' of *.jsonl)" },
        { "valid", OPT_FLOAT, &o.valid, "F", "shards: hold back this fraction at the end, of the documents or of the only one" },
        { "no-eos", OPT_FLAG, &o.no_eos, NULL, "shards: do not end documents with the tokenizer's end-of-text token" },
        { "shard-tokens", OPT_LONG, &o.shard_tokens, "N", "shards: tokens in each (default 67108864)" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = { .synopsis = "tokenize [options] [FILE...]",
                              .about = "Turns text into the ids of a tokenizer and back, exactly as the programs that the tokenizer comes from,\n"
                                       "learns a small vocabulary from text, or writes files ('-': standard input) as shards for training: a plain\n"
                                       "file is one document, a line of JSONL is one, and each ends with the tokenizer's end-of-text token if it has\n"
                                       "one. Killed at any moment, the same command goes on behind the last finished shard.",
                              .examples = "  palimpsa tokenize --tokenizer gpt-neox/tokenizer.json --encode 'Hello world'\n"
                                          "  palimpsa tokenize --tokenizer llama2/tokenizer.model --decode '15043 3186'\n"
                                          "  palimpsa tokenize --train-bpe 4096 --out vocabulary book.txt\n"
                                          "  palimpsa tokenize book.txt --tokenizer vocabulary --valid 0.05 --out shards\n"
                                          "  zcat pages.jsonl.gz | palimpsa tokenize - --field text --tokenizer gpt-neox --out shards\n",
                              .options = options,
                              .option_count = PAL_COUNT(options) };
    int code = cli_parse(&usage, argc, argv, files, MAX_FILES, &count);
    if (code) return code < 0 ? CLI_OK : code;

    const bool learns = o.train_bpe || o.learn_chars;
    const bool shards = count && o.out && !learns && !o.encode && !o.encode_file && !o.decode;
    const int actions = !!o.encode + !!o.encode_file + !!o.decode + !!o.train_bpe + o.learn_chars + shards;
    if (actions == 0 && count && o.tokenizer) return cli_error(CLI_USAGE, "tokenize: shards of the files need --out DIR");
    if (actions != 1) return cli_error(CLI_USAGE, "tokenize needs exactly one of --encode, --encode-file, --decode, --train-bpe, --learn-chars, or FILE... with --out DIR");
    if (learns && !o.out) return cli_error(CLI_USAGE, "--%s needs --out DIR for the vocabulary", o.learn_chars ? "learn-chars" : "train-bpe");
    if (learns && count == 0) return cli_error(CLI_USAGE, "--%s needs at least one FILE to learn from", o.learn_chars ? "learn-chars" : "train-bpe");
    if (o.train_bpe < 0) return cli_error(CLI_USAGE, "--train-bpe expects a number of ids, found %d", o.train_bpe);
    if (learns) return learn(&o, files, count, &err);
    if (count && !shards) return cli_error(CLI_USAGE, "tokenize: unexpected argument '%s'; see 'palimpsa tokenize --help'", files[0]);
    if (!o.tokenizer) return cli_error(CLI_USAGE, "tokenize needs --tokenizer");
    if (shards) return write_shards(&o, files, count);
    if (pal_tokenizer_open(&tok, o.tokenizer, &err)) return cli_fail(&err);
    if (o.encode) code = print_ids(tok, &o, o.encode, strlen(o.encode), &err);
    else code = o.encode_file ? encode_file(tok, &o, &err) : decode(tok, o.decode, &err);
    pal_tokenizer_close(tok);
    return code;
}
