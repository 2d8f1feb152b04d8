/* SPDX-License-Identifier: MIT */
/* palimpsa needle: documents that teach retrieval over a long context, and rows that measure it. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/map.h"
#include "cli.h"
#include "data/needle.h"
#include "format/json.h"
#include "needle_ruler.h"

typedef struct {
    const char *tokenizer, *out;
    int tokens, needles, questions, count;
    bool brief;
    int64_t seed;
} needle_options;

/* Where a number is stated and where it is to be answered, in bytes of the document, for those who measure. */
static void add_question(json_t *row, const pal_needle *asked) {
    json_t *list = json_object_get(row, "questions");
    if (!list) pal_json_set(row, "questions", list = json_array());
    pal_json_append(list, json_pack("{s:s, s:i, s:I, s:I}", "key", asked->key, "number", asked->value, "told",
                                    (json_int_t)asked->depth, "answer", (json_int_t)asked->answer));
}

static int write_rows(const needle_options *o, pal_haystack *h, pal_writer *w) {
    const pal_needle_options options = { .tokens = o->tokens,
                                         .needles = o->needles,
                                         .questions = o->questions,
                                         .brief = o->brief,
                                         .seed = (uint64_t)o->seed };
    pal_bytes text = { 0 };
    pal_needle asked[PAL_NEEDLES];
    pal_error err;
    int code = CLI_OK;
    for (int i = 0; i < o->count && !code; i++) {
        text.size = 0;
        if (pal_needle_make(h, &options, (uint64_t)i, &text, asked, &err)) {
            code = cli_fail(&err);
            break;
        }
        json_t *row = json_pack("{s:s#}", "text", (const char *)text.data, (int)text.size);
        for (int q = 0; q < o->questions && row; q++) add_question(row, &asked[q]);
        if (!row) code = cli_error(CLI_USAGE, "the haystack is not UTF-8, which JSON needs");
        else if (!pal_json_print(row, JSON_COMPACT, w->stream))
            code = cli_error(CLI_FAILED, "%s: cannot write", o->out);
        json_decref(row);
    }
    pal_bytes_free(&text);
    return code;
}

/* path NULL: notes without a text around them. */
static int run(const needle_options *o, const char *path) {
    pal_tokenizer *tok = NULL;
    pal_haystack *h = NULL;
    pal_map map = { 0 };
    pal_writer w = { 0 };
    pal_error err;
    int code = CLI_OK;
    if (pal_tokenizer_open(&tok, o->tokenizer, &err) || (path && pal_map_open(&map, path, &err))) code = cli_fail(&err);
    else if (path && !map.size) code = cli_error(CLI_USAGE, "%s: a haystack needs text, found none", path);
    else if (pal_haystack_new(&h, (pal_slice){ map.data, map.size }, tok, &err))
        code = cli_error(CLI_USAGE, "%s: %s", path ? path : "needle", err.text);
    else if (pal_writer_open(&w, o->out, &err)) code = cli_fail_writing(&err);
    if (!code) code = write_rows(o, h, &w);
    if (!code && pal_writer_commit(&w, &err)) code = cli_fail_writing(&err);
    pal_writer_drop(&w);
    if (!code)
        printf("%s: %d documents of at most %d tokens, %d needle%s and %d question%s each\n", o->out, o->count,
               o->tokens, o->needles, o->needles == 1 ? "" : "s", o->questions, o->questions == 1 ? "" : "s");
    pal_haystack_free(h);
    pal_map_close(&map);
    pal_tokenizer_close(tok);
    return code;
}

