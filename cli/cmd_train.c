/* SPDX-License-Identifier: MIT */
/* palimpsa train: options to a run directory. What defines the run is config.json there; a resumed run starts from it.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/map.h"
#include "cli.h"
#include "format/model_dir.h"
#include "format/torch_bin.h"
#include "kernels/matmul/matmul.h"
#include "plot/runs.h"
#include "progress.h"
#include "train.h"
#include "train/checkpoint.h"
#include "train/task_mqar.h"

static train_options defaults(bool text) {
    if (text) {
        train_options o;
        train_text_defaults(&o);
        return o;
    }
    return (train_options){ .task = "mqar",
                            .model = "palimpsa-d",
                            .seed = 1,
                            .log_every = 10,
                            .examples = 100000,
                            .test_examples = 3000,
                            .batch = 128,
                            .accumulate = 1,
                            .lr = 4.64e-3,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .stop_score = 0.99,
                            .decay = "everything",
                            .seq_len = 128,
                            .kv_pairs = 32,
                            .vocab = 8192,
                            .exponent = 0.01,
                            .shuffle = "auto",
                            .save_dtype = "f32" };
}

enum { OPTIONS = 70 };
static const int64_t MOST_STEPS = TRAIN_MOST_STEPS;

static size_t option_table(train_options *o, cli_option *t) {
    size_t n = 0;
#define OPTION(name, type, field, arg, help) t[n++] = (cli_option){ name, type, &o->field, arg, help, false }
#define RUN_OPTION(name, type, field, arg, help) \
    t[n++] = (cli_option) { name, type, &o->field, arg, help, true }
    OPTION("task", OPT_TEXT, task, "NAME",
           "mqar: multi-query associative recall (default); text: language modelling. Defaults below are mqar's; "
           "text's in brackets");
    OPTION("model", OPT_TEXT, model, "NAME|DIR",
           "palimpsa-d, palimpsa-m, gated-deltanet, transformer, ...; -wo-meta for ablations; or a model directory");
    OPTION("rule", OPT_TEXT, rule, "RULE", "memory rule on the D backbone: longhorn, delta, gdn, mesa, ...");
    OPTION("mesa-tolerance", OPT_FLOAT, mesa_tolerance, "X",
           "with --rule mesa: solve by conjugate gradient to this residual (default 0: exactly)");
    RUN_OPTION("out", OPT_TEXT, out, "RUNDIR", "where the run goes");
    RUN_OPTION("resume", OPT_FLAG, resume, NULL, "go on from the newest checkpoint of RUNDIR");
    RUN_OPTION("stop-after", OPT_LONG, stop_after, "N", "stop cleanly after N updates of the same schedule");
    RUN_OPTION("dry-run", OPT_FLAG, dry_run, NULL,
               "check everything, say what the run would be and need, and stop; nothing is written (text: the data "
               "must be shards)");
    RUN_OPTION("config", OPT_TEXT, config, "FILE", "options from a JSON file; the command line wins");
    RUN_OPTION("recipe", OPT_TEXT, recipe, "NAME",
               "the same from a file that comes with the program: configs/NAME.json");
    OPTION("seed", OPT_LONG, seed, "N", "of initial weights and data (default 1)");
    OPTION("steps", OPT_LONG, steps, "N", "updates (default: --epochs)");
    OPTION("epochs", OPT_LONG, epochs, "N", "passes over the data (default 20) [1]");
    OPTION("batch", OPT_INT, batch, "N", "examples per micro-batch (default 128) [rows; by the model's size]");
    OPTION("accumulate", OPT_INT, accumulate, "N", "micro-batches per update (default 1)");
    OPTION("lr", OPT_FLOAT, lr, "X",
           "peak learning rate (default 4.64e-3) [3e-3; 1.25e-3 from 400M parameters on; a tenth for a directory]");
    OPTION("schedule", OPT_TEXT, schedule, "KIND",
           "constant, cosine or cosine-epoch (default: cosine with --steps or --examples 0, else cosine-epoch) "
           "[cosine]");
    OPTION("warmup", OPT_LONG, warmup, "N",
           "updates of linear rise (default 0) [2000, for a directory 200; at most a tenth of the run]");
    OPTION("lr-floor", OPT_FLOAT, lr_floor, "F", "fraction of the peak that a cosine ends at (default 0) [0.1]");
    OPTION("beta1", OPT_FLOAT, beta1, "X", "AdamW (default 0.9)");
    OPTION("beta2", OPT_FLOAT, beta2, "X", "AdamW (default 0.999) [0.95]");
    OPTION("eps", OPT_FLOAT, eps, "X", "AdamW (default 1e-8) [1e-15]");
    OPTION("weight-decay", OPT_FLOAT, weight_decay, "X", "AdamW (default 0.1)");
    OPTION("decay", OPT_TEXT, decay, "WHAT", "everything, or matrices only (default everything)");
    OPTION("clip", OPT_FLOAT, clip, "X", "largest norm of the gradient; 0: no clipping (default) [1]");
    OPTION("freeze", OPT_TEXT, freeze, "PATTERNS", "weights never to update, as '*.A_log,*.D'");
    OPTION("train-only", OPT_TEXT, train_only, "PATTERNS", "update nothing else, as '*.b_*'");
    OPTION("lr-factor", OPT_TEXT, lr_factor, "LIST", "own learning rates, as '*.b_scale=10'");
    OPTION("log-every", OPT_LONG, log_every, "N",
           "updates between lines of metrics.jsonl, beside the first of a stage (default 10)");
    OPTION("eval-every", OPT_LONG, eval_every, "N",
           "updates between evaluations (default: an epoch; the last is always evaluated) [a 20th of the run]");
    OPTION("checkpoint-every", OPT_LONG, checkpoint_every, "N",
           "updates between checkpoints (default: an epoch; the last is always written) [a 5th of the run]");
    OPTION("keep", OPT_INT, keep, "K", "checkpoints to keep; 0: all (default)");
    OPTION("stop-score", OPT_FLOAT, stop_score, "X",
           "a stage ends when test accuracy exceeds this (default 0.99; 2: never)");
    OPTION("recompute", OPT_FLAG, recompute, NULL,
           "keep fewer activations and compute them again: less memory, more time");
    OPTION("seq-len", OPT_INT, seq_len, "L", "mqar: tokens of an example (default 128)");
    OPTION("kv-pairs", OPT_INT, kv_pairs, "N", "mqar: pairs to remember, 4N <= L (default 32)");
    OPTION("vocab", OPT_INT, vocab, "V", "vocabulary (default 8192) [the tokenizer's]");
    OPTION("exponent", OPT_FLOAT, exponent, "P", "mqar: how early questions come; 1 is uniform (default 0.01)");
    OPTION("random-fill", OPT_FLAG, random_fill, NULL, "mqar: random tokens where nothing is asked");
    OPTION("stages", OPT_TEXT, stages, "LIST",
           "mqar: a curriculum L:PAIRS:EPOCHS:BATCH,... instead of --seq-len, --kv-pairs, --epochs and --batch; with "
           "--examples 0, L:PAIRS:UPDATES:BATCH,...");
    OPTION("examples", OPT_LONG, examples, "N",
           "mqar: training examples in fixed order; 0: every one is new (default 100000)");
    OPTION("test-examples", OPT_LONG, test_examples, "N", "mqar: held-out examples (default 3000)");
    OPTION("data", OPT_TEXT, data, "LIST", "text: shards or text files, as 'a,b' or with weights 'a=3,b=1'");
    OPTION("tokenizer", OPT_TEXT, tokenizer, "X",
           "text: bytes, chars, a file or a directory (default: the shards' own, or the model's)");
    OPTION("field", OPT_TEXT, field, "NAME",
           "text: --data is JSONL with its text in this field; prompt+response: two fields, and only the second is "
           "trained on");
    OPTION("valid", OPT_FLOAT, valid, "F",
           "text: fraction of a text file to hold back for validation [0.05]; shards have their own");
    OPTION("valid-data", OPT_TEXT, valid_data, "LIST", "text: other shards or text files to validate on");
    OPTION("valid-tokens", OPT_LONG, valid_tokens, "N", "text: validate on the first N tokens of each source [all]");
    OPTION("no-eos", OPT_FLAG, no_eos, NULL,
           "text: do not end the documents of a text file with the tokenizer's end-of-text token");
    OPTION("row", OPT_INT, row, "L",
           "text: tokens of a row, packed with documents [2048, 8192 or 32768 by the model's size]");
    OPTION("context", OPT_INT, context, "C",
           "text: longer documents are cut into sequences of this many tokens [256, 1024 or 4096]");
    OPTION("shuffle", OPT_TEXT, shuffle, "WHAT",
           "text: documents, sequences, no, or auto: sequences where there are fewer than 1000 documents [auto]");
    OPTION("carry-state", OPT_FLAG, carry_state, NULL,
           "text: truncated back-propagation: rows go on with the memory that the row before left behind");
    OPTION("sample", OPT_TEXT, sample, "PROMPT", "text: print how the model goes on from PROMPT at each evaluation");
    OPTION("sample-tokens", OPT_INT, sample_tokens, "N", "text: tokens of a sample [200]");
    OPTION("save-dtype", OPT_TEXT, save_dtype, "TYPE",
           "weights in checkpoints/best: f32, bf16 or f16; checkpoints to resume from are f32 (default f32)");
    OPTION("data-checksum", OPT_TEXT, data_checksum, "HEX",
           "text: written to config.json, so that a run goes on with the data it began with");
    OPTION("hidden", OPT_INT, hidden, "D", "model width, where the preset's is not wanted");
    OPTION("layers", OPT_INT, layers, "N", "layers");
    OPTION("heads", OPT_INT, heads, "N", "heads");
    OPTION("head-dim", OPT_INT, head_dim, "N", "channels per head");
    OPTION("state-size", OPT_INT, state_size, "N", "Palimpsa-M: key channels per head");
    OPTION("rank", OPT_INT, rank, "N", "rank of the importance gate");
    OPTION("expand-v", OPT_FLOAT, expand_v, "X", "value channels per key channel");
    t[n++] = (cli_option){ "threads",
                           OPT_INT,
                           &o->common.threads,
                           "N",
                           "threads (default: PALIMPSA_THREADS, else all processors); part of the configuration",
                           false };
    t[n++] = (cli_option){
        "cpu", OPT_TEXT, &o->common.cpu, "LEVEL", "ref, avx2 or avx512 (default: PALIMPSA_CPU, else the best there is)",
        true
    };
#undef OPTION
#undef RUN_OPTION
    return n;
}

/* A stage is so many epochs of the fixed examples; where every example is new, so many updates. */
static int parse_stages(const train_options *o, pal_mqar_options *m) {
    const char *at = o->stages, *unit = o->examples ? "EPOCHS" : "UPDATES";
    while (*at) {
        int length, pairs, batch, used = 0;
        long long count;
        if (m->stages == PAL_MQAR_STAGES) return cli_error(CLI_USAGE, "--stages: at most %d stages", PAL_MQAR_STAGES);
        if (sscanf(at, "%d:%d:%lld:%d%n", &length, &pairs, &count, &batch, &used) != 4 || (at[used] && at[used] != ','))
            return cli_error(CLI_USAGE, "--stages '%s': expected L:PAIRS:%s:BATCH separated by commas", o->stages,
                             unit);
        if (count < 1 || batch < 1)
            return cli_error(CLI_USAGE, "--stages '%s': %s and BATCH must be at least 1", o->stages, unit);
        const int64_t each = o->examples ? pal_mqar_epoch_steps(o->examples, batch, o->accumulate) : 1;
        if (count > MOST_STEPS / each)
            return cli_error(CLI_USAGE, "--stages '%s': expected at most %lld updates a stage", o->stages,
                             (long long)MOST_STEPS);
        m->stage[m->stages++] = (pal_mqar_stage){ .data = { .length = length,
                                                            .pairs = pairs,
                                                            .vocabulary = o->vocab,
                                                            .exponent = o->exponent,
                                                            .random_fill = o->random_fill },
                                                  .batch = batch,
                                                  .steps = count * each };
        at += used + (at[used] == ',');
    }
    return m->stages ? CLI_OK
                     : cli_error(CLI_USAGE, "--stages is empty, expected L:PAIRS:%s:BATCH separated by commas", unit);
}

