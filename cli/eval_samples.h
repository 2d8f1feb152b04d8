/* SPDX-License-Identifier: MIT */
/* The samples file of palimpsa eval: a line for every document that was scored, with the field names of
 * lm-evaluation-harness. Lines of the same model, task and conditions are found again. */
#ifndef PAL_CLI_EVAL_SAMPLES_H
#define PAL_CLI_EVAL_SAMPLES_H

#include "eval.h"

typedef struct eval_samples_of { /* what lines must have in common to be used again */
    const char *model;
    uint64_t fingerprint, tokenizer;
    int context, shots;
} eval_samples_of;

typedef struct eval_samples eval_samples;
/* Reads what is there; a last line that was cut off is removed. Prints a sentence and returns an exit code. */
int eval_samples_open(eval_samples **out, const char *path, const eval_samples_of *of);
int eval_samples_close(eval_samples *s); /* NULL is fine */
/* What an earlier run found for the same requests: fills logprob and greedy (doc->count), and cut. */
bool eval_samples_find(const eval_samples *s, const eval_task *task, size_t index, const pal_task_doc *doc,
                       double *logprob, bool *greedy, size_t *cut);
pal_status eval_samples_add(eval_samples *s, const pal_eval_task *task, const pal_task_sample *sample, pal_error *err);

#endif
