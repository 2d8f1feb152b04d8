/* SPDX-License-Identifier: MIT */
/* palimpsa bench: medians of interleaved measurements, with the machine's own limit measured in the same run. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/context.h"
#include "bench.h"
#include "cli.h"
#include "format/json.h"
#include "format/model_dir.h"

bench_item bench_make(const char *name, const char *shape, const char *variant, int threads, bench_fn *fn, void *arg) {
    bench_item item = { .variant = variant, .threads = threads, .fn = fn, .arg = arg, .bound = -1, .base = -1 };
    snprintf(item.name, sizeof item.name, "%s", name);
    snprintf(item.shape, sizeof item.shape, "%s", shape);
    return item;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_calls(const bench_item *item, long calls) {
    const double start = pal_seconds();
    for (long i = 0; i < calls; i++) item->fn(item->arg);
    return pal_seconds() - start;
}

static void print_row(const bench_item *items, const bench_item *it) {
    printf("  %-18s %-26s %-8s %d  %12.0f ns", it->name, it->shape, it->variant, it->threads, it->ns);
    if (it->tokens > 0) printf("  %9.0f tok/s", it->tokens / it->ns * 1e9);
    if (it->flops > 0) printf("  %6.1f GFLOP/s", it->flops / it->ns);
    if (it->bytes > 0) printf("  %6.1f GB/s", it->bytes / it->ns);
    if (it->bound >= 0) printf("  %.2fx bound", it->ns / (it->bound_share * items[it->bound].ns));
    if (it->base >= 0) printf("  %.2fx %s", it->ns / items[it->base].ns, items[it->base].name);
    putchar('\n');
}

static void record(json_t *list, const bench_item *items, const bench_item *it) {
    json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:f}", "name", it->name, "shape", it->shape, "variant", it->variant,
                          "threads", it->threads, "ns", it->ns);
    if (it->flops > 0) pal_json_set(o, "gflops", json_real(it->flops / it->ns));
    if (it->bytes > 0) pal_json_set(o, "gbs", json_real(it->bytes / it->ns));
    if (it->tokens > 0) pal_json_set(o, "tokens_per_s", json_real(it->tokens / it->ns * 1e9));
    if (it->bound >= 0) pal_json_set(o, "bound_ns", json_real(it->bound_share * items[it->bound].ns));
    if (it->base >= 0) {
        const bench_item *base = &items[it->base];
        char label[128];
        snprintf(label, sizeof label, "%s %s %d", base->name, base->variant, base->threads);
        pal_json_set(o, "ratio", json_real(it->ns / base->ns));
        pal_json_set(o, "ratio_to", json_string(label));
    }
    pal_json_append(list, o);
}

void bench_group(bench *b, const char *title, bench_item *items, int count) {
    enum { MAX_ROUNDS = 101 };
    bool wanted = !b->filter;
    for (int i = 0; i < count && !wanted; i++) wanted = strstr(items[i].name, b->filter) != NULL;
    if (!wanted) return;
    const int rounds = b->rounds < MAX_ROUNDS ? b->rounds : MAX_ROUNDS;
    double *samples = calloc((size_t)count * MAX_ROUNDS, sizeof *samples);
    long *calls = calloc((size_t)count, sizeof *calls);
    if (!samples || !calls) abort(); /* a few kilobytes */
    printf("%s\n", title);
    for (int i = 0; i < count; i++) { /* warm up, and find how many calls fill a sample */
        calls[i] = 1;
        double seconds = time_calls(&items[i], 1);
        while (seconds < b->sample_seconds) {
            const double grow = seconds > 0 ? 1.2 * b->sample_seconds / seconds : 10;
            calls[i] = (long)((double)calls[i] * (grow < 1.5 ? 1.5 : grow > 10 ? 10 : grow)) + 1;
            seconds = time_calls(&items[i], calls[i]);
        }
    }
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < count; i++)
            samples[i * MAX_ROUNDS + r] = time_calls(&items[i], calls[i]) / (double)calls[i] * 1e9;
    for (int i = 0; i < count; i++) {
        qsort(samples + i * MAX_ROUNDS, (size_t)rounds, sizeof *samples, by_value);
        items[i].ns = samples[i * MAX_ROUNDS + (b->best ? 0 : rounds / 2)];
    }
    for (int i = 0; i < count; i++) {
        if (items[i].hidden) continue;
        print_row(items, &items[i]);
        record(b->list, items, &items[i]);
    }
    fflush(stdout);
    free(samples);
    free(calls);
}

static bool is_device(const char *path) { return strncmp(path, "/dev/", 5) == 0; }

