/* SPDX-License-Identifier: MIT */
#include "eval/evaluate.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "eval/perplexity.h"
#include "eval/task_run.h"
#include "format/json.h"
#include "model/model.h"

/* RUN/config.json is two levels above RUN/checkpoints/NAME. */
pal_status pal_eval_trained_context(const pal_model *model, int *context, pal_error *err) {
    char path[4096];
    bool starved;
    *context = 0;
    if (snprintf(path, sizeof path, "%s/../../config.json", model->source.path) >= (int)sizeof path) return PAL_OK;
    json_t *run = pal_json_load(path, 0, NULL, &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
    const char *task = json_string_value(json_object_get(run, "task"));
    const json_int_t trained = task && strcmp(task, "text") == 0 ? json_integer_value(json_object_get(run, "context"))
                                                                 : 0;
    json_decref(run);
    if (trained > 0 && trained <= PAL_EVAL_CONTEXT) *context = (int)trained;
    return PAL_OK;
}

static pal_status check(const pal_bundle *m, const pal_evaluate_options *o, pal_error *err) {
    if (!m->model || !m->tokenizer) return pal_fail(err, PAL_E_ARGUMENT, "evaluating needs a model and its tokenizer");
    if (o->context < 0 || o->context > PAL_EVAL_CONTEXT || o->piece < 0 || o->piece > 1 << 20 || o->together < 0 ||
        o->together > 1024)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "evaluating: context %d, piece %d, together %d: expected at most %d, %d and 1024", o->context,
                        o->piece, o->together, PAL_EVAL_CONTEXT, 1 << 20);
    return PAL_OK;
}

static pal_status context_of(int *context, const pal_model *model, int asked, int otherwise, pal_error *err) {
    const bool attends = pal_model_grows(pal_model_config_of(model));
    const pal_status st = !asked && attends ? pal_eval_trained_context(model, &asked, err) : PAL_OK;
    *context = asked ? asked : otherwise ? otherwise : attends ? PAL_EVAL_ATTENTION : 0;
    return st;
}

static pal_status find_subset(pal_subset *out, const char *name, pal_error *err) {
    static const struct {
        const char *name;
        pal_subset subset;
    } all[] = { { "all", PAL_SUBSET_ALL }, { "train", PAL_SUBSET_TRAIN }, { "valid", PAL_SUBSET_VALID } };
    for (size_t i = 0; i < 3; i++)
        if (!name || strcmp(name, all[i].name) == 0) {
            *out = all[i].subset;
            return PAL_OK;
        }
    return pal_fail(err, PAL_E_ARGUMENT, "subset '%s': expected all, train or valid", name);
}

pal_status pal_evaluate_text(pal_perplexity *out, const pal_bundle *m, const char *path,
                             const pal_evaluate_options *options, const pal_context *cx, pal_error *err) {
    const pal_evaluate_options none = { 0 }, *o = options ? options : &none;
    pal_eval_options source = { .field = o->field, .split = o->wikitext ? PAL_SPLIT_WIKITEXT : PAL_SPLIT_NONE };
    pal_eval_data *data;
    int context;
    pal_status st;
    *out = (pal_perplexity){ 0 };
    if ((st = check(m, o, err)) || (st = find_subset(&source.subset, o->subset, err)) ||
        (st = context_of(&context, m->model, o->context, 0, err)) ||
        (st = pal_eval_data_open(&data, path, m->tokenizer, &source, err)))
        return st;
    const pal_perplexity_options run = {
        .context = context, .piece = o->piece, .documents = o->together, .progress = o->progress, .user = o->user
    };
    st = pal_perplexity_run(out, m->model, m->tokenizer, cx, data, &run, err);
    pal_eval_data_close(data);
    return st;
}

const char *pal_evaluate_task_at(int index) {
    for (int i = 0; i < index; i++)
        if (!pal_tasks[i].name) return NULL;
    return index < 0 ? NULL : pal_tasks[index].name;
}

