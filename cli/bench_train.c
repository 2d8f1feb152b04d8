/* SPDX-License-Identifier: MIT */
/* palimpsa bench train: whole updates of the recall task, as `palimpsa train --task mqar` does them: examples made,
 * loss and gradients, AdamW. A metaplastic model and its ablation take turns with the machine's matrix product. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/io.h"
#include "bench.h"
#include "cli.h"
#include "data/mqar.h"
#include "format/json.h"
#include "named_model.h"
#include "palimpsa/palimpsa.h"
#include "progress.h"
#include "train/checkpoint.h"
#include "train/optimiser.h"
#include "train/run.h"

enum { MOST_OPERATIONS = 64 };

typedef struct {
    const char *model, *rule;
    int length, pairs, vocab, hidden, heads, layers, batch, repeats;
    const char *checkpoints, *json;
    cli_common common;
} bench_options;

/* Parts of an update. */
typedef enum { GENERATE, LEARN, UPDATE, PARTS } part;
static const char *const part_names[PARTS] = { "examples", "loss and gradients", "AdamW" };

typedef struct {
    char name[64];
    pal_model *model;
    pal_work *work;
    pal_optimiser *optimiser;
    pal_mqar *data;
    void *scratch;
    int32_t *ids, *labels;
    int *cu;
    double seconds[PARTS][BENCH_REPEATS], total[BENCH_REPEATS];
} bench_side;

static int open_side(bench_side *s, const bench_options *o, const pal_context *cx, const char *name) {
    pal_error err;
    const int tokens = o->length * o->batch;
    const pal_preset_options preset = {
        .task = "mqar", .rule = o->rule, .vocab = o->vocab, .hidden = o->hidden, .heads = o->heads, .layers = o->layers
    };
    const pal_optimiser_options adamw = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1 };
    snprintf(s->name, sizeof s->name, "%s", name);
    const int code = cli_open_model(&s->model, name, &preset, PAL_FOR_TRAINING, cx);
    if (code) return code;
    const pal_model_config config = *pal_model_config_of(s->model);
    if (!config.mqar)
        return cli_error(CLI_USAGE, "bench train: %s is a language model; 'palimpsa bench model' measures it", name);
    const pal_mqar_config recall = {
        .length = o->length, .pairs = o->pairs, .vocabulary = config.vocab, .exponent = 0.01
    };
    if (pal_mqar_check(&recall, &err) || pal_mqar_new(&s->data, &recall, 1, PAL_MQAR_TRAIN, &err))
        return cli_fail(&err);
    if (pal_work_new(&s->work, s->model, cx,
                     &(pal_work_options){ .tokens = tokens, .sequences = o->batch, .training = true }, &err))
        return cli_fail(&err);
    if (pal_optimiser_new(&s->optimiser, s->model, &adamw, NULL, &err)) return cli_fail(&err);
    s->scratch = pal_alloc(pal_mqar_scratch_bytes(s->data, cx), 1);
    s->ids = pal_alloc((size_t)tokens, sizeof *s->ids);
    s->labels = pal_alloc((size_t)tokens, sizeof *s->labels);
    s->cu = pal_alloc((size_t)o->batch + 1, sizeof *s->cu);
    if (!s->scratch || !s->ids || !s->labels || !s->cu) return cli_error(CLI_FAILED, "bench: out of memory");
    for (int n = 0; n <= o->batch; n++) s->cu[n] = n * o->length;
    return CLI_OK;
}

static void close_side(bench_side *s) {
    pal_optimiser_free(s->optimiser);
    pal_work_free(s->work);
    pal_mqar_free(s->data);
    pal_model_close(s->model);
    pal_free(s->scratch), pal_free(s->ids), pal_free(s->labels), pal_free(s->cu);
}

static int update_once(bench_side *s, const bench_options *o, const pal_context *cx, int repeat) {
    pal_error err;
    pal_loss loss;
    double at[PARTS + 1];
    const pal_batch batch = {
        .tokens = o->length * o->batch, .sequences = o->batch, .ids = s->ids, .cu_seqlens = s->cu, .targets = s->labels
    };
    at[GENERATE] = pal_seconds();
    pal_mqar_fill(s->data, cx, (uint64_t)repeat * (uint64_t)o->batch, (size_t)o->batch, s->ids, s->labels, s->scratch);
    at[LEARN] = pal_seconds();
    memset(pal_model_flat_gradients(s->model), 0, pal_model_flat(s->model) * sizeof(float));
    if (pal_model_learn(s->model, s->work, &batch, 1.0f, &loss, NULL, &err)) return cli_fail(&err);
    at[UPDATE] = pal_seconds();
    pal_optimiser_step(s->optimiser, s->model, cx, 1.0 / (o->pairs * o->batch), 1e-3);
    at[PARTS] = pal_seconds();
    for (int i = 0; i < PARTS; i++) s->seconds[i][repeat] = at[i + 1] - at[i];
    s->total[repeat] = at[PARTS] - at[0];
    return CLI_OK;
}