static int make_mqar_options(const train_options *o, pal_mqar_options *m) {
    *m = (pal_mqar_options){ .seed = (uint64_t)o->seed,
                             .examples = o->examples,
                             .test_examples = o->test_examples,
                             .accumulate = o->accumulate };
    if (o->examples < 0) return cli_error(CLI_USAGE, "--examples is %lld, expected 0 or more", (long long)o->examples);
    if (o->accumulate < 1) return cli_error(CLI_USAGE, "--accumulate is %d, expected at least 1", o->accumulate);
    if (o->batch < 1) return cli_error(CLI_USAGE, "--batch is %d, expected at least 1", o->batch);
    if (o->steps < 0 || o->steps > MOST_STEPS || o->epochs < 0 || o->epochs > MOST_STEPS)
        return cli_error(CLI_USAGE, "--steps %lld and --epochs %lld must be from 0 to %lld", (long long)o->steps,
                         (long long)o->epochs, (long long)MOST_STEPS);
    if (o->stages) {
        if (o->steps || o->epochs)
            return cli_error(CLI_USAGE, "--stages says how long each stage is: leave out --steps and --epochs");
        return parse_stages(o, m);
    }
    if (!o->steps && !o->examples) return cli_error(CLI_USAGE, "with --examples 0 there are no epochs: give --steps");
    const int64_t epoch = pal_mqar_epoch_steps(o->examples ? o->examples : 1, o->batch, o->accumulate);
    const int64_t epochs = o->epochs ? o->epochs : 20;
    if (!o->steps && epochs > MOST_STEPS / epoch)
        return cli_error(CLI_USAGE, "%lld epochs of %lld updates: expected at most %lld updates", (long long)epochs,
                         (long long)epoch, (long long)MOST_STEPS);
    m->stages = 1;
    m->stage[0] = (pal_mqar_stage){ .data = { .length = o->seq_len,
                                              .pairs = o->kv_pairs,
                                              .vocabulary = o->vocab,
                                              .exponent = o->exponent,
                                              .random_fill = o->random_fill },
                                    .batch = o->batch,
                                    .steps = o->steps ? o->steps : epochs * epoch };
    return CLI_OK;
}

