/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/map.h"
#include "cli.h"

typedef struct {
    const char *tokenizer, *encode, *encode_file, *decode, *out;
    int train_bpe;
    bool learn_chars, add_special, special_as_text;
} tokenize_options;

static pal_status read_stream(FILE *f, pal_bytes *text, pal_error *err) {
    size_t room = 0;
    for (;;) {
        if (text->size == room) {
            room = room ? 2 * room : (size_t)1 << 16;
            unsigned char *larger = realloc(text->data, room);
            if (!larger) return pal_fail(err, PAL_E_MEMORY, "no memory for %zu bytes of standard input", room);
            text->data = larger;
        }
        const size_t got = fread(text->data + text->size, 1, room - text->size, f);
        if (got == 0) break;
        text->size += got;
    }
    return ferror(f) ? pal_fail(err, PAL_E_IO, "cannot read standard input: %s", strerror(errno)) : PAL_OK;
}

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
    const pal_status st = standard ? read_stream(stdin, &text, err) : pal_map_open(&map, o->encode_file, err);
    const int code = st ? cli_fail(err) : print_ids(tok, o, standard ? text.data : map.data, standard ? text.size : map.size, err);
    free(text.data);
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
    if (!maps || !texts) st = pal_fail(err, PAL_E_MEMORY, "no memory for a list of %d files", count);
    for (int i = 0; i < count && !st; i++)
        if (!(st = pal_map_open(&maps[i], files[i], err))) texts[i] = (pal_slice){ maps[i].data, maps[i].size };
    if (!st && mkdir(o->out, 0777) != 0 && errno != EEXIST) st = pal_fail(err, PAL_E_IO, "%s: cannot make this directory: %s", o->out, strerror(errno));
    if (!st) st = o->learn_chars ? pal_tokenizer_learn_chars(&tok, texts, (size_t)count, err) : pal_tokenizer_train_bpe(&tok, texts, (size_t)count, (size_t)o->train_bpe, err);
    if (!st) st = pal_tokenizer_save(tok, o->out, err);
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

int cmd_tokenize(int argc, char **argv) {
    enum { MAX_FILES = 4096 };
    tokenize_options o = { 0 };
    pal_error err;
    pal_tokenizer *tok;
    static const char *files[MAX_FILES];
    int count;
    const cli_option options[] = {
        { "tokenizer", OPT_TEXT, &o.tokenizer, "X", "tokenizer.json, tokenizer.model, vocab.json, a GGUF file, a directory, or 'bytes'" },
        { "encode", OPT_TEXT, &o.encode, "TEXT", "print the ids of TEXT on one line" },
        { "encode-file", OPT_TEXT, &o.encode_file, "FILE", "print the ids of a whole file ('-': standard input) on one line" },
        { "decode", OPT_TEXT, &o.decode, "IDS", "print the text of IDS, byte for byte and without a newline" },
        { "add-special", OPT_FLAG, &o.add_special, NULL, "encode: put the tokenizer's own tokens (BOS, EOS) around the text" },
        { "special-as-text", OPT_FLAG, &o.special_as_text, NULL, "encode: '<|endoftext|>' in the text is ordinary text" },
        { "train-bpe", OPT_INT, &o.train_bpe, "N", "learn a byte-level BPE vocabulary of N ids from the files" },
        { "learn-chars", OPT_FLAG, &o.learn_chars, NULL, "learn a vocabulary of the characters in the files" },
        { "out", OPT_TEXT, &o.out, "DIR", "where a learned vocabulary goes (tokenizer.json)" },
    };
    const cli_usage usage = { .synopsis = "tokenize [options] [FILE...]",
                              .about = "Turns text into the ids of a tokenizer and back, exactly as the programs that the tokenizer comes from,\n"
                                       "or learns a small vocabulary from text. No special tokens are added unless asked for.",
                              .examples = "  palimpsa tokenize --tokenizer gpt-neox/tokenizer.json --encode 'Hello world'\n"
                                          "  palimpsa tokenize --tokenizer llama2/tokenizer.model --decode '15043 3186'\n"
                                          "  palimpsa tokenize --train-bpe 4096 --out vocabulary book.txt\n",
                              .options = options,
                              .option_count = PAL_COUNT(options) };
    int code = cli_parse(&usage, argc, argv, files, MAX_FILES, &count);
    if (code) return code < 0 ? CLI_OK : code;

    const bool learns = o.train_bpe || o.learn_chars;
    const int actions = !!o.encode + !!o.encode_file + !!o.decode + !!o.train_bpe + o.learn_chars;
    if (actions != 1) return cli_error(CLI_USAGE, "tokenize needs exactly one of --encode, --encode-file, --decode, --train-bpe and --learn-chars");
    if (learns && !o.out) return cli_error(CLI_USAGE, "--%s needs --out DIR for the vocabulary", o.learn_chars ? "learn-chars" : "train-bpe");
    if (learns && count == 0) return cli_error(CLI_USAGE, "--%s needs at least one FILE to learn from", o.learn_chars ? "learn-chars" : "train-bpe");
    if (o.train_bpe < 0) return cli_error(CLI_USAGE, "--train-bpe expects a number of ids, found %d", o.train_bpe);
    if (learns) return learn(&o, files, count, &err);
    if (count) return cli_error(CLI_USAGE, "tokenize: unexpected argument '%s'; see 'palimpsa tokenize --help'", files[0]);
    if (!o.tokenizer) return cli_error(CLI_USAGE, "tokenize needs --tokenizer");
    if (pal_tokenizer_open(&tok, o.tokenizer, &err)) return cli_fail(&err);
    if (o.encode) code = print_ids(tok, &o, o.encode, strlen(o.encode), &err);
    else code = o.encode_file ? encode_file(tok, &o, &err) : decode(tok, o.decode, &err);
    pal_tokenizer_close(tok);
    return code;
}