static void report(const bench_options *o, const bench_side *s, const bench_side *other, const bench_limits *m,
                   const pal_context *cx, json_t *list) {
    const double tokens = (double)o->length * o->batch, peak = bench_median(m->flops, o->repeats),
                 seconds = bench_median(s->total, o->repeats);
    const double flop = tokens * pal_run_token_flops(s->model, (double)o->pairs / o->length);
    char shape[64];
    snprintf(shape, sizeof shape, "B%d T%d", o->batch, o->length);
    printf("%-22s %-10s %9.2f ms  %8.0f tok/s  %6.1f GFLOP/s, %5.1f%% of matmul", s->name, shape, seconds * 1e3,
           tokens / seconds, flop / seconds * 1e-9, 100 * flop / seconds / peak);
    json_t *entry = json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f}", "name", "model.train", "shape", shape,
                              "variant", s->name, "threads", pal_context_threads(cx), "ns", seconds * 1e9, "bound_ns",
                              flop / peak * 1e9, "gflops", flop / seconds * 1e-9, "tokens_per_s", tokens / seconds);
    if (other) {
        double ratios[BENCH_REPEATS];
        for (int i = 0; i < o->repeats; i++) ratios[i] = s->total[i] / other->total[i];
        const double ratio = bench_median(ratios, o->repeats);
        printf("  %.3fx %s", ratio, other->name);
        pal_json_set(entry, "ratio", json_real(ratio));
        pal_json_set(entry, "ratio_to", json_string(other->name));
    }
    printf("\n ");
    for (int i = 0; i < PARTS; i++)
        printf(" %s %.2f ms (%.1f%%)%s", part_names[i], bench_median(s->seconds[i], o->repeats) * 1e3,
               100 * bench_median(s->seconds[i], o->repeats) / seconds, i + 1 < PARTS ? "," : "\n");
    pal_json_append(list, entry);
}

static void report_operations(const bench_side *s, int repeats) {
    const pal_timing *t = pal_work_timing(s->work);
    double all = 0;
    for (int i = 0; t[i].name; i++) all += t[i].seconds;
    printf("\nwhere loss and gradients of %s go (' is backward), mean of %d:\n", s->name, repeats);
    for (int i = 0; t[i].name; i++)
        if (t[i].calls)
            printf("  %-20s %9.2f ms %6.1f%%\n", t[i].name, t[i].seconds / repeats * 1e3, 100 * t[i].seconds / all);
}

/* Checkpoints as a run writes them, synced and renamed, in a directory that is gone afterwards. */
static int time_checkpoints(const bench_options *o, const bench_side *s, json_t *list) {
    char run[PATH_MAX], path[PATH_MAX + 64], prefix[PATH_MAX];
    double seconds[BENCH_REPEATS];
    pal_error err;
    int code = cli_path(prefix, sizeof prefix, "%s/bench", o->checkpoints);
    if (code) return code;
    if (pal_make_temporary_directory(run, sizeof run, prefix, &err)) return cli_fail(&err);
    for (int i = 0; i < o->repeats && !code; i++) {
        json_t *trainer = json_object();
        const double since = pal_seconds();
        if (pal_checkpoint_write(run, i, s->model, s->optimiser, trainer, 1, (pal_checkpoint_more){ 0 },
                                 &pal_comm_alone, &err))
            code = cli_fail_writing(&err);
        seconds[i] = pal_seconds() - since;
        json_decref(trainer);
    }
    snprintf(path, sizeof path, "%s/checkpoints/step-%d", run, o->repeats - 1);
    pal_remove_directory(path);
    snprintf(path, sizeof path, "%s/checkpoints", run);
    if (!pal_io_rmdir(path) || !pal_io_rmdir(run)) fprintf(stderr, "palimpsa: cannot remove %s\n", run);
    if (code) return code;
    const double median = bench_median(seconds, o->repeats);
    printf("a checkpoint of %s (weights and moments, synced): %.1f ms\n", s->name, median * 1e3);
    pal_json_append(list, json_pack("{s:s, s:s, s:f}", "name", "checkpoint", "variant", s->name, "ns", median * 1e9));
    return CLI_OK;
}

