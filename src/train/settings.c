/* SPDX-License-Identifier: MIT */
/* The settings of a run by group, and those of the trainer that follow from them. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/blocks.h"
#include "base/context.h"
#include "train/run.h"

enum { POSITIVE = 1 /* 0 says: not given */ };

typedef struct {
    const char *name;
    pal_option_type type;
    size_t at;
    const char *argument, *help;
    int flags;
} option_row;
#define AT(field) offsetof(pal_train_settings, field)

/* A default that differs by task is said as "MQAR's; text: ITS OWN". */
static const option_row of_run[] = {
    { "task", PAL_OPTION_TEXT, AT(task), "NAME",
      "mqar: multi-query associative recall (default); text: language modelling", 0 },
    { "seed", PAL_OPTION_LONG, AT(seed), "N", "seed of initial weights and data (default 1)", 0 },
    { "steps", PAL_OPTION_LONG, AT(steps), "N", "number of updates (default, or 0: set by --epochs)", 0 },
    { "epochs", PAL_OPTION_LONG, AT(epochs), "N", "passes over the data (default 20; text: 1)", 0 },
    { "log-every", PAL_OPTION_LONG, AT(log_every), "N",
      "updates between lines of metrics.jsonl; the first update of a stage is always logged "
      "(default 10)",
      0 },
    { "eval-every", PAL_OPTION_LONG, AT(eval_every), "N",
      "updates between evaluations; the last update is always evaluated (default, or 0: an "
      "epoch; text: a 20th of the run)",
      0 },
    { "checkpoint-every", PAL_OPTION_LONG, AT(checkpoint_every), "N",
      "updates between checkpoints; the last update always has one (default, or 0: an epoch; "
      "text: a 5th of the run)",
      0 },
    { "keep", PAL_OPTION_INT, AT(keep), "K", "keep the newest K checkpoints (default, or 0: all)", 0 },
    { "save-dtype", PAL_OPTION_TEXT, AT(save_dtype), "TYPE",
      "type of the weights in checkpoints/best: f32, bf16 or f16 (default f32)", 0 },
    { "stop-score", PAL_OPTION_FLOAT, AT(stop_score), "X",
      "end a stage when the test accuracy exceeds X (default 0.99; 2: never); text: when the "
      "validation loss, negated, does (default: never)",
      0 },
    { "recompute", PAL_OPTION_FLAG, AT(recompute), NULL,
      "keep fewer activations and recompute them: less RAM, more time", 0 },
    { "threads", PAL_OPTION_INT, AT(threads), "N",
      "number of threads (default: PALIMPSA_THREADS, else all processors); part of the "
      "configuration",
      0 },
    { "ranks", PAL_OPTION_INT, AT(ranks), "N", "recorded in config.json: the number of processes that mpirun started",
      0 },
};

static const option_row of_model[] = {
    { "model", PAL_OPTION_TEXT, AT(model), "NAME|DIR",
      "palimpsa-d, palimpsa-m, gated-deltanet, transformer, ...; with -wo-meta, without "
      "importance; layers by a pattern, palimpsa-m:3,attention+mlp:1; or a model directory",
      0 },
    { "rule", PAL_OPTION_TEXT, AT(rule), "RULE", "memory rule on the D backbone: longhorn, gdn, kda, mamba3, ...", 0 },
    { "mesa-tolerance", PAL_OPTION_FLOAT, AT(mesa_tolerance), "X",
      "with --rule mesa: solve by conjugate gradient to this residual (default 0: exactly)", 0 },
    { "softplus-rate", PAL_OPTION_FLAG, AT(softplus_rate), NULL,
      "with --rule mamba3: forget at the rate softplus(x), as its first version did, not 1 + x or 1/(1 - x)", 0 },
    { "vocab", PAL_OPTION_INT, AT(vocab), "V", "vocabulary size (default 8192; text: the tokenizer's)", POSITIVE },
    { "hidden", PAL_OPTION_INT, AT(hidden), "D", "model width; this and the sizes below override the preset",
      POSITIVE },
    { "layers", PAL_OPTION_INT, AT(layers), "N", "number of layers", POSITIVE },
    { "heads", PAL_OPTION_INT, AT(heads), "N", "number of heads", POSITIVE },
    { "head-dim", PAL_OPTION_INT, AT(head_dim), "N", "channels per head", POSITIVE },
    { "state-size", PAL_OPTION_INT, AT(state_size), "N", "Palimpsa-M: key channels per head", POSITIVE },
    { "rank", PAL_OPTION_INT, AT(rank), "N", "rank of the importance gate", POSITIVE },
    { "expand-v", PAL_OPTION_FLOAT, AT(expand_v), "X", "value channels per key channel", POSITIVE },
    { "norm-groups", PAL_OPTION_INT, AT(norm_groups), "N",
      "Palimpsa-M: groups of the norm after the memory; as many as heads: one per head (default 1)", POSITIVE },
    { "forgetting", PAL_OPTION_TEXT, AT(forgetting), "KIND",
      "initial forgetting of a model for recall: small, normal or very_small (default small)", 0 },
    { "init", PAL_OPTION_TEXT, AT(init), "KIND",
      "recall: start a language model with slow forgetting and larger weights, as for mqar "
      "(default: the model's own)",
      0 },
    { "weights", PAL_OPTION_TEXT, AT(weights), "DIR",
      "recorded in config.json: the checkpoint that --model RUNDIR was when the run began", 0 },
};

