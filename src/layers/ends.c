/* SPDX-License-Identifier: MIT */
#include "layers/ends.h"

#include <string.h>

#include "base/parallel.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gates/gates.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norms/norms.h"
#include "kernels/product/product.h"
#include "layers/dense.h"

/* A piece of logits stays in a shared cache from the product that makes it to the two that use its gradient, unless a
 * row is so long that too few rows would fit for the weights' gradient, read and written once a piece, to be worth its
 * way. */
enum { PIECE_FLOATS = 4 << 20, PIECE_LEAST = 320, COLUMN_BLOCK = 64 };

/* Rows of logits a multiple of a KiB apart fall on few sets of the cache, where dlogits^T x reads down a column: that
 * product ran at half its speed. One cache line between rows is enough. */
enum { ALIASING = 256, LINE = 16 };

static size_t spread(size_t vocab) { return vocab % ALIASING ? vocab : vocab + LINE; }

typedef struct {
    const float *dh;
    float *dtable;
    const int32_t *ids;
    size_t width;
    int tokens;
} embedding_job;

/* A thread owns columns and takes tokens in order: two tokens of one id never meet, and the sum is always the same. */
static void scatter_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const embedding_job *job = arg;
    for (int t = 0; t < job->tokens; t++) {
        float *to = job->dtable + (size_t)job->ids[t] * job->width;
        const float *from = job->dh + (size_t)t * job->width;
        for (size_t i = begin; i < end; i++) to[i] += from[i];
    }
}

/* x *= factor */
static void scale(const pal_pass *ps, float *x, int rows, int width, float factor) {
    const size_t ld = (size_t)width;
    if (factor != 1)
        pal_scale_rows(ps->cx,
                       &(pal_elementwise_args){
                           .rows = (size_t)rows, .width = width, .factor = factor, .x = { x, ld }, .y = { x, ld } });
}

void pal_embedding_forward(const pal_pass *ps, const pal_matrix *table, float factor, const int32_t *ids, float *h) {
    const double t = pal_tick(ps);
    pal_gather_rows(ps->cx, table, ids, (size_t)ps->tokens, h, (size_t)table->columns);
    scale(ps, h, ps->tokens, table->columns, factor);
    pal_tock(ps, PAL_T_EMBEDDING, t);
}

void pal_embedding_backward(const pal_pass *ps, float *dtable, int width, float factor, const int32_t *ids, float *dh) {
    const double t = pal_tick(ps);
    scale(ps, dh, ps->tokens, width, factor);
    embedding_job job = { .dtable = dtable, .ids = ids, .dh = dh, .width = (size_t)width, .tokens = ps->tokens };
    pal_parallel_ranges(ps->cx, job.width, COLUMN_BLOCK, scatter_task, &job);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_EMBEDDING, t);
}

void pal_head_take(pal_head *head, const pal_model_config *c, const pal_head_use *use, pal_arena *arena,
                   pal_arena *lists) {
    const size_t E = (size_t)c->hidden, V = (size_t)c->vocab_rows;
    int rows = (int)(PIECE_FLOATS / V);
    if (rows < PIECE_LEAST) rows = PIECE_LEAST;
    if (rows > use->rows) rows = use->rows;
    const size_t R = (size_t)rows;
    *head = (pal_head){ .rows = rows,
                        .hidden = c->hidden,
                        .vocab = c->vocab_rows,
                        .eps = (float)c->norm_eps,
                        .scale = c->logit_scale != 0 ? (float)c->logit_scale : 1,
                        .layernorm = c->mqar,
                        .ld = spread(V) };
    head->h = pal_take(arena, R * E, sizeof(float));
    head->x = pal_take(arena, R * E, sizeof(float));
    if (use->loss || use->logits) head->logits = pal_take(arena, R * head->ld, sizeof(float));
    if (!use->loss) return;
    head->nll = pal_take(lists, R, sizeof(float));
    head->labels = pal_take(lists, R, sizeof(int));
    head->argmax = pal_take(lists, R, sizeof(int));
    if (!use->training) return;
    head->dx = pal_take(arena, R * E, sizeof(float));
    head->dh = pal_take(arena, R * E, sizeof(float));
}

