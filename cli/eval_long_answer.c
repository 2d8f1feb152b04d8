/* SPDX-License-Identifier: MIT */
/* Rows become prompts, a model answers them, and answers become lines of a predictions file, as the original programs
 * write them. Lines that are there already are not made again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/directory.h"
#include "cli.h"
#include "eval.h"
#include "eval/records.h"
#include "eval_long.h"
#include "format/json.h"
#include "kept_lines.h"
#include "model/model.h"
#include "progress.h"
#include "stop.h"
#include "text/strings.h"
#include "text_model.h"

enum { TOGETHER = 8, MOST = 64, ATTENTION_CONTEXT = 4096, LONGBENCH2_TOKENS = 128, KEPT_CONTEXT = 1000 };

/* Rows of a file of JSON lines, or of one JSON list. */
typedef struct {
    pal_records *records;
    json_t *list;
    size_t count;
} rows;

static void rows_close(rows *r) {
    pal_records_close(r->records);
    json_decref(r->list);
}

static int rows_open(rows *r, const char *path) {
    pal_error err;
    json_error_t why;
    const size_t n = strlen(path);
    *r = (rows){ 0 };
    if (n > 5 && strcmp(path + n - 5, ".json") == 0) {
        if (!(r->list = pal_json_load(path, JSON_ALLOW_NUL, &why, NULL)))
            return cli_error(CLI_USAGE, "%s: line %d: %s", path, why.line, why.text);
        r->count = json_array_size(r->list);
    } else {
        if (pal_records_open(&r->records, path, &err)) return cli_fail(&err);
        r->count = pal_records_count(r->records);
    }
    return r->count ? CLI_OK : cli_error(CLI_USAGE, "%s: there is no row in it", path);
}

static void row_place(const rows *r, const char *path, size_t i, char *text, size_t size) {
    if (r->records) pal_records_place(r->records, i, text, size);
    else snprintf(text, size, "%s: question %zu", path, i + 1);
}

static pal_status row_read(const rows *r, size_t i, json_t **row, pal_error *err) {
    if (r->records) return pal_records_read(r->records, i, row, err);
    *row = json_incref(json_array_get(r->list, i));
    return json_is_object(*row) ? PAL_OK : pal_fail(err, PAL_E_FORMAT, "expected an object with fields");
}

/* A model that is open for prompts. */
typedef struct {
    long_plan *plan;
    pal_bundle bundle;
    pal_engine *engine;
    char fingerprint[17];
    size_t most; /* tokens of prompt and answer that attention holds; 0: any number */
    double start;
    live_line line;
    size_t batch_done;
} subject;

/* Answers of a batch. */
typedef struct {
    subject *subject;
    const long_set *set;
    size_t from, done, all; /* rows: of this batch, before it and in it, and of the file */
    pal_bytes text[MOST];
    bool failed;
    pal_error error;
} batch;

static void show_progress(batch *b) {
    subject *s = b->subject;
    if (!live_due(&s->line)) return;
    const pal_engine_counts c = pal_engine_counted(s->engine);
    char left[32], length[32] = "";
    progress_duration(left, (pal_seconds() - s->start) * (double)(b->all - b->done) / (double)(b->done ? b->done : 1));
    if (b->set->length) snprintf(length, sizeof length, " %d", b->set->length);
    live_show(&s->line, "%s%s: %zu of %zu rows  %s left  %.0f tokens/s read", b->set->name, length, b->done, b->all,
              left, (double)c.read / (c.read_seconds > 0 ? c.read_seconds : 1));
}

static bool take_answer(void *user, const pal_answer *answer) {
    batch *b = user;
    if (answer->finish == PAL_FINISH_ERROR)
        b->failed = pal_fail(&b->error, PAL_E_FORMAT, "row %zu: %s", b->from + answer->prompt + 1, answer->error) !=
                    PAL_OK;
    else b->failed = pal_py_valid(&b->text[answer->prompt], answer->text, &b->error) != PAL_OK;
    b->done++;
    show_progress(b);
    return !b->failed && !cli_stopping();
}

