/* SPDX-License-Identifier: MIT */
/* Measuring: what is compared is measured in turns within one run, and medians are reported. */
#ifndef PAL_CLI_BENCH_H
#define PAL_CLI_BENCH_H

#include <stdbool.h>

#include "palimpsa/palimpsa.h"

typedef void bench_fn(void *arg);

typedef struct bench_item {
    char name[48];       /* "palimpsa.forward", "matmul", "rmsnorm.forward" */
    char shape[64];      /* "B32 T128 H8 Dk16 Dv32" */
    const char *variant; /* "avx2", "onednn", ... */
    int threads;
    bench_fn *fn;
    void *arg;
    double flops, bytes, tokens; /* per call; 0 where they say nothing */
    double bound_share;          /* > 0: bound_ns = bound_share * the ns of item `bound` */
    int bound, base;             /* other items of the group, or -1: the machine's limit; what `ratio` divides by */
    bool hidden;                 /* measured for others' sake, not listed */
    double ns;                   /* result: median (or best) of one call */
} bench_item;

typedef struct bench {
    int rounds;            /* how many turns */
    bool best;             /* report the best turn, not the median */
    double sample_seconds; /* how long one sample lasts at least */
    const char *filter;    /* only items whose name contains this; NULL: all */
    struct json_t *list;   /* every result */
} bench;

/* Measures the items in turns, prints a row each, and adds them to the list. */
void bench_group(bench *b, const char *title, bench_item *items, int count);

/* An item with no relations yet. */
bench_item bench_make(const char *name, const char *shape, const char *variant, int threads, bench_fn *fn, void *arg);

/* --json FILE, or NULL: whether it can be written is asked before the measuring. Exit codes. */
int bench_check_json(const char *path);
int bench_write_json(const struct json_t *list, const char *path);

/* Subjects: each prints its tables. Return an exit code. */
int bench_memory(bench *b, const pal_context *cx, const char *rule);
int bench_inference(bench *b, const pal_context *cx);
int bench_kernels(bench *b, const pal_context *cx);
int bench_matmul(bench *b, const pal_context *cx);
int bench_matvec(bench *b, const pal_context *cx);

int bench_model(int argc, char **argv); /* have options of their own */
int bench_train(int argc, char **argv);
int bench_decode(int argc, char **argv);
int bench_mpi(int argc, char **argv);
int bench_memories(int argc, char **argv);

/* The machine's limits for whole models: a large matrix product and reading memory, measured once a repeat, in turn
 * with what is compared to them. */
enum { BENCH_REPEATS = 64 };
typedef struct bench_limits {
    float *a, *b, *c, *large;
    double flops[BENCH_REPEATS], bytes[BENCH_REPEATS]; /* per second */
} bench_limits;
int bench_limits_open(bench_limits *limits); /* an exit code */
void bench_limits_measure(bench_limits *limits, const pal_context *cx, int repeat);
void bench_limits_close(bench_limits *limits);
void bench_read(const pal_context *cx, const float *x, size_t floats); /* at most 256 MiB, once */
double bench_median(const double *values, int count); /* at most BENCH_REPEATS */
/* The clock of limits and of what is compared to them: on the wall, or the processor time of this process. */
double bench_seconds(void);
void bench_use_processor_time(void);
/* Numbers in the blocks' weights: a forward whose only logits are the last token's makes next to no use of the head. */
double bench_block_parameters(const pal_model *model);
/* Bytes that one step of `batch` sequences moves: every weight once, states read and written. */
typedef struct bench_moved {
    double weights, state, total;
} bench_moved;
bench_moved bench_step_moved(const pal_model *model, int context, int batch);
const char *bench_dtype(const pal_model *model); /* the type that most of its weights are stored in */
/* The name of a metaplastic preset's ablation; "-wo-meta" goes before the size. False: it has none. */
bool bench_ablation(const char *name, char out[64]);

#endif