static int parse_dtype(const char *name, pal_dtype *out) {
    static const struct {
        const char *name;
        pal_dtype dtype;
    } known[] = { { "f32", PAL_F32 }, { "bf16", PAL_BF16 }, { "f16", PAL_F16 } };
    for (size_t i = 0; i < PAL_COUNT(known); i++)
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].dtype;
            return CLI_OK;
        }
    return cli_error(CLI_USAGE, "--save-dtype '%s': expected f32, bf16 or f16", name);
}

/* epoch: updates of one, for what happens once in each. */
static int make_train_options(const train_options *o, int64_t epoch, pal_train_options *t) {
    pal_error err;
    *t = (pal_train_options){ .rate = o->lr,
                              .floor = o->lr_floor,
                              .warmup = o->warmup,
                              .accumulate = o->accumulate,
                              .log_every = o->log_every,
                              .eval_every = o->eval_every ? o->eval_every : epoch,
                              .checkpoint_every = o->checkpoint_every ? o->checkpoint_every : epoch,
                              .keep = o->keep,
                              .stop_score = o->stop_score,
                              .stop_after = o->stop_after,
                              .recompute = o->recompute,
                              .optimiser = { .beta1 = o->beta1,
                                             .beta2 = o->beta2,
                                             .eps = o->eps,
                                             .weight_decay = o->weight_decay,
                                             .clip = o->clip,
                                             .decay_matrices = strcmp(o->decay, "matrices") == 0,
                                             .freeze = o->freeze,
                                             .train_only = o->train_only,
                                             .rates = o->lr_factor } };
    if (strcmp(o->decay, "matrices") != 0 && strcmp(o->decay, "everything") != 0)
        return cli_error(CLI_USAGE, "--decay '%s': expected everything or matrices", o->decay);
    if (!(o->lr > 0) || !isfinite(o->lr)) return cli_error(CLI_USAGE, "--lr is %g, expected a number above 0", o->lr);
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
        return cli_error(CLI_USAGE, "--beta1 %g and --beta2 %g must be from 0 to below 1", o->beta1, o->beta2);
    if (!(o->eps >= 0 && o->weight_decay >= 0 && o->clip >= 0 && o->warmup >= 0))
        return cli_error(CLI_USAGE, "--eps, --weight-decay, --clip and --warmup must not be negative");
    if (!(o->lr_floor >= 0 && o->lr_floor <= 1))
        return cli_error(CLI_USAGE, "--lr-floor is %g, expected 0 to 1", o->lr_floor);
    if (o->hidden < 0 || o->layers < 0 || o->heads < 0 || o->head_dim < 0 || o->state_size < 0 || o->rank < 0 ||
        o->expand_v < 0)
        return cli_error(
            CLI_USAGE,
            "--hidden, --layers, --heads, --head-dim, --state-size, --rank and --expand-v must not be negative");
    if (o->log_every < 0 || o->eval_every < 0 || o->checkpoint_every < 0 || o->keep < 0 || o->stop_after < 0)
        return cli_error(CLI_USAGE,
                         "--log-every, --eval-every, --checkpoint-every, --keep and --stop-after must not be negative");
    const int code = parse_dtype(o->save_dtype, &t->best_dtype);
    if (code) return code;
    const char *schedule = o->schedule ? o->schedule : o->steps || !o->examples ? "cosine" : "cosine-epoch";
    if (pal_schedule_parse(&t->schedule, schedule, &err)) return cli_fail(&err);
    return CLI_OK;
}