int bench_check_json(const char *path) { return path && !is_device(path) ? cli_check_target(path) : CLI_OK; }

int bench_write_json(const json_t *list, const char *path) {
    pal_error err;
    if (!path) return CLI_OK;
    if (!is_device(path)) return pal_json_write(path, list, &err) ? cli_fail_writing(&err) : CLI_OK;
    FILE *to = fopen(path, "we");
    const bool printed = to && pal_json_print(list, JSON_INDENT(1), to);
    if (to && fclose(to) == 0 && printed) return CLI_OK;
    return cli_error(CLI_FAILED, "%s: cannot write: %s", path, strerror(errno));
}

int cmd_bench(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "model") == 0) return bench_model(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "train") == 0) return bench_train(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "decode") == 0) return bench_decode(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "mpi") == 0) return bench_mpi(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "memories") == 0) return bench_memories(argc - 1, argv + 1);
    cli_common common = { 0 };
    const char *json = NULL, *rule = NULL;
    int rounds = 15;
    bool best = false;
    const cli_option options[] = {
        CLI_COMMON_OPTIONS(common),
        { "rule", OPT_TEXT, &rule, "NAME", "memory: measure only this rule" },
        { "rounds", OPT_INT, &rounds, "N", "rounds to measure; the median counts (default 15)" },
        { "best", OPT_FLAG, &best, NULL,
          "count the fastest round instead of the median, for machines that are not quiet" },
        { "json", OPT_TEXT, &json, "FILE", "also write every result to FILE" },
    };
    const cli_usage usage = {
        .synopsis = "bench SUBJECT [options]",
        .about =

            "Measures kernels, models and training next to the limits of this machine.\n\n"
            "Subjects:\n  memory     forward, backward and step of every memory rule\n  memories   what the "
            "memory of every rule holds\n  inference  "
            "palimpsa against simple GLA on long sequences, one large head\n  kernels    building "
            "blocks next to a copy of the same bytes\n  matmul     matrix multiply next to its "
            "library called directly\n  matvec     weights of every stored type: decoding rows, and "
            "prompts\n  model      a whole model and its ablation\n  train      whole updates of the "
            "recall task\n  decode     reading a prompt and generating tokens\n  mpi        updates "
            "on several ranks, and what their exchange costs\n\n"
            "'palimpsa bench model --help', and so on for memories, train, decode and mpi, has their options. "
            "What is compared is measured in turns; times are medians of one call. Keep the machine "
            "otherwise idle.",
        .examples = "  palimpsa bench memory\n"
                    "  palimpsa bench memory --rule palimpsa --cpu avx2 --json palimpsa.json\n"
                    "  palimpsa bench matmul --threads 1\n",
        .options = options,
        .option_count = PAL_COUNT(options),
    };
    const char *subject = NULL;
    int given;
    int code = cli_parse(&usage, argc, argv, &subject, 1, &given);
    if (code) return code < 0 ? CLI_OK : code;
    if (!given)
        return cli_error(
            CLI_USAGE,
            "bench: name a subject: memory, memories, inference, kernels, matmul, matvec, model, train, decode or mpi");
    if (rounds < 1 || rounds > 101) return cli_error(CLI_USAGE, "--rounds expects 1 to 101, found %d", rounds);
    if ((code = bench_check_json(json))) return code;

    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, common.threads, common.cpu, &err)) return cli_fail(&err);
    bench b = { .rounds = rounds, .best = best, .sample_seconds = 0.01, .list = json_array() };
    printf("palimpsa %s, cpu %s, up to %d thread%s, %s of %d\n", pal_version(),
           pal_cpu_level_name(pal_context_level(cx)), pal_context_threads(cx), pal_context_threads(cx) == 1 ? "" : "s",
           best ? "best" : "medians", rounds);
    if (strcmp(subject, "memory") == 0) code = bench_memory(&b, cx, rule);
    else if (strcmp(subject, "inference") == 0) code = bench_inference(&b, cx);
    else if (strcmp(subject, "kernels") == 0) code = bench_kernels(&b, cx);
    else if (strcmp(subject, "matmul") == 0) code = bench_matmul(&b, cx);
    else if (strcmp(subject, "matvec") == 0) code = bench_matvec(&b, cx);
    else
        code = cli_error(
            CLI_USAGE,
            "bench: no subject '%s'; expected memory, memories, inference, kernels, matmul, matvec, model, train, "
            "decode or mpi",
            subject);
    if (code == CLI_OK) code = bench_write_json(b.list, json);
    json_decref(b.list);
    pal_context_free(cx);
    return code;
}