static pal_dense head_dense(int hidden, int vocab, const pal_layer *outer) {
    return (pal_dense){ .in = hidden,
                        .matrices = 1,
                        .out = { vocab },
                        .w = { outer->m[PAL_W_HEAD] },
                        .dw = { outer->d[PAL_W_HEAD] },
                        .trains = outer->trains };
}

static pal_layernorm_args layernorm_args(const pal_layer *outer, const pal_head *head, int rows) {
    const size_t E = (size_t)head->hidden;
    return (pal_layernorm_args){ .rows = (size_t)rows,
                                 .width = head->hidden,
                                 .eps = head->eps,
                                 .w = outer->w[PAL_W_FINAL_NORM],
                                 .b = outer->w[PAL_W_FINAL_NORM_BIAS],
                                 .x = { head->h, E },
                                 .y = { head->x, E },
                                 .dy = { head->dx, E },
                                 .dx = { head->dh, E },
                                 .dw = outer->d[PAL_W_FINAL_NORM],
                                 .db = outer->d[PAL_W_FINAL_NORM_BIAS] };
}

static pal_rmsnorm_args rmsnorm_args(const pal_layer *outer, const pal_head *head, int rows) {
    const size_t E = (size_t)head->hidden;
    return (pal_rmsnorm_args){ .rows = (size_t)rows,
                               .groups = 1,
                               .width = head->hidden,
                               .eps = head->eps,
                               .w = outer->w[PAL_W_FINAL_NORM],
                               .x = { head->h, E },
                               .y = { head->x, E },
                               .dy = { head->dx, E },
                               .dx = { head->dh, E },
                               .dw = outer->d[PAL_W_FINAL_NORM] };
}

size_t pal_head_scratch_bytes(const pal_model_config *c, const pal_layer *outer, int rows) {
    const pal_layernorm_args ln = { .rows = (size_t)rows, .width = c->hidden };
    const pal_rmsnorm_args rms = { .rows = (size_t)rows, .groups = 1, .width = c->hidden };
    const size_t norm = (c->mqar ? pal_layernorm_scratch_floats(&ln) : pal_rmsnorm_scratch_floats(&rms)) *
                        sizeof(float);
    const pal_dense dense = head_dense(c->hidden, c->vocab_rows, outer);
    const size_t logits = pal_dense_scratch_bytes(&dense, rows);
    return norm > logits ? norm : logits;
}

/* Rows begin .. begin+rows-1 of the wanted ones: gathered, normed and multiplied into logits. */
static void piece_forward(const pal_pass *ps, const pal_layer *outer, const pal_head *head, const float *stream,
                          const int *at, int begin, int rows, float *logits, size_t ld) {
    const size_t E = (size_t)head->hidden;
    double t = pal_tick(ps);
    if (at) pal_take_rows(ps->cx, head->h, stream, at + begin, (size_t)rows, head->hidden);
    else pal_take_rows(ps->cx, head->h, stream + (size_t)begin * E, NULL, (size_t)rows, head->hidden);
    if (head->layernorm) {
        const pal_layernorm_args norm = layernorm_args(outer, head, rows);
        pal_layernorm(ps->cx, &norm);
    } else {
        const pal_rmsnorm_args norm = rmsnorm_args(outer, head, rows);
        pal_rmsnorm(ps->cx, &norm);
    }
    scale(ps, head->x, rows, head->hidden, head->scale);
    t = pal_tock(ps, PAL_T_NORM, t);
    const pal_dense dense = head_dense(head->hidden, head->vocab, outer);
    pal_dense_forward(ps, &dense, rows, head->x, E, PAL_OVERWRITE, logits, ld);
    pal_tock(ps, PAL_T_HEAD, t);
}