static bool is_preset(const char *name) {
    const char *preset;
    for (int i = 0; (preset = pal_model_preset_at(i)); i++)
        if (strcmp(preset, name) == 0) return true;
    return false;
}

bool train_starts_from_files(const char *model) {
    if (strchr(model, '/')) return true;
    return is_preset(model) ? (pal_has_safetensors(model) || pal_has_torch(model)) : access(model, F_OK) == 0;
}

/* The configuration of a new model, and whether it suits the task; of a preset without a vocabulary, with the preset's.
 */
static int plan_model(const train_options *o, pal_model_config *config) {
    pal_error err;
    const pal_preset_options preset = { .task = o->task,
                                        .rule = o->rule,
                                        .mesa_tolerance = o->mesa_tolerance,
                                        .vocab = o->vocab,
                                        .hidden = o->hidden,
                                        .layers = o->layers,
                                        .heads = o->heads,
                                        .head_dim = o->head_dim,
                                        .state_size = o->state_size,
                                        .rank = o->rank,
                                        .expand_v = o->expand_v };
    if (train_starts_from_files(o->model)) {
        if (pal_model_read_config(config, o->model, &err)) return cli_fail(&err);
        if (o->rule || o->mesa_tolerance > 0 || o->hidden || o->layers || o->heads || o->head_dim || o->state_size ||
            o->rank || o->expand_v > 0)
            return cli_error(CLI_USAGE, "--model %s is a directory: its rule and sizes cannot be chosen", o->model);
        if (strcmp(o->task, "text") == 0 && config->mqar)
            return cli_error(CLI_USAGE, "--model %s is a model for mqar, not for text", o->model);
    } else if (pal_model_preset(config, o->model, &preset, &err)) {
        const size_t length = strlen(err.text);
        if (is_preset(o->model) || (length && err.text[length - 1] == '?')) return cli_fail(&err);
        return cli_error(CLI_USAGE, "%s; nor is there a directory '%s'", err.text,
                         o->model); /* a word that is like no name */
    }
    if (o->carry_state && config->mixer == PAL_MIXER_ATTENTION)
        return cli_error(
            CLI_USAGE,
            "--carry-state: attention has no memory of a fixed size to carry; model '%s' cannot be trained so",
            o->model);
    return CLI_OK;
}

