/* SPDX-License-Identifier: MIT */
/* palimpsa bench decode: what generating text costs. Reading a prompt is measured against the matrix product, writing
 * tokens (steps with sampling) against reading memory, both limits in the same run. Several models take turns. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/context.h"
#include "base/parallel.h"
#include "bench.h"
#include "cli.h"
#include "format/json.h"
#include "named_model.h"

enum { MOST_BATCH = 64, MOST_SIDES = 12 };

typedef struct {
    const char *paths[MOST_SIDES]; /* models by name or files */
    int path_count;
    pal_dtype dtypes[MOST_SIDES]; /* of --model, a side each */
    int dtype_count;
    const char *model, *json; /* model: one more; NULL: none, or the default where there are no paths */
    int prompt, depth, piece, tokens, batch, layers, vocab, repeats;
    bool watch, processor_time;
    cli_common common;
} decode_options;

typedef struct {
    const char *name; /* the path's last part, or the name */
    const pal_context *cx;
    pal_model *model;
    pal_work *work;
    pal_sampler **samplers; /* one a thread */
    pal_state *states[MOST_BATCH], *deep; /* deep: what was read before, NULL: nothing */
    float *logits;
    int32_t *ids;
    pal_watch watch; /* tiles of the first sequence */
    double prefill[BENCH_REPEATS], step[BENCH_REPEATS], looking[BENCH_REPEATS]; /* seconds */
} decode_side;

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* path NULL: --model, in this type (PAL_DTYPES: its own). */
static int open_model(decode_side *s, const decode_options *o, const char *path, pal_dtype dtype,
                      const pal_context *cx) {
    pal_error err;
    const char *name = path ? path : o->model;
    const bool files = pal_names_files(name);
    const pal_preset_options own = { 0 }, sizes = { .layers = o->layers, .vocab = o->vocab };
    s->name = last_part(name);
    const int code = cli_open_model(&s->model, name, path && files ? &own : &sizes, PAL_FOR_INFERENCE, cx);
    if (code || dtype == PAL_DTYPES || (dtype == PAL_F32 && !files)) return code;
    return pal_model_retype(s->model, dtype, cx, &err) ? cli_fail(&err) : CLI_OK;
}

static int open_side(decode_side *s, const decode_options *o, const char *path, pal_dtype dtype,
                     const pal_context *cx) {
    pal_error err;
    const int context = o->depth + o->prompt + 2 * o->tokens, code = open_model(s, o, path, dtype, cx);
    if (code) return code;
    const pal_model_config *config = pal_model_config_of(s->model);
    const pal_work_options work = { .tokens = o->piece > o->batch ? o->piece : o->batch,
                                    .sequences = o->batch,
                                    .context = context,
                                    .variance = o->watch };
    if (pal_work_new(&s->work, s->model, cx, &work, &err)) return cli_fail(&err);
    s->cx = cx;
    s->samplers = pal_alloc((size_t)pal_context_threads(cx), sizeof *s->samplers);
    if (!s->samplers) return cli_error(CLI_FAILED, "bench: out of memory");
    for (int i = 0; i < pal_context_threads(cx); i++)
        if (pal_sampler_new(&s->samplers[i], config->vocab, &err)) return cli_fail(&err);
    for (int i = 0; i < o->batch; i++)
        if (pal_state_new(&s->states[i], s->model, context, &err)) return cli_fail(&err);
    if (o->depth && pal_state_new(&s->deep, s->model, context, &err)) return cli_fail(&err);
    s->logits = pal_alloc((size_t)o->batch * (size_t)config->vocab_rows, sizeof *s->logits);
    const int most = o->prompt > o->depth ? o->prompt : o->depth;
    s->ids = pal_alloc((size_t)most, sizeof *s->ids);
    if (!s->logits || !s->ids) return cli_error(CLI_FAILED, "bench: out of memory");
    if (o->watch) {
        const size_t layers = (size_t)config->layers;
        int heads;
        pal_model_widest(config, &heads, NULL, NULL);
        s->watch = (pal_watch){ .tiles = pal_alloc(layers, sizeof *s->watch.tiles),
                                .writes = pal_alloc(layers * (size_t)heads, sizeof *s->watch.writes),
                                .windows = pal_alloc(layers, sizeof *s->watch.windows),
                                .variances = pal_alloc(layers, sizeof *s->watch.variances),
                                .tokens = 1,
                                .scratch = pal_alloc(pal_watch_bytes(s->model), 1) };
        if (!s->watch.tiles || !s->watch.writes || !s->watch.windows || !s->watch.variances || !s->watch.scratch)
            return cli_error(CLI_FAILED, "bench: out of memory");
    }
    for (int t = 0; t < most; t++) s->ids[t] = (int32_t)((uint32_t)t * 2654435761u % (uint32_t)config->vocab);
    if (o->depth && pal_model_prefill(s->model, s->work, s->deep, s->ids, o->depth, NULL, &err)) return cli_fail(&err);
    return CLI_OK;
}

