/* SPDX-License-Identifier: MIT */
/* Task text of a run: data, tokenizer and the settings that follow from them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/log.h"
#include "data/text.h"
#include "data/tokenize.h"
#include "format/source.h"
#include "model/named.h"
#include "text/tokenizer.h"
#include "train/run.h"
#include "train/sample.h"
#include "train/task_text.h"

enum { NAME = 4096 };

/* Everything that the task has open. */
typedef struct {
    pal_shards *train[PAL_SOURCES], *valid[PAL_SOURCES];
    pal_tokenizer *tokenizer;
    pal_tokenizer *asked, *own; /* those of --tokenizer and of --model, which the data must fit; may be NULL */
    pal_text_task *task;
    pal_run_tasks *tasks; /* that are measured at evaluations; NULL: none */
    bool validates;
    pal_order order;             /* of the training data */
    double tokens;               /* of the whole run */
    char *made[2 * PAL_SOURCES]; /* directories of shards that this call made */
    int made_count;
    char checksum[17];
} text_run;

static void defaults(pal_train_settings *o) {
    /* The paper's settings for language; what depends on the model and the data is settled later. */
    *o = (pal_train_settings){ .task = "text",
                               .ranks = 1,
                               .seed = 1,
                               .log_every = 10,
                               .accumulate = 1,
                               .lr = NAN,
                               .lr_floor = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-15,
                               .weight_decay = 0.1,
                               .clip = 1,
                               .stop_score = NAN,
                               .decay = "everything",
                               .optimiser_precision = "f32",
                               .schedule = "cosine",
                               .warmup = -1,
                               .shuffle = "auto",
                               .sample_tokens = 200,
                               .save_dtype = "f32",
                               .valid = 0.05 };
}

static bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* "PATH=WEIGHT": the weight is taken off; a path that exists as it stands has none. */
static pal_status split_weight(char *path, double *weight, pal_error *err) {
    *weight = 1;
    char *equals = strrchr(path, '='), *end;
    if (!equals || access(path, F_OK) == 0) return PAL_OK;
    *weight = strtod(equals + 1, &end);
    if (end == equals + 1 || *end || !(*weight > 0) || !isfinite(*weight))
        return pal_fail(err, PAL_E_ARGUMENT, "--data '%s': expected a number above 0 after '='", path);
    *equals = '\0';
    return PAL_OK;
}

/* A text file becomes shards in the run's directory; there they are found again when the run is resumed. */
static pal_status text_to_shards(text_run *t, pal_run *r, const pal_train_settings *o, const char *file,
                                 const char *out, const char *tokenizer, double valid, pal_error *err) {
    pal_tokenize_result made;
    if (!tokenizer)
        return pal_fail(err, PAL_E_ARGUMENT, "%s is a text: give --tokenizer (bytes, chars, a file or a directory)",
                        file);
    const bool fresh = access(out, F_OK) != 0;
    const pal_tokenize_job job = { .files = &file,
                                   .count = 1,
                                   .field = o->field,
                                   .out = out,
                                   .tokenizer = tokenizer,
                                   .no_eos = o->no_eos,
                                   .valid = valid,
                                   .cx = r->cx };
    const pal_status st = pal_tokenize(&job, &made, err);
    if (fresh && access(out, F_OK) == 0) t->made[t->made_count++] = pal_strdup(out);
    r->at_work = st && made.began;
    if (st) return st;
    if (!made.complete_before)
        pal_run_tell(r, "%s: %llu tokens in %s", file, (unsigned long long)made.done.tokens, out);
    return PAL_OK;
}

/* Up to the next comma, or a later one where a path with commas exists. */
static size_t item_length(const char *list) {
    char path[NAME];
    double weight;
    const size_t first = strcspn(list, ",");
    for (size_t length = first; length < sizeof path; length += 1 + strcspn(list + length + 1, ",")) {
        snprintf(path, sizeof path, "%.*s", (int)length, list);
        if (split_weight(path, &weight, NULL) == PAL_OK && access(path, F_OK) == 0) return length;
        if (!list[length]) break;
    }
    return first;
}