static int open_model(const train_options *o, const pal_context *cx, pal_model **model) {
    pal_error err;
    if (pal_model_open(model, o->model, PAL_FOR_TRAINING, cx, &err)) return cli_fail(&err);
    const int vocab = pal_model_config_of(*model)->vocab;
    if (vocab < o->vocab && strcmp(o->task, "text") == 0)
        return cli_error(CLI_USAGE, "--model %s has a vocabulary of %d, the tokenizer of --data %s has %d ids",
                         o->model, vocab, o->data, o->vocab);
    if (vocab < o->vocab)
        return cli_error(CLI_USAGE, "--model %s has a vocabulary of %d, the task one of %d; give --vocab %d", o->model,
                         vocab, o->vocab, vocab);
    printf("weights from the directory %s\n", o->model);
    return CLI_OK;
}

/* A new model: a preset with the sizes asked for, or the weights of a checkpoint. */
static int make_model(const train_options *o, const pal_context *cx, pal_model **model) {
    pal_error err;
    pal_model_config config;
    const int code = plan_model(o, &config);
    if (code) return code;
    if (train_starts_from_files(o->model)) return open_model(o, cx, model);
    if (pal_model_new(model, &config, (uint64_t)o->seed, PAL_FOR_TRAINING, cx, &err)) return cli_fail(&err);
    return CLI_OK;
}

/* Task text: what can be told before its data are tokenized, which may take long. */
static int check_before_text(const train_options *o) {
    train_options known = *o;
    pal_train_options t;
    pal_model_config config;
    if (known.lr == 0) known.lr = 1; /* these two are settled by the data */
    if (known.warmup < 0) known.warmup = 0;
    const int code = make_train_options(&known, 1, &t);
    return code ? code : plan_model(o, &config);
}

/* Names every key in which the wanted configuration differs from the stored one. */
static int compare_configs(const char *path, const json_t *stored, const json_t *wanted, bool finished,
                           const char *schedule) {
    const char *key;
    json_t *value;
    char text[800] = "";
    int differences = 0;
    bool longer = false;
    json_object_foreach((json_t *)wanted, key, value) {
        const json_t *old = json_object_get(stored, key);
        if (old && json_equal(old, value)) continue;
        if (strcmp(key, "steps") == 0 && json_integer_value(value) > json_integer_value(old)) {
            longer = true;
            if (finished && strcmp(schedule, "constant") == 0) continue;
        }
        const size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(9);
        char *before = old ? json_dumps(old, flags) : NULL, *after = json_dumps(value, flags);
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s was %s, now %s", differences++ ? "; " : "", key,
                 before ? before : "not set", after);
        free(before);
        free(after);
    }
    if (!differences) return CLI_OK;
    return cli_error(CLI_USAGE, "%s: this run cannot go on under another configuration: %s%s", path, text,
                     longer ? " (only a finished run at a constant rate can be given more steps: a schedule that ends "
                              "would have been another one)"
                            : "");
}

static int write_config(const char *path, const json_t *config) {
    pal_writer w;
    pal_error err;
    if (pal_writer_open(&w, path, &err)) return cli_fail_writing(&err);
    json_dumpf(config, w.stream, JSON_INDENT(1) | JSON_REAL_PRECISION(17)); /* commit looks at ferror */
    fputc('\n', w.stream);
    return pal_writer_commit(&w, &err) ? cli_fail_writing(&err) : CLI_OK;
}

static volatile sig_atomic_t interrupted;

/* The first signal asks for a clean stop; the second, back at its default, ends the process at once. */
static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