static void close_side(decode_side *s) {
    for (int i = 0; i < MOST_BATCH; i++) pal_state_free(s->states[i]);
    pal_state_free(s->deep);
    for (int i = 0; s->samplers && i < pal_context_threads(s->cx); i++) pal_sampler_free(s->samplers[i]);
    pal_free(s->samplers);
    pal_free(s->watch.tiles), pal_free(s->watch.writes), pal_free(s->watch.windows), pal_free(s->watch.variances);
    pal_free(s->watch.scratch);
    pal_work_free(s->work);
    pal_model_close(s->model);
    pal_free(s->logits);
    pal_free(s->ids);
}

typedef struct {
    const decode_side *s;
    int32_t *next;
    size_t rows;
    uint64_t step;
} pick_job;

static void pick_task(void *arg, size_t i, int thread) {
    static const pal_sampling usual = { .temperature = 0.8, .top_k = 40 };
    const pick_job *job = arg;
    job->next[i] = pal_sampler_pick(job->s->samplers[thread], &usual, job->s->logits + i * job->rows, NULL, NULL, 1,
                                    job->step);
}

static int run_once(decode_side *s, const decode_options *o, int repeat) {
    pal_error err;
    int32_t next[MOST_BATCH];
    const size_t rows = (size_t)pal_model_config_of(s->model)->vocab_rows;
    for (int i = 0; i < o->batch; i++) pal_state_reset(s->states[i]);
    if (s->deep && pal_state_copy(s->states[0], s->deep, &err)) return cli_fail(&err);
    double start = bench_seconds();
    if (pal_model_prefill(s->model, s->work, s->states[0], s->ids, o->prompt, s->logits, &err)) return cli_fail(&err);
    s->prefill[repeat] = bench_seconds() - start;
    for (int i = 1; i < o->batch; i++)
        if (pal_state_copy(s->states[i], s->states[0], &err)) return cli_fail(&err);
    for (int i = 0; i < o->batch; i++) next[i] = s->ids[i % o->prompt];
    double each[2][BENCH_REPEATS] = { { 0 } }; /* the median of single steps: one that was interrupted does not count */
    const int kinds = o->watch ? 2 : 1; /* every second step is watched */
    for (int t = 0; t < kinds * o->tokens; t++) {
        const bool watched = t % kinds;
        (void)pal_work_watch(s->work, 0, watched ? &s->watch : NULL, NULL);
        start = bench_seconds();
        if (pal_model_step(s->model, s->work, s->states, o->batch, next, s->logits, &err)) return cli_fail(&err);
        pick_job job = { .s = s, .next = next, .rows = rows, .step = (uint64_t)t };
        pal_parallel_for(s->cx, (size_t)o->batch, pick_task, &job);
        each[watched][t / kinds] = bench_seconds() - start;
    }
    (void)pal_work_watch(s->work, 0, NULL, NULL);
    s->step[repeat] = bench_median(each[0], o->tokens);
    if (!o->watch) return CLI_OK;
    /* Each watched step against the one before it: what else the machine does meanwhile meets both. */
    for (int t = 0; t < o->tokens; t++) each[1][t] -= each[0][t];
    s->looking[repeat] = bench_median(each[1], o->tokens);
    return CLI_OK;
}

static void add_row(json_t *list, const decode_side *s, const pal_context *cx, const char *name, const char *shape,
                    double seconds, double bound, double tokens, const char *rate, double per_second) {
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "name", name, "shape", shape,
                            "variant", s->name, "dtype", bench_dtype(s->model), "threads", pal_context_threads(cx),
                            "ns", seconds * 1e9, "bound_ns", bound * 1e9, rate, per_second, "tokens_per_s",
                            tokens / seconds, "share", bound / seconds);
    pal_json_append(list, row);
}