/* Opens the sources of a list into set[]; text files use the tokenizer `spec`. */
static pal_status open_list(text_run *t, pal_run *r, const pal_train_settings *o, const char *list, const char *kind,
                            const char *spec, double valid, pal_shards **set, pal_text_source *sources, int *count,
                            pal_error *err) {
    char item[NAME], out[NAME];
    const char *at = list;
    pal_status st;
    *count = 0;
    while (*at) {
        const size_t length = item_length(at);
        double weight;
        if (*count == PAL_SOURCES)
            return pal_fail(err, PAL_E_ARGUMENT, "--%s: more than %d sources", kind, PAL_SOURCES);
        if (length == 0 || length >= sizeof item)
            return pal_fail(err, PAL_E_ARGUMENT, "--%s '%s': expected paths separated by commas", kind, list);
        memcpy(item, at, length);
        item[length] = '\0';
        at += length + (at[length] == ',');
        if ((st = split_weight(item, &weight, err))) return st;
        const char *shards = item;
        if ((st = pal_path(out, sizeof out, err, "%s/%s-%d", r->out, kind, *count))) return st;
        if (!is_directory(item)) {
            if (!r->resume && access(item, R_OK) != 0)
                return pal_fail(err, PAL_E_IO, "--%s %s: cannot open: %s", kind, item, strerror(errno));
            const bool made = (pal_shards_exist(out) && r->resume) || !pal_comm_is_root(r->comm);
            if (!made && (st = text_to_shards(t, r, o, item, out, spec, valid, err))) return st;
            shards = out;
        }
        if ((st = pal_shards_open(&set[*count], shards, err))) return st;
        sources[*count] = (pal_text_source){ .shards = set[*count], .subset = PAL_SUBSET_ALL, .weight = weight };
        ++*count;
        if (!r->resume && (st = pal_shards_verify(set[*count - 1], err))) return st;
    }
    return *count ? PAL_OK : pal_fail(err, PAL_E_ARGUMENT, "--%s is empty", kind);
}

static pal_status check_fit(const pal_shards *shards, const pal_tokenizer *tok, const char *whose, pal_error *err) {
    const pal_shards_info *info = pal_shards_info_of(shards);
    if (info->tokenizer == pal_tokenizer_fingerprint(tok)) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT,
                    "%s was made with another tokenizer (%u ids, fingerprint %016llx) than %s (%zu ids, %016llx)",
                    info->path, info->vocabulary, (unsigned long long)info->tokenizer, whose, pal_tokenizer_size(tok),
                    (unsigned long long)pal_tokenizer_fingerprint(tok));
}

/* Sizes of a run by the size of its model: what was not asked for. */
typedef struct {
    int context, row, batch;
    double lr;
    int64_t warmup;
} size_defaults;

/* model NULL: a resumed run, in which all is settled. */
static size_defaults defaults_for(const pal_train_settings *o, const pal_model_config *model) {
    const double vocab = model ? (pal_names_files(o->model) ? model->vocab : o->vocab) : 0,
                 wide = model ? model->hidden : 0;
    const double n = wide * (vocab + 12.0 * (model ? model->layers : 0) * wide); /* to an order of magnitude */
    const bool tuning = pal_names_files(o->model);
    size_defaults d = {
        .context = 4096, .row = 32768, .batch = 1, .lr = n > 4e8 ? 1.25e-3 : 3e-3, .warmup = tuning ? 200 : 2000
    };
    if (n < 3e7) d.context = 1024, d.row = 8192, d.batch = 2;
    if (n < 6e6) d.context = 256, d.row = 2048, d.batch = 8;
    if (tuning) d.lr /= 10;
    return d;
}