static int tokens_to_write(const long_plan *p, const long_set *set) {
    if (set->task) return set->task->generate;
    if (!set->set) return LONGBENCH2_TOKENS;
    const json_t *length = json_object_get(p->lengths, set->set->name);
    return json_is_integer(length) && json_integer_value(length) > 0 && json_integer_value(length) <= 1 << 16
               ? (int)json_integer_value(length)
               : set->set->generate;
}

/* The ids of a row's prompt; what is too long loses its beginning (RULER) or its middle (LongBench). */
static pal_status make_prompt(subject *s, long_set *set, const json_t *row, pal_ids *ids, pal_error *err) {
    const long_plan *p = s->plan;
    const size_t writes = (size_t)tokens_to_write(p, set), asked = (size_t)p->options->context;
    size_t most = s->most > writes ? s->most - writes : 0, cut = 0;
    pal_bytes prompt = { 0 };
    pal_status st;
    if (asked && (!most || asked < most)) most = asked;
    if (set->task) {
        ids->count = 0;
        if (!(st = pal_ruler_prompt(row, p->scoring, &prompt, err)))
            st = pal_tokenizer_encode(s->bundle.tokenizer, s->bundle.scratch, prompt.data, prompt.size, NULL, ids, err);
        if (!st && most && ids->count > most) {
            cut = ids->count - most;
            memmove(ids->data, ids->data + cut, most * sizeof *ids->data);
            ids->count = most;
        }
    } else {
        const pal_middle_cut middle = {
            .tokenizer = s->bundle.tokenizer, .scratch = s->bundle.scratch, .most = most, .together = !set->set
        };
        pal_slice template = pal_slice_of(&p->template);
        if (set->set) {
            const json_t *text = json_object_get(p->prompts, set->set->name);
            if (!json_is_string(text))
                return pal_fail(err, PAL_E_FORMAT, "dataset2prompt.json has no prompt for %s", set->set->name);
            template = (pal_slice){ (const unsigned char *)json_string_value(text), json_string_length(text) };
        }
        st = set->set ? pal_longbench_prompt(template, row, &prompt, err)
                      : pal_longbench2_prompt(template, row, &prompt, err);
        if (!st) st = pal_cut_middle(&middle, &prompt, ids, &cut, err);
    }
    set->cut += cut > 0;
    pal_bytes_free(&prompt);
    if (!st && !ids->count) st = pal_fail(err, PAL_E_FORMAT, "the prompt has no token");
    return st;
}

static json_t *copy_of(const json_t *row, const char *field) {
    const json_t *value = json_object_get(row, field);
    return value ? pal_json_copy(value) : json_null();
}

/* The line that the original program would write. */
static json_t *make_line(const subject *s, const long_set *set, const json_t *row, pal_slice answer) {
    json_t *text = json_stringn((const char *)answer.data, answer.size), *line;
    if (!text) return NULL;
    if (set->task) {
        line = json_pack("{s:o, s:o, s:o, s:o, s:{s:s}, s:i, s:o}", "index", copy_of(row, "index"), "pred", text,
                         "input", json_string(""), "outputs", copy_of(row, "outputs"), "others", "fingerprint",
                         s->fingerprint, "truncation", -1, "length", copy_of(row, "length"));
        return line;
    }
    if (set->set)
        return json_pack("{s:o, s:o, s:o, s:o, s:s}", "pred", text, "answers", copy_of(row, "answers"), "all_classes",
                         copy_of(row, "all_classes"), "length", copy_of(row, "length"), "fingerprint", s->fingerprint);
    const char letter[2] = { pal_longbench2_answer(answer), 0 };
    const char *gold = json_string_value(json_object_get(row, "answer"));
    line = pal_json_copy(row);
    pal_json_set(line, "response", text);
    pal_json_set(line, "pred", letter[0] ? json_string(letter) : json_null());
    pal_json_set(line, "judge", json_boolean(gold && strcmp(gold, letter) == 0));
    pal_json_set(line, "fingerprint", json_string(s->fingerprint));
    const json_t *context = json_object_get(row, "context");
    pal_slice kept = { (const unsigned char *)json_string_value(context), json_string_length(context) };
    size_t end = 0;
    uint32_t code;
    for (int i = 0; i < KEPT_CONTEXT && end < kept.size; i++)
        end += pal_py_character(kept.data + end, kept.size - end, &code);
    if (kept.data) pal_json_set(line, "context", json_stringn((const char *)kept.data, end));
    return line;
}

