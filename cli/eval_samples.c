/* SPDX-License-Identifier: MIT */
#include "eval_samples.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "format/json.h"
#include "kept_lines.h"
#include "text/json_text.h"

static const char line_start[] = "{\"doc_id\":"; /* of every line */

struct eval_samples {
    kept_lines lines;
    eval_samples_of of;
    char fingerprint[17], tokenizer[17];
    json_t *known; /* task -> document -> its line's "requests", "filtered_resps" and "truncated" */
};

/* Of everything that is sent for a document, so that a file that has changed is not mistaken for the one that was read.
 */
static void hash_requests(char out[17], const pal_task_doc *doc, pal_slice shots) {
    const uint64_t texts = pal_hash_bytes(doc->texts.bytes.data, doc->texts.bytes.size);
    const uint64_t before = pal_hash_bytes(shots.data, shots.size);
    snprintf(out, 17, "%016llx", (unsigned long long)pal_hash_u64(texts + 3 * before));
}

static bool is_ours(const eval_samples *s, const json_t *line) {
    const char *fingerprint = json_string_value(json_object_get(line, "fingerprint"));
    const char *tokenizer = json_string_value(json_object_get(line, "tokenizer"));
    return fingerprint && strcmp(fingerprint, s->fingerprint) == 0 && tokenizer &&
           strcmp(tokenizer, s->tokenizer) == 0 &&
           json_integer_value(json_object_get(line, "max_length")) == s->of.context &&
           json_integer_value(json_object_get(line, "num_fewshot")) == s->of.shots;
}

static void remember(eval_samples *s, const json_t *line) {
    const char *task = json_string_value(json_object_get(line, "task"));
    json_t *scores = json_object_get(line, "filtered_resps"), *requests = json_object_get(line, "requests");
    char key[32];
    const json_int_t cut = json_integer_value(json_object_get(line, "truncated"));
    if (!task || !json_is_array(scores) || !json_is_string(requests) || cut < 0 || !is_ours(s, line)) return;
    json_t *of_task = json_object_get(s->known, task);
    if (!of_task) pal_json_set(s->known, task, of_task = json_object());
    snprintf(key, sizeof key, "%lld", (long long)json_integer_value(json_object_get(line, "doc_id")));
    pal_json_set(of_task, key, json_pack("{s:O, s:O, s:I}", "requests", requests, "scores", scores, "cut", cut));
}

/* Takes a line of ours, or the beginning of one that was cut off. */
static int take_line(void *user, const kept_line *line) {
    eval_samples *s = user;
    const size_t length = sizeof line_start - 1;
    if (memcmp(line->text, line_start, line->size < length ? line->size : length) != 0 ||
        (line->whole && !json_is_object(line->value)))
        return cli_error(CLI_USAGE, "%s: line %d is not a sample; --samples names a file of samples", s->lines.path,
                         line->number);
    if (line->whole) remember(s, line->value);
    return CLI_OK;
}

int eval_samples_open(eval_samples **out, const char *path, const eval_samples_of *of) {
    eval_samples *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return cli_error(CLI_FAILED, "out of memory for samples");
    s->of = *of;
    snprintf(s->fingerprint, sizeof s->fingerprint, "%016llx", (unsigned long long)of->fingerprint);
    snprintf(s->tokenizer, sizeof s->tokenizer, "%016llx", (unsigned long long)of->tokenizer);
    s->known = json_object();
    const int code = kept_lines_open(&s->lines, path, take_line, s);
    if (code) eval_samples_close(s);
    else *out = s;
    return code;
}

int eval_samples_close(eval_samples *s) {
    if (!s) return CLI_OK;
    const int code = kept_lines_close(&s->lines);
    json_decref(s->known);
    free(s);
    return code;
}

