/* SPDX-License-Identifier: MIT */
/* Matrix multiply on the shapes that models use, next to oneDNN called directly. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/random.h"
#include "bench.h"
#include "cli.h"
#include "kernels/matmul/plain.h"

#ifdef PAL_HAVE_ONEDNN
#include <dnnl.h>
#endif

typedef struct {
    const pal_context *cx;
    int M, N, K;
    float *A, *B, *C;
} product;

static void ours(void *arg) {
    const product *p = arg;
    pal_matmul(p->cx, PAL_KEEP, PAL_TRANSPOSE, p->M, p->N, p->K, p->A, (size_t)p->K, p->B, (size_t)p->K, PAL_OVERWRITE,
               p->C, (size_t)p->N);
}

static void plain(void *arg) {
    const product *p = arg;
    pal_matmul_plain(p->cx, PAL_KEEP, PAL_TRANSPOSE, p->M, p->N, p->K, p->A, (size_t)p->K, p->B, (size_t)p->K,
                     PAL_OVERWRITE, p->C, (size_t)p->N);
}

#ifdef PAL_HAVE_ONEDNN
static void direct(void *arg) {
    const product *p = arg;
    dnnl_sgemm('N', 'T', p->M, p->N, p->K, 1.0f, p->A, p->K, p->B, p->K, 0.0f, p->C, p->N);
}
#endif

int bench_matmul(bench *b, const pal_context *cx) {
    static const int shapes[][3] = { { 2048, 2048, 2048 }, { 16384, 128, 128 }, { 16384, 256, 128 },
                                     { 4096, 8192, 128 },  { 512, 3352, 768 },  { 2048, 1536, 1536 } };
    enum { COUNT = PAL_COUNT(shapes) };
    for (int s = 0; s < COUNT; s++) {
        product p = { .cx = cx, .M = shapes[s][0], .N = shapes[s][1], .K = shapes[s][2] };
        const size_t a = (size_t)p.M * (size_t)p.K, w = (size_t)p.N * (size_t)p.K, c = (size_t)p.M * (size_t)p.N;
        p.A = pal_alloc(a, sizeof(float)), p.B = pal_alloc(w, sizeof(float)), p.C = pal_alloc(c, sizeof(float));
        if (!p.A || !p.B || !p.C)
            return cli_error(CLI_FAILED, "bench: out of memory for matmul %d x %d x %d", p.M, p.N, p.K);
        pal_fill_normal(cx, p.A, a, 1, 1, 1.0);
        pal_fill_normal(cx, p.B, w, 1, 2, 1.0);
        char shape[64];
        snprintf(shape, sizeof shape, "M%d N%d K%d", p.M, p.N, p.K);
        bench_item items[3];
        int count = 0;
#ifdef PAL_HAVE_ONEDNN
        /* Called directly, oneDNN uses every processor: only comparable when we do too. */
        items[count] = bench_make("dnnl_sgemm", shape, "direct", pal_context_threads(cx), direct, &p);
        items[count++].flops = 2.0 * p.M * p.N * p.K;
#endif
        items[count] = bench_make("matmul", shape, PAL_MATMUL_BACKEND, pal_context_threads(cx), ours, &p);
        items[count].flops = 2.0 * p.M * p.N * p.K;
        if (count) items[count].base = items[count].bound = 0, items[count].bound_share = 1;
        count++;
        if (strcmp(PAL_MATMUL_BACKEND, "plain") != 0) { /* else it was that */
            const char *level = pal_cpu_level_name(pal_context_level(cx));
            items[count] = bench_make("matmul, our own", shape, level, pal_context_threads(cx), plain, &p);
            items[count].flops = 2.0 * p.M * p.N * p.K;
            items[count].base = items[count].bound = 0, items[count].bound_share = 1;
            count++;
        }
        bench_group(b, s ? "" : "matmul: C[M,N] = A[M,K] B[N,K]^T, f32", items, count);
        pal_free(p.A), pal_free(p.B), pal_free(p.C);
    }
    return CLI_OK;
}