static void listen_for_signals(void) {
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* A path as a shell reads it: in quotes where it holds anything unusual. */
static const char *shell_word(const char *path, char *out, size_t size) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+=:,@%";
    size_t n = 0;
    if (path[strspn(path, plain)] == '\0') return path;
    out[n++] = '\'';
    for (; *path && n + 6 < size; path++) {
        if (*path == '\'') n += (size_t)snprintf(out + n, size - n, "'\\''");
        else out[n++] = *path;
    }
    out[n++] = '\'';
    out[n] = '\0';
    return out;
}

/* RUNDIR/report.html: the same as `palimpsa plot RUNDIR --out report.html`. A run that was stopped before its first
 * line of metrics has nothing to show yet. */
static int write_report(const char *run) {
    char path[4096];
    pal_runs *runs;
    pal_error err;
    struct stat info;
    if (snprintf(path, sizeof path, "%s/metrics.jsonl", run) < (int)sizeof path && stat(path, &info) == 0 &&
        info.st_size == 0)
        return CLI_OK;
    if (snprintf(path, sizeof path, "%s/report.html", run) >= (int)sizeof path)
        return cli_error(CLI_USAGE, "%s: the path is too long", run);
    if (pal_runs_open(&runs, &run, 1, &err)) return cli_error(CLI_FAILED, "%s", err.text);
    const pal_status st = pal_runs_write(runs, &(pal_runs_options){ 0 }, path, &err);
    pal_runs_free(runs);
    return st ? cli_error(CLI_FAILED, "%s", err.text) : CLI_OK;
}

static bool on_progress(void *user, const pal_train_progress *p) {
    progress_train(user, p);
    return !interrupted;
}

/* Bits depend on the level, so a run keeps the one its checkpoints were made at. */
static int check_level(const char *run, const json_t *state, const pal_context *cx) {
    const char *before = json_string_value(json_object_get(state, "cpu")),
               *level = pal_cpu_level_name(pal_context_level(cx));
    if (!before || strcmp(before, level) == 0) return CLI_OK;
    return cli_error(CLI_USAGE, "%s was trained at processor level %s, now %s; resume it with --cpu %s", run, before,
                     level, before);
}

/* A run's configuration has the options of its task only. */
static json_t *make_config(const cli_usage *usage, bool is_text) {
    static const char *const of_text[] = { "data",         "tokenizer", "field",         "valid",        "valid_data",
                                           "valid_tokens", "no_eos",    "row",           "context",      "shuffle",
                                           "carry_state",  "sample",    "sample_tokens", "data_checksum" };
    static const char *const of_mqar[] = { "seq_len", "kv_pairs", "exponent",      "random_fill",
                                           "stages",  "examples", "test_examples", "stop_score" };
    json_t *config = cli_make_config(usage);
    for (size_t i = 0; !is_text && i < PAL_COUNT(of_text); i++) json_object_del(config, of_text[i]);
    for (size_t i = 0; is_text && i < PAL_COUNT(of_mqar); i++) json_object_del(config, of_mqar[i]);
    const char *dtype = json_string_value(json_object_get(config, "save_dtype"));
    if (dtype && strcmp(dtype, "f32") == 0)
        json_object_del(config, "save_dtype"); /* runs that are older than this option go on */
    return config;
}