int cmd_needle(int argc, char **argv) {
    needle_options o = { .tokens = 32768, .needles = 4, .questions = 1, .count = 100, .seed = -1 };
    needle_ruler_options r = { .lengths = "4096,8192,16384,32768" };
    const char *const measuring = "rows that measure (--ruler)";
    const cli_option options[] = {
        { "tokenizer", OPT_TEXT, &o.tokenizer, "X",
          "tokenizer that counts the tokens: file, directory, model directory or 'bytes'" },
        { "tokens", OPT_INT, &o.tokens, "N", "most tokens per document (default 32768)" },
        { "needles", OPT_INT, &o.needles, "N", "secret numbers hidden in each document (default 4)" },
        { "questions", OPT_INT, &o.questions, "N", "how many of them are asked for at the end (default 1)" },
        { "brief", OPT_FLAG, &o.brief, NULL,
          "short notes such as 'bafe 53', 64 names, two digits; small models learn them sooner; TEXT "
          "is optional" },
        { "count", OPT_INT, &o.count, "N", "documents, or rows of each task and length (default 100)" },
        { "seed", OPT_LONG, &o.seed, "N", "seed of places, words and numbers (default 1; with --ruler 42)" },
        { "out", OPT_TEXT, &o.out, "FILE.jsonl|DIR",
          "JSONL file, one document per line: 'text', and 'questions' with the places of the "
          "answers; with --ruler a directory" },
        { "ruler", OPT_TEXT, &r.tasks, "LIST",
          "make tasks of RULER instead: all, or names such as niah_single_1,vt,cwe", .group = measuring },
        { "lengths", OPT_TEXT, &r.lengths, "LIST",
          "tokens per row (default 4096,8192,16384,32768); 1k to 128k and more", .group = measuring },
        { "squad", OPT_TEXT, &r.squad, "FILE", "SQuAD 2.0 as published, for qa_1", .group = measuring },
        { "hotpot", OPT_TEXT, &r.hotpot, "FILE", "HotpotQA as published, for qa_2", .group = measuring },
        { "templates", OPT_TEXT, &r.templates, "FILE",
          "sentences to use instead of ours: a JSON object of texts (docs/how-to/evaluate.md)", .group = measuring },
        { "words", OPT_TEXT, &r.words, "DIR",
          "directory of nounlist.txt, adjectivelist.txt and verblist.txt: real words instead of "
          "syllables",
          .group = measuring },
        { "cuts", OPT_TEXT, &r.cuts, "FILE", "file with the byte ranges of the sentences of TEXT", .group = measuring },
    };
    const cli_usage usage = {
        .synopsis = "needle [TEXT] --tokenizer X --out FILE.jsonl|DIR [options]",
        .about =

            "Makes long documents that train or test retrieval.\n\n"
            "Parts of TEXT in which a few sentences state secret numbers, and at the end questions "
            "for some of them with their answers. Mixed with other long texts they extend a model's "
            "context (docs/tutorials/04-make-it-metaplastic.md).\n\n"
            "--ruler makes the thirteen tasks of RULER in RULER's own file format, to be measured by "
            "'palimpsa eval --tasks ruler': DIR/LENGTH/TASK/validation.jsonl. 'all' skips tasks that "
            "lack their TEXT or questions.",
        .examples =
            "  palimpsa needle books.txt --tokenizer gpt-neox/tokenizer.json --count 1000 --out needles.jsonl\n"
            "  palimpsa train --recipe long-context --model runs/hybrid --data books.txt=9,needles.jsonl=1 "
            "--out runs/long\n"
            "  palimpsa needle --brief --tokenizer my-model --needles 8 --questions 8 --out notes.jsonl\n"
            "  palimpsa needle books.txt --tokenizer my-model --ruler all --lengths 1k,4k,32k,128k --count 50 --out "
            "ruler\n"
            "  palimpsa needle --tokenizer my-model --ruler vt,cwe,fwe,qa_1 --squad dev-v2.0.json --out ruler\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    const char *path = NULL;
    int count;
    const int parsed = cli_parse(&usage, argc, argv, &path, 1, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (!o.tokenizer || !o.out)
        return cli_error(CLI_USAGE, "needle: --%s is missing", o.tokenizer ? "out" : "tokenizer");
    if (o.count < 1 || o.tokens < 1)
        return cli_error(CLI_USAGE, "--count and --tokens expect at least 1, found %d and %d", o.count, o.tokens);
    if (o.seed > UINT32_MAX || o.seed < -1)
        return cli_error(CLI_USAGE, "--seed expects 0 to %u, found %lld", UINT32_MAX, (long long)o.seed);
    if (r.tasks && o.brief) return cli_error(CLI_USAGE, "needle: --brief does not go with --ruler");
    if (r.tasks) {
        r.text = count ? path : NULL;
        r.tokenizer = o.tokenizer;
        r.out = o.out;
        r.count = o.count;
        r.seed = o.seed < 0 ? 42 : (uint32_t)o.seed;
        return needle_ruler(&r);
    }
    if (r.templates || r.words || r.cuts || r.squad || r.hotpot)
        return cli_error(CLI_USAGE, "needle: --templates, --words, --cuts, --squad and --hotpot go with --ruler");
    if (!count && !o.brief)
        return cli_error(CLI_USAGE, "needle: expected a text file; see 'palimpsa needle --help'");
    if (o.seed < 0) o.seed = 1;
    return run(&o, count ? path : NULL);
}