/* Answers rows from .. from+n-1. */
static int answer_batch(subject *s, long_set *set, const rows *r, size_t from, size_t n, size_t all, pal_ids *ids,
                        kept_lines *kept) {
    const int writes = tokens_to_write(s->plan, set);
    pal_prompt prompts[MOST];
    json_t *row[MOST] = { NULL };
    batch b = { .subject = s, .set = set, .from = from, .done = from, .all = all };
    pal_error err, why;
    int code = CLI_OK;
    for (size_t i = 0; i < n && !code; i++) {
        char place[LONG_PATH + 32];
        row_place(r, set->data, from + i, place, sizeof place);
        if (row_read(r, from + i, &row[i], &err)) code = cli_fail(&err);
        else if (make_prompt(s, set, row[i], &ids[i], &why)) code = cli_error(CLI_USAGE, "%s: %s", place, why.text);
        prompts[i] = (pal_prompt){ .ids = ids[i].data, .count = ids[i].count, .max_tokens = writes };
    }
    if (!code && pal_engine_answer(s->engine, prompts, n, (int)n, take_answer, &b, &err)) code = cli_fail(&err);
    if (!code && b.failed) code = cli_error(CLI_FAILED, "%s: %s", set->name, b.error.text);
    if (!code && cli_stopping())
        code = cli_error(CLI_INTERRUPTED, "interrupted in %s after %zu of %zu rows; %s", set->name, from, all,
                         kept->stream ? "run the same command to continue from the predictions"
                                      : "without --predictions DIR nothing is kept");
    for (size_t i = 0; i < n && !code; i++) {
        json_t *line = make_line(s, set, row[i], pal_slice_of(&b.text[i]));
        if (!line || !pal_json_append(set->lines, line)) code = cli_error(CLI_FAILED, "out of memory for answers");
        else if (kept->stream && kept_lines_add(kept, line, 0, &err)) code = cli_fail_writing(&err);
    }
    for (size_t i = 0; i < n; i++) {
        json_decref(row[i]);
        pal_bytes_free(&b.text[i]);
    }
    return code;
}

int long_read_lines(long_set *set) {
    rows r;
    set->lines = json_array();
    if (!*set->answers) return CLI_OK;
    int code = rows_open(&r, set->answers);
    for (size_t i = 0; i < r.count && !code; i++) {
        json_t *line = NULL;
        pal_error err;
        if (row_read(&r, i, &line, &err)) code = cli_fail(&err);
        else if (!pal_json_append(set->lines, json_incref(line)))
            code = cli_error(CLI_FAILED, "out of memory for answers");
        json_decref(line);
    }
    rows_close(&r);
    return code;
}

/* Lines of a set that an earlier command answered. */
typedef struct {
    const subject *subject;
    long_set *set;
} answered;

/* Whether a line that was cut off may be one of make_line's. */
static bool begins_like_ours(const long_set *set, const kept_line *line) {
    const char *start = set->task ? "{\"index\": " : set->set ? "{\"pred\": \"" : "{\"";
    const size_t size = strlen(start);
    return memcmp(line->text, start, line->size < size ? line->size : size) == 0;
}