static void piece_backward(const pal_pass *ps, const pal_layer *outer, const pal_head *head, const int *at, int begin,
                           int rows, float *dstream) {
    const size_t E = (size_t)head->hidden;
    const pal_dense dense = head_dense(head->hidden, head->vocab, outer);
    double t = pal_tick(ps);
    pal_dense_backward(ps, &dense, rows, head->x, E, head->logits, head->ld, PAL_OVERWRITE, head->dx, E);
    scale(ps, head->dx, rows, head->hidden, head->scale);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_HEAD, t);
    if (head->layernorm) {
        const pal_layernorm_args norm = layernorm_args(outer, head, rows);
        pal_layernorm_backward(ps->cx, &norm, ps->scratch);
    } else {
        const pal_rmsnorm_args norm = rmsnorm_args(outer, head, rows);
        pal_rmsnorm_backward(ps->cx, &norm, ps->scratch);
    }
    if (at) pal_put_rows(ps->cx, dstream, head->dh, at + begin, (size_t)rows, head->hidden);
    else pal_put_rows(ps->cx, dstream + (size_t)begin * E, head->dh, NULL, (size_t)rows, head->hidden);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_NORM, t);
}

void pal_head_logits(const pal_pass *ps, const pal_layer *outer, const pal_head *head, const float *stream,
                     const int *at, int n, float *logits) {
    const size_t V = (size_t)head->vocab;
    for (int begin = 0; begin < n; begin += head->rows) {
        const int rows = n - begin < head->rows ? n - begin : head->rows;
        float *to = logits + (size_t)begin * V;
        const bool here = ps->cx->device != NULL; /* where logits are made, and then brought to the caller */
        piece_forward(ps, outer, head, stream, at, begin, rows, here ? head->logits : to, here ? head->ld : V);
        for (size_t r = 0; here && r < (size_t)rows; r++)
            pal_copy_floats(ps->cx, to + r * V, head->logits + r * head->ld, V);
    }
}

/* Losses of the piece whose logits and labels stand in head; returns their sum. */
static double piece_loss(const pal_pass *ps, const pal_head *head, int rows, float scale, bool gradient) {
    const pal_cross_entropy_args args = { .rows = (size_t)rows,
                                          .vocab = head->vocab,
                                          .logits = { head->logits, head->ld },
                                          .labels = head->labels,
                                          .scale = scale,
                                          .nll = head->nll,
                                          .argmax = head->argmax,
                                          .dlogits = { gradient ? head->logits : NULL, head->ld } };
    return pal_cross_entropy(ps->cx, &args);
}

void pal_head_loss(const pal_pass *ps, const pal_layer *outer, const pal_head *head, const float *stream, const int *at,
                   int n, const int32_t *targets, float scale, pal_loss *loss, unsigned char *correct, float *nll,
                   float *dstream) {
    for (int begin = 0; begin < n; begin += head->rows) {
        const int rows = n - begin < head->rows ? n - begin : head->rows;
        piece_forward(ps, outer, head, stream, at, begin, rows, head->logits, head->ld);
        const double t = pal_tick(ps);
        for (int i = 0; i < rows; i++) head->labels[i] = (int)targets[at ? at[begin + i] : begin + i];
        loss->sum += piece_loss(ps, head, rows, scale, dstream != NULL);
        for (int i = 0; i < rows; i++) {
            const bool right = head->argmax[i] == head->labels[i];
            loss->count++;
            loss->correct += right;
            if (correct) correct[at ? at[begin + i] : begin + i] = right;
            if (nll) nll[at ? at[begin + i] : begin + i] = head->nll[i];
        }
        pal_tock(ps, PAL_T_LOSS, t);
        if (dstream) piece_backward(ps, outer, head, at, begin, rows, dstream);
    }
}

void pal_head_score(const pal_pass *ps, const pal_layer *outer, const pal_head *head, const float *stream,
                    const int *at, const int32_t *target, int n, float *nll, unsigned char *correct) {
    for (int begin = 0; begin < n; begin += head->rows) {
        const int rows = n - begin < head->rows ? n - begin : head->rows;
        piece_forward(ps, outer, head, stream, at, begin, rows, head->logits, head->ld);
        const double t = pal_tick(ps);
        for (int i = 0; i < rows; i++) head->labels[i] = (int)target[begin + i];
        piece_loss(ps, head, rows, 0, false);
        for (int i = 0; i < rows; i++) {
            nll[begin + i] = head->nll[i];
            correct[begin + i] = head->argmax[i] == head->labels[i];
        }
        pal_tock(ps, PAL_T_LOSS, t);
    }
}
