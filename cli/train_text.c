/* SPDX-License-Identifier: MIT */
/* palimpsa train --task text: data, tokenizer and the settings that follow from them. */
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
#include "named_model.h"
#include "ranks.h"
#include "train.h"
#include "train/sample.h"
#include "train/task_text.h"

enum { NAME = 4096 };

/* Everything that the task has open. */
typedef struct {
    pal_shards *train[PAL_SOURCES], *valid[PAL_SOURCES];
    pal_tokenizer *tokenizer;
    pal_tokenizer *asked, *own; /* those of --tokenizer and of --model, which the data must fit; may be NULL */
    pal_text_task *task;
    train_eval *tasks; /* that are measured at evaluations; NULL: none */
    bool validates;
    double tokens;               /* of the whole run */
    char *made[2 * PAL_SOURCES]; /* directories of shards that this call made */
    int made_count;
} text_run;

static void defaults(train_options *o) {
    /* The paper's settings for language; what depends on the model and the data is settled later. */
    *o = (train_options){ .task = "text",
                          .ranks = 1,
                          .comm_timeout = 120,
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
static int split_weight(char *path, double *weight) {
    *weight = 1;
    char *equals = strrchr(path, '='), *end;
    if (!equals || access(path, F_OK) == 0) return CLI_OK;
    *weight = strtod(equals + 1, &end);
    if (end == equals + 1 || *end || !(*weight > 0) || !isfinite(*weight))
        return cli_error(CLI_USAGE, "--data '%s': expected a number above 0 behind '='", path);
    *equals = '\0';
    return CLI_OK;
}

/* A text file becomes shards in the run's directory; there they are found again when the run is resumed. */
static int text_to_shards(text_run *t, const train_options *o, const char *file, const char *out, const char *tokenizer,
                          double valid, const pal_context *cx) {
    pal_tokenize_result r;
    pal_error err;
    if (!tokenizer)
        return cli_error(CLI_USAGE, "%s is a text: give --tokenizer (bytes, chars, a file or a directory)", file);
    if (o->dry_run)
        return cli_error(CLI_USAGE,
                         "--dry-run writes nothing, and %s is a text; make shards of it first ('palimpsa tokenize')",
                         file);
    const bool fresh = access(out, F_OK) != 0;
    const pal_tokenize_job job = { .files = &file,
                                   .count = 1,
                                   .field = o->field,
                                   .out = out,
                                   .tokenizer = tokenizer,
                                   .no_eos = o->no_eos,
                                   .valid = valid,
                                   .cx = cx };
    const pal_status st = pal_tokenize(&job, &r, &err);
    if (fresh && access(out, F_OK) == 0) t->made[t->made_count++] = pal_strdup(out);
    if (st) return r.began ? cli_fail_writing(&err) : cli_fail(&err);
    if (!r.complete_before) printf("%s: %llu tokens in %s\n", file, (unsigned long long)r.done.tokens, out);
    return CLI_OK;
}

/* Opens the sources of a list into set[]; text files use the tokenizer `spec`. */
static int open_list(text_run *t, const train_options *o, const char *list, const char *kind, const char *spec,
                     double valid, const pal_context *cx, pal_shards **set, pal_text_source *sources, int *count) {
    char item[NAME], out[NAME];
    const char *at = list;
    pal_error err;
    int code;
    *count = 0;
    while (*at) {
        const size_t length = strcspn(at, ",");
        double weight;
        if (*count == PAL_SOURCES) return cli_error(CLI_USAGE, "--%s: more than %d sources", kind, PAL_SOURCES);
        if (length == 0 || length >= sizeof item)
            return cli_error(CLI_USAGE, "--%s '%s': expected paths separated by commas", kind, list);
        memcpy(item, at, length);
        item[length] = '\0';
        at += length + (at[length] == ',');
        if ((code = split_weight(item, &weight))) return code;
        const char *shards = item;
        if ((code = cli_path(out, sizeof out, "%s/%s-%d", o->out, kind, *count))) return code;
        if (!is_directory(item)) {
            if (!o->resume && access(item, R_OK) != 0)
                return cli_error(CLI_USAGE, "--%s %s: cannot open: %s", kind, item, strerror(errno));
            const bool made = (pal_shards_exist(out) && o->resume) || !pal_comm_is_root(ranks_comm());
            if (!made && (code = text_to_shards(t, o, item, out, spec, valid, cx))) return code;
            shards = out;
        }
        if (pal_shards_open(&set[*count], shards, &err)) return cli_fail(&err);
        sources[*count] = (pal_text_source){ .shards = set[*count], .subset = PAL_SUBSET_ALL, .weight = weight };
        ++*count;
        if (!o->resume && pal_shards_verify(set[*count - 1], &err)) return cli_fail(&err);
    }
    return *count ? CLI_OK : cli_error(CLI_USAGE, "--%s is empty", kind);
}

static int check_fit(const pal_shards *shards, const pal_tokenizer *tok, const char *whose) {
    const pal_shards_info *info = pal_shards_info_of(shards);
    if (info->tokenizer == pal_tokenizer_fingerprint(tok)) return CLI_OK;
    return cli_error(CLI_USAGE,
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
static size_defaults defaults_for(const train_options *o, const pal_model_config *model) {
    const double vocab = model ? (cli_names_files(o->model) ? model->vocab : o->vocab) : 0,
                 wide = model ? model->hidden : 0;
    const double n = wide * (vocab + 12.0 * (model ? model->layers : 0) * wide); /* to an order of magnitude */
    const bool tuning = cli_names_files(o->model);
    size_defaults d = {
        .context = 4096, .row = 32768, .batch = 1, .lr = n > 4e8 ? 1.25e-3 : 3e-3, .warmup = tuning ? 200 : 2000
    };
    if (n < 3e7) d.context = 1024, d.row = 8192, d.batch = 2;
    if (n < 6e6) d.context = 256, d.row = 2048, d.batch = 8;
    if (tuning) d.lr /= 10;
    return d;
}

static pal_order settle_order(const train_options *o, const pal_text_source *sources, int count) {
    enum { FEW = 1000 };
    uint64_t documents = 0;
    if (strcmp(o->shuffle, "documents") == 0) return PAL_ORDER_DOCUMENTS;
    if (strcmp(o->shuffle, "sequences") == 0) return PAL_ORDER_SEQUENCES;
    if (strcmp(o->shuffle, "no") == 0) return PAL_ORDER_STORED;
    for (int i = 0; i < count; i++)
        documents += pal_shards_info_of(sources[i].shards)->subset[sources[i].subset].documents;
    return documents < FEW ? PAL_ORDER_SEQUENCES : PAL_ORDER_DOCUMENTS; /* few documents cannot be shuffled well */
}

/* Which validation there is: its own data, or what the training data holds back. */
static int open_valid(text_run *t, const train_options *o, pal_text_options *p, const char *tokenizer_dir,
                      const pal_context *cx) {
    int code;
    if (o->valid_data) {
        if ((code = open_list(t, o, o->valid_data, "valid-data", tokenizer_dir, 0, cx, t->valid, p->valid,
                              &p->valid_sources)))
            return code;
        for (int i = 0; i < p->valid_sources; i++)
            if ((code = check_fit(t->valid[i], t->tokenizer, tokenizer_dir))) return code;
    }
    for (int i = 0; i < p->sources; i++) {
        const pal_shards_info *info = pal_shards_info_of(t->train[i]);
        p->source[i].subset = PAL_SUBSET_TRAIN;
        if (!o->valid_data && info->subset[PAL_SUBSET_VALID].documents)
            p->valid[p->valid_sources++] =
                (pal_text_source){ .shards = t->train[i], .subset = PAL_SUBSET_VALID, .weight = 1 };
    }
    return CLI_OK;
}

/* Characters are learned from a text, and those of two texts differ. */
static int check_chars(const train_options *o) {
    char item[NAME];
    int texts = 0, code;
    double weight;
    for (const char *at = o->data; *at; at += strcspn(at, ","), at += *at == ',') {
        if (snprintf(item, sizeof item, "%.*s", (int)strcspn(at, ","), at) >= (int)sizeof item)
            continue; /* refused later */
        if ((code = split_weight(item, &weight))) return code;
        texts += !is_directory(item);
    }
    if (texts <= 1) return CLI_OK;
    return cli_error(CLI_USAGE,
                     "--tokenizer chars learns from one text, and --data has %d; learn from all of them first: "
                     "palimpsa tokenize --learn-chars --out DIR FILE...",
                     texts);
}

/* The tokenizer that was asked for, and the one that a model's directory may hold: its ids are what the model was
 * trained with. path: where the latter is, or "". */
static int open_tokenizers(text_run *t, const train_options *o, char *path, size_t size) {
    pal_source source;
    pal_error err;
    path[0] = '\0';
    if (cli_names_files(o->model)) {
        if (pal_source_open(&source, o->model, &err)) return cli_fail(&err);
        if (pal_tokenizer_open(&t->own, source.path, &err)) t->own = NULL;
        else snprintf(path, size, "%s", source.path);
        pal_source_close(&source);
    }
    if (!o->tokenizer) return CLI_OK;
    if (strcmp(o->tokenizer, "chars") == 0)
        return t->own ? cli_error(CLI_USAGE,
                                  "--tokenizer chars: --model %s has a vocabulary of its own; leave --tokenizer out",
                                  o->model)
                      : check_chars(o);
    if (pal_tokenizer_open(&t->asked, o->tokenizer, &err)) {
        t->asked = NULL;
        return cli_fail(&err);
    }
    if (!t->own || pal_tokenizer_fingerprint(t->asked) == pal_tokenizer_fingerprint(t->own)) return CLI_OK;
    return cli_error(CLI_USAGE,
                     "--tokenizer %s (%zu ids, fingerprint %016llx) is another tokenizer than the one of --model %s "
                     "(%zu ids, %016llx)",
                     o->tokenizer, pal_tokenizer_size(t->asked),
                     (unsigned long long)pal_tokenizer_fingerprint(t->asked), o->model, pal_tokenizer_size(t->own),
                     (unsigned long long)pal_tokenizer_fingerprint(t->own));
}

static int check(const train_options *o, const pal_model_config *model) {
    static const char *const orders[] = { "auto", "documents", "sequences", "no" };
    bool known = false;
    (void)model;
    const int code = train_check_counts(o);
    if (code) return code;
    if (!o->data) return cli_error(CLI_USAGE, "train: --task text needs --data with shards or a text file");
    if (!(o->valid >= 0 && o->valid < 1)) return cli_error(CLI_USAGE, "--valid is %g, expected 0 to below 1", o->valid);
    if (o->carry_state && o->recompute) return cli_error(CLI_USAGE, "--carry-state does not go with --recompute");
    if (o->row < 0 || o->context < 0 || o->batch < 0 || o->valid_tokens < 0)
        return cli_error(CLI_USAGE, "--row, --context, --batch and --valid-tokens must not be negative");
    if (o->sample_tokens < 0 || o->sample_tokens > PAL_SAMPLE_MOST)
        return cli_error(CLI_USAGE, "--sample-tokens is %d, expected 0 to %d", o->sample_tokens, PAL_SAMPLE_MOST);
    for (size_t i = 0; i < PAL_COUNT(orders); i++) known |= strcmp(orders[i], o->shuffle) == 0;
    if (!known) return cli_error(CLI_USAGE, "--shuffle '%s': expected auto, documents, sequences or no", o->shuffle);
    if (o->sample && !*o->sample) return cli_error(CLI_USAGE, "--sample expects a prompt, found an empty one");
    return train_eval_check(o);
}

static int settle(train_options *o, const pal_model_config *model, pal_text_options *p) {
    const size_defaults d = defaults_for(o, model);
    if (!o->context) o->context = o->row && o->row < d.context ? o->row : d.context;
    if (!o->row) o->row = d.row > o->context ? d.row : o->context;
    if (isnan(o->lr)) o->lr = d.lr;
    p->row = o->row, p->context = o->context, p->batch = o->batch ? o->batch : d.batch, p->accumulate = o->accumulate;
    enum { ENOUGH = 64 }; /* updates in an epoch: a short text is learned from in smaller ones */
    while (!o->batch && p->batch > 1 && pal_text_epoch_steps(p) < ENOUGH) p->batch /= 2;
    o->batch = p->batch;
    const int64_t epoch = pal_text_epoch_steps(p);
    if (!o->steps && o->epochs > TRAIN_MOST_STEPS / epoch)
        return cli_error(CLI_USAGE, "%lld epochs of %lld updates: expected at most %lld updates", (long long)o->epochs,
                         (long long)epoch, (long long)TRAIN_MOST_STEPS);
    if (!o->steps) o->steps = (o->epochs ? o->epochs : 1) * epoch;
    if (o->warmup < 0) o->warmup = o->steps / 10 < d.warmup ? o->steps / 10 : d.warmup;
    else if (o->warmup >= o->steps && !o->resume)
        pal_warn("the run of %lld updates ends within its warm-up of %lld and never reaches the rate %g; say --warmup",
                 (long long)o->steps, (long long)o->warmup, o->lr);
    if (!o->eval_every) o->eval_every = o->steps / 20 ? o->steps / 20 : 1;
    if (!o->checkpoint_every) o->checkpoint_every = o->steps / 5 ? o->steps / 5 : 1;
    p->steps = o->steps;
    return CLI_OK;
}

/* Shards say where responses begin, if they were made of pairs. */
static int check_pairs(const train_options *o, pal_shards *const *set, int count) {
    for (int i = 0; i < count && pal_text_field_pairs(o->field); i++)
        if (!pal_shards_info_of(set[i])->pairs)
            return cli_error(CLI_USAGE,
                             "--field %s: %s was not made with this field, or by a version that did not "
                             "keep where responses begin; tokenize it again",
                             o->field, pal_shards_info_of(set[i])->path);
    return CLI_OK;
}

/* The ids of the data are known before it is read, unless they are its characters: a model that has fewer is refused
 * before a long text is tokenized. */
static int check_known_ids(const text_run *t, const train_options *o, const pal_model_config *model) {
    const pal_tokenizer *known = t->asked ? t->asked : t->own;
    if (!known || !cli_names_files(o->model)) return CLI_OK;
    return train_check_vocabulary(o, model->vocab, (int)pal_tokenizer_size(known));
}

/* The training data and their tokenizer, which those of --tokenizer and --model have to be. */
static int open_data(text_run *t, train_options *o, const pal_model_config *model, const pal_context *cx,
                     pal_text_options *p) {
    char model_tokenizer[NAME] = "";
    pal_error err;
    int code;
    if (!o->resume && ((code = open_tokenizers(t, o, model_tokenizer, sizeof model_tokenizer)) ||
                       (code = check_known_ids(t, o, model))))
        return code;
    const char *spec = o->tokenizer ? o->tokenizer : model_tokenizer[0] ? model_tokenizer : NULL;
    if ((code = open_list(t, o, o->data, "data", spec, o->valid_data ? 0 : o->valid, cx, t->train, p->source,
                          &p->sources)))
        return code;
    const char *home = pal_shards_info_of(t->train[0])->path;
    if (pal_tokenizer_open(&t->tokenizer, home, &err)) return cli_fail(&err);
    for (int i = 0; i < p->sources; i++)
        if ((code = check_fit(t->train[i], t->tokenizer, home))) return code;
    if (t->asked && (code = check_fit(t->train[0], t->asked, o->tokenizer))) return code;
    if (t->own && (code = check_fit(t->train[0], t->own, model_tokenizer)))
        return code; /* its ids would mean something else */
    const int ids = (int)pal_tokenizer_size(t->tokenizer);
    if (!o->vocab) o->vocab = ids;
    if (o->vocab < ids)
        return cli_error(CLI_USAGE, "--vocab is %d, the tokenizer of %s has %d ids", o->vocab, home, ids);
    if (model && cli_names_files(o->model) && (code = train_check_vocabulary(o, model->vocab, o->vocab))) return code;
    p->responses = pal_text_field_pairs(o->field);
    if ((code = check_pairs(o, t->train, p->sources)) || (code = open_valid(t, o, p, home, cx))) return code;
    return o->valid_data ? check_pairs(o, t->valid, p->valid_sources) : CLI_OK;
}

/* So that a run goes on with the data it began with. */
static const char *checksum_of(const text_run *t, const pal_text_options *p) {
    static char checksum[17]; /* lives as long as the options that point to it */
    uint64_t sum = 0;
    for (int i = 0; i < p->sources; i++) sum = sum * 31 + pal_shards_info_of(t->train[i])->fingerprint;
    for (int i = 0; i < p->valid_sources; i++) sum = sum * 31 + pal_shards_info_of(p->valid[i].shards)->fingerprint;
    snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)sum);
    return checksum;
}

static int open_task(void **self, train_options *o, const pal_model_config *model, const pal_context *cx,
                     pal_task *task) {
    text_run *t;
    pal_text_options p = { .seed = (uint64_t)o->seed,
                           .valid_tokens = o->valid_tokens,
                           .carry = o->carry_state,
                           .comm = ranks_comm(),
                           .sample = o->sample,
                           .sample_tokens = o->sample_tokens };
    pal_error err;
    int code;
    if (pal_alloc_named((void **)&t, 1, sizeof *t, "the task", &err)) return cli_fail(&err);
    *self = t;
    if (o->resume && (code = check(o, NULL))) return code;
    /* Rank 0 makes shards of texts, which takes any time; the others then find them. */
    const pal_comm *comm = ranks_comm();
    if (pal_comm_is_root(comm) && (code = open_data(t, o, model, cx, &p))) return code;
    if (pal_comm_meet(comm, &err)) return cli_fail(&err);
    if (!pal_comm_is_root(comm) && (code = open_data(t, o, model, cx, &p))) return code;
    p.order = settle_order(o, p.source, p.sources);
    if ((code = settle(o, model, &p))) return code;
    o->data_checksum = checksum_of(t, &p);
    p.tokenizer = t->tokenizer;
    if ((code = train_eval_open(&t->tasks, o, model, t->tokenizer, cx))) return code;
    if (t->tasks) p.also = train_eval_run, p.user = t->tasks;
    t->validates = p.valid_sources > 0;
    t->tokens = (double)o->steps * o->accumulate * o->batch * o->row;
    return pal_text_task_new(&t->task, cx, &p, task, &err) ? cli_fail(&err) : CLI_OK;
}

static void close_task(void *self, bool began) {
    text_run *t = self;
    if (!t) return;
    pal_text_task_free(t->task);
    train_eval_close(t->tasks);
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

static void tell(const train_options *o, const void *self) {
    (void)self;
    printf("%lld updates of %d x %d x %d tokens, context %d%s\n", (long long)o->steps, o->accumulate, o->batch, o->row,
           o->context,
           o->carry_state ? "; memories are carried from row to row, gradients are not (truncated back-propagation)"
                          : "");
}

static void report(const void *self, const pal_train_result *r) {
    const text_run *t = self;
    if (!t->validates)
        printf("loss %.4f, perplexity %.4g; nothing was held back to validate on", r->loss, exp(r->loss));
    else if (isfinite(r->score))
        printf("validation loss %.4f, perplexity %.4g (best %.4f at step %lld)", -r->score, exp(-r->score),
               -r->best_score, (long long)r->best_step);
    else if (isfinite(r->best_score))
        printf("the validation loss is not a number (best %.4f at step %lld)", -r->best_score, (long long)r->best_step);
    else printf("the validation loss is not a number");
}

const train_task train_text = { .name = "text",
                                .group = "task text (language)",
                                .defaults = defaults,
                                .check = check,
                                .open = open_task,
                                .close = close_task,
                                .tokens = tokens,
                                .labelled = labelled,
                                .tell = tell,
                                .report = report };