static int take_line(void *user, const kept_line *line) {
    const answered *a = user;
    const json_t *of = json_object_get(a->set->task ? json_object_get(line->value, "others") : line->value,
                                       "fingerprint");
    const char *fingerprint = json_string_value(of);
    if (!line->size || (!line->whole && begins_like_ours(a->set, line))) return CLI_OK;
    if (!json_is_object(line->value))
        return cli_error(CLI_USAGE, "%s: line %d: expected an object with fields", a->set->answers, line->number);
    if (!fingerprint || strcmp(fingerprint, a->subject->fingerprint) != 0)
        return cli_error(CLI_USAGE, "%s: line %d holds the answer of another model; choose another --predictions",
                         a->set->answers, line->number);
    return pal_json_append(a->set->lines, json_incref(line->value))
               ? CLI_OK
               : cli_error(CLI_FAILED, "out of memory for answers");
}

static int answer_set(subject *s, long_set *set) {
    const eval_long_options *o = s->plan->options;
    const size_t together = o->batch ? (size_t)(o->batch < MOST ? o->batch : MOST) : TOGETHER;
    pal_ids ids[MOST] = { { 0 } };
    kept_lines kept = { 0 };
    rows r;
    int code = rows_open(&r, set->data);
    size_t all = r.count;
    if (o->limit && (size_t)o->limit < all) all = (size_t)o->limit;
    set->lines = json_array();
    if (!code && *set->answers) {
        char folder[LONG_PATH];
        pal_error err;
        const char *slash = strrchr(set->answers, '/');
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - set->answers) : 0, set->answers);
        if (pal_make_directory(folder, &err)) code = cli_fail_writing(&err);
        else code = kept_lines_open(&kept, set->answers, take_line, &(answered){ s, set });
    }
    s->start = pal_seconds();
    s->line = live_begin(stderr);
    const pal_engine_counts before = pal_engine_counted(s->engine);
    for (size_t i = json_array_size(set->lines); i < all && !code; i += together)
        code = answer_batch(s, set, &r, i, all - i < together ? all - i : together, all, ids, &kept);
    const pal_engine_counts after = pal_engine_counted(s->engine);
    set->read = after.read - before.read;
    set->read_seconds = after.read_seconds - before.read_seconds;
    while (!code && json_array_size(set->lines) > all) json_array_remove(set->lines, json_array_size(set->lines) - 1);
    live_clear(&s->line);
    const int closed = kept_lines_close(&kept);
    for (size_t i = 0; i < MOST; i++) pal_ids_free(&ids[i]);
    rows_close(&r);
    return code ? code : closed;
}

int long_answer(long_plan *plan, const pal_context *cx) {
    const eval_long_options *o = plan->options;
    subject s = { .plan = plan };
    pal_error err;
    int code = text_model_open(&s.bundle, o->model, o->tokenizer, NULL, cx);
    if (!code) {
        const pal_model *model = s.bundle.model;
        if (pal_model_grows(pal_model_config_of(model))) {
            int trained;
            if (pal_eval_trained_context(model, &trained, &err)) code = cli_fail(&err);
            s.most = (size_t)(trained ? trained : ATTENTION_CONTEXT);
        }
        snprintf(s.fingerprint, sizeof s.fingerprint, "%016llx",
                 (unsigned long long)(pal_model_fingerprint(model) ^ pal_tokenizer_fingerprint(s.bundle.tokenizer)));
        const pal_engine_options options = { .piece = o->piece, .context = (int)s.most };
        if (!code && pal_engine_new(&s.engine, model, s.bundle.tokenizer, cx, &options, &err)) code = cli_fail(&err);
    }
    for (size_t i = 0; i < plan->count && !code; i++)
        if (!plan->sets[i].left_out) code = answer_set(&s, &plan->sets[i]);
    if (s.engine) {
        const pal_engine_counts c = pal_engine_counted(s.engine);
        plan->read = c.read;
        plan->written = c.written;
        plan->read_seconds = c.read_seconds;
        plan->write_seconds = c.write_seconds;
    }
    pal_engine_free(s.engine);
    pal_bundle_close(&s.bundle);
    return code;
}
