/* SPDX-License-Identifier: MIT */
/* palimpsa eval: models measured on text and on tasks, side by side. */
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/nearest.h"
#include "eval.h"
#include "eval_long.h"
#include "plot/figure.h"
#include "ranks.h"
#include "stop.h"
#include "text_model.h"

static bool one_of(const char *word, const char *const *list) {
    for (; *list; list++)
        if (strcmp(word, *list) == 0) return true;
    return false;
}

/* A word from a list, or a sentence with the nearest one. */
static int check_word(const char *option, const char *word, const char *const *list, const char *expected) {
    if (one_of(word, list)) return CLI_OK;
    const char *near = pal_nearest(word, list);
    if (near) return cli_error(CLI_USAGE, "--%s: no '%s'; did you mean '%s'?", option, word, near);
    return cli_error(CLI_USAGE, "--%s: no '%s'; expected %s", option, word, expected);
}

typedef struct {
    cli_common common;
    const char *task;
    eval_text_options text;
    eval_tasks_options tasks;
    eval_long_options longer;
} eval_options;

static int check_figure(const char *path) {
    const char *dot = strrchr(path, '.');
    if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0))
        return cli_error(CLI_USAGE, "--figure expects a name that ends in .svg or .png, found '%s'", path);
    pal_error err;
    if (pal_figures_drawn(&err)) return cli_fail(&err);
    return cli_check_target(path);
}

static int check(const eval_options *o) {
    static const char *const tasks[] = { "perplexity", NULL }, *const splits[] = { "none", "wikitext", NULL },
                             *const parts[] = { "all", "train", "valid", NULL };
    const eval_text_options *t = &o->text;
    int code;
    if ((code = check_word("task", o->task, tasks, "perplexity")) ||
        (code = check_word("split", t->split, splits, "none or wikitext")) ||
        (code = check_word("part", t->part, parts, "all, train or valid")))
        return code;
    if (!t->data)
        return cli_error(CLI_USAGE, "eval needs --data PATH: a text or JSONL file, a directory of shards, or with "
                                    "--tasks the directory of their files");
    if (t->context < 0 || t->context > EVAL_CONTEXT)
        return cli_error(CLI_USAGE, "--context expects 0 to %d, found %d", EVAL_CONTEXT, t->context);
    if (t->piece < 0 || t->piece > 1 << 20)
        return cli_error(CLI_USAGE, "--piece expects 1 to %d, found %d", 1 << 20, t->piece);
    if (t->batch < 0 || t->batch > 1024) return cli_error(CLI_USAGE, "--batch expects 1 to 1024, found %d", t->batch);
    if (t->least && !t->by_position) return cli_error(CLI_USAGE, "--at-least goes with --by-position");
    if (t->least < 0) return cli_error(CLI_USAGE, "--at-least expects at least 1 token, found %d", t->least);
    if (t->json && strcmp(t->json, "-") != 0 && (code = cli_check_target(t->json))) return code;
    return t->figure ? check_figure(t->figure) : CLI_OK;
}

/* Options that go with tasks alone, and those that do not go with them. */
static int check_kind(const eval_options *o, bool tasks) {
    const eval_plan_options *p = &o->tasks.plan;
    const eval_text_options *t = &o->text;
    const char *other = NULL;
    if (tasks)
        other = t->baseline                                 ? "baseline"
                : t->figure                                 ? "figure"
                : t->field && !p->text                      ? "field"
                : t->by_position                            ? "by-position"
                : t->answers                                ? "answers"
                : t->no_prefix && !p->text                  ? "no-prefix"
                : strcmp(t->split, "none") != 0 && !p->text ? "split"
                : strcmp(t->part, "all") != 0 && !p->text   ? "part"
                : strcmp(t->data, "-") == 0                 ? "data -"
                : p->text && strcmp(p->text, "-") == 0      ? "text -"
                                                            : NULL;
    else
        other = p->limit           ? "limit"
                : p->docs          ? "docs"
                : p->shots         ? "shots"
                : p->shots_file    ? "shots-file"
                : o->tasks.samples ? "samples"
                : p->text          ? "text"
                                   : NULL;
    if (other && tasks) return cli_error(CLI_USAGE, "--%s goes with perplexity, not with --tasks", other);
    if (o->tasks.samples && t->json && strcmp(o->tasks.samples, t->json) == 0)
        return cli_error(CLI_USAGE, "--samples and --json name the same file, %s", t->json);
    if (other) return cli_error(CLI_USAGE, "--%s goes with --tasks", other);
    return CLI_OK;
}