/* auto becomes what it means, so that a later program resumes with the same order. */
static pal_order settle_order(pal_train_settings *o, bool resumed, const pal_text_source *sources, int count) {
    enum { FEW = 1000 };
    uint64_t all = 0, least = UINT64_MAX;
    for (int i = 0; i < count; i++) {
        const uint64_t documents = pal_shards_info_of(sources[i].shards)->subset[sources[i].subset].documents;
        all += documents;
        if (documents < least) least = documents;
    }
    const bool settles = strcmp(o->shuffle, "auto") == 0;
    if (o->carry_state) { /* memories are carried along a text */
        if (settles) o->shuffle = "no";
        return PAL_ORDER_STORED;
    }
    /* A run that has begun with auto is of a program that asked for all sources together. */
    if (settles && resumed) return all < FEW ? PAL_ORDER_SEQUENCES : PAL_ORDER_DOCUMENTS;
    /* Few documents cannot be shuffled well, and a source of few, long ones is not mixed with the others. */
    if (settles) o->shuffle = least < FEW ? "sequences" : "documents";
    if (strcmp(o->shuffle, "documents") == 0) return PAL_ORDER_DOCUMENTS;
    if (strcmp(o->shuffle, "sequences") == 0) return PAL_ORDER_SEQUENCES;
    return PAL_ORDER_STORED;
}

/* Which validation there is: its own data, or what the training data holds back. */
static pal_status open_valid(text_run *t, pal_run *r, const pal_train_settings *o, pal_text_options *p,
                             const char *tokenizer_dir, pal_error *err) {
    pal_status st;
    if (o->valid_data) {
        if ((st = open_list(t, r, o, o->valid_data, "valid-data", tokenizer_dir, 0, t->valid, p->valid,
                            &p->valid_sources, err)))
            return st;
        for (int i = 0; i < p->valid_sources; i++)
            if ((st = check_fit(t->valid[i], t->tokenizer, tokenizer_dir, err))) return st;
    }
    for (int i = 0; i < p->sources; i++) {
        const pal_shards_info *info = pal_shards_info_of(t->train[i]);
        p->source[i].subset = PAL_SUBSET_TRAIN;
        if (!o->valid_data && info->subset[PAL_SUBSET_VALID].documents)
            p->valid[p->valid_sources++] =
                (pal_text_source){ .shards = t->train[i], .subset = PAL_SUBSET_VALID, .weight = 1 };
    }
    return PAL_OK;
}

/* Characters are learned from a text, and those of two texts differ. */
static pal_status check_chars(const pal_train_settings *o, pal_error *err) {
    char item[NAME];
    int texts = 0;
    pal_status st;
    double weight;
    for (const char *at = o->data; *at; at += item_length(at), at += *at == ',') {
        if (snprintf(item, sizeof item, "%.*s", (int)item_length(at), at) >= (int)sizeof item)
            continue; /* refused later */
        if ((st = split_weight(item, &weight, err))) return st;
        texts += !is_directory(item);
    }
    if (texts <= 1) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT,
                    "--tokenizer chars learns from one text, and --data has %d; learn from all of them first: "
                    "palimpsa tokenize --learn-chars --out DIR FILE...",
                    texts);
}

/* The tokenizer that was asked for, and the one that a model's directory may hold: its ids are what the model was
 * trained with. path: where the latter is, or "". */
static pal_status open_tokenizers(text_run *t, const pal_train_settings *o, char *path, size_t size, pal_error *err) {
    pal_source source;
    pal_status st;
    path[0] = '\0';
    if (pal_names_files(o->model)) {
        if ((st = pal_source_open(&source, o->model, err))) return st;
        if (pal_tokenizer_open_path(&t->own, source.path, NULL)) t->own = NULL;
        else snprintf(path, size, "%s%s", strchr(source.path, '/') ? "" : "./", source.path); /* not named "bytes" */
        pal_source_close(&source);
    }
    if (!o->tokenizer) return PAL_OK;
    if (strcmp(o->tokenizer, "chars") == 0)
        return t->own
                   ? pal_fail(err, PAL_E_ARGUMENT,
                              "--tokenizer chars: --model %s has its own vocabulary; leave --tokenizer out", o->model)
                   : check_chars(o, err);
    if ((st = pal_tokenizer_open(&t->asked, o->tokenizer, err))) {
        t->asked = NULL;
        return st;
    }
    if (!t->own || pal_tokenizer_fingerprint(t->asked) == pal_tokenizer_fingerprint(t->own)) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT,
                    "--tokenizer %s (%zu ids, fingerprint %016llx) is another tokenizer than the one of --model %s "
                    "(%zu ids, %016llx)",
                    o->tokenizer, pal_tokenizer_size(t->asked), (unsigned long long)pal_tokenizer_fingerprint(t->asked),
                    o->model, pal_tokenizer_size(t->own), (unsigned long long)pal_tokenizer_fingerprint(t->own));
}