static const option_row of_updates[] = {
    { "batch", PAL_OPTION_INT, AT(batch), "N",
      "examples per micro-batch (default 128); text: rows (default 8, 2 or 1, by the model's "
      "size)",
      POSITIVE },
    { "accumulate", PAL_OPTION_INT, AT(accumulate), "N", "micro-batches per update (default 1)", POSITIVE },
    { "lr", PAL_OPTION_FLOAT, AT(lr), "X",
      "peak learning rate (default 4.64e-3; text: 3e-3, 1.25e-3 from 400M parameters on, a tenth "
      "if --model is a directory)",
      POSITIVE },
    { "schedule", PAL_OPTION_TEXT, AT(schedule), "KIND",
      "constant, cosine or cosine-epoch (default: cosine with --steps or --examples 0, else "
      "cosine-epoch; text: cosine)",
      0 },
    { "warmup", PAL_OPTION_LONG, AT(warmup), "N",
      "updates of linear warm-up (default 0; text: 2000, or 200 if --model is a directory, at "
      "most a tenth of the run)",
      0 },
    { "lr-floor", PAL_OPTION_FLOAT, AT(lr_floor), "F",
      "fraction of the peak rate at which a cosine ends (default 0; text: 0.1)", 0 },
    { "beta1", PAL_OPTION_FLOAT, AT(beta1), "X", "AdamW's beta1 (default 0.9)", 0 },
    { "beta2", PAL_OPTION_FLOAT, AT(beta2), "X", "AdamW's beta2 (default 0.999; text: 0.95)", 0 },
    { "eps", PAL_OPTION_FLOAT, AT(eps), "X", "AdamW's epsilon (default 1e-8; text: 1e-15)", 0 },
    { "weight-decay", PAL_OPTION_FLOAT, AT(weight_decay), "X", "AdamW's weight decay (default 0.1)", 0 },
    { "optimiser-precision", PAL_OPTION_TEXT, AT(optimiser_precision), "TYPE",
      "f32, or bf16: round weights, gradients and moments as torch's AdamW does for bf16 weights "
      "(default f32)",
      0 },
    { "decay", PAL_OPTION_TEXT, AT(decay), "WHAT", "what weight decay applies to: everything (default) or matrices",
      0 },
    { "clip", PAL_OPTION_FLOAT, AT(clip), "X", "clip the gradient to this norm; 0: do not clip (default 0; text: 1)",
      0 },
    { "freeze", PAL_OPTION_TEXT, AT(freeze), "WHAT",
      "do not update these weights: groups that 'palimpsa inspect' lists, or patterns such as '*.A_log,*.D'", 0 },
    { "train-only", PAL_OPTION_TEXT, AT(train_only), "WHAT",
      "update only these, as 'importance,norm' or '*.layers.3.*'; with --model DIR the others stay in the file, in its "
      "type, without gradients and moments",
      0 },
    { "lr-factor", PAL_OPTION_TEXT, AT(lr_factor), "LIST",
      "multiply the rate of weights that match, such as '*.b_scale=10'", 0 },
};

static const option_row of_mqar[] = {
    { "seq-len", PAL_OPTION_INT, AT(seq_len), "L", "tokens per example (default 128)", 0 },
    { "kv-pairs", PAL_OPTION_INT, AT(kv_pairs), "N", "pairs to remember, 4N <= L (default 32)", 0 },
    { "exponent", PAL_OPTION_FLOAT, AT(exponent), "P", "how early questions come; 1 is uniform (default 0.01)", 0 },
    { "random-fill", PAL_OPTION_FLAG, AT(random_fill), NULL, "fill the gaps with random tokens", 0 },
    { "stages", PAL_OPTION_TEXT, AT(stages), "LIST",
      "curriculum L:PAIRS:EPOCHS:BATCH,... instead of --seq-len, --kv-pairs, --epochs and "
      "--batch; with --examples 0, L:PAIRS:UPDATES:BATCH,...",
      0 },
    { "examples", PAL_OPTION_LONG, AT(examples), "N",
      "training examples in fixed order; 0: every example is new (default 100000)", 0 },
    { "test-examples", PAL_OPTION_LONG, AT(test_examples), "N", "held-out examples (default 3000)", 0 },
};