static int train(train_options *o, const cli_usage *usage, const pal_context *cx) {
    pal_mqar_options m = { 0 };
    train_text text = { 0 };
    const bool is_text = strcmp(o->task, "text") == 0;
    pal_train_options t;
    pal_mqar_task *mqar = NULL;
    pal_task task;
    pal_model *model = NULL;
    pal_error err;
    json_t *state = NULL, *config = NULL;
    int64_t step = 0;
    char path[4096];
    int code, lock = -1;
    if (strcmp(o->task, "mqar") != 0 && !is_text)
        return cli_error(CLI_USAGE, "task '%s': expected mqar or text", o->task);
    if (is_text) {
        if (!o->resume && snprintf(path, sizeof path, "%s/config.json", o->out) < (int)sizeof path &&
            access(path, F_OK) == 0)
            return cli_error(CLI_USAGE, "%s already holds a run; use --resume to go on with it, or another --out",
                             o->out);
        if (!o->resume && (code = check_before_text(o))) return code;
        if ((code = train_text_open(&text, o, cx, &task)) || (code = make_train_options(o, o->steps, &t))) {
            train_text_close(&text);
            return code;
        }
    } else {
        if (o->data || o->valid_data || o->tokenizer || o->field || o->sample || o->carry_state || o->row || o->context)
            return cli_error(CLI_USAGE, "--data, --valid-data, --tokenizer, --field, --sample, --carry-state, --row "
                                        "and --context go with --task text");
        if ((code = make_mqar_options(o, &m))) return code;
        const int64_t epoch = o->examples ? pal_mqar_epoch_steps(o->examples, m.stage[0].batch, o->accumulate)
                                          : m.stage[0].steps;
        if ((code = make_train_options(o, epoch, &t))) return code;
        if (pal_mqar_task_new(&mqar, cx, &m, &task, &err)) return cli_fail(&err);
    }
    config = make_config(usage, is_text);
    if (snprintf(path, sizeof path, "%s/config.json", o->out) >= (int)sizeof path) {
        code = cli_error(CLI_USAGE, "%s: the path is too long", o->out);
        goto done;
    }
    if (o->resume) {
        if ((code = cli_lock(o->out, false, &lock))) goto done;
        json_error_t why;
        json_t *stored = json_load_file(path, 0, &why);
        if (!stored) {
            code = cli_error(CLI_USAGE, "%s: %s", path, why.text);
            goto done;
        }
        if (pal_checkpoint_open(o->out, cx, &model, &state, &step, &err)) code = cli_fail(&err);
        const bool finished = json_is_true(json_object_get(state, "finished"));
        const char *schedule = t.schedule == PAL_SCHEDULE_CONSTANT ? "constant" : "other";
        if (!code) code = compare_configs(path, stored, config, finished, schedule);
        const bool extended = !code && !json_equal(stored, config);
        json_decref(stored);
        if (code) goto done;
        if (finished && !extended) {
            printf("%s is finished at step %lld; nothing to do\n", o->out, (long long)step);
            goto done;
        }
        if ((code = check_level(o->out, state, cx))) goto done;
        if (extended && (code = write_config(path, config))) goto done;
    } else {
        if (access(path, F_OK) == 0) {
            code = cli_error(CLI_USAGE, "%s already holds a run; use --resume to go on with it, or another --out",
                             o->out);
            goto done;
        }
    }
    if (!model && (code = make_model(o, cx, &model))) goto done; /* new, or resumed before the first checkpoint */
    pal_trainer trainer = { .run = o->out, .cx = cx, .task = &task, .options = t, .progress = on_progress };
    pal_train_plan plan;
    if (pal_train_prepare(&trainer, model, &plan, &err)) {
        code = cli_fail(&err);
        goto done;
    }
    if (!o->resume && !o->dry_run) { /* nothing is written before everything is known to fit */
        if (pal_make_directory(o->out, &err)) {
            code = cli_fail_writing(&err);
            goto done;
        }
        if ((code = cli_lock(o->out, false, &lock)) || (code = write_config(path, config))) goto done;
    }
    const double labelled = is_text ? 1 : (double)m.stage[0].data.pairs / m.stage[0].data.length;
    progress view = progress_begin(cx, cli_flops_per_token(model, labelled));
    trainer.user = &view;
    char kind[64];
    pal_model_describe(pal_model_config_of(model), kind);
    printf("%s, %zu parameters, %d thread%s, %s; %.0f MiB beside the weights\n", kind, pal_model_parameters(model),
           pal_context_threads(cx), pal_context_threads(cx) == 1 ? "" : "s", pal_cpu_level_name(pal_context_level(cx)),
           (double)plan.total / 1048576);
    if (o->recompute)
        printf("recompute: activations take %.0f MiB instead of %.0f, for one more forward (about a third more time)\n",
               (double)plan.activations / 1048576, (double)plan.other_activations / 1048576);
    else if (plan.activations > plan.total / 2)
        printf("activations are %.0f MiB of it; with --recompute they would be %.0f, for about a third more time\n",
               (double)plan.activations / 1048576, (double)plan.other_activations / 1048576);
    if (is_text)
        printf("%lld updates of %d x %d x %d tokens, context %d%s\n", (long long)o->steps, o->accumulate, o->batch,
               o->row, o->context,
               o->carry_state ? "; memories are carried from row to row, gradients are not (truncated back-propagation)"
                              : "");
    if (o->dry_run) goto done;
    if (step) printf("resuming %s at step %lld\n", o->out, (long long)step);
    listen_for_signals();
    pal_train_result result;
    if (pal_train(&trainer, model, state, step, &result, &err)) {
        progress_end(&view);
        code = cli_error(err.status == PAL_E_IO || err.status == PAL_E_MEMORY ? CLI_FAILED : CLI_USAGE, "%s", err.text);
        goto done;
    }
    progress_end(&view);
    if (result.skipped) printf("%lld updates were skipped: their gradient was not finite\n", (long long)result.skipped);
    if (result.end == PAL_TRAIN_STOPPED)
        printf("stopped at step %lld, checkpoint written; go on with: palimpsa train --resume --out %s\n",
               (long long)result.step, shell_word(o->out, path, sizeof path));
    else if (is_text && isfinite(result.score))
        printf("finished at step %lld: validation loss %.4f, perplexity %.4g (best %.4f at step %lld); see "
               "%s/report.html\n",
               (long long)result.step, -result.score, exp(-result.score), -result.best_score,
               (long long)result.best_step, o->out);
    else if (is_text)
        printf("finished at step %lld: loss %.4f, perplexity %.4g; nothing was held back to validate on; see "
               "%s/report.html\n",
               (long long)result.step, result.loss, exp(result.loss), o->out);
    else
        printf("finished at step %lld: %s %.4f (best %.4f at step %lld); see %s/report.html\n", (long long)result.step,
               task.score_name, result.score, result.best_score, (long long)result.best_step, o->out);
    code = write_report(o->out);
done:
    if (lock >= 0) close(lock);
    json_decref(state);
    json_decref(config);
    pal_model_close(model);
    pal_mqar_task_free(mqar);
    train_text_close(&text);
    return code;
}