static pal_status check(const pal_train_settings *o, const pal_model_config *model, pal_error *err) {
    static const char *const orders[] = { "auto", "documents", "sequences", "no" };
    bool known = false;
    (void)model;
    const pal_status st = pal_run_check_counts(o, err);
    if (st) return st;
    if (!o->data) return pal_fail(err, PAL_E_ARGUMENT, "train: --task text needs --data with shards or a text file");
    if (!(o->valid >= 0 && o->valid < 1))
        return pal_fail(err, PAL_E_ARGUMENT, "--valid is %g, expected 0 to below 1", o->valid);
    if (o->carry_state && o->recompute)
        return pal_fail(err, PAL_E_ARGUMENT, "--carry-state does not go with --recompute");
    if (o->row < 0 || o->context < 0 || o->batch < 0 || o->valid_tokens < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "--row, --context, --batch and --valid-tokens must not be negative");
    if (o->valid_tokens == 1)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "--valid-tokens is 1, expected 0 (all) or at least 2: a token is predicted "
                        "from one before it");
    if (o->sample_tokens < 0 || o->sample_tokens > PAL_SAMPLE_MOST)
        return pal_fail(err, PAL_E_ARGUMENT, "--sample-tokens is %d, expected 0 to %d", o->sample_tokens,
                        PAL_SAMPLE_MOST);
    for (size_t i = 0; i < PAL_COUNT(orders); i++) known |= strcmp(orders[i], o->shuffle) == 0;
    if (!known)
        return pal_fail(err, PAL_E_ARGUMENT, "--shuffle '%s': expected auto, documents, sequences or no", o->shuffle);
    if (o->sample && !*o->sample) return pal_fail(err, PAL_E_ARGUMENT, "--sample expects a prompt, found an empty one");
    return pal_run_tasks_check(o, err);
}

static pal_status settle(const pal_run *r, pal_train_settings *o, const pal_model_config *model, pal_text_options *p,
                         pal_error *err) {
    const size_defaults d = defaults_for(o, model);
    if (o->carry_state && !r->resume && strcmp(o->shuffle, "no") != 0)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "--carry-state reads a text in its order; it does not go with --shuffle %s", o->shuffle);
    if (!o->context) o->context = o->row && o->row < d.context ? o->row : d.context;
    if (!o->row) o->row = d.row > o->context ? d.row : o->context;
    if (isnan(o->lr)) o->lr = d.lr;
    p->row = o->row, p->context = o->context, p->batch = o->batch ? o->batch : d.batch, p->accumulate = o->accumulate;
    enum { ENOUGH = 64 }; /* updates in an epoch: a short text is learned from in smaller ones */
    while (!o->batch && p->batch > 1 && pal_text_epoch_steps(p) < ENOUGH) p->batch /= 2;
    o->batch = p->batch;
    const int64_t epoch = pal_text_epoch_steps(p);
    if (!o->steps && o->epochs > PAL_MOST_STEPS / epoch)
        return pal_fail(err, PAL_E_ARGUMENT, "%lld epochs of %lld updates: expected at most %lld updates",
                        (long long)o->epochs, (long long)epoch, (long long)PAL_MOST_STEPS);
    if (!o->steps) o->steps = (o->epochs ? o->epochs : 1) * epoch;
    if (o->warmup < 0) o->warmup = o->steps / 10 < d.warmup ? o->steps / 10 : d.warmup;
    else if (o->warmup >= o->steps && !r->resume)
        pal_warn("the run of %lld updates ends within its warm-up of %lld and never reaches the rate %g; say --warmup",
                 (long long)o->steps, (long long)o->warmup, o->lr);
    if (!o->eval_every) o->eval_every = o->steps / 20 ? o->steps / 20 : 1;
    if (!o->checkpoint_every) o->checkpoint_every = o->steps / 5 ? o->steps / 5 : 1;
    p->steps = o->steps;
    return PAL_OK;
}