static const option_row of_text[] = {
    { "data", PAL_OPTION_TEXT, AT(data), "LIST", "shards or text files, 'a,b', or with weights 'a=3,b=1'", 0 },
    { "tokenizer", PAL_OPTION_TEXT, AT(tokenizer), "X",
      "bytes, chars, a file or a directory (default: that of the shards, or of the model)", 0 },
    { "field", PAL_OPTION_TEXT, AT(field), "NAME",
      "--data is JSONL with the text in this field; prompt+response: two fields, training on the "
      "second alone",
      0 },
    { "valid", PAL_OPTION_FLOAT, AT(valid), "F",
      "fraction of a text file to hold back for validation (default 0.05); shards have their own", 0 },
    { "valid-data", PAL_OPTION_TEXT, AT(valid_data), "LIST", "validate on these shards or text files instead", 0 },
    { "valid-tokens", PAL_OPTION_LONG, AT(valid_tokens), "N",
      "validate on the first N tokens of each source (default, or 0: all)", 0 },
    { "no-eos", PAL_OPTION_FLAG, AT(no_eos), NULL,
      "do not end documents of a text file with the tokenizer's end-of-text token", 0 },
    { "row", PAL_OPTION_INT, AT(row), "L",
      "tokens per row, packed with documents (default 2048, 8192 or 32768, by the model's size)", POSITIVE },
    { "context", PAL_OPTION_INT, AT(context), "C",
      "cut longer documents into sequences of this many tokens (default 256, 1024 or 4096)", POSITIVE },
    { "shuffle", PAL_OPTION_TEXT, AT(shuffle), "WHAT",
      "documents, sequences, no, or auto: sequences if a source has fewer than 1000 documents "
      "(default auto)",
      0 },
    { "carry-state", PAL_OPTION_FLAG, AT(carry_state), NULL,
      "truncated back-propagation: each row starts from the final memory of the previous row", 0 },
    { "sample", PAL_OPTION_TEXT, AT(sample), "PROMPT", "print a continuation of PROMPT at each evaluation", 0 },
    { "sample-tokens", PAL_OPTION_INT, AT(sample_tokens), "N", "tokens of that continuation (default 200)", 0 },
    { "eval-tasks", PAL_OPTION_TEXT, AT(eval_tasks), "LIST",
      "also measure these tasks at each evaluation ('palimpsa eval --tasks list')", 0 },
    { "eval-data", PAL_OPTION_TEXT, AT(eval_data), "DIR", "directory of the tasks' files", 0 },
    { "eval-limit", PAL_OPTION_INT, AT(eval_limit), "N", "use the first N documents of each task (default 100)",
      POSITIVE },
    { "data-checksum", PAL_OPTION_TEXT, AT(data_checksum), "HEX",
      "recorded in config.json, so that a run resumes on the data it began with", 0 },
};

size_t pal_run_table(pal_train_settings *s, pal_option table[PAL_RUN_SETTINGS]) {
    const struct {
        const char *group;
        const option_row *rows;
        size_t count;
    } groups[] = { { NULL, of_run, PAL_COUNT(of_run) },
                   { "model", of_model, PAL_COUNT(of_model) },
                   { "updates", of_updates, PAL_COUNT(of_updates) },
                   { pal_run_mqar.group, of_mqar, PAL_COUNT(of_mqar) },
                   { pal_run_text.group, of_text, PAL_COUNT(of_text) } };
    _Static_assert(PAL_COUNT(of_run) + PAL_COUNT(of_model) + PAL_COUNT(of_updates) + PAL_COUNT(of_mqar) +
                           PAL_COUNT(of_text) <=
                       PAL_RUN_SETTINGS,
                   "the table has room for every setting");
    size_t n = 0;
    for (size_t g = 0; g < PAL_COUNT(groups); g++)
        for (size_t i = 0; i < groups[g].count; i++) {
            const option_row *r = &groups[g].rows[i];
            table[n++] = (pal_option){ .name = r->name,
                                       .type = r->type,
                                       .value = (char *)s + r->at,
                                       .argument = r->argument,
                                       .help = r->help,
                                       .group = groups[g].group,
                                       .above_zero = (r->flags & POSITIVE) != 0 };
        }
    return n;
}

