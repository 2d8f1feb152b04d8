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
#include "train.h"
#include "train/checkpoint.h"
#include "train/sample.h"

enum { NAME = 4096 };

void train_text_defaults(train_options *o) {
    /* The paper's settings for language; 0 is settled in train_text_open. */
    *o = (train_options){ .task = "text",
                          .model = "palimpsa-d",
                          .seed = 1,
                          .log_every = 10,
                          .accumulate = 1,
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
static int text_to_shards(const train_options *o, const char *file, const char *out, const char *tokenizer,
                          double valid, const pal_context *cx) {
    pal_tokenize_result r;
    pal_error err;
    if (!tokenizer)
        return cli_error(CLI_USAGE, "%s is a text: give --tokenizer (bytes, chars, a file or a directory)", file);
    if (o->dry_run)
        return cli_error(CLI_USAGE,
                         "--dry-run writes nothing, and %s is a text; make shards of it first ('palimpsa tokenize')",
                         file);
    const bool fresh = access(o->out, F_OK) != 0;
    if (pal_make_directory(o->out, &err)) return cli_fail_writing(&err);
    const pal_tokenize_job job = { .files = &file,
                                   .count = 1,
                                   .field = o->field,
                                   .out = out,
                                   .tokenizer = tokenizer,
                                   .no_eos = o->no_eos,
                                   .valid = valid,
                                   .cx = cx };
    pal_status st = pal_tokenize(&job, &r, &err);
    if (st == PAL_E_ARGUMENT && !r.began && pal_directory_has(out, "tokenize.json") &&
        !pal_directory_has(o->out, "config.json")) {
        pal_remove_directory(out); /* left by a run with other options, which never began */
        st = pal_tokenize(&job, &r, &err);
    }
    if (st && fresh) rmdir(o->out); /* when nothing is in it */
    if (st) return r.began ? cli_fail_writing(&err) : cli_fail(&err);
    if (!r.complete_before) printf("%s: %llu tokens in %s\n", file, (unsigned long long)r.done.tokens, out);
    return CLI_OK;
}

/* Opens the sources of a list into set[]; text files use the tokenizer `spec`. */
static int open_list(const train_options *o, const char *list, const char *kind, const char *spec, double valid,
                     const pal_context *cx, pal_shards **set, pal_text_source *sources, int *count) {
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
        if (snprintf(out, sizeof out, "%s/%s-%d", o->out, kind, *count) >= (int)sizeof out)
            return cli_error(CLI_USAGE, "%s: the path is too long", o->out);
        if (!is_directory(item)) {
            if (!o->resume && access(item, R_OK) != 0)
                return cli_error(CLI_USAGE, "--%s %s: cannot open: %s", kind, item, strerror(errno));
            const bool made = pal_shards_exist(out);
            if (!(made && o->resume) && (code = text_to_shards(o, item, out, spec, valid, cx))) return code;
            shards = out;
        }
        if (pal_shards_open(&set[*count], shards, &err)) return cli_fail(&err);
        sources[*count] = (pal_text_source){ .shards = set[*count], .part = PAL_PART_ALL, .weight = weight };
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

/* Parameters of the model to be, or 0 when it cannot be told here; the reason is told later, when it is made. */
static double parameters_of(const train_options *o) {
    pal_model_config c;
    pal_error err;
    if (train_starts_from_files(o->model)) {
        if (pal_model_read_config(&c, o->model, &err)) return 0;
    } else {
        const pal_preset_options preset = {
            .task = "text", .vocab = o->vocab, .hidden = o->hidden, .layers = o->layers
        };
        if (pal_model_preset(&c, o->model, &preset, &err)) return 0;
    }
    return (double)c.vocab * c.hidden + 12.0 * c.layers * c.hidden * c.hidden; /* to an order of magnitude */
}

static size_defaults defaults_for(const train_options *o) {
    const double n = parameters_of(o);
    const bool tuning = train_starts_from_files(o->model);
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
    for (int i = 0; i < count; i++) documents += pal_shards_info_of(sources[i].shards)->part[sources[i].part].documents;
    return documents < FEW ? PAL_ORDER_SEQUENCES : PAL_ORDER_DOCUMENTS; /* few documents cannot be shuffled well */
}

/* Which validation there is: its own data, or what the training data holds back. */
static int open_valid(train_text *t, const train_options *o, pal_text_options *p, const char *tokenizer_dir,
                      const pal_context *cx) {
    int code;
    if (o->valid_data) {
        if ((code = open_list(o, o->valid_data, "valid-data", tokenizer_dir, 0, cx, t->valid, p->valid,
                              &p->valid_sources)))
            return code;
        for (int i = 0; i < p->valid_sources; i++)
            if ((code = check_fit(t->valid[i], t->tokenizer, tokenizer_dir))) return code;
    }
    for (int i = 0; i < p->sources; i++) {
        const pal_shards_info *info = pal_shards_info_of(t->train[i]);
        p->source[i].part = PAL_PART_TRAIN;
        if (!o->valid_data && info->part[PAL_PART_VALID].documents)
            p->valid[p->valid_sources++] =
                (pal_text_source){ .shards = t->train[i], .part = PAL_PART_VALID, .weight = 1 };
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
static int open_tokenizers(train_text *t, const train_options *o, char *path, size_t size) {
    pal_source source;
    pal_error err;
    path[0] = '\0';
    if (train_starts_from_files(o->model)) {
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

/* What is wrong whatever the data are. */
static int check(const train_options *o) {
    static const char *const orders[] = { "auto", "documents", "sequences", "no" };
    bool known = false;
    if (!o->data) return cli_error(CLI_USAGE, "train: --task text needs --data with shards or a text file");
    if (!(o->valid >= 0 && o->valid < 1)) return cli_error(CLI_USAGE, "--valid is %g, expected 0 to below 1", o->valid);
    if (o->carry_state && o->recompute) return cli_error(CLI_USAGE, "--carry-state does not go with --recompute");
    if (o->row < 0 || o->context < 0 || o->batch < 0 || o->valid_tokens < 0 || o->sample_tokens < 0)
        return cli_error(CLI_USAGE,
                         "--row, --context, --batch, --valid-tokens and --sample-tokens must not be negative");
    if (o->sample_tokens > PAL_SAMPLE_MOST)
        return cli_error(CLI_USAGE, "--sample-tokens is %d, expected at most %d", o->sample_tokens, PAL_SAMPLE_MOST);
    if (o->accumulate < 1) return cli_error(CLI_USAGE, "--accumulate is %d, expected at least 1", o->accumulate);
    if (o->steps < 0 || o->steps > TRAIN_MOST_STEPS || o->epochs < 0 || o->epochs > TRAIN_MOST_STEPS)
        return cli_error(CLI_USAGE, "--steps %lld and --epochs %lld must be from 0 to %lld", (long long)o->steps,
                         (long long)o->epochs, (long long)TRAIN_MOST_STEPS);
    for (size_t i = 0; i < PAL_COUNT(orders); i++) known |= strcmp(orders[i], o->shuffle) == 0;
    if (!known) return cli_error(CLI_USAGE, "--shuffle '%s': expected auto, documents, sequences or no", o->shuffle);
    if (o->sample && !*o->sample) return cli_error(CLI_USAGE, "--sample expects a prompt, found an empty one");
    return CLI_OK;
}

static int settle(train_options *o, pal_text_options *p) {
    const size_defaults d = defaults_for(o);
    if (!o->context) o->context = o->row && o->row < d.context ? o->row : d.context;
    if (!o->row) o->row = d.row > o->context ? d.row : o->context;
    if (o->lr == 0) o->lr = d.lr;
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

/* Pairs of prompt and response: where the response begins, in ids; it must be found in the data as it was tokenized. */
static int open_mark(train_text *t, const train_options *o, pal_text_options *p) {
    pal_tokenizer_scratch *scratch;
    pal_error err;
    if (!pal_text_field_pairs(o->field)) return CLI_OK;
    if (pal_tokenizer_scratch_new(&scratch, t->tokenizer, &err)) return cli_fail(&err);
    const pal_status st = pal_tokenizer_encode(t->tokenizer, scratch, PAL_RESPONSE_MARK, strlen(PAL_RESPONSE_MARK),
                                               NULL, &t->mark, &err);
    pal_tokenizer_scratch_free(scratch);
    if (st) return cli_fail(&err);
    for (int i = 0; i < p->sources; i++) {
        const pal_document first = pal_shards_document(t->train[i], PAL_PART_ALL, 0);
        if (pal_document_behind(&first, t->mark.data, (int)t->mark.count) == first.tokens)
            return cli_error(CLI_USAGE, "--field %s: the first document of %s has no '%s' behind its prompt", o->field,
                             pal_shards_info_of(t->train[i])->path, PAL_RESPONSE_MARK);
    }
    p->mark = t->mark.data;
    p->mark_count = (int)t->mark.count;
    return CLI_OK;
}

int train_text_open(train_text *t, train_options *o, const pal_context *cx, pal_task *task) {
    char model_tokenizer[NAME];
    static char checksum[17]; /* lives as long as the options that point to it */
    pal_text_options p = { .seed = (uint64_t)o->seed,
                           .valid_tokens = o->valid_tokens,
                           .carry = o->carry_state,
                           .sample = o->sample,
                           .sample_tokens = o->sample_tokens };
    pal_error err;
    int code;
    *t = (train_text){ 0 };
    model_tokenizer[0] = '\0';
    if ((code = check(o)) || (!o->resume && (code = open_tokenizers(t, o, model_tokenizer, sizeof model_tokenizer))))
        return code;
    const char *spec = o->tokenizer ? o->tokenizer : model_tokenizer[0] ? model_tokenizer : NULL;
    if ((code = open_list(o, o->data, "data", spec, o->valid_data ? 0 : o->valid, cx, t->train, p.source, &p.sources)))
        return code;
    const char *home = pal_shards_info_of(t->train[0])->path;
    if (pal_tokenizer_open(&t->tokenizer, home, &err)) return cli_fail(&err);
    for (int i = 0; i < p.sources; i++)
        if ((code = check_fit(t->train[i], t->tokenizer, home))) return code;
    if (t->asked && (code = check_fit(t->train[0], t->asked, o->tokenizer))) return code;
    if (t->own && (code = check_fit(t->train[0], t->own, model_tokenizer)))
        return code; /* its ids would mean something else */
    const int ids = (int)pal_tokenizer_size(t->tokenizer);
    if (!o->vocab) o->vocab = ids;
    if (o->vocab < ids)
        return cli_error(CLI_USAGE, "--vocab is %d, the tokenizer of %s has %d ids", o->vocab, home, ids);
    if ((code = open_mark(t, o, &p)) || (code = open_valid(t, o, &p, home, cx))) return code;
    p.order = settle_order(o, p.source, p.sources);
    if ((code = settle(o, &p))) return code;
    uint64_t sum = 0;
    for (int i = 0; i < p.sources; i++) sum = sum * 31 + pal_shards_info_of(t->train[i])->fingerprint;
    for (int i = 0; i < p.valid_sources; i++) sum = sum * 31 + pal_shards_info_of(p.valid[i].shards)->fingerprint;
    snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)sum);
    o->data_checksum = checksum;
    p.tokenizer = t->tokenizer;
    if (pal_text_task_new(&t->task, cx, &p, task, &err)) return cli_fail(&err);
    return CLI_OK;
}

void train_text_close(train_text *t) {
    pal_text_task_free(t->task);
    pal_ids_free(&t->mark);
    for (int i = 0; i < PAL_SOURCES; i++) pal_shards_close(t->train[i]), pal_shards_close(t->valid[i]);
    pal_tokenizer_close(t->tokenizer);
    pal_tokenizer_close(t->asked);
    pal_tokenizer_close(t->own);
}