/* RULER and LongBench: prompts that are answered, or answers that were recorded. */
static int run_long(eval_options *o, long_kind kind) {
    const eval_text_options *t = &o->text;
    eval_long_options *l = &o->longer;
    pal_context *cx;
    pal_error err;
    int code;
    if (t->count > 1) return cli_error(CLI_USAGE, "--tasks %s takes one model at a time", o->tasks.plan.tasks);
    if (t->count ? !t->data : !l->predictions)
        return cli_error(CLI_USAGE, "--tasks %s needs a model and --data DIR, or recorded answers in --predictions DIR",
                         o->tasks.plan.tasks);
    const char *other = t->baseline                       ? "baseline"
                        : o->tasks.samples                ? "samples"
                        : o->tasks.plan.docs              ? "docs"
                        : o->tasks.plan.shots             ? "shots"
                        : t->figure && kind != LONG_RULER ? "figure"
                                                          : NULL;
    if (other) return cli_error(CLI_USAGE, "--%s does not go with --tasks %s", other, o->tasks.plan.tasks);
    if (t->context < 0 || t->context > EVAL_CONTEXT)
        return cli_error(CLI_USAGE, "--context expects 0 to %d, found %d", EVAL_CONTEXT, t->context);
    if (t->json && strcmp(t->json, "-") != 0 && (code = cli_check_target(t->json))) return code;
    if (t->figure && (code = check_figure(t->figure))) return code;
    l->kind = kind;
    l->model = t->count ? t->models[0] : NULL;
    l->data = t->count ? t->data : NULL;
    l->tokenizer = t->tokenizer;
    l->json = t->json;
    l->figure = t->figure;
    l->limit = o->tasks.plan.limit;
    l->context = t->context;
    l->piece = t->piece;
    l->batch = t->batch;
    cli_stop_on_signals(true);
    if (pal_context_new_on(&cx, o->common.threads, o->common.cpu, o->common.device, &err)) return cli_fail(&err);
    code = eval_long(l, cx);
    pal_context_free(cx);
    return code;
}

static int run(eval_options *o, bool tasks) {
    eval_text_options *t = &o->text;
    pal_context *cx;
    pal_error err;
    if (strcmp(t->data, "-") == 0 && t->count + (t->baseline != NULL) > 1)
        return cli_error(CLI_USAGE, "--data -: standard input can be read once; several models need a file");
    cli_stop_on_signals(true);
    if (pal_context_new_on(&cx, o->common.threads, o->common.cpu, o->common.device, &err)) return cli_fail(&err);
    o->tasks.plan.data = t->data;
    if (tasks) t->data = o->tasks.plan.text;
    const int code = tasks ? eval_tasks(&o->tasks, t, cx) : eval_text(t, cx);
    pal_context_free(cx);
    return code;
}