static pal_status unknown(const char *name, pal_error *err) {
    const char *names[64] = { 0 };
    for (size_t i = 0; i < 63 && pal_tasks[i].name; i++) names[i] = pal_tasks[i].name;
    const char *near = pal_nearest(name, names);
    return near ? pal_fail(err, PAL_E_ARGUMENT, "no task '%s'; did you mean '%s'?", name, near)
                : pal_fail(err, PAL_E_ARGUMENT, "no task '%s'", name);
}

/* Progress between the passes of a batch of documents, in documents. */
typedef struct {
    const pal_evaluate_options *o;
    size_t done, total;
} view;
static bool go_on(void *user, size_t read, size_t tokens) {
    const view *v = user;
    (void)read, (void)tokens;
    return !v->o->progress || v->o->progress(v->o->user, v->done, v->total);
}
static void begin_batch(void *user, size_t done, size_t batch, uint64_t read) {
    (void)batch, (void)read;
    ((view *)user)->done = done;
}

static pal_status measure(pal_task_result *out, const pal_bundle *m, const pal_eval_task *task,
                          const pal_task_data *data, const pal_evaluate_options *o, const pal_context *cx,
                          pal_error *err) {
    const size_t count = pal_task_data_count(data), to = o->to && o->to < count ? o->to : count;
    int context;
    pal_status st = context_of(&context, m->model, o->context, PAL_EVAL_REQUEST, err);
    if (st) return st;
    view now = { .o = o, .total = to - o->from };
    const pal_scorer_options scoring = {
        .tokens = o->piece, .states = o->together, .context = context, .progress = go_on, .user = &now
    };
    pal_scorer *scorer = NULL;
    pal_encoder encoder = { 0 };
    pal_task_sums sums = { 0 };
    uint64_t cut = 0;
    if (o->from >= to)
        return pal_fail(err, PAL_E_ARGUMENT, "documents %zu to %zu: %s has %zu", o->from, o->to,
                        pal_task_data_path(data), count);
    st = pal_scorer_new(&scorer, m->model, cx, &scoring, err);
    if (!st) st = pal_encoder_new(&encoder, m->tokenizer, (size_t)context, err);
    const pal_task_run run = { .task = task,
                               .data = data,
                               .from = o->from,
                               .to = to,
                               .scorer = scorer,
                               .encoder = &encoder,
                               .on_batch = begin_batch,
                               .user = &now };
    if (!st) st = pal_task_measure(&run, &sums, &cut, err);
    out->documents = sums.count;
    for (int k = 0; k < PAL_METRICS && !st; k++)
        if (task->metrics >> k & 1) {
            const int i = out->count++;
            out->metric[i].name = pal_metric_name((pal_metric)k);
            out->metric[i].value = pal_task_value(task, &sums, (pal_metric)k);
            out->metric[i].error = pal_task_error(cx, task, &sums, (pal_metric)k, PAL_BOOTSTRAP);
            out->metric[i].higher_is_better = pal_metric_higher_is_better((pal_metric)k);
        }
    pal_task_sums_free(&sums);
    pal_encoder_free(&encoder);
    pal_scorer_free(scorer);
    return st;
}

pal_status pal_evaluate_task(pal_task_result *out, const pal_bundle *m, const char *name, const char *path,
                             const pal_evaluate_options *options, const pal_context *cx, pal_error *err) {
    const pal_evaluate_options none = { 0 }, *o = options ? options : &none;
    const pal_eval_task *task = pal_task_find(name);
    pal_task_data *data;
    pal_status st;
    _Static_assert((int)PAL_TASK_METRICS >= (int)PAL_METRICS, "every metric of a task has a place in its result");
    *out = (pal_task_result){ 0 };
    if (!task) return unknown(name, err);
    if ((st = check(m, o, err)) || (st = pal_task_data_open(&data, task, path, err))) return st;
    st = measure(out, m, task, data, o, cx, err);
    pal_task_data_close(data);
    return st;
}