pal_status pal_run_refuse_others(const pal_train_settings *s, const pal_run_task *task, pal_error *err) {
    pal_train_settings by_default, given = *s;
    pal_option table[PAL_RUN_SETTINGS], defaults[PAL_RUN_SETTINGS];
    const pal_run_task *other;
    task->defaults(&by_default);
    const size_t count = pal_run_table(&given, table);
    pal_run_table(&by_default, defaults);
    for (size_t i = 0; i < count; i++)
        for (int k = 0; (other = pal_run_task_at(k)); k++)
            if (other != task && table[i].group && strcmp(table[i].group, other->group) == 0 &&
                pal_option_differs(&table[i], &defaults[i]))
                return pal_fail(err, PAL_E_ARGUMENT, "--%s goes with --task %s", table[i].name, other->name);
    return PAL_OK;
}

pal_status pal_run_check_counts(const pal_train_settings *o, pal_error *err) {
    if (o->accumulate < 1)
        return pal_fail(err, PAL_E_ARGUMENT, "--accumulate is %d, expected at least 1", o->accumulate);
    const bool steps = o->steps < 0 || o->steps > PAL_MOST_STEPS;
    if (steps || o->epochs < 0 || o->epochs > PAL_MOST_STEPS)
        return pal_fail(err, PAL_E_ARGUMENT, "--%s is %lld, expected 0 to %lld", steps ? "steps" : "epochs",
                        (long long)(steps ? o->steps : o->epochs), (long long)PAL_MOST_STEPS);
    return PAL_OK;
}

static pal_status check_numbers(const pal_train_settings *o, pal_error *err) {
    if (strcmp(o->decay, "matrices") != 0 && strcmp(o->decay, "everything") != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "--decay '%s': expected everything or matrices", o->decay);
    if (strcmp(o->optimiser_precision, "f32") != 0 && strcmp(o->optimiser_precision, "bf16") != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "--optimiser-precision '%s': expected f32 or bf16",
                        o->optimiser_precision);
    if (o->init && strcmp(o->init, "recall") != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "--init '%s': expected recall", o->init);
    if (!(o->lr > 0) || !isfinite(o->lr))
        return pal_fail(err, PAL_E_ARGUMENT, "--lr is %g, expected a number above 0", o->lr);
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
        return pal_fail(err, PAL_E_ARGUMENT, "--beta1 %g and --beta2 %g must be from 0 to below 1", o->beta1, o->beta2);
    if (!(o->eps >= 0 && o->weight_decay >= 0 && o->clip >= 0 && o->warmup >= 0))
        return pal_fail(err, PAL_E_ARGUMENT, "--eps, --weight-decay, --clip and --warmup must not be negative");
    if (!(o->lr_floor >= 0 && o->lr_floor <= 1))
        return pal_fail(err, PAL_E_ARGUMENT, "--lr-floor is %g, expected 0 to 1", o->lr_floor);
    if (o->hidden < 0 || o->layers < 0 || o->heads < 0 || o->head_dim < 0 || o->state_size < 0 || o->rank < 0 ||
        o->expand_v < 0 || o->norm_groups < 0)
        return pal_fail(
            err, PAL_E_ARGUMENT,
            "--hidden, --layers, --heads, --head-dim, --state-size, --rank, --expand-v and --norm-groups must not be "
            "negative");
    if (o->log_every < 0 || o->eval_every < 0 || o->checkpoint_every < 0 || o->keep < 0)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "--log-every, --eval-every, --checkpoint-every and --keep must not be negative");
    return PAL_OK;
}

pal_status pal_run_options(const pal_train_settings *o, pal_train_options *t, pal_error *err) {
    pal_status st;
    *t = (pal_train_options){ .rate = o->lr,
                              .floor = o->lr_floor,
                              .warmup = o->warmup,
                              .accumulate = o->accumulate,
                              .log_every = o->log_every,
                              .eval_every = o->eval_every,
                              .checkpoint_every = o->checkpoint_every,
                              .keep = o->keep,
                              .stop_score = o->stop_score,
                              .recompute = o->recompute,
                              .optimiser = { .beta1 = o->beta1,
                                             .beta2 = o->beta2,
                                             .eps = o->eps,
                                             .weight_decay = o->weight_decay,
                                             .clip = o->clip,
                                             .bf16 = strcmp(o->optimiser_precision, "bf16") == 0,
                                             .decay_matrices = strcmp(o->decay, "matrices") == 0,
                                             .freeze = o->freeze,
                                             .train_only = o->train_only,
                                             .rates = o->lr_factor } };
    if ((st = check_numbers(o, err))) return st;
    t->best_dtype = pal_dtype_named(o->save_dtype, strlen(o->save_dtype));
    if (t->best_dtype != PAL_F32 && t->best_dtype != PAL_BF16 && t->best_dtype != PAL_F16)
        return pal_fail(err, PAL_E_ARGUMENT, "--save-dtype '%s': expected f32, bf16 or f16", o->save_dtype);
    const char *schedule = o->schedule ? o->schedule : o->steps || !o->examples ? "cosine" : "cosine-epoch";
    return pal_schedule_parse(&t->schedule, schedule, err);
}