int cmd_eval(int argc, char **argv) {
    eval_options o = { .task = "perplexity",
                       .text = { .split = "none", .part = "all" },
                       .longer = { .scoring = "ruler" } };
    eval_text_options *t = &o.text;
    eval_plan_options *p = &o.tasks.plan;
    const cli_option options[] = {
        { "data", OPT_TEXT, &t->data, "PATH",
          "text or JSONL file ('-': standard input), or directory of shards; with --tasks: directory "
          "of their files" },
        { "tokenizer", OPT_TEXT, &t->tokenizer, "X", "tokenizer for all models (default: each model's own)" },
        TEXT_MODEL_KV_OPTION(t->kv_type),
        { "context", OPT_INT, &t->context, "N",
          "cut documents into windows of N tokens (default: whole documents; attention: as trained, "
          "else 4096; --tasks: 2048)" },
        { "piece", OPT_INT, &t->piece, "N", "tokens per pass (default 1024)", .above_zero = true },
        { "batch", OPT_INT, &t->batch, "N",
          "documents at a time (default 8; with --tasks: as many memories as fit into 1 GiB, 4 to 64)",
          .above_zero = true },
        { "json", OPT_TEXT, &t->json, "[FILE.json]",
          "write JSON to FILE.json, or to standard output: an object, or a list for several models", .alone = "-" },
        CLI_COMMON_OPTIONS(o.common),
        CLI_DEVICE_OPTION(o.common),
        { "task", OPT_TEXT, &o.task, "NAME", "what to measure: perplexity (default)", .group = "text" },
        { "split", OPT_TEXT, &t->split, "KIND",
          "how to split a text file: none (one document, default) or wikitext (a page at each ' = "
          "Title = ')",
          .group = "text" },
        { "field", OPT_TEXT, &t->field, "NAME", "field with the text in a JSONL file (default text)", .group = "text" },
        { "part", OPT_TEXT, &t->part, "PART", "which shards: all (default), train or valid", .group = "text" },
        { "no-prefix", OPT_FLAG, &t->no_prefix, NULL,
          "put no token in front of a document; its first token is then not predicted", .group = "text" },
        { "baseline", OPT_TEXT, &t->baseline, "MODEL", "also show the difference to this model, by position",
          .group = "text" },
        { "figure", OPT_TEXT, &t->figure, "FILE", "draw the loss by position, from 32 tokens on (.svg or .png)",
          .group = "text" },
        { "by-position", OPT_FLAG, &t->by_position, NULL,
          "print the loss by position in documents, with 95% intervals over documents; with "
          "--context, by position in the window",
          .group = "text" },
        { "answers", OPT_FLAG, &t->answers, NULL,
          "for JSONL from 'palimpsa needle': count only answer tokens; a position is the distance to "
          "the fact",
          .group = "text" },
        { "at-least", OPT_INT, &t->least, "N", "with --by-position: only documents of at least N tokens (default: all)",
          .above_zero = true, .group = "text" },
        { "tasks", OPT_TEXT, &p->tasks, "LIST",
          "task names with commas, paper (those of the paper's table) or all; list prints them; or "
          "one of ruler, longbench, longbench2",
          .group = "tasks" },
        { "text", OPT_TEXT, &p->text, "PATH",
          "text for perplexity as one task of a list, with the options for text above (alone: --data)",
          .group = "tasks" },
        { "limit", OPT_INT, &p->limit, "N", "use the first N documents of each task", .above_zero = true,
          .group = "tasks" },
        { "docs", OPT_TEXT, &p->docs, "FROM:TO", "use documents FROM to TO-1 of each task", .group = "tasks" },
        { "samples", OPT_TEXT, &o.tasks.samples, "FILE.jsonl",
          "write one line per document; an interrupted command continues from it", .group = "tasks" },
        { "shots", OPT_INT, &p->shots, "N", "put N examples with answers before each question, from --shots-file",
          .above_zero = true, .group = "tasks" },
        { "shots-file", OPT_TEXT, &p->shots_file, "PATH",
          "file of the examples, or a directory as for --data; its first N documents are used", .group = "tasks" },
        { "predictions", OPT_TEXT, &o.longer.predictions, "DIR",
          "keep answers in DIR, in the files of the original programs; an interrupted command "
          "continues from them. Without a model, score the recorded answers",
          .group = "ruler, longbench and longbench2" },
        { "scoring", OPT_TEXT, &o.longer.scoring, "RULES", "rules for scoring ruler: ruler (default) or lm-eval",
          .group = "ruler, longbench and longbench2" },
        { "chinese", OPT_TEXT, &o.longer.chinese, "DIR",
          "jieba's directory, for scores that need Chinese words (default: skip those)",
          .group = "ruler, longbench and longbench2" },
    };
    const cli_usage usage = {
        .synopsis = "eval MODEL... --data PATH [--tasks LIST] [options]",
        .about =

            "Measures how well models predict text, or runs standard tasks.\n\n"
            "Prints the loss in nats, perplexity per token, byte and word of the original text, and "
            "loss by position. Whole documents are read through the model's memory; --context cuts "
            "them instead. A text above 64 MiB must be made into shards first ('palimpsa tokenize') "
            "or be split into pages. Bytes and words are counted as lm-evaluation-harness does, so "
            "models with different vocabularies compare.\n\n"
            "--tasks runs the tasks of lm-evaluation-harness on files in --data, with the same "
            "requests and metrics. ruler, longbench and longbench2 are long prompts that are answered "
            "greedily; their data is read as published ('palimpsa needle --ruler' makes RULER's), and "
            "--figure draws RULER's scores by length.",
        .examples =

            "  palimpsa eval my-model --data book.txt\n  palimpsa eval --tasks list\n  palimpsa eval "
            "my-model runs/a --tasks paper --data data --json results.json --samples samples.jsonl\n  "
            "palimpsa eval my-model --tasks hellaswag,piqa --data data --limit 200\n  palimpsa eval "
            "my-model runs/a --tasks paper,perplexity --data data --text book.txt\n  palimpsa eval "
            "runs/a runs/b --data wiki.test.raw --split wikitext --figure loss.svg\n  palimpsa eval "
            "runs/a --baseline runs/b --data shards --part valid --figure difference.svg\n  palimpsa "
            "eval runs/a --by-position --baseline runs/b --data docs.jsonl --at-least 1024\n  "
            "palimpsa eval runs/a --answers --baseline runs/b --data needles.jsonl --figure "
            "answers.svg\n  palimpsa eval my-model --tasks ruler --data ruler --predictions answers "
            "--figure ruler.svg\n  palimpsa eval --tasks ruler --predictions answers --scoring "
            "lm-eval\n  palimpsa eval my-model --tasks longbench2 --data LongBench-v2 --context "
            "120000 --json v2.json\n  mpirun -n 4 palimpsa eval runs/a --data wiki.test.raw --split "
            "wikitext\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int code = cli_parse(&usage, argc, argv, t->models, EVAL_MODELS, &t->count);
    if (code) return code < 0 ? CLI_OK : code;
    if (p->tasks && strcmp(p->tasks, "list") == 0) return eval_list_tasks();
    const bool tasks = p->tasks && strcmp(p->tasks, "perplexity") != 0;
    if (ranks_comm()->size > 1 && (tasks || (t->data && strcmp(t->data, "-") == 0)))
        return cli_error(CLI_USAGE, "eval: --tasks, and standard input, need one process; start it without mpirun");
    const long_kind kind = long_kind_of(p->tasks);
    if (kind != LONG_NONE) return run_long(&o, kind);
    if (o.longer.predictions || o.longer.chinese)
        return cli_error(CLI_USAGE, "--%s goes with --tasks ruler, longbench or longbench2",
                         o.longer.predictions ? "predictions" : "chinese");
    if (!t->count)
        return cli_error(CLI_USAGE, "eval: name a model: a directory or a GGUF file; see 'palimpsa eval --help'");
    if ((code = check(&o)) || (code = check_kind(&o, tasks))) return code;
    return run(&o, tasks);
}