/* Shards say where responses begin, if they were made of pairs. */
static pal_status check_pairs(const pal_train_settings *o, pal_shards *const *set, int count, pal_error *err) {
    for (int i = 0; i < count && pal_text_field_pairs(o->field); i++)
        if (!pal_shards_info_of(set[i])->pairs)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "--field %s: %s was not made with this field, or by a version that did not "
                            "keep where responses begin; tokenize it again",
                            o->field, pal_shards_info_of(set[i])->path);
    return PAL_OK;
}

/* The ids of the data are known before it is read, unless they are its characters: a model that has fewer is refused
 * before a long text is tokenized. */
static pal_status check_known_ids(const text_run *t, const pal_train_settings *o, const pal_model_config *model,
                                  pal_error *err) {
    const pal_tokenizer *known = t->asked ? t->asked : t->own;
    if (!known || !pal_names_files(o->model)) return PAL_OK;
    return pal_run_check_vocabulary(o, model->vocab, (int)pal_tokenizer_size(known), err);
}

/* The training data and their tokenizer, which those of --tokenizer and --model have to be. */
static pal_status open_data(text_run *t, pal_run *r, pal_train_settings *o, const pal_model_config *model,
                            pal_text_options *p, pal_error *err) {
    char model_tokenizer[NAME] = "";
    pal_status st;
    if (!r->resume && ((st = open_tokenizers(t, o, model_tokenizer, sizeof model_tokenizer, err)) ||
                       (st = check_known_ids(t, o, model, err))))
        return st;
    if (r->resume && pal_tokenizer_open_path(&t->own, r->out, NULL)) t->own = NULL; /* of its newest checkpoint */
    const char *spec = o->tokenizer ? o->tokenizer : model_tokenizer[0] ? model_tokenizer : NULL;
    if ((st = open_list(t, r, o, o->data, "data", spec, o->valid_data ? 0 : o->valid, t->train, p->source, &p->sources,
                        err)))
        return st;
    const char *home = pal_shards_info_of(t->train[0])->path;
    if ((st = pal_tokenizer_open_path(&t->tokenizer, home, err))) return st;
    for (int i = 0; i < p->sources; i++)
        if ((st = check_fit(t->train[i], t->tokenizer, home, err))) return st;
    if (t->asked && (st = check_fit(t->train[0], t->asked, o->tokenizer, err))) return st;
    if (t->own && (st = check_fit(t->train[0], t->own, model_tokenizer, err)))
        return st; /* its ids would mean something else */
    const int ids = (int)pal_tokenizer_size(t->tokenizer);
    if (!o->vocab) o->vocab = ids;
    if (o->vocab < ids)
        return pal_fail(err, PAL_E_ARGUMENT, "--vocab is %d, the tokenizer of %s has %d ids", o->vocab, home, ids);
    if (model && pal_names_files(o->model) && (st = pal_run_check_vocabulary(o, model->vocab, o->vocab, err)))
        return st;
    p->responses = pal_text_field_pairs(o->field);
    if ((st = check_pairs(o, t->train, p->sources, err)) || (st = open_valid(t, r, o, p, home, err))) return st;
    return o->valid_data ? check_pairs(o, t->valid, p->valid_sources, err) : PAL_OK;
}

