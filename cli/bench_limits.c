/* SPDX-License-Identifier: MIT */
/* What whole models are measured against: the machine's limits, and the same model without metaplasticity. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "bench.h"
#include "cli.h"
#include "kernels/matmul/matmul.h"

enum { PEAK_SIZE = 1536, READ_FLOATS = 64 << 20, READ_PASSES = 5 };

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(const double *values, int n) {
    double sorted[BENCH_REPEATS];
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static bool processor_time;
void bench_use_processor_time(void) { processor_time = true; }
double bench_seconds(void) {
    struct timespec t;
    if (!processor_time) return pal_seconds();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    const float *x;
    double *sums;
} read_job;

/* Four streams at once, as wide as the processor loads: one stream alone leaves bandwidth unused. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default")))
#endif
static void
read_task(void *arg, size_t begin, size_t end, int thread) {
    typedef float wide __attribute__((vector_size(32), may_alias));
    (void)thread;
    const read_job *job = arg;
    const size_t quarter = (end - begin) / 4 / 8;
    const wide *x = (const wide *)(const void *)(job->x + begin);
    wide sum[4] = { { 0 } };
    for (size_t i = 0; i < quarter; i++)
        for (size_t stream = 0; stream < 4; stream++) sum[stream] += x[stream * quarter + i];
    job->sums[begin >> 20] = (double)(sum[0] + sum[1] + sum[2] + sum[3])[0];
}

void bench_read(const pal_context *cx, const float *x, size_t floats) {
    double sums[READ_FLOATS >> 20];
    read_job job = { .x = x, .sums = sums };
    pal_parallel_ranges(cx, floats < READ_FLOATS ? floats : READ_FLOATS, 1 << 20, read_task, &job);
}

int bench_limits_open(bench_limits *m) {
    m->a = pal_alloc(PEAK_SIZE * PEAK_SIZE, sizeof(float));
    m->b = pal_alloc(PEAK_SIZE * PEAK_SIZE, sizeof(float));
    m->c = pal_alloc(PEAK_SIZE * PEAK_SIZE, sizeof(float));
    m->large = pal_alloc(READ_FLOATS, sizeof(float));
    return m->a && m->b && m->c && m->large ? CLI_OK : cli_error(CLI_FAILED, "bench: out of memory");
}

void bench_limits_close(bench_limits *m) { pal_free(m->a), pal_free(m->b), pal_free(m->c), pal_free(m->large); }

void bench_limits_measure(bench_limits *m, const pal_context *cx, int repeat) {
    const double flop = 2.0 * PEAK_SIZE * PEAK_SIZE * PEAK_SIZE;
    double start = bench_seconds();
    pal_matmul(cx, PAL_KEEP, PAL_TRANSPOSE, PEAK_SIZE, PEAK_SIZE, PEAK_SIZE, m->a, PEAK_SIZE, m->b, PEAK_SIZE,
               PAL_OVERWRITE, m->c, PEAK_SIZE);
    m->flops[repeat] = flop / (bench_seconds() - start);
    m->bytes[repeat] = 0;
    for (int pass = 0; pass < READ_PASSES; pass++) { /* a limit is the best that was seen */
        start = bench_seconds();
        bench_read(cx, m->large, READ_FLOATS);
        const double rate = READ_FLOATS * sizeof(float) / (bench_seconds() - start);
        if (rate > m->bytes[repeat]) m->bytes[repeat] = rate;
    }
}

bool bench_ablation(const char *name, char out[64]) {
    const size_t family = strlen("palimpsa-d");
    if (strncmp(name, "palimpsa-", 9) != 0 || strstr(name, "wo-meta") || strlen(name) < family) return false;
    snprintf(out, 64, "%.10s-wo-meta%s", name, name + family);
    return true;
}

double bench_block_parameters(const pal_model *model) {
    double n = 0;
    for (size_t i = 0; i < pal_model_weight_count(model); i++)
        if (pal_model_weight(model, i)->layer >= 0) n += (double)pal_model_weight(model, i)->count;
    return n;
}

/* Of an embedding that is not the head too, a step reads one row a sequence. */
bench_moved bench_step_moved(const pal_model *model, int context, int batch) {
    const bool tied = pal_model_config_of(model)->tied;
    const double fixed = (double)pal_state_bytes(model, 0), all = (double)pal_state_bytes(model, context);
    bench_moved moved = { .state = batch * (fixed + all) }; /* what grows is read, and a token added to it */
    for (size_t i = 0; i < pal_model_weight_count(model); i++) {
        const pal_weight *w = pal_model_weight(model, i);
        const double bytes = (double)pal_weight_bytes(w);
        if (w->unused) continue;
        moved.weights += !tied && strcmp(w->group, "embedding") == 0 ? bytes / (double)w->shape[0] * batch : bytes;
    }
    moved.total = moved.weights + moved.state;
    return moved;
}

const char *bench_dtype(const pal_model *model) {
    double most = 0;
    pal_dtype found = PAL_F32;
    for (int type = 0; type < PAL_DTYPES; type++) {
        double values = 0;
        for (size_t i = 0; i < pal_model_weight_count(model); i++)
            if (pal_model_weight(model, i)->type == (pal_dtype)type)
                values += (double)pal_model_weight(model, i)->count;
        if (values > most) most = values, found = (pal_dtype)type;
    }
    return pal_dtype_name(found);
}