static void report(const decode_options *o, const decode_side *s, const bench_limits *m, const pal_context *cx,
                   json_t *list) {
    const double peak = bench_median(m->flops, o->repeats), bandwidth = bench_median(m->bytes, o->repeats);
    const double prefill = bench_median(s->prefill, o->repeats), step = bench_median(s->step, o->repeats);
    const double flop = 2 * bench_block_parameters(s->model) * o->prompt;
    const bench_moved moved = bench_step_moved(s->model, o->depth + o->prompt, o->batch);
    char shape[64];
    printf("%-14s %-24s %-5s %6d tokens  %10.2f ms  %9.1f tokens/s  %6.1f GFLOP/s, %5.1f%% of matmul\n",
           "model.prefill", s->name, bench_dtype(s->model), o->prompt, prefill * 1e3, o->prompt / prefill,
           flop / prefill * 1e-9, 100 * flop / peak / prefill);
    printf("%-14s %-24s %-5s %6d at once %10.2f ms  %9.1f tokens/s  %6.1f GB/s, %5.1f%% of reading\n", "model.decode",
           s->name, bench_dtype(s->model), o->batch, step * 1e3, o->batch / step, moved.total / step * 1e-9,
           100 * moved.total / bandwidth / step);
    printf("%-14s %.1f MB a step: weights %.1f, state read and written %.1f\n", "", moved.total * 1e-6,
           moved.weights * 1e-6, moved.state * 1e-6);
    if (o->watch) {
        const double looking = bench_median(s->looking, o->repeats), watched = step + looking;
        printf("%-14s %-24s %-5s %6s          %10.2f ms  %9.1f tokens/s  %+.1f%% for looking\n", "model.watch", s->name,
               bench_dtype(s->model), "", watched * 1e3, o->batch / watched, 100 * looking / step);
    }
    snprintf(shape, sizeof shape, "B1 T%d", o->prompt);
    add_row(list, s, cx, "model.prefill", shape, prefill, flop / peak, o->prompt, "gflops", flop / prefill * 1e-9);
    snprintf(shape, sizeof shape, "B%d T1", o->batch);
    add_row(list, s, cx, "model.decode", shape, step, moved.total / bandwidth, o->batch, "gbs",
            moved.total / step * 1e-9);
    if (o->watch)
        pal_json_set(json_array_get(list, json_array_size(list) - 1), "watched_ns",
                     json_real((step + bench_median(s->looking, o->repeats)) * 1e9));
    pal_json_set(json_array_get(list, json_array_size(list) - 1), "bytes", json_real(moved.total));
}

static void report_all(const decode_options *o, const decode_side *sides, int count, const bench_limits *m,
                       const pal_context *cx, json_t *list) {
    printf("%d threads%s; matmul %.1f GFLOP/s, reading %.1f GB/s; medians of %d, models in turns\n",
           pal_context_threads(cx), o->processor_time ? ", processor time" : "",
           bench_median(m->flops, o->repeats) * 1e-9, bench_median(m->bytes, o->repeats) * 1e-9, o->repeats);
    for (int i = 0; i < count; i++) report(o, &sides[i], m, cx, list);
}

/* "f32,q8_0" */
static int read_dtypes(decode_options *o, const char *list) {
    for (const char *at = list; *at;) {
        const size_t n = strcspn(at, ",");
        const pal_dtype type = pal_dtype_named(at, n);
        if (type == PAL_DTYPES || o->path_count + o->dtype_count == MOST_SIDES)
            return cli_error(CLI_USAGE,
                             "--dtype expects up to %d of f32, f16, bf16, q8_0, q6_k, q5_k, q5_0, q4_k and q4_0, "
                             "separated by commas, found '%s'",
                             MOST_SIDES - o->path_count, list);
        o->dtypes[o->dtype_count++] = type;
        at += n + (at[n] == ',');
    }
    return CLI_OK;
}

static int run_bench(const decode_options *o, const pal_context *cx) {
    decode_side *sides = pal_alloc(MOST_SIDES + 1, sizeof *sides);
    bench_limits m = { 0 };
    json_t *list = json_array();
    int code = sides ? bench_check_json(o->json) : cli_error(CLI_FAILED, "bench: out of memory"), count = 0;
    if (!code) code = bench_limits_open(&m);
    for (int i = 0; i < o->path_count && !code; i++) code = open_side(&sides[count++], o, o->paths[i], PAL_DTYPES, cx);
    for (int i = 0; i < o->dtype_count && !code; i++) code = open_side(&sides[count++], o, NULL, o->dtypes[i], cx);
    for (int r = -1; r < o->repeats && !code; r++) { /* the first round only warms up */
        bench_limits_measure(&m, cx, r < 0 ? 0 : r);
        for (int i = 0; i < count && !code; i++) code = run_once(&sides[i], o, r < 0 ? 0 : r);
    }
    if (!code) report_all(o, sides, count, &m, cx, list);
    if (!code) code = bench_write_json(list, o->json);
    for (int i = 0; i < count; i++) close_side(&sides[i]);
    pal_free(sides);
    bench_limits_close(&m);
    json_decref(list);
    return code;
}