bool eval_samples_find(const eval_samples *s, const eval_task *task, size_t index, const pal_task_doc *doc,
                       double *logprob, bool *greedy, size_t *cut) {
    char key[32], requests[17];
    snprintf(key, sizeof key, "%zu", index);
    const json_t *known = json_object_get(json_object_get(s->known, task->task->name), key),
                 *scores = json_object_get(known, "scores");
    hash_requests(requests, doc, (pal_slice){ task->shots.data, task->shots.size });
    const size_t count = doc->count;
    if (!known || strcmp(json_string_value(json_object_get(known, "requests")), requests) != 0) return false;
    if (json_array_size(scores) != count) return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(scores, i);
        if (!json_is_number(json_array_get(pair, 0)) || !json_is_boolean(json_array_get(pair, 1))) return false;
        logprob[i] = json_number_value(json_array_get(pair, 0));
        greedy[i] = json_is_true(json_array_get(pair, 1));
    }
    *cut = (size_t)json_integer_value(json_object_get(known, "cut"));
    return true;
}

static json_t *join(pal_slice before, pal_slice text) {
    pal_bytes both = { 0 };
    json_t *joined = NULL;
    if (!pal_bytes_append(&both, before.data, before.size, NULL) &&
        !pal_bytes_append(&both, text.data, text.size, NULL))
        joined = pal_json_bytes(both.data, both.size);
    pal_bytes_free(&both);
    return joined ? joined : json_null();
}

static json_t *arguments(const pal_eval_task *task, const pal_task_sample *sample) {
    json_t *all = json_object();
    for (size_t i = 0; i < sample->doc->count; i++) {
        char key[32];
        json_t *one = json_object();
        snprintf(key, sizeof key, "gen_args_%zu", i);
        pal_json_set(one, "arg_0", join(sample->shots, pal_task_context(sample->doc, i)));
        if (task->kind != PAL_TASK_ROLLING) {
            const pal_slice continuation = pal_task_continuation(sample->doc, i);
            pal_json_set(one, "arg_1", pal_json_bytes(continuation.data, continuation.size));
        }
        pal_json_set(all, key, one);
    }
    return all;
}

/* As lm-evaluation-harness writes it: the number of the right choice, or the text itself. */
static json_t *target(const pal_eval_task *task, const pal_task_doc *doc) {
    char number[16];
    if (task->kind == PAL_TASK_CHOICE) {
        snprintf(number, sizeof number, "%d", doc->gold);
        return json_string(number);
    }
    const pal_slice text = pal_strings_at(&doc->texts, doc->texts.count - 1);
    return pal_json_bytes(text.data, text.size);
}

pal_status eval_samples_add(eval_samples *s, const pal_eval_task *task, const pal_task_sample *sample, pal_error *err) {
    json_t *scores = json_array(), *metrics = json_array();
    for (size_t i = 0; i < sample->doc->count; i++)
        pal_json_append(scores, json_pack("[f, b]", sample->logprob[i], sample->greedy[i]));
    char requests[17];
    hash_requests(requests, sample->doc, sample->shots);
    json_t *line = json_pack("{s:I, s:O, s:o, s:o, s:o, s:s, s:s}", "doc_id", (json_int_t)sample->index, "doc",
                             sample->row, "target", target(task, sample->doc), "arguments", arguments(task, sample),
                             "filtered_resps", scores, "filter", "none", "task", task->name);
    pal_json_set(line, "model", pal_json_bytes(s->of.model, strlen(s->of.model)));
    pal_json_set(line, "fingerprint", json_string(s->fingerprint));
    pal_json_set(line, "tokenizer", json_string(s->tokenizer));
    pal_json_set(line, "requests", json_string(requests));
    pal_json_set(line, "max_length", json_integer(s->of.context));
    pal_json_set(line, "num_fewshot", json_integer(s->of.shots));
    pal_json_set(line, "truncated", json_integer((json_int_t)sample->cut));
    for (int m = 0; m < PAL_METRICS; m++) {
        if (!(task->metrics >> m & 1)) continue;
        const char *name = pal_metric_name((pal_metric)m);
        pal_json_append(metrics, json_string(name));
        if (task->kind != PAL_TASK_ROLLING) pal_json_set(line, name, json_real(sample->values[m]));
        else
            pal_json_set(
                line, name,
                json_pack("[f, I]", sample->logprob[0],
                          (json_int_t)(m == PAL_METRIC_WORD_PERPLEXITY ? sample->doc->words : sample->doc->bytes)));
    }
    pal_json_set(line, "metrics", metrics);
    const pal_status st = kept_lines_add(&s->lines, line, JSON_COMPACT | JSON_REAL_PRECISION(17), err);
    json_decref(line);
    return st;
}