/* The task decides the defaults of the other options, so it is looked for first: on the command line, else in the file.
 */
static bool wants_text(int argc, char **argv, const char *file) {
    bool text = false;
    json_t *config = file ? json_load_file(file, 0, NULL) : NULL;
    const char *task = json_string_value(json_object_get(config, "task"));
    if (task) text = strcmp(task, "text") == 0;
    json_decref(config);
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + (argv[i][0] == '-') + (argv[i][0] == '-' && argv[i][1] == '-');
        if (name == argv[i]) continue;
        if (strcmp(name, "task") == 0 && i + 1 < argc) text = strcmp(argv[i + 1], "text") == 0;
        if (strncmp(name, "task=", 5) == 0) text = strcmp(name + 5, "text") == 0;
    }
    return text;
}

int cmd_train(int argc, char **argv) {
    train_options o = defaults(wants_text(argc, argv, NULL));
    cli_option options[OPTIONS + 4];
    const cli_usage usage = {
        .synopsis = "train --task mqar|text --model NAME|DIR --out RUNDIR [options]",
        .about = "Trains a model into RUNDIR: config.json, metrics.jsonl and checkpoints. Ctrl-C finishes the update, "
                 "writes a\n"
                 "checkpoint and says how to resume; a resumed run equals an uninterrupted one bit for bit.",
        .examples =
            "  palimpsa train --model palimpsa-d --seq-len 64 --kv-pairs 16 --batch 16 --steps 400 --lr 3e-3 --out "
            "runs/a\n"
            "  palimpsa train --resume --out runs/a\n"
            "  palimpsa train --model palimpsa-m-wo-meta --stages 128:32:20:128,256:64:20:128 --out runs/mamba2\n"
            "  palimpsa train --model palimpsa-d --rule longhorn --epochs 4 --out runs/longhorn\n"
            "  palimpsa train --task text --data book.txt --tokenizer chars --model palimpsa-m --epochs 5 --out "
            "runs/book\n"
            "  palimpsa train --task text --data shards --model palimpsa-d-15m --steps 2000 --sample 'Once' --out "
            "runs/tales\n"
            "  palimpsa train --task text --data letters.jsonl --model runs/tales --epochs 1 --out runs/letters\n",
        .options = options,
        .option_count = option_table(&o, options),
    };
    int given, code = cli_parse(&usage, argc, argv, NULL, 0, &given);
    if (code) return code < 0 ? CLI_OK : code;
    if (!o.out) return cli_error(CLI_USAGE, "train: --out RUNDIR is missing");
    if (o.dry_run && o.resume)
        return cli_error(CLI_USAGE, "train: --dry-run is for a run that has not begun; leave out --resume");
    if (!*o.out) return cli_error(CLI_USAGE, "train: --out expects a directory, found an empty name");
    if (o.steps && o.epochs) return cli_error(CLI_USAGE, "train: either --steps or --epochs says how long the run is");
    char path[4096];
    const char *file = o.config;
    if (o.resume && (o.config || o.recipe))
        return cli_error(CLI_USAGE,
                         "train: --resume takes the configuration of RUNDIR; leave out --config and --recipe");
    if (o.recipe && o.config) return cli_error(CLI_USAGE, "train: either --config or --recipe");
    if (o.recipe && (code = cli_find_recipe(path, sizeof path, o.recipe))) return code;
    if (o.recipe) file = path;
    if (o.resume) {
        snprintf(path, sizeof path, "%s/config.json", o.out), file = path;
        if (access(path, F_OK) != 0) return cli_error(CLI_USAGE, "%s holds no run to resume", o.out);
    }
    if (file) { /* the file first, then the command line again on top of it */
        const train_options given_run = o;
        o = defaults(wants_text(argc, argv, file));
        o.out = given_run.out, o.resume = given_run.resume, o.dry_run = given_run.dry_run;
        if ((code = cli_read_config(&usage, file))) return code;
        cli_parse(&usage, argc, argv, NULL, 0, &given);
        if (given_run.epochs && !o.resume)
            o.steps = 0; /* the command line wins, also where the file says it in steps */
    }
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    o.common.threads = pal_context_threads(cx); /* results depend on it, so it is part of the run */
    code = train(&o, &usage, cx);
    pal_context_free(cx);
    return code;
}
