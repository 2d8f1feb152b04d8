/* SPDX-License-Identifier: MIT */
/* palimpsa eval --tasks: models on the tasks of lm-evaluation-harness, side by side. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/context.h"
#include "eval.h"
#include "eval_samples.h"
#include "model/model.h"
#include "progress.h"
#include "stop.h"
#include "text_model.h"

enum { CONTEXT = 2048 /* as lm-evaluation-harness, where a model does not say */ };

/* One task as it runs. */
typedef struct {
    const char *model;
    const eval_task *task;
    eval_samples *samples; /* or NULL */
    size_t known;          /* documents that the samples file had */
    size_t done, batch;    /* documents; batch: of those that are being scored */
    double start;
    uint64_t read; /* tokens, in batches before this one */
    live_line line;
} view;

static bool show_progress(void *user, size_t read, size_t total) {
    view *v = user;
    const double seconds = pal_seconds() - v->start;
    if (!live_due(&v->line)) return !cli_stopping();
    const double all = (double)(v->task->to - v->task->from);
    const double done = (double)v->done + (double)v->batch * (double)read / (double)total;
    char left[32];
    progress_duration(left, seconds * (all - done) / (done - (double)v->known));
    live_show(&v->line, "%s: %s: %.0f of %.0f documents  %s left  %.0f tokens/s", v->model, v->task->task->name,
              floor(done), all, left, (double)(v->read + read) / seconds);
    return !cli_stopping();
}

static void begin_batch(void *user, size_t done, size_t batch, uint64_t read) {
    view *v = user;
    v->done = done;
    v->batch = batch;
    v->read = read;
}

static bool known_sample(void *user, size_t index, const pal_task_doc *doc, double *logprob, bool *greedy,
                         size_t *cut) {
    view *v = user;
    const bool known = v->samples && eval_samples_find(v->samples, v->task, index, doc, logprob, greedy, cut);
    v->known += known;
    return known;
}

static pal_status write_sample(void *user, const pal_task_sample *sample, pal_error *err) {
    const view *v = user;
    return v->samples ? eval_samples_add(v->samples, v->task->task, sample, err) : PAL_OK;
}

/* A model that is open for requests. */
typedef struct {
    pal_bundle bundle;
    pal_scorer *scorer;
    pal_encoder encoder;
    eval_samples *samples;
    view now;
} subject;

static int run_task(subject *s, const eval_task *t, eval_result *result, const char *model, const pal_context *cx) {
    pal_task_sums sums = { 0 };
    pal_error err;
    int code = CLI_OK;
    s->now = (view){ .model = model,
                     .task = t,
                     .samples = s->samples,
                     .start = pal_seconds(),
                     .line = live_begin(stderr) };
    const pal_task_run run = { .task = t->task,
                               .data = t->data,
                               .from = t->from,
                               .to = t->to,
                               .scorer = s->scorer,
                               .encoder = &s->encoder,
                               .shots = { t->shots.data, t->shots.size },
                               .known = known_sample,
                               .on_sample = write_sample,
                               .on_batch = begin_batch,
                               .user = &s->now };
    const pal_status st = pal_task_measure(&run, &sums, &result->cut, &err);
    live_clear(&s->now.line);
    if (st == PAL_STOPPED)
        code = cli_error(CLI_INTERRUPTED, "interrupted in %s after %zu of %zu documents; %s", t->task->name, sums.count,
                         t->to - t->from,
                         s->samples ? "run the same command to continue from the samples file"
                                    : "without --samples FILE.jsonl nothing of this task is kept");
    else if (st) code = st == PAL_E_IO ? cli_fail_writing(&err) : cli_fail(&err);
    else pal_eval_take(result, t->task, &sums, cx);
    pal_task_sums_free(&sums);
    return code;
}

static int choose_context(int *context, const pal_model *model, int asked) {
    pal_error err;
    if (!asked && pal_model_grows(pal_model_config_of(model)) &&
        pal_eval_trained_context(model, &asked, &err))
        return cli_fail(&err);
    *context = asked ? asked : CONTEXT;
    return CLI_OK;
}

static int open_subject(subject *s, eval_model *m, const eval_tasks_options *o, const eval_text_options *text,
                        const pal_context *cx) {
    pal_error err;
    int code = text_model_open(&s->bundle, m->name, text->tokenizer, NULL, cx);
    if (!code) code = text_model_keep_as(s->bundle.model, text->kv_type);
    if (code || (code = choose_context(&m->context, s->bundle.model, text->context))) return code;
    const pal_scorer_options options = { .tokens = text->piece,
                                         .states = text->batch,
                                         .context = m->context,
                                         .progress = show_progress,
                                         .user = &s->now };
    if (pal_scorer_new(&s->scorer, s->bundle.model, cx, &options, &err) ||
        pal_encoder_new(&s->encoder, s->bundle.tokenizer, (size_t)m->context, &err))
        return cli_fail(&err);
    if (!o->samples) return CLI_OK;
    const eval_samples_of of = { .model = m->name,
                                 .fingerprint = pal_model_fingerprint(s->bundle.model),
                                 .tokenizer = pal_tokenizer_fingerprint(s->bundle.tokenizer),
                                 .context = m->context,
                                 .shots = o->plan.shots };
    return eval_samples_open(&s->samples, o->samples, &of);
}

static int measure_model(const eval_plan *plan, eval_model *m, const eval_tasks_options *o,
                         const eval_text_options *text, const pal_context *cx) {
    subject s = { 0 };
    int code = open_subject(&s, m, o, text, cx);
    for (int i = 0; i < plan->count && !code; i++) {
        const double start = pal_seconds();
        if (plan->tasks[i].data) code = run_task(&s, &plan->tasks[i], &m->results[i], m->label, cx);
        else code = eval_text_result(&m->results[i], m->name, text, cx);
        if (plan->tasks[i].data) m->seconds += pal_seconds() - start;
    }
    if (s.scorer) m->counts = pal_scorer_counts(s.scorer);
    const int closed = eval_samples_close(s.samples);
    pal_encoder_free(&s.encoder);
    pal_scorer_free(s.scorer);
    pal_bundle_close(&s.bundle);
    return code ? code : closed;
}

int eval_tasks(const eval_tasks_options *o, const eval_text_options *text, const pal_context *cx) {
    eval_plan plan;
    char labels[EVAL_MODELS][64];
    bool some = false;
    eval_model *models = calloc((size_t)text->count, sizeof *models);
    if (!models) return cli_error(CLI_FAILED, "out of memory for the results of %d models", text->count);
    int code = eval_plan_open(&plan, &o->plan);
    for (int i = 0; i < text->count && !code; i++) /* before hours are spent on the first */
        if (access(text->models[i], R_OK) != 0)
            code = cli_error(CLI_USAGE, "%s: cannot open: %s", text->models[i], strerror(errno));
    eval_make_labels(labels, text->models, text->count);
    for (int i = 0; i < text->count; i++) {
        models[i].name = text->models[i];
        memcpy(models[i].label, labels[i], sizeof labels[i]);
    }
    for (int i = 0; i < text->count && !code; i++) {
        code = measure_model(&plan, &models[i], o, text, cx);
        for (int t = 0; t < plan.count; t++) some |= models[i].results[t].done;
    }
    if (some) { /* also what was finished before something went wrong */
        if (!text->json || strcmp(text->json, "-") != 0) eval_print_table(&plan, models, text->count);
        const int written = text->json ? eval_write_results(&plan, &o->plan, models, text->count, text->json) : CLI_OK;
        if (!code) code = written;
    }
    pal_eval_plan_close(&plan);
    free(models);
    return code;
}
