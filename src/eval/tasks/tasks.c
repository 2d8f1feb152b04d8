/* SPDX-License-Identifier: MIT */
/* The table of tasks. */
#include <string.h>

#include "eval/tasks/task.h"

#define BIT(metric) (1u << (metric))
enum {
    ACC = BIT(PAL_METRIC_ACC),
    BOTH = ACC | BIT(PAL_METRIC_ACC_NORM),
    WORD = ACC | BIT(PAL_METRIC_PERPLEXITY),
    TEXT = BIT(PAL_METRIC_WORD_PERPLEXITY) | BIT(PAL_METRIC_BYTE_PERPLEXITY) | BIT(PAL_METRIC_BITS_PER_BYTE)
};

#define ARC(task, title, metric)                                                                             \
    {                                                                                                        \
        .name = task, .heading = title, .files = { task "/test" }, .kind = PAL_TASK_CHOICE, .metrics = BOTH, \
        .shown = metric, .version = "1.0", .make = pal_make_template,                                        \
        .context = "Question: {question}\nAnswer:", .choices = { "choices.text" }, .gold = "answerKey",      \
        .gold_from = -1, .paper = true                                                                       \
    }

const pal_eval_task pal_tasks[] = {
    { .name = "wikitext",
      .heading = "Wiki.",
      .files = { "wikitext/test", "wikitext-2/test", "wikitext-2/wiki.test.raw", "wiki.test.raw" },
      .kind = PAL_TASK_ROLLING,
      .metrics = TEXT,
      .shown = PAL_METRIC_WORD_PERPLEXITY,
      .version = "2.0",
      .make = pal_make_wikitext,
      .paper = true },
    { .name = "lambada_openai",
      .heading = "LMB.",
      .files = { "lambada_openai/test", "lambada/lambada_test" },
      .kind = PAL_TASK_LAST_WORD,
      .metrics = WORD,
      .shown = PAL_METRIC_ACC,
      .version = "1.0",
      .make = pal_make_last_word,
      .paper = true },
    { .name = "lambada_standard",
      .heading = "LMB. std",
      .files = { "lambada_standard/test", "lambada/lambada_standard_test" },
      .kind = PAL_TASK_LAST_WORD,
      .metrics = WORD,
      .shown = PAL_METRIC_ACC,
      .version = "1.0",
      .make = pal_make_last_word },
    { .name = "piqa",
      .heading = "PIQA",
      .files = { "piqa/validation" },
      .kind = PAL_TASK_CHOICE,
      .metrics = BOTH,
      .shown = PAL_METRIC_ACC_NORM,
      .version = "1.0",
      .make = pal_make_template,
      .context = "Question: {goal}\nAnswer:",
      .choices = { "sol1", "sol2" },
      .gold = "label",
      .paper = true },
    { .name = "hellaswag",
      .heading = "Hella.",
      .files = { "hellaswag/validation" },
      .kind = PAL_TASK_CHOICE,
      .metrics = BOTH,
      .shown = PAL_METRIC_ACC_NORM,
      .version = "1.0",
      .make = pal_make_hellaswag,
      .gold = "label",
      .paper = true },
    { .name = "winogrande",
      .heading = "Wino.",
      .files = { "winogrande/validation" },
      .kind = PAL_TASK_CHOICE,
      .metrics = ACC,
      .shown = PAL_METRIC_ACC,
      .version = "1.0",
      .make = pal_make_winogrande,
      .choices = { "option1", "option2" },
      .gold = "answer",
      .gold_from = 1,
      .paper = true },
    ARC("arc_easy", "ARC-e", PAL_METRIC_ACC),
    ARC("arc_challenge", "ARC-c", PAL_METRIC_ACC_NORM),
    { .name = "social_iqa",
      .heading = "SIQA",
      .files = { "social_iqa/validation", "social_i_qa/validation" },
      .kind = PAL_TASK_CHOICE,
      .metrics = ACC,
      .shown = PAL_METRIC_ACC,
      .version = "0.0",
      .make = pal_make_template,
      .context = "Q: {context} {question}\nA:",
      .choices = { "answerA", "answerB", "answerC" },
      .gold = "label",
      .gold_from = 1,
      .paper = true },
    { .name = "openbookqa",
      .heading = "OBQA",
      .files = { "openbookqa/test" },
      .kind = PAL_TASK_CHOICE,
      .metrics = BOTH,
      .shown = PAL_METRIC_ACC_NORM,
      .version = "1.0",
      .make = pal_make_template,
      .context = "{question_stem}",
      .choices = { "choices.text" },
      .gold = "answerKey",
      .gold_from = -1 },
    { .name = "boolq",
      .heading = "BoolQ",
      .files = { "boolq/validation" },
      .kind = PAL_TASK_CHOICE,
      .metrics = ACC,
      .shown = PAL_METRIC_ACC,
      .version = "2.0",
      .make = pal_make_template,
      .context = "{passage}\nQuestion: {question}?\nAnswer:",
      .choices = { "=no", "=yes" },
      .gold = "answer",
      .gold_from = -2 },
    { .name = NULL },
};

const pal_eval_task *pal_task_find(const char *name) {
    for (const pal_eval_task *t = pal_tasks; t->name; t++)
        if (strcmp(t->name, name) == 0) return t;
    return NULL;
}

static const struct {
    const char *name;
    bool higher;
} metrics[PAL_METRICS] = { [PAL_METRIC_ACC] = { "acc", true },
                           [PAL_METRIC_ACC_NORM] = { "acc_norm", true },
                           [PAL_METRIC_PERPLEXITY] = { "perplexity", false },
                           [PAL_METRIC_WORD_PERPLEXITY] = { "word_perplexity", false },
                           [PAL_METRIC_BYTE_PERPLEXITY] = { "byte_perplexity", false },
                           [PAL_METRIC_BITS_PER_BYTE] = { "bits_per_byte", false } };

const char *pal_metric_name(pal_metric m) { return metrics[m].name; }
bool pal_metric_higher_is_better(pal_metric m) { return metrics[m].higher; }