int bench_decode(int argc, char **argv) {
    decode_options o = { .prompt = 2048, .piece = 512, .tokens = 32, .batch = 1, .repeats = 3 };
    const char *dtypes = NULL;
    const cli_option options[] = {
        { "model", OPT_TEXT, &o.model, "MODEL",
          "a model to measure in addition (default, without MODEL: palimpsa-m-170m)" },
        { "dtype", OPT_TEXT, &dtypes, "LIST", "types of --model's matrices, each measured (default: its own)" },
        { "prompt", OPT_INT, &o.prompt, "N", "prompt tokens (default 2048)" },
        { "depth", OPT_INT, &o.depth, "N", "tokens that are read before, not measured (default 0)" },
        { "piece", OPT_INT, &o.piece, "N", "prompt tokens read at once (default 512)" },
        { "tokens", OPT_INT, &o.tokens, "N", "tokens to generate (default 32)" },
        { "batch", OPT_INT, &o.batch, "N", "sequences generated at once (default 1)" },
        { "layers", OPT_INT, &o.layers, "N", "override the number of layers" },
        { "vocab", OPT_INT, &o.vocab, "N", "override the vocabulary size" },
        { "watch", OPT_FLAG, &o.watch, NULL,
          "also measure with tiles of the memory at every token (every second step)" },
        { "repeats", OPT_INT, &o.repeats, "N", "repetitions of each measurement (default 3)" },
        { "processor-time", OPT_FLAG, &o.processor_time, NULL,
          "measure the processor time of one thread instead of wall time, for busy machines" },
        { "json", OPT_TEXT, &o.json, "FILE", "write the results as JSON" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = {
        .synopsis = "bench decode [MODEL...] [options]",
        .about = "Measures what 'palimpsa generate' does.\n\n"
                 "Reading a prompt, as a share of the matrix product (2 FLOP per parameter of the blocks), "
                 "and generating tokens with sampling, as a share of reading RAM (weights once, state read "
                 "and written). Both limits are measured in the same run. MODELs are named as for 'train'; "
                 "they and --model take turns.",
        .examples = "  palimpsa bench decode --model palimpsa-m-170m\n  palimpsa bench decode "
                    "--model transformer-170m --batch 8 --json decode.json\n  palimpsa bench decode "
                    "my-model my-model-q8_0.gguf --prompt 512\n  palimpsa bench decode --model mamba2-130m "
                    "--dtype f32,q8_0,q4_k\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    const int parsed = cli_parse(&usage, argc, argv, o.paths, MOST_SIDES, &o.path_count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (!o.model && !o.path_count) o.model = "palimpsa-m-170m";
    if (dtypes && !o.model)
        return cli_error(CLI_USAGE, "--dtype goes with --model; the others have types of their own");
    if (o.model && !dtypes && o.path_count < MOST_SIDES) o.dtypes[o.dtype_count++] = PAL_DTYPES;
    const int wrong = dtypes ? read_dtypes(&o, dtypes) : CLI_OK;
    if (wrong) return wrong;
    if (o.prompt < 1 || o.depth < 0 || o.piece < 1 || o.tokens < 1 || o.tokens > BENCH_REPEATS || o.batch < 1 ||
        o.batch > MOST_BATCH || o.repeats < 1 || o.repeats > BENCH_REPEATS)
        return cli_error(CLI_USAGE,
                         "bench decode: expected prompt and piece of at least 1, depth of at least 0, 1 to %d "
                         "tokens, a batch of 1 to %d and 1 to %d repeats",
                         BENCH_REPEATS, MOST_BATCH, BENCH_REPEATS);
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    int code = CLI_OK;
    if (o.processor_time && pal_context_threads(cx) > 1) /* threads that wait for each other spend it too */
        code = cli_error(CLI_USAGE, "--processor-time expects --threads 1, found %d", pal_context_threads(cx));
    if (o.processor_time) bench_use_processor_time();
    if (!code) code = run_bench(&o, cx);
    pal_context_free(cx);
    return code;
}