/* So that a run resumes on the data it began with. */
static const char *checksum_of(text_run *t, const pal_text_options *p) {
    uint64_t sum = 0;
    for (int i = 0; i < p->sources; i++) sum = sum * 31 + pal_shards_info_of(t->train[i])->fingerprint;
    for (int i = 0; i < p->valid_sources; i++) sum = sum * 31 + pal_shards_info_of(p->valid[i].shards)->fingerprint;
    snprintf(t->checksum, sizeof t->checksum, "%016llx", (unsigned long long)sum);
    return t->checksum;
}

static pal_status open_task(void **self, pal_run *r, pal_train_settings *o, const pal_model_config *model,
                            pal_task *task, pal_error *err) {
    text_run *t;
    pal_text_options p = { .seed = (uint64_t)o->seed,
                           .valid_tokens = o->valid_tokens,
                           .carry = o->carry_state,
                           .comm = r->comm,
                           .asking = { pal_run_ask, r },
                           .sample = o->sample,
                           .sample_tokens = o->sample_tokens };
    pal_status st;
    if ((st = pal_alloc_named((void **)&t, 1, sizeof *t, "the task", err))) return st;
    *self = t;
    if (r->resume && (st = check(o, NULL, err))) return st;
    /* Rank 0 makes shards of texts, which takes any time; the others then find them. */
    if (pal_comm_is_root(r->comm) && (st = open_data(t, r, o, model, &p, err))) return st;
    if ((st = pal_comm_meet(r->comm, err))) return st;
    if (!pal_comm_is_root(r->comm) && (st = open_data(t, r, o, model, &p, err))) return st;
    p.order = t->order = settle_order(o, r->resume, p.source, p.sources);
    if ((st = settle(r, o, model, &p, err))) return st;
    o->data_checksum = checksum_of(t, &p);
    p.tokenizer = t->own ? t->own : t->tokenizer; /* the same ids; a model's own has its chat template, too */
    if ((st = pal_run_tasks_open(&t->tasks, r, o, model, t->tokenizer, err))) return st;
    if (t->tasks) p.also = pal_run_tasks_measure, p.user = t->tasks;
    t->validates = p.valid_sources > 0;
    t->tokens = (double)o->steps * o->accumulate * o->batch * o->row;
    return pal_text_task_new(&t->task, r->cx, &p, task, err);
}

static void close_task(void *self, bool began) {
    text_run *t = self;
    if (!t) return;
    pal_text_task_free(t->task);
    pal_run_tasks_close(t->tasks);
    for (int i = 0; i < PAL_SOURCES; i++) pal_shards_close(t->train[i]), pal_shards_close(t->valid[i]);
    pal_tokenizer_close(t->tokenizer);
    pal_tokenizer_close(t->asked);
    pal_tokenizer_close(t->own);
    for (int i = 0; i < t->made_count; i++) {
        if (!began && t->made[i]) pal_remove_directory(t->made[i]);
        pal_free(t->made[i]);
    }
    pal_free(t);
}

static double tokens(const void *self) { return ((const text_run *)self)->tokens; }

static double labelled(const void *self) {
    (void)self;
    return 1;
}

static bool validates(const void *self) { return ((const text_run *)self)->validates; }

static void describe(const pal_train_settings *o, const void *self, char *text, size_t size) {
    static const char *const orders[] = { [PAL_ORDER_STORED] = "documents as they are stored",
                                          [PAL_ORDER_DOCUMENTS] = "documents shuffled",
                                          [PAL_ORDER_SEQUENCES] = "pieces of documents shuffled" };
    snprintf(
        text, size, "%lld update%s of %d x %d x %d tokens, context %d, %s%s", (long long)o->steps,
        o->steps == 1 ? "" : "s", o->accumulate, o->batch, o->row, o->context, orders[((const text_run *)self)->order],
        o->carry_state ? "; memories are carried from row to row, gradients are not (truncated back-propagation)" : "");
}

const pal_run_task pal_run_text = { .name = "text",
                                    .group = "task text (language)",
                                    .defaults = defaults,
                                    .check = check,
                                    .open = open_task,
                                    .close = close_task,
                                    .tokens = tokens,
                                    .labelled = labelled,
                                    .validates = validates,
                                    .describe = describe };