static int run_bench(const bench_options *o, const pal_context *cx) {
    bench_side sides[2] = { 0 };
    bench_limits m = { 0 };
    char ablation[64];
    const int count = !o->rule && bench_ablation(o->model, ablation) ? 2 : 1;
    json_t *list = json_array();
    int code = bench_check_json(o->json);
    if (!code) code = bench_limits_open(&m);
    for (int i = 0; i < count && !code; i++) code = open_side(&sides[i], o, cx, i ? ablation : o->model);
    for (int r = -1; r < o->repeats && !code; r++) { /* the first round only warms up */
        bench_limits_measure(&m, cx, r < 0 ? 0 : r);
        for (int i = 0; i < count && !code; i++) {
            code = update_once(&sides[i], o, cx, r < 0 ? 0 : r);
            if (r < 0) pal_work_timing_reset(sides[i].work);
        }
    }
    if (!code) {
        printf("%d threads; matmul %.1f GFLOP/s; %zu parameters, %d pairs in %d tokens, medians of %d turns (times and "
               "ratios each)\n",
               pal_context_threads(cx), bench_median(m.flops, o->repeats) * 1e-9, pal_model_parameters(sides[0].model),
               o->pairs, o->length, o->repeats);
        for (int i = 0; i < count; i++) report(o, &sides[i], i == 0 && count == 2 ? &sides[1] : NULL, &m, cx, list);
        if (o->checkpoints) code = time_checkpoints(o, &sides[0], list);
        for (int i = 0; i < count; i++) report_operations(&sides[i], o->repeats);
        if (!code) code = bench_write_json(list, o->json);
    }
    for (int i = 0; i < count; i++) close_side(&sides[i]);
    bench_limits_close(&m);
    json_decref(list);
    return code;
}

int bench_train(int argc, char **argv) {
    bench_options o = { .model = "palimpsa-d", .length = 128, .batch = 128, .repeats = 7 };
    const cli_option options[] = {
        { "model", OPT_TEXT, &o.model, "NAME|DIR",
          "a model of the recall task, as for 'train' (default palimpsa-d); a metaplastic name is compared with its "
          "ablation" },
        { "rule", OPT_TEXT, &o.rule, "RULE", "memory rule on the D backbone: longhorn, gdn, kda, mamba3, ..." },
        { "seq-len", OPT_INT, &o.length, "L", "tokens per example (default 128)" },
        { "kv-pairs", OPT_INT, &o.pairs, "N", "pairs to remember (default L/4)" },
        { "batch", OPT_INT, &o.batch, "N", "examples per update (default 128)" },
        { "vocab", OPT_INT, &o.vocab, "V", "override the vocabulary size" },
        { "hidden", OPT_INT, &o.hidden, "D", "override the width" },
        { "layers", OPT_INT, &o.layers, "N", "override the number of layers" },
        { "heads", OPT_INT, &o.heads, "N", "override the number of heads" },
        { "repeats", OPT_INT, &o.repeats, "N", "repetitions of each measurement (default 7)" },
        { "checkpoints", OPT_TEXT, &o.checkpoints, "DIR",
          "also time checkpoints, written into a new directory in DIR" },
        { "json", OPT_TEXT, &o.json, "FILE", "write the results as JSON" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = {
        .synopsis = "bench train [options]",
        .about = "Measures training updates of the recall task (MQAR).\n\n"
                 "Making examples, loss and gradients, AdamW. Shares are of the matrix product measured in "
                 "the same run, counting 6 FLOP per matrix parameter and token, the head only at labels.",
        .examples = "  palimpsa bench train\n  palimpsa bench train --model palimpsa-m --seq-len "
                    "256 --batch 64\n  palimpsa bench train --checkpoints .\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int positional;
    const int parsed = cli_parse(&usage, argc, argv, NULL, 0, &positional);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (!o.pairs) o.pairs = o.length / 4;
    if (o.length < 4 || o.length > 1 << 20 || o.batch < 1 || o.batch > 1 << 16 || o.repeats < 1 ||
        o.repeats > BENCH_REPEATS)
        return cli_error(CLI_USAGE, "bench train: expected 4 to 2^20 tokens, 1 to 65536 examples and 1 to %d repeats",
                         BENCH_REPEATS);
    if (o.checkpoints && access(o.checkpoints, W_OK | X_OK) != 0) /* before minutes are spent on the rest */
        return cli_error(CLI_USAGE, "--checkpoints %s: cannot write there: %s", o.checkpoints, strerror(errno));
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    const int code = run_bench(&o, cx);
    pal_context_free(cx);
    return code;
}
